"""The Hessian of f(x, y_D(x)) where y_D are D gradient steps that are themselves differentiated, twice."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.typing import Floats
from verify.points.derivatives_at import BLOCKS, blocks_at
from verify.testkit.suspects.hessian.terms import transposed

__all__ = ["unrolled_hessians"]


def unrolled_hessians(
    problem: BilevelProblem, x: Floats, start: Floats, step: Floats, numbers: Sequence[int]
) -> Floats:
    """For each D of ``numbers`` (ascending), K step sizes and P points, (len(numbers), K, P, d, d).

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # y_1 = x/4, f = x^2/4
    >>> unrolled_hessians(problem, np.array([[4.0]]), np.zeros((1, 1)), np.array([0.25]), [1, 60]).ravel()
    array([0.5, 1. ])
    """
    shape, (d, n) = (len(step), len(x)), (problem.d, problem.n)
    y = np.broadcast_to(start, (*shape, n))
    first, second = np.zeros((*shape, d, n)), np.zeros((*shape, d, d, n))  # dy_dx, d2y_dx2
    tau, found = step[:, None, None, None], []
    with np.errstate(all="ignore"):
        for number in range(numbers[-1] + 1):
            at = dict(zip(BLOCKS, blocks_at(problem.kernels, BLOCKS, x, y), strict=True))
            if number in numbers:
                found.append(_chained(at, first, second))
            moved = _third(at, first) + second @ at["g_yy"][..., None, :, :]
            second = second - tau[..., None] * moved
            first = first - tau * (at["g_xy"] + first @ at["g_yy"])
            y = y - tau[..., 0] * at["g_y"]
    return np.array(found)


def _third(at: dict[str, Floats], first: Floats) -> Floats:
    """d2/dx2 of g_y(x, y(x)) but for what the second derivative of y brings, (..., d, d, n)."""
    mixed = transposed(at["g_xyy"] @ transposed(first)[..., None, :, :])
    n = at["g_yyy"].shape[-1]
    half = (first @ at["g_yyy"].reshape(*at["g_yyy"].shape[:-2], n * n)).reshape(*first.shape, n)
    return np.asarray(at["g_xxy"] + mixed + mixed.swapaxes(-3, -2) + first[..., None, :, :] @ half)


def _chained(at: dict[str, Floats], first: Floats, second: Floats) -> Floats:
    """The chain rule for f(x, y(x)) with the derivatives of y as they are."""
    cross = first @ transposed(at["f_xy"])
    bent = (second @ at["f_y"][..., None, :, None])[..., 0]
    return np.asarray(at["f_xx"] + cross + transposed(cross) + first @ at["f_yy"] @ transposed(first) + bent)
