"""``bilevel-sym verify --coverage``: what computes each statement of the paper, computed while it is shown."""

from __future__ import annotations

import argparse

from bilevel_sym.cli.screen import Screen
from bilevel_sym.cli.values import load_problem

__all__ = ["show_coverage"]


def show_coverage(options: argparse.Namespace, screen: Screen) -> int:
    """The ledger with its verdicts; 0 where every link stands. With a PROBLEM its claims are judged on that alone."""
    if options.claims is not None or options.variant != "corrected":
        options.parser.error("--coverage takes a PROBLEM and --format, and nothing else")
    with screen.meter("computing the ledger") as meter:
        from bilevel_sym.system.verifier import verifier

        theory = verifier("theory").theory_of(options.theory)
        coverage = theory.coverage
        if coverage is None:
            options.parser.error(f"{theory.name} has no ledger of its statements")
        problems = None if options.problem is None else [load_problem(options.problem)]
        judged = list(
            coverage.judge(
                problems=problems, told=lambda done, what: meter.at(done, f", {what}, {done} of {len(coverage.ROWS)}")
            )
        )
    if options.format == "json":
        screen.show_json(coverage.record(judged))
    else:
        screen.show_all(coverage.coverage_table(judged, options.format), plain=options.format == "markdown")
    return 0 if all(item.stands for item in judged) else 1
