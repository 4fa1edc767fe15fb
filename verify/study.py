"""Study: one problem over one box, and what several claims about it share, each computed when first asked for."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cached_property, partial
from types import MappingProxyType
from typing import TYPE_CHECKING, TypeVar

import numpy as np

from bilevel_sym import BilevelProblem, Box, Kernels
from bilevel_sym.errors import BilevelError, InvalidArgument, TimeIsUp
from bilevel_sym.system.budget import Deadline, Effort, deadline_of, scale_of
from bilevel_sym.system.memory import DEFAULT, Memory, bytes_of
from bilevel_sym.theories import Reading, Variant
from bilevel_sym.typing import Bools, Floats
from verify.enclosures.cover import requested_box
from verify.regularity.structure import large

if TYPE_CHECKING:
    from verify.enclosures.y_enclosure import Coverage
    from verify.points.stationary import StationaryPoints
    from verify.regularity.certified import CertifiedConstants
    from verify.regularity.phi_smoothness import Smoothness

__all__ = ["Study", "seed_of", "study_of"]

T = TypeVar("T")
S = TypeVar("S", bound="CertifiedConstants | Smoothness | StationaryPoints")
# of what each takes by default
SHARES: Mapping[str, float] = MappingProxyType({"constants": 0.4, "smoothness": 0.4, "stationary": 0.2})
LIGHT_NUMBERS = 20_000  # data and third derivatives up to which a point costs next to nothing


@dataclass(frozen=True, eq=False)
class Study:
    """A problem with what its claims share: certified constants, smoothness, stationary points, random numbers.

    ``exact`` is the deterministic problem behind it, which is the mean of a stochastic one. Random numbers come from
    ``rng(name)``, so that the claims do not depend on each other's order.

    - ``problem``: what the user gave.
    - ``box``: in (x, y), over which it is studied.
    - ``seed``: of all random numbers.
    - ``effort``: a multiple of the default: what a claim counts (points, runs, boxes) grows with it.
    - ``variant``: the form of the formulas.
    - ``deadline``: a limit of time.
    - ``memory``: bytes; what does not fit is refused.

    >>> from bilevel_sym import zoo
    >>> study = study_of(zoo.get("scalar").problem, seed=0)
    >>> study.points(3).shape, study.exact is study.problem
    ((3, 1), True)
    """

    problem: BilevelProblem
    box: Box
    seed: int
    effort: float = 1.0
    variant: Variant = "corrected"
    deadline: Deadline = field(default_factory=Deadline)
    memory: int = DEFAULT

    @cached_property
    def exact(self) -> BilevelProblem:
        """The deterministic problem; one of many arrays' entries refuses to be written out in scalars."""
        return large.guarded(self.problem.mean) if self.is_large else self.problem.mean

    @property
    def is_large(self) -> bool:
        """Whether it is an array problem with too many variables for a search over a box."""
        return large.is_large(self.problem)

    @property
    def kernels(self) -> Kernels:
        """Its kernels."""
        return self.exact.kernels

    @cached_property
    def lightness(self) -> float:
        """The share of the usual points and steps that a claim takes: less than 1 where each of them costs much."""
        if not self.is_large:
            return 1.0
        d, n = self.problem.d, self.problem.n
        entries = sum(int(np.prod(array.shape)) for array in self.problem.mean.arrays.values())
        return min(1.0, LIGHT_NUMBERS / (entries + d * d * n + n**3))

    def constants_over(self, box: Box, share: float, *, reading: Reading = "block") -> CertifiedConstants:
        """Certified constants over a box, with a share of the effort that they take by default."""
        from verify.regularity.certified import constants

        return self._whole(
            constants(
                self.exact, box, reading=reading, effort=share * self.effort, seconds=self.deadline, memory=self.memory
            )
        )

    def smoothness_over(self, box: Box, share: float) -> Smoothness:
        """Certified smoothness over a box, with a share of the effort that it takes by default."""
        from verify.regularity.phi_smoothness import smoothness

        return self._whole(
            smoothness(self.exact, box, effort=share * self.effort, seconds=self.deadline, memory=self.memory)
        )

    def _whole(self, found: S) -> S:
        """What a search found, unless it was cut by time: then nothing may rest on it."""
        if found.cut:
            self.deadline.check()
            raise TimeIsUp("cut by time", hint="more seconds, or less effort")
        return found

    def rng(self, name: str) -> np.random.Generator:
        """Random numbers for one purpose."""
        return np.random.default_rng([self.seed, zlib.crc32(name.encode())])

    def points(self, count: int, name: str = "points") -> Floats:
        """x drawn evenly from the box, (count, d); the same ones for the same name."""
        low, high = self.x_ends
        return np.asarray(low + (high - low) * self.rng(name).random((count, self.exact.d)))

    def covers(self, x: Floats) -> Bools:
        """At which x, (count, d), y*(x) lies in the box too; elsewhere the constants of the box say nothing of Phi."""
        ends = large.entry_ends(self.box, self.exact.y)
        if ends is None:
            return np.ones(len(x), dtype=np.bool_)
        y = self.kernels.one_sided.y_star(x)
        return np.asarray(((y >= ends[0]) & (y <= ends[1])).all(axis=-1))

    @cached_property
    def left_out(self) -> str:
        """The part of x for which y* leaves the box, where its constants say nothing; empty where none is known.

        >>> from bilevel_sym import zoo
        >>> study_of(zoo.get("scalar").problem).left_out
        ''
        """
        return "" if self._coverage is None else self._coverage.left_out

    @cached_property
    def undecided(self) -> float:
        """The share of the box in x for which y* is neither proved to stay in the box nor proved to leave it.

        >>> from bilevel_sym import zoo
        >>> study_of(zoo.get("scalar").problem).undecided
        0.0
        """
        if self.is_large:
            return 0.0 if large.encloses(self.problem.mean, self.box) else 1.0
        return 1.0 if self._coverage is None else self._coverage.open_share

    @cached_property
    def _coverage(self) -> Coverage | None:
        from verify.enclosures.y_enclosure import coverage

        try:
            return coverage(self.exact, self.box)
        except BilevelError:  # y* cannot be enclosed: what needs it says so
            return None

    @cached_property
    def x_ends(self) -> tuple[Floats, Floats]:
        """The lower and upper ends of x."""
        ends = large.entry_ends(self.box, self.exact.x)
        assert ends is not None
        return ends

    @cached_property
    def x_box(self) -> Box:
        """The box in x alone."""
        return Box({s.name: self.box[s.name] for s in self.exact.x})

    @property
    def constants(self) -> CertifiedConstants:
        """Certified constants of Assumption 2.1 over the box; raises what kept them from being certified."""
        return self.kept("_constants", lambda: self.constants_over(self.box, SHARES["constants"]))

    @property
    def joint(self) -> CertifiedConstants:
        """The same constants read jointly in (x, y), which the sharp formulas take."""
        return self.kept("_joint", lambda: self.constants_over(self.box, SHARES["constants"], reading="joint"))

    @property
    def smoothness(self) -> Smoothness:
        """Certified brackets of the derivatives of Phi; raises what kept them from being certified."""
        return self.kept("_smoothness", lambda: self.smoothness_over(self.box, SHARES["smoothness"]))

    @property
    def stationary(self) -> StationaryPoints:
        """All stationary points in the box, as far as the search came."""
        from verify.points.stationary import search

        effort = SHARES["stationary"] * self.effort
        found = partial(search, self.exact, self.x_box, effort=effort, seconds=self.deadline, memory=self.memory)
        return self.kept("_stationary", lambda: self._whole(found()))

    def kept(self, name: str, compute: Callable[[], T]) -> T:
        """What was computed once, or the error: a failure is remembered too, and not tried again.

        >>> from bilevel_sym import zoo
        >>> study = study_of(zoo.get("scalar").problem)
        >>> study.kept("a number", lambda: 1), study.kept("a number", lambda: 2)
        (1, 1)
        """
        if name not in self.__dict__:
            try:
                self.__dict__[name] = compute()
            except BilevelError as error:
                self.__dict__[name] = error
        found: T | BilevelError = self.__dict__[name]
        if isinstance(found, BilevelError):
            raise found
        return found

    def named(self, x: Floats, y: Floats | None = None) -> dict[str, float]:
        """A point by the names of its variables."""
        symbols = self.exact.x if y is None else (*self.exact.x, *self.exact.y)
        values = np.asarray(x) if y is None else np.concatenate([x, y])
        return {s.name: float(value) for s, value in zip(symbols, values.ravel(), strict=True)}


