"""Entry: a function that builds an example, with the checks that every parameter goes through."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

import sympy as sp

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.graph.exact import rational, rational_vector
from bilevel_sym.zoo.example import Example

__all__ = ["MOST_VARIABLES", "Entry", "entry", "require_positive", "require_range"]

MOST_VARIABLES = 60  # of x, and of y: formulas of more take long to write down


@dataclass(frozen=True)
class Entry:
    """A builder under its name. The type of a parameter's default says what the parameter may be.

    int: an integer. Rational: any finite real number, taken exactly. Text: a word, a number, or
    several.

    >>> from bilevel_sym.zoo.tube import tube
    >>> tube.name, dict(tube.defaults)
    ('tube', {'d': 5, 'L': 1, 'gamma': 1})
    >>> tube(d=2, L="1/2")
    Example('tube', d=2, n=1, parameters={'d': 2, 'L': 1/2, 'gamma': 1})
    """

    build: Callable[..., Example]

    def __post_init__(self) -> None:
        # what functools.wraps does, for a frozen object: docstring and doctest are the builder's
        for name in functools.WRAPPER_ASSIGNMENTS:
            self.__dict__[name] = getattr(self.build, name)
        self.__dict__["__wrapped__"] = self.build

    @property
    def name(self) -> str:
        """The name in the zoo."""
        return self.build.__name__

    @property
    def summary(self) -> str:
        """The first line of the builder's docstring."""
        return (inspect.getdoc(self.build) or "").partition("\n")[0]

    @property
    def defaults(self) -> Mapping[str, object]:
        """Each parameter and the value that it has unless another one is given."""
        declared = inspect.signature(self.build).parameters.values()
        return MappingProxyType({item.name: item.default for item in declared})

    def __call__(self, **given: object) -> Example:
        """The example for these parameters."""
        defaults = self.defaults
        for key in given:
            if key not in defaults:
                raise InvalidArgument(f"{self.name} has no parameter {key!r:.60}", hint=self._accepted())
        values = {key: self._read(key, given.get(key, value)) for key, value in defaults.items()}
        example = self.build(**values)
        return replace(example, summary=example.summary or self.summary, parameters=values)

    def _read(self, key: str, value: object) -> object:
        default = self.defaults[key]
        try:
            if isinstance(default, int):
                return _integer(value)
            return rational(value) if isinstance(default, sp.Rational) else _word_or_numbers(value)
        except (InvalidArgument, TypeError):
            raise InvalidArgument(
                f"{self.name} wants {_wanted(default)} for {key}, but was given {value!r:.60}",
                hint=self._accepted(),
            ) from None

    def _accepted(self) -> str:
        shown = ", ".join(f"{key}={value}" for key, value in self.defaults.items())
        return f"it takes {shown}" if shown else "it takes no parameters"


def entry(build: Callable[..., Example]) -> Entry:
    """Make a builder an entry of the zoo: ``zoo/__init__.py`` collects them by their type.

    >>> @entry
    ... def nothing(*, d: int = 1) -> Example:
    ...     "Nothing at all."
    >>> nothing.name, nothing.summary
    ('nothing', 'Nothing at all.')
    """
    return Entry(build)


def require_range(name: str, value: int, low: int, high: int) -> None:
    """Refuse an integer parameter outside its range; beyond ``high`` the formulas become too large.

    >>> require_range("d", 3, 1, 100)
    """
    if not low <= value <= high:
        raise InvalidArgument(f"{name} must be between {low} and {high}, but is {value!s:.40}")


def require_positive(**values: sp.Rational) -> None:
    """Refuse numbers that are not positive.

    >>> require_positive(L=sp.Integer(1), gamma=sp.Rational(1, 2))
    """
    for name, value in values.items():
        if value <= 0:
            raise InvalidArgument(f"{name} must be positive, but is {value!s:.40}")


def _integer(value: object) -> int:
    number = rational(value)
    if not number.is_Integer:
        raise InvalidArgument(f"{number} is not an integer")
    return int(number)


def _word_or_numbers(value: object) -> object:
    """A word stays; ``10`` is a number; ``1:2:5``, or a sequence, is several."""
    if not isinstance(value, str):
        return rational_vector(value) if isinstance(value, (tuple, list)) else rational(value)
    if value.isidentifier():
        return value
    return rational_vector(value.split(":")) if ":" in value else rational(value)


def _wanted(default: object) -> str:
    if isinstance(default, int):
        return "an integer"
    return "a number" if isinstance(default, sp.Rational) else "a word or numbers"
