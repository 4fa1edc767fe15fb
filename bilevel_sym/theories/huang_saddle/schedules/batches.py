"""Batch sizes for which the gradient and the Hessian of the batch version of Phi are close to those of Phi."""

from __future__ import annotations

import math
from dataclasses import dataclass

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.constants import Constants

__all__ = [
    "Term",
    "batch_sizes",
    "concentration",
    "gradient_terms",
    "hessian_terms",
    "tensor_concentration",
    "term_delta",
]


@dataclass(frozen=True, slots=True)
class Term:
    """One derivative whose batch mean must be close: which level samples it, its coefficient, the norm of a sample."""

    level: str
    derivative: str
    coefficient: float
    norm: float


def gradient_terms(constants: Constants, M_g: float) -> tuple[Term, ...]:
    """The six terms that bound the error of the batch gradient of Phi.

    |f_x| + kappa |f_y| + ell M/mu^2 |g_yy| + M/mu |g_xy| + (two times) c/(2 mu) |g_y|, each of them an error of a batch
    mean, with c = ell + (ell^2 + M rho)/mu + ell M rho/mu^2

    Paper: Lemma D.5 [lem:batch-grad-err]; Equation D.47 [unlabelled:stochastic-gradient-split]
    Paper: Equation D.48 [unlabelled:six-terms]
    Assumes: Assumption 4.3 [ass:stoc]; samples of g_y bounded by ``M_g``.
    Deviation: one of the two errors of g_y is taken where the batch's own solution lies, to which a lemma for a fixed
    point does not apply. Strong convexity of the batch alone gives |y* - y*_batch| <= |error of g_y at y*|/mu, so both
    terms may be taken at the fixed point y*, and the sizes stand.

    >>> [term.coefficient for term in gradient_terms(Constants(1.0, 1.0, 1.0, 1.0, 1.0), M_g=1.0)]
    [1.0, 1.0, 1.0, 1.0, 2.0, 2.0]
    """
    mu, ell, rho, M, kappa = constants.mu, constants.ell, constants.rho, constants.M, constants.kappa
    of_y = ell + (ell**2 + M * rho) / mu + ell * M * rho / mu**2
    return (
        Term("f", "f_x", 1.0, M),
        Term("f", "f_y", kappa, M),
        Term("g", "g_yy", ell * M / mu**2, ell),
        Term("g", "g_xy", M / mu, ell),
        Term("g", "g_y", of_y / (2 * mu), M_g),
        Term("g", "g_y", of_y / (2 * mu), M_g),
    )


def hessian_terms(constants: Constants, M_g: float, variant: Variant = "corrected") -> tuple[Term, ...]:
    """The eleven terms that bound the error of the batch Hessian of Phi.

    With u = 1 + kappa, b = 2 u (ell + rho M/mu) and errors of batch means in bars:
    |f_xx| + 2 kappa |f_xy| + kappa^2 |f_yy| + rho u^2/mu |f_y| + (b ell/mu^2 + rho M u^2/mu^2) |g_yy| + b/mu |g_xy|
    + M/mu |g_xxy| + 2 kappa M/mu |g_xyy| + kappa^2 M/mu |g_yyy| + (two times) c/(2 mu) |g_y| with
    c = u^2 (rho u + 2 kappa rho + 3 rho^2 M/mu^2 + nu M/mu)

    Paper: Lemma D.4 [lem:batch-hess-err]; Equation D.40 [eq:hessphi-err]; Equation D.44 [unlabelled:eleven-terms]
    Assumes: Assumption 4.3 [ass:stoc]; samples of g_y bounded by ``M_g``.
    Deviation: the print carries a factor 2 too many through the error of (dy/dx) g_yxy, as in rho_phi: its coefficients
    are larger by 2 ell rho M/mu^3 (g_yy), 2 rho M/mu^2 (g_xy), 2 ell M/mu^2 (g_xyy) and
    2 M (ell nu + rho^2 (1 + kappa))/mu^2 (in c). For the point at which g_y is taken see ``gradient_terms``.

    >>> [term.coefficient for term in hessian_terms(Constants(1.0, 1.0, 1.0, 1.0, 1.0), M_g=1.0)]
    [1.0, 2.0, 1.0, 4.0, 12.0, 8.0, 1.0, 2.0, 1.0, 16.0, 16.0]
    """
    mu, ell, rho, nu, M = constants.mu, constants.ell, constants.rho, constants.nu, constants.M
    kappa, u = constants.kappa, 1 + constants.kappa
    excess = 1.0 if variant == "printed" else 0.0
    b = 2 * u * (ell + rho * M / mu)
    of_y = u**2 * (rho * u + 2 * kappa * rho + 3 * rho**2 * M / mu**2 + nu * M / mu)
    of_y += excess * 2 * M * (ell * nu + rho**2 * u) / mu**2
    return (
        Term("f", "f_xx", 1.0, ell),
        Term("f", "f_xy", 2 * kappa, ell),
        Term("f", "f_yy", kappa**2, ell),
        Term("f", "f_y", rho / mu * u**2, M),
        Term("g", "g_yy", b * ell / mu**2 + rho * M / mu**2 * u**2 + excess * 2 * ell * rho * M / mu**3, ell),
        Term("g", "g_xy", b / mu + excess * 2 * rho * M / mu**2, ell),
        Term("g", "g_xxy", M / mu, rho),
        Term("g", "g_xyy", (2 + 2 * excess) * kappa * M / mu, rho),
        Term("g", "g_yyy", kappa**2 * M / mu, rho),
        Term("g", "g_y", of_y / (2 * mu), M_g),
        Term("g", "g_y", of_y / (2 * mu), M_g),
    )


