"""What texts of arrays mean, by two ways that know nothing of the language: tensors by numpy.einsum, texts by Python."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from typing import Any

import hypothesis.strategies as st
import numpy as np

from bilevel_sym.arrays.tensor import GROUP, Apply, Delta, Head, Leaf, LogSumExp, Tensor
from bilevel_sym.graph.operations import OPERATIONS

A32, b3, c2 = [[1, 2], [3, 4.5], [5, 6]], [1, 2, 3], [1, 2]

# ---- a tensor in numbers: every term by numpy.einsum ----------------------------------------------------------------


def value(tensor: Tensor, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """What a tensor is where its leaves are arrays."""
    shape = tuple(sizes[dim] for dim in tensor.dims)
    total = np.zeros(shape)
    for term in tensor.terms:
        number = float(term.coefficient) * math.prod(float(sizes[dim]) ** power for dim, power in term.sizes)
        operands: list[Any] = [np.ones(shape), list(range(tensor.rank))]
        for head, indices in term.factors:
            operands += [head_value(head, arrays, sizes), list(indices)]
        total = total + number * np.einsum(*operands, list(range(tensor.rank)))
    return total


def head_value(head: Head, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    if isinstance(head, Leaf):
        return np.asarray(arrays[head.name], dtype=float)
    if isinstance(head, Delta):
        return np.eye(sizes[head.dim])
    if isinstance(head, LogSumExp):
        parts = [np.exp(value(part, arrays, sizes)) for part in head.parts]
        return np.log(sum(part.sum(axis=tuple(range(head.rank, part.ndim))) for part in parts))
    assert isinstance(head, Apply)
    bodies = [value(body, arrays, sizes) for body in head.bodies]
    if head.op == GROUP:
        return bodies[0]
    if head.op == "pi":
        return np.pi
    if head.op in ("ipow", "rpow"):
        return bodies[0] ** (head.parameter[0] / (head.parameter[1] if len(head.parameter) > 1 else 1))
    return OPERATIONS[head.op].rule("numpy")(*bodies)


# ---- the same text as Python reads it -------------------------------------------------------------------------------


def softplus(z: Any) -> Any:
    return np.logaddexp(0, z)


def logsumexp(z: Any, axis: int | None = None) -> Any:
    return np.log(np.sum(np.exp(z), axis=axis))


def piecewise(*pieces: tuple[Any, Any]) -> Any:
    conditions = [condition for _, condition in pieces]
    shape = np.broadcast_shapes(*(np.shape(part) for piece in pieces for part in piece))
    return np.select(
        [np.broadcast_to(condition, shape) for condition in conditions],
        [np.broadcast_to(entry, shape) for entry, _ in pieces],
        np.nan,
    )


NUMPY: dict[str, Any] = {
    "sum": np.sum, "mean": np.mean, "logsumexp": logsumexp, "dot": np.dot, "trace": np.trace, "diag": np.diag,
    "outer": np.outer, "exp": np.exp, "log": np.log, "sqrt": np.sqrt, "sin": np.sin, "cos": np.cos, "tan": np.tan,
    "tanh": np.tanh, "sinh": np.sinh, "cosh": np.cosh, "atan": np.arctan, "asinh": np.arcsinh, "abs": np.abs,
    "min": lambda *parts: np.minimum.reduce(np.broadcast_arrays(*parts)),
    "max": lambda *parts: np.maximum.reduce(np.broadcast_arrays(*parts)),
    "softplus": softplus, "sigmoid": lambda z: 1 / (1 + np.exp(-z)), "pi": np.pi, "E": np.e,
    "erf": np.vectorize(math.erf), "Piecewise": piecewise,
}  # fmt: skip


def as_python(text: str, arrays: Mapping[str, Any]) -> Any:
    """Texts of this file only: the grammar is a part of Python's."""
    return eval(text, {"__builtins__": {}, **NUMPY, **arrays})


# ---- random texts ---------------------------------------------------------------------------------------------------

SHAPES: dict[str, tuple[str, ...]] = {
    "x": ("n",), "w": (), "y": ("n",), "W": ("p", "n"), "A": ("m", "n"), "b": ("m",), "K": ("n", "n"), "c": ("p",), "s": (),
}  # fmt: skip
SAFE = ("sin", "cos", "tanh", "atan", "asinh", "softplus", "sigmoid", "abs", "erf")
Shape = tuple[str, ...]


