"""Is this point an eps-local minimum? The check, and the rule that ends trajectories by it."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import sympy as sp
from helpers import FEW, solved_problems
from hypothesis import given

from bilevel_sym import AID, BilevelProblem, Descent, Exact, INeon, LocalMinimum, Perturbed, Status, solve, zoo
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.solvers import local_minimum
from bilevel_sym.solvers.algorithm import Ensemble, Move
from bilevel_sym.solvers.local_minimum import confirm, curvature_at

TOY = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
STEP = Descent(AID(1, 1, 1.0), 0.25)


def polynomial(phi: str, names: str = "x1 x2") -> BilevelProblem:
    """Phi itself, under a lower level that does not matter."""
    return BilevelProblem(phi, "(y - x1)**2/2", names, "y")


# ---- what iNEON found, and what it did not -----------------------------------------------------------------------------


def test_only_a_claim_of_a_minimum_is_checked_and_only_a_wrong_one_is_taken_back() -> None:
    """Phi = x^2: a minimum at 0, none at 1; two that go on, or failed, are left alone wherever they are."""
    x = np.array([[0.0], [1.0], [1.0], [1.0]])
    ensemble = Ensemble.gather(x, x.copy(), np.zeros_like(x), 0, [np.random.default_rng(k) for k in range(4)])
    move = Move.to(ensemble.x.copy())
    move.finished[:4] = (Status.LOCAL_MINIMUM, Status.LOCAL_MINIMUM, 0, Status.BREAKDOWN)
    confirm(TOY.kernels, ensemble, move, 1e-3, None)
    assert move.finished[:4].tolist() == [Status.LOCAL_MINIMUM, Status.NO_CURVATURE, 0, Status.BREAKDOWN]


# ---- the check -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "name", ["scalar", "saddle", "implicit_cubic", "minimax_nash", "minimax_not_nash", "quadratic"]
)
def test_known_stationary_points_are_judged_by_their_kind(name: str) -> None:
    example = zoo.get(name)
    for point in example.stationary_points or ():
        x = np.array([float(e) for e in point.x])
        held = LocalMinimum(1e-6).holds(example.problem.kernels, x)
        assert held == (point.kind == "local minimum"), str(point)


def test_a_degenerate_minimum_is_a_local_minimum_to_any_eps() -> None:
    """Phi = x^4: the Hessian vanishes, and Definition 1.1 asks for no more than >= -sqrt(rho_phi eps)."""
    assert LocalMinimum(1e-6).holds(zoo.get("minimax_degenerate").problem.kernels, np.array([0.0]))


def test_the_gradient_is_compared_with_eps() -> None:
    kernels = TOY.kernels
    assert LocalMinimum(0.5).holds(kernels, np.array([0.25]))
    assert not LocalMinimum(0.5).holds(kernels, np.array([np.nextafter(0.25, 1)]))


def test_the_curvature_is_compared_with_rho_phi_and_eps() -> None:
    """Hess Phi(0) = diag(-1/2, 1): allowed where sqrt(rho_phi eps) >= 1/2."""
    kernels = polynomial("-x1**2/4 + x2**2/2").kernels
    origin = np.zeros(2)
    assert LocalMinimum(0.25, rho_phi=1.0).holds(kernels, origin)
    assert not LocalMinimum(0.24, rho_phi=1.0).holds(kernels, origin)
    assert not LocalMinimum(0.25, rho_phi=0.99).holds(kernels, origin)
    assert not LocalMinimum(0.25).holds(kernels, origin)  # a quadratic: rho_phi = 0


def test_rho_phi_of_the_point_stands_in() -> None:
    """Phi = -x^2/4 + c x^3/6: the third derivative is c, so sqrt(c eps) is what is allowed at 0."""
    for c, held in ((1, True), ("1/2", False)):
        kernels = BilevelProblem(f"-x**2/4 + {c}*x**3/6", "(y - x)**2/2", "x", "y").kernels
        assert LocalMinimum(0.25).holds(kernels, np.zeros(1)) == held


@pytest.mark.slow
@FEW
@given(st.data())
def test_what_is_measured_is_the_closed_forms(data: st.DataObject) -> None:
    case = data.draw(solved_problems(2, data.draw(st.integers(1, 2)), cubic=False))
    x = np.array([float(case.point[s]) for s in case.problem.x])
    y = np.array([float(case.solution[s]) for s in case.problem.y])
    here = curvature_at(case.problem.kernels, x, y)
    grad = np.array([float(sp.diff(case.phi, s).subs(case.point)) for s in case.problem.x])
    hess = np.array(sp.hessian(case.phi, case.problem.x).subs(case.point), dtype=np.float64)
    scale = 1 + np.abs(hess).max() + np.abs(grad).max()
    assert abs(here.grad_norm - np.linalg.norm(grad)) < 1e-8 * scale
    assert abs(here.smallest_eigenvalue - np.linalg.eigvalsh(hess)[0]) < 1e-8 * scale
    # never above the norm of the third derivative over unit vectors, here over a fine circle
    third = [
        [[float(sp.diff(case.phi, a, b, c).subs(case.point)) for a in case.problem.x] for b in case.problem.x]
        for c in case.problem.x
    ]
    angles = np.linspace(0, math.pi, 2001)
    u = np.stack([np.cos(angles), np.sin(angles)])
    norm = np.abs(np.einsum("abc,ak,bk,ck->k", np.array(third), u, u, u)).max()
    assert here.rho_phi <= norm * (1 + 1e-5) + 1e-8 * scale


def test_a_point_that_cannot_be_judged_is_not_a_minimum() -> None:
    concave = BilevelProblem("x*y", "-y**2/2 - x*y", "x", "y")
    assert not LocalMinimum(10.0).holds(concave.kernels, np.array([1.0]))
    logarithm = BilevelProblem("log(x)", "(y - x)**2/2", "x", "y")
    assert not LocalMinimum(10.0).holds(logarithm.kernels, np.array([-1.0]))


NEON = INeon(AID(20, 2, 0.5), 0.2, 0.2, 0.1, 80, 1e-4)


def test_ineon_can_be_the_judge() -> None:
    p = zoo.get("saddle", d=2).problem
    rule = LocalMinimum(0.2, by=NEON)
    assert not rule.holds(p.kernels, np.zeros(2))
    assert LocalMinimum(0.2, by=INeon(AID(40, 2, 0.2), 0.2, 0.2, 0.1, 80, 1e-4)).holds(
        p.kernels, np.array([2.0, 0.0]), np.array([1.0, 0.0])
    )


def test_with_ineon_too_the_gradient_must_be_small() -> None:
    """Phi = x^2 has no negative curvature anywhere, but x = 3 is no minimum."""
    rule = LocalMinimum(0.2, by=INeon(AID(2, 1, 1.0), 0.2, 0.2, 0.1, 20, 1e-4))
    assert not rule.holds(TOY.kernels, np.array([3.0]))


# ---- the rule ----------------------------------------------------------------------------------------------------------


def test_a_run_ends_at_a_minimum_and_only_there() -> None:
    s = solve(TOY, STEP, [1.0], stop=LocalMinimum(1e-3), steps=100)
    assert s.status is Status.LOCAL_MINIMUM
    # |ghat| = 2 * 2^-k falls to 4/5 of eps at k = 12 (2^-11 < 0.8e-3)
    assert int(s.steps) == 12
    assert s.x.tolist() == [2.0**-12]


def test_a_run_passes_over_a_saddle() -> None:
    """Plain descent comes to the saddle within eps, and is not told that it is done."""
    p = zoo.get("saddle", d=2).problem
    s = solve(p, Descent(AID(10, 2, 0.25), 0.2), [[0.0, 0.5], [1.5, 0.2]], steps=200, stop=LocalMinimum(1e-2))
    assert s.status == (Status.OUT_OF_STEPS, Status.LOCAL_MINIMUM)
    assert np.linalg.norm(s.grad_phi_hat[0]) < 1e-6


def test_local_minimum_by_name_takes_eps_and_rho_phi_from_the_algorithm() -> None:
    p = polynomial("-x1**2/4 + x1**4 + x2**2/2")
    still = Perturbed(AID(5, 1, 0.5), 0.1, 0.25, 1e-9, 1000, rho_phi=1.0)
    assert solve(p, still, [0.0, 0.0], steps=5, rng=0, stop="local minimum").status is Status.LOCAL_MINIMUM
    sharp = Perturbed(AID(5, 1, 0.5), 0.1, 0.25, 1e-9, 1000, rho_phi=0.9)
    assert solve(p, sharp, [0.0, 0.0], steps=5, rng=0, stop="local minimum").status is Status.OUT_OF_STEPS
    escape = INeon(AID(5, 1, 0.5), 0.1, 0.25, 1e-9, 3, 1.0, rho_phi=1.0)
    assert (
        solve(p, Descent(AID(5, 1, 0.5), 0.1, escape=escape), [0.0, 0.0], steps=5, rng=0, stop="local minimum").status
        is Status.LOCAL_MINIMUM
    )


def test_perturbed_descent_escapes_and_ends_in_a_minimum() -> None:
    p = zoo.get("saddle", d=2).problem
    a = Perturbed(AID(10, 2, 0.2), 0.3, 0.05, 0.5, 20)
    s = solve(p, a, np.zeros((10, 2)), steps=400, rng=0, stop="local minimum")
    assert set(s.status) == {Status.LOCAL_MINIMUM}
    np.testing.assert_allclose(np.abs(s.x[:, 0]), 2.0, atol=0.4)
    k = p.kernels
    assert (np.linalg.norm(k.grad_phi(s.x), axis=1) <= 0.05).all()
    assert (np.linalg.eigvalsh(k.hess_phi(s.x))[:, 0] > 0).all()


def test_failed_checks_become_rare(monkeypatch: pytest.MonkeyPatch) -> None:
    """At a saddle that plain descent never leaves: after 1, 2, 4, ..., 64, 64 ... iterations."""
    asked: list[int] = []
    original = LocalMinimum.holds

    def holds(self: LocalMinimum, kernels: Any, x: Any, y: Any = None, *, rng: int = 0) -> bool:
        asked.append(rng)
        return original(self, kernels, x, y, rng=rng)

    monkeypatch.setattr(local_minimum.LocalMinimum, "holds", holds)
    p = zoo.get("saddle", d=2).problem
    solve(p, Descent(AID(10, 2, 0.25), 0.2), [0.0, 0.0], steps=300, stop=LocalMinimum(1e-2))
    assert asked == [0, 1, 3, 7, 15, 31, 63, 127, 191, 255]


def test_the_estimate_opens_the_door_and_the_exact_values_decide() -> None:
    """A lower level that lags makes the estimate small where grad Phi is not: no end there."""
    p = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    s = solve(p, Descent(AID(1, 1, 1e-6), 1e-6), [1.0], v0=[-1e-6], steps=3, stop=LocalMinimum(1.5))
    assert s.status is Status.INACCURATE  # and the run says so


def test_with_exact_estimates_the_end_is_the_definitions() -> None:
    example = zoo.get("scalar")
    s = solve(example.problem, Descent(Exact(), 0.5), [[-1.0], [0.5], [1.5]], steps=500, stop=LocalMinimum(1e-5))
    assert set(s.status) == {Status.LOCAL_MINIMUM}
    np.testing.assert_allclose(s.x, 1 - math.sqrt(2), atol=1e-4)


REFUSED: list[tuple[str, Callable[[], object], type[BilevelError]]] = [
    ("eps", lambda: LocalMinimum(0.0), InvalidArgument),
    ("eps NaN", lambda: LocalMinimum(math.nan), InvalidArgument),
    ("rho_phi", lambda: LocalMinimum(0.1, rho_phi=-1.0), InvalidArgument),
    ("by", lambda: LocalMinimum(0.1, by=AID(1, 1, 0.1)), InvalidArgument),  # type: ignore[arg-type]
]


@pytest.mark.parametrize(("action", "error"), [case[1:] for case in REFUSED], ids=[case[0] for case in REFUSED])
def test_what_makes_no_sense_is_refused(action: Callable[[], object], error: type[BilevelError]) -> None:
    with pytest.raises(error):
        action()


def test_a_kink_is_never_called_a_minimum() -> None:
    p = BilevelProblem("-abs(y)", "(y - x)**2/2", "x", "y")  # Phi = -|x|
    assert not LocalMinimum(1e-3).holds(p.kernels, np.array([0.0]))
    smooth = BilevelProblem("max(y, -1)**2", "(y - x)**2/2", "x", "y")
    assert LocalMinimum(1e-3).holds(smooth.kernels, np.array([0.0]))


def test_the_allowance_for_rounding_has_the_units_of_the_hessian() -> None:
    p = BilevelProblem("(y**4/4 - y**2/2)/10000000000000", "(y - x)**2/2", "x", "y")
    assert not LocalMinimum(1e-16, rho_phi=6e-13).holds(p.kernels, np.array([0.0]))
