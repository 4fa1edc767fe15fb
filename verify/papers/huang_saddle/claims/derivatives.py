"""Bounds on the first derivatives of Phi: Appendix A, and its counterpart for minimax problems.

Each bound is a formula of certified constants. What it bounds is certified over the whole box where
``verify.smoothness`` gives a bracket, and otherwise the largest that was seen at many points;
``verify.papers.huang_saddle.measures.derivative_checks`` says how both are judged.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, cast

import numpy as np

from bilevel_sym import MinimaxConstants
from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.typing import Floats
from verify.enclosures.tensor_norm import largest_values
from verify.papers.huang_saddle.measures import derivative_checks as checks
from verify.papers.huang_saddle.measures.norm_calculus import derived
from verify.papers.huang_saddle.measures.regions import Region, judged_over_regions
from verify.papers.huang_saddle.measures.responses import responses
from verify.points.derivatives_at import block_values
from verify.registry import ALL_Y, INSIDE, claim
from verify.study import Study
from verify.verdict import Bracket, CheckResult, Evidence, judged

REGION = INSIDE

OFF_SOLUTION = 200  # points (x, y) of the box at which the blocks themselves are looked at
NORM_ERROR = 2.0**-42  # relative error of the norm of a block in float64, generously


# ---- Appendix A ------------------------------------------------------------------------------------------------------

_GROUPS: tuple[tuple[str, tuple[str, ...], str], ...] = (
    ("inverse Hessian", ("g_yy",), "mu"),
    ("first order", ("f_x", "f_y"), "M"),
    ("second order", ("f_xx", "f_xy", "f_yy", "g_xy", "g_yy"), "ell"),
    ("third order", ("g_xxy", "g_xyy", "g_yyy"), "rho"),
)


@claim(
    "pro:bounds",
    also=(
        "unlabelled:bound-inverse-hessian",
        "unlabelled:bound-first-order",
        "unlabelled:bound-second-order",
        "unlabelled:bound-third-order",
    ),
)
def bounds(study: Study) -> Iterator[CheckResult]:
    """The derivatives of f and g are bounded by the constants.

    |g_yy^-1| <= 1/mu; |f_x|, |f_y| <= M; second derivatives of f and g_xy, g_yy <= ell; g_xxy, g_yxy, g_yyy <= rho

    Paper: Proposition A.1 [pro:bounds]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.
    Deviation: the print bounds |g_y| by M too, which Assumption 2.1 does not give: only f is M-Lipschitz, and |g_y| of
    a strongly convex g grows without end. The last part, |grad Phi| <= M + M ell/mu, is what the proofs draw from it.
    """
    for part, names, constant in _GROUPS:
        yield judged_over_regions(study, partial(_block_bound, study, part, names, constant))
    if study.variant == "printed":
        yield judged_over_regions(study, partial(_lower_gradient, study))
    yield checks.judged_phi_derivative(
        study, "pro:bounds", "grad_norm", lambda c: c.hypergradient_bound,
        lambda s: s.largest(s.grad_phi),
        part="hypergradient", what="|grad Phi|", proof=derived()["grad"].norm,
    )  # fmt: skip


def _around(study: Study, region: Region) -> tuple[Floats, Floats, dict[str, Floats]]:
    """Points (x, y) of the region and the blocks there; y stays at y*(x) where the region does not bound it."""
    rng, d = study.rng("bounds"), study.exact.d
    sample = responses(study, region)
    if not np.isfinite(region.upper - region.lower).all():
        return sample.x, sample.y, dict(sample.blocks)
    unit = rng.random((OFF_SOLUTION, len(region.lower)))
    half = len(unit) // 2
    unit[:half] = np.round(unit[:half])  # corners, where the largest values often are
    points = np.clip(region.lower + (region.upper - region.lower) * unit, region.lower, region.upper)
    x, y = np.concatenate([points[:, :d], sample.x]), np.concatenate([points[:, d:], sample.y])
    return x, y, block_values(study.kernels, x, y)


def _block_bound(study: Study, part: str, names: tuple[str, ...], constant: str, region: Region) -> CheckResult:
    """The constant is certified over the region; what is seen of the blocks must not contradict it."""
    x, y, blocks = _around(study, region)
    constants = checks.exact(region.constants)
    if part == "inverse Hessian":
        values, bound = 1 / np.linalg.eigvalsh(blocks["g_yy"])[:, 0], 1 / constants.mu
    else:
        values = np.max([largest_values(blocks[name]) for name in names], axis=0)
        bound = getattr(constants, constant)
    certified: Evidence = "proved" if checks.is_zero(study.exact.tape, *names) else "certified"
    message = f"the largest of {', '.join(names)} that was seen; the constant is certified over {region.name}"
    return _largest(study, part, region, (x, y), values, checks.as_bracket(bound), certified, message)


def _lower_gradient(study: Study, region: Region) -> CheckResult:
    """|g_y| <= M, as printed. Nothing certifies it, except that g = -f in a minimax problem."""
    x, y, blocks = _around(study, region)
    minimax = study.problem.kind == "minimax"
    message = f"the largest |g_y| that was seen, over {region.name}" + (", where g = -f" if minimax else "")
    values, ends = largest_values(blocks["g_y"]), checks.as_bracket(checks.exact(region.constants).M)
    certified: Evidence = "certified" if minimax else "sampled"
    return _largest(study, "lower gradient", region, (x, y), values, ends, certified, message)


def _largest(
    study: Study, part: str, region: Region, at: tuple[Floats, Floats], values: Floats, ends: Bracket,
    certified: Evidence, message: str,
) -> CheckResult:  # fmt: skip
    """The largest value that was seen, against the bound; unless it contradicts that, the evidence is the bound's."""
    worst = first_largest(values, skip_nan=True)
    value, noise = float(values[worst]), NORM_ERROR * float(values[worst])
    sampled = certified == "sampled" or value - noise > ends.upper
    return judged(
        "pro:bounds", value if sampled else min(value, ends.lower), ends, noise=noise if sampled else 0.0,
        evidence="sampled" if sampled else certified, part=part, seed=study.seed, n_points=len(values),
        worst_point=study.named(at[0][worst], at[1][worst]), message=message, region=ALL_Y + region.name,
    )  # fmt: skip


