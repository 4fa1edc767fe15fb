"""check_trajectory: right runs raise no alarm, and each planted defect is named in the right part."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from helpers import random_problem

from bilevel_sym import (
    AID,
    BilevelProblem,
    Constants,
    Descent,
    Exact,
    GDmax,
    INeon,
    MinimaxProblem,
    Neumann,
    Perturbed,
    solve,
    zoo,
)  # fmt: skip
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.problem.problem import StochasticProblem
from bilevel_sym.solvers import StocBiO
from bilevel_sym.solvers.solution import Solution
from verify.papers.huang_saddle.trajectory import truth as trajectory_truth
from verify.papers.huang_saddle.trajectory.check import check_trajectory
from verify.regularity.certified import constants as certified_constants
from verify.regularity.phi_smoothness import smoothness
from verify.reporting import Report
from verify.verdict import CheckResult, Verdict

FINITE, ESTIMATES, STEP, TEST, BALL, DESCENT = (
    "alg:perturbedalg", "unlabelled:algorithm-1-step-9", "unlabelled:algorithm-1-step-14",
    "unlabelled:algorithm-1-step-10", "unlabelled:algorithm-1-step-11", "lem:descent",
)  # fmt: skip
RULES = ("finite", "estimates", "update rule", "where", "waiting time", "when due", "size")
SADDLE = zoo.get("saddle", d=2).problem
ALGORITHM = Perturbed(AID(D=5, N=2, tau=0.5), eta=0.1, eps=0.1, r=0.1, T_escape=20)
Run = dict[str, Any]


def opened(solution: Solution) -> Run:
    """Everything that a run keeps, as a user's solver might return it."""
    t, names = solution.trajectory, ("x", "y", "v", "grad_phi_hat", "perturbed")
    return {name: getattr(t, name).copy() for name in names} | {"schedule": solution.schedule}


@pytest.fixture(autouse=True)
def hurried(monkeypatch: pytest.MonkeyPatch, request: pytest.FixtureRequest) -> None:
    """Certified brackets are true however little effort they get, only wider."""
    if "slow" not in request.keywords:
        monkeypatch.setattr(trajectory_truth, "EFFORT", 0.015)
        monkeypatch.setattr(trajectory_truth, "L_PHI_WORK", 1e5)


@pytest.fixture(scope="module")
def solution() -> Solution:
    return solve(SADDLE, ALGORITHM, [0.0, 0.0], steps=60, rng=0)


@pytest.fixture
def run(solution: Solution) -> Run:
    return opened(solution)


def part(report: Report, name: str, label: str | None = None) -> CheckResult:
    (result,) = (r for r in report.results if r.part == name and label in (None, r.label))
    return result


def violated(report: Report) -> set[str]:
    return {r.part or r.label for r in report.results if r.verdict is Verdict.VIOLATED}


# ---- right runs ----------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_right_run_holds_in_every_rule(solution: Solution) -> None:
    assert solution.trajectory.perturbed.sum() >= 2
    report = check_trajectory(solution, SADDLE)
    assert report.ok
    for name in RULES:
        assert part(report, name).verdict is Verdict.HOLDS, name
    assert report[DESCENT].verdict is Verdict.HOLDS
    assert part(report, "one iteration").verdict in (Verdict.HOLDS, Verdict.INCONCLUSIVE)
    assert report[STEP].n_points + report[BALL].n_points == 60
    json.loads(report.to_json())
    assert "HOLDS" in report.to_text()
    assert all(line.startswith("|") for line in report.to_markdown().split("\n\n")[2].splitlines())


def algorithms(problem: BilevelProblem) -> Iterator[Any]:
    auto = Perturbed.auto(problem, eps=1e-2)
    tau = getattr(auto.estimator, "tau", 0.1)
    yield auto
    yield Descent(AID(3, 1, tau), auto.eta / 2, escape=INeon.auto(problem, eps=1e-2))
    yield Perturbed(AID(2, 1, tau), auto.eta, 0.1, 0.5, 7, as_printed=True)
    yield Perturbed(Neumann(5, tau), auto.eta, 0.1, 0.5, 7)
    yield Perturbed(Exact(), auto.eta, 0.1, 0.5, 7)
    if isinstance(problem, MinimaxProblem):
        yield Perturbed(GDmax(4, tau), auto.eta, 0.1, 0.5, 7)
    if isinstance(problem, StochasticProblem):
        yield StocBiO.auto(problem, batch=16, eps=1e-2)


