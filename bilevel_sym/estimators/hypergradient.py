"""Estimates of the hypergradient: everything that wears a hat.

An estimator is a frozen set of parameters. It works on lanes (``bilevel_sym.estimators.oracle``): x is (d, lanes), y
and v are (n, lanes), and carries y and v from one call to the next (warm start).
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise
from typing import Any, NamedTuple, TypeAlias, cast

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bilevel_sym.arithmetic.linear_algebra import NotPositiveDefinite
from bilevel_sym.errors import InvalidArgument, KernelError, LinearSystemFailure, LowerLevelFailure
from bilevel_sym.estimators.checks import settle_counts, settle_positive
from bilevel_sym.estimators.linear_system import Product, Solved, conjugate_gradients, neumann_series
from bilevel_sym.estimators.oracle import SYSTEM, ExactOracle, Oracle, fill, in_lanes, out_of_lanes
from bilevel_sym.estimators.status import Status
from bilevel_sym.implicit import second_order as implicit
from bilevel_sym.implicit.engine import Lanes, copies_of_the_first, in_halves
from bilevel_sym.kernels import Counts, compile_kernels
from bilevel_sym.kernels.arguments import joined
from bilevel_sym.problem.problem import BilevelProblem, MinimaxProblem
from bilevel_sym.typing import Floats, Indices

__all__ = [
    "AID",
    "ITD",
    "Calls",
    "Codes",
    "Estimate",
    "Estimator",
    "Exact",
    "GDmax",
    "Hypergradient",
    "ImplicitEstimator",
    "Neumann",
    "require_estimator",
    "with_failures",
]

Codes: TypeAlias = NDArray[np.int8]
Calls: TypeAlias = Mapping[str, Any]  # name of a counter -> a number, or one per lane


class Estimate(NamedTuple):
    """What an estimator returns, lanes last.

    - ``grad``: the hypergradient, (d, lanes).
    - ``phi``: the value of f at the estimate, (lanes,).
    - ``y``: the lower-level estimate, (n, lanes).
    - ``v``: the solution of the linear system, (n, lanes).
    - ``failed``: a Status for each lane, RUNNING where all is well.
    - ``calls``: how often each oracle was asked.

    >>> nothing, lane = np.zeros((1, 1)), np.zeros(1)
    >>> Estimate(nothing, lane, nothing, nothing, lane.astype(np.int8), {"G_f": 2}).calls
    {'G_f': 2}
    """

    grad: Floats
    phi: Floats
    y: Floats
    v: Floats
    failed: Codes
    calls: Calls


@dataclass(frozen=True)
class Hypergradient:
    """An estimate at some points, batches leading: what ``Estimator.estimate`` returns.

    - ``grad_phi_hat``: the hypergradient.
    - ``phi_hat``: f(x, y_D).
    - ``y_D``: the last iterate of the lower level, a good start for the next point.
    - ``v_N``: the last iterate of the linear system, likewise.
    - ``counters``: how often each oracle was asked.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> found = AID(D=3, N=1, tau=0.5).estimate(problem, [1.0])
    >>> found.grad_phi_hat, found.y_D, found.counters
    (array([1.875]), array([0.875]), Counts(G_f=2, G_g=3, JV_g=1, HV_g=2))
    """

    grad_phi_hat: Floats
    phi_hat: Floats
    y_D: Floats
    v_N: Floats
    counters: Counts


class Estimator(ABC):
    """The common part of AID, ITD, Neumann, GDmax and Exact: frozen parameters, and ``estimate``.

    >>> all(issubclass(kind, Estimator) for kind in (AID, ITD, Neumann, GDmax, Exact))
    True
    """

    def estimate(
        self, problem: BilevelProblem, x: ArrayLike, *, y0: ArrayLike | None = None, v0: ArrayLike | None = None
    ) -> Hypergradient:
        """The estimate at some points.

        - ``problem``: the problem.
        - ``x``: the points, (..., d).
        - ``y0``: where the lower level begins, (n,) or (..., n); zero unless given.
        - ``v0``: where the linear system begins, likewise.

        >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
        >>> AID(D=1, N=1, tau=1.0).estimate(problem, [3.0]).grad_phi_hat  # Phi = x^2
        array([6.])
        """
        d, n = problem.d, problem.n
        self.check(problem)
        starts = {"y0": y0, "v0": v0}
        given, shape = joined(
            {"x": (x, problem.x_entries), **{k: (a, problem.y_entries) for k, a in starts.items() if a is not None}}
        )
        size = len(given)
        columns = iter(np.split(given[:, d:], max(1, (given.shape[1] - d) // n), axis=1))
        y, v = (np.zeros((size, n)) if a is None else next(columns) for a in starts.values())
        if not size:
            empty = np.zeros((*shape, d)), np.zeros(shape), np.zeros((*shape, n)), np.zeros((*shape, n))
            return Hypergradient(*empty, Counts())
        kernels = compile_kernels(problem)
        oracle = ExactOracle(kernels if shape else kernels.for_one_trajectory)
        found = self.in_lanes(oracle, *(in_lanes(part) for part in (given[:, :d], y, v)))
        self._raise(found, given[:, :d], shape)
        counters = Counts()
        counters.add(
            shape, **{k: np.broadcast_to(c, found.phi.shape)[:size].reshape(shape) for k, c in found.calls.items()}
        )
        grad, y, v = (out_of_lanes(part, size) for part in (found.grad, found.y, found.v))
        if kernels.kinks is not None:
            xy = np.concatenate([given[:, :d], y], axis=1)
            kernels.kinks.refuse("the hypergradient", implicit.GRADIENT, xy, shape)
        grad, y, v = (part.reshape((*shape, -1)) for part in (grad, y, v))
        return Hypergradient(grad, found.phi[:size].reshape(shape), y, v, counters)

    def _raise(self, found: Estimate, x: Floats, shape: tuple[int, ...]) -> None:
        bad = np.flatnonzero(found.failed[: len(x)])
        if len(bad):
            k = int(bad[0])
            member = f"member {tuple(map(int, np.unravel_index(k, shape)))} of the batch, " if shape else ""
            status = Status(int(found.failed[k]))
            raise LinearSystemFailure(
                f"{status.message}: {member}at x = {x[k].tolist()}",
                hint="a point where g is strongly convex in y, or a smaller tau",
            )

    def check(self, problem: BilevelProblem) -> None:  # noqa: B027 - most estimators take any problem
        """Refuse a problem for which the estimator makes no sense."""

    def in_lanes(self, oracle: Oracle, x: Floats, y: Floats, v: Floats) -> Estimate:
        """The estimate in every lane, chunk by chunk. Lanes that overflow are marked, not warned about.

        - ``oracle``: what may be asked of the problem.
        - ``x``: the points, (d, lanes).
        - ``y``: where the lower level begins, (n, lanes).
        - ``v``: where the linear system begins, (n, lanes).
        """
        with np.errstate(all="ignore"):
            return self._in_chunks(oracle, x, y, v)

    def _in_chunks(self, oracle: Oracle, x: Floats, y: Floats, v: Floats) -> Estimate:
        lanes, width = x.shape[1], oracle.width
        bounds = [*range(0, lanes, width), lanes]
        if len(bounds) == 2:
            return with_failures(x, self._chunk(oracle, x, y, v, slice(0, lanes)))
        parts = [
            with_failures(x[:, a:b], self._chunk(oracle, x[:, a:b], y[:, a:b], v[:, a:b], slice(a, b)))
            for a, b in pairwise(bounds)
        ]
        calls = {
            name: np.concatenate([np.broadcast_to(p.calls[name], p.phi.shape) for p in parts])
            for name in parts[0].calls
        }
        arrays: list[Any] = [np.concatenate([part[k] for part in parts], axis=-1) for k in range(5)]
        return Estimate._make([*arrays, calls])

    @abstractmethod
    def _chunk(self, oracle: Oracle, x: Floats, y: Floats, v: Floats, lanes: slice) -> Estimate:
        """The estimate in some lanes that fit the cache together."""

    def longer(self) -> Estimator:
        """With one more step of the lower level, as Algorithm 1's loop from 0 to D is printed."""
        return self


