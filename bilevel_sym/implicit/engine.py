"""What computes blocks in float64: engines and their sessions, as protocols, so that everything above is shared."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeVar

import numpy as np

from bilevel_sym.arithmetic.linear_algebra import NotPositiveDefinite
from bilevel_sym.typing import Bools, Floats, Indices

if TYPE_CHECKING:
    from bilevel_sym.implicit.lower_level import LowerSolution

__all__ = [
    "EXPANSION",
    "Blocks",
    "Engine",
    "Expansion",
    "Floats",
    "Lanes",
    "Session",
    "copies_of_the_first",
    "in_chunks",
    "in_halves",
    "keep_memory",
    "over_points",
]

# what the three formulas of an expansion need: f and g to second order, and the Lagrangian's Hessian
EXPANSION = ("f", "f_x", "f_y", "g_xy", "g_yy", "L_xx", "L_xy", "L_yy")


class Expansion(NamedTuple):
    """Phi with its first and second derivatives, batches leading."""

    phi: Floats
    grad: Floats
    hess: Floats


class Lanes(Protocol):
    """Lanes of one program. The inputs come in stages: 0 is (x, y), 1 is v, 2 is two directions in (x, y).

    Lanes stand last and nothing is copied, for loops that would spend their time on turning arrays around.
    """

    def inputs(self, stage: int) -> Floats:
        """The inputs of one stage, (inputs, lanes), to be written before it is performed."""

    def perform(self, stage: int) -> None:
        """Perform one stage whose inputs are in their places."""

    def rows(self, name: str) -> Floats:
        """One block, (entries, lanes); valid until the next stage is performed."""


class Session(Lanes, Protocol):
    """The same with lanes first."""

    def put(self, stage: int, values: Floats) -> None:
        """Give the inputs of one stage, (lanes, inputs), and perform it; earlier stages come first."""

    def take(self, name: str) -> Floats:
        """One block, (lanes, ...); valid until it is taken again."""


class Blocks(Protocol):
    """The part of an engine that computes blocks: what formulas over many points need."""

    @property
    def batch_invariant(self) -> bool:
        """Whether a lane has the same bits alone and among any others."""

    def session(self, names: Sequence[str], lanes: int) -> Session:
        """Lanes in which these blocks can be computed."""

    def lanes(self, names: Sequence[str]) -> int:
        """How many lanes are best at a time."""


class Engine(Blocks, Protocol):
    """Blocks by name for many points at once, and what is built on them."""

    @property
    def name(self) -> str:
        """What it is called in messages."""

    @property
    def single(self) -> bool:
        """Whether it serves one trajectory: lanes beyond the first are filling, and need not be computed."""

    def lower_level(self, x: Floats, y0: Floats) -> LowerSolution:
        """y*(x) for each row of x, from the rows of y0; LowerLevelFailure names the first row that fails."""

    def adjoint(self, xy: Floats) -> Floats:
        """v at rows (x, y), y taken for y*(x), as below."""

    def response(self, xy: Floats) -> Floats:
        """dy_dx at rows (x, y)."""

    def gradient(self, xy: Floats) -> tuple[Floats, Floats]:
        """Phi and grad Phi at rows (x, y)."""

    def expansion(self, xy: Floats) -> Expansion:
        """Phi, grad Phi and Hess Phi at rows (x, y)."""

    def third(self, xy: Floats, d: int) -> Floats:
        """The third derivatives of Phi at rows (x, y)."""


Parts = TypeVar("Parts", bound=Sequence[Any])


def keep_memory() -> None:
    """Tell glibc's allocator to keep blocks of a batch's size, by freeing one: a hint, and nothing elsewhere.

    Without it every temporary array of a batch is given back to the system and faulted in again, which costs more
    than the arithmetic.

    >>> keep_memory()
    """
    np.empty(31 * 2**17)  # just below the largest size that glibc adapts to


def copies_of_the_first(lanes: Floats) -> Bools:
    """The lanes, which stand first, that are copies of the first bit by bit: there is no need to compute them.

    >>> copies_of_the_first(np.array([[1.0, 0.0], [1.0, 0.0], [2.0, 0.0]]))
    array([False,  True, False])
    """
    bits = lanes.view(np.int64)
    copies: Bools = (bits == bits[:1]).all(axis=1)
    copies[:1] = False
    return copies


def in_chunks(size: int, lanes: int, chunk: Callable[[slice], Sequence[Any]]) -> list[Any]:
    """The results of ``chunk`` over slices of at most ``lanes`` rows, put together row by row.

    >>> (squares,) = in_chunks(3, 2, lambda rows: (np.arange(3.0)[rows]**2,))
    >>> squares
    array([0., 1., 4.])
    """
    if size <= lanes:
        return [np.ascontiguousarray(part) for part in chunk(slice(0, size))]
    results: list[Any] = []
    for start in range(0, size, lanes):
        rows = slice(start, min(start + lanes, size))
        parts = chunk(rows)
        if not results:
            results = [np.empty((size, *part.shape[1:]), dtype=part.dtype) for part in parts]
        for result, part in zip(results, parts, strict=True):
            result[rows] = part
    return results


def in_halves(members: Indices, attempt: Callable[[Indices], None], *failures: type[Exception]) -> list[int]:
    """Attempt something for many members at once; those who fail alone are returned, found by halving.

    >>> def attempt(members):
    ...     if 3 in members:
    ...         raise ValueError
    >>> in_halves(np.arange(8), attempt, ValueError)
    [3]
    """
    failed, groups = [], [members] if len(members) else []
    while groups:
        group = groups.pop()
        try:
            attempt(group)
        except failures:
            if len(group) == 1:
                failed.append(int(group[0]))
            else:
                groups += np.array_split(group, 2)
    return failed


def over_points(
    engine: Blocks, blocks: Sequence[str], xy: Floats, formula: Callable[[Session, Floats], Parts]
) -> list[Any]:
    """A formula of some blocks at all rows (x, y), in chunks that suit the engine; sessions are used again."""
    sessions: dict[int, Session] = {}

    def chunk(rows: slice) -> Parts:
        points = xy[rows]
        if len(points) not in sessions:
            sessions[len(points)] = engine.session(blocks, len(points))
        try:
            return formula(sessions[len(points)], points)
        except NotPositiveDefinite as error:
            raise NotPositiveDefinite(error.members + rows.start, error.eigenvalues) from None

    return in_chunks(len(xy), engine.lanes(blocks), chunk)
