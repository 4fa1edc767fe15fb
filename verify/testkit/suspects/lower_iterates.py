"""Lower-level solutions that are not there yet: gradient steps, Newton steps, warm starts from the point before.

With the hypergradient that a program finds there, and linear algebra that survives what it meets.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import Bools, Floats
from verify.points.derivatives_at import blocks_at

__all__: list[str] = []

MOST_NEWTON_STEPS = 12


def solved(matrix: Floats, right: Floats) -> Floats:
    """A^-1 b for stacks (..., n, n) and (..., n); nan where A is singular or not finite.

    >>> solved(np.array([[[2.0]], [[0.0]]]), np.ones((2, 1)))
    array([[0.5],
           [nan]])
    """
    usable: Bools = np.asarray(np.isfinite(matrix).all(axis=(-2, -1)))
    with np.errstate(all="ignore"):
        try:
            solution = _solved(usable, matrix, right)
        except np.linalg.LinAlgError:
            usable = usable & (np.abs(np.linalg.det(np.where(usable[..., None, None], matrix, 0.0))) > 0)
            solution = _solved(usable, matrix, right)
    return np.where(usable[..., None], solution, np.nan)


def _solved(usable: Bools, matrix: Floats, right: Floats) -> Floats:
    safe = np.where(usable[..., None, None], matrix, np.eye(matrix.shape[-1]))
    return np.asarray(np.linalg.solve(safe, right[..., None])[..., 0])


def apply(matrix: Floats, vector: Floats) -> Floats:
    """A v for stacks (..., m, n) and (..., n); what overflows is inf.

    >>> apply(np.array([[[1.0, 2.0]]]), np.array([[3.0, 4.0]]))
    array([[11.]])
    """
    with np.errstate(all="ignore"):
        return np.asarray((matrix @ vector[..., None])[..., 0])


def hypergradient_at(problem: BilevelProblem, x: Floats, y: Floats) -> Floats:
    """f_x - g_xy g_yy^-1 f_y at any y: what a right formula gives for a wrong lower-level solution.

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # y* = x/2, grad Phi = x
    >>> hypergradient_at(problem, np.array([[2.0]]), np.array([[1.0]])), hypergradient_at(
    ...     problem, np.array([[2.0]]), np.array([[0.0]]))
    (array([[2.]]), array([[1.]]))
    """
    return hypergradient_of(*blocks_at(problem.kernels, ("f_x", "f_y", "g_xy", "g_yy"), x, y))


def hypergradient_of(f_x: Floats, f_y: Floats, g_xy: Floats, g_yy: Floats) -> Floats:
    """f_x - g_xy g_yy^-1 f_y of any blocks."""
    with np.errstate(all="ignore"):  # iterates may have left every bound
        return np.asarray(f_x - apply(g_xy, solved(g_yy, f_y)))


@dataclass(frozen=True, eq=False)
class Start:
    """Where a lower-level solver begins at each point, (P, n), and how that is called."""

    name: str
    y: Floats


def starts(problem: BilevelProblem, points: int) -> Iterator[Start]:
    """Zero, and the centre of the box if that is elsewhere.

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y", box={"x": (0, 1), "y": (0, 1)})
    >>> [start.name for start in starts(problem, 2)]
    ['y = 0', 'the centre of the box, y = 0.5']
    """
    zero = np.zeros((points, problem.n))
    yield Start("y = 0", zero)
    centre = np.array([float(value) for value in problem.y_centre])
    if centre.any():
        shown = ", ".join(f"{value:.4g}" for value in centre[:4]) + ", ..." * (len(centre) > 4)
        yield Start(f"the centre of the box, y = {shown}", zero + centre)


def after_steps(problem: BilevelProblem, x: Floats, y: Floats, step: Floats, numbers: Sequence[int]) -> Floats:
    """y after D steps y - step g_y, for each D of ``numbers`` (ascending), (len(numbers), ..., P, n).

    ``step`` broadcasts with the points: (P,) is one a point, (K, 1) are K to be tried.

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> after_steps(problem, np.array([[4.0]]), np.zeros((1, 1)), np.array([0.25]), [0, 1, 2]).ravel()
    array([0. , 1. , 1.5])
    """
    y, found = np.broadcast_to(y, (*np.broadcast_shapes(step.shape, y.shape[:-1]), y.shape[-1])), []
    with np.errstate(all="ignore"):
        for number in range(numbers[-1] + 1):
            if number:
                (slope,) = blocks_at(problem.kernels, ("g_y",), x, y)
                y = y - step[..., None] * slope
            if number in numbers:
                found.append(y)
    return np.array(found)


def unrolled(problem: BilevelProblem, x: Floats, y: Floats, step: Floats, numbers: Sequence[int]) -> Floats:
    """d/dx f(x, y_D(x)) for D gradient steps that are themselves differentiated (iterative differentiation).

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # y_1 = x/4, f = x^2/4
    >>> unrolled(problem, np.array([[4.0]]), np.zeros((1, 1)), np.array([0.25]), [1]).ravel()
    array([2.])
    """
    shape = np.broadcast_shapes(step.shape, y.shape[:-1])
    y, found = np.broadcast_to(y, (*shape, y.shape[-1])), []
    slope = np.zeros((*shape, problem.d, problem.n))
    with np.errstate(all="ignore"):
        for number in range(1, numbers[-1] + 1):
            g_y, g_xy, g_yy = blocks_at(problem.kernels, ("g_y", "g_xy", "g_yy"), x, y)
            y, slope = y - step[..., None] * g_y, slope - step[..., None, None] * (g_xy + slope @ g_yy)
            if number in numbers:
                f_x, f_y = blocks_at(problem.kernels, ("f_x", "f_y"), x, y)
                found.append(f_x + apply(slope, f_y))
    return np.array(found)


def after_newton(problem: BilevelProblem, x: Floats, y: Floats, number: int) -> Floats:
    """y after some full Newton steps on g_y = 0.

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> after_newton(problem, np.array([[4.0]]), np.zeros((1, 1)), 1)
    array([[2.]])
    """
    for _ in range(number):
        g_y, g_yy = blocks_at(problem.kernels, ("g_y", "g_yy"), x, y)
        y = y - solved(g_yy, g_y)
    return y


def solutions_before(problem: BilevelProblem, previous: Floats | None) -> Floats | None:
    """y* at the points asked before, nan where there was none; None where nothing was asked or y* cannot be found.

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> solutions_before(problem, np.array([[np.nan], [4.0]]))
    array([[nan],
           [ 2.]])
    """
    if previous is None or not (known := np.isfinite(previous).all(axis=1)).any():
        return None
    y = np.full((len(previous), problem.n), np.nan)
    try:
        y[known] = problem.kernels.y_star(previous[known])
    except BilevelError:
        return None
    return y


def along_points(problem: BilevelProblem, x: Floats, first: Floats, step: Floats, number: int) -> Floats:
    """y after D gradient steps at each point, each time from where the last point left it, (K, P, n).

    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> along_points(problem, np.array([[4.0], [4.0]]), np.zeros(1), np.array([0.25]), 1).ravel()
    array([1. , 1.5])
    """
    y, found = np.broadcast_to(first, (len(step), problem.n)), []
    for point in x:
        y = after_steps(problem, point, y, step, (number,))[0]
        found.append(y)
    return np.moveaxis(np.array(found), 0, 1)


def minimiser_of_f(problem: BilevelProblem, x: Floats, y: Floats) -> Floats:
    """argmin f(x, .) by Newton's method from y; nan where it does not converge or f is not convex there.

    >>> problem = BilevelProblem("(y - 3*x)**2", "y**2 - x*y", "x", "y")
    >>> minimiser_of_f(problem, np.array([[2.0]]), np.zeros((1, 1)))
    array([[6.]])
    """
    with np.errstate(all="ignore"):
        for _ in range(MOST_NEWTON_STEPS):
            f_y, f_yy = blocks_at(problem.kernels, ("f_y", "f_yy"), x, y)
            step = solved(f_yy, f_y)
            y = y - step
        convex = np.linalg.eigvalsh(np.where(np.isfinite(f_yy), f_yy, 0.0))[:, 0] > 0
        still = np.linalg.norm(step, axis=1) <= 1e-9 * (1 + np.linalg.norm(y, axis=1))
    return np.where((convex & still)[:, None], y, np.nan)
