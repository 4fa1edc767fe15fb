"""Norms of tensors over unit vectors, bounded from both sides: |T| is the largest T[u, v, w, ...] of unit vectors.

A block of derivatives is symmetric in each of its groups of equal axes, and then (Banach) equal vectors attain the
norm. Along a great circle a form of degree p is a trigonometric polynomial of degree p. By M. Riesz it falls from its
maximum no faster than cos(p t), so a net of directions with covering radius t bounds the norm: divide by cos(p t).
In more than three dimensions a net is too large; there the spectral norm of an unfolding is the bound.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from functools import lru_cache, reduce
from itertools import combinations
from typing import Any

import numpy as np
from flint import arb

from bilevel_sym.typing import Floats
from verify.enclosures.interval_matrix import Matrices

__all__ = ["largest_values", "norm3_upper", "norm_lower", "norm_upper", "worst_directions"]

Group = tuple[int, int]  # dimension and degree: so many equal axes of one length
_SLACK = 1 + 1e-13  # for directions that are unit vectors up to rounding
_CIRCLE, _CUBE_COARSE, _CUBE_FINE = 96, 14, 54  # directions on half a circle; on an edge of a cube
_DEEP = 20_000  # numbers in a table of one lane, beyond which nets are not used
_NORM_NUMBERS = 2**22  # numbers in a table that is made at once


def norm3_upper(middle: Floats, radius: Floats, *, symmetric: bool = False, aim: float = math.inf) -> Floats:
    """An upper bound of |T| for all T within the radius of the middle, (lanes, a, b, c) -> (lanes,).

    ``symmetric``: only symmetric tensors are meant, and the bound may use it. See ``norm_upper`` for ``aim``.

    >>> middle = np.zeros((1, 2, 2, 2))
    >>> middle[0, 0, 0, 0] = 2.0
    >>> bound = norm3_upper(middle, np.zeros_like(middle), symmetric=True)
    >>> bool(2.0 <= bound[0] < 2.01)
    True
    """
    shape = middle.shape[1:]
    groups = ((shape[0], 3),) if symmetric else tuple((size, 1) for size in shape)
    return norm_upper(middle, radius, groups, aim=aim)


def norm_upper(
    middle: Floats, radius: Floats, groups: Sequence[Group], *, aim: float = math.inf, thorough: bool = False
) -> Floats:
    """An upper bound of |T|, (lanes, axes in the order of the groups) -> (lanes,); inf where nothing is known.

    ``groups`` are the (dimension, degree) of the axes in which the tensors meant are symmetric, neighbours all.
    ``aim``: bounds that are below it are left a little coarser, and, unless ``thorough``, those that cannot come below.

    >>> norm_upper(np.array([[3.0, 4.0]]), np.zeros((1, 2)), [(2, 1)]).round(6).tolist()
    [5.0]
    """
    lanes = len(middle)
    groups = tuple((size, degree) for size, degree in groups if size > 1)
    shape = [size for size, degree in groups for _ in range(degree)]
    middle, radius = middle.reshape(lanes, *shape), radius.reshape(lanes, *shape)
    with np.errstate(all="ignore"):
        flat = len(shape) <= 2
        bound = _matrix_norm(middle, radius) if flat else _tensor_norm(middle, radius, groups, aim, thorough)
    return np.where(np.isnan(bound), np.inf, bound)


def _matrix_norm(middle: Floats, radius: Floats) -> Floats:
    if middle.ndim == 1:
        return np.asarray((np.abs(middle) + radius) * (1 + 3e-16))
    if middle.ndim == 2:
        middle, radius = middle[:, :, None], radius[:, :, None]
    return Matrices(middle, radius).norm_upper()


def _tensor_norm(middle: Floats, radius: Floats, groups: Sequence[Group], aim: float, thorough: bool) -> Floats:
    """Unfoldings, then a coarse net, then a fine one where that may bring the bound below the aim."""
    bound = _by_unfolding(middle, radius)
    for fine in (False, True):
        if (plan := _plan(groups, fine)) is None:
            break
        wanted = np.isfinite(bound)
        if fine:
            wanted &= bound > aim
            if not thorough:
                wanted &= bound * _falls(groups, fine=False) <= aim
        factor, directions = plan
        for lanes in _slices(np.flatnonzero(wanted), directions, middle[0].size):
            bound[lanes] = np.fmin(bound[lanes], _by_net(middle[lanes], radius[lanes], groups, fine) * factor)
    return bound


def _slices(lanes: Any, columns: int, size: int) -> list[Any]:
    count = max(1, _NORM_NUMBERS // max(columns * size, 1))
    return [lanes[start : start + count] for start in range(0, len(lanes), count)]


def _by_unfolding(middle: Floats, radius: Floats) -> Floats:
    """The least spectral norm of the unfoldings into a matrix, each of which bounds |T|."""
    axes = range(1, middle.ndim)
    bound = np.full(len(middle), np.inf)
    seen = set()
    for count in range(1, (middle.ndim - 1) // 2 + 1):
        for rows in combinations(axes, count):
            rest = tuple(axis for axis in axes if axis not in rows)
            key = (tuple(middle.shape[a] for a in rows), tuple(middle.shape[a] for a in rest))
            if key in seen:  # of equal axes one will do
                continue
            seen.add(key)
            first = math.prod(middle.shape[a] for a in rows)
            turned = [part.transpose(0, *rows, *rest).reshape(len(part), first, -1) for part in (middle, radius)]
            bound = np.fmin(bound, Matrices(*turned).norm_upper())
    return bound


# ---------------------------------------------------------------------- nets


def _netted(groups: Sequence[Group]) -> list[bool]:
    """Which groups are run through a net: all but one of degree 1 (a vector), or two (a matrix)."""
    linear = [k for k, (_, degree) in enumerate(groups) if degree == 1]
    linear = sorted(linear, key=lambda k: -groups[k][0])[:2]
    return [k not in linear for k in range(len(groups))]


def _plan(groups: Sequence[Group], fine: bool) -> tuple[float, int] | None:
    """The factor that a net costs, and how many directions it has; None where there is no such net."""
    netted = [group for group, through in zip(groups, _netted(groups), strict=True) if through]
    if not netted or any(size > 3 for size, _ in netted) or (fine and all(size == 2 for size, _ in netted)):
        return None
    count = math.prod(len(_net(size, fine)[0]) for size, _ in netted)
    if count > _DEEP:
        return None
    return _SLACK / _falls(groups, fine=fine), count


def _falls(groups: Sequence[Group], *, fine: bool) -> float:
    """How far a form can fall from its maximum to the nearest direction of the net."""
    netted = [group for group, through in zip(groups, _netted(groups), strict=True) if through]
    return math.prod(math.cos(degree * _net(size, fine)[1]) for size, degree in netted) * (1 - 1e-12)


@lru_cache(16)
def _net(size: int, fine: bool) -> tuple[Floats, float]:
    """Unit vectors, and a bound of the angle from any line through zero to the nearest of them."""
    if size == 2:
        turns = (np.arange(_CIRCLE) + 0.5) * (math.pi / _CIRCLE)
        return np.stack([np.cos(turns), np.sin(turns)], axis=1), 0.5 * math.pi / _CIRCLE + 1e-12
    edge = _CUBE_FINE if fine else _CUBE_COARSE
    grid = (2 * np.arange(edge) + 1) / edge - 1
    a, b = (table.ravel() for table in np.meshgrid(grid, grid))
    face = np.stack([np.ones_like(a), a, b], axis=1)
    points = np.concatenate([np.roll(face, turn, axis=1) for turn in range(3)])
    # on a face an angle is at most the distance, and the nearest grid point is half a diagonal away at most
    return points / np.linalg.norm(points, axis=1, keepdims=True), math.sqrt(2) / edge + 1e-12


@lru_cache(16)
def _powers(size: int, degree: int, fine: bool) -> Matrices:
    """The products of the entries of each direction, (1, size**degree, directions), with their rounding errors."""
    net = _net(size, fine)[0]
    table = reduce(lambda some, _: (some[:, :, None] * net[:, None, :]).reshape(len(net), -1), range(degree - 1), net)
    table = np.ascontiguousarray(table.T)[None]
    return Matrices(table, np.abs(table) * 1e-15 + 5e-324)


def _by_net(middle: Floats, radius: Floats, groups: Sequence[Group], fine: bool) -> Floats:
    """The largest norm of what remains when directions of the nets are put in, (lanes,)."""
    lanes = len(middle)
    netted = _netted(groups)
    ends = np.cumsum([1, *(degree for _, degree in groups)])
    order = [axis for flag in (False, True) for k, through in enumerate(netted) if through is flag
             for axis in range(ends[k], ends[k + 1])]  # fmt: skip
    left = [groups[k][0] for k, through in enumerate(netted) if not through]
    part = Matrices(*(np.ascontiguousarray(array.transpose(0, *order)) for array in (middle, radius)))
    head, columns = lanes * math.prod(left), 1
    for size, degree in reversed([group for group, through in zip(groups, netted, strict=True) if through]):
        # (head, rest, entries, directions that are done): the entries go last, and become directions too
        table = part.reshaped(head, -1, size**degree, columns)
        tall = Matrices(*(np.ascontiguousarray(array.swapaxes(2, 3)) for array in (table.middle, table.radius)))
        part = tall.reshaped(1, -1, size**degree) @ _powers(size, degree, fine)
        columns *= part.middle.shape[-1]
    return _largest(part.reshaped(lanes, math.prod(left), -1), left)


def _largest(parts: Matrices, left: Sequence[int]) -> Floats:
    """The largest norm over directions: of numbers, of vectors, or of matrices."""
    if len(left) < 2:
        size = np.sqrt(np.square(parts.magnitude).sum(axis=1)) * (1 + 1e-14) + 1e-150
        return np.asarray(size.max(axis=1))
    lanes, _, directions = parts.middle.shape
    turned = [np.moveaxis(array, 2, 1).reshape(-1, *left) for array in (parts.middle, parts.radius)]
    return np.asarray(Matrices(*turned).norm_upper().reshape(lanes, directions).max(axis=1))


# ---------------------------------------------------------------------- from below


def worst_directions(tensor: Floats, *, starts: int = 24, rounds: int = 40) -> tuple[float, list[Floats]]:
    """A value of |T[u, v, ...]| that is large, and its unit vectors, by alternating maximisation from several starts.

    >>> value, (u, v) = worst_directions(np.diag([1.0, -3.0]))
    >>> value, abs(u).tolist()
    (3.0, [0.0, 1.0])
    """
    if not np.isfinite(tensor).all():
        return math.nan, [np.ones(size) for size in tensor.shape]
    if tensor.ndim == 2:
        left, values, right = np.linalg.svd(tensor)
        return float(values[0]), [left[:, 0], right[0]]
    values, vectors = _alternate(tensor[None], starts, rounds if tensor.ndim > 1 else 1)
    best = int(values[0].argmax())
    return float(values[0, best]), [vector[0, best] for vector in vectors]


def largest_values(tensors: Floats) -> Floats:
    """About |T| for each lane, from below; for guessing, not for proofs."""
    finite = np.isfinite(tensors).reshape(len(tensors), -1).all(axis=1)
    safe = np.where(finite.reshape(-1, *[1] * (tensors.ndim - 1)), tensors, 0.0)
    if tensors.ndim <= 2 or (tensors.ndim == 3 and min(tensors.shape[1:]) == 1):
        values = np.hypot.reduce(safe.reshape(len(safe), -1), axis=1)  # no square is beyond float64
    elif tensors.ndim == 3:
        values = np.linalg.norm(safe, 2, axis=(1, 2))
    else:
        values = _alternate(safe, 3, 4)[0].max(axis=1)
    return np.where(finite, values, np.nan)


def _alternate(tensors: Floats, starts: int, rounds: int) -> tuple[Floats, list[Floats]]:
    """Each vector in turn becomes the image of the others: values (lanes, starts), vectors (lanes, starts, size)."""
    rng = np.random.default_rng(0)
    order, lanes = tensors.ndim - 1, len(tensors)
    vectors = [_unit(rng.standard_normal((lanes, starts, size))) for size in tensors.shape[1:]]
    _point_at_largest_entry(tensors, vectors)
    values = np.zeros((lanes, starts))
    for turn in range(order * rounds):
        axis = turn % order
        image = np.broadcast_to(np.moveaxis(tensors, axis + 1, 1)[:, None], (lanes, starts, *_moved(tensors, axis)))
        for other in reversed([k for k in range(order) if k != axis]):
            image = (image @ vectors[other].reshape(lanes, starts, *[1] * (image.ndim - 4), -1, 1))[..., 0]
        values, before = np.linalg.norm(image, axis=2), values
        vectors[axis] = _unit(image)
        if axis == order - 1 and np.all(values <= before * (1 + 1e-13)):
            break
    return values, vectors


def _moved(tensors: Floats, axis: int) -> tuple[int, ...]:
    shape = tensors.shape[1:]
    return (shape[axis], *shape[:axis], *shape[axis + 1 :])


def _point_at_largest_entry(tensors: Floats, vectors: list[Floats]) -> None:
    """The first start: unit vectors of the largest entry, which is often the answer."""
    shape = tensors.shape[1:]
    places = np.unravel_index(np.abs(tensors).reshape(len(tensors), -1).argmax(axis=1), shape)
    for vector, place in zip(vectors, places, strict=True):
        vector[:, 0] = 0.02 * vector[:, 0]
        vector[np.arange(len(tensors)), 0, place] += 1.0
        vector[:, 0] = _unit(vector[:, 0])


def _unit(vectors: Floats) -> Floats:
    length = np.linalg.norm(vectors, axis=-1, keepdims=True)
    return np.asarray(vectors / np.where(length > 0, length, 1.0))


def norm_lower(entries: Sequence[Any], shape: Sequence[int]) -> Any:
    """A ball below |T| for a tensor of balls, at the precision that is set; nan where an entry is not finite.

    >>> float(norm_lower([arb(3), arb(0), arb(0), arb(-4)], (2, 2)).lower()) > 3.99
    True
    """
    middle = np.array([float(entry.mid()) for entry in entries]).reshape(tuple(shape))
    if not np.isfinite(middle).all():
        return arb("nan")
    if not shape:
        return abs(entries[0])
    vectors = worst_directions(middle)[1]
    values = list(entries)
    for vector in reversed(vectors):
        numbers = [arb(float(v)) for v in vector]
        size = len(numbers)
        values = [
            sum((values[k * size + j] * numbers[j] for j in range(size) if vector[j]), arb(0))
            for k in range(len(values) // size)
        ]
    lengths = [sum((arb(float(v)) * arb(float(v)) for v in vector), arb(0)) for vector in vectors]
    return abs(values[0]) / reduce(lambda a, b: a * b, lengths).sqrt()
