"""Second derivatives of a minimax problem at points of its box, in balls: what the notions of optimality are made of.

A sample point is a pair (x, y*(x)): every stationary point of Phi that was found, and a few other points of the box.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp
from flint import arb, arb_mat

from bilevel_sym import BilevelProblem, evaluate
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.certify.krawczyk import BallBlocks
from bilevel_sym.errors import BilevelError
from bilevel_sym.graph.expressions import substitute
from bilevel_sym.implicit.engine import EXPANSION
from verify import StationaryPoint, Study
from verify.enclosures.interval_matrix import Matrices
from verify.points.balls import POINT_BITS, eigenvalue_balls, exact_point

OF_F = ("f_xx", "f_xy", "f_yy")
ORDERS = 8  # derivatives that are looked at where the second one vanishes
OTHERS = 6
DIGITS = 40
SHRINKS = 40


@dataclass(frozen=True, eq=False)
class SamplePoint:
    """Signs at (x, y*(x)): True and False are certified, None is undecided.

    Eigenvalues are balls, ascending: ``hess`` those of Hess Phi by the formula through the Lagrangian, ``schur`` those
    of f_xx - f_xy f_yy^-1 f_yx.
    ``same`` says whether the two matrices agree to 30 digits, ``same_printed`` the same with f_xy in the place of f_yx
    (None also where the shapes do not fit). ``coupling`` is -f_xy f_yy^-1 f_yx; ``singular`` whether it is exactly
    singular.
    """

    x: tuple[float, ...]
    y: tuple[float, ...]
    point: StationaryPoint | None
    f_x_vanishes: bool | None
    concave: bool
    f_xx: tuple[Any, ...]
    hess: tuple[Any, ...]
    schur: tuple[Any, ...]
    coupling: tuple[Any, ...]
    same: bool | None
    same_printed: bool | None
    singular: bool
    zero_schur: bool

    @property
    def is_nash(self) -> bool | None:
        """Strict local Nash by second derivatives: f_yy < 0 < f_xx at a stationary point."""
        return all_of(self.f_x_vanishes, self.concave, _definite(self.f_xx))

    @property
    def is_minimax(self) -> bool | None:
        """Strict local minimax: f_yy < 0 < Schur complement at a stationary point."""
        return all_of(self.f_x_vanishes, self.concave, False if self.zero_schur else _definite(self.schur))

    @property
    def is_minimum(self) -> bool | None:
        """A minimum of Phi with Hess Phi > 0."""
        if self.point is None:
            return all_of(self.f_x_vanishes, True, _definite(self.hess))
        return None if self.point.kind == "undecided" else self.point.kind == "local minimum"


def sample_points(study: Study) -> list[SamplePoint]:
    """All stationary points that were found, then a few points drawn from the box.

    >>> from bilevel_sym import verify, zoo
    >>> found = sample_points(verify.study_of(zoo.get("minimax_not_nash").problem))
    >>> [(sample.is_nash, sample.is_minimax) for sample in found][:2]
    [(False, True), (False, False)]
    """
    problem = study.exact
    size = problem.d + problem.n
    found = [
        _sample_point(problem, at.x, at.y, [ball.value for ball in at.balls[:size]], at)
        for at in study.stationary.points
    ]
    return [*filter(None, found), *_others(study)]


def _others(study: Study) -> Iterator[SamplePoint]:
    problem = study.exact
    # short binary fractions: then y* of a quadratic problem is a short rational too
    for x in np.round(study.points(OTHERS, "minimax") * 64) / 64:
        try:
            certificate = evaluate(problem, x.tolist(), digits=DIGITS)
        except BilevelError:
            continue
        y = tuple(map(float, certificate.y_star))
        with precision(POINT_BITS):
            balls = [*map(arb, x.tolist()), *(ball.value for ball in certificate.y_star)]
        sample = _sample_point(problem, tuple(x.tolist()), y, balls, None)
        if sample is not None:
            yield sample


def _sample_point(
    problem: BilevelProblem,
    x: tuple[float, ...],
    y: tuple[float, ...],
    balls: Sequence[Any],
    point: StationaryPoint | None,
) -> SamplePoint | None:
    with precision(POINT_BITS):
        b = _blocks(problem, balls)
        if b is None:
            return None
        inverse = b["f_yy"].solve(b["f_xy"].transpose())
        coupling = -(b["f_xy"] * inverse)
        schur = b["f_xx"] + coupling
        hess = b["hess"]
        square = problem.d == problem.n
        printed = b["f_xx"] - b["f_xy"] * b["f_yy"].solve(b["f_xy"]) if square else None
        vanishes = True if point is not None else None if all(e.contains(0) for e in b["f_x"].entries()) else False
        zero_coupling, zero_schur = _singular(problem, point, x)
        return SamplePoint(
            x=x,
            y=y,
            point=point,
            f_x_vanishes=vanishes,
            concave=bool(eigenvalue_balls(-b["f_yy"])[0] > 0),
            f_xx=tuple(eigenvalue_balls(b["f_xx"])),
            hess=tuple(eigenvalue_balls(hess)),
            schur=tuple(eigenvalue_balls(schur)),
            coupling=tuple(eigenvalue_balls(coupling)),
            same=_agree(schur, hess, b["f_xx"], coupling),
            same_printed=None if printed is None else _agree(printed, hess, b["f_xx"], coupling),
            singular=zero_coupling or problem.d > problem.n,
            zero_schur=zero_schur,
        )


def _blocks(problem: BilevelProblem, balls: Sequence[Any]) -> dict[str, arb_mat] | None:
    """The blocks of f, and Hess Phi by the bilevel formula as "hess"; None where something is not finite."""
    blocks = BallBlocks(problem, (*OF_F, *EXPANSION), balls)
    found = {name: blocks.take(name) for name in ("f_x", *OF_F)} | {"hess": blocks.formulas.hess}
    return found if all(entry.is_finite() for block in found.values() for entry in block.entries()) else None


def _agree(a: arb_mat, b: arb_mat, *terms: arb_mat) -> bool | None:
    """To 30 digits of the largest entry of the terms they are made of, which may cancel; None: balls are too wide."""
    size = max([e.abs_upper() for matrix in terms for e in matrix.entries()])
    differences = (a - b).entries()
    if all(abs(e) <= size * arb(1e-30) for e in differences):
        return True
    return False if any(not e.contains(0) for e in differences) else None


def _singular(problem: BilevelProblem, point: StationaryPoint | None, x: Sequence[float]) -> tuple[bool, bool]:
    """Whether -f_xy f_yy^-1 f_yx, and the Schur complement, are exactly singular: in rational arithmetic, or False."""
    f_xx, f_xy, f_yy = (_exact(problem, name, point, x) for name in ("f_xx", "f_xy", "f_yy"))
    if f_xx is None or f_xy is None or f_yy is None:
        return False, False
    coupling = -f_xy * f_yy.LUsolve(f_xy.T)
    return coupling.det() == 0, (f_xx + coupling).det() == 0


def _exact(problem: BilevelProblem, name: str, point: StationaryPoint | None, x: Sequence[float]) -> sp.Matrix | None:
    """A block at a rational point; None where y* or an entry is not a rational that is known exactly."""
    entries = problem.tape.expressions(name)
    sizes = {"x": problem.d, "y": problem.n}
    shape = tuple(sizes[axis] for axis in name[2:])
    if not all(isinstance(entry, sp.Rational) for entry in entries):
        exact = exact_point(problem, [sp.Rational(value) for value in x]) if point is not None else None
        if exact is None:
            return None
        at = dict(zip((*problem.x, *problem.y), (*exact.x, *exact.y), strict=True))
        entries = [substitute(entry, at) for entry in entries]
    return sp.Matrix(*shape, entries) if all(isinstance(entry, sp.Rational) for entry in entries) else None


def strict_minimum_in_x(problem: BilevelProblem, x: sp.Rational, y: Sequence[sp.Rational]) -> bool | None:
    """For d = 1: whether f(., y) has a strict local minimum at x, by its first derivative that is not zero; exact.

    Then Phi(t) >= f(t, y) > f(x, y) for t near x: Phi has a strict local minimum there too, if y = y*(x).

    >>> from bilevel_sym import zoo
    >>> strict_minimum_in_x(zoo.get("minimax_degenerate").problem, sp.Integer(0), [sp.Integer(0)])
    True
    """
    if problem.d != 1:
        return None
    slice_ = substitute(problem.f, dict(zip(problem.y, y, strict=True)))
    for order in range(1, ORDERS + 1):
        slice_ = sp.diff(slice_, problem.x[0])
        value = substitute(slice_, {problem.x[0]: x})
        if not isinstance(value, sp.Rational):
            return None
        if value != 0:
            return order % 2 == 0 and bool(value > 0)
    return None


def around_nash(problem: BilevelProblem, sample: SamplePoint) -> float | None:
    """A delta for Definition 3.1: f is convex in x and concave in y that near (x, y), proved in intervals; or None.

    >>> from bilevel_sym import verify, zoo
    >>> problem = zoo.get("minimax_nash").problem
    >>> around_nash(problem, sample_points(verify.study_of(problem))[0]) > 0.1
    True
    """
    if sample.point is None:
        return None
    program = problem.tape.in_intervals(("f", "f_xx", "g_yy"), proved=True)
    centre = np.array([*sample.x, *sample.y])[None]
    rounding = 1e-12 * (1 + np.abs(centre))  # the true point is that near
    for k in range(SHRINKS):
        delta = 2.0**-k
        session = program.session(1)
        session.put(0, centre - delta - rounding, centre + delta + rounding)
        f_xx, g_yy = (Matrices.between(*session.take(name)) for name in ("f_xx", "g_yy"))
        least = min(f_xx.smallest_eigenvalue_lower()[0], g_yy.smallest_eigenvalue_lower()[0])
        if least > 0 and all(np.isfinite(end).all() for end in session.take("f")):
            return delta
    return None


def _definite(eigenvalues: Sequence[Any]) -> bool | None:
    """Whether the smallest of these balls, in ascending order, is positive; zero itself is not decided by balls."""
    if eigenvalues[0] > 0:
        return True
    return False if eigenvalues[0] < 0 else None


def all_of(*parts: bool | None) -> bool | None:
    """Whether all are true; None where that is undecided.

    >>> all_of(True, None), all_of(None, False)
    (None, False)
    """
    if any(part is False for part in parts):
        return False
    return None if any(part is None for part in parts) else True
