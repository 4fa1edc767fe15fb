"""Matrix notation as a small tree, between index notation and what is printed.

Every node knows the dimensions of its value: none for a scalar, one for a vector, two for a matrix. Trees are made by
``matrix_form`` and read by ``display``; equality is by content.
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from fractions import Fraction
from itertools import chain

__all__ = [
    "Diag", "DiagonalOf", "Function", "Hadamard", "Identity", "IndexForm", "IndexTerm", "LogSumExpOf", "MatMul",
    "Name", "Node", "Ones", "Outer", "Power", "Scale", "Softmax", "Sum", "SumOf", "Trace", "Transpose", "has_indices",
    "transposed",
]  # fmt: skip

Dims = tuple[str, ...]
Sizes = tuple[tuple[str, int], ...]


class Node:
    """A value in matrix notation; ``dims`` are its dimensions.

    >>> Name("A", ("m", "n")).rank
    2
    """

    @property
    def dims(self) -> Dims:
        """The dimensions of the value."""
        return self._dims()

    def _dims(self) -> Dims:
        raise TypeError  # each kind says its own

    @property
    def rank(self) -> int:
        """0 for a scalar, 1 for a vector, 2 for a matrix."""
        return len(self.dims)

    @property
    def parts(self) -> tuple[Node, ...]:
        """The nodes that it is made of."""
        values = [getattr(self, own.name) for own in fields(self)]  # type: ignore[arg-type]
        flat = chain.from_iterable(value if isinstance(value, tuple) else (value,) for value in values)
        return tuple(value for value in flat if isinstance(value, Node))


@dataclass(frozen=True)
class Name(Node):
    """A variable or data, by name.

    >>> Name("y", ("n",)).dims
    ('n',)
    """

    name: str
    shape: Dims
    symmetric: bool = False

    def _dims(self) -> Dims:
        return self.shape


@dataclass(frozen=True)
class Ones(Node):
    """One everywhere; without dimensions, the number one.

    >>> Ones(("n",)).rank
    1
    """

    shape: Dims

    def _dims(self) -> Dims:
        return self.shape


@dataclass(frozen=True)
class Identity(Node):
    """The identity matrix.

    >>> Identity("n").dims
    ('n', 'n')
    """

    dim: str

    def _dims(self) -> Dims:
        return (self.dim, self.dim)


@dataclass(frozen=True)
class Scale(Node):
    """A multiple: a rational number times powers of dimensions times scalars times a body.

    >>> Scale(Fraction(1, 2), (("m", -1),), (), Name("y", ("n",))).dims
    ('n',)
    """

    coefficient: Fraction
    sizes: Sizes
    scalars: tuple[Node, ...]
    body: Node

    def _dims(self) -> Dims:
        return self.body.dims


@dataclass(frozen=True)
class Sum(Node):
    """A sum of two or more values of one shape.

    >>> Sum((Name("a", ("n",)), Name("b", ("n",)))).dims
    ('n',)
    """

    terms: tuple[Node, ...]

    def _dims(self) -> Dims:
        return self.terms[0].dims


@dataclass(frozen=True)
class Hadamard(Node):
    """A product entry by entry, of two or more factors of one shape.

    >>> Hadamard((Name("a", ("n",)), Name("b", ("n",)))).rank
    1
    """

    factors: tuple[Node, ...]

    def _dims(self) -> Dims:
        return self.factors[0].dims


@dataclass(frozen=True)
class Power(Node):
    """A power entry by entry.

    >>> Power(Name("y", ("n",)), Fraction(2)).dims
    ('n',)
    """

    base: Node
    exponent: Fraction

    def _dims(self) -> Dims:
        return self.base.dims


@dataclass(frozen=True)
class MatMul(Node):
    """A product of matrices, with a vector at the right end, the left end (a row then), or both.

    >>> MatMul((Name("y", ("n",)), Name("A", ("n", "m")))).dims
    ('m',)
    """

    factors: tuple[Node, ...]

    def _dims(self) -> Dims:
        return (*self.factors[0].dims[:-1], *self.factors[-1].dims[1:])


@dataclass(frozen=True)
class Transpose(Node):
    """A transposed matrix. Use ``transposed``, which takes transposes apart.

    >>> Transpose(Name("A", ("m", "n"))).dims
    ('n', 'm')
    """

    body: Node

    def _dims(self) -> Dims:
        return self.body.dims[::-1]


@dataclass(frozen=True)
class Diag(Node):
    """The matrix with a vector on its diagonal.

    >>> Diag(Name("w", ("m",))).dims
    ('m', 'm')
    """

    vector: Node

    def _dims(self) -> Dims:
        return self.vector.dims * 2


@dataclass(frozen=True)
class DiagonalOf(Node):
    """The diagonal of a matrix, a vector.

    >>> DiagonalOf(Name("K", ("n", "n"))).dims
    ('n',)
    """

    body: Node

    def _dims(self) -> Dims:
        return self.body.dims[:1]


@dataclass(frozen=True)
class Outer(Node):
    """The matrix of all products of an entry of one vector with an entry of another.

    >>> Outer(Name("a", ("m",)), Name("b", ("n",))).dims
    ('m', 'n')
    """

    left: Node
    right: Node

    def _dims(self) -> Dims:
        return (*self.left.dims, *self.right.dims)


@dataclass(frozen=True)
class SumOf(Node):
    """The sum of all entries, or of those along one axis of a matrix.

    >>> SumOf(Name("A", ("m", "n")), 1).dims
    ('m',)
    """

    body: Node
    axis: int | None

    def _dims(self) -> Dims:
        return _without(self.body.dims, self.axis)


@dataclass(frozen=True)
class Trace(Node):
    """The sum of the diagonal.

    >>> Trace(Name("K", ("n", "n"))).rank
    0
    """

    body: Node

    def _dims(self) -> Dims:
        return ()


@dataclass(frozen=True)
class Function(Node):
    """An operation of the grammar entry by entry, by its name in ``graph.operations``.

    >>> Function("sin", (Name("y", ("n",)),)).dims
    ('n',)
    """

    op: str
    bodies: tuple[Node, ...]

    def _dims(self) -> Dims:
        return self.bodies[0].dims if self.bodies else ()


@dataclass(frozen=True)
class LogSumExpOf(Node):
    """The logarithm of the sum of the exponentials, of all entries or along one axis.

    >>> LogSumExpOf(Name("Z", ("m", "k")), 1).dims
    ('m',)
    """

    body: Node
    axis: int | None

    def _dims(self) -> Dims:
        return _without(self.body.dims, self.axis)


@dataclass(frozen=True)
class Softmax(Node):
    """exp(Z - logsumexp(Z)), over all entries or along one axis: what is summed over adds up to one.

    >>> Softmax(Name("Z", ("m", "k")), 1).dims
    ('m', 'k')
    """

    body: Node
    axis: int | None

    def _dims(self) -> Dims:
        return self.body.dims


@dataclass(frozen=True)
class IndexTerm:
    """A product of entries: free indices are 0 to rank - 1, those beyond are summed over ``dummies``.

    >>> IndexTerm(Fraction(1), (), ((Name("y", ("n",)), (0,)),), ()).dummies
    ()
    """

    coefficient: Fraction
    sizes: Sizes
    factors: tuple[tuple[Node, tuple[int, ...]], ...]
    dummies: Dims


@dataclass(frozen=True)
class IndexForm(Node):
    """What has no matrix form: a sum of products of entries.

    >>> IndexForm(("n", "n", "n"), ()).rank
    3
    """

    shape: Dims
    terms: tuple[IndexTerm, ...]

    def _dims(self) -> Dims:
        return self.shape


def _without(dims: Dims, axis: int | None) -> Dims:
    return () if axis is None else tuple(dim for k, dim in enumerate(dims) if k != axis)


def transposed(node: Node) -> Node:
    """The transpose, without one where none is needed: of products factor by factor.

    >>> A, B = Name("A", ("m", "n")), Name("B", ("p", "n"))
    >>> transposed(MatMul((A, Transpose(B)))) == MatMul((B, Transpose(A)))
    True
    """
    if isinstance(node, Transpose):
        return node.body
    if isinstance(node, Diag | Identity) or (isinstance(node, Name) and node.symmetric):
        return node
    if isinstance(node, MatMul):
        return MatMul(tuple(transposed(factor) for factor in reversed(node.factors)))
    if isinstance(node, Outer):
        return Outer(node.right, node.left)
    return Transpose(node)


def has_indices(node: Node) -> bool:
    """Whether something in it has free indices and no matrix form; sums over all indices are scalars like any other.

    >>> has_indices(Function("sin", (IndexForm(("n",), ()),)))
    True
    """
    if isinstance(node, IndexForm):
        return node.rank > 0
    return any(map(has_indices, node.parts))
