"""Schedule transcripts: how the schedules put rates, scales and accuracies together, written down once more."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from typing import Any

import mpmath

from bilevel_sym.constants import Constants, MinimaxConstants
from bilevel_sym.schedules import ineon, perturbed_aid, perturbed_gdmax, stocbio
from bilevel_sym.schedules.aid import perturbed_accuracy
from bilevel_sym.schedules.escape import NEON, PERTURBED, Escape, escape_of
from bilevel_sym.schedules.goal import Goal, Smoothness
from bilevel_sym.schedules.inner import aid_steps
from bilevel_sym.schedules.neon import neon_estimate
from verify.measures.agreement import Agreement
from verify.measures.transcripts import DIGITS, compared_items, steps_needed

__all__ = ["of_schedules"]

mpf = mpmath.mpf


def of_schedules(c: Constants, minimax: MinimaxConstants) -> Iterator[Agreement]:
    """The four schedules put their parts together as the theorems say, for a single escape.

    >>> c, m = Constants(1.0, 2.0, 1.0, 1.0, 1.0, sigma=1.0), MinimaxConstants(1.0, 2.0, 1.0, M_x=1.0)
    >>> max(item.ratio for item in of_schedules(c, m)) <= 1
    True
    """
    asked: dict[str, Any] = {"eps": 0.5, "delta": 0.1, "d": 3, "initial_error": 1.5, "gap": 2.0, "episodes": 1}
    goal = Goal(**asked)
    with warnings.catch_warnings(action="ignore"), mpmath.workdps(DIGITS):  # they cannot be run, which is no fault
        smooth = Smoothness(float(c.L_phi()), float(c.rho_phi()))
        of_gdmax = Smoothness(float(minimax.L_phi()), float(minimax.rho_phi()))
        aid, gdmax, neon = perturbed_aid(c, **asked), perturbed_gdmax(minimax, **asked), ineon(c, **asked)
        yield from compared_items(_of_aid(c, smooth, goal, aid), f"perturbed_aid for {c}")
        yield from compared_items(_of_gdmax(minimax, of_gdmax, goal, gdmax), f"perturbed_gdmax for {minimax}")
        yield from compared_items(_of_neon(c, smooth, goal, neon), f"ineon for {c}")
        if c.sigma is not None:
            yield from compared_items(_of_stocbio(c, smooth, goal, stocbio(c, **asked)), f"stocbio for {c}")


def _iterations(smooth: Smoothness, goal: Goal, escape: Any, decrease: Any) -> int:
    """gap (T + 1)/decrease + 25 L_phi gap/(3 eps^2), rounded up."""
    flat = 25 * mpf(smooth.L_phi) * mpf(goal.gap) / (3 * mpf(goal.eps) ** 2)
    more = 0 if escape.straightforward else mpf(goal.gap) * (escape.T_escape + 1) / decrease
    return int(mpmath.ceil(flat + more))


def _near(shipped: int, wanted: int) -> tuple[bool, bool]:
    """Whole numbers that come from a rounded quotient, up to that rounding."""
    return abs(shipped - wanted) <= 1 + 1e-9 * wanted, True


def _of_aid(c: Constants, smooth: Smoothness, goal: Goal, found: Any) -> dict[str, tuple[Any, Any]]:
    escape = escape_of(smooth, goal, PERTURBED)
    accuracy = perturbed_accuracy(goal, escape)
    longest = max(float(c.hypergradient_bound) + accuracy, escape.r)
    D, N = aid_steps(c, eta=escape.eta, initial_error=1.5, gradient_bound=longest, accuracy=accuracy)
    algorithm: Any = found.algorithm()
    return {
        "D": (found.D, D), "N": (found.N, N), "tau": (found.tau * float(c.ell), 1.0), "iota": (found.iota, escape.iota),
        "accuracy": (found.accuracy, accuracy), "L_phi": (found.L_phi, smooth.L_phi),
        "K": _near(found.K, _iterations(smooth, goal, escape, mpf(escape.F_escape) / 2)),
        "the step that is run": (algorithm.eta, escape.eta), "the D that is run": (algorithm.estimator.D, D),
        "the T that is run": (getattr(algorithm, "T_escape", escape.T_escape), escape.T_escape),
    }  # fmt: skip


def _of_gdmax(c: MinimaxConstants, smooth: Smoothness, goal: Goal, found: Any) -> dict[str, tuple[Any, Any]]:
    escape = escape_of(smooth, goal, PERTURBED)
    accuracy = perturbed_accuracy(goal, escape)
    kappa, q = mpf(float(c.kappa)), 1 - mpf(float(c.mu)) / mpf(float(c.ell))
    longest = max(float(c.M_x), escape.r)
    error = mpf(float(c.ell)) * (mpf("1.5") + 2 * mpf(escape.eta) * kappa * longest)
    rate = mpmath.sqrt(q)
    D = max(steps_needed(error, accuracy, rate), steps_needed(1, mpf("0.5"), rate)) if q else 1
    return {
        "D": (found.D, D), "tau": (found.tau * float(c.ell), 1.0), "iota": (found.iota, escape.iota),
        "accuracy": (found.accuracy, accuracy), "eta": (found.eta * smooth.L_phi, 1.0),
        "K": _near(found.K, _iterations(smooth, goal, escape, mpf(escape.F_escape) / 2)),
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
    escape = escape_of(smooth, goal, NEON)
    iota, length = mpf(escape.iota), mpmath.sqrt(mpf(goal.eps) / mpf(smooth.rho_phi))
    step, decrease = length / (40 * iota), mpf(goal.eps) * length / (3 * 40**3 * iota**3)
    accuracy, of_y = _neon_accuracies(c, smooth, goal, escape, decrease)
    start = mpf("1.5") + mpf(escape.eta) * mpf(float(c.drift)) * mpf(escape.r)
    longest = 2 * (mpf(float(c.hypergradient_bound)) + accuracy)
    D, N = aid_steps(
        c, eta=escape.eta, initial_error=float(start), gradient_bound=float(longest), accuracy=float(accuracy),
        accuracy_y=float(of_y),
    )  # fmt: skip
    printed = neon_estimate(c, smooth, goal, escape, variant="printed")
    return {
        "step": (found.step, step), "decrease": (found.decrease, decrease), "accuracy": (found.accuracy, accuracy),
        "accuracy of y": (found.accuracy_y, of_y), "D": (found.D, D), "N": (found.N, N),
        "T": (found.T_escape, escape.T_escape), "F": (found.F_escape, escape.F_escape),
        "K": _near(found.K, _iterations(smooth, goal, escape, decrease / 2)),
        "printed accuracy": (printed.accuracy, accuracy),
        "the step of an escape": (found.escape().escape_step, step),
    }  # fmt: skip


def _of_stocbio(c: Constants, smooth: Smoothness, goal: Goal, found: Any) -> dict[str, tuple[Any, Any]]:
    """Steps and depths that do not depend on how delta is shared."""
    mu, ell = float(c.mu), float(c.ell)
    algorithm: Any = found.algorithm()
    return {
        "alpha": (found.alpha * (ell + mu), 2.0), "beta": (found.beta * smooth.L_phi, 0.25),
        "the step of the series": (found.eta_neumann * ell, 1.0), "tau": (found.tau * ell, 1.0),
        "step": (found.step * found.iota, mpmath.sqrt(mpf(goal.eps) / mpf(smooth.rho_phi)) / 80),
        "batches of the series": (len(found.neumann_batches), found.Q),
        "the D that is run": (algorithm.D, found.D), "the Q that is run": (algorithm.Q, found.Q),
    }  # fmt: skip
