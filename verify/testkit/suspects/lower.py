"""Hypotheses for a wrong lower-level solution: what a solver of g with each defect returns."""

from __future__ import annotations

from collections.abc import Iterator
from itertools import chain

import numpy as np

from bilevel_sym.typing import Floats
from verify.points.derivatives_at import blocks_at
from verify.testkit.diagnosis import Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.altered_result import changed_suspects, momentum
from verify.testkit.suspects.loose_tolerance import stopped_suspects
from verify.testkit.suspects.lower_iterates import minimiser_of_f, solutions_before, solved
from verify.testkit.suspects.solution import Solutions, shifted_suspects, solution_suspects

__all__ = ["lower_suspects"]

NEWTON = 12


def lower_suspects(at: References, values: Floats, previous: Floats | None = None) -> Iterator[Suspect]:
    """What defective lower-level solvers return at the points; ``values`` (P, n) are the candidate's.

    ``previous`` (P, d) are the points asked just before each, nan where there was none.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.diagnosis import explain
    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [[0.5], [1.0], [1.5], [2.0]])
    >>> seen = Evidence(-at.y, at.y, at.floor("y_star"))
    >>> print(explain(seen, lower_suspects(at, -at.y)).what)
    the sign is wrong: it is -y*
    """
    here = Solutions(at, Evidence(values, at.y, at.floor("y_star")), lambda y: y)
    return chain(
        _scaled(at),
        _before(at, previous),
        solution_suspects(here, previous),
        _other_minimisation(at),
        momentum(at, here.evidence, previous),
        changed_suspects(here.evidence),
        stopped_suspects(here, previous),
        shifted_suspects(here),
    )


def _scaled(at: References) -> Iterator[Suspect]:
    yield Suspect("sign", "the sign is wrong: it is -y*", "the sign of the linear term of g, and of the step", -at.y)
    what = "it is {0:.4g} times y*"
    yield Suspect("factor", what, "factors of 1/2 and means against sums in the terms of g", 0 * at.y, (at.y,))


def _before(at: References, previous: Floats | None) -> Iterator[Suspect]:
    if (before := solutions_before(at.problem, previous)) is not None:
        look = "what is stored from call to call: y must be solved for at the new x before it is returned"
        value = np.where(np.isnan(before), at.y, before)
        yield Suspect("predecessor", "it is y* of the point asked before", look, value)


def _other_minimisation(at: References) -> Iterator[Suspect]:
    """Another function is minimised, or the same one over another variable."""
    look = "which function the lower level minimises, and over which variable: g over y, x held fixed"
    y = minimiser_of_f(at.problem, at.x, at.y)
    yield Suspect("arguments", "f is minimised over y, instead of g", look, y)
    if at.problem.d == at.problem.n:
        yield Suspect("arguments", "it is x itself", look, at.x)
        yield Suspect("arguments", "g(y, x) is minimised instead of g(x, y)", look, _other_minimiser(at))


def _other_minimiser(at: References) -> Floats:
    """argmin over u of g(u, x) by Newton's method; nan where it does not converge."""
    u, step = at.y, at.y
    with np.errstate(all="ignore"):
        for _ in range(NEWTON):
            slope, matrix = blocks_at(at.problem.kernels, ("g_x", "g_xx"), u, at.x)
            step = solved(matrix, slope)
            u = u - step
        still = np.linalg.norm(step, axis=1) <= 1e-9 * (1 + np.linalg.norm(u, axis=1))
    return np.where(still[:, None], u, np.nan)
