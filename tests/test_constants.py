"""The constants of the standing assumptions, and the formulas printed in them."""

from __future__ import annotations

import math
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import mpmath
import numpy as np
import pytest
import sympy as sp
from hypothesis import given

from bilevel_sym import zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.theories.huang_saddle.constants import Constants, MinimaxConstants

POSITIVE = st.fractions(min_value=Fraction(1, 10), max_value=10)
ANY = st.fractions(min_value=0, max_value=10)
KAPPA = st.fractions(min_value=1, max_value=20)


@given(mu=POSITIVE, factor=KAPPA, rho=POSITIVE, M=POSITIVE)
def test_the_formula_is_what_the_chain_of_bounds_gives(
    mu: Fraction, factor: Fraction, rho: Fraction, M: Fraction
) -> None:
    """Independently: |f_x(x,y*)'| + |dy_dx'| |f_y| + |dy_dx| |f_y'| with |dy_dx| <= ell/mu, read block by block."""
    ell = mu * factor
    kappa = ell / mu
    along = 1 + kappa  # y* moves kappa times as fast as x
    response_change = (rho / mu + ell * rho / mu**2) * along
    bound = ell * along + response_change * M + kappa * ell * along
    assert Constants(mu, ell, rho, 0, M).L_phi() == Constants(mu, ell, rho, 0, M).L_phi(variant="sharp") == bound


@given(M=POSITIVE)
def test_the_print_is_below_the_truth_exactly_where_m_is_below_one(M: Fraction) -> None:
    constants = Constants(mu=1, ell=2, rho=3, nu=0, M=M)
    printed, corrected = constants.L_phi(variant="printed"), constants.L_phi()
    assert (printed < corrected) == (M < 1)


def four_terms(c: Constants, factor: int) -> Any:
    """Terms (I) to (IV) of the proof, added; ``factor`` stands before the change of dy_dx in (dy_dx) g_yxy."""
    mu, ell, rho, nu, M = c.mu, c.ell, c.rho, c.nu, c.M
    kappa, u = ell / mu, 1 + ell / mu
    jacobian = rho / mu * u**2  # change of dy_dx, Equation (B.6)
    first = rho * u
    second = 2 * (kappa * rho * u + ell * jacobian)
    mixed = kappa * nu * u + factor * rho * jacobian
    inner = nu * u + 2 * mixed + (2 * rho * kappa * jacobian + kappa**2 * nu * u)
    y_twice = inner / mu + rho * u**2 * rho * u / mu**2  # change of the second derivative of y*
    third = rho / mu * u**2 * ell * u + M * y_twice
    fourth = 2 * ell * kappa * jacobian + kappa**2 * rho * u
    return first + second + third + fourth


@given(mu=POSITIVE, factor=KAPPA, rho=ANY, nu=ANY, M=ANY)
def test_rho_phi_is_the_sum_of_the_four_terms_of_its_proof(
    mu: Fraction, factor: Fraction, rho: Fraction, nu: Fraction, M: Fraction
) -> None:
    c = Constants(mu, mu * factor, rho, nu, M)
    assert c.rho_phi() == c.rho_phi(variant="sharp") == four_terms(c, 1)


def symbolic() -> Constants:
    """Constants that are symbols, past the checks, which could not decide anything about them."""
    constants = object.__new__(Constants)
    for name in ("mu", "ell", "rho", "nu", "M"):
        object.__setattr__(constants, name, sp.Symbol(name, positive=True))
    return constants


def test_the_printed_rho_phi_keeps_a_factor_two_that_stood_before_term_two() -> None:
    c = symbolic()
    excess = 2 * c.M * c.rho**2 * (1 + c.ell / c.mu) ** 2 / c.mu**2
    assert sp.expand(c.rho_phi(variant="printed") - c.rho_phi() - excess) == 0
    assert sp.expand(c.rho_phi(variant="printed") - four_terms(c, 2)) == 0
    assert sp.expand(c.rho_phi() - four_terms(c, 1)) == 0


