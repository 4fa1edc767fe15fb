"""The problems that a user states. All validation of what a user gives starts here, once.

Validation is structural: names, shapes, kinds of expression. Nothing numeric is evaluated at construction.
"""

from __future__ import annotations

import os
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ClassVar, Never, TypeAlias

import sympy as sp

from bilevel_sym.errors import InvalidArgument, InvalidProblem, UnsafeExpression
from bilevel_sym.graph.assumptions import assumed_sign, check_interval
from bilevel_sym.implicit.model import Model
from bilevel_sym.plugins.hypothesis_plugin import register
from bilevel_sym.problem.box import Box
from bilevel_sym.problem.constraints import refuse_constraints
from bilevel_sym.problem.file import ProblemFile, parse_problem, problem_files, problem_toml, read_problem
from bilevel_sym.problem.numbers_given import as_scalar, in_decimals
from bilevel_sym.problem.scalar_statement import MAX_PRINTED, Rows, ScalarStatement, as_code, state_scalars
from bilevel_sym.problem.scope import Formula, Parameters, Variables, is_array_input
from bilevel_sym.system.plain_text import check_title
from bilevel_sym.system.writing import write_together
from bilevel_sym.typing import Floats

if TYPE_CHECKING:
    from bilevel_sym.implicit.array_model import ArrayModel
    from bilevel_sym.interop import Level
    from bilevel_sym.kernels import Kernels
    from bilevel_sym.problem.array_statement import ArrayStatement, RowModel
    from bilevel_sym.symbolic.derivation import Derivation

    Statement: TypeAlias = ScalarStatement | ArrayStatement

__all__ = ["BilevelProblem", "MinimaxProblem", "SameProgram", "StochasticProblem"]

