"""``bilevel-sym derive``, ``certify``, ``zoo``: formulas, proved digits at a point, problems with answers."""

from __future__ import annotations

import argparse
import textwrap
from collections.abc import Iterator
from typing import Any

from bilevel_sym.cli.command import PROBLEM, Command, add_format, as_point, load_problem, point_of, whole
from bilevel_sym.cli.records import certificate_record, derivation_record, example_record, zoo_record
from bilevel_sym.cli.screen import Screen


def _derive_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problem", metavar="PROBLEM", help="what to derive; see below")
    meaning = "text (default), latex, python (NumPy, runs alone) or json (bilevel-sym/derivation/1)"
    add_format(parser, ("text", "latex", "python", "json"), meaning)


def _derive(options: argparse.Namespace, screen: Screen) -> int:
    with screen.meter("deriving"):
        from bilevel_sym.symbolic.derivation import derive
        from bilevel_sym.symbolic.display import text_lines

        problem = load_problem(options.problem)
        derivation = derive(problem)
        if problem.is_array:
            _show_arrays(derivation, options.format, screen)
        elif options.format == "text":
            screen.show_all(text_lines(derivation))
        elif options.format == "python":
            screen.show(derivation.source("numpy"), plain=True)
        elif options.format == "json":
            screen.show_json(derivation_record(derivation))
        else:
            screen.show(derivation.latex(), plain=True)
    return 0


def _show_arrays(derivation: Any, form: str, screen: Screen) -> None:
    if form == "json":
        screen.show_json(derivation.record())
    elif form == "text":
        screen.show_all(derivation.text().splitlines())
    else:
        screen.show(derivation.latex() if form == "latex" else derivation.source("numpy"), plain=True)


DERIVE = Command(
    name="derive",
    summary="y*(x), Phi, its gradient and Hessian, term by term",
    examples=(
        ("bilevel-sym derive zoo:scalar", "every formula, with its direct and implicit terms"),
        ("bilevel-sym derive toy.toml --format latex", "the same for a paper"),
        ("bilevel-sym derive toy.toml --format python > toy.py", "NumPy functions y_star, phi, grad_phi, hess_phi"),
    ),
    add_arguments=_derive_arguments,
    run=_derive,
    notes=PROBLEM,
)


def _certify_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problem", metavar="PROBLEM", help="see below")
    parser.add_argument(
        "--at", metavar="POINT", required=True, help='a value for each variable of x, such as "x1=1/3,x2=0.2"; exact'
    )
    parser.add_argument(
        "--digits", metavar="N", type=whole(1, 10_000), default=50, help="how many, 1 to 10000 (default 50)"
    )
    add_format(parser, ("text", "json"), "text (default) or json (bilevel-sym/certificate/1)")


def _certify(options: argparse.Namespace, screen: Screen) -> int:
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


CERTIFY = Command(
    name="certify",
    summary="digits of y*, Phi, its gradient and Hessian at a point, proved",
    examples=(
        ('bilevel-sym certify zoo:implicit_cubic --at "x=1/3"', "50 digits of everything"),
        ('bilevel-sym certify toy.toml --at "x1=0.1,x2=-2" --digits 1000', "0.1 means 1/10 exactly"),
        ('bilevel-sym certify zoo:scalar --at "x=1" --format json', "each number with a bound on its error"),
    ),
    add_arguments=_certify_arguments,
    run=_certify,
    codes=("0  proved",),
    notes=PROBLEM,
)


def _zoo_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("name", metavar="NAME", nargs="?", help="one problem with its answers (default: list all)")
    add_format(parser, ("text", "json"), "text (default) or json (bilevel-sym/zoo/1; with NAME bilevel-sym/example/1)")


def _zoo(options: argparse.Namespace, screen: Screen) -> int:
    with screen.meter("reading"):
        from bilevel_sym import zoo

        example = None if options.name is None else zoo.parse(options.name.removeprefix("zoo:"))
        if options.format == "json":
            screen.show_json(zoo_record() if example is None else example_record(example))
        elif example is None:
            screen.show_all(_listed(screen.width))
        else:
            screen.show(example.describe(width=max(40, screen.width - 15)))
    return 0


def _listed(columns: int) -> Iterator[str]:
    listed = zoo_record()["problems"]
    width = max(len(problem["name"]) for problem in listed) + 2
    for problem in listed:
        yield from textwrap.wrap(
            problem["summary"], max(40, columns), initial_indent=problem["name"].ljust(width),
            subsequent_indent=" " * width,
        )  # fmt: skip


ZOO = Command(
    name="zoo",
    summary="problems that carry their answers",
    examples=(
        ("bilevel-sym zoo", "their names"),
        ("bilevel-sym zoo saddle", "one of them: y*, Phi, stationary points, constants"),
        ("bilevel-sym zoo tube,d=3,L=2", "with other parameters"),
    ),
    add_arguments=_zoo_arguments,
    run=_zoo,
)
