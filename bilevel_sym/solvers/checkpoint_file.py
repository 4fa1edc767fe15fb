"""A checkpoint as a file: what run it belongs to, how far that has come, and arrays to the last bit.

A line that names the format, a line of JSON, the raw bytes of the arrays, and a SHA-256 of all that. Nothing in it is
ever executed, no array is larger than the file, and one flipped bit is noticed.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import stat
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.errors import CheckpointFailure
from bilevel_sym.system.plain_text import named
from bilevel_sym.system.writing import write

Arrays: TypeAlias = dict[str, NDArray[Any]]
About: TypeAlias = dict[str, Any]

FORMAT = b"bilevel-sym/checkpoint/1\n"
TYPES = frozenset({"<f8", "<i8", "<u8", "|i1", "|b1"})
MAX_HEADER_BYTES = 2**26  # bytes of the line of JSON; seeds take most of it
DIGEST_LETTERS = 64


@dataclass(frozen=True)
class Saved:
    """What a file holds: whose it is, the step before which it was taken, and the arrays by name.

    >>> Saved({"seeds": [0]}, 10, {}).k
    10
    """

    about: About
    k: int
    arrays: Arrays


def write_checkpoint(path: str | os.PathLike[str], saved: Saved) -> None:
    """Put the file in place, whole.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "run.checkpoint"
    >>> write_checkpoint(path, Saved({"seeds": [0]}, 10, {"x": np.array([0.1])}))
    >>> read_checkpoint(path)
    Saved(about={'seeds': [0]}, k=10, arrays={'x': array([0.1])})
    """
    write(path, _pieces(saved))


def _pieces(saved: Saved) -> Iterator[bytes]:
    arrays = {name: np.ascontiguousarray(array, dtype=array.dtype.newbyteorder("<")) for name, array in
              saved.arrays.items()}  # fmt: skip
    table = [[name, array.dtype.str, list(array.shape)] for name, array in arrays.items()]
    header = json.dumps({"about": saved.about, "k": saved.k, "arrays": table}, allow_nan=False)
    digest = hashlib.sha256()
    for piece in (FORMAT, header.encode() + b"\n", *(array.tobytes() for array in arrays.values())):
        digest.update(piece)
        yield piece
    yield digest.hexdigest().encode()


def read_checkpoint(path: str | os.PathLike[str]) -> Saved | None:
    """What a file holds; None where there is none. Raises CheckpointFailure for anything that is not a whole one."""
    try:
        if not stat.S_ISREG(Path(path).stat().st_mode):
            raise _failure(path, "is not a file")
        content = Path(path).read_bytes()
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise _failure(path, f"cannot be read: {getattr(error, 'strerror', None) or error}") from None
    if not content.startswith(FORMAT):
        raise _failure(path, "is not a checkpoint, or one of another version")
    body, digest = content[:-DIGEST_LETTERS], content[-DIGEST_LETTERS:]
    if hashlib.sha256(body).hexdigest().encode() != digest:
        raise _failure(path, "is damaged: its digest does not fit")
    try:
        return _parsed(memoryview(body)[len(FORMAT) :])
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError, OverflowError):
        raise _failure(path, "is damaged: it does not hold what a checkpoint holds") from None


def _parsed(body: memoryview) -> Saved:
    end = bytes(body[:MAX_HEADER_BYTES]).index(b"\n")
    header = json.loads(bytes(body[:end]))
    about, k, table = header["about"], header["k"], header["arrays"]
    if not isinstance(about, dict) or type(k) is not int or k < 0:
        raise ValueError
    at, arrays = end + 1, dict[str, NDArray[Any]]()
    for name, kind, shape in table:
        if kind not in TYPES or any(type(length) is not int or length < 0 for length in shape):
            raise ValueError
        size = math.prod(shape) * np.dtype(kind).itemsize
        if size > len(body) - at:
            raise ValueError
        arrays[str(name)] = np.frombuffer(body[at : at + size], dtype=kind).reshape(shape).copy()
        at += size
    if at != len(body):
        raise ValueError
    return Saved(about, k, arrays)


def _failure(path: str | os.PathLike[str], what: str) -> CheckpointFailure:
    return CheckpointFailure(f"{named(path)} {what}; nothing was run, and it was left as it is")


def same_layout(found: Mapping[str, NDArray[Any]], wanted: Mapping[str, NDArray[Any]]) -> bool:
    """Whether arrays have the names, types and shapes of others."""
    return {name: (a.dtype, a.shape) for name, a in found.items()} == {
        name: (a.dtype, a.shape) for name, a in wanted.items()
    }