@st.composite
def texts(draw: st.DrawFn, shape: Shape, depth: int) -> str:
    """A formula of a shape; parentheses stand only where the shapes, or the domain of a function, need them."""
    leaves = [name for name, dims in SHAPES.items() if dims == shape]
    if not leaves:
        leaves = [
            f"outer({a}, {b})" for a in SHAPES for b in SHAPES if (SHAPES[a], SHAPES[b]) == (shape[:1], shape[1:])
        ]
    if depth == 0:
        return draw(st.sampled_from(leaves))

    def again(dims: Shape) -> str:
        return draw(texts(dims, depth - 1))

    kind = draw(st.sampled_from(["sum", "scaled", "function", "power", "cases", "divided", *["special"] * 6]))
    if kind == "sum":
        first, second = again(shape), again(shape)
        return f"{first} {draw(st.sampled_from(['+', '-']))} ({second})"
    if kind == "scaled":
        number = draw(st.sampled_from(["2", "0.5", "-3", "pi", "1/3", "s", "1e-1", "E"]))
        return f"{number}*({again(shape)})"
    if kind == "function":
        return f"{draw(st.sampled_from(SAFE))}({again(shape)})"
    if kind == "power":
        form = draw(st.sampled_from(["({})**2", "-({})**2", "({})**3", "sqrt(1 + ({})**2)", "(2 + sin({}))**(-1/3)",
                                     "2**sin({})", "(2 + cos({}))**sin({})", "E**sin({})", "exp(-({})**2)",
                                     "log(3 + sin({}))"]))  # fmt: skip
        return form.replace("{}", again(shape))
    if kind == "divided":
        return f"({again(shape)})/(2 + sin({again(draw(st.sampled_from([(), shape])))}))"
    if kind == "cases":
        one, two = again(shape), again(draw(st.sampled_from([(), shape])))
        edge = f"{draw(st.sampled_from(leaves))} {draw(st.sampled_from(['<', '<=', '>', '>=']))} sin(s)"
        choices = [f"max({one}, {two})", f"min(0, {one}, {two})", f"Piecewise(({one}, {edge}), ({two}, True))"]
        return draw(st.sampled_from(choices))
    return draw(st.sampled_from(SPECIAL[len(shape)]))(again, shape, draw(st.sampled_from(["m", "n", "p"])))


Again = Callable[[Shape], str]
Special = Callable[[Again, Shape, str], str]
SPECIAL: dict[int, list[Special]] = {
    0: [
        lambda again, _, k: f"sum({again((k,))})",
        lambda again, _, k: f"mean({again((k, 'n'))})",
        lambda again, _, k: f"dot({again((k,))}, {again((k,))})",
        lambda again, _, k: f"({again((k,))}) @ ({again((k,))})/20",
        lambda again, _, k: f"trace({again((k, k))})" if k == "n" else f"logsumexp(sin({again((k,))}))",
        lambda again, _, k: f"logsumexp(sin({again((k, 'n'))}))",
    ],
    1: [
        lambda again, shape, k: f"({again((*shape, k))}) @ ({again((k,))})",
        lambda again, shape, k: f"({again((k,))}) @ ({again((k, *shape))})",
        lambda again, shape, k: f"sum({again((*shape, k))}, axis=1)",
        lambda again, shape, k: f"mean({again((k, *shape))}, axis=0)",
        lambda again, shape, k: f"logsumexp(sin({again((k, *shape))}), axis=0)",
        lambda again, shape, k: f"log(sum(exp(sin({again((*shape, k))})), axis=1))",
        lambda again, shape, k: f"diag(({again((*shape, k))}) @ ({again((k, *shape))}))",
        lambda again, shape, k: f"({again((k, *shape))}).T @ ({again((k,))})",
    ],
    2: [
        lambda again, shape, k: f"({again((shape[0], k))}) @ ({again((k, shape[1]))})",
        lambda again, shape, k: f"outer({again(shape[:1])}, {again(shape[1:])})",
        lambda again, shape, k: f"diag({again(shape[:1])}) @ ({again(shape)})",
        lambda again, shape, k: f"({again(shape)}) @ diag({again(shape[1:])})",
        lambda again, shape, k: f"({again(shape[::-1])}).T",
        lambda again, shape, k: f"({again(shape)})*({again(shape)})",
    ],
}
