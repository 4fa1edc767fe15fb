"""What is asked of a theorem, validated: eps, delta, dimensions, distances, and constants as floats."""

from __future__ import annotations

import math
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, fields
from typing import Any, TypeVar, get_args

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.estimators.checks import settle_counts
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.constants import Constants, MinimaxConstants

__all__ = ["Goal", "Smoothness", "float_of", "floats_of", "goal_of", "smoothness_of"]

# Between these sizes no formula of a theorem leaves float64; a problem beyond them wants other units.
_SMALLEST, _LARGEST = 1e-30, 1e30
_DIVISORS = ("mu", "ell", "eps", "gap", "L_phi")
_LEAST_CHANCE = 1e-300

AnyConstants = TypeVar("AnyConstants", Constants, MinimaxConstants)


@dataclass(frozen=True, slots=True, kw_only=True)
class Goal:
    """What a schedule is for: an eps-local minimum in dimension d, with probability 1 - delta.

    - ``eps``: the accuracy of Definition [def:local-min].
    - ``delta``: the probability of failure.
    - ``d``: the dimension of x.
    - ``initial_error``: bounds |y0 - y*(x0)| + |v0 - v*(x0)|.
    - ``gap``: bounds Phi(x0) - inf Phi.
    - ``episodes``: how many escapes share delta; None: as many as ``gap`` allows, which depends on iota.

    Numbers of any kind become floats. Every schedule takes a goal, or its fields as keywords:

    >>> from bilevel_sym import Constants, schedules
    >>> c, goal = Constants(mu=1, ell=1, rho=1, nu=1, M=1), Goal(eps=0.1, delta=0.1, d=2, gap=1e-9, episodes=1)
    >>> schedules.perturbed_aid(c, goal).T_escape, schedules.ineon(c, goal).T_escape
    (72, 86)
    >>> schedules.perturbed_aid(c, eps=0.1, delta=0.1, d=2, gap=1e-9, episodes=1) == schedules.perturbed_aid(c, goal)
    True
    >>> Goal(eps=1, delta=1.5, d=3)
    Traceback (most recent call last):
      ...
    bilevel_sym.errors.InvalidArgument: delta is a probability and must lie in (0, 1), but is 1.5
    try: delta=0.1

    Paper: Equation B.20 [def-hatDelta-AID]
    """

    eps: float
    delta: float
    d: int
    initial_error: float = 1.0
    gap: float = 1.0
    episodes: int | None = None

    def __post_init__(self) -> None:
        for name in ("eps", "delta", "initial_error", "gap"):
            object.__setattr__(self, name, float_of(getattr(self, name), name))
        settle_counts(self, "d", *(["episodes"] if self.episodes is not None else []))
        if not self.eps > 0:
            raise InvalidArgument(f"eps is an accuracy and must be positive, but is {self.eps}", hint="eps=0.01")
        if not 0 < self.delta < 1:
            raise InvalidArgument(
                f"delta is a probability and must lie in (0, 1), but is {self.delta}", hint="delta=0.1"
            )
        self._require_chance()
        if not self.initial_error >= 0:
            raise InvalidArgument(
                f"initial_error is a distance and cannot be {self.initial_error}", hint="|y0 - y*(x0)| + |v0 - v*(x0)|"
            )
        if not self.gap > 0:
            raise InvalidArgument(f"gap must be positive, but is {self.gap}", hint="a bound on Phi(x0) - inf Phi")

    @property
    def episode_delta(self) -> float:
        """The failure probability that each of the episodes may use up; all of it where they are not counted yet."""
        return self.delta / (self.episodes or 1)

    def with_episodes(self, episodes: int) -> Goal:
        """The same with so many episodes, however many.

        >>> Goal(eps=0.1, delta=0.2, d=3).with_episodes(2).episode_delta
        0.1
        """
        goal = copy(self)
        object.__setattr__(goal, "episodes", episodes)
        goal._require_chance()
        return goal

    def _require_chance(self) -> None:
        """Refuse so many episodes that none of them is left a chance to fail."""
        if self.episode_delta < _LEAST_CHANCE:
            raise InvalidArgument(
                f"delta/episodes = {self.episode_delta:.3g} is a probability that cannot be told from 0",
                hint="a larger delta, or fewer episodes",
            )


@dataclass(frozen=True, slots=True)
class Smoothness:
    """Lipschitz constants of the gradient and the Hessian of Phi, as floats.

    Paper: Equation 1.7 [def-rho-phi-intro]

    >>> Smoothness(L_phi=2.0, rho_phi=16.0).curvature(eps=0.25)
    2.0
    """

    L_phi: float
    rho_phi: float

    def curvature(self, eps: float) -> float:
        """sqrt(rho_phi eps): the negative curvature that an eps-local minimum may still have."""
        return math.sqrt(self.rho_phi) * math.sqrt(eps)


