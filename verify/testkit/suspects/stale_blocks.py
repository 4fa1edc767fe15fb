"""Hypergradients with something in them that belongs to another place: a block, v, or the whole of g_yy^-1.

What was computed once and kept, or at a y that is not y*, is wrong at all other points, by a constant that is fitted.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bilevel_sym.typing import Floats
from verify.points.derivatives_at import blocks_at
from verify.testkit.diagnosis import Cause, Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.fitting import explains
from verify.testkit.suspects.lower_iterates import apply, hypergradient_of, solutions_before, solved, starts

__all__ = ["frozen_suspects"]

MOST_FREE = 16  # free numbers
VARIES = 1e-6  # relatively
NAMES = ("f_x", "f_y", "g_xy", "g_yy")

KEPT = "what is computed once and kept: it changes with x, and has to be made anew at each point"


def frozen_suspects(at: References, evidence: Evidence, previous: Floats | None) -> Iterator[Suspect]:
    """What hypergradients return that are made of the right parts, one of which is from elsewhere.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "y**2*(1 + x**2) - x*y", "x", "y"), [[float(k)] for k in range(1, 7)])
    >>> values = at.at["f_x"] - apply(at.at["g_xy"], 0.25 * at.at["f_y"])
    >>> seen = Evidence(values, at.truth("grad_phi"), at.floor("grad_phi"))
    >>> [suspect.what for suspect in frozen_suspects(at, seen, None)][-1]
    'the same matrix stands in the place of g_yy^-1 at all points'
    """
    yield from _at_a_start(at)
    yield from _v_before(at, previous)
    yield from _any_v(at, evidence)
    yield from _constant(at, evidence)


def _at_a_start(at: References) -> Iterator[Suspect]:
    """One block at the start of the lower level, the others at y*."""
    for start in starts(at.problem, len(at)):
        there = dict(zip(NAMES, blocks_at(at.problem.kernels, NAMES, at.x, start.y), strict=True))
        for name in NAMES:
            here = {other: at.at[other] for other in NAMES}
            what = f"{name} is evaluated at the start of the lower level, {start.name}; the rest is at y*"
            look = f"the y that is handed to {name}"
            yield Suspect("y*", what, look, hypergradient_of(**{**here, name: there[name]}))


def _v_before(at: References, previous: Floats | None) -> Iterator[Suspect]:
    """v of the point before; at the first point it may be right, or zero."""
    y = solutions_before(at.problem, previous)
    if y is None or previous is None:
        return
    known = np.asarray(np.isfinite(y).all(axis=1))
    v = np.zeros_like(at.y)
    f_y, g_yy = blocks_at(at.problem.kernels, ("f_y", "g_yy"), previous[known], y[known])
    v[known] = solved(g_yy, f_y)
    look = "the linear system g_yy v = f_y: it has to be solved at the new x before v is used"
    for said, first in ((", and zero at first", np.zeros_like(v)), ("", at.at.v)):
        value = at.at["f_x"] - apply(at.at["g_xy"], np.where(known[:, None], v, first))
        yield Suspect("inverse", f"v is that of the point asked before{said}", look, value)


def _any_v(at: References, evidence: Evidence) -> Iterator[Suspect]:
    """Where d > n: some v at each point gives all entries, and no other y would do so."""
    d, n, b = at.problem.d, at.problem.n, at.at
    telling = evidence.telling
    if d <= n or telling.sum() * (d - n) < n + 3:
        return
    U, singular, _ = np.linalg.svd(b["g_xy"], full_matrices=False)
    if (singular[:, -1] < 1e-6 * singular[:, 0]).any():
        return

    def outside(columns: Floats) -> Floats:
        return np.asarray(columns - U @ (U.swapaxes(1, 2) @ columns))

    error = (evidence.values - evidence.truth)[..., None]
    moved = b["f_xy"] - (b["g_xyy"] @ b.v[:, None, :, None])[..., 0]  # how f_x - g_xy v changes with y
    told = np.linalg.norm(outside(moved), axis=(1, 2)) > 1e-3 * np.linalg.norm(b["g_xy"], axis=(1, 2))
    left = np.linalg.norm(outside(error)[..., 0], axis=1) <= 1e-6 * evidence.errors + 10 * evidence.floor
    if left[telling].all() and told[telling].any():
        what = "f_x and g_xy are right, and v is another vector than g_yy^-1 f_y"
        look = "the linear system g_yy v = f_y: its matrix, its right side, and how far it is solved"
        value = evidence.truth + (error - outside(error))[..., 0]
        yield Suspect("inverse", what, look, value, (np.zeros_like(value),) * (n + 2))


def _constant(at: References, evidence: Evidence) -> Iterator[Suspect]:
    """A constant matrix in the place of g_yy^-1, or of g_xy."""
    d, n, f_x, f_y, g_xy = at.problem.d, at.problem.n, at.at["f_x"], at.at["f_y"], at.at["g_xy"]
    ways: dict[str, tuple[Cause, tuple[Floats, ...]]] = {}
    if n * n <= MOST_FREE and _varies(at.at["g_yy"]):
        pairs = [(i, j) for i in range(n) for j in range(n)]
        basis = tuple(-g_xy[:, :, i] * f_y[:, j, None] for i, j in pairs)
        ways["the same matrix stands in the place of g_yy^-1 at all points"] = "inverse", basis
    if d * n <= MOST_FREE and _varies(g_xy):
        units = np.eye(d)
        basis = tuple(-units[i] * at.at.v[:, j, None] for i in range(d) for j in range(n))
        ways["the same matrix stands in the place of g_xy at all points"] = "cross", basis
    for what, (cause, basis) in ways.items():
        suspect = Suspect(cause, what, KEPT, f_x, basis)
        if explains(evidence, suspect):
            yield suspect


def _varies(block: Floats) -> bool:
    """Whether it is another matrix at other points: otherwise that it is the same at all says nothing."""
    return bool(np.ptp(block, axis=0).max() > VARIES * np.abs(block).max())
