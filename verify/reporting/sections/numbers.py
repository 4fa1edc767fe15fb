"""Constants beside the theory's, and stationary points with their kinds."""

from __future__ import annotations

import math
from collections.abc import Iterator

from bilevel_sym.errors import BilevelError
from verify.points.stationary import StationaryPoint
from verify.reporting.markup import Markup, listed, number, paragraph, table, tag, together
from verify.reporting.subject import Subject, why_not
from verify.verdict import Bracket

__all__ = ["constants", "points"]

MEANINGS = (
    ("mu", "μ", "g is μ-strongly convex in y"),
    ("ell", "ℓ", "gradients of f and g are ℓ-Lipschitz"),
    ("rho", "ρ", "second derivatives are ρ-Lipschitz"),
    ("nu", "ν", "bounds the fourth derivatives of g with at least one in y"),
    ("M", "M", "f is M-Lipschitz"),
    ("g_y", "|∇_y g|", "the largest norm of the gradient of g in y, which the theory does not bound"),
)
SMOOTH = (
    ("grad_norm", "sup |∇Φ|"),
    ("L_phi", "L_φ: the Lipschitz constant of ∇Φ"),
    ("rho_phi", "ρ_φ: the Lipschitz constant of ∇²Φ"),
)
MANY_POINTS = 60  # so many are listed
MANY_VARIABLES = 12  # of a point that is written out


def constants(subject: Subject) -> Markup:
    """What is proved of f, g and Phi over the box, and what the theory's formulas make of it.

    >>> from bilevel_sym import zoo
    >>> constants(Subject(zoo.get("scalar").problem, 0, 0.1, None, "")).count("<table")
    2
    """
    found = subject.constants
    rows = [(name, *_ends(found.brackets[key]), meaning) for key, name, meaning in MEANINGS]
    own = table("Constants of Assumption 2.1 over the box, proved", ("constant", "at least", "at most", "what"), rows)
    reasons = listed(f"{name}: {reason}" for name, reason in found.reasons.items()) if found.reasons else Markup()
    return together([own, reasons, tag("h3", "Smoothness of Φ, beside the theory's"), _smoothness(subject)])


def _ends(bracket: Bracket) -> tuple[str, str]:
    return number(bracket.lower, 6), number(bracket.upper, 6)


def _smoothness(subject: Subject) -> Markup:
    try:
        found = subject.smoothness
    except BilevelError as error:
        return together([why_not(error), *_formulas_alone(subject)])
    formulas = {"L_phi": found.L_phi_formula, "rho_phi": found.rho_phi_formula}
    rows = [
        (title, *_ends(getattr(found, name)), number(formulas.get(name), 6), _times(found.ratio.get(name)))
        for name, title in SMOOTH
    ]
    heads = ("constant", "proved, at least", "proved, at most", "the theory's formula", "formula/proved")
    said = [*found.reasons.values(), *([f"formulas: {found.formula_reason}"] if found.formula_reason else [])]
    return together([table("Φ over the box", heads, rows), listed(said) if said else Markup()])


def _times(ratio: float | None) -> str:
    return "" if not ratio else "beyond all bounds" if math.isinf(ratio) else f"{ratio:.3g} times"


def _formulas_alone(subject: Subject) -> Iterator[Markup]:
    """The theory's formulas, where Phi itself is not bounded; minimax problems have others."""
    if subject.problem.kind == "minimax":
        return
    valid = subject.constants.valid
    try:
        values = valid.L_phi(), valid.rho_phi()
    except (BilevelError, ArithmeticError):
        return
    yield paragraph(f"The theory's formulas give L_φ = {values[0]:.6g} and ρ_φ = {values[1]:.6g}.")


def points(subject: Subject) -> Markup:
    """The stationary points in the box, proved, by kind.

    >>> from bilevel_sym import zoo
    >>> "local maximum" in points(Subject(zoo.get("scalar").problem, 0, 1.0, None, ""))
    True
    """
    found = subject.stationary
    every = (*found.points, *found.clusters)
    rest = "There are no others in the box: this is proved." if found.complete else f"Undecided: {found.message}."
    count = f"{len(found.points)} proved. {rest}"
    if not every:
        return paragraph(count)
    heads = ("kind", "x", "y*(x)", "eigenvalues of ∇²Φ", "evidence")
    shown = table("Stationary points of Φ", heads, map(_row, every[:MANY_POINTS]))
    more = [paragraph(f"{len(every) - MANY_POINTS} more are left out.")] if len(every) > MANY_POINTS else []
    return together([paragraph(count), shown, *more])


def _row(point: StationaryPoint) -> tuple[str, ...]:
    if not point.proved:
        where = ", ".join(f"{name} in [{float(a):.6g}, {float(b):.6g}]" for name, (a, b) in point.box.items())
        return "undecided", where, "", "", point.message
    eigenvalues = ", ".join(number((e.lower + e.upper) / 2, 6) for e in point.eigenvalues[:MANY_VARIABLES])
    return point.kind, _vector(point.x), _vector(point.y), eigenvalues, point.message or "proved"


def _vector(values: tuple[float, ...]) -> str:
    shown = ", ".join(number(value, 8) for value in values[:MANY_VARIABLES])
    return f"({shown}{', …' if len(values) > MANY_VARIABLES else ''})" if len(values) > 1 else shown
