"""Saddle points: every one of a box, slopes beside it, and the scales of an escape from there."""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from functools import partial

import numpy as np

from bilevel_sym import Box
from bilevel_sym.errors import BilevelError
from bilevel_sym.theories.huang_saddle.schedules.aid import perturbed_accuracy
from bilevel_sym.theories.huang_saddle.schedules.escape import PERTURBED, Escape, Pace, escape_of
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from bilevel_sym.typing import Floats
from verify import NotApplicable, Study

DELTA = 0.1
MOST_SADDLES = 6  # of a box, those with the most negative curvature
PARTS = (None, 1 / 16, 1 / 200)  # of the box's width, for the half width of a smaller box about a saddle point
FEW_STEPS = 400  # of an escape: then no smaller box is asked for
STRICT = 0.99  # of the largest eps for which the curvature is negative enough
NEWTON_STARTS, NEWTON_STEPS = 24, 12
SLOPED = 0.9  # of eps, at most: how steep the slopes are
SHRINK, HALVINGS = 0.5, 24


@dataclass(frozen=True, eq=False)
class Saddle:
    """A point of negative curvature and small gradient, with the parameters of an escape from it."""

    x: Floats
    hessian: Floats
    direction: Floats
    curvature: float
    smooth: Smoothness
    goal: Goal
    escape: Escape
    lower: Floats
    upper: Floats
    region: str
    slope: float = 0.0

    @property
    def accuracy(self) -> float:
        """The error that estimates may have."""
        return perturbed_accuracy(self.goal, self.escape)

    @property
    def omega(self) -> float:
        """The width of the stuck region over eta: 2^(2 - iota) L_phi S.

        Paper: Formula [unlabelled:stuck-region]; Claim [unlabelled:stuck-width]
        """
        return float(2.0 ** (2 - self.escape.iota) * self.smooth.L_phi * self.escape.S_escape)

    def __str__(self) -> str:
        e = self.escape
        steep = f"|grad Phi| = {self.slope:.2g}, " if self.slope else ""
        return (
            f"{steep}eps = {self.goal.eps:.3g}, iota = {e.iota:.3g}, T = {e.T_escape}, F = {e.F_escape:.3g}, "
            f"L_phi = {self.smooth.L_phi:.3g} and rho_phi = {self.smooth.rho_phi:.3g} certified over {self.region}"
        )


@dataclass(frozen=True, eq=False)
class Saddles:
    """The saddle points that could be studied, and what kept the others from it.

    >>> Saddles((), ("the smoothness about (0,) is not certified",), 1).description
    '0 of 1 saddle points (the smoothness about (0,) is not certified)'
    """

    found: tuple[Saddle, ...]
    reasons: tuple[str, ...]
    total: int

    @property
    def description(self) -> str:
        """How many of how many, and why not all."""
        counted = f"{len(self.found)} of {self.total} saddle points"
        return f"{counted} ({self.reasons[0]})" if self.reasons else counted


def places(study: Study) -> list[tuple[float, ...]]:
    """Every stationary point with negative curvature, the most negative first; of equal ones, by their coordinates.

    The certified search is held against Newton's method from points of the box, which knows nothing of it. Raises
    ``NotApplicable`` where there is none, and what keeps the search from being trusted.

    >>> from bilevel_sym import verify, zoo
    >>> places(verify.study_of(zoo.get("saddle", d=2).problem))
    [(0.0, 0.0)]
    """
    found = study.stationary
    chosen = [tuple(float(v) for v in p.x) for p in found.points if p.kind in ("saddle", "local maximum")]
    seen = _by_newton(study) if found.complete else None
    if seen is not None and not any(_same(study, seen, x) for x in chosen):
        point = ", ".join(f"{name} = {value:.6g}" for name, value in study.named(seen).items())
        raise BilevelError(f"Newton's method finds a saddle point at {point}, and the certified search has none there")
    if not chosen:
        if not found.complete:
            raise BilevelError("no saddle point was found, and the search of the box is not complete")
        raise NotApplicable("Phi has no stationary point with negative curvature in the box")
    return sorted(chosen, key=lambda x: (float(f"{_curvature(study, x):.6e}"), x))