def test_rho_phi_is_the_bound_of_the_direct_third_derivative() -> None:
    """D^3 L[Z, Z, Z] and three placements of (v' Z)' D^2 g_y[Z, Z], each bounded on its own."""
    c = symbolic()
    u = 1 + c.ell / c.mu
    lagrangian = (c.rho + c.nu * c.M / c.mu) * u**3
    response = (c.ell + c.rho * c.M / c.mu) * u / c.mu
    assert sp.expand(c.rho_phi() - lagrangian - 3 * response * c.rho * u**2) == 0


@pytest.mark.parametrize("name", ["implicit_cubic", "scalar", "saddle"])
def test_third_derivatives_stay_below_rho_phi(name: str) -> None:
    example = zoo.get(name)
    assert example.constants is not None
    assert example.problem.box is not None
    box = {str(symbol): ends for symbol, ends in example.problem.box.items()}
    ends = [[float(end) for end in box[str(symbol)]] for symbol in example.problem.x]
    low, high = np.array(ends).T
    points = np.random.default_rng(0).uniform(low, high, (50, example.problem.d))
    third = example.problem.kernels.third_phi(points)
    # the Frobenius norm is above the norm over unit vectors, so this asks for more than is claimed
    assert np.sqrt((third**2).sum(axis=(1, 2, 3))).max() <= float(example.constants.rho_phi())


def test_exact_numbers_stay_exact() -> None:
    known = zoo.get("scalar").constants
    assert known is not None
    assert known.L_phi().is_Rational
    assert known.rho_phi().is_Rational
    assert Constants(1, 2, 1, 1, 1).kappa == 2
    third = Fraction(1, 3)
    c = Constants(third, 1, third, third, third)
    values = [c.L_phi(), c.rho_phi(), c.rho_phi(variant="printed"), c.drift, c.gamma_1(third, third)]
    m = MinimaxConstants(third, Fraction(1), third)
    assert all(isinstance(value, Fraction) for value in [*values, m.L_phi(), m.rho_phi()])


@pytest.mark.parametrize(
    "bad",
    [
        {"mu": 0}, {"mu": -1}, {"mu": 3}, {"rho": -1}, {"nu": -1}, {"M": -1}, {"reading": "sideways"}, {"mu": float("nan")},
        {"rho": float("nan")}, {"M": float("nan")}, {"sigma": -1},
    ],
)  # fmt: skip
def test_impossible_constants_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Constants(**({"mu": 1, "ell": 2, "rho": 1, "nu": 1, "M": 1} | bad))


@pytest.mark.parametrize(
    "bad", [{"mu": 0}, {"ell": 0.5}, {"rho": -1}, {"M_x": -1}, {"M_x": float("nan")}, {"reading": ""}]
)
def test_impossible_minimax_constants_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        MinimaxConstants(**({"mu": 1, "ell": 2, "rho": 1} | bad))


@pytest.mark.parametrize("method", ["L_phi", "rho_phi"])
@pytest.mark.parametrize("constants", [Constants(1, 2, 1, 1, 1), MinimaxConstants(1, 2, 1)])
def test_an_unknown_variant_is_refused(constants: Any, method: str) -> None:
    with pytest.raises(InvalidArgument, match="variant must be"):
        getattr(constants, method)(variant="best")


@given(mu=POSITIVE, factor=KAPPA, rho=ANY)
def test_minimax_constants_are_the_bilevel_ones_where_v_vanishes(mu: Fraction, factor: Fraction, rho: Fraction) -> None:
    """With f_y = 0 along y*, nothing of nu and M is left, and f_xx + f_xy dy_dx has no second derivative of y*."""
    ell, u = mu * factor, 1 + factor
    m = MinimaxConstants(mu, ell, rho)
    assert {m.L_phi(variant=v) for v in ("corrected", "printed")} == {ell + ell * factor}
    assert m.L_phi(variant="sharp") == ell * factor
    assert {m.rho_phi(variant=v) for v in ("corrected", "printed")} == {rho * u**3}
    assert m.rho_phi(variant="sharp") == rho * factor**3


STEPS = st.integers(0, 60)


