"""Convexity of g in y over the box, of an array problem at one x: the whole box at once, in float64 with a radius.

Scalars cut the box in pieces (``convexity``). Here it is looked at once: g_yy over all of it, and, where that does not
decide, at its centre, for a direction of negative curvature.
"""

from __future__ import annotations

import operator
from collections.abc import Mapping, Sequence
from functools import reduce
from typing import Any, cast

import numpy as np
from flint import arb

from bilevel_sym.arithmetic.enclosed.arithmetics import FloatArrays
from bilevel_sym.arithmetic.enclosed.entries import arranged, floats_of
from bilevel_sym.arithmetic.enclosed.inverse import Inverse, proved_inverse
from bilevel_sym.arithmetic.enclosed.midrad import TINY, MidRad, exact, product, upward
from bilevel_sym.arithmetic.enclosed.steps import perform
from bilevel_sym.arrays.plan import Step
from bilevel_sym.certify.array_blocks import EnclosedBlocks, EnclosedPoint, Exactly, assembled
from bilevel_sym.certify.convexity import CONVEXITY_BITS, Convexity, as_fmpq
from bilevel_sym.errors import AssumptionViolated
from bilevel_sym.graph.precision import precision
from bilevel_sym.problem.problem import BilevelProblem

COORDINATES_SHOWN = 5  # coordinates in messages


def array_convexity_at(problem: BilevelProblem, x: Sequence[Any], y: Sequence[Any]) -> tuple[Convexity, str]:
    """Whether g is convex in y over the box, at x (rationals), and why no more is said; y are the balls of y*.

    AssumptionViolated where the centre of the box has a direction of negative curvature.

    >>> problem = BilevelProblem("x*sum(y)", "sum(y**4 + y**2)", "x", "y[3]", box={"x": (0, 1), "y": (-2, 2)})
    >>> array_convexity_at(problem, [1], [arb(0)] * 3)
    ('proved over the box', '')
    """
    ends = problem.ends("y")
    if ends is None:
        return "assumed", "there is no box for y over which it could be checked"
    with precision(CONVEXITY_BITS):
        pairs = [(as_fmpq(low), as_fmpq(high)) for low, high in ends]
        inside = all(arb(low) <= ball and ball <= arb(high) for (low, high), ball in zip(pairs, y, strict=True))
        whole = arranged([arb(low).union(arb(high)).union(ball) for (low, high), ball in zip(pairs, y, strict=True)])
        at, box = floats_of(arranged([arb(as_fmpq(value)) for value in x])), floats_of(whole)
        centre = floats_of(arranged([arb((low + high) / 2) for low, high in pairs]))
    blocks = EnclosedBlocks(Exactly.of(problem), FloatArrays())
    with np.errstate(all="ignore"):
        if _is_convex(blocks, at, box):
            return "proved over the box", "" if inside else "and up to y*, which lies outside of it"
        _refuse_concave(problem, x, blocks.at(at, centre), centre)
    return "assumed", "it was not decided over the box, which is looked at as a whole in a problem of this size"


def _is_convex(blocks: EnclosedBlocks[MidRad], x: MidRad, box: MidRad) -> bool:
    point = blocks.at(x, box)
    if not (point.block("g").is_finite and point.block("g_y").is_finite):
        return False
    g_yy, least = point.block("g_yy"), _least(blocks.exactly, point)
    return any(isinstance(proved_inverse(m), Inverse) or _above_its_radius(m) for m in (least, g_yy) if m is not None)


def _least(exactly: Exactly, point: EnclosedPoint[MidRad]) -> MidRad | None:
    """A matrix that no g_yy over the box is below, None where there is no better one than g_yy itself.

    M^T diag(w) M is never below M^T diag(v) M for v <= w, whatever the entries of M; entry by entry that is lost.
    """
    block, steps = exactly.block("g_yy"), exactly.workshop.plan.steps
    if len(block.pieces) != 1:
        return None
    values = point.values("g_yy")
    lowered = {k: _at_lower_ends(steps[k], values) for k in values if steps[k].kind == "gram" and steps[k].args[1:]}
    if not lowered:
        return None
    changed = dict(values)
    for _, _, parts in block.pieces:
        for part in parts:
            step = steps[part.step]
            if not part.deltas and part.step in lowered:
                changed[part.step] = lowered[part.step]
            elif not part.deltas and step.kind == "combine":
                changed[part.step] = perform(FloatArrays(), step, _least_summands(step, values, lowered))
    return assembled(FloatArrays(), block, changed)


def _at_lower_ends(step: Step, values: Mapping[int, MidRad]) -> MidRad:
    """M^T diag(w) M with the lower end of each product of weights."""
    matrix, *weights = (values[k] for k in step.args)
    weight = reduce(operator.mul, weights)
    low = weight.mid - weight.radius
    return perform(FloatArrays(), step, [matrix, exact(low - (np.abs(low) * 2.0**-50 + TINY))])


def _least_summands(step: Step, values: Mapping[int, MidRad], lowered: Mapping[int, MidRad]) -> list[MidRad]:
    """The summands of a sum of matrices, each at its lower end where it counts with a positive number."""
    rows, _ = cast("tuple[tuple[tuple[Any, tuple[int, ...], Any], ...], Any]", step.parameter)
    return [
        lowered[k] if k in lowered and number > 0 and not deltas and places == (0, 1) else values[k]
        for (number, places, deltas), k in zip(rows, step.args, strict=True)
    ]


def _above_its_radius(matrix: MidRad) -> bool:
    """Whether the middle less a bound on the norm of the radius is positive definite: no eigenvalue moves by more."""
    if not matrix.is_finite:
        return False
    radius = upward(np.maximum(matrix.radius, matrix.radius.T), 4)
    reach = float(upward(np.add.reduce(radius, axis=1), len(radius) + 5).max())
    middle = (exact(matrix.mid) + exact(matrix.mid.T)) * exact(0.5)  # what is enclosed is symmetric
    return isinstance(proved_inverse(middle - exact(reach * np.eye(len(radius)))), Inverse)


def _refuse_concave(problem: BilevelProblem, x: Sequence[Any], point: EnclosedPoint[MidRad], y: MidRad) -> None:
    if not (point.block("g").is_finite and point.block("g_y").is_finite and point.block("g_yy").is_finite):
        return
    matrix = point.block("g_yy")
    way = exact(np.linalg.eigh(0.5 * (matrix.mid + matrix.mid.T))[1][:, :1])
    curved = product(product(way.moved(np.transpose), matrix), way)
    if not float(curved.mid[0, 0]) + float(curved.radius[0, 0]) < 0:
        return
    names = [s.name for s in (*problem.x_entries[:COORDINATES_SHOWN], *problem.y_entries[:COORDINATES_SHOWN])]
    shown = [*map(str, x[:COORDINATES_SHOWN]), *(f"{value:.9g}" for value in y.mid[:COORDINATES_SHOWN].tolist())]
    raise AssumptionViolated(
        "g is not convex in y over the box, so that a stationary point need not be the minimiser: "
        "g_yy has a direction of curvature",
        label="assu:bilevel",
        point=dict(zip(names, shown, strict=True)),
        value=float(f"{float(curved.mid[0, 0]):.6g}"),
        hint="a box in y on which g is convex, or mend g: it must be strongly convex in y",
    )
