"""``bilevel-sym certify``: digits at a point, and what is proved of them."""

from __future__ import annotations

import argparse

from bilevel_sym.cli.command import PROBLEM, Command, add_format
from bilevel_sym.cli.records import certificate_record
from bilevel_sym.cli.screen import Screen
from bilevel_sym.cli.values import as_point, load_problem, point_of, whole

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problem", metavar="PROBLEM", help="see below")
    parser.add_argument(
        "--at", metavar="POINT", required=True, help='a value for each variable of x, such as "x1=1/3,x2=0.2"; exact'
    )
    parser.add_argument(
        "--digits", metavar="N", type=whole(1, 10_000), default=50, help="how many, 1 to 10000 (default 50)"
    )
    add_format(parser, ("text", "json"), "text (default) or json (bilevel-sym/certificate/1)")


def _run(options: argparse.Namespace, screen: Screen) -> int:
    point = as_point(options.at, "--at")
    with screen.meter("certifying"):
        from bilevel_sym.certify.certificate import evaluate

        problem = load_problem(options.problem)
        certificate = evaluate(problem, point_of(point, problem, "--at"), digits=options.digits)
        if options.format == "json":
            screen.show_json(certificate_record(certificate))
        else:
            screen.show(str(certificate))
    return 0


COMMAND = Command(
    name="certify",
    summary="digits of y*, Phi, its gradient and Hessian at a point, proved",
    examples=(
        ('bilevel-sym certify zoo:implicit_cubic --at "x=1/3"', "50 digits of everything"),
        ('bilevel-sym certify toy.toml --at "x1=0.1,x2=-2" --digits 1000', "0.1 means 1/10 exactly"),
        ('bilevel-sym certify zoo:scalar --at "x=1" --format json', "each number with a bound on its error"),
    ),
    add_arguments=_add_arguments,
    run=_run,
    codes=("0  proved",),
    notes=PROBLEM,
)
