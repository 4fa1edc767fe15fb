"""A box cut into pieces by a fixed rule: the largest piece first, halved across its longest edge."""

from __future__ import annotations

import heapq
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.problem.box import Box
from bilevel_sym.problem.problem import BilevelProblem

if TYPE_CHECKING:
    import sympy as sp

    Edge = tuple[sp.Rational, sp.Rational]

__all__ = ["piece_of"]


def piece_of(problem: BilevelProblem, split: int, piece: int, *, y: bool) -> Box:
    """One of ``split`` pieces of a problem's box; with ``y`` it is cut across the variables of y too.

    Edges are measured relative to those of the whole box, and of equal ones the first counts, so that the pieces are a
    function of the box and of their number alone.

    - ``problem``: has a box.
    - ``split``: how many pieces there are.
    - ``piece``: which one, from 0.
    - ``y``: whether variables of y are cut.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    >>> [piece_of(problem, 2, k, y=True) for k in (0, 1)]
    [Box({'x': (-1, 0), 'y': (-1, 1)}), Box({'x': (0, 1), 'y': (-1, 1)})]
    """
    if problem.box is None:
        raise InvalidArgument("split: the problem has no box to be split", hint="give it one: box = {x = [-1, 1], ...}")
    names = [name for name, _ in problem.box.items()]
    upper = {name for name, _ in problem.entries_by_array("x")}
    cut = [k for k, name in enumerate(names) if y or name in upper]
    return Box(dict(zip(names, _pieces(list(problem.box), cut, split)[piece], strict=True)))


def _pieces(whole: Sequence[Edge], cut: Sequence[int], count: int) -> list[tuple[Edge, ...]]:
    sizes = [high - low for low, high in whole]
    cut = [k for k in cut if sizes[k] > 0]
    if not cut and count > 1:
        raise InvalidArgument("split: the box is a single point", hint="split = 1")
    # (largest first, in the order in which they were made)
    heap: list[tuple[Any, int, tuple[Edge, ...]]] = [(-1, 0, tuple(whole))]
    made = 1
    while len(heap) < count:
        volume, _, piece = heapq.heappop(heap)
        longest = max(cut, key=lambda k: ((piece[k][1] - piece[k][0]) / sizes[k], -k))
        low, high = piece[longest]
        for ends in ((low, (low + high) / 2), ((low + high) / 2, high)):
            heapq.heappush(heap, (volume / 2, made, (*piece[:longest], ends, *piece[longest + 1 :])))
            made += 1
    return [piece for _, _, piece in sorted(heap, key=lambda entry: entry[1])]