def no_alarm(problem: BilevelProblem, which: slice = slice(None)) -> None:
    assert problem.box is not None
    ends = np.array([[float(low), float(high)] for low, high in (problem.box[s.name] for s in problem.x)])
    middle, half = ends.mean(axis=1), (ends[:, 1] - ends[:, 0]) / 2
    x0 = middle + 0.6 * half * np.random.default_rng(0).uniform(-1, 1, (2, problem.d))
    for algorithm in list(algorithms(problem))[which]:
        # far outside the box Phi may fall for ever
        run = solve(problem, algorithm, x0, steps=40, rng=1, stop=lambda s: bool((abs(s.x - middle) > half).any()))
        report = check_trajectory(run, problem)
        assert violated(report) == set(), report.to_text()
        for r in report.results:
            # of the very first estimate nobody can say what it started from
            if r.part in RULES and "where the first iteration started" not in r.message:
                assert r.verdict in (Verdict.HOLDS, Verdict.NOT_APPLICABLE), str(r)


@pytest.mark.slow
@pytest.mark.parametrize("seed", [0, 2, 4])
def test_right_runs_on_random_problems_raise_no_alarm(seed: int) -> None:
    no_alarm(random_problem(seed), slice(seed % 3, seed % 3 + 1))


@pytest.mark.slow
@pytest.mark.in_ci(seed=(0, 4, 8, 11, 22))  # every slice
@pytest.mark.parametrize("seed", range(30))
def test_right_runs_on_more_random_problems_raise_no_alarm(seed: int) -> None:
    no_alarm(random_problem(seed), slice(seed % 5, seed % 5 + 2))


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(
    "name", ["scalar", "quadratic", "implicit_cubic", "ridge", "minimax_not_nash", "robust_regression"]
)
def test_right_runs_on_the_zoo_raise_no_alarm(name: str) -> None:
    no_alarm(zoo.get(name).problem, slice(0, 2))


@pytest.mark.slow
def test_an_escape_by_ineon_holds() -> None:
    neon = INeon(AID(D=5, N=2, tau=0.5), eta=0.1, eps=0.02, r=0.1, T_escape=80, F_escape=1e-4)
    run = solve(SADDLE, Descent(AID(D=5, N=2, tau=0.5), eta=0.1, escape=neon), [0.0, 0.0], steps=12, rng=0)
    assert run.trajectory.perturbed.any()
    report = check_trajectory(run, SADDLE)
    assert report.ok
    for name in ("where", "when due", "size", "estimates", "update rule"):
        assert part(report, name).verdict is Verdict.HOLDS, name
    assert part(report, "waiting time").verdict is Verdict.NOT_APPLICABLE
    longer = opened(run)
    k = int(np.argmax(longer["perturbed"]))
    longer["x"][k + 1 :] += longer["x"][k + 1] - longer["x"][k]
    assert part(check_trajectory(longer, SADDLE), "size").verdict is Verdict.VIOLATED


@pytest.mark.slow
def test_gdmax_is_held_against_its_own_lemma() -> None:
    problem = zoo.get("minimax_not_nash").problem
    ell = float(certified_constants(problem).valid.ell)
    run = solve(problem, Descent(GDmax(3, 1 / ell), 0.02), [0.4], y0=np.full(problem.n, 0.3), steps=20)
    report = check_trajectory(run, problem)
    assert report["lem:grad-err-mini"].verdict in (Verdict.HOLDS, Verdict.INCONCLUSIVE)
    spoilt = opened(run)
    spoilt["grad_phi_hat"] = spoilt["grad_phi_hat"] + 10.0
    assert report.ok
    assert "one iteration" in violated(check_trajectory(spoilt, problem))


@pytest.mark.slow
def test_an_ensemble_names_the_trajectory() -> None:
    x0 = np.array([[0.3, 0.1], [0.1, -0.2], [0.2, 0.2]])
    run = opened(solve(SADDLE, ALGORITHM, x0, steps=12, rng=0))
    assert check_trajectory(run, SADDLE).ok
    run["x"][1, 5] += 0.01
    message = check_trajectory(run, SADDLE)[STEP].message
    assert "k = 5 of trajectory 1 was replaced" in message


# ---- planted defects -----------------------------------------------------------------------------------------------


