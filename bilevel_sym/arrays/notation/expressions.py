"""Matrix notation in SymPy: vectors are columns, inner products traces, functions entry by entry ``applyfunc``.

Nothing is evaluated: what stands in the tree stands in the expression. What has no matrix form is a ``FunctionMatrix``,
or with more than two indices a ``Lambda`` of them.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from itertools import chain, count
from typing import Any

import sympy as sp
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.diagonal import DiagMatrix
from sympy.matrices.expressions.diagonal import DiagonalOf as SymPyDiagonalOf
from sympy.matrices.expressions.hadamard import HadamardPower
from sympy.matrices.expressions.special import OneMatrix

from bilevel_sym.arrays.notation.nodes import (
    Diag,
    DiagonalOf,
    Function,
    Hadamard,
    Identity,
    IndexForm,
    IndexTerm,
    LogSumExpOf,
    MatMul,
    Name,
    Node,
    Ones,
    Outer,
    Power,
    Scale,
    Softmax,
    Sum,
    SumOf,
    Trace,
    Transpose,
)
from bilevel_sym.arrays.notation.printer import is_constant
from bilevel_sym.graph.operations import OPERATIONS

__all__ = ["Expressions"]


_ENTRYWISE = (Function, Power, Sum, Hadamard)


class Expressions:
    """Nodes as SymPy expressions.

    taken: names that no index may have
    dimensions: those that are known
    symbols: the user's own symbols, by name

    >>> Expressions(set(), {"n": 2}).expression(Diag(Name("w", ("n",)))).shape
    (2, 2)
    """

    def __init__(
        self, taken: Collection[str], dimensions: Mapping[str, Any], symbols: Mapping[str, Any] | None = None
    ) -> None:
        self._dimensions, self._symbols = dimensions, symbols or {}
        names = chain("ijklpqrstabcdeuvwxyz", (f"i{k}" for k in count(1)))
        self._indices = (sp.Symbol(name, integer=True) for name in names if name not in taken)

    def size(self, dim: str) -> sp.Expr:
        """A dimension: its number where it is known, else its letter."""
        known = int(dim) if dim.isdigit() else self._dimensions.get(dim)
        return (
            sp.Symbol(dim, integer=True, positive=True)
            if known is None
            else sp.Integer(known)
            if isinstance(known, int)
            else known
        )

    def expression(self, node: Node) -> sp.Basic:
        """The node in SymPy."""
        method: Callable[[Node], sp.Basic] = getattr(self, f"_{type(node).__name__}")
        return method(node)

    def _Name(self, node: Name) -> sp.Basic:
        own, shape = self._symbols.get(node.name), self._shape(node)
        if not node.dims:
            return own if isinstance(own, sp.Symbol) else sp.Symbol(node.name, real=True)
        if isinstance(own, sp.MatrixSymbol) and own.shape in (shape, shape[::-1]):
            return own if own.shape == shape else sp.Transpose(own)  # a row stands for a vector too
        return sp.MatrixSymbol(node.name, *shape)

    def _shape(self, node: Node) -> tuple[sp.Expr, sp.Expr]:
        rows, cols = (*map(self.size, node.dims), sp.S.One, sp.S.One)[:2]
        return rows, cols

    def _Ones(self, node: Ones) -> sp.Basic:
        return OneMatrix(*self._shape(node)) if node.dims else sp.S.One

    def _Identity(self, node: Identity) -> sp.Basic:
        return sp.Identity(self.size(node.dim))

    def _Scale(self, node: Scale) -> sp.Basic:
        number = sp.Rational(node.coefficient.numerator, node.coefficient.denominator)
        sizes = [sp.Pow(self.size(dim), k) for dim, k in node.sizes]
        factor = sp.Mul(number, *sizes, *map(self.expression, node.scalars))
        if not node.dims:
            return sp.Mul(factor, self.expression(node.body))
        if factor == 0:
            return sp.ZeroMatrix(*self._shape(node))
        body = self.expression(node.body)
        return sp.MatMul(factor, *(body.args if isinstance(body, sp.MatMul) else (body,)))

    def _Sum(self, node: Sum) -> sp.Basic:
        terms = map(self.expression, node.terms)
        return sp.MatAdd(*terms) if node.dims else sp.Add(*terms)

    def _Hadamard(self, node: Hadamard) -> sp.Basic:
        factors = map(self.expression, node.factors)
        return sp.HadamardProduct(*factors) if node.dims else sp.Mul(*factors)

    def _Power(self, node: Power) -> sp.Basic:
        exponent = sp.Rational(node.exponent.numerator, node.exponent.denominator)
        base = self.expression(node.base)
        return HadamardPower(base, exponent) if node.dims else sp.Pow(base, exponent)

    def _MatMul(self, node: MatMul) -> sp.Basic:
        factors = [self.expression(factor) for factor in node.factors]
        if node.factors[0].rank == 1:
            factors[0] = _turned(factors[0])
        product = _product(*factors)
        return product if node.dims else sp.Trace(product)

    def _Transpose(self, node: Transpose) -> sp.Basic:
        return _turned(self.expression(node.body))

    def _Diag(self, node: Diag) -> sp.Basic:
        return DiagMatrix(self.expression(node.vector))

    def _DiagonalOf(self, node: DiagonalOf) -> sp.Basic:
        return SymPyDiagonalOf(self.expression(node.body))

    def _Outer(self, node: Outer) -> sp.Basic:
        return _product(self.expression(node.left), _turned(self.expression(node.right)))

    def _SumOf(self, node: SumOf) -> sp.Basic:
        return self._summed(self.expression(node.body), node.axis)

    def _summed(self, body: Any, axis: int | None) -> sp.Basic:
        rows, cols = body.shape
        if axis is None:
            right = () if cols == 1 else (OneMatrix(cols, 1),)
            return sp.Trace(_product(OneMatrix(1, rows), body, *right))
        return _product(_turned(body), OneMatrix(rows, 1)) if axis == 0 else _product(body, OneMatrix(cols, 1))

    def _Trace(self, node: Trace) -> sp.Basic:
        return sp.Trace(self.expression(node.body))

    def _LogSumExpOf(self, node: LogSumExpOf) -> sp.Basic:
        summed = self._summed(_entrywise(sp.exp, self.expression(node.body)), node.axis)
        return _entrywise(sp.log, summed) if node.dims else sp.log(summed)

    def _Softmax(self, node: Softmax) -> sp.Basic:
        exponentials = _entrywise(sp.exp, self.expression(node.body))
        summed = self._summed(exponentials, node.axis)
        if node.axis is None:
            return sp.MatMul(sp.Pow(summed, -1), exponentials)
        scales = DiagMatrix(HadamardPower(summed, -1))
        return _product(scales, exponentials) if node.axis == 1 else _product(exponentials, scales)

    def _Function(self, node: Function) -> sp.Basic:
        rule = OPERATIONS[node.op].sympy
        if not node.dims:
            return rule(*map(self.expression, node.bodies))
        varying = [body for body in node.bodies if not is_constant(body)]
        if len(varying) > 1 or self._shape(node) == (1, 1):
            i, j = next(self._indices), next(self._indices)
            where = (i, j)[: node.rank]
            entry = rule(*(self.entry(body, where) for body in node.bodies))
            return sp.FunctionMatrix(*self._shape(node), sp.Lambda((i, j), entry))
        z = sp.Dummy("z", real=True)
        arguments = (self.entry(body, ()) if is_constant(body) else z for body in node.bodies)
        body = self.expression(varying[0]) if varying else OneMatrix(*self._shape(node))
        return ElementwiseApplyFunction(sp.Lambda(z, rule(*arguments)), body)

    # ---- entries

    def _IndexForm(self, node: IndexForm) -> sp.Basic:
        indices = tuple(next(self._indices) for _ in range(max(node.rank, 2)))
        entry = self.entry(node, indices[: node.rank])
        if not node.rank:
            return entry
        if node.rank > 2:
            return sp.Lambda(indices, entry)
        return sp.FunctionMatrix(*self._shape(node), sp.Lambda(indices, entry))

    def entry(self, node: Node, where: Sequence[sp.Symbol]) -> sp.Basic:
        """One entry of a node, inside functions and sums."""
        if isinstance(node, IndexForm):
            return sp.Add(*(self._entry_term(term, where) for term in node.terms))
        if isinstance(node, Ones):
            return sp.S.One
        if not node.rank:
            return self.expression(node)
        inner = [self.entry(part, where) for part in node.parts] if isinstance(node, _ENTRYWISE) else []
        if isinstance(node, Scale):
            front = Scale(node.coefficient, node.sizes, node.scalars, Ones(()))
            return sp.Mul(self.expression(front), self.entry(node.body, where))
        if isinstance(node, Function):
            return OPERATIONS[node.op].sympy(*inner)
        if isinstance(node, Power):
            return sp.Pow(inner[0], sp.Rational(node.exponent.numerator, node.exponent.denominator))
        if isinstance(node, Sum | Hadamard):
            return (sp.Add if isinstance(node, Sum) else sp.Mul)(*inner)
        return self._entry_of_product(node, where)

    def _entry_of_product(self, node: Node, where: Sequence[sp.Symbol]) -> sp.Basic:
        """Of what joins rows with columns."""
        if isinstance(node, Identity | Diag):
            first = self.entry(node.vector, where[:1]) if isinstance(node, Diag) else sp.S.One
            return sp.Mul(first, sp.KroneckerDelta(*where))
        if isinstance(node, Transpose):
            return self.entry(node.body, where[::-1])
        if isinstance(node, DiagonalOf):
            return self.entry(node.body, (*where, *where))
        if isinstance(node, Outer):
            return sp.Mul(self.entry(node.left, where[:1]), self.entry(node.right, where[1:]))
        if isinstance(node, Softmax):
            return sp.exp(self.entry(node.body, where) - self._log_of_sum(node.body, node.axis, where))
        if isinstance(node, LogSumExpOf):
            across = (*where, sp.S.Zero) if node.axis == 1 else (sp.S.Zero, *where)
            return self._log_of_sum(node.body, node.axis, across)
        if isinstance(node, SumOf):
            i = next(self._indices)
            inside = self.entry(node.body, (i, *where) if node.axis == 0 else (*where, i))
            return sp.Sum(inside, (i, 0, self.size(node.body.dims[node.axis or 0]) - 1))
        if isinstance(node, MatMul):
            return self._entry_of_chain(node, where)
        if isinstance(node, Name) and node.rank > 2:
            return sp.IndexedBase(node.name, shape=tuple(map(self.size, node.dims)))[tuple(where)]
        row, col = (*where, sp.S.Zero)[:2]
        return self.expression(node)[row, col]

    def _entry_of_chain(self, node: MatMul, where: Sequence[sp.Symbol]) -> sp.Basic:
        """A sum over an index between each two matrices; a diag has no index of its own."""
        here, last = where[0], max(k for k, factor in enumerate(node.factors) if not isinstance(factor, Diag))
        factors, ranges = [], []
        for k, factor in enumerate(node.factors):
            if isinstance(factor, Diag):
                factors.append(self.entry(factor.vector, [here]))
                continue
            there = list(where[1:]) if k == last else [next(self._indices)]
            ranges += [] if k == last else [(there[0], 0, self.size(factor.dims[1]) - 1)]
            factors.append(self.entry(factor, [here, *there][: factor.rank]))
            here = there[0] if there else here
        product = sp.Mul(*factors)
        return sp.Sum(product, *ranges) if ranges else product

    def _log_of_sum(self, body: Node, axis: int | None, where: Sequence[sp.Basic]) -> sp.Basic:
        """log(sum(exp(body))) in the row or column of an entry."""
        summed = range(body.rank) if axis is None else (axis,)
        fresh = {k: next(self._indices) for k in summed}
        ranges = [(i, 0, self.size(body.dims[k]) - 1) for k, i in fresh.items()]
        inside = self.entry(body, [fresh.get(k, place) for k, place in enumerate(where)])
        return sp.log(sp.Sum(sp.exp(inside), *ranges))

    def _entry_term(self, term: IndexTerm, where: Sequence[sp.Symbol]) -> sp.Expr:
        summed = [next(self._indices) for _ in term.dummies]
        every = [*where, *summed]
        number = sp.Rational(term.coefficient.numerator, term.coefficient.denominator)
        sizes = [sp.Pow(self.size(dim), k) for dim, k in term.sizes]
        product = sp.Mul(*(self.entry(node, [every[i] for i in own]) for node, own in term.factors))
        ranges = [(i, 0, self.size(dim) - 1) for i, dim in zip(summed, term.dummies, strict=True)]
        return sp.Mul(number, *sizes, sp.Sum(product, *ranges) if ranges else product)


def _turned(matrix: Any) -> Any:
    return matrix.arg if isinstance(matrix, sp.Transpose) else sp.Transpose(matrix)


def _product(*factors: Any) -> Any:
    flat = chain.from_iterable(f.args if isinstance(f, sp.MatMul) else (f,) for f in factors)
    return sp.MatMul(*flat)


def _entrywise(function: Any, body: Any) -> Any:
    z = sp.Dummy("z", real=True)
    if body.shape == (1, 1):  # of which applyfunc would take the function itself, as of a scalar
        return sp.FunctionMatrix(1, 1, sp.Lambda(sp.symbols("i j", cls=sp.Dummy), function(body[0, 0])))
    return ElementwiseApplyFunction(sp.Lambda(z, function(z)), body)
