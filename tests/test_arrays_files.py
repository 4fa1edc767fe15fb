"""Problem files with arrays: what is read, what is written and read back, and files that are meant to hurt."""

from __future__ import annotations

import io
import os
import pickle
import struct
import zipfile
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.sparse
from hypothesis import given
from hypothesis.extra.numpy import array_shapes, arrays

from bilevel_sym import BilevelProblem, MinimaxProblem
from bilevel_sym.arrays.data import DataArray, data_array
from bilevel_sym.arrays.files import npy, npz, tables
from bilevel_sym.errors import CannotWrite, InvalidArgument, InvalidProblem
from bilevel_sym.problem.file import ProblemFile, problem_files, problem_toml, read_problem, writing
from bilevel_sym.problem.file.reading import parse_problem

RIDGE = """
x = "lam"
y = ["w[n]"]
f = "sum((B @ w - c)**2)"
g = "sum((A @ w - b)**2) + exp(lam)*(w @ w)"

[data]
"""
DATA = """
A = [[1, 2], [3, 4], [5, 6.5]]
b = [1, -1, 0.1]
B = [[1, 0]]
c = [2]
"""


def problem_in(folder: Path, data: str, *, name: str = "toy.toml") -> ProblemFile:
    path = folder / name
    path.write_text(RIDGE + data, encoding="utf-8")
    return read_problem(path)


def one(folder: Path, text: str) -> Any:
    """The array that ``A = text`` means in a file in this folder."""
    fields = problem_in(folder, f"A = {text}\n")
    assert fields.data is not None
    array = fields.data["A"]
    return array.nested() if isinstance(array, DataArray) else array


# ---- reading ----------------------------------------------------------------------------------------------------


def test_arrays_in_the_file(tmp_path: Path) -> None:
    fields = problem_in(tmp_path, DATA)
    assert (fields.x, fields.y) == (("lam",), ("w[n]",))
    assert fields.data is not None
    assert {name: array.nested() for name, array in fields.data.items()} == {  # type: ignore[union-attr]
        "A": [[1, 2], [3, 4], [5, 6.5]], "b": [1, -1, 0.1], "B": [[1, 0]], "c": [2],
    }  # fmt: skip
    problem = BilevelProblem.load(tmp_path / "toy.toml")
    assert problem.is_array
    assert problem.dimensions["n"] == 2


def test_the_file_of_the_contract(tmp_path: Path) -> None:
    rng = np.random.default_rng(0)
    A, B = rng.normal(size=(3, 4)), rng.normal(size=(2, 4))
    np.save(tmp_path / "train.npy", A)
    np.savez(tmp_path / "file.npz", B=B, other=A)
    (tmp_path / "c.csv").write_text("c\n1\n-1\n")
    (tmp_path / "toy.toml").write_text(
        """
        x = ["x[n]"]
        y = ["y[n]"]
        f = "mean(softplus(-c*(B @ y)))"
        g = "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2"

        [data]
        A = "train.npy"
        B = "file.npz:B"
        b = [1, -1, 1]
        c = "c.csv"
        """
    )
    problem = BilevelProblem.load(tmp_path / "toy.toml")
    again = BilevelProblem(
        "mean(softplus(-c*(B @ y)))", "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2", "x[n]", "y[n]",
        data={"A": A, "B": B, "b": [1, -1, 1], "c": [1, -1]},
    )  # fmt: skip
    assert problem == again


@pytest.mark.parametrize(
    ("given", "names"),
    [
        ('"lam, W[p, q]"', ("lam", "W[p, q]")),
        ('["lam", "W[p,q]"]', ("lam", "W[p, q]")),
        ('["lam W[ p , 3 ]", "u[2]"]', ("lam", "W[p, 3]", "u[2]")),
    ],
)
def test_declarations(given: str, names: tuple[str, ...]) -> None:
    assert parse_problem(f'x = {given}\ny = "y[n]"\nf = "1"\ng = "1"', "toy").x == names


def test_shapes_alone() -> None:
    fields = parse_problem(RIDGE + 'A = "m, n"\nb = "m"\nB = "n, n symmetric"\nc = "n"\n', "toy")
    assert fields.data == {"A": "m, n", "b": "m", "B": "n, n symmetric", "c": "n"}


