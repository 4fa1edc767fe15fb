"""``verify`` and ``check``: verdicts on statements of a theory, and on a function of a user."""

from __future__ import annotations

import math
from collections.abc import Sequence
from typing import Any

from bilevel_sym.campaigns.context import Setting
from bilevel_sym.campaigns.functions import imported
from bilevel_sym.campaigns.kinds.record import Kind, Row
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.verifier import verifier

__all__ = ["OWN"]

NUMBERS = ("tightness", "measured", "bound")
CHECKS = ("hypergradient", "hessian", "lower_solution")


def _verify(setting: Setting, seeds: Sequence[int | None]) -> list[Row]:
    """All claims of a theory, or those that are named, with commas between them, in one row."""
    given = dict(setting.parameters)
    labels = [label.strip() for label in str(given.pop("claims", "")).split(",") if label.strip()]
    rows = []
    for seed in seeds:
        report = verifier("runner").run(setting.problem, claims=labels or None, rng=seed, **given)
        if report.interrupted:
            raise KeyboardInterrupt
        rows.append(_report_row(report.results))
    return rows


def _report_row(results: Sequence[Any]) -> Row:
    verdicts = [str(result.verdict) for result in results]
    numbers = {name: [_number(getattr(result, name)) for result in results] for name in NUMBERS}
    counts = {name.lower(): verdicts.count(name) for name in ("HOLDS", "VIOLATED", "INCONCLUSIVE", "NOT_APPLICABLE")}
    labels = [f"{result.label} {result.part}".strip() for result in results]
    return {**counts, "labels": labels, "verdicts": verdicts, **numbers}


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)


def _check(setting: Setting, seeds: Sequence[int | None]) -> list[Row]:
    given = dict(setting.parameters)
    of, text = str(given.pop("of", CHECKS[0])), str(given.pop("function"))
    if of not in CHECKS:
        raise InvalidArgument(f"of={of!r:.40}", hint=" or ".join(map(repr, CHECKS)))
    function = imported(text, setting.context.folders)
    check = getattr(verifier("testkit.checks"), f"check_{of}")
    rows = []
    for seed in seeds:
        result = check(lambda x: function(setting.problem, x), setting.problem, rng=seed, **given)
        row = {"verdict": str(result.verdict), "digits": _number(result.digits), "cause": result.cause}
        rows.append(row | {"error": _number(result.measured), "floor": _number(result.bound), "said": result.summary})
    return rows


OWN = (
    Kind("verify", _verify, frozenset({"claims", "theory", "effort", "variant", "memory"})),
    Kind("check", _check, frozenset({"function", "of", "effort"}), wants=("function",)),
)
