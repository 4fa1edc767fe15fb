"""Who notices a wrong line? ``python -m benchmarks.mutants [--count N] [--limit N] [--jobs N] [--only TEXT] [--show]``.

Each mutant (``benchmarks.mutation``) is planted in a copy of the project, and two measures are taken: whether
``verify.run`` over some problems of the zoo says something else than before (VIOLATED or INCONCLUSIVE, or an
exception), and whether the fast tests that reach the changed module fail; the first failure ends. What is known is kept
beside the copies, one line a mutant, so that a run can be interrupted and goes on where it was; a change of the code
begins anew. Survivors are listed with their places, and with the reason that ``survivors.toml`` gives.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from queue import Queue
from time import monotonic

from benchmarks.mutants_probe import NOTICED
from benchmarks.mutation import TARGETS, Mutant, chosen

__all__ = ["Outcome", "main", "reaching"]

ROOT = Path(__file__).resolve().parent.parent
PACKAGES = ("bilevel_sym", "verify", "tests", "benchmarks")
COUNT, SEED = 200, 0
ENDLESS = 900  # seconds of a processor, for a probe that takes some twenty, and for tests, all of which take 300
ASLEEP = 20  # times that by the clock, for what waits without working
TARGET_VERIFY, TARGET_TESTS = 0.90, 0.97
NOT_REACHING = ("test_notebooks.py", "test_documentation.py", "test_packaging.py", "test_reference.py")


@dataclass(frozen=True)
class Outcome:
    """Who noticed a mutant, and how; empty text where nobody did, None where it was not asked."""

    mutant: Mutant
    by_verify: str | None = None
    by_tests: str | None = None


# ---- the copy that is spoilt ----------------------------------------------------------------------------------------


class Copy:
    """The project in a folder of its own, in which one file at a time is replaced."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        for line in _git("ls-files"):
            if (ROOT / line).is_file():
                (folder / line).parent.mkdir(parents=True, exist_ok=True)
                shutil.copy2(ROOT / line, folder / line)  # with its time: compiled code is kept by that
        for cache in (ROOT / "bilevel_sym").rglob("__pycache__"):
            shutil.copytree(cache, folder / cache.relative_to(ROOT), dirs_exist_ok=True)

    def run(self, *command: str) -> tuple[int | None, str]:
        """The exit code (None where there was no end) and the last line that a Python command printed."""
        environment = os.environ | {"PYTHONPATH": str(self.folder), "PYTHONDONTWRITEBYTECODE": "1", "CI": "1"}
        limited = ["/bin/sh", "-c", f'ulimit -t {ENDLESS}; exec "$@"', "sh", sys.executable, *command]
        with tempfile.TemporaryFile("w+") as output:
            process = subprocess.Popen(
                limited, cwd=self.folder, env=environment, stdout=output, stderr=subprocess.STDOUT,
                start_new_session=True,
            )  # fmt: skip
            try:
                code: int | None = process.wait(ASLEEP * ENDLESS)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                code = None
            output.seek(0)
            lines = [line.strip() for line in output.read().splitlines() if line.strip()]
        ended = None if code in (-signal.SIGXCPU, -signal.SIGKILL) else code
        return ended, lines[-1] if lines else ""

    def outcome(
        self, mutant: Mutant, store: Path, tests: Sequence[str], known: Outcome, wanted: Sequence[str]
    ) -> Outcome:
        """Plant it, ask those who are wanted and have not answered, and put the file back."""
        place = self.folder / mutant.path
        text, times = place.read_text("utf-8"), place.stat()
        place.write_text(mutant.applied(text), "utf-8")
        by_verify, by_tests = known.by_verify, known.by_tests
        try:
            if by_verify is None and "verify" in wanted:
                by_verify = _noticed(*self.run("-m", "benchmarks.mutants_probe", str(store)))
            if by_tests is None and "tests" in wanted:
                by_tests = self._tested(mutant, tests)
        finally:
            place.write_text(text, "utf-8")
            os.utime(place, ns=(times.st_atime_ns, times.st_mtime_ns))
        return Outcome(mutant, by_verify, by_tests)

    def _tested(self, mutant: Mutant, tests: Sequence[str]) -> str:
        """The examples of the module and the nearest tests first, as collecting all of them takes longer than those."""
        for some in ([mutant.path, *tests[:2]], tests[2:6], tests[6:]):
            if some:
                code, last = self.run("-m", "pytest", *TEST_OPTIONS, *some)
                if code not in (0, NOTHING_COLLECTED):
                    return last if code is not None else "no end"
        return ""


TEST_OPTIONS = ("-n", "0", "-x", "-q", "--no-header", "-m", "not slow", "-p", "no:cacheprovider", "--tb", "no")
NOTHING_COLLECTED = 5


def _noticed(code: int | None, last: str) -> str:
    if code == 0:
        return ""
    if code == NOTICED:
        return last
    return "no end" if code is None else f"an exception: {last}"


