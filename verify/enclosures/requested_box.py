"""The box that a question is about: the one given, or the problem's own, with the names of its variables."""

from __future__ import annotations

from bilevel_sym import BilevelProblem, Box
from bilevel_sym.errors import InvalidProblem

__all__ = ["requested_box"]


def requested_box(problem: BilevelProblem, box: object, what: str) -> Box:
    """The box given (a Box, or what makes one), else the problem's; ``what`` belongs to a box, for the message.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> requested_box(problem, {"x": (-1, 1)}, "constants belong")
    Box({'x': (-1, 1)})
    >>> requested_box(problem, None, "constants belong")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: the problem has no box, and constants belong to a box
    try: [box] in the problem file, or BilevelProblem(..., box={"x": (-1, 1), "y": (-1, 1)})
    """
    x, y = tuple(s.name for s in problem.x), tuple(s.name for s in problem.y)
    if box is not None:
        return (box if isinstance(box, Box) else Box(box)).bind(x, y)  # type: ignore[arg-type]
    if problem.box is not None:
        return problem.box
    example = ", ".join(f'"{name}": (-1, 1)' for name in (*x[:1], *y[:1]))
    raise InvalidProblem(
        f"the problem has no box, and {what} to a box",
        hint=f"[box] in the problem file, or BilevelProblem(..., box={{{example}}})",
    )
