"""f and g in NumPy, JAX and PyTorch: with their derivatives those of the kernels, for the zoo and every kind that is drawn."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from bilevel_sym import BilevelProblem, zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Floats
from verify.strategies import DEGENERATE
from verify.testkit.problem_cases import GeneratedCase
from verify.testkit.sample_points import x_ends

KINDS = ("general", "quadratic", "minimax", "stochastic", "rows", *DEGENERATE)
IN_CI = ("scalar", "tube", "hyper_cleaning", "robust_regression", "stochastic_rows", "general", "rows", "spread spectrum")  # fmt: skip
PROBLEMS = (*zoo.names(), *KINDS)
PARTS = ("f", "g", "f_x", "f_y", "g_y", "g_xy", "g_yy")


def made(name: str) -> BilevelProblem:
    problem: BilevelProblem = zoo.get(name).problem if name in zoo.names() else GeneratedCase(name, 2).problem()
    return problem


def point(problem: BilevelProblem) -> tuple[Floats, Floats]:
    rng = np.random.default_rng(0)
    return rng.uniform(*x_ends(problem.mean)), rng.uniform(-0.5, 0.5, problem.n)


def agree(problem: BilevelProblem, got: dict[str, Any], x: Floats, y: Floats) -> None:
    for name, value in got.items():
        want, found = np.asarray(getattr(problem.mean.kernels, name)(x, y)), np.asarray(value)
        assert found.dtype == np.float64, name
        np.testing.assert_allclose(found, want, rtol=1e-10, atol=1e-10 * max(1.0, np.abs(want).max()), err_msg=name)


@pytest.mark.slow
@pytest.mark.parametrize("name", PROBLEMS)
def test_numpy(name: str) -> None:
    problem = made(name)
    (f, g), (x, y) = problem.to_numpy(), point(problem)
    agree(problem, {"f": f(x, y), "g": g(x, y)}, x, y)


@pytest.mark.slow
@pytest.mark.in_ci(name=tuple(name for name in IN_CI if name in PROBLEMS))
@pytest.mark.parametrize("name", PROBLEMS)
def test_jax_differentiates_twice_under_jit_and_vmap(name: str) -> None:
    jax = pytest.importorskip("jax")
    problem = made(name)
    with jax.experimental.enable_x64() if hasattr(jax.experimental, "enable_x64") else jax.enable_x64(True):
        (f, g), (x, y) = problem.to_jax(), point(problem)

        @jax.jit
        @jax.vmap
        def parts(x: Any, y: Any) -> tuple[Any, ...]:
            first = f(x, y), g(x, y), jax.grad(f)(x, y), jax.grad(f, 1)(x, y), jax.grad(g, 1)(x, y)
            return *first, jax.jacrev(jax.grad(g), 1)(x, y), jax.hessian(g, 1)(x, y)

        agree(
            problem,
            dict(zip(PARTS, (part[1] for part in parts(np.stack([x, x]), np.stack([y, y]))), strict=True)),
            x,
            y,
        )


def test_jax_without_x64_is_one_typed_sentence() -> None:
    jax = pytest.importorskip("jax")
    problem = zoo.get("scalar").problem
    with jax.experimental.enable_x64() if hasattr(jax.experimental, "enable_x64") else jax.enable_x64(True):
        f, _ = problem.to_jax()
    if jax.config.jax_enable_x64:
        pytest.skip("x64 is on in this process")
    for call in (problem.to_jax, lambda: f([0.5], [0.5])):
        with pytest.raises(InvalidArgument, match="float32") as caught:
            call()
        assert "\n" not in str(caught.value).partition("\ntry: ")[0]


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning:torch", "ignore:An output with one or more elements")
@pytest.mark.parametrize("name", PROBLEMS)
def test_pytorch_differentiates_twice_under_vmap(name: str) -> None:
    torch = pytest.importorskip("torch")
    problem = made(name)
    (f, g), (x, y) = problem.to_torch(), point(problem)
    grad, hessian, jacrev = torch.func.grad, torch.func.hessian, torch.func.jacrev

    def parts(x: Any, y: Any) -> tuple[Any, ...]:
        first = f(x, y), g(x, y), grad(f)(x, y), grad(f, 1)(x, y), grad(g, 1)(x, y)
        return *first, jacrev(grad(g), 1)(x, y), hessian(g, 1)(x, y)

    found = torch.vmap(parts)(torch.tensor(np.stack([x, x])), torch.tensor(np.stack([y, y])))
    agree(problem, dict(zip(PARTS, (part[1] for part in found), strict=True)), x, y)


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_pytorch_compiles_more_problems_than_it_keeps_versions_of_one_function() -> None:
    torch = pytest.importorskip("torch")
    for name in ("scalar", "ridge", "implicit_cubic", "saddle", "minimax_nash"):
        problem = zoo.get(name).problem
        x, y = map(torch.tensor, point(problem))
        for level in problem.to_torch():
            compiled = torch.compile(level, backend="eager", fullgraph=True)
            assert float(compiled(x, y)) == float(level(x, y))
