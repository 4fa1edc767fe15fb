"""The identities of the paper: derivatives of y* and of Phi, each against an expansion that does not use it.

Each is checked twice. For undefined f and g, symbol by symbol: that proves it for every smooth problem. And on the
problem itself, at points of the box, against power series of y* and Phi (``measures.jets``): in exact rationals where
f and g are rational functions, else in balls of 200 bits.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from fractions import Fraction
from functools import lru_cache
from typing import Any, Literal

import numpy as np
import sympy as sp

from bilevel_sym import derive_generic
from bilevel_sym.arithmetic import balls
from bilevel_sym.errors import BilevelError
from bilevel_sym.symbolic.formulas import Equation, textbook_equations
from verify import Study, claim
from verify.papers.huang_saddle.measures.jets import JET_BITS, Numbers, TaylorPoint, taylor_point
from verify.verdict import CheckResult, Evidence, inconclusive, judged

REGION = "all x and y"

POINTS = 4
MOST_COLUMNS = 8  # x variables that are taken at one point; each pair of them costs three runs of the tape
AGREE = 1e-30  # balls of 200 bits that are wider than this, relative to their size, have not been compared

Variant = Literal["corrected", "printed"]
Sides = Callable[[TaylorPoint], tuple[Numbers, Numbers]]


# ---- for undefined functions -----------------------------------------------------------------------------------------


@lru_cache(64)
def _generic(label: str, d: int, n: int, variant: Variant) -> bool:
    """Whether the identity holds for undefined f and g of this shape, by expansion in symbols."""
    if label in ("phi-2", "phi"):
        return _schur(label, d, n)
    if label in ("solve-partial-y*-partial-x", "eq:hess-y-expression"):
        once = "eq:opt-deri1" if label == "solve-partial-y*-partial-x" else "eq:opt-deri2"
        return _generic(once, d, n, variant) and _inverts(n)
    origin = {
        "y-opt-condition": "eq:opt-deri1",
        "unlabelled:hypergradient-v-star": "eq:bilevel-grad",
        "unlabelled:danskin": "phi-grad",
    }
    return _textbook(d, n, variant)[origin.get(label, label)].holds


@lru_cache(16)
def _textbook(d: int, n: int, variant: Variant) -> Mapping[str, Equation]:
    derivation = derive_generic(d, n)
    return textbook_equations(derivation.blocks, derivation.x, derivation.y, variant=variant)


def _symmetric(name: str, n: int) -> sp.Matrix:
    return sp.Matrix(n, n, lambda i, j: sp.Symbol(f"{name}{min(i, j)}{max(i, j)}"))


def _inverts(n: int) -> bool:
    """X C + B = 0 has the one solution X = -B C^-1: adj(C) C = det(C) I, entry by entry."""
    matrix = _symmetric("c", n)
    return bool((matrix.adjugate() * matrix - matrix.det() * sp.eye(n)).applyfunc(sp.expand).is_zero_matrix)


def _schur(label: str, d: int, n: int) -> bool:
    """f_xx + Y f_yx + f_xy Y' + Y f_yy Y' against the minimax form, where f_y = 0 and f_xy = -Y f_yy.

    f_xy f_yy^-1 f_yx is Y f_yy Y' then, so that no inverse is written out.
    """
    direct, lower = _symmetric("a", d), _symmetric("c", n)
    response = sp.Matrix(d, n, lambda i, k: sp.Symbol(f"r{i}{k}"))
    mixed = -response * lower
    whole = direct + response * mixed.T + mixed * response.T + response * lower * response.T
    claimed = direct + mixed * response.T if label == "phi" else direct - response * lower * response.T
    return bool((whole - claimed).applyfunc(sp.expand).is_zero_matrix)


def _enough(study: Study) -> tuple[int, int]:
    """A shape that stands for the problem's.

    Entry (i, j) of an identity concerns x_i and x_j alone (freeze the others), and each of its terms is a product that
    contains at most three of the y; so two of x and three of y are every case there is.
    """
    return min(study.exact.d, 2), min(study.exact.n, 3)


# ---- on the problem itself -------------------------------------------------------------------------------------------


@lru_cache(2)
def _points(study: Study) -> tuple[TaylorPoint, ...]:
    """Expansions at a few points of the box, next to y*(x); points where f or g is not smooth are left out."""
    problem, xs = study.exact, study.points(POINTS, "identities")
    try:
        ys = [[Fraction(float(value)) for value in row] for row in study.kernels.y_star(xs)]
    except BilevelError:  # the identities hold at any root of the shifted lower level
        ys = [[Fraction(int(value.p), int(value.q)) for value in problem.y_centre]] * POINTS
    rng = study.rng("identities: columns")
    columns = [sorted(rng.permutation(problem.d)[:MOST_COLUMNS].tolist()) for _ in xs]
    found = [
        taylor_point(problem, [Fraction(float(value)) for value in x], y, chosen)
        for x, y, chosen in zip(xs, ys, columns, strict=True)
    ]
    return tuple(point for point in found if point is not None)


@dataclass(frozen=True)
class _Gap:
    """How far the two sides are apart at the worst point, at least; ``radius`` is the width of what was compared."""

    least: float
    radius: float
    scale: float
    point: TaylorPoint


def _gap(point: TaylorPoint, sides: Sides) -> _Gap:
    with balls.precision(JET_BITS):
        left, right = sides(point)
        differences = list((left - right).flat)
    # where both sides are zero, the blocks say what is small
    compared = (left, right, *point.blocks.values())
    scale = max(_size(entry) for numbers in compared for entry in numbers.flat)
    if point.exact:
        return _Gap(max(map(_size, differences), default=0.0), 0.0, scale, point)
    least = max((max(0.0, float(np.nextafter(float(entry.abs_lower()), 0.0))) for entry in differences), default=0.0)
    return _Gap(least, max((float(entry.rad()) for entry in differences), default=0.0), scale, point)


def _size(entry: Any) -> float:
    """|entry| as a float; a rational that is not zero is not rounded to zero."""
    if hasattr(entry, "abs_upper"):
        return float(entry.abs_upper())
    return max(float(Fraction(abs(int(entry.p)), int(entry.q))), 5e-324) if entry else 0.0


def _identity(study: Study, label: str, sides: Sides, *, vanishes: str = "") -> CheckResult:
    """The verdict; ``vanishes`` is why the identity is trivial on this problem though not in general, if it is."""
    variant: Variant = "printed" if study.variant == "printed" else "corrected"
    d, n = _enough(study)
    general = _generic(label, d, n, variant)
    gaps = [_gap(point, sides) for point in _points(study)]
    if not gaps:
        return inconclusive(label, "f or g is not smooth at any point that was tried")
    worst = max(gaps, key=lambda gap: (gap.least, gap.radius))
    exact = all(gap.point.exact for gap in gaps)
    if not exact and worst.least == 0.0 and worst.radius > AGREE * max(worst.scale, 1e-300):
        return inconclusive(label, f"balls of radius {worst.radius:.1g} decide nothing")
    evidence: Evidence = "proved" if general or vanishes else "sampled"
    if worst.least > 0:
        evidence = "proved" if exact else "certified"
    return judged(
        label, worst.least, 0.0, evidence=evidence, n_points=len(gaps),
        message=_message(worst, exact, general, vanishes, (d, n)),
        worst_point=study.named(_floats(worst.point.x), _floats(worst.point.y)) if worst.least > 0 else None,
    )  # fmt: skip


def _message(worst: _Gap, exact: bool, general: bool, vanishes: str, shape: tuple[int, int]) -> str:
    arithmetic = "in exact rationals" if exact else f"in balls of radius {worst.radius:.1g}"
    if worst.least > 0:
        return f"the two sides differ, {arithmetic}; the largest number in it is {worst.scale:.3g}"
    reason = f"for undefined f and g with d = {shape[0]}, n = {shape[1]}, which covers every entry" if general else ""
    reason = reason or vanishes or "at these points only: it is not an identity in general"
    return f"{reason}; no difference on this problem {arithmetic}"


def _floats(values: tuple[Fraction, ...]) -> Any:
    return np.array([float(value) for value in values])


# ---- the statements --------------------------------------------------------------------------------------------------


@claim("phi-grad")
def phi_grad(study: Study) -> CheckResult:
    """The hypergradient is f_x + dy_dx f_y.

    grad Phi(x) = f_x + dy_dx f_y at y = y*(x), with dy_dx of shape d x n

    Paper: Equation 1.2 [phi-grad]
    Assumes: f and y* differentiable at the point.
    """
    return _identity(study, "phi-grad", lambda p: (p.grad, p["f_x"] + p.response @ p["f_y"]))


@claim("eq:opt-deri1", also=("unlabelled:lower-stationarity",))
def opt_deri1(study: Study) -> CheckResult:
    """The optimality condition of the lower level, differentiated once.

    g_xy + dy_dx g_yy = 0 at y = y*(x)

    Paper: Equation 1.3 [eq:opt-deri1]
    Assumes: g twice differentiable at the point.
    """
    return _identity(study, "eq:opt-deri1", lambda p: (p["g_xy"], -(p.response @ p["g_yy"])))


@claim("eq:bilevel-grad")
def bilevel_grad(study: Study) -> CheckResult:
    """The hypergradient with the inverse of the lower Hessian.

    grad Phi(x) = f_x - g_xy g_yy^-1 f_y at y = y*(x)

    Paper: Equation 1.5 [eq:bilevel-grad]
    Assumes: f differentiable, g twice, and g_yy invertible at the point.
    """
    return _identity(
        study, "eq:bilevel-grad", lambda p: (p.grad, p["f_x"] - p["g_xy"] @ (p.inverse(p["g_yy"]) @ p["f_y"]))
    )


@claim("phi-hessian")
def phi_hessian(study: Study) -> CheckResult:
    """The Hessian of Phi in five terms.

    Hess Phi = f_xx + dy_dx f_yx + d2y_dx2 f_y + f_xy dy_dx' + dy_dx f_yy dy_dx'

    Paper: Equation B.1 [phi-hessian]
    Assumes: f twice and g three times differentiable at the point.
    Deviation: the print has dy_dx f_xy' as its fourth term, which is the second once more; that sum is not symmetric
    for d >= 2. Its transpose f_xy dy_dx' is meant.
    """
    printed = study.variant == "printed"

    def sides(p: TaylorPoint) -> tuple[Numbers, Numbers]:
        cross = p.response @ p["f_xy"].T
        mixed = cross + (cross if printed else cross.T)
        return p.hess, p["f_xx"] + mixed + p.second @ p["f_y"] + p.response @ p["f_yy"] @ p.response.T

    return _identity(study, "phi-hessian", sides, vanishes=_harmless(study) if printed else "")


def _harmless(study: Study) -> str:
    """Why dy_dx f_yx is symmetric on this problem, so that its transpose is not missed; empty if nothing says so."""
    if study.problem.kind == "minimax":
        return "in a minimax problem dy_dx f_yx = -f_xy f_yy^-1 f_yx, which is symmetric"
    for name, cause in (("f_xy", "f has no mixed derivatives"), ("g_xy", "y* does not depend on x")):
        if all(form.is_constant and form.constant == 0 for form in study.exact.tape.block(name)[1]):
            return cause
    return ""


def _third_order(p: TaylorPoint) -> Numbers:
    """g_xxy + dy_dx g_yxy + its transpose in (i, j) + dy_dx g_yyy dy_dx', indices (i, j, k)."""
    cross = np.tensordot(p["g_xyy"], p.response, axes=(2, 1)).transpose(0, 2, 1)  # (i, j, k): g_xyy[i, k, m] r[j, m]
    inner = np.tensordot(p.response, p["g_yyy"], axes=(1, 0))  # (i, b, k)
    quadratic = np.tensordot(inner, p.response, axes=(1, 1)).transpose(0, 2, 1)
    return np.asarray(p["g_xxy"] + cross + cross.transpose(1, 0, 2) + quadratic)


