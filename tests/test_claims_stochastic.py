"""Claims on stochastic problems: exact moments against enumeration, verdicts on the zoo, witnesses, planted errors."""

import math
from collections.abc import Sequence
from fractions import Fraction
from itertools import product
from typing import Any

import numpy as np
import pytest
import sympy as sp
from flint import arb, arb_mat
from hypothesis import given, settings
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, StochasticProblem, zoo
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.errors import CertificateFailure, InvalidArgument
from bilevel_sym.graph.expressions import substitute
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.constants import Constants
from bilevel_sym.theories.huang_saddle.schedules.batches import term_delta
from bilevel_sym.typing import Floats
from verify.papers.huang_saddle.claims import batch_errors, stocbio, stochastic
from verify.papers.huang_saddle.measures.agreement import Case, tightest
from verify.papers.huang_saddle.measures.stochastic import batch_moments
from verify.papers.huang_saddle.measures.stochastic.batch_moments import (
    Batches,
    Estimator,
    compositions,
    failure_probability,
    hypergradient_error,
    sgd_step,
    walks,
)
from verify.papers.huang_saddle.measures.stochastic.samples import SAMPLE_BITS, Samples, ends, samples_of
from verify.papers.huang_saddle.measures.stochastic.stocbio_bounds import (
    mean_hypergradient,
    near_solution,
    series_rest,
    solved_points,
)
from verify.registry import Claim
from verify.study import study_of
from verify.verdict import Bracket, CheckResult, Verdict

MODULES = (stochastic, batch_errors, stocbio)
CLAIMS = {item.label: item for module in MODULES for item in vars(module).values() if isinstance(item, Claim)}
ZOO = ("stochastic_noise", "stochastic_rows")

# f = ell (x y + y^2/2) and g = mu y^2/2 - ell x y with mu = 1, ell = 2, and a single row of data
WITNESS = StochasticProblem(
    "2*x*y + y**2", "y**2/2 - 2*x*y", "x", "y", (), (), (), (), box={"x": ("0.9", 1), "y": ("1.7", "2.1")}
)
LINES = StochasticProblem(
    "(y - a)**2/2 + x*y", "(y - b*x)**2/2", "x", "y", "a", "b", [[1], [-1]], [[1], [3]],
    box={"x": (-1, 1), "y": (-3, 3)},
)  # fmt: skip
WAVES = StochasticProblem(
    "(y - a)**2/2 + x1*x2*a + x3**4/4", "(y - b*x1 - x2 - sin(x3))**2/2 + y**4/24*b**2", ("x1", "x2", "x3"), "y",
    "a", "b", [[1], [2], [-1]], [[1], [3]], box={"x1": (-1, 1), "x2": (-1, 1), "x3": (-1, 1), "y": (-3, 3)},
)  # fmt: skip

# noise in every block, d = n = 2, a Hessian of Phi whose mixed terms are not symmetric one by one
NOISY = StochasticProblem(
    "(a*y1 - x1)**2/2 + x2*y2*a + sin(x1)*y1*y2",
    "(2 + b)*y1**2/2 + y2**2 + b*x1*y1/2 + sin(x2)*y2*b + y1*y2/3 + y1**3*x1*b/30",
    ("x1", "x2"), ("y1", "y2"), "a", "b", [[1], [2]], [[1], [2], [3]],
    box={"x1": (-1, 1), "x2": (-1, 1), "y1": (-1, 1), "y2": (-1, 1)},
)  # fmt: skip


def results(problem: BilevelProblem, label: str, **options: Any) -> list[CheckResult]:
    return CLAIMS[label](study_of(problem, **options))


def verdicts(problem: BilevelProblem, label: str, **options: Any) -> set[str]:
    return {str(result.verdict) for result in results(problem, label, **options)}


def samples(problem: BilevelProblem) -> Samples:
    return samples_of(study_of(problem))


def row_problem(problem: StochasticProblem, xi: Sequence[sp.Rational], zeta: Sequence[sp.Rational]) -> BilevelProblem:
    f = substitute(problem.F, dict(zip(problem.xi, xi, strict=True)))
    g = substitute(problem.G, dict(zip(problem.zeta, zeta, strict=True)))
    return BilevelProblem(f, g, problem.x, problem.y)


