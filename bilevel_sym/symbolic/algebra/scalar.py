"""One equation in one unknown: its roots in radicals and elementary functions, as formulas.

Two moves, repeated: invert the outermost operation where the unknown stands in one place; otherwise write the equation
as a polynomial in one generator (y, exp(y), y**(1/3), ...) and solve that. The roots that are found contain every
real root; which of them are real, and which one is meant, is decided elsewhere, and so is the proof.
"""

from __future__ import annotations

from collections.abc import Mapping
from collections.abc import Set as AbstractSet
from dataclasses import dataclass, replace
from functools import reduce
from math import gcd
from types import MappingProxyType

import sympy as sp

from bilevel_sym.graph.expressions import postorder, substitute, symbols_in
from bilevel_sym.graph.operations import FUNCTIONS
from bilevel_sym.symbolic.algebra.field import Field, TooLarge, normal_form, shortest
from bilevel_sym.symbolic.algebra.linear import elementary, exponentiated
from bilevel_sym.symbolic.blocks import derivative

__all__ = ["Root", "Unsolved", "containing", "real_root", "roots"]

MAX_FACTOR_TERMS = 40  # polynomials up to here are factored: milliseconds in python-flint
MAX_FACTOR_DEGREE = 12
MAX_DEGREE = 64  # beyond it only what is inverted step by step is solved
MAX_COEFFICIENT_NODES = 150  # under a root sign: SymPy asks for the sign of each radicand, term by term
MAX_ROOTS = 12  # formulas for one unknown; more would mean nested cases that nobody can read

_FUNCTIONS = MappingProxyType({record.sympy: record for record in FUNCTIONS.values() if record.inverse is not None})
_DEGREES = MappingProxyType({1: "linear", 2: "quadratic", 3: "cubic (radicals)"})


class Unsolved(Exception):
    """No closed form was found; the message says why, ``equation`` is the expression that should be zero.

    >>> str(Unsolved("too large"))
    'too large'
    """

    def __init__(self, reason: str, equation: sp.Expr | None = None) -> None:
        super().__init__(reason)
        self.equation = equation


@dataclass(frozen=True, slots=True)
class Root:
    """A formula for the unknown, where it may be used, and how it was found.

    ``positive`` must be positive for the formula to be meant; ``convex``: it is, where g is strongly convex on
    the whole line. ``local`` says that it is right only where g is
    convex on an interval of the unknown, not on the whole line. ``ranges`` are pairs (kernel, value): kernel(y) =
    value was inverted as if value were in the range of the kernel, as sqrt(y) = x by y = x**2.
    """

    value: sp.Expr
    how: str = "inverted"
    kernel: sp.Expr | None = None  # linear, quadratic, cubic in what
    positive: sp.Expr | None = None
    convex: bool = False
    local: bool = False
    ranges: tuple[tuple[sp.Expr, sp.Expr], ...] = ()


def roots(equation: sp.Expr, y: sp.Symbol) -> list[Root]:
    """Formulas among which every real root of ``equation = 0`` is found; Unsolved where there are none.

    >>> x, y = sp.symbols("x y", real=True)
    >>> [root.value for root in roots(sp.exp(2*y) - x, y)]
    [log(x)/2]
    >>> [root.value for root in roots(y - x - 1/y, y)]
    [x/2 + sqrt(x**2 + 4)/2, x/2 - sqrt(x**2 + 4)/2]
    """
    try:
        found = list(dict.fromkeys(_invert(equation, sp.S.Zero, y)))
    except (TooLarge, ZeroDivisionError) as error:
        raise Unsolved(f"is too large to solve exactly ({error})", equation) from None
    if len(found) > MAX_ROOTS:
        raise Unsolved("has too many branches", equation)
    return found


def containing(expression: sp.Basic, symbols: AbstractSet[sp.Symbol]) -> set[int]:
    """The ids of the nodes in which one of the symbols occurs.

    >>> x, y = sp.symbols("x y")
    >>> len(containing(x + sp.sin(y), {y}))
    3
    """
    inside: set[int] = set()
    for node in postorder(expression):
        if node in symbols or any(id(child) in inside for child in node.args):
            inside.add(id(node))
    return inside


