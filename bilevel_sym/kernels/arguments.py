"""What the kernels accept: float64 arrays (..., width), checked, never silently broadcast."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bilevel_sym.errors import KernelError

__all__ = ["Floats", "Shape", "flatten", "floats"]

Floats: TypeAlias = NDArray[np.float64]
Shape = tuple[int, ...]


def flatten(arguments: Mapping[str, tuple[ArrayLike, int]]) -> tuple[list[Floats], Shape]:
    """Arrays of points as (batch, width), and the batch shape that they share.

    >>> (x, y), shape = flatten({"x": ([[1, 2]], 2), "y": ([[3]], 1)})
    >>> x, y, shape
    (array([[1., 2.]]), array([[3.]]), (1,))
    """
    arrays = {name: floats(value, name, width) for name, (value, width) in arguments.items()}
    (first, one), *others = arrays.items()
    shape = one.shape[:-1]
    for name, array in others:
        if array.shape[:-1] != shape:
            raise KernelError(
                f"{first} has shape {one.shape} and {name} has shape {array.shape}, but their batch shapes must agree",
                hint=f"give {name} the shape {(*shape, array.shape[-1])}, for instance with numpy.broadcast_to",
            )
    return [array.reshape(-1, array.shape[-1]) for array in arrays.values()], shape


def floats(value: ArrayLike, name: str, width: int) -> Floats:
    """One array of points (..., width) in float64, or a KernelError that says what is wrong.

    >>> floats([1, 2], "x", 3)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.KernelError: x has shape (2,), but shape (..., 3) is expected
    try: the last axis holds the 3 variables of x
    """
    try:
        array = np.asarray(value)
    except ValueError:
        raise KernelError(f"{name} is not an array: its rows differ in length") from None
    if array.dtype.kind in "iu":
        array = array.astype(np.float64)
    if array.dtype != np.float64:
        raise KernelError(
            f"{name} has dtype {array.dtype}, but float64 is expected", hint=f"{name}.astype(float), if that is meant"
        )
    if array.ndim == 0 or array.shape[-1] != width:
        variables = "variable" if width == 1 else f"{width} variables"
        raise KernelError(
            f"{name} has shape {array.shape}, but shape (..., {width}) is expected",
            hint=f"the last axis holds the {variables} of {name}",
        )
    # a finite sum has finite terms; only if it is not, each is looked at
    if not math.isfinite(np.add.reduce(array, axis=None)) and not np.isfinite(array).all():
        where = np.argwhere(~np.isfinite(array))[0].tolist()
        raise KernelError(f"{name} is {array[tuple(where)]} at index {where}, and only finite numbers make sense")
    return array
