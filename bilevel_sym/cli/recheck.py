"""``bilevel-sym recheck``: a saved certificate, proved again."""

from __future__ import annotations

import argparse

from bilevel_sym.cli.command import PROBLEM, Command
from bilevel_sym.cli.screen import Screen, tell
from bilevel_sym.cli.values import load_problem

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a certificate that .save(path) wrote")
    parser.add_argument("--problem", metavar="PROBLEM", help="your own, of which it must be true; see below")


def _run(options: argparse.Namespace, screen: Screen) -> int:
    with screen.meter("proving"):
        # the command line stands above both packages
        from bilevel_sym.certify.saved_certificate import problem_text
        from bilevel_sym.system.verifier import verifier

        program, prove = verifier("certificates.recheck"), verifier("certificates.proof").proved
        mine = None if options.problem is None else problem_text(load_problem(options.problem))
        try:
            found = prove(options.file, mine)
        except program.NotProved as error:
            tell(f"not proved: {error}")
            return 1
        except program.Refused as error:
            tell(f"error: {options.file} cannot be checked: {error}")
            return 2
    whose = "the problem in the file" if mine is None else options.problem
    screen.show("\n".join([f"proved of {whose}", *found["sentences"]]))
    return 0


COMMAND = Command(
    name="recheck",
    summary="a saved certificate proved again, by a program that shares no code with the search",
    examples=(
        ("bilevel-sym recheck constants.json", "of the problem that stands in the file"),
        ("bilevel-sym recheck constants.json --problem toy.toml", "of your own"),
    ),
    add_arguments=_add_arguments,
    run=_run,
    codes=("0  proved", "1  not proved"),
    notes=PROBLEM,
)
