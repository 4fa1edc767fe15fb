"""The derivatives of Phi come out the same by every route; a fault in one is so told from a false theorem.

Routes: the same derivatives of Phi and y* computed in several ways, held against each other at points of the box.

The kernels go by the Lagrangian, the measures term by term, certificates in balls, brackets over boxes. No two of them
may contradict each other beyond rounding; that is how a fault in one of them is told from a false theorem.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import lru_cache
from typing import Any

import mpmath
import numpy as np
import sympy as sp

from bilevel_sym import Exact, PointCertificate, evaluate
from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.errors import BilevelError
from bilevel_sym.graph.precision import mpmath_digits
from bilevel_sym.solvers.local_minimum import curvature_at
from bilevel_sym.typing import FLOAT64_EPS, Floats
from verify import Bracket, CheckResult, Study, claim
from verify.enclosures.tensor_norm import largest_values
from verify.papers.huang_saddle.measures.agreement import Agreement, agreed
from verify.papers.huang_saddle.measures.regions import lower_levels
from verify.points.derivatives_at import Derivatives, block_values

ROUTE_POINTS, CERTIFIED = 24, 3
ROUNDINGS = 2.0**12
STEP, ROUTE_DIGITS = sp.Rational(1, 10**12), 60  # of the width, between certificates whose difference is a derivative
MOST_ROUTE_VARIABLES = 60  # variables of x and y for which certificates are cheap
NEIGHBOUR_SHARE = 1e-3  # of the width, between points whose Hessians are compared


@lru_cache(2)
def _sample_points(study: Study) -> tuple[Floats, Derivatives, Floats]:
    """Points of the box with y*, the blocks there, and how far rounding carries."""
    x = study.points(ROUTE_POINTS, "routes")
    y = lower_levels(study.kernels, x)
    blocks = block_values(study.kernels, x, y)
    keep = np.isfinite(y).all(axis=1)
    for values in blocks.values():
        keep &= np.isfinite(values).reshape(len(values), -1).all(axis=1)
    found = {name: values[keep] for name, values in blocks.items()}
    eigenvalues = np.abs(np.linalg.eigvalsh(found["g_yy"]))
    size = np.max([np.abs(values).reshape(len(values), -1).max(axis=1) for values in found.values()], axis=0)
    condition = eigenvalues.max(axis=1) / np.maximum(eigenvalues.min(axis=1), FLOAT64_EPS)
    least = np.minimum(eigenvalues.min(axis=1), 1.0)
    return x[keep], Derivatives(found), ROUNDINGS * FLOAT64_EPS * (1 + size) * (1 + condition) ** 3 * (1 + size / least)


def _points(study: Study, names: str, apart: Floats, rounding: Floats, x: Floats) -> list[Agreement]:
    largest = np.abs(apart).reshape(len(apart), -1).max(axis=1)
    return [
        Agreement(names, float(value), float(noise), study.named(point))
        for value, noise, point in zip(largest, rounding, x, strict=True)
    ]


def _terms(study: Study, x: Floats, at: Derivatives, rounding: Floats) -> list[Agreement]:
    """The gradient and the Hessian of Phi term by term, against the kernels."""
    if not len(x):
        return []
    grad, hess = study.kernels.grad_phi(x), study.kernels.hess_phi(x)
    scale = rounding * (1 + np.abs(hess).reshape(len(x), -1).max(axis=1))
    return [
        *_points(study, "grad Phi", at.grad_phi - grad, scale, x),
        *_points(study, "Hess Phi", at.hess_phi - hess, scale, x),
        *_points(study, "f_x - g_xy v", at["f_x"] - (at["g_xy"] @ at.v[:, :, None])[:, :, 0] - grad, scale, x),
    ]


def _certified(study: Study) -> Iterator[Agreement]:
    """y*, Phi, grad Phi, Hess Phi and the third derivatives of the kernels, against certified digits."""
    x, _, rounding = _sample_points(study)
    for point, noise in zip(x[:CERTIFIED], rounding, strict=False):
        try:
            exact = evaluate(study.exact, point.tolist(), digits=40)
        except BilevelError:
            continue
        named = study.named(point)
        kernels = study.kernels
        pairs: dict[str, tuple[Any, Any]] = {
            "y*": (kernels.y_star(point), _floats(exact.y_star)),
            "Phi": (kernels.phi(point), float(exact.phi)),
            "grad Phi": (kernels.grad_phi(point), _floats(exact.grad_phi)),
            "Hess Phi": (kernels.hess_phi(point), _hessian(exact)),
        }
        for name, (ours, theirs) in pairs.items():
            size = 1 + float(np.abs(theirs).max())
            yield Agreement(name, float(np.abs(ours - theirs).max()), float(noise) * size, named)
        estimate = Exact().estimate(study.exact, point)
        apart = float(np.abs(estimate.grad_phi_hat - _floats(exact.grad_phi)).max())
        size = 1 + float(np.abs(_floats(exact.grad_phi)).max())
        yield Agreement(
            "Exact()", max(apart, abs(float(estimate.phi_hat) - float(exact.phi))), float(noise) * size, named
        )
        yield from _curvatures(study, point, exact, float(noise))
        moved = _third(study, point)
        if moved is not None:
            size = 1 + float(np.abs(moved).max())
            third = kernels.third_phi(point)[0]
            yield Agreement("D^3 Phi", float(np.abs(third - moved).max()), (float(noise) + 1e-8) * size, named)


def _curvatures(study: Study, point: Floats, exact: PointCertificate, noise: float) -> Iterator[Agreement]:
    """What the check for a local minimum sees of a point."""
    here, values = curvature_at(study.kernels, point), np.linalg.eigvalsh(_hessian(exact))
    third = study.kernels.third_phi(point).reshape(len(point), -1)
    pairs = {
        "|grad Phi|": (here.grad_norm, float(np.linalg.norm(_floats(exact.grad_phi)))),
        "the smallest eigenvalue": (here.smallest_eigenvalue, float(values[0])),
        "|Hess Phi|": (here.hess_norm, float(np.abs(values).max())),
        "the change of Hess Phi": (here.rho_phi, _change(study, here.rho_phi, float(np.linalg.norm(third, 2)))),
    }
    for name, (ours, theirs) in pairs.items():
        yield Agreement(name, abs(ours - theirs), noise * (1 + abs(theirs)), study.named(point))


def _change(study: Study, seen: float, largest: float) -> float:
    """What the check takes for the change of Hess Phi; of many variables anything up to the spectral norm will do."""
    return min(seen, largest) if study.is_large else largest / float(np.sqrt(study.exact.d))


def _third(study: Study, point: Floats) -> Floats | None:
    """The change of Hess Phi along the first variable, from certificates next door."""
    exact = [sp.Rational(float(value)) for value in point]
    low, high = study.x_ends
    step = STEP * sp.Rational(float(high[0] - low[0] or 1.0))
    try:
        ahead, behind = (
            evaluate(study.exact, [exact[0] + s * step, *exact[1:]], digits=ROUTE_DIGITS).hess_phi for s in (1, -1)
        )
    except BilevelError:
        return None
    with mpmath_digits(ROUTE_DIGITS):
        width = 2 * mpmath.mpf(int(step.p)) / int(step.q)
        rows = [
            [(p.mid - q.mid) / width for p, q in zip(r, s, strict=True)] for r, s in zip(ahead, behind, strict=True)
        ]
    return np.array([[float(entry) for entry in row] for row in rows])


def _floats(balls: tuple[Any, ...]) -> Floats:
    return np.array([float(ball) for ball in balls])


def _hessian(exact: PointCertificate) -> Floats:
    return np.array([[float(ball) for ball in row] for row in exact.hess_phi])


# ---- brackets --------------------------------------------------------------------------------------------------------


@lru_cache(2)
def _seen(study: Study) -> dict[str, tuple[Floats, Floats, Floats]]:
    """Points, and what the kernels see there of |grad Phi|, |Hess Phi| and the change of Hess Phi; with rounding."""
    low, high = study.x_ends
    unit = np.concatenate([study.rng("brackets").random((ROUTE_POINTS, study.exact.d)), np.zeros((1, study.exact.d))])
    unit = np.concatenate([unit, 1 - unit[-1:], np.full((1, study.exact.d), 0.5)])
    step = NEIGHBOUR_SHARE * np.where(unit[:, :1] > 0.5, -1.0, 1.0) * np.eye(study.exact.d)[0]
    near, there = low + (high - low) * unit, low + (high - low) * (unit + step)
    kept = np.isfinite(lower_levels(study.kernels, near)).all(axis=1)
    kept &= np.isfinite(lower_levels(study.kernels, there)).all(axis=1)
    near, there = near[kept], there[kept]
    if not len(near):
        return {}
    grad, hess, other = study.kernels.grad_phi(near), study.kernels.hess_phi(near), study.kernels.hess_phi(there)
    distance = np.maximum(np.linalg.norm(near - there, axis=1), 1e-300)
    noise = 1e-9 * (1 + largest_values(hess))
    return {
        "grad_norm": (near, np.linalg.norm(grad, axis=1), 1e-9 * (1 + np.linalg.norm(grad, axis=1))),
        "L_phi": (near, largest_values(hess), noise),
        "rho_phi": (near, largest_values(hess - other) / distance, noise / distance),
    }


def against_bracket(study: Study, name: str, bracket: Bracket) -> str:
    """Why a certified bracket cannot be right, in words; empty where nothing that was seen contradicts it.

    More than its upper end must not be seen anywhere, and its lower end must be attained where it says.
    """
    seen = _seen(study).get(name)
    if seen is not None:
        x, values, noise = seen
        sure = values - noise
        k = first_largest(sure, skip_nan=True)  # what overflows was not seen
        if sure[k] > bracket.upper:
            return f"{values[k]:.6g} was seen at {study.named(x[k])}, above the certified bracket {bracket}"
    point = study.smoothness.points.get(name)
    if name != "rho_phi" and point is not None and bracket.lower > 0:
        x = np.array([point[s.name] for s in study.exact.x])
        value = study.kernels.grad_phi(x) if name == "grad_norm" else study.kernels.hess_phi(x)
        attained = float(np.linalg.norm(value, 2))
        if attained < bracket.lower * (1 - 1e-6):
            return f"only {attained:.6g} is attained at {point}, below the certified bracket {bracket}"
    return ""


REGION = "points of the box in x"


@claim("own:routes")
def routes(study: Study) -> Iterator[CheckResult]:
    """Kernels, certificates and the terms that measures are made of agree on y*, Phi and its derivatives.

    The kernels go by the Lagrangian in float64, certificates in balls, the measures term by term from dy_dx and
    d2y_dx2; dy_dx solves g_xy + dy_dx g_yy = 0
    """
    label = "own:routes"
    found = list(_certified(study)) if study.exact.d + study.exact.n <= MOST_ROUTE_VARIABLES else []
    yield agreed(label, study, found, what="the kernels against certified digits", part="kernels")
    x, at, rounding = _sample_points(study)
    found = _terms(study, x, at, rounding)
    yield agreed(label, study, found, what="term by term against the kernels", part="two routes")
    found = _points(study, "g_xy + dy_dx g_yy", at["g_xy"] + at.dy_dx @ at["g_yy"], rounding, x)
    yield agreed(label, study, found, what="the dy_dx of the measures", part="in the measures")
