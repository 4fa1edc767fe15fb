"""The lower level of one point by products: Newton's method whose systems are solved by conjugate gradients.

Nothing of size n by n is formed unless it pays: where the digits that are left would take more products than forming
and factoring g_yy costs, the factor is taken if there may be one, and conditions every further system until it is out
of date. What is solved is solved to round-off: residuals are pushed down until they no longer shrink.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from bilevel_sym.typing import Floats

__all__ = [
    "CLOSE", "CURVATURE", "ENOUGH", "FEW", "FLOOR", "LOOSE", "MAX_HALVINGS", "MAX_STEPS", "ROUND_OFF", "SOLVED",
    "STALLED", "TO_ROUND_OFF", "TRUSTED", "Lower", "NotConvex", "NotSolved", "System", "Systems", "newton",
    "solve_together",
]  # fmt: skip

Product = Callable[[Floats], Floats]
MAX_STEPS = 100  # of Newton's method
MAX_HALVINGS = 60
FLOOR = 1e-15  # a residual below this, relative to the right-hand side, is round-off
ROUND_OFF = 2.0**-50
STALLED = 30  # products without a smaller residual after which rounding is what is left, once it is small
TRUSTED = 1e-8  # a residual above this, relative to the right-hand side, is not called a solution
LOOSE = 0.1  # how precisely the first systems are solved
CLOSE = 1e-6  # a step below this, relative to y: from here on full steps converge
ENOUGH = 1e-9  # how precisely systems are solved near the end: each step then gains nine digits
FRESH = 30  # products for which a factor serves at least
TRIED = 8  # products after which it is guessed how many more there will be
TO_ROUND_OFF = 16.0  # digits by which a system that is solved to the end makes its residual smaller
WORTH = 1.25  # times what a factor costs that it must save, for what it costs is a guess
SLOW = 5.0  # times what a factor costs that products may, whatever is hoped of the next ones
CURVATURE = 10.0  # how much larger than its square the error after a step may be, relative to y
SOLVED = 1e-14  # a residual above this, relative to the right-hand side, is not solved side by side with others
FEW = 3  # products without a smaller residual after which one below that is rounding


class NotConvex(Exception):
    """A direction along which g_yy is not positive: ``curvature`` says how far."""

    def __init__(self, curvature: float) -> None:
        super().__init__(f"curvature {curvature}")
        self.curvature = curvature


class NotSolved(Exception):
    """A system that products do not solve: ``residual`` is what was reached, relative to the right-hand side."""

    def __init__(self, residual: float) -> None:
        super().__init__(f"residual {residual}")
        self.residual = residual


@dataclass(frozen=True)
class System:
    """The lower level at one y.

    - ``g_y``: its gradient, nan where g is not defined.
    - ``product``: products with g_yy.
    - ``factor``: forms g_yy and returns what solves with it; NotConvex where that is not positive definite.
    """

    g_y: Floats
    product: Product
    factor: Callable[[], Product]


@dataclass
class Systems:
    """Linear systems with g_yy, one after the other: how many products they took, and the factor once there is one.

    - ``budget``: products that cost as much as forming and factoring g_yy; infinite where that may not be.
    - ``after``: digits of the systems that will be solved with the same factor when these are.
    - ``condition``: what solves with a factor of g_yy, perhaps at a point nearby.

    >>> systems = Systems(np.inf)
    >>> systems.solve(System(np.zeros(1), lambda z: 2 * z, lambda: (lambda z: z / 2)), np.array([4.0]), FLOOR)
    array([2.])
    """

    budget: float
    after: float = 0.0
    condition: Product | None = None
    products: int = 0
    _digits: float = 0.0  # by which products have made residuals smaller
    _renewed: float = field(default=0.0, init=False)  # the number of products at which the factor is out of date

    def __post_init__(self) -> None:
        self._renewed = max(self.budget, FRESH)

    def _factor(self, at: System) -> None:
        self.condition = at.factor()
        self._renewed = self.products + max(self.budget, FRESH)

    def _is_due(self, shrunk: float, rtol: float) -> bool:
        """Whether the factor pays now that the residual is so much smaller than the right-hand side.

        A step of Newton's method is solved as precisely as steps are short: a factor made here then gains about as many
        digits with each product as this system asks for.
        """
        if self.condition is not None:
            return self.products >= self._renewed
        if self.products < TRIED or self.budget == np.inf:
            return False
        if self.products > SLOW * self.budget:
            return True
        gained, wanted = max(-math.log10(max(shrunk, FLOOR)), 0.0), -math.log10(rtol)
        left = max(wanted - gained, 0.0) + self.after - (math.log10(ENOUGH) if rtol > ENOUGH else 0.0)
        # the products that are left at the rate so far, and with a factor
        return self.products * left > (WORTH * self.budget + left / wanted) * (self._digits + gained)

    def solve(self, at: System, right: Floats, rtol: float) -> Floats:
        """g_yy^-1 right, to ``rtol`` or to where the residual no longer shrinks.

        Residuals may grow for long before they fall: only small ones are taken for rounding. What is not solved by as
        many products as there are variables, and more, wants the factor, if there may be one.
        """
        z = np.zeros_like(right)
        if not right.any():  # a feature that is always zero moves nothing
            return z
        residual, least, since, best = right.copy(), np.inf, 0, z
        direction, square = np.zeros_like(right), 1.0
        whole = float(np.sqrt(right @ right))
        goal, small = rtol * whole, TRUSTED * whole
        for _ in range(10 * len(right) + 100):
            size = math.sqrt(residual @ residual)
            since = since + 1 if least <= size <= small or (size > small >= least) else 0
            if size < least:
                least, best = size, z
            if size <= goal or since > STALLED:
                break
            if self._is_due(size / whole, rtol):
                self._factor(at)
                return self.solve(at, right, rtol)
            better = residual if self.condition is None else self.condition(residual)
            new = float(residual @ better)
            direction *= new / square
            direction += better
            square = new
            image = at.product(direction)
            self.products += 1
            curvature = float(direction @ image)
            if not curvature > 0:
                raise NotConvex(curvature / float(direction @ direction))
            z = z + (square / curvature) * direction  # a new array: the best so far stays
            residual -= (square / curvature) * image
        if least <= max(goal, small):
            self._digits -= math.log10(max(least / whole, FLOOR))
            return best
        if self.condition is None and self.budget < np.inf:
            self._factor(at)
            return self.solve(at, right, rtol)
        raise NotSolved(least / whole)


@dataclass(frozen=True)
class Lower:
    """Where Newton's method ended.

    - ``y``: the point.
    - ``gradients``, ``products``: what it took.
    - ``arrived``: whether steps became round-off.
    """

    y: Floats
    gradients: int
    products: int
    arrived: bool


def newton(at: Callable[[Floats], System], y0: Floats, systems: Systems) -> Lower:
    """A zero of grad_y g from y0.

    Systems are solved more precisely as steps become short; the end is where steps no longer do.

    >>> newton(lambda y: System(2 * y - 6, lambda v: 2 * v, lambda: (lambda v: v / 2)), np.zeros(1), Systems(np.inf)).y
    array([3.])
    """
    y, here, gradients = y0.copy(), at(y0), 1
    rtol, before = LOOSE, np.inf
    for _ in range(MAX_STEPS):
        if not here.g_y.any():
            return Lower(y, gradients, systems.products, True)
        step = systems.solve(here, -here.g_y, rtol)
        length = float(np.abs(step).max()) / max(float(np.abs(y).max()), 1e-300)
        if length <= ROUND_OFF or (length < CLOSE and 2 * length > before):
            return Lower(y, gradients, systems.products, True)
        before = length if length < CLOSE else np.inf
        y, here, trials = _moved(at, y, here, step, close=length < CLOSE)
        gradients += trials
        if trials > MAX_HALVINGS:
            break
        if length * (rtol + CURVATURE * length) <= ROUND_OFF:  # what is left of the error
            return Lower(y, gradients, systems.products, True)
        rtol = min(LOOSE, max(length, ENOUGH))  # a step is as good as its square
    return Lower(y, gradients, systems.products, False)


def _moved(
    at: Callable[[Floats], System], y: Floats, here: System, step: Floats, *, close: bool
) -> tuple[Floats, System, int]:
    """The first point along the step, halved again and again, at which the gradient is smaller, and the trials.

    at: the lower level at a point
    y: where the step begins
    here: the lower level there
    step: Newton's step
    close: whether the step is so short that the gradient is about to be rounding: then it is taken whole
    """
    size, length = float(here.g_y @ here.g_y), 1.0
    for k in range(MAX_HALVINGS):
        new = y + length * step
        there = at(new)
        if float(there.g_y @ there.g_y) < size or (close and np.isfinite(there.g_y).all()):
            return new, there, k + 1
        length /= 2
    return y, here, MAX_HALVINGS + 1


def solve_together(products: Product, rights: Floats) -> Floats:
    """g_yy^-1 of each row, by conjugate gradients side by side; NotSolved where one row does not come to round-off.

    products: products with g_yy, row by row
    rights: right-hand sides, as rows

    >>> solve_together(lambda rows: 2 * rows, np.array([[4.0, 0.0], [0.0, 0.0]]))
    array([[2., 0.],
           [0., 0.]])
    """
    found, left = np.zeros_like(rights), np.arange(len(rights))
    residual, square = rights.copy(), np.vecdot(rights, rights)
    z, direction, goal = found.copy(), residual.copy(), FLOOR**2 * square
    least, since = np.full(len(rights), np.inf), np.zeros(len(rights), dtype=np.int64)
    for _ in range(rights.shape[1] + 2 * STALLED):
        since = np.where(square < least, 0, since + 1)
        least = np.minimum(least, square)
        done = (square <= goal) | ((since > FEW) & (least <= goal * (SOLVED / FLOOR) ** 2))
        if done.any():
            found[left[done]] = z[done]
            kept = ~done
            left, z, residual, direction = left[kept], z[kept], residual[kept], direction[kept]
            square, goal, least, since = square[kept], goal[kept], least[kept], since[kept]
        if not len(left):
            return found
        images = products(direction)
        curvature = np.vecdot(direction, images)
        if not (curvature > 0).all():
            break
        lengths = (square / curvature)[:, None]
        z += lengths * direction
        residual -= lengths * images
        new = np.vecdot(residual, residual)
        direction *= (new / square)[:, None]
        direction += residual
        square = new
    raise NotSolved(np.nan)
