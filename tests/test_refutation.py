"""Planted defects: each of these must be caught by the checks that the other tests rely on."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy as sp
import test_tape
from flint import arb
from test_architecture import LAYERS, violations
from test_arithmetics import check_case
from test_kernels import closed_form_agrees
from test_tape import ARITHMETICS, BLOCKS, GRAMMAR, POINTS, grammar_case

from bilevel_sym import BilevelProblem, derive, derive_generic, evaluate, formulas, implicit
from bilevel_sym.ball import Ball
from bilevel_sym.kernels import kernels as kernels_module
from bilevel_sym.tape import autodiff, balls, intervals
from bilevel_sym.tape.arrays import ArraySession
from bilevel_sym.tape.model import Model
from bilevel_sym.textbook import Equation

x1, x2, y = sp.symbols("x1 x2 y")

# A problem in which every term of the Hessian is alive and d != n.
WITNESS = BilevelProblem(x1 * y + x2 * y**2 + x1**2, (2 + x1) * y**2 / 2 + y**4 / 4 - x1 * x2 * y, [x1, x2], [y])
POINT = {x1: sp.Rational(1, 3), x2: sp.Rational(2), y: sp.Rational(1, 5)}


def two_routes_agree() -> bool:
    """The check of test_derivation: the paper's form against the Lagrangian one, in rational arithmetic."""
    derivation = derive(WITNESS, closed_form=False)
    paper, lagrangian = (derivation.hessian(form=form) for form in ("paper", "lagrangian"))
    return bool(sp.expand((paper - lagrangian).subs(POINT)) == sp.zeros(2, 2))


def test_the_two_routes_agree_when_nothing_is_broken() -> None:
    assert two_routes_agree()


def _wrong_sign(*args: Any) -> Any:
    return -RESPONSE(*args)


def _dropped_third_derivatives(block: Any, *rest: Any) -> Any:
    return SECOND_RESPONSE(lambda name: (0 if name == "g_yyy" else 1) * block(name), *rest)


def _halved_cross_term(*args: Any, **kwargs: Any) -> Any:
    terms = HESSIAN_TERMS(*args, **kwargs)
    return terms | {"cross": terms["cross"] / 2}


def _transposed_block(*args: Any, **kwargs: Any) -> Any:
    terms = HESSIAN_TERMS(*args, **kwargs)
    return terms | {"cross_transposed": terms["cross"]}


RESPONSE, SECOND_RESPONSE, HESSIAN_TERMS = (
    formulas.response,
    formulas.second_response,
    formulas.hessian_terms,
)


@pytest.mark.parametrize(
    ("name", "defect"),
    [
        ("second_response", _dropped_third_derivatives),
        ("hessian_terms", _halved_cross_term),
        ("hessian_terms", _transposed_block),
    ],
)
def test_a_planted_defect_in_the_formulas_is_seen(monkeypatch: pytest.MonkeyPatch, name: str, defect: object) -> None:
    monkeypatch.setattr(formulas, name, defect)
    assert not two_routes_agree()