def goal_of(goal: object, fields: Mapping[str, Any]) -> Goal:
    """The goal that a theorem was given, or the one that its keywords make.

    >>> goal_of(None, {"eps": 1, "delta": 0.1, "d": 3}).gap
    1.0
    """
    if goal is None:
        return Goal(**fields)
    if not isinstance(goal, Goal) or fields:
        raise InvalidArgument("give a Goal, or its fields as keywords", hint="Goal(eps=0.1, delta=0.1, d=2)")
    return goal


def floats_of(constants: object, kind: type[AnyConstants], variant: Variant) -> AnyConstants:
    """The constants with floats in place of exact numbers; the wrong class and numbers beyond float64 are refused.

    >>> from fractions import Fraction
    >>> floats_of(MinimaxConstants(1, 2, Fraction(1, 2)), MinimaxConstants, "corrected")
    MinimaxConstants(mu=1.0, ell=2.0, rho=0.5, M_x=None, reading='joint')
    """
    if variant not in get_args(Variant):
        raise InvalidArgument(f"variant must be one of {', '.join(map(repr, get_args(Variant)))}, but is {variant!r}")
    if not isinstance(constants, kind):
        raise InvalidArgument(
            f"this theorem needs {kind.__name__}, but was given {type(constants).__name__}",
            hint="Constants for bilevel problems, MinimaxConstants for minimax ones (perturbed_gdmax);"
            " those of verify.constants(problem) are in its .valid",
        )
    names = [field.name for field in fields(kind) if field.name != "reading"]  # all of them numbers
    values = {name: getattr(constants, name) for name in names}
    as_floats: dict[str, Any] = {k: None if value is None else float_of(value, k) for k, value in values.items()}
    converted = kind(**as_floats, reading=constants.reading)
    if converted.ell > _LARGEST * converted.mu:
        raise InvalidArgument(
            f"the condition number {converted.kappa:.3g} is beyond what float64 can count with", hint="a larger mu"
        )
    return converted


def smoothness_of(constants: Constants | MinimaxConstants, variant: Variant, known: Any = None) -> Smoothness:
    """L_phi and rho_phi of the given constants, computed in their own arithmetic and rounded once.

    Or those that are ``known``, as numbers or as brackets of which the upper ends count: the theorems use nothing of
    the formulas but that they are Lipschitz constants of grad Phi and Hess Phi.

    >>> smoothness_of(MinimaxConstants(1, 2, 3), "corrected")
    Smoothness(L_phi=6.0, rho_phi=81.0)
    >>> smoothness_of(MinimaxConstants(1, 2, 3), "corrected", known=Smoothness(L_phi=2.5, rho_phi=7.0)).L_phi
    2.5
    """
    if known is None:
        smoothness = Smoothness(float(constants.L_phi(variant=variant)), float(constants.rho_phi(variant=variant)))
    else:
        smoothness = Smoothness(*(_known(known, name) for name in ("L_phi", "rho_phi")))
    if not smoothness.rho_phi > 0:
        raise InvalidArgument(
            "rho_phi = 0: Phi is quadratic, and the theorem has no scale for its curvature",
            hint="any positive upper bound is allowed: pass constants with a small rho > 0",
        )
    return smoothness


def _known(smoothness: Any, name: str) -> float:
    value = getattr(smoothness, name, None)
    number = float_of(getattr(value, "upper", value), name)
    if number < 0 or (name == "L_phi" and number == 0):
        raise InvalidArgument(f"{name} bounds a norm and cannot be {number}", hint="verify.smoothness(problem)")
    return number


def float_of(value: Any, what: str) -> float:
    """A number of any kind as a float; text, NaN, infinities and what is far too large or too small are refused.

    Only what formulas divide by can be too small.

    >>> from fractions import Fraction
    >>> float_of(Fraction(1, 4), "eps")
    0.25
    """
    try:
        number = math.nan if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidArgument(f"{what} must be a finite real number, but is {value!r}", hint="a number such as 0.1")
    if abs(number) > _LARGEST or (what in _DIVISORS and 0 < number < _SMALLEST):
        raise InvalidArgument(
            f"{what} = {number:.3g} is beyond the sizes that schedules work with ({_SMALLEST:.0e} to {_LARGEST:.0e})",
            hint="rescale the problem: other units for x, y or f",
        )
    return number
