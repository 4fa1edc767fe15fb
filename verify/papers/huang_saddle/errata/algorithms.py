"""Errors in the algorithms' own lines and in how the theorems count iterations."""

from __future__ import annotations

from fractions import Fraction
from itertools import pairwise

import sympy as sp

from bilevel_sym import AID, Perturbed
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal
from verify.erratum import Formula, erratum


@erratum(
    "thm:aid",
    "thm:stocneon",
    "assu:bilevel",
    "unlabelled:aid-total",
    printed="under Assumption 2.1, perturbed AID visits an eps-local minimum within K iterations",
    corrected="the same, if moreover Phi is bounded below",
    forms=(lambda smooth, infimum: smooth, lambda smooth, infimum: smooth and infimum > -sp.oo),
    witness="f = x, g = y^2/2: M = mu = ell = 1, rho = nu = 0, Phi = x, and |Phi'| = 1 > eps everywhere",
    why="Assumption 2.1 does not bound Phi below (Assumption 3.5(iv) does), so that Phi^* may be minus infinity.",
    severity="gap",
    modelled=True,
)
def bounded_below(form: Formula) -> bool:
    """Where the hypothesis is true of the problem, some point has a gradient of norm at most eps = 1/2."""
    x, y = sp.symbols("x y", real=True)
    f, g = x, y**2 / 2
    second = [sp.diff(h, s, t) for h in (f, g) for s in (x, y) for t in (x, y)]
    quadratic = all(entry.is_number for entry in second)  # so that rho = nu = 0
    bounded = max(map(abs, second)) <= 1 and abs(sp.diff(f, x)) <= 1 and abs(sp.diff(f, y)) <= 1
    smooth = bool(quadratic and bounded and sp.diff(g, y, 2) >= 1)
    phi = f.subs(y, 0)  # y* = 0
    slope = sp.diff(phi, x)
    return bool(abs(slope) <= sp.Rational(1, 2) or not form(smooth, sp.limit(phi, x, -sp.oo)))


def _share(delta: Fraction, episodes: int) -> Fraction:
    goal = Goal(eps=1.0, delta=float(delta), d=1, initial_error=1.0, gap=1.0, episodes=episodes)
    return Fraction(goal.episode_delta)


@erratum(
    "thm:aid",
    "thm:minimax",
    "unlabelled:case-2-decrease",
    printed="each escape succeeds with probability 1 - delta, so all of them do",
    corrected="each of the n = 2 (Phi(x_0) - Phi*)/F escapes may fail with probability delta/n",
    forms=(lambda delta, n: delta, _share),
    witness="n = 4 independent escapes, delta = 1/8: (7/8)^4 = 0.586 < 7/8; and n = 64, delta = 1/64",
    why="Lemma 2.9 is about one perturbation; the theorem uses it once for every saddle point, without a union bound.",
    severity="gap",
    modelled=True,
)
def episodes(form: Formula) -> bool:
    """Independent escapes all succeed with probability at least 1 - delta."""
    cases = ((Fraction(1, 8), 4), (Fraction(1, 64), 64))
    return all((1 - form(delta, n)) ** n >= 1 - delta for delta, n in cases)


@erratum(
    "unlabelled:sketch-iteration-bound",
    "unlabelled:aid-total",
    printed="K = gap T/F + L_phi gap/eps^2",
    corrected="K = gap T/(F/2) + 25 L_phi gap/(3 eps^2), as in the proof",
    forms=(
        lambda gap, T, F, L, eps: (gap * T / F, L * gap / eps**2),
        lambda gap, T, F, L, eps: (2 * gap * T / F, 25 * L * gap / (3 * eps**2)),
    ),
    witness="gap = 7, T = 100, F = 1/10, L_phi = 5, eps = 1/3: an episode guarantees F/2, a step with a large gradient "
    "3 eps^2/(25 L_phi)",
    why="The sketch drops the constants: so many iterations of either kind guarantee less than the whole gap.",
    severity="gap",
)
def sketch_bound(form: Formula) -> bool:
    """So many iterations, of either kind alone, guarantee a decrease by the whole gap."""
    gap, T, F, L, eps = Fraction(7), Fraction(100), Fraction(1, 10), Fraction(5), Fraction(1, 3)
    # the descent lemma with an estimate above 4/5 eps and an error of at most eps/5
    step = (Fraction(1, 4) * Fraction(4, 5) ** 2 - Fraction(1, 5) ** 2) * eps**2 / L
    in_episodes, large = form(gap, T, F, L, eps)
    return bool(in_episodes / T * F / 2 >= gap and large * step >= gap)