@claim("eq:opt-deri2")
def opt_deri2(study: Study) -> CheckResult:
    """The optimality condition of the lower level, differentiated twice.

    g_xxy + dy_dx g_yxy + d2y_dx2 g_yy + (dy_dx g_yxy transposed in x) + dy_dx g_yyy dy_dx' = 0 at y = y*(x)

    Paper: Equation B.2 [eq:opt-deri2]
    Assumes: g three times differentiable at the point.
    Deviation: the print leaves open along which axis each product contracts; the two mixed terms are transposes of
    each other in the two indices of x.
    """
    return _identity(study, "eq:opt-deri2", lambda p: (_third_order(p), -(p.second @ p["g_yy"])))


@claim("phi-2", kinds=("minimax",))
def minimax_hessian(study: Study) -> CheckResult:
    """The Hessian of Phi for minimax is a Schur complement.

    Hess Phi = f_xx - f_xy f_yy^-1 f_yx at y = y*(x)

    Paper: Equation C.3 [phi-2]
    Assumes: f twice differentiable, and f_yy invertible at the point.
    """
    return _identity(study, "phi-2", lambda p: (p.hess, p["f_xx"] - p["f_xy"] @ p.inverse(p["f_yy"]) @ p["f_xy"].T))


@claim("solve-partial-y*-partial-x")
def solve_dy_dx(study: Study) -> CheckResult:
    """The Jacobian of y* from the implicit function theorem.

    dy_dx = -g_xy g_yy^-1 at y = y*(x)

    Paper: Equation 1.4 [solve-partial-y*-partial-x]
    Assumes: g twice differentiable, and g_yy invertible at the point.
    """
    return _identity(study, "solve-partial-y*-partial-x", lambda p: (p.response, -(p["g_xy"] @ p.inverse(p["g_yy"]))))


