"""Certificates: digits that are asked for are delivered and right; what is not proved is refused."""

from __future__ import annotations

import math
import pickle
import threading
from concurrent.futures import ThreadPoolExecutor
from decimal import ROUND_HALF_UP, Context, Decimal
from fractions import Fraction
from functools import lru_cache
from typing import Any

import flint
import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import arb, arb_mat
from helpers import calls_of
from hypothesis import given
from hypothesis import strategies as st
from test_lower_level import points_in_box

from bilevel_sym import BilevelProblem, compile_kernels, evaluate, zoo
from bilevel_sym.arithmetic.balls import Ball, precision
from bilevel_sym.certify import krawczyk
from bilevel_sym.certify.certificate import PointCertificate
from bilevel_sym.errors import CertificateFailure, InvalidArgument, InvalidProblem
from bilevel_sym.graph.exact import rational
from bilevel_sym.graph.precision import mpmath_precision
from bilevel_sym.symbolic.blocks import derivative

x, y = sp.symbols("x y", real=True)
Q = sp.Rational
CLOSED = [name for name in zoo.names() if zoo.get(name).phi is not None]
IN_CI = [name for name in CLOSED if name not in ("tube", "tube_coupled", "ridge", "stochastic_rows")]
MANY = 1100


# ---- exact answers ---------------------------------------------------------------------------------------


def rational_point(problem: BilevelProblem) -> list[sp.Rational]:
    """A point inside the box that no float holds."""
    assert problem.box is not None
    ends = dict(problem.box.items())
    return [low + (high - low) * Q(k + 4, 3 * k + 11) for k, (low, high) in enumerate(ends[s.name] for s in problem.x)]


@lru_cache(None)
def answers(name: str) -> dict[str, list[mpmath.mpf]]:
    """y*, Phi, grad Phi and Hess Phi at the rational point to MANY digits, by differentiating the closed form."""
    example = zoo.get(name)
    phi, y_star, variables = example.phi, example.y_star, example.problem.x
    assert phi is not None
    assert y_star is not None
    grad = [derivative(phi, s) for s in variables]
    groups = [list(y_star), [phi], grad, [derivative(entry, s) for entry in grad for s in variables]]
    function = sp.lambdify(list(variables), groups, "mpmath", cse=True)
    with mpmath.workdps(MANY + 200):
        values = function(*(mpmath.mpf(int(q.p)) / int(q.q) for q in rational_point(example.problem)))
        exact = [
            [mpmath.mpf(v) if abs(v) > mpmath.mpf(10) ** -MANY else mpmath.mpf(0) for v in group] for group in values
        ]
    return dict(zip(("y_star", "phi", "grad_phi", "hess_phi"), exact, strict=True))


def flat(certificate: PointCertificate) -> dict[str, list[Ball]]:
    return {
        "y_star": list(certificate.y_star), "phi": [certificate.phi], "grad_phi": list(certificate.grad_phi),
        "hess_phi": [ball for row in certificate.hess_phi for ball in row],
    }  # fmt: skip


def holds(ball: Ball, truth: mpmath.mpf) -> bool:
    """Whether the true value is inside, give or take the last of its digits."""
    with mpmath.workdps(2 * MANY):
        return bool(abs(ball.mid - truth) <= ball.rad + max(abs(truth), 1) * mpmath.mpf(10) ** (5 - MANY))


@pytest.mark.slow
@pytest.mark.in_ci(name=IN_CI)
@pytest.mark.parametrize("digits", [30, *(pytest.param(k, marks=pytest.mark.slow) for k in (10, 100, 1000))])
@pytest.mark.parametrize("name", CLOSED)
def test_asked_digits_are_delivered_and_contain_the_closed_form(name: str, digits: int) -> None:
    problem = zoo.get(name).problem
    point = rational_point(problem)
    certificate = evaluate(problem, point, digits=digits)
    assert certificate.proved
    assert certificate.x == tuple(point)
    for key, entries in answers(name).items():
        for ball, value in zip(flat(certificate)[key], entries, strict=True):
            assert holds(ball, value), (key, ball, value)
            scale = abs(value) or 1
            assert ball.rad <= scale * mpmath.mpf(10) ** -digits, key
            assert ball.digits >= digits


