"""Certificates: y*, Phi, grad Phi and Hess Phi at a point as balls, with existence and uniqueness of y* proved.

What is proved of y* is proved of a small ball: there is exactly one stationary point of g in it, a local minimum (see
``krawczyk``). That it is the minimiser takes convexity of g in y. Over a box with ends for y that is checked (see
``convexity``), and a box over which it is refuted is an error; without one it is the user's assumption, and said to be.

Array problems that are small are written out in scalars; others are enclosed as they are (``array_evaluation``).
"""

from __future__ import annotations

import math
import operator
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import sympy as sp
from flint import arb

from bilevel_sym.arithmetic.balls import Ball
from bilevel_sym.arithmetic.scalars import BALLS
from bilevel_sym.certify.array_evaluation import ArrayStarts, Uncomputed, end_to_end, fits_scalars, is_large
from bilevel_sym.certify.array_lower_level import UNDEFINED
from bilevel_sym.certify.convexity import Convexity, convexity_at
from bilevel_sym.certify.krawczyk import BallBlocks, LowerLevel
from bilevel_sym.certify.saved_certificate import decimal_ball, write_certificate
from bilevel_sym.errors import CertificateFailure, InvalidArgument, KernelError, LowerLevelFailure
from bilevel_sym.graph.assumptions import check_point
from bilevel_sym.graph.exact import rational, rational_vector
from bilevel_sym.implicit.engine import EXPANSION
from bilevel_sym.implicit.lower_level import solve_lower_level
from bilevel_sym.kernels.kinked import explained, kink_at
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.system.frames import check_labels

__all__ = ["Agreement", "PointCertificate", "evaluate"]

MAX_DIGITS = 10_000
GUARD = 40  # bits beyond the digits asked for, before the problem has shown what it loses
MEANT_FOR = 4  # variables that the guard of an array problem is meant for: products of long vectors lose little
ATTEMPTS = 8
PATIENCE = 3  # precisions at which something is undefined, before it is called so
DECADES = 330  # below 1e-330 float64 has nothing but zero
FASTER_IN_BALLS = 500  # places of a program that balls run faster than arrays of one lane
Balls = tuple[Ball, ...]


@dataclass(frozen=True)
class Agreement:
    """How well a candidate agrees with a certificate. Made by ``PointCertificate.compare``.

    - ``name``: what was compared.
    - ``digits``: how many of its worst entry are certainly right.
    - ``worst``: the index of that entry.
    - ``value``: the entry.
    - ``true``: the ball that holds the truth.

    >>> from bilevel_sym import BilevelProblem, evaluate
    >>> certificate = evaluate(BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y"), ["1/3"])
    >>> agreement = certificate.compare(grad_phi=[0.6421])
    >>> round(agreement.digits, 1), agreement.worst, agreement.value
    (3.9, (0,), 0.6421)
    """

    name: str
    digits: float
    worst: tuple[int, ...]
    value: float
    true: Ball

    def __str__(self) -> str:
        where = f"[{', '.join(map(str, self.worst))}]" if self.worst else ""
        worst = f"{self.name}{where} = {self.value!r}, truly {self.true:.20}"
        return f"{self.name}: {self.digits:.1f} correct digits; worst {worst}"


