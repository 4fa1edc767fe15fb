"""What the solvers are timed on: three problems, each for this toolkit, in JAX, and with gradients worked out by hand.

The parameters are such that trajectories stay bounded and meet a perturbation about every T_escape iterations.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Any, ClassVar, Protocol

import numpy as np
from scipy.special import expit

from benchmarks.case import Scalar
from benchmarks.families import Logistic, SparseQuartic
from bilevel_sym import AID, BilevelProblem, Perturbed, zoo
from bilevel_sym.typing import Floats

__all__ = ["CASES", "ByHand", "Setting", "SolverCase", "TubeByHand"]


@dataclass(frozen=True)
class Setting:
    """The parameters of perturbed AID."""

    D: int
    N: int
    tau: float
    eta: float
    eps: float
    r: float
    T_escape: int = 50

    def algorithm(self, eps: float) -> Perturbed:
        """As this toolkit calls it, to another accuracy; a tiny one switches perturbations off."""
        return Perturbed(AID(self.D, self.N, self.tau), self.eta, eps, self.r, self.T_escape)


class ByHand(Protocol):
    """A problem as a careful person writes it in NumPy for one trajectory: nothing is computed twice."""

    def at(self, x: Floats) -> None:
        """Compute what depends on x alone."""

    def g_y(self, y: Floats) -> Floats:
        """The gradient of the lower level."""

    def upper(self, y: Floats) -> tuple[float, Floats | float, Floats]:
        """f, f_x and f_y; prepares the products at y."""

    def g_yy_v(self, v: Floats) -> Floats:
        """The Hessian-vector product."""

    def g_xy_v(self, v: Floats) -> Floats:
        """The Jacobian-vector product."""


class SolverCase:
    """A problem with its setting. ``sparse`` chooses the targets.

    ``unroll``: whether the loops over D and N are written out in JAX; where there are two answers, both are tried.
    """

    name: ClassVar[str]
    title: ClassVar[str]
    setting: ClassVar[Setting]
    sparse: ClassVar[bool] = True
    unroll: ClassVar[tuple[bool, ...]] = (False,)
    spread: ClassVar[float] = 1.0  # agreement is checked from points this many times as far out as the starts
    d: ClassVar[int] = 20
    n: ClassVar[int] = 20

    def problem(self) -> BilevelProblem:
        """For this toolkit."""
        raise NotImplementedError

    def jax(self) -> tuple[Scalar, Scalar]:
        """f and g as JAX functions."""
        raise NotImplementedError

    def by_hand(self) -> ByHand:
        """For a loop in NumPy."""
        raise NotImplementedError

    def starts(self, count: int) -> Floats:
        """Where ``count`` trajectories start."""
        return np.random.default_rng([self.d, self.n]).uniform(-0.5, 0.5, (count, self.d))


# ---- the tube ------------------------------------------------------------------------------------------------

TAU = math.e
NU = 25 * TAU**2 / 3  # for L = gamma = 1, as everything below


class Tube(SolverCase):
    """``zoo.get("tube", d=20)``: T_1 = |x|² + U_1 with U_i = A_i − x_i² + S_i U_{i+1}, A and S even and piecewise."""

    name = "tube"
    title = "tube, d = 20, n = 1"
    setting = Setting(D=1, N=1, tau=0.05, eta=0.05, eps=1.0, r=10.0)
    unroll = (False, True)
    spread = 250.0  # all pieces take part
    n = 1

    def problem(self) -> BilevelProblem:
        """From the zoo."""
        return zoo.get("tube", d=self.d).problem

    def starts(self, count: int) -> Floats:
        """Around the first saddle point."""
        return super().starts(count) / 10

    def jax(self) -> tuple[Scalar, Scalar]:
        """U as a sum of products: up to twice as fast as the recursion in d steps."""
        import jax.numpy as jnp

        def tube(x: Any) -> Any:
            c = jnp.abs(x)
            u = jnp.clip((c - TAU) / TAU, 0, 1)
            step = u * u * u * (10 + u * (6 * u - 15))
            t = c - TAU
            ramp = -c * c + t * t * t * (t / TAU - 4 / 3) / TAU
            own = jnp.where(c <= TAU, -c * c, jnp.where(c <= 2 * TAU, ramp, (c - 4 * TAU) ** 2 - NU)) - x * x
            return jnp.sum(x * x) + own[0] + jnp.dot(own[1:], jnp.cumprod(step[:-1]))

        def f(x: Any, y: Any) -> Any:
            return y[0]

        def g(x: Any, y: Any) -> Any:
            return y[0] * y[0] / 2 - tube(x) * y[0]

        return f, g

    def by_hand(self) -> ByHand:
        """T_1 and its gradient together, once for each x."""
        return TubeByHand()


class TubeByHand:
    """f = y, g = y²/2 − T(x) y."""

    def at(self, x: Floats) -> None:
        """T and its gradient: the pieces vectorised, the recursion in floats."""
        c = np.abs(x)
        t = c - TAU
        u = np.minimum(np.maximum(t / TAU, 0.0), 1.0)
        step, slope = u**3 * (10 + u * (6 * u - 15)), (30 / TAU) * (u * (1 - u)) ** 2
        ramp, ramp_slope = t**3 * (t / TAU - 4 / 3) / TAU, t**2 * (4 * t / TAU - 4) / TAU
        bowl, square = c - 4 * TAU, x * x
        inside, outside = c <= TAU, c > 2 * TAU
        own = np.where(outside, bowl * bowl - NU - square, np.where(inside, 0.0, ramp) - 2 * square)
        own_slope = np.where(outside, 2 * bowl - 2 * c, np.where(inside, 0.0, ramp_slope) - 4 * c)
        below, passed = 0.0, 1.0
        belows, factors = [], []
        for w, s in zip(reversed(own.tolist()), reversed(step.tolist()), strict=True):
            belows.append(below)
            below = w + s * below
        for s in step.tolist():
            factors.append(passed)
            passed *= s
        self.value = float(square.sum()) + below
        self.gradient = 2 * x + np.sign(x) * np.array(factors) * (own_slope + slope * np.array(belows[::-1]))

    def g_y(self, y: Floats) -> Floats:
        """Of y²/2 − T y."""
        return y - self.value

    def upper(self, y: Floats) -> tuple[float, Floats | float, Floats]:
        """Of y."""
        return float(y[0]), 0.0, np.ones(1)

    def g_yy_v(self, v: Floats) -> Floats:
        """The identity."""
        return v

    def g_xy_v(self, v: Floats) -> Floats:
        """−T' v."""
        result: Floats = self.gradient * -v[0]
        return result