def real_root(z: sp.Expr, k: int) -> sp.Expr:
    """The real k-th root of a real z, for odd k of either sign; SymPy's z**(1/3) is complex for z < 0.

    >>> x = sp.Symbol("x", real=True)
    >>> real_root(x, 3), real_root(sp.Integer(-8), 3)
    (Abs(x)**(1/3)*sign(x), -2)
    """
    power = sp.Rational(1, k)
    if z.is_nonnegative:
        return z**power
    return -((-z) ** power) if z.is_nonpositive else sp.sign(z) * sp.Abs(z) ** power


# ---- inverting the outermost operation ---------------------------------------------------------------


def _invert(left: sp.Expr, right: sp.Expr, y: sp.Symbol) -> list[Root]:
    """The roots of left = right, where right is free of y."""
    if left == y:
        return [Root(right)]
    if isinstance(left, (sp.Add, sp.Mul)):
        return _invert_arithmetic(left, right, y)
    if isinstance(left, sp.Pow):
        return _invert_power(left, right, y)
    if left.func not in _FUNCTIONS:
        raise Unsolved(f"contains {left.func}, which this solver does not invert", left - right)
    record = _FUNCTIONS[left.func]
    values = record.rule("inverse")(right, normal_form)
    found = [root for r in values for root in _invert(left.args[0], r, y)]
    if record.undoes and FUNCTIONS[record.undoes].is_periodic:
        found = _in_range(found, left, right)
    return [replace(root, local=root.local or record.is_periodic) for root in found]


def _in_range(found: list[Root], kernel: sp.Expr, value: sp.Expr) -> list[Root]:
    return [replace(root, ranges=(*root.ranges, (kernel, value))) for root in found]


def _invert_arithmetic(left: sp.Expr, right: sp.Expr, y: sp.Symbol) -> list[Root]:
    """A sum or product: what is free of y goes to the other side."""
    parts = [part for part in left.args if y in symbols_in(part)]
    free = left.func(*(part for part in left.args if y not in symbols_in(part)))
    if len(parts) == 1:
        other = right - free if isinstance(left, sp.Add) else right / free
        return _invert(parts[0], shortest(other), y)
    if isinstance(left, sp.Mul) and right.is_zero:
        return [root for part in parts for root in _invert(part, right, y)]
    return _by_generator(left - right, y)


def _invert_power(left: sp.Pow, right: sp.Expr, y: sp.Symbol) -> list[Root]:
    base, exponent = left.args
    if y in symbols_in(exponent):
        if y in symbols_in(base):
            raise Unsolved("has its unknown in a base and in its exponent", left - right)
        return [] if right.is_zero else _invert(exponent, sp.log(right) / sp.log(base), y)
    if right.is_zero:
        return _invert(base, right, y) if exponent.is_positive else []
    if not exponent.is_Integer:
        return _in_range(_invert(base, right ** (1 / exponent), y), left, right)
    n, value = abs(int(exponent)), right if exponent > 0 else 1 / right
    if n == 1:
        return _invert(base, value, y)
    if n % 2:
        return _invert(base, real_root(value, n), y)
    even = value ** sp.Rational(1, n)
    return _invert(base, even, y) + _invert(base, -even, y)


# ---- a polynomial in one generator -------------------------------------------------------------------


