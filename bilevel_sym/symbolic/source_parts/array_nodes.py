"""From tensors to the nodes that source is written from, and to lines of it.

Matrix notation for readers takes exponentials apart, and writes a logarithm of a sum as one: that overflows. Here every
function is put aside under a name before the rest becomes matrix notation, and put back as it is computed with.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import fields, replace
from typing import Any

from bilevel_sym.arrays.algebra import spread
from bilevel_sym.arrays.matrix_form import matrix_form
from bilevel_sym.arrays.normal import added, rearranged
from bilevel_sym.arrays.notation.nodes import (
    Function,
    Hadamard,
    IndexForm,
    IndexTerm,
    MatMul,
    Name,
    Node,
    Power,
    Scale,
    Softmax,
    Sum,
    SumOf,
    Trace,
)
from bilevel_sym.arrays.notation.printer import SUM
from bilevel_sym.arrays.notation.python import LogSumExpLast, Python, children
from bilevel_sym.arrays.tensor import GROUP, Apply, Factor, Head, Leaf, LogSumExp, Role, Tensor, Term

_ORDER: tuple[Role, ...] = ("data", "parameter", "x", "y", "v", "direction")
_KEPT = (GROUP, "ipow", "rpow")  # operations that matrix notation has
_COSTLY = (Function, LogSumExpLast, MatMul, Softmax, SumOf, Trace, IndexForm)
_NAMED = (*_COSTLY, Hadamard, Power, Scale, Sum)


def node_of(tensor: Tensor) -> Node:
    """The tensor in matrix notation, with functions as they are computed with.

    >>> from bilevel_sym.arrays.algebra import logsumexp
    >>> Z = Tensor.leaf(Leaf("Z", ("m", "k"), "y"))
    >>> Python("jax").shown(node_of(logsumexp(Z, (0,))))[0]
    'jax.scipy.special.logsumexp(Z, 1)'
    """
    heads: dict[str, tuple[Leaf, Head]] = {}
    node = _term_by_term(_aside(tensor, heads))
    return _restored(node, {leaf.name: _head_node(head) for leaf, head in heads.values()})


def _term_by_term(tensor: Tensor) -> Node:
    """A term without matrix notation does not take it from the others."""
    node = matrix_form(tensor)
    if not isinstance(node, IndexForm) or len(node.terms) < 2 or node.rank > 2:
        return node
    terms = sorted(tensor.terms, key=lambda term: term.coefficient < 0)
    return Sum(tuple(matrix_form(Tensor(tensor.dims, (term,))) for term in terms))


# ---- functions put aside --------------------------------------------------------------------------------------------


def _aside(tensor: Tensor, heads: dict[str, tuple[Leaf, Head]]) -> Tensor:
    """The tensor with a name in the place of every function."""
    terms = (
        Term(t.coefficient, t.sizes, tuple(Factor(_named(f.head, heads), f.indices) for f in t.factors), t.dummies)
        for t in tensor.terms
    )
    return Tensor(tensor.dims, tuple(terms))


def _named(head: Head, heads: dict[str, tuple[Leaf, Head]]) -> Head:
    if isinstance(head, Apply) and head.op in _KEPT:
        return Apply(head.op, head.parameter, tuple(_aside(body, heads) for body in head.bodies))
    if not isinstance(head, Apply | LogSumExp):
        return head
    if head.key not in heads:
        roles = [leaf.role for leaf in head.leaves]
        name = f"\0{len(heads)}"  # that nobody can have given
        heads[head.key] = Leaf(name, head.dims, max(roles, key=_ORDER.index, default="data"), head.symmetric), head
    return heads[head.key][0]


def _head_node(head: Head) -> Node:
    if isinstance(head, LogSumExp):
        return LogSumExpLast(tuple(map(node_of, head.parts)), head.dims)
    assert isinstance(head, Apply)
    if head.op == "exp" and (softmax := _softmax(head.bodies[0])) is not None:
        return softmax
    return Function(head.op, tuple(map(node_of, head.bodies)))


def _softmax(body: Tensor) -> Node | None:
    """The softmax that exp(body) is, if the body is Z - logsumexp(Z) along one axis."""
    for term in body.terms:
        head, indices = term.factors[0] if len(term.factors) == 1 else (None, ())
        if not isinstance(head, LogSumExp) or len(head.parts) > 1 or term.coefficient != -1 or term.sizes:
            continue
        part = head.parts[0]
        if part.rank != body.rank or part.rank - head.rank != 1 or len(set(indices)) < len(indices):
            continue
        (axis,) = set(range(body.rank)) - set(indices)
        places = (*indices, axis)  # of the indices of the part in the body
        whole = rearranged(part, [places.index(k) for k in range(body.rank)])
        if added([body, spread(head.whole, indices, body.dims)], body.dims) == whole:
            return Softmax(node_of(whole), axis)
    return None


def _restored(node: Node, values: Mapping[str, Node]) -> Node:
    """The node with others in the place of some names."""
    if isinstance(node, Name):
        return values.get(node.name, node)
    if isinstance(node, IndexForm):
        terms = (replace(term, factors=_restored_factors(term, values)) for term in node.terms)
        return replace(node, terms=tuple(terms))
    changes: dict[str, Any] = {}
    for own in fields(node):  # type: ignore[arg-type]
        value = getattr(node, own.name)
        if isinstance(value, Node):
            changes[own.name] = _restored(value, values)
        elif isinstance(value, tuple):
            changes[own.name] = tuple(_restored(v, values) if isinstance(v, Node) else v for v in value)
    return replace(node, **changes) if changes else node  # type: ignore[type-var]


def _restored_factors(term: IndexTerm, values: Mapping[str, Node]) -> tuple[tuple[Node, tuple[int, ...]], ...]:
    return tuple((_restored(node, values), own) for node, own in term.factors)


# ---- lines ----------------------------------------------------------------------------------------------------------


class Lines:
    """Lines that compute some nodes; what occurs more than once has a name of its own, and is computed once.

    make: a printer that knows the nodes in a mapping by their names
    fresh: names for what is computed on the way

    >>> y = Name("y", ("n",))
    >>> norm = MatMul((y, y))
    >>> lines = Lines(lambda known: Python("numpy", known=known), iter(["t"]))
    >>> lines.texts([Function("sin", (norm,)), Function("cos", (norm,))]), lines.written
    (['np.sin(t)', 'np.cos(t)'], ['t = y @ y'])
    """

    def __init__(self, make: Callable[[Mapping[Node, str]], Python], fresh: Iterator[str]) -> None:
        self._known: dict[Node, str] = {}
        self._fresh, self.printer = fresh, make(self._known)
        self.written: list[str] = []
        self._shared: set[Node] = set()

    def share(self, nodes: Sequence[Node]) -> None:
        """Look for what occurs more than once in these."""
        counts: dict[Node, int] = {}
        for node in nodes:
            _count(node, counts)
        self._shared |= {node for node, count in counts.items() if count > 1 and _is_worth(node)}

    def assign(self, name: str, node: Node) -> None:
        """A line that gives a node a name."""
        self.written.append(f"{name} = {self._text(node)}")

    def texts(self, nodes: Sequence[Node]) -> list[str]:
        """The nodes, after the lines that they need."""
        self.share(nodes)
        return [self._text(node) for node in nodes]

    def _text(self, node: Node) -> str:
        for part in children(node):
            self._prepare(part)
        if node in self._shared:
            self._prepare(node)
        return self.printer.at(node, SUM)

    def _prepare(self, node: Node) -> None:
        if node in self._known:
            return
        for part in children(node):
            self._prepare(part)
        if node in self._shared:
            text = self.printer.at(node, SUM)
            name = next(self._fresh)
            self.written.append(f"{name} = {text}")
            self._known[node] = name


def _count(node: Node, counts: dict[Node, int]) -> None:
    """How often each node occurs, in others that are counted once."""
    counts[node] = counts.get(node, 0) + 1
    if counts[node] == 1:
        for part in children(node):
            _count(part, counts)


def _is_worth(node: Node) -> bool:
    """Whether it takes work, and is no number."""
    return isinstance(node, _NAMED) and _has(node, Name) and _has(node, _COSTLY)


def _has(node: Node, kinds: Any) -> bool:
    return isinstance(node, kinds) or any(_has(part, kinds) for part in children(node))
