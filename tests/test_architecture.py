"""The shape of the project: imports flow one way, few rooms touch SymPy or NumPy, citations exist."""

from __future__ import annotations

import ast
import re
import subprocess
import sys
from collections.abc import Iterator
from functools import lru_cache
from pathlib import Path

import pytest
from clock_readings import readings
from file_writers import writers
from import_flow import (
    ROOMS,
    ROOT,
    VERIFY_ROOMS,
    called,
    dotted_name,
    imports_of,
    nodes_of,
    offered,
    room_of,
    tree_of,
    violations,
)

from bilevel_sym.theories import cite, statements

# Every module of ``bilevel_sym`` that ``verify`` takes something from, beyond the names of the package itself.
VERIFY_TAKES = {
    # what the reference documents
    "errors", "estimators", "plotting", "solvers", "zoo",
    # to certify: formulas as programs, and the arithmetics that run them with proved errors
    "arithmetic.arrays", "arithmetic.balls", "arithmetic.boxes", "arithmetic.intervals", "arithmetic.linear_algebra",
    "arithmetic.pieces.patterns", "arithmetic.scalars", "arithmetic.ties", "arrays.algebra", "arrays.calculus",
    "arrays.order", "arrays.tensor", "certify.krawczyk",
    "certify.saved_certificate", "graph.autodiff", "graph.exact", "graph.expressions", "graph.nodes",
    "graph.operations", "graph.operations.record", "graph.precision", "graph.program", "graph.rewriting",
    "implicit.engine", "implicit.model", "implicit.second_order", "problem.scope",
    # to check the parts of an algorithm one by one, which users meet as a whole
    "estimators.batches", "estimators.linear_system", "estimators.oracle", "solvers.local_minimum", "solvers.noise",
    "symbolic.blocks", "symbolic.formulas", "zoo.tube",
    # to speak with users as ``bilevel_sym`` does: kinds of arrays, budgets, bytes, progress, text, tables, pictures; what papers share
    "plotting.style", "plotting.arguments", "solvers.named", "system.budget", "system.extensions", "system.frames", "system.memory",
    "system.plain_text", "system.progress", "system.writing", "theories", "typing",
    # a paper's claims, from its own folder
    "theories.huang_saddle.schedules", "theories.huang_saddle.schedules.aid",
    "theories.huang_saddle.schedules.batches", "theories.huang_saddle.schedules.escape",
    "theories.huang_saddle.schedules.goal", "theories.huang_saddle.schedules.inner",
    "theories.huang_saddle.schedules.neon", "theories.huang_saddle.schedules.stochastic",
    "theories.ji2021.constants", "theories.ji2021.paper", "theories.ji2021.schedules",
}  # fmt: skip
TAKEN_ONCE = 64  # so many there were, counted in the same way, before the rooms were parted

MOST_ENTRIES = 20  # in one package: a reader holds no more


def sources() -> Iterator[Path]:
    for package in ("bilevel_sym", "verify"):
        yield from sorted((ROOT / package).rglob("*.py"))


def test_imports_flow_one_way() -> None:
    assert violations(ROOT) == []


def test_every_module_has_its_place() -> None:
    for name, rooms in (("bilevel_sym", ROOMS), ("verify", VERIFY_ROOMS)):
        found = {room_of(dotted_name(path, ROOT)) for path in (ROOT / name).rglob("*.py")}
        assert found - {"__init__"} == set(rooms)


