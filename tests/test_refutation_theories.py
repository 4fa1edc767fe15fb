"""The second theory can say no: wrong constants, rates, estimators and runs are planted, and each must be refuted.

Every plant is one wrong factor, exponent, summand or step; the same claim holds without it.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest

import verify
from bilevel_sym import BilevelProblem, zoo
from bilevel_sym.estimators import hypergradient
from bilevel_sym.kernels import Kernels
from bilevel_sym.theories import Variant
from bilevel_sym.theories.ji2021.constants import RateConstants
from bilevel_sym.theories.ji2021.schedules import RateSchedule
from verify import Verdict
from verify.papers.ji2021 import errata, lemmas, rates, regions
from verify.verdict import CheckResult

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]


# ---- problems on which the bounds are tight ----------------------------------------------------------------------


def easy() -> BilevelProblem:
    """kappa is nearly 1: a step of descent that is left out cannot hide."""
    return BilevelProblem("x*y", "y**2/2 + sin(y)/1000 - x*y", "x", "y", box={"x": (-1, 1), "y": (-3, 3)})


def slow() -> BilevelProblem:
    """f_y = 1 and g_xy = -L: the derivative of y* that ITD misses is as large as it may be."""
    return BilevelProblem("y", "y**2/2 + sin(y)/10 - 2*x*y", "x", "y", box={"x": (-1, 1), "y": (-4, 4)})


def two() -> BilevelProblem:
    """Two lower variables of different curvature: conjugate gradients are not done after one step."""
    return BilevelProblem(
        "y1 + y2 + x*y1", "y1**2/2 + 1.2*y2**2/2 - x*y1 - x*y2", "x", "y1 y2",
        box={"x": (-1, 1), "y1": (-3, 3), "y2": (-3, 3)},
    )  # fmt: skip


PROBLEMS: dict[str, Callable[[], BilevelProblem]] = {
    "easy": easy,
    "slow": slow,
    "steps": slow,
    "two": two,
    "scalar": lambda: zoo.get("scalar").problem,
    "witness": lambda: zoo.get("lphi_witness").problem,
}


# ---- plants ------------------------------------------------------------------------------------------------------


def formula(name: str, wrong: Callable[..., Any]) -> Plant:
    """Another formula in the place of a property or method of the constants."""
    kind = property if isinstance(vars(RateConstants)[name], property) else (lambda function: function)
    return lambda patch: patch.setattr(RateConstants, name, kind(wrong))


def itd_without_the_last_summand(c: RateConstants, D: int, *, alpha: float, y_error: Any, variant: Any) -> Any:
    return ITD_ERROR(c, D, alpha=alpha, y_error=y_error) - float(c.kappa * c.M) * c.descent_rate(alpha) ** D


def itd_of_another_exponent(c: RateConstants, D: int, *, alpha: float, y_error: Any, variant: Any) -> Any:
    return ITD_ERROR(c, 2 * D, alpha=alpha, y_error=y_error)


def aid_without_conjugate_gradients(c: RateConstants) -> tuple[float, float]:
    return AID_FACTORS(c)[0], 0.0


def aid_without_descent(c: RateConstants) -> tuple[float, float]:
    return 0.0, AID_FACTORS(c)[1]


ITD_ERROR, AID_FACTORS, DESCENDED = RateConstants.itd_error, RateConstants.aid_factors, hypergradient._descended


def estimator_with_fewer_steps(patch: Patch) -> None:
    def fewer(oracle: Any, x: Any, y: Any, lanes: slice, steps: int, tau: float) -> Any:
        return DESCENDED(oracle, x, y, lanes, steps - 1, tau)

    patch.setattr(hypergradient, "_descended", fewer)


def itd_with_a_wrong_sign(patch: Patch) -> None:
    estimate = hypergradient.ITD.estimate

    def wrong(self: Any, problem: Any, x: Any, **starts: Any) -> Any:
        found = estimate(self, problem, x, **starts)
        return dataclasses.replace(found, grad_phi_hat=-found.grad_phi_hat)

    patch.setattr(hypergradient.ITD, "estimate", wrong)


def response_of_another_problem(patch: Patch) -> None:
    right = Kernels.dy_dx
    patch.setattr(Kernels, "dy_dx", lambda self, x, **more: 1.1 * right(self, x, **more))


def schedule_with(**wrong: Callable[[RateSchedule], Any]) -> Plant:
    """A schedule with another rate or step, in all three theorems."""

    def plant(patch: Patch) -> None:
        for name in ("aid_bio", "itd_bio", "ba"):
            right = getattr(rates, name)

            def made(*arguments: Any, right: Any = right, **options: Any) -> RateSchedule:
                found: RateSchedule = right(*arguments, **options)
                return dataclasses.replace(found, **{key: value(found) for key, value in wrong.items()})

            patch.setattr(rates, name, made)

    return plant


def gradient_ten_times_as_long(patch: Patch) -> None:
    right = rates._exact

    def wrong(*arguments: Any) -> Any:
        y, phi, grad = right(*arguments)
        return y, phi, 10 * grad

    patch.setattr(rates, "_exact", wrong)


def constants_too_small(patch: Patch) -> None:
    right = regions.rate_constants

    def small(certified: Any) -> RateConstants:
        c = right(certified)
        return dataclasses.replace(c, M=c.M / 10, tau=c.tau / 10, rho=c.rho / 10)

    for module in (regions, lemmas):
        patch.setattr(module, "rate_constants", small)


PLANTS: dict[str, tuple[str, str, Plant]] = {
    "y* moves a tenth slower": (
        "ghadimi2018:lem-response", "witness", formula("kappa", lambda c: 0.9 * c.L / c.mu)),
    "dy/dx of another problem": ("ghadimi2018:lem-response", "witness", response_of_another_problem),
    "C without the summand of g_yy": (
        "ghadimi2018:lem-error", "witness", formula("C", lambda c: c.L + c.L**2 / c.mu + c.M * c.tau / c.mu)),
    "C without the summand of g_xy": (
        "ghadimi2018:lem-error", "witness", formula("C", lambda c: c.L + c.L**2 / c.mu + c.M * c.rho * c.L / c.mu**2)),
    "L_phi of C without a summand": (
        "ghadimi2018:lem-smooth", "witness", formula("C", lambda c: c.L + c.L**2 / c.mu + c.M * c.tau / c.mu)),
    "L_phi without 1 + kappa": ("ji2021:lem-smooth", "witness", formula("L_phi", lambda c, variant="": c.C)),
    "L_phi as printed": (
        "ji2021:lem-smooth", "witness",
        formula("L_phi", lambda c, variant="": (1 + c.kappa) * c.C - c.tau * (c.M - c.M**2) / c.mu)),
    "constants too small": ("ji2021:lem-smooth", "witness", constants_too_small),
    "the rate of conjugate gradients for descent": (
        "ghadimi2018:inner-rate", "scalar", formula("ba_rate", lambda c: c.cg_rate)),
    "a rate that is a little too good": (
        "ghadimi2018:inner-rate", "scalar", formula("ba_rate", lambda c: 0.98 * (c.L - c.mu) / (c.L + c.mu))),
    "AID with a step of descent less": ("ji2021:lem-aid", "easy", estimator_with_fewer_steps),
    "AID's sharp error with a power too many": (
        "ji2021:lem-aid", "easy", formula("descent_rate", lambda c, alpha: (1 - alpha * c.mu) ** 2)),
    "ITD's sharp error with a power too many": (
        "ji2021:lem-itd", "steps", formula("descent_rate", lambda c, alpha: (1 - alpha * c.mu) ** 2)),
    "AID's error without conjugate gradients": (
        "ji2021:lem-aid", "two", formula("aid_factors", aid_without_conjugate_gradients)),
    "AID's error without descent": ("ji2021:lem-aid", "scalar", formula("aid_factors", aid_without_descent)),
    "ITD's error that vanishes with that of y": (
        "ji2021:lem-itd", "slow", formula("itd_error", itd_without_the_last_summand)),
    "ITD's error with D doubled": ("ji2021:lem-itd", "slow", formula("itd_error", itd_of_another_exponent)),
    "ITD with a wrong sign": ("ji2021:lem-itd", "scalar", itd_with_a_wrong_sign),
    "AID-BiO eleven times as fast": ("ji2021:thm-aid", "scalar", schedule_with(slope=lambda s: s.slope / 11)),
    "AID-BiO with a shorter step than said": ("ji2021:thm-aid", "scalar", schedule_with(beta=lambda s: s.beta / 11)),
    "ITD-BiO six times as fast": (
        "ji2021:thm-itd", "scalar", schedule_with(slope=lambda s: s.slope / 6, floor=lambda s: 0.1 * s.floor)),
    "ITD-BiO with a shorter step than said": ("ji2021:thm-itd", "scalar", schedule_with(beta=lambda s: s.beta / 9)),
    "BA three times as fast": ("ghadimi2018:thm-ba", "scalar", schedule_with(slope=lambda s: s.slope / 3)),
    "a gradient ten times as long": ("ghadimi2018:thm-ba", "scalar", gradient_ten_times_as_long),
}  # fmt: skip


SHARP: dict[str, Variant] = {"easy": "sharp", "steps": "sharp"}


def judged(label: str, problem: str) -> CheckResult:
    variant = SHARP.get(problem, "corrected")
    (result,) = verify.run(PROBLEMS[problem](), claims=[label], variant=variant, effort="quick").results
    return result


@lru_cache(64)
def without(label: str, problem: str) -> CheckResult:
    return judged(label, problem)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", PLANTS)
def test_a_planted_defect_is_refuted(name: str, monkeypatch: Patch) -> None:
    label, problem, plant = PLANTS[name]
    assert without(label, problem).verdict is Verdict.HOLDS, str(without(label, problem))
    plant(monkeypatch)
    found = judged(label, problem)
    assert found.verdict is Verdict.VIOLATED, str(found)
    assert found.margin is not None
    assert found.margin < 0


def test_every_claim_has_a_plant() -> None:
    assert {label for label, _, _ in PLANTS.values()} == {item.label for item in verify.claims("ji2021")}


# ---- what claims are made of --------------------------------------------------------------------------------------


def test_an_erratum_that_is_none_is_refuted() -> None:
    right = errata.smoothness_constant
    for wrong in (
        dataclasses.replace(right, corrected_form=right.printed_form),
        dataclasses.replace(right, printed_form=right.corrected_form),
        dataclasses.replace(right, corrected_form=lambda c: c.C),  # homogeneous, and too small
        dataclasses.replace(right, printed_form=lambda c: 2 * c.L_phi()),
    ):
        assert wrong.check().verdict is Verdict.VIOLATED


def test_what_left_the_region_and_what_rounding_hides_is_left_open() -> None:
    study = verify.study_of(easy())
    at = np.zeros((3, 1))
    nothing, tie = np.full(3, math.nan), np.ones(3)
    for measured, noise in ((nothing, 0.0), (tie, 1e-9)):
        found = regions.compared("ji2021:lem-itd", study, measured, tie, noise, at=at, message="m")
        assert found.verdict is Verdict.INCONCLUSIVE
    worst = regions.compared("ji2021:lem-itd", study, np.array([0.5, 3.0, 2.0]), tie, 0.0, at=at, message="m")
    assert (worst.verdict, worst.measured) == (Verdict.VIOLATED, 3.0)


def test_a_violation_in_any_region_counts() -> None:
    study, seen = verify.study_of(easy(), effort="quick"), []

    def check(region: regions.Region) -> CheckResult:
        seen.append(region.name)
        return verify.judged("own:one", 2.0 if len(seen) == 1 else 0.5, 1.0, evidence="sampled", message="m")

    assert regions.decided(study, check).verdict is Verdict.VIOLATED
    assert len(seen) == 3


def test_starts_keep_the_ball_of_descent_inside() -> None:
    study = verify.study_of(PROBLEMS["two"](), effort="quick")
    for region in regions.regions(study):
        start = regions.starts(study, region, 12, "here")
        off = np.linalg.norm(start.y - start.y_star, axis=1)
        assert (off > 0).any()
        assert region.holds(start.x, start.y_star, off).all()
        assert not region.holds(start.x, start.y_star, off + 1e9).any()
