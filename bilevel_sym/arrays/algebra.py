"""What formulas are built with: products, sums along indices, functions entry by entry, powers.

Linear operations on one sum go term by term. In products a sum stays in parentheses (a ``GROUP``), as a person would
write it and as it is computed with the least work, unless it holds a delta, which parentheses would hide.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from functools import reduce
from itertools import count, product
from math import gcd, lcm
from typing import TypeGuard

from bilevel_sym.arrays.normal import (
    MAX_FACTORS,
    Raw,
    added,
    minimal,
    ones,
    raw_terms,
    rearranged,
    scaled,
    single,
    tensor,
)
from bilevel_sym.arrays.tensor import GROUP, Apply, Delta, Factor, Head, LogSumExp, Tensor, Term
from bilevel_sym.graph.operations import OPERATIONS

__all__ = [
    "MAX_FACTORS",
    "apply",
    "broadcast",
    "contract",
    "delta",
    "logsumexp",
    "multiplied",
    "power",
    "spread",
    "subtracted",
    "total",
]

Label = object


def contract(
    operands: Sequence[tuple[Tensor, Sequence[Label]]],
    out: Sequence[Label],
    dims: Mapping[Label, str] | None = None,
) -> Tensor:
    """The product of operands whose indices have labels, summed over the labels that ``out`` does not have.

    operands: tensors, each with a label for every index; equal labels are one index
    out: the labels of the result
    dims: the dimensions of labels that no operand has, which the result is constant along

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> A, y = Tensor.leaf(Leaf("A", ("m", "n"), "data")), Tensor.leaf(Leaf("y", ("n",), "y"))
    >>> contract([(A, "ij"), (y, "j")], "i")
    Tensor[m|1*A(0,1)*y(1)]
    """
    sizes = dict(dims or {})
    for operand, labels in operands:
        sizes.update(zip(labels, operand.dims, strict=True))
    numbers = {label: k for k, label in enumerate(dict.fromkeys([*out, *sizes]))}
    summed = {k: sizes[label] for label, k in numbers.items() if k >= len(out)}
    factors = operands if len(operands) == 1 else _in_parentheses(operands)
    fresh = count(len(numbers))
    expanded = [list(raw_terms(operand, [numbers[label] for label in labels], fresh)) for operand, labels in factors]
    raws = (_product(parts, summed) for parts in product(*expanded))
    return tensor([sizes[label] for label in out], raws)


def _product(parts: Sequence[Raw], summed: Mapping[int, str]) -> Raw:
    sizes: dict[str, int] = {}
    dims = dict(summed)
    coefficient = Fraction(1)
    for part in parts:
        coefficient *= part.coefficient
        dims.update(part.dims)
        for dim, exponent in part.sizes.items():
            sizes[dim] = sizes.get(dim, 0) + exponent
    return Raw(coefficient, sizes, [factor for part in parts for factor in part.factors], dims)


def _in_parentheses(operands: Sequence[tuple[Tensor, Sequence[Label]]]) -> list[tuple[Tensor, Sequence[Label]]]:
    """Sums as single factors, where the product has others that are no numbers."""
    if sum(not operand.is_number for operand, _ in operands) < 2:
        return list(operands)
    return [(_grouped(operand), labels) for operand, labels in operands]


def _grouped(operand: Tensor) -> Tensor:
    if len(operand.terms) < 2 or operand.is_number or any(map(_has_delta, operand.terms)):
        return operand
    content, rest = _content(operand)
    (body,), kept = minimal([rest])
    group = single(Apply(GROUP, (), (body,)), operand.dims, kept)
    return contract([(content, ()), (group, range(group.rank))], range(group.rank))


def _has_delta(term: Term) -> bool:
    return any(isinstance(factor.head, Delta) for factor in term.factors)


def _content(operand: Tensor) -> tuple[Tensor, Tensor]:
    """A number with powers of dimensions, and the rest, whose first term is positive: their product is the operand."""
    terms = operand.terms
    numerator = reduce(gcd, (term.coefficient.numerator for term in terms))
    content = Fraction(numerator, reduce(lcm, (term.coefficient.denominator for term in terms)))
    if terms[0].coefficient < 0:
        content = -content
    common = set(terms[0].sizes).intersection(*(term.sizes for term in terms[1:]))
    rest = tuple(
        Term(t.coefficient / content, tuple(s for s in t.sizes if s not in common), t.factors, t.dummies) for t in terms
    )
    return ones((), content, dict(common)), added([Tensor(operand.dims, rest)], operand.dims)


def multiplied(one: Tensor, two: Tensor) -> Tensor:
    """The product entry by entry, of equal shapes or with a scalar.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> y = Tensor.leaf(Leaf("y", ("n",), "y"))
    >>> multiplied(y, y)
    Tensor[n|1*y(0)*y(0)]
    """
    out = range(max(one.rank, two.rank))
    return contract([(operand, range(operand.rank)) for operand in (one, two)], out)


def subtracted(one: Tensor, two: Tensor) -> Tensor:
    """one - two, of equal shapes.

    >>> subtracted(ones(("n",), 2), ones(("n",)))
    Tensor[n|1*1]
    """
    return added([one, scaled(two, -1)], one.dims)


def broadcast(operand: Tensor, dims: Sequence[str]) -> Tensor:
    """A scalar, everywhere over these dimensions; anything else as it is.

    >>> broadcast(ones((), 3), ("n",))
    Tensor[n|3*1]
    """
    return operand if operand.rank else spread(operand, (), dims)


def spread(operand: Tensor, places: Sequence[int], dims: Sequence[str]) -> Tensor:
    """The operand with its indices at ``places`` of ``dims``, constant along the others.

    >>> spread(ones(("m",)), [1], ("n", "m"))
    Tensor[n,m|1*1]
    """
    return contract([(operand, places)], range(len(dims)), dict(enumerate(dims)))


def delta(dim: str) -> Tensor:
    """The identity matrix.

    >>> delta("n")
    Tensor[n,n|1*delta:n(0,1)]
    """
    return single(Delta(dim), (dim, dim), (0, 1))


# ---- functions entry by entry ---------------------------------------------------------------------------------------


def apply(op: str, *bodies: Tensor) -> Tensor:
    """An operation of the grammar, entry by entry; the bodies have equal shapes, or are scalars.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> z = Tensor.leaf(Leaf("z", ("n",), "y"))
    >>> apply("sin", scaled(z, -1))
    Tensor[n|-1*sin()([n|1*z(0)])(0)]
    """
    dims = max((body.dims for body in bodies), key=len, default=())
    same = [broadcast(body, dims) for body in bodies]
    record = OPERATIONS[op]
    if len(same) == 1:
        (body,) = same
        if (value := _folded(op, body)) is not None:
            return value
        if (other := _recognised(op, body)) is not None:
            return other
        if record.parity and body.terms[0].coefficient < 0:
            flipped = _applied(op, [scaled(body, -1)])
            return flipped if record.parity == "even" else scaled(flipped, -1)
    elif op in ("min", "max") and same[0] == same[1]:
        return same[0]
    elif op == "select" and (same[0].number is not None or same[1] == same[2]):
        return same[2] if same[0].is_zero else same[1]
    return _applied(op, same)


def _applied(op: str, bodies: Sequence[Tensor], parameter: tuple[int, ...] = ()) -> Tensor:
    dims = bodies[0].dims if bodies else ()
    small, kept = minimal(bodies) if bodies else ((), ())
    return single(Apply(op, parameter, tuple(small)), dims, kept)


def _folded(op: str, body: Tensor) -> Tensor | None:
    from flint import fmpq

    number, rule = body.number, OPERATIONS[op].folded
    if number is None or rule is None:
        return None
    value = rule(fmpq(number.numerator, number.denominator))
    return None if value is None else ones(body.dims, Fraction(int(value.p), int(value.q)))


def _recognised(op: str, body: Tensor) -> Tensor | None:
    """Logarithms of sums of exponentials and of sigmoids, which must not overflow; the logarithm of an exponential."""
    if op == "log":
        if (z := _inside("sigmoid", body)) is not None:
            return scaled(apply("softplus", scaled(z, -1)), -1)
        exponents = _exponents(body)
        if exponents is not None:
            return _softplus_or_logsumexp(exponents, body)
    return None


def _inside(op: str, body: Tensor) -> Tensor | None:
    """The argument of a function of which there is nothing else, over all indices in their order."""
    term = body.terms[0]
    head = term.factors[0].head if _is_plain(term) and len(body.terms) == 1 and not term.dummies else None
    if not isinstance(head, Apply) or head.op != op or term.factors[0].indices != tuple(range(body.rank)):
        return None
    return head.bodies[0]


Exponent = tuple[Tensor, int]  # its dimensions are those of the sum, then those that are summed over


def _exponents(body: Tensor) -> list[Exponent] | None:
    """z for each term c sum(exp(z)) with c > 0 of a sum that has such terms, and otherwise only positive numbers."""
    if not any(term.factors for term in body.terms):
        return None
    found = []
    for term in body.terms:
        exponential = [f for f in term.factors if isinstance(f.head, Apply) and f.head.op == "exp"]
        if term.coefficient <= 0 or len(exponential) != len(term.factors) or len(exponential) > 1:
            return None
        found.append(_exponent(term, body))
    return found


def _exponent(term: Term, body: Tensor) -> Exponent:
    dims = (*body.dims, *term.dummies)
    factor = ones((), term.coefficient, dict(term.sizes))
    shift = ones(()) if factor.number == 1 else factor
    terms = [broadcast(apply("log", shift), dims)] if factor.number != 1 else []
    for head, indices in term.factors:
        terms.append(spread(head.bodies[0], indices, dims))  # type: ignore[attr-defined]
    return added(terms, dims), len(term.dummies)


def _softplus_or_logsumexp(exponents: Sequence[Exponent], body: Tensor) -> Tensor:
    plain = [z for z, summed in exponents if not summed]
    if len(exponents) == 1 and plain:
        return plain[0]
    if len(exponents) == 2 and len(plain) == 2:
        one, two = plain
        return added([one, apply("softplus", subtracted(two, one))], body.dims)
    return _logsumexp([z for z, _ in exponents], body.dims)


def logsumexp(body: Tensor, out: Sequence[int]) -> Tensor:
    """log(sum(exp(body))) over all indices but ``out``.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> Z = Tensor.leaf(Leaf("Z", ("m", "n"), "y"))
    >>> logsumexp(Z, (0,))
    Tensor[m|1*logsumexp1([m,n|1*Z(0,1)])(0)]
    """
    rest = [k for k in range(body.rank) if k not in out]
    moved = contract([(body, range(body.rank))], [*out, *rest])
    return _logsumexp([moved], [body.dims[k] for k in out])


def _logsumexp(parts: Sequence[Tensor], dims: Sequence[str]) -> Tensor:
    """Only over the indices of the result that some part has; the others would make it the same everywhere."""
    rank = len(dims)
    used = {i for z in parts for t in z.terms for _, own in t.factors for i in own if i < rank}
    kept = sorted(used)
    small = []
    for z in parts:
        labels = [*kept, *range(rank, z.rank)]
        names = {label: k for k, label in enumerate(labels)}
        places = [names.get(i, -1) for i in range(z.rank)]
        part = tensor([z.dims[i] for i in labels], raw_terms(z, places, count(len(labels))))
        small.append(_first_order(part, len(kept)))
    small.sort(key=lambda part: part.key)
    return single(LogSumExp(tuple(small), len(kept)), dims, kept)


def _first_order(part: Tensor, rank: int) -> Tensor:
    """With its two summed indices in the order that comes first: their order means nothing."""
    if part.rank != rank + 2:
        return part
    other = rearranged(part, [*range(rank), rank + 1, rank])
    return min(part, other, key=lambda one: ([term.monomial for term in one.terms], one.dims))


# ---- powers ---------------------------------------------------------------------------------------------------------


def power(base: Tensor, p: int, q: int = 1) -> Tensor:
    """base**(p/q), entry by entry.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> y = Tensor.leaf(Leaf("y", ("n",), "y"))
    >>> power(y, 2), power(power(y, -1), -1) == y
    (Tensor[n|1*y(0)*y(0)], True)
    """
    exponent = Fraction(p, q)
    if exponent == 1:
        return base
    if exponent == 0:
        return ones(base.dims)
    if base.is_zero and exponent < 0:
        raise ZeroDivisionError
    if (value := _number_power(base, exponent)) is not None:
        return value
    if _is_even(exponent) and _has_modulus(base):
        return _term_power(base, exponent)
    if exponent.denominator == 1 and exponent > 0:
        factors = sum(len(t.factors) for t in base.terms) if len(base.terms) == 1 else 1
        if factors * exponent <= MAX_FACTORS:
            return contract([(base, range(base.rank))] * int(exponent), range(base.rank))
    if len(base.terms) == 1 and not base.terms[0].dummies and (exponent.denominator == 1 or _is_plain(base.terms[0])):
        return _term_power(base, exponent)
    return _sum_power(base, exponent)


def _number_power(base: Tensor, exponent: Fraction) -> Tensor | None:
    number = base.number
    if number is None:
        return None
    if exponent.denominator == 1:
        return ones(base.dims, number**exponent.numerator) if number else ones(base.dims, 0)
    return ones(base.dims, number) if number in (0, 1) else None


def _is_even(exponent: Fraction) -> bool:
    return exponent.denominator == 1 and exponent.numerator % 2 == 0


def _has_modulus(base: Tensor) -> bool:
    """Whether it is a product without sums of which a factor is a modulus."""
    return (
        len(base.terms) == 1 and not base.terms[0].dummies and any(_is_modulus(f.head) for f in base.terms[0].factors)
    )


def _is_modulus(head: Head) -> TypeGuard[Apply]:
    return isinstance(head, Apply) and head.op == "abs"


def _is_plain(term: Term) -> bool:
    return term.coefficient == 1 and not term.sizes and len(term.factors) == 1


def _term_power(base: Tensor, exponent: Fraction) -> Tensor:
    """Of a product without sums: of each factor."""
    term, dims = base.terms[0], base.dims
    coefficient = term.coefficient**exponent.numerator if exponent.denominator == 1 else 1
    number = ones((), coefficient, {dim: int(k * exponent) for dim, k in term.sizes})
    operands: list[tuple[Tensor, Sequence[Label]]] = [(number, ())]
    operands += [(_factor_power(factor, exponent), factor.indices) for factor in term.factors]
    return contract(operands, range(base.rank), dict(enumerate(dims)))


def _factor_power(factor: Factor, exponent: Fraction) -> Tensor:
    """Of one head, over its own indices."""
    head = factor.head
    own = head.whole
    if isinstance(head, Delta):
        return own
    if isinstance(head, Apply) and head.op == "exp":
        return apply("exp", scaled(head.bodies[0], exponent))
    if _is_modulus(head) and _is_even(exponent):  # all is real, so that this has no kink
        return power(head.bodies[0], int(exponent))
    if isinstance(head, Apply) and head.op in ("ipow", "rpow"):
        if exponent.denominator == 1 or head.op == "rpow" or head.parameter[0] % 2:
            return power(head.bodies[0], *(Fraction(*head.parameter) * exponent).as_integer_ratio())
        return _as_power(own, exponent)
    if isinstance(head, Apply) and head.op == GROUP:
        return _sum_power(head.bodies[0], exponent)
    return _as_power(own, exponent)


def _sum_power(base: Tensor, exponent: Fraction) -> Tensor:
    """Of a sum: sums of exponentials are exponentials of a logarithm, so that nothing overflows."""
    exponents = _exponents(base) if exponent < 0 else None
    if exponents is not None and (len(exponents) > 1 or exponents[0][1]):
        logarithm = _softplus_or_logsumexp(exponents, base)
        if len(exponents) == 2 and exponent == -1 and base.terms[0].is_number and base.number is None:
            return _sigmoid(exponents, base)
        return apply("exp", scaled(logarithm, exponent))
    if exponent.denominator != 1:
        return _as_power(base, exponent)
    content, rest = _content(base)
    return multiplied(power(content, int(exponent)), _as_power(rest, exponent))


def _sigmoid(exponents: Sequence[Exponent], base: Tensor) -> Tensor:
    """1/(exp(a) + exp(b)) = exp(-a) sigmoid(a - b)."""
    (one, _), (two, _) = exponents
    if any(summed for _, summed in exponents):
        return apply("exp", scaled(_softplus_or_logsumexp(exponents, base), -1))
    return multiplied(apply("exp", scaled(one, -1)), apply("sigmoid", subtracted(one, two)))


def _as_power(base: Tensor, exponent: Fraction) -> Tensor:
    if exponent.denominator == 1:
        return _applied("ipow", [base], (int(exponent),))
    return _applied("rpow", [base], exponent.as_integer_ratio())


def total(operands: Iterable[Tensor], dims: Sequence[str]) -> Tensor:
    """The sum of tensors of these dimensions, and of scalars everywhere."""
    return added([broadcast(operand, dims) for operand in operands], dims)
