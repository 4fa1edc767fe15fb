"""The canonical form of a product: two products that differ in the names of summed indices and in order become one.

A product is a graph: factors are joined by the indices that they share. Factors that share no summed index are looked
at apart. Within such a component summed indices are told apart by colours (which heads have them, in which slots,
beside which colours), refined until nothing changes; where a colour is shared, each of its indices is singled out in
turn, and the smallest result counts. That is exact: greedy renaming is not.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping, Sequence

from bilevel_sym.arrays.tensor import Factor

Encoding = tuple[tuple[str, tuple[int, ...]], ...]
Colours = dict[int, int]


def canonical_factors(
    factors: Sequence[Factor], rank: int, dims: Mapping[int, str]
) -> tuple[tuple[Factor, ...], tuple[str, ...]]:
    """The factors in canonical order with summed indices renamed to rank, rank + 1, ..., and the dimensions of those.

    factors: heads with indices; those below ``rank`` are free
    rank: how many indices are free
    dims: the dimension of every index that is summed

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> A, y = Leaf("A", ("m", "n"), "data"), Leaf("y", ("n",), "y")
    >>> canonical_factors([Factor(y, (7,)), Factor(A, (0, 7))], 1, {7: "n"})[0][0].key
    'A(0,1)'
    """
    parts = sorted(_encoded(part, rank, dims) for part in _components(factors, rank))
    heads = {factor.head.key: factor.head for factor in factors}
    result: list[Factor] = []
    names: list[str] = []
    for encoding, own in parts:
        shift = len(names)
        result += [
            Factor(heads[key], tuple(i if i < rank else i + shift for i in indices)) for key, indices in encoding
        ]
        names += own
    return tuple(result), tuple(names)


def _components(factors: Sequence[Factor], rank: int) -> list[list[Factor]]:
    """The factors in groups that share no summed index."""
    groups: list[tuple[set[int], list[Factor]]] = []
    free: list[list[Factor]] = []
    for factor in factors:
        summed = {i for i in factor.indices if i >= rank}
        if not summed:
            free.append([factor])
            continue
        joined = [group for group in groups if group[0] & summed]
        groups = [group for group in groups if not group[0] & summed]
        merged = summed.union(*(indices for indices, _ in joined))
        groups.append((merged, [*(f for _, members in joined for f in members), factor]))
    return free + [members for _, members in groups]


def _encoded(factors: Sequence[Factor], rank: int, dims: Mapping[int, str]) -> tuple[Encoding, tuple[str, ...]]:
    summed = sorted({i for factor in factors for i in factor.indices if i >= rank})
    if len(summed) < 2:  # nothing to tell apart
        return _encoding(factors, rank, dict.fromkeys(summed, rank)), tuple(dims[i] for i in summed)
    names = sorted({dims[i] for i in summed})
    colours = {i: names.index(dims[i]) for i in summed}
    encoding, order = _smallest(factors, rank, _refined(factors, rank, colours))
    return encoding, tuple(dims[i] for i in order)


def _smallest(factors: Sequence[Factor], rank: int, colours: Colours) -> tuple[Encoding, list[int]]:
    """The smallest encoding, and the summed indices in its order."""
    shared = _shared(colours)
    if not shared:
        order = sorted(colours, key=colours.__getitem__)
        return _encoding(factors, rank, {i: rank + k for k, i in enumerate(order)}), order
    if known := _alone(colours):
        return _apart(factors, rank, colours, known)
    attempts = []
    for chosen in shared:
        told_apart = {i: 2 * colour + (i != chosen) for i, colour in colours.items()}
        attempts.append(_smallest(factors, rank, _refined(factors, rank, told_apart)))
    return min(attempts, key=lambda attempt: attempt[0])


def _alone(colours: Colours) -> list[int]:
    """The indices whose colour nobody else has, by colour."""
    counts = Counter(colours.values())
    return sorted((i for i, colour in colours.items() if counts[colour] == 1), key=colours.__getitem__)


def _apart(factors: Sequence[Factor], rank: int, colours: Colours, known: Sequence[int]) -> tuple[Encoding, list[int]]:
    """Indices that are known are as good as free: what only they join is looked at apart, and k equal parts do not
    cost k! orders."""
    larger, offset = rank + len(known), len(known)
    names = {i: rank + k for k, i in enumerate(known)}
    names |= {i: i + offset for i in colours if i not in names}
    renamed = [Factor(head, tuple(names.get(i, i) for i in own)) for head, own in factors]
    parts = []
    for part in _components(renamed, larger):
        inside = {i for _, own in part for i in own if i >= larger}
        encoding, order = _smallest(part, larger, {i: colours[i - offset] for i in inside})
        parts.append((encoding, [i - offset for i in order]))
    order = [*known, *(i for _, own in sorted(parts, key=lambda part: part[0]) for i in own)]
    return _encoding(factors, rank, {i: rank + k for k, i in enumerate(order)}), order


def _shared(colours: Colours) -> list[int]:
    """The indices of the first colour that more than one has."""
    classes: dict[int, list[int]] = {}
    for index, colour in colours.items():
        classes.setdefault(colour, []).append(index)
    return next((classes[colour] for colour in sorted(classes) if len(classes[colour]) > 1), [])


def _refined(factors: Sequence[Factor], rank: int, colours: Colours) -> Colours:
    count = len(set(colours.values()))
    while True:
        seen: dict[int, list[tuple[object, ...]]] = {i: [] for i in colours}
        for factor in factors:
            around = tuple(colours[i] if i >= rank else i - rank for i in factor.indices)
            symmetric = factor.head.symmetric
            view = tuple(sorted(around)) if symmetric else around
            for slot, i in enumerate(factor.indices):
                if i >= rank:
                    seen[i].append((factor.head.key, 0 if symmetric else slot, view))
        signatures = {i: (colours[i], tuple(sorted(seen[i]))) for i in colours}
        ranks = {signature: k for k, signature in enumerate(sorted(set(signatures.values())))}
        colours = {i: ranks[signatures[i]] for i in colours}
        if len(ranks) == count:
            return colours
        count = len(ranks)


def _encoding(factors: Sequence[Factor], rank: int, names: Mapping[int, int]) -> Encoding:
    rows = []
    for head, indices in factors:
        renamed = tuple(i if i < rank else names[i] for i in indices)
        rows.append((head.key, tuple(sorted(renamed)) if head.symmetric else renamed))
    return tuple(sorted(rows))
