"""Kinks of array problems: entries of edges that vanish, or nearly, at a point.

Where the problem is small enough to be written out in scalars, what exists there is decided as for any other
problem; where it is not, a point on an edge is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bilevel_sym.arrays.display import to_text
from bilevel_sym.arrays.edges import edges_of
from bilevel_sym.arrays.tensor import known_sizes
from bilevel_sym.errors import KernelError, TooLarge
from bilevel_sym.implicit.array_program import Values, Workshop
from bilevel_sym.kernels.arguments import HINT, Kinks, Shape, of_the_batch
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.typing import Floats

NEAR = 2.0**-36  # of the largest entry of an edge, or of 1: what is nearer to zero is looked at closely
SHOWN = 5  # entries of a point in messages


class ArrayKinks:
    """The edges of one array problem, as its kernels meet them.

    >>> problem = BilevelProblem("sum(abs(y))", "sum((y - x)**2)", "x[2]", "y[2]")
    >>> ArrayKinks(problem).met(("f_y",), np.array([[1.0, 0.0, 1.0, 0.0], [1.0, 2.0, 1.0, 2.0]]))
    {0: 'y = 0'}
    """

    def __init__(self, problem: BilevelProblem) -> None:
        model = problem.array_model
        variables = {*model.x, *model.y}
        edges = {edge.key: edge for level in (model.f, model.g) for edge in edges_of(level, variables)}
        self._problem, self._edges = problem, list(edges.values())
        self._values = Values(Workshop(model, known_sizes(problem.dimensions), problem.arrays), self._edges)

    def met(self, names: Sequence[str], points: Floats, *, solved: bool = False) -> dict[int, str]:
        """The points at which one of these blocks may not exist, and the edge. See ``Kinks.met``."""
        found = {k: edge for k, row in enumerate(points) if (edge := self._touched(row)) is not None}
        if not found:
            return {}
        try:
            scalar = Kinks(self._problem.lowered().tape)
        except TooLarge:
            return found
        exact = scalar.met(names, points[list(found)], solved=solved)
        return {k: edge for place, (k, edge) in enumerate(found.items()) if place in exact}

    def _touched(self, row: Floats) -> str | None:
        for edge, value in zip(self._edges, self._values.at(row), strict=True):
            sizes = np.abs(value)
            if sizes.size and sizes.min() <= NEAR * max(1.0, float(sizes.max())):
                return f"{to_text(edge)} = 0"
        return None

    def refuse(self, what: str, names: Sequence[str], points: Floats, shape: Shape, *, solved: bool = False) -> None:
        """KernelError for the first member of the batch for which a block may not exist.

        what: what takes the blocks, for the message
        names: of the blocks
        points: rows (x, y)
        shape: of the caller's batch
        solved: whether y is y*(x), known to round-off alone
        """
        for k, edge in self.met(names, points, solved=solved).items():
            x, y = (_glance(part) for part in np.split(points[k], [self._problem.d]))
            raise KernelError(
                f"{what} does not exist{of_the_batch(k, shape)}: x = {x}, y = {y} lies on a kink or a jump of f or g, "
                f"or within round-off of it, at {edge}",
                hint=HINT,
            )


def _glance(values: Floats) -> str:
    shown = ", ".join(f"{value:.9g}" for value in values[:SHOWN])
    return f"[{shown}{', ...' if len(values) > SHOWN else ''}]"
