"""Errors in the three lemmas on the concentration of batch means."""

from __future__ import annotations

from fractions import Fraction
from itertools import permutations
from math import comb

import sympy as sp
from flint import arb, fmpq

from verify.erratum import Formula, erratum

_EPS, _DELTA = Fraction(1, 2), Fraction(1, 2)
_WIDE_DIMENSION = 10**6  # the dimension of y on the diagonal


def _ball(number: Fraction) -> arb:
    return arb(fmpq(number.numerator, number.denominator))


def _rows(scale: Fraction, dimension: int, delta: Fraction) -> int:
    """scale log(2 dimension/delta), rounded up; refuses where a ball does not decide the integer."""
    size = _ball(scale) * (_ball(2 * dimension / delta)).log()
    whole = size.ceil().unique_fmpz()
    if whole is None:
        raise ArithmeticError("the logarithm does not decide a number of rows")
    return int(whole)


def _off(rows: int, eps: Fraction) -> Fraction:
    """The chance that the mean of independent signs is off by more than eps, as a sum of binomial coefficients."""
    outcomes = sum(comb(rows, k) for k in range(rows + 1) if abs(Fraction(2 * k - rows, rows)) > eps)
    return Fraction(outcomes, 2**rows)


@erratum(
    "lem:err-hess",
    "unlabelled:batch-hessian",
    "lem:batch-hess-err",
    "lem:batch-grad-err",
    printed="D_f >= 16 L^2 log(2 d/delta)/eps^2, for the blocks f_yy and g_yy too",
    corrected="D_f >= 16 ell^2 log(2 max(d, n)/delta)/eps^2",
    forms=(lambda d, n: d, max),
    witness="d = 1, n = 10^6, f_yy the diagonal matrix of n independent signs (ell = 1), eps = delta = 1/2: 89 rows, "
    "and some entry of their mean is off by more than eps with probability 0.850, by the exact binomial tail",
    why="The matrix Bernstein inequality counts the rows of the matrix, and f_yy and g_yy are n x n: 2 n exp(-...) for "
    "both ends of the spectrum, d + n for g_xy, hence 2 max(d, n) for every block. For d x d blocks the print is "
    "right.",
    evidence="certified",
)
def err_hess(form: Formula) -> bool:
    """The mean of the batch fails to be within eps with probability at most delta."""
    rows = _rows(16 / _EPS**2, form(1, _WIDE_DIMENSION), _DELTA)
    fails = 1 - (1 - _ball(_off(rows, _EPS))) ** _WIDE_DIMENSION
    return bool(fails <= _ball(_DELTA))


def _gradient_rows(sigma: Fraction, eps: Fraction, delta: Fraction) -> int:
    """The print with the only constant that Assumption 4.4 gives, sigma, in the place of M."""
    return _rows(16 * sigma**2 / eps**2, 1, delta)


@erratum(
    "lem:err-grad",
    "unlabelled:batch-gradient",
    "unlabelled:largest-term",
    "ass:variance-bound",
    printed="D_g >= 16 M^2 log(2 d/delta)/eps^2 makes |grad_y g - grad_y g_D| <= eps with probability 1 - delta, for "
    "G too",
    corrected="D_g >= sigma^2/(delta eps^2) from Assumption 4.4; or 16 M_g^2 log(2 max(d, n)/delta)/eps^2 under one "
    "more hypothesis, |grad_y G| <= M_g for every sample (as schedules.stocbio takes it)",
    forms=(_gradient_rows, lambda sigma, eps, delta: -(-(sigma**2) // (delta * eps**2))),
    witness="G = y^2/2 - zeta y, zeta = +-a with probability 1/(2 a^2) each and else 0 (sigma = 1), eps = 1/10, delta "
    "= 10^-6: 23214 rows, a just above 23214 eps, and a single +-a, which has probability 4.3e-3, is enough",
    why="Assumption 4.3 gives no M for G, and none exists where G is strongly convex; Assumption 4.4 bounds the "
    "variance of grad G alone, from which Chebyshev's inequality follows, with 1/delta, and no logarithm of it.",
    modelled=True,
)
def err_grad(form: Formula) -> bool:
    """Whatever zeta has variance 1, the mean is off by more than eps with probability at most delta."""
    eps, delta = Fraction(1, 10), Fraction(1, 10**6)
    rows = int(form(Fraction(1), eps, delta))
    a = rows * eps + Fraction(1, 10**6)  # one such sample alone moves the mean of the batch beyond eps
    chance = 1 / a**2
    at_least = rows * chance * (1 - rows * chance)  # exactly one of them, by (1 - p)^(N - 1) >= 1 - N p
    at_most = rows * chance  # some of them
    if at_least <= delta < at_most:
        raise ArithmeticError("the bounds do not decide")
    return bool(at_most <= delta)


def _matrix_norm(tensor: dict[tuple[int, ...], int], m: int) -> sp.Expr:
    """The squared norm of the m x m^2 matrix of a tensor."""
    matrix = sp.zeros(m, m * m)
    for (i, j, k), value in tensor.items():
        matrix[i, j * m + k] = value
    return max((matrix * matrix.T).eigenvals())


@erratum(
    "lem:err-third",
    "unlabelled:batch-third",
    printed="D_g >= 16 rho^2 log(2 d/delta)/eps^2, with the proof of Lemma D.1: as if a tensor of norm rho were a "
    "matrix of norm rho",
    corrected="D_g >= 16 m rho^2 log((m + m^2)/delta)/eps^2, m = max(d, n): the m x m^2 matrix of a tensor of norm "
    "rho has norm at most sqrt(m) rho, and bounds the tensor's norm",
    forms=(lambda d: 1, lambda d: d),
    witness="the third derivative of (y1^3 - 3 y1 y2^2)/6: as a form on unit vectors it has norm 1, as a 2 x 4 matrix "
    "norm sqrt(2); that of y1 y2 y3: 2/sqrt(3) and sqrt(2)",
    why="The matrix Bernstein inequality is about matrices. A tensor's own norm is that of none of its matrices, and "
    "the passage costs up to sqrt(m), as |T u|_F <= sqrt(m) |T u|; for m = 2 it is attained. Whether a logarithm of "
    "the dimension is enough for tensors is not settled by that proof. Powers of kappa and eps are not affected.",
    severity="gap",
    modelled=True,
)
def err_third(form: Formula) -> bool:
    """The squared norm of the matrix is at most so many times that of the tensor, for two tensors whose norm is known.

    A symmetric form is largest on a diagonal, T(v, v, v) with |v| = 1 (Banach).
    """
    harmonic: dict[tuple[int, ...], int] = {(0, 0, 0): 1, (0, 1, 1): -1, (1, 0, 1): -1, (1, 1, 0): -1}
    angle = sp.Symbol("angle", real=True)
    v = (sp.cos(angle), sp.sin(angle))
    cubic = sum(value * v[i] * v[j] * v[k] for (i, j, k), value in harmonic.items())
    if sp.expand((sp.expand_trig(sp.cos(3 * angle)) - cubic).subs(sp.sin(angle) ** 2, 1 - sp.cos(angle) ** 2)) != 0:
        raise ArithmeticError("the form is not the cosine of three times the angle")
    mixed = dict.fromkeys(permutations(range(3)), 1)  # of y1 y2 y3: 6 v1 v2 v3 <= 2/sqrt(3), by the mean inequality
    known = ((harmonic, 2, sp.Integer(1)), (mixed, 3, sp.Rational(4, 3)))
    return all(bool(_matrix_norm(tensor, m) <= form(m) * norm) for tensor, m, norm in known)
