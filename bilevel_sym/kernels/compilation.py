"""What numba compiles once per installation: all of it in one step, announced wherever a person reads."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np

from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.system.budget import Stopwatch
from bilevel_sym.system.progress import is_watched

__all__ = ["cache_folder", "compile_all", "is_compiled", "make_ready"]

ANNOUNCED = (
    "bilevel-sym: compiling for this processor, once per installation: half a minute to two minutes; "
    "`bilevel-sym compile` does it beforehand ..."
)


def make_ready() -> None:
    """Compile whatever is not in the cache, all at once; says so on a terminal and in a notebook, and nowhere else.

    >>> make_ready()  # says nothing here
    >>> is_compiled()
    True
    """
    if is_compiled():
        return
    told, watch = is_watched(), Stopwatch()
    if told:
        _say(ANNOUNCED)
    compile_all()
    if told:
        _say(f"bilevel-sym: compiled in {watch.elapsed:.0f} s")


def is_compiled() -> bool:
    """Whether everything is loaded, or in numba's cache for this processor and from the sources as they are.

    >>> isinstance(is_compiled(), bool)
    True
    """
    from numba.core.registry import cpu_target

    processor = cpu_target.target_context.codegen().magic_tuple()
    return all(
        len(function.overloads) >= copies or _cached(function, processor) >= copies for function, copies in _entrances()
    )


def compile_all() -> None:
    """Call, on a small problem, everything that is called in compiled code: what is cached is loaded, else compiled.

    >>> compile_all()
    """
    from bilevel_sym.arithmetic.compiled import rows as batches
    from bilevel_sym.arithmetic.compiled.vectors import WIDTH
    from bilevel_sym.implicit import one_point, one_point_products
    from bilevel_sym.kernels.compiled_engine import CompiledEngine
    from bilevel_sym.solvers.compiled.compiled_loop import CompiledLoop, LoopState, Rule

    model = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y").tape
    engine = CompiledEngine(model)
    for rows in (1, 2):  # one point and many run code of their own
        xy = np.zeros((rows, 2))
        engine.session(("f",), rows).put(0, xy)
        engine.expansion(xy)
    loop = CompiledLoop(model, kind="aid", D=1, N=1, tau=0.5)
    for rows in (1, WIDTH):
        loop.advance(LoopState.start(np.zeros((rows, 1)), np.zeros((rows, 1))), 1, Rule(eta=0.5))
    code, numbers, table = np.zeros((0, 8), dtype=np.int64), np.zeros(1), np.zeros(1)
    none = np.zeros((0, 4), dtype=np.int64)
    empty, ends = np.zeros(0, dtype=np.int64), np.zeros(15, dtype=np.int64)
    one_point.value(empty, numbers, table, 0)
    one_point.newton(empty, numbers, table, ends, np.zeros(3), 1, True)
    for formulas in (one_point.gradient, one_point.expand):
        formulas(empty, empty, numbers, table, ends, np.zeros(1))
    places, counts = np.zeros(10, dtype=np.int64), np.zeros(2, dtype=np.int64)
    one_point_products.newton(empty, empty, numbers, table, places, places, counts)
    one_point_products.gradient(*(empty,) * 3, numbers, table, places, places, 0, np.zeros(1))
    one_point_products.expand(*(empty,) * 4, numbers, table, places, places, 0, np.zeros(1))
    cuts, sizes = np.zeros(3, dtype=np.int64), np.array([0, 0, -1, 0, 0, 1, 1])
    data, picked = batches.to_read(table), batches.to_read(empty)
    batches.walk(code, cuts, numbers, numbers, data, data, data, none, picked, sizes, 1.0)


def cache_folder() -> Path | None:
    """Where numba keeps what was compiled, here or in folders below; None where there is none that it could use.

    >>> folder = cache_folder()
    >>> folder is None or folder.is_absolute()
    True
    """
    from bilevel_sym.arithmetic.compiled.cache import folder_of

    folders = {folder_of(function) for function, _ in _entrances()}
    return None if None in folders else Path(os.path.commonpath(map(str, folders)))


def _entrances() -> Iterator[tuple[Any, int]]:
    """What Python calls, and for how many kinds of tables it is compiled."""
    from bilevel_sym.arithmetic.compiled import interpreter, rows
    from bilevel_sym.implicit import lanes, one_point, one_point_products
    from bilevel_sym.solvers.compiled import trajectories

    yield interpreter.run, 2
    yield lanes.expand, 1
    yield lanes.eliminate, 1
    yield lanes.assemble, 1
    yield rows.walk, 1
    yield one_point.value, 1
    yield one_point.newton, 1
    yield one_point.gradient, 1
    yield one_point.expand, 1
    yield one_point_products.newton, 1
    yield one_point_products.gradient, 1
    yield one_point_products.expand, 1
    yield trajectories.advance, 2


def _cached(function: Any, processor: tuple[Any, ...]) -> int:
    """How many copies of a compiled function the cache holds; numba has no public way of asking."""
    # another version of numba may keep its index otherwise: then the answer is none, and compiling loads what is there
    with suppress(AttributeError, IndexError, TypeError, OSError):
        return sum(key[1] == processor for key in function._cache._cache_file._load_index())
    return 0


def _say(line: str) -> None:
    # over a line of progress, if there is one
    with suppress(OSError, ValueError):
        print(f"\r{line}" if sys.stderr.isatty() else line, file=sys.stderr, flush=True)