def require_estimator(value: object) -> None:
    """Refuse what is not an estimator, with a hint."""
    if not isinstance(value, Estimator):
        raise InvalidArgument(
            f"estimator must be AID, ITD, Neumann, GDmax or Exact, but is {value!r}", hint="AID(D=10, N=5, tau=0.1)"
        )


def with_failures(x: Floats, found: Estimate) -> Estimate:
    """Mark the lanes in which something is not finite; an infinite x can hide behind a bounded function."""
    # sums are finite only if everything is (or overflow, which is then looked at)
    parts = (x, found.grad, found.y, found.v)
    if math.isfinite(sum([np.add.reduce(part, axis=None) for part in (*parts, found.phi)])):
        return found
    total = found.phi + sum(np.add.reduce(np.abs(part)) for part in parts)
    for k in np.flatnonzero(~np.isfinite(total)):
        values = np.concatenate([x[:, k], found.grad[:, k], found.y[:, k], found.v[:, k], found.phi[k : k + 1]])
        if not np.isfinite(values).all() and not found.failed[k]:
            found.failed[k] = Status.NOT_FINITE
    return found


def _descended(oracle: Oracle, x: Floats, y: Floats, lanes: slice, steps: int, tau: float) -> Floats:
    """``steps`` gradient steps on the lower level from y."""
    session = oracle.session(("g_y",), lanes)
    fill(session, x, y)
    moving = session.inputs(0)[len(x) : len(x) + len(y)]
    for _ in range(steps):
        session.perform(0)
        moving -= tau * session.rows("g_y")
    return moving.copy()


