"""Hypothesis strategies: bilevel problems, and above all degenerate ones, for property tests of a user's solver.

Every problem is strongly convex in y by construction, has a box, shrinks to something that a person can read, and
prints as code that can be pasted. ``recipes`` gives what is known of each as well. Needs the extra ``test``.

>>> from hypothesis import find
>>> find(degenerate("f independent of y"), lambda problem: True)
BilevelProblem('x1', '-2*x1*y1 + y1**2', 'x1', 'y1', box={'x1': (-1, 1), 'y1': (-2, 2)})
"""

try:
    import hypothesis as _hypothesis  # noqa: F401
except ModuleNotFoundError as missing:
    if missing.name != "hypothesis":
        raise
    raise ModuleNotFoundError(
        'verify.strategies wants Hypothesis\ntry: pip install "bilevel-sym[test]"', name="hypothesis"
    ) from None

from verify.strategies.kinds import DEGENERATE
from verify.strategies.points import points
from verify.strategies.problems import (
    degenerate,
    minimax_problems,
    problems,
    quadratics,
    recipes,
    stochastic_problems,
)
from verify.strategies.recipe import Recipe

__all__ = [
    "DEGENERATE",
    "Recipe",
    "degenerate",
    "minimax_problems",
    "points",
    "problems",
    "quadratics",
    "recipes",
    "stochastic_problems",
]
