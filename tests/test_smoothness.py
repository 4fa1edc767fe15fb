"""Certified smoothness of Phi against dense sampling, local optimisation and exact answers; and what must be refused."""

from __future__ import annotations

import math
from collections.abc import Callable
from itertools import permutations

import numpy as np
import pytest

from bilevel_sym import BilevelProblem, Box, MinimaxProblem, zoo
from bilevel_sym.errors import AssumptionViolated, CertificateFailure, InvalidArgument, InvalidProblem
from bilevel_sym.typing import Floats
from verify.enclosures.interval_matrix import Matrices
from verify.enclosures.phi_boxes import PhiBoxes, PhiEnclosure
from verify.enclosures.phi_norms import GradNorm, HessNorm, ThirdNorm, _symmetric_norm, cubic_norms
from verify.enclosures.tensor_norm import worst_directions
from verify.regularity.phi_smoothness import Smoothness, smoothness

EFFORT = 0.3


def random_problem(seed: int, d: int, n: int) -> BilevelProblem:
    """g_yy >= 1 everywhere; f and g with sines, cosines and exponentials of random combinations."""
    rng = np.random.default_rng(seed)
    x, y = [f"x{i}" for i in range(d)], [f"y{k}" for k in range(n)]

    def mix() -> str:
        return " + ".join(f"{rng.integers(-4, 5)}/4*{name}" for name in (*x, *y))

    g = " + ".join(f"y{k}**2" for k in range(n)) + "".join(f" + sin({mix()})/{6 * (d + n)}" for _ in range(2))
    g += "".join(f" - y{k}*cos({rng.integers(-4, 5)}/4*x{rng.integers(d)})/2" for k in range(n))
    f = f"cos({mix()}) + exp(({mix()})/4) + {x[0]}*{y[-1]}"
    return BilevelProblem(f, g, x, y, box=Box([-1] * d, [1] * d))


def norms_of(problem: BilevelProblem) -> dict[str, Callable[[Floats], Floats]]:
    """The three norms in floats, by the kernels."""
    kernels = problem.kernels
    return {
        "grad_norm": lambda x: np.asarray(np.linalg.norm(kernels.grad_phi(x), axis=-1)),
        "L_phi": lambda x: np.asarray(np.abs(np.linalg.eigvalsh(kernels.hess_phi(x))).max(axis=-1)),
        "rho_phi": lambda x: cubic_norms(kernels.third_phi(x)),
    }


def sampled(problem: BilevelProblem, low: Floats, high: Floats, count: int = 4000) -> dict[str, float]:
    """The largest values at random points and corners, the best improved by shrinking steps."""
    rng = np.random.default_rng(0)
    norms = norms_of(problem)
    found = {}
    for name, norm in norms.items():
        x = np.concatenate(
            [rng.uniform(low, high, (count, len(low))), np.where(rng.random((64, len(low))) < 0.5, low, high)]
        )
        values = norm(x)
        best, value = x[values.argmax()], values.max()
        for step in 0.3 ** np.arange(1, 8):
            near = np.clip(best + step * (high - low) * rng.normal(size=(100, len(low))), low, high)
            values = norm(near)
            if values.max() > value:
                best, value = near[values.argmax()], values.max()
        found[name] = float(value)
    return found


def assert_true(found: Smoothness, problem: BilevelProblem) -> None:
    """Upper ends never below what is seen, lower ends attained where the points say."""
    ends = list(found.box)
    low, high = (np.array([float(pair[k]) for pair in ends]) for k in range(2))
    seen = sampled(problem, low, high)
    for name, value in seen.items():
        bracket = getattr(found, name)
        assert value <= bracket.upper * (1 + 1e-12) + 1e-140, name
        x = np.array([list(found.points[name].values())])
        assert np.all((low <= x) & (x <= high))
        here = float(norms_of(problem)[name](x)[0])
        # a norm of a tensor is found by climbing, which ends a little below it
        assert bracket.lower <= here * (1 + (1e-5 if name == "rho_phi" else 1e-9)) + 1e-140, name
        assert bracket.lower >= 0.95 * value - 1e-140, name


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(("seed", "d", "n"), [(0, 1, 1), (1, 1, 3), (2, 2, 1), (3, 2, 2)])
def test_brackets_contain_the_truth_on_random_problems(seed: int, d: int, n: int) -> None:
    problem = random_problem(seed, d, n)
    found = smoothness(problem, effort=EFFORT, rtol=0.1)
    assert_true(found, problem)
    assert math.isfinite(found.rho_phi.upper)
    if found.formula_reason == "":
        assert found.L_phi_formula is not None
        assert found.rho_phi_formula is not None
        assert found.L_phi_formula >= found.L_phi.lower
        assert found.rho_phi_formula >= found.rho_phi.lower


