"""Differentiation: two rules, d y_i / d y_j = delta_ij and the chain rule on functions.

What a derivative is taken along is a tangent for each variable: deltas give all partial derivatives, with further
indices; a direction gives the derivative along it, with none, and nothing larger than the formula is ever formed.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from typing import Any, NamedTuple

from bilevel_sym.arrays.algebra import apply, broadcast, contract, delta, multiplied, power, spread, subtracted
from bilevel_sym.arrays.normal import added, ones, scaled
from bilevel_sym.arrays.tensor import GROUP, Apply, Factor, Head, Leaf, LogSumExp, Tensor, Term
from bilevel_sym.graph.operations import OPERATIONS

__all__ = ["along", "gradient", "substituted"]

Tangents = Mapping[Leaf, Tensor]
PARTIAL = frozenset(("log", "rpow", "tan", "exp", "sinh", "cosh"))  # no number, or too large for one, somewhere


def gradient(formula: Tensor, variable: Leaf) -> Tensor:
    """All partial derivatives by the entries of one variable, whose indices follow those of the formula.

    >>> A, y = Leaf("A", ("m", "n"), "data"), Leaf("y", ("n",), "y")
    >>> product = contract([(Tensor.leaf(A), "ij"), (Tensor.leaf(y), "j")], "i")
    >>> gradient(product, y)
    Tensor[m,n|1*A(0,1)]
    """
    rank = len(variable.dims)
    pairs = [(delta(dim), (k, rank + k)) for k, dim in enumerate(variable.dims)]
    identity = contract(pairs, range(2 * rank)) if pairs else ones(())
    return _derivative(formula, {variable: identity}, variable.dims)


def along(formula: Tensor, directions: Tangents) -> Tensor:
    """The derivative along a direction: a tensor for each variable, with the dimensions of that.

    >>> y, v = Leaf("y", ("n",), "y"), Leaf("v", ("n",), "v")
    >>> along(contract([(Tensor.leaf(y), "i"), (Tensor.leaf(y), "i")], ()), {y: Tensor.leaf(v)})
    Tensor[|2*v(0)*y(0)]
    """
    return _derivative(formula, directions, ())


def _derivative(formula: Tensor, tangents: Tangents, extra: Sequence[str]) -> Tensor:
    if not formula.leaves & tangents.keys():
        return Tensor((*formula.dims, *extra))
    key = (*(text for leaf, tangent in tangents.items() for text in (leaf.name, tangent.key)), *extra)
    if key not in formula.derivatives:
        formula.derivatives[key] = _new_derivative(formula, tangents, extra)
    return formula.derivatives[key]


def _new_derivative(formula: Tensor, tangents: Tangents, extra: Sequence[str]) -> Tensor:
    parts = (
        _of_factor(formula, term, k, tangents, extra)
        for term in formula.terms
        for k, factor in enumerate(term.factors)
        if _depends(factor.head, tangents)
    )
    return added(parts, (*formula.dims, *extra))


def _depends(head: Head, tangents: Tangents) -> bool:
    return not tangents.keys().isdisjoint(head.leaves)


def _of_factor(formula: Tensor, term: Term, place: int, tangents: Tangents, extra: Sequence[str]) -> Tensor:
    """The term with the derivative of one of its factors in the place of that factor."""
    head, indices = term.factors[place]
    rank, names = formula.rank, [f"+{k}" for k in range(len(extra))]
    every = (*formula.dims, *term.dummies)
    others = (*term.factors[:place], *term.factors[place + 1 :])
    rest = Tensor(every, (Term(term.coefficient, term.sizes, others, ()),))  # every index is free in it
    dims: dict[object, str] = dict(enumerate(every))
    dims |= dict(zip(names, extra, strict=True))
    out = [*range(rank), *names]
    pieces = (
        contract([(rest, range(len(every))), *local, (piece, (*places, *names))], out, dims)
        for local, piece, places in _pieces(head, indices, tangents, extra)
    )
    return added(pieces, (*formula.dims, *extra))


Labelled = tuple[Tensor, Sequence[object]]


def _pieces(
    head: Head, indices: tuple[int, ...], tangents: Tangents, extra: Sequence[str]
) -> list[tuple[list[Labelled], Tensor, Sequence[object]]]:
    """The derivative of a head as a sum of products: factors over its own indices, and a derivative of a body.

    The body's derivative is one term at a time, so that it is multiplied out: parentheses would hide deltas.
    """
    found: list[tuple[list[Labelled], Tensor, Sequence[object]]] = []
    if isinstance(head, Leaf):
        found = [([], tangents[head], indices)]
    elif isinstance(head, Apply) and head.op == GROUP:
        found = [([], _derivative(head.bodies[0], tangents, extra), indices)]
    elif isinstance(head, Apply) and head.op in ("select", "min", "max"):
        for condition, body in _branches(head):
            slope = _derivative(body, tangents, extra)
            found += [([], _guarded(slope, term, condition), indices) for term in slope.terms]
    elif isinstance(head, Apply):
        found = [([(_slopes(head)[0], indices)], _derivative(head.bodies[0], tangents, extra), indices)]
    elif isinstance(head, LogSumExp):
        for part, weight in zip(head.parts, _slopes(head), strict=True):
            labels = [*indices, *(f"*{k}" for k in range(part.rank - head.rank))]
            found += [([(weight, labels)], _derivative(part, tangents, extra), labels)]
    return [(local, one, places) for local, whole, places in found for one in _one_by_one(whole)]


def _one_by_one(whole: Tensor) -> list[Tensor]:
    return [Tensor(whole.dims, (term,)) for term in whole.terms]


def _slopes(head: Apply | LogSumExp) -> list[Tensor]:
    """The partial derivatives of a head by its bodies, computed once."""
    if not head.slopes:
        head.slopes[:] = [_slope(head)] if isinstance(head, Apply) else [_weight(head, z) for z in head.parts]
    return head.slopes


def _weight(head: LogSumExp, part: Tensor) -> Tensor:
    """exp(z - log sum exp), which is at most one."""
    lifted = contract([(head.whole, range(head.rank))], range(part.rank), dict(enumerate(part.dims)))
    return apply("exp", subtracted(part, lifted))


def _slope(head: Apply) -> Tensor:
    """The derivative of an operation by its body."""
    rule, (body,) = OPERATIONS[head.op].rule("derivative"), head.bodies
    entries = Entrywise(body.dims)
    given = head.parameter or (Form(head.whole, entries),)
    slope: Tensor = rule(entries, Form(body, entries), *given).value
    return slope


# ---- branches: outside its region a branch may be infinite, or no number, and 0 times that is no number --------------


class Condition(NamedTuple):
    """Where a branch counts: where ``test`` is not zero, or, if it is the other branch, where it is zero."""

    test: Tensor
    other: bool

    def chosen(self, value: Tensor) -> Tensor:
        """The value where the branch counts, and zero elsewhere; over the dimensions of the value."""
        nothing = Tensor(value.dims)
        return apply("select", self.test, *((nothing, value) if self.other else (value, nothing)))

    @property
    def indicator(self) -> Tensor:
        """One where the branch counts, and zero elsewhere."""
        factors = self.test.terms[0].factors if len(self.test.terms) == 1 else ()
        if len(factors) == 1 and isinstance(head := factors[0].head, Apply) and head.op in ("lt", "le"):
            return self._opposite(head, factors[0].indices) if self.other else self.test
        return self.chosen(ones(self.test.dims))

    def _opposite(self, head: Apply, indices: tuple[int, ...]) -> Tensor:
        """Not z < 0 is -z <= 0."""
        flipped = apply("le" if head.op == "lt" else "lt", scaled(head.bodies[0], -1))
        return spread(flipped, indices, self.test.dims)


def _branches(head: Apply) -> list[tuple[Condition, Tensor]]:
    """The branches of a head, and where each of them counts."""
    if head.op == "select":
        test, one, two = head.bodies
    else:
        one, two = head.bodies
        test = apply("le", subtracted(one, two) if head.op == "min" else subtracted(two, one))
    return [(Condition(test, False), one), (Condition(test, True), two)]


def _guarded(slope: Tensor, term: Term, condition: Condition) -> Tensor:
    """A term of a branch's derivative where the branch counts, zero elsewhere: whatever its factors are there."""
    every = (*slope.dims, *term.dummies)
    safe = tuple(factor for factor in term.factors if not _may_fail(factor.head))
    operands: list[Labelled] = [(Tensor(every, (Term(term.coefficient, term.sizes, safe, ()),)), range(len(every)))]
    if len(safe) == len(term.factors):
        operands.append((condition.indicator, range(condition.test.rank)))
    operands += [_chosen(factor, every, condition) for factor in term.factors if _may_fail(factor.head)]
    return contract(operands, range(slope.rank), dict(enumerate(every)))


