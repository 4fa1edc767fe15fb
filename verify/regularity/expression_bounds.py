"""Bounds of any expression over a box: its value, its gradient and its Hessian, proved."""

from __future__ import annotations

import math
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

import sympy as sp

from bilevel_sym import Box
from bilevel_sym.errors import CertificateFailure, InvalidArgument, InvalidProblem, UnsafeExpression
from bilevel_sym.implicit.model import Model
from bilevel_sym.problem.scope import Formula, Scope, Variables
from bilevel_sym.system.budget import Budget, Effort, scale_of
from bilevel_sym.typing import Floats
from verify.enclosures.block_norm import ExactBox
from verify.enclosures.ranges import Ranges, ranges
from verify.verdict import Bracket

__all__ = ["Bounds", "bounds"]

DEFAULT_BOXES = 10_000  # pieces at default effort


@dataclass(frozen=True, eq=False)
class Bounds:
    """What ``bounds`` proved for every point of the box. Unpacked, it is the value, the gradient and the Hessian.

    A bracket of a derivative is infinite where none was proved: at a kink, a jump, or the end of a domain.

    - ``expression``: what was bounded.
    - ``box``: over which.
    - ``symbols``: by which it was differentiated.
    - ``value``: a bracket.
    - ``gradient``: a bracket for each of the symbols.
    - ``hessian``: a row of brackets for each.
    - ``boxes``: how many pieces of the box it took.
    - ``tight``: whether every bracket is as narrow as was asked for.

    >>> value, gradient, hessian = bounds("x**2*y", {"x": (1, 2), "y": (1, 2)})
    >>> print(value, *gradient, hessian[0][1])
    [1, 8] [2, 8] [1, 4] [2, 4]
    """

    expression: sp.Expr
    box: Box
    symbols: tuple[sp.Symbol, ...]
    value: Bracket
    gradient: tuple[Bracket, ...]
    hessian: tuple[tuple[Bracket, ...], ...]
    boxes: int
    tight: bool

    def __iter__(self) -> Iterator[Bracket | tuple[Bracket, ...] | tuple[tuple[Bracket, ...], ...]]:
        return iter((self.value, self.gradient, self.hessian))

    def __str__(self) -> str:
        where = ", ".join(f"{name} in [{low}, {high}]" for name, (low, high) in self.box.items())
        names = [s.name for s in self.symbols]
        lines = [f"bounds over {where}", f"  value  {self.value}"]
        lines += [f"  d/d{name}  {bracket}" for name, bracket in zip(names, self.gradient, strict=True)]
        lines += [
            f"  d2/d{a} d{b}  {self.hessian[i][j]}" for i, a in enumerate(names) for j, b in enumerate(names) if i <= j
        ]
        return "\n".join(lines)


def bounds(
    expression: Formula,
    box: Box | Mapping[str, Iterable[object]] | Mapping[sp.Symbol, Iterable[object]],
    *,
    symbols: Variables | None = None,
    effort: Effort = "default",
    rtol: float = 0.01,
) -> Bounds:
    """Certified value, gradient and Hessian of an expression over a box.

    The brackets are true in any case. Where the expression has a kink the gradient is bounded on both sides of it, and
    so is the Hessian where the gradient has one.

    - ``expression``: a SymPy one, or text, in the variables that the box names.
    - ``box``: a Box, intervals by name, or without names those of ``symbols``.
    - ``symbols``: those to differentiate by, in their order; by default all of the box.
    - ``effort``: "quick", "default", "thorough", or a multiple of the default.
    - ``rtol``: how much too wide the brackets are, relative to their width, if the effort suffices.

    >>> found = bounds("exp(x)*sin(y)", {"x": (0, 1), "y": (0, 1)})
    >>> bool(2.2873 < found.value.upper < 2.32), 0.0 in found.gradient[0]
    (True, True)
    >>> print(bounds("abs(x)", {"x": (-1, 2)}).gradient[0])
    [-1, 1]
    >>> bounds("1/x", {"x": (-1, 1)})
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.CertificateFailure: the expression has no bound that can be proved where x in [-1.8189894e-12, 0]
    try: if a pole, or the end of its domain, lies there, choose a box without it
    """
    if not _is_positive(rtol):
        raise InvalidArgument(f"rtol={rtol!r:.40}", hint="a positive number: 0.01 is a hundredth of the width")
    budget = Budget(DEFAULT_BOXES * scale_of(effort))
    with _about_arguments():
        named = _named(box, symbols)
        scope = Scope({"x": named.names or ()}, None, () if isinstance(expression, str) else (expression,))
        stated, variables = scope.read("expression", expression, "x"), scope.groups["x"]
        wanted = _wanted(symbols, variables)
    order = (*wanted, *(s for s in variables if s not in wanted))
    chosen = Box({s.name: named[s.name] for s in order})
    region = ExactBox(chosen)
    found = ranges(Model(stated.drafted, sp.Integer(0), order, ()), region, rtol=rtol, budget=budget)
    if found.place is not None:
        raise _failure(chosen, found.place)
    return _result(stated.expression, chosen, wanted, found)


