"""Two formulas in; formulas, certified digits and a landscape out: what the playground of the site shows in a browser.

It needs no numba, thread, process or socket, nor does anything that it imports (``tests/test_playground.py``).
"""

from __future__ import annotations

from bilevel_sym import BilevelProblem, MinimaxProblem, evaluate
from bilevel_sym.errors import BilevelError, InvalidArgument
from verify.reporting.looks import STILL
from verify.reporting.markup import Markup, paragraph, table, tag
from verify.reporting.page import document
from verify.reporting.sections import pictures, statement
from verify.reporting.subject import Section, Subject

__all__ = ["glimpse"]

EFFORT = 0.05  # of the default, for stationary points: a browser is several times slower than a shell
MOST_DIGITS = 1000
TITLE = "What follows from f and g"


def glimpse(f: str, g: str, x: str, y: str, *, box_x: str = "", box_y: str = "", at: str = "", digits: int = 30) -> str:
    """An HTML page without a script. Texts go through the safe parser; what is wrong with them is said on the page.

    - ``f``, ``g``: the two formulas; without g the problem is min over x, max over y of f.
    - ``x``, ``y``: names of variables, such as ``x1 x2``.
    - ``box_x``, ``box_y``: two ends such as ``-1, 1``, for each variable; empty for no box.
    - ``at``: a value for each variable of x, exact, such as ``1/3, 0.2``; empty for no digits.
    - ``digits``: how many are proved.

    >>> page = glimpse("x*y", "(1 + x**2)*y**2/2 - x*y", "x", "y", box_x="-3, 3", box_y="-1, 1", at="1/3")
    >>> "<script" in page, "<math" in page, "<svg" in page, "0.1000000000" in page
    (False, True, True, True)
    >>> "z" in glimpse("x*z", "y**2", "x", "y")
    True
    """
    try:
        problem = _problem(f, g, x, y, _box(x, box_x) | _box(y, box_y))
    except BilevelError as error:
        return document(TITLE, [tag("pre", str(error), role="alert")], STILL)
    sections = (
        Section("formulas", "Formulas", statement.formulas),
        Section("digits", "Certified digits", lambda subject: _digits(subject.problem, at, digits)),
        Section("picture", "Landscape", pictures.landscape),
    )
    subject = Subject(problem, 0, EFFORT, None, "")
    return document(TITLE, [statement.levels(problem), *(section.markup(subject) for section in sections)], STILL)


def _problem(f: str, g: str, x: str, y: str, box: dict[str, tuple[str, str]]) -> BilevelProblem:
    if g.strip():
        return BilevelProblem(f, g, x, y, box=box or None)
    return MinimaxProblem(f, x, y, box=box or None)


def _box(names: str, ends: str) -> dict[str, tuple[str, str]]:
    if not ends.strip():
        return {}
    low, comma, high = ends.partition(",")
    if not comma:
        raise InvalidArgument(f"a box has two ends, and {ends!r} is one", hint="-1, 1")
    return dict.fromkeys(names.replace(",", " ").split(), (low.strip(), high.strip()))


def _digits(problem: BilevelProblem, at: str, digits: int) -> Markup:
    values = [value.strip() for value in at.split(",") if value.strip()]
    if not values:
        raise InvalidArgument("no point is given", hint="a value for each variable of x, such as 1/3")
    if not 1 <= digits <= MOST_DIGITS:
        raise InvalidArgument(f"{digits} digits are not between 1 and {MOST_DIGITS}")
    found = evaluate(problem, values, digits=digits)
    names = [symbol.name for symbol in problem.x]
    rows = [(f"y*: {symbol.name}", str(ball)) for symbol, ball in zip(problem.y, found.y_star, strict=True)]
    rows.append(("Φ", str(found.phi)))
    rows += [(f"∂Φ/∂{name}", str(ball)) for name, ball in zip(names, found.grad_phi, strict=True)]
    rows += [
        (f"∂²Φ/∂{first}∂{second}", str(ball))
        for first, row in zip(names, found.hess_phi, strict=True)
        for second, ball in zip(names, row, strict=True)
    ]
    shown = table(f"At x = ({', '.join(map(str, found.x))}), every digit proved", ("what", "value"), rows)
    return Markup(shown + paragraph(f"Convexity of g in y: {found.convexity}."))
