"""Blocks of higher derivatives in pieces: what no entry connects is bounded apart, whatever the whole would be in size.

T[u, v, w, ...] of a block falls into a sum over pieces of the variables along two of its axes or more. By Cauchy and
Schwarz |T| is then the largest norm of a piece: the sum of |T_c| |v_c| |w_c| over the pieces c is at most max |T_c|.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping
from math import prod

from bilevel_sym.implicit.model import Model
from verify.enclosures.memory import LARGEST, entries_of, is_sparse

__all__ = ["Piece", "pieces_of"]

Piece = Mapping[str, tuple[int, ...]]  # the variables of the axes x and y


def pieces_of(model: Model, name: str) -> tuple[Piece, ...]:
    """The pieces of a block that is too large to be bounded as a whole; none where it need not, or cannot, be parted.

    >>> import sympy as sp
    >>> x, y = sp.symbols("x"), sp.symbols("y:60")
    >>> model = Model(x*y[0], sum(sp.exp(x)*v**4 for v in y), [x], y)
    >>> len(pieces_of(model, "g_xyyy")), pieces_of(model, "g_yyy")[1], pieces_of(model, "g_yy")
    (60, {'y': (2,)}, ())
    """
    axes = name[2:]
    whole = entries_of(name, model.length("x"), model.length("y"))
    if "z" in axes or len(axes) < 3 or whole <= LARGEST or model.patterns is not None or not is_sparse(model, name):
        return ()
    parted = [_pieces(model, name, axis) for axis in "xy" if axes.count(axis) >= 2]
    best = min(parted, key=lambda pieces: _largest(axes, pieces))
    return best if _largest(axes, best) <= LARGEST else ()


def _largest(axes: str, pieces: Iterable[Piece]) -> int:
    """The entries of the largest one."""
    return max((prod(len(piece[axis]) for axis in axes) for piece in pieces), default=0)


def _pieces(model: Model, name: str, axis: str) -> tuple[Piece, ...]:
    """Those that the variables of one axis fall into: two that share an entry are in one."""
    axes, places = name[2:], model.places(name)
    own = [k for k, letter in enumerate(axes) if letter == axis]
    first = _connected([place[k] for k in own] for place in places)
    found: dict[int, dict[str, set[int]]] = defaultdict(lambda: defaultdict(set))
    for place in places:
        for letter, index in zip(axes, place, strict=True):
            found[first[place[own[0]]]][letter].add({"x": model.x, "y": model.y}[letter][index])
    return tuple({letter: tuple(sorted(v)) for letter, v in found[root].items()} for root in sorted(found))


def _connected(groups: Iterable[Iterable[int]]) -> dict[int, int]:
    """For each number the least of those that groups connect it with.

    >>> _connected([[3, 1], [4, 4], [1, 0]])
    {3: 0, 1: 0, 4: 4, 0: 0}
    """
    parent: dict[int, int] = {}

    def root(k: int) -> int:
        while parent.setdefault(k, k) != k:
            k = parent[k]
        return k

    for group in groups:
        roots = [root(k) for k in group]
        for k in roots:
            parent[k] = min(roots)
    return {k: root(k) for k in parent}