def term_delta(delta: float, terms: int, variant: Variant = "corrected") -> float:
    """The failure probability of each of some terms that together fail with probability at most ``delta``.

    delta/terms

    Paper: Lemma D.4 [lem:batch-hess-err]; Lemma D.5 [lem:batch-grad-err]
    Deviation: the print solves (1 - delta')^terms = 1 - delta, as if the terms were independent; they share a batch.

    >>> term_delta(0.25, 5), round(term_delta(0.25, 5, "printed"), 4)
    (0.05, 0.0559)
    """
    return -math.expm1(math.log1p(-delta) / terms) if variant == "printed" else delta / terms


def concentration(norm: float, error: float, delta: float, dimension: int) -> int:
    """How many samples of norm at most ``norm`` make their mean exact to ``error``, with probability 1 - delta.

    16 norm^2 log(2 dimension/delta)/error^2, rounded up

    Paper: Lemma D.1 [lem:err-hess]; Lemma D.2 [lem:err-grad]
    Assumes: for matrices the Bernstein inequality, which gives more (2 + 4 error/(3 norm) in place of 16), with the
    larger of d and n for ``dimension``; for vectors Pinelis' inequality.

    >>> concentration(norm=1.0, error=0.5, delta=0.1, dimension=5)
    295
    """
    return whole_size(16 * squared(norm / error) * math.log(2 * dimension / delta))


def tensor_concentration(norm: float, error: float, delta: float, dimension: int) -> int:
    """How many third derivatives of norm at most ``norm`` make their mean exact to ``error``, but for delta.

    16 m norm^2 log((m + m^2)/delta)/error^2, rounded up, with m the dimension

    Paper: Lemma D.3 [lem:err-third]
    Assumes: the Bernstein inequality for the m x m^2 matrices of the tensors, whose norm is at most sqrt(m) times that
    of the tensor, and bounds the norm of the mean.
    Deviation: the print has the bound for matrices, 16 norm^2 log(2 m/delta)/error^2, for tensors too.

    >>> tensor_concentration(1.0, 0.5, 0.1, dimension=1) == concentration(1.0, 0.5, 0.1, dimension=1)
    True
    >>> tensor_concentration(norm=1.0, error=0.5, delta=0.1, dimension=5)
    1826
    """
    return whole_size(16 * dimension * squared(norm / error) * math.log((dimension + dimension**2) / delta))


def squared(value: float) -> float:
    """By a product, which is infinite where a power would raise; that is looked at later."""
    return value * value


def whole_size(size: float) -> int:
    """Of a batch, rounded up."""
    if not math.isfinite(size):
        raise InvalidArgument("a batch size is beyond float64", hint="a larger eps")
    return max(1, math.ceil(size))


def batch_sizes(
    terms: tuple[Term, ...], *, each: float, delta: float, dimension: int, variant: Variant = "corrected"
) -> tuple[int, int]:
    """Sizes of the batches of f and g for which every term, with its coefficient, is at most ``each``.

    Paper: Formula [unlabelled:batch-sizes]
    Deviation: third derivatives take ``tensor_concentration``; the print counts them as matrices.

    >>> terms = (Term("f", "f_x", 1.0, 1.0), Term("g", "g_y", 2.0, 1.0))
    >>> batch_sizes(terms, each=0.5, delta=0.2, dimension=5)
    (295, 1179)
    """
    part = term_delta(delta, len(terms), variant)
    sizes = {"f": 1, "g": 1}
    for term in terms:
        if term.coefficient * term.norm > 0:
            third = len(term.derivative) == len("g_xxy") and variant != "printed"
            needed = (tensor_concentration if third else concentration)(
                term.coefficient * term.norm, each, part, dimension
            )
            sizes[term.level] = max(sizes[term.level], needed)
    return sizes["f"], sizes["g"]
