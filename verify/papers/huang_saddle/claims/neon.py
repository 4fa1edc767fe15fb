"""iNEON: a direction of negative curvature from noise, and the decrease of Phi by a step along it."""

from __future__ import annotations

import math
from collections.abc import Iterator
from fractions import Fraction

import mpmath
import numpy as np
from flint import arb

from bilevel_sym import Exact, INeon, compile_kernels, evaluate
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.ties import first_smallest
from bilevel_sym.errors import BilevelError
from bilevel_sym.estimators import ExactOracle
from bilevel_sym.graph.precision import mpmath_digits
from bilevel_sym.solvers import Ensemble
from bilevel_sym.theories.huang_saddle.schedules.escape import NEON
from bilevel_sym.typing import FLOAT64_EPS, Floats
from verify.papers.huang_saddle.claims.escape import CONFIDENCE, out_of_reach, starts_of, worst_of
from verify.papers.huang_saddle.measures.saddles import DELTA, Saddle, saddles
from verify.papers.huang_saddle.measures.stochastic.samples import SAMPLE_BITS, ends
from verify.registry import WHOLE_X, claim
from verify.statistics import corrected, judged_probability
from verify.study import Study
from verify.verdict import Bracket, CheckResult, inconclusive, judged

REGION = WHOLE_X

RUNS = 100
MOST_STEPS = 4000
DIGITS = 45  # of Phi, whose differences are compared
PRINTED = 1 / 40
# -2/5 F over |u|^2 <= 9^(2/3) S^2, where the print rounds 9^(2/3) up to 9
SHARP = 2 * (1 / 25 - 1 / 320000 - 2 / 250 - 3 / 128) * 16 / 9 ** (2 / 3)


@claim("lem:neon", also=("eq:phi-dec-highprob", "unlabelled:neon-rayleigh"))
def neon(study: Study) -> Iterator[CheckResult]:
    """At a strict saddle, iNEON finds a direction of curvature at most -sqrt(rho_phi eps)/(40 iota), but for delta.

    u^T Hess Phi u <= -sqrt(rho_phi eps)/(40 iota) for every u that is returned, and one is returned with probability
    1 - delta

    Paper: Lemma 4.1 [lem:neon]; Equation 4.5 [eq:phi-dec-highprob]; Equation D.23 [unlabelled:neon-rayleigh]
    Assumes: L_phi and rho_phi are Lipschitz constants over the box, here the certified ones; estimates as exact as
    eq:est-error-neon asks. That may be finer than float64 can be; the message gives both numbers. Starts: every saddle
    point of the box, and points beside each with 0 < |grad Phi| <= eps.
    Deviation: iota's condition has L_phi and rho_phi for ell and rho (judged by ``stuck_probability``). The sharp form
    has 0.0633/iota for 1/(40 iota): the proof has |u|^2 <= 9^(2/3) S^2 and uses 9 S^2.
    """
    starts, said = starts_of(study, NEON)
    return worst_of((result for start in starts for result in _searched(study, start, len(starts))), said)


def _searched(study: Study, saddle: Saddle, starts: int) -> Iterator[CheckResult]:
    label, e = "lem:neon", saddle.escape
    if reason := out_of_reach(study, saddle, MOST_STEPS):
        yield inconclusive(label, f"{reason}; {saddle}")
        return
    found = directions(study, saddle)
    curvature = np.einsum("ki,ij,kj->k", found, saddle.hessian, found)
    returned = np.linalg.norm(found, axis=1) > 0.5
    part = SHARP if study.variant == "sharp" else PRINTED
    wanted = part / e.iota * saddle.smooth.curvature(saddle.goal.eps)
    said = f"{saddle}; {_accuracy(study, saddle)}"
    yield _curved(study, saddle, found[returned], curvature[returned], wanted, said)
    failures = int((~returned | (-curvature < wanted)).sum())
    yield judged_probability(
        label, failures, RUNS, DELTA, corrected(CONFIDENCE, starts), message=said, seed=study.seed, part="probability"
    )


def _curved(study: Study, saddle: Saddle, found: Floats, curvature: Floats, wanted: float, said: str) -> CheckResult:
    """The curvature along the flattest direction that was returned, certified: it is promised for each of them."""
    if not len(found):
        return inconclusive("lem:neon", f"nothing was returned; {said}", part="curvature")
    u = found[first_smallest((-curvature).tolist())]
    hessian = evaluate(study.exact, saddle.x.tolist()).hess_phi
    with precision(SAMPLE_BITS):
        v = [arb(float(entry)) for entry in u]
        image = [sum((a * h.value for a, h in zip(v, row, strict=True)), arb(0)) for row in hessian]
        form, size = (sum((a * b for a, b in zip(v, other, strict=True)), arb(0)) for other in (image, v))
        along = ends(-form / size)
    return judged(
        "lem:neon", wanted, along, evidence="certified", message=said, part="curvature", n_points=len(found),
        seed=study.seed, worst_point=study.named(saddle.x),
    )  # fmt: skip


def directions(study: Study, saddle: Saddle) -> Floats:
    """What iNEON returns from exact hypergradients, once for each of some random starts; rows of norm 1 or 0."""
    e, size = saddle.escape, RUNS
    search = INeon(Exact(), e.eta, saddle.goal.eps, e.r, e.T_escape, e.F_escape)
    oracle = ExactOracle(compile_kernels(study.exact))
    x, y = (np.broadcast_to(part, (size, len(part))).copy() for part in (saddle.x, study.kernels.y_star(saddle.x)))
    streams = [np.random.default_rng(seed) for seed in study.rng("neon").integers(2**31, size=size)]
    ensemble = Ensemble.gather(x, y, np.zeros_like(y), 0, streams)
    found = search.search(oracle, ensemble, np.arange(size))
    if found.failed.any():
        raise BilevelError("the lower level cannot be solved near the saddle point")
    return np.ascontiguousarray(found.u.T)


