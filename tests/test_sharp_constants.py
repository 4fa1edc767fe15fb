"""Sharp constants: |(I, dy/dx)| <= kappa where ell bounds the whole Hessian of g, what follows, and where it is reached."""

from __future__ import annotations

import warnings
from collections.abc import Iterator
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import sympy as sp
from hypothesis import given

import verify
from bilevel_sym import BilevelProblem, Constants, MinimaxConstants, MinimaxProblem, schedules, zoo
from bilevel_sym.errors import InvalidArgument
from verify.papers.huang_saddle.measures import norm_calculus
from verify.papers.huang_saddle.measures.norm_calculus import derived, follows
from verify.verdict import CheckResult, Verdict

POSITIVE = st.fractions(min_value=Fraction(1, 10), max_value=10)
KAPPA = st.fractions(min_value=1, max_value=20)
X, Y = sp.symbols("x y")
TINY = sp.Rational(1, 10**6)
Array = np.ndarray[Any, Any]


# ---- the formulas ----------------------------------------------------------------------------------------------------


@given(mu=POSITIVE, kappa=KAPPA, rho=POSITIVE, nu=POSITIVE, M=POSITIVE)
def test_the_sharp_formulas_have_kappa_for_one_plus_kappa(
    mu: Fraction, kappa: Fraction, rho: Fraction, nu: Fraction, M: Fraction
) -> None:
    ell = mu * kappa
    block, joint = (Constants(mu, ell, rho, nu, M, reading=reading) for reading in ("block", "joint"))
    assert joint.L_phi(variant="sharp") == kappa**2 * (ell + rho * M / mu)
    steep = rho + nu * M / mu + 3 * rho / mu * (ell + rho * M / mu)
    assert joint.rho_phi(variant="sharp") == kappa**3 * steep
    # nothing but the sharp variant reads the reading
    for variant in ("corrected", "printed"):
        assert block.L_phi(variant=variant) == joint.L_phi(variant=variant)
        assert block.rho_phi(variant=variant) == joint.rho_phi(variant=variant)
    assert block.L_phi(variant="sharp") == block.L_phi() == joint.L_phi(variant="sharp") * (1 + 1 / kappa) ** 2
    assert block.rho_phi(variant="sharp") == block.rho_phi() == joint.rho_phi(variant="sharp") * (1 + 1 / kappa) ** 3


@given(mu=POSITIVE, kappa=KAPPA, rho=POSITIVE)
def test_the_sharp_minimax_formulas(mu: Fraction, kappa: Fraction, rho: Fraction) -> None:
    joint, block = (MinimaxConstants(mu, mu * kappa, rho, reading=reading) for reading in ("joint", "block"))
    assert MinimaxConstants(mu, mu * kappa, rho) == joint
    assert (joint.L_phi(variant="sharp"), joint.rho_phi(variant="sharp")) == (mu * kappa**2, rho * kappa**3)
    assert (block.L_phi(variant="sharp"), block.rho_phi(variant="sharp")) == (block.L_phi(), block.rho_phi())
    with pytest.raises(InvalidArgument, match="reading must be"):
        MinimaxConstants(1, 2, 3, reading="sideways")  # type: ignore[arg-type]


def test_a_schedule_takes_the_sharp_constants_of_a_joint_reading() -> None:
    block, joint = (Constants(1, 2, 1, 1, 1, reading=reading) for reading in ("block", "joint"))
    asked: dict[str, Any] = {"eps": 0.1, "delta": 0.1, "d": 2, "gap": 1e-6, "variant": "sharp"}
    with warnings.catch_warnings(action="ignore"):  # nothing of it is run
        found = {c.reading: schedules.perturbed_aid(c, **asked) for c in (block, joint)}
    assert found["joint"].L_phi == 4 * 3 < found["block"].L_phi == 9 * 3
    assert found["joint"].rho_phi == 8 * 11 < found["block"].rho_phi == 27 * 11


# ---- the lemma, |(I, dy/dx)| <= kappa --------------------------------------------------------------------------------


def stacked_norm(hessian: Array, d: int) -> float:
    """|Z| for Z = (I, dy/dx), from the Hessian of g."""
    response = -np.linalg.solve(hessian[d:, d:], hessian[d:, :d])
    return float(np.linalg.norm(np.vstack([np.eye(d), response]), 2))


