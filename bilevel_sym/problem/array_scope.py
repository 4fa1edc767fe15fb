"""The scope of an array problem: what each name means, which dimensions are one, and the formulas as tensors.

All formulas are looked at before any is built: use joins dimensions, and a tensor wants the letter of each.
"""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Mapping
from collections.abc import Set as AbstractSet
from fractions import Fraction
from itertools import chain
from numbers import Number
from typing import Any

import sympy as sp

from bilevel_sym.arrays.calculus import substituted
from bilevel_sym.arrays.data import DataArray
from bilevel_sym.arrays.language import Axis, Dimensions, Inference, Reading, Shape
from bilevel_sym.arrays.language.syntax import Node
from bilevel_sym.arrays.normal import ones
from bilevel_sym.arrays.tensor import Leaf, Role, Tensor
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.exact import rational
from bilevel_sym.problem.array_data import (
    Given,
    Symbols,
    array_symbols_in,
    declared_symbol,
    names_in,
    rows_of,
    squeezed,
)
from bilevel_sym.problem.parsing.array_declarations import Declaration, array_name, declared
from bilevel_sym.problem.parsing.array_grammar import array_tree, placed
from bilevel_sym.problem.scope import ranged_names


class ArrayScope:
    """The names of an array problem, and its formulas.

    - ``groups``: the variables of each role: text, symbols, or a list of them.
    - ``parameters``: numbers by name; None stays symbolic.
    - ``data``: as ``data_of`` made them.
    - ``formulas``: by field, as they were given.
    - ``samples``: of a role whose arrays are drawn at random: their rows, which lead.

    >>> from bilevel_sym.problem.array_data import data_of
    >>> scope = ArrayScope({"x": "x[n]", "y": "y[n]"}, None, data_of({"A": [[1, 2], [3, 4], [5, 6]]}),
    ...                    {"f": "sum(x*y)", "g": "(A @ y) @ (A @ y)"})
    >>> scope.dimensions, scope.tensors["f"]
    ({'m': 3, 'n': 2}, Tensor[|1*x(0)*y(0)])
    """

    def __init__(
        self,
        groups: Mapping[str, object],
        parameters: Mapping[Any, object] | None,
        data: Mapping[str, Given],
        formulas: Mapping[str, object],
        *,
        samples: Mapping[str, object] | None = None,
    ) -> None:
        self._formulas = formulas
        self._in_sympy = array_symbols_in(formulas.values())
        self._known = Dimensions()
        self._numbers: dict[int, Axis] = {}
        self.symbols: dict[str, Symbols] = {}
        self.groups = {role: self._declared(role, given) for role, given in groups.items()}
        self.data, self.values = dict(data), self._parameters(parameters)
        self._shapes = self._declared_shapes()
        self.samples = {role: rows_of(role, self.groups[role], rows) for role, rows in (samples or {}).items()}
        self._rows = {role: self._row_axis(role, arrays) for role, arrays in self.samples.items() if arrays}
        self._written = self._letters()  # by people: in formulas such a letter is the number that it stands for
        self._refuse_clashes()
        trees = {field: self._tree(field, text) for field, text in formulas.items() if isinstance(text, str)}
        self._refuse_unused(trees)
        self.leaves = self._named_leaves()
        self.dimensions = self._known.sizes([*self._shapes.values(), *self._rows.values()])
        self.tensors = {field: self._tensor(field, formula, trees) for field, formula in formulas.items()}

    # ---- what is declared -----------------------------------------------------------------------------------------

    def _declared(self, role: str, given: object) -> tuple[Declaration, ...]:
        if isinstance(given, AbstractSet):
            raise InvalidProblem(f"{role} is a set, which has no order", hint=f"give {role} as a list")
        items = given if isinstance(given, (list, tuple)) else (given,)
        found = tuple(entry for item in items for entry in self._entries(role, item))
        if not found and role in ("x", "y"):
            raise InvalidProblem(f"{role} is empty", hint=f"give at least one variable for {role}")
        return found

    def _entries(self, role: str, item: object) -> Iterator[Declaration]:
        if not isinstance(item, str):
            entry = declared_symbol(item, role)
            self.symbols[entry.name] = item
            yield entry
            return
        for entry in declared(item, role):
            for name in (entry.name,) if entry.axes else ranged_names(entry.name, role):
                symbol = None if entry.axes else self._in_sympy.get(str(name))
                if symbol is None:
                    yield Declaration(array_name(name, role), entry.axes)
                else:
                    yield from self._entries(role, symbol)

    def _parameters(self, parameters: Mapping[Any, object] | None) -> dict[str, sp.Rational | None]:
        if parameters is not None and not isinstance(parameters, Mapping):
            raise InvalidProblem("parameters must map names to numbers", hint="{'gamma': '0.1'}")
        found: dict[str, sp.Rational | None] = {}
        for key, value in (parameters or {}).items():
            name = key.name if isinstance(key, sp.Symbol) else array_name(key, "parameter")
            number = None if value is None else rational(value, f"the parameter {name}", error=InvalidProblem)
            found[name] = number
        return found

    def _declared_shapes(self) -> dict[str, Shape]:
        """The shape of every name; what symbols in formulas say of data is joined with what the data have."""
        shapes = {}
        for entry in chain.from_iterable(self.groups.values()):
            shape_of = self._shape_of_symbol if entry.name in self.symbols else self._shape
            shapes[entry.name] = shape_of(entry.axes)
        for name, given in sorted(self.data.items(), key=lambda item: (item[0].lower(), item[0])):
            symbol = self._in_sympy.get(name)
            said = None if symbol is None or symbol.shape is None else declared_symbol(symbol, "data").axes
            if said is not None and len(said) < len(given.axes) and given.array is not None:
                given = self.data[name] = squeezed(given, len(said))
            shapes[name] = self._shape(given.axes)
            if said is not None:
                self._agree(name, self._shape_of_symbol(said), shapes[name])
        return shapes | dict.fromkeys(self.values, ())

    def _row_axis(self, role: str, arrays: Mapping[str, DataArray]) -> Shape:
        """The dimension of the rows of a role; what else the arrays have is joined with what was declared."""
        rows = self._known.numbered(next(iter(arrays.values())).shape[0])
        for name, array in arrays.items():
            found = tuple(self._known.numbered(size) for size in array.shape)
            said = (rows, *self._shapes[name])
            shown = f"{self._known.shown(found)}, but with its rows it is {self._known.shown(said)}"
            if len(said) != len(found) or not all(self._known.join(a, b) for a, b in zip(said, found, strict=True)):
                raise InvalidProblem(
                    f"{name} in {role}_data has the shape {shown}", hint="rows lead: one for each draw"
                )
        return (rows,)

    def row_letter(self, role: str) -> str:
        """The letter of the dimension of the rows of a role."""
        return self._known.letters(self._rows[role])[0]

    def _shape(self, axes: Iterable[str | int]) -> Shape:
        return tuple(self._known.lettered(a) if isinstance(a, str) else self._known.numbered(a) for a in axes)

    def _shape_of_symbol(self, axes: Iterable[str | int]) -> Shape:
        """In SymPy equal numbers are equal dimensions; elsewhere only use says so."""
        numbers = {a: self._numbers.setdefault(a, self._known.numbered(a)) for a in axes if isinstance(a, int)}
        return tuple(self._known.lettered(a) if isinstance(a, str) else numbers[a] for a in axes)

    def _agree(self, name: str, said: Shape, found: Shape) -> None:
        shown = f"{self._known.shown(said)} in the formulas and {self._known.shown(found)} in data"
        if len(said) != len(found) or not all(self._known.join(a, b) for a, b in zip(said, found, strict=True)):
            raise InvalidProblem(f"{name} is {shown}", hint="the same shape in both places")

    def _refuse_clashes(self) -> None:
        owners: dict[str, str] = {}
        groups = [(role, [entry.name for entry in group]) for role, group in self.groups.items()]
        for role, names in (*groups, ("data", self.data), ("parameters", self.values)):
            for name in names:
                if name in owners:
                    raise InvalidProblem(
                        f"{name} is declared twice: in {owners[name]} and in {role}",
                        hint="give every variable, array and parameter a name of its own",
                    )
                owners[name] = role
        for letter in sorted(self._written):
            if letter in owners:
                raise InvalidProblem(
                    f"{letter} is a dimension, and declared in {owners[letter]} as well", hint="rename one of them"
                )

    def _letters(self) -> set[str]:
        return {letter for shape in self._shapes.values() for axis in shape if (letter := self._known.letter(axis))}

    # ---- formulas -------------------------------------------------------------------------------------------------

    def _tree(self, field: str, text: str) -> tuple[Node, set[str]]:
        """The syntax of a text, and the names in it; its use joins dimensions."""
        names = self._visible(field)
        tree = array_tree(text, [*names, *sorted(self._written)], source=field)
        shapes = {name: self._shapes[name] for name in names} | dict.fromkeys(self._written, ())
        inference = Inference(self._known, shapes)
        with placed(text, field):
            inference.scalar(tree, field)
        return tree, inference.used

    def _visible(self, field: str) -> list[str]:
        """The names that a formula may have: the noise of a level stands in that level alone."""
        hidden = {"f": "zeta", "g": "xi"}.get(field)
        groups = [group for role, group in self.groups.items() if role != hidden]
        return [*(entry.name for group in groups for entry in group), *self.data, *self.values]

    def _refuse_unused(self, trees: Mapping[str, tuple[Node, set[str]]]) -> None:
        used = set(chain.from_iterable(names for _, names in trees.values()))
        used |= set(chain.from_iterable(names_in(f) for f in self._formulas.values() if not isinstance(f, str)))
        for name in self.data:
            if name not in used:
                near = difflib.get_close_matches(name, [other for other in self._shapes if other != name], n=1)
                hint = f"did you mean {near[0]}? otherwise leave it out" if near else "leave it out, or use it"
                raise InvalidProblem(f"the data {name} stand in no formula", hint=hint)

    def _named_leaves(self) -> dict[str, Leaf]:
        variables = [self._shapes[entry.name] for role in "xy" for entry in self.groups.get(role, ())]
        self._known.name_rest(variables, [*self._shapes.values(), *self._rows.values()], self._shapes.keys())
        return {name: self._leaf(name, shape) for name, shape in self._shapes.items()}

    def _role(self, name: str) -> Role:
        if name in self.values:
            return "parameter"
        level = next((role for role in ("x", "y") if any(entry.name == name for entry in self.groups[role])), None)
        return "data" if level is None else "x" if level == "x" else "y"

    def _leaf(self, name: str, shape: Shape) -> Leaf:
        given = self.data.get(name)
        symmetric = given is not None and (given.symmetric or (given.array is not None and given.array.is_symmetric))
        letters = self._known.letters(shape)
        return Leaf(name, letters, self._role(name), symmetric and letters[0] == letters[1])

    def _tensor(self, field: str, formula: Any, trees: Mapping[str, tuple[Node, set[str]]]) -> Tensor:
        if field in trees:
            with placed(formula, field):
                return Reading(self._meanings()).tensor(trees[field][0])
        if isinstance(formula, (sp.Expr, sp.MatrixExpr)) and not isinstance(formula, sp.Number):
            return self._read_sympy(field, formula)
        if isinstance(formula, (Number, sp.Number)) and not isinstance(formula, bool):
            return ones((), _fraction(rational(formula, field, error=InvalidProblem)))
        raise InvalidProblem(
            f"{field} must be text, a SymPy expression or a number, but is a {type(formula).__name__}",
            hint=f"{field}='sum((A @ y - b)**2)'",
        )

    def _meanings(self) -> dict[str, Tensor]:
        """What each name means in text; numeric parameters are their numbers."""
        numbers = {name: ones((), _fraction(value)) for name, value in self.values.items() if value is not None}
        numbers |= {letter: ones((), 1, {letter: 1}) for letter in self._written}
        return {name: Tensor.leaf(leaf) for name, leaf in self.leaves.items()} | numbers

    def _read_sympy(self, field: str, formula: sp.Basic) -> Tensor:
        from bilevel_sym.arrays.sympy_door import read

        visible = {name: self.leaves[name] for name in self._visible(field)}
        value = read(formula, visible, field=field)
        if value.rank:
            raise InvalidProblem(
                f"{field} is an array of shape {list(value.dims)}, and must be one number", hint="Trace, or Sum"
            )
        numbers = {
            self.leaves[name]: ones((), _fraction(number)) for name, number in self.values.items() if number is not None
        }
        try:
            return substituted(value, numbers)
        except ZeroDivisionError:
            raise InvalidProblem(f"{field} with its parameters inserted divides by zero") from None


def _fraction(number: sp.Rational) -> Fraction:
    return Fraction(int(number.p), int(number.q))