@claim("eq:hess-y-expression")
def hess_y_expression(study: Study) -> CheckResult:
    """The second derivative of y* in closed form.

    d2y_dx2 = -(g_xxy + dy_dx g_yxy + its transpose + dy_dx g_yyy dy_dx') g_yy^-1 at y = y*(x)

    Paper: Equation B.9 [eq:hess-y-expression]
    Assumes: g three times differentiable, and g_yy invertible at the point.
    """
    return _identity(study, "eq:hess-y-expression", lambda p: (p.second, -(_third_order(p) @ p.inverse(p["g_yy"]))))


@claim("unlabelled:hypergradient-v-star", also=("unlabelled:v-star",))
def hypergradient_v_star(study: Study) -> CheckResult:
    """The hypergradient by one linear solve.

    grad Phi(x) = f_x - g_xy v* with g_yy v* = f_y at y = y*(x)

    Paper: Formula [unlabelled:hypergradient-v-star]
    Assumes: f differentiable, g twice, and g_yy invertible at the point.
    """
    return _identity(
        study,
        "unlabelled:hypergradient-v-star",
        lambda p: (p.grad, p["f_x"] - p["g_xy"] @ (p.inverse(p["g_yy"]) @ p["f_y"])),
    )


@claim("unlabelled:danskin", kinds=("minimax",))
def danskin(study: Study) -> CheckResult:
    """The gradient of Phi for minimax is f_x alone.

    grad Phi(x) = f_x at y = y*(x)

    Paper: Claim [unlabelled:danskin]
    Assumes: f differentiable, and a maximiser y* that is differentiable at the point.
    """
    return _identity(study, "unlabelled:danskin", lambda p: (p.grad, p["f_x"]))


@claim("phi", kinds=("minimax",))
def minimax_hessian_jacobian(study: Study) -> CheckResult:
    """The Hessian of Phi for minimax through the Jacobian of y*.

    Hess Phi = f_xx + f_xy dy_dx' at y = y*(x)

    Paper: Equation C.1 [phi]
    Assumes: f twice differentiable at the point.
    Deviation: Section 1 gives dy_dx the shape d x n, and the print multiplies as if it were n x d; we transpose.
    """
    return _identity(study, "phi", lambda p: (p.hess, p["f_xx"] + p["f_xy"] @ p.response.T))


@claim("y-opt-condition", kinds=("minimax",))
def minimax_optimality(study: Study) -> CheckResult:
    """The optimality condition of the maximising player, differentiated once.

    f_yx + f_yy dy_dx' = 0 at y = y*(x)

    Paper: Equation C.2 [y-opt-condition]
    Assumes: f twice differentiable at the point.
    Deviation: dy_dx is d x n, as in Section 1; the print has it transposed.
    """
    return _identity(study, "y-opt-condition", lambda p: (p["f_xy"].T, -(p["f_yy"] @ p.response.T)))
