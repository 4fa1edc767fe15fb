"""The Taylor test: how a remainder of Phi shrinks with the step says whether a gradient is right. It uses values only.

With a right gradient G, Phi(x + h u) - Phi(x) - h G.u shrinks like h^2; with a wrong one, from some h on, like h. The
values of Phi are certified to more digits than the smallest remainder needs, so that no rounding hides the slope.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np
from flint import arb, fmpq

from bilevel_sym import PointCertificate, evaluate
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.system.budget import Deadline
from bilevel_sym.typing import Floats
from verify.testkit.reference import Quantity, References
from verify.testkit.sample_points import x_ends

__all__ = ["TaylorTest", "not_taken", "taylor_test"]

TAYLOR_DIGITS = 60  # the smallest remainder, of an error in the last bit, has 30 leading zeros
TAYLOR_BITS = 256
LONGEST, SHORTEST = 3, 48  # steps are 2^-3 ... 2^-48 of the size of the box
TAYLOR_STEPS = 16
FEWEST = 3  # steps, without which there is no slope
BETWEEN = 1.5  # a local slope below this is the one of an error


@dataclass(frozen=True)
class TaylorTest:
    """Remainders at steps, the longest first. ``slope`` is the one towards h = 0, where an error shows.

    It is 2 (or more) where nothing but rounding is wrong, 1 where something is; inf where the remainder vanishes, nan
    where there are too few steps. Below ``crossover`` the remainder goes like h: 0 where it never does, inf where
    always. ``error`` is remainder/h at the shortest step: the error of the derivative along u, seen from values.

    >>> print(TaylorTest("grad_phi", (0.1, 0.01), (1e-2, 1e-4), 2.0, 0.0, 1e-2, 15.0))
    Phi(x + h u) - Phi(x) - h G.u shrinks like h^2.00, as with a right gradient
    """

    quantity: Quantity
    steps: tuple[float, ...]
    remainders: tuple[float, ...]
    slope: float
    crossover: float
    error: float
    digits: float
    reason: str = ""

    def __str__(self) -> str:
        remainder, of = _NAMES[self.quantity]
        if math.isnan(self.slope):
            return f"{remainder} was not resolved: {self.reason}"
        if self.slope == math.inf:
            return f"{remainder} vanishes to rounding, as with a right {of}"
        if self.slope > BETWEEN:
            return f"{remainder} shrinks like h^{self.slope:.2f}, as with a right {of}"
        if self.crossover == math.inf or self.digits < 2:
            return f"{remainder} shrinks like h^{self.slope:.2f}; with a right {of} like h^2"
        ends = f"the candidate's {self.digits:.1f} correct digits end"
        return f"{remainder} shrinks like h^2 down to h = {self.crossover:.0e}, where {ends}, and like h below"


_NAMES = {
    "grad_phi": ("Phi(x + h u) - Phi(x) - h G.u", "gradient"),
    "hess_phi": ("grad Phi(x + h u) - grad Phi(x) - h H u", "Hessian"),
}


def taylor_test(
    at: References, k: int, quantity: Quantity, value: Floats, *, deadline: Deadline | None = None
) -> TaylorTest:
    """The test of a gradient or Hessian of Phi, along the direction of its error, by certificates of 16 steps on both
    sides.

    - ``at``: the references.
    - ``k``: the number of the point.
    - ``quantity``: the gradient, or the Hessian.
    - ``value``: what the candidate returned.
    - ``deadline``: where it passes first, TimeIsUp is raised.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [[1.0]])  # Phi = x^2/2
    >>> print(taylor_test(at, 0, "grad_phi", np.array([1.5])))
    Phi(x + h u) - Phi(x) - h G.u shrinks like h^1.00; with a right gradient like h^2
    >>> taylor_test(at, 0, "grad_phi", np.array([1.0])).slope.__round__(3)
    2.0
    """
    if quantity not in _NAMES:
        raise InvalidArgument(f"no Taylor test of {quantity}", hint="grad_phi or hess_phi")
    error = np.asarray(value, dtype=np.float64) - at.truth(quantity)[k]
    line = _Line(at, k, _direction(error))
    if not np.isfinite(value).all():
        return not_taken(quantity, "the candidate is not finite")
    model = _Model(line.certified(at.x[k].tolist()), quantity, value, line.u)
    found: list[tuple[float, float]] = []
    for j in np.linspace(LONGEST, SHORTEST, TAYLOR_STEPS):
        (deadline or Deadline()).check()
        h = line.scale * 2.0 ** -round(j)
        remainders = [model.remainder(side) for side in line.sides(h)]
        found += [(h, max(remainders))] if remainders else []
    if len(found) < FEWEST:
        return not_taken(quantity, f"Phi has no certificate near x = {at.x[k].tolist()}")
    return _taylor_test(quantity, tuple(h for h, _ in found), tuple(r for _, r in found), at, k, error)


def not_taken(quantity: Quantity, reason: str) -> TaylorTest:
    """No test, and why.

    >>> print(not_taken("grad_phi", "time is up"))
    Phi(x + h u) - Phi(x) - h G.u was not resolved: time is up
    """
    return TaylorTest(quantity, (), (), math.nan, math.nan, math.nan, math.nan, reason)


def _direction(error: Floats) -> Floats:
    """The unit vector along which the error is largest."""
    if not np.isfinite(error).all() or not error.any():
        return np.full(error.shape[-1], 1 / math.sqrt(error.shape[-1]))
    if error.ndim == 1:
        largest = error / np.abs(error).max()
        return np.asarray(largest / np.linalg.norm(largest))
    return np.asarray(np.linalg.svd(error / np.abs(error).max())[2][0])


class _Line:
    """x + h u on both sides of x, inside the box as far as it goes there."""

    def __init__(self, at: References, k: int, u: Floats) -> None:
        self.problem, self.x, self.u = at.problem, at.x[k], u
        if at.problem.box is None:
            self.scale, self.reach = 1 + float(np.abs(self.x).max()), (math.inf, math.inf)
            return
        lower, upper = x_ends(at.problem)
        self.scale = float((upper - lower).max()) or 1.0
        self.reach = (_reach(self.x, u, lower, upper), _reach(self.x, -u, lower, upper))
        if max(self.reach) < self.scale * 2.0**-SHORTEST:  # in a corner of the box: then outside it
            self.reach = (math.inf, math.inf)
        self.scale = min(self.scale, max(self.reach) * 2.0**LONGEST)

    def certified(self, x: Sequence[object]) -> PointCertificate:
        """Phi and grad Phi at a point."""
        return evaluate(self.problem, x, digits=TAYLOR_DIGITS, hessian=False)

    def sides(self, h: float) -> Iterator[tuple[PointCertificate, float]]:
        """The certificates at x + h u and x - h u, where there are any, with the signed step.

        Both are asked, for on one side the error and the curvature may cancel each other.
        """
        for step, reach in zip((h, -h), self.reach, strict=True):
            if h <= reach:
                exact = [Fraction(a) + Fraction(step) * Fraction(b) for a, b in zip(self.x, self.u, strict=True)]
                try:
                    yield self.certified(exact), step
                except BilevelError:
                    continue


def _reach(x: Floats, u: Floats, lower: Floats, upper: Floats) -> float:
    """How far x + h u stays between lower and upper."""
    ends = np.where(u > 0, upper, lower) - x
    moving = u != 0
    return max(0.0, float((ends[moving] / u[moving]).min()))


class _Model:
    """The value at x and the candidate's slope along u, in balls."""

    def __init__(self, here: PointCertificate, quantity: Quantity, value: Floats, u: Floats) -> None:
        self.quantity = quantity
        self.here = self._of(here)
        with precision(TAYLOR_BITS):
            exact = [_arb(entry) for entry in u]
            rows = [[_arb(entry) for entry in row] for row in np.atleast_2d(value)]
            self.slope = [sum((a * b for a, b in zip(row, exact, strict=True)), arb(0)) for row in rows]

    def _of(self, certificate: PointCertificate) -> list[arb]:
        balls = (certificate.phi,) if self.quantity == "grad_phi" else certificate.grad_phi
        return [ball.value for ball in balls]

    def remainder(self, there: tuple[PointCertificate, float]) -> float:
        """|there - here - step slope|, or 0 where it is not resolved."""
        certificate, step = there
        with precision(TAYLOR_BITS):
            parts = [
                a - b - _arb(step) * c for a, b, c in zip(self._of(certificate), self.here, self.slope, strict=True)
            ]
            size = sum((part * part for part in parts), arb(0)).sqrt()
            return float(size.mid()) if size > 0 else 0.0