def walked(problem: BilevelProblem, x: list[float], steps: int, move: Callable[..., Any], **more: Any) -> Run:
    """A run of a user's solver: ``move(k, x, gradient)`` says where x goes, and what is recorded as estimate."""
    iterates, estimates = [np.array(x)], []
    for k in range(steps):
        after, estimate = move(k, iterates[-1], problem.kernels.grad_phi(iterates[-1]))
        iterates.append(after)
        estimates.append(estimate)
    return {"x": np.array(iterates), "grad_phi_hat": np.array(estimates), **more}


@pytest.mark.slow
def test_the_stale_gradient_right_after_a_perturbation(run: Run) -> None:
    (k, *_) = np.flatnonzero(run["perturbed"])
    run["grad_phi_hat"][k + 1] = run["grad_phi_hat"][k]
    result = check_trajectory(run, SADDLE)[ESTIMATES]
    assert result.verdict is Verdict.VIOLATED
    assert result.evidence == "certified"
    assert "predecessor" in result.message
    assert f"iterate k = {k + 1}" in result.message


def test_the_stale_gradient_of_an_unknown_solver() -> None:
    shift, eta = np.array([3e-2, 4e-2]), 0.1
    held: list[Any] = []

    def move(k: int, x: Any, grad: Any) -> Any:
        estimate = held.pop() if held else grad
        if k % 4 == 1:  # a perturbation, after which the gradient of before is used once more
            held.append(grad)
            return x - eta * shift, grad
        return x - eta * estimate, estimate

    marks = np.arange(12) % 4 == 1
    run = walked(SADDLE, [0.5, 0.3], 12, move, perturbed=marks, eta=eta)
    result = check_trajectory(run, SADDLE)[ESTIMATES]
    assert result.verdict is Verdict.VIOLATED
    assert "predecessor" in result.message


@pytest.mark.slow
def test_algorithm_1_as_printed_is_recognised(solution: Solution) -> None:
    # where the estimate is large, so that it leaves the ball together with u
    printed = Perturbed(AID(D=5, N=2, tau=0.5), eta=0.1, eps=1.0, r=0.01, T_escape=5, as_printed=True)
    run = solve(SADDLE, printed, [0.4, 0.3], steps=20, rng=0)
    assert run.trajectory.perturbed.any()
    assert check_trajectory(run, SADDLE).ok
    known = opened(run) | {"eta": 0.1, "r": 0.01, "eps": 1.0, "T_escape": 5, "schedule": None}
    result = check_trajectory(known, SADDLE)[BALL]
    assert result.verdict is Verdict.VIOLATED
    assert "stale" in result.message
    assert "predecessor" in result.message


def test_a_wrong_step_size(run: Run) -> None:
    result = check_trajectory(run | {"eta": 0.2}, SADDLE)[STEP]
    assert result.verdict is Verdict.VIOLATED
    assert "the step size in use is 0.1, not eta = 0.2" in result.message


@pytest.mark.slow
def test_a_perturbation_that_is_too_large(run: Run) -> None:
    (k, *_) = np.flatnonzero(run["perturbed"])
    u = run["x"][k + 1] - run["x"][k]
    run["x"][k + 1 :] += u * (0.15 * 0.1 / np.linalg.norm(u) - 1)  # everything after it moves along
    result = check_trajectory(run, SADDLE)[BALL]
    assert result.verdict is Verdict.VIOLATED
    assert result.measured == pytest.approx(0.015)
    assert result.bound == pytest.approx(0.01)


@pytest.mark.slow
def test_perturbed_too_often(run: Run) -> None:
    report = check_trajectory(run | {"T_escape": 25}, SADDLE)
    assert "waiting time" in violated(report)
    assert "before the waiting time was over" in part(report, "waiting time").message


@pytest.mark.slow
def test_perturbed_where_the_estimate_is_large(run: Run) -> None:
    assert "where" in violated(check_trajectory(run | {"eps": 1e-9}, SADDLE))


def test_never_perturbed_although_due() -> None:
    run = opened(solve(SADDLE, Descent(ALGORITHM.estimator, 0.1), [1e-3, 0.0], steps=30)) | {"schedule": ALGORITHM}
    assert violated(check_trajectory(run, SADDLE)) == {"when due"}


