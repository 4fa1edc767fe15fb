"""What numba compiles once an installation is compiled before a clock starts."""

from __future__ import annotations

from contextlib import suppress

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import Floats

__all__ = ["compile_first"]


def compile_first(problem: BilevelProblem, x: Floats) -> None:
    """Ask the kernels once for all that they have at x; one point and a batch run code of their own.

    >>> compile_first(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), np.array([1.0]))
    """
    with suppress(BilevelError):
        for at in (x, np.stack([x, x])):
            problem.kernels.hess_phi(at)