def test_a_planted_sign_is_seen_by_the_known_solution(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(formulas, "response", _wrong_sign)
    derivation = derive(BilevelProblem(y, (y - x1**2) ** 2 / 2, [x1], [y]), closed_form=False)
    assert derivation.grad_phi.subs({x1: 3, y: 9}) != sp.Matrix([6])


def test_a_planted_defect_in_the_chain_rule_is_seen_by_the_textbook_equations() -> None:
    equation = derive_generic(2, 1).equations["phi-hessian"]
    assert equation.holds
    assert not Equation(equation.label, 2 * equation.lhs, equation.rhs).holds


# ---- numbers: the tape, the kernels and the intervals ----------------------------------------------------

y1, y2 = sp.symbols("y1 y2")
EVERYTHING = {"phi", "grad_phi", "hess_phi", "third_phi"}


def curved() -> tuple[BilevelProblem, sp.Expr]:
    """d = n = 2, g_xy not symmetric, third derivatives of g alive at y* = (x1 x2, x1^2); and Phi."""
    z1, z2 = y1 - x1 * x2, y2 - x1**2
    g = z1**2 + z2**2 + z1 * z2 / 2 + z1**3 + x2 * z2**3 / 2 + x1 * z1 * z2**2
    f = sp.sin(y1) + y1 * y2 * x2 + x1 * y2 + x2**3
    return BilevelProblem(f, g, [x1, x2], [y1, y2]), f.subs({y1: x1 * x2, y2: x1**2}, simultaneous=True)


@pytest.fixture
def kernels_anew() -> Iterator[None]:
    """Kernels are cached by content: forget them, before and after a planted defect."""
    kernels_module._compiled.cache_clear()
    yield
    kernels_module._compiled.cache_clear()


def agreeing() -> set[str]:
    """The check of test_kernels: which quantities are those of the closed form."""
    return closed_form_agrees(*curved(), [0.75, -0.5], "tape")


@pytest.mark.usefixtures("kernels_anew")
def test_the_kernels_agree_with_the_closed_form_when_nothing_is_broken() -> None:
    assert agreeing() == EVERYTHING


def _take_with(change: Callable[[str, Any], Any]) -> Callable[..., Any]:
    """ArraySession.take with a block changed on its way out."""

    def take(self: ArraySession, name: str) -> Any:
        return change(name, TAKE(self, name))

    return take


def _f_for_lagrangian(model: Model, name: str) -> Any:
    return BLOCK(model, name.replace("L", "f", 1) if name.startswith("L_") else name)


def _plus(session: Any, xy: Any) -> Any:
    phi, grad = GRADIENT(session, xy)
    return phi, 2 * session.take("f_x") - grad


def _plus_sine(graph: Any, op: str, z: Any, itself: Any) -> Any:
    return graph.apply("sin", z) if op == "cos" else UNARY(graph, op, z, itself)


TAKE, BLOCK, GRADIENT, UNARY = ArraySession.take, Model.block, implicit.gradient, autodiff._unary


@pytest.mark.usefixtures("kernels_anew")
@pytest.mark.parametrize(
    ("where", "name", "defect", "seen_in"),
    [
        (implicit, "gradient", _plus, {"grad_phi"}),
        (Model, "block", _f_for_lagrangian, {"hess_phi"}),
        (
            ArraySession,
            "take",
            _take_with(lambda n, b: b.swapaxes(1, 2) if n == "g_xy" else b),
            {"grad_phi", "hess_phi"},
        ),
        (ArraySession, "take", _take_with(lambda n, b: b / 2 if n == "L_xy" else b), {"hess_phi"}),
        (ArraySession, "take", _take_with(lambda n, b: 0 * b if n == "r" else b), {"third_phi"}),
        (ArraySession, "take", _take_with(lambda n, b: b / 2 if n == "L_yy" else b), {"hess_phi", "third_phi"}),
        (autodiff, "_unary", _plus_sine, {"third_phi"}),
    ],
    ids=["sign", "L becomes f", "transposed g_xy", "halved L_xy", "dropped r", "halved L_yy", "(cos)' = sin"],
)
def test_a_planted_defect_in_the_kernels_is_seen(
    monkeypatch: pytest.MonkeyPatch, where: object, name: str, defect: object, seen_in: set[str]
) -> None:
    monkeypatch.setattr(where, name, defect)
    assert seen_in <= EVERYTHING - agreeing()


def test_a_planted_derivative_rule_is_seen_in_every_arithmetic(monkeypatch: pytest.MonkeyPatch) -> None:
    _, (truth, *_) = grammar_case("cos")  # kept for other tests: made before the defect is planted
    monkeypatch.setattr(autodiff, "_unary", _plus_sine)
    program = Model(GRAMMAR["cos"], test_tape.y**2, [test_tape.x], [test_tape.y]).program(BLOCKS)
    for arithmetic in ("numpy", "digits", "balls", "intervals"):
        wrong = {what for what, holds in ARITHMETICS[arithmetic](program, POINTS[0], truth) if not holds}
        assert any(what.startswith("f_x") for what in wrong), arithmetic


def _inward(a: Any, b: Any) -> Any:
    """The product rounded to nearest, and then one unit in the last place to the inside."""
    with np.errstate(all="ignore"):
        ends = np.stack([p * q for p in a for q in b])
        return np.nextafter(ends.min(axis=0), np.inf), np.nextafter(ends.max(axis=0), -np.inf)


def containment_of_products() -> None:
    with mpmath.workdps(60), balls.precision(128):
        check_case("mul", (), 300, np.random.default_rng(0))


def test_one_unit_of_inward_rounding_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    containment_of_products()
    monkeypatch.setattr(intervals, "OPERATIONS", {**intervals.OPERATIONS, "mul": _inward})
    with pytest.raises(AssertionError, match="mul"):
        containment_of_products()


def test_a_planted_error_in_a_solution_is_seen_by_the_certificate() -> None:
    """y* that is off by one part in a million: fewer digits agree than the tests ask for."""
    problem, _ = curved()
    certificate = evaluate(problem, ["3/4", "-1/2"])
    solution = problem.kernels.y_star([0.75, -0.5])
    assert certificate.compare(y_star=solution).digits >= 12
    assert certificate.compare(y_star=solution * (1 + 1e-6)).digits < 7


def test_a_planted_radius_is_seen_by_contains() -> None:
    (ball,) = evaluate(BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y"), ["1/3"], digits=40).y_star
    with mpmath.workdps(80), balls.precision(300):
        truth = mpmath.sin(mpmath.mpf(1) / 3)
        assert ball.contains(truth)
        assert not Ball(ball.value + arb("1e-38")).contains(truth)


# ---- imports ---------------------------------------------------------------------------------------------


def fake_package(root: Path, room: str, line: str) -> Path:
    package = root / "bilevel_sym"
    package.mkdir()
    for layer in LAYERS:
        (package / f"{layer}.py").write_text("")
    (package / f"{room}.py").write_text(line)
    return root


@pytest.mark.parametrize(
    ("room", "line"),
    [
        ("errors", "from bilevel_sym.problem import BilevelProblem"),
        ("problem", "import verify"),
        ("blocks", "def f():\n    from bilevel_sym.derivation import derive"),
        ("paper", "import sympy"),
        ("parsing", "import numpy as np"),
        ("tidy", "from bilevel_sym import cli"),
    ],
)
def test_a_planted_backward_import_is_caught(tmp_path: Path, room: str, line: str) -> None:
    assert violations(fake_package(tmp_path, room, line))


def test_a_forward_import_is_not(tmp_path: Path) -> None:
    assert violations(fake_package(tmp_path, "problem", "import sympy\nfrom bilevel_sym.box import Box")) == []
