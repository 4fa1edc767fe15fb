"""ReportPage: all that is known of one problem as one file that a browser shows without a network."""

from __future__ import annotations

import os
from dataclasses import dataclass

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.budget import Effort, scale_of
from bilevel_sym.system.plain_text import as_html
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.system.writing import write
from verify.reporting.looks import SCRIPT, STYLE, policy
from verify.reporting.markup import Markup, paragraph, tag, together
from verify.reporting.sections import numbers, pictures, runs, statement, verdicts
from verify.reporting.subject import Section, Subject
from verify.study import seed_of
from verify.theory import theory_of

__all__ = ["ReportPage", "document", "report"]

SECTIONS = (
    Section("problem", "The problem", statement.problem),
    Section("formulas", "Formulas", statement.formulas),
    Section("constants", "Constants", numbers.constants),
    Section("stationary", "Stationary points", numbers.points),
    Section("picture", "Landscape", pictures.landscape),
    Section("runs-section", "Runs", runs.runs),
    Section("hypergradient", "Error of the hypergradient", runs.hypergradient),
    Section("verdicts", "Verdicts", verdicts.verdicts),
    Section("errata", "Errata that matter here", verdicts.errata),
    Section("reproduce", "How to make this page again", verdicts.reproduction),
)


@dataclass(frozen=True, repr=False)
class ReportPage:
    """A page about one problem: a notebook shows it, ``save`` writes it.

    - ``title``: what it is about.
    - ``html``: the whole file.
    - ``interrupted``: whether the verdicts were interrupted from the keyboard.

    >>> page = ReportPage("toy", "<!DOCTYPE html>...")
    >>> page
    <ReportPage on toy: 18 characters of HTML>
    """

    title: str
    html: str
    interrupted: bool = False

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the file."""
        write(path, self.html)

    def _repr_html_(self) -> str:
        """In a frame of its own, so that neither its style nor its script touches the notebook."""
        framed = as_html(self.html)
        looks = "width:100%;height:40rem;border:1px solid #888"
        return f'<iframe title="report" sandbox="allow-scripts" style="{looks}" srcdoc="{framed}"></iframe>'

    def __repr__(self) -> str:
        return f"<ReportPage on {self.title}: {len(self.html):,} characters of HTML>"


def report(
    problem: BilevelProblem,
    *,
    rng: int | None = None,
    effort: Effort = "default",
    theory: str | None = None,
    command: str | None = None,
    progress: bool = False,
) -> ReportPage:
    """All that is known of a problem on one page: formulas, constants, points, pictures, runs, verdicts, errata.

    What does not apply is one sentence that says why. The same problem, seed, effort and versions give the same page.

    - ``problem``: the problem.
    - ``rng``: a seed of all random numbers; by default 0.
    - ``effort``: "quick", "default", "thorough", or a multiple of it.
    - ``theory``: whose statements are judged; by default the first of ``verify.theories()``.
    - ``command``: what the page says makes it again; by default the call of this function.
    - ``progress``: whether a terminal shows how far it is.

    >>> from bilevel_sym import BilevelProblem
    >>> page = report(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", name="toy"), effort="quick")
    >>> "<math" in page.html, "the problem has no box" in page.html
    (True, True)
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"a report wants a problem, but was given a {type(problem).__name__}")
    theory_of(theory)  # an unknown one is refused before any work
    seed = seed_of(rng)
    made = command or f"verify.report(problem, rng={seed}, effort={effort!r}).save('report.html')"
    subject = Subject(problem, seed, scale_of(effort), theory, made)
    parts: list[Markup] = []
    with ProgressBar("report", len(SECTIONS), shown=progress) as meter:
        for done, section in enumerate(SECTIONS):
            meter.at(done, f" {section.title.lower()}")
            parts.append(section.markup(subject))
    title = problem.name or "a problem"
    found = subject.__dict__.get("verdicts")
    return ReportPage(title, _document(subject, title, parts), found is not None and found.interrupted)


def _document(subject: Subject, title: str, parts: list[Markup]) -> str:
    heading = f"Report on {title}"
    links = (tag("li", tag("a", section.title, href=f"#{section.name}")) for section in SECTIONS)
    top = tag(
        "header",
        tag("a", "To the content", href="#content", class_="skip"),
        tag("h1", heading),
        paragraph(_summary(subject)),
        tag("nav", tag("ul", *links), aria_label="Sections"),
    )
    return document(heading, [top, tag("main", *parts, id="content"), Markup(f"<script>{SCRIPT}</script>")], policy())


def document(heading: str, parts: list[Markup], allowed: str) -> str:
    """A file of HTML.

    - ``heading``: its title.
    - ``parts``: what stands in it.
    - ``allowed``: its Content-Security-Policy.

    >>> document("toy", [], "default-src 'none'").splitlines()[0]
    '<!DOCTYPE html>'
    """
    head = tag(
        "head",
        tag("meta", charset="utf-8"),
        tag("meta", http_equiv="Content-Security-Policy", content=allowed),
        tag("meta", name="viewport", content="width=device-width, initial-scale=1"),
        tag("title", heading),
        Markup(f"<style>{STYLE}</style>"),
    )
    return f"<!DOCTYPE html>\n{tag('html', together([head, tag('body', *parts)]), lang='en')}\n"


def _summary(subject: Subject) -> str:
    """The page in a sentence."""
    problem = subject.problem
    about = f"A {problem.kind} problem with {problem.d} variable{'s' * (problem.d != 1)} in x and {problem.n} in y."
    found = subject.__dict__.get("verdicts")
    counted = None if found is None else verdicts.counted(verdicts.spoken(found))
    judged = "No verdicts: see there why." if counted is None else f"Verdicts: {counted}."
    return f"{about} {judged} Seed {subject.seed}, effort {subject.effort_name}."
