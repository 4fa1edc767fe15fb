"""How smooth a function is across an edge: orders against derivatives by SymPy, piece by piece, from both sides.

The splines here are made with the order that they have, at knots that are no rational numbers. What is claimed of them
is compared with it, and with the derivatives of the two pieces at the knot in 50 digits.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy as sp
from hypothesis import given
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, compile_kernels, zoo
from bilevel_sym.arithmetic.pieces import crossing
from bilevel_sym.arithmetic.pieces.contact import LIMIT, contact, has_poles
from bilevel_sym.arithmetic.pieces.crossing import Parallels, composed
from bilevel_sym.arithmetic.pieces.patterns import PARTS, needed_by, order_needed
from bilevel_sym.arithmetic.pieces.polynomials import is_zero, sign_of
from bilevel_sym.arithmetic.pieces.seams import find_seams
from bilevel_sym.errors import KernelError
from bilevel_sym.graph.convert import from_sympy, to_sympy
from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM, Graph, LinearForm
from bilevel_sym.kernels.choice import Backend
from verify.regularity.certified import constants
from verify.regularity.phi_smoothness import smoothness

X = sp.symbols("x0:6", real=True)
x, y = X[0], X[1]
KNOTS = (sp.E, 2 * sp.E, sp.pi, sp.sqrt(2), sp.exp(-1), -sp.exp(2) / 3, sp.E - sp.Rational(1, 2), sp.Integer(1))


def orders(expression: sp.Expr) -> dict[sp.Expr, int]:
    """Each edge, as an expression, and the order that is proved there."""
    graph = Graph(len(X))
    known = dict(zip(X, graph.variables, strict=True))
    seams = find_seams(graph, [from_sympy(graph, expression, known)])
    assert seams is not None
    edges = map(sp.expand, to_sympy(graph, seams.edges, dict(enumerate(X))))
    return dict(zip(edges, seams.orders[0], strict=True))


def jump(left: sp.Expr, right: sp.Expr, s: sp.Symbol, knot: sp.Expr, k: int) -> float:
    """How far the k-th derivatives by s of two pieces are apart at a knot, at a point of the other variables."""
    other = {t: sp.Rational(3 * i + 2, 7) for i, t in enumerate(X) if t != s}
    apart = sp.diff(left - right, s, k).subs(other).subs(s, knot)
    return abs(float(sp.N(apart, 50, chop=True)))


class Spline:
    """A function of one variable in three pieces with two knots, and its orders there."""

    def __init__(self, s: sp.Symbol, rng: np.random.Generator) -> None:
        low, high = sorted(rng.choice(len(KNOTS), 2, replace=False), key=lambda k: float(KNOTS[k]))
        self.s, self.knots = s, (KNOTS[low], KNOTS[high])
        self.orders = tuple(int(k) for k in rng.integers(0, 4, 2))
        first = sum(int(c) * s**k for k, c in enumerate(rng.integers(-3, 4, 4)))
        second = first + int(rng.integers(1, 4)) * (s - self.knots[0]) ** (self.orders[0] + 1)
        third = second + int(rng.integers(1, 4)) * sp.exp(-2) * (s - self.knots[1]) ** (self.orders[1] + 1)
        self.pieces = tuple(sp.expand(p) if rng.integers(2) else p for p in (first, second, third))
        self.written = sp.Piecewise(
            (self.pieces[0], s < self.knots[0]), (self.pieces[1], s <= self.knots[1]), (self.pieces[2], True)
        )

    def around(self, knot: int) -> tuple[sp.Expr, sp.Expr]:
        return self.pieces[knot], self.pieces[knot + 1]


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("seed", range(25))
def test_splines_with_irrational_knots(seed: int) -> None:
    """The order that was made, which the derivatives of both pieces confirm."""
    spline = Spline(x, np.random.default_rng(seed))
    found = orders(spline.written)
    for k, (knot, order) in enumerate(zip(spline.knots, spline.orders, strict=True)):
        assert found[sp.expand(x - knot)] == order
        left, right = spline.around(k)
        assert [jump(left, right, x, knot, j) < 1e-40 for j in range(order + 2)] == [True] * (order + 1) + [False]


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("seed", range(12))
def test_nested_products(seed: int) -> None:
    """U_i = A_i + S_i U_{i+1}, six deep: 3**5 ways to set the other switches, and a polynomial that nobody expands."""
    rng = np.random.default_rng(seed)
    splines = [Spline(s, rng) for s in X]
    whole = sp.Integer(1)
    for spline in reversed(splines):
        whole = spline.s**2 + spline.written * whole
    found = orders(whole)
    assert len(found) == 12
    for spline in splines:
        for knot, order in zip(spline.knots, spline.orders, strict=True):
            assert found[sp.expand(spline.s - knot)] == order


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("seed", range(12))
def test_functions_of_splines(seed: int) -> None:
    """A smooth function of them is as smooth; a factor that vanishes on the edge adds one."""
    rng = np.random.default_rng(seed)
    one, two = Spline(X[0], rng), Spline(X[1], rng)
    outer = (sp.exp, sp.sin, sp.tanh, sp.atan, lambda z: z**3, sp.cosh)[seed % 6]
    found = orders(outer(one.written * X[2] + two.written) + (X[0] - one.knots[0]) * one.written * two.written)
    for spline in (one, two):
        for knot, order in zip(spline.knots, spline.orders, strict=True):
            assert found[sp.expand(spline.s - knot)] == order
    alone = orders((X[0] - one.knots[0]) * one.written * two.written)
    assert alone[sp.expand(X[0] - one.knots[0])] == one.orders[0] + 1


@pytest.mark.slow
@pytest.mark.parametrize("name", ["tube", "tube_coupled"])
def test_the_tubes_are_twice_continuously_differentiable(name: str) -> None:
    problem = zoo.get(name).problem
    patterns = problem.tape.patterns
    assert patterns is not None
    found = dict(zip(PARTS, patterns.seams.orders, strict=True))
    bent = ("g", "") if name == "tube" else ("f", "")
    assert set(found[bent]) == {2}
    assert set(found["f" if bent[0] == "g" else "g", ""]) == {LIMIT}


def test_the_printed_tube_has_gaps() -> None:
    patterns = zoo.get("tube_printed", d=3).problem.tape.patterns
    assert patterns is not None
    assert {order for row in patterns.seams.orders for order in row} == {-1}


# ---------------------------------------------------------------------- the edge itself


def test_a_value_of_its_own_on_the_edge_is_no_smooth_function() -> None:
    """Also where it comes from [e < 0] in one place and [e <= 0] in another, or inside a smooth function."""
    strict = sp.Piecewise((0, x < sp.E), (1, True))
    loose = sp.Piecewise((0, x <= sp.E), (1, True))
    assert orders(strict - loose) == {x - sp.E: -1}  # zero but at E
    assert orders(sp.exp(y * (strict - loose))) == {x - sp.E: -1}
    assert orders((x - sp.E) * (strict - loose)) == {x - sp.E: LIMIT}  # zero
    third = sp.Piecewise((x, x < sp.E), (x + (x - sp.E) ** 3, x > sp.E), (sp.Integer(3), True))
    assert orders(third * (1 + y**2)) == {x - sp.E: -1}
    right = sp.Piecewise((x, x < sp.E), (x + (x - sp.E) ** 3, x > sp.E), (sp.E, True))
    assert orders(sp.sin(right * (1 + y**2))) == {x - sp.E: 2}


def test_an_edge_that_jumps_over_zero() -> None:
    """For y > 0 it is (x**2 - 1)**3 where x > -1, for y < 0 where x > 1: smooth at x = 1 and -1, and a jump at y = 0."""
    graph = Graph(2)
    s, t = graph.variables
    edge = s + ONE_FORM - graph.apply("lt", t).scaled(ONE_FORM.constant * 2)
    piece = graph.power(graph.power(s, 2) - ONE_FORM, 3)
    seams = find_seams(graph, [graph.apply("select", graph.apply("lt", edge), ZERO_FORM, piece)])
    assert seams is not None
    assert -1 in seams.orders[0]


def test_terms_that_agree_only_together() -> None:
    step = sp.Piecewise((0, x < sp.pi), (1, True))
    bump = sp.Piecewise((0, y < sp.E), ((y - sp.E) ** 2, True))
    assert orders(sp.exp(step * (x**2 + 1) - step * (sp.pi**2 + 1)))[x - sp.pi] == 0
    found = orders(bump * (step * (x**2 + 1) - step * (sp.pi**2 + 1)))
    assert found == {x - sp.pi: 0, y - sp.E: 1}


def test_a_piece_of_another_edge_is_any_function_here() -> None:
    """x0**3 [x0 > 0] times what has 2**9 settings, and holds no piece that is continuous alone."""
    others = sp.Mul(*(1 + sp.Piecewise((0, s < k), (1, True)) for s in X[1:4] for k in range(3)))
    found = orders(x**3 * others * sp.Piecewise((0, x < 0), (1, True)))
    assert found[x] == 2
    assert {order for edge, order in found.items() if edge != x} == {-1}


def test_a_factor_counts_beside_many_other_switches() -> None:
    """(r - 1) times pieces of (r - 1)**3, r = x**2 + y**2, chosen by a third variable: one more than its factors."""
    others = sp.Mul(*(1 + sp.Piecewise((0, X[4] + X[5] * k < k), (1, True)) for k in range(9)))
    edge = x**2 + y**2 - 1
    low, high = (sp.Piecewise((c * edge**3, edge < 0), (0, True)) for c in (1, 2))
    found = orders(edge * others * sp.Piecewise((low, X[3] < 0), (high, True)))
    assert found[edge] == 3
    assert found[X[3]] == -1


def test_too_many_cases_prove_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    """32 settings of five other switches, and a jump for the last of them alone."""
    monkeypatch.setattr(crossing, "MAX_CASES", 16)
    count = sp.Add(*(sp.Piecewise((1, X[4] + X[5] * k < k), (0, True)) for k in range(5)))
    last = sp.Mul(*(count - k for k in range(5)))
    assert orders(sp.Piecewise((0, x < 0), (1, True)) * last)[x] == -1


@pytest.mark.parametrize(
    ("expression", "at_most"),
    [
        (sp.sqrt(sp.Max(x - sp.E, 0) ** 3), 1),
        (sp.log(sp.Max(x - sp.E, 0) ** 3), -1),
        (1 / sp.Max(x - sp.E, 0) ** 3, -1),
        (sp.tan(sp.Add(sp.pi / 2, sp.Max(x - sp.E, 0) ** 3, evaluate=False), evaluate=False), -1),
        (sp.Max(x - sp.E, 0) ** 4 / (x - sp.E) ** 3, -1),
        (sp.Max(x - sp.E, 0) ** 4 / (x**2 - sp.exp(2)) ** 3, -1),
        (sp.Max(x - sp.E, 0) ** 4 / (y * x**2 - y * sp.exp(2)) ** 3, -1),
        (sp.Max(x, 0) ** 4 / (sp.exp(x) - 1) ** 3, -1),
        (x**4 * sp.Piecewise((1, x >= 0)), -1),
        (sp.Piecewise((x**4, x >= 0)), -1),
    ],
)
def test_poles_and_ends_of_domains_on_the_edge(expression: sp.Expr, at_most: int) -> None:
    assert orders(expression)[x - sp.E if expression.has(sp.E, sp.exp(2)) else x] <= at_most


def test_a_pole_elsewhere_does_no_harm() -> None:
    assert orders(sp.Max(x - sp.E, 0) ** 4 / (1 + x**2) + sp.log(y) * sp.Max(x - sp.E, 0) ** 4) == {x - sp.E: 3}
    assert orders(sp.Piecewise((x**4, x < 0), (0, x >= 0))) == {x: 3}  # what stands for no piece at all is never met


# ---------------------------------------------------------------------- constants


@given(st.lists(st.tuples(st.integers(-4, 4), st.fractions(-3, 3, max_denominator=4)), min_size=1, max_size=4))
def test_exponentials_of_rationals_are_powers_of_one_number(terms: list[tuple[int, object]]) -> None:
    """A sum of exp(c) squared, and the same multiplied out by SymPy."""
    graph = Graph(0)
    whole = sum((k * sp.exp(sp.Rational(str(c))) for k, c in terms), sp.Integer(0))
    square = (
        from_sympy(graph, sp.Pow(whole, 2, evaluate=False), {}) if whole != 0 else LinearForm(ONE_FORM.constant * 0, {})
    )
    apart = square - from_sympy(graph, sp.expand(whole**2), {})
    assert is_zero(graph, apart)
    assert not is_zero(graph, apart + from_sympy(graph, sp.exp(sp.Rational(1, 5)), {}))


def test_roots_of_rationals() -> None:
    graph = Graph(0)
    for text, vanishes in (("sqrt(2)**2 - 2", True), ("cbrt(3)**5 - 3*cbrt(3)**2", True), ("sqrt(2)**2 - 3", False)):
        with sp.evaluate(False):
            expression = sp.sympify(text, evaluate=False)
        assert is_zero(graph, from_sympy(graph, expression, {})) is vanishes


@given(st.integers(-50, 50), st.integers(-50, 50), st.integers(-50, 50))
def test_signs_of_constants(a: int, b: int, c: int) -> None:
    value = a * sp.E + b * sp.pi + sp.Rational(c, 3)
    graph = Graph(1)
    assert sign_of(graph, from_sympy(graph, value, {})) == int(sp.sign(sp.N(value, 30)))


def test_a_sign_that_cannot_be_proved_implies_nothing() -> None:
    """exp(1)**2 - exp(2) is zero, which balls never prove: the edges x - exp(1)**2 and x - exp(2) are the same."""
    graph = Graph(1)
    (t,) = graph.variables
    square = graph.power(graph.apply("exp", ONE_FORM), 2)
    same = graph.apply("exp", ONE_FORM + ONE_FORM)
    parallels = Parallels(graph, (t - square, t - same, t - same - ONE_FORM))
    assert sign_of(graph, square - same) is None
    for state in (-1, 0, 1):
        assert parallels.implied(0, {1: state}) is None
    assert parallels.implied(2, {1: 0}) == parallels.implied(2, {0: 0}) == -1
    assert parallels.implied(2, {1: -1}) == -1
    assert parallels.implied(2, {1: 1}) is None
    # the same step at both, which would be seen as none at all if one edge were taken for the other's other side
    steps = sp.Piecewise((0, x < sp.Pow(sp.E, 2, evaluate=False)), (1, True))
    assert set(orders(steps).values()) == {-1}


def test_contact_with_an_edge_that_has_a_constant() -> None:
    graph = Graph(2)
    s, t = graph.variables
    e = graph.apply("exp", ONE_FORM)
    edge = s - e.scaled(ONE_FORM.constant * 2)
    for k in range(1, 5):
        assert contact(graph, graph.mul(graph.power(edge, k), t), edge) == k - 1
    square = graph.power(s, 2) - graph.apply("exp", ONE_FORM + ONE_FORM).scaled(ONE_FORM.constant * 4)
    assert contact(graph, square, edge) == 0
    assert has_poles(graph, graph.power(square, -1).terms, edge)
    assert contact(graph, graph.power(s, 3), graph.mul(e, s)) == 2
    quarter = graph.apply("tan", s + graph.apply("pi").scaled(ONE_FORM.constant / 2))
    assert contact(graph, graph.mul(graph.power(s, 2), quarter), s) == -1
    sine = graph.apply("sin", graph.apply("exp", s) - graph.apply("exp", e))
    assert contact(graph, sine, s - e) == 0


def test_composition_is_no_better_than_its_parts() -> None:
    graph = Graph(3)
    s, t, switch = graph.variables
    piece = graph.apply("select", switch, s, graph.power(s, 2))
    for op in ("rpow", "ipow", "log", "tan"):
        outer = graph.power(piece, 1, 2) if op == "rpow" else graph.power(piece, -1) if op == "ipow" else None
        form = outer if outer is not None else graph.apply(op, piece)
        assert composed(graph, graph.mul(form, t), 4, lambda form: 3 if _is_select(graph, form) else -1) == -1
    assert composed(graph, graph.mul(graph.apply("exp", piece), t), 4, lambda _: 3) == 3
    assert composed(graph, graph.mul(switch, t), 4, lambda _: -1) == -1


def _is_select(graph: Graph, form: LinearForm) -> bool:
    return [graph.op[node] for node in form.terms] == ["select"]


# ---------------------------------------------------------------------- what exists there


@pytest.mark.parametrize("axes", ["x", "xx", "xy", "yy", "xxy", "xyy", "yyy", "xxx"])
@pytest.mark.parametrize("k", range(1, 4))
def test_derivatives_along_the_edge_do_not_count(axes: str, k: int) -> None:
    """f = x**k y**3 exp(y) on one side: continuous derivatives are those with less than k by x, as limits tell."""
    s, t = sp.symbols("x y")
    piece = s**k * t**3 * sp.exp(t)
    by_x, by_y = axes.count("x"), axes.count("y")
    limits = {sp.limit(sp.diff(piece, s, j, t, by_y).subs(t, 1), s, 0) for j in range(by_x + 1)}
    exists = limits == {sp.Integer(0)}  # as on the other side
    problem = BilevelProblem(t + sp.Piecewise((piece, s > 0), (0, True)), t**2 / 2 - t, [s], [t])
    assert exists == (order_needed("f", axes, "x", exists=True) <= k - 1)
    patterns = problem.tape.patterns
    assert patterns is not None
    point = np.array([[0.0, 1.0]])
    touched = patterns.touched(point, point, needed_by([f"f_{axes}"]))
    assert touched.any() == (not exists)


def test_as_a_bound_one_axis_less_is_continuous() -> None:
    """All that come about when one axis is left out: those that lead across the edge, at most, are asked for."""
    for function, axes, along, left in (
        ("f", "xxy", "x", ("xx", "xy")), ("f", "yy", "x", ("y",)), ("g", "xxxy", "x", ("xxy",)),
        ("g", "xyyy", "x", ("yyy", "xyy")), ("g", "xxy", "xy", ("xy",)), ("g", "xy", "x", ("x", "y")),
        ("f", "zz", "y", ("z",)), ("g", "zzzy", "x", ("zzy",)),
    ):  # fmt: skip
        most = max(sum(a in along or a == "z" for a in rest) for rest in left)
        assert order_needed(function, axes, along, exists=False) == most


@pytest.mark.slow
def test_the_hessian_of_the_tube_exists_on_its_edges() -> None:
    kernels = compile_kernels(zoo.get("tube", d=3).problem, backend="tape")
    e = math.e
    points = np.array([[e, 1.0, 0.5], [2 * e, e, -e], [4 * e, -2 * e, e]])
    hess = kernels.hess_phi(points)
    for side in (-1e-7, 1e-7):
        np.testing.assert_allclose(hess, kernels.hess_phi(points + side), atol=1e-4)
    with pytest.raises(KernelError, match=r"third_phi does not exist.*at x1 - E = 0"):
        kernels.third_phi(points[0])


@pytest.mark.parametrize(
    "term",
    [
        "Piecewise((x**4/(exp(x) - 1)**3, x > 0), (0, True))",  # x on one side
        "x**3*Piecewise((1, x >= 0))",  # nothing on the other
        "max(x, 0)**4*Piecewise((1, x >= 0))",
        "1/max(x, 0)**3",
        "Piecewise((x**4/y, x > 0), (0, True))",
        "Piecewise((x**4*sqrt(y), x > 0), (0, True))",
    ],
)
@pytest.mark.parametrize("backend", ["tape", "lambdify"])
def test_a_pole_behind_the_other_piece_is_refused(term: str, backend: Backend) -> None:
    kernels = compile_kernels(BilevelProblem(f"y + {term}", "y**2/2 - x*y", "x", "y"), backend=backend)
    with pytest.raises(KernelError, match="grad_phi does not exist"):
        kernels.grad_phi([0.0])
    assert np.isfinite(kernels.grad_phi([0.5])).all()


@pytest.mark.long
@pytest.mark.parametrize("name", ["tube", "tube_coupled"])
def test_constants_of_a_tube_over_all_of_its_box(name: str) -> None:
    """Certified across all faces, and beside derivatives by SymPy, piece by piece, at points off them."""
    example = zoo.get(name, d=2)
    found, smooth = constants(example.problem, rtol=0.05), smoothness(example.problem, rtol=0.05)
    assert found.valid.mu > 0
    assert not smooth.reasons
    names = example.problem.x
    second = sp.lambdify(names, sp.hessian(example.phi, names))
    third = sp.lambdify(names, [sp.hessian(sp.diff(example.phi, s), names) for s in names])
    rng = np.random.default_rng(0)
    points = rng.uniform(-17, 17, (2000, 2))
    points[:1000, 0] = rng.uniform(math.e, 2 * math.e, 1000)
    hess = np.array([second(*point) for point in points])
    bend = np.array([third(*point) for point in points])
    largest = np.abs(np.linalg.eigvalsh(hess)).max()
    assert 0.95 * smooth.L_phi.lower < largest <= smooth.L_phi.upper
    entries = np.abs(bend).max()  # no more than the norm
    assert entries <= smooth.rho_phi.upper
    assert entries <= float(found.valid.nu if name == "tube" else found.valid.rho)