def matrices(rows: Sequence[arb_mat]) -> list[Floats]:
    return [np.array([[float(v) for v in line] for line in row.tolist()]) for row in rows]


# ---- exact expectations ------------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [zoo.get("stochastic_rows").problem, NOISY], ids=["rows", "noisy"])
@pytest.mark.parametrize(("batch_f", "batch_g", "neumann"), [(1, 1, ()), (1, 2, (1,)), (2, 1, (2,)), (1, 1, (2, 1))])
def test_moments_of_the_hypergradient_against_enumeration(
    problem: StochasticProblem, batch_f: int, batch_g: int, neumann: tuple[int, ...]
) -> None:
    these, eta = samples(problem), 0.05
    solved = these.solved(these.study.points(1)[0])
    with precision(SAMPLE_BITS):
        y = [value + arb(0.05) for value in solved.y]
        estimator = Estimator(eta, batch_f, batch_g, neumann)
        found = hypergradient_error(these, solved.balls, y, solved.grad, estimator)
        f, g = these.at(("f_x", "f_y"), solved.balls, y), these.at(("g_xy", "g_yy"), solved.balls, y)
    f_x, f_y, g_xy, g_yy = (matrices(rows) for rows in (f["f_x"], f["f_y"], g["g_xy"], g["g_yy"]))

    def means(rows: list[Floats], size: int) -> list[Floats]:
        return [np.asarray(sum(batch) / size) for batch in product(rows, repeat=size)]

    outcomes: list[Floats] = []
    for a, b in zip(means(f_x, batch_f), means(f_y, batch_f), strict=True):
        for chosen in product(*(means(g_yy, size) for size in neumann)):
            total = left = b
            for curvature in chosen:
                left = left - eta * curvature @ left
                total = total + left
            outcomes += [a - eta * jacobian @ total for jacobian in means(g_xy, batch_g)]
    true = matrices([solved.grad])[0]
    bias = np.sum((sum(outcomes) / len(outcomes) - true) ** 2)
    error = sum(np.sum((h - true) ** 2) for h in outcomes) / len(outcomes)
    assert [float(value) for value in found] == pytest.approx([bias, error], rel=1e-10)


def test_a_batch_of_two_has_half_the_variance_of_one() -> None:
    these = samples(zoo.get("stochastic_rows").problem)
    solved = these.solved(these.study.points(1)[0])
    with precision(SAMPLE_BITS):
        two = sgd_step(these, solved.balls, solved.y, solved.y, 0.01, 2)
        rows = matrices(these.at(("g_y",), solved.balls, solved.y)["g_y"])
        one = walks(these, solved.balls, solved.y, 0.01, 1)[1]
        middle = [float(value) for value in solved.y]
        single = np.mean([sum((float(a) - b) ** 2 for a, b in zip(place, middle, strict=True)) for place in one])
    pairs = [np.sum((0.01 * (a + b) / 2) ** 2) for a, b in product(rows, repeat=2)]
    assert float(two) == pytest.approx(np.mean(pairs), rel=1e-9)
    assert float(two) == pytest.approx(single / 2, rel=1e-9)


@settings(max_examples=15, deadline=None)
@given(st.lists(st.tuples(st.integers(-4, 4), st.integers(-4, 4)), min_size=2, max_size=4), st.integers(1, 4))
def test_failure_probability_against_enumeration(points: list[tuple[int, int]], size: int) -> None:
    with precision(SAMPLE_BITS):
        rows = [arb_mat(2, 1, list(point)) for point in points]
        middle = np.mean(points, axis=0)
        eps = 1.37
        found = failure_probability(rows, size, eps)
        if batch_moments.second_moment(rows) == 0:
            return
    off = [np.linalg.norm(np.mean(batch, axis=0) - middle) > eps for batch in product(np.array(points), repeat=size)]
    assert found.lower - 1e-9 <= np.mean(off) <= found.upper + 1e-9
    assert found.upper - found.lower < 1e-6


