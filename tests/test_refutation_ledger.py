"""Planted defects in errata, findings, batch sizes and counts: each one must be seen."""

from __future__ import annotations

import math
from fractions import Fraction
from itertools import permutations, product
from typing import Any

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import Constants, MinimaxConstants, zoo
from bilevel_sym.theories.huang_saddle.schedules.batches import Term, batch_sizes, concentration, tensor_concentration
from verify.papers.huang_saddle.claims import corollaries, stochastic
from verify.papers.huang_saddle.errata import concentration as lemmas
from verify.papers.huang_saddle.errata import errata, readings, steps
from verify.papers.huang_saddle.errata import stochastic as moments
from verify.papers.huang_saddle.errata.right import found_right
from verify.papers.huang_saddle.measures.stochastic import stocbio_bounds
from verify.papers.huang_saddle.measures.stochastic.batch_moments import Estimator
from verify.study import study_of
from verify.verdict import Verdict

ERRATA = {entry.name: entry for entry in errata()}
FINDINGS = {finding.name: finding for finding in found_right()}


# ---- the three lemmas on batches -------------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [1, 2, 5, 8])
@pytest.mark.parametrize("eps", [Fraction(1, 2), Fraction(1, 3)])
def test_the_binomial_tail_against_all_outcomes(rows: int, eps: Fraction) -> None:
    off = sum(abs(Fraction(sum(signs), rows)) > eps for signs in product((-1, 1), repeat=rows))
    assert lemmas._off(rows, eps) == Fraction(off, 2**rows)


@pytest.mark.slow
def test_the_failure_of_many_entries_against_a_draw() -> None:
    """n = 2000 entries, 89 rows: the share of matrices with a bad entry, by the tail and by 4000 drawn matrices."""
    tail = float(lemmas._off(89, Fraction(1, 2)))
    counts = np.random.default_rng(0).binomial(89, 0.5, size=(4000, 2000))
    seen = (np.abs(2 * counts - 89) > 44.5).any(axis=1).mean()
    assert seen == pytest.approx(1 - (1 - tail) ** 2000, abs=5 * math.sqrt(0.004 / 4000))


def test_numbers_of_rows_are_decided_by_balls() -> None:
    assert lemmas._rows(Fraction(64), 1, Fraction(1, 2)) == math.ceil(64 * math.log(4)) == 89
    with pytest.raises(ArithmeticError):
        lemmas._rows(Fraction(0) + Fraction(10) ** 40, 1, Fraction(1, 2))


def test_chebyshev_is_enough_for_every_rare_sample() -> None:
    """The corrected number of rows against the exact failure of zeta = +-a, for many a and small numbers."""
    eps, delta = Fraction(1, 2), Fraction(1, 5)
    rows = int(ERRATA["err_grad"].corrected_form(Fraction(1), eps, delta))
    assert rows == 20
    for a in (Fraction(1), Fraction(3), Fraction(10), Fraction(21, 2), Fraction(40)):
        chance = 1 / (2 * a**2)
        fails = Fraction(0)
        for plus, minus in product(range(rows + 1), repeat=2):
            if plus + minus <= rows and abs(a * (plus - minus)) > rows * eps:
                ways = math.comb(rows, plus) * math.comb(rows - plus, minus)
                fails += ways * chance ** (plus + minus) * (1 - 2 * chance) ** (rows - plus - minus)
        assert fails <= delta


@pytest.mark.slow
def test_the_matrix_of_a_tensor_has_at_most_the_root_of_the_dimension_times_its_norm() -> None:
    """In floats, for random symmetric tensors: the norm as a form by many starts, that of the matrix by its SVD."""
    rng = np.random.default_rng(1)
    for m in (2, 3, 4):
        for _ in range(20):
            raw = rng.normal(size=(m, m, m))
            tensor = np.sum([np.transpose(raw, axes) for axes in permutations(range(3))], axis=0)
            v = rng.normal(size=(400, m))
            for _ in range(200):
                v = np.einsum("ijk,lj,lk->li", tensor, v, v)
                v /= np.linalg.norm(v, axis=1, keepdims=True)
            norm = np.abs(np.einsum("ijk,li,lj,lk->l", tensor, v, v, v)).max()
            matrix = np.linalg.norm(tensor.reshape(m, m * m), 2)
            assert norm * (1 - 1e-9) <= matrix <= math.sqrt(m) * norm * (1 + 1e-3)


def test_third_derivatives_take_the_bound_of_their_matrices() -> None:
    for m, norm, error, delta in ((1, 2.0, 0.5, 0.1), (3, 1.0, 0.25, 0.01), (7, 0.5, 0.125, 0.5)):
        bernstein = 16 * (math.sqrt(m) * norm / error) ** 2 * math.log((m + m**2) / delta)
        assert tensor_concentration(norm, error, delta, m) == math.ceil(bernstein - 1e-9)
    terms = (Term("g", "g_yyy", 1.0, 1.0),)
    sizes = {v: batch_sizes(terms, each=0.5, delta=0.1, dimension=4, variant=v)[1] for v in ("printed", "corrected")}
    assert sizes == {"printed": concentration(1.0, 0.5, 0.1, 4), "corrected": tensor_concentration(1.0, 0.5, 0.1, 4)}
    second = (Term("g", "g_yy", 1.0, 1.0),)
    assert batch_sizes(second, each=0.5, delta=0.1, dimension=4)[1] == concentration(1.0, 0.5, 0.1, 4)


