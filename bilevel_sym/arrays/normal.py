"""Terms in normal form: deltas contracted, equal bases joined, exponentials merged, equal terms collected."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import count

from bilevel_sym.arrays.canonical import canonical_factors
from bilevel_sym.arrays.tensor import GROUP, Apply, Delta, Factor, Head, Tensor, Term

__all__ = ["MAX_FACTORS", "Raw", "added", "minimal", "ones", "raw_terms", "rearranged", "scaled", "single", "tensor"]

MAX_FACTORS = 8  # that a whole power is written out to; beyond it stays a power


@dataclass(frozen=True)
class Raw:
    """A product as it comes, before it is put in order.

    - ``coefficient``, ``sizes``: numbers that multiply it.
    - ``factors``: heads with any indices; those below the rank are free.
    - ``dims``: the dimension of every index that is summed.
    """

    coefficient: Fraction
    sizes: Mapping[str, int]
    factors: Sequence[Factor]
    dims: Mapping[int, str]


def tensor(dims: Sequence[str], raws: Iterable[Raw]) -> Tensor:
    """The sum of products with these free indices.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> y = Leaf("y", ("n",), "y")
    >>> square = Raw(Fraction(1), {}, [Factor(y, (5,)), Factor(y, (5,))], {5: "n"})
    >>> tensor((), [square, square])
    Tensor[|2*y(0)*y(0)]
    """
    collected: dict[str, Term] = {}
    for term in (term for raw in raws for term in _terms(len(dims), raw)):
        known = collected.get(term.monomial)
        collected[term.monomial] = term if known is None else term.scaled(1 + known.coefficient / term.coefficient)
    return Tensor(tuple(dims), tuple(collected[key] for key in sorted(collected) if collected[key].coefficient))


def raw_terms(operand: Tensor, indices: Sequence[int], fresh: Iterator[int]) -> Iterator[Raw]:
    """The terms of a tensor with ``indices`` in the place of its free ones; summed ones are taken from ``fresh``."""
    for term in operand.terms:
        names = [*indices, *(next(fresh) for _ in term.dummies)]
        factors = [Factor(head, tuple(names[i] for i in own)) for head, own in term.factors]
        summed = dict(zip(names[operand.rank :], term.dummies, strict=True))
        yield Raw(term.coefficient, dict(term.sizes), factors, summed)


def rearranged(operand: Tensor, order: Sequence[int]) -> Tensor:
    """The same with its free indices in another order: index k of the result is index ``order[k]``.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> A = Tensor.leaf(Leaf("A", ("m", "n"), "data"))
    >>> rearranged(A, (1, 0))
    Tensor[n,m|1*A(1,0)]
    """
    places = [tuple(order).index(k) for k in range(operand.rank)]
    return tensor([operand.dims[k] for k in order], raw_terms(operand, places, count(operand.rank)))


def added(operands: Iterable[Tensor], dims: Sequence[str]) -> Tensor:
    """The sum of tensors with the same dimensions.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> y = Tensor.leaf(Leaf("y", ("n",), "y"))
    >>> added([y, y], ("n",))
    Tensor[n|2*y(0)]
    """
    collected: dict[str, Term] = {}
    for operand in operands:
        for term in operand.terms:
            known = collected.get(term.monomial)
            collected[term.monomial] = term if known is None else term.scaled(1 + known.coefficient / term.coefficient)
    return Tensor(tuple(dims), tuple(collected[key] for key in sorted(collected) if collected[key].coefficient))


def scaled(operand: Tensor, number: Fraction | int) -> Tensor:
    """A multiple.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> scaled(Tensor.leaf(Leaf("y", ("n",), "y")), -1)
    Tensor[n|-1*y(0)]
    """
    if not number:
        return Tensor(operand.dims)
    return Tensor(operand.dims, tuple(term.scaled(Fraction(number)) for term in operand.terms))


def ones(dims: Sequence[str], number: Fraction | int = 1, sizes: Mapping[str, int] | None = None) -> Tensor:
    """One number everywhere, times powers of dimensions.

    >>> ones(("n",), 2)
    Tensor[n|2*1]
    """
    return tensor(dims, [Raw(Fraction(number), sizes or {}, (), {})] if number else [])


def single(head: Head, dims: Sequence[str], indices: Sequence[int]) -> Tensor:
    """One factor.

    >>> single(Delta("n"), ("n", "n"), (0, 1))
    Tensor[n,n|1*delta:n(0,1)]
    """
    return tensor(dims, [Raw(Fraction(1), {}, [Factor(head, tuple(indices))], {})])


# ---- one product -------------------------------------------------------------------------------------------------


def _terms(rank: int, raw: Raw) -> Iterator[Term]:
    """One term; or those of a sum whose companions cancelled, so that it needs no parentheses any more."""
    term = _normal(rank, raw)
    head = term.factors[0].head if len(term.factors) == 1 < len(raw.factors) else None
    if not isinstance(head, Apply) or head.op != GROUP:
        yield term
        return
    summed = dict(enumerate(term.dummies, rank))
    for part in raw_terms(head.bodies[0], term.factors[0].indices, count(rank + len(summed))):
        sizes = dict(term.sizes)
        for dim, exponent in part.sizes.items():
            sizes[dim] = sizes.get(dim, 0) + exponent
        yield _normal(rank, Raw(term.coefficient * part.coefficient, sizes, part.factors, {**summed, **part.dims}))


def _normal(rank: int, raw: Raw) -> Term:
    factors, names = _without_deltas(raw.factors, rank)
    factors, dims, sizes = _joined_powers(factors), _left(raw.dims, names), dict(raw.sizes)
    if sum(map(_is_exponential, factors)) > 2:  # which of them are merged must not depend on names of indices
        factors, dims = _in_order(factors, rank, dims, sizes)
    ordered, dims = _in_order(_merged_exponentials(factors), rank, dims, sizes)
    powers = tuple(sorted((dim, power) for dim, power in sizes.items() if power))
    return Term(raw.coefficient, powers, tuple(ordered), tuple(dims.values()))


def _left(dims: Mapping[int, str], names: Mapping[int, int]) -> Mapping[int, str]:
    return {i: dim for i, dim in dims.items() if i not in names} if names else dims


def _in_order(
    factors: Sequence[Factor], rank: int, dims: Mapping[int, str], sizes: dict[str, int]
) -> tuple[list[Factor], Mapping[int, str]]:
    """Factors and summed indices in canonical order; a sum of what does not depend on its index is a size."""
    used = {i for _, indices in factors for i in indices}
    for i, dim in dims.items():
        if i not in used:
            sizes[dim] = sizes.get(dim, 0) + 1
    ordered, dummies = canonical_factors([_upright(factor) for factor in factors], rank, dims)
    return list(ordered), dict(enumerate(dummies, rank))


def _is_exponential(factor: Factor) -> bool:
    return isinstance(factor.head, Apply) and factor.head.op == "exp"


def _upright(factor: Factor) -> Factor:
    """Of a function of a matrix and that of its transpose, the one that comes first."""
    turned = factor.head.turned if isinstance(factor.head, Apply) else None
    return factor if turned is None else Factor(turned, factor.indices[::-1])


def _name(names: Mapping[int, int], index: int) -> int:
    while index in names:
        index = names[index]
    return index


def _without_deltas(factors: Sequence[Factor], rank: int) -> tuple[list[Factor], Mapping[int, int]]:
    """A delta renames one of its indices in all others; between two free indices it stays as well."""
    names: dict[int, int] = {}
    deltas: list[Factor] = []
    for head, indices in factors:
        if isinstance(head, Delta):
            a, b = sorted(_name(names, i) for i in indices)
            if a != b:
                names[b] = a
                deltas += [Factor(head, (a, b))] if b < rank else []
    others = [Factor(h, tuple(_name(names, i) for i in own)) for h, own in factors if not isinstance(h, Delta)]
    return [*_spanning(deltas, names), *others], names


def _spanning(deltas: Sequence[Factor], names: Mapping[int, int]) -> list[Factor]:
    """Deltas between free indices, each index joined to the smallest that it equals."""
    found = {}
    for head, (_, b) in deltas:
        found[b] = Factor(head, (_name(names, b), b))
    return list(found.values())


def _base(factor: Factor) -> tuple[str, Fraction]:
    """What is raised to a power, and the power."""
    head = factor.head
    if isinstance(head, Apply) and head.op in ("ipow", "rpow", GROUP):
        exponent = Fraction(1) if head.op == GROUP else Fraction(*head.parameter)
        return head.bodies[0].key, exponent
    return head.whole.key, Fraction(1)


def _joined_powers(factors: Sequence[Factor]) -> list[Factor]:
    """Powers of one base at the same indices become one; small whole powers are repeated factors."""
    if len(factors) <= MAX_FACTORS and not any(_is_power(factor) for factor in factors):
        return list(factors)
    groups: dict[tuple[str, tuple[int, ...]], list[Factor]] = {}
    for factor in factors:
        groups.setdefault((_base(factor)[0], factor.indices), []).append(factor)
    return [factor for members in groups.values() for factor in _power_factors(members)]


def _is_power(factor: Factor) -> bool:
    return isinstance(factor.head, Apply) and factor.head.op in ("ipow", "rpow")


def _power_factors(members: Sequence[Factor]) -> list[Factor]:
    total = sum((_base(member)[1] for member in members), Fraction(0))
    powers = [f.head for f in members if isinstance(f.head, Apply) and f.head.op in ("ipow", "rpow", GROUP)]
    body, indices = powers[0].bodies[0] if powers else members[0].head.whole, members[0].indices
    if total.denominator == 1 and 0 <= total <= MAX_FACTORS:
        return [_plain(body, indices)] * int(total) if any(map(_is_power, members)) else list(members)
    if len(members) == 1:
        return list(members)
    op, parameter = ("ipow", (int(total),)) if total.denominator == 1 else ("rpow", total.as_integer_ratio())
    return [Factor(Apply(op, parameter, (body,)), indices)]


def _plain(body: Tensor, indices: tuple[int, ...]) -> Factor:
    """The body itself as a factor: its only factor, or a sum in parentheses."""
    only = body.terms[0]
    if len(body.terms) == 1 and only.coefficient == 1 and not only.sizes and len(only.factors) == 1:
        (head, own) = only.factors[0]
        if not only.dummies:
            return Factor(head, tuple(indices[i] for i in own))
    return Factor(Apply(GROUP, (), (body,)), indices)


def _merged_exponentials(factors: list[Factor]) -> list[Factor]:
    """exp(a) exp(b) is exp(a + b) where the indices of one are among those of the other: neither overflows alone."""
    exponentials = [factor for factor in factors if _is_exponential(factor)]
    if len(exponentials) < 2:
        return factors
    exponentials.sort(key=lambda f: (-len(f.indices), f.key))
    others = [f for f in factors if f not in exponentials]
    kept: list[Factor] = []
    for factor in exponentials:
        target = next((k for k, f in enumerate(kept) if _covers(f, factor)), None)
        if target is None:
            kept.append(factor)
        else:
            kept[target] = _product_of_exponentials(kept[target], factor)
    return [*others, *(f for f in kept if not f.head.bodies[0].is_zero)]  # type: ignore[attr-defined]


def _covers(large: Factor, small: Factor) -> bool:
    distinct = len(set(large.indices)) == len(large.indices)
    return distinct and set(small.indices) <= set(large.indices)


def _product_of_exponentials(large: Factor, small: Factor) -> Factor:
    one, two = (f.head.bodies[0] for f in (large, small))  # type: ignore[attr-defined]
    places = [large.indices.index(i) for i in small.indices]
    lifted = tensor(one.dims, raw_terms(two, places, count(one.rank)))
    (body,), kept = minimal([added([one, lifted], one.dims)])
    return Factor(Apply("exp", (), (body,)), tuple(large.indices[k] for k in kept))


def minimal(bodies: Sequence[Tensor]) -> tuple[tuple[Tensor, ...], tuple[int, ...]]:
    """Bodies of the same dimensions without the free indices that none of them has, and the places of the others.

    >>> (body,), kept = minimal([single(Delta("n"), ("m", "n", "n"), (1, 2))])
    >>> body, kept
    (Tensor[n,n|1*delta:n(0,1)], (1, 2))
    """
    rank, dims = bodies[0].rank, bodies[0].dims
    used = {i for body in bodies for term in body.terms for _, own in term.factors for i in own if i < rank}
    kept = tuple(sorted(used))
    if len(kept) == rank:
        return tuple(bodies), kept
    places = [kept.index(i) if i in used else -1 for i in range(rank)]
    small = [dims[i] for i in kept]
    return tuple(tensor(small, raw_terms(body, places, count(len(kept)))) for body in bodies), kept