@dataclass(frozen=True)
class PointCertificate:
    """Balls that are proved to contain y*(x), Phi(x), grad Phi(x) and Hess Phi(x). Made by ``evaluate``.

    y* is proved to be the one stationary point of g in its ball, a local minimum; the minimiser if g is convex in y.

    - ``problem``: the problem.
    - ``x``: the point, exactly.
    - ``digits``: what was asked for.
    - ``bits``: the precision that it took.
    - ``y_star``: balls that contain y*(x).
    - ``phi``: a ball that contains Phi(x).
    - ``grad_phi``: balls that contain grad Phi(x).
    - ``hess_phi``: rows of balls that contain Hess Phi(x); of a large array problem with d > 50 there are none, and
      asking for one raises TooLarge.
    - ``proved``: whether all digits that were asked for are proved.
    - ``convexity``: "proved over the box", where the problem's box has ends for y, or "assumed".
    - ``why``: more about that.

    As text it shows the digits that are proved:

    >>> from bilevel_sym import BilevelProblem, evaluate
    >>> print(evaluate(BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y"), ["1/2"], digits=20))
    at x = 1/2, to every digit shown
    proved: the stationary point of g in this ball, unique there; the minimiser if g is convex in y
    convexity: assumed (there is no box for y over which it could be checked)
    y* = -0.26624860816175025888
    Phi = -0.13312430408087512944
    dPhi/dx = 0.016837248319338494756
    d2Phi/dxdx = 1.0628115085972452009
    """

    problem: BilevelProblem
    x: tuple[sp.Rational, ...]
    digits: int
    bits: int
    y_star: Balls
    phi: Ball
    grad_phi: Balls
    hess_phi: tuple[Balls, ...]
    proved: bool = True
    convexity: Convexity = "assumed"
    why: str = ""

    def compare(self, **candidates: object) -> Agreement:
        """How many digits of a candidate ``phi=``, ``grad_phi=``, ``hess_phi=`` or ``y_star=`` are right?

        >>> from bilevel_sym import BilevelProblem, evaluate
        >>> certificate = evaluate(BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y"), ["1/3"])
        >>> print(certificate.compare(grad_phi=[0.6421]))
        grad_phi: 3.9 correct digits; worst grad_phi[0] = 0.6421, truly 0.64218034556773146564
        """
        if len(candidates) != 1 or not set(candidates) <= {"y_star", "phi", "grad_phi", "hess_phi"}:
            raise InvalidArgument("compare one of y_star=, phi=, grad_phi=, hess_phi= at a time")
        ((name, candidate),) = candidates.items()
        known = getattr(self, name)
        truth: Any = np.array(known if isinstance(known, Ball) else [*known], dtype=object)
        try:
            given = np.asarray(candidate, dtype=np.float64)
        except (TypeError, ValueError, OverflowError):
            raise InvalidArgument(f"{name} is not an array of {truth.shape or 'one'} real numbers") from None
        if given.shape != truth.shape:
            raise InvalidArgument(f"{name} has shape {truth.shape}, but the candidate has shape {given.shape}")
        digits = {index: truth[index].correct_digits(float(given[index])) for index in np.ndindex(truth.shape)}
        worst = min(digits, key=digits.__getitem__)
        return Agreement(name, digits[worst], worst, float(given[worst]), truth[worst])

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the digits, each with a bound on its error, as a JSON file that ``verify.recheck`` proves again."""
        problem = self.problem.lowered()  # a file holds a problem in scalars, which anybody can check
        names = [s.name for s in problem.x]
        places = self.digits + 6

        balls = {f"{s.name}*": ball for s, ball in zip(problem.y, self.y_star, strict=True)}
        balls |= {"Phi": self.phi} | {f"dPhi/d{name}": ball for name, ball in zip(names, self.grad_phi, strict=True)}
        balls |= {
            f"d2Phi/d{a}d{b}": ball
            for a, row in zip(names, self.hess_rows, strict=bool(self.hess_rows))
            for b, ball in zip(names, row, strict=True)
        }
        says = {
            "box": {name: [str(value)] * 2 for name, value in zip(names, self.x, strict=True)},
            "near": {s.name: repr(float(ball)) for s, ball in zip(problem.y, self.y_star, strict=True)},
            "bits": 2 * self.bits + 8 * places,  # digits of a value of zero are counted twice
            "claims": {name: decimal_ball(ball.value, places) for name, ball in balls.items()},
        }
        write_certificate(path, "point", problem, says)

    @property
    def hess_rows(self) -> tuple[Balls, ...]:
        """The rows of Hess Phi; none where they were not computed."""
        return () if isinstance(self.hess_phi, Uncomputed) else self.hess_phi

    @property
    def _where(self) -> str:
        """Of which points y* is proved to be the best."""
        if self.convexity == "assumed":
            return "if g is convex in y"
        return f"over the box{' stretched to hold it' if self.why else ''}, where g is convex in y"

    def __str__(self) -> str:
        names = [s.name for s in self.problem.x_entries]
        lines = [
            f"at {', '.join(f'{a} = {b}' for a, b in zip(names, self.x, strict=True))}, to every digit shown",
            f"proved: the stationary point of g in this ball, unique there; the minimiser {self._where}",
            f"convexity: {self.convexity}" + (f" ({self.why})" if self.why else ""),
        ]
        rows = zip(self.problem.y_entries, self.y_star, strict=True)
        lines += [f"{s.name}* = {ball:.{self.digits}}" for s, ball in rows]
        lines.append(f"Phi = {self.phi:.{self.digits}}")
        lines += [f"dPhi/d{a} = {ball:.{self.digits}}" for a, ball in zip(names, self.grad_phi, strict=True)]
        lines += [
            f"d2Phi/d{a}d{b} = {ball:.{self.digits}}"
            for i, (a, row) in enumerate(zip(names, self.hess_rows, strict=bool(self.hess_rows)))
            for b, ball in list(zip(names, row, strict=True))[i:]
        ]
        return "\n".join(lines)


def evaluate(
    problem: BilevelProblem,
    x: Iterable[object] | Mapping[str, object],
    *,
    digits: int = 30,
    y0: Iterable[object] | Mapping[str, object] | None = None,
    hessian: bool = True,
) -> PointCertificate:
    """Certified y*, Phi, grad Phi and Hess Phi at x, to so many digits (relative; absolute where a value is 0).

    x holds rationals, decimal text or floats (a float means its exact value), in order or by name. Precision is
    raised until the digits are there; what cannot be proved raises CertificateFailure, and says why. Where the problem
    has a box for y, convexity of g in y is checked over it at x; where it is refuted, AssumptionViolated is raised.
    A problem with arrays may be of any size that fits into memory; Hess Phi is computed up to d = 50 then, and an entry
    that may be 0 is known to so many digits of the largest one beside it.

    - ``problem``: the problem.
    - ``x``: the point; of a problem with arrays also {name: array}.
    - ``digits``: how many, 1 to 10000.
    - ``y0``: where Newton's method begins, as x is given; by default the centre of the box or zero, or else y* in
      float64. It decides what is found only where g is not convex in y: then y* is the stationary point near it.
    - ``hessian``: whether Hess Phi is wanted: with arrays most of the time goes into it.

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y")
    >>> certificate = evaluate(problem, ["1/2"], digits=40)
    >>> print(certificate.grad_phi[0])
    0.01683724831933849475603681451816628075732609970414246
    >>> certificate.proved
    True
    >>> wells = BilevelProblem("x*y", "(y**2 - 1)**2/4", "x", "y")  # not convex: a well on either side
    >>> [round(float(evaluate(wells, [2], y0=[start]).phi), 9) for start in (-1.25, 0.75)]
    [-2.0, 2.0]
    """
    stated, problem = problem, _checked(problem)
    point = _promised(problem, _vector(end_to_end(x, stated, "x"), problem.x_entries, "x"))
    start = None if y0 is None else [float(v) for v in _vector(end_to_end(y0, stated, "y"), problem.y_entries, "y0")]
    digits = _count(digits)
    bits = math.ceil(digits * math.log2(10)) + GUARD + 8 * (MEANT_FOR if problem.is_array else problem.n)
    arrays = problem.is_array
    starts = ArrayStarts(problem, point, start, hessian=hessian) if arrays else _Starts(problem, point, start)
    undefined = 0
    reason = ""
    for _ in range(ATTEMPTS):
        with BALLS.precision(bits):
            enclosure = starts.enclose()
        if isinstance(enclosure, str):
            reason = enclosure
            if problem.is_array:
                break  # what float64 does not decide, more bits do not either
        elif not _defined(enclosure):
            reason, undefined = UNDEFINED, undefined + 1
        elif lost := _missing(enclosure, digits, by_size=problem.is_array):
            reason = f"{lost} is known to fewer than {digits} digits"
        else:
            convexity, why = starts.convexity([ball.value for ball in enclosure[0]])
            *_, rows = enclosure
            found = PointCertificate(problem, point, digits, bits, *enclosure, convexity=convexity, why=why)
            return found if rows else replace(found, hess_phi=Uncomputed())
        if undefined == PATIENCE:
            break  # more bits decide a switch only if the point is not exactly on it
        bits = 2 * bits
    if problem.is_array and fits_scalars(problem):  # they decide kinks and bad conditioning more finely
        return evaluate(problem.lowered(), point, digits=digits, y0=start, hessian=hessian)
    if kinked := kink_at(problem.kernels, np.array([float(value) for value in point])):
        raise CertificateFailure(
            f"no certificate at x = {', '.join(map(str, point))}: {kinked.what}", hint=kinked.hint, kink=kinked.kink
        )
    raise CertificateFailure(
        f"no certificate at x = {', '.join(map(str, point))}: {reason} (working with {bits} bits)",
        hint=starts.hint
        or "look for a kink of abs, min, max or Piecewise, the end of a domain, or a nearly singular g_yy there",
    )


def _count(digits: object) -> int:
    try:
        count = -1 if isinstance(digits, bool) else operator.index(digits)  # type: ignore[arg-type]
    except TypeError:
        count = -1
    if not 1 <= count <= MAX_DIGITS:
        raise InvalidArgument(f"digits={digits!r}", hint=f"a whole number from 1 to {MAX_DIGITS}")
    return count


def _is_sequence(x: object) -> bool:
    unordered = isinstance(x, (str, bytes, set, frozenset))
    return isinstance(x, Iterable) and not unordered and getattr(x, "ndim", 1) != 0


def _checked(problem: object) -> BilevelProblem:
    """The problem whose certificate is made: in scalars, unless it is large."""
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"evaluate wants a BilevelProblem, but was given a {type(problem).__name__}")
    return problem.mean if is_large(problem.mean) else problem.lowered()


def _vector(
    given: Iterable[object] | Mapping[str, object], symbols: Sequence[sp.Symbol], what: str
) -> tuple[sp.Rational, ...]:
    """A number for each symbol, in order or by name, exactly."""
    names = [s.name for s in symbols]
    if isinstance(given, Mapping):
        if set(given) != set(names):
            raise InvalidArgument(
                f"{what} gives {', '.join(map(str, given)) or 'nothing'}, but the variables are {', '.join(names)}",
                hint=str({name: given.get(name, 0) for name in names}),
            )
        return tuple(rational(given[name], name) for name in names)
    check_labels(given, names, what)
    if not _is_sequence(given):
        raise InvalidArgument(
            f"{what} must be a sequence of numbers, or a mapping from names to numbers", hint='["1/3", 0.2]'
        )
    vector = rational_vector(given, what)
    if len(vector) != len(names):
        raise InvalidArgument(
            f"{what} has {len(vector)} numbers, but the problem has {len(names)} variables: {', '.join(names)}",
            hint="one number for each, in this order, or a mapping from names to numbers",
        )
    return vector


def _promised(problem: BilevelProblem, point: tuple[sp.Rational, ...]) -> tuple[sp.Rational, ...]:
    """The point, if it is as the symbols are assumed to be."""
    check_point(problem.x_entries, point, "the point")
    return point


class _Starts:
    """Where Newton's method begins: the centre of the box (or zero), which is enough for most; else y* in float64.

    A start that the user gives comes first, and alone: what balls do not reach from it, the kernels may, from there.
    """

    def __init__(
        self, problem: BilevelProblem, point: Sequence[sp.Rational], start: Sequence[float] | None = None
    ) -> None:
        self._problem, self._point, self._start = problem, point, start
        # in a small problem a few steps in balls cost less than the kernels do
        small = problem.tape.program(("g_yy",)).size <= FASTER_IN_BALLS
        self._order = ["_centre", "_found"] if small else ["_found", "_centre"]
        self._reason = ""
        self.hint: str | None = None  # what to try where not even the kernels find y*

    def convexity(self, y: Sequence[Any]) -> tuple[Convexity, str]:
        """Whether g is convex in y over the box; see ``convexity_at``."""
        return convexity_at(self._problem, self._point, y)

    def enclose(self) -> Enclosure | str:
        """The enclosure from the first start that leads to one, which is the first to be asked the next time."""
        reasons = []
        for name in self._order:
            start = getattr(self, name)
            enclosure = self._reason if start is None else _enclose(self._problem, self._point, start)
            if not isinstance(enclosure, str):
                self._order = [name]
                return enclosure
            reasons.append(enclosure)
        return reasons[-1] if "_found" not in self._order else reasons[self._order.index("_found")]

    @cached_property
    def _centre(self) -> list[float]:
        return [float(value) for value in (self._problem.y_centre if self._start is None else self._start)]

    @cached_property
    def _found(self) -> list[float] | None:
        """y* by the kernels; None, with the reason, where they fail."""
        try:
            x = [float(value) for value in self._point]
            if self._problem.tape.has_kinks:  # on which side of an edge y* lies is for balls to say
                start = np.array([self._centre])
                found = solve_lower_level(self._problem.kernels.batch_invariant, np.array([x]), start).y[0]
            else:
                found = self._problem.kernels.y_star(x, y0=None if self._start is None else self._centre)
        except (LowerLevelFailure, KernelError, OverflowError) as failure:
            kernels = self._problem.kernels
            error = explained(kernels, failure) if isinstance(failure, LowerLevelFailure) else failure
            self._reason = f"y* was not found even approximately, because {getattr(error, 'message', error)}"
            if isinstance(error, LowerLevelFailure) and error.eigenvalue < 0:
                self.hint = "another point, or mend g: it must be strongly convex in y"
            return None
        return [float(value) for value in found]


Enclosure = tuple[Balls, Ball, Balls, tuple[Balls, ...]]


def _enclose(problem: BilevelProblem, point: Sequence[sp.Rational], start: Sequence[float]) -> Enclosure | str:
    """Balls at the precision that is set, or the reason why there are none."""
    x = [BALLS.constant(int(value.p), int(value.q)) for value in point]
    lower = LowerLevel(problem, x)
    try:
        box = lower.proved_box([arb(value) for value in start])
        return box if isinstance(box, str) else _outputs(problem, x, box)
    except ZeroDivisionError:  # python-flint's word for a matrix that may be singular
        return "g_yy could not be inverted"


def _outputs(problem: BilevelProblem, x: Sequence[Any], y: Sequence[Any]) -> Enclosure:
    """The formulas of ``implicit`` in balls."""
    blocks = BallBlocks(problem, EXPANSION, [*x, *y])
    at = blocks.formulas
    rows = tuple(tuple(map(Ball, row)) for row in at.hess.table())
    return tuple(map(Ball, y)), Ball(blocks.take("f")[0, 0]), tuple(map(Ball, at.grad.entries())), rows


def _defined(enclosure: Enclosure) -> bool:
    """Whether every ball is finite: otherwise a switch was open, or a function outside its domain."""
    y, phi, grad, hess = enclosure
    return all(ball.value.is_finite() for ball in (*y, phi, *grad, *(entry for row in hess for entry in row)))


def _missing(enclosure: Enclosure, digits: int, *, by_size: bool) -> str | None:
    """The first quantity with too few certain digits.

    enclosure: the balls
    digits: how many are asked for
    by_size: whether an entry that may be zero is judged by the largest entry of its array, where that is not zero
    """
    y, phi, grad, hess = enclosure
    named = {"y*": y, "Phi": (phi,), "grad Phi": grad, "Hess Phi": tuple(ball for row in hess for ball in row)}
    for name, balls in named.items():
        largest = max((ball.value.abs_lower() for ball in balls), default=arb(0)) if by_size else arb(0)
        # without a scale, so small that float64 has nothing but zero in it
        zero = largest * arb(10) ** -digits if largest > 0 else arb(10) ** (-digits - DECADES)
        if not all(_enough(ball.value, digits, zero) for ball in balls):
            return name
    return None


def _enough(value: Any, digits: int, zero: Any) -> bool:
    """Relative digits; a ball that contains zero must be as small as ``zero``."""
    return bool(value.rad() <= (zero if value.contains(0) else value.abs_lower() * arb(10) ** -digits))