def test_too_many_batches_leave_the_second_moment() -> None:
    with precision(SAMPLE_BITS):
        rows = [arb_mat(1, 1, [k]) for k in range(9)]
        found = failure_probability(rows, 10**6, 0.1)
    assert found.lower == 0.0
    assert found.upper == pytest.approx(20 / 3 / 10**6 / 0.01)


def test_compositions_are_all_batches() -> None:
    assert len(list(compositions(5, 3))) == math.comb(7, 2)
    assert all(sum(batch) == 5 for batch in compositions(5, 3))


# ---- constants of the rows ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [NOISY, WAVES], ids=["noisy", "waves"])
def test_constants_hold_for_every_row(problem: StochasticProblem) -> None:
    these = samples(problem)
    low, high = these.ends
    c = these.constants(low, high)
    rng = np.random.default_rng(0)
    for xi, zeta in product(problem.xi_data, problem.zeta_data):
        row = row_problem(problem, xi, zeta)
        points = low + (high - low) * rng.random((20, len(low)))
        points[:2] = low, high
        blocks: dict[str, list[Floats]] = {}
        for point in points:
            x, y = point[: problem.d], point[problem.d :]
            for name in ("f_x", "f_y", "f_xy", "f_yy", "g_xy", "g_yy"):
                blocks.setdefault(name, []).append(np.asarray(getattr(row.kernels, name)(x, y)))
        assert min(np.linalg.eigvalsh(m).min() for m in blocks["g_yy"]) >= c.mu
        assert max(np.linalg.norm(v) for name in ("f_x", "f_y") for v in blocks[name]) <= c.M
        assert max(np.linalg.norm(m, 2) for name in ("f_xy", "f_yy", "g_xy", "g_yy") for m in blocks[name]) <= c.ell


def test_constants_agree_with_the_exact_ones() -> None:
    example = zoo.get("stochastic_noise")
    these = samples(example.problem)
    c, exact = these.constants(*these.ends), example.constants
    assert exact is not None
    for name in ("mu", "ell", "rho", "nu", "sigma"):
        assert float(getattr(c, name)) == pytest.approx(float(getattr(exact, name)), rel=1e-9)
    assert float(exact.M) <= c.M <= 1.01 * float(exact.M)


def test_sigma_is_certified() -> None:
    these = samples(zoo.get("stochastic_rows").problem)
    problem, (low, high) = these.problem, these.ends
    rng = np.random.default_rng(0)
    seen = 0.0
    for point in low + (high - low) * rng.random((200, 3)):
        with precision(SAMPLE_BITS):
            balls = [arb(float(v)) for v in point]
            g_y = np.array(matrices(these.at(("g_y",), balls[:1], balls[1:])["g_y"]))
            g_x = np.array(matrices(these.at(("g_x",), balls[:1], balls[1:])["g_x"]))
        rows = np.concatenate([g_x, g_y], axis=1)
        seen = max(seen, np.sqrt(np.mean(np.sum((rows - rows.mean(axis=0)) ** 2, axis=(1, 2)))))
    assert seen <= these.sigma.upper
    assert these.sigma.upper <= 1.02 * these.sigma.lower
    assert samples(zoo.get("stochastic_noise", noise="1/4").problem).sigma.lower == pytest.approx(0.25)
    assert problem.d == 1


@pytest.mark.long
def test_rows_without_strong_convexity_are_found() -> None:
    problem = StochasticProblem(
        "(y1 - a)**2/2 + x*y2", "(b*y1 + c*y2 - x)**2/2 + (y1**2 + y2**2)*(b**2 - 1)/2", "x", ("y1", "y2"), "a",
        ("b", "c"), [[1], [2]], [[1, 0], [2, 1]], box={"x": (-1, 1), "y1": (-2, 2), "y2": (-2, 2)},
    )  # fmt: skip
    assert verdicts(problem, "ass:stoc") == {"VIOLATED"}
    with pytest.raises(CertificateFailure):
        samples(problem).constants(*samples(problem).ends)
    for label in CLAIMS:
        assert "VIOLATED" not in verdicts(problem, label) or label == "ass:stoc"


def test_only_stochastic_problems_have_rows() -> None:
    with pytest.raises(InvalidArgument):
        samples_of(study_of(zoo.get("scalar").problem))
    assert verdicts(zoo.get("scalar").problem, "le:first_m") == {"NOT_APPLICABLE"}


