"""A plan as a TOML file."""

from __future__ import annotations

import json
import os
import tomllib
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.plain_text import named

__all__ = ["plan_toml", "read_plan"]

TABLE = "campaign"
MOST_BYTES = 10_000_000
EXAMPLE = 'a table [campaign] with task, problems, and what else there is: task = "solve"'


def read_plan(path: str | os.PathLike[str]) -> dict[str, Any]:
    """What the table [campaign] of a file says, name by name."""
    try:
        content = Path(path).read_bytes()
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise InvalidArgument(f"the plan {named(path)} cannot be read: {reason}", hint="a TOML file") from None
    if len(content) > MOST_BYTES:
        raise InvalidArgument(f"the plan {named(path)} has {len(content)} bytes", hint=f"at most {MOST_BYTES}")
    try:
        read = tomllib.loads(content.decode())
    except (ValueError, RecursionError) as error:
        raise InvalidArgument(f"the plan {named(path)} is no TOML: {str(error)[:200]}", hint=EXAMPLE) from None
    fields = read.get(TABLE)
    if not isinstance(fields, dict) or len(read) > 1:
        others = ", ".join(name[:40] for name in read if name != TABLE)
        raise InvalidArgument(f"the plan {named(path)} has {others or 'no table'}", hint=EXAMPLE)
    return fields


def plan_toml(
    task: str,
    problems: Sequence[str],
    algorithms: Sequence[str],
    seeds: Sequence[int],
    parameters: Mapping[str, Sequence[Any]],
) -> str:
    """The text of a plan.

    - ``task``: the kind.
    - ``problems``: names; left out where there are none.
    - ``algorithms``: names; left out where there are none.
    - ``seeds``: whole numbers.
    - ``parameters``: values by name.

    >>> print(plan_toml("solve", ["zoo:scalar"], [], range(3), {"eta": [0.1], "D": [1, 2]}), end="")
    [campaign]
    task = "solve"
    problems = ["zoo:scalar"]
    seeds = 3
    eta = 0.1
    D = [1, 2]
    """
    entries: dict[str, Any] = {"task": task}
    if problems:
        entries["problems"] = list(problems)
    if algorithms:
        entries["algorithms"] = list(algorithms)
    first = isinstance(seeds, range) and seeds.start == 0 and seeds.step == 1
    entries["seeds"] = len(seeds) if first else list(seeds)
    entries |= {name: values[0] if len(values) == 1 else list(values) for name, values in parameters.items()}
    return "\n".join(["[campaign]", *(f"{name} = {_value(value)}" for name, value in entries.items()), ""])


def _value(value: Any) -> str:
    """JSON's text, which TOML reads as the same value; letters beyond 16 bits stand as they are."""
    return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
