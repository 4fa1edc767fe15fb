"""A box in (x, y) from one in x: y runs over a proved enclosure of y*(x) for all x of the box."""

from __future__ import annotations

import numpy as np
import sympy as sp

from bilevel_sym import BilevelProblem, Box
from bilevel_sym.errors import CertificateFailure
from bilevel_sym.typing import Floats
from verify.enclosures.block_norm import ExactBox
from verify.enclosures.cover import middles
from verify.enclosures.phi_boxes import PhiBoxes

__all__ = ["with_y_star"]

PIECES = 64  # at least so many boxes, for a hull that is not much wider than the truth
MOST_PIECES = 1024


def with_y_star(problem: BilevelProblem, box: Box) -> Box:
    """The box with an interval for each y that holds y*(x) for all its x, proved.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> low, high = with_y_star(problem, Box({"x": (0, 1)}))["y"]
    >>> bool(-0.1 < low <= 0 and 1 <= high < 1.1)
    True
    """
    region, phi = ExactBox(box), PhiBoxes(problem)
    lower, upper = region.lower[None], region.upper[None]
    lows, highs, done = [], [], 0
    while len(lower):
        if done + len(lower) > MOST_PIECES:
            raise _failure(box, lower[0], upper[0])
        found = phi.enclose(lower, upper, proved=True)
        ok = np.asarray(found.ok)
        if done + len(lower) >= PIECES:
            lows.append(found.y.lower[ok, :, 0])
            highs.append(found.y.upper[ok, :, 0])
            done += int(ok.sum())
            lower, upper = lower[~ok], upper[~ok]
        if not _may_be_cut(lower, upper):
            raise _failure(box, lower[0], upper[0])
        lower, upper = _halved(lower, upper, region.upper - region.lower)
    ends = np.concatenate(lows).min(axis=0), np.concatenate(highs).max(axis=0)
    y = {
        s.name: (sp.Rational(a), sp.Rational(b))
        for s, a, b in zip(problem.y, *map(np.ndarray.tolist, ends), strict=True)
    }
    return Box(dict(box.items()) | y)


def _may_be_cut(lower: Floats, upper: Floats) -> bool:
    return bool(np.all((upper - lower).max(axis=1) > 1e-12)) if len(lower) else True


def _halved(lower: Floats, upper: Floats, width: Floats) -> tuple[Floats, Floats]:
    """Both halves of each box, cut across its widest variable."""
    if not len(lower):
        return lower, upper
    lanes, widest = np.arange(len(lower)), ((upper - lower) / np.where(width > 0, width, 1.0)).argmax(axis=1)
    first, second = upper.copy(), lower.copy()
    first[lanes, widest] = second[lanes, widest] = middles(lower[lanes, widest], upper[lanes, widest])
    return np.concatenate([lower, second]), np.concatenate([first, upper])


def _failure(box: Box, lower: Floats, upper: Floats) -> CertificateFailure:
    ends = zip(box.names or (), lower, upper, strict=True)
    where = ", ".join(f"{name} in [{low:.9g}, {high:.9g}]" for name, low, high in ends)
    return CertificateFailure(
        f"y* was not enclosed where {where}",
        hint="give the box in y too, or a smaller box in x; g must be smooth and strongly convex in y there",
    )
