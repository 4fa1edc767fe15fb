"""The paper's definitions, assumptions, remarks and sketches: what of them can be checked, and what cannot."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from contextlib import suppress
from types import MappingProxyType
from typing import SupportsFloat, cast

import mpmath
import numpy as np
import sympy as sp

from bilevel_sym import AID, GDmax
from bilevel_sym.arithmetic.ties import first_smallest
from bilevel_sym.errors import AssumptionViolated, BilevelError
from bilevel_sym.graph.exact import rational
from bilevel_sym.graph.precision import mpmath_digits
from bilevel_sym.typing import FLOAT64_EPS
from verify.papers.huang_saddle.claims.corollaries import calls_of
from verify.papers.huang_saddle.claims.tube import what_jumps
from verify.papers.huang_saddle.measures.agreement import agreed, decided_exactly
from verify.papers.huang_saddle.measures.point_checks import answers, endings, missed
from verify.registry import ALL_Y, INSIDE, WHOLE_X, NotApplicable, claim
from verify.study import Study
from verify.verdict import Bracket, CheckResult, Verdict, by_definition, inconclusive, judged

REGION = ALL_Y + INSIDE

# the parts of Assumption 2.1
PARTS: Mapping[str, str] = MappingProxyType({"(ii) M": "M", "(iii) ell": "ell", "(iv) rho": "rho", "(v) nu": "nu"})
NOT_ON_R_D = (
    "cannot be checked: it speaks of all of R^d, and a box says nothing about what lies outside. What the proofs use "
    "of it, that Phi is bounded below where the iterates go, is part of every run in the box"
)


# ---- assumptions --------------------------------------------------------------------------------------------------


@claim(
    "assu:bilevel",
    also=(
        "unlabelled:assumption-bilevel-i", "unlabelled:assumption-bilevel-ii", "unlabelled:assumption-bilevel-iii",
        "unlabelled:assumption-bilevel-iv", "unlabelled:assumption-bilevel-v",
    ),
)  # fmt: skip
def bilevel_assumption(study: Study) -> Iterator[CheckResult]:
    """g is mu-strongly convex in y, f is M-Lipschitz, and the derivatives have Lipschitz constants ell, rho and nu.

    Over the box there are such constants, and their brackets are named. That holds by definition; it fails where g is
    proved not to be strongly convex, or where a derivative jumps.

    Paper: Assumption 2.1 [assu:bilevel]
    Deviation: the print asks for it on all of R^d and R^n, where few functions have all of these constants; they belong
    to a box. Each block of derivatives is bounded on its own, as the proofs use them.
    """
    label = "assu:bilevel"
    jump = what_jumps(study)
    if jump is not None:
        yield CheckResult(
            label=label, verdict=Verdict.VIOLATED, message=jump.text, evidence="proved", part="derivatives",
            worst_point=jump.point, n_points=1,
        )  # fmt: skip
        return
    try:
        certified = study.constants
    except AssumptionViolated as error:
        yield _not_convex(label, study, error)
        return
    brackets = certified.brackets
    mu = brackets["mu"]
    if not mu.lower > 0:
        yield inconclusive(label, f"mu is in {mu}: not known to be positive", part="(i) mu")
        return
    yield by_definition(label, f"the smallest eigenvalue of g_yy is in {mu}", part="(i) mu")
    for part, name in PARTS.items():
        yield _bounded(label, part, brackets[name])


def _bounded(label: str, part: str, bracket: Bracket) -> CheckResult:
    """A constant is what bounds the derivative over the box; whether its bracket is right is put to [pro:bounds]."""
    if not math.isfinite(bracket.upper):
        return inconclusive(label, "no bound over the box is known", part=part)
    return by_definition(label, f"the supremum over the box is in {bracket}", part=part)


def _not_convex(label: str, study: Study, error: AssumptionViolated) -> CheckResult:
    """The search proved that an eigenvalue is not positive at a point; it is looked at once more, in 30 digits."""
    point = {name: float(cast(SupportsFloat, value)) for name, value in error.point.items()}
    smallest = _smallest_eigenvalue(study, point)
    if smallest is None or smallest > 0:
        return inconclusive(label, error.message, part="(i) mu")
    return CheckResult(  # mu > 0 wants a strict inequality: zero is not enough
        label=label, verdict=Verdict.VIOLATED, evidence="certified", part="(i) mu",
        message=f"g_yy has the eigenvalue {smallest:.6g}: g is not strongly convex in y there", n_points=1,
        measured=-smallest, bound=0.0, worst_point=point,
    )  # fmt: skip


def _smallest_eigenvalue(study: Study, point: Mapping[str, float]) -> float | None:
    symbols = (*study.exact.x, *study.exact.y)
    if not all(s.name in point for s in symbols):
        return None
    exact = {s: rational(point[s.name]) for s in symbols}
    hessian = sp.hessian(study.exact.g, study.exact.y).subs(exact)
    with mpmath_digits(30):
        entries = [[mpmath.mpf(sp.N(entry, 30)) for entry in hessian.row(k)] for k in range(hessian.rows)]
        return float(min(mpmath.eigsy(mpmath.matrix(entries), eigvals_only=True)))


@claim(
    "assu:minimax",
    kinds=("minimax",),
    also=(
        "unlabelled:assumption-minimax-i", "unlabelled:assumption-minimax-ii", "unlabelled:assumption-minimax-iii",
        "unlabelled:assumption-minimax-iv",
    ),
)  # fmt: skip
def minimax_assumption(study: Study) -> Iterator[CheckResult]:
    """f is mu-strongly concave in y and ell-smooth, its Hessian blocks are rho-Lipschitz, and Phi is bounded below.

    (i) to (iii) over the box, the second with derivatives in (x, y) together; (iv) cannot be checked.

    Paper: Assumption 3.5 [assu:minimax]
    Deviation: the print asks for it everywhere; constants belong to a box.
    """
    label = "assu:minimax"
    try:
        certified = study.constants
    except AssumptionViolated as error:
        yield _not_convex(label, study, error)
        return
    mu = certified.brackets["mu"]
    yield by_definition(label, f"the smallest eigenvalue of -f_yy is in {mu}", part="(i) mu")
    joint = study.joint
    yield _bounded(label, "(ii) ell", joint.brackets["ell"])
    yield _bounded(label, "(iii) rho", certified.brackets["rho"])
    yield inconclusive(label, NOT_ON_R_D, part="(iv)")


@claim("unlabelled:minimax-as-bilevel", kinds=("minimax",), also=("eq:minimax-formu",))
def minimax_as_bilevel(study: Study) -> Iterator[CheckResult]:
    """A minimax problem is a bilevel one with g = -f, under the same assumptions.

    g + f = 0, symbolically; and |f_y| <= M

    Paper: Formula [unlabelled:minimax-as-bilevel]; Equation 3.1 [eq:minimax-formu]
    Deviation: on all of R^n no f is both M-Lipschitz (Assumption 2.1) and mu-strongly concave (Assumption 3.5): then
    |f_y| >= mu |y - y*|, which is above M for |y - y*| > M/mu. Over a box it is.
    """
    label = "unlabelled:minimax-as-bilevel"
    f, g = study.exact.f, study.exact.g
    same = f == -g or sp.expand(f + g) == 0
    yield decided_exactly(label, "g = -f", same, "g = -f, symbolically")
    M, mu = study.constants.brackets["M"], study.constants.brackets["mu"]
    if study.variant == "printed":
        far = 2 * M.upper / mu.lower
        message = f"at |y - y*| = {far:.4g}, twice M/mu, strong concavity alone makes |f_y| >= 2 M"
        yield judged(
            label, mu.lower * far, M.upper, evidence="proved", message=message, part="M on R^n", noise=1e-12 * M.upper
        )
    else:
        yield _bounded(label, "M over the box", M)


# ---- definitions --------------------------------------------------------------------------------------------------


@claim("def:local-min", also=("unlabelled:local-min-test",))
def local_minimum(study: Study) -> Iterator[CheckResult]:
    """Among stationary points the eps-local minima are the local minima, once eps is small enough.

    |grad Phi| = 0 <= eps, and the smallest eigenvalue of Hess Phi is >= -sqrt(rho_phi eps) for every eps at a local
    minimum, and for no eps < lambda^2/rho_phi at a point with the eigenvalue lambda < 0. That is what the words mean.
    What can fail: the test by which the solvers stop says so at each certified point, and no stationary point that
    Newton's method finds is missing among them.

    Paper: Definition 1.1 [def:local-min]
    Assumes: the certified stationary points in the box, and a certified rho_phi.
    """
    label = "def:local-min"
    if study.stationary.complete and (roots := missed(study, study.stationary)):
        yield agreed(label, study, roots, what="zeros of grad Phi that the search must have", part="none missed")
    points = [point for point in study.stationary.points if point.eigenvalues]
    if not points:
        raise NotApplicable("no stationary point in the box is known with its eigenvalues")
    rho = math.inf  # then no eps is small enough for certain, but the kinds are what they are
    with suppress(BilevelError):
        rho = study.smoothness.rho_phi.upper
    for kind, part in (("local minimum", "minima pass"), ("saddle", "saddles fail"), ("local maximum", "maxima fail")):
        lowest = [(point.eigenvalues[0], point.x) for point in points if point.kind == kind]
        if lowest:
            yield _threshold(label, part, lowest, rho)
    if asked := [*answers(study, points, rho), *endings(study, points, rho)]:
        yield agreed(label, study, asked, what="the test by which solvers stop", part="shipped test")


def _threshold(label: str, part: str, lowest: list[tuple[Bracket, tuple[float, ...]]], rho: float) -> CheckResult:
    eigenvalue, _ = lowest[first_smallest([abs(eigenvalue.lower) for eigenvalue, _ in lowest])]
    passing = part == "minima pass"
    told = "for every eps" if passing else f"for eps < {eigenvalue.upper**2 / rho if rho else math.inf:.3g}"
    message = f"{len(lowest)} points; the smallest eigenvalue closest to zero is in {eigenvalue}: {told}"
    if not (eigenvalue.lower if passing else -eigenvalue.upper) > 0:
        return inconclusive(label, message, part=part)
    return by_definition(label, message, part=part)


@claim("unlabelled:remark-large-L-phi")
def large_smoothness(study: Study) -> CheckResult:
    """Where L_phi < sqrt(rho_phi eps), every point with |grad Phi| <= eps is an eps-local minimum.

    -lambda_min(Hess Phi) <= |Hess Phi| <= L_phi

    Paper: Remark 3.8 [unlabelled:remark-large-L-phi]
    """
    most = math.inf
    with suppress(BilevelError):
        most = study.smoothness.L_phi.upper
    whole = math.isfinite(most)  # otherwise the constants bound it, where y* lies in the box
    most = most if whole else float(study.constants.valid.L_phi())
    points = study.points(200, "curvature")
    if not whole:
        points = points[study.covers(points)]
    if not len(points):
        raise NotApplicable("y* lies outside the box in y at every point that was tried")
    lowest = np.linalg.eigvalsh(study.kernels.hess_phi(points))[:, 0]
    worst = first_smallest(lowest)
    measured = max(0.0, -float(lowest[worst]))
    if measured <= (rounding := _rounding_of_curvature(study)):
        raise NotApplicable("Hess Phi has no negative eigenvalue at the sampled points")
    return judged(
        "unlabelled:remark-large-L-phi", measured, most, evidence="sampled", noise=1e-9 * most + rounding,
        message="the most negative curvature seen, against a bound on |Hess Phi|", n_points=len(points),
        worst_point=study.named(points[worst]), region=WHOLE_X if whole else "x of the box with y* in it",
    )  # fmt: skip


def _rounding_of_curvature(study: Study) -> float:
    """What rounding makes of an eigenvalue of Hess Phi, whose terms are at most what the formula for L_phi adds up."""
    try:
        c = study.constants.valid
        return 64 * FLOAT64_EPS * float(c.kappa) * float(c.L_phi())
    except BilevelError:
        return 0.0


# ---- remarks and sketches -------------------------------------------------------------------------------------------


@claim("unlabelled:remark-third-order", also=("unlabelled:remark-first-order", "unlabelled:gdmax-estimate"))
def orders_of_derivatives(study: Study) -> CheckResult:
    """The algorithms compute no third-order derivatives; GDmax computes no second-order ones either.

    What one estimate asks of f and g, watched from outside: f_x, f_y, g_y and products with g_yy and g_xy

    Paper: Remark 2.3 [unlabelled:remark-third-order]; Remark 3.11 [unlabelled:remark-first-order]
    """
    minimax = study.problem.kind == "minimax"
    estimator = GDmax(D=2, tau=1e-3) if minimax else AID(D=2, N=1, tau=1e-3)
    asked = calls_of(estimator, study)
    order = max(len(name.split("_")[1]) if "_" in name else 0 for name in asked)
    return judged(
        "unlabelled:remark-third-order", float(order), 1.0 if minimax else 2.0, evidence="sampled", n_points=1,
        message=f"{type(estimator).__name__} asks for {', '.join(sorted(asked))}",
    )  # fmt: skip


@claim("unlabelled:sketch-iteration-bound")
def sketched_iterations(study: Study) -> CheckResult:
    """The bound on K in the proof sketch is that of the proof, up to a constant factor.

    gap T/(F/2) + 25 L_phi gap/(3 eps^2) <= 25/3 (gap T/F + L_phi gap/eps^2)

    Paper: Formula [unlabelled:sketch-iteration-bound]
    Deviation: the sketch leaves out the factors 2 and 25/3, so that its K is smaller than what is proved.
    """
    label = "unlabelled:sketch-iteration-bound"
    first, second = sp.Integer(2), sp.Rational(25, 3)
    if study.variant == "printed":
        reason = (
            "the sketch's K is smaller than the proof's, by up to 25/3; nobody has proved it, and no run reaches it"
        )
        return inconclusive(label, reason)
    message = f"the factors {first} and {second} of the two summands are at most {max(first, second)}"
    return by_definition(label, message)


@claim("unlabelled:remark-large-iota")
def large_iota(study: Study) -> CheckResult:
    """A larger iota makes delta smaller, once iota > 2/log 2.

    d/d iota of log(iota^2 2^(8 - iota)) = 2/iota - log 2

    Paper: Remark 3.9 [unlabelled:remark-large-iota]
    Deviation: for iota between 1 and 2.885 it makes it larger; the remark says "sufficiently large". It calls Theorem
    3.7 "Theorem 17".
    """
    message = "the derivative of log(iota^2 2^(8 - iota)) is 2/iota - log 2, negative for iota > 2/log 2 = 2.885"
    return by_definition("unlabelled:remark-large-iota", message)


@claim("unlabelled:neon-gradient-error", also=("eq:neon-update",))
def neon_error(study: Study) -> CheckResult:
    """iNEON's update is the exact one with the error -delta_k.

    u - eta (a_hat - b_hat) = u - eta (a - b) - delta with delta = eta (a_hat - b_hat - a + b), where a and b are the
    gradients at x + u and at x

    Paper: Claim [unlabelled:neon-gradient-error]; Equation 4.2 [eq:neon-update]
    Deviation: the print adds delta_k, which it defines with the same sign.
    """
    u, eta, a, b, a_hat, b_hat = sp.symbols("u eta a b a_hat b_hat")
    delta = eta * (a_hat - b_hat - a + b)
    sign = 1 if study.variant == "printed" else -1
    difference = sp.expand(u - eta * (a_hat - b_hat) - (u - eta * (a - b) + sign * delta))
    message = f"both sides differ by {sp.factor(difference)}"
    return decided_exactly("unlabelled:neon-gradient-error", "", bool(difference == 0), message)


@claim("intro", also=("eq:objective", "objective"))
def unique_lower_solution(study: Study) -> CheckResult:
    """y*(x) is one point: the lower level has a unique solution for every x in the box.

    From starts all over the box in y, Newton's method ends in one point; strong convexity is certified elsewhere

    Paper: Section 1 [intro]; Equation 1.1 [eq:objective]
    """
    x = study.points(16, "unique")
    rng = study.rng("unique")
    ends = [(float(low), float(high)) for low, high in list(study.box)[study.exact.d :]]
    if not ends:  # a box in x alone
        ends = [(float(centre) - 1, float(centre) + 1) for centre in study.exact.y_centre]
    low, high = (np.array(end) for end in zip(*ends, strict=True))
    try:
        first = study.kernels.y_star(x, y0=np.tile(low, (len(x), 1)))
        spread = [study.kernels.y_star(x, y0=low + (high - low) * rng.random((len(x), len(low)))) for _ in range(3)]
    except BilevelError as error:
        return inconclusive("intro", error.message)
    size = 1.0 + float(np.abs(first).max())
    apart = max(float(np.abs(other - first).max()) for other in spread)
    apart, most, message = apart / size, 1e-9, "the largest relative distance between solutions from four starts"
    if apart <= 1e-15:
        apart, most, message = 0.0, 0.0, "four starts end in the same point, to the last bit"
    return judged("intro", apart, most, evidence="sampled", n_points=4 * len(x), message=message)
