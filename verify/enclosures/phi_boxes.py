"""Phi over boxes: enclosures of y*, v*, dy_dx and of the first three derivatives of Phi, many boxes at once.

Krawczyk's test proves that for every x in a box X there is exactly one zero of g_y(x, .) near the middle's, and that
g_yy is positive definite there; that it is the only minimiser elsewhere too is what strong convexity says. The rest
are the formulas of ``bilevel_sym.implicit.second_order`` on the graph, with v, W = dy_dx^T and V = dv/dx as further
inputs, so that products with them stay factored:

    grad Phi = L_x,   Hess Phi = D^2 L[Z, Z],   D^3 Phi = D^3 L[Z, Z, Z] - V^T D^2(g_y)[Z, Z] in its three places

with Z = [I; W]. Around the middle c of X the mean-value forms Hess(X) = Hess(c) + D^3 Phi(X) (X - c) and
grad(X) = grad(c) + Hess(X) (X - c) hold as well, and are narrower by far for small boxes.

Where f or g changes its formula inside a box, the box is taken with each of the formulas, and the hull is what is
known, provided that f and g are smooth enough across the edge for y* and the derivatives to change continuously.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from itertools import combinations_with_replacement as multisets

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic.boxes import IntervalProgram, IntervalSession
from bilevel_sym.arithmetic.pieces.patterns import Need, Split, needed_by
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.system.memory import DEFAULT
from bilevel_sym.typing import Bools, Floats, Indices
from verify.enclosures.affine import Affine, AffineProgram, AffineSession
from verify.enclosures.interval_matrix import ROUNDED_UP, Matrices, neumann_bound
from verify.enclosures.memory import PhiMemory
from verify.enclosures.phi_formulas import PhiFormulas
from verify.enclosures.phi_records import Start, Thin, Wide, around, column, every, hull
from verify.enclosures.ridges import smooth_operations

__all__ = ["ATTEMPTS", "PhiBoxes", "PhiEnclosure"]


ATTEMPTS = 3  # sizes of Y that Krawczyk's test is tried with
UNSOLVED = 5e5  # units of work that a lower level takes that cannot be solved
WIDER = 1.1  # how much wider than its own image the next Y is
_UP = 1 + 4e-16

LOWER = ("g", "g_y", "g_xy", "g_yy")
SMOOTH_F = ("f", "f_x", "f_y")
TO_FIRST = (*SMOOTH_F, "g", "g_y", "g_xy", "g_yy", "L_x")
TO_SECOND = (*TO_FIRST, "hess")
TO_THIRD = (*TO_SECOND, "adjoint_change", "outer", "inner")
# what f and g must be smooth enough for: Krawczyk's test, Hess Phi as a bound of how fast grad Phi changes, and D^3 Phi
NEED_LOWER = needed_by(("g_xy", "g_yy"))
NEED_SECOND = needed_by(("f_xx", "f_xy", "f_yy", "g_xxy", "g_xyy", "g_yyy"))
NEED_THIRD = needed_by(("f_xxx", "f_xxy", "f_xyy", "f_yyy", "g_xxxy", "g_xxyy", "g_xyyy", "g_yyyy"))


@dataclass(frozen=True, eq=False)
class PhiEnclosure:
    """What is known about Phi over lanes of boxes; where ``ok`` is False, nothing is.

    Vectors are columns: ``y`` (lanes, n, 1), ``v`` (lanes, n, 1), ``response`` = dy_dx^T (lanes, n, d), ``grad``
    (lanes, d, 1), ``hess`` (lanes, d, d); ``third`` (lanes, d, d d), symmetric in all three indices. ``middle`` and
    ``reach`` are the middle c of each box and how far the box goes from it; ``grad_middle``, ``hess_middle`` are grad
    and Hess Phi at c; ``hess_forms`` and ``third_forms`` are affine in (x - c)/reach.
    """

    ok: Bools
    middle: Floats
    reach: Floats
    y: Matrices
    v: Matrices
    response: Matrices
    grad: Matrices
    hess: Matrices
    grad_middle: Matrices
    hess_middle: Matrices
    hess_forms: Affine
    third_forms: Affine | None

    @property
    def third(self) -> Matrices:
        """D^3 Phi over the boxes, (lanes, d, d d); to be asked for with ``third=True``."""
        if self.third_forms is None:
            raise InvalidArgument("third derivatives were not asked for", hint="enclose(..., third=True)")
        return self.third_forms.hull


class PhiBoxes:
    """Enclosures of Phi and its derivatives for one problem.

    >>> boxes = PhiBoxes(BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y"))
    >>> found = boxes.enclose(np.array([[0.5]]), np.array([[0.51]]), third=True)
    >>> bool(found.ok[0]), float(found.hess.middle[0, 0, 0].round(3)), bool(found.hess.radius[0, 0, 0] < 2e-2)
    (True, 1.061, True)
    """

    def __init__(self, problem: BilevelProblem, memory: int = DEFAULT) -> None:
        self.problem, self.memory = problem, memory
        self.d, self.n = problem.d, problem.n
        self._asked = self._unsolved = 0
        self._formulas = PhiFormulas(problem)
        self._patterns = problem.tape.patterns
        self._programs = lru_cache(None)(self._formulas.program)
        self._ready = lru_cache(None)(self._prepare)
        self._sessions = lru_cache(12)(self._open)
        self._affine_ready = lru_cache(None)(self._prepare_affine)
        self._affine_sessions = lru_cache(6)(self._open_affine)
        self.active = self._formulas.active
        self.pairs = _places(self.d, 2)

    @cached_property
    def _sizes(self) -> PhiMemory:
        return PhiMemory.of(self.problem)

    def lanes(self, *, third: bool = False) -> int:
        """How many boxes the memory holds at a time."""
        return self._sizes.lanes(self.memory, third=third)

    def points(self, *, third: bool = False) -> int:
        """At how many points the memory holds the derivatives at a time."""
        return self._sizes.points(self.memory, third=third)

    @cached_property
    def triples(self) -> Indices:
        """Where the entries of D^3 Phi stand among those with sorted indices."""
        return _places(self.d, 3)

    @cached_property
    def splits(self) -> list[tuple[Indices, Indices]]:
        """For the sorted triples (a, b, c): the place of (ab) and c, of (ac) and b, of (bc) and a."""
        pair = self.pairs.reshape(self.d, self.d)
        a, b, c = np.array(list(multisets(range(self.d), 3)), dtype=np.intp).T
        return [(pair[a, b], c), (pair[a, c], b), (pair[b, c], a)]

    def _prepare(self, names: tuple[str, ...], proved: bool) -> IntervalProgram:
        return IntervalProgram(self._programs(names), smooth_operations(self._patterns is not None, proved))

    def _open(self, names: tuple[str, ...], proved: bool, lanes: int) -> IntervalSession:
        return self._ready(names, proved).session(lanes)

    def _prepare_affine(self, names: tuple[str, ...], proved: bool) -> AffineProgram:
        return AffineProgram(self._programs(names), smooth_operations(self._patterns is not None, proved))

    def _open_affine(self, names: tuple[str, ...], proved: bool, lanes: int) -> AffineSession:
        return self._affine_ready(names, proved).session(lanes, self.d)

    def cost(self, *, third: bool = False) -> float:
        """Units of work that ``enclose`` takes for one box, as seen so far: see ``branch_and_bound``."""
        hopeless = UNSOLVED * self._unsolved / max(self._asked, 1)
        return 15.0 + self._programs(TO_THIRD if third else TO_SECOND).size / 2 + hopeless

    # ------------------------------------------------------------------ y*

    def solve(self, x: Floats) -> tuple[Floats, Bools]:
        """y*(x) in floats for rows of x, and whose could be found."""
        try:
            return self.problem.kernels.one_sided.y_star(x), np.ones(len(x), dtype=np.bool_)
        except BilevelError:
            if len(x) == 1:
                self._unsolved += 1
                return np.zeros((1, self.n)), np.zeros(1, dtype=np.bool_)
        half = len(x) // 2
        (first, ok), (second, good) = self.solve(x[:half]), self.solve(x[half:])
        return np.concatenate([first, second]), np.concatenate([ok, good])

    def enclose(self, lower: Floats, upper: Floats, *, proved: bool = False, third: bool = False) -> PhiEnclosure:
        """Enclosures over the boxes [lower, upper], (lanes, d) each. ``proved``: nothing is assumed of libraries."""
        self._asked += len(lower)
        with np.errstate(all="ignore"):
            start = self._krawczyk(lower, upper, proved)
            return self._derivatives(start, TO_THIRD if third else TO_SECOND, proved)

    def y_over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> tuple[Floats, Floats]:
        """The ends of y* over the boxes, (lanes, n) each; infinite where it could not be enclosed.

        >>> boxes = PhiBoxes(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"))
        >>> low, high = boxes.y_over(np.array([[0.0]]), np.array([[1.0]]))
        >>> bool(-0.1 < low[0, 0] <= 0), bool(1 <= high[0, 0] < 1.1)
        (True, True)
        """
        with np.errstate(all="ignore"):
            start = self._krawczyk(lower, upper, proved)
        low, high = around(start.y, start.radius[:, :, 0])
        return np.where(start.ok[:, None], low, -np.inf), np.where(start.ok[:, None], high, np.inf)

    def _krawczyk(self, lower: Floats, upper: Floats, proved: bool) -> Start:
        """Krawczyk's test for e in y*(x) = y + W (x - c) + e, W = dy_dx^T in the middle: e is of second order.

        For every x in X the map e -> e - R g_y(x, y + W (x - c) + e) goes into the interior of |e| <= E. It is another
        test than that of ``krawczyk``: x runs over a box too, the unknown is e, and of its image only the magnitude is
        computed, lane by lane in float64.
        """
        middle = np.clip(0.5 * lower + 0.5 * upper, lower, upper)
        reach = np.maximum(upper - middle, middle - lower) * _UP
        y, ok = self.solve(middle)
        g_y, g_xy, g_yy = self._lower_level(middle, y, proved)
        factor = _inverse_factor(g_yy.middle)
        inverse = factor.swapaxes(1, 2) @ factor
        step = (Matrices.around(inverse) @ g_y).magnitude
        response = -inverse @ g_xy.middle.swapaxes(1, 2)
        start = Start(ok, middle, reach, y, step, factor, inverse, step, response)
        rest, off = self._contraction(start, np.zeros_like(step), proved)
        radius, done = neumann_bound(off, rest), np.zeros(len(y), dtype=np.bool_)
        for _ in range(ATTEMPTS):
            trial = np.where(done[:, None, None], radius, radius * WIDER + 1e-15 * np.abs(y)[:, :, None] + 1e-300)
            off = self._contraction(start, trial, proved)[1]
            image = (rest + off @ trial * ROUNDED_UP) * ROUNDED_UP
            done = np.asarray((image < trial).all(axis=(1, 2)))
            if done.all():
                break
            radius = np.where(done[:, None, None], trial, neumann_bound(off, rest))
        image = np.where(done[:, None, None], image, np.inf)
        return replace(start, ok=ok & done, rest=image, near=neumann_bound(off, step))

    def _contraction(self, start: Start, away: Floats, proved: bool) -> tuple[Floats, Floats]:
        """Bounds of R g_y and of I - R g_yy over the boxes, y*(x) being that far away; (lanes, n, 1), (lanes, n, n)."""
        session, split, begun = self._session(LOWER, start, away, NEED_LOWER, proved)
        inverse = begun.inverse
        g, g_y, g_yy = (session.take(name) for name in ("g", "g_y", "g_yy"))
        lanes, k = g_y.slopes.shape[:2]
        nothing = np.zeros((lanes, k, *inverse.shape[1:]))
        precondition = Affine(inverse, nothing, np.zeros_like(inverse))
        rest = (precondition @ g_y).hull.magnitude
        off = (Matrices.identity(inverse.shape) - (precondition @ g_yy).hull).magnitude
        # second derivatives alone do not show a jump, nor the end of a domain
        off = off + 0.0 * (g.rest + g_y.rest.sum(axis=1, keepdims=True))
        return (rest, off) if split is None else (split.largest(rest), split.largest(off))

    def _lower_level(self, x: Floats, y: Floats, proved: bool) -> tuple[Matrices, Matrices, Matrices]:
        """g_y, g_xy and g_yy at points; at an edge, of the latter two those of one side."""
        point = np.concatenate([x, y], axis=1)
        session, split = self._put_boxes(LOWER, point, point, NEED_LOWER, proved)
        g_y, g_xy, g_yy = (Matrices.between(*session.take(name)) for name in LOWER[1:])
        g_y = g_y.reshaped(-1, self.n, 1)
        if split is None:
            return g_y, g_xy, g_yy
        g_xy, g_yy = (Matrices(part.middle[split.first], part.radius[split.first]) for part in (g_xy, g_yy))
        return hull(g_y, split), g_xy, g_yy

    # ------------------------------------------------------------------ boxes, and the formulas that hold there

    def _put_boxes(
        self, names: tuple[str, ...], lower: Floats, upper: Floats, need: Need, proved: bool
    ) -> tuple[IntervalSession, Split | None]:
        """Boxes in (x, y) in a session, each with all of the formulas that hold somewhere in it."""
        split = None
        if self._patterns is not None:
            split = self._patterns.split(lower, upper, need, proved=proved)
            lower, upper = split.lower, split.upper
        session = self._sessions(names, proved, len(lower))
        session.put(0, lower, upper)
        return session, split

    def _session(
        self, names: tuple[str, ...], start: Start, rest: Floats, need: Need, proved: bool
    ) -> tuple[AffineSession, Split | None, Start]:
        """Forms x = c + reach e, and y + response (x - c) up to the rest, in a session, and what stands for each."""
        split = None
        if self._patterns is not None:
            split = self._patterns.split(*start.box(rest), need, proved=proved)
            start, rest = start.taken(split.owner), rest[split.owner]
        lanes, d, n = len(start.ok), self.d, self.n
        count = len(self._formulas.switches)
        slopes, away = np.zeros((lanes, d, d + n + count)), np.zeros((lanes, d + n + count))
        slopes[:, range(d), range(d)] = start.reach
        slopes[:, :, d : d + n] = (start.response * start.reach[:, None, :]).swapaxes(1, 2)
        away[:, d : d + n] = rest[:, :, 0] + 1e-15 * np.abs(slopes[:, :, d : d + n]).sum(axis=1)
        middle = np.concatenate([start.middle, start.y], axis=1)
        if split is not None:
            ends = split.lower[:, d + n :], split.upper[:, d + n :]
            middle = np.concatenate([middle, 0.5 * (ends[0] + ends[1])], axis=1)
            away[:, d + n :] = 0.5 * (ends[1] - ends[0])
        session = self._affine_sessions(names, proved, lanes)
        session.put(0, middle, slopes, away)
        return session, split, start

    # ------------------------------------------------------------------ derivatives

    def _derivatives(self, start: Start, names: tuple[str, ...], proved: bool) -> PhiEnclosure:
        wide = self._over(start, names, proved)
        thin = self._at_middle(start, proved)
        hess = wide.hess.hull
        if wide.third is not None:
            mean = Matrices(wide.third.middle, wide.third.mean_reach).magnitude
            spread = column(mean.reshape(-1, self.d**2, self.d), start.reach).reshape(hess.radius.shape)
            hess = hess.meet(Matrices(thin.hess.middle, (thin.hess.radius + spread) * ROUNDED_UP))
        spread = column(Matrices(wide.hess.middle, wide.hess.mean_reach).magnitude, start.reach)
        grad = wide.grad.hull.meet(Matrices(thin.grad.middle, (thin.grad.radius + spread) * ROUNDED_UP))
        enclosed = Matrices(start.y[:, :, None], start.radius)
        return PhiEnclosure(
            start.ok & wide.ok & thin.ok, start.middle, start.reach, enclosed, wide.v.hull, wide.response.hull,
            grad, hess, thin.grad, thin.hess, wide.hess, wide.third,
        )  # fmt: skip

    def _over(self, start: Start, names: tuple[str, ...], proved: bool) -> Wide:
        """The formulas in affine forms."""
        d, third = self.d, None
        session, split, begun = self._session(
            names, start, start.rest, NEED_THIRD if "outer" in names else NEED_SECOND, proved
        )
        g_yy = session.take("g_yy")
        solved, off = g_yy.solved_by(session.take("f_y").beside(-session.take("g_xy").T), begun.inverse)
        smooth = sum(session.take(name).rest.sum(axis=(1, 2)) for name in ("f", "f_x", "f_y", "g", "g_y"))
        v, moves = solved.columns(0, 1), solved.columns(1, 1 + d)
        _put(session, 1, v)
        grad = session.take("L_x")
        _put(session, 2, moves)
        hess = session.take("hess").gathered(self.pairs, d)
        if "outer" in names:
            _put(session, 3, g_yy.solved_by(session.take("adjoint_change"), begun.inverse)[0])
            third = self._third(session.take("outer"), session.take("inner"))
        ok = np.isfinite(smooth) & np.isfinite(off).all(axis=(1, 2)) & np.isfinite(hess.rest).all(axis=(1, 2))
        wide = Wide(ok, v, moves, grad, hess, third)
        return wide if split is None else wide.around(split)

    def _third(self, outer: Affine, inner: Affine) -> Affine:
        """D^3 Phi from its two factors, (lanes, d, d d): the sum over the three ways to split (ab, c)."""
        product = outer.T @ inner
        parts = [Affine(*(part[..., ab, c] for part in product.parts)) for ab, c in self.splits]
        middle, slopes, rest = (
            np.add(np.add(*three[:2]), three[2]) for three in zip(*(p.parts for p in parts), strict=True)
        )
        rest = (rest + 1e-15 * np.max([np.abs(part.middle) + part.reach for part in parts], axis=0)) * ROUNDED_UP
        return Affine(middle[..., None], slopes[..., None], rest[..., None]).gathered(self.triples, self.d)

    def _at_middle(self, start: Start, proved: bool) -> Thin:
        """grad and Hess Phi at the middles, in intervals around y*(c)."""
        d, n = self.d, self.n
        y = around(start.y, start.near[:, :, 0])
        lower, upper = (np.concatenate([start.middle, end], axis=1) for end in y)
        session, split = self._put_boxes(TO_SECOND, lower, upper, NEED_SECOND, proved)
        begun = start if split is None else start.taken(split.owner)
        lanes = len(begun.ok)
        f_y, g_xy, g_yy = (Matrices.between(*session.take(name)) for name in ("f_y", "g_xy", "g_yy"))
        factor = Matrices.around(begun.factor)
        eye = Matrices.identity(g_yy.middle.shape)
        convex = (eye - factor @ g_yy @ factor.T).magnitude.sum(axis=2).max(axis=1) < 0.99
        solved = g_yy.solved_by(_beside(f_y.reshaped(lanes, n, 1), -g_xy.T), Matrices.around(begun.inverse))
        v, response = _columns(solved, 0, 1), _columns(solved, 1, 1 + d)
        session.put(1, *_rows(v))
        grad = Matrices.between(*session.take("L_x")).reshaped(lanes, d, 1)
        session.put(2, *_rows(response))
        hess = Matrices.between(*(end[:, self.pairs] for end in session.take("hess"))).reshaped(lanes, d, d)
        thin = Thin(convex, grad, hess)
        return thin if split is None else Thin(every(convex, split), hull(grad, split), hull(hess, split))


def _put(session: AffineSession, stage: int, forms: Affine) -> None:
    """Give all entries, row by row."""
    lanes, slopes = forms.slopes.shape[:2]
    session.put(
        stage, forms.middle.reshape(lanes, -1), forms.slopes.reshape(lanes, slopes, -1), forms.rest.reshape(lanes, -1)
    )


def _beside(a: Matrices, b: Matrices) -> Matrices:
    return Matrices(np.concatenate([a.middle, b.middle], axis=2), np.concatenate([a.radius, b.radius], axis=2))


def _columns(a: Matrices, first: int, last: int) -> Matrices:
    return Matrices(a.middle[:, :, first:last], a.radius[:, :, first:last])


def _rows(a: Matrices) -> tuple[Floats, Floats]:
    """The ends of all entries, row by row, as a session takes them."""
    return a.lower.reshape(len(a.middle), -1), a.upper.reshape(len(a.middle), -1)


def _places(d: int, order: int) -> Indices:
    """Where each entry of a symmetric tensor stands among those with sorted indices."""
    place = {indices: k for k, indices in enumerate(multisets(range(d), order))}
    return np.array([place[tuple(sorted(index))] for index in np.ndindex(*[d] * order)], dtype=np.intp)


def _inverse_factor(matrices: Floats) -> Floats:
    """S = K^-1 with K K^T = A, in floats, for lanes of symmetric matrices; nan where A is not positive definite.

    Written out over the lanes: for matrices this small that is faster than one call of LAPACK a lane.
    """
    n = matrices.shape[-1]
    a = matrices.transpose(1, 2, 0)
    lower, inverse = np.zeros_like(a), np.zeros_like(a)
    for j in range(n):
        rest = a[j:, j] - np.einsum("ikl,kl->il", lower[j:, :j], lower[j, :j])
        pivot = np.sqrt(rest[0])
        lower[j:, j] = rest / pivot
        inverse[j, j] = 1 / pivot
        inverse[j, :j] = -np.einsum("kl,kil->il", lower[j, :j], inverse[:j, :j]) / pivot
    return np.ascontiguousarray(inverse.transpose(2, 0, 1))
