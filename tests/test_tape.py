"""The tape: conversion, derivatives and programs against SymPy's exact derivatives, in every arithmetic."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import lru_cache
from typing import Any

import flint
import hypothesis.strategies as st
import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import fmpq
from helpers import FEW
from hypothesis import assume, example, given

from bilevel_sym import BilevelProblem, sigmoid, softplus
from bilevel_sym.arithmetic.arrays import ArrayProgram
from bilevel_sym.arithmetic.boxes import IntervalProgram
from bilevel_sym.arithmetic.scalars import BALLS, DIGITS, Arithmetic, ScalarProgram
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.convert import from_sympy, to_sympy
from bilevel_sym.graph.expressions import substitute
from bilevel_sym.graph.nodes import Graph
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.graph.program import Program, Step, build
from bilevel_sym.implicit.model import Model
from bilevel_sym.symbolic.blocks import derivative
from bilevel_sym.typing import Floats

Rationals = Sequence[sp.Rational]
BITS = 210  # sixty digits and a few to spare
ROUND_OFF = 1e-12

x, y = sp.symbols("x y", real=True)
x1, x2, x3 = sp.symbols("x1:4", real=True)
y1, y2 = sp.symbols("y1:3", real=True)
Q = sp.Rational


# ---- one program in every arithmetic ---------------------------------------------------------------------


def scalar_run(
    program: Program, arithmetic: Arithmetic, stages: Sequence[Rationals], bits: int = BITS
) -> dict[str, Any]:
    """Every output, flat, at one rational point."""
    with arithmetic.precision(bits):
        ready = ScalarProgram(program, arithmetic)
        values = ready.start()
        for k, numbers in enumerate(stages):
            inputs = program.inputs[k]
            values[inputs.start : inputs.stop] = [arithmetic.constant(int(q.p), int(q.q)) for q in numbers]
            ready.run(values, k)
        return {
            name: ready.output(values, name) for name, output in program.outputs.items() if output.stage < len(stages)
        }


def array_run(
    program: Program, stages: Sequence[Rationals], lanes: int = 1, *, compiled: bool = False
) -> dict[str, Any]:
    """Every output, flat, in float64: the first lane of ``lanes`` equal ones."""
    encode: Any = None
    if compiled:
        pytest.importorskip("numba")
        from bilevel_sym.arithmetic.compiled.instructions import Encoded

        encode = Encoded
    session = ArrayProgram(program, encode).session(lanes)
    for k, numbers in enumerate(stages):
        session.put(k, np.array([[float(q) for q in numbers]] * lanes))
    found = {}
    for name, output in program.outputs.items():
        if output.stage < len(stages):
            result = session.take(name)
            assert result.shape == (lanes, *output.shape)
            assert (np.isnan(result) | (result == result[:1])).all()
            found[name] = result[0].ravel().tolist()
    return found


def interval_run(program: Program, stages: Sequence[tuple[Floats, Floats]]) -> dict[str, tuple[Floats, Floats]]:
    """Every output over boxes: (lanes, inputs) for each end of each stage."""
    session = IntervalProgram(program).session(len(stages[0][0]))
    with np.errstate(all="ignore"):
        for k, (lo, hi) in enumerate(stages):
            session.put(k, lo, hi)
        return {name: session.take(name) for name, output in program.outputs.items() if output.stage < len(stages)}


def exact(value: sp.Expr) -> Any:
    """A SymPy number as an mpmath number of sixty digits."""
    number = value if value.is_Rational else value.evalf(60)
    assert number.is_Float or number.is_Rational, value
    with mpmath.workprec(BITS):
        return number._to_mpmath(BITS) if number.is_Float else mpmath.mpf(int(number.p)) / int(number.q)


def ball_holds(ball: Any, truth: Any) -> bool:
    """Whether the ball contains sixty digits, give or take the last of them."""
    with BALLS.precision(BITS), mpmath.workprec(BITS):
        slack = abs(truth) * mpmath.mpf(10) ** -57
        near = flint.arb(truth, slack) if truth else flint.arb(0)
        return bool(ball.is_finite() and ball.overlaps(near))


def close(value: float, truth: Any, scale: float = 1.0, tolerance: float = ROUND_OFF) -> bool:
    return bool(abs(value - truth) <= tolerance * max(abs(float(truth)), scale))


# ---- every function of the grammar -----------------------------------------------------------------------

GRAMMAR: dict[str, sp.Expr] = {
    "exp": sp.exp(x * y),
    "log": sp.log(2 + x * y),
    "sqrt": sp.sqrt(3 + x - y),
    "sin": sp.sin(3 * x + y),
    "cos": sp.cos(x * y**2),
    "tan": sp.tan((x + y) / 4),
    "tanh": sp.tanh(x - 2 * y),
    "sinh": sp.sinh(x * y),
    "cosh": sp.cosh(x + y),
    "atan": sp.atan(4 * x * y),
    "asinh": sp.asinh(3 * x - y),
    "erf": sp.erf(x - 2 * y),
    "abs": sp.Abs(x - 3 * y) * y,
    "min": sp.Min(x * y, x - y, y**2),
    "max": sp.Max(x**2, sp.sin(y)),
    "softplus": softplus(5 * x - y),
    "sigmoid": sigmoid(x * y - 1),
    "Piecewise <": sp.Piecewise((x**2 * y, x < y), (x - y**3, True)),
    "Piecewise <=": sp.Piecewise((x, x <= -5), (sp.exp(y), y <= x), (x * y, True)),
    "Piecewise >": sp.Piecewise((sp.log(x - y), x > y), (sp.log(y - x + 1), True)),
    "Piecewise >=": sp.Piecewise((sp.sqrt(x - y), x >= y), (y**2, True)),
    "And": sp.Piecewise((x**3, sp.And(x > -1, y < 2)), (y**3, True)),
    "Or": sp.Piecewise((x**3 * y, sp.Or(x > y, y < -1)), (y**3, True)),
    # in intervals 1 - [1, 1]*[1, 1] must stay [0, 0], or a condition that is certain looks open
    "Not": sp.Piecewise((x * y, sp.Not(sp.And(x > y, y < 1))), (x**2 * y, True)),
    "pi": sp.pi * x * y + sp.sin(sp.pi * x),
    "E": sp.E * x + sp.E**2 * y**2,
    "x**20": x**20 + x * y,
    "x**-3": (x + y + 4) ** -3,
    "x**(2/3)": (x**2 + y**2) ** Q(2, 3),
    "x**(-7/5)": (3 + x * y) ** Q(-7, 5),
    "x**(3/2)": (3 + x * y) ** Q(3, 2),
    "2**x": 2 ** (x * y),
    "x**y": (x + 3) ** y,
    "x**pi": (x + 3) ** sp.pi * y,
    "log(1 + exp)": sp.log(1 + sp.exp(x * y)),
    "1/(1 + exp)": 1 / (1 + sp.exp(x - y)) ** 2,
    "exp/(1 + exp)": sp.exp(x) / (1 + sp.exp(x)) + y,
    "rational": Q(22, 7) * x / (y - 5) + Q(1, 3),
}  # fmt: skip
POINTS = [(Q(3, 4), Q(5, 8)), (Q(-1, 2), Q(7, 4)), (Q(5, 4), Q(-3, 8)), (Q(1, 16), Q(-1, 1024))]
BLOCKS = ("f", "f_x", "f_y", "f_xx", "f_xy", "f_yy")


def partials(expression: sp.Expr) -> dict[str, sp.Expr]:
    f_x, f_y = derivative(expression, x), derivative(expression, y)
    return {
        "f": expression, "f_x": f_x, "f_y": f_y,
        "f_xx": derivative(f_x, x), "f_xy": derivative(f_x, y), "f_yy": derivative(f_y, y),
    }  # fmt: skip


@lru_cache(None)
def grammar_case(name: str) -> tuple[Program, tuple[dict[str, Any], ...]]:
    """The program of an expression with its derivatives, and their true values at each point."""
    expression = GRAMMAR[name]
    truth = partials(expression)
    model = BilevelProblem(expression, y**2, [x], [y]).tape
    values = tuple(
        {block: exact(substitute(entry, dict(zip((x, y), point, strict=True)))) for block, entry in truth.items()}
        for point in POINTS
        if substitute(expression, dict(zip((x, y), point, strict=True))).is_real
    )
    return model.program(BLOCKS), values


def defined(name: str) -> list[Rationals]:
    return [p for p in POINTS if substitute(GRAMMAR[name], dict(zip((x, y), p, strict=True))).is_real]


Check = Callable[[Program, Rationals, Mapping[str, Any]], Iterator[tuple[str, bool]]]


def in_floats(lanes: int, *, compiled: bool) -> Check:
    def check(program: Program, point: Rationals, truth: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
        for block, (value,) in array_run(program, [point], lanes, compiled=compiled).items():
            yield block, close(value, truth[block])

    return check


def in_digits(program: Program, point: Rationals, truth: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    for block, (value,) in scalar_run(program, DIGITS, [point]).items():
        with mpmath.workprec(BITS):
            yield block, bool(abs(value - truth[block]) <= mpmath.mpf(10) ** -55 * max(1, abs(truth[block])))


def in_balls(program: Program, point: Rationals, truth: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    for block, (ball,) in scalar_run(program, BALLS, [point]).items():
        yield block, ball_holds(ball, truth[block])
        yield f"{block} is narrow", bool(ball.rad() < 1e-50)


def in_intervals(program: Program, point: Rationals, truth: Mapping[str, Any]) -> Iterator[tuple[str, bool]]:
    middle = np.array([[float(q) for q in point]])
    for width in (0.0, 2.0**-40, 0.25):
        found = interval_run(program, [(middle - width, middle + width)])
        for block, (lo, hi) in found.items():
            yield f"{block} at width {width}", bool(lo.item() <= truth[block] <= hi.item())
            if width == 0:
                size = max(1.0, abs(float(truth[block])))
                yield f"{block} is narrow", bool(hi.item() - lo.item() < 1e-11 * size)


ARITHMETICS: dict[str, Check] = {
    "numpy": in_floats(1, compiled=False),
    "numpy lanes": in_floats(33, compiled=False),
    "compiled": in_floats(1, compiled=True),
    "compiled lanes": in_floats(33, compiled=True),
    "digits": in_digits,
    "balls": in_balls,
    "intervals": in_intervals,
}


@pytest.mark.slow
@pytest.mark.parametrize("arithmetic", ARITHMETICS)
@pytest.mark.parametrize("name", GRAMMAR)
def test_every_function_in_every_arithmetic(name: str, arithmetic: str) -> None:
    program, truths = grammar_case(name)
    points = defined(name)
    assert len(points) == len(truths) >= 2
    for point, truth in zip(points, truths, strict=True):
        wrong = [what for what, holds in ARITHMETICS[arithmetic](program, point, truth) if not holds]
        assert not wrong, (point, wrong)


def test_the_table_names_every_operation_of_the_tape() -> None:
    graph = Graph(2)
    for expression in GRAMMAR.values():
        for entry in partials(expression).values():
            from_sympy(graph, entry, dict(zip((x, y), graph.variables, strict=True)))
    assert set(graph.op) >= {"lin", *OPERATIONS}


def test_outside_every_piece_there_is_no_number() -> None:
    program = BilevelProblem(sp.Piecewise((x, x < 0), (y, x > 1)), y**2, [x], [y]).tape.program(("f",))
    inside, outside = [Q(-1), Q(2)], [Q(1, 2), Q(2)]
    assert array_run(program, [inside])["f"] == [-1.0]
    assert np.isnan(array_run(program, [outside])["f"]).all()
    assert scalar_run(program, BALLS, [outside])["f"][0].is_nan()
    assert mpmath.isnan(scalar_run(program, DIGITS, [outside])["f"][0])


@pytest.mark.parametrize("compiled", [False, True])
@pytest.mark.parametrize("lanes", [1, 5])
def test_outside_a_domain_and_beyond_overflow_ieee_rules_hold(lanes: int, compiled: bool) -> None:
    cases = {
        1 / x: (Q(0), np.inf), sp.log(x): (Q(0), -np.inf), sp.sqrt(x): (Q(-1), np.nan), x ** Q(1, 3): (Q(-1), np.nan),
        sp.exp(x): (Q(1000), np.inf), sp.cosh(x): (Q(-1000), np.inf), x**-4: (Q(0), np.inf), x**300: (Q(100), np.inf),
    }  # fmt: skip
    for expression, (at, expected) in cases.items():
        program = BilevelProblem(expression, y**2, [x], [y]).tape.program(("f",))
        np.testing.assert_equal(array_run(program, [[at, Q(0)]], lanes, compiled=compiled)["f"], [expected])


@pytest.mark.slow
def test_back_to_sympy_is_the_same_function() -> None:
    for name, expression in GRAMMAR.items():
        graph = Graph(2)
        form = from_sympy(graph, expression, dict(zip((x, y), graph.variables, strict=True)))
        (back,) = to_sympy(graph, [form], {0: x, 1: y})
        for point in defined(name):
            at = dict(zip((x, y), point, strict=True))
            assert abs(exact(substitute(back, at)) - exact(substitute(expression, at))) < 1e-50, name


def test_what_the_tape_does_not_know_is_refused() -> None:
    graph = Graph(1)
    with pytest.raises(InvalidProblem, match="gamma"):
        from_sympy(graph, sp.gamma(x), {x: graph.variables[0]})
    with pytest.raises(InvalidProblem, match="q has no value"):
        from_sympy(graph, sp.Symbol("q") + x, {x: graph.variables[0]})


# ---- random expressions ----------------------------------------------------------------------------------

VARIABLES = (x1, x2, y1)
LEAVES = st.one_of(st.sampled_from(VARIABLES), st.sampled_from([Q(2), Q(-1, 3), Q(1, 10), sp.pi, sp.E]))
TAME: list[Callable[[sp.Expr], sp.Expr]] = [
    sp.sin, sp.cos, sp.tanh, sp.atan, sp.asinh, sp.erf, softplus, sigmoid, sp.Abs,
    lambda e: sp.exp(sp.sin(e)), lambda e: sp.log(1 + e**2), lambda e: sp.sqrt(2 + e**2), lambda e: 1 / (1 + e**2),
    lambda e: sp.tan(sp.atan(e) / 2), lambda e: sp.sinh(sp.cos(e)), lambda e: sp.cosh(sp.sin(e)), lambda e: e**2,
    lambda e: (2 + sp.cos(e)) ** Q(-4, 3), lambda e: sp.log(1 + sp.exp(e)), lambda e: 1 / (1 + sp.exp(e)),
]  # fmt: skip
JOINT: list[Callable[[sp.Expr, sp.Expr], sp.Expr]] = [
    lambda a, b: a + b,
    lambda a, b: a * b,
    lambda a, b: a - 2 * b,
    lambda a, b: sp.Max(a, b),
    lambda a, b: sp.Min(a, 2 * b),
    lambda a, b: sp.Piecewise((a * b, x1 < x2), (a + b, sp.Or(y1 >= 1, x1 > 1)), (a, True)),
    lambda a, b: sp.Piecewise((b, sp.And(x1 <= y1, x2 > -1)), (a, True)),
]
EXPRESSIONS = st.recursive(
    LEAVES,
    lambda inner: st.one_of(
        st.builds(lambda function, e: function(e), st.sampled_from(TAME), inner),
        st.builds(lambda function, a, b: function(a, b), st.sampled_from(JOINT), inner, inner),
    ),
    max_leaves=6,
)
COORDINATES = st.integers(-48, 48).map(lambda k: Q(2 * k + 1, 32))  # dyadic, and never 0 or 1


@given(EXPRESSIONS, st.tuples(COORDINATES, COORDINATES, COORDINATES))
@example(sp.Max(x1, 2 * x1 - x2) * sp.Abs(y1), (Q(1, 2), Q(1, 4), Q(-1, 4)))
@FEW
def test_random_expressions_with_gradient_and_hessian(expression: sp.Expr, point: tuple[sp.Rational, ...]) -> None:
    assume(not expression.has(sp.zoo, sp.nan, sp.oo) and expression.free_symbols)
    model = Model(expression, y1**2, (x1, x2), (y1,))
    program = model.program(("f", "f_x", "f_y", "f_xx", "f_xy", "f_yy"))
    balls = scalar_run(program, BALLS, [point])
    flat = [ball for entries in balls.values() for ball in entries]
    assume(all(ball.is_finite() and ball.rad() < 1e-40 for ball in flat))  # else a kink, or a pole
    assume(all(abs(ball) < 1e6 for ball in flat))
    at = dict(zip(VARIABLES, point, strict=True))
    digits, floats = scalar_run(program, DIGITS, [point]), array_run(program, [point])
    lo_hi = interval_run(program, [(np.array([[float(q) for q in point]]),) * 2])
    axes = {"x": (x1, x2), "y": (y1,)}
    for name, entries in balls.items():
        wanted = [expression]
        for axis in name[2:]:
            wanted = [derivative(entry, s) for entry in wanted for s in axes[axis]]
        lo, hi = (end.ravel() for end in lo_hi[name])
        for k, (entry, ball) in enumerate(zip(wanted, entries, strict=True)):
            truth = exact(substitute(entry, at))
            assert ball_holds(ball, truth), (name, k)
            assert abs(digits[name][k] - truth) <= 1e-50 * max(1, abs(truth)), (name, k)
            assert close(floats[name][k], truth, scale=float(max(abs(b.mid()) for b in flat)), tolerance=1e-11), (
                name,
                k,
            )
            assert lo[k] <= truth <= hi[k], (name, k)


# ---- Jacobians, the Lagrangian, third derivatives and products -------------------------------------------

SHAPED: dict[str, tuple[sp.Expr, sp.Expr, tuple[sp.Symbol, ...], tuple[sp.Symbol, ...]]] = {
    "d = 3, n = 2": (
        sp.sin(x1 * y1) + x2 * y2**2 + x3 * y1 * y2 + x1**3,
        y1**2 + 2 * y2**2 + y1 * y2 * x2 + sp.exp(x1 * y1) / 4 + y1**3 * x3 / 6 - x3 * y2,
        (x1, x2, x3),
        (y1, y2),
    ),
    "d = 1, n = 2": (x1 * y1 * y2, sp.cosh(y1) + sp.cosh(y2) + softplus(y1 - x1 * y2), (x1,), (y1, y2)),
    "d = 2, n = 1": (x1**2 * x2 * y1**3, (2 + sp.sin(x1)) * y1**2 + x2 * sp.atan(y1) - x1 * y1, (x1, x2), (y1,)),
    "d = 1, n = 1": (sp.tanh(x1) * y1, sp.log(1 + sp.exp(y1)) + y1**2 / 2 - x1 * y1, (x1,), (y1,)),
    "constant and zero blocks": (x1 + y1, y1**2 + y2**2 - x2 * y1, (x1, x2), (y1, y2)),
}
NAMES = ("f_x", "f_y", "g_y", "g_xy", "g_yy", "g_yy_v", "g_xy_v", "L_xx", "L_xy", "L_yy", "q", "r")
HIGHER = ("g_yyy", "g_xyy", "g_xxy", "f_xxx", "g_yyyy", "g_xxyy")  # what is equal by symmetry is one form


def rationals(rng: np.random.Generator, count: int) -> list[sp.Rational]:
    return [Q(int(k), 8) for k in rng.integers(-12, 13, count)]


def along(expression: sp.Expr, variables: Sequence[sp.Symbol], direction: Rationals) -> sp.Expr:
    return sp.Add(*(t * derivative(expression, s) for s, t in zip(variables, direction, strict=True)))


def sympy_block(case: str, name: str, v: Rationals, u: Rationals, w: Rationals) -> list[sp.Expr]:
    """The block by SymPy alone, v and the directions inserted."""
    f, g, xs, ys = SHAPED[case]
    lagrangian = f - along(g, ys, v)
    if name in ("q", "r"):
        function, outer = (lagrangian, (*xs, *ys)) if name == "q" else (g, ys)
        return [derivative(along(along(function, (*xs, *ys), u), (*xs, *ys), w), s) for s in outer]
    if name.endswith("_v"):
        return [derivative(along(g, ys, v), s) for s in (xs if name == "g_xy_v" else ys)]
    entries = [{"f": f, "g": g, "L": lagrangian}[name[0]]]
    for axis in name[2:]:
        entries = [derivative(entry, s) for entry in entries for s in (xs if axis == "x" else ys)]
    return entries


@pytest.mark.parametrize("name", NAMES + HIGHER)
@pytest.mark.parametrize("case", SHAPED)
def test_blocks_against_sympy_in_sixty_digits(case: str, name: str) -> None:
    f, g, xs, ys = SHAPED[case]
    rng = np.random.default_rng(len(case) + len(name))
    program = Model(f, g, xs, ys).program((name,))
    d, n = len(xs), len(ys)
    xy, v, u, w = (rationals(rng, count) for count in (d + n, n, d + n, d + n))
    stages = [xy, v, [*u, *w]]
    at = dict(zip((*xs, *ys), xy, strict=True))
    truth = [exact(substitute(entry, at)) for entry in sympy_block(case, name, v, u, w)]
    digits, balls = (scalar_run(program, arithmetic, stages)[name] for arithmetic in (DIGITS, BALLS))
    floats = [array_run(program, stages)[name]]
    ends = interval_run(program, [(np.array([[float(q) for q in numbers]]),) * 2 for numbers in stages])[name]
    for k, value in enumerate(truth):
        assert abs(digits[k] - value) <= 1e-55 * max(1, abs(value))
        assert ball_holds(balls[k], value)
        assert ends[0].ravel()[k] <= value <= ends[1].ravel()[k]
        assert all(close(entries[k], value) for entries in floats)


@pytest.mark.parametrize("case", SHAPED)
def test_the_compiled_interpreter_gives_the_same_blocks(case: str) -> None:
    f, g, xs, ys = SHAPED[case]
    rng = np.random.default_rng(5)
    program = Model(f, g, xs, ys).program(NAMES)
    d, n = len(xs), len(ys)
    stages = [rationals(rng, d + n), rationals(rng, n), rationals(rng, 2 * (d + n))]
    plain = array_run(program, stages)
    for lanes in (1, 7, 64, 65):
        for name, entries in array_run(program, stages, lanes, compiled=True).items():
            np.testing.assert_allclose(entries, plain[name], rtol=1e-13, atol=1e-13)


@given(st.sampled_from(sorted(SHAPED)), st.integers(0, 10**6))
@FEW
def test_products_are_products_with_the_block(case: str, seed: int) -> None:
    f, g, xs, ys = SHAPED[case]
    rng = np.random.default_rng(seed)
    d, n = len(xs), len(ys)
    program = Model(f, g, xs, ys).program(("g_yy", "g_xy", "g_yy_v", "g_xy_v"))
    v = rationals(rng, n)
    found = scalar_run(program, DIGITS, [rationals(rng, d + n), v])
    for block, rows in (("g_yy", n), ("g_xy", d)):
        with mpmath.workprec(BITS):
            product = mpmath.matrix(rows, n)
            for i in range(rows):
                for j in range(n):
                    product[i, j] = found[block][i * n + j]
            expected = product * mpmath.matrix([exact(q) for q in v])
            assert all(abs(a - b) < 1e-50 for a, b in zip(found[f"{block}_v"], expected, strict=True))


# ---- boxes and corners -----------------------------------------------------------------------------------


@pytest.mark.parametrize("case", SHAPED)
def test_boxes_contain_random_points_corners_and_the_balls_of_their_points(case: str) -> None:
    f, g, xs, ys = SHAPED[case]
    rng = np.random.default_rng(11)
    program = Model(f, g, xs, ys).program(("g_y", "g_yy", "L_xx", "L_xy"))
    width = [len(xs) + len(ys), len(ys)]
    lanes = 6
    lo = [rng.integers(-8, 9, (lanes, k)) / 8 for k in width]
    hi = [low + np.array([0.0, 2.0**-30, 0.125, 0.5, 1.0, 2.0])[:, None] for low in lo]
    found = interval_run(program, list(zip(lo, hi, strict=True)))
    for lane in range(lanes):
        for share in (0.0, 1.0, *rng.integers(0, 65, 2) / 64):
            corner = [
                low[lane] + (high[lane] - low[lane]) * rng.choice([share, 1 - share], len(low[lane]))
                for low, high in zip(lo, hi, strict=True)
            ]
            point = [[Q(float(value)) for value in part] for part in corner]
            for name, values in scalar_run(program, DIGITS, point).items():
                low, high = (end[lane].ravel() for end in found[name])
                assert all(a <= value <= b for a, value, b in zip(low, values, high, strict=True)), (lane, name)


# ---- the logistic family ---------------------------------------------------------------------------------

S = sp.Symbol("S")
# as a user writes it; k; and the same as a polynomial in S = sigmoid(k z), None for softplus(k z)
LOGISTIC: dict[str, tuple[sp.Expr, int, sp.Expr | None]] = {
    "log(1 + exp(z))": (sp.log(1 + sp.exp(x)), 1, None),
    "log(1 + exp(-2z))": (sp.log(1 + sp.exp(-2 * x)), -2, None),
    "1/(1 + exp(z))": (1 / (1 + sp.exp(x)), -1, S),
    "1/(1 + exp(-z))": (1 / (1 + sp.exp(-x)), 1, S),
    "exp(z)/(1 + exp(z))": (sp.exp(x) / (1 + sp.exp(x)), 1, S),
    "(1 + exp(z))**-2": ((1 + sp.exp(x)) ** -2, -1, S**2),
    # a third factor comes between exp(z) and 1/(1 + exp(z)) in SymPy's order
    "y exp(z)/(1 + exp(z))": (y * sp.exp(x) / (1 + sp.exp(x)), 1, S),
    "exp(z)/(1 + exp(z))**2": (sp.exp(x) / (1 + sp.exp(x)) ** 2, 1, S * (1 - S)),
}
FAR = [Q(0), Q(1, 2), Q(-3), Q(40), Q(-40), Q(300), Q(-700), Q(750), Q(-750), Q(10**4), Q(-(10**4))]


def logistic_truth(name: str, z: sp.Rational) -> list[Any]:
    """The value and three derivatives; with digits to spare, for 1 - sigmoid(10000) is 1e-4343."""
    _, k, polynomial = LOGISTIC[name]
    with mpmath.workdps(4450 * abs(k)):
        t = k * mpmath.mpf(int(z.p)) / int(z.q)
        s, values = 1 / (1 + mpmath.exp(-t)), []
        if polynomial is None:
            values, polynomial = [mpmath.log1p(mpmath.exp(t))], k * S
        while len(values) < 4:
            values.append(sp.lambdify(S, polynomial, "mpmath")(s))
            polynomial = k * S * (1 - S) * sp.diff(polynomial, S)
        return [mpmath.make_mpf(mpmath.libmp.mpf_pos(mpmath.mpf(value)._mpf_, 250, "n")) for value in values]


@pytest.mark.slow
@pytest.mark.parametrize("name", LOGISTIC)
def test_logistic_functions_are_recognised_and_stable(name: str) -> None:
    program = BilevelProblem(LOGISTIC[name][0] + 0 * y, y**2, [x], [y]).tape.program(("f", "f_x", "f_xx", "q"))
    lane = np.array([[float(z), 1.0] for z in FAR])
    session = ArrayProgram(program).session(len(FAR))
    session.put(0, lane)
    session.put(1, np.zeros((len(FAR), 1)))
    session.put(2, np.tile([1.0, 0.0, 1.0, 0.0], (len(FAR), 1)))
    got = np.stack(
        [session.take("f"), session.take("f_x")[:, 0], session.take("f_xx")[:, 0, 0], session.take("q")[:, 0]]
    )
    for k, z in enumerate(FAR):
        balls = scalar_run(program, BALLS, [[z, Q(1)], [Q(0)], [Q(1), Q(0), Q(1), Q(0)]])
        enclosures = [balls["f"][0], balls["f_x"][0], balls["f_xx"][0], balls["q"][0]]
        for order, truth in enumerate(logistic_truth(name, z)):
            assert abs(got[order, k] - truth) <= 1e-12 * abs(truth) + 1e-300, (z, order)
            with BALLS.precision(BITS):
                assert ball_holds(enclosures[order], truth), (z, order)
                assert enclosures[order].rad() <= abs(enclosures[order]) * 1e-40, (z, order)


# ---- depth -----------------------------------------------------------------------------------------------


def nested_sine(symbol: sp.Symbol, depth: int) -> sp.Expr:
    expression: sp.Expr = symbol
    for _ in range(depth):
        expression = sp.sin(expression, evaluate=False)
        hash(expression)  # SymPy's own hash recurses, unless the part below has its already
    return expression


@pytest.fixture(scope="module")
def deep() -> Program:
    return BilevelProblem(nested_sine(x, 10_000), y**2 / 2 - x * y, [x], [y]).tape.program(("f", "f_x"))


@pytest.mark.slow
def test_ten_thousand_nested_functions_with_gradient(deep: Program) -> None:
    point = [Q(1), Q(0)]
    value, slope = 1.0, 1.0
    for _ in range(10_000):
        value, slope = np.sin(value), slope * np.cos(value)
    for floats in (array_run(deep, [point]), array_run(deep, [point], 3)):
        assert close(floats["f"][0], value, 0, 1e-10)
        assert close(floats["f_x"][0], slope, 0, 1e-10)
    balls = scalar_run(deep, BALLS, [point], bits=128)
    assert abs(float(balls["f"][0].mid()) - value) < 1e-12
    assert abs(float(balls["f_x"][0].mid()) / slope - 1) < 1e-10
    assert balls["f"][0].rad() < 1e-30


@pytest.mark.slow
def test_ten_thousand_nested_functions_compiled(deep: Program) -> None:
    plain, compiled = (array_run(deep, [[Q(1), Q(0)]], compiled=flag) for flag in (False, True))
    np.testing.assert_allclose(compiled["f_x"], plain["f_x"], rtol=1e-11)


GROW: list[Callable[[sp.Expr], sp.Expr]] = [
    lambda e: sp.Add(sp.Mul(e, x, evaluate=False), 1, evaluate=False),
    lambda e: sp.Piecewise((e, x < 7), (y, True), evaluate=False),
    lambda e: sp.Pow(sp.Add(e, 1, evaluate=False), Q(1, 2), evaluate=False),
]


@pytest.mark.slow
def test_deep_sums_products_and_pieces_need_no_recursion() -> None:
    for grow in GROW:
        expression: sp.Expr = x + 1
        for _ in range(1500):
            expression = grow(expression)
            hash(expression)
            _ = expression.is_commutative
        program = Model(expression, y**2, [x], [y]).program(("f", "f_x"))
        assert np.isfinite(array_run(program, [[Q(1, 2), Q(1, 4)]])["f"]).all()


# ---- the graph and its programs --------------------------------------------------------------------------


def steps_by_stage(program: Program) -> list[tuple[int, Step]]:
    return [(k, step) for k, stage in enumerate(program.stages) for step in stage]


def reads(step: Step) -> list[set[int]]:
    """The places that each result of a step reads."""
    if step.op == "lin":
        return [{place for place, _ in row} for row in step.rows]
    return [set(column) for column in zip(*step.sources, strict=True)]


@pytest.mark.parametrize("case", SHAPED)
def test_later_stages_never_recompute_earlier_ones(case: str) -> None:
    program = Model(*SHAPED[case]).program(NAMES)
    stage_of = {0: -1} | {place: k for k, group in enumerate(program.inputs) for place in group}
    stage_of |= {place: -1 for step in program.constants for place in step.places}
    seen: set[tuple[object, ...]] = set()
    for stage, step in steps_by_stage(program):
        for place, sources, index in zip(step.places, reads(step), range(step.size), strict=True):
            assert max(stage_of[source] for source in sources) == stage  # KeyError: read before it is written
            what = step.rows[index] if step.op == "lin" else tuple(column[index] for column in step.sources)
            assert (step.op, step.parameter, what) not in seen
            seen.add((step.op, step.parameter, what))
            stage_of[place] = stage
    assert len(stage_of) == program.size


@pytest.mark.parametrize("case", SHAPED)
def test_one_step_for_each_level_and_operation(case: str) -> None:
    program = Model(*SHAPED[case]).program(NAMES)
    for stage in program.stages:
        level: dict[int, int] = {}
        found: list[tuple[Any, ...]] = []
        for step in stage:
            levels = {1 + max((level.get(source, 0) for source in sources), default=0) for sources in reads(step)}
            assert len(levels) == 1
            level |= dict.fromkeys(step.places, *levels)
            found.append((*levels, step.op, step.parameter))
        assert len(found) == len(set(found))
        assert [k for k, *_ in found] == sorted(k for k, *_ in found)


@pytest.mark.parametrize("case", SHAPED)
@pytest.mark.parametrize("name", ["g_yy", "f_xx", "L_xx", "L_yy", "f_yy"])
def test_symmetric_entries_share_one_place(case: str, name: str) -> None:
    output = Model(*SHAPED[case]).program((name,)).outputs[name]
    places = np.array(output.places).reshape(output.shape)
    assert (places == places.T).all()


def test_equal_parts_are_one_node_however_they_are_written() -> None:
    graph = Graph(2)
    known = dict(zip((x, y), graph.variables, strict=True))
    shared = [sp.sin(x + y), sp.sin((2 * x + 2 * y) / 2), sp.sin(sp.Add(y, x, evaluate=False))]
    assert len({graph.node_of(from_sympy(graph, e, known)) for e in shared}) == 1
    before = len(graph)
    from_sympy(graph, sp.sin(x + y) ** 2 * sp.sin(x + y) ** -2, known)
    assert len(graph) <= before + 2
    assert from_sympy(graph, sp.Add(x, -x, evaluate=False), known).is_constant


def test_coefficients_stay_exact() -> None:
    graph = Graph(1)
    form = from_sympy(graph, Q(1, 3) * x + Q(1, 10**40), {x: graph.variables[0]})
    assert form.terms == {0: fmpq(1, 3)}
    assert form.constant == fmpq(1, 10**40)
    # a linear node that differs only beyond float64 is another node
    near = from_sympy(graph, Q(1, 3) * x + Q(1, 10**40) + Q(1, 10**80), {x: graph.variables[0]})
    assert graph.node_of(form) != graph.node_of(near)


def test_dividing_by_zero_everywhere_is_refused() -> None:
    graph = Graph(1)
    with pytest.raises(InvalidProblem, match="divides by zero"):
        from_sympy(graph, sp.Pow(sp.Add(x, -x, evaluate=False), -1, evaluate=False), {x: graph.variables[0]})


def test_a_zero_branch_swallows_infinities_of_the_other_piece() -> None:
    root = sp.Piecewise((sp.sqrt(x), x > 0), (0, True)) * y
    program = BilevelProblem(root, y**2, [x], [y]).tape.program(BLOCKS)
    for point in ([Q(-1), Q(3)], [Q(-1000), Q(3)]):
        assert all(value == 0 for entries in array_run(program, [point]).values() for value in entries)
        assert all(ball == 0 for entries in scalar_run(program, BALLS, [point]).values() for ball in entries)


def test_programs_without_inputs_or_outputs_of_a_stage() -> None:
    graph = Graph(2)
    program = build(
        graph,
        [[0], [1]],
        {"c": ((2,), [graph.apply("pi"), graph.variables[0]]), "one": ((), [from_sympy(graph, Q(7, 2), {})])},
    )
    found = array_run(program, [[Q(3)]])
    assert found == {"c": [np.pi, 3.0], "one": [3.5]}
