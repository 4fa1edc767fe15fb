"""What each node of SymPy's matrix language means, given what its parts mean."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType
from typing import Any

import sympy as sp
from sympy.core.relational import GreaterThan, LessThan, StrictGreaterThan, StrictLessThan
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.matrices.expressions.adjoint import Adjoint
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction
from sympy.matrices.expressions.diagonal import DiagMatrix, DiagonalMatrix, DiagonalOf
from sympy.matrices.expressions.dotproduct import DotProduct
from sympy.matrices.expressions.hadamard import HadamardPower
from sympy.matrices.expressions.matexpr import MatrixElement
from sympy.matrices.expressions.special import OneMatrix

from bilevel_sym.arrays.algebra import delta
from bilevel_sym.arrays.normal import ones
from bilevel_sym.arrays.sympy_door import labelled
from bilevel_sym.arrays.sympy_door.labelled import COLUMN, ROW, Labelled
from bilevel_sym.arrays.sympy_door.names import Names, count_of, shown
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.exact import MAX_DIGITS, rational
from bilevel_sym.graph.operations import OPERATIONS

MAX_MATRIX_POWER = 32
_UNARY: Mapping[type[sp.Basic], str] = MappingProxyType(
    {r.sympy: r.name for r in OPERATIONS.values() if r.arity == 1 and isinstance(r.sympy, type)}
)
_SUPPORTED = "sums, products, HadamardProduct, HadamardPower, applyfunc, Trace, Transpose, DiagMatrix, Identity, Sum"
_INSTEAD: Mapping[str, str] = MappingProxyType(
    {
        "Inverse": "a system A*y = b is the lower level y.T*A*y/2 - b.T*y; or give the inverse as data",
        "MatPow": "whole positive exponents; HadamardPower for powers entry by entry",
        "Determinant": "no determinants of arrays; for a few variables write it out in scalars",
        "KroneckerProduct": "give the product as data, or write it as A*X*B.T",
        "MatrixSlice": "declare the part as an array of its own",
        "BlockMatrix": "one array for each block",
        "Product": "exp of a Sum of logarithms",
        "Derivative": "derivatives are taken for you; give the function itself",
        "Integral": "only finite sums: Sum(a[i], (i, 0, n - 1))",
        "ImmutableDenseMatrix": "numbers are given as data; of a 1x1 matrix take its entry",
        "Equality": "compare with < <= > >= only",
        "Unequality": "compare with < <= > >= only",
    }
)


# ---- what is met ---------------------------------------------------------------------------------------------------


def _kind(node: sp.Basic) -> type[sp.Basic]:
    """The class by which a node is understood; subclasses mean something else, but for those of names and numbers."""
    names_and_numbers: tuple[type[sp.Basic], ...] = (sp.MatrixSymbol, sp.Symbol, sp.Rational, sp.Float)
    return next((kind for kind in names_and_numbers if isinstance(node, kind)), type(node))


def parts(node: sp.Basic) -> tuple[sp.Basic, ...]:
    """The parts that have a meaning of their own: no shapes, indices, ranges or bound variables.

    >>> i, n = sp.symbols("i n")
    >>> parts(sp.Sum(sp.IndexedBase("y")[i], (i, 0, n - 1)))
    (y[i],)
    """
    kind = _kind(node)
    if kind in _WITHOUT_PARTS or kind is sp.FunctionMatrix:
        return ()
    if kind in (sp.Sum, MatrixElement):
        return (node.args[0],)
    return (node.args[1],) if kind is ElementwiseApplyFunction else tuple(node.args)


def meaning(names: Names, node: sp.Basic, args: Sequence[Any]) -> Any:
    """What a node means: a ``Labelled``; a piece of a Piecewise is two of them, its value and its condition.

    names: what names mean
    node: of a kind that ``check_node`` knows
    args: what its parts mean

    >>> meaning(Names(sp.Integer(2), {}), sp.Integer(2), ()).tensor
    Tensor[|2*1]
    """
    return _MEANINGS[_kind(node)](names, node, args)


def check_node(node: sp.Basic) -> None:
    """Refuse what is not part of the language.

    >>> check_node(sp.MatrixSymbol("A", 3, 3).I)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: Inverse is not part of the language of arrays
    try: a system A*y = b is the lower level y.T*A*y/2 - b.T*y; or give the inverse as data
    """
    kind = _kind(node)
    if isinstance(node, (sp.Number, sp.NumberSymbol, type(sp.I), type(sp.zoo))) and kind not in _MEANINGS:
        raise InvalidProblem(f"it contains {node}", hint="finite real numbers, pi and E only")
    if kind not in _MEANINGS and kind not in (ElementwiseApplyFunction, sp.FunctionMatrix):
        name = kind.__name__
        raise InvalidProblem(
            f"{name} is not part of the language of arrays", hint=_INSTEAD.get(name, f"what there is: {_SUPPORTED}")
        )
    if kind in _OF_NUMBERS:
        for child in node.args:
            if getattr(child, "is_Matrix", False) and child.shape != (1, 1):
                raise InvalidProblem(
                    f"{kind.__name__} of a matrix of shape {child.shape}",
                    hint="applyfunc, HadamardProduct and HadamardPower go entry by entry",
                )


def _index(index: sp.Basic, what: str) -> sp.Basic:
    if isinstance(index, (sp.Symbol, sp.Idx)):
        return index
    raise InvalidProblem(
        f"{what} has the index {shown(index)}",
        hint="an index of a Sum, by itself",
    )


# ---- what each node means --------------------------------------------------------------------------------------------

Meaning = Callable[[Names, Any, Sequence[Any]], Any]


def _number(_: Names, node: sp.Rational | sp.Float, args: Sequence[Labelled]) -> Labelled:
    exact = rational(node, "a number", error=InvalidProblem)
    if max(abs(exact.p), exact.q) >= 10**MAX_DIGITS:
        raise InvalidProblem(f"a number has more than {MAX_DIGITS} digits")
    return labelled.number(Fraction(int(exact.p), int(exact.q)))


def _matrix_symbol(names: Names, node: sp.MatrixSymbol, args: Sequence[Labelled]) -> Labelled:
    return names.array(node, [label for size, label in zip(node.shape, (ROW, COLUMN), strict=True) if size != 1])


def _indexed(names: Names, node: sp.Indexed, args: Sequence[Labelled]) -> Labelled:
    if not isinstance(node.base, sp.IndexedBase):
        raise InvalidProblem(f"{shown(node)} has no IndexedBase", hint='IndexedBase("y", shape=(n,))')
    labels = [_index(index, shown(node)) for index in node.indices]
    array = names.array(node.base, range(len(labels)))
    return array.renamed(dict(enumerate(labels)))


def _element(_: Names, node: MatrixElement, args: Sequence[Labelled]) -> Labelled:
    indices: dict[labelled.Label, labelled.Label] = {}
    for label, index in zip((ROW, COLUMN), node.args[1:], strict=True):
        if label in args[0].labels:
            indices[label] = _index(index, shown(node))
        elif index != 0:
            raise InvalidProblem(f"{shown(node)} has the index {shown(index)}", hint="0 along a dimension of 1")
    return args[0].renamed(indices)


def _matrix_product(_: Names, node: sp.MatMul, args: Sequence[Labelled]) -> Labelled:
    scalars = [value for part, value in zip(node.args, args, strict=True) if not part.is_Matrix]
    matrices = [value for part, value in zip(node.args, args, strict=True) if part.is_Matrix]
    return labelled.product([*scalars, labelled.chained(matrices)])


def _matrix_power(names: Names, node: sp.MatPow, args: Sequence[Labelled]) -> Labelled:
    base, exponent = args[0], args[1].tensor.number
    if exponent is None or exponent.denominator != 1 or not 0 <= exponent <= MAX_MATRIX_POWER:
        raise InvalidProblem(
            f"MatPow of a matrix with the exponent {shown(node.args[1])}",
            hint=f"whole exponents up to {MAX_MATRIX_POWER}; HadamardPower for powers entry by entry",
        )
    if not exponent:
        return _identity(names, node, ())
    return labelled.chained([base] * int(exponent))


def _transpose(_: Names, node: sp.Basic, args: Sequence[Labelled]) -> Labelled:
    return labelled.product([args[0].renamed({ROW: COLUMN, COLUMN: ROW})])


def _trace(_: Names, node: sp.Trace, args: Sequence[Labelled]) -> Labelled:
    return labelled.product([args[0].renamed({COLUMN: ROW})], [ROW])


def _dot(_: Names, node: DotProduct, args: Sequence[Labelled]) -> Labelled:
    return labelled.product([value.renamed({COLUMN: ROW}) for value in args], [ROW])


def _diag(_: Names, node: DiagMatrix, args: Sequence[Labelled]) -> Labelled:
    vector = args[0].renamed({COLUMN: ROW}) if len(args[0].labels) == 1 else args[0]
    if vector.labels != (ROW,):
        raise InvalidProblem("DiagMatrix of what is no column", hint="DiagonalMatrix keeps the diagonal of a matrix")
    identity = Labelled(delta(vector.tensor.dims[0]), (ROW, COLUMN))
    return labelled.product([vector, identity])


def _diagonal_matrix(_: Names, node: DiagonalMatrix, args: Sequence[Labelled]) -> Labelled:
    if not {ROW, COLUMN} <= set(args[0].labels):
        return args[0]
    identity = Labelled(delta(args[0].dims[ROW]), (ROW, COLUMN))
    return labelled.product([args[0], identity])


def _diagonal(_: Names, node: DiagonalOf, args: Sequence[Labelled]) -> Labelled:
    if {ROW, COLUMN} <= set(args[0].labels):
        return args[0].renamed({COLUMN: ROW})
    return args[0] if node.shape == (1, 1) and not args[0].labels else _diag_refused()


def _diag_refused() -> Labelled:
    raise InvalidProblem("DiagonalOf a row or column", hint="a square matrix")


def _identity(names: Names, node: sp.Basic, args: Sequence[Labelled]) -> Labelled:
    size = node.shape[0]
    return labelled.number(1) if size == 1 else Labelled(delta(names.letter(size)), (ROW, COLUMN))


def _constant(value: int) -> Meaning:
    def constant(names: Names, node: Any, args: Sequence[Labelled]) -> Labelled:
        axes = [(names.letter(n), label) for n, label in zip(node.shape, (ROW, COLUMN), strict=True) if n != 1]
        return Labelled(ones([dim for dim, _ in axes], value), tuple(label for _, label in axes))

    return constant


def _sum(names: Names, node: sp.Sum, args: Sequence[Labelled]) -> Labelled:
    value = args[0]
    for limit in node.limits:
        index, dim = limit[0], names.letter(count_of(limit))
        if value.dims.get(index, dim) != dim:
            raise InvalidProblem(
                f"a Sum over {shown(limit)}, but {index} runs along the dimension {value.dims[index]}",
                hint="full ranges only: (i, 0, n - 1), or (i, 1, n)",
            )
        value = labelled.summed(value, index, dim)
    return value


def _kronecker(names: Names, node: sp.KroneckerDelta, args: Sequence[Labelled]) -> Labelled:
    indices = tuple(_index(index, shown(node)) for index in node.args[:2])
    return Labelled(delta(names.size_of(indices)), indices)


def _comparison(_: Names, node: sp.Basic, args: Sequence[Labelled]) -> Labelled:
    """left < right as a number: 1 where it holds, 0 where it does not."""
    left, right = args if isinstance(node, (StrictLessThan, LessThan)) else reversed(args)
    difference = labelled.total([left, labelled.product([labelled.number(-1), right])])
    return labelled.applied("lt" if isinstance(node, (StrictLessThan, StrictGreaterThan)) else "le", difference)


def _select(condition: Labelled, one: Labelled, two: Labelled) -> Labelled:
    return labelled.applied("select", condition, one, two)


def _piecewise(_: Names, node: sp.Piecewise, args: Sequence[Sequence[Labelled]]) -> Labelled:
    """The first piece whose condition holds; where none does, no number (the logarithm of -1)."""
    value = labelled.applied("log", labelled.number(-1))
    for piece, condition in reversed(args):
        value = _select(condition, piece, value)
    return value


def _folded(join: Callable[[Labelled, Labelled], Labelled]) -> Meaning:
    def folded(_: Names, node: sp.Basic, args: Sequence[Labelled]) -> Labelled:
        value = args[0]
        for other in args[1:]:
            value = join(value, other)
        return value

    return folded


def _function(name: str) -> Meaning:
    return lambda _, node, args: labelled.applied(name, *args)


_ZERO, _ONE = labelled.number(0), labelled.number(1)

_NUMBERS: Mapping[type[sp.Basic], Meaning] = MappingProxyType(
    {
        sp.Add: lambda _, node, args: labelled.total(args),
        sp.Mul: lambda _, node, args: labelled.product(args),
        sp.Pow: lambda _, node, args: labelled.raised(*args),
        sp.Min: lambda _, node, args: labelled.extremum("min", args),
        sp.Max: lambda _, node, args: labelled.extremum("max", args),
        StrictLessThan: _comparison,
        LessThan: _comparison,
        StrictGreaterThan: _comparison,
        GreaterThan: _comparison,
        sp.And: _folded(lambda a, b: _select(a, b, _ZERO)),
        sp.Or: _folded(lambda a, b: _select(a, _ONE, b)),
        sp.Not: lambda _, node, args: _select(args[0], _ZERO, _ONE),
        sp.Piecewise: _piecewise,
        ExprCondPair: lambda _, node, args: tuple(args),
        **{kind: _function(name) for kind, name in _UNARY.items()},
    }
)
_OF_NUMBERS = frozenset(_NUMBERS)
_LEAVES: Mapping[type[sp.Basic], Meaning] = MappingProxyType(
    {
        sp.Symbol: lambda names, node, args: names.scalar(node),
        sp.Rational: _number,
        sp.Float: _number,
        type(sp.pi): lambda *_: labelled.applied("pi"),
        type(sp.E): lambda *_: labelled.applied("exp", _ONE),
        type(sp.true): lambda *_: _ONE,
        type(sp.false): lambda *_: _ZERO,
        sp.MatrixSymbol: _matrix_symbol,
        sp.Indexed: _indexed,
        sp.KroneckerDelta: _kronecker,
        sp.Identity: _identity,
        sp.ZeroMatrix: _constant(0),
        OneMatrix: _constant(1),
    }
)
_WITHOUT_PARTS = frozenset(_LEAVES)
_MEANINGS: Mapping[type[sp.Basic], Meaning] = MappingProxyType(
    {
        **_LEAVES,
        **_NUMBERS,
        MatrixElement: _element,
        sp.MatAdd: lambda _, node, args: labelled.total(args),
        sp.MatMul: _matrix_product,
        sp.MatPow: _matrix_power,
        sp.HadamardProduct: lambda _, node, args: labelled.product(args),
        HadamardPower: lambda _, node, args: labelled.raised(*args),
        sp.Transpose: _transpose,
        Adjoint: _transpose,
        sp.Trace: _trace,
        DotProduct: _dot,
        DiagMatrix: _diag,
        DiagonalMatrix: _diagonal_matrix,
        DiagonalOf: _diagonal,
        sp.Sum: _sum,
    }
)
