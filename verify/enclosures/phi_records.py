"""Records of an enclosure of Phi: what Krawczyk's test leaves, and what the formulas give over boxes and in middles."""

from __future__ import annotations

from dataclasses import dataclass, fields

import numpy as np

from bilevel_sym.arithmetic.pieces.patterns import Split
from bilevel_sym.typing import Bools, Floats, Indices
from verify.enclosures.affine import Affine
from verify.enclosures.interval_matrix import ROUNDED_UP, Matrices


@dataclass(frozen=True, eq=False)
class Start:
    """What Krawczyk's test leaves, for each box X with middle c.

    y*(x) is within ``rest`` of y + response (x - c), and y*(c) within ``near`` of y. ``inverse`` is about g_yy^-1 at
    the middle, and ``factor`` its factor: inverse = factor^T factor.
    """

    ok: Bools
    middle: Floats
    reach: Floats
    y: Floats
    rest: Floats
    factor: Floats
    inverse: Floats
    near: Floats
    response: Floats

    @property
    def radius(self) -> Floats:
        """y*(X) is within it of y."""
        return self.away(self.rest)

    def away(self, rest: Floats) -> Floats:
        """How far y + response (x - c), up to the rest, is from y."""
        return np.asarray((column(np.abs(self.response), self.reach) + rest) * ROUNDED_UP)

    def box(self, rest: Floats) -> tuple[Floats, Floats]:
        """The box in (x, y) around all that."""
        (x_low, x_high), (low, high) = around(self.middle, self.reach), around(self.y, self.away(rest)[:, :, 0])
        return np.concatenate([x_low, low], axis=1), np.concatenate([x_high, high], axis=1)

    def taken(self, lanes: Indices) -> Start:
        """Some of the lanes, perhaps several times."""
        return Start(*(getattr(self, field.name)[lanes] for field in fields(self)))


@dataclass(frozen=True, eq=False)
class Wide:
    """v*, dy_dx^T and the derivatives of Phi over boxes, as affine forms; where not ``ok``, nothing is known."""

    ok: Bools
    v: Affine
    response: Affine
    grad: Affine
    hess: Affine
    third: Affine | None

    def around(self, split: Split) -> Wide:
        """What is true with each of the formulas that hold in a box."""
        parts = (self.v, self.response, self.grad, self.hess, self.third)
        hulls = (None if part is None else part.around(split.owner, split.boxes) for part in parts)
        return Wide(every(self.ok, split), *hulls)  # type: ignore[arg-type]


@dataclass(frozen=True, eq=False)
class Thin:
    """grad and Hess Phi in the middles of boxes; ``ok``: g_yy is positive definite there."""

    ok: Bools
    grad: Matrices
    hess: Matrices


def every(ok: Bools, split: Split) -> Bools:
    """Which boxes are fine with all of their formulas."""
    result = np.ones(split.boxes, dtype=np.bool_)
    np.logical_and.at(result, split.owner, ok)
    return result


def hull(part: Matrices, split: Split) -> Matrices:
    """The hull over all formulas of each box."""
    return Matrices.between(-split.largest(-part.lower), split.largest(part.upper))


def around(y: Floats, radius: Floats) -> tuple[Floats, Floats]:
    """Ends of y +- radius, rounded outward."""
    low, high = y - radius, y + radius
    return low - (2.3e-16 * np.abs(low) + 5e-324), high + (2.3e-16 * np.abs(high) + 5e-324)


def column(magnitude: Floats, reach: Floats) -> Floats:
    """An upper bound of |M (X - c)|, (lanes, rows, 1)."""
    return np.asarray(magnitude @ reach[:, :, None] * ROUNDED_UP)