# ---- a sparse quartic ------------------------------------------------------------------------------------------


class Quartic(SolverCase):
    """``benchmarks.families.SparseQuartic``; f is not bounded below, so that eta is small."""

    name = "quartic"
    title = "sparse quartic, d = n = 20"
    setting = Setting(D=10, N=5, tau=0.1, eta=0.001, eps=2.0, r=1.0)

    def __init__(self) -> None:
        self._family = SparseQuartic(self.n)

    def problem(self) -> BilevelProblem:
        """From the family."""
        return self._family.problem()

    def jax(self) -> tuple[Scalar, Scalar]:
        """From the family."""
        return self._family.jax()

    def by_hand(self) -> ByHand:
        """Neighbours on the ring by index."""
        return QuarticByHand(self._family)


class QuarticByHand:
    """Each variable meets its neighbours on a ring only."""

    def __init__(self, family: SparseQuartic) -> None:
        self._f = family
        self._next, self._last = np.roll(np.arange(family.n), -1), np.roll(np.arange(family.n), 1)
        self._b_last, self._e_last = family.b[self._last], family.e[self._last]
        self._q_last, self._s_last = family.q[self._last], family.s[self._last]
        self._3a = 3 * family.a

    def at(self, x: Floats) -> None:
        """What is linear in y for this x."""
        f = self._f
        self._x, self._x_next = x, x[self._next]
        self._weight, self._pull = 4 + x * x, f.c * x + f.e * self._x_next

    def g_y(self, y: Floats) -> Floats:
        """a y³ + (4 + x²) y + b y_next + (b y)_last − c x − e x_next."""
        f = self._f
        result: Floats = (
            (f.a * y * y + self._weight) * y + f.b * y[self._next] + self._b_last * y[self._last] - self._pull
        )
        return result

    def upper(self, y: Floats) -> tuple[float, Floats | float, Floats]:
        """f, f_x, f_y and the diagonals of g_yy and g_xy."""
        f, x, x_next, y_next = self._f, self._x, self._x_next, y[self._next]
        xy, yy, well = x * y, y * y, x * x - 1
        xy_last, cubic = xy[self._last], f.r * yy * y
        value = float((f.p * well) @ well / 4 + cubic @ y / 4 + xy @ (f.q * y_next + f.s * x_next))
        f_x = f.p * x * well + y * (f.q * y_next + f.s * x_next) + self._s_last * xy_last
        f_y = f.q * x * y_next + self._q_last * xy_last + cubic + f.s * x * x_next
        self._diagonal, self._mixed = self._3a * yy + self._weight, 2 * xy - f.c
        return value, f_x, f_y

    def g_yy_v(self, v: Floats) -> Floats:
        """Three diagonals."""
        result: Floats = self._diagonal * v + self._f.b * v[self._next] + self._b_last * v[self._last]
        return result

    def g_xy_v(self, v: Floats) -> Floats:
        """Two diagonals."""
        result: Floats = self._mixed * v - self._e_last * v[self._last]
        return result


