"""Diagnosis: which defect explains an error? Hypotheses are fitted to it, and the simplest that fits is named."""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from bilevel_sym.typing import Bools, Floats
from verify.testkit.candidate import norms

__all__ = ["Cause", "Diagnosis", "Evidence", "Suspect", "explain", "unexplained"]

Cause = Literal[
    "direct", "cross", "inverse", "y*", "sign", "factor", "transpose", "third derivative", "quadratic", "arguments",
    "predecessor", "noise", "precision", "tolerance", "symmetry", "not finite", "shape", "unexplained",
]  # fmt: skip

FITS = 0.02  # a hypothesis must explain all of the error but this share of it
EXACT_FIT = 1e-6  # the same, of one that is close to the truth
NEARLY = 0.05  # a weight this close to 1
PRICE = 2.5  # in powers of e: what each free coefficient must gain
TIE = 1.0  # in powers of e: two hypotheses this close cannot be told apart here
SAME = 9  # decimals, in which two points are one
SPARE = 3  # numbers beyond the free coefficients, without which a fit says nothing


@dataclass(frozen=True, eq=False)
class Evidence:
    """What a candidate returned at P points, and the truth there; ``floor`` is what rounding may do to it there."""

    values: Floats
    truth: Floats
    floor: Floats

    @property
    def errors(self) -> Floats:
        """The norm of the error at each point."""
        return norms(self.values - self.truth)

    @property
    def telling(self) -> Bools:
        """The points at which the error is more than rounding."""
        return np.asarray(self.errors > 10 * self.floor)


@dataclass(frozen=True, eq=False)
class Suspect:
    """A hypothesis: a candidate with this defect returns ``value + sum of c_k basis_k`` at the points, (P, ...).

    ``what`` may hold {0}, {1}, ... for the coefficients; ``look_at`` says where in a program to look.
    """

    cause: Cause
    what: str
    look_at: str
    value: Floats
    basis: tuple[Floats, ...] = ()


@dataclass(frozen=True)
class Diagnosis:
    """What is suspected. ``residual`` is the share of the error that it leaves unexplained; ``also`` explains as well.

    >>> print(Diagnosis("sign", "the sign of the whole is wrong", "the return statement", residual=1e-15))
    the sign of the whole is wrong (explains the error to 15 digits)
    """

    cause: Cause
    what: str
    look_at: str
    residual: float = math.nan
    also: tuple[str, ...] = ()

    def __str__(self) -> str:
        if not self.residual < 1:
            return self.what
        digits = min(15, round(-math.log10(max(self.residual, 1e-15))))
        return f"{self.what} (explains the error to {digits} digit{'s' * (digits != 1)})"


def unexplained() -> Diagnosis:
    """Nothing fits.

    >>> unexplained().cause
    'unexplained'
    """
    return Diagnosis("unexplained", "no known defect explains the error", "each term at the point above")


def explain(evidence: Evidence, suspects: Iterable[Suspect]) -> Diagnosis:
    """The simplest hypothesis that explains the error at all points; others that do as well are named too.

    >>> truth = np.array([[1.0], [2.0], [4.0], [-3.0]])
    >>> at = Evidence(0.5 * truth, truth, np.full(4, 1e-12))
    >>> found = explain(at, [Suspect("sign", "the sign is wrong", "", -truth),
    ...                      Suspect("factor", "it is {0:.3g} times the truth", "", 0 * truth, (truth,))])
    >>> found.cause, found.what
    ('factor', 'it is 0.5 times the truth')
    """
    with np.errstate(all="ignore"):  # what a diverging solver returns may overflow when it is squared
        fits = [fit for suspect in suspects if (fit := _fit(evidence, suspect)) is not None]
    if not fits:
        return unexplained()
    level = min(fit.score for fit in fits) + TIE
    best, *rest = (fit for fit in fits if fit.score <= level)  # the first: suspects come in the order of simplicity
    also = {fit.suspect.cause: fit.what for fit in reversed(rest) if fit.suspect.cause != best.suspect.cause}
    return Diagnosis(
        best.suspect.cause, best.what, best.suspect.look_at, best.residual, tuple(reversed(also.values()))[:3]
    )


@dataclass(frozen=True, eq=False)
class _Fit:
    suspect: Suspect
    residual: float
    score: float
    coefficients: tuple[float, ...]

    @property
    def what(self) -> str:
        return self.suspect.what.format(*map(_Weight, self.coefficients)) if self.coefficients else self.suspect.what


class _Weight(float):
    """A coefficient in a sentence: 1 + 2e-07 where four digits would call it 1.

    >>> f"{_Weight(0.5):.4g}, {_Weight(1 - 2e-7):.4g}"
    '0.5, 1 - 2e-07'
    """

    def __format__(self, spec: str) -> str:
        shown, off = super().__format__(spec), float(self) - 1
        return f"1 {'-' if off < 0 else '+'} {abs(off):.2g}" if shown == "1" and off else shown


def _fit(evidence: Evidence, suspect: Suspect) -> _Fit | None:
    """Least squares, each point weighted by its error; None where the hypothesis does not explain it."""
    telling = evidence.telling
    weight = 1 / evidence.errors[telling]
    rest = _rows(evidence.values - suspect.value, telling, weight)
    basis = [_rows(b, telling, weight) for b in suspect.basis]
    if not rest.size or not all(np.isfinite(part).all() for part in (rest, *basis)):
        return None
    size, free = rest.size, len(basis)
    told = _distinct([part[telling] for part in (evidence.values, suspect.value, *suspect.basis)]) * rest.shape[1]
    coefficients: tuple[float, ...] = ()
    if free:
        if told < free + SPARE:
            return None
        columns = np.stack([b.ravel() for b in basis], axis=1)
        solution = np.linalg.lstsq(columns, rest.ravel(), rcond=1e-10)[0]
        rest = rest - (columns @ solution).reshape(rest.shape)
        coefficients = tuple(map(float, solution))
    rounding = float(np.sqrt(np.mean((evidence.floor[telling] * weight) ** 2)))
    residual = float(np.linalg.norm(rest)) / math.sqrt(telling.sum()) * math.sqrt(size / max(1, size - free))
    if residual > FITS + 0.1 * rounding:
        return None
    if residual > EXACT_FIT + rounding and _is_nearly_right(evidence, suspect, coefficients):
        return None
    score = math.log(max(residual, 1e-2 * rounding, 1e-16)) + PRICE * free
    return _Fit(suspect, residual, score, coefficients)


def _is_nearly_right(evidence: Evidence, suspect: Suspect, coefficients: tuple[float, ...]) -> bool:
    """A weight such as 1.0003: a small error of another kind may be about proportional to a term."""
    if len(coefficients) != 1 or abs(coefficients[0] - 1) > NEARLY:
        return False
    off = norms(suspect.value + suspect.basis[0] - evidence.truth)
    return bool((off <= np.maximum(evidence.floor, 1e-9 * evidence.errors)).all())


def _distinct(parts: list[Floats]) -> int:
    """At how many points a fit is asked anew: where all is constant, twelve points say what one does."""
    together = np.hstack([part.reshape(len(part), -1) for part in parts])
    scale = np.abs(together).max(axis=0)
    return len(np.unique(np.round(together / np.where(scale > 0, scale, 1.0), SAME), axis=0))


def _rows(array: Floats, chosen: Bools, weight: Floats) -> Floats:
    return np.asarray(array.reshape(len(array), -1)[chosen] * weight[:, None])
