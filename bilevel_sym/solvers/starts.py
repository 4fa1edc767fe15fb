"""Where the lower level begins when nobody says: at zero, unless g has no value there."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from bilevel_sym.arrays.tensor import Apply, LogSumExp, Tensor, known_sizes
from bilevel_sym.errors import BilevelError, KernelError, LowerLevelFailure
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.implicit.array_program import Values, Workshop
from bilevel_sym.kernels.arguments import LOWER
from bilevel_sym.kernels.kinked import MOST_VARIABLES, on_a_kink
from bilevel_sym.kernels.tape_engine import TapeEngine

if TYPE_CHECKING:
    from bilevel_sym.kernels import Kernels
    from bilevel_sym.problem.problem import BilevelProblem
    from bilevel_sym.typing import Bools, Floats

__all__ = ["refuse_kinked_starts", "where_defined"]


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


def refuse_kinked_starts(problem: BilevelProblem, x: Floats) -> None:
    """LowerLevelFailure where the minimiser of g lies on a kink of g for all of these x: nothing there is a derivative.

    Of an ensemble that has other starts too, each trajectory gets its own status. Problems without kinks pay nothing.

    >>> from bilevel_sym import BilevelProblem
    >>> refuse_kinked_starts(BilevelProblem("x*y", "(y - x)**2/2 + abs(y)", "x", "y"), np.array([[0.5], [3.0]]))
    """
    if not problem.has_kinks:
        return
    first: LowerLevelFailure | None = None
    for row in x:
        failure = _kink_at(problem.kernels, row)
        if failure is None:
            return
        first = first or failure
    if first is not None:
        raise first.renamed((0,) if len(x) > 1 else ())


def _kink_at(kernels: Kernels, x: Floats) -> LowerLevelFailure | None:
    """What is wrong where the minimiser lies on a kink."""
    try:
        kernels.y_star(x)
    except LowerLevelFailure as error:
        return error if error.kink else None
    except KernelError:
        return _on_the_kink(kernels, x)
    return None


def _on_the_kink(kernels: Kernels, x: Floats) -> LowerLevelFailure | None:
    """The same where Newton's method happens to end on the kink itself, as it does from y = 0 on that of abs(y)."""
    y = kernels.one_sided.y_star(x)
    assert kernels.kinks is not None
    met = kernels.kinks.met(LOWER, np.concatenate([x, y])[None], solved=True).values()
    edge = next(iter(met), None)
    if edge is None:
        return None
    curvature = float(np.linalg.eigvalsh(kernels.one_sided.g_yy(x, y))[0]) if len(y) <= MOST_VARIABLES else np.nan
    return on_a_kink(edge.removesuffix(" = 0"), (), x.tolist(), y.tolist(), curvature)
