"""Candidate: a user's function, called with one point at a time, whatever kind of array it returns.

Work is counted here, in steps: a call with D = 50 and N = 10 is 60 of them, one without such numbers is one. How long a
call takes is not asked: the same questions are put to a candidate that is quick and to one that is slow.
"""

from __future__ import annotations

import contextlib
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
BFLOAT16 = 2.0**-7  # spacing of its numbers next to 1
NO_SETTINGS: Settings = MappingProxyType({})
NOTHING_TOLD: Mapping[str, int] = MappingProxyType({})


def real_array(value: Any, what: str) -> tuple[Floats, float]:
    """The numbers as float64, and the unit roundoff that they came with.

    >>> real_array(np.float32([1, 2]), "x")
    (array([1., 2.]), 1.1920928955078125e-07)
    >>> real_array(["a"], "x")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: x is not an array of real numbers
    """
    try:
        array = np.asarray(_numbers(value))
        if array.dtype.kind not in "fiuO" and array.dtype.name != "bfloat16":  # O: mpmath, SymPy, fractions
            raise TypeError
        return array.astype(np.float64), max(unit_of(array.dtype), BFLOAT16 if _is_rounded(value) else 0.0)
    except (TypeError, ValueError, OverflowError):
        raise InvalidArgument(f"{what} is not an array of real numbers") from None


def _numbers(value: Any) -> Any:
    """A tensor with a graph, or on another device, has to be asked for its numbers; so has each of a list."""
    if isinstance(value, (list, tuple)):
        return [_numbers(part) for part in value]
    for step in ("detach", "cpu", *(["float"] if _is_rounded(value) else [])):
        value = getattr(value, step)() if callable(getattr(value, step, None)) else value
    return value


def _is_rounded(value: Any) -> bool:
    """Whether it is, or holds, a tensor of bfloat16, which NumPy does not read."""
    if isinstance(value, (list, tuple)):
        return any(map(_is_rounded, value))
    return str(getattr(value, "dtype", "")) == "torch.bfloat16"


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
        return BFLOAT16
    return float(np.finfo(dtype).eps) if dtype.kind == "f" else 2.0**-52


class WrongKind(Exception):
    """The candidate returned something that is not an array of real numbers of the right shape."""