def _curvature(study: Study, x: tuple[float, ...]) -> float:
    return float(np.linalg.eigvalsh(study.kernels.hess_phi(np.array(x)))[0])


def _same(study: Study, x: Floats, other: tuple[float, ...]) -> bool:
    low, high = study.x_ends
    return bool((np.abs(x - np.array(other)) <= 1e-6 * (high - low)).all())


def _by_newton(study: Study) -> Floats | None:
    """Where Newton's method ends well inside the box, with a vanishing gradient and clearly negative curvature."""
    low, high = study.x_ends
    kernels = study.kernels
    x = study.points(NEWTON_STARTS, "saddles")
    x[0] = (low + high) / 2
    try:
        for _ in range(NEWTON_STEPS):
            grad, hess = kernels.grad_phi(x), kernels.hess_phi(x)
            steps = np.array([np.linalg.lstsq(h, g, rcond=1e-12)[0] for h, g in zip(hess, grad, strict=True)])
            x = np.clip(x - steps, low, high)
        grad, hess = kernels.grad_phi(x), kernels.hess_phi(x)
    except (BilevelError, np.linalg.LinAlgError):
        return None
    values = np.linalg.eigvalsh(hess)
    scale = np.abs(values).max(axis=1)
    inside = ((x > low + 0.01 * (high - low)) & (x < high - 0.01 * (high - low))).all(axis=1)
    regular = np.abs(values).min(axis=1) > 1e-3 * scale  # where a search can be complete
    flat = np.linalg.norm(grad, axis=1) < 1e-9 * (1 + scale)
    chosen = np.flatnonzero(inside & flat & regular & (values[:, 0] < 0))
    return x[chosen[0]] if len(chosen) else None


Certified = tuple[Floats, Floats, float, float]


def _certified(study: Study, x: tuple[float, ...], part: float | None) -> Certified:
    """The box, and certified Lipschitz constants of grad Phi and Hess Phi over it."""
    low, high = study.x_ends
    if part is None:
        smooth = study.smoothness
    else:
        reach = part * (high - low)
        low, high = np.maximum(low, np.array(x) - reach), np.minimum(high, np.array(x) + reach)
        ends = {s.name: (float(a), float(b)) for s, a, b in zip(study.exact.x, low, high, strict=True)}
        box = Box({name: ends.get(name, tuple(end)) for name, end in study.box.items()})
        smooth = study.smoothness_over(box, 0.06)
    L_phi, rho_phi = float(smooth.L_phi.upper), float(smooth.rho_phi.upper)
    if not (0 < L_phi < math.inf and rho_phi < math.inf):
        raise BilevelError("no Lipschitz constants of grad Phi and Hess Phi are certified about the saddle point")
    return low, high, L_phi, rho_phi


def saddles(study: Study, pace: Pace = PERTURBED) -> Saddles:
    """Every saddle point of the box, each with the box about it from which an escape takes few steps.

    A smaller box has smaller Lipschitz constants, and a descent that falls by 2 F has not gone far. Raises what
    ``places`` raises, and what kept all of them from being studied.
    """
    everywhere = places(study)
    found: list[Saddle] = []
    reasons: list[str] = []
    first: BilevelError | None = None
    for x in everywhere[:MOST_SADDLES]:
        try:
            found.append(_of_few_steps(study, x, pace))
        except BilevelError as error:
            first = first or error
            reasons.append(error.message)
    if not found:
        raise first or BilevelError("no saddle point could be studied")
    if len(everywhere) > MOST_SADDLES:
        reasons.append(f"those with the most negative curvature of {len(everywhere)}")
    return Saddles(tuple(found), tuple(reasons), len(everywhere))