@contextmanager
def _about_arguments() -> Iterator[None]:
    """There is no problem here: what is wrong is an argument; where text is, a caret says so."""
    try:
        yield
    except UnsafeExpression:
        raise
    except InvalidProblem as error:
        raise InvalidArgument(error.message, hint=error.hint) from None


def _is_positive(value: object) -> bool:
    return isinstance(value, (int, float)) and not isinstance(value, bool) and 0 < value < math.inf


def _result(formula: sp.Expr, box: Box, wanted: Sequence[sp.Symbol], found: Ranges) -> Bounds:
    size, count = len(box), len(wanted)

    def brackets(name: str) -> list[Bracket]:
        return [Bracket(a, b) for a, b in zip(found.lower[name].tolist(), found.upper[name].tolist(), strict=True)]

    hessian = brackets("f_xx")
    return Bounds(
        expression=formula,
        box=box,
        symbols=tuple(wanted),
        value=brackets("f")[0],
        gradient=tuple(brackets("f_x")[:count]),
        hessian=tuple(tuple(hessian[i * size : i * size + count]) for i in range(count)),
        boxes=found.boxes,
        tight=found.reached,
    )


def _named(box: object, symbols: Variables | None) -> Box:
    """The box, its intervals with names: its own, or those of the symbols."""
    if not isinstance(box, (Box, Mapping)):
        raise InvalidArgument(
            f"bounds wants a box, but was given {box!r:.60}", hint="a Box, or {'x': (-1, 1)} for each variable"
        )
    given = box if isinstance(box, Box) else Box(box)
    if given.names is not None:
        return given
    names = [s.name for s in Scope({"symbols": symbols or ()}, None, ()).groups["symbols"]]
    if len(names) != len(given):
        raise InvalidArgument(
            f"the box has {len(given)} intervals without names, and {len(names)} symbols are given",
            hint="symbols='x y', in the order of the intervals, or a box with names: {'x': (-1, 1)}",
        )
    return Box(dict(zip(names, given, strict=True)))


def _wanted(symbols: Variables | None, variables: Sequence[sp.Symbol]) -> tuple[sp.Symbol, ...]:
    """The symbols to differentiate by, as they stand in the expression."""
    if symbols is None:
        return tuple(variables)
    names = [s.name for s in Scope({"symbols": symbols}, None, ()).groups["symbols"]]
    known = {s.name: s for s in variables}
    if unknown := [name for name in names if name not in known]:
        raise InvalidArgument(
            f"the box has no interval for {', '.join(unknown)}", hint=f"it has one for {', '.join(known)}"
        )
    if len(set(names)) < len(names):
        raise InvalidArgument("a symbol is given twice", hint="name each variable once")
    return tuple(known[name] for name in names)


def _failure(box: Box, place: tuple[Floats, Floats]) -> CertificateFailure:
    ends = zip(box.names or (), *place, strict=True)
    where = ", ".join(f"{name} in [{low:.9g}, {high:.9g}]" for name, low, high in ends)
    return CertificateFailure(
        f"the expression has no bound that can be proved where {where}",
        hint="if a pole, or the end of its domain, lies there, choose a box without it",
    )
