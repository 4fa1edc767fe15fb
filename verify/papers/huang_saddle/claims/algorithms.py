"""The shipped algorithms do what their lines say: runs of every engine, replayed step by step in 256 bits.

Each recorded iterate is taken as exact, and what the next line of the algorithm makes of it is computed anew. So
nothing accumulates, and a difference that rounding cannot explain is a violation.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from bilevel_sym import (
    AID,
    BilevelProblem,
    Descent,
    GDmax,
    INeon,
    Perturbed,
    Solution,
    Status,
    StocBiO,
    StochasticProblem,
    solve,
)
from bilevel_sym.arithmetic.ties import first_smallest
from bilevel_sym.errors import BilevelError
from bilevel_sym.estimators import Estimator
from bilevel_sym.typing import Floats
from verify import CheckResult, NotApplicable, Study, claim
from verify.papers.huang_saddle.measures.agreement import Agreement, agreed
from verify.papers.huang_saddle.measures.regions import solvable_points
from verify.papers.huang_saddle.measures.runs import EPISODE
from verify.papers.huang_saddle.measures.second_writing.plain import (
    Plain,
    PlainEstimate,
    engines,
    in_ball,
    long,
    roundings,
)

REGION = "runs from the box in x"

STEPS = 9  # of a run
STATIONARY_SHARE = 0.8  # of eps: the print again, by which that of the solvers is judged
SEARCH = 12  # steps of iNEON
FOUND_PART = 11519 / 12800  # of F_escape: a fall at which iNEON has found a direction
UNCOMPUTABLE = 1e300  # where nothing can be computed any more
MOST_ENTRIES = 400
MOVED = 2.0**-40  # roundings of a step, relative to its size


@dataclass(frozen=True)
class _Setting:
    """A problem with an estimator for it, parameters of a run, and where runs begin."""

    problem: BilevelProblem
    estimator: Estimator
    D: int
    tau: float
    x: Floats
    y: Floats
    eta: float

    def plain(self, reference: Plain, x: Any, y: Any, v: Any) -> PlainEstimate:
        """The estimate in many digits."""
        if isinstance(self.estimator, GDmax):
            return reference.gdmax(x, y, D=self.D, tau=self.tau)
        return reference.aid(x, y, v, D=self.D, N=2, tau=self.tau)


def _setting(study: Study, D: int = 2) -> _Setting:
    """Three starts in the box, a step that moves x by a hundredth of its width, and a step for the lower level."""
    if study.exact.n**2 > MOST_ENTRIES:
        raise NotApplicable(f"n = {study.exact.n} is too many for a reference in many digits")
    x, y = solvable_points(study, 8, "algorithms", 3)
    tau = 0.5 / float(np.abs(np.linalg.eigvalsh(study.kernels.g_yy(x, y))).max())
    estimator: Estimator = GDmax(D, tau) if study.problem.kind == "minimax" else AID(D, 2, tau)
    try:
        slope = float(np.linalg.norm(study.kernels.grad_phi(x), axis=1).max())
    except BilevelError:
        slope = 1.0
    low, high = study.x_ends
    eta = 0.01 * float((high - low).min() or 1.0) / max(slope, 1e-3)
    return _Setting(study.exact, estimator, D, tau, x, y + 0.01, eta)


# ---- Algorithm 1 -----------------------------------------------------------------------------------------------------


@claim(
    "alg:perturbedalg",
    also=("unlabelled:algorithm-1-step-5", "unlabelled:algorithm-1-step-10", "unlabelled:algorithm-1-step-11",
          "unlabelled:algorithm-1-step-14"),
)  # fmt: skip
def algorithm_1(study: Study) -> Iterator[CheckResult]:
    """The shipped Algorithm 1 warm-starts, perturbs and descends as its lines say, in every engine.

    y_k^0 = y_(k-1)^D; a perturbation where |grad_phi_hat| <= 4/5 eps and the last one is more than T iterations ago,
    then x_(k+1) = x_k - eta u with u uniform in the ball of radius r; otherwise x_(k+1) = x_k - eta grad_phi_hat

    Paper: Algorithm 1 [alg:perturbedalg]
    Deviation: the printed variant is replayed with ``as_printed=True``: D + 1 steps, the gradient of before the
    perturbation in the same iteration, and no perturbation while k <= T.
    """
    setting = _setting(study)
    pilot = solve(study.exact, Descent(setting.estimator, setting.eta), setting.x, y0=setting.y, steps=STEPS, rng=0)
    sizes = np.linalg.norm(pilot.trajectory.grad_phi_hat, axis=-1)
    eps = float(np.nanmedian(sizes)) / STATIONARY_SHARE  # so that the test comes out both ways
    if not eps > 0:
        raise NotApplicable("the estimates vanish at the points tried")
    printed = study.variant == "printed"
    algorithm = Perturbed(
        setting.estimator, eta=setting.eta, eps=eps, r=0.5 * eps, T_escape=EPISODE, as_printed=printed
    )
    plain = replace(setting, D=setting.D + 1) if printed else setting
    found: dict[str, list[Agreement]] = {part: [] for part in ("warm-started estimates", "when to perturb", "moves")}
    # in the company of one that begins so far away that it fails, which must not be seen in the others
    x, y = np.vstack([setting.x[:1], setting.x]), np.vstack([np.full_like(setting.y[:1], UNCOMPUTABLE), setting.y])
    for backend in engines():
        run = solve(study.exact, algorithm, x, y0=y, steps=STEPS, rng=range(len(x)), backend=backend)
        for row in range(len(setting.x)):
            for part, item in _replayed(study, plain, algorithm, run.trajectory, row, backend):
                found[part].append(item)
            failed = Status.RUNNING < run.status[row + 1] < Status.OUT_OF_STEPS
            early = run.trajectory.length[row + 1] != STEPS + 1 and not failed
            found["when to perturb"].append(Agreement(f"{backend}, the end of run {row}", float(early), 0.5))
    what = f"runs of {', '.join(engines())} against the lines"
    for part, items in found.items():
        yield agreed("alg:perturbedalg", study, items, what=what, part=part)


def _replayed(
    study: Study, setting: _Setting, algorithm: Perturbed, t: Any, row: int, backend: str
) -> Iterator[tuple[str, Agreement]]:
    y, v = setting.y[row], np.zeros(study.exact.n)
    row += 1  # after the one that fails
    stream = np.random.default_rng(row)
    since = 0 if algorithm.as_printed else EPISODE + 1
    with Plain.precision():
        reference = Plain(study.exact)
        for k in range(int(t.length[row])):
            x, name = t.x[row, k], f"{backend}, iteration {k}"
            point = study.named(x)
            wanted = setting.plain(reference, long(x), long(y), long(v))
            pairs = [(wanted.grad, t.grad_phi_hat[row, k]), (wanted.y, t.y[row, k])]
            pairs += [] if isinstance(setting.estimator, GDmax) else [(wanted.v, t.v[row, k])]
            apart = max(float(np.abs(a - b).max()) for a, b in pairs)
            yield "warm-started estimates", Agreement(name, apart, roundings(wanted), point)
            if k + 1 == t.length[row]:
                break
            grad, y, v = t.grad_phi_hat[row, k], t.y[row, k], t.v[row, k]
            due = bool(np.linalg.norm(grad) <= STATIONARY_SHARE * algorithm.eps and since > EPISODE)
            yield "when to perturb", Agreement(name, float(due != bool(t.perturbed[row, k])), 0.5, point)
            since = 1 if due else since + 1
            there = x - algorithm.eta * grad
            if due:
                u = in_ball(stream, len(x), algorithm.r)
                there = (there if algorithm.as_printed else x) - algorithm.eta * u
            size = float(np.abs(x).max() + np.abs(there - x).max())
            apart = float(np.abs(t.x[row, k + 1] - there).max())
            yield "moves", Agreement(name, apart, MOVED * size + 1e-300, point)


# ---- Algorithm 2 -----------------------------------------------------------------------------------------------------


@claim("alg:iNEON", also=("unlabelled:algorithm-2-step-14", "unlabelled:algorithm-2-step-15", "eq:u-update-neon"))
def algorithm_2(study: Study) -> Iterator[CheckResult]:
    """The shipped iNEON updates u, stops and returns as its lines say.

    u_0 uniform in the ball of radius eta r; u <- u - eta (grad_phi_hat(x + u) - grad_phi_hat(x)); u/|u| as soon as
    phi_hat(x + u) - phi_hat(x) - grad_phi_hat(x)^T u <= -(11519/12800) F, and 0 after T steps without that

    Paper: Algorithm 2 [alg:iNEON]
    Deviation: the printed variant is replayed with ``as_printed=True``: D + 1 steps, from y_0 once more at k = 0, one
    test more, and a coin in place of the lower side.
    """
    setting, printed = _setting(study), study.variant == "printed"
    last = SEARCH + printed
    found: list[Agreement] = []
    silent: list[Agreement] = []
    for row in range(len(setting.x)):
        path = _search(study, setting, row)
        falls = np.array([step.fall for step in path])
        deepest = first_smallest(falls[1 : last + 1]) + 1
        if not falls[deepest] < -1e-9 * (1 + abs(path[0].level)):
            continue
        late = (falls[deepest] + falls[last + 1]) / 2  # reached by one step more, if at all
        for depth in (falls[deepest] * (1 - 1e-3), min(falls[deepest] * 1.5, 2 * late - falls[deepest]), late):
            if not depth < -1e-9:
                continue
            F = -float(depth) / FOUND_PART
            if _is_close(path, F):
                continue
            neon = INeon(setting.estimator, setting.eta, 1.0, _radius(study, setting), SEARCH, F, as_printed=printed)
            u = neon.direction(study.exact, setting.x[row], y0=setting.y[row], rng=row)
            first, wanted = _direction(path, last, F)
            off = 1e-6 if first is None else 1e-6 + path[first].turned(setting)
            item = Agreement(f"point {row}", float(np.abs(u - wanted).max()), off, study.named(setting.x[row]))
            (silent if first is None else found).append(item)
    if not found:
        raise NotApplicable("phi_hat bends upwards everywhere at the points tried, so that nothing can be found")
    yield agreed("alg:iNEON", study, found, what="directions against a plain search", part="found")
    yield agreed("alg:iNEON", study, silent, what="searches that must end with nothing", part="not found")
    escapes = [item for row in range(len(setting.x)) for item in _escaped(study, setting, row)]
    yield agreed("alg:iNEON", study, escapes, what="descent that escapes along what was found", part="escape")


def _direction(path: Sequence[_Step], last: int, F: float) -> tuple[int | None, Floats]:
    """When a search stops, and with which direction."""
    first = next((k for k in range(1, last + 1) if path[k].fall <= -FOUND_PART * F), None)
    return first, np.zeros_like(path[0].u) if first is None else path[first].u / np.linalg.norm(path[first].u)


def _escaped(study: Study, setting: _Setting, row: int) -> Iterator[Agreement]:
    """One iteration of descent with iNEON: far from flat along the estimate, where flat along u, to the lower side."""
    x, y, printed = setting.x[row], setting.y[row], study.variant == "printed"
    path, last = _search(study, setting, row, within=True), SEARCH + printed
    deepest = min(step.fall for step in path[1 : last + 1])
    size = float(np.linalg.norm(setting.estimator.estimate(study.exact, x, y0=y).grad_phi_hat))
    F, point = max(-deepest, 1e-9) / FOUND_PART * (1 - 1e-3), study.named(x)
    if _is_close(path, F):
        return
    first, u = _direction(path, last, F)
    for eps in (size / STATIONARY_SHARE * (1 - 1e-9), size / STATIONARY_SHARE * (1 + 1e-9)):
        neon = INeon(setting.estimator, setting.eta, eps, _radius(study, setting), SEARCH, F, as_printed=printed)
        run = solve(study.exact, Descent(setting.estimator, setting.eta, neon), x, y0=y, steps=1, rng=row)
        t = run.trajectory
        flat = eps > size / STATIONARY_SHARE
        ends = flat and first is None  # a minimum, or what iNEON takes for one: the run ends where it is
        yield Agreement(f"the end at point {row}", float((len(t.x) == 1) != ends), 0.5, point)
        if len(t.x) == 1:
            continue
        allowed = [x - setting.eta * t.grad_phi_hat[0]]
        if flat:
            step = math.sqrt(setting.eta * SEARCH * F) / 4
            allowed = [x + step * u, x - step * u]
            if not printed:  # the side is no coin's: the lower one, and of equals the first
                sides = [setting.estimator.estimate(study.exact, z, y0=t.y[0], v0=t.v[0]).phi_hat for z in allowed]
                allowed = allowed[:1] if sides[0] <= sides[1] else allowed[1:]
        apart = min(float(np.abs(t.x[1] - there).max()) for there in allowed)
        yield Agreement(f"the move from point {row}", apart, 1e-9 * (1 + float(np.abs(x).max())), point)
        yield Agreement(f"the mark at point {row}", float(bool(t.perturbed[0]) != flat), 0.5, point)
        searched = first + 1 if flat and first is not None else 0
        for name, off in _miscounted(setting, run, searched, printed):
            yield Agreement(f"{name} at point {row}", off, 0.5, point)


def _miscounted(setting: _Setting, run: Solution, searched: int, printed: bool) -> Iterator[tuple[str, float]]:
    """How far each counter is from an estimate at each of two points, and those in between.

    These are those of the search and two looks; as printed one more in place of the looks.
    """
    estimator: Any = setting.estimator
    inner = estimator.longer() if printed else estimator
    more = searched + (1 if printed else 2) if searched else 0
    for name, calls in estimator.cost.items():
        wanted = 2 * calls + more * inner.cost[name]
        yield name, abs(float(getattr(run.counters, name)) - wanted)


@dataclass(frozen=True)
class _Step:
    """u, and the value that step 15 tests; ``level`` is phi_hat at x, ``noise`` what rounding makes of an estimate."""

    u: Floats
    fall: float
    level: float
    noise: float

    def turned(self, setting: _Setting) -> float:
        """How far the roundings of a search may have turned u."""
        return 2 * SEARCH * setting.eta * self.noise / float(np.linalg.norm(self.u))


def _is_close(path: Sequence[_Step], F: float) -> bool:
    """Whether rounding may decide the test of step 15 somewhere: then nobody can say when the search is to stop."""
    return any(abs(step.fall + FOUND_PART * F) <= 2 * step.noise for step in path[1:])


def _radius(study: Study, setting: _Setting) -> float:
    """The radius of the noise, over eta: a hundredth of the box."""
    low, high = study.x_ends
    return 0.01 * float((high - low).min() or 1.0) / setting.eta


def _search(study: Study, setting: _Setting, row: int, *, within: bool = False) -> list[_Step]:
    """The steps of iNEON and one more, each estimate from where the last one left y and v.

    The print has D + 1 steps of AID, one step more, and begins the search from where the estimate at x began: that is
    y_0, or where an iteration of descent left y and v (``within`` descent; otherwise its estimate is taken over).
    """
    printed = study.variant == "printed"
    inner = replace(setting, D=setting.D + 1) if printed else setting
    x, y, v = setting.x[row], setting.y[row], np.zeros(study.exact.n)
    u = in_ball(np.random.default_rng(row), len(x), setting.eta * _radius(study, setting))
    path: list[_Step] = []
    with Plain.precision():
        reference = Plain(study.exact)
        if within and printed:
            left = setting.plain(reference, long(x), long(y), long(v))
            y, v = left.y, left.v
        here = inner.plain(reference, long(x), long(y), long(v))
        if not printed:
            y, v = here.y, here.v
        for _ in range(SEARCH + 2 + printed):
            there = inner.plain(reference, long(x + u), long(y), long(v))
            fall = there.phi - here.phi - float(here.grad @ u)
            path.append(_Step(u, fall, here.phi, max(roundings(here), roundings(there))))
            y, v = there.y, there.v
            u = u - setting.eta * (there.grad - here.grad)
    return path


# ---- Algorithm 3 -----------------------------------------------------------------------------------------------------


@claim(
    "alg:INEONstocbio", kinds=("stochastic",),
    also=("unlabelled:algorithm-3-step-13", "unlabelled:algorithm-3-step-19"),
)  # fmt: skip
def algorithm_3(study: Study) -> Iterator[CheckResult]:
    """The shipped Algorithm 3 calls iNEON where the estimate is small, and moves by its step along what that finds.

    On the mean as one row, where nothing but iNEON's noise is left to chance: no call where |grad_phi_hat| > 4/5 eps;
    otherwise x moves by sqrt(eta T F)/8 along u or -u, or the run ends, and says truly whether it is at a local minimum

    Paper: Algorithm 3 [alg:INEONstocbio]
    Deviation: the printed variant is replayed with ``as_printed=True``: it looks at x_1 first, with the batches of the
    step to there, moves by sqrt(eps/rho_phi)/80, and leaves the side to a coin.
    """
    setting, mean = _setting(study), study.exact
    label = "alg:INEONstocbio"
    alone = StochasticProblem(mean.f, mean.g, mean.x, mean.y, (), (), (), (), box=study.box)
    calm: list[Agreement] = []
    looked: list[Agreement] = []
    ended: list[Agreement] = []
    bent = 0
    for row in range(len(setting.x)):
        deepest = min(step.fall for step in _search(study, setting, row)[1 : SEARCH + 1])
        if not deepest < -1e-9:
            continue
        bent += 1
        # a thousandth of what a search can find: most noise leads there, and what does not ends the run
        neon = INeon(setting.estimator, setting.eta, 1.0, _radius(study, setting), SEARCH, -1e-3 * deepest)
        calm += _one_step(study, alone, setting, neon, row, small=False)
        looked += _one_step(study, alone, setting, neon, row, small=True)
        ended += _end(study, alone, setting, replace(neon, F_escape=1 - 1e3 * deepest), row)
    if not bent:
        raise NotApplicable("phi_hat bends upwards everywhere at the points tried, so that nothing can be found")
    yield agreed(label, study, calm, what="steps of descent where nothing is small", part="descent")
    yield agreed(label, study, looked, what="steps along what iNEON found", part="escape")
    yield agreed(label, study, ended, what="what is said of the end where iNEON finds nothing", part="end")


def _end(study: Study, alone: StochasticProblem, setting: _Setting, neon: INeon, row: int) -> Iterator[Agreement]:
    """A run whose search finds nothing ends, and is told a local minimum if it has come to one for its eps and rho."""
    x = setting.x[row]
    eps = 4 * float(np.linalg.norm(study.kernels.grad_phi(x))) + 1
    lowest = float(np.linalg.eigvalsh(study.kernels.hess_phi(x))[0])
    for share in (2.0, 0.5):
        allowed = share * max(abs(lowest), 1e-3)
        escape = replace(neon, rho_phi=allowed**2 / eps)
        algorithm = StocBiO(
            2, 3, 1, setting.tau, 1e-9, setting.tau, 2, 3, escape=escape, eps=eps,
            as_printed=study.variant == "printed",
        )  # fmt: skip
        run = solve(alone, algorithm, x, y0=setting.y[row], steps=2, rng=row)
        wanted = Status.LOCAL_MINIMUM if lowest >= -allowed else Status.NO_CURVATURE
        yield Agreement(f"the end at point {row}", float(run.status is not wanted), 0.5, study.named(x))


def _rows(setting: _Setting, algorithm: StocBiO, run: Solution, row: int, looks: int) -> Agreement:
    """Rows that were asked for beside those of StocBiO's own steps: whole estimates on frozen batches, if one only."""
    points, cost = len(run.trajectory.x), setting.estimator.cost  # type: ignore[attr-defined]
    of_f, of_g = algorithm.batch_f, algorithm.batch_g
    own = {"G_f": 2 * of_f, "G_g": algorithm.D * algorithm.S, "JV_g": of_g, "HV_g": sum(algorithm.sizes)}
    beside = {name: int(getattr(run.counters, name)) - points * rows for name, rows in own.items()}
    estimates = {beside[name] / (calls * (of_f if name == "G_f" else of_g)) for name, calls in cost.items() if calls}
    count = min(estimates)
    right = len(estimates) == 1 and (count == looks if looks else count >= 1 and count == int(count))
    return Agreement(f"rows at point {row}", float(not right), 0.5)


