"""Algorithm 2, iNEON: a direction of negative curvature at a point, from noise and differences of hypergradients."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike

from bilevel_sym.errors import InvalidArgument, KernelError, LinearSystemFailure
from bilevel_sym.estimators.checks import settle_positive, settle_rounded_up
from bilevel_sym.estimators.hypergradient import Calls, Codes, Estimate, Estimator, require_estimator
from bilevel_sym.estimators.linear_system import dots
from bilevel_sym.estimators.oracle import ExactOracle, Oracle, filled
from bilevel_sym.estimators.status import Status
from bilevel_sym.kernels import compile_kernels
from bilevel_sym.kernels.arguments import joined
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers import noise
from bilevel_sym.solvers.algorithm import Ensemble, Flags, Move
from bilevel_sym.solvers.auto import Practical, practical
from bilevel_sym.solvers.noise import Seeds, seeds_for
from bilevel_sym.typing import Floats, Indices

__all__ = ["INeon", "require_escape"]

FOUND_SHARE = 11519 / 12800  # the part of F_escape by which the test of step 15 must fall


class _Found(NamedTuple):
    """u (d, lanes), of norm 1 or 0; failures; the oracle calls of each lane."""

    u: Floats
    failed: Codes
    calls: Calls


@dataclass(frozen=True)
class INeon:
    """iNEON: u_0 uniform in the ball of radius eta r, then T_escape steps of
    u <- u - eta (grad_phi_hat(x + u) - grad_phi_hat(x)), an inexact power method for I - eta Hess Phi(x).

    As soon as phi_hat(x + u) - phi_hat(x) - grad_phi_hat(x)^T u <= -(11519/12800) F_escape, u/|u| is returned: a
    direction of curvature at most -sqrt(rho_phi eps)/(40 iota). If that never happens, 0 is.

    As the escape of ``Descent`` or ``StocBiO``, x moves by ``step`` along u or -u, whichever has the lower phi_hat.

    - ``estimator``: of the hypergradient.
    - ``eta``: the step of the power method; 1/L_phi is safe.
    - ``eps``: the accuracy asked for.
    - ``r``: the radius of the first perturbation, before its factor eta.
    - ``T_escape``: steps of the power method.
    - ``F_escape``: the decrease by which negative curvature is told.
    - ``rho_phi``: the Lipschitz constant of Hess Phi, if known.
    - ``step``: how far x moves. The lemma allows its curvature over rho_phi, which in its parameters is
      sqrt(eps/rho_phi)/(40 iota) = sqrt(eta T_escape F_escape)/4; that is the default.
    - ``as_printed``: follow the printed lines; see below.

    Paper: Algorithm 2 [alg:iNEON], Lemma 4.1 [lem:neon]
    Paper: Algorithm 2, step 14 [unlabelled:algorithm-2-step-14]
    Paper: Algorithm 2, step 15 [unlabelled:algorithm-2-step-15]
    Deviation: T_escape steps, as the lemma has, and y and v are carried on from the estimate at x. ``as_printed=True``
    takes T_escape + 1 steps (k = 0, ..., T) and D + 1 lower-level steps (t = 0, ..., D), begins at x + u_0 from y_0 and
    v_0 once more, as at x, and draws the sign of the escape step.

    >>> from bilevel_sym import AID, zoo
    >>> saddle = zoo.get("saddle", d=2).problem
    >>> neon = INeon(AID(D=5, N=2, tau=0.5), eta=0.1, eps=0.1, r=0.1, T_escape=80, F_escape=1e-4)
    >>> u = neon.direction(saddle, [0.0, 0.0], rng=0)
    >>> float(u @ saddle.kernels.hess_phi([0.0, 0.0]) @ u) < 0
    True
    """

    estimator: Estimator
    eta: float
    eps: float
    r: float
    T_escape: int
    F_escape: float
    rho_phi: float | None = None
    step: float | None = None
    as_printed: bool = False

    def __post_init__(self) -> None:
        require_estimator(self.estimator)
        settle_positive(self, "eta", "eps", "r", "F_escape")
        settle_positive(self, "rho_phi", "step", optional=True)
        settle_rounded_up(self, "T_escape")

    @classmethod
    def auto(cls, problem: BilevelProblem, smoothness: Any = None, **options: Any) -> INeon:
        """Practical parameters for a problem; see ``Perturbed.auto``.

        >>> from bilevel_sym import zoo
        >>> INeon.auto(zoo.get("saddle", d=2).problem, eps=0.01).eps
        0.01
        """
        return cls.of(practical(problem, smoothness, **options))

    @classmethod
    def of(cls, p: Practical) -> INeon:
        """The practical parameters themselves, for those who have them already."""
        return cls(p.estimator, p.eta, p.eps, p.r, p.T_escape, p.F_escape, p.known_rho_phi)

    @property
    def escape_step(self) -> float:
        """How far x moves along u."""
        return math.sqrt(self.eta * self.T_escape * self.F_escape) / 4 if self.step is None else self.step

    @property
    def region(self) -> float:
        """sqrt(eps/rho_phi), as the lemma's T_escape and F_escape imply it."""
        time = self.eta * self.T_escape
        iota = math.sqrt(math.sqrt(4 * time * self.eps**2 / (25 * self.F_escape)))
        return 4 * time * self.eps / iota

    def direction(
        self, problem: BilevelProblem, x: ArrayLike, *, y0: ArrayLike | None = None, rng: Seeds = None
    ) -> Floats:
        """A unit vector (d,) of negative curvature of Phi at x, or zeros.

        - ``problem``: the problem.
        - ``x``: the point, (d,).
        - ``y0``: where the lower level begins, (n,); zero unless given.
        - ``rng``: a seed or a generator.
        """
        self.estimator.check(problem)
        d, n = problem.d, problem.n
        point, shape = joined({"x": (x, problem.x_entries)} | ({} if y0 is None else {"y0": (y0, problem.y_entries)}))
        if shape:
            raise KernelError(f"x has shape {(*shape, d)}, but one point of shape ({d},) is expected")
        seed = seeds_for(rng, 1)[0]
        start = point[:, d:] if y0 is not None else np.zeros((1, n))
        ensemble = Ensemble.gather(point[:, :d], start, np.zeros_like(start), 0, [np.random.default_rng(seed)])
        found = self.search(ExactOracle(compile_kernels(problem).for_one_trajectory), ensemble, np.array([0]))
        if found.failed[0]:
            raise LinearSystemFailure(Status(int(found.failed[0])).message, hint="a smaller tau, eta or r")
        return np.ascontiguousarray(found.u[:, 0])

    # ---- in lanes ---------------------------------------------------------------------------------------

    def search(self, oracle: Oracle, ensemble: Ensemble, lanes: Indices, here: Estimate | None = None) -> _Found:
        """iNEON for some lanes of an ensemble, from their y and v.

        - ``oracle``: what may be asked of the problem.
        - ``ensemble``: the trajectories that are running.
        - ``lanes``: those to search at.
        - ``here``: the estimate at x, if it is known.
        """
        estimator = self.estimator.longer() if self.as_printed else self.estimator
        size, chosen = len(lanes), filled(lanes)
        width = len(chosen)
        x, y, v = (np.ascontiguousarray(part[:, chosen]) for part in (ensemble.x, ensemble.y, ensemble.v))
        if here is None:
            base = estimator.in_lanes(oracle, x, y, v)
            if not self.as_printed:  # the print begins at k = 0 from y_0 again
                y, v = base.y, base.v
            calls = _more({}, np.arange(width), base, width)
            slope, level, failed = base.grad, base.phi, base.failed.copy()
        else:
            slope, level, failed = here.grad[:, chosen], here.phi[chosen], np.zeros(width, dtype=np.int8)
            calls = {}
        u, result = self._noise(ensemble, lanes, x.shape), np.zeros_like(x)
        going = np.flatnonzero(failed[:size] == 0)
        for k in range(self.T_escape + (2 if self.as_printed else 1)):
            if not len(going):
                break
            pick = filled(going)
            there = estimator.in_lanes(oracle, *(np.ascontiguousarray(a[:, pick]) for a in (x + u, y, v)))
            calls = _more(calls, going, there, width)
            y[:, pick], v[:, pick] = there.y, there.v
            failed[going] = there.failed[: len(going)]
            fall = there.phi - level[pick] - dots(slope[:, pick], u[:, pick])
            found = ((fall <= -FOUND_SHARE * self.F_escape) & (k > 0))[: len(going)]
            for lane in going[found]:
                result[:, lane] = u[:, lane] / math.sqrt(float(u[:, lane] @ u[:, lane]))
            u[:, pick] -= self.eta * (there.grad - slope[:, pick])
            going = going[~found & (failed[going] == 0)]
        return _Found(result[:, :size], failed[:size], {name: c[:size] for name, c in calls.items()})

    def _noise(self, ensemble: Ensemble, lanes: Indices, shape: tuple[int, ...]) -> Floats:
        """u_0 of each lane, from its trajectory's own stream."""
        u = np.zeros(shape)
        for k, member in enumerate(ensemble.active[lanes]):
            u[:, k] = noise.uniform_in_ball(ensemble.streams[member], len(u), self.eta * self.r)
        u[:, len(lanes) :] = u[:, :1]
        return u

    def escape(self, oracle: Oracle, ensemble: Ensemble, estimate: Estimate | None, x: Floats, flat: Flags) -> Move:
        """Where the flat lanes of an ensemble go. Without negative curvature, a lane is finished.

        - ``oracle``: what may be asked of the problem.
        - ``ensemble``: the trajectories that are running.
        - ``estimate``: that at x, if it is known.
        - ``x``: where the other lanes go, (d, lanes).
        - ``flat``: the lanes to escape from.
        """
        finished = np.zeros(x.shape[1], dtype=np.int8)
        lanes = np.flatnonzero(flat)
        if not len(lanes):
            return Move(x, flat, finished, {})
        found = self.search(oracle, ensemble, lanes, estimate)
        here = np.linalg.norm(found.u, axis=0) == 0
        finished[lanes[here]] = Status.LOCAL_MINIMUM
        finished[lanes] = np.where(found.failed != 0, found.failed, finished[lanes])
        spent = _more({}, lanes, found, x.shape[1])
        moving = np.flatnonzero(~here & (found.failed == 0))
        if len(moving):
            signs, looks = self._signs(oracle, ensemble, lanes[moving], found.u[:, moving])
            for look in looks:
                spent = _more(spent, lanes[moving], look, x.shape[1])
            x[:, lanes[moving]] = ensemble.x[:, lanes[moving]] + signs * self.escape_step * found.u[:, moving]
        moved = flat.copy()
        moved[lanes[here | (found.failed != 0)]] = False
        return Move(x, moved, finished, spent)

    def _signs(self, oracle: Oracle, ensemble: Ensemble, lanes: Indices, u: Floats) -> tuple[Floats, list[Estimate]]:
        """+1 or -1 for each lane: the side with the lower phi_hat, or a coin; and the estimates that this took."""
        if self.as_printed:
            coins = [ensemble.streams[member].integers(2) for member in ensemble.active[lanes]]
            return 2.0 * np.array(coins) - 1.0, []
        size, pick = len(lanes), filled(lanes)
        ahead = self.escape_step * u[:, filled(np.arange(size))]
        x, y, v = (np.ascontiguousarray(part[:, pick]) for part in (ensemble.x, ensemble.y, ensemble.v))
        looks = [self.estimator.in_lanes(oracle, x + sign * ahead, y, v) for sign in (1, -1)]
        plus, minus = (look.phi[:size] for look in looks)
        # where only one side exists, that side
        return np.where((plus <= minus) | np.isnan(minus), 1.0, -1.0), looks


def require_escape(value: object) -> None:
    """Refuse as an escape what is neither iNEON nor nothing."""
    if value is not None and not isinstance(value, INeon):
        raise InvalidArgument(f"escape must be an INeon, but is {value!r}")


def _more(calls: Calls, lanes: Indices, found: Any, width: int) -> Calls:
    """The calls so far, and those of an estimate in some lanes of ``width``."""
    total = dict(calls)
    for name, number in found.calls.items():
        each = np.zeros(width, dtype=np.int64)
        each[lanes] = np.broadcast_to(number, max(len(lanes), np.size(number)))[: len(lanes)]
        total[name] = total.get(name, 0) + each
    return total
