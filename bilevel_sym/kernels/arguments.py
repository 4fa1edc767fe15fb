"""What the kernels accept: float64 arrays (..., width), checked, never silently broadcast."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike

from bilevel_sym.arithmetic.linear_algebra import all_finite
from bilevel_sym.errors import KernelError
from bilevel_sym.system.frames import check_labels
from bilevel_sym.typing import Floats

__all__ = ["Shape", "joined", "member_of", "of_the_batch"]

Shape = tuple[int, ...]

_FLOAT64 = np.dtype(np.float64)


def joined(arguments: Mapping[str, tuple[ArrayLike, Sequence[object]]]) -> tuple[Floats, Shape]:
    """Arrays of points side by side as rows (batch, sum of widths), and the batch shape that they share.

    Beside each array stand the variables that its last axis holds.

    >>> joined({"x": ([[1, 2]], ("x1", "x2")), "y": ([[3]], "y")})
    (array([[1., 2., 3.]]), (1,))
    >>> joined({"x": ([1, 2], ("x1", "x2", "x3"))})
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.KernelError: x has shape (2,), but shape (..., 3) is expected
    try: the last axis holds the 3 variables of x
    """
    arrays = [_array(value, name, variables) for name, (value, variables) in arguments.items()]
    shape = arrays[0].shape[:-1]
    if any(array.shape[:-1] != shape for array in arrays):
        raise _mismatch(dict(zip(arguments, arrays, strict=True)))
    rows = np.concatenate(arrays, axis=-1)
    if not all_finite(rows):
        raise _not_finite(dict(zip(arguments, arrays, strict=True)))
    return rows.reshape(-1, rows.shape[-1]), shape


def member_of(k: int, shape: Shape) -> tuple[int, ...]:
    """The index of the k-th row in the caller's batch.

    >>> member_of(4, (2, 3))
    (1, 1)
    """
    return tuple(int(i) for i in np.unravel_index(k, shape)) if shape else ()


def of_the_batch(k: int, shape: Shape) -> str:
    """The same in words, for messages.

    >>> of_the_batch(4, (2, 3)), of_the_batch(0, ())
    (' for member 1, 1 of the batch', '')
    """
    return f" for member {', '.join(map(str, member_of(k, shape)))} of the batch" if shape else ""


def _array(value: ArrayLike, name: str, symbols: Sequence[object]) -> Floats:
    width = len(symbols)
    if not isinstance(value, (np.ndarray, list, float)):
        check_labels(value, symbols, name, error=KernelError)
    try:
        array = np.asarray(value)
    except ValueError:
        raise KernelError(f"{name} is not an array: its rows differ in length") from None
    if isinstance(value, np.ma.MaskedArray):
        raise KernelError(f"{name} is a masked array, and its mask would be lost", hint=f"{name}.filled(...) or .data")
    if array.dtype.kind in "iu" or array.dtype == _FLOAT64.newbyteorder():
        array = array.astype(_FLOAT64)
    if array.dtype != _FLOAT64:
        raise KernelError(
            f"{name} has dtype {array.dtype}, but float64 is expected", hint=f"give {name} as an array of floats"
        )
    if array.ndim == 0 or array.shape[-1] != width:
        variables = "variable" if width == 1 else f"{width} variables"
        raise KernelError(
            f"{name} has shape {array.shape}, but shape (..., {width}) is expected",
            hint=f"the last axis holds the {variables} of {name}",
        )
    return array


def _mismatch(arrays: Mapping[str, Floats]) -> KernelError:
    (first, one), *others = arrays.items()
    name, other = next((name, array) for name, array in others if array.shape[:-1] != one.shape[:-1])
    wanted = (*one.shape[:-1], other.shape[-1])
    return KernelError(
        f"{first} has shape {one.shape} and {name} has shape {other.shape}, but their batch shapes must agree",
        hint=f"give {name} the shape {wanted}, for instance with numpy.broadcast_to",
    )


def _not_finite(arrays: Mapping[str, Floats]) -> KernelError:
    name, array = next((name, array) for name, array in arrays.items() if not np.isfinite(array).all())
    where = np.argwhere(~np.isfinite(array))[0].tolist()
    return KernelError(f"{name} is {array[tuple(where)]} at index {where}, and only finite numbers make sense")
