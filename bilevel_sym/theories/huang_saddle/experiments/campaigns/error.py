"""The error of AID, ITD and Neumann hypergradients against D, N and kappa, beside the lemmas that bound it.

Each estimate is one iteration from a start one unit away from y*, v from 0; the lemmas are taken for the first
iteration (eta = 0: what later ones add is the move of x). The truth is grad Phi by Newton's method.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from bilevel_sym.campaigns import Campaign
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.estimators.hypergradient import AID, ITD, Estimator, Neumann
from bilevel_sym.plotting import COLOURS
from bilevel_sym.theories.huang_saddle.constants import Constants
from bilevel_sym.theories.huang_saddle.experiments import reporting
from bilevel_sym.theories.huang_saddle.experiments.campaigns.families import curved
from bilevel_sym.theories.huang_saddle.experiments.campaigns.shipped import Done, carry_out
from bilevel_sym.theories.ji2021.constants import RateConstants
from bilevel_sym.typing import FLOAT64_EPS, Axes, Figure, Floats

__all__ = ["Curve", "bound_of", "draw", "errors", "report"]

ESTIMATORS = ("AID", "ITD", "Neumann")
LEMMAS = {"AID": "Lemma B.1", "ITD": "Lemma of Ji et al.", "Neumann": "Lemma D.8"}
MARKERS = "os^Dv<>"
NOISE = 1e3 * FLOAT64_EPS  # times kappa: what rounding may do to both sides


def errors(estimator: str, kappa: int, D: int, N: int, n: int, points: int, seed: int) -> dict[str, float]:
    """The task: the largest error at some points, the bound at that point, and where the bound is tightest.

    Paper: Lemma B.1 [lem:grad-err-aid]; Lemma D.8 [le:first_m]

    - ``estimator``: "AID", "ITD" or "Neumann".
    - ``kappa``, ``n``: of the family.
    - ``D``: steps of gradient descent.
    - ``N``: steps of conjugate gradients, or terms of the series; ITD takes none.
    - ``points``: how many.
    - ``seed``: of the points and the starts.

    >>> found = errors("AID", kappa=8, D=4, N=4, n=3, points=5, seed=0)
    >>> 0 < found["error"] < found["bound"]
    True
    """
    family, rng = curved(kappa, n), np.random.default_rng([seed, n, kappa])
    k = family.problem.kernels
    x, away = rng.uniform(-1, 1, (points, n)), rng.standard_normal((points, n))
    y = k.y_star(x)
    v = np.linalg.solve(k.g_yy(x, y), k.f_y(x, y)[..., None])[..., 0]
    start = y + away / np.linalg.norm(away, axis=1)[:, None]
    found = _estimator(estimator, D, N, family.constants).estimate(
        family.problem, x, y0=start, v0=np.zeros_like(v)
    )  # fmt: skip
    measured = np.linalg.norm(found.grad_phi_hat - k.grad_phi(x), axis=1)
    bound = bound_of(estimator, family.constants, D, N, np.linalg.norm(v, axis=1))
    worst = int(measured.argmax())
    noise = NOISE * kappa * math.sqrt(n)
    tightness = np.where(measured > noise, measured / bound, 0.0).max()  # of rounding nothing is said
    return {
        "error": float(measured[worst]), "bound": float(bound[worst]), "tightness": float(tightness),
        "median": float(np.median(measured)), "exceeds": bool((measured > bound + noise).any()),
    }  # fmt: skip


def _estimator(name: str, D: int, N: int, c: Constants) -> Estimator:
    step = 1 / c.ell
    if name == "AID":
        return AID(D, N, step)
    if name not in ESTIMATORS:
        raise InvalidArgument(f"estimator={name!r:.20}", hint=" or ".join(map(repr, ESTIMATORS)))
    return ITD(D, step) if name == "ITD" else Neumann(Q=N, eta_neumann=step, D=D)


def bound_of(name: str, c: Constants, D: int, N: int, v_error: Floats) -> Floats:
    """What the lemma says of an estimate that begins one unit away from y*, and ``v_error`` from v*.

    - ``name``: of the estimator.
    - ``c``: the constants.
    - ``D``, ``N``: its steps.
    - ``v_error``: |v_0 - v*|, one for each point.

    Paper: Lemma B.1 [lem:grad-err-aid]; Lemma D.8 [le:first_m]

    >>> bound_of("ITD", Constants(mu=1, ell=2, rho=0, nu=0, M=1), 2, 0, np.zeros(1))
    array([3.5])
    """
    if name == "AID":
        return np.array([c.aid_error(D, N, eta=0.0, initial_error=1.0 + float(v)) for v in v_error])
    if name == "ITD":
        rates = RateConstants(mu=c.mu, L=c.ell, M=c.M, tau=c.rho, rho=c.rho)
        return np.full(len(v_error), float(rates.itd_error(D, alpha=1 / c.ell, y_error=1.0)))
    of_y = c.ell + c.ell**2 / c.mu + c.M * c.rho / c.mu + c.ell * c.M * c.rho / c.mu**2
    left = 1 - c.mu / c.ell
    squared = 2 * of_y**2 * left**D + 2 * c.ell**2 * c.M**2 * left ** (2 * N) / c.mu**2
    return np.full(len(v_error), math.sqrt(squared))


@dataclass(frozen=True)
class Curve:
    """Errors and bounds along one of D and N, the other one at its largest.

    - ``estimator``, ``kappa``: which.
    - ``axis``: "D" or "N".
    - ``at``: its values.
    - ``error``, ``bound``: the largest over points, seeds and n.
    """

    estimator: str
    kappa: int
    axis: str
    at: tuple[int, ...]
    error: tuple[float, ...]
    bound: tuple[float, ...]


def _curves(rows: Sequence[dict[str, Any]]) -> list[Curve]:
    found = []
    for axis, other in (("D", "N"), ("N", "D")):
        most = max(row[other] for row in rows)
        groups: dict[tuple[str, int], dict[int, list[dict[str, Any]]]] = defaultdict(lambda: defaultdict(list))
        for row in rows:
            if row[other] == most and not (axis == "N" and row["estimator"] == "ITD"):
                groups[row["estimator"], row["kappa"]][row[axis]].append(row)
        for (estimator, kappa), by_value in groups.items():
            values = tuple(sorted(by_value))
            error, bound = (tuple(max(row[name] for row in by_value[v]) for v in values) for name in ("error", "bound"))
            found.append(Curve(estimator, kappa, axis, values, error, bound))
    return found


def _findings(done: Done) -> list[str]:
    lines = [done.told()]
    for name in ESTIMATORS:
        own = [row for row in done.rows if row["estimator"] == name]
        if own:
            best = max(own, key=lambda row: row["tightness"])
            beyond = sum(row["exceeds"] for row in own)
            lines.append(
                f"{name}: {beyond} of {len(own)} tasks exceed {LEMMAS[name]}; it is tightest, {best['tightness']:.2g}, "
                f"at kappa = {best['kappa']}, D = {best['D']}, N = {best['N']}, n = {best['n']}"
            )
    return lines


def draw(curves: Sequence[Curve], done: Done) -> Figure:
    """Above, errors against D; below, against N; bounds are dotted."""
    figure = reporting.new_figure(12.5, 8.2)
    panels = figure.subplots(2, len(ESTIMATORS), sharey=True)
    for row, axis in zip(panels, ("D", "N"), strict=True):
        for ax, name in zip(row, ESTIMATORS, strict=True):
            _draw_panel(ax, [c for c in curves if (c.estimator, c.axis) == (name, axis)], name, axis)
        row[0].set_ylabel("largest error of the hypergradient")
    panels[1, 1].legend(*panels[0, 0].get_legend_handles_labels(), loc="center", fontsize=9)
    figure.suptitle("Hypergradients from a cold start, one unit away from y*, and what the lemmas say", fontsize=12)
    reporting.add_footer(figure, _provenance(done).lines(180))
    return figure


def _provenance(done: Done) -> reporting.Provenance:
    return done.provenance(
        ("AID and the Neumann series, τ = 1/ℓ", "Lemma B.1 (AID), Lemma D.8 (Neumann), their corrected forms"),
        (
            "the family: Σ λᵢ yᵢ²/2 + softplus(yᵢ) − xᵢ yᵢ and Σ sin(yᵢ + i)", "first iteration alone",
            "ITD beside the lemma of Ji, Yang and Liang", "N: steps of conjugate gradients, or terms of the series",
        ),
    )  # fmt: skip


def _draw_panel(ax: Axes, curves: Sequence[Curve], name: str, axis: str) -> None:
    if not curves:
        ax.set_axis_off()
        return
    for k, curve in enumerate(sorted(curves, key=lambda c: c.kappa)):
        colour = COLOURS[k % len(COLOURS)]
        ax.plot(
            curve.at, curve.error, color=colour, marker=MARKERS[k % len(MARKERS)], markersize=4.5, linewidth=1.4,
            label=f"κ = {curve.kappa}: measured",
        )  # fmt: skip
        ax.plot(curve.at, curve.bound, ":", color=colour, linewidth=1.6, label=f"κ = {curve.kappa}: lemma")
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xlabel(f"{axis}, the other one at its largest" if name != "ITD" else axis)
    ax.set_title(f"{name} and {LEMMAS[name]}", fontsize=11)


def report(out: Path, *, progress: bool = False, large: bool = False, plan: Campaign | None = None) -> Iterator[str]:
    """Run, draw and write error.png, error.csv and error.json; yields what is to be told.

    Paper: Lemma B.1 [lem:grad-err-aid]
    """
    done = carry_out("error", out, large=large, progress=progress, plan=plan)
    told = _findings(done)
    yield from told
    header = ("estimator", "kappa", "D", "N", "n", "seed", "error", "median", "bound", "tightness", "exceeds")
    rows = (tuple(row[name] for name in header) for row in done.rows)
    yield from reporting.publish(
        out, {"error": draw(_curves(done.rows), done)}, header, rows, settings=done.settings,
        provenance=_provenance(done), findings=told,
    )  # fmt: skip
