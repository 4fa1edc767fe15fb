"""Certified points against the same in mpmath, at 100 digits: ``python -m benchmarks.certificates [--digits N]``.

Both find y* from the same start and compute Phi, its gradient and Hessian from the same programs: mpmath by Newton's
method in all digits, without proof; ours in float64 first, then in balls, with every digit proved. Rounds are
interleaved, wall clock, median.

With ``--recheck [NAME ...] [--kinds KIND ...]``: which certificates of the zoo and of the functions in pieces of the
tests are found, saved and proved again by ``verify.recheck``. Finding and proving are one process each, of ``--limit``
processor seconds at most, so that load decides nothing. What is found is kept in ``--keep FOLDER``, and not searched
for again.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from statistics import median
from time import perf_counter, process_time
from typing import Any, cast

import mpmath
import numpy as np

import verify
from benchmarks.families import make
from benchmarks.launch import ONE_THREAD
from bilevel_sym import BilevelProblem, evaluate, zoo
from bilevel_sym.arithmetic.scalars import DIGITS, ScalarProgram
from bilevel_sym.implicit.engine import EXPANSION
from bilevel_sym.implicit.lower_level import NEWTON

__all__ = ["main", "with_mpmath"]

TARGET = 5.0
KINDS = ("constants", "joint", "smoothness", "stationary", "point")
SHARE = Fraction(4, 9)  # how far into each side of the box the certified point is: on no edge of the zoo or the corpus


def cases() -> dict[str, BilevelProblem]:
    """Problems with d = n up to 5."""
    named = {"cubic 1": zoo.get("implicit_cubic").problem}
    return named | {name: make(name).problem() for name in ("sparse-3", "nested-3", "sparse-5", "nested-5")}


def with_mpmath(problem: BilevelProblem, x: Sequence[float], digits: int) -> tuple[Any, ...]:
    """y*, Phi, grad Phi, Hess Phi by Newton's method and the implicit formulas in mpmath, without proof."""
    with mpmath.workdps(digits + 15):
        point, y = [mpmath.mpf(v) for v in x], [mpmath.mpf(0)] * problem.n
        lower = ScalarProgram(problem.tape.program(NEWTON), DIGITS)
        for _ in range(60):
            values = _run(lower, [*point, *y])
            g_y, g_yy = (
                _matrix(lower, values, "g_y", problem.n, 1),
                _matrix(lower, values, "g_yy", problem.n, problem.n),
            )
            step = mpmath.lu_solve(g_yy, g_y)
            y = [a - b for a, b in zip(y, step, strict=True)]
            if max(abs(s) for s in step) <= mpmath.mpf(10) ** (-digits / 2 - 8):
                break  # the next step would be below the precision
        return _expansion(problem, point, y)


def _expansion(problem: BilevelProblem, point: Sequence[Any], y: Sequence[Any]) -> tuple[Any, ...]:
    d, n = problem.d, problem.n
    ready = ScalarProgram(problem.tape.program(EXPANSION), DIGITS)
    values = _run(ready, [*point, *y])
    g_xy, g_yy = _matrix(ready, values, "g_xy", d, n), _matrix(ready, values, "g_yy", n, n)
    v = mpmath.lu_solve(g_yy, _matrix(ready, values, "f_y", n, 1))
    columns = [mpmath.lu_solve(g_yy, g_xy[i, :].T) for i in range(d)]
    response = mpmath.matrix([[-columns[i][k] for i in range(d)] for k in range(n)])
    ready.put(values, 1, list(v))
    half = _matrix(ready, values, "L_xy", d, n) + response.T * _matrix(ready, values, "L_yy", n, n) / 2
    cross = half * response
    hess = _matrix(ready, values, "L_xx", d, d) + cross + cross.T
    return y, ready.output(values, "f")[0], _matrix(ready, values, "f_x", d, 1) - g_xy * v, hess


def _run(ready: ScalarProgram, xy: Sequence[Any]) -> list[Any]:
    values = ready.start()
    ready.put(values, 0, xy)
    return values


def _matrix(ready: ScalarProgram, values: Sequence[Any], name: str, rows: int, columns: int) -> Any:
    entries = ready.output(values, name)
    return mpmath.matrix([entries[i * columns : (i + 1) * columns] for i in range(rows)])


