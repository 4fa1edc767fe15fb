"""An expression node by node: each is met once, children first, and only functions inside applyfunc recurse."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import sympy as sp
from sympy.matrices.expressions.applyfunc import ElementwiseApplyFunction

from bilevel_sym.arrays.sympy_door.labelled import COLUMN, ROW, Labelled
from bilevel_sym.arrays.sympy_door.names import Names, shown
from bilevel_sym.arrays.sympy_door.nodes import check_node, meaning, parts
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.errors import InvalidProblem

__all__ = ["read"]

MAX_NODES = 20_000  # that are read one by one
MAX_DEPTH = 100  # as in text: derivatives go through an expression level by level
MAX_NESTED = 8  # functions of applyfunc inside each other


def read(expression: sp.Basic, declared: Mapping[str, Leaf], *, field: str) -> Tensor:
    """The tensor that an expression means: a row or column has one index, a 1x1 matrix none.

    expression: in SymPy's matrix language
    declared: the variables, data and parameters by name
    field: what the expression is, for messages

    >>> n = sp.Symbol("n")
    >>> y = sp.MatrixSymbol("y", n, 1)
    >>> read(sp.Trace(y.T*y)/n, {"y": Leaf("y", ("n",), "y")}, field="g")
    Tensor[|1*n^-1*y(0)*y(0)]
    """
    if not isinstance(expression, sp.Basic):
        raise InvalidProblem(
            f"{field} must be a SymPy expression, but is a {type(expression).__name__}",
            hint="MatrixSymbol and Sum in the place of matrices of numbers, which are given as data",
        )
    try:
        value = _Reader(expression, declared).value(expression)
    except InvalidProblem as error:
        raise InvalidProblem(f"{field}: {error.message}", hint=error.hint) from None
    except RecursionError:
        raise InvalidProblem(f"{field} is nested too deeply", hint=f"at most {MAX_DEPTH} levels") from None
    return value.tensor


class _Known(NamedTuple):
    """What a node means, and how deep it is."""

    value: Any  # a Labelled; of a piece of a Piecewise its value and its condition
    depth: int


_Bound = Mapping[sp.Basic, _Known]


class _Reader:
    """One expression."""

    def __init__(self, expression: sp.Basic, declared: Mapping[str, Leaf]) -> None:
        self._names = Names(expression, declared)
        self._nodes = 0
        self._inner = 0  # functions that the node stands in

    def value(self, expression: sp.Basic) -> Labelled:
        """The whole: no index may be left over."""
        whole: Labelled = self._evaluated(expression, {}).value
        for label in whole.labels:
            if label not in (ROW, COLUMN):
                raise InvalidProblem(f"the index {label} is not summed", hint=f"Sum(..., ({label}, 0, n - 1))")
        return whole

    def _evaluated(self, expression: sp.Basic, bound: _Bound) -> _Known:
        done: dict[int, _Known] = {}
        for node in list(self._postorder(expression)):  # all are looked at before any is computed
            known = [done[id(part)] for part in parts(node)]
            depth = 1 + max((part.depth for part in known), default=0)
            if depth > MAX_DEPTH:
                raise InvalidProblem("it is nested too deeply", hint=f"at most {MAX_DEPTH} levels")
            if isinstance(node, ElementwiseApplyFunction):
                done[id(node)] = self._entry_by_entry(node.function, known[0], bound)
            elif isinstance(node, sp.FunctionMatrix):
                done[id(node)] = self._of_indices(node, bound)
            elif isinstance(node, sp.Symbol) and node in bound:
                done[id(node)] = bound[node]
            else:
                done[id(node)] = _Known(meaning(self._names, node, [part.value for part in known]), depth)
        return done[id(expression)]

    def _postorder(self, expression: sp.Basic) -> Iterator[sp.Basic]:
        """Every node object once, children first; what is not supported is refused before what is inside it."""
        seen: set[int] = set()
        stack: list[tuple[sp.Basic, bool]] = [(expression, False)]
        while stack:
            node, ready = stack.pop()
            if ready:
                yield node
            elif id(node) not in seen:
                seen.add(id(node))
                check_node(node)
                self._count()
                stack.append((node, True))
                stack.extend((child, False) for child in reversed(parts(node)))

    def _count(self) -> None:
        self._nodes += 1
        if self._nodes > MAX_NODES:
            raise InvalidProblem(
                f"it has more than {MAX_NODES} parts", hint="arrays and Sum in the place of what is written out"
            )

    def _entry_by_entry(self, function: sp.Basic, body: _Known, bound: _Bound) -> _Known:
        """applyfunc: the function's variable means the whole array."""
        if not isinstance(function, sp.Lambda) or len(function.variables) != 1:
            raise InvalidProblem(f"applyfunc of {shown(function)}", hint="a function of one number")
        result = self._inside(function, {**bound, function.variables[0]: body})
        return _Known(result.value.over(body.value.dims), 1 + max(result.depth, body.depth))

    def _of_indices(self, node: sp.FunctionMatrix, bound: _Bound) -> _Known:
        """FunctionMatrix: the function's variables are indices, which become rows and columns."""
        indices = node.lamda.variables
        entry = self._inside(node.lamda, {symbol: known for symbol, known in bound.items() if symbol not in indices})
        named = entry.value.renamed(dict(zip(indices, (ROW, COLUMN), strict=True)))
        sizes = zip((ROW, COLUMN), node.shape, strict=True)
        return _Known(named.over({label: self._names.letter(n) for label, n in sizes if n != 1}), 1 + entry.depth)

    def _inside(self, function: sp.Lambda, bound: _Bound) -> _Known:
        self._inner += 1
        if self._inner > MAX_NESTED:
            raise InvalidProblem("functions of applyfunc are nested too deeply", hint=f"at most {MAX_NESTED}")
        result = self._evaluated(function.expr, bound)
        self._inner -= 1
        return result
