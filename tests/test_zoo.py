"""Each answer in the zoo, checked by a route that did not produce it.

Long for a test file: every problem goes through every check that applies to it.
"""

from __future__ import annotations

import importlib
import itertools
import pickle
import pkgutil
from collections.abc import Callable, Iterator, Sequence
from fractions import Fraction
from pathlib import Path
from typing import Any, TypeVar

import hypothesis.strategies as st
import mpmath
import numpy as np
import pytest
import sympy as sp
from helpers import calls_of
from hypothesis import given
from mpmath import mp

from bilevel_sym import zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.problem.problem import BilevelProblem, MinimaxProblem, StochasticProblem
from bilevel_sym.zoo.data import spread
from bilevel_sym.zoo.entry import Entry, Example

NAMES = zoo.names()
EXAMPLES = {
    spec: zoo.parse(spec)
    for spec in [
        *NAMES, "saddle,d=1", "saddle,d=3", "quadratic,d=1,n=1", "quadratic,d=3,n=1",
        "quadratic,d=1,n=4", "quadratic,spectrum=isotropic", "quadratic,n=4,spectrum=100",
        "quadratic,spectrum=1/2:3:7", "tube,d=1", "tube,d=2,L=2,gamma=1/3", "tube_printed,d=1",
        "tube_printed,d=2,L=2,gamma=1/3", "tube_coupled,d=2,kappa=1", "ridge,rows=20",
        "robust_regression,rows=3,penalty=1/2", "stochastic_noise,d=1,noise=2",
        "stochastic_rows,rows=10",
    ]
}  # fmt: skip
CLOSED = [spec for spec, example in EXAMPLES.items() if example.y_star is not None]
WITH_POINTS = [spec for spec, example in EXAMPLES.items() if example.stationary_points]
WITH_CONSTANTS = [spec for spec, example in EXAMPLES.items() if example.constants is not None]
FUNCTIONS = {  # what mpmath needs to know about our own functions
    "softplus": lambda z: mpmath.log1p(mpmath.exp(z)),
    "sigmoid": lambda z: 1 / (1 + mpmath.exp(-z)),
}
Array = np.ndarray[Any, Any]
_T = TypeVar("_T")


# --- helpers ------------------------------------------------------------------------------------


def known(value: _T | None) -> _T:
    assert value is not None
    return value


def numeric(variables: Sequence[sp.Symbol], expression: Any) -> Callable[..., Any]:
    """The expression as a function of mpmath numbers."""
    return sp.lambdify(list(variables), expression, [FUNCTIONS, "mpmath"])  # type: ignore[no-any-return]


def grad(expression: sp.Expr, variables: Sequence[sp.Symbol]) -> sp.Matrix:
    return sp.Matrix([sp.diff(expression, s) for s in variables])


def cross(problem: BilevelProblem) -> sp.Matrix:
    return sp.Matrix([[sp.diff(problem.g, s, t) for t in problem.y] for s in problem.x])


def mpf(values: Sequence[sp.Expr]) -> list[Any]:
    return [sp.N(value, mp.dps + 10)._to_mpmath(mp.prec) for value in values]


def sample(example: Example, count: int) -> Iterator[list[sp.Rational]]:
    """Rational points of the box in x."""
    ends = [known(example.problem.box)[s] for s in example.problem.x]
    for row in np.random.default_rng(0).integers(0, 1001, (count, len(ends))).tolist():
        pairs = zip(row, ends, strict=True)
        yield [low + (high - low) * sp.Rational(k, 1000) for k, (low, high) in pairs]


