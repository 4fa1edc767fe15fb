"""Random array expressions, each a Tensor together with what plain loops over entries make of the same expression."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import product
from math import prod
from typing import Any

import numpy as np
from array_oracle import BITS, Field, Point
from hypothesis import strategies as st

from bilevel_sym.arrays.algebra import apply, contract, delta, logsumexp, multiplied, power
from bilevel_sym.arrays.normal import added, ones, rearranged, scaled
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.graph.precision import precision

X = (Leaf("x", ("n",), "x"), Leaf("lam", (), "x"), Leaf("U", ("n", "n"), "x"))
Y = (Leaf("y", ("n",), "y"), Leaf("W", ("n", "m"), "y"), Leaf("t", (), "y"))
DATA = (
    Leaf("A", ("m", "n"), "data"), Leaf("B", ("n", "n"), "data"), Leaf("b", ("m",), "data"), Leaf("c", ("n",), "data"),
    Leaf("K", ("n", "n"), "data", declared_symmetric=True), Leaf("s", (), "data"),
)  # fmt: skip
SMOOTH = ("sin", "cos", "tanh", "sinh", "cosh", "softplus", "sigmoid", "atan")
SPECIAL = ("exp", "exp", "asinh", "erf", "tan")
POSITIVE = ("log", "sqrt", "root", "inverse root")
SWITCHES = ("abs", "min", "max", "select")
Shape = tuple[str, ...]


@dataclass(frozen=True)
class At:
    """A kind of number, the values of the leaves in it, and the sizes of the dimensions."""

    field: Field
    arrays: Mapping[str, Any]
    sizes: Mapping[str, int]

    def entrywise(self, rule: Callable[..., Any], dims: Shape, *arrays: Any) -> Any:
        """A rule, entry by entry; scalars count everywhere."""
        shape = tuple(self.sizes[dim] for dim in dims)
        result = np.empty(shape, object)
        for place in product(*map(range, shape)):
            result[place] = rule(*(array[place] if array.shape else array[()] for array in arrays))
        return result

    def einsum(self, operands: Sequence[tuple[Any, str]], out: str, dims: Mapping[str, str]) -> Any:
        """The sum of products over all labels that ``out`` does not have."""
        summed = sorted(set(dims) - set(out))
        result = np.empty([self.sizes[dims[label]] for label in out], object)
        for place in product(*(range(self.sizes[dims[label]]) for label in out)):
            value = self.field.number(Fraction(0))
            for rest in product(*(range(self.sizes[dims[label]]) for label in summed)):
                where = dict(zip([*out, *summed], [*place, *rest], strict=True))
                value = value + prod(array[tuple(where[label] for label in labels)] for array, labels in operands)
            result[place] = value
        return result


@dataclass(frozen=True)
class Drawn:
    """An expression: the tensor, what it is by loops over entries, and how it was made."""

    tensor: Tensor
    loops: Callable[[At], Any]
    text: str

    def __repr__(self) -> str:
        return self.text

    def value(self, point: Point, field: Field) -> dict[tuple[int, ...], Any]:
        """Its entries at a point, by their places."""
        with precision(BITS):
            arrays = {name: _converted(np.asarray(array, object), field.number) for name, array in point.arrays.items()}
            whole = np.asarray(self.loops(At(field, arrays, point.sizes)), object)
        return dict(np.ndenumerate(whole))


def _converted(array: Any, number: Callable[[Fraction], Any]) -> Any:
    result = np.empty(array.shape, object)
    for place, value in np.ndenumerate(array):
        result[place] = number(value)
    return result


# ---- how expressions are made ---------------------------------------------------------------------------------------


def leaf(of: Leaf) -> Drawn:
    """A variable, or data."""
    return Drawn(Tensor.leaf(of), lambda at: at.arrays[of.name], of.name)


def number(value: Fraction, dims: Shape = ()) -> Drawn:
    """The same number everywhere."""

    def loops(at: At) -> Any:
        return at.entrywise(lambda: at.field.number(value), dims)

    return Drawn(ones(dims, value), loops, f"{value}{list(dims) if dims else ''}")


def einsum(operands: Sequence[tuple[Drawn, str]], out: str) -> Drawn:
    """A product of operands whose indices have letters, summed over those that ``out`` does not have."""
    dims = {label: dim for of, labels in operands for label, dim in zip(labels, of.tensor.dims, strict=True)}
    tensor = contract([(of.tensor, labels) for of, labels in operands], out)
    pattern = f"{','.join(labels for _, labels in operands)}->{out}"
    return Drawn(
        tensor,
        lambda at: at.einsum([(of.loops(at), labels) for of, labels in operands], out, dims),
        f"einsum('{pattern}', {', '.join(of.text for of, _ in operands)})",
    )


def plus(one: Drawn, two: Drawn) -> Drawn:
    """The sum of equal shapes."""
    dims = one.tensor.dims

    def loops(at: At) -> Any:
        return at.entrywise(lambda a, b: a + b, dims, one.loops(at), two.loops(at))

    return Drawn(added([one.tensor, two.tensor], dims), loops, f"({one} + {two})")


def times(factor: Fraction, of: Drawn) -> Drawn:
    """A multiple."""

    def loops(at: At) -> Any:
        return at.entrywise(lambda a: at.field.number(factor) * a, of.tensor.dims, of.loops(at))

    return Drawn(scaled(of.tensor, factor), loops, f"{factor}*{of}")


def mul(one: Drawn, two: Drawn) -> Drawn:
    """The product entry by entry, of equal shapes or with a scalar."""
    dims = max(one.tensor.dims, two.tensor.dims, key=len)

    def loops(at: At) -> Any:
        return at.entrywise(lambda a, b: a * b, dims, one.loops(at), two.loops(at))

    return Drawn(multiplied(one.tensor, two.tensor), loops, f"{one}*{two}")


def function(op: str, *of: Drawn) -> Drawn:
    """An operation of the grammar."""
    dims = max((body.tensor.dims for body in of), key=len)

    def loops(at: At) -> Any:
        return at.entrywise(lambda *z: at.field.operation(op, (), *z), dims, *(body.loops(at) for body in of))

    return Drawn(apply(op, *(body.tensor for body in of)), loops, f"{op}({', '.join(map(repr, of))})")


def raised(of: Drawn, p: int, q: int = 1) -> Drawn:
    """of**(p/q)."""
    op, parameter = ("ipow", (p,)) if q == 1 else ("rpow", (p, q))

    def loops(at: At) -> Any:
        return at.entrywise(lambda z: at.field.operation(op, parameter, z), of.tensor.dims, of.loops(at))

    return Drawn(power(of.tensor, p, q), loops, f"({of})**({p}/{q})")


def mean(of: Drawn) -> Drawn:
    """The mean of all entries."""
    labels = "ij"[: of.tensor.rank]
    sizes: dict[str, int] = {}
    for dim in of.tensor.dims:
        sizes[dim] = sizes.get(dim, 0) - 1

    def loops(at: At) -> Any:
        count = prod(at.sizes[dim] for dim in of.tensor.dims)
        whole = at.einsum([(of.loops(at), labels)], "", dict(zip(labels, of.tensor.dims, strict=True)))
        return at.entrywise(lambda a: a * at.field.number(Fraction(1, count)), (), whole)

    return Drawn(contract([(ones((), 1, sizes), ""), (of.tensor, labels)], ""), loops, f"mean({of})")


def log_sum_exp(of: Drawn, out: tuple[int, ...]) -> Drawn:
    """log(sum(exp(of))) over all indices but ``out``."""
    labels = "ij"[: of.tensor.rank]
    kept = "".join(labels[k] for k in out)
    dims = tuple(of.tensor.dims[k] for k in out)

    def loops(at: At) -> Any:
        exponentials = at.entrywise(lambda z: at.field.operation("exp", (), z), of.tensor.dims, of.loops(at))
        sums = at.einsum([(exponentials, labels)], kept, dict(zip(labels, of.tensor.dims, strict=True)))
        return at.entrywise(lambda s: at.field.operation("log", (), s), dims, sums)

    return Drawn(logsumexp(of.tensor, out), loops, f"logsumexp({of}, {out})")


def transposed(of: Drawn) -> Drawn:
    """The transpose of a matrix."""
    return Drawn(rearranged(of.tensor, (1, 0)), lambda at: of.loops(at).T, f"{of}.T")


def identity(dim: str) -> Drawn:
    """The identity matrix."""

    def loops(at: At) -> Any:
        result = at.entrywise(lambda: at.field.number(Fraction(0)), (dim, dim))
        for k in range(at.sizes[dim]):
            result[k, k] = at.field.number(Fraction(1))
        return result

    return Drawn(delta(dim), loops, f"I[{dim}]")


# ---- strategies -----------------------------------------------------------------------------------------------------

SMALL = st.builds(Fraction, st.sampled_from([-3, -2, -1, 1, 2, 3]), st.sampled_from([1, 2, 3]))
DIMS = st.sampled_from(["m", "n"])


@st.composite
def sizes(draw: st.DrawFn, largest: int = 3) -> dict[str, int]:
    """m and n from one to three, rarely equal."""
    m, n = draw(st.tuples(*[st.integers(1, largest)] * 2).filter(lambda pair: pair[0] != pair[1] or pair == (1, 1)))
    return {"m": m, "n": n}


@st.composite
def points(draw: st.DrawFn, *, variables: Sequence[Leaf] = (*X, *Y), largest: int = 3) -> Point:
    """A size for each dimension, and fractions for every entry of every leaf; none is zero."""
    known = draw(sizes(largest))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    positive = draw(st.booleans())
    arrays = {of.name: random_array(of, [known[dim] for dim in of.dims], rng, positive) for of in (*variables, *DATA)}
    return Point(known, tuple(variables), arrays)


def random_array(of: Leaf, shape: Sequence[int], rng: np.random.Generator, positive: bool = False) -> Any:
    """Fractions, none zero; symmetric where the leaf is."""
    array = np.empty(shape, object)
    for place in product(*map(range, shape)):
        sign = 1 if positive or rng.random() < 0.5 else -1
        array[place] = Fraction(sign * int(rng.integers(1, 40)), int(rng.integers(7, 12)))
    if of.declared_symmetric:
        for i, j in product(*map(range, shape)):
            array[i, j] = array[min(i, j), max(i, j)]
    return array


@st.composite
def expressions(
    draw: st.DrawFn,
    dims: Shape = (),
    *,
    depth: int = 3,
    functions: Sequence[str] = SMOOTH,
    leaves: Sequence[Leaf] = (*X, *Y, *DATA),
) -> Drawn:
    """An expression of some shape. ``functions`` are those that it may have; without any it is rational."""

    def again(shape: Shape, *, less: int = 1) -> Drawn:
        return draw(expressions(shape, depth=depth - less, functions=functions, leaves=leaves))

    if depth <= 0:
        return draw(_leaves(dims, leaves))
    kinds = ["leaf", "sum", "sum", "product", "product", "multiple", "power", "quotient", "scalar times"]
    kinds += ["function"] * 4 if functions else []
    kinds += [["dot", "dot", "total", "mean", "trace", "quadratic"], ["matvec", "matvec", "axis", "diagonal"],
              ["matmul", "outer", "transpose", "rows", "diag"]][len(dims)] * 2  # fmt: skip
    kinds += ["logsumexp"] * (2 if "exp" in functions and len(dims) < 2 else 0)
    kind = draw(st.sampled_from(kinds))
    match kind:
        case "leaf":
            return draw(_leaves(dims, leaves))
        case "sum":
            return plus(again(dims), again(dims))
        case "product":
            return mul(again(dims), again(dims))
        case "multiple":
            return times(draw(SMALL), again(dims))
        case "power":
            return raised(again(dims), draw(st.sampled_from([2, 2, 3, -1, -2])))
        case "quotient":
            below = again(dims)
            safe = plus(number(Fraction(1), dims), mul(below, below)) if draw(st.booleans()) else below
            return mul(again(dims), raised(safe, -1))
        case "scalar times":
            return mul(again(()), again(dims))
        case "function":
            return _function(draw, dims, again, functions)
        case "logsumexp":
            inner, first = draw(DIMS), draw(st.sampled_from([0, 1]))
            if dims and first:
                return log_sum_exp(again((inner, *dims)), (1,))
            return log_sum_exp(again((*dims, inner)), tuple(range(len(dims))))
    return [_scalar, _vector, _matrix][len(dims)](draw, kind, dims, again)


Again = Callable[..., Drawn]


@st.composite
def _leaves(draw: st.DrawFn, dims: Shape, leaves: Sequence[Leaf]) -> Drawn:
    choices = [leaf(of) for of in leaves if of.dims == dims]
    if len(dims) == 2:
        choices += [transposed(leaf(of)) for of in leaves if of.dims == dims[::-1]]
        choices += [identity(dims[0])] if dims[0] == dims[1] else []
    return draw(st.sampled_from(choices) if choices else st.builds(number, SMALL, st.just(dims)))


def _function(draw: st.DrawFn, dims: Shape, again: Again, functions: Sequence[str]) -> Drawn:
    op = draw(st.sampled_from(functions))
    body = again(dims)
    if op in ("min", "max"):
        return function(op, body, again(dims))
    if op == "select":
        condition = function(draw(st.sampled_from(["lt", "le"])), again(dims))
        return function(op, condition, body, again(dims))
    if op in POSITIVE:
        square = body if draw(st.booleans()) else plus(number(Fraction(3, 2), dims), mul(body, body))
        exponents = {"sqrt": (1, 2), "root": (2, 3), "inverse root": (-3, 2)}
        return function("log", square) if op == "log" else raised(square, *exponents[op])
    return function(op, body)


def _scalar(draw: st.DrawFn, kind: str, dims: Shape, again: Again) -> Drawn:
    one, two = draw(DIMS), draw(DIMS)
    match kind:
        case "dot":
            return einsum([(again((one,)), "i"), (again((one,)), "i")], "")
        case "total":
            return einsum([(again((one, two)), "ij")], "")
        case "mean":
            return mean(again((one, two)[: draw(st.integers(1, 2))]))
        case "trace":
            return einsum([(again((one, one)), "ii")], "")
    return einsum([(again((one,)), "i"), (again((one, two)), "ij"), (again((two,)), "j")], "")


def _vector(draw: st.DrawFn, kind: str, dims: Shape, again: Again) -> Drawn:
    (own,), other = dims, draw(DIMS)
    match kind:
        case "matvec":
            return einsum([(again((own, other)), "ij"), (again((other,)), "j")], "i")
        case "axis":
            return einsum([(again((other, own)), "ij")], "j")
    return einsum([(again((own, own)), "ii")], "i")


def _matrix(draw: st.DrawFn, kind: str, dims: Shape, again: Again) -> Drawn:
    (one, two), inner = dims, draw(DIMS)
    match kind:
        case "matmul":
            return einsum([(again((one, inner)), "ij"), (again((inner, two)), "jk")], "ik")
        case "outer":
            return einsum([(again((one,)), "i"), (again((two,)), "j")], "ij")
        case "transpose":
            return transposed(again((two, one)))
        case "diag" if one == two:
            return einsum([(again((one,)), "i"), (identity(one), "ij")], "ij")
    return einsum([(again((one,)), "i"), (again(dims), "ij")], "ij")


RATIONAL: tuple[str, ...] = ()
ALL = (*SMOOTH, *SPECIAL, *POSITIVE, *SWITCHES)
LANGUAGES: Mapping[str, tuple[str, ...]] = {
    "rational": RATIONAL,
    "smooth": SMOOTH,
    "switches": (*SWITCHES, "sin"),
    "exponential": ("exp", "exp", "exp", "log", "sigmoid"),
    "all": ALL,
}


@dataclass(frozen=True)
class DrawnProblem:
    """f and g in some of the arrays."""

    f: Drawn
    g: Drawn
    x: tuple[Leaf, ...]
    y: tuple[Leaf, ...]


@st.composite
def problems(draw: st.DrawFn, functions: Sequence[str] = SMOOTH, depth: int = 3) -> DrawnProblem:
    """Two scalar formulas in one or two arrays of each level; a square of every y keeps each in g."""
    x = tuple(draw(st.lists(st.sampled_from(X), min_size=1, max_size=2, unique=True)))
    y = tuple(draw(st.lists(st.sampled_from(Y), min_size=1, max_size=2, unique=True)))
    leaves = (*x, *y, *DATA)
    f, g = (draw(expressions((), depth=depth, functions=functions, leaves=leaves)) for _ in range(2))
    for of in y:
        labels = "ij"[: len(of.dims)]
        g = plus(g, times(Fraction(3, 2), einsum([(leaf(of), labels), (leaf(of), labels)], "")))
    return DrawnProblem(f, g, x, y)
