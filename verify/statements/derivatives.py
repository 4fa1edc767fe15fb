"""Bounds on the derivatives of y* and Phi: Appendix A, and each step of the proof that Hess Phi is Lipschitz.

Each bound is a formula of certified constants. What it bounds is certified over the whole box where
``verify.smoothness`` gives a bracket, and otherwise the largest that was seen at many points;
``verify.measures.derivative_checks`` says how both are judged. One function a statement, hence a long file.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np

from bilevel_sym.constants import Constants, MinimaxConstants, Variant
from bilevel_sym.tape.model import Model
from verify.bounds.interval_matrix import Floats
from verify.bounds.tensor_norm import largest_values
from verify.claim import claim
from verify.measures.derivative_checks import (
    bracket_of,
    by_bracket,
    by_sample,
    by_structure,
    ends_of,
    exact,
    is_constant,
    is_zero,
    lipschitz,
    no_curvature,
    of_phi,
    settled,
    steady_hessian,
    steady_response,
    u,
)
from verify.measures.norm_calculus import derived
from verify.measures.regions import Region, decided_over, regions
from verify.measures.responses import Responses, block_values, responses
from verify.study import Study
from verify.verdict import CheckResult, Evidence, judged

__all__ = [
    "bounds",
    "grad_lipschitz",
    "hess_lipschitz",
    "jacobian_third_product",
    "lemma_c1",
    "split",
    "term_1",
    "term_2",
    "term_3",
    "term_4",
    "term_pgp",
    "v_star_bound",
    "y_grad_diff",
    "y_hess_bound",
    "y_hess_lipschitz",
    "y_star_lipschitz",
]

OFF_SOLUTION = 200  # points (x, y) of the box at which the blocks themselves are looked at
ROUNDING = 2.0**-42  # relative error of the norm of a block in float64, generously


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

    >>> bounds.citation
    'Proposition A.1 [pro:bounds]'
    """
    for part, names, constant in _GROUPS:
        yield decided_over(study, partial(_block_bound, study, part, names, constant))
    if study.variant == "printed":
        yield decided_over(study, partial(_lower_gradient, study))
    yield of_phi(
        study, "pro:bounds", "grad_norm", lambda c: c.hypergradient_bound,
        lambda s: s.largest(s["f_x"] + np.einsum("mij,mj->mi", s.response, s["f_y"])),
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
    return x, y, block_values(study, x, y)


def _block_bound(study: Study, part: str, names: tuple[str, ...], constant: str, region: Region) -> CheckResult:
    """The constant is certified over the region; what is seen of the blocks must not contradict it."""
    x, y, blocks = _around(study, region)
    constants = exact(region.constants)
    if part == "inverse Hessian":
        values, bound = 1 / np.linalg.eigvalsh(blocks["g_yy"])[:, 0], 1 / constants.mu
    else:
        values = np.max([largest_values(blocks[name]) for name in names], axis=0)
        bound = getattr(constants, constant)
    worst = int(np.nanargmax(values))
    value, ends, noise = float(values[worst]), ends_of(bound), ROUNDING * float(values[worst])
    contradicted = value - noise > ends.upper
    certified: Evidence = "proved" if is_zero(study.exact.tape, *names) else "certified"
    return judged(
        "pro:bounds",
        value if contradicted else min(value, ends.lower),
        ends,
        noise=noise if contradicted else 0.0,
        evidence="sampled" if contradicted else certified,
        part=part,
        variant=study.variant,
        seed=study.seed,
        n_points=len(values),
        worst_point=study.named(x[worst], y[worst]),
        message=f"the largest of {', '.join(names)} that was seen; the constant is certified over {region.name}",
    )


def _lower_gradient(study: Study, region: Region) -> CheckResult:
    """|g_y| <= M, as printed. Nothing certifies it, except that g = -f in a minimax problem."""
    x, y, blocks = _around(study, region)
    values = largest_values(blocks["g_y"])
    worst = int(np.nanargmax(values))
    value, ends = float(values[worst]), ends_of(exact(region.constants).M)
    minimax = study.problem.kind == "minimax"
    return judged(
        "pro:bounds",
        min(value, ends.lower) if minimax else value,
        ends,
        noise=0.0 if minimax else ROUNDING * value,
        evidence="certified" if minimax else "sampled",
        part="lower gradient",
        variant=study.variant,
        seed=study.seed,
        n_points=len(values),
        worst_point=study.named(x[worst], y[worst]),
        message=f"the largest |g_y| that was seen, over {region.name}" + (", where g = -f" if minimax else ""),
    )


@claim("grad-Lipschitz", also=("eq:phi-smooth", "unlabelled:L-phi"))
def grad_lipschitz(study: Study) -> CheckResult:
    """grad Phi is Lipschitz with constant L_phi.

    L_phi = ell + (2 ell^2 + rho M)/mu + (ell^3 + 2 rho ell M)/mu^2 + rho ell^2 M/mu^3

    Paper: Lemma A.2 [grad-Lipschitz]
    Assumes: Assumption 2.1 [assu:bilevel] over the box, read block by block.
    Deviation: the print has rho M^2/mu where rho M/mu follows; with M < 1 it is too small. L_phi = (ell + rho M/mu)(1 +
    kappa)^2 is attained (one variable on each level, every derivative at its bound), so that "sharp" is this one.

    >>> grad_lipschitz.title
    'grad Phi is Lipschitz with constant L_phi'
    """
    return of_phi(
        study, "grad-Lipschitz", "L_phi", lambda c: c.L_phi(variant=study.variant),
        lambda s: s.largest(_hessians(s)), what="|Hess Phi|", proof=derived()["hess"].norm,
    )  # fmt: skip


def _cross(s: Responses) -> Floats:
    return np.asarray(np.einsum("mik,mjk->mij", s.response, s["f_xy"]))


def _curvature(s: Responses) -> Floats:
    return np.asarray(np.einsum("mijk,mk->mij", s.second, s["f_y"]))


def _between(s: Responses, block: str) -> Floats:
    """dy_dx B dy_dx' for B = f_yy; for g_yyy the last axis stays."""
    axes = "mia,mjb,mab->mij" if block == "f_yy" else "mia,mjb,mabk->mijk"
    return np.asarray(np.einsum(axes, s.response, s.response, s[block]))


def _hessians(s: Responses) -> Floats:
    cross = _cross(s)
    return np.asarray(s["f_xx"] + cross + cross.swapaxes(1, 2) + _curvature(s) + _between(s, "f_yy"))


# ---- the Lipschitz Hessian, term by term -----------------------------------------------------------------------------


@claim("hess-Lipschitz", also=("def-rho-phi", "def-rho-phi-intro"))
def hess_lipschitz(study: Study) -> CheckResult:
    """Hess Phi is Lipschitz with constant rho_phi.

    rho_phi = (rho + nu M/mu + 3 (rho/mu) (ell + rho M/mu)) (1 + kappa)^3

    Paper: Lemma 2.4 [hess-Lipschitz]
    Assumes: Assumption 2.1 [assu:bilevel] over the box, read block by block.
    Deviation: the print is larger by 2 M rho^2 (1 + kappa)^2/mu^2, from a factor 2 that it counts twice; it holds too.

    >>> hess_lipschitz.title
    'Hess Phi is Lipschitz with constant rho_phi'
    """
    return of_phi(
        study, "hess-Lipschitz", "rho_phi", lambda c: c.rho_phi(variant=study.variant),
        lambda s: s.steepest(_hessians(s)), what="change of Hess Phi", still=steady_hessian,
        proof=derived()["hess"].lipschitz,
    )  # fmt: skip


@claim("unlabelled:y-star-lipschitz")
def y_star_lipschitz(study: Study) -> CheckResult:
    """y* is Lipschitz with constant kappa.

    |y*(x) - y*(x')| <= (ell/mu) |x - x'|, that is |dy_dx| <= ell/mu

    Paper: Claim [unlabelled:y-star-lipschitz]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.

    >>> y_star_lipschitz.title
    'y* is Lipschitz with constant kappa'
    """
    label = "unlabelled:y-star-lipschitz"

    def check(region: Region) -> CheckResult:
        bound = exact(region.constants).kappa
        if is_zero(study.exact.tape, "g_xy"):
            return by_structure(study, label, bound, what="dy_dx")
        sample = responses(study, region)
        seen = sample.largest(sample.response)
        return by_sample(study, label, seen, bound, region, what="|dy_dx|")

    return settled(decided_over(study, check), lambda c: c.kappa, derived()["dy_dx"].norm)


@claim("unlabelled:v-star-bound")
def v_star_bound(study: Study) -> CheckResult:
    """The solution of the linear system is bounded.

    |v*| <= M/mu with g_yy v* = f_y at y = y*(x)

    Paper: Claim [unlabelled:v-star-bound]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.

    >>> v_star_bound.title
    'The solution of the linear system is bounded'
    """
    label = "unlabelled:v-star-bound"

    def check(region: Region) -> CheckResult:
        c = exact(region.constants)
        if study.problem.kind == "minimax" or is_zero(study.exact.tape, "f_y"):
            return by_structure(study, label, c.M / c.mu, what="f_y at y*, and with it v*,")
        sample = responses(study, region)
        return by_sample(study, label, sample.largest(sample.v), c.M / c.mu, region, what="|v*|")

    return settled(decided_over(study, check), lambda c: c.M / c.mu, derived()["v"].norm)


@claim("lemma3.4-long")
def split(study: Study) -> CheckResult:
    """The change of Hess Phi is at most (I) + 2 (II) + (III) + (IV).

    (I) f_xx, (II) dy_dx f_yx, (III) d2y_dx2 f_y, (IV) dy_dx f_yy dy_dx': norms of their changes from x to x'

    It is the triangle inequality for the five terms of [phi-hessian], two of which are transposes of each other.

    Paper: Equation B.3 [lemma3.4-long]
    Assumes: f twice and g three times differentiable.
    Deviation: the print puts the factor 2 before (II) here, and inside (II) where it bounds it; we keep it here.

    >>> split.citation
    'Equation B.3 [lemma3.4-long]'
    """
    return decided_over(study, lambda region: _split(study, region))


def _split(study: Study, region: Region) -> CheckResult:
    """Proved by the triangle inequality; the numbers are of the pair in which the two sides are closest."""
    sample = responses(study, region)
    left, right = sample.left, sample.right
    cross, hessians = _cross(sample), _hessians(sample)
    parts = (sample["f_xx"], cross, cross, _curvature(sample), _between(sample, "f_yy"))
    total = np.asarray(sum(largest_values(part[left] - part[right]) for part in parts))
    change = largest_values(hessians[left] - hessians[right])
    size = np.max([largest_values(part)[[left, right]].max(axis=0) for part in parts], axis=0)
    noise = 2.0**-44 * (1 + sample.kappa) ** 2 * size
    with np.errstate(over="ignore"):  # where nothing changes, the noise of large numbers is divided by nothing
        worst = int(np.argmax((change - noise) / np.maximum(total, 1e-300)))
    broken = bool(change[worst] - noise[worst] > total[worst])
    return judged(
        "lemma3.4-long",
        float(change[worst]) if broken else float(min(change[worst], total[worst])),
        float(total[worst]),
        noise=float(noise[worst]) if broken else 0.0,
        evidence="sampled" if broken else "proved",
        variant=study.variant,
        seed=study.seed,
        n_points=len(change),
        worst_point=study.named(sample.x[left[worst]], sample.y[left[worst]]),
        message=f"by the triangle inequality; the pair in which the two sides are closest, over {region.name}",
    )


@claim("unlabelled:term-I")
def term_1(study: Study) -> CheckResult:
    """Term (I), the change of f_xx, is at most rho (1 + kappa) times the distance.

    |f_xx(x, y*(x)) - f_xx(x', y*(x'))| <= rho (1 + ell/mu) |x - x'|

    Paper: Equation B.4 [unlabelled:term-I]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.

    >>> term_1.citation
    'Equation B.4 [unlabelled:term-I]'
    """
    return lipschitz(
        study, "unlabelled:term-I", lambda s: s["f_xx"], lambda c: c.rho * u(c),
        still=lambda t: is_constant(t, "f_xx"), proof="(I)", part="(I)", what="f_xx",
    )  # fmt: skip


@claim("eq:y-grad-diff")
def y_grad_diff(study: Study) -> CheckResult:
    """The Jacobian of y* is Lipschitz.

    |dy_dx(x) - dy_dx(x')| <= (rho/mu) (1 + ell/mu)^2 |x - x'|

    Paper: Equation B.6 [eq:y-grad-diff]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.

    >>> y_grad_diff.title
    'The Jacobian of y* is Lipschitz'
    """
    return lipschitz(
        study, "eq:y-grad-diff", lambda s: s.response, lambda c: c.rho / c.mu * u(c) ** 2,
        still=steady_response, proof="dy_dx", what="dy_dx",
    )  # fmt: skip


@claim("unlabelled:term-II", also=("unlabelled:term-II-split",))
def term_2(study: Study) -> CheckResult:
    """Term (II), the change of dy_dx f_yx, is Lipschitz.

    |dy_dx f_yx (x) - dy_dx f_yx (x')| <= (ell rho/mu) ((1 + kappa) + (1 + kappa)^2) |x - x'|

    Paper: Equation B.7 [unlabelled:term-II]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.
    Deviation: (II) stands without the factor 2 in [lemma3.4-long], which multiplies it by 2, and with it where the
    print bounds it. As printed the bound is twice this one.

    >>> term_2.citation
    'Equation B.7 [unlabelled:term-II]'
    """
    factor = 2 if study.variant == "printed" else 1
    return lipschitz(
        study, "unlabelled:term-II", _cross, lambda c: factor * c.kappa * c.rho * (u(c) + u(c) ** 2),
        still=lambda t: is_zero(t, "f_xy") or is_zero(t, "g_xy") or (is_constant(t, "f_xy") and steady_response(t)),
        proof="(II)", part="(II)", what="dy_dx f_yx",
    )  # fmt: skip


@claim("eq:y-hess-bound")
def y_hess_bound(study: Study) -> CheckResult:
    """The second derivative of y* is bounded.

    |d2y_dx2| <= (rho/mu) (1 + ell/mu)^2

    Paper: Equation B.10 [eq:y-hess-bound]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.

    >>> y_hess_bound.title
    'The second derivative of y* is bounded'
    """

    def bound(c: Constants) -> Any:
        return c.rho / c.mu * u(c) ** 2

    def check(region: Region) -> CheckResult:
        limit = bound(exact(region.constants))
        if no_curvature(study.exact.tape):
            return by_structure(study, "eq:y-hess-bound", limit, what="d2y_dx2")
        sample = responses(study, region)
        return by_sample(study, "eq:y-hess-bound", sample.largest(sample.second), limit, region, what="|d2y_dx2|")

    return settled(decided_over(study, check), bound, derived()["d2y_dx2"].norm)


def _times_third(s: Responses) -> Floats:
    """dy_dx g_yxy, indices (i, j, k): sum over m of dy_dx[i, m] g_xyy[j, m, k]."""
    return np.asarray(np.einsum("mia,mjak->mijk", s.response, s["g_xyy"]))


@claim("unlabelled:jacobian-third-product")
def jacobian_third_product(study: Study) -> CheckResult:
    """The product of dy_dx and g_yxy is Lipschitz.

    |dy_dx g_yxy (x) - dy_dx g_yxy (x')| <= ((ell nu/mu) (1 + kappa) + (rho^2/mu) (1 + kappa)^2) |x - x'|

    Paper: Equation B.12 [unlabelled:jacobian-third-product]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.
    Deviation: the print has 2 rho^2/mu, the factor of term (II) that does not belong here; it holds, and is too large.

    >>> jacobian_third_product.citation
    'Equation B.12 [unlabelled:jacobian-third-product]'
    """
    factor = 2 if study.variant == "printed" else 1
    return lipschitz(
        study, "unlabelled:jacobian-third-product", _times_third,
        lambda c: c.kappa * c.nu * u(c) + factor * c.rho**2 / c.mu * u(c) ** 2,
        still=lambda t: is_zero(t, "g_xyy") or is_zero(t, "g_xy") or (is_constant(t, "g_xyy") and steady_response(t)),
        proof="dy_dx g_yxy", what="dy_dx g_yxy",
    )  # fmt: skip


@claim("eq:term-pgp")
def term_pgp(study: Study) -> CheckResult:
    """The third derivative of g between two Jacobians of y* is Lipschitz.

    |dy_dx g_yyy dy_dx' (x) - the same (x')| <= (2 ell rho^2/mu^2 (1 + kappa)^2 + nu kappa^2 (1 + kappa)) |x - x'|

    Paper: Equation B.13 [eq:term-pgp]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.

    >>> term_pgp.citation
    'Equation B.13 [eq:term-pgp]'
    """
    return lipschitz(
        study, "eq:term-pgp", lambda s: _between(s, "g_yyy"),
        lambda c: 2 * c.kappa * c.rho**2 / c.mu * u(c) ** 2 + c.nu * c.kappa**2 * u(c),
        still=lambda t: is_zero(t, "g_yyy") or is_zero(t, "g_xy") or (is_constant(t, "g_yyy") and steady_response(t)),
        proof="dy_dx g_yyy dy_dx'", what="dy_dx g_yyy dy_dx'",
    )  # fmt: skip


def _second_bound(c: Constants, *, printed: bool) -> Any:
    """A Lipschitz constant of d2y_dx2: (nu/mu + 3 rho^2/mu^2) u^3; the print adds 2 rho^2/mu^2 u^2."""
    extra = 2 * c.rho**2 / c.mu**2 * u(c) ** 2 if printed else 0
    return (c.nu / c.mu + 3 * c.rho**2 / c.mu**2) * u(c) ** 3 + extra


@claim("eq:y-hess-bound-final", also=("eq:y-hess-diff",))
def y_hess_lipschitz(study: Study) -> CheckResult:
    """The second derivative of y* is Lipschitz.

    |d2y_dx2(x) - d2y_dx2(x')| <= (nu/mu + 3 rho^2/mu^2) (1 + kappa)^3 |x - x'|

    Paper: Equation B.14 [eq:y-hess-bound-final]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.
    Deviation: the print is larger by 2 (rho/mu)^2 (1 + kappa)^2, from [unlabelled:jacobian-third-product].

    >>> y_hess_lipschitz.title
    'The second derivative of y* is Lipschitz'
    """
    return lipschitz(
        study, "eq:y-hess-bound-final", lambda s: s.second,
        lambda c: _second_bound(c, printed=study.variant == "printed"), still=_steady_second,
        proof="d2y_dx2", what="d2y_dx2",
    )  # fmt: skip


def _steady_second(tape: Model) -> bool:
    """Whether d2y_dx2 is the same everywhere."""
    third = ("g_xxy", "g_xyy", "g_yyy")
    return no_curvature(tape) or (is_constant(tape, "g_yy", *third) and steady_response(tape))


@claim("unlabelled:term-III", also=("eq:termIII",))
def term_3(study: Study) -> CheckResult:
    """Term (III), the change of d2y_dx2 f_y, is Lipschitz.

    |d2y_dx2 f_y (x) - the same (x')| <= (M (nu/mu + 3 rho^2/mu^2) + rho ell/mu) (1 + kappa)^3 |x - x'|

    Paper: Equation B.15 [unlabelled:term-III]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.
    Deviation: the print is larger by 2 M (rho/mu)^2 (1 + kappa)^2, from [unlabelled:jacobian-third-product].

    >>> term_3.citation
    'Equation B.15 [unlabelled:term-III]'
    """
    minimax = study.problem.kind == "minimax"  # f_y vanishes at y*

    def bound(c: Constants) -> Any:
        return c.M * _second_bound(c, printed=study.variant == "printed") + c.rho * c.kappa * u(c) ** 3

    def still(tape: Model) -> bool:
        zero = minimax or is_zero(tape, "f_y") or no_curvature(tape)
        return zero or (is_constant(tape, "f_y") and _steady_second(tape))

    return lipschitz(
        study, "unlabelled:term-III", _curvature, bound, still=still, proof="(III)", part="(III)", what="d2y_dx2 f_y"
    )


@claim("unlabelled:term-IV")
def term_4(study: Study) -> CheckResult:
    """Term (IV), the change of dy_dx f_yy dy_dx', is Lipschitz.

    |dy_dx f_yy dy_dx' (x) - the same (x')| <= (2 rho kappa^2 (1 + kappa)^2 + rho kappa^2 (1 + kappa)) |x - x'|

    Paper: Equation B.16 [unlabelled:term-IV]
    Assumes: Assumption 2.1 [assu:bilevel] over the box.

    >>> term_4.citation
    'Equation B.16 [unlabelled:term-IV]'
    """
    return lipschitz(
        study, "unlabelled:term-IV", lambda s: _between(s, "f_yy"),
        lambda c: c.rho * c.kappa**2 * (2 * u(c) ** 2 + u(c)),
        still=lambda t: is_zero(t, "f_yy") or is_zero(t, "g_xy") or (is_constant(t, "f_yy") and steady_response(t)),
        proof="(IV)", part="(IV)", what="dy_dx f_yy dy_dx'",
    )  # fmt: skip


# ---- minimax ---------------------------------------------------------------------------------------------------------


@claim("lemC.1", kinds=("minimax",), also=("unlabelled:minimax-L-phi", "unlabelled:minimax-rho-phi"))
def lemma_c1(study: Study) -> Iterator[CheckResult]:
    """Phi of a minimax problem is smooth, and its Hessian is Lipschitz.

    L_phi = ell (1 + kappa) and rho_phi = rho (1 + kappa)^3; sharp: L_phi = ell kappa

    Paper: Lemma C.1 [lemC.1]
    Assumes: Assumption 3.5 [assu:minimax] over the box. The constants are those of the blocks, which is less than the
    joint ell of the assumption.
    Deviation: "sharp" takes the assumption at its word: where all of the Hessian of f is at most ell, ell kappa holds
    (``MinimaxConstants.L_phi``). Both hold, and the smaller one is taken.

    >>> lemma_c1.title
    'Phi of a minimax problem is smooth, and its Hessian is Lipschitz'
    """
    if study.variant == "sharp":
        yield _sharp_minimax(study)
    else:
        yield of_phi(
            study, "lemC.1", "L_phi", _minimax_l_phi,
            lambda s: s.largest(_hessians(s)), part="L_phi", what="|Hess Phi|", proof=derived()["minimax hess"].norm,
        )  # fmt: skip
    yield of_phi(
        study, "lemC.1", "rho_phi", _minimax_rho_phi,
        lambda s: s.steepest(_hessians(s)), part="rho_phi", what="change of Hess Phi",
        still=steady_hessian, proof=derived()["minimax hess"].lipschitz,
    )  # fmt: skip


def _minimax_l_phi(c: Any, variant: Variant = "corrected") -> Any:
    return MinimaxConstants.L_phi(
        c, variant=variant
    )  # the formula wants ell and kappa, which both kinds of constants have


def _minimax_rho_phi(c: Any) -> Any:
    return MinimaxConstants.rho_phi(c)


def _sharp_minimax(study: Study) -> CheckResult:
    from verify.regularity import constants

    joint: Any = exact(constants(study.exact, study.box, reading="joint", seconds=min(2.0, study.left / 4)).valid)
    # the blocks may be so much smaller than the whole Hessian that their formula is the better one
    bound = min(_minimax_l_phi(joint, "sharp"), _minimax_l_phi(exact(study.constants.valid)))
    found = by_bracket(study, "lemC.1", *bracket_of(study, "L_phi"), bound, part="L_phi", what="|Hess Phi|")
    if found is not None:
        return found
    region = replace(next(iter(regions(study))), constants=joint)
    sample = responses(study, region)
    return by_sample(study, "lemC.1", sample.largest(_hessians(sample)), bound, region, part="L_phi", what="|Hess Phi|")