@pytest.mark.parametrize(("d", "n"), [(1, 1), (2, 1), (1, 3), (3, 2)])
def test_the_pair_moves_at_most_kappa_times_as_fast(d: int, n: int) -> None:
    rng = np.random.default_rng(10 * d + n)
    closest = 0.0
    for _ in range(400):
        H = rng.standard_normal((d + n, d + n)) * rng.choice([0.1, 1.0, 10.0])
        H = H + H.T
        shift = rng.uniform(0.01, 2) - np.linalg.eigvalsh(H[d:, d:])[0]
        H[d:, d:] += shift * np.eye(n)
        kappa = np.linalg.norm(H, 2) / np.linalg.eigvalsh(H[d:, d:])[0]
        ratio = stacked_norm(H, d) / kappa
        assert ratio <= 1 + 1e-12
        closest = max(closest, ratio)
    assert closest > 0.8


def test_the_lemma_is_attained_and_needs_the_whole_hessian() -> None:
    """[[-1, -w], [-w, 1]] has eigenvalues kappa and -kappa; with blocks of at most ell alone, 1 + kappa is possible."""
    for kappa in (1.0, 1.25, 5.05):
        w = np.sqrt(kappa**2 - 1)
        assert stacked_norm(np.array([[-1.0, -w], [-w, 1.0]]), 1) == pytest.approx(kappa)
    blocks = np.array([[0.0, -2.0], [-2.0, 1.0]])  # every block is at most 2, g_yy = 1
    assert stacked_norm(blocks, 1) > 2


def test_the_identity_behind_the_lemma_is_checked(monkeypatch: pytest.MonkeyPatch) -> None:
    assert norm_calculus.stacked() == sp.Symbol("ell", positive=True) / sp.Symbol("mu", positive=True)
    honest = norm_calculus._constants("joint")

    class Smaller:
        ell, mu, kappa = honest.ell, honest.mu, honest.kappa - 1

    monkeypatch.setattr(norm_calculus, "_constants", lambda reading: Smaller)
    with pytest.raises(ArithmeticError, match="off by"):
        norm_calculus.stacked()


# ---- the derivation --------------------------------------------------------------------------------------------------

FORMULAS: dict[str, tuple[Any, str, str]] = {
    "L_phi": (lambda c: c.L_phi(variant="sharp"), "hess", "norm"),
    "rho_phi": (lambda c: c.rho_phi(variant="sharp"), "hess", "lipschitz"),
    "minimax L_phi": (lambda c: MinimaxConstants.L_phi(c, variant="sharp"), "minimax hess", "norm"),
    "minimax rho_phi": (lambda c: MinimaxConstants.rho_phi(c, variant="sharp"), "minimax hess", "lipschitz"),
}


@pytest.mark.parametrize("name", FORMULAS)
def test_the_formulas_are_exactly_what_the_calculus_derives(name: str) -> None:
    formula, quantity, size = FORMULAS[name]
    bound = getattr(derived("joint")[quantity], size)
    assert follows(formula, bound, reading="joint")
    assert not follows(lambda c: formula(c) * sp.Rational(999, 1000), bound, reading="joint")
    assert not follows(formula, bound * sp.Rational(1001, 1000), reading="joint")
    # and read block by block, the smaller formula does not follow
    smaller = {"norm": lambda c: (c.ell + c.rho * c.M / c.mu) * c.kappa**2, "lipschitz": lambda c: c.rho * c.kappa**3}
    assert not follows(smaller[size], getattr(derived()[quantity], size))


# ---- random jets, whose norms are known exactly ------------------------------------------------------------------------


