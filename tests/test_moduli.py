"""Even powers of moduli are powers: norms as SymPy writes them have no kink, and odd powers keep theirs."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import BilevelProblem, derive, evaluate
from bilevel_sym.arrays.algebra import apply, multiplied, power
from bilevel_sym.arrays.tensor import Leaf, Tensor

X, Y, Z = sp.symbols("x y z")
SQUARES = {
    "abs(y - x)**2": "(y - x)**2",
    "abs(x - y)**2": "(y - x)**2",
    "3*abs(2*y - x)**4 + y**2": "3*(2*y - x)**4 + y**2",
    "abs(y - x)*abs(y - x)": "(y - x)**2",
    "abs(abs(y)**2 + 1)**2": "(y**2 + 1)**2",
    "(abs(y)*exp(x))**2": "y**2*exp(x)**2",
}


@pytest.mark.parametrize("text", SQUARES)
def test_an_even_power_of_a_modulus_is_a_power(text: str) -> None:
    modulus, plain = (BilevelProblem("x*y", g, "x", "y") for g in (text, SQUARES[text]))
    assert not modulus.has_kinks
    assert sp.expand(modulus.g - plain.g) == 0
    for name in ("g_y", "g_xy", "g_yy"):
        one, other = (derive(p, closed_form=False).blocks[name] for p in (modulus, plain))
        assert (one - other).applyfunc(sp.expand).is_zero_matrix
    for point in ([0.3, 0.3], [0.5, -1.2]):  # on the edge, and beside it
        mine, theirs = (p.kernels.g_yy(*np.array(point)[:, None]) for p in (modulus, plain))
        assert mine == pytest.approx(theirs, rel=1e-14)


@pytest.mark.parametrize("text", ["abs(y)**3 + y**2", "abs(y) + y**2", "y**2 + abs(y - x)*abs(y + x)"])
def test_an_odd_power_keeps_its_kink(text: str) -> None:
    assert BilevelProblem("x*y", text, "x", "y").has_kinks


def test_the_square_of_sympys_norm() -> None:
    residual = sp.Matrix([Y - X, Z - X * Y])
    problem = BilevelProblem(X * Y, residual.norm() ** 2, [X], [Y, Z])
    assert isinstance(residual.norm().base.args[0], sp.Pow | sp.Abs)  # it is written with moduli
    assert problem.g == (X - Y) ** 2 + (X * Y - Z) ** 2
    assert derive(problem).y_star == (X, X**2)
    assert problem.kernels.grad_phi([0.3]) == pytest.approx([0.6])
    assert evaluate(problem, ["1/2"]).grad_phi[0].contains(1)  # proved, on what was a kink


def test_arrays_too() -> None:
    data: dict[str, Any] = {"A": [[1, 2], [3, 4]]}
    modulus, plain = (
        BilevelProblem("x*sum(y)", f"sum({u}) + sum(y**2)", "x", "y[n]", data=data)
        for u in ("abs(A @ y - x)**2", "(A @ y - x)**2")
    )
    assert not modulus.has_kinks
    assert derive(modulus).text() == derive(plain).text()
    assert derive(modulus).is_closed_form
    assert modulus.kernels.grad_phi([1.0]) == pytest.approx(plain.kernels.grad_phi([1.0]), rel=1e-14)


def test_factors_of_an_entry() -> None:
    y, z = (Tensor.leaf(Leaf(name, ("n",), "y")) for name in "yz")
    assert power(multiplied(apply("abs", y), z), 2) == multiplied(power(y, 2), power(z, 2))
    assert power(apply("abs", y), 3) != power(y, 3)
    assert power(apply("abs", y), -2) == power(y, -2)
