"""numba's cache, made careful: read only what nobody else could have written, whole as it was written, or do without.

What numba keeps is run as code when it is read, machine code included. So a folder or a file that others can write is
not read; every file ends with a digest of itself, and one that was cut or changed counts as absent. A cache that cannot
be found, read or written is never a reason to fail: then everything is compiled again.
"""

from __future__ import annotations

import hashlib
import io
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

from numba.core.caching import CompileResultCacheImpl, FunctionCache, IndexDataCacheFile
from numba.core.dispatcher import Dispatcher

from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.system.progress import tell_once

__all__ = ["folder_of", "is_private", "kept"]

DIGEST = hashlib.sha256
LENGTH = DIGEST().digest_size
READABLE = 0o644  # for files, whatever the umask: what others could write would not be read again


def kept(function: Any) -> Any:
    """A compiled function with its cache, or without one where there is no place for it.

    >>> import numba
    >>> kept(numba.njit(is_private)).py_func is is_private
    True
    """
    if isinstance(function, Dispatcher):  # with NUMBA_DISABLE_JIT it is the Python function
        with suppress(RuntimeError, OSError):  # no folder can be made or used
            function._cache = _CarefulCache(function.py_func)
    return function


def folder_of(function: Any) -> Path | None:
    """Where a compiled function is kept; None where it is not.

    >>> folder_of(print) is None
    True
    """
    path = getattr(getattr(function, "_cache", None), "cache_path", None)
    return None if path is None else Path(path).absolute()


def is_private(path: str | os.PathLike[str]) -> bool:
    """Whether nobody but its owner, who is the user or root, can write a file or folder.

    >>> is_private(os.devnull)
    False
    """
    if not hasattr(os, "getuid"):  # Windows: folders of a user are the user's own
        return True
    try:
        status = Path(path).stat()
    except OSError:
        return False
    if status.st_uid not in (0, os.getuid()) or status.st_mode & stat.S_IWOTH:
        return False
    return not status.st_mode & stat.S_IWGRP or _is_own_group(status.st_gid)


def _is_own_group(gid: int) -> bool:
    """Whether a group is that of the user alone, as many systems make one for everybody."""
    import grp
    import pwd

    try:
        group, user = grp.getgrgid(gid), pwd.getpwuid(os.getuid())
    except KeyError:
        return False
    return gid == user.pw_gid and group.gr_name == user.pw_name and set(group.gr_mem) <= {user.pw_name}


class _CarefulFile(IndexDataCacheFile):
    """numba's files, each with a digest of itself at its end."""

    def _load_index(self) -> Any:
        return super()._load_index() if _is_sound(self._index_path) else {}

    def _load_data(self, name: str) -> Any:
        return super()._load_data(name) if _is_sound(self._data_path(name)) else None

    @contextmanager
    def _open_for_write(self, filepath: str) -> Iterator[Any]:
        with super()._open_for_write(filepath) as file:
            content = io.BytesIO()
            yield content
            file.write(content.getvalue() + DIGEST(content.getvalue()).digest())
            Path(file.name).chmod(READABLE)


def _is_sound(path: str) -> bool:
    try:
        content = Path(path).read_bytes() if is_private(path) else b""
    except OSError:
        return False
    return DIGEST(content[:-LENGTH]).digest() == content[-LENGTH:]


def _private(locator: type[Any]) -> type[Any]:
    """A way of numba's to find a folder, that takes only folders which nobody else can write."""

    class Private(locator):
        def ensure_cache_path(self) -> None:
            Path(self.get_cache_path()).mkdir(mode=0o700, parents=True, exist_ok=True)
            super().ensure_cache_path()

        @classmethod
        def from_function(cls, py_func: Any, py_file: str) -> Any:
            found = super().from_function(py_func, py_file)
            return found if found is not None and is_private(found.get_cache_path()) else None

    return Private


def _filled_before(locator: type[Any]) -> type[Any]:
    """The same for a folder that cannot be written and was filled before, as in the image of a container."""

    base: Any = _private(locator)

    class FilledBefore(base):
        def ensure_cache_path(self) -> None:
            if not any(Path(self.get_cache_path()).glob("*.nbi")):
                raise FileNotFoundError(self.get_cache_path())

    return FilledBefore


class _CarefulPlaces(CompileResultCacheImpl):
    _locator_classes = tuple(
        way(c) for way in (_private, _filled_before) for c in CompileResultCacheImpl._locator_classes
    )


class _CarefulCache(FunctionCache):
    _impl_class = _CarefulPlaces

    def __init__(self, py_func: Any) -> None:
        super().__init__(py_func)
        # the codes of operations follow from the records: with another table of them, compiled code means other things
        compiled = [(name, getattr(record.compiled, "__name__", None)) for name, record in OPERATIONS.items()]
        stamp = self._impl.locator.get_source_stamp(), tuple(compiled)
        self._cache_file = _CarefulFile(self._cache_path, self._impl.filename_base, stamp)

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        try:
            return super().load_overload(sig, target_context)
        except Exception:  # noqa: BLE001  whatever was wrong with it, it can be compiled
            return None

    def save_overload(self, sig: Any, data: Any) -> None:
        try:
            super().save_overload(sig, data)
        except Exception as problem:  # noqa: BLE001  it works without
            self.disable()
            why = getattr(problem, "strerror", None) or type(problem).__name__
            tell_once(f"bilevel-sym: what was compiled cannot be kept in {self._cache_path} ({why}); it works without")
