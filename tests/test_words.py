"""The words: lists of arguments, the glossary, names that say what they hold, and numbers that stand once."""

from __future__ import annotations

import ast
import functools
import importlib
import inspect
import re
import sys
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import pytest
from import_flow import tree_of

ROOT = Path(__file__).resolve().parent.parent
DOCS = ROOT / ".github" / "docs"
sys.path.insert(0, str(DOCS))
reference: Any = importlib.import_module("reference")

LISTED_FROM = 4  # parameters: fewer are told from their names and types
ITEM = re.compile(r"^- ((?:``\w+``(?:, )?)+):", re.M)
ELSEWHERE = re.compile(r"^- (?:All|The others): as for ``(\w+)``", re.M)


def parameters_of(value: Callable[..., Any]) -> list[str]:
    """The names of what is passed; ``self`` and ``cls`` are not."""
    names = list(inspect.signature(value).parameters)
    return [name for name in names if name not in ("self", "cls") and not name.startswith("_")]


def listed(value: Any, home: Any = None) -> set[str]:
    """The parameters that a docstring lists, with those of the docstring that it refers to."""
    text = inspect.getdoc(value) or ""
    found = {name for item in ITEM.findall(text) for name in re.findall(r"``(\w+)``", item)}
    for name in ELSEWHERE.findall(text):
        other = getattr(home, name, None) or getattr(sys.modules[value.__module__], name, None) or named(name)
        found |= listed(other, home)
    return found


def named(name: str) -> Any:
    """What the reference lists under a name."""
    entries = (entry for page in reference.PAGES for entry in page.entries)
    return next(reference.resolve(entry) for entry in entries if entry.rpartition(".")[2] == name)


def without_list(value: Any, home: Any = None) -> list[str]:
    """The parameters that a docstring should list, and does not."""
    names = parameters_of(value)
    return sorted(set(names) - listed(value, home)) if len(names) >= LISTED_FROM else []


def public() -> Iterator[tuple[str, Any, Any]]:
    """Name, function or class, and the class of a method, for all that the reference lists and users call."""
    for dotted in (entry for page in reference.PAGES for entry in page.entries):
        value = reference.resolve(dotted)
        if isinstance(value, type) and reference.is_ours(value):
            if reference.has_constructor(value):
                yield dotted, value, None
            for name, member, _ in reference.members(value):
                if not isinstance(member, property | functools.cached_property):
                    yield f"{dotted}.{name}", getattr(member, "__func__", member), value
        elif callable(value) and reference.is_ours(value):
            yield dotted, value, None


def test_what_takes_many_arguments_lists_them() -> None:
    missing = {dotted: without_list(value, home) for dotted, value, home in public()}
    assert len(missing) > 250
    assert {dotted: names for dotted, names in missing.items() if names} == {}


def many(a: int, b: int, c: int, d: int) -> None:
    """Four.

    - ``a``, ``b``: the first two.
    - ``c``: the third.
    """


def few(a: int, b: int, c: int) -> None:
    """Three."""


def others(a: int, b: int, c: int, e: int) -> None:
    """Four, of which three are listed.

    - ``e``: the last.
    - The others: as for ``many``.
    """


@pytest.mark.parametrize(("planted", "missing"), [(many, ["d"]), (few, []), (others, [])])
def test_a_planted_docstring_without_its_list_is_caught(planted: Callable[..., None], missing: list[str]) -> None:
    assert without_list(planted) == missing


def glossary() -> dict[str, str]:
    """What the glossary says of each word."""
    return dict(re.findall(r"^- \*\*(\w+)\*\*: (.+)$", (DOCS / "glossary.md").read_text(encoding="utf-8"), re.M))


def unused(words: Iterable[str]) -> list[str]:
    """The words that stand nowhere in the code, neither as names nor in what is said about them."""
    paths = (path for top in ("bilevel_sym", "verify") for path in (ROOT / top).rglob("*.py"))
    sources = (path.read_text(encoding="utf-8") for path in paths)
    used = set(re.findall(r"[a-z]+", re.sub(r"(?<=[a-z])(?=[A-Z])", " ", "\n".join(sources)).lower()))
    return [word for word in words if word not in used and f"{word}s" not in used]


def test_every_word_of_the_glossary_occurs_in_the_code() -> None:
    assert len(glossary()) > 20
    assert unused(glossary()) == []
    assert unused(["lane", "flibbertigibbet"]) == ["flibbertigibbet"]


def test_the_glossary_is_found() -> None:
    for page in (DOCS / "README.md", ROOT / ".github" / "CONTRIBUTING.md"):
        assert "glossary.md" in page.read_text(encoding="utf-8"), page


# ---- names ----------------------------------------------------------------------------------------------------

