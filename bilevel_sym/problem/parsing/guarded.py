"""Values on a draft, behind guards: each step looks at the price of its result before it pays.

Text can ask for 3**1000000000, or for a formula over which SymPy would brood for years when a user asks for it. So
every value carries what the next step has to know about it, every step is charged to a meter, and what a step may
produce is bounded before it is taken.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from math import e, fsum, inf, pi
from types import MappingProxyType
from typing import NamedTuple

import sympy as sp
from flint import fmpq

from bilevel_sym.graph.draft import Draft
from bilevel_sym.graph.exact import decimal_rational
from bilevel_sym.graph.nodes import ONE_FORM, ZERO, LinearForm, accumulate
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.graph.operations.record import Operation

BUDGET = 600_000  # what SymPy may take for one text when a user asks for formulas, in estimated microseconds
MAX_EXPONENT = 1000
LARGEST = 1e300  # of a constant
_MAX_BITS = 996  # numerators and denominators below 10**300
_MAX_LOGARITHMS = 10_000  # bits that exp may make of the logarithms in its argument
_MAX_TERMS = 1000  # to which an argument may grow when SymPy multiplies it out
_MAX_SIGNED_HEIGHT = 32
_CANCELLED = 1e-9  # a sum of constants this small relative to its terms is zero, or as good as zero
_HYPERBOLIC = ("sinh", "cosh", "tanh")
# exp(log x) and tan(atan x) simplify: their values are not plain
_INVERSES = frozenset(name for name, record in FUNCTIONS.items() if record.undoes)


class Refusal(Exception):
    """Why a value is not built; the grammar knows where it stands and raises the error."""

    def __init__(self, message: str, hint: str | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint


class Value(NamedTuple):
    """A form on the draft and what the next step has to know about it."""

    form: LinearForm
    number: float | None = None  # an estimate, where there are no variables
    plain: bool = True  # polynomials and functions of them, where SymPy's functions see nothing to simplify
    size: int = 1  # of the tree
    height: int = 1
    roots: int = 0  # irrational powers of constants
    terms: float = 1  # of its real and imaginary part, multiplied out
    askable: bool = True  # whether SymPy can be asked for its sign


class Arithmetic:
    """Sums, products, powers and functions of one argument, each refused before it can do harm.

    >>> x = sp.Symbol("x")
    >>> build = Arithmetic([x])
    >>> build.add([build.literal("0.5"), build.variable(x)]).form.constant
    1/2
    """

    def __init__(self, symbols: Sequence[sp.Symbol]) -> None:
        self._spent = 0.0
        self.draft = Draft(len(symbols))
        self.draft.evaluating = True
        self.symbols = tuple(symbols)
        self._variables = {s: _variable(s, form) for s, form in zip(symbols, self.draft.variables, strict=True)}
        signs = [(s.is_extended_nonnegative, s.is_extended_nonpositive) for s in symbols]
        self.signless = frozenset(k for k, sign in enumerate(signs) if sign == (None, None))
        self.signed = len(self.signless) < len(signs)
        self._not_real = sum(1 << k for k, symbol in enumerate(symbols) if not symbol.is_real)
        self.half, self.true = self.number(sp.Rational(1, 2)), Value(ONE_FORM)

    def charge(self, microseconds: float) -> None:
        """Put a step on the meter."""
        self._spent += microseconds
        if self._spent > BUDGET:
            raise Refusal("this expression is too expensive to build", "shorten it, or build it with SymPy")

    def variable(self, symbol: sp.Symbol) -> Value:
        """A declared variable."""
        return self._variables[symbol]

    def literal(self, text: str) -> Value:
        """A decimal number, exactly."""
        if len(text) < 16 and text.isdigit():
            whole = int(text)
            return Value(LinearForm(fmpq(whole), {}), float(whole))
        return self.number(decimal_rational(text))

    def number(self, number: sp.Rational) -> Value:
        """An exact number."""
        return _constant(fmpq(int(number.p), int(number.q)))

    def constant(self, name: str) -> Value:
        """pi or E."""
        form = self.draft.apply("pi") if name == "pi" else self.draft.apply("exp", ONE_FORM)
        return Value(form, pi if name == "pi" else e, plain=False)

    def add(self, terms: Sequence[Value]) -> Value:
        """The sum of all terms, in one step."""
        if len(terms) == 1:
            return terms[0]
        self.charge(3 * len(terms))
        constant, coefficients = ZERO, dict[int, fmpq]()
        for term in terms:
            constant += term.form.constant
            accumulate(coefficients, term.form.terms)
            _check_rationals((constant, *(coefficients.get(node, ZERO) for node in term.form.terms)))
        form = LinearForm(constant, coefficients)
        number = _sum_estimate(terms, exact=form.is_constant)
        count = sum(term.terms for term in terms)
        return self.settle(form, number, terms, plain=all(term.plain for term in terms), count=count)

    def negate(self, a: Value) -> Value:
        """-a."""
        return Value(-a.form, None if a.number is None else -a.number, *a[2:])

    def multiply(self, a: Value, b: Value) -> Value:
        """a*b."""
        for one, other in ((a, b), (b, a)):
            if one.form.is_constant:
                return self._scaled(other, one.form.constant)
        self._charge_product(a, b)
        number = None if a.number is None or b.number is None else a.number * b.number
        form = self.draft.product((a.form, b.form))
        _check_rationals((form.constant, *form.terms.values()))
        plain = (a.plain or self._scales(a, b)) and (b.plain or self._scales(b, a))
        value = self.settle(form, number, (a, b), plain=plain, count=a.terms * b.terms)
        return value._replace(height=max(a.height, b.height))

    def _scaled(self, a: Value, factor: fmpq) -> Value:
        """A value times a rational number."""
        form = a.form.scaled(factor)
        if form.is_constant:
            return _constant(form.constant)
        _check_rationals((form.constant, *form.terms.values()))
        number = None if a.number is None else check_range(a.number * (int(factor.p) / int(factor.q)))
        return Value(form, number, a.plain, a.size + 2, *a[4:])

    def divide(self, a: Value, b: Value) -> Value:
        """a/b, as SymPy does it: times the inverse."""
        if b.form.is_constant:
            if b.form.constant == ZERO:
                raise Refusal("division by zero")
            return self._scaled(a, 1 / b.form.constant)
        self._check_height(b)
        number = None if b.number is None else 1 / b.number
        below = self.settle(self.draft.power(b.form, -1), number, (b,), plain=b.plain, count=2 * b.terms)
        return self.multiply(a, below)

    def power(self, a: Value, b: Value) -> Value:
        """a**b."""
        if a.number == e and a.form.terms == self.constant("E").form.terms:
            return self.call("exp", b)
        number = _power_estimate(a, b)
        self._check_power(a, b)
        form = self.draft.raised(a.form, b.form)
        _check_rationals((form.constant, *form.terms.values()))
        whole = b.form.is_constant and b.form.constant.q == 1
        times = min(abs(float(b.form.constant)), 100) if b.form.is_constant else 2
        count = min(a.terms, 1e3) ** max(times, 1) * (1 if whole and b.form.constant > 0 else 2)
        value = self.settle(form, number, (a, b), plain=a.plain and whole, count=count)
        self.check_exponents(value.form.terms)
        root = a.number is not None and value.number is not None and not whole
        return value._replace(roots=value.roots + root)

    def call(self, name: str, a: Value) -> Value:
        """A function of one argument, by its name in the grammar."""
        number = None if a.number is None else ESTIMATES[name](a.number)
        self.check_askable(a)
        if a.number is not None or not a.plain:
            self._check_height(a)
            self.charge(200 * a.size)
            if name == "exp":
                self._check_logarithms(a)
        hyperbolic = name in _HYPERBOLIC
        value = self.settle(
            self.draft.apply(name, a.form), number, (a,), plain=a.plain and name not in _INVERSES,
            count=max(a.terms, 1) * (4 if hyperbolic else 2),
        )  # fmt: skip
        hard = hyperbolic and value.terms > _MAX_TERMS and self.draft.depends_on(a.form) & self._not_real
        return value._replace(askable=False) if hard else value

    def settle(
        self, form: LinearForm, number: float | None, parts: Iterable[Value], *, plain: bool, count: float = 1
    ) -> Value:
        """A new value from what it was made of.

        form: what it is
        number: its estimate, where there are no variables
        parts: the values it was made of
        plain: whether SymPy's functions see nothing to simplify in it
        count: about how many terms it has when it is multiplied out
        """
        if form.is_constant:
            return _constant(form.constant)
        if number is not None:
            check_range(number)
        elif not self.draft.depends_on(form):
            number = self._left_over(form)
        size = height = roots = 0
        askable = True
        for part in parts:
            size += part.size
            height = max(height, part.height)
            roots += part.roots
            askable &= part.askable
        # y*pi/y is a bare pi again, which functions simplify
        return Value(form, number, plain and number is None, size + 1, height + 1, roots, min(count, 1e9), askable)

    def check_askable(self, *values: Value) -> None:
        """Refuse what SymPy may expand when it is asked for a sign: hyperbolic functions of what may be complex.

        For those it splits the argument into real and imaginary part, and multiplies it out on the way.
        """
        if not all(value.askable for value in values):
            raise Refusal("this needs the sign of a hyperbolic function of a long argument", "declare real symbols")

    def check_exponents(self, nodes: Iterable[int]) -> None:
        """Refuse powers with exponents beyond 1000."""
        draft = self.draft
        for node in nodes:
            for factor in draft.args[node] if draft.op[node] == "mul" else (node,):
                if draft.op[factor] in ("ipow", "rpow"):
                    _check_exponent(fmpq(*draft.parameter[factor]))
                elif draft.op[factor] == "pow":
                    inner = draft.form(draft.args[factor][1])
                    for coefficient in (inner.constant, *inner.terms.values()):
                        _check_exponent(coefficient)

    def _left_over(self, form: LinearForm) -> float:
        """The estimate of a constant from which the variables have dropped out, as in x - x + pi."""
        for name in ("pi", "E"):
            constant = self.constant(name)
            if form.terms == constant.form.terms and form.constant == 0:
                assert constant.number is not None
                return constant.number
        raise Refusal("the variables cancel here and leave a constant", "write the constant alone")

    def _check_height(self, a: Value) -> None:
        """Where signs are known, SymPy's questions take exponential time in the height."""
        if self.signed and a.height > _MAX_SIGNED_HEIGHT:
            raise Refusal("this is nested too deeply for variables of known sign")
        if self.signed:
            self.charge(30 * a.size)

    def _factors(self, form: LinearForm) -> tuple[int, ...]:
        """The nodes that are multiplied in a form; a sum is one factor, of no node."""
        if len(form.terms) != 1 or form.constant != 0:
            return ()
        (node,) = form.terms
        return self.draft.args[node] if self.draft.op[node] == "mul" else (node,)

    def _charge_product(self, a: Value, b: Value) -> None:
        count = len(self._factors(a.form)) + len(self._factors(b.form))
        self.charge((18 * count if count > 2 else 0) + 2 * (a.roots + b.roots) ** 2)

    def _check_power(self, a: Value, b: Value) -> None:
        """Refuse what would be computed out of all proportion, before it starts."""
        for coefficient in (b.form.constant, *b.form.terms.values()):
            _check_exponent(coefficient)
        self._check_height(a)
        if not b.form.is_constant:
            self.charge(150 * b.size)  # SymPy factors exponents
        exponent = b.form.constant
        if not b.form.is_constant or exponent.q != 1:
            self.charge(100 * a.size)  # and asks for the sign of bases
            self.check_askable(a, b)
        if not b.form.is_constant:
            return
        scale = a.form.constant if a.form.is_constant else next(iter(a.form.terms.values()))
        if len(a.form.terms) > 1 or (a.form.terms and a.form.constant != 0) or abs(scale) == 1 or scale == 0:
            return
        bits = max(abs(int(scale.p)), int(scale.q)).bit_length()
        if (bits - 1) * abs(int(exponent.p)) > _MAX_BITS * int(exponent.q):
            raise Refusal("this power is too large", "numbers have at most 300 digits")
        if exponent.q != 1:
            self.charge(300 + 50 * max(bits - 16, 0))  # SymPy looks for prime factors

    def _check_logarithms(self, argument: Value) -> None:
        """SymPy turns exp(1000*log(2)) into 2**1000, and gathers logarithms deep inside the argument."""
        draft, bits = self.draft, 0.0
        nodes = draft.reachable(argument.form.terms)
        if not any(draft.op[node] == "log" for node in nodes):
            return
        self.charge(300 * argument.size)
        for form in (argument.form, *(draft.form(node) for node in nodes if draft.op[node] == "lin")):
            for node, c in form.terms.items():
                for factor in draft.args[node] if draft.op[node] == "mul" else (node,):
                    if draft.op[factor] == "log":
                        inner = draft.form(draft.args[factor][0])
                        (scale,) = inner.terms.values() if len(inner.terms) == 1 else (inner.constant,)
                        bits += abs(float(c)) * max(abs(int(scale.p)), int(scale.q)).bit_length()
        if bits > _MAX_LOGARITHMS:
            raise Refusal("exp would raise a logarithm's argument to a huge power")

    def _scales(self, a: Value, b: Value) -> bool:
        """Whether a is a constant like pi before a product of variables: sin(pi*x) is left alone, as sin(x) is."""
        if a.number is None or b.number is not None:
            return False
        if any(self.draft.op[node] == "log" for node in self.draft.reachable(a.form.terms)):
            return False
        return all(self.draft.op[node] != "lin" for node in self._factors(b.form) or (0,)) and len(b.form.terms) == 1


