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
from bilevel_sym.graph.assumptions import check_interval, check_kind, check_values
from bilevel_sym.graph.exact import rational
from bilevel_sym.graph.expressions import substitute, symbols_in, tree_size
from bilevel_sym.hypothesis_plugin import register
from bilevel_sym.implicit.model import Model
from bilevel_sym.problem.box import Box
from bilevel_sym.problem.file import ProblemFile, problem_toml, read_problem
from bilevel_sym.problem.parsing import check_name
from bilevel_sym.problem.scope import Formula, Parameters, Scope, Variables
from bilevel_sym.problem.stated import Stated, mean_of, negated
from bilevel_sym.problem.text import to_text
from bilevel_sym.system.plain_text import check_title
from bilevel_sym.system.writing import write

if TYPE_CHECKING:
    from bilevel_sym.kernels import Kernels
    from bilevel_sym.symbolic.derivation import Derivation

__all__ = ["BilevelProblem", "MinimaxProblem", "SameProgram", "StochasticProblem"]

BoxLike = Box | Mapping[str, Iterable[object]]
Data = Sequence[Sequence[object]]
Rows = tuple[tuple[sp.Rational, ...], ...]

_MAX_PRINTED = 5000  # characters of code, or nodes of formulas: nobody reads, or pastes, more


