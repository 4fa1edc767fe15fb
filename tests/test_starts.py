"""Where the lower level begins: at zero, unless g has no value there; and kinks that no start can help."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from bilevel_sym import AID, BilevelProblem, Descent, Exact, Perturbed, evaluate, solve, zoo
from bilevel_sym.cli.solve_run import SolveRun
from bilevel_sym.errors import BilevelError, CertificateFailure, InvalidArgument, LowerLevelFailure
from bilevel_sym.solvers import starts

BOX = {"x": (0, 2), "y": ("1/10", 2)}
BARRIER = BilevelProblem("(y - 2)**2 + x**2/10", "(y - x)**2/2 - log(y)/10", "x", "y", box=BOX)
ROOT = BilevelProblem("(y - 2)**2 + x**2/10", "(y - x)**2/2 - sqrt(y)/10", "x", "y", box=BOX)
POLE = BilevelProblem("(y - 2)**2 + x**2/10", "(y - x)**2/2 + 1/(10*y)", "x", "y", box=BOX)
ARRAY = BilevelProblem(
    "sum((y - 2)**2) + x @ x/10", "sum((y - x)**2)/2 - sum(log(y))/10", "x[2]", "y[2]",
    box={"x": (0, 2), "y": ("1/10", 2)},
)  # fmt: skip
STEPS = Descent(AID(D=20, N=1, tau=0.2), eta=0.1)

# in y2 the minimiser is 0 for all |x| <= 10
KINKED = BilevelProblem("(y1 - 1)**2 + (y2 - x)**2", "(y1 - x)**2/2 + (y2 - x/10)**2/2 + abs(y2)", "x", "y1 y2")
HINGE = BilevelProblem("(y - 1)**2", "max(1 - x*y, 0) + y**2/20", "x", "y", box={"x": (1, 2), "y": (-2, 2)})
LASSO = BilevelProblem("sum((y - 1)**2)", "sum((y - x)**2)/2 + 3*sum(abs(y))", "x[2]", "y[2]")


@pytest.mark.parametrize("problem", [BARRIER, ROOT, POLE])
def test_where_g_has_no_value_at_zero_a_run_starts_at_y_star(problem: BilevelProblem) -> None:
    run = solve(problem, STEPS, [1.0], steps=100)
    assert run.ok
    assert run.y == pytest.approx(problem.kernels.y_star(run.x), abs=1e-3)
    known = starts.where_defined(problem.kernels, np.array([[1.0]]), np.zeros((1, 1)))
    assert known == pytest.approx(problem.kernels.y_star([[1.0]]))


def test_so_it_is_with_arrays() -> None:
    assert solve(ARRAY, STEPS, [1.0, 0.5], steps=100).ok


def test_every_trajectory_has_its_own_start_alone_or_among_others() -> None:
    together = solve(BARRIER, STEPS, [[1.0], [0.5], [1.5]], steps=20, rng=[1, 2, 3])
    for k, x in enumerate([1.0, 0.5, 1.5]):
        alone = solve(BARRIER, STEPS, [x], steps=20, rng=k + 1)
        assert alone.x.tobytes() == together.x[k].tobytes()


def test_the_centre_of_the_box_where_y_star_cannot_be_had(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise LowerLevelFailure("no")

    monkeypatch.setattr(type(BARRIER.kernels), "y_star", refuse)
    found = starts.where_defined(BARRIER.kernels, np.array([[1.0]]), np.zeros((1, 1)))
    assert found == pytest.approx(1.05)


@pytest.mark.parametrize("name", ["scalar", "saddle", "logistic", "ridge", "implicit_cubic"])
def test_where_zero_will_do_the_start_is_zero(name: str) -> None:
    problem = zoo.get(name).problem
    x, zero = np.full((1, problem.d), 0.1), np.zeros((1, problem.n))
    assert starts.where_defined(problem.kernels, x, zero) is zero


def test_a_start_that_is_given_is_taken() -> None:
    given = solve(BARRIER, Descent(AID(D=1, N=1, tau=1e-9), eta=0.1), [1.0], y0=[0.7], steps=0)
    assert given.y == pytest.approx([0.7])


def test_the_command_takes_y0(tmp_path: Path) -> None:
    job = SolveRun(BARRIER, "descent", steps=0, y_start={"y": "0.7"})
    other = SolveRun(BARRIER, "descent", steps=0, y_start={"y": "1.7"})
    assert job.run().y[0] != other.run().y[0]
    path = tmp_path / "barrier.toml"
    BARRIER.save(path)
    command = [sys.executable, "-m", "bilevel_sym", "solve", str(path), "--y0"]
    assert subprocess.run([*command, "y=0.5"], capture_output=True, check=False).returncode == 0
    wrong = subprocess.run([*command, "z=0.5"], capture_output=True, text=True, check=False)
    assert wrong.returncode == 2
    assert "--y0: z is not a variable of y" in wrong.stderr
    assert '--y0 "y=0"' in wrong.stderr


def test_the_advice_is_a_start_that_works() -> None:
    job = SolveRun(BARRIER, "perturbed-exact", y_start={"y": "-1"}, steps=20)
    lines = list(job.report(job.run()))
    (advice,) = [line for line in lines if "--y0" in line]
    start = advice.split('"')[1].partition("=")[2]
    assert SolveRun(BARRIER, "perturbed-exact", y_start={"y": start}, steps=20).run().ok


def test_without_a_box_the_advice_is_a_box() -> None:
    nowhere = BilevelProblem("(y - 2)**2 + x**2/10", "(y - x)**2/2 - log(y)/10", "x", "y")
    with pytest.raises(BilevelError) as caught:
        Perturbed.auto(nowhere)
    assert "a box with ends for y" in (caught.value.hint or "")


# ---- kinks --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("problem", "x", "edge"), [(KINKED, [0.5], "y2"), (KINKED, [0.0], "y2"), (HINGE, [1.5], "x*y - 1")]
)
def test_one_message_before_any_number(problem: BilevelProblem, x: list[float], edge: str) -> None:
    start = {s.name: str(v) for s, v in zip(problem.x, x, strict=True)}
    doors: dict[str, Callable[[], object]] = {
        "solve": lambda: solve(problem, Descent(Exact(), 0.1), x),
        "ensemble": lambda: solve(problem, STEPS, [x, x]),
        "the command": lambda: SolveRun(problem, start=start).run(),
    }
    if x != [0.0]:  # Newton's method ends on the kink itself there
        doors["kernels"] = lambda: problem.kernels.grad_phi(x)
    for name, door in doors.items():
        with pytest.raises(LowerLevelFailure) as caught:
            door()
        assert f"the minimiser of g lies on a kink, {edge} = 0" in caught.value.message, name
        assert "**2 + 1e-4)" in (caught.value.hint or ""), name
        assert f"in the place of {'max' if problem is HINGE else 'abs'}(" in (caught.value.hint or ""), name
        assert caught.value.kink == edge


def test_certificates_say_it_too() -> None:
    with pytest.raises(CertificateFailure, match="the minimiser of g lies on a kink, y2 = 0"):
        evaluate(KINKED, ["1/2"])


def test_arrays_say_it_too() -> None:
    with pytest.raises(LowerLevelFailure, match="lies on a kink, y = 0"):
        solve(LASSO, STEPS, [0.5, 1.0])


def test_sampling_gives_up_after_a_few() -> None:
    with pytest.raises(LowerLevelFailure, match="lies on a kink"):
        Perturbed.auto(KINKED)


def test_a_kink_elsewhere_does_no_harm() -> None:
    run = solve(KINKED, Descent(Exact(), 1e-3), [20.0], steps=3, y0=[20.0, 1.0])
    assert run.ok
    assert KINKED.kernels.grad_phi([20.0]) == pytest.approx([72.2])


def test_one_start_on_a_kink_does_not_end_the_others() -> None:
    run = solve(KINKED, Descent(Exact(), 1e-3), [[0.5], [20.0]], steps=3)
    assert [status.ok for status in run.statuses] == [False, True]


def test_other_failures_are_told_as_before() -> None:
    with pytest.raises(LowerLevelFailure) as caught:
        BilevelProblem("x*y + abs(x)", "-y**2 + y*x", "x", "y").kernels.y_star([1.0])
    assert not caught.value.kink
    with pytest.raises(InvalidArgument):
        solve(KINKED, STEPS, [0.5, 0.5])
