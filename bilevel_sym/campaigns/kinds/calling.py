"""A user's own function as a task: called with the problem, the seed and the parameters that it takes."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from bilevel_sym.campaigns.context import Setting
from bilevel_sym.campaigns.functions import imported, names_taken
from bilevel_sym.campaigns.kinds.record import Row
from bilevel_sym.errors import InvalidArgument

__all__ = ["call"]


def call(setting: Setting, seeds: Sequence[int | None]) -> list[Row]:
    """One call for each seed."""
    text = setting.kind
    function, (takes, any_other) = setting.context.remember(("function", text), lambda: _found(setting))
    rows = []
    for seed in seeds:
        offered = {"problem": setting.problem, "seed": seed, **setting.parameters}
        if setting.problem is None:  # a plan without problems
            del offered["problem"]
        given = {name: value for name, value in offered.items() if any_other or name in takes}
        rows.append(_row(function(**given), text))
    return rows


def _found(setting: Setting) -> tuple[Callable[..., Any], tuple[frozenset[str], bool]]:
    function = imported(setting.kind, setting.context.folders)
    return function, names_taken(function)


def _row(answer: object, text: str) -> Row:
    if isinstance(answer, Mapping):
        return {_column(name, text): _plain(value, name, text) for name, value in answer.items()}
    return {"value": _plain(answer, "value", text)}


def _column(name: object, text: str) -> str:
    if isinstance(name, str) and name.isidentifier():
        return name
    raise InvalidArgument(f"{text} returned a column {name!r:.40}", hint='names such as "error", with numbers or text')


def _plain(value: Any, name: object, text: str) -> Any:
    value = value.tolist() if isinstance(value, (np.ndarray, np.generic)) else value
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if isinstance(value, (list, tuple)):
        if all(isinstance(item, str) for item in value):
            return list(value)
        if all(isinstance(item, (int, float)) and not isinstance(item, bool) for item in value):
            return [math.nan if item is None else float(item) for item in value]
    raise InvalidArgument(
        f"{text} returned {name}={value!r:.60}", hint="numbers, text, True, False or None, and flat lists of them"
    )
