"""Rates: what the inner loops of AID keep of the distance to their solution, as printed and as sharp forms."""

from __future__ import annotations

import math

import numpy as np

from bilevel_sym import Constants
from bilevel_sym.theories import Variant
from bilevel_sym.typing import Floats

__all__ = ["log_rate_y", "rate_v", "rate_y"]


def rate_y(constants: Constants, variant: Variant) -> float:
    """What a descent step of size 1/ell keeps of |y - y*|, at most: sqrt(1 - mu/ell), and 1 - mu/ell as sharp form.

    The sharp form: the averaged Hessian has eigenvalues in [mu, ell], so those of I - H/ell lie in [0, 1 - mu/ell].

    Paper: Equation B.22 [eq:gdrate]

    >>> rate_y(Constants(1.0, 4.0, 0.0, 0.0, 1.0), "corrected"), rate_y(Constants(1.0, 4.0, 0.0, 0.0, 1.0), "sharp")
    (0.8660254037844386, 0.75)
    """
    keeps = float((constants.ell - constants.mu) / constants.ell)
    return keeps if variant == "sharp" else float(np.sqrt(keeps))


def log_rate_y(constants: Constants, variant: Variant) -> float:
    """The logarithm of ``rate_y``, also where that is 1 to 16 digits; mu < ell.

    >>> log_rate_y(Constants(1e-20, 1.0, 0.0, 0.0, 1.0), "sharp")
    -1e-20
    """
    return math.log1p(-float(constants.mu / constants.ell)) / (1 if variant == "sharp" else 2)


def rate_v(kappa: Floats | float, steps: int, variant: Variant) -> Floats:
    """What ``steps`` steps of conjugate gradients keep of |v - v_hat|, at most.

    2 sqrt(kappa) q^N with q = (sqrt(kappa) - 1)/(sqrt(kappa) + 1). The sharp form: Chebyshev's polynomial gives
    2 q^N/(1 + q^(2N)) in the norm of the matrix, so sqrt(kappa) times that, and CG never moves away in either norm.

    Paper: Equation B.21 [eq:cgrate]

    >>> float(rate_v(9.0, 1, "corrected")), float(rate_v(9.0, 0, "sharp"))
    (3.0, 1.0)
    """
    root = np.sqrt(np.asarray(kappa, dtype=np.float64))
    rate = (root - 1) / (root + 1)
    power = rate**steps
    if variant == "sharp":
        return np.asarray(np.minimum(1.0, 2 * root * power / (1 + power**2)))
    return np.asarray(2 * root * power)