def study_of(
    problem: BilevelProblem,
    *,
    box: Box | None = None,
    seed: int = 0,
    effort: Effort = "default",
    seconds: float | Deadline | None = None,
    variant: Variant = "corrected",
    memory: Memory = "2GB",
) -> Study:
    """A study of a problem.

    - ``problem``: the problem.
    - ``box``: by default the problem's; one in x alone is completed by where y* lies over it.
    - ``seed``: of all random numbers.
    - ``effort``: "quick", "default", "thorough", or a multiple of the default.
    - ``seconds``: a limit of time.
    - ``variant``: the form of the formulas: "corrected", "printed" or "sharp".
    - ``memory``: "2GB", "500 MB" or bytes.

    >>> from bilevel_sym import BilevelProblem
    >>> study_of(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"))
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: the problem has no box, and constants belong to a box
    try: [box] in the problem file, or BilevelProblem(..., box={"x": (-1, 1), "y": (-1, 1)})
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"a study wants a problem, but was given a {type(problem).__name__}")
    room = bytes_of(memory)
    if problem.is_array and not large.is_large(problem):
        problem, box = large.in_scalars(problem, box)
    exact = problem.mean
    chosen = requested_box(problem, box, "constants belong")
    if len(chosen) == len(exact.x):
        from verify.enclosures.y_enclosure import with_y_star

        with suppress(BilevelError):  # then y stays free, and what needs a bound on it says so
            chosen = large.completed_box(exact, chosen) if exact.is_array else with_y_star(exact, chosen)
    chosen = large.by_entry(exact, chosen) if exact.is_array else chosen
    _ = exact.kernels  # compiled, where they are not yet, before the clock starts
    study = Study(problem, chosen, seed, scale_of(effort), variant, deadline_of(seconds), room)
    low, high = study.x_ends
    exact.kernels.refuse_kinked_box(low, high)
    return study


def seed_of(rng: np.random.Generator | int | None) -> int:
    """A seed from whatever a user gives: a generator, a whole number, or nothing.

    >>> seed_of(None), seed_of(7)
    (0, 7)
    """
    if isinstance(rng, np.random.Generator):
        return int(rng.integers(2**31))
    if rng is None:
        return 0
    if not _is_seed(rng):
        raise InvalidArgument(f"rng={rng!r:.40}", hint="a numpy Generator, a whole number from 0, or None")
    return int(rng)


def _is_seed(value: object) -> bool:
    return isinstance(value, (int, np.integer)) and not isinstance(value, bool) and bool(value >= 0)
