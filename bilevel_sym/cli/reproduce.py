"""``bilevel-sym reproduce``: the paper's experiment, and two more."""

from __future__ import annotations

import argparse
from pathlib import Path

from bilevel_sym.cli.command import Command
from bilevel_sym.cli.screen import Screen
from bilevel_sym.cli.values import one_of

__all__ = ["COMMAND", "EXPERIMENTS"]

EXPERIMENTS = ("figure1", "figure2", "figure3")  # written out, so that help need not import them; a test compares


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("figure", metavar="FIGURE", type=one_of(*EXPERIMENTS), help=", ".join(EXPERIMENTS))
    parser.add_argument("--out", metavar="DIR", default=".", help="where the files go (default: here)")


def _run(options: argparse.Namespace, screen: Screen) -> int:
    from bilevel_sym.theories.huang_saddle.experiments import reproduce

    # an experiment has a meter of its own: one line of progress is enough
    screen.show_all(reproduce(options.figure, Path(options.out), progress=screen.progress))
    return 0


COMMAND = Command(
    name="reproduce",
    summary="the paper's experiment, and two that test what it does not",
    examples=(
        ("bilevel-sym reproduce figure1", "the paper's: two pictures, figure1.csv and figure1.json, here"),
        ("bilevel-sym reproduce figure2 --out figures", "inexact hypergradients, into a folder"),
    ),
    add_arguments=_add_arguments,
    run=_run,
    codes=("0  done: the files are written",),
    notes="""\
FIGURE is one of
  figure1    perturbed against unperturbed descent in the tube of Section 5
  figure2    the same where inexact inner loops matter
  figure3    how oracle calls grow with 1/eps and kappa
Each takes about half a minute of one core, and wants matplotlib (extra: plot).
""",
)
