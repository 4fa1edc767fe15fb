"""Lemmas on one hypergradient: how y* and grad Phi move, how inner loops converge, how far AID and ITD are off."""

from __future__ import annotations

import numpy as np

from bilevel_sym import AID, ITD
from bilevel_sym.theories.ji2021.constants import RateConstants
from bilevel_sym.theories.ji2021.paper import STATEMENTS
from bilevel_sym.typing import Floats
from verify.papers.ji2021.regions import ROUNDINGS, Region, compared, decided, rate_constants, starts
from verify.registry import INSIDE, claim
from verify.study import Study
from verify.verdict import Bracket, CheckResult, judged

__all__ = ["aid_error", "ba_inner_rate", "hypergradient_at_y", "itd_error", "response", "smooth", "smooth_by_c"]

REGION = INSIDE

POINTS = 24
MOST_STEPS = 5  # of an inner loop
AID_STEPS = ((1, 1), (2, 1), (1, 2), (4, 2))  # pairs D, N
ITD_STEPS = (1, 2, 4, 8)


@claim("ghadimi2018:lem-response", statements=STATEMENTS)
def response(study: Study) -> CheckResult:
    """y* is Lipschitz in x with constant L/mu.

    |dy/dx| <= L/mu, the spectral norm

    Paper: Lemma 2.2 (b) [ghadimi2018:lem-response]

    >>> response.citation
    'Lemma 2.2 (b) [ghadimi2018:lem-response]'
    """
    return decided(study, lambda region: _response(study, region))


def _response(study: Study, region: Region) -> CheckResult:
    start = starts(study, region, POINTS, "ji2021 response")
    slope = np.linalg.norm(study.kernels.dy_dx(start.x, y0=start.y_star), 2, axis=(-2, -1))
    kappa = float(region.constants.kappa)
    return compared(
        "ghadimi2018:lem-response", study, slope, np.full(slope.shape, kappa), ROUNDINGS * kappa * slope, at=start.x,
        message=f"the norm of dy/dx at {len(slope)} points",
    )  # fmt: skip


@claim("ghadimi2018:lem-error", statements=STATEMENTS)
def hypergradient_at_y(study: Study) -> CheckResult:
    """The hypergradient formula at y in place of y* errs by at most C |y - y*|.

    |f_x - g_xy g_yy^-1 f_y at (x, y) - grad Phi(x)| <= C |y - y*(x)|

    Paper: Lemma 2.2 (a) [ghadimi2018:lem-error]

    >>> hypergradient_at_y.title
    'The hypergradient formula at y in place of y* errs by at most C |y - y*|'
    """
    return decided(study, lambda region: _at_y(study, region))


def _at_y(study: Study, region: Region) -> CheckResult:
    k, start = study.kernels, starts(study, region, POINTS, "ji2021 at y")
    x, y = start.x, start.y
    v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y)[..., None])[..., 0]
    error = np.linalg.norm(k.f_x(x, y) - k.g_xy_v(x, y, v) - k.grad_phi(x, y0=start.y_star), axis=-1)
    off = np.linalg.norm(y - start.y_star, axis=-1)
    return compared(
        "ghadimi2018:lem-error", study, np.where(off > 0, error, np.nan), float(region.constants.C) * off,
        2 * region.rounding, at=x, message=f"at {int((off > 0).sum())} points (x, y)",
    )  # fmt: skip


@claim("ghadimi2018:lem-smooth", statements=STATEMENTS)
def smooth_by_c(study: Study) -> CheckResult:
    """grad Phi is Lipschitz with constant L + (L + C) L/mu + M (tau/mu + rho L/mu^2).

    Paper: Lemma 2.2 (c) [ghadimi2018:lem-smooth]

    >>> smooth_by_c.label
    'ghadimi2018:lem-smooth'
    """
    c = rate_constants(study.constants)
    bound = c.L + (c.L + c.C) * c.kappa + c.M * (c.tau / c.mu + c.rho * c.L / c.mu**2)
    return _smooth(study, "ghadimi2018:lem-smooth", c, bound)


@claim("ji2021:lem-smooth", statements=STATEMENTS)
def smooth(study: Study) -> CheckResult:
    """grad Phi is Lipschitz with constant L_phi.

    L_phi = L + (2 L^2 + tau M)/mu + (rho L M + L^3 + tau M L)/mu^2 + rho L^2 M/mu^3

    Paper: Lemma 2 [ji2021:lem-smooth]
    Deviation: the print has tau M^2 for tau M.

    >>> smooth.citation
    'Lemma 2 [ji2021:lem-smooth]'
    """
    c = rate_constants(study.constants)
    return _smooth(study, "ji2021:lem-smooth", c, c.L_phi(variant=study.variant))


def _smooth(study: Study, label: str, c: RateConstants, formula: float) -> CheckResult:
    """The certified bracket of the largest |Hess Phi| against a formula in certified constants, rounded outward."""
    bound = Bracket(float(formula) * (1 - ROUNDINGS), float(formula) * (1 + ROUNDINGS))
    return judged(
        label, study.smoothness.L_phi, bound, evidence="certified",
        message=f"sup |Hess Phi|; mu = {c.mu:.4g}, L = {c.L:.4g}, M = {c.M:.4g}, tau = {c.tau:.4g}, rho = {c.rho:.4g}",
    )  # fmt: skip


