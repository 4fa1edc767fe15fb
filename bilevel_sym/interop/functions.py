"""f and g of a problem as functions of two flat vectors, in any library."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from math import prod
from types import FunctionType, MappingProxyType
from typing import Any, cast

import numpy as np

from bilevel_sym.arithmetic.arrays import CONSTANT_BITS, nearest
from bilevel_sym.arithmetic.scalars import BALLS, constant_values
from bilevel_sym.arrays.data import is_sparse
from bilevel_sym.arrays.plan import DATA, Step
from bilevel_sym.arrays.tensor import known_sizes
from bilevel_sym.errors import InvalidProblem, TooLarge
from bilevel_sym.graph import program as graph_program
from bilevel_sym.implicit.array_program import Layout, Workshop
from bilevel_sym.implicit.model import Model
from bilevel_sym.interop.library import Library
from bilevel_sym.interop.library import library as library_of
from bilevel_sym.problem.problem import BilevelProblem

__all__ = ["Level", "functions_in", "perform"]

Array = Any
Level = Callable[[Any, Any], Any]
Places = tuple[int, ...]
_LETTERS = "abcdefghijklmnopqrstuvwxyz"
MAX_DENSE = 100_000_000  # entries of a sparse array that is written out


def functions_in(name: str, problem: BilevelProblem) -> tuple[Level, Level]:
    """f and g, each a function of the vectors x and y that returns a scalar of the library.

    name: "numpy", "jax" or "torch"
    problem: in scalars or in arrays, whose entries are laid end to end

    >>> f, g = functions_in("numpy", BilevelProblem("x @ y", "sum((y - x)**2)", "x[2]", "y[2]"))
    >>> float(g(np.zeros(2), np.ones(2)))
    2.0
    """
    library, mean = library_of(name), problem.mean
    values = _array_levels(library, mean) if mean.is_array else _scalar_levels(library, mean.tape)
    f, g = (_checked(library, value, mean.d, mean.n) for value in values)
    return f, g


def _checked(library: Library, value: Callable[[Array, Array], Array], d: int, n: int) -> Level:
    def level(x: object, y: object) -> Array:
        """One level at a point: vectors x and y of float64 to a scalar."""
        return value(library.checked(x, d, "x"), library.checked(y, n, "y"))

    # code of its own: what PyTorch compiles it keeps by code, and gives up after eight versions of the same
    return FunctionType(level.__code__.replace(), level.__globals__, "level", None, level.__closure__)


# ---- problems in scalars --------------------------------------------------------------------------------------------


def _scalar_levels(library: Library, model: Model) -> list[Callable[[Array, Array], Array]]:
    own = model.fresh_copy()
    if own.parameters:
        raise InvalidProblem("a parameter has no value", hint="give it a number in parameters={...}")
    return [_scalar_level(library, own, name) for name in ("f", "g")]


def _scalar_level(library: Library, model: Model, name: str) -> Callable[[Array, Array], Array]:
    """The nodes of one level, those with the same operation together, as one growing vector of values."""
    program = graph_program.build(model.graph, model.stages[:1], {name: model.block(name)})
    known = [float(value) for _, value in constant_values(program, BALLS, CONSTANT_BITS)]
    (place,) = program.outputs[name].places
    rules = [_scalar_step(library, step) for step in program.stages[0]]

    def value(x: Array, y: Array) -> Array:
        table = library.concatenate([library.constant(np.ones(1), x), x, y, library.constant(np.array(known), x)])
        for rule in rules:
            table = library.concatenate([table, rule(table)])
        return table[place]

    return value


def _scalar_step(library: Library, step: graph_program.Step) -> Callable[[Array], Array]:
    if step.op == "lin":
        triples = [(row, place, nearest(number)) for row, terms in enumerate(step.rows) for place, number in terms]
        rows, places = (np.array([triple[k] for triple in triples], dtype=np.int64) for k in (0, 1))
        numbers = np.array([triple[2] for triple in triples])

        def combined(table: Array) -> Array:
            return library.collected(table[places] * library.constant(numbers, table), rows, step.size)

        return combined
    sources = [np.array(column, dtype=np.int64) for column in step.sources]
    operation = library.operations[step.op]
    return lambda table: operation(*(table[source] for source in sources), *step.parameter)


# ---- problems in arrays ---------------------------------------------------------------------------------------------


def _array_levels(library: Library, problem: BilevelProblem) -> list[Callable[[Array, Array], Array]]:
    _ = problem.d, problem.n  # says which size is not known
    model = problem.array_model
    for leaf in sorted(model.f.leaves | model.g.leaves, key=lambda leaf: leaf.name):
        if leaf.role in ("data", "parameter") and leaf.name not in problem.arrays:
            raise InvalidProblem(
                f"{leaf.name} has no values, so nothing can be computed",
                hint=f"formulas do without; for numbers give data or parameters with {leaf.name!r}",
            )
    workshop = Workshop(model, known_sizes(problem.dimensions), problem.arrays)
    return [_array_level(library, workshop, workshop.plan.value(formula)) for formula in (model.f, model.g)]


def _array_level(library: Library, workshop: Workshop, last: int) -> Callable[[Array, Array], Array]:
    steps = workshop.plan.steps
    order = _needed(steps, last)
    known = {k: _dense(workshop.constant(k)) for k in order if steps[k].stage == DATA}
    varying = [k for k in order if steps[k].stage != DATA]

    def value(x: Array, y: Array) -> Array:
        given = {**_arrays(library, workshop.x, x), **_arrays(library, workshop.y, y)}
        values: dict[int, Array] = {k: library.constant(held, x) for k, held in known.items()}
        for k in varying:
            step = steps[k]
            if step.kind == "leaf":
                values[k] = given[str(step.parameter[0])]
            else:
                values[k] = perform(library, step, [values[j] for j in step.args], x)
        return values[last]

    return value


def _needed(steps: Sequence[Step], last: int) -> list[int]:
    """What a step needs, in order; nothing behind what depends on data alone."""
    found: set[int] = set()
    waiting = [last]
    while waiting:
        k = waiting.pop()
        if k not in found:
            found.add(k)
            waiting += steps[k].args if steps[k].stage != DATA else ()
    return sorted(found)


def _dense(value: Any) -> Any:
    if not is_sparse(value):
        return np.asarray(value)
    if prod(value.shape) > MAX_DENSE:
        raise TooLarge(
            f"a sparse array of {' x '.join(map(str, value.shape))} entries would be written out",
            hint="the kernels of the problem keep sparse data sparse",
        )
    return value.toarray()


def _arrays(library: Library, layout: Layout, flat: Array) -> Mapping[str, Array]:
    parts = zip(layout.leaves, layout.slices, layout.shapes, strict=True)
    return {leaf.name: library.reshape(flat[own], shape) for leaf, own, shape in parts}


# ---- the steps of an array plan: one rule for each kind, as in ``arrays.execute`` for NumPy's kernels ------------


def perform(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    """The value of a step from those of its arguments.

    library: in which it is computed
    step: any but a leaf
    values: of its arguments
    beside: an array on the device in question

    >>> perform(library_of("numpy"), Step("sum", (0,), (-1,), (), 0), [np.array([1.0, 2.0])], None).item()
    3.0
    """
    return _RULES[step.kind](library, step, values, beside)


def _fill(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    return library.constant(np.full(step.shape, float(cast("float", step.parameter[0]))), beside)


def _apply(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    op, parameter = cast("tuple[str, tuple[int, ...]]", step.parameter)
    if not values:
        return library.constant(np.asarray(library.operations[op]()), beside)
    return library.operations[op](*values, *parameter)


def _logsumexp(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    rank = len(step.shape)
    parts = [library.logsumexp(v, tuple(range(rank, len(v.shape)))) if len(v.shape) > rank else v for v in values]
    whole = parts[0]
    for part in parts[1:]:
        whole = library.logaddexp(whole, part)
    return whole


def _multiply(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    one, two = cast("tuple[Places, Places]", step.parameter)
    rank = len(step.shape)
    return _spread(library, values[0], one, rank) * _spread(library, values[1], two, rank)


def _spread(library: Library, value: Array, places: Places, rank: int) -> Array:
    """With ``rank`` axes, those of the value at ``places``."""
    if places == tuple(range(rank)):
        return value
    order = sorted(range(len(places)), key=places.__getitem__)
    turned = value if order == list(range(len(order))) else library.transpose(value, order)
    return turned[tuple(slice(None) if k in places else None for k in range(rank))]


def _pattern(groups: Sequence[Sequence[int]], out: Sequence[int]) -> str:
    texts = ["".join(_LETTERS[k] for k in group) for group in groups]
    return f"{','.join(texts)}->{''.join(_LETTERS[k] for k in out)}"


def _contract(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    one, two, out = cast("tuple[Places, Places, Places]", step.parameter)
    return library.einsum(_pattern([one, two], out), *values)


def _gram(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    """M^T diag(w) M."""
    matrix, *weights = values
    (axis,) = cast("tuple[int]", step.parameter)
    rows = matrix if axis == 0 else library.transpose(matrix, (1, 0))
    scaled = rows
    for weight in weights:
        scaled = scaled * weight[:, None]
    return library.einsum("ab,ac->bc", scaled, rows)


def _sum(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    return library.total(values[0], cast("Places", step.parameter))


def _diagonal(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    (labels,) = cast("tuple[Places]", step.parameter)
    return library.einsum(_pattern([labels], list(dict.fromkeys(labels))), values[0])


def _transpose(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    return library.transpose(values[0], cast("Places", step.parameter))


def _combine(library: Library, step: Step, values: Sequence[Array], beside: Array) -> Array:
    rows, constant = cast("tuple[tuple[tuple[float, Places, Any], ...], float]", step.parameter)
    rank = len(step.shape)
    total = library.constant(np.full(step.shape, float(constant)), beside)
    for (coefficient, places, deltas), value in zip(rows, values, strict=True):
        term = coefficient * _spread(library, value, places, rank)
        for i, j in deltas:
            identity = library.constant(np.eye(step.shape[i]), beside)
            term = term * _spread(library, identity, (i, j), rank)
        total = total + term
    return total


_RULES: Mapping[str, Callable[[Library, Step, Sequence[Array], Array], Array]] = MappingProxyType(
    {
        "fill": _fill, "apply": _apply, "logsumexp": _logsumexp, "multiply": _multiply, "contract": _contract,
        "gram": _gram, "sum": _sum, "diagonal": _diagonal, "transpose": _transpose, "combine": _combine,
    }
)  # fmt: skip