def jets(d: int, n: int, count: int, seed: int) -> Iterator[tuple[BilevelProblem, Constants]]:
    """Problems whose derivatives at 0 have known norms, with those norms: rank-one tensors beyond the second order."""
    rng = np.random.default_rng(seed)
    z = sp.symbols(f"x1:{d + 1}") + sp.symbols(f"y1:{n + 1}")
    for _ in range(count):
        H, F = (np.round(rng.standard_normal((d + n, d + n)), 6) for _ in "gf")
        H, F = H + H.T, F + F.T
        H[d:, d:] += np.eye(n) * np.ceil(0.5 - np.linalg.eigvalsh(H[d:, d:])[0])
        H[d:, :d] *= rng.choice([0.3, 1.0, 3.0])
        H[:d, d:] = H[d:, :d].T
        a, b, c = (np.round(rng.standard_normal(d + n), 6) for _ in "abc")
        slope = np.round(rng.standard_normal(d + n), 6)
        sign = rng.choice([-1, 1], 3)

        def form(v: Array) -> sp.Expr:
            return sp.Add(*(sp.Float(float(t)) * s for t, s in zip(v, z, strict=True)))

        def quadratic(A: Array) -> sp.Expr:
            terms = (sp.Float(float(A[i, j])) * z[i] * z[j] / 2 for i in range(d + n) for j in range(d + n))
            return sp.Add(*terms)

        f = form(slope) + quadratic(F) + int(sign[0]) * form(a) ** 3 / 6
        g = quadratic(H) + int(sign[1]) * form(b) ** 3 / 6 + int(sign[2]) * form(c) ** 4 / 24
        third, fourth = (np.linalg.norm(t) ** k * np.linalg.norm(t[d:]) for t, k in ((b, 2), (c, 3)))
        constants = Constants(
            mu=float(np.linalg.eigvalsh(H[d:, d:])[0]),
            ell=float(max(np.linalg.norm(H, 2), np.linalg.norm(F, 2))),
            rho=float(max(np.linalg.norm(a) ** 3, third)),
            nu=float(fourth),
            M=float(np.linalg.norm(slope)),
            reading="joint",
        )
        yield BilevelProblem(f, g, z[:d], z[d:]), constants


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(("d", "n"), [(1, 1), (1, 2), (2, 1), (2, 2)])
def test_no_jet_is_above_the_sharp_constants(d: int, n: int) -> None:
    worst = np.zeros(2)
    for problem, c in jets(d, n, 40, seed=d + 7 * n):
        k = problem.kernels
        second, third = k.hess_phi(np.zeros(d)), k.third_phi(np.zeros(d))
        # the largest third derivative along one direction is the norm of a symmetric tensor
        angles = np.linspace(0, np.pi, 181)
        circle = np.ones((1, 1)) if d == 1 else np.stack([np.cos(angles), np.sin(angles)], axis=1)
        along = np.abs(np.einsum("abc,sa,sb,sc->s", third, circle, circle, circle)).max()
        ratios = np.array([np.linalg.norm(second, 2) / c.L_phi(variant="sharp"), along / c.rho_phi(variant="sharp")])
        assert (ratios <= 1 + 1e-9).all()
        worst = np.maximum(worst, ratios)
    assert (worst > 1e-3).all()


# ---- certified: random problems never exceed them, and extremal ones come close ----------------------------------------


def random_problem(seed: int) -> BilevelProblem:
    """Polynomials of degree four in one or two variables on each level, over a small box in x."""
    rng = np.random.default_rng(seed)
    d, n = (int(k) for k in rng.integers(1, 3, 2))
    z = sp.symbols(f"x1:{d + 1}") + sp.symbols(f"y1:{n + 1}")
    forms = [sp.Add(*(sp.Rational(int(rng.integers(-9, 10)), 4) * s for s in z)) for _ in range(6)]
    f = forms[0] + forms[1] ** 2 / 2 + forms[2] ** 3 / 6 + z[0] * z[-1]
    g = 2 * sp.Add(*(s**2 for s in z[d:])) + forms[3] ** 2 / 8 + forms[4] ** 3 / 600 + forms[5] ** 4 / 200
    return BilevelProblem(f, g, z[:d], z[d:], box={s.name: ("-1/20", "1/20") for s in z[:d]})


def certified_ratios(problem: BilevelProblem) -> tuple[float, float]:
    """The certified suprema over the sharp constants, from below: a ratio above 1 would refute the formulas."""
    c: Any = verify.constants(problem, reading="joint").valid
    smooth = verify.smoothness(problem)
    minimax = isinstance(problem, MinimaxProblem)
    formulas = MinimaxConstants(c.mu, c.ell, c.rho) if minimax else c
    L, rho = formulas.L_phi(variant="sharp"), formulas.rho_phi(variant="sharp")
    return smooth.L_phi.lower / L, smooth.rho_phi.lower / rho


@pytest.mark.slow
@pytest.mark.in_ci(seed=range(0, 14, 4))
@pytest.mark.parametrize("seed", [0, 1, *(pytest.param(s, marks=pytest.mark.slow) for s in range(2, 14))])
def test_certified_suprema_stay_below_the_sharp_constants(seed: int) -> None:
    ratios = certified_ratios(random_problem(seed))
    assert min(ratios) > 0
    assert max(ratios) <= 1


