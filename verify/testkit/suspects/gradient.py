"""Hypotheses for a wrong hypergradient: what a program with each defect returns. The simple ones come first.

grad Phi = f_x - g_xy v with g_yy v = f_y at y = y*: two terms, one linear system, one lower-level solution.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from itertools import chain

import numpy as np

from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import Floats
from verify.points.derivatives_at import blocks_at
from verify.testkit.diagnosis import Cause, Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects import solution
from verify.testkit.suspects.altered_result import changed_suspects, momentum
from verify.testkit.suspects.inverse import inverse_suspects
from verify.testkit.suspects.lower import stopped_suspects
from verify.testkit.suspects.lower_iterates import apply, hypergradient_at, hypergradient_of, minimiser_of_f, solved
from verify.testkit.suspects.roundings import LOOK, rounded
from verify.testkit.suspects.stale_blocks import frozen_suspects

__all__ = ["exchanged_arguments", "exchanged_functions", "gradient_suspects", "gradient_terms"]

DIRECT = "the direct term f_x: the derivative of f in x with y held fixed"
IMPLICIT = "the implicit term -g_xy v, its sign and its weight"
RETURN = "the return statement, and any scaling of the losses (means against sums, learning rates)"


def gradient_terms(at: References) -> dict[str, Floats]:
    """The terms of grad Phi at the points, (P, d), named as in ``Derivation.terms["grad_phi"]``.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> terms = gradient_terms(references(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [[4.0]]))
    >>> terms["direct"], terms["implicit"]
    (array([[2.]]), array([[2.]]))
    """
    return {"direct": at.at["f_x"], "implicit": -apply(at.at["g_xy"], at.at.v)}


def gradient_suspects(at: References, values: Floats, previous: Floats | None = None) -> Iterator[Suspect]:
    """What defective hypergradients return at the points; ``values`` (P, d) are the candidate's.

    ``previous`` (P, d) are the points asked just before each, nan where there was none.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.diagnosis import explain
    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x**2*y", "y**2 - sin(x)*y", "x", "y"), [[0.5], [1.0], [1.5], [2.0]])
    >>> values = at.at["f_x"] + 0.5 * (at.truth("grad_phi") - at.at["f_x"])
    >>> seen = Evidence(values, at.truth("grad_phi"), at.floor("grad_phi"))
    >>> print(explain(seen, gradient_suspects(at, values)).what)
    the implicit term counts half
    """
    evidence = Evidence(values, at.truth("grad_phi"), at.floor("grad_phi"))
    terms, here = gradient_terms(at), solution.Solutions(at, evidence, partial(hypergradient_at, at.problem, at.x))
    return chain(
        _signs(**terms),
        _terms(**terms),
        _weights(**terms),
        _transposed(at),
        inverse_suspects(at, evidence),
        _rounded_adjoint(at),
        solution.solution_suspects(here, previous),
        solution.unrolled_suspects(at, evidence),
        solution.mixed_suspects(at, evidence),
        _before(at, previous),
        momentum(at, evidence, previous),
        changed_suspects(evidence),
        exchanged_arguments(at),
        exchanged_functions(at),
        stopped_suspects(here, previous),
        frozen_suspects(at, evidence, previous),
        solution.shifted_suspects(here),
        _differences(at),
    )


def _signs(direct: Floats, implicit: Floats) -> Iterator[Suspect]:
    yield Suspect("sign", "the whole has the wrong sign", RETURN, -direct - implicit)
    yield Suspect("sign", "the implicit term has the wrong sign", IMPLICIT, direct - implicit)
    yield Suspect("sign", "the direct term has the wrong sign", DIRECT, implicit - direct)


def _terms(direct: Floats, implicit: Floats) -> Iterator[Suspect]:
    missing = "the implicit term is missing: this is f_x, with y held fixed"
    graph = f"{IMPLICIT}; is y* detached from the graph, or v left at 0 by its solver?"
    yield Suspect("cross", missing, graph, direct)
    yield Suspect("direct", "the direct term f_x is missing", DIRECT, implicit)
    nothing = "it is zero everywhere: neither term arrives"
    yield Suspect("factor", nothing, "a graph that is cut, or an array that is never filled", 0 * direct)
    yield Suspect("cross", "the implicit term counts half", IMPLICIT, direct + 0.5 * implicit)
    yield Suspect("cross", "the implicit term counts twice", IMPLICIT, direct + 2 * implicit)
    yield Suspect("direct", "the direct term counts half", DIRECT, 0.5 * direct + implicit)
    yield Suspect("direct", "the direct term counts twice", DIRECT, 2 * direct + implicit)


def _weights(direct: Floats, implicit: Floats) -> Iterator[Suspect]:
    whole, zero = direct + implicit, 0 * direct
    yield Suspect("factor", "the whole is {0:.4g} times what it should be", RETURN, zero, (whole,))
    yield Suspect("cross", "the implicit term is {0:.4g} times what it should be", IMPLICIT, direct, (implicit,))
    yield Suspect("direct", "the direct term is {0:.4g} times what it should be", DIRECT, implicit, (direct,))


def _rounded_adjoint(at: References) -> Iterator[Suspect]:
    """V with fewer decimals, or with fewer bits; all else in double precision."""
    b = at.at
    for v, words in rounded(b.v):
        yield Suspect("precision", f"v {words}", LOOK.format("v"), b["f_x"] - apply(b["g_xy"], v))


def _transposed(at: References) -> Iterator[Suspect]:
    b = at.at
    g_xy, look = b["g_xy"], "g_xy and its axes: rows are x, columns are y, shape (d, n)"
    turned = g_xy.swapaxes(1, 2)
    muddled = "g_xy is filled in the wrong order: the entries of its transpose, read row by row"
    ways = {muddled: b["f_x"] - apply(turned.reshape(g_xy.shape), b.v)}
    if at.problem.d == at.problem.n:
        ways = {
            "g_xy is transposed": b["f_x"] - apply(turned, b.v),
            "dy_dx is transposed": b["f_x"] + apply(b.dy_dx.swapaxes(1, 2), b["f_y"]),
            "g_yy^-1 stands on the wrong side: it is applied after g_xy, not before": b["f_x"]
            - solved(b["g_yy"], apply(g_xy, b["f_y"])),
        }
    yield from (Suspect("transpose", what, look, value) for what, value in ways.items())


def _before(at: References, previous: Floats | None) -> Iterator[Suspect]:
    """The answer belongs to the point asked before; at the first point it may be right, or zero."""
    if previous is None or not np.isfinite(previous).all(axis=1).any():
        return
    known = np.asarray(np.isfinite(previous).all(axis=1))
    truth = at.truth("grad_phi")
    earlier = truth.copy()
    earlier[known] = _grad_phi(at, previous[known])
    look = "what is stored from call to call, and when it is replaced: before the answer, not after it"
    cause: Cause = "predecessor"
    yield Suspect(cause, "it is the hypergradient at the point asked before", look, earlier)
    first = np.where(known[:, None], earlier, 0.0)
    yield Suspect(cause, "it is the hypergradient at the point asked before, and zero at first", look, first)


def _grad_phi(at: References, x: Floats) -> Floats:
    try:
        return at.problem.kernels.grad_phi(x)
    except BilevelError:
        return np.full_like(x, np.nan)


def _differences(at: References) -> Iterator[Suspect]:
    """A difference quotient errs by its step times a derivative."""
    look = "finite differences: use derivatives, or a much smaller step with values that carry enough digits"
    truth = at.truth("grad_phi")
    second = np.einsum("pii->pi", at.at.hess_phi)
    what = "it is a forward difference of Phi with a step of about {0:.1g}"
    yield Suspect("tolerance", what, look, truth, (second / 2,))
    curvature = np.einsum("pii->pi", at.at.curvature())
    what = "dy_dx is a forward difference of y* with a step of about {0:.1g}"
    yield Suspect("tolerance", what, look, truth, (curvature / 2,))


# ---------------------------------------------------------------------- x and y, or f and g, have changed places


def exchanged_arguments(at: References) -> Iterator[Suspect]:
    """x and y exchanged somewhere: where they have as many entries each, nothing complains.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x**2*y", "y**2 - x*y", "x", "y")
    >>> next(exchanged_arguments(references(problem, [[1.0]]))).what
    'f_x and f_y are exchanged'
    """
    if at.problem.d != at.problem.n:
        return
    b, names = at.at, ("f_x", "f_y", "g_xy", "g_yy", "g_xx")
    there = dict(zip(names, blocks_at(at.problem.kernels, names, at.y, at.x), strict=True))
    look = "the order of the arguments of f, g and their derivatives: (x, y), not (y, x)"

    def suspect(what: str, *blocks: Floats) -> Suspect:
        return Suspect("arguments", what, look, hypergradient_of(*blocks))

    g_xy, g_yy = b["g_xy"], b["g_yy"]
    yield suspect("f_x and f_y are exchanged", b["f_y"], b["f_x"], g_xy, g_yy)
    yield suspect("the direct term is f_y instead of f_x", b["f_y"], b["f_y"], g_xy, g_yy)
    yield suspect("the linear system is solved for f_x instead of f_y", b["f_x"], b["f_x"], g_xy, g_yy)
    yield suspect("f is differentiated at (y, x) instead of (x, y)", there["f_x"], there["f_y"], g_xy, g_yy)
    yield suspect("f_y is evaluated at (y, x) instead of (x, y)", b["f_x"], there["f_y"], g_xy, g_yy)
    yield suspect("f_x is evaluated at (y, x) instead of (x, y)", there["f_x"], b["f_y"], g_xy, g_yy)
    yield suspect("g_xy is evaluated at (y, x) instead of (x, y)", b["f_x"], b["f_y"], there["g_xy"], g_yy)
    yield suspect("g_yy is evaluated at (y, x) instead of (x, y)", b["f_x"], b["f_y"], g_xy, there["g_yy"])
    yield suspect("f(y, x) is differentiated instead of f(x, y)", there["f_y"], there["f_x"], g_xy, g_yy)
    yield suspect("g is differentiated at (y, x) instead of (x, y)", b["f_x"], b["f_y"], there["g_xy"], there["g_yy"])
    turned = there["g_xy"].swapaxes(1, 2)
    yield suspect("g(y, x) is differentiated instead of g(x, y)", b["f_x"], b["f_y"], turned, there["g_xx"])
    yield suspect("everything is evaluated at (y, x)", there["f_x"], there["f_y"], there["g_xy"], there["g_yy"])
    yield suspect("x and y have changed places in f and g", there["f_y"], there["f_x"], turned, there["g_xx"])
    (g_xx,) = blocks_at(at.problem.kernels, ("g_xx",), at.x, at.y)
    yield suspect("g_xx stands in the place of g_yy", b["f_x"], b["f_y"], g_xy, g_xx)


def exchanged_functions(at: References) -> Iterator[Suspect]:
    """f and g exchanged somewhere.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x*y + y**2", "y**2 - x*y", "x", "y")
    >>> next(exchanged_functions(references(problem, [[1.0]]))).what
    'f_yy stands in the place of g_yy'
    """
    b = at.at
    (g_x,) = blocks_at(at.problem.kernels, ("g_x",), at.x, at.y)
    look = "which of f and g each derivative is taken of: the linear system and the mixed block belong to g"

    def suspect(what: str, *blocks: Floats) -> Suspect:
        return Suspect("arguments", what, look, hypergradient_of(*blocks))

    f_xy, f_yy, g_xy, g_yy = b["f_xy"], b["f_yy"], b["g_xy"], b["g_yy"]
    yield suspect("f_yy stands in the place of g_yy", b["f_x"], b["f_y"], g_xy, f_yy)
    yield suspect("f_xy stands in the place of g_xy", b["f_x"], b["f_y"], f_xy, g_yy)
    yield suspect("f_xy and f_yy stand in the places of g_xy and g_yy", b["f_x"], b["f_y"], f_xy, f_yy)
    yield suspect("g_x stands in the place of f_x", g_x, b["f_y"], g_xy, g_yy)
    yield Suspect("arguments", "it is the gradient of g in x, not of Phi", look, g_x)
    yield Suspect("arguments", "the direct term is f_x - g_x", look, at.truth("grad_phi") - g_x)
    y = minimiser_of_f(at.problem, at.x, at.y)
    f_xy, f_yy, g_x, g_y = blocks_at(at.problem.kernels, ("f_xy", "f_yy", "g_x", "g_y"), at.x, y)
    yield suspect("f and g are exchanged: the lower level minimises f", g_x, g_y, f_xy, f_yy)
