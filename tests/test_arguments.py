"""What is wrong with an argument is an InvalidArgument, the same from every door; what is wrong with a problem is not."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

import verify
from bilevel_sym import AID, BilevelProblem, Descent, Exact, evaluate, solve
from bilevel_sym.errors import BilevelError, CertificateFailure, InvalidArgument, InvalidProblem, UnsafeExpression

TOY = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
WELLS = BilevelProblem("x*y", "(y**2 - 1)**2/4", "x", "y")  # not convex in y: y = -1 and y = 1 are minima
POSITIVE = sp.Symbol("x", positive=True)
SIGNED = BilevelProblem(POSITIVE * sp.Symbol("y"), sp.Symbol("y") ** 2 / 2 - POSITIVE * sp.Symbol("y"), POSITIVE, "y")
ASKED: dict[str, Callable[[float], object]] = {
    "evaluate": lambda x: evaluate(SIGNED, [x]),
    "kernels": lambda x: SIGNED.kernels.grad_phi([x]),
    "many kernels": lambda x: SIGNED.kernels.grad_phi([[1.0], [x]]),
    "solve": lambda x: solve(SIGNED, Descent(AID(D=3, N=3, tau=0.5), eta=0.1), [x], steps=2),
    "an ensemble": lambda x: solve(SIGNED, Descent(Exact(), eta=0.1), [[1.0], [x]], steps=2),
}


@pytest.mark.parametrize("door", ASKED)
def test_a_point_against_what_is_assumed_is_refused_at_every_door(door: str) -> None:
    assert ASKED[door](1.5) is not None
    with pytest.raises(InvalidArgument, match=r"x is assumed to be positive, but is -(1.5|3/2)") as caught:
        ASKED[door](-1.5)
    assert not isinstance(caught.value, InvalidProblem)
    assert caught.value.hint == "sympy.Symbol('x', real=True), and build f and g again"


def test_kernels_of_an_equal_program_do_not_stand_in() -> None:
    """The same formulas in symbols of which nothing is assumed: their kernels take any point, and are others."""
    x, y = sp.symbols("x y")
    plain = BilevelProblem(x * y, y**2 / 2 - x * y, x, y)
    assert plain.kernels.grad_phi([-1.5]).tolist() == [-3.0]
    assert plain.kernels is BilevelProblem("y*x", "y**2/2 - x*y", "x", "y").kernels
    assert SIGNED.kernels is not plain.kernels


def test_a_symbol_that_may_be_zero_may_be_zero() -> None:
    x, y = sp.Symbol("x", nonnegative=True), sp.Symbol("y")
    problem = BilevelProblem(x * y, y**2 / 2 - x * y, x, y)
    assert solve(problem, Descent(Exact(), eta=0.1), [0.0], steps=1).x.shape[-1] == 1
    with pytest.raises(InvalidArgument, match="nonnegative"):
        solve(problem, Descent(Exact(), eta=0.1), [-1e-300], steps=1)


REFUSED: dict[str, Callable[[], object]] = {
    "an undeclared symbol": lambda: verify.bounds(sp.Symbol("x"), {"y": (0, 1)}),
    "a box upside down": lambda: verify.bounds("x", {"x": (1, 0)}),
    "no expression": lambda: verify.bounds(None, {"x": (0, 1)}),
    "a path that is none": lambda: BilevelProblem.load(5),  # type: ignore[arg-type]
    "a target that is none": lambda: TOY.save(5),  # type: ignore[arg-type]
    "no target": lambda: TOY.save(None),  # type: ignore[arg-type]
    "a start of another length": lambda: evaluate(TOY, [1], y0=[1, 2]),
    "a start in words": lambda: evaluate(TOY, [1], y0=["abc"]),
    "a start of another name": lambda: evaluate(TOY, [1], y0={"z": 1}),
    "a start that is a number": lambda: evaluate(TOY, [1], y0=1),  # type: ignore[arg-type]
    "no problem": lambda: evaluate(5, [1]),  # type: ignore[arg-type]
}


@pytest.mark.parametrize("call", REFUSED)
def test_an_argument_is_refused_as_one(call: str) -> None:
    with pytest.raises(InvalidArgument) as caught:
        REFUSED[call]()
    assert not isinstance(caught.value, InvalidProblem)


def test_text_that_is_refused_has_its_caret() -> None:
    with pytest.raises(UnsafeExpression):
        verify.bounds("x +* 2", {"x": (0, 1)})


def test_what_is_wrong_with_a_file_is_about_the_problem(tmp_path: Path) -> None:
    for content in (None, "x ="):
        path = tmp_path / "toy.toml"
        if content:
            path.write_text(content, encoding="utf-8")
        with pytest.raises(BilevelError) as caught:
            BilevelProblem.load(path)
        assert not isinstance(caught.value, InvalidArgument)


# ---- where Newton's method begins ------------------------------------------------------------------------------


@pytest.mark.parametrize("start", [[-1.25], ["-5/4"], {"y": -1.25}, np.array([-1.25]), (sp.Rational(-5, 4),)])
def test_a_certificate_begins_where_it_is_told(start: Any) -> None:
    assert float(evaluate(WELLS, [2], y0=start).phi) == -2
    assert float(evaluate(WELLS, [2], y0=[1.25]).phi) == 2


def test_the_start_changes_nothing_where_there_is_one_minimiser() -> None:
    problem = BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y")
    plain = evaluate(problem, ["1/2"], digits=40)
    for start in (-30.0, 0.0, 3.0, 300.0):
        certificate = evaluate(problem, ["1/2"], digits=40, y0=[start])
        assert str(certificate.phi)[:40] == str(plain.phi)[:40]
        assert certificate.proved


def test_a_start_from_which_nothing_is_found_is_no_certificate() -> None:
    with pytest.raises(CertificateFailure):
        evaluate(BilevelProblem("x*y", "exp(y) - x*y", "x", "y"), [-1], y0=[0])


def test_kernels_and_certificates_begin_alike() -> None:
    for start in (-1.4, 0.9):
        assert float(WELLS.kernels.y_star([2.0], y0=[start])[0]) == pytest.approx(
            float(evaluate(WELLS, [2], y0=[start]).y_star[0])
        )
