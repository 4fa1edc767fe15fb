"""Theory: a paper whose statements are judged; those in ``verify.papers``, and those that installed packages add.

A folder of ``verify.papers`` holds a module ``theory`` with the object ``THEORY``. An installed package names its own
under the entry point group ``bilevel_sym.theories``.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import cached_property, lru_cache
from pathlib import Path
from types import ModuleType

from bilevel_sym.errors import InvalidArgument, InvalidExtension
from bilevel_sym.system.extensions import Extension, installed
from bilevel_sym.system.progress import tell_once
from bilevel_sym.theories import Statement, statements
from bilevel_sym.theories import cite as strictly
from verify.erratum import Erratum
from verify.registry import Claim

__all__ = ["DEFAULT", "GROUP", "Theory", "cite", "errata", "registered", "theories", "theory_of", "title"]

DEFAULT = "huang_saddle"  # whose claims are judged unless another theory is asked for
GROUP = "bilevel_sym.theories"


@dataclass(frozen=True, kw_only=True)
class Theory:
    """A paper: its labels, its claims in the order in which they are judged, its errata and what computes what.

    - ``name``: what ``run(problem, theory=name)`` takes.
    - ``title``: that of the paper.
    - ``reference``: where it was published.
    - ``statements``: what the paper states, by label.
    - ``families``: modules of claims (``verify.claim``).
    - ``subjects``: modules of errata (``verify.erratum``).
    - ``errata_page``: their table.
    - ``coverage``: a module that says what computes each statement, if there is one.

    >>> found = theory_of("huang_saddle")
    >>> found.title, found.claims[0].label, len(found.statements) > 300
    ('Escaping saddle points in bilevel optimization', 'phi-grad', True)
    """

    name: str
    title: str
    reference: str
    statements: Mapping[str, Statement]
    families: tuple[ModuleType, ...]
    subjects: tuple[ModuleType, ...] = ()
    errata_page: Callable[..., Iterable[str]] | None = None
    coverage: ModuleType | None = None

    def __post_init__(self) -> None:
        for item in self.claims:
            for label in item.labels:
                strictly(label, self.statements)

    @cached_property
    def claims(self) -> tuple[Claim, ...]:
        """The claims of all families, in their order and, within one, in that of the file."""
        return tuple(
            item
            for module in self.families
            for item in vars(module).values()
            if isinstance(item, Claim) and item.check.__module__ == module.__name__
        )

    @property
    def errata(self) -> list[Erratum]:
        """The errata of all subjects, in their order and, within one, in that of the file."""
        return [item for module in self.subjects for item in vars(module).values() if isinstance(item, Erratum)]


def theories() -> tuple[str, ...]:
    """The names of all theories, the default one first.

    >>> theories()[0]
    'huang_saddle'
    """
    return tuple(sorted({*_folders(), *_installed()}, key=lambda name: (name != DEFAULT, name)))


def theory_of(name: str | Theory | None = None) -> Theory:
    """The theory of this name; None is the default one, and a theory is itself.

    >>> theory_of("huang")
    Traceback (most recent call last):
    bilevel_sym.errors.InvalidArgument: no theory is called 'huang'
    try: huang_saddle
    """
    if isinstance(name, Theory):
        return name
    name = DEFAULT if name is None else name
    if name not in theories():
        near = get_close_matches(str(name)[:60], theories(), n=1, cutoff=0.0)
        raise InvalidArgument(f"no theory is called {name!r:.60}", hint=near[0])
    return _loaded(name)


def errata(theory: str | Theory | None = None) -> list[Erratum]:
    """The errata of a theory: where its paper is wrong in print, each with a witness.

    >>> errata()[0].labels
    ('phi-hessian', 'lemma3.4-long')
    """
    return theory_of(theory).errata


def cite(label: str) -> str:
    """The reference to print for a label of any theory; of an unknown label, itself.

    >>> cite("lem:descent"), cite("smith2030:lem-1")
    ('Lemma 2.8 [lem:descent]', '[smith2030:lem-1]')
    """
    try:
        return strictly(label, _known(label))
    except KeyError:
        return f"[{label}]"


def title(label: str) -> str:
    """What a statement says, in a few words; nothing where no theory knows it.

    >>> title("lem:descent"), title("own:mine")
    ('inexact descent lemma', '')
    """
    found = _known(label).get(label)
    return found.title if found else ""


def registered() -> Iterator[Claim]:
    """The claims of all theories; of two with one label, that of the default theory comes first.

    >>> next(registered()).label
    'phi-grad'
    """
    for name in theories():
        yield from (() if (found := _usable(name)) is None else found.claims)


def _known(label: str) -> Mapping[str, Statement]:
    """Labels of the papers that are here, and only where that is not enough those of installed packages."""
    if label in statements() or not _installed():
        return statements()
    usable = (found for name in _installed() if (found := _usable(name)) is not None)
    return {key: item for found in usable for key, item in found.statements.items()}


def _folders() -> tuple[str, ...]:
    return tuple(item.name for item in pkgutil.iter_modules([str(Path(__file__).parent / "papers")]) if item.ispkg)


def _installed() -> Mapping[str, Extension]:
    return installed(GROUP, "theory", _folders())


def _usable(name: str) -> Theory | None:
    """A theory; None, and one line on standard error, for one of an installed package that cannot be used."""
    try:
        return _loaded(name)
    except InvalidExtension as error:
        tell_once(f"bilevel-sym: {error.message}")
        return None


@lru_cache(64)
def _loaded(name: str) -> Theory:
    if name in _folders():
        found: Theory = importlib.import_module(f"verify.papers.{name}.theory").THEORY
    else:
        found = _installed()[name].load(lambda item: isinstance(item, Theory), "verify.Theory")
    return found