@pytest.mark.parametrize(("factor", "word"), [(-1.0, "sign"), (0.5, "factor")])
def test_the_sign_and_a_factor_of_the_gradient(factor: float, word: str) -> None:
    run = walked(SADDLE, [0.5, 0.3], 8, lambda k, x, grad: (x - 0.1 * factor * grad, factor * grad), eta=0.1)
    report = check_trajectory(run, SADDLE)
    assert report[STEP].verdict is Verdict.HOLDS
    assert report[ESTIMATES].verdict is Verdict.VIOLATED
    assert f"suspected cause: {word}" in report[ESTIMATES].message


def test_the_implicit_term_is_missing() -> None:
    k = SADDLE.kernels
    run = walked(SADDLE, [0.5, 0.3], 8, lambda _, x, g: (x - 0.1 * g, k.f_x(x, k.y_star(x))), eta=0.1)
    assert "suspected cause: cross" in check_trajectory(run, SADDLE)[ESTIMATES].message


@pytest.mark.slow
def test_gradients_from_an_unconverged_lower_level() -> None:
    lazy = solve(SADDLE, Descent(AID(1, 2, 0.05), 0.1), [0.5, 0.3], y0=[2.0, -2.0], steps=12)
    claims = opened(lazy) | {"schedule": Descent(AID(30, 2, 0.05), 0.1)}
    report = check_trajectory(claims, SADDLE)
    assert report[ESTIMATES].verdict is Verdict.VIOLATED
    assert "y*: it is what D = 1 gives, not D = 30" in report[ESTIMATES].message
    assert check_trajectory(lazy, SADDLE).ok


def test_gradients_that_pass_for_stationary() -> None:
    """Nothing is known of the estimator, but it says that a slope is flat."""
    run = walked(SADDLE, [0.5, 0.3], 8, lambda k, x, g: (x - 0.01 * g * 0.1**k, g * 0.1**k), eta=0.01, eps=0.05)
    result = check_trajectory(run, SADDLE)[ESTIMATES]
    assert result.verdict is Verdict.VIOLATED
    assert "passes for stationary" in result.message


@pytest.mark.slow
def test_an_iterate_that_was_overwritten(run: Run) -> None:
    run["x"][11] += [0.0, 0.3]
    report = check_trajectory(run, SADDLE)
    assert "k = 11 was replaced" in report[STEP].message
    assert ESTIMATES in {r.label for r in report.results if r.verdict is Verdict.VIOLATED}
    assert report[DESCENT].verdict is Verdict.VIOLATED
    assert report[DESCENT].evidence == "certified"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "value"), [("x", np.nan), ("grad_phi_hat", np.inf), ("y", -np.inf)])
def test_a_number_that_is_not_finite(run: Run, name: str, value: float) -> None:
    run[name][7, 1] = value
    result = check_trajectory(run, SADDLE)[FINITE]
    assert result.verdict is Verdict.VIOLATED
    assert f"{name} is not finite" in result.message
    assert "iterate k = 7" in result.message


# ---- what is not there ---------------------------------------------------------------------------------------------


def test_iterates_alone_leave_all_but_one_part_not_applicable() -> None:
    report = check_trajectory({"x": [[0.5, 0.3], [0.4, 0.2]]}, SADDLE)
    assert report[FINITE].verdict is Verdict.HOLDS
    assert {r.verdict for r in report.results[1:]} == {Verdict.NOT_APPLICABLE}
    assert all(r.message for r in report.results)


@pytest.mark.slow
def test_objects_float32_and_the_last_estimate_missing(solution: Solution) -> None:
    t = solution.trajectory
    x = [np.array([0.5, 0.3], dtype=np.float32)]
    grads = []
    for _ in range(10):
        grads.append(SADDLE.kernels.grad_phi(x[-1].astype(np.float64)).astype(np.float32))
        x.append(x[-1] - np.float32(0.1) * grads[-1])
    report = check_trajectory(SimpleNamespace(x=np.array(x), grad_phi_hat=np.array(grads), eta=0.1), SADDLE)
    assert report.ok
    assert report[STEP].verdict is report[ESTIMATES].verdict is Verdict.HOLDS
    inexact = check_trajectory(SimpleNamespace(x=t.x, grad_phi_hat=t.grad_phi_hat, eta=0.1), SADDLE)
    assert inexact[ESTIMATES].verdict is Verdict.INCONCLUSIVE


@pytest.mark.slow
def test_without_a_box_the_hull_of_the_run_serves() -> None:
    free = BilevelProblem(SADDLE.f, SADDLE.g, SADDLE.x, SADDLE.y)
    report = check_trajectory(solve(free, Descent(Exact(), 0.1), [0.5, 0.3], steps=10), free)
    assert report[DESCENT].verdict is Verdict.HOLDS
    assert "hull" in report[DESCENT].message


