"""Sums of products in index notation: what an array expression is once it is read.

A ``Tensor`` is a sum of ``Term``s over the same free indices. A term is a rational coefficient times powers of
dimensions times factors; a factor is a head with indices. Free indices are 0 to rank - 1, further ones are summed.
A free index that no factor of a term has means that the term is constant along it.

Heads: a ``Leaf`` (a variable, or data), ``Delta``, ``Apply`` (a function entry by entry, or a sum in parentheses) and
``LogSumExp``. Equality and hashing are by content, through ``key``, a text that is the same in every process.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from functools import cached_property
from typing import Literal, NamedTuple

__all__ = ["GROUP", "Apply", "Delta", "Factor", "Head", "Leaf", "LogSumExp", "Role", "Tensor", "Term", "known_sizes"]

Role = Literal["x", "y", "data", "parameter", "v", "direction"]
GROUP = "group"  # the operation of a sum in parentheses
LONGEST_KEY = 200  # characters; beyond it a digest stands for the key
Dims = tuple[str, ...]


def known_sizes(dimensions: Mapping[str, int | None]) -> dict[str, int]:
    """The dimensions that stand for a number.

    >>> known_sizes({"m": 2, "n": None})
    {'m': 2}
    """
    return {dim: size for dim, size in dimensions.items() if size is not None}


def _shortened(key: str) -> str:
    return key if len(key) <= LONGEST_KEY else "#" + hashlib.sha256(key.encode()).hexdigest()


class Head:
    """What stands before the indices of a factor; ``dims`` are the dimensions that its indices run over.

    >>> Leaf("A", ("m", "n"), "data").dims
    ('m', 'n')
    """

    dims: Dims

    @cached_property
    def key(self) -> str:
        """The content, as a text."""
        return _shortened(self._content())

    def _content(self) -> str:
        raise TypeError  # each kind says its own

    @cached_property
    def symmetric(self) -> bool:
        """Whether its two indices can be exchanged."""
        return False

    @cached_property
    def whole(self) -> Tensor:
        """Itself over its own indices."""
        from bilevel_sym.arrays.normal import single

        return single(self, self.dims, range(len(self.dims)))

    @cached_property
    def slopes(self) -> list[Tensor]:
        """Its partial derivatives by its bodies, kept there by ``calculus`` once they were asked for."""
        return []

    @cached_property
    def leaves(self) -> frozenset[Leaf]:
        """The variables and data in it."""
        return frozenset(leaves_of(self))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Head) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)


@dataclass(frozen=True, eq=False)
class Leaf(Head):
    """A variable or data, by name.

    >>> Leaf("K", ("n", "n"), "data", declared_symmetric=True).symmetric
    True
    """

    name: str
    dims: Dims
    role: Role
    declared_symmetric: bool = False

    def _content(self) -> str:
        return self.name

    @cached_property
    def symmetric(self) -> bool:
        """Whether its two indices can be exchanged."""
        return self.declared_symmetric


@dataclass(frozen=True, eq=False)
class Delta(Head):
    """One where its two indices agree, and zero elsewhere.

    >>> Delta("n").dims
    ('n', 'n')
    """

    dim: str

    @property
    def dims(self) -> Dims:  # type: ignore[override]
        """The dimensions that its indices run over."""
        return (self.dim, self.dim)

    def _content(self) -> str:
        return f"delta:{self.dim}"

    @cached_property
    def symmetric(self) -> bool:
        """Whether its two indices can be exchanged."""
        return True


@dataclass(frozen=True, eq=False)
class Apply(Head):
    """An operation entry by entry, by its name in ``graph.operations``, or ``GROUP``.

    - ``op``: the operation.
    - ``parameter``: of a power: k, or p and q.
    - ``bodies``: its arguments, all with the same dimensions.

    >>> y = Tensor.leaf(Leaf("y", ("n",), "y"))
    >>> Apply("sin", (), (y,)).key
    'sin()([n|1*y(0)])'
    """

    op: str
    parameter: tuple[int, ...]
    bodies: tuple[Tensor, ...]

    @property
    def dims(self) -> Dims:  # type: ignore[override]
        """The dimensions that its indices run over."""
        return self.bodies[0].dims if self.bodies else ()

    def _content(self) -> str:
        parameter = ",".join(map(str, self.parameter))
        return f"{self.op}({parameter})({','.join(body.key for body in self.bodies)})"

    @cached_property
    def symmetric(self) -> bool:
        """Whether its two indices can be exchanged."""
        return all(body.is_symmetric for body in self.bodies) if self.bodies else False

    @cached_property
    def turned(self) -> Apply | None:
        """The same of the transposed bodies, where that comes first: exp(A.T) and exp(A).T are one."""
        from bilevel_sym.arrays.normal import rearranged

        if len(self.dims) != 2:
            return None
        bodies = tuple(rearranged(body, (1, 0)) for body in self.bodies)
        if _place(bodies) >= _place(self.bodies):
            return None
        return Apply(self.op, self.parameter, bodies)


def _place(bodies: tuple[Tensor, ...]) -> list[tuple[list[str], Dims]]:
    """In an order by content; what stands in a body comes before its dimensions, so that A is left as it is."""
    return [([term.monomial for term in body.terms], body.dims) for body in bodies]


@dataclass(frozen=True, eq=False)
class LogSumExp(Head):
    """The logarithm of a sum of exponentials, over the last indices of each part.

    - ``parts``: the exponents; each has the dimensions of the result, then those that are summed over.
    - ``rank``: how many indices the result has.

    >>> z = Tensor.leaf(Leaf("z", ("n",), "y"))
    >>> LogSumExp((z,), 0).dims
    ()
    """

    parts: tuple[Tensor, ...]
    rank: int

    @property
    def dims(self) -> Dims:  # type: ignore[override]
        """The dimensions that its indices run over."""
        return self.parts[0].dims[: self.rank]

    def _content(self) -> str:
        return f"logsumexp{self.rank}({','.join(part.key for part in self.parts)})"


class Factor(NamedTuple):
    """A head and its indices.

    >>> Factor(Leaf("y", ("n",), "y"), (0,)).indices
    (0,)
    """

    head: Head
    indices: tuple[int, ...]

    @property
    def key(self) -> str:
        """The content, as a text."""
        return f"{self.head.key}({','.join(map(str, self.indices))})"


Sizes = tuple[tuple[str, int], ...]


@dataclass(frozen=True)
class Term:
    """A product in canonical form. Made by ``normal.tensor``, which knows what that is.

    - ``coefficient``: a rational number.
    - ``sizes``: dimensions and their powers, which multiply it: a mean over m rows has m to the power -1.
    - ``factors``: in canonical order.
    - ``dummies``: the dimensions of the indices that are summed, from rank on.

    >>> Term(Fraction(1, 2), (("m", -1),), (), ()).monomial
    'm^-1*1'
    """

    coefficient: Fraction
    sizes: Sizes
    factors: tuple[Factor, ...]
    dummies: Dims

    @cached_property
    def monomial(self) -> str:
        """Everything but the coefficient, as a text: terms with equal monomials are one."""
        sizes = "".join(f"{dim}^{power}*" for dim, power in self.sizes)
        return sizes + ("*".join(factor.key for factor in self.factors) or "1")

    @property
    def is_number(self) -> bool:
        """Whether nothing but numbers and dimensions is in it."""
        return not self.factors

    def scaled(self, number: Fraction) -> Term:
        """The term times a number."""
        return Term(number * self.coefficient, self.sizes, self.factors, self.dummies)


@dataclass(frozen=True, eq=False)
class Tensor:
    """A sum of terms with the same free indices; made by ``normal.tensor`` and what builds on it.

    - ``dims``: the dimensions of the free indices.
    - ``terms``: in canonical order, no two with equal monomials, none zero.

    >>> y = Tensor.leaf(Leaf("y", ("n",), "y"))
    >>> y.rank, y.key, y == Tensor.leaf(Leaf("y", ("n",), "y"))
    (1, '[n|1*y(0)]', True)
    """

    dims: Dims
    terms: tuple[Term, ...] = field(default=())

    @staticmethod
    def leaf(leaf: Leaf) -> Tensor:
        """A variable, or data, with its own indices."""
        factor = Factor(leaf, tuple(range(len(leaf.dims))))
        return Tensor(leaf.dims, (Term(Fraction(1), (), (factor,), ()),))

    @property
    def rank(self) -> int:
        """The number of its free indices."""
        return len(self.dims)

    @property
    def is_zero(self) -> bool:
        """Whether it is the empty sum."""
        return not self.terms

    @property
    def is_number(self) -> bool:
        """Whether it holds numbers and dimensions alone."""
        return all(term.is_number for term in self.terms)

    @property
    def number(self) -> Fraction | None:
        """Its value, where it is one rational number everywhere."""
        if not self.terms:
            return Fraction(0)
        only = self.terms[0]
        return only.coefficient if len(self.terms) == 1 and not only.factors and not only.sizes else None

    @cached_property
    def key(self) -> str:
        """The content, as a text."""
        terms = "+".join(f"{term.coefficient}*{term.monomial}" for term in self.terms) or "0"
        return _shortened(f"[{','.join(self.dims)}|{terms}]")

    @cached_property
    def derivatives(self) -> dict[tuple[str, ...], Tensor]:
        """Those that ``calculus`` was asked for, by what they were taken along."""
        return {}

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether it is a matrix that equals its transpose."""
        from bilevel_sym.arrays.normal import rearranged

        if self.rank != 2 or self.dims[0] != self.dims[1]:
            return False
        return rearranged(self, (1, 0)) == self

    @cached_property
    def leaves(self) -> frozenset[Leaf]:
        """The variables and data in it."""
        return frozenset(leaf for term in self.terms for f in term.factors for leaf in f.head.leaves)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Tensor) and self.key == other.key

    def __hash__(self) -> int:
        return hash(self.key)

    def __repr__(self) -> str:
        return f"Tensor{self.key}"


def leaves_of(head: Head) -> Iterable[Leaf]:
    """The variables and data in a head.

    >>> [leaf.name for leaf in leaves_of(Leaf("y", ("n",), "y"))]
    ['y']
    """
    if isinstance(head, Leaf):
        return (head,)
    bodies = head.bodies if isinstance(head, Apply) else head.parts if isinstance(head, LogSumExp) else ()
    return frozenset(leaf for body in bodies for leaf in body.leaves)
