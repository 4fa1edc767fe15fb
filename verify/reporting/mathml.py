"""LaTeX to MathML, which a browser shows without a script: the part of LaTeX in which formulas are printed.

Names become text of elements, and never markup. What is not understood is no error of the page: it shows the LaTeX.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from verify.reporting.latex_tokens import ESCAPED, FENCES, FUNCTIONS, LETTERS, OPERATORS, SPACES, tokens
from verify.reporting.markup import Markup, code, tag

__all__ = ["formula"]

DEEPEST = 80  # so many groups inside each other are read
ALT_LETTERS = 300  # of the LaTeX that stands for a formula where MathML is not shown
END = ""  # the token after the last
NAMED = frozenset({"text", "operatorname", "mathtt", "mathrm", "mathbf", "mathbb", "mathcal", "textrm"})
ACCENTS: Mapping[str, str] = MappingProxyType({"dot": "˙", "hat": "^", "bar": "¯", "tilde": "~", "overline": "¯"})
SIGNS: Mapping[str, str] = MappingProxyType({"-": "−", "*": "∗", "'": "′"})
SCRIPT: Mapping[str, str] = MappingProxyType({"L": "ℒ", "R": "ℝ", "E": "𝔼"})
BRACKETS: Mapping[str, tuple[str, str]] = MappingProxyType(
    {"bmatrix": ("[", "]"), "pmatrix": ("(", ")"), "cases": ("{", "")}
)


class _Unreadable(Exception):
    """LaTeX that is not of the kind that is printed here."""


def formula(latex: str) -> Markup:
    r"""A formula on lines of its own, as MathML; where it cannot be read, its LaTeX as text.

    >>> formula(r"\frac{x}{2}")
    '<math display="block" alttext="\\frac{x}{2}"><mfrac><mi>x</mi><mn>2</mn></mfrac></math>'
    >>> formula(r"\frac{x")
    '<pre tabindex="0"><code>\\frac{x</code></pre>'
    """
    try:
        inner = _Reader(latex).whole()
    except _Unreadable:
        return code(latex)
    short = latex if len(latex) <= ALT_LETTERS else f"{latex[:ALT_LETTERS]}…"
    return tag("math", inner, display="block", alttext=" ".join(short.split()))


class _Reader:
    """A reader of tokens, one group inside the other."""

    def __init__(self, latex: str) -> None:
        self._tokens = [*tokens(latex), END]
        self._at = self._depth = 0

    @property
    def next(self) -> str:
        return self._tokens[self._at]

    def take(self) -> str:
        self._at += 1
        return self._tokens[self._at - 1]

    def skip(self) -> None:
        while self.next == " ":
            self._at += 1

    def require(self, token: str) -> None:
        self.skip()
        if self.take() != token:
            raise _Unreadable

    def whole(self) -> Markup:
        found = self.row((END,))
        self.require(END)
        return found

    def row(self, ends: tuple[str, ...]) -> Markup:
        """Everything up to one of the ends, which is left."""
        self._depth += 1
        if self._depth > DEEPEST:
            raise _Unreadable
        found: list[Markup] = []
        while self.next not in ends:
            if self.next == END:
                raise _Unreadable
            if self.next == " ":
                self.skip()
            else:
                found.append(self.scripted(self.unscripted()))
        self._depth -= 1
        return found[0] if len(found) == 1 else tag("mrow", *found)

    def scripted(self, base: Markup) -> Markup:
        """An atom with what stands below and above it."""
        below = above = None
        while True:
            self.skip()
            if self.next == "_" and below is None:
                self.take()
                below = self.argument()
            elif self.next == "^" and above is None:
                self.take()
                above = self.argument()
            elif self.next == "'" and above is None:
                self.take()
                above = tag("mo", SIGNS["'"])
            else:
                break
        if below is not None and above is not None:
            return tag("msubsup", base, below, above)
        if below is not None:
            return tag("munder" if base.startswith("<munder>") else "msub", base, below)
        return base if above is None else tag("msup", base, above)

    def argument(self) -> Markup:
        self.skip()
        return self.group() if self.next == "{" else self.unscripted()

    def group(self) -> Markup:
        self.require("{")
        found = self.row(("}",))
        self.take()
        return found

    def unscripted(self) -> Markup:
        if self.next == "{":
            return self.group()
        token = self.take()
        if token.startswith("\\") and len(token) > 1:
            return self.command(token[1:])
        if token in ("", "}", "&", "_", "^", "\\"):
            raise _Unreadable
        if token[0].isdigit():
            return tag("mn", token)
        return tag("mi" if token.isalpha() else "mo", SIGNS.get(token, token))

    def command(self, name: str) -> Markup:
        special: Mapping[str, Callable[[], Markup]] = {
            "frac": self.fraction, "sqrt": self.root, "left": self.fenced, "begin": self.environment,
            "underbrace": self.braced,
        }  # fmt: skip
        if name in special:
            return special[name]()
        if name in NAMED:
            return self.named(name)
        if name in ACCENTS:
            return tag("mover", self.argument(), tag("mo", ACCENTS[name]))
        if name in SPACES:
            return tag("mspace", width=SPACES[name])
        if name in FENCES or name == "|":
            return tag("mo", FENCES.get(name, "‖"), stretchy="false")
        if name in OPERATORS or name in ESCAPED:
            return tag("mo", OPERATORS.get(name, name))
        if name in ("end", "right", "\\"):
            raise _Unreadable
        if name in FUNCTIONS:
            return tag("mi", name)
        return tag("mi", LETTERS.get(name, name))

    def fraction(self) -> Markup:
        above = self.argument()
        return tag("mfrac", above, self.argument())

    def root(self) -> Markup:
        self.skip()
        if self.next != "[":
            return tag("msqrt", self.argument())
        self.take()
        degree = self.row(("]",))
        self.take()
        return tag("mroot", self.argument(), degree)

    def fenced(self) -> Markup:
        opening = self.fence()
        inner = self.row((r"\right",))
        self.take()
        closing = self.fence()
        return tag("mrow", *(tag("mo", opening),) * bool(opening), inner, *(tag("mo", closing),) * bool(closing))

    def fence(self) -> str:
        self.skip()
        token = self.take()
        if token == END:
            raise _Unreadable
        if token == ".":
            return ""
        bare = token.removeprefix("\\")
        return "‖" if token == r"\|" else FENCES.get(bare, bare)

    def braced(self) -> Markup:
        return tag("munder", self.argument(), tag("mo", "⏟"))

    def named(self, name: str) -> Markup:
        """Letters that stand for themselves."""
        letters = self.letters()
        if name == "text":
            return tag("mtext", letters)
        if name in ("mathcal", "mathbb"):
            return tag("mi", SCRIPT.get(letters, letters))
        return tag("mi", letters, class_="mono") if name == "mathtt" else tag("mi", letters)

    def letters(self) -> str:
        self.require("{")
        found: list[str] = []
        while (token := self.take()) != "}":
            if token == END:
                raise _Unreadable
            if token == "{" and self.next == "}":  # after \backslash
                self.take()
            elif token.startswith("\\") and len(token) > 1:
                found.append(OPERATORS.get(token[1:], token[1:]))
            else:
                found.append(token)
        return "".join(found)

    def environment(self) -> Markup:
        name = self.letters()
        closing = r"\end"
        rows: list[list[Markup]] = [[]]
        while True:
            rows[-1].append(self.row(("&", r"\\", closing)))
            token = self.take()
            if token == r"\\":
                rows.append([])
            elif token == closing:
                break
        if self.letters() != name:
            raise _Unreadable
        body = tag("mtable", *(tag("mtr", *(tag("mtd", cell) for cell in row)) for row in rows), class_=name)
        before, after = BRACKETS.get(name, ("", ""))
        return tag("mrow", *(tag("mo", before),) * bool(before), body, *(tag("mo", after),) * bool(after))