def _chosen(factor: Factor, every: Sequence[str], condition: Condition) -> Labelled:
    """A factor where the condition holds, over its own indices and those of the condition."""
    rank = condition.test.rank
    labels = sorted({*range(rank), *factor.indices})
    dims = {label: every[label] for label in labels}
    value = contract([(factor.head.whole, factor.indices)], labels, dims)
    lifted = spread(condition.test, range(rank), [every[label] for label in labels])
    return Condition(lifted, condition.other).chosen(value), labels


def _may_fail(head: Head) -> bool:
    """Whether it may be infinite, or no number, at a point where every variable is a number."""
    if isinstance(head, LogSumExp):
        return any(map(_may_fail_in, head.parts))
    if not isinstance(head, Apply):
        return False
    partial = head.op in PARTIAL or (head.op == "ipow" and head.parameter[0] < 0)
    return partial or any(map(_may_fail_in, head.bodies))


def _may_fail_in(body: Tensor) -> bool:
    return any(_may_fail(factor.head) for term in body.terms for factor in term.factors)


# ---- the graph that the rules of operations ask for ----------------------------------------------------------------


@dataclass(frozen=True)
class Form:
    """A value of one shape, with the arithmetic that the derivatives in ``graph.operations`` use."""

    value: Tensor
    entries: Entrywise

    def scaled(self, factor: Any) -> Form:
        """A rational multiple."""
        return Form(scaled(self.value, Fraction(int(factor.p), int(factor.q))), self.entries)

    def __add__(self, other: Form) -> Form:
        return Form(added([self.value, other.value], self.value.dims), self.entries)

    def __neg__(self) -> Form:
        return Form(scaled(self.value, -1), self.entries)

    def __sub__(self, other: Form) -> Form:
        return self + -other


