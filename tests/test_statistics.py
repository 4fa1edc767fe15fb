"""Confidence bounds, the sequential test and Holm's rule, against sums in rationals and exact dynamic programming."""

import math
from collections.abc import Callable
from fractions import Fraction
from itertools import combinations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from bilevel_sym.errors import InvalidArgument
from verify.statistics import (
    SequentialTest,
    Side,
    clopper_pearson,
    corrected,
    holm,
    judged_probability,
    p_value,
    runs_needed,
)
from verify.verdict import Bracket


def at_most(count: int, runs: int, p: Fraction) -> Fraction:
    """P(X <= count) for X ~ Bin(runs, p), by summation in rationals."""
    return sum((math.comb(runs, k) * p**k * (1 - p) ** (runs - k) for k in range(count + 1)), Fraction(0))


def is_clopper_pearson(bracket: Bracket, successes: int, runs: int, alpha: Fraction) -> bool:
    """Whether both ends satisfy their defining equations, the safe side of them and no further than rounding."""
    nearby = Fraction(1, 10**13)
    low, high = Fraction(bracket.lower), Fraction(bracket.upper)
    if successes == 0:
        lower = low == 0
    else:
        inner = low * (1 + nearby)
        lower = 1 - at_most(successes - 1, runs, low) <= alpha / 2 <= 1 - at_most(successes - 1, runs, inner)
    if successes == runs:
        upper = high == 1
    else:
        inner = high * (1 - nearby)
        upper = at_most(successes, runs, high) <= alpha / 2 <= at_most(successes, runs, inner)
    return lower and upper


@settings(max_examples=40, deadline=None)
@given(st.integers(1, 60), st.integers(0, 60), st.sampled_from([0.9, 0.95, 0.99, 0.999]))
def test_both_ends_solve_their_equations_in_rationals(runs: int, successes: int, confidence: float) -> None:
    successes = min(successes, runs)
    alpha = 1 - Fraction(str(confidence))
    assert is_clopper_pearson(clopper_pearson(successes, runs, confidence), successes, runs, alpha)


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_bound_of_the_neighbouring_count_is_caught(shift: int) -> None:
    """The check above can fail: the bounds of one success more or less do not pass it."""
    wrong = clopper_pearson(7 + shift, 20, 0.99)
    assert not is_clopper_pearson(wrong, 7, 20, Fraction(1, 100))
    assert not is_clopper_pearson(clopper_pearson(7, 20 + shift, 0.99), 7, 20, Fraction(1, 100))


@pytest.mark.parametrize("p", [Fraction(1, 1000), Fraction(1, 20), Fraction(3, 10), Fraction(1, 2), Fraction(97, 100)])
@pytest.mark.parametrize("side", ["two", "lower", "upper"])
def test_coverage_by_enumeration(p: Fraction, side: Side) -> None:
    runs, confidence = 25, 0.95
    chances = [math.comb(runs, k) * p**k * (1 - p) ** (runs - k) for k in range(runs + 1)]
    brackets = [clopper_pearson(k, runs, confidence, side) for k in range(runs + 1)]
    covered = sum(c for c, b in zip(chances, brackets, strict=True) if Fraction(b.lower) <= p <= Fraction(b.upper))
    assert covered >= Fraction(95, 100)


def test_corners_are_exact() -> None:
    assert clopper_pearson(0, 10, 0.99).lower == 0.0
    assert clopper_pearson(10, 10, 0.99).upper == 1.0
    # 1 - alpha^(1/n), one-sided
    assert clopper_pearson(0, 2, 0.99, "upper").upper == pytest.approx(0.9, rel=1e-15)
    assert clopper_pearson(0, 2, 0.99, "upper").upper >= 0.9
    assert clopper_pearson(2, 2, 0.99, "lower").lower == pytest.approx(0.1, rel=1e-15)
    assert (clopper_pearson(0, 0).lower, clopper_pearson(0, 0).upper) == (0.0, 1.0)
    assert clopper_pearson(0, 2000, 0.99, "upper").upper < 0.0023


