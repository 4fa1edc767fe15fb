"""Functions of one number or of a vector of lanes, in numba's dialect; an operation's code says which.

The arithmetic takes a number or a vector of lanes (``vectors``) and is the same, rounding by rounding, for both. exp,
log1p and tanh are written out, to about one unit in the last place; what a record leaves to the C library goes through
it lane by lane.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import Any

import numba
from numba.core import cgutils
from numba.extending import intrinsic

from bilevel_sym.arithmetic.compiled.cache import kept
from bilevel_sym.arithmetic.compiled.vectors import (
    ROUNDER,
    choose_equal,
    choose_le,
    choose_less,
    choose_nan,
    fma,
    power_of_two,
    size,
    with_sign,
)
from bilevel_sym.graph.operations import OPERATIONS

__all__ = ["CODES", "inlined", "jit", "library", "spliced", "strict", "unary"]

LOG2E, LN2_HIGH, LN2_LOW = 1.4426950408889634, 6.93147180369123816490e-01, 1.90821492927058770002e-10


def jit(function: Any) -> Any:
    """Compile what need not be the same in all lanes and alone."""
    return kept(numba.njit(nogil=True, error_model="numpy", fastmath={"contract", "nsz"})(function))


# nothing is allocated there, and counting references to arrays, which numba does wherever a function branches, would
# cost more than the arithmetic
_STRICT: Any = MappingProxyType({"nogil": True, "error_model": "numpy", "_nrt": False})


def strict(function: Any) -> Any:
    """Compile what must be the same: the optimiser may not change a rounding."""
    return kept(numba.njit(**_STRICT)(function))


inlined = numba.njit(forceinline=True, **_STRICT)
# part of its caller from the start: a function that holds the interpreter is not compiled, with it, by itself
spliced = numba.njit(inline="always", **_STRICT)


# ---- arithmetic on a number or on a vector of lanes ------------------------------------------------------


@inlined
def _exp_minus_one(r):
    """exp(r) - 1 for |r| <= ln(2)/2, by its series."""
    p = fma(r, 1.6059043836821613e-10, 2.08767569878681e-09)
    p = fma(p, r, 2.505210838544172e-08)
    p = fma(p, r, 2.755731922398589e-07)
    p = fma(p, r, 2.7557319223985893e-06)
    p = fma(p, r, 2.48015873015873e-05)
    p = fma(p, r, 1.984126984126984e-04)
    p = fma(p, r, 1.388888888888889e-03)
    p = fma(p, r, 8.333333333333333e-03)
    p = fma(p, r, 4.1666666666666664e-02)
    p = fma(p, r, 1.6666666666666666e-01)
    p = fma(p, r, 0.5)
    return fma(r * r, p, r)


@inlined
def _reduced(t):
    """(k, r) with t = k ln 2 + r, k whole and |r| about ln(2)/2 at most."""
    whole = fma(t, LOG2E, ROUNDER) - ROUNDER
    return whole, fma(whole, -LN2_LOW, fma(whole, -LN2_HIGH, t))


@strict
def exp(z):
    """The exponential function."""
    # beyond this it is 0 or inf whatever the lane
    t = choose_less(z, 710.0, z, 710.0)
    whole, r = _reduced(choose_less(-746.0, t, t, -746.0))
    # 2**whole in two factors: results below the normal range lose digits, not everything
    half = fma(whole, 0.5, ROUNDER) - ROUNDER
    value = (1.0 + _exp_minus_one(r)) * power_of_two(half) * power_of_two(whole - half)
    return choose_nan(z, z, value)


@inlined
def _log1p_unit(e):
    """log(1 + e) for 0 <= e <= 1: 2 atanh(e/(2 + e)), by its series."""
    s = e / (2.0 + e)
    q = s * s
    p = fma(q, 1.0 / 35.0, 1.0 / 33.0)
    p = fma(p, q, 1.0 / 31.0)
    p = fma(p, q, 1.0 / 29.0)
    p = fma(p, q, 1.0 / 27.0)
    p = fma(p, q, 1.0 / 25.0)
    p = fma(p, q, 1.0 / 23.0)
    p = fma(p, q, 1.0 / 21.0)
    p = fma(p, q, 1.0 / 19.0)
    p = fma(p, q, 1.0 / 17.0)
    p = fma(p, q, 1.0 / 15.0)
    p = fma(p, q, 1.0 / 13.0)
    p = fma(p, q, 1.0 / 11.0)
    p = fma(p, q, 1.0 / 9.0)
    p = fma(p, q, 1.0 / 7.0)
    p = fma(p, q, 1.0 / 5.0)
    p = fma(p, q, 1.0 / 3.0)
    return fma(2.0 * s * q, p, 2.0 * s)


@inlined
def tanh(z):
    """tanh t = -m/(2 + m) with m = exp(-2 |t|) - 1, which keeps its digits near zero."""
    t = -2.0 * size(z)
    whole, r = _reduced(choose_less(-60.0, t, t, -60.0))
    power = power_of_two(whole)
    m = fma(power, _exp_minus_one(r), power - 1.0)
    return choose_nan(z, z, with_sign(m / (2.0 + m), z))


@inlined
def softplus(z):
    """log(1 + exp(z)), where exp sees no positive argument."""
    return choose_less(0.0, z, z, 0.0) + _log1p_unit(exp(-1.0 * size(z)))


@inlined
def sigmoid(z):
    """1/(1 + exp(-z)), likewise."""
    small = exp(-1.0 * size(z))
    return choose_le(0.0, z, 1.0, small) / (1.0 + small)


@inlined
def bell(z):
    """The derivative of sigmoid."""
    small = exp(-1.0 * size(z))
    return small / ((1.0 + small) * (1.0 + small))


@inlined
def sign(z):
    """-1, 0 or 1."""
    return choose_less(0.0, z, 1.0, choose_less(z, 0.0, -1.0, z))


@inlined
def negative(z):
    """1 where z < 0, else 0."""
    return choose_nan(z, z, choose_less(z, 0.0, 1.0, 0.0))


@inlined
def not_positive(z):
    """1 where z <= 0, else 0."""
    return choose_nan(z, z, choose_le(z, 0.0, 1.0, 0.0))


@inlined
def binary(op, a, b):
    """Product, or the smaller or larger of two; NaN in either argument is the answer."""
    if op == MUL:
        return a * b
    chosen = choose_less(a, b, a, b) if op == MIN else choose_less(a, b, b, a)
    return choose_nan(a, a, choose_nan(b, b, chosen))


@inlined
def select(c, a, b):
    """A where the condition c holds, b where it does not."""
    return choose_nan(c, c, choose_equal(c, 0.0, b, a))


@inlined
def highest_bit(exponent):
    """The position of the highest bit of |exponent|."""
    top = 0
    while (abs(exponent) >> (top + 1)) > 0:
        top += 1
    return top


@inlined
def whole_power(z, exponent, top):
    """By squaring, as ``arrays`` does; ``top`` is the highest bit of the exponent."""
    result = z
    for k in range(top - 1, -1, -1):
        result = result * result
        if (abs(exponent) >> k) & 1:
            result = result * z
    return 1.0 / result if exponent < 0 else result


# ---- codes -------------------------------------------------------------------------------------------------

# instructions with code of their own in ``interpreter``; their order is relied upon there
_OWN = ("lin", "plain", "sum", "dense", "mul", "min", "max", "select", "ipow", "rpow")
LIN, PLAIN, SUM, DENSE, MUL, MIN, MAX, SELECT, IPOW, RPOW = range(len(_OWN))

VECTORS: Mapping[str, Any] = MappingProxyType(
    {
        "exp": exp, "softplus": softplus, "sigmoid": sigmoid, "bell": bell, "tanh": tanh, "abs": size, "sign": sign,
        "lt": negative, "le": not_positive,
    }
)  # fmt: skip
"""Functions of a number or a vector, by the names of their operations."""

NUMBERS: Mapping[str, Callable[[float], float]] = MappingProxyType(
    {name: record.compiled for name, record in OPERATIONS.items() if record.compiled is not None}
)
"""Functions of one number: those of the C library."""

CODES: Mapping[str, int] = MappingProxyType({op: code for code, op in enumerate((*_OWN, *VECTORS, *NUMBERS))})
"""What each operation is called in a program."""

LAST_VECTOR = len(_OWN) + len(VECTORS) - 1
# in programs for one point: added to the code of a group whose entries go by eights or by fours
EIGHTS = 1 << len(CODES).bit_length()
FOURS = 2 * EIGHTS


def _chosen(functions: Mapping[str, Any]) -> Any:
    """One function of (op, z): by one jump to that of the code op."""

    @intrinsic
    def choose(typing, op, z):
        kinds = {CODES[name]: typing.resolve_value_type(function) for name, function in functions.items()}
        signatures = {code: kind.get_call_type(typing, (z,), {}) for code, kind in kinds.items()}

        def generate(context, builder, sig, args):
            result = cgutils.alloca_once(builder, args[1].type)
            end = builder.append_basic_block()
            jump = builder.switch(args[0], end)
            for code, kind in kinds.items():
                case = builder.append_basic_block()
                jump.add_case(context.get_constant(sig.args[0], code), case)
                with builder.goto_block(case):
                    builder.store(context.get_function(kind, signatures[code])(builder, args[1:]), result)
                    builder.branch(end)
            builder.position_at_end(end)
            return builder.load(result)

        return z(op, z), generate

    return choose


_vector, _number = _chosen(VECTORS), _chosen(NUMBERS)


@strict
def unary(op, z):
    """A function of ``VECTORS``, by its code."""
    return _vector(op, z)


@strict
def library(op, z):
    """A function of ``NUMBERS``, by its code."""
    return _number(op, z)
