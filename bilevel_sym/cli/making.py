"""``bilevel-sym compile`` and ``reproduce``: compiled code, made beforehand; the paper's experiment, and others."""

from __future__ import annotations

import argparse
import importlib.util
from pathlib import Path

from bilevel_sym.cli.command import Command, one_of
from bilevel_sym.cli.screen import Screen
from bilevel_sym.errors import KernelError

# written out, so that help need not import them; a test compares
EXPERIMENTS = ("figure1", "figure2", "figure3", "real-data", "escape", "tightness", "error")


def _compile_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--where", action="store_true", help="compile nothing; tell whether it is done, and where")


def _compile(options: argparse.Namespace, screen: Screen) -> int:
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


COMPILE = Command(
    name="compile",
    summary="compile the kernels and the solvers' loop beforehand, once per installation",
    examples=(
        ("bilevel-sym compile", "half a minute to two minutes; then nothing waits for it any more"),
        ("bilevel-sym compile --where", "is it done, and where is it kept?"),
    ),
    add_arguments=_compile_arguments,
    run=_compile,
    notes=(
        "Without it the first use compiles, and says so on a terminal and in a notebook. numba keeps what is compiled\n"
        "where NUMBA_CACHE_DIR says, beside the package, or in the user's cache: the first of them that others cannot\n"
        "write. Where there is none, NumPy computes.\n"
    ),
)


def _reproduce_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("figure", metavar="FIGURE", type=one_of(*EXPERIMENTS), help=", ".join(EXPERIMENTS))
    parser.add_argument("--out", metavar="DIR", default=".", help="where the files go (default: here)")
    parser.add_argument("--large", action="store_true", help="of escape, tightness and error: minutes to hours")


def _reproduce(options: argparse.Namespace, screen: Screen) -> int:
    from bilevel_sym.theories.huang_saddle.experiments import reproduce

    # an experiment has a meter of its own: one line of progress is enough
    screen.show_all(reproduce(options.figure, Path(options.out), progress=screen.progress, large=options.large))
    return 0


REPRODUCE = Command(
    name="reproduce",
    summary="the paper's experiment, and others that test what it does not",
    examples=(
        ("bilevel-sym reproduce figure1", "the paper's: two pictures, figure1.csv and figure1.json, here"),
        ("bilevel-sym reproduce figure2 --out figures", "inexact hypergradients, into a folder"),
        ("bilevel-sym reproduce real-data", "seven problems with data: where runs end, and what they cost"),
        ("bilevel-sym reproduce escape --large --out figures", "162 000 escapes; killed, it goes on where it was"),
    ),
    add_arguments=_reproduce_arguments,
    run=_reproduce,
    codes=("0  done: the files are written",),
    notes="""\
FIGURE is one of
  figure1    perturbed against unperturbed descent in the tube of Section 5
  figure2    the same where inexact inner loops matter
  figure3    how oracle calls grow with 1/eps and kappa
  real-data  perturbed and unperturbed descent on tables of measurements
  escape     how often escapes fail, and how long they take, beside the lemma
  tightness  where each claim is nearly attained, on generated problems
  error      hypergradients of AID, ITD and Neumann, beside their lemmas
Each takes about half a minute of one core, real-data a minute and a half, and
wants matplotlib (extra: plot). The last three are campaigns, which want pyarrow
(extra: cluster), keep their rows in DIR/FIGURE-campaign, and have a large plan.
""",
)
