"""The kit counts work, and no clock decides: slow candidates get the verdicts of quick ones, and all points are asked."""

from __future__ import annotations

import inspect
import itertools
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest
from helpers import THOROUGH

from bilevel_sym import AID, BilevelProblem, zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system import budget
from bilevel_sym.typing import Floats
from verify import gallery
from verify.papers.huang_saddle.trajectory.check import check_trajectory
from verify.testkit.candidate import STEPS, Candidate
from verify.testkit.checks import check_hessian, check_hypergradient, check_lower_solution
from verify.testkit.local_minimum import check_local_minimum
from verify.testkit.result import CandidateCheck
from verify.verdict import Verdict

Function = Callable[..., Any]
CHECKS: dict[str, Function] = {
    "hypergradient": check_hypergradient,
    "hessian": check_hessian,
    "lower solution": check_lower_solution,
}
TOY = BilevelProblem(
    "sin(x1)*y1 + x2**2*y2", "y1**2 + 2*y2**2 + y1*y2/2 - x1*y1 - sin(x2)*y2", "x1 x2", "y1 y2",
    box={"x1": (-1, 1), "x2": (-1, 1), "y1": (-2, 2), "y2": (-2, 2)},
)  # fmt: skip
EIGHT = [[0.1 * k - 0.35, 0.8 - 0.15 * k] for k in range(8)]


def clocks(monkeypatch: pytest.MonkeyPatch, jump: float = 1000.0) -> None:
    """Every clock that Python has goes on by so many seconds whenever it is read."""
    ticks: Iterator[float] = itertools.count(0.0, jump)
    monkeypatch.setattr(budget, "monotonic", lambda: next(ticks))
    for name in ("perf_counter", "time", "process_time", "thread_time"):
        monkeypatch.setattr(time, name, lambda: next(ticks))


def same(a: CandidateCheck, b: CandidateCheck) -> None:
    """Bitwise the same result."""
    assert (a.verdict, a.message, a.cause, a.n_points) == (b.verdict, b.message, b.cause, b.n_points)
    assert repr((a.measured, a.bound, a.worst_point)) == repr((b.measured, b.bound, b.worst_point))


def lower(problem: BilevelProblem, x: Floats, D: int, tau: float = 0.2) -> Floats:
    y = np.zeros(problem.n)
    for _ in range(D):
        y = y - tau * problem.kernels.g_y(x, y)
    return y


def hypergradient(problem: BilevelProblem, x: Floats, y: Floats, weight: float = 1.0) -> Floats:
    k = problem.kernels
    return np.asarray(k.f_x(x, y) - weight * k.g_xy(x, y) @ np.linalg.solve(k.g_yy(x, y), k.f_y(x, y)))


class Counted:
    """A candidate whose calls and steps are counted; ``delay`` in seconds for each call and each step."""

    def __init__(self, function: Function, *, call: float = 0.0, step: float = 0.0) -> None:
        self.function, self.delays = function, (call, step)
        self.points: list[Floats] = []
        self.steps = 0
        self.__signature__ = inspect.signature(function)

    def __call__(self, x: Floats, **settings: float) -> Any:
        counts = [int(value) for name, value in settings.items() if name != "tol"]
        self.points.append(x)
        self.steps += max(1, sum(counts))
        if any(self.delays):
            time.sleep(self.delays[0] + self.delays[1] * sum(counts))
        return self.function(x, **settings)


# ---- (a) all the points that a user names are asked


def wrong_at_the_seventh(x: Floats) -> Floats:
    right = TOY.kernels.grad_phi(x)
    return right + 1e-3 if np.array_equal(x, EIGHT[6]) else right


@pytest.mark.slow
def test_wrong_at_the_seventh_of_eight_points(monkeypatch: pytest.MonkeyPatch) -> None:
    quick = check_hypergradient(Counted(wrong_at_the_seventh), TOY, points=EIGHT)
    assert quick.verdict is Verdict.VIOLATED
    assert quick.worst_point == {"x1": EIGHT[6][0], "x2": EIGHT[6][1]}
    assert "wrong at 1 of 8 points" in quick.message
    clocks(monkeypatch)
    monkeypatch.setattr(time, "sleep", lambda seconds: None)
    slow = Counted(wrong_at_the_seventh, call=0.3)
    same(check_hypergradient(slow, TOY, points=EIGHT), quick)
    assert {tuple(x) for x in slow.points} >= set(map(tuple, EIGHT))