# ---- batches and their solutions ---------------------------------------------------------------------------------


@pytest.mark.parametrize("problem", [zoo.get("stochastic_rows").problem, NOISY], ids=["rows", "noisy"])
def test_derivatives_of_phi_of_a_batch_against_the_batch_as_a_problem(problem: StochasticProblem) -> None:
    x = np.linspace(0.5, 0.2, problem.d)
    batches = Batches(problem, x, [np.random.default_rng(3)], 1, 1)
    y = batches.solutions(np.zeros(2))
    here = batches.at(y)
    f_row, g_row = (batches._data.tables[level][batches._batches[level].picked[0, 0]] for level in ("f", "g"))
    chosen = [
        next(row for row in table if np.allclose([float(v) for v in row], picked))
        for table, picked in ((problem.xi_data, f_row), (problem.zeta_data, g_row))
    ]
    alone = row_problem(problem, *chosen)
    assert y[0] == pytest.approx(alone.kernels.y_star(x), rel=1e-9)
    assert here.grad_phi[0] == pytest.approx(alone.kernels.grad_phi(x), rel=1e-8)
    assert here.hess_phi[0] == pytest.approx(alone.kernels.hess_phi(x), rel=1e-8)


# ---- verdicts on the zoo -----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(variant=["corrected"], name=["stochastic_noise"])
@pytest.mark.parametrize("name", ZOO)
@pytest.mark.parametrize("variant", ["corrected", pytest.param("sharp", marks=pytest.mark.slow)])
def test_corrected_forms_hold_on_the_zoo(name: str, variant: Variant) -> None:
    study = study_of(zoo.get(name).problem, variant=variant)
    found = [result for item in CLAIMS.values() for result in item(study)]
    # a bound that is too loose to be tested by small batches is not called tested
    open_ = [str(r) for r in found if r.verdict is not Verdict.HOLDS and "so loose" not in r.message]
    assert open_ == []
    assert sum(result.decided for result in found) >= 0.8 * len(found)
    assert all(result.variant == variant for result in found)


PRINTED_FAILS = {"le:first_m", "unlabelled:stocbio-D"}


@pytest.mark.slow
@pytest.mark.in_ci(name=["stochastic_noise"])
@pytest.mark.parametrize("name", ZOO)
def test_printed_forms_on_the_zoo(name: str) -> None:
    study = study_of(zoo.get(name).problem, variant="printed")
    found = {label: {str(result.verdict) for result in item(study)} for label, item in CLAIMS.items()}
    failed = {label for label, verdict in found.items() if "VIOLATED" in verdict}
    assert failed - {"unlabelled:stochastic-gradient-split"} == PRINTED_FAILS


@pytest.mark.long
def test_verdicts_do_not_depend_on_the_run() -> None:
    problem = zoo.get("stochastic_noise").problem
    for label in ("lem:batch-grad-err", "lem:stocbio-decrease", "eq:hessphi-err"):
        first, second = (results(problem, label, seed=5)[0] for _ in range(2))
        assert str(first) == str(second)


# ---- witnesses ---------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_printed_mean_square_error_lacks_a_factor() -> None:
    """In exact rationals: at x = 1, y = 2 - 1/10, with one row, so that batches do not matter at all."""
    x, y, y_star, Q = Fraction(1), Fraction(19, 10), Fraction(2), 11
    mu, ell, eta = 1, 2, Fraction(1, 2)
    series = sum((1 - eta * mu) ** q for q in range(Q + 1)) * eta
    h = 2 * y + ell * series * (2 * x + 2 * y)
    true = 2 * y_star + ell * (2 * x + 2 * y_star)
    M = max(2 * y_star, 2 * x + 2 * y_star)
    c = ell + Fraction(ell**2, mu)
    rest = 16 * Fraction(ell, mu) ** 2 * M**2 * (1 - Fraction(mu, ell)) ** (2 * Q)
    assert (h - true) ** 2 > rest + c**2 * (y - y_star) ** 2
    assert (h - true) ** 2 <= rest + Fraction(16, 15) * c**2 * (y - y_star) ** 2
    assert verdicts(WITNESS, "le:variancc", variant="printed") == {"VIOLATED"}
    assert verdicts(WITNESS, "le:variancc") == verdicts(WITNESS, "le:variancc", variant="sharp") == {"HOLDS"}


