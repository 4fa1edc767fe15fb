"""The problems that a user states. All validation of what a user gives starts here, once.

Validation is structural: names, shapes, kinds of expression. Nothing numeric is evaluated at construction.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import cached_property
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar

import sympy as sp

from bilevel_sym.errors import InvalidProblem, UnsafeExpression
from bilevel_sym.graph.assumptions import assumed_sign, check_interval, check_kind, check_values
from bilevel_sym.graph.exact import rational
from bilevel_sym.graph.expressions import substitute, symbols_in, tree_size
from bilevel_sym.implicit.model import Model
from bilevel_sym.plugins.hypothesis_plugin import register
from bilevel_sym.problem.box import Box
from bilevel_sym.problem.file import ProblemFile, problem_files, problem_toml, read_problem
from bilevel_sym.problem.parsing import check_name
from bilevel_sym.problem.scope import Formula, Parameters, Scope, Variables, is_array_input
from bilevel_sym.problem.stated import Stated, mean_of, negated
from bilevel_sym.problem.text import to_text
from bilevel_sym.system.plain_text import check_title
from bilevel_sym.system.writing import write, write_together
from bilevel_sym.typing import Floats

if TYPE_CHECKING:
    from bilevel_sym.implicit.array_model import ArrayModel
    from bilevel_sym.interop import Level
    from bilevel_sym.kernels import Kernels
    from bilevel_sym.problem.array_statement import ArrayStatement, RowModel
    from bilevel_sym.symbolic.derivation import Derivation

__all__ = ["BilevelProblem", "MinimaxProblem", "SameProgram", "StochasticProblem"]

BoxLike = Box | Mapping[str, Iterable[object]]
Data = Sequence[Sequence[object]] | Mapping[str, object] | Floats
Rows = tuple[tuple[sp.Rational, ...], ...]

_MAX_PRINTED = 5000  # characters of code, or nodes of formulas: nobody reads, or pastes, more


class BilevelProblem:
    """min over x of f(x, y*(x)), where y*(x) minimises g(x, y) over y; g strongly convex in y.

    All of these can be read back, and never change.

    - ``f``: a SymPy expression, or text.
    - ``g``: likewise.
    - ``x``: symbols, names, or one string of names ("x1 x2", or "x1:3"); arrays have their shape in brackets ("x[n]",
      "lam, W[p, q]"), in letters or numbers, or are MatrixSymbols.
    - ``y``: likewise.
    - ``data``: arrays by name (NumPy, scipy.sparse, nested lists, columns of frames), or their shapes ("m, n").
    - ``parameters``: numbers by name, substituted exactly; a parameter that is None stays symbolic.
    - ``box``: a Box or {name: (low, high)}, where constants, stationary points and verdicts are looked for; formulas,
      kernels and solvers do without.
    - ``name``: of the problem.

    Paper: Equation 1.1 [eq:objective]

    >>> problem = BilevelProblem("x1*y1 + x1**2/2", "a*y1**2/2 - x1*y1", "x1", "y1",
    ...                          parameters={"a": 2}, box={"x1": (-1, 1), "y1": (-1, 1)})
    >>> problem.g, problem.d, problem.n
    (-x1*y1 + y1**2, 1, 1)

    It prints as the code that makes it:

    >>> BilevelProblem("y1*x1", "y1**2/2 - y1*x1", "x1", "y1", box=Box([-1, -1], [1, 1]))
    BilevelProblem('x1*y1', '-x1*y1 + y1**2/2', 'x1', 'y1', box={'x1': (-1, 1), 'y1': (-1, 1)})

    With arrays it is of any size:

    >>> ridge = BilevelProblem("sum((B @ y - c)**2)", "sum((A @ y - b)**2) + exp(x)*(y @ y)", "x", "y[n]",
    ...                        data={"A": "m, n", "b": "m", "B": "k, n", "c": "k"})
    >>> ridge.dimensions
    {'k': None, 'm': None, 'n': None}
    """

    kind: ClassVar[str] = "bilevel"

    x: tuple[sp.Symbol, ...]  # of array problems also MatrixSymbols
    y: tuple[sp.Symbol, ...]
    parameters: Mapping[str, sp.Rational | None]
    box: Box | None
    name: str | None
    _given: Mapping[str, Stated]  # the formulas before the parameters were inserted
    _stated: Mapping[str, Stated]  # f and g with their parameters
    _array: ArrayStatement | None = None  # all of this for arrays
    _origin: StochasticProblem | None = None  # of which this is the mean

    def __init__(
        self,
        f: Formula,
        g: Formula,
        x: Variables,
        y: Variables,
        *,
        data: Mapping[Any, object] | None = None,
        parameters: Parameters | None = None,
        box: BoxLike | None = None,
        name: str | None = None,
    ) -> None:
        if is_array_input((x, y), (f, g), data):
            self._state_arrays({"x": x, "y": y}, {"f": f, "g": g}, data, parameters, box, name)
            return
        scope = Scope({"x": x, "y": y}, parameters, (f, g))
        given = {"f": scope.read("f", f, "xy"), "g": scope.read("g", g, "xy")}
        inserted = {field: scope.insert(formula) for field, formula in given.items()}
        self._freeze(scope, box, name, _given=given, _stated=inserted)
        _check_depends(inserted["g"], self.y, "g")

    def _freeze(self, scope: Scope, box: BoxLike | None, name: str | None, **more: object) -> None:
        x, y = scope.groups["x"], scope.groups["y"]
        check_kind((*x, *y))
        symbols, parameters = {s.name: s for s in (*x, *y)}, MappingProxyType(scope.values)
        box = _bound(box, [tuple(s.name for s in group) for group in (x, y)], symbols)
        self.__dict__.update(x=x, y=y, parameters=parameters, box=box, name=_title(name), **more)

    def _state_arrays(
        self,
        groups: Mapping[str, object],
        formulas: Mapping[str, object],
        data: object,
        parameters: Parameters | None,
        box: BoxLike | None,
        name: str | None,
        samples: Mapping[str, object] | None = None,
    ) -> None:
        from bilevel_sym.problem.array_statement import state_arrays

        self._freeze_arrays(state_arrays(groups, parameters, data, formulas, samples=samples), box, name)

    def _freeze_arrays(self, stated: ArrayStatement, box: BoxLike | None, name: str | None) -> None:
        """A box is given array by array, and means every entry."""
        x, y = stated.symbols_of("x"), stated.symbols_of("y")
        box = _bound(box, [tuple(leaf.name for leaf in stated.arrays_of(role)) for role in "xy"], stated.symbols)
        self.__dict__.update(x=x, y=y, parameters=stated.parameters, box=box, name=_title(name), _array=stated)

    def __setattr__(self, field: str, value: object) -> None:
        raise AttributeError(f"a problem is frozen; make a new one to change {field}")

    @cached_property
    def f(self) -> sp.Expr:
        """The upper level in SymPy, with exact numbers."""
        return self._stated["f"].expression if self._array is None else self._array.expression("f")

    @cached_property
    def g(self) -> sp.Expr:
        """The lower level in SymPy, with exact numbers."""
        return self._stated["g"].expression if self._array is None else self._array.expression("g")

    @cached_property
    def d(self) -> int:
        """The number of upper-level variables; of arrays every entry counts."""
        return len(self.x) if self._array is None else self._array.size("x")

    @cached_property
    def n(self) -> int:
        """The number of lower-level variables; of arrays every entry counts."""
        return len(self.y) if self._array is None else self._array.size("y")

    @property
    def is_array(self) -> bool:
        """Whether it is stated with arrays."""
        return self._array is not None

    @property
    def dimensions(self) -> dict[str, int | None]:
        """The number that each letter of a shape stands for; None where it is not known.

        >>> BilevelProblem("x @ y", "sum((y - b)**2)", "x[n]", "y[n]", data={"b": [1, 2, 3]}).dimensions
        {'n': 3}
        """
        return {} if self._array is None else dict(self._array.dimensions)

    @property
    def arrays(self) -> Mapping[str, Any]:
        """The data by name, as NumPy arrays that nobody can write to, or scipy.sparse arrays."""
        return MappingProxyType({}) if self._array is None else self._array.arrays

    @property
    def array_model(self) -> ArrayModel:
        """The blocks of f and g in index notation."""
        if self._array is None:
            raise InvalidProblem("a problem in scalars has no array model", hint="problem.tape has its blocks")
        return self._array.model

    def lowered(self) -> BilevelProblem:
        """The same problem in scalars, exactly; itself where it is. TooLarge beyond a size that the message names.

        >>> BilevelProblem("x*sum(y)", "sum((y - b)**2)", "x", "y[n]", data={"b": [1, 2]}).lowered().f
        x*(y_1 + y_2)
        """
        return self if self._array is None else self._lowered

    @cached_property
    def _lowered(self) -> BilevelProblem:
        assert self._array is not None
        kind = MinimaxProblem if isinstance(self, MinimaxProblem) else BilevelProblem
        problem: BilevelProblem = self._array.lowered(kind, self.box, self.name)
        return problem

    @property
    def mean(self) -> BilevelProblem:
        """The exact expectation over the data: the problem itself, where nothing is random."""
        return self

    @cached_property
    def derivation(self) -> Derivation:
        """``derive(problem)``, made once."""
        from bilevel_sym.symbolic.derivation import derive

        return derive(self)

    @cached_property
    def x_entries(self) -> tuple[sp.Symbol, ...]:
        """A symbol for every entry of x, end to end: x itself where it is stated in scalars.

        >>> BilevelProblem("x @ y", "sum((y - x)**2)", "x[2]", "y[2]").x_entries
        (x_1, x_2)
        """
        return self.x if self._array is None else self._array.symbols_of_entries("x")

    @cached_property
    def y_entries(self) -> tuple[sp.Symbol, ...]:
        """The same of y."""
        return self.y if self._array is None else self._array.symbols_of_entries("y")

    def entries_by_array(self, role: str) -> list[tuple[str, slice]]:
        """The name of every array of x or of y, and where its entries stand among all.

        >>> BilevelProblem("a + b @ y", "sum((y - b)**2) + a*sum(y)", "a b[2]", "y[2]").entries_by_array("x")
        [('a', slice(0, 1, None)), ('b', slice(1, 3, None))]
        """
        arrays = self.x if role == "x" else self.y
        counts = [1] * len(arrays) if self._array is None else self._array.counts(role)
        starts = [sum(counts[:k]) for k in range(len(counts))]
        rows = zip(arrays, starts, counts, strict=True)
        return [(array.name, slice(start, start + count)) for array, start, count in rows]

    def ends(self, role: str) -> list[tuple[sp.Rational, sp.Rational]] | None:
        """The ends of the box for every entry of x or of y; None without a box, or where it does not have them.

        >>> BilevelProblem("x @ y", "sum((y - x)**2)", "x[2]", "y[2]", box={"x": (-1, 1)}).ends("x")
        [(-1, 1), (-1, 1)]
        """
        if self.box is None:
            return None
        known, arrays = dict(self.box.items()), self.x if role == "x" else self.y
        counts = [1] * len(arrays) if self._array is None else self._array.counts(role)
        if any(array.name not in known for array in arrays):
            return None
        return [known[array.name] for array, entries in zip(arrays, counts, strict=True) for _ in range(entries)]

    @property
    def has_kinks(self) -> bool:
        """Whether f or g changes its formula anywhere: abs, min, max, sign or Piecewise.

        >>> BilevelProblem("abs(y)", "(y - x)**2", "x", "y").has_kinks
        True
        """
        return self.tape.has_kinks if self._array is None else self._array.has_kinks

    @cached_property
    def y_centre(self) -> tuple[sp.Rational, ...]:
        """Where a search for y* begins when nobody says: the centre of the box in y, or zero."""
        if self._array is not None:
            return self._array.centre(self.box)
        ends = {} if self.box is None else dict(self.box.items())
        return tuple(sum(ends[s.name]) / 2 if s.name in ends else sp.S.Zero for s in self.y)

    @cached_property
    def tape(self) -> Model:
        """f and g on one graph with exact constants: what kernels and certificates share."""
        if self._array is not None:
            return self.lowered().tape
        return Model(self._stated["f"].drafted, self._stated["g"].drafted, self.x, self.y)

    @cached_property
    def kernels(self) -> Kernels:
        """``compile_kernels(problem)``, made once."""
        from bilevel_sym.kernels import compile_kernels

        return compile_kernels(self)

    def to_numpy(self) -> tuple[Level, Level]:
        """f and g as functions (x, y) -> scalar of NumPy; x and y are flat vectors.

        >>> f, g = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y").to_numpy()
        >>> float(f([2.0], [3.0]))
        6.0
        """
        return self._levels("numpy")

    def to_jax(self) -> tuple[Level, Level]:
        """The same of JAX, in float64: they can be differentiated, jitted and vmapped."""
        return self._levels("jax")

    def to_torch(self) -> tuple[Level, Level]:
        """The same of PyTorch, in float64: they can be differentiated and compiled."""
        return self._levels("torch")

    def _levels(self, library: str) -> tuple[Level, Level]:
        from bilevel_sym.interop import functions_in

        return functions_in(library, self)

    @property
    def _expressions(self) -> dict[str, sp.Expr]:
        """The formulas in SymPy before the parameters were inserted."""
        return {field: stated.expression for field, stated in self._given.items()}

    @cached_property
    def _content(self) -> tuple[object, ...]:
        """What makes two problems the same; the name and the assumptions of the symbols do not count."""
        if self._array is not None:
            return (self._array.keys, *self._frame)
        symbols = set().union(*map(symbols_in, self._expressions.values()))
        plain = {s: p for s in symbols if (p := sp.Symbol(s.name)) != s}
        formulas = tuple(substitute(formula, plain) for formula in self._expressions.values())
        return (formulas, *self._frame)

    @cached_property
    def digest(self) -> str:
        """64 letters that equal problems share and others do not, in every process and on every machine.

        >>> MinimaxProblem("x*y - y**2/2", "x", "y").digest == MinimaxProblem("y*x - y*y/2", "x", "y").digest
        True
        """
        if self._array is not None:
            return self._array.digest(self.kind, self.box)
        order = sorted(set().union(*map(symbols_in, self._expressions.values())), key=lambda s: s.name)
        plain = {s: sp.Symbol(f"s{k}") for k, s in enumerate(order)}  # a name need not be one that text can have
        texts = [to_text(substitute(formula, plain)) for formula in self._expressions.values()]
        told = repr((self.kind, texts, [s.name for s in order], self._frame[1:]))
        return hashlib.sha256(told.encode(errors="surrogatepass")).hexdigest()

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BilevelProblem) or self._frame != other._frame:
            return False
        return self is other or self._content == other._content

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Of what costs nothing: the formulas are in SymPy only when they are asked for."""
        return hash(self._frame)

    @cached_property
    def _frame(self) -> tuple[object, ...]:
        """What surrounds the formulas; the name does not count."""
        if self._array is not None:
            return (self.kind, self._array.frame, self.box)
        variables = tuple(tuple(s.name for s in group) for group in (self.x, self.y))
        return (self.kind, variables, tuple(self.parameters.items()), self.box)

    def _models(self) -> tuple[Model | ArrayStatement, ...]:
        return (self.tape,) if self._array is None else (self._array,)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as what it was made from: what was derived from that is made again when asked for."""
        if self._origin is not None:
            return _mean_of, (self._origin,)
        data = None if self._array is None else dict(self._array.data)
        return _rebuild, (type(self), self._arguments(), dict(self.parameters), self.box, self.name, data)

    def _arguments(self) -> tuple[object, ...]:
        if self._array is not None:
            return (*self._array.given.values(), self._array.again("x"), self._array.again("y"))
        return (*(stated.argument for stated in self._given.values()), self.x, self.y)

    def __repr__(self) -> str:
        """The code that makes this problem, if text can say it and is not too long; otherwise <...>, which is no code.

        What is shown as code was read back first, and gave an equal problem.
        """
        try:
            return self._code() or self._summary()
        except (InvalidProblem, TypeError):  # what text cannot have, and a subclass with other arguments
            return self._summary()

    def _code(self) -> str | None:
        if self._array is None and sum(map(tree_size, self._expressions.values())) > _MAX_PRINTED:
            return None
        if self._array is not None and not self._array.is_short:
            return None
        arguments, numbers = self._printed(), {name: _number(value) for name, value in self.parameters.items()}
        ends = {name: tuple(map(_number, pair)) for name, pair in ({} if self.box is None else self.box).items()}
        data = None if self._array is None else self._array.inline()
        given: dict[str, Any] = {
            "data": data or None, "parameters": numbers or None, "box": ends or None, "name": self.name,
        }  # fmt: skip
        named = {field: value for field, value in given.items() if value is not None}
        shown = [*map(repr, arguments), *(f"{field}={value!r}" for field, value in named.items())]
        code = f"{type(self).__name__}({', '.join(shown)})"
        same = len(code) <= _MAX_PRINTED and type(self)(*arguments, **named) == self
        return code if same else None

    def _printed(self) -> tuple[Any, ...]:
        """The positional arguments as a person would write them."""
        if self._array is not None:
            return (*self._array.texts().values(), *(" ".join(self._array.declared(role)) for role in "xy"))
        return (
            *map(to_text, self._expressions.values()),
            *(" ".join(s.name for s in group) for group in (self.x, self.y)),
        )

    def _summary(self) -> str:
        if self._array is not None:
            words = [*self._array.summary(), *(() if self.name is None else (f"name = {self.name!r:.60}",))]
            return f"<{type(self).__name__}: {', '.join(words)}>"
        formulas = (f"{field} = {_shortened(formula)}" for field, formula in self._expressions.items())
        groups = (f"{role} = {' '.join(s.name for s in group)!r:.60}" for role, group in (("x", self.x), ("y", self.y)))
        named = () if self.name is None else (f"name = {self.name!r:.60}",)
        return f"<{type(self).__name__}: {', '.join((*formulas, *groups, *named))}>"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BilevelProblem:
        """Read a TOML problem file; its ``kind`` decides the class of what is returned.

        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.toml"
        >>> MinimaxProblem("x*y - y**2/2", "x", "y").save(path)
        >>> BilevelProblem.load(path)
        MinimaxProblem('x*y - y**2/2', 'x', 'y')
        """
        fields = read_problem(path)
        try:
            return _build(fields)
        except UnsafeExpression as error:
            raise fields.locate(error) from None

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a TOML problem file that ``load`` reads back as an equal problem.

        Assumptions of symbols (positive=True) are not part of a file; a box can say the same. A file that cannot be
        written raises CannotWrite and leaves the old one as it was.
        """
        if self._array is None:
            write(path, self.to_toml())
        else:
            files = problem_files(self._checked_fields(), path)
            write_together({place: content for place, content in files.items()})  # noqa: C416 - of wider types

    def to_toml(self) -> str:
        """The text of the file that ``save`` writes.

        >>> print(MinimaxProblem("x*y - y**2/2", "x", "y").to_toml(), end="")
        kind = "minimax"
        x = ["x"]
        y = ["y"]
        f = "x*y - y**2/2"
        """
        return problem_toml(self._checked_fields())

    def _checked_fields(self) -> ProblemFile:
        """What a file says of this problem, once it was read back."""
        fields = self._fields()
        try:
            _build(fields)
        except InvalidProblem as error:
            raise InvalidProblem(f"the file could not be read back: {error.message}", hint=error.hint) from None
        return fields

    def _fields(self) -> ProblemFile:
        if self._array is not None:
            return self._array.fields(self.kind, self.box, self.name)
        texts = {field: to_text(formula) for field, formula in self._expressions.items()}
        return ProblemFile(
            kind=self.kind,
            x=tuple(check_name(s.name) for s in self.x),
            y=tuple(check_name(s.name) for s in self.y),
            f=texts["f"],
            g=texts.get("g"),
            name=self.name,
            parameters=self.parameters,
            box=None if self.box is None else dict(self.box.items()),
        )


