"""Shared by the tests: problems whose answers are known by construction, and exact comparison."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from itertools import combinations_with_replacement, pairwise

import hypothesis.strategies as st
import numpy as np
import pytest
import sympy as sp
from hypothesis import settings

from bilevel_sym import BilevelProblem, MinimaxProblem, StochasticProblem, softplus
from bilevel_sym.graph.expressions import substitute
from verify.verdict import CheckResult, Verdict

THOROUGH = settings().max_examples >= 1000  # --hypothesis-profile=thorough
# for tests that derive a Hessian per example: a fraction of what the profile asks for
FEW = settings(max_examples=max(6, (settings.default or settings()).max_examples // 4))

SHAPES = [(d, n) for d in (1, 2, 3) for n in (1, 2, 3)]
EVERY_SHAPE = [pytest.param(d, n, marks=[pytest.mark.slow] * (d + n > 3)) for d, n in SHAPES]
SMALL = st.integers(-3, 3).map(sp.Integer)
RATIONAL = st.fractions(-2, 2, max_denominator=5).map(lambda q: sp.Rational(q.numerator, q.denominator))


def calls_of(action: Callable[[], object]) -> int:
    """How many functions an action calls, those written in C too: its work, the same on every machine, busy or not."""
    count = 0

    def counted(_frame: object, event: str, _argument: object) -> None:
        nonlocal count
        count += event in ("call", "c_call")

    before = sys.getprofile()
    sys.setprofile(counted)
    try:
        action()
    finally:
        sys.setprofile(before)
    return count


def earned(result: CheckResult) -> bool:
    """HOLDS rests on a proof, a certificate or a definition, or on a bound that was put to the test; all else says why."""
    if result.verdict is not Verdict.HOLDS:
        return bool(result.message)
    tested = result.tightness is None or result.tightness >= 1e-2
    return result.evidence in ("proved", "certified", "by definition") or tested


@dataclass(frozen=True)
class Solved:
    """A polynomial problem with its y*(x) and a rational point."""

    problem: BilevelProblem
    y_star: tuple[sp.Expr, ...]
    point: dict[sp.Symbol, sp.Rational]

    @property
    def phi(self) -> sp.Expr:
        return self.problem.f.subs(dict(zip(self.problem.y, self.y_star, strict=True)), simultaneous=True)

    @property
    def solution(self) -> dict[sp.Symbol, sp.Rational]:
        """x at the point and y at y*(x)."""
        values = [entry.subs(self.point) for entry in self.y_star]
        return {**self.point, **dict(zip(self.problem.y, values, strict=True))}


@st.composite
def polynomials(draw: st.DrawFn, variables: Sequence[sp.Symbol], degree: int, terms: int = 4) -> sp.Expr:
    """A few monomials with small integer coefficients."""
    monomials = [sp.Mul(*chosen) for k in range(degree + 1) for chosen in combinations_with_replacement(variables, k)]
    picked = draw(st.lists(st.sampled_from(monomials), min_size=1, max_size=terms))
    return sp.Add(*(draw(SMALL) * monomial for monomial in picked))


@st.composite
def solved_problems(draw: st.DrawFn, d: int, n: int, *, cubic: bool = True) -> Solved:
    """g = z^T A(x) z/2 + cubic(z; x) with z = y - p(x): stationary at y = p(x), third derivatives included.

    A at the point is diagonally dominant, so that the lower level is strongly convex near there.
    """
    x = sp.symbols(f"x1:{d + 1}")
    y = sp.symbols(f"y1:{n + 1}")
    p = [draw(polynomials(x, 2, terms=2)) for _ in y]
    z = [yk - pk for yk, pk in zip(y, p, strict=True)]
    values = [draw(RATIONAL) for _ in x]
    shift = [xi - value for xi, value in zip(x, values, strict=True)]
    quadratic = sum(
        ((10 if a == b else draw(SMALL)) + draw(SMALL) * draw(st.sampled_from(shift))) * z[a] * z[b]
        for a in range(n)
        for b in range(a, n)
    )
    cubes = st.tuples(*[st.sampled_from(z)] * 3).map(lambda chosen: sp.Mul(*chosen))
    third = sum(draw(polynomials(x, 1, terms=2)) * draw(cubes) for _ in range(2))
    f = draw(polynomials((*x, *y), 3, terms=6))
    problem = BilevelProblem(f, quadratic / 2 + (third if cubic else 0), x, y)
    return Solved(problem, tuple(p), dict(zip(x, values, strict=True)))


def logistic(n: int, rows: int, *, named: bool = True) -> BilevelProblem:
    """A logistic problem with d = n and one penalty a weight; ``named``: with softplus, else log(1 + exp)."""
    x, y = sp.symbols(f"x1:{n + 1}"), sp.symbols(f"y1:{n + 1}")

    def loss(seed: int) -> sp.Expr:
        terms = []
        for row in range(rows):
            weights = [sp.Rational((seed + 37 * row + 11 * k * k + 5 * k * row) % 101 - 50, 25) for k in range(n)]
            z = sp.Add(*(w * yk for w, yk in zip(weights, y, strict=True)))
            terms.append(softplus(z) if named else sp.log(1 + sp.exp(z)))
        return sp.Add(*terms)

    ridge = sp.Add(*(sp.exp(xi) * yk**2 for xi, yk in zip(x, y, strict=True))) / 2
    return BilevelProblem(loss(3), loss(71) + ridge, x, y)


def at(block: sp.MatrixBase | sp.NDimArray, point: dict[sp.Symbol, sp.Rational]) -> sp.Matrix:
    """The entries at a rational point, in one row: exact numbers. (SymPy's own subs is 30 times slower.)"""
    entries = list(block) if isinstance(block, sp.MatrixBase) else sp.flatten(block)
    return sp.Matrix([[substitute(entry, point) for entry in entries]])


def random_problem(seed: int) -> BilevelProblem:
    """A smooth problem with a box: g is strongly convex by construction, and y*(x) stays inside the box.

    Every third one is a minimax problem, every seventh a stochastic one; d and n run from 1 to 3.
    """
    rng = np.random.default_rng(seed)
    d, n = 1 + seed % 3, 1 + (seed // 3) % 3
    x, y = sp.symbols(f"x1:{d + 1}"), sp.symbols(f"y1:{n + 1}")

    def number(low: int, high: int, over: int = 4) -> sp.Rational:
        return sp.Rational(int(rng.integers(low, high + 1)), over)

    def of(kind: int, z: sp.Expr) -> sp.Expr:
        return (z, z**2, sp.sin(z), sp.cos(z), sp.exp(z / 2), z**3 / 3)[kind]

    def upper(variables: Sequence[sp.Symbol]) -> sp.Expr:
        a, b = rng.choice(len(variables), 2)
        return number(-4, 4) * of(int(rng.integers(6)), variables[a]) * (1 if seed % 2 else of(2, variables[b]))

    curvatures = [number(8, 16) for _ in y]
    targets = [sum(number(-3, 3) * of(int(rng.integers(4)), s) for s in x) for _ in y]
    bowl = sum(q * (t - p) ** 2 / 2 for q, t, p in zip(curvatures, y, targets, strict=True))
    # amplitudes at most 1/2 and 1/4: the smallest curvature stays above 1/2
    ripples = sum(number(-2, 2) * sp.sin(t + s) for t, s in zip(y, (*x, *x, *x), strict=False))
    ripples += sum(number(-1, 1) * a * b for a, b in pairwise(y))
    box = {s.name: (-1, 1) for s in x} | {s.name: (-4, 4) for s in y}
    name = f"random-{seed}"
    if seed % 3 == 2:
        return MinimaxProblem(sum(upper(x) for _ in x) - bowl - ripples, x, y, box=box, name=name)
    f = sum(upper((*x, *y)) for _ in (*x, *y))
    if seed % 7 == 5:
        xi, zeta = sp.symbols("xi zeta")
        data = [[-1], [0], [1]]
        return StochasticProblem(
            f + xi * sp.sin(y[0]) / 2, bowl + ripples + zeta * sp.sin(y[0] - x[0]) / 4, x, y, [xi], [zeta], data, data,
            box=box, name=name,
        )  # fmt: skip
    return BilevelProblem(f, bowl + ripples, x, y, box=box, name=name)
