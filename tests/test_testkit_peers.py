"""Right implementations pass, whoever wrote them: our estimators, JAX, PyTorch; and 200 random cases of them."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import sympy as sp
from helpers import THOROUGH, random_problem

from bilevel_sym import AID, ITD, BilevelProblem, Exact, GDmax, Neumann, zoo
from bilevel_sym.errors import BilevelError
from verify import Verdict, check_hessian, check_hypergradient, check_lower_solution
from verify.testkit.sample_points import sample_points, x_ends

SLOW = pytest.mark.slow
QUICK = ("scalar", "minimax_nash")
SOME = (*QUICK, "quadratic", "stochastic_rows", "robust_regression")  # the others are ``long``
ESTIMATORS = [("quadratic", "AID"), ("scalar", "ITD"), ("ridge", "Exact")]
POINTS = {1: [[0.5]], 2: [[0.25, -0.5], [0.0, 0.0]], 3: [[0.25, -0.5, 1.0]]}


def holds(result: Any) -> bool:
    assert result.verdict is Verdict.HOLDS, str(result)
    return True


@pytest.mark.slow
@pytest.mark.in_ci(name=SOME)
@pytest.mark.parametrize("name", [pytest.param(name, marks=[SLOW] * (name not in QUICK)) for name in zoo.names()])
def test_our_kernels_pass_on_the_zoo(name: str) -> None:
    problem = zoo.get(name).problem
    k = getattr(problem, "mean", problem).kernels
    assert holds(check_hypergradient(k.grad_phi, problem))
    assert holds(check_hessian(k.hess_phi, problem))
    assert holds(check_lower_solution(k.y_star, problem))


@pytest.mark.slow
@pytest.mark.in_ci(start=[0])
@pytest.mark.parametrize("start", range(0, 200 if THOROUGH else 100, 10))
def test_no_false_alarm_on_right_cases(start: int) -> None:
    """Three routes in turn: the kernels, plain NumPy from blocks, the term-by-term formulas; every tenth is screened."""
    for seed in range(start, start + 10):
        problem = random_problem(seed)
        exact = getattr(problem, "mean", problem)
        gradient, hessian = (kernels, plain, symbolic)[seed % 3](exact)
        points = None if seed % 10 == 0 else sample_points(exact, np.random.default_rng(seed))
        assert holds(check_hypergradient(gradient, problem, points=points, rng=seed))
        assert holds(check_hessian(hessian, problem, points=points, rng=seed))


def kernels(problem: BilevelProblem) -> tuple[Callable[..., Any], Callable[..., Any]]:
    return problem.kernels.grad_phi, problem.kernels.hess_phi


def lower(problem: BilevelProblem, x: Any) -> Any:
    """y* by Newton's method from zero, written plainly."""
    y = np.zeros(problem.n)
    for _ in range(50):
        y = y - np.linalg.solve(problem.kernels.g_yy(x, y), problem.kernels.g_y(x, y))
    return y


def plain(problem: BilevelProblem) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """Blocks at a y* of its own, and a dense solve."""
    k = problem.kernels

    def gradient(x: Any) -> Any:
        y = lower(problem, x)
        return (k.f_x(x, y) - k.g_xy(x, y) @ np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))).tolist()

    def hessian(x: Any) -> Any:
        return k.expansion(x, lower(problem, x)).hess

    return gradient, hessian


def symbolic(problem: BilevelProblem) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """The paper's term-by-term formulas through SymPy's own code generator."""
    derivation = problem.derivation
    grad = sp.lambdify([problem.x, problem.y], derivation.grad_phi, "numpy")
    hess = sp.lambdify([problem.x, problem.y], derivation.hess_phi, "numpy")
    return (
        lambda x: np.asarray(grad(x, lower(problem, x)), dtype=float)[:, 0],
        lambda x: np.asarray(hess(x, lower(problem, x)), dtype=float),
    )


