"""The lemma on escaping saddle points: two coupled sequences, the width of the stuck region, and the probability.

The lemma takes L_phi and rho_phi for Lipschitz constants of grad Phi and Hess Phi, and its proof uses nothing else of
them. Here they are the certified ones over the box, far below the formulas in mu, ell, rho, nu and M, so that an escape
takes hundreds of steps and not millions. Estimates err by all that the lemma allows, against the escape. It is put to
the test at every saddle point of the box, and beside each of them where the gradient is small but not zero.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

import numpy as np

from bilevel_sym import Constants, Exact
from bilevel_sym.solvers import noise as solvers_noise
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.schedules.escape import NEON, PERTURBED, Pace, escape_of
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from bilevel_sym.typing import FLOAT64_EPS, Bools, Floats
from verify.papers.huang_saddle.measures.regions import regions
from verify.papers.huang_saddle.measures.runs import compared
from verify.papers.huang_saddle.measures.saddles import DELTA, Saddle, saddles, slopes
from verify.registry import WHOLE_X, NotApplicable, claim
from verify.statistics import corrected, judged_probability
from verify.study import Study
from verify.verdict import CheckResult, Verdict, inconclusive, judged

REGION = WHOLE_X

RUNS, BESIDE, PAIRS, GRID = 200, 100, 16, 40  # descents at a saddle point and beside it, pairs, starts on half a line
MOST_STEPS = 3000  # of an escape
CONFIDENCE = 0.99  # of all the starts together


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
    -sqrt(rho_phi eps); estimates that err by at most what eq:error-required allows. Starts: every saddle point of the
    box, and three points beside each with 0 < |grad Phi| <= eps.
    Deviation: T is rounded up.
    """
    starts, said = starts_of(study, PERTURBED)
    return worst_of(_escaped(study, starts), said)


def starts_of(study: Study, pace: Pace) -> tuple[list[Saddle], str]:
    """Every saddle point that is hard to escape from, starts beside each, and how many these are, in words."""
    found = saddles(study, pace)
    hard = [saddle for saddle in found.found if not saddle.escape.straightforward]
    if not hard:
        raise NotApplicable("L_phi < sqrt(rho_phi eps): there is nothing to escape from")
    starts = [*hard, *(at for saddle in hard for at in slopes(study, saddle, pace))]
    return starts, f"{found.description}, {len(starts) - len(hard)} starts beside them"


def worst_of(results: Iterable[CheckResult], said: str) -> Iterator[CheckResult]:
    """Of each part the result that speaks most against it: a failure, else what is not decided, else the tightest.

    What could not be tried at all has no part, and then no part is called decided but by a failure.

    >>> two = [judged("lem:neon", k, 4.0, evidence="sampled", message=f"{k}", part="p") for k in (1.0, 3.0)]
    >>> [result.message for result in worst_of(two, "two starts")]
    ['3.0; two starts']
    """
    found = list(results)
    rank = {Verdict.VIOLATED: 2, Verdict.INCONCLUSIVE: 1}
    for part in list(dict.fromkeys(result.part for result in found if result.part)) or [""]:
        of_part = [result for result in found if result.part in (part, "")]
        worst = max(of_part, key=lambda result: (rank.get(result.verdict, 0), result.tightness or 0.0))
        yield replace(
            worst, part=part, message=f"{worst.message}; {said}", n_points=sum(result.n_points for result in of_part),
            confidence=worst.confidence and CONFIDENCE,
        )  # fmt: skip


@dataclass(frozen=True, eq=False)
class _Descents:
    """From one start: the falls of pairs, which starts of a line are stuck, and how many of a cloud do not fall."""

    start: Saddle
    falls: Floats
    noise: float
    stuck: Bools
    failures: int
    left: int
    runs: int


def _escaped(study: Study, starts: Sequence[Saddle]) -> Iterator[CheckResult]:
    label = "lem:escapesaddle"
    tried: list[_Descents] = []
    for start in starts:
        reason = out_of_reach(study, start, MOST_STEPS)
        if reason:
            yield inconclusive(label, f"{reason}; {start}")
        else:
            tried.append(_descents(study, start))
    if not tried:
        return
    falls = np.array([each.falls for each in tried])
    asked = np.array([each.start.escape.F_escape for each in tried])[:, None]
    yield compared(
        label, study, np.broadcast_to(asked, falls.shape), falls, np.array([[each.noise] * PAIRS for each in tried]),
        part="coupling", at=np.array([[each.start.x] * PAIRS for each in tried]),
        message=f"F against the larger fall of two sequences, {PAIRS} pairs a start; {tried[0].start}",
    )  # fmt: skip
    confidence = corrected(CONFIDENCE, len(tried))
    for each in tried:
        if len(each.stuck):
            yield _width(study, each.start, each.stuck)
        yield judged_probability(
            label, each.failures, each.runs, DELTA, confidence, message=str(each.start), seed=study.seed,
            part="probability", undecided=each.left,
        )  # fmt: skip


def out_of_reach(study: Study, start: Saddle, most_steps: int) -> str:
    """Why an escape from a start cannot be tried; empty where it can be."""
    if start.escape.T_escape > most_steps:
        return f"{start.escape.T_escape} steps are too many here"
    return "F is below rounding" if start.escape.F_escape < 16 * _noise(study, start) else ""


