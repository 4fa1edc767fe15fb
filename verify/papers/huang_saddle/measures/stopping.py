"""Stopping: the test for an eps-local minimum at points whose kind is certified, and runs that end by it."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bilevel_sym import AID, Descent, LocalMinimum, Status, solve
from bilevel_sym.typing import Floats
from verify.papers.huang_saddle.measures.agreement import Agreement
from verify.papers.huang_saddle.measures.second_writing.plain import engines
from verify.points.point import StationaryPoint
from verify.study import Study

__all__ = ["answers", "endings"]


def answers(study: Study, points: Sequence[StationaryPoint], rho: float) -> Iterator[Agreement]:
    """The rule of the solvers at each point: on either side of the eps from which on a saddle counts as flat.

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> study = study_of(zoo.get("scalar").problem)
    >>> max(item.apart for item in answers(study, study.stationary.points, 8.0))
    0.0
    """
    for point in points:
        x, lowest = np.array(point.x), point.eigenvalues[0]
        if not (0 < rho < math.inf) or lowest.lower <= 0 <= lowest.upper:
            continue
        turning = max(abs(lowest.lower), abs(lowest.upper)) ** 2 / rho
        for eps in (0.5 * turning, 2.0 * turning):
            wanted = lowest.lower > 0 or eps > turning
            said = LocalMinimum(eps, rho).holds(study.kernels, x)
            yield Agreement(f"{point.kind}, eps = {eps:.3g}", float(said != wanted), 0.5, study.named(x))
        # where the gradient is longer than eps, no curvature helps
        x = x + 1e-3 * (np.array(study.x_ends[1]) - study.x_ends[0])
        size = float(np.linalg.norm(study.kernels.grad_phi(x)))
        said = size > 0 and LocalMinimum(0.5 * size, 1e12 * rho).holds(study.kernels, x)
        yield Agreement("not stationary", float(said), 0.5, study.named(x))


def endings(study: Study, points: Sequence[StationaryPoint], rho: float) -> Iterator[Agreement]:
    """Runs that begin at the points, all at once: they end there as local minima, or go on where the point is none.

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> study = study_of(zoo.get("scalar").problem)
    >>> max(item.apart for item in endings(study, study.stationary.points, 8.0))
    0.0
    """
    decided = [p for p in points if not p.eigenvalues[0].lower <= 0 <= p.eigenvalues[0].upper]
    if not decided or not 0 < rho < math.inf:
        return
    flattest = min(min(abs(p.eigenvalues[0].lower), abs(p.eigenvalues[0].upper)) for p in decided)
    rule, algorithm = LocalMinimum(0.5 * flattest**2 / rho, rho), Descent(AID(1, 1, 1e-6), 1e-9)
    x, y, v = (np.array([getattr(p, name) for p in decided]) for name in ("x", "y", "v"))
    for backend in engines():
        run = solve(study.exact, algorithm, x, y0=y, v0=v, steps=3, rng=0, stop=rule, backend=backend)
        for k, point in enumerate(decided):
            wanted = (Status.LOCAL_MINIMUM, 0) if point.eigenvalues[0].lower > 0 else (Status.OUT_OF_STEPS, 3)
            said = (Status(int(run.status[k])), int(run.steps[k]))
            yield Agreement(f"{point.kind}, a run in {backend}", float(said != wanted), 0.5, study.named(x[k]))
    yield from _asked_when_flat(study, x[:1])


def _asked_when_flat(study: Study, x: Floats) -> Iterator[Agreement]:
    """Beside a point, with a curvature that always passes: the rule is asked from 4/5 of eps on, and not before."""
    low, high = study.x_ends
    x = np.clip(x + 1e-3 * (high - low), low, high)
    y = study.kernels.y_star(x)
    size = float(np.linalg.norm(study.kernels.grad_phi(x)))
    v = study.kernels.v_star(x)
    if not size > 0:
        return
    for part, wanted in ((0.79, Status.LOCAL_MINIMUM), (0.81, Status.OUT_OF_STEPS)):
        rule = LocalMinimum(size / part, 1e12 * (1 + size))
        for backend in engines():
            algorithm = Descent(AID(1, 1, 1e-6), 1e-9)
            run = solve(study.exact, algorithm, x, y0=y, v0=v, steps=0, rng=0, stop=rule, backend=backend)
            name = f"|grad Phi| of {part} eps, a run in {backend}"
            yield Agreement(name, float(Status(int(run.status[0])) != wanted), 0.5, study.named(x[0]))
