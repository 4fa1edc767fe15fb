"""What a competitor must offer, so that one clock can measure them all."""

from __future__ import annotations

from importlib.util import find_spec
from typing import Any, ClassVar, Protocol

from benchmarks.case import Case
from bilevel_sym.typing import Floats

__all__ = ["Competitor", "Kernel", "Triple"]

Triple = tuple[Floats, Floats, Floats]  # phi (...), grad (..., d), hess (..., d, d)


class Kernel(Protocol):
    """A compiled problem: NumPy arrays in, NumPy arrays out."""

    def one(self, x: Floats, y: Floats) -> Triple:
        """(phi, grad, hess) at one point."""
        ...

    def many(self, x: Floats, y: Floats) -> Triple:
        """(phi, grad, hess) at each row of x and y."""
        ...


class Competitor:
    """A system that computes (phi, grad, hess); ``styles`` are ways to write it, and the fastest one is measured."""

    name: ClassVar[str]
    needs: ClassVar[tuple[str, ...]] = ()
    extra: ClassVar[str] = ""
    styles: ClassVar[tuple[str, ...]] = ("only",)

    def missing(self) -> str | None:
        """Why this competitor cannot take part, and what to install; None when it can."""
        absent = [module for module in self.needs if find_spec(module) is None]
        if absent:
            return f'{self.name}: {", ".join(absent)} is not installed; pip install "bilevel-sym[{self.extra}]"'
        return None

    def state(self, case: Case, style: str) -> Any:
        """The problem as a user of this system has it in hand before set-up begins."""
        raise NotImplementedError

    def text(self, case: Case, style: str) -> Any:
        """The problem as text, for those who read text; for the others as ``state`` has it."""
        return self.state(case, style)

    def set_up(self, stated: Any, style: str) -> Kernel:
        """From the stated problem to something that can be called."""
        raise NotImplementedError
