"""Candidate: a user's function, called with one point at a time, whatever kind of array it returns."""

from __future__ import annotations

import inspect
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.errors import InvalidProblem
from verify.testkit.arrays import real_array

__all__ = ["KNOBS", "Answer", "Candidate", "WrongKind"]

Floats = NDArray[np.float64]
Settings = Mapping[str, float]
KNOBS = ("D", "N", "Q", "tol")  # what a candidate may take: steps, conjugate gradients, Neumann terms, a tolerance
NOTHING: Settings = MappingProxyType({})


class WrongKind(Exception):
    """The candidate returned something that is not an array of real numbers of the right shape.

    >>> print(WrongKind("it returned None"))
    it returned None
    """


@dataclass(frozen=True, eq=False)
class Answer:
    """What a candidate returned at x, as float64; ``unit`` is the spacing of the numbers that it came in, next to 1.

    >>> Answer(np.zeros(1), np.ones(1), unit=2.0**-23).single
    True
    """

    x: Floats
    value: Floats
    unit: float = 2.0**-52
    settings: Settings = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def single(self) -> bool:
        """Whether it came in less than double precision."""
        return self.unit > 2.0**-52

    @property
    def finite(self) -> bool:
        """Whether it holds neither nan nor infinity."""
        return bool(np.isfinite(self.value).all())


class Candidate:
    """A function from one point (d,) to an array of one shape. It remembers its last answer, for order may matter.

    >>> half = Candidate(lambda x, D=3: [x[0] / 2], (1,))
    >>> half.knobs, half(np.array([3.0])).value
    (('D',), array([1.5]))
    >>> Candidate(lambda x: x[0], (1,))(np.array([3.0]))
    Traceback (most recent call last):
        ...
    verify.testkit.candidate.WrongKind: it returned an array of shape (), but the shape is (1,)
    """

    def __init__(self, function: Callable[..., object], shape: tuple[int, ...]) -> None:
        if not callable(function):
            raise InvalidProblem(
                f"the candidate is a {type(function).__name__}, which cannot be called",
                hint="a function of one point x of shape (d,), such as lambda x: my_hypergradient(x)",
            )
        self.function, self.shape = function, shape
        self.knobs, self.required = _knobs(function)
        self.previous: Answer | None = None
        self.calls = 0

    def __call__(self, x: Floats, settings: Settings = NOTHING) -> Answer:
        """The answer at x. What the candidate raises is the user's own, and carries a note of the point."""
        began = time.perf_counter()
        try:
            with np.errstate(all="ignore"):  # what is judged is the answer: an overflow on the way may be harmless
                returned = self.function(np.array(x, dtype=np.float64), **settings)
        except Exception as error:
            given = "".join(f", {name}={value!r}" for name, value in settings.items())
            error.add_note(f"raised by the candidate, called with x = np.array({np.asarray(x).tolist()}){given}")
            raise
        value, unit = self._converted(returned)
        self.calls += 1
        seconds = time.perf_counter() - began
        self.previous = Answer(np.array(x, dtype=np.float64), value, unit, dict(settings), seconds)
        return self.previous

    def _converted(self, returned: object) -> tuple[Floats, float]:
        if returned is None:
            raise WrongKind("it returned None; is there a return statement?")
        try:
            value, unit = real_array(returned, "the answer")
        except InvalidProblem:
            raise WrongKind(f"it returned a {type(returned).__name__} that is not an array of real numbers") from None
        if value.shape != self.shape:
            raise WrongKind(f"it returned an array of shape {value.shape}, but the shape is {self.shape}")
        return value, unit


def _knobs(function: Callable[..., object]) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Which of KNOBS the function takes by name, and which of these have no default."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]  # the first is the point
    except (TypeError, ValueError):  # some compiled functions do not say
        return (), ()
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    found = [p for p in parameters if p.name in KNOBS and p.kind in named]
    required = tuple(p.name for p in found if p.default is inspect.Parameter.empty)
    return tuple(p.name for p in found), required
