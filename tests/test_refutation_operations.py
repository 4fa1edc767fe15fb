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
from bilevel_sym.graph.operations.record import Operation, Shape

# one wrong rule, or several of which none is right for any operation
WRONG: dict[str, list[Any]] = {
    "name": ["nonsense"],
    "arity": [7],
    "shape": [Shape("monotone", -9.0, 9.0), Shape("rising", -9.0, 9.0), Shape("wave", shift=0.2)],
    "sympy": [sp.sec, lambda *a: a[0] if a else sp.S.One],
    "in_text": [],
    "habits": [("exp",), ("gibberish",)],
    "domain": [-0.5, 1.0],
    "largest": [5.0],
    "derivative": [lambda graph, z, *_: graph.power(z, 5)],
    "folded": [lambda q: fmpq(7, 3)],
    "numpy": [lambda *a, **_: 1.001 * np.asarray(a[0])],
    "composed": [],
    "compiled": [lambda value: 1.001 * value],
    "mpmath": [lambda *a: mpmath.mpf(1) / 7],
    "ball": [lambda *a: arb(1) / 7],
    "smooth_ball": [lambda *a: arb(1) / 7],
    "series": [lambda series: series * series * series + 1],
    "source": ["0.1*abs({})"],
    "inverse": [lambda r, _: (r + 7,)],
    "undoes": ["cosh"],
    "in_exp": [],
    "excess": [-3.0, 1e6],
    "bounds": [lambda T: (Fraction(1, 100),) * 5, lambda T: (Fraction(10**9),) * 5],
}
DEFAULTS = {field.name: field.default for field in fields(Operation)}
# other values that are as good: what people try is theirs to know, and the interval of a switch is its arithmetic's
HARMLESS = {("habits", ()), ("excess", 0.0)}


def defects(record: Operation, rule: str) -> list[Operation]:
    """The record without a rule that it has, and with wrong ones."""
    value, default = getattr(record, rule), DEFAULTS[rule]
    wrong = [other for other in WRONG[rule] if other != value]
    if isinstance(value, bool):
        wrong.append(not value)
    elif default is not MISSING and value != default and (rule, default) not in HARMLESS:
        wrong.append(default)
    return [replace(record, **{rule: other}) for other in wrong]


def passes(record: Operation, rule: str) -> bool:
    """Whether the check of a rule sees nothing; a rule that cannot even be called is seen."""
    try:
        with np.errstate(all="ignore"):
            CHECKS[rule](record)
    except Exception:  # noqa: BLE001  whatever a planted defect raises
        return False
    return True


@pytest.mark.parametrize("rule", WRONG)
def test_a_missing_or_wrong_rule_is_seen(rule: str) -> None:
    planted = [(record, defect) for record in OPERATIONS.values() for defect in defects(record, rule)]
    assert len(planted) >= len(OPERATIONS) or DEFAULTS[rule] is None
    unseen = [f"{getattr(defect, rule)!r} for {record.name}" for record, defect in planted if passes(defect, rule)]
    assert not unseen


def test_every_rule_is_planted() -> None:
    assert set(WRONG) == set(CHECKS) == set(DEFAULTS)
    assert all(passes(OPERATIONS[name], rule) for name in ("exp", "erf", "select") for rule in CHECKS)
