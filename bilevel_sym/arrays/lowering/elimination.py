"""In which order the summed indices of a product are eliminated, and how much work that is, before any is done."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from operator import itemgetter

from bilevel_sym.arrays.tensor import Apply, Delta, Factor, Head, Leaf, LogSumExp, Tensor, Term


@dataclass(frozen=True, eq=False)
class Elimination:
    """A product of factors and of sums that are made before it, summed over one index or over none.

    - ``children``: what is multiplied, numbers first.
    - ``indices``: those on which it depends.
    - ``summed``, ``size``: the index that it is summed over, and its size.
    - ``dummies``: how many summed indices there are in all.
    - ``key``: the content, whatever its indices are called: what has the same is the same function of ``indices``.
    """

    children: tuple[Elimination | Factor, ...]
    indices: tuple[int, ...]
    summed: int | None
    size: int
    dummies: int
    key: str


def eliminated(tensor: Tensor, term: Term, sizes: Mapping[str, int]) -> Elimination:
    """One term of a tensor, its summed indices eliminated one at a time: first the one that costs least.

    >>> A, y = Leaf("A", ("m", "n"), "data"), Leaf("y", ("n",), "y")
    >>> from bilevel_sym.arrays.algebra import contract
    >>> once = contract([(Tensor.leaf(A), "ij"), (Tensor.leaf(y), "j")], "i")
    >>> square = contract([(once, "i"), (once, "i")], ())
    >>> (rows,) = eliminated(square, square.terms[0], {"m": 3, "n": 2}).children
    >>> [child.indices == (rows.summed,) for child in rows.children]
    [True, True]
    """
    dims = (*tensor.dims, *term.dummies)
    parts: list[Elimination | Factor] = list(term.factors)
    left = set(range(tensor.rank, len(dims)))
    while left:
        index = min((*_price(_having(parts, i), dims, sizes), i) for i in left)[-1]
        left.remove(index)
        joined = _having(parts, index)
        parts = [part for part in parts if index not in part.indices]
        parts.append(_node(joined, index, sizes[dims[index]], len(term.dummies)))
    return _node(parts, None, 1, len(term.dummies))


def _price(parts: Sequence[Elimination | Factor], dims: Sequence[str], sizes: Mapping[str, int]) -> tuple[int, int]:
    """The number of products; of equal ones those of factors go first, so that sums of them are multiplied last."""
    products = math.prod(sizes[dims[k]] for k in _joint(parts))
    return products, sum(isinstance(part, Elimination) for part in parts)


def _having(parts: Iterable[Elimination | Factor], index: int) -> list[Elimination | Factor]:
    return [part for part in parts if index in part.indices]


def _joint(parts: Iterable[Elimination | Factor]) -> set[int]:
    return {i for part in parts for i in part.indices}


def _node(parts: Sequence[Elimination | Factor], summed: int | None, size: int, dummies: int) -> Elimination:
    indices = tuple(sorted(_joint(parts) - {summed}))
    names = {index: k for k, index in enumerate((*indices, summed))}
    told = sorted((((_order(part), _pattern(part, names)), part) for part in parts), key=itemgetter(0))
    key = f"{len(indices)},{size}[{'*'.join(pattern for (_, pattern), _ in told)}]"
    return Elimination(tuple(part for _, part in told), indices, summed, size, dummies, key)


def _pattern(part: Elimination | Factor, names: Mapping[int | None, int]) -> str:
    """The content of a part, with the places of its indices among some."""
    key = part.head.key if isinstance(part, Factor) else part.key
    return f"{key}({','.join(str(names[i]) for i in part.indices)})"


def _order(part: Elimination | Factor) -> int:
    if isinstance(part, Elimination):
        return 3
    return 0 if isinstance(part.head, Delta) else 1 if _is_data(part.head) else 2


def _is_data(head: Head) -> bool:
    return isinstance(head, Leaf) and head.role == "data"


# ---- how much work --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Work:
    """What was counted already, and is made once.

    - ``sizes``: the number that each dimension stands for.
    - ``known``: the number of terms of an entry of each tensor and each sum, by their keys.
    """

    sizes: Mapping[str, int]
    known: dict[str, int] = field(default_factory=dict)

    def entries(self, dims: Iterable[str]) -> int:
        """How many entries an array has."""
        return math.prod(self.sizes[dim] for dim in dims)


def work_of(tensor: Tensor, work: Work) -> int:
    """The number of products, and of terms added up, that writing out the tensor takes; what is known costs nothing.

    >>> y = Leaf("y", ("n",), "y")
    >>> work_of(Tensor.leaf(y), Work({"n": 1000}))
    1000
    """
    if tensor.key in work.known:
        return 0
    count, width = 0, 0
    for term in tensor.terms:
        count += sum(_within(head, work) for head, _ in term.factors)
        root = eliminated(tensor, term, work.sizes)
        own, terms = _counted(root, (*tensor.dims, *term.dummies), work)
        count, width = count + own, width + terms
    work.known[tensor.key] = width
    return count


def _within(head: Head, work: Work) -> int:
    """The bodies of a head, and its entries."""
    bodies = head.bodies if isinstance(head, Apply) else head.parts if isinstance(head, LogSumExp) else ()
    inside = sum(work_of(body, work) for body in bodies)
    return inside + sum(work.entries(body.dims) * max(1, work.known[body.key]) for body in bodies)


def _counted(part: Elimination | Factor, dims: tuple[str, ...], work: Work) -> tuple[int, int]:
    """The work of a part, and the number of terms that an entry of it has: none for numbers."""
    if isinstance(part, Factor):
        return 0, 0 if _is_data(part.head) or isinstance(part.head, Delta) else 1
    if part.key in work.known:
        return 0, work.known[part.key]
    pairs = [_counted(child, dims, work) for child in part.children]
    widths = [width for _, width in pairs if width]
    terms = widths[0] if len(widths) == 1 else min(1, len(widths))  # two sums multiplied become one node
    each = max(len(part.children), sum(widths), 1)
    entries = math.prod(work.sizes[dims[i]] for i in part.indices) * part.size
    work.known[part.key] = part.size * terms
    return sum(count for count, _ in pairs) + entries * each, part.size * terms
