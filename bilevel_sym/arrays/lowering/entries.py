"""Every entry of a tensor as a form of a scalar graph."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Iterable, Mapping, Sequence
from fractions import Fraction
from itertools import product

from flint import fmpq

from bilevel_sym.arrays.lowering.elimination import Elimination, eliminated
from bilevel_sym.arrays.tensor import GROUP, Apply, Delta, Factor, Head, Leaf, LogSumExp, Tensor
from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM, Graph, LinearForm, total
from bilevel_sym.graph.operations import OPERATIONS

__all__ = ["Entries", "Number", "Place", "lower_form"]

Place = tuple[int, ...]
Number = fmpq | Fraction | int
EntryOf = Callable[[Leaf, Place], LinearForm | Number]


def lower_form(
    tensor: Tensor, graph: Graph, entry_of: EntryOf, sizes: Mapping[str, int]
) -> dict[tuple[int, ...], LinearForm]:
    """Every entry of a tensor, by its place, as a form of the graph.

    tensor: the array formula
    graph: where the entries are built, a ``Graph`` or a ``Draft``
    entry_of: what an entry of a leaf is: a form of the graph, or an exact number
    sizes: the number that each dimension stands for

    >>> y = Leaf("y", ("n",), "y")
    >>> graph = Graph(2)
    >>> entries = lower_form(Tensor.leaf(y), graph, lambda _, place: graph.variables[place[0]], {"n": 2})
    >>> {place: form.terms for place, form in entries.items()}
    {(0,): {0: 1}, (1,): {1: 1}}
    """
    return Entries(graph, entry_of, sizes).all(tensor)


class Entries:
    """Entries of tensors as forms of one graph; equal parts are looked at once."""

    def __init__(self, graph: Graph, entry_of: EntryOf, sizes: Mapping[str, int]) -> None:
        self._graph, self._entry_of, self._sizes = graph, entry_of, sizes
        self._eliminations: dict[str, list[tuple[fmpq, Elimination]]] = {}
        self._tensors: dict[tuple[str, Place], LinearForm] = {}
        self._heads: dict[tuple[str, Place], LinearForm] = {}
        self._sums: dict[tuple[str, Place], LinearForm] = {}

    def all(self, tensor: Tensor) -> dict[Place, LinearForm]:
        """By their places, row by row."""
        return {place: self.at(tensor, place) for place in self._places(tensor.dims)}

    def _places(self, dims: Iterable[str]) -> Iterable[Place]:
        return product(*(range(self._sizes[dim]) for dim in dims))

    def at(self, tensor: Tensor, place: Place) -> LinearForm:
        """One entry."""
        key = tensor.key, place
        if key not in self._tensors:
            self._tensors[key] = total(
                self._value(part, [*place, *[0] * part.dummies]).scaled(number) for number, part in self._parts(tensor)
            )
        return self._tensors[key]

    def _parts(self, tensor: Tensor) -> list[tuple[fmpq, Elimination]]:
        if tensor.key not in self._eliminations:
            self._eliminations[tensor.key] = [
                (_coefficient(term.coefficient, term.sizes, self._sizes), eliminated(tensor, term, self._sizes))
                for term in tensor.terms
            ]
        return self._eliminations[tensor.key]

    def _value(self, part: Elimination | Factor, at: list[int]) -> LinearForm:
        """A factor, or a sum of products, at the values that the indices have in ``at``."""
        if isinstance(part, Factor):
            return self._entry(part.head, tuple([at[i] for i in part.indices]))
        key = part.key, tuple([at[i] for i in part.indices])
        if key not in self._sums:
            self._sums[key] = self._summed(part, at)
        return self._sums[key]

    def _summed(self, part: Elimination, at: list[int]) -> LinearForm:
        if part.summed is None:
            return self._product(part, at)
        forms = []
        for value in range(part.size):
            at[part.summed] = value
            forms.append(self._product(part, at))
        return total(forms)

    def _product(self, part: Elimination, at: list[int]) -> LinearForm:
        """Numbers first: what is multiplied by zero is not looked at, and need not be defined."""
        scale, forms = fmpq(1), list[LinearForm]()
        for child in part.children:
            form = self._value(child, at)
            if form.terms:
                forms.append(form)
            elif form.constant == 0:
                return ZERO_FORM
            else:
                scale = scale * form.constant
        if len(forms) > 1:
            return self._graph.product(self._powers(forms)).scaled(scale)
        return forms[0].scaled(scale) if forms else LinearForm(scale, {})

    def _powers(self, forms: Sequence[LinearForm]) -> list[LinearForm]:
        """Forms that are one object become a power of it."""
        counts = Counter(map(id, forms))
        different = {id(form): form for form in forms}
        return [self._graph.power(form, counts[key]) for key, form in different.items()]

    # ---- factors ----------------------------------------------------------------------------------------------------

    def _entry(self, head: Head, place: Place) -> LinearForm:
        key = head.key, place
        found = self._heads.get(key)
        if found is None:
            found = self._heads[key] = self._new_entry(head, place)
        return found

    def _new_entry(self, head: Head, place: Place) -> LinearForm:
        if isinstance(head, Leaf):
            value = self._entry_of(head, place)
            return value if isinstance(value, LinearForm) else LinearForm(_rational(value), {})
        if isinstance(head, Delta):
            return ONE_FORM if place[0] == place[1] else ZERO_FORM
        if isinstance(head, LogSumExp):
            return self._logsumexp([self.at(z, at) for z in head.parts for at in self._within(z, place)])
        assert isinstance(head, Apply)
        forms = [self.at(body, place) for body in head.bodies]
        if head.op == GROUP:
            return forms[0]
        if head.op in ("ipow", "rpow"):
            return self._graph.power(forms[0], *head.parameter)
        return self._applied(head.op, forms)

    def _within(self, part: Tensor, place: Place) -> Iterable[Place]:
        return ((*place, *rest) for rest in self._places(part.dims[len(place) :]))

    def _applied(self, op: str, forms: Sequence[LinearForm]) -> LinearForm:
        rule = OPERATIONS[op].folded
        if rule is not None and forms[0].is_constant and (value := rule(forms[0].constant)) is not None:
            return LinearForm(value, {})
        return self._graph.apply(op, *forms)

    def _logsumexp(self, forms: Sequence[LinearForm]) -> LinearForm:
        """log(e^a + e^b) = a + softplus(b - a), which does not overflow, in halves."""
        if len(forms) == 1:
            return forms[0]
        middle = (len(forms) + 1) // 2
        a, b = self._logsumexp(forms[:middle]), self._logsumexp(forms[middle:])
        return a + self._graph.apply("softplus", b - a)


def _coefficient(number: Fraction, powers: Iterable[tuple[str, int]], sizes: Mapping[str, int]) -> fmpq:
    whole = math.prod((Fraction(sizes[dim]) ** power for dim, power in powers), start=number)
    return fmpq(whole.numerator, whole.denominator)


def _rational(value: Number) -> fmpq:
    return value if isinstance(value, fmpq) else fmpq(int(value.numerator), int(value.denominator))