@given(mu=POSITIVE, factor=KAPPA, rho=ANY, M=ANY, eta=POSITIVE, start=ANY, D=STEPS, N=STEPS)
def test_the_error_of_aid_is_the_printed_bound(
    mu: Fraction, factor: Fraction, rho: Fraction, M: Fraction, eta: Fraction, start: Fraction, D: int, N: int
) -> None:
    c = Constants(mu, mu * factor, rho, 0, M)
    with mpmath.workdps(40):
        m, e, r, b = (mpmath.mpf(q.numerator) / q.denominator for q in (mu, mu * factor, rho, M))
        k = e / m
        h, s = (mpmath.mpf(q.numerator) / q.denominator for q in (eta, start))
        gamma = s + 2 * h * (k**2 + 2 * k + r * b * (1 + k) / m**2) * (b + e * b / m)
        of_y = (1 + e / m * (1 + 2 * mpmath.sqrt(k))) * (e + r * b / m) * (1 - m / e) ** (mpmath.mpf(D) / 2)
        of_v = 2 * e * mpmath.sqrt(k) * ((mpmath.sqrt(k) - 1) / (mpmath.sqrt(k) + 1)) ** N
        expected = float((of_y + of_v) * gamma)
    # a rate that is rounded once is raised to a power of up to 60
    assert c.aid_error(D, N, eta=eta, initial_error=start) == pytest.approx(expected, rel=1e-13, abs=1e-300)
    assert float(gamma) == pytest.approx(float(c.gamma_1(eta, start)), rel=1e-14)


@given(mu=POSITIVE, factor=KAPPA, rho=ANY, M=ANY, D=STEPS, N=STEPS)
def test_contraction_is_the_printed_pair_of_logarithms(
    mu: Fraction, factor: Fraction, rho: Fraction, M: Fraction, D: int, N: int
) -> None:
    """Equation (B.31) by logarithms, away from its boundary; at kappa = 1 one step of each contracts."""
    c = Constants(mu, mu * factor, rho, 0, M)
    k = float(factor)
    if k == 1:
        assert c.aid_contracts(1, 1)
        return
    coupling = (1 + 2 * math.sqrt(k)) * (k + float(rho * M / mu**2)) + 1
    assert c.warm_start_factors(0, 0) == pytest.approx((coupling, 2 * math.sqrt(k)))
    least_D = 2 * math.log(1 / (2 * coupling)) / math.log1p(-1 / k)
    least_N = math.log(1 / (4 * math.sqrt(k))) / math.log((math.sqrt(k) - 1) / (math.sqrt(k) + 1))
    if min(abs(D - least_D), abs(N - least_N)) > 1e-9:
        assert c.aid_contracts(D, N) == (least_D <= D and least_N <= N)


@given(mu=POSITIVE, factor=KAPPA, eta=POSITIVE, start=ANY, M_x=ANY, D=STEPS)
def test_the_error_of_gdmax_is_the_bound_with_m_x(
    mu: Fraction, factor: Fraction, eta: Fraction, start: Fraction, M_x: Fraction, D: int
) -> None:
    ell = mu * factor
    m = MinimaxConstants(mu, ell, 1, M_x=M_x)
    distance = float(start + 2 * eta * factor * M_x)
    expected = float(ell) * distance * math.sqrt((1 - 1 / factor) ** D)
    # the square under the root may be subnormal, which costs the expected value its digits below 1e-154
    assert m.gdmax_error(D, eta=eta, initial_error=start) == pytest.approx(expected, rel=1e-12, abs=1e-140)
    assert m.gdmax_contracts(D) == ((1 - 1 / factor) ** D <= Fraction(1, 4))


def test_the_error_of_gdmax_says_what_is_missing() -> None:
    with pytest.raises(InvalidArgument, match="bound on the norm of f_x"):
        MinimaxConstants(1, 2, 1).gdmax_error(3, eta=0.1, initial_error=1)


def test_a_longer_step_of_x_moves_the_solutions_further() -> None:
    c = Constants(1, 2, 1, 1, 1)
    assert c.gamma_1(0.5, 1, gradient_bound=6) - 1 == 2 * (c.gamma_1(0.5, 1) - 1)