def _variable(symbol: sp.Symbol, form: LinearForm) -> Value:
    plain = symbol.is_zero is not True and symbol.is_integer is not True
    return Value(form, plain=plain, terms=1 if symbol.is_real else 2)


def _constant(number: fmpq) -> Value:
    _check_rationals((number,))
    return Value(LinearForm(number, {}), int(number.p) / int(number.q))


def _check_rationals(numbers: Iterable[fmpq]) -> None:
    """Refuse numbers of more than 300 digits above or below."""
    for number in numbers:
        if number.height_bits() > _MAX_BITS:
            raise Refusal("this number is too large or too long", "numbers have at most 300 digits")


def _check_exponent(exponent: fmpq) -> None:
    if max(abs(int(exponent.p)), int(exponent.q)) > MAX_EXPONENT:
        raise Refusal("this exponent is too large", f"numerators and denominators go up to {MAX_EXPONENT}")


def _sum_estimate(terms: Sequence[Value], *, exact: bool) -> float | None:
    numbers = [term.number for term in terms if term.number is not None]
    if len(numbers) < len(terms):
        return None
    total = fsum(numbers)
    if not exact and abs(total) <= _CANCELLED * fsum(map(abs, numbers)):
        raise Refusal("these constants cancel", "write their sum as one number")
    return total


