"""A minimiser of g that lies on a kink: Newton's method crosses it to and fro, and no better start helps.

Where the lower level failed, the kink is looked for between the point that was reached and the next one.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np

from bilevel_sym.arithmetic.pieces.patterns import needed_by
from bilevel_sym.arrays.display import to_text
from bilevel_sym.arrays.edges import edges_of
from bilevel_sym.arrays.tensor import known_sizes
from bilevel_sym.errors import LowerLevelFailure
from bilevel_sym.implicit.array_program import Values, Workshop
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.typing import Floats

if TYPE_CHECKING:
    from bilevel_sym.kernels.kernels import Kernels

__all__ = ["MOST_VARIABLES", "explained", "on_a_kink", "way_round"]

MOST_VARIABLES = 1000  # of the lower level, up to which Newton's step is computed once more


def way_round(edge: str) -> str:
    """What to write in the place of a kink.

    >>> way_round("y2")
    'sqrt(y2**2 + 1e-4) in the place of abs(y2), which is smooth; for max and hinges see .github/docs/non-smooth.md'
    """
    square = edge if edge.isidentifier() else f"({edge})"
    return (
        f"sqrt({square}**2 + 1e-4) in the place of abs({edge}), which is smooth; for max and hinges see "
        ".github/docs/non-smooth.md"
    )


def explained(kernels: Kernels, error: LowerLevelFailure) -> LowerLevelFailure:
    """The failure itself, or where a kink of g in y stands between y and the next step, one that says so.

    >>> from bilevel_sym import BilevelProblem
    >>> error = LowerLevelFailure("did not converge", x=[0.5], y=[0.25])
    >>> explained(BilevelProblem("x*y", "(y - x)**2/2 + abs(y)", "x", "y").kernels, error).kink
    'y'
    >>> explained(BilevelProblem("x*y", "(y - x)**2/2", "x", "y").kernels, error) is error
    True
    """
    if not kernels.problem.has_kinks or not np.isfinite((*error.x, *error.y)).all():
        return error
    edge = _crossed(kernels, np.array(error.x), np.array(error.y))
    if not edge:
        return error
    return on_a_kink(edge, error.member, error.x, error.y, error.eigenvalue)


def on_a_kink(
    edge: str, member: tuple[int, ...], x: Sequence[float], y: Sequence[float], eigenvalue: float
) -> LowerLevelFailure:
    """The one message for a minimiser on a kink.

    - ``edge``: what vanishes there.
    - ``member``: of the batch.
    - ``x``, ``y``: the point.
    - ``eigenvalue``: the smallest of g_yy.

    >>> print(on_a_kink("y2", (), [1.0], [0.0, 0.0], 1.0).hint)
    sqrt(y2**2 + 1e-4) in the place of abs(y2), which is smooth; for max and hinges see .github/docs/non-smooth.md
    """
    return LowerLevelFailure(
        f"the minimiser of g lies on a kink, {edge} = 0, where g has no derivative, and no start or step helps",
        member=member, x=x, y=y, eigenvalue=eigenvalue, hint=way_round(edge), kink=edge,
    )  # fmt: skip


def _crossed(kernels: Kernels, x: Floats, y: Floats) -> str:
    """The edge of g, as people write it, that has no sign between y and Newton's next point."""
    step = _step(kernels, x, y)
    if step is None:
        return ""
    here, there = np.concatenate([x, y]), np.concatenate([x, y + step])
    problem = kernels.problem.mean
    return _crossed_in_arrays(problem, here, there) if problem.is_array else _crossed_in_scalars(problem, here, there)


def _step(kernels: Kernels, x: Floats, y: Floats) -> Floats | None:
    if kernels.problem.n > MOST_VARIABLES:
        return None
    freely = kernels.one_sided
    g_y, g_yy = freely.g_y(x, y), freely.g_yy(x, y)
    try:
        return np.asarray(-np.linalg.solve(g_yy, g_y))
    except np.linalg.LinAlgError:
        return None


def _crossed_in_scalars(problem: BilevelProblem, here: Floats, there: Floats) -> str:
    """Edges at which g has a derivative in y do not count."""
    patterns = problem.tape.patterns
    if patterns is None:
        return ""
    matters, smooth = patterns.allowed(needed_by(("g_y",)), exists=True)
    turns = ~(patterns.values(here) * patterns.values(there) > 0)
    places = np.flatnonzero(matters & ~smooth & turns)
    return str(problem.tape.edge_expression(int(places[0]))) if len(places) else ""


def _crossed_in_arrays(problem: BilevelProblem, here: Floats, there: Floats) -> str:
    model = problem.array_model
    edges = edges_of(model.g, set(model.y))
    values = Values(Workshop(model, known_sizes(problem.dimensions), problem.arrays), edges)
    first, then = ([value.copy() for value in values.at(point)] for point in (here, there))
    for edge, before, after in zip(edges, first, then, strict=True):
        if (~(before * after > 0)).any():
            return to_text(edge)
    return ""