@pytest.mark.slow
def test_wrong_at_the_seventh_of_eight_points_and_truly_slow() -> None:
    quick = check_hypergradient(wrong_at_the_seventh, TOY, points=EIGHT)
    same(check_hypergradient(Counted(wrong_at_the_seventh, call=0.05), TOY, points=EIGHT), quick)


@pytest.mark.slow
@pytest.mark.parametrize("effort", ["quick", 0.01, "default"])
def test_named_points_are_all_asked_whatever_the_effort(effort: Any) -> None:
    def right(x: Floats, D: int) -> Floats:
        return hypergradient(TOY, x, lower(TOY, x, D))

    many = [[0.01 * k, -0.02 * k] for k in range(40)]
    for function in (right, lambda x: right(x, 200), lambda x, D: 1.001 * right(x, D)):
        candidate = Counted(function)
        result = check_hypergradient(candidate, TOY, points=many, effort=effort)
        assert {tuple(x) for x in candidate.points} >= set(map(tuple, many))
        assert result.n_points == 40 or result.verdict is Verdict.INCONCLUSIVE


@pytest.mark.slow
def test_of_the_points_that_nobody_named_some_may_be_left_out_and_that_is_said() -> None:
    """Each call is a thousand steps, and the budget holds ten of them."""

    def right(x: Floats, D: int = 1000) -> Floats:
        return np.asarray(TOY.kernels.grad_phi(x))

    candidate = Counted(right)
    result = check_hypergradient(candidate, TOY)
    assert result.verdict is Verdict.HOLDS
    assert "at the worst of 9 of 12 certified points" in result.message
    assert len(candidate.points) == result.n_points == 9
    result = check_hypergradient(right, TOY, effort="thorough")
    assert "of 12 certified" not in result.message
    wrong = check_hypergradient(lambda x, D=1000: 2 * right(x), TOY, effort="quick")
    assert wrong.verdict is Verdict.VIOLATED
    assert " of 12: each call is many steps)" in wrong.message


# ---- (b) a bias is found whatever a step costs


def weighed(weight: float) -> Function:
    return lambda x, D: hypergradient(TOY, x, lower(TOY, x, D), weight)


@pytest.mark.slow
@pytest.mark.parametrize("points", [None, EIGHT])
def test_an_implicit_term_that_is_a_thousandth_too_large(monkeypatch: pytest.MonkeyPatch, points: Any) -> None:
    quick = Counted(weighed(1.001))
    result = check_hypergradient(quick, TOY, points=points)
    assert (result.verdict, result.cause) == (Verdict.VIOLATED, "cross"), result.message
    slept: list[float] = []
    monkeypatch.setattr(time, "sleep", slept.append)
    for delay in (0.003, 0.01):
        clocks(monkeypatch, jump=delay)
        slow = Counted(weighed(1.001), step=delay)
        same(check_hypergradient(slow, TOY, points=points), result)
        assert slow.steps == quick.steps
    assert sum(slept) > 1.0


@pytest.mark.long
@pytest.mark.parametrize("delay", [0.003, 0.01])
def test_an_implicit_term_that_is_a_thousandth_too_large_and_truly_slow(delay: float) -> None:
    points = EIGHT[:3]
    quick = check_hypergradient(weighed(1.001), TOY, points=points, effort=0.05)
    assert quick.verdict is Verdict.VIOLATED
    same(check_hypergradient(Counted(weighed(1.001), step=delay), TOY, points=points, effort=0.05), quick)


