"""What boxes in x say about the zeros of grad Phi: where there are none, and where there is exactly one.

Where f and g are smooth, ``PhiBoxes`` encloses grad Phi and Hess Phi. At a kink or a jump nothing smooth is known, but
the hull over all branches still says where grad Phi cannot vanish: if Phi is differentiable at a point where finitely
many smooth pieces meet, its gradient is that of one of them (both are linear, and agree on the directions from which
that piece is reached; finitely many closed cones that cover the space include one with an interior).
"""

from __future__ import annotations

from functools import cached_property
from operator import attrgetter
from types import MappingProxyType

import numpy as np
import sympy as sp

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic import intervals
from bilevel_sym.arithmetic.boxes import IntervalProgram
from bilevel_sym.certify.krawczyk import krawczyk_image
from bilevel_sym.implicit.engine import EXPANSION
from bilevel_sym.implicit.second_order import Algebra, ImplicitFormulas
from bilevel_sym.system.memory import DEFAULT, parts
from bilevel_sym.typing import Bools, Floats
from verify.enclosures.interval_matrix import ROUNDED_UP, Matrices, approximate_inverse
from verify.enclosures.phi_boxes import ATTEMPTS, PhiBoxes, PhiEnclosure

LOWER = ("g", "g_y", "g_xy", "g_yy")
GRADIENT = ("f_x", "f_y", "g_xy", "g_yy")
HULL = MappingProxyType(
    {**intervals.PROVED, **{name: intervals.OPERATIONS[name] for name in ("sign", "lt", "le", "select")}}
)
SWITCHES = (sp.Piecewise, sp.Abs, sp.Max, sp.Min, sp.sign)
ARITHMETIC = frozenset(("lin", "mul", "ipow", "abs", "sign", "min", "max", "lt", "le", "select"))
INTERVAL_MATRICES: Algebra[Matrices] = Algebra(attrgetter("solve"))


def excluded(found: PhiEnclosure) -> Bools:
    """Where an entry of grad Phi is not zero anywhere in the box.

    >>> boxes = Boxes(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"))  # Phi = x^2
    >>> excluded(boxes.enclose(np.array([[-1.0], [0.5]]), np.array([[1.0], [1.0]])))
    array([False,  True])
    """
    return np.asarray(found.ok & _away_from_zero(found.grad))


def newton_image(found: PhiEnclosure) -> tuple[Floats, Floats]:
    """Krawczyk's image of each box for the system grad Phi = 0, (lanes, d) each end: every zero in the box is in it.

    If it lies in the interior of the box, there is one zero, and no other. Infinite where nothing is known.

    >>> boxes = Boxes(BilevelProblem("x*y - y", "y**2/2 - x*y", "x", "y"))  # Phi = x^2 - x
    >>> low, high = newton_image(boxes.enclose(np.array([[-1.0]]), np.array([[1.0]])))
    >>> bool(0.49 < low[0, 0] <= 0.5 <= high[0, 0] < 0.51)
    True
    """
    with np.errstate(all="ignore"):
        centre, reach = found.middle[:, :, None], found.reach[:, :, None]
        inverse = Matrices.around(approximate_inverse(found.hess.middle))
        eye = Matrices.identity(found.hess.middle.shape)
        correction, away = inverse @ found.grad_middle, Matrices(np.zeros_like(reach), reach)
        image = krawczyk_image(INTERVAL_MATRICES, eye, Matrices.around(centre), inverse, correction, found.hess, away)
        lower, upper = image.lower[:, :, 0], image.upper[:, :, 0]
    known = found.ok[:, None] & np.isfinite(lower) & np.isfinite(upper)
    return np.where(known, lower, -np.inf), np.where(known, upper, np.inf)


