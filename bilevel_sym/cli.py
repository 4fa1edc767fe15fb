"""The command line: parses, calls, prints; no mathematics.

Exit codes: 0 done, 1 something is violated or every trajectory failed, 2 bad input, 130 interrupted.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import sys
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import NoReturn

from bilevel_sym import zoo
from bilevel_sym.certificate import evaluate
from bilevel_sym.derivation import Derivation, derive
from bilevel_sym.display import text_lines, written_out
from bilevel_sym.errors import BilevelError, InvalidProblem, NoClosedForm
from bilevel_sym.problem import BilevelProblem
from bilevel_sym.solve_job import ALGORITHMS, SolveJob, check_output, write_solution

__all__ = ["main"]

EXPERIMENTS = ("figure1", "figure2", "figure3")  # written out, so that other commands need not import them
_PROBLEM_HELP = "a TOML problem file, or zoo:NAME, or zoo:NAME,d=10,L=2"


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code.

    >>> main(["derive", "zoo:minimax_nash", "--format", "latex"])  # doctest: +ELLIPSIS
    \\begin{aligned}
    ...
    \\end{aligned}
    0
    """
    options = _parser().parse_args(arguments)
    options.code = 0
    try:
        for line in options.run(options):
            print(line, flush=sys.stdout.isatty())
    except BilevelError as error:
        print(f"bilevel-sym: {error}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("bilevel-sym: interrupted; what stands above is complete", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader (head, less) has seen enough
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
    return int(options.code)


class _Parser(argparse.ArgumentParser):
    """argparse, with errors of two lines instead of the whole usage."""

    def error(self, message: str) -> NoReturn:
        self.exit(2, f"{self.prog}: {message}\ntry: {self.prog} --help\n")


def _parser() -> argparse.ArgumentParser:
    parser = _Parser(
        prog="bilevel-sym",
        description="Exact formulas for bilevel and minimax optimization.",
        epilog="example: bilevel-sym derive zoo:scalar",
    )
    commands = parser.add_subparsers(title="commands", metavar="COMMAND", required=True)
    derive_command = commands.add_parser(
        "derive",
        help="y*(x), Phi, its gradient and Hessian, term by term",
        epilog="example: bilevel-sym derive my_problem.toml --format latex",
    )
    derive_command.add_argument("problem", metavar="PROBLEM", help=_PROBLEM_HELP)
    derive_command.add_argument("--format", choices=sorted(_FORMATS), default="text")
    derive_command.set_defaults(run=_derive)
    certify_command = commands.add_parser(
        "certify",
        help="digits of y*, Phi, its gradient and Hessian at a point, every one proved",
        epilog='example: bilevel-sym certify zoo:implicit_cubic --at "x=1/3" --digits 50',
    )
    certify_command.add_argument("problem", metavar="PROBLEM", help=_PROBLEM_HELP)
    certify_command.add_argument("--at", metavar="POINT", required=True, help='values of x, such as "x1=1/3,x2=0.2"')
    certify_command.add_argument("--digits", metavar="N", type=int, default=50, help="how many (default 50)")
    certify_command.set_defaults(run=_certify)
    _add_solve(commands)
    reproduce_command = commands.add_parser(
        "reproduce",
        help="the paper's experiment, and two that test what it does not",
        epilog="example: bilevel-sym reproduce figure1 --out figures",
    )
    reproduce_command.add_argument("figure", metavar="FIGURE", choices=EXPERIMENTS, help=", ".join(EXPERIMENTS))
    reproduce_command.add_argument("--out", metavar="DIR", default=".", help="where the files go (default: here)")
    reproduce_command.set_defaults(run=_reproduce)
    _add_verify(commands)
    zoo_command = commands.add_parser(
        "zoo",
        help="problems that carry their answers",
        epilog="example: bilevel-sym zoo saddle",
    )
    zoo_command.add_argument("name", metavar="NAME", nargs="?", help="one problem, with its answers")
    zoo_command.set_defaults(run=_zoo)
    return parser


def _add_solve(commands: argparse._SubParsersAction[_Parser]) -> None:
    command = commands.add_parser(
        "solve",
        help="minimise Phi, escaping saddle points; steps are chosen unless given",
        epilog='example: bilevel-sym solve zoo:saddle --x0 "x1=0,x2=0" --seeds 20 --out run.csv',
    )
    command.add_argument("problem", metavar="PROBLEM", help=_PROBLEM_HELP)
    command.add_argument("--algorithm", choices=sorted(ALGORITHMS), help="default: what suits the kind of problem")
    command.add_argument(
        "--x0", metavar="POINT", help='the start, such as "x1=0.1,x2=0" (default: the centre of the box)'
    )
    command.add_argument("--seed", metavar="N", type=int, default=0, help="of the random numbers (default 0)")
    command.add_argument("--seeds", metavar="S", type=int, default=1, help="how many trajectories (default 1)")
    command.add_argument("--steps", metavar="K", type=int, default=1000, help="at most (default 1000)")
    command.add_argument(
        "--eps", metavar="E", type=float, default=1e-3, help="accuracy of a local minimum (default 1e-3)"
    )
    command.add_argument("--eta", metavar="H", type=float, help="the step on x (default: from sampled curvature)")
    command.add_argument("--out", metavar="FILE", help="write the trajectories: .csv, .json or .png")
    command.add_argument("--format", choices=("text", "json"), default="text")
    command.set_defaults(run=_solve)


def _add_verify(commands: argparse._SubParsersAction[_Parser]) -> None:
    command = commands.add_parser(
        "verify",
        help="a verdict on each statement of the theory, over the problem's box",
        epilog="example: bilevel-sym verify zoo:saddle --claims lem:descent,grad-Lipschitz",
    )
    command.add_argument("problem", metavar="PROBLEM", help=_PROBLEM_HELP)
    command.add_argument("--claims", metavar="LABEL,...", help="labels of the paper (default: all that apply)")
    command.add_argument("--variant", choices=("corrected", "printed", "sharp"), default="corrected")
    command.add_argument("--format", choices=("text", "markdown", "json"), default="text")
    command.add_argument("--seconds", metavar="S", type=float, help="the time to keep to (default 40)")
    command.add_argument("--seed", metavar="N", type=int, default=0, help="of the random numbers (default 0)")
    command.set_defaults(run=_verify)
    errata_command = commands.add_parser(
        "errata",
        help="the paper's errors: as printed, corrected, and a witness that is computed anew",
        epilog="example: bilevel-sym errata --format markdown",
    )
    errata_command.add_argument("--format", choices=("text", "markdown"), default="text")
    errata_command.set_defaults(run=_errata)


def _load(spec: str) -> BilevelProblem:
    if spec.startswith("zoo:"):
        return zoo.parse(spec.removeprefix("zoo:")).problem
    return BilevelProblem.load(spec)


def _derive(options: argparse.Namespace) -> Iterable[str]:
    return _FORMATS[options.format](derive(_load(options.problem)))


def _certify(options: argparse.Namespace) -> Iterable[str]:
    point = _point(options.at, "--at")
    return [str(evaluate(_load(options.problem), point, digits=options.digits))]


def _solve(options: argparse.Namespace) -> Iterable[str]:
    problem = _load(options.problem)
    check_output(options.out)
    start = None if options.x0 is None else _point(options.x0, "--x0")
    job = SolveJob(
        problem, options.algorithm, start, options.seed, options.seeds, options.steps, options.eps, options.eta
    )
    solution = job.run(progress=sys.stderr.isatty(), record=options.out is not None)
    if options.out is not None:
        write_solution(solution, options.out)
    options.code = 0 if any(status.ok for status in solution.statuses) else 1
    if options.format == "json":
        return [json.dumps(solution.to_dict(), indent=2)]
    written = [] if options.out is None else [f"written: {options.out}"]
    return [*job.report(solution), *written]


def _verify(options: argparse.Namespace) -> Iterable[str]:
    # the command line stands above both packages; nothing else here knows the verifier
    import verify

    report = verify.run(
        _load(options.problem),
        claims=None if options.claims is None else [label.strip() for label in options.claims.split(",")],
        rng=options.seed,
        seconds=options.seconds,
        variant=options.variant,
        progress=sys.stderr.isatty(),
    )
    options.code = 130 if report.interrupted else int(not report.ok)
    if options.format == "text":
        return [report.to_text(width=shutil.get_terminal_size((140, 24)).columns)]
    return [report.to_markdown() if options.format == "markdown" else report.to_json()]


def _errata(options: argparse.Namespace) -> Iterable[str]:
    from verify.referee import errata_table

    return errata_table(options.format)


def _reproduce(options: argparse.Namespace) -> Iterable[str]:
    from bilevel_sym.experiments import reproduce

    return reproduce(options.figure, Path(options.out), progress=sys.stderr.isatty())


def _point(text: str, option: str) -> dict[str, str]:
    """x1=1/3,x2=0.2 as a mapping; the numbers stay text, which means exactly what it says."""
    point: dict[str, str] = {}
    for part in text.split(","):
        name, equals, value = (piece.strip() for piece in part.partition("="))
        if not (name and equals and value):
            raise InvalidProblem(f"{option}: {part.strip()!r} is not NAME=VALUE", hint=f'{option} "x1=1/3,x2=0.2"')
        if name in point:
            raise InvalidProblem(f"{option}: {name} is given twice")
        point[name] = value
    return point


def _zoo(options: argparse.Namespace) -> Iterable[str]:
    if options.name is not None:
        return [zoo.parse(options.name.removeprefix("zoo:")).describe()]
    width = max(map(len, zoo.names()))
    return [f"{name:{width}}  {zoo.summary(name)}" for name in zoo.names()]


def _latex(derivation: Derivation) -> Iterable[str]:
    try:
        return [derivation.latex()]
    except NoClosedForm:
        return [derivation.latex(form="blocks")]


def _json(derivation: Derivation) -> Iterable[str]:
    return [json.dumps(_record(derivation), indent=2, ensure_ascii=False)]


def _record(derivation: Derivation) -> dict[str, object]:
    """The stable schema: expressions as text, matrices as lists of rows; absent formulas are null."""
    record: dict[str, object] = {
        "schema": "bilevel-sym/derivation/1",
        "name": derivation.name,
        "x": [s.name for s in derivation.x],
        "y": [s.name for s in derivation.y],
        "closed_form": derivation.is_closed_form,
        "method": derivation.method,
        "y_star": None if derivation.y_star is None else [str(e) for e in derivation.y_star],
        "auxiliaries": {str(name): str(value) for name, value in derivation.auxiliaries.items()},
    }
    return record | _written_out(derivation)


def _written_out(derivation: Derivation) -> dict[str, object]:
    """Null for what is too large to be written; the auxiliaries hold for every size."""
    texts: dict[str, object] = dict.fromkeys(("phi", "grad_phi", "hess_phi", "terms"))
    try:
        for name in ("phi", "grad_phi", "hess_phi"):
            texts[name] = _texts(written_out(derivation, name))
        texts["terms"] = _texts(derivation.terms)
    except NoClosedForm:
        pass
    return texts


def _texts(value: object) -> object:
    if isinstance(value, dict):
        return {key: _texts(part) for key, part in value.items()}
    if hasattr(value, "tolist"):
        rows = value.tolist()
        return [[str(entry) for entry in row] for row in rows]
    return str(value)


_FORMATS = {
    "text": text_lines,
    "latex": _latex,
    "python": lambda derivation: [derivation.source("numpy")],
    "json": _json,
}

if __name__ == "__main__":
    sys.exit(main())
