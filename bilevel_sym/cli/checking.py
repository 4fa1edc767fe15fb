"""``bilevel-sym check``: is a function of somebody's library right, on problems of the zoo and on generated ones?"""

from __future__ import annotations

import argparse
import contextlib
import difflib
import importlib
import inspect
import math
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from textwrap import indent
from typing import TYPE_CHECKING, Any
from xml.etree import ElementTree

from bilevel_sym.cli.command import PROBLEM, Command, add_format, effort, load_problem, one_of, positive, whole
from bilevel_sym.cli.screen import INTERRUPTED, Screen, tell_interrupted
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.system.verifier import verifier  # the command line stands above both packages

if TYPE_CHECKING:
    from bilevel_sym.problem.problem import BilevelProblem

__all__ = ["CHECK"]

GENERATED = 20  # problems, where nothing is said of them
OF = {"hypergradient": "check_hypergradient", "hessian": "check_hessian", "lower-solution": "check_lower_solution"}
NOTES = f"""{PROBLEM}
MODULE:FUNCTION is imported, from the current folder too. It is called as function(problem, x), or, where it has one
argument only, as function(x); where that argument is called problem, it returns the function of x.
"""
Make = Callable[["BilevelProblem"], Callable[..., object]]


def _arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("function", metavar="MODULE:FUNCTION", help="such as my_library.implicit:hypergradient; see below")
    add("--problem", metavar="PROBLEM", action="append", help="on this one; may be given several times")
    add(
        "--generated", metavar="N", type=whole(0, 10_000),
        help=f"on so many generated ones (default: {GENERATED} and the zoo, or none beside --problem)",
    )  # fmt: skip
    add("--of", metavar="WHAT", type=one_of(*OF), default="hypergradient", help=f"{', '.join(OF)} (default: the first)")
    add("--digits", metavar="D", type=positive, default=6.0, help="that are enough, where rounding allows more (6)")
    add("--seed", metavar="N", type=whole(0), default=0, help="of points and generated problems (default 0)")
    add("--effort", metavar="E", type=effort, default="default", help="quick, default, thorough, or a multiple")
    add_format(parser, ("text", "json", "junit"), "text (default), json (bilevel-sym/check/1) or junit (XML)")


def _check(options: argparse.Namespace, screen: Screen) -> int:
    make = _imported(options.function)
    records: list[dict[str, Any]] = []
    interrupted = False
    with screen.meter("checking") as meter:
        cases = list(_cases(options))
        try:
            for case in cases:
                meter.at(len(records), f" {len(records) + 1} of {len(cases)}, {case}")
                records.append(_record_of(case, make, options))
                if options.format == "text":
                    screen.show(_told(records[-1]))
        except KeyboardInterrupt:
            interrupted = True
    ok = all(record["ok"] for record in records) and not interrupted
    if options.format == "text":
        counts = Counter("right" if record["ok"] else record["cause"] or record["verdict"] for record in records)
        screen.show(f"{len(records)} problems: " + ", ".join(f"{count} {what}" for what, count in counts.items()))
    elif options.format == "json":
        head = {"schema": "bilevel-sym/check/1", "function": options.function, "of": options.of, "ok": ok}
        rest = {"digits": options.digits, "seed": options.seed, "interrupted": interrupted, "results": records}
        screen.show_json({**head, **rest})
    else:
        screen.show(_junit(options.function, records), plain=True)
    if interrupted:
        tell_interrupted(f"{len(records)} of {len(cases)} problems were checked")
        return INTERRUPTED
    return 0 if ok else 1


def _imported(text: str) -> Make:
    """What makes a candidate of a problem."""
    module, colon, name = text.partition(":")
    if not (module and colon and name):
        raise InvalidArgument(f"{text[:80]!r} is not MODULE:FUNCTION", hint="my_library.implicit:hypergradient")
    sys.path.insert(0, str(Path.cwd()))
    try:
        found: Any = importlib.import_module(module)
    except ModuleNotFoundError as missing:
        raise InvalidArgument(
            f"there is no module {missing.name!r}, which {module[:80]} wants",
            hint="run it in the folder that holds the module",
        ) from None
    finally:
        sys.path.pop(0)
    for part in name.split("."):
        if not hasattr(found, part):
            near = difflib.get_close_matches(part[:60], dir(found), n=1)
            raise InvalidArgument(
                f"{module[:80]} has no {part[:60]!r}", hint=f"did you mean {near[0]}?" if near else "another name"
            )
        found = getattr(found, part)
    if not callable(found):
        raise InvalidArgument(f"{text[:80]} is a {type(found).__name__}, which cannot be called", hint="a function")
    return _maker(found)


