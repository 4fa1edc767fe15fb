"""The Hypothesis strategies: what they promise of every problem, how they shrink, how they print."""

from __future__ import annotations

import importlib.metadata
import re
import subprocess
import sys
import textwrap
from collections.abc import Callable
from fractions import Fraction
from random import Random
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
import sympy as sp
from hypothesis import HealthCheck, Phase, find, given, settings

import verify
from bilevel_sym import BilevelProblem, MinimaxProblem, StochasticProblem, evaluate, sigmoid, softplus
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.graph.operations import FUNCTIONS
from verify.regularity.certified import instances
from verify.strategies import (
    DEGENERATE,
    Recipe,
    degenerate,
    minimax_problems,
    points,
    problems,
    quadratics,
    recipes,
    stochastic_problems,
)
from verify.strategies.recipe import KINDS
from verify.strategies.terms import Ridge, dot, frame, norm, root, symmetric

ALL = st.sampled_from(tuple(KINDS)).flatmap(recipes)
STRATEGIES = {
    "problems": (problems, BilevelProblem),
    "quadratics": (quadratics, BilevelProblem),
    "minimax_problems": (minimax_problems, MinimaxProblem),
    "stochastic_problems": (stochastic_problems, StochasticProblem),
    "degenerate": (degenerate, BilevelProblem),
}
FEW = settings(max_examples=10)
FIND = settings(
    max_examples=3000,
    database=None,
    deadline=None,
    phases=[Phase.generate, Phase.shrink],
    report_multiple_bugs=False,
    suppress_health_check=list(HealthCheck),
)


def smallest(strategy: st.SearchStrategy[Any], condition: Any) -> Any:
    return find(strategy, condition, settings=FIND, random=Random(0))


def corner(recipe: Recipe, share: float = 1 / 3) -> np.ndarray:
    """A point of the box in x, and not its middle."""
    return np.array([share * float(r) for r in recipe.radii[: recipe.d]])


def y_at(recipe: Recipe, x: np.ndarray) -> np.ndarray:
    assert recipe.y_star is not None
    values = dict(zip(recipe.problem.x, map(sp.Rational, map(float, x)), strict=True))
    return np.array([float(entry.subs(values)) for entry in recipe.y_star])


