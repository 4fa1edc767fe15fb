"""The values of parameters and seeds in a plan: one, a list of them, or a list that is drawn at random once."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from bilevel_sym.campaigns.task import Plain
from bilevel_sym.errors import InvalidArgument

__all__ = ["is_whole", "seeds_of", "values_of"]

DRAWS = ("uniform", "loguniform", "integers")
MOST_SEEDS = 10**9
MOST_DRAWN = 10**6
TEXT_LETTERS = 1000  # of a value


def values_of(name: str, given: object) -> tuple[Plain, ...]:
    """All values of a parameter: a list is a grid, and a table with ``draw`` a random list, fixed by its seed.

    >>> values_of("eps", 0.1), values_of("steps", [10, 20])
    ((0.1,), (10, 20))
    >>> values_of("D", {"draw": "integers", "low": 1, "high": 9, "count": 3, "seed": 0})
    (8, 6, 5)
    """
    if isinstance(given, Mapping):
        return _drawn(name, given)
    listed = given if isinstance(given, (list, tuple, range, np.ndarray)) else [given]
    if not len(listed):
        raise InvalidArgument(f"{name} is an empty list", hint="one value, or a list of some")
    values = tuple(_plain(name, value) for value in listed)
    if len({(type(value), value) for value in values}) < len(values):
        raise InvalidArgument(f"{name} lists a value twice", hint="each value once")
    return values


def _plain(name: str, value: object) -> Plain:
    value = value.item() if isinstance(value, np.generic) else value
    if isinstance(value, (bool, int, float)) and (not isinstance(value, float) or math.isfinite(value)):
        if isinstance(value, int) and not -(2**63) <= value < 2**63:
            raise InvalidArgument(f"{name}: {value!r:.40} is too large", hint="whole numbers below 2^63, or text")
        return value
    if isinstance(value, str) and len(value) <= TEXT_LETTERS and value.isprintable():
        return value
    raise InvalidArgument(
        f"{name}={value!r:.60}", hint="a finite number, text or true and false, or a list of them, which is a grid"
    )


def _drawn(name: str, given: Mapping[Any, object]) -> tuple[Plain, ...]:
    wanted = {"draw", "low", "high", "count", "seed"}
    example = f'{name} = {{draw = "uniform", low = 0, high = 1, count = 20, seed = 0}}'
    draw, low, high, count, seed = (given.get(key) for key in ("draw", "low", "high", "count", "seed"))
    numbers = all(isinstance(end, (int, float)) and not isinstance(end, bool) for end in (low, high))
    if set(given) != wanted or draw not in DRAWS or not numbers or not is_whole(count, 1) or not is_whole(seed, 0):
        raise InvalidArgument(f"{name}: {dict(given)!r:.100} is no random list", hint=example)
    if not -math.inf < float(low) <= float(high) < math.inf or (draw == "loguniform" and not low > 0):  # type: ignore[arg-type, operator]
        raise InvalidArgument(f"{name}: low={low}, high={high}", hint="low at most high; above 0 for loguniform")
    if int(count) > MOST_DRAWN:  # type: ignore[call-overload]
        raise InvalidArgument(f"{name}: count={count}", hint=f"at most {MOST_DRAWN}")
    return _draws(str(draw), float(low), float(high), int(count), int(seed))  # type: ignore[arg-type, call-overload]


def _draws(draw: str, low: float, high: float, count: int, seed: int) -> tuple[Plain, ...]:
    """Equal draws of whole numbers stand once."""
    random = np.random.default_rng(seed)
    if draw == "integers":
        return tuple(dict.fromkeys(random.integers(int(low), int(high), count, endpoint=True).tolist()))
    shares = random.random(count).tolist()
    if draw == "uniform":
        return tuple(dict.fromkeys(low + share * (high - low) for share in shares))
    width = math.log(high) - math.log(low)
    return tuple(dict.fromkeys(min(high, max(low, low * math.exp(share * width))) for share in shares))


def seeds_of(given: object) -> Sequence[int]:
    """A number S means 0 to S - 1, and a list itself.

    >>> seeds_of(3), seeds_of([7, 5])
    (range(0, 3), (7, 5))
    """
    if is_whole(given, 1) and int(given) <= MOST_SEEDS:  # type: ignore[call-overload]
        return range(int(given))  # type: ignore[call-overload]
    listed = tuple(given) if isinstance(given, (list, tuple, range)) else ()
    if not listed or not all(is_whole(seed, 0) and seed < 2**63 for seed in listed):
        raise InvalidArgument(
            f"seeds={given!r:.60}", hint="a whole number S for 0 to S - 1, or a list of whole numbers"
        )
    if len(set(listed)) < len(listed):
        raise InvalidArgument("seeds lists a seed twice", hint="each seed once")
    return given if isinstance(given, range) else tuple(map(int, listed))


def is_whole(value: object, least: int) -> bool:
    """Whether it is a whole number of at least that.

    >>> is_whole(3, 1), is_whole(True, 0), is_whole(0.0, 0)
    (True, False, False)
    """
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= least)
