"""What a page is about, and what its sections share, each computed when first asked for."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import BilevelError
from bilevel_sym.solvers.named import start_of
from bilevel_sym.system.budget import EFFORTS
from bilevel_sym.typing import Floats
from verify.reporting.markup import Markup, tag
from verify.reporting.table import Report

if TYPE_CHECKING:
    from verify.points.stationary import StationaryPoints
    from verify.regularity.certified import CertifiedConstants
    from verify.regularity.phi_smoothness import Smoothness

__all__ = ["Section", "Subject", "why_not"]


@dataclass(frozen=True, eq=False)
class Subject:
    """A problem, and how it is looked at.

    - ``problem``: the problem.
    - ``seed``: of all random numbers.
    - ``effort``: a multiple of the default.
    - ``theory``: whose statements are judged; None for the first.
    - ``command``: what makes the page again.

    >>> from bilevel_sym import zoo
    >>> Subject(zoo.get("scalar").problem, 0, 1.0, None, "").effort_name
    'default'
    """

    problem: BilevelProblem
    seed: int
    effort: float
    theory: str | None
    command: str

    @property
    def effort_name(self) -> str:
        """quick, default, thorough, or the multiple."""
        return {scale: name for name, scale in EFFORTS.items()}.get(self.effort, f"{self.effort:g}")

    def rng(self, purpose: int) -> np.random.Generator:
        """Random numbers for one purpose."""
        return np.random.default_rng([self.seed, purpose])

    def points(self, count: int, purpose: int) -> Floats:
        """The centre of the box (or zero), then points drawn evenly from it (or around zero), (count, d)."""
        centre, ends = start_of(self.problem), self.problem.ends("x")
        drawn = self.rng(purpose).random((count - 1, len(centre)))
        low, high = np.array(ends, dtype=np.float64).T if ends is not None else (centre - 1.0, centre + 1.0)
        return np.concatenate([centre[None], low + (high - low) * drawn])

    @cached_property
    def constants(self) -> CertifiedConstants:
        """Certified constants over the box."""
        from verify.regularity.certified import constants

        return constants(self.problem.mean, effort=self.effort)

    @cached_property
    def smoothness(self) -> Smoothness:
        """Certified smoothness of Phi over the box."""
        from verify.regularity.phi_smoothness import smoothness

        return smoothness(self.problem, effort=self.effort)

    @cached_property
    def stationary(self) -> StationaryPoints:
        """The stationary points in the box."""
        from verify.points.stationary import search

        return search(self.problem, effort=self.effort)

    @cached_property
    def verdicts(self) -> Report:
        """A verdict on each statement."""
        from verify.runner import run

        return run(self.problem, rng=self.seed, effort=self.effort, theory=self.theory)

    def curvature(self, x: Floats) -> float:
        """The largest eigenvalue of g_yy from y = 0 to y*(x), of all these x: steps of 1/it do not diverge there."""
        kernels = self.problem.mean.kernels
        last = kernels.y_star(x)
        found = np.concatenate([kernels.g_yy(x, share * last) for share in (0.0, 0.5, 1.0)])
        eigenvalues = np.linalg.eigvalsh(found[np.isfinite(found).all(axis=(1, 2))])
        largest = float(eigenvalues.max(initial=0.0))
        return largest if largest > 0 else 1.0


@dataclass(frozen=True)
class Section:
    """A part of the page under a heading.

    - ``name``: a word, for links.
    - ``title``: the heading.
    - ``body``: makes it; what it raises is said in its place.

    >>> Section("one", "One", lambda _: Markup("<p>1</p>")).name
    'one'
    """

    name: str
    title: str
    body: Callable[[Subject], Markup]

    def markup(self, subject: Subject) -> Markup:
        """The section, or a sentence that says why there is none."""
        try:
            inner = self.body(subject)
        except BilevelError as error:
            inner = why_not(error)
        heading = tag("h2", self.title, id=f"{self.name}-title")
        return tag("section", heading, inner, id=self.name, aria_labelledby=f"{self.name}-title")


def why_not(error: BilevelError) -> Markup:
    """One sentence in the place of what could not be had.

    >>> why_not(BilevelError("the problem has no box"))
    '<p class="absent">Not here: the problem has no box.</p>'
    """
    hint = f" To have it: {error.hint}." if error.hint else ""
    return tag("p", f"Not here: {error.message.rstrip('.')}.{hint}", class_="absent")
