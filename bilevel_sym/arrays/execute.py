"""Steps in NumPy. A value has the axes of its step behind any number of leading ones, which are points.

Data have no leading axes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import partial
from types import MappingProxyType
from typing import Any, Literal, TypeAlias, cast

import numpy as np

from bilevel_sym.arrays.plan import DATA, Step
from bilevel_sym.arrays.sparse_steps import densely, plain, scaled_sparse, sparse_product
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.typing import Floats

__all__ = ["BLOCK", "LaneProducts", "OnViews", "embedded", "kernel_of", "treats_lanes_alike"]

FEW_ENTRIES = 500
SMALL_SUM = 10_000  # entries up to which sums need no care for temporary arrays
SMALL_GRAM = 200  # columns below which blocks cost more than they save
BLOCKS = 5
LAYER = 500  # rows of a narrow matrix that are weighted and multiplied at a time
MANY = 8  # such layers from which on it pays
BLOCK = 8  # points in a product of one fixed shape
LaneProducts: TypeAlias = Literal["together", "blocks", "each"]
Kernel = Callable[..., Any]
Place = Callable[[Any], Any]


class OnViews:
    """A function of views of its arguments: who calls it with the same arrays again need not make them again.

    - ``function``: of two arrays.
    - ``first``: the view of the first argument; None for itself.
    - ``second``: that of the second.

    >>> OnViews(np.subtract, None, np.transpose)(np.eye(2), np.array([[0.0, 1.0], [2.0, 0.0]]))
    array([[ 1., -2.],
           [-1.,  1.]])
    """

    def __init__(self, function: Kernel, first: Place | None, second: Place | None) -> None:
        self.function, self._first, self._second = function, first, second

    def __call__(self, a: Any, b: Any) -> Any:
        """The function of the views."""
        return self.function(*self.views(a, b))

    def views(self, a: Any, b: Any) -> tuple[Any, Any]:
        """What the function is called with."""
        return _view(self._first, a), _view(self._second, b)


def kernel_of(step: Step, args: Sequence[Step], products: LaneProducts = "together") -> Kernel:
    """The function that performs a step on the values of its arguments.

    ``products`` says how data are multiplied with vectors of many points. "together": as one product of matrices, whose
    bits depend on how many points there are. "blocks": in products of ``BLOCK`` points, filled up with zeros, so that a
    point has the same bits among any others. "each": a product of a matrix and a vector for each point.

    >>> kernel_of(Step("sum", (0,), (-1,), (), 0), [Step("leaf", (), ("y",), (2,), 0)])(np.array([1.0, 2.0])).item()
    3.0
    """
    if step.kind == "contract":
        return _contract(step, args, products)
    return _KERNELS[step.kind](step, args)


def _fill(step: Step, args: Sequence[Step]) -> Kernel:
    (number,) = step.parameter
    return lambda: np.full(step.shape, number)


def _apply(step: Step, args: Sequence[Step]) -> Kernel:
    op, parameter = cast("tuple[str, tuple[int, ...]]", step.parameter)
    if op == "pi":
        return lambda: np.float64(np.pi)
    rule = _in_few_calls(op) if step.entries <= FEW_ENTRIES else None
    rule = rule or OPERATIONS[op].rule("numpy")
    dense = [densely if arg.sparse else None for arg in args]
    if any(dense):
        return lambda *values: rule(*(d(v) if d else v for d, v in zip(dense, values, strict=True)), *parameter)
    if op == "ipow" and parameter[0] in (-1, 2):
        return np.reciprocal if parameter[0] == -1 else np.square
    if op == "rpow" and parameter == (1, 2):
        return np.sqrt
    if op in ("ipow", "rpow"):  # these write into arrays
        return lambda value: rule(np.asarray(value), *parameter)
    return rule


def _in_few_calls(op: str) -> Kernel | None:
    """The same function in fewer calls, for arrays on which a call costs more than its arithmetic."""
    if op == "sigmoid":
        from scipy.special import expit

        return cast("Kernel", expit)
    return _bell if op == "bell" else partial(np.logaddexp, 0.0) if op == "softplus" else None


def _bell(value: Any) -> Any:
    return 0.25 / np.square(np.cosh(0.5 * value))


def _logsumexp(step: Step, args: Sequence[Step]) -> Kernel:
    (rank,) = cast("tuple[int]", step.parameter)
    axes = [tuple(range(rank - len(arg.shape), 0)) for arg in args]

    def kernel(*parts: Floats) -> Floats:
        # where one part alone is summed, its largest entry; else the largest of all, so that no exponential exceeds one
        tops = [part.max(axis=own, keepdims=True) if own else part for part, own in zip(parts, axes, strict=True)]
        flat = [_without(top, own) for top, own in zip(tops, axes, strict=True)]
        largest = flat[0]
        for top in flat[1:]:
            largest = np.maximum(largest, top)
        total = np.zeros_like(largest)
        for part, own in zip(parts, axes, strict=True):
            shifted = np.exp(part - largest[(..., *(None,) * len(own))])
            total = total + (shifted.sum(axis=own) if own else shifted)
        return np.asarray(largest + np.log(total))

    return kernel


def _without(array: Floats, axes: tuple[int, ...]) -> Floats:
    return array.reshape(array.shape[: array.ndim - len(axes)])


def _transpose(step: Step, args: Sequence[Step]) -> Kernel:
    order = cast("tuple[int, ...]", step.parameter)
    if step.sparse:
        return lambda value: value.T
    return _reordered(order)


def _reordered(order: Sequence[int]) -> Place:
    """The last axes in another order."""
    rank = len(order)
    if list(order) == list(range(rank)):
        return lambda value: value
    if rank == 2:
        return lambda value: value.swapaxes(-1, -2)

    def place(value: Floats) -> Floats:
        lead = value.ndim - rank
        return value.transpose(*range(lead), *(lead + k for k in order))

    return place


def _placed(places: Sequence[int], rank: int) -> Place | None:
    """A view with ``rank`` axes, those of the value at ``places``; None where the value has them already."""
    if list(places) == list(range(rank)):
        return None
    order = sorted(range(len(places)), key=places.__getitem__)
    turn = _reordered(order)
    index = (..., *(slice(None) if k in places else None for k in range(rank)))
    if list(order) == list(range(len(order))):
        return lambda value: value[index]
    return lambda value: turn(value)[index]


def _view(place: Place | None, value: Any) -> Any:
    return value if place is None else place(value)


def _multiply(step: Step, args: Sequence[Step]) -> Kernel:
    one, two = cast("tuple[tuple[int, ...], tuple[int, ...]]", step.parameter)
    if step.sparse:
        return scaled_sparse(two, args[1])
    rank = len(step.shape)
    first, second = _placed(one, rank), _placed(two, rank)
    if any(arg.sparse for arg in args):
        return lambda a, b: _view(first, plain(a)) * _view(second, plain(b))
    if first is None and second is None:
        return np.multiply
    return OnViews(np.multiply, first, second)


def _sum(step: Step, args: Sequence[Step]) -> Kernel:
    axes = cast("tuple[int, ...]", step.parameter)
    if args[0].sparse:
        return lambda value: np.asarray(value.sum() if len(axes) == 2 else value.sum(axis=axes[0])).reshape(step.shape)
    return lambda value: np.add.reduce(value, axis=axes)


def _diagonal(step: Step, args: Sequence[Step]) -> Kernel:
    (labels,) = cast("tuple[tuple[int, ...]]", step.parameter)
    out = list(dict.fromkeys(labels))
    if args[0].sparse:
        return lambda value: value.diagonal()
    return lambda value: np.einsum(value, [..., *labels], [..., *out])


def _combine(step: Step, args: Sequence[Step]) -> Kernel:
    rows, constant = cast("tuple[tuple[tuple[float, tuple[int, ...], Any], ...], float]", step.parameter)
    if step.sparse:
        return lambda value: value * rows[0][0]
    rank = len(step.shape)
    full = [not deltas and list(places) == list(range(rank)) for _, places, deltas in rows]
    if any(arg.sparse for arg in args):
        dense = _combine(step, [Step(a.kind, a.args, a.parameter, a.shape, a.stage) for a in args])
        return lambda *values: dense(*map(plain, values))
    if len(rows) == 1 and full[0]:
        coefficient = rows[0][0]
        if not constant:
            return np.negative if coefficient == -1.0 else partial(np.multiply, coefficient)
        return lambda value: value * coefficient + constant
    if len(rows) == 2 and all(full) and not constant and rows[1][0] in (1.0, -1.0) and rows[0][0] == 1.0:
        return np.add if rows[1][0] == 1.0 else np.subtract
    if len(rows) == 2 and all(full) and not constant and (rows[0][0], rows[1][0]) == (-1.0, 1.0):
        return lambda one, two: np.subtract(two, one)
    if not any(deltas for _, _, deltas in rows) and any(full) and step.entries <= SMALL_SUM:
        return _small_sum([(number, _placed(places, rank)) for number, places, _ in rows], constant)
    adders = [_adder(coefficient, places, deltas, rank) for coefficient, places, deltas in rows]
    start = full.index(True) if True in full else None
    ranks = [len(arg.shape) for arg in args]

    def kernel(*values: Floats) -> Floats:
        lead = np.broadcast_shapes(*(v.shape[: v.ndim - r] for v, r in zip(values, ranks, strict=True)))
        if start is None:
            total = np.full((*lead, *step.shape), constant)
        else:
            total = np.empty((*lead, *step.shape))
            np.multiply(values[start], rows[start][0], out=total)
            if constant:
                total += constant
        for k, (adder, value) in enumerate(zip(adders, values, strict=True)):
            if k != start:
                adder(total, value)
        return total

    return kernel


def _small_sum(rows: Sequence[tuple[float, Place | None]], constant: float) -> Kernel:
    def kernel(*values: Floats) -> Floats:
        total: Any = constant or None
        for (number, place), value in zip(rows, values, strict=True):
            part = value if place is None else place(value)
            part = part if number == 1.0 else number * part
            total = part if total is None else total + part
        return np.asarray(total)

    return kernel


def _adder(coefficient: float, places: tuple[int, ...], deltas: Any, rank: int) -> Callable[[Floats, Floats], None]:
    """Adds a multiple of a value to what stands where the deltas are one."""
    gone = {j for _, j in deltas}
    kept = [i for i in range(rank) if i not in gone]
    place = _placed(tuple(kept.index(i) for i in places), len(kept))
    target = embedded(rank, deltas)

    def add(total: Floats, value: Floats) -> None:
        part = _view(place, value)
        where = target(total)
        where += part if coefficient == 1.0 else coefficient * part

    return add


def embedded(rank: int, deltas: Any) -> Place:
    """The view of an array on which the second index of each delta equals its first.

    >>> matrix = np.zeros((2, 2))
    >>> embedded(2, ((0, 1),))(matrix)[...] = 1.0
    >>> matrix.tolist()
    [[1.0, 0.0], [0.0, 1.0]]
    """
    if not deltas:
        return lambda array: array
    names = {j: i for i, j in deltas}
    labels = [names.get(k, k) for k in range(rank)]
    out = [k for k in range(rank) if k not in names]
    return lambda array: np.einsum(array, [..., *labels], [..., *out])


# ---- products -------------------------------------------------------------------------------------------------------


def _contract(step: Step, args: Sequence[Step], products: LaneProducts) -> Kernel:
    one, two, out = cast("tuple[tuple[int, ...], tuple[int, ...], tuple[int, ...]]", step.parameter)
    summed = [k for k in one if k in two and k not in out]
    if any(arg.sparse for arg in args):
        return sparse_product(args, one, two, summed[0])
    both = [k for k in out if k in one and k in two]
    left, right = ([k for k in own if k not in other] for own, other in ((one, two), (two, one)))
    if not right:
        return _matrix_vector(step, args, one, two, both, left, summed, products)
    a = _merged_axes(one, both, left, summed, args[0].shape)
    b = _merged_axes(two, both, summed, right, args[1].shape)
    tail = step.shape[len(both) :]
    times = _product_side_by_side if products == "together" and not both and args[0].stage == DATA else np.matmul
    if len(left) == len(right) == 1:
        return lambda first, second: times(a(first), b(second))

    def kernel(first: Floats, second: Floats) -> Floats:
        product = times(a(first), b(second))
        return np.asarray(product.reshape(*product.shape[:-2], *tail))

    return kernel


def _product_side_by_side(matrix: Floats, others: Floats) -> Floats:
    """A matrix times each of many, (points, k, w), as one product: BLAS is twice as fast on one that is wide."""
    if others.ndim != 3:
        return np.asarray(np.matmul(matrix, others))
    points, k, width = others.shape
    product = matrix @ others.transpose(1, 0, 2).reshape(k, points * width)
    return product.reshape(len(matrix), points, width).transpose(1, 0, 2)


def _matrix_vector(
    step: Step,
    args: Sequence[Step],
    one: tuple[int, ...],
    two: tuple[int, ...],
    both: list[int],
    left: list[int],
    summed: list[int],
    products: LaneProducts,
) -> Kernel:
    """A product in which the second argument has no axis of its own.

    step: the step
    args: the steps of its arguments
    one: the labels of the first argument
    two: those of the second
    both: labels that the two share and keep
    left: labels of the first argument alone
    summed: labels that are summed over
    products: how data are multiplied with many points
    """
    vector = _merged_axes(two, both, [], summed, args[1].shape)
    if not left:
        matrix = _merged_axes(one, both, [], summed, args[0].shape)
        return OnViews(np.vecdot, matrix, vector)
    matrix = _merged_axes(one, both, left, summed, args[0].shape)
    tail = step.shape[len(both) :]
    times = _OVER_DATA[products] if not both and args[0].stage == DATA else np.matvec

    if len(tail) == 1:
        return OnViews(times, matrix, vector)

    def kernel(first: Floats, second: Floats) -> Floats:
        product = times(matrix(first), vector(second))
        return np.asarray(product.reshape(*product.shape[:-1], *tail))

    return kernel


def _product_together(matrix: Floats, vectors: Floats) -> Floats:
    return np.asarray(vectors @ matrix.T)


def _product_in_blocks(matrix: Floats, vectors: Floats) -> Floats:
    """Rows (points, n) with the matrix, always in products of the same shape."""
    if vectors.ndim == 1:
        return np.asarray(vectors @ matrix.T)
    points, width = vectors.shape
    blocks = -(-points // BLOCK)
    if points == blocks * BLOCK:
        whole = np.ascontiguousarray(vectors)
    else:
        whole = np.zeros((blocks * BLOCK, width))
        whole[:points] = vectors
    product = np.matmul(whole.reshape(blocks, BLOCK, width), matrix.T)
    return np.asarray(product.reshape(blocks * BLOCK, len(matrix))[:points])


_OVER_DATA: Mapping[LaneProducts, Callable[[Floats, Floats], Floats]] = MappingProxyType(
    {"together": _product_together, "blocks": _product_in_blocks, "each": np.matvec}
)


def treats_lanes_alike(matrix: Floats) -> bool:
    """Whether the library computes every point of a block in the same way, for a matrix and for its transpose.

    >>> treats_lanes_alike(np.eye(3))
    True
    """
    for own in (matrix, matrix.T):
        probe = np.random.default_rng(0).standard_normal(own.shape[1])
        rows = _product_in_blocks(own, np.tile(probe, (BLOCK, 1)))
        if not (rows == rows[:1]).all():
            return False
    return True


def _merged_axes(
    labels: tuple[int, ...], both: list[int], rows: list[int], columns: list[int], shape: tuple[int, ...]
) -> Place:
    """A view with the axes ``both``, then one for all ``rows`` and one for all ``columns``, where there are any.

    labels: those of the value's axes
    both: labels that stay axes of their own
    rows: labels that become one axis
    columns: labels that become the last axis
    shape: of the value
    """
    turn = _reordered([labels.index(k) for k in (*both, *rows, *columns)])
    if len(rows) <= 1 and len(columns) <= 1:
        return turn
    size = dict(zip(labels, shape, strict=True))
    groups = [group for group in (rows, columns) if group]
    merged = (*(size[k] for k in both), *(int(np.prod([size[k] for k in group])) for group in groups))
    rank = len(labels)

    def place(value: Floats) -> Floats:
        turned = turn(value)
        return np.asarray(turned.reshape(*turned.shape[: turned.ndim - rank], *merged))

    return place


def _gram(step: Step, args: Sequence[Step]) -> Kernel:
    """M^T diag(w) M: half of it by BLAS where no weight is negative, by blocks of rows otherwise."""
    (axis,) = step.parameter

    def kernel(matrix: Floats, *weights: Floats) -> Floats:
        rows = matrix if axis == 0 else matrix.swapaxes(-1, -2)
        if not weights:
            return np.asarray(np.matmul(rows.swapaxes(-1, -2), rows))
        weight = weights[0] if len(weights) == 1 else np.multiply(*weights)
        alone = weight.ndim == 1 and rows.ndim == 2
        if alone and rows.shape[1] < SMALL_GRAM and len(rows) > MANY * LAYER:
            return _in_layers(rows, weight)
        if not alone or rows.shape[1] < SMALL_GRAM:
            return np.asarray(np.matmul((rows * weight[..., None]).swapaxes(-1, -2), rows))
        if (weight >= 0).all():
            half = rows * np.sqrt(weight)[:, None]
            return np.asarray(half.T @ half)
        return _by_blocks(rows * weight[:, None], rows)

    return kernel


def _in_layers(rows: Floats, weight: Floats) -> Floats:
    """rows^T diag(weight) rows, a few of many rows at a time: what is made of them stays in the cache."""
    root = np.sqrt(weight) if (weight >= 0).all() else None
    factor = weight if root is None else root
    result, some = np.zeros((rows.shape[1],) * 2), np.empty((LAYER, rows.shape[1]))
    for start in range(0, len(rows), LAYER):
        own = rows[start : start + LAYER]
        scaled = np.multiply(own, factor[start : start + LAYER, None], out=some[: len(own)])
        result += scaled.T @ (own if root is None else scaled)
    return result


def _by_blocks(scaled: Floats, rows: Floats) -> Floats:
    """scaled^T rows, which is symmetric: only what is on and below the diagonal blocks is computed."""
    n = rows.shape[1]
    result = np.empty((n, n))
    width = n if n < SMALL_GRAM else -(-n // BLOCKS)
    for start in range(0, n, width):
        own, before = slice(start, min(start + width, n)), slice(0, start)
        np.matmul(scaled[:, own].T, rows[:, : own.stop], out=result[own, : own.stop])
        result[before, own] = result[own, before].T
    return result


_KERNELS: dict[str, Callable[[Step, Sequence[Step]], Kernel]] = {
    "fill": _fill,
    "apply": _apply,
    "logsumexp": _logsumexp,
    "transpose": _transpose,
    "multiply": _multiply,
    "gram": _gram,
    "sum": _sum,
    "diagonal": _diagonal,
    "combine": _combine,
}