def _one_step(
    study: Study, alone: StochasticProblem, setting: _Setting, neon: INeon, row: int, *, small: bool
) -> Iterator[Agreement]:
    """How far one iteration moves x, and to which side; nothing where the run ends instead."""
    x, beta = setting.x[row], 1e-3
    size = float(np.linalg.norm(study.kernels.grad_phi(x)))
    eps = 4 * size + 1 if small else 0.5 * size
    printed = study.variant == "printed"
    algorithm = StocBiO(2, 3, 1, setting.tau, beta, setting.tau, 2, 3, escape=neon, eps=eps, as_printed=printed)
    k = int(printed and small)  # the print looks at x_1 first
    solution = solve(alone, algorithm, x, y0=setting.y[row], steps=k + 1, rng=row)
    run = solution.trajectory
    if not printed:
        yield _rows(setting, algorithm, solution, row, 0 if small else 1)
    if len(run.x) < k + 2:
        return
    step, time = float(np.linalg.norm(run.x[k + 1] - run.x[k])), setting.eta * SEARCH
    wanted = beta * float(np.linalg.norm(run.grad_phi_hat[k]))
    if small:
        wanted = math.sqrt(time * neon.F_escape) / 8
    if small and printed:  # sqrt(eps/rho_phi)/80, of which T and F are made
        iota = (4 * time * neon.eps**2 / (25 * neon.F_escape)) ** 0.25
        wanted = time * neon.eps / (20 * iota)
    point = study.named(x)
    yield Agreement(f"point {row}", abs(step - wanted), 1e-9 * (wanted + 1e-3), point)
    if small and not printed:
        with Plain.precision():
            reference, zero = Plain(study.exact), long(np.zeros(study.exact.n))
            taken, other = (
                setting.plain(reference, long(side), long(run.y[0]), zero).phi for side in (run.x[1], 2 * x - run.x[1])
            )
        yield Agreement(f"the lower side at point {row}", max(0.0, taken - other), 1e-9, point)