# ---- logistic regression ---------------------------------------------------------------------------------------


class LogisticRegression(SolverCase):
    """``benchmarks.families.Logistic``: 30 rows, a penalty for each weight."""

    name = "logistic"
    title = "logistic, 30 rows, d = n = 20"
    setting = Setting(D=10, N=5, tau=0.02, eta=0.01, eps=3.0, r=1.0)
    sparse = False
    unroll = (False, True)

    def __init__(self) -> None:
        self._family = Logistic(self.n)

    def problem(self) -> BilevelProblem:
        """From the family."""
        return self._family.problem()

    def jax(self) -> tuple[Scalar, Scalar]:
        """From the family."""
        return self._family.jax()

    def by_hand(self) -> ByHand:
        """Two matrix-vector products for each gradient."""
        return LogisticByHand(self._family)


class LogisticByHand:
    """softplus' is SciPy's expit."""

    def __init__(self, family: Logistic) -> None:
        self._a, self._b = family.a, family.b
        self._at, self._bt = np.ascontiguousarray(family.a.T), np.ascontiguousarray(family.b.T)

    def at(self, x: Floats) -> None:
        """The penalties."""
        self._penalty = np.exp(x)

    def g_y(self, y: Floats) -> Floats:
        """Aᵀ expit(A y) + exp(x) y."""
        result: Floats = self._at @ expit(self._a @ y) + self._penalty * y
        return result

    def upper(self, y: Floats) -> tuple[float, Floats | float, Floats]:
        """Σ softplus(B y); the weights of the rows in g_yy."""
        z, s = self._b @ y, expit(self._a @ y)
        self._rows, self._mixed = s * (1 - s), self._penalty * y
        return float(np.logaddexp(0, z).sum()), 0.0, self._bt @ expit(z)

    def g_yy_v(self, v: Floats) -> Floats:
        """Aᵀ (rows · A v) + exp(x) v."""
        result: Floats = self._at @ (self._rows * (self._a @ v)) + self._penalty * v
        return result

    def g_xy_v(self, v: Floats) -> Floats:
        """exp(x) y v."""
        return self._mixed * v


CASES: Mapping[str, type[SolverCase]] = MappingProxyType({c.name: c for c in (Tube, Quartic, LogisticRegression)})