def joint_extremal(t: int) -> BilevelProblem:
    """(1, dy/dx) is as long as kappa = (t + 1/t)/2, and the derivatives of the Lagrangian lie along it."""
    kappa, w = (t + sp.Rational(1, t)) / 2, (t - sp.Rational(1, t)) / 2
    s, lower = (X + w * Y) / kappa, w / kappa
    f = 3 * Y + kappa * s**2 / 2 + 2 * s**3 / 6
    g = (-(X**2) - 2 * w * X * Y + Y**2) / 2 - 2 / lower * s**3 / 6 - 5 / lower * s**4 / 24
    box = {"x": (-TINY, TINY), "y": (-2 * kappa * TINY, 2 * kappa * TINY)}
    return BilevelProblem(f, g, X, Y, box=box, name="joint extremal")


def minimax_extremal(t: int) -> MinimaxProblem:
    kappa, w = (t + sp.Rational(1, t)) / 2, (t - sp.Rational(1, t)) / 2
    f = (X**2 + 2 * w * X * Y - Y**2) / 2 + ((X + w * Y) / kappa) ** 3
    return MinimaxProblem(f, X, Y, box={"x": (-TINY, TINY), "y": (-2 * kappa * TINY, 2 * kappa * TINY)})


@pytest.mark.slow
@pytest.mark.parametrize("t", [2, 10])
def test_the_joint_constants_are_approached(t: int) -> None:
    """L_phi up to what a small box costs; rho_phi but for the factor sqrt(1 - 1/kappa^2) in one of its terms."""
    problem = joint_extremal(t)
    kappa = (t + 1 / t) / 2
    of_l, of_rho = certified_ratios(problem)
    assert 0.9998 < of_l <= 1
    assert 0.9998 * np.sqrt(1 - 1 / kappa**2) < of_rho <= 1
    c = verify.constants(problem, reading="joint").valid
    np.testing.assert_allclose([c.mu, c.ell, c.rho, c.nu, c.M], [1, kappa, 2, 5, 3], rtol=2e-4)


@pytest.mark.slow
@pytest.mark.parametrize("t", [2, 10])
def test_the_minimax_constants_are_approached(t: int) -> None:
    of_l, of_rho = certified_ratios(minimax_extremal(t))
    assert 0.9998 < of_l <= 1
    assert 0.9998 < of_rho <= 1


# ---- attained over a box, block by block ------------------------------------------------------------------------------


def taylor_at_corner(f: sp.Expr, g: sp.Expr) -> tuple[sp.Expr, sp.Expr, sp.Expr]:
    """Phi', Phi'' and Phi''' at x = 0 from the series of y*, whose coefficients g_y = 0 gives one after the other."""
    series = sp.Integer(0)
    g_y = sp.diff(g, Y)
    for order in (1, 2, 3):
        unknown = sp.Symbol("unknown")
        equation = sp.expand(g_y.subs(Y, series + unknown * X**order)).coeff(X, order)
        (root,) = sp.solve(equation, unknown)
        series += root * X**order
    phi = sp.expand(f.subs(Y, series))
    first, second, third = (sp.factorial(k) * phi.coeff(X, k) for k in (1, 2, 3))
    return first, second, third


PARAMETERS = [
    {},
    {"mu": 1, "ell": Fraction(3, 2), "rho": 7, "nu": Fraction(1, 3), "M": Fraction(1, 5), "width": Fraction(1, 5000)},
    {"ell": 5, "width": Fraction(1, 2000)},
]


@pytest.mark.parametrize("parameters", PARAMETERS)
def test_the_block_constants_are_attained_in_the_corner(parameters: dict[str, Any]) -> None:
    example = zoo.get("block_extremal", **parameters)
    c = example.constants
    assert c is not None
    first, second, third = taylor_at_corner(example.problem.f, example.problem.g)
    assert (first, second, third) == (c.kappa * c.M, c.L_phi(), c.rho_phi())
    assert (example.notes["second_derivative"], example.notes["third_derivative"]) == (second, third)


