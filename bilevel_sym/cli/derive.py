"""``bilevel-sym derive``: the formulas of a problem."""

from __future__ import annotations

import argparse
from typing import Any

from bilevel_sym.cli.command import PROBLEM, Command, add_format
from bilevel_sym.cli.records import derivation_record
from bilevel_sym.cli.screen import Screen
from bilevel_sym.cli.values import load_problem

__all__ = ["COMMAND"]


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("problem", metavar="PROBLEM", help="what to derive; see below")
    meaning = "text (default), latex, python (NumPy, runs alone) or json (bilevel-sym/derivation/1)"
    add_format(parser, ("text", "latex", "python", "json"), meaning)


def _run(options: argparse.Namespace, screen: Screen) -> int:
    with screen.meter("deriving"):
        from bilevel_sym.symbolic.derivation import derive
        from bilevel_sym.symbolic.display import latex_summary, text_lines

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
            screen.show(latex_summary(derivation), plain=True)
    return 0


def _show_arrays(derivation: Any, form: str, screen: Screen) -> None:
    if form == "json":
        screen.show_json(derivation.record())
    elif form == "text":
        screen.show_all(derivation.text().splitlines())
    else:
        screen.show(derivation.latex() if form == "latex" else derivation.source("numpy"), plain=True)


COMMAND = Command(
    name="derive",
    summary="y*(x), Phi, its gradient and Hessian, term by term",
    examples=(
        ("bilevel-sym derive zoo:scalar", "every formula, with its direct and implicit terms"),
        ("bilevel-sym derive toy.toml --format latex", "the same for a paper"),
        ("bilevel-sym derive toy.toml --format python > toy.py", "NumPy functions y_star, phi, grad_phi, hess_phi"),
    ),
    add_arguments=_add_arguments,
    run=_run,
    notes=PROBLEM,
)