@dataclass(frozen=True, eq=False)
class Answer:
    """What a candidate returned at x, as float64; ``unit`` is the spacing of the numbers that it came in, next to 1.

    ``told`` are the y and v with which it says that it was made.
    """

    x: Floats
    value: Floats
    unit: float = 2.0**-52
    settings: Settings = field(default_factory=dict)
    told: Mapping[str, Floats] = field(default_factory=dict)

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
    >>> Candidate(lambda x, maxiter=5: [x], (1,), knobs={"maxiter": "N"}).knobs
    ('N',)
    >>> Candidate(lambda x: {"grad": x, "y": 2 * x}, (1,), told={"y": 1})(np.array([3.0])).told
    {'y': array([6.])}
    >>> Candidate(lambda x: x[0], (1,))(np.array([3.0]))
    Traceback (most recent call last):
        ...
    verify.testkit.candidate.WrongKind: it returned an array of shape (), but the shape is (1,)
    """

    def __init__(
        self,
        function: Callable[..., object],
        shape: tuple[int, ...],
        budget: Budget | None = None,
        *,
        knobs: Mapping[str, str] | None = None,
        answer: str = "grad",
        told: Mapping[str, int] = NOTHING_TOLD,
    ) -> None:
        if not callable(function):
            raise InvalidArgument(
                f"the candidate is a {type(function).__name__}, which cannot be called",
                hint="a function of one point x of shape (d,), such as lambda x: my_hypergradient(x)",
            )
        self.function, self.shape, self.answer, self.sizes = function, shape, answer, told
        self.own = _own_names(function, {} if knobs is None else knobs)
        self.defaults = _knobs(function, self.own)
        self.rows = False  # whether it takes x of shape (1, d) only
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
        given = {self.own.get(name, name): value for name, value in settings.items()}
        try:
            with np.errstate(all="ignore"):  # what is judged is the answer: an overflow on the way may be harmless
                (value, unit), told = self._called(np.array(x, dtype=np.float64), given)
        except WrongKind:
            raise
        except Exception as error:
            said = "".join(f", {name}={value!r}" for name, value in given.items())
            error.add_note(f"raised by the candidate, called with x = np.array({np.asarray(x).tolist()}){said}")
            raise
        self.calls += 1
        self.previous = Answer(np.array(x, dtype=np.float64), value, unit, dict(settings), told)
        return self.previous

    def _called(self, x: Floats, given: Settings) -> tuple[tuple[Floats, float], dict[str, Floats]]:
        """The answer; one that takes batches alone is handed a batch of one, from the first call on."""
        if self.rows:
            return self._understood(self.function(x[None], **given))
        try:
            return self._understood(self.function(x, **given))
        except Exception as error:
            if self.calls:
                raise
            with contextlib.suppress(Exception):
                returned = self.function(x[None], **given)
                if not isinstance(error, WrongKind) or self._is_batch(returned):
                    found = self._understood(returned)
                    self.rows = True
                    return found
            raise

    def _is_batch(self, returned: Any) -> bool:
        """Whether it is a batch of one answer, and not an answer or a part of one."""
        value = returned[self.answer] if isinstance(returned, Mapping) else returned
        return real_array(value, "the answer")[0].shape == (1, *self.shape)

    def _understood(self, returned: Any) -> tuple[tuple[Floats, float], dict[str, Floats]]:
        """The answer in what was returned, and what was told beside it."""
        if not isinstance(returned, Mapping):
            return self._converted(returned), {}
        names = {self.answer, *self.sizes}
        if self.answer not in returned or not names.issuperset(returned):
            wanted = ", ".join(f'"{name}"' for name in sorted(names))
            raise WrongKind(f"it returned a dict with {', '.join(map(repr, returned))}, but its keys are of {wanted}")
        told = {name: np.ravel(real_array(returned[name], name)[0]) for name in self.sizes if name in returned}
        for name, value in told.items():
            if len(value) != self.sizes[name]:
                raise WrongKind(f"{name} in what it returned has {len(value)} numbers, but n is {self.sizes[name]}")
        return self._converted(returned[self.answer]), told

    def _converted(self, returned: object) -> tuple[Floats, float]:
        if returned is None:
            raise WrongKind("it returned None; is there a return statement?")
        try:
            value, unit = real_array(returned, "the answer")
        except InvalidArgument:
            raise WrongKind(f"it returned a {type(returned).__name__} that is not an array of real numbers") from None
        value = value[0] if value.shape == (1, *self.shape) else value
        if value.shape != self.shape:
            raise WrongKind(f"it returned an array of shape {value.shape}, but the shape is {self.shape}")
        return value, unit


def _parameters(function: Callable[..., object]) -> list[inspect.Parameter]:
    try:
        return list(inspect.signature(function).parameters.values())[1:]  # the first is the point
    except (TypeError, ValueError):  # some compiled functions do not say
        return []


def _own_names(function: Callable[..., object], knobs: Mapping[str, str]) -> dict[str, str]:
    """By which of its own names each of KNOBS is handed over."""
    names = {p.name: p.kind for p in _parameters(function)}
    for own, meant in knobs.items():
        if meant not in KNOBS:
            raise InvalidArgument(f"knobs: {own!r:.40} stands for {meant!r:.40}", hint=f"one of {', '.join(KNOBS)}")
        if names and own not in names and inspect.Parameter.VAR_KEYWORD not in names.values():
            raise InvalidArgument(f"the candidate takes no {own!r:.40}", hint=f"one of {', '.join(names)}")
    return {meant: own for own, meant in knobs.items()}


def _knobs(function: Callable[..., object], own: Mapping[str, str]) -> Mapping[str, object]:
    """Which of KNOBS the function takes by name, each with its default."""
    named = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    defaults = {p.name: p.default for p in _parameters(function) if p.kind in named}
    names = {name: own.get(name, name) for name in KNOBS}
    return {name: defaults.get(names[name]) for name in KNOBS if name in own or names[name] in defaults}


def _count(value: object) -> int:
    """A number of steps; what is none, such as None or infinity, says nothing of the work."""
    whole = isinstance(value, (int, float, np.integer, np.floating)) and np.isfinite(value)
    return max(0, int(value)) if whole else 0  # type: ignore[call-overload]
