"""Extensions: what installed packages add under an entry point group, beside what is built in.

Names are read from the metadata of the packages; nothing of a package is imported before its name is asked for. A
built-in name cannot be taken, and of two packages that add one name the first by its own name counts.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.metadata import EntryPoint, entry_points
from types import MappingProxyType
from typing import Any

from bilevel_sym.errors import BilevelError, InvalidExtension
from bilevel_sym.system.progress import tell_once

__all__ = ["Extension", "Registry", "installed"]


@dataclass(frozen=True)
class Extension:
    """One entry point of an installed package; ``what`` says in a word what it adds.

    >>> entry = EntryPoint("fast", "no_such_module:Fast", "bilevel_sym.estimators")
    >>> Extension("estimator", entry).load(callable, "a function")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidExtension: a package adds the estimator 'fast', which cannot be loaded: ModuleNotFoundError: No module named 'no_such_module'
    try: update the package, or uninstall it
    """  # noqa: E501

    what: str
    entry: EntryPoint

    @property
    def distribution(self) -> str:
        """Name and version of the package that adds it."""
        found = self.entry.dist
        return "a package" if found is None else f"{found.name} {found.version}"

    def load(self, accepts: Callable[[Any], bool], wanted: str) -> Any:
        """The object; raises InvalidExtension unless ``accepts`` does. ``wanted`` says what it should be."""
        found = self.calling(self.entry.load, "cannot be loaded")
        if not accepts(found):
            raise self.error(f"is no {wanted}, but {found!r:.60}")
        return found

    def calling(self, function: Callable[[], Any], failing: str) -> Any:
        """What the function returns; whatever it raises, but for errors of this toolkit, is the package's fault."""
        try:
            return function()
        except BilevelError:
            raise
        except (Exception, SystemExit) as error:
            words = str(error).strip().splitlines() or [""]
            raise self.error(f"{failing}: {type(error).__name__}: {words[0]:.200}") from error

    def error(self, fault: str) -> InvalidExtension:
        """One line that names the package, and what is wrong with it."""
        line = f"{self.distribution} adds the {self.what} {self.entry.name!r:.60}, which {fault}"
        return InvalidExtension(line, hint="update the package, or uninstall it")


def installed(group: str, what: str, builtin: Collection[str]) -> Mapping[str, Extension]:
    """What installed packages add to a group, by name, without those that take a built-in name.

    - ``group``: of the entry points, such as "bilevel_sym.zoo".
    - ``what``: a word for what they add, for messages.
    - ``builtin``: the names that are taken.

    >>> dict(installed("bilevel_sym.nothing", "nothing", ()))
    {}
    """
    found: dict[str, Extension] = {}
    for entry in _entries(group):
        extension = Extension(what, entry)
        if entry.name in builtin:
            _refuse(extension, "takes the name of a built-in one")
        elif entry.name in found:
            _refuse(extension, f"{found[entry.name].distribution} adds too")
        else:
            found[entry.name] = extension
    return MappingProxyType(found)


def _refuse(extension: Extension, fault: str) -> None:
    tell_once(f"bilevel-sym: {extension.error(fault).message}: it is left out")


@lru_cache(16)
def _entries(group: str) -> tuple[EntryPoint, ...]:
    found = entry_points(group=group)
    return tuple(sorted(found, key=lambda item: ("" if item.dist is None else item.dist.name, item.name)))


@dataclass(frozen=True)
class Registry:
    """Functions by name: those that are built in, then those that installed packages add.

    >>> registry = Registry("bilevel_sym.nothing", "estimator", MappingProxyType({"zero": lambda: 0}))
    >>> registry.names(), registry.make("zero", lambda made: made == 0, "zero")
    (('zero',), 0)
    """

    group: str
    what: str
    builtin: Mapping[str, Callable[..., Any]]

    def names(self) -> tuple[str, ...]:
        """All names; nothing is imported for them."""
        return (*self.builtin, *self._added)

    def make(self, name: str, accepts: Callable[[Any], bool], wanted: str, /, *arguments: Any, **options: Any) -> Any:
        """What the function of this name makes of the arguments; of an installed one it is checked.

        - ``name``: one of ``names()``.
        - ``accepts``, ``wanted``: whether an object is what is wanted, and what that is.
        - ``arguments``, ``options``: are passed on.
        """
        if name in self.builtin:
            return self.builtin[name](*arguments, **options)
        extension = self._added[name]
        function = extension.load(callable, "function")
        made = extension.calling(lambda: function(*arguments, **options), "fails")
        if not accepts(made):
            raise extension.error(f"makes no {wanted}, but {made!r:.60}")
        return made

    @property
    def _added(self) -> Mapping[str, Extension]:
        return installed(self.group, self.what, self.builtin)
