"""A changed term of the one second-order formula is seen in every arithmetic that it serves.

``display`` and ``verify.enclosures.phi_formulas`` are here too: the matrix notation takes the formula, and the graph's
own contraction, which is independent of it, is held against certificates.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache
from typing import Any

import numpy as np
import pytest
import sympy as sp
from flint import arb

from bilevel_sym import BilevelProblem, compile_kernels, derive, evaluate
from bilevel_sym.implicit import second_order as implicit
from bilevel_sym.symbolic import display, formulas
from bilevel_sym.typing import Floats
from verify.enclosures import phi_formulas
from verify.enclosures.phi_boxes import PhiBoxes
from verify.papers.huang_saddle.measures.second_writing.plain import Plain
from verify.points import balls
from verify.points.balls import exact_point
from verify.points.boxes import Boxes

F = "x1*y1 + 2*x2*y2 + x1**2/2 + y1**2/2 + y2**2 + x1*x2/3 + x1*y1*y2"
G = "y1**2 + y2**2 + y1*y2/2 + x1*y1*y2/4 - x1*y1 - x2*y2"
POINT, ORIGIN = (sp.Rational(1, 4), sp.Rational(1, 2)), (sp.S.Zero, sp.S.Zero)
KINKED = BilevelProblem("y - x", "y**2/2 - (x + abs(x)/4)*y", "x", "y")  # Phi = |x|/4: zero is between its slopes
FIRST, SECOND = ("f_x", "g_xy"), ("L_xx", "L_xy", "L_yy")


def problem() -> BilevelProblem:
    """Anew, so that nothing is kept from before a defect was planted."""
    return BilevelProblem(F, G, "x1 x2", "y1 y2")


@lru_cache
def truth(name: str, at: tuple[Any, ...] = POINT) -> Floats:
    """By the paper's terms, in exact arithmetic."""
    derivation = derive(problem())
    return np.array(getattr(derivation, name).subs(dict(zip(derivation.x, at, strict=True))), dtype=float).squeeze()


def close(name: str, found: Any, at: tuple[Any, ...] = POINT) -> bool:
    return np.allclose(np.array(found, dtype=float), truth(name, at), rtol=1e-12, atol=0)


def in_sympy() -> bool:
    derivation = derive(problem())
    form = derivation.hessian(form="lagrangian")
    return close("hess_phi", form.subs(dict(zip(derivation.x, POINT, strict=True))))


def in_256_bits() -> bool:
    with Plain.precision():
        exact = Plain(problem()).exact([arb(0.25), arb(0.5)], [arb(0)] * 2)
        return close("grad_phi", exact.grad)


def in_notation(name: str) -> bool:
    """The matrix formula with numbers for its names, of which one that stands for nothing else is looked at."""
    formula = {symbol.name: f for symbol, f in display.matrix_formulas(1, 1).items()}[name]
    ones = {symbol: sp.ones(*symbol.shape) for symbol in formula.free_symbols}
    return bool(sp.Matrix(formula.subs(ones).doit())[0] == {"grad_phi": 0, "hess_phi": 4}[name])


def not_excluded() -> bool:
    ends, y = (np.array([[-1.0]]), np.array([[1.0]])), np.zeros((1, 1))
    return not Boxes(KINKED).hull_excluded(*ends, y).any()


CHECKS: dict[str, dict[str, Callable[[], bool]]] = {
    "grad_phi": {
        "NumPy": lambda: close("grad_phi", compile_kernels(problem(), backend="tape").grad_phi([0.25, 0.5])),
        "balls": lambda: close("grad_phi", evaluate(problem(), POINT).grad_phi),
        "balls, no proof": in_256_bits,
        "intervals": not_excluded,
        "matrix notation": lambda: in_notation("grad_phi"),
    },
    "hess_phi": {
        "NumPy": lambda: close("hess_phi", compile_kernels(problem(), backend="tape").hess_phi([0.25, 0.5])),
        "balls": lambda: close("hess_phi", evaluate(problem(), POINT).hess_phi),
        "SymPy": in_sympy,
        "rational numbers": lambda: close("hess_phi", getattr(exact_point(problem(), ORIGIN), "hess", None), ORIGIN),
        "matrix notation": lambda: in_notation("hess_phi"),
    },
}


@pytest.mark.slow
def test_the_formula_is_right_in_every_arithmetic() -> None:
    assert all(check() for group in CHECKS.values() for check in group.values())


@pytest.mark.slow
@pytest.mark.parametrize("block", [*FIRST, *SECOND])
def test_a_doubled_term_is_seen_in_every_arithmetic(monkeypatch: pytest.MonkeyPatch, block: str) -> None:
    name, quantity = ("gradient_of", "grad_phi") if block in FIRST else ("hessian_of", "hess_phi")
    right = getattr(implicit, name)

    def doubled(algebra: Any, take: Callable[[str], Any], given: Any) -> Any:
        return right(algebra, lambda asked: take(asked) + take(asked) if asked == block else take(asked), given)

    for module in (implicit, formulas, display, balls):
        monkeypatch.setattr(module, name, doubled, raising=False)
    assert not [arithmetic for arithmetic, check in CHECKS[quantity].items() if check()]


@pytest.mark.slow
def test_a_dropped_term_of_the_contraction_on_the_graph_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hess Phi over boxes has a writing of its own, node by node."""
    x = np.array([[0.25, 0.5]])

    def holds() -> bool:
        hess = PhiBoxes(problem()).enclose(x, x).hess
        right = truth("hess_phi")
        return bool(((hess.lower[0] <= right) & (hess.upper[0] >= right)).all())

    assert holds()
    monkeypatch.setattr(phi_formulas._Contraction, "_bends", lambda self, node: [])
    assert not holds()
