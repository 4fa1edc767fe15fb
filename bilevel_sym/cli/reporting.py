"""``bilevel-sym report``: all that is known of a problem on one page."""

from __future__ import annotations

import argparse
import shlex
from pathlib import Path

from bilevel_sym.cli.command import PROBLEM, Command, effort, load_problem, whole
from bilevel_sym.cli.screen import INTERRUPTED, Screen, tell_interrupted
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.budget import EFFORTS
from bilevel_sym.system.verifier import verifier  # the command line stands above both packages


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("problem", metavar="PROBLEM", help="see below")
    add("--out", metavar="FILE", default="report.html", help="an .html file (default report.html)")
    add("--theory", metavar="NAME", help="whose statements (default: the first of verify.theories())")
    add(
        "--effort", metavar="E", type=effort, default="default",
        help="quick, default (a minute or two), thorough, or a multiple of the default; the same everywhere",
    )  # fmt: skip
    add("--seed", metavar="N", type=whole(0), default=0, help="of the random numbers (default 0)")


def _report(options: argparse.Namespace, screen: Screen) -> int:
    from bilevel_sym.system.writing import check_target

    if Path(options.out).suffix.lower() not in (".html", ".htm"):
        raise InvalidArgument(f"--out {options.out!r}: a report is an HTML file", hint="--out report.html")
    check_target(options.out)
    with screen.meter("reading"):
        report = verifier("reporting.page").report
        problem = load_problem(options.problem)
    page = report(
        problem, rng=options.seed, effort=options.effort, theory=options.theory, command=_command(options),
        progress=screen.progress,
    )  # fmt: skip
    page.save(options.out)
    screen.show(f"written: {options.out}")
    if page.interrupted:
        tell_interrupted("what was not reached is INCONCLUSIVE in the report")
        return INTERRUPTED
    return 0


def _command(options: argparse.Namespace) -> str:
    """What makes the page again, with all that it depends on; the name of the file is no part of it."""
    names = {scale: name for name, scale in EFFORTS.items()} | {"default": "default"}
    scale = names.get(options.effort, f"{options.effort}")
    words = ["bilevel-sym", "report", options.problem, "--seed", str(options.seed), "--effort", scale]
    words += [] if options.theory is None else ["--theory", options.theory]
    return shlex.join(words)


REPORT = Command(
    name="report",
    summary="all that is known of a problem on one page, an HTML file",
    examples=(
        ("bilevel-sym report zoo:saddle --out report.html", "formulas, constants, points, pictures, runs, verdicts"),
        ("bilevel-sym report toy.toml --effort quick", "with a tenth of the work, into report.html"),
    ),
    add_arguments=_arguments,
    run=_report,
    codes=("0  the file is written, whatever it says",),
    notes=PROBLEM,
)
