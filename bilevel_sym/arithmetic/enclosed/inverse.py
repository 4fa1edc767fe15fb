"""Linear systems with a symmetric matrix of which float64 enclosures are known, solved with proof.

For R, about the inverse of H, and |I - R H| <= q < 1 in the norm of row sums, the solution e of H e = r satisfies
e = R r + (I - R H) e, so |e| <= |R r|/(1 - q), and e is as near to R r as the row sums of |I - R H| times that. This is
shown for every H in the enclosure at once, in units in which the diagonal of H is about 1. The same R makes Newton's
method contract (``certify.array_lower_level``).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb

from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.enclosed.entries import ENTRY_BITS, arranged, binary_exponent, floats_of
from bilevel_sym.arithmetic.enclosed.midrad import MidRad, exact, product, upward
from bilevel_sym.typing import Floats

__all__ = ["Correction", "Inverse", "proved_inverse"]

LARGEST_DEFECT = 0.25


@dataclass(frozen=True, eq=False)
class Correction:
    """What solves a system.

    - ``balls``: an array that holds H^-1 r.
    - ``reach``: for each entry, twice a bound on the largest entry of R r, in the units of that entry: more than any
      entry of H^-1 r can be.
    """

    balls: Any
    reach: Any

    @property
    def is_finite(self) -> bool:
        """Whether anything is known."""
        return all(reach.is_finite() for reach in self.reach.tolist())


@dataclass(frozen=True, eq=False)
class Inverse:
    """An approximate inverse R of every matrix S H S, H in an enclosure. Made by ``proved_inverse``.

    - ``matrix``: R.
    - ``defects``: bounds on the sums of the rows of |I - R S H S|, for all H; at most 1/4.
    - ``units``: S = diag(2^-units): entry k of a solution is in units of 2^-units[k].

    >>> found = proved_inverse(exact([[4.0]])).correction(arranged([arb(8)]))
    >>> found.balls[0].contains(2), found.reach[0] > 2
    (True, True)
    """

    matrix: Floats
    defects: Floats
    units: Any

    def correction(self, residual: Any) -> Correction:
        """H^-1 r for balls r (a vector) and every H, at the precision that is set."""
        units = [arb(2) ** -unit for unit in self.units.tolist()]
        own = [ball * unit for ball, unit in zip(residual.tolist(), units, strict=True)]
        if all(ball.is_zero() for ball in own):
            return Correction(arranged(own), arranged(own))
        known = (ball for ball in own if ball.is_finite() and not ball.is_zero())
        top = max((binary_exponent(ball.abs_upper()) for ball in known), default=0)
        down, back = arb(2) ** -top, arb(2) ** top  # residuals are too small for float64 as they are
        with precision(ENTRY_BITS):
            near = floats_of(arranged([ball * down for ball in own]))
        moved = product(exact(self.matrix), near.moved(lambda array: array[:, None])).moved(lambda array: array[:, 0])
        reach = 2.0 * float(moved.magnitude().max())
        radius = upward(moved.radius + self.defects * reach, 7)
        pairs = zip(moved.mid.tolist(), radius.tolist(), units, strict=True)
        balls = [arb(middle, rad) * back * unit for middle, rad, unit in pairs]
        return Correction(arranged(balls), arranged([arb(reach) * back * unit for unit in units]))


def proved_inverse(enclosure: MidRad) -> Inverse | str:
    """An approximate inverse, if every symmetric matrix of the enclosure is positive definite; or why not.

    With X about the inverse of the Cholesky factor, X H X^T is near the identity. Where it is nearer than 1 in norm for
    all H, its eigenvalues are positive, and so are those of H. Rows and columns are scaled first, by powers of two.

    >>> found = proved_inverse(exact([[2.0, 1.0], [1.0, 2.0]]))
    >>> bool(found.defects.max() < 1e-14)
    True
    >>> proved_inverse(exact([[1.0, 2.0], [2.0, 1.0]]))
    'is not provably positive definite'
    """
    if not enclosure.is_finite:
        return "is not finite"
    units = np.frexp(np.maximum(np.diagonal(enclosure.mid), 2.0**-1000))[1].astype(np.intc) // 2
    powers = np.ldexp(1.0, -units)
    scaled = enclosure * exact(powers[:, None]) * exact(powers)
    eye = exact(np.eye(len(units)))
    try:
        root = np.linalg.inv(np.linalg.cholesky(0.5 * (scaled.mid + scaled.mid.T)))
    except np.linalg.LinAlgError:
        return "is not provably positive definite"
    near = product(product(exact(root), scaled), exact(np.ascontiguousarray(root.T)))
    if not float(_row_sums(eye - near).max()) < 1.0:
        return "is not provably positive definite"
    matrix = root.T @ root
    defects = _row_sums(eye - product(exact(matrix), scaled))
    if not float(defects.max()) <= LARGEST_DEFECT:
        return "is too badly conditioned for float64"
    return Inverse(matrix, defects, units)


def _row_sums(value: MidRad) -> Floats:
    return upward(np.add.reduce(value.magnitude(), axis=1), value.shape[1] + 5)
