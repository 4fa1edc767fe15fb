"""Run transcripts: what claims read off runs, and where they look, on small cases whose answers are known."""

from __future__ import annotations

from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numpy as np
from flint import arb

from bilevel_sym import AID, BilevelProblem, Constants
from bilevel_sym.theories import Variant
from verify.papers.huang_saddle.measures.agreement import Agreement
from verify.papers.huang_saddle.measures.regions import Region
from verify.papers.huang_saddle.measures.runs import (
    Run,
    gammas,
    paths_inside,
    rounding,
    small_step,
    starts,
    v_stars,
)
from verify.papers.huang_saddle.measures.second_writing.transcripts import compared_items
from verify.papers.huang_saddle.measures.stochastic import stocbio_bounds

CASE = Constants(0.5, 1.5, 1.25, 0.75, 2.0, sigma=1.5)
REGION = Region(np.array([-0.5, -2.0]), np.array([0.25, 1.0]), 1, CASE, "a region")
STARTS = 30


def of_runs() -> Iterator[Agreement]:
    """Distances, steps, starts and points, each on a case for which they can be written down.

    >>> max(item.ratio for item in of_runs()) <= 1
    True
    """
    pairs = _of_a_run() | _of_a_region() | _of_starts() | _of_paths() | _of_points()
    yield from compared_items(pairs, "a small case")


def _of_a_run() -> dict[str, tuple[Any, Any]]:
    """What is read off two runs of three iterations whose entries are whole numbers; one leaves its region early."""
    here = np.arange(12.0).reshape(2, 3, 2)
    away = np.array([3.0, 4.0]) * np.array([[0.0, 1.0, 2.0], [3.0, 4.0, 5.0]])[..., None]  # 5 times as long
    usable = np.array([[True, True, True], [True, False, False]])
    moved = np.array([[0.25, 0.5, np.nan], [8.0, 9.0, np.nan]])
    run = Run(
        x=here, y_0=here + away, v_0=here - 2 * away, y_D=here, v_N=here, grad_phi_hat=here + 3 * away, y_star=here,
        v_star=here, grad_phi=here, moved=moved, perturbed=usable, usable=usable,
    )  # fmt: skip
    lengths = 5 * np.arange(6.0).reshape(2, 3)
    eta, bound = 0.25, CASE.hypergradient_bound
    # y and v begin 15 + 30 away in the second run, and exactly in the first, whose longest step is 0.5
    wanted = {
        "off_y": lengths, "off_v": 2 * lengths, "error": 3 * lengths,
        "longest": np.array([0.5, 0.0]),  # of steps that end in the region
    }  # fmt: skip
    pairs = {f"{name} of a run": (np.array_equal(getattr(run, name), value), True) for name, value in wanted.items()}
    farthest: dict[Variant, tuple[float, float]] = {
        "printed": (bound, bound), "corrected": (max(bound, 2.0), bound), "sharp": (2.0, 0.0),
    }  # fmt: skip
    for variant, longest in farthest.items():
        found = gammas(run, CASE, eta, variant)
        for k, far in enumerate(longest):
            pairs[f"Gamma_1 of run {k}, {variant}"] = (found[k], CASE.gamma_1(eta, 45.0 * k, gradient_bound=far))
    return pairs


def _of_a_region() -> dict[str, tuple[Any, Any]]:
    """How far rounding may carry, and how far a run may go."""
    allowed = rounding(REGION)
    kappa, unit = 3.0, 64 * 2.0**-52  # of coordinates up to 2
    y = unit * kappa * 2
    v = unit * kappa * 4 + (kappa + 1.25 * 2 / 0.25) * y
    return {
        "rounding of y": (allowed.y, y), "rounding of v": (allowed.v, v),
        "rounding of grad Phi": (allowed.grad, (1.5 + 1.25 * 2 / 0.5) * y + 1.5 * v),
        "a small step": (small_step(REGION, 9), min(1 / CASE.L_phi(), 0.75 / (40 * 2 * (1 + kappa)))),
    }  # fmt: skip


