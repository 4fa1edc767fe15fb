"""Exact arithmetic with formulas: rational functions over Q of opaque generators.

Symbols, exp, log, sin ... are generators. Some have relations: r**q = b for a root r = b**(1/q), sign(z)**2 = 1, and
4 c**3 = 3 c + w for c = cos(acos(w)/3). Polynomials are python-flint's. Every step is paid for out of a budget of term
products before it starts, so that no call can hang: where SymPy's expand and simplify go on, TooLarge is raised.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import reduce
from math import comb, lcm
from typing import Any, NamedTuple

import flint
import sympy as sp

from bilevel_sym.graph.convert import sympy_rational
from bilevel_sym.graph.expressions import MAX_POWER, postorder

__all__ = ["Field", "Ratio", "TooLarge", "normal_form", "shortest"]

Polynomial = Any  # flint.fmpq_mpoly, which has no type stubs

BUDGET = 2_000_000  # term products in one field: about a second in python-flint at the worst
NORMAL_BUDGET = 200_000  # the same for a normal form, of which a call may make dozens
MAX_NORMAL_TERMS = 150  # of a normal form; longer ones say less than what they came from
MAX_GENERATORS = 600  # each term of each polynomial carries one exponent for each of them
MAX_GCD_TERMS = 400  # gcds of sparse polynomials up to here take milliseconds; above, fractions stay uncancelled
MAX_GCD_DEGREE = 60
MAX_PRINTED_TERMS = 2_000  # of a polynomial that is written out as an expression

_Atom = tuple[str, sp.Expr]  # a kind of generator ("opaque", "root", "exp", "sign", "third") and what it is made of
_Powers = tuple[int, ...]


class TooLarge(Exception):
    """The exact computation would take longer than its budget allows.

    >>> x, y = sp.symbols("x y")
    >>> try:
    ...     Field([x, y])((x + y + 1)**3000)
    ... except TooLarge as error:
    ...     print(error)
    a power with too many terms
    """


class Ratio(NamedTuple):
    """A numerator over a denominator, polynomials of one Field; not necessarily in lowest terms.

    >>> x = sp.Symbol("x")
    >>> str(Field([x])(1/x).num)
    '1'
    """

    num: Polynomial
    den: Polynomial


class Field:
    """The rational functions of the generators that occur in some expressions.

    With ``fractions=False`` inverses are generators too, and every denominator is 1. With ``signs=True``
    Abs(z) is sign(z)*z, which proofs need and readers do not want.

    >>> x = sp.Symbol("x", real=True)
    >>> field = Field([sp.sqrt(x), x])
    >>> field.expression(field((1 + sp.sqrt(x))**2 - 2*sp.sqrt(x)))
    x + 1
    """

    def __init__(
        self,
        expressions: Iterable[sp.Expr],
        *,
        fractions: bool = True,
        signs: bool = False,
        budget: int = BUDGET,
    ) -> None:
        self._fractions, self._signs, self._budget = fractions, signs, budget
        self._orders: dict[_Atom, int] = {}
        for expression in expressions:
            for node in self._walk(expression):
                for atom, power in self._factors(node):
                    self._orders[atom] = lcm(self._orders.get(atom, 1), int(power.q))
        if len(self._orders) > MAX_GENERATORS:
            raise TooLarge(f"{len(self._orders)} different functions and symbols")
        self._index = {atom: i for i, atom in enumerate(self._orders)}
        self.generators = tuple(_generator(*atom, order) for atom, order in self._orders.items())
        names = [f"g{i}" for i in range(len(self.generators))]
        self._ring = flint.fmpq_mpoly_ctx.get(names, flint.Ordering.degrevlex)
        self._gens = self._ring.gens()
        self._one = self._ring.constant(1)

    # ---- from and to expressions -------------------------------------------------------------------

    def __call__(self, expression: sp.Expr) -> Ratio:
        """The value of an expression, all of whose generators were in those given at the start."""
        done: dict[int, Ratio] = {}
        for node in self._walk(expression):
            done[id(node)] = self._value(node, [done[id(child)] for child in self._inner(node)])
        return done[id(expression)]

    def expression(self, value: Ratio, *, limit: int = MAX_PRINTED_TERMS) -> sp.Expr:
        """The value in lowest terms, written with integer coefficients."""
        num, den = self.cancel(self.reduced(value))
        if len(num) + len(den) > limit:
            raise TooLarge("a fraction with too many terms to write out")
        if num.is_zero():
            return sp.S.Zero
        (c_num, num), (c_den, den) = _primitive(num), _primitive(den)
        if 2 * (_minus_signs(num) + _minus_signs(den)) > len(num) + len(den):
            num, den = -num, -den  # x/(1 - x) rather than -x/(x - 1)
        return sp.Mul(sympy_rational(c_num / c_den), self.polynomial(num), 1 / self.polynomial(den))

    def polynomial(self, polynomial: Polynomial) -> sp.Expr:
        """A polynomial as an expanded expression."""
        if len(polynomial) > MAX_PRINTED_TERMS:
            raise TooLarge("a polynomial with too many terms to write out")
        return sp.Add(*(self._term(powers, c) for powers, c in polynomial.terms()))

    def coefficients(self, polynomial: Polynomial, *of: sp.Expr) -> dict[_Powers, Polynomial]:
        """The polynomial sorted by its powers of some generators: powers -> coefficient.

        >>> x, y = sp.symbols("x y")
        >>> field = Field([x, y])
        >>> parts = field.coefficients(field((x + y)**2).num, y)
        >>> {powers: field.polynomial(part) for powers, part in sorted(parts.items())}
        {(0,): x**2, (1,): 2*x, (2,): 1}
        """
        places = [self.generators.index(g) if g in self.generators else -1 for g in of]
        parts: dict[_Powers, dict[_Powers, Any]] = {}
        for powers, c in polynomial.terms():
            key = tuple(0 if k < 0 else int(powers[k]) for k in places)
            rest = tuple(0 if k in places else int(e) for k, e in enumerate(powers))
            parts.setdefault(key, {})[rest] = c
        return {key: self._ring.from_dict(part) for key, part in parts.items()}

    def _term(self, powers: Sequence[int], c: Any) -> sp.Expr:
        return sp.Mul(sympy_rational(c), *(self.generators[k] ** int(e) for k, e in enumerate(powers) if e))

    # ---- what an expression is made of -------------------------------------------------------------

    def _inner(self, node: sp.Basic) -> tuple[sp.Basic, ...]:
        """The parts that this field computes with; the parts of everything else are opaque."""
        if isinstance(node, (sp.Add, sp.Mul)):
            return tuple(node.args)
        if isinstance(node, sp.Pow) and node.exp.is_Rational:
            return (node.base,) if self._fractions or node.exp > 0 else ()
        if isinstance(node, (sp.Abs, sp.sign)):
            return tuple(node.args) if self._signs else ()
        tripled = _cosine_of_triple(node)
        return () if tripled is None else (tripled,)

    def _walk(self, expression: sp.Basic) -> Iterator[sp.Basic]:
        """Children before parents, each once, and nothing inside what is opaque."""
        seen: set[int] = set()
        stack = [(expression, False)]
        while stack:
            node, children_done = stack.pop()
            if children_done:
                yield node
            elif id(node) not in seen:
                seen.add(id(node))
                stack.append((node, True))
                stack.extend((child, False) for child in self._inner(node))

    def _factors(self, node: sp.Basic) -> list[tuple[_Atom, sp.Rational]]:
        """A node as a product of rational powers of generators; nothing for plain arithmetic."""
        if isinstance(node, (sp.Add, sp.Mul, sp.Rational)):
            return []
        if isinstance(node, sp.Pow) and node.exp.is_Rational:
            return self._power_factors(node)
        if isinstance(node, sp.exp) or node is sp.E:
            return self._exp_factors(node)
        if self._signs and isinstance(node, (sp.Abs, sp.sign)):
            return [(("sign", node.args[0]), sp.S.One)]
        return [(("opaque" if _cosine_of_triple(node) is None else "third", node), sp.S.One)]

    def _power_factors(self, node: sp.Pow) -> list[tuple[_Atom, sp.Rational]]:
        if not self._fractions and node.exp < 0:
            whole = node.exp.is_Integer
            return [(("opaque", node.base**-1 if whole else node), -node.exp if whole else sp.S.One)]
        return [] if node.exp.is_Integer else [(("root", node.base), node.exp)]

    def _exp_factors(self, node: sp.Expr) -> list[tuple[_Atom, sp.Rational]]:
        argument = sp.S.One if node is sp.E else node.args[0]
        pairs = [term.as_coeff_Mul(rational=True) for term in sp.Add.make_args(argument)]
        if self._fractions:
            return [(("exp", inner), c) for c, inner in pairs]
        return [(("exp", inner if c > 0 else -inner), abs(c)) for c, inner in pairs]

    def _value(self, node: sp.Basic, inner: Sequence[Ratio]) -> Ratio:
        if isinstance(node, sp.Rational):
            return Ratio(self._ring.constant(flint.fmpq(int(node.p), int(node.q))), self._one)
        if isinstance(node, sp.Add):
            return self.sum(inner)
        if isinstance(node, sp.Mul):
            return reduce(self.multiply, sorted(inner, key=lambda part: len(part.num)))
        if isinstance(node, sp.Pow) and node.exp.is_Integer and inner:
            return self.power(inner[0], int(node.exp))
        powers = [self._generator_power(atom, power) for atom, power in self._factors(node)]
        return reduce(self.multiply, [*powers, *(inner if isinstance(node, sp.Abs) else ())])

    def _generator_power(self, atom: _Atom, power: sp.Rational) -> Ratio:
        return self.power(Ratio(self._gens[self._index[atom]], self._one), int(power * self._orders[atom]))

    # ---- arithmetic --------------------------------------------------------------------------------

    def times(self, a: Polynomial, b: Polynomial) -> Polynomial:
        """a*b, paid for."""
        self._pay(len(a) * len(b), "a product with too many terms")
        return a * b

    def _pay(self, products: int, what: str) -> None:
        self._budget -= products + 1
        if self._budget < 0:
            raise TooLarge(what)

    def multiply(self, a: Ratio, b: Ratio) -> Ratio:
        """a*b."""
        return Ratio(self.times(a.num, b.num), self.times(a.den, b.den))

    def add(self, a: Ratio, b: Ratio) -> Ratio:
        """a + b, over the least common denominator where that is cheap to find."""
        if a.den == b.den:
            self._pay(len(a.num) + len(b.num), "a sum with too many terms")
            return Ratio(a.num + b.num, a.den)
        common = _gcd(a.den, b.den)
        to_a, to_b = b.den / common, a.den / common
        return Ratio(self.times(a.num, to_a) + self.times(b.num, to_b), self.times(a.den, to_a))

    def power(self, a: Ratio, n: int) -> Ratio:
        """a**n, for an integer n of either sign."""
        if n < 0:
            if self.reduced(a).num.is_zero():
                raise ZeroDivisionError("a denominator is identically zero")
            a, n = Ratio(a.den, a.num), -n
        size = max(len(a.num), len(a.den), 1)
        if n * size > MAX_POWER:
            raise TooLarge("a power with too many terms")
        digits = 1 + n * size.bit_length() // 64  # the coefficients grow too
        self._pay(comb(size + n - 1, n) * min(n, size) * digits, "a power with too many terms")
        return Ratio(a.num**n, a.den**n)

    def cancel(self, a: Ratio) -> Ratio:
        """a in lowest terms, where the gcd is cheap."""
        common = _gcd(a.num, a.den)
        return Ratio(a.num / common, a.den / common)

    def common_denominator(self, values: Iterable[Ratio]) -> Polynomial:
        """A multiple of every denominator, the least where that is cheap to find."""
        return reduce(lambda den, a: self.times(den, a.den / _gcd(den, a.den)), values, self._one)

    def reduced(self, a: Ratio) -> Ratio:
        """The same value with each root and sign of the numerator below its order."""
        num, den = a
        for place, atom in reversed(list(enumerate(self._orders))):  # relations have only earlier generators
            relation = _relation(atom, self.generators[place], self._orders[atom])
            while relation is not None and num.degrees()[place] >= relation[0]:
                num, extra = self._lowered(num, place, *relation)
                den = self.times(den, extra)
        return Ratio(num, den)

    def _lowered(self, polynomial: Polynomial, place: int, order: int, lower: sp.Expr) -> Ratio:
        """The polynomial with r**order replaced by lower = N/D, over the power of D that this takes."""
        parts: dict[int, dict[_Powers, Any]] = {}
        for powers, c in polynomial.terms():
            whole, rest = divmod(int(powers[place]), order)
            parts.setdefault(whole, {})[(*powers[:place], rest, *powers[place + 1 :])] = c
        top, value, total = max(parts), self(lower), self._ring.constant(0)
        for whole, part in parts.items():
            ups, downs = self.power(value, whole), self.power(value, top - whole)
            total += self.times(self._ring.from_dict(part), self.times(ups.num, downs.den))
        return Ratio(total, self.power(value, top).den)

    def sum(self, parts: Sequence[Ratio]) -> Ratio:
        """The sum; equal denominators first: a sum of many fractions over one denominator stays small."""
        groups: list[Ratio] = []
        for part in parts:
            place = next((k for k, group in enumerate(groups) if group.den == part.den), None)
            if place is None:
                groups.append(part)
            else:
                groups[place] = self.add(groups[place], part)
        return reduce(self.add, groups, Ratio(self._one * 0, self._one))


def normal_form(expression: sp.Expr) -> sp.Expr:
    """One fraction in lowest terms, or the expression itself where that would be too large.

    >>> x, y = sp.symbols("x y")
    >>> normal_form((x**2 - y**2)/(x - y) + 1/x)
    (x**2 + x*y + 1)/x
    """
    try:
        field = Field([expression], budget=NORMAL_BUDGET)
        return field.expression(field(expression), limit=MAX_NORMAL_TERMS)
    except (TooLarge, ZeroDivisionError):
        return expression


def shortest(expression: sp.Expr) -> sp.Expr:
    """The expression or its normal form, whichever has fewer nodes.

    >>> x = sp.Symbol("x")
    >>> shortest((x + 1)**8), shortest(x/2 + x/3)
    ((x + 1)**8, 5*x/6)
    """
    return min(expression, normal_form(expression), key=lambda form: sum(1 for _ in postorder(form)))


def _generator(kind: str, inner: sp.Expr, order: int) -> sp.Expr:
    if kind == "root":
        return inner ** sp.Rational(1, order)
    if kind == "exp":
        return sp.exp(inner / order)
    return sp.sign(inner) if kind == "sign" else inner


def _relation(atom: _Atom, generator: sp.Expr, order: int) -> tuple[int, sp.Expr] | None:
    """(k, lower) for a generator r with r**k = lower, where lower has smaller powers of r."""
    kind, inner = atom
    if kind == "third":
        return 3, (3 * generator + _cosine_of_triple(generator)) / 4
    return {"root": (order, inner), "sign": (2, sp.S.One)}.get(kind)


def _cosine_of_triple(node: sp.Basic) -> sp.Expr | None:
    """w for c = cos(acos(w)/3), so that 4 c^3 - 3 c = w."""
    tripled = 3 * node.args[0] if isinstance(node, sp.cos) else None
    return tripled.args[0] if isinstance(tripled, sp.acos) else None


def _gcd(a: Polynomial, b: Polynomial) -> Polynomial:
    """The greatest common divisor, or 1 where finding it might be slow."""
    small = len(a) + len(b) <= MAX_GCD_TERMS and max(a.total_degree(), b.total_degree()) <= MAX_GCD_DEGREE
    return a.gcd(b) if small else a.context().constant(1)


def _primitive(polynomial: Polynomial) -> tuple[Any, Polynomial]:
    """The content, and the polynomial with coprime integer coefficients that it multiplies."""
    coefficients = polynomial.coeffs()
    numerators = reduce(lambda a, b: a.gcd(b), (c.p for c in coefficients))
    denominators = lcm(*(int(c.q) for c in coefficients))
    content = flint.fmpq(abs(int(numerators)), denominators)
    return content, polynomial / content


def _minus_signs(polynomial: Polynomial) -> int:
    return sum(c < 0 for c in polynomial.coeffs())