BoxLike = Box | Mapping[str, Iterable[object]]
Data = Sequence[Sequence[object]] | Mapping[str, object] | Floats


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
      kernels and solvers do without. It is no constraint: y* may lie outside.
    - ``name``: of the problem.
    - ``decimals``: whether floats in formulas, parameters, box and rows are read as the decimals that print them, 0.1
      as 1/10; else a float is its exact binary value. ``data`` are float64 as they are.
    - ``unsupported``: nothing; constraints are refused with what to write in their place.

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
    _statement: Statement
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
        decimals: bool = False,
        **unsupported: Never,
    ) -> None:
        refuse_constraints(type(self).__name__, unsupported)
        self._state({"x": x, "y": y}, {"f": f, "g": g}, data, parameters, box, name, decimals=decimals)

    def _state(
        self,
        groups: Mapping[str, Variables],
        formulas: Mapping[str, Formula],
        data: Mapping[Any, object] | None,
        parameters: Parameters | None,
        box: BoxLike | None,
        name: str | None,
        samples: Mapping[str, Data] | None = None,
        *,
        decimals: bool = False,
    ) -> None:
        formulas = {name: as_scalar(formula) for name, formula in formulas.items()}
        named = [rows for rows in (samples or {}).values() if isinstance(rows, Mapping)]
        if decimals:
            formulas, parameters, box = map(in_decimals, (formulas, parameters, box))
            samples = samples if named else in_decimals(samples)
        if is_array_input(groups.values(), formulas.values(), data, *named):
            from bilevel_sym.problem.array_statement import state_arrays

            self._freeze(state_arrays(groups, parameters, data, formulas, samples=samples), box, name)
        else:
            self._freeze(state_scalars(groups, parameters, formulas, samples=samples), box, name)

    def _freeze(self, statement: Statement, box: BoxLike | None, name: str | None) -> None:
        """A box of arrays is given array by array, and means every entry."""
        x, y = statement.symbols_of("x"), statement.symbols_of("y")
        names = [tuple(symbol.name for symbol in group) for group in (x, y)]
        self.__dict__.update(
            x=x, y=y, parameters=statement.parameters, box=_bound(box, names, statement.symbols),
            name=None if name is None else check_title(name), _statement=statement,
        )  # fmt: skip

    def __setattr__(self, field: str, value: object) -> None:
        raise AttributeError(f"a problem is frozen; make a new one to change {field}")

    @cached_property
    def f(self) -> sp.Expr:
        """The upper level in SymPy, with exact numbers; the mean of what is random."""
        return self.mean._statement.expression("f")

    @cached_property
    def g(self) -> sp.Expr:
        """The lower level, likewise."""
        return self.mean._statement.expression("g")

    @cached_property
    def d(self) -> int:
        """The number of upper-level variables; of arrays every entry counts."""
        return self._statement.size("x")

    @cached_property
    def n(self) -> int:
        """The number of lower-level variables; of arrays every entry counts."""
        return self._statement.size("y")

    @property
    def is_array(self) -> bool:
        """Whether it is stated with arrays."""
        return self._statement.is_array

    @property
    def dimensions(self) -> dict[str, int | None]:
        """The number that each letter of a shape stands for; None where it is not known.

        >>> BilevelProblem("x @ y", "sum((y - b)**2)", "x[n]", "y[n]", data={"b": [1, 2, 3]}).dimensions
        {'n': 3}
        """
        return dict(self._statement.dimensions)

    @property
    def arrays(self) -> Mapping[str, Any]:
        """The data by name, as NumPy arrays that nobody can write to, or scipy.sparse arrays."""
        return self._statement.arrays

    @property
    def array_model(self) -> ArrayModel:
        """The blocks of f and g in index notation."""
        if isinstance(self._statement, ScalarStatement):
            raise InvalidProblem("a problem in scalars has no array model", hint="problem.tape has its blocks")
        return self._statement.model

    def lowered(self) -> BilevelProblem:
        """The same problem in scalars, exactly; itself where it is. TooLarge beyond a size that the message names.

        >>> BilevelProblem("x*sum(y)", "sum((y - b)**2)", "x", "y[n]", data={"b": [1, 2]}).lowered().f
        x*(y_1 + y_2)
        """
        return self.mean._lowered if self.is_array else self

    @cached_property
    def _lowered(self) -> BilevelProblem:
        assert not isinstance(self._statement, ScalarStatement)
        kind = MinimaxProblem if isinstance(self, MinimaxProblem) else BilevelProblem
        problem: BilevelProblem = self._statement.lowered(kind, self.box, self.name)
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
        return self._statement.symbols_of_entries("x")

    @cached_property
    def y_entries(self) -> tuple[sp.Symbol, ...]:
        """The same of y."""
        return self._statement.symbols_of_entries("y")

    def entries_by_array(self, role: str) -> list[tuple[str, slice]]:
        """The name of every array of x or of y, and where its entries stand among all.

        >>> BilevelProblem("a + b @ y", "sum((y - b)**2) + a*sum(y)", "a b[2]", "y[2]").entries_by_array("x")
        [('a', slice(0, 1, None)), ('b', slice(1, 3, None))]
        """
        counts = self._statement.counts(role)
        rows = zip(self._statement.symbols_of(role), accumulate(counts), counts, strict=True)
        return [(array.name, slice(end - count, end)) for array, end, count in rows]

    def ends(self, role: str) -> list[tuple[sp.Rational, sp.Rational]] | None:
        """The ends of the box for every entry of x or of y; None without a box, or where it does not have them.

        >>> BilevelProblem("x @ y", "sum((y - x)**2)", "x[2]", "y[2]", box={"x": (-1, 1)}).ends("x")
        [(-1, 1), (-1, 1)]
        """
        if self.box is None:
            return None
        known, arrays = dict(self.box.items()), self.entries_by_array(role)
        if any(name not in known for name, _ in arrays):
            return None
        return [known[name] for name, own in arrays for _ in range(own.start, own.stop)]

    @property
    def has_kinks(self) -> bool:
        """Whether f or g changes its formula anywhere: abs, min, max, sign or Piecewise.

        >>> BilevelProblem("abs(y)", "(y - x)**2", "x", "y").has_kinks
        True
        """
        return self.mean._statement.has_kinks

    @cached_property
    def y_centre(self) -> tuple[sp.Rational, ...]:
        """Where a search for y* begins when nobody says: the centre of the box in y, or zero."""
        ends = self.ends("y")
        return (sp.S.Zero,) * self.n if ends is None else tuple((low + high) / 2 for low, high in ends)

    @cached_property
    def tape(self) -> Model:
        """f and g on one graph with exact constants: what kernels and certificates share."""
        statement = self.mean._statement
        return statement.model if isinstance(statement, ScalarStatement) else self.lowered().tape

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

    @cached_property
    def digest(self) -> str:
        """64 letters that equal problems share and others do not, in every process and on every machine.

        >>> MinimaxProblem("x*y - y**2/2", "x", "y").digest == MinimaxProblem("y*x - y*y/2", "x", "y").digest
        True
        """
        return self._statement.digest(self.kind, self.box)

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, BilevelProblem) or self._frame != other._frame:
            return False
        return self is other or self._statement.keys == other._statement.keys

    def __hash__(self) -> int:
        return self._hash

    @cached_property
    def _hash(self) -> int:
        """Of what costs nothing: the formulas are in SymPy only when they are asked for."""
        return hash(self._frame)

    @cached_property
    def _frame(self) -> tuple[object, ...]:
        """What surrounds the formulas; the name does not count."""
        return (self.kind, self._statement.frame, self.box)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as what it was made from: what was derived from that is made again when asked for."""
        if self._origin is not None:
            return _mean_of, (self._origin,)
        given = {"data": self._statement.data_again(), "parameters": dict(self.parameters), "box": self.box}
        return _rebuild, (type(self), self._statement.arguments(), given | {"name": self.name})

    def __repr__(self) -> str:
        """The code that makes this problem, if text can say it and is not too long; otherwise <...>, which is no code.

        What is shown as code was read back first, and gave an equal problem.
        """
        try:
            return self._code() or self._summary()
        except (InvalidProblem, TypeError):  # what text cannot have, and a subclass with other arguments
            return self._summary()

    def _code(self) -> str | None:
        if not self._statement.is_short:
            return None
        arguments, data = self._statement.printed(), self._statement.inline()
        numbers = {name: as_code(value) for name, value in self.parameters.items()}
        ends = {name: tuple(map(as_code, pair)) for name, pair in ({} if self.box is None else self.box).items()}
        given: dict[str, Any] = {
            "data": data or None, "parameters": numbers or None, "box": ends or None, "name": self.name,
        }  # fmt: skip
        named = {field: value for field, value in given.items() if value is not None}
        shown = [*map(repr, arguments), *(f"{field}={value!r}" for field, value in named.items())]
        code = f"{type(self).__name__}({', '.join(shown)})"
        same = len(code) <= MAX_PRINTED and type(self)(*arguments, **named) == self
        return code if same else None

    def _summary(self) -> str:
        named = () if self.name is None else (f"name = {self.name!r:.60}",)
        return f"<{type(self).__name__}: {', '.join((*self._statement.summary(), *named))}>"

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> BilevelProblem:
        """Read a TOML problem file; its ``kind`` decides the class of what is returned.

        >>> import pathlib, tempfile
        >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.toml"
        >>> MinimaxProblem("x*y - y**2/2", "x", "y").save(path)
        >>> BilevelProblem.load(path)
        MinimaxProblem('x*y - y**2/2', 'x', 'y')
        """
        return _read(read_problem(path))

    @classmethod
    def from_toml(cls, text: str) -> BilevelProblem:
        """The problem that the text of a file states: the way back from ``to_toml``. Arrays in files are not read.

        >>> BilevelProblem.from_toml(MinimaxProblem("x*y - y**2/2", "x", "y").to_toml())
        MinimaxProblem('x*y - y**2/2', 'x', 'y')
        """
        if not isinstance(text, str):
            raise InvalidArgument(f"a problem file is text, not {text!r:.40}", hint="BilevelProblem.load for a path")
        return _read(parse_problem(text, "the text"))

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write a TOML problem file that ``load`` reads back as an equal problem.

        Assumptions of symbols (positive=True) are not part of a file; a box can say the same. A file that cannot be
        written raises CannotWrite and leaves the old one as it was.
        """
        write_together(problem_files(self._checked_fields(), path))

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
        fields = self._statement.fields(self.kind, self.box, self.name)
        try:
            _build(fields)
        except InvalidProblem as error:
            raise InvalidProblem(f"the file could not be read back: {error.message}", hint=error.hint) from None
        return fields


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
        decimals: bool = False,
        **unsupported: Never,
    ) -> None:
        refuse_constraints(type(self).__name__, unsupported)
        self._state({"x": x, "y": y}, {"f": f}, data, parameters, box, name, decimals=decimals)


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
        decimals: bool = False,
        **unsupported: Never,
    ) -> None:
        refuse_constraints(type(self).__name__, unsupported)
        groups, samples = {"x": x, "y": y, "xi": xi, "zeta": zeta}, {"xi": xi_data, "zeta": zeta_data}
        self._state(groups, {"f": F, "g": G}, data, parameters, box, name, samples, decimals=decimals)

    def _freeze(self, statement: Statement, box: BoxLike | None, name: str | None) -> None:
        super()._freeze(statement, box, name)
        for role, rows in statement.samples.items():
            table = MappingProxyType(dict(rows)) if isinstance(rows, Mapping) else rows
            self.__dict__.update({role: statement.symbols_of(role), f"{role}_data": table})

    @cached_property
    def F(self) -> sp.Expr:
        """The upper level in SymPy, with the data as symbols."""
        return self._statement.expression("f")

    @cached_property
    def G(self) -> sp.Expr:
        """The lower level in SymPy, with the data as symbols."""
        return self._statement.expression("g")

    @cached_property
    def samples(self) -> Model:
        """F and G on one graph, the data among the inputs: what batches are computed with."""
        if not isinstance(self._statement, ScalarStatement):
            raise InvalidProblem("a problem with arrays has no graph of one row", hint="problem.array_samples")
        return self._statement.model

    @property
    def array_samples(self) -> RowModel:
        """F and G as means over chosen rows, in index notation: what batches of arrays are computed with."""
        if isinstance(self._statement, ScalarStatement):
            raise InvalidProblem("a problem in scalars has no array samples", hint="problem.samples")
        return self._statement.row_model

    @property
    def row_counts(self) -> tuple[int, int]:
        """How many rows xi and zeta have; one where nothing is drawn.

        >>> StochasticProblem("(y - a)**2/2", "(y - x)**2/2", "x", "y", "a", "", [[0], [2]], [[]]).row_counts
        (2, 1)
        """
        xi, zeta = self._statement.row_counts()
        return xi, zeta

    @cached_property
    def mean(self) -> BilevelProblem:
        """The exact expectation over the data rows."""
        problem = BilevelProblem.__new__(BilevelProblem)
        problem._freeze(self._statement.mean(), self.box, self.name)
        problem.__dict__["_origin"] = self
        return problem