def _git(*command: str) -> list[str]:
    done = subprocess.run(["git", *command], cwd=ROOT, capture_output=True, text=True, check=True)
    return done.stdout.splitlines()


# ---- the tests that reach a module -----------------------------------------------------------------------------------


def reaching(path: str, root: Path = ROOT) -> list[str]:
    """The files of tests that use a public name of a module, those that use most of them, for their length, first.

    >>> reaching("bilevel_sym/estimators/linear_system.py")[0]
    'tests/test_linear_system.py'
    >>> "tests/test_formulas.py" in reaching("verify/papers/huang_saddle/measures/runs.py")
    True
    """
    wanted = _public(root / path)
    scores = []
    for file in sorted((root / "tests").glob("test_*.py")):
        if file.name in NOT_REACHING:
            continue
        used = [name for name in _names(file) if name in wanted]
        if used:
            alike = file.stem == f"test_{Path(path).stem}"
            scores.append((-alike, -len(used) / max(1, file.stat().st_size), f"tests/{file.name}"))
    return [name for _, _, name in sorted(scores)]


def _public(path: Path) -> set[str]:
    """The name of a module and those that it lists, or all that it defines for others where it lists none."""
    names = {path.stem} if path.stem not in ("batches", "escape", "aid", "loop", "noise") else set()
    body = ast.parse(path.read_text("utf-8")).body
    listed = [node.value for node in body if isinstance(node, ast.Assign) and "__all__" in map(_target, node.targets)]
    if listed:
        return names | set(ast.literal_eval(listed[0]))
    defined = (node.name for node in body if isinstance(node, (ast.FunctionDef, ast.ClassDef)))
    return names | {name for name in defined if not name.startswith("_")}


def _target(node: ast.expr) -> str:
    return node.id if isinstance(node, ast.Name) else ""


def _names(path: Path) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if isinstance(node, ast.Name):
            yield node.id
        elif isinstance(node, ast.Attribute):
            yield node.attr
        elif isinstance(node, ast.alias):
            yield node.name.rpartition(".")[2]
        elif isinstance(node, ast.Constant) and isinstance(node.value, str):  # as in getattr, and in lists of formulas
            yield node.value


# ---- all of them -----------------------------------------------------------------------------------------------------


def _state() -> str:
    """A digest of everything that an outcome may depend on."""
    digest = hashlib.sha256()
    for line in _git("ls-files", *PACKAGES):
        if line.endswith(".py") and not line.startswith("benchmarks/"):
            digest.update(line.encode() + (ROOT / line).read_bytes())
    return digest.hexdigest()[:12]


def _known(results: Path, mutants: Sequence[Mutant]) -> dict[str, Outcome]:
    """What is stored about each mutant, by its key; later lines add to earlier ones."""
    lines = results.read_text("utf-8").splitlines() if results.exists() else []
    records: dict[str, dict[str, str]] = {}
    for record in map(json.loads, lines):
        answers = {name: text for name, text in record.items() if text is not None}
        records[record["key"]] = records.get(record["key"], {}) | answers
    stored = {mutant.key: (mutant, records.get(mutant.key, {})) for mutant in mutants}
    return {key: Outcome(mutant, found.get("verify"), found.get("tests")) for key, (mutant, found) in stored.items()}


def _left(known: dict[str, Outcome], wanted: Sequence[str]) -> list[Outcome]:
    return [
        o for o in known.values()
        if (o.by_verify is None and "verify" in wanted) or (o.by_tests is None and "tests" in wanted)
    ]  # fmt: skip


def measured(mutants: Sequence[Mutant], folder: Path, jobs: int, wanted: Sequence[str]) -> list[Outcome]:
    """The outcomes; what is new is stored as soon as it is known."""
    results = folder / f"{_state()}.jsonl"
    known = _known(results, mutants)
    left = _left(known, wanted)
    if not left:
        return list(known.values())
    with tempfile.TemporaryDirectory(prefix="mutants-") as place, results.open("a", encoding="utf-8") as log:
        copies: Queue[Copy] = Queue()
        for k in range(jobs):
            copies.put(Copy(Path(place) / str(k)))
        store = _verdicts(copies, Path(place) / "verdicts.json")
        tests = {path: reaching(path) for paths in TARGETS.values() for path in paths}

        def one(before: Outcome) -> Outcome:
            spoilt = copies.get()
            try:
                return spoilt.outcome(before.mutant, store, tests[before.mutant.path], before, wanted)
            finally:
                copies.put(spoilt)

        began = monotonic()
        with ThreadPoolExecutor(jobs) as pool:
            for k, outcome in enumerate(pool.map(one, left), 1):
                known[outcome.mutant.key] = outcome
                record = {"key": outcome.mutant.key, "verify": outcome.by_verify, "tests": outcome.by_tests}
                print(json.dumps(record, ensure_ascii=False), file=log, flush=True)
                _say(outcome, k, len(left), (monotonic() - began) / k)
    return list(known.values())


