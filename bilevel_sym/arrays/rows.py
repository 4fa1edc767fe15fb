"""From one row's formula to the mean over all rows, or over some: arrays of a row get an index, which is summed."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bilevel_sym.arrays.algebra import apply, contract, multiplied, power
from bilevel_sym.arrays.normal import added, ones, single
from bilevel_sym.arrays.tensor import GROUP, Apply, Head, Leaf, LogSumExp, Tensor, Term

__all__ = ["mean_over_rows", "weighted_over_rows"]

ROW = "row"
Rows = Mapping[Leaf, Leaf]


def mean_over_rows(formula: Tensor, rows: Rows, dim: str) -> Tensor:
    """The mean of a formula over rows.

    formula: that of one row, without free indices
    rows: for each array of a row the array of all rows, whose first index is the row
    dim: the dimension of the rows

    >>> a, y = Leaf("a", ("n",), "data"), Leaf("y", ("n",), "y")
    >>> product = contract([(Tensor.leaf(a), "i"), (Tensor.leaf(y), "i")], ())
    >>> mean_over_rows(power(product, 2), {a: Leaf("a", ("m", "n"), "data")}, "m")
    Tensor[|1*m^-1*a(0,1)*a(0,2)*y(1)*y(2)]
    """
    if not formula.leaves & rows.keys():
        return formula
    whole = _lifted(formula, rows, dim)
    return multiplied(ones((), 1, {dim: -1}), contract([(whole, (ROW,))], ()))


def weighted_over_rows(formula: Tensor, rows: Rows, weight: Leaf) -> Tensor:
    """The mean of a formula over rows with weights, which are known to sum to one: what is the same of all stays.

    formula: that of one row, without free indices
    rows: for each array of a row the array of some rows, whose first index is the row
    weight: that of each row, a vector

    >>> a, y = Leaf("a", (), "data"), Leaf("y", (), "y")
    >>> product = multiplied(Tensor.leaf(a), Tensor.leaf(y))
    >>> formula = added([product, power(Tensor.leaf(y), 2)], ())
    >>> weighted_over_rows(formula, {a: Leaf("a", ("m",), "data")}, Leaf("w", ("m",), "data"))
    Tensor[|1*a(0)*w(0)*y()+1*y()*y()]
    """
    (dim,) = weight.dims
    drawn = [any(rows.keys() & set(head.leaves) for head, _ in term.factors) for term in formula.terms]
    if not any(drawn):
        return formula
    own, rest = (
        Tensor(
            formula.dims, tuple(term for term, is_drawn in zip(formula.terms, drawn, strict=True) if is_drawn == kind)
        )
        for kind in (True, False)
    )
    weighted = contract([(_lifted(own, rows, dim), (ROW,)), (Tensor.leaf(weight), (ROW,))], ())
    return added([weighted, rest], ())


def _lifted(formula: Tensor, rows: Rows, dim: str) -> Tensor:
    """The formula of every row, with the row as its first index."""
    dims = (dim, *formula.dims)
    return added((_lifted_term(formula, term, rows, dim) for term in formula.terms), dims)


def _lifted_term(formula: Tensor, term: Term, rows: Rows, dim: str) -> Tensor:
    operands: list[tuple[Tensor, Sequence[object]]] = [(ones((), term.coefficient, dict(term.sizes)), ())]
    for head, indices in term.factors:
        own = single(head, head.dims, range(len(head.dims)))
        if own.leaves & rows.keys():
            operands.append((_lifted_head(head, rows, dim), (ROW, *indices)))
        else:
            operands.append((own, indices))
    dims: dict[object, str] = {ROW: dim, **dict(enumerate((*formula.dims, *term.dummies)))}
    return contract(operands, (ROW, *range(formula.rank)), dims)


def _lifted_head(head: Head, rows: Rows, dim: str) -> Tensor:
    """The head of every row, over the row and its own indices."""
    if isinstance(head, Leaf):
        return Tensor.leaf(rows[head])
    if isinstance(head, LogSumExp):
        exponentials = [apply("exp", _lifted(part, rows, dim)) for part in head.parts]
        out = range(1 + head.rank)
        return apply("log", added([contract([(z, range(z.rank))], out) for z in exponentials], (dim, *head.dims)))
    assert isinstance(head, Apply)
    bodies = [_lifted(body, rows, dim) for body in head.bodies]
    if head.op == GROUP:
        return bodies[0]
    if head.op in ("ipow", "rpow"):
        return power(bodies[0], *head.parameter)
    return apply(head.op, *bodies)
