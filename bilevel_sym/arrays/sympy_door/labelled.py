"""Tensors whose indices have labels: what the parts of a matrix expression mean before they are put together.

A matrix has the labels ``ROW`` and ``COLUMN``, a column or a row of numbers only one of them, an entry A[i, j] its
indices i and j. Equal labels are one index, so that products, sums and functions need no further rule of shapes.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import reduce
from math import prod
from typing import TypeAlias

from bilevel_sym.arrays.algebra import apply, contract, power
from bilevel_sym.arrays.normal import added, ones
from bilevel_sym.arrays.tensor import Delta, Tensor
from bilevel_sym.errors import InvalidProblem

__all__ = [
    "COLUMN",
    "ROW",
    "Labelled",
    "applied",
    "chained",
    "extremum",
    "number",
    "product",
    "raised",
    "summed",
    "total",
]

Label: TypeAlias = Hashable
ROW, COLUMN = "its rows", "its columns"  # as they are called in messages

MAX_FACTORS = 200  # of one product: far beyond what users write
MAX_TERMS = 2000  # that one product may be multiplied out to
MAX_POWER = 10_000  # of an exponent, as in scalar formulas


@dataclass(frozen=True)
class Labelled:
    """A tensor and a label for each of its indices.

    >>> number(2).labels
    ()
    """

    tensor: Tensor
    labels: tuple[Label, ...] = ()

    @property
    def dims(self) -> dict[Label, str]:
        """The dimension of each label."""
        return dict(zip(self.labels, self.tensor.dims, strict=True))

    def renamed(self, names: Mapping[Label, Label]) -> Labelled:
        """The same under other labels; two that become one are the same index from then on.

        >>> from bilevel_sym.arrays.tensor import Leaf
        >>> A = Labelled(Tensor.leaf(Leaf("A", ("n", "n"), "data")), (ROW, COLUMN))
        >>> A.renamed({COLUMN: ROW})
        Labelled(tensor=Tensor[n|1*A(0,0)], labels=('its rows',))
        """
        labels = tuple(names.get(label, label) for label in self.labels)
        plain = Labelled(self.tensor, labels)
        return plain if len(set(labels)) == len(labels) else product([plain])

    def over(self, dims: Mapping[Label, str]) -> Labelled:
        """The same with further labels, constant along them."""
        every = {**self.dims, **dims}
        out = ordered(every)
        return Labelled(contract([(self.tensor, self.labels)], out, every), out)


def number(value: Fraction | int) -> Labelled:
    """A number.

    >>> number(2).tensor
    Tensor[|2*1]
    """
    return Labelled(ones((), value))


def ordered(labels: Iterable[Label]) -> tuple[Label, ...]:
    """Rows, columns, then the others as they come.

    >>> ordered(["i", COLUMN, ROW])
    ('its rows', 'its columns', 'i')
    """
    found = dict.fromkeys(labels)
    return (*(label for label in (ROW, COLUMN) if label in found), *(x for x in found if x not in (ROW, COLUMN)))


def product(values: Sequence[Labelled], without: Iterable[Label] = ()) -> Labelled:
    """The product, where equal labels are one index; summed over the labels in ``without``.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> A, y = Tensor.leaf(Leaf("A", ("m", "n"), "data")), Tensor.leaf(Leaf("y", ("n",), "y"))
    >>> product([Labelled(A, ("i", "j")), Labelled(y, ("j",))], "j").tensor
    Tensor[m|1*A(0,1)*y(1)]
    """
    dropped = set(without)
    out = [label for label in ordered(_common(values)) if label not in dropped]
    _check_price([value.tensor for value in values])
    return Labelled(contract([(value.tensor, value.labels) for value in values], out), tuple(out))


def chained(values: Sequence[Labelled]) -> Labelled:
    """The product of matrices, of columns and rows among them, and of numbers.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> y = Tensor.leaf(Leaf("y", ("n",), "y"))
    >>> chained([Labelled(y, (COLUMN,)), Labelled(y, (ROW,))]).tensor
    Tensor[|1*y(0)*y(0)]
    """
    links: list[Label] = [f"factor {k} of a product" for k in range(len(values) + 1)]
    names: list[dict[Label, Label]] = [{ROW: links[k], COLUMN: links[k + 1]} for k in range(len(values))]
    renamed = [value.renamed(own) for value, own in zip(values, names, strict=True)]
    whole = product(renamed, links[1:-1])
    outer = whole.renamed({links[0]: ROW, links[-1]: COLUMN})
    return product([outer])


def summed(value: Labelled, label: Label, dim: str) -> Labelled:
    """The sum over a label whose range is ``dim``; of what does not have the label, dim times itself.

    >>> summed(number(3), "i", "n").tensor
    Tensor[|3*n^1*1]
    """
    whole = value.over({label: dim}) if label not in value.labels else value
    return product([whole], [label])


def total(values: Sequence[Labelled]) -> Labelled:
    """The sum; what has fewer labels than others is constant along those.

    >>> total([number(1), number(2)]).tensor
    Tensor[|3*1]
    """
    dims = _common(values)
    lifted = [value.over(dims) for value in values]
    labels = ordered(dims)
    same = [contract([(value.tensor, value.labels)], labels) for value in lifted]
    return Labelled(added(same, [dims[label] for label in labels]), labels)


def applied(op: str, *values: Labelled) -> Labelled:
    """An operation of the grammar, entry by entry.

    >>> applied("exp", number(0)).tensor
    Tensor[|1*1]
    """
    dims = _common(values)
    labels = ordered(dims)
    bodies = [contract([(value.tensor, value.labels)], labels, dims) for value in values]
    return Labelled(apply(op, *bodies), labels)


def extremum(op: str, values: Sequence[Labelled]) -> Labelled:
    """The smallest or largest of several, in an order by content, numbers last: as text has it.

    >>> extremum("max", [number(1), number(1)]).tensor
    Tensor[|1*1]
    """
    dims = _common(values)
    labels = ordered(dims)
    same = {tensor.key: tensor for v in values for tensor in [contract([(v.tensor, v.labels)], labels, dims)]}
    in_order = sorted(same.values(), key=lambda tensor: (tensor.number is not None, tensor.key))
    return Labelled(reduce(lambda one, two: apply(op, one, two), in_order), labels)


def raised(base: Labelled, exponent: Labelled) -> Labelled:
    """A power where the exponent is a number, otherwise the exponential of a logarithm.

    >>> raised(number(2), number(-1)).tensor
    Tensor[|1/2*1]
    """
    fraction = exponent.tensor.number
    if fraction is None or exponent.labels:
        value = base.tensor.number
        if value is not None and value <= 0:
            raise InvalidProblem(f"a power of {value} whose exponent varies is not a real number")
        return applied("exp", product([exponent, applied("log", base)]))
    if max(abs(fraction.numerator), fraction.denominator) > MAX_POWER:
        raise InvalidProblem(f"a power of {fraction!s:.40}", hint=f"exponents go up to {MAX_POWER}")
    try:
        return Labelled(power(base.tensor, fraction.numerator, fraction.denominator), base.labels)
    except ZeroDivisionError:
        raise InvalidProblem("a division by zero") from None


def _common(values: Iterable[Labelled]) -> dict[Label, str]:
    """The labels of several values and their dimensions, on which all must agree."""
    dims: dict[Label, str] = {}
    for value in values:
        for label, dim in zip(value.labels, value.tensor.dims, strict=True):
            if dims.setdefault(label, dim) != dim:
                raise InvalidProblem(
                    f"the dimensions {dims[label]} and {dim} do not agree ({label})",
                    hint=f"declare both with one letter, if {dims[label]} = {dim} is meant",
                )
    return dims


def _check_price(operands: Sequence[Tensor]) -> None:
    """Before anything is multiplied: sums with a delta are multiplied out, other sums stay in parentheses."""
    factors = sum(max((len(term.factors) for term in operand.terms), default=0) for operand in operands)
    if factors > MAX_FACTORS:
        raise InvalidProblem(f"a product of {factors} factors", hint=f"at most {MAX_FACTORS}")
    terms = prod(len(operand.terms) for operand in operands if _opens(operand))
    if terms > MAX_TERMS:
        raise InvalidProblem(
            f"a product that multiplies out to {terms} terms", hint=f"at most {MAX_TERMS}: fewer sums with an identity"
        )


def _opens(operand: Tensor) -> bool:
    return any(isinstance(factor.head, Delta) for term in operand.terms for factor in term.factors)
