"""Where the lower level begins when nobody says: at zero, unless g has no value there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.arrays.tensor import Apply, LogSumExp, Tensor, known_sizes
from bilevel_sym.errors import BilevelError
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.implicit.array_program import Values, Workshop
from bilevel_sym.kernels.tape_engine import TapeEngine

if TYPE_CHECKING:
    from bilevel_sym.kernels import Kernels
    from bilevel_sym.problem.problem import BilevelProblem
    from bilevel_sym.typing import Bools, Floats

__all__ = ["where_defined"]


def where_defined(kernels: Kernels, x: Floats, y: Floats) -> Floats:
    """The starts y, with others in the rows where g or its gradient is not finite: y*(x), or the centre of the box.

    Newton's method finds y* from the centre, row by row, so that no row depends on the others; oracle calls are not
    counted. Rows where neither helps stay as they are.

    >>> from bilevel_sym import BilevelProblem
    >>> barrier = BilevelProblem("x*y", "y**2/2 - x*log(y)", "x", "y", box={"x": (1, 4), "y": ("1/2", 2)})
    >>> where_defined(barrier.kernels, np.array([[4.0]]), np.zeros((1, 1)))
    array([[2.]])
    """
    lost = np.flatnonzero(~_defined(kernels, x, y))
    if not len(lost):
        return y
    y, centre = y.copy(), np.array([[float(value) for value in kernels.problem.y_centre]])
    for k in lost:
        try:
            y[k] = kernels.y_star(x[k])
        except BilevelError:
            if _defined(kernels, x[k : k + 1], centre)[0]:
                y[k] = centre
    return y


def _defined(kernels: Kernels, x: Floats, y: Floats) -> Bools:
    """Whether g and its gradient are finite, in programs of their own: those of the kernels stay as they are."""
    problem, points = kernels.problem.mean, np.concatenate([x, y], axis=1)
    if problem.is_array:
        return _defined_in_arrays(problem, points)
    graph = problem.tape.graph
    if not len(x) or not any(map(_has_ends, graph.op, graph.parameter)):
        return np.ones(len(x), dtype=np.bool_)
    session = TapeEngine(problem.tape, batch_invariant=True).session(("g", "g_y"), len(x))
    with np.errstate(all="ignore"):
        session.put(0, points)
        g, g_y = session.take("g"), session.take("g_y")
    found: Bools = np.isfinite(g) & np.isfinite(g_y).all(axis=1)
    return found


def _defined_in_arrays(problem: BilevelProblem, points: Floats) -> Bools:
    model = problem.array_model
    if not _is_partial(model.g):
        return np.ones(len(points), dtype=np.bool_)
    values = Values(Workshop(model, known_sizes(problem.dimensions), problem.arrays), [model.g])
    with np.errstate(all="ignore"):
        return np.array([np.isfinite(values.at(row)[0]).all() for row in points], dtype=np.bool_)


def _is_partial(tensor: Tensor) -> bool:
    """Whether a part has poles, or an end of its domain."""
    heads = [head for term in tensor.terms for head, _ in term.factors]
    applied = [head for head in heads if isinstance(head, Apply)]
    if any(_has_ends(head.op, head.parameter) for head in applied):
        return True
    summed = [head.parts for head in heads if isinstance(head, LogSumExp)]
    return any(_is_partial(body) for bodies in (*(head.bodies for head in applied), *summed) for body in bodies)


def _has_ends(op: str, parameter: Sequence[Any]) -> bool:
    """Whether an operation has poles, or an end of its domain."""
    if op == "ipow":
        return bool(parameter[0] < 0)
    return op in OPERATIONS and OPERATIONS[op].is_partial
