"""The blocks of f and g in index notation: the same names as those of ``model.Model``, for arrays of any size."""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from functools import cached_property, lru_cache
from itertools import product

from bilevel_sym.arrays.algebra import subtracted
from bilevel_sym.arrays.calculus import along, gradient
from bilevel_sym.arrays.tensor import Leaf, Role, Tensor

__all__ = ["ArrayModel", "Blocks"]

Blocks = Mapping[tuple[Leaf, ...], Tensor]
MAX_BLOCKS = 256  # that are kept; far more than there are names
MAX_GRADIENTS = 4096  # likewise, of all choices of arrays


class ArrayModel:
    """f and g in the arrays x and y; blocks are asked for by name, and each is a tensor for every choice of arrays.

    - ``f``, ``g``: the levels, without free indices.
    - ``x``, ``y``: the arrays of each level, in the order in which their entries are laid end to end.
    - ``v``: the adjoint, one array for each of y; ``u``, ``w``: two directions, one array for each of x and of y.

    Names are those of the scalar model: "f_x", "g_xy", "g_yyy"; "L" is the Lagrangian f - v^T grad_y g, v held
    constant; "g_yy_v" and "g_xy_v" are products with v, "g_yx_u" one with the x part of u, without forming the matrix;
    "s_x" and "s_y" the product of the Hessian of L with u; "q" and "r" the gradients of D^2 L[u, w] in (x, y), as "q_x"
    and "q_y", and of D^2 g[u, w] in y.

    >>> from bilevel_sym.arrays.algebra import contract
    >>> x, y = Leaf("x", ("n",), "x"), Leaf("y", ("n",), "y")
    >>> g = contract([(Tensor.leaf(x), "i"), (Tensor.leaf(y), "i")], ())
    >>> model = ArrayModel(Tensor(()), g, [x], [y])
    >>> model.block("g_xy")[x, y]
    Tensor[n,n|1*delta:n(0,1)]
    """

    def __init__(self, f: Tensor, g: Tensor, x: Sequence[Leaf], y: Sequence[Leaf]) -> None:
        self.f, self.g = f, g
        self.x, self.y = tuple(x), tuple(y)
        taken = {leaf.name for leaf in f.leaves | g.leaves} | {leaf.name for leaf in (*x, *y)}
        self.v = _companions("v", self.y, taken, "v")
        self.u = _companions("u", (*self.x, *self.y), taken, "direction")
        self.w = _companions("w", (*self.x, *self.y), taken, "direction")
        self.block = lru_cache(MAX_BLOCKS)(self._block)
        self._gradients = lru_cache(MAX_GRADIENTS)(self._new_gradients)  # not for all: names mean arrays of one problem

    def _block(self, name: str) -> Blocks:
        """The tensors of one name: for "g_xy" one for each array of x and each of y."""
        if name in ("g_yy_v", "g_xy_v", "g_yx_u"):
            held, axes = (self._along_u if name == "g_yx_u" else self._along_v), ("x" if name == "g_xy_v" else "y")
            return self._derivatives(held, axes)
        if name in ("s_x", "s_y"):
            return self._derivatives(self._lagrangian_along_u, name[2:])
        if name in ("q_x", "q_y"):
            return self._derivatives(self._twice("L"), name[2:])
        if name == "r":
            return self._derivatives(self._twice("g"), "y")
        function, _, axes = name.partition("_")
        return self._derivatives(self._function(function), axes)

    def _derivatives(self, formula: Tensor, axes: str) -> Blocks:
        groups = [self.x if axis == "x" else self.y for axis in axes]
        return {arrays: self._gradients(formula, arrays) for arrays in product(*groups)}

    def _new_gradients(self, formula: Tensor, arrays: tuple[Leaf, ...]) -> Tensor:
        return gradient(self._gradients(formula, arrays[:-1]), arrays[-1]) if arrays else formula

    def _function(self, name: str) -> Tensor:
        return {"f": lambda: self.f, "g": lambda: self.g, "L": lambda: self.lagrangian}[name]()

    @cached_property
    def _along_v(self) -> Tensor:
        """v^T grad_y g, built along v so that it stays a product."""
        return along(self.g, _tangents(self.y, self.v))

    @cached_property
    def _along_u(self) -> Tensor:
        return along(self.g, _tangents(self.x, self.u[: len(self.x)]))

    @cached_property
    def lagrangian(self) -> Tensor:
        """f - v^T grad_y g."""
        return subtracted(self.f, self._along_v)

    @cached_property
    def _lagrangian_along_u(self) -> Tensor:
        return along(self.lagrangian, _tangents((*self.x, *self.y), self.u))

    def _twice(self, name: str) -> Tensor:
        """The second derivative along u and w."""
        variables = (*self.x, *self.y)
        once = along(self._function(name), _tangents(variables, self.u))
        return along(once, _tangents(variables, self.w))


def _companions(letter: str, arrays: Sequence[Leaf], taken: Collection[str], role: Role) -> tuple[Leaf, ...]:
    """An array beside each of some, with a name that nobody has: v, or v_W where there are several."""
    names = [letter] if len(arrays) == 1 else [f"{letter}_{leaf.name}" for leaf in arrays]
    while any(name in taken for name in names):
        names = [f"{name}_" for name in names]
    return tuple(Leaf(name, leaf.dims, role) for name, leaf in zip(names, arrays, strict=True))


def _tangents(variables: Iterable[Leaf], directions: Iterable[Leaf]) -> dict[Leaf, Tensor]:
    return {variable: Tensor.leaf(way) for variable, way in zip(variables, directions, strict=True)}
