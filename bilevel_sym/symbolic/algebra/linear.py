"""Linear systems with symbolic coefficients, solved without fractions and checked in exact arithmetic.

Proofs that a formula is zero, in exact arithmetic and bounded in time.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import reduce
from math import comb, factorial, lcm, prod
from types import MappingProxyType
from typing import Any

import flint
import sympy as sp

from bilevel_sym.errors import AssumptionViolated
from bilevel_sym.graph.convert import sympy_rational
from bilevel_sym.graph.expressions import postorder, substitute
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.symbolic.algebra.field import Field, Ratio, TooLarge
from bilevel_sym.symbolic.simplify import expanded_terms

__all__ = ["elementary", "exponentiated", "negative_direction", "not_convex", "solve_linear", "vanishes"]

Matrix = Sequence[Sequence[sp.Expr]]
Row = list[Any]  # of flint.fmpq_mpoly, which has no type stubs

MAX_CONSTANT = 50  # unknowns of a system with rational coefficients: beyond it nobody reads the result
MAX_SYMBOLIC = 20  # unknowns that hang together through symbolic coefficients
MAX_DETERMINANT = 600  # terms of the determinant, estimated before anything is multiplied
MAX_ENTRY_NODES = 60  # larger entries are abbreviated by one symbol each
MAX_WRITTEN = 4_000  # terms of all the numerators
BUDGET = 5_000_000  # term products of one elimination: about a second


def solve_linear(matrix: Matrix, right: Sequence[sp.Expr]) -> list[sp.Expr]:
    """The solution of ``matrix * y = right`` for a symmetric matrix; TooLarge where it cannot be written out.

    AssumptionViolated where the matrix is constant and not positive definite.

    >>> a, b = sp.symbols("a b", real=True)
    >>> one, two = sp.Integer(1), sp.Integer(2)
    >>> solve_linear([[a**2 + 1, one], [one, two]], [b, sp.Integer(0)])
    [2*b/(2*a**2 + 1), -b/(2*a**2 + 1)]
    """
    try:
        return _solve_abbreviated(matrix, right, MAX_ENTRY_NODES)
    except TooLarge as error:
        try:
            return _solve_abbreviated(matrix, right, 1)  # a few unknowns always close in terms of the entries
        except TooLarge:
            raise error from None


def _solve_abbreviated(matrix: Matrix, right: Sequence[sp.Expr], limit: int) -> list[sp.Expr]:
    """The solution found with one symbol in place of each entry of more than ``limit`` nodes."""
    short: dict[sp.Expr, sp.Symbol] = {}
    rows = [[_abbreviated(entry, short, limit) for entry in row] for row in matrix]
    column = [_abbreviated(entry, short, limit) for entry in right]
    constant = all(entry.is_Rational for row in rows for entry in row)
    values = _constant(rows, column) if constant else _symbolic(rows, column)
    meanings = {symbol: entry for entry, symbol in short.items()}
    return [substitute(value, meanings) for value in values]


def negative_direction(matrix: Sequence[Sequence[Any]]) -> tuple[list[Any], Any] | None:
    """A direction v and v^T A v / v^T v <= 0, from the first pivot of L D L^T that is not positive.

    The entries are rationals or balls of python-flint; None where every pivot is positive or one is uncertain.

    >>> negative_direction([[flint.fmpq(1), flint.fmpq(2)], [flint.fmpq(2), flint.fmpq(1)]])
    ([-2, 1], -3/5)
    """
    n = len(matrix)
    lower = [[matrix[0][0] * 0 for _ in range(n)] for _ in range(n)]
    pivots: list[Any] = []
    for k in range(n):
        pivot = matrix[k][k] - sum(lower[k][j] * lower[k][j] * pivots[j] for j in range(k))
        if pivot <= 0:
            v = _unit_solution(lower, k)
            return v, pivot / sum(entry * entry for entry in v)
        if not pivot > 0:
            return None
        pivots.append(pivot)
        for i in range(k + 1, n):
            inner = sum(lower[i][j] * lower[k][j] * pivots[j] for j in range(k))
            lower[i][k] = (matrix[i][k] - inner) / pivot
    return None


def _unit_solution(lower: Sequence[Sequence[Any]], k: int) -> list[Any]:
    """L^T v = e_k, for the unit lower triangular L of which k rows are known: v^T A v is the pivot."""
    zero = lower[0][0] * 0
    v = [zero] * len(lower)
    v[k] = zero + 1
    for i in reversed(range(k)):
        v[i] = -sum(lower[j][i] * v[j] for j in range(i + 1, k + 1))
    return v


def not_convex(
    value: object,
    point: Mapping[str, object],
    *,
    direction: Sequence[object] = (),
    unknown: sp.Symbol | None = None,
) -> AssumptionViolated:
    """The error for a curvature of g that is not positive: in one unknown, or in a direction of y.

    >>> print(not_convex(-3, {"x": 1}).message)
    g_yy is not positive definite: -3 at x = 1 [assu:bilevel]
    """
    what = "g_yy is not positive definite"
    if len(direction) > 1:
        what += f"; v^T g_yy v / v^T v for v = ({', '.join(map(str, direction)):.300})"
    elif unknown is not None:
        what = f"g is not strongly convex; its curvature in {unknown}"
    hint = "g must be strongly convex in y: mend g, or give a box where it is"
    return AssumptionViolated(what, label="assu:bilevel", point=point, value=value, hint=hint)


def _abbreviated(entry: sp.Expr, short: dict[sp.Expr, sp.Symbol], limit: int) -> sp.Expr:
    return entry if sum(1 for _ in postorder(entry)) <= limit else short.setdefault(entry, sp.Dummy("c", real=True))


def _constant(rows: Matrix, column: Sequence[sp.Expr]) -> list[sp.Expr]:
    if len(rows) > MAX_CONSTANT:
        raise TooLarge(f"{len(rows)} unknowns hang together, more than {MAX_CONSTANT}")
    exact = [[flint.fmpq(int(entry.p), int(entry.q)) for entry in row] for row in rows]
    found = negative_direction(exact)
    if found is not None:
        v, value = found
        raise not_convex(sympy_rational(value), {}, direction=[sympy_rational(entry) for entry in v])
    inverse = flint.fmpq_mat(exact).inv()
    field = Field(column, fractions=False, budget=BUDGET)
    values = [field(entry).num for entry in column]
    sums = [sum(inverse[i, j] * value for j, value in enumerate(values)) for i in range(len(rows))]
    solution = [field.polynomial(total) for total in sums]
    return _proved(rows, column, solution, fractions=False)


def _symbolic(rows: Matrix, column: Sequence[sp.Expr]) -> list[sp.Expr]:
    field = Field([entry for row in (*rows, column) for entry in row], budget=BUDGET)
    table = [
        _without_denominators(field, [field(entry) for entry in (*row, right)])
        for row, right in zip(rows, column, strict=True)
    ]
    _check_size(table)
    determinant = _eliminate(field, table)
    if sum(len(row[-1]) for row in table) > MAX_WRITTEN:
        raise TooLarge("more terms than can be read")
    solution = [field.expression(Ratio(row[-1], determinant)) for row in table]
    return _proved(rows, column, solution, fractions=True)


def _without_denominators(field: Field, row: Sequence[Ratio]) -> Row:
    """The equation times the least common denominator of its entries."""
    common = field.common_denominator(row)
    return [field.times(value.num, common / value.den) for value in row]


def _check_size(table: Sequence[Row]) -> None:
    """Bound the number of terms of the determinant: by its degrees, total and in each symbol, and by its products."""
    n = len(table)
    rows = [[entry for entry in row[:-1] if not entry.is_zero()] for row in table]
    degrees = [
        [max(int(entry.degrees()[k]) for entry in row) for row in rows] for k in range(len(rows[0][0].degrees()))
    ]
    used = [sum(in_rows) for in_rows in degrees if any(in_rows)]
    total = sum(max(int(entry.total_degree()) for entry in row) for row in rows)
    products = factorial(n) * prod(max(len(entry) for entry in row) for row in rows)
    terms = min(comb(total + len(used), len(used)), prod(1 + degree for degree in used), products)
    if n > MAX_SYMBOLIC or terms > MAX_DETERMINANT:
        what = f"{n} unknowns hang together through {len(used)} symbols"
        raise TooLarge(f"{what}, by a determinant of up to {terms:.1g} terms")


def _eliminate(field: Field, table: list[Row]) -> Any:
    """Fraction-free Gauss-Jordan elimination in place (Bareiss): returns d with d*y = last column."""
    n, previous = len(table), table[0][0] * 0 + 1
    for k in range(n):
        choices = [i for i in range(k, n) if not table[i][k].is_zero()]
        if not choices:
            raise not_convex(sp.S.Zero, {})
        best = min(choices, key=lambda i: len(table[i][k]))
        table[k], table[best] = table[best], table[k]
        pivot = table[k]
        for row in (*table[:k], *table[k + 1 :]):
            factor = row[k]
            for j in range(k + 1, n + 1):
                row[j] = (field.times(pivot[k], row[j]) - field.times(factor, pivot[j])) / previous
        previous = pivot[k]
    return previous


def _proved(rows: Matrix, column: Sequence[sp.Expr], solution: list[sp.Expr], *, fractions: bool) -> list[sp.Expr]:
    """The solution, once matrix * solution - right is zero in exact arithmetic."""
    everything = [*(entry for row in rows for entry in row), *column, *solution]
    field = Field(everything, fractions=fractions, budget=BUDGET)
    values = [field(value) for value in solution]
    for row, right in zip(rows, column, strict=True):
        products = [field.multiply(field(a), y) for a, y in zip(row, values, strict=True) if a != 0]
        residual = reduce(field.add, [*products, field(-right)])
        if not field.reduced(residual).num.is_zero():
            raise ArithmeticError("the proof by substitution failed")
    return solution


MAX_ARGUMENT_TERMS = 40  # of the expanded argument of exp: exp(a + b) is taken as exp(a)*exp(b)
_IN_EXP = frozenset(record.sympy for record in FUNCTIONS.values() if record.in_exp)
_UNDOING = tuple((r.sympy, FUNCTIONS[r.undoes]) for r in FUNCTIONS.values() if r.undoes is not None)
_UNDOES = MappingProxyType({function: record.sympy for function, record in _UNDOING if not record.is_periodic})
MAX_CASES = 16  # pieces of all the Piecewise in a proof


def vanishes(expression: sp.Expr) -> bool:
    """Whether the expression is proved to be zero wherever it is defined and real; False: no proof found.

    >>> x = sp.Symbol("x", real=True)
    >>> vanishes((1 + sp.sqrt(x))*(1 - sp.sqrt(x)) + x - 1)
    True
    >>> vanishes(sp.log(sp.exp(x)/(1 + sp.exp(x))) + sp.log(1 + sp.exp(x)) - x)
    True
    >>> vanishes(sp.sqrt(x**2 + 2*x + 1) - x - 1)
    False
    """
    expression = elementary(expression)
    field = Field([expression], signs=True)
    try:
        if field.reduced(field(expression)).num.is_zero():
            return True
    except ZeroDivisionError:
        return False
    product = exponentiated(expression)
    if product is not None:
        return vanishes(product - 1)
    cases = _cases(expression)
    return bool(cases) and all(vanishes(case) for case in cases)


def _cases(expression: sp.Expr) -> list[sp.Expr]:
    """The expression on each piece of its first Piecewise, and of all others with the same conditions."""
    found = [node for node in postorder(expression) if isinstance(node, sp.Piecewise)]
    conditions = [pair.cond for pair in found[0].args] if found else []
    if len(found) * len(conditions) > MAX_CASES:
        return []
    same = [node for node in found if [pair.cond for pair in node.args] == conditions]
    pieces = [{node: node.args[k].expr for node in same} for k in range(len(conditions))]
    return [substitute(expression, piece) for piece in pieces]


def exponentiated(expression: sp.Expr) -> sp.Expr | None:
    """exp of c times a sum with logarithms, as a product without them; a real sum is 0 where this is 1.

    >>> x, y = sp.symbols("x y", real=True)
    >>> exponentiated(2*sp.log(y) - sp.log(1 - y)/2 - x)
    y**4*exp(-2*x)/(1 - y)
    """
    terms = sp.Add.make_args(expression)
    pairs = [term.as_independent(sp.log) for term in terms]
    scale = next((c for c, rest in pairs if isinstance(rest, sp.log)), None)
    if scale is None:
        return None
    powers = [(c / scale, rest) for c, rest in pairs]
    logs = [(c, rest.args[0]) for c, rest in powers if isinstance(rest, sp.log) and c.is_Rational]
    others = [c * rest for c, rest in powers if not (isinstance(rest, sp.log) and c.is_Rational)]
    common = lcm(*(int(c.q) for c, _ in logs))
    return sp.Mul(*(base ** (c * common) for c, base in logs), sp.exp(common * sp.Add(*others)))


def elementary(expression: sp.Expr) -> sp.Expr:
    """Hyperbolic functions, sigmoid and softplus written with exp and log, and arguments of exp expanded.

    >>> x = sp.Symbol("x", real=True)
    >>> elementary(sp.cosh(x))
    exp(x)/2 + exp(-x)/2
    """
    new: dict[int, sp.Basic] = {}
    for node in postorder(expression):
        if node.func in _UNDOES and isinstance(node.args[0], _UNDOES[node.func]):
            new[id(node)] = new[id(node.args[0].args[0])]  # everything is real here
            continue
        args = [new[id(child)] for child in node.args]
        changed = any(a is not b for a, b in zip(args, node.args, strict=True))
        new[id(node)] = _with_exp(node.func(*args) if changed else node)
    return new[id(expression)]


def _with_exp(node: sp.Basic) -> sp.Basic:
    if node.func in _IN_EXP:
        node = node.rewrite(sp.exp, deep=False)
    elif isinstance(node, sp.exp) and expanded_terms(node.args[0]) <= MAX_ARGUMENT_TERMS:
        node = sp.exp(sp.expand_mul(node.args[0]))
    elif isinstance(node, sp.log) and isinstance(node.args[0], sp.exp):
        node = node.args[0].args[0]  # everything is real here
    return node
