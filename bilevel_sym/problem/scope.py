"""Scope: which names a problem declares, and what each of its formulas may contain."""

from __future__ import annotations

import difflib
import re
from collections.abc import Iterable, Mapping, Sequence
from collections.abc import Set as AbstractSet
from numbers import Number
from typing import TypeAlias

import sympy as sp

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.assumptions import check_values
from bilevel_sym.graph.exact import rational
from bilevel_sym.graph.expressions import floats_in, symbols_in
from bilevel_sym.problem.parsing import check_name
from bilevel_sym.problem.parsing.tokens import MAX_LENGTH
from bilevel_sym.problem.stated import Stated, stated_expression, stated_text, with_numbers

__all__ = ["Formula", "Parameters", "Scope", "Variables", "is_array_input", "ranged_names"]

Formula: TypeAlias = sp.Expr | str | int | float | Stated
Variables: TypeAlias = str | sp.Symbol | Sequence[str | sp.Symbol]
Parameters: TypeAlias = Mapping[str, object] | Mapping[sp.Symbol, object]

RANGE = re.compile(r"(?P<name>[A-Za-z]\w*?)(?P<first>[0-9]{0,9}):(?P<end>[0-9]{1,9})", re.ASCII)
MAX_NAMES = 10_000  # in one range


def is_array_input(groups: Iterable[object], formulas: Iterable[object], *given: object) -> bool:
    """Whether a problem is one of arrays: a bracket or a matrix symbol among its variables, or data.

    groups: the variables of each role, as they were given
    formulas: likewise
    given: data, and the like

    >>> is_array_input(["x1 x2", "y"], ["x1*y"], None), is_array_input(["x[n]", "y"], ["sum(x)*y"], None)
    (False, True)
    """
    if any(value is not None for value in given) or any(isinstance(f, sp.MatrixExpr) for f in formulas):
        return True
    items = (item for group in groups for item in (group if isinstance(group, (list, tuple)) else (group,)))
    return any((isinstance(i, str) and "[" in i) or isinstance(i, (sp.MatrixSymbol, sp.IndexedBase)) for i in items)


class Scope:
    """The declared groups of variables and the parameters, resolved to symbols.

    A name that is given as text means the symbol of that name in the formulas, whatever its
    assumptions; where the formulas have none, a plain symbol is made.

    >>> scope = Scope({"x": "x1", "y": "y1"}, {"a": "0.1"}, ())
    >>> scope.insert(scope.read("f", "a*x1 + y1", "xy")).expression
    x1/10 + y1
    """

    def __init__(
        self,
        groups: Mapping[str, Variables],
        parameters: Parameters | None,
        formulas: Iterable[Formula],
    ) -> None:
        self._symbols = {id(formula): _symbols_of(formula) for formula in formulas}
        known = _symbols_by_name(self._symbols.values())
        self.groups = {role: _resolve(role, given, known) for role, given in groups.items()}
        if parameters is not None and not isinstance(parameters, Mapping):
            raise InvalidProblem("parameters must map names to numbers", hint="{'gamma': '0.1'}")
        named = {_symbol(key, "parameter", known): value for key, value in (parameters or {}).items()}
        self._parameters = tuple(named)
        self.values: dict[str, sp.Rational | None] = {
            symbol.name: None
            if value is None
            else rational(value, f"the parameter {symbol.name}", error=InvalidProblem)
            for symbol, value in named.items()
        }
        for symbol in self._parameters:
            if (number := self.values[symbol.name]) is not None:
                check_values(symbol, [number], "the parameters")
        self._refuse_clashes()

    def read(self, field: str, formula: Formula, roles: Iterable[str]) -> Stated:
        """The formula, checked, in the variables of ``roles`` and the parameters."""
        variables = (*(s for role in roles for s in self.groups[role]), *self._parameters)
        if isinstance(formula, Stated):
            return formula
        if isinstance(formula, str):
            return stated_text(formula, variables, field)
        if not isinstance(formula, (sp.Expr, Number)) or isinstance(formula, bool):
            raise InvalidProblem(
                f"{field} must be a SymPy expression, text or a number, but is a {type(formula).__name__}",
                hint=f"{field}='x1*y1' or an expression in sympy symbols",
            )
        if not isinstance(formula, sp.Expr):
            return stated_expression(rational(formula, field, error=InvalidProblem), variables, field)
        for symbol in sorted(self._symbols[id(formula)] - set(variables), key=str):
            floats_in(formula, field)  # what is not supported is said first
            raise _unknown_symbol(symbol, field, variables)
        return stated_expression(formula, variables, field)

    def insert(self, stated: Stated) -> Stated:
        """The formula with every numeric parameter replaced by its exact value."""
        return with_numbers(stated, {s: value for s in self._parameters if (value := self.values[s.name]) is not None})

    def _refuse_clashes(self) -> None:
        owners: dict[str, str] = {}
        declared = [(role, s) for role, group in self.groups.items() for s in group]
        for role, symbol in [*declared, *(("parameters", s) for s in self._parameters)]:
            if symbol.name in owners:
                raise InvalidProblem(
                    f"{symbol.name} is declared twice: in {owners[symbol.name]} and in {role}",
                    hint="give every variable and parameter a name of its own",
                )
            owners[symbol.name] = role


