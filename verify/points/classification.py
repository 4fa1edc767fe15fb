"""classify: what kind of stationary point of Phi a given x is next to, by certified signs of eigenvalues."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Literal

import numpy as np
import sympy as sp
from flint import arb, arb_mat, fmpq

from bilevel_sym import Ball, BilevelProblem, Box, MinimaxProblem, PointCertificate, evaluate
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.ties import first_smallest
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.graph.exact import rational, rational_vector
from bilevel_sym.system.budget import Effort
from bilevel_sym.system.memory import Memory
from verify.points import stationary
from verify.points.balls import POINT_BITS, eigenvalue_balls, exact_point, refine, simplest
from verify.points.point import StationaryPoint, as_point, continued, exact_result
from verify.regularity.structure.large import in_scalars
from verify.verdict import Bracket

__all__ = ["Classification", "SecondOrder", "classify", "second_order"]

Kind = Literal["local minimum", "saddle", "local maximum", "degenerate", "undecided", "not stationary"]
NEARBY = 0.15  # of the default effort, for the proof that there is no stationary point near x
DIGITS = 20
RTOL = 0.01  # for rho_phi over the box


@dataclass(frozen=True)
class Classification:
    """What is proved about x; None where it is undecided, or was not asked.

    - ``kind``: that of the stationary point next to x.
    - ``x``: that of the stationary point, or as it was given.
    - ``point``: the stationary point next to it, where there is one.
    - ``is_local_nash``: of a minimax problem; the strict notion, which the paper defines by second derivatives.
    - ``is_local_minimax``: likewise.
    - ``is_eps_local_minimum``: of x as it was given.
    - ``message``: in words.

    Paper: Definition 1.1 [def:local-min], Definition 3.1 [def:pureNash]

    >>> from bilevel_sym import zoo
    >>> found = classify(zoo.get("minimax_not_nash").problem, [0.0])
    >>> found.kind, found.is_local_nash, found.is_local_minimax
    ('local minimum', False, True)
    """

    kind: Kind
    x: tuple[float, ...]
    point: StationaryPoint | None = None
    is_local_nash: bool | None = None
    is_local_minimax: bool | None = None
    is_eps_local_minimum: bool | None = None
    message: str = ""

    @property
    def eigenvalues(self) -> tuple[Bracket, ...]:
        """Brackets of the eigenvalues of Hess Phi at the stationary point, ascending; empty where there is none."""
        return () if self.point is None else self.point.eigenvalues

    def __str__(self) -> str:
        said = [self.kind if self.point is None else str(self.point)]
        for name in ("is_local_nash", "is_local_minimax", "is_eps_local_minimum"):
            value = getattr(self, name)
            if value is not None:
                said.append(f"{'' if value else 'not '}{name.removeprefix('is_').replace('_', ' ')}")
        return "; ".join(filter(None, [*said, self.message]))


def classify(
    problem: BilevelProblem,
    x: Iterable[object] | Mapping[str, object],
    y: Iterable[object] | None = None,
    *,
    eps: object = None,
    rho_phi: object = None,
    radius: object = 1e-6,
) -> Classification:
    """The kind of the stationary point of Phi within ``radius`` of x in each coordinate, if there is one.

    "not stationary" is proved: grad Phi does not vanish that near. "degenerate" is proved in exact arithmetic, at a
    rational point.

    - ``problem``: the problem.
    - ``x``: rationals, decimal text or floats (a float means its exact value), in order or by name.
    - ``y``: the lower level's part of the point, compared with y*(x).
    - ``eps``: with it x itself is judged: |grad Phi| <= eps and the smallest eigenvalue >= -sqrt(rho_phi eps).
    - ``rho_phi``: the Lipschitz constant of Hess Phi; certified over the problem's box unless it is given and if it
      matters.
    - ``radius``: how far from x, in each coordinate, a stationary point is looked for.

    Paper: Definition 1.1 [def:local-min]

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x1*y - x2**2", "y**2/2 - x1*y", "x1 x2", "y")  # Phi = x1^2 - x2^2
    >>> print(classify(problem, ["1e-8", 0], eps=0.1, rho_phi=1.0))
    x1 = 0, x2 = 0: saddle, eigenvalues -2, 2; not eps local minimum
    >>> classify(problem, [1, 0]).kind
    'not stationary'
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"classify wants a problem, but was given a {type(problem).__name__}")
    problem, _ = in_scalars(problem, None)
    exact = problem.mean
    given = _point(exact, x)
    reach = _positive(radius, "radius")
    exact.kernels.refuse_kinked(np.array([[float(value) for value in given]]))
    y_given = None if y is None else _vector(y, exact.n, "y")
    minimum = _is_eps_local_minimum(exact, given, _optional(eps, "eps"), _optional(rho_phi, "rho_phi"))
    point, kind, message = _nearby(exact, given, reach)
    off = "" if y_given is None else _y_message(exact, given, point, y_given, reach)
    nash, minimax = _minimax(problem, point, kind, stationary_y=not off)
    return Classification(
        kind=kind,
        x=tuple(map(float, given)) if point is None else point.x,
        point=point,
        is_local_nash=nash,
        is_local_minimax=minimax,
        is_eps_local_minimum=minimum,
        message="; ".join(filter(None, (message, off))),
    )


