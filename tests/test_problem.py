"""What a user may give, and the one clear error for everything else."""

from __future__ import annotations

from collections.abc import Callable
from decimal import Decimal
from fractions import Fraction
from pathlib import Path
from typing import Any, cast

import hypothesis.strategies as st
import numpy as np
import pytest
import sympy as sp
from helpers import calls_of
from hypothesis import given

from bilevel_sym import BilevelProblem, Box, MinimaxProblem, StochasticProblem, softplus, zoo
from bilevel_sym.errors import BilevelError, InvalidArgument, InvalidProblem, UnsafeExpression
from bilevel_sym.graph.exact import rational
from bilevel_sym.graph.expressions import symbols_in

x, x1, x2, y, y1 = sp.symbols("x x1 x2 y y1")
G = y**2 / 2 - x * y


# ---- what is accepted -------------------------------------------------------------------------------


@pytest.mark.parametrize("names", ["x1 x2", "x1, x2", ["x1", "x2"], [x1, x2], (x1, "x2")])
def test_variables_are_symbols_names_or_one_string(names: Any) -> None:
    problem = BilevelProblem(x1 * y1 + x2, y1**2 / 2 - x1 * y1, names, "y1")
    assert problem.x == (x1, x2)
    assert (problem.d, problem.n) == (2, 1)


@pytest.mark.parametrize(
    ("text", "names"),
    [
        ("x1:4", ["x1", "x2", "x3"]),
        ("x:2", ["x0", "x1"]),
        ("a, w_2:4 z", ["a", "w_2", "w_3", "z"]),
        ("x09:11", ["x9", "x10"]),
    ],
)
def test_a_range_of_names_is_written_as_in_sympy(text: str, names: list[str]) -> None:
    problem = BilevelProblem(" + ".join(names), "y**2", text, "y")
    assert [s.name for s in problem.x] == names
    assert BilevelProblem(problem.f, problem.g, [text] if "," not in text else text, "y").x == problem.x
    if not text.startswith("x09"):  # SymPy pads no zeros either, but reads them so
        assert [s.name for s in sp.symbols(text)] == names


@pytest.mark.parametrize("text", ["x3:3", "x5:2", "x1:1000000", "x:0"])
def test_a_range_without_names_or_with_too_many_is_refused(text: str) -> None:
    with pytest.raises(InvalidProblem, match=r"which means \d+ variables"):
        BilevelProblem("x1*y", "y**2", text, "y")


@pytest.mark.parametrize("text", ["x:", ":3", "x1:y", "x1:2:3", "1:3"])
def test_what_only_looks_like_a_range_is_refused_as_a_name(text: str) -> None:
    with pytest.raises(InvalidProblem):
        BilevelProblem("x1*y", "y**2", text, "y")


def test_names_mean_the_symbols_of_the_formulas() -> None:
    a, b = sp.symbols("a b", positive=True)
    problem = BilevelProblem(a * b, b**2 / 2 - a * b, "a", "b")
    assert problem.x == (a,)
    assert BilevelProblem("a*b", "b**2/2 - a*b", [a], [b]).f == a * b


def test_any_symbol_name_passes_the_sympy_door() -> None:
    odd = (*sp.symbols("pi sin lambda", seq=True), sp.Symbol("a b;c"))
    problem = BilevelProblem(sum(odd), odd[3] ** 2 + odd[0] * odd[3], odd[:3], odd[3:])
    assert problem.d == 3
    assert sp.pi not in problem.f.atoms()


def test_numbers_are_exact() -> None:
    assert BilevelProblem(0.1 * x, G, [x], [y]).f == sp.Rational(3602879701896397, 36028797018963968) * x
    assert BilevelProblem("0.1*x", G, [x], [y]).f == x / 10
    assert BilevelProblem("a*x", G, [x], [y], parameters={"a": 0.1}).f != x / 10
    assert BilevelProblem("a*x", G, [x], [y], parameters={"a": "0.1"}).f == x / 10
    assert BilevelProblem(sp.Float("0.1", 60) * x, G, [x], [y]).f.as_coeff_Mul()[0].is_Rational
    assert BilevelProblem(x**0.5, G, [x], [y]).f == sp.sqrt(x)
    assert BilevelProblem(0, G, [x], [y]).f == 0


