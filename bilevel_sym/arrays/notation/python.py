"""Matrix notation as Python for NumPy, JAX and PyTorch, written for speed as an expert would.

A diag is never formed inside a product: ``A.T @ diag(w) @ A`` is ``(A.T * w) @ A``. Products that end in a vector are
computed from there. What has no matrix form is an einsum. Logarithms of sums of exponentials do not overflow.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction

from bilevel_sym.arrays.notation.nodes import (
    Diag,
    DiagonalOf,
    Function,
    Hadamard,
    Identity,
    IndexForm,
    IndexTerm,
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
    transposed,
)
from bilevel_sym.arrays.notation.printer import (
    ATOM,
    HALF,
    POWER,
    PRODUCT,
    SUM,
    Printer,
    Shown,
    Verbatim,
    factors_of,
    is_test,
    power_of,
    split_sizes,
)
from bilevel_sym.arrays.notation.python_calls import CALLS
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.graph.operations.record import Source

__all__ = ["Column", "LogSumExpLast", "Python", "Row", "children", "number_text"]

LONGEST_WHOLE = 10**6  # beyond it a number is written as the nearest float
_LETTERS = "ijklpqrstabcdeghmnouvwxyzIJKLPQRSTABCDEGHMNOUVWXYZ"


# ---- further nodes --------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Column(Node):
    """A vector along the rows of a matrix, the same in every column; beside matrices only.

    >>> Column(Name("u", ("m",)), ("m", "n")).rank
    2
    """

    vector: Node
    shape: tuple[str, ...]

    def _dims(self) -> tuple[str, ...]:
        return self.shape


@dataclass(frozen=True)
class Row(Column):
    """A vector along the columns of a matrix, the same in every row.

    >>> Row(Name("u", ("n",)), ("m", "n")).rank
    2
    """


@dataclass(frozen=True)
class LogSumExpLast(Node):
    """The logarithm of sums of exponentials: each part is summed over its last axes, beyond the first ``shape``.

    >>> LogSumExpLast((Name("Z", ("m", "k")),), ("m",)).dims
    ('m',)
    """

    bodies: tuple[Node, ...]
    shape: tuple[str, ...]

    def _dims(self) -> tuple[str, ...]:
        return self.shape


def children(node: Node) -> tuple[Node, ...]:
    """The nodes that a node is made of; of an index form, its factors.

    >>> children(IndexForm(("n",), (IndexTerm(Fraction(1), (), ((Name("y", ("n",)), (0,)),), ()),)))
    (Name(name='y', shape=('n',), symmetric=False),)
    """
    if isinstance(node, IndexForm):
        return tuple(factor for term in node.terms for factor, _ in term.factors)
    return node.parts


def number_text(number: Fraction) -> tuple[list[str], list[str]]:
    """The absolute value of a number above and below the line, ones left out.

    >>> number_text(Fraction(-3, 2)), number_text(Fraction(10**9, 7))
    ((['3'], ['2']), (['142857142.85714287'], []))
    """
    p, q = abs(number.numerator), number.denominator
    if max(p, q) >= LONGEST_WHOLE:
        return [repr(float(abs(number)))], []
    return ([str(p)] if p != 1 else []), ([str(q)] if q != 1 else [])


# ---- the printer ----------------------------------------------------------------------------------------------------


class Python(Printer):
    """Nodes as expressions in one library; what they need besides is kept in ``definitions`` and ``sizes``.

    language: "numpy", "jax" or "torch"
    names: the identifiers of arrays, where they are not their names
    letters: the same for dimensions
    known: nodes that have been assigned to a name

    >>> A, w = Name("A", ("m", "n")), Name("w", ("m",))
    >>> Python("numpy").shown(MatMul((Transpose(A), Diag(w), A)))[0]
    '(A.T * w) @ A'
    """

    def __init__(
        self,
        language: str,
        names: Mapping[str, str] | None = None,
        letters: Mapping[str, str] | None = None,
        known: Mapping[Node, str] | None = None,
    ) -> None:
        super().__init__(())
        self.language, self.known = language, {} if known is None else known
        self._names, self._letters = names or {}, letters or {}
        self.definitions: dict[str, str] = {}
        self.sizes: set[str] = set()

    def call(self, name: str, *arguments: str) -> str:
        """A function that is not of the grammar."""
        return self.called(CALLS[name], arguments)

    def called(self, source: Source, arguments: Iterable[str]) -> str:
        """A call; its definition is kept."""
        call = source.call(self.language)
        if definition := source.definition(self.language):
            self.definitions[call] = definition
        return call.replace("{}", ", ".join(arguments))

    def size(self, dim: str) -> str:
        """The name of a dimension, whose value must be known where it is used."""
        self.sizes.add(dim)
        return self._letters.get(dim, dim)

    def shape(self, dims: Sequence[str]) -> str:
        """The argument of ``zeros`` and ``ones``."""
        sizes = [self.size(dim) for dim in dims]
        return sizes[0] if len(sizes) == 1 else f"({', '.join(sizes)})"

    def shown(self, node: Node) -> Shown:
        """The node, and how tightly it holds together."""
        return (self.known[node], ATOM) if node in self.known else super().shown(node)

    def _Name(self, node: Name) -> Shown:
        return self._names.get(node.name, node.name), ATOM

    def _Ones(self, node: Ones) -> Shown:
        return (self.call("ones", self.shape(node.dims)) if node.dims else "1"), ATOM

    def _Identity(self, node: Identity) -> Shown:
        return self.call("eye", self.size(node.dim)), ATOM

    def _Column(self, node: Column) -> Shown:
        return f"{self.at(node.vector, ATOM)}[:, None]", ATOM

    def _Row(self, node: Row) -> Shown:
        return self.shown(node.vector)

    # ---- sums

    def _Sum(self, node: Sum) -> Shown:
        return self.signed(self.at(term, SUM) for term in _lean(node.terms)), SUM

    # ---- products entry by entry

    def _Scale(self, node: Scale) -> Shown:
        if not node.coefficient:
            return (self.call("zeros", self.shape(node.dims)) if node.dims else "0.0"), ATOM
        (above, below), (upper, lower) = split_sizes(node.sizes), number_text(node.coefficient)
        upper += [self._sized(*size) for size in above]
        lower += [self._sized(*size) for size in below]
        parts = [*node.scalars, *([] if node.body == Ones(()) else [node.body])]
        if len(parts) == 1 and lower and not upper and node.coefficient > 0 and isinstance(parts[0], MatMul):
            upper.append(self.at(parts[0], PRODUCT))  # A @ y / m is (A @ y) / m, but 2 * A @ y would be (2 * A) @ y
        else:
            for part in parts:
                self._put(part, upper, lower)
        return self._fraction("-" * (node.coefficient < 0), upper, lower)

    def _sized(self, dim: str, power: int) -> str:
        return self.size(dim) if power == 1 else f"{self.size(dim)}**{power}"

    def _put(self, node: Node, upper: list[str], lower: list[str]) -> None:
        above, below = (factors_of(node)) if node not in self.known else ([node], [])
        upper += [self.at(factor, POWER) for factor in above]
        lower += [self.at(factor, POWER) for factor in below]

    def _fraction(self, sign: str, upper: Sequence[str], lower: Sequence[str]) -> Shown:
        text = sign + (" * ".join(upper) or "1")
        if lower:
            text += " / " + (lower[0] if len(lower) == 1 else f"({' * '.join(lower)})")
        if len(upper) + len(lower) > 1:
            return text, SUM if sign else PRODUCT
        return text, SUM if sign else POWER if upper else ATOM

    def _Hadamard(self, node: Hadamard) -> Shown:
        upper: list[str] = []
        lower: list[str] = []
        self._put(node, upper, lower)
        return self._fraction("", upper, lower)[0], PRODUCT

    def _Power(self, node: Power) -> Shown:
        k = node.exponent
        if k < 0:
            return f"1 / {self.at(power_of(node.base, -k), POWER)}", PRODUCT
        if k == HALF:
            return self.call("sqrt", self._argument(node.base)), ATOM
        exponent = str(k) if k.denominator == 1 else f"({k.numerator} / {k.denominator})"
        base = self.at(node.base, ATOM) if _varies(node.base) else self.call("tensor", self.at(node.base, ATOM))
        return f"{base}**{exponent}", POWER

    # ---- products of matrices

    def _MatMul(self, node: MatMul) -> Shown:
        first, last = node.factors[0], node.factors[-1]
        if last.rank == 1:
            return self._from_right(node.factors), PRODUCT
        if first.rank == 1:
            return self._from_left(node.factors), PRODUCT
        return self._chain(node.factors), PRODUCT

    def _from_right(self, factors: Sequence[Node]) -> str:
        """A @ (B @ y): never a product of two matrices."""
        text, level = self.shown(factors[-1])
        for factor in reversed(factors[:-1]):
            right = self.held((text, level), POWER)
            if isinstance(factor, Diag) and factor not in self.known:
                text = f"{self.at(factor.vector, POWER)} * {right}"
            else:
                text = f"{self.at(factor, POWER)} @ {right}"
            level = PRODUCT
        return text

    def _from_left(self, factors: Sequence[Node]) -> str:
        text, level = self.shown(factors[0])
        for factor in factors[1:]:
            left = self.held((text, level), POWER)
            if isinstance(factor, Diag) and factor not in self.known:
                text = f"{left} * {self.at(factor.vector, POWER)}"
            else:
                text = f"{left} @ {self.at(factor, POWER)}"
            level = PRODUCT
        return text

    def _chain(self, factors: Sequence[Node]) -> str:
        """Matrices, with every diag multiplied into the rows or columns of a neighbour."""
        rows: list[Node] = []  # vectors that multiply the rows of the first matrix
        parts: list[Shown] = []
        for factor in factors:
            if not isinstance(factor, Diag) or factor in self.known:
                parts.append(self.shown(factor) if parts or not rows else self._with_rows(rows, factor))
            elif parts:
                parts[-1] = f"{self.held(parts[-1], PRODUCT)} * {self.at(factor.vector, POWER)}", PRODUCT
            else:
                rows.append(factor.vector)
        if not parts:
            return self.call("diag", self.at(Hadamard(tuple(rows)), SUM))
        return parts[0][0] if len(parts) == 1 else " @ ".join(self.held(part, POWER) for part in parts)

    def _with_rows(self, rows: Sequence[Node], matrix: Node) -> Shown:
        vector = rows[0] if len(rows) == 1 else Hadamard(tuple(rows))
        return f"{self.at(vector, ATOM)}[:, None] * {self.at(matrix, POWER)}", PRODUCT

    def _Transpose(self, node: Transpose) -> Shown:
        return f"{self.at(node.body, ATOM)}.T", ATOM

    def _Diag(self, node: Diag) -> Shown:
        return self.call("diag", self._full(node.vector)), ATOM

    def _DiagonalOf(self, node: DiagonalOf) -> Shown:
        return self.call("diag", self.at(node.body, SUM)), ATOM

    def _Outer(self, node: Outer) -> Shown:
        return self.call("outer", self.at(node.left, SUM), self.at(node.right, SUM)), ATOM

    def _SumOf(self, node: SumOf) -> Shown:
        return self.call("sum", self.at(node.body, SUM), *([] if node.axis is None else [f"axis={node.axis}"])), ATOM

    def _Trace(self, node: Trace) -> Shown:
        body = node.body
        if isinstance(body, MatMul) and body not in self.known and not isinstance(body.factors[0], Diag):
            first, *rest = body.factors
            other = transposed(rest[0] if len(rest) == 1 else MatMul(tuple(rest)))
            return self.call("sum", f"{self.at(first, POWER)} * {self.at(other, POWER)}"), ATOM
        return self.call("trace", self.at(body, SUM)), ATOM

    # ---- functions

    def _LogSumExpLast(self, node: LogSumExpLast) -> Shown:
        shown = [self._reduced("logsumexp", body, range(node.rank, body.rank)) for body in node.bodies]
        text = shown[-1]
        for other in reversed(shown[:-1]):
            text = self.call("logaddexp", other, text)
        return text, ATOM if text.endswith(")") else SUM

    def _Softmax(self, node: Softmax) -> Shown:
        return self._reduced("softmax", node.body, [node.axis or 0]), ATOM

    def _reduced(self, name: str, body: Node, axes: Sequence[int]) -> str:
        if not axes:
            return self.at(body, SUM)
        places = str(axes[0]) if len(axes) == 1 else f"({', '.join(map(str, axes))})"
        return self.call(name, self._full(body), places)

    def _Function(self, node: Function) -> Shown:
        if node.op == "pi":
            return self.call("pi"), ATOM
        if node.op == "select":
            test, one, two = _lean(node.bodies)
            shown = self._test(test) if is_test(test) else f"{self.at(test, PRODUCT)} != 0"
            return self.call("where", shown, self.at(one, SUM), self.at(two, SUM)), ATOM
        if is_test(node):
            return self.call("where", self._test(node), "1.0", "0.0"), ATOM
        source = OPERATIONS[node.op].source
        if source is None:
            raise TypeError(f"the operation {node.op} has no source")
        if len(node.bodies) == 1:
            text = self.called(source, [self._argument(node.bodies[0])])
        else:
            text = self.called(source, [self.at(body, SUM) for body in _lean(node.bodies)])
        return text, ATOM

    def _test(self, node: Node) -> str:
        if node in self.known or not isinstance(node, Function):
            return f"{self.at(node, PRODUCT)} != 0"
        return f"{self.at(node.bodies[0], SUM)} {'<' if node.op == 'lt' else '<='} 0"

    def _argument(self, body: Node) -> str:
        """The argument of a function; PyTorch takes no plain numbers."""
        text = self._full(body)
        return text if _varies(body) else self.call("tensor", text)

    def _full(self, body: Node) -> str:
        return self.at(body, SUM)

    # ---- what has no matrix form

    def _IndexForm(self, node: IndexForm) -> Shown:
        if not node.terms:
            return self.call("zeros", self.shape(node.dims)) if node.dims else "0.0", ATOM
        covered = [{i for _, own in term.factors for i in own if i < node.rank} for term in node.terms]
        missing = set(range(node.rank)).difference(*covered)
        covered[0] |= missing
        filled = [(Ones((node.dims[i],)), (i,)) for i in sorted(missing)]
        terms = [IndexTerm(t.coefficient, t.sizes, t.factors, t.dummies) for t in node.terms]
        terms[0] = IndexTerm(terms[0].coefficient, terms[0].sizes, (*terms[0].factors, *filled), terms[0].dummies)
        shown = [self._index_term(term, own, node.rank) for term, own in zip(terms, covered, strict=True)]
        return shown[0] if len(shown) == 1 else (self.signed(text for text, _ in shown), SUM)

    def _index_term(self, term: IndexTerm, covered: Collection[int], rank: int) -> Shown:
        """One product: numbers and scalars times an einsum, with new axes where it is constant along some."""
        scalars = tuple(node for node, own in term.factors if not own)
        arrays = [(node, own) for node, own in term.factors if own]
        place = tuple(i for i in range(rank) if i in covered)
        body: Node = Verbatim(self._einsum(arrays, place, rank), ATOM) if arrays else Ones(())
        return self.shown(Scale(term.coefficient, term.sizes, scalars, body))

    def _einsum(self, arrays: Sequence[tuple[Node, tuple[int, ...]]], place: tuple[int, ...], rank: int) -> str:
        if len(arrays) == 1 and arrays[0][1] == place:
            text = self.at(arrays[0][0], ATOM)
        else:
            labels = ",".join("".join(_LETTERS[i] for i in own) for _, own in arrays)
            pattern = f'"{labels}->{"".join(_LETTERS[i] for i in place)}"'
            text = self.call("einsum", pattern, *(self.at(node, SUM) for node, _ in arrays))
        if len(place) < rank and place:
            text += f"[{', '.join(':' if i in place else 'None' for i in range(rank))}]"
        return text


def _varies(node: Node) -> bool:
    """Whether a name is in it, so that its value is an array of the library."""
    if isinstance(node, Name):
        return True
    return bool(node.dims) if isinstance(node, Ones) else any(map(_varies, children(node)))


def _lean(terms: Sequence[Node]) -> list[Node]:
    """Terms side by side: what is constant along an axis is broadcast along it, if another has that axis."""
    slim = [_slim(term) for term in terms]
    kinds = [_kind(node) for node in slim]
    if "full" not in kinds and not {"column", "row"} <= set(kinds) and any(term.rank for term in terms):
        first = next((k for k, kind in enumerate(kinds) if kind != "number"), 0)
        slim[first] = terms[first]
    return slim


def _slim(node: Node) -> Node:
    if isinstance(node, Ones):
        return Ones(())
    if isinstance(node, Scale):
        return Scale(node.coefficient, node.sizes, node.scalars, _slim(node.body))
    if isinstance(node, Outer) and isinstance(node.right, Ones):
        return Column(node.left, node.dims)
    if isinstance(node, Outer) and isinstance(node.left, Ones):
        return Row(node.right, node.dims)
    return node


def _kind(node: Node) -> str:
    body = node.body if isinstance(node, Scale) else node
    if isinstance(body, Row):
        return "row"
    if isinstance(body, Column):
        return "column"
    return "number" if body == Ones(()) else "full"
