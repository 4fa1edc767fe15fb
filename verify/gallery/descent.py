"""How a candidate looks from outside: the values of Phi along a descent that believes it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import BilevelError
from bilevel_sym.implicit.engine import in_halves
from bilevel_sym.typing import Floats, Indices
from verify.gallery.defect import Defect, Kind
from verify.gallery.plain import Candidate, hypergradient

__all__ = ["descent"]

LEAST_CURVATURE = 0.1  # the least curvature that a Newton step believes


def descent(
    candidate: Any,
    problem: BilevelProblem,
    x0: ArrayLike,
    *,
    steps: int = 50,
    eta: float = 0.2,
    kind: Kind = "hypergradient",
) -> Floats:
    """The exact values Phi(x_0), ..., Phi(x_steps) of a descent that believes the candidate; nan once it is lost.

    A hypergradient is followed with step ``eta``; a lower solution makes one; a Hessian makes Newton steps, times
    ``eta``, with the exact gradient and eigenvalues made positive; a trajectory is taken as it is.

    - ``candidate``: a function, or of kind "trajectory" the record of a run.
    - ``problem``: the problem.
    - ``x0``: the start, (d,).
    - ``steps``: how many.
    - ``eta``: their size.
    - ``kind``: a Defect's own.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> descent(lambda x: x, problem, [1.0], steps=2, eta=0.5)  # half of the truth
    array([1.    , 0.25  , 0.0625])
    """
    if isinstance(candidate, Defect):
        candidate, kind = candidate.candidate(problem), candidate.kind
    if kind == "trajectory":
        return _values(problem, np.asarray(candidate["x"]))
    move = _mover(candidate, problem, kind)
    x, points = np.array(x0, dtype=np.float64), []
    for _ in range(steps + 1):
        points.append(x)
        x = x - eta * _tried(move, x)
    return _values(problem, np.array(points))


def _mover(candidate: Candidate, problem: BilevelProblem, kind: Kind) -> Callable[[Floats], Floats]:
    if kind == "lower solution":
        return hypergradient(problem, lower=lambda k, x, y: candidate(x))
    if kind == "hessian":
        return lambda x: _newton_step(candidate(x), problem.kernels.grad_phi(x))
    return candidate


def _newton_step(hessian: Floats, gradient: Floats) -> Floats:
    """Newton's step with eigenvalues made positive, which goes down near saddle points too."""
    values, vectors = np.linalg.eigh(hessian)
    return np.asarray(vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), LEAST_CURVATURE)))


def _values(problem: BilevelProblem, x: Floats) -> Floats:
    """Phi at each row; nan where it is too far away to be computed."""
    phi = np.full(len(x), np.nan)

    def attempt(members: Indices) -> None:
        phi[members] = problem.kernels.phi(x[members])

    in_halves(np.flatnonzero(np.isfinite(x).all(axis=1)), attempt, BilevelError)
    return phi


def _tried(function: Callable[[Floats], Floats], x: Floats) -> Floats:
    """The value, or nan where nothing can be computed."""
    if not np.isfinite(x).all():
        return np.full_like(x, np.nan)
    try:
        with np.errstate(all="ignore"):
            return function(x)
    except (BilevelError, np.linalg.LinAlgError):
        return np.full_like(x, np.nan)
