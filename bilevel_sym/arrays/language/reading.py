"""Syntax trees to sums of products, behind guards: each step looks at the price of its result before it pays.

Shapes were checked before (``inference``). What remains to be refused is what is no real number, and what would be
computed out of all proportion: 9**9**9, a product that has a million terms when it is multiplied out.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from fractions import Fraction
from math import prod
from types import MappingProxyType

from sympy import integer_nthroot

from bilevel_sym.arrays.algebra import MAX_FACTORS as WRITTEN_OUT
from bilevel_sym.arrays.algebra import apply, broadcast, contract, delta, logsumexp, multiplied, power, total
from bilevel_sym.arrays.language.constants import LARGEST, constant_value
from bilevel_sym.arrays.language.syntax import (
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
from bilevel_sym.arrays.normal import ones, rearranged, scaled
from bilevel_sym.arrays.tensor import Apply, Delta, Tensor
from bilevel_sym.graph.operations import OPERATIONS

__all__ = ["Reading"]

BUDGET = 200_000  # factors that are put in order for one formula
STEP = 20  # what every operation costs
MAX_TERMS = 1000  # of a product that is multiplied out
MAX_FACTORS = 100  # of one term
MAX_EXPONENT = 1000
MAX_BITS = 996  # numerators and denominators below 10**300
EXPONENTS = f"numerators and denominators go up to {MAX_EXPONENT}"
REAL = "only real numbers are accepted"
DIGITS = "numbers have at most 300 digits"


class Reading:
    """The tensors of formulas over declared names.

    - ``declared``: what each name means.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> y = Tensor.leaf(Leaf("y", ("n",), "y"))
    >>> Reading({"y": y}).tensor(Call(0, "sum", (Power(5, Name(4, "y"), Number(7, Fraction(2))),)))
    Tensor[|1*y(0)*y(0)]
    """

    def __init__(self, declared: Mapping[str, Tensor]) -> None:
        self._declared = declared
        self._spent = 0

    def tensor(self, node: Node) -> Tensor:
        """The formula of a tree; Refused where it is no real number, or too expensive."""
        try:
            value = _RULES[type(node)](self, node)
        except ZeroDivisionError:
            raise Refused(node.place, "division by zero") from None
        self._check(node.place, value)
        return value

    def _check(self, place: int, value: Tensor) -> None:
        """Refuse numbers that nobody means, and charge for the size."""
        for term in value.terms:
            number = term.coefficient
            if max(abs(number.numerator), number.denominator).bit_length() > MAX_BITS:
                raise Refused(place, "this number is too large or too long", DIGITS)
            for head, _ in term.factors:
                if isinstance(head, Apply) and any(abs(part) > MAX_EXPONENT for part in head.parameter):
                    raise Refused(place, "this exponent is too large", EXPONENTS)
        self._charge(place, STEP + sum(1 + len(term.factors) for term in value.terms))

    def _charge(self, place: int, work: int) -> None:
        self._spent += work
        if self._spent > BUDGET:
            raise Refused(place, "this formula is too expensive to build", "shorten it, or give parts of it as data")

    # ---- numbers and names ----------------------------------------------------------------------------------------

    def _number(self, node: Number) -> Tensor:
        return ones((), node.value)

    def _constant(self, node: Constant) -> Tensor:
        return apply("pi") if node.name == "pi" else apply("exp", ones(()))

    def _name(self, node: Name) -> Tensor:
        return self._declared[node.name]

    # ---- sums and products ----------------------------------------------------------------------------------------

    def _negated(self, node: Negated) -> Tensor:
        return scaled(self.tensor(node.body), -1)

    def _sum(self, node: Sum) -> Tensor:
        terms = [self.tensor(node.first)]
        for link in node.rest:
            term = self.tensor(link.operand)
            terms.append(scaled(term, -1) if link.sign == "-" else term)
        value = total(terms, _dims(terms))
        self._refuse_cancelled(node.place, terms, value)
        return value

    def _refuse_cancelled(self, place: int, terms: Sequence[Tensor], value: Tensor) -> None:
        """log(6) - log(2) - log(3) is zero, but nobody sees it."""
        if value.number is None and (estimate := constant_value(value)) is not None:
            size = sum(abs(constant_value(term) or 0.0) for term in terms)
            if abs(estimate) <= 1e-9 * size:
                raise Refused(place, "these constants cancel", "write their sum as one number")

    def _product(self, node: Product) -> Tensor:
        value = self.tensor(node.first)
        for link in node.rest:
            other = self.tensor(link.operand)
            if link.sign == "@":
                value = self._matrix_product(link.place, value, other)
            else:
                value = self._times(link.place, value, self._inverse(link.place, other) if link.sign == "/" else other)
            self._check(link.place, value)
        return value

    def _times(self, place: int, one: Tensor, two: Tensor) -> Tensor:
        self._charge_product(place, (one, two))
        return multiplied(one, two)

    def _inverse(self, place: int, value: Tensor) -> Tensor:
        if value.is_zero:
            raise Refused(place, "division by zero")
        return self._whole_power(place, value, -1)

    def _matrix_product(self, place: int, one: Tensor, two: Tensor) -> Tensor:
        self._charge_product(place, (one, two))
        left, right = ("i",) * (one.rank - 1), ("k",) * (two.rank - 1)
        return contract([(one, (*left, "j")), (two, ("j", *right))], (*left, *right))

    def _charge_product(self, place: int, operands: Sequence[Tensor]) -> None:
        """Sums stay in parentheses, unless they are numbers, hold a delta, or meet nothing but numbers."""
        apart = sum(not operand.is_number for operand in operands) < 2
        counts = [len(op.terms) if apart or op.is_number or _has_delta(op) else 1 for op in operands]
        if prod(counts) > MAX_TERMS:
            raise Refused(
                place, f"this product has more than {MAX_TERMS} terms when it is multiplied out", "shorten it"
            )
        factors = sum(max((len(term.factors) for term in op.terms), default=0) for op in operands)
        if factors > MAX_FACTORS:
            raise Refused(place, f"this product has more than {MAX_FACTORS} factors", "write powers with **")
        self._charge(place, prod(counts) * factors)

    def _transposed(self, node: Transposed) -> Tensor:
        return rearranged(self.tensor(node.body), (1, 0))

    # ---- powers ---------------------------------------------------------------------------------------------------

    def _power(self, node: Power) -> Tensor:
        exponent = self.tensor(node.exponent)
        if isinstance(node.base, Constant) and node.base.name == "E":
            return self._entrywise(node.place, "exp", exponent)
        base = self.tensor(node.base)
        dims = _dims((base, exponent))
        if exponent.number is not None:
            return broadcast(self._raised(node.place, base, exponent.number), dims)
        if (value := constant_value(base)) is not None and value <= 0:
            raise Refused(node.place, "the base of a variable power must be positive", REAL)
        logarithm = broadcast(self._entrywise(node.place, "log", base), dims)
        return self._entrywise(node.place, "exp", self._times(node.place, broadcast(exponent, dims), logarithm))

    def _raised(self, place: int, base: Tensor, exponent: Fraction) -> Tensor:
        if max(abs(exponent.numerator), exponent.denominator) > MAX_EXPONENT:
            raise Refused(place, "this exponent is too large", EXPONENTS)
        if exponent.denominator == 1:
            return self._whole_power(place, base, exponent.numerator)
        if (value := constant_value(base)) is not None and value < 0:
            raise Refused(place, "a negative number to a fractional power is complex", REAL)
        if (root := _exact_root(base.number, exponent.denominator)) is not None:
            return self._whole_power(place, ones(base.dims, root), exponent.numerator)
        if exponent < 0:
            _refuse_zeros(place, base)
        return power(base, *exponent.as_integer_ratio())

    def _whole_power(self, place: int, base: Tensor, exponent: int) -> Tensor:
        numbers = [abs(part) for term in base.terms for part in term.coefficient.as_integer_ratio()]
        if max((number.bit_length() - 1 for number in numbers), default=0) * abs(exponent) > MAX_BITS:
            raise Refused(place, "this power is too large", DIGITS)
        if exponent < 0:
            _refuse_zeros(place, base)
        if 0 < exponent <= WRITTEN_OUT:
            self._charge_product(place, [base] * exponent)
        return power(base, exponent)

    # ---- functions ------------------------------------------------------------------------------------------------

    def _call(self, node: Call) -> Tensor:
        values = [self.tensor(argument) for argument in node.arguments]
        if node.name in _OF_ARRAYS:
            return _OF_ARRAYS[node.name](self, node, *values)
        if node.name in ("min", "max"):
            return _extremum(node.name, values)
        if node.name == "sqrt":
            return self._raised(node.place, values[0], Fraction(1, 2))
        return self._entrywise(node.place, node.name, values[0])

    def _entrywise(self, place: int, name: str, body: Tensor) -> Tensor:
        """A function of one argument; of constants only where it is a real number of a size worth computing."""
        record, value = OPERATIONS[name], constant_value(body)
        if value is not None and value <= record.domain:
            raise Refused(place, "the logarithm of zero or a negative number", REAL)
        if value is not None and abs(value) > record.largest:
            raise Refused(place, f"{name} of a number near {value:.3g} is of no use", "take a smaller number")
        result = apply(name, body)
        if result.number is None and (made := constant_value(result)) is not None:
            _check_range(place, made)
        return result

    def _summed(self, node: Call, body: Tensor) -> Tensor:
        kept = [k for k in range(body.rank) if node.axis is not None and k != node.axis]
        if node.name == "logsumexp":
            return logsumexp(body, kept)
        whole = contract([(body, range(body.rank))], kept)
        if node.name == "sum":
            return whole
        count: dict[str, int] = {}
        for k in range(body.rank):
            if k not in kept:
                count[body.dims[k]] = count.get(body.dims[k], 0) - 1
        return multiplied(ones((), 1, count), whole)

    def _dot(self, node: Call, one: Tensor, two: Tensor) -> Tensor:
        return self._matrix_product(node.place, one, two)

    def _outer(self, node: Call, one: Tensor, two: Tensor) -> Tensor:
        self._charge_product(node.place, (one, two))
        return contract([(one, "i"), (two, "j")], "ij")

    def _trace(self, node: Call, body: Tensor) -> Tensor:
        return contract([(body, "ii")], ())

    def _diag(self, node: Call, body: Tensor) -> Tensor:
        if body.rank == 2:
            return contract([(body, "ii")], "i")
        return contract([(delta(body.dims[0]), "ij"), (body, "i")], "ij")

    # ---- cases ----------------------------------------------------------------------------------------------------

    def _comparison(self, node: Comparison) -> Tensor:
        """One where it holds, zero where it does not."""
        left, right = self.tensor(node.left), self.tensor(node.right)
        low, high = (left, right) if node.sign[0] == "<" else (right, left)
        difference = total([low, scaled(high, -1)], _dims((low, high)))
        return apply("le" if node.sign[1:] else "lt", difference)

    def _piecewise(self, node: Piecewise) -> Tensor:
        pieces = [(self.tensor(value), None if c is None else self.tensor(c)) for value, c in node.pieces]
        dims = _dims([part for piece in pieces for part in piece if part is not None])
        nowhere = value = broadcast(apply("log", ones((), -1)), dims)  # no number, as in the scalar language
        for own, condition in reversed(pieces):
            value = broadcast(own, dims) if condition is None else apply("select", condition, own, value)
        if value == nowhere:
            raise Refused(node.place, "this is not a finite real number", "no condition ever holds")
        return value


def _dims(values: Sequence[Tensor]) -> tuple[str, ...]:
    return max((value.dims for value in values), key=len)


def _has_delta(value: Tensor) -> bool:
    return any(isinstance(factor.head, Delta) for term in value.terms for factor in term.factors)


def _refuse_zeros(place: int, base: Tensor) -> None:
    """A diagonal matrix is zero off its diagonal, whatever stands on it."""
    if base.terms and all(_has_delta(Tensor(base.dims, (term,))) for term in base.terms):
        raise Refused(place, "this divides by the zeros of a diagonal matrix", "diag(1/w) has inverses on its diagonal")


def _extremum(name: str, values: Sequence[Tensor]) -> Tensor:
    """In an order by content: min(a, b) is min(b, a)."""
    dims = _dims(values)
    same = {value.key: value for value in (broadcast(value, dims) for value in values)}
    ordered = [same[key] for key in sorted(same)]
    numbers = [value.number for value in ordered if value.number is not None]
    others = [value for value in ordered if value.number is None]
    if numbers:
        others.append(ones(dims, min(numbers) if name == "min" else max(numbers)))
    result = others[0]
    for other in others[1:]:
        result = apply(name, result, other)
    return result


def _exact_root(number: Fraction | None, q: int) -> Fraction | None:
    """The q-th root of a number that is not negative, where it is rational."""
    if number is None or number < 0:
        return None
    (above, whole), (below, too) = (integer_nthroot(part, q) for part in number.as_integer_ratio())
    return Fraction(int(above), int(below)) if whole and too else None


def _check_range(place: int, value: float) -> None:
    if not abs(value) <= LARGEST:
        raise Refused(
            place, "this constant is no finite real number, or too large", f"constants go up to {LARGEST:.0e}"
        )
    if abs(value) < 1 / LARGEST:
        raise Refused(place, "this constant is zero or too close to it", "write 0, or scale the problem")


Rule = Callable[..., Tensor]
_RULES: Mapping[type[Node], Rule] = MappingProxyType(
    {
        Number: Reading._number,
        Constant: Reading._constant,
        Name: Reading._name,
        Negated: Reading._negated,
        Sum: Reading._sum,
        Product: Reading._product,
        Power: Reading._power,
        Transposed: Reading._transposed,
        Comparison: Reading._comparison,
        Piecewise: Reading._piecewise,
        Call: Reading._call,
    }
)
_OF_ARRAYS: Mapping[str, Rule] = MappingProxyType(
    {
        "sum": Reading._summed,
        "mean": Reading._summed,
        "logsumexp": Reading._summed,
        "dot": Reading._dot,
        "outer": Reading._outer,
        "trace": Reading._trace,
        "diag": Reading._diag,
    }
)