def test_a_step_above_one_over_L_phi_is_not_spoken_of() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    report = check_trajectory(solve(problem, Descent(Exact(), 0.9), [0.5], steps=10), problem)
    assert report[DESCENT].verdict is Verdict.NOT_APPLICABLE
    assert "above 1/L_phi" in report[DESCENT].message


@pytest.mark.slow
def test_constants_that_are_given() -> None:
    problem = zoo.get("scalar").problem
    exact = certified_constants(problem)
    c = exact.valid
    run = solve(problem, Descent(AID(3, 1, 1 / c.ell), 1 / c.L_phi()), [0.3], y0=[0.5], steps=10)
    for given in (c, exact, smoothness(problem)):
        report = check_trajectory(run, problem, constants=given)
        assert report[DESCENT].verdict is Verdict.HOLDS
    spoilt = opened(run)
    spoilt["grad_phi_hat"] *= 20
    wrong = Constants(c.mu, c.ell, c.rho, c.nu, c.M / 1e6)
    assert "one iteration" in violated(check_trajectory(spoilt, problem, constants=c))
    doubtful = part(check_trajectory(spoilt, problem, constants=wrong), "one iteration")
    assert doubtful.verdict is Verdict.INCONCLUSIVE
    assert "do not hold along the run" in doubtful.message


@pytest.mark.slow
def test_a_run_with_the_lemmas_parameters_is_held_to_its_accuracy(solution: Solution) -> None:
    run = solve(SADDLE, Perturbed(Exact(), 0.1, eps=0.1, r=0.1 / 400 / 8, T_escape=20), [0.0, 0.0], steps=30, rng=0)
    report = check_trajectory(opened(run), SADDLE)
    assert report["eq:error-required"].verdict is Verdict.HOLDS
    assert check_trajectory(solution, SADDLE)["eq:error-required"].verdict is Verdict.NOT_APPLICABLE
    spoilt = opened(run)
    spoilt["grad_phi_hat"] = spoilt["grad_phi_hat"] + 0.01
    assert check_trajectory(spoilt, SADDLE)["eq:error-required"].verdict is Verdict.INCONCLUSIVE
    assert check_trajectory(spoilt | {"iota": 2.0}, SADDLE)["eq:error-required"].verdict is Verdict.VIOLATED


@pytest.mark.slow
def test_a_long_run_is_looked_at_in_part() -> None:
    run = solve(SADDLE, Descent(AID(1, 1, 0.5), 1e-3), [0.5, 0.3], steps=100_000)
    report = check_trajectory(run, SADDLE)
    assert report.ok
    assert report[STEP].n_points == 100_000
    assert "iterates were looked at" in report[ESTIMATES].message


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({}, "without iterates x"),
        (None, "without iterates x"),
        ({"x": [0.5, 0.3]}, "iterates of shape"),
        ({"x": [["a", "b"]]}, "not an array of real numbers"),
        ({"x": np.zeros((3, 2)), "grad_phi_hat": np.zeros((5, 2))}, "grad_phi_hat has shape"),
        ({"x": np.zeros((3, 2)), "perturbed": [0.5, 1, 2]}, "perturbed must say"),
        ({"x": np.zeros((3, 2)), "eta": -1}, "eta must be a positive number"),
        ({"x": np.zeros((3, 2)), "eta": "0.1"}, "eta must be a positive number"),
        ({"x": np.zeros((3, 2)), "y0": np.zeros(5)}, "y0 has shape"),
        ({"x": np.zeros((3, 2)), "length": 9}, "length must be"),
        ({"x": np.zeros((3, 2)), "D": -1, "N": 1, "tau": 0.1}, "the estimator's parameters"),
    ],
)
def test_bad_input_is_one_clear_error(given: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        check_trajectory(given, SADDLE)


def test_bad_problems_and_constants() -> None:
    with pytest.raises(InvalidArgument, match="wants a problem"):
        check_trajectory({"x": [[1.0]]}, "problem")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="constants="):
        check_trajectory({"x": [[1.0, 1.0]]}, SADDLE, constants=3)  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no trajectory was recorded"):
        check_trajectory(solve(SADDLE, ALGORITHM, [0.0, 0.0], steps=3, rng=0, record="last"), SADDLE)