def _start(T: int, *, as_printed: bool) -> int:
    """k_perturb of Algorithm 1 before its first iteration."""
    return -Perturbed(AID(D=1, N=1, tau=1.0), 1.0, 1.0, 1.0, T, as_printed=as_printed).clock


def _perturbations(k_perturb: int, T: int, iterations: int) -> list[int]:
    """When Algorithm 1 perturbs, where the gradient is small all the time."""
    times = []
    for k in range(iterations):
        if k - k_perturb > T:
            k_perturb = k
            times.append(k)
    return times


@erratum(
    "alg:perturbedalg",
    "unlabelled:algorithm-1-step-10",
    "thm3.5-bound2",
    printed="k_perturb = 0 at the start",
    corrected="k_perturb = -T - 1, or anything below -T: the first iteration may perturb",
    forms=(lambda T: _start(T, as_printed=True), lambda T: _start(T, as_printed=False)),
    witness="T = 5, started at a saddle point: the first perturbation is at k = 6",
    why="Case 2 of the proof takes the first T iterations for ones that follow a perturbation; there was none, so they "
    "need not decrease Phi, and K does not count them.",
    severity="gap",
    modelled=True,
)
def k_perturb(form: Formula) -> bool:
    """Every iteration with k - k_perturb <= T has a perturbation among the last T + 1, as Case 2 says."""
    T, iterations = 5, 20
    times = _perturbations(form(T), T, iterations)
    last = form(T)
    for k in range(iterations):
        last = k if k in times else last
        if k - last <= T and not any(k - T <= t <= k for t in times):
            return False
    return True


@erratum(
    "unlabelled:case-2-decrease",
    "thm3.5-bound2",
    "unlabelled:aid-total",
    printed="an episode, k - k_perturb <= T, has T iterations",
    corrected="it has T + 1 iterations",
    forms=(lambda T: T, lambda T: T + 1),
    witness="T = 5: the perturbations of Algorithm 1 are 6 iterations apart",
    why="The next perturbation waits for k - k_perturb > T, so that T + 1 iterations share a decrease of F/2.",
    severity="gap",
    modelled=True,
)
def episode_length(form: Formula) -> bool:
    """Perturbations at a saddle point that holds the iterate are just so many iterations apart."""
    return all({b - a for a, b in pairwise(_perturbations(-T - 1, T, 10 * T))} == {form(T)} for T in (3, 5, 8))


@erratum(
    "unlabelled:algorithm-1-step-11",
    "unlabelled:algorithm-1-step-14",
    "lem:escapesaddle",
    printed="after the perturbation, x_{k+1} = x_k - eta grad-hat Phi(x_k), estimated before the perturbation",
    corrected="the estimate is that at the perturbed x_k, as in Lemma 2.9",
    forms=(lambda old, new: old, lambda old, new: new),
    witness="Phi = -x^2/2 near x_k = 0, eta = 1, u = -1/100: x_{k+1} = 1/100 against 2/100",
    why="Step 9 estimated the gradient at the old point, and the lemma's sequence descends from the new one.",
    severity="ambiguous",
    modelled=True,
)
def stale_gradient(form: Formula) -> bool:
    """One iteration that perturbs ends where the first step of the lemma's sequence ends."""
    eta, u, old = Fraction(1), Fraction(-1, 100), Fraction(0)
    new = old - eta * u
    after_step = {point: new - eta * -point for point in (old, new)}  # Phi' = -x
    return bool(after_step[form(old, new)] == after_step[new])


@erratum(
    "alg:INEONstocbio",
    printed="for k = 1, ..., K - 1 with inputs x_0, y_0, and y_k^0 = y_{k-1}^D",
    corrected="k from 0, and y_k^0 is the last y^D that was computed",
    forms=(lambda k, y: (1, k - 1), lambda k, y: (0, max(y))),
    witness="K = 6, an escape at every second point: the print reads x_1 first, and y_1^D after an escape",
    why="x_1 is never set and y_0 never used; an escape raises k without an inner loop, so that y_{k-1}^D does not "
    "exist.",
    severity="misprint",
    modelled=True,
)
def outer_loop(form: Formula) -> bool:
    """The loop finds every x_k and y^D that it reads."""
    K, x, y = 6, {0}, {-1}  # y_0 stands at index -1
    k, _ = form(0, y)
    while k < K:
        if k not in x or form(k, y)[1] not in y:
            return False
        y.add(k)
        k += 1
        x.add(k)  # the stocBiO step
        if k % 2 == 1:  # the gradient is small: an escape
            k += 1
            x.add(k)
    return True
