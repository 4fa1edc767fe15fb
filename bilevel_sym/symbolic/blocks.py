"""Blocks: the derivative blocks of f, g and the Lagrangian, each entry differentiated when asked for.

Exact partial derivatives, without recursion: each shared subexpression is differentiated once.

SymPy's ``diff`` recurses (300 nested functions break it) and differentiates repeated parts again and again; its
rules for Abs, Min and Max of complex symbols are of no use here, where every variable is real. Off the kinks of Abs,
Min, Max and Piecewise the result is the derivative; on them none exists, and one side's is given.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from functools import cached_property
from itertools import product
from typing import Any, TypeAlias

import sympy as sp
from sympy.core.function import AppliedUndef
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import Boolean

from bilevel_sym.graph.expressions import postorder, symbols_in, tree_size
from bilevel_sym.implicit.model import Model

__all__ = ["BLOCK_NAMES", "Blocks", "derivative"]


def derivative(expression: sp.Expr, symbol: sp.Symbol) -> sp.Expr:
    """The partial derivative of ``expression`` with respect to a real ``symbol``.

    >>> x, y = sp.symbols("x y", real=True)
    >>> derivative(x*sp.sin(x*y), y)
    x**2*cos(x*y)
    >>> derivative(abs(x), x), derivative(sp.Max(x, y), x)
    (sign(x), Piecewise((1, x >= y), (0, True)))
    """
    done: dict[int, sp.Expr] = {}
    for node in postorder(expression):
        if not node.args:
            done[id(node)] = sp.S.One if node == symbol else sp.S.Zero
        else:
            done[id(node)] = _chain(node, [done[id(child)] for child in node.args], symbol)
    return done[id(expression)]


def _chain(node: sp.Basic, inner: Sequence[sp.Expr], symbol: sp.Symbol) -> sp.Expr:
    """The derivative of one node from those of its arguments."""
    if isinstance(node, (AppliedUndef, sp.Derivative)):
        return node.diff(symbol)
    if all(d is sp.S.Zero for d in inner):
        return sp.S.Zero
    if isinstance(node, ExprCondPair):
        return inner[0]
    if isinstance(node, (Boolean, sp.Tuple)):  # conditions, and the "with respect to" of Derivative
        return sp.S.Zero
    if isinstance(node, sp.Add):
        return sp.Add(*inner)
    if isinstance(node, sp.Mul):
        return _product(node.args, inner)
    if isinstance(node, sp.Pow):
        return _power(node, *inner)
    if isinstance(node, sp.Piecewise):
        return _pieces(inner, [pair.cond for pair in node.args])
    if isinstance(node, (sp.Max, sp.Min)):
        return _extremum(node, inner)
    if isinstance(node, sp.Abs):
        return _times(sp.sign(node.args[0]), inner[0])
    return sp.S.Zero if isinstance(node, sp.sign) else _times(node.fdiff(1), inner[0])


def _pieces(values: Sequence[sp.Expr], conditions: Sequence[Boolean]) -> sp.Expr:
    """Built unevaluated: SymPy folds nested pieces, which never ends where their conditions were built unevaluated."""
    if all(value == values[0] for value in values) and conditions[-1] == True:  # noqa: E712
        return values[0]
    return sp.Piecewise(*zip(values, conditions, strict=True), evaluate=False)


def _product(factors: Sequence[sp.Expr], inner: Sequence[sp.Expr]) -> sp.Expr:
    return sp.Add(*(_times(*factors[:i], d, *factors[i + 1 :]) for i, d in enumerate(inner) if d is not sp.S.Zero))


def _times(*factors: sp.Expr) -> sp.Expr:
    """The product, with powers of a Piecewise taken piece by piece: SymPy's own way never ends where its conditions
    were built unevaluated.
    """
    counts = Counter(part for factor in factors for part in sp.Mul.make_args(factor))
    if not any(count > 1 and isinstance(part, sp.Piecewise) for part, count in counts.items()):
        return sp.Mul(*factors)
    return sp.Mul(
        *(
            sp.Piecewise(*((pair.expr**count, pair.cond) for pair in part.args), evaluate=False)
            if isinstance(part, sp.Piecewise)
            else part**count
            for part, count in counts.items()
        )
    )


def _power(node: sp.Pow, d_base: sp.Expr, d_exponent: sp.Expr) -> sp.Expr:
    base, exponent = node.args
    if d_exponent is sp.S.Zero:
        return _times(exponent * base ** (exponent - 1), d_base)
    return node * (d_exponent * sp.log(base) + exponent * d_base / base)


def _extremum(node: sp.Max | sp.Min, inner: Sequence[sp.Expr]) -> sp.Expr:
    """Piece by piece: the derivative of the argument that is the largest (or smallest).

    Built unevaluated: SymPy would ask for the sign of each difference, at a price that grows with the cube.
    """
    relation = sp.Ge if isinstance(node, sp.Max) else sp.Le
    alive = [i for i, d in enumerate(inner) if d is not sp.S.Zero]
    pieces = []
    for i in alive:
        others = node.args[:i] + node.args[i + 1 :]
        rest = others[0] if len(others) == 1 else node.func(*others, evaluate=False)
        pieces.append((inner[i], relation(node.args[i], rest, evaluate=False)))
    last = (sp.S.Zero, True) if len(alive) < len(inner) else (inner[alive[-1]], True)
    shown = pieces if len(alive) < len(inner) else pieces[:-1]
    return sp.Piecewise(*shown, last, evaluate=False)


# function _ axes, in order; "L" is the Lagrangian f - v^T grad_y g with v held constant
BLOCK_NAMES = (
    "f_x", "f_y", "f_xx", "f_xy", "f_yy",
    "g_y", "g_xy", "g_yy", "g_xxy", "g_xyy", "g_yyy",
    "L_xx", "L_xy", "L_yy",
)  # fmt: skip

LARGE = 1500  # nodes of f and g beyond which whole blocks are differentiated on the tape

Block: TypeAlias = sp.ImmutableDenseMatrix | sp.ImmutableDenseNDimArray
Place: TypeAlias = tuple[int, ...]
Partial: TypeAlias = tuple[str, tuple[sp.Symbol, ...]]  # of f or g, by the symbols in canonical order


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
        self._rank = {symbol: k for k, symbol in enumerate((*y, *x))}
        self._partials: dict[Partial, sp.Expr] = {}
        self._inside: dict[Partial, Mapping[str, Sequence[int]]] = {}
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

    def entries(self, name: str) -> Mapping[Place, sp.Expr]:
        """The entries that do not vanish, by their places: few in a block of thousands, and found without the others.

        >>> x, y = sp.symbols("x y", real=True)
        >>> Blocks(f=x*y, g=y**2/2 - x*y, x=(x,), y=(y,)).entries("f_xy")
        {(0, 0): 1}
        """
        if self._large:
            return self._tape.entries(_known(name), self._v)
        found = self._lagrangian(name[2:]) if _known(name)[0] == "L" else self._derivatives(name[0], name[2:])
        return {place: found[place] for place in sorted(found) if found[place] != 0}

    def size(self, *names: str) -> int:
        """About how many symbols and operations the blocks have, written out: counted before they are.

        >>> x, y = sp.symbols("x y", real=True)
        >>> Blocks(f=x*y, g=sp.sin(x)*y, x=(x,), y=(y,)).size("g_xy")
        3
        """
        return sum(sum(self._tape.sizes(_known(name))) for name in names)

    def longest(self, name: str) -> int:
        """The same of its longest entry.

        >>> x, y = sp.symbols("x y", real=True)
        >>> Blocks(f=x*y, g=sp.sin(x)*y, x=(x,), y=(y,)).longest("g_yy")
        0
        """
        return max(self._tape.sizes(_known(name)), default=0)

    @property
    def defined(self) -> bool:
        """Whether f and g are formulas: of undefined functions nothing is counted."""
        return not any(isinstance(node, AppliedUndef) for e in self._functions.values() for node in postorder(e))

    def _block(self, name: str) -> Block:
        shape = tuple(len(self._variables[axis]) for axis in name[2:])
        entries = self.entries(name)
        if len(shape) == 3:
            flat = [entries.get(place, sp.S.Zero) for place in product(*(range(s) for s in shape))]
            return sp.ImmutableDenseNDimArray(flat, shape)
        places = {(*place, 0)[:2]: entry for place, entry in entries.items()}
        return sp.ImmutableDenseMatrix(sp.SparseMatrix(*(*shape, 1)[:2], places))

    @cached_property
    def _large(self) -> bool:
        """Whether whole blocks are worth the tape, which has no undefined functions."""
        return self.defined and sum(map(tree_size, self._functions.values())) > LARGE

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
            return self._partial(self._key(name[0], at))
        held = (v * self._partial(self._key("g", (*at, y))) for v, y in zip(self._v, self._variables["y"], strict=True))
        return sp.Add(self._partial(self._key("f", at)), *(-term for term in held))

    def _derivatives(self, function: str, axes: str) -> dict[Place, sp.Expr]:
        """Axis by axis, y first, along the variables that occur in what is left of the function."""
        order = sorted(range(len(axes)), key=lambda axis: axes[axis] != "y")
        reached: list[tuple[Place, Partial]] = [((), (function, ()))]
        for axis in order:
            symbols = self._variables[axes[axis]]
            reached = [
                ((*place, k), self._key(function, (*key[1], symbols[k])))
                for place, key in reached
                for k in self._occurring(key)[axes[axis]]
            ]
        back = [order.index(axis) for axis in range(len(axes))]
        return {tuple(place[k] for k in back): self._partial(key) for place, key in reached}

    def _lagrangian(self, axes: str) -> dict[Place, sp.Expr]:
        terms = {place: [entry] for place, entry in self._derivatives("f", axes).items()}
        for (*place, k), entry in self._derivatives("g", axes + "y").items():
            terms.setdefault(tuple(place), []).append(-self._v[k] * entry)
        return {place: sp.Add(*parts) for place, parts in terms.items()}

    def _key(self, function: str, at: Sequence[sp.Symbol]) -> Partial:
        """A partial derivative in a canonical order of variables: y first, for g_y is needed anyway."""
        return function, tuple(sorted(at, key=self._rank.__getitem__))

    def _partial(self, key: Partial) -> sp.Expr:
        function, at = key
        if not at:
            return self._functions[function]
        if key not in self._partials:
            before, last = (function, at[:-1]), at[-1]
            parent = self._partial(before) if len(at) > 1 else self._terms[function].get(last, sp.S.Zero)
            self._partials[key] = derivative(parent, last)
        return self._partials[key]

    @cached_property
    def _terms(self) -> Mapping[str, Mapping[sp.Symbol, sp.Expr]]:
        """For each variable the terms of f and g in which it occurs: nobody else's need be differentiated."""
        return {name: _terms_by_symbol(function) for name, function in self._functions.items()}

    def _occurring(self, key: Partial) -> Mapping[str, Sequence[int]]:
        """Which variables occur in a partial derivative, by axis."""
        if key not in self._inside:
            ranks = sorted(self._rank[s] for s in symbols_in(self._partial(key)) if s in self._rank)
            n = len(self._variables["y"])
            self._inside[key] = {"y": [k for k in ranks if k < n], "x": [k - n for k in ranks if k >= n]}
        return self._inside[key]


def _terms_by_symbol(function: sp.Expr) -> Mapping[sp.Symbol, sp.Expr]:
    terms: dict[sp.Symbol, list[sp.Expr]] = {}
    for term in sp.Add.make_args(function):
        for symbol in symbols_in(term):
            terms.setdefault(symbol, []).append(term)
    return {symbol: sp.Add(*parts) for symbol, parts in terms.items()}


def _known(name: str) -> str:
    if name not in BLOCK_NAMES:
        raise KeyError(f"there is no block {name!r}; there are {', '.join(BLOCK_NAMES)}")
    return name
