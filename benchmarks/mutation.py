"""Mutants: small wrong changes of the code that claims rest on, made from its syntax tree; the same ones every time.

A mutant replaces one expression by another that is wrong in a way in which code is wrong: a sign, a factor, a term left
out, a constant off by one, a comparison turned, a loop one step too long. Text that nobody computes with (annotations,
docstrings, messages, refusals, decorators) is left alone.
"""

from __future__ import annotations

import ast
import copy
import hashlib
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from types import MappingProxyType

__all__ = ["TARGETS", "Mutant", "chosen", "mutants_of"]

TARGETS: Mapping[str, tuple[str, ...]] = MappingProxyType(
    {
        "estimators": tuple(
            f"bilevel_sym/estimators/{name}.py" for name in ("hypergradient", "linear_system", "batches")
        ),
        "solvers": (
            "bilevel_sym/solvers/perturbed.py", "bilevel_sym/solvers/ineon.py", "bilevel_sym/solvers/stocbio.py",
            "bilevel_sym/solvers/noise.py", "bilevel_sym/solvers/loop.py", "bilevel_sym/solvers/local_minimum.py",
        ),
        "schedules": tuple(
            f"bilevel_sym/theories/huang_saddle/schedules/{name}.py"
            for name in ("aid", "batches", "escape", "goal", "inner", "neon", "stochastic")
        ),
        "constants": ("bilevel_sym/theories/huang_saddle/constants.py", "bilevel_sym/implicit/second_order.py"),
        "bounds": (
            "verify/papers/huang_saddle/measures/runs.py",
            "verify/papers/huang_saddle/measures/stochastic/stocbio_bounds.py",
        ),
    }
)  # fmt: skip
"""What claims rest on, by kind."""

