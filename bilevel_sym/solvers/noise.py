"""Random streams, one per trajectory: what a trajectory draws never depends on which others run."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Floats

__all__ = ["Seeds", "Streams", "seeds_for", "uniform_in_ball"]

WORD_VALUES = 2**64
STATE_WORDS = 6  # state and increment of PCG64, two each, and half a word that may be left

Seeds = np.random.Generator | int | Sequence[int] | None


def seeds_for(rng: Seeds, size: int) -> tuple[int, ...]:
    """One seed for each of ``size`` trajectories.

    A whole number is the seed of a single trajectory itself, and the ancestor of the seeds of several; a list gives
    them one by one; a generator draws them; None takes fresh ones.

    >>> seeds_for(7, 1), seeds_for([3, 4], 2)
    ((7,), (3, 4))
    >>> seeds_for(7, 3)[:2] == seeds_for(7, 2)
    True
    """
    if isinstance(rng, np.random.Generator):
        return tuple(int(seed) for seed in rng.integers(0, 2**63, size))
    if rng is None:
        return seeds_for(np.random.default_rng(), size)
    if isinstance(rng, (int, np.integer)) and not isinstance(rng, bool):
        if rng < 0:
            raise InvalidArgument(f"rng must not be negative, but is {rng}")
        if size == 1:
            return (int(rng),)
        return tuple(int(seed) for seed in np.random.SeedSequence(int(rng)).generate_state(size, np.uint64))
    try:
        given = () if isinstance(rng, bool) else tuple(rng)
    except TypeError:
        given = ()
    if len(given) != size or not all(_is_seed(s) for s in given):
        raise InvalidArgument(
            f"rng must be a numpy Generator, a whole number, or a list of {size} of them",
            hint="rng=0, or rng=numpy.random.default_rng(0)",
        )
    return tuple(int(seed) for seed in given)


class Streams(Sequence[np.random.Generator]):
    """The random streams of trajectories by their seeds, each made when first used: making one costs 10 µs.

    >>> Streams([3, 4])[1].integers(10) == np.random.default_rng(4).integers(10)
    np.True_
    """

    def __init__(self, seeds: Sequence[int]) -> None:
        self._seeds = seeds
        self._made: dict[int, np.random.Generator] = {}
        # as of the last ``memory``; zero: not made yet
        self._states = np.zeros((len(seeds), STATE_WORDS), dtype=np.uint64)
        self._used: set[int] = set()  # since then

    def __len__(self) -> int:
        return len(self._seeds)

    def __getitem__(self, k: Any) -> Any:
        if k not in self._made:
            self._made[k] = np.random.default_rng(self._seeds[k])
        self._used.add(k)
        return self._made[k]

    def memory(self) -> dict[str, NDArray[Any]]:
        """Where every stream stands, in words of 64 bits."""
        for k in self._used:
            self._states[k] = _state_numbers(self._made[k])
        self._used.clear()
        return {"states": self._states.copy()}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        """Let every stream stand where it did."""
        self._made.clear()
        self._used.clear()
        self._states[:] = memory["states"]
        for k in np.flatnonzero(self._states.any(axis=1)).tolist():
            self._made[k] = _standing(self._states[k].tolist(), self._seeds[k])


def _state_numbers(stream: np.random.Generator) -> list[int]:
    state: Any = stream.bit_generator.state
    wide = (state["state"]["state"], state["state"]["inc"])
    return [*(part for number in wide for part in divmod(number, WORD_VALUES)), state["has_uint32"], state["uinteger"]]


def _standing(words: list[int], seed: int) -> np.random.Generator:
    """The stream of a seed, further on."""
    stream = np.random.default_rng(seed)
    state: Any = stream.bit_generator.state
    if words[2:4] != _state_numbers(stream)[2:4] or words[4] > 1 or words[5] >= 2**32:
        raise ValueError("this is not where a stream of that seed can stand")
    state["state"]["state"] = words[0] * WORD_VALUES + words[1]
    state |= {"has_uint32": words[4], "uinteger": words[5]}
    stream.bit_generator.state = state
    return stream


def _is_seed(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0)


def uniform_in_ball(rng: np.random.Generator, d: int, radius: float) -> Floats:
    """A point uniform in the ball of this radius: a uniform direction, and a radius with density r^(d-1).

    Paper: Algorithm 1, step 11 [unlabelled:algorithm-1-step-11]

    >>> u = uniform_in_ball(np.random.default_rng(0), 3, 2.0)
    >>> u.shape, bool(np.linalg.norm(u) <= 2)
    ((3,), True)
    """
    direction = rng.standard_normal(d)
    length = math.sqrt(float(direction @ direction)) or 1.0
    point: Floats = direction * (radius * rng.random() ** (1 / d) / length)
    return point
