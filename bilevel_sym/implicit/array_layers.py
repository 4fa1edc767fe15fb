"""Sums over many rows, some rows at a time: what leads to a contraction over them is made in layers.

A^T phi(A V) reads A twice and makes arrays with a row for each of A's. In layers, of so many rows that they stay in the
cache, A comes from memory once, and nothing has more rows than a layer. Which steps go along is found from the plan:
those on the way to a contraction over the rows of data that treat every row alone, and that nobody else asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, cast

from bilevel_sym.arrays.execute import kernel_of
from bilevel_sym.arrays.plan import DATA, Step
from bilevel_sym.typing import Floats

MANY = 130_000  # entries of a matrix of data that does not stay in the cache
LAYER = 50_000  # entries of it in a layer
Labels = tuple[int, ...]
Axes = tuple[int | None, ...]  # of each argument of a step: the axis of the rows, None where it has none


@dataclass(frozen=True)
class Layered:
    """A contraction over rows together with the steps that lead to it.

    - ``members``: the steps that lead to it, in order.
    - ``args``: those that are made before, or are data.
    - ``kernel``: takes the values of ``args`` to that of the contraction.
    - ``share``: the part of all rows that are in a layer.
    """

    members: tuple[int, ...]
    args: tuple[int, ...]
    kernel: Callable[..., Any]
    share: float


def layered(steps: Sequence[Step], last: int, users: Mapping[int, Collection[int]]) -> Layered | None:
    """The steps that go along with one, where that is a contraction over the rows of data too large for the cache.

    steps: of the plan
    last: the contraction
    users: the steps that ask for each step; whoever is asked for from elsewhere has a user that is none of these
    """
    if (rows := _rows_of(steps, last)) is None:
        return None
    members, axes = _members(steps, last, rows, users)
    matrices = {k: steps[k] for member in members for k in steps[member].args if steps[k].stage == DATA}
    width = max((s.entries // s.shape[a] for k, s in matrices.items() if (a := axes.get(k)) is not None), default=0)
    total = steps[steps[last].args[0]].shape[rows[0] or 0]
    if not 0 < width * total >= MANY:  # what is made of data in layers reads none of them twice otherwise
        return None
    count = -(-total // max(1, LAYER // width))
    layer = -(-total // count)  # the last one may have fewer rows
    args = tuple(k for k in axes if k not in members)
    return Layered(members, args, _kernel(steps, (*members, last), args, axes, total, layer), layer / total)


def _rows_of(steps: Sequence[Step], last: int) -> Axes | None:
    """Where a contraction has the one index that it sums over, if it is of data and something else."""
    step = steps[last]
    if step.kind != "contract" or not step.shape or any(steps[k].sparse for k in step.args):
        return None
    one, two, out = cast("tuple[Labels, Labels, Labels]", step.parameter)
    summed = [label for label in one if label in two and label not in out]
    if len(summed) != 1 or steps[step.args[0]].stage != DATA or steps[step.args[1]].stage != step.stage:
        return None
    return one.index(summed[0]), two.index(summed[0])


def _members(
    steps: Sequence[Step], last: int, rows: Axes, users: Mapping[int, Collection[int]]
) -> tuple[tuple[int, ...], dict[int, int | None]]:
    """The steps that go along, in order, and the axis of the rows of all that they take; none where one has two."""
    axes, members = dict(zip(steps[last].args, rows, strict=True)), list[int]()
    for k in range(last - 1, -1, -1):
        if axes.get(k) is None or steps[k].stage != steps[last].stage:
            continue
        inner = _axes_of_arguments(steps, k, cast("int", axes[k]))
        if inner is None or not {last, *members}.issuperset(users[k]):
            continue
        members.append(k)
        for argument, axis in zip(steps[k].args, inner, strict=True):
            if axes.setdefault(argument, axis) != axis:
                return (), {}
    return tuple(reversed(members)), axes


def _axes_of_arguments(steps: Sequence[Step], k: int, axis: int) -> Axes | None:
    """The axis of the rows in each argument of a step, given its own; None where rows do not stay apart."""
    step = steps[k]
    parameter: Any = step.parameter
    if step.sparse or any(steps[a].sparse for a in step.args):
        return None
    match step.kind:
        case "apply" if step.args and all(steps[a].shape == step.shape for a in step.args):
            return (axis,) * len(step.args)
        case "transpose":
            return (parameter[axis],)
        case "multiply":
            return tuple(_place(own, axis) for own in parameter)
        case "sum":
            gone = [j % len(steps[step.args[0]].shape) for j in parameter]
            return ([j for j in range(len(steps[step.args[0]].shape)) if j not in gone][axis],)
        case "combine" if not any(deltas for _, _, deltas in parameter[0]):
            return tuple(_place(own, axis) for _, own, _ in parameter[0])
        case "contract":
            one, two, out = parameter
            return _place(one, out[axis]), _place(two, out[axis])
        case _:
            return None


def _place(labels: Labels, label: int) -> int | None:
    return labels.index(label) if label in labels else None


def _kernel(
    steps: Sequence[Step],
    order: Sequence[int],
    args: Sequence[int],
    axes: Mapping[int, int | None],
    total: int,
    layer: int,
) -> Callable[..., Any]:
    """Performs steps, the last of which sums over rows, on one layer after the other.

    steps: of the plan
    order: those to perform
    args: those that are made before
    axes: where each has its rows
    total: how many rows there are
    layer: how many go together
    """
    cuts = [slice(start, min(start + layer, total)) for start in range(0, total, layer)]
    kernels = {size: _of_layer(steps, order, axes, size) for size in {cut.stop - cut.start for cut in cuts}}
    views = [_view(axes[k], len(steps[k].shape)) for k in args]
    final = order[-1]

    def kernel(*values: Floats) -> Floats:
        result: Any = None
        for cut in cuts:
            known = {k: view(value, cut) for k, view, value in zip(args, views, values, strict=True)}
            for k, perform, own, dead in kernels[cut.stop - cut.start]:
                known[k] = perform(*[known[a] for a in own])
                for j in dead:
                    del known[j]
            if result is None:
                result = known[final]
            else:
                result += known[final]
        return cast("Floats", result)

    return kernel


def _of_layer(
    steps: Sequence[Step], order: Sequence[int], axes: Mapping[int, int | None], size: int
) -> list[tuple[int, Callable[..., Any], tuple[int, ...], tuple[int, ...]]]:
    """The steps as they are for so many rows, each with what it takes and what nobody takes after it."""

    def cut(k: int) -> Step:
        axis, step = axes.get(k), steps[k]
        return step if axis is None else replace(step, shape=(*step.shape[:axis], size, *step.shape[axis + 1 :]))

    last = {a: k for k in order for a in steps[k].args}
    return [
        (
            k,
            kernel_of(cut(k), [cut(a) for a in steps[k].args]),
            steps[k].args,
            tuple({a for a in steps[k].args if last[a] == k}),
        )
        for k in order
    ]


def _view(axis: int | None, rank: int) -> Callable[[Any, slice], Any]:
    """Some rows of a value, whatever axes it has before its own."""
    if axis is None:
        return lambda value, cut: value
    behind = (slice(None),) * (rank - 1 - axis)
    return lambda value, cut: value[(..., cut, *behind)]
