"""Hypothesis strategies: bilevel problems, and above all degenerate ones, for property tests of a user's solver.

Every problem is strongly convex in y by construction, has a box, shrinks to something that a person can read, and
prints as code that can be pasted. ``recipes`` gives what is known of each as well. ``d`` and ``n`` are numbers, or
pairs (least, greatest): 1 to 3 unless a kind wants more. Needs the extra ``test``.

>>> from hypothesis import find
>>> find(degenerate("f independent of y"), lambda problem: True)
BilevelProblem('x1', '-2*x1*y1 + y1**2', 'x1', 'y1', box={'x1': (-1, 1), 'y1': (-2, 2)})
"""

from __future__ import annotations

try:
    import hypothesis as _hypothesis  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "hypothesis":
        raise
    raise ModuleNotFoundError(
        'verify.strategies wants Hypothesis\ntry: pip install "bilevel-sym[test]"', name="hypothesis"
    ) from None

import math
from fractions import Fraction
from typing import Any

import hypothesis.strategies as st
import numpy as np
import sympy as sp

from bilevel_sym import BilevelProblem, MinimaxProblem, StochasticProblem
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Floats
from verify.strategies.array_problems import array_problems
from verify.strategies.drawing import draw_recipe
from verify.strategies.recipe import DEGENERATE, KINDS, Recipe, Size, shapes, style_of

__all__ = [
    "DEGENERATE",
    "Recipe",
    "array_problems",
    "degenerate",
    "minimax_problems",
    "points",
    "problems",
    "quadratics",
    "recipes",
    "stochastic_problems",
]

_GRID_PARTS = 16  # of the narrowest grid


def recipes(kind: str = "general", *, d: Size | None = None, n: Size | None = None) -> st.SearchStrategy[Recipe]:
    """Problems with what is known of them: constants over the box, spectrum, y*.

    ``kind`` is "general", "quadratic", "minimax", "stochastic" or one of ``DEGENERATE``.

    >>> from hypothesis import find
    >>> recipe = find(recipes("ill-conditioned", n=2), lambda recipe: recipe.kappa == 10**8)
    >>> recipe.problem.g, recipe.constants.mu, recipe.y_star
    (-x1*y1 + y1**2/2 + 50000000*y2**2, 1, (x1, 0))
    """
    _require_shape(kind, d, n)
    return _recipes(kind, d, n)


def problems(*, d: Size | None = None, n: Size | None = None) -> st.SearchStrategy[BilevelProblem]:
    """Smooth bilevel problems over a box, g strongly convex in y, with and without third derivatives.

    >>> from hypothesis import find
    >>> find(problems(d=2, n=1), lambda problem: True)
    BilevelProblem('y1', '-2*x1*y1 + y1**2', 'x1 x2', 'y1', box={'x1': (-1, 1), 'x2': (-1, 1), 'y1': (-2, 2)})
    """
    _require_shape("general", d, n)
    return _problems("general", d, n)


def quadratics(*, d: Size | None = None, n: Size | None = None) -> st.SearchStrategy[BilevelProblem]:
    """Bilevel problems with quadratic f and g.

    >>> from hypothesis import find
    >>> find(quadratics(d=1, n=2), lambda problem: problem.g.coeff(problem.y[0] * problem.y[1]) != 0).g
    -4*x1*y1 + 2*x1*y2 + 2*y1**2 - 2*y1*y2 + 2*y2**2
    """
    _require_shape("quadratic", d, n)
    return _problems("quadratic", d, n)


def minimax_problems(*, d: Size | None = None, n: Size | None = None) -> st.SearchStrategy[MinimaxProblem]:
    """Minimax problems, f strongly concave in y.

    >>> from hypothesis import find
    >>> find(minimax_problems(), lambda problem: True)
    MinimaxProblem('2*x1*y1 + x1 - y1**2', 'x1', 'y1', box={'x1': (-1, 1), 'y1': (-2, 2)})
    """
    _require_shape("minimax", d, n)
    return _problems("minimax", d, n)


