"""What a problem in scalars states: formulas, variables, numbers; and how it is written down again.

``array_statement`` answers the same questions for arrays.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from types import MappingProxyType
from typing import Any, ClassVar

import sympy as sp

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.assumptions import check_kind, check_values
from bilevel_sym.graph.exact import rational
from bilevel_sym.graph.expressions import substitute, symbols_in, tree_size
from bilevel_sym.implicit.model import Model
from bilevel_sym.problem.box import Box
from bilevel_sym.problem.file import ProblemFile
from bilevel_sym.problem.parsing import check_name
from bilevel_sym.problem.scope import Parameters, Scope
from bilevel_sym.problem.stated import Stated, mean_of, negated
from bilevel_sym.problem.text import to_text

Rows = tuple[tuple[sp.Rational, ...], ...]

MAX_PRINTED = 5000  # characters of code, or nodes of formulas: nobody reads, or pastes, more
LEVELS: Mapping[str, str] = MappingProxyType({"f": "xi", "g": "zeta"})  # whose rows each formula is a mean over


@dataclass(frozen=True, eq=False)
class ScalarStatement:
    """A problem in scalars, read and checked.

    - ``given``: the formulas before the parameters were inserted.
    - ``stated``: f and g with their parameters; for samples those of one row.
    - ``groups``: the variables of each role.
    - ``parameters``: numbers, or None where they stay symbolic.
    - ``samples``: for a role that is drawn at random, its rows.

    >>> stated = state_scalars({"x": "x", "y": "y"}, {"a": 2}, {"f": "x*y", "g": "y**2/a"})
    >>> stated.expression("g"), stated.size("y")
    (y**2/2, 1)
    """

    given: Mapping[str, Stated]
    stated: Mapping[str, Stated]
    groups: Mapping[str, tuple[sp.Symbol, ...]]
    parameters: Mapping[str, sp.Rational | None]
    samples: Mapping[str, Rows] = field(default_factory=dict)

    is_array: ClassVar[bool] = False
    dimensions: ClassVar[Mapping[str, int | None]] = MappingProxyType({})
    arrays: ClassVar[Mapping[str, Any]] = MappingProxyType({})

    # ---- what is computed with ------------------------------------------------------------------------------------

    @cached_property
    def model(self) -> Model:
        """f and g on one graph, what is drawn among its inputs."""
        f, g = (self.stated[name].drafted for name in "fg")
        drawn = tuple(symbol for role in self.samples for symbol in self.groups[role])
        return Model(f, g, self.groups["x"], self.groups["y"], parameters=drawn)

    @property
    def has_kinks(self) -> bool:
        """Whether f or g changes its formula anywhere."""
        return self.model.has_kinks

    def counts(self, role: str) -> list[int]:
        """How many entries each variable of a role has: one."""
        return [1] * self.size(role)

    def size(self, role: str) -> int:
        """How many variables a role has."""
        return len(self.groups[role])

    def symbols_of_entries(self, role: str) -> tuple[sp.Symbol, ...]:
        """The variables of a role."""
        return self.groups[role]

    def row_counts(self) -> list[int]:
        """How many rows each role that is drawn has; one where nothing is."""
        return [max(1, len(rows)) for rows in self.samples.values()]

    def mean(self) -> ScalarStatement:
        """The mean over the rows of the samples."""
        means = {
            name: mean_of(self.stated[name], self.groups[role], self.samples[role]) for name, role in LEVELS.items()
        }
        symbolic = {name: None for name, value in self.parameters.items() if value is None}
        groups = {role: self.groups[role] for role in "xy"}
        return _checked(ScalarStatement(means, means, groups, MappingProxyType(symbolic)))

    # ---- what is shown --------------------------------------------------------------------------------------------

    @property
    def symbols(self) -> dict[str, sp.Symbol]:
        """The variables x and y by name."""
        return {symbol.name: symbol for role in "xy" for symbol in self.groups[role]}

    def symbols_of(self, role: str) -> tuple[sp.Symbol, ...]:
        """The variables of a role."""
        return self.groups[role]

    def expression(self, name: str) -> sp.Expr:
        """A formula in SymPy, with its parameters."""
        return self.stated[name].expression

    @property
    def _expressions(self) -> dict[str, sp.Expr]:
        """The formulas in SymPy before the parameters were inserted."""
        return {name: stated.expression for name, stated in self.given.items()}

    @property
    def is_short(self) -> bool:
        """Whether the formulas can be written out."""
        return sum(map(tree_size, self._expressions.values())) <= MAX_PRINTED

    def arguments(self) -> tuple[Any, ...]:
        """The positional arguments that state it again."""
        return (*(stated.argument for stated in self.given.values()), *self.groups.values(), *self.samples.values())

    def data_again(self) -> None:
        """There are no arrays."""

    def inline(self) -> None:
        """There are no arrays."""

    def printed(self) -> tuple[Any, ...]:
        """The positional arguments as a person would write them."""
        groups = (" ".join(symbol.name for symbol in group) for group in self.groups.values())
        tables = ([list(map(as_code, row)) for row in rows] for rows in self.samples.values())
        return (*map(to_text, self._expressions.values()), *groups, *tables)

    def summary(self) -> Iterable[str]:
        """Formulas and variables in a few words each."""
        for name, formula in self._expressions.items():
            yield f"{name} = {_shortened(formula)}"
        for role in "xy":
            yield f"{role} = {' '.join(symbol.name for symbol in self.groups[role])!r:.60}"

    def fields(self, kind: str, box: Box | None, name: str | None) -> ProblemFile:
        """What a file says of it."""
        texts = {field: to_text(formula) for field, formula in self._expressions.items()}
        groups = {role: tuple(check_name(symbol.name) for symbol in group) for role, group in self.groups.items()}
        stated: dict[str, Any] = groups | {f"{role}_data": rows for role, rows in self.samples.items()}
        return ProblemFile(
            kind=kind, **stated, f=texts["f"], g=texts.get("g"), name=name, parameters=self.parameters,
            box=None if box is None else dict(box.items()),
        )  # fmt: skip

    # ---- what makes two the same ----------------------------------------------------------------------------------

    @cached_property
    def frame(self) -> tuple[object, ...]:
        """Everything but the formulas, box and name."""
        return self._framed()

    def _framed(self, *more: object) -> tuple[object, ...]:
        names = {role: tuple(symbol.name for symbol in group) for role, group in self.groups.items()}
        drawn = (tuple(names[role] for role in self.samples), *self.samples.values()) if self.samples else ()
        return ((names["x"], names["y"]), tuple(self.parameters.items()), *more, *drawn)

    @cached_property
    def keys(self) -> tuple[object, ...]:
        """The content of the formulas; the assumptions of the symbols do not count."""
        return self._renamed(symbol.name for symbol in self._used)

    def _renamed(self, names: Iterable[str]) -> tuple[sp.Expr, ...]:
        """The formulas with plain symbols of these names, in the order of those that are used."""
        pairs = zip(self._used, map(sp.Symbol, names), strict=True)
        plain = {symbol: renamed for symbol, renamed in pairs if renamed != symbol}
        return tuple(substitute(formula, plain) for formula in self._expressions.values())

    @cached_property
    def _used(self) -> list[sp.Symbol]:
        return sorted(set().union(*map(symbols_in, self._expressions.values())), key=lambda symbol: symbol.name)

    @property
    def fingerprint(self) -> int:
        """A number that is the same where the same is computed."""
        return self.model.fingerprint

    def same_as(self, other: object) -> bool:
        """Whether the same is computed of both."""
        return isinstance(other, ScalarStatement) and self.model.same_as(other.model)

    def digest(self, kind: str, box: Box | None) -> str:
        """64 letters for the content, a kind and a box."""
        names = [symbol.name for symbol in self._used]  # which need not be ones that text can have
        texts = list(map(to_text, self._renamed(f"s{k}" for k in range(len(names)))))
        told = repr((kind, texts, names, self._framed(box)))
        return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()


def state_scalars(
    groups: Mapping[str, Any],
    parameters: Parameters | None,
    formulas: Mapping[str, Any],
    *,
    samples: Mapping[str, Any] | None = None,
) -> ScalarStatement:
    """What a user states in scalars, read and checked.

    groups: the variables of each role
    parameters: numbers by name; None stays symbolic
    formulas: f and g; where g is missing it is -f
    samples: the rows of roles that are drawn at random

    >>> state_scalars({"x": "x", "y": "y"}, None, {"f": "x*y - y**2"}).expression("g")
    -x*y + y**2
    """
    scope = Scope(groups, parameters, formulas.values())
    roles = {name: ("x", "y", LEVELS[name]) if samples else ("x", "y") for name in formulas}
    given = {name: scope.read(name, formula, roles[name]) for name, formula in formulas.items()}
    stated = {name: scope.insert(formula) for name, formula in given.items()}
    if "g" not in stated:
        stated["g"] = negated(stated["f"])
    tables = {role: _rows(rows, scope.groups[role], f"{role}_data") for role, rows in (samples or {}).items()}
    return _checked(ScalarStatement(given, stated, scope.groups, MappingProxyType(scope.values), tables))


def _checked(statement: ScalarStatement) -> ScalarStatement:
    check_kind(tuple(statement.symbols.values()))
    used = statement.stated["g"].drafted.used
    refuse_absent([y.name for y in statement.groups["y"] if y not in used], "g" if "g" in statement.given else "f")
    return statement


def refuse_absent(absent: Sequence[str], field: str) -> None:
    """Refuse a lower level that misses some of its variables.

    >>> refuse_absent([], "g")
    """
    if absent:
        raise InvalidProblem(
            f"{field} does not depend on {', '.join(absent)}, so the lower level has no unique minimiser",
            hint=f"remove {', '.join(absent)} from y, or add it to {field}",
        )


def as_code(value: sp.Rational | None) -> int | str | None:
    """A number as code has it: an integer, or a fraction in quotes.

    >>> as_code(sp.Rational(1, 3))
    '1/3'
    """
    return None if value is None else int(value) if value.is_Integer else str(value)


def _shortened(formula: sp.Expr) -> str:
    nodes = tree_size(formula)
    try:
        text = str(formula) if nodes <= MAX_PRINTED else ""
    except RecursionError:
        text = ""
    return text if 0 < len(text) <= 100 else f"{text[:100]}... ({nodes} nodes)"


def _rows(data: Any, symbols: Sequence[sp.Symbol], field: str) -> Rows:
    """The rows of a table, exactly, within what is assumed of the symbols of its columns."""
    rows, width = [], len(symbols)
    try:
        for i, row in enumerate(data):
            if isinstance(row, str):
                raise TypeError
            rows.append(tuple(rational(v, f"{field}[{i}][{j}]", error=InvalidProblem) for j, v in enumerate(row)))
    except TypeError:
        raise InvalidProblem(
            f"{field} must be a table: rows of {width} numbers", hint="write [[1, 2], [3, 4]]"
        ) from None
    for i, numbers in enumerate(rows):
        if len(numbers) != width:
            raise InvalidProblem(f"{field} row {i} has {len(numbers)} numbers, but {width} are declared")
    if width and not rows:
        raise InvalidProblem(f"{field} is empty", hint="give at least one row")
    for symbol, column in zip(symbols, zip(*rows, strict=True), strict=False):
        check_values(symbol, column, field)
    return tuple(rows)