UPSIDE_DOWN = {
    "an expression that knows a problem": ("bilevel_sym/graph/planted.py", "from bilevel_sym.problem import box\n"),
    "an arithmetic that knows the blocks": ("bilevel_sym/arithmetic/planted.py", "import bilevel_sym.implicit.model\n"),
    "a problem that knows a paper": (
        "bilevel_sym/problem/planted.py",
        "from bilevel_sym.theories.huang_saddle import paper\n",
    ),
    "a solver that knows a paper": (
        "bilevel_sym/solvers/compiled/planted.py",
        "def f():\n    from bilevel_sym.theories.huang_saddle.schedules import perturbed_aid\n",
    ),
    "an arithmetic that knows a solver": (
        "bilevel_sym/arithmetic/planted.py",
        "from bilevel_sym.solvers import loop\n",
    ),
    "a paper that knows another": (
        "bilevel_sym/theories/other/planted.py",
        "from bilevel_sym.theories.huang_saddle.constants import Constants\n",
    ),
    "claims of one paper in another": (
        "verify/papers/other/planted.py",
        "from verify.papers.huang_saddle.measures import runs\n",
    ),
    "a paper that takes another's schedules": (
        "verify/papers/other/planted.py",
        "from bilevel_sym.theories.huang_saddle import schedules\n",
    ),
    "a verdict that knows a paper": ("verify/verdict.py", "from verify.papers.huang_saddle import claims\n"),
    "a runner that knows a theory": ("verify/runner.py", "import bilevel_sym.theories.huang_saddle.paper\n"),
    "a library that knows its verifier": ("bilevel_sym/certify/planted.py", "import verify\n"),
    "a verifier that knows the command line": ("verify/planted.py", "from bilevel_sym.cli import main\n"),
    "SymPy among the arithmetics": ("bilevel_sym/arithmetic/planted.py", "import sympy\n"),
    "NumPy in a problem": ("bilevel_sym/problem/planted.py", "import numpy as np\n"),
    # by the public door: a name that is exported lazily is an import of its home
    "a solver that takes a paper's class": (
        "bilevel_sym/solvers/planted.py",
        "def f():\n    from bilevel_sym import Constants\n",
    ),
    "a problem that takes schedules": ("bilevel_sym/problem/planted.py", "from bilevel_sym import schedules\n"),
    "an expression that takes a problem": ("bilevel_sym/graph/planted.py", "from bilevel_sym import BilevelProblem\n"),
    "an array that takes a problem": ("bilevel_sym/arrays/planted.py", "from bilevel_sym import BilevelProblem\n"),
    "an arithmetic that solves": ("bilevel_sym/arithmetic/planted.py", "from bilevel_sym import solve as s\n"),
    "the whole package in an expression": ("bilevel_sym/graph/planted.py", "import bilevel_sym\n"),
    "the whole package under a name": ("bilevel_sym/solvers/planted.py", "import bilevel_sym as b\n"),
    "everything at once": ("bilevel_sym/kernels/planted.py", "from bilevel_sym import *\n"),
    "a solver that knows theories": ("bilevel_sym/solvers/planted.py", "from bilevel_sym import theories\n"),
    "a paper that takes another's class": (
        "bilevel_sym/theories/ji2021/planted.py",
        "from bilevel_sym import Constants\n",
    ),
    "claims that take another's schedules": (
        "verify/papers/ji2021/planted.py",
        "from bilevel_sym import schedules\n",
    ),
    "claims that take another's class": (
        "verify/papers/ji2021/planted.py",
        "from bilevel_sym import MinimaxConstants\n",
    ),
    "a runner that takes a paper": ("verify/runner.py", "from bilevel_sym import paper\n"),
    "a runner that asks the package": ("verify/runner.py", "import bilevel_sym\nprint(bilevel_sym.paper.TITLE)\n"),
    "a test kit that takes a paper's check": ("verify/testkit/planted.py", "from verify import check_trajectory\n"),
    "a library that takes its verifier": ("bilevel_sym/certify/planted.py", "from bilevel_sym import verify\n"),
    "a library that asks for its verifier": (
        "bilevel_sym/certify/planted.py",
        "from bilevel_sym.system.verifier import verifier\n",
    ),
    # by other ways
    "a relative import": ("bilevel_sym/solvers/planted.py", "from ..theories import huang_saddle\n"),
    "a relative room": ("bilevel_sym/solvers/planted.py", "from .. import theories\n"),
    "a relative import from a folder": ("bilevel_sym/solvers/compiled/planted.py", "from ...zoo import get\n"),
    "a relative paper": ("verify/points/planted.py", "from ..papers.huang_saddle import theory\n"),
    "a name in a string": (
        "bilevel_sym/solvers/planted.py",
        "import importlib\nm = importlib.import_module('bilevel_sym.theories.huang_saddle.constants')\n",
    ),
    "the beginning of a name": (
        "bilevel_sym/kernels/planted.py",
        "from importlib import import_module\nm = import_module(f'bilevel_sym.zoo.{name}')\n",
    ),
    "a relative name in a string": (
        "bilevel_sym/graph/planted.py",
        "import importlib\nm = importlib.import_module('..problem', __package__)\n",
    ),
    # shared rooms that know a paper
    "a test kit that knows a paper": (
        "verify/testkit/planted.py",
        "from verify.papers.huang_saddle import theory\n",
    ),
    "what papers share knows one": (
        "bilevel_sym/theories/__init__.py",
        "from bilevel_sym.theories.huang_saddle import paper\n",
    ),
    "what papers share knows one's claims": (
        "verify/papers/__init__.py",
        "from verify.papers.huang_saddle import theory\n",
    ),
    "an enclosure that knows a paper": (
        "verify/enclosures/planted.py",
        "from verify.papers.huang_saddle.measures import runs\n",
    ),
    "a picture that knows a paper": (
        "verify/plotting/planted.py",
        "from verify.papers.huang_saddle.measures import runs\n",
    ),
    "a defect that knows a paper": ("verify/gallery/planted.py", "from bilevel_sym import schedules\n"),
    "a zoo that knows a paper": (
        "bilevel_sym/zoo/planted.py",
        "from bilevel_sym.theories.huang_saddle.constants import Constants\n",
    ),
    "a zoo that takes schedules": ("bilevel_sym/zoo/planted.py", "from bilevel_sym import schedules\n"),
    "a point that tells constants": ("verify/points/planted.py", "from bilevel_sym import Constants\n"),
}