def test_numbers_are_exact(tmp_path: Path) -> None:
    """A decimal becomes the nearest float64, as in Python."""
    assert one(tmp_path, "[0.1, 1e-320, 1.7976931348623157e308, 3, 9007199254740992, 1_000.5]") == [
        0.1, 1e-320, 1.7976931348623157e308, 3, 2**53, 1000.5,
    ]  # fmt: skip
    assert one(tmp_path, "0.1") == 0.1
    assert one(tmp_path, "7") == 7


@pytest.mark.parametrize("dtype", ["<f8", ">f8", "<f4", "<f2", "<i8", ">i4", "|i1", "|u1", "<u8"])
@pytest.mark.parametrize("order", ["C", "F"])
def test_every_kind_of_number(tmp_path: Path, dtype: str, order: Any) -> None:
    array = np.array([[1, 2, 3], [4, 5, 6]], dtype=dtype, order=order)
    np.save(tmp_path / "A.npy", array)
    assert one(tmp_path, '"A.npy"') == [[1, 2, 3], [4, 5, 6]]


@pytest.mark.parametrize("version", [(1, 0), (2, 0), (3, 0)])
def test_every_version_of_the_format(tmp_path: Path, version: Any) -> None:
    with (tmp_path / "A.npy").open("wb") as file:
        np.lib.format.write_array(file, np.arange(3.0), version=version)
    assert one(tmp_path, '"A.npy"') == [0, 1, 2]


@given(arrays(np.float64, array_shapes(max_dims=2, max_side=5), elements=st.floats(-1e9, 1e9)))
def test_what_numpy_writes_is_read(array: Any) -> None:
    stream = io.BytesIO()
    np.save(stream, array)
    stream.seek(0)
    assert np.array_equal(npy.read_npy(stream, len(stream.getvalue())), array)
    ours = b"".join(npy.npy_pieces(data_array(array, "A")))
    assert np.array_equal(np.load(io.BytesIO(ours), allow_pickle=False), array)


def test_a_scalar_and_a_file_in_a_folder_below(tmp_path: Path) -> None:
    (tmp_path / "data").mkdir()
    np.save(tmp_path / "data" / "A.npy", np.array(2.5))
    assert one(tmp_path, '"data/A.npy"') == 2.5


def test_links_that_stay_in_the_folder(tmp_path: Path) -> None:
    np.save(tmp_path / "A.npy", np.arange(3.0))
    (tmp_path / "B.npy").symlink_to("A.npy")
    assert one(tmp_path, '"B.npy"') == [0, 1, 2]


