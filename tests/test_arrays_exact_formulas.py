"""Closed forms and named terms of array derivations against the derivation of the same problem in scalars, exactly."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import sympy as sp
from array_oracle import FRACTIONS, NoNumber, Point, values
from array_strategies import (
    DATA,
    Drawn,
    DrawnProblem,
    X,
    Y,
    einsum,
    expressions,
    leaf,
    mul,
    number,
    plus,
    points,
    times,
)
from flint import fmpq, fmpq_mat
from helpers import FEW
from hypothesis import assume, event, given
from hypothesis import strategies as st
from test_arrays_lowering import problem_of
from test_arrays_truth import Both

from bilevel_sym import derive
from bilevel_sym.arrays.lowering import lower, lower_form
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.symbolic.array_closed_form import Solve, solve_quadratic
from bilevel_sym.symbolic.array_formulas import ArrayFormulas

MAX_ENTRIES = 3  # of y, and of x: derivations in scalars invert matrices symbol by symbol


@st.composite
def quadratics(draw: st.DrawFn) -> DrawnProblem:
    """g is quadratic and strongly convex in y, rational in x; f is any rational formula."""
    x = tuple(draw(st.lists(st.sampled_from(X[:2]), min_size=1, max_size=2, unique=True)))
    y = tuple(draw(st.lists(st.sampled_from(Y), min_size=1, max_size=2, unique=True)))
    upper = (*x, *DATA)
    g = draw(expressions((), depth=1, functions=(), leaves=upper))
    for of in y:
        g = plus(plus(g, _square(draw, of, upper)), _linear(draw, of, upper))
    if len(y) == 2 and draw(st.booleans()):
        g = plus(g, times(Fraction(1, 5), mul(_sum(y[0]), _sum(y[1]))))
    f = draw(expressions((), depth=2, functions=(), leaves=(*upper, *y)))
    return DrawnProblem(f, g, x, y)


def _sum(of: Leaf) -> Drawn:
    return einsum([(leaf(of), "ij"[: len(of.dims)])], "")


def _square(draw: st.DrawFn, of: Leaf, leaves: Sequence[Leaf]) -> Drawn:
    """A positive multiple of |y|^2, entry by entry or not, and perhaps |B y|^2."""
    labels = "ij"[: len(of.dims)]
    inner = draw(expressions(of.dims if draw(st.sampled_from([0, 1])) else (), depth=1, functions=(), leaves=leaves))
    weight = plus(number(Fraction(3), inner.tensor.dims), mul(inner, inner))
    whole = einsum([(weight, labels if inner.tensor.rank else ""), (leaf(of), labels), (leaf(of), labels)], "")
    if of.dims and draw(st.sampled_from([0, 1])):
        image = einsum([(leaf(DATA[1]), "ki"), (leaf(of), labels)], labels.replace("i", "k"))
        whole = plus(whole, mul_all(image, image))
    return whole


def mul_all(one: Drawn, two: Drawn) -> Drawn:
    labels = "ij"[: one.tensor.rank]
    return einsum([(one, labels), (two, labels)], "")


def _linear(draw: st.DrawFn, of: Leaf, leaves: Sequence[Leaf]) -> Drawn:
    return mul_all(draw(expressions(of.dims, depth=1, functions=(), leaves=leaves)), leaf(of))


class Solved(Both):
    """A quadratic problem at one x, with y*, v and dy_dx by the blocks of the scalar model."""

    def __init__(self, problem: DrawnProblem, point: Point) -> None:
        super().__init__(problem, point)
        assert set(self.graph.op) <= {"var", "lin", "mul", "ipow"}
        names = [problem.x, problem.y]
        flat = [[q for of in level for q in np.asarray(point.arrays[of.name], object).ravel()] for level in names]
        self.x = [Fraction(q) for q in flat[0]]
        zero = [Fraction(0)] * len(flat[1])
        self.H = self.scalar_at("g_yy", zero)
        if self.H.det() == 0:
            raise NoNumber
        self.y = list(_entries(self.H.solve(-self.scalar_at("g_y", zero))))
        self.v = list(_entries(self.H.solve(self.scalar_at("f_y", self.y))))
        self.response = -self.H.solve(self.scalar_at("g_xy", self.y).transpose()).transpose()
        self.formulas = ArrayFormulas(self.array)
        for (a, c), of in self.formulas.responses.items():
            self.data[of.name] = self._part(self.response, a, c)

    def numbers_at(self, y: Sequence[Fraction], v: Sequence[Fraction] = ()) -> dict[int, Any]:
        return dict(enumerate([*self.x, *y, *v]))

    def scalar_at(self, name: str, y: Sequence[Fraction]) -> fmpq_mat:
        """A block of the scalar model as a matrix, columns for vectors."""
        shape, forms = self.scalar.block(name)
        found = values(self.graph, forms, self.numbers_at(y), FRACTIONS)
        return _matrix(shape[0], shape[1] if len(shape) == 2 else 1, found)

    def _part(self, matrix: fmpq_mat, a: Leaf, c: Leaf) -> Any:
        """The entries of a matrix over x and y that belong to two arrays, in their shapes."""
        shape = [self.sizes[dim] for dim in (*a.dims, *c.dims)]
        rows = range(self.starts[a], self.starts[a] + self.entries(a))
        columns = range(self.starts[c] - self.scalar.d, self.starts[c] - self.scalar.d + self.entries(c))
        found = np.empty(len(rows) * len(columns), object)
        found[:] = [_fraction(matrix[i, j]) for i in rows for j in columns]
        return found.reshape(shape)

    def array_at(self, tensor: Tensor, y: Sequence[Fraction]) -> dict[tuple[int, ...], Fraction]:
        """The entries of a tensor, v and dy_dx known."""
        forms = lower_form(tensor, self.graph, self.entry_of, self.sizes)
        found = values(self.graph, forms.values(), self.numbers_at(y, self.v), FRACTIONS)
        return dict(zip(forms, found, strict=True))

    def flat_matrix(self, blocks: Mapping[Any, Tensor], levels: Sequence[Sequence[Leaf]]) -> fmpq_mat:
        """Blocks by arrays, laid end to end; columns for vectors."""
        sizes = [sum(map(self.entries, level)) for level in levels]
        found = {}
        for key, tensor in blocks.items():
            leaves = key if isinstance(key, tuple) else (key,)
            for place, value in self.array_at(tensor, self.y).items():
                where = self.where(leaves, place)
                shifted = [k - self.starts[level[0]] for k, level in zip(where, levels, strict=True)]
                found[tuple(shifted)] = value
        places = [(i, j) for i in range(sizes[0]) for j in range(sizes[1])] if len(sizes) == 2 else None
        ordered = [found[place] for place in places] if places else [found[i,] for i in range(sizes[0])]
        return _matrix(sizes[0], sizes[1] if len(sizes) == 2 else 1, ordered)


def _matrix(rows: int, columns: int, entries: Sequence[Fraction]) -> fmpq_mat:
    return fmpq_mat(rows, columns, [fmpq(q.numerator, q.denominator) for q in entries])


def _fraction(value: Any) -> Fraction:
    return Fraction(int(value.p), int(value.q))


def _entries(matrix: fmpq_mat) -> list[Fraction]:
    return [_fraction(value) for value in matrix.entries()]


def solved(data: st.DataObject) -> tuple[DrawnProblem, Point, Solved]:
    """A small problem that exists at its point."""
    problem = data.draw(quadratics())
    point = data.draw(points(largest=2))
    for level in (problem.x, problem.y):
        assume(sum(point.entries(of) for of in level) <= MAX_ENTRIES)
    try:
        return problem, point, Solved(problem, point)
    except (NoNumber, ZeroDivisionError):
        assume(False)
        raise
    except InvalidProblem as error:
        assume("divides by zero" not in error.message)
        raise


def y_by_solve(at: Solved, solve: Solve) -> dict[tuple[int, ...], Fraction]:
    """What a closed form says y* is."""
    right = at.array_at(solve.right, [Fraction(0)] * at.scalar.n)
    matrix = at.array_at(solve.curvature.tensor, [Fraction(0)] * at.scalar.n)
    if solve.curvature.kind == "entries":
        assert solve.value is not None
        return at.array_at(solve.value, [Fraction(0)] * at.scalar.n)
    order = 1 + max(i for i, _ in matrix)
    whole = _matrix(order, order, list(matrix.values()))
    if solve.curvature.kind == "vector":
        return dict(zip(right, _entries(whole.solve(_matrix(order, 1, list(right.values())))), strict=True))
    shape = [1 + max(place[k] for place in right) for k in range(2)]
    sides = _matrix(shape[0], shape[1], list(right.values()))
    rows = solve.curvature.kind == "rows"
    found = whole.solve(sides.transpose()).transpose() if rows else whole.solve(sides)
    return dict(zip(right, _entries(found), strict=True))


@pytest.mark.slow
@given(data=st.data())
def test_closed_forms_are_the_solution_of_the_scalar_problem(data: st.DataObject) -> None:
    _, _, at = solved(data)
    closed = solve_quadratic(at.array)
    event(closed.method)
    assert closed.right_sides is not None
    if closed.solves is None:
        right = at.flat_matrix({of: closed.right_sides[of] for of in at.array.y}, [at.array.y])
        whole = at.flat_matrix(at.array.block("g_yy"), [at.array.y, at.array.y])
        assert _entries(whole.solve(right)) == at.y
        return
    for of, solve in closed.solves.items():
        start = at.starts[of] - at.scalar.d
        found = y_by_solve(at, solve)
        assert list(found.values()) == at.y[start : start + at.entries(of)]


@pytest.mark.slow
@FEW
@given(data=st.data())
def test_terms_are_those_of_the_scalar_derivation(data: st.DataObject) -> None:
    problem, point, at = solved(data)
    arrays = {
        name: value for name, value in point.arrays.items() if name not in {f.name for f in at.array.x + at.array.y}
    }
    lowered = lower(at.array.f, at.array.g, problem.x, problem.y, data=arrays, sizes=point.sizes)
    derivation = derive(problem_of(lowered), closed_form=False)
    here = dict(zip((*lowered.x, *lowered.y), map(_rational, [*at.x, *at.y]), strict=True))
    x = at.array.x
    mine: dict[str, tuple[Any, list[Any]]] = {
        "grad_phi": (at.formulas.gradient_terms, [x]),
        "hess_phi": (at.formulas.hessian_terms, [x, x]),
    }
    for quantity, (terms, levels) in mine.items():
        assert set(terms) == set(derivation.terms[quantity])
        for name, blocks in terms.items():
            theirs = derivation.terms[quantity][name]
            assert _entries(at.flat_matrix(blocks, levels)) == _at(theirs, here), (quantity, name)
    assert _entries(at.flat_matrix(at.formulas.gradient, [x])) == _at(derivation.grad_phi, here)
    assert _entries(at.flat_matrix(at.formulas.hessian, [x, x])) == _at(derivation.hess_phi, here)


def _rational(value: Fraction) -> sp.Rational:
    return sp.Rational(value.numerator, value.denominator)


def _at(matrix: Any, here: Mapping[sp.Symbol, sp.Rational]) -> list[Fraction]:
    """The entries of a SymPy matrix at a rational point, row by row."""
    return [Fraction(int(q.p), int(q.q)) for q in (sp.sympify(entry).xreplace(here) for entry in matrix)]
