"""Algorithms 2 and 3 as they are printed, line by line in plain Python, against what ``as_printed=True`` runs."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import pytest
import sympy as sp

import verify
from bilevel_sym import AID, BilevelProblem, Descent, INeon, StocBiO, StochasticProblem, solve, zoo
from bilevel_sym.estimators.batches import Batch, BatchOracle, Data
from bilevel_sym.solvers.ineon import FOUND_SHARE
from bilevel_sym.solvers.noise import uniform_in_ball
from bilevel_sym.typing import Floats
from verify.verdict import Verdict


def saddle() -> BilevelProblem:
    """A saddle at 0 whose lower level is far from solved after a few steps, so that where it begins matters."""
    return BilevelProblem(
        "-y1**2/2 + y2**2/2 + y1**4/4 + x1*y2/3", "(y1 - x1)**2/2 + (y2 - x2)**2 + y1*y2/3", "x1 x2", "y1 y2"
    )


# ---- Algorithm 2 -------------------------------------------------------------------------------------------------------


def algorithm_2(p: BilevelProblem, a: INeon, x: Floats, y0: Floats, seed: int, first: str) -> tuple[Floats, int]:
    """The lines of the print; ``first`` is where the inner loop of k = 0 begins: "y_0", or "y~^D". And the last k.

    Conjugate gradients of n steps are a solve, so that v has no memory.
    """
    assert isinstance(a.estimator, AID)
    k, D, tau = p.kernels, a.estimator.D, a.estimator.tau
    u = uniform_in_ball(np.random.default_rng(seed), p.d, a.eta * a.r)  # line 2

    def estimate(point: Floats, y: Floats) -> tuple[Floats, float, Floats]:
        for _ in range(D + 1):  # t = 0, ..., D
            y = y - tau * k.g_y(point, y)
        v = np.linalg.solve(k.g_yy(point, y), k.f_y(point, y))
        return k.f_x(point, y) - k.g_xy(point, y) @ v, float(k.f(point, y)), y

    base, level, y_base = estimate(x, y0)  # lines 3 to 7
    y = y0 if first == "y_0" else y_base
    for step in range(a.T_escape + 1):  # k = 0, ..., T
        grad, _, y = estimate(x + u, y)
        u = u - a.eta * (grad - base)
        _, phi, _ = estimate(x + u, y)  # phi_hat at x + u_(k+1), from the y that comes next
        if phi - level - base @ u <= -FOUND_SHARE * a.F_escape:
            return u / np.linalg.norm(u), step
    return np.zeros(p.d), -1


PRINTED = INeon(AID(1, 2, 0.2), 0.25, 0.2, 0.05, 30, 1e-3, as_printed=True)
START = np.array([0.3, -0.2])


@pytest.mark.parametrize("seed", range(4))
def test_algorithm_2_begins_from_y0_again_as_printed(seed: int) -> None:
    p, x = saddle(), np.array([0.05, 0.02])
    found = PRINTED.direction(p, x, y0=START, rng=seed)
    printed, _ = algorithm_2(p, PRINTED, x, START, seed, "y_0")
    other, _ = algorithm_2(p, PRINTED, x, START, seed, "y~^D")
    assert found.any()
    np.testing.assert_allclose(found, printed, atol=1e-9)
    assert np.abs(found - other).max() > 1e-3  # where it begins matters here


@pytest.mark.parametrize("backend", ["tape", "lambdify"])
def test_algorithm_2_as_printed_in_every_engine(backend: Any) -> None:
    """As the escape of Descent, on the engines that solve can run."""
    p, x = saddle(), np.array([0.05, 0.02])
    escape = INeon(PRINTED.estimator, 0.25, 10.0, 0.05, 30, 1e-3, step=0.2, as_printed=True)
    algorithm = Descent(AID(3, 2, 0.2), 0.01, escape=escape)
    s = solve(p, algorithm, x, y0=START, steps=1, rng=7, backend=backend)
    assert s.trajectory.perturbed[0]
    (seed,) = np.ravel(s.seed)
    y = START
    for _ in range(3):  # the estimate of the descent, whose y is the y_0 of the escape
        y = y - 0.2 * p.kernels.g_y(x, y)
    direction, _ = algorithm_2(p, escape, x, y, int(seed), "y_0")
    np.testing.assert_allclose(np.abs((s.x - x) @ direction), 0.2, atol=1e-9)


def test_the_default_carries_y_on() -> None:
    p, x = saddle(), np.array([0.05, 0.02])
    longer = INeon(AID(2, 2, 0.2), 0.25, 0.2, 0.05, 31, 1e-3)  # D + 1 and T + 1 steps, as the print counts them
    found = longer.direction(p, x, y0=START, rng=0)
    np.testing.assert_allclose(found, algorithm_2(p, PRINTED, x, START, 0, "y~^D")[0], atol=1e-9)


# ---- Algorithm 3 -------------------------------------------------------------------------------------------------------

ESCAPE = INeon(AID(20, 2, 0.2), 0.1, 0.5, 0.5, 60, 1e-3, rho_phi=2.0)


def noisy() -> StochasticProblem:
    problem = zoo.get("stochastic_noise", d=2).problem
    assert isinstance(problem, StochasticProblem)
    return problem


class Watched:
    """What is drawn, in order, and which batches each check freezes."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.drawn: list[tuple[str, Batch]] = []
        self.frozen: list[tuple[int, Batch, Batch]] = []
        draws, make = Data.draws, BatchOracle.__init__

        def drawing(data: Data, function: str, streams: Any, sizes: Sequence[int], **options: Any) -> Iterator[Batch]:
            for batch in draws(data, function, streams, sizes, **options):
                self.drawn.append((function, batch))
                yield batch

        def freezing(oracle: BatchOracle, data: Data, batch_f: Batch, batch_g: Batch) -> None:
            self.frozen.append((len(self.drawn), batch_f, batch_g))
            make(oracle, data, batch_f, batch_g)

        monkeypatch.setattr(Data, "draws", drawing)
        monkeypatch.setattr(BatchOracle, "__init__", freezing)


