"""Labelled tables (pandas and the like): their columns are the variables, in the same order, or they are refused.

NumPy takes the columns of a frame in any order and forgets what they are called. No library of frames is imported:
what has ``columns``, or an ``index`` that is not a method, has labels.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bilevel_sym.errors import BilevelError, InvalidProblem

__all__ = ["check_labels", "is_frame"]


def is_frame(value: object) -> bool:
    """Whether it is a table with named columns.

    >>> is_frame([[1.0]])
    False
    """
    return hasattr(value, "columns") and not callable(value.columns)


def check_labels(
    value: object, names: Sequence[object], what: str, *, error: type[BilevelError] = InvalidProblem
) -> None:
    """Refuse a frame or a series whose labels are not the names in their order; whole numbers are no labels.

    >>> class Row:
    ...     index = ("x2", "x1")
    >>> check_labels(Row(), ("x1", "x2"), "x")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: the columns of x are x2, x1, but the variables are x1, x2, in this order
    try: x[['x1', 'x2']]
    """
    labels = _labels(value)
    expected = [str(name) for name in names]
    if labels is None or [str(label) for label in labels] == expected:
        return
    if len(labels) != len(expected) and not is_frame(value):
        return  # the index of a series of points, say their dates: its shape is judged elsewhere
    shown = ", ".join(str(label) for label in labels)
    raise error(
        f"the columns of {what} are {shown:.200}, but the variables are {', '.join(expected):.200}, in this order",
        hint=f"{what}[{expected!r:.200}]",
    )


def _labels(value: Any) -> list[Any] | None:
    """The columns of a frame, or the index of a series; None where there are none, or numbers alone."""
    labels = value.columns if is_frame(value) else getattr(value, "index", None)
    if labels is None or callable(labels):  # list.index and its like
        return None
    listed = list(labels)
    return None if all(isinstance(label, int) or hasattr(label, "__index__") for label in listed) else listed
