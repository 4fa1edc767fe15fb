"""Functions written in pieces: certificates go across an edge where both formulas agree to the order needed, only there.

The corpus holds 33 functions that are three times continuously differentiable, with a bounded fourth derivative on both
sides of their edges. Where the certificate ends is held against derivatives by SymPy, piece by piece, and against plain
sampling; that agreement is needed at all, by the same functions one order less smooth.
"""

from __future__ import annotations

import math

import numpy as np
import pytest
import sympy as sp
from flint import arb

from bilevel_sym import BilevelProblem, Box, Constants, evaluate
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.pieces.contact import LIMIT, contact
from bilevel_sym.arithmetic.pieces.patterns import PARTS
from bilevel_sym.arithmetic.pieces.seams import find_seams
from bilevel_sym.errors import BilevelError, CertificateFailure
from bilevel_sym.graph.convert import from_sympy
from bilevel_sym.graph.nodes import Graph
from verify.points.stationary import stationary_points
from verify.regularity.certified import constants
from verify.regularity.phi_smoothness import smoothness

x, y, z = sp.symbols("x y z", real=True)
BOX = {"x": (-1, 1), "y": (-2, 2)}

STEP7 = "(35*{u}**4 - 84*{u}**5 + 70*{u}**6 - 20*{u}**7)"  # the smoothstep with three continuous derivatives
SMOOTHSTEP = f"Piecewise((0, {{t}} <= 0), ({STEP7.format(u='({t})')}, {{t}} < 1), (1, True))"

# what is added to g = y**2 - x*y, or to f = x*y where it stands first
CORPUS = {
    "fifth power of abs": ("", "abs(y)**5/100"),
    "odd power of abs in x": ("abs(x)**5", ""),
    "abs in both": ("abs(x)**5", "abs(y)**5/100"),
    "odd continuation": ("", "Piecewise((y**4/200, y > 0), (-y**4/200, True))"),
    "one-sided quartic": ("", "Piecewise((y**4/20, y > 0), (0, True))"),
    "one-sided quartic, the other way round": ("", "Piecewise((0, y <= 0), (y**4/20, True))"),
    "strict and not strict": ("", "Piecewise((0, y < 0), (y**4/20, y >= 0))"),
    "clipped polynomial": ("", "max(y, 0)**4/20"),
    "clipped from above": ("", "min(y - 1/3, 0)**4/100"),
    "two clips": ("max(x, 0)**4", "max(x + y, 0)**5/50 + min(y, 0)**4/40"),
    "clip of a linear form": ("", "max(x - 2*y + 1/4, 0)**4/200"),
    "smoothstep in x": (SMOOTHSTEP.format(t="x"), ""),
    "smoothstep in y": ("", SMOOTHSTEP.format(t="y") + "/40"),
    "smoothstep of a linear form": (SMOOTHSTEP.format(t="(x + y/2)"), ""),
    "smoothstep times a function": (f"cos(y)*{SMOOTHSTEP.format(t='x')}", ""),
    "quartic spline": ("", "(abs(y + 1)**5 - 2*abs(y)**5 + abs(y - 1)**5)/400 + y**2"),
    "spline with three knots": (
        "Piecewise((0, x < -1/2), ((x + 1/2)**4, x < 0), ((x + 1/2)**4 - 3*x**4, x < 1/2), "
        "((x + 1/2)**4 - 3*x**4 + 5*(x - 1/2)**4, True))",
        "",
    ),
    "exponential and its Taylor polynomial": ("", "Piecewise((exp(y), y < 0), (1 + y + y**2/2 + y**3/6, True))/4"),
    "cosine and its Taylor polynomial": ("Piecewise((cos(x), x > 0), (1 - x**2/2, True))", ""),
    "exponential at another knot": (
        "Piecewise((exp(x), x < 1/2), (exp(1/2)*(1 + (x - 1/2) + (x - 1/2)**2/2 + (x - 1/2)**3/6), True))",
        "",
    ),
    "squared raised cosine": ("Piecewise(((1 + cos(pi*x/(1/2)))**2, abs(x) < 1/2), (0, True))", ""),
    "reciprocal and its Taylor polynomial": ("Piecewise((1/(1 + x), x > 0), (1 - x + x**2 - x**3, True))", ""),
    "bump on a disc": ("", "Piecewise(((1 - x**2 - y**2)**4/50, x**2 + y**2 < 1), (0, True))"),
    "bump times an exponential": ("", "Piecewise(((1 - x**2 - y**2)**4*exp(x)/80, x**2 + y**2 < 1), (0, True))"),
    "edge along a parabola": ("max(y - x**2, 0)**4/50", ""),
    "product with a step": ("", "y**4*Piecewise((1, y > 0), (0, True))/20"),
    "difference of two pieces": ("Piecewise((x + x**4, x > 0), (0, True)) - Piecewise((x, x > 0), (0, True))", ""),
    "nested": ("Piecewise((Piecewise((x**4, x < 1/2), (x**4 + (x - 1/2)**4, True)), x > 0), (0, True))", ""),
    "nested in another variable": ("Piecewise((max(y, 0)**4*x**4, x > 0), (0, True))/50", ""),
    "and": ("Piecewise((x**4*y**4, (x > 0) & (y > 0)), (0, True))/50", ""),
    "inside a function": ("exp(max(x, 0)**4/4)", ""),
    "inside a root": ("sqrt(1 + max(x, 0)**4)", ""),
    "abs inside a condition": ("Piecewise(((1 - abs(x))**4*x**4, abs(x) < 1), (0, True))", ""),
}
IN_CI = list(CORPUS)[::5]  # the others are ``long``; certificates of them are proved again in ``test_certificates``


