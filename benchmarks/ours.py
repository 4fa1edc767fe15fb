"""This toolkit's two engines, as competitors."""

from __future__ import annotations

from importlib import import_module
from typing import ClassVar, Literal, NamedTuple

import sympy as sp

from benchmarks.case import Case
from benchmarks.competitor import Competitor, Kernel, Triple
from bilevel_sym import BilevelProblem, compile_kernels
from bilevel_sym.problem.text import to_text
from bilevel_sym.typing import Floats

__all__ = ["Compiled", "OurKernel", "Stated", "Tape", "program_size"]

Engine = Literal["tape", "compiled"]


class Stated(NamedTuple):
    """What a user has in hand: f and g, as SymPy expressions or as text, and the variables."""

    f: sp.Expr | str
    g: sp.Expr | str
    x: tuple[sp.Symbol, ...]
    y: tuple[sp.Symbol, ...]


class OurKernel:
    """The expansion of compiled kernels."""

    def __init__(self, problem: BilevelProblem, backend: Engine) -> None:
        self._kernels = compile_kernels(problem, backend=backend)

    def one(self, x: Floats, y: Floats) -> Triple:
        """(phi, grad, hess) at one point, or at each row of x and y."""
        e = self._kernels.expansion(x, y)
        return e.phi, e.grad, e.hess

    many = one


BLOCKS = ("f", "f_x", "f_y", "g_xy", "g_yy", "L_xx", "L_xy", "L_yy")


def program_size(stated: Stated) -> int | None:
    """How many numbers a program for all blocks of an expansion holds for each point; None where the tape cannot say.

    It looks behind the public interface, so a change there costs this column only.
    """
    try:
        model = import_module("bilevel_sym.implicit.model").Model(*stated)
        return int(model.program(BLOCKS).size)
    except (ImportError, AttributeError, LookupError, TypeError, ValueError):
        return None


class Tape(Competitor):
    """The NumPy engine: always there."""

    name = "NumPy engine"
    backend: ClassVar[Engine] = "tape"
    engine: ClassVar[str] = "numpy"  # what the kernels must call themselves: no engine runs under a false name

    def missing(self) -> str | None:
        """Why this engine cannot take part; None when it can."""
        if reason := super().missing():
            return reason
        running = compile_kernels(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), backend=self.backend).engine
        return None if running == self.engine else f"{self.name}: backend={self.backend!r} runs {running!r} here"

    def state(self, case: Case, style: str) -> Stated:
        """f and g in SymPy."""
        x, y = case.variables()
        return Stated(*case.formulas(x, y), x, y)

    def text(self, case: Case, style: str) -> Stated:
        """f and g as text."""
        f, g, x, y = self.state(case, style)
        return Stated(to_text(f), to_text(g), x, y)

    def set_up(self, stated: Stated, style: str) -> Kernel:
        """Make the problem, and compile it."""
        return OurKernel(BilevelProblem(*stated), self.backend)


class Compiled(Tape):
    """The numba engine; its interpreter is compiled once for an installation, before the clock starts."""

    name = "numba engine"
    backend = "compiled"
    engine = "compiled"
    needs = ("numba",)
    extra = "fast"
