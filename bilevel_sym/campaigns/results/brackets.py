"""Brackets of a box from those of its pieces."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from bilevel_sym.errors import InvalidArgument

__all__ = ["MergedBrackets", "merged_in"]


@dataclass(frozen=True)
class MergedBrackets:
    """Proved brackets over a box that was split.

    - ``columns``: the problem and the parameters.
    - ``brackets``: pairs of a lower and an upper end, by name.
    - ``pieces``: of how many pieces.

    >>> MergedBrackets({"problem": "toy"}, {"mu": (1.0, 1.0)}, 2).brackets["mu"]
    (1.0, 1.0)
    """

    columns: Mapping[str, Any]
    brackets: Mapping[str, tuple[float, float]]
    pieces: int


def merged_in(folder: str | os.PathLike[str]) -> list[MergedBrackets]:
    """All of them in a folder, in the order of the plan."""
    raise InvalidArgument("not yet")