@pytest.mark.parametrize("breach", UPSIDE_DOWN)
def test_a_planted_import_that_points_upward_is_caught(tmp_path: Path, breach: str) -> None:
    path, source = UPSIDE_DOWN[breach]
    found = violations(house(tmp_path, path, source))
    assert {line.partition(" imports ")[0] for line in found} == {dotted_name(Path(path), Path())}


RIGHT_WAY_UP = {
    "a problem of the zoo tells its constants": ("bilevel_sym/zoo/planted.py", "from bilevel_sym import Constants\n"),
    "so does a certificate": ("verify/regularity/planted.py", "from bilevel_sym import Constants, BilevelProblem\n"),
    "a paper has its own": ("verify/papers/huang_saddle/planted.py", "from bilevel_sym import Constants, schedules\n"),
    "a door shows a paper's picture": (
        "verify/plotting/__init__.py",
        "from verify.papers.huang_saddle.trajectory.picture import plot_error\n",
    ),
    "the version": ("bilevel_sym/solvers/planted.py", "from bilevel_sym import __version__\n"),
    "a neighbour": ("bilevel_sym/solvers/planted.py", "from . import loop\nfrom ..kernels import Kernels\n"),
    "the standard library": ("bilevel_sym/graph/planted.py", "import math, os.path\nos.path.join('a', 'b')\n"),
}


@pytest.mark.parametrize("use", RIGHT_WAY_UP)
def test_an_import_that_points_downward_is_not_caught(tmp_path: Path, use: str) -> None:
    assert violations(house(tmp_path, *RIGHT_WAY_UP[use])) == []


def test_a_package_has_few_entries() -> None:
    for folder in (path.parent for top in ("bilevel_sym", "verify") for path in (ROOT / top).rglob("__init__.py")):
        entries = {path.stem for path in folder.iterdir() if path.suffix == ".py" or (path / "__init__.py").exists()}
        assert len(entries - {"__init__", "__main__"}) <= MOST_ENTRIES, folder


@lru_cache(maxsize=10_000)
def file_of(dotted: str, root: Path) -> Path | None:
    """The file of a module or package, if it is one."""
    stem = root / dotted.replace(".", "/")
    return next((path for path in (stem.with_suffix(".py"), stem / "__init__.py") if path.exists()), None)


def home_of(name: str, root: Path) -> str:
    """The module that an import takes a name from, or the module itself; a package's own name comes first."""
    module = name.rpartition(".")[0]
    package = file_of(module, root)
    own = package is not None and name.rpartition(".")[2] in (offered(package) or ())
    return name if file_of(name, root) and not own else module


