"""What tensors, their text and their SymPy expressions mean in numbers: einsum, NumPy, and node by node."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np
import sympy as sp

from bilevel_sym.arrays.display import to_sympy
from bilevel_sym.arrays.tensor import GROUP, Apply, Delta, Head, Leaf, LogSumExp, Tensor
from bilevel_sym.graph.operations import OPERATIONS

TOLERANCE = 1e-8


# ---- what a tensor means: np.einsum over its factors ---------------------------------------------------------------


def value_of(tensor: Tensor, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    shape = tuple(sizes[dim] for dim in tensor.dims)
    total = np.zeros(shape)
    for term in tensor.terms:
        dims = (*tensor.dims, *term.dummies)
        operands: list[Any] = [np.ones(shape), list(range(tensor.rank))]
        for head, indices in term.factors:
            operands += [head_value(head, arrays, sizes), list(indices)]
        number = float(term.coefficient) * math.prod(float(sizes[dim]) ** k for dim, k in term.sizes)
        total = total + number * np.einsum(*operands, list(range(tensor.rank)))
        assert len(dims) < 26
    return total


def head_value(head: Head, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    if isinstance(head, Leaf):
        return arrays[head.name]
    if isinstance(head, Delta):
        return np.eye(sizes[head.dim])
    if isinstance(head, LogSumExp):
        parts = [value_of(part, arrays, sizes) for part in head.parts]
        return np.log(sum(np.exp(part).sum(axis=tuple(range(head.rank, part.ndim))) for part in parts))
    assert isinstance(head, Apply)
    bodies = [value_of(body, arrays, sizes) for body in head.bodies]
    if head.op == GROUP:
        return bodies[0]
    rule = OPERATIONS[head.op].rule("numpy")
    return rule(*(np.array(body, dtype=float) for body in bodies), *head.parameter)


def close(one: Any, two: Any) -> bool:
    return bool(np.allclose(one, two, rtol=TOLERANCE, atol=TOLERANCE))


# ---- text, as NumPy reads it ------------------------------------------------------------------------------------------


class Marked(np.ndarray):
    """An array whose products do not broadcast: what the grammar refuses is refused here."""

    def __array_ufunc__(self, ufunc: Any, method: str, *inputs: Any, **options: Any) -> Any:
        plain = [np.asarray(value) for value in inputs]
        shapes = {value.shape for value in plain if value.shape}
        assert ufunc is np.matmul or len(shapes) <= 1, "nothing broadcasts"
        return np.asarray(getattr(ufunc, method)(*plain, **options)).view(Marked)


def names_of_text(sizes: Mapping[str, int]) -> dict[str, Any]:
    def along(rule: Any) -> Any:
        return lambda z, axis=None: np.asarray(rule(np.asarray(z), axis)).view(Marked)

    def entrywise(op: str) -> Any:
        def call(*bodies: Any) -> Any:
            plain = np.broadcast_arrays(*(np.array(body, dtype=float) for body in bodies))
            assert len({np.shape(body) for body in bodies if np.shape(body)}) <= 1, "nothing broadcasts"
            return np.asarray(OPERATIONS[op].rule("numpy")(*(np.array(body) for body in plain))).view(Marked)

        return call

    def piecewise(first: Any, second: Any) -> Any:
        return np.where(np.asarray(first[1]), np.asarray(first[0]), np.asarray(second[0])).view(Marked)

    def log_sum(z: Any, axis: Any) -> Any:
        return np.log(np.exp(z).sum(axis=axis))

    known: dict[str, Any] = {name: entrywise(name) for name in OPERATIONS if OPERATIONS[name].numpy is not None}
    known |= {
        "sum": along(lambda z, axis: z.sum(axis=axis)), "mean": along(lambda z, axis: z.mean(axis=axis)),
        "logsumexp": along(log_sum), "trace": np.trace,
        "softmax": along(lambda z, axis: np.exp(z) / np.exp(z).sum(axis=axis, keepdims=True)),
        "outer": lambda a, b: np.multiply.outer(np.asarray(a), np.asarray(b)).view(Marked),
        "diag": lambda z: np.diag(np.asarray(z)).view(Marked), "eye": lambda n: np.eye(n).view(Marked),
        "ones": lambda *shape: np.ones(shape).view(Marked), "sqrt": np.sqrt, "pi": np.pi, "Piecewise": piecewise,
    }  # fmt: skip
    return known | dict(sizes)


def read_by_numpy(text: str, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    """Our own text with Python's precedence, which is that of the grammar."""
    known = names_of_text(sizes) | {name: np.asarray(array).view(Marked) for name, array in arrays.items()}
    code = compile(text.replace("sigmoid'", "bell"), "<text>", "eval")
    return np.asarray(eval(code, {"__builtins__": {"True": True}}, known), dtype=float)


# ---- SymPy, evaluated node by node ------------------------------------------------------------------------------------


