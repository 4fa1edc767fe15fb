"""The text door: what it accepts, what it refuses and how, and that hostile text does nothing."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import sympy as sp
from hostile import EXPRESSIONS, FILES, SYMBOLS, VALID_EXPRESSIONS, VALID_FILES
from hypothesis import assume, given

from bilevel_sym.errors import InvalidProblem, UnsafeExpression
from bilevel_sym.graph.expressions import postorder
from bilevel_sym.graph.operations import IN_TEXT
from bilevel_sym.graph.operations.logistic import sigmoid, softplus
from bilevel_sym.problem.parsing import FUNCTIONS, check_name, grammar, parse_expression
from bilevel_sym.problem.parsing.guarded import BUDGET
from bilevel_sym.problem.text import to_text

ROOT = Path(__file__).resolve().parent.parent
x, y, z, x1, y1, gamma = SYMBOLS.values()
HALF = sp.Rational(1, 2)


def parse(text: str, **more: sp.Rational) -> sp.Expr:
    return parse_expression(text, {**SYMBOLS, **more})


def refusal(text: str) -> UnsafeExpression:
    with pytest.raises(UnsafeExpression) as caught:
        parse(text)
    return caught.value


# ---- what is accepted -------------------------------------------------------------------------------

ACCEPTED = {
    "0.1": sp.Rational(1, 10),
    "1e-3*x": x / 1000,
    ".5 + 2.": sp.Rational(5, 2),
    "1.5E2": sp.Integer(150),
    "-x**2": -(x**2),
    "2**-1": HALF,
    "2**3**2": sp.Integer(512),
    "-2**2": sp.Integer(-4),
    "- - +x": x,
    "x - y - z": x - y - z,
    "x/y/z": x / y / z,
    "2*(x + y)*z": (2 * x + 2 * y) * z,
    "z*2*(x + y)": sp.Mul(2, z, x + y),
    "-(x + y)*z": (-x - y) * z,
    "sqrt(x)**2": x,
    "exp(x)*log(y)": sp.exp(x) * sp.log(y),
    "sin(x) + cos(x) + tan(x)": sp.sin(x) + sp.cos(x) + sp.tan(x),
    "sinh(x) + cosh(x) + tanh(x)": sp.sinh(x) + sp.cosh(x) + sp.tanh(x),
    "sin(-x - y) + cos(1 - x)": sp.sin(-x - y) + sp.cos(1 - x),
    "atan(x)": sp.atan(x),
    "erf(-x) + asinh(2 - x)": sp.erf(-x) + sp.asinh(2 - x),
    "sinh(asinh(x)) + asinh(0) + erf(0)": x,
    "abs(1 - x)": sp.Abs(1 - x),
    "min(x, y, 2)": sp.Min(x, y, 2),
    "max(0, 1 - x*y)": sp.Max(0, 1 - x * y),
    "max(x, x + 1)": x + 1,
    "softplus(x)*sigmoid(y)": softplus(x) * sigmoid(y),
    "softplus(0)": sp.log(2),
    "sin(pi*x) + E**2": sp.sin(sp.pi * x) + sp.exp(2),
    "sin(pi/6)": HALF,
    "sin(2*pi*(x + y))": sp.sin(2 * sp.pi * (x + y)),
    "Piecewise((x, x < 1), (y, True))": sp.Piecewise((x, x < 1), (y, True)),
    "Piecewise((x, 2*x >= y), (1, x**2 > 4), (0, True))": sp.Piecewise((x, 2 * x >= y), (1, x**2 > 4), (0, True)),
    "Piecewise((x, 1 < 2))": x,
    "x\n  + y\r\n": x + y,
    "x - x + pi": sp.pi,
    "exp(-5000*x)": sp.exp(-5000 * x),
}


@pytest.mark.parametrize("text", ACCEPTED)
def test_accepted(text: str) -> None:
    assert parse(text) == ACCEPTED[text]


def test_a_constant_that_loses_its_variable_is_simplified_as_sympy_does() -> None:
    names = {name: SYMBOLS[name] for name in ("x", "y")}
    text = "sin(x - y*pi/y/2e-4)"
    assert parse_expression(text, names) == sp.sympify(text, locals=names, rational=True) == sp.sin(SYMBOLS["x"])


def test_the_given_symbols_are_used() -> None:
    positive = sp.Symbol("other name", positive=True)
    assert parse_expression("sqrt(a**2)", {"a": positive}) == positive


def test_a_name_may_mean_a_number() -> None:
    assert parse("a*x + 1/a", a=sp.Rational(1, 3)) == x / 3 + 3
    with pytest.raises(UnsafeExpression, match="too large"):
        parse("a**a**a*x", a=sp.Integer(9))
    with pytest.raises(UnsafeExpression, match="division by zero"):
        parse("x/a", a=sp.Integer(0))


def test_functions_are_frozen_and_complete() -> None:
    names = "exp log sqrt sin cos tan tanh sinh cosh atan asinh erf abs min max softplus sigmoid Piecewise"
    assert set(FUNCTIONS) == set(names.split())
    with pytest.raises(TypeError):
        FUNCTIONS["sec"] = sp.sec  # type: ignore[index]


def test_symbols_of_every_kind_give_what_sympy_gives() -> None:
    for kind in ({}, {"real": True}, {"positive": True}, {"integer": True}, {"negative": True}):
        a, b = (sp.Symbol(name, **kind) for name in "ab")
        names = {"a": a, "b": b}
        assert parse_expression("abs(a - 2*b)", names) == sp.Abs(a - 2 * b)
        assert parse_expression("max(a, 0)", names) == sp.Max(a, 0)
        assert parse_expression("sin(pi*a)", names) == sp.sin(sp.pi * a)
        assert parse_expression("sqrt(a**2*b)", names) == sp.sqrt(a**2 * b)
        assert parse_expression("Piecewise((a, a < 0), (b, True))", names) == sp.Piecewise((a, a < 0), (b, True))


# ---- what is refused, and how -----------------------------------------------------------------------

# text: (part of the message, line, column, part of the hint)
REFUSED = {
    "x^2": ("^ is not an operator", 1, 2, "**"),
    "x // y": ("floor division", 1, 3, "/"),
    "x***y": ("*** is not an operator", 1, 2, "**"),
    "x == y": ("equality", 1, 3, "<"),
    "x = y": ("assignment", 1, 3, "="),
    "x := y": ("assignment", 1, 3, "value"),
    "x; y": ("one expression", 1, 2, ";"),
    "x.subs": ("attributes", 1, 2, "0.5"),
    "x[0]": ("subscripts", 1, 2, "x1"),
    "'x'": ("quotes", 1, 1, "without"),
    "x # y": ("comments", 1, 3, "#"),
    "x & y": ("logic", 1, 3, "Piecewise"),
    "x % y": ("% is not", 1, 3, "+ - * /"),
    "$x": ("$ is not accepted", 1, 1, "+ - * /"),
    "2x": ("spoilt", 1, 1, "2*x"),
    ".5x": ("spoilt", 1, 1, "2*x"),
    "1_000": ("spoilt", 1, 1, "1000000"),
    "007": ("leading zeros", 1, 1, "7"),
    "x y": ("y stands where an operator should", 1, 3, "multiply"),
    "x +\n  * y": ("* stands where a number", 2, 3, ""),
    "x + \u0445": ("U+0445 (cyrillic small letter ha)", 1, 5, "ASCII"),
    "x + \0": ("U+0000 (a control character)", 1, 5, "ASCII"),
    "x +": ("the text ends where", 1, 4, ""),
    "": ("empty", 1, 1, ""),
    "(x": ("ends where ) to close the parenthesis", 1, 3, ""),
    "sin(x": ("ends where ) to close sin(", 1, 6, ""),
    "x)": (") stands where an operator should", 1, 2, ""),
    "x < y": ("< stands only in the condition", 1, 3, "Piecewise"),
    "x + True": ("True stands only", 1, 5, ""),
    "x and y": ("the word and is not accepted", 1, 3, "Piecewise"),
    "lambda(x)": ("the word lambda is not accepted", 1, 1, "Piecewise"),
    "x + gama": ("unknown name gama", 1, 5, "did you mean gamma?"),
    "x + Pi": ("unknown name Pi", 1, 5, "did you mean pi?"),
    "x + q": ("unknown name q", 1, 5, "the declared names are x, y"),
    "ln(x)": ("unknown function ln", 1, 1, "did you mean log?"),
    "Abs(x)": ("unknown function Abs", 1, 1, "did you mean abs?"),
    "foo(x)": ("unknown function foo", 1, 1, "the functions are exp log"),
    "x(2)": ("x is not a function", 1, 1, "x*(...)"),
    "pi(2)": ("pi is not a function", 1, 1, "pi*(...)"),
    "sin + 1": ("sin is a function and needs its argument", 1, 1, "sin(...)"),
    "sin(x, y)": ("sin takes one argument, and got 2", 1, 1, ""),
    "min(x)": ("min takes 2 to 50 arguments, and got 1", 1, 1, ""),
    "Piecewise(x, y)": ("where ( to open a piece", 1, 11, ""),
    "Piecewise((x, y), (1, True))": ("where one of < <= > >=", 1, 16, ""),
    "Piecewise((x, 0 < x < 1), (1, True))": ("chained", 1, 21, "nest"),
    "Piecewise((x, Piecewise((1, y < 0), (2, True)) < 1), (1, True))": ("must not contain", 1, 48, "cases"),
    "x/0": ("division by zero", 1, 2, ""),
    "x/(y - y)": ("division by zero", 1, 2, ""),
    "log(-1)": ("logarithm of zero or a negative", 1, 1, "real"),
    "sqrt(-2)": ("complex", 1, 1, "real"),
    "(-2)**x": ("must be positive", 1, 5, "real"),
    "9**9**9": ("this constant is too large", 1, 2, "1e+300"),
    "exp(1000)": ("too large", 1, 1, ""),
    "exp(-1000)": ("too small", 1, 1, ""),
    "sin(1e10)": ("angle", 1, 1, "2*pi"),
    "tan(pi/2)": ("not a finite real number", 1, 1, ""),
    "1e1000000000": ("too large", 1, 1, "digits"),
    "10**299*10*x": ("too large or too long", 1, 8, "300 digits"),
    "x**1001": ("exponent is too large", 1, 2, "1000"),
    "2**(1001*x)": ("exponent is too large", 1, 2, "1000"),
    "(x**100)**100": ("exponent is too large", 1, 9, "1000"),
    "x**999*x**999": ("exponent is too large", 1, 1, "1000"),
    "(7*x)**900": ("power is too large", 1, 6, "300 digits"),
    "exp(10**9*log(2*x))": ("logarithm's argument", 1, 1, ""),
    "pi - 3.14159265358979323846": ("cancel", 1, 1, "one number"),
    "x - x + sqrt(2)": ("leave a constant", 1, 1, "alone"),
    "max(sqrt(2)*sqrt(3), 2.4494897427831781)": ("too close to be compared", 1, 1, "numbers"),
    "tan(x + pi/2)": ("SymPy simplifies this to cot", 1, 1, "real"),
    "sqrt(-x**2)*abs(exp(x))": ("SymPy simplifies this to re", 1, 1, "real"),
    "abs(" + "+".join(f"sqrt({p})*x" for p in (2, 3, 5, 7, 11)) + ")": ("too many roots", 1, 1, "decimals"),
    "abs(" + "x + 1/(" * 30 + "y" + ")" * 31: ("nested too deeply", 1, 1, "less"),
    "(" * 101 + "x" + ")" * 101: ("nested deeper than 100 levels", 1, 101, "SymPy"),
    "+".join(["x"] * 20_001): ("more than 40000", 1, 40_001, "SymPy"),
    "x" * 200_001: ("200001 characters", 1, 1, "SymPy"),
    "+".join(f"abs(x**2 - {k}*y)" for k in range(999)): ("too expensive", 1, None, "shorten"),
    "sqrt(x*cosh((x + y)**99))": ("hyperbolic", 1, 1, "real"),
}


@pytest.mark.parametrize("text", REFUSED, ids=[text[:40] for text in REFUSED])
def test_refused(text: str) -> None:
    message, line, column, hint = REFUSED[text]
    error = refusal(text)
    assert message in error.what
    assert error.line == line
    assert column is None or error.column == column
    assert hint in (error.hint or "")
    assert len(str(error).splitlines()) <= 4


def test_the_caret_stands_under_the_place() -> None:
    with pytest.raises(UnsafeExpression) as caught:
        parse_expression("x +\ny*q", {"x": x, "y": y}, source="f")
    first, shown, caret, hint = str(caught.value).splitlines()
    assert first == "unknown name q (f, line 2, column 3)"
    assert shown[caret.index("^")] == "q"
    assert hint == "try: the declared names are x, y; constants go into parameters"


def test_what_is_not_text_is_refused() -> None:
    for thing in (None, 3, b"x", ["x"]):
        with pytest.raises(InvalidProblem, match="must be text"):
            parse_expression(thing, {})  # type: ignore[arg-type]


def test_sympys_own_endless_recursion_is_a_typed_error() -> None:
    assert "SymPy cannot build this" in refusal(EXPRESSIONS["SymPy runs in a circle"]).what


def test_a_recursion_error_anywhere_is_a_typed_error(monkeypatch: pytest.MonkeyPatch) -> None:
    def fall(_: object) -> None:
        raise RecursionError

    monkeypatch.setattr(grammar._Parser, "_sum", fall)
    assert "nested too deeply" in refusal("x").what


@pytest.mark.parametrize("name", ["x", "x1", "alpha_beta", "X", "a" * 64])
def test_names(name: str) -> None:
    assert check_name(name) == name


@pytest.mark.parametrize(
    "name",
    ["", "1x", "_x", "x y", "x.y", "x\n", "\u0445", "\u00e9", "x" * 65, "pi", "E", "sin", "Piecewise", "lambda", "True",
     "None", "__class__", "x\0", None, 3, x],
)  # fmt: skip
def test_names_that_are_refused(name: object) -> None:
    with pytest.raises(InvalidProblem, match="parameter: "):
        check_name(name, "parameter")
    if isinstance(name, str):
        with pytest.raises(InvalidProblem):
            parse_expression("1", {name: x})


# ---- hostile input ----------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def report() -> dict[str, Any]:
    """What ``hostile.py`` saw, in a process of its own."""
    script = Path(__file__).with_name("hostile.py")
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    command = [sys.executable, "-W", "error", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=True, env=environment, timeout=300)
    found: dict[str, Any] = json.loads(done.stdout)
    return found


@pytest.mark.slow
def test_hostile_input_ends_in_a_typed_error_or_a_valid_result(report: dict[str, Any]) -> None:
    assert len(EXPRESSIONS) + len(FILES) >= 120
    for seen, inputs, valid in (
        (report["expressions"], EXPRESSIONS, VALID_EXPRESSIONS),
        (report["files"], FILES, VALID_FILES),
    ):
        accepted = {name for name, (outcome, _, _) in seen.items() if outcome == "accepted"}
        assert set(seen) == set(inputs)
        assert accepted == valid
        assert len(valid) <= len(inputs) / 10
    assert {outcome for outcome, _, _ in report["expressions"].values()} == {"accepted", "UnsafeExpression"}
    assert {outcome for outcome, _, _ in report["files"].values()} == {"accepted", "InvalidProblem"}


@pytest.mark.slow
def test_hostile_input_ends_soon_and_in_little_memory(report: dict[str, Any]) -> None:
    slow = {name: seconds for kind in ("expressions", "files") for name, (_, seconds, _) in report[kind].items()}
    # a tenth of a second each; what hangs takes for ever, and a busy machine may take ten times as long
    assert {name: seconds for name, seconds in slow.items() if seconds > 10} == {}
    assert report["megabytes"] < 500


@pytest.mark.slow
def test_hostile_input_executes_opens_and_imports_nothing(report: dict[str, Any]) -> None:
    harmless = {"builtins.id", "array.__new__"}
    for name, (_, _, events) in report["expressions"].items():
        assert set(events) <= harmless, name
    for name, (_, _, events) in report["files"].items():
        assert len(events) == 1, name
        assert "problem.toml" in events[0]
    assert not report["canary"]


@pytest.mark.slow
def test_the_watch_hears_what_is_executed(report: dict[str, Any]) -> None:
    assert {"compile", "exec"} <= set(report["planted"][2])


def test_the_budget_is_what_stops_slow_expressions(monkeypatch: pytest.MonkeyPatch) -> None:
    text = "+".join(f"abs(x**2 - {k}*y)" for k in range(30))
    assert parse(text)
    monkeypatch.setattr("bilevel_sym.problem.parsing.guarded.BUDGET", BUDGET / 100)
    assert "too expensive" in refusal(text).what


# ---- there and back ---------------------------------------------------------------------------------


def rebuilt(expression: sp.Expr) -> sp.Expr:
    """The expression evaluated once more: SymPy does not always leave its own results alone."""
    new: dict[int, sp.Basic] = {}
    for node in postorder(expression):
        new[id(node)] = node.func(*(new[id(child)] for child in node.args)) if node.args else node
    return new[id(expression)]


NUMBERS = st.builds(sp.Rational, st.integers(-20, 20), st.integers(1, 9))
LEAVES = st.one_of(st.sampled_from([x, y, z, x1, gamma]), NUMBERS, st.sampled_from([sp.pi, sp.E]))
SMOOTH = tuple(record.sympy for record in IN_TEXT.values() if record.is_function and not record.is_partial)


def bigger(parts: st.SearchStrategy[sp.Expr]) -> st.SearchStrategy[sp.Expr]:
    pairs = st.tuples(parts, parts)
    return st.one_of(
        st.lists(parts, min_size=2, max_size=4).map(lambda terms: sp.Add(*terms)),
        st.lists(parts, min_size=2, max_size=4).map(lambda factors: sp.Mul(*factors)),
        st.tuples(parts, st.sampled_from([-2, -1, 2, 3, HALF, -HALF])).map(lambda pair: (1 + x * pair[0]) ** pair[1]),
        st.tuples(st.sampled_from(SMOOTH), parts).map(lambda pair: pair[0](x * pair[1])),
        parts.map(lambda part: sp.log(2 + y * part)),
        parts.map(lambda part: sp.Abs(y + part)),
        pairs.map(lambda pair: sp.Max(x + pair[0], y)),
        pairs.map(lambda pair: sp.Min(x * pair[0], y, 3)),
        pairs.map(lambda pair: sp.Piecewise((pair[0], x < y), (pair[1], x * y >= 2), (x, True))),
    )


@given(st.recursive(LEAVES, bigger, max_leaves=6))
def test_text_reads_back_as_the_expression(expression: sp.Expr) -> None:
    assume(not expression.has(sp.nan, sp.zoo, sp.oo, sp.I, sp.re, sp.cot))
    assume(rebuilt(expression) == expression)
    text = to_text(expression)
    try:
        assert parse(text) == expression
    except UnsafeExpression as error:  # a matter of size or constants, never of grammar
        assume("where" not in error.what)
        assume("unknown" not in error.what)
        assume(False)


TRAPS = [
    sp.Mul(2, z, x + y),
    sp.Mul(2, x + y, x - y),
    sp.Mul(-2, x + y, x - y),
    sp.Mul(-1, x + y, x - y),
    1 - (x + y) * (x - y),
    sp.Mul(sp.Rational(2, 3), x + y, 1 / z),
    sp.Mul(sp.Rational(1, 3), 1 / (x + y)),
    x / (y * (x + y)) / 3,
    -((x - 1) ** 2),
    -((x - 1) ** 2) * y,
    (-x) ** y,
    (x**y) ** z,
    x ** (y**z),
    2 ** (-x),
    sp.Rational(2, 3) ** x,
    x**-y,
    x ** sp.Rational(-3, 2),
    1 / sp.sqrt(x),
    sp.sqrt(2) / 2,
    -HALF,
    HALF + x,
    sp.exp(-x) / 2,
    sp.exp(x + 1),
    sp.E * x,
    sp.Piecewise((x, (x < 1) | (y < 2)), (y, True)),
    sp.Piecewise((x, x > y)),
    sp.Abs(x) * sp.Min(x, y) - sp.Max(x, y),
]


@pytest.mark.parametrize("expression", TRAPS, ids=str)
def test_traps_of_printing(expression: sp.Expr) -> None:
    assert parse(to_text(expression)) == expression


def test_a_naive_printer_falls_into_the_traps() -> None:
    fallen = [e for e in TRAPS if not e.has(sp.Or, sp.Abs) and parse(str(e)) != e]
    assert len(fallen) >= 3


def test_floats_are_written_exactly() -> None:
    assert to_text(sp.Float(0.5) * x) == "x/2"


@pytest.mark.parametrize(
    ("expression", "message"),
    [
        (sp.Piecewise((x, (x < 1) & (y < 2)), (y, True)), "nest one Piecewise"),
        (sp.Piecewise((x, sp.Eq(x, 1)), (y, True)), "Equality"),
        (sp.Symbol("a b") + 1, "rename it"),
        (sp.Symbol("sin") + 1, "rename it"),
        (sp.gamma(x), "supported: "),
        (sp.cot(x), "supported: "),
        (sp.Integer(10) ** 400 * x, "300 digits"),
        (sp.Matrix([x]), "not a"),
        (x < 1, "not a"),
    ],
)
def test_what_cannot_be_written(expression: sp.Expr, message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        to_text(expression)


def test_what_is_too_deep_to_be_written() -> None:
    deep = x
    for _ in range(2000):
        deep = sp.sin(deep, evaluate=False)
    with pytest.raises(InvalidProblem, match="too deeply"):
        to_text(deep)
