"""Candidate: a user's function, called with one point at a time, whatever kind of array it returns.

Work is counted here, in steps: a call with D = 50 and N = 10 is 60 of them, one without such numbers is one. How long a
call takes is not asked: the same questions are put to a candidate that is quick and to one that is slow.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Any

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.budget import Budget
from bilevel_sym.typing import Floats

__all__ = ["KNOBS", "STEPS", "Answer", "Candidate", "WrongKind", "norms", "real_array", "unit_of"]

Settings = Mapping[str, float]
KNOBS = ("D", "N", "Q", "tol")  # what a candidate may take: steps, conjugate gradients, Neumann terms, a tolerance
STEPS = 20_000  # in all, by default: a candidate that never converges is given up after so many
NO_SETTINGS: Settings = MappingProxyType({})


def real_array(value: Any, what: str) -> tuple[Floats, float]:
    """The numbers as float64, and the unit roundoff that they came with.

    >>> real_array(np.float32([1, 2]), "x")
    (array([1., 2.]), 1.1920928955078125e-07)
    >>> real_array(["a"], "x")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: x is not an array of real numbers
    """
    # a tensor that carries a graph or lives on another device has to be asked for its numbers
    for step in ("detach", "cpu"):
        value = getattr(value, step)() if callable(getattr(value, step, None)) else value
    try:
        array = np.asarray(value)
        if array.dtype.kind not in "fiuO" and array.dtype.name != "bfloat16":  # O: mpmath, SymPy, fractions
            raise TypeError
        return array.astype(np.float64), unit_of(array.dtype)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{what} is not an array of real numbers") from None


def norms(array: Floats) -> Floats:
    """The norm of what stands at each point, (P,), whatever its shape (P, ...).

    >>> norms(np.array([[[3.0, 4.0]], [[0.0, 0.0]]]))
    array([5., 0.])
    """
    return np.asarray(np.linalg.norm(array.reshape(len(array), -1), axis=1))


def unit_of(dtype: Any) -> float:
    """The spacing of numbers next to 1; whole numbers are exact, and count as float64.

    >>> unit_of(np.dtype("float64")) == 2.0**-52, unit_of(np.dtype("float16"))
    (True, 0.0009765625)
    """
    if dtype.name == "bfloat16":
        return 2.0**-7
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0**-52


class WrongKind(Exception):
    """The candidate returned something that is not an array of real numbers of the right shape."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a candidate returned at x, as float64; ``unit`` is the spacing of the numbers that it came in, next to 1."""

    x: Floats
    value: Floats
    unit: float = 2.0**-52
    settings: Settings = field(default_factory=dict)

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

    ``budget`` counts the steps that it was asked for; where its deadline has passed, no call is made any more.

    >>> half = Candidate(lambda x, D=3: [x[0] / 2], (1,))
    >>> half.knobs, half(np.array([3.0])).value
    (('D',), array([1.5]))
    >>> half.budget.spent, half.cost({"D": 50})
    (3.0, 50)
    >>> Candidate(lambda x: x[0], (1,))(np.array([3.0]))
    Traceback (most recent call last):
        ...
    verify.testkit.candidate.WrongKind: it returned an array of shape (), but the shape is (1,)
    """

    def __init__(self, function: Callable[..., object], shape: tuple[int, ...], budget: Budget | None = None) -> None:
        if not callable(function):
            raise InvalidArgument(
                f"the candidate is a {type(function).__name__}, which cannot be called",
                hint="a function of one point x of shape (d,), such as lambda x: my_hypergradient(x)",
            )
        self.function, self.shape = function, shape
        self.defaults = _knobs(function)
        self.budget = Budget(STEPS) if budget is None else budget
        self.previous: Answer | None = None
        self.calls = 0

    @property
    def knobs(self) -> tuple[str, ...]:
        """Which of KNOBS it takes by name."""
        return tuple(self.defaults)

    @property
    def required(self) -> bool:
        """Whether one of them has to be given."""
        return any(value is inspect.Parameter.empty for value in self.defaults.values())

    def cost(self, settings: Settings = NO_SETTINGS) -> int:
        """How many steps a call is: what its numbers of steps add up to.

        Its own defaults are its own choice, and often a limit that is never met: a call with these leaves enough of the
        budget for others.
        """
        counts = [name for name in self.defaults if name != "tol"]
        given = sum(_count(settings[name]) for name in counts if name in settings)
        own = sum(_count(self.defaults[name]) for name in counts if name not in settings)
        return max(1, given + int(min(own, self.budget.work / 4)))

    def affords(self, calls: int, settings: Settings = NO_SETTINGS) -> bool:
        """Whether so many calls are within what is left of the budget."""
        return calls * self.cost(settings) <= self.budget.left

    def __call__(self, x: Floats, settings: Settings = NO_SETTINGS) -> Answer:
        """The answer at x. What the candidate raises is the user's own, and carries a note of the point."""
        self.budget.deadline.check()
        self.budget.spend(self.cost(settings))
        try:
            with np.errstate(all="ignore"):  # what is judged is the answer: an overflow on the way may be harmless
                returned = self.function(np.array(x, dtype=np.float64), **settings)
        except Exception as error:
            given = "".join(f", {name}={value!r}" for name, value in settings.items())
            error.add_note(f"raised by the candidate, called with x = np.array({np.asarray(x).tolist()}){given}")
            raise
        value, unit = self._converted(returned)
        self.calls += 1
        self.previous = Answer(np.array(x, dtype=np.float64), value, unit, dict(settings))
        return self.previous

    def _converted(self, returned: object) -> tuple[Floats, float]:
        if returned is None:
            raise WrongKind("it returned None; is there a return statement?")
        try:
            value, unit = real_array(returned, "the answer")
        except InvalidArgument:
            raise WrongKind(f"it returned a {type(returned).__name__} that is not an array of real numbers") from None
        if value.shape != self.shape:
            raise WrongKind(f"it returned an array of shape {value.shape}, but the shape is {self.shape}")
        return value, unit


def _knobs(function: Callable[..., object]) -> Mapping[str, object]:
    """Which of KNOBS the function takes by name, each with its default."""
    try:
        parameters = list(inspect.signature(function).parameters.values())[1:]  # the first is the point
    except (TypeError, ValueError):  # some compiled functions do not say
        return {}
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    return {p.name: p.default for p in parameters if p.name in KNOBS and p.kind in named}


def _count(value: object) -> int:
    """A number of steps; what is none, such as None or infinity, says nothing of the work."""
    whole = isinstance(value, (int, float, np.integer, np.floating)) and np.isfinite(value)
    return max(0, int(value)) if whole else 0  # type: ignore[call-overload]