@pytest.mark.slow
@pytest.mark.in_ci(seed=(12, 16))
@pytest.mark.parametrize("seed", range(12, 18))
def test_brackets_contain_the_truth_on_more_random_problems(seed: int) -> None:
    problem = random_problem(seed, 1 + seed % 3, 1 + seed % 2)
    assert_true(smoothness(problem, effort=EFFORT, rtol=0.2), problem)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", ["implicit_cubic", "ridge", "minimax_degenerate", "robust_regression"])
def test_brackets_on_zoo_problems(name: str) -> None:
    problem = zoo.get(name).problem
    found = smoothness(problem, effort=EFFORT, rtol=0.05)
    assert_true(found, problem)
    assert found.formula_reason or min(found.L_phi_formula or 0, found.rho_phi_formula or 0) > 0


@pytest.mark.slow
def test_known_answers() -> None:
    """Phi = x^3 - x^2 over [-1, 2]: the derivatives are 3 x^2 - 2 x, 6 x - 2 and 6."""
    problem = BilevelProblem("y**3 - x**2", "y**2/2 - x*y", "x", "y")
    found = smoothness(problem, Box({"x": (-1, 2)}), effort=EFFORT, rtol=1e-3)
    assert tuple(round(b.lower, 6) for b in (found.grad_norm, found.L_phi, found.rho_phi)) == (8, 10, 6)
    assert max(b.ratio for b in (found.grad_norm, found.L_phi, found.rho_phi)) < 1.0011
    assert found.points["L_phi"] == {"x": 2.0}
    assert "sup |Hess Phi|" in str(found)


@pytest.mark.slow
def test_minimax_has_the_formulas_of_its_own_lemma() -> None:
    found = smoothness(zoo.get("minimax_nash").problem, effort=EFFORT)
    assert found.L_phi_formula is not None
    assert found.L_phi_formula >= found.L_phi.lower
    assert found.L_phi.ratio < 1.01


@pytest.mark.slow
def test_more_effort_never_hurts_and_little_is_still_true() -> None:
    problem = random_problem(3, 2, 2)
    short, long = (smoothness(problem, effort=e, rtol=0.02) for e in (0.03, EFFORT))
    assert short.L_phi.upper >= long.L_phi.lower
    assert long.L_phi.upper >= short.L_phi.lower


@pytest.mark.long
def test_boxes_that_miss_a_kink_are_fine_and_others_are_refused() -> None:
    problem = BilevelProblem("abs(x)*y", "y**2/2 - x*y", "x", "y")  # Phi = x |x|
    found = smoothness(problem, Box({"x": (1, 2)}), effort=0.1)
    assert found.L_phi.upper == pytest.approx(2.0, rel=1e-6)
    with pytest.raises(CertificateFailure, match="nothing could be certified"):
        smoothness(problem, Box({"x": (-1, 2)}), effort=0.1)
    with pytest.raises(CertificateFailure):
        smoothness(zoo.get("tube_printed", d=2).problem, effort=0.1)


def test_refusals() -> None:
    free = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    with pytest.raises(InvalidProblem, match="no box"):
        smoothness(free)
    with pytest.raises(InvalidProblem):
        smoothness(free, Box({"x": (1, 0)}))
    with pytest.raises(InvalidProblem):
        smoothness(free, Box({"x": (float("nan"), 1)}))
    with pytest.raises(InvalidArgument, match="seconds"):
        smoothness(free, Box({"x": (0, 1)}), seconds=float("nan"))
    with pytest.raises(InvalidArgument, match="wants a problem"):
        smoothness("x", Box({"x": (0, 1)}))  # type: ignore[arg-type]


