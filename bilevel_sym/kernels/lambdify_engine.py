"""SymPy's lambdify as an engine: derivatives as SymPy expressions, code by SymPy's printer. An independent route.

Slower to set up and to run than the tape, and limited in depth; nothing certified stands on it. Every variable is
renamed before code is generated, so that no name of the user's ever reaches it.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache, reduce
from itertools import accumulate, product
from types import MappingProxyType
from typing import Any

import numpy as np
import sympy as sp

from bilevel_sym.arithmetic.arrays import whole_blocks
from bilevel_sym.errors import KernelError
from bilevel_sym.graph.convert import no_value
from bilevel_sym.graph.expressions import rewritten, substitute, symbols_in
from bilevel_sym.graph.operations import IN_TEXT
from bilevel_sym.graph.operations.logistic import sigmoid, softplus
from bilevel_sym.implicit.session_engine import SessionEngine
from bilevel_sym.symbolic.blocks import Blocks, derivative
from bilevel_sym.typing import Floats

Function = Callable[[Floats], Floats]


class LambdifyEngine(SessionEngine):
    """Blocks by lambdify; see ``bilevel_sym.implicit.engine.Engine``.

    >>> x, y = sp.symbols("x y")
    >>> engine = LambdifyEngine(x*y, y**2/2 - sp.sin(x)*y, [x], [y])
    >>> session = engine.session(("g_xy",), 1)
    >>> session.put(0, np.array([[0.0, 5.0]]))
    >>> session.take("g_xy")
    array([[[-1.]]])
    """

    name = "lambdify"
    batch_invariant = True

    def __init__(self, f: sp.Expr, g: sp.Expr, x: Sequence[sp.Symbol], y: Sequence[sp.Symbol]) -> None:
        d, n = len(x), len(y)
        widths = {"x": d, "y": n, "v": n, "u": d + n, "w": d + n}
        self._named = {
            group: tuple(sp.Symbol(f"{group}_{k}", real=True) for k in range(width)) for group, width in widths.items()
        }
        self._widths = (d + n, n, 2 * (d + n))  # of the stages
        renamed = dict(zip((*x, *y), (*self._named["x"], *self._named["y"]), strict=True))
        if unknown := (symbols_in(f) | symbols_in(g)) - set(renamed):
            raise no_value(min(unknown, key=str))
        f, g = (_stable(substitute(expression, renamed)) for expression in (f, g))
        self._blocks = Blocks(f, g, self._named["x"], self._named["y"], v=self._named["v"])
        self._compiled = lru_cache(64)(self._compile)

    def session(self, names: Sequence[str], lanes: int) -> LambdifySession:
        """Lanes in which any block can be computed."""
        return LambdifySession(self._compiled, self._widths, lanes)

    def lanes(self, names: Sequence[str]) -> int:
        """Temporary arrays of this length stay in the cache."""
        return 1024

    def _compile(self, name: str) -> Function:
        arguments = [s for group in ("x", "y", "v", "u", "w") for s in self._named[group]]
        try:
            shape, entries = self._entries(name)
            return _function(arguments, shape, entries)
        except RecursionError:
            raise KernelError(
                "the expression is nested too deeply for lambdify", hint='backend="tape" has no such limit'
            ) from None

    def _entries(self, name: str) -> tuple[tuple[int, ...], list[sp.Expr]]:
        x, y, v = (self._named[group] for group in "xyv")
        match name:
            case "f" | "g":
                return (), [self._blocks.function(name)]
            case "g_yy_v" | "g_xy_v":
                shape, entries = self._block(name[:4])
                products = sp.Matrix(*shape, entries) * sp.Matrix(v)
                return shape[:1], list(products)
            case "q":
                held = (a * b for a, b in zip(v, self._block("g_y")[1], strict=True))
                lagrangian = self._blocks.function("f") - sp.Add(*held)
                return (len(x) + len(y),), self._along(lagrangian, (*x, *y))
            case "r":
                return (len(y),), self._along(self._blocks.function("g"), y)
        return self._block(name)

    def _block(self, name: str) -> tuple[tuple[int, ...], list[sp.Expr]]:
        """Entry by entry: whole blocks of large functions would come from the tape, and this route shares nothing."""
        shape = tuple(len(self._named[axis]) for axis in name[2:])
        return shape, [self._blocks[(name, *index)] for index in product(*map(range, shape))]

    def _along(self, expression: sp.Expr, axis: Sequence[sp.Symbol]) -> list[sp.Expr]:
        """The gradient in ``axis`` of the second derivative along the directions u and w."""
        variables = (*self._named["x"], *self._named["y"])
        for direction in (self._named["u"], self._named["w"]):
            expression = sp.Add(*(t * derivative(expression, s) for s, t in zip(variables, direction, strict=True)))
        return [derivative(expression, s) for s in axis]


class LambdifySession:
    """The inputs of some lanes; blocks are computed when they are taken.

    Lanes are filled up to whole blocks: NumPy computes what is left over of a vector register by another route.
    """

    def __init__(self, compiled: Callable[[str], Function], widths: Sequence[int], lanes: int) -> None:
        self._compiled, self._lanes = compiled, lanes
        self._bounds = list(accumulate(widths, initial=0))
        self._table = np.zeros((self._bounds[-1], whole_blocks(lanes)))

    def inputs(self, stage: int) -> Floats:
        """The inputs of one stage, (inputs, lanes)."""
        return self._table[self._bounds[stage] : self._bounds[stage + 1]]

    def perform(self, stage: int) -> None:
        """Nothing is computed before it is asked for."""

    def put(self, stage: int, values: Floats) -> None:
        """Keep the inputs of a stage."""
        inputs = self.inputs(stage)
        inputs[:, : self._lanes] = values.T
        inputs[:, self._lanes :] = inputs[:, :1]
        self.perform(stage)

    def rows(self, name: str) -> Floats:
        """One block, (entries, lanes)."""
        block = self._compiled(name)(self._table)
        return np.ascontiguousarray(block.reshape(len(block), math.prod(block.shape[1:])).T)

    def take(self, name: str) -> Floats:
        """One block, (lanes, ...)."""
        return self._compiled(name)(self._table)[: self._lanes]


def _function(arguments: Sequence[sp.Symbol], shape: tuple[int, ...], entries: Sequence[sp.Expr]) -> Function:
    """(inputs, lanes) -> (lanes, ...). Constant entries stay out of the code; each distinct entry is computed once."""
    varying = list(dict.fromkeys(entry for entry in entries if symbols_in(entry)))
    position = {entry: k for k, entry in enumerate(varying)}
    columns = [k for k, entry in enumerate(entries) if entry in position]
    sources = [position[entries[k]] for k in columns]
    template = np.array([0.0 if e in position else float(e.evalf(30)) for e in entries])
    used = [k for k, s in enumerate(arguments) if any(s in symbols_in(entry) for entry in varying)]
    code = _lambdified([arguments[k] for k in used], varying)

    def function(inputs: Floats) -> Floats:
        lanes = inputs.shape[1]
        result = np.tile(template, (lanes, 1))
        with np.errstate(all="ignore"):
            values = code(*(inputs[k] for k in used))
        for column, source in zip(columns, sources, strict=True):
            result[:, column] = values[source]
        return result.reshape((lanes, *shape))

    return function


def _lambdified(arguments: Sequence[sp.Symbol], entries: Sequence[sp.Expr]) -> Callable[..., Sequence[Any]]:
    printable = [rewritten(entry, _printable_node) for entry in entries]
    code: Callable[..., Sequence[Any]] = sp.lambdify(
        arguments, printable, modules=[dict(_NUMPY_FUNCTIONS), "numpy"], cse=len(printable) > 1
    )
    return code


# ---- rewriting ------------------------------------------------------------------------------------------


def _stable(expression: sp.Expr) -> sp.Expr:
    """log(1 + exp z) and 1/(1 + exp z) by the functions that do not overflow."""
    return rewritten(expression, _stable_node)


def _stable_node(node: sp.Basic) -> sp.Basic:
    if isinstance(node, sp.log) and (z := _softplus_argument(node.args[0])) is not None:
        return softplus(z)
    if isinstance(node, sp.Pow) and node.exp.is_Integer and node.exp < 0:
        z = _softplus_argument(node.base)
        return node if z is None else sigmoid(-z) ** -node.exp
    if isinstance(node, sp.Mul):
        for factor in node.args:
            if isinstance(factor, sigmoid) and sp.exp(-factor.args[0]) in node.args:
                rest = [a for a in node.args if a not in (factor, sp.exp(-factor.args[0]))]
                return sp.Mul(sigmoid(-factor.args[0]), *rest)
    return node


def _softplus_argument(expression: sp.Expr) -> sp.Expr | None:
    if isinstance(expression, sp.Add) and len(expression.args) == 2 and expression.args[0] is sp.S.One:
        return expression.args[1].args[0] if isinstance(expression.args[1], sp.exp) else None
    return None


class _smaller(sp.Function):
    """min of two, printed as numpy.minimum: SymPy's own printer stacks arguments of different shapes."""


class _larger(sp.Function):
    """max of two."""


def _printable_node(node: sp.Basic) -> sp.Basic:
    if isinstance(node, (sp.Min, sp.Max)):
        return reduce(_smaller if isinstance(node, sp.Min) else _larger, node.args)
    if isinstance(node, sp.Add) and len(node.args) == 2 and node.args[0] is sp.S.One:
        s = -node.args[1]
        if isinstance(s, sigmoid):  # 1 - sigmoid(z) cancels; sigmoid(-z) is the same
            return sigmoid(-s.args[0])
    return node


# softplus and sigmoid by other formulas than the tape's: this engine is a second route, on purpose
_NUMPY_FUNCTIONS: Mapping[str, Callable[..., Any]] = MappingProxyType(
    {
        **{name: record.rule("numpy") for name, record in IN_TEXT.items() if not record.is_ufunc},
        "softplus": lambda z: np.logaddexp(0.0, z),
        "sigmoid": lambda z: np.exp(-np.logaddexp(0.0, -z)),
        "_smaller": np.minimum,
        "_larger": np.maximum,
    }
)
