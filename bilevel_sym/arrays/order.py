"""The order in which the factors of a product are contracted: the cheapest of all, or, for many, a greedy one.

Costs are counted in entries that are read and written; a multiplication in a product of matrices is cheaper, for BLAS
keeps what it needs at hand. What is made of data alone is made once, and counts for little, unless it would be large.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass
from itertools import combinations

__all__ = ["PRODUCT", "THIN", "Labels", "Product", "Tree", "places_in"]

OPTIMAL = 6  # factors up to which every order of contraction is looked at
ONCE = 0.02  # the part of its price that a contraction of data alone counts for: it is performed once
PRODUCT = 0.06  # the price of a multiplication in a product of matrices, in those of an entry that is read and written
THIN = 0.25  # the same where one side is a vector: then memory decides
FREELY = 1_000_000  # entries that a contraction of data may have, even if its arguments have fewer
Labels = tuple[int, ...]
Tree = int | tuple["Tree", "Tree"]


def places_in(tree: Tree) -> frozenset[int]:
    """The factors that a tree of contractions has.

    >>> sorted(places_in((0, (2, 1))))
    [0, 1, 2]
    """
    return frozenset([tree]) if isinstance(tree, int) else places_in(tree[0]) | places_in(tree[1])


@dataclass(frozen=True)
class Product:
    """The factors of a product: the labels of each, their sizes, which of them are data.

    - ``labels``: of each factor's axes.
    - ``sizes``: of each label.
    - ``data``: whether a factor is data alone.
    - ``rank``: labels below it are free, all others are summed.

    >>> Product(((0, 1), (1,)), {0: 3, 1: 2}, (True, False), 1).cheapest()
    (0, 1)
    """

    labels: tuple[Labels, ...]
    sizes: Mapping[int, int]
    data: tuple[bool, ...]
    rank: int

    def left(self, chosen: frozenset[int]) -> frozenset[int]:
        """The labels that the product of some factors still has: the free ones, and those that others have too."""
        inside = {label for k in chosen for label in self.labels[k]}
        outside = {label for k, labels in enumerate(self.labels) if k not in chosen for label in labels}
        return frozenset(label for label in inside if label < self.rank or label in outside)

    def cheapest(self) -> Tree:
        """The order of contraction that costs least, as a binary tree of places."""
        everything = frozenset(range(len(self.labels)))
        if len(everything) > OPTIMAL:
            return self._greedy()
        best: dict[frozenset[int], tuple[float, Tree]] = {frozenset([k]): (0.0, k) for k in everything}
        for size in range(2, len(everything) + 1):
            for chosen in map(frozenset, combinations(sorted(everything), size)):
                splits = ((one, chosen - one) for one in _halves(chosen))
                best[chosen] = min(
                    ((best[a][0] + best[b][0] + self._cost(a, b), (best[a][1], best[b][1])) for a, b in splits),
                    key=lambda found: found[0],
                )
        return best[everything][1]

    def _cost(self, one: frozenset[int], two: frozenset[int]) -> float:
        """What it costs to contract two sets of factors, each of which is one array by then."""
        first, second, result = self.left(one), self.left(two), self.left(one | two)
        own, shared = self._entries(first | second), (first & second) - result
        if not shared:
            return float(own)
        thin = not (first - second) or not (second - first)
        cost = own * (THIN if thin else PRODUCT)
        if not all(self.data[k] for k in one | two):
            return cost
        largest = max(self._entries(first), self._entries(second))
        return math.inf if self._entries(result) > max(4 * largest, FREELY) else ONCE * cost

    def _entries(self, labels: frozenset[int]) -> int:
        return math.prod(self.sizes[label] for label in labels)

    def _greedy(self) -> Tree:
        """Pair by pair, first what leaves the fewest entries: a small outer product may make all that follows large."""
        parts: list[Tree] = list(range(len(self.labels)))
        while len(parts) > 1:
            pairs = combinations(range(len(parts)), 2)
            _, i, j = min((self._growth(places_in(parts[i]), places_in(parts[j])), i, j) for i, j in pairs)
            parts = [part for k, part in enumerate(parts) if k not in (i, j)] + [(parts[i], parts[j])]
        return parts[0]

    def _growth(self, one: frozenset[int], two: frozenset[int]) -> tuple[int, float]:
        """How many entries more there are once two sets of factors are contracted, and what that costs."""
        before = self._entries(self.left(one)) + self._entries(self.left(two))
        return self._entries(self.left(one | two)) - before, self._cost(one, two)


def _halves(chosen: frozenset[int]) -> list[frozenset[int]]:
    """One side of every way to split a set in two; its first member is always in it."""
    first, *rest = sorted(chosen)
    return [frozenset((first, *more)) for size in range(len(rest)) for more in combinations(rest, size)]
