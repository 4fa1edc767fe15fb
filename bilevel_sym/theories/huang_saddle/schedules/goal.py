"""What is asked of a theorem, validated: eps, delta, dimensions, distances, and constants as floats."""

from __future__ import annotations

import math
from dataclasses import dataclass, fields
from typing import Any, TypeVar, get_args

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.estimators.checks import count
from bilevel_sym.theories.huang_saddle.constants import Constants, MinimaxConstants
from bilevel_sym.theories.statement import Variant

__all__ = ["Goal", "Smoothness", "float_of", "floats_of", "goal_of", "require_chance", "smoothness_of"]

# Between these sizes no formula of a theorem leaves float64; a problem beyond them wants other units.
_SMALLEST, _LARGEST = 1e-30, 1e30
_DIVISORS = ("mu", "ell", "eps", "gap", "L_phi")
_LEAST_CHANCE = 1e-300

AnyConstants = TypeVar("AnyConstants", Constants, MinimaxConstants)


@dataclass(frozen=True, slots=True)
class Goal:
    """What a schedule is for: an eps-local minimum in dimension d, with probability 1 - delta.

    ``episodes`` of None are as many as ``gap`` allows, which depends on iota: ``escape.Count`` says how.
    ``initial_error`` bounds |y^0 - y*(x_0)| + |v^0 - v*_0|.

    Paper: Equation B.20 [def-hatDelta-AID]

    >>> goal_of(eps=0.1, delta=0.2, d=3, initial_error=1, gap=1, episodes=2).episode_delta
    0.1
    """

    eps: float
    delta: float
    d: int
    initial_error: float
    gap: float
    episodes: int | None

    @property
    def episode_delta(self) -> float:
        """The failure probability that each of the episodes may use up; all of it where they are not counted yet."""
        return self.delta / (self.episodes or 1)


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


def goal_of(*, eps: Any, delta: Any, d: Any, initial_error: Any, gap: Any, episodes: Any) -> Goal:
    """A checked ``Goal``; numbers of any kind become floats.

    >>> goal_of(eps=1, delta=1.5, d=3, initial_error=1, gap=1, episodes=1)
    Traceback (most recent call last):
      ...
    bilevel_sym.errors.InvalidArgument: delta is a probability and must lie in (0, 1), but is 1.5
    try: delta=0.1
    """
    goal = Goal(
        eps=float_of(eps, "eps"),
        delta=float_of(delta, "delta"),
        d=count("d", d),
        initial_error=float_of(initial_error, "initial_error"),
        gap=float_of(gap, "gap"),
        episodes=None if episodes is None else count("episodes", episodes),
    )
    if not goal.eps > 0:
        raise InvalidArgument(f"eps is an accuracy and must be positive, but is {goal.eps}", hint="eps=0.01")
    if not 0 < goal.delta < 1:
        raise InvalidArgument(f"delta is a probability and must lie in (0, 1), but is {goal.delta}", hint="delta=0.1")
    require_chance(goal)
    if not goal.initial_error >= 0:
        raise InvalidArgument(
            f"initial_error is a distance and cannot be {goal.initial_error}", hint="|y0 - y*(x0)| + |v0 - v*(x0)|"
        )
    if not goal.gap > 0:
        raise InvalidArgument(f"gap must be positive, but is {goal.gap}", hint="a bound on Phi(x0) - inf Phi")
    return goal


def require_chance(goal: Goal) -> None:
    """Refuse so many episodes that none of them is left a chance to fail.

    >>> require_chance(Goal(eps=0.1, delta=0.1, d=2, initial_error=1.0, gap=1.0, episodes=10**6))
    """
    if goal.episode_delta < _LEAST_CHANCE:
        raise InvalidArgument(
            f"delta/episodes = {goal.episode_delta:.3g} is no probability that anybody could tell from 0",
            hint="a larger delta, or fewer episodes",
        )


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