def timed(function: Callable[[], object]) -> float:
    """Milliseconds of one call."""
    start = perf_counter()
    function()
    return 1e3 * (perf_counter() - start)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 0 where everything agrees."""
    line = argparse.ArgumentParser(prog="python -m benchmarks.certificates", description=__doc__)
    line.add_argument("--digits", type=int, default=100)
    line.add_argument("--rounds", type=int, default=15)
    line.add_argument("--recheck", nargs="*", metavar="NAME", help="no name: all of the zoo and of the corpus")
    line.add_argument("--kinds", nargs="*", choices=KINDS, default=KINDS)
    line.add_argument("--effort", default="default", choices=("quick", "default", "thorough"))
    line.add_argument("--limit", type=int, default=1800, metavar="SECONDS")
    line.add_argument("--keep", type=Path, metavar="FOLDER")
    line.add_argument("--find", nargs=3, metavar=("NAME", "KIND", "FILE"), help=argparse.SUPPRESS)
    line.add_argument("--prove", metavar="FILE", help=argparse.SUPPRESS)
    options = line.parse_args(arguments)
    if options.find or options.prove:
        limit(options.limit)
        print(json.dumps(find(options.find, options.effort) if options.find else prove(options.prove)))
        return 0
    if options.recheck is not None:
        return table(options.recheck or all_names(), options)
    return compare(options)


def compare(options: argparse.Namespace) -> int:
    """The table of certified points against mpmath."""
    print("| problem | d = n | certified ms | mpmath ms | mpmath / certified | target |")
    print("| --- | --- | --- | --- | --- | --- |")
    wrong = []
    for name, problem in cases().items():
        x = np.random.default_rng(0).uniform(-0.5, 0.5, problem.d).tolist()
        reference = with_mpmath(problem, x, options.digits)[1]
        if not abs(evaluate(problem, x, digits=options.digits).phi.mid - reference) <= 10 ** -(options.digits - 10):
            wrong.append(name)
        ours, theirs = [], []
        for _ in range(options.rounds):
            ours.append(timed(lambda: evaluate(problem, x, digits=options.digits)))  # noqa: B023
            theirs.append(timed(lambda: with_mpmath(problem, x, options.digits)))  # noqa: B023
        ratio = median(theirs) / median(ours)
        verdict = f">= {TARGET:g}: {'reached' if ratio >= TARGET else 'missed'}"
        row = (name, problem.d, f"{median(ours):.2f}", f"{median(theirs):.2f}", f"{ratio:.1f}", verdict)
        print(f"| {' | '.join(map(str, row))} |", flush=True)
    for name in wrong:
        print(f"DISAGREES: {name}")
    return 1 if wrong else 0


# ---- proved again ------------------------------------------------------------------------------------------------


def corpus() -> Any:
    """The module of the tests that holds the functions in pieces."""
    sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests"))
    import test_piecewise_bounds  # type: ignore[import-not-found, unused-ignore]

    return test_piecewise_bounds


def all_names() -> list[str]:
    """The zoo, then the corpus; the tube also with d = 1, where it is a scalar problem."""
    return [*zoo.names(), "tube:1", *corpus().CORPUS]


def problem_of(name: str) -> BilevelProblem:
    """A problem of the zoo (``tube:1``: with d = 1) or of the corpus."""
    family, _, d = name.partition(":")
    if family in zoo.names():
        return zoo.get(family, **({"d": int(d)} if d else {})).problem
    tests = corpus()
    problem: BilevelProblem = tests.problem_of(*tests.CORPUS[name])
    return problem


def limit(seconds: int) -> None:
    """End this process after so many processor seconds, where the system can."""
    import resource

    resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds))


def find(case: Sequence[str], effort: Any) -> dict[str, Any]:
    """Search for a certificate, and save it."""
    from verify.points.stationary import search

    name, kind, path = case
    problem = problem_of(name)
    start = process_time()
    if kind == "point":
        assert problem.box is not None
        ends = list(problem.box)[: problem.d]
        found: Any = evaluate(problem.mean, [low + (high - low) * SHARE for low, high in ends], digits=30)
    elif kind == "stationary":
        found = search(problem, effort=effort)
    elif kind == "smoothness":
        found = verify.smoothness(problem, effort=effort)
    else:
        found = verify.constants(problem, effort=effort, reading="joint" if kind == "joint" else "block")
    searched = process_time()
    found.save(path)  # which proves what it writes
    return {"seconds": searched - start, "saving": process_time() - searched}


def prove(path: str) -> dict[str, Any]:
    """Prove a saved certificate again."""
    start = process_time()
    found = verify.recheck(path)
    return {"seconds": process_time() - start, "boxes": found.boxes}


def table(names: Sequence[str], options: argparse.Namespace) -> int:
    """Print a line for each certificate; 1 where one was found and not proved again."""
    folder = Path(tempfile.mkdtemp()) if options.keep is None else options.keep
    folder.mkdir(parents=True, exist_ok=True)
    print("| problem | kind | found in s | saved in s | proved again in s | pieces |", flush=True)
    print("| --- | --- | --- | --- | --- | --- |", flush=True)
    left = 0
    for name in names:
        for kind in options.kinds:
            path = folder / f"{name}-{kind}.json".replace(" ", "_")
            cells = list(_cells(name, kind, path, [f"--limit={options.limit}", f"--effort={options.effort}"]))
            left += len(cells) == 3
            print(f"| {' | '.join([name, kind, *cells])} |", flush=True)
    return int(left > 0)


def _cells(name: str, kind: str, path: Path, options: Sequence[str]) -> Iterator[str]:
    """Up to the first step that fails."""
    try:
        made = {} if path.exists() else _apart(*options, "--find", name, kind, str(path))
        yield from (f"{made[key]:.1f}" if made else "kept" for key in ("seconds", "saving"))
    except ChildProcessError as error:
        yield f"not found: {error}"
        return
    try:
        found = _apart(*options, "--prove", str(path))
    except ChildProcessError as error:
        yield f"not proved: {error}"
        return
    yield from (f"{found['seconds']:.1f}", str(found["boxes"]))


def _apart(*words: str) -> dict[str, Any]:
    """One step in a process of its own; what it printed last."""
    command = [sys.executable, "-m", "benchmarks.certificates", *words]
    root = Path(__file__).resolve().parent.parent
    done = subprocess.run(
        command, cwd=root, env={**os.environ, **ONE_THREAD}, capture_output=True, text=True, check=False
    )
    if done.returncode < 0:
        raise ChildProcessError("the limit of time")
    if done.returncode > 0:
        *_, last = ["no message", *done.stderr.strip().splitlines()]
        raise ChildProcessError(last.replace("|", "/")[:160])
    return cast(dict[str, Any], json.loads(done.stdout.splitlines()[-1]))


if __name__ == "__main__":
    sys.exit(main())