@claim("ghadimi2018:inner-rate", statements=STATEMENTS)
def ba_inner_rate(study: Study) -> CheckResult:
    """t inner steps of BA, of size 2/(mu + L), keep at most ((Q - 1)/(Q + 1))^t of |y - y*|, with Q = L/mu.

    Paper: Inequality [ghadimi2018:inner-rate]

    >>> ba_inner_rate.label
    'ghadimi2018:inner-rate'
    """
    return decided(study, lambda region: _inner(study, region))


def _inner(study: Study, region: Region) -> CheckResult:
    c, start = region.constants, starts(study, region, POINTS, "ji2021 inner")
    alpha, y = 2 / (c.mu + c.L), start.y
    off = np.linalg.norm(y - start.y_star, axis=-1)
    measured, bound = [], []
    for t in range(1, MOST_STEPS + 1):
        y = y - alpha * study.kernels.g_y(start.x, y)
        measured.append(np.where(off > 0, np.linalg.norm(y - start.y_star, axis=-1), np.nan))
        bound.append(c.ba_rate**t * off)
    table = np.array(measured)
    scale = float(np.abs([region.lower, region.upper]).max())
    return compared(
        "ghadimi2018:inner-rate", study, table, np.array(bound), 2 * ROUNDINGS * float(c.kappa) * scale,
        at=np.broadcast_to(start.x, (*table.shape, start.x.shape[1])),
        message=f"1 to {MOST_STEPS} steps from {int((off > 0).sum())} starts; Q = {c.kappa:.4g}",
    )  # fmt: skip


@claim("ji2021:lem-aid", statements=STATEMENTS)
def aid_error(study: Study) -> CheckResult:
    """The AID hypergradient errs by what D descent steps and N steps of conjugate gradients leave.

    |error|^2 <= Gamma (1 - alpha mu)^D |y^0 - y*|^2 + 24 L^2 kappa q^(2N) |v^0 - v*|^2

    Paper: Lemma [ji2021:lem-aid]
    Assumes: alpha = 1/L, and constants that hold along the descent.
    Deviation: the sharp form adds the summands, and not their squares (``RateConstants.aid_error``).

    >>> aid_error.label
    'ji2021:lem-aid'
    """
    return decided(study, lambda region: _aid(study, region))


def _aid(study: Study, region: Region) -> CheckResult:
    c, alpha = region.constants, 1 / float(region.constants.L)
    start = starts(study, region, POINTS, "ji2021 aid")
    off_y, off_v = (np.linalg.norm(a - b, axis=-1) for a, b in ((start.y, start.y_star), (start.v, start.v_star)))
    exact = study.kernels.grad_phi(start.x, y0=start.y_star)
    measured, bound = [], []
    for D, N in AID_STEPS:
        found = AID(D, N, alpha).estimate(study.exact, start.x, y0=start.y, v0=start.v)
        measured.append(np.linalg.norm(found.grad_phi_hat - exact, axis=-1))
        bound.append(c.aid_error(D, N, alpha=alpha, y_error=off_y, v_error=off_v, variant=study.variant))
    return _estimated("ji2021:lem-aid", study, region, start.x, measured, bound, "D, N = 1 to 4, 1 to 2")


@claim("ji2021:lem-itd", statements=STATEMENTS)
def itd_error(study: Study) -> CheckResult:
    """The ITD hypergradient errs by what D descent steps leave of the error of y and of the derivative of y*.

    |error| <= (L (L + mu)/mu r^(D/2) + 2 M (tau mu + L rho)/mu^2 r^((D-1)/2)) |y^0 - y*| + (L M/mu) r^D

    with r = 1 - alpha mu

    Paper: Lemma [ji2021:lem-itd]
    Assumes: alpha = 1/L, and constants that hold along the descent.
    Deviation: the sharp form has r^D and D r^(D-1) for the powers of sqrt(r) (``RateConstants.itd_error``).

    >>> itd_error.label
    'ji2021:lem-itd'
    """
    return decided(study, lambda region: _itd(study, region))


def _itd(study: Study, region: Region) -> CheckResult:
    c, alpha = region.constants, 1 / float(region.constants.L)
    start = starts(study, region, POINTS, "ji2021 itd")
    off = np.linalg.norm(start.y - start.y_star, axis=-1)
    exact = study.kernels.grad_phi(start.x, y0=start.y_star)
    measured, bound = [], []
    for D in ITD_STEPS:
        found = ITD(D, alpha).estimate(study.exact, start.x, y0=start.y)
        measured.append(np.linalg.norm(found.grad_phi_hat - exact, axis=-1))
        bound.append(c.itd_error(D, alpha=alpha, y_error=off, variant=study.variant))
    return _estimated("ji2021:lem-itd", study, region, start.x, measured, bound, "D = 1 to 8")


def _estimated(
    label: str, study: Study, region: Region, x: Floats, measured: list[Floats], bound: list[Floats], steps: str
) -> CheckResult:
    """Errors against bounds, (steps, points)."""
    table = np.array(measured)
    return compared(
        label, study, table, np.array(bound), 2 * region.rounding, at=np.broadcast_to(x, (*table.shape, x.shape[1])),
        message=f"{steps} from {len(x)} starts; kappa = {region.constants.kappa:.4g}",
    )  # fmt: skip
