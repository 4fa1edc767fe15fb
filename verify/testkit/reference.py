"""The certified truth at some points, how far rounding may take an honest program from it, and what was answered."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import numpy as np

from bilevel_sym import BilevelProblem, PointCertificate, evaluate
from bilevel_sym.arithmetic.ties import first_largest, in_order
from bilevel_sym.errors import BilevelError, CertificateFailure, TooLarge
from bilevel_sym.system.budget import Deadline
from bilevel_sym.system.memory import FLOAT, largest, parts, require
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.typing import FLOAT64_EPS, Floats, Indices
from verify.enclosures.memory import LIBRARY_BYTES
from verify.points.derivatives_at import Derivatives, block_values
from verify.testkit.candidate import Settings, norms
from verify.testkit.diagnosis import Suspect

__all__ = ["ROUNDINGS", "references"]

Quantity = Literal["grad_phi", "hess_phi", "y_star"]
QUANTITIES: tuple[Quantity, ...] = ("grad_phi", "hess_phi", "y_star")
ROUNDINGS = 1e3  # an honest program may lose this many roundings, times the condition of the problem
ELSEWHERE = 0.1  # of the largest condition of the points: a tolerance that suits all of them leaves no more than that
CERTIFIED_DIGITS = 25
HESSIAN_NUMBERS = 2**22  # numbers of Hessians that are held at a time
CERTIFIED = 5000  # bytes of one certified number, while it is proved and beside its formula
NUDGE = 2.0**-20  # relatively: how far a variable is moved to see what depends on it


@dataclass(frozen=True, eq=False)
class References:
    """P points with their certificates; arrays lead with the points. Made by ``references``.

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # Phi = x^2/2
    >>> at = references(problem, [[1.0], [3.0]])
    >>> at.truth("grad_phi")
    array([[1.],
           [3.]])
    >>> at.errors("grad_phi", np.array([[1.0], [3.5]])).round(3)
    array([0. , 0.5])
    """

    problem: BilevelProblem
    x: Floats
    certificates: tuple[PointCertificate, ...]
    skipped: tuple[str, ...] = ()

    def __len__(self) -> int:
        return len(self.x)

    def __getitem__(self, rows: slice | Indices) -> References:
        chosen = np.arange(len(self))[rows]
        return References(self.problem, self.x[chosen], tuple(self.certificates[k] for k in chosen), self.skipped)

    def joined(self, other: References) -> References:
        """The points of both, those of the other last."""
        certificates = self.certificates + other.certificates
        return References(self.problem, np.concatenate([self.x, other.x]), certificates, self.skipped)

    def truth(self, name: Quantity) -> Floats:
        """The certified values, rounded to float64."""
        return self._truth[name]

    @cached_property
    def _truth(self) -> dict[Quantity, Floats]:
        return {name: _rounded([getattr(c, name) for c in self.certificates]) for name in QUANTITIES}

    def errors(self, name: Quantity, values: Floats) -> Floats:
        """Upper bounds of the norms of values - truth; that the truth was rounded is included."""
        truth = self.truth(name)
        return np.asarray(norms(values - truth) + FLOAT64_EPS * norms(truth))

    @cached_property
    def y(self) -> Floats:
        """y*, rounded to float64."""
        return self.truth("y_star")

    @cached_property
    def at(self) -> Derivatives:
        """The derivative blocks of f and g at (x, y*), and what follows from them."""
        return Derivatives(block_values(self.problem.kernels, self.x, self.y))

    @cached_property
    def eigenvalues(self) -> Floats:
        """The eigenvalues of g_yy, (P, n), ascending."""
        return np.asarray(np.linalg.eigvalsh(self.at["g_yy"]))

    @property
    def kappa(self) -> Floats:
        """The condition number of g_yy at each point."""
        return np.asarray(self.eigenvalues[:, -1] / self.eigenvalues[:, 0])

    def floor(self, name: Quantity) -> Floats:
        """1e3 eps cond, in the units of the quantity: no honest float64 program errs by more, (P,).

        The condition holds what rounding of x does, what it does in the lower level, which y* then carries on, and
        what it does in the linear solve, where terms that cancel each other count with their sizes.
        """
        conditions = {
            "y_star": self._condition_y_star,
            "grad_phi": self._condition_grad_phi,
            "hess_phi": self._condition_hess_phi,
        }
        size = conditions[name]
        # where everything is zero at a point, programs still round numbers of the size met elsewhere
        return np.asarray(ROUNDINGS * FLOAT64_EPS * np.maximum(size, max(ELSEWHERE * float(size.max()), FLOAT64_EPS)))

    @cached_property
    def _condition_y_star(self) -> Floats:
        """|g_yy^-1| (|g_yy| |y*| + |g_xy| |x|): one rounding of each number that enters grad_y g."""
        sizes = self.kappa * norms(self.y) + norms(self.at["g_xy"]) * norms(self.x) / self.eigenvalues[:, 0]
        return np.asarray(sizes)

    @cached_property
    def _condition_grad_phi(self) -> Floats:
        at = self.at
        solved = norms(at["g_xy"]) * self.kappa * norms(at.v)
        return np.asarray(norms(at["f_x"]) + solved + self._carried[0])

    @cached_property
    def _condition_hess_phi(self) -> Floats:
        at, slope = self.at, norms(self.at.dy_dx)
        third = norms(at["g_xxy"]) + 2 * norms(at["g_xyy"]) * slope + norms(at["g_yyy"]) * slope**2
        second = norms(at["f_xx"]) + 2 * norms(at["f_xy"]) * slope + norms(at["f_yy"]) * slope**2
        solved = third * norms(at["f_y"]) / self.eigenvalues[:, 0]
        return np.asarray(self.kappa * (second + solved) + self._carried[1])

    @cached_property
    def _carried(self) -> tuple[Floats, Floats]:
        """How roundings of x and of y* show in grad Phi and in Hess Phi, from how these change nearby."""
        kernels, (points, d) = self.problem.kernels, self.x.shape
        z = np.concatenate([self.x, self.y], axis=1)
        size = np.concatenate([np.abs(self.x), np.broadcast_to(self._condition_y_star[:, None], self.y.shape)], axis=1)
        step = NUDGE * (np.abs(z) + NUDGE)
        share, axes = size / step, np.eye(z.shape[1])
        grad, hess = np.zeros(share.shape), np.zeros(share.shape)
        with np.errstate(all="ignore"):
            try:
                here = kernels.expansion(self.x, self.y)
                for some in parts(z.shape[1], max(1, HESSIAN_NUMBERS // (points * d * d))):
                    moved = z[:, None, :] + (step[:, None, :] * axes)[:, some]
                    there = kernels.expansion(moved[..., :d], moved[..., d:])
                    away = (there.hess - here.hess[:, None]).reshape(*moved.shape[:2], -1)
                    grad[:, some] = np.linalg.norm(there.grad - here.grad[:, None], axis=2)
                    hess[:, some] = np.linalg.norm(away, axis=2)
            except BilevelError:  # beside the point something is not defined: then nothing is said of rounding
                return np.zeros(points), np.zeros(points)
        return (grad * share).sum(axis=1), (hess * share).sum(axis=1)


def _rounded(balls: Sequence[Any]) -> Floats:
    """Certified values of all points in float64; NaN for Hessians of so many variables that they are left out."""
    try:
        return np.array([list(values) for values in balls], dtype=object).astype(np.float64)
    except TooLarge:
        return np.full(len(balls), np.nan)


def require_references(d: int, n: int, points: int, memory: int) -> None:
    """Refuse what certificates and derivatives at so many points would take beyond the memory.

    >>> require_references(2000, 30, 12, 2 * 10**9)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.TooLarge: the truth at 12 points, d = 2000 and n = 30, takes about 62.8 GB, and memory is 2 GB
    try: memory='69.2GB' if there is as much; with this memory d = 311 would fit
    """
    fits = largest(lambda d: bytes_at(d, n, points) <= memory, d)
    require(bytes_at(d, n, points), memory, f"the truth at {points} points, d = {d} and n = {n},", f"d = {fits}")


def bytes_at(d: int, n: int, points: int) -> float:
    """What certificates and the derivative blocks at so many points take.

    >>> bytes_at(280, 30, 12) < 2e9 < bytes_at(500, 30, 12)
    True
    """
    blocks = d * d * n + d * n * n + n**3 + 6 * d * d
    return LIBRARY_BYTES + CERTIFIED * d * d + points * (300 * d * d + 2 * FLOAT * blocks) + 4 * FLOAT * HESSIAN_NUMBERS


def references(
    problem: BilevelProblem, points: Iterable[Any], *, deadline: Deadline | None = None, progress: bool = False
) -> References:
    """The references at those points that have a certificate; why others have none is kept.

    - ``problem``: the problem.
    - ``points``: x, one row for each.
    - ``deadline``: where it passes before all points are done, TimeIsUp is raised.
    - ``progress``: whether a terminal shows how far it is.

    >>> problem = BilevelProblem("abs(x)*y", "y**2 - x*y", "x", "y")
    >>> at = references(problem, [[0.0], [1.0]])
    >>> len(at), at.skipped[0][:40]
    (1, 'no certificate at x = 0: f or g is not s')
    """
    kept, certificates, skipped = [], [], []
    rows = [np.asarray(point, dtype=np.float64) for point in points]
    problem.mean.kernels.refuse_kinked(np.array(rows))
    with ProgressBar("certifying the truth", len(rows), shown=progress) as meter:
        for k, x in enumerate(rows):
            (deadline or Deadline()).check()
            try:
                certificates.append(evaluate(problem, x.tolist(), digits=CERTIFIED_DIGITS))
                kept.append(x)
            except BilevelError as error:
                skipped.append(error)
            meter.at(k + 1)
    if not kept:
        raise CertificateFailure(
            f"nothing can be compared: {skipped[0].message if skipped else 'there are no points'}",
            hint=_way_round(skipped) or "points= where f and g are smooth and g is strongly convex in y",
        )
    return References(problem, np.array(kept), tuple(certificates), tuple(error.message for error in skipped))


def _way_round(errors: Sequence[BilevelError]) -> str | None:
    """What to write in the place of a kink, if the minimiser of g lies on one wherever was looked."""
    return errors[0].hint if errors and all(getattr(error, "kink", "") for error in errors) else None


# ---------------------------------------------------------------------- what a candidate answered there


@dataclass(frozen=True)
class Subject:
    """What is asked for: its name in a certificate, its label in the paper, its shape, and what may go wrong."""

    quantity: Quantity
    label: str
    noun: str
    shape: Callable[[BilevelProblem], tuple[int, ...]]
    suspects: Callable[[References, Floats, Floats | None], Iterator[Suspect]]
    look_at: str  # where to begin when nothing is known
    returns: str = ""  # "x" or "y": whose arrays its entries are, where they are one vector
    answer: str = "grad"  # its name in a dict that also tells y and v


@dataclass(frozen=True, eq=False)
class Asked:
    """The answers at the points of ``at``; ``previous`` are the points asked just before each, ``unasked`` left out."""

    subject: Subject
    at: References
    values: Floats
    previous: Floats
    single: bool
    settings: Settings
    unasked: References
    screened: int = 0
    told: Mapping[str, Floats] = field(default_factory=dict)  # y and v, (P, n), where the candidate says them

    def joined(self, other: Asked, screened: int) -> Asked:
        """Both, where the other points are the worst of so many that were screened."""
        values, previous = (
            np.concatenate([getattr(a, name) for a in (self, other)]) for name in ("values", "previous")
        )
        unasked = self.unasked.joined(other.unasked)
        at = self.at.joined(other.at)
        told = {
            name: np.concatenate([rows, other.told[name]]) for name, rows in self.told.items() if name in other.told
        }
        return Asked(self.subject, at, values, previous, self.single, self.settings, unasked, screened, told)

    @property
    def named(self) -> int:
        """How many points there were to ask."""
        return len(self.at) + len(self.unasked)

    @cached_property
    def errors(self) -> Floats:
        """The norm of the error at each point."""
        return self.at.errors(self.subject.quantity, self.values)

    @cached_property
    def floor(self) -> Floats:
        """What rounding explains."""
        return self.at.floor(self.subject.quantity)

    @cached_property
    def excess(self) -> Floats:
        """Errors in units of what rounding explains; an answer that is not finite is worse than any."""
        excess = self.errors / self.floor
        return np.where(np.isfinite(excess), excess, np.inf)

    @property
    def worst(self) -> int:
        """The point with the largest error in these units."""
        return first_largest(self.excess)

    @property
    def off(self) -> int:
        """At how many points rounding does not explain the error."""
        return int((self.excess > 1).sum())

    @property
    def slowest(self) -> References:
        """All points, those with the largest error first, and in the end those that were not asked."""
        return self.at[in_order(self.excess, descending=True)].joined(self.unasked)

    @property
    def finite(self) -> bool:
        """Whether every answer holds numbers only."""
        return bool(np.isfinite(self.values).all())

    @property
    def right(self) -> bool:
        """Whether rounding explains every error."""
        return self.finite and bool((self.errors <= self.floor).all())

    @property
    def relative(self) -> Floats:
        """Errors relative to the size of the truth, or to that of its terms where these cancel to zero."""
        size = norms(self.at.truth(self.subject.quantity))
        return np.asarray(self.errors / np.where(size > self.floor, size, self.floor / (ROUNDINGS * FLOAT64_EPS)))

    def digits(self, k: int) -> float:
        """How many digits are right at a point."""
        relative = float(self.relative[k])
        return 0.0 if not math.isfinite(relative) else min(16.0, max(0.0, -math.log10(max(relative, 1e-16))))

    @property
    def least_digits(self) -> float:
        """The fewest digits that are right at a point where rounding does not explain the error; else at the worst."""
        return min((self.digits(int(k)) for k in np.flatnonzero(self.excess > 1)), default=self.digits(self.worst))
