"""Hessians of Phi with a wrong block in all of their terms: transposed, negated, exchanged, or without the inverse."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bilevel_sym.typing import Floats
from verify.points.derivatives_at import Derivatives, blocks_at
from verify.testkit.diagnosis import Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.hessian.terms import hessian_terms, transposed

__all__ = ["wrong_blocks"]


def wrong_blocks(at: References) -> Iterator[Suspect]:
    """dy_dx, v, f_xy, g_xy or g_xyy wrong wherever they stand.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> next(wrong_blocks(references(problem, [[1.0]]))).what
    'dy_dx has the wrong sign everywhere'
    """
    look_at = "dy_dx = -g_xy g_yy^-1: the minus belongs to it, and each term with one dy_dx turns its sign"
    negated = hessian_terms(at.at, dy_dx=-at.at.dy_dx).total
    yield Suspect("sign", "dy_dx has the wrong sign everywhere", look_at, negated)
    if at.problem.d == at.problem.n > 1:
        yield from _transposed(at)
    yield from _without_the_inverse(at.at)
    yield from _of_the_lower_level(at)


def _transposed(at: References) -> Iterator[Suspect]:
    """Where d = n, nothing complains of a transposed block."""
    blocks, slope, terms = at.at.blocks, at.at.dy_dx, hessian_terms(at.at)
    look_at = "the shapes on a problem with d != n: g_xy and dy_dx are d x n, rows are x"

    def instead(name: str, value: Floats) -> Floats:
        return hessian_terms(Derivatives({**blocks, name: value})).total

    turned = transposed(slope)
    turned_terms = hessian_terms(at.at, dy_dx=turned)
    curvature = turned_terms.total - turned_terms["curvature"] + terms["curvature"]
    with_quadratic = at.truth("hess_phi") - terms["quadratic"]
    ways = {
        "g_xy is transposed in dy_dx = -g_xy g_yy^-1": instead("g_xy", transposed(at.at["g_xy"])),
        "dy_dx is transposed": hessian_terms(at.at, dy_dx=turned).total,
        "dy_dx is transposed, but for the term with the third derivatives of g": curvature,
        "dy_dx is transposed in the cross terms": at.truth("hess_phi")
        + sum(turned_terms[name] - terms[name] for name in ("cross", "cross_transposed")),
        "f_xy is transposed": instead("f_xy", transposed(at.at["f_xy"])),
        "the quadratic term is dy_dx^T f_yy dy_dx": with_quadratic + turned @ at.at["f_yy"] @ slope,
        "the first two axes of g_xyy are exchanged": instead("g_xyy", at.at["g_xyy"].swapaxes(1, 2)),
    }
    for what, value in ways.items():
        yield Suspect("transpose", what, look_at, value)


def _without_the_inverse(at: Derivatives) -> Iterator[Suspect]:
    """Something else in the place of g_yy^-1: in dy_dx, in v, or in both."""
    diagonal = np.diagonal(at["g_yy"], axis1=1, axis2=2)
    ways = {
        "g_yy^-1 is missing": (-at["g_xy"], at["f_y"]),
        "g_yy stands in the place of g_yy^-1": (-at["g_xy"] @ at["g_yy"], (at["g_yy"] @ at["f_y"][..., None])[..., 0]),
        "g_yy^-1 is that of the diagonal of g_yy": (-at["g_xy"] / diagonal[:, None, :], at["f_y"] / diagonal),
    }
    for what, (slope, v) in ways.items():
        for where, dy_dx, other in (
            ("", slope, v), (" in dy_dx = -g_xy g_yy^-1", slope, None), (" in v = g_yy^-1 f_y", None, v),
        ):  # fmt: skip
            value = hessian_terms(at, dy_dx=dy_dx, v=other).total
            yield Suspect("inverse", f"{what}{where}", "the linear systems with g_yy: for dy_dx and for v", value)


def _of_the_lower_level(at: References) -> Iterator[Suspect]:
    """g in the place of f."""
    look_at = "which of f and g each derivative is taken of"
    (g_xx,) = blocks_at(at.problem.kernels, ("g_xx",), at.x, at.y)
    yield Suspect("arguments", "it is g_xx", look_at, g_xx)
    reduced = g_xx + at.at.dy_dx @ transposed(at.at["g_xy"])
    yield Suspect("arguments", "it is the Hessian of g(x, y*(x)), not of Phi", look_at, reduced)
