"""What a picture is given: a problem, a box, runs, numbers; anything else is refused with a cure."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, TypeAlias

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.problem.box import Box
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers.solution import Solution, Trajectory
from bilevel_sym.typing import Floats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Region", "box_ends", "exact_problem", "numbers", "one_by_one", "recorded"]

Region: TypeAlias = Box | Mapping[str, Iterable[object]] | None


def exact_problem(problem: object) -> BilevelProblem:
    """The problem that is drawn: of a stochastic one the mean.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> exact_problem(problem) is problem
    True
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(
            f"this picture wants a problem, but was given a {type(problem).__name__}", hint="BilevelProblem(f, g, x, y)"
        )
    return problem.mean


def box_ends(problem: BilevelProblem, box: Region, names: Sequence[str]) -> tuple[Floats, Floats]:
    """The lower and the upper ends of these variables in the box, by default the problem's.

    >>> low, high = box_ends(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), {"x": (-1, 3)}, ["x"])
    >>> low, high
    (array([-1.]), array([3.]))
    """
    example = ", ".join(f'"{name}": (-1, 1)' for name in names)
    if box is None and problem.box is None:
        raise InvalidArgument("the problem has no box to draw", hint=f"box={{{example}}}")
    chosen = problem.box if box is None else box if isinstance(box, Box) else Box(box)
    assert chosen is not None
    bound = dict(chosen.bind(tuple(s.name for s in problem.x), tuple(s.name for s in problem.y)).items())
    if missing := [name for name in names if name not in bound]:
        raise InvalidArgument(f"the box misses {', '.join(missing)}", hint=f"box={{{example}}}")
    ends = np.array([[float(end) for end in bound[name]] for name in names])
    for name, (low, high) in zip(names, ends, strict=True):
        if not low < high:
            raise InvalidArgument(
                f"the box has no width: {name} is {low:g}", hint=f'"{name}": ({low - 1:g}, {low + 1:g})'
            )
    return ends[:, 0], ends[:, 1]


def numbers(what: str, values: ArrayLike, hint: str) -> Floats:
    """An array of numbers, of whatever shape.

    >>> numbers("points", [[1, 2]], hint="an array")
    array([[1., 2.]])
    """
    try:
        return np.array(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InvalidArgument(f"{what} are not numbers", hint=hint) from None


def recorded(solution: object) -> Trajectory:
    """What was recorded of a solution's runs, of at least one.

    >>> from bilevel_sym import Descent, Exact, solve
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> recorded(solve(problem, Descent(Exact(), 0.1), [1.0], steps=2)).x.shape
    (3, 1)
    """
    if not isinstance(solution, Solution):
        raise InvalidArgument(
            f"this picture wants a Solution, but was given a {type(solution).__name__}",
            hint="solve(problem, algorithm, x0)",
        )
    path = solution.trajectory
    if not path.x.size:
        raise InvalidArgument("there is no trajectory to draw", hint="x0 with at least one row")
    return path


def one_by_one(table: Floats) -> Floats:
    """A table (K, d) of one run, or (S, K, d) of several, as one of several.

    >>> one_by_one(np.zeros((5, 2))).shape, one_by_one(np.zeros((3, 5, 2))).shape
    ((1, 5, 2), (3, 5, 2))
    """
    return table.reshape(-1, *table.shape[-2:])
