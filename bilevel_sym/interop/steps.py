"""The steps of an array plan in any library: one rule for each kind, as in ``arrays.execute`` for NumPy's kernels."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType
from typing import Any, cast

import numpy as np

from bilevel_sym.arrays.plan import Step
from bilevel_sym.interop.library import Library

__all__ = ["perform"]

Array = Any
Places = tuple[int, ...]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"


def perform(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    """The value of a step from those of its arguments.

    library: in which it is computed
    step: any but a leaf
    values: of its arguments
    beside: an array on the device in question

    >>> from bilevel_sym.interop.libraries import library
    >>> perform(library("numpy"), Step("sum", (0,), (-1,), (), 0), [np.array([1.0, 2.0])], None).item()
    3.0
    """
    return _RULES[step.kind](library, step, values, beside)


def _fill(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    return library.constant(np.full(step.shape, float(cast("float", step.parameter[0]))), beside)


def _apply(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    op, parameter = cast("tuple[str, tuple[int, ...]]", step.parameter)
    if not values:
        return library.constant(np.asarray(library.operations[op]()), beside)
    return library.operations[op](*values, *parameter)


def _logsumexp(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    rank = len(step.shape)
    parts = [library.logsumexp(v, tuple(range(rank, len(v.shape)))) if len(v.shape) > rank else v for v in values]
    whole = parts[0]
    for part in parts[1:]:
        whole = library.logaddexp(whole, part)
    return whole


def _multiply(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    one, two = cast("tuple[Places, Places]", step.parameter)
    rank = len(step.shape)
    return _spread(library, values[0], one, rank) * _spread(library, values[1], two, rank)


def _spread(library: Library, value: Array, places: Places, rank: int) -> Array:
    """With ``rank`` axes, those of the value at ``places``."""
    if places == tuple(range(rank)):
        return value
    order = sorted(range(len(places)), key=places.__getitem__)
    turned = value if order == list(range(len(order))) else library.transpose(value, order)
    return turned[tuple(slice(None) if k in places else None for k in range(rank))]


def _pattern(groups: Sequence[Sequence[int]], out: Sequence[int]) -> str:
    texts = ["".join(_LETTERS[k] for k in group) for group in groups]
    return f"{','.join(texts)}->{''.join(_LETTERS[k] for k in out)}"


def _contract(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    one, two, out = cast("tuple[Places, Places, Places]", step.parameter)
    return library.einsum(_pattern([one, two], out), *values)


def _gram(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    """M^T diag(w) M."""
    matrix, *weights = values
    (axis,) = cast("tuple[int]", step.parameter)
    rows = matrix if axis == 0 else library.transpose(matrix, (1, 0))
    scaled = rows
    for weight in weights:
        scaled = scaled * weight[:, None]
    return library.einsum("ab,ac->bc", scaled, rows)


def _sum(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    return library.total(values[0], cast("Places", step.parameter))


def _diagonal(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    (labels,) = cast("tuple[Places]", step.parameter)
    return library.einsum(_pattern([labels], list(dict.fromkeys(labels))), values[0])


def _transpose(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    return library.transpose(values[0], cast("Places", step.parameter))


def _combine(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    rows, constant = cast("tuple[tuple[tuple[float, Places, Any], ...], float]", step.parameter)
    rank = len(step.shape)
    total = library.constant(np.full(step.shape, float(constant)), beside)
    for (coefficient, places, deltas), value in zip(rows, values, strict=True):
        term = coefficient * _spread(library, value, places, rank)
        for i, j in deltas:
            identity = library.constant(np.eye(step.shape[i]), beside)
            term = term * _spread(library, identity, (i, j), rank)
        total = total + term
    return total


_RULES: Mapping[str, Callable[[Library, Step, Sequence[Array], Array], Array]] = MappingProxyType(
    {
        "fill": _fill, "apply": _apply, "logsumexp": _logsumexp, "multiply": _multiply, "contract": _contract,
        "gram": _gram, "sum": _sum, "diagonal": _diagonal, "transpose": _transpose, "combine": _combine,
    }
)  # fmt: skip
