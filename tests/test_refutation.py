"""Planted defects: each of these must be caught by the checks that the other tests rely on."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import sympy as sp
from test_architecture import LAYERS, violations

from bilevel_sym import BilevelProblem, derive, derive_generic, formulas
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