def stochastic_problems(*, d: Size | None = None, n: Size | None = None) -> st.SearchStrategy[StochasticProblem]:
    """Stochastic problems; every row of the data gives a g that is strongly convex in y.

    >>> from hypothesis import find
    >>> problem = find(stochastic_problems(), lambda problem: True)
    >>> problem.F, problem.G, problem.zeta_data
    (x1*xi + y1, -2*x1*y1 + y1**2 + y1*zeta, ((-1,), (1,)))
    """
    _require_shape("stochastic", d, n)
    return _problems("stochastic", d, n)


def degenerate(
    kind: str | None = None, *, d: Size | None = None, n: Size | None = None
) -> st.SearchStrategy[BilevelProblem]:
    """Problems on the edges, where implementations break: one kind of ``DEGENERATE``, or all of them that fit d and n.

    >>> from hypothesis import find
    >>> find(degenerate("few eigenvalues"), lambda problem: True).g
    -2*x1*y1 + y1**2 + 3*y2**2 + 3*y3**2
    """
    if kind is None:
        fitting = [each for each in DEGENERATE if shapes(KINDS[each], d, n)]
        return st.sampled_from(fitting).flatmap(lambda each: _problems(each, d, n))
    if kind not in DEGENERATE:
        raise InvalidArgument(f"{kind!r:.60} is no degenerate kind", hint=f"one of {', '.join(DEGENERATE)}")
    _require_shape(kind, d, n)
    return _problems(kind, d, n)


def _require_shape(kind: str, d: Size | None, n: Size | None) -> None:
    if not shapes(style_of(kind), d, n):
        raise InvalidArgument(f"no problem of kind {kind!r} has d = {d} and n = {n}", hint="allow other sizes")


@st.composite
def _recipes(draw: st.DrawFn, kind: str, d: Size | None, n: Size | None) -> Recipe:
    return draw_recipe(draw, kind, d, n)


# made in a composite and not by ``map``, so that a failing example is printed as the problem's own code
@st.composite
def _problems(draw: st.DrawFn, kind: str, d: Size | None, n: Size | None) -> Any:  # of the class that the kind says
    return draw_recipe(draw, kind, d, n).problem


def points(problem: BilevelProblem) -> st.SearchStrategy[Floats]:
    """Points x of the problem's box: small binary fractions, with its corners, its middle and zero among them.

    >>> from hypothesis import find
    >>> problem = BilevelProblem("x1*y", "y**2 - x2*y", "x1 x2", "y", box={"x1": (-1, 1), "x2": (1, 3), "y": (-1, 1)})
    >>> find(points(problem), lambda x: x[0] > 0)[0]
    np.float64(1.0)
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"points belong to a problem, but this is a {type(problem).__name__}")
    if problem.box is None:
        raise InvalidArgument(
            "the problem has no box to draw points from", hint="give it one: box={'x1': (-1, 1), ...}"
        )
    ends = problem.ends("x") or ()
    return st.tuples(*(_coordinates(*pair) for pair in ends)).map(lambda x: np.array(x, dtype=np.float64))


def _coordinates(low: sp.Rational, high: sp.Rational) -> st.SearchStrategy[float]:
    """Zero, multiples of powers of two, coarse ones first, the ends and the middle: those between the ends, exactly."""
    if low == high:
        return st.just(float(low))
    a, b = Fraction(low.p, low.q), Fraction(high.p, high.q)
    finest = math.floor(math.log2((b - a) / _GRID_PARTS))
    marks = [value for value in (a, b, (a + b) / 2) if Fraction(float(value)) == value]
    return st.one_of(
        *([st.just(0.0)] if a <= 0 <= b else []),
        *(_multiples(a, b, Fraction(2) ** (finest + coarser)) for coarser in (4, 3, 2, 0)),
        *(st.just(float(value)) for value in marks),
    )


def _multiples(low: Fraction, high: Fraction, unit: Fraction) -> st.SearchStrategy[float]:
    first, last = math.ceil(low / unit), math.floor(high / unit)
    return st.integers(first, last).map(lambda k: float(k * unit)) if first <= last else st.nothing()
