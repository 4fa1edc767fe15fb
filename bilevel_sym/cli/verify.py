"""``bilevel-sym verify``: verdicts on the statements of the theory."""

from __future__ import annotations

import argparse

from bilevel_sym.cli.command import PROBLEM, Command, add_format
from bilevel_sym.cli.interrupts import INTERRUPTED
from bilevel_sym.cli.screen import Screen, tell_interrupted
from bilevel_sym.cli.values import effort, load_problem, memory, one_of, positive, whole

__all__ = ["COMMAND"]

NOTES = f"""{PROBLEM}
A verdict is HOLDS, VIOLATED, or with its reason INCONCLUSIVE or NOT_APPLICABLE.
LABEL is one of a paper, such as lem:descent or grad-Lipschitz.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("problem", metavar="PROBLEM", nargs="?", help="with a box; see below (with --coverage it may be left out)")
    add("--theory", metavar="NAME", help="whose statements (default: the first of verify.theories())")
    add("--claims", metavar="LABEL,...", type=_labels, help="only these statements (default: all that apply)")
    add(
        "--variant", metavar="VARIANT", type=one_of("corrected", "printed", "sharp"), default="corrected",
        help="which formulas: corrected (default), printed (as in the paper) or sharp (the best that is proved)",
    )  # fmt: skip
    add_format(parser, ("text", "markdown", "json"), "text (default), markdown or json (bilevel-sym/report/1)")
    add(
        "--effort", metavar="E", type=effort, default="default",
        help="quick, default (about half a minute), thorough, or a multiple of the default; the same everywhere",
    )  # fmt: skip
    add("--seconds", metavar="S", type=positive, help="a limit for people in a hurry; what it cuts is INCONCLUSIVE")
    add("--memory", metavar="SIZE", type=memory, default="2GB", help="what may be taken (default 2GB)")
    add("--seed", metavar="N", type=whole(0), default=0, help="of the random numbers (default 0)")
    add("--coverage", action="store_true", help="what computes each statement of the paper, and what that says of it")


def _labels(text: str) -> list[str]:
    labels = [label.strip() for label in text.split(",") if label.strip()]
    if not labels:
        raise argparse.ArgumentTypeError("there is no label\ntry: lem:descent, or no --claims for all that apply")
    return labels


def _run(options: argparse.Namespace, screen: Screen) -> int:
    if options.coverage:
        return _show_coverage(options, screen)
    if options.problem is None:
        options.parser.error("the following arguments are required: PROBLEM")
    with screen.meter("reading"):
        # the command line stands above both packages; nothing else in this one knows the verifier
        from bilevel_sym.system.verifier import verifier

        run = verifier("runner").run
        problem = load_problem(options.problem)
    report = run(
        problem, claims=options.claims, theory=options.theory, rng=options.seed, effort=options.effort,
        seconds=options.seconds, variant=options.variant, memory=options.memory, progress=screen.progress,
    )  # fmt: skip
    if options.format == "text":
        screen.show(report.to_text(width=screen.width))
    elif options.format == "markdown":
        screen.show(report.to_markdown(), plain=True)
    else:
        screen.show_json(report.to_dict())
    if report.interrupted:
        tell_interrupted("what was not reached is INCONCLUSIVE in the report")
        return INTERRUPTED
    return 0 if report.ok else 1


def _show_coverage(options: argparse.Namespace, screen: Screen) -> int:
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


COMMAND = Command(
    name="verify",
    summary="a verdict on each statement of a theory, over the problem's box",
    examples=(
        ("bilevel-sym verify zoo:saddle --claims lem:descent,grad-Lipschitz", "two statements"),
        ("bilevel-sym verify toy.toml --effort quick", "all of them, with a tenth of the work"),
        ("bilevel-sym verify zoo:saddle --theory ji2021", "the statements of another paper"),
        ("bilevel-sym verify zoo:lphi_witness --variant printed", "a printed bound that fails"),
        ("bilevel-sym verify --coverage", "every statement of the paper, and what computes it"),
    ),
    add_arguments=_add_arguments,
    run=_run,
    codes=("0  nothing is violated", "1  something is violated (--coverage: some link does not stand)"),
    notes=NOTES,
)