@dataclass(frozen=True)
class Entrywise:
    """Operations entry by entry over some dimensions, by the names of the scalar graph."""

    dims: tuple[str, ...]

    @property
    def one(self) -> Form:
        """One, everywhere."""
        return Form(ones(self.dims), self)

    def apply(self, op: str, *forms: Form) -> Form:
        """An operation of the grammar, or a constant of none."""
        return Form(broadcast(apply(op, *(form.value for form in forms)), self.dims), self)

    def power(self, form: Form, p: int, q: int = 1) -> Form:
        """form**(p/q)."""
        return Form(power(form.value, p, q), self)

    def mul(self, one: Form, two: Form) -> Form:
        """The product."""
        return Form(multiplied(one.value, two.value), self)

    def node_of(self, form: Form) -> Form:
        """There are no nodes here: the form itself."""
        return form

    def form(self, node: Form) -> Form:
        """Likewise."""
        return node


# ---- substitution ---------------------------------------------------------------------------------------------------


def substituted(formula: Tensor, values: Mapping[Leaf, Tensor]) -> Tensor:
    """The formula with other tensors, of the same dimensions, in the place of some variables.

    >>> y = Leaf("y", ("n",), "y")
    >>> substituted(power(Tensor.leaf(y), 2), {y: ones(("n",), 3)})
    Tensor[n|9*1]
    """
    if not formula.leaves & values.keys():
        return formula
    return added((_substituted_term(formula, term, values) for term in formula.terms), formula.dims)


def _substituted_term(formula: Tensor, term: Term, values: Mapping[Leaf, Tensor]) -> Tensor:
    operands: list[Labelled] = [(ones((), term.coefficient, dict(term.sizes)), ())]
    operands += [(_substituted_head(factor, values), factor.indices) for factor in term.factors]
    dims: dict[object, str] = dict(enumerate((*formula.dims, *term.dummies)))
    return contract(operands, range(formula.rank), dims)


def _substituted_head(factor: Factor, values: Mapping[Leaf, Tensor]) -> Tensor:
    """The head over its own indices, with its bodies substituted."""
    head = factor.head
    if isinstance(head, Leaf) and head in values:
        return values[head]
    if isinstance(head, Apply):
        bodies = [substituted(body, values) for body in head.bodies]
        if head.op == GROUP:
            return bodies[0]
        if head.op in ("ipow", "rpow"):
            return power(bodies[0], *head.parameter)
        return apply(head.op, *bodies)
    if isinstance(head, LogSumExp):
        return _substituted_logsumexp(head, values)
    return head.whole


def _substituted_logsumexp(head: LogSumExp, values: Mapping[Leaf, Tensor]) -> Tensor:
    parts = [apply("exp", substituted(part, values)) for part in head.parts]
    sums = [contract([(part, range(part.rank))], range(head.rank)) for part in parts]
    return apply("log", added(sums, head.dims))