def test_the_printed_step_lacks_beta() -> None:
    assert verdicts(LINES, "lem:stocbio-decrease", variant="printed") == {"VIOLATED"}
    assert verdicts(LINES, "lem:stocbio-decrease") == {"HOLDS"}


@pytest.mark.slow
def test_the_printed_gradient_split_lacks_the_error_of_f_y() -> None:
    problem = zoo.get("stochastic_noise").problem
    assert verdicts(problem, "unlabelled:stochastic-gradient-split", variant="printed") == {"VIOLATED"}


def test_terms_that_share_a_batch_are_not_independent() -> None:
    """One draw spoils the first term in a share delta' of the rows and the second in another: they never fail at once."""
    delta = 0.2
    fails = {variant: 2 * term_delta(delta, 2, variant) for variant in ("printed", "corrected")}
    assert fails["printed"] > delta
    assert fails["corrected"] == delta


def test_the_dimension_of_y_counts_in_the_concentration() -> None:
    """diag of n independent signs, d = 1: the print's batch fails with probability above delta, the corrected does not.

    With D draws a coordinate is off by 1 with probability 2^(1 - D), so some coordinate is with 1 - (1 - 2^(1-D))^n.
    """
    n, delta, eps = 20_000, 0.9, 0.999
    printed, mended = (math.ceil(16 * math.log(2 * m / delta) / eps**2) for m in (1, n))
    fails = [-math.expm1(n * math.log1p(-(2.0 ** (1 - D)))) for D in (printed, mended)]
    assert fails[0] > delta > fails[1]


@pytest.mark.slow
@pytest.mark.in_ci("lines")
@pytest.mark.parametrize("problem", [LINES, WAVES, NOISY], ids=["lines", "waves", "noisy"])
def test_nothing_true_is_violated(problem: StochasticProblem) -> None:
    for variant in ("corrected", "sharp"):
        study = study_of(problem, variant=variant)
        for item in CLAIMS.values():
            assert "VIOLATED" not in {str(result.verdict) for result in item(study)}, item.label


# ---- planted errors ----------------------------------------------------------------------------------------------


def test_a_series_that_is_cut_elsewhere_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    true = series_rest
    monkeypatch.setattr(stocbio, "series_rest", lambda c, eta, Q: true(c, eta, Q + 40))
    assert verdicts(WITNESS, "le:first_m") == {"VIOLATED"}


@pytest.mark.slow
def test_a_bound_without_the_error_of_y_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(stocbio, "slope_in_y", lambda c: arb(0))
    assert verdicts(zoo.get("stochastic_noise").problem, "le:first_m") == {"VIOLATED"}
    assert verdicts(zoo.get("stochastic_noise").problem, "le:variancc", variant="sharp") == {"VIOLATED"}


@pytest.mark.slow
def test_a_sigma_that_is_too_small_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    these = type(samples(LINES))
    true = these.sigma_over
    monkeypatch.setattr(these, "sigma_over", lambda self, low, high: 0.9 * true(self, low, high))
    for label in ("eq:traerr", "eq:yjtt"):
        assert "VIOLATED" in verdicts(zoo.get("stochastic_noise").problem, label)


@pytest.mark.slow
def test_a_mu_that_is_too_large_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    true = batch_errors._weakened

    def wrong(c: Constants) -> Constants:
        weak = true(c)
        return type(weak)(mu=min(1.5 * weak.mu, weak.ell), ell=weak.ell, rho=weak.rho, nu=weak.nu, M=weak.M)

    monkeypatch.setattr(batch_errors, "_weakened", wrong)
    batch_errors._comparisons.cache_clear()
    problem = zoo.get("stochastic_noise", noise="1/4").problem
    assert verdicts(problem, "eq:y-diff-bound-stoc-sc") == {"VIOLATED"}
    batch_errors._comparisons.cache_clear()


