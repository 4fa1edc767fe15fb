"""Kind: what a plan may ask of a task, and the function that computes it."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias

from bilevel_sym.campaigns.context import Setting

__all__ = ["Kind", "Row", "Work"]

Row: TypeAlias = dict[str, Any]  # column -> a number, text, True or False, None, or a list of numbers or of texts
Work: TypeAlias = Callable[[Setting, Sequence[int | None]], list[Row]]


@dataclass(frozen=True)
class Kind:
    """One kind of task.

    - ``name``: in plans.
    - ``work``: computes the rows of tasks that differ by their seeds alone.
    - ``takes``: the names of its parameters.
    - ``seeded``: whether it draws random numbers.
    - ``solves``: whether a plan names algorithms for it.
    - ``takes_any``: whether it takes parameters of any other name too.
    - ``wants``: parameters that have to be given.
    - ``of_problems``: whether it is about problems; a function of a user need not be.
    """

    name: str
    work: Work
    takes: frozenset[str]
    seeded: bool = True
    solves: bool = False
    takes_any: bool = False
    wants: tuple[str, ...] = ()
    of_problems: bool = True
