"""The one door for files: whatever is written is written here, whole or not at all.

A file is written under a fresh name beside its target, brought to the disk, and renamed. Until then the target is as it
was, whatever happens. Only ``kill -9`` or a power cut can leave the other name behind, ``.run.csv.<letters>.partial``,
which disturbs nothing and may be deleted.

- A target that is a symbolic link is replaced by the file, and where the link led stays as it was. Links among the
  folders above it are followed, as everywhere.
- A pipe, a terminal, ``/dev/null``, ``/dev/stdout`` and ``/dev/fd/N`` are written directly: nothing can be replaced.
- A directory, a socket and a disk are refused, and so is a file that is read-only.
- Files that belong together are all on the disk before the first of them is renamed. Renames of several files are not
  one step of any file system: a power cut between two of them leaves new files beside old ones, each of them whole.
"""

from __future__ import annotations

import contextlib
import csv
import errno
import os
import re
import secrets
import stat
from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import BinaryIO, TypeAlias

from bilevel_sym.errors import CannotWrite, InvalidArgument
from bilevel_sym.system.plain_text import named

__all__ = ["Content", "Where", "check_target", "csv_lines", "delete", "make_folder", "write", "write_together"]

# in pieces: what is too large to be held at once
Content: TypeAlias = str | bytes | Iterable[str] | Iterable[bytes]
Where: TypeAlias = str | os.PathLike[str]

STEM_LETTERS = 40  # letters of the target in the name of its neighbour: 255 bytes are allowed in all
WRITE_FLAGS = os.O_WRONLY | getattr(os, "O_NOFOLLOW", 0) | getattr(os, "O_BINARY", 0)  # Windows has the last alone
DESCRIPTOR = re.compile(r"/dev/std(out|err)|/(?:dev|proc/self)/fd/([0-9]{1,6})")

# what the system says -> why, and what to try; {folder} is that of the target
REASONS = {
    errno.ENOSPC: ("the disk is full", "make room, or name another place"),
    errno.EDQUOT: ("your share of the disk is used up", "make room, or name another place"),
    errno.EFBIG: ("it is larger than files may be here", "a larger limit (ulimit -f), or another place"),
    errno.EACCES: ("permission denied", "a file in a folder of your own"),
    errno.EPERM: ("permission denied", "a file in a folder of your own"),
    errno.EROFS: ("nothing can be written on that disk", "another place"),
    errno.EISDIR: ("it is a directory", "a file in it"),
    errno.ENOENT: ("there is no folder {folder}", "make it first: mkdir -p {folder}"),
    errno.ENOTDIR: ("{folder} is not a folder", "another place"),
    errno.ENAMETOOLONG: ("the name is too long", "a shorter one"),
    errno.EEXIST: ("a file of that name is in the way", "another place"),
    errno.ELOOP: ("links lead in a circle", "another place"),
}


def write(path: Where, content: Content) -> None:
    """Put a file in place, whole; raises CannotWrite, and then nothing has changed.

    >>> import tempfile
    >>> path = Path(tempfile.mkdtemp()) / "toy.txt"
    >>> write(path, "old")
    >>> try:
    ...     write(path, (str(1 / k) for k in (1, 0)))
    ... except ZeroDivisionError:
    ...     print(path.read_text(), [file.name for file in path.parent.iterdir()])
    old ['toy.txt']
    """
    write_together({path: content})


def write_together(files: Mapping[Where, Content]) -> None:
    """Put files in place that belong together: all of them are complete before the first one appears.

    >>> import tempfile
    >>> folder = Path(tempfile.mkdtemp())
    >>> write_together({folder / "a.txt": "a", folder / "no" / "b.txt": "b"})  # doctest: +ELLIPSIS
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.CannotWrite: .../no/b.txt cannot be written: there is no folder .../no; nothing was changed
    try: make it first: mkdir -p .../no
    >>> list(folder.iterdir())
    []
    """
    for path in files:
        check_target(path)
    beside = {path: _neighbour(Path(path)) for path in files if not _is_stream(path)}
    try:
        for path, fresh in beside.items():
            with _refusing(path):
                _write_fresh(fresh, Path(path), files[path])
        for path in files.keys() - beside.keys():
            told = _refusing(path, "what came before may have been written")
            with told, os.fdopen(_opened(path), "wb") as stream:
                _pour(files[path], stream)
        for placed, (path, fresh) in enumerate(beside.items()):
            with _refusing(path, f"{placed} of {len(files)} files that belong together are new" if placed else ""):
                fresh.replace(path)
        _settle({Path(path).parent for path in beside})
    finally:
        for fresh in beside.values():
            with contextlib.suppress(OSError):  # renamed, as it should be; or never made
                fresh.unlink()


