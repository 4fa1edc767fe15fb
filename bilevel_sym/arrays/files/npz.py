"""The .npz format: a zip of .npy files; also that in which scipy keeps a sparse matrix."""

from __future__ import annotations

import struct
import zipfile
import zlib
from collections.abc import Mapping
from io import BytesIO
from typing import IO, Any

import numpy as np

from bilevel_sym.arrays.data import DataArray
from bilevel_sym.arrays.files.npy import MAX_BYTES, check_size, read_npy
from bilevel_sym.errors import InvalidProblem

__all__ = ["read_npz", "sparse_npz"]

MAX_DIRECTORY = 1_000_000  # bytes of the list of what is inside: some ten thousand arrays
END = struct.Struct("<4s4H2LH")  # the record at the end of a zip, before its comment
LOCATOR = b"PK\x06\x07"  # of the record of archives beyond 4 GB, 20 bytes before the end record
SPARSE = frozenset({"indices", "indptr", "format", "shape", "data"})
DAMAGED = (
    zipfile.BadZipFile,
    zlib.error,
    EOFError,
    NotImplementedError,
    RuntimeError,
    struct.error,
    OSError,
    ValueError,
)


def read_npz(stream: IO[bytes], size: int, member: str | None) -> Any:
    """One array of an archive of ``size`` bytes: by name, or the only one.

    stream: the archive
    size: how long it is
    member: the name of the array; None for the only one, or for the sparse matrix that scipy wrote

    >>> archive = BytesIO()
    >>> np.savez(archive, A=np.eye(2), b=np.ones(2))
    >>> read_npz(archive, len(archive.getvalue()), "b")
    array([1., 1.])
    """
    try:
        _check_directory(stream, size)
        with zipfile.ZipFile(stream) as archive:
            inside = {info.filename.removesuffix(".npy"): info for info in archive.infolist()}
            if member is None and inside.keys() >= SPARSE:
                return _sparse(archive, inside)
            return _member(archive, inside[_chosen(inside, member)])
    except InvalidProblem:
        raise
    except DAMAGED as error:
        raise InvalidProblem(f"cannot be unpacked: {error!s:.100}", hint="save it again with numpy.savez") from None


def _check_directory(stream: IO[bytes], size: int) -> None:
    """The list of what is inside is read as a whole: it must be short."""
    if size > MAX_BYTES:
        raise InvalidProblem(f"has {size} bytes", hint=f"at most {MAX_BYTES / 1e9:.0f} GB: an archive for each array")
    tail = min(size, END.size + len(LOCATOR) + 16 + 0xFFFF)
    stream.seek(size - tail)
    end = stream.read(tail)
    at = end.rfind(b"PK\x05\x06")
    if at < 0 or len(end) - at < END.size:
        raise InvalidProblem("is no archive of NumPy's", hint="numpy.savez writes one")
    length = END.unpack_from(end, at)[5]
    if length > MAX_DIRECTORY or (at >= 20 and end[at - 20 : at - 16] == LOCATOR):
        raise InvalidProblem("has too many arrays inside", hint="an archive of a few arrays, or a .npy for each")
    stream.seek(0)


def _chosen(inside: Mapping[str, object], member: str | None) -> str:
    known = ", ".join(list(inside)[:20])
    if member is None:
        if len(inside) == 1:
            return next(iter(inside))
        raise InvalidProblem(f"holds {len(inside)} arrays", hint=f"name one behind a colon; there are {known:.200}")
    if member not in inside:
        raise InvalidProblem(f"has no array {member!r:.60}", hint=f"there are {known:.200}")
    return member


def _member(archive: zipfile.ZipFile, info: zipfile.ZipInfo) -> Any:
    with archive.open(name=info, mode="r") as stream:
        try:
            return read_npy(stream, info.file_size)
        except InvalidProblem as error:
            name = info.filename.removesuffix(".npy")
            raise InvalidProblem(f"has an array {name!r:.60} that {error.message}", hint=error.hint) from None


# ---- sparse matrices ------------------------------------------------------------------------------------------------


def _sparse(archive: zipfile.ZipFile, inside: Mapping[str, zipfile.ZipInfo]) -> Any:
    """A matrix in compressed rows; every index is checked before scipy relies on it."""
    from scipy.sparse import csr_array

    if inside["format"].file_size > 1000 or b"csr" not in archive.read(inside["format"])[-4:]:
        raise InvalidProblem(
            "holds a sparse matrix that is not kept by rows", hint="scipy.sparse.save_npz(..., A.tocsr())"
        )
    shape, starts, columns, data = (_member(archive, inside[key]) for key in ("shape", "indptr", "indices", "data"))
    rows, width = _sparse_shape(shape)
    check_size((max(rows, width),))
    if not _fits(starts, columns, data, rows, width):
        raise InvalidProblem("holds a sparse matrix whose indices do not fit", hint="scipy.sparse.save_npz writes it")
    return csr_array((data, columns.astype(np.int64), starts.astype(np.int64)), shape=(rows, width))


def _sparse_shape(shape: Any) -> tuple[int, int]:
    if shape.shape != (2,) or shape.dtype.kind not in "iu":
        raise InvalidProblem("holds a sparse array that is no matrix", hint="vectors are kept dense")
    rows, width = (int(size) for size in shape)
    return rows, width


def _fits(starts: Any, columns: Any, data: Any, rows: int, width: int) -> bool:
    if not all(part.ndim == 1 for part in (starts, columns, data)) or columns.shape != data.shape:
        return False
    if not all(part.dtype.kind in "iu" for part in (starts, columns)) or starts.size != rows + 1:
        return False
    within = not columns.size or (int(columns.min()) >= 0 and int(columns.max()) < width)
    rising = bool((starts[1:] >= starts[:-1]).all())
    return within and rising and int(starts[0]) == 0 and int(starts[-1]) == columns.size


def sparse_npz(array: DataArray) -> bytes:
    """The content of the file of a sparse matrix, which scipy reads too.

    >>> import scipy.sparse
    >>> from bilevel_sym.arrays.data import data_array
    >>> content = sparse_npz(data_array(scipy.sparse.eye_array(3), "A"))
    >>> read_npz(BytesIO(content), len(content), None).shape
    (3, 3)
    """
    from scipy.sparse import csr_array, save_npz

    target = BytesIO()
    save_npz(target, csr_array(array.values), compressed=True)
    return target.getvalue()
