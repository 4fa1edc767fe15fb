"""run: every claim that speaks of a problem, one after the other, into one report."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from functools import lru_cache

import numpy as np

from bilevel_sym.box import Box
from bilevel_sym.constants import Variant
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.problem import BilevelProblem
from verify import statements
from verify.registry import Claim
from verify.report import Report
from verify.study import Study, seed_of, study_of
from verify.verdict import CheckResult, inconclusive

__all__ = ["claims", "run"]

SECONDS = 40.0


@lru_cache(1)
def _registry() -> tuple[Claim, ...]:
    found = [
        item
        for module in statements.FAMILIES
        for item in vars(module).values()
        if isinstance(item, Claim) and item.check.__module__ == module.__name__
    ]
    return tuple(found)


def claims() -> list[Claim]:
    """The registered claims, each with its label and title, in the order in which ``run`` takes them.

    >>> [item.label for item in claims()][:3]
    ['phi-grad', 'eq:opt-deri1', 'eq:bilevel-grad']
    """
    return list(_registry())


def run(
    problem: BilevelProblem,
    *,
    claims: Iterable[str] | None = None,
    box: Box | None = None,
    rng: np.random.Generator | int | None = None,
    seconds: float | None = None,
    variant: Variant = "corrected",
    progress: bool = False,
) -> Report:
    """A verdict on each statement of the theory for this problem, over its box (or the one given).

    ``claims`` are labels; by default all are taken, and those that do not apply say why. ``seconds`` is kept to: what
    is not reached in time is INCONCLUSIVE. Interrupted from the keyboard, it returns what it has.

    >>> from bilevel_sym import zoo
    >>> report = run(zoo.get("scalar").problem, claims=["eq:bilevel-grad"], rng=0)
    >>> [(result.label, str(result.verdict), result.evidence) for result in report.results]
    [('eq:bilevel-grad', 'HOLDS', 'proved')]
    """
    chosen = _chosen(claims)
    study = study_of(problem, box=box, seed=seed_of(rng), seconds=_time(seconds), variant=_variant(variant))
    results: list[CheckResult] = []
    interrupted = False
    try:
        with np.errstate(over="ignore"):  # what is beyond float64 is judged, and not warned about
            for result in _results(study, chosen, progress):
                results.append(result)  # noqa: PERF402 - one by one, so that an interruption loses none
    except KeyboardInterrupt:
        interrupted = True
        done = {result.label for result in results}
        results += [inconclusive(c.label, "interrupted", variant=variant) for c in chosen if c.label not in done]
    return Report(
        problem=problem.name or "problem",
        box=str(dict(study.box.items())),
        variant=variant,
        seed=study.seed,
        seconds=time.monotonic() - study.started,
        results=tuple(results),
        interrupted=interrupted,
    )


def _results(study: Study, chosen: Iterable[Claim], progress: bool) -> Iterator[CheckResult]:
    for item in chosen:
        if progress:
            print(f"\r{study.left:5.0f} s left  {item.label:<40}", end="", file=sys.stderr, flush=True)
        if study.left <= 0 and study.problem.kind in item.kinds:
            yield inconclusive(item.label, "the time was up before its turn", variant=study.variant)
        else:
            yield from item(study)
    if progress:
        print(f"\r{'':60}\r", end="", file=sys.stderr, flush=True)


def _chosen(labels: Iterable[str] | None) -> tuple[Claim, ...]:
    if labels is None:
        return _registry()
    if not isinstance(labels, Iterable):
        raise InvalidProblem(f"claims={labels!r:.40}", hint="labels, such as ['lem:descent'], or None for all")
    wanted = [labels] if isinstance(labels, str) else list(labels)
    known = {label: item for item in _registry() for label in item.also}
    known |= {item.label: item for item in _registry()}  # what a claim is about comes before what it touches
    for label in wanted:
        if label not in known:
            near = get_close_matches(str(label)[:60], known, n=3, cutoff=0.0)
            raise InvalidProblem(f"no claim is registered for {label!r:.60}", hint=f"one of {', '.join(near)}")
    return tuple(dict.fromkeys(known[label] for label in wanted))


def _time(seconds: float | None) -> float:
    if seconds is None:
        return SECONDS
    if isinstance(seconds, bool) or not isinstance(seconds, (int, float)) or not 0 < seconds < float("inf"):
        raise InvalidProblem(f"seconds={seconds!r:.40}", hint="a positive number of seconds, or None")
    return float(seconds)


def _variant(variant: Variant) -> Variant:
    if variant not in ("corrected", "printed", "sharp"):
        raise InvalidProblem(f"variant={variant!r:.40}", hint="'corrected', 'printed' or 'sharp'")
    return variant
