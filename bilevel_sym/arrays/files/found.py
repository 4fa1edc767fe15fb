"""Where a file of data lies, and what is in it: beside the problem file or below it, a plain file, of a known kind."""

from __future__ import annotations

import os
import re
import stat
from io import TextIOWrapper
from pathlib import Path, PurePosixPath
from typing import BinaryIO

from bilevel_sym.arrays.data import DataArray, data_array
from bilevel_sym.arrays.files.npy import read_npy
from bilevel_sym.arrays.files.npz import read_npz
from bilevel_sym.arrays.files.tables import MAX_TABLE, read_table
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.system.plain_text import named

__all__ = ["is_array_file", "read_array"]

MAX_NAME = 1000  # characters of a name
_FILE = re.compile(r"(?P<file>.+?\.(?P<kind>npy|npz|csv))(?::(?P<part>.+))?", re.DOTALL | re.IGNORECASE)


def is_array_file(text: str) -> bool:
    """Whether a text names a file of data, and is no shape.

    >>> is_array_file("train.npz:A"), is_array_file("m, n")
    (True, False)
    """
    return len(text) <= MAX_NAME and _FILE.fullmatch(text) is not None


def read_array(folder: Path, text: str, name: str) -> DataArray:
    """The array that a text such as "train.npy", "file.npz:A" or "table.csv:age" names.

    folder: where files are looked for, and nowhere else
    text: the name of a file, and of what is in it
    name: of the data, for messages

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> _ = (folder / "b.csv").write_text("1\\n-1\\n")
    >>> read_array(folder, "b.csv", "b").nested()
    [1, -1]
    """
    match = _FILE.fullmatch(text)
    if match is None:
        raise InvalidProblem(f"{text!r:.60} names no file of data", hint='"train.npy", "file.npz:A" or "table.csv"')
    file, part = match["file"], match["part"]
    if match["kind"].lower() == "npy" and part is not None:
        raise InvalidProblem(f"{named(file)} holds one array, and nothing called {part!r:.60}", hint=f'"{named(file)}"')
    try:
        with _opened(folder, file) as stream:
            content = _content(stream, match["kind"].lower(), part)
    except InvalidProblem as error:
        raise InvalidProblem(f"{named(file)} {error.message}", hint=error.hint) from None
    except MemoryError:
        raise InvalidProblem(f"{named(file)} does not fit into memory", hint="fewer rows, or a sparse matrix") from None
    try:
        return data_array(content, name)
    except InvalidProblem as error:
        raise InvalidProblem(f"{error.message} ({named(file)})", hint=error.hint) from None


def _content(stream: BinaryIO, kind: str, part: str | None) -> object:
    size = os.fstat(stream.fileno()).st_size
    if kind == "npy":
        return read_npy(stream, size)
    if kind == "npz":
        return read_npz(stream, size, part)
    if size > MAX_TABLE:
        raise InvalidProblem(f"has {size} bytes", hint=f"at most {MAX_TABLE} of a table; larger ones as .npy")
    with TextIOWrapper(stream, encoding="utf-8-sig", newline="") as lines:
        return read_table(lines, part)


def _opened(folder: Path, file: str) -> BinaryIO:
    """The file, opened for reading once it is known where it lies and what it is."""
    inside = PurePosixPath(file)
    if inside.is_absolute() or ".." in inside.parts or "\\" in file or "\0" in file or ":" in inside.parts[0]:
        raise InvalidProblem("does not lie beside the problem file", hint="copy it into the folder of the problem file")
    try:
        home = folder.resolve(strict=True)
        place = home.joinpath(*inside.parts).resolve(strict=True)
        if not place.is_relative_to(home):
            raise InvalidProblem("is a link that leads out of the folder", hint="copy the file itself into the folder")
        if not stat.S_ISREG(place.stat().st_mode):
            raise InvalidProblem("is not a file", hint="a plain file: no folder, pipe or device")
        stream = place.open("rb")
    except (OSError, RuntimeError, ValueError) as error:  # RuntimeError: links in a circle, before Python 3.13
        if isinstance(error, InvalidProblem):
            raise
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidProblem(f"cannot be read: {reason}", hint="a file beside the problem file") from None
    if not stat.S_ISREG(os.fstat(stream.fileno()).st_mode):
        stream.close()
        raise InvalidProblem("is not a file", hint="a plain file: no folder, pipe or device")
    return stream
