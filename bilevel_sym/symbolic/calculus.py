"""Exact partial derivatives, without recursion: each shared subexpression is differentiated once.

SymPy's ``diff`` recurses (300 nested functions break it) and differentiates repeated parts again and again; its
rules for Abs, Min and Max of complex symbols are of no use here, where every variable is real. Off the kinks of Abs,
Min, Max and Piecewise the result is the derivative; on them none exists, and one side's is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

import sympy as sp
from sympy.core.function import AppliedUndef
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import Boolean

from bilevel_sym.graph.expressions import postorder

__all__ = ["derivative"]


def derivative(expression: sp.Expr, symbol: sp.Symbol) -> sp.Expr:
    """The partial derivative of ``expression`` with respect to a real ``symbol``.

    >>> x, y = sp.symbols("x y", real=True)
    >>> derivative(x*sp.sin(x*y), y)
    x**2*cos(x*y)
    >>> derivative(abs(x), x), derivative(sp.Max(x, y), x)
    (sign(x), Piecewise((1, x >= y), (0, True)))
    """
    done: dict[int, sp.Expr] = {}
    for node in postorder(expression):
        if not node.args:
            done[id(node)] = sp.S.One if node == symbol else sp.S.Zero
        else:
            done[id(node)] = _chain(node, [done[id(child)] for child in node.args], symbol)
    return done[id(expression)]


def _chain(node: sp.Basic, inner: Sequence[sp.Expr], symbol: sp.Symbol) -> sp.Expr:
    """The derivative of one node from those of its arguments."""
    if isinstance(node, (AppliedUndef, sp.Derivative)):
        return node.diff(symbol)
    if all(d is sp.S.Zero for d in inner):
        return sp.S.Zero
    if isinstance(node, ExprCondPair):
        return inner[0]
    if isinstance(node, (Boolean, sp.Tuple)):  # conditions, and the "with respect to" of Derivative
        return sp.S.Zero
    if isinstance(node, sp.Add):
        return sp.Add(*inner)
    if isinstance(node, sp.Mul):
        return _product(node.args, inner)
    if isinstance(node, sp.Pow):
        return _power(node, *inner)
    if isinstance(node, sp.Piecewise):
        return _pieces(inner, [pair.cond for pair in node.args])
    if isinstance(node, (sp.Max, sp.Min)):
        return _extremum(node, inner)
    if isinstance(node, sp.Abs):
        return _times(sp.sign(node.args[0]), inner[0])
    if isinstance(node, sp.sign):
        return sp.S.Zero
    return _times(node.fdiff(1), inner[0])


def _pieces(values: Sequence[sp.Expr], conditions: Sequence[Boolean]) -> sp.Expr:
    """Built unevaluated: SymPy folds nested pieces, which never ends where their conditions were built unevaluated."""
    if all(value == values[0] for value in values) and conditions[-1] == True:  # noqa: E712
        return values[0]
    return sp.Piecewise(*zip(values, conditions, strict=True), evaluate=False)


def _product(factors: Sequence[sp.Expr], inner: Sequence[sp.Expr]) -> sp.Expr:
    return sp.Add(*(_times(*factors[:i], d, *factors[i + 1 :]) for i, d in enumerate(inner) if d is not sp.S.Zero))


def _times(*factors: sp.Expr) -> sp.Expr:
    """The product, with powers of a Piecewise taken piece by piece: SymPy's own way never ends where its conditions
    were built unevaluated.
    """
    counts = Counter(part for factor in factors for part in sp.Mul.make_args(factor))
    if not any(count > 1 and isinstance(part, sp.Piecewise) for part, count in counts.items()):
        return sp.Mul(*factors)
    return sp.Mul(
        *(
            sp.Piecewise(*((pair.expr**count, pair.cond) for pair in part.args), evaluate=False)
            if isinstance(part, sp.Piecewise)
            else part**count
            for part, count in counts.items()
        )
    )


def _power(node: sp.Pow, d_base: sp.Expr, d_exponent: sp.Expr) -> sp.Expr:
    base, exponent = node.args
    if d_exponent is sp.S.Zero:
        return _times(exponent * base ** (exponent - 1), d_base)
    return node * (d_exponent * sp.log(base) + exponent * d_base / base)


def _extremum(node: sp.Max | sp.Min, inner: Sequence[sp.Expr]) -> sp.Expr:
    """Piece by piece: the derivative of the argument that is the largest (or smallest).

    Built unevaluated: SymPy would ask for the sign of each difference, at a price that grows with the cube.
    """
    relation = sp.Ge if isinstance(node, sp.Max) else sp.Le
    alive = [i for i, d in enumerate(inner) if d is not sp.S.Zero]
    pieces = []
    for i in alive:
        others = node.args[:i] + node.args[i + 1 :]
        rest = others[0] if len(others) == 1 else node.func(*others, evaluate=False)
        pieces.append((inner[i], relation(node.args[i], rest, evaluate=False)))
    last = (sp.S.Zero, True) if len(alive) < len(inner) else (inner[alive[-1]], True)
    shown = pieces if len(alive) < len(inner) else pieces[:-1]
    return sp.Piecewise(*shown, last, evaluate=False)
