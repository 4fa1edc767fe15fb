"""The problem as it was given, and the formulas that follow from it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType

from bilevel_sym import BilevelProblem, derive
from bilevel_sym.errors import BilevelError
from verify.reporting.markup import Markup, code, paragraph, scrolled, table, tag, together
from verify.reporting.mathml import formula
from verify.reporting.subject import Subject, why_not

__all__ = ["formulas", "levels", "problem"]

READABLE_LETTERS = 350  # of LaTeX in one line: more does not fit on paper
NAMED = 6  # formulas that are left out
SHORT_FILE = 20_000  # letters of a problem file that is shown
_HEAD, _LINE, _FOOT = "\\begin{aligned}\n", " \\\\\n", "\n\\end{aligned}"
KINDS: Mapping[str, str] = MappingProxyType(
    {
        "bilevel": "bilevel: minimise Phi(x) = f(x, y*(x)), where y*(x) minimises g(x, y) over y",
        "minimax": "minimax: minimise Phi(x) = max f(x, y) over y",
        "stochastic": "stochastic bilevel: f and g are means over random data",
    }
)


def problem(subject: Subject) -> Markup:
    """What it minimises, of how many variables, over which box, with which data.

    >>> from bilevel_sym import zoo
    >>> "<math" in problem(Subject(zoo.get("scalar").problem, 0, 1.0, None, ""))
    True
    """
    given = subject.problem
    rows = [
        ("kind", KINDS.get(given.kind, given.kind)),
        ("variables", f"d = {given.d} in x, n = {given.n} in y"),
        ("x", _names(given.x)),
        ("y", _names(given.y)),
    ]
    if given.is_array:
        shapes = (f"{name}: {' × '.join(map(str, array.shape)) or 'a number'}" for name, array in given.arrays.items())
        rows.append(("data", "; ".join(shapes)))
    box = "none" if given.box is None else ", ".join(f"{name} in [{a}, {b}]" for name, (a, b) in given.box.items())
    rows.append(("box", box))
    shown = [levels(given), table("Kind, variables and box", ("what", "value"), rows)]
    return together([*shown, *_kinks(given), *_file(given)])


def _kinks(given: BilevelProblem) -> list[Markup]:
    words = "g has a kink where {}: no formula holds where the minimiser lies on it. Smooth is {}."
    return [paragraph(words.format(kink, kink.instead)) for kink in derive(given.mean).kinks]


def _names(symbols: tuple[object, ...]) -> str:
    names = [str(getattr(symbol, "name", symbol)) for symbol in symbols]
    return ", ".join(names if len(names) <= 12 else [*names[:10], "…", names[-1]])


def levels(given: BilevelProblem) -> Markup:
    """f and g as they were given.

    >>> from bilevel_sym import zoo
    >>> "<math" in levels(zoo.get("scalar").problem)
    True
    """
    try:
        return _shown(derive(given.mean).latex("problem"), "f and g")
    except BilevelError as error:
        return why_not(error)


def _file(given: BilevelProblem) -> list[Markup]:
    """The problem as a file, to read or to keep, where it is short."""
    try:
        text = given.to_toml()
    except BilevelError:
        return []
    if len(text) > SHORT_FILE:
        return []
    return [tag("details", tag("summary", "The problem as a file"), code(text))]


def formulas(subject: Subject) -> Markup:
    """y*, Phi, its gradient and Hessian; in matrices where they are too long to read.

    >>> from bilevel_sym import zoo
    >>> formulas(Subject(zoo.get("scalar").problem, 0, 1.0, None, "")).count("<mtr>")
    4
    """
    derivation = derive(subject.problem.mean)
    method = paragraph(f"Lower level: {derivation.method}.")
    try:
        return together([method, _shown(derivation.latex("entries"), "y*, Phi, its gradient and Hessian", derivation)])
    except BilevelError as error:
        said = paragraph(f"In matrices, as the formulas written out are too long: {error.message}.")
        return together([method, said, _shown(derivation.latex("blocks"), "The formulas of every problem")])


def _shown(latex: str, label: str, derivation: object = None) -> Markup:
    """The lines that a person reads; of the others it is said that they are left out."""
    lines = latex.removeprefix(_HEAD).removesuffix(_FOOT).split(_LINE)
    short = [line for line in lines if len(line) <= READABLE_LETTERS]
    shown = [scrolled(formula(f"{_HEAD}{_LINE.join(short)}{_FOOT}"), label)] if short else []
    long = [line for line in lines if len(line) > READABLE_LETTERS]
    if long:
        shown.append(paragraph("Too long to read, and not shown (letters of LaTeX): ", *_left_out(long), "."))
    if len(short) < len(lines) and derivation is not None:
        blocks = getattr(derivation, "latex")("blocks")  # noqa: B009 - scalars and arrays, which share no class
        shown += [paragraph("In matrices, at y = y*(x):"), _shown(blocks, "The formulas in matrices")]
    return together(shown)


def _left_out(lines: list[str]) -> Iterator[str]:
    """The names of formulas, each with its letters of LaTeX; of many the first and the last ones."""
    told = lines if len(lines) <= NAMED else [*lines[:2], "", *lines[2 - NAMED :]]
    for k, line in enumerate(told):
        yield from ([", "] if k else [])
        if line:
            yield tag("math", formula_inside(line.partition(" &=")[0]), display="inline")
        yield f" ({len(line):,})" if line else "…"


def formula_inside(latex: str) -> Markup:
    """A short formula, to stand in a sentence.

    >>> formula_inside("x")
    '<mi>x</mi>'
    """
    whole = formula(latex)
    return (
        Markup(whole.partition(">")[2].rpartition("</math>")[0]) if whole.startswith("<math") else tag("mtext", latex)
    )