def _of_few_steps(study: Study, x: tuple[float, ...], pace: Pace) -> Saddle:
    made: list[Saddle] = []
    first: BilevelError | None = None
    for part in PARTS:
        try:
            certified = study.kept(f"saddle point {x} {part}", partial(_certified, study, x, part))
            made.append(_saddle(study, np.array(x), certified, part, pace))
        except BilevelError as error:
            first = first or error
        if any(saddle.escape.T_escape <= FEW_STEPS for saddle in made):
            break
    if not made:
        raise first or BilevelError("no saddle point could be studied")
    return min(made, key=lambda saddle: saddle.escape.T_escape)


def _saddle(study: Study, x: Floats, certified: Certified, part: float | None, pace: Pace) -> Saddle:
    low, high, L_phi, rho_phi = certified
    hessian = study.kernels.hess_phi(x)
    values, vectors = np.linalg.eigh(hessian)
    curvature = float(values[0])
    # of a nearly constant Hessian any larger number is a Lipschitz constant; this one makes S a part of the box
    smooth = Smoothness(L_phi, max(rho_phi, -curvature / (40 * float((high - low).min()))))
    name = "the box" if part is None else f"{2 * part:.2g} of its width"
    goal, escape = _scales(study, smooth, curvature, pace)
    return Saddle(x, hessian, vectors[:, 0], curvature, smooth, goal, escape, low, high, name)


def _scales(study: Study, smooth: Smoothness, curvature: float, pace: Pace) -> tuple[Goal, Escape]:
    """The largest eps for which the curvature is negative enough, and what follows from it."""
    eps = STRICT * curvature**2 / smooth.rho_phi
    goal = Goal(eps=eps, delta=DELTA, d=study.exact.d, initial_error=0.0, gap=1.0, episodes=1)
    return goal, escape_of(smooth, goal, pace)


def slopes(study: Study, saddle: Saddle, pace: Pace = PERTURBED) -> list[Saddle]:
    """Points beside a saddle point that the lemmas speak of too: 0 < |grad Phi| <= eps, with the eps of that point.

    Along the direction of escape, across it and in between, as far away as the curvature there allows.

    >>> from bilevel_sym import verify, zoo
    >>> study = verify.study_of(zoo.get("minimax_wells").problem)
    >>> beside = slopes(study, saddles(study).found[0])
    >>> len(beside), all(0 < at.slope <= at.goal.eps for at in beside)
    (3, True)
    """
    _, vectors = np.linalg.eigh(saddle.hessian)
    first, last = vectors[:, 0], vectors[:, -1]
    ways = [first] if len(first) == 1 else [first, last, (first + last) / math.sqrt(2)]
    found = [_slope(study, saddle, way, pace) for way in ways]
    return [at for at in found if at is not None]


def _slope(study: Study, saddle: Saddle, way: Floats, pace: Pace) -> Saddle | None:
    """The farthest of some points on a ray at which gradient and curvature are those of a saddle of the lemma."""
    farthest = -saddle.curvature / saddle.smooth.rho_phi  # from here on the curvature may have gone
    ray = saddle.x + farthest * SHRINK ** np.arange(HALVINGS)[:, None] * way
    ray = ray[((ray >= saddle.lower) & (ray <= saddle.upper)).all(axis=1)]
    if not len(ray):
        return None
    hessians, grads = study.kernels.hess_phi(ray), study.kernels.grad_phi(ray)
    for x, hessian, slope in zip(ray, hessians, np.linalg.norm(grads, axis=1), strict=True):
        values, vectors = np.linalg.eigh(hessian)
        if not values[0] < 0:
            continue
        goal, escape = _scales(study, saddle.smooth, float(values[0]), pace)
        room = escape.eta * slope + escape.S_escape  # a step, and as far as the lemma's sequences go
        inside = ((x >= saddle.lower + room) & (x <= saddle.upper - room)).all()
        if inside and 0 < slope <= SLOPED * goal.eps and not escape.straightforward:
            return replace(
                saddle, x=x, hessian=hessian, direction=vectors[:, 0], curvature=float(values[0]), goal=goal,
                escape=escape, slope=float(slope),
            )  # fmt: skip
    return None
