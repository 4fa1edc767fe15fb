"""The norms of grad Phi, Hess Phi and D^3 Phi as functions over boxes, for ``branch_and_bound.maximise``.

Each bound is of second order in the size of the box where the mean-value form allows it: along the gradient, or along
the eigenvectors of the Hessian in the middle, the first order is exact, and only the rest is bounded by size.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod

import numpy as np
from flint import arb

from bilevel_sym import BilevelProblem, evaluate
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.ties import coarse
from bilevel_sym.errors import BilevelError
from bilevel_sym.implicit.engine import in_halves
from bilevel_sym.system.memory import parts
from bilevel_sym.typing import Floats, Indices
from verify.enclosures.interval_matrix import ROUNDED_UP, Matrices, finite_or_zero, radius_norm
from verify.enclosures.memory import MOST_DIRECTIONS
from verify.enclosures.phi_boxes import PhiBoxes, PhiEnclosure
from verify.enclosures.tensor_norm import norm3_upper, norm_lower

__all__ = ["GradNorm", "HessNorm", "ThirdNorm", "cubic_norms"]

CUBES = 2**22  # numbers that are held at a time of cubes of directions
DIRECTION_STARTS, ROUNDS = 24, 12  # directions for each dimension, and steps from the best of them
_CANDIDATES = 4  # middles of boxes that are worth a look, of those bounded together
CANDIDATE_BITS = 80
AIM = 1.02  # bounds of |D^3 Phi| beyond this multiple of what is known from below are made with fewer directions


class _Norm(ABC):
    """What the three have in common: sampling, and the middles of the boxes that were bounded last."""

    third = False

    def __init__(self, boxes: PhiBoxes) -> None:
        self.boxes = boxes
        self.problem: BilevelProblem = boxes.problem
        self.active = boxes.active
        self._middles: tuple[Floats, Floats] = np.empty((0, boxes.d)), np.empty(0)

    @property
    def cost(self) -> float:
        """Units of work that one box takes: see ``branch_and_bound``."""
        return self.boxes.cost(third=self.third)

    def over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
        """Upper bounds over boxes, as many at a time as the memory holds; inf where nothing is known."""
        lanes = self.boxes.lanes(third=self.third)
        found = [self._over(lower[part], upper[part], proved) for part in parts(len(lower), lanes)]
        bound, middle, guess = (np.concatenate(some) for some in zip(*found, strict=True))
        if not proved:
            self._middles = middle, guess
        return bound

    def _over(self, lower: Floats, upper: Floats, proved: bool) -> tuple[Floats, Floats, Floats]:
        """The bounds, the middles, and values there."""
        found = self.boxes.enclose(lower, upper, proved=proved, third=self.third)
        with np.errstate(all="ignore"):
            bound, guess = self._bound(found)
        return np.where(found.ok & np.isfinite(bound), bound, np.inf), found.middle, guess

    def at(self, points: Floats) -> Floats:
        """Values in floats; of the middles of the boxes bounded last only the most promising, the rest -inf."""
        middles, guess = self._middles
        if not np.array_equal(points, middles):
            return self._values(points)
        values = np.full(len(points), -np.inf)
        order = coarse(np.where(np.isnan(guess), -np.inf, guess))
        some = np.argsort(-order, kind="stable")[:_CANDIDATES]
        values[some] = self._values(points[some])
        return values

    def _values(self, points: Floats) -> Floats:
        """nan where there is no value."""
        values = np.full(len(points), np.nan)

        def attempt(members: Indices) -> None:
            values[members] = self._plain(points[members])

        for part in parts(len(points), self.boxes.points(third=self.third)):
            in_halves(np.arange(len(points))[part], attempt, BilevelError)
        return values

    def certified_at(self, point: Floats) -> float:
        """A proved lower bound of the value at a point; -inf where nothing can be proved."""
        try:
            return self._proved_at(point)
        except BilevelError:
            return -math.inf

    @abstractmethod
    def _bound(self, found: PhiEnclosure) -> tuple[Floats, Floats]:
        """Upper bounds over the boxes, and values in their middles."""

    @abstractmethod
    def _proved_at(self, point: Floats) -> float:
        """A proved lower bound of the value at a point."""

    @abstractmethod
    def _plain(self, points: Floats) -> Floats:
        """The values in float64; raises where one member has none."""


class GradNorm(_Norm):
    """The norm of grad Phi.

    >>> norm = GradNorm(PhiBoxes(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")))  # Phi = x^2
    >>> bool(2 <= norm.over(np.array([[0.0]]), np.array([[1.0]]))[0] < 2.1)
    True
    """

    def _bound(self, found: PhiEnclosure) -> tuple[Floats, Floats]:
        """Along u = grad(c)/|grad(c)| the first order, r |u^T Hess|, and across it the rest, as the catheti."""
        centre = np.sqrt(np.square(found.grad_middle.middle).sum(axis=(1, 2)))
        unit = Matrices.around(found.grad_middle.middle / np.where(centre > 0, centre, 1.0)[:, None, None])
        reach = found.reach[:, :, None]
        mean = Matrices(found.hess_forms.middle, found.hess_forms.mean_reach)
        slope = ((unit.T @ mean).magnitude @ reach)[:, 0, 0]
        inside = (unit.T @ found.grad_middle).magnitude[:, 0, 0]
        along = inside + slope
        # |a - (u u^T) a| is at most |a|: all of what moves, and the error of grad(c)
        moved = mean.magnitude @ reach + found.grad_middle.radius
        across = np.sqrt(np.square(moved).sum(axis=(1, 2))) + 1e-14 * centre
        bent = np.sqrt(np.square(along) + np.square(across)) * (1 + 1e-13)
        plain = np.sqrt(np.square(found.grad.magnitude).sum(axis=(1, 2))) * ROUNDED_UP
        return np.fmin(bent, plain) + 1e-150, centre

    def _plain(self, points: Floats) -> Floats:
        return np.asarray(np.linalg.norm(self.problem.kernels.grad_phi(points), axis=-1))

    def _proved_at(self, point: Floats) -> float:
        """The root of the sum of squares in balls."""
        balls = [ball.value for ball in evaluate(self.problem, point.tolist(), digits=15).grad_phi]
        with precision(CANDIDATE_BITS):
            return _floor(sum((ball * ball for ball in balls), arb(0)).sqrt())


class HessNorm(_Norm):
    """The spectral norm of Hess Phi.

    >>> norm = HessNorm(PhiBoxes(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")))
    >>> bool(2 <= norm.over(np.array([[0.0]]), np.array([[1.0]]))[0] < 2.1)
    True
    """

    third = True

    def _bound(self, found: PhiEnclosure) -> tuple[Floats, Floats]:
        """In the basis Q of eigenvectors of Hess(c): entries of Q^T Hess Q, then Perron's bound of their sizes."""
        assert found.third_forms is not None
        mean = Matrices(found.third_forms.middle, found.third_forms.mean_reach)
        lanes, d = found.middle.shape
        centre = found.hess_middle
        values, vectors = np.linalg.eigh(finite_or_zero(centre.middle))
        q = Matrices.around(vectors)
        turned = q.T @ mean  # (i, b k)
        turned = turned.reshaped(lanes, d, d, d)
        turned = Matrices(turned.middle.swapaxes(1, 2), turned.radius.swapaxes(1, 2)).reshaped(lanes, d, d * d)
        slopes = (q.T @ turned).magnitude.reshape(lanes, d * d, d)
        moved = (slopes @ found.reach[:, :, None]).reshape(lanes, d, d)
        first = q.T @ centre @ q
        first = Matrices(first.middle, (first.radius + moved) * ROUNDED_UP)
        entries = first.meet(q.T @ found.hess @ q)
        eye = Matrices.around(np.broadcast_to(np.eye(d), vectors.shape))
        defect = radius_norm((q.T @ q - eye).magnitude)
        bound = np.where(defect < 0.5, _symmetric_norm(entries) / (1 - defect) * ROUNDED_UP, np.inf)
        return bound, np.abs(values).max(axis=1)

    def _plain(self, points: Floats) -> Floats:
        return np.asarray(np.abs(np.linalg.eigvalsh(self.problem.kernels.hess_phi(points))).max(axis=-1))

    def _proved_at(self, point: Floats) -> float:
        """|u^T Hess w| in balls, u and w approximate singular vectors."""
        rows = evaluate(self.problem, point.tolist(), digits=15).hess_phi
        with precision(CANDIDATE_BITS):
            return _floor(norm_lower([ball.value for row in rows for ball in row], (self.boxes.d,) * 2))


class ThirdNorm(_Norm):
    """The norm of D^3 Phi as a symmetric tensor, which is that of D^3 Phi[u, u, u] over unit vectors u.

    >>> norm = ThirdNorm(PhiBoxes(BilevelProblem("y**3", "y**2/2 - x*y", "x", "y")))  # Phi = x^3
    >>> bool(6 <= norm.over(np.array([[0.0]]), np.array([[1.0]]))[0] < 6.1)
    True
    """

    third = True
    _known = 0.0  # the largest value that is certain so far: a bound below it need not be sharp

    def _bound(self, found: PhiEnclosure) -> tuple[Floats, Floats]:
        tensors = found.third.reshaped(-1, *[self.boxes.d] * 3)
        bound = norm3_upper(tensors.middle, tensors.radius, symmetric=True, aim=AIM * self._known)
        return bound, np.sqrt(np.square(found.third.middle).sum(axis=(1, 2)))

    def _plain(self, points: Floats) -> Floats:
        return cubic_norms(self.problem.kernels.third_phi(points))

    def _proved_at(self, point: Floats) -> float:
        """|T[u, v, w]| from proved intervals at the point, the unit vectors by alternating maximisation."""
        found = self.boxes.enclose(point[None], point[None], proved=True, third=True)
        if not found.ok[0] or not np.isfinite(found.third.radius).all():
            return -math.inf
        ends = zip(found.third.lower.ravel().tolist(), found.third.upper.ravel().tolist(), strict=True)
        with precision(CANDIDATE_BITS):
            lower = _floor(norm_lower([arb(low).union(arb(high)) for low, high in ends], (self.boxes.d,) * 3))
        self._known = max(self._known, lower)
        return lower


def cubic_norms(tensors: Floats) -> Floats:
    """About max |T[u, u, u]| of symmetric tensors (lanes, d, d, d), from below: many directions, the best climbing.

    >>> float(cubic_norms(np.ones((1, 2, 2, 2)))[0].round(6))  # (u1 + u2)^3
    2.828427
    """
    d = tensors.shape[1]
    u = np.random.default_rng(0).standard_normal((min(DIRECTION_STARTS * d, MOST_DIRECTIONS), d))
    u = np.concatenate([u / np.linalg.norm(u, axis=1, keepdims=True), np.eye(d)])
    values = np.concatenate([np.abs(_along(tensors, u[part])) for part in parts(len(u), max(1, CUBES // d**3))], axis=1)
    best = u[np.argsort(-values, axis=1)[:, :3]]  # (lanes, 3, d)
    for _ in range(ROUNDS):
        image = np.einsum("labc,lsb,lsc->lsa", tensors, best, best, optimize=True)
        size = np.einsum("lsa,lsa->ls", image, best)[..., None]
        # a step of the shifted power method, which does not turn back
        best = image * np.sign(size) + np.abs(size) * best
        best /= np.linalg.norm(best, axis=2, keepdims=True) + 1e-300
    image = np.einsum("labc,lsb,lsc->lsa", tensors, best, best, optimize=True)
    return np.asarray(np.maximum(np.abs(np.einsum("lsa,lsa->ls", image, best)).max(axis=1), values.max(axis=1)))


def _along(tensors: Floats, u: Floats) -> Floats:
    """T[u, u, u] for all tensors and directions, (lanes, directions)."""
    cubes = (u[:, :, None, None] * u[:, None, :, None] * u[:, None, None, :]).reshape(len(u), -1)
    return np.asarray(tensors.reshape(len(tensors), -1) @ cubes.T)


def _floor(ball: arb) -> float:
    """A float below the ball, and not below zero."""
    lower = float(ball.abs_lower())
    return max(0.0, math.nextafter(lower, -math.inf)) if math.isfinite(lower) else -math.inf


def _symmetric_norm(entries: Matrices) -> Floats:
    """A bound of the norms of all symmetric matrices inside: x^T A x <= |x|^T M |x|, and so for -A.

    M has the upper ends of the diagonal, and the sizes elsewhere. For any p > 0 its largest eigenvalue is at most the
    largest (M p)_i/p_i.
    """
    lanes, d, _ = entries.middle.shape
    size = entries.magnitude
    diagonal = np.arange(d)
    up, down = size.copy(), size.copy()
    up[:, diagonal, diagonal] = entries.upper[:, diagonal, diagonal]
    down[:, diagonal, diagonal] = -entries.lower[:, diagonal, diagonal]
    both = np.concatenate([up, down])
    p = _perron(both)
    image = both @ p
    # the diagonal may be negative: the rounding error is in proportion to the sizes
    error = 1e-15 * (d + 2) * (np.abs(both) @ p)
    bound = ((image + error) / p).max(axis=(1, 2))
    return np.asarray(np.maximum(np.maximum(bound[:lanes], bound[lanes:]), 0.0) * ROUNDED_UP + 1e-150)


def _perron(matrices: Floats) -> Floats:
    """Approximate positive eigenvectors of M + s I for its largest eigenvalue, by squaring, (lanes, d, 1)."""
    d = matrices.shape[-1]
    size = np.abs(matrices).sum(axis=-1).max(axis=-1)[:, None, None]
    power = matrices / np.where(size > 0, size, 1.0) + 1.001 * np.eye(d)  # not zero, whatever the signs
    for _ in range(6):
        power = power @ power
        power /= power.max(axis=(1, 2), keepdims=True)
    p = power.sum(axis=2, keepdims=True)
    return np.asarray(p / p.max(axis=1, keepdims=True) + 1e-9)
