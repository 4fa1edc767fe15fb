"""Roots: zeros of grad Phi that Newton's method finds from many starts, to be held against a certified search.

A search that is complete has every one of them. Newton's method knows nothing of boxes, and goes to saddles and maxima
as readily as to minima.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np

from bilevel_sym import AID, Descent, LocalMinimum, Status, solve
from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import Floats
from verify import StationaryPoints, Study
from verify.papers.huang_saddle.measures.agreement import Agreement
from verify.papers.huang_saddle.measures.regions import lower_levels
from verify.papers.huang_saddle.measures.second_writing.plain import engines
from verify.points.point import StationaryPoint

STARTS, STEPS = 48, 40
FLAT = 1e-10  # of the size of Hess Phi times the box: what counts as a zero of grad Phi
SINGULAR = 1e-5  # condition beyond which a root is not told from its neighbourhood
SAME_POINT = 1e-6  # of the width: how far a float may be from a certified point
INSIDE = 1e-7  # of the width: closer to the border nothing is said


def newton_roots(study: Study) -> Floats:
    """Distinct zeros of grad Phi well inside the box in x at which Hess Phi is not nearly singular, (count, d).

    >>> from bilevel_sym import verify, zoo
    >>> newton_roots(verify.study_of(zoo.get("saddle").problem)).round(6) + 0.0
    array([[-2.,  0.],
           [ 0.,  0.],
           [ 2.,  0.]])
    """
    low, high = study.x_ends
    width = np.maximum(high - low, 1e-300)
    x = np.concatenate([study.points(STARTS, "roots"), [(low + high) / 2]])
    for _ in range(STEPS):
        x = x[((x >= low - width) & (x <= high + width)).all(axis=1)]
        x = x[np.isfinite(lower_levels(study.kernels, x)).all(axis=1)] if len(x) else x
        if not len(x):
            return np.zeros((0, study.exact.d))
        grad, hess = study.kernels.grad_phi(x), study.kernels.hess_phi(x)
        x, grad, hess = _regular(x, grad, hess)
        step = np.linalg.solve(hess, grad[:, :, None])[:, :, 0] if len(x) else grad
        longest = np.abs(step / width).max(axis=1, initial=0.0)
        x = x - step / np.maximum(1.0, 2 * longest)[:, None]
    return _distinct(_settled(study, x), width)


def _regular(x: Floats, grad: Floats, hess: Floats) -> tuple[Floats, Floats, Floats]:
    """Where Hess Phi can be solved with."""
    good = np.isfinite(hess).all(axis=(1, 2)) & np.isfinite(grad).all(axis=1)
    x, grad, hess = x[good], grad[good], hess[good]
    values = np.abs(np.linalg.eigvalsh(hess))
    keep = values.min(axis=1, initial=np.inf) > 1e-14 * values.max(axis=1, initial=0.0)
    return x[keep], grad[keep], hess[keep]


def _settled(study: Study, x: Floats) -> Floats:
    """Those that are roots, well inside, with a Hessian that tells them from their neighbourhood."""
    low, high = study.x_ends
    width = np.maximum(high - low, 1e-300)
    x = x[((x > low + INSIDE * width) & (x < high - INSIDE * width)).all(axis=1)]
    x = x[np.isfinite(lower_levels(study.kernels, x)).all(axis=1)] if len(x) else x
    if not len(x):
        return x
    grad, hess = study.kernels.grad_phi(x), study.kernels.hess_phi(x)
    values = np.abs(np.linalg.eigvalsh(hess))
    flat = np.linalg.norm(grad, axis=1) <= FLAT * values.max(axis=1) * float(width.max())
    return np.asarray(x[flat & (values.min(axis=1) > SINGULAR * values.max(axis=1))])


def _distinct(x: Floats, width: Floats) -> Floats:
    kept: list[Floats] = []
    for row in sorted(x.tolist()):
        if all(np.abs((np.array(row) - other) / width).max() > SAME_POINT for other in kept):
            kept.append(np.array(row))
    return np.array(kept).reshape(-1, x.shape[1])


def missed(study: Study, found: StationaryPoints) -> list[Agreement]:
    """For each root, how far it is from the nearest point of a search, as a part of the width."""
    low, high = study.x_ends
    width = np.maximum(high - low, 1e-300)
    try:
        roots = newton_roots(study)
    except BilevelError:
        return []
    known = np.array([point.x for point in (*found.points, *found.clusters)]).reshape(-1, study.exact.d)
    items = []
    for root in roots:
        apart = float(np.abs((known - root) / width).max(axis=1).min()) if len(known) else 1.0
        items.append(Agreement("a zero of grad Phi that Newton's method finds", apart, SAME_POINT, study.named(root)))
    return items


# ---------------------------------------------------------------------- the test for an eps-local minimum


def answers(study: Study, points: Sequence[StationaryPoint], rho: float) -> Iterator[Agreement]:
    """The rule of the solvers at each point: on either side of the eps from which on a saddle counts as flat.

    >>> from bilevel_sym import verify, zoo
    >>> study = verify.study_of(zoo.get("scalar").problem)
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

    >>> from bilevel_sym import verify, zoo
    >>> study = verify.study_of(zoo.get("scalar").problem)
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
    aside = 1e-3 * (high - low)
    x = np.where(x + aside <= high, x + aside, x - aside)
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