@claim("grad-Lipschitz", also=("eq:phi-smooth", "unlabelled:L-phi"))
def grad_lipschitz(study: Study) -> CheckResult:
    """grad Phi is Lipschitz with constant L_phi.

    L_phi = ell + (2 ell^2 + rho M)/mu + (ell^3 + 2 rho ell M)/mu^2 + rho ell^2 M/mu^3

    Paper: Lemma A.2 [grad-Lipschitz]
    Assumes: Assumption 2.1 [assu:bilevel] over the box, read block by block.
    Deviation: the print has rho M^2/mu where rho M/mu follows; with M < 1 it is too small. L_phi = (ell + rho M/mu)(1 +
    kappa)^2 is attained over a box (``zoo.get("block_extremal")``). "sharp" also takes (ell + rho M/mu) kappa^2 from
    constants that are read jointly, which follows from |(I, dy_dx)| <= kappa, and judges by the smaller of the two.
    """
    return checks.judged_phi_derivative_best(
        study, "grad-Lipschitz", "L_phi", lambda c: c.L_phi(variant=study.variant),
        lambda s: s.largest(s.hess_phi), what="|Hess Phi|", proof=("hess", "norm"),
    )  # fmt: skip


# ---- minimax ---------------------------------------------------------------------------------------------------------


@claim("lemC.1", kinds=("minimax",), also=("unlabelled:minimax-L-phi", "unlabelled:minimax-rho-phi"))
def lemma_c1(study: Study) -> Iterator[CheckResult]:
    """Phi of a minimax problem is smooth, and its Hessian is Lipschitz.

    L_phi = ell (1 + kappa) and rho_phi = rho (1 + kappa)^3; sharp: L_phi = ell kappa and rho_phi = rho kappa^3

    Paper: Lemma C.1 [lemC.1]
    Assumes: Assumption 3.5 [assu:minimax] over the box. The constants are those of the blocks, which is less than the
    joint ell of the assumption.
    Deviation: "sharp" takes the assumption at its word: where all of the Hessian of f is at most ell, and all of its
    third derivatives at most rho, ell kappa and rho kappa^3 hold (``MinimaxConstants``). Both hold, and the smaller
    one is taken.
    """
    yield checks.judged_phi_derivative_best(
        study, "lemC.1", "L_phi", lambda c: MinimaxConstants.L_phi(cast(Any, c), variant=study.variant),
        lambda s: s.largest(s.hess_phi), part="L_phi", what="|Hess Phi|", proof=("minimax hess", "norm"),
    )  # fmt: skip
    yield checks.judged_phi_derivative_best(
        study, "lemC.1", "rho_phi", lambda c: MinimaxConstants.rho_phi(cast(Any, c), variant=study.variant),
        lambda s: s.steepest(s.hess_phi), part="rho_phi", what="change of Hess Phi",
        still=checks.constant_hessian, proof=("minimax hess", "lipschitz"),
    )  # fmt: skip
