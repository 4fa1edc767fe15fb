"""The loop and Algorithm 1: trajectories against exact arithmetic, bit for bit alone and in company, and every way to end."""

from __future__ import annotations

import math
import os
import signal
import threading
import tracemalloc
import warnings
from collections.abc import Callable
from fractions import Fraction
from functools import lru_cache
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import scipy.stats
import sympy as sp
from helpers import logistic
from hypothesis import given

from bilevel_sym import (
    AID,
    ITD,
    BilevelProblem,
    Descent,
    Exact,
    GDmax,
    INeon,
    LocalMinimum,
    MinimaxProblem,
    Neumann,
    Perturbed,
    Solution,
    State,
    Status,
    StocBiO,
    compile_kernels,
    sigmoid,
    softplus,
    solve,
    zoo,
)
from bilevel_sym.errors import AssumptionViolated, BilevelError, InvalidArgument, InvalidProblem, KernelError
from bilevel_sym.estimators.hypergradient import Estimator
from bilevel_sym.implicit import session_engine
from bilevel_sym.implicit.lower_level import solve_lower_level
from bilevel_sym.implicit.model import Model
from bilevel_sym.kernels.choice import Backend
from bilevel_sym.kernels.tape_engine import TapeEngine
from bilevel_sym.solvers.local_minimum import curvature_at
from bilevel_sym.solvers.noise import seeds_for, uniform_in_ball
from bilevel_sym.theories.huang_saddle.constants import Constants, MinimaxConstants
from bilevel_sym.typing import Floats

Rows = list[list[Fraction]]
Q = sp.Rational

BACKENDS = ["tape", "compiled", "lambdify"]
TOY = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
STEP = Descent(AID(D=1, N=1, tau=1.0), eta=0.25)


@pytest.fixture(params=BACKENDS)
def backend(request: pytest.FixtureRequest) -> Any:
    if request.param == "compiled":
        pytest.importorskip("numba")
    return request.param


@pytest.fixture(params=BACKENDS[:2])
def tape_backend(request: pytest.FixtureRequest) -> Any:
    """For what does not depend on how blocks are computed: without SymPy's functions, which are slow."""
    if request.param == "compiled":
        pytest.importorskip("numba")
    return request.param


# ---- trajectories in closed form ------------------------------------------------------------------------------------


@lru_cache(None)
def quadratic(d: int, n: int, spectrum: str) -> Any:
    return zoo.get("quadratic", d=d, n=n, spectrum=spectrum)


def blocks(p: BilevelProblem) -> dict[str, Any]:
    """The gradients of a quadratic problem as exact affine maps of (x, y), and its constant second derivatives."""
    both = [*p.x, *p.y]

    def affine(expressions: list[sp.Expr]) -> tuple[Rows, list[Fraction]]:
        matrix = [[fraction(sp.diff(e, s)) for s in both] for e in expressions]
        return matrix, [fraction(e.subs(dict.fromkeys(both, 0))) for e in expressions]

    gradients = {
        f"{name}_{level}": affine([sp.diff(h, s) for s in variables])
        for name, h in (("f", p.f), ("g", p.g))
        for level, variables in (("x", p.x), ("y", p.y))
    }
    second = {
        "g_yy": [[fraction(sp.diff(p.g, s, t)) for t in p.y] for s in p.y],
        "g_xy": [[fraction(sp.diff(p.g, s, t)) for t in p.y] for s in p.x],
    }
    return gradients | second


def fraction(number: sp.Expr) -> Fraction:
    value = sp.Rational(number)
    return Fraction(int(value.p), int(value.q))


def dot(a: list[Fraction], b: list[Fraction]) -> Fraction:
    return sum((s * t for s, t in zip(a, b, strict=True)), Fraction(0))


def apply(matrix: Rows, vector: list[Fraction]) -> list[Fraction]:
    return [dot(row, vector) for row in matrix]


@lru_cache(None)
def rational_aid(
    p: BilevelProblem, start: tuple[Fraction, ...], steps: int, *, D: int, N: int, tau: Fraction, eta: Fraction
) -> list[list[list[Fraction]]]:
    """x, y, v, grad of descent with AID, all of it in rational arithmetic."""
    b, x = blocks(p), list(start)

    def gradient(name: str, x: list[Fraction], y: list[Fraction]) -> list[Fraction]:
        matrix, constant = b[name]
        return [s + t for s, t in zip(apply(matrix, [*x, *y]), constant, strict=True)]

    y, v, path = [Fraction(0)] * p.n, [Fraction(0)] * p.n, []
    for _ in range(steps + 1):
        for _ in range(D):
            y = [s - tau * t for s, t in zip(y, gradient("g_y", x, y), strict=True)]
        residual = [s - t for s, t in zip(gradient("f_y", x, y), apply(b["g_yy"], v), strict=True)]
        direction = residual
        for _ in range(N):
            if not any(residual):
                break
            image = apply(b["g_yy"], direction)
            alpha = dot(residual, residual) / dot(direction, image)
            v = [s + alpha * t for s, t in zip(v, direction, strict=True)]
            rest = [s - alpha * t for s, t in zip(residual, image, strict=True)]
            beta = dot(rest, rest) / dot(residual, residual)
            residual, direction = rest, [s + beta * t for s, t in zip(rest, direction, strict=True)]
        grad = [s - t for s, t in zip(gradient("f_x", x, y), apply(b["g_xy"], v), strict=True)]
        path.append([x, y, v, grad])
        x = [s - eta * t for s, t in zip(x, grad, strict=True)]
    return path


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize(
    ("d", "n", "spectrum"), [(1, 1, "2"), (2, 3, "two"), (3, 2, "isotropic"), (2, 3, "10"), (1, 3, "4")]
)
@pytest.mark.parametrize(("D", "N"), [(1, 1), (2, 2), (1, 3)])
def test_descent_with_aid_is_its_rational_recursion(
    backend: Any, d: int, n: int, spectrum: str, D: int, N: int
) -> None:
    """y and v lag behind x and are carried on: the warm starts are part of the recursion."""
    p = quadratic(d, n, spectrum).problem
    start = tuple(Fraction(k + 1, 4) for k in range(d))
    # the exact recursion's numbers double their digits at every step of conjugate gradients: few outer steps
    wanted = rational_aid(p, start, 3, D=D, N=N, tau=Fraction(1, 16), eta=Fraction(1, 8))
    found = solve(p, Descent(AID(D, N, 1 / 16), 1 / 8), [float(s) for s in start], steps=3, backend=backend).trajectory
    for k, state in enumerate(wanted):
        for name, value in zip(("x", "y", "v", "grad_phi_hat"), state, strict=True):
            exact = np.array([float(e) for e in value])
            np.testing.assert_allclose(
                getattr(found, name)[k], exact, rtol=0, atol=2e-12 * (1 + np.abs(exact).max()), err_msg=f"{name}[{k}]"
            )


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize(("d", "n", "spectrum"), [(1, 1, "2"), (2, 3, "two"), (4, 2, "isotropic"), (3, 4, "30")])
def test_exact_descent_on_a_quadratic_is_a_matrix_power(backend: Any, d: int, n: int, spectrum: str) -> None:
    """x_k - x* = (I - eta H)^k (x_0 - x*), with H and x* exact rationals."""
    example = quadratic(d, n, spectrum)
    H = sp.hessian(example.phi, example.problem.x)
    x_star = sp.Matrix(example.stationary_points[0].x)
    x0 = sp.Matrix([Q(k + 1, 4) for k in range(d)])
    found = solve(example.problem, Descent(Exact(), 1 / 8), [float(e) for e in x0], steps=12, backend=backend)
    gap = x0 - x_star
    for k in range(13):
        wanted = np.array([float(e) for e in x_star + gap])
        scale = 1 + float(max(abs(e) for e in gap))
        np.testing.assert_allclose(found.trajectory.x[k], wanted, rtol=0, atol=1e-13 * scale * (k + 1))
        np.testing.assert_allclose(
            found.trajectory.phi[k],
            float(example.phi.subs(dict(zip(example.problem.x, x_star + gap, strict=True)))),
            rtol=1e-11,
            atol=1e-11 * scale,
        )
        gap = (sp.eye(d) - H / 8) * gap


@pytest.mark.parametrize("estimator", [AID(4, 2, 0.05), ITD(4, 0.05), Neumann(3, 0.05, 4)])
def test_the_loop_is_the_estimator_again_and_again(backend: Any, estimator: Estimator) -> None:
    """x, y and v are carried from one estimate to the next, and nothing else happens."""
    p = every_function()
    x, y, v = np.array([0.3, 0.6]), np.array([0.1, -0.1]), np.array([0.2, 0.05])
    found = solve(p, Descent(estimator, 0.05), x, y0=y, v0=v, steps=6, backend=backend)
    for k in range(7):
        here = estimator.estimate(p, x, y0=y, v0=v)
        np.testing.assert_allclose(found.trajectory.x[k], x, rtol=1e-11)
        np.testing.assert_allclose(found.trajectory.grad_phi_hat[k], here.grad_phi_hat, rtol=1e-10)
        np.testing.assert_allclose(found.trajectory.phi_hat[k], here.phi_hat, rtol=1e-10)
        x, y, v = x - 0.05 * here.grad_phi_hat, here.y_D, here.v_N
    np.testing.assert_allclose(found.y, y, rtol=1e-11)
    np.testing.assert_allclose(found.trajectory.v[-1], v, rtol=1e-10)


