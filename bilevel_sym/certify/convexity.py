"""Convexity of g in y over the box, at one x: proved piece by piece in balls, refuted at a point, or left open.

What Krawczyk's test proves of y* is proved of one small ball. That no other point of the box has a smaller g takes
more: g_yy positive definite all over it. The box is halved until it is, or until a point is met at which a direction
has negative curvature, or until the work that is allowed, which is counted, is done.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Sequence
from functools import lru_cache
from typing import Any, Literal

import numpy as np
from flint import arb, arb_mat, fmpq

from bilevel_sym.arithmetic.linear_algebra import definiteness
from bilevel_sym.arithmetic.scalars import BALLS, SMOOTH_BALLS, ScalarProgram
from bilevel_sym.certify.krawczyk import LowerLevel, positive_definite
from bilevel_sym.errors import AssumptionViolated
from bilevel_sym.graph.program import build
from bilevel_sym.implicit.model import Model
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.system.budget import Budget

Convexity = Literal["proved over the box", "assumed"]
Piece = tuple[tuple[fmpq, fmpq], ...]

CONVEXITY_BITS = 64
WORK = 30_000  # operations on balls, about
MOST_PARTS = 100  # of g_yy as a sum of constant matrices times functions
THINNEST_PART = 2**20  # a thinner share of the box is not decided by cutting: a kink, or no curvature at all


def convexity_at(problem: BilevelProblem, x: Sequence[Any], y: Sequence[Any]) -> tuple[Convexity, str]:
    """Whether g is convex in y over the box, at x (rationals), and why no more is said; y are the balls of y*.

    Where y* lies outside the box, all between the two is looked at too: otherwise it need not be the minimiser.
    AssumptionViolated where a point of the box has a direction of negative curvature.

    >>> problem = BilevelProblem("x*y", "y**4/4 + y**2/2 - x*y", "x", "y", box={"x": (0, 1), "y": (-2, 2)})
    >>> convexity_at(problem, [1], [arb("0.682327803828019")])
    ('proved over the box', '')
    >>> convexity_at(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), [1], [arb(1)])
    ('assumed', 'there is no box for y over which it could be checked')
    """
    box = {} if problem.box is None else dict(problem.box.items())
    if not all(s.name in box for s in problem.y):
        return "assumed", "there is no box for y over which it could be checked"
    ends = tuple((as_fmpq(low), as_fmpq(high)) for low, high in (box[s.name] for s in problem.y))
    whole = tuple(_hull(pair, ball) for pair, ball in zip(ends, y, strict=True))
    if None in whole:
        return "assumed", "y* is too far outside the box"
    with BALLS.precision(CONVEXITY_BITS):
        return _Search(problem, x, ends, whole).run()  # type: ignore[arg-type]


class _Search:
    """The pieces of the box in y that are still open."""

    def __init__(self, problem: BilevelProblem, x: Sequence[Any], box: Piece, whole: Piece) -> None:
        self._problem, self._x, self._box, self._whole = problem, x, box, whole
        self._lower = LowerLevel(problem, [BALLS.constant(int(value.p), int(value.q)) for value in map(as_fmpq, x)])
        model = problem.tape
        program, support = model.program(("g", "g_y", "g_yy")), 0
        for form in model.block("g_yy")[1]:
            for node in form.terms:
                support |= model.graph.support[node]
        # a jump of g does not show in g_yy
        self._active = [k for k, v in enumerate(model.y) if model.has_kinks or support >> v & 1]
        self._cost = 2 * (program.size + problem.n**3)
        self._parts = _parts_of(model)

    def run(self) -> tuple[Convexity, str]:
        """Halve what is open, the widest first, until nothing is."""
        pieces, budget, looked = deque([self._whole]), Budget(WORK), 0
        while pieces:
            if looked and not budget.allows(self._cost):
                return "assumed", f"it was not decided over the box, which was cut into {looked + len(pieces)} pieces"
            budget.spend(self._cost)
            looked += 1
            piece = pieces.popleft()
            if self._is_convex([arb(low).union(arb(high)) for low, high in piece]):
                continue
            middle = [(low + high) / 2 for low, high in piece]
            if (found := self._refuted(middle)) is not None:
                return found
            cut = self._widest(piece)
            if cut is None:
                return "assumed", f"it was not decided over the box, next to {self._named(middle)}"
            low, high = piece[cut]
            pieces += [(*piece[:cut], half, *piece[cut + 1 :]) for half in ((low, middle[cut]), (middle[cut], high))]
        return "proved over the box", "" if self._whole == self._box else "and up to y*, which lies outside of it"

    def _is_convex(self, y: Sequence[Any]) -> bool:
        """Whether g_yy is proved to be positive definite over a piece."""
        g_yy = self._lower.jacobian_over(y)
        if g_yy is None:
            return False
        return _surely_positive(g_yy) or (
            self._parts is not None and _surely_positive(self._parts.least([*self._lower.x, *y]))
        )

    def _widest(self, piece: Piece) -> int | None:
        """The variable to cut, of those that g_yy depends on; None where the piece is too thin."""
        share = {
            k: (piece[k][1] - piece[k][0]) / (self._whole[k][1] - self._whole[k][0])
            for k in self._active
            if self._whole[k][1] > self._whole[k][0]
        }
        widest = max(share, key=share.__getitem__, default=None)
        return None if widest is None or share[widest] * THINNEST_PART < 1 else widest

    def _refuted(self, y: Sequence[fmpq]) -> tuple[Convexity, str] | None:
        """What follows from a direction of negative curvature at a point, if there is one."""
        g_yy = self._lower.jacobian_over([arb(value) for value in y])
        if g_yy is None:
            return None
        curvature = _least_curvature(g_yy)
        if not curvature < 0:
            return None
        if any(not low <= value <= high for value, (low, high) in zip(y, self._box, strict=True)):
            return "assumed", f"y* lies outside the box, and g is not convex on the way, at {self._named(y)}"
        names = [s.name for s in (*self._problem.x, *self._problem.y)]
        point = dict(zip(names, [*map(str, self._x), *(f"{float(value):.9g}" for value in y)], strict=True))
        raise AssumptionViolated(
            "g is not convex in y over the box, so that a stationary point need not be the minimiser: "
            "g_yy has a direction of curvature",
            label="assu:bilevel",
            point=point,
            value=float(f"{float(curvature.upper()):.6g}"),
            hint="a box in y on which g is convex, or mend g: it must be strongly convex in y",
        )

    def _named(self, y: Sequence[fmpq]) -> str:
        return ", ".join(f"{s.name} = {float(v):.6g}" for s, v in zip(self._problem.y, y, strict=True))


class _Parts:
    """g_yy as A_0 + sum of t_k A_k with constant matrices: t_k a_k a_k^T with t_k >= 0 is never negative.

    Entry by entry that is lost. A part that is positive semidefinite is taken at the lower end of t_k.
    """

    def __init__(self, model: Model) -> None:
        forms, n = model.block("g_yy")[1], model.n
        nodes = sorted({node for form in forms for node in form.terms})
        entries = [[form.terms.get(node, fmpq(0)) for form in forms] for node in nodes]
        self._constant = arb_mat(n, n, [arb(form.constant) for form in forms])
        self._parts = [(definiteness(part, n), arb_mat(n, n, list(map(arb, part)))) for part in entries]
        outputs = {"t": ((len(nodes),), [model.graph.form(node) for node in nodes])}
        self._program = ScalarProgram(build(model.graph, model.stages, outputs), SMOOTH_BALLS)

    def least(self, point: Sequence[Any]) -> arb_mat:
        """A matrix that no g_yy over these balls is below."""
        values = self._program.start()
        self._program.put(values, 0, point)
        total = self._constant
        for t, (sign, part) in zip(self._program.output(values, "t"), self._parts, strict=True):
            total = total + part * (t.lower() if sign > 0 else t.upper() if sign < 0 else t)
        return total


@lru_cache(8)
def _parts_of(model: Model) -> _Parts | None:
    """The parts, where there are a few that are not entries of their own, and no switches that they would not show."""
    nodes = {node for form in model.block("g_yy")[1] for node in form.terms}
    if model.n == 1 or model.has_kinks or not 0 < len(nodes) <= MOST_PARTS:
        return None
    with SMOOTH_BALLS.precision(CONVEXITY_BITS):
        return _Parts(model)


def _surely_positive(matrix: arb_mat) -> bool:
    """Whether all symmetric matrices in the ball are positive definite: by pivots, or by the middle less the radius."""
    n = matrix.nrows()
    if n == 1 or positive_definite(matrix):
        return bool(n > 1 or matrix[0, 0] > 0)
    # |radius| is at most its largest row sum, so that no eigenvalue moves by more
    reach = max(sum((arb(matrix[i, j].rad()) for j in range(n)), arb(0)).upper() for i in range(n))
    return positive_definite(
        arb_mat(n, n, [matrix[i, j].mid() - (reach if i == j else 0) for i in range(n) for j in range(n)])
    )


def _least_curvature(matrix: arb_mat) -> Any:
    """v^T M v / v^T v for an approximate eigenvector of the smallest eigenvalue; nan where there is none."""
    n = matrix.nrows()
    if n == 1:
        return matrix[0, 0]
    middle = np.array([float(entry) for entry in matrix.entries()]).reshape(n, n)
    if not np.isfinite(middle).all():
        return arb("nan")
    v = arb_mat(n, 1, [arb(float(entry)) for entry in np.linalg.eigh(middle)[1][:, 0]])
    return (v.transpose() * matrix * v)[0, 0] / (v.transpose() * v)[0, 0]


def _hull(ends: tuple[fmpq, fmpq], ball: Any) -> tuple[fmpq, fmpq] | None:
    """The ends moved out to hold the ball; None where floats do not reach it."""
    low, high = float(ball.lower()), float(ball.upper())
    if not (math.isfinite(low) and math.isfinite(high)):
        return None
    inside = arb(ends[0]) <= ball and ball <= arb(ends[1])
    if inside:
        return ends
    below, above = (
        fmpq(*math.nextafter(end, side).as_integer_ratio()) for end, side in ((low, -math.inf), (high, math.inf))
    )
    return min(ends[0], below), max(ends[1], above)


def as_fmpq(value: Any) -> fmpq:
    """A whole number, or a rational with ``p`` and ``q``, as FLINT has it.

    >>> as_fmpq(fmpq(1, 3)), as_fmpq(2)
    (1/3, 2)
    """
    return fmpq(int(value.p), int(value.q)) if hasattr(value, "p") else fmpq(int(value))