def problem_of(f: str, g: str) -> BilevelProblem:
    f, g = (sp.sympify(text or "0", {"x": x, "y": y, "max": sp.Max, "min": sp.Min}) for text in (f, g))
    return BilevelProblem(x * y + f, y**2 - x * y + g, [x], [y], box=BOX)


def test_the_corpus_has_thirty_three() -> None:
    assert len(CORPUS) == 33


@pytest.mark.slow
@pytest.mark.in_ci(name=IN_CI)
@pytest.mark.parametrize("name", CORPUS)
def test_constants_go_across_the_edge(name: str) -> None:
    """Certified brackets, and no sampled derivative beyond them."""
    problem = problem_of(*CORPUS[name])
    found = constants(problem, rtol=0.05)
    assert found.valid.mu > 0
    _holds_sampled(problem, found.valid)


def _holds_sampled(problem: BilevelProblem, valid: Constants) -> None:
    """Derivatives by SymPy of the pieces, at points off the edges."""
    rng = np.random.default_rng(0)
    points = rng.uniform([-1, -2], [1, 2], (40, 2))
    blocks = {"nu": [sp.diff(problem.g, y, 4), sp.diff(problem.g, x, y, 3)], "rho": [sp.diff(problem.f, x, 3)]}
    for constant, expressions in blocks.items():
        flat = [e.replace(sp.DiracDelta, lambda *_: sp.S.Zero) for e in expressions]  # the points are off the edges
        function = sp.lambdify([x, y], flat, "mpmath")
        worst = max(abs(float(value)) for point in points for value in function(*map(float, point)))
        assert worst <= float(getattr(valid, constant)) * (1 + 1e-9) + 1e-12, constant


@pytest.mark.slow
@pytest.mark.in_ci(name=IN_CI)
@pytest.mark.parametrize("name", CORPUS)
def test_smoothness_goes_across_the_edge(name: str) -> None:
    problem = problem_of(*CORPUS[name])
    found = smoothness(problem, rtol=0.1)
    assert not found.reasons, found.reasons
    for bracket in (found.grad_norm, found.L_phi, found.rho_phi):
        assert math.isfinite(bracket.upper)
    xs = np.random.default_rng(1).uniform(-1, 1, (60, 1))
    kernels = problem.kernels
    assert np.abs(kernels.grad_phi(xs)).max() <= found.grad_norm.upper * (1 + 1e-9)
    assert np.abs(kernels.hess_phi(xs)).max() <= found.L_phi.upper * (1 + 1e-9)
    hess = kernels.hess_phi(np.sort(xs, axis=0))[:, 0, 0]
    quotients = np.abs(np.diff(hess)) / np.diff(np.sort(xs, axis=0)[:, 0])
    assert quotients.max() <= found.rho_phi.upper * (1 + 1e-6) + 1e-9


