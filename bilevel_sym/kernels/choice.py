"""Which engine computes."""

from __future__ import annotations

from typing import Literal, get_args

from bilevel_sym.engine import Engine
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.kernels.tape_engine import TapeEngine
from bilevel_sym.problem import BilevelProblem

__all__ = ["Backend", "choose_engine"]

Backend = Literal["auto", "tape", "compiled", "lambdify"]


def choose_engine(problem: BilevelProblem, backend: Backend) -> Engine:
    """The engine that a backend means for a problem."""
    if backend not in get_args(Backend):
        raise InvalidProblem(f"backend={backend!r}", hint=f"one of {', '.join(map(repr, get_args(Backend)))}")
    if backend == "lambdify":
        from bilevel_sym.kernels.lambdify_engine import LambdifyEngine

        return LambdifyEngine(problem.f, problem.g, problem.x, problem.y)
    return TapeEngine(problem.tape)
