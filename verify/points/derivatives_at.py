"""Derivatives of y* and Phi from the blocks of f and g at points of the lower-level solution, in float64.

This is the term-by-term route of the paper, independent of ``implicit.second_order`` on purpose: that goes by the
Lagrangian, which has fewer terms.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bilevel_sym import Kernels
from bilevel_sym.implicit.engine import Session, over_points
from bilevel_sym.typing import Floats

__all__ = ["BLOCKS", "Derivatives", "block_values", "blocks_at"]

BLOCKS = ("f_x", "f_y", "f_xx", "f_xy", "f_yy", "g_y", "g_xy", "g_yy", "g_xxy", "g_xyy", "g_yyy")


def block_values(kernels: Kernels, x: Floats, y: Floats) -> dict[str, Floats]:
    """The blocks at the rows of x and y; not finite where f or g is not defined.

    >>> from bilevel_sym import zoo
    >>> block_values(zoo.get("scalar").problem.kernels, np.ones((2, 1)), np.zeros((2, 1)))["g_xyy"].shape
    (2, 1, 1, 1)
    """
    return dict(zip(BLOCKS, blocks_at(kernels, BLOCKS, x, y), strict=True))


def blocks_at(kernels: Kernels, names: Sequence[str], x: Floats, y: Floats) -> tuple[Floats, ...]:
    """Blocks by name at points (..., d) and (..., n) that broadcast; not finite where f or g is not defined.

    >>> from bilevel_sym import BilevelProblem
    >>> kernels = BilevelProblem("x*y", "y**2 - x*y", "x", "y").kernels
    >>> g_x, g_yy = blocks_at(kernels, ("g_x", "g_yy"), np.ones((3, 1)), np.full((2, 3, 1), 4.0))
    >>> g_x.shape, g_x[0, 0], g_yy[1, 2]
    ((2, 3, 1), array([-4.]), array([[2.]]))
    """
    shape = np.broadcast_shapes(x.shape[:-1], y.shape[:-1])
    parts = [np.broadcast_to(part, (*shape, part.shape[-1])) for part in (x, y)]
    xy = np.concatenate(parts, axis=-1).reshape(-1, x.shape[-1] + y.shape[-1])

    def take(session: Session, rows: Floats) -> tuple[Floats, ...]:
        session.put(0, rows)
        return tuple(session.take(name) for name in names)

    with np.errstate(all="ignore"):
        values = over_points(kernels.batch_invariant, names, xy, take)
    return tuple(value.reshape(*shape, *value.shape[1:]) for value in values)


@dataclass(frozen=True, eq=False)
class Derivatives:
    """Blocks at one point a lane, (lanes, ...), and what follows from them if y is the lower-level solution there.

    >>> one = np.ones((1, 1, 1))
    >>> at = Derivatives({"g_xy": -2 * one, "g_yy": one, "f_x": np.zeros((1, 1)), "f_y": np.ones((1, 1))})
    >>> at.dy_dx.item(), at.v.item(), at.grad_phi.item()
    (2.0, 1.0, 2.0)
    """

    blocks: Mapping[str, Floats]

    def __getitem__(self, name: str) -> Floats:
        return self.blocks[name]

    @cached_property
    def dy_dx(self) -> Floats:
        """-g_xy g_yy^-1, (lanes, d, n)."""
        return np.asarray(-np.linalg.solve(self["g_yy"], self["g_xy"].swapaxes(1, 2)).swapaxes(1, 2))

    @cached_property
    def d2y_dx2(self) -> Floats:
        """The second derivative of y*, (lanes, d, d, n)."""
        cross = np.einsum("mikl,mjl->mijk", self["g_xyy"], self.dy_dx)
        third = self["g_xxy"] + cross + cross.swapaxes(1, 2) + self.between("g_yyy")
        m, d, _, n = third.shape
        flat = np.linalg.solve(self["g_yy"], third.reshape(m, d * d, n).swapaxes(1, 2))
        return np.asarray(-flat.swapaxes(1, 2).reshape(m, d, d, n))

    @cached_property
    def v(self) -> Floats:
        """g_yy^-1 f_y, (lanes, n)."""
        return np.asarray(np.linalg.solve(self["g_yy"], self["f_y"][:, :, None])[:, :, 0])

    def cross(self) -> Floats:
        """dy_dx f_yx."""
        return np.asarray(np.einsum("mik,mjk->mij", self.dy_dx, self["f_xy"]))

    def curvature(self) -> Floats:
        """d2y_dx2 f_y."""
        return np.asarray(np.einsum("mijk,mk->mij", self.d2y_dx2, self["f_y"]))

    def between(self, block: str) -> Floats:
        """dy_dx B dy_dx' for B = f_yy; for g_yyy the last axis stays."""
        axes = "mia,mjb,mab->mij" if block == "f_yy" else "mia,mjb,mabk->mijk"
        return np.asarray(np.einsum(axes, self.dy_dx, self.dy_dx, self[block]))

    @cached_property
    def grad_phi(self) -> Floats:
        """f_x + dy_dx f_y, (lanes, d)."""
        return np.asarray(self["f_x"] + np.einsum("mij,mj->mi", self.dy_dx, self["f_y"]))

    @cached_property
    def hess_phi(self) -> Floats:
        """Hess Phi, the sum of its terms, (lanes, d, d)."""
        cross = self.cross()
        return np.asarray(self["f_xx"] + cross + cross.swapaxes(1, 2) + self.curvature() + self.between("f_yy"))