def _nearby(
    problem: BilevelProblem, x: Sequence[sp.Rational], radius: sp.Rational
) -> tuple[StationaryPoint | None, Kind, str]:
    """The stationary point within the radius, its kind, and what else is to be said."""
    box = Box({s.name: (value - radius, value + radius) for s, value in zip(problem.x, x, strict=True)})
    found = _refined(problem, x, box)
    if found is not None and found.kind != "undecided":
        return found, found.kind, ""
    for candidate in dict.fromkeys((tuple(x), tuple(simplest(low, high) for low, high in box))):
        exact = exact_point(problem, candidate)
        if exact is not None:
            found = exact_result(exact, Box({s.name: (c, c) for s, c in zip(problem.x, exact.x, strict=True)}))
            return found, found.kind, ""
    if found is not None:
        return found, "undecided", "an eigenvalue of Hess Phi is too near zero"
    result = stationary.search(problem, box, effort=NEARBY)
    if result.points:
        away = [max(abs(a - float(b)) for a, b in zip(p.x, x, strict=True)) for p in result.points]
        nearest = result.points[first_smallest(away)]
        return nearest, nearest.kind, ""
    if result.complete:
        return None, "not stationary", ""
    return None, "undecided", result.message


def _refined(problem: BilevelProblem, x: Sequence[sp.Rational], box: Box) -> StationaryPoint | None:
    """Newton's method from x, and the proof; None where it leads out of the box, or nowhere."""
    smooth = continued(problem)
    try:
        start = np.array([float(value) for value in x])
        y = smooth.kernels.one_sided.y_star(start)
    except (BilevelError, OverflowError):
        return None
    root = refine(smooth, start.tolist(), y.tolist())
    return None if root is None else as_point(problem, root, box)


def _minimax(
    problem: BilevelProblem, point: StationaryPoint | None, kind: Kind, *, stationary_y: bool
) -> tuple[bool | None, bool | None]:
    """Strict local Nash and strict local minimax; f_yy < 0 holds at every proved point, where g_yy = -f_yy > 0."""
    if not isinstance(problem, MinimaxProblem):
        return None, None
    if kind == "not stationary" or not stationary_y:
        return False, False
    if point is None or not point.proved:
        return None, None
    return _definite(point.f_xx), _definite(point.eigenvalues)


def _definite(eigenvalues: Sequence[Bracket]) -> bool | None:
    """Whether all are positive."""
    if all(e.lower > 0 for e in eigenvalues):
        return True
    return False if any(e.upper <= 0 for e in eigenvalues) else None


def _y_message(
    problem: BilevelProblem,
    x: Sequence[sp.Rational],
    point: StationaryPoint | None,
    y: Sequence[sp.Rational],
    radius: sp.Rational,
) -> str:
    """Empty where y is within the radius of y*, at the stationary point or at x; else how far it is off."""
    try:
        true = evaluate(problem, x, digits=DIGITS).y_star if point is None else point.balls[problem.d :][: problem.n]
    except BilevelError as error:
        return f"y was not compared with y*(x): {error.message}"
    with precision(POINT_BITS):
        gaps = [abs(ball.value - _arb(value)) for ball, value in zip(true, y, strict=True)]
        worst = max(gaps, key=lambda gap: float(gap.upper()))
        if all(gap <= _arb(radius) for gap in gaps):
            return ""
    return f"y is not y*(x): it is off by {float(worst.mid()):.3g}"


@dataclass(frozen=True)
class SecondOrder:
    """Definition [def:local-min] at one point: |grad Phi| and the smallest eigenvalue of Hess Phi as balls.

    ``flat``: whether |grad Phi| <= eps; ``convex``: whether the smallest eigenvalue is >= -sqrt(rho_phi eps). None:
    undecided. ``rho_phi`` is what is known of it, None where it was not needed or where nothing is known.
    """

    certificate: PointCertificate
    grad_norm: Ball
    least: Ball
    flat: bool | None
    convex: bool | None
    rho_phi: Bracket | None = None

    @property
    def holds(self) -> bool | None:
        """Whether the point is an eps-local minimum; None: undecided."""
        if self.flat is False or self.convex is False:
            return False
        return True if self.flat and self.convex else None


