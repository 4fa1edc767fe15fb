"""How a bound on a derivative is judged: by structure, by a certified bracket, by what was seen, or by derivation.

The bound is a formula of certified constants, in exact rationals. Where the whole box decides nothing, a part of it
with constants of its own is asked; what numbers leave open is settled by ``norm_calculus``, if it derives the formula.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from fractions import Fraction
from types import MappingProxyType
from typing import Any, Literal

import numpy as np
import sympy as sp

from bilevel_sym import Constants
from bilevel_sym.errors import BilevelError
from bilevel_sym.implicit.model import Model
from bilevel_sym.theories import Reading
from bilevel_sym.typing import Floats
from verify.papers.huang_saddle.claims.routes import against_bracket
from verify.papers.huang_saddle.measures.norm_calculus import derived, follows
from verify.papers.huang_saddle.measures.regions import Region, judged_over_regions, lower_levels, regions
from verify.papers.huang_saddle.measures.responses import Responses, Seen, responses
from verify.registry import WHOLE_X
from verify.study import Study
from verify.verdict import Bracket, CheckResult, inconclusive, judged

Bound = Callable[[Constants], Any]
Quantity = Callable[[Responses], Floats]
Still = Callable[[Model], bool]
WORDS: Mapping[Reading, str] = MappingProxyType({"block": "block by block", "joint": "jointly"})


# ---- bounds as numbers -----------------------------------------------------------------------------------------------


def exact(constants: Constants) -> Constants:
    """The same constants as rationals, so that no formula of them is rounded.

    >>> exact(Constants(mu=1.0, ell=3.0, rho=0.0, nu=0.0, M=1.0)).kappa
    Fraction(3, 1)
    """
    names = ("mu", "ell", "rho", "nu", "M")
    try:
        values = {name: Fraction(float(getattr(constants, name))) for name in names}
    except (OverflowError, ValueError):
        raise BilevelError("a constant of Assumption 2.1 is not bounded over the box", hint="a smaller box") from None
    return Constants(**values, reading=constants.reading)


def as_bracket(value: Fraction) -> Bracket:
    """The floats next to a rational.

    >>> as_bracket(Fraction(1, 2)), as_bracket(Fraction(1, 3)).lower < Fraction(1, 3) < as_bracket(Fraction(1, 3)).upper
    (Bracket(lower=0.5, upper=0.5), True)
    """
    try:
        nearest = float(value)
    except OverflowError:
        return Bracket(float(np.finfo(np.float64).max), np.inf)
    if Fraction(nearest) == value:
        return Bracket(nearest, nearest)
    return Bracket(float(np.nextafter(nearest, -np.inf)), float(np.nextafter(nearest, np.inf)))


def u(c: Constants) -> Any:
    """1 + kappa, by which (x, y*(x)) moves with x, block by block.

    >>> u(Constants(mu=1.0, ell=3.0, rho=0.0, nu=0.0, M=1.0))
    4.0
    """
    return 1 + c.kappa


# ---- quantities that do not move, which the tape shows without any number --------------------------------------------


def is_constant(tape: Model, *names: str) -> bool:
    """Whether these blocks are the same everywhere.

    >>> x, y = sp.symbols("x y")
    >>> tape = Model(x*y, y**2/2 - sp.sin(x)*y, [x], [y])
    >>> is_constant(tape, "f_xy", "g_yy"), is_constant(tape, "g_xy"), is_zero(tape, "f_yy", "g_yyy")
    (True, False, True)
    """
    return all(form.is_constant for name in names for form in tape.block(name)[1])


def is_zero(tape: Model, *names: str) -> bool:
    """Whether these blocks vanish everywhere."""
    return all(form.is_constant and form.constant == 0 for name in names for form in tape.block(name)[1])


def constant_response(tape: Model) -> bool:
    """Whether dy_dx is the same everywhere."""
    return is_zero(tape, "g_xy") or is_constant(tape, "g_xy", "g_yy")


def constant_product(tape: Model, block: str) -> bool:
    """Whether the product of dy_dx and a block is the same everywhere."""
    return is_zero(tape, block) or is_zero(tape, "g_xy") or (is_constant(tape, block) and constant_response(tape))


def no_curvature(tape: Model) -> bool:
    """Whether d2y_dx2 vanishes."""
    return is_zero(tape, "g_xxy", "g_xyy", "g_yyy") or is_zero(tape, "g_xy")


def constant_hessian(tape: Model) -> bool:
    """Whether Hess Phi is the same everywhere: f quadratic, and y* affine."""
    return is_constant(tape, "f_xx", "f_xy", "f_yy") and constant_response(tape) and no_curvature(tape)


# ---- verdicts --------------------------------------------------------------------------------------------------------


def by_sample(
    study: Study, label: str, seen: Seen, bound: Fraction, region: Region, *, part: str = "", what: str
) -> CheckResult:
    """The largest that was seen against the bound."""
    return judged(
        label, seen.value, as_bracket(bound), noise=seen.noise, evidence="sampled", part=part, seed=study.seed,
        n_points=seen.count, worst_point=study.named(seen.x, seen.y), message=f"{what}, over {region.name}",
    )  # fmt: skip


def by_structure(label: str, bound: Fraction, *, part: str = "", what: str) -> CheckResult:
    """A quantity that is zero for a reason that the tape shows."""
    return judged(
        label, 0.0, as_bracket(bound), evidence="proved", part=part,
        message=f"{what} is zero: the derivatives that it is made of vanish or are constant",
    )  # fmt: skip


def settled(result: CheckResult, bound: Bound, proof: sp.Expr) -> CheckResult:
    """What numbers leave open because the bound is too loose, or attained, is settled where the formula is derived."""
    measured, limit = result.measured, result.bound
    if result.decided or measured is None or limit is None or not measured - result.noise <= limit:
        return result
    if not follows(bound, proof):
        return result
    return judged(
        result.label, min(measured, limit), limit, evidence="proved", part=result.part, seed=result.seed,
        n_points=result.n_points, worst_point=result.worst_point, region=result.region,
        message=f"the bounds of its terms add up to it, whatever the constants; by numbers alone: {result.message}",
    )  # fmt: skip


def lipschitz(
    study: Study, label: str, quantity: Quantity, bound: Bound, *, still: Still, proof: str, part: str = "", what: str
) -> CheckResult:
    """|T(x) - T(x')| <= bound |x - x'|, over pairs of points."""
    return _over_regions(
        study, label, lambda s: s.steepest(quantity(s)), bound, derived()[proof].lipschitz, still=still, part=part,
        what=f"change of {what}", zero=f"the change of {what}",
    )  # fmt: skip


def bounded(
    study: Study, label: str, quantity: Quantity, bound: Bound, *, still: Still, proof: str, what: str, zero: str = ""
) -> CheckResult:
    """|T| <= bound, over points; ``zero`` is what is said to vanish where the tape shows it, T itself by default."""
    return _over_regions(
        study, label, lambda s: s.largest(quantity(s)), bound, derived()[proof].norm, still=still, what=f"|{what}|",
        zero=zero or what,
    )  # fmt: skip


def _over_regions(
    study: Study, label: str, seen: Callable[[Responses], Seen], bound: Bound, proof: sp.Expr, *, what: str,
    still: Still | None = None, zero: str = "", part: str = "",
) -> CheckResult:  # fmt: skip
    def check(region: Region) -> CheckResult:
        limit = bound(exact(region.constants))
        if still is not None and still(study.exact.tape):
            return by_structure(label, limit, part=part, what=zero)
        return by_sample(study, label, seen(responses(study, region)), limit, region, part=part, what=what)

    return settled(judged_over_regions(study, check), bound, proof)


def judged_by_bracket(
    study: Study, label: str, bracket: Bracket | None, point: Mapping[str, float] | None, bound: Fraction, *,
    part: str = "", what: str,
) -> CheckResult | None:  # fmt: skip
    """The verdict of a certified bracket over the whole box; None where it decides nothing."""
    if bracket is None:
        return None
    result = judged(
        label, bracket, as_bracket(bound), evidence="certified", part=part, worst_point=point, region=WHOLE_X,
        message=f"{what}, enclosed over the whole box in x: {bracket}",
    )  # fmt: skip
    violated = bracket.lower > float(bound)
    return result if result.decided and not (violated and not _covered(study, point)) else None


def _covered(study: Study, point: Mapping[str, float] | None) -> bool:
    """Whether y* at the point lies in the box, so that the constants speak of it."""
    if point is None:
        return False
    ends = dict(study.box.items())
    x = np.array([[point[s.name] for s in study.exact.x]])
    y = lower_levels(study.kernels, x)[0]
    return all(
        s.name not in ends or ends[s.name][0] <= value <= ends[s.name][1]
        for s, value in zip(study.exact.y, y.tolist(), strict=True)
    )


def bracket_of(study: Study, name: str) -> tuple[Bracket | None, Mapping[str, float] | None]:
    """A bracket of ``verify.smoothness`` and its point; nothing where it could not be certified."""
    try:
        smooth = study.smoothness
    except BilevelError:
        return None, None
    points: Mapping[str, Mapping[str, float]] = smooth.points
    return getattr(smooth, name), points.get(name)


def judged_phi_derivative(
    study: Study, label: str, name: str, bound: Bound, seen: Callable[[Responses], Seen], *, part: str = "", what: str,
    proof: sp.Expr, still: Still | None = None,
) -> CheckResult:  # fmt: skip
    """A bound on a derivative of Phi: by its certified bracket, or else by what was seen.

    A bracket that what was seen contradicts decides nothing.

    - ``study``: the problem.
    - ``label``: that of the statement.
    - ``name``: of the bracket among the smoothness of Phi.
    - ``bound``: a function of the constants of a region.
    - ``seen``: the largest among points of a region.
    - ``part``, ``what``: the piece of the statement, and its words.
    - ``proof``: the formula by which the bound follows from the constants.
    - ``still``: whether the quantity is zero for a reason that the program of a problem shows.
    """
    try:
        limit = bound(exact(study.constants.valid))
        if still is not None and still(study.exact.tape):
            return by_structure(label, limit, part=part, what=f"the {what}")
        bracket, point = bracket_of(study, name)
        wrong = "" if bracket is None else against_bracket(study, name, bracket)
        if wrong:
            return inconclusive(label, wrong, part=part)
        found = judged_by_bracket(study, label, bracket, point, limit, part=part, what=what)
        if found is not None:
            return found
    except BilevelError:  # the whole box has no constants; a part of it may
        pass
    return _over_regions(study, label, seen, bound, proof, part=part, what=what)


# ---------------------------------------------------------------------- under both readings


def best_reading(study: Study, bound: Bound) -> tuple[Fraction, Reading]:
    """The smaller of a formula's values under the two readings over the whole box, and which reading gives it.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.study import study_of
    >>> box = {"x": (-1, 1), "y": (-2, 2)}
    >>> study = study_of(BilevelProblem("x*y", "y**2/2 - 3*x*y/4 - x**2/2", "x", "y", box=box), variant="sharp")
    >>> best_reading(study, lambda c: c.L_phi(variant="sharp"))[1]
    'joint'
    """
    block = bound(exact(study.constants.valid))
    try:
        joint = bound(exact(study.joint.valid))
    except BilevelError:  # the blocks can be bounded where all of them at once cannot
        return block, "block"
    return (joint, "joint") if joint < block else (block, "block")


def judged_phi_derivative_best(
    study: Study, label: str, name: str, bound: Bound, seen: Callable[[Responses], Seen], *, part: str = "", what: str,
    proof: tuple[str, Literal["norm", "lipschitz"]], still: Still | None = None,
) -> CheckResult:  # fmt: skip
    """``judged_phi_derivative``, but of the variant "sharp" under the better reading.

    >>> from bilevel_sym import verify, zoo
    >>> study = verify.study_of(zoo.get("minimax_nash").problem, variant="sharp")
    >>> result = judged_phi_derivative_best(study, "grad-Lipschitz", "L_phi", lambda c: c.L_phi(variant="sharp"),
    ...                      lambda s: s.largest(s.hess_phi), what="|Hess Phi|", proof=("hess", "norm"))
    >>> result.verdict.name, "read" in result.message
    ('HOLDS', True)
    """
    block, joint = (getattr(derived(reading)[proof[0]], proof[1]) for reading in ("block", "joint"))
    best: tuple[Fraction, Reading] | None = None
    if study.variant == "sharp":
        with suppress(BilevelError):  # where the whole box has no constants, a part of it may
            best = best_reading(study, bound)
    if best is None:
        return judged_phi_derivative(study, label, name, bound, seen, part=part, what=what, proof=block, still=still)
    limit, reading = best
    if still is not None and still(study.exact.tape):
        return by_structure(label, limit, part=part, what=f"the {what}")
    what = f"{what} (constants read {WORDS[reading]})"
    found = judged_by_bracket(study, label, *bracket_of(study, name), limit, part=part, what=what)
    if found is not None:
        return found
    region = next(iter(regions(study)))
    found = by_sample(study, label, seen(responses(study, region)), limit, region, part=part, what=what)
    return settled(found, bound, block) if follows(bound, joint, reading="joint") else found
