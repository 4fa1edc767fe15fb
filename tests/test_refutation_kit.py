"""Planted defects of the test kit's own judgement: what was seen to go wrong, put back, is noticed by its tests."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from test_testkit_work import EIGHT, TOY, Counted, hypergradient, lower, wrong_at_the_seventh

from verify.testkit import differences, examination
from verify.testkit.candidate import STEPS, Candidate
from verify.testkit.checks import check_hypergradient
from verify.testkit.derivative_checks import check_gradient
from verify.testkit.differences import Line, _Pairs
from verify.testkit.examination import Examination
from verify.testkit.reference import Asked
from verify.testkit.result import CandidateCheck
from verify.testkit.sweep import Sweep
from verify.verdict import Verdict

Change = Callable[[pytest.MonkeyPatch], None]


def seventh() -> bool:
    return check_hypergradient(wrong_at_the_seventh, TOY, points=EIGHT).verdict is Verdict.VIOLATED


def never() -> bool:
    candidate = Counted(lambda x, D: TOY.kernels.grad_phi(x) * (1 + 1 / D))
    return check_hypergradient(candidate, TOY).verdict is not Verdict.HOLDS and candidate.steps <= STEPS


def biased() -> bool:
    """At an effort that ends long before the bias shows."""

    def candidate(x: Any, D: int) -> Any:
        return hypergradient(TOY, x, lower(TOY, x, D), 1.001)

    return all(check_hypergradient(candidate, TOY, effort=e).verdict is not Verdict.HOLDS for e in (0.01, 0.02, 0.05))


def short_steps() -> bool:
    result = check_hypergradient(lambda x, D: hypergradient(TOY, x, lower(TOY, x, D, 0.001)), TOY)
    return result.verdict is not Verdict.VIOLATED


def asks_as_many_as_seem_enough(patch: pytest.MonkeyPatch) -> None:
    """Four points, whoever named them."""
    original = Examination._asked

    def some(self: Examination, settings: Any, at: Any = None, **more: Any) -> Any:
        return original(self, settings, (self.at if at is None else at)[:4], **more)

    patch.setattr(Examination, "_asked", some)


def counts_calls(patch: pytest.MonkeyPatch) -> None:
    """A call is one step, whatever D is."""
    patch.setattr(Candidate, "cost", lambda self, settings=None: 1)


def believes_a_rate(patch: pytest.MonkeyPatch) -> None:
    """What shrinks counts as reached, as it did where time was up."""
    patch.setattr(examination, "SHRINKS", ())
    judged = Sweep._with_verdict

    def reached(self: Sweep, found: Any) -> Any:
        told = judged(self, found)
        if told.verdict not in ("as theory says", "still shrinking"):
            return told
        floor = np.full_like(told.floor, 2 * told.errors[-1].max())
        return type(told)(told.knobs, told.tried, told.errors, floor, "reached", values=told.values, x=told.x)

    patch.setattr(Sweep, "_with_verdict", reached)
    patch.setattr(Asked, "right", property(lambda self: bool(np.all(self.errors < 1e-2))))


def calls_slow_steps_a_bias(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(Sweep, "_creeps", lambda self, errors, floor: False)


def no_false_alarm() -> bool:
    """A sum whose rounding is many times that of its value."""

    def fun(x: Any) -> float:
        return float(1e6 + np.sin(x).sum() - 1e6)

    return check_gradient(fun, np.cos, [[0.3, 1.0], [2.0, 0.1]]).verdict is Verdict.HOLDS


def no_alarm_at_ripples() -> bool:
    """Short ones on a long slope: long steps do not see them."""

    def fun(x: Any) -> float:
        return float(np.sum(x**2 + 1e-2 * np.sin(1e3 * x)))

    return check_gradient(fun, lambda x: 2 * x + 10 * np.cos(1e3 * x), [[0.3, 1.0]]).verdict is Verdict.HOLDS


def a_small_error_is_seen() -> bool:
    wrong = check_gradient(lambda x: float(np.sin(x).sum()), lambda x: np.cos(x) * (1 + 1e-6), [[0.3, 1.0]])
    return wrong.verdict is Verdict.VIOLATED


def takes_values_for_exact(patch: pytest.MonkeyPatch) -> None:
    """A rounding of the value is all that is allowed."""
    patch.setattr(Line, "_noise", lambda self: 2.0**-52 * np.abs(self.fun(self.x)))


def trusts_the_longest_steps(patch: pytest.MonkeyPatch) -> None:
    """What shorter steps say is not asked."""
    patch.setattr(_Pairs, "agreeing", staticmethod(lambda rest, bound: len(rest)))


def lets_noise_explain_all(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(differences, "SIGMAS", 1e8)


def a_told_y_is_believed() -> bool:
    """y is off, in a way that no hypothesis has, and the candidate says which y it took."""
    k = TOY.kernels

    def candidate(x: Any) -> Any:
        y = k.y_star(x) + 0.01 * np.sin(7 * x[: TOY.n])
        v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))
        return {"grad": k.f_x(x, y) - k.g_xy(x, y) @ v, "y": y, "v": v}

    return check_hypergradient(candidate, TOY).cause == "y*"


def does_not_listen(patch: pytest.MonkeyPatch) -> None:
    """What a candidate tells beside its answer is lost."""
    patch.setattr(examination, "told_wrong", lambda asked: None)


def digits_of_the_worst() -> bool:
    """Two points are wrong; the one that is further from rounding has more digits."""
    wrong = check_hypergradient(lambda x: TOY.kernels.grad_phi(x) + 1e-6 * (np.abs(x).sum() > 0), TOY, points=EIGHT)
    return not wrong.has(12) and wrong.has(2)


def lets_every_digit_pass(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(CandidateCheck, "has", lambda self, digits: True)


DEFECTS: list[tuple[Change, Callable[[], bool]]] = [
    (asks_as_many_as_seem_enough, seventh),
    (counts_calls, never),
    (believes_a_rate, biased),
    (calls_slow_steps_a_bias, short_steps),
    (takes_values_for_exact, no_false_alarm),
    (trusts_the_longest_steps, no_alarm_at_ripples),
    (lets_noise_explain_all, a_small_error_is_seen),
    (does_not_listen, a_told_y_is_believed),
    (lets_every_digit_pass, digits_of_the_worst),
]


@pytest.mark.slow
@pytest.mark.parametrize(("defect", "passes"), DEFECTS, ids=[defect.__name__ for defect, _ in DEFECTS])
def test_a_planted_defect_of_the_kit_is_noticed(
    defect: Change, passes: Callable[[], bool], monkeypatch: pytest.MonkeyPatch
) -> None:
    assert passes()
    defect(monkeypatch)
    assert not passes()
