"""Random streams, one a trajectory: what a trajectory draws never depends on which others run beside it."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

import numpy as np

from bilevel_sym.engine import Floats
from bilevel_sym.errors import InvalidProblem

__all__ = ["Seeds", "Streams", "seeds_for", "uniform_in_ball"]

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
            raise InvalidProblem(f"rng must not be negative, but is {rng}")
        if size == 1:
            return (int(rng),)
        return tuple(int(seed) for seed in np.random.SeedSequence(int(rng)).generate_state(size, np.uint64))
    try:
        given = () if isinstance(rng, bool) else tuple(rng)
    except TypeError:
        given = ()
    if len(given) != size or not all(_is_seed(s) for s in given):
        raise InvalidProblem(
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

    def __len__(self) -> int:
        return len(self._seeds)

    def __getitem__(self, k: Any) -> Any:
        if k not in self._made:
            self._made[k] = np.random.default_rng(self._seeds[k])
        return self._made[k]


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
