"""The same problems in JAX: dense (Newton, Cholesky, forward over reverse), and by products alone (Newton with CG)."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks.array_cases import CLASSES, SHORT, ArrayCase
from bilevel_sym.typing import Floats

__all__ = ["jax_kernels"]

Kernel = Callable[[Floats], Any]


def _levels(case: ArrayCase, jnp: Any, jax: Any) -> tuple[Callable[..., Any], Callable[..., Any]]:
    softplus, sigmoid = jax.nn.softplus, jax.nn.sigmoid
    lse = jax.scipy.special.logsumexp
    D = {name: jnp.asarray(value) for name, value in case.data.items()}

    def logistic(A: Any, b: Any, y: Any) -> Any:
        return jnp.mean(softplus(-b * (A @ y)))

    def classes(A: Any, P: Any, W: Any) -> Any:
        Z = A @ W.reshape(-1, CLASSES)
        return jnp.mean(lse(Z, axis=1)) - jnp.sum(P * Z) / len(P)

    levels: Mapping[str, tuple[Callable[..., Any], Callable[..., Any]]] = {
        "logistic": (
            lambda x, y: logistic(D["B"], D["c"], y),
            lambda x, y: logistic(D["A"], D["b"], y) + jnp.exp(x) @ y**2 / 2,
        ),
        "ridge": (
            lambda x, y: jnp.mean((D["B"] @ y - D["c"]) ** 2) / 2,
            lambda x, y: jnp.mean((D["A"] @ y - D["b"]) ** 2) / 2 + jnp.exp(x) @ y**2 / 2,
        ),
        "hyper-cleaning": (
            lambda x, y: logistic(D["B"], D["c"], y),
            lambda x, y: jnp.mean(sigmoid(x) * softplus(-D["b"] * (D["A"] @ y))) + y @ y / 20,
        ),
        "softmax": (
            lambda x, y: classes(D["B"], D["Q"], y),
            lambda x, y: classes(D["A"], D["P"], y) + jnp.exp(x) @ (y.reshape(-1, CLASSES) ** 2).sum(axis=0) / 2,
        ),
    }
    return levels[case.name]


def jax_kernels(case: ArrayCase, style: str) -> tuple[Kernel, Kernel]:
    """(x -> phi, grad) and (x -> phi, grad, hess), jitted; ``style`` is "dense" or "cg"."""
    jax: Any = import_module("jax")
    jnp: Any = import_module("jax.numpy")
    for name in ("jax.scipy.linalg", "jax.scipy.special", "jax.scipy.sparse.linalg"):
        import_module(name)
    jax.config.update("jax_enable_x64", True)
    f, g = _levels(case, jnp, jax)
    g_y = jax.grad(g, 1)

    def hessian_product(x: Any, y: Any, v: Any) -> Any:
        return jax.jvp(lambda z: g_y(x, z), (y,), (v,))[1]

    def solver(x: Any, y: Any) -> Callable[..., Any]:
        if style == "cg":
            return lambda b, tol=1e-14: jax.scipy.sparse.linalg.cg(lambda v: hessian_product(x, y, v), b, tol=tol)[0]
        factor = jax.scipy.linalg.cho_factor(jax.jacfwd(g_y, 1)(x, y))
        return lambda b, tol=0.0: jax.scipy.linalg.cho_solve(factor, b)

    def y_star(x: Any) -> Any:
        def move(state: Any) -> Any:
            y, _, k = state
            step = -solver(x, y)(g_y(x, y), 1e-8)
            return y + step, jnp.max(jnp.abs(step)) / jnp.max(jnp.abs(y + step)), k + 1

        def going(state: Any) -> Any:
            return (state[1] > SHORT) & (state[2] < 50)

        return jax.lax.while_loop(going, move, (jnp.zeros(case.n), 1.0, 0))[0]

    def grad(x: Any) -> Any:
        y = y_star(x)
        v = solver(x, y)(jax.grad(f, 1)(x, y))
        _, implicit = jax.jvp(lambda z: jax.grad(g, 0)(x, z), (y,), (v,))
        return f(x, y), jax.grad(f, 0)(x, y) - implicit

    def hess(x: Any) -> Any:
        y = y_star(x)
        solve = solver(x, y)
        v = solve(jax.grad(f, 1)(x, y))

        def L(x: Any, y: Any) -> Any:
            return f(x, y) - v @ g_y(x, y)

        gradient = jax.grad(L, (0, 1))
        g_yx = jax.jacfwd(g_y, 0)(x, y)
        columns = jax.vmap(lambda b: solve(b), 1, 1) if style == "cg" else solve
        R = -columns(g_yx)
        eye = jnp.eye(case.d)
        moved = jax.vmap(lambda a, b: jax.jvp(gradient, (x, y), (a, b))[1], (1, 1), (1, 1))(eye, R)
        H = moved[0] + R.T @ moved[1]
        return f(x, y), jax.grad(L, 0)(x, y), 0.5 * (H + H.T)

    jitted = jax.jit(grad), jax.jit(hess)

    def kernel(function: Any) -> Kernel:
        return lambda x: [np.asarray(part) for part in function(x)]

    return kernel(jitted[0]), kernel(jitted[1])
