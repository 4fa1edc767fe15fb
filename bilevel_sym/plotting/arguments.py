"""What a picture is given: a problem, a box, runs, numbers; anything else is refused with a cure.

Values at many points, nan where they do not exist: outside of a domain, or where the lower level has no solution.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.implicit.engine import in_halves
from bilevel_sym.problem.box import Box
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers.solution import Solution, Trajectory
from bilevel_sym.typing import Floats, Indices

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = [
    "Region", "box_ends", "box_of_x", "exact_problem", "numbers", "on_grid", "one_by_one", "recorded",
    "where_defined",
]  # fmt: skip

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


def box_of_x(problem: BilevelProblem, box: Region) -> tuple[tuple[str, ...], Floats, Floats]:
    """A name for each entry of x, and the lower and the upper ends; those of an array are x_1, x_2 and so on.

    >>> problem = BilevelProblem("sum(x*y)", "y @ y - x @ y", "x[2]", "y[2]")
    >>> names, low, high = box_of_x(problem, {"x": (-1, 3)})
    >>> names, low, high
    (('x_1', 'x_2'), array([-1., -1.]), array([3., 3.]))
    """
    low, high = box_ends(problem, box, tuple(s.name for s in problem.x))
    if not problem.is_array:
        return tuple(s.name for s in problem.x), low, high
    sizes = [_size(s, problem.dimensions) for s in problem.x]
    numbered = [(s.name, range(1, size + 1) if size > 1 else ("",)) for s, size in zip(problem.x, sizes, strict=True)]
    names = tuple(f"{name}_{k}".rstrip("_") for name, places in numbered for k in places)
    return names, np.repeat(low, sizes), np.repeat(high, sizes)


def _size(symbol: Any, dimensions: Mapping[str, int | None]) -> int:
    """How many entries a variable has."""
    return math.prod(int(dimensions.get(str(side)) or side) for side in getattr(symbol, "shape", ()))


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


STRIDE, MOST_GRID_POINTS = 5, 1700  # a grid with gaps: every fifth point is tried first, of at most so many in all


def where_defined(function: Callable[[Floats], Floats], points: Floats, shape: tuple[int, ...] = ()) -> Floats:
    """A function of rows of points, (P, d) to (P, *shape), with nan where it fails.

    >>> from bilevel_sym import BilevelProblem
    >>> kernels = BilevelProblem("log(x)*y", "y**2/2 - y", "x", "y").kernels
    >>> where_defined(kernels.phi, np.array([[-1.0], [1.0]]))
    array([nan,  0.])
    """
    found = np.full((len(points), *shape), np.nan)

    def attempt(rows: Indices) -> None:
        found[rows] = function(points[rows])

    in_halves(np.arange(len(points)), attempt, BilevelError)
    return found


def on_grid(function: Callable[[Floats], Floats], low: Floats, high: Floats, count: int) -> tuple[list[Floats], Floats]:
    """The axes of a grid of ``count`` points each way, and the function there, first axis first; nan where it fails.

    A failure costs much more than a value. Where there are any the grid is coarser, and a cell of ``STRIDE`` points
    each way is not looked into if the function fails at all of its corners.

    >>> axes, values = on_grid(lambda x: x[:, 0] + 10 * x[:, 1], np.zeros(2), np.ones(2), 2)
    >>> values.tolist()
    [[0.0, 10.0], [1.0, 11.0]]
    """
    axes, values = _filled(function, low, high, count)
    if np.isnan(values).all():
        raise InvalidArgument("there is no value at any point of the box", hint="another box")
    return axes, values


def _filled(function: Callable[[Floats], Floats], low: Floats, high: Floats, count: int) -> tuple[list[Floats], Floats]:
    axes, points = _grid(low, high, count)
    try:
        return axes, function(points.reshape(-1, len(low))).reshape(points.shape[:-1])
    except BilevelError:
        cells = (min(count, int(MOST_GRID_POINTS ** (1 / len(low)))) - 1) // STRIDE
    if not cells:
        return axes, where_defined(function, points.reshape(-1, len(low))).reshape(points.shape[:-1])
    axes, points = _grid(low, high, cells * STRIDE + 1)
    coarse = _grid(low, high, cells + 1)[1]
    failing = np.isnan(where_defined(function, coarse.reshape(-1, len(low)))).reshape(coarse.shape[:-1])
    for axis in range(len(low)):  # a cell counts as failing if all of its corners fail
        near, far = (np.take(failing, range(first, first + cells), axis) for first in (0, 1))
        failing = near & far
        failing = np.repeat(failing, STRIDE, axis)
        failing = np.concatenate([failing, np.take(failing, [-1], axis)], axis)
    values = np.full(points.shape[:-1], np.nan)
    values[~failing] = where_defined(function, points[~failing])
    return axes, values


def _grid(low: Floats, high: Floats, count: int) -> tuple[list[Floats], Floats]:
    axes = [np.linspace(a, b, count) for a, b in zip(low, high, strict=True)]
    return axes, np.stack(np.meshgrid(*axes, indexing="ij"), axis=-1)
