"""The lemma on escaping saddle points: two coupled sequences, the width of the stuck region, and the probability.

The lemma takes L_phi and rho_phi for Lipschitz constants of grad Phi and Hess Phi, and its proof uses nothing else of
them. Here they are the certified ones over the box, far below the formulas in mu, ell, rho, nu and M, so that an escape
takes hundreds of steps and not millions. Estimates err by all that the lemma allows, against the escape.
"""

from __future__ import annotations

import math
import time
from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.box import Box
from bilevel_sym.constants import Constants, Variant
from bilevel_sym.errors import BilevelError
from bilevel_sym.hypergradient import Exact
from bilevel_sym.schedules.aid import perturbed_accuracy
from bilevel_sym.schedules.escape import NEON, PERTURBED, Escape, Pace, escape_of
from bilevel_sym.schedules.goal import Goal, Smoothness
from bilevel_sym.solvers.noise import uniform_in_ball
from bilevel_sym.ties import in_order
from verify.enclosures.interval_matrix import Floats
from verify.measures.regions import regions
from verify.measures.runs import UNIT, compared
from verify.registry import NotApplicable, claim
from verify.statistics import judged_probability
from verify.study import Study
from verify.verdict import CheckResult, inconclusive, judged

__all__ = ["Saddle", "easiest_saddle", "escape_saddle", "rounding_of_phi", "stuck_probability"]

DELTA = 0.1
RUNS, PAIRS, GRID = 200, 16, 40
SECONDS = 1.5  # for all the descents of one saddle
PARTS = (1 / 16, 1 / 200)  # of the box's width, for the half width of a smaller box about a saddle point
MOST_SADDLES, FEW_STEPS = 3, 400
STRICT = 0.99  # of the largest eps for which the curvature is negative enough


@dataclass(frozen=True, eq=False)
class Saddle:
    """A point of negative curvature with the parameters of an escape from it."""

    x: Floats
    hessian: Floats
    direction: Floats
    curvature: float
    smooth: Smoothness
    goal: Goal
    escape: Escape
    lower: Floats
    upper: Floats

    region: str

    @property
    def accuracy(self) -> float:
        """The error that estimates may have."""
        return perturbed_accuracy(self.goal, self.escape)

    @property
    def omega(self) -> float:
        """The width of the stuck region over eta: 2^(2 - iota) L_phi S.

        Paper: Formula [unlabelled:stuck-region]; Claim [unlabelled:stuck-width]
        """
        return float(2.0 ** (2 - self.escape.iota) * self.smooth.L_phi * self.escape.S_escape)

    def __str__(self) -> str:
        e = self.escape
        return (
            f"eps = {self.goal.eps:.3g}, iota = {e.iota:.3g}, T = {e.T_escape}, F = {e.F_escape:.3g}, "
            f"L_phi = {self.smooth.L_phi:.3g} and rho_phi = {self.smooth.rho_phi:.3g} certified over {self.region}"
        )


def easiest_saddle(study: Study, pace: Pace = PERTURBED) -> Saddle:
    """The stationary point with negative curvature, and the box about it, from which an escape takes fewest steps.

    A smaller box has smaller Lipschitz constants, and a descent that falls by 2 F has not gone far. Raises
    ``NotApplicable`` where there is no such point, and what kept the search or the constants from being certified.
    """
    found = study.stationary
    chosen = [point for point in found.points if point.kind in ("saddle", "local maximum")]
    if not chosen:
        if not found.complete:
            raise BilevelError("no saddle point was found, and the search of the box is not complete")
        raise NotApplicable("Phi has no stationary point with negative curvature in the box")
    made: list[Saddle] = []
    first: BilevelError | None = None
    found_at = [tuple(float(v) for v in point.x) for point in chosen]
    places = [found_at[k] for k in in_order([_curvature(study, x) for x in found_at])]
    for part in (None, *PARTS):
        for x in places[: MOST_SADDLES if part is None else 1]:
            try:
                made.append(_saddle(study, x, part, pace))
            except BilevelError as error:
                first = first or error
        if any(saddle.escape.T_escape <= FEW_STEPS for saddle in made):
            break
    if not made:
        raise first or BilevelError("no saddle point could be studied")
    return min(made, key=lambda saddle: saddle.escape.T_escape)


