"""y* of an array problem: a float64 region with one approximate inverse for all of g_yy over it, then balls in it.

Over the region Y the matrix R nearly inverts every g_yy: |I - R g_yy| <= q <= 1/4 (``arithmetic.enclosed.inverse``).
For a point c of Y and N >= |R grad_y g(c)|, Krawczyk's image of the box c +- 2 N lies in its interior if that box lies
in Y: N + q 2 N < 2 N. So there is exactly one zero of grad_y g in it, and that is within the row sums of |I - R g_yy|
times 2 N of c - R grad_y g(c). R and the bound are found once, with float64 matrices; more digits of y*, and systems
with g_yy, take products with vectors of balls alone.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import flint
import numpy as np
from flint import arb

from bilevel_sym.arithmetic.enclosed.arithmetics import FloatArrays
from bilevel_sym.arithmetic.enclosed.entries import arranged
from bilevel_sym.arithmetic.enclosed.inverse import Inverse, proved_inverse
from bilevel_sym.arithmetic.enclosed.midrad import MidRad
from bilevel_sym.certify.array_blocks import EnclosedBlocks, Exactly
from bilevel_sym.typing import Floats

NOT_SMOOTH = "g switches between pieces (abs, min, max, Piecewise) at y*, or is not defined there"
UNDEFINED = "f or g is not smooth, or not defined, at the point"
NOT_PROVED = "Krawczyk's test did not prove that y* exists"
LAST_BITS = 30  # last bits of the working precision that need not be right: less than its guard
MAX_STEPS = 200
WIDTH = 2.0**-40  # of the region, relative to y*: far more than float64 errs, far less than changes g_yy
WIDER = 64.0
REGIONS_TRIED = 3


@dataclass(frozen=True, eq=False)
class Region:
    """A box in y around a float64 point, and what inverts g_yy all over it; grad_y g has at most one zero in it.

    - ``box``: the point, with the half widths of the box as its radius.
    - ``inverse``: about the inverse of every g_yy over the box, all of which are positive definite.
    """

    box: MidRad
    inverse: Inverse

    def holds(self, centre: Any, reach: Any) -> bool:
        """Whether all points within ``reach`` of a centre, entry by entry, are in the box."""
        ends = zip(centre.tolist(), reach.tolist(), self.box.mid.tolist(), self.box.radius.tolist(), strict=True)
        return all(abs(c - arb(mid)) + own <= arb(rad) for c, own, mid, rad in ends)


def proved_region(exactly: Exactly, x: MidRad, y: Floats, residual: Callable[[Floats], Any]) -> Region | str:
    """A region around a point that is nearly y*, or why there is none.

    - ``exactly``: the problem.
    - ``x``: the point, in float64.
    - ``y``: about y*.
    - ``residual``: takes a float64 point to balls that hold grad_y g there.

    >>> from bilevel_sym import BilevelProblem
    >>> exactly = Exactly.of(BilevelProblem("x*sum(y)", "sum((y - x)**2)", "x", "y[2]"))
    >>> gradient = lambda y: arranged([2 * (arb(v) - 3) for v in y])
    >>> near = proved_region(exactly, MidRad(np.array([3.0])), np.array([3.1, 2.9]), gradient)
    >>> refined(near, lambda y: 2 * (y - arb(3)))[0].contains(3)
    True
    >>> solved(near, arranged([arb(2), arb(4)]), lambda z: 2 * z)[1].contains(2)
    True
    """
    blocks = EnclosedBlocks(exactly, FloatArrays())
    sizes = np.abs(y)
    width = WIDTH * (sizes + WIDTH * sizes.max(initial=0.0)) + 2.0**-900
    for _ in range(REGIONS_TRIED):
        region = _region(blocks, x, MidRad(y, width))
        if isinstance(region, str):
            return region
        found = region.inverse.correction(residual(y))
        if region.holds(arranged([arb(c) for c in y.tolist()]), 2 * found.reach):
            return region
        if not found.is_finite:
            return "g or its derivatives are not finite near y*"
        y = y - np.array([float(ball.mid()) for ball in found.balls.tolist()])
        width = np.maximum(width, WIDER * np.array([float(reach.mid()) for reach in found.reach.tolist()]))
    return NOT_PROVED


def _region(blocks: EnclosedBlocks[MidRad], x: MidRad, box: MidRad) -> Region | str:
    point = blocks.at(x, box)
    if not (point.block("g").is_finite and point.block("g_y").is_finite):  # g_yy alone does not show a jump
        return NOT_SMOOTH
    inverse = proved_inverse(point.block("g_yy"))
    return Region(box, inverse) if isinstance(inverse, Inverse) else f"g_yy {inverse} at y*"


def refined(region: Region, residual: Callable[[Any], Any]) -> Any | str:
    """Balls that hold y*, at the precision that is set; or why not. ``residual`` is grad_y g at points of balls."""
    centre = arranged([arb(value) for value in region.box.mid.tolist()])
    return _steps(centre, lambda c: region.inverse.correction(-residual(c)), region.holds)


def solved(region: Region, right: Any, times: Callable[[Any], Any]) -> Any | str:
    """Balls that hold g_yy^-1 b at y*, or why not.

    - ``region``: where y* is.
    - ``right``: b, balls.
    - ``times``: takes a vector of balls to g_yy at y* times it.
    """
    start = arranged([arb(0)] * len(right))

    def correction(z: Any) -> Any:
        first = all(entry.is_zero() for entry in z.tolist())
        return region.inverse.correction(right if first else right - times(z))

    return _steps(start, correction, lambda centre, reach: True)


def _steps(centre: Any, correction: Callable[[Any], Any], holds: Callable[[Any, Any], bool]) -> Any | str:
    """A centre plus its correction, again and again, until the working precision shows no more."""
    before = None
    for _ in range(MAX_STEPS):
        found = correction(centre)
        if not found.is_finite:
            return UNDEFINED
        if not holds(centre, found.reach):
            return NOT_PROVED
        truth = centre + found.balls
        radius = max(ball.rad() for ball in truth.tolist())
        size = max(ball.abs_upper() for ball in truth.tolist())
        if radius <= size * arb(2) ** (LAST_BITS - flint.ctx.prec) or (before is not None and 2 * radius >= before):
            break
        centre, before = nearest(truth), radius
    return truth


def nearest(balls: Any) -> Any:
    """The middles of balls, as exact numbers.

    >>> nearest(np.array([arb(2, 1)], object))[0].is_exact()
    True
    """
    return arranged([ball.mid() for ball in balls.tolist()])