def _of_starts() -> dict[str, tuple[Any, Any]]:
    """A third of the starts is exact; y is off by 0.9 of the room to the nearest side, at most 0.9; v too in a third.

    With g = (y - x)^2/2 and f = x y, y* = x and v* = x.
    """
    problem = BilevelProblem("x*y", "(y - x)**2/2", "x", "y")
    study: Any = SimpleNamespace(kernels=problem.kernels, rng=lambda _: np.random.default_rng(0))
    begin = starts(study, REGION, STARTS, "")
    x, far = begin.x[:, 0], np.arange(STARTS) % 3
    room = np.minimum(np.minimum(1.0 - x, x + 2.0), 1.0)
    off_y, off_v = np.abs(begin.y[:, 0] - x), np.abs(begin.v[:, 0] - x)
    return {
        "all starts are there": (len(x), STARTS),
        "starts are near the middle": (bool(np.all(np.abs(x + 0.125) <= 0.1875 + 1e-15)), True),
        "starts differ": (len(np.unique(x)), STARTS),
        "how far y is off": (bool(np.allclose(off_y, np.where(far > 0, 0.9 * room, 0.0), atol=1e-14)), True),
        "how far v is off": (
            bool(np.allclose(off_v, np.where(far == 2, np.minimum(room, 1 + np.abs(x)), 0.0), atol=1e-14)), True,
        ),
        "v* at the starts": (bool(np.allclose(v_stars(problem.kernels, begin.x, begin.x)[:, 0], x)), True),
    }  # fmt: skip


def _of_paths() -> dict[str, tuple[Any, Any]]:
    """Where g_y = -y, D steps of size 1 take y to 2^D y: out of the region sooner or later, or not at all."""
    problem = BilevelProblem("x*y", "-y**2/2 + x*0", "x", "y")
    study: Any = SimpleNamespace(kernels=problem.kernels)
    x = np.zeros((1, 4, 1))
    y = np.array([0.0, 0.2, 0.3, 0.6]).reshape(1, 4, 1)
    asked = np.array([[True, True, True, True]])
    stay = [paths_inside(study, REGION, AID(D, 1, 1.0), x, y, asked) for D in (1, 2)]
    some = paths_inside(study, REGION, AID(1, 1, 1.0), x, y, asked & (y[..., 0] > 0))
    return {
        "one step stays": (stay[0].tolist() == [[True, True, True, False]], True),
        "two steps stay": (stay[1].tolist() == [[True, True, False, False]], True),
        "what is not asked": (some.tolist() == [[False, True, True, False]], True),
    }


def _of_points() -> dict[str, tuple[Any, Any]]:
    """Where claims about stocBiO look: points of the box in x, and y at a part of its width from y*."""
    low, high = np.array([-1.0, 2.0]), np.array([3.0, 8.0])
    random = [np.array([0.0, 5.0]), np.array([1.0, 7.0])]
    study = SimpleNamespace(x_ends=(low, high), points=lambda count, _: random[:count])
    samples: Any = SimpleNamespace(study=study, solved=lambda x: x, y_ends=(np.array([-1.0]), np.array([3.0])))
    points: list[Any] = list(stocbio_bounds.solved_points(samples))
    wanted = [(3.0, 8.0), (2.8, 7.7), (-0.8, 2.3), (1.0, 5.0), (0.0, 5.0), (1.0, 7.0)]
    solved: Any = SimpleNamespace(y=[arb(1)])
    near = {shift: stocbio_bounds.near_solution(samples, solved, shift) for shift in (0, 0.5, -0.75, 1.25, -1.25)}
    found = {shift: None if y is None else float(y[0]) for shift, y in near.items()}
    return {
        "points of the box": (len(points) == len(wanted) and bool(np.allclose(points, wanted, rtol=1e-15)), True),
        "points near the solution": (found == {0: 1.0, 0.5: 2.0, -0.75: -0.5, 1.25: None, -1.25: None}, True),
    }