@pytest.mark.slow
@pytest.mark.in_ci(effort=["quick"])
@pytest.mark.parametrize("effort", [0.01, 0.03, "quick", 0.3, "default", pytest.param(3.0, marks=pytest.mark.slow)])
@pytest.mark.parametrize("bias", [1e-2, 1e-3, 1e-5, 1e-8])
def test_a_bias_never_holds_at_any_effort(effort: Any, bias: float) -> None:
    """An error that falls as theory says on its way to a bias is not yet called right."""
    for tau in (0.2, 0.02):

        def biased(x: Floats, D: int, tau: float = tau) -> Floats:
            return hypergradient(TOY, x, lower(TOY, x, D, tau), 1 + bias)

        assert check_hypergradient(biased, TOY, effort=effort).verdict is not Verdict.HOLDS
    assert check_hypergradient(weighed(1 + bias), TOY, effort=1.0).verdict is Verdict.VIOLATED


@pytest.mark.slow
def test_what_shrinks_as_theory_says_and_is_not_there_decides_nothing() -> None:
    problem = zoo.get("quadratic", d=2, n=3, spectrum=(1.0, 30.0, 1000.0)).problem

    def right(x: Floats, D: int) -> Floats:
        return hypergradient(problem, x, lower(problem, x, D, 1e-3))

    result = check_hypergradient(right, problem)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert result.convergence is not None
    assert result.convergence.verdict in ("as theory says", "still shrinking")
    assert "of 12 points" in result.message
    assert "time" not in result.message
    assert check_hypergradient(lambda x: right(x, 40_000), problem, points=[[0.5, -0.25]]).verdict is Verdict.HOLDS


def test_the_outlook_says_how_many_steps_are_needed() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2, and kappa = 1

    def slow(x: Floats, D: int) -> Floats:
        return 2 * x * (1 - 0.998**D)

    found = check_hypergradient(slow, problem, effort=0.1)
    assert found.verdict is Verdict.INCONCLUSIVE, found.message
    assert check_hypergradient(lambda x: slow(x, 20_000), problem).verdict is Verdict.HOLDS


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("tau", [0.05, 0.01, 1e-3, 1e-4])
def test_steps_that_are_short_are_slow_and_not_wrong(tau: float) -> None:
    result = check_hypergradient(lambda x, D: hypergradient(TOY, x, lower(TOY, x, D, tau)), TOY)
    assert result.verdict is not Verdict.VIOLATED, result.message


# ---- (c) a clock that runs a thousand seconds at each look moves no verdict


def outcomes(items: list[gallery.Defect]) -> list[Any]:
    found: list[Any] = []
    for item in items:
        problem = item.showcase()
        if item.kind == "trajectory":
            report = check_trajectory(item.candidate(problem), problem)
            found.append(tuple((r.label, r.part, r.verdict, r.message) for r in report.results))
        else:
            result = CHECKS[item.kind](item.candidate(problem), problem, rng=0)
            found.append((result.verdict, result.cause, repr(result.measured), result.message))
    return found


@pytest.mark.slow
@pytest.mark.in_ci("some")
@pytest.mark.parametrize(
    "items",
    [gallery.defects()[::18], pytest.param(gallery.defects()[:: 1 if THOROUGH else 3], marks=pytest.mark.slow)],
    ids=["some", "many"],
)
def test_a_clock_that_jumps_moves_no_verdict_of_the_gallery(
    items: list[gallery.Defect], monkeypatch: pytest.MonkeyPatch
) -> None:
    before = outcomes(items)
    clocks(monkeypatch)
    assert outcomes(items) == before


def right_ones(problem: BilevelProblem) -> dict[str, Function]:
    k = problem.kernels
    return {
        "kernels": k.grad_phi,
        "AID": lambda x, D, N: AID(D=D, N=N, tau=0.2).estimate(problem, x).grad_phi_hat,
        "descent": lambda x, D=300: hypergradient(problem, x, lower(problem, x, D)),
        "tol": lambda x, tol: hypergradient(problem, x, k.y_star(x) * (1 + tol)),
    }


@pytest.mark.slow
def test_a_clock_that_jumps_moves_no_verdict_of_what_is_right(monkeypatch: pytest.MonkeyPatch) -> None:
    before = {name: check_hypergradient(function, TOY, effort=0.5) for name, function in right_ones(TOY).items()}
    assert {result.verdict for result in before.values()} == {Verdict.HOLDS}
    clocks(monkeypatch)
    for name, function in right_ones(TOY).items():
        same(check_hypergradient(function, TOY, effort=0.5), before[name])