class MinimaxProblem(BilevelProblem):
    """min over x of max over y of f(x, y), f strongly concave in y: the bilevel problem with g = -f.

    - All: as for ``BilevelProblem``.

    Paper: Equation 3.1 [eq:minimax-formu]

    >>> MinimaxProblem("x1*y1 - y1**2/2", "x1", "y1").g
    -x1*y1 + y1**2/2
    """

    kind = "minimax"

    def __init__(
        self,
        f: Formula,
        x: Variables,
        y: Variables,
        *,
        data: Mapping[Any, object] | None = None,
        parameters: Parameters | None = None,
        box: BoxLike | None = None,
        name: str | None = None,
    ) -> None:
        if is_array_input((x, y), (f,), data):
            self._state_arrays({"x": x, "y": y}, {"f": f}, data, parameters, box, name)
            return
        scope = Scope({"x": x, "y": y}, parameters, (f,))
        given = scope.read("f", f, "xy")
        inserted = scope.insert(given)
        self._freeze(scope, box, name, _given={"f": given}, _stated={"f": inserted, "g": negated(inserted)})
        _check_depends(inserted, self.y, "f")


class StochasticProblem(BilevelProblem):
    """f(x, y) = E F(x, y; xi) and g(x, y) = E G(x, y; zeta); the data rows are the distributions.

    ``mean`` is the exact expectation, a deterministic BilevelProblem; ``f`` and ``g`` are its formulas.

    - ``F``: a SymPy expression, or text, in x, y and xi.
    - ``G``: the same in x, y and zeta.
    - ``xi``: the columns of the upper level's data.
    - ``zeta``: the columns of the lower level's data.
    - ``xi_data``: the rows of xi, equally likely; with arrays ("a[n] b") by name, with the row as their first axis.
    - ``zeta_data``: the rows of zeta, likewise.
    - The others: as for ``BilevelProblem``.

    Paper: Equation 1.8 [objective]

    >>> problem = StochasticProblem("(y - a)**2/2", "(y - b*x)**2/2", "x", "y", "a", "b",
    ...                             [[0], [2]], [[1], [3]])
    >>> problem.mean.f
    y**2/4 + (y - 2)**2/4
    """

    kind = "stochastic"

    xi: tuple[sp.Symbol, ...]
    zeta: tuple[sp.Symbol, ...]
    xi_data: Rows  # with arrays: a mapping from names to arrays
    zeta_data: Rows

    def __init__(
        self,
        F: Formula,
        G: Formula,
        x: Variables,
        y: Variables,
        xi: Variables,
        zeta: Variables,
        xi_data: Data,
        zeta_data: Data,
        *,
        data: Mapping[Any, object] | None = None,
        parameters: Parameters | None = None,
        box: BoxLike | None = None,
        name: str | None = None,
    ) -> None:
        named = (rows for rows in (xi_data, zeta_data) if isinstance(rows, Mapping))
        if is_array_input((x, y, xi, zeta), (F, G), data, *named):
            groups, samples = {"x": x, "y": y, "xi": xi, "zeta": zeta}, {"xi": xi_data, "zeta": zeta_data}
            self._state_arrays(groups, {"f": F, "g": G}, data, parameters, box, name, samples)
            return
        scope = Scope({"x": x, "y": y, "xi": xi, "zeta": zeta}, parameters, (F, G))
        given = {
            "f": scope.read("f", F, ("x", "y", "xi")),
            "g": scope.read("g", G, ("x", "y", "zeta")),
        }
        inserted = {field: scope.insert(formula) for field, formula in given.items()}
        self._freeze(
            scope, box, name, _given=given, _stated=inserted,
            xi=scope.groups["xi"], zeta=scope.groups["zeta"],
            xi_data=_rows(xi_data, len(scope.groups["xi"]), "xi_data"),
            zeta_data=_rows(zeta_data, len(scope.groups["zeta"]), "zeta_data"),
        )  # fmt: skip
        for role, symbols, rows in (("xi_data", self.xi, self.xi_data), ("zeta_data", self.zeta, self.zeta_data)):
            for symbol, column in zip(symbols, zip(*rows, strict=True), strict=False):
                check_values(symbol, column, role)
        _check_depends(inserted["g"], self.y, "g")

    def _freeze_arrays(self, stated: ArrayStatement, box: BoxLike | None, name: str | None) -> None:
        super()._freeze_arrays(stated, box, name)
        roles = {role: stated.symbols_of(role) for role in ("xi", "zeta")}
        rows = {f"{role}_data": MappingProxyType(dict(stated.samples[role])) for role in roles}
        self.__dict__.update(roles, **rows)

    @cached_property
    def F(self) -> sp.Expr:
        """The upper level in SymPy, with the data as symbols."""
        return self._stated["f"].expression if self._array is None else self._array.expression("f")

    @cached_property
    def G(self) -> sp.Expr:
        """The lower level in SymPy, with the data as symbols."""
        return self._stated["g"].expression if self._array is None else self._array.expression("g")

    @cached_property
    def samples(self) -> Model:
        """F and G on one graph, the data among the inputs: what batches are computed with."""
        if self._array is not None:
            raise InvalidProblem("a problem with arrays has no graph of one row", hint="problem.array_samples")
        F, G = (self._stated[field].drafted for field in "fg")
        return Model(F, G, self.x, self.y, parameters=(*self.xi, *self.zeta))

    @property
    def array_samples(self) -> RowModel:
        """F and G as means over chosen rows, in index notation: what batches of arrays are computed with."""
        if self._array is None:
            raise InvalidProblem("a problem in scalars has no array samples", hint="problem.samples")
        return self._array.row_model

    @property
    def row_counts(self) -> tuple[int, int]:
        """How many rows xi and zeta have; one where nothing is drawn.

        >>> StochasticProblem("(y - a)**2/2", "(y - x)**2/2", "x", "y", "a", "", [[0], [2]], [[]]).row_counts
        (2, 1)
        """
        if self._array is None:
            return max(1, len(self.xi_data)), max(1, len(self.zeta_data))
        arrays = (self._array.samples[role] for role in ("xi", "zeta"))
        xi, zeta = (next((array.shape[0] for array in own.values()), 1) for own in arrays)
        return xi, zeta

    @cached_property
    def tape(self) -> Model:
        """The mean on one graph."""
        return self.mean.tape

    @cached_property
    def mean(self) -> BilevelProblem:
        """The exact expectation over the data rows."""
        if self._array is not None:
            problem = BilevelProblem.__new__(BilevelProblem)
            problem._freeze_arrays(self._array.mean(), self.box, self.name)
            problem.__dict__["_origin"] = self
            return problem
        symbolic = {name: None for name, value in self.parameters.items() if value is None}
        return BilevelProblem(
            mean_of(self._stated["f"], self.xi, self.xi_data),
            mean_of(self._stated["g"], self.zeta, self.zeta_data),
            self.x, self.y, parameters=symbolic, box=self.box, name=self.name,
        )  # fmt: skip

    @cached_property
    def f(self) -> sp.Expr:
        """The mean of F."""
        return self.mean.f

    @cached_property
    def g(self) -> sp.Expr:
        """The mean of G."""
        return self.mean.g

    @cached_property
    def _lowered(self) -> BilevelProblem:
        return self.mean.lowered()

    @cached_property
    def _frame(self) -> tuple[object, ...]:
        if self._array is not None:
            return super()._frame
        names = tuple(tuple(s.name for s in group) for group in (self.xi, self.zeta))
        return (*super()._frame, names, self.xi_data, self.zeta_data)

    def _models(self) -> tuple[Model | ArrayStatement, ...]:
        return (self.tape, self.samples) if self._array is None else super()._models()

    def _arguments(self) -> tuple[object, ...]:
        if self._array is not None:
            drawn = (self._array.again(role) for role in ("xi", "zeta"))
            return (*super()._arguments(), *drawn, *map(dict, (self.xi_data, self.zeta_data)))
        return (*super()._arguments(), self.xi, self.zeta, self.xi_data, self.zeta_data)

    def _printed(self) -> tuple[Any, ...]:
        if self._array is not None:
            drawn = (" ".join(self._array.declared(role)) for role in ("xi", "zeta"))
            listed = (
                {name: array.nested() for name, array in self._array.samples[role].items()} for role in ("xi", "zeta")
            )
            return (*super()._printed(), *drawn, *listed)
        groups = (" ".join(s.name for s in group) for group in (self.xi, self.zeta))
        tables = ([[_number(value) for value in row] for row in data] for data in (self.xi_data, self.zeta_data))
        return (*super()._printed(), *groups, *tables)

    def _fields(self) -> ProblemFile:
        if self._array is not None:
            return super()._fields()
        return replace(
            super()._fields(),
            xi=tuple(check_name(s.name) for s in self.xi),
            zeta=tuple(check_name(s.name) for s in self.zeta),
            xi_data=self.xi_data,
            zeta_data=self.zeta_data,
        )


