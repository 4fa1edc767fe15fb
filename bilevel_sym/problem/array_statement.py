"""What an array problem states: formulas as tensors, arrays, dimensions; and how it is written down again."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from math import prod
from types import MappingProxyType
from typing import Any, ClassVar

import sympy as sp

from bilevel_sym.arrays.data import DataArray
from bilevel_sym.arrays.display import to_sympy, to_text
from bilevel_sym.arrays.edges import edges_of
from bilevel_sym.arrays.lowering import Lowered, entry_symbols, expression_of, lower
from bilevel_sym.arrays.normal import scaled
from bilevel_sym.arrays.rows import mean_over_rows, weighted_over_rows
from bilevel_sym.arrays.tensor import Leaf, Tensor, known_sizes
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.assumptions import check_kind
from bilevel_sym.graph.draft import Drafted
from bilevel_sym.implicit.array_model import ArrayModel
from bilevel_sym.problem.array_data import Given, Symbols, data_of, declaration_text
from bilevel_sym.problem.array_scope import ArrayScope
from bilevel_sym.problem.box import Box
from bilevel_sym.problem.file import ProblemFile
from bilevel_sym.problem.parsing.array_declarations import Declaration
from bilevel_sym.problem.scalar_statement import LEVELS, refuse_absent
from bilevel_sym.problem.stated import Stated

MAX_INLINE = 2000  # entries that are written out
MAX_SHOWN = 100  # characters of a formula
_WORD = re.compile(r"[A-Za-z_][A-Za-z0-9_]*+")


@dataclass(frozen=True, eq=False)
class RowModel:
    """F and G as means over some of their rows, which are chosen and weighted from outside.

    - ``model``: their blocks; f is the sum of the weights times F at each row, and so is g.
    - ``rows``: for "f" and "g" the arrays of all rows, by name; nothing where nothing is drawn.
    - ``given``: the arrays of the chosen rows as the model has them, by the same names.
    - ``weights``: for "f" and "g" the vector of weights in the model, if there is one.
    - ``letters``: the dimension of the chosen rows.
    """

    model: ArrayModel
    rows: Mapping[str, Mapping[str, DataArray]]
    given: Mapping[str, Leaf]
    weights: Mapping[str, Leaf]
    letters: Mapping[str, str]


@dataclass(frozen=True, eq=False)
class ArrayStatement:
    """An array problem, read and checked. Two are the same where ``content`` is.

    - ``given``: the formulas as the user gave them, by field.
    - ``f``, ``g``: the same as tensors, parameters inserted; for samples those of one row.
    - ``groups``: what declares the arrays of each role.
    - ``leaves``: every name as a tensor has it.
    - ``data``: the data by name.
    - ``parameters``: numbers, or None where they stay symbolic.
    - ``dimensions``: the number that each letter stands for, None where it is not known.
    - ``symbols``: the user's own symbols, by name.
    - ``samples``: for a role that is drawn at random, the rows of its arrays; ``rows``: the letter of their dimension.

    >>> stated = state_arrays({"x": "x[n]", "y": "y[n]"}, None, {"b": [1, 2]}, {"f": "x @ y", "g": "sum((y - b)**2)"})
    >>> stated.size("y"), dict(stated.dimensions)
    (2, {'n': 2})
    """

    given: Mapping[str, Any]
    f: Tensor
    g: Tensor
    groups: Mapping[str, tuple[Declaration, ...]]
    leaves: Mapping[str, Leaf]
    data: Mapping[str, Given]
    parameters: Mapping[str, sp.Rational | None]
    dimensions: Mapping[str, int | None]
    symbols: Mapping[str, Symbols] = field(default_factory=dict)
    samples: Mapping[str, Mapping[str, DataArray]] = field(default_factory=dict)
    rows: Mapping[str, str] = field(default_factory=dict)

    is_array: ClassVar[bool] = True

    # ---- what is computed with ------------------------------------------------------------------------------------

    def arrays_of(self, role: str) -> tuple[Leaf, ...]:
        """The arrays of a role, in the order in which their entries are laid end to end."""
        return tuple(self.leaves[entry.name] for entry in self.groups[role])

    @cached_property
    def model(self) -> ArrayModel:
        """The blocks of f and g."""
        return ArrayModel(self.f, self.g, self.arrays_of("x"), self.arrays_of("y"))

    @cached_property
    def arrays(self) -> Mapping[str, Any]:
        """The data that have entries, by name: NumPy arrays that nobody can write to, or scipy.sparse arrays."""
        found = {name: given.array.values for name, given in self.data.items() if given.array is not None}
        return MappingProxyType(found)

    def symbols_of_entries(self, role: str) -> tuple[sp.Symbol, ...]:
        """A symbol for every entry of the arrays of a role, end to end, as the problem in scalars has them."""
        for leaf in (own := self.arrays_of(role)):
            self.entries(leaf)
        groups = entry_symbols((*self.arrays_of("x"), *self.arrays_of("y")), known_sizes(self.dimensions))
        return tuple(symbol for leaf in own for symbol in groups[leaf.name])

    @cached_property
    def has_kinks(self) -> bool:
        """Whether f or g changes its formula anywhere."""
        variables = {*self.arrays_of("x"), *self.arrays_of("y")}
        return any(edges_of(tensor, variables) for tensor in (self.f, self.g))

    def counts(self, role: str) -> list[int]:
        """How many entries each array of a role has."""
        return [self.entries(leaf) for leaf in self.arrays_of(role)]

    def size(self, role: str) -> int:
        """How many entries the arrays of a role have together."""
        return sum(self.counts(role))

    def entries(self, leaf: Leaf) -> int:
        """How many entries an array has; InvalidProblem where a dimension is not known."""
        sizes = [self.dimensions[dim] for dim in leaf.dims]
        for dim, size in zip(leaf.dims, sizes, strict=True):
            if size is None:
                raise InvalidProblem(
                    f"{leaf.name} has the dimension {dim}, whose size is not known",
                    hint=f"formulas do without; for numbers give data whose shape has {dim}, or a number for it",
                )
        return prod(size for size in sizes if size is not None)

    def lowered(self, build: Callable[..., Any], box: Box | None, name: str | None) -> Any:
        """The same problem in scalars, as ``build`` makes it: with f and g, or with f alone."""
        flat = lower(self.f, self.g, self.arrays_of("x"), self.arrays_of("y"), data=self.arrays, sizes=self.dimensions)
        formulas = [Stated(part, _expression(part)) for part in (flat.f, flat.g)[: len(self.given)]]
        symbolic = {name: None for name, value in self.parameters.items() if value is None}
        return build(*formulas, flat.x, flat.y, parameters=symbolic, box=_box_of_entries(box, flat), name=name)

    def row_counts(self) -> list[int]:
        """How many rows each role that is drawn has; one where nothing is."""
        return [next((array.shape[0] for array in own.values()), 1) for own in self.samples.values()]

    def mean(self) -> ArrayStatement:
        """The mean over the rows of the samples."""
        tensors = {field: getattr(self, field) for field in LEVELS}
        lifted: dict[str, Leaf] = {}
        data = dict(self.data)
        for name, role in LEVELS.items():
            if role in self.rows:
                own = self._with_rows(role)
                tensors[name] = mean_over_rows(tensors[name], own, self.rows[role])
                lifted |= {leaf.name: whole for leaf, whole in own.items()}
                data |= {key: Given(array, array.shape) for key, array in self.samples[role].items()}
        used = {leaf.name for tensor in tensors.values() for leaf in tensor.leaves}
        return ArrayStatement(
            tensors, **tensors, groups={role: self.groups[role] for role in "xy"}, leaves={**self.leaves, **lifted},
            data={name: given for name, given in data.items() if name in used or name in self.data},
            parameters=self.parameters, dimensions=self.dimensions, symbols=self.symbols,
        )  # fmt: skip

    def _with_rows(self, role: str) -> dict[Leaf, Leaf]:
        """For each array of a row the array of many."""
        letter = self.rows[role]
        return {leaf: Leaf(leaf.name, (letter, *leaf.dims), "data") for leaf in self.arrays_of(role)}

    @cached_property
    def row_model(self) -> RowModel:
        """The mean over rows that are chosen later."""
        tensors = {field: getattr(self, field) for field in LEVELS}
        given: dict[str, Leaf] = {}
        weights: dict[str, Leaf] = {}
        for name, role in LEVELS.items():
            if role in self.rows:
                own, title = self._with_rows(role), f"weight_{name}"
                while title in self.leaves:
                    title += "_"
                weights[name] = Leaf(title, (self.rows[role],), "data")
                tensors[name] = weighted_over_rows(tensors[name], own, weights[name])
                given |= {leaf.name: whole for leaf, whole in own.items()}
        rows = {name: self.samples.get(role, {}) for name, role in LEVELS.items()}
        letters = {name: self.rows[role] for name, role in LEVELS.items() if role in self.rows}
        model = ArrayModel(tensors["f"], tensors["g"], self.arrays_of("x"), self.arrays_of("y"))
        return RowModel(model, rows, given, weights, letters)

    # ---- what is shown --------------------------------------------------------------------------------------------

    def symbols_of(self, role: str) -> tuple[Symbols, ...]:
        """The arrays of a role in SymPy: the user's own symbols where they were given."""
        return tuple(self.symbols.get(leaf.name, to_sympy(Tensor.leaf(leaf))) for leaf in self.arrays_of(role))

    def expression(self, name: str) -> sp.Basic:
        """A formula in SymPy: as it was given there, or its tensor in matrix notation."""
        given, tensor = self.given.get(name), {"f": self.f, "g": self.g}[name]
        numbers = {key: value for key, value in self.parameters.items() if value is not None}
        return given if isinstance(given, sp.Basic) and not numbers else to_sympy(tensor)

    def texts(self) -> dict[str, str]:
        """The formulas as text that reads back: as they were written, where they were."""
        return {
            name: text if isinstance(self.given[name], str) else _WORD.sub(lambda word: self._counted(word[0]), text)
            for name, text in self._shown_texts().items()
        }

    def _shown_texts(self) -> dict[str, str]:
        tensors = {"f": self.f, "g": self.g}
        return {name: given if isinstance(given, str) else to_text(tensors[name]) for name, given in self.given.items()}

    def _counted(self, word: str) -> str:
        """A letter that nobody wrote means nothing in text: the number that it stands for is counted."""
        axes = [
            *(entry.axes for group in self.groups.values() for entry in group),
            *(g.axes for g in self.data.values()),
        ]
        if word not in self.dimensions or any(word in own for own in axes):
            return word
        leaf = min((leaf for leaf in self.leaves.values() if word in leaf.dims), key=lambda leaf: len(leaf.dims))
        vector = leaf.name if len(leaf.dims) == 1 else f"sum({leaf.name}, axis={1 - leaf.dims.index(word)})"
        return f"sum({vector}**0)"

    def declared(self, role: str) -> tuple[str, ...]:
        """What declares each array of a role."""
        return tuple(map(declaration_text, self.groups[role]))

    def arguments(self) -> tuple[Any, ...]:
        """The positional arguments that state it again: the user's own symbols where they were given."""
        groups = (
            tuple(self.symbols.get(entry.name, declaration_text(entry)) for entry in group)
            for group in self.groups.values()
        )
        return (*self.given.values(), *groups, *map(dict, self.samples.values()))

    def data_again(self) -> dict[str, Given]:
        """The data that state it again."""
        return dict(self.data)

    def printed(self) -> tuple[Any, ...]:
        """The positional arguments as a person would write them."""
        groups = (" ".join(self.declared(role)) for role in self.groups)
        rows = ({name: array.nested() for name, array in own.items()} for own in self.samples.values())
        return (*self.texts().values(), *groups, *rows)

    @property
    def is_short(self) -> bool:
        """Whether the data can be written out."""
        arrays = [given.array for given in self.data.values() if given.array is not None]
        drawn = [array for rows in self.samples.values() for array in rows.values()]
        return sum(prod(array.shape) for array in (*arrays, *drawn)) <= MAX_INLINE

    def inline(self) -> dict[str, Any]:
        """The data as a person would write them: nested lists, or a shape."""
        return {
            name: _shape_text(given) if given.array is None else given.array.nested()
            for name, given in self.data.items()
        }

    def fields(self, kind: str, box: Box | None, name: str | None) -> ProblemFile:
        """What a file says of it."""
        texts = self.texts()
        data: dict[str, DataArray | str] = {key: given.array or _shape_text(given) for key, given in self.data.items()}
        for arrays in self.samples.values():
            data |= arrays
        xi, zeta = (self.declared(role) if role in self.groups else () for role in LEVELS.values())
        return ProblemFile(
            kind=kind, x=self.declared("x"), y=self.declared("y"), xi=xi, zeta=zeta, f=texts["f"], g=texts.get("g"),
            name=name, parameters=self.parameters, box=None if box is None else dict(box.items()), data=data or None,
        )  # fmt: skip

    def summary(self) -> Iterable[str]:
        """Formulas, arrays and data in a few words each."""
        for name, text in self._shown_texts().items():
            yield f"{name} = {text if len(text) <= MAX_SHOWN else text[:MAX_SHOWN] + '...'}"
        for role in self.groups:
            yield f"{role} = {' '.join(self.declared(role))!r:.60}"
        for name, given in self.data.items():
            kind = "" if given.array is None or not given.array.is_sparse else "sparse "
            yield f"{name} = {kind}{' x '.join(map(str, given.axes)) or 'a number'}"

    # ---- what makes two the same ----------------------------------------------------------------------------------

    @cached_property
    def frame(self) -> tuple[object, ...]:
        """Everything but the formulas, box and name."""
        return self._framed(lambda array: array)

    def _framed(self, told: Callable[[DataArray], object]) -> tuple[object, ...]:
        variables = tuple(tuple((leaf.name, leaf.dims) for leaf in self.arrays_of(role)) for role in self.groups)
        data = tuple(
            (name, self.leaves[name].dims, self.leaves[name].declared_symmetric, given.array and told(given.array))
            for name, given in sorted(self.data.items())
        )
        drawn = tuple(
            (role, tuple((name, told(array)) for name, array in arrays.items()))
            for role, arrays in self.samples.items()
        )
        return (variables, data, drawn, tuple(self.dimensions.items()), tuple(self.parameters.items()))

    @cached_property
    def keys(self) -> tuple[str, str]:
        """The content of the formulas."""
        return self.f.key, self.g.key

    @cached_property
    def fingerprint(self) -> int:
        """A number that equal contents share."""
        return hash((self.keys, self.frame))

    def same_as(self, other: object) -> bool:
        """Whether the same is computed of both."""
        return isinstance(other, ArrayStatement) and (self.keys, self.frame) == (other.keys, other.frame)

    def digest(self, *more: object) -> str:
        """64 letters for the content and more."""
        content = repr((*more, self.keys, self._framed(lambda array: array.digest)))
        return hashlib.sha256(content.encode(errors="surrogatepass")).hexdigest()