def test_a_clock_that_jumps_does_cut_where_seconds_are_given(monkeypatch: pytest.MonkeyPatch) -> None:
    """So the clock of the tests above is the one that would have been read."""
    clocks(monkeypatch)
    assert check_hypergradient(TOY.kernels.grad_phi, TOY, seconds=1e4).verdict is Verdict.INCONCLUSIVE


# ---- (d) what never converges ends


def noise(x: Floats, D: int) -> Floats:
    return np.random.default_rng([*np.abs(x * 1e6).astype(int).tolist(), D]).standard_normal(2)


NEVER: dict[str, Function] = {
    "constant": lambda x, D: np.array([1.0, 2.0]),
    "1/D": lambda x, D: TOY.kernels.grad_phi(x) * (1 + 1 / D),
    "1/sqrt(D)": lambda x, D, N: TOY.kernels.grad_phi(x) * (1 + D**-0.5),
    "1/log(D)": lambda x, Q: TOY.kernels.grad_phi(x) * (1 + 1 / np.log(1 + Q)),
    "up and down": lambda x, D: TOY.kernels.grad_phi(x) * (1 + np.sin(D)),
    "noise": noise,
    "three knobs": lambda x, D, N, Q: TOY.kernels.grad_phi(x) * (1 + 1e-6 + 0.999**D),
    "slowly growing": lambda x, D: TOY.kernels.grad_phi(x) * (1 + 0.01 * np.log(1 + D)),
    "with a default": lambda x, D=700: TOY.kernels.grad_phi(x) * (1 + 1 / D),
    "creeping": lambda x, D, N: TOY.kernels.grad_phi(x) * (1 + (1 - 1e-6) ** D),
}


@pytest.mark.slow
@pytest.mark.in_ci(every=4)
@pytest.mark.parametrize(
    "points",
    [None, EIGHT, pytest.param([[0.01 * k, 0.3] for k in range(100)], marks=pytest.mark.slow)],
    ids=["chosen", "8", "100"],
)
@pytest.mark.parametrize("name", NEVER)
def test_what_never_converges_ends_within_20_000_steps(name: str, points: Any) -> None:
    candidate = Counted(NEVER[name])
    result = check_hypergradient(candidate, TOY, points=points)
    assert result.verdict is not Verdict.HOLDS
    own = "default" in name  # with its own number of steps it is asked at all the points that a user names
    assert candidate.steps <= STEPS + (700 * len(points) if own and points else 0), candidate.steps
    quick = Counted(NEVER[name])
    check_hypergradient(quick, TOY, points=points, effort="quick")
    assert quick.steps <= STEPS / 10 + (700 * len(points or EIGHT) if own else len(points or ()) * 3)


@pytest.mark.slow
@pytest.mark.parametrize("points", [None, EIGHT])
def test_what_converges_at_some_points_and_never_at_others(points: Any) -> None:
    candidate = Counted(lambda x, D: TOY.kernels.grad_phi(x) * (1 + 0.9**D + (x[0] > 0.2) / D))
    result = check_hypergradient(candidate, TOY, points=points)
    assert result.verdict is not Verdict.HOLDS
    assert candidate.steps <= STEPS
    seventh = Counted(lambda x, D: wrong_at_the_seventh(x) * (1 + 0.9**D))
    assert check_hypergradient(seventh, TOY, points=EIGHT).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("name", ["hessian", "lower solution"])
def test_the_other_checks_count_too(name: str) -> None:
    truth = TOY.kernels.hess_phi if name == "hessian" else TOY.kernels.y_star
    candidate = Counted(lambda x, D: truth(x) * (1 + 1 / D))
    assert CHECKS[name](candidate, TOY).verdict is not Verdict.HOLDS
    assert 100 < candidate.steps <= STEPS


