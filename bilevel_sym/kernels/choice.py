"""Which engine computes."""

from __future__ import annotations

import importlib.util
import warnings
from typing import Literal, get_args

from bilevel_sym.engine import Engine
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.kernels.tape_engine import TapeEngine
from bilevel_sym.problem import BilevelProblem

__all__ = ["Backend", "choose_engine"]

Backend = Literal["auto", "tape", "compiled", "lambdify"]


def choose_engine(problem: BilevelProblem, backend: Backend) -> Engine:
    """The engine that a backend means for a problem.

    >>> choose_engine(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), "tape").name
    'numpy'
    """
    if backend not in get_args(Backend):
        raise InvalidProblem(f"backend={backend!r}", hint=f"one of {', '.join(map(repr, get_args(Backend)))}")
    if backend == "lambdify":
        from bilevel_sym.kernels.lambdify_engine import LambdifyEngine

        return LambdifyEngine(problem.f, problem.g, problem.x, problem.y)
    if backend == "tape" or not _wants_compiled(backend):
        return TapeEngine(problem.tape)
    from bilevel_sym.kernels.compiled_engine import CompiledEngine

    return CompiledEngine(problem.tape)


def _wants_compiled(backend: Backend) -> bool:
    """Whether numba is there; asked for by name and absent, one notice says so, and NumPy takes over."""
    found = importlib.util.find_spec("numba") is not None
    if backend == "compiled" and not found:
        warnings.warn(
            "numba is not installed, so the tape runs in NumPy: the same numbers, more slowly. "
            "pip install 'bilevel-sym[fast]' brings it",
            stacklevel=4,
        )
    return found