def _curvature(study: Study, x: tuple[float, ...]) -> float:
    return float(np.linalg.eigvalsh(study.kernels.hess_phi(np.array(x)))[0])


Certified = tuple[Floats, Floats, float, float]


@lru_cache(32)
def _kept(study: Study, x: tuple[float, ...], part: float | None) -> Certified | BilevelError:
    """What was certified, or what kept it from being: several claims ask."""
    try:
        return _certified(study, x, part)
    except BilevelError as error:
        return error


def _certified(study: Study, x: tuple[float, ...], part: float | None) -> Certified:
    """The box, and certified Lipschitz constants of grad Phi and Hess Phi over it."""
    low, high = study.x_ends
    if part is None:
        smooth = study.smoothness
    else:
        from verify.phi_smoothness import smoothness

        reach = part * (high - low)
        low, high = np.maximum(low, np.array(x) - reach), np.minimum(high, np.array(x) + reach)
        ends = {s.name: (float(a), float(b)) for s, a, b in zip(study.exact.x, low, high, strict=True)}
        box = Box({name: ends.get(name, tuple(end)) for name, end in study.box.items()})
        smooth = smoothness(study.exact, box, seconds=min(0.6, max(0.2, study.left / 20)))
    L_phi, rho_phi = float(smooth.L_phi.upper), float(smooth.rho_phi.upper)
    if not (0 < L_phi < math.inf and rho_phi < math.inf):
        raise BilevelError("no Lipschitz constants of grad Phi and Hess Phi are certified about the saddle point")
    return low, high, L_phi, rho_phi


def _saddle(study: Study, point: tuple[float, ...], part: float | None, pace: Pace) -> Saddle:
    kept = _kept(study, point, part)
    if isinstance(kept, BilevelError):
        raise kept
    low, high, L_phi, rho_phi = kept
    x = np.array(point)
    hessian = study.kernels.hess_phi(x)
    values, vectors = np.linalg.eigh(hessian)
    curvature = float(values[0])
    # of a nearly constant Hessian any larger number is a Lipschitz constant; this one makes S a part of the box
    smooth = Smoothness(L_phi, max(rho_phi, -curvature / (40 * float((high - low).min()))))
    eps = STRICT * curvature**2 / smooth.rho_phi
    goal = Goal(eps=eps, delta=DELTA, d=study.exact.d, initial_error=0.0, gap=1.0, episodes=1)
    name = "the box" if part is None else f"{2 * part:.2g} of its width"
    return Saddle(x, hessian, vectors[:, 0], curvature, smooth, goal, escape_of(smooth, goal, pace), low, high, name)


@claim(
    "lem:escapesaddle",
    also=("eq:phi-dec", "eq:phi-dec-highprob-main-body", "unlabelled:stuck-width", "unlabelled:coupled-sequences"),
)
def escape_saddle(study: Study) -> Iterator[CheckResult]:
    """After a random perturbation of a saddle point, T steps lower Phi by F/2 with probability 1 - delta.

    coupling: of two starts that differ by eta r_0 e_1 with r_0 > omega, one falls by F; stuck width: the starts on a
    line along e_1 that do not fall by F span at most eta omega; probability: Phi(x_T) - Phi(x) <= -F/2 but for delta

    Paper: Lemma 2.9 [lem:escapesaddle]; Equation B.35 [eq:phi-dec]
    Paper: Equation 2.7 [eq:phi-dec-highprob-main-body]
    Assumes: L_phi and rho_phi are Lipschitz constants over the box, in which the descents stay; lambda_min at most
    -sqrt(rho_phi eps); estimates that err by at most what eq:error-required allows.
    Deviation: T is rounded up.

    >>> escape_saddle.citation
    'Lemma 2.9 [lem:escapesaddle]'
    """
    saddle = easiest_saddle(study)
    if saddle.escape.straightforward:
        raise NotApplicable("L_phi < sqrt(rho_phi eps): there is nothing to escape from")
    return _escapes(study, saddle)