def estimators(problem: BilevelProblem) -> dict[str, Callable[..., Any]]:
    exact = getattr(problem, "mean", problem)
    low, high = x_ends(exact)
    x = np.vstack([low, high, np.random.default_rng(0).uniform(low, high, (200, exact.d))])
    reach = np.linspace(0, 1.2, 13)[:, None, None] * exact.kernels.y_star(x)  # on the way from y = 0, and beyond
    tau = 0.8 / float(np.linalg.eigvalsh(exact.kernels.g_yy(np.broadcast_to(x, (13, *x.shape)), reach)).max())
    return {
        "AID": lambda x, D, N: AID(D=D, N=N, tau=tau).estimate(exact, x).grad_phi_hat,
        "ITD": lambda x, D: ITD(D=D, tau=tau).estimate(exact, x).grad_phi_hat,
        "Neumann": lambda x, Q: (
            Neumann(Q=Q, eta_neumann=tau).estimate(exact, x, y0=exact.kernels.y_star(x)).grad_phi_hat
        ),
        "Exact": lambda x: Exact().estimate(exact, x).grad_phi_hat,
    }


@pytest.mark.slow
@pytest.mark.in_ci(name=("scalar", "quadratic"))
@pytest.mark.parametrize(
    ("name", "estimator"),
    [
        pytest.param(name, estimator, marks=[SLOW] * ((name, estimator) not in ESTIMATORS))
        for name in ("scalar", "quadratic", "ridge", "implicit_cubic")
        for estimator in ("AID", "ITD", "Neumann", "Exact")
    ],
)
def test_our_estimators_pass_through_their_own_convergence(name: str, estimator: str) -> None:
    problem = zoo.get(name).problem
    assert holds(check_hypergradient(estimators(problem)[estimator], problem))


def test_gdmax_passes() -> None:
    problem = zoo.get("minimax_nash").problem
    assert holds(check_hypergradient(lambda x, D: GDmax(D=D, tau=0.2).estimate(problem, x).grad_phi_hat, problem))


# ---------------------------------------------------------------------- JAX and PyTorch


def in_library(problem: BilevelProblem, module: str) -> tuple[Callable[..., Any], Callable[..., Any]]:
    """f(x, y) and g(x, y) on the arrays of another library."""
    names: Any = [module]
    if module == "torch":
        import torch

        names = [{n: getattr(torch, n) for n in ("sin", "cos", "exp", "log", "sqrt", "tanh")}]
    f, g = (sp.lambdify([*problem.x, *problem.y], e, names) for e in (problem.f, problem.g))
    return (lambda x, y: f(*x, *y)), (lambda x, y: g(*x, *y))


JAX_SEEDS = [0, 1, 3, 4, 7, 9]


@pytest.mark.slow
@pytest.mark.in_ci(seed=JAX_SEEDS[:3])
@pytest.mark.parametrize("seed", JAX_SEEDS)
def test_implicit_differentiation_in_jax_passes(seed: int) -> None:
    """f_x - g_xy v by vector-Jacobian products, a Newton solver with a custom derivative, and jacrev of all that."""
    jax = pytest.importorskip("jax")
    jnp = jax.numpy
    problem = random_problem(seed)
    with jax.experimental.enable_x64() if hasattr(jax.experimental, "enable_x64") else jax.enable_x64(True):
        f, g = in_library(problem, "jax")
        g_y = jax.grad(g, 1)

        @jax.custom_jvp
        def y_star(x: Any) -> Any:
            def newton(_: int, y: Any) -> Any:
                return y - jnp.linalg.solve(jax.jacfwd(g_y, 1)(x, y), g_y(x, y))

            return jax.lax.fori_loop(0, 30, newton, jnp.zeros(problem.n))

        @y_star.defjvp
        def _(primals: Any, tangents: Any) -> Any:
            (x,), (dx,) = primals, tangents
            y = y_star(x)
            moved = jax.jvp(lambda s: g_y(s, y), (x,), (dx,))[1]
            return y, -jnp.linalg.solve(jax.jacfwd(g_y, 1)(x, y), moved)

        def phi(x: Any) -> Any:
            return f(x, y_star(x))

        gradient = jax.jit(jax.grad(phi))
        hessian = jax.jit(jax.jacrev(jax.grad(phi)))
        assert holds(check_hypergradient(gradient, problem))
        assert holds(check_hessian(hessian, problem))
        assert holds(check_lower_solution(jax.jit(y_star), problem))


