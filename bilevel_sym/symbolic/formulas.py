"""The matrix formulas of the theory, as pure functions of derivative blocks.

Axes are named in order: g_xy is d x n, dy_dx is d x n (rows are x, the paper's convention), three-index blocks are
SymPy arrays. Each function takes the blocks as a function of their names, and asks for those that it needs. The
same functions serve concrete problems, undefined f and g, and the textbook equations.

The paper's terms, one by one, are independent of ``implicit`` on purpose; ``lagrangian_hessian`` is its formula.

The textbook equations are derived: the chain rule applied mechanically, beside these formulas. The derivatives of y*
are symbols there (jets): each equation holds for any response, not only for the one that solves the lower level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any, Literal, TypeAlias

import sympy as sp

from bilevel_sym.implicit.second_order import Algebra, hessian_of
from bilevel_sym.symbolic.blocks import Blocks, derivative

__all__ = ["Equation", "second_optimality_terms", "textbook_equations"]

MAX_EXPLICIT_N = 4  # beyond this an inverse written out in symbols helps nobody
Matrix: TypeAlias = sp.ImmutableDenseMatrix
Array: TypeAlias = sp.ImmutableDenseNDimArray
Variant = Literal["corrected", "printed"]
Entries: TypeAlias = Mapping[tuple[int, ...], sp.Expr]  # what does not vanish of an array
BlockOf = Callable[[str], Any]  # "g_xy" -> a matrix, "g_xxy" -> an array
SYMBOLIC: Algebra[Matrix] = Algebra(lambda matrix: inverse(matrix).__mul__)


def inverse(matrix: Matrix) -> Matrix:
    """adj(A)/det(A) by cofactors: no division, hence no pivot to be decided; meant for n <= 4.

    >>> a, b = sp.symbols("a b")
    >>> inverse(Matrix([[a, 0], [0, b]]))
    Matrix([
    [1/a,   0],
    [  0, 1/b]])
    """
    n = matrix.rows
    determinant = _determinant(matrix)
    minor = [[_determinant(matrix.minor_submatrix(j, i)) for j in range(n)] for i in range(n)]
    return Matrix(n, n, lambda i, j: (-1) ** (i + j) * minor[i][j] / determinant)


def _determinant(matrix: Matrix) -> sp.Expr:
    if matrix.rows == 0:
        return sp.S.One
    first = matrix.row(0)
    return sp.Add(
        *(
            (-1) ** j * first[j] * _determinant(matrix.minor_submatrix(0, j))
            for j in range(matrix.cols)
            if first[j] != 0
        )
    )


def response(block: BlockOf, g_yy_inverse: Matrix) -> Matrix:
    """How y* moves with x: dy_dx = -g_xy g_yy^-1.

    Paper: Equation 1.4 [solve-partial-y*-partial-x]

    >>> response({"g_xy": Matrix([[3]])}.__getitem__, Matrix([[2]]))
    Matrix([[-6]])
    """
    return -(block("g_xy") * g_yy_inverse)


def gradient_terms(block: BlockOf, dy_dx: Matrix) -> dict[str, Matrix]:
    """The two parts of grad Phi = f_x + dy_dx f_y.

    Paper: Equation 1.2 [phi-grad]

    >>> gradient_terms({"f_x": Matrix([1]), "f_y": Matrix([2])}.__getitem__, Matrix([[3]]))
    {'direct': Matrix([[1]]), 'implicit': Matrix([[6]])}
    """
    return {"direct": block("f_x"), "implicit": dy_dx * block("f_y")}


def optimality_terms(block: BlockOf, dy_dx: Matrix) -> dict[str, Matrix]:
    """The two parts of d/dx grad_y g(x, y*(x)) = g_xy + dy_dx g_yy, which vanishes.

    Paper: Equation 1.3 [eq:opt-deri1]

    >>> optimality_terms({"g_xy": Matrix([[6]]), "g_yy": Matrix([[2]])}.__getitem__, Matrix([[-3]]))
    {'direct': Matrix([[6]]), 'implicit': Matrix([[-6]])}
    """
    return {"direct": block("g_xy"), "implicit": dy_dx * block("g_yy")}


def hessian_terms(
    block: BlockOf, dy_dx: Matrix, d2y_dx2: Array | Entries, *, variant: Variant = "corrected"
) -> dict[str, Matrix]:
    """The five parts of the Hessian of Phi, in the paper's order.

    Hess Phi = f_xx + dy_dx f_yx + d2y_dx2 f_y + f_xy dy_dx^T + dy_dx f_yy dy_dx^T

    Paper: Equation B.1 [phi-hessian]
    Deviation: the print has dy_dx f_xy^T as its fourth term, the second term once more; that sum is not
    symmetric for d >= 2. The fourth term must be its transpose, f_xy dy_dx^T.

    >>> terms = hessian_terms(lambda name: Matrix([[1]]), Matrix([[1]]), Array([[[1]]]))
    >>> list(terms)
    ['direct', 'cross', 'curvature', 'cross_transposed', 'quadratic']
    """
    cross, f_y = dy_dx * block("f_xy").T, block("f_y")
    return {
        "direct": block("f_xx"),
        "cross": cross,
        "curvature": _contracted(entries_of(d2y_dx2), list(f_y), dy_dx.rows),
        "cross_transposed": cross.T if variant == "corrected" else cross,
        "quadratic": dy_dx * block("f_yy") * dy_dx.T,
    }


def _contracted(second: Entries, f_y: Sequence[sp.Expr], d: int) -> Matrix:
    """The sum over k of second[i, j, k] f_y[k], over what does not vanish."""
    sums: dict[tuple[int, int], list[sp.Expr]] = {}
    for (i, j, k), entry in second.items():
        if f_y[k] != 0:
            sums.setdefault((i, j), []).append(entry * f_y[k])
    return Matrix(sp.SparseMatrix(d, d, {place: sp.Add(*parts) for place, parts in sums.items()}))


def entries_of(array: Array | Entries) -> Entries:
    """The entries of an array that do not vanish, by their places; where they are known already, those.

    >>> entries_of(Array([[[0, 2]]]))
    {(0, 0, 1): 2}
    """
    if isinstance(array, Mapping):
        return array
    places = product(*map(range, array.shape))
    return {place: entry for place, entry in zip(places, sp.flatten(array), strict=True) if entry != 0}


def second_optimality_terms(block: BlockOf, dy_dx: Matrix) -> dict[str, Array]:
    """What d2y_dx2 g_yy balances: the other parts of the twice differentiated optimality condition.

    Entry (i, j, k): g_xxy + dy_dx[j] g_xyy[i] + dy_dx[i] g_xyy[j] + dy_dx[i] g_yyy dy_dx[j].

    Paper: Equation B.2 [eq:opt-deri2]
    Deviation: the print leaves to the reader along which axis each product contracts; two of its terms
    look alike and are transposes of each other in (i, j).

    >>> terms = second_optimality_terms(lambda name: Array([[[1]]]), Matrix([[2]]))
    >>> sum(term[0, 0, 0] for term in terms.values())
    9
    """
    g_xyy, g_yyy = block("g_xyy"), block("g_yyy")
    d, n = dy_dx.shape
    lower = range(n)

    def cross(i: int, j: int, k: int) -> sp.Expr:
        return sp.Add(*(dy_dx[j, m] * g_xyy[i, k, m] for m in lower))

    def quadratic(i: int, j: int, k: int) -> sp.Expr:
        return sp.Add(*(dy_dx[i, a] * dy_dx[j, b] * g_yyy[k, a, b] for a in lower for b in lower))

    return {
        "direct": block("g_xxy"),
        "cross": array(d, n, cross),
        "cross_transposed": array(d, n, lambda i, j, k: cross(j, i, k)),
        "quadratic": array(d, n, quadratic),
    }


def second_response(block: BlockOf, g_yy_inverse: Matrix, dy_dx: Matrix) -> Array:
    """The second derivative of y*, d x d x n; symmetric in its first two axes.

    Paper: Equation B.9 [eq:hess-y-expression]

    >>> second_response(lambda name: Array([[[2]]]), Matrix([[1]]), Matrix([[1]]))
    [[[-8]]]
    """
    d, n = dy_dx.shape
    terms = second_optimality_terms(block, dy_dx).values()
    total = array(d, n, lambda i, j, k: sp.Add(*(term[i, j, k] for term in terms)))
    return array(d, n, lambda i, j, k: -sp.Add(*(total[i, j, m] * g_yy_inverse[m, k] for m in range(n))))


def lagrangian_hessian(block: BlockOf, dy_dx: Matrix) -> Matrix:
    """Z^T H Z with Z = [I; dy_dx^T] and H the Hessian in (x, y) of f - v^T grad_y g, v held constant.

    The third derivatives of g enter through H alone; no second derivative of y* is needed.

    >>> lagrangian_hessian(lambda name: Matrix([[1]]), Matrix([[2]]))
    Matrix([[9]])
    """
    return hessian_of(SYMBOLIC, block, dy_dx.T)


def array(d: int, n: int, entry: Callable[[int, int, int], sp.Expr]) -> Array:
    """A d x d x n array from a function of (i, j, k).

    >>> array(1, 2, lambda i, j, k: k)
    [[[0, 1]]]
    """
    return Array([[[entry(i, j, k) for k in range(n)] for j in range(d)] for i in range(d)])


@dataclass(frozen=True, slots=True)
class Equation:
    """``lhs``, differentiated mechanically, against ``rhs``, the formula of the paper's ``label``.

    >>> a = sp.Symbol("a")
    >>> Equation("phi-grad", Matrix([a*(a + 1)]), Matrix([a**2 + a])).holds
    True
    """

    label: str
    lhs: Matrix | Array
    rhs: Matrix | Array

    @property
    def holds(self) -> bool:
        """Whether the two sides are identical, by expansion: an exact proof."""
        return all(sp.expand(entry) == 0 for entry in sp.flatten(self.lhs - self.rhs))


def textbook_equations(
    blocks: Blocks,
    x: Sequence[sp.Symbol],
    y: Sequence[sp.Symbol],
    *,
    variant: Variant = "corrected",
) -> Mapping[str, Equation]:
    """``phi-grad``, ``eq:opt-deri1``, ``eq:bilevel-grad``, ``eq:opt-deri2`` and ``phi-hessian``.

    ``eq:bilevel-grad`` writes the inverse of g_yy out and is given for n <= 4 only.

    >>> from bilevel_sym import derive_generic
    >>> {label: equation.holds for label, equation in derive_generic(1, 1).equations.items()}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'phi-grad': True, 'eq:opt-deri1': True, 'eq:opt-deri2': True, 'phi-hessian': True,
     'eq:bilevel-grad': True}
    """
    d, n = len(x), len(y)
    Y, W = _jets(x, y)
    total = _total_derivative(x, y, Y, W)
    block, g_y = blocks.__getitem__, blocks["g_y"]
    once = [total(blocks.function("f"), i) for i in range(d)]
    g_once = [[total(g_y[k], i) for k in range(n)] for i in range(d)]
    sides: dict[str, tuple[Matrix | Array, Matrix | Array]] = {
        "phi-grad": (Matrix(once), _sum(gradient_terms(block, Y))),
        "eq:opt-deri1": (Matrix(g_once), _sum(optimality_terms(block, Y))),
        "eq:opt-deri2": (
            array(d, n, lambda i, j, k: total(g_once[i][k], j)),
            _second_optimality(blocks, Y, W),
        ),
        "phi-hessian": (
            Matrix(d, d, lambda i, j: total(once[i], j)),
            _sum(hessian_terms(block, Y, W, variant=variant)),
        ),
    }
    if n <= 4:
        g_yy_inverse = inverse(blocks["g_yy"])
        solved = dict(zip(Y, response(block, g_yy_inverse), strict=True))
        implicit = blocks["f_x"] - blocks["g_xy"] * (g_yy_inverse * blocks["f_y"])
        sides["eq:bilevel-grad"] = (Matrix(once).xreplace(solved), implicit)
    return MappingProxyType({label: Equation(label, *pair) for label, pair in sides.items()})


def _jets(x: Sequence[sp.Symbol], y: Sequence[sp.Symbol]) -> tuple[Matrix, Array]:
    """Symbols for the first and second derivatives of y*; the second are symmetric in x."""
    first = Matrix(len(x), len(y), lambda i, k: sp.Symbol(f"d{y[k].name}/d{x[i].name}", real=True))

    def pair(i: int, j: int) -> str:
        return f"d{x[min(i, j)].name}d{x[max(i, j)].name}"

    second = [
        [[sp.Symbol(f"d2{s.name}/{pair(i, j)}", real=True) for s in y] for j in range(len(x))] for i in range(len(x))
    ]
    return first, Array(second)


def _total_derivative(
    x: Sequence[sp.Symbol],
    y: Sequence[sp.Symbol],
    Y: Matrix,
    W: Array,
) -> Callable[[sp.Expr, int], sp.Expr]:
    """d/dx_i of an expression in x, y*(x) and dy*(x)/dx: the chain rule and nothing else."""

    def total(expression: sp.Expr, i: int) -> sp.Expr:
        inner = [Y[i, k] * derivative(expression, s) for k, s in enumerate(y)]
        jets = [W[i, j, k] * derivative(expression, Y[j, k]) for j in range(len(x)) for k in range(len(y))]
        return sp.Add(derivative(expression, x[i]), *inner, *jets)

    return total


def _second_optimality(blocks: Blocks, Y: Matrix, W: Array) -> Array:
    d, n = Y.shape
    terms = second_optimality_terms(blocks.__getitem__, Y).values()
    g_yy = blocks["g_yy"]
    return array(
        d,
        n,
        lambda i, j, k: sp.Add(*(term[i, j, k] for term in terms), *(W[i, j, m] * g_yy[m, k] for m in range(n))),
    )


def _sum(terms: Mapping[str, Matrix]) -> Matrix:
    first, *rest = terms.values()
    return sum(rest, first)