def _escapes(study: Study, saddle: Saddle) -> Iterator[CheckResult]:
    label, e = "lem:escapesaddle", saddle.escape
    noise = rounding_of_phi(study, saddle.x) + 1e-12 * e.F_escape
    pairs, line, cloud = _pairs(study, saddle), _line(saddle), _cloud(study, saddle)
    falls = descended(study, saddle, np.concatenate([*pairs, line, cloud]))
    if falls is None or e.F_escape < 16 * noise:
        reason = "F is below rounding" if falls is not None else f"{e.T_escape} steps take longer than {SECONDS} s"
        yield inconclusive(label, f"{reason}; {saddle}", variant=study.variant)
        return
    first, second, along, random = np.split(falls, np.cumsum([PAIRS, PAIRS, len(line)]))
    yield compared(
        label, study, np.full(PAIRS, e.F_escape), np.maximum(first, second), noise, part="coupling",
        at=np.broadcast_to(saddle.x, (PAIRS, len(saddle.x))),
        message=f"F against the larger fall of two sequences, {PAIRS} pairs; {saddle}",
    )  # fmt: skip
    yield _width(study, saddle, along < e.F_escape - noise)
    risen = study.kernels.phi(cloud) - float(study.kernels.phi(saddle.x))
    failures = int((random - risen < e.F_escape / 2 - noise).sum())
    yield judged_probability(
        label, failures, RUNS, DELTA, message=str(saddle), seed=study.seed, variant=study.variant, part="probability"
    )


def _width(study: Study, saddle: Saddle, stuck: NDArray[np.bool_]) -> CheckResult:
    """The span of the stuck starts on the line: up to the next start on either side, so not too small."""
    offsets, most = _offsets(saddle), saddle.escape.eta * saddle.omega
    free = offsets[~stuck & (offsets > 0)], -offsets[~stuck & (offsets < 0)]
    held = offsets[stuck & (offsets > 0)], -offsets[stuck & (offsets < 0)]
    sides = [_beyond(out, inner, most) for out, inner in zip(free, held, strict=True)]
    return judged(
        "lem:escapesaddle", sum(sides), most, evidence="sampled", n_points=len(offsets), seed=study.seed,
        variant=study.variant, part="stuck width", worst_point=study.named(saddle.x),
        noise=UNIT * float(np.abs(saddle.x).max()),
        message=f"starts on a line along e_1 that do not fall by F; {saddle}",
    )  # fmt: skip


def _beyond(free: Floats, stuck: Floats, most: float) -> float:
    """The smallest distance from which on nothing on this side is stuck."""
    last = float(stuck.max()) if len(stuck) else 0.0
    return float(min((s for s in free if s > last), default=2 * most))


def rounding_of_phi(study: Study, x: Floats) -> float:
    """How far float64 may move a difference of values of Phi near x.

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> rounding_of_phi(study_of(zoo.get("scalar").problem), np.array([0.5])) < 1e-14
    True
    """
    c = study.kernels
    y = c.y_star(x)
    size = abs(float(c.phi(x))) + float(np.abs(c.f_x(x, y)) @ np.abs(x)) + float(np.abs(c.f_y(x, y)) @ np.abs(y))
    return 16 * UNIT * size


def descended(study: Study, saddle: Saddle, x: Floats) -> Floats | None:
    """How far Phi falls from each start within T steps along estimates that err against the escape.

    Once it has fallen by 2 F a descent is over: by the descent lemma it cannot rise by more than T eta accuracy^2
    again. A descent that would leave the box stops at its last point inside. None where the time is up.
    """
    e, error, began = saddle.escape, saddle.accuracy, time.perf_counter()
    low, high = saddle.lower, saddle.upper
    here = Exact().estimate(study.exact, x, y0=np.broadcast_to(study.kernels.y_star(saddle.x), (len(x), study.exact.n)))
    start, falls, going = here.phi_hat, np.zeros(len(x)), np.arange(len(x))
    y, grad = here.y_D, here.grad_phi_hat
    for _ in range(e.T_escape):
        side = np.sign((x[going] - saddle.x) @ saddle.direction)
        after = x[going] - e.eta * (grad + error * side[:, None] * saddle.direction)
        inside = ((after >= low) & (after <= high)).all(axis=1)
        going, y = going[inside], y[inside]
        if not len(going):
            break
        x[going] = after[inside]
        here = Exact().estimate(study.exact, x[going], y0=y)
        falls[going] = start[going] - here.phi_hat
        more = falls[going] < 2 * e.F_escape
        going, y, grad = going[more], here.y_D[more], here.grad_phi_hat[more]
        if not len(going):
            break
        if time.perf_counter() - began > SECONDS:
            return None
    return falls