@pytest.mark.slow
def test_single_precision_in_jax_is_named() -> None:
    jax = pytest.importorskip("jax")
    problem = random_problem(1)
    f, g = in_library(problem, "jax")
    g_y = jax.grad(g, 1)

    @jax.jit
    def gradient(x: Any) -> Any:
        y = jax.numpy.zeros(problem.n)
        for _ in range(20):
            y = y - jax.numpy.linalg.solve(jax.jacfwd(g_y, 1)(x, y), g_y(x, y))
        v = jax.numpy.linalg.solve(jax.jacfwd(g_y, 1)(x, y), jax.grad(f, 1)(x, y))
        return jax.grad(f)(x, y) - jax.jacfwd(g_y)(x, y).T @ v

    result = check_hypergradient(gradient, problem)
    assert (result.verdict, result.cause) == (Verdict.VIOLATED, "precision")
    assert "float32" in result.message or "single" in result.message


@pytest.mark.slow
def test_implicit_differentiation_in_pytorch_passes() -> None:
    torch = pytest.importorskip("torch")
    problem = random_problem(3)
    f, g = in_library(problem, "torch")

    def gradient(x: Any) -> Any:
        x = torch.tensor(x, dtype=torch.float64, requires_grad=True)
        y = torch.tensor(lower(problem, x.detach().numpy()), dtype=torch.float64, requires_grad=True)
        f_x, f_y = torch.autograd.grad(f(x, y), (x, y), allow_unused=True)
        g_y = torch.autograd.grad(g(x, y), y, create_graph=True)[0]
        g_yy = torch.autograd.functional.hessian(lambda t: g(x.detach(), t), y.detach())
        (cross,) = torch.autograd.grad(g_y, x, torch.linalg.solve(g_yy, f_y))
        return f_x - cross

    assert holds(check_hypergradient(gradient, problem))


class Tensor:
    """What the kit uses of a PyTorch tensor: it refuses NumPy while it carries a graph."""

    def __init__(self, array: Any, *, graph: bool = True) -> None:
        self.array, self.graph = array, graph

    def detach(self) -> Tensor:
        return Tensor(self.array, graph=False)

    def cpu(self) -> Tensor:
        return self

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        if self.graph:
            raise RuntimeError("Can't call numpy() on Tensor that requires grad.")
        return np.asarray(self.array, dtype=dtype)


def test_tensors_that_carry_a_graph_are_read() -> None:
    problem = random_problem(4)
    assert holds(check_hypergradient(lambda x: Tensor(problem.kernels.grad_phi(x)), problem, points=POINTS[problem.d]))


@pytest.mark.parametrize("kind", [list, tuple, lambda a: [sp.Float(v, 20) for v in a], lambda a: np.asarray(a, dtype=object)])  # fmt: skip
def test_lists_and_exact_numbers_are_read(kind: Callable[[Any], Any]) -> None:
    problem = random_problem(3)
    assert holds(check_hypergradient(lambda x: kind(problem.kernels.grad_phi(x)), problem, points=POINTS[problem.d]))


def test_what_the_candidate_raises_is_its_own_with_a_note() -> None:
    problem = random_problem(0)
    with pytest.raises(ZeroDivisionError) as caught:
        check_hypergradient(lambda x: 1 / 0, problem)
    assert "x = np.array([" in caught.value.__notes__[0]


def test_bad_input_is_one_clear_error() -> None:
    problem = random_problem(0)
    symbolic = BilevelProblem("a*y", "y**2 - x*y", "x", "y", parameters={"a": None})
    calls: tuple[Callable[[], object], ...] = (
        lambda: check_hypergradient(3, problem),  # type: ignore[call-overload]
        lambda: check_hypergradient(problem.kernels.grad_phi, "zoo:scalar"),  # type: ignore[call-overload]
        lambda: check_hypergradient(problem.kernels.grad_phi, problem, points=[[1.0, 2.0]]),
        lambda: check_hypergradient(problem.kernels.grad_phi, problem, points=[[np.nan]]),
        lambda: check_hypergradient(problem.kernels.grad_phi, problem, points=3),  # type: ignore[call-overload]
        lambda: check_hypergradient(problem.kernels.grad_phi, problem, rng=-1),
        lambda: check_hypergradient(problem.kernels.grad_phi, symbolic),
    )
    for call in calls:
        with pytest.raises(BilevelError):
            call()