# ---------------------------------------------------------------------- one order less

ROUGH = {
    "third power of abs": ("", "abs(y)**3/10", "g_yyyy"),
    "one-sided cubic": ("", "Piecewise((y**3/10, y > 0), (0, True))", "g_yyyy"),
    "clipped cube": ("", "max(y, 0)**3/10", "g_yyyy"),
    "kink": ("abs(x)", "", "f_xx"),
    "one-sided square": ("Piecewise((x**2, x > 0), (0, True))", "", "f_xxx"),
    "jump": ("Piecewise((1, x > 0), (0, True))", "", "f_x"),
    "jump that no derivative shows": ("", "y*Piecewise((1, x > 0), (0, True))", "g_"),
    "a value of its own on the edge": ("Piecewise((x**4, x < 0), (x**5, x > 0), (1, True))", "", "f_x"),
    "bump of third order": ("", "Piecewise(((1 - x**2 - y**2)**3/50, x**2 + y**2 < 1), (0, True))", "g_"),
    "Taylor polynomial that is too short": ("", "Piecewise((exp(y), y < 0), (1 + y + y**2/2, True))/4", "g_yyyy"),
    "almost": ("", "Piecewise((y**4, y > 0), (y**3/10**9, True))/10", "g_yyyy"),
    "smooth in the wrong place": ("Piecewise(((x - 1/3)**4, x > 0), (0, True))", "", "f_x"),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", ROUGH)
def test_what_does_not_agree_stays_refused(name: str) -> None:
    f, g, block = ROUGH[name]
    with pytest.raises(CertificateFailure, match=f"{block}.* has no bound"):
        constants(problem_of(f, g), rtol=0.05)


def test_what_is_not_asked_for_may_be_rough() -> None:
    """g_xxx is in no constant: a term in x alone may have a jump in its third derivative."""
    found = constants(problem_of("", "abs(x)**3"))
    assert found.brackets["rho"].upper < 1e-12
    assert 6.0 in found.brackets["ell"]


@pytest.mark.slow
def test_a_box_aside_of_the_edge_needs_no_agreement() -> None:
    found = constants(problem_of("", "abs(y)**3/10"), Box({"x": (-1, 1), "y": (1, 2)}))
    assert 0.6 in found.brackets["rho"]


def test_the_one_sided_limit_is_reached() -> None:
    """g_yyyy = 24 - 120 y for y > 0, and 0 for y < 0: the bound is attained only in the limit."""
    problem = BilevelProblem(
        "x*y", "y**2 - x*y + Piecewise((y**4*(1 - y)/10, y > 0), (0, True))", "x", "y",
        box={"x": (-1, 1), "y": ("-1/10", "1/10")},
    )  # fmt: skip
    nu = constants(problem).brackets["nu"]
    assert nu.upper >= 2.4 > nu.upper / 1.02
    assert nu.lower > 2.4 * 0.98


# ---------------------------------------------------------------------- points on the edge


def test_a_minimum_on_the_edge_is_found() -> None:
    problem = problem_of("abs(x)**5", "abs(y)**5/100")
    (point,) = stationary_points(problem, Box({"x": (-1, 1)}))
    assert point.kind == "local minimum"
    assert point.proved
    assert abs(point.x[0]) < 1e-12


def test_a_point_on_the_edge_has_a_certificate() -> None:
    """Phi = x**2/2 + |x|**5 + ...: at zero all derivatives that are given exist."""
    certificate = evaluate(BilevelProblem("y**2/2 + abs(x)**5", "y**2/2 - x*y + abs(y)**5", "x", "y"), [0])
    assert certificate.phi.contains(0)
    assert certificate.hess_phi[0][0].contains(1)


@pytest.mark.parametrize("term", ["abs(x)", "abs(x)*x", "Piecewise((x**2, x > 0), (0, True))"])
def test_a_point_on_a_rough_edge_has_none(term: str) -> None:
    with pytest.raises(BilevelError, match=r"not smooth|certificate"):
        evaluate(BilevelProblem(f"y**2/2 + {term}", "y**2/2 - x*y", "x", "y"), [0])


# ---------------------------------------------------------------------- the proof of contact


def _order(formula: sp.Expr) -> int:
    graph = Graph(3)
    form = from_sympy(graph, formula, dict(zip((x, y, z), graph.variables, strict=True)))
    seams = find_seams(graph, [form])
    return LIMIT if seams is None else min(seams.orders[0])


@pytest.mark.parametrize("k", range(5))
def test_orders_are_exact(k: int) -> None:
    """x**(k + 1) on one side: k derivatives agree, and not one more."""
    assert _order(sp.Piecewise((x ** (k + 1), x > 0), (0, True))) == k
    assert _order(sp.Piecewise((y * (x - y) ** (k + 1), x > y), (0, True))) == k
    assert _order(sp.exp(sp.Max(x + 2 * y - z, 0) ** (k + 1))) == k
    taylor = sum(x**j / sp.factorial(j) for j in range(k + 1))
    assert _order(sp.Piecewise((sp.exp(x), x < 0), (taylor, True))) == k


def test_orders_at_two_edges() -> None:
    spline = sp.Piecewise((0, x < 0), (x**3, x < 1), (x**3 + (x - 1) ** 5, True))
    graph = Graph(1)
    seams = find_seams(graph, [from_sympy(graph, spline, {x: graph.variables[0]})])
    assert seams is not None
    assert sorted(seams.orders[0]) == [2, 4]


def test_a_factor_beside_its_own_pole_is_no_contact() -> None:
    """x**4/x**4 has the factor x**4, and does not vanish."""
    assert _order(sp.Piecewise((sp.Mul(x**4, (x * (1 + y**2)) ** -4, evaluate=False), x > 0), (0, True))) == -1
    graph = Graph(1)
    (t,) = graph.variables
    assert contact(graph, graph.mul(graph.power(t, 2), graph.power(t, -3, 2)), t) == -1


def test_a_third_value_on_the_edge_counts() -> None:
    assert _order(sp.Piecewise((x**4, x < 0), (0, x > 0), (1, True))) == -1
    assert _order(sp.Piecewise((x**4, x < 0), (0, x > 0), (x * y, True))) == 3


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(20))
def test_orders_against_numbers(seed: int) -> None:
    """Random splines: what is proved to agree agrees in 60 digits, and the order after it does not."""
    rng = np.random.default_rng(seed)
    order, knot = int(rng.integers(0, 5)), sp.Rational(int(rng.integers(-3, 4)), 2)
    left = sum(int(rng.integers(-3, 4)) * x**k for k in range(6)) * (1 + y)
    right = left + (x - knot) ** (order + 1) * (int(rng.integers(1, 4)) + x * y)
    right = sp.expand(right) if seed % 2 else right
    assert _order(sp.Piecewise((left, x < knot), (right, True))) >= order
    for k in range(_order(sp.Piecewise((left, x < knot), (right, True))) + 1):
        assert sp.simplify(sp.diff(left - right, x, k).subs(x, knot)) == 0


def test_parts_leave_out_what_a_derivative_does_not_see() -> None:
    problem = problem_of("", "abs(x)**3")
    patterns = problem.tape.patterns
    assert patterns is not None
    orders = dict(zip(PARTS, patterns.seams.orders, strict=True))
    assert orders["g", ""] == (2,)
    assert orders["g", "y"] == (LIMIT,)


def test_balls_across_an_edge_hold_both_sides() -> None:
    """The hull over a ball around zero of a fourth derivative that jumps from 0 to 24 there."""
    problem = BilevelProblem("x*y", "y**2 + Piecewise((y**5, y > 0), (0, True))", "x", "y")
    with precision(100):
        program = problem.tape.in_balls(("g_yyyy",), 100)
        values = program.start()
        program.put(values, 0, [arb(0), arb(0, 1)])
        (ball,) = program.output(values, "g_yyyy")
    assert ball.contains(0)
    assert ball.contains(120)
    rough = problem.tape.in_balls(("g_yyyyy",), 100)
    with precision(100):
        values = rough.start()
        rough.put(values, 0, [arb(0), arb(0, 1)])
        assert rough.output(values, "g_yyyyy")[0].is_nan()