def _power_estimate(a: Value, b: Value) -> float | None:
    if a.number is None:
        return None
    if b.number is not None:
        return _power(a.number, b.number, integer=b.form.is_constant and b.form.constant.q == 1)
    if a.number <= 0:
        raise Refusal("the base of a variable power must be positive", "only real numbers are accepted")
    return None


# ---- estimates in floating point, before SymPy sees a constant: 9**9**9 is refused for the price of one power ----
# They need not be accurate; they decide whether a constant is finite, real and of a size worth computing.


def check_range(number: float) -> float:
    """``number`` itself, unless it is too large, or too close to zero, for float64 work.

    >>> check_range(-2.5)
    -2.5
    """
    if not abs(number) <= LARGEST:
        raise Refusal("this constant is too large", f"constants go up to {LARGEST:.0e}")
    if abs(number) < 1 / LARGEST:
        raise Refusal("this constant is zero or too close to it", "write 0, or scale the problem")
    return number


def _power(base: float, exponent: float, *, integer: bool) -> float:
    """base**exponent, where ``integer`` says whether the exponent is a whole number."""
    if base == 0 and exponent < 0:
        raise Refusal("division by zero")
    if base < 0 and not integer:
        raise Refusal("a negative number to a fractional power is complex", "only real numbers are accepted")
    try:
        value = base**exponent
    except OverflowError:
        value = inf
    return value if base == 0 else check_range(value)


def _estimate(record: Operation) -> Callable[[float], float]:
    def estimate(z: float) -> float:
        if z <= record.domain:
            raise Refusal("the logarithm of zero or a negative number", "only real numbers are accepted")
        if abs(z) > record.largest and record.is_periodic:
            raise Refusal(f"this angle is larger than {record.largest:.0e}", "take off multiples of 2*pi")
        if abs(z) > record.largest:
            raise Refusal(f"exp of a number near {z:.3g} is too {'large' if z > 0 else 'small'}")
        return float((record.compiled or record.rule("numpy"))(z))  # of one float, without a library to import

    return estimate


ESTIMATES: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {name: _estimate(record) for name, record in FUNCTIONS.items()}
)
