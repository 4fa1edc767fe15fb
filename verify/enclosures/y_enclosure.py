"""A box in (x, y) from one in x, which holds y*(x) for all its x, proved; and where y* stays in a box that is given."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import sympy as sp

from bilevel_sym import BilevelProblem, Box
from bilevel_sym.errors import CertificateFailure
from bilevel_sym.typing import Floats
from verify.enclosures.block_norm import ExactBox
from verify.enclosures.cover import middles
from verify.enclosures.phi_boxes import PhiBoxes

__all__ = ["Coverage", "coverage", "with_y_star"]

PIECES = 64  # at least so many boxes, for a hull that is not much wider than the truth
MOST_PIECES = 1024
COVERAGE_PIECES = 256  # of the box in x
SMALLEST_PIECE = 2.0**-12  # of the box in x: pieces are not cut any further
SLACK = 1e-9  # of the box in y: what floats may be off by


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
        if len(lower) and not np.all((upper - lower).max(axis=1) > 1e-12):
            raise _failure(box, lower[0], upper[0])
        lower, upper = _halved(lower, upper, region.upper - region.lower)
    ends = np.concatenate(lows).min(axis=0), np.concatenate(highs).max(axis=0)
    y = {
        s.name: (sp.Rational(a), sp.Rational(b))
        for s, a, b in zip(problem.y, *map(np.ndarray.tolist, ends), strict=True)
    }
    return Box(dict(box.items()) | y)


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


# ---------------------------------------------------------------------- where y* stays in a box
# Constants over a box bound nothing of Phi where y* is outside of it. The box in x is cut, and y* enclosed over the
# pieces: they are inside, outside, or open. A y* that touches the end of the box is never proved to be inside: what
# counts as left out is what is proved to be outside, and what lies outside in floats by more than rounding.


@dataclass(frozen=True, eq=False)
class Coverage:
    """The pieces of the box in x, (pieces, d) each end, that are proved to be outside, and those that are open.

    ``point`` is an x, if one was met, at which y* is outside; ``share`` and ``open_share`` are the parts of the box in
    x that the pieces outside and the open ones make up.
    """

    names: tuple[str, ...]
    outside: tuple[Floats, Floats]
    undecided: tuple[Floats, Floats]
    point: Floats | None
    share: float
    open_share: float

    @property
    def left_out(self) -> str:
        """The part of x for which y* leaves the box; empty where it is not known to leave it.

        >>> problem = BilevelProblem("exp(y)", "(y - 10*x)**2/2", "x", "y", box={"x": (-1, 1), "y": (-1, 0)})
        >>> coverage(problem, problem.box).left_out
        'x in [-1, -0.1000977] and [0.0004882812, 1]'
        """
        lower, upper = self.outside
        if not len(lower):
            return "" if self.point is None else f"a part of x about {self._named(self.point)}"
        if len(self.names) == 1:
            runs = _merged(lower[:, 0], upper[:, 0])
            return f"{self.names[0]} in {' and '.join(f'[{low:.7g}, {high:.7g}]' for low, high in runs)}"
        ends = zip(self.names, lower.min(axis=0), upper.max(axis=0), strict=True)
        hull = ", ".join(f"{name} in [{low:.6g}, {high:.6g}]" for name, low, high in ends)
        return f"at least {self.share:.2g} of the box in x, inside {hull}"

    def _named(self, point: Floats) -> str:
        return ", ".join(f"{name} = {value:.6g}" for name, value in zip(self.names, point, strict=True))


def coverage(problem: BilevelProblem, box: Box) -> Coverage:
    """Which part of the box in x has its y* in the box; a box in x alone leaves nothing out.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    >>> coverage(problem, problem.box).left_out
    ''
    """
    names, d = tuple(s.name for s in problem.x), problem.d
    nothing = np.empty((0, d)), np.empty((0, d))
    if len(box) == d:
        return Coverage(names, nothing, nothing, None, 0.0, 0.0)
    region = ExactBox(Box({name: box[name] for name in names}))
    low, high = np.array([[float(box[s.name][0]), float(box[s.name][1])] for s in problem.y]).T
    return _Search(names, PhiBoxes(problem), region, low, high).run()


class _Search:
    """The pieces of x that are still open."""

    def __init__(self, names: tuple[str, ...], phi: PhiBoxes, region: ExactBox, low: Floats, high: Floats) -> None:
        self._names, self._phi, self._region, self._low, self._high = names, phi, region, low, high
        self._width = np.where(region.upper > region.lower, region.upper - region.lower, 1.0)
        self._slack = SLACK * np.where(high > low, high - low, 1.0)
        self._point: Floats | None = None

    def run(self) -> Coverage:
        """Cut the open pieces, all at a time, as long as there are few."""
        lower, upper = self._region.lower[None], self._region.upper[None]
        gone: list[tuple[Floats, Floats]] = []
        while True:
            y_low, y_high = self._phi.y_over(lower, upper, proved=True)
            inside = ((y_low >= self._low) & (y_high <= self._high)).all(axis=1)
            outside = ((y_high < self._low) | (y_low > self._high)).any(axis=1)
            gone.append((lower[outside], upper[outside]))
            lower, upper = lower[~inside & ~outside], upper[~inside & ~outside]
            self._look(np.concatenate([middles(lower, upper), lower, upper]))
            if not 0 < len(lower) <= COVERAGE_PIECES // 2 or not ((upper - lower) > SMALLEST_PIECE * self._width).any():
                break
            lower, upper = _halved(lower, upper, self._width)
        out = tuple(np.concatenate(ends) for ends in zip(*gone, strict=True))
        if len(out[0]) and self._point is None:
            self._point = middles(out[0], out[1])[0]
        shares = self._share(*out), self._share(lower, upper)
        return Coverage(self._names, (out[0], out[1]), (lower, upper), self._point, *shares)

    def _share(self, lower: Floats, upper: Floats) -> float:
        sides = np.where(upper > lower, upper - lower, 1.0) / self._width  # of an x that is fixed, all of it
        return float(np.prod(sides, axis=1).sum())

    def _look(self, x: Floats) -> None:
        """Whether y* in floats is outside at one of these x."""
        if self._point is not None or not len(x):
            return
        y, found = self._phi.solve(x)
        away = ((y < self._low - self._slack) | (y > self._high + self._slack)).any(axis=1) & found
        if away.any():
            self._point = x[np.argmax(away)]


def _merged(lower: Floats, upper: Floats) -> list[tuple[float, float]]:
    """Intervals that meet, as one."""
    runs: list[tuple[float, float]] = []
    for low, high in sorted(zip(lower.tolist(), upper.tolist(), strict=True)):
        if runs and low <= runs[-1][1]:
            runs[-1] = runs[-1][0], max(high, runs[-1][1])
        else:
            runs.append((low, high))
    return runs