# names that do not say what they hold, with the word that took their place; the glossary justifies the ones that stay
UNTELLING = {
    "alone": "one_point", "atom": "node_of", "by_bracket": "judged_by_bracket", "changed": "wrong_line",
    "chosen_box": "requested_box", "decided_over": "judged_over_regions", "elsewhere": "at_other_points",
    "ends_of": "as_bracket", "exchanged": "what is swapped", "given": "what was given", "inquiry": "CandidateCheck",
    "judged": "what is judged, and by what", "Ledger": "recorder", "Meter": "ProgressBar", "NOTHING": "zero",
    "of_phi": "judged_phi_derivative", "readiness": "what is ready", "scan": "what is looked for",
    "sharp": "nearly all is explained", "shifted": "near_solution", "sites": "sample_points", "SMALL": "what it bounds",
    "solve_job": "solve_run", "steady": "batch-invariant", "Team": "Ensemble", "tidy": "simplified", "turn": "a block",
    "UNIT": "ZERO_TO_ONE", "words": "a message",
}  # fmt: skip
# numbers whose name says how large, but not what of
VAGUE = {"NEAR", "FAR", "CLOSE", "MANY", "FEW", "MORE", "MOST", "LEAST", "THIN", "ROUNDING", "BITS"}
# public: the verdict on what was measured; and the grammar's own word for what has no parts
TELLING = {"verify.verdict.judged", "bilevel_sym.problem.parsing.grammar._atom"}
INDEPENDENT = "verify.certificates.recheck"  # shares no code, and no limit on its size but 500 lines
# numbers that stand twice on purpose: a claim's own writing of the algorithm; limits of arrays, beside those of scalars
STAND_TWICE = {"STATIONARY_SHARE", "LARGEST", "MAX_BITS", "MAX_DEPTH", "MAX_EXPONENT", "MAX_POWER", "MAX_TERMS"}
NEW_ROOMS = ("array", "conjugate_gradients", "interop", "symbolic.source")  # written at the same time as this test


def modules() -> Iterator[tuple[str, ast.Module]]:
    """Every module of the two packages, but for the independent checker."""
    for path in (path for top in ("bilevel_sym", "verify") for path in sorted((ROOT / top).rglob("*.py"))):
        name = ".".join(path.relative_to(ROOT).with_suffix("").parts)
        if name != INDEPENDENT:
            yield name, tree_of(path)


def defined(tree: ast.Module) -> Iterator[str]:
    """The names of functions, methods, classes, and what is assigned at module level."""
    for node in ast.walk(tree):
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            yield node.name
    yield from (name for name, _ in assigned(tree))


def assigned(tree: ast.Module) -> Iterator[tuple[str, ast.expr]]:
    for node in tree.body:
        if isinstance(node, (ast.Assign, ast.AnnAssign)) and node.value is not None:
            target = node.targets[0] if isinstance(node, ast.Assign) else node.target
            if isinstance(target, ast.Name):
                yield target.id, node.value
            elif isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple):
                pairs = zip(target.elts, node.value.elts, strict=True)
                yield from ((item.id, value) for item, value in pairs if isinstance(item, ast.Name))


def untelling(name: str, tree: ast.Module) -> list[str]:
    """What a module defines, or is called itself, that says nothing."""
    names = [name.rpartition(".")[2], *defined(tree)]
    return [f"{name}.{found}" for found in names if found.lstrip("_") in {*UNTELLING, *VAGUE}]


def test_names_say_what_they_hold() -> None:
    found = [
        item for name, tree in modules() if not any(new in name for new in NEW_ROOMS) for item in untelling(name, tree)
    ]
    assert [item for item in found if item not in TELLING] == []


@pytest.mark.parametrize(
    "planted",
    [
        "def tidy(): pass",
        "class Team: pass",
        "NEAR = 1e-3",
        "_SMALL = 2",
        "class A:\n    def alone(self): pass",
        "A, FEW = 1, 2",
    ],
)
def test_a_planted_name_is_caught(planted: str) -> None:
    assert len(untelling("bilevel_sym.planted", ast.parse(planted))) == 1
    assert untelling("bilevel_sym.cli.solve_job", ast.parse("")) == ["bilevel_sym.cli.solve_job.solve_job"]


def number(value: ast.expr) -> float | None:
    """The number that an expression of numbers is, such as 2.0**-20."""
    kinds = (ast.Constant, ast.UnaryOp, ast.BinOp, ast.operator, ast.unaryop)
    if not all(isinstance(node, kinds) for node in ast.walk(value)):
        return None
    found = eval(compile(ast.Expression(value), "", "eval"), {"__builtins__": {}}, {})
    return found if isinstance(found, (int, float)) and not isinstance(found, bool) else None


def standing_twice(trees: Iterable[tuple[str, ast.Module]]) -> dict[tuple[str, float], list[str]]:
    """Numbers at module level that several modules define, under one name; two papers share nothing."""
    homes: dict[tuple[str, float], list[str]] = defaultdict(list)
    for name, tree in trees:
        for short, value in assigned(tree):
            if (found := number(value)) is not None:
                homes[short.lstrip("_"), found].append(name)
    return {key: names for key, names in homes.items() if len(names) > len({paper(name) for name in names})}


def paper(name: str) -> str:
    parts = name.split(".")
    return parts[2] if parts[1] in ("papers", "theories") and len(parts) > 2 else ""


def test_a_number_stands_once() -> None:
    found = standing_twice(modules())
    assert {key: names for key, names in found.items() if key[0] not in STAND_TWICE} == {}


def test_a_planted_number_that_stands_twice_is_caught() -> None:
    planted = [("verify.a", ast.parse("WIDTH = 2.0**-3")), ("verify.b", ast.parse("HEIGHT, _WIDTH = 3, 0.125"))]
    assert standing_twice(planted) == {("WIDTH", 0.125): ["verify.a", "verify.b"]}
    assert standing_twice([("verify.papers.a.x", planted[0][1]), ("verify.papers.b.x", planted[0][1])]) == {}