def _by_generator(equation: sp.Expr, y: sp.Symbol) -> list[Root]:
    """The equation as a polynomial in one function of y; its roots, each inverted for y."""
    kernel, u, in_u = _single_generator(equation, y)
    if u is None:
        return [replace(root, how=f"{root.how} after exponentiating") for root in roots(in_u, y)]
    found = []
    factors, entire = _factors(in_u, u, equation)
    for coefficients in factors:
        low = min(coefficients)
        if low > 0:
            found += _invert(kernel, sp.S.Zero, y)
        step = reduce(gcd, (k - low for k in coefficients)) or 1
        power = kernel**step  # a polynomial in u**2 gives u**2, and then u
        values = {(k - low) // step: c for k, c in coefficients.items()}
        for root in _polynomial_roots(values, equation, plain=entire and power == y):
            found += [
                replace(root, value=r.value, kernel=power, ranges=r.ranges, local=root.local or r.local)
                for r in _invert(power, root.value, y)
            ]
    return found


def _single_generator(equation: sp.Expr, y: sp.Symbol) -> tuple[sp.Expr, sp.Symbol | None, sp.Expr]:
    """A generator u = h(y) and the equation in u; without u, an equivalent equation to start again from."""
    for form in dict.fromkeys((equation, elementary(equation))):
        kernels = _kernels(form, y)
        u = sp.Dummy("u", real=True)
        if len(kernels) == 1:
            return kernels[0], u, substitute(form, {kernels[0]: u})
        if all(isinstance(kernel, sp.exp) for kernel in kernels):
            merged = _merge_exponentials(form, kernels, y, u)
        elif all(isinstance(kernel, sp.log) for kernel in kernels):
            return y, None, _without_logarithms(form, y)
        else:
            merged = _merge_roots(form, kernels, y, u)
        if merged is not None:
            return merged[0], u, merged[1]
    raise Unsolved("has no solution in radicals or elementary functions that this solver knows", equation)


def _kernels(equation: sp.Expr, y: sp.Symbol) -> list[sp.Expr]:
    """The functions of y of which the equation is a rational function."""
    found: dict[sp.Expr, None] = {}
    inside = containing(equation, {y})
    stack = [equation]
    while stack:
        node = stack.pop()
        if id(node) not in inside:
            continue
        if isinstance(node, (sp.Add, sp.Mul)):
            stack.extend(node.args)
        elif isinstance(node, sp.Pow) and node.exp.is_Integer:
            stack.append(node.base)
        else:
            found[node] = None
    return list(found)


def _merge_exponentials(
    equation: sp.Expr, kernels: list[sp.Expr], y: sp.Symbol, u: sp.Symbol
) -> tuple[sp.Expr, sp.Expr] | None:
    """exp(a + k*c) for integers k as exp(a)*u**k with u = exp(c), where the arguments allow it."""
    split = [kernel.args[0].as_independent(y, as_Add=True) for kernel in kernels]
    first = max((part for _, part in split), key=lambda part: not part.could_extract_minus_sign())
    ratios = [normal_form(part / first) for _, part in split]
    if not all(ratio.is_Rational for ratio in ratios):
        return None
    unit = reduce(sp.gcd, ratios)
    new = [sp.exp(a) * u ** (ratio / unit) for (a, _), ratio in zip(split, ratios, strict=True)]
    return sp.exp(unit * first), substitute(equation, dict(zip(kernels, new, strict=True)))


def _merge_roots(
    equation: sp.Expr, kernels: list[sp.Expr], y: sp.Symbol, u: sp.Symbol
) -> tuple[sp.Expr, sp.Expr] | None:
    """Rational powers of one b = m*y + c, and y itself, by u = b**(1/q)."""
    powers = [kernel for kernel in kernels if kernel != y]
    if not all(isinstance(kernel, sp.Pow) and kernel.exp.is_Rational for kernel in powers):
        return None
    bases = {kernel.base for kernel in powers}
    if len(bases) != 1:
        return None
    (base,) = bases
    slope = derivative(base, y)
    if y in symbols_in(slope) or slope.is_zero:
        return None
    order = reduce(sp.ilcm, (kernel.exp.q for kernel in powers))
    mapping = {kernel: u ** (kernel.exp * order) for kernel in powers}
    mapping[y] = (u**order - substitute(base, {y: sp.S.Zero})) / slope
    return base ** sp.Rational(1, order), substitute(equation, mapping)


def _without_logarithms(equation: sp.Expr, y: sp.Symbol) -> sp.Expr:
    """exp of a sum of logarithms, minus 1."""
    product = exponentiated(equation)
    if product is None or any(isinstance(k, (sp.log, sp.exp)) for k in _kernels(product, y)):
        raise Unsolved("has no solution in elementary functions that this solver knows", equation)
    return normal_form(product - 1)


def _factors(in_u: sp.Expr, u: sp.Symbol, equation: sp.Expr) -> tuple[list[dict[int, sp.Expr]], bool]:
    """The factors of the numerator that contain u, as power -> coefficient; whether the denominator has no u."""
    field = Field([in_u, u])
    num, den = field.cancel(field.reduced(field(in_u)))
    degree = num.degrees()[field.generators.index(u)]
    if degree > MAX_DEGREE:
        raise Unsolved(f"is of degree {degree}, and {MAX_DEGREE} is the limit", equation)
    small = len(num) <= MAX_FACTOR_TERMS and num.total_degree() <= MAX_FACTOR_DEGREE
    factors = [factor for factor, _ in num.factor()[1]] if small else [num]
    found = []
    for factor in factors:
        parts = {powers[0]: part for powers, part in field.coefficients(factor, u).items()}
        if max(parts) > 0:
            found.append({k: field.polynomial(part) for k, part in parts.items()})
    return found, max(field.coefficients(den, u)) == (0,)


# ---- polynomials -------------------------------------------------------------------------------------


def _polynomial_roots(values: Mapping[int, sp.Expr], equation: sp.Expr, *, plain: bool) -> list[Root]:
    """The real roots of a polynomial given as power -> coefficient."""
    degree = max(values)
    a, b, c, d = (values.get(degree - k, sp.S.Zero) for k in range(4))
    if degree == 1:
        return [Root(shortest(-b / a), _DEGREES[1])]
    if degree == 2:
        return _quadratic_roots(a, b, c)
    if degree == 3:
        return _cubic_roots(a, b, c, d, plain=plain)
    return _binomial_roots(values, equation) if degree else []


def _quadratic_roots(a: sp.Expr, b: sp.Expr, c: sp.Expr) -> list[Root]:
    """a u^2 + b u + c: the derivative at the roots is +sqrt(D) and -sqrt(D), in this order."""
    content, primitive = _limited(shortest(b**2 - 4 * a * c)).primitive()
    outer = sp.sqrt(content)
    root = outer * sp.sqrt(primitive) if outer.is_Rational else sp.sqrt(content * primitive)
    if not a.is_nonzero and c.is_nonzero:  # the same roots, but defined, and exact in floats, where a vanishes
        return [Root(-2 * c / (b + sign * root), _DEGREES[2]) for sign in (1, -1)]
    return [Root((sign * root - b) / (2 * a), _DEGREES[2]) for sign in (1, -1)]


def _limited(radicand: sp.Expr) -> sp.Expr:
    if sum(1 for _ in postorder(radicand)) > MAX_COEFFICIENT_NODES:
        raise TooLarge("a radicand with too many terms")
    return radicand


def _cubic_roots(a: sp.Expr, b: sp.Expr, c: sp.Expr, d: sp.Expr, *, plain: bool) -> list[Root]:
    """The real roots of t^3 + p t + q, with t = u + b/(3a).

    For p > 0 there is one, by Cardano's formula, with a cube root of a positive number. A cubic in y itself
    is the derivative of a function that is strongly convex on the whole line only if p > 0.
    """
    shift = shortest(b / (3 * a))
    p = shortest(c / a - b**2 / (3 * a**2))
    q = shortest(2 * b**3 / (27 * a**3) - b * c / (3 * a**2) + d / a)
    if p.is_zero:
        return [Root(real_root(-q, 3) - shift, _DEGREES[3])]
    discriminant = _limited(shortest(q**2 / 4 + p**3 / 27))
    inner = -q / 2 + sp.sqrt(discriminant)
    simple = Root(_cardano(p, inner ** sp.Rational(1, 3)) - shift, _DEGREES[3], positive=p, convex=plain)
    if p.is_positive:
        return [simple]
    single = _cardano(p, real_root(inner, 3))
    outer = _vieta(p, q), -_vieta(p, -q)
    general = [sp.Piecewise((single, discriminant >= 0), (one, True)) for one in outer]
    return [simple, *(Root(t - shift, "cubic", local=plain) for t in general)]


def _cardano(p: sp.Expr, cube: sp.Expr) -> sp.Expr:
    return cube - p / (3 * cube)


def _vieta(p: sp.Expr, q: sp.Expr) -> sp.Expr:
    """The largest root where there are three: 2 sqrt(-p/3) cos(angle/3), since 4c^3 - 3c = cos(angle)."""
    scale = sp.sqrt(shortest(-p / 3))
    return 2 * scale * sp.cos(sp.acos(shortest(3 * q / (2 * p)) / scale) / 3)


def _binomial_roots(values: Mapping[int, sp.Expr], equation: sp.Expr) -> list[Root]:
    """a (u + s)^n + c, whatever it looks like when expanded."""
    n, u = max(values), sp.Dummy("u", real=True)
    shift = shortest(values.get(n - 1, sp.S.Zero) / (n * values[n]))
    moved = sp.Add(*(c * (u - shift) ** k for k, c in values.items()))
    field = Field([moved, u])
    value = field.cancel(field.reduced(field(moved)))
    parts = {powers[0]: part for powers, part in field.coefficients(value.num, u).items()}
    if set(parts) - {0, n}:
        raise Unsolved(f"is of degree {n} and has no solution in radicals that this solver knows", equation)
    constant = sp.S.Zero if 0 not in parts else field.polynomial(parts[0]) / field.polynomial(parts[n])
    return [replace(root, value=root.value - shift, how="power") for root in _invert(u**n, -constant, u)]
