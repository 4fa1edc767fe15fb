"""What computes blocks in float64: engines and their sessions, as protocols, so that everything above is shared."""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple, Protocol, TypeAlias, TypeVar

import numpy as np
from numpy.typing import NDArray

__all__ = ["EXPANSION", "Engine", "Expansion", "Floats", "Session"]

Floats: TypeAlias = NDArray[np.float64]
Lanes = TypeVar("Lanes", bound="Session")


# what the three formulas of an expansion need: f and g to second order, and the Lagrangian's Hessian
EXPANSION = ("f", "f_x", "f_y", "g_xy", "g_yy", "L_xx", "L_xy", "L_yy")


class Expansion(NamedTuple):
    """Phi with its first and second derivatives, batches leading.

    >>> Expansion(np.zeros(()), np.zeros(1), np.zeros((1, 1))).hess
    array([[0.]])
    """

    phi: Floats
    grad: Floats
    hess: Floats


class Session(Protocol):
    """Lanes of one program. The inputs come in stages: 0 is (x, y), 1 is v, 2 is two directions in (x, y)."""

    def put(self, stage: int, values: Floats) -> None:
        """Give the inputs of one stage, (lanes, inputs), and perform it; earlier stages come first."""

    def take(self, name: str) -> Floats:
        """One block, (lanes, ...); valid until it is taken again."""


class Engine(Protocol[Lanes]):
    """Blocks by name for many points at once."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    def session(self, names: Sequence[str], lanes: int) -> Lanes:
        """Lanes in which these blocks can be computed."""

    def lanes(self, names: Sequence[str]) -> int:
        """How many lanes are best at a time."""

    def expansion(self, session: Lanes, xy: Floats) -> Expansion:
        """Phi, grad Phi and Hess Phi at rows (x, y), y taken for y*(x), in a session of the blocks ``EXPANSION``."""