def _arb(number: float) -> arb:
    exact = Fraction(float(number))
    return arb(fmpq(exact.numerator, exact.denominator))


def _taylor_test(
    quantity: Quantity, steps: tuple[float, ...], remainders: tuple[float, ...], at: References, k: int, error: Floats
) -> TaylorTest:
    h, r = np.array(steps), np.array(remainders)
    seen = r > 2 * h * at.floor(quantity)[k]  # more than a rounded derivative would leave
    size = float(np.linalg.norm(at.truth(quantity)[k])) or 1.0
    digits = max(0.0, -math.log10(max(float(np.linalg.norm(error)) / size, 1e-16)))
    rest = (float(r[-1] / h[-1]), digits)
    if seen.sum() < 2:
        return TaylorTest(quantity, steps, remainders, math.inf, 0.0, *rest)
    h, r = np.log(h[seen]), np.log(r[seen])
    local = np.diff(r) / np.diff(h)
    return TaylorTest(quantity, steps, remainders, float(local[-1]), _crossover(h, local), *rest)


def _crossover(log_h: Floats, local: Floats) -> float:
    """The h at which the local slope, seen from the short steps, passes from 1 to 2."""
    middle = (log_h[1:] + log_h[:-1]) / 2
    if local[-1] > BETWEEN:
        return 0.0
    above = np.flatnonzero(local > BETWEEN)
    if not len(above):
        return math.inf
    i = int(above[-1])
    share = (local[i] - BETWEEN) / (local[i] - local[i + 1])
    return float(np.exp(middle[i] + share * (middle[i + 1] - middle[i])))
