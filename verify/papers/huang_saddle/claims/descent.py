"""The inexact descent lemma, step by step along real runs."""

from __future__ import annotations

import math
from contextlib import suppress

import numpy as np

from bilevel_sym import AID, Descent
from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import FLOAT64_EPS
from verify import CheckResult, Study
from verify.papers.huang_saddle.measures.regions import Region, judged_over_regions
from verify.papers.huang_saddle.measures.runs import compared, joined_words, recorded, small_step, starts
from verify.registry import INSIDE, claim

REGION = INSIDE

DESCENT_RUNS, ITERATIONS = 9, 8


@claim("lem:descent", also=("unlabelled:descent-inequality",))
def descent(study: Study) -> CheckResult:
    """A step along an inexact hypergradient lowers Phi by a quarter of eta |estimate|^2, up to the error.

    eta/4 |grad_phi_hat|^2 <= Phi(x_k) - Phi(x_(k+1)) + eta |grad Phi - grad_phi_hat|^2 with eta = 1/L_phi

    Paper: Lemma 2.8 [lem:descent]; Equation 2.5 [unlabelled:descent-inequality]
    Assumes: L_phi is a Lipschitz constant of grad Phi over the region.
    Deviation: none. The sharp form takes the smallest certified L_phi over the box, and
    eta/2 |grad Phi|^2 <= Phi(x_k) - Phi(x_(k+1)) + eta/2 |grad Phi - grad_phi_hat|^2, of which the print loses half by
    Young's inequality.
    """
    return judged_over_regions(study, lambda region: _over(study, region))


def _over(study: Study, region: Region) -> CheckResult:
    """With L_phi; where its steps leave the region, with a larger number, which is a Lipschitz constant too."""
    L_phi, origin = _smoothness(study, region)
    result = _steps(study, region, L_phi, origin)
    least = 1 / small_step(region, ITERATIONS)
    if result.decided or least <= L_phi:
        return result
    return _steps(study, region, least, "enlarged so that steps stay inside")


def _steps(study: Study, region: Region, L_phi: float, origin: str) -> CheckResult:
    label, c = "lem:descent", region.constants
    eta = 1 / L_phi
    start = starts(study, region, DESCENT_RUNS, label)
    run = recorded(study, region, Descent(AID(2, 1, 1 / c.ell), eta), start, ITERATIONS, label)
    both = run.usable[:, 1:]
    value = np.full(run.usable.shape, np.nan)
    value[run.usable] = study.kernels.phi(run.x[run.usable], y0=run.y_star[run.usable])
    fall = np.where(both, value[:, :-1] - value[:, 1:], np.nan)
    error = run.error[:, :-1] ** 2
    if study.variant == "sharp":
        measured, slack = eta / 2 * (run.grad_phi[:, :-1] ** 2).sum(axis=-1), eta / 2 * error
    else:
        measured, slack = eta / 4 * (run.grad_phi_hat[:, :-1] ** 2).sum(axis=-1), eta * error
    # of Phi: what rounding leaves of f, and of y*, which is solved for to about eps kappa
    noise = FLOAT64_EPS * (32 * np.abs(value[:, :-1]) + (32 + c.kappa) * c.M * region.scale)
    return compared(
        label, study, measured, fall + slack, noise, at=run.x[:, :-1],
        message=joined_words(f"L_phi = {L_phi:.4g} {origin}, AID with D = 2, N = 1 in {region.name}", run.left_out),
    )  # fmt: skip


def _smoothness(study: Study, region: Region) -> tuple[float, str]:
    """The L_phi of the variant over the region; the certified one holds over the whole box, so over its parts."""
    formula, certified = float(region.constants.L_phi(variant=study.variant)), math.inf
    if study.variant == "sharp":
        with suppress(BilevelError):
            certified = study.smoothness.L_phi.upper
    return (certified, "certified") if 0 < certified < formula else (formula, "by the formula")