def taken(root: Path) -> set[str]:
    """The modules inside ``bilevel_sym`` that ``verify`` imports; the names of the package itself are public."""
    modules = {home_of(name, root) for path in (root / "verify").rglob("*.py") for name, _ in imports_of(path, root)}
    return {name.removeprefix("bilevel_sym.") for name in modules if name.startswith("bilevel_sym.")}


def test_what_the_verifier_takes_from_inside_is_listed() -> None:
    assert taken(ROOT) == VERIFY_TAKES
    assert len(VERIFY_TAKES) < TAKEN_ONCE


@pytest.mark.parametrize(
    "planted",
    ["from bilevel_sym.solvers.loop import solve\n", "from bilevel_sym.theories.huang_saddle import schedules\n"],
)
def test_a_planted_module_that_the_verifier_takes_is_counted(tmp_path: Path, planted: str) -> None:
    root = house(tmp_path, "verify/papers/huang_saddle/planted.py", planted)
    (root / "verify" / "public.py").write_text("from bilevel_sym import solve, paper\n", encoding="utf-8")
    assert len(taken(root)) == 1


def uses_of(path: Path, root: Path) -> Iterator[str]:
    """The dotted names that a file takes from modules of the two packages: by import, or as attributes of a module."""
    modules = {}
    for node in nodes_of(path):
        if isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                name = f"{node.module}.{alias.name}"
                if home_of(name, root) == name:
                    modules[alias.asname or alias.name] = name
                else:
                    yield name
        elif isinstance(node, ast.Import):
            modules |= {alias.asname: alias.name for alias in node.names if alias.asname and file_of(alias.name, root)}
    for node in nodes_of(path):
        if isinstance(node, ast.Attribute) and isinstance(node.value, ast.Name) and node.value.id in modules:
            yield f"{modules[node.value.id]}.{node.attr}"


def not_offered(root: Path) -> set[str]:
    """What a module takes from another room, or package, that the module there does not offer."""
    found = set()
    for path in (path for top in ("bilevel_sym", "verify") for path in (root / top).rglob("*.py")):
        own = dotted_name(path, root)
        for name in uses_of(path, root):
            module, _, short = name.rpartition(".")
            here = file_of(module, root)
            same = module.partition(".")[0] == own.partition(".")[0] and room_of(module) == room_of(own)
            if here is None or same or short.startswith("__") or module in ("bilevel_sym", "verify"):
                continue
            names = offered(here)
            if names is not None and short not in names:
                found.add(name)
    return found


def test_a_room_takes_from_another_what_that_offers() -> None:
    assert not_offered(ROOT) == set()


@pytest.mark.parametrize(
    "planted",
    [
        "from bilevel_sym.graph.given import hidden\n",
        "from bilevel_sym.graph import given\nfive = given.hidden\n",
        "import bilevel_sym.graph.given as g\nfive = g.hidden\n",
        "def f():\n    from bilevel_sym.graph.given import hidden\n",
    ],
)
def test_a_planted_use_of_what_is_inside_is_caught(tmp_path: Path, planted: str) -> None:
    root = house(tmp_path, "bilevel_sym/graph/given.py", '__all__ = ["shown"]\nshown, hidden = 4, 5\n')
    (root / "bilevel_sym" / "graph" / "planted.py").write_text(planted, encoding="utf-8")
    assert not_offered(root) == set()  # in the same room
    (root / "verify" / "planted.py").write_text(planted, encoding="utf-8")
    assert not_offered(root) == {"bilevel_sym.graph.given.hidden"}


def citations() -> Iterator[tuple[str, str, str]]:
    """(file, what stands before the label, label) for every ``Paper:`` line of a docstring."""
    for path in sources():
        for node in nodes_of(path):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                for line in re.findall(r"^\s*Paper: (.*)$", ast.get_docstring(node) or "", re.M):
                    for cited, label in re.findall(r"([A-Z][^\[\]]*?) \[([^\]]+)\]", line):
                        yield path.name, cited, label