SWAPPED: Mapping[type, type] = MappingProxyType(
    {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.Pow: ast.Mult}
)
TURNED: Mapping[type, type] = MappingProxyType(
    {ast.Lt: ast.GtE, ast.GtE: ast.Lt, ast.Gt: ast.LtE, ast.LtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
)
OTHER_CALL: Mapping[str, str] = MappingProxyType({"min": "max", "max": "min", "ceil": "floor", "floor": "ceil"})
REFUSALS = (
    "__post_init__", "__repr__", "__str__", "check", "_raise", "require_estimator", "require_escape", "auto",
    "goal_of", "smoothness_of", "_is_seed", "require_chance", "positive_accuracy", "float_of", "floats_of",
)  # fmt: skip
FEWEST = 4  # mutants of a file


@dataclass(frozen=True, order=True)
class Mutant:
    """One wrong change: where, what stood there and what stands there now."""

    path: str
    line: int
    column: int
    end_line: int
    end_column: int
    function: str
    operator: str
    before: str
    after: str
    nth: int = 1

    @property
    def key(self) -> str:
        """A name that outlives changes elsewhere in the file; ``nth`` tells equal changes of a function apart."""
        again = f" #{self.nth}" if self.nth > 1 else ""
        return f"{self.path}::{self.function}::{self.operator}::{self.before} -> {self.after}{again}"

    def applied(self, text: str) -> str:
        """The source with the change in it."""
        lines = text.split("\n")
        head = lines[self.line - 1].encode()[: self.column].decode()
        tail = lines[self.end_line - 1].encode()[self.end_column :].decode()
        return "\n".join([*lines[: self.line - 1], head + self.after + tail, *lines[self.end_line :]])


def mutants_of(path: str, text: str) -> list[Mutant]:
    """All mutants of a source text, in the order of their places.

    >>> [f"{m.before} -> {m.after}" for m in mutants_of("a.py", "def f(a):\\n    return a + 2")]
    ['a + 2 -> (a - 2)', 'a + 2 -> -(a + 2)', 'a + 2 -> (a)', '2 -> 3']
    """
    walker = _Walker(path, text)
    walker.visit(ast.parse(text))
    seen: Counter[str] = Counter()
    found = []
    for mutant in sorted(set(walker.found)):
        seen[mutant.key] += 1
        found.append(replace(mutant, nth=seen[mutant.key]))
    return found


class _Walker(ast.NodeVisitor):
    def __init__(self, path: str, text: str) -> None:
        self.path, self._lines = path, text.encode().split(b"\n")
        self.found: list[Mutant] = []
        self._names: list[str] = []

    # ---- what is left alone

    def _inside(self, node: ast.FunctionDef | ast.ClassDef) -> None:
        if node.name in REFUSALS or node.name.startswith("_check"):
            return
        self._names.append(node.name)
        for child in node.body:  # neither decorators nor annotations nor defaults
            self.visit(child)
        self._names.pop()

    visit_FunctionDef = visit_ClassDef = _inside

    def visit_Raise(self, node: ast.Raise) -> None:
        """A refusal."""

    def visit_AnnAssign(self, node: ast.AnnAssign) -> None:
        if node.value is not None and self._names and self._names[-1].islower():
            self.visit(node.value)

    def visit_JoinedStr(self, node: ast.JoinedStr) -> None:
        """Text for people."""

    def visit_Import(self, node: ast.Import | ast.ImportFrom) -> None:
        """Nothing is computed."""

    visit_ImportFrom = visit_Import

    # ---- what is changed

    def visit_BinOp(self, node: ast.BinOp) -> None:
        if not (isinstance(node.left, ast.Constant) and isinstance(node.left.value, str)):
            other = SWAPPED.get(type(node.op))
            if other is not None:
                changed = copy.deepcopy(node)
                changed.op = other()
                self._change("operator", node, changed)
            if isinstance(node.op, (ast.Add, ast.Sub)):
                self._change("term dropped", node, node.left)
        self.generic_visit(node)

    def visit_AugAssign(self, node: ast.AugAssign) -> None:
        other = SWAPPED.get(type(node.op))
        if other is not None:
            changed = copy.deepcopy(node)
            changed.op = other()
            self._change("operator", node, changed, bare=True)
        self.generic_visit(node)

    def visit_UnaryOp(self, node: ast.UnaryOp) -> None:
        if isinstance(node.op, (ast.USub, ast.Not)):
            self._change("negation dropped", node, node.operand)
        self.generic_visit(node)

    def visit_Compare(self, node: ast.Compare) -> None:
        for k, op in enumerate(node.ops):
            other = TURNED.get(type(op))
            if other is not None:
                changed = copy.deepcopy(node)
                changed.ops[k] = other()
                self._change("comparison", node, changed)
        self.generic_visit(node)

    def visit_BoolOp(self, node: ast.BoolOp) -> None:
        changed = copy.deepcopy(node)
        changed.op = ast.Or() if isinstance(node.op, ast.And) else ast.And()
        self._change("and, or", node, changed)
        self.generic_visit(node)

    def visit_Constant(self, node: ast.Constant) -> None:
        value = node.value
        if isinstance(value, bool) or not isinstance(value, (int, float)):
            return
        wrong = value + 1 if isinstance(value, int) else 2 * value or 1.0
        self._change("constant", node, ast.Constant(wrong), bare=True)

    def visit_Call(self, node: ast.Call) -> None:
        name = node.func.id if isinstance(node.func, ast.Name) else getattr(node.func, "attr", "")
        if name == "range":
            changed = copy.deepcopy(node)
            k = min(1, len(changed.args) - 1)
            changed.args[k] = ast.BinOp(changed.args[k], ast.Add(), ast.Constant(1))
            self._change("one step more", node, changed, bare=True)
        elif name in OTHER_CALL:
            changed = copy.deepcopy(node)
            if isinstance(changed.func, ast.Name):
                changed.func.id = OTHER_CALL[name]
            else:
                changed.func.attr = OTHER_CALL[name]  # type: ignore[attr-defined]
            self._change("other function", node, changed, bare=True)
        self.generic_visit(node)

    def visit_Return(self, node: ast.Return) -> None:
        if isinstance(node.value, ast.BinOp) and isinstance(node.value.op, tuple(SWAPPED)):
            self._change("sign", node.value, ast.UnaryOp(ast.USub(), node.value), bare=True)
        self.generic_visit(node)

    def _between(self, line: int, column: int, end_line: int, end_column: int) -> str:
        """The source between two places; columns count bytes."""
        lines = self._lines[line - 1 : end_line]
        lines[-1] = lines[-1][:end_column]
        lines[0] = lines[0][column:]
        return b"\n".join(lines).decode()

    def _change(self, operator: str, old: ast.AST, new: ast.AST, *, bare: bool = False) -> None:
        place = (old.lineno, old.col_offset, old.end_lineno or 0, old.end_col_offset or 0)  # type: ignore[attr-defined]
        after = ast.unparse(ast.fix_missing_locations(new))
        after = after if bare else f"({after})"
        before = " ".join(self._between(*place).split())
        self.found.append(Mutant(self.path, *place, ".".join(self._names) or "module", operator, before, after))


def chosen(root: Path, count: int, seed: int) -> list[Mutant]:
    """``count`` mutants of the targets, more of longer files; the same for the same seed, wherever their lines move.

    Each has a lot of its own, drawn from its key, and the lowest lots of a file are taken. So a change elsewhere in a
    file leaves the others as they are, and what is known of a survivor stays of use.
    """
    pools = {path: mutants_of(path, (root / path).read_text("utf-8")) for path in _paths()}
    total = sum(map(len, pools.values()))
    found: list[Mutant] = []
    for pool in pools.values():
        share = min(len(pool), max(FEWEST, round(count * len(pool) / total)))
        found += sorted(pool, key=lambda mutant: _lot(mutant, seed))[:share]
    return sorted(found, key=lambda mutant: _lot(mutant, seed))


def _paths() -> Iterator[str]:
    return (path for paths in TARGETS.values() for path in paths)


def _lot(mutant: Mutant, seed: int) -> bytes:
    return hashlib.sha256(f"{seed} {mutant.key}".encode()).digest()