def state_arrays(
    groups: Mapping[str, object],
    parameters: Mapping[Any, object] | None,
    data: object,
    formulas: Mapping[str, object],
    *,
    samples: Mapping[str, object] | None = None,
) -> ArrayStatement:
    """What a user states with arrays, read and checked.

    groups: the variables of each role
    parameters: numbers by name; None stays symbolic
    data: arrays by name, or a frame
    formulas: f and g; where g is missing it is -f
    samples: the rows of roles that are drawn at random

    >>> state_arrays({"x": "x", "y": "y[n]"}, None, None, {"f": "x - y @ y"}).g
    Tensor[|-1*x()+1*y(0)*y(0)]
    """
    scope = ArrayScope(groups, parameters, data_of(data, formulas.values()), formulas, samples=samples)
    f = scope.tensors["f"]
    g = scope.tensors["g"] if "g" in formulas else scaled(f, -1)
    check_kind([symbol for symbol in scope.symbols.values() if isinstance(symbol, sp.Symbol)])
    stated = ArrayStatement(
        MappingProxyType(dict(formulas)), f, g, scope.groups, scope.leaves, MappingProxyType(scope.data),
        MappingProxyType(scope.values), MappingProxyType(scope.dimensions), scope.symbols, scope.samples,
        {role: scope.row_letter(role) for role, arrays in scope.samples.items() if arrays},
    )  # fmt: skip
    absent = [leaf.name for leaf in stated.arrays_of("y") if leaf not in g.leaves]
    refuse_absent(absent, "g" if "g" in formulas else "f")
    return stated


def _expression(part: Drafted) -> Callable[[], sp.Expr]:
    return lambda: expression_of(part)


def _box_of_entries(box: Box | None, flat: Lowered) -> dict[str, Any] | None:
    if box is None:
        return None
    return {symbol.name: ends for name, ends in box.items() for symbol in flat.names[name]}


def _shape_text(given: Given) -> str:
    shape = ", ".join(map(str, given.axes)) or "scalar"
    return f"{shape} symmetric" if given.symmetric else shape
