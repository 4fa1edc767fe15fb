"""The families of problems that are measured; see ``Case`` for what each writes down."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
import sympy as sp

from benchmarks.case import Case, Scalar, dot, dyadic, exact
from bilevel_sym import sigmoid, softplus

__all__ = ["FAMILIES", "Logistic", "Nested", "Robust", "SparseQuartic", "make"]

Symbols = Sequence[sp.Symbol]


class SparseQuartic(Case):
    """Quartics in which each variable meets its neighbour only, on a ring (j is the neighbour after k).

    g = Σ a y_k⁴/4 + (4 + x_k²) y_k²/2 + b y_k y_j − c x_k y_k − e x_j y_k
    f = Σ p (x_k² − 1)²/4 + q x_k y_k y_j + r y_k⁴/4 + s x_k x_j y_k

    with 0 < a and |b| ≤ 1, so that g_yy ≥ 2 I everywhere.
    """

    family = "sparse"

    def _draw(self, rng: np.random.Generator) -> None:
        self.a = dyadic(rng, (self.n,), 1 / 16, 1)
        self.b, self.c, self.e, self.p, self.q, self.r, self.s = dyadic(rng, (7, self.n), -1, 1)

    def formulas(self, x: Symbols, y: Symbols) -> tuple[sp.Expr, sp.Expr]:
        """f and g in SymPy."""
        f, g = [], []
        for k in range(self.n):
            a, b, c, e, p, q, r, s = (exact(w[k]) for w in self._weights)
            xk, yk, xj, yj = x[k], y[k], x[(k + 1) % self.n], y[(k + 1) % self.n]
            g += [a * yk**4 / 4, (4 + xk**2) * yk**2 / 2, b * yk * yj, -c * xk * yk, -e * xj * yk]
            f += [p * (xk**2 - 1) ** 2 / 4, q * xk * yk * yj, r * yk**4 / 4, s * xk * xj * yk]
        return sp.Add(*f), sp.Add(*g)

    @property
    def _weights(self) -> tuple[Any, ...]:
        return self.a, self.b, self.c, self.e, self.p, self.q, self.r, self.s

    def jax(self) -> tuple[Scalar, Scalar]:
        """f and g as JAX functions; the neighbours are a roll, which XLA fuses better than a take by index."""
        import jax.numpy as jnp

        a, b, c, e, p, q, r, s = self._weights

        def f(x: Any, y: Any) -> Any:
            xj, yj, xx, yy = jnp.roll(x, -1), jnp.roll(y, -1), x * x, y * y
            return jnp.sum(p * (xx - 1) ** 2 / 4 + r * yy * yy / 4 + x * y * (q * yj + s * xj))

        def g(x: Any, y: Any) -> Any:
            xj, yj, yy = jnp.roll(x, -1), jnp.roll(y, -1), y * y
            return jnp.sum(a * yy * yy / 4 + (4 + x * x) * yy / 2 + y * (b * yj - c * x - e * xj))

        return f, g

    def casadi(self, x: Any, y: Any) -> tuple[Any, Any]:
        """f and g in CasADi."""
        import casadi as ca

        a, b, c, e, p, q, r, s = self._weights
        xj, yj = ca.vertcat(x[1:], x[0]), ca.vertcat(y[1:], y[0])
        xx, yy = x * x, y * y
        f = ca.sum1(p * (xx - 1) ** 2 / 4 + r * yy * yy / 4 + x * y * (q * yj + s * xj))
        g = ca.sum1(a * yy * yy / 4 + (4 + xx) * yy / 2 + y * (b * yj - c * x - e * xj))
        return f, g


class Logistic(Case):
    """Penalties of a logistic regression, one a weight, learnt on validation data; 30 rows each.

    g = Σ_i softplus(a_i · y) + Σ_k exp(x_k) y_k²/2,   f = Σ_i softplus(b_i · y)
    """

    family = "logistic"
    rows = 30

    def _draw(self, rng: np.random.Generator) -> None:
        self.a, self.b = dyadic(rng, (2, self.rows, self.n), -2, 2)

    def formulas(self, x: Symbols, y: Symbols) -> tuple[sp.Expr, sp.Expr]:
        """f and g in SymPy."""
        penalty = [sp.exp(xk) * yk**2 / 2 for xk, yk in zip(x, y, strict=True)]
        f = sp.Add(*(softplus(dot(row, y)) for row in self.b))
        return f, sp.Add(*(softplus(dot(row, y)) for row in self.a), *penalty)

    def jax(self) -> tuple[Scalar, Scalar]:
        """f and g as JAX functions."""
        import jax
        import jax.numpy as jnp

        def f(x: Any, y: Any) -> Any:
            return jnp.sum(jax.nn.softplus(self.b @ y))

        def g(x: Any, y: Any) -> Any:
            return jnp.sum(jax.nn.softplus(self.a @ y)) + jnp.sum(jnp.exp(x) * y * y) / 2

        return f, g

    def casadi(self, x: Any, y: Any) -> tuple[Any, Any]:
        """f and g in CasADi, softplus written so that exp cannot overflow."""
        import casadi as ca

        def loss(rows: Any) -> Any:
            z = ca.mtimes(rows, y)
            return ca.sum1(ca.fmax(z, 0) + ca.log1p(ca.exp(-ca.fabs(z))))

        return loss(self.b), loss(self.a) + ca.sum1(ca.exp(x) * y * y) / 2


class Nested(Case):
    """Dense and nested: every term depends on all variables, through exp of sin, times cos of a product.

    f = Σ_k exp(sin(a_k · x + b_k · y)) cos(x_k y_k)
    g = c |y|²/2 + Σ_k exp(sin(p_k · y + q_k · x)) cos(y_k y_j)/16     (j is the neighbour after k, on a ring)

    with c = n, which makes g strongly convex in y on the box of the points.
    """

    family = "nested"
    span = 0.75

    def _draw(self, rng: np.random.Generator) -> None:
        self.a, self.b, self.p, self.q = dyadic(rng, (4, self.n, self.n), -0.5, 0.5)

    def formulas(self, x: Symbols, y: Symbols) -> tuple[sp.Expr, sp.Expr]:
        """f and g in SymPy."""
        n = self.n
        f = [sp.exp(sp.sin(dot(self.a[k], x) + dot(self.b[k], y))) * sp.cos(x[k] * y[k]) for k in range(n)]
        g = [sp.exp(sp.sin(dot(self.p[k], y) + dot(self.q[k], x))) * sp.cos(y[k] * y[(k + 1) % n]) for k in range(n)]
        return sp.Add(*f), n * sp.Add(*(yk**2 for yk in y)) / 2 + sp.Add(*g) / 16

    def jax(self) -> tuple[Scalar, Scalar]:
        """f and g as JAX functions."""
        import jax.numpy as jnp

        def f(x: Any, y: Any) -> Any:
            return jnp.sum(jnp.exp(jnp.sin(self.a @ x + self.b @ y)) * jnp.cos(x * y))

        def g(x: Any, y: Any) -> Any:
            waves = jnp.exp(jnp.sin(self.p @ y + self.q @ x)) * jnp.cos(y * jnp.roll(y, -1))
            return self.n * jnp.sum(y * y) / 2 + jnp.sum(waves) / 16

        return f, g

    def casadi(self, x: Any, y: Any) -> tuple[Any, Any]:
        """f and g in CasADi."""
        import casadi as ca

        after = ca.vertcat(y[1:], y[0])
        f = ca.sum1(ca.exp(ca.sin(ca.mtimes(self.a, x) + ca.mtimes(self.b, y))) * ca.cos(x * y))
        waves = ca.exp(ca.sin(ca.mtimes(self.p, y) + ca.mtimes(self.q, x))) * ca.cos(y * after)
        return f, self.n * ca.sumsqr(y) / 2 + ca.sum1(waves) / 16


class Robust(Case):
    """Robust regression from several sources: learn how far to trust each source and how much to shrink each feature.

    Half of x are log-penalties, each of two features; the other half say, through a sigmoid, how much each of n/2
    sources of training rows counts. Residuals r_i = a_i · y − b_i enter through the pseudo-Huber loss.

    g = Σ_i sigmoid(x_source(i)) (sqrt(1 + r_i²) − 1) + Σ_k exp(x_penalty(k)) y_k²/2   over 50 training rows
    f = Σ_i sqrt(1 + r_i²) − 1                                                         over 50 validation rows
    """

    family = "robust"
    rows = 50

    def _draw(self, rng: np.random.Generator) -> None:
        self.a, self.v = dyadic(rng, (2, self.rows, self.n), -2, 2)
        self.b, self.w = dyadic(rng, (2, self.rows), -2, 2)
        half = self.n // 2
        self.penalty = [k % half for k in range(self.n)]
        self.source = [half + i % (self.n - half) for i in range(self.rows)]

    def formulas(self, x: Symbols, y: Symbols) -> tuple[sp.Expr, sp.Expr]:
        """f and g in SymPy."""

        def losses(rows: Any, targets: Any) -> list[sp.Expr]:
            return [sp.sqrt(1 + (dot(a, y) - exact(b)) ** 2) - 1 for a, b in zip(rows, targets, strict=True)]

        training = [sigmoid(x[s]) * loss for s, loss in zip(self.source, losses(self.a, self.b), strict=True)]
        shrink = [sp.exp(x[s]) * yk**2 / 2 for s, yk in zip(self.penalty, y, strict=True)]
        return sp.Add(*losses(self.v, self.w)), sp.Add(*training, *shrink)

    def jax(self) -> tuple[Scalar, Scalar]:
        """f and g as JAX functions."""
        import jax
        import jax.numpy as jnp

        def losses(rows: Any, targets: Any, y: Any) -> Any:
            return jnp.sqrt(1 + (rows @ y - targets) ** 2) - 1

        def f(x: Any, y: Any) -> Any:
            return jnp.sum(losses(self.v, self.w, y))

        def g(x: Any, y: Any) -> Any:
            trust, shrink = (
                jnp.take(jax.nn.sigmoid(x), np.array(self.source)),
                jnp.take(jnp.exp(x), np.array(self.penalty)),
            )
            return jnp.sum(trust * losses(self.a, self.b, y)) + jnp.sum(shrink * y * y) / 2

        return f, g

    def casadi(self, x: Any, y: Any) -> tuple[Any, Any]:
        """f and g in CasADi."""
        import casadi as ca

        def losses(rows: Any, targets: Any) -> Any:
            return ca.sqrt(1 + (ca.mtimes(rows, y) - targets) ** 2) - 1

        trust, shrink = (1 / (1 + ca.exp(-x)))[self.source], ca.exp(x)[self.penalty]
        g = ca.sum1(trust * losses(self.a, self.b)) + ca.sum1(shrink * y * y) / 2
        return ca.sum1(losses(self.v, self.w)), g


FAMILIES: dict[str, type[Case]] = {kind.family: kind for kind in (SparseQuartic, Logistic, Nested, Robust)}


def make(name: str, seed: int = 0) -> Case:
    """The case of a name such as ``sparse-20``: a family and a size."""
    family, _, size = name.rpartition("-")
    if family not in FAMILIES or not size.isdecimal() or int(size) < 3:
        raise ValueError(f"no case {name!r}; a case is one of {', '.join(FAMILIES)}, a dash and a size of at least 3")
    return FAMILIES[family](int(size), seed)
