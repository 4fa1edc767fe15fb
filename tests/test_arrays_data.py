"""Data of array problems: what is taken, how it is kept, and what is refused by its name."""

from __future__ import annotations

import hashlib
import math
import pickle
import struct
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
import sympy as sp
from hypothesis import given

from bilevel_sym import BilevelProblem
from bilevel_sym.arrays.data import data_array
from bilevel_sym.errors import InvalidProblem

# ---- data -----------------------------------------------------------------------------------------------------------


def test_data_are_kept_as_they_are() -> None:
    given_ = np.array([[1.0, 2.0], [3.0, 4.0]])
    array = data_array(given_, "A")
    given_[0, 0] = 9
    assert array.values[0, 0] == 1
    with pytest.raises(ValueError, match="read-only"):
        array.values[0, 0] = 2
    again = pickle.loads(pickle.dumps(array))
    assert again == array
    assert hash(again) == hash(array)
    assert not again.values.flags.writeable


@pytest.mark.parametrize("kind", ["csr", "csc", "coo", "lil", "dok", "bsr", "dia"])
@pytest.mark.parametrize("make", ["array", "matrix"])
def test_sparse_data_stay_sparse(kind: str, make: str) -> None:
    dense = np.array([[0.0, 2.0, 0.0], [1.0, 0.0, 3.0]])
    array = data_array(getattr(scipy.sparse, f"{kind}_{make}")(dense), "A")
    assert array.is_sparse
    assert array == data_array(scipy.sparse.csr_array(dense), "A")
    assert array != data_array(dense, "A")
    assert array.entry(1, 2) == 3
    assert array.entry(0, 0) == 0
    assert pickle.loads(pickle.dumps(array)) == array
    with pytest.raises(ValueError, match="read-only"):
        array.values.data[0] = 5


def test_sparse_data_are_canonical() -> None:
    twice = scipy.sparse.coo_array(([1.0, 1.0, 0.0, 4.0], ([0, 0, 1, 1], [1, 1, 0, 0])), shape=(2, 2))
    assert data_array(twice, "A") == data_array(scipy.sparse.csr_array(np.array([[0.0, 2.0], [4.0, 0.0]])), "A")
    bad = scipy.sparse.csr_array(np.array([[0.0, 2.0], [np.nan, 0.0]]))
    with pytest.raises(InvalidProblem, match=r"the data A hold nan at \[1, 0\]"):
        data_array(bad, "A")