def test_archives(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", A=np.eye(2))
    np.savez_compressed(tmp_path / "two.npz", A=np.eye(2), b=np.arange(2))
    assert (
        one(tmp_path, '"one.npz"') == one(tmp_path, '"one.npz:A"') == one(tmp_path, '"two.npz:A"') == [[1, 0], [0, 1]]
    )
    assert one(tmp_path, '"two.npz:b"') == [0, 1]


def test_sparse_archives(tmp_path: Path) -> None:
    matrix = scipy.sparse.random_array((6, 4), density=0.3, rng=np.random.default_rng(1)).tocsr()
    scipy.sparse.save_npz(tmp_path / "A.npz", matrix)
    fields = problem_in(tmp_path, 'A = "A.npz"')
    assert fields.data is not None
    found = fields.data["A"]
    assert isinstance(found, DataArray)
    assert found.is_sparse
    assert found == data_array(matrix, "A")


TABLES: Mapping[str, tuple[str, str, Any]] = {
    "without names": ("1,2\n3,4\n", "", [[1, 2], [3, 4]]),
    "with names": ("a,b\n1,2\n3,4\n", "", [[1, 2], [3, 4]]),
    "one column": ("1\n2\n3\n", "", [1, 2, 3]),
    "one column with a name": ("age\n1\n2\n", "", [1, 2]),
    "one row": ("1,2,3\n", "", [[1, 2, 3]]),
    "a column by name": ("a,b\n1,2\n3,4\n", ":b", [2, 4]),
    "a column beside words": ("who,age\nAnn,31\nBob,5\n", ":age", [31, 5]),
    "a name with spaces and a colon": ('"mean: radius",b\n1,2\n', ":mean: radius", [1]),
    "quotes and spaces": ('"a", b \n 1 ,"2"\n', ":b", [2]),
    "the mark of some editors": ("\ufeffa,b\n1,2\n", ":a", [1]),
    "Windows line ends, empty lines": ("a,b\r\n\r\n1,2\r\n\r\n", "", [[1, 2]]),
    "no last line end": ("1e-3,+2.5", "", [[0.001, 2.5]]),
}


@pytest.mark.parametrize("name", TABLES)
def test_tables(tmp_path: Path, name: str) -> None:
    content, part, expected = TABLES[name]
    (tmp_path / "t.csv").write_bytes(content.encode())
    assert one(tmp_path, f'"t.csv{part}"') == expected


# ---- what is refused --------------------------------------------------------------------------------------------


def refused(folder: Path, text: str) -> InvalidProblem:
    """The error, which names the file and the key in a line, and says what to try in another."""
    with pytest.raises(InvalidProblem) as caught:
        one(folder, text)
    message = caught.value.message
    assert "toy.toml: data.A" in message
    assert len(str(caught.value).splitlines()) <= 2
    assert len(message) < 400 + len(str(folder))
    return caught.value


INLINE = {
    "[1, nan]": "hold nan at [1]",
    "[[1, 2], [3, inf]]": "inf at [1, 1]",
    "nan": "nan",
    "[1, [2]]": "mix",
    "[[1, 2], [3]]": "ragged",
    "[[[1]]]": "axes",
    "[]": "empty",
    "[[]]": "empty",
    "[true]": "True",
    '["1/3"]': "'1/3'",
    "[2020-01-01]": "finite real number",
    "2020-01-01": "date",
    "{a = 1}": "dict",
    "true": "True",
    "[1e400]": "beyond float64",
    "[1e9999]": "too large",
    "[9007199254740993]": "2**53",
    '""': "empty",
    '"m n o"': "at most 2 axes",
    '"m, 0"': "1 to",
    '"n, m symmetric"': "square",
    '"train.mat"': "train.mat",
    '"train.pkl"': "train.pkl",
    '"train.npy "': "train.npy",
    '"m,\\nsin"': "sin",
}


@pytest.mark.parametrize("text", INLINE)
def test_bad_values(tmp_path: Path, text: str) -> None:
    if "9999" in text:  # refused as a number, before anything is known of its place
        with pytest.raises(InvalidProblem, match="too large"):
            one(tmp_path, text)
    else:
        assert INLINE[text] in refused(tmp_path, text).message


def saved(**options: Any) -> Callable[[Any], bytes]:
    def content(array: Any) -> bytes:
        stream = io.BytesIO()
        np.save(stream, array, **options)
        return stream.getvalue()

    return content


def headed(header: str, body: bytes = b"", *, version: int = 1, length: int | None = None) -> bytes:
    text = header.encode("latin-1")
    size = struct.pack("<H" if version == 1 else "<I", len(text) if length is None else length)
    return b"\x93NUMPY" + bytes([version, 0]) + size + text + body


def described(descr: str = "'<f8'", shape: str = "(2,)", fortran: str = "False") -> str:
    return f"{{'descr': {descr}, 'fortran_order': {fortran}, 'shape': {shape}, }}\n"


class Boom:
    def __reduce__(self) -> Any:
        return (os._exit, (13,))


plain = saved()
BAD_NPY: Mapping[str, tuple[Callable[[], bytes], str]] = {
    "pickled": (lambda: saved(allow_pickle=True)(np.array([Boom()], dtype=object)), "entries of type |O"),
    "a pickle": (lambda: pickle.dumps(np.arange(3.0)), "not a file of NumPy's format"),
    "an archive": (lambda: b"PK\x03\x04" + b"\0" * 100, "not a file of NumPy's format"),
    "empty": (lambda: b"", "not a file of NumPy's format"),
    "only the magic": (lambda: b"\x93NUMPY", "not a file of NumPy's format"),
    "only the beginning": (lambda: plain(np.arange(3.0))[:40], "header that cannot be read"),
    "truncated": (lambda: plain(np.arange(3.0))[:-1], "24 bytes, but 23 follow"),
    "too long": (lambda: plain(np.arange(3.0)) + b"\0", "24 bytes, but 25 follow"),
    "text": (lambda: plain(np.array(["a", "b"])), "entries of type <U1"),
    "bytes": (lambda: plain(np.array([b"a"])), "entries of type |S1"),
    "complex": (lambda: plain(np.array([1j])), "entries of type <c16"),
    "bool": (lambda: plain(np.array([True])), "entries of type |b1"),
    "long doubles": (lambda: plain(np.array([1], dtype=np.longdouble)), "entries of type <f16"),
    "dates": (lambda: plain(np.array(["2020-01-01"], dtype="M8[D]")), "entries of type <M8[D]"),
    "records": (lambda: plain(np.zeros(2, dtype=[("a", "f8"), ("b", "f8")])), "entries of type [("),
    "nan": (lambda: plain(np.array([1, np.nan])), "hold nan at [1]"),
    "inf": (lambda: plain(np.array([[1, 2], [-np.inf, 3]])), "hold -inf at [1, 0]"),
    "three axes": (lambda: plain(np.zeros((2, 2, 2))), "3 axes"),
    "no rows": (lambda: plain(np.zeros((0, 3))), "empty"),
    "whole numbers beyond 2**53": (lambda: plain(np.array([2**53 + 1])), "2**53"),
    "a lie about the shape": (lambda: headed(described(shape="(1000,)"), b"\0" * 80), "8000 bytes, but 80 follow"),
    "a smaller lie": (lambda: headed(described(shape="(1,)"), b"\0" * 80), "8 bytes, but 80 follow"),
    "terabytes": (lambda: headed(described(shape="(1000000, 1000000)")), "8000 GB"),
    "gigabytes of bytes": (lambda: headed(described("'|i1'", "(1000000000,)")), "8 GB"),
    "an endless number": (lambda: headed(described(shape=f"({'9' * 150},)")), "GB"),
    "a longer number": (lambda: headed(described(shape=f"({'9' * 5000},)")), "cannot be read"),
    "a negative shape": (lambda: headed(described(shape="(-1,)"), b"\0" * 8), "cannot be read"),
    "a shape of words": (lambda: headed(described(shape="(os,)")), "cannot be read"),
    "code for a header": (lambda: headed("__import__('os')._exit(13)\n"), "cannot be read"),
    "code in a header": (lambda: headed(described("__import__('os')")), "cannot be read"),
    "brackets for a header": (lambda: headed("(" * 9000), "cannot be read"),
    "signs for a header": (lambda: headed("-" * 9000 + "1"), "cannot be read"),
    "a long header": (lambda: headed(" " * 60_000), "header of 60000 bytes"),
    "an endless header": (lambda: headed("", version=2, length=2**32 - 1), "header of 4294967295 bytes"),
    "another version": (lambda: headed(described(), b"\0" * 16, version=9), "not a file of NumPy's format"),
}


@pytest.mark.parametrize("name", BAD_NPY)
def test_bad_npy(tmp_path: Path, name: str) -> None:
    content, message = BAD_NPY[name]
    (tmp_path / "A.npy").write_bytes(content())
    error = refused(tmp_path, '"A.npy"')
    assert message in error.message
    assert "A.npy" in error.message


@pytest.mark.parametrize("name", BAD_NPY)
def test_bad_npy_in_an_archive(tmp_path: Path, name: str) -> None:
    content, message = BAD_NPY[name]
    with zipfile.ZipFile(tmp_path / "A.npz", "w", zipfile.ZIP_DEFLATED) as archive:
        archive.writestr("A.npy", content())
    assert message in refused(tmp_path, '"A.npz:A"').message


def zipped(names: Mapping[str, bytes], **options: Any) -> bytes:
    stream = io.BytesIO()
    with zipfile.ZipFile(stream, "w", **options) as archive:
        for name, content in names.items():
            archive.writestr(name, content)
    return stream.getvalue()


def bomb() -> bytes:
    """Says that it holds 100 GB, in a few bytes."""
    content = bytearray(zipped({"A.npy": headed(described(shape="(12500000000,)")) + b"\0" * 1000}))
    at = content.rfind(b"PK\x01\x02")
    content[at + 24 : at + 28] = struct.pack("<L", 0xFFFFFF00)  # the uncompressed size in the directory
    return bytes(content)


def sparse(**parts: Any) -> bytes:
    stream = io.BytesIO()
    whole = {
        "indices": np.array([0, 1]), "indptr": np.array([0, 1, 2]), "format": np.array(b"csr"),
        "shape": np.array([2, 2]), "data": np.array([1.0, 2.0]),
    }  # fmt: skip
    np.savez(stream, **(whole | parts))
    return stream.getvalue()


good = plain(np.arange(3.0))
BAD_NPZ: Mapping[str, tuple[Callable[[], bytes], str, str]] = {
    "no archive": (lambda: b"hello", "", "no archive"),
    "empty": (lambda: b"", "", "no archive"),
    "an end alone": (lambda: b"PK\x05\x06" + b"\0" * 18, ":A", "no array 'A'"),
    "truncated": (lambda: zipped({"A.npy": good})[:-30], ":A", "no archive"),
    "cut in the middle": (lambda: zipped({"A.npy": good})[40:], ":A", "cannot be unpacked"),
    "another name": (lambda: zipped({"B.npy": good}), ":A", "no array 'A'"),
    "several": (lambda: zipped({"A.npy": good, "B.npy": good}), "", "holds 2 arrays"),
    "a bomb": (bomb, ":A", "GB"),
    "wrong sums": (lambda: zipped({"A.npy": good}).replace(good[-8:], b"\1" * 8), ":A", "cannot be unpacked"),
    "an endless directory": (lambda: _directory(2**31), ":A", "too many arrays"),
    "beyond 4 GB": (lambda: b"PK\x06\x07" + b"\0" * 16 + _directory(0), ":A", "too many arrays"),
    "a path in a name": (lambda: zipped({"../../A.npy": good}), ":A", "no array 'A'"),
    "words": (lambda: zipped({"A.npy": b"hello"}), ":A", "not a file of NumPy's format"),
    "sparse, indices too large": (lambda: sparse(indices=np.array([0, 7])), "", "do not fit"),
    "sparse, negative indices": (lambda: sparse(indices=np.array([0, -1])), "", "do not fit"),
    "sparse, falling rows": (lambda: sparse(indptr=np.array([0, 3, 2])), "", "do not fit"),
    "sparse, rows beyond the end": (lambda: sparse(indptr=np.array([0, 1, 900])), "", "do not fit"),
    "sparse, few rows": (lambda: sparse(indptr=np.array([0, 2])), "", "do not fit"),
    "sparse, too little data": (lambda: sparse(data=np.array([1.0])), "", "do not fit"),
    "sparse, floats for indices": (lambda: sparse(indices=np.array([0.0, 1.0])), "", "do not fit"),
    "sparse, nan": (lambda: sparse(data=np.array([1.0, np.nan])), "", "nan at [1, 1]"),
    "sparse, by columns": (lambda: sparse(format=np.array(b"csc")), "", "by rows"),
    "sparse, three axes": (lambda: sparse(shape=np.array([2, 2, 2])), "", "no matrix"),
    "sparse, an endless shape": (lambda: sparse(shape=np.array([2, 2**60])), "", "GB"),
    "sparse, a negative shape": (lambda: sparse(shape=np.array([-2, 2])), "", "do not fit"),
    "sparse, pickled": (lambda: zipped({**_members(sparse()), "data.npy": BAD_NPY["pickled"][0]()}), "", "type |O"),
}


def _members(content: bytes) -> dict[str, bytes]:
    with zipfile.ZipFile(io.BytesIO(content)) as archive:
        return {name: archive.read(name) for name in archive.namelist()}


def _directory(length: int) -> bytes:
    return npz.END.pack(b"PK\x05\x06", 0, 0, 65535, 65535, length, 0, 0)


@pytest.mark.parametrize("name", BAD_NPZ)
def test_bad_npz(tmp_path: Path, name: str) -> None:
    content, part, message = BAD_NPZ[name]
    (tmp_path / "A.npz").write_bytes(content())
    assert message in refused(tmp_path, f'"A.npz{part}"').message


def test_an_encrypted_archive(tmp_path: Path) -> None:
    content = bytearray(zipped({"A.npy": good}))
    for mark, at in ((b"PK\x03\x04", 6), (b"PK\x01\x02", 8)):
        content[content.rfind(mark) + at] |= 1
    (tmp_path / "A.npz").write_bytes(content)
    assert "cannot be unpacked" in refused(tmp_path, '"A.npz:A"').message


BAD_TABLES: Mapping[str, tuple[bytes, str, str]] = {
    "empty": (b"", "", "is empty"),
    "names alone": (b"a,b\n", "", "empty"),
    "empty lines": (b"\n\n\n", "", "is empty"),
    "a word": (b"a,b\n1,two\n", "", "'two' in line 2, column b"),
    "a missing number": (b"a,b\n1,\n", "", "'' in line 2, column b"),
    "nan": (b"a,b\n1,nan\n", "", "'nan' in line 2, column b"),
    "inf in the first line": (b"inf,1\n", "", "'inf' in line 1, column 1"),
    "an underscore": (b"1,2\n1_000,2\n", "", "'1_000' in line 2, column 1"),
    "a short row": (b"1,2\n3\n", "", "1 cells in line 2, not 2"),
    "a long row": (b"1,2\n3,4,5\n", "", "3 cells in line 2, not 2"),
    "two columns of a name": (b"a,a\n1,2\n", "", "two columns called 'a'"),
    "no such column": (b"a,b\n1,2\n", ":c", "no column 'c'"),
    "a column without names": (b"1,2\n3,4\n", ":c", "no line of names"),
    "an open quote": (b'a,b\n1,"2\n', "", "is no table"),
    "not UTF-8": (b"a,b\n\xff\xfe,1\n", "", "is no table"),
    "zeros": (b"\0" * 1000, "", ""),
    "semicolons": (b"1;2\n3;4\n", "", "column 1;2"),
    "a long cell": (b"1" * 200_000, "", "is no table"),
}


@pytest.mark.parametrize("name", BAD_TABLES)
def test_bad_tables(tmp_path: Path, name: str) -> None:
    content, part, message = BAD_TABLES[name]
    (tmp_path / "t.csv").write_bytes(content)
    assert message in refused(tmp_path, f'"t.csv{part}"').message


def test_a_table_that_is_too_large(tmp_path: Path) -> None:
    with (tmp_path / "t.csv").open("wb") as file:
        file.truncate(tables.MAX_TABLE + 1)
    assert f"{tables.MAX_TABLE + 1} bytes" in refused(tmp_path, '"t.csv"').message


def test_a_file_of_terabytes(tmp_path: Path) -> None:
    """With holes, so that it takes no room: what it holds is too much, whatever its header says."""
    for ending, content in (("npy", headed(described(shape="(137438953472,)"))), ("npz", b"")):
        with (tmp_path / f"A.{ending}").open("wb") as file:
            file.write(content)
            file.truncate(1 << 40)
        assert f"A.{ending}" in refused(tmp_path, f'"A.{ending}"').message


# ---- where files lie --------------------------------------------------------------------------------------------


@pytest.fixture
def inner(tmp_path: Path) -> Path:
    """A folder, with a file outside that must not be read."""
    np.save(tmp_path / "secret.npy", np.arange(3.0))
    (tmp_path / "inner").mkdir()
    return tmp_path / "inner"


@pytest.mark.parametrize(
    "name",
    ["../secret.npy", "data/../../secret.npy", "./../secret.npy", "..\\\\secret.npy", "C:secret.npy", "//secret.npy"],
)
def test_paths_out_of_the_folder(inner: Path, name: str) -> None:
    (inner / "data").mkdir()
    assert "does not lie beside" in refused(inner, f'"{name}"').message


def test_absolute_paths(inner: Path) -> None:
    assert "does not lie beside" in refused(inner, f'"{(inner.parent / "secret.npy").as_posix()}"').message


def test_links_out_of_the_folder(inner: Path) -> None:
    (inner / "A.npy").symlink_to(inner.parent / "secret.npy")
    assert "leads out of the folder" in refused(inner, '"A.npy"').message
    (inner / "below").symlink_to(inner.parent)
    assert "leads out of the folder" in refused(inner, '"below/secret.npy"').message
    (inner / "zero.npy").symlink_to("/dev/zero")
    assert "leads out of the folder" in refused(inner, '"zero.npy"').message


def test_links_in_a_circle_and_to_nothing(inner: Path) -> None:
    (inner / "A.npy").symlink_to("B.npy")
    (inner / "B.npy").symlink_to("A.npy")
    (inner / "C.npy").symlink_to("gone.npy")
    for name in ("A", "B", "C", "gone"):
        assert "cannot be read" in refused(inner, f'"{name}.npy"').message


def test_what_is_no_plain_file(inner: Path) -> None:
    (inner / "A.npy").mkdir()
    os.mkfifo(inner / "B.npy")
    for name in "AB":
        assert "is not a file" in refused(inner, f'"{name}.npy"').message


@pytest.mark.skipif(os.geteuid() == 0, reason="everything may be read by root")
def test_files_that_may_not_be_read(inner: Path) -> None:
    np.save(inner / "A.npy", np.arange(3.0))
    (inner / "A.npy").chmod(0)
    assert "cannot be read: Permission denied" in refused(inner, '"A.npy"').message


@pytest.mark.parametrize(
    "name", ["a\\u0000.npy", "\\u001b[2J.npy", "a" * 300 + ".npy", ".npy", "d/.npy", "x" * 1200 + ".npy"]
)
def test_names_that_no_file_has(inner: Path, name: str) -> None:
    assert "\x1b" not in str(refused(inner, f'"{name}"'))


def test_a_part_of_what_has_none(inner: Path) -> None:
    np.save(inner / "A.npy", np.arange(3.0))
    assert "one array" in refused(inner, '"A.npy:b"').message


def test_names_that_clash() -> None:
    for name in ("lam", "w"):
        with pytest.raises(InvalidProblem, match=f"{name} stands twice"):
            parse_problem(RIDGE + f"{name} = [1]\n", "toy")
    with pytest.raises(InvalidProblem, match="already has a meaning"):
        parse_problem(RIDGE + "sin = [1]\n", "toy")
    with pytest.raises(InvalidProblem, match="is not a name"):
        parse_problem(RIDGE + '"a b" = [1]\n', "toy")


@pytest.mark.parametrize(
    "bad", ['"x[n"', '"x]n["', '"x[]"', '"x[a, b, c]"', '["x[n]", 3]', '"x[-1]"', '"1x[n]"', '"sin[n]"']
)
def test_bad_declarations(bad: str) -> None:
    with pytest.raises(InvalidProblem, match="toy: x") as caught:
        parse_problem(f'x = {bad}\ny = "y[n]"\nf = "1"\ng = "1"', "toy")
    assert len(str(caught.value).splitlines()) <= 2


def test_text_without_a_folder_has_no_files() -> None:
    with pytest.raises(InvalidProblem, match="there is no folder to look in"):
        parse_problem(RIDGE + 'A = "A.npy"\n', "toy")


def test_errors_of_formulas_are_placed_in_the_file(tmp_path: Path) -> None:
    (tmp_path / "toy.toml").write_text((RIDGE + DATA).replace("@ w - b", "@ w - q"))
    with pytest.raises(InvalidProblem, match=r"unknown name q \(.*toy.toml, g, line 5, column 19\)"):
        BilevelProblem.load(tmp_path / "toy.toml")


# ---- writing ----------------------------------------------------------------------------------------------------

FLOATS = st.floats(allow_nan=False, allow_infinity=False)
ARRAYS = arrays(np.float64, array_shapes(min_dims=0, max_dims=2, max_side=4), elements=FLOATS)


@given(st.dictionaries(st.sampled_from("ABCDabcd"), st.one_of(ARRAYS, st.sampled_from(["m, n", "scalar"])), min_size=1))
def test_small_arrays_read_back_equal(given: dict[str, Any]) -> None:
    data = {name: value if isinstance(value, str) else data_array(value, name) for name, value in given.items()}
    fields = ProblemFile("minimax", ("x",), ("y[n]",), "x", None, data=data)
    again = parse_problem(problem_toml(fields), "toy")
    assert again == fields
    for name, array in data.items():
        if isinstance(array, DataArray):
            assert again.data is not None
            assert np.array_equal(again.data[name].values, array.values)  # type: ignore[union-attr]


def ridge(m: int, n: int, *, sparse: bool = False, name: str | None = None) -> BilevelProblem:
    rng = np.random.default_rng(m + n)
    A = rng.normal(size=(m, n))
    return BilevelProblem(
        "sum((B @ w - c)**2)", "sum((A @ w - b)**2) + exp(lam)*(w @ w)", "lam", "w[n]", name=name,
        data={
            "A": scipy.sparse.csr_array(np.where(A > 0.5, A, 0)) if sparse else A, "b": rng.normal(size=m),
            "B": rng.normal(size=(3, n)), "c": rng.normal(size=3),
        },
    )  # fmt: skip


def test_small_problems_are_one_file(tmp_path: Path) -> None:
    problem = ridge(5, 2, name="ridge")
    problem.save(tmp_path / "toy.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["toy.toml"]
    assert (tmp_path / "toy.toml").read_text(encoding="utf-8") == problem.to_toml()
    assert BilevelProblem.load(tmp_path / "toy.toml") == problem


def test_large_arrays_lie_beside_the_file(tmp_path: Path) -> None:
    problem = ridge(150, 4)
    problem.save(tmp_path / "toy.toml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.A.npy", "toy.toml"]
    assert np.array_equal(np.load(tmp_path / "toy.A.npy"), problem.arrays["A"])
    assert BilevelProblem.load(tmp_path / "toy.toml") == problem
    with pytest.raises(InvalidProblem, match="the data A have 600 entries") as caught:
        problem.to_toml()
    assert "save(path)" in (caught.value.hint or "")


def test_sparse_arrays_stay_sparse(tmp_path: Path) -> None:
    problem = ridge(30, 3, sparse=True)
    problem.save(tmp_path / "toy.toml")
    assert sorted(path.name for path in tmp_path.iterdir()) == ["toy.A.npz", "toy.toml"]
    again = BilevelProblem.load(tmp_path / "toy.toml")
    assert again == problem
    assert scipy.sparse.issparse(again.arrays["A"])
    assert (scipy.sparse.load_npz(tmp_path / "toy.A.npz") != problem.arrays["A"]).nnz == 0


def test_two_problems_in_one_folder(tmp_path: Path) -> None:
    one, two = ridge(150, 4), ridge(151, 4)
    one.save(tmp_path / "one.toml")
    two.save(tmp_path / "two.toml")
    assert BilevelProblem.load(tmp_path / "one.toml") == one
    assert BilevelProblem.load(tmp_path / "two.toml") == two


def test_names_that_differ_in_their_case_alone() -> None:
    large = {"a": data_array(np.zeros(300), "a"), "A": data_array(np.ones(300), "A")}
    fields = ProblemFile("minimax", ("x",), ("y[n]",), "x", None, data=large)
    names = [Path(path).name.lower() for path in problem_files(fields, "toy.toml")]
    assert len(names) == len(set(names)) == 3


def test_minimax_and_shapes_alone(tmp_path: Path) -> None:
    problem = MinimaxProblem(
        "x @ (A @ y) - y @ y", "x[m]", "y[n]", data={"A": "m, n"}, box={"x": (-1, 1), "y": (-2, 2)}
    )
    problem.save(tmp_path / "toy.toml")
    again = BilevelProblem.load(tmp_path / "toy.toml")
    assert again == problem
    assert isinstance(again, MinimaxProblem)
    assert again.box == problem.box


def test_files_appear_together_or_not_at_all(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    old, new = ridge(150, 4), ridge(151, 4)
    old.save(tmp_path / "toy.toml")
    before = {path.name: path.read_bytes() for path in tmp_path.iterdir()}

    def full(array: DataArray) -> Any:
        yield b"the beginning"
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(writing, "npy_pieces", full)
    with pytest.raises(CannotWrite, match="the disk is full"):
        new.save(tmp_path / "toy.toml")
    assert {path.name: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_what_nothing_can_lie_beside(tmp_path: Path) -> None:
    large = ridge(150, 4)
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path("/dev/null"), tmp_path):
        with pytest.raises(InvalidArgument):
            large.save(path)
    with pytest.raises(InvalidArgument, match="cannot begin the names"):
        large.save(tmp_path / "a\\b.toml")
    with pytest.raises(CannotWrite):
        large.save(tmp_path / "no" / "toy.toml")
    assert [path.name for path in tmp_path.iterdir()] == ["pipe"]


def test_what_does_not_read_back_is_not_written() -> None:
    fields = ProblemFile("minimax", ("x",), ("y[n]",), "x", None, data={"A": "m, n"})
    for bad in (
        replace(fields, data={"A": "m, n, k"}),
        replace(fields, data={"sin": "m"}),
        replace(fields, y=("y[n",)),
    ):
        with pytest.raises(InvalidProblem):
            problem_toml(bad)


def test_scalar_files_have_no_data() -> None:
    assert parse_problem('x = "x"\ny = "y"\nf = "x*y"\ng = "y**2"', "toy").data is None
    assert "[data]" not in BilevelProblem("x*y", "y**2/2 - x*y", "x", "y").to_toml()
