"""From index notation to matrix notation.

A term is a small graph: factors joined by the indices that they share. It is rewritten until nothing but the free
indices is left: vectors on one index are multiplied entry by entry, a vector is multiplied into the only matrix on its
index, two matrices on one index are a product, with a diag between them where a vector is on it as well. An index that
is left over is a sum along an axis, a closed loop a trace. Where no rule applies (three matrices on one index, more
than two free indices) there is no matrix form, and the whole sum is an ``IndexForm``.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from fractions import Fraction

from bilevel_sym.arrays.algebra import apply, contract, spread
from bilevel_sym.arrays.normal import added, minimal, rearranged, scaled
from bilevel_sym.arrays.notation.nodes import (
    Diag,
    DiagonalOf,
    Function,
    Hadamard,
    Identity,
    IndexForm,
    IndexTerm,
    LogSumExpOf,
    MatMul,
    Name,
    Node,
    Ones,
    Outer,
    Power,
    Scale,
    Softmax,
    Sum,
    SumOf,
    Trace,
    Transpose,
    has_indices,
    transposed,
)
from bilevel_sym.arrays.tensor import GROUP, Apply, Delta, Factor, Head, Leaf, LogSumExp, Tensor, Term

__all__ = ["index_form", "matrix_form"]

Weight = tuple[int, bool, int]  # the place in a product: the latest role in it, whether composite, as it came
_ROLES = {"data": 0, "parameter": 0, "x": 1, "y": 2, "v": 3, "direction": 4}


class _NoMatrixForm(Exception):
    """No rule applies."""


def matrix_form(tensor: Tensor) -> Node:
    """The tensor in matrix notation, or an ``IndexForm`` where it has none.

    >>> A, y = Tensor.leaf(Leaf("A", ("m", "n"), "data")), Tensor.leaf(Leaf("y", ("n",), "y"))
    >>> matrix_form(contract([(A, "ij"), (y, "j")], "i")).factors[1].name
    'y'
    """
    if tensor.rank > 2:
        return index_form(tensor)
    tensor = _without_lone_groups(tensor)
    try:
        terms = [(_place(term), _term(tensor, term)) for term in tensor.terms]
    except _NoMatrixForm:
        return index_form(tensor)
    if not terms:
        return Scale(Fraction(0), (), (), Ones(tensor.dims))
    terms.sort(key=lambda pair: pair[0])
    return terms[0][1] if len(terms) == 1 else Sum(tuple(node for _, node in terms))


def index_form(tensor: Tensor) -> IndexForm:
    """The tensor as sums of products of entries; parts that have a matrix form keep it.

    >>> index_form(Tensor.leaf(Leaf("y", ("n",), "y"))).terms[0].factors[0][1]
    (0,)
    """
    terms = []
    for term in sorted(tensor.terms, key=_place):
        items = sorted((item for f in term.factors for item in _items(f)), key=_entry_place)
        factors = [(item.node, item.indices) for item in items]
        terms.append(IndexTerm(term.coefficient, term.sizes, tuple(_powers_of_entries(factors)), term.dummies))
    return IndexForm(tensor.dims, tuple(terms))


def _without_lone_groups(tensor: Tensor) -> Tensor:
    """A sum in parentheses that nothing but a sign multiplies, without the parentheses."""
    opened = [term for term in tensor.terms if _is_lone_group(term)]
    if not opened:
        return tensor
    kept = Tensor(tensor.dims, tuple(term for term in tensor.terms if term not in opened))
    bodies = []
    for term in opened:
        (head, indices), sign = term.factors[0], term.coefficient
        bodies.append(scaled(spread(head.bodies[0], indices, tensor.dims), sign))  # type: ignore[attr-defined]
    return added([kept, *bodies], tensor.dims)


def _is_lone_group(term: Term) -> bool:
    if len(term.factors) != 1 or abs(term.coefficient) != 1 or term.sizes or term.dummies:
        return False
    head, indices = term.factors[0]
    return isinstance(head, Apply) and head.op == GROUP and len(set(indices)) == len(indices)


def _place(term: Term) -> tuple[bool, bool, bool, int]:
    """Positive terms first; those with deltas after the others, and numbers last; what has solves in it after that."""
    latest = max((_weight(f.head)[0] for f in term.factors), default=0)
    diagonal = any(isinstance(f.head, Delta) for f in term.factors)
    return term.coefficient < 0, term.is_number, diagonal, max(latest, _ROLES["v"])


def _entry_place(item: _Item) -> tuple[bool, Weight]:
    """Deltas last; otherwise as in other products."""
    return isinstance(item.node, Identity), item.weight


def _powers_of_entries(factors: Iterable[tuple[Node, tuple[int, ...]]]) -> list[tuple[Node, tuple[int, ...]]]:
    counted: dict[tuple[Node, tuple[int, ...]], int] = {}
    for factor in factors:
        counted[factor] = counted.get(factor, 0) + 1
    return [((Power(node, Fraction(k)) if k > 1 else node), own) for (node, own), k in counted.items()]


# ---- factors --------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Item:
    """A node with the indices that it has in a term."""

    node: Node
    indices: tuple[int, ...]
    weight: Weight
    symmetric: bool = False
    pieces: tuple[tuple[Weight, Node], ...] = ()  # the factors of a product entry by entry, with their places

    def oriented(self, first: int) -> Node:
        """The matrix with this index first."""
        return self.node if self.indices[0] == first or self.symmetric else transposed(self.node)


def _items(factor: Factor) -> list[_Item]:
    """A factor as nodes; an exponential may be several."""
    head, indices = factor
    if isinstance(head, Apply) and head.op == "exp":
        return [
            _Item(node, tuple(indices[k] for k in kept), _weight(head)) for node, kept in _exponential(head.bodies[0])
        ]
    return [_Item(_node(head), indices, _weight(head), head.symmetric)]


def _weight(head: Head) -> Weight:
    roles = [_ROLES[leaf.role] for leaf in head.leaves]
    return max(roles, default=0), not isinstance(head, Leaf), 0


def _node(head: Head) -> Node:
    if isinstance(head, Leaf):
        return Name(head.name, head.dims, head.symmetric)
    if isinstance(head, Delta):
        return Identity(head.dim)
    if isinstance(head, LogSumExp):
        return _logsumexp(head)
    if not isinstance(head, Apply):
        raise TypeError(f"a head of another kind: {type(head).__name__}")
    bodies = tuple(map(matrix_form, head.bodies))
    if head.op == GROUP:
        return bodies[0]
    if head.op in ("ipow", "rpow"):
        return Power(bodies[0], Fraction(*head.parameter))
    return Function(head.op, bodies)


def _logsumexp(head: LogSumExp) -> Node:
    """By its name where it is that of one array; otherwise as the logarithm of a sum, which reads back as the same."""
    part = head.parts[0]
    if len(head.parts) == 1 and part.rank <= 2 and part.rank > head.rank:
        body = matrix_form(part)
        if head.rank == 0:
            return LogSumExpOf(body, None)
        return LogSumExpOf(body.body, 0) if isinstance(body, Transpose) else LogSumExpOf(body, 1)
    sums = [contract([(apply("exp", part), range(part.rank))], range(head.rank)) for part in head.parts]
    return Function("log", (matrix_form(added(sums, head.dims)),))


# ---- exponentials ---------------------------------------------------------------------------------------------------

Placed = tuple[Node, tuple[int, ...]]


def _exponential(body: Tensor) -> list[Placed]:
    """exp of a sum: a softmax where it is one, and apart what depends on fewer indices than the sum has."""
    found: list[Placed] = []
    softmax = _softmax(body)
    if softmax is not None:
        node, body = softmax
        found.append((node, tuple(range(body.rank))))
    if body.is_zero and found:
        return found
    full = tuple(range(body.rank))
    groups: dict[tuple[int, ...], list[Term]] = {}
    for term in body.terms:
        own = tuple(sorted({i for f in term.factors for i in f.indices if i < body.rank}))
        groups.setdefault(own, []).append(term)
    if full not in groups and not found:
        groups = {full: list(body.terms)}
    elif full in groups and full:
        groups[full] += groups.pop((), [])  # a scalar is added to an array without further ado
    for terms in groups.values():
        (small,), kept = minimal([Tensor(body.dims, tuple(terms))])
        found.append((Function("exp", (matrix_form(small),)), kept))
    return found


def _softmax(body: Tensor) -> tuple[Node, Tensor] | None:
    """The power of a softmax in exp(body), and what is left of the body: body = k (Z - logsumexp(Z)) + rest."""
    for term in body.terms:
        head = term.factors[0].head if len(term.factors) == 1 else None
        if not isinstance(head, LogSumExp) or len(head.parts) > 1 or term.sizes or term.coefficient >= 0:
            continue
        part, indices = head.parts[0], term.factors[0].indices
        if part.rank != body.rank or part.rank > 2:
            continue
        axis = None if not indices else 1 - indices[0]
        whole = rearranged(part, (1, 0)) if axis == 0 else part
        power = -term.coefficient
        taken = added([body, scaled(whole, -power), Tensor(body.dims, (term.scaled(Fraction(-1)),))], body.dims)
        if len(taken.terms) == len(body.terms) - len(whole.terms) - 1:
            node: Node = Softmax(matrix_form(whole), axis)
            return (node if power == 1 else Power(node, power)), taken
    return None


# ---- one term -------------------------------------------------------------------------------------------------------


def _term(tensor: Tensor, term: Term) -> Node:
    factors = [f for f in term.factors if not isinstance(f.head, Delta)]
    diagonal = len(factors) < len(term.factors)
    items = [item for factor in factors for item in _items(factor)]
    if any(has_indices(item.node) or item.node.rank > 2 for item in items):
        raise _NoMatrixForm
    ordered = [_Item(item.node, item.indices, (*item.weight[:2], k), item.symmetric) for k, item in enumerate(items)]
    graph = _Graph(ordered, 1 if diagonal else tensor.rank)
    graph.reduce()
    body = graph.diagonal(tensor.dims[0]) if diagonal else graph.result(tensor.dims)
    scalars = graph.scalars()
    if term.coefficient == 1 and not term.sizes and (not scalars or (len(scalars) == 1 and body == Ones(()))):
        return scalars[0] if scalars else body
    return Scale(term.coefficient, term.sizes, scalars, body)


class _Graph:
    """The factors of a term, rewritten in place; indices below ``rank`` are free."""

    def __init__(self, items: Sequence[_Item], rank: int) -> None:
        self.items, self.rank = list(items), rank

    def reduce(self) -> None:
        """Until nothing but the free indices is left."""
        rules: tuple[Callable[[], bool], ...] = (
            self._take_diagonal, self._merge_vectors, self._merge_matrices, self._multiply_vector,
            self._add_up_vector, self._add_up_matrix, self._add_up_axis, self._multiply_matrices,
        )  # fmt: skip
        while any(rule() for rule in rules):
            pass

    # ---- what is left

    def scalars(self) -> tuple[Node, ...]:
        """What has no indices, equal factors as powers."""
        return tuple(_collected([(item.weight, item.node) for item in self.items if not item.indices]))

    def diagonal(self, dim: str) -> Node:
        """The matrix whose diagonal is left."""
        vector = self._vector(0)
        self._check(1 if vector else 0)
        return Diag(vector.node) if vector else Identity(dim)

    def result(self, dims: Sequence[str]) -> Node:
        """The one array that is left, over the free indices."""
        if not dims:
            self._check(0)
            return Ones(())
        vectors = [self._vector(k) for k in range(self.rank)]
        matrix = next((item for item in self.items if len(item.indices) == 2), None)
        self._check(sum(item is not None for item in (*vectors, matrix)))
        nodes = [None if item is None else item.node for item in vectors]
        if len(dims) == 1:
            return nodes[0] or Ones(tuple(dims))
        if matrix is None:
            if nodes == [None, None]:
                return Ones(tuple(dims))
            left, right = (node or Ones((dim,)) for node, dim in zip(nodes, dims, strict=True))
            return Outer(left, right)
        scaled_rows = [Diag(nodes[0])] if nodes[0] else []
        scaled_columns = [Diag(nodes[1])] if nodes[1] else []
        return _chain([*scaled_rows, matrix.oriented(0), *scaled_columns])

    def _check(self, used: int) -> None:
        if sum(bool(item.indices) for item in self.items) != used:
            raise _NoMatrixForm

    # ---- looking up

    def _on(self, index: int) -> tuple[list[_Item], list[_Item]]:
        """The vectors and the matrices that have an index."""
        own = [item for item in self.items if index in item.indices]
        return [item for item in own if len(item.indices) == 1], [item for item in own if len(item.indices) == 2]

    def _vector(self, index: int) -> _Item | None:
        return next(iter(self._on(index)[0]), None)

    def _summed(self) -> list[int]:
        return sorted({i for item in self.items for i in item.indices if i >= self.rank})

    def _replace(
        self,
        old: Sequence[_Item],
        node: Node,
        indices: tuple[int, ...],
        pieces: tuple[tuple[Weight, Node], ...] = (),
    ) -> bool:
        self.items = [item for item in self.items if not any(item is other for other in old)]
        weight = max(item.weight for item in old)
        self.items.append(_Item(node, indices, (weight[0], True, weight[2]), pieces=pieces))
        return True

    def _multiply_entries(self, old: Sequence[_Item], nodes: Sequence[Node], indices: tuple[int, ...]) -> bool:
        """The product entry by entry; ``nodes`` are the items with their indices in this order."""
        pieces: list[tuple[Weight, Node]] = []
        for item, node in zip(old, nodes, strict=True):
            pieces += item.pieces if item.pieces and node is item.node else [(item.weight, node)]
        factors = _collected(pieces) or [Ones(nodes[0].dims)]
        whole = factors[0] if len(factors) == 1 else Hadamard(tuple(factors))
        return self._replace(old, whole, indices, tuple(pieces))

    # ---- the rules: each is applied once, and says whether it was

    def _take_diagonal(self) -> bool:
        for item in self.items:
            if len(item.indices) == 2 and item.indices[0] == item.indices[1]:
                return self._replace([item], DiagonalOf(item.node), item.indices[:1])
        return False

    def _merge_vectors(self) -> bool:
        for index in {item.indices[0] for item in self.items if len(item.indices) == 1}:
            vectors, _ = self._on(index)
            if len(vectors) > 1:
                return self._multiply_entries(vectors, [item.node for item in vectors], (index,))
        return False

    def _merge_matrices(self) -> bool:
        """Matrices on the same two indices: entry by entry, or a trace where nothing else has these indices."""
        for item in self.items:
            same = [other for other in self.items if len(item.indices) == 2 and set(other.indices) == set(item.indices)]
            if len(same) < 2:
                continue
            i, j = min(item.indices), max(item.indices)
            if j >= self.rank:
                (i, j) = min(same, key=lambda other: other.weight).indices
            if len(same) == 2 and self._is_loop(same):
                one, two = same
                return self._replace(same, Trace(_chain([one.node, two.node])), ())
            return self._multiply_entries(same, [other.oriented(i) for other in same], (i, j))
        return False

    def _is_loop(self, pair: Sequence[_Item]) -> bool:
        one, two = pair
        alone = all(i >= self.rank and sum(map(len, self._on(i))) == 2 for i in one.indices)
        return alone and one.indices == two.indices[::-1] and not (one.symmetric or two.symmetric)

    def _multiply_vector(self) -> bool:
        """A vector into the only matrix on its summed index; from the right, if there is the choice."""
        for slot in (1, 0):
            for index in self._summed():
                vectors, matrices = self._on(index)
                if len(vectors) == len(matrices) == 1 and (matrices[0].indices[slot] == index or matrices[0].symmetric):
                    (vector,), (matrix,) = vectors, matrices
                    (other,) = (i for i in matrix.indices if i != index)
                    product = _chain([matrix.oriented(other), vector.node])
                    return self._replace([matrix, vector], product, (other,))
        return False

    def _add_up_vector(self) -> bool:
        for index in self._summed():
            vectors, matrices = self._on(index)
            if len(vectors) == 1 and not matrices:
                return self._replace(vectors, _total(vectors[0].node), ())
        return False

    def _add_up_matrix(self) -> bool:
        for item in self.items:
            lonely = [i >= self.rank and sum(map(len, self._on(i))) == 1 for i in item.indices]
            if len(item.indices) == 2 and all(lonely):
                return self._replace([item], SumOf(item.node, None), ())
        return False

    def _add_up_axis(self) -> bool:
        for index in self._summed():
            vectors, matrices = self._on(index)
            if not vectors and len(matrices) == 1:
                (matrix,) = matrices
                axis = matrix.indices.index(index)
                return self._replace(matrices, SumOf(matrix.node, axis), (matrix.indices[1 - axis],))
        return False

    def _multiply_matrices(self) -> bool:
        """Two matrices on a summed index, with a diag between them where a vector has it too; few are transposed."""
        places = {index: self._on(index) for index in self._summed()}
        pairs = [(index, *found) for index, found in places.items() if len(found[1]) == 2]
        if not pairs:
            return False
        index, vectors, matrices = min(pairs, key=lambda pair: self._transposes(pair[2], pair[0]))
        one, two = sorted(matrices, key=lambda item: self._out_of_order(item, index))
        (left,), (right,) = ([i for i in item.indices if i != index] for item in (one, two))
        middle = [Diag(vector.node) for vector in vectors]
        chain = _chain([one.oriented(left), *middle, two.oriented(index)])
        return self._replace([*matrices, *vectors], chain, (left, right))

    @staticmethod
    def _transposes(pair: Sequence[_Item], index: int) -> int:
        one, two = pair
        return int(one.indices.index(index) == two.indices.index(index) and not (one.symmetric or two.symmetric))

    def _out_of_order(self, item: _Item, index: int) -> tuple[int, int]:
        """Whether it stands on the right: the first free index is on the left, and few are transposed."""
        (other,) = (i for i in item.indices if i != index)
        free = {0: -1, 1: 1}.get(other, 0) if other < self.rank else 0
        return free, 0 if item.symmetric or item.indices[1] == index else 1


# ---- building nodes -------------------------------------------------------------------------------------------------


def _collected(pieces: Iterable[tuple[Weight, Node]]) -> list[Node]:
    """The factors of a product in order, equal ones as powers."""
    exponents: dict[Node, Fraction] = {}
    for _, node in sorted(pieces, key=lambda piece: piece[0]):
        base, exponent = (node.base, node.exponent) if isinstance(node, Power) else (node, Fraction(1))
        exponents[base] = exponents.get(base, Fraction(0)) + exponent
    return [base if k == 1 else Power(base, k) for base, k in exponents.items() if k]


def _chain(factors: Iterable[Node]) -> Node:
    """A product, with products in it written flat; that of a row and a column stays one factor."""
    flat: list[Node] = []
    for factor in factors:
        flat += factor.factors if isinstance(factor, MatMul) and not _is_row(factor) else [factor]
    return flat[0] if len(flat) == 1 else MatMul(tuple(flat))


def _is_row(product: MatMul) -> bool:
    return product.factors[0].rank == 1


def _total(vector: Node) -> Node:
    """The sum of the entries: an inner product where it is one of two factors."""
    if isinstance(vector, Power) and vector.exponent == 2 and isinstance(vector.base, Name):
        return MatMul((vector.base, vector.base))
    if isinstance(vector, Hadamard) and len(vector.factors) == 2:
        one, two = vector.factors
        if isinstance(one, MatMul) and not isinstance(two, MatMul):
            one, two = two, one
        return MatMul((one, *(two.factors if isinstance(two, MatMul) else (two,))))
    return SumOf(vector, None)
