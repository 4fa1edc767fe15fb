"""Roots: zeros of grad Phi that Newton's method finds from many starts, to be held against a certified search.

A search that is complete has every one of them. Newton's method knows nothing of boxes, and goes to saddles and maxima
as readily as to minima.
"""

from __future__ import annotations

import numpy as np

from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import Floats
from verify.papers.huang_saddle.measures.agreement import Agreement
from verify.papers.huang_saddle.measures.regions import lower_levels
from verify.points.stationary import StationaryPoints
from verify.study import Study

__all__ = ["missed", "newton_roots"]

STARTS, STEPS = 48, 40
FLAT = 1e-10  # of the size of Hess Phi times the box: what counts as a zero of grad Phi
SINGULAR = 1e-5  # condition beyond which a root is not told from its neighbourhood
SAME_POINT = 1e-6  # of the width: how far a float may be from a certified point
INSIDE = 1e-7  # of the width: closer to the border nothing is said


def newton_roots(study: Study) -> Floats:
    """Distinct zeros of grad Phi well inside the box in x at which Hess Phi is not nearly singular, (count, d).

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> newton_roots(study_of(zoo.get("saddle").problem)).round(6) + 0.0
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
