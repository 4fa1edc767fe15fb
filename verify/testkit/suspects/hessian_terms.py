"""HessianTerms: the Hessian of Phi taken apart, in float64 at many points, from right blocks or from wrong ones."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats
from verify.points.derivatives_at import Derivatives, block_values

__all__ = ["CURVATURE", "PARTS", "HessianTerms", "hessian_at", "hessian_terms", "transposed"]

CURVATURE = ("g_xxy", "g_xyy", "g_xyy_transposed", "g_yyy")  # its parts, each named by the block that it holds
PARTS = ("direct", "cross", "cross_transposed", "quadratic", *CURVATURE)


@dataclass(frozen=True, eq=False)
class HessianTerms:
    """The parts of Hess Phi, each (P, d, d); what is printed as d2y_dx2 f_y is ``curvature``, a sum of four of them.

    >>> one = np.ones((1, 1, 1))
    >>> terms = HessianTerms({name: one for name in PARTS})
    >>> terms["curvature"].item(), terms.total.item()
    (4.0, 8.0)
    """

    parts: Mapping[str, Floats]

    def __getitem__(self, name: str) -> Floats:
        return self.parts[name] if name != "curvature" else np.asarray(sum(self.parts[part] for part in CURVATURE))

    @property
    def total(self) -> Floats:
        """Hess Phi."""
        return np.asarray(sum(self.parts.values()))

    def change(self, weights: Mapping[str, float]) -> Floats:
        """What is added to Hess Phi where some parts have another weight than one.

        >>> HessianTerms({name: np.ones((1, 1, 1)) for name in PARTS}).change({"g_yyy": 0, "direct": 3}).item()
        1.0
        """
        return np.asarray(sum((weight - 1) * self.parts[name] for name, weight in weights.items()))


def hessian_terms(at: Derivatives, *, dy_dx: Floats | None = None, v: Floats | None = None) -> HessianTerms:
    """The parts of Hess Phi from the blocks; with another dy_dx or v, what a program gets that has these wrong.

    direct f_xx, cross dy_dx f_yx, cross_transposed f_xy dy_dx^T, quadratic dy_dx f_yy dy_dx^T; and -v^T of g_xxy, of
    dy_dx[j] g_xyy[i], of its transpose, and of dy_dx[i] g_yyy dy_dx[j], which together are d2y_dx2 f_y.

    Paper: Equation B.1 [phi-hessian], Equation B.2 [eq:opt-deri2]

    >>> at = Derivatives({name: np.ones((1,) * rank) for name, rank in {
    ...     "f_x": 2, "f_y": 2, "f_xx": 3, "f_xy": 3, "f_yy": 3, "g_xy": 3, "g_yy": 3,
    ...     "g_xxy": 4, "g_xyy": 4, "g_yyy": 4}.items()})
    >>> {name: part.item() for name, part in hessian_terms(at).parts.items()}  # doctest: +NORMALIZE_WHITESPACE
    {'direct': 1.0, 'cross': -1.0, 'cross_transposed': -1.0, 'quadratic': 1.0,
     'g_xxy': -1.0, 'g_xyy': 1.0, 'g_xyy_transposed': 1.0, 'g_yyy': -1.0}
    """
    slope, v = at.dy_dx if dy_dx is None else dy_dx, at.v if v is None else v
    back = transposed(slope)
    cross = slope @ transposed(at["f_xy"])
    g_xyy = -_along(at["g_xyy"], v) @ back
    parts = {
        "direct": at["f_xx"], "cross": cross, "cross_transposed": transposed(cross),
        "quadratic": slope @ at["f_yy"] @ back, "g_xxy": -_along(at["g_xxy"], v), "g_xyy": g_xyy,
        "g_xyy_transposed": transposed(g_xyy), "g_yyy": -slope @ _along(at["g_yyy"], v) @ back,
    }  # fmt: skip
    return HessianTerms(MappingProxyType(parts))


def hessian_at(problem: BilevelProblem, x: Floats, y: Floats) -> Floats:
    """The formula of Hess Phi at rows of x and y, y taken for y*(x); nan where there is none.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y + log(y)", "x", "y")
    >>> hessian_at(problem, np.ones((3, 1)), np.array([[2.0], [1.0], [0.0]]))
    array([[[2.07407407]],
    <BLANKLINE>
           [[       nan]],
    <BLANKLINE>
           [[       nan]]])
    """
    blocks = block_values(problem.kernels, x, y)
    with np.errstate(all="ignore"):
        good = np.linalg.det(np.where(np.isfinite(blocks["g_yy"]), blocks["g_yy"], 0)) != 0
        for values in blocks.values():
            good &= np.isfinite(values).reshape(len(values), -1).all(axis=1)
        blocks["g_yy"] = np.where(good[:, None, None], blocks["g_yy"], np.eye(problem.n))
        total = hessian_terms(Derivatives(blocks)).total
    return np.where(good[:, None, None], total, np.nan)


def transposed(matrices: Floats) -> Floats:
    """Each matrix of a stack, transposed.

    >>> transposed(np.zeros((5, 2, 3))).shape
    (5, 3, 2)
    """
    return np.asarray(matrices.swapaxes(-1, -2))


def _along(block: Floats, v: Floats) -> Floats:
    """The block with its last axis contracted with v."""
    return np.asarray((block @ v[:, None, :, None])[..., 0])
