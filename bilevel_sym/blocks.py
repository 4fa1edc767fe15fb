"""Blocks: the derivative blocks of f, g and the Lagrangian, each entry differentiated when asked for."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from math import prod
from typing import Any, TypeAlias

import sympy as sp
from sympy.core.function import AppliedUndef

from bilevel_sym.calculus import derivative
from bilevel_sym.expressions import postorder, symbols_in, tree_size
from bilevel_sym.tape.model import Model

__all__ = ["BLOCK_NAMES", "Blocks"]

# function _ axes, in order; "L" is the Lagrangian f - v^T grad_y g with v held constant
BLOCK_NAMES = (
    "f_x", "f_y", "f_xx", "f_xy", "f_yy",
    "g_y", "g_xy", "g_yy", "g_xxy", "g_xyy", "g_yyy",
    "L_xx", "L_xy", "L_yy",
)  # fmt: skip

LARGE = 1500  # nodes of f and g beyond which whole blocks are differentiated on the tape

Block: TypeAlias = sp.ImmutableDenseMatrix | sp.ImmutableDenseNDimArray


class Blocks(Mapping[str, Block]):
    """``blocks["g_xy"]`` is the whole block; ``blocks["g_xy", i, j]`` one entry, differentiated alone.

    One axis gives a column, two a matrix, three an array; entries that are equal by symmetry are
    differentiated once. Whole blocks of large f and g are differentiated on the tape and written back; the form then
    follows the tape's rules (sums stay factored). The blocks are functions of x and y (and of v, for those of L), at
    any point.

    >>> x, y = sp.symbols("x y", real=True)
    >>> blocks = Blocks(f=x*y, g=y**2/2 - sp.sin(x)*y, x=(x,), y=(y,))
    >>> blocks["g_xy"], blocks["g_xxy", 0, 0, 0]
    (Matrix([[-cos(x)]]), sin(x))
    """

    def __init__(
        self,
        f: sp.Expr,
        g: sp.Expr,
        x: Sequence[sp.Symbol],
        y: Sequence[sp.Symbol],
        *,
        v: Sequence[sp.Symbol] = (),
    ) -> None:
        self._functions = {"f": f, "g": g}
        self._variables = {"x": tuple(x), "y": tuple(y)}
        self._v = tuple(v)
        self._partials: dict[tuple[str, tuple[sp.Symbol, ...]], sp.Expr] = {}
        self._whole: dict[str, Block] = {}

    def function(self, name: str) -> sp.Expr:
        """f or g itself."""
        return self._functions[name]

    def __iter__(self) -> Iterator[str]:
        return iter(BLOCK_NAMES)

    def __len__(self) -> int:
        return len(BLOCK_NAMES)

    def __repr__(self) -> str:
        return f"Blocks({', '.join(BLOCK_NAMES)})"

    def __getitem__(self, key: str | tuple[str | int, ...]) -> Any:
        if isinstance(key, tuple):
            return self._entry(_known(str(key[0])), [int(i) for i in key[1:]])
        if _known(key) not in self._whole:
            self._whole[key] = self._block(key)
        return self._whole[key]

    def _block(self, name: str) -> Block:
        axes = name[2:]
        shape = tuple(len(self._variables[axis]) for axis in axes)
        if self._large:
            entries = self._tape.expressions(name, self._v)
        else:
            entries = [self._entry(name, index) for index in product(*(range(s) for s in shape))]
        if len(axes) == 3:
            return sp.ImmutableDenseNDimArray(entries, shape)
        return sp.ImmutableDenseMatrix(shape[0], prod(shape[1:]), entries)

    @cached_property
    def _large(self) -> bool:
        """Whether whole blocks are worth the tape, which has no undefined functions."""
        functions = self._functions.values()
        defined = not any(isinstance(node, AppliedUndef) for e in functions for node in postorder(e))
        return defined and sum(tree_size(e) for e in functions) > LARGE

    @cached_property
    def _tape(self) -> Model:
        """The same functions on the tape, which differentiates large ones in a fraction of SymPy's time."""
        f, g = self._functions["f"], self._functions["g"]
        variables = (*self._variables["x"], *self._variables["y"])
        parameters = sorted((symbols_in(f) | symbols_in(g)) - set(variables), key=str)
        return Model(f, g, self._variables["x"], self._variables["y"], parameters=parameters)

    def _entry(self, name: str, index: Sequence[int]) -> sp.Expr:
        if len(index) != len(name) - 2:
            raise IndexError(f"{name} has {len(name) - 2} axes, but {len(index)} indices were given")
        at = tuple(self._variables[axis][i] for axis, i in zip(name[2:], index, strict=True))
        if name[0] != "L":
            return self._partial(name[0], at)
        held = (v * self._partial("g", (*at, y)) for v, y in zip(self._v, self._variables["y"], strict=True))
        return sp.Add(self._partial("f", at), *(-term for term in held))

    def _partial(self, function: str, at: Sequence[sp.Symbol]) -> sp.Expr:
        """The partial derivative in a canonical order of variables: y first, for g_y is needed anyway."""
        key = function, tuple(sorted(at, key=self._rank))
        if not at:
            return self._functions[function]
        if key not in self._partials:
            *before, last = key[1]
            self._partials[key] = derivative(self._partial(function, before), last)
        return self._partials[key]

    def _rank(self, symbol: sp.Symbol) -> int:
        return (*self._variables["y"], *self._variables["x"]).index(symbol)


def _known(name: str) -> str:
    if name not in BLOCK_NAMES:
        raise KeyError(f"there is no block {name!r}; there are {', '.join(BLOCK_NAMES)}")
    return name
