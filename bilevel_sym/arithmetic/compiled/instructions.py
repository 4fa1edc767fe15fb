"""Programs for the compiled interpreter: the same steps as ``arrays`` performs, written as instructions."""

from __future__ import annotations

from array import array
from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from itertools import chain, groupby
from typing import Any, TypeAlias

import numpy as np
from flint import fmpq
from numpy.typing import NDArray

from bilevel_sym.arithmetic.arrays import dense, nearest
from bilevel_sym.arithmetic.compiled import elementwise, interpreter, vectors
from bilevel_sym.graph.nodes import Parameter
from bilevel_sym.graph.program import Row, Step
from bilevel_sym.typing import Floats

__all__ = ["LONG_ROW", "Code", "Encoded", "Group", "Integers", "Sum", "encode", "group_of"]

Integers: TypeAlias = NDArray[np.int64]
Code = tuple[Integers, Integers, Floats]
Sum = tuple[tuple[tuple[tuple[int, int], fmpq], ...], Row]  # products ((place, place), coefficient), then terms
Instruction = tuple[int, int, int, int, int, int]
LONG_ROW = 8  # terms of a row that may share a matrix product with others; shorter sums are one chain of additions
FILL = 8  # rows of such a product are filled up to a multiple of this
NEARLY = 0.7  # the part of the product's columns that a row must read itself


class Encoded:
    """The steps of one stage as instructions, and as a call that performs them on the table of values.

    >>> from bilevel_sym.graph.program import Step
    >>> work = np.array([[1.0, 1.0], [2.0, 3.0], [0.0, 0.0]])
    >>> Encoded([Step("mul", 2, 1, (), ((1,), (1,)))])(work)
    >>> work[2]
    array([4., 9.])
    """

    def __init__(self, steps: Sequence[Step]) -> None:
        self._groups = [group_of(step) for step in steps]

    @cached_property
    def code(self) -> Code:
        """The program for lanes."""
        return encode(self._groups)

    @cached_property
    def one_point(self) -> Code:
        """The program for one point."""
        return encode(self._groups, one_point=True)

    def __call__(self, work: Floats) -> None:
        """Perform the stage on every lane."""
        if work.shape[1] == 1:
            interpreter.run(*self.one_point, work.reshape(-1))
        elif work.shape[1] >= vectors.WIDTH:
            interpreter.run(*self.code, work)
        else:
            filled = np.concatenate([work, np.repeat(work[:, :1], vectors.WIDTH - work.shape[1], axis=1)], axis=1)
            interpreter.run(*self.code, filled)
            work[...] = filled[:, : work.shape[1]]


@dataclass(frozen=True)
class Group:
    """Like instructions that do not read one another: destinations, and what each reads.

    A "lin" group has rows, a "sum" group (products, row) with products ((place, place),
    coefficient); the others have a tuple of places an entry.
    """

    op: str
    parameter: Parameter
    to: tuple[int, ...]
    reads: tuple[Any, ...]


def group_of(step: Step) -> Group:
    """A step of a program as one group.

    >>> from bilevel_sym.graph.program import Step
    >>> group_of(Step("mul", 3, 1, (), ((1,), (2,)))).reads
    ((1, 2),)
    """
    reads = step.rows if step.op == "lin" else tuple(zip(*step.sources, strict=True))
    return Group(step.op, step.parameter, tuple(step.places), reads)


def encode(groups: Iterable[Group], *, one_point: bool = False) -> Code:
    """Groups as the three arrays that ``interpreter`` reads; for one point where ``one_point``, with blocks of entries.

    >>> table, places, _ = encode([Group("mul", (), (3,), ((1, 2),))])
    >>> places.tolist()
    [3, 1, 2]
    """
    writer = _Writer(one_point)
    for group in groups:
        if group.op == "lin":
            _encode_rows(dict(zip(group.to, group.reads, strict=True)), writer)
        elif group.op == "sum":
            _encode_sums(dict(zip(group.to, group.reads, strict=True)), writer)
        else:
            p, q = (*group.parameter, 0, 0)[:2]
            entries = [(to, *reads) for to, reads in zip(group.to, group.reads, strict=True)]
            writer.add(elementwise.CODES[group.op], p, q, entries)
    return writer.code


