"""Each rule of each record left out, and each replaced by a wrong one: the checks of ``test_operations`` see it."""

from __future__ import annotations

from dataclasses import MISSING, fields, replace
from fractions import Fraction
from typing import Any

import mpmath
import numpy as np
import pytest
import sympy as sp
from flint import arb, fmpq
from test_operations import CHECKS

from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.graph.operations.record import Operation, Shape, Source

# one wrong rule, or several of which none is right for any operation
WRONG: dict[str, list[Any]] = {
    "name": ["nonsense"],
    "arity": [7],
    "shape": [
        Shape("monotone", -9.0, 9.0),
        Shape("rising", -9.0, 9.0),
        Shape("wave", shift=0.2),
        Shape("switch"),
        Shape("own"),
    ],
    "sympy": [sp.sec, lambda *a: a[0] if a else sp.S.One],
    "in_text": [],
    "habits": [("exp",), ("gibberish",), ("erfc",)],
    "domain": [-0.5, 1.0],
    "largest": [5.0, 700.0],
    "derivative": [lambda graph, z, *_: graph.power(z, 5)],
    "folded": [lambda q: fmpq(7, 3)],
    "numpy": [lambda *a, **_: 1.001 * np.asarray(a[0])],
    "composed": [],
    "compiled": [lambda value: 1.001 * value],
    "mpmath": [lambda *a: mpmath.mpf(1) / 7],
    "ball": [lambda *a: arb(1) / 7],
    "smooth_ball": [lambda *a: arb(1) / 7],
    "series": [lambda series: series * series * series + 1],
    "source": [Source("0.1*abs({})")],
    "inverse": [lambda r, _: (r + 7,)],
    "undoes": ["cosh"],
    "in_exp": [],
    "excess": [-3.0, 1e6, 90.0],
    "bounds": [lambda T: (Fraction(1, 100),) * 5, lambda T: (Fraction(10**9),) * 5],
}
DEFAULTS = {field.name: field.default for field in fields(Operation)}
# of a function in text, the limit of exp is that of its relatives too, and other habits are known of abs alone
HARMLESS: set[tuple[str, str, Any]] = {
    ("largest", "exp", 700.0),
    ("largest", "sinh", 700.0),
    ("largest", "cosh", 700.0),
}
HARMLESS |= {("largest", "softplus", 700.0), ("largest", "sigmoid", 700.0), ("habits", "abs", ())}


def twice_too_loose(record: Operation) -> list[Operation]:
    """The record with a bound of one derivative doubled, for each of them."""

    def doubled(order: int) -> Any:
        return lambda T: tuple((1 + (k == order)) * bound for k, bound in enumerate(record.rule("bounds")(T)))

    return [replace(record, bounds=doubled(order)) for order in range(5)] if record.bounds else []


def defects(record: Operation, rule: str) -> list[Operation]:
    """The record without a rule that it has, and with wrong ones."""
    value, default = getattr(record, rule), DEFAULTS[rule]
    wrong = [other for other in WRONG[rule] if other != value]
    if isinstance(value, bool):
        wrong.append(not value)
    elif default is not MISSING and value != default:
        wrong.append(default)
    wrong = [other for other in wrong if not any((rule, record.name, other) == known for known in HARMLESS)]
    found = [replace(record, **{rule: other}) for other in wrong]
    return found + (twice_too_loose(record) if rule == "bounds" else [])


def passes(record: Operation, rule: str) -> bool:
    """Whether the check of a rule sees nothing; a rule that cannot even be called is seen."""
    try:
        with np.errstate(all="ignore"):
            CHECKS[rule](record)
    except Exception:  # noqa: BLE001  whatever a planted defect raises
        return False
    return True


@pytest.mark.slow
@pytest.mark.parametrize(
    "rule", [pytest.param(rule, marks=pytest.mark.slow) if rule in ("habits", "bounds") else rule for rule in WRONG]
)
def test_a_missing_or_wrong_rule_is_seen(rule: str) -> None:
    planted = [(record, defect) for record in OPERATIONS.values() for defect in defects(record, rule)]
    assert len(planted) >= len(OPERATIONS) or DEFAULTS[rule] is None
    unseen = [f"{getattr(defect, rule)!r} for {record.name}" for record, defect in planted if passes(defect, rule)]
    assert not unseen


AT_THE_SWITCH: dict[str, dict[str, Any]] = {
    "le": {
        "numpy": lambda a: np.where(np.isnan(a), np.nan, a < 0),
        "mpmath": lambda a: mpmath.mpf(a < 0),
        "ball": lambda a: arb(int(a < 0)),
    },
    "lt": {
        "numpy": lambda a: np.where(np.isnan(a), np.nan, a <= 0),
        "mpmath": lambda a: mpmath.mpf(a <= 0),
        "ball": lambda a: arb(int(a <= 0)),
    },
    "sign": {
        "numpy": lambda a: np.where(np.isnan(a), np.nan, np.where(a < 0, -1.0, 1.0)),
        "mpmath": lambda a: mpmath.mpf(1 if a >= 0 else -1),
        "ball": lambda a: arb(1 if a >= 0 else -1),
    },
    "abs": {"mpmath": lambda a: abs(a) if a else mpmath.mpf(1)},
    "select": {"numpy": lambda c, a, b: np.where(np.isnan(c), np.nan, np.where(c >= 0, a, b))},
    "max": {"numpy": lambda a, b: np.where(a == b, a + 1, np.maximum(a, b))},
    "min": {"mpmath": lambda a, b: a if a < b else b if b < a else a - 1},
}


@pytest.mark.parametrize(("name", "rule"), [(name, rule) for name, rules in AT_THE_SWITCH.items() for rule in rules])
def test_a_wrong_side_of_a_switch_is_seen(name: str, rule: str) -> None:
    assert passes(OPERATIONS[name], rule)
    assert not passes(replace(OPERATIONS[name], **{rule: AT_THE_SWITCH[name][rule]}), rule)


def test_a_root_without_guard_bits_is_seen() -> None:
    assert passes(OPERATIONS["rpow"], "mpmath")
    assert not passes(replace(OPERATIONS["rpow"], mpmath=lambda a, p, q: mpmath.root(a, q) ** p), "mpmath")


@pytest.mark.slow
def test_every_rule_is_planted() -> None:
    assert set(WRONG) == set(CHECKS) == set(DEFAULTS)
    assert all(passes(OPERATIONS[name], rule) for name in ("exp", "erf", "select") for rule in CHECKS)