def _product(session: Lanes, name: str) -> Callable[[Floats], Floats]:
    def product(vector: Floats) -> Floats:
        session.inputs(1)[:] = vector
        session.perform(1)
        return session.rows(name)

    return product


def _at(session: Lanes, x: Floats, y: Floats) -> Lanes:
    """The session with everything that (x, y) decides."""
    fill(session, x, y)
    session.perform(0)
    return session


def _implicit_part(oracle: Oracle, x: Floats, y: Floats, v: Floats, lanes: slice) -> Floats:
    """g_xy v."""
    return _product(_at(oracle.session(("g_xy_v",), lanes), x, y), "g_xy_v")(v)


class _WithLowerLevel(Estimator):
    """Estimators that take D gradient steps of size tau on the lower level first."""

    D: int
    tau: float

    def __post_init__(self) -> None:
        settle_counts(self, "D")
        settle_positive(self, "tau")

    @property
    @abstractmethod
    def cost(self) -> Mapping[str, int]:
        """Oracle calls of one estimate: always the same."""

    def longer(self) -> Estimator:
        """With D + 1 steps, as Algorithm 1's loop from 0 to D is printed."""
        longer: Estimator = replace(self, D=self.D + 1)  # type: ignore[type-var]
        return longer


class ImplicitEstimator(_WithLowerLevel):
    """D gradient steps for y, then grad_phi_hat = f_x - g_xy v with v close to g_yy^-1 f_y: what AID and Neumann share.

    A child is a frozen dataclass with the fields D and tau and its own. ``solve_system`` says how it finds v, and
    ``cost`` what an estimate costs.

    >>> @dataclass(frozen=True)
    ... class Identity(ImplicitEstimator):
    ...     "Takes g_yy for the identity."
    ...     D: int
    ...     tau: float
    ...     cost = {"G_f": 2, "G_g": 1, "JV_g": 1}
    ...     def solve_system(self, product, f_y, v):
    ...         return Solved.sound(f_y)
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> Identity(D=1, tau=1.0).estimate(problem, [3.0]).grad_phi_hat  # Phi = x^2, and g_yy is the identity
    array([6.])
    """

    @abstractmethod
    def solve_system(self, product: Product, f_y: Floats, v: Floats) -> Solved:
        """v of shape (n, lanes) from the start ``v``; ``product(u)`` is g_yy u, one system per lane.

        A lane must not depend on its neighbours, nor on how many they are: elementwise operations and sums over the
        first axis are safe, matrix products over the lanes are not.
        """

    def _chunk(self, oracle: Oracle, x: Floats, y: Floats, v: Floats, lanes: slice) -> Estimate:
        y = _descended(oracle, x, y, lanes, self.D, self.tau)
        session = _at(oracle.session(SYSTEM, lanes), x, y)
        f, f_x, f_y = session.rows("f")[0].copy(), session.rows("f_x").copy(), session.rows("f_y").copy()
        v, broken = self._solved(self.solve_system(_product(session, "g_yy_v"), f_y, v), f_y.shape)
        grad = f_x - _implicit_part(oracle, x, y, v, lanes)
        failed = np.where(broken, np.int8(Status.BREAKDOWN), np.int8(0))
        return Estimate(grad, f, y, v, failed, self.cost)

    def _solved(self, found: object, shape: tuple[int, ...]) -> Solved:
        """What a user's ``solve_system`` returned, refused unless it is what was asked for."""
        if isinstance(found, Solved) and np.shape(found.v) == shape:
            return found
        what = f"v of shape {np.shape(found.v)}" if isinstance(found, Solved) else f"a {type(found).__name__}"
        raise InvalidArgument(
            f"{type(self).__name__}.solve_system returned {what}, but v of shape {shape} in a Solved is expected",
            hint="return Solved.sound(v)",
        )


