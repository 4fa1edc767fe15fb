"""Hypergradients in which x and y, or f and g, stand in each other's place."""

from __future__ import annotations

from collections.abc import Iterator

from bilevel_sym.typing import Floats
from verify.points.derivatives_at import blocks_at
from verify.testkit.diagnosis import Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.lower_iterates import minimiser_of_f
from verify.testkit.suspects.wrong_point import apply, solved

__all__ = ["exchanged_arguments", "exchanged_functions"]


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

    def suspect(what: str, direct: Floats, f_y: Floats, g_xy: Floats, g_yy: Floats) -> Suspect:
        return Suspect("arguments", what, look, direct - apply(g_xy, solved(g_yy, f_y)))

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

    def suspect(what: str, direct: Floats, f_y: Floats, cross: Floats, matrix: Floats) -> Suspect:
        return Suspect("arguments", what, look, direct - apply(cross, solved(matrix, f_y)))

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
