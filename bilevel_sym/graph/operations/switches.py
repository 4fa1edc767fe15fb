"""Operations that are one of their arguments, or one of a few constants.

In balls the answer at a switching point (``lt``, ``le``, ``sign`` of a ball with zero in it, exact zero included) is
open: a derivative is certain there only if both branches agree. For proofs that need smoothness all over a ball nothing
is claimed there. A hull would be true of values, but the mean value theorem fails across a jump, and branches that
agree at a point need not agree next to it.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import mpmath
import numpy as np
import sympy as sp
from flint import arb, fmpq

from bilevel_sym.graph.operations.record import NAN, ZERO_TO_ONE, Operation, Shape, Source, positive

__all__ = ["RECORDS"]


# ---- SymPy ----------------------------------------------------------------------------------------------------


def _select(condition: sp.Expr, a: sp.Expr, b: sp.Expr) -> sp.Expr:
    """Conditions are numbers in the graph; a comparison is built back where it is one."""
    if isinstance(condition, sp.Piecewise) and condition.args[0].expr == 1 and condition.args[-1].expr == 0:
        return sp.Piecewise((a, condition.args[0].cond), (b, True), evaluate=False)
    return sp.Piecewise((a, condition > 0), (b, True), evaluate=False)


def _indicator(condition: sp.Basic) -> sp.Expr:
    return sp.Piecewise((sp.S.One, condition), (sp.S.Zero, True), evaluate=False)


# ---- floats and mpmath: nan goes on through comparisons ---------------------------------------------------------


def _float_indicator(test: Callable[[Any], Any]) -> Callable[[Any], Any]:
    return lambda a: np.where(np.isnan(a), np.nan, test(a))


def _digits_indicator(test: Callable[[Any], bool]) -> Callable[[Any], Any]:
    return lambda a: a if mpmath.isnan(a) else mpmath.mpf(bool(test(a)))


# ---- balls ------------------------------------------------------------------------------------------------------


def _ball_min(a: Any, b: Any) -> Any:
    if a <= b:
        return a
    return b if b <= a else a.min(b)


def _ball_max(a: Any, b: Any) -> Any:
    if a >= b:
        return a
    return b if b >= a else a.max(b)


def _by_sign(below: int, above: int, between: Any) -> Callable[[Any], Any]:
    """A constant on either side of zero; ``between`` where zero is in the ball, exact zero included."""

    def rule(x: Any) -> Any:
        if x < 0 or x > 0:
            return arb(below if x < 0 else above)
        return NAN if x.is_nan() else between

    return rule


def _ball_select(c: Any, a: Any, b: Any) -> Any:
    if c.is_nan():
        return NAN
    if c != 0:
        return a
    return b if c.is_zero() else a.union(b)


def _smooth_select(c: Any, a: Any, b: Any) -> Any:
    if c != 0:
        return a
    return b if c.is_zero() else NAN


def _flat(graph: Any, z: Any, itself: Any) -> Any:
    return z.scaled(fmpq(0))


def _sign(z: fmpq) -> int:
    return int(z > 0) - int(z < 0)


def _extremum(name: str) -> Source:
    """Of two; PyTorch wants tensors, and has numbers beside them in formulas."""
    twin = f"def {name}(a, b):\n    return torch.{name}(tensor(a), tensor(b))"
    return Source(f"np.{name}({{}})", {"torch": f"{name}({{}})"}, {"torch": twin})


_SWITCH = Shape("switch")

RECORDS = (
    Operation(
        name="abs", sympy=sp.Abs, in_text=True, habits=("fabs",), shape=_SWITCH, folded=lambda z: z * _sign(z),
        derivative=lambda graph, z, itself: graph.apply("sign", z), numpy=np.abs, mpmath=abs,
        ball=lambda x: positive(abs(x)), source=Source("abs({})"),
    ),
    Operation(
        name="sign", sympy=sp.sign, shape=_SWITCH, derivative=_flat, folded=lambda z: fmpq(_sign(z)), numpy=np.sign,
        mpmath=mpmath.sign, ball=_by_sign(-1, 1, arb(0, 1)), smooth_ball=_by_sign(-1, 1, NAN),
        source=Source("np.sign({})"),
    ),
    Operation(
        name="min", arity=2, sympy=sp.Min, in_text=True, shape=_SWITCH, numpy=np.minimum,
        mpmath=lambda a, b: a if a <= b or mpmath.isnan(a) else b, ball=_ball_min, source=_extremum("minimum"),
    ),
    Operation(
        name="max", arity=2, sympy=sp.Max, in_text=True, shape=_SWITCH, numpy=np.maximum,
        mpmath=lambda a, b: a if a >= b or mpmath.isnan(a) else b, ball=_ball_max, source=_extremum("maximum"),
    ),
    Operation(
        name="lt", sympy=lambda a: _indicator(sp.StrictLessThan(a, 0, evaluate=False)), shape=_SWITCH, derivative=_flat,
        folded=lambda z: fmpq(int(z < 0)), numpy=_float_indicator(lambda a: a < 0),
        mpmath=_digits_indicator(lambda a: a < 0), ball=_by_sign(1, 0, ZERO_TO_ONE), smooth_ball=_by_sign(1, 0, NAN),
    ),
    Operation(
        name="le", sympy=lambda a: _indicator(sp.LessThan(a, 0, evaluate=False)), shape=_SWITCH, derivative=_flat,
        folded=lambda z: fmpq(int(z <= 0)), numpy=_float_indicator(lambda a: a <= 0),
        mpmath=_digits_indicator(lambda a: a <= 0), ball=_by_sign(1, 0, ZERO_TO_ONE), smooth_ball=_by_sign(1, 0, NAN),
    ),
    Operation(
        name="select", arity=3, sympy=_select, shape=_SWITCH,
        numpy=lambda c, a, b: np.where(np.isnan(c), np.nan, np.where(c != 0, a, b)),
        mpmath=lambda c, a, b: c if mpmath.isnan(c) else a if c != 0 else b, ball=_ball_select,
        smooth_ball=_smooth_select,
    ),
)  # fmt: skip
