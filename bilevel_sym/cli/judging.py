"""``bilevel-sym verify``, ``recheck``, ``errata``: verdicts, certificates proved again, a paper's errors."""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from typing import TYPE_CHECKING, Any

from bilevel_sym.cli.command import PROBLEM, Command, add_format, effort, load_problem, memory, one_of, positive, whole
from bilevel_sym.cli.records import erratum_record
from bilevel_sym.cli.screen import INTERRUPTED, Screen, tell, tell_interrupted
from bilevel_sym.system.verifier import verifier  # the command line stands above both packages

if TYPE_CHECKING:
    from verify.erratum import Erratum

NOTES = f"""{PROBLEM}
A verdict is HOLDS, VIOLATED, or with its reason INCONCLUSIVE or NOT_APPLICABLE.
LABEL is one of a paper, such as lem:descent or grad-Lipschitz.
"""


def _verify_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("problem", metavar="PROBLEM", nargs="?", help="with a box; see below (with --coverage it may be left out)")
    add("--theory", metavar="NAME", help="whose statements (default: the first of verify.theories())")
    add("--claims", metavar="LABEL,...", type=_labels, help="only these statements (default: all that apply)")
    add(
        "--variant", metavar="VARIANT", type=one_of("corrected", "printed", "sharp"), default="corrected",
        help="which formulas: corrected (default), printed (as in the paper) or sharp (the best that is proved)",
    )  # fmt: skip
    add_format(parser, ("text", "markdown", "json"), "text (default), markdown or json (bilevel-sym/report/2)")
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


def _verify(options: argparse.Namespace, screen: Screen) -> int:
    if options.coverage:
        return _show_coverage(options, screen)
    if options.problem is None:
        options.parser.error("the following arguments are required: PROBLEM")
    with screen.meter("reading"):
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


VERIFY = Command(
    name="verify",
    summary="a verdict on each statement of a theory, over the problem's box",
    examples=(
        ("bilevel-sym verify zoo:saddle --claims lem:descent,grad-Lipschitz", "two statements"),
        ("bilevel-sym verify toy.toml --effort quick", "all of them, with a tenth of the work"),
        ("bilevel-sym verify zoo:saddle --theory ji2021", "the statements of another paper"),
        ("bilevel-sym verify zoo:lphi_witness --variant printed", "a printed bound that fails"),
        ("bilevel-sym verify --coverage", "every statement of the paper, and what computes it"),
    ),
    add_arguments=_verify_arguments,
    run=_verify,
    codes=("0  nothing is violated", "1  something is violated (--coverage: some link does not stand)"),
    notes=NOTES,
)


def _recheck_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("file", metavar="FILE", help="a certificate that .save(path) wrote")
    parser.add_argument("--problem", metavar="PROBLEM", help="your own, of which it must be true; see below")


def _recheck(options: argparse.Namespace, screen: Screen) -> int:
    with screen.meter("proving"):
        from bilevel_sym.certify.saved_certificate import problem_text

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


RECHECK = Command(
    name="recheck",
    summary="a saved certificate proved again, by a program that shares no code with the search",
    examples=(
        ("bilevel-sym recheck constants.json", "of the problem that stands in the file"),
        ("bilevel-sym recheck constants.json --problem toy.toml", "of your own"),
    ),
    add_arguments=_recheck_arguments,
    run=_recheck,
    codes=("0  proved", "1  not proved"),
    notes=PROBLEM,
)


def _errata_arguments(parser: argparse.ArgumentParser) -> None:
    meaning = "text (default), markdown (the page .github/ERRATA.md) or json (bilevel-sym/errata/1)"
    add_format(parser, ("text", "markdown", "json"), meaning)


def _errata(options: argparse.Namespace, screen: Screen) -> int:
    with screen.meter("checking the errata") as meter:
        theory = verifier("theory").theory_of()
        if options.format == "json":
            return _errata_as_json(screen, theory.errata)
        stand: list[bool] = []
        total = len(theory.errata)

        def seen(result: Any) -> None:
            stand.append(result.verdict == "HOLDS")
            meter.at(len(stand), f", {len(stand)} of {total}")

        plain = options.format == "markdown"
        screen.show_all(theory.errata_page(options.format, width=min(100, screen.width), seen=seen), plain=plain)
    return 0 if all(stand) else 1


def _errata_as_json(screen: Screen, errata: Iterable[Erratum]) -> int:
    entries: list[dict[str, Any]] = []
    interrupted = False
    try:
        entries.extend(map(erratum_record, errata))
    except KeyboardInterrupt:
        interrupted = True
    record = {
        "schema": "bilevel-sym/errata/1",
        "ok": all(entry["verdict"] == "HOLDS" for entry in entries),
        "interrupted": interrupted,
        "errata": entries,
    }
    screen.show_json(record)
    if interrupted:
        tell_interrupted(f"{len(entries)} errata were checked")
        return INTERRUPTED
    return 0 if record["ok"] else 1


ERRATA = Command(
    name="errata",
    summary="the paper's errors: as printed, corrected, and a witness that is computed anew",
    examples=(
        ("bilevel-sym errata", "all of them, to read"),
        ("bilevel-sym errata --format markdown > ERRATA.md", "as a page, with what was found right"),
        ("bilevel-sym errata --format json", "for programs"),
    ),
    add_arguments=_errata_arguments,
    run=_errata,
    codes=("0  every erratum stands: its witness refutes the print, and not the correction", "1  one does not"),
)