def test_the_batch_lemmas_hold_as_printed_where_d_is_not_below_n() -> None:
    """1/n is read as one over the batch size; the dimension of y is what the print lacks."""
    study = study_of(zoo.get("stochastic_noise").problem, variant="printed")
    for item in (stochastic.batch_gradients, stochastic.batch_hessians, stochastic.batch_third_derivatives):
        assert {result.verdict for result in item(study)} == {Verdict.HOLDS}, item.label


def test_too_few_rows_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    """With a hundredth of the rows the claim on gradients, in which alone this problem has noise, fails."""

    def few(*given: Any) -> int:
        return max(1, concentration(*given) // 100)

    monkeypatch.setattr(stochastic, "concentration", few)
    study = study_of(zoo.get("stochastic_noise").problem)
    assert {result.verdict for result in stochastic.batch_gradients(study)} == {Verdict.VIOLATED}


# ---- counts and moments ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_step_that_shares_its_batch_with_the_check_costs_more(monkeypatch: pytest.MonkeyPatch) -> None:
    study = study_of(zoo.get("stochastic_noise").problem)

    def verdict() -> Verdict:
        return next(r.verdict for r in corollaries.stocbio_complexities(study) if r.part == "JV_g")

    assert verdict() is Verdict.HOLDS
    sizes = corollaries._stocbio_orders()
    monkeypatch.setattr(corollaries, "_stocbio_orders", lambda: {**sizes, "step_g": sizes["batch_g"]})
    assert verdict() is Verdict.VIOLATED


def test_the_factor_of_the_mean_square_error_is_the_least() -> None:
    """(16/15) a^2 + 16 b^2 - (a + b)^2 is a square over 15, and anything less is negative at a = 15 b."""
    a, b = sp.symbols("a b", real=True)
    factor = sp.Rational(*ERRATA["variance"].corrected_form()[0].as_integer_ratio())
    rest = sp.expand(factor * a**2 + 16 * b**2 - (a + b) ** 2)
    assert sp.expand(rest - (a - 15 * b) ** 2 / 15) == 0
    assert rest.subs({a: 15, b: 1}) == 0
    for less in (Fraction(1), Fraction(16, 15) - Fraction(1, 1000), Fraction(2)):
        assert moments._least_beside_16(less) is False
    assert sp.Rational(1, 2) * 2 + factor / 4 == sp.Rational(19, 15)


def test_the_bound_of_the_verifier_has_the_factor_of_the_erratum() -> None:
    c, estimator = Constants(1.0, 2.0, 0.0, 0.0, 1.0), Estimator(0.5, 1, 1, (1,))
    at = [float(stocbio_bounds.error_bound(c, estimator, 1, away, "corrected")) for away in (0.0, 1.0)]
    assert at[1] - at[0] == pytest.approx(16 / 15, rel=1e-12)


# ---- what a planted defect does --------------------------------------------------------------------------------------

PLANTED: list[tuple[str, Any, str, Any]] = [
    ("err_hess", lemmas, "_off", lambda rows, eps: Fraction(0)),
    ("err_hess", lemmas, "_WIDE_DIMENSION", 10),
    ("err_third", lemmas, "_matrix_norm", lambda tensor, m: sp.Integer(1)),
    ("which_rho_phi", Constants, "rho_phi", lambda self, *, variant="corrected": Fraction(1)),
    ("missing_n", readings, "conjugate_gradients", lambda diagonal, right, start, N: right),
    ("variance", moments, "_least_beside_16", lambda factor: True),
]


@pytest.mark.parametrize(("name", "owner", "attribute", "planted"), PLANTED, ids=[f"{p[0]}, {p[2]}" for p in PLANTED])
def test_a_planted_defect_moves_the_verdict_or_the_check(
    monkeypatch: pytest.MonkeyPatch, name: str, owner: Any, attribute: str, planted: Any
) -> None:
    assert ERRATA[name].check().verdict is Verdict.HOLDS
    monkeypatch.setattr(owner, attribute, planted)
    if name == "variance":  # the witness alone still tells the two factors apart
        assert ERRATA[name].check().verdict is Verdict.HOLDS
    else:
        assert ERRATA[name].check().verdict is Verdict.VIOLATED


@pytest.mark.parametrize(
    ("name", "symbol", "factor"),
    [("first_decrease", "RADIUS", 2), ("contradiction", "NEON_TIME", 2), ("contradiction", "RHO_PHI", 4)],
)
def test_findings_rest_on_the_numbers_of_the_theory(
    monkeypatch: pytest.MonkeyPatch, name: str, symbol: str, factor: int
) -> None:
    """A wrong radius, time or constant turns a step of a proof that uses it red."""
    assert FINDINGS[name].holds()
    monkeypatch.setattr(steps, symbol, getattr(steps, symbol) / factor)
    assert not FINDINGS[name].holds()


def test_a_wrong_bound_of_gdmax_is_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    right = MinimaxConstants.gdmax_error
    monkeypatch.setattr(MinimaxConstants, "gdmax_error", lambda self, D, **rest: right(self, D, **rest) / 2)
    assert not FINDINGS["gdmax_error"].holds()


def test_every_finding_is_named_once() -> None:
    names = [finding.name for finding in found_right()]
    assert len(set(names)) == len(names) >= 35
    assert all(finding.text for finding in found_right())