def _verdicts(copies: Queue[Copy], store: Path) -> Path:
    """What is said without a mutant."""
    first = copies.get()
    code, last = first.run("-m", "benchmarks.mutants_probe", str(store))
    copies.put(first)
    if code != 0:
        raise SystemExit(f"without a mutant the probe fails: {last}")
    return store


def _say(outcome: Outcome, k: int, total: int, pace: float) -> None:
    word = "".join("?" if text is None else "+" if text else "-" for text in (outcome.by_verify, outcome.by_tests))
    print(f"{k}/{total} {word} {pace:.0f} s each: {outcome.mutant.key}", file=sys.stderr, flush=True)


def table(outcomes: Sequence[Outcome], reasons: Mapping[str, str]) -> str:
    """The counts by kind of code, with shares of all and of what is not equivalent; and the survivors."""
    lines = [
        "| code | mutants | of them equivalent | noticed by verify.run | noticed by tests |",
        "| --- | --- | --- | --- | --- |",
    ]
    kinds: list[tuple[str, Sequence[str] | None]] = [*TARGETS.items(), ("all", None)]
    for kind, paths in kinds:
        some = [o for o in outcomes if paths is None or o.mutant.path in paths]
        if some:
            alike = sum(_is_equivalent(o.mutant, reasons) for o in some)
            cells = " | ".join(_share(some, by, reasons) for by in ("by_verify", "by_tests"))
            lines.append(f"| {kind} | {len(some)} | {alike} | {cells} |")
    for title, silent in (
        ("verify.run", [o.mutant for o in outcomes if o.by_verify == ""]),
        ("the tests", [o.mutant for o in outcomes if o.by_tests == ""]),
    ):
        lines += ["", f"Not noticed by {title}:", "", "| place | change | reason |", "| --- | --- | --- |"]
        lines += [_row(mutant, reasons) for mutant in sorted(silent)]
    return "\n".join(lines)


def _is_equivalent(mutant: Mutant, reasons: Mapping[str, str]) -> bool:
    """Whether it computes the same as before, as its reason says; nobody can notice that."""
    return reasons.get(mutant.key, "").startswith("equivalent")


def _counts(outcomes: Sequence[Outcome], by: str, reasons: Mapping[str, str]) -> tuple[int, int, int, int]:
    """How many were noticed, how many were asked about, and how many of either are not equivalent."""
    asked = [o for o in outcomes if getattr(o, by) is not None]
    real = [o for o in asked if not _is_equivalent(o.mutant, reasons)]
    return sum(bool(getattr(o, by)) for o in asked), len(asked), sum(bool(getattr(o, by)) for o in real), len(real)


def _share(outcomes: Sequence[Outcome], by: str, reasons: Mapping[str, str]) -> str:
    """How many noticed, and what share that is of all and of those that are not equivalent."""
    noticed, asked, of_real, real = _counts(outcomes, by, reasons)
    return f"{noticed} ({noticed / asked:.1%}, {of_real / real:.1%})" if real else f"{noticed} of {asked}"


def reached(outcomes: Sequence[Outcome], reasons: Mapping[str, str]) -> bool:
    """Whether both targets are met by those who were asked, of the mutants that are not equivalent."""
    for by, target in (("by_verify", TARGET_VERIFY), ("by_tests", TARGET_TESTS)):
        *_, of_real, real = _counts(outcomes, by, reasons)
        if of_real < target * real:
            return False
    return True


def _row(mutant: Mutant, reasons: Mapping[str, str]) -> str:
    change = f"`{mutant.before[:60]}` → `{mutant.after[:60]}`".replace("|", "\\|")
    return f"| {mutant.path}:{mutant.line} {mutant.function} | {change} | {reasons.get(mutant.key, '')} |"


def _reasons() -> dict[str, str]:
    with (Path(__file__).parent / "survivors.toml").open("rb") as file:
        return {key: str(text) for key, text in tomllib.load(file).items()}


def main(arguments: Sequence[str] | None = None) -> int:
    """Measure, and print the table; 1 where a target is missed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--count", type=int, default=COUNT, help="how many mutants there are")
    parser.add_argument("--limit", type=int, help="take so many of them now")
    parser.add_argument("--only", default="", help="take those whose key contains this text")
    parser.add_argument("--jobs", type=int, default=1)
    parser.add_argument("--folder", type=Path, default=ROOT / ".cache" / "mutants", help="where results are kept")
    parser.add_argument("--measure", choices=("verify", "tests"), nargs="*", default=("verify", "tests"))
    parser.add_argument("--show", action="store_true", help="measure nothing, and show what is known")
    options = parser.parse_args(arguments)
    options.folder.mkdir(parents=True, exist_ok=True)
    mutants = [m for m in chosen(ROOT, options.count, SEED) if options.only in m.key][: options.limit]
    outcomes = measured(mutants, options.folder, options.jobs, () if options.show else options.measure)
    reasons = _reasons()
    print(table(outcomes, reasons))
    return int(not reached(outcomes, reasons))


if __name__ == "__main__":
    raise SystemExit(main())