class BilevelProblem:
    """min over x of f(x, y*(x)), where y*(x) minimises g(x, y) over y; g strongly convex in y.

    All of these can be read back, and never change.

    - ``f``: a SymPy expression, or text.
    - ``g``: likewise.
    - ``x``: symbols, names, or one string of names ("x1 x2", or "x1:3").
    - ``y``: likewise.
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
    """

    kind: ClassVar[str] = "bilevel"

    x: tuple[sp.Symbol, ...]
    y: tuple[sp.Symbol, ...]
    parameters: Mapping[str, sp.Rational | None]
    box: Box | None
    name: str | None
    _given: Mapping[str, Stated]  # the formulas before the parameters were inserted
    _stated: Mapping[str, Stated]  # f and g with their parameters

    def __init__(
        self,
        f: Formula,
        g: Formula,
        x: Variables,
        y: Variables,
        *,
        parameters: Parameters | None = None,
        box: BoxLike | None = None,
        name: str | None = None,
    ) -> None:
        scope = Scope({"x": x, "y": y}, parameters, (f, g))
        given = {"f": scope.read("f", f, "xy"), "g": scope.read("g", g, "xy")}
        inserted = {field: scope.insert(formula) for field, formula in given.items()}
        self._freeze(scope, box, name, _given=given, _stated=inserted)
        _check_depends(inserted["g"], self.y, "g")

    def _freeze(self, scope: Scope, box: BoxLike | None, name: str | None, **more: object) -> None:
        name = None if name is None else check_title(name)
        x, y = scope.groups["x"], scope.groups["y"]
        check_kind((*x, *y))
        if box is not None:
            box = box if isinstance(box, Box) else Box(box)
            box = box.bind(tuple(s.name for s in x), tuple(s.name for s in y))
            by_name = {s.name: s for s in (*x, *y)}
            for field, (low, high) in box.items():
                check_interval(by_name[field], low, high, "the box")
        parameters = MappingProxyType(scope.values)
        self.__dict__.update(x=x, y=y, parameters=parameters, box=box, name=name, **more)

    def __setattr__(self, field: str, value: object) -> None:
        raise AttributeError(f"a problem is frozen; make a new one to change {field}")

    @cached_property
    def f(self) -> sp.Expr:
        """The upper level in SymPy, with exact numbers."""
        return self._stated["f"].expression

    @cached_property
    def g(self) -> sp.Expr:
        """The lower level in SymPy, with exact numbers."""
        return self._stated["g"].expression

    @property
    def d(self) -> int:
        """The number of upper-level variables."""
        return len(self.x)

    @property
    def n(self) -> int:
        """The number of lower-level variables."""
        return len(self.y)

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
    def y_centre(self) -> tuple[sp.Rational, ...]:
        """Where a search for y* begins when nobody says: the centre of the box in y, or zero."""
        ends = {} if self.box is None else dict(self.box.items())
        return tuple(sum(ends[s.name]) / 2 if s.name in ends else sp.S.Zero for s in self.y)

    @cached_property
    def tape(self) -> Model:
        """f and g on one graph with exact constants: what kernels and certificates share."""
        return Model(self._stated["f"].drafted, self._stated["g"].drafted, self.x, self.y)

    @cached_property
    def kernels(self) -> Kernels:
        """``compile_kernels(problem)``, made once."""
        from bilevel_sym.kernels import compile_kernels

        return compile_kernels(self)

    @property
    def _expressions(self) -> dict[str, sp.Expr]:
        """The formulas in SymPy before the parameters were inserted."""
        return {field: stated.expression for field, stated in self._given.items()}

    @cached_property
    def _content(self) -> tuple[object, ...]:
        """What makes two problems the same; the name and the assumptions of the symbols do not count."""
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
        """Of what costs nothing: the formulas are in SymPy only when somebody asks."""
        return hash(self._frame)

    @cached_property
    def _frame(self) -> tuple[object, ...]:
        """What surrounds the formulas; the name does not count."""
        variables = tuple(tuple(s.name for s in group) for group in (self.x, self.y))
        return (self.kind, variables, tuple(self.parameters.items()), self.box)

    def _models(self) -> tuple[Model, ...]:
        return (self.tape,)

    def __reduce__(self) -> tuple[object, ...]:
        """Pickled as what it was made from: what was derived from that is made again when asked for."""
        return _rebuild, (type(self), self._arguments(), dict(self.parameters), self.box, self.name)

    def _arguments(self) -> tuple[object, ...]:
        return (*(stated.argument for stated in self._given.values()), self.x, self.y)

    def __repr__(self) -> str:
        """The code that makes this problem, if text can say it and is not too long; otherwise <...>, which is no code.

        What is shown as code was read back first, and gave an equal problem.
        """
        try:
            return self._code() or self._summary()
        except (
            InvalidProblem,
            TypeError,
        ):  # a name or a nesting that text cannot have; a subclass with other arguments
            return self._summary()

    def _code(self) -> str | None:
        if sum(map(tree_size, self._expressions.values())) > _MAX_PRINTED:
            return None
        arguments, numbers = self._printed(), {name: _number(value) for name, value in self.parameters.items()}
        ends = {name: tuple(map(_number, pair)) for name, pair in ({} if self.box is None else self.box).items()}
        given: dict[str, Any] = {"parameters": numbers or None, "box": ends or None, "name": self.name}
        named = {field: value for field, value in given.items() if value is not None}
        shown = [*map(repr, arguments), *(f"{field}={value!r}" for field, value in named.items())]
        code = f"{type(self).__name__}({', '.join(shown)})"
        same = len(code) <= _MAX_PRINTED and type(self)(*arguments, **named) == self
        return code if same else None

    def _printed(self) -> tuple[Any, ...]:
        """The positional arguments as a person would write them."""
        return (
            *map(to_text, self._expressions.values()),
            *(" ".join(s.name for s in group) for group in (self.x, self.y)),
        )

    def _summary(self) -> str:
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
        write(path, self.to_toml())

    def to_toml(self) -> str:
        """The text of the file that ``save`` writes.

        >>> print(MinimaxProblem("x*y - y**2/2", "x", "y").to_toml(), end="")
        kind = "minimax"
        x = ["x"]
        y = ["y"]
        f = "x*y - y**2/2"
        """
        fields = self._fields()
        try:
            _build(fields)
        except InvalidProblem as error:
            raise InvalidProblem(f"the file could not be read back: {error.message}", hint=error.hint) from None
        return problem_toml(fields)

    def _fields(self) -> ProblemFile:
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
        parameters: Parameters | None = None,
        box: BoxLike | None = None,
        name: str | None = None,
    ) -> None:
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
    - ``xi_data``: the rows of xi, equally likely.
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
    xi_data: Rows
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
        parameters: Parameters | None = None,
        box: BoxLike | None = None,
        name: str | None = None,
    ) -> None:
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

    @cached_property
    def F(self) -> sp.Expr:
        """The upper level in SymPy, with the data as symbols."""
        return self._stated["f"].expression

    @cached_property
    def G(self) -> sp.Expr:
        """The lower level in SymPy, with the data as symbols."""
        return self._stated["g"].expression

    @cached_property
    def samples(self) -> Model:
        """F and G on one graph, the data among the inputs: what batches are computed with."""
        F, G = (self._stated[field].drafted for field in "fg")
        return Model(F, G, self.x, self.y, parameters=(*self.xi, *self.zeta))

    @cached_property
    def tape(self) -> Model:
        """The mean on one graph."""
        return self.mean.tape

    @cached_property
    def mean(self) -> BilevelProblem:
        """The exact expectation over the data rows."""
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
    def _frame(self) -> tuple[object, ...]:
        names = tuple(tuple(s.name for s in group) for group in (self.xi, self.zeta))
        return (*super()._frame, names, self.xi_data, self.zeta_data)

    def _models(self) -> tuple[Model, ...]:
        return self.tape, self.samples

    def _arguments(self) -> tuple[object, ...]:
        return (*super()._arguments(), self.xi, self.zeta, self.xi_data, self.zeta_data)

    def _printed(self) -> tuple[Any, ...]:
        groups = (" ".join(s.name for s in group) for group in (self.xi, self.zeta))
        tables = ([[_number(value) for value in row] for row in data] for data in (self.xi_data, self.zeta_data))
        return (*super()._printed(), *groups, *tables)

    def _fields(self) -> ProblemFile:
        return replace(
            super()._fields(),
            xi=tuple(check_name(s.name) for s in self.xi),
            zeta=tuple(check_name(s.name) for s in self.zeta),
            xi_data=self.xi_data,
            zeta_data=self.zeta_data,
        )