def lower_solution(example: Example) -> Callable[..., Any]:
    """The stated y*; where none is stated, Newton from the middle of the box, from nothing but g."""
    problem = example.problem
    if example.y_star is not None:
        return numeric(problem.x, example.y_star)
    slope = numeric((*problem.x, *problem.y), grad(problem.g, problem.y))
    hessian = numeric((*problem.x, *problem.y), sp.hessian(problem.g, problem.y))
    start = known(problem.box).midpoint[problem.d :]

    def solve(*x: Any) -> list[Any]:
        y = mp.matrix(mpf(start))
        for _ in range(100):
            step = mp.lu_solve(hessian(*x, *y), slope(*x, *y))
            y -= step
            if mp.norm(step) < mp.mpf(10) ** (-mp.dps // 2 - 5):
                break
        return list(y)

    return solve


def differences(function: Callable[..., Any], x: list[Any]) -> tuple[list[Any], Any]:
    """Gradient and Hessian by central differences; a tiny step, because the digits are many."""
    step = mp.mpf(10) ** -20

    def at(*shifts: tuple[int, int]) -> Any:
        moved = list(x)
        for i, sign in shifts:
            moved[i] += sign * step
        return function(*moved)

    gradient = [(at((i, 1)) - at((i, -1))) / (2 * step) for i in range(len(x))]
    hessian = mp.zeros(len(x))
    for i, j in itertools.product(range(len(x)), repeat=2):
        along = at((i, 1), (j, 1)) + at((i, -1), (j, -1))
        hessian[i, j] = (along - at((i, 1), (j, -1)) - at((i, -1), (j, 1))) / (4 * step**2)
    return gradient, hessian


def kind_of(hessian: Any) -> str:
    eigenvalues = mp.eigsy(hessian, eigvals_only=True)
    if min(map(abs, eigenvalues)) < mp.mpf(10) ** -15:
        return "degenerate"
    if min(eigenvalues) > 0:
        return "local minimum"
    return "local maximum" if max(eigenvalues) < 0 else "saddle"


# --- the registry -------------------------------------------------------------------------------


def test_nothing_is_forgotten() -> None:
    found = [m.name for m in pkgutil.iter_modules(zoo.__path__)]
    contents = (vars(importlib.import_module(f"bilevel_sym.zoo.{m}")).values() for m in found)
    made = {item.name for item in itertools.chain(*contents) if isinstance(item, Entry)}
    assert made == {*NAMES, *zoo.data_names()}


def test_the_contract_is_kept() -> None:
    assert set(NAMES) >= {
        "scalar", "quadratic", "saddle", "implicit_cubic", "ridge", "logistic", "hyper_cleaning",
        "tube", "tube_printed", "tube_coupled", "minimax_nash", "minimax_not_nash",
        "minimax_degenerate", "robust_regression", "lphi_witness", "stochastic_noise",
        "stochastic_rows", "block_extremal",
    }  # fmt: skip


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", NAMES)
def test_every_example_is_complete(name: str) -> None:
    example = zoo.get(name)
    problem = example.problem
    assert example.name == problem.name == name
    assert example.reference
    assert example.summary
    assert "\n" not in example.summary
    assert dict(example.parameters) == dict(zoo.parameters(name))
    assert zoo.summary(name)
    assert len(known(problem.box)) == problem.d + problem.n
    assert (example.y_star is None) == (example.phi is None)
    assert example.y_star is None or len(example.y_star) == problem.n
    assert all(len(point.x) == problem.d for point in example.stationary_points or ())
    assert name in repr(example)
    assert example.describe().startswith(name)


@pytest.mark.parametrize("name", NAMES)
def test_examples_are_frozen_values(name: str) -> None:
    example = zoo.get(name)
    assert example == zoo.get(name)
    assert hash(example) == hash(zoo.get(name))
    with pytest.raises(AttributeError):
        example.summary = "changed"  # type: ignore[misc]
    with pytest.raises(TypeError):
        example.parameters["d"] = 3  # type: ignore[index]


@pytest.mark.parametrize("name", ["saddle", "stochastic_rows", "ridge"])
def test_an_example_travels_to_another_process(name: str) -> None:
    example = zoo.get(name)
    arrived = pickle.loads(pickle.dumps(example))
    assert arrived == example
    assert (dict(arrived.parameters), dict(arrived.notes)) == (dict(example.parameters), dict(example.notes))


def test_kinds_of_problem() -> None:
    kinds = {name: type(zoo.get(name).problem) for name in NAMES}
    assert [name for name, kind in kinds.items() if kind is StochasticProblem] == [
        "stochastic_noise", "stochastic_rows",
    ]  # fmt: skip
    assert [name for name, kind in kinds.items() if kind is MinimaxProblem] == [
        "minimax_degenerate", "minimax_nash", "minimax_not_nash", "minimax_wells", "robust_regression",
    ]  # fmt: skip


def test_parameters_are_exact_and_converted() -> None:
    example = zoo.get("tube", d=np.int64(2), L=0.5, gamma="0.1")
    assert dict(example.parameters) == {"d": 2, "L": sp.Rational(1, 2), "gamma": sp.Rational(1, 10)}
    assert type(example.parameters["d"]) is int
    assert zoo.parse("tube, d=2, L=0.5, gamma=1/10") == example
    assert zoo.parse("quadratic,n=2,spectrum=2:3") == zoo.get("quadratic", n=2, spectrum=(2, 3))
    assert zoo.parse("quadratic,spectrum=10") == zoo.get("quadratic", spectrum=10)
    assert zoo.get("quadratic", seed=1) != zoo.get("quadratic", seed=2)


BAD = {
    "tubee": "did you mean tube?",
    "": "the zoo has no problem called ''",
    "xyzzy": "one of ",
    "tube,d": "'d' is not of the form name=value",
    "tube,d=": "not of the form",
    "tube,=3": "not of the form",
    "tube,": "not of the form",
    "tube,d=2,d=3": "'d=3' is given twice",
    "nosuch,d": "the zoo has no problem called 'nosuch'",
    "tube,D=3": "it takes d=5, L=1, gamma=1",
    "scalar,d=1": "it takes no parameters",
    "tube,d=x": "tube wants an integer for d, but was given 'x'",
    "tube,d=2.5": "wants an integer",
    "tube,d=1e400": "d must be between 1 and",
    "tube,L=x": "tube wants a number for L",
    "tube,L=inf": "wants a number",
    "tube,d=0": "d must be between 1 and",
    "tube_coupled,d=1": "d must be between 2 and",
    "tube,gamma=-1": "gamma must be positive, but is -1",
    "tube,L=0": "L must be positive",
    "tube_printed,gamma=-1": "gamma must be positive",
    "tube_coupled,kappa=1/2": "condition number must be at least 1",
    "saddle,d=-1": "d must be between 1 and",
    "quadratic,spectrum=1/2": "condition number must be at least 1",
    "quadratic,spectrum=three": "does not give 3 positive eigenvalues",
    "quadratic,spectrum=1:2": "does not give 3 positive eigenvalues",
    "quadratic,spectrum=1:2:0": "does not give 3 positive eigenvalues",
    "quadratic,spectrum=1;2": "quadratic wants a word or numbers for spectrum",
    "quadratic,seed=-1": "seed must be between",
    "quadratic,n=0": "n must be between",
    "ridge,rows=1": "rows must be between 2 and 75",
    "stochastic_rows,rows=76": "rows must be between 2 and 75",
    "logistic,rows=51": "rows must be between 2 and 50",
    "hyper_cleaning,corrupted=5": "corrupted must be between 0 and 4",
    "robust_regression,penalty=0": "penalty must be positive",
    "lphi_witness,delta=1": "at most 1/5",
    "lphi_witness,rho=0": "rho must be positive",
    "block_extremal,nu=0": "nu must be positive",
    "block_extremal,nu=600": "nu*width is too large relative to rho",
    "block_extremal,nu=1/9,width=1/10": "mu + 11*rho*width must be at most ell",
    "block_extremal,M=1/50": "ell*width is too large relative to M",
    "block_extremal,ell=6": "ell must be at most 10*mu",
    "block_extremal,ell=5,M=11/200": "Phi might be stationary",
    "stochastic_noise,noise=-1": "noise must be positive",
}


@pytest.mark.parametrize(("spec", "message"), BAD.items())
def test_bad_input_gets_one_clear_message(spec: str, message: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        zoo.parse(spec)
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 4


@pytest.mark.parametrize("value", [None, True, [1], object(), float("nan"), 1j])
@pytest.mark.parametrize("key", ["d", "L"])
def test_ill_typed_values_are_refused(key: str, value: object) -> None:
    with pytest.raises(InvalidArgument, match=rf"tube wants an? \w+ for {key}"):
        zoo.get("tube", **{key: value})


# --- y*, Phi, convexity -------------------------------------------------------------------------


@pytest.mark.parametrize("spec", ["scalar", "quadratic", "robust_regression", *(s for s in NAMES if "minimax" in s)])
def test_rational_answers_are_exact(spec: str) -> None:
    example = EXAMPLES[spec]
    problem = example.problem
    for point in sample(example, 3):
        at = dict(zip(problem.x, point, strict=True))
        y = (entry.subs(at) for entry in known(example.y_star))
        both = at | dict(zip(problem.y, y, strict=True))
        assert grad(problem.g, problem.y).subs(both) == sp.zeros(problem.n, 1)
        assert problem.f.subs(both) == known(example.phi).subs(at)


@pytest.mark.parametrize("spec", CLOSED)
@pytest.mark.slow
@pytest.mark.in_ci(every=3)
def test_lower_solution_and_phi_to_forty_digits(spec: str) -> None:
    example = EXAMPLES[spec]
    problem = example.problem
    y_star, phi = lower_solution(example), numeric(problem.x, example.phi)
    slope = numeric((*problem.x, *problem.y), grad(problem.g, problem.y))
    f = numeric((*problem.x, *problem.y), problem.f)
    with mp.workdps(60):
        for point in map(mpf, sample(example, 6)):
            y = y_star(*point)
            assert mp.norm(slope(*point, *y)) < mp.mpf(10) ** -40
            assert abs(f(*point, *y) - phi(*point)) < mp.mpf(10) ** -40


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("spec", EXAMPLES)
def test_the_box_holds_the_lower_solution_and_g_is_convex_there(spec: str) -> None:
    example = EXAMPLES[spec]
    problem = example.problem
    y_star = lower_solution(example)
    hessian = numeric((*problem.x, *problem.y), sp.hessian(problem.g, problem.y))
    ends = [(float(low), float(high)) for low, high in known(problem.box)][problem.d :]
    rng = np.random.default_rng(1)
    with mp.workdps(20):
        for point in map(mpf, sample(example, 4)):
            y = y_star(*point)
            assert all(low <= value <= high for value, (low, high) in zip(y, ends, strict=True))
            for where in (y, [mp.mpf(rng.uniform(*pair)) for pair in ends]):
                assert min(mp.eigsy(mp.matrix(hessian(*point, *where)), eigvals_only=True)) > 0


# --- stationary points --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("spec", WITH_POINTS)
def test_stationary_points_and_their_kinds(spec: str) -> None:
    example = EXAMPLES[spec]
    # the printed domain ends at zero: there, look at the extension, which agrees with it (see below)
    smooth = zoo.parse(spec.replace("tube_printed", "tube"))
    phi = numeric(example.problem.x, smooth.phi)
    with mp.workdps(80):
        for point in known(example.stationary_points):
            gradient, hessian = differences(phi, mpf(point.x))
            assert max(map(abs, gradient)) < mp.mpf(10) ** -30
            assert kind_of(hessian) == point.kind


ONE_DIMENSIONAL = [
    "scalar", "implicit_cubic", "saddle,d=1", "quadratic,d=1,n=4", "minimax_nash",
    "minimax_not_nash", "minimax_degenerate", "tube_printed,d=1", "lphi_witness", "block_extremal",
]  # fmt: skip


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("spec", ONE_DIMENSIONAL)
def test_there_are_no_other_stationary_points(spec: str) -> None:
    """The sign changes of Phi', by the implicit formula, over a grid of the box."""
    example = EXAMPLES[spec]
    problem = example.problem
    (x,), y = problem.x, problem.y
    v = sp.hessian(problem.g, y).LUsolve(grad(problem.f, y))
    slope = numeric((x, *y), sp.diff(problem.f, x) - (cross(problem) * v)[0])
    y_star = lower_solution(example)
    low, high = known(problem.box)[x]
    assert example.all_stationary
    with mp.workdps(15):
        # 401 points, none of them the middle, where many derivatives vanish
        grid = mpf([low + (high - low) * sp.Rational(3 * k + 1, 1203) for k in range(401)])
        signs = [mp.sign(slope(t, *y_star(t))) for t in grid]
        changes = [i for i in range(400) if signs[i] != signs[i + 1]]
        points = known(example.stationary_points)
        inside = sorted(mpf([point.x[0] for point in points if low < point.x[0] < high]))
        assert len(changes) == len(inside)
        assert all(grid[i] <= t <= grid[i + 1] for i, t in zip(changes, inside, strict=True))


def test_minimax_notions_part_ways() -> None:
    nash, not_nash = (zoo.get(name).problem for name in ("minimax_nash", "minimax_not_nash"))
    assert sp.diff(nash.f, nash.x[0], 2) > 0 > sp.diff(not_nash.f, not_nash.x[0], 2)


# --- constants ----------------------------------------------------------------------------------

BLOCKS = {  # what each constant bounds when the assumption is read block by block
    "M": ["f_x", "f_y"],
    "ell": ["f_xx", "f_xy", "f_yy", "g_xx", "g_xy", "g_yy"],
    "rho": ["f_xxx", "f_xxy", "f_xyy", "f_yyy", "g_xxy", "g_xyy", "g_yyy"],
    "nu": ["g_xxxy", "g_xxyy", "g_xyyy", "g_yyyy"],
}


def instances(problem: BilevelProblem) -> Iterator[dict[str, sp.Expr]]:
    """f and g; of a stochastic problem, those of every row."""
    if not isinstance(problem, StochasticProblem):
        yield {"f": problem.f, "g": problem.g}
        return
    for xi, zeta in zip(problem.xi_data, problem.zeta_data, strict=True):
        yield {
            "f": problem.F.subs(dict(zip(problem.xi, xi, strict=True))),
            "g": problem.G.subs(dict(zip(problem.zeta, zeta, strict=True))),
        }


def box_points(problem: BilevelProblem) -> Array:
    """Random points, and all corners and middles of the first six variables."""
    box, rng = known(problem.box), np.random.default_rng(2)
    lower, upper = (np.array([float(v) for v in ends]) for ends in (box.lower, box.upper))
    corners = np.array(list(itertools.product((0, 0.5, 1), repeat=min(len(box), 6))))
    rest = rng.integers(0, 2, (len(corners), len(box) - corners.shape[1]))
    shares = np.vstack([rng.random((300, len(box))), np.hstack([corners, rest])])
    return np.asarray(lower + shares * (upper - lower))


def block_values(problem: BilevelProblem, expression: sp.Expr, axes: str, points: Array) -> Array:
    """A block of derivatives at the points: (points, one dimension for each axis)."""
    groups = [getattr(problem, axis) for axis in axes]
    entries = [sp.diff(expression, *chosen) for chosen in itertools.product(*groups)]
    function = sp.lambdify([*problem.x, *problem.y], entries, "numpy")
    values = [np.broadcast_to(v, len(points)) for v in function(*points.T)]
    return np.stack(values, axis=-1).astype(float).reshape(len(points), *map(len, groups))


def largest_norm(tensors: Array) -> float:
    """The maximum over points and unit vectors, by alternating maximisation from several starts."""
    if not tensors.any():
        return 0.0
    letters = "abcd"[: tensors.ndim - 1]
    rng, best = np.random.default_rng(3), 0.0
    for _ in range(6):
        vectors = {
            a: rng.standard_normal((len(tensors), size)) for a, size in zip(letters, tensors.shape[1:], strict=True)
        }
        for a in letters * 8:
            others = [b for b in letters if b != a]
            spec = ",".join([f"z{letters}", *(f"z{b}" for b in others)])
            image = np.einsum(f"{spec}->z{a}", tensors, *(vectors[b] for b in others))
            lengths = np.linalg.norm(image, axis=1, keepdims=True)
            vectors[a] = image / np.where(lengths > 0, lengths, 1)
        best = max(best, float(lengths.max()))
    return best


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("spec", WITH_CONSTANTS)
def test_constants_bound_every_block_and_are_attained(spec: str) -> None:
    problem, constants = EXAMPLES[spec].problem, known(EXAMPLES[spec].constants)
    points, worst, mu = box_points(problem), dict.fromkeys(BLOCKS, 0.0), np.inf
    for formulas in instances(problem):
        for name, blocks in BLOCKS.items():
            for level, _, axes in (block.partition("_") for block in blocks):
                values = block_values(problem, formulas[level], axes, points)
                worst[name] = max(worst[name], largest_norm(values))
        hessians = block_values(problem, formulas["g"], "yy", points)
        mu = min(mu, float(np.linalg.eigvalsh(hessians).min()))
    assert constants.reading == "block"
    assert float(constants.mu) * (1 - 1e-9) <= mu <= float(constants.mu) / 0.9
    for name, value in worst.items():
        bound = float(getattr(constants, name))
        assert 0.9 * bound <= value <= bound * (1 + 1e-9), name


@pytest.mark.parametrize("spec", ["stochastic_noise", "stochastic_noise,d=3,noise=2"])
def test_sigma_is_the_deviation_of_grad_g(spec: str) -> None:
    example = zoo.parse(spec)
    problem = example.problem
    deviations = [item["g"] - problem.g for item in instances(problem)]
    gradients = [grad(deviation, (*problem.x, *problem.y)) for deviation in deviations]
    variance = sum(gradient.dot(gradient) for gradient in gradients) / len(gradients)
    assert sp.expand(variance) == known(example.constants).sigma ** 2


# --- quadratics ---------------------------------------------------------------------------------

SPECTRA = st.one_of(
    st.sampled_from(["isotropic", "two"]),
    st.fractions(1, 1000, max_denominator=7),
    st.lists(st.fractions("1/9", 50, max_denominator=9), min_size=1, max_size=4).map(tuple),
)


def wanted_eigenvalues(spectrum: Any, n: int) -> list[Any]:
    if isinstance(spectrum, str):
        return [2] * n if spectrum == "isotropic" else [(1, 4)[i % 2] for i in range(n)]
    if isinstance(spectrum, tuple):
        return list(spectrum)
    return [1 + (spectrum - 1) * Fraction(i, n - 1) for i in range(n)] if n > 1 else [spectrum]


@pytest.mark.slow
@given(st.integers(1, 4), st.integers(1, 4), SPECTRA, st.integers(0, 2**40))
def test_quadratics_are_what_they_say(d: int, n: int, spectrum: Any, seed: int) -> None:
    n = len(spectrum) if isinstance(spectrum, tuple) else n
    example = zoo.get("quadratic", d=d, n=n, spectrum=spectrum, seed=seed)
    problem, phi, t = example.problem, known(example.phi), sp.Symbol("t")
    eigenvalues = [sp.Rational(value) for value in wanted_eigenvalues(spectrum, n)]
    polynomial = sp.hessian(problem.g, problem.y).charpoly(t).as_expr()
    assert sp.expand(polynomial - sp.Mul(*(t - value for value in eigenvalues))) == 0
    assert known(example.constants).kappa == max(eigenvalues) / min(eigenvalues)
    (point,) = known(example.stationary_points)
    hessian = sp.hessian(phi, problem.x)
    slope = grad(phi, problem.x).subs(dict.fromkeys(problem.x, 0))
    assert tuple(hessian.LUsolve(-slope)) == point.x
    # all roots are real, so that as many are positive as the coefficients change sign (Descartes)
    signs = [sp.sign(c) for c in hessian.charpoly(t).all_coeffs() if c != 0]
    positive = sum(a != b for a, b in itertools.pairwise(signs))
    assert hessian.det() != 0
    assert point.kind == ("local minimum" if positive == d else "saddle")
    assert positive > 0


def test_quadratics_are_dense_and_reproducible() -> None:
    example = zoo.get("quadratic", d=3, n=4, spectrum=50, seed=7)
    assert example == zoo.get("quadratic", d=3, n=4, spectrum=50, seed=7)
    problem = example.problem
    assert all(entry != 0 for entry in (*cross(problem), *sp.hessian(problem.g, problem.y)))


# --- the tube -----------------------------------------------------------------------------------


def printed_phi(x: Sequence[Any], L: Any = 1, gamma: Any = 1) -> Any:
    """Section 5 once more, straight from the page; None outside D_0."""
    tau, d = mp.e, len(x)

    def h1(c: Any) -> Any:
        cubic = (-14 * L + 10 * gamma) * (c - tau) ** 3 / (3 * tau)
        return -gamma * c**2 + cubic + (5 * L - 3 * gamma) * (c - tau) ** 4 / (2 * tau**2)

    def h2(c: Any) -> Any:
        u = (c - 2 * tau) / tau
        return -gamma - 10 * (L + gamma) * u**3 - 15 * (L + gamma) * u**4 - 6 * (L + gamma) * u**5

    nu = -h1(2 * tau) + 4 * L * tau**2
    for i in range(d + 1):
        past, ahead = x[:i], x[i + 1 :]
        if min(past, default=2 * tau) < 2 * tau or max(past, default=2 * tau) > 6 * tau:
            continue
        if min(ahead, default=0) < 0 or max(ahead, default=0) > tau:
            continue
        base = sum(L * (c - 4 * tau) ** 2 for c in past) - i * nu
        if i == d:
            return base
        if 0 <= x[i] <= tau:
            return base - gamma * x[i] ** 2 + sum(L * c**2 for c in ahead)
        if tau <= x[i] <= 2 * tau:
            bend = h2(x[i]) * x[i + 1] ** 2 if i + 1 < d else 0
            return base + h1(x[i]) + bend + sum(L * c**2 for c in x[i + 2 :])
    return None


def region_points(d: int) -> Iterator[list[Any]]:
    """Points in every region of D_0: in the middle, close to its faces, and on them."""
    tau, tiny, rng = +mp.e, mp.mpf(10) ** -30, np.random.default_rng(4)

    def between(low: Any, high: Any) -> Any:
        inner = low + (high - low) * mp.mpf(rng.random())
        return [low, high, low + tiny, high - tiny, inner][rng.integers(0, 5)]

    for i in range(d + 1):
        for low, high in [(0, tau), (tau, 2 * tau)]:
            for _ in range(25):
                past = [between(2 * tau, 6 * tau) for _ in range(i)]
                here = [between(low, high) for _ in range(i, min(i + 1, d))]
                yield past + here + [between(mp.mpf(0), tau) for _ in range(i + 1, d)]


@pytest.mark.slow
@pytest.mark.parametrize(("d", "L", "gamma"), [(1, 1, 1), (2, 1, 1), (3, 2, "1/3"), (5, "3/2", 1)])
def test_both_tubes_are_the_printed_one_on_its_domain(d: int, L: Any, gamma: Any) -> None:
    extended, printed = (zoo.get(tube, d=d, L=L, gamma=gamma) for tube in ("tube", "tube_printed"))
    x = extended.problem.x
    phi, phi_printed = numeric(x, extended.phi), numeric(x, printed.phi)
    f, y_star = numeric((*x, *printed.problem.y), printed.problem.f), lower_solution(printed)
    with mp.workdps(60):
        parameters = mpf([sp.Rational(L), sp.Rational(gamma)])
        for point in region_points(d):
            want = printed_phi(point, *parameters)
            for value in (phi(*point), phi_printed(*point), f(*point, *y_star(*point))):
                assert abs(value - want) < mp.mpf(10) ** -45


def test_the_printed_tube_is_undefined_outside_its_domain() -> None:
    example = zoo.get("tube_printed", d=3)
    x, y = example.problem.x, example.problem.y
    phi, f = numeric(x, example.phi), numeric((*x, *y), example.problem.f)
    points = np.random.default_rng(5).uniform(-3, 20, (400, 3)).tolist()
    outside = [point for point in points if printed_phi(point) is None]
    assert len(outside) > 100
    assert all(phi(*point) is None and f(*point, 0.0) is None for point in outside)
    assert known(example.phi).subs(dict(zip(x, (-1, 0, 0), strict=True))) is sp.nan


def test_the_printed_y_star_jumps_but_phi_does_not() -> None:
    example = zoo.get("tube_printed", d=2)
    before, after = ((mp.e + side, mp.mpf(1)) for side in (-1e-12, 1e-12))
    y_star, phi = lower_solution(example), numeric(example.problem.x, example.phi)
    assert abs(y_star(*before)[0] - y_star(*after)[0]) > 1
    assert abs(phi(*before) - phi(*after)) < 1e-10


def test_the_box_of_the_printed_tube_lies_in_its_domain() -> None:
    points = map(mpf, sample(zoo.get("tube_printed", d=3), 100))
    assert all(printed_phi(point) is not None for point in points)


@pytest.mark.parametrize("face", [1, 2, -1, -2])
@pytest.mark.slow
@pytest.mark.in_ci(face=(1, -2))
def test_the_tube_is_twice_but_not_three_times_differentiable(face: int) -> None:
    example = zoo.get("tube", d=3, L=2, gamma="1/3")
    x, jumps = example.problem.x, [mp.mpf(0)] * 4
    derivatives = [
        (order, numeric(x, sp.diff(example.phi, *chosen) if chosen else example.phi))
        for order in range(4)
        for chosen in itertools.combinations_with_replacement(x, order)
    ]
    with mp.workdps(60):
        for axis, (order, function) in itertools.product(range(3), derivatives):
            point = [mp.mpf("7.3"), mp.mpf("1.7")]
            point.insert(axis, face * mp.e)
            step = [mp.mpf(10) ** -40 * (i == axis) for i in range(3)]
            left, right = (function(*(p + s * q for p, q in zip(point, step, strict=True))) for s in (-1, 1))
            jumps[order] = max(jumps[order], abs(right - left))
    assert max(jumps[:3]) < mp.mpf(10) ** -35
    assert jumps[3] > 0.1


def test_the_tube_has_mirror_images_and_stays_in_its_range() -> None:
    example = zoo.get("tube", d=3)
    phi = numeric(example.problem.x, example.phi)
    low, high = map(float, known(example.problem.box)["y"])
    with mp.workdps(30):
        for point in map(mpf, sample(example, 60)):
            values = [phi(*mirrored) for mirrored in itertools.product(*((c, -c) for c in point))]
            assert max(values) - min(values) < mp.mpf(10) ** -25
            assert low <= values[0] <= high


@pytest.mark.slow
def test_newton_on_the_tube_ends_only_at_known_points() -> None:
    """From many starts in two dimensions: every limit is a known point, up to signs."""
    example = zoo.get("tube", d=2)
    x = example.problem.x
    slope, hessian = numeric(x, grad(example.phi, x)), numeric(x, sp.hessian(example.phi, x))
    points = [mp.matrix(mpf(point.x)) for point in known(example.stationary_points)]
    found = set()
    for start in np.random.default_rng(6).uniform(-15, 15, (60, 2)).tolist():
        point = mp.matrix(start)
        for _ in range(30):
            step = mp.lu_solve(hessian(*point), slope(*point))
            point -= step / max(1, mp.norm(step))
        if mp.norm(slope(*point)) < 1e-10:
            distances = [mp.norm(point.apply(abs) - other) for other in points]
            assert min(distances) < 1e-8
            found.add(distances.index(min(distances)))
    assert found == {0, 1, 2}


@pytest.mark.slow
def test_the_tube_grows_linearly_and_builds_quickly() -> None:
    large = zoo.get("tube", d=20)
    assert calls_of(lambda: zoo.get("tube", d=20)) < 1_500_000
    assert len(str(large.phi)) < 2.3 * len(str(zoo.get("tube", d=10).phi))


@pytest.mark.slow
@pytest.mark.parametrize("d", [2, 3, 5, 8])
def test_the_coupled_tube_is_coupled(d: int) -> None:
    example = zoo.get("tube_coupled", d=d, kappa=10)
    matrix = sp.hessian(example.problem.g, example.problem.y)
    assert all(entry != 0 for entry in matrix)
    assert (np.linalg.cond(np.array(matrix.tolist(), dtype=float))) == pytest.approx(10, rel=1e-12)
    assert example.phi == zoo.get("tube", d=d).phi


# --- learning problems --------------------------------------------------------------------------


def test_iris_has_the_means_that_fisher_published() -> None:
    published = ["5.006 3.428 1.462 0.246", "5.936 2.770 4.260 1.326", "6.588 2.974 5.552 2.026"]
    for species, means in enumerate(published):
        rows = [flower[:4] for flower in zoo.iris() if flower.species == species]
        assert len(rows) == 50
        found = [sum(column) / 50 for column in zip(*rows, strict=True)]
        assert found == [sp.Rational(mean) for mean in means.split()]


@pytest.mark.parametrize(("flowers", "most"), [(150, 75), (50, 25)])
def test_training_and_validation_rows_are_different_flowers(flowers: int, most: int) -> None:
    for rows in range(1, most + 1):
        chosen = [*spread(range(flowers), rows), *spread(range(flowers), rows, offset=1)]
        assert len(set(chosen)) == 2 * rows


@pytest.mark.parametrize(("name", "exact"), [("stochastic_noise", "saddle"), ("stochastic_rows", "ridge")])
def test_stochastic_means_are_the_deterministic_problems(name: str, exact: str) -> None:
    mean, other = zoo.get(name).problem, zoo.get(exact).problem
    assert sp.expand(mean.f - other.f) == 0
    assert sp.expand(mean.g - other.g) == 0


@pytest.mark.slow
def test_ridge_has_its_best_penalty_inside_the_box() -> None:
    example = zoo.get("ridge")
    slope = numeric(example.problem.x, grad(known(example.phi), example.problem.x))
    assert slope(-6)[0] < 0 < slope(2)[0]


def test_hyper_cleaning_says_which_labels_are_wrong() -> None:
    example, clean = zoo.get("hyper_cleaning"), zoo.get("hyper_cleaning", corrupted=0)
    assert example.notes["corrupted_rows"] == (1, 6)
    assert "rows 1, 6 are wrong" in example.summary
    assert "all labels are right" in clean.summary
    pair = (grad(item.problem.g, item.problem.x) for item in (example, clean))
    differs = [i for i, (a, b) in enumerate(zip(*pair, strict=True), start=1) if a != b]
    assert differs == [1, 6]


@pytest.mark.slow
def test_hyper_cleaning_weighs_wrong_labels_down() -> None:
    """From equal weights, descent lowers those of the wrong rows."""
    problem = zoo.get("hyper_cleaning").problem
    x = [mp.mpf(0)] * problem.d
    at = (*x, *lower_solution(zoo.get("hyper_cleaning"))(*x))
    everything = (*problem.x, *problem.y)
    g_yy, f_y, g_xy = (
        numeric(everything, block)(*at)
        for block in (sp.hessian(problem.g, problem.y), grad(problem.f, problem.y), cross(problem))
    )
    hypergradient = -g_xy * mp.lu_solve(g_yy, f_y)
    assert min(hypergradient[0], hypergradient[5]) > 0


# --- the witness against the printed L_phi ------------------------------------------------------


def test_the_witness_refutes_the_printed_constant_and_not_the_corrected_one() -> None:
    example = zoo.get("lphi_witness")
    problem, constants = example.problem, known(example.constants)
    (x,), (y,) = problem.x, problem.y
    low, high = known(problem.box)[x]
    witness: Any = example.notes["witness"]
    assert low < witness[0] < high
    with mp.workdps(60):
        (t,) = mpf(witness)
        y_star = lower_solution(example)
        (root,) = y_star(t)
        g_xy, g_yy, g_xxy, g_xyy, g_yyy = (
            numeric((x, y), sp.diff(problem.g, *order))(t, root)
            for order in ((x, y), (y, y), (x, x, y), (x, y, y), (y, y, y))
        )
        first = -g_xy / g_yy
        second = -(g_xxy + 2 * g_xyy * first + g_yyy * first**2) / g_yy
        curvature = abs(second / 2)  # f = y/2
        _, hessian = differences(lambda s: y_star(s)[0] / 2, [t])
        printed, corrected = mpf([constants.L_phi(variant=v) for v in ("printed", "corrected")])
    assert abs(hessian[0, 0] - curvature) < 1e-5
    assert abs(curvature - 80) < mp.mpf(10) ** -50
    assert example.notes["second_derivative"] == 80
    assert 74 < printed < 74.02 < curvature < 84 < corrected < 84.02


def test_a_coarse_witness_still_builds() -> None:
    example = zoo.get("lphi_witness", rho=40, delta="1e-3")
    assert known(example.constants).mu == sp.Rational(24, 25)


# --- files --------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("spec", [*EXAMPLES, "tube,d=20"])
def test_every_problem_survives_a_file(spec: str, tmp_path: Path) -> None:
    problem = zoo.parse(spec).problem
    problem.save(tmp_path / "problem.toml")
    loaded = BilevelProblem.load(tmp_path / "problem.toml")
    assert loaded == problem
    assert type(loaded) is type(problem)
    fields = ["name", "kind", "box", "parameters", "x", "y", "f", "g"]
    if isinstance(problem, StochasticProblem):
        fields += ["xi", "zeta", "xi_data", "zeta_data", "F", "G"]
    for field in fields:
        assert getattr(loaded, field) == getattr(problem, field)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(
    "spec",
    ["quadratic,d=20,n=20,spectrum=100", "tube_printed,d=20", "tube_coupled,d=20", "saddle,d=50"],
)
def test_large_problems_survive_a_file(spec: str, tmp_path: Path) -> None:
    test_every_problem_survives_a_file(spec, tmp_path)
