"""erf, the error function: 2/sqrt(pi) times the integral of exp(-t^2) from 0 to z."""

from __future__ import annotations

from fractions import Fraction
from typing import Any

from flint import fmpq

from bilevel_sym.graph.operations.record import Shape, Source, at_zero, function

__all__ = ["RECORD"]


def _slope(graph: Any, z: Any, itself: Any) -> Any:
    """2/sqrt(pi) exp(-z^2)."""
    factor = graph.power(graph.apply("pi"), -1, 2).scaled(fmpq(2))
    return graph.mul(graph.apply("exp", -graph.power(z, 2)), factor)


def _of_array(z: Any) -> Any:
    from scipy.special import erf  # when it is first used: it takes a while to import

    return erf(z)


_SOURCE = Source(
    "erf({})",
    {"jax": "jax.scipy.special.erf({})", "torch": "torch.erf({})"},
    {"numpy": "erf = np.vectorize(math.erf, otypes=[float])"},
)

RECORD = function(
    "erf", Shape("monotone", -1.0, 1.0), _slope,
    folded=at_zero(0), numpy=_of_array, source=_SOURCE,
    # of 2/sqrt(pi) h(t) exp(-t^2) with h = 1, -2 t, 4 t^2 - 2, and 12 t - 8 t^3
    bounds=lambda T: (Fraction(1), Fraction(113, 100), Fraction(97, 100), Fraction(226, 100), Fraction(441, 100)),
)  # fmt: skip
