"""One array problem of one size in one process: ``python -m benchmarks.array_measure CASE M N [--quick]`` prints JSON.

Everybody solves the lower level from zero and gives Phi and its gradient, then its Hessian as well. The first Hessian
is timed from the stated problem (text for us, Python functions for JAX): compilation is part of the wait. Later calls
are medians of interleaved rounds; one call is enough where it takes many seconds. Agreement is checked first. Deriving
is from data and text to printed formulas.
"""

from __future__ import annotations

import gc
import json
import sys
import tracemalloc
from collections.abc import Callable, Iterator
from itertools import count
from statistics import median
from time import process_time
from typing import Any

import numpy as np

from benchmarks.array_cases import ArrayCase, make
from benchmarks.array_peers import jax_kernels
from bilevel_sym import BilevelProblem, derive
from bilevel_sym.typing import Floats

__all__ = ["measure"]

MAX_HESSIAN = 5000  # upper-level variables beyond which nobody forms the Hessian of Phi
MAX_DENSE = 2500  # lower-level variables beyond which JAX is not asked to factor
ROUNDS = 5
SLOW = 5.0  # seconds from which one call of a peer is its time: what is far behind needs no median
Kernel = Callable[[Floats], Any]


def seconds(action: Callable[[], object]) -> float:
    """Processor time of one call: wall time on one core of a quiet machine, and nearly the same on a busy one."""
    gc.collect()
    start = process_time()
    action()
    return process_time() - start


def state(case: ArrayCase) -> BilevelProblem:
    """The problem as a user writes it."""
    return BilevelProblem(case.f, case.g, case.x, case.y, data=dict(case.data))


def entrants(case: ArrayCase, *, hessian: bool) -> dict[str, tuple[Kernel, Kernel | None]]:
    """For each competitor the gradient and the Hessian as functions of x."""
    kernels = state(case).kernels
    found: dict[str, tuple[Kernel, Kernel | None]] = {
        "ours": (kernels.grad_phi, kernels.hess_phi),
        "NumPy by hand": (
            lambda x: case.by_hand(case.data, x, False)[1],
            lambda x: case.by_hand(case.data, x, True)[2],
        ),
    }
    for style in ("dense", "cg"):
        if style == "dense" and case.n > MAX_DENSE:
            continue
        grad, hess = jax_kernels(case, style)
        found[f"JAX {style}"] = (_part(grad), _part(hess))
    return found if hessian else {name: (grad, None) for name, (grad, _) in found.items()}


def _part(kernel: Kernel) -> Kernel:
    return lambda x: kernel(x)[-1]


def first_wait(case: ArrayCase, style: str | None, x: Floats, *, hessian: bool) -> float:
    """Seconds from the stated problem to the first Hessian, or gradient where there is no Hessian."""
    if style is None:
        return seconds(lambda: getattr(state(case).kernels, "hess_phi" if hessian else "grad_phi")(x))
    return seconds(lambda: jax_kernels(case, style)[hessian](x))


def peak(kernel: Kernel, x: Floats) -> int:
    """Bytes that NumPy and Python take at most during a call, data not counted."""
    tracemalloc.start()
    kernel(x)
    _, most = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    return most


def measure(name: str, m: int, n: int, rounds: int) -> dict[str, Any]:
    """Everything about one case of one size."""
    case = make(name, m, n)
    x, hessian = case.point(), case.d <= MAX_HESSIAN
    warm = make(name, 7, 3)  # imports, and what a library does once, are paid before
    state(warm).kernels.hess_phi(warm.point())
    jax_kernels(warm, "dense")[1](warm.point())
    styles = {"ours": None, "JAX dense": "dense", "JAX cg": "cg"}
    if case.n > MAX_DENSE:
        del styles["JAX dense"]
    first = {key: first_wait(make(name, m, n, 1), style, x, hessian=hessian) for key, style in styles.items()}
    other = make(name, m, n, 2)  # drawing data is no part of deriving
    derivation = seconds(lambda: derive(state(other)).text())
    kernels = entrants(case, hessian=hessian)
    results = {key: (grad(x), None if hess is None else hess(x)) for key, (grad, hess) in kernels.items()}
    calls: dict[str, dict[str, list[float]]] = {key: {"grad": [], "hess": []} for key in kernels}
    points = (x + 1e-6 * k for k in count(1))  # no point is asked twice
    for _ in range(rounds):
        for key, pair in kernels.items():
            for what, kernel in zip(("grad", "hess"), pair, strict=True):
                if kernel is not None and max(calls[key][what], default=0.0) < SLOW:
                    calls[key][what].append(_per_call(kernel, points))
    memory = {key: peak(hess or grad, x) for key, (grad, hess) in kernels.items() if "JAX" not in key}
    return {
        "case": name, "m": m, "n": n, "operations": case.operations, "derivation": derivation, "first": first,
        "agreement": {key: _distance(found, results["NumPy by hand"]) for key, found in results.items()},
        "later": {key: {what: median(v) if v else None for what, v in times.items()} for key, times in calls.items()},
        "memory": memory,
    }  # fmt: skip


def _per_call(kernel: Kernel, points: Iterator[Floats]) -> float:
    once = seconds(lambda: kernel(next(points)))
    repeats = max(1, min(200, int(0.05 / max(once, 1e-6))))
    some = [next(points) for _ in range(repeats)]
    return seconds(lambda: [kernel(x) for x in some]) / repeats if repeats > 1 else once


def _distance(found: tuple[Any, Any], expected: tuple[Any, Any]) -> float:
    gaps = [
        float(np.abs(np.asarray(a) - b).max() / np.abs(b).max())
        for a, b in zip(found, expected, strict=True)
        if b is not None
    ]
    return max(gaps)


if __name__ == "__main__":
    case_name, rows, features = sys.argv[1], int(sys.argv[2]), int(sys.argv[3])
    print(json.dumps(measure(case_name, rows, features, 2 if "--quick" in sys.argv else ROUNDS)))