class SymPyValue:
    """The value of an expression: matrices are arrays of two axes, and symbols are looked up."""

    def __init__(self, arrays: Mapping[str, Any]) -> None:
        self.arrays = arrays

    def __call__(self, e: Any, env: Mapping[Any, Any]) -> Any:
        if e in env:
            return env[e]
        for kinds, rule in self.RULES.items():
            if isinstance(e, kinds):
                return rule(self, e, env)
        name = next((op for op, record in OPERATIONS.items() if record.sympy is type(e)), None)
        assert name is not None, type(e)
        return OPERATIONS[name].rule("numpy")(*(np.array(self(a, env), dtype=float) for a in e.args))

    def matrix(self, e: Any, env: Mapping[Any, Any]) -> Any:
        array = np.asarray(self.arrays[e.name])
        shape = tuple(int(n) for n in e.shape)
        assert array.size == math.prod(shape)
        return array.reshape(shape)

    def chain(self, e: Any, env: Mapping[Any, Any]) -> Any:
        values = [self(a, env) for a in e.args]
        result = values[0]
        for value in values[1:]:
            result = result @ value if np.ndim(result) and np.ndim(value) else result * value
        return result

    def entries(self, e: Any, env: Mapping[Any, Any]) -> Any:
        i, j = e.lamda.variables
        rows, cols = (int(n) for n in e.shape)
        return np.array([[self(e.lamda.expr, {**env, i: a, j: b}) for b in range(cols)] for a in range(rows)])

    def summed(self, e: Any, env: Mapping[Any, Any]) -> Any:
        if not e.limits:
            return self(e.function, env)
        *others, (i, low, high) = e.limits
        inner = sp.Sum(e.function, *others) if others else e.function
        return sum(self(inner, {**env, i: k}) for k in range(int(self(low, env)), int(self(high, env)) + 1))

    def chosen(self, e: Any, env: Mapping[Any, Any]) -> Any:
        (value, condition), (other, _) = e.args
        return np.where(self.holds(condition, env), self(value, env), self(other, env))

    def holds(self, condition: Any, env: Mapping[Any, Any]) -> Any:
        if isinstance(condition, (sp.And, sp.ITE)):  # SymPy makes the latter of pieces inside a condition
            parts = [self.holds(part, env) for part in condition.args]
            return np.all(parts, axis=0) if isinstance(condition, sp.And) else np.where(*parts)
        signs = {sp.StrictLessThan: np.less, sp.LessThan: np.less_equal, sp.StrictGreaterThan: np.greater,
                 sp.GreaterThan: np.greater_equal}  # fmt: skip
        return signs[type(condition)](self(condition.lhs, env), self(condition.rhs, env))

    RULES: Mapping[Any, Any] = {
        sp.MatrixSymbol: matrix,
        sp.Symbol: lambda self, e, env: float(self.arrays[e.name]),
        sp.NumberSymbol: lambda self, e, env: float(e),
        sp.Rational: lambda self, e, env: int(e) if e.is_Integer else float(e),
        sp.matrices.expressions.matexpr.MatrixElement: lambda self, e, env: self(e.parent, env)[
            int(self(e.i, env)), int(self(e.j, env))
        ],
        sp.MatMul: chain,
        (sp.MatAdd, sp.Add): lambda self, e, env: sum(self(a, env) for a in e.args),
        (sp.HadamardProduct, sp.Mul): lambda self, e, env: math.prod(self(a, env) for a in e.args),
        (sp.HadamardPower, sp.Pow): lambda self, e, env: np.power(
            np.array(self(e.args[0], env), dtype=float), float(self(e.args[1], env))
        ),
        sp.Transpose: lambda self, e, env: self(e.arg, env).T,
        (sp.Inverse, sp.MatPow): lambda self, e, env: np.linalg.inv(self(e.args[0], env)),
        sp.BlockMatrix: lambda self, e, env: np.block([[self(b, env) for b in row] for row in e.blocks.tolist()]),
        sp.MatrixBase: lambda self, e, env: np.array([[self(a, env) for a in row] for row in e.tolist()]),
        sp.Trace: lambda self, e, env: np.trace(self(e.arg, env)),
        sp.Identity: lambda self, e, env: np.eye(int(e.shape[0])),
        sp.OneMatrix: lambda self, e, env: np.ones([int(n) for n in e.shape]),
        sp.ZeroMatrix: lambda self, e, env: np.zeros([int(n) for n in e.shape]),
        sp.matrices.expressions.diagonal.DiagMatrix: lambda self, e, env: np.diag(self(e.args[0], env)[:, 0]),
        sp.matrices.expressions.diagonal.DiagonalOf: lambda self, e, env: np.diag(self(e.arg, env))[:, None],
        sp.matrices.expressions.applyfunc.ElementwiseApplyFunction: lambda self, e, env: np.broadcast_to(
            self(e.function.expr, {**env, e.function.variables[0]: self(e.expr, env)}, ), e.shape
        ),
        sp.FunctionMatrix: entries,
        sp.Sum: summed,
        sp.Min: lambda self, e, env: np.minimum.reduce(np.broadcast_arrays(*(self(a, env) for a in e.args))),
        sp.Max: lambda self, e, env: np.maximum.reduce(np.broadcast_arrays(*(self(a, env) for a in e.args))),
        sp.KroneckerDelta: lambda self, e, env: float(self(e.args[0], env) == self(e.args[1], env)),
        sp.Piecewise: chosen,
    }  # fmt: skip


def sympy_value(tensor: Tensor, arrays: Mapping[str, Any], sizes: Mapping[str, int]) -> Any:
    shape = tuple(sizes[dim] for dim in tensor.dims)
    expression, value = to_sympy(tensor, sizes), SymPyValue(arrays)
    if isinstance(expression, sp.Lambda):
        whole = np.empty(shape)
        for place in np.ndindex(*shape):
            whole[place] = value(expression.expr, dict(zip(expression.variables, place, strict=True)))
        return whole
    return np.asarray(value(expression, {}), dtype=float).reshape(shape)
