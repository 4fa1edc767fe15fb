"""Named arrays: x handed to a candidate as its arrays, and what it returns laid end to end.

A problem of several arrays, lam and W[p, q], has d numbers in one vector. A candidate may take and return that vector,
or a dict of arrays by name, or a tuple of them in the order in which they were declared.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any, Literal, cast, get_args

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Floats

__all__ = ["Takes", "in_one_vector", "laid_out_points", "named_arrays"]

Takes = Literal["vector", "dict", "tuple"]


def shapes_of(problem: BilevelProblem, role: str) -> dict[str, tuple[int, ...]]:
    """The shape of every array of x or of y; scalars have none.

    >>> shapes_of(BilevelProblem("a + sum(W*V)", "sum((V - W)**2) + a*sum(V)", "a W[2, 3]", "V[2, 3]"), "x")
    {'a': (), 'W': (2, 3)}
    """
    if not problem.is_array:
        return {symbol.name: () for symbol in (problem.x if role == "x" else problem.y)}
    model, sizes = problem.array_model, problem.dimensions
    leaves = model.x if role == "x" else model.y
    return {leaf.name: tuple(int(sizes.get(dim) or dim) for dim in leaf.dims) for leaf in leaves}


def named_arrays(problem: BilevelProblem, role: str, vector: Floats) -> dict[str, Any]:
    """A vector as arrays by name; scalars are numbers.

    >>> named_arrays(BilevelProblem("a + b @ y", "sum((y - b)**2) + a*sum(y)", "a b[2]", "y[2]"), "x", np.arange(3.0))
    {'a': 0.0, 'b': array([1., 2.])}
    """
    spans, shapes = dict(problem.entries_by_array(role)), shapes_of(problem, role)
    parts = {name: np.array(vector[spans[name]]).reshape(shape) for name, shape in shapes.items()}
    return {name: part if part.ndim else float(part) for name, part in parts.items()}


def in_one_vector(
    function: Callable[..., object], problem: BilevelProblem, takes: Takes, returns: str
) -> Callable[..., object]:
    """The candidate as a function of one vector, which returns one vector where it returned arrays.

    - ``function``: the candidate.
    - ``problem``: the problem.
    - ``takes``: "vector", "dict" or "tuple".
    - ``returns``: "x" or "y": whose arrays it returns; "" where it is no vector.

    >>> problem = BilevelProblem("a + b @ y", "sum((y - b)**2) + a*sum(y)", "a b[2]", "y[2]")
    >>> twice = in_one_vector(lambda x: {"b": 2 * x["b"], "a": 2 * x["a"]}, problem, "dict", "x")
    >>> twice(np.arange(3.0))
    array([0., 2., 4.])
    """
    if takes not in get_args(Takes):
        raise InvalidArgument(f"takes={takes!r:.40}", hint="'vector', 'dict' or 'tuple'")
    if takes == "vector" and not problem.is_array:
        return function
    if not callable(cast("object", function)):
        return function  # which is told elsewhere

    @functools.wraps(function, updated=())
    def asked(x: Floats, **settings: object) -> object:
        arrays: Any = x if takes == "vector" else named_arrays(problem, "x", x)
        returned = function(tuple(arrays.values()) if takes == "tuple" else arrays, **settings)
        return _laid_out(returned, shapes_of(problem, returns)) if returns else returned

    return asked


def _laid_out(returned: Any, shapes: Mapping[str, tuple[int, ...]]) -> Any:
    """Arrays end to end; what are none of the right shapes is left for the candidate to be told about."""
    if isinstance(returned, Mapping) and "grad" in returned and "grad" not in shapes:
        return {**returned, "grad": _laid_out(returned["grad"], shapes)}
    if isinstance(returned, Mapping):
        parts = [returned[name] for name in shapes] if set(returned) == set(shapes) else None
    elif isinstance(returned, (list, tuple)) and len(returned) == len(shapes):
        parts = list(returned)
    elif len(shapes) == 1 and getattr(returned, "shape", None) is not None:
        parts = [returned]
    else:
        parts = None
    if parts is None:
        return returned
    flat = [_flat(part, shape) for part, shape in zip(parts, shapes.values(), strict=True)]
    return returned if any(part is None for part in flat) else np.concatenate(flat)  # type: ignore[arg-type]


def _flat(part: Any, shape: tuple[int, ...]) -> Floats | None:
    """The entries of an array, row by row, as it came; None where its shape is another."""
    for step in ("detach", "cpu"):
        part = getattr(part, step)() if callable(getattr(part, step, None)) else part
    try:
        array = np.asarray(part)
    except (TypeError, ValueError):
        return None
    fits = array.shape == shape or array.shape == (math.prod(shape),)
    return array.ravel() if fits else None


def laid_out_points(problem: BilevelProblem, points: Any) -> Any:
    """Points by the names of arrays as rows of numbers; others as they are.

    >>> problem = BilevelProblem("a + b @ y", "sum((y - b)**2) + a*sum(y)", "a b[2]", "y[2]")
    >>> laid_out_points(problem, [{"a": 1, "b": [2, 3]}])
    [[1.0, 2.0, 3.0]]
    """
    if not problem.is_array:
        return points
    if isinstance(points, Mapping):
        points = [points]
    if not isinstance(points, Sequence) or isinstance(points, str):
        return points
    shapes = shapes_of(problem, "x")
    return [
        _row(point, shapes) if isinstance(point, Mapping) and set(point) == set(shapes) else point for point in points
    ]


def _row(point: Mapping[str, Any], shapes: Mapping[str, tuple[int, ...]]) -> Any:
    parts = [_flat(point[name], shape) for name, shape in shapes.items()]
    if any(part is None for part in parts):
        wanted = ", ".join(f"{name}: {list(shape) or 'a number'}" for name, shape in shapes.items())
        raise InvalidArgument(f"a point has arrays of other shapes: {point!r:.60}", hint=wanted)
    return np.concatenate(parts).astype(np.float64).tolist()  # type: ignore[arg-type]
