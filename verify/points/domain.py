"""Functions that end: a Piecewise without a last "otherwise" is continued by its last piece, and points are put back.

A stationary point on the very end of the domain has derivatives from one side only. They are those of the continuation,
which is what the search looks at; whether a point that it finds lies in the domain is asked afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from types import MappingProxyType
from typing import Any, Literal

import sympy as sp

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic import balls
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.scalars import Arithmetic, ScalarProgram
from bilevel_sym.graph.expressions import rewritten

__all__ = ["Standing", "continued", "standing"]

Standing = Literal["inside", "end", "outside"]


def continued(problem: BilevelProblem) -> BilevelProblem:
    """The problem with f and g continued beyond the end of their domains; the same object where there is none.

    >>> x, y = sp.symbols("x y")
    >>> half = BilevelProblem(sp.Piecewise((x**2, x >= 0)) + y, y**2/2, x, y)
    >>> continued(half).f
    x**2 + y
    """
    if not problem.tape.has_kinks:
        return problem
    f, g = rewritten(problem.f, _without_end), rewritten(problem.g, _without_end)
    if f == problem.f and g == problem.g:
        return problem
    return BilevelProblem(f, g, problem.x, problem.y, box=problem.box, name=problem.name)


def _without_end(node: sp.Basic) -> sp.Basic:
    if not isinstance(node, sp.Piecewise) or node.args[-1][1] == sp.true:
        return node
    *others, (value, _) = node.args
    return sp.Piecewise(*others, (value, True)) if others else value


def standing(problem: BilevelProblem, point: Sequence[Any], bits: int) -> Standing:
    """Where a point of the continuation, balls for x and y, stands in the domain of f and g; "end": on its border.

    >>> from flint import arb
    >>> x, y = sp.symbols("x y")
    >>> half = BilevelProblem(sp.Piecewise((x**2, x >= 0)) + y, y**2/2, x, y)
    >>> [standing(half, [arb(t), arb(0)], 100) for t in (1, 0, -1)]
    ['inside', 'end', 'outside']
    """
    with precision(bits):
        if _finite(problem.tape.in_balls(("f", "g"), bits), point):
            return "inside"
        closed = ScalarProgram(problem.tape.program(("f", "g")), CLOSED)
        return "end" if _finite(closed, point) else "outside"


def _finite(program: ScalarProgram, point: Sequence[Any]) -> bool:
    values = program.start()
    program.put(values, 0, list(point))
    return all(entry.is_finite() for name in ("f", "g") for entry in program.output(values, name))


def _closed_select(c: Any, a: Any, b: Any) -> Any:
    """Where the condition is open, the branch that is defined."""
    if c.is_nan() or c != 0 or c.is_zero():
        return balls.OPERATIONS["select"](c, a, b)
    return b if a.is_nan() else a if b.is_nan() else a.union(b)


CLOSED = Arithmetic(MappingProxyType({**balls.OPERATIONS, "select": _closed_select}), balls.constant, balls.precision)