@given(st.floats(allow_nan=False, allow_infinity=False))
def test_a_float_keeps_its_exact_binary_value(value: float) -> None:
    assert Fraction(int(rational(value).p), int(rational(value).q)) == Fraction(value)
    assert rational(sp.Float(value)) == rational(value)
    assert rational(np.float64(value)) == rational(value)


@given(st.decimals(allow_nan=False, allow_infinity=False, min_value=-(10**9), max_value=10**9, places=9))
def test_decimal_text_is_the_decimal_itself(value: Decimal) -> None:
    assert Fraction(int(rational(str(value)).p), int(rational(str(value)).q)) == Fraction(value)
    assert rational(value) == rational(str(value))


@pytest.mark.parametrize(
    "bad",
    [
        float("nan"),
        float("inf"),
        True,
        None,
        "one",
        "1/0",
        "",
        "1e99999999",
        1j,
        [1],
        sp.I,
        sp.oo,
        Decimal("1e1000000000"),
        sp.Float("1e10000"),
        "1" * 5000,
        np.nan,
        "١",
        "1_000",
    ],
)
def test_what_is_no_finite_real_number_is_refused(bad: object) -> None:
    with pytest.raises(InvalidArgument):
        rational(bad)


def test_a_symbolic_parameter_stays() -> None:
    problem = BilevelProblem("a*x + b", G, [x], [y], parameters={"a": None, "b": 3})
    assert problem.f == sp.Symbol("a") * x + 3
    assert dict(problem.parameters) == {"a": None, "b": 3}


def test_minimax_is_the_bilevel_problem_with_g_minus_f() -> None:
    problem = MinimaxProblem("x*y - y**2/2", "x", "y")
    assert problem.g == -problem.f
    assert isinstance(problem, BilevelProblem)


@pytest.mark.slow
def test_building_five_hundred_terms_takes_little_work() -> None:
    f = sp.Add(*(sp.sin(k * x) * softplus(y + k) for k in range(1, 501)))
    assert calls_of(lambda: BilevelProblem(f, f + y**2, [x], [y])) < 1_500_000


@pytest.mark.slow
def test_an_expression_nested_ten_thousand_deep_is_validated() -> None:
    f: sp.Expr = x
    for _ in range(10_000):
        f = sp.sin(f, evaluate=False)
    assert BilevelProblem(f, G, [x], [y]).d == 1


