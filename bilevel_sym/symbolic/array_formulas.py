"""The gradient and the Hessian of Phi as tensors, with the solves kept by name: v, and dy_dx as further arrays.

The same formulas as those of ``formulas``, for arrays of any size. Third derivatives of g enter along v alone, through
the Lagrangian, so that nothing with three indices is formed where x and y are vectors.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property

from bilevel_sym.arrays.algebra import contract, subtracted
from bilevel_sym.arrays.calculus import along, gradient
from bilevel_sym.arrays.normal import added, scaled
from bilevel_sym.arrays.tensor import Leaf, Role, Tensor
from bilevel_sym.implicit.array_model import ArrayModel, Blocks

ByArray = Mapping[Leaf, Tensor]
ByPair = Mapping[tuple[Leaf, Leaf], Tensor]
Labelled = tuple[Tensor, Sequence[object]]


class ArrayFormulas:
    """The formulas of one model; each is a tensor for every array of x, or every pair of them.

    model: f and g
    is_minimax: whether g = -f, so that f_y and v vanish at y*

    >>> from bilevel_sym.arrays.algebra import multiplied, power
    >>> x, y = Leaf("x", ("n",), "x"), Leaf("y", ("n",), "y")
    >>> X, Y = Tensor.leaf(x), Tensor.leaf(y)
    >>> g = contract([(power(subtracted(Y, X), 2), "i")], "")
    >>> ArrayFormulas(ArrayModel(contract([(Y, "i")], ""), g, [x], [y])).gradient[x]
    Tensor[n|2*v(0)]
    """

    def __init__(self, model: ArrayModel, *, is_minimax: bool = False) -> None:
        self.model, self.is_minimax = model, is_minimax
        known = (*model.f.leaves, *model.g.leaves, *model.x, *model.y, *model.v)
        self._taken = {leaf.name for leaf in known}
        self.is_single = len(model.x) == len(model.y) == 1

    # ---- names that are kept

    def named(self, name: str, dims: Sequence[str], *, role: Role = "v", symmetric: bool = False) -> Leaf:
        """An array with a name that the problem does not have."""
        while name in self._taken:
            name += "_"
        return Leaf(name, tuple(dims), role, symmetric)

    @cached_property
    def responses(self) -> Mapping[tuple[Leaf, Leaf], Leaf]:
        """dy_dx for each array of x and of y: the indices of x, then those of y."""
        pairs = [(a, c) for a in self.model.x for c in self.model.y]
        names = ["dy_dx"] if self.is_single else [f"d{c.name}_d{a.name}" for a, c in pairs]
        return {
            (a, c): self.named(name, a.dims + c.dims, role="direction")
            for (a, c), name in zip(pairs, names, strict=True)
        }

    def lagrangian_leaves(self, axes: str) -> Mapping[tuple[Leaf, Leaf], Leaf]:
        """L_xx, L_xy or L_yy by name, for each pair of arrays; of minimax problems f_xx, f_xy."""
        first, second = (self.model.x if axis == "x" else self.model.y for axis in axes)
        function = "f" if self.is_minimax else "L"
        found = {}
        for a in first:
            for b in second:
                name = f"{function}_{axes}" if self.is_single else f"{function}_{a.name}_{b.name}"
                found[a, b] = self.named(name, a.dims + b.dims, symmetric=a == b and len(a.dims) == 1)
        return found

    # ---- blocks

    def block(self, name: str) -> Blocks:
        """As those of the model, at y = y*(x): for minimax problems L is f, and f_y vanishes."""
        if self.is_minimax and name == "f_y":
            return {(c,): Tensor(c.dims) for c in self.model.y}
        if self.is_minimax and name == "g_xy_v":
            return {(a,): Tensor(a.dims) for a in self.model.x}
        if self.is_minimax and name.startswith("L_"):
            name = "f" + name[1:]
        return self.model.block(name)

    def pairs(self, name: str) -> ByPair:
        """A block of two axes."""
        return {(a, b): value for (a, b), value in self.block(name).items()}

    # ---- the gradient

    @cached_property
    def gradient(self) -> ByArray:
        """grad Phi = f_x - g_xy v, the gradient of the Lagrangian in x."""
        return {a: value for (a,), value in self.block("L_x").items()}

    @cached_property
    def gradient_terms(self) -> Mapping[str, ByArray]:
        """direct f_x, implicit -g_xy v."""
        direct = {a: value for (a,), value in self.block("f_x").items()}
        implicit = {a: scaled(value, -1) for (a,), value in self.block("g_xy_v").items()}
        return {"direct": direct, "implicit": implicit}

    # ---- the Hessian

    @cached_property
    def hessian(self) -> ByPair:
        """Hess Phi = L_xx + dy_dx L_yx + L_xy dy_dx^T + dy_dx L_yy dy_dx^T, written out but for dy_dx and v."""
        return self._hessian({axes: self.pairs(f"L_{axes}") for axes in ("xx", "xy", "yy")})

    @cached_property
    def named_hessian(self) -> ByPair:
        """The same with the blocks of the Lagrangian by name."""
        return self._hessian({axes: self._by_name(axes) for axes in ("xx", "xy", "yy")})

    def _by_name(self, axes: str) -> ByPair:
        leaves, blocks = self.lagrangian_leaves(axes), self.pairs(f"L_{axes}")
        return {pair: Tensor(leaf.dims) if blocks[pair].is_zero else Tensor.leaf(leaf) for pair, leaf in leaves.items()}

    def _hessian(self, blocks: Mapping[str, ByPair]) -> ByPair:
        if self.is_minimax:  # f_yy dy_dx^T = -f_yx
            parts: Sequence[ByPair] = [blocks["xx"], self._cross(blocks["xy"])]
        else:
            cross = self._cross(blocks["xy"])
            parts = [blocks["xx"], cross, _turned(cross), self._quadratic(blocks["yy"])]
        return _sums(parts)

    @cached_property
    def hessian_terms(self) -> Mapping[str, ByPair]:
        """The five terms of the paper; the curvature d2y_dx2 f_y is what the Lagrangian has beyond f."""
        cross, curved = self._cross(self.pairs("f_xy")), {axes: self._curved(axes) for axes in ("xx", "xy", "yy")}
        bent = self._cross(curved["xy"])
        return {
            "direct": self.pairs("f_xx"),
            "cross": cross,
            "curvature": _sums([curved["xx"], bent, _turned(bent), self._quadratic(curved["yy"])]),
            "cross_transposed": _turned(cross),
            "quadratic": self._quadratic(self.pairs("f_yy")),
        }

    def _curved(self, axes: str) -> ByPair:
        """Of -v^T grad_y g alone."""
        plain = self.pairs(f"f_{axes}")
        return {pair: subtracted(value, plain[pair]) for pair, value in self.pairs(f"L_{axes}").items()}

    def _cross(self, mixed: ByPair) -> ByPair:
        """dy_dx times the transpose of a block of x and y."""
        x, y = self.model.x, self.model.y
        return {
            (a, b): _sum(
                ([(self._response(a, c), _labels("a", a, "c", c)), (mixed[b, c], _labels("b", b, "c", c))] for c in y),
                a, b,
            )
            for a in x for b in x
        }  # fmt: skip

    def _quadratic(self, lower: ByPair) -> ByPair:
        """dy_dx times a block of y times the transpose of dy_dx."""
        x, y = self.model.x, self.model.y

        def operands(a: Leaf, b: Leaf, c: Leaf, e: Leaf) -> list[Labelled]:
            left, right = self._response(a, c), self._response(b, e)
            middle = (lower[c, e], _labels("c", c, "e", e))
            return [(left, _labels("a", a, "c", c)), middle, (right, _labels("b", b, "e", e))]

        return {(a, b): _sum((operands(a, b, c, e) for c in y for e in y), a, b) for a in x for b in x}

    def _response(self, a: Leaf, c: Leaf) -> Tensor:
        return Tensor.leaf(self.responses[a, c])

    # ---- along a direction, where matrices would have more than two indices

    @cached_property
    def along_direction(self) -> Mapping[str, Blocks]:
        """What gives Hess Phi [u] by two solves with g_yy, in matrix notation for arrays of any rank.

        "dy": the right side -g_yx[u] of g_yy[dy]; "w": the right side L_yx[u] + L_yy[dy] of g_yy[w];
        "hess": L_xx[u] + L_xy[dy] - g_xy[w].
        """
        model, moves = self.model, self.moves
        along_u = along(model.g, {a: Tensor.leaf(moves[a]) for a in model.x})
        function = model.f if self.is_minimax else model.lagrangian
        bent = along(function, {leaf: Tensor.leaf(way) for leaf, way in moves.items()})
        along_w = along(model.g, {c: Tensor.leaf(way) for c, way in self.adjoint_moves.items()})
        return {
            "dy": {(c,): scaled(gradient(along_u, c), -1) for c in model.y},
            "w": {(c,): gradient(bent, c) for c in model.y},
            "hess": {(a,): subtracted(gradient(bent, a), gradient(along_w, a)) for a in model.x},
        }

    @cached_property
    def moves(self) -> Mapping[Leaf, Leaf]:
        """u for each array of x, and dy, how y* moves along it, for each of y."""
        model = self.model
        ways = dict(zip(model.x, self._beside("u", model.x), strict=True))
        return ways | dict(zip(model.y, self._beside("dy", model.y), strict=True))

    @cached_property
    def adjoint_moves(self) -> Mapping[Leaf, Leaf]:
        """w, how v moves along u, for each array of y."""
        return dict(zip(self.model.y, self._beside("w", self.model.y), strict=True))

    def _beside(self, letter: str, arrays: Sequence[Leaf]) -> list[Leaf]:
        names = [letter] if len(arrays) == 1 else [f"{letter}_{leaf.name}" for leaf in arrays]
        return [self.named(name, leaf.dims) for name, leaf in zip(names, arrays, strict=True)]


def _labels(*pairs: object) -> list[object]:
    """Labels for the indices of arrays one after the other: ("a", A, "c", C)."""
    letters, arrays = pairs[::2], pairs[1::2]
    return [
        (letter, k)
        for letter, leaf in zip(letters, arrays, strict=True)
        for k in range(len(leaf.dims))  # type: ignore[attr-defined]
    ]


def _sum(products: Iterable[Sequence[Labelled]], a: Leaf, b: Leaf) -> Tensor:
    out = _labels("a", a, "b", b)
    return added((contract(operands, out) for operands in products), a.dims + b.dims)


def _turned(blocks: ByPair) -> ByPair:
    """The transpose of a matrix of blocks."""
    found = {}
    for a, b in blocks:
        out = _labels("a", a, "b", b)
        found[a, b] = contract([(blocks[b, a], _labels("b", b, "a", a))], out)
    return found


def _sums(parts: Sequence[ByPair]) -> ByPair:
    return {(a, b): added([part[a, b] for part in parts], a.dims + b.dims) for a, b in parts[0]}
