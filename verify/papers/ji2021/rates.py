"""The theorems: BA, AID-BiO and ITD-BiO run with the step sizes of their theorems, and the mean of |grad Phi|^2."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from bilevel_sym import solve
from bilevel_sym.theories.ji2021.paper import STATEMENTS
from bilevel_sym.theories.ji2021.schedules import RateSchedule, aid_bio, ba, itd_bio
from bilevel_sym.typing import Floats
from verify.papers.ji2021.regions import ROUNDINGS, Region, Starts, compared, decided, starts
from verify.registry import INSIDE, claim
from verify.study import Study
from verify.verdict import CheckResult, inconclusive

__all__ = ["aid_rate", "ba_rate", "itd_rate"]

REGION = INSIDE

RUNS, ITERATIONS = 9, 20
MOST_WORK = 200_000  # inner steps of all runs together
ACCURACY = 0.05  # of the mean of |grad Phi|^2 at the starts, for eps

Schedule = Callable[[Region, float, float], RateSchedule]


@claim("ji2021:thm-aid", statements=STATEMENTS)
def aid_rate(study: Study) -> CheckResult:
    """AID-BiO: the mean of |grad Phi(x_k)|^2 is at most (64 L_phi (Phi(x_0) - inf Phi) + 5 Delta_0)/K.

    alpha = 1/L, beta = 1/(8 L_phi), D and N from ``aid_bio``; judged for K = 1 to 20 with Phi(x_K) in place of inf Phi,
    which is at least as large, so that more is asked than the theorem says.

    Paper: Theorem 1 [ji2021:thm-aid]

    >>> aid_rate.citation
    'Theorem 1 [ji2021:thm-aid]'
    """
    return _rate(study, "ji2021:thm-aid", lambda region, eps, distance: aid_bio(
        region.constants, variant=study.variant
    ))  # fmt: skip


@claim("ji2021:thm-itd", statements=STATEMENTS)
def itd_rate(study: Study) -> CheckResult:
    """ITD-BiO: the mean of |grad Phi(x_k)|^2 is at most 16 L_phi (Phi(x_0) - inf Phi)/K + 2 eps/3.

    alpha = 1/L, beta = 1/(4 L_phi), D from ``itd_bio``; judged like Theorem 1, while the warm starts are as near to y*
    as D was chosen for.

    Paper: Theorem 2 [ji2021:thm-itd]

    >>> itd_rate.citation
    'Theorem 2 [ji2021:thm-itd]'
    """
    return _rate(study, "ji2021:thm-itd", lambda region, eps, distance: itd_bio(
        region.constants, eps=eps, distance=distance, variant=study.variant
    ))  # fmt: skip


@claim("ghadimi2018:thm-ba", statements=STATEMENTS)
def ba_rate(study: Study) -> CheckResult:
    """BA: the mean of |grad Phi(x_k)|^2 is at most 2 L_phi (Phi(x_0) - inf Phi)/K + eps.

    Inner steps of size 2/(mu + L), outer steps of size 1/L_phi, as many inner steps as ``ba`` says.

    Paper: Theorem 2.1 [ghadimi2018:thm-ba]
    Deviation: as many inner steps at every k, and no constraint on x.

    >>> ba_rate.citation
    'Theorem 2.1 [ghadimi2018:thm-ba]'
    """
    return _rate(study, "ghadimi2018:thm-ba", lambda region, eps, distance: ba(
        region.constants, study.exact.n, eps=eps, distance=distance, variant=study.variant
    ))  # fmt: skip


def _rate(study: Study, label: str, schedule: Schedule) -> CheckResult:
    return decided(study, lambda region: _over(study, region, label, schedule))


def _over(study: Study, region: Region, label: str, schedule: Schedule) -> CheckResult:
    start = starts(study, region, RUNS, label)
    slope = (study.kernels.grad_phi(start.x, y0=start.y_star) ** 2).sum(axis=-1)
    eps, distance = ACCURACY * float(slope.mean()), _room(region, start)
    if not eps > 0:
        return inconclusive(label, f"grad Phi vanishes at all starts in {region.name}")
    plan = schedule(region, eps, distance)
    if plan.D * RUNS * ITERATIONS > MOST_WORK:
        return inconclusive(label, f"D = {plan.D} steps for each estimate in {region.name}")
    return _run(study, region, label, plan, start, distance)


def _room(region: Region, start: Starts) -> float:
    """The largest |y^0 - y*| at the starts; where all are exact, a part of the region's width."""
    off = float(np.linalg.norm(start.y - start.y_star, axis=-1).max())
    return off or 0.01 * float((region.upper - region.lower)[region.d :].min())


def _run(
    study: Study, region: Region, label: str, plan: RateSchedule, start: Starts, distance: float
) -> CheckResult:  # fmt: skip
    """Run, and compare the mean over the first K iterations with the rate, for each K up to where a run leaves."""
    t = solve(study.exact, plan.algorithm(), start.x, y0=start.y, v0=start.v, steps=ITERATIONS, rng=0).trajectory
    warm = np.concatenate([start.y[:, None], t.y[:, :-1]], axis=1)
    y_star, phi, grad = _exact(study, region, t.x)
    off = np.linalg.norm(warm - y_star, axis=-1)
    near = region.holds(t.x, y_star, off) & ((off <= distance) | (plan.floor == 0))
    usable = np.logical_and.accumulate(near, axis=1)
    count = np.arange(1, ITERATIONS + 1)
    squares = (grad**2).sum(axis=-1)
    mean = np.where(usable[:, 1:], np.cumsum(squares[:, :-1], axis=1) / count, np.nan)
    first = ((start.y - start.y_star) ** 2 + (start.v - start.v_star) ** 2).sum(axis=-1)
    bound = (plan.slope * (phi[:, :1] - phi[:, 1:]) + plan.start * first[:, None]) / count + plan.floor
    noise = plan.slope * ROUNDINGS * (np.abs(phi[:, :1]) + np.abs(phi[:, 1:])) / count + ROUNDINGS * mean
    steps = f"D = {plan.D}" + ("" if plan.N is None else f", N = {plan.N}")
    return compared(
        label, study, mean, bound, noise, at=t.x[:, 1:],
        message=f"{len(t.x)} runs with {steps}, outer step {plan.beta:.3g}",
    )  # fmt: skip


def _exact(study: Study, region: Region, x: Floats) -> tuple[Floats, Floats, Floats]:
    """y*, Phi and grad Phi along the runs; nan from where x leaves the region."""
    inside = ((x >= region.lower[: region.d]) & (x <= region.upper[: region.d])).all(axis=-1)
    kept = np.logical_and.accumulate(inside, axis=1)
    y = np.full((*x.shape[:2], study.exact.n), np.nan)
    phi, grad = np.full(x.shape[:2], np.nan), np.full(x.shape, np.nan)
    if kept.any():
        y[kept] = study.kernels.y_star(x[kept])
        phi[kept] = study.kernels.phi(x[kept], y0=y[kept])
        grad[kept] = study.kernels.grad_phi(x[kept], y0=y[kept])
    return y, phi, grad
