"""Shapes of formulas: one pass over the syntax tree, in which use joins dimensions.

``+ - * / **``, min, max, conditions and cases go entry by entry, between equal shapes or with a scalar. Nothing else is
repeated along an axis: what does not fit is refused, with both shapes.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from types import MappingProxyType

from bilevel_sym.arrays.language.shapes import Dimensions, Shape
from bilevel_sym.arrays.language.syntax import (
    AXIS_FUNCTIONS,
    Call,
    Comparison,
    Constant,
    Name,
    Negated,
    Node,
    Number,
    Piecewise,
    Power,
    Product,
    Refused,
    Sum,
    Transposed,
)

__all__ = ["Inference"]

VECTOR, MATRIX = 1, 2
WORDS = ("a scalar", "a vector", "a matrix")


class Inference:
    """The shapes of formulas over declared arrays; ``used`` collects the names that they have.

    - ``dimensions``: what is known of dimensions, and learnt on the way.
    - ``declared``: the shape of each name.

    >>> known = Dimensions()
    >>> A, y = (known.numbered(5), known.numbered(3)), (known.lettered("n"),)
    >>> tree = Call(0, "sum", (Name(4, "A"),), 0)
    >>> known.shown(Inference(known, {"A": A, "y": y}).shape(tree))
    '[3]'
    """

    def __init__(self, dimensions: Dimensions, declared: Mapping[str, Shape]) -> None:
        self._known = dimensions
        self._declared = declared
        self.used: set[str] = set()

    def scalar(self, node: Node, what: str) -> None:
        """Refuse a formula that is no scalar."""
        shape = self.shape(node)
        if shape:
            raise Refused(
                node.place, f"{what} is an array of shape {self._known.shown(shape)}, and must be one number",
                "sum(...), mean(...) or a @ b make one number of arrays",
            )  # fmt: skip

    def shape(self, node: Node) -> Shape:
        """The shape of a formula; Refused where two do not fit."""
        return _RULES[type(node)](self, node)

    def _number(self, node: Node) -> Shape:
        return ()

    def _name(self, node: Name) -> Shape:
        self.used.add(node.name)
        return self._declared[node.name]

    def _negated(self, node: Negated) -> Shape:
        return self.shape(node.body)

    def _sum(self, node: Sum) -> Shape:
        shape = self.shape(node.first)
        for link in node.rest:
            hint = (
                "nothing is repeated along an axis: outer(b**0, w) has w in every row, with b any vector over the rows"
            )
            shape = self._together(link.place, link.sign, shape, self.shape(link.operand), hint)
        return shape

    def _product(self, node: Product) -> Shape:
        shape, before = self.shape(node.first), node.first
        for link in node.rest:
            other = self.shape(link.operand)
            if link.sign == "@":
                shape = self._matrix_product(link.place, shape, other)
            else:
                hint = _scaling(link.sign, (before, link.operand), (shape, other))
                shape = self._together(link.place, link.sign, shape, other, hint)
            before = node
        return shape

    def _power(self, node: Power) -> Shape:
        return self._together(node.place, "**", self.shape(node.base), self.shape(node.exponent))

    def _transposed(self, node: Transposed) -> Shape:
        shape = self.shape(node.body)
        if len(shape) != MATRIX:
            hint = "leave .T out: a @ b is the inner product of vectors, outer(a, b) their matrix"
            raise Refused(node.place, f".T wants a matrix, but has {self._described(shape)}", hint)
        return shape[::-1]

    def _comparison(self, node: Comparison) -> Shape:
        return self._together(node.place, node.sign, self.shape(node.left), self.shape(node.right))

    def _piecewise(self, node: Piecewise) -> Shape:
        shape: Shape = ()
        for value, condition in node.pieces:
            for part in (value, condition):
                if part is not None:
                    shape = self._together(part.place, "Piecewise", shape, self.shape(part))
        return shape

    def _call(self, node: Call) -> Shape:
        shapes = [self.shape(argument) for argument in node.arguments]
        if node.name in AXIS_FUNCTIONS:
            return self._along(node, shapes[0])
        if node.name in _OF_ARRAYS:
            return _OF_ARRAYS[node.name](self, node, *shapes)
        shape = shapes[0]
        for other in shapes[1:]:
            shape = self._together(node.place, node.name, shape, other)
        return shape

    # ---- functions of arrays --------------------------------------------------------------------------------------

    def _along(self, node: Call, shape: Shape) -> Shape:
        if not shape:
            raise Refused(node.place, f"{node.name} wants an array, but has a scalar", f"leave {node.name}() out")
        if node.axis is None:
            return ()
        if node.axis >= len(shape):
            described = f"axis={node.axis} of {self._described(shape)}"
            raise Refused(node.place, f"there is no {described}", "the axis of a vector is 0, or leave it out")
        return shape[: node.axis] + shape[node.axis + 1 :]

    def _dot(self, node: Call, one: Shape, two: Shape) -> Shape:
        hint = "A @ B is the product of matrices, sum(A*B) the sum of the products of their entries"
        self._want(node, (one, two), VECTOR, hint)
        self._together(node.place, "dot", one, two)
        return ()

    def _outer(self, node: Call, one: Shape, two: Shape) -> Shape:
        self._want(node, (one, two), VECTOR, None)
        return (*one, *two)

    def _trace(self, node: Call, shape: Shape) -> Shape:
        self._want(node, (shape,), MATRIX, None)
        self._square(node, shape)
        return ()

    def _diag(self, node: Call, shape: Shape) -> Shape:
        if not shape:
            raise Refused(node.place, "diag wants a vector or a matrix, but has a scalar")
        if len(shape) == VECTOR:
            return shape * 2
        self._square(node, shape)
        return shape[:1]

    def _square(self, node: Call, shape: Shape) -> None:
        shown = self._known.shown(shape)
        if not self._known.join(*shape):
            raise Refused(node.place, f"{node.name} wants a square matrix, but has one of shape {shown}")

    def _want(self, node: Call, shapes: Sequence[Shape], rank: int, hint: str | None) -> None:
        for shape in shapes:
            if len(shape) != rank:
                wanted = ("", "vectors" if len(shapes) > 1 else "a vector", "a matrix")[rank]
                raise Refused(node.place, f"{node.name} wants {wanted}, but has {self._described(shape)}", hint)

    # ---- what fits ------------------------------------------------------------------------------------------------

    def _together(self, place: int, sign: str, one: Shape, two: Shape, hint: str | None = None) -> Shape:
        """The shape of an operation entry by entry."""
        if not one or not two:
            return one or two
        shown = f"{self._known.shown(one)} and {self._known.shown(two)}"
        if len(one) != len(two):
            raise Refused(place, f"{sign} goes entry by entry, and the shapes {shown} differ", hint)
        if not all(self._known.join(a, b) for a, b in zip(one, two, strict=True)):
            turned = len(one) == MATRIX and all(map(self._known.may_join, one, two[::-1]))
            raise Refused(
                place, f"{sign} goes entry by entry, and the shapes {shown} differ",
                "transpose one of them with .T" if turned else None,
            )  # fmt: skip
        return one

    def _matrix_product(self, place: int, one: Shape, two: Shape) -> Shape:
        shown = f"{self._known.shown(one)} @ {self._known.shown(two)}"
        if not one or not two:
            raise Refused(place, f"@ wants arrays on both sides: {shown}", "write * to multiply with a scalar")
        if not self._known.join(one[-1], two[0]):
            inner = f"{self._known.one(one[-1])} and {self._known.one(two[0])}"
            raise Refused(place, f"{shown} does not fit: {inner} differ", self._turned(one, two))
        return (*one[:-1], *two[1:])

    def _turned(self, one: Shape, two: Shape) -> str | None:
        """Which transpose would make a product fit."""
        if len(one) == MATRIX and self._known.may_join(one[0], two[0]):
            return "transpose the left one with .T"
        if len(two) == MATRIX and self._known.may_join(one[-1], two[1]):
            return "transpose the right one with .T"
        return "a product A @ B sums over the last axis of A and the first of B"

    def _described(self, shape: Shape) -> str:
        return f"{WORDS[len(shape)]} of shape {self._known.shown(shape)}" if shape else WORDS[0]


def _scaling(sign: str, operands: Sequence[Node], shapes: Sequence[Shape]) -> str | None:
    """How rows and columns of a matrix are scaled, where a matrix meets a vector."""
    ranks = [len(shape) for shape in shapes]
    if sorted(ranks) != [VECTOR, MATRIX]:
        return None
    first = ranks[0] == MATRIX
    matrix, vector = operands if first else operands[::-1]
    w = vector.name if isinstance(vector, Name) else "w"
    A = matrix.name if isinstance(matrix, Name) else "A"
    if sign == "/":
        if not first:
            return None
        w = f"1/{w}"
    return f"diag({w}) @ {A} scales the rows of {A}, {A} @ diag({w}) the columns"


Rule = Callable[..., Shape]
_RULES: Mapping[type[Node], Rule] = MappingProxyType(
    {
        Number: Inference._number,
        Constant: Inference._number,
        Name: Inference._name,
        Negated: Inference._negated,
        Sum: Inference._sum,
        Product: Inference._product,
        Power: Inference._power,
        Transposed: Inference._transposed,
        Comparison: Inference._comparison,
        Piecewise: Inference._piecewise,
        Call: Inference._call,
    }
)
_OF_ARRAYS: Mapping[str, Rule] = MappingProxyType(
    {
        "dot": Inference._dot,
        "outer": Inference._outer,
        "trace": Inference._trace,
        "diag": Inference._diag,
    }
)
