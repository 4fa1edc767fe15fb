"""Candidates as other libraries have them: dicts that tell y and v, batches only, tuples, own names of knobs, several."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Floats
from verify import Report, Verdict, assert_ok, check_hessian, check_hypergradient, check_lower_solution

PROBLEM = BilevelProblem("x1*y1 + y2**2 + x2*y2", "y1**2 + 2*y2**2 - x1*x2*y1 - x2*y2 + y1**4/4", "x1 x2", "y1 y2")
K = PROBLEM.kernels


def made(x: Floats, y: Any = None, v: Any = None, weight: float = 1.0) -> dict[str, Any]:
    """A right hypergradient with its y and v, unless others are given."""
    y = K.y_star(x) if y is None else y
    v = np.linalg.solve(K.g_yy(x, y), K.f_y(x, y)) if v is None else v
    return {"grad": K.f_x(x, y) - weight * K.g_xy(x, y) @ v, "y": y, "v": v}


class Tensor:
    """What PyTorch hands out where a graph is attached: no array until it is detached."""

    def __init__(self, value: Any) -> None:
        self.value = value

    def __array__(self, *_: Any, **__: Any) -> Any:
        raise RuntimeError("Can't call numpy() on Tensor that requires grad")

    def detach(self) -> Any:
        return self.value


UNDERSTOOD: dict[str, Callable[[Any], Any]] = {
    "a dict": made,
    "a dict with the answer alone": lambda x: {"grad": K.grad_phi(x)},
    "a list of numbers": lambda x: list(K.grad_phi(x)),
    "a tuple with one array": lambda x: (K.grad_phi(x),),
    "shape (1, d)": lambda x: K.grad_phi(x)[None],
    "batches only": lambda X: np.stack([K.grad_phi(x) for x in X[:, :]]),
    "tensors in a list": lambda x: [Tensor(entry) for entry in K.grad_phi(x)],
    "a tensor in a dict": lambda x: {"grad": Tensor(K.grad_phi(x)), "y": Tensor(K.y_star(x))},
}


@pytest.mark.parametrize("kind", UNDERSTOOD)
def test_a_right_candidate_is_understood(kind: str) -> None:
    assert_ok(check_hypergradient(UNDERSTOOD[kind], PROBLEM, points=[[0.5, 0.25], [1.0, -1.0]]))


@pytest.mark.parametrize("kind", UNDERSTOOD)
def test_a_wrong_one_of_the_same_kind_is_not_let_pass(kind: str) -> None:
    points = [[0.5, 0.25], [1.0, -1.0], [0.3, 0.7]]

    def off(x: Floats) -> Any:
        returned = UNDERSTOOD[kind](x)
        if isinstance(returned, dict):
            return {**returned, "grad": np.asarray(getattr(returned["grad"], "value", returned["grad"])) + 0.25}
        values = returned if isinstance(returned, np.ndarray) else [getattr(e, "value", e) for e in returned]
        return np.asarray(values) + 0.25

    assert check_hypergradient(off, PROBLEM, points=points).verdict is Verdict.VIOLATED


def test_hessians_and_lower_solutions_have_their_own_key() -> None:
    points = [[0.5, 0.25], [1.0, -1.0]]
    assert_ok(check_hessian(lambda x: {"hess": K.hess_phi(x), "y": K.y_star(x)}, PROBLEM, points=points))
    assert_ok(check_lower_solution(lambda x: {"y": K.y_star(x)}, PROBLEM, points=points))


@pytest.mark.parametrize(
    ("returned", "said"),
    [
        (lambda x: {"grd": x}, 'a dict with \'grd\', but its keys are of "grad", "v", "y"'),
        (lambda x: {"grad": x, "y": [1.0]}, "y in what it returned has 1 numbers, but n is 2"),
        (lambda x: K.grad_phi(x)[:, None], "shape (2, 1), but the shape is (2,)"),
        (lambda x: K.grad_phi(x)[0], "shape (), but the shape is (2,)"),
    ],
)
def test_what_is_not_understood_is_told_in_one_line(returned: Any, said: str) -> None:
    result = check_hypergradient(returned, PROBLEM)
    assert result.cause == "shape"
    assert said in result.message
    assert "\n" not in result.message


# --- y and v as they are told


def wiggle(x: Floats) -> Floats:
    return np.asarray(0.01 * np.sin(7 * x))


TOLD: dict[str, tuple[Callable[[Any], Any], str, str]] = {
    "y is off": (lambda x: made(x, y=K.y_star(x) + wiggle(x)), "y*", "y, as the candidate tells it, is not y*"),
    "v is off": (lambda x: made(x, v=made(x)["v"] + wiggle(x)), "inverse", "does not solve g_yy v = f_y"),
    "both are right": (lambda x: {**made(x), "grad": made(x)["grad"] + wiggle(x)}, "unexplained", "are right, and"),
    "a weight": (lambda x: made(x, weight=0.7), "cross", "0.7 times"),
    "y at its start": (lambda x: made(x, y=np.zeros(2)), "y*", "left at its start"),
}


@pytest.mark.parametrize("kind", TOLD)
def test_the_diagnosis_uses_what_it_is_told(kind: str) -> None:
    candidate, cause, said = TOLD[kind]
    result = check_hypergradient(candidate, PROBLEM)
    assert result.cause == cause
    assert said in result.summary


# --- knobs, and several at once


def descended(x: Floats, maxiter: int = 3, eta: float = 0.2) -> Any:
    y = np.zeros(2)
    for _ in range(maxiter):
        y = y - eta * K.g_y(x, y)
    return made(x, y)["grad"]


def test_knobs_have_the_names_of_the_candidate() -> None:
    assert check_hypergradient(descended, PROBLEM).verdict is Verdict.VIOLATED
    result = check_hypergradient(descended, PROBLEM, knobs={"maxiter": "D"})
    assert result.verdict is Verdict.HOLDS
    assert result.convergence is not None
    assert result.convergence.knobs == ("D",)
    anyhow = check_hypergradient(lambda x, **more: descended(x, **more), PROBLEM, knobs={"maxiter": "D"})
    assert anyhow.verdict is Verdict.HOLDS


@pytest.mark.parametrize("knobs", [{"maxiter": "steps"}, {"maxit": "D"}])
def test_knobs_that_are_none_are_refused(knobs: dict[str, str]) -> None:
    with pytest.raises(InvalidArgument, match="maxit"):
        check_hypergradient(descended, PROBLEM, knobs=knobs)


def test_several_are_checked_at_once() -> None:
    points = [[0.5, 0.25], [1.0, -1.0], [0.3, 0.7]]
    report = check_hypergradient([K.grad_phi, lambda x: -K.grad_phi(x), descended], PROBLEM, points=points)
    assert isinstance(report, Report)
    assert [result.part for result in report] == ["grad_phi", "<lambda> 1", "descended"]
    assert [str(result.verdict) for result in report] == ["HOLDS", "VIOLATED", "VIOLATED"]
    with pytest.raises(AssertionError, match="<lambda> 1: sign"):
        assert_ok(report)
    named = check_lower_solution({"mine": K.y_star, "theirs": lambda x: K.y_star(x)}, PROBLEM, points=points)
    assert [result.part for result in named] == ["mine", "theirs"]
    assert_ok(named)


def test_a_function_of_batches_that_does_not_fail_on_a_point() -> None:
    """It returns an array of another shape for one point, and a batch for a batch."""
    points = [[0.5, 0.25], [1.0, -1.0]]

    def batches(X: Any) -> Any:
        return np.stack([K.grad_phi(x) if np.ndim(x) else np.zeros(3) for x in X])

    assert_ok(check_hypergradient(batches, PROBLEM, points=points))
    wrong = check_hypergradient(lambda X: batches(X) + 0.1, PROBLEM, points=points)
    assert (wrong.verdict, wrong.cause != "shape") == (Verdict.VIOLATED, True)


def test_tensors_of_bfloat16_are_read_and_named() -> None:
    torch = pytest.importorskip("torch")
    for kind in (lambda t: t, list):
        made_of = check_hypergradient(
            lambda x, kind=kind: kind(torch.tensor(K.grad_phi(x), requires_grad=True).bfloat16()), PROBLEM
        )
        assert made_of.cause == "precision"