@pytest.mark.slow
def test_refusals_of_what_is_not_smooth() -> None:
    concave = BilevelProblem("x*y", "x*y**2/2 + y**4/4 - y", "x", "y")
    with pytest.raises(AssumptionViolated):
        smoothness(concave, Box({"x": (-2, -1)}), effort=0.1)
    with pytest.raises(CertificateFailure):
        smoothness(BilevelProblem("log(x)*y", "y**2/2 - x*y", "x", "y"), Box({"x": (-2, -1)}), effort=0.1)


@pytest.mark.slow
def test_minimax_of_two_dimensions_against_its_schur_complement() -> None:
    """Phi = x' (A + B B') x/2 in closed form: the norm of the Hessian is that of the matrix."""
    problem = MinimaxProblem("x1**2/2 - x2**2 + y1*(x1 + 2*x2) - y1**2/2", "x1 x2", "y1", box=Box([-1, -1], [1, 1]))
    truth = float(np.linalg.norm(np.diag([1.0, -2.0]) + np.outer([1, 2], [1, 2]), 2))
    found = smoothness(problem, effort=0.1)
    assert found.L_phi.lower <= truth * (1 + 1e-12)
    assert found.L_phi.upper >= truth * (1 - 1e-12)
    assert found.L_phi.ratio < 1 + 1e-9
    assert found.rho_phi.upper < 1e-12


# ---------------------------------------------------------------------- the bounds


@pytest.mark.slow
def test_bounds_are_above_samples_for_all_three_norms() -> None:
    problem, rng = random_problem(7, 3, 2), np.random.default_rng(1)
    boxes = PhiBoxes(problem)
    middle = rng.uniform(-0.8, 0.8, (20, 3))
    reach = rng.uniform(0.01, 0.15, (20, 3))
    for norm in (GradNorm(boxes), HessNorm(boxes), ThirdNorm(boxes)):
        bound = norm.over(middle - reach, middle + reach)
        assert np.isfinite(bound).mean() > 0.9
        for _ in range(10):
            points = middle + reach * rng.choice([-1.0, 0.3, 1.0], (20, 3))
            assert np.all(norm.at(points) <= bound * (1 + 1e-12))
        for point in middle[:2]:
            assert 0 < norm.certified_at(point) <= norm.at(point[None])[0] * (1 + 1e-6)


def test_cubic_norms_find_the_largest_direction() -> None:
    rng = np.random.default_rng(4)
    for d in (1, 2, 3, 5):
        raw = rng.normal(size=(6, d, d, d))
        tensors = np.sum([raw.transpose(0, *order) for order in permutations((1, 2, 3))], axis=0)
        for tensor, value in zip(tensors, cubic_norms(tensors), strict=True):
            assert value == pytest.approx(worst_directions(tensor)[0], rel=1e-3)


def test_norm_of_symmetric_interval_matrices() -> None:
    rng = np.random.default_rng(2)
    middle = rng.normal(size=(40, 4, 4))
    middle = middle + middle.swapaxes(1, 2)
    radius = 0.1 * rng.random((40, 4, 4))
    radius = radius + radius.swapaxes(1, 2)
    bound = _symmetric_norm(Matrices(middle, radius))
    for _ in range(30):
        sign = rng.choice([-1.0, 1.0], (40, 4, 4))
        inside = middle + radius * np.triu(sign) + radius * np.triu(sign, 1).swapaxes(1, 2)
        assert np.all(np.linalg.norm(inside, 2, axis=(1, 2)) <= bound)
    diagonal = np.array([[[-3.0, 0.0], [0.0, 1.0]], [[-1.0, 0.0], [0.0, -2.0]]])
    assert _symmetric_norm(Matrices.around(diagonal)) == pytest.approx([3.0, 2.0], rel=1e-8)


def test_a_bound_without_third_derivatives_is_caught() -> None:
    """The bound of |Hess| with D^3 Phi forgotten is below a sample: the comparison above can fail."""
    problem = random_problem(3, 2, 2)

    class Forgetful(HessNorm):
        def _bound(self, found: PhiEnclosure) -> tuple[Floats, Floats]:
            bound = np.abs(np.linalg.eigvalsh(found.hess_middle.middle)).max(axis=1)
            return bound, bound

    norm = Forgetful(PhiBoxes(problem))
    low, high = np.full((1, 2), -0.3), np.full((1, 2), 0.3)
    corners = np.array([[a, b] for a in (-0.3, 0.3) for b in (-0.3, 0.3)])
    assert norm.at(corners).max() > norm.over(low, high)[0]
