"""A whole problem in scalars: names for the entries, numbers from the data, and how large it may be."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product
from typing import Any, NamedTuple

import numpy as np
import sympy as sp
from flint import fmpq

from bilevel_sym.arrays.data import DataArray
from bilevel_sym.arrays.lowering.elimination import Work, work_of
from bilevel_sym.arrays.lowering.entries import Entries, Number, Place
from bilevel_sym.arrays.tensor import Apply, Leaf, LogSumExp, Tensor
from bilevel_sym.errors import InvalidProblem, TooLarge
from bilevel_sym.graph.convert import to_sympy
from bilevel_sym.graph.draft import Draft, Drafted
from bilevel_sym.graph.exact import rational
from bilevel_sym.graph.nodes import LinearForm

__all__ = ["MAX_WORK", "Lowered", "entry_symbols", "expression_of", "lower"]

MAX_WORK = 2_000_000  # products of numbers and forms; about ten seconds


class Lowered(NamedTuple):
    """f and g of an array problem in scalars.

    - ``f``, ``g``: on one draft, in the symbols of x, then of y, then of parameters without a value.
    - ``x``, ``y``: the symbols of each level, arrays end to end and row by row.
    - ``names``: the symbols of each array, by its name, row by row.
    """

    f: Drafted
    g: Drafted
    x: tuple[sp.Symbol, ...]
    y: tuple[sp.Symbol, ...]
    names: Mapping[str, tuple[sp.Symbol, ...]]


def lower(
    f: Tensor,
    g: Tensor,
    x: Sequence[Leaf],
    y: Sequence[Leaf],
    *,
    data: Mapping[str, Any],
    sizes: Mapping[str, int | None],
    limit: int = MAX_WORK,
) -> Lowered:
    """The same problem in scalars, exactly; TooLarge beyond a size that is known before anything is built.

    f: the upper level, without free indices
    g: the lower level, likewise
    x: the arrays of the upper level
    y: the arrays of the lower level
    data: arrays and numbers by name; a float means its exact value
    sizes: the number that each dimension stands for; one that is a number need not be in it
    limit: the work that is allowed, in products of numbers and forms

    A scalar keeps its name; x[n] becomes x_1, x_2, ...; W[p, q] becomes W_1_1, W_1_2, ... With a name that is taken the
    array has two underscores, or as many as it needs.

    >>> from bilevel_sym.arrays.algebra import contract
    >>> x, y, b = Leaf("x", (), "x"), Leaf("y", ("n",), "y"), Leaf("b", ("n",), "data")
    >>> f = contract([(Tensor.leaf(b), "i"), (Tensor.leaf(y), "i")], ())
    >>> g = contract([(Tensor.leaf(y), "i"), (Tensor.leaf(y), "i")], ())
    >>> lowered = lower(f, g, [x], [y], data={"b": [0.5, 3]}, sizes={"n": 2})
    >>> lowered.x, lowered.y, expression_of(lowered.f), expression_of(lowered.g)
    ((x,), (y_1, y_2), y_1/2 + 3*y_2, y_1**2 + y_2**2)
    """
    open_ = _without_value(f.leaves | g.leaves, {leaf.name for leaf in (*x, *y)} | data.keys())
    known = _known_sizes((f, g), (*x, *y), sizes)
    _refuse_large((f, g), (*x, *y), known, limit)
    names = entry_symbols((*x, *y, *open_), known)
    symbols = tuple(symbol for group in names.values() for symbol in group)
    draft = Draft(len(symbols))
    entries = Entries(draft, _Values(names, symbols, draft, data, known), known)
    above, below = (Drafted(draft, entries.at(formula, ()), symbols) for formula in (f, g))
    groups = [tuple(symbol for leaf in level for symbol in names[leaf.name]) for level in (x, y)]
    return Lowered(above, below, groups[0], groups[1], names)


def expression_of(formula: Drafted) -> sp.Expr:
    """A formula on a draft as a SymPy expression.

    >>> from bilevel_sym.graph.draft import drafted
    >>> expression_of(drafted(sp.Symbol("x")**2, [sp.Symbol("x")]))
    x**2
    """
    return to_sympy(formula.draft, [formula.form], dict(enumerate(formula.symbols)))[0]


class _Values:
    """What an entry of a leaf is: a variable of the draft, or a number of the data."""

    def __init__(
        self,
        names: Mapping[str, Sequence[sp.Symbol]],
        symbols: Sequence[sp.Symbol],
        draft: Draft,
        data: Mapping[str, Any],
        sizes: Mapping[str, int],
    ) -> None:
        known = dict(zip(symbols, draft.variables, strict=True))
        self._variables: dict[str, list[LinearForm]] = {
            name: [known[symbol] for symbol in group] for name, group in names.items()
        }
        self._sizes, self._data = sizes, data
        self._arrays: dict[str, Any] = {}

    def __call__(self, leaf: Leaf, place: Place) -> LinearForm | Number:
        if leaf.name in self._variables:
            k = 0
            for dim, i in zip(leaf.dims, place, strict=True):
                k = k * self._sizes[dim] + i
            return self._variables[leaf.name][k]
        if leaf.name not in self._arrays:
            self._arrays[leaf.name] = _array(leaf, self._data[leaf.name], self._sizes)
        return _exact(self._arrays[leaf.name][place], leaf.name)


def _array(leaf: Leaf, value: Any, sizes: Mapping[str, int]) -> Any:
    given = value.values if isinstance(value, DataArray) else value
    dense = given.toarray() if hasattr(given, "toarray") else given
    array = np.asarray(dense) if not isinstance(dense, (Fraction, fmpq, sp.Rational)) else np.array(dense, object)
    shape = tuple(sizes[dim] for dim in leaf.dims)
    if array.shape != shape:
        raise InvalidProblem(f"{leaf.name} has the shape {array.shape}, but its dimensions are {shape}")
    return array


def _exact(value: object, name: str) -> Number:
    if isinstance(value, (fmpq, Fraction, int)):
        return value
    if isinstance(value, float) and math.isfinite(value):  # NumPy's float64 is one
        return fmpq(*value.as_integer_ratio())
    number = rational(value, f"an entry of {name}", error=InvalidProblem)
    return fmpq(int(number.p), int(number.q))


def _without_value(leaves: Iterable[Leaf], named: Iterable[str]) -> list[Leaf]:
    """Parameters that stay symbols; an array needs its values."""
    known = set(named)
    found = sorted((leaf for leaf in leaves if leaf.name not in known), key=lambda leaf: leaf.name)
    for leaf in found:
        if leaf.dims or leaf.role != "parameter":
            raise InvalidProblem(
                f"{leaf.name} has no values, so the problem cannot be written out in scalars",
                hint=f"give them: data={{{leaf.name!r}: ...}}",
            )
    return found


def _known_sizes(
    formulas: Iterable[Tensor], variables: Iterable[Leaf], sizes: Mapping[str, int | None]
) -> dict[str, int]:
    dims = {dim for formula in formulas for dim in _dims_of(formula)}
    dims |= {dim for leaf in variables for dim in leaf.dims}
    found: dict[str, int] = {}
    for dim in sorted(dims):
        size = sizes.get(dim, int(dim) if dim.isdecimal() else None)
        if size is None:
            raise InvalidProblem(
                f"the dimension {dim} has no size, so the problem cannot be written out in scalars",
                hint=f"give data whose shape has {dim}, or a number in its place",
            )
        found[dim] = size
    return found


def _dims_of(tensor: Tensor) -> set[str]:
    found = set(tensor.dims)
    for term in tensor.terms:
        found.update(dim for dim, _ in term.sizes)
        found.update(term.dummies)
        for head, _ in term.factors:
            bodies = head.bodies if isinstance(head, Apply) else head.parts if isinstance(head, LogSumExp) else ()
            found.update(head.dims)
            found.update(dim for body in bodies for dim in _dims_of(body))
    return found


def _refuse_large(formulas: Sequence[Tensor], variables: Iterable[Leaf], sizes: Mapping[str, int], limit: int) -> None:
    work = Work(sizes)
    size = sum(work_of(formula, work) for formula in formulas)
    size += sum(math.prod(sizes[dim] for dim in leaf.dims) for leaf in variables)
    if size > limit:
        raise TooLarge(
            f"written out in scalars the problem takes about {size:,} operations, and {limit:,} are made",
            hint="fewer rows and variables; formulas, kernels and solvers of the array problem need no scalars",
        )


def entry_symbols(leaves: Sequence[Leaf], sizes: Mapping[str, int]) -> dict[str, tuple[sp.Symbol, ...]]:
    """The symbols of each leaf, in order: scalars have their own names, and arrays give way to them.

    >>> entry_symbols([Leaf("W", ("p", "q"), "y")], {"p": 1, "q": 2})
    {'W': (W_1_1, W_1_2)}
    """
    taken = {leaf.name for leaf in leaves if not leaf.dims}
    found: dict[str, tuple[sp.Symbol, ...]] = {}
    for leaf in leaves:
        names = [leaf.name] if not leaf.dims else _free_names(leaf, sizes, taken)
        taken.update(names)
        found[leaf.name] = tuple(sp.Symbol(name) for name in names)
    return found


def _free_names(leaf: Leaf, sizes: Mapping[str, int], taken: set[str]) -> list[str]:
    joint = "_"
    while True:
        places = product(*(range(1, sizes[dim] + 1) for dim in leaf.dims))
        names = [joint.join([leaf.name, *map(str, place)]) for place in places]
        if taken.isdisjoint(names):
            return names
        joint += "_"