def test_batches_that_are_too_small_are_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(batch_errors, "batch_sizes", lambda *args, **options: (1, 1))
    assert verdicts(zoo.get("stochastic_noise").problem, "lem:batch-grad-err") == {"VIOLATED"}
    monkeypatch.setattr(stochastic, "concentration", lambda *args: 1)
    assert verdicts(zoo.get("stochastic_noise").problem, "lem:err-grad") == {"VIOLATED"}


@pytest.mark.slow
def test_a_promise_that_is_too_large_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    true = stocbio._promised
    monkeypatch.setattr(stocbio, "_promised", lambda *args: tuple(5 * value for value in true(*args)))
    assert verdicts(zoo.get("stochastic_noise").problem, "eq:expect-phi") == {"VIOLATED"}


def test_an_estimator_with_a_wrong_sign_is_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    true = batch_moments._combine
    monkeypatch.setattr(batch_moments, "_combine", lambda d, jacobian: true(d, -jacobian))
    assert verdicts(WITNESS, "le:first_m") == {"VIOLATED"}


# ---- cases -------------------------------------------------------------------------------------------------------


def test_one_failing_case_decides() -> None:
    good, bad = Case(Bracket(1.0, 1.0), Bracket(2.0, 2.0)), Case(Bracket(3.0, 3.0), Bracket(2.0, 2.0))
    unclear = Case(Bracket(1.0, 3.0), Bracket(2.0, 2.0))
    said = {
        name: str(tightest("le:first_m", cases, evidence="certified", message="").verdict)
        for name, cases in {"all": [good, bad, unclear], "unclear": [good, unclear], "none": []}.items()
    }
    assert said == {"all": "VIOLATED", "unclear": "INCONCLUSIVE", "none": "INCONCLUSIVE"}


def test_ends_round_outward_and_keep_undefined_apart() -> None:
    assert ends(arb(2)) == Bracket(2.0, 2.0)
    third = ends(arb(1) / 3)
    assert Fraction(third.lower) < Fraction(1, 3) < Fraction(third.upper)
    assert ends(arb("nan")) == Bracket(-math.inf, math.inf)


def test_where_bounds_are_put_to_the_test() -> None:
    """A corner, near two corners, the middle, and two random points: wherever y* can be certified, which is here all."""
    problem = StochasticProblem(
        "a*x*y", "(y - b*x)**2/2", "x", "y", "a", "b", [[1]], [[1]], box={"x": (1, 5), "y": (-10, 10)}
    )
    samples = samples_of(study_of(problem))
    points = list(solved_points(samples))
    found = [float(solved.x[0]) for solved in points]
    assert found[:4] == pytest.approx([5.0, 4.8, 1.2, 3.0])
    assert len(found) == 6
    assert all(1 <= x <= 5 for x in found)
    for share, y in ((0, 3.0), (0.25, 5.5), (-0.5, -2.0)):  # of half the box in y, [-10, 10], from y* = 3
        assert [float(value) for value in near_solution(samples, points[3], share) or ()] == pytest.approx([y])
    assert near_solution(samples, points[3], 0.75) is None


@pytest.mark.parametrize("name", ZOO)
def test_the_mean_of_a_long_series_at_the_solution_is_the_hypergradient(name: str) -> None:
    """f_x - g_xy v with v by 400 terms is grad Phi at y*, and with one term what its formula says."""
    problem = zoo.get(name).problem
    samples = samples_of(study_of(problem))
    solved = next(iter(solved_points(samples)))
    kernels, x = problem.mean.kernels, solved.x
    y = kernels.y_star(x)
    eta = 1 / float(np.linalg.eigvalsh(kernels.g_yy(x, y))[-1])
    with precision(SAMPLE_BITS):
        long, short = (mean_hypergradient(samples, solved, solved.y, eta, Q) for Q in (400, 0))
    np.testing.assert_allclose([float(e) for e in long.entries()], kernels.grad_phi(x), rtol=1e-9, atol=1e-12)
    wanted = kernels.f_x(x, y) - kernels.g_xy(x, y) @ (eta * kernels.f_y(x, y))
    np.testing.assert_allclose([float(e) for e in short.entries()], wanted, rtol=1e-9, atol=1e-12)