class SameProgram:
    """A problem that equals those of which the same is computed: the same variables, data, box and programs.

    Unlike equality of problems this asks nothing of SymPy.

    >>> one, two = (MinimaxProblem(f, "x", "y") for f in ("x*y - y**2", "y*x - y**2"))
    >>> SameProgram(one) == SameProgram(two), "f" in vars(one)
    (True, False)
    """

    def __init__(self, problem: BilevelProblem) -> None:
        self.problem = problem
        self._models = problem._models()
        self._frame = (type(problem), problem._frame)
        self._hash = hash((self._frame, *(model.fingerprint for model in self._models)))

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, SameProgram) or self._frame != other._frame:
            return False
        return all(one.same_as(two) for one, two in zip(self._models, other._models, strict=True))

    def __hash__(self) -> int:
        return self._hash


def _rebuild(
    kind: type[BilevelProblem],
    arguments: tuple[Any, ...],
    parameters: dict[str, Any],
    box: Box | None,
    name: str | None,
) -> BilevelProblem:
    return kind(*arguments, parameters=parameters, box=box, name=name)


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
    parameters, box, name = fields.parameters, fields.box, fields.name
    if fields.kind == "minimax":
        return MinimaxProblem(fields.f, fields.x, fields.y, parameters=parameters, box=box, name=name)
    if fields.kind == "stochastic":
        return StochasticProblem(
            fields.f, fields.g or "", fields.x, fields.y, fields.xi, fields.zeta,
            fields.xi_data, fields.zeta_data, parameters=parameters, box=box, name=name,
        )  # fmt: skip
    return BilevelProblem(fields.f, fields.g or "", fields.x, fields.y, parameters=parameters, box=box, name=name)


register()  # if Hypothesis was imported first, it asked before there was a problem
