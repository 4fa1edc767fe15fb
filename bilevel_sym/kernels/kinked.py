"""A minimiser of g that lies on a kink: Newton's method crosses it to and fro, and no better start helps.

Where the lower level failed, the kink is looked for between the point that was reached and the next one.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from contextlib import suppress
from typing import TYPE_CHECKING

import numpy as np

from bilevel_sym.arithmetic.pieces.patterns import needed_by
from bilevel_sym.arrays.edges import switches_of
from bilevel_sym.arrays.tensor import known_sizes
from bilevel_sym.errors import BilevelError, KernelError, LowerLevelFailure
from bilevel_sym.implicit.array_program import Values, Workshop
from bilevel_sym.kernels.arguments import LOWER
from bilevel_sym.problem.kinks import Kink, array_kink, array_kinks, kink_at_edge, scalar_kinks, smooth_in_place
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.typing import Floats

if TYPE_CHECKING:
    from bilevel_sym.kernels.kernels import Kernels

__all__ = ["MOST_VARIABLES", "explained", "kink_at", "on_a_kink", "refuse_kinked"]

MOST_VARIABLES = 1000  # of the lower level, up to which Newton's step is computed once more


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
    kink = _crossed(kernels, np.array(error.x), np.array(error.y))
    if kink is None:
        return error
    return on_a_kink(kink, error.member, error.x, error.y, error.eigenvalue)


def on_a_kink(
    kink: Kink, member: tuple[int, ...], x: Sequence[float], y: Sequence[float], eigenvalue: float
) -> LowerLevelFailure:
    """The one message for a minimiser on a kink.

    - ``kink``: the kink.
    - ``member``: of the batch.
    - ``x``, ``y``: the point.
    - ``eigenvalue``: the smallest of g_yy.

    >>> print(on_a_kink(Kink("y2", "another"), (), [1.0], [0.0, 0.0], 1.0).what)
    the minimiser of g lies on a kink, y2 = 0, where g has no derivative, and no start or step helps
    """
    return LowerLevelFailure(
        f"the minimiser of g lies on a kink, {kink}, where g has no derivative, and no start or step helps",
        member=member, x=x, y=y, eigenvalue=eigenvalue, hint=kink.instead, kink=kink.edge,
    )  # fmt: skip


def kink_at(kernels: Kernels, x: Floats) -> LowerLevelFailure | None:
    """What is wrong at x where the minimiser lies on a kink; None where it does not.

    >>> from bilevel_sym import BilevelProblem
    >>> lasso = BilevelProblem("x*y", "(y - x)**2/2 + abs(y)", "x", "y").kernels
    >>> [failure and failure.kink for failure in (kink_at(lasso, np.array([x])) for x in (0.0, 0.5, 3.0))]
    ['y', 'y', None]
    """
    if not kernels.problem.has_kinks:
        return None
    try:
        kernels.y_star(x)
    except LowerLevelFailure as error:
        return error if error.kink else None
    except KernelError:
        with suppress(BilevelError):
            return _on_the_kink(kernels, x)
    return None


def refuse_kinked(kernels: Kernels, x: Floats) -> None:
    """LowerLevelFailure where the minimiser of g lies on a kink of g for all of these x. See ``Kernels``.

    >>> from bilevel_sym import BilevelProblem
    >>> refuse_kinked(BilevelProblem("x*y", "(y - x)**2/2 + abs(y)", "x", "y").kernels, np.array([[0.5], [3.0]]))
    """
    if not kernels.problem.has_kinks:
        return
    first: LowerLevelFailure | None = None
    for row in x:
        failure = kink_at(kernels, row)
        if failure is None:
            return
        first = first or failure
    if first is not None:
        raise first.renamed(())


def _on_the_kink(kernels: Kernels, x: Floats) -> LowerLevelFailure | None:
    """The same where Newton's method happens to end on the kink itself, as it does from y = 0 on that of abs(y)."""
    y = kernels.one_sided.y_star(x)
    assert kernels.kinks is not None
    met = kernels.kinks.met(LOWER, np.concatenate([x, y])[None], solved=True).values()
    edge = next((edge for edge in met if _has_y(kernels.problem, edge)), None)  # an edge in x alone is no kink in y
    if edge is None:
        return None
    kink = _named(kernels.problem.mean, edge.removesuffix(" = 0"))
    curvature = float(np.linalg.eigvalsh(kernels.one_sided.g_yy(x, y))[0]) if len(y) <= MOST_VARIABLES else np.nan
    return on_a_kink(kink, (), x.tolist(), y.tolist(), curvature)


def _has_y(problem: BilevelProblem, edge: str) -> bool:
    """Whether a variable of the lower level stands in an edge."""
    names = {*map(str, problem.y_entries), *(name for name, _ in problem.entries_by_array("y"))}
    return not names.isdisjoint(re.findall(r"\w+", edge))


def _named(problem: BilevelProblem, edge: str) -> Kink:
    """The kink with this edge, as people write it."""
    own = problem.lowered() if problem.is_array and "_" in edge else problem
    kinks = array_kinks(own.array_model.g, own.array_model.y) if own.is_array else scalar_kinks(own.g, own.x, own.y)
    return next((kink for kink in kinks if kink.edge == edge), Kink(edge, smooth_in_place("abs", edge)))


def _crossed(kernels: Kernels, x: Floats, y: Floats) -> Kink | None:
    """The kink of g whose edge has no sign between y and Newton's next point."""
    step = _step(kernels, x, y)
    if step is None:
        return None
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


def _crossed_in_scalars(problem: BilevelProblem, here: Floats, there: Floats) -> Kink | None:
    """Edges at which g has a derivative in y do not count."""
    patterns = problem.tape.patterns
    if patterns is None:
        return None
    matters, smooth = patterns.allowed(needed_by(("g_y",)), exists=True)
    turns = ~(patterns.values(here) * patterns.values(there) > 0)
    places = np.flatnonzero(matters & ~smooth & turns)
    return kink_at_edge(problem.g, problem.tape.edge_expression(int(places[0]))) if len(places) else None


def _crossed_in_arrays(problem: BilevelProblem, here: Floats, there: Floats) -> Kink | None:
    model = problem.array_model
    switches = switches_of(model.g, set(model.y))
    edges = [switch.edge for switch in switches]
    values = Values(Workshop(model, known_sizes(problem.dimensions), problem.arrays), edges)
    first, then = ([value.copy() for value in values.at(point)] for point in (here, there))
    for switch, before, after in zip(switches, first, then, strict=True):
        if (~(before * after > 0)).any():
            return array_kink(switch)
    return None