def test_a_problem_is_frozen_and_compares_by_content() -> None:
    one, two = (BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", name=name) for name in ("a", "b"))
    assert one == two
    assert hash(one) == hash(two)
    assert one != BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    assert one != "x*y"
    with pytest.raises(AttributeError, match="frozen"):
        one.f = x
    assert one.derivation is one.derivation


# ---- what is refused --------------------------------------------------------------------------------

REFUSED: dict[str, tuple[Callable[[], object], str]] = {
    "x and y overlap": (lambda: BilevelProblem(x * y, G, [x, y], [y]), "y is declared twice: in x and in y"),
    "x repeated": (lambda: BilevelProblem(x * y, G, "x x", "y"), "x is declared twice"),
    "parameter is a variable": (lambda: BilevelProblem(x, G, [x], [y], parameters={"x": 1}), "declared twice"),
    "unknown symbol in f": (lambda: BilevelProblem(x1 * y, G, [x], [y]), "f contains x1, which is not declared"),
    "unknown symbol in g": (lambda: BilevelProblem(x, G + x1, [x], [y]), "g contains x1"),
    "unknown name in text": (lambda: BilevelProblem("q*y", G, [x], [y]), "q"),
    "did you mean": (lambda: BilevelProblem(sp.Symbol("x11") * y1, y1**2, [x1], [y1]), "did you mean x1"),
    "y absent from g": (lambda: BilevelProblem(x * y, G, [x], [y, y1]), "g does not depend on y1"),
    "y absent from f in minimax": (lambda: MinimaxProblem(x**2 - y**2, [x], [y, y1]), "f does not depend on y1"),
    "empty x": (lambda: BilevelProblem(y, y**2, [], [y]), "x is empty"),
    "empty y": (lambda: BilevelProblem(x, x**2, "x", ""), "y is empty"),
    "complex": (lambda: BilevelProblem(sp.I * x, G, [x], [y]), "f contains I"),
    "complex root": (lambda: BilevelProblem(sp.sqrt(-2) * x, G, [x], [y]), "only finite real constants"),
    "infinite": (lambda: BilevelProblem(x + sp.oo, G, [x], [y]), "f contains oo"),
    "nan": (lambda: BilevelProblem(sp.nan, G, [x], [y]), "f contains nan"),
    "zoo": (lambda: BilevelProblem(x, sp.zoo * G, [x], [y]), "g contains zoo"),
    "parameter makes it infinite": (lambda: BilevelProblem("x/a", G, [x], [y], parameters={"a": 0}), "zoo"),
    "infinite parameter": (lambda: BilevelProblem("a*x", G, [x], [y], parameters={"a": float("inf")}), "parameter a must be"),
    "parameters not a mapping": (lambda: BilevelProblem(x, G, [x], [y], parameters=cast(Any, [1])), "parameters must map"),
    "box misses a variable": (lambda: BilevelProblem(x, G, [x], [y], box={"y": (0, 1)}), "the box misses x"),
    "box of a stranger": (lambda: BilevelProblem(x, G, [x], [y], box={"x": (0, 1), "z": (0, 1)}), "the box names z"),
    "box empty": (lambda: BilevelProblem(x, G, [x], [y], box={"x": (1, 0)}), "the box is empty: x runs from 1 to 0"),
    "box infinite": (lambda: BilevelProblem(x, G, [x], [y], box={"x": (0, float("inf"))}), "the upper end of x"),
    "box too short": (lambda: BilevelProblem(x1 + x2, G.subs(x, x1), [x1, x2], [y], box=Box([0], [1])), "1 intervals"),
    "box interval of three": (lambda: Box({"x": (1, 2, 3)}), "two ends for x"),
    "box of nothing": (lambda: Box({}), "no variables"),
    "box without upper": (lambda: Box([1]), "lower and its upper"),
    "box uneven": (lambda: Box([1], [2, 3]), "1 lower and 2 upper"),
    "box of text": (lambda: Box("12", "34"), "lower and its upper"),
    "box of a number": (lambda: Box(cast(Any, 1), cast(Any, 2)), "must be sequences"),
    "not an expression": (lambda: BilevelProblem([x], G, [x], [y]), "f must be a SymPy expression, text or a number, but is a list"),
    "not an expression, None": (lambda: BilevelProblem(None, G, [x], [y]), "f must be"),
    "a matrix": (lambda: BilevelProblem(sp.Matrix([x, x]), G, [x], [y]), "f must be"),
    "a relation": (lambda: BilevelProblem(x < y, G, [x], [y]), "f must be"),
    "unsupported function": (lambda: BilevelProblem(sp.gamma(x), G, [x], [y]), "the function gamma, which is not supported"),
    "undefined function": (lambda: BilevelProblem(sp.Function("h")(x), G, [x], [y]), "the function h"),
    "integral": (lambda: BilevelProblem(sp.Integral(sp.exp(x**2), x), G, [x], [y]), "Integral"),
    "unsupported constant": (lambda: BilevelProblem(sp.EulerGamma * x, G, [x], [y]), "EulerGamma"),
    "a set has no order": (lambda: BilevelProblem(x, G, cast(Any, {x}), [y]), "x is a set"),
    "box interval as text": (lambda: Box({"x": "01"}), "two ends for x"),
    "box ends as names": (lambda: Box({"x": ("a", "b")}), "the lower end of x: 'a' is not a number"),
    "parameter as a name": (lambda: BilevelProblem("a*x", G, [x], [y], parameters={"a": "x"}), "the parameter a: 'x' is not"),
    "huge power": (lambda: BilevelProblem(y ** (10**8), G, [x], [y]), "a power of 100000000"),
    "not a symbol": (lambda: BilevelProblem(x, G, [x + 1], [y]), "which is not a symbol"),
    "x is a number": (lambda: BilevelProblem(x, G, 3, [y]), "x must be symbols or names"),
    "imaginary symbol": (lambda: MinimaxProblem("a*b - b**2", [sp.Symbol("a", imaginary=True)], "b"), "not to be a real number"),
    "noncommutative symbol": (lambda: MinimaxProblem("a*b - b**2", [sp.Symbol("a", commutative=False)], "b"), "not to be a real"),
    "two symbols of one name": (lambda: BilevelProblem(x * sp.Symbol("x", real=True), G, [x], [y]), "both called x"),
    "other assumptions": (lambda: BilevelProblem(x, G, [sp.Symbol("x", real=True)], [y]), "differ in their assumptions"),
    "name is a number": (lambda: BilevelProblem(x, G, [x], [y], name=cast(Any, 3)), "name must be text"),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_bad_input_gets_one_clear_typed_error(case: str) -> None:
    build, message = REFUSED[case]
    with pytest.raises(InvalidProblem) as caught:
        build()
    assert message in str(caught.value)
    assert len(str(caught.value).splitlines()) <= 4


def test_unsupported_functions_come_with_the_list_of_those_that_are() -> None:
    with pytest.raises(InvalidProblem, match=r"supported: .*exp, log, sin.*softplus"):
        BilevelProblem(sp.gamma(x), G, [x], [y])


# ---- stochastic -------------------------------------------------------------------------------------


def _stochastic(xi_data: Any = ((1,), (3,)), zeta_data: Any = ((1, 2), (3, 4)), **more: Any) -> StochasticProblem:
    return StochasticProblem("a*x*y", "b*y**2 + c*x*y", "x", "y", "a", "b c", xi_data, zeta_data, **more)


def test_the_mean_is_the_exact_expectation_over_the_rows() -> None:
    problem = _stochastic(xi_data=[["0.1"], [Fraction(1, 3)]])
    assert problem.mean.f == sp.Rational(13, 60) * x * y
    assert problem.mean.g == 2 * y**2 + 3 * x * y
    assert (problem.f, problem.g) == (problem.mean.f, problem.mean.g)


@given(st.lists(st.tuples(st.integers(-9, 9), st.integers(1, 9)), min_size=1, max_size=5))
def test_the_mean_commutes_with_evaluation(rows: list[tuple[int, int]]) -> None:
    problem = _stochastic(zeta_data=rows)
    at = {x: sp.Rational(2, 3), y: sp.Rational(-1, 5)}
    each = [problem.G.subs(dict(zip(problem.zeta, row, strict=True))).subs(at) for row in rows]
    assert problem.mean.g.subs(at) == sp.Add(*each) / len(rows)


def test_numpy_tables_are_data() -> None:
    assert _stochastic(zeta_data=np.array([[1.0, 0.5], [2.0, 4.0]])).zeta_data[0] == (
        1,
        sp.Rational(1, 2),
    )


def test_parameters_and_box_reach_the_mean() -> None:
    problem = StochasticProblem(
        "a*x*y*m",
        "b*y**2*k",
        "x",
        "y",
        "a",
        "b",
        [[1]],
        [[2]],
        parameters={"k": 3, "m": None},
        box={"x": (0, 1)},
    )
    assert problem.mean.g == 6 * y**2
    assert sp.Symbol("m") in problem.mean.f.free_symbols
    assert problem.mean.box == problem.box


@pytest.mark.parametrize(
    ("data", "message"),
    [
        ([[1], [2]], "zeta_data row 0 has 1 numbers, but 2 are declared"),
        ([[1, 2], [3]], "zeta_data row 1 has 1 numbers"),
        ([1, 2], "must be a table"),
        (5, "must be a table"),
        (["12", "34"], "must be a table"),
        ([], "zeta_data is empty"),
        ([[1, float("nan")]], r"zeta_data\[0\]\[1\] must be a finite real number"),
    ],
)
def test_data_of_the_wrong_shape_is_refused(data: Any, message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        _stochastic(zeta_data=data)


def test_f_may_not_use_the_noise_of_g() -> None:
    with pytest.raises(InvalidProblem, match="b"):
        StochasticProblem("a*b*x*y", "b*y**2", "x", "y", "a", "b", [[1]], [[2]])


# ---- box --------------------------------------------------------------------------------------------


def test_boxes_by_position_get_their_names_from_the_problem() -> None:
    assert BilevelProblem(x, G, [x], [y], box=Box([0, -1], [1, 1])).box == Box({"x": (0, 1), "y": (-1, 1)})
    assert BilevelProblem(x, G, [x], [y], box=Box([0], [1])).box == Box({x: (0, 1)})
    named = BilevelProblem(x, G, [x], [y], box={"y": (0, 1), "x": ("1/3", 0.5)}).box
    assert named is not None
    assert named["x"] == (sp.Rational(1, 3), sp.Rational(1, 2))
    assert named.names == ("x", "y")


def test_a_degenerate_box_is_a_box() -> None:
    box = Box({"x": (1, 1)})
    assert box.midpoint == (1,)
    assert list(box) == [(1, 1)]
    with pytest.raises(KeyError):
        box["z"]


# ---- files ------------------------------------------------------------------------------------------


def test_saving_and_loading_gives_an_equal_problem(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    for problem in (
        BilevelProblem(
            "a*sin(x1)*y1 + b*x2",
            "y1**2/2 - x1*y1/3",
            "x1 x2",
            "y1",
            parameters={"a": "0.1", "b": None},
            box=Box([0, 0, 0], [1, "1/3", 0.1]),
            name='é "q"',
        ),
        MinimaxProblem("x*y - max(y, 2*y)**2 - y**2", "x", "y"),
        _stochastic(xi_data=[["1/3"], [0.1]], box={"x": (0, 1)}, name="noise"),
    ):
        problem.save(path)
        loaded = BilevelProblem.load(path)
        assert loaded == problem
        assert type(loaded) is type(problem)
        assert loaded.name == problem.name


def test_a_bad_formula_in_a_file_is_reported_with_the_line_of_the_file(tmp_path: Path) -> None:
    path = tmp_path / "bad.toml"
    path.write_text('x = ["x1"]\ny = ["y1"]\nf = "x1 + q"\ng = "y1**2"\n')
    with pytest.raises(UnsafeExpression) as caught:
        BilevelProblem.load(path)
    assert caught.value.line == 3
    assert "bad.toml" in str(caught.value)
    assert "^" in str(caught.value)


def test_assumptions_of_symbols_do_not_make_another_problem(tmp_path: Path) -> None:
    a, b = sp.symbols("a b", positive=True)
    problem = BilevelProblem(a * b, b**2 / 2 - a * b, [a], [b])
    problem.save(tmp_path / "p.toml")
    assert BilevelProblem.load(tmp_path / "p.toml") == problem


def test_deterministic_upper_levels_and_long_numbers(tmp_path: Path) -> None:
    half = StochasticProblem("y**2/2", "(y - b*x)**2/2", "x", "y", "", "b", [], [[1], [2]])
    half.save(tmp_path / "p.toml")
    assert BilevelProblem.load(tmp_path / "p.toml") == half
    with pytest.raises(InvalidProblem, match="could not be read back"):
        BilevelProblem(x * y * sp.Integer(10) ** 400, G, [x], [y]).save(tmp_path / "p.toml")
    assert BilevelProblem.load(tmp_path / "p.toml") == half


def test_what_cannot_be_written_is_not_written(tmp_path: Path) -> None:
    path = tmp_path / "p.toml"
    MinimaxProblem("x*y - y**2", "x", "y").save(path)
    before = path.read_bytes()
    odd = sp.Symbol("a b")
    with pytest.raises(InvalidProblem):
        MinimaxProblem(odd * y - y**2, [odd], [y]).save(path)
    with pytest.raises(BilevelError):
        MinimaxProblem(x * y - y**2, [x], [y]).save(tmp_path / "no" / "such" / "folder.toml")
    assert path.read_bytes() == before


# ---- printing ---------------------------------------------------------------------------------------

NAMES = {kind.__name__: kind for kind in (BilevelProblem, MinimaxProblem, StochasticProblem)}


def pasted(problem: BilevelProblem) -> BilevelProblem:
    code = repr(problem)
    assert not code.startswith("<"), code
    again = eval(code, dict(NAMES))
    assert isinstance(again, BilevelProblem)
    assert (type(again), again.name) == (type(problem), problem.name)
    return again


@pytest.mark.slow
@pytest.mark.parametrize("name", zoo.names())
def test_a_problem_of_the_zoo_prints_as_code_that_makes_it(name: str) -> None:
    problem = zoo.get(name).problem
    assert pasted(problem) == problem


def test_numbers_names_and_data_print_as_code() -> None:
    a = sp.Symbol("a", positive=True)
    odd = BilevelProblem(
        a * x + sp.sqrt(2) * sp.pi * y, G, [x], [y],
        parameters={a: "1/3"}, box={"x": (0.1, 1), "y": ("-1e-9", 7)}, name="it's \"odd\"",
    )  # fmt: skip
    assert pasted(odd) == odd
    symbolic = BilevelProblem("a*x + b*y", "y**2", "x", "y", parameters={"a": None, "b": 2})
    assert pasted(symbolic) == symbolic
    rows = StochasticProblem("a*y", "y**2 - b*c*x*y", "x", "y", "a", "b c", [["1/3"]], [[1, 2], [3, "0.5"]])
    assert pasted(rows) == rows
    quiet = StochasticProblem("y", "y**2 - b*x*y", "x", "y", "", "b", [], [[1], [2]])
    assert pasted(quiet) == quiet


def _chain(function: Callable[..., Any], times: int) -> Any:
    nested = y
    for _ in range(times):
        nested = function(nested)
    return nested


@pytest.mark.slow
@pytest.mark.parametrize(
    "build",
    [
        lambda: sp.Symbol("pi") * y**2,
        lambda: y**2 + sp.Symbol("a b;c") * y,
        lambda: sp.Mul(2, x + y**2, evaluate=False),
        lambda: _chain(lambda e: sp.sin(e, evaluate=False), 400),
        lambda: _chain(lambda e: sp.Add(sp.sin(e), sp.cos(e), evaluate=False), 60),
        lambda: sp.Add(*(sp.sin(k * y) for k in range(2000))) + y**2,
        lambda: y**2 * sp.Rational(10**400 + 1, 3),
    ],
    ids=["reserved", "no name", "not evaluated", "deep", "shared", "long", "many digits"],
)
def test_what_text_cannot_say_does_not_look_like_code(build: Callable[[], sp.Expr]) -> None:
    g = build()
    problem = BilevelProblem(x * y, g, [*(symbols_in(g) - {x, y}), x], [y], name="odd")
    shown = repr(problem)
    assert shown.startswith("<BilevelProblem: f = x*y, g = ")
    assert shown.endswith(">")
    assert len(shown) < 400
    with pytest.raises(SyntaxError):
        compile(shown, "", "eval")
