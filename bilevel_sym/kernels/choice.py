"""Which engine computes.

"auto" takes the compiled interpreter where numba is installed, except for formulas in which functions that it calls
one number at a time (and NumPy many at a time) would cost more than everything else saves. The rule is a count of
nodes times measured nanoseconds, and looks at the problem alone, never at the clock: the same problem runs in the same
engine in every run and at every batch size. Array problems are NumPy's, but for single points of small ones.
"""

from __future__ import annotations

import importlib.util
import warnings
from typing import Literal

from bilevel_sym.arrays.tensor import known_sizes
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.implicit.engine import Engine
from bilevel_sym.implicit.model import Model
from bilevel_sym.kernels.array_engine import ArrayEngine
from bilevel_sym.kernels.tape_engine import TapeEngine
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.system.progress import tell_once

__all__ = ["Backend", "can_compile", "choose_batch_invariant_engine", "choose_engine"]

Backend = Literal["auto", "tape", "compiled", "lambdify"]

DERIVATIVES = 3  # how often such a node comes back in gradient and Hessian, roughly
SAVED = 500.0  # nanoseconds a point that the interpreter saves at n = 1
SAVED_BY_SOLVES = 5.0  # and for each entry of g_yy
IN_NUMPY = "so the tape runs in NumPy: the same numbers, more slowly"


def choose_engine(problem: BilevelProblem, backend: Backend) -> Engine:
    """The engine that a backend means for a problem.

    >>> choose_engine(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), "tape").name
    'numpy'
    """
    if problem.is_array:
        if backend == "auto":
            return _array_engine(problem)
        problem = problem.lowered()  # an independent route, where that is not too large
    if backend == "lambdify":
        from bilevel_sym.kernels.lambdify_engine import LambdifyEngine

        return LambdifyEngine(problem.f, problem.g, problem.x, problem.y)
    if backend == "tape" or (backend == "auto" and not _pays(problem.tape)) or not can_compile(backend):
        return TapeEngine(problem.tape)
    from bilevel_sym.kernels.compilation import make_ready
    from bilevel_sym.kernels.compiled_engine import CompiledEngine

    make_ready()
    return CompiledEngine(problem.tape)


def choose_batch_invariant_engine(engine: Engine, problem: BilevelProblem) -> Engine:
    """The engine itself if a lane has the same bits in every batch, or else its batch-invariant counterpart.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> choose_batch_invariant_engine(choose_engine(problem, "tape"), problem).batch_invariant
    True
    """
    if engine.batch_invariant:
        return engine
    if isinstance(engine, ArrayEngine):
        return engine.invariant()
    kind = type(engine) if isinstance(engine, TapeEngine) else TapeEngine
    return kind(problem.tape, batch_invariant=True)


def _array_engine(problem: BilevelProblem) -> ArrayEngine:
    problem = problem.mean
    _ = problem.d, problem.n  # says which size is not known
    model = problem.array_model
    for leaf in sorted(model.f.leaves | model.g.leaves, key=lambda leaf: leaf.name):
        if leaf.role in ("data", "parameter") and leaf.name not in problem.arrays:
            raise InvalidProblem(
                f"{leaf.name} has no values, so nothing can be computed",
                hint=f"formulas do without; for numbers give data or parameters with {leaf.name!r}",
            )
    return ArrayEngine(model, known_sizes(problem.dimensions), problem.arrays, may_compile=_is_ready)


def _is_ready() -> bool:
    """Whether there is compiled code; it is made where there could be."""
    if not can_compile("auto"):
        return False
    from bilevel_sym.kernels.compilation import make_ready

    make_ready()
    return True


def can_compile(backend: Backend) -> bool:
    """Whether numba is there and of use; where it would be expected, one notice says that NumPy takes over.

    >>> isinstance(can_compile("auto"), bool)
    True
    """
    if importlib.util.find_spec("numba") is None:
        if backend == "compiled":
            warnings.warn(f"numba is not installed, {IN_NUMPY}. pip install numba brings it", stacklevel=5)
        return False
    try:
        import numba

        from bilevel_sym.kernels.compilation import cache_folder, is_compiled

        if getattr(numba.config, "DISABLE_JIT", False):
            why = "NUMBA_DISABLE_JIT is set"
        elif backend == "auto" and cache_folder() is None and not is_compiled():
            why = (
                "there is no folder of your own in which compiled code could be kept (NUMBA_CACHE_DIR can name one, "
                "backend='compiled' compiles in every process)"
            )
        else:
            return True
    except Exception as problem:  # noqa: BLE001  a numba that does not suit the other packages fails at import, in many ways
        why = f"numba cannot be used ({problem})"
    tell_once(f"bilevel-sym: {why}, {IN_NUMPY}")
    return False


def _pays(model: Model) -> bool:
    """Whether the interpreter is expected to be the faster engine."""
    roots = {node for form in (model.f, model.g) for node in form.terms}
    operations = (model.graph.op[node] for node in model.graph.reachable(roots))
    excess = sum(OPERATIONS[op].excess for op in operations if op in OPERATIONS)
    return DERIVATIVES * excess <= SAVED + SAVED_BY_SOLVES * model.n**2