def _noise(study: Study, start: Saddle) -> float:
    return rounding_of_phi(study, start.x) + 1e-12 * start.escape.F_escape


def _descents(study: Study, start: Saddle) -> _Descents:
    """T steps from pairs, from a line and from a cloud; on a slope nothing is stuck about its start."""
    F, noise = start.escape.F_escape, _noise(study, start)
    runs = BESIDE if start.slope else RUNS
    pairs, cloud = _pairs(study, start), _cloud(study, start, runs)
    line = cloud[:0] if start.slope else _line(start)
    falls = descended(study, start, np.concatenate([*pairs, line, cloud]))
    first, second, along, random = np.split(falls, np.cumsum([PAIRS, PAIRS, len(line)]))
    risen = study.kernels.phi(cloud) - float(study.kernels.phi(start.x))
    failures = int((random - risen < F / 2 - noise).sum())
    larger = np.fmax(first, second)
    pairs_fall = np.where(larger >= F, larger, np.maximum(first, second))  # nan where neither fell and one left the box
    return _Descents(start, pairs_fall, noise, along < F - noise, failures, int(np.isnan(random).sum()), runs)


def _width(study: Study, saddle: Saddle, stuck: Bools) -> CheckResult:
    """The span of the stuck starts on the line: up to the next start on either side, so not too small."""
    offsets, most = _offsets(saddle), saddle.escape.eta * saddle.omega
    free = offsets[~stuck & (offsets > 0)], -offsets[~stuck & (offsets < 0)]
    held = offsets[stuck & (offsets > 0)], -offsets[stuck & (offsets < 0)]
    sides = [_beyond(out, inner, most) for out, inner in zip(free, held, strict=True)]
    return judged(
        "lem:escapesaddle", sum(sides), most, evidence="sampled", n_points=len(offsets), seed=study.seed,
        part="stuck width", worst_point=study.named(saddle.x), noise=FLOAT64_EPS * float(np.abs(saddle.x).max()),
        message=f"starts on a line along e_1 that do not fall by F; {saddle}",
    )  # fmt: skip


def _beyond(free: Floats, stuck: Floats, most: float) -> float:
    """The smallest distance from which on nothing on this side is stuck."""
    last = float(stuck.max()) if len(stuck) else 0.0
    return float(min((s for s in free if s > last), default=2 * most))


def rounding_of_phi(study: Study, x: Floats) -> float:
    """How far float64 may move a difference of values of Phi near x.

    >>> from bilevel_sym import verify, zoo
    >>> rounding_of_phi(verify.study_of(zoo.get("scalar").problem), np.array([0.5])) < 1e-14
    True
    """
    c = study.kernels
    y = c.y_star(x)
    size = abs(float(c.phi(x))) + float(np.abs(c.f_x(x, y)) @ np.abs(x)) + float(np.abs(c.f_y(x, y)) @ np.abs(y))
    return 16 * FLOAT64_EPS * size


def descended(study: Study, saddle: Saddle, x: Floats) -> Floats:
    """How far Phi falls from each start within T steps along estimates that err against the escape.

    Once it has fallen by 2 F a descent is over: by the descent lemma it cannot rise by more than T eta accuracy^2
    again. A descent that would leave the box before it has fallen by F says nothing: its fall is nan.
    """
    e, error = saddle.escape, saddle.accuracy
    low, high = saddle.lower, saddle.upper
    here = Exact().estimate(study.exact, x, y0=np.broadcast_to(study.kernels.y_star(saddle.x), (len(x), study.exact.n)))
    start, falls, going = here.phi_hat, np.zeros(len(x)), np.arange(len(x))
    y, grad = here.y_D, here.grad_phi_hat
    for _ in range(e.T_escape):
        side = np.sign((x[going] - saddle.x) @ saddle.direction)
        after = x[going] - e.eta * (grad + error * side[:, None] * saddle.direction)
        inside = ((after >= low) & (after <= high)).all(axis=1)
        out = going[~inside]
        falls[out] = np.where(falls[out] >= e.F_escape, falls[out], np.nan)
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
    return falls


def _pairs(study: Study, saddle: Saddle) -> tuple[Floats, Floats]:
    """Starts in the perturbation ball that differ by a little more than eta omega along e_1."""
    rng, d = study.rng("coupling"), len(saddle.x)
    half = 0.5005 * saddle.escape.eta * saddle.omega
    radius = math.sqrt(max(0.0, (saddle.escape.eta * saddle.escape.r) ** 2 - half**2))
    shifts = np.array([solvers_noise.uniform_in_ball(rng, d, radius) for _ in range(PAIRS)])
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


def _cloud(study: Study, saddle: Saddle, runs: int) -> Floats:
    """Starts uniform in the perturbation ball."""
    rng, d = study.rng("escape"), len(saddle.x)
    points = [solvers_noise.uniform_in_ball(rng, d, saddle.escape.eta * saddle.escape.r) for _ in range(runs)]
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
            return inconclusive(label, "the printed bound divides by rho = 0", part=name)
        ratio = float(c.ell) / math.sqrt(float(c.rho) * goal.eps)
        bound = ratio * math.sqrt(d) * escape.iota**2 * 64 * power
    return judged(
        label, share, bound, evidence="certified", noise=1e-12 * share, part=name,
        message=f"d = {d}, iota = {escape.iota:.4g}, omega/r = {omega / escape.r:.3g}",
    )  # fmt: skip