def test_every_citation_exists_and_carries_its_number() -> None:
    found = list(citations())
    assert len(found) > 10
    for file, cited, label in found:
        assert label in statements(), f"{file} cites [{label}]"
        assert f"{cited} [{label}]" == cite(label, statements()), file


def test_import_leaves_heavy_packages_alone() -> None:
    code = "import sys, bilevel_sym; print(*sys.modules)"
    loaded = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout.split()
    heavy = {"sympy", "numpy", "scipy", "matplotlib", "hypothesis", "pytest", "jax", "numba", "flint"}
    assert "bilevel_sym" in loaded
    assert heavy.isdisjoint(loaded)


@pytest.mark.parametrize("package", ["bilevel_sym", "verify"])
def test_packages_are_typed(package: str) -> None:
    assert (ROOT / package / "py.typed").exists()


def test_text_never_reaches_an_evaluator() -> None:
    forbidden = {
        "eval",
        "exec",
        "compile",
        "sympify",
        "parse_expr",
        "S",
        "nsimplify",
        "lambdify",
        "__import__",
    }
    for path in sources():
        assert "pickle" not in path.read_text(encoding="utf-8"), path
        for node in nodes_of(path):
            if isinstance(node, ast.Call):
                name = called(node)
                owner = getattr(node.func, "value", None)
                if name == "lambdify" and path.name == "lambdify_engine.py":
                    continue  # the one place, with every symbol renamed; test_kernels.py feeds it hostile names
                if name in forbidden and getattr(owner, "id", "") != "re":
                    raise AssertionError(f"{path.name}:{node.lineno} calls {name}")


def test_nothing_mutable_lives_at_module_level() -> None:
    for path in sources():
        for node in tree_of(path).body:
            if isinstance(node, (ast.Assign, ast.AnnAssign)) and isinstance(node.value, (ast.List, ast.Set)):
                names = ast.unparse(node.targets[0] if isinstance(node, ast.Assign) else node.target)
                assert names == "__all__", f"{path.name}: {names}"


def test_the_top_level_holds_what_was_agreed() -> None:
    listed = subprocess.run(["git", "ls-files"], cwd=ROOT, capture_output=True, text=True, check=False)
    if listed.returncode != 0:
        pytest.skip("not a git checkout: nothing says which files belong to the project")
    tops = {line.split("/")[0] for line in listed.stdout.splitlines()}
    agreed = {
        "pyproject.toml",
        "bilevel_sym",
        "verify",
        "tests",
        "notebooks",
        "benchmarks",
        "README.md",
        "LICENSE",
        "CITATION.cff",
    }
    assert {top for top in tops if not top.startswith(".")} <= agreed


def test_no_clock_decides() -> None:
    assert readings(ROOT) == []


def house(root: Path, path: str, source: str) -> Path:
    """A house of one file."""
    for name in ("bilevel_sym", "verify"):
        (root / name).mkdir()
    (root / path).parent.mkdir(exist_ok=True, parents=True)
    (root / path).write_text(source, encoding="utf-8")
    return root


BREACHES = {
    "an import": "import time\n",
    "a renamed import": "import time as t\n",
    "an import inside a function": "def f():\n    from time import perf_counter as now\n    return now() > 3\n",
    "a date": "from datetime import datetime\n",
    "a late import": "clock = importlib.import_module('time')\n",
    "somebody else's clock": "import bilevel_sym.system.budget as b\nlate = b.monotonic() > 3\n",
    "by another's import": "from bilevel_sym.system.budget import monotonic\n",
    "a processor's clock": "import os\nused = os.process_time()\n",
    "a comparison": "def f(watch):\n    return watch.elapsed > 3\n",
    "a condition": "def f(watch):\n    while watch.elapsed:\n        pass\n",
    "a local name": "def f(watch):\n    spent = watch.elapsed\n    if spent > 3:\n        return 'HOLDS'\n",
    "two names": "def f(w):\n    a = w.elapsed\n    b = a\n    return 'HOLDS' if b < 1 else 'INCONCLUSIVE'\n",
    "a share": "def f(watch, n):\n    return n / watch.elapsed\n",
    "a count": "def f(watch):\n    return range(int(watch.elapsed))\n",
    "what a result took": "def f(answer):\n    return 0.5 < answer.seconds\n",
    "the larger one": "def f(a, b):\n    return max(a.seconds, b)\n",
    "a filter": "def f(many):\n    return [a for a in many if a.seconds]\n",
}


