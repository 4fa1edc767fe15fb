"""Several candidates checked at once: one report, with a result for each under its name."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Concatenate, ParamSpec, Protocol, cast, overload

from bilevel_sym import BilevelProblem
from bilevel_sym.system.budget import Stopwatch
from verify.reporting import Report
from verify.testkit.result import CandidateCheck

__all__ = ["at_once"]

Function = Callable[..., object]
P = ParamSpec("P")


class AtOnce(Protocol[P]):
    """A check of one candidate, or of several."""

    @overload
    def __call__(self, candidate: Function, /, *args: P.args, **options: P.kwargs) -> CandidateCheck: ...

    @overload
    def __call__(
        self, candidate: Sequence[Function] | Mapping[str, Function], /, *args: P.args, **options: P.kwargs
    ) -> Report: ...


def at_once(check: Callable[Concatenate[Function, P], CandidateCheck]) -> AtOnce[P]:
    """The same check, of lists and dicts of candidates too: a Report, in which each has its name as its part.

    >>> from bilevel_sym import verify
    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> report = verify.check_hypergradient({"mine": lambda x: x, "theirs": lambda x: -x}, problem)
    >>> [(result.part, str(result.verdict), result.cause) for result in report]
    [('mine', 'HOLDS', None), ('theirs', 'VIOLATED', 'sign')]
    """

    @functools.wraps(check)
    def checked(candidate: Any, *args: Any, **options: Any) -> Any:
        if not isinstance(candidate, (list, tuple, Mapping)):
            return check(candidate, *args, **options)
        named = candidate if isinstance(candidate, Mapping) else _by_name(candidate)
        watch = Stopwatch()
        results = [replace(check(each, *args, **options), part=name) for name, each in named.items()]
        problem = next((a for a in (*args, *options.values()) if isinstance(a, BilevelProblem)), None)
        name = (problem.name if problem else None) or "problem"
        box = dict(problem.box.items()) if problem and problem.box else None
        seed = results[0].seed if results and results[0].seed is not None else 0
        return Report(name, box, "corrected", seed, watch.elapsed, tuple(results))

    return cast("AtOnce[P]", checked)


def _by_name(candidates: Sequence[Function]) -> dict[str, Function]:
    """Each under its own name; where two have the same one, or none, under its number too."""
    names = [getattr(each, "__name__", type(each).__name__) for each in candidates]
    alone = [name for name in names if names.count(name) == 1 and name != "<lambda>"]
    return {
        name if name in alone else f"{name} {k}": each
        for k, (name, each) in enumerate(zip(names, candidates, strict=True))
    }
