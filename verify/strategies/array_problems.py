"""Array problems to draw: generalised linear lower levels whose rows, features and singular values are chosen."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from types import MappingProxyType
from typing import Any, Literal

import hypothesis.strategies as st
import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Floats
from verify.strategies.recipe import Size

__all__ = ["LEVELS", "LOSSES", "Spectrum", "array_problems", "matrices"]

Spectrum = Literal["any", "isotropic", "few", "spread"] | Sequence[float]

LOSSES: Mapping[str, str] = MappingProxyType(
    {
        "squares": "(A @ y - b)**2/2",
        "logistic": "softplus(-b*(A @ y))",
        "pseudo-huber": "sqrt(1 + (A @ y - b)**2)",
        "logcosh": "log(cosh(A @ y - b))",
    }
)
"""The losses of a row, by name."""

LEVELS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {
        "target": ("x[n]", "sum({loss}) + y @ y/2 - x @ y"),
        "penalty": ("x", "sum({loss}) + exp(x)*(y @ y)/2"),
        "penalties": ("x[n]", "mean({loss}) + exp(x) @ y**2/2"),
        "weights": ("x[m]", "sigmoid(x) @ ({loss}) + y @ y/2"),
    }
)
"""What x is, by name: how it is declared, and the lower level with a place for the loss."""

_UPPER = ("c @ y", "sum((y - c)**2)/2", "sum(softplus(y*c)) + sum(y**2)/4")
_MORE = ("", " + sum(x**2)/2", " + sum(sin(x))")
_MORE_OF_ONE = ("", " + x**2/2", " + sin(x)")  # where x is a number
_ENTRIES = (1.0, -1.0, 0.0, 2.0, 0.5, -0.25)
_TURNS = ((1.0, 0.0), (0.6, 0.8), (0.0, 1.0), (0.8, -0.6))
_VALUES = (1.0, 2.0, 0.5, 4.0)
_MOST_DECADES = 4


def array_problems(
    *,
    rows: Size = (1, 4),
    features: Size = (1, 3),
    spectrum: Spectrum = "any",
    losses: Sequence[str] = tuple(LOSSES),
    levels: Sequence[str] = tuple(LEVELS),
) -> st.SearchStrategy[BilevelProblem]:
    """Bilevel problems with a data matrix A, strongly convex in y by construction, with a box for x.

    - ``rows``: of A, a number or a pair (least, greatest).
    - ``features``: columns of A, which are the entries of y, likewise.
    - ``spectrum``: the singular values of A: "isotropic" (all equal), "few" (two different ones), "spread" (over four
      decades), "any", or the values themselves; further ones are zero.
    - ``losses``: those to choose from, by their names in ``LOSSES``.
    - ``levels``: what x may be, by the names in ``LEVELS``.

    >>> from hypothesis import find
    >>> find(array_problems(rows=2, features=1, losses=["logistic"], levels=["penalty"]), lambda problem: True)
    BilevelProblem('c @ y', 'sum(softplus(-b*(A @ y))) + exp(x)*(y @ y)/2', 'x', 'y[n]', data={'A': [[1], [0]], 'b': [1, 1], 'c': [1]}, box={'x': (-1, 1)})
    """  # noqa: E501 - code is printed on one line
    for given, known, what in ((losses, LOSSES, "losses"), (levels, LEVELS, "levels")):
        if not given or any(name not in known for name in given):
            raise InvalidArgument(f"{what}={given!r:.60}", hint=f"some of {', '.join(known)}")
    _sizes(rows, "rows")
    _sizes(features, "features")
    _check_spectrum(spectrum)
    return _problems(rows, features, spectrum, tuple(losses), tuple(levels))


@st.composite
def _problems(
    draw: st.DrawFn, rows: Size, features: Size, spectrum: Spectrum, losses: Sequence[str], levels: Sequence[str]
) -> BilevelProblem:
    m, n = draw(_sizes(rows, "rows")), draw(_sizes(features, "features"))
    loss, (declared, lower) = LOSSES[draw(st.sampled_from(losses))], LEVELS[draw(st.sampled_from(levels))]
    A = draw(matrices(m, n, spectrum))
    b, c = (draw(_vectors(size)) for size in (m, n))
    upper = draw(st.sampled_from(_UPPER)) + draw(st.sampled_from(_MORE if "[" in declared else _MORE_OF_ONE))
    data = {"A": A, "b": b, "c": c}
    # the letters of dimensions are read off the data
    x = declared.replace("[m]", f"[{m}]") if declared == "x[m]" else declared
    return BilevelProblem(upper, lower.format(loss=loss), x, "y[n]", data=data, box={"x": (-1, 1)})


@st.composite
def matrices(draw: st.DrawFn, rows: int, columns: int, spectrum: Spectrum = "any") -> Any:
    """Matrices with chosen singular values, to rounding: a diagonal one, turned in planes of two rows.

    - ``rows``, ``columns``: the shape.
    - ``spectrum``: as for ``array_problems``.

    >>> from hypothesis import find
    >>> find(matrices(2, 2, (3.0, 1.0)), lambda A: A[1, 0] != 0).round(3).tolist()
    [[1.8, 0.8], [-2.4, 0.6]]
    """
    values = _values(draw, min(rows, columns), spectrum)
    A = np.zeros((rows, columns))
    A[np.arange(len(values)), np.arange(len(values))] = values
    for one in range(rows - 1):
        cosine, sine = draw(st.sampled_from(_TURNS))
        first, second = A[one].copy(), A[one + 1].copy()
        A[one], A[one + 1] = cosine * first + sine * second, cosine * second - sine * first
    return A + 0.0


def _values(draw: st.DrawFn, count: int, spectrum: Spectrum) -> list[float]:
    if not isinstance(spectrum, str):
        return [*map(float, spectrum), *[0.0] * count][:count]
    value = st.sampled_from(_VALUES)
    if spectrum == "isotropic":
        return [draw(value)] * count
    if spectrum == "few":
        first = draw(value)
        return [first, *[4 * first] * (count - 1)]
    if spectrum == "spread":
        decades = draw(st.integers(1, _MOST_DECADES))
        return [10.0 ** (-decades * k / max(1, count - 1)) for k in range(count)]
    return [draw(value) for _ in range(count)]


def _vectors(size: int) -> st.SearchStrategy[Floats]:
    return st.lists(st.sampled_from(_ENTRIES), min_size=size, max_size=size).map(np.array)


def _sizes(given: Size, what: str) -> st.SearchStrategy[int]:
    low, high = (given, given) if isinstance(given, int) else given
    if isinstance(given, bool) or not 1 <= low <= high:
        raise InvalidArgument(f"{what}={given!r:.40}", hint="a number from 1, or a pair (least, greatest)")
    return st.integers(low, high)


def _check_spectrum(spectrum: object) -> None:
    if isinstance(spectrum, str) and spectrum in ("any", "isotropic", "few", "spread"):
        return
    numbers = isinstance(spectrum, (list, tuple)) and all(isinstance(s, (int, float)) and s >= 0 for s in spectrum)
    if not numbers:
        raise InvalidArgument(
            f"spectrum={spectrum!r:.60}", hint="'any', 'isotropic', 'few', 'spread', or singular values such as (3, 1)"
        )