@dataclass(frozen=True)
class AID(ImplicitEstimator):
    """Approximate implicit differentiation: D gradient steps for y, N conjugate gradient steps for v, both warm.

    grad_phi_hat = f_x(x, y^D) - g_xy(x, y^D) v^N, where v^N approximates g_yy^-1 f_y at (x, y^D). ``tau`` is the step
    of the gradient descent on g: it converges for tau < 2/ell, and the theory takes 1/ell.

    Paper: Equation 2.1 [eq:aid-step1], Equation 2.2 [eq:aid-step2], Algorithm 1, step 9 [unlabelled:algorithm-1-step-9]
    Deviation: the print counts t = 0, ..., D from y^-1; D steps from y^0 are meant, and taken.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> AID(D=3, N=1, tau=0.5).estimate(problem, [1.0], y0=[0.0]).y_D
    array([0.875])
    """

    D: int
    N: int
    tau: float

    def __post_init__(self) -> None:
        super().__post_init__()
        settle_counts(self, "N")

    def solve_system(self, product: Product, f_y: Floats, v: Floats) -> Solved:
        """N steps of conjugate gradients from v."""
        return conjugate_gradients(product, f_y, v, self.N)

    @property
    def cost(self) -> Mapping[str, int]:
        """D gradients of g; f_x and f_y; N + 1 products with g_yy (one for the first residual); one with g_xy."""
        return {"G_f": 2, "G_g": self.D, "JV_g": 1, "HV_g": self.N + 1}


@dataclass(frozen=True)
class ITD(_WithLowerLevel):
    """Iterative differentiation: the exact derivative of f(x, y^D(x)) through D gradient steps from y^0 held fixed.

    With p^D = f_y(x, y^D) and p^t = (I - tau g_yy(x, y^t)) p^(t+1):
    grad_phi_hat = f_x(x, y^D) - tau * the sum of g_xy(x, y^t) p^(t+1) over t = 0, ..., D - 1. ``tau`` is the step of
    the gradient descent on g: below 2/ell.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> ITD(D=1, tau=0.5).estimate(problem, [1.0]).grad_phi_hat  # of x * (x/2)
    array([1.])
    """

    D: int
    tau: float

    def _chunk(self, oracle: Oracle, x: Floats, y: Floats, v: Floats, lanes: slice) -> Estimate:
        session = oracle.session(("f", "f_x", "f_y", "g_y", "g_yy_v", "g_xy_v"), lanes)
        path = [y]
        for _ in range(self.D):
            path.append(path[-1] - self.tau * _at(session, x, path[-1]).rows("g_y"))
        _at(session, x, path[-1])
        f, grad, p = session.rows("f")[0].copy(), session.rows("f_x").copy(), session.rows("f_y").copy()
        for earlier in reversed(path[:-1]):
            image = _product(_at(session, x, earlier), "g_yy_v")(p)
            grad -= self.tau * session.rows("g_xy_v")
            p = p - self.tau * image
        failed = np.zeros(f.shape, dtype=np.int8)
        return Estimate(grad, f, path[-1], v, failed, self.cost)

    @property
    def cost(self) -> Mapping[str, int]:
        """D gradients and D products of each kind."""
        return {"G_f": 2, "G_g": self.D, "JV_g": self.D, "HV_g": self.D}


@dataclass(frozen=True)
class Neumann(ImplicitEstimator):
    """The Neumann series in place of conjugate gradients: v = eta_neumann * sum of (I - eta_neumann g_yy)^q f_y.

    - ``Q``: products with g_yy: the sum runs over q = 0, ..., Q.
    - ``eta_neumann``: the step of the series.
    - ``D``: gradient steps of y before it.
    - ``tau``: their size; eta_neumann unless given.

    Paper: Equation 4.7 [est-vq], Equation 4.8 [estG]
    Deviation: the print writes eta, the outer step, for the step of the series, which must be below 2/ell; 1/ell
    is usual.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> Neumann(Q=0, eta_neumann=0.5, D=1, tau=1.0).estimate(problem, [1.0]).v_N
    array([0.5])
    """

    Q: int
    eta_neumann: float
    D: int = 10
    tau: float = None  # type: ignore[assignment]  # the same as eta_neumann unless given

    def __post_init__(self) -> None:
        if cast("float | None", self.tau) is None:
            object.__setattr__(self, "tau", self.eta_neumann)
        super().__post_init__()
        settle_counts(self, "Q", least=0)
        settle_positive(self, "eta_neumann")

    def solve_system(self, product: Product, f_y: Floats, v: Floats) -> Solved:
        """Q + 1 terms of the series; the start v is not used."""
        return Solved.sound(neumann_series(product, f_y, self.eta_neumann, self.Q))

    @property
    def cost(self) -> Mapping[str, int]:
        """D gradients of g; f_x and f_y; Q products with g_yy; one with g_xy."""
        return {"G_f": 2, "G_g": self.D, "JV_g": 1, "HV_g": self.Q}


