"""User-supplied arrays as float64: NumPy, JAX, PyTorch, lists."""

from __future__ import annotations

from typing import Any

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Floats

__all__ = ["norms", "real_array", "unit_of"]


def real_array(value: Any, what: str) -> tuple[Floats, float]:
    """The numbers as float64, and the unit roundoff that they came with.

    >>> real_array(np.float32([1, 2]), "x")
    (array([1., 2.]), 1.1920928955078125e-07)
    >>> real_array(["a"], "x")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: x is not an array of real numbers
    """
    # a tensor that carries a graph or lives on another device has to be asked for its numbers
    for step in ("detach", "cpu"):
        value = getattr(value, step)() if callable(getattr(value, step, None)) else value
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiuO" and array.dtype.name != "bfloat16":  # O: mpmath, SymPy, fractions
            raise TypeError
        return array.astype(np.float64), unit_of(array.dtype)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{what} is not an array of real numbers") from None


def norms(array: Floats) -> Floats:
    """The norm of what stands at each point, (P,), whatever its shape (P, ...).

    >>> norms(np.array([[[3.0, 4.0]], [[0.0, 0.0]]]))
    array([5., 0.])
    """
    return np.asarray(np.linalg.norm(array.reshape(len(array), -1), axis=1))


def unit_of(dtype: Any) -> float:
    """The spacing of numbers next to 1; whole numbers are exact, and count as float64.

    >>> unit_of(np.dtype("float64")) == 2.0**-52, unit_of(np.dtype("float16"))
    (True, 0.0009765625)
    """
    if dtype.name == "bfloat16":
        return 2.0**-7
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0**-52
