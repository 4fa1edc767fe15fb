"""mu of a sum of convex functions of linear forms: found by their sum, in any dimension of y, and never above the truth."""

from __future__ import annotations

from itertools import product

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import BilevelProblem
from bilevel_sym.graph.convert import to_sympy
from bilevel_sym.graph.nodes import ONE_FORM, Graph, LinearForm
from bilevel_sym.implicit.model import Model
from verify.enclosures.block_norm import BlockNorm, Curvature, ExactBox
from verify.enclosures.ridges import condensed, ridges_of
from verify.regularity.certified import constants

x = sp.Symbol("x", real=True)
PHI = {
    "sqrt": lambda u: sp.sqrt(1 + u**2),
    "cosh": lambda u: sp.cosh(u / 4),
    "softplus": lambda u: sp.log(1 + sp.exp(u)),
    "log": lambda u: -sp.log(1 + u**2) / 50,
    "polynomial": lambda u: u**4 / 100 + u**2 / 10 - sp.cos(u) / 20,
    "power": lambda u: (2 + u**2) ** sp.Rational(3, 4),
}


def problem_of(kind: str, n: int, rows: int, half: int = 2) -> BilevelProblem:
    rng = np.random.default_rng(n + rows)
    ys = sp.symbols(f"y0:{n}", real=True)
    table = rng.integers(-3, 4, (rows, n))
    forms = [sum(int(c) * s for c, s in zip(row, ys, strict=True)) - x for row in table]
    g = sum(s**2 for s in ys) / 2 + sum(PHI[kind](u) for u in forms if u != -x)
    return BilevelProblem(x * ys[0], g, [x], list(ys), box={"x": (-1, 1), **{s.name: (-half, half) for s in ys}})


def whole(problem: BilevelProblem, kind: type[Curvature | BlockNorm] = Curvature, *, proved: bool = True) -> float:
    assert problem.box is not None
    region = ExactBox(problem.box)
    return float(kind(problem.tape, "g_yy", region).over(region.lower[None], region.upper[None], proved=proved)[0])


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("n", [2, 5, 8])
@pytest.mark.parametrize("kind", PHI)
def test_one_look_at_the_whole_box_proves_mu(kind: str, n: int) -> None:
    """The quadratic alone has mu = 1, and the terms of all kinds but one are convex; sampled eigenvalues are above."""
    problem = problem_of(kind, n, 4 * n)
    mu = -whole(problem)
    assert mu > (0.99 if kind != "log" else -60 * n)
    assert mu <= _sampled(problem) + 1e-9
    assert mu >= -whole(problem, proved=False) - 1e-9


def _sampled(problem: BilevelProblem) -> float:
    rng = np.random.default_rng(0)
    assert problem.box is not None
    ends = [(float(a), float(b)) for a, b in problem.box]
    low, high = np.array(ends).T
    points = rng.uniform(low, high, (300, len(ends)))
    points = np.concatenate([points, np.array(list(product(*ends)))])
    return float(np.linalg.eigvalsh(problem.kernels.g_yy(points[:, :1], points[:, 1:]))[:, 0].min())


@pytest.mark.long
def test_constants_of_a_sum_that_was_lost() -> None:
    """Over the whole box, plain intervals prove no more than mu > -200 here."""
    problem = problem_of("sqrt", 4, 12)
    found = constants(problem, rtol=0.2)
    assert found.valid.mu > 0.99
    assert found.brackets["mu"].ratio < 1.2


def test_largest_eigenvalues_follow_too() -> None:
    problem = problem_of("sqrt", 5, 20)
    bound = whole(problem, BlockNorm)
    zero = np.zeros((1, 1)), np.zeros((1, 5))
    reached = float(np.linalg.eigvalsh(problem.kernels.g_yy(*zero))[0, -1])
    assert reached <= bound < 1.01 * reached


@pytest.mark.parametrize("kind", PHI)
def test_ranges_hold_second_derivatives(kind: str) -> None:
    """phi'' by SymPy at points of the line, against the range over it."""
    u, a, b = sp.symbols("u a b", real=True)
    model = Model(x, PHI[kind](2 * a - b + 1), [x], [a, b])
    ridges = ridges_of(model, model.g, model.y)
    assert ridges is not None
    low, high = ridges.ranges(np.array([[0.0, -1.0, -2.0]]), np.array([[0.0, 1.5, 2.0]]))
    exact = sp.lambdify(u, sp.diff(PHI[kind](u), u, 2) * 4)  # the first slope is taken to be one: (2 (a - b/2))
    values = exact(np.linspace(-3, 6, 2001))
    assert low.min() <= values.min()
    assert values.max() <= high.max()
    assert low.min() >= values.min() - 0.02 * np.ptp(values)
    assert high.max() <= values.max() + 0.02 * np.ptp(values)


def test_terms_along_one_line_are_one_function() -> None:
    """-u^2 + u^4 + 2 u^2: what is negative in one term is not in the sum."""
    a, b = sp.symbols("a b", real=True)
    u = a + 2 * b
    problem = BilevelProblem(
        x * a, a**2 + b**2 + sp.sqrt(1 + u**2) - u**2 / 2 + sp.sqrt(9 + 4 * u**2), [x], [a, b],
        box={"x": (0, 1), "a": (-1, 1), "b": (-1, 1)},
    )  # fmt: skip
    mu = -whole(problem)
    assert _sampled(problem) - 0.1 < mu <= _sampled(problem) + 1e-9


def test_condensed_forms_are_the_same_function() -> None:
    graph = Graph(2)
    u, v = graph.variables
    base = ONE_FORM + graph.power(u, 2) + v
    form = graph.power(base, -1, 2) - graph.mul(graph.power(u, 2), graph.power(base, -3, 2)) + graph.power(base, -5, 2)
    short = condensed(graph, form)
    symbols = dict(enumerate(sp.symbols("u v")))
    one, other = to_sympy(graph, [form, short], symbols)
    assert sp.simplify(one - other) == 0
    assert len(short.terms) == 1


def test_roots_of_squares_are_not_opened() -> None:
    """sqrt(u^2) is abs(u), not u."""
    graph = Graph(1)
    (u,) = graph.variables
    root = graph.power(graph.power(u, 2), 1, 2)
    base = ONE_FORM + u
    form = graph.mul(root, graph.power(base, -1)) + graph.mul(u, graph.power(base, -2))
    short = condensed(graph, form)
    one, other = to_sympy(graph, [form, short], {0: x})
    for point in (-3, -2, sp.Rational(1, 2)):
        assert sp.simplify((one - other).subs(x, point)) == 0


def test_a_function_of_two_lines_is_no_ridge() -> None:
    a, b = sp.symbols("a b", real=True)
    model = Model(x, sp.exp(a * b) + sp.exp(a + b) + sp.sin(a) * b, [x], [a, b])
    ridges = ridges_of(model, model.g, model.y)
    assert ridges is not None
    assert len(ridges.ranges(np.zeros((1, 3)), np.ones((1, 3)))[0][0]) == 1
    assert isinstance(model.g, LinearForm)
