"""Box: a product of closed intervals with exact rational ends, one for each variable."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass

import sympy as sp

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.exact import rational, rational_vector

__all__ = ["Box"]

_Interval = tuple[sp.Rational, sp.Rational]


@dataclass(frozen=True, init=False)
class Box:
    """``Box(lower, upper)`` in the order of the variables, or ``Box({name: (low, high)})``.

    A box given by position gets its names from the problem that it is used with. It holds every
    variable of x and y, or of x alone.

    >>> box = Box({"x1": (-1, 1), "y1": ("0", "0.1")})
    >>> box
    Box({'x1': (-1, 1), 'y1': (0, 1/10)})
    >>> box["y1"]
    (0, 1/10)
    >>> Box([-1, 0], [1, 2]).midpoint
    (0, 1)
    """

    lower: tuple[sp.Rational, ...]
    upper: tuple[sp.Rational, ...]
    names: tuple[str, ...] | None

    def __init__(
        self,
        lower: Mapping[str, Iterable[object]] | Mapping[sp.Symbol, Iterable[object]] | Iterable[object],
        upper: Iterable[object] | None = None,
    ) -> None:
        if isinstance(lower, Mapping):
            if upper is not None:
                raise InvalidProblem("a box by name takes one mapping and nothing else")
            names: tuple[str, ...] | None = tuple(str(name) for name in lower)
            pairs = [_interval(pair, str(name)) for name, pair in lower.items()]
        else:
            names = None
            pairs = _paired(lower, upper)
        if not pairs:
            raise InvalidProblem("the box has no variables", hint="give an interval for each variable")
        if names is not None and len(set(names)) < len(names):
            raise InvalidProblem(f"the box names a variable twice: {', '.join(names)}")
        for position, (low, high) in enumerate(pairs):
            if low > high:
                label = names[position] if names else f"variable {position}"
                raise InvalidProblem(
                    f"the box is empty: {label} runs from {low} to {high}",
                    hint="give the smaller end first",
                )
        object.__setattr__(self, "lower", tuple(low for low, _ in pairs))
        object.__setattr__(self, "upper", tuple(high for _, high in pairs))
        object.__setattr__(self, "names", names)

    def __len__(self) -> int:
        return len(self.lower)

    def __iter__(self) -> Iterator[_Interval]:
        return iter(zip(self.lower, self.upper, strict=True))

    def __getitem__(self, name: str | sp.Symbol) -> _Interval:
        if self.names is None or str(name) not in self.names:
            raise KeyError(f"the box has no variable called {name}")
        position = self.names.index(str(name))
        return self.lower[position], self.upper[position]

    def __repr__(self) -> str:
        return f"Box({list(self.lower)}, {list(self.upper)})" if self.names is None else f"Box({dict(self.items())})"

    def items(self) -> Iterator[tuple[str, _Interval]]:
        """Pairs of a name and its interval; a box by position has none until a problem names it."""
        return zip(self.names or (), self, strict=True)

    @property
    def midpoint(self) -> tuple[sp.Rational, ...]:
        """The exact centre."""
        return tuple((low + high) / 2 for low, high in self)

    def bind(self, x: tuple[str, ...], y: tuple[str, ...]) -> Box:
        """The same box with the names, and in the order, of the variables x and y (or of x alone).

        >>> Box([0], [1]).bind(("x1",), ("y1",))
        Box({'x1': (0, 1)})
        """
        if self.names is None:
            wanted = {len(x): x, len(x) + len(y): (*x, *y)}.get(len(self))
            if wanted is None:
                raise InvalidProblem(
                    f"the box has {len(self)} intervals for {len(x)} + {len(y)} variables",
                    hint=f"give {len(x)} (x alone) or {len(x) + len(y)} (x, then y)",
                )
            return Box(dict(zip(wanted, self, strict=True)))
        given = set(self.names)
        if unknown := sorted(given - {*x, *y}):
            raise InvalidProblem(
                f"the box names {', '.join(unknown)}, which the problem does not have",
                hint=f"its variables are {', '.join((*x, *y))}",
            )
        order = (*x, *y) if given & set(y) else x
        if missing := [name for name in order if name not in given]:
            raise InvalidProblem(
                f"the box misses {', '.join(missing)}",
                hint="give every variable of x and y, or of x alone",
            )
        return Box({name: self[name] for name in order})


def _interval(pair: Iterable[object], name: str) -> _Interval:
    try:
        low, high = () if isinstance(pair, str) else pair
    except (TypeError, ValueError):
        raise InvalidProblem(
            f"the box wants two ends for {name}, but was given {pair!r:.60}",
            hint="write (low, high)",
        ) from None
    return tuple(
        rational(end, f"the {side} end of {name}", error=InvalidProblem)
        for end, side in ((low, "lower"), (high, "upper"))
    )


def _paired(lower: Iterable[object], upper: Iterable[object] | None) -> list[_Interval]:
    if upper is None or isinstance(lower, str) or isinstance(upper, str):
        raise InvalidProblem(
            "a box wants its lower and its upper ends",
            hint="Box([-1, -1], [1, 1]) or Box({'x': (-1, 1)})",
        )
    try:
        lows, highs = (
            rational_vector(ends, side, error=InvalidProblem) for ends, side in ((lower, "lower"), (upper, "upper"))
        )
    except TypeError:
        raise InvalidProblem("the ends of a box must be sequences", hint="Box([-1], [1])") from None
    if len(lows) != len(highs):
        raise InvalidProblem(f"the box has {len(lows)} lower and {len(highs)} upper ends")
    return list(zip(lows, highs, strict=True))