# ---- the inexact descent lemma ---------------------------------------------------------------------------------------


@pytest.mark.slow
@given(
    d=st.integers(1, 3), n=st.integers(1, 3), seed=st.integers(0, 10**6), D=st.integers(1, 4), N=st.integers(1, 3),
    start=st.floats(-2, 2, allow_nan=False),
)  # fmt: skip
def test_descent_on_quadratics_obeys_the_inexact_descent_lemma(
    d: int, n: int, seed: int, D: int, N: int, start: float
) -> None:
    """Phi(x+) - Phi(x) <= -(eta/4) |ghat|^2 + eta |grad - ghat|^2 with eta = 1/L and L exactly known."""
    p = zoo.get("quadratic", d=d, n=n, spectrum="two", seed=seed).problem
    k = p.kernels
    hess = k.hess_phi(np.zeros(d))
    eta = 1 / np.linalg.norm(hess, 2)
    t = solve(p, Descent(AID(D, N, 0.2), float(eta)), np.full(d, start), steps=8, backend="tape").trajectory
    grad = k.grad_phi(t.x)
    fall = np.diff(t.phi)
    bound = -(eta / 4) * (t.grad_phi_hat**2).sum(axis=1) + eta * ((grad - t.grad_phi_hat) ** 2).sum(axis=1)
    assert (fall <= bound[:-1] + 1e-11 * (1 + np.abs(t.phi).max())).all()


@pytest.mark.parametrize("estimator", [AID(1, 1, 0.1), AID(3, 2, 0.1), ITD(2, 0.1), Neumann(1, 0.1, 1)])
def test_descent_obeys_the_inexact_descent_lemma_where_phi_is_not_quadratic(estimator: Estimator) -> None:
    """L is measured along each segment and given a tenth; a step obeys the lemma wherever eta L <= 1."""
    p = zoo.get("saddle", d=2).problem
    eta, k = 0.2, p.kernels
    x0 = np.random.default_rng(0).uniform(-2.5, 2.5, (40, 2))
    t = solve(p, Descent(estimator, eta), x0, steps=10).trajectory
    at = np.linspace(0, 1, 21)[:, None, None, None]
    segment = t.x[:, :-1] + at * (t.x[:, 1:] - t.x[:, :-1])
    L = 1.1 * np.linalg.norm(k.hess_phi(segment.reshape(-1, 2)), 2, axis=(1, 2)).reshape(21, 40, 10).max(axis=0)
    error = ((k.grad_phi(t.x.reshape(-1, 2)).reshape(t.x.shape) - t.grad_phi_hat) ** 2).sum(axis=2)[:, :-1]
    bound = -(eta / 4) * (t.grad_phi_hat**2).sum(axis=2)[:, :-1] + eta * error
    valid = eta * L <= 1
    assert valid.mean() > 0.5
    assert (np.diff(t.phi, axis=1) <= bound + 1e-12)[valid].all()


# ---- Algorithm 1 ---------------------------------------------------------------------------------------------------


def by_hand(p: BilevelProblem, a: Perturbed, x: Floats, steps: int, seed: int) -> tuple[Floats, list[int]]:
    """Algorithm 1 in plain Python; as printed, or with a perturbation as an iteration of its own."""
    stream, y, v = np.random.default_rng(seed), np.zeros(p.n), np.zeros(p.n)
    estimator = a.estimator
    if a.as_printed:
        assert isinstance(estimator, AID)
        estimator = AID(estimator.D + 1, estimator.N, estimator.tau)
    path, perturbed, last = [x], [], 0 if a.as_printed else -math.inf
    for k in range(steps):
        here = estimator.estimate(p, x, y0=y, v0=v)
        y, v, grad = here.y_D, here.v_N, here.grad_phi_hat
        if np.linalg.norm(grad) <= 0.8 * a.eps and k - last > a.T_escape:
            u = uniform_in_ball(stream, p.d, a.r)
            x, last = x - a.eta * u, k
            perturbed.append(k)
            if not a.as_printed:
                path.append(x)
                continue
        x = x - a.eta * grad
        path.append(x)
    return np.array(path), perturbed


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("as_printed", [False, True])
@pytest.mark.parametrize("T_escape", [1, 3, 4.2])
@pytest.mark.parametrize("start", [[0.0, 0.0], [0.0, 0.4], [2.05, 0.1]])
def test_perturbed_is_algorithm_1(backend: Any, as_printed: bool, T_escape: float, start: list[float]) -> None:
    p = zoo.get("saddle", d=2).problem
    a = Perturbed(AID(4, 2, 0.25), 0.2, 0.3, 0.1, T_escape, as_printed=as_printed)  # type: ignore[arg-type]
    assert a.T_escape == math.ceil(T_escape)
    found = solve(p, a, start, steps=25, rng=11, backend=backend)
    path, perturbed = by_hand(p, a, np.array(start), 25, 11)
    assert np.flatnonzero(found.trajectory.perturbed).tolist() == perturbed
    assert len(perturbed) >= 2
    np.testing.assert_allclose(found.trajectory.x, path, rtol=1e-9, atol=1e-12)
    assert min(np.diff(perturbed)) > a.T_escape


def test_the_first_perturbation_comes_at_once_or_as_printed_late() -> None:
    p = zoo.get("saddle", d=2).problem
    first = {
        as_printed: int(
            np.argmax(
                solve(
                    p, Perturbed(AID(4, 2, 0.25), 0.2, 0.3, 0.1, 7, as_printed=as_printed), [0.0, 0.0], steps=20, rng=0
                ).trajectory.perturbed
            )
        )
        for as_printed in (False, True)
    }
    assert first == {False: 0, True: 8}  # k > T_escape as printed


def test_four_fifths_of_eps_is_the_border() -> None:
    """|grad Phi| = 2 |x| = 0.8 eps at x = 0.4 eps, which is one float, and not at the next."""
    for x0, perturbed in ((0.4, True), (np.nextafter(0.4, 1), False)):
        a = Perturbed(AID(1, 1, 1.0), 0.25, 1.0, 0.1, 3)
        assert solve(TOY, a, [x0], steps=1, rng=0).trajectory.perturbed[0] == perturbed


def test_as_printed_takes_one_more_lower_level_step_and_the_stale_gradient() -> None:
    p = BilevelProblem("x*y + x/10", "y**2/2 - x*y", "x", "y")
    a = Perturbed(AID(1, 1, 0.5), 0.25, 1.0, 0.1, 1, as_printed=True)
    t = solve(p, a, [0.1], steps=3, rng=5).trajectory
    assert t.y[0, 0] == 0.1 * 0.75  # two steps of 1/2 from zero
    (k,) = np.flatnonzero(t.perturbed)
    assert k == 2
    u = uniform_in_ball(np.random.default_rng(5), 1, 0.1)
    np.testing.assert_allclose(t.x[3], t.x[2] - 0.25 * t.grad_phi_hat[2] - 0.25 * u, rtol=1e-14)
    fresh = solve(p, Perturbed(AID(1, 1, 0.5), 0.25, 1.0, 0.1, 1), [0.1], steps=1, rng=5).trajectory
    np.testing.assert_allclose(fresh.x[1], fresh.x[0] - 0.25 * u, rtol=1e-14)  # a perturbation, and nothing else
    assert fresh.y[0, 0] == 0.05


def least_p_value(u: Floats) -> float:
    """The least of the p-values of what is true of points that are uniform in the unit ball; 0 where one lies outside.

    Kolmogorov-Smirnov: |u|^d is uniform, and a squared coordinate of u/|u| is Beta(1/2, (d-1)/2), whatever |u| is.
    """
    d, length = u.shape[1], np.linalg.norm(u, axis=1)
    if length.max() > 1:
        return 0.0
    values = [
        scipy.stats.kstest(length**d, "uniform").pvalue,
        scipy.stats.binomtest(int((u[:, 0] > 0).sum()), len(u)).pvalue,
    ]
    if d > 1:
        cdf, unit, far = scipy.stats.beta(0.5, (d - 1) / 2).cdf, u / length[:, None], length > np.median(length)
        values += [scipy.stats.kstest(unit[:, axis] ** 2, cdf).pvalue for axis in range(d)]
        values += [scipy.stats.ks_2samp(unit[far, axis], unit[~far, axis]).pvalue for axis in range(d)]
    return float(min(values))


def noise_of_a_run(d: int, count: int, backend: Any = "auto") -> Floats:
    """u/r as it acts on x at an exact saddle: (x_0 - x_1)/(eta r)."""
    p = zoo.get("saddle", d=d).problem
    a = Perturbed(AID(1, 1, 0.25), 0.125, 1.0, 0.5, 3)
    found = solve(p, a, np.zeros((count, d)), steps=1, rng=2024, record="last", backend=backend)
    noise: Floats = -found.x / (0.125 * 0.5)
    return noise


