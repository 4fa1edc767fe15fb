"""Problems on real data: what they carry is proved again, and reached by another route."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from benchmarks import first_result
from bilevel_sym import evaluate, verify, zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.theories.huang_saddle.experiments import real_data
from bilevel_sym.typing import Floats
from bilevel_sym.zoo.tables import table

KNOWN = [pytest.param(name, marks=[pytest.mark.slow] * name.startswith("digit")) for name in zoo.data_names()]
SMALL = {
    "breast_cancer": {"rows": 60}, "diabetes": {"rows": 60}, "digit_cleaning": {"rows": 20}, "digits": {"rows": 40},
    "feature_scales": {"rows": 60}, "few_shot": {"tasks": 4}, "robust_diabetes": {"rows": 40},
}  # fmt: skip


def small(name: str) -> Any:
    return zoo.get(name, **SMALL[name]).problem


def rounded(digits: str) -> tuple[float, float]:
    """A number in text, and half a unit of its last place."""
    places = len(digits.partition(".")[2])
    return float(digits), 0.5 * 10.0**-places


@pytest.mark.in_ci(name=[name for name in zoo.data_names() if name != "digit_cleaning"])
@pytest.mark.parametrize("name", KNOWN)
def test_the_digits_that_are_carried_are_proved_again(name: str) -> None:
    example = zoo.get(name)
    if "phi_at_zero" not in example.notes:
        pytest.skip("nothing is carried at x = 0, where the gradient vanishes")
    notes: Any = example.notes
    proved = evaluate(example.problem, np.zeros(example.problem.d), digits=14, hessian=False)
    carried = (notes["phi_at_zero"], *notes["grad_phi_at_zero"])
    for digits, ball in zip(carried, (proved.phi, *proved.grad_phi), strict=False):
        value, half = rounded(digits)
        assert abs(float(ball) - value) <= half * (1 + 1e-6)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", [name for name in zoo.data_names() if zoo.get(name).constants is not None])
def test_the_constants_that_are_carried_are_proved_again(name: str) -> None:
    example = zoo.get(name)
    found = verify.constants(example.problem)
    for field in ("mu", "ell", "rho", "nu", "M"):
        carried, bracket = float(getattr(example.constants, field)), found.brackets[field]
        least, most = float(bracket.lower), float(bracket.upper)
        if field == "mu":  # any number below the true one serves
            assert most * (1 - 1e-4) <= carried <= most
        else:
            assert least * (1 - 1e-9) <= carried
            assert most * (1 - 1e-9) <= carried <= most * (1 + 1e-4) + 1e-300


@pytest.mark.parametrize("name", zoo.data_names())
def test_kernels_agree_with_differences(name: str) -> None:
    problem = small(name)
    x = 0.3 * np.sin(1 + np.arange(problem.d))
    u = np.cos(np.arange(problem.d)) / np.sqrt(problem.d)
    kernels, h = problem.kernels, 1e-4
    slope = (kernels.phi(x + h * u) - kernels.phi(x - h * u)) / (2 * h)
    assert float(kernels.grad_phi(x) @ u) == pytest.approx(float(slope), rel=1e-5, abs=1e-8)
    curved = (kernels.grad_phi(x + h * u) - kernels.grad_phi(x - h * u)) / (2 * h)
    np.testing.assert_allclose(kernels.hess_phi(x) @ u, curved, rtol=1e-4, atol=1e-7)


def sklearn(name: str) -> Any:
    return pytest.importorskip(f"sklearn.{name}", reason="scikit-learn is not installed")


def test_the_tables_are_those_of_scikit_learn() -> None:
    datasets = sklearn("datasets")
    for name, made in {
        "breast_cancer": datasets.load_breast_cancer(),
        "digits": datasets.load_digits(),
        "diabetes": datasets.load_diabetes(scaled=False),
    }.items():
        ours = table(name)
        np.testing.assert_array_equal(ours.features, made.data)
        np.testing.assert_array_equal(ours.targets, made.target)


def test_the_lower_level_is_what_scikit_learn_finds() -> None:
    models = sklearn("linear_model")
    problem = zoo.get("breast_cancer").problem
    arrays = {name: np.asarray(value) for name, value in problem.arrays.items()}
    A, b = arrays["A"], arrays["b"]
    model = models.LogisticRegression(C=1 / len(b), fit_intercept=False, tol=1e-12, max_iter=10_000)
    found = model.fit(A, b).coef_[0]
    np.testing.assert_allclose(problem.kernels.y_star(np.zeros(30)), found, rtol=1e-6, atol=1e-8)
    problem = zoo.get("diabetes").problem
    arrays = {name: np.asarray(value) for name, value in problem.arrays.items()}
    ridge = models.Ridge(alpha=float(len(arrays["b"])), fit_intercept=False).fit(arrays["A"], arrays["b"])
    np.testing.assert_allclose(problem.kernels.y_star(np.zeros(10)), ridge.coef_, rtol=1e-9)


@pytest.mark.slow
@pytest.mark.in_ci(name=("diabetes", "breast_cancer"))
@pytest.mark.parametrize("name", zoo.data_names())
def test_jax_finds_the_same_hypergradient(name: str) -> None:
    jax: Any = pytest.importorskip("jax", reason="JAX is not installed")
    jax.config.update("jax_enable_x64", True)
    problem = small(name)
    f, g = problem.to_jax()
    x = 0.2 * np.ones(problem.d)
    y = problem.kernels.y_star(x)
    H, f_y = jax.hessian(g, 1)(x, y), jax.grad(f, 1)(x, y)
    v = np.linalg.solve(np.asarray(H), np.asarray(f_y))
    cross: Floats = np.asarray(jax.grad(lambda x: jax.grad(g, 1)(x, y) @ v)(x))
    np.testing.assert_allclose(
        problem.kernels.grad_phi(x), np.asarray(jax.grad(f)(x, y)) - cross, rtol=1e-9, atol=1e-12
    )


def test_wrong_labels_are_the_ones_that_are_named() -> None:
    example = zoo.get("digit_cleaning", rows=100, corrupted=30)
    wrong: Any = example.notes["wrong_labels"]
    labels = np.asarray(example.problem.arrays["T"]).argmax(axis=1)
    assert np.flatnonzero(labels != table("digits").targets[:100]).tolist() == list(wrong)
    assert len(wrong) == 30


def test_what_is_not_there_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="rows must be between"):
        zoo.get("digits", rows=1)
    with pytest.raises(InvalidArgument, match="did you mean breast_cancer"):
        zoo.get("breast_cance")


# ---- the experiment -------------------------------------------------------------------------------------------------

FEW = real_data.Settings(cases=(("feature_scales,rows=40", 1e-2, 40), ("diabetes,rows=60", 1e-2, 60)))


def test_only_the_perturbed_run_leaves_the_saddle_point(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = list(real_data.report(tmp_path, settings=FEW))
    assert "BO stays at a stationary point" in "\n".join(lines)
    told = json.loads((tmp_path / "real-data.json").read_text("utf-8"))
    perturbed, plain = told["cases"][0]["runs"]
    assert perturbed["end"] == "local minimum"
    assert perturbed["perturbations"] >= 1
    assert plain["end"] == "out of steps"
    assert plain["looks"][-1]["smallest_eigenvalue"] < -1
    assert plain["looks"][-1]["grad_norm"] < 1e-12
    assert plain["calls"]["G_g"] == plain["looks"][-1]["iteration"] * FEW.inner + FEW.inner


def test_nobody_is_said_to_stay_where_both_end_in_a_minimum() -> None:
    told = real_data.findings(real_data.compute(real_data.Settings(cases=FEW.cases[1:])))
    assert told[-1] == "PBO ended in a local minimum, checked, on 1 of 1 problems"


def test_a_table_leads_to_formula_kernel_and_minimum(capsys: pytest.CaptureFixture[str]) -> None:
    """The benchmark's way from the table to the end; how long it takes is the benchmark's matter."""
    first_result.stages()
    rows = capsys.readouterr().out.splitlines()
    assert [row.split("|")[1].strip() for row in rows] == [
        "import", "problem", "formula", "kernel: ∇Φ at 0", "solution: LOCAL_MINIMUM",
    ]  # fmt: skip
