"""The referee: the paper's errors, each with a witness that is computed anew whenever it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from importlib import import_module
from types import ModuleType
from typing import Literal

from verify import CheckResult, Erratum
from verify.papers.huang_saddle.errata import table
from verify.papers.huang_saddle.errata.right import found_right
from verify.papers.huang_saddle.errata.table import NOTATIONAL

__all__ = ["SUBJECTS", "errata", "errata_table"]

_NAMES = (
    "derivatives", "minimax", "inner_loops", "algorithms", "escape", "stochastic", "batches", "concentration",
    "experiment", "readings", "misprints",
)  # fmt: skip
SUBJECTS: tuple[ModuleType, ...] = tuple(import_module(f"{__name__}.{name}") for name in _NAMES)


def errata() -> list[Erratum]:
    """All errata, in the order of the subjects and, within one, of the file.

    >>> errata()[0].labels
    ('phi-hessian', 'lemma3.4-long')
    """
    return [entry for subject in SUBJECTS for entry in _of(subject)]


def errata_table(
    format: Literal["text", "markdown"] = "text",  # noqa: A002
    *,
    width: int = 100,
    seen: Callable[[CheckResult], None] = lambda result: None,
) -> Iterable[str]:
    """The errata for a reader, each checked while it is written; "markdown" is a page with all that was looked at.

    ``width`` is that of the text; ``seen`` is told of every check.

    >>> next(iter(errata_table("markdown"))).splitlines()[0]
    '# Errata'
    """
    groups = {(subject.__doc__ or "").splitlines()[0]: _of(subject) for subject in SUBJECTS}
    if format == "text":
        return table.text(groups, width=width, seen=seen)
    return table.markdown(groups, NOTATIONAL, found_right(), seen=seen)


def _of(subject: ModuleType) -> list[Erratum]:
    return [entry for entry in vars(subject).values() if isinstance(entry, Erratum)]
