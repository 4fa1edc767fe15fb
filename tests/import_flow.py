"""Which way imports flow: what a module takes, by whatever door, and whether its room may.

A name that a package exports lazily is an import of the module where it is defined: ``from bilevel_sym import solve``
is one of ``bilevel_sym.solvers``. The homes stand in the two ``__init__.pyi``.
"""

from __future__ import annotations

import ast
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("bilevel_sym", "verify")

# From the ground up: a room is imported by what stands after it, never by what stands before it.
EXPRESSIONS = ("graph", "arrays", "arithmetic")
BILEVEL = ("implicit", "problem", "symbolic", "interop", "kernels", "certify", "estimators", "solvers")
ROOMS: tuple[str, ...] = ("errors", "typing", "system", "plugins")
ROOMS += EXPRESSIONS + BILEVEL + ("theories", "zoo", "plotting", "campaigns", "experiments", "cli", "__main__")
VERIFY_ROOMS = (
    "verdict", "statistics", "enclosures", "regularity", "certificates", "points", "study",
    "erratum", "registry", "theory", "reporting", "runner", "strategies", "testkit", "papers", "plotting", "gallery",
)  # fmt: skip

# Imports that point upward on purpose, made when first used.
UPWARD = {
    ("problem", "symbolic"),  # conveniences of a problem: problem.derivation, problem.kernels
    ("problem", "kernels"),
    ("problem", "interop"),  # problem.to_jax
    ("kernels", "solvers"),  # what numba compiles is compiled at once
    ("solvers", "plotting"),  # a solution draws itself
}
VERIFY_UPWARD = {
    ("regularity", "certificates"),  # a proof is written to a file by the module that knows files
    ("reporting", "plotting"),  # a report draws itself
    ("reporting", "runner"),  # a page asks for the verdicts that it shows
    ("theory", "papers"),  # papers are found by their folders, under any name
}

# Rooms that handle SymPy expressions, or NumPy arrays; every other room works without them.
SYMPY = {"graph", "arrays", "implicit", "problem", "symbolic", "kernels", "certify", "zoo", "experiments"}
NUMPY = {"typing", "zoo", "plotting", "campaigns", "experiments", "theories", "cli"}
NUMPY |= set(EXPRESSIONS + BILEVEL) - {"problem", "symbolic"}

# The classes in which users are told constants are the first paper's. Rooms above the theories tell them too, and take
# these two names as users do, through the door; nothing else of a paper.
CONSTANTS = {"bilevel_sym.Constants", "bilevel_sym.MinimaxConstants"}
TELL_CONSTANTS = {"bilevel_sym": {"zoo"}, "verify": {"regularity", "strategies"}}
# A door may show what stands in the folder of a paper: the packages' own, and that of the pictures.
DOORS = {"bilevel_sym", "verify", "verify.plotting"}
# The command line, campaigns and experiments run what both packages offer; they, and what pytest and Hypothesis load,
# find ``verify`` by name.
ASK_FOR_VERIFY = {"campaigns", "cli", "experiments", "plugins", "__init__"}
# An experiment of one paper that is drawn beside a lemma of another takes that paper's constants.
COMPARED = {("bilevel_sym.theories.huang_saddle.experiments.campaigns.error", "bilevel_sym.theories.ji2021.constants")}


class Taken(NamedTuple):
    """What a module imports: the name as it is written, and the one where it is defined."""

    written: str
    home: str


@lru_cache(maxsize=2000)
def tree_of(path: Path) -> ast.Module:
    """The syntax tree of a file."""
    return ast.parse(path.read_text(encoding="utf-8"))


@lru_cache(maxsize=2000)
def nodes_of(path: Path) -> tuple[ast.AST, ...]:
    """All nodes of that tree."""
    return tuple(ast.walk(tree_of(path)))


@lru_cache(maxsize=1)
def lazy_homes() -> dict[str, str]:
    """Where the names that the two packages export are defined."""
    homes: dict[str, str] = {}
    for package in PACKAGES:
        for node in tree_of(ROOT / package / "__init__.pyi").body:
            if isinstance(node, ast.Import):  # import verify as verify
                homes |= {f"{package}.{alias.asname}": alias.name for alias in node.names if alias.asname}
            elif isinstance(node, ast.ImportFrom) and node.level:
                inner = f"{package}.{node.module}" if node.module else package
                homes |= {f"{package}.{alias.asname or alias.name}": f"{inner}.{alias.name}" for alias in node.names}
    return homes


def home(name: str) -> str:
    """A dotted name, by where it is defined.

    >>> home("bilevel_sym.Constants.L_phi"), home("verify.testkit")
    ('bilevel_sym.theories.huang_saddle.constants.Constants.L_phi', 'verify.testkit')
    """
    head, rest = ".".join(name.split(".")[:2]), name.split(".")[2:]
    found = ".".join([lazy_homes().get(head, head), *rest])
    return found if found == name or found.split(".")[0] not in PACKAGES else home(found)


def dotted_name(path: Path, root: Path) -> str:
    """The module that a file is."""
    return ".".join(path.relative_to(root).with_suffix("").parts).removesuffix(".__init__")


