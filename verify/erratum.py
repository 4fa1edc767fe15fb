"""Erratum: where the print fails, what is right, and a witness that is computed anew each time it is asked for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, Literal

from bilevel_sym import theories
from bilevel_sym.theories import Statement, Variant, cite
from verify.verdict import CheckResult, Evidence, Verdict

__all__ = ["Erratum", "Formula", "Severity", "by_variant", "erratum"]

Severity = Literal["wrong", "gap", "ambiguous", "loose", "misprint"]
"""wrong: the statement is false or impossible. gap: a step or a hypothesis is missing. ambiguous: two readings, and one
of them fails. loose: right but for a constant factor or a logarithm. misprint: a symbol, an index or a reference."""

Formula = Callable[..., Any]
"""The formula, or the step, that is wrong in the print, as a small function of what it is made of."""


@dataclass(frozen=True, kw_only=True)
class Erratum:
    """An error of the paper: the text of both forms, a witness, and a test that only the corrected form passes.

    - ``labels``: the statements that are wrong in print.
    - ``printed``: the printed form, in words.
    - ``corrected``: the corrected form, in words.
    - ``witness``: on what the printed form fails.
    - ``why``: the reason.
    - ``severity``: how bad it is.
    - ``evidence``: what the test rests on.
    - ``holds``: computes the witness with one form in the place of the other; ``check`` gives it both.
    - ``printed_form``: the printed form, as a function.
    - ``corrected_form``: the corrected form, as a function.
    - ``modelled``: the print has words, the lines of an algorithm or an order O(), for which a function of ours stands.

    >>> from verify.papers.huang_saddle.errata import errata
    >>> first = errata()[0]
    >>> first.labels[0], str(first.check().verdict)
    ('phi-hessian', 'HOLDS')
    """

    labels: tuple[str, ...]
    printed: str
    corrected: str
    witness: str
    why: str
    severity: Severity
    evidence: Evidence
    holds: Callable[[Formula], bool]
    printed_form: Formula
    corrected_form: Formula
    modelled: bool = False

    @property
    def name(self) -> str:
        """The name of the test, by which coverage and tests refer to the erratum."""
        return getattr(self.holds, "__name__", "")

    @property
    def kind(self) -> str:
        """Severity, whether the print is modelled, and what the check rests on."""
        return ", ".join((self.severity, *(["modelled"] if self.modelled else []), self.evidence))

    def check(self) -> CheckResult:
        """HOLDS when the erratum stands: the printed form fails on the witness, and the corrected one does not."""
        print_fails, mended = not self.holds(self.printed_form), self.holds(self.corrected_form)
        found = {
            (True, True): "the printed form fails on the witness, the corrected one holds",
            (True, False): "both forms fail on the witness",
            (False, True): "the printed form holds on the witness as well",
            (False, False): "the corrected form fails on the witness, the printed one holds",
        }[print_fails, mended]
        return CheckResult(
            label=self.labels[0],
            verdict=Verdict.HOLDS if print_fails and mended else Verdict.VIOLATED,
            message=f"{found}: {self.witness}",
            evidence=self.evidence,
            n_points=1,
        )


def by_variant(formula: Formula, mended: Variant = "corrected") -> tuple[Formula, Formula]:
    """The two forms of a formula that the library has in both variants.

    >>> printed, corrected = by_variant(lambda x, variant: (x, variant))
    >>> printed(1), corrected(1)
    ((1, 'printed'), (1, 'corrected'))
    """
    return partial(formula, variant="printed"), partial(formula, variant=mended)


def erratum(
    *labels: str,
    printed: str,
    corrected: str,
    forms: tuple[Formula, Formula],
    witness: str,
    why: str,
    severity: Severity = "wrong",
    evidence: Evidence = "proved",
    modelled: bool = False,
    statements: Mapping[str, Statement] | None = None,
) -> Callable[[Callable[[Formula], bool]], Erratum]:
    """Make a test of a form an erratum; a theory collects them by their type.

    - ``labels``: the statements that are wrong in print.
    - ``printed``, ``corrected``: each form in words.
    - ``forms``: the two as functions, the printed one first; the test is passed one of them.
    - ``witness``, ``why``: on what the printed form fails, and the reason.
    - ``severity``, ``evidence``: how bad it is, and what the test rests on.
    - ``modelled``: the print has words for which a function of ours stands.
    - ``statements``: where labels are looked up; by default in all papers.

    >>> @erratum("lem:descent", printed="x + x", corrected="x x", forms=(lambda x: x + x, lambda x: x * x),
    ...          witness="x = 3", why="a square is meant")
    ... def square(form):
    ...     return form(3) == 9
    >>> print(square.check().message)
    the printed form fails on the witness, the corrected one holds: x = 3
    """
    for label in labels:
        cite(label, theories.statements() if statements is None else statements)

    def make(holds: Callable[[Formula], bool]) -> Erratum:
        return Erratum(
            labels=labels,
            printed=printed,
            corrected=corrected,
            witness=witness,
            why=why,
            severity=severity,
            evidence=evidence,
            holds=holds,
            printed_form=forms[0],
            corrected_form=forms[1],
            modelled=modelled,
        )

    return make
