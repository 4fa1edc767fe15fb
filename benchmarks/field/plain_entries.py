"""SciPy and NumPy by hand: derivatives of f and g are given to them."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import numpy as np

from benchmarks.field.entry import Entry
from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats

__all__ = ["ENTRIES"]

Candidate = Callable[[Any], Any]


def _bfgs(gtol: float | None, problem: BilevelProblem) -> Callable[[Floats], Floats]:
    """y* by ``scipy.optimize.minimize(method="BFGS")``, with its gradient."""
    from scipy.optimize import minimize

    k, options = problem.kernels, {} if gtol is None else {"gtol": gtol}

    def lower(x: Floats) -> Floats:
        found = minimize(
            lambda y: float(k.g(x, y)), np.zeros(problem.n), jac=lambda y: k.g_y(x, y), method="BFGS", options=options
        )
        return np.asarray(found.x)

    return lower


def _scipy(gtol: float | None, options: dict[str, float], problem: BilevelProblem) -> Candidate:
    from scipy.sparse.linalg import cg

    k, lower = problem.kernels, _bfgs(gtol, problem)

    def candidate(x: Floats) -> Floats:
        y = lower(x)
        v = cg(k.g_yy(x, y), k.f_y(x, y), **options)[0]
        return np.asarray(k.f_x(x, y) - k.g_xy(x, y) @ v)

    return candidate


def _numpy(problem: BilevelProblem) -> Candidate:
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = np.zeros(problem.n)
        for _ in range(20):
            y = y - np.linalg.solve(k.g_yy(x, y), k.g_y(x, y))
        return k.f_x(x, y) - k.g_xy(x, y) @ np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))

    return candidate


BY_HAND = "optimize.minimize(method='BFGS'), sparse.linalg.cg"
ENTRIES = (
    Entry("numpy", "20 Newton steps, linalg.solve", "defaults", "", (), _numpy),
    Entry("scipy", BY_HAND, "defaults", "gtol 1e-5, rtol 1e-5", ("scipy",), partial(_scipy, None, {})),
    Entry("scipy", BY_HAND, "tight", "gtol 1e-12, rtol 1e-15", ("scipy",), partial(_scipy, 1e-12, {"rtol": 1e-15})),
    Entry(
        "scipy", "optimize.minimize(method='BFGS')", "defaults", "gtol 1e-5", ("scipy",), partial(_bfgs, None),
        "lower solution",
    ),
    Entry(
        "scipy", "optimize.minimize(method='BFGS')", "tight", "gtol 1e-12", ("scipy",), partial(_bfgs, 1e-12),
        "lower solution",
    ),
)  # fmt: skip
