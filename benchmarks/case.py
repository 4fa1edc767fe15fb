"""What a benchmark problem is: one set of coefficients, written three times (SymPy, JAX, CasADi).

The coefficients are dyadic (small integers over a power of two), so that the three writings are exactly one function.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import sympy as sp

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats

__all__ = ["Case", "Scalar", "dot", "dyadic", "exact"]

Scalar = Callable[[Any, Any], Any]  # f(x, y) or g(x, y) on JAX arrays


def dyadic(rng: np.random.Generator, shape: tuple[int, ...], low: float, high: float, parts: int = 16) -> Floats:
    """Random multiples of 1/parts between low and high, both ends included; parts is a power of two."""
    return np.asarray(rng.integers(int(low * parts), int(high * parts) + 1, shape) / parts)


def exact(number: float) -> sp.Rational:
    """The rational number that a float is."""
    return sp.Rational(float(number))


def dot(weights: Floats, variables: Sequence[sp.Expr]) -> sp.Expr:
    """Σ weights[k] variables[k] in SymPy, exactly."""
    return sp.Add(*(exact(w) * v for w, v in zip(weights, variables, strict=True)))


class Case(ABC):
    """A bilevel problem with d = n variables on each level, in three languages.

    ``seed`` draws the coefficients: cases that differ in it alone cost the same and share no cached result.
    """

    family: ClassVar[str]
    span: ClassVar[float] = 1.0  # points are drawn from [-span, span]

    def __init__(self, n: int, seed: int = 0) -> None:
        self.n = n
        self.seed = seed
        self._draw(np.random.default_rng([seed, n]))

    @property
    def name(self) -> str:
        """The family and its size, for tables."""
        return f"{self.family}-{self.n}"

    @abstractmethod
    def _draw(self, rng: np.random.Generator) -> None:
        """Draw the coefficients."""

    @abstractmethod
    def formulas(self, x: Sequence[sp.Symbol], y: Sequence[sp.Symbol]) -> tuple[sp.Expr, sp.Expr]:
        """f and g in SymPy."""

    @abstractmethod
    def jax(self) -> tuple[Scalar, Scalar]:
        """f and g as JAX functions, vectorised."""

    @abstractmethod
    def casadi(self, x: Any, y: Any) -> tuple[Any, Any]:
        """f and g in CasADi, for symbols x and y of either kind (SX or MX)."""

    def variables(self) -> tuple[tuple[sp.Symbol, ...], tuple[sp.Symbol, ...]]:
        """x and y in SymPy."""
        return sp.symbols(f"x1:{self.n + 1}"), sp.symbols(f"y1:{self.n + 1}")

    def problem(self) -> BilevelProblem:
        """f and g as a problem of this toolkit."""
        x, y = self.variables()
        return BilevelProblem(*self.formulas(x, y), x, y)

    def points(self, count: int) -> tuple[Floats, Floats]:
        """``count`` points (x, y), each of shape (count, n)."""
        draws = np.random.default_rng([self.seed, self.n, count]).uniform(-self.span, self.span, (2, count, self.n))
        return np.ascontiguousarray(draws[0]), np.ascontiguousarray(draws[1])