class Boxes(PhiBoxes):
    """The enclosures of one problem, at kinks too; without ``elementary`` functions the fast arithmetic is proved.

    >>> boxes = Boxes(BilevelProblem("y", "y**2/2 - abs(x)*y", "x", "y"))  # Phi = |x|
    >>> boxes.enclose(np.array([[-1.0]]), np.array([[1.0]])).ok, boxes.elementary, boxes.has_hull
    (array([False]), False, True)
    """

    def __init__(self, problem: BilevelProblem, memory: int = DEFAULT) -> None:
        super().__init__(problem, memory)
        self._tape = problem.tape
        programs = (self._tape.program(EXPANSION), self._tape.program(LOWER))
        ops = {(step.op, step.parameter) for program in programs for stage in program.stages for step in stage}
        self.elementary = any(op not in ARITHMETIC or (op == "ipow" and abs(p[0]) > 4) for op, p in ops)
        self.has_kinks = self._tape.has_kinks
        self.has_hull = self.has_kinks and not _switches_in_y(problem)

    def straddling(self, lower: Floats, upper: Floats) -> Bools:
        """Which sides of a box lie across a switch, (lanes, d): those along which a segment is not smooth."""
        lanes, d = lower.shape
        middle = np.repeat(0.5 * lower + 0.5 * upper, d, axis=0)
        ends = []
        for end in (lower, upper):
            segment = middle.copy()
            own = np.arange(lanes * d), np.tile(np.arange(d), lanes)
            segment[own] = end.ravel()
            ends.append(segment)
        ok = [self.enclose(*(end[part] for end in ends)).ok for part in parts(lanes * d, self.lanes())]
        return np.asarray(~np.concatenate(ok).reshape(lanes, d))

    @cached_property
    def _hulls(self) -> tuple[IntervalProgram, IntervalProgram]:
        """The programs in which an open switch gives the hull of its branches; elementary functions are proved."""
        return IntervalProgram(self._tape.program(LOWER), HULL), IntervalProgram(self._tape.program(GRADIENT), HULL)

    def hull_excluded(self, lower: Floats, upper: Floats, y: Floats) -> Bools:
        """Where no branch of f and g lets grad Phi vanish; boxes (lanes, d), ``y`` near y* at their centres.

        Assumes ``has_hull``: for each x, g is smooth in y.

        >>> boxes = Boxes(BilevelProblem("y", "y**2/2 - Piecewise((x, x < 0), (2*x, True))*y", "x", "y"))
        >>> boxes.hull_excluded(np.array([[-1.0]]), np.array([[1.0]]), np.array([[0.0]]))
        array([ True])
        """
        with np.errstate(all="ignore"):
            ok, low, high = self._hull_of_y(lower, upper, y)
            ends = np.hstack([lower, low]), np.hstack([upper, high])
            blocks = dict(zip(GRADIENT, _taken(self._hulls[1], GRADIENT, ends), strict=True))
            grad = ImplicitFormulas(INTERVAL_MATRICES, blocks.__getitem__).grad
            return np.asarray(ok & _away_from_zero(grad) & (blocks["g_yy"].smallest_eigenvalue_lower() > 0))

    def _hull_of_y(self, lower: Floats, upper: Floats, y: Floats) -> tuple[Bools, Floats, Floats]:
        """y* over all branches: Krawczyk's test in y alone, for each x on its own.

        As in ``PhiBoxes``, of the image only its magnitude around y is computed, many boxes at a time.
        """
        _, g_y, _, g_yy = _taken(self._hulls[0], LOWER, (np.hstack([lower, y]), np.hstack([upper, y])))
        inverse = Matrices.around(approximate_inverse(g_yy.middle))
        eye = Matrices.identity(g_yy.middle.shape)
        miss = (inverse @ g_y).magnitude
        width, ok = 1.01 * miss + 1e-300, np.zeros(len(y), dtype=bool)
        for _ in range(ATTEMPTS):
            low, high = _around(y, width)
            _, _, _, g_yy = _taken(self._hulls[0], LOWER, (np.hstack([lower, low]), np.hstack([upper, high])))
            image = (miss + (eye - inverse @ g_yy).magnitude @ width) * ROUNDED_UP + 1e-300
            ok |= (image < width).all(axis=(-2, -1))
            width = np.where(ok[:, None, None], np.fmin(image, width), 1.5 * image)
        return ok, *_around(y, width)


def _away_from_zero(grad: Matrices) -> Bools:
    return np.asarray(((grad.lower > 0) | (grad.upper < 0)).any(axis=(-2, -1)))


def _taken(program: IntervalProgram, names: tuple[str, ...], ends: tuple[Floats, Floats]) -> list[Matrices]:
    session = program.session(len(ends[0]))
    session.put(0, *ends)
    return [_matrices(*session.take(name)) for name in names]


def _switches_in_y(problem: BilevelProblem) -> bool:
    """Whether a switch of g depends on y: then g(x, .) is not smooth."""
    ys = set(problem.y)
    for node in problem.g.atoms(*SWITCHES) if problem.tape.has_kinks else ():
        conditions = [pair[1] for pair in node.args] if isinstance(node, sp.Piecewise) else node.args
        if any(ys & condition.free_symbols for condition in conditions):
            return True
    return False


def _matrices(lower: Floats, upper: Floats) -> Matrices:
    """A block as matrices: a number is 1 by 1, a vector a column."""
    lanes, *shape = lower.shape
    rows, columns = (*shape, 1, 1)[:2]
    return Matrices.between(lower.reshape(lanes, rows, columns), upper.reshape(lanes, rows, columns))


def _around(y: Floats, width: Floats) -> tuple[Floats, Floats]:
    box = Matrices(y[:, :, None], width)
    return box.lower[:, :, 0], box.upper[:, :, 0]