@pytest.mark.slow
@pytest.mark.parametrize("d", [1, 2, 3, 5])
def test_the_noise_is_uniform_in_the_ball(tape_backend: Any, d: int) -> None:
    """Of up to 12 tests with a fixed seed, none would fail at the level 1e-3 in 99 of 100 seeds."""
    u = noise_of_a_run(d, 3000, tape_backend)
    assert least_p_value(u) > 1e-3
    assert len(np.unique(u, axis=0)) == len(u)


def test_the_noise_is_the_members_own_stream_whatever_the_backend(backend: Any) -> None:
    p = zoo.get("saddle", d=3).problem
    a = Perturbed(AID(1, 1, 0.25), 0.125, 1.0, 0.5, 2)
    found = solve(p, a, np.zeros((5, 3)), steps=8, rng=9, backend=backend)
    for seed, x, flags in zip(found.seed, found.trajectory.x, found.trajectory.perturbed, strict=True):
        stream = np.random.default_rng(seed)
        assert flags[0]
        np.testing.assert_allclose(x[1], -0.125 * uniform_in_ball(stream, 3, 0.5), rtol=1e-14)


# ---- the same bits alone and in company ------------------------------------------------------------------------------


@lru_cache(None)
def every_function() -> BilevelProblem:
    """exp, log, sin, cos, tan, tanh, atan, sqrt, rational powers, Piecewise, softplus and sigmoid, in both levels."""
    x, y = sp.symbols("x1:3", real=True), sp.symbols("y1:3", real=True)
    f = sp.exp(-x[0]) * y[0] + sp.log(2 + x[0]) * y[1] + sp.sin(x[1] * y[0]) + sp.cos(y[1]) + sp.tan(x[0] / 3) / 4
    f += sp.tanh(y[0]) + sp.atan(x[1] + y[1]) + sp.sqrt(3 + x[1]) + (4 + x[0]) ** Q(2, 3) + softplus(y[0] - x[1])
    f += sp.Piecewise((x[0] ** 2, x[0] < Q(1, 3)), (2 * x[0] ** 2 - x[0] / 3, True)) + sigmoid(y[1]) + 1 / (4 + x[1])
    g = (
        (6 + sp.sin(x[0])) * y[0] ** 2
        + 5 * y[1] ** 2
        + y[0] * y[1] / 3
        - sp.tanh(x[0]) * y[0]
        - sp.exp(x[1] / 4) * y[1]
    )
    g += softplus(y[0] + x[1]) + sp.cos(y[1]) + sp.atan(y[0]) / 9 + sp.log(2 + x[0]) * y[1] ** 2 / 7
    g += sp.Piecewise((y[0] ** 3 / 30, y[0] > 0), (0, True)) + (5 + y[1]) ** Q(5, 2) / 99
    return BilevelProblem(f, g, x, y)


@lru_cache(None)
def company(name: str) -> tuple[BilevelProblem, Floats]:
    """A problem and 37 starts, of which some leave the domain, diverge, break down or finish early."""
    rng = np.random.default_rng(3)
    if name == "functions":
        x = rng.uniform(-0.9, 0.9, (37, 2))
        x[[4, 20]] = [-2.5, 0.1]  # outside the domain of the logarithm at once
        x[[7, 30]] = [-1.9, 0.0]  # and soon
        return every_function(), x
    if name == "dense":
        return logistic(5, 20), rng.uniform(-1, 1, (37, 5))
    if name == "quartic":
        p = BilevelProblem("y - x**3/50", "tanh(x + 3)*y**2/2 - tanh(x)*y + y", "x", "y")
        x = rng.uniform(-1, 1, (37, 1))
        x[[0, 5]], x[[16, 36]] = 5000.0, -3.5  # diverge; g_yy is not positive definite
        return p, x
    if name == "saddle":
        return zoo.get("saddle", d=2).problem, np.concatenate([np.zeros((9, 2)), rng.uniform(-2, 2, (28, 2))])
    if name == "minimax":
        p = MinimaxProblem(
            "cos(x1) + sin(x1)*y1 + x2**2*y1/5 - exp(y1) - y1**2 - y2**2*(3 + cos(x2)) + x2*y2", "x1 x2", "y1 y2"
        )
        return p, rng.uniform(-2, 2, (37, 2))
    raise KeyError(name)


NEON = INeon(AID(6, 2, 0.05), 0.1, 0.3, 0.5, 30, 1e-3)
RUNS: dict[str, tuple[str, Any, Any]] = {
    "AID": ("functions", Descent(AID(3, 2, 0.05), 0.1), None),
    "ITD": ("functions", Descent(ITD(3, 0.05), 0.1), None),
    "Neumann": ("functions", Descent(Neumann(3, 0.05, 2), 0.1), None),
    "exact": ("functions", Descent(Exact(), 0.1), None),
    "dense AID": ("dense", Perturbed(AID(3, 2, 0.02), 0.05, 2.0, 0.5, 2), None),
    "dense exact": ("dense", Descent(Exact(), 0.05), None),
    "diverging": ("quartic", Descent(AID(2, 1, 0.1), 0.2), None),
    "exact, failing": ("quartic", Descent(Exact(), 0.2), None),
    "stopped": ("quartic", Descent(AID(2, 1, 0.1), 0.02), lambda state: state.k * abs(state.x[0]) > 3),
    "perturbed": ("saddle", Perturbed(AID(4, 2, 0.1), 0.2, 0.5, 0.3, 3), LocalMinimum(0.5)),
    "as printed": ("saddle", Perturbed(AID(4, 2, 0.1), 0.2, 0.5, 0.3, 3, as_printed=True), None),
    "iNEON": ("saddle", Descent(AID(6, 2, 0.1), 0.1, escape=NEON), None),
    "GDmax": ("minimax", Perturbed(GDmax(3, 0.1), 0.1, 0.5, 0.1, 2), None),
}
FIELDS = ("x", "y", "v", "grad_phi_hat", "phi_hat", "perturbed", "calls")


@lru_cache(None)
def whole_run(name: str, backend: Any, record: Any) -> Solution:
    case, algorithm, stop = RUNS[name]
    p, x = company(case)
    return solve(p, algorithm, x, steps=12, rng=77, stop=stop, record=record, backend=backend)


def assert_same_rows(part: Solution, whole: Solution, rows: Any) -> None:
    """Bit for bit; lengths of the recorded arrays may differ where the longest member is not among the rows."""
    for name in ("x", "y", "grad_phi_hat", "phi_hat", "steps"):
        assert np.array_equal(getattr(part, name), getattr(whole, name)[rows], equal_nan=name != "steps"), name
    assert part.status == tuple(whole.status[row] for row in rows)
    for name in ("x", "y", "phi_hat", "k"):
        assert np.array_equal(getattr(part.best, name), getattr(whole.best, name)[rows], equal_nan=name != "k"), (
            f"best.{name}"
        )
    for name in ("G_f", "G_g", "JV_g", "HV_g"):
        assert np.array_equal(getattr(part.counters, name), getattr(whole.counters, name)[rows]), name
    if part.recorded is not None and whole.recorded is not None:
        assert np.array_equal(part.trajectory.length, whole.trajectory.length[rows])
        stop = part.trajectory.x.shape[1]
        for name in FIELDS:
            mine, theirs = getattr(part.trajectory, name), getattr(whole.trajectory, name)[rows][:, :stop]
            assert np.array_equal(mine, theirs, equal_nan=mine.dtype == np.float64), name


ORDERS = {
    "shuffled": np.random.default_rng(0).permutation(37).tolist(),
    "the odd ones": list(range(1, 37, 2)),
    "the last": [36],
    "seventeen": list(range(20, 37)),
    "those in trouble": [0, 4, 5, 7, 16, 20, 30, 36],
    "one twice": [8, 9, 8],
}


