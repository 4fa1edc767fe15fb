"""Formulas by independent routes: the paper's form, Z^T H Z, and SymPy's own differentiation of Phi."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, cast

import hypothesis.strategies as st
import pytest
import sympy as sp
from helpers import EVERY_SHAPE, FEW, SHAPES, THOROUGH, Solved, at, calls_of, logistic, solved_problems
from hypothesis import given

from bilevel_sym import BilevelProblem, MinimaxProblem, derive, derive_generic, softplus, zoo
from bilevel_sym.errors import AssumptionViolated, InvalidArgument, InvalidProblem, NoClosedForm, TooLarge
from bilevel_sym.graph.expressions import substitute, symbols_in
from bilevel_sym.symbolic.blocks import BLOCK_NAMES
from bilevel_sym.symbolic.formulas import textbook_equations

x, x1, x2, y, y1, y2 = sp.symbols("x x1 x2 y y1 y2")


@pytest.mark.slow
@pytest.mark.in_ci(d=(1, 2), n=[1])
@pytest.mark.parametrize(("d", "n"), EVERY_SHAPE)
@FEW
@given(data=st.data())
def test_both_forms_of_the_hessian_and_direct_differentiation_agree_exactly(
    d: int, n: int, data: st.DataObject
) -> None:
    solved = data.draw(solved_problems(d, n))
    derivation, point = derive(solved.problem, closed_form=False), solved.solution
    gradient = sp.Matrix([solved.phi.diff(s) for s in solved.problem.x])
    hessian = sp.hessian(solved.phi, solved.problem.x)
    assert at(derivation.grad_phi, point) == at(gradient, solved.point)
    assert at(derivation.hessian(form="paper"), point) == at(hessian, solved.point)
    assert at(derivation.hessian(form="lagrangian"), point) == at(hessian, solved.point)


@pytest.mark.parametrize(("d", "n"), EVERY_SHAPE)
@FEW
@given(data=st.data())
@pytest.mark.slow
@pytest.mark.in_ci(d=[1], n=(1, 2))
def test_the_response_and_its_derivative_are_those_of_the_known_solution(d: int, n: int, data: st.DataObject) -> None:
    solved = data.draw(solved_problems(d, n))
    derivation, point = derive(solved.problem, closed_form=False), solved.solution
    first = sp.Matrix(d, n, lambda i, k: solved.y_star[k].diff(solved.problem.x[i]))
    assert at(derivation.dy_dx, point) == at(first, solved.point)
    second = sp.Array([[[e.diff(a, b) for e in solved.y_star] for b in solved.problem.x] for a in solved.problem.x])
    assert at(derivation.d2y_dx2, point) == at(second, solved.point)


@pytest.mark.slow
@pytest.mark.in_ci("1-1", "2-1", "1-2")
@pytest.mark.parametrize(("d", "n"), EVERY_SHAPE)
@FEW
@given(data=st.data())
def test_closed_and_implicit_formulas_agree_exactly(d: int, n: int, data: st.DataObject) -> None:
    solved = data.draw(solved_problems(d, n, cubic=False))
    closed, implicit = (
        derive(solved.problem, closed_form=True),
        derive(solved.problem, closed_form=False),
    )
    assert closed.y_star is not None
    assert at(sp.Matrix(closed.y_star), solved.point) == at(sp.Matrix(solved.y_star), solved.point)
    for name in ("grad_phi", "hess_phi", "dy_dx", "d2y_dx2"):
        mine, other = getattr(closed, name), getattr(implicit, name)
        assert at(mine, solved.point) == at(other, solved.solution), name
        assert set(mine.free_symbols) <= set(solved.problem.x)
    assert at(closed.hessian(form="lagrangian"), solved.point) == at(closed.hess_phi, solved.point)


@pytest.mark.slow
@FEW
@given(shape=st.sampled_from(SHAPES[:5]), closed=st.booleans(), data=st.data())
def test_each_group_of_terms_sums_to_the_whole(shape: tuple[int, int], closed: bool, data: st.DataObject) -> None:
    solved: Solved = data.draw(solved_problems(*shape, cubic=not closed))
    derivation = derive(solved.problem, closed_form=closed)
    assert list(derivation.terms["grad_phi"]) == ["direct", "implicit"]
    assert len(derivation.terms["hess_phi"]) == 5
    point = solved.solution
    for group, terms in derivation.terms.items():
        total = sum(terms.values(), sp.zeros(*getattr(derivation, group).shape))
        assert at(total, point) == at(getattr(derivation, group), point)


def test_the_curvature_term_holds_the_third_derivatives_of_g() -> None:
    problem = BilevelProblem("y", "y**2/2 + y**4/12 - x*y", "x", "y")
    derivation = derive(problem, closed_form=False)
    assert derivation.blocks["g_yyy"][0, 0, 0] == 2 * y
    assert sp.simplify(derivation.terms["hess_phi"]["curvature"][0] + 2 * y / (1 + y**2) ** 3) == 0


def test_the_printed_hessian_fails_on_its_witness_and_the_corrected_one_does_not() -> None:
    derivation = derive(BilevelProblem(x2 * y, (y - x1) ** 2 / 2, [x1, x2], [y]))
    truth = sp.hessian(x1 * x2, (x1, x2))
    assert derivation.hess_phi == truth
    printed = derivation.hessian(variant="printed")
    assert printed != truth
    assert printed != printed.T


@pytest.mark.in_ci(d=(1, 2), n=(1, 2))
@pytest.mark.parametrize(
    ("d", "n"),
    [(d, n) if d + n <= 3 else pytest.param(d, n, marks=pytest.mark.slow) for d, n in (*SHAPES, (1, 5), (5, 1))],
)
def test_the_textbook_equations_are_reproduced_for_undefined_f_and_g(d: int, n: int) -> None:
    equations = derive_generic(d, n).equations
    wanted = {"phi-grad", "eq:opt-deri1", "eq:opt-deri2", "phi-hessian"} | ({"eq:bilevel-grad"} if n <= 4 else set())
    assert set(equations) == wanted
    assert all(equation.holds for equation in equations.values())


def test_a_misprinted_textbook_equation_does_not_hold() -> None:
    generic = derive_generic(2, 1)
    printed = textbook_equations(generic.blocks, generic.x, generic.y, variant="printed")
    assert not printed["phi-hessian"].holds
    assert printed["phi-grad"].holds


def test_generic_formulas_specialise_to_a_concrete_problem() -> None:
    generic = derive_generic(1, 1)
    u, w = generic.x[0], generic.y[0]
    f, g = sp.exp(u) * w, w**2 + sp.cos(u) * w
    functions = {
        sp.Function("f", real=True): sp.Lambda((u, w), f),
        sp.Function("g", real=True): sp.Lambda((u, w), g),
    }
    inserted = generic.hess_phi[0].subs(functions).doit()
    concrete = derive(BilevelProblem(f, g, [u], [w]), closed_form=False).hess_phi[0]
    assert sp.simplify(inserted - concrete) == 0


def test_minimax_uses_the_envelope_theorem() -> None:
    derivation = derive(MinimaxProblem("x**3 + x*y - y**2/2 - y**4/4", "x", "y"), closed_form=False)
    assert derivation.grad_phi == sp.Matrix([3 * x**2 + y])
    assert sp.simplify(derivation.hess_phi[0] - (6 * x + 1 / (1 + 3 * y**2))) == 0
    assert "v" not in derivation.latex(form="blocks").replace("\\nabla", "")


def test_what_comes_back_uses_the_symbols_that_were_passed() -> None:
    for symbols in (
        sp.symbols("pi sin"),
        sp.symbols("a b", real=True),
        sp.symbols("p q", positive=True),
    ):
        a, b = symbols
        derivation = derive(BilevelProblem(a * b, b**2 / 2 - a**2 * b, [a], [b]))
        assert derivation.phi == a**3
        assert derivation.phi.free_symbols == {a}


def test_symbolic_parameters_stay_in_the_formulas() -> None:
    derivation = derive(BilevelProblem("x*y", "m*y**2/2 - x*y", "x", "y", parameters={"m": None}))
    assert derivation.phi == x**2 / sp.Symbol("m")


def test_nothing_is_computed_before_it_is_asked_for(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object, **__: object) -> None:
        raise AssertionError("too early")

    monkeypatch.setattr("bilevel_sym.symbolic.derivation.solve_lower_level", refuse)
    monkeypatch.setattr("bilevel_sym.symbolic.blocks.derivative", refuse)
    derivation = derive(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"))
    assert repr(derivation) == "<Derivation d=1, n=1>"
    assert len(derivation.auxiliaries) == 4


def test_every_block_has_its_shape_and_is_symmetric_where_it_should_be() -> None:
    derivation = derive(BilevelProblem("x1*y1*y2 + x2**2*y2", "y1**2 + y2**2*(2 + x1*x2) + y1*y2*x1", "x1 x2", "y1 y2"))
    sizes = {"x": 2, "y": 2}
    for name in BLOCK_NAMES:
        block = derivation.blocks[name]
        expected = tuple(sizes[axis] for axis in name[2:])
        assert tuple(block.shape) == (expected if len(expected) > 1 else (*expected, 1))
    assert derivation.blocks["g_yy"].is_symmetric()
    assert derivation.blocks["g_xy"] == sp.Matrix(
        2, 2, lambda i, k: derivation.g.diff(derivation.x[i], derivation.y[k])
    )
    assert list(derivation.blocks) == list(BLOCK_NAMES)
    with pytest.raises(KeyError, match="there is no block 'h_x'"):
        derivation.blocks["h_x"]
    with pytest.raises(IndexError, match="2 axes"):
        derivation.blocks["g_xy", 0]


@pytest.mark.slow
def test_the_auxiliaries_evaluate_to_the_written_out_formulas() -> None:
    problem = BilevelProblem(
        "x1*y1 + x2*y2**2 + sin(x1)",
        "y1**2 + y2**2 + y1*y2*x1/4 + y2**4/8 - x2*y1",
        "x1 x2",
        "y1 y2",
    )
    derivation = derive(problem, closed_form=False)
    point = dict(zip((*problem.x, *problem.y), map(sp.Rational, ("1/3", "1/2", "1/5", "2/7")), strict=True))
    values: dict[str, sp.Matrix] = {}
    for symbol, formula in derivation.auxiliaries.items():
        names = {str(s) for s in formula.free_symbols}
        held = dict(zip(derivation.v, values.get("v", []), strict=False))
        for name in names - set(values):
            values[name] = sp.Matrix(derivation.blocks[name]).subs(point).subs(held)
        replaced = formula.subs({s: values[str(s)] for s in formula.free_symbols}).doit()
        values[str(symbol)] = sp.Matrix(replaced)
    for name in ("dy_dx", "grad_phi", "hess_phi"):
        assert at(values[name], {}) == at(getattr(derivation, name), point), name


def test_large_implicit_problems_refuse_to_write_out_the_inverse_and_say_what_to_use() -> None:
    derivation = derive(logistic(5, 2))
    for name in ("phi", "grad_phi", "hess_phi", "dy_dx"):
        with pytest.raises(NoClosedForm, match=r"\.blocks and \.auxiliaries"):
            getattr(derivation, name)


@pytest.mark.slow
@pytest.mark.in_ci(named=[True])
@pytest.mark.parametrize("named", [True, False])
def test_a_large_logistic_problem_is_derived_with_little_work(named: bool) -> None:
    problem = logistic(20, 30, named=named)
    entry = calls_of(lambda: derive(problem).blocks["g_yy", 3, 7])
    derivation = derive(problem)
    assert derivation.blocks["g_yy", 3, 7] != 0

    def gradients() -> None:
        assert derivation.latex(form="blocks")
        assert all(derivation.blocks[name].shape == (20, 1) for name in ("f_x", "f_y", "g_y"))

    assert entry < 6_000_000
    assert calls_of(gradients) < 8_000_000


def test_closed_form_true_raises_and_says_why() -> None:
    problem = BilevelProblem("y", "y**2/2 + exp(y) - x*y", "x", "y")
    assert not derive(problem).is_closed_form
    with pytest.raises(NoClosedForm, match="not solved in closed form"):
        derive(problem, closed_form=True)


def test_a_lower_level_that_is_concave_is_refused_with_the_eigenvalue() -> None:
    with pytest.raises(AssumptionViolated, match="assu:bilevel") as caught:
        _ = derive(BilevelProblem("y", "-y**2/2 + x*y", "x", "y")).y_star
    assert caught.value.value == -1


def test_convexity_that_fails_somewhere_in_space_only_costs_the_closed_form() -> None:
    """Without a box nobody knows where the user looks; with one, the violation is inside it."""
    formulas = ("y", "y**4/4 - y**2/2 - x*y", "x", "y")
    derivation = derive(BilevelProblem(*formulas))
    assert not derivation.is_closed_form
    assert "curvature" in derivation.method
    assert derivation.dy_dx == sp.Matrix([1 / (3 * y**2 - 1)])
    with pytest.raises(AssumptionViolated):
        _ = derive(BilevelProblem(*formulas, box={"x": (0, 1), "y": ("-1/2", "1/2")})).y_star


@pytest.mark.slow
def test_a_cubic_whose_sign_changes_in_the_box_gets_a_formula_that_is_real_everywhere() -> None:
    box = {"x": (-2000, 61), "y": (-20, 20)}
    derivation = derive(BilevelProblem("x*y", "exp(2*y)/2 + (50 - x)*y + exp(-y)", "x", "y", box=box))
    assert derivation.y_star is not None
    for where in (-1000, 0, 49, 55, 60):
        value = derivation.y_star[0].subs(x, where).evalf(40)
        assert value.is_real
        assert abs(sp.exp(2 * value) + 50 - where - sp.exp(-value)).evalf(20) < sp.Float("1e-25")


def test_a_linear_lower_level_that_is_concave_in_part_of_the_box_is_refused() -> None:
    with pytest.raises(AssumptionViolated):
        _ = derive(BilevelProblem("y", "x*y**2/2 - y", "x", "y", box={"x": (-1, 1), "y": (-9, 9)})).y_star
    assert derive(BilevelProblem("y", "x*y**2/2 - y", "x", "y", box={"x": ("1/9", 1), "y": (-9, 9)})).y_star == (1 / x,)


def test_a_phi_that_is_undefined_is_a_typed_error() -> None:
    for f in (1 / (y - x), sp.log(y - x), sp.sqrt(y - 2 * x**2 - 1 - x) * 0 + sp.sqrt(-1 - (y - x) ** 2) * x):
        with pytest.raises(InvalidProblem, match="at y = y"):
            _ = derive(BilevelProblem(f, y**2 / 2 - x * y, [x], [y])).phi


def test_both_hessians_say_the_truth_about_large_n() -> None:
    names = [f"y{k}" for k in range(1, 7)]
    g = " + ".join(f"{name}**2 - x*{name}" for name in names)
    derivation = derive(BilevelProblem("x*y1", g, "x", " ".join(names)))
    assert derivation.hess_phi == sp.Matrix([1])
    with pytest.raises(TooLarge, match=r"(?m)not written out for n = 6 > 4$"):
        derivation.hessian(form="lagrangian")


@pytest.mark.long
def test_a_dense_quadratic_of_twenty_variables_is_derived() -> None:
    derivation = zoo.get("quadratic", d=20, n=20).problem.derivation
    assert calls_of(lambda: derivation.hess_phi) < 40_000_000
    assert derivation.hess_phi.shape == (20, 20)


@pytest.mark.parametrize("bad", ["x*y", None, 3])
def test_derive_wants_a_problem(bad: object) -> None:
    with pytest.raises(InvalidArgument, match="derive wants a BilevelProblem"):
        derive(bad)  # type: ignore[arg-type]


def test_wrong_options_are_refused() -> None:
    problem = BilevelProblem("y", "y**2/2 - x*y", "x", "y")
    with pytest.raises(InvalidArgument, match="closed_form='maybe'"):
        derive(problem, closed_form="maybe")  # type: ignore[arg-type]
    for odd in (0, 1, None, sp.true):
        with pytest.raises(InvalidArgument, match="closed_form"):
            derive(problem, closed_form=cast(Any, odd))
    with pytest.raises(InvalidArgument, match="no Hessian"):
        derive(problem).hessian(form="fast")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no LaTeX"):
        derive(problem).latex(form="wide")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument, match="no source"):
        derive(problem).source("fortran")
    with pytest.raises(InvalidArgument, match="d >= 1"):
        derive_generic(0, 1)


# ---- large problems, differentiated on the tape ------------------------------------------------------------


def kinked(n: int) -> BilevelProblem:
    """Large enough for the tape, with every kind of node that it writes back."""
    x, y = sp.symbols(f"x1:{n + 1}", real=True), sp.symbols(f"y1:{n + 1}", real=True)
    a = sp.Symbol("a", real=True)
    terms = [
        term
        for k in range(n)
        for row in range(12)
        for z in [sp.Rational(row + 1, 7) * y[k] - x[(k + row) % n] / (row + 2)]
        for term in (
            softplus(z), sp.tanh(z), sp.sqrt(1 + z**2), sp.exp(-(z**2)), sp.Abs(z) ** 3, sp.Max(z, -z / 2) ** 3,
            sp.Piecewise((z**3, z < 0), (a * z**4, True)), sp.log(2 + z**2), sp.atan(z) * sp.cos(z), sp.sinh(z / 3),
        )
    ]  # fmt: skip
    g = sum(yk**2 for yk in y) * 50 + sp.Add(*terms[::2])
    return BilevelProblem(sp.Add(*terms[1::2]) + a * x[0], g, x, y, parameters={"a": None})


@pytest.mark.long
@pytest.mark.parametrize(
    "build",
    [lambda: logistic(3, 130), lambda: logistic(2, 120, named=False), lambda: kinked(2)],
    ids=["named", "log", "all"],
)
def test_blocks_of_a_large_problem_are_those_of_the_calculus(build: Callable[[], BilevelProblem]) -> None:
    problem = build()
    large = derive(problem, closed_form=False)
    assert large.blocks._large
    symbols = sorted(symbols_in(problem.f) | symbols_in(problem.g) | set(large.v), key=str)
    point = {s: sp.Rational(2 * k + 1, 19) * (-1) ** k for k, s in enumerate(symbols)}
    for name in BLOCK_NAMES:
        block = large.blocks[name]
        for corner in (0, -1):  # every axis at its first entry, and at its last
            index = [corner % (len(problem.x) if axis == "x" else len(problem.y)) for axis in name[2:]]
            tape = block[(*index, 0)] if len(index) == 1 else block[tuple(index)]
            a, b = (substitute(entry, point).evalf(40) for entry in (tape, large.blocks[(name, *index)]))
            assert abs(a - b) <= sp.Float("1e-30") * (1 + abs(b)), name


@pytest.mark.long
@pytest.mark.parametrize("named", [True, False] if THOROUGH else [True])
def test_all_blocks_of_the_large_logistic_problem(named: bool) -> None:
    derivation = derive(logistic(20, 30, named=named), closed_form=False)
    blocks: dict[str, Any] = {}
    # SymPy's diff takes 149 s for the second derivatives of g alone
    assert calls_of(lambda: blocks.update({name: derivation.blocks[name] for name in derivation.blocks})) < 100_000_000
    assert blocks["g_yyy"].shape == (20, 20, 20)
    assert blocks["g_yyy"][3, 1, 2] is blocks["g_yyy"][1, 2, 3]  # symmetric entries are one object