@pytest.mark.parametrize(("failures", "runs"), [(1, 10**9), (3 * 10**6, 10**7), (0, 10**12)])
def test_large_numbers_of_runs(failures: int, runs: int) -> None:
    bracket = clopper_pearson(failures, runs)
    assert bracket.lower <= failures / runs <= bracket.upper < 1.5 * failures / runs + 9 / runs


def test_runs_needed_is_the_smallest_number() -> None:
    assert [runs_needed(delta, 0.99) for delta in (0.1, 0.01, 0.001)] == [44, 459, 4603]
    assert runs_needed(0.9, 0.99) == 2  # a tie: 0.1^2 is 1 - 0.99
    assert runs_needed(0.999, 0.5) == 1
    for delta in (0.3, 0.07, 0.02):
        n, kept = runs_needed(delta, 0.95), 1 - Fraction(str(delta))
        assert kept**n <= Fraction(5, 100) < kept ** (n - 1)
    assert runs_needed(1e-9) == pytest.approx(math.log(100) * 1e9, rel=1e-8)


def wrong_outcomes(delta: float, confidence: float, p: float, steps: int, wrong: str) -> float:
    """P(the outcome is ever wrong within so many runs), by dynamic programming over the number of failures."""
    alive = {0: 1.0}
    lost = 0.0
    for n in range(1, steps + 1):
        following = stepped(alive, p)
        alive = {}
        for k, mass in following.items():
            # the last run may have failed or not: what is known is the count
            before = (
                SequentialTest(delta, confidence, n - 1, k)
                if k < n
                else SequentialTest(delta, confidence, n - 1, n - 1)
            )
            outcome = before.update([k == n]).outcome
            if outcome == wrong:
                lost += mass
            elif outcome == "undecided":
                alive[k] = mass
    return lost


def stepped(alive: dict[int, float], p: float) -> dict[int, float]:
    """The distribution of the number of failures after one more run."""
    following: dict[int, float] = {}
    for failures, mass in alive.items():
        for failed, chance in ((0, 1 - p), (1, p)):
            following[failures + failed] = following.get(failures + failed, 0.0) + mass * chance
    return following


@pytest.mark.slow
@pytest.mark.parametrize(("delta", "confidence"), [(0.1, 0.95), (0.3, 0.9)])
def test_the_sequential_test_keeps_its_level_at_every_stopping_time(delta: float, confidence: float) -> None:
    alpha = 1 - confidence
    at_delta = [wrong_outcomes(delta, confidence, delta, 250, wrong) for wrong in ("supported", "refuted")]
    # either outcome is an error in the limit: both together stay below alpha, and the level is not wasted
    assert 0.05 * alpha < sum(at_delta) <= alpha
    assert wrong_outcomes(delta, confidence, 1.3 * delta, 250, "supported") <= alpha
    assert wrong_outcomes(delta, confidence, 0.7 * delta, 250, "refuted") <= alpha


@pytest.mark.slow
def test_peeking_at_fixed_bounds_loses_the_level() -> None:
    """The reason for the sequential test, and a proof that the dynamic programme can see a lost level."""
    delta, alpha, alive, lost = 0.3, 0.1, {0: 1.0}, 0.0
    for n in range(1, 251):
        following = stepped(alive, delta)
        stopped = {k for k in following if p_value(k, n, delta) < alpha}
        lost += sum(following[k] for k in stopped)
        alive = {k: mass for k, mass in following.items() if k not in stopped}
    assert lost > 1.5 * alpha


def test_the_sequential_test_decides() -> None:
    rng = np.random.default_rng(0)
    good = SequentialTest(0.1).update(rng.random(3000) < 0.05)
    bad = SequentialTest(0.1).update(rng.random(3000) < 0.2)
    assert (good.outcome, bad.outcome) == ("supported", "refuted")
    assert good.runs == 3000
    assert good.decided_at is not None
    assert good.decided_at < 3000
    clean = SequentialTest(0.1).update([False] * 100).decided_at
    assert clean is not None
    assert clean < 1.5 * runs_needed(0.1)
    assert SequentialTest(0.1).update(rng.random(3000) < 0.1).outcome == "undecided"


def test_updates_in_pieces_agree_with_one_update() -> None:
    flips = np.random.default_rng(1).random(400) < 0.02
    whole = SequentialTest(0.05).update(flips)
    pieces = SequentialTest(0.05).update(flips[:100]).update(flips[100:101]).update(flips[101:])
    assert whole == pieces
    assert whole.failures == int(flips.sum())


