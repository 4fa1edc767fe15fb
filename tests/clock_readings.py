"""Where the packages read a clock, or let one decide: what ``test_architecture`` looks for.

Time may be shown to people. ``budget`` holds the one clock that a decision may ask, through ``Deadline``, and
``progress`` draws seconds; everybody else counts work. So nobody else imports a clock, and what a ``Stopwatch``
measured is only ever handed on: it stands in no comparison, no condition and no arithmetic.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from pathlib import Path

from import_flow import called, tree_of

CLOCKS = {"bilevel_sym/system/budget.py", "bilevel_sym/system/progress.py"}
MODULES = {"time", "timeit", "datetime", "resource", "sched", "asyncio"}
READERS = {
    "perf_counter", "perf_counter_ns", "monotonic", "monotonic_ns", "process_time", "process_time_ns", "thread_time",
    "thread_time_ns", "time_ns", "clock_gettime", "clock_gettime_ns", "default_timer", "getrusage",
    "setitimer", "getitimer", "alarm", "utcnow", "getloadavg", "st_mtime", "getmtime",
}  # fmt: skip
MEASURED = {"elapsed", "seconds"}  # attributes: of a stopwatch, and of results and answers
# functions whose result is a decision, or a number made for one
DECIDING = {"min", "max", "int", "range", "bool", "sorted", "abs", "ceil", "floor", "sum", "divmod", "pow"}


def readings(root: Path) -> list[str]:
    """``file:line what`` for every reading of a clock in the packages, and every decision by what one measured."""
    found = []
    for package in ("bilevel_sym", "verify"):
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if name not in CLOCKS:
                source = path.read_text(encoding="utf-8")
                tree = tree_of(path)
                decisions = _decisions(tree) if any(word in source for word in MEASURED) else ()  # they begin with one
                found += [f"{name}:{line} {what}" for line, what in sorted({*_reads(tree), *decisions})]
    return found


def _reads(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names = [alias.name.split(".")[0] for alias in node.names]
        elif isinstance(node, ast.ImportFrom):
            names = [(node.module or "").split(".")[0], *(alias.name for alias in node.names)]
        elif isinstance(node, ast.Attribute):
            names = [node.attr] if node.attr in READERS else []
        elif isinstance(node, ast.Call) and called(node) in ("__import__", "import_module"):
            names = [str(a.value).split(".")[0] for a in node.args if isinstance(a, ast.Constant)]
        else:
            continue
        yield from ((node.lineno, f"reads {name}") for name in names if name in MODULES | READERS)


def _decisions(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Places where something measured is compared, asked or calculated with, directly or by way of a local name."""
    for scope in ast.walk(tree):
        if isinstance(scope, (ast.Module, ast.FunctionDef, ast.AsyncFunctionDef)):
            measured = _names(scope)
            for part in (part for node in ast.walk(scope) for part in _deciding(node)):
                for place in _looked_at(part):
                    if _is_measured(place, measured):
                        yield part.lineno, f"decides by {ast.unparse(place)}"


def _deciding(node: ast.AST) -> list[ast.expr]:
    """The parts of a node that decide, or that make a number out of others."""
    if isinstance(node, (ast.Compare, ast.BinOp, ast.BoolOp, ast.UnaryOp)):
        return [node]
    if isinstance(node, (ast.If, ast.While, ast.IfExp, ast.Assert)):
        return [node.test]
    if isinstance(node, ast.comprehension):
        return list(node.ifs)
    if isinstance(node, ast.Call) and ast.unparse(node.func).split(".")[-1] in DECIDING:
        return list(node.args)
    return []


def _looked_at(part: ast.expr) -> Iterator[ast.AST]:
    """What a deciding part looks at; whether there is a number at all is no question of its size."""
    if isinstance(part, ast.Compare) and all(isinstance(op, (ast.Is, ast.IsNot)) for op in part.ops):
        return
    yield part
    for child in ast.iter_child_nodes(part):
        if isinstance(child, ast.expr):
            yield from _looked_at(child)


def _names(scope: ast.AST) -> set[str]:
    """Local names that hold what was measured; assignments from one to the next are followed."""
    names: set[str] = set()
    assignments = [node for node in ast.walk(scope) if isinstance(node, (ast.Assign, ast.AnnAssign, ast.NamedExpr))]
    for _ in range(len(assignments) + 1):
        before = len(names)
        for node in assignments:
            value = node.value
            if value is not None and any(_is_measured(place, names, {"elapsed"}) for place in _handed_on(value)):
                targets = node.targets if isinstance(node, ast.Assign) else [node.target]
                names |= {target.id for target in targets if isinstance(target, ast.Name)}
        if len(names) == before:
            break
    return names


def _handed_on(value: ast.expr) -> Iterator[ast.AST]:
    """The expression without what is inside calls: their results are their own."""
    yield value
    if not isinstance(value, ast.Call):
        for child in ast.iter_child_nodes(value):
            if isinstance(child, ast.expr):
                yield from _handed_on(child)


def _is_measured(node: ast.AST, names: set[str], attributes: set[str] = MEASURED) -> bool:
    if isinstance(node, ast.Attribute):
        return node.attr in attributes
    return isinstance(node, ast.Name) and node.id in names
