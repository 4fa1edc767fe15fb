"""A lock on a folder: a file in it that one process holds, and that the system gives back when that process ends."""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterator
from pathlib import Path
from threading import Event

from bilevel_sym.errors import CannotWrite, InvalidArgument
from bilevel_sym.system.plain_text import named
from bilevel_sym.system.writing import check_target

__all__ = ["holder_of", "locked"]

NAME = "lock"
TRIES, PAUSE = 20, 0.05  # seconds: a look at the lock holds it for a moment
NO_SUCH_PROCESS = 0


@contextlib.contextmanager
def locked(folder: str | os.PathLike[str]) -> Iterator[None]:
    """Hold the lock of a folder; where another process has it, InvalidArgument names the folder and that process.

    >>> import tempfile
    >>> folder = tempfile.mkdtemp()
    >>> with locked(folder):
    ...     holder_of(folder) == os.getpid()
    True
    >>> holder_of(folder) is None
    True
    """
    path = Path(folder) / NAME
    check_target(path)
    try:
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | getattr(os, "O_CLOEXEC", 0), 0o666)
    except OSError as error:
        message = f"{named(path)} cannot be written: {error.strerror}; nothing was changed"
        raise CannotWrite(message, path=path, number=error.errno or 0, hint="another place") from None
    try:
        if not any(_taken(descriptor) or Event().wait(PAUSE) for _ in range(TRIES)):
            raise InvalidArgument(
                f"the folder {named(folder)} is in use by process {_pid(path) or 'unknown'}",
                hint="wait until it has ended, or name another folder",
            )
        os.pwrite(descriptor, f"{os.getpid():<20}\n".encode(), 0)
        yield
    finally:
        os.close(descriptor)


def holder_of(folder: str | os.PathLike[str]) -> int | None:
    """The process that holds the lock of a folder; None where nobody does, and 0 where it does not say."""
    path = Path(folder) / NAME
    try:
        with path.open("rb") as file:
            return None if _taken(file.fileno()) else _pid(path) or NO_SUCH_PROCESS
    except OSError:
        return None


def _pid(path: Path) -> int | None:
    with contextlib.suppress(OSError, ValueError):
        return int(path.read_text(encoding="ascii"))
    return None


def _taken(descriptor: int) -> bool:
    """Take the lock of an open file, which lasts until it is closed; whether that was possible."""
    try:
        import fcntl
    except ImportError:  # Windows
        return _taken_by_bytes(descriptor)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError:
        return False
    return True


def _taken_by_bytes(descriptor: int) -> bool:
    import msvcrt

    try:
        os.lseek(descriptor, 1000, os.SEEK_SET)  # beyond what is read
        msvcrt.locking(descriptor, msvcrt.LK_NBLCK, 1)  # type: ignore[attr-defined, unused-ignore]
    except OSError:
        return False
    return True
