"""run: every claim that speaks of a problem, one after the other, into one report."""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from difflib import get_close_matches
from threading import Event, current_thread, main_thread
from types import FrameType
from typing import Any

import numpy as np

from bilevel_sym import BilevelProblem, Box
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.budget import Effort, Stopwatch
from bilevel_sym.system.memory import Memory
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.theories import Variant
from verify.registry import Claim
from verify.reporting import Report
from verify.study import Study, seed_of, study_of
from verify.theory import Theory, registered, theory_of
from verify.verdict import CheckResult, Verdict, inconclusive

__all__ = ["claims", "run"]


def claims(theory: str | Theory | None = None) -> list[Claim]:
    """The registered claims of a theory, each with its label and title, in the order in which ``run`` takes them.

    >>> [item.label for item in claims()][:3]
    ['phi-grad', 'eq:opt-deri1', 'eq:bilevel-grad']
    """
    return list(theory_of(theory).claims)


def run(
    problem: BilevelProblem,
    *,
    claims: Iterable[str | Claim] | Claim | None = None,
    theory: str | Theory | None = None,
    box: Box | None = None,
    rng: np.random.Generator | int | None = None,
    effort: Effort = "default",
    seconds: float | None = None,
    variant: Variant = "corrected",
    memory: Memory = "2GB",
    progress: bool = False,
) -> Report:
    """A verdict on each statement of a theory for this problem, over its box (or the one given).

    The same problem, seed and effort give the same report on every machine, a slow or busy one too. Interrupted from
    the keyboard, it returns what it has.

    - ``problem``: the problem.
    - ``claims``: labels, of any theory, or claims that you wrote (``verify.claim``); by default all of the theory, and
      those that do not apply say why.
    - ``theory``: one of ``verify.theories()``, or a ``Theory``; by default the first.
    - ``box``: by default the problem's.
    - ``rng``: a seed or a generator.
    - ``effort``: "quick", "default" (about half a minute on an ordinary core), "thorough", or a multiple of it.
    - ``seconds``: a limit of time; what it cuts is INCONCLUSIVE, and says so.
    - ``variant``: the form of the formulas that is judged: "corrected", as "printed", or "sharp", the best that is
      proved.
    - ``memory``: "2GB", "500 MB" or bytes; what does not fit is not begun: claims that rest on it are INCONCLUSIVE, and
      name the size.
    - ``progress``: whether a terminal shows how far it is.

    >>> from bilevel_sym import zoo
    >>> report = run(zoo.get("scalar").problem, claims=["eq:bilevel-grad"], rng=0)
    >>> [(result.label, str(result.verdict), result.evidence) for result in report.results]
    [('eq:bilevel-grad', 'HOLDS', 'proved')]
    """
    chosen, watch = _chosen(claims, theory_of(theory)), Stopwatch()
    results: list[CheckResult] = []
    left, interrupted = chosen, False
    with ProgressBar("verifying", shown=progress) as meter:
        study = study_of(
            problem, box=box, seed=seed_of(rng), effort=effort, seconds=seconds, variant=_variant(variant),
            memory=memory,
        )  # fmt: skip
        try:
            # what is beyond float64 is judged, and not warned about
            with np.errstate(over="ignore", invalid="ignore"), _noticed_interrupts() as noticed:
                for found in _results(study, chosen, meter, noticed):
                    results += found
                    left = left[1:]
        except KeyboardInterrupt:
            interrupted = True
            results += [replace(inconclusive(item.label, "interrupted"), variant=variant) for item in left]
    return Report(
        problem=problem.name or "problem",
        box=dict(study.box.items()),
        variant=variant,
        seed=study.seed,
        seconds=watch.elapsed,
        effort=study.effort,
        results=tuple(results),
        interrupted=interrupted,
    )


def _results(study: Study, chosen: Sequence[Claim], meter: ProgressBar, noticed: Event) -> Iterator[list[CheckResult]]:
    """Those of each claim, one claim after the other."""
    for done, item in enumerate(chosen):
        meter.at(done, f" {done + 1}/{len(chosen)} {item.label}")
        if study.deadline.passed and study.problem.kind in item.kinds:
            yield [replace(inconclusive(item.label, "cut by time before its turn"), variant=study.variant)]
        else:
            found = item(study)
            if noticed.is_set():  # what it measured may be of a search, or a run, that was cut short
                raise KeyboardInterrupt
            if study.deadline.cut:  # a part was left out, so that nothing may be called done
                found = [r if r.verdict is Verdict.NOT_APPLICABLE else _cut(r) for r in found]
            yield found


def _cut(result: CheckResult) -> CheckResult:
    reason = f"cut by time; until then: {result.verdict}, {result.message}"
    said = inconclusive(result.label, reason, part=result.part, evidence=result.evidence)
    return replace(said, variant=result.variant)


@contextmanager
def _noticed_interrupts() -> Iterator[Event]:
    """Set when Ctrl-C comes, whoever answers it: a search, or a run, inside a claim keeps it to itself.

    So with SIGTERM, where a handler is set, as the command line does; nothing is answered anew here.
    """
    noticed, before = Event(), {number: signal.getsignal(number) for number in (signal.SIGINT, signal.SIGTERM)}
    if current_thread() is not main_thread():
        yield noticed
        return
    answered = {number: answer for number, answer in before.items() if callable(answer)}

    def notice(number: int, frame: FrameType | None) -> Any:
        noticed.set()
        return answered[signal.Signals(number)](number, frame)

    try:
        for number in answered:
            signal.signal(number, notice)
        yield noticed
    finally:
        for number, answer in answered.items():
            signal.signal(number, answer)


def _chosen(labels: Iterable[str | Claim] | Claim | None, theory: Theory) -> tuple[Claim, ...]:
    if labels is None:
        return theory.claims
    if isinstance(labels, (str, Claim)):
        labels = [labels]
    if not isinstance(labels, Iterable):
        raise InvalidArgument(f"claims={labels!r:.40}", hint="labels, such as ['lem:descent'], or None for all")
    all_claims = (*registered(), *theory.claims)  # the theory that was asked for comes last: its labels count
    known = {label: item for item in all_claims for label in item.also}
    known |= {item.label: item for item in all_claims}  # what a claim is about comes before what it touches
    return tuple(dict.fromkeys(item if isinstance(item, Claim) else _registered(item, known) for item in labels))


def _registered(label: object, known: Mapping[str, Claim]) -> Claim:
    if isinstance(label, str) and label in known:
        return known[label]
    near = ", ".join(get_close_matches(str(label)[:60], known, n=3, cutoff=0.0))
    own = str(label).startswith("own:")
    raise InvalidArgument(
        f"no claim is registered for {label!r:.60}",
        hint="pass the claim itself, run(problem, claims=[my_claim])" if own else f"one of {near}",
    )


def _variant(variant: Variant) -> Variant:
    if variant not in ("corrected", "printed", "sharp"):
        raise InvalidArgument(f"variant={variant!r:.40}", hint="'corrected', 'printed' or 'sharp'")
    return variant