def significant(shown: str) -> int:
    mantissa = shown.lstrip("-").split("e")[0].replace(".", "").lstrip("0")
    return len(mantissa)


def correctly_rounded(value: mpmath.mpf, count: int) -> Decimal:
    with mpmath.workdps(MANY):
        return Context(prec=count, rounding=ROUND_HALF_UP).create_decimal(mpmath.nstr(value, MANY))


@pytest.mark.slow
@pytest.mark.in_ci(name=IN_CI)
@pytest.mark.parametrize("digits", [10, 50, 300])
@pytest.mark.parametrize("name", CLOSED)
def test_every_printed_digit_is_right(name: str, digits: int) -> None:
    problem = zoo.get(name).problem
    point = rational_point(problem)
    certificate = evaluate(problem, point, digits=digits)
    for key, entries in answers(name).items():
        for ball, value in zip(flat(certificate)[key], entries, strict=True):
            shown = str(ball)
            if value == 0:
                assert shown.split(" ")[0] == "0"
                continue
            assert Decimal(shown) == correctly_rounded(value, significant(shown)), key
            # an exact ball may stop where the number does; any other shows what was asked for
            assert significant(shown) >= digits or Decimal(shown) == correctly_rounded(value, MANY), (key, shown)


def test_an_exact_value_is_printed_to_its_last_digit() -> None:
    # one bit of mantissa is not one digit
    problem = BilevelProblem("x/1024 + y", "y**2/2 - x*y", "x", "y")
    certificate = evaluate(problem, ["1/1024"], digits=30)
    assert Decimal(str(certificate.y_star[0])) == Decimal("0.0009765625")
    assert Decimal(str(certificate.grad_phi[0])) == Decimal("1.0009765625")