def second_order(
    problem: BilevelProblem,
    x: Sequence[sp.Rational],
    eps: sp.Rational,
    rho_phi: sp.Rational | Bracket | None = None,
    *,
    effort: Effort = "default",
    rtol: float = RTOL,
    memory: Memory = "2GB",
) -> SecondOrder:
    """Both conditions of an eps-local minimum at x, certified; raises what kept x from having a certificate.

    rho_phi, unless it is given (as a number or a bracket), is certified over the problem's box to ``rtol``, with
    this ``effort`` and only where it matters: where the gradient is small enough, and the smallest eigenvalue negative.

    Paper: Definition 1.1 [def:local-min]

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> found = second_order(problem, [sp.Rational(1, 8)], sp.Rational(1, 2))
    >>> float(found.grad_norm), float(found.least), found.holds
    (0.25, 2.0, True)
    """
    certificate = evaluate(problem, x, digits=DIGITS)
    with precision(POINT_BITS):
        norm, least = _norm_and_least(certificate)
        flat = True if norm <= _arb(eps) else False if norm > _arb(eps) else None
        here = partial(SecondOrder, certificate, Ball(norm), Ball(least), flat)
        if least >= 0:
            return here(True)
        if flat is False:
            return here(None)
    known = _curvature(problem, rho_phi, effort, rtol, memory)
    if known is None:
        return here(None)
    low, high = known
    bracket = Bracket(float(low.lower()), math.inf if high is None else float(high.upper()))
    with precision(POINT_BITS):
        if high is not None and least < -(high * _arb(eps)).sqrt():
            return here(False, bracket)
        return here(True if least >= -(low * _arb(eps)).sqrt() else None, bracket)


def _is_eps_local_minimum(
    problem: BilevelProblem, x: Sequence[sp.Rational], eps: sp.Rational | None, rho_phi: sp.Rational | None
) -> bool | None:
    """What ``second_order`` says; None also where x has no certificate, or eps is not given."""
    if eps is None:
        return None
    try:
        return second_order(problem, x, eps, rho_phi).holds
    except BilevelError:
        return None


def _norm_and_least(certificate: PointCertificate) -> tuple[arb, arb]:
    """|grad Phi| and the smallest eigenvalue of Hess Phi."""
    squares = sum((ball.value * ball.value for ball in certificate.grad_phi), arb(0))
    hess = arb_mat([[ball.value for ball in row] for row in certificate.hess_phi])
    return squares.nonnegative_part().sqrt(), eigenvalue_balls(hess)[0]


def _curvature(
    problem: BilevelProblem, rho_phi: sp.Rational | Bracket | None, effort: Effort, rtol: float, memory: Memory
) -> tuple[arb, arb | None] | None:
    """A lower and an upper bound of rho_phi; no upper one where it is not certified; None: nothing is known."""
    if rho_phi is not None and not isinstance(rho_phi, Bracket):
        return _arb(rho_phi), _arb(rho_phi)
    bracket = rho_phi
    if bracket is None:
        if problem.box is None:
            return None
        from verify.regularity.phi_smoothness import smoothness

        try:
            bracket = smoothness(problem, effort=effort, rtol=rtol, memory=memory).rho_phi
        except BilevelError:
            return None
    return arb(max(bracket.lower, 0.0)), None if math.isinf(bracket.upper) else arb(bracket.upper)


def _point(problem: BilevelProblem, x: Iterable[object] | Mapping[str, object]) -> tuple[sp.Rational, ...]:
    names = [s.name for s in problem.x]
    if isinstance(x, Mapping):
        if set(x) != set(names):
            raise InvalidArgument(f"x gives {', '.join(map(str, x))}, but the variables are {', '.join(names)}")
        return tuple(rational(x[name], name) for name in names)
    return _vector(x, problem.d, "x")


def _vector(values: Iterable[object], size: int, what: str) -> tuple[sp.Rational, ...]:
    scalar = isinstance(values, (str, bytes, set, frozenset)) or not isinstance(values, Iterable)
    if scalar or getattr(values, "ndim", 1) != 1:
        raise InvalidArgument(f"{what} must be a sequence of {size} numbers", hint='such as ["1/3", 0.2]')
    point = rational_vector(values, what)
    if len(point) != size:
        raise InvalidArgument(f"{what} has {len(point)} numbers, but the problem has {size} variables there")
    return point


def _positive(value: object, what: str) -> sp.Rational:
    number = rational(value, what)
    if number <= 0:
        raise InvalidArgument(f"{what} must be positive, but is {number}")
    return number


def _optional(value: object, what: str) -> sp.Rational | None:
    if value is None:
        return None
    number = rational(value, what)
    if number < 0:
        raise InvalidArgument(f"{what} must not be negative, but is {number}")
    return number


def _arb(value: sp.Rational) -> arb:
    return arb(fmpq(int(value.p), int(value.q)))