def _accuracy(study: Study, saddle: Saddle) -> str:
    """What the lemma asks of the estimates, beside what float64 can do."""
    iota = saddle.escape.iota
    asked = min(math.sqrt(17) / 40, 2.0 ** (-iota / 4) / 16, 1 / 750) / iota**2 * saddle.goal.eps
    y = study.kernels.y_star(saddle.x)
    size = float(np.linalg.norm(study.kernels.f_x(saddle.x, y)) + np.linalg.norm(study.kernels.f_y(saddle.x, y)))
    reached = 8 * FLOAT64_EPS * max(size, saddle.smooth.L_phi * float(np.abs(saddle.x).max(initial=0.0)))
    return f"the lemma asks for an accuracy of {asked:.1g}, float64 has about {reached:.1g}"


@claim("lem:saddle-decrease", also=("unlabelled:saddle-decrease-proof",))
def saddle_decrease(study: Study) -> CheckResult:
    """A step to either side of a direction of negative curvature lowers Phi, on average over the sign.

    1/(3 80^3 iota^3) sqrt(eps^3/rho_phi) <= Phi(x) - (Phi(x + s u) + Phi(x - s u))/2 for every unit u with
    u^T Hess Phi u <= -sqrt(rho_phi eps)/(80 iota), with s = sqrt(eps/rho_phi)/(80 iota)

    Paper: Lemma D.6 [lem:saddle-decrease]; Equation D.51 [unlabelled:saddle-decrease-proof]
    Assumes: rho_phi is a Lipschitz constant of Hess Phi over the box, here the certified one; the expectation over the
    sign is taken exactly, the batch is all the data.
    Deviation: the print steps sqrt(eps/rho_phi)/80, without iota, which guarantees no decrease for iota >= 3.
    """
    found = saddles(study, NEON)
    return next(worst_of((_decreased(study, saddle) for saddle in found.found), found.description))


def _decreased(study: Study, saddle: Saddle) -> CheckResult:
    e, rho_phi = saddle.escape, saddle.smooth.rho_phi
    length = math.sqrt(saddle.goal.eps / rho_phi)
    step = length / 80 if study.variant == "printed" else length / (80 * e.iota)
    claimed = saddle.goal.eps * length / (3 * 80**3 * e.iota**3)
    least = saddle.smooth.curvature(saddle.goal.eps) / (80 * e.iota)
    falls = []
    for u in flat_directions(saddle, least, study.rng("saddle decrease")):
        ends = [_exactly_along(saddle.x, sign * step, u) for sign in (1, 0, -1)]
        if any(not low <= v <= high for x in ends for v, low, high in zip(x, saddle.lower, saddle.upper, strict=True)):
            continue
        falls.append(_mean_fall(study, ends))
    if not falls:
        return inconclusive("lem:saddle-decrease", f"the step leaves the box; {saddle}")
    worst = falls[first_smallest([fall.lower for fall in falls])]
    return judged(
        "lem:saddle-decrease", claimed, worst, evidence="certified", n_points=len(falls), seed=study.seed,
        worst_point=study.named(saddle.x),
        message=f"the smallest fall in {len(falls)} directions, step {step:.3g}; {saddle}",
    )  # fmt: skip


def flat_directions(saddle: Saddle, least: float, rng: np.random.Generator) -> list[Floats]:
    """Unit vectors of curvature at most -least, most of them with hardly more: there a step gains least.

    >>> from types import SimpleNamespace
    >>> saddle = SimpleNamespace(hessian=np.diag([-1.0, 1.0]))
    >>> u = flat_directions(saddle, 0.25, np.random.default_rng(0))[1]
    >>> round(float(u @ saddle.hessian @ u), 6)
    -0.25
    """
    values, vectors = np.linalg.eigh(saddle.hessian)
    found = [vectors[:, 0]]
    for value, vector in zip(values[1:], vectors.T[1:], strict=True):
        if value <= -least:
            found.append(vector)
            continue
        # a little on the safe side of the curvature, for the rounding of u
        share = (value + least * (1 + 1e-9)) / (value - values[0])
        found.append(math.sqrt(share) * vectors[:, 0] + rng.choice([-1.0, 1.0]) * math.sqrt(1 - share) * vector)
    return found


def _exactly_along(x: Floats, step: float, u: Floats) -> list[Fraction]:
    return [Fraction(float(a)) + Fraction(step) * Fraction(float(b)) for a, b in zip(x, u, strict=True)]


def _mean_fall(study: Study, ends: list[list[Fraction]]) -> Bracket:
    """Phi in the middle minus the mean of Phi at both ends, enclosed."""
    plus, middle, minus = (evaluate(study.exact, x, digits=DIGITS).phi for x in ends)
    with mpmath_digits(2 * DIGITS):
        fall = middle.mid - (plus.mid + minus.mid) / 2
        about = middle.rad + (plus.rad + minus.rad) / 2
        return Bracket(_down(fall - about), -_down(-(fall + about)))


def _down(value: mpmath.mpf) -> float:
    """A float that is not above the value."""
    return math.nextafter(float(value), -math.inf)
