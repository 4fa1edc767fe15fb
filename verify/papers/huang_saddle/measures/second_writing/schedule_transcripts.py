"""Schedule transcripts: how the schedules put rates, scales and accuracies together, written down once more."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import mpmath
import numpy as np
from flint import arb, arb_mat

from bilevel_sym import Constants, MinimaxConstants
from bilevel_sym.graph.precision import mpmath_digits
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.schedules import ineon, perturbed_aid, perturbed_gdmax, stocbio
from bilevel_sym.theories.huang_saddle.schedules.aid import perturbed_accuracy
from bilevel_sym.theories.huang_saddle.schedules.escape import NEON, PERTURBED, Escape, escape_of
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from bilevel_sym.theories.huang_saddle.schedules.inner import aid_steps
from verify.papers.huang_saddle.measures.agreement import Agreement
from verify.papers.huang_saddle.measures.runs import halving, log_rate_y, rate_v, rate_y
from verify.papers.huang_saddle.measures.second_writing.transcripts import DIGITS, compared_items, steps_needed
from verify.papers.huang_saddle.measures.stochastic import stocbio_bounds
from verify.papers.huang_saddle.measures.stochastic.batch_moments import Estimator

mpf = mpmath.mpf


def of_schedules(c: Constants, minimax: MinimaxConstants) -> Iterator[Agreement]:
    """The four schedules put their parts together as the theorems say, for a single escape.

    >>> c, m = Constants(1.0, 2.0, 1.0, 1.0, 1.0, sigma=1.0), MinimaxConstants(1.0, 2.0, 1.0, M_x=1.0)
    >>> max(item.ratio for item in of_schedules(c, m)) <= 1
    True
    """
    goal = Goal(eps=0.5, delta=0.1, d=3, initial_error=1.5, gap=2.0, episodes=1)
    with warnings.catch_warnings(action="ignore"), mpmath_digits(DIGITS):  # they cannot be run, which is no fault
        variants: tuple[Variant, ...] = ("corrected", "printed")
        for variant in variants:
            smooth = _smoothness(c, variant)
            aid, neon = perturbed_aid(c, goal, variant=variant), ineon(c, goal, variant=variant)
            gdmax = perturbed_gdmax(minimax, goal, variant=variant)
            yield from compared_items(_of_aid(c, smooth, goal, aid), f"perturbed_aid, {variant}, for {c}")
            yield from compared_items(_of_neon(c, smooth, goal, neon), f"ineon, {variant}, for {c}")
            of_max = _smoothness(minimax, variant)
            yield from compared_items(_of_gdmax(minimax, of_max, goal, gdmax), f"perturbed_gdmax, {variant}, {minimax}")
            if c.sigma is not None:
                found = stocbio(c, goal, variant=variant)
                yield from compared_items(_of_stocbio(c, smooth, goal, found), f"stocbio, {variant}, for {c}")
        # with y_0 = y*, and hardly a gradient, what the first move adds to the error is all there is
        solved, flat = replace(goal, initial_error=0.0), replace(c, M=1e-12)
        of_flat = _of_neon(flat, _smoothness(flat, "corrected"), solved, ineon(flat, solved))
        yield from compared_items(of_flat, f"ineon from y* for {flat}")
        yield from compared_items(*_of_slow_neon(flat, solved))
        whole = replace(goal, episodes=None)
        yield from compared_items(_of_all(c, goal, perturbed_aid(c, whole)), f"all escapes of perturbed_aid for {c}")
        of_neon = _of_all(c, goal, ineon(c, whole), part=3 * 40**3, time=NEON.time)
        yield from compared_items(of_neon, f"all escapes of ineon for {c}")
        all_gdmax = perturbed_gdmax(minimax, whole)
        yield from compared_items(_of_all(minimax, goal, all_gdmax), f"all escapes of perturbed_gdmax for {minimax}")
        unknown = MinimaxConstants(minimax.mu, minimax.ell, minimax.rho)
        gdmax = perturbed_gdmax(unknown, goal)
        yield from compared_items(_of_gdmax(unknown, _smoothness(unknown, "corrected"), goal, gdmax), f"{unknown}")
        # so large a kappa that D tells the gap from the gap and F
        slow, near = MinimaxConstants(minimax.mu, minimax.mu * 2**14, minimax.rho), replace(solved, gap=1e-12)
        of_slow = _of_gdmax(slow, _smoothness(slow, "corrected"), near, perturbed_gdmax(slow, near))
        yield from compared_items(of_slow, f"{slow}, with hardly a gap")
        yield from compared_items(*_of_easy_gdmax(minimax, solved))


def _of_slow_neon(flat: Constants, solved: Goal) -> tuple[dict[str, tuple[Any, Any]], str]:
    """Without a gradient, and with so large a kappa and an eps that D and N tell the accuracy from nothing."""
    slow = replace(flat, mu=float(flat.ell) / 2**12, M=1e-30)
    smooth = _smoothness(slow, "corrected")
    goal = replace(solved, eps=smooth.L_phi**2 / smooth.rho_phi / 4, delta=0.9, d=1)
    return _of_neon(slow, smooth, goal, ineon(slow, goal)), f"ineon for {slow}, with a large eps"


def _of_easy_gdmax(c: MinimaxConstants, solved: Goal) -> tuple[dict[str, tuple[Any, Any]], str]:
    """Without a gradient, and with so large an eps that nothing but the halving of the distance asks for steps."""
    easy = replace(c, ell=4 * float(c.mu), M_x=1e-30)
    smooth = _smoothness(easy, "corrected")
    goal = replace(solved, eps=1e6 * smooth.L_phi**2 / smooth.rho_phi)
    return _of_gdmax(easy, smooth, goal, perturbed_gdmax(easy, goal)), f"{easy}, with a large eps"


def _smoothness(c: Constants | MinimaxConstants, variant: Variant) -> Smoothness:
    return Smoothness(float(c.L_phi(variant=variant)), float(c.rho_phi(variant=variant)))


def _of_all(
    c: Constants | MinimaxConstants, goal: Goal, found: Any, *, part: int = 100, time: float = 1.0
) -> dict[str, tuple[Any, Any]]:
    """As many escapes as the gap allows share delta, and iota is the smallest with which they do.

    Each takes half of eps^2/(part iota^3 sqrt(rho_phi eps)): that is F, or for iNEON the decrease.
    """
    L, curvature = mpf(found.L_phi), mpmath.sqrt(mpf(found.rho_phi) * mpf(goal.eps))

    def escapes(iota: Any) -> Any:
        return 2 * goal.gap * part * iota**3 * curvature / mpf(goal.eps) ** 2

    def chance(iota: Any) -> Any:
        one = L * mpmath.sqrt(goal.d) / curvature * iota**2 * mpf(2) ** (8 - time * iota)
        return max(mpf(1), escapes(iota)) * one

    near = mpf("1e-12")
    return {
        "L_phi": (found.L_phi, float(c.L_phi())),
        "iota suffices": (bool(chance(mpf(found.iota) * (1 + near)) <= goal.delta), True),
        "a smaller iota": (bool(chance(mpf(found.iota) * (1 - near)) <= goal.delta), False),
        "episodes": _near(found.episodes, int(escapes(mpf(found.iota)))),
    }


def _iterations(smooth: Smoothness, goal: Goal, escape: Any, decrease: Any, found: Any) -> int:
    """gap (T + 1)/decrease + 25 L_phi gap/(3 eps^2), rounded up; the print has T for T + 1."""
    flat = 25 * mpf(smooth.L_phi) * mpf(goal.gap) / (3 * mpf(goal.eps) ** 2)
    more = 0 if escape.straightforward else mpf(goal.gap) * (escape.T_escape + (found.variant != "printed")) / decrease
    return int(mpmath.ceil(flat + more))


def _near(shipped: int, wanted: int) -> tuple[bool, bool]:
    """Whole numbers that come from a rounded quotient, up to that rounding."""
    return abs(shipped - wanted) <= 1 + 1e-9 * wanted, True


def _of_aid(c: Constants, smooth: Smoothness, goal: Goal, found: Any) -> dict[str, tuple[Any, Any]]:
    escape = escape_of(smooth, goal, PERTURBED)
    accuracy = perturbed_accuracy(goal, escape)
    longest = float(c.hypergradient_bound)
    if found.variant != "printed":
        longest = max(longest + accuracy, escape.r)
    D, N = aid_steps(c, eta=escape.eta, initial_error=goal.initial_error, gradient_bound=longest, accuracy=accuracy)
    algorithm: Any = found.algorithm()
    return {
        "D": (found.D, D), "N": (found.N, N), "tau": (found.tau * float(c.ell), 1.0), "iota": (found.iota, escape.iota),
        "accuracy": (found.accuracy, accuracy), "L_phi": (found.L_phi, smooth.L_phi),
        "K": _near(found.K, _iterations(smooth, goal, escape, mpf(escape.F_escape) / 2, found)),
        "the step that is run": (algorithm.eta, escape.eta), "the D that is run": (algorithm.estimator.D, D),
        "the T that is run": (getattr(algorithm, "T_escape", escape.T_escape), escape.T_escape),
    }  # fmt: skip


def _of_gdmax(c: MinimaxConstants, smooth: Smoothness, goal: Goal, found: Any) -> dict[str, tuple[Any, Any]]:
    escape = escape_of(smooth, goal, PERTURBED)
    accuracy = perturbed_accuracy(goal, escape)
    kappa, q = mpf(float(c.kappa)), 1 - mpf(float(c.mu)) / mpf(float(c.ell))
    if c.M_x is None:  # then the gap bounds the gradient: |grad Phi|^2 <= 2 L_phi (gap + F), and eps for the estimate
        gradient = mpmath.sqrt(2 * mpf(smooth.L_phi) * (mpf(goal.gap) + mpf(escape.F_escape))) + mpf(goal.eps)
    else:
        gradient = mpf(float(c.M_x)) * (1 + kappa if found.variant == "printed" else 1)
    longest = gradient if found.variant == "printed" else max(gradient, mpf(escape.r))
    error = mpf(float(c.ell)) * (mpf(goal.initial_error) + 2 * mpf(escape.eta) * kappa * longest)
    rate = mpmath.sqrt(q)
    D = max(steps_needed(error, accuracy, rate), steps_needed(1, mpf("0.5"), rate)) if q else 1
    return {
        "D": (found.D, D), "tau": (found.tau * float(c.ell), 1.0), "iota": (found.iota, escape.iota),
        "accuracy": (found.accuracy, accuracy), "eta": (found.eta * smooth.L_phi, 1.0),
        "K": _near(found.K, _iterations(smooth, goal, escape, mpf(escape.F_escape) / 2, found)),
    }  # fmt: skip


def _neon_accuracies(c: Constants, smooth: Smoothness, goal: Goal, escape: Escape, decrease: Any) -> tuple[Any, Any]:
    """What iNEON asks of its estimates: the error of the gradient, and the distance of y."""
    eps, iota = mpf(goal.eps), mpf(escape.iota)
    parts = (
        mpmath.sqrt(17) / (40 * iota**2), 1 / (16 * iota**2 * mpf(2) ** (iota / 4)),
        (mpmath.cbrt(9) - 2) / (8 * iota), 1 / (750 * iota**2),
    )  # fmt: skip
    of_phi = min(eps**2 / (750 * iota**3 * mpf(smooth.L_phi)), decrease / 4)
    return min(parts) * eps, of_phi / mpf(float(c.M))


def _of_neon(c: Constants, smooth: Smoothness, goal: Goal, found: Any) -> dict[str, tuple[Any, Any]]:
    printed = found.variant == "printed"
    from_blocks = Smoothness(float(c.ell), float(c.rho)) if printed else None
    escape = escape_of(smooth, goal, NEON, iota_from=from_blocks)
    iota, length = mpf(escape.iota), mpmath.sqrt(mpf(goal.eps) / mpf(smooth.rho_phi))
    step, decrease = length / (40 * iota), mpf(goal.eps) * length / (3 * 40**3 * iota**3)
    accuracy, of_y = _neon_accuracies(c, smooth, goal, escape, mpf("inf") if printed else decrease)
    start, longest = mpf(goal.initial_error), mpf(float(c.hypergradient_bound))
    if not printed:
        start += mpf(escape.eta) * mpf(float(c.drift)) * mpf(escape.r)
        longest = 2 * (longest + accuracy)
    D, N = aid_steps(
        c, eta=escape.eta, initial_error=float(start), gradient_bound=float(longest), accuracy=float(accuracy),
        accuracy_y=float(of_y),
    )  # fmt: skip
    sure = decrease if printed else decrease / 2
    return {
        "step": (found.step, step), "decrease": (found.decrease, decrease), "accuracy": (found.accuracy, accuracy),
        "accuracy of y": (found.accuracy_y, of_y), "D": (found.D, D), "N": (found.N, N), "iota": (found.iota, iota),
        "T": (found.T_escape, escape.T_escape), "F": (found.F_escape, escape.F_escape),
        "K": _near(found.K, _iterations(smooth, goal, escape, sure, found)),
        "the step of an escape": (found.escape().escape_step, step), "tau": (found.tau * float(c.ell), 1.0),
    }  # fmt: skip


def _of_stocbio(c: Constants, smooth: Smoothness, goal: Goal, found: Any) -> dict[str, tuple[Any, Any]]:
    """Steps and depths that do not depend on how delta is shared; the print leaves iota out of the escape step."""
    mu, ell, printed = float(c.mu), float(c.ell), found.variant == "printed"
    length = mpmath.sqrt(mpf(goal.eps) / mpf(smooth.rho_phi))
    return {
        "alpha": (found.alpha * (ell + mu), 2.0), "beta": (found.beta * smooth.L_phi, 0.25),
        "the step of the series": (found.eta_neumann * ell, 1.0), "tau": (found.tau * ell, 1.0),
        "step": (found.step * (1 if printed else found.iota), length / 80),
        "decrease": (found.decrease * found.iota**3, mpf(goal.eps) * length / (3 * 80**3)),
        "batches of the series": (len(found.neumann_batches), found.Q),
        "the first batch of the series": (found.neumann_batches[0], mpf(found.B) * found.Q),
        "the printed lines are run": (_runs_as_printed(found), printed),
    }  # fmt: skip


def _runs_as_printed(found: Any) -> bool:
    """Whether the solver follows the print; asked with batches that it can be made with."""
    drawn = replace(found, S=1, B=1, batch_f=1, batch_g=1)
    return bool(drawn.algorithm().as_printed)


def of_bounds(c: Constants) -> Iterator[Agreement]:
    """Rates of the inner loops, and the bounds on bias and variance of the stochastic hypergradient.

    >>> max(item.ratio for item in of_bounds(Constants(1.0, 2.0, 1.0, 1.0, 1.0, sigma=1.0))) <= 1
    True
    """
    with mpmath_digits(DIGITS):
        mu, ell, rho, M = (mpf(float(value)) for value in (c.mu, c.ell, c.rho, c.M))
        kappa = ell / mu
        keeps, root = 1 - 1 / kappa, mpmath.sqrt(kappa)
        s = (root - 1) / (root + 1)
        estimator = Estimator(float(mpf("0.5") / ell), 3, 7, (1,) * 4)
        # of g_xy through 7 rows, of f_y and f_x through 3, of the series through 5; each without its weight
        terms = (kappa * M) ** 2 / 7, (kappa * M) ** 2 / 3, M**2 / 3, (mpf("0.5") * kappa * M) ** 2 / 5
        rest, sharp = kappa * M * keeps**4, kappa * M * (1 - mpf("0.5") / kappa) ** 5
        away = arb(0.75)
        mean_square = 4 * terms[0] + 8 * terms[1] + 2 * terms[2] + 16 * terms[3] + 16 * rest**2
        best = terms[0] + 2 * terms[1] + 2 * terms[2] + 2 * terms[3]
        pairs: dict[str, tuple[Any, Any]] = {
            "rate of y": (rate_y(c, "corrected"), mpmath.sqrt(keeps)),
            "sharp rate of y": (rate_y(c, "sharp"), keeps),
            "rate of v": (float(rate_v(float(kappa), 3, "corrected")), 2 * root * s**3),
            "sharp rate of v": (
                float(rate_v(float(kappa), 3, "sharp")), min(mpf(1), 2 * root * s**3 / (1 + s**6)),
            ),
            "slope in y": (_number(stocbio_bounds.slope_in_y(c)), (1 + kappa) * (ell + M * rho / mu)),
            "rest of the series": (_number(stocbio_bounds.series_rest(c, None, 4)), rest),
            "sharp rest of the series": (_number(stocbio_bounds.series_rest(c, estimator.eta, 4)), sharp),
            "variance": (_number(stocbio_bounds.variance_bound(c, estimator, 5)), best),
            "mean square error": (
                _number(stocbio_bounds.error_bound(c, estimator, 5, away, "corrected")), mean_square + mpf("0.6"),
            ),
            "printed mean square error": (
                _number(stocbio_bounds.error_bound(c, estimator, 5, away, "printed")), mean_square + mpf("0.5625"),
            ),
            "sharp mean square error": (
                _number(stocbio_bounds.error_bound(c, estimator, 5, away, "sharp")), best + (mpf("0.75") + sharp) ** 2,
            ),
            "distance": (_number(stocbio_bounds.distance([arb(3), arb(1)], [arb(0), arb(5)])), mpf(5)),
            "inner product": (_number(stocbio_bounds.inner(arb_mat(2, 1, [1, 2]), arb_mat(2, 1, [3, 5]))), mpf(13)),
        }  # fmt: skip
        if keeps:
            pairs["logarithm of the rate"] = (log_rate_y(c, "corrected"), mpmath.log(keeps) / 2)
            pairs["sharp logarithm of the rate"] = (log_rate_y(c, "sharp"), mpmath.log(keeps))
            D, N = halving(c, "corrected")
            pairs["halving"] = (c.aid_contracts(D, N), True)
            pairs["halving with less"] = (c.aid_contracts(D - 1, N) and D > 1, False)
        yield from compared_items(pairs, str(c))


def _number(ball: Any) -> Any:
    return mpf(np.float64(float(ball)))