def test_a_call_is_as_many_steps_as_its_numbers_say() -> None:
    candidate = Candidate(lambda x, D=5, N=3, tol=1e-3: x, (1,))
    assert [candidate.cost(s) for s in ({}, {"D": 50}, {"D": 50, "N": 10, "tol": 1e-9}, {"N": 0})] == [8, 53, 60, 5]
    for settings in ({}, {"D": 50}):
        candidate(np.zeros(1), settings)
    assert candidate.budget.spent == 61
    assert Candidate(lambda x: x, (1,)).cost() == 1
    assert Candidate(lambda x, D=None, N=np.inf: x, (1,)).cost() == 1
    assert Candidate(lambda x, D=10**9: x, (1,)).cost() == STEPS / 4  # a limit that is rarely met


# ---- (e) seconds cut, and what they cut decides nothing


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("weight", [1.0, 0.5])
@pytest.mark.parametrize("looks", [1, 5, 13, 30, 200, 5000])
def test_cut_by_seconds(monkeypatch: pytest.MonkeyPatch, weight: float, looks: int) -> None:
    def candidate(x: Floats) -> Floats:
        return hypergradient(TOY, x, TOY.kernels.y_star(x), weight)

    whole = check_hypergradient(candidate, TOY)
    clocks(monkeypatch, jump=1.0)
    result = check_hypergradient(candidate, TOY, seconds=looks + 0.5)
    if "cut by time" not in result.message:
        assert looks > 30
        same(result, whole)
    elif result.verdict is Verdict.VIOLATED:  # the error is proved, and only the Taylor test is left out
        assert (weight, result.measured, result.cause) == (0.5, whole.measured, whole.cause)
    else:
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "left out: " in result.message
        assert "of 12 points" in result.message or "all 12 points" in result.message or looks > 20
    assert (result.verdict is Verdict.HOLDS) == (looks == 5000 and weight == 1.0)


def test_cut_by_seconds_says_what_was_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    clocks(monkeypatch, jump=1.0)
    result = check_hypergradient(TOY.kernels.grad_phi, TOY, seconds=17.5)
    assert result.message.splitlines()[0] == (
        "cut by time (17.5 s), so that nothing is decided; left out: 7 of 12 points"
    )
    assert "asked at 5 of 12 points" in result.message
    monkeypatch.setattr(budget, "monotonic", itertools.count(0.0, 1.0).__next__)
    result = check_hypergradient(TOY.kernels.grad_phi, TOY, seconds=100.5)
    assert "left out: 1000 more points at random" in result.message
    monkeypatch.setattr(budget, "monotonic", itertools.count(0.0, 1.0).__next__)
    result = check_hypergradient(weighed(1.0), TOY, seconds=30.5)
    assert "left out: how the error falls as D are raised" in result.message


@pytest.mark.slow
def test_a_candidate_that_is_truly_slow_is_cut() -> None:
    result = check_hypergradient(Counted(TOY.kernels.grad_phi, call=0.2), TOY, seconds=0.5)
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "cut by time (0.5 s)" in result.message