def g_yy_at(recipe: Recipe, x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.asarray(recipe.problem.kernels.g_yy(x[None], y[None])[0])


# ---- what every problem has -------------------------------------------------------------------------


@pytest.mark.parametrize("name", STRATEGIES)
@settings(max_examples=8)
@given(data=st.data())
def test_every_problem_has_its_class_its_sizes_and_a_box(name: str, data: st.DataObject) -> None:
    strategy, kind = STRATEGIES[name]
    d, n = data.draw(st.integers(1, 4)), data.draw(st.integers(1, 4))
    problem = data.draw(strategy(d=d, n=(1, n)))
    assert type(problem) is kind
    assert problem.d == d
    assert 1 <= problem.n <= n
    assert problem.box is not None
    assert len(problem.box) == problem.d + problem.n


@pytest.mark.slow
@given(data=st.data())
def test_points_lie_in_the_box_and_are_short_numbers(data: st.DataObject) -> None:
    problem = data.draw(problems() | degenerate("badly scaled"))
    x = data.draw(points(problem))
    assert x.dtype == np.float64
    assert x.shape == (problem.d,)
    for value, symbol in zip(x, problem.x, strict=True):
        low, high = problem.box[symbol]  # type: ignore[index]
        exact = sp.Rational(float(value))
        assert low <= exact <= high
        assert exact in (low, high) or _odd(exact) <= 2**6


def _odd(value: sp.Rational) -> int:
    """The numerator without its powers of two."""
    return int(abs(value.p) // (value.p & -value.p)) if value else 0


def test_points_reach_corners_middle_and_zero() -> None:
    box = {"x1": (-1, 3), "x2": ("1/3", "2/3"), "x3": (2, 2), "y": (0, 1)}
    problem = BilevelProblem("x1 + x2 + x3", "y**2", "x1 x2 x3", "y", box=box)
    assert smallest(points(problem), lambda x: True).tolist() == [0, 0.5, 2]
    for value in (-1, 3, 1, 0):
        assert smallest(points(problem), lambda x, value=value: x[0] == value)[0] == value
    assert smallest(points(problem), lambda x: x[1] != 0.5)[1] in (0.375, 0.625)


# ---- strongly convex by construction, with the constants known --------------------------------------


@given(ALL, st.integers(0, 2**20))
def test_the_eigenvalues_of_g_yy_lie_between_the_constants(recipe: Recipe, seed: int) -> None:
    rng, radii = np.random.default_rng(seed), np.array(recipe.radii, dtype=float)
    z = rng.uniform(-1, 1, (20, recipe.d + recipe.n)) * radii
    for instance in instances(recipe.problem):
        blocks = instance.kernels.g_yy(z[:, : recipe.d], z[:, recipe.d :])
        eigenvalues = np.linalg.eigvalsh(blocks)
        slack = 1e-13 * float(recipe.constants.ell)
        assert eigenvalues.min() >= float(recipe.constants.mu) - slack
        assert eigenvalues.max() <= float(recipe.constants.ell) + slack


@pytest.mark.slow
@FEW
@given(ALL)
def test_the_constants_agree_with_the_certified_ones(recipe: Recipe) -> None:
    mine, certified = recipe.constants, verify.constants(recipe.problem, effort=0.01, rtol=0.5)
    assert 0 < mine.mu <= certified.upper.mu * (1 + 1e-12)
    for name in ("ell", "rho", "nu", "M"):
        assert getattr(mine, name) >= getattr(certified.lower, name) * (1 - 1e-12), name


@pytest.mark.slow
@settings(max_examples=15)
@given(recipes("quadratic") | recipes("constant blocks"))
def test_the_constants_of_quadratics_are_exact_or_nearly(recipe: Recipe) -> None:
    mine, certified = recipe.constants, verify.constants(recipe.problem, effort=0.02)
    hessian = sp.Matrix([[sp.diff(recipe.problem.g, a, b) for a in recipe.problem.y] for b in recipe.problem.y])
    exact = sp.Mul(*(sp.Symbol("t") - value for value in recipe.spectrum))
    assert sp.expand(hessian.charpoly("t").as_expr() - exact) == 0
    assert mine.mu == min(recipe.spectrum)
    assert mine.ell >= max(recipe.spectrum)
    assert certified.lower.mu <= mine.mu <= certified.upper.mu
    assert mine.rho == mine.nu == 0
    assert mine.ell <= 2 * certified.upper.ell
    assert mine.M <= 3 * certified.upper.M


@pytest.mark.slow
@given(ALL)
def test_y_star_is_a_root_of_the_lower_level(recipe: Recipe) -> None:
    if recipe.y_star is None:
        return
    problem = recipe.problem
    mean = problem.mean if isinstance(problem, StochasticProblem) else problem
    values = dict(zip(problem.y, recipe.y_star, strict=True))
    for symbol in problem.y:
        assert sp.expand(sp.diff(mean.g, symbol).subs(values, simultaneous=True)) == 0


@FEW
@given(ALL)
def test_kernels_and_certificates_find_the_same_y_star_inside_the_box(recipe: Recipe) -> None:
    x, problem = corner(recipe), recipe.problem
    found = np.asarray(problem.kernels.y_star(x[None])[0])
    widths = np.array(recipe.radii[recipe.d :], dtype=float)
    assert (np.abs(found) <= widths).all()
    if recipe.y_star is not None:
        known = y_at(recipe, x)
        certified = np.array([float(ball) for ball in evaluate(problem, x.tolist()).y_star])
        np.testing.assert_allclose(certified, known, rtol=1e-14, atol=1e-14 * widths.max())
        accuracy = 1e-15 * float(recipe.constants.kappa) + 1e-13
        assert (np.abs(found - known) <= accuracy * widths.max()).all()


# ---- the degenerate kinds ---------------------------------------------------------------------------


@given(recipes("isotropic"))
def test_isotropic(recipe: Recipe) -> None:
    x = corner(recipe)
    block = g_yy_at(recipe, x, y_at(recipe, x))
    np.testing.assert_allclose(block, float(recipe.spectrum[0]) * np.eye(recipe.n), rtol=1e-12, atol=1e-12)


@pytest.mark.slow
def test_isotropic_problems_have_2_i_first_and_others_too() -> None:
    assert smallest(recipes("isotropic"), lambda r: True).spectrum == (2,)
    assert smallest(recipes("isotropic"), lambda r: r.n == 3 and r.spectrum[0] < 1).spectrum == (sp.Rational(1, 2),) * 3


@pytest.mark.slow
@given(recipes("few eigenvalues", n=(1, 4)))
def test_few_eigenvalues(recipe: Recipe) -> None:
    assert recipe.n >= 3
    x = corner(recipe)
    found = np.linalg.eigvalsh(g_yy_at(recipe, x, y_at(recipe, x)))
    np.testing.assert_allclose(found, sorted(map(float, recipe.spectrum)), rtol=1e-11, atol=1e-11)
    assert len(set(recipe.spectrum)) == 2


@pytest.mark.parametrize(
    ("kind", "holds"),
    [
        ("d = 1", lambda d, n: d == 1),
        ("n = 1", lambda d, n: n == 1),
        ("d < n", lambda d, n: d < n),
        ("d > n", lambda d, n: d > n),
    ],
)
@settings(max_examples=8)
@given(data=st.data())
def test_shapes(kind: str, holds: Any, data: st.DataObject) -> None:
    problem = data.draw(degenerate(kind))
    assert holds(problem.d, problem.n)


@pytest.mark.slow
@given(recipes("early termination", n=(1, 4)))
def test_early_termination(recipe: Recipe) -> None:
    """f_y is orthogonal to the last eigenvector, identically, and g_yy never leads there."""
    problem, last = recipe.problem, recipe.frame[-1]

    def along(expression: sp.Expr, vector: tuple[Fraction, ...]) -> sp.Expr:
        weights = (sp.Rational(a.numerator, a.denominator) for a in vector)
        return sp.Add(*(w * sp.diff(expression, s) for w, s in zip(weights, problem.y, strict=True)))

    assert sp.expand(along(problem.f, last)) == 0
    assert any(sp.diff(problem.f, s) != 0 for s in problem.y)
    assert all(sp.expand(along(along(problem.g, u), last)) == 0 for u in recipe.frame[:-1])


@pytest.mark.slow
@given(recipes("quadratic g"), recipes("third derivatives"))
def test_with_and_without_third_derivatives_of_g(plain: Recipe, bent: Recipe) -> None:
    variables = (*plain.problem.x, *plain.problem.y)
    assert sp.Poly(plain.problem.g, *variables).total_degree() == 2
    problem, x = bent.problem, corner(bent)
    values = dict(zip((*problem.x, *problem.y), (*x, *y_at(bent, x)), strict=True))
    third = (sp.diff(problem.g, a, b, c) for a in problem.y for b in problem.y for c in problem.y)
    assert any(abs(float(entry.subs(values))) > 1e-6 for entry in third)


@pytest.mark.slow
@given(recipes("ill-conditioned"))
def test_ill_conditioned(recipe: Recipe) -> None:
    assert recipe.kappa in [10**k for k in range(9)]
    exact = symmetric(recipe.eigenvalues, recipe.frame)
    x = corner(recipe)
    block = g_yy_at(recipe, x, y_at(recipe, x))
    np.testing.assert_allclose(block, np.array(exact, dtype=float), rtol=1e-9, atol=1e-9 * float(max(recipe.spectrum)))


@pytest.mark.parametrize("kappa", [1, 10**8])
def test_the_ends_of_the_condition_numbers_occur(kappa: int) -> None:
    assert smallest(recipes("ill-conditioned"), lambda recipe: recipe.kappa == kappa).kappa == kappa


@pytest.mark.slow
@given(recipes("root at zero"), recipes("root at a point"), recipes("zero adjoint"))
def test_warm_starts_at_the_root(zero: Recipe, at_point: Recipe, adjoint: Recipe) -> None:
    assert zero.y_star == (0,) * zero.n
    assert at_point.zero is not None
    for recipe in (at_point, adjoint):
        x = corner(recipe) if recipe.zero is None else np.array(recipe.zero)
        assert not y_at(recipe, x).any()
        origin = np.zeros((1, recipe.n))
        assert np.abs(recipe.problem.kernels.g_y(x[None], origin)).max() <= 1e-13 * float(recipe.constants.ell)
        assert all(low <= value <= high for value, (low, high) in zip(x, recipe.problem.box or (), strict=False))
    x = corner(adjoint) if adjoint.zero is None else np.array(adjoint.zero)
    assert not adjoint.problem.kernels.f_y(x[None], np.zeros((1, adjoint.n))).any()  # so v* = 0


@pytest.mark.slow
@given(degenerate("f independent of y"), degenerate("f linear in y"), degenerate("constant blocks"))
def test_simple_upper_levels(without: BilevelProblem, linear: BilevelProblem, constant: BilevelProblem) -> None:
    assert without.f.free_symbols <= set(without.x)
    assert linear.f.free_symbols & set(linear.y)
    assert all(sp.expand(sp.diff(linear.f, a, b)) == 0 for a in linear.y for b in linear.y)
    for formula in (constant.f, constant.g):
        assert sp.Poly(formula, *constant.x, *constant.y).total_degree() <= 2


@given(recipes("badly scaled"))
def test_badly_scaled(recipe: Recipe) -> None:
    assert recipe.kappa <= 10**8
    assert all(Fraction(1, 20000) <= r <= 20000 for r in recipe.radii[: recipe.d])
    x = corner(recipe)
    curvatures = np.diag(g_yy_at(recipe, x, y_at(recipe, x)))
    spectrum = np.array(recipe.spectrum, dtype=float)
    assert (curvatures >= spectrum * (1 - 1e-12)).all()
    if not recipe.lower.ridges:
        np.testing.assert_allclose(curvatures, spectrum, rtol=1e-12)


@pytest.mark.slow
def test_bad_scales_reach_both_ends() -> None:
    assert smallest(recipes("badly scaled"), lambda r: r.radii[0] == 10**4).radii[0] == 10**4
    assert smallest(recipes("badly scaled"), lambda r: r.radii[0] == Fraction(1, 10**4)).radii[0] < 1
    assert smallest(recipes("badly scaled", n=2), lambda r: r.kappa == 10**8).kappa == 10**8


@pytest.mark.slow
def test_degenerate_draws_every_kind_that_fits() -> None:
    seen = {kind: smallest(recipes(kind), lambda recipe: True).kind for kind in DEGENERATE}
    assert seen == {kind: kind for kind in DEGENERATE}
    assert smallest(degenerate(n=1), lambda problem: True).n == 1


# ---- problems that bite ----------------------------------------------------------------------------------


@FEW
@given(recipes("spread spectrum"))
def test_a_spread_spectrum_has_no_two_eigenvalues_the_same(recipe: Recipe) -> None:
    assert 5 <= recipe.n <= 30
    assert len(set(recipe.spectrum)) == recipe.n
    assert recipe.kappa <= 30
    _has_a_part_along_each(recipe)


@FEW
@given(recipes("clustered spectrum"))
def test_a_clustered_spectrum_has_two_or_three_groups(recipe: Recipe) -> None:
    decades = {sp.floor(sp.log(value, 10)) for value in recipe.spectrum}
    assert len(decades) in (2, 3)
    assert len(set(recipe.spectrum)) == recipe.n
    _has_a_part_along_each(recipe)


@FEW
@given(recipes("ill-conditioned system"))
def test_the_right_side_of_an_ill_conditioned_system_is_known(recipe: Recipe) -> None:
    f, y = recipe.problem.f, recipe.problem.y
    slopes = [sp.diff(f, s) for s in y]
    assert all(slope.is_Rational and slope != 0 for slope in slopes)
    assert 100 <= recipe.kappa <= 2 * 10**6


@FEW
@given(recipes("far start"))
def test_a_far_start_is_far(recipe: Recipe) -> None:
    assert np.abs(y_at(recipe, corner(recipe))).min() > 90


@FEW
@given(recipes("slowly varying"))
def test_a_slowly_varying_hessian_varies_slowly(recipe: Recipe) -> None:
    waves = [ridge for ridge in recipe.lower.ridges if ridge.function == "sin"]
    assert waves
    for wave in waves:  # a third derivative relative to the second: at most a tenth of what a frame's vector would give
        assert norm(wave.form[recipe.d :]) <= max(map(norm, recipe.frame)) / 10


@FEW
@given(recipes("x absent from g"))
def test_x_is_absent_from_g(recipe: Recipe) -> None:
    assert not recipe.problem.g.free_symbols & set(recipe.problem.x)
    assert any(y_at(recipe, corner(recipe)))


def _has_a_part_along_each(recipe: Recipe) -> None:
    """Conjugate gradients from zero need a step for every eigenvalue."""
    slopes = [Fraction(int(c.p), int(c.q)) for c in (sp.diff(recipe.problem.f, s) for s in recipe.problem.y)]
    parts = [dot(slopes, u) != 0 for u in recipe.frame]
    assert sum(parts) >= recipe.n - 4  # in a plane that is turned a part may be zero


# ---- shrinking --------------------------------------------------------------------------------------


def readable(problem: BilevelProblem) -> None:
    fields = problem._statement.fields(problem.kind, None, None)
    texts = [fields.f, fields.g or ""]
    assert sum(map(len, texts)) < 60, texts
    assert not any("/" in text for text in texts), texts


SHRUNK: dict[str, Callable[[BilevelProblem], bool]] = {
    "g_yy not diagonal": lambda p: p.n == 2 and sp.diff(p.g, p.y[0], p.y[1]) != 0,
    "third derivatives": lambda p: any(sp.diff(p.g, s, 3) != 0 for s in p.y),
    "d = 2": lambda p: p.d == 2,
    "f not linear in y": lambda p: any(sp.diff(p.f, s, 2) != 0 for s in p.y),
    "exp": lambda p: p.f.has(sp.exp),
}


@pytest.mark.slow
@pytest.mark.parametrize("condition", SHRUNK)
def test_problems_shrink_to_what_a_person_can_read(condition: str) -> None:
    strategy = quadratics() if condition == "g_yy not diagonal" else problems()
    problem = smallest(strategy, SHRUNK[condition])
    assert SHRUNK[condition](problem)
    readable(problem)


@pytest.mark.parametrize("name", STRATEGIES)
def test_every_strategy_shrinks_to_something_short(name: str) -> None:
    readable(smallest(STRATEGIES[name][0](), lambda problem: True))


# ---- printing ---------------------------------------------------------------------------------------

NAMES = {kind.__name__: kind for kind in (BilevelProblem, MinimaxProblem, StochasticProblem)}


@pytest.mark.slow
@given(ALL)
def test_a_problem_prints_as_code_that_makes_it(recipe: Recipe) -> None:
    code = repr(recipe.problem)
    assert not code.startswith("<")
    again = eval(code, dict(NAMES))
    assert again == recipe.problem
    assert type(again) is type(recipe.problem)
    assert repr(again) == code


@pytest.mark.slow
@pytest.mark.parametrize("strategy", [problems(), degenerate(), st.from_type(StochasticProblem)], ids=range(3))
def test_a_failing_example_is_that_code(strategy: st.SearchStrategy[BilevelProblem]) -> None:
    @settings(database=None, phases=[Phase.generate, Phase.shrink], max_examples=200, print_blob=False)
    @given(problem=strategy)
    def fails(problem: BilevelProblem) -> None:
        assert problem.d < 2

    with pytest.raises(AssertionError) as caught:
        fails()
    notes = "\n".join(caught.value.__notes__)
    found = re.search(r"problem=(.*),\s*\)", notes, re.DOTALL)
    assert found is not None, notes
    assert eval(found[1], dict(NAMES)).d == 2


def test_a_failing_recipe_shows_its_problem() -> None:
    @settings(database=None, phases=[Phase.generate, Phase.shrink], print_blob=False)
    @given(recipe=recipes())
    def fails(recipe: Recipe) -> None:
        raise AssertionError

    with pytest.raises(AssertionError) as caught:
        fails()
    assert "recipe=<Recipe (general) of BilevelProblem('y1'," in "\n".join(caught.value.__notes__)


# ---- the entry point, and life without Hypothesis ---------------------------------------------------


def python(code: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    return subprocess.run(command, capture_output=True, text=True, check=False, timeout=120)


@pytest.mark.slow
def test_from_type_works_where_only_hypothesis_and_bilevel_sym_are_imported() -> None:
    try:
        distribution = importlib.metadata.distribution("bilevel-sym")
    except importlib.metadata.PackageNotFoundError:
        pytest.skip("bilevel-sym is not installed: without its entry points Hypothesis cannot know of it")
    assert [e.value for e in distribution.entry_points if e.group == "hypothesis"], "install the package again"
    ran = python("""
        import hypothesis.strategies as st
        from hypothesis import find
        from bilevel_sym import BilevelProblem, MinimaxProblem, StochasticProblem
        for kind in (BilevelProblem, MinimaxProblem, StochasticProblem):
            assert type(find(st.from_type(kind), lambda problem: problem.d == 2)) is kind
    """)
    assert ran.returncode == 0, ran.stderr


@pytest.mark.slow
def test_the_strategies_may_be_imported_before_hypothesis() -> None:
    ran = python("import verify.strategies, sys; assert 'hypothesis' in sys.modules")
    assert ran.returncode == 0, ran.stderr


def test_without_hypothesis_one_error_says_what_to_install() -> None:
    ran = python("""
        import sys
        sys.modules["hypothesis"] = None
        import verify
        try:
            import verify.strategies
        except ImportError as error:
            assert 'pip install "bilevel-sym[test]"' in str(error)
        else:
            raise SystemExit("no error")
    """)
    assert ran.returncode == 0, ran.stderr


# ---- what cannot be drawn ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("attempt", "message"),
    [
        (lambda: problems(d=0), "d = 0 is no size"),
        (lambda: quadratics(n=(3, 1)), "is no size"),
        (lambda: minimax_problems(n="2"), "is no size"),  # type: ignore[arg-type]
        (lambda: degenerate("d = 1", d=2), "no problem of kind 'd = 1'"),
        (lambda: degenerate("early termination", n=1), "no problem of kind"),
        (lambda: degenerate("odd"), "is no degenerate kind"),
        (lambda: recipes("odd"), "no kind of problem called"),
        (lambda: points(BilevelProblem("x*y", "y**2", "x", "y")), "no box"),
        (lambda: points("x"), "points belong to a problem"),  # type: ignore[arg-type]
    ],
)
def test_what_cannot_be_drawn_says_so_at_once(attempt: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        attempt()


# ---- the parts --------------------------------------------------------------------------------------


@given(
    st.integers(1, 4).flatmap(
        lambda n: st.lists(st.tuples(*[st.integers(-3, 3)] * n), max_size=3).map(lambda v: (v, n))
    )
)
def test_frames_are_orthogonal_and_matrices_have_their_eigenvalues(drawn: tuple[list[tuple[int, ...]], int]) -> None:
    given_vectors, n = drawn
    vectors = frame(given_vectors, n)
    assert len(vectors) == n
    assert all(dot(a, b) == 0 for i, a in enumerate(vectors) for b in vectors[:i])
    eigenvalues = tuple(Fraction(k + 1, 2) for k in range(n))
    matrix = symmetric(eigenvalues, vectors)
    for value, u in zip(eigenvalues, vectors, strict=True):
        assert tuple(dot(row, u) for row in matrix) == tuple(value * entry for entry in u)


@given(st.fractions(0, 10**6))
def test_roots_are_exact_or_from_above(square: Fraction) -> None:
    assert 0 <= root(square) ** 2 - square <= Fraction(1, 2**50) * square
    assert root(square**2) == square
    assert norm((square, Fraction(0))) == square


ORDERS = [(i, j) for i in range(4) for j in range(5 - i) if i + j]


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize(
    ("function", "weight"),
    [*((name, None) for name, record in FUNCTIONS.items() if record.bounds), ("cube", None), ("square", 1), ("sin", 1)],
)
def test_bounds_on_ridges_hold_where_derivatives_are_sampled(function: str, weight: int | None) -> None:
    """Every block up to the fourth order along unit vectors of x and of y, by SymPy's derivatives."""
    form, radii = (Fraction(1), Fraction(-1, 2), Fraction(2)), (Fraction(1), Fraction(1, 2), Fraction(1))
    ridge = Ridge(Fraction(-3, 2), function, form, Fraction(1, 4), weight)
    *z, a, b = sp.symbols("x1 x2 y1 a b")
    plain = ridge.expression(z).replace(lambda e: e.func in (softplus, sigmoid), lambda e: e.rewrite(sp.exp))
    c, s = sp.Rational(4, 5), sp.Rational(-3, 5)
    path = plain.subs({z[0]: z[0] + c * a, z[1]: z[1] + s * a, z[2]: z[2] + b}, simultaneous=True)
    samples = np.random.default_rng(0).uniform(-1, 1, (30, 3)) * np.array(radii, dtype=float)
    for i, j in ORDERS:
        block = sp.lambdify(z, path.diff(a, i).diff(b, j).subs({a: 0, b: 0}), "math")
        largest = max(abs(block(*point)) for point in samples)
        assert largest <= float(ridge.norm(i, j, 2, radii)) * (1 + 1e-9), (i, j)
