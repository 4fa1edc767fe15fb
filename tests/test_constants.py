"""The constants of the standing assumption, and the formula printed in them."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import pytest
from hypothesis import given

from bilevel_sym import Constants, zoo
from bilevel_sym.errors import InvalidProblem

POSITIVE = st.fractions(min_value=Fraction(1, 10), max_value=10)


@given(mu=POSITIVE, factor=st.fractions(min_value=1, max_value=20), rho=POSITIVE, M=POSITIVE)
def test_the_formula_is_what_the_chain_of_bounds_gives(
    mu: Fraction, factor: Fraction, rho: Fraction, M: Fraction
) -> None:
    """Independently: |f_x(x,y*)'| + |dy_dx'| |f_y| + |dy_dx| |f_y'| with |dy_dx| <= ell/mu, read block by block."""
    ell = mu * factor
    kappa = ell / mu
    along = 1 + kappa  # y* moves kappa times as fast as x
    response_change = (rho / mu + ell * rho / mu**2) * along
    bound = ell * along + response_change * M + kappa * ell * along
    assert Constants(mu, ell, rho, 0, M).L_phi() == bound


@given(M=POSITIVE)
def test_the_print_is_below_the_truth_exactly_where_m_is_below_one(M: Fraction) -> None:
    constants = Constants(mu=1, ell=2, rho=3, nu=0, M=M)
    printed, corrected = constants.L_phi(variant="printed"), constants.L_phi()
    assert (printed < corrected) == (M < 1)


def test_exact_numbers_stay_exact() -> None:
    known = zoo.get("scalar").constants
    assert known is not None
    assert known.L_phi().is_Rational
    assert Constants(1, 2, 1, 1, 1).kappa == 2


@pytest.mark.parametrize(
    "bad",
    [
        {"mu": 0}, {"mu": -1}, {"mu": 3}, {"rho": -1}, {"nu": -1}, {"M": -1}, {"reading": "sideways"}, {"mu": float("nan")},
    ],
)  # fmt: skip
def test_impossible_constants_are_refused(bad: dict[str, Any]) -> None:
    with pytest.raises(InvalidProblem):
        Constants(**({"mu": 1, "ell": 2, "rho": 1, "nu": 1, "M": 1} | bad))


def test_an_unknown_variant_is_refused() -> None:
    with pytest.raises(InvalidProblem, match="variant must be"):
        Constants(1, 2, 1, 1, 1).L_phi(variant="best")  # type: ignore[arg-type]