def algorithm(*, as_printed: bool, eps: float = 0.5) -> StocBiO:
    escape = INeon(ESCAPE.estimator, 0.1, eps, 0.5, 60, 1e-3, rho_phi=2.0)
    return StocBiO(1, 2, 3, 0.2, 0.05, 0.2, 5, 7, escape=escape, as_printed=as_printed)


def test_the_batches_of_the_step_serve_again_as_printed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Per iteration: S, D_F, D_G, and Q batches of the series. The check at x_k has D_F and D_G of iteration k - 1."""
    seen = Watched(monkeypatch)
    steps = 3
    s = solve(noisy(), algorithm(as_printed=True, eps=1e-9), [0.5, 0.5], steps=steps, rng=0)
    assert not s.trajectory.perturbed.any()
    assert [function for function, _ in seen.drawn] == ["g", "f", "g", "g", "g"] * (steps + 1)  # and nothing else
    assert len(seen.frozen) == steps - 1  # none at x_0, and none where the run ends
    for k, (_, batch_f, batch_g) in enumerate(seen.frozen):
        for batch, place in ((batch_f, 1), (batch_g, 2)):
            np.testing.assert_array_equal(batch.picked, seen.drawn[5 * k + place][1].picked)
            np.testing.assert_array_equal(batch.weights, seen.drawn[5 * k + place][1].weights)


def test_the_default_draws_new_ones(monkeypatch: pytest.MonkeyPatch) -> None:
    seen = Watched(monkeypatch)
    solve(noisy(), algorithm(as_printed=False, eps=1e-9), [0.5, 0.5], steps=2, rng=0)
    assert [function for function, _ in seen.drawn] == [*["g", "f", "g", "g", "g", "f", "g"] * 2, *"gfggg"]
    for count, batch_f, batch_g in seen.frozen:
        assert batch_f is seen.drawn[count - 2][1]
        assert batch_g is seen.drawn[count - 1][1]


def own_mean(batch_f: Batch, batch_g: Batch, sizes: tuple[int, int]) -> BilevelProblem:
    """f_D and g_D as a problem, from the rows."""
    p = noisy()
    rows = [
        np.repeat(np.array(data)[b.picked[0]], np.round(b.weights[0] * size).astype(int), axis=0).tolist()
        for data, b, size in zip((p.xi_data, p.zeta_data), (batch_f, batch_g), sizes, strict=True)
    ]
    return StochasticProblem(p.F, p.G, p.x, p.y, p.xi, p.zeta, *rows).mean


def test_the_check_is_of_the_reused_batches_at_the_next_point(monkeypatch: pytest.MonkeyPatch) -> None:
    """grad Phi_D(x_k) with D of the step to x_k, against the problem that is made of those rows, by another route."""
    seen, found = Watched(monkeypatch), []
    original = AID.in_lanes

    def noted(self: AID, oracle: Any, *points: Any) -> Any:
        estimate = original(self, oracle, *points)
        found.append(estimate.grad[:, 0].copy())
        return estimate

    monkeypatch.setattr(AID, "in_lanes", noted)
    escape = INeon(AID(300, 2, 0.2), 0.1, 1e-9, 0.5, 60, 1e-3)
    a = StocBiO(1, 2, 3, 0.2, 0.05, 0.2, 5, 7, escape=escape, as_printed=True)
    s = solve(noisy(), a, [0.4, 0.5], steps=6, rng=3)
    assert len(found) == len(seen.frozen) == 5
    for k, (grad, (_, batch_f, batch_g)) in enumerate(zip(found, seen.frozen, strict=True), start=1):
        kernels = own_mean(batch_f, batch_g, (a.batch_f, a.batch_g)).kernels
        np.testing.assert_allclose(grad, kernels.grad_phi(s.trajectory.x[k]), rtol=1e-9)
        assert not np.allclose(grad, kernels.grad_phi(s.trajectory.x[k - 1]), rtol=1e-3)


def escapes_from(x: list[list[float]], **options: Any) -> Callable[[], Any]:
    return lambda: solve(noisy(), algorithm(as_printed=True, eps=1.5), x, steps=8, **options)


@pytest.mark.slow
def test_a_printed_trajectory_has_the_same_bits_in_any_company() -> None:
    start = np.concatenate([np.zeros((3, 2)), np.random.default_rng(0).uniform(-2, 2, (5, 2)), np.full((1, 2), 1e80)])
    whole = escapes_from(start.tolist(), rng=5)()
    assert whole.trajectory.perturbed.any()
    for rows in ([0], [8, 2, 7], list(range(1, 8))):
        part = escapes_from(start[rows].tolist(), rng=[whole.seed[row] for row in rows])()
        assert np.array_equal(part.x, whole.x[rows], equal_nan=True)
        assert part.status == tuple(whole.status[row] for row in rows)


@pytest.mark.slow
def test_the_reused_batch_is_biased_and_the_new_one_is_not() -> None:
    """What the erratum on the batches says, in the algorithm itself: Phi_D' - Phi' at the next point, averaged.

    F = xi x^2/2 with xi = 1 or 3 and one row a batch: from x = 1, beta = 1/4, the mean is -1/4 for the reused batch.
    """
    xi, zeta, x, y = sp.symbols("xi zeta x y")
    problem = StochasticProblem(
        xi * x**2 / 2, (y - x) ** 2 / 2 + zeta * 0, [x], [y], [xi], [zeta], [[1], [3]], [[0], [0]]
    )
    escape = INeon(AID(1, 1, 1.0), 0.1, 1e-9, 0.1, 1, 1e3)
    means = {}
    for as_printed in (True, False):
        found: list[float] = []
        original = AID.in_lanes

        def noted(self: AID, oracle: Any, at: Any, *rest: Any, found: Any = found, original: Any = original) -> Any:
            estimate = original(self, oracle, at, *rest)
            found.append(float(estimate.grad[0, 0]) - 2 * float(at[0, 0]))
            return estimate

        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(AID, "in_lanes", noted)
            a = StocBiO(1, 1, 1, 1.0, 0.25, 1.0, 1, 1, escape=escape, as_printed=as_printed)
            solve(problem, a, np.ones((400, 1)), steps=2, rng=0)
        means[as_printed] = np.mean(found[-400:])
    assert means[True] == pytest.approx(-0.25, abs=0.06)
    assert abs(means[False]) < 0.06


# ---- what the verifier says of it -----------------------------------------------------------------------------------


def coin_without_a_side(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(INeon, "_signs", lambda self, oracle, team, lanes, u: (2.0 * (np.arange(len(lanes)) % 2), []))


def one_test_less(patch: pytest.MonkeyPatch) -> None:
    patch.setattr(AID, "longer", lambda self: self)


def half_a_step(patch: pytest.MonkeyPatch) -> None:
    step = StocBiO.escape_step.fget  # type: ignore[attr-defined]
    patch.setattr(StocBiO, "escape_step", property(lambda self: step(self) / 2))


@pytest.mark.parametrize(
    ("fault", "name", "label"),
    [
        (coin_without_a_side, "scalar", "alg:iNEON"),
        (one_test_less, "scalar", "alg:iNEON"),
        (half_a_step, "stochastic_noise", "alg:INEONstocbio"),
    ],
)
def test_the_printed_lines_are_replayed_too(
    monkeypatch: pytest.MonkeyPatch, fault: Callable[[pytest.MonkeyPatch], None], name: str, label: str
) -> None:
    def said() -> set[Verdict]:
        report = verify.run(zoo.get(name).problem, claims=[label], variant="printed", effort="quick")
        return {result.verdict for result in report.results}

    assert said() == {Verdict.HOLDS}
    fault(monkeypatch)
    assert Verdict.VIOLATED in said()