def test_str_tells_everything_and_format_limits() -> None:
    certificate = evaluate(BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y"), ["1/3"], digits=50)
    text = str(certificate)
    for part in ("1/3", "proved", "y*", "Phi", "dPhi/dx", "d2Phi/dxdx", f"{math.sin(1 / 3):.12}"):
        assert part in text
    assert f"{certificate.y_star[0]:.5}" == "0.32719"
    assert repr(certificate.phi).startswith("Ball(0.109")
    assert float(certificate.phi) == pytest.approx(math.sin(1 / 3) / 3, rel=1e-15)


def test_a_value_that_is_exactly_zero() -> None:
    certificate = evaluate(BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y"), [0], digits=25)
    assert (str(certificate.phi), str(certificate.y_star[0])) == ("0", "0")
    assert certificate.phi.contains(0)
    # zero by cancellation only: cos^2 + sin^2 - 1
    cancelling = evaluate(
        BilevelProblem("cos(y)**2 + sin(y)**2 - 1", "exp(y) + y**2 - x*y", "x", "y"), ["1/3"], digits=25
    )
    assert cancelling.phi.contains(0)
    assert cancelling.phi.rad <= mpmath.mpf(10) ** -25
    assert str(cancelling.phi).startswith("0 +/-")


@pytest.mark.parametrize("digits", [10, 30, 100, 1000])
def test_cancellation_is_met_with_more_bits(digits: int) -> None:
    # Phi is about 1e-70 as a difference of numbers of order one; below 1e-2*digits zero is as good an answer
    problem = BilevelProblem("exp(y) - exp(x)", "(y - x - 10**(-70))**2/2", "x", "y")
    ball = evaluate(problem, [1], digits=digits).phi
    with mpmath.workdps(6000):
        truth = mpmath.exp(1 + mpmath.mpf(10) ** -70) - mpmath.e
        allowed = mpmath.mpf(10) ** (-2 * digits) if ball.contains(0) else abs(truth) * mpmath.mpf(10) ** -digits
        assert abs(ball.mid - truth) <= ball.rad <= allowed


def test_the_two_routes_of_the_implicit_problem() -> None:
    """No closed form: y* against mpmath's own root finder, derivatives against the formulas by hand."""
    problem = BilevelProblem("x*y**2", "exp(y) + y**2/2 - x*y", "x", "y")
    certificate = evaluate(problem, ["1/7"], digits=80)
    with mpmath.workdps(100):
        at = mpmath.mpf(1) / 7
        root = mpmath.findroot(lambda t: mpmath.exp(t) + t - at, -0.6)
        slope = 1 / (1 + mpmath.exp(root))
        bend = -mpmath.exp(root) * slope**3
        grad = root**2 + 2 * at * root * slope
        hess = 4 * root * slope + 2 * at * slope**2 + 2 * at * root * bend
        for ball, truth in (
            (certificate.y_star[0], root), (certificate.phi, at * root**2),
            (certificate.grad_phi[0], grad), (certificate.hess_phi[0][0], hess),
        ):  # fmt: skip
            assert abs(ball.mid - truth) <= ball.rad + mpmath.mpf(10) ** -95


@given(st.fractions(-2, 2, max_denominator=1000), st.integers(1, 60))
def test_random_points_against_the_exact_rational_answer(at: Fraction, digits: int) -> None:
    certificate = evaluate(BilevelProblem("x*y + y**3", "(1 + x**2)*y**2/2 - x*y", "x", "y"), [at], digits=digits)
    root = at / (1 + at**2)
    assert certificate.y_star[0].contains(root)
    assert certificate.phi.contains(at * root + root**3)
    slope = (1 - at**2) / (1 + at**2) ** 2
    assert certificate.grad_phi[0].contains(root + (at + 3 * root**2) * slope)


# ---- what x may be ---------------------------------------------------------------------------------------

PLANE = BilevelProblem("x1*y + x2", "y**2/2 - x2*y", "x1 x2", "y")


@pytest.mark.parametrize(
    "given_x",
    [
        ["1/10", "0.25"], [Fraction(1, 10), Fraction(1, 4)], [Q(1, 10), 0.25], ("1e-1", "25e-2"),
        {"x2": "1/4", "x1": "0.1"}, {"x1": Q(1, 10), "x2": 0.25},
    ],
)  # fmt: skip
def test_x_in_every_spelling(given_x: Any) -> None:
    assert evaluate(PLANE, given_x).x == (Q(1, 10), Q(1, 4))


def test_a_float_means_its_exact_value() -> None:
    certificate = evaluate(PLANE, [0.1, np.float64(0.25)], digits=40)
    assert certificate.x[0] == Q(3602879701896397, 36028797018963968)
    assert certificate.phi.contains(Fraction(0.1) / 4 + Fraction(1, 4))
    assert not certificate.phi.contains("0.275")
    assert evaluate(PLANE, np.array([0.1, 0.25])).x == certificate.x


@pytest.mark.parametrize(
    "wrong",
    [
        [1], [1, 2, 3], [], "12", 5, None, {"x1": 1}, {"x1": 1, "x2": 2, "x3": 3}, {"x1": 1, "z": 2}, [1, "two"],
        [1, float("nan")], [1, float("inf")], [1, 1j], [1, True], [1, "1/0"], [1, "__import__('os')"], [1, [2]],
        [1, "1e999999999"], [1, x], [1, None],
    ],
)  # fmt: skip
def test_a_wrong_x_is_refused(wrong: Any) -> None:
    with pytest.raises(InvalidArgument):
        evaluate(PLANE, wrong)


@pytest.mark.parametrize("digits", [0, -1, 10_001, 1.5, "30", True, None])
def test_wrong_digits_are_refused(digits: Any) -> None:
    with pytest.raises(InvalidArgument, match="digits"):
        evaluate(PLANE, [1, 2], digits=digits)


def test_only_problems_without_open_parameters_have_certificates() -> None:
    with pytest.raises(InvalidProblem, match="a has no value"):
        evaluate(BilevelProblem("a*x*y", "y**2/2 - x*y", "x", "y", parameters={"a": None}), [1])
    with pytest.raises(InvalidArgument, match="BilevelProblem"):
        evaluate("x*y", [1])  # type: ignore[arg-type]


# ---- what must not be certified --------------------------------------------------------------------------

LOWER = "y**2/2 - x*y"
THIRD = Q(1, 3)
REFUSED: dict[str, tuple[str, str, str]] = {
    "abs in f": ("abs(x - 1/3)*(1 + y)", LOWER, "1/3"),
    "abs in f, in y": ("abs(y - 1/3)", LOWER, "1/3"),
    "abs of a product": ("abs(x*y)", LOWER, "0"),
    "slope jumps": ("Piecewise((x, x < 1/3), (2*x - 1/3, True))", LOWER, "1/3"),
    "curvature jumps": ("Piecewise((x**2, x < 0), (2*x**2, True))", LOWER, "0"),
    "curvature jumps, by abs": ("x*abs(x)", LOWER, "0"),
    # smaller than the digits asked for, and still no derivative exists there
    "value jumps a little": ("Piecewise((0, x < 1/3), (10**(-50), True)) + y", LOWER, "1/3"),
    "slope jumps a little": ("Piecewise((0, x < 1/3), ((x - 1/3)*10**(-50), True)) + y", LOWER, "1/3"),
    "value jumps": ("Piecewise((x, x <= 1/3), (x + 1, True)) + y", LOWER, "1/3"),
    "min tie": ("min(x, x**2) + y", LOWER, "1"),
    "max tie": ("max(x, y)", LOWER, "1/3"),
    "max of three, tied": ("max(x, 2*y, 3*x - y/2 - 1/2)", LOWER, "0"),
    "curvature of a max": ("max(x**2, 0)**(1/2)", LOWER, "0"),
    "no piece": ("Piecewise((x, x < 0), (y, x > 1))", LOWER, "1/2"),
    "outside the domain": ("log(x)*y", LOWER, "-1"),
    "at a pole": ("y/x", LOWER, "0"),
    "root at zero": ("sqrt(x) + y", LOWER, "0"),
    "kink of g at y*": ("x*y", "y**2/2 + abs(y - x) - x*y", "1/3"),
    "kink of g at y* = 0": ("x*y", "y**2/2 + abs(y)", "1/3"),
    "kink of g in x": ("x*y", "y**2/2 - abs(x - 1/3)*y", "1/3"),
    "g is concave": ("x*y", "-y**2/2 - x*y", "1/3"),
    "g is concave, and float64 starts at its maximum": ("x*y", "-y**2/2 - x*y", "0"),
    "g has a saddle where float64 starts": ("x*y1 + y2", "y1*y2 - x*y1 + y2**2/4", "0"),
    "underflow pretends that g_y is zero": ("x*y", "exp(y - 1000)", "1"),
    "g is flat at y*": ("x*y", "y**4/4", "1"),
    "g is not convex": ("x*y1 + y2", "y1*y2 + y1**2/4 + y2**2/4 - x*y1", "1"),
    "g has no minimum": ("x*y", "exp(y) - 0*x", "1"),
}  # fmt: skip


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_smooth_or_not_convex_is_refused(name: str) -> None:
    f, g, at = REFUSED[name]
    problem = BilevelProblem(f, g, "x", "y1 y2" if "y1" in g else "y")
    with pytest.raises(CertificateFailure) as caught:
        evaluate(problem, [at], digits=20)
    assert caught.value.hint


@pytest.mark.slow
@pytest.mark.parametrize(
    "g",
    [
        "(y - 1/3)**2/2 + abs(y - 1/3) - y/10**18",
        "(y - 1/3)**2/2 + 2*max(y - 1/3, 0) - (1 + 1/10**18)*(y - 1/3)",
        "(y - 1/3)**2/2 + Piecewise((1/3 - y, y < 1/3), (y - 1/3, True)) - y/10**18",
    ],
)
def test_a_minimiser_at_a_kink_gets_no_false_proof(g: str) -> None:
    # strongly convex, and y* = 1/3 is a kink: across the jump of g_y the mean value theorem does not hold, and
    # Krawczyk's test applied there would "prove" y* = -2/3
    problem = BilevelProblem("x*y", g, "x", "y", box={"x": (0, 1), "y": (0, "2/3")})
    try:
        certificate = evaluate(problem, [1], digits=20)
    except CertificateFailure:
        return
    assert certificate.y_star[0].contains("1/3"), str(certificate)


AGREEING: dict[str, tuple[str, str, int]] = {
    "cubes": ("Piecewise((x**3, x < 0), (2*x**3, True)) + y", "0", 0),
    "cube of abs": ("abs(x - 1/3)**3 + x**2", "1/3", 2),
    "fourth powers": ("Piecewise((x**2, x < 1/3), (x**2 + (x - 1/3)**4, True))", "1/3", 2),
}
BESIDE: dict[str, tuple[str, str, int]] = {
    "beside the boundary": ("Piecewise((x, x < 1/3), (x**2, True))", "1/3 + 1/10**30", 2),
    "the other side": ("Piecewise((x, x < 1/3), (x**2, True))", "1/3 - 1/10**30", 0),
    "abs beside its kink": ("abs(x)*x", "-1/10**30", -2),
    "max beside the tie": ("max(x, x**2)", "1 + 1/10**30", 2),
}


def exactly(text: str) -> sp.Rational:
    return sum((Q(part.replace("10**30", str(10**30))) for part in text.replace("- ", "+ -").split("+ ")), start=Q(0))


@pytest.mark.parametrize("name", AGREEING)
def test_pieces_that_agree_to_second_order_are_refused_or_right(name: str) -> None:
    f, at, curvature = AGREEING[name]
    try:
        certificate = evaluate(BilevelProblem(f, LOWER, "x", "y"), [at], digits=15)
    except CertificateFailure:
        return
    assert certificate.hess_phi[0][0].contains(curvature)


@pytest.mark.parametrize("name", BESIDE)
def test_next_to_a_boundary_there_is_a_certificate(name: str) -> None:
    f, at, curvature = BESIDE[name]
    certificate = evaluate(BilevelProblem(f, LOWER, "x", "y"), [exactly(at)], digits=15)
    assert certificate.hess_phi[0][0].contains(curvature)


def test_nothing_is_said_where_float64_has_no_start() -> None:
    with pytest.raises(CertificateFailure, match="not found even approximately"):
        evaluate(BilevelProblem("x*y", "-log(y) + y**2/2", "x", "y"), [1])
    inside = BilevelProblem("x*y", "-log(y) + y**2/2", "x", "y", box={"x": (0, 2), "y": (1, 3)})
    assert evaluate(inside, [1]).y_star[0].contains(1)


# ---- balls -----------------------------------------------------------------------------------------------


def ball(mid: Any, rad: Any = 0) -> Ball:
    return Ball(arb(mid, rad))


@pytest.mark.parametrize(
    ("value", "inside"),
    [
        (3, True), (2.5, True), (Fraction(7, 3), True), (mpmath.mpf("1.5"), True), ("1", True), ("5/2", True),
        (Decimal("2.25"), True), (Q(3), True), (np.float64(1.0), True), (np.int64(2), True),
        (4, False), (0.999, False), (float("nan"), False),
        (float("inf"), False), (float("-inf"), False), (mpmath.nan, False), (mpmath.inf, False), (np.float64("nan"), False),
    ],
)  # fmt: skip
def test_contains_is_decided_exactly(value: Any, inside: bool) -> None:
    assert ball(2, 1).contains(value) is inside


def test_contains_knows_the_last_point_from_the_next() -> None:
    one = ball(2, 1)
    man, exp = (int(part) for part in one.value.rad().man_exp())
    end = 2 + Fraction(man) * Fraction(2) ** exp
    assert one.contains(end)
    assert not one.contains(end + Fraction(1, 10**40))
    assert not one.contains(4 - end - Fraction(1, 10**40))


def test_contains_refuses_what_is_no_number() -> None:
    for wrong in ("two", None, [1], "__import__('os')", 1j, True):
        with pytest.raises((InvalidArgument, TypeError)):
            ball(2, 1).contains(wrong)
    with pytest.raises(InvalidArgument, match="another ball"):
        ball(2, 1).contains(ball(2, 1))


def test_mid_and_rad_hold_every_bit_whatever_mpmath_works_with() -> None:
    with precision(2000):
        value = arb(2).sqrt()
    before = mpmath.mp.prec
    third = Ball(value)
    assert third.mid._mpf_[3] > 1900
    assert mpmath.mp.prec == before
    with mpmath.workprec(2100):
        assert abs(third.mid - mpmath.sqrt(2)) <= third.rad


@pytest.mark.parametrize(
    ("value", "expected"),
    [("1/3", 13), (0.33334, 4), (0.3333333333333333, 13), (-1.0, 0), (float("nan"), 0), (0.0, 0), (1e300, 0)],
)
def test_correct_digits(value: Any, expected: int) -> None:
    with precision(100):
        third = Ball(arb(1) / 3 + arb(0, 1e-14))
    assert math.floor(third.correct_digits(value)) == expected


def test_correct_digits_of_exact_and_of_zero() -> None:
    assert ball(2).correct_digits(2.0) == math.inf
    assert ball(0).correct_digits(1e-20) == pytest.approx(20)
    assert ball(0, 1e-30).correct_digits(0.0) == pytest.approx(30)


def test_compare_names_the_worst_entry() -> None:
    certificate = evaluate(PLANE, ["1/3", "1/7"], digits=30)
    agreement = certificate.compare(grad_phi=[1 / 7, 1 + 1 / 3 + 1e-6])
    assert agreement.worst == (1,)
    assert 5.5 < agreement.digits < 6.5
    assert "grad_phi[1]" in str(agreement)
    assert certificate.compare(hess_phi=[[0, 1], [1, 0]]).digits >= 30
    assert certificate.compare(phi=1 / 21 + 1 / 7).digits > 15
    assert certificate.compare(y_star=[float("nan")]).digits == 0
    for wrong in ({"grad_phi": [1.0]}, {"phi": [1.0]}, {}, {"phi": 1, "grad_phi": [1, 2]}, {"psi": 1}):
        with pytest.raises(InvalidArgument):
            certificate.compare(**wrong)


def test_precision_of_mpmath_and_flint_is_left_alone() -> None:
    for bits, digits in ((53, 15), (77, 15)):
        with mpmath.workprec(bits), precision(bits + 1):
            evaluate(PLANE, [1, 2], digits=200)
            str(evaluate(PLANE, ["1/3", 2], digits=digits))
            with pytest.raises(CertificateFailure):
                evaluate(BilevelProblem("abs(x)*y", LOWER, "x", "y"), [0])
            with pytest.raises(InvalidArgument):
                evaluate(PLANE, [1])
            assert (mpmath.mp.prec, flint.ctx.prec) == (bits, bits + 1)


def test_threads_do_not_take_each_others_precision() -> None:
    before, inside, seen = mpmath.mp.prec, threading.Event(), list[int]()

    def other() -> None:
        inside.wait()
        with mpmath_precision(300):  # waits until the other guard is left
            seen.append(mpmath.mp.prec)

    thread = threading.Thread(target=other)
    thread.start()
    with mpmath_precision(200):
        inside.set()
        thread.join(0.05)
        assert (seen, mpmath.mp.prec) == ([], 200)
    thread.join()
    assert (seen, mpmath.mp.prec) == ([300], before)


def test_certificates_are_frozen() -> None:
    certificate = evaluate(PLANE, [1, 2])
    with pytest.raises(AttributeError):
        certificate.proved = False  # type: ignore[misc]


def test_the_hessian_ball_is_symmetric() -> None:
    certificate = evaluate(zoo.get("quadratic").problem, ["1/3", "1/7"])
    assert certificate.hess_phi[0][1].value.overlaps(certificate.hess_phi[1][0].value)


# ---- floats ----------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("name", zoo.names())
def test_float_kernels_agree_with_the_certificate_to_twelve_digits(name: str) -> None:
    problem = zoo.get(name).problem
    kernels = compile_kernels(problem, backend="tape")
    for point in points_in_box(problem, 2, seed=3):
        certificate = evaluate(problem, point.tolist(), digits=20)
        candidates = {
            "y_star": kernels.y_star(point), "phi": kernels.phi(point),
            "grad_phi": kernels.grad_phi(point), "hess_phi": kernels.hess_phi(point),
        }  # fmt: skip
        for key, candidate in candidates.items():
            truth = np.array([float(entry) for entry in flat(certificate)[key]])
            error = np.abs(candidate.ravel() - truth).max()
            assert error <= 1e-12 * max(np.abs(truth).max(), 1e-300), key


def test_no_certificate_without_krawczyks_test(monkeypatch: pytest.MonkeyPatch) -> None:
    image_of = krawczyk.krawczyk_image

    def elsewhere(*arguments: Any) -> Any:
        return image_of(*arguments) + arb_mat([[1]])

    monkeypatch.setattr(krawczyk, "krawczyk_image", elsewhere)
    with pytest.raises(CertificateFailure, match="Krawczyk"):
        evaluate(PLANE, [1, 2])


# ---- switches and domains: what looks smooth at the point, and is not ------------------------------------------

HIDDEN: dict[str, tuple[str, str, str, list[object]]] = {
    "agrees at the point alone": ("y + Piecewise((0, x1 < 0), (x2**3, True))", "y**2/2 - y*x1", "x1 x2", [0, 0]),
    "the same, continuous": ("y + Piecewise((0, x1 < 0), (x1*x2**3, True))", "y**2/2 - y*x1", "x1 x2", [0, 0]),
    "in g": ("y", "y**2/2 - y*Piecewise((0, x1 < 0), (x2**3, True))", "x1 x2", [0, 0]),
    "condition without a value": ("Piecewise((0, log(x) < y), ((x + 1)**3, True))", "y**2/2 - x*y", "x", [-1]),
    "end of a domain": ("x**(5/2)", "y**2/2 - x*y", "x", [0]),
    "end of a domain, in y": ("x + y**(5/2)", "y**2/2 - x*y", "x", [0]),
    "removable pole": ("(2*x - 2)/(x - 1) + y", "y**2/2 - x*y", "x", [1]),
    "nothing times undefined": ("Piecewise((1, x > 1), (0, True))*log(x) + y", "y**2/2 - x*y", "x", [-1]),
}


@pytest.mark.parametrize("name", HIDDEN)
def test_what_only_looks_smooth_is_refused(name: str) -> None:
    f, g, variables, at = HIDDEN[name]
    with pytest.raises(CertificateFailure):
        evaluate(BilevelProblem(f, g, variables, "y"), at, digits=15)


def test_a_hopeless_request_ends_soon() -> None:
    problem = BilevelProblem("abs(x)*y + exp(y)", "y**2/2 + exp(y) - x*y", "x", "y")

    def refused() -> None:
        with pytest.raises(CertificateFailure, match="not smooth"):
            evaluate(problem, [0], digits=1000)

    assert calls_of(refused) < 100_000


@pytest.mark.parametrize("at", ["1e400", "-1e400"])
def test_certificates_do_not_end_where_floats_do(at: str) -> None:
    certificate = evaluate(BilevelProblem("(1e200*y + 1)**3", "y**2/2 - x*y", "x", "y"), [at], digits=10)
    assert certificate.phi.contains((10**200 * Fraction(sp.Rational(at)) + 1) ** 3)


@pytest.mark.parametrize("x", [20, 50])
def test_tiny_numbers_are_shown_at_once(x: int) -> None:
    certificate = evaluate(BilevelProblem("exp(-exp(y))", "y**2/2 - x*y", "x", "y"), [x], digits=5)
    assert str(certificate.phi).startswith("[")  # with its exponent, and its error
    assert certificate.phi.contains(0) == (x == 50)  # 1e-10**21 is zero, for all that digits can say
    assert "Phi" in str(certificate)


def test_five_thousand_digits_are_printed() -> None:
    certificate = evaluate(BilevelProblem("sqrt(2)*y", "y**2/2 - x*y", "x", "y"), [1], digits=5000)
    assert len(f"{certificate.phi:.5000}") == 5001
    assert f"{certificate.phi:.30}" == "1.41421356237309504880168872421"


def test_printed_bounds_are_rounded_up() -> None:
    tiny = evaluate(BilevelProblem("exp(1.2349*x**50) - 1", "y**2/2 - x*y", "x", "y"), ["1e-300"], digits=10)
    assert tiny.phi.digits >= 10  # not zero, and said so
    for ball in (Ball(arb(1.5234, 0.0512)), Ball(arb(-0.001, 0.0123456)), Ball(arb(0, 1.2349))):
        middle, _, radius = str(ball).partition(" +/- ")
        low, high = Fraction(middle) - Fraction(radius), Fraction(middle) + Fraction(radius)
        assert low <= Fraction(float(ball.value.lower()))
        assert high >= Fraction(float(ball.value.upper()))


def test_certificates_in_threads() -> None:
    problem = BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y")
    wanted = {digits: str(evaluate(problem, ["1/3"], digits=digits)) for digits in (10, 50, 200, 400)}
    before = flint.ctx.prec
    with ThreadPoolExecutor(4) as pool:
        asked = [10, 50, 200, 400] * 10
        found = list(pool.map(lambda digits: str(evaluate(problem, ["1/3"], digits=digits)), asked))
    assert found == [wanted[digits] for digits in asked]
    assert flint.ctx.prec == before


def test_certificates_are_pickled_and_copied() -> None:
    certificate = evaluate(BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y"), ["1/3"], digits=60)
    copy = pickle.loads(pickle.dumps(certificate))
    assert copy.phi.mid == certificate.phi.mid
    assert certificate.phi.rad <= copy.phi.rad <= 1.0001 * certificate.phi.rad  # flint rounds radii up
    assert str(copy) == str(certificate)


@pytest.mark.parametrize("x", [np.array(1.0), b"1", {1}, "1", 1.0, None])
def test_x_is_a_sequence(x: Any) -> None:
    with pytest.raises(InvalidArgument):
        evaluate(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), x)


def test_x_and_digits_may_be_numbers_of_other_libraries() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    certificate = evaluate(problem, [mpmath.mpf("0.5")], digits=np.int64(20))  # type: ignore[arg-type]
    assert certificate.phi.contains("1/4")


@pytest.mark.parametrize("candidate", ["abc", ["a"], [1j], [[1], [1, 2]], 10**400])
def test_compare_refuses_what_is_no_array(candidate: Any) -> None:
    certificate = evaluate(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), [1])
    with pytest.raises(InvalidArgument, match="grad_phi"):
        certificate.compare(grad_phi=candidate)


def test_numbers_of_mpmath_keep_every_bit() -> None:
    with mpmath.workdps(100):
        third = mpmath.mpf(1) / 3
    exact = rational(third)
    assert 0 < abs(exact - sp.Rational(1, 3)) < sp.Rational(1, 10**99)
    certificate = evaluate(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), [third], digits=120)
    assert certificate.phi.contains(Fraction(exact.p, exact.q) ** 2)
