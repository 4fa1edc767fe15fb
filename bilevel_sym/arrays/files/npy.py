"""The .npy format: a header of one known form, then the numbers. Read strictly: what it claims must be what follows."""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from io import BytesIO
from typing import IO, Any, NamedTuple

import numpy as np

from bilevel_sym.arrays.data import MAX_RANK, DataArray
from bilevel_sym.errors import InvalidProblem

__all__ = ["MAX_BYTES", "Header", "npy_pieces", "read_header", "read_npy"]

MAX_BYTES = 2_000_000_000  # of one array as float64
MAX_HEADER = 10_000  # bytes
MAGIC = b"\x93NUMPY"
PIECE = 1 << 24  # bytes that are written at once

_HEADER = re.compile(
    r"\{'descr': (?P<descr>'[^']*'|\[.*\]), 'fortran_order': (?P<fortran>True|False), "
    r"'shape': \((?P<shape>[0-9, ]{0,200})\),? ?\}[ \n]*",
    re.DOTALL,
)
_NUMBERS = re.compile(r"'[<>|=]?(f[248]|[iu][1248])'")


class Header(NamedTuple):
    """What the beginning of a file says.

    >>> Header("<f8", False, (2, 3), 128).nbytes
    48
    """

    descr: str
    fortran: bool
    shape: tuple[int, ...]
    length: int  # of the header itself, in bytes

    @property
    def nbytes(self) -> int:
        """How many bytes of numbers must follow."""
        return math.prod(self.shape) * np.dtype(self.descr).itemsize


def read_npy(stream: IO[bytes], size: int) -> Any:
    """The array in ``size`` bytes of a stream.

    >>> content = b"".join(npy_pieces(DataArray(np.array([1.0, 2.0]))))
    >>> read_npy(BytesIO(content), len(content))
    array([1., 2.])
    """
    header = read_header(stream)
    check_size(header.shape)
    if size - header.length != header.nbytes:
        raise InvalidProblem(
            f"says that it holds {_shown(header.shape)} numbers of type {header.descr}, {header.nbytes} bytes, "
            f"but {max(size - header.length, 0)} follow",
            hint="it is damaged: save it again with numpy.save",
        )
    content = stream.read(header.nbytes)
    if len(content) != header.nbytes:
        raise InvalidProblem("ends before its last number", hint="it is damaged: save it again with numpy.save")
    array = np.frombuffer(content, dtype=header.descr)
    return array.reshape(header.shape, order="F" if header.fortran else "C")


def read_header(stream: IO[bytes]) -> Header:
    """The header at the beginning of a stream: numbers only, with a shape.

    >>> read_header(BytesIO(b"PK"))
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: is not a file of NumPy's format
    try: numpy.save writes it
    """
    start = stream.read(8)
    if start[:6] != MAGIC or start[6:] not in (b"\x01\x00", b"\x02\x00", b"\x03\x00"):
        raise InvalidProblem("is not a file of NumPy's format", hint="numpy.save writes it")
    width = 2 if start[6] == 1 else 4
    length = int.from_bytes(stream.read(width), "little")
    if length > MAX_HEADER:
        raise InvalidProblem(f"has a header of {length} bytes", hint="numbers only: numpy.save of an array of floats")
    match = _HEADER.fullmatch(stream.read(length).decode("latin-1"))
    if match is None:
        raise InvalidProblem("has a header that cannot be read", hint="save it again with numpy.save")
    if not _NUMBERS.fullmatch(match["descr"]):
        raise InvalidProblem(
            f"holds entries of type {match['descr'][:60].strip(chr(39))}",
            hint="float64, float32, float16 and whole numbers: convert with .astype(float) and save it again",
        )
    shape = tuple(int(size) for size in match["shape"].replace(",", " ").split())
    return Header(match["descr"].strip("'"), match["fortran"] == "True", shape, 8 + width + length)


def check_size(shape: tuple[int, ...]) -> None:
    """Refuse what is no vector or matrix, or too large, before anything is allocated.

    >>> check_size((10**6, 10**6))
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: holds 1000000 x 1000000 numbers, which take 8000 GB
    try: at most 2 GB: fewer rows, or a sparse matrix
    """
    if len(shape) > MAX_RANK:
        raise InvalidProblem(f"has {len(shape)} axes", hint="numbers, vectors and matrices: split it along an axis")
    if 8 * math.prod(shape) > MAX_BYTES:
        raise InvalidProblem(
            f"holds {_shown(shape)} numbers, which take {8 * math.prod(shape) / 1e9:.4g} GB",
            hint=f"at most {MAX_BYTES / 1e9:.0f} GB: fewer rows, or a sparse matrix",
        )


def _shown(shape: tuple[int, ...]) -> str:
    return " x ".join(map(str, shape)) or "1"


def npy_pieces(array: DataArray) -> Iterator[bytes]:
    """The content of the file of a dense array, piece by piece.

    >>> from bilevel_sym.arrays.data import data_array
    >>> next(npy_pieces(data_array([1, 2], "b")))[:6]
    b'\\x93NUMPY'
    """
    values = np.ascontiguousarray(array.values, dtype="<f8").reshape(array.shape)
    start = BytesIO()
    described = {"descr": "<f8", "fortran_order": False, "shape": array.shape}
    np.lib.format.write_array_header_1_0(start, described)
    yield start.getvalue()
    flat = values.reshape(-1)
    for first in range(0, flat.size, PIECE // 8):
        yield flat[first : first + PIECE // 8].tobytes()
