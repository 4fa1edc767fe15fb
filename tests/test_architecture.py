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

from bilevel_sym import paper

ROOT = Path(__file__).resolve().parent.parent

# Each module may import only what stands above it.
LAYERS = [
    "errors",
    "typing",
    "plain_text",
    "writing",
    "budget",
    "memory",
    "progress",
    "notice",
    "verifier",
    "pytest_plugin",
    "hypothesis_plugin",
    "paper",
    "exact",
    "assumptions",
    "frames",
    "ties",
    "functions",
    "constants",
    "expressions",
    "tape",
    "parsing",
    "text",
    "problem_file",
    "box",
    "scope",
    "problem",
    "calculus",
    "tidy",
    "formulas",
    "blocks",
    "algebra",
    "closed_form",
    "textbook",
    "display",
    "source",
    "derivation",
    "linear_algebra",
    "engine",
    "implicit",
    "lower_level",
    "kernels",
    "ball",
    "saved_certificate",
    "krawczyk",
    "convexity",
    "certificate",
    "zoo",
    "checks",
    "status",
    "linear_system",
    "oracle",
    "batches",
    "hypergradient",
    "solution",
    "solvers",
    "schedules",
    "plotting",
    "experiments",
    "solve_advice",
    "solve_job",
    "cli",
    "__main__",
]

# The same inside ``verify``, which may import all of ``bilevel_sym`` but its command line.
VERIFY_LAYERS = [
    "bracket",
    "verdict",
    "statistics",
    "enclosures",
    "expression_bounds",
    "regularity",
    "certificates",
    "phi_smoothness",
    "points",
    "stationary",
    "classification",
    "study",
    "places",
    "registry",
    "measures",
    "statements",
    "report",
    "runner",
    "erratum",
    "referee",
    "coverage",
    "strategies",
    "testkit",
    "plotting",
    "gallery",
]

# Rooms that handle SymPy expressions; every other module works without them.
NUMERIC_ROOMS = {
    "typing",
    "ties",
    "engine",
    "linear_algebra",
    "implicit",
    "lower_level",
    "linear_system",
    "oracle",
    "batches",
}
NUMERIC_ROOMS |= {
    "checks",
    "status",
    "hypergradient",
    "solution",
    "solvers",
    "schedules",
    "plotting",
    "solve_advice",
    "solve_job",
}
SYMPY_ROOMS = (
    set(LAYERS)
    - {
        "errors",
        "writing",
        "budget",
        "memory",
        "progress",
        "notice",
        "plain_text",
        "verifier",
        "pytest_plugin",
        "hypothesis_plugin",
        "paper",
        "constants",
        "ball",
        "cli",
        "__main__",
    }
    - NUMERIC_ROOMS
)
NUMPY_ROOMS = {
    "zoo",
    "tape",
    "kernels",
    "convexity",
    "certificate",
    "experiments",
    "solve_job",
} | NUMERIC_ROOMS  # zoo: random integers for its quadratics

# Imports that point upward on purpose: conveniences of a problem, imported when first used.
ALLOWED = {("problem", "derivation"), ("problem", "kernels"), ("solution", "plotting")}
# a proof is written to a file, and read back, by the module that knows files
VERIFY_ALLOWED = {(room, "certificates") for room in ("regularity", "phi_smoothness", "stationary")}
VERIFY_ALLOWED |= {("report", "plotting")}  # and a report draws itself


@lru_cache(maxsize=1000)
def tree_of(path: Path) -> ast.Module:
    return ast.parse(path.read_text(encoding="utf-8"))


def sources() -> Iterator[Path]:
    for package in ("bilevel_sym", "verify"):
        yield from sorted((ROOT / package).rglob("*.py"))


def imports_of(path: Path) -> Iterator[str]:
    """The dotted names that a file imports, without those for the type checker alone."""
    nodes = list(ast.walk(tree_of(path)))
    for_types = {
        id(node)
        for block in nodes
        if isinstance(block, ast.If) and ast.unparse(block.test) == "TYPE_CHECKING"
        for node in ast.walk(block)
    }
    for node in nodes:
        if id(node) in for_types:
            continue
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield from (f"{node.module}.{alias.name}" for alias in node.names)


