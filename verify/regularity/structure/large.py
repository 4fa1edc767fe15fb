"""Array problems among claims and searches: in scalars where they are small, and otherwise with a clear word.

A search over a box takes a problem in scalars. An array problem of few variables is written out; one of many is not,
and whoever asks for it in scalars is told its size at once.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any, TypeVar

import numpy as np

from bilevel_sym import BilevelProblem, Box
from bilevel_sym.errors import BilevelError, TooLarge
from bilevel_sym.typing import Floats
from verify.regularity.structure.certified import SCALAR_VARIABLES, structure_of

__all__ = ["by_entry", "completed_box", "encloses", "entry_ends", "guarded", "in_scalars", "is_large", "lowered_box"]

SMALL_DATA = 400  # entries up to which formulas in scalars stay short
P = TypeVar("P", bound=BilevelProblem)


def is_large(problem: BilevelProblem) -> bool:
    """Whether it is an array problem with too many variables, or data, for a search over a box.

    >>> is_large(BilevelProblem("x @ y", "sum((y - x)**2)", "x[20]", "y[20]"))
    True
    """
    return problem.is_array and (problem.d + problem.n > SCALAR_VARIABLES or _entries(problem) > SMALL_DATA)


def _entries(problem: BilevelProblem) -> int:
    return sum(math.prod(array.shape) for array in problem.mean.arrays.values())


def too_large(problem: BilevelProblem) -> TooLarge:
    """What is said of a search over a box with too many variables, or too many data."""
    many = f"a box of more than {SCALAR_VARIABLES} is not searched"
    if problem.d + problem.n <= SCALAR_VARIABLES:
        many = f"with {_entries(problem):,} data, more than {SMALL_DATA}, their box is not searched"
    return TooLarge(
        f"d + n = {problem.d} + {problem.n} variables, and {many}",
        hint="fewer variables; constants from the structure, kernels, solvers and checks need no search",
    )


def in_scalars(problem: P, box: Any) -> tuple[BilevelProblem, Any]:
    """A problem and its box in scalars; TooLarge where it has too many variables.

    >>> small, box = in_scalars(BilevelProblem("x @ y", "sum((y - x)**2)", "x[2]", "y[2]"), Box({"x": (0, 1)}))
    >>> small.x, dict(box.items())
    ((x_1, x_2), {'x_1': (0, 1), 'x_2': (0, 1)})
    """
    if not problem.is_array:
        return problem, box
    if is_large(problem):
        raise too_large(problem)
    return problem.lowered(), None if box is None else lowered_box(problem, box if isinstance(box, Box) else Box(box))


def lowered_box(problem: BilevelProblem, box: Box) -> Box:
    """A box by array, or already by entry, for the problem in scalars."""
    flat = problem.lowered()
    symbols = {name: flat.x[span] for name, span in problem.entries_by_array("x")}
    symbols |= {name: flat.y[span] for name, span in problem.entries_by_array("y")}
    if box.names is None:
        box = box.bind(*(tuple(s.name for s in group) for group in (problem.x, problem.y)))
    if all(name not in symbols for name in box.names or ()):
        return box
    bound = box.bind(*(tuple(s.name for s in group) for group in (problem.x, problem.y)))
    return Box({symbol.name: pair for name, pair in bound.items() for symbol in symbols[name]})


def guarded(problem: P) -> P:
    """The same problem with a name for every entry, which refuses to be written out in scalars before that is begun.

    Claims know a problem as d + n variables: ``x`` and ``y`` are those. What would need formulas of them raises
    TooLarge, with their number.

    >>> large = guarded(BilevelProblem("x @ y", "sum((y - x)**2)", "x[20]", "y[20]"))
    >>> len(large.x), large.d
    (20, 20)
    >>> large.tape
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.TooLarge: d + n = 20 + 20 variables, and a box of more than 12 is not searched
    try: fewer variables; constants from the structure, kernels, solvers and checks need no search
    """
    refusing = _refusing(type(problem), problem)
    found: P = refusing.__new__(refusing)
    derived = ("tape", "f", "g", "F", "G", "derivation", "_lowered", "mean")
    found.__dict__.update({name: value for name, value in problem.__dict__.items() if name not in derived})
    found.__dict__.update(x=problem.x_entries, y=problem.y_entries, kernels=problem.kernels)
    return found


def _refusing(kind: type[P], problem: BilevelProblem) -> type[P]:
    def refuse(self: BilevelProblem) -> Any:
        raise too_large(self)

    own: dict[str, Any] = {name: property(refuse) for name in ("tape", "f", "g", "F", "G", "derivation")}
    own |= {"lowered": refuse, "__reduce__": lambda self: problem.__reduce__()}
    own["entries_by_array"] = lambda self, role: problem.entries_by_array(role)
    own["ends"] = lambda self, role: problem.ends(role)
    made: type[P] = type(kind.__name__, (kind,), own)
    return made


def by_entry(problem: BilevelProblem, box: Box) -> Box:
    """A box by array as one by entry.

    >>> by_entry(BilevelProblem("x @ y", "sum((y - x)**2)", "x[2]", "y[2]"), Box({"x": (0, 1)}))
    Box({'x_1': (0, 1), 'x_2': (0, 1)})
    """
    known = dict(box.items())
    entries = {"x": problem.x_entries, "y": problem.y_entries}
    return Box(
        {
            symbol.name: known[name]
            for role, symbols in entries.items()
            for name, span in problem.entries_by_array(role)
            if name in known
            for symbol in symbols[span]
        }
    )


def entry_ends(box: Box, symbols: Sequence[Any]) -> tuple[Floats, Floats] | None:
    """The ends of some variables; None where the box does not have them.

    >>> import sympy
    >>> entry_ends(Box({"x": (0, 1)}), sympy.symbols("x,"))
    (array([0.]), array([1.]))
    """
    known = dict(box.items())
    if any(symbol.name not in known for symbol in symbols):
        return None
    ends = [known[symbol.name] for symbol in symbols]
    return np.array([float(low) for low, _ in ends]), np.array([float(high) for _, high in ends])


def completed_box(problem: BilevelProblem, box: Box) -> Box:
    """A box of x, by array, with ends for y between which y* lies over it; from the structure of g."""
    return structure_of(problem).completed(box)


def encloses(problem: BilevelProblem, box: Box) -> bool:
    """Whether y* is proved to stay in a box by entry, for all x of it.

    >>> problem = BilevelProblem("x @ y", "sum((y - x)**2)", "x[20]", "y[20]")
    >>> boxes = [by_entry(problem, Box({"x": (-1, 1), "y": ends})) for ends in ((-9, 9), (0, 1))]
    >>> [encloses(problem, box) for box in boxes]
    [True, False]
    """
    ends = entry_ends(box, problem.y_entries)
    if ends is None:
        return True  # y is free
    try:
        found = completed_box(problem, Box({s.name: box[s.name] for s in problem.x_entries}))
    except BilevelError:
        return False
    own = entry_ends(found, problem.y_entries)
    return own is not None and bool((ends[0] <= own[0]).all() and (own[1] <= ends[1]).all())