def test_the_e_value_is_a_martingale_under_delta() -> None:
    """One step ahead the mean of the e-value is the e-value: the property that Ville's inequality needs."""
    for runs, failures in ((0, 0), (5, 1), (40, 3), (40, 0)):
        now = SequentialTest(0.1, runs=runs, failures=failures)
        then = [SequentialTest(0.1, runs=runs + 1, failures=failures + k).e_value for k in (0, 1)]
        assert 0.9 * then[0] + 0.1 * then[1] == pytest.approx(now.e_value, rel=1e-9)


def test_the_interval_agrees_with_the_outcome() -> None:
    rng = np.random.default_rng(2)
    for rate in (0.0, 0.05, 0.2, 1.0):
        test = SequentialTest(0.1, 0.95)
        for flip in rng.random(200) < rate:
            test = test.update([flip])
            if test.decided_at == test.runs:
                break
        interval = test.interval
        said = "supported" if interval.upper <= 0.1 else "refuted" if interval.lower >= 0.1 else "undecided"
        assert said == test.outcome
        assert clopper_pearson(test.failures, test.runs, 0.95).upper <= interval.upper


def test_holm_against_its_definition() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        p = [float(value) for value in rng.random(5) ** 3]
        adjusted = holm(p)
        for alpha in (0.01, 0.05, 0.2):
            # closed testing with Bonferroni's test of every intersection is Holm's rule
            rejected = [
                all(
                    min(p[j] for j in subset) <= alpha / size
                    for size in range(1, 6)
                    for subset in combinations(range(5), size)
                    if i in subset
                )
                for i in range(5)
            ]
            assert [q <= alpha for q in adjusted] == rejected
    assert holm([]) == ()
    assert holm([0.4]) == (0.4,)


def test_corrected_confidence() -> None:
    assert corrected(0.99, 1) == 0.99
    assert 1 - Fraction(repr(corrected(0.99, 7))) <= Fraction(1, 700)
    with pytest.raises(InvalidArgument):
        corrected(0.99, 0)


@pytest.mark.parametrize(
    ("failures", "runs", "verdict"),
    [
        (0, 459, "HOLDS"),
        (0, 458, "INCONCLUSIVE"),
        (5, 100, "VIOLATED"),
        (2, 100, "INCONCLUSIVE"),
        (0, 0, "INCONCLUSIVE"),
    ],
)
def test_judged_probability(failures: int, runs: int, verdict: str) -> None:
    result = judged_probability("lem:err-grad", failures, runs, 0.01, message="m")
    assert str(result.verdict) == verdict
    assert (result.evidence, result.confidence, result.n_points) == ("statistical", 0.99, runs)
    if verdict == "INCONCLUSIVE":
        assert "would decide" in result.message


def test_what_cannot_be_tested_says_so() -> None:
    assert "nothing was tested" in judged_probability("lem:err-grad", 0, 100, 1.0, message="").message
    assert str(judged_probability("lem:err-grad", 1, 100, 0.0, message="").verdict) == "VIOLATED"
    assert "no number of runs" in judged_probability("lem:err-grad", 0, 100, 0.0, message="").message
    assert "no number of runs" in judged_probability("lem:err-grad", 1, 10, 0.1, message="").message


@pytest.mark.parametrize(
    "call",
    [
        lambda: clopper_pearson(3, 2),
        lambda: clopper_pearson(-1, 2),
        lambda: clopper_pearson(1, 2, 1.0),
        lambda: clopper_pearson(1, 2, math.nan),
        lambda: clopper_pearson(1, 2, 0.9, "both"),  # type: ignore[arg-type]
        lambda: SequentialTest(0.0),
        lambda: SequentialTest(math.nan),
        lambda: runs_needed(1.0),
        lambda: runs_needed(1e-300),
        lambda: holm([0.5, math.nan]),
        lambda: judged_probability("lem:err-grad", 0, 1, math.nan, message=""),
    ],
)
def test_nonsense_is_refused(call: Callable[[], object]) -> None:
    with pytest.raises(InvalidArgument):
        call()
