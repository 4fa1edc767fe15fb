"""Experiments: the paper's figure, and others that it does not have. Each computes, draws, and writes its numbers."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting import require_matplotlib
from bilevel_sym.system.writing import check_target, make_folder
from bilevel_sym.theories.huang_saddle.experiments import complexity, coupled, figure1, real_data
from bilevel_sym.theories.huang_saddle.experiments.campaigns import error, escape, tightness

__all__ = ["names", "reproduce"]

_BY_NAME: dict[str, Callable[..., Iterator[str]]] = {
    "figure1": figure1.report,
    "figure2": coupled.report,
    "figure3": complexity.report,
    "real-data": real_data.report,
}
_CAMPAIGNS: dict[str, Callable[..., Iterator[str]]] = {
    "escape": escape.report,
    "tightness": tightness.report,
    "error": error.report,
}


def names() -> tuple[str, ...]:
    """The experiments that there are.

    >>> names()
    ('figure1', 'figure2', 'figure3', 'real-data', 'escape', 'tightness', 'error')
    """
    return (*_BY_NAME, *_CAMPAIGNS)


def reproduce(name: str, out: Path, *, progress: bool = False, large: bool = False) -> Iterator[str]:
    """Run an experiment, write its picture and numbers into the directory ``out``, and tell what was found.

    Yields lines for people, as they come to be known; the files appear together, when all of them are complete. Each
    experiment takes about half a minute of one core. Campaigns keep their rows in ``out/NAME-campaign``: killed, they
    go on from there.

    - ``name``: one of ``names()``.
    - ``out``: a folder; is made if there is none.
    - ``progress``: whether a terminal shows how far it is.
    - ``large``: of a campaign the plan that takes all cores for minutes or hours.

    >>> reproduce("figure9", Path("."))
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: there is no experiment 'figure9'
    try: one of figure1, figure2, figure3, real-data, escape, tightness, error
    """
    if name not in names():
        raise InvalidArgument(f"there is no experiment {name!r:.60}", hint=f"one of {', '.join(names())}")
    if large and name not in _CAMPAIGNS:
        raise InvalidArgument(f"{name} has one size", hint=f"large is for {', '.join(_CAMPAIGNS)}")
    require_matplotlib()  # before the work, not after it
    check_target(make_folder(out) / f"{name}.json")
    if name in _CAMPAIGNS:
        return _CAMPAIGNS[name](out, progress=progress, large=large)
    return _BY_NAME[name](out, progress=progress)
