"""Bound transcripts: what claims compare with, written down once more, as ``transcripts`` does for what is shipped."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import mpmath
import numpy as np
from flint import arb, arb_mat

from bilevel_sym import Constants
from bilevel_sym.graph.precision import mpmath_digits
from verify.papers.huang_saddle.measures.agreement import Agreement
from verify.papers.huang_saddle.measures.rates import log_rate_y, rate_v, rate_y
from verify.papers.huang_saddle.measures.runs import halving
from verify.papers.huang_saddle.measures.second_writing.transcripts import DIGITS, compared_items
from verify.papers.huang_saddle.measures.stochastic.batch_moments import Estimator
from verify.papers.huang_saddle.measures.stochastic.stocbio_bounds import (
    distance,
    error_bound,
    inner,
    series_rest,
    slope_in_y,
    variance_bound,
)

__all__ = ["of_bounds"]

mpf = mpmath.mpf


def of_bounds(c: Constants) -> Iterator[Agreement]:
    """Rates of the inner loops, and the bounds on bias and variance of the stochastic hypergradient.

    >>> max(item.ratio for item in of_bounds(Constants(1.0, 2.0, 1.0, 1.0, 1.0, sigma=1.0))) <= 1
    True
    """
    with mpmath_digits(DIGITS):
        mu, ell, rho, M = (mpf(float(value)) for value in (c.mu, c.ell, c.rho, c.M))
        kappa = ell / mu
        keeps, root = 1 - 1 / kappa, mpmath.sqrt(kappa)
        s = (root - 1) / (root + 1)
        estimator = Estimator(float(mpf("0.5") / ell), 3, 7, (1,) * 4)
        terms = _variances(kappa, M, mpf("0.5") * kappa * M)
        rest, sharp = kappa * M * keeps**4, kappa * M * (1 - mpf("0.5") / kappa) ** 5
        away = arb(0.75)
        mean_square = 4 * terms[0] + 8 * terms[1] + 2 * terms[2] + 16 * terms[3] + 16 * rest**2
        best = terms[0] + 2 * terms[1] + 2 * terms[2] + 2 * terms[3]
        pairs: dict[str, tuple[Any, Any]] = {
            "rate of y": (rate_y(c, "corrected"), mpmath.sqrt(keeps)),
            "sharp rate of y": (rate_y(c, "sharp"), keeps),
            "rate of v": (float(rate_v(float(kappa), 3, "corrected")), 2 * root * s**3),
            "sharp rate of v": (
                float(rate_v(float(kappa), 3, "sharp")), min(mpf(1), 2 * root * s**3 / (1 + s**6)),
            ),
            "slope in y": (_number(slope_in_y(c)), (1 + kappa) * (ell + M * rho / mu)),
            "rest of the series": (_number(series_rest(c, None, 4)), rest),
            "sharp rest of the series": (_number(series_rest(c, estimator.eta, 4)), sharp),
            "variance": (_number(variance_bound(c, estimator, 5)), best),
            "mean square error": (_number(error_bound(c, estimator, 5, away, "corrected")), mean_square + mpf("0.6")),
            "printed mean square error": (
                _number(error_bound(c, estimator, 5, away, "printed")), mean_square + mpf("0.5625"),
            ),
            "sharp mean square error": (
                _number(error_bound(c, estimator, 5, away, "sharp")), best + (mpf("0.75") + sharp) ** 2,
            ),
            "distance": (_number(distance([arb(3), arb(1)], [arb(0), arb(5)])), mpf(5)),
            "inner product": (_number(inner(arb_mat(2, 1, [1, 2]), arb_mat(2, 1, [3, 5]))), mpf(13)),
        }  # fmt: skip
        if keeps:
            pairs["logarithm of the rate"] = (log_rate_y(c, "corrected"), mpmath.log(keeps) / 2)
            pairs["sharp logarithm of the rate"] = (log_rate_y(c, "sharp"), mpmath.log(keeps))
            D, N = halving(c, "corrected")
            pairs["halving"] = (c.aid_contracts(D, N), True)
            pairs["halving with less"] = (c.aid_contracts(D - 1, N) and D > 1, False)
        yield from compared_items(pairs, str(c))


def _variances(kappa: Any, M: Any, series: Any) -> tuple[Any, Any, Any, Any]:
    """The variances of g_xy through 7 rows, of f_y and f_x through 3, of the series through 5; each without weight."""
    return (kappa * M) ** 2 / 7, (kappa * M) ** 2 / 3, M**2 / 3, (series * 1) ** 2 / 5


def _number(ball: Any) -> Any:
    return mpf(np.float64(float(ball)))