def _pairs(study: Study, saddle: Saddle) -> tuple[Floats, Floats]:
    """Starts in the perturbation ball that differ by a little more than eta omega along e_1."""
    rng, d = study.rng("coupling"), len(saddle.x)
    half = 0.5005 * saddle.escape.eta * saddle.omega
    radius = math.sqrt(max(0.0, (saddle.escape.eta * saddle.escape.r) ** 2 - half**2))
    shifts = np.array([uniform_in_ball(rng, d, radius) for _ in range(PAIRS)])
    shifts -= np.outer(shifts @ saddle.direction, saddle.direction)
    shifts[0] = 0.0
    middle = saddle.x + shifts
    return middle + half * saddle.direction, middle - half * saddle.direction


def _offsets(saddle: Saddle) -> Floats:
    """Where on the line along e_1 descents start: 0, and both sides from eta omega down to a millionth of it."""
    side = saddle.escape.eta * saddle.omega * 2.0 ** (-np.arange(GRID) / 2)
    return np.concatenate([-side, [0.0], side])


def _line(saddle: Saddle) -> Floats:
    return np.asarray(saddle.x + np.outer(_offsets(saddle), saddle.direction))


def _cloud(study: Study, saddle: Saddle) -> Floats:
    """Starts uniform in the perturbation ball."""
    rng, d = study.rng("escape"), len(saddle.x)
    points = [uniform_in_ball(rng, d, saddle.escape.eta * saddle.escape.r) for _ in range(RUNS)]
    return np.asarray(saddle.x + np.array(points))


# ---- the arithmetic of the probability -------------------------------------------------------------------------------


@claim("unlabelled:stuck-probability", also=("unlabelled:neon-probability", "iota-condition", "iota-condition-2"))
def stuck_probability(study: Study) -> Iterator[CheckResult]:
    """The share of the perturbation ball that the stuck region can take is at most delta.

    omega/(r sqrt(pi)) Gamma(d/2 + 1)/Gamma(d/2 + 1/2) <= L_phi sqrt(d)/sqrt(rho_phi eps) iota^2 2^(8 - iota) <= delta,
    and for iNEON with 2^(8 - iota/4)

    Paper: Formula [unlabelled:stuck-probability]; Formula [unlabelled:neon-probability]
    Paper: Equation 3.3 [iota-condition]; Equation 4.6 [iota-condition-2]
    Assumes: the parameters of the escape lemma and of iNEON for the constants of the box.
    Deviation: the print ends both chains with ell sqrt(d)/sqrt(rho eps), and iNEON's condition on iota has ell and rho
    too; L_phi and rho_phi are what the chain gives.

    >>> stuck_probability.citation
    'Formula [unlabelled:stuck-probability]'
    """
    c = next(iter(regions(study))).constants
    L_phi, rho_phi = float(c.L_phi()), float(c.rho_phi())
    smooth = Smoothness(L_phi, max(rho_phi, 1e-6 * L_phi))
    goal = Goal(
        eps=smooth.L_phi**2 / smooth.rho_phi / 4, delta=DELTA, d=study.exact.d, initial_error=0.0, gap=1.0, episodes=1
    )
    for pace, name in ((PERTURBED, "perturbation"), (NEON, "iNEON")):
        yield _chain(c, smooth, goal, pace, name, study.variant)


def _chain(c: Constants, smooth: Smoothness, goal: Goal, pace: Pace, name: str, variant: Variant) -> CheckResult:
    label, d = "unlabelled:stuck-probability", goal.d
    escape = escape_of(smooth, goal, pace)
    power = 2.0 ** (2 - pace.time * escape.iota)
    omega = power * smooth.L_phi * escape.S_escape
    share = omega / escape.r / math.sqrt(math.pi) * math.exp(math.lgamma(d / 2 + 1) - math.lgamma(d / 2 + 0.5))
    bound = DELTA
    if variant == "printed":
        if not c.rho > 0:
            return inconclusive(label, "the printed bound divides by rho = 0", variant=variant, part=name)
        ratio = float(c.ell) / math.sqrt(float(c.rho) * goal.eps)
        bound = ratio * math.sqrt(d) * escape.iota**2 * 64 * power
    return judged(
        label, share, bound, evidence="certified", noise=1e-12 * share, variant=variant, part=name,
        message=f"d = {d}, iota = {escape.iota:.4g}, omega/r = {omega / escape.r:.3g}",
    )  # fmt: skip
