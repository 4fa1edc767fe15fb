"""The table of verdicts, the errata that matter here, and how to make the page again."""

from __future__ import annotations

import platform
from collections.abc import Iterable
from importlib import metadata

from bilevel_sym import __version__
from verify.erratum import Erratum
from verify.reporting.markup import Markup, code, listed, number, paragraph, table, tag, together
from verify.reporting.subject import Subject
from verify.theory import cite, theory_of, title
from verify.verdict import CheckResult, Verdict

__all__ = ["errata", "reproduction", "spoken", "verdicts"]

HEADS = ("statement", "verdict", "measured", "bound", "tightness", "evidence")
PARTS = ("numpy", "scipy", "sympy", "python-flint", "mpmath", "numba", "matplotlib")
MANY_VARIABLES = 20  # of a witness that is written out


def verdicts(subject: Subject) -> Markup:
    """All statements that apply, as a table; each row opens for its message and its witness.

    >>> from bilevel_sym import BilevelProblem
    >>> verdicts(Subject(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), 0, 1.0, None, ""))
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidProblem: the problem has no box, and constants belong to a box
    try: [box] in the problem file, or BilevelProblem(..., box={"x": (-1, 1), "y": (-1, 1)})
    """
    report = subject.verdicts
    about = spoken(report)
    silent = [result for result in report if result.verdict is Verdict.NOT_APPLICABLE]
    theory = theory_of(subject.theory)
    cut = ["Interrupted: what was not reached is INCONCLUSIVE."] if report.interrupted else []
    said = " ".join([f"{counted(about)}, of “{theory.title}” ({theory.reference}), {report.variant} formulas.", *cut])
    rows = (_row(result) for result in about)
    shown = table("Verdicts", HEADS, rows, id="verdict-table") if about else Markup()
    return together([paragraph(said), tag("div", id="verdict-tools"), shown, *_silent(silent)])


def spoken(results: Iterable[CheckResult]) -> list[CheckResult]:
    """Those that say something of this problem.

    >>> spoken([])
    []
    """
    return [result for result in results if result.verdict is not Verdict.NOT_APPLICABLE]


def counted(results: Iterable[CheckResult]) -> str:
    """How many of each verdict.

    >>> counted([])
    'no statement applies'
    """
    found = [str(result.verdict) for result in results]
    parts = [f"{found.count(str(kind))} {kind}" for kind in Verdict if str(kind) in found]
    return ", ".join(parts) or "no statement applies"


def _row(result: CheckResult) -> tuple[str, ...]:
    return (
        _opened(result),
        tag("span", str(result.verdict), class_=f"verdict {str(result.verdict).lower()}"),
        number(result.measured),
        number(result.bound),
        number(result.tightness, 3),
        result.evidence or "",
    )


def _opened(result: CheckResult) -> Markup:
    """A statement, which opens by keyboard or mouse for what stands behind its verdict, without a script."""
    lines = [paragraph(tag("strong", title(result.label)))] if title(result.label) else []
    lines += [paragraph(line) for line in result.message.splitlines() if line.strip()]
    facts = [
        ("region", result.region),
        ("points or runs", str(result.n_points or "")),
        ("noise", number(result.noise or None)),
    ]
    facts += [("confidence", number(result.confidence)), ("seed", "" if result.seed is None else str(result.seed))]
    said = "; ".join(f"{name}: {value}" for name, value in facts if value)
    lines += [paragraph(said)] if said else []
    if result.worst_point:
        witness = [f"{name} = {value!r}" for name, value in [*result.worst_point.items()][:MANY_VARIABLES]]
        more = ["…"] if len(result.worst_point) > MANY_VARIABLES else []
        lines += [paragraph("Witness, where the bound is tightest:"), code("\n".join([*witness, *more]))]
    return tag("details", tag("summary", f"{cite(result.label)} {result.part}".strip()), *lines)


def _silent(results: list[CheckResult]) -> list[Markup]:
    """The statements that do not apply, by their reason."""
    if not results:
        return []
    reasons: dict[str, list[str]] = {}
    for result in results:
        reasons.setdefault(result.message, []).append(f"{result.label} {result.part}".strip())
    items = listed(f"{reason}: {', '.join(labels)}" for reason, labels in reasons.items())
    return [tag("details", tag("summary", f"{len(results)} statements do not apply"), items)]


def errata(subject: Subject) -> Markup:
    """The errata of the statements that were judged here.

    >>> from bilevel_sym import zoo
    >>> from dataclasses import replace
    >>> "NOT_APPLICABLE" in errata(Subject(zoo.get("minimax_nash").problem, 0, 0.1, "ji2021", ""))
    False
    """
    theory = theory_of(subject.theory)
    if not theory.errata:
        return paragraph("No erratum of this theory is known.")
    judged = {result.label for result in spoken(subject.verdicts)}
    found = [item for item in theory.errata if judged & set(item.labels)]
    if not found:
        return paragraph("No erratum concerns a statement that speaks of this problem.")
    said = f"{len(found)} of the theory's {len(theory.errata)} errata are about statements that were judged here."
    checked = "bilevel-sym errata computes the witness of each anew."
    return together([paragraph(f"{said} {checked}"), *map(_erratum, found)])


def _erratum(item: Erratum) -> Markup:
    cited = ", ".join(map(cite, item.labels))
    pairs = (("As printed", item.printed), ("Corrected", item.corrected), ("Why", item.why), ("Witness", item.witness))
    inner = tag("dl", *(part for name, text in pairs for part in (tag("dt", name), tag("dd", text))))
    return tag("details", tag("summary", f"{cited} ({item.severity})"), inner)


def reproduction(subject: Subject) -> Markup:
    """Versions, seed, effort, and the command.

    >>> from bilevel_sym import zoo
    >>> "bilevel-sym report zoo:scalar" in reproduction(
    ...     Subject(zoo.get("scalar").problem, 0, 1.0, None, "bilevel-sym report zoo:scalar"))
    True
    """
    rows = [
        ("seed", str(subject.seed)), ("effort", subject.effort_name), ("theory", theory_of(subject.theory).name),
        ("bilevel-sym", __version__), ("Python", platform.python_version()),
        *((name, _version(name)) for name in PARTS),
    ]  # fmt: skip
    said = "The same problem, seed, effort and versions give the same page: no clock decides, and none is on it."
    return together([code(subject.command), table("What it depends on", ("what", "value"), rows), paragraph(said)])


def _version(name: str) -> str:
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return "not installed"
