"""A formula as a user stated it: on a draft at once, in SymPy when it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property

import sympy as sp
from flint import fmpq

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.draft import Draft, Drafted, drafted, known_on, settle, substituted
from bilevel_sym.graph.expressions import check_structure, floats_in, substitute, without_moduli
from bilevel_sym.graph.nodes import total
from bilevel_sym.problem.parsing import draft_expression, parse_expression, sympy_expression

Rows = Sequence[Sequence[sp.Rational]]


class Stated:
    """``drafted`` is what is computed with, ``expression`` the same in SymPy, built when it is first asked for.

    ``argument`` is what it can be stated with again: text or an expression; None where that is ``expression``.

    >>> x = sp.Symbol("x")
    >>> stated = stated_text("x + x", [x], "f")
    >>> "expression" in vars(stated), stated.expression, "expression" in vars(stated)
    (False, 2*x, True)
    """

    def __init__(
        self, formula: Drafted, expression: Callable[[], sp.Expr], argument: str | sp.Expr | None = None
    ) -> None:
        self.drafted = formula
        self._build = expression
        self._argument = argument

    @cached_property
    def expression(self) -> sp.Expr:
        """The formula in SymPy, with exact numbers."""
        return without_moduli(self._build())

    @property
    def argument(self) -> str | sp.Expr:
        """What states it again."""
        return self.expression if self._argument is None else self._argument


def stated_text(text: str, symbols: Sequence[sp.Symbol], field: str) -> Stated:
    """A text in the given symbols; UnsafeExpression where it is none.

    What is assumed of a symbol is SymPy's to use: then the text becomes SymPy at once.

    >>> stated_text("0.5*x", [sp.Symbol("x")], "f").drafted.form.terms
    {0: 1/2}
    """
    names = {s.name: s for s in symbols}
    if any(s != sp.Symbol(s.name) for s in symbols):
        return stated_expression(parse_expression(text, names, source=field), symbols, field)
    return Stated(draft_expression(text, names, source=field), lambda: sympy_expression(text, names), text)


def stated_expression(expression: sp.Expr, symbols: Sequence[sp.Symbol], field: str) -> Stated:
    """A SymPy expression in the given symbols; InvalidProblem where it holds what is not supported.

    >>> x = sp.Symbol("x")
    >>> stated_expression(0.5*x, [x], "f").expression
    x/2
    """
    exact = not floats_in(expression, field)

    def build() -> sp.Expr:
        return expression if exact else check_structure(expression, field)

    try:
        formula = drafted(expression, symbols)
    except InvalidProblem:
        formula = drafted(build(), symbols)
    return Stated(formula, build, expression)


def with_numbers(stated: Stated, numbers: Mapping[sp.Symbol, sp.Rational]) -> Stated:
    """The formula with exact numbers in the place of some symbols.

    >>> x, a = sp.symbols("x a")
    >>> with_numbers(stated_text("a*x", [x, a], "f"), {a: sp.Rational(1, 3)}).expression
    x/3
    """
    if not numbers:
        return stated

    def build() -> sp.Expr:
        return check_structure(substitute(stated.expression, numbers), "f or g with its parameters inserted")

    try:
        formula = substituted(stated.drafted, numbers)
    except InvalidProblem:  # SymPy says it as it always did, or knows better
        formula = drafted(build(), stated.drafted.symbols)
    return Stated(formula, build)


def negated(stated: Stated) -> Stated:
    """Minus the formula.

    >>> x = sp.Symbol("x")
    >>> negated(stated_text("x - 1", [x], "f")).expression
    1 - x
    """
    draft, form, symbols = stated.drafted
    return Stated(Drafted(draft, -form, symbols), lambda: -stated.expression)


def mean_of(stated: Stated, variables: Sequence[sp.Symbol], rows: Rows) -> Stated:
    """The mean over rows of values of some of its variables.

    >>> x, a = sp.symbols("x a")
    >>> mean_of(stated_text("a*x**2", [x, a], "f"), [a], [[sp.Integer(1)], [sp.Integer(2)]]).expression
    3*x**2/2
    """
    if not variables:
        return stated
    tables = [dict(zip(variables, row, strict=True)) for row in rows]

    def build() -> sp.Expr:
        weight = sp.Rational(1, len(rows))
        return sp.Add(*(weight * substitute(stated.expression, values) for values in tables))

    symbols = stated.drafted.symbols
    draft = Draft(len(symbols))
    draft.evaluating = True
    try:
        forms = [settle(stated.drafted, draft, known_on(draft, symbols, values)) for values in tables]
    except InvalidProblem:
        return stated_expression(build(), symbols, "the mean of f or g")
    return Stated(Drafted(draft, total(forms).scaled(fmpq(1, len(rows))), symbols), build)