def _companies() -> list[Any]:
    """Every run in every backend; SymPy's is slow, and what is kept of a run hardly depends on it."""
    return [
        pytest.param(backend, name, record, marks=[pytest.mark.slow] * (backend == "lambdify" and (record == "last" or "dense" in name)))
        for backend in BACKENDS
        for name in RUNS
        for record in ("all", "last")
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.in_ci(record=["all"], every=2)
@pytest.mark.parametrize(("backend", "name", "record"), _companies(), indirect=["backend"])
def test_a_trajectory_has_the_same_bits_in_any_company(backend: Any, name: str, record: Any) -> None:
    case, algorithm, stop = RUNS[name]
    p, x = company(case)
    whole = whole_run(name, backend, record)
    few = record == "last" or backend == "lambdify"
    for rows in (ORDERS[key] for key in (("shuffled", "the last") if few else ORDERS)):
        seeds = [whole.seed[row] for row in rows]
        part = solve(p, algorithm, x[rows], steps=12, rng=seeds, stop=stop, record=record, backend=backend)
        assert_same_rows(part, whole, rows)
    for row in (0, 7, 36):
        alone = solve(p, algorithm, x[row], steps=12, rng=whole.seed[row], stop=stop, record=record, backend=backend)
        assert alone.x.shape == (p.d,)
        assert np.array_equal(alone.x, whole.x[row])
        assert alone.status == whole.status[row]
        assert alone.seed == (whole.seed[row],)
        assert np.array_equal(alone.phi_hat, whole.phi_hat[row], equal_nan=True)


@pytest.mark.slow
def test_the_company_really_meets_every_end(tape_backend: Any) -> None:
    ends = {name: set(whole_run(name, tape_backend, "all").status) for name in RUNS}
    assert Status.NOT_FINITE in ends["AID"]
    assert Status.OUT_OF_STEPS in ends["AID"]
    assert {Status.DIVERGED, Status.BREAKDOWN, Status.OUT_OF_STEPS} <= ends["diverging"]
    assert Status.LOWER_LEVEL_FAILURE in ends["exact, failing"]
    assert {Status.STOPPED, Status.OUT_OF_STEPS} <= ends["stopped"]
    assert Status.LOCAL_MINIMUM in ends["perturbed"]
    assert Status.LOCAL_MINIMUM in ends["iNEON"]
    assert whole_run("perturbed", tape_backend, "all").trajectory.perturbed.any()
    assert whole_run("GDmax", tape_backend, "all").trajectory.perturbed.any()


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_recording_changes_nothing(tape_backend: Any, name: str) -> None:
    everything, last = whole_run(name, tape_backend, "all"), whole_run(name, tape_backend, "last")
    assert_same_rows(last, everything, list(range(37)))


@pytest.mark.slow
@pytest.mark.parametrize("name", RUNS)
def test_the_last_recorded_point_is_the_result(tape_backend: Any, name: str) -> None:
    s = whole_run(name, tape_backend, "all")
    t = s.trajectory
    for row in range(37):
        if s.status[row].ok or s.steps[row]:
            assert np.array_equal(t.x[row, s.steps[row]], s.x[row])
            assert np.array_equal(t.grad_phi_hat[row, s.steps[row]], s.grad_phi_hat[row], equal_nan=True)
            assert np.nanmin(t.phi_hat[row]) == s.best.phi_hat[row]
            assert np.array_equal(t.x[row, s.best.k[row]], s.best.x[row])
        assert np.isnan(t.x[row, s.steps[row] + 1 :]).all()
        assert not t.perturbed[row, s.steps[row] + 1 :].any()
    assert (t.length == s.steps + 1).all()


@pytest.mark.slow
@pytest.mark.parametrize("name", ["AID", "ITD", "Neumann", "dense AID", "perturbed", "GDmax"])
def test_the_backends_agree(name: str) -> None:
    """Three ways to compute, one trajectory; rounding is all that differs."""
    pytest.importorskip("numba")
    tape, compiled, lambdify = (whole_run(name, backend, "all") for backend in BACKENDS)
    for other in (compiled, lambdify):
        assert other.seed == tape.seed
        assert other.status == tape.status
        assert np.array_equal(other.trajectory.perturbed, tape.trajectory.perturbed)
        np.testing.assert_allclose(other.trajectory.x, tape.trajectory.x, rtol=1e-9, atol=1e-12)
        np.testing.assert_allclose(other.trajectory.grad_phi_hat, tape.trajectory.grad_phi_hat, rtol=1e-8, atol=1e-11)
        within = np.arange(13) < tape.trajectory.length[:, None]
        assert np.array_equal(other.trajectory.length, tape.trajectory.length)
        assert np.array_equal(other.trajectory.calls[within], tape.trajectory.calls[within])
        for counter in ("G_f", "G_g", "JV_g", "HV_g"):
            assert np.array_equal(getattr(other.counters, counter), getattr(tape.counters, counter))


def test_beyond_the_end_of_a_trajectory_the_backends_agree_too() -> None:
    pytest.importorskip("numba")
    tape, compiled = (whole_run("AID", backend, "all").trajectory for backend in BACKENDS[:2])
    assert np.array_equal(tape.calls, compiled.calls)


@pytest.mark.slow
@given(st.data())
def test_any_subset_in_any_order_has_the_same_bits(data: st.DataObject) -> None:
    rows = data.draw(st.lists(st.integers(0, 36), min_size=1, max_size=20))
    name = data.draw(st.sampled_from(["AID", "diverging", "perturbed", "dense AID"]))
    case, algorithm, stop = RUNS[name]
    p, x = company(case)
    whole = whole_run(name, "tape", "all")
    part = solve(p, algorithm, x[rows], steps=12, rng=[whole.seed[row] for row in rows], stop=stop, backend="tape")
    assert_same_rows(part, whole, rows)


def test_more_members_than_lanes_fit_a_chunk(tape_backend: Any) -> None:
    p, x = company("functions")
    many = np.tile(x, (60, 1))  # 2220 members
    whole = solve(p, Descent(AID(2, 1, 0.05), 0.1), many, steps=3, rng=0, record="last", backend=tape_backend)
    few = solve(p, Descent(AID(2, 1, 0.05), 0.1), x, steps=3, rng=0, record="last", backend=tape_backend)
    assert np.array_equal(whole.x, np.tile(few.x, (60, 1)))
    assert whole.status == few.status * 60


# ---- seeds ---------------------------------------------------------------------------------------------------------

NOISY = Perturbed(AID(2, 2, 0.25), 0.2, 0.5, 0.3, 2)


def test_the_same_seed_gives_the_same_bits_and_another_does_not(backend: Any) -> None:
    p = zoo.get("saddle", d=2).problem
    a, b, c = (solve(p, NOISY, np.zeros((4, 2)), steps=15, rng=seed, backend=backend) for seed in (1, 1, 2))
    assert np.array_equal(a.trajectory.x, b.trajectory.x)
    assert a.seed == b.seed
    assert not np.array_equal(a.trajectory.x, c.trajectory.x)
    assert len(set(a.seed)) == 4


def test_generators_and_fresh_seeds_can_be_repeated_from_what_is_returned() -> None:
    p = zoo.get("saddle", d=2).problem
    for rng in (None, np.random.default_rng(5)):
        first = solve(p, NOISY, np.zeros((3, 2)), steps=10, rng=rng)
        again = solve(p, NOISY, np.zeros((3, 2)), steps=10, rng=first.seed)
        assert np.array_equal(first.trajectory.x, again.trajectory.x)
    assert solve(p, NOISY, np.zeros((3, 2)), steps=1).seed != solve(p, NOISY, np.zeros((3, 2)), steps=1).seed


def test_a_prefix_of_an_ensemble_keeps_its_seeds() -> None:
    assert seeds_for(7, 2) == seeds_for(7, 9)[:2]
    assert seeds_for(7, 0) == ()
    assert seeds_for(7, 1) == (7,)
    assert seeds_for(np.int64(7), 3) == seeds_for(7, 3)  # type: ignore[arg-type]
    assert len(set(seeds_for(0, 10_000))) == 10_000


def test_a_generator_draws_from_all_seeds() -> None:
    drawn = np.random.default_rng(3).integers(0, 2**63, 4)
    assert seeds_for(np.random.default_rng(3), 4) == tuple(drawn.tolist())


# ---- shapes, statuses, stopping -----------------------------------------------------------------------------------------


def test_one_trajectory_has_no_axis_for_the_ensemble(backend: Any) -> None:
    p = every_function()
    one = solve(p, Descent(AID(2, 1, 0.05), 0.1), [0.1, 0.2], steps=3, backend=backend)
    row = solve(p, Descent(AID(2, 1, 0.05), 0.1), [[0.1, 0.2]], steps=3, backend=backend)
    assert (one.x.shape, one.y.shape, np.ndim(one.phi_hat), np.ndim(one.phi)) == ((2,), (2,), 0, 0)
    assert (row.x.shape, row.y.shape, np.shape(row.phi_hat), np.shape(row.phi)) == ((1, 2), (1, 2), (1,), (1,))
    assert one.status is Status.OUT_OF_STEPS
    assert row.status == (Status.OUT_OF_STEPS,)
    assert one.trajectory.x.shape == (4, 2)
    assert row.trajectory.x.shape == (1, 4, 2)
    assert one.trajectory.phi.shape == (4,)
    assert np.array_equal(one.trajectory.x, row.trajectory.x[0])
    assert (int(one.steps), row.steps.tolist()) == (3, [3])
    assert np.ndim(one.counters.G_f) == 0
    assert row.counters.G_f.shape == (1,)
    assert one.best.x.shape == (2,)


def test_nobody_is_an_ensemble_too(backend: Any) -> None:
    for algorithm in (STEP, Descent(Exact(), 0.1), Perturbed(AID(1, 1, 1.0), 0.1, 0.1, 0.1, 3)):
        none = solve(TOY, algorithm, np.empty((0, 1)), steps=3, rng=0, backend=backend)
        assert none.x.shape == (0, 1)
        assert (none.status, none.seed, none.ok) == ((), (), True)
        assert none.trajectory.x.shape[0] == 0
        assert none.phi.shape == (0,)
        assert none.counters.G_g.shape == (0,)


@pytest.mark.parametrize("record", ["all", "last"])
def test_no_steps_estimate_at_the_start(backend: Any, record: Any) -> None:
    s = solve(TOY, STEP, [3.0], steps=0, record=record, backend=backend)
    assert (s.x.tolist(), s.grad_phi_hat.tolist(), int(s.steps), s.status) == ([3.0], [6.0], 0, Status.OUT_OF_STEPS)
    assert int(s.counters.G_f) == 2


def test_starts_are_broadcast_or_given_one_by_one(backend: Any) -> None:
    p, x = company("functions")
    x = x[:3]
    y0, v0 = np.array([0.25, -0.5]), np.array([0.5, 0.125])
    a = Descent(AID(1, 1, 0.05), 0.1)
    shared = solve(p, a, x, y0=y0, v0=v0, steps=2, backend=backend)
    apart = solve(p, a, x, y0=np.tile(y0, (3, 1)), v0=np.tile(v0, (3, 1)), steps=2, backend=backend)
    cold = solve(p, a, x, steps=2, backend=backend)
    assert np.array_equal(shared.trajectory.x, apart.trajectory.x)
    assert not np.array_equal(shared.trajectory.x, cold.trajectory.x)
    zeros = solve(p, a, x, y0=[0.0, 0.0], v0=[0, 0], steps=2, backend=backend)
    assert np.array_equal(zeros.trajectory.x, cold.trajectory.x)


@pytest.mark.parametrize(
    ("problem", "algorithm", "x0", "status"),
    [
        (TOY, STEP, 1.0, Status.OUT_OF_STEPS),
        (BilevelProblem("y", "-y**2/2 - x*y", "x", "y"), STEP, 1.0, Status.BREAKDOWN),
        (BilevelProblem("log(x)*y", "y**2/2 - x*y", "x", "y"), STEP, -1.0, Status.NOT_FINITE),
        (BilevelProblem("log(x) + y", "y**2/2 - y", "x", "y"), STEP, 0.2, Status.NOT_FINITE),  # leaves after one step
        (BilevelProblem("y", "-y**2/2 - x*y", "x", "y"), Descent(Exact(), 0.1), 1.0, Status.LOWER_LEVEL_FAILURE),
        (TOY, Descent(AID(1, 1, 1.0), 1e3), 1.0, Status.DIVERGED),
        (TOY, Descent(AID(9, 1, 1e5), 0.1), 1.0, Status.DIVERGED),
    ],
)
def test_every_end_has_its_status(
    backend: Any, problem: BilevelProblem, algorithm: Any, x0: float, status: Status
) -> None:
    s = solve(problem, algorithm, [x0], steps=300, backend=backend)
    assert s.status is status
    assert s.ok == status.ok
    assert s.x.shape == (1,)
    assert not np.isnan(s.x).any()


def test_members_that_diverge_do_so_without_a_warning(backend: Any) -> None:
    s = solve(TOY, Descent(AID(1, 1, 1.0), 1e3), [[1.0], [0.0]], steps=300, backend=backend)
    assert s.status == (Status.DIVERGED, Status.OUT_OF_STEPS)


def test_a_point_at_infinity_is_not_a_success(backend: Any) -> None:
    """f is flat far out, so that everything but x itself is finite there."""
    p = BilevelProblem("tanh(x)*y - 10000000000*tanh(x)", "y**2/2 - y", "x", "y")
    s = solve(p, Descent(AID(1, 1, 1.0), 1e300), [[0.0], [400.0]], steps=5, backend=backend)
    assert s.status == (Status.DIVERGED, Status.OUT_OF_STEPS)


def test_members_that_fail_cost_the_others_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    solved: list[int] = []

    def counted(engine: Any, x: Any, y: Any, **options: Any) -> Any:
        solved.append(len(x))
        return solve_lower_level(engine, x, y, **options)

    monkeypatch.setattr(session_engine, "solve_lower_level", counted)
    p = BilevelProblem("y", "x*y**2/2 - y", "x", "y")
    x0 = np.resize([1.0, -1.0], (64, 1)) * np.linspace(1, 2, 64)[:, None]
    s = solve(p, Descent(Exact(), 0.01), x0, steps=0, backend="tape")
    assert s.status == (Status.OUT_OF_STEPS, Status.LOWER_LEVEL_FAILURE) * 32
    assert sum(solved) <= 64 * 8  # halving is enough to find any number of them


def test_the_point_of_a_member_that_fails_at_once_is_recorded(backend: Any) -> None:
    s = solve(BilevelProblem("log(x)*y", "y**2/2 - x*y", "x", "y"), STEP, [[-1.0], [1.0]], steps=2, backend=backend)
    assert s.trajectory.x[0, 0].tolist() == [-1.0]
    assert int(s.trajectory.length[0]) == 1


def test_a_failure_of_one_is_no_failure_of_others(backend: Any) -> None:
    p = BilevelProblem("log(x)*y", "y**2/2 - x*y", "x", "y")
    s = solve(p, STEP, [[1.0], [-1.0], [2.0]], steps=4, backend=backend)
    assert s.status == (Status.OUT_OF_STEPS, Status.NOT_FINITE, Status.OUT_OF_STEPS)
    assert not s.ok
    assert np.isnan(s.phi[1])
    assert np.isfinite(s.phi[[0, 2]]).all()


def test_a_rule_sees_every_point_and_stops_where_it_says(backend: Any) -> None:
    seen: list[State] = []

    def rule(state: State) -> bool:
        seen.append(state)
        return state.phi_hat < 0.3

    s = solve(TOY, STEP, [[1.0], [4.0]], steps=50, stop=rule, backend=backend)
    assert s.status == (Status.STOPPED, Status.STOPPED)
    assert s.steps.tolist() == [1, 3]
    assert [state.k for state in seen] == [0, 0, 1, 1, 2, 3]
    for state in seen:
        assert state.x.shape == state.y.shape == state.grad_phi_hat.shape == (1,)
        assert state.grad_phi_hat[0] == 2 * state.x[0]
        assert state.phi_hat == state.x[0] ** 2
    assert s.trajectory.length.tolist() == [2, 4]
    assert np.isnan(s.trajectory.x[0, 2:]).all()


@pytest.mark.parametrize("answer", [np.bool_(True), 1, True])
def test_a_rule_may_answer_with_anything_true(answer: Any) -> None:
    assert solve(TOY, STEP, [1.0], steps=3, stop=lambda state: answer).status is Status.STOPPED


def test_an_error_in_a_rule_is_the_callers() -> None:
    with pytest.raises(ZeroDivisionError):
        solve(TOY, STEP, [1.0], steps=3, stop=lambda state: bool(1 / 0))


def test_a_rule_cannot_disturb_the_run(backend: Any) -> None:
    def rule(state: State) -> bool:
        state.x[:], state.y[:], state.grad_phi_hat[:] = 99.0, 99.0, 99.0
        return False

    wanted = solve(TOY, STEP, [[1.0], [2.0]], steps=3, backend=backend).trajectory
    found = solve(TOY, STEP, [[1.0], [2.0]], steps=3, stop=rule, backend=backend).trajectory
    assert np.array_equal(found.x, wanted.x)


# ---- interruption --------------------------------------------------------------------------------------------------


def _interrupt_at(k: int) -> Callable[[State], bool]:
    def rule(state: State) -> bool:
        if state.k == k:
            raise KeyboardInterrupt
        return bool(state.x[0] > 5)

    return rule


@pytest.mark.parametrize("record", ["all", "last"])
def test_an_interrupt_keeps_what_there_is(backend: Any, record: Any) -> None:
    s = solve(TOY, STEP, [[1.0], [2.0], [9.0]], steps=50, stop=_interrupt_at(3), record=record, backend=backend)
    assert s.status == (Status.INTERRUPTED, Status.INTERRUPTED, Status.STOPPED)
    assert s.ok
    assert s.steps.tolist() == [3, 3, 0]
    assert s.x[:, 0].tolist() == [0.125, 0.25, 9.0]
    if record == "all":
        whole = solve(TOY, STEP, [[1.0], [2.0]], steps=3, backend=backend).trajectory
        assert np.array_equal(s.trajectory.x[:2], whole.x)
        assert s.trajectory.phi.shape == (3, 4)


def test_an_interrupt_inside_an_estimate_keeps_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    original, calls = AID._chunk, []

    def chunk(self: AID, *arguments: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return original(self, *arguments)

    monkeypatch.setattr(AID, "_chunk", chunk)
    s = solve(TOY, STEP, [[1.0], [2.0]], steps=50, backend="tape")
    assert s.status == (Status.INTERRUPTED, Status.INTERRUPTED)
    assert s.steps.tolist() == [1, 1]
    assert s.x.tolist() == [[0.5], [1.0]]
    calls.clear()
    calls.extend([1, 1])  # at the first estimate
    s = solve(TOY, STEP, [[1.0], [2.0]], steps=50, backend="tape")
    assert s.status == (Status.INTERRUPTED, Status.INTERRUPTED)
    assert s.x.tolist() == [[1.0], [2.0]]


@pytest.mark.slow
def test_a_real_interrupt_ends_a_long_run(tape_backend: Any) -> None:
    """SIGINT from outside, while the loop is at work: in compiled code too it is seen soon, and nothing is lost."""
    p = zoo.get("saddle", d=2).problem
    a, x = Perturbed(AID(4, 2, 0.25), 0.2, 0.3, 0.1, 5), np.full((20, 2), 0.1)
    solve(p, a, x, steps=2, rng=0, backend=tape_backend)  # compiled before the clock runs
    # a process that was started in the background may have been told to ignore it
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    timer = threading.Timer(0.3, os.kill, (os.getpid(), signal.SIGINT))
    timer.start()
    try:
        s = solve(p, a, x, steps=10**8, rng=0, record="last", backend=tape_backend)
    finally:
        timer.cancel()
        signal.signal(signal.SIGINT, before)
    assert set(s.status) == {Status.INTERRUPTED}
    assert s.steps.min() > 2
    assert s.steps.max() - s.steps.min() <= 1
    # the signal may come between noting x and noting its number
    near = [
        solve(p, a, x[0], steps=int(s.steps[0]) + k, rng=s.seed[0], record="last", backend=tape_backend).x
        for k in (0, 1)
    ]
    assert any(np.array_equal(point, s.x[0]) for point in near)


# ---- the escape lemma, literally ---------------------------------------------------------------------------------------


def rotated_waves(d: int, kappa: int) -> tuple[BilevelProblem, Constants]:
    """Phi = cos(z1) - 1 + sum of 1 - cos(z_i/kappa) with z a rotation of x: a strict saddle at 0, lambda_min = -1.

    Every derivative of f is bounded everywhere: |f_y| <= sqrt(d), second and third derivatives by 1; g is quadratic.
    """
    x, y = sp.symbols(f"x1:{d + 1}", real=True), sp.symbols(f"y1:{d + 1}", real=True)
    z = [Q(3, 5) * x[0] + Q(4, 5) * x[1], Q(3, 5) * x[1] - Q(4, 5) * x[0], *x[2:]]
    f = sp.cos(y[0]) - 1 + sp.Add(*(1 - sp.cos(yi) for yi in y[1:]))
    g = sp.Add(*((1 if i == 0 else kappa) * yi**2 / 2 - zi * yi for i, (yi, zi) in enumerate(zip(y, z, strict=True))))
    return BilevelProblem(f, g, x, y), Constants(mu=1, ell=kappa, rho=1, nu=0, M=math.sqrt(d))


def surely_at_least(successes: int, trials: int, confidence: float = 0.99) -> float:
    """Clopper and Pearson's lower bound of a probability."""
    return float(scipy.stats.beta.ppf(1 - confidence, successes, trials - successes + 1)) if successes else 0.0


def escapes(p: BilevelProblem, schedule: Any, start: Floats, trials: int = 2000) -> int:
    """How many of the trials fall by F/2 within one perturbation and T_escape steps."""
    before = float(p.kernels.phi(start))
    s = solve(p, schedule.algorithm(), np.tile(start, (trials, 1)), steps=schedule.T_escape + 1, rng=0, record="last")
    assert set(s.status) == {Status.OUT_OF_STEPS}
    return int((s.phi - before <= -schedule.F_escape / 2).sum())


def without_warnings(make: Callable[[], Any]) -> Any:
    """A schedule, without its warnings of what float64 cannot do: at x near 0 it can."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return make()


# at the saddle itself, and beside it with a gradient of half of eps
ESCAPES = [
    (d, kappa, delta, shift) for d in (2, 3, 4, 5) for kappa in (1, 2) for delta in (0.1, 0.01) for shift in (0.0, 0.5)
]


@pytest.mark.slow
@pytest.mark.in_ci(d=[2], shift=[0.5])
@pytest.mark.parametrize(("d", "kappa", "delta", "shift"), ESCAPES)
def test_perturbed_aid_escapes_with_the_theorems_parameters_and_probability(
    d: int, kappa: int, delta: float, shift: float
) -> None:
    """At a point with |grad Phi| <= eps and lambda_min <= -sqrt(rho_phi eps), from 2000 seeds."""
    schedules = pytest.importorskip("bilevel_sym.theories.huang_saddle.schedules")
    p, constants = rotated_waves(d, kappa)
    eps = 0.99 / float(constants.rho_phi())
    schedule = without_warnings(lambda: schedules.perturbed_aid(constants, eps=eps, delta=delta, d=d, gap=1e-6))
    start = shift * eps * np.array([-0.8, 0.6] + [0.0] * (d - 2))  # along a direction of positive curvature
    k = p.kernels
    assert np.linalg.norm(k.grad_phi(start)) <= 0.8 * eps
    assert np.linalg.eigvalsh(k.hess_phi(start))[0] <= -math.sqrt(schedule.rho_phi * eps)
    assert surely_at_least(escapes(p, schedule, start), 2000) >= 1 - delta


@pytest.mark.slow
@pytest.mark.in_ci(d=(2, 5), delta=[0.1])
@pytest.mark.parametrize("delta", [0.1, 0.01])
@pytest.mark.parametrize("d", [2, 3, 4, 5])
@pytest.mark.parametrize("kappa", [1, 2])
def test_perturbed_gdmax_escapes_with_the_theorems_parameters_and_probability(d: int, delta: float, kappa: int) -> None:
    """f = cos x1 + ... + x^T y/2 - y^T diag(1, kappa, ...) y/2: lambda_min = -1 + 1/4 = -3/4 at 0."""
    schedules = pytest.importorskip("bilevel_sym.theories.huang_saddle.schedules")
    x, y = sp.symbols(f"x1:{d + 1}", real=True), sp.symbols(f"y1:{d + 1}", real=True)
    f = sp.cos(x[0]) - 1 + sp.Add(*(1 - sp.cos(xi) for xi in x[1:]))
    f += sp.Add(
        *(xi * yi / 2 - (1 if i == 0 else kappa) * yi**2 / 2 for i, (xi, yi) in enumerate(zip(x, y, strict=True)))
    )
    p = MinimaxProblem(f, x, y)
    # blocks: |f_xx| <= 1, |f_xy| = 1/2, f_yy between -kappa and -1; the iterates stay where |x| < 4, |y| < 2
    constants = MinimaxConstants(mu=1, ell=kappa, rho=1, M_x=math.sqrt(d) + 1)
    eps = 0.99 * 0.75**2 / float(constants.rho_phi())
    schedule = without_warnings(lambda: schedules.perturbed_gdmax(constants, eps=eps, delta=delta, d=d, gap=1e-6))
    assert np.linalg.eigvalsh(p.kernels.hess_phi(np.zeros(d)))[0] <= -math.sqrt(schedule.rho_phi * eps)
    assert surely_at_least(escapes(p, schedule, np.zeros(d)), 2000) >= 1 - delta


def test_without_a_perturbation_nothing_escapes() -> None:
    """The control of the two tests above: descent stays at the saddle, and a quarter of T_escape is too short."""
    schedules = pytest.importorskip("bilevel_sym.theories.huang_saddle.schedules")
    p, constants = rotated_waves(2, 1)
    schedule = without_warnings(
        lambda: schedules.perturbed_aid(constants, eps=0.99 / float(constants.rho_phi()), delta=0.1, d=2, gap=1e-6)
    )
    stuck = solve(
        p,
        Descent(AID(schedule.D, schedule.N, schedule.tau), schedule.eta),
        np.zeros((50, 2)),
        steps=schedule.T_escape,
        record="last",
    )
    assert (stuck.phi == 0).all()
    short = solve(p, schedule.algorithm(), np.zeros((50, 2)), steps=schedule.T_escape // 4, rng=0, record="last")
    assert (short.phi > -schedule.F_escape / 2).all()
    assert surely_at_least(1955, 2000) < 0.99 < surely_at_least(2000, 2000)  # 45 failures refute delta = 0.01


# ---- memory ----------------------------------------------------------------------------------------------------------


def _peak(steps: int, backend: Any) -> int:
    p = zoo.get("saddle", d=2).problem
    a, x = Perturbed(AID(1, 1, 0.25), 0.1, 0.1, 0.1, 5), np.full((200, 2), 0.1)
    solve(p, a, x, steps=2, rng=0, record="last", backend=backend)
    tracemalloc.start()
    try:
        solve(p, a, x, steps=steps, rng=0, record="last", backend=backend)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.slow
def test_what_is_kept_of_the_last_point_does_not_grow_with_the_steps(tape_backend: Any) -> None:
    short, long = _peak(20, tape_backend), _peak(400, tape_backend)
    assert long < short + 500_000  # garbage of SymPy's functions; all points would take 200 * 400 * 80 = 6.4 MB


def test_more_than_memory_can_hold_is_refused() -> None:
    with pytest.raises(InvalidArgument, match='record="last"'):
        solve(TOY, STEP, [1.0], steps=10**10)


# ---- parameters for newcomers ----------------------------------------------------------------------------------------------


class Smooth:
    """As a Smoothness is read: brackets, of which the upper end counts."""

    def __init__(self, L_phi: Any, rho_phi: Any) -> None:
        self.L_phi, self.rho_phi = L_phi, rho_phi


@pytest.mark.slow
def test_given_smoothness_gives_the_steps() -> None:
    a = Perturbed.auto(zoo.get("saddle", d=2).problem, Smooth(4.0, 9.0), eps=0.01)
    assert (a.eta, a.eps, a.rho_phi) == (0.25, 0.01, 9.0)
    # eta r is a hundredth of the region sqrt(eps/rho_phi), which growth by 1 + eta sqrt(rho_phi eps) fills
    np.testing.assert_allclose(a.eta * a.r, math.sqrt(0.01 / 9) / 100)
    assert (1 + 0.25 * 0.3) ** a.T_escape >= 100 * math.sqrt(2) > (1 + 0.25 * 0.3) ** (a.T_escape - 1)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["saddle", "scalar", "implicit_cubic", "minimax_nash", "minimax_not_nash", "logistic"])
def test_a_newcomers_line_finds_a_minimum(name: str) -> None:
    p = zoo.get(name).problem
    s = solve(p, Perturbed.auto(p, eps=0.01), np.full((4, p.d), 0.1), steps=1000, rng=0, stop="local minimum")
    assert set(s.status) == {Status.LOCAL_MINIMUM}
    k = p.kernels
    assert (np.linalg.norm(k.grad_phi(s.x), axis=1) <= 0.01).all()
    assert Perturbed.auto(p, eps=0.01).rho_phi is None  # what was only sampled judges nothing
    for point, smallest in zip(s.x, np.linalg.eigvalsh(k.hess_phi(s.x))[:, 0], strict=True):
        assert smallest >= -math.sqrt(curvature_at(k, point).rho_phi * 0.01) - 1e-9


# ---- what is refused -------------------------------------------------------------------------------------------------

MINIMAX = MinimaxProblem("x*y - y**2/2", "x", "y")
UNKNOWN = BilevelProblem("a*x*y", "y**2/2 - x*y", "x", "y", parameters={"a": None})
REFUSED: list[tuple[str, Callable[[], object], type[BilevelError], str]] = [
    ("no problem", lambda: solve("x", STEP, [1.0]), InvalidArgument, "a problem first"),  # type: ignore[arg-type]
    ("a number", lambda: solve(TOY, 3, [1.0]), InvalidArgument, "not an algorithm"),  # type: ignore[arg-type]
    ("an estimator alone", lambda: solve(TOY, AID(1, 1, 0.1), [1.0]), InvalidArgument, "not an algorithm"),  # type: ignore[arg-type]
    ("iNEON alone", lambda: solve(TOY, NEON, [1.0]), InvalidArgument, "not an algorithm"),  # type: ignore[arg-type]
    ("a class", lambda: solve(TOY, Descent, [1.0]), InvalidArgument, "not an algorithm"),  # type: ignore[arg-type]
    ("an estimator's class", lambda: Descent(AID, 0.1), InvalidArgument, "estimator must be"),  # type: ignore[arg-type]
    ("x0 too long", lambda: solve(TOY, STEP, [1.0, 2.0]), KernelError, "x0 has shape"),
    ("x0 a number", lambda: solve(TOY, STEP, 1.0), KernelError, "x0 has shape"),
    ("x0 with three axes", lambda: solve(TOY, STEP, [[[1.0]]]), InvalidArgument, "x0 has shape"),
    ("x0 NaN", lambda: solve(TOY, STEP, [np.nan]), KernelError, "x0 is nan"),
    ("x0 text", lambda: solve(TOY, STEP, ["1"]), KernelError, "x0 has dtype"),
    ("x0 ragged", lambda: solve(TOY, STEP, [[1.0], [1.0, 2.0]]), KernelError, "x0"),
    ("y0 for another ensemble", lambda: solve(TOY, STEP, [1.0], y0=[[1.0], [2.0]]), InvalidArgument, "y0 has shape"),
    ("y0 too long", lambda: solve(TOY, STEP, [1.0], y0=[1.0, 2.0]), KernelError, "y0 has shape"),
    ("v0 infinite", lambda: solve(TOY, STEP, [1.0], v0=[np.inf]), KernelError, "v0 is inf"),
    ("steps negative", lambda: solve(TOY, STEP, [1.0], steps=-1), InvalidArgument, "steps"),
    ("steps a float", lambda: solve(TOY, STEP, [1.0], steps=2.5), InvalidArgument, "steps"),  # type: ignore[arg-type]
    ("steps True", lambda: solve(TOY, STEP, [1.0], steps=True), InvalidArgument, "steps"),
    ("record", lambda: solve(TOY, STEP, [1.0], record="first"), InvalidArgument, "record"),  # type: ignore[arg-type]
    ("backend", lambda: solve(TOY, STEP, [1.0], backend="cuda"), InvalidArgument, "backend"),  # type: ignore[arg-type]
    ("stop a number", lambda: solve(TOY, STEP, [1.0], stop=3), InvalidArgument, "cannot be called"),  # type: ignore[arg-type]
    ("stop another text", lambda: solve(TOY, STEP, [1.0], stop="minimum"), InvalidArgument, "stop="),  # type: ignore[arg-type]
    ("stop without eps", lambda: solve(TOY, STEP, [1.0], stop="local minimum"), InvalidArgument, "no eps"),
    ("rng negative", lambda: solve(TOY, STEP, [1.0], rng=-1), InvalidArgument, "rng"),
    ("rng a float", lambda: solve(TOY, STEP, [1.0], rng=0.5), InvalidArgument, "rng"),  # type: ignore[arg-type]
    ("rng True", lambda: solve(TOY, STEP, [1.0], rng=True), InvalidArgument, "rng"),
    ("rng too many", lambda: solve(TOY, STEP, [1.0], rng=[1, 2]), InvalidArgument, "rng"),
    ("rng too few", lambda: solve(TOY, STEP, [[1.0], [2.0]], rng=[1]), InvalidArgument, "rng"),
    ("rng with a negative", lambda: solve(TOY, STEP, [1.0], rng=[-1]), InvalidArgument, "rng"),
    ("rng of the old kind", lambda: solve(TOY, STEP, [1.0], rng=np.random.RandomState(0)), InvalidArgument, "rng"),  # type: ignore[arg-type]
    ("eta zero", lambda: Descent(AID(1, 1, 0.1), 0.0), InvalidArgument, "eta"),
    ("eta beyond float64", lambda: Descent(AID(1, 1, 0.1), 10**400), InvalidArgument, "eta"),
    ("eps negative", lambda: Perturbed(AID(1, 1, 0.1), 0.1, -1.0, 0.1, 3), InvalidArgument, "eps"),
    ("r NaN", lambda: Perturbed(AID(1, 1, 0.1), 0.1, 0.1, math.nan, 3), InvalidArgument, "r must be"),
    ("T_escape zero", lambda: Perturbed(AID(1, 1, 0.1), 0.1, 0.1, 0.1, 0), InvalidArgument, "T_escape"),
    ("T_escape infinite", lambda: Perturbed(AID(1, 1, 0.1), 0.1, 0.1, 0.1, math.inf), InvalidArgument, "T_escape"),  # type: ignore[arg-type]
    ("T_escape beyond int64", lambda: solve(TOY, Perturbed(AID(1, 1, 0.1), 0.1, 0.1, 0.1, 10**30), [1.0], steps=1), InvalidArgument, "T_escape"),
    ("rho_phi zero", lambda: Perturbed(AID(1, 1, 0.1), 0.1, 0.1, 0.1, 3, rho_phi=0.0), InvalidArgument, "rho_phi"),
    ("escape by something else", lambda: Descent(AID(1, 1, 0.1), 0.1, escape=STEP), InvalidArgument, "escape"),  # type: ignore[arg-type]
    ("GDmax for a bilevel problem", lambda: solve(TOY, Descent(GDmax(1, 0.1), 0.1), [1.0]), InvalidArgument, "GDmax"),
    ("GDmax in the escape", lambda: solve(TOY, Descent(AID(1, 1, 0.1), 0.1, escape=INeon(GDmax(1, 0.1), 0.1, 0.1, 0.1, 3, 0.1)), [1.0], steps=1), InvalidArgument, "GDmax"),
    ("StocBiO for a bilevel problem", lambda: solve(TOY, StocBiO(1, 1, 1, 0.1, 0.1, 0.1, 1, 1), [1.0]), InvalidArgument, "stochastic"),
    ("x0 of auto too short", lambda: Perturbed.auto(every_function(), x0=[1.0]), BilevelError, "x0"),
    ("x0 of auto NaN", lambda: Perturbed.auto(every_function(), x0=[math.nan, 0.0]), BilevelError, "nan"),
    ("smoothness a number", lambda: Perturbed.auto(TOY, 3.0), BilevelError, "smoothness"),
    ("rng of auto", lambda: Perturbed.auto(TOY, rng=-1), BilevelError, "rng"),
    ("eps of auto", lambda: Perturbed.auto(TOY, eps=0.0), InvalidArgument, "eps"),
    ("points of auto", lambda: Perturbed.auto(TOY, points=0), InvalidArgument, "points"),
    ("auto of no problem", lambda: Perturbed.auto("x"), InvalidArgument, "BilevelProblem"),  # type: ignore[arg-type]
    ("auto without a lower level", lambda: Perturbed.auto(BilevelProblem("y", "-y**2 - x*y", "x", "y")), AssumptionViolated, "none of 64"),
    ("StocBiO.auto", lambda: StocBiO.auto(TOY), InvalidArgument, "stochastic"),  # type: ignore[arg-type]
    ("a parameter without a value", lambda: solve(UNKNOWN, STEP, [1.0]), InvalidProblem, "a has no value"),
]  # fmt: skip


CASES = [pytest.param(*rest, id=name) for name, *rest in REFUSED]


@pytest.mark.parametrize(("action", "error", "match"), CASES)
def test_what_makes_no_sense_is_refused(action: Callable[[], object], error: type[BilevelError], match: str) -> None:
    with pytest.raises(error, match=match):
        action()


def test_the_estimate_of_one_problem_never_leaks_into_another(backend: Any) -> None:
    """Kernels are cached by content: runs of two problems side by side do not meet."""
    other = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    alone = solve(other, STEP, [1.0], steps=5, backend=backend).x
    solve(TOY, STEP, [3.0], steps=5, backend=backend)
    assert np.array_equal(solve(other, STEP, [1.0], steps=5, backend=backend).x, alone)


def test_kernels_of_the_solution_are_those_of_the_backend(backend: Any) -> None:
    assert solve(TOY, STEP, [1.0], steps=1, backend=backend).kernels is compile_kernels(TOY, backend=backend)


# ---- bits do not depend on what was asked before ---------------------------------------------------------------------


def _programs(*asked: str) -> list[Any]:
    """The batch-invariant and the ordinary program of g_y, in a problem of which other blocks were asked for first."""
    x, y = sp.symbols("x1:4"), sp.symbols("y1:4")
    rows = [[1, 2, 0], [0, 1, -1], [3, 0, 1]]
    forms = [sum(c * v for c, v in zip(row, y, strict=True)) + x[k] for k, row in enumerate(rows)]
    g = sum(softplus(form) + form**4 / 4 for form in forms) + sum(v**2 for v in y)
    model = Model(x[0] * y[0] + sp.exp(y[1]), g, x, y)
    for block in asked:
        model.program([block])
    return [
        TapeEngine(model, batch_invariant=batch_invariant)._program(("g_y",)).program
        for batch_invariant in (True, False)
    ]


def test_the_order_of_a_sum_does_not_depend_on_what_was_asked_before() -> None:
    fresh, used = _programs(), _programs("g_yy_v", "L_xx", "f_y")
    assert fresh[0] == used[0]
    assert fresh[1] != used[1]  # without care it does, so that this test can fail


def test_a_rule_that_never_fires_changes_no_bit(backend: Any) -> None:
    p = zoo.get("saddle", d=2).problem
    algorithm = Perturbed(AID(5, 2, 0.1), 0.1, 0.1, 0.1, 7)
    free, watched = (solve(p, algorithm, np.zeros((5, 2)), steps=40, rng=0, stop=stop, backend=backend)
                     for stop in (None, lambda state: False))  # fmt: skip
    for name in ("x", "y", "v", "grad_phi_hat", "phi_hat", "perturbed", "calls"):
        assert np.array_equal(getattr(free.trajectory, name), getattr(watched.trajectory, name)), name
    assert free.statuses == watched.statuses


def test_a_point_at_which_a_rule_fires_is_the_last(backend: Any) -> None:
    p = zoo.get("saddle", d=2).problem
    algorithm = Perturbed(AID(5, 2, 0.1), 0.1, 0.1, 0.1, 7)
    whole = solve(p, algorithm, np.zeros((5, 2)), steps=40, rng=0, backend=backend)
    cut = solve(p, algorithm, np.zeros((5, 2)), steps=40, rng=0, stop=lambda state: state.k == 8, backend=backend)
    assert set(cut.status) == {Status.STOPPED}
    assert np.array_equal(cut.x, whole.trajectory.x[:, 8])
    assert np.array_equal(cut.grad_phi_hat, whole.trajectory.grad_phi_hat[:, 8])
    assert np.array_equal(cut.trajectory.x, whole.trajectory.x[:, :9])
    assert np.array_equal(cut.trajectory.calls, whole.trajectory.calls[:, :9])
    assert not cut.trajectory.perturbed[:, 8].any()
    assert (cut.counters.G_g == 9 * 5).all()


QUADRATIC = {
    "maximum": BilevelProblem("-x*y", "(y - x)**2/2", "x", "y"),
    "saddle": BilevelProblem("x1*y1 - x2*y2", "(y1 - x1)**2/2 + (y2 - x2)**2/2", "x1 x2", "y1 y2"),
    "minimax": MinimaxProblem("-x**2/2 + x*y/2 - y**2/2", "x", "y"),
    "tube": zoo.get("tube", d=3).problem,
}


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", QUADRATIC)
def test_where_phi_looks_quadratic_a_saddle_is_not_called_a_minimum(name: str) -> None:
    p = QUADRATIC[name]
    for algorithm in (Perturbed.auto(p), Descent(Perturbed.auto(p).estimator, 0.1, escape=INeon.auto(p))):
        s = solve(p, algorithm, np.zeros((3, p.d)), steps=5, rng=0, stop=LocalMinimum(1e-3), record="last")
        assert Status.LOCAL_MINIMUM not in s.statuses


@pytest.mark.slow
def test_ineon_finds_the_curvature_of_a_quadratic() -> None:
    p = QUADRATIC["saddle"]
    for seed in range(5):
        u = INeon.auto(p).direction(p, [0.0, 0.0], rng=seed)
        assert u @ p.kernels.hess_phi([0.0, 0.0]) @ u < -1


def test_auto_leaves_out_points_where_phi_is_not_defined() -> None:
    p = BilevelProblem("y - log(x)", "(y - x)**2/2", "x", "y")
    assert 0 < Perturbed.auto(p, x0=[0.5]).eta < 10


def test_auto_takes_no_step_beyond_what_it_sampled() -> None:
    p = BilevelProblem("log(exp(3*y))", "(y - x)**2/2", "x", "y")  # Phi = 3 x, its curvature all rounding
    assert Perturbed.auto(p, x0=[0.3]).eta <= 2 / 3 + 1e-12


def test_a_lower_level_that_is_too_stiff_is_solved_by_newton() -> None:
    p = BilevelProblem("y1**2 + y2**2", "y1**2/2 + y2**2/2000000 - x*y1 - x*y2/1000000", "x", "y1 y2")
    assert Perturbed.auto(p).estimator == Exact()


@pytest.mark.slow
def test_room_for_a_long_run_is_taken_as_it_is_needed() -> None:
    solve(TOY, STEP, [1.0], steps=1)  # what is imported and loaded once is not the run's
    tracemalloc.start()
    s = solve(TOY, STEP, [1.0], steps=4_000_000, stop=lambda state: state.k == 5000)
    peak = tracemalloc.get_traced_memory()[1]
    tracemalloc.stop()
    assert s.trajectory.x.shape == (5001, 1)
    assert peak < 20e6


@pytest.mark.parametrize("backend", ["tape", "compiled"])
def test_newton_far_out_where_f_overflows_is_a_divergence(backend: Backend) -> None:
    """In NumPy an infinite f makes every block NaN that is summed in the same matrix product, g_yy among them."""
    falling = BilevelProblem("sin(x1)*y + x2**2*y", "(2 + cos(x2))*y**2/2 - x1*y", "x1 x2", "y")
    starts = [[-3e108, -4e147], [0.5, 0.5]]
    solution = solve(falling, Descent(Exact(), eta=1e-3), starts, steps=2, backend=backend)
    assert solution.statuses == (Status.DIVERGED, Status.OUT_OF_STEPS)
    with pytest.raises(KernelError, match="is not finite"):
        compile_kernels(falling, backend=backend).grad_phi(starts[0])


def test_a_norm_that_overflows_is_infinite_and_no_warning(tmp_path: Path) -> None:
    falling = BilevelProblem("sin(x1)*y + x2**2*y", "(2 + cos(x2))*y**2/2 - x1*y", "x1 x2", "y")
    far = solve(falling, Descent(Exact(), eta=1e-3), [1e60, 1e80], steps=0)
    assert math.isinf(curvature_at(far.kernels, far.x).grad_norm)
    far.to_csv(tmp_path / "far.csv")
    assert ",inf,0," in (tmp_path / "far.csv").read_text()