def room_of(path: Path, package: Path) -> str:
    return path.relative_to(package).parts[0].removesuffix(".py")


def violations(root: Path) -> list[str]:
    """Every import in the packages below ``root`` that breaks the architecture."""
    found = []
    package = root / "bilevel_sym"
    for path in sorted(package.rglob("*.py")):
        room = room_of(path, package)
        for name in imports_of(path):
            top, _, rest = name.partition(".")
            target = rest.split(".")[0]
            if top == "verify" and room != "cli":  # the command line stands above both packages
                found.append(f"{room} imports verify")
            elif top == "bilevel_sym" and room != "__init__" and target not in (room, "__version__"):
                if (room, target) not in ALLOWED and not _above(target, room):
                    found.append(f"{room} imports {target}")
            elif (top == "sympy" and room not in SYMPY_ROOMS) or (top == "numpy" and room not in NUMPY_ROOMS):
                found.append(f"{room} imports {top}")
    return found


def _above(target: str, room: str, layers: list[str] = LAYERS) -> bool:
    return target in layers and layers.index(target) < layers.index(room)


def verify_violations(root: Path) -> list[str]:
    """The same for ``verify``."""
    found = []
    package = root / "verify"
    for path in sorted(package.rglob("*.py")):
        room = room_of(path, package)
        for name in imports_of(path):
            top, _, rest = name.partition(".")
            target = rest.split(".")[0]
            inside = top == "verify" and room not in ("__init__", target) and (room, target) not in VERIFY_ALLOWED
            if (inside and not _above(target, room, VERIFY_LAYERS)) or (top, target) == ("bilevel_sym", "cli"):
                found.append(f"{room} imports {name}")
    return found


def test_imports_flow_one_way() -> None:
    assert violations(ROOT) == []
    assert verify_violations(ROOT) == []


def test_every_module_has_its_place() -> None:
    for name, layers in (("bilevel_sym", LAYERS), ("verify", VERIFY_LAYERS)):
        rooms = {room_of(path, ROOT / name) for path in (ROOT / name).rglob("*.py")}
        assert rooms - {"__init__"} == set(layers)


def citations() -> Iterator[tuple[str, str, str]]:
    """(file, what stands before the label, label) for every ``Paper:`` line of a docstring."""
    for path in sources():
        for node in ast.walk(tree_of(path)):
            if isinstance(node, (ast.Module, ast.ClassDef, ast.FunctionDef)):
                for line in re.findall(r"^\s*Paper: (.*)$", ast.get_docstring(node) or "", re.M):
                    for cited, label in re.findall(r"([A-Z][^\[\]]*?) \[([^\]]+)\]", line):
                        yield path.name, cited, label


def test_every_citation_exists_and_carries_its_number() -> None:
    found = list(citations())
    assert len(found) > 10
    for file, cited, label in found:
        assert label in paper.STATEMENTS, f"{file} cites [{label}]"
        assert f"{cited} [{label}]" == paper.cite(label), file


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
        for node in ast.walk(tree_of(path)):
            if isinstance(node, ast.Call):
                name = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                attribute_of = ast.unparse(node.func.value) if isinstance(node.func, ast.Attribute) else ""
                if name == "lambdify" and path.name == "lambdify_engine.py":
                    continue  # the one place, with every symbol renamed; test_kernels.py feeds it hostile names
                if name in forbidden and attribute_of != "re":
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
    (root / path).parent.mkdir(exist_ok=True)
    (root / path).write_text(source, encoding="utf-8")
    return root


BREACHES = {
    "an import": "import time\n",
    "a renamed import": "import time as t\n",
    "an import inside a function": "def f():\n    from time import perf_counter as now\n    return now() > 3\n",
    "a date": "from datetime import datetime\n",
    "a late import": "clock = importlib.import_module('time')\n",
    "somebody else's clock": "import bilevel_sym.budget as b\nlate = b.monotonic() > 3\n",
    "by another's import": "from bilevel_sym.budget import monotonic\n",
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