class SameProgram:
    """A problem that equals those of which the same is computed: the same variables, signs, data, box and programs.

    Unlike equality of problems this asks nothing of SymPy.

    >>> one, two = (MinimaxProblem(f, "x", "y") for f in ("x*y - y**2", "y*x - y**2"))
    >>> SameProgram(one) == SameProgram(two), "f" in vars(one)
    (True, False)
    """

    def __init__(self, problem: BilevelProblem) -> None:
        self.problem = problem
        self._models = problem._models()
        # by what is assumed of its variables a kernel refuses points
        signs = () if problem.is_array else tuple(map(assumed_sign, (*problem.x, *problem.y)))
        self._frame = (type(problem), problem._frame, signs)
        self._hash = hash((self._frame, *(model.fingerprint for model in self._models)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SameProgram) or self._frame != other._frame:
            return False
        pairs = zip(self._models, other._models, strict=True)
        return all(one.same_as(two) for one, two in pairs)  # type: ignore[arg-type]

    def __hash__(self) -> int:
        return self._hash


def _rebuild(
    kind: type[BilevelProblem],
    arguments: tuple[Any, ...],
    parameters: dict[str, Any],
    box: Box | None,
    name: str | None,
    data: dict[str, Any] | None = None,
) -> BilevelProblem:
    more = {} if data is None else {"data": data}
    return kind(*arguments, parameters=parameters, box=box, name=name, **more)


def _bound(box: BoxLike | None, names: Sequence[tuple[str, ...]], symbols: Mapping[str, sp.Basic]) -> Box | None:
    """The box with its ends in the order of the variables, and within what is assumed of their symbols."""
    if box is None:
        return None
    box = (box if isinstance(box, Box) else Box(box)).bind(*names)
    for field, (low, high) in box.items():
        if isinstance(symbol := symbols.get(field), sp.Symbol):
            check_interval(symbol, low, high, "the box")
    return box


def _title(name: str | None) -> str | None:
    return None if name is None else check_title(name)


def _mean_of(problem: StochasticProblem) -> BilevelProblem:
    return problem.mean


def _number(value: sp.Rational | None) -> int | str | None:
    """A number as code: an integer, or a fraction in quotes."""
    return None if value is None else int(value) if value.is_Integer else str(value)


def _shortened(formula: sp.Expr) -> str:
    nodes = tree_size(formula)
    try:
        text = str(formula) if nodes <= _MAX_PRINTED else ""
    except RecursionError:
        text = ""
    return text if 0 < len(text) <= 100 else f"{text[:100]}... ({nodes} nodes)"


def _check_depends(stated: Stated, y: Sequence[sp.Symbol], field: str) -> None:
    if absent := [s.name for s in y if s not in stated.drafted.used]:
        raise InvalidProblem(
            f"{field} does not depend on {', '.join(absent)}, so the lower level has no unique minimiser",
            hint=f"remove {', '.join(absent)} from y, or add it to {field}",
        )


def _rows(data: Data, width: int, field: str) -> Rows:
    rows = []
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
    return tuple(rows)


def _build(fields: ProblemFile) -> BilevelProblem:
    given: dict[str, Any] = {"parameters": fields.parameters, "box": fields.box, "name": fields.name}
    if fields.data is not None:
        given["data"] = fields.data
    if fields.kind == "minimax":
        return MinimaxProblem(fields.f, fields.x, fields.y, **given)
    if fields.kind == "stochastic":
        xi_data: Any = fields.xi_data
        zeta_data: Any = fields.zeta_data
        if fields.data is not None:  # with arrays rows stand among the data, by their names
            xi_data, zeta_data = (
                {name: fields.data[name] for name in fields.names_of(role) if name in fields.data}
                for role in ("xi", "zeta")
            )
            drawn = {*xi_data, *zeta_data}
            given["data"] = {name: value for name, value in fields.data.items() if name not in drawn} or None
        return StochasticProblem(
            fields.f, fields.g or "", fields.x, fields.y, fields.xi, fields.zeta, xi_data, zeta_data, **given
        )
    return BilevelProblem(fields.f, fields.g or "", fields.x, fields.y, **given)


register()  # if Hypothesis was imported first, it asked before there was a problem
