"""``bilevel-sym compile``: what numba compiles once per installation, done beforehand."""

from __future__ import annotations

import argparse
import importlib.util

from bilevel_sym.cli.command import Command
from bilevel_sym.cli.screen import Screen
from bilevel_sym.errors import KernelError

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--where", action="store_true", help="compile nothing; tell whether it is done, and where")


def _run(options: argparse.Namespace, screen: Screen) -> int:
    if importlib.util.find_spec("numba") is None:
        raise KernelError(
            "numba is not installed: there is nothing to compile, and the tape runs in NumPy",
            hint='pip install "bilevel-sym[fast]"',
        )
    with screen.meter("compiling, half a minute to two minutes"):
        from bilevel_sym.kernels.compilation import cache_folder, compile_all, is_compiled
        from bilevel_sym.system.budget import Stopwatch

        watch, before = Stopwatch(), is_compiled()
        if before:
            screen.show("everything is compiled already")
        elif options.where:
            screen.show("not everything is compiled yet")
        else:
            compile_all()
            screen.show(f"compiled in {watch.elapsed:.0f} s")
        folder = cache_folder()
        screen.show(f"kept in {folder}" if folder else "kept nowhere: NUMBA_CACHE_DIR can name a folder of your own")
    return 0


COMMAND = Command(
    name="compile",
    summary="compile the kernels and the solvers' loop beforehand, once per installation",
    examples=(
        ("bilevel-sym compile", "half a minute to two minutes; then nothing waits for it any more"),
        ("bilevel-sym compile --where", "is it done, and where is it kept?"),
    ),
    add_arguments=_add_arguments,
    run=_run,
    notes=(
        "Without it the first use compiles, and says so on a terminal and in a notebook. numba keeps what is compiled\n"
        "where NUMBA_CACHE_DIR says, beside the package, or in the user's cache: the first of them that others cannot\n"
        "write. Where there is none, NumPy computes.\n"
    ),
)
