"""The textbook equations, derived: the chain rule applied mechanically, beside the paper's matrix formula.

The derivatives of y* are symbols here (jets), so that each equation holds for any response, not only for the one
that solves the lower level.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from types import MappingProxyType

import sympy as sp

from bilevel_sym.symbolic import formulas
from bilevel_sym.symbolic.blocks import Blocks
from bilevel_sym.symbolic.calculus import derivative
from bilevel_sym.symbolic.formulas import Array, Matrix, Variant

__all__ = ["Equation", "textbook_equations"]


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
        return all(sp.expand(entry) == 0 for entry in _flat(self.lhs - self.rhs))


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
        "phi-grad": (Matrix(once), _sum(formulas.gradient_terms(block, Y))),
        "eq:opt-deri1": (Matrix(g_once), _sum(formulas.optimality_terms(block, Y))),
        "eq:opt-deri2": (
            formulas.array(d, n, lambda i, j, k: total(g_once[i][k], j)),
            _second_optimality(blocks, Y, W),
        ),
        "phi-hessian": (
            Matrix(d, d, lambda i, j: total(once[i], j)),
            _sum(formulas.hessian_terms(block, Y, W, variant=variant)),
        ),
    }
    if n <= 4:
        inverse = formulas.inverse(blocks["g_yy"])
        solved = dict(zip(Y, formulas.response(block, inverse), strict=True))
        implicit = blocks["f_x"] - blocks["g_xy"] * (inverse * blocks["f_y"])
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
    terms = formulas.second_optimality_terms(blocks.__getitem__, Y).values()
    g_yy = blocks["g_yy"]
    return formulas.array(
        d,
        n,
        lambda i, j, k: sp.Add(*(term[i, j, k] for term in terms), *(W[i, j, m] * g_yy[m, k] for m in range(n))),
    )


def _sum(terms: Mapping[str, Matrix]) -> Matrix:
    first, *rest = terms.values()
    return sum(rest, first)


def _flat(block: Matrix | Array) -> list[sp.Expr]:
    return list(block) if isinstance(block, sp.MatrixBase) else list(sp.flatten(block))