class SameProgram:
    """A problem that equals those of which the same is computed: the same variables, signs, data, box and programs.

    Unlike equality of problems this asks nothing of SymPy.

    >>> one, two = (MinimaxProblem(f, "x", "y") for f in ("x*y - y**2", "y*x - y**2"))
    >>> SameProgram(one) == SameProgram(two), "f" in vars(one)
    (True, False)
    """

    def __init__(self, problem: BilevelProblem) -> None:
        self.problem = problem
        # by what is assumed of its variables a kernel refuses points
        signs = () if problem.is_array else tuple(map(assumed_sign, (*problem.x, *problem.y)))
        self._frame = (type(problem), problem._frame, signs)
        self._hash = hash((self._frame, problem._statement.fingerprint))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SameProgram) or self._frame != other._frame:
            return False
        return self.problem._statement.same_as(other.problem._statement)

    def __hash__(self) -> int:
        return self._hash


def _rebuild(kind: type[BilevelProblem], arguments: tuple[Any, ...], given: dict[str, Any]) -> BilevelProblem:
    if given["data"] is None:  # a subclass in scalars need not know of data
        given = {field: value for field, value in given.items() if field != "data"}
    return kind(*arguments, **given)


def _bound(box: BoxLike | None, names: Sequence[tuple[str, ...]], symbols: Mapping[str, sp.Basic]) -> Box | None:
    """The box with its ends in the order of the variables, and within what is assumed of their symbols."""
    if box is None:
        return None
    box = (box if isinstance(box, Box) else Box(box)).bind(*names)
    for field, (low, high) in box.items():
        if isinstance(symbol := symbols.get(field), sp.Symbol):
            check_interval(symbol, low, high, "the box")
    return box


def _mean_of(problem: StochasticProblem) -> BilevelProblem:
    return problem.mean


def _read(fields: ProblemFile) -> BilevelProblem:
    """What a file says, with the place in it of a formula that is refused."""
    try:
        return _build(fields)
    except UnsafeExpression as error:
        raise fields.locate(error) from None


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