def check_target(path: Where) -> None:
    """Refuse, before any work, what could not be written in the end; only room on the disk is seen later.

    >>> check_target(os.devnull)
    >>> check_target(".")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.CannotWrite: . cannot be written: it is a directory; nothing was changed
    try: a file in it
    """
    try:
        text = os.fspath(path)
    except TypeError:
        raise InvalidArgument(f"a path is text, not {path!r:.40}", hint="a name such as 'toy.toml'") from None
    with _refusing(path):
        try:
            mode = _mode(path)
        except ValueError:
            raise OSError(errno.EINVAL, "no file can have such a name") from None
        folder = Path(path).parent
        if text.endswith(os.sep) or (mode is not None and stat.S_ISDIR(mode)):
            raise IsADirectoryError(errno.EISDIR, "")
        if _is_stream(path):
            return
        if mode is None and not folder.is_dir():
            raise OSError(errno.ENOTDIR if folder.exists() else errno.ENOENT, "")
        if mode is not None and not stat.S_ISLNK(mode) and not stat.S_ISREG(mode):
            raise OSError(errno.EINVAL, "it is neither a file nor a pipe")
        if mode is not None and stat.S_ISREG(mode) and not os.access(path, os.W_OK):
            raise PermissionError(errno.EACCES, "")
        if not os.access(folder, os.W_OK | os.X_OK):
            raise PermissionError(errno.EACCES, "")


def make_folder(path: Where) -> Path:
    """The folder, made if there is none, with those above it.

    >>> import tempfile
    >>> make_folder(Path(tempfile.mkdtemp()) / "a" / "b").is_dir()
    True
    """
    with _refusing(path):
        Path(path).mkdir(parents=True, exist_ok=True)
    return Path(path)


def delete(path: Where) -> None:
    """Take a file away that has been replaced; one that is gone already is no error.

    >>> delete("there is no such file")
    """
    with _refusing(path):
        Path(path).unlink(missing_ok=True)


def csv_lines(rows: Iterable[Sequence[object]]) -> Iterator[str]:
    """Rows as lines of a CSV file, each made when it is asked for.

    >>> list(csv_lines([("k", "phi"), (0, 0.5)]))
    ['k,phi\\r\\n', '0,0.5\\r\\n']
    """
    writer = csv.writer(_Echo())
    return (writer.writerow(row) for row in rows)


class _Echo:
    """Returns what is written to it; ``writerow`` passes that on."""

    def write(self, line: str) -> str:
        return line


# ---- where ------------------------------------------------------------------------------------------------


def _mode(path: Where) -> int | None:
    """Of what stands there itself, no link followed; None where nothing does."""
    try:
        return os.lstat(path).st_mode
    except FileNotFoundError:
        return None


def _is_stream(path: Where) -> bool:
    mode = _mode(path)
    if DESCRIPTOR.fullmatch(os.fspath(path)):
        return True
    return mode is not None and (stat.S_ISFIFO(mode) or stat.S_ISCHR(mode))


def _opened(path: Where) -> int:
    """A stream; of an open descriptor a second one, which writes on where the first one stands."""
    if match := DESCRIPTOR.fullmatch(os.fspath(path)):
        return os.dup({"out": 1, "err": 2}.get(match[1], int(match[2] or 0)))
    return os.open(path, WRITE_FLAGS)


def _neighbour(path: Path) -> Path:
    """A name that cannot be foreseen, and that says what it is."""
    return path.with_name(f".{path.name[:STEM_LETTERS]}.{secrets.token_hex(8)}.partial")


@contextlib.contextmanager
def _refusing(path: Where, so_far: str = "") -> Iterator[None]:
    try:
        yield
    except CannotWrite:
        raise
    except OSError as error:
        number = error.errno or 0
        why, hint = REASONS.get(number, (error.strerror or str(error), "another place"))
        folder = named(Path(path).parent)
        message = f"{named(path)} cannot be written: {why.format(folder=folder)}; {so_far or 'nothing was changed'}"
        raise CannotWrite(message, path=path, number=number, hint=hint.format(folder=folder)) from None


# ---- how --------------------------------------------------------------------------------------------------


def _write_fresh(fresh: Path, target: Path, content: Content) -> None:
    """Under the permissions of the file that it will replace, or of any new file."""
    with os.fdopen(os.open(fresh, WRITE_FLAGS | os.O_CREAT | os.O_EXCL, 0o666), "wb") as file:
        old = _mode(target)
        if old is not None and stat.S_ISREG(old):
            os.chmod(file.fileno() if os.chmod in os.supports_fd else fresh, old & 0o777)  # noqa: PTH101 - no name
        _pour(content, file)
        file.flush()
        os.fsync(file.fileno())


def _pour(content: Content, file: BinaryIO) -> None:
    for piece in (content,) if isinstance(content, (str, bytes)) else content:
        try:
            data = piece.encode() if isinstance(piece, str) else piece
        except UnicodeEncodeError:
            raise OSError(errno.EILSEQ, "it holds half a letter, which no file can") from None
        file.write(data)


def _settle(folders: Iterable[Path]) -> None:
    """Bring the new names to the disk too, where the system lets a folder be opened (Windows does not)."""
    for folder in folders:
        with contextlib.suppress(OSError):
            descriptor = os.open(folder, os.O_RDONLY)
            try:
                os.fsync(descriptor)
            finally:
                os.close(descriptor)
