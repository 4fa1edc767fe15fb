"""Certificates of problems with data: ``python -m benchmarks.array_certificates [--rows M] [--case N DIGITS]``.

Logistic loss with a penalty for each feature (f: the loss of other rows), random rows, x from -3 to -1. A row of the
table is one process: rows m, features n (d = n), digits asked for, digits proved of the worst entry of y*, Phi and
grad Phi, and seconds of one core from ``evaluate`` to its answer: y* in float64, enclosures, Krawczyk's test, all
digits. With n up to 50 Hess Phi is among them.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
from time import process_time

import numpy as np

from benchmarks.launch import ONE_THREAD
from bilevel_sym import BilevelProblem, evaluate

__all__ = ["main"]

CASES = ((20, 10), (50, 10), (100, 10), (100, 30), (200, 10), (500, 10), (500, 30))
TARGETS = {(200, 10): 3.0, (500, 10): 30.0, (100, 30): 20.0}
ROWS = 2000


def logistic(m: int, n: int) -> BilevelProblem:
    """Random rows for the lower level, and as many others for the upper."""
    rng = np.random.default_rng(0)
    data = {
        "A": rng.normal(size=(m, n)), "b": np.sign(rng.normal(size=m)),
        "B": rng.normal(size=(m, n)), "c": np.sign(rng.normal(size=m)),
    }  # fmt: skip
    return BilevelProblem(
        "mean(softplus(-c*(B @ y)))", "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2", "x[n]", "y[n]", data=data
    )


def measured(m: int, n: int, digits: int) -> tuple[float, float]:
    """Digits that are proved, and seconds."""
    problem, x = logistic(m, n), np.linspace(-3.0, -1.0, n)
    start = process_time()
    found = evaluate(problem, x, digits=digits)
    seconds = process_time() - start
    return min(ball.digits for ball in (*found.y_star, found.phi, *found.grad_phi)), seconds


def main(arguments: list[str] | None = None) -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rows", type=int, default=ROWS)
    parser.add_argument("--case", nargs=2, type=int, metavar=("N", "DIGITS"))
    options = parser.parse_args(arguments)
    if options.case is not None:
        proved, seconds = measured(options.rows, *options.case)
        print(f"{proved:.1f} {seconds:.2f}")
        return
    print("| rows m | features n | digits asked | digits proved | seconds | target |")
    print("| --- | --- | --- | --- | --- | --- |")
    for n, digits in CASES:
        command = [sys.executable, "-m", "benchmarks.array_certificates", "--rows", str(options.rows), "--case"]
        told = subprocess.run(
            [*command, str(n), str(digits)],
            env={**os.environ, **ONE_THREAD},
            capture_output=True,
            text=True,
            check=True,
        )
        proved, seconds = map(float, told.stdout.split())
        target = TARGETS.get((n, digits)) if options.rows == ROWS else None
        verdict = "" if target is None else f"{'met' if seconds <= target else 'MISSED'} (<= {target:g})"
        print(f"| {options.rows} | {n} | {digits} | {proved:.1f} | {seconds:.2f} | {verdict} |", flush=True)


if __name__ == "__main__":
    main()
