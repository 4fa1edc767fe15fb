"""One array of data: float64, finite, read-only, known by its content.

Whole numbers are taken as they are, up to 2**53, beyond which float64 has gaps; exact fractions and decimals in nested
lists are rounded to the nearest float64. scipy.sparse matrices stay sparse. Everything else is refused by the name of
its type, and an entry that is no finite number by its place.
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from fractions import Fraction
from functools import cached_property
from numbers import Integral, Real
from typing import Any

import numpy as np
import sympy as sp

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.exact import rational
from bilevel_sym.system.frames import is_frame

__all__ = ["MAX_RANK", "DataArray", "columns_of", "data_array", "is_sparse"]

MAX_RANK = 2
HASHED = 64  # entries that tell arrays apart before all of them are compared
LARGEST_WHOLE = 2**53  # beyond it float64 does not have every whole number
MAX_NESTED = 2_000_000  # entries of nested lists; more come as NumPy arrays
_ACCEPTED = "float64, float32, float16 and whole numbers"


@dataclass(frozen=True, eq=False)
class DataArray:
    """An array that nobody can change; two are equal where shapes and entries are. Made by ``data_array``.

    - ``values``: a NumPy array of float64, or a scipy.sparse array in canonical rows.

    >>> array = data_array([[1, 2], [2, 0.5]], "K")
    >>> array.shape, array.entry(1, 1), array.is_symmetric, array == data_array(np.array([[1, 2], [2, 0.5]]), "K")
    ((2, 2), Fraction(1, 2), True, True)
    """

    values: Any

    @property
    def shape(self) -> tuple[int, ...]:
        """The number of entries along each axis."""
        return tuple(int(size) for size in self.values.shape)

    @property
    def is_sparse(self) -> bool:
        """Whether only the entries that are not zero are kept."""
        return not isinstance(self.values, np.ndarray)

    @cached_property
    def digest(self) -> str:
        """64 letters for shape and entries, the same in every process and on every machine."""
        told = hashlib.sha256(f"{'sparse' if self.is_sparse else 'dense'} {self.shape}".encode())
        for part in self._parts():
            told.update(part.reshape(-1))
        return told.hexdigest()

    def _parts(self) -> tuple[Any, ...]:
        if not self.is_sparse:
            return (_little_endian(self.values, "<f8"),)
        rows = self.values
        return (
            *(_little_endian(part, "<i8") for part in (rows.indptr, rows.indices)),
            _little_endian(rows.data, "<f8"),
        )

    @cached_property
    def is_symmetric(self) -> bool:
        """Whether it is a matrix that equals its transpose, exactly."""
        if len(self.shape) != 2 or self.shape[0] != self.shape[1]:
            return False
        if self.is_sparse:
            return bool((self.values != self.values.T).nnz == 0)
        return bool(np.array_equal(self.values, self.values.T))

    def entry(self, *index: int) -> Fraction:
        """One entry, exactly.

        >>> data_array([0.5, 3], "b").entry(0)
        Fraction(1, 2)
        """
        return Fraction(float(self.values[index]))

    def nested(self) -> Any:
        """Its entries as nested lists: whole numbers as such, others as floats, which Python prints exactly.

        >>> data_array([[1, 0.5]], "A").nested()
        [[1, 0.5]]
        """
        dense = self.values.toarray() if self.is_sparse else self.values
        return _listed(dense.tolist())

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, DataArray) or (self.is_sparse, self.shape) != (other.is_sparse, other.shape):
            return False
        return self is other or all(map(np.array_equal, self._parts(), other._parts()))

    def __hash__(self) -> int:
        """Of a few entries: a digest of millions would be a part of the wait for the first result."""
        entries = self._parts()[-1].reshape(-1)
        return hash((self.is_sparse, self.shape, entries[:: len(entries) // HASHED + 1].tobytes()))

    def __reduce__(self) -> tuple[object, ...]:
        return data_array, (self.values, "the data")

    def __repr__(self) -> str:
        kind = "sparse array" if self.is_sparse else "array"
        return f"<{kind} of shape {self.shape}, {self.digest[:8]}>"


def _little_endian(values: Any, kind: str) -> Any:
    array = np.ascontiguousarray(values, dtype=kind[1:])
    return array if sys.byteorder == "little" else array.astype(kind)


def _listed(entries: Any) -> Any:
    if isinstance(entries, list):
        return [_listed(entry) for entry in entries]
    return int(entries) if entries == int(entries) and abs(entries) <= LARGEST_WHOLE else entries


def data_array(value: object, name: str) -> DataArray:
    """The array that ``value`` means; InvalidProblem where it is none, or holds what is no finite number.

    >>> data_array([1, float("nan")], "b")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: the data b hold nan at [1]
    try: fill or drop what is missing: data are finite numbers
    """
    if isinstance(value, DataArray):
        return value
    if is_sparse(value):
        return DataArray(_sparse(value, name))
    if is_frame(value):
        array = _from_frame(value, name)
    elif isinstance(value, (list, tuple)):
        array = _from_nested(value, name)
    elif isinstance(value, (Real, Decimal, sp.Basic)) and not isinstance(value, np.generic):
        array = np.array(_entry(value, name, ()))
    else:
        array = _converted(_plain(value, name), f"the data {name}")
    return DataArray(_sealed(array, name))


def columns_of(frame: Any) -> Mapping[str, object]:
    """The columns of a frame by their names, those that are text; none is looked at yet.

    >>> class Frame(dict):
    ...     columns = ("a", "b")
    >>> columns_of(Frame(a=[1, 2], b=[3, 4]))
    {'a': [1, 2], 'b': [3, 4]}
    """
    return {label: frame[label] for label in frame.columns if isinstance(label, str)}


# ---- NumPy arrays and what converts to them ---------------------------------------------------------------------


def _plain(value: Any, name: str) -> Any:
    """A NumPy array of what was given; nothing is converted to numbers yet."""
    if isinstance(value, np.ma.MaskedArray):
        raise InvalidProblem(f"the data {name} are a masked array", hint="fill the masked entries: a.filled(0.0)")
    if isinstance(value, (str, bytes, Mapping, set, frozenset)) or value is None or not _is_array_like(value):
        raise InvalidProblem(
            f"the data {name} are a {type(value).__name__}, which is no array",
            hint="a NumPy array, nested lists, a scipy.sparse matrix, columns of a frame, or a shape such as 'm, n'",
        )
    try:
        return np.asarray(value)
    except (TypeError, ValueError, RuntimeError) as error:  # PyTorch's, where a gradient is asked for
        raise InvalidProblem(f"the data {name} cannot be made a NumPy array: {error!s:.200}") from None


def _is_array_like(value: object) -> bool:
    if isinstance(value, memoryview):
        return True
    return any(hasattr(value, way) for way in ("__array__", "__array_interface__", "to_numpy"))


def _converted(array: Any, what: str) -> Any:
    """A copy as float64, where that changes no value."""
    kind = array.dtype
    if kind.kind in "iu":
        if array.size and max(abs(int(array.min())), abs(int(array.max()))) > LARGEST_WHOLE:
            raise InvalidProblem(
                f"{what} hold whole numbers beyond 2**53, which float64 does not have", hint="scale the data"
            )
    elif kind.kind != "f" or kind.itemsize > 8:
        hint = f"data are {_ACCEPTED}: convert with .astype(float), and text to numbers first"
        raise InvalidProblem(f"{what} are of type {kind}", hint=hint)
    return array.astype(np.float64, order="C", subok=False, copy=True)


def _sealed(array: Any, name: str) -> Any:
    """An array of ours, of an accepted rank, finite, with one kind of zero, so that nobody can write to it."""
    _check_shape(array.shape, name)
    if not np.isfinite(array).all():
        place = tuple(int(k) for k in np.argwhere(~np.isfinite(array))[0])
        raise _not_finite(name, place, array[place])
    array = np.asarray(array, order="C")
    array += 0.0  # -0.0 equals 0.0, and so must their bytes
    array.flags.writeable = False
    return array


def _not_finite(name: str, place: Sequence[int], value: float) -> InvalidProblem:
    return InvalidProblem(
        f"the data {name} hold {value} at {list(place)}", hint="fill or drop what is missing: data are finite numbers"
    )


def _check_shape(shape: Sequence[int], name: str) -> None:
    if len(shape) > MAX_RANK:
        raise InvalidProblem(
            f"the data {name} have {len(shape)} axes", hint="numbers, vectors and matrices: split it along an axis"
        )
    if 0 in shape:
        raise InvalidProblem(f"the data {name} are empty: their shape is {tuple(shape)}", hint="give at least one row")


# ---- scipy.sparse -----------------------------------------------------------------------------------------------


def is_sparse(value: object) -> bool:
    """Whether it is a scipy.sparse array; what was never imported cannot have made one.

    >>> is_sparse(np.eye(2))
    False
    """
    module = sys.modules.get("scipy.sparse")
    return module is not None and bool(module.issparse(value))


def _sparse(value: Any, name: str) -> Any:
    from scipy.sparse import csr_array

    if len(value.shape) != 2:
        raise InvalidProblem(f"the sparse data {name} have {len(value.shape)} axes", hint="a matrix, or a dense vector")
    _check_shape(value.shape, name)
    entries = value.tocoo()
    rows = csr_array((_converted(entries.data, f"the data {name}"), entries.coords), shape=entries.shape)
    rows.sum_duplicates()
    if not np.isfinite(rows.data).all():
        bad = int(np.flatnonzero(~np.isfinite(rows.data))[0])
        row = int(np.searchsorted(rows.indptr, bad, side="right")) - 1
        raise _not_finite(name, (row, int(rows.indices[bad])), rows.data[bad])
    rows.eliminate_zeros()
    rows.sort_indices()
    for part in (rows.data, rows.indices, rows.indptr):
        part.flags.writeable = False
    return rows


# ---- frames, column by column -------------------------------------------------------------------------------------


def _from_frame(frame: Any, name: str) -> Any:
    """The columns side by side, in their order; one that holds no numbers is named."""
    columns = []
    for label in frame.columns:
        column = _plain(frame[label], f"{name}, column {label!s:.60},")
        if column.ndim != 1:
            raise InvalidProblem(f"two columns of the data {name} are called {label!s:.60}", hint="rename one of them")
        columns.append(_converted(column, f"the column {label!s:.60} of the data {name}"))
        if not np.isfinite(columns[-1]).all():
            row = int(np.flatnonzero(~np.isfinite(columns[-1]))[0])
            raise InvalidProblem(
                f"the column {label!s:.60} of the data {name} holds {columns[-1][row]} in row {row}",
                hint="fill or drop what is missing: data are finite numbers",
            )
    if not columns:
        raise InvalidProblem(f"the data {name} are a frame without columns", hint=f"{name}: df[['a', 'b']]")
    return np.column_stack(columns)


# ---- nested lists -------------------------------------------------------------------------------------------------


def _from_nested(value: Sequence[Any], name: str) -> Any:
    """Lists of numbers, or lists of lists of numbers."""
    if not any(_is_row(item) for item in value):
        return np.array(_row(value, name, ()), dtype=np.float64)
    rows, width, count = [], None, 0
    for i, item in enumerate(value):
        if not _is_row(item):
            raise InvalidProblem(f"the data {name} mix rows and numbers: entry {i} is {item!r:.60}")
        if any(_is_row(entry) for entry in item):
            raise InvalidProblem(f"the data {name} have more than {MAX_RANK} axes", hint="numbers, vectors, matrices")
        width = len(item) if width is None else width
        if len(item) != width:
            raise InvalidProblem(f"the data {name} are ragged: row {i} has {len(item)} entries, row 0 has {width}")
        count += width
        _check_count(count, name)
        rows.append(_row(item, name, (i,)))
    return np.array(rows, dtype=np.float64).reshape(len(rows), width or 0)


def _is_row(value: object) -> bool:
    return isinstance(value, (list, tuple)) or (isinstance(value, np.ndarray) and value.ndim > 0)


def _row(row: Iterable[Any], name: str, place: tuple[int, ...]) -> list[float]:
    entries = list(row)
    _check_count(len(entries), name)
    return [_entry(entry, name, (*place, k)) for k, entry in enumerate(entries)]


def _check_count(count: int, name: str) -> None:
    if count > MAX_NESTED:
        raise InvalidProblem(f"the data {name} are lists of more than {MAX_NESTED:,} numbers", hint="numpy.array(...)")


def _entry(entry: object, name: str, place: tuple[int, ...]) -> float:
    """One number: a float as it is, a whole number where float64 has it, a fraction rounded to the nearest float64."""
    if isinstance(entry, (bool, np.bool_, str, bytes)):
        raise InvalidProblem(f"the data {name} hold {entry!r:.60} at {list(place)}", hint="data are finite numbers")
    if isinstance(entry, float):
        return float(entry)  # whether it is finite is asked of all at once
    where = f"the data {name} at {list(place)}" if place else f"the data {name}"
    if isinstance(entry, Integral) and abs(int(entry)) > LARGEST_WHOLE:
        raise InvalidProblem(f"{where} are a whole number beyond 2**53, which float64 does not have")
    if isinstance(entry, np.generic):
        return float(_converted(np.asarray(entry), where))
    number = rational(entry, where, error=InvalidProblem)
    try:
        return float(Fraction(int(number.p), int(number.q)))
    except OverflowError:
        raise InvalidProblem(f"{where} are beyond float64", hint="scale the data") from None