def _symbols_by_name(groups: Iterable[Iterable[sp.Symbol]]) -> dict[str, sp.Symbol]:
    """The symbols in the given expressions; two of one name are refused, for they print alike."""
    known: dict[str, sp.Symbol] = {}
    for symbols in groups:
        for symbol in symbols:
            if known.setdefault(symbol.name, symbol) != symbol:
                raise InvalidProblem(
                    f"two different symbols are both called {symbol.name}",
                    hint=f"make {symbol.name} once and use it in f, g, x and y",
                )
    return known


def _symbols_of(formula: Formula) -> set[sp.Symbol]:
    if isinstance(formula, Stated):
        return set(formula.drafted.symbols)
    return symbols_in(formula) if isinstance(formula, sp.Expr) else set()


def _resolve(role: str, given: Variables, known: Mapping[str, sp.Symbol]) -> tuple[sp.Symbol, ...]:
    if isinstance(given, str):
        if len(given) > MAX_LENGTH:
            raise InvalidProblem(
                f"{role} has {len(given)} characters, and {MAX_LENGTH} are accepted",
                hint=f"give {role} as a list of names or symbols",
            )
        given = given.replace(",", " ").split()
    elif isinstance(given, sp.Symbol):
        given = [given]
    elif isinstance(given, AbstractSet):
        raise InvalidProblem(f"{role} is a set, which has no order", hint=f"give {role} as a list")
    try:
        symbols = tuple(_symbol(name, role, known) for item in given for name in ranged_names(item, role))
    except TypeError:
        raise InvalidProblem(
            f"{role} must be symbols or names, but is {given!r:.60}",
            hint=f"{role}='{role}1 {role}2'",
        ) from None
    if not symbols and role in ("x", "y"):
        raise InvalidProblem(f"{role} is empty", hint=f"give at least one variable for {role}")
    return symbols


def ranged_names(item: object, role: str) -> Iterable[object]:
    """``x1:4`` means x1, x2, x3, as in SymPy; anything else means itself.

    >>> list(ranged_names("x1:4", "x"))
    ['x1', 'x2', 'x3']
    """
    found = RANGE.fullmatch(item) if isinstance(item, str) else None
    if found is None:
        return (item,)
    first, end = int(found["first"] or 0), int(found["end"])
    if not 0 < end - first <= MAX_NAMES:
        raise InvalidProblem(
            f"{role} has {item}, which means {max(end - first, 0)} variables",
            hint=f"x1:4 means x1, x2, x3; from 1 to {MAX_NAMES:,} in one range",
        )
    return (f"{found['name']}{k}" for k in range(first, end))


def _symbol(item: object, role: str, known: Mapping[str, sp.Symbol]) -> sp.Symbol:
    if isinstance(item, str):
        name = check_name(item, role)
        return known.get(name, sp.Symbol(name))
    if not isinstance(item, sp.Symbol):
        raise InvalidProblem(f"{role} holds {item!r:.60}, which is not a symbol", hint="use sympy.Symbol or a name")
    if item.is_commutative is False or item.is_extended_real is False:
        raise InvalidProblem(f"the symbol {item} in {role} is assumed not to be a real number")
    if not item.name.isprintable():
        raise InvalidProblem(f"the symbol {item.name!r:.60} in {role} has a character that cannot be printed")
    twin = known.get(item.name, item)
    if twin != item:
        raise InvalidProblem(
            f"the {item.name} in {role} and the {item.name} in the formulas differ in their assumptions",
            hint=f"make {item.name} once and use it everywhere",
        )
    return item


def _unknown_symbol(symbol: sp.Symbol, field: str, variables: Sequence[sp.Symbol]) -> InvalidProblem:
    names = [s.name for s in variables]
    near = difflib.get_close_matches(symbol.name, names, n=1)
    hint = f"did you mean {near[0]}?" if near else "declare it in x, y or parameters"
    return InvalidProblem(
        f"{field} contains {symbol}, which is not declared (declared: {', '.join(names)})",
        hint=hint,
    )
