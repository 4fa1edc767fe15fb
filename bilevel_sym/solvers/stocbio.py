"""Algorithm 3: StocBiO, with or without iNEON."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.estimators.batches import Batch, BatchOracle, BatchSession, Data
from bilevel_sym.estimators.checks import count, settle_counts, settle_positive
from bilevel_sym.estimators.hypergradient import AID, Estimate, Exact, with_failures
from bilevel_sym.estimators.linear_system import neumann_series
from bilevel_sym.estimators.oracle import fill, in_lanes
from bilevel_sym.estimators.row_batches import Group
from bilevel_sym.kernels import Kernels
from bilevel_sym.kernels.choice import can_compile
from bilevel_sym.problem.problem import BilevelProblem, StochasticProblem
from bilevel_sym.solvers.algorithm import Ensemble, Move, Run
from bilevel_sym.solvers.auto import MAX_INNER_STEPS, practical
from bilevel_sym.solvers.ineon import INeon, require_escape
from bilevel_sym.solvers.local_minimum import confirm
from bilevel_sym.solvers.perturbed import STATIONARY_SHARE, norms
from bilevel_sym.typing import Floats

__all__ = ["MAX_BATCH", "StocBiO", "neumann_batch_sizes"]

FEW_ROWS = 2000  # data that are cheaper to take whole than to draw from
MAX_BATCH, LEAST_BATCH = 10**9, 64
MAX_SESSIONS = 16  # for so many sizes of batches


def neumann_batch_sizes(B: float, Q: int, eta_neumann: float, mu: float) -> tuple[int, ...]:
    """The theorem's batches for the Neumann series, in the order in which they are applied: B Q (1 - eta mu)^(j-1).

    The first is applied to the gradient and matters most; each is rounded up.

    - ``B``: the theorem's B.
    - ``Q``: products of the series.
    - ``eta_neumann``: the step of the series.
    - ``mu``: the strong convexity of g in y.

    Paper: Theorem 4.5 [thm:stocneon]

    >>> neumann_batch_sizes(10, 3, 0.5, 1.0)
    (30, 15, 8)
    """
    return tuple(max(1, math.ceil(B * Q * (1 - eta_neumann * mu) ** j)) for j in range(Q))


@dataclass(frozen=True)
class StocBiO:
    """StocBiO: D steps of stochastic gradients (size alpha, batches of S) for y, a stochastic Neumann series with Q
    products for v, and x_(k+1) = x_k - beta grad_phi_hat(x_k). For a StochasticProblem; batches are data rows.

    With an escape, batches D_F and D_G of batch_f and batch_g rows are drawn and frozen at each point that descent has
    reached; where their own hypergradient (by the escape's estimator) is at most 4/5 of eps, iNEON searches f_D, g_D: x
    moves along what it finds, and where it finds nothing the trajectory ends.

    - ``D``: stochastic gradient steps for y.
    - ``Q``: products of the Neumann series.
    - ``S``: rows in the batch of a step of y.
    - ``alpha``: the step size of y.
    - ``beta``: the step size of x.
    - ``eta_neumann``: the step of the series.
    - ``batch_f``: rows of xi in the batch of a hypergradient.
    - ``batch_g``: rows of zeta in it.
    - ``escape``: an INeon, or None.
    - ``eps``: the accuracy asked for, where there is an escape.
    - ``neumann_batches``: the sizes of the Q batches of the series in the order in which they are applied (see
      ``neumann_batch_sizes``), or one size for all; batch_g unless given.
    - ``as_printed``: follow the printed lines; see below.
    - ``replacement``: whether a row may come up twice in a batch. The lemmas need independent rows, and so the default;
      without, no row is drawn twice, a batch is still unbiased, and one as large as the data is the data.

    Paper: Algorithm 3 [alg:INEONstocbio], Equation 4.7 [est-vq], Equation 4.8 [estG]
    Paper: Algorithm 3, step 6 [unlabelled:algorithm-3-step-6]
    Paper: Algorithm 3, step 10 [unlabelled:algorithm-3-step-10]
    Deviation: the step of the series is eta_neumann, not the outer eta of the print. D_F and D_G are drawn anew for the
    check, because the lemmas about them are for a point that does not depend on them. The escape step carries the
    factor 1/iota that the lemma's decrease needs and the print lacks, and takes the side with the lower phi_hat on
    the frozen batch (the lemma's expectation is over a random sign). ``as_printed=True`` checks x_k with the D_F and
    D_G of the step that led to it, from the y and v of that step, and nothing is drawn; it takes sqrt(eps/rho_phi)/80
    with a random sign, and makes no check at x_0. Where the print leaves a point by an escape, the estimate of the next
    step has been made there already; it is counted, and not used.

    >>> from bilevel_sym import solve, zoo
    >>> problem = zoo.get("stochastic_noise").problem
    >>> algorithm = StocBiO(D=5, Q=5, S=8, alpha=0.2, beta=0.02, eta_neumann=0.2, batch_f=8, batch_g=8)
    >>> solve(problem, algorithm, [0.5, 0.5], steps=5, rng=0).status
    <Status.OUT_OF_STEPS: 5>
    """

    D: int
    Q: int
    S: int
    alpha: float
    beta: float
    eta_neumann: float
    batch_f: int
    batch_g: int
    escape: INeon | None = None
    eps: float | None = None
    neumann_batches: tuple[int, ...] | int | None = None
    as_printed: bool = False
    replacement: bool = True

    def __post_init__(self) -> None:
        settle_counts(self, "D", "S", "batch_f", "batch_g")
        settle_counts(self, "Q", least=0)
        settle_positive(self, "alpha", "beta", "eta_neumann")
        require_escape(self.escape)
        if self.eps is None and self.escape is not None:
            object.__setattr__(self, "eps", self.escape.eps)
        settle_positive(self, "eps", optional=True)
        self._check_batches()

    def _check_batches(self) -> None:
        given = self.batch_g if self.neumann_batches is None else self.neumann_batches
        sizes = (given,) * self.Q if isinstance(given, int) else tuple(given)
        if len(sizes) != self.Q:
            raise InvalidArgument(f"neumann_batches has {len(sizes)} sizes, but Q = {self.Q} are needed")
        for size in sizes:
            count("neumann_batches", size)
        object.__setattr__(self, "neumann_batches", sizes)

    @classmethod
    def auto(
        cls, problem: StochasticProblem, smoothness: Any = None, *, batch: int | None = None, **options: Any
    ) -> StocBiO:
        """Practical parameters for the mean problem, and iNEON to escape by; nothing is proved.

        - ``problem``: the problem.
        - ``smoothness``: L_phi and rho_phi, as ``verify.smoothness`` has them; by default they are sampled.
        - ``batch``: rows in a batch. By default (10/eps)^2, whose mean is off by about eps/10: where the data are few
          that costs no more than the data themselves.
        - ``options``: those of ``Perturbed.auto``.

        >>> from bilevel_sym import zoo
        >>> StocBiO.auto(zoo.get("stochastic_noise").problem, batch=16).S
        16
        """
        if not isinstance(problem, StochasticProblem):
            raise InvalidArgument("StocBiO is for stochastic problems", hint="Perturbed.auto(problem)")
        p = practical(problem, smoothness, **options)
        escape = INeon.of(p)
        if isinstance(escape.estimator, Exact):  # which has no meaning on a batch
            escape = replace(escape, estimator=AID(MAX_INNER_STEPS, problem.n, 1 / p.ell))
        steps = min(math.ceil(3 * p.ell / p.mu), MAX_INNER_STEPS)
        if batch is None:
            few = max(problem.row_counts) <= FEW_ROWS
            batch = min(math.ceil((10 / p.eps) ** 2), MAX_BATCH) if few else LEAST_BATCH
        return cls(steps, steps, batch, 1 / p.ell, p.eta / 4, 1 / p.ell, batch, batch, escape=escape)

    @property
    def sizes(self) -> tuple[int, ...]:
        """The batches of the Neumann series, in the order in which they are applied."""
        sizes = self.neumann_batches
        return sizes if isinstance(sizes, tuple) else ()

    @property
    def rho_phi(self) -> float | None:
        """The Lipschitz constant of Hess Phi that the escape knows, if any."""
        return None if self.escape is None else self.escape.rho_phi

    @property
    def escape_step(self) -> float:
        """How far an escape moves: half of what iNEON allows, as a batch's curvature is off by up to half of it."""
        if self.escape is None:
            return math.nan
        if self.as_printed:
            ratio = self.escape.region if self.rho_phi is None else math.sqrt(self.escape.eps / self.rho_phi)
            return ratio / 80
        return self.escape.escape_step / 2 if self.escape.step is None else self.escape.step

    def start(self, problem: BilevelProblem, kernels: Kernels) -> Run:
        """Set to work on a stochastic problem."""
        if not isinstance(problem, StochasticProblem):
            raise InvalidArgument(
                "StocBiO is for stochastic problems", hint="StochasticProblem(F, G, x, y, xi, zeta, ...)"
            )
        if self.escape is not None:
            self.escape.estimator.check(problem)
            if isinstance(self.escape.estimator, Exact):
                raise InvalidArgument("an escape on batches cannot be Exact()", hint="AID(D, N, tau) in the escape")
        return _StocBiORun(self, Data(problem, compiled=_compiles(problem, kernels)), kernels)


class _Left(NamedTuple):
    """What a check begins with: D_F and D_G of one trajectory, and y and v, (n, 1)."""

    batch_f: Batch
    batch_g: Batch
    y: Floats
    v: Floats


_Found: TypeAlias = tuple[tuple[Batch, Batch], Floats, Floats, Floats, Floats]  # D_F and D_G, grad, y, v, phi


class _StocBiORun:
    """``ensemble.clock`` is 0 after an escape: the next point is reached by descent before it is looked at again."""

    def __init__(self, algorithm: StocBiO, data: Data, kernels: Kernels) -> None:
        self._algorithm, self._data, self._kernels = algorithm, data, kernels
        self.is_compiled = data.is_compiled  # other bits: a checkpoint says so
        self.clock = 0 if algorithm.as_printed else 1
        self._before: dict[int, _Left] = {}  # what the step to where a trajectory stands left behind, and
        self._now: dict[int, _Left] = {}  # what the step from there will leave
        self._sessions: dict[object, BatchSession] = {}
        a = algorithm
        self._asked = (("g", (a.S,) * a.D), ("f", (a.batch_f,)), ("g", (a.batch_g,)), ("g", a.sizes))

    def memory(self, size: int) -> dict[str, NDArray[Any]]:
        """As printed, what the last step has left behind: its batches, y and v."""
        if not self._leaves:
            return {}
        n, told = self._data.problem.n, dict[str, NDArray[Any]]()
        told["left"] = np.zeros(size, dtype=np.bool_)
        told |= {name: np.full((size, n), np.nan) for name in ("y", "v")}
        for function, asked in (("f", self._algorithm.batch_f), ("g", self._algorithm.batch_g)):
            rows = self._data.rows_of(function, asked)
            told[f"rows_{function}"] = np.full((size, rows), -1, dtype=np.int64)
            told[f"weights_{function}"] = np.full((size, rows), np.nan)
        for member, left in self._now.items():
            told["left"][member], told["y"][member], told["v"][member] = True, left.y[:, 0], left.v[:, 0]
            for function, batch in (("f", left.batch_f), ("g", left.batch_g)):
                told[f"rows_{function}"][member], told[f"weights_{function}"][member] = (
                    batch.picked[0],
                    batch.weights[0],
                )
        return told

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Have left that behind."""
        if not self._leaves:
            return
        for member in np.flatnonzero(memory["left"]).tolist():
            here = slice(member, member + 1)
            f, g = (Batch(memory[f"rows_{name}"][here], memory[f"weights_{name}"][here]) for name in "fg")
            self._now[member] = _Left(f, g, memory["y"][here].T.copy(), memory["v"][here].T.copy())

    @property
    def _leaves(self) -> bool:
        return self._algorithm.as_printed and self._algorithm.escape is not None

    # ---- the stochastic hypergradient ---------------------------------------------------------------------

    def estimate(self, ensemble: Ensemble) -> Estimate:
        a = self._algorithm
        streams = [ensemble.streams[member] for member in ensemble.active]
        if self._data.problem.is_array:
            drawn = self._data.in_turn(streams, self._asked, replacement=a.replacement)
            (f, g), grad, y, v, phi = self._by_rows(ensemble, *drawn)
        else:
            draws = [self._data.draws(name, streams, sizes, replacement=a.replacement) for name, sizes in self._asked]
            (f, g), grad, y, v, phi = self._in_lanes(ensemble.x, ensemble.y, *draws)
        if self._leaves:
            own = (slice(lane, lane + 1) for lane in range(ensemble.size))
            left = (_Left(f.of(k), g.of(k), y[:, k].copy(), v[:, k].copy()) for k in own)
            self._before, self._now = self._now, dict(zip(ensemble.active.tolist(), left, strict=True))
        calls = {"G_f": 2 * a.batch_f, "G_g": a.D * a.S, "JV_g": a.batch_g, "HV_g": sum(a.sizes)}
        return with_failures(ensemble.x, Estimate(grad, phi, y, v, np.zeros(len(phi), dtype=np.int8), calls))

    def _by_rows(
        self,
        ensemble: Ensemble,
        steps: Iterator[Group],
        of_f: Iterator[Group],
        of_g: Iterator[Group],
        terms: Iterator[Group],
    ) -> _Found:
        """What batches of rows of arrays say, to be taken in turn: those of y, of f, of g_xy and of the series."""
        a, rows, d, n = self._algorithm, self._data.arrays, len(ensemble.x), len(ensemble.y)
        points = np.concatenate([ensemble.x, ensemble.y])[:, : ensemble.size].T.copy()
        rows.descend(points, steps, a.alpha)
        batch_f, batch_g = next(of_f), next(of_g)
        phi, f_x, f_y = rows.upper(points, batch_f)
        v = rows.neumann_series(points, f_y, terms, a.eta_neumann)
        grad = f_x - rows.mixed_product(points, v, batch_g)
        found = in_lanes(np.concatenate([grad, points[:, d:], v, phi], axis=1))
        f, g = (Batch(picked[0], weights) for picked, weights in (batch_f, batch_g))
        return (f, g), found[:d], found[d : d + n], found[d + n : -1], found[-1]

    def _in_lanes(
        self,
        x: Floats,
        y: Floats,
        steps: Iterator[Batch],
        of_f: Iterator[Batch],
        of_g: Iterator[Batch],
        terms: Iterator[Batch],
    ) -> _Found:
        """The same where data are numbers."""
        a, lanes = self._algorithm, x.shape[1]
        y = self._descended(x, y.copy(), steps)
        f, g = next(of_f), next(of_g)
        session = self._session(("f", "f_x", "f_y", "g_xy_v"), lanes, f=f, g=g)
        fill(session, x, y)
        session.perform(0)

        def product(vector: Floats) -> Floats:
            session = self._session(("g_yy_v",), lanes, g=next(terms))
            fill(session, x, y)
            session.perform(0)
            session.inputs(1)[:] = vector
            session.perform(1)
            return session.rows("g_yy_v")

        v = neumann_series(product, session.rows("f_y"), a.eta_neumann, a.Q)  # each product has a batch of its own
        session.inputs(1)[:] = v
        session.perform(1)
        return (f, g), session.rows("f_x") - session.rows("g_xy_v"), y, v, session.rows("f")[0]

    def _draw(self, function: str, streams: list[np.random.Generator], size: int) -> Batch:
        return self._data.draw(function, streams, size, replacement=self._algorithm.replacement)

    def _session(self, names: tuple[str, ...], lanes: int, **batches: Batch) -> BatchSession:
        """A session for these batches: that of others of the same size again, if there is one."""
        key = (names, lanes, *(batch.weights.shape for batch in batches.values()))
        if key in self._sessions:
            for function, batch in batches.items():
                self._sessions[key].reload(function, batch)
        else:
            if len(self._sessions) >= MAX_SESSIONS:
                self._sessions.clear()
            self._sessions[key] = BatchSession(self._data, names, lanes, batches)
        return self._sessions[key]

    def _descended(self, x: Floats, y: Floats, batches: Iterator[Batch]) -> Floats:
        for batch in batches:
            session = self._session(("g_y",), x.shape[1], g=batch)
            fill(session, x, y)
            session.perform(0)
            y -= self._algorithm.alpha * session.rows("g_y")
        return y

    # ---- descent and escape -------------------------------------------------------------------------------

    def move(self, ensemble: Ensemble, estimate: Estimate) -> Move:
        a = self._algorithm
        x = ensemble.x - a.beta * estimate.grad
        if a.escape is None and a.eps is None:
            return Move.to(x)
        lanes = x.shape[1]
        moved, finished = np.zeros(lanes, dtype=np.bool_), np.zeros(lanes, dtype=np.int8)
        calls = {name: np.zeros(lanes, dtype=np.int64) for name in ("G_f", "G_g", "JV_g", "HV_g")}
        if a.escape is not None:
            for lane in np.flatnonzero(ensemble.clock[: ensemble.size] > 0):
                self._look(ensemble, int(lane), x, moved, finished, calls)
        ensemble.clock = np.where(moved, 0, 1)
        move = Move(x, moved, finished, calls)
        if a.eps is not None:
            confirm(self._kernels, ensemble, move, a.eps, a.rho_phi)
        return move

    def _look(
        self,
        ensemble: Ensemble,
        lane: int,
        x: Floats,
        moved: Any,
        finished: Any,
        calls: Mapping[str, NDArray[np.int64]],
    ) -> None:
        """Freeze batches for one trajectory; where their hypergradient is small, let iNEON search."""
        a, data = self._algorithm, self._data
        if a.escape is None or a.eps is None:
            return
        left = self._frozen(ensemble, lane)
        oracle = BatchOracle(data, left.batch_f, left.batch_g)
        points = [np.repeat(part, oracle.width, axis=1) for part in (ensemble.x[:, [lane]], left.y, left.v)]
        here = a.escape.estimator.in_lanes(oracle, *points)
        _add(calls, lane, here.calls, a)
        if here.failed[0]:
            finished[lane] = here.failed[0]
        if here.failed[0] or not norms(here.grad)[0] <= STATIONARY_SHARE * a.eps:
            return
        alone = Ensemble(ensemble.active[[lane]], points[0], here.y, here.v, ensemble.clock[:1], ensemble.streams)
        only = np.zeros(oracle.width, dtype=np.bool_)
        only[0] = True
        escape = replace(a.escape, step=a.escape_step, as_printed=a.as_printed)
        move = escape.escape(oracle, alone, None if a.as_printed else here, points[0].copy(), only)
        _add(calls, lane, {name: np.asarray(c)[0] for name, c in move.calls.items()}, a)
        x[:, lane], moved[lane], finished[lane] = move.x[:, 0], move.perturbed[0], move.finished[0]

    def _frozen(self, ensemble: Ensemble, lane: int) -> _Left:
        """The batches for the check of one trajectory, and where it begins: new ones, or as printed those of before."""
        a, member, here = self._algorithm, int(ensemble.active[lane]), slice(lane, lane + 1)
        if a.as_printed:
            return self._before[member]
        stream = [ensemble.streams[member]]
        batch_f, batch_g = self._draw("f", stream, a.batch_f), self._draw("g", stream, a.batch_g)
        return _Left(batch_f, batch_g, ensemble.y[:, here], ensemble.v[:, here])


def _compiles(problem: StochasticProblem, kernels: Kernels) -> bool:
    """Whether batches of rows of arrays are gone through in compiled code."""
    if not problem.is_array or kernels.backend not in ("auto", "compiled") or not can_compile(kernels.backend):
        return False
    from bilevel_sym.arithmetic.compiled.rows import walk
    from bilevel_sym.kernels.compilation import make_ready

    if not walk.overloads:  # looking in the cache takes as long as a step
        make_ready()
    return True


def _add(calls: Mapping[str, NDArray[np.int64]], lane: int, more: Mapping[str, Any], a: StocBiO) -> None:
    """An oracle call on a batch is one call for each of its rows."""
    for name, number in more.items():
        calls[name][lane] += int(np.ravel(number)[0]) * (a.batch_f if name == "G_f" else a.batch_g)
