"""How large the house is, and how far one walks through it: five ways from a question to its answer.

    python -m benchmarks.walks [FOLDER]

Files, lines, and lines of code (neither docstrings, comments nor empty ones) of the two packages (in FOLDER, by default
here), without the second theory and without what came later and has files of its own: arrays, batches of their rows,
real data, ``interop`` and source for other libraries. Of a way: the functions of the two packages that are entered
while it runs, the files that they stand in, and how many of them are on the stack at once. Work that is cached, or done
by numba and libraries, is not seen.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np

from bilevel_sym import AID, BilevelProblem, Perturbed, compile_kernels, derive, solve, verify

ROOT = Path(__file__).resolve().parent.parent
ADDED = (
    "ji2021", "arrays/", "array_", "named_arrays", "compiled_arrays", "compiled_plan", "one_point", "compiled/plans",
    "compiled/rows", "estimators/row_", "structured", "conjugate_gradients", "enclosed/", "regularity/structure",
    "zoo/real", "zoo/tables", "real_data", "interop/", "source_parts/templates",
)  # fmt: skip
TEXT = ("sin(x1)*y1 + x2**2*y1", "(2 + cos(x2))*y1**2/2 - x1*y1", "x1 x2", "y1")
BOX = {"x1": (-1, 1), "x2": (-1, 1), "y1": (-2, 2)}


@dataclass(frozen=True)
class Walk:
    """What was entered on one way."""

    files: int
    functions: int
    depth: int


def walk(way: Callable[[], Any]) -> Walk:
    """Count what a call enters."""
    entered: set[Any] = set()
    deepest, depth = 0, 0

    def seen(frame: FrameType, event: str, _: Any) -> None:
        nonlocal deepest, depth
        if not frame.f_code.co_filename.startswith((str(ROOT / "bilevel_sym"), str(ROOT / "verify"))):
            return
        if event == "call":
            depth += 1
            if not frame.f_code.co_name.startswith("<"):  # neither modules nor comprehensions
                entered.add(frame.f_code)
            deepest = max(deepest, depth)
        elif event == "return":
            depth -= 1

    sys.setprofile(seen)
    try:
        way()
    finally:
        sys.setprofile(None)
    return Walk(len({code.co_filename for code in entered}), len(entered), deepest)


def problem() -> BilevelProblem:
    """A small problem, made anew: nothing is cached."""
    return BilevelProblem(*TEXT, box=BOX)


def ways() -> dict[str, Callable[[], Any]]:
    """From a question to its answer."""
    start, algorithm = np.zeros(2), Perturbed(AID(D=5, N=2, tau=0.3), eta=0.1, eps=0.1, r=0.1, T_escape=3)
    return {
        "text -> derive -> LaTeX": lambda: derive(problem()).latex(),
        "problem -> hess_phi": lambda: compile_kernels(problem(), backend="tape").hess_phi(start),
        "problem -> solve": lambda: solve(problem(), algorithm, start, steps=20, rng=0),
        "problem -> run one claim -> text": lambda: verify.run(problem(), claims=["lem:descent"], rng=0).to_text(),
        "candidate -> check -> diagnosis": lambda: (
            verify.check_hypergradient(lambda x: -problem().kernels.grad_phi(x), problem(), rng=0).message
        ),
    }


def sizes(root: Path) -> dict[str, tuple[int, int, int]]:
    """Files, lines and lines of code of each package, without what was added beside it."""
    found = {}
    for package in ("bilevel_sym", "verify"):
        paths = [path for path in (root / package).rglob("*.py") if not is_added(path.relative_to(root).as_posix())]
        texts = [path.read_text(encoding="utf-8") for path in paths]
        found[package] = len(paths), sum(len(text.splitlines()) for text in texts), sum(map(code_lines, texts))
    return found


def code_lines(text: str) -> int:
    """The lines of a module that hold more than docstrings and comments.

    >>> code_lines("'What it is.'\\n\\nLIMIT = 3  # of them\\n# no more\\n")
    1
    """
    told: set[int] = set()
    for node in ast.walk(ast.parse(text)):
        if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)) and ast.get_docstring(node, clean=False):
            told.update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    empty = (tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER)
    tokens = tokenize.generate_tokens(io.StringIO(text).readline)
    spans = (range(t.start[0], t.end[0] + 1) for t in tokens if t.type not in empty)
    return len({line for span in spans for line in span} - told)


def is_added(path: str) -> bool:
    """Whether a file belongs to the second theory, or to what came later; ``arithmetic/arrays`` is older than both.

    >>> is_added("verify/papers/ji2021/rates.py"), is_added("bilevel_sym/arithmetic/arrays.py")
    (True, False)
    """
    return any(part in path for part in ADDED)


def main() -> None:
    """Print the tables."""
    root = Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT
    print("| package | files | lines | of code |\n| --- | --- | --- | --- |")
    for package, (files, lines, code) in sizes(root).items():
        print(f"| {package} | {files} | {lines} | {code} |")
    if root != ROOT:
        return  # another folder is counted, not run
    print("\n| way | files | functions | depth |\n| --- | --- | --- | --- |")
    for name, way in ways().items():
        way()  # modules are imported, and numba has compiled, before it is counted
        found = walk(way)
        print(f"| {name} | {found.files} | {found.functions} | {found.depth} |")


if __name__ == "__main__":
    main()