@pytest.mark.parametrize("check", CHECKS.values())
@pytest.mark.parametrize("bad", [{"effort": "much"}, {"effort": -1}, {"seconds": 0}, {"seconds": "9"}])
def test_bad_efforts_and_seconds(check: Function, bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        check(TOY.kernels.grad_phi, TOY, **bad)


# ---- effort


@pytest.mark.slow
def test_effort_says_how_many_more_points_are_looked_at() -> None:
    efforts: list[tuple[Any, int]] = [("quick", 100), ("default", 1000), (0.5, 500)]
    for effort, more in efforts:
        candidate = Counted(TOY.kernels.grad_phi)
        result = check_hypergradient(candidate, TOY, effort=effort)
        assert f"the worst of {more} others among them" in result.message
        assert len(candidate.points) == 12 + more + 4


@pytest.mark.slow
@pytest.mark.in_ci(effort=["quick"])
@pytest.mark.parametrize("effort", ["quick", pytest.param("default", marks=pytest.mark.slow)])
def test_the_same_effort_gives_bitwise_the_same_result(effort: Any) -> None:
    for function in (*right_ones(TOY).values(), weighed(1.001), NEVER["1/D"]):
        same(*(check_hypergradient(function, TOY, rng=4, effort=effort) for _ in range(2)))


@pytest.mark.slow
def test_more_effort_reaches_what_less_does_not() -> None:
    problem = zoo.get("quadratic", d=2, n=3, spectrum=(1.0, 30.0, 300.0)).problem

    def right(x: Floats, D: int) -> Floats:
        return hypergradient(problem, x, lower(problem, x, D, 1 / 300))

    assert check_hypergradient(right, problem, effort="quick").verdict is Verdict.INCONCLUSIVE
    assert check_hypergradient(right, problem, effort=4).verdict is Verdict.HOLDS


@pytest.mark.slow
def test_few_different_numbers_of_steps_are_asked_for() -> None:
    """What is compiled for each of them is compiled a few times."""
    for function in (right_ones(TOY)["AID"], weighed(1.001), NEVER["1/D"]):
        seen: set[Any] = set()
        candidate = Counted(function)
        original = candidate.function
        candidate.function = lambda x, seen=seen, original=original, **s: (seen.add(s["D"]), original(x, **s))[1]
        check_hypergradient(candidate, TOY)
        assert len(seen) <= 14


# ---- runs


def long_run(steps: int) -> dict[str, Any]:
    x = [np.array([0.5, -0.5])]
    grads = []
    for _ in range(steps):
        grads.append(TOY.kernels.grad_phi(x[-1]))
        x.append(x[-1] - 0.01 * grads[-1])
    return {"x": np.array(x), "grad_phi_hat": np.array([*grads, TOY.kernels.grad_phi(x[-1])]), "eta": 0.01}


@pytest.mark.slow
def test_effort_says_at_how_many_iterates_a_run_is_looked_at() -> None:
    run = long_run(700)
    whole, part = (check_trajectory(run, TOY, effort=effort) for effort in (1.0, 0.001))
    assert not any("iterates were looked at" in result.message for result in whole.results)
    seen = [result.message for result in part.results if "iterates were looked at" in result.message]
    assert seen
    assert all(" of 701 iterates were looked at" in message for message in seen)
    assert whole.ok
    assert part.ok


@pytest.mark.slow
def test_a_run_that_is_cut_by_seconds_holds_nothing_that_was_not_looked_at(monkeypatch: pytest.MonkeyPatch) -> None:
    run = long_run(300)
    whole = check_trajectory(run, TOY)
    holds = [(r.label, r.part) for r in whole.results if r.verdict is Verdict.HOLDS]
    clocks(monkeypatch)
    cut = check_trajectory(run, TOY, seconds=1.0)
    lost = [r for r in cut.results if (r.label, r.part) in holds and r.verdict is not Verdict.HOLDS]
    assert {r.label for r in lost} >= {"lem:descent"}
    for result in lost:
        assert result.verdict is Verdict.INCONCLUSIVE
        assert "cut by time" in result.message
        assert "64 of 301 iterates were looked at" in result.message
    assert [r.verdict for r in cut.results if r.part == "update rule"] == [Verdict.HOLDS]
    wrong: list[dict[str, Any]] = [{"effort": "much"}, {"seconds": -1}]
    for bad in wrong:
        with pytest.raises(InvalidArgument):
            check_trajectory(run, TOY, **bad)


# ---- local minima


def test_local_minima_that_were_not_looked_at_do_not_hold(monkeypatch: pytest.MonkeyPatch) -> None:
    problem = BilevelProblem("x1*y + x2**2", "y**2/2 - x1*y", "x1 x2", "y")  # Phi = x1^2 + x2^2
    near, far = [[1e-4 * k, 0.0] for k in range(5)], [[1.0, 0.0]]
    assert check_local_minimum(near, problem, eps=0.01, seconds=1e4).verdict is Verdict.HOLDS
    for points, verdict in ((near, Verdict.INCONCLUSIVE), (far + near, Verdict.VIOLATED)):
        clocks(monkeypatch, jump=1.0)
        result = check_local_minimum(points, problem, eps=0.01, seconds=3.5)
        assert result.verdict is verdict
        if verdict is Verdict.INCONCLUSIVE:
            assert "undecided: cut by time" in result.message
            assert "left out: 2 of 5 points" in result.message
    with pytest.raises(InvalidArgument):
        check_local_minimum(near, problem, eps=0.01, effort=-1.0)