@pytest.mark.parametrize(
    "same",
    [
        [[1, 2], [3, 4]], ((1, 2), (3, 4)), [[1.0, Fraction(2)], [sp.Integer(3), np.float32(4)]], np.array([[1, 2], [3, 4]]),
        np.array([[1, 2], [3, 4]], dtype=np.uint8), np.array([[1, 2], [3, 4]], dtype=">f4"), np.array([[1, 3], [2, 4]]).T,
        np.matrix([[1, 2], [3, 4]]), [np.array([1, 2]), np.array([3, 4])], np.array([[1, 2], [3, 4]], dtype=np.float16),
        np.arange(20).reshape(4, 5)[0::3, 1:3] * 0 + np.array([[1, 2], [3, 4]]), memoryview(np.array([[1.0, 2], [3, 4]]).data),
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
def test_equal_arrays_are_equal_however_they_come(same: Any) -> None:
    assert data_array(same, "A") == data_array(np.array([[1.0, 2.0], [3.0, 4.0]]), "A")


def test_digests_tell_shapes_and_entries_apart() -> None:
    arrays = [[[1, 2, 3, 4]], [[1, 2], [3, 4]], [1, 2, 3, 4], [[1], [2], [3], [4]], [[1, 2], [3, 5]], 1, [1], [[1]]]
    assert len({data_array(array, "A").digest for array in arrays}) == len(arrays)
    assert data_array([0.0, -0.0], "b") == data_array([0, 0], "b")
    by_hand = b"dense (2,)" + struct.pack("<2d", 1, 2)
    assert data_array([1, 2], "b").digest == hashlib.sha256(by_hand).hexdigest()


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_an_entry_is_exact(number: float) -> None:
    assert data_array([number], "b").entry(0) == Fraction(number)
    assert data_array(number, "s").entry() == Fraction(number)


@pytest.mark.parametrize(
    ("bad", "message"),
    [
        (np.array([1, None]), "of type object"), (np.array([1j]), "of type complex128"), (np.array(["a"]), "of type <U1"),
        (np.array([True]), "of type bool"), (np.array(["2020-01-01"], dtype="datetime64[D]"), "of type datetime64[D]"),
        (np.array([1], dtype="timedelta64[s]"), "of type timedelta64[s]"), (np.array([b"a"]), "of type |S1"),
        (np.zeros(2, dtype=[("a", float)]), "of type"), (np.zeros((2, 2, 2)), "have 3 axes"), (np.zeros((0, 2)), "are empty"),
        ([], "are empty"), ([[]], "are empty"), (np.array([1.0, np.inf]), "hold inf at [1]"), ([[1, math.nan]], "hold nan at [0, 1]"),
        (np.array([2**53 + 1]), "beyond 2**53"), ([2**53 + 1], "beyond 2**53"), ([0.5, 2**60], "beyond 2**53"),
        ([True], "hold True at [0]"), (["1"], "hold '1' at [0]"), ([[1, 2], [3]], "ragged: row 1 has 1 entries, row 0 has 2"),
        ([1, [2]], "mix rows and numbers"), ([[[1]]], "more than 2 axes"), ([None], "must be a finite real number"),
        (None, "are a NoneType"), (object(), "are a object"), ({1: 2}, "are a dict"), ({1}, "are a set"), (b"12", "are a bytes"),
        (np.ma.masked_array([1.0, 2.0], mask=[False, True]), "are a masked array"), ([1j], "must be a finite real number"),
        (10**400, "whole number beyond 2**53"), (Fraction(10**400, 3), "are beyond float64"), (True, "hold True"),
        (lambda: 3, "are a function"), (scipy.sparse.csr_array(np.array([[True]])), "of type bool"),
        (scipy.sparse.coo_array(np.array([1.0, 2.0])), "have 1 axes"), (np.float64("nan"), "hold nan at []"),
    ],
    ids=lambda value: value if isinstance(value, str) else type(value).__name__,
)  # fmt: skip
def test_what_is_no_array_of_finite_numbers_is_refused(bad: Any, message: str) -> None:
    with pytest.raises(InvalidProblem) as caught:
        BilevelProblem("sum(D)", "y @ y", "x", "y[n]", data={"D": bad})
    assert message in caught.value.message
    assert "D" in caught.value.message


def test_the_largest_whole_number_is_taken() -> None:
    assert data_array([2**53, -(2**53)], "b").entry(0) == 2**53
    assert data_array(np.array([2**53]), "b").entry(0) == 2**53
    assert data_array([Fraction(1, 3)], "b").entry(0) == Fraction(1 / 3)


class Column:
    """What a column of a frame is to us."""

    def __init__(self, entries: Any) -> None:
        self._entries = entries
        self.index = range(len(entries))

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> Any:
        return np.array(self._entries, dtype=dtype)


class Frame:
    """What a frame of pandas or polars is to us: columns by name."""

    def __init__(self, **columns: Any) -> None:
        self._columns = columns
        self.columns = list(columns)

    def __getitem__(self, name: Any) -> Any:
        if isinstance(name, list):
            return Frame(**{label: self._columns[label] for label in name})
        return Column(self._columns[name])


def test_frames_are_matrices_and_their_columns_vectors() -> None:
    frame = Frame(a=[1, 2, 3], b=[0.5, 1, 1.5], label=[1, -1, 1], name=np.array(["u", "v", "w"], dtype=object))
    text = "mean(softplus(-t*(A @ y)))"
    problem = BilevelProblem(text, "y @ y", "x", "y[n]", data={"A": frame[["b", "a"]], "t": frame["label"]})
    assert problem.arrays["A"].tolist() == [[0.5, 1], [1, 2], [1.5, 3]]
    assert problem.dimensions == {"m": 3, "n": 2}
    with pytest.raises(InvalidProblem, match="the column name of the data A are of type object"):
        BilevelProblem(text, "y @ y", "x", "y[n]", data={"A": frame[["a", "name"]], "t": frame["label"]})
    with pytest.raises(InvalidProblem, match="the data t are of type object"):
        BilevelProblem(text, "y @ y", "x", "y[n]", data={"A": frame[["a", "b"]], "t": frame["name"]})
    missing = Frame(a=[1.0, math.nan], b=[1.0, 2.0])
    with pytest.raises(InvalidProblem, match="the column a of the data A holds nan in row 1"):
        BilevelProblem("sum(A @ y)", "y @ y", "x", "y[n]", data={"A": missing})


def test_a_frame_gives_its_columns_by_name() -> None:
    frame = Frame(a=[1, 2, 3], label=[1, -1, 1], name=np.array(["u", "v", "w"], dtype=object))
    problem = BilevelProblem("sum(softplus(-label*a*y))", "y**2", "x", "y", data=frame)  # type: ignore[arg-type]
    assert sorted(problem.arrays) == ["a", "label"]
    assert problem.dimensions == {"m": 3}


def test_arrays_are_told_apart_by_every_entry_without_a_digest() -> None:
    entries = np.linspace(0.0, 1.0, 1001)
    one, same, other = (data_array(e, "b") for e in (entries, entries.copy(), np.where(entries == 0.5, 0.7, entries)))
    assert one == same != other
    assert hash(one) == hash(same)
    assert len({one, same, other}) == 2
    assert not any("digest" in vars(array) for array in (one, same, other))
    sparse = [data_array(scipy.sparse.csr_array(np.diag(e)), "S") for e in ([1.0, 2.0], [1.0, 2.0], [2.0, 1.0])]
    assert sparse[0] == sparse[1] != sparse[2]
    assert hash(sparse[0]) == hash(sparse[1])
    assert sparse[0] != data_array(np.diag([1.0, 2.0]), "S")
