"""JAX and CasADi, each written as an engineer who knows the system well would write it.

With y given, v = g_yy⁻¹ f_y, L = f − vᵀ∇_y g (v constant), S = −g_yy⁻¹ g_yx (the transpose of dy_dx) and Z = [I; S],
both compute phi = f, grad = f_x − g_xy v and hess = Zᵀ ∇²L Z.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np

from benchmarks.case import Case, Scalar
from benchmarks.competitor import Competitor, Kernel, Triple
from bilevel_sym.typing import Floats

__all__ = ["Casadi", "CasadiKernel", "Jax", "JaxKernel"]


class JaxKernel:
    """A jitted expansion and its vmap, in float64."""

    def __init__(self, expansion: Any) -> None:
        import jax

        self._one = jax.jit(expansion)
        self._many = jax.jit(jax.vmap(expansion))

    def one(self, x: Floats, y: Floats) -> Triple:
        """(phi, grad, hess) at one point."""
        phi, grad, hess = self._one(x, y)
        return np.asarray(phi), np.asarray(grad), np.asarray(hess)  # waits for the result; copies nothing on a CPU

    def many(self, x: Floats, y: Floats) -> Triple:
        """(phi, grad, hess) at each row of x and y; compiled once for each number of rows."""
        phi, grad, hess = self._many(x, y)
        return np.asarray(phi), np.asarray(grad), np.asarray(hess)


def _jax_expansion(f: Scalar, g: Scalar, style: str, x: Any, y: Any) -> tuple[Any, Any, Any]:
    import jax
    import jax.numpy as jnp
    from jax.scipy.linalg import cho_factor, cho_solve

    phi, (f_x, f_y) = jax.value_and_grad(f, (0, 1))(x, y)
    g_yx, g_yy = jax.jacfwd(jax.grad(g, 1), (0, 1))(x, y)
    solved = cho_solve(cho_factor(g_yy), jnp.concatenate([f_y[:, None], g_yx], axis=1))
    v, S = solved[:, 0], -solved[:, 1:]

    def lagrangian(x: Any, y: Any) -> Any:
        return f(x, y) - jax.jvp(partial(g, x), (y,), (v,))[1]

    if style == "shifted":
        hess = jax.hessian(lambda t: lagrangian(x + t, y + S @ t))(jnp.zeros_like(x))
    else:
        slope = jax.grad(lagrangian, (0, 1))
        along_x, along_y = jax.vmap(lambda *z: jax.jvp(slope, (x, y), z)[1])(jnp.eye(x.size), S.T)
        hess = along_x + along_y @ S
    return phi, f_x - v @ g_yx, hess


class Jax(Competitor):
    """JAX: jit, vmap, Cholesky, and Hessian-vector products along the d columns of Z only.

    Styles: ``columns`` pushes the columns of Z through the gradient of L (forward over reverse); ``shifted`` is
    jax.hessian of t ↦ L(x + t, y + S t) at 0. Tried, and slower on batches: jax.hessian of L over all d + n variables
    (1.3 to 2.6 times), differentiating the hypergradient itself through the Cholesky solve (4 to 30 times). As fast:
    vᵀ∇_y g by reverse mode. Asynchronous dispatch is off: on one core it only adds a change of thread to every call
    (one point 15 to 35 µs slower).
    """

    name = "JAX"
    needs = ("jax",)
    extra = "bench"
    styles = ("columns", "shifted")

    def state(self, case: Case, style: str) -> tuple[Scalar, Scalar]:
        """f and g as functions."""
        import jax

        config: Any = jax.config
        config.update("jax_enable_x64", True)
        config.update("jax_cpu_enable_async_dispatch", False)
        return case.jax()

    def set_up(self, stated: tuple[Scalar, Scalar], style: str) -> Kernel:
        """Tracing and compiling happen in the first call."""
        return JaxKernel(partial(_jax_expansion, *stated, style))


class CasadiKernel:
    """A CasADi function called through buffers, and its serial map for each size of a batch."""

    def __init__(self, function: Any, n: int) -> None:
        self._function = function
        self._n = n
        self._calls: dict[int, tuple[Any, Any, Floats, Floats]] = {}

    def one(self, x: Floats, y: Floats) -> Triple:
        """(phi, grad, hess) at one point."""
        phi, grad, hess = self.many(x[None], y[None])
        return phi[0], grad[0], hess[0]

    def many(self, x: Floats, y: Floats) -> Triple:
        """(phi, grad, hess) at each row of x and y, written by CasADi straight into the arrays returned."""
        rows, n = len(x), self._n
        buffer, evaluate, x_in, y_in = self._calls.get(rows) or self._connect(rows)
        x_in[:], y_in[:] = x, y
        out = np.empty(rows), np.empty((rows, n)), np.empty((rows, n, n))
        for slot, array in enumerate(out):
            buffer.set_res(slot, array.data)
        evaluate()
        return out

    def _connect(self, rows: int) -> tuple[Any, Any, Floats, Floats]:
        function = self._function if rows == 1 else self._function.map(rows)
        buffer, evaluate = function.buffer()
        x_in, y_in = np.empty((rows, self._n)), np.empty((rows, self._n))
        buffer.set_arg(0, x_in.data)
        buffer.set_arg(1, y_in.data)
        self._calls[rows] = buffer, evaluate, x_in, y_in
        return self._calls[rows]


class Casadi(Competitor):
    """CasADi: two functions (the blocks; ∇²L with v a parameter) around one LDLᵀ solve, called through buffers.

    Styles: ``SX`` takes scalar graphs and the sparse Hessian of L, ``SX-cse`` the same after ``cse``, ``MX`` matrix
    graphs after ``cse``, ``MX-columns`` matrix graphs and the products ∇²L Z instead of ∇²L. Tried on every case:
    lapacklu for the solve (within 6 % of LDLᵀ, sparse-5 apart, where times scatter by 40 %), lapackqr (up to 30 %
    slower), MX without ``cse`` (up to 25 % slower). Tried on four cases and slower:
    one SX graph with a symbolic LDLᵀ (up to 4 times), symbolicqr (up to 4 times), SX with ∇²L Z (1.5 to 5 times).
    Batches go through a map, called through buffers too: never slower than a loop of buffered calls, and up to 4 times
    as fast on the smallest problems. Compiled C code (``jit=True``) is left out: it needs a C compiler.
    """

    name = "CasADi"
    needs = ("casadi",)
    extra = "bench"
    styles = ("SX", "SX-cse", "MX", "MX-columns")

    def state(self, case: Case, style: str) -> tuple[Any, ...]:
        """x, y, f and g as symbols and expressions."""
        import casadi as ca

        kind = ca.SX if style.startswith("SX") else ca.MX
        x, y = kind.sym("x", case.n), kind.sym("y", case.n)
        return (x, y, *case.casadi(x, y))

    def set_up(self, stated: tuple[Any, ...], style: str) -> Kernel:
        """Differentiate, and join the parts."""
        x = stated[0]
        shared = _as_written if style == "SX" else _shared
        curvature = _product if style == "MX-columns" else partial(_full_hessian, shared)
        return CasadiKernel(_casadi_expansion(shared, curvature, *stated), x.numel())


def _casadi_expansion(shared: Any, curvature: Any, x: Any, y: Any, f: Any, g: Any) -> Any:
    import casadi as ca

    g_y = ca.gradient(g, y)
    parts = [f, ca.gradient(f, x), ca.gradient(f, y), ca.jacobian(g_y, x), ca.hessian(g, y)[0]]
    blocks = ca.Function("blocks", [x, y], shared(parts))
    v = type(x).sym("v", y.numel())
    project = curvature(x, y, v, f - ca.dot(v, g_y))
    X, Y = ca.MX.sym("x", x.numel()), ca.MX.sym("y", y.numel())
    phi, f_x, f_y, g_yx, g_yy = blocks(X, Y)
    solved = ca.solve(g_yy, ca.densify(ca.horzcat(f_y, g_yx)), "ldl")
    V, S = solved[:, 0], -solved[:, 1:]
    grad = f_x - ca.mtimes(g_yx.T, V)
    return ca.Function("expansion", [X, Y], [phi, ca.densify(grad), ca.densify(project(X, Y, V, S))])


def _shared(parts: list[Any]) -> list[Any]:
    """Common subexpressions once."""
    import casadi as ca

    return list(ca.cse(parts))


def _as_written(parts: list[Any]) -> list[Any]:
    return parts


def _full_hessian(shared: Any, x: Any, y: Any, v: Any, lagrangian: Any) -> Any:
    """(x, y, v, S) ↦ Zᵀ ∇²L Z through the sparse blocks of ∇²L."""
    import casadi as ca

    d = x.numel()
    whole = ca.Function("hessian", [x, y, v], shared([ca.hessian(lagrangian, ca.vertcat(x, y))[0]]))

    def project(X: Any, Y: Any, V: Any, S: Any) -> Any:
        H = whole(X, Y, V)
        mixed = ca.mtimes(H[:d, d:], S)
        return ca.densify(H[:d, :d]) + mixed + mixed.T + ca.mtimes(S.T, ca.mtimes(H[d:, d:], S))

    return project


def _product(x: Any, y: Any, v: Any, lagrangian: Any) -> Any:
    """(x, y, v, S) ↦ Zᵀ ∇²L Z through the products of ∇²L with the columns of Z."""
    import casadi as ca

    z, S = ca.vertcat(x, y), type(x).sym("S", y.numel(), x.numel())
    Z = ca.vertcat(type(x).eye(x.numel()), S)
    products = ca.jtimes(ca.gradient(lagrangian, z), z, Z)
    return ca.Function("projected", [x, y, v, S], [ca.mtimes(Z.T, products)])