class _Writer:
    """The three arrays of a program as they grow."""

    def __init__(self, one_point: bool) -> None:
        self._one_point = one_point
        self._table: list[Instruction] = []
        self._places: list[int] = []
        self._coefficients = array("d")

    @property
    def code(self) -> Code:
        return (
            np.array(self._table, dtype=np.int64).reshape(-1, 6),
            np.array(self._places, dtype=np.int64),
            # the last rows of a matrix are read together with what follows them
            np.array([*self._coefficients, *[0.0] * 32]),
        )

    def add(
        self, op: int, p: int, q: int, entries: Sequence[tuple[int, ...]], weights: Sequence[Sequence[float]] = ()
    ) -> None:
        """Like entries, each with its coefficients, if it has any."""
        start, offset = len(self._places), len(self._coefficients)
        wide = min(8, len(entries)) // 4 * 4 if self._one_point and _in_blocks(op, p, q) else 0
        if wide == 0:
            self._table.append((op, len(entries), start, p, q, offset))
            self._places.extend(chain.from_iterable(entries))
            self._coefficients.extend(chain.from_iterable(weights))
            return
        firsts = [*range(0, len(entries) - wide, wide), len(entries) - wide]
        code = op + (elementwise.EIGHTS if wide == 8 else elementwise.FOURS)
        self._table.append((code, len(firsts), start, p, q, offset))
        columns = [column for k in firsts for column in zip(*entries[k : k + wide], strict=True)]
        lists: list[int] = []
        for column in columns:
            in_a_row = column == tuple(range(column[0], column[0] + wide))
            self._places.append(column[0] if in_a_row else -1 - len(columns) - len(lists))
            lists.extend(() if in_a_row else column)
        self._places.extend(lists)
        for k in firsts:
            self._coefficients.extend(chain.from_iterable(zip(*weights[k : k + wide], strict=True)))

    def add_matrix(self, columns: Sequence[int], to: Sequence[int], matrix: Floats) -> None:
        """Combinations of the same places."""
        filled = -(-len(to) // FILL) * FILL
        turned = np.zeros((len(columns), filled))
        turned[:, : len(to)] = matrix.T
        place, offset = len(self._places), len(self._coefficients)
        self._table.append((elementwise.DENSE, len(to), place, len(columns), filled, offset))
        self._places.extend((*columns, *to))
        self._coefficients.extend(turned.ravel())


def _in_blocks(op: int, p: int, q: int) -> bool:
    """Whether one point takes several entries of the kind at a time: not those of the C library, nor long sums."""
    if op in (elementwise.LIN, elementwise.PLAIN, elementwise.SUM):
        return max(p, q) < LONG_ROW
    return op <= elementwise.LAST_VECTOR and not (op == elementwise.RPOW and q != 2)


def _encode_rows(rows: Mapping[int, Row], writer: _Writer) -> None:
    """Rows that read the same places become one product with a matrix; the others go by their numbers of terms."""
    alike, others = _alike(rows)
    for members in alike:
        columns, matrix = dense([rows[to] for to in members])
        writer.add_matrix(columns, members, matrix)
    for terms, group in groupby(sorted(others, key=lambda to: (len(rows[to]), to)), key=lambda to: len(rows[to])):
        members = list(group)
        entries = [(to, *rows[to].places) for to in members]
        writer.add(elementwise.LIN, terms, 0, entries, [[nearest(c) for c in rows[to].coefficients] for to in members])


def _encode_sums(sums: Mapping[int, Sum], writer: _Writer) -> None:
    """Sums by their numbers of products and terms; those whose products have no coefficients apart."""

    def shape(to: int) -> tuple[bool, int, int]:
        products, row = sums[to]
        return all(c == 1 for _, c in products), len(row), len(products)

    for (plain, terms, factors), group in groupby(sorted(sums, key=lambda to: (*shape(to), to)), key=shape):
        entries, weights = [], []
        for to in group:
            products, row = sums[to]
            entries.append((to, *(place for pair, _ in products for place in pair), *row.places))
            weights.append([nearest(c) for _, c in (row if plain else (*products, *row))])
        writer.add(elementwise.PLAIN if plain else elementwise.SUM, terms, factors, entries, weights)


def _alike(rows: Mapping[int, Row]) -> tuple[list[list[int]], list[int]]:
    """Groups of rows that read nearly the same places, worth a matrix product; and the other rows."""
    groups: list[tuple[set[int], list[int]]] = []
    reading = defaultdict[int, list[tuple[set[int], list[int]]]](list)  # the groups that read a place
    alone: list[int] = []
    for to, row in sorted(rows.items(), key=lambda item: -len(item[1])):  # the longest first: the others fit in
        reads = set(row.places)
        # few groups read what was computed last
        home = next((g for g in reading[max(reads)] if reads <= g[0] and len(reads) >= NEARLY * len(g[0])), None)
        if home is not None:
            home[1].append(to)
        elif len(reads) >= LONG_ROW:
            groups.append((reads, [to]))
            for place in reads:
                reading[place].append(groups[-1])
        else:
            alone.append(to)
    alone += [members[0] for _, members in groups if len(members) == 1]
    return [sorted(members) for _, members in groups if len(members) > 1], alone
