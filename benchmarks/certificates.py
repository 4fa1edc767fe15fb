"""Certified points against the same in mpmath, at 100 digits: ``python -m benchmarks.certificates [--digits N]``.

Both find y* from the same start and compute Phi, its gradient and Hessian from the same programs: mpmath by Newton's
method in all digits, without proof; ours in float64 first, then in balls, with every digit proved. Rounds are
interleaved, wall clock, median.
"""

from __future__ import annotations

import argparse
import sys
from collections.abc import Callable, Sequence
from statistics import median
from time import perf_counter
from typing import Any

import mpmath
import numpy as np

from benchmarks.families import make
from bilevel_sym import BilevelProblem, evaluate, zoo
from bilevel_sym.arithmetic.scalars import DIGITS, ScalarProgram
from bilevel_sym.implicit.engine import EXPANSION
from bilevel_sym.implicit.lower_level import NEWTON

__all__ = ["main", "with_mpmath"]

TARGET = 5.0


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
    options = line.parse_args(arguments)
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


if __name__ == "__main__":
    sys.exit(main())
