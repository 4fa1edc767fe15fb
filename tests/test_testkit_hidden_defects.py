"""Wrong programs that once passed, or were given another defect's name: each is caught, and named for what it is."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from bilevel_sym import BilevelProblem
from verify.testkit.checks import check_hessian, check_hypergradient, check_lower_solution
from verify.testkit.diagnosis import Evidence, Suspect, explain
from verify.testkit.result import CandidateCheck
from verify.verdict import Verdict

pytestmark = pytest.mark.long  # the gallery says the same sooner

Floats = NDArray[Any]
Function = Callable[..., Any]
Plant = Callable[["Program"], Function]

PROBLEMS = {
    "d=n=2": (
        "sin(x1)*x2 + y1**2*y2/3 + x1*y1*y2 + cos(y2) + x2*y1",
        "(3 + cos(x1*y1))*y1**2/2 + 2*y2**2 + y1*y2/2 + exp(y1/2 + x2) + y2**4/4 - x1*y2 - x2**2*y1 + x1*x2*y2/2",
        "x1 x2", "y1 y2",
    ),
    "d=3,n=2": (
        "x1*x2 + sin(x3)*y1 + y2**2*x1 + y1*y2/2 + y1",
        "y1**2 + y2**2 + y1*y2/3 + exp(y1*x1/3) + (x2*y1 + x3*y2)**2/2 - x1*y1 + x2*x3*y2 - x3*y1",
        "x1 x2 x3", "y1 y2",
    ),
    "d=2,n=3": (
        "x1**2 + y1*y2 + sin(y3)*x2 + y3**2/2 + x1*y2",
        "y1**2 + 2*y2**2 + 3*y3**2/2 + y1*y2/2 + y2*y3/3 + log(1 + exp(y1 + x1*y3)) + y3**4/12 - x1*y1 - x2*y2"
        " + x1*x2*y3",
        "x1 x2", "y1 y2 y3",
    ),
    "isotropic": (
        "x1*y1 + x2*y2 + y1*y2 + x1**2/2", "y1**2 + y2**2 - 2*x1*y1 - x2*y1*x1 + x2*y2 - 3*x1*y2", "x1 x2", "y1 y2"
    ),
    "d=n=1": ("sin(x)*y + y**2 + x**2", "(2 + cos(x))*y**2/2 + exp(y) - x*y", "x", "y"),
}  # fmt: skip


class Program:
    """Blocks at one point, and what people make of them."""

    def __init__(self, problem: BilevelProblem) -> None:
        self.problem, self.k, self.n, self.d = problem, problem.kernels, problem.n, problem.d
        x = np.random.default_rng(0).uniform(-1, 1, (50, problem.d))
        self.ell = 1.2 * float(np.linalg.eigvalsh(self.k.g_yy(x, self.k.y_star(x))).max())

    def formula(self, x: Floats, y: Floats, v: Floats | None = None) -> Floats:
        v = np.linalg.solve(self.k.g_yy(x, y), self.k.f_y(x, y)) if v is None else v
        return np.asarray(self.k.f_x(x, y) - self.k.g_xy(x, y) @ v)

    def with_v(self, solve: Callable[[Floats, Floats], Floats]) -> Function:
        def candidate(x: Floats) -> Floats:
            y = self.k.y_star(x)
            return self.formula(x, y, solve(self.k.g_yy(x, y), self.k.f_y(x, y)))

        return candidate

    def descended(self, x: Floats, y: Floats, steps: int) -> Floats:
        for _ in range(steps):
            y = y - self.k.g_y(x, y) / self.ell
        return y

    def middle(self) -> tuple[Floats, Floats]:
        x = np.full(self.d, 0.1)
        return x, self.k.y_star(x)


@cache
def program(name: str) -> Program:
    return Program(BilevelProblem(*PROBLEMS[name]))


def neumann(A: Floats, b: Floats, step: float, terms: int, skip: int = 0) -> Floats:
    term, total = b, np.zeros_like(b)
    for q in range(terms):
        total = total + (term if q >= skip else 0)
        term = term - step * A @ term
    return step * total


def largest(A: Floats) -> float:
    return float(np.linalg.eigvalsh(A)[-1])


class Keeps:
    """v, or a running average, that is used before it is made anew."""

    def __init__(self, p: Program, kind: str) -> None:
        self.p, self.kind = p, kind
        self.v: Floats = np.zeros(p.n)
        self.m: Floats = np.zeros(p.d)

    def __call__(self, x: Floats) -> Floats:
        p, y = self.p, self.p.k.y_star(x)
        if self.kind == "v":
            v, self.v = self.v, np.linalg.solve(p.k.g_yy(x, y), p.k.f_y(x, y))
            return p.formula(x, y, v)
        self.m = (0.9 if self.kind == "average" else 0.5) * self.m
        self.m = self.m + (0.1 if self.kind == "average" else 1.0) * p.formula(x, y)
        return self.m.copy()


def frozen_inverse(p: Program) -> Function:
    A = np.linalg.inv(p.k.g_yy(*p.middle()))
    return p.with_v(lambda _, b: A @ b)


def frozen_cross(p: Program) -> Function:
    C = p.k.g_xy(*p.middle())

    def candidate(x: Floats) -> Floats:
        y = p.k.y_star(x)
        return p.k.f_x(x, y) - C @ np.linalg.solve(p.k.g_yy(x, y), p.k.f_y(x, y))

    return candidate


def kept_solution(p: Program) -> Function:
    y = p.middle()[1]
    return lambda x: p.formula(x, y)


def f_ahead_of_g(p: Program) -> Function:
    def candidate(x: Floats) -> Floats:
        before = p.descended(x, np.zeros(p.n), 7)
        y = p.descended(x, before, 1)
        return p.k.f_x(x, y) - p.k.g_xy(x, before) @ np.linalg.solve(p.k.g_yy(x, before), p.k.f_y(x, y))

    return candidate


def f_y_at_zero(p: Program) -> Function:
    def candidate(x: Floats) -> Floats:
        y = p.k.y_star(x)
        return p.formula(x, y, np.linalg.solve(p.k.g_yy(x, y), p.k.f_y(x, 0 * y)))

    return candidate


def clipped(p: Program) -> Function:
    def candidate(x: Floats) -> Floats:
        grad = p.k.grad_phi(x)
        return np.asarray(grad * min(1.0, 0.4 / float(np.linalg.norm(grad))))

    return candidate


GRADIENTS: dict[str, tuple[str, Plant]] = {
    "ridge forgotten in g_yy": ("inverse", lambda p: p.with_v(lambda A, b: np.linalg.solve(A - 0.3 * np.eye(p.n), b))),
    "series without q = 0, own step": ("inverse", lambda p: p.with_v(lambda A, b: neumann(A, b, 0.98 / largest(A), 900, 1))),
    "6 terms, own step": ("inverse", lambda p: p.with_v(lambda A, b: neumann(A, b, 0.9 / largest(A), 6))),
    "21 terms diverging": ("inverse", lambda p: p.with_v(lambda A, b: neumann(A, b, 2.8 / p.ell, 21))),
    "g_yy^-1 kept": ("inverse", frozen_inverse),
    "g_xy kept": ("cross", frozen_cross),
    "v of the point before": ("inverse", lambda p: Keeps(p, "v")),
    "momentum": ("predecessor", lambda p: Keeps(p, "momentum")),
    "running average": ("predecessor", lambda p: Keeps(p, "average")),
    "y kept": ("y*", kept_solution),
    "y* + 0.01": ("y*", lambda p: lambda x: p.formula(x, p.k.y_star(x) + 0.01)),
    "y* of x + 0.05": ("y*", lambda p: lambda x: p.formula(x, p.k.y_star(x + 0.05))),
    "5 steps from ones": ("y*", lambda p: lambda x: p.formula(x, p.descended(x, np.ones(p.n), 5))),
    "f a step ahead of g": ("y*", f_ahead_of_g),
    "f_y at y = 0": ("y*", f_y_at_zero),
    "norm clipped": ("factor", clipped),
    "4 decimals": ("precision", lambda p: lambda x: np.round(p.k.grad_phi(x), 4)),
}  # fmt: skip


def expect(result: CandidateCheck, cause: str) -> None:
    assert result.verdict is Verdict.VIOLATED, result.message
    assert result.cause == cause, result.message


NAMES = ("d=n=2", "d=3,n=2", "d=2,n=3")
EACH = [pytest.param(name, defect, marks=()) for i, defect in enumerate(GRADIENTS) for k, name in enumerate(NAMES)]


@pytest.mark.parametrize(("name", "defect"), EACH)
def test_a_hypergradient_is_caught_and_named(name: str, defect: str) -> None:
    cause, plant = GRADIENTS[defect]
    expect(check_hypergradient(plant(program(name)), program(name).problem), cause)


def test_blocks_at_exchanged_arguments() -> None:
    p = program("d=n=2")

    def candidate(x: Floats) -> Floats:
        y = p.k.y_star(x)
        return p.formula(x, y, np.linalg.solve(p.k.g_yy(x, y), p.k.f_y(y, x)))

    expect(check_hypergradient(candidate, p.problem), "arguments")


def test_a_cache_that_does_not_look_at_x() -> None:
    p = program("d=n=2")
    cache: list[Floats] = []

    def candidate(x: Floats) -> Floats:
        if not cache:
            cache.append(p.k.grad_phi(x))
        return cache[0]

    expect(check_hypergradient(candidate, p.problem), "predecessor")


# ---- Hessians and lower-level solutions


def conjugate_gradient_step(A: Floats, b: Floats) -> Floats:
    return np.asarray((b @ b) / (b @ A @ b) * b) if b.any() else b


def one_step_each(p: Program) -> Function:
    """The Hessian with dy_dx and v after one step of conjugate gradients; third derivatives by differences."""

    def candidate(x: Floats) -> Floats:
        y = p.k.y_star(x)
        A = p.k.g_yy(x, y)
        J = -np.array([conjugate_gradient_step(A, row) for row in p.k.g_xy(x, y)])
        v = conjugate_gradient_step(A, p.k.f_y(x, y))

        def moved(t: float, i: int) -> Floats:  # f_x - g_xy v and J (f_y - g_yy v) along the wrong dy_dx
            at = x + t * np.eye(p.d)[i], y + t * J[i]
            return np.asarray(p.k.f_x(*at) - p.k.g_xy(*at) @ v + J @ (p.k.f_y(*at) - p.k.g_yy(*at) @ v))

        h = 2.0**-10
        rows = [(8 * (moved(h, i) - moved(-h, i)) - moved(2 * h, i) + moved(-2 * h, i)) / (12 * h) for i in range(p.d)]
        return np.array(rows)

    return candidate


def fisher(p: Program) -> Function:
    def candidate(x: Floats) -> Floats:
        y = p.k.y_star(x)
        J = -np.linalg.solve(p.k.g_yy(x, y), p.k.g_xy(x, y).T).T
        slope = J @ p.k.f_y(x, y)
        return p.k.hess_phi(x) - J @ p.k.f_yy(x, y) @ J.T + np.outer(slope, slope)

    return candidate


HESSIANS: dict[str, tuple[str, Plant]] = {
    "empirical Fisher": ("quadratic", fisher),
    "diagonal twice": ("symmetry", lambda p: lambda x: (h := np.triu(p.k.hess_phi(x))) + h.T),
    "one step of conjugate gradients": ("inverse", one_step_each),
    "zero": ("factor", lambda p: lambda x: np.zeros((p.d, p.d))),
    "outer product": ("quadratic", lambda p: lambda x: np.outer(p.k.grad_phi(x), p.k.grad_phi(x))),
}


@pytest.mark.parametrize("defect", HESSIANS)
@pytest.mark.parametrize("name", ["d=n=2", "d=3,n=2"])
def test_a_hessian_is_caught_and_named(name: str, defect: str) -> None:
    cause, plant = HESSIANS[defect]
    expect(check_hessian(plant(program(name)), program(name).problem), cause)


def test_a_hessian_that_should_vanish() -> None:
    problem = BilevelProblem("x1 + y", "y**2 - x1*y + x2*y", "x1 x2", "y")
    result = check_hessian(lambda x: np.eye(2), problem)
    assert result.verdict is Verdict.VIOLATED
    assert check_hessian(lambda x: np.zeros((2, 2)), problem).verdict is Verdict.HOLDS


def test_a_lower_level_solution_that_is_projected() -> None:
    p = program("d=2,n=3")
    result = check_lower_solution(lambda x: np.clip(p.k.y_star(x), -0.2, 0.2), p.problem)
    expect(result, "factor")
    assert "clipped at -0.2 or 0.2" in result.message


# ---- single precision, where short binary fractions would be exact


@pytest.mark.parametrize("name", ["isotropic", "d=n=1"])
def test_single_precision_is_seen_on_polynomials_of_low_degree(name: str) -> None:
    p = program(name)

    def rounded(array: Floats) -> Floats:
        return array.astype(np.float32).astype(np.float64)

    expect(check_lower_solution(lambda x: rounded(p.k.y_star(x)), p.problem), "precision")
    expect(check_hypergradient(lambda x: p.formula(x, rounded(p.k.y_star(x))), p.problem), "precision")
    expect(check_hypergradient(lambda x: p.k.grad_phi(x).astype(np.float32), p.problem), "precision")


def test_single_precision_does_not_converge_as_theory_says() -> None:
    problem = BilevelProblem("x1*y1 + sin(y2)", "y1**2/2 + 500*y2**2 + y1*y2 - x1*y1 - 20*x2*y2", "x1 x2", "y1 y2")
    k = problem.kernels

    def candidate(x: Floats, D: int = 100) -> Floats:
        y = np.zeros(2)
        for _ in range(min(D, 3000)):
            y = y - k.g_y(x, y) / 1002
        slow = k.y_star(x) + (y - k.y_star(x)) * 0.99 ** max(0, D - 3000)  # what more steps would give
        return np.asarray(k.f_x(x, slow) - k.g_xy(x, slow) @ np.linalg.solve(k.g_yy(x, slow), k.f_y(x, slow))).astype(
            np.float32
        )

    assert check_hypergradient(candidate, problem).verdict is not Verdict.HOLDS


# ---- conjugate gradients: what is right after one step must stay so


@pytest.mark.parametrize("name", ["isotropic", "d=n=1"])
def test_right_with_one_step_and_wrong_with_more(name: str) -> None:
    p = program(name)

    def candidate(x: Floats, N: int = 10) -> Floats:
        y = p.k.y_star(x)
        A, b = p.k.g_yy(x, y), p.k.f_y(x, y)
        v, r = np.zeros(p.n), b
        direction = r
        with np.errstate(all="ignore"):
            for _ in range(N):
                size = r @ r
                if size < 1e-300:
                    break
                v = v + size / (direction @ A @ direction) * direction
                r = r - A @ direction  # the step size is missing
                direction = r + (r @ r) / size * direction
        return p.formula(x, y, v)

    expect(check_hypergradient(candidate, p.problem), "inverse")


@pytest.mark.parametrize("name", ["d=3,n=2", "d=n=2"])
def test_an_error_that_goes_up_and_down_is_no_convergence(name: str) -> None:
    p = program(name)

    def candidate(x: Floats, N: int = 20) -> Floats:
        y = p.k.y_star(x)
        A, b = p.k.g_yy(x, y), p.k.f_y(x, y)
        v, r = np.zeros(p.n), b
        direction = r
        for _ in range(N):
            if r @ r < 1e-28:
                break
            alpha = r @ r / (direction @ A @ direction)
            v, r = v + alpha * direction, r - alpha * A @ direction
            direction = r + direction  # beta is missing
        return p.formula(x, y, v)

    assert check_hypergradient(candidate, p.problem).verdict is Verdict.VIOLATED


@pytest.mark.parametrize("weight", [0.5, -1.0])
def test_a_wrong_weight_is_named_although_few_steps_err_less(weight: float) -> None:
    p = program("d=3,n=2")

    def candidate(x: Floats, D: int, N: int) -> Floats:
        y = p.descended(x, np.zeros(p.n), D)
        A, v = p.k.g_yy(x, y), np.zeros(p.n)
        r = direction = p.k.f_y(x, y)
        for _ in range(N):
            if r @ r < 1e-30:
                break
            alpha = r @ r / (direction @ A @ direction)
            v, rest = v + alpha * direction, r - alpha * A @ direction
            r, direction = rest, rest + (rest @ rest) / (r @ r) * direction
        return p.formula(x, y, weight * v)

    expect(check_hypergradient(candidate, p.problem), "cross" if weight > 0 else "sign")


def test_a_weight_of_nearly_one_is_said_only_where_it_fits_exactly() -> None:
    truth = np.linspace(1.0, 2.0, 12)[:, None]
    suspect = Suspect("factor", "it is {0:.4g} times the truth", "", 0 * truth, (truth,))
    for error, cause in ((1e-3, "factor"), (1e-3 * (1 + 1e-3 * np.sin(9 * truth)), "unexplained")):
        assert explain(Evidence(truth * (1 + error), truth, np.full(12, 1e-14)), [suspect]).cause == cause


# ---- chance


def test_equal_draws_are_no_warm_start() -> None:
    p, rng = program("d=n=2"), np.random.default_rng(0)

    def dropped(x: Floats) -> Floats:
        return np.asarray(p.k.grad_phi(x) * (rng.random(p.d) < 0.8))

    expect(check_hypergradient(dropped, p.problem), "noise")

    def one_term(x: Floats) -> Floats:
        y = p.k.y_star(x)
        A, term = p.k.g_yy(x, y), p.k.f_y(x, y)
        for _ in range(rng.integers(10)):
            term = term - A @ term / p.ell
        return p.formula(x, y, term / p.ell)  # defect: the number of terms

    expect(check_hypergradient(one_term, p.problem), "noise")


@pytest.mark.parametrize(("steps", "tau"), [(30, 0.1), (12, 0.1), (50, 0.05), (20, 0.2)])
def test_many_steps_of_the_lower_level_are_counted(steps: int, tau: float) -> None:
    """What they leave is a high power of a number that depends on tau: between two step sizes it is no straight line."""
    problem = BilevelProblem("sin(x1)*y1 + x2*y2**2", "y1**2 + exp(y2) + y2**2 - x1*x2*y1 - x2*y2", "x1 x2", "y1 y2")
    k = problem.kernels

    def unconverged(x: Floats) -> Floats:
        y = np.zeros(2)
        for _ in range(steps):
            y = y - tau * k.g_y(x, y)
        return np.asarray(k.f_x(x, y) - k.g_xy(x, y) @ np.linalg.solve(k.g_yy(x, y), k.f_y(x, y)))

    result = check_hypergradient(unconverged, problem)
    expect(result, "y*")
    assert f"{steps} gradient steps of size {tau:g} from y = 0" in result.message
