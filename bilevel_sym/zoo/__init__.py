"""Problems that carry their own answers: y*, Phi, stationary points and their kinds, constants.

>>> example = get("saddle", d=3)
>>> example.problem.n, example.constants.M
(3, 2*sqrt(6))
>>> parse("tube,d=2,L=1/2")
Example('tube', d=2, n=1, parameters={'d': 2, 'L': 1/2, 'gamma': 1})
"""

from __future__ import annotations

import difflib
from collections.abc import Mapping
from types import MappingProxyType

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.extensions import Extension, installed
from bilevel_sym.zoo import extremal, learning, minimax, quadratic, real, small, stochastic, tube, witnesses
from bilevel_sym.zoo.data import Flower, iris
from bilevel_sym.zoo.entry import Entry, Example, KnownPoint, exact_constants

__all__ = [
    "Example", "Flower", "KnownPoint", "data_names", "exact_constants", "get", "iris", "names", "parameters", "parse",
    "summary",
]  # fmt: skip

_ENTRIES: Mapping[str, Entry] = MappingProxyType(
    {
        item.name: item
        for module in (small, quadratic, minimax, tube, learning, stochastic, extremal, witnesses, real)
        for name in module.__all__
        if isinstance(item := getattr(module, name), Entry)
    }
)


def names() -> tuple[str, ...]:
    """The names of the problems in scalars, those of installed packages last (entry points ``bilevel_sym.zoo``).

    >>> "tube" in names()
    True
    """
    return (*(name for name in _ENTRIES if name not in real.__all__), *_added())


def data_names() -> tuple[str, ...]:
    """The names of the problems in arrays, on real data; ``get`` has them too.

    >>> data_names()
    ('breast_cancer', 'diabetes', 'digit_cleaning', 'digits', 'feature_scales', 'few_shot', 'robust_diabetes')
    """
    return tuple(real.__all__)


def get(name: str, **parameters: object) -> Example:
    """The problem of that name with its answers; ``parameters`` are those of the problem.

    >>> get("scalar").y_star
    (x/(x**2 + 1),)
    """
    return _find(name)(**parameters)


def parameters(name: str) -> Mapping[str, object]:
    """What ``get`` accepts for this problem, and the defaults.

    >>> dict(parameters("quadratic"))
    {'d': 2, 'n': 3, 'spectrum': 'two', 'seed': 0}
    """
    return _find(name).defaults


def summary(name: str) -> str:
    """What the problem is, in one line, without building it.

    >>> summary("scalar")
    'One variable on each level, all of it in closed form.'
    """
    return _find(name).summary


def parse(spec: str) -> Example:
    """The problem that a text such as ``tube,d=10,L=2`` asks for.

    >>> parse("quadratic, d=1, spectrum=1:2:5").parameters["spectrum"]
    (1, 2, 5)
    """
    name, *settings = (part.strip() for part in spec.split(","))
    given: dict[str, object] = {}
    for setting in settings:
        key, equals, value = (part.strip() for part in setting.partition("="))
        if not key or not equals or not value or key in given:
            problem = "is given twice" if key in given else "is not of the form name=value"
            raise InvalidArgument(f"{setting!r:.60} {problem}", hint=f"write {_example_spec(name)}")
        given[key] = value
    return get(name, **given)


def _added() -> Mapping[str, Extension]:
    return installed("bilevel_sym.zoo", "zoo problem", _ENTRIES)


def _find(name: object) -> Entry:
    if isinstance(name, str) and name in _ENTRIES:
        return _ENTRIES[name]
    if isinstance(name, str) and name in (added := _added()):
        found: Entry = added[name].load(lambda item: isinstance(item, Entry), "zoo entry (bilevel_sym.zoo.entry)")
        return found
    known = (*names(), *data_names())
    near = difflib.get_close_matches(str(name)[:60], known, n=1)
    hint = f"did you mean {near[0]}?" if near else f"one of {', '.join(known)}"
    raise InvalidArgument(f"the zoo has no problem called {name!r:.60}", hint=hint)


def _example_spec(name: str) -> str:
    settings = (f"{key}={value}" for key, value in _find(name).defaults.items())
    return ",".join([name, *settings])