@dataclass(frozen=True)
class GDmax(_WithLowerLevel):
    """For minimax problems: D steps of gradient ascent for y, then grad_phi_hat = f_x(x, y^D).

    ``tau`` is the step of the ascent: below 2/ell. Gradients in y are gradients of f here, and counted as such.

    Paper: Algorithm 1, step 9 [unlabelled:algorithm-1-step-9]

    >>> problem = MinimaxProblem("x*y - y**2/2", "x", "y")
    >>> GDmax(D=1, tau=1.0).estimate(problem, [3.0]).grad_phi_hat  # Phi = x^2/2
    array([3.])
    """

    D: int
    tau: float

    def check(self, problem: BilevelProblem) -> None:
        """GDmax drops the implicit term, which is right only where f_y vanishes at y*."""
        if not isinstance(problem, MinimaxProblem):
            raise InvalidArgument("GDmax is for minimax problems", hint="AID(D, N, tau) for bilevel problems")

    def _chunk(self, oracle: Oracle, x: Floats, y: Floats, v: Floats, lanes: slice) -> Estimate:
        y = _descended(oracle, x, y, lanes, self.D, self.tau)
        session = _at(oracle.session(("f", "f_x"), lanes), x, y)
        f, f_x = session.rows("f")[0].copy(), session.rows("f_x").copy()
        return Estimate(f_x, f, y, v, np.zeros(f.shape, dtype=np.int8), self.cost)

    @property
    def cost(self) -> Mapping[str, int]:
        """D gradients in y and one in x, all of f."""
        return {"G_f": self.D + 1}


@dataclass(frozen=True)
class Exact(Estimator):
    """No estimate: y* by Newton's method to round-off, the linear system by Cholesky.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> Exact().estimate(problem, [3.0]).grad_phi_hat
    array([6.])
    """

    def _chunk(self, oracle: Oracle, x: Floats, y: Floats, v: Floats, lanes: slice) -> Estimate:
        if not isinstance(oracle, ExactOracle):
            raise InvalidArgument("Exact() needs f and g themselves, not batches", hint="AID(D, N, tau) inside StocBiO")
        engine, n = oracle.engine, len(y)
        size = x.shape[1]
        calls: dict[str, Any] = {"G_f": 2, "JV_g": n} | {k: np.zeros(size, dtype=np.int64) for k in ("G_g", "HV_g")}
        failed = np.zeros(size, dtype=np.int8)
        result = Estimate(np.full(x.shape, np.nan), np.full(size, np.nan), y.copy(), v, failed, calls)

        def attempt(members: Indices) -> None:
            solution = engine.lower_level(x.T[members], y.T[members])
            xy = np.concatenate([x.T[members], solution.y], axis=1)
            try:
                phi, grad = engine.gradient(xy)
            except NotPositiveDefinite as error:
                if len(members) == 1 and np.isnan(error.eigenvalues).all():
                    return  # not the lower level's fault, something overflows: NaN stays, and is with_failures as such
                raise
            result.grad[:, members], result.phi[members], result.y[:, members] = grad.T, phi, solution.y.T
            calls["G_g"][members] = solution.evaluations
            calls["HV_g"][members] = solution.products + n

        filling = copies_of_the_first(np.concatenate([x, y]).T)
        own = np.flatnonzero(~filling)
        lost = in_halves(own, attempt, LowerLevelFailure, NotPositiveDefinite, KernelError)
        failed[lost] = Status.LOWER_LEVEL_FAILURE
        for part in (result.grad, result.y, result.phi, failed, calls["G_g"], calls["HV_g"]):
            part[..., filling] = part[..., :1]
        return result
