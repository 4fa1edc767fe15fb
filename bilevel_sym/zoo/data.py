"""Fisher's iris, exact to the millimetre, and how its rows are shared out."""

from __future__ import annotations

import csv
from collections.abc import Sequence
from importlib.resources import files
from typing import NamedTuple, TypeVar

import sympy as sp

from bilevel_sym.graph.exact import decimal_rational

__all__ = ["Flower", "Row", "iris", "regression_rows", "species_rows", "spread"]

Row = tuple[sp.Rational, ...]
_Item = TypeVar("_Item")


class Flower(NamedTuple):
    """One of the 150 flowers; lengths are in centimetres.

    - ``sepal_length``: of a sepal.
    - ``sepal_width``: of the same.
    - ``petal_length``: of a petal.
    - ``petal_width``: of the same.
    - ``species``: 0 setosa, 1 versicolor, 2 virginica.

    >>> Flower(*(sp.Rational(k, 10) for k in (51, 35, 14, 2)), species=0).petal_length
    7/5
    """

    sepal_length: sp.Rational
    sepal_width: sp.Rational
    petal_length: sp.Rational
    petal_width: sp.Rational
    species: int


def iris() -> tuple[Flower, ...]:
    """The 150 flowers, fifty of each species, as exact decimals.

    Reference: R. A. Fisher, The use of multiple measurements in taxonomic problems, Annals of
    Eugenics 7 (1936) 179-188; measured by E. Anderson. Rows 35 and 38 are as Fisher printed them.

    >>> flowers = iris()
    >>> len(flowers), flowers[0].sepal_length, flowers[37].petal_width
    (150, 51/10, 1/10)
    """
    text = files("bilevel_sym.zoo").joinpath("iris.csv").read_text(encoding="ascii")
    rows = csv.reader(text.splitlines())
    return tuple(_flower(*row) for row in rows)


def _flower(*fields: str) -> Flower:
    *lengths, species = fields
    a, b, c, d = map(decimal_rational, lengths)
    return Flower(a, b, c, d, int(species))


def spread(items: Sequence[_Item], count: int, offset: int = 0) -> list[_Item]:
    """``count`` of the items, evenly spread; with ``offset=1`` the neighbour of each.

    >>> spread("abcdefgh", 3), spread("abcdefgh", 3, offset=1)
    (['a', 'c', 'f'], ['b', 'd', 'g'])
    """
    return [items[i * len(items) // count + offset] for i in range(count)]


def regression_rows(count: int, offset: int = 0) -> list[Row]:
    """Rows (sepal length, petal length, petal width); the last is to be predicted from the others.

    >>> regression_rows(2)
    [(51/10, 7/5, 1/5), (33/5, 22/5, 7/5)]
    """
    chosen = spread(iris(), count, offset)
    return [(flower.sepal_length, flower.petal_length, flower.petal_width) for flower in chosen]


def species_rows(count: int, offset: int = 0) -> list[tuple[Row, int]]:
    """Features (petal length - 4.9, petal width - 1.7, 1), and -1 for versicolor, 1 for virginica.

    The two species alternate. They overlap: no line separates all of them.

    >>> species_rows(2)
    [((-1/5, -3/10, 1), -1), ((11/10, 4/5, 1), 1)]
    """
    flowers = iris()
    pools = [[flower for flower in flowers if flower.species == kind] for kind in (1, 2)]
    half = (count + 1) // 2
    pairs = zip(*(spread(pool, half, offset) for pool in pools), strict=True)
    return [_labelled(flower) for pair in pairs for flower in pair][:count]


def _labelled(flower: Flower) -> tuple[Row, int]:
    length = flower.petal_length - sp.Rational(49, 10)
    width = flower.petal_width - sp.Rational(17, 10)
    return (length, width, sp.Integer(1)), (1 if flower.species == 2 else -1)