def imports_of(path: Path, root: Path = ROOT) -> Iterator[Taken]:
    """What a file imports, without what is for the type checker alone."""
    nodes = nodes_of(path)
    for_types = {
        id(node)
        for block in nodes
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    own = dotted_name(path, root).split(".")
    package = own if path.stem == "__init__" else own[:-1]
    named = [name for node in nodes if id(node) not in for_types for name in _names(node, package)]
    whole = {alias.asname or alias.name for node in nodes if isinstance(node, ast.Import) for alias in node.names}
    named += [chain for node in nodes if (chain := _chain(node)) and chain.split(".")[0] in whole & set(PACKAGES)]
    yield from (Taken(name, home(name)) for name in dict.fromkeys(named))


def _names(node: ast.AST, package: list[str]) -> Iterator[str]:
    """The absolute names that a statement, or a call of the import machinery, imports."""
    if isinstance(node, ast.Import):
        yield from (alias.name for alias in node.names)
    elif isinstance(node, ast.ImportFrom):
        start = package[: len(package) - node.level + 1] if node.level else []
        module = ".".join([*start, *([node.module] if node.module else [])])
        yield from (f"{module}.{alias.name}" for alias in node.names)
    elif isinstance(node, ast.Call) and called(node) in ("import_module", "__import__"):
        text = _beginning(node.args[0]) if node.args else ""
        dots = len(text) - len(text.lstrip("."))
        start = package[: len(package) - dots + 1] if dots else []
        name = ".".join([*start, *(part for part in text.split(".") if part)])
        if name:
            yield name


def called(node: ast.Call) -> str:
    """The last name of what is called."""
    return node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")


def _beginning(text: ast.expr) -> str:
    """What is known of a string before the program runs: all of it, or what stands before the first computed part."""
    if isinstance(text, ast.Constant) and isinstance(text.value, str):
        return text.value
    first = text.values[0] if isinstance(text, ast.JoinedStr) and text.values else None
    return str(first.value) if isinstance(first, ast.Constant) else ""


def _chain(node: ast.AST) -> str:
    """``bilevel_sym.a.b`` where that is what an attribute says."""
    if not isinstance(node, ast.Attribute):
        return ""
    before = node.value.id if isinstance(node.value, ast.Name) else _chain(node.value)
    return f"{before}.{node.attr}" if before else ""


def room_of(dotted: str) -> str:
    """The room of a module; the experiments of a theory use the zoo and plots, so they have a floor of their own."""
    parts = dotted.split(".")[1:]
    if parts[:1] == ["theories"] and "experiments" in parts[1:3]:
        return "experiments"
    return parts[0] if parts else "__init__"


@lru_cache(maxsize=2)
def shared_by_papers(side: str) -> set[str]:
    """What stands beside the folders of papers: modules, and the names that the package offers."""
    folder = ROOT / side.replace(".", "/")
    return {path.stem for path in folder.glob("*.py")} | (offered(folder / "__init__.py") or set())


def paper_of(dotted: str) -> str:
    """The paper that a module belongs to, if it belongs to one."""
    parts = dotted.split(".")
    side = ".".join(parts[:2])
    if len(parts) < 3 or side not in ("bilevel_sym.theories", "verify.papers"):
        return ""
    return "" if parts[2] in shared_by_papers(side) else parts[2]


@lru_cache(maxsize=1000)
def offered(path: Path) -> set[str] | None:
    """What a module lists in ``__all__``, nothing where it has none; None where it is computed, and holds all."""
    for node in tree_of(path).body:
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        names = [ast.unparse(item) for item in (target.elts if isinstance(target, ast.Tuple) else [target]) if item]
        if "__all__" in names and isinstance(node, (ast.Assign, ast.AnnAssign)):
            return set(ast.literal_eval(node.value)) if isinstance(node.value, ast.List) else None
    return set()


def is_broken(own: str, taken: Taken) -> bool:
    """Whether a module may not take what it takes."""
    package, room = own.split(".")[0], room_of(own)
    top, target = taken.home.split(".")[0], room_of(taken.home)
    if own in PACKAGES:  # the two doors
        return False
    if top in PACKAGES and _foreign_paper(own, taken):
        return True
    if taken.home.startswith("bilevel_sym.system.verifier") and own != "bilevel_sym.system.verifier":
        return room not in ASK_FOR_VERIFY
    if top == package == "bilevel_sym":
        return target != room and taken.home != "bilevel_sym.__version__" and not _may(room, target, ROOMS, UPWARD)
    if top == package == "verify":
        return target != room and not _may(room, target, VERIFY_ROOMS, VERIFY_UPWARD)
    if package == "verify":
        return top == "bilevel_sym" and target in ("cli", "experiments", "__main__")
    outside = (top == "sympy" and room not in SYMPY) or (top == "numpy" and room not in NUMPY)
    return outside or (top == "verify" and room != "cli")


def _may(room: str, target: str, rooms: tuple[str, ...], upward: set[tuple[str, str]]) -> bool:
    if target not in rooms:  # a whole package, or a star: the door, behind which are all rooms
        return room in ("cli", "experiments", "__main__", "papers")
    return (room, target) in upward or rooms.index(target) < rooms.index(room)


def _foreign_paper(own: str, taken: Taken) -> bool:
    """Whether a module reaches for a paper that is not its own."""
    paper, package, room = paper_of(taken.home), own.split(".")[0], room_of(own)
    if not paper or paper == paper_of(own) or room == "cli" or own in DOORS:
        return False
    if (own, taken.home.rpartition(".")[0]) in COMPARED:
        return False
    return not (taken.written in CONSTANTS and room in TELL_CONSTANTS[package])


def violations(root: Path) -> list[str]:
    """Every import in the two packages below ``root`` that breaks the architecture."""
    found = []
    for path in sorted(path for top in PACKAGES for path in (root / top).rglob("*.py")):
        own = dotted_name(path, root)
        found += [f"{own} imports {taken.written}" for taken in imports_of(path, root) if is_broken(own, taken)]
    return found