@pytest.mark.parametrize("breach", BREACHES)
def test_a_planted_reading_of_the_clock_is_caught(tmp_path: Path, breach: str) -> None:
    found = readings(house(tmp_path, "verify/testkit/planted.py", BREACHES[breach]))
    assert [line.split(":")[0] for line in found][:1] == ["verify/testkit/planted.py"]


def test_time_may_be_shown(tmp_path: Path) -> None:
    shown = "def f(watch, deadline):\n    if deadline.seconds is not None and deadline.passed:\n        return None\n"
    shown += (
        "    took = watch.elapsed\n    print(f'{took:.1f} s')\n    return Report(seconds=watch.elapsed, took=took)\n"
    )
    assert readings(house(tmp_path, "verify/shown.py", shown)) == []


def test_kinds_of_arrays_are_named_once() -> None:
    written = re.compile(r"NDArray\[np\.(float64|intp|bool_)\]")
    own = {"bilevel_sym/typing.py", "verify/certificates/recheck.py"}
    places = [
        path.relative_to(ROOT).as_posix()
        for package in ("bilevel_sym", "verify")
        for path in (ROOT / package).rglob("*.py")
        if written.search(path.read_text(encoding="utf-8"))
    ]
    assert set(places) <= own


def test_one_module_sets_precision() -> None:
    guards = r"\.(prec|dps) = |work(prec|dps)\("
    setting = {path.relative_to(ROOT).as_posix() for path in sources() if re.search(guards, path.read_text())}
    # the independent checker shares no code
    assert setting == {"bilevel_sym/graph/precision.py", "verify/certificates/recheck.py"}
    assert re.search(guards, "with mpmath.workdps(30):")


def test_one_module_writes_files() -> None:
    assert writers(ROOT) == []


WRITES = {
    "open": "with open(path, 'w') as file:\n    file.write('x')\n",
    "open to append": "open(path, mode='a')\n",
    "open to change": "open(path, 'r+b')\n",
    "a mode that is computed": "def f(path, mode):\n    return open(path, mode)\n",
    "a path's open": "path.open('x', encoding='utf-8')\n",
    "the system's open": "import os\nos.open(path, os.O_WRONLY | os.O_CREAT)\n",
    "a descriptor": "import os\nos.fdopen(3, 'wb')\n",
    "io": "import io\nio.open(path, 'wb')\n",
    "a path's text": "path.write_text('x')\n",
    "a path's bytes": "path.write_bytes(b'x')\n",
    "a picture": "figure.savefig(path)\n",
    "arrays": "import numpy as np\nnp.savez(path, x=x)\n",
    "an array": "x.tofile(path)\n",
    "text of an array": "import numpy as np\nnp.savetxt(path, x)\n",
    "json": "import json\njson.dump(record, file)\n",
    "a temporary file": "from tempfile import NamedTemporaryFile\n",
    "a copy": "import shutil\nshutil.copyfile(a, b)\n",
    "a rename": "path.replace(other)\n",
    "the system's rename": "import os\nos.rename(a, b)\n",
    "a folder": "path.mkdir()\n",
    "an empty file": "path.touch()\n",
    "a deleted file": "path.unlink()\n",
}


@pytest.mark.parametrize("breach", WRITES)
def test_a_planted_writer_of_files_is_caught(tmp_path: Path, breach: str) -> None:
    found = writers(house(tmp_path, "verify/testkit/planted.py", WRITES[breach]))
    assert [line.split(":")[0] for line in found] == ["verify/testkit/planted.py"]


def test_reading_and_words_are_no_writers(tmp_path: Path) -> None:
    reads = "open(path)\nopen(path, 'rb')\npath.open('rb')\npath.open()\npath.read_text()\n"
    reads += "text.replace('a', 'b')\nreplace(algorithm, eta=1)\nproblem.save(path)\njson.dumps(record)\n"
    assert writers(house(tmp_path, "bilevel_sym/plain.py", reads)) == []
