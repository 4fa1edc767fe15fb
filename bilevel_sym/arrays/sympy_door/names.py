"""The names in a SymPy expression: arrays, numbers, indices, and dimensions, each with the letter that it was given."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from functools import cached_property

import sympy as sp

from bilevel_sym.arrays.normal import ones
from bilevel_sym.arrays.sympy_door.labelled import Label, Labelled
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.expressions import postorder

__all__ = ["Names", "arrays_in", "count_of", "declare", "shown"]

Shape = tuple[str | int, ...]


def declare(symbol: sp.Basic) -> tuple[str, Shape]:
    """The name of a symbol for an array or a number, and its shape: letters for symbolic dimensions, or numbers.

    >>> n = sp.Symbol("n")
    >>> declare(sp.MatrixSymbol("y", n, 1)), declare(sp.IndexedBase("A", shape=(3, n))), declare(n)
    (('y', ('n',)), ('A', (3, 'n')), ('n', ()))
    """
    if isinstance(symbol, sp.MatrixSymbol):
        return symbol.name, tuple(_size(symbol, size) for size in symbol.shape if size != 1)
    if isinstance(symbol, sp.IndexedBase):
        if symbol.shape is None:
            raise InvalidProblem(f"{symbol} has no shape", hint=f'IndexedBase("{symbol}", shape=(n,))')
        return str(symbol.label), tuple(_size(symbol, size) for size in symbol.shape)
    if isinstance(symbol, sp.Symbol):
        return symbol.name, ()
    raise InvalidProblem(
        f"{shown(symbol)} is a {type(symbol).__name__} and no symbol", hint="Symbol, MatrixSymbol or IndexedBase"
    )


def _size(symbol: sp.Basic, size: sp.Basic) -> str | int:
    if isinstance(size, sp.Symbol):
        return str(size.name)
    if isinstance(size, sp.Integer) and size > 0:
        return int(size)
    raise InvalidProblem(f"{symbol} has the dimension {shown(size)}", hint="a symbol or a positive whole number")


def arrays_in(expression: sp.Basic) -> Mapping[str, sp.MatrixSymbol | sp.IndexedBase]:
    """The symbols for arrays in an expression, by name.

    >>> n = sp.Symbol("n")
    >>> y = sp.MatrixSymbol("y", n, 1)
    >>> dict(arrays_in(sp.Trace(y.T*y)))
    {'y': y}
    """
    found: dict[str, sp.MatrixSymbol | sp.IndexedBase] = {}
    for node in postorder(expression):
        if isinstance(node, (sp.MatrixSymbol, sp.IndexedBase)):
            name = _name(node)
            if found.setdefault(name, node) != node:
                raise InvalidProblem(
                    f"two different arrays are both called {name}: of shapes {found[name].shape} and {node.shape}",
                    hint=f"make {name} once and use it everywhere",
                )
    return found


class Names:
    """What the names in an expression mean.

    - ``expression``: the whole.
    - ``declared``: the variables, data and parameters by name.

    >>> n = sp.Symbol("n")
    >>> Names(sp.MatrixSymbol("y", n, 1), {"y": Leaf("y", ("k",), "y")}).letter(n)
    'k'
    """

    def __init__(self, expression: sp.Basic, declared: Mapping[str, Leaf]) -> None:
        self._expression = expression
        self._declared = declared
        self._arrays = arrays_in(expression)

    @cached_property
    def _letters(self) -> Mapping[sp.Basic, frozenset[str]]:
        """What letters the dimensions of the symbols in the expression have."""
        found: dict[sp.Basic, frozenset[str]] = {}
        for name, symbol in self._arrays.items():
            leaf = self._declared.get(name)
            sizes = _sizes(symbol)
            if leaf is not None and len(sizes) == len(leaf.dims):
                for size, dim in zip(sizes, leaf.dims, strict=True):
                    found[size] = found.get(size, frozenset()) | {dim}
        return found

    @cached_property
    def _ranges(self) -> Mapping[sp.Basic, frozenset[sp.Basic]]:
        """The sizes that each index of a Sum, or of the entries of a FunctionMatrix, runs over."""
        found: dict[sp.Basic, frozenset[sp.Basic]] = {}
        for node in postorder(self._expression):
            if isinstance(node, sp.Sum):
                ranges = [(limit[0], count_of(limit)) for limit in node.limits]
            elif isinstance(node, sp.FunctionMatrix):
                ranges = list(zip(node.lamda.variables, node.shape, strict=True))
            else:
                ranges = []
            for index, size in ranges:
                found[index] = found.get(index, frozenset()) | {size}
        return found

    def letter(self, size: sp.Basic) -> str:
        """The letter of a dimension."""
        known = self._letters.get(size, frozenset())
        if len(known) == 1:
            return next(iter(known))
        if len(known) > 1:
            raise InvalidProblem(
                f"the dimension {shown(size)} is called {' and '.join(sorted(known))}", hint="one letter for both"
            )
        if isinstance(size, (sp.Symbol, sp.Integer)) and str(size) in self._dims:
            return str(size)
        raise InvalidProblem(
            f"{shown(size)} is no dimension of a declared array", hint=f"known: {', '.join(sorted(self._dims))}"
        )

    @cached_property
    def _dims(self) -> frozenset[str]:
        return frozenset(dim for leaf in self._declared.values() for dim in leaf.dims)

    def leaf(self, name: str) -> Leaf:
        """A declared array or number."""
        if name not in self._declared:
            near = difflib.get_close_matches(name[:60], list(self._declared)[:1000], n=1)
            hint = f"did you mean {near[0]}?" if near else "declare it in x, y, data or parameters"
            raise InvalidProblem(f"{shown(name)} is not declared", hint=hint)
        return self._declared[name]

    def array(self, symbol: sp.Basic, labels: Sequence[Label]) -> Labelled:
        """A declared array under labels, one for each dimension that is not 1."""
        leaf = self.leaf(_name(symbol))
        if len(leaf.dims) != len(labels):
            raise InvalidProblem(
                f"{symbol} has {len(labels)} indices here, but is declared as {_declaration(leaf)}",
                hint=f"a symbol with {len(leaf.dims)} dimensions that are not 1",
            )
        for size, dim in zip(_sizes(symbol), leaf.dims, strict=False):
            if isinstance(size, sp.Symbol) and size.name in self._dims - {dim}:
                raise InvalidProblem(
                    f"{symbol} has the dimension {size} here, but is declared as {_declaration(leaf)}",
                    hint="the same shape in both places",
                )
        return Labelled(Tensor.leaf(leaf), tuple(labels))

    def scalar(self, symbol: sp.Symbol) -> Labelled:
        """A declared number, or a dimension as a number."""
        if symbol in self._ranges:
            raise InvalidProblem(f"the index {symbol} stands as a number", hint="indices stand in brackets only")
        is_size = symbol in self._letters or symbol.name in self._dims
        if symbol.name not in self._declared and is_size:
            return Labelled(ones((), 1, {self.letter(symbol): 1}))
        return self.array(symbol, ())

    def size_of(self, indices: Sequence[sp.Basic]) -> str:
        """The dimension that indices of sums run over."""
        sizes = frozenset[sp.Basic]().union(*(self._ranges.get(index, ()) for index in indices))
        if len(sizes) != 1:
            raise InvalidProblem(
                f"the range of {' and '.join(map(str, indices))} is not known", hint="one range for each index of a Sum"
            )
        return self.letter(next(iter(sizes)))


def _name(symbol: sp.Basic) -> str:
    return str(symbol.label if isinstance(symbol, sp.IndexedBase) else symbol.name)


def _sizes(symbol: sp.Basic) -> tuple[sp.Basic, ...]:
    """The dimensions that have an index; of an IndexedBase without a shape, none is known."""
    if isinstance(symbol, sp.MatrixSymbol):
        return tuple(size for size in symbol.shape if size != 1)
    return tuple(symbol.shape or ()) if isinstance(symbol, sp.IndexedBase) else ()


def _declaration(leaf: Leaf) -> str:
    return f"{leaf.name}[{', '.join(leaf.dims)}]" if leaf.dims else f"the number {leaf.name}"


def shown(value: object) -> str:
    """The beginning of an expression of any depth.

    >>> shown(sp.Symbol("n") + 1)
    'n + 1'
    """
    try:
        return f"{value!s:.60}"
    except RecursionError:
        return f"a {type(value).__name__}"


def count_of(limit: Sequence[sp.Basic]) -> sp.Basic:
    """How many values an index takes: a range from 0 to n - 1, or from 1 to n.

    >>> count_of((sp.Symbol("i"), sp.Integer(0), sp.Symbol("n") - 1))
    n
    """
    if len(limit) == 3 and limit[1] in (0, 1):
        return limit[2] + (1 - limit[1])
    raise InvalidProblem(f"a Sum over {shown(limit)}", hint="full ranges only: (i, 0, n - 1), or (i, 1, n)")