@pytest.mark.slow
@pytest.mark.parametrize("parameters", PARAMETERS)
def test_the_constants_of_the_extremal_problem_are_certified(parameters: dict[str, Any]) -> None:
    """By search over the whole box: the constants hold, no larger ones are needed, and Phi reaches their formulas."""
    example = zoo.get("block_extremal", **parameters)
    found = verify.constants(example.problem)
    for name in ("mu", "ell", "rho", "nu", "M"):
        assert float(getattr(example.constants, name)) in found.brackets[name], name
    smooth = verify.smoothness(example.problem)
    c = example.constants
    assert c is not None
    assert smooth.L_phi.lower <= c.L_phi() <= smooth.L_phi.upper * (1 + 1e-15)
    assert smooth.rho_phi.lower <= c.rho_phi() <= smooth.rho_phi.upper * (1 + 1e-15)
    assert smooth.L_phi.ratio < 1.001
    assert smooth.rho_phi.ratio < 1.001
    assert smooth.reasons == {}


def test_the_default_is_the_problem_of_two_hundred() -> None:
    example = zoo.get("block_extremal")
    assert (example.notes["second_derivative"], example.notes["third_derivative"]) == (200, 19625)
    assert example.problem.box is not None
    assert list(example.problem.box) == [(-sp.Rational(1, 1000), 0), (-sp.Rational(1, 100), 0)]


# ---- the claims --------------------------------------------------------------------------------------------------------


def judged(problem: BilevelProblem, label: str, part: str = "", variant: str = "sharp") -> CheckResult:
    options: Any = {"claims": [label], "variant": variant}
    (result,) = [r for r in verify.run(problem, **options).results if r.label == label and r.part == part]
    return result


CLAIMS = [
    (lambda: joint_extremal(10), "grad-Lipschitz", "", 0.99),
    (lambda: joint_extremal(10), "hess-Lipschitz", "", 0.97),
    (lambda: minimax_extremal(10), "lemC.1", "L_phi", 0.99),
    (lambda: minimax_extremal(10), "lemC.1", "rho_phi", 0.99),
]
NAMES = ["grad-Lipschitz", "hess-Lipschitz", "lemC.1 L_phi", "lemC.1 rho_phi"]


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(("make", "label", "part", "tight"), CLAIMS, ids=NAMES)
def test_the_claims_judge_by_the_better_reading(make: Any, label: str, part: str, tight: float) -> None:
    problem = make()
    sharp, corrected = (judged(problem, label, part, variant) for variant in ("sharp", "corrected"))
    assert sharp.verdict is corrected.verdict is Verdict.HOLDS
    assert sharp.bound is not None
    assert corrected.bound is not None
    assert sharp.bound < 0.9 * corrected.bound
    assert sharp.tightness is not None
    assert tight < sharp.tightness <= 1
    assert sharp.evidence == "certified" or "jointly" in sharp.message


@pytest.mark.slow
def test_where_the_blocks_are_better_they_are_taken() -> None:
    problem = zoo.get("block_extremal").problem
    for label in ("grad-Lipschitz", "hess-Lipschitz"):
        sharp, corrected = (judged(problem, label, variant=v) for v in ("sharp", "corrected"))
        assert sharp.verdict is Verdict.HOLDS
        assert sharp.bound == corrected.bound
        assert sharp.tightness is not None
        assert sharp.tightness > 0.99


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(("make", "label", "part", "tight"), CLAIMS, ids=NAMES)
def test_smaller_sharp_constants_are_refuted(
    make: Any, label: str, part: str, tight: float, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A planted defect: formulas that are 5 % too small, as if (I, dy/dx) were shorter than it can be."""
    owner: Any = MinimaxConstants if label == "lemC.1" else Constants
    for name in ("L_phi", "rho_phi"):
        honest = getattr(owner, name)

        def smaller(self: Any, *, variant: Any = "corrected", honest: Any = honest) -> Any:
            value = honest(self, variant=variant)
            return value * Fraction(19, 20) if isinstance(value, Fraction) else value * 0.95

        monkeypatch.setattr(owner, name, smaller)
    assert judged(make(), label, part).verdict is Verdict.VIOLATED


@pytest.mark.slow
def test_the_formula_of_the_joint_reading_is_false_for_blocks(monkeypatch: pytest.MonkeyPatch) -> None:
    """A planted defect: kappa in place of 1 + kappa whatever the reading; the corner of the extremal problem refutes it."""
    monkeypatch.setattr(Constants, "stretch", property(lambda self: self.kappa))
    for label in ("grad-Lipschitz", "hess-Lipschitz"):
        assert judged(zoo.get("block_extremal").problem, label).verdict is Verdict.VIOLATED