def _maker(function: Callable[..., Any]) -> Make:
    """function(problem, x), function(x), or function(problem) that returns one of x."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):  # some compiled functions do not say
        return lambda problem: partial(function, problem)
    places = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    names = [p.name for p in parameters if p.kind in places and p.default is inspect.Parameter.empty]
    if len(names) == 1:
        return function if names == ["problem"] else lambda problem: function
    return lambda problem: partial(function, problem)


@dataclass(frozen=True)
class _Given:
    """A problem that was named, as the kit's own cases are."""

    text: str

    def __str__(self) -> str:
        return self.text

    def problem(self) -> BilevelProblem:
        return load_problem(self.text)

    def code(self) -> str:
        return f"bilevel-sym derive {self.text}"


def _cases(options: argparse.Namespace) -> Iterator[Any]:
    """What makes a problem, and prints it as code."""
    kit, given, count = verifier("testkit.problem_cases"), options.problem or (), options.generated
    yield from map(_Given, given)
    yield from kit.zoo_cases(not given and count is None)
    yield from kit.generated_cases((0 if given else GENERATED) if count is None else count, seed=options.seed)


def _record_of(case: Any, make: Make, options: argparse.Namespace) -> dict[str, Any]:
    """One problem as a record; what a candidate raises is a finding, and what it prints goes to standard error."""
    check, problem = getattr(verifier("testkit.checks"), OF[options.of]), case.problem()
    record: dict[str, Any] = {"problem": str(case)}
    with contextlib.redirect_stdout(sys.stderr):
        try:
            result = check(make(problem), problem, rng=options.seed, effort=options.effort)
        except Exception as error:
            if isinstance(error, BilevelError) and not hasattr(error, "__notes__"):  # not the candidate's
                raise
            note = "; ".join([f"{type(error).__name__}: {error}", *getattr(error, "__notes__", ())])
            silent = {"digits": None, "suspected": None, "worst_point": None, "code": case.code()}
            return record | {"verdict": "RAISED", "ok": False, "cause": "raised", "message": note} | silent
    diagnosis, ok = result.diagnosis, result.has(options.digits)
    return record | {
        "verdict": str(result.verdict),
        "ok": ok,
        "digits": None if math.isnan(result.digits) else round(result.digits, 2),
        "cause": result.cause,
        "suspected": None if diagnosis is None else diagnosis.what,
        "worst_point": None if result.worst_point is None else dict(result.worst_point),
        "message": result.message,
        "code": None if ok else case.code(),
    }


def _told(record: dict[str, Any]) -> str:
    """A line where all is well; else everything."""
    digits = "" if record["digits"] is None else f"  {record['digits']:.1f} digits"
    if record["ok"]:
        return f"right  {record['problem']}{digits}"
    return f"{record['verdict']}  {record['problem']}{digits}\n{record['message']}\n{indent(record['code'], '  | ')}"


def _junit(function: str, records: list[dict[str, Any]]) -> str:
    """A test suite in the form that CI systems read."""
    failed = [record for record in records if not record["ok"]]
    raised = sum(record["verdict"] == "RAISED" for record in failed)
    counts = {"tests": str(len(records)), "failures": str(len(failed) - raised), "errors": str(raised)}
    suite = ElementTree.Element("testsuite", {"name": f"bilevel-sym check {function}", **counts})
    for record in records:
        case = ElementTree.SubElement(suite, "testcase", {"classname": function, "name": record["problem"]})
        if not record["ok"]:
            said = f"{record['cause'] or record['verdict']}: {record['suspected'] or record['message']}".partition(
                "\n"
            )[0]
            kind = "error" if record["verdict"] == "RAISED" else "failure"
            inside = ElementTree.SubElement(case, kind, {"message": said, "type": record["verdict"]})
            inside.text = f"{record['message']}\n{record['code']}"
    ElementTree.indent(suite)
    return ElementTree.tostring(suite, encoding="unicode", xml_declaration=True)


CHECK = Command(
    name="check",
    summary="is a function of your library right? On the zoo and generated problems, with the suspected cause",
    examples=(
        ("bilevel-sym check my_library.implicit:hypergradient", "on the zoo and 20 generated problems"),
        ("bilevel-sym check mine:grad --problem zoo:ridge --problem toy.toml", "on these two"),
        ("bilevel-sym check mine:grad --generated 100 --digits 10", "on 100 generated ones, to ten digits"),
        ("bilevel-sym check mine:grad --format junit > results.xml", "for a CI system"),
    ),
    add_arguments=_arguments,
    run=_check,
    codes=("0  right on every problem, to rounding or to so many digits", "1  wrong on one, or undecided"),
    notes=NOTES,
)
