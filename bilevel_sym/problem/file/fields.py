"""ProblemFile: what a problem file says, and where in the file a formula stands."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import sympy as sp

from bilevel_sym.arrays.data import DataArray
from bilevel_sym.errors import UnsafeExpression
from bilevel_sym.problem.file.positions import string_offsets
from bilevel_sym.problem.parsing.tokens import Source

__all__ = ["KINDS", "Arrays", "Intervals", "Numbers", "ProblemFile", "Rows"]

KINDS = ("bilevel", "minimax", "stochastic")

Numbers = Mapping[str, sp.Rational | None]
Intervals = Mapping[str, tuple[sp.Rational, sp.Rational]]
Rows = tuple[tuple[sp.Rational, ...], ...]
Arrays = Mapping[str, DataArray | str]


@dataclass(frozen=True)
class ProblemFile:
    """The fields of a problem file. Formulas are text; a parameter that is None stays symbolic.

    ``x`` and ``y`` are names, or declarations of arrays such as "W[p, q]". ``data`` are arrays by name, or their shapes
    as text ("m, n"); None where the file has none.

    ``path`` and ``text`` say where the fields came from; they do not count when two are compared.

    >>> ProblemFile(kind="minimax", x=("x",), y=("y",), f="x*y - y**2", g=None).box is None
    True
    """

    kind: str
    x: tuple[str, ...]
    y: tuple[str, ...]
    f: str
    g: str | None
    name: str | None = None
    parameters: Numbers = field(default_factory=lambda: MappingProxyType({}))
    box: Intervals | None = None
    xi: tuple[str, ...] = ()
    zeta: tuple[str, ...] = ()
    xi_data: Rows = ()
    zeta_data: Rows = ()
    data: Arrays | None = None
    path: str = field(default="", compare=False)
    text: str = field(default="", compare=False, repr=False)

    def locate(self, error: UnsafeExpression) -> UnsafeExpression:
        """The error of the formula that ``error.source`` names ("f" or "g"), placed in the file.

        >>> text = 'y = "y"\\nf = "y + q"'
        >>> fields = ProblemFile("minimax", ("x",), ("y",), "y + q", None, path="toy.toml", text=text)
        >>> print(fields.locate(UnsafeExpression("unknown name 'q'", column=5, source="f")))
        unknown name 'q' (toy.toml, f, line 2, column 10)
          f = "y + q"
                   ^
        """
        key = error.source or ""
        formula = {"f": self.f, "g": self.g}.get(key)
        if formula is None or not self.path:
            return error
        offsets = string_offsets(self.text, key, formula)
        if offsets is None:
            inside = Source(formula, f"{self.path}, in the text of {key}")
            return inside.error(_index(formula, error), error.what, error.hint)
        place = offsets[min(_index(formula, error), len(offsets) - 1)]
        return Source(self.text, f"{self.path}, {key}").error(place, error.what, error.hint)


def _index(formula: str, error: UnsafeExpression) -> int:
    lines = formula.split("\n")[: error.line - 1]
    return sum(len(line) + 1 for line in lines) + error.column - 1
