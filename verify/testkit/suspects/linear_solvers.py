"""What defective solvers return for g_yy v = f_y: iterates of conjugate gradients, partial sums of Neumann's series.

One system a point: matrices (P, n, n), right sides (P, n). Series are functions of the eigenvalues, so that many step
sizes and many lengths cost as much as one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.estimators.linear_system import ZERO_RESIDUAL
from bilevel_sym.typing import Floats, Indices
from verify.testkit.suspects.lower_iterates import apply

__all__ = ["SERIES", "Filter", "Flaw", "Iterates", "Spectrum", "conjugate_gradients"]

Filter: TypeAlias = Callable[[Floats, Floats, Floats], Floats]  # (eigenvalue, step, number of terms) -> v in its place


@dataclass(frozen=True)
class Flaw:
    """What is wrong with an implementation of conjugate gradients; without arguments nothing is.

    ``beta``: "right", "none" (steepest descent), "inverted" or "one".
    """

    step_in_solution: bool = True
    step_in_residual: bool = True
    beta: str = "right"


@dataclass(frozen=True, eq=False)
class Iterates:
    """v_0, ..., v_N, (N + 1, P, n), and the norms of what the solver takes for its residual, (N + 1, P).

    >>> Iterates(np.zeros((2, 1, 1)), np.array([[1.0], [0.0]])).stopped(0.5)
    array([1])
    """

    v: Floats
    residuals: Floats

    def stopped(self, tolerance: float) -> Indices:
        """At each point, the first iterate whose residual is at most that; the last one if there is none."""
        small = self.residuals <= tolerance
        return np.where(small.any(axis=0), small.argmax(axis=0), len(small) - 1)

    def at(self, numbers: Indices) -> Floats:
        """One iterate a point, (P, n)."""
        return np.asarray(self.v[numbers, np.arange(len(numbers))])


RIGHT = Flaw()


def conjugate_gradients(A: Floats, b: Floats, steps: int, flaw: Flaw = RIGHT, start: Floats | None = None) -> Iterates:
    """The iterates for A v = b from ``start`` (default 0); a point without a residual stays where it is.

    >>> A, b = np.array([[[2.0, 0.0], [0.0, 4.0]]]), np.ones((1, 2))
    >>> conjugate_gradients(A, b, 2).v[:, 0].round(12).tolist()
    [[0.0, 0.0], [0.333333333333, 0.333333333333], [0.5, 0.25]]
    >>> conjugate_gradients(A, b, 1, Flaw(step_in_solution=False)).v[1, 0].tolist()
    [1.0, 1.0]
    """
    with np.errstate(all="ignore"):
        v = np.zeros_like(b) if start is None else start
        r = b - apply(A, v)
        p, size = r, np.square(r).sum(axis=1)
        found, sizes = [v], [size]
        for _ in range(steps):
            image = apply(A, p)
            alpha = _ratio(size, (p * image).sum(axis=1))
            v = v + (alpha if flaw.step_in_solution else np.sign(alpha)) * p
            r = r - (alpha if flaw.step_in_residual else np.sign(alpha)) * image
            size, before = np.square(r).sum(axis=1), size
            p = r + _beta(flaw.beta, size, before) * p
            found.append(v)
            sizes.append(size)
        return Iterates(np.array(found), np.sqrt(np.array(sizes)))


def _beta(kind: str, size: Floats, before: Floats) -> Floats:
    if kind == "none":
        return np.zeros((len(size), 1))
    if kind == "one":
        return np.ones((len(size), 1))
    return _ratio(before, size) if kind == "inverted" else _ratio(size, before)


def _ratio(over: Floats, under: Floats) -> Floats:
    return np.asarray(np.where((over > ZERO_RESIDUAL) & (under != 0), over / under, 0.0)[:, None])


def _partial(value: Floats, step: Floats, terms: Floats) -> Floats:
    return np.asarray((1 - (1 - step * value) ** terms) / value)


# v as a function of the eigenvalue: the sum of step (1 - step eigenvalue)^q over q < terms, and what is made of it
SERIES: Mapping[str, Filter] = MappingProxyType(
    {
        "truncated": _partial,
        "first term missing": lambda value, step, terms: _partial(value, step, terms + 1) - step,
        "first term twice": lambda value, step, terms: _partial(value, step, terms) + step,
        "step missing": lambda value, step, terms: _partial(value, step, terms) / step,
        "last term alone": lambda value, step, terms: step * (1 - step * value) ** terms,
    }
)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The systems in eigenvectors: v = U phi(eigenvalues) U^T f_y, then -g_xy v.

    >>> at = Spectrum.of(np.array([[[2.0]]]), np.array([[3.0]]), np.array([[[-1.0]]]))
    >>> at.implicit(SERIES["truncated"], np.array([1, 60]), np.array([0.25])).round(6).tolist()  # 3/4, and 3/2
    [[[[0.75]]], [[[1.5]]]]
    """

    eigenvalues: Floats
    right: Floats  # U^T f_y, (P, n)
    cross: Floats  # -g_xy U, (P, d, n)

    @classmethod
    def of(cls, g_yy: Floats, f_y: Floats, g_xy: Floats) -> Spectrum:
        """From the blocks at the points."""
        eigenvalues, vectors = np.linalg.eigh(g_yy)
        return cls(eigenvalues, apply(vectors.swapaxes(1, 2), f_y), -g_xy @ vectors)

    def implicit(self, phi: Filter, terms: NDArray[np.integer], step: Floats) -> Floats:
        """-g_xy v for each number of terms Q and each of K step sizes, (Q, K, P, d)."""
        with np.errstate(all="ignore"):
            filtered = phi(self.eigenvalues[:, None, None], step[:, None], terms[:, None, None].astype(float)[None])
            v = filtered * self.right[:, None, None]
            products = v.reshape(len(v), -1, v.shape[-1]) @ self.cross.swapaxes(1, 2)
        shaped = products.reshape(*v.shape[:3], -1)
        return np.asarray(np.moveaxis(shaped, 0, 2))
