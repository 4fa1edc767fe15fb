"""``bilevel-sym solve``: minimise Phi."""

from __future__ import annotations

import argparse
from collections.abc import Callable

from bilevel_sym.cli import command
from bilevel_sym.cli.screen import INTERRUPTED, Screen, tell_interrupted
from bilevel_sym.solvers.named import ALGORITHMS, ESTIMATORS, described
from bilevel_sym.system.extensions import Registry

NOTES = f"""{command.PROBLEM}
ALGORITHM, if none is given, is what suits the kind of problem:
perturbed-aid, perturbed-gdmax or stocbio-ineon. All of them:
{described(ALGORITHMS)}
ESTIMATOR, if none is given, is what suits the algorithm:
{described(ESTIMATORS)}
Installed packages may add others; a word that is none of them lists all.
"""


def _add_arguments(parser: argparse.ArgumentParser) -> None:
    add = parser.add_argument
    add("problem", metavar="PROBLEM", help="see below")
    add("--algorithm", metavar="ALGORITHM", type=_named(ALGORITHMS), help="see below")
    add("--estimator", metavar="ESTIMATOR", type=_named(ESTIMATORS), help="of the hypergradient; see below")
    add("--x0", metavar="POINT", help='the start, such as "x1=0.1,x2=0" (default: the centre of the box, or 0)')
    add(
        "--y0",
        metavar="POINT",
        help='where the lower level starts, such as "y=0.5" (default: 0; where g has no value, y*)',
    )
    add("--seed", metavar="N", type=command.whole(0), default=0, help="of the random numbers (default 0)")
    add("--seeds", metavar="S", type=command.whole(1), default=1, help="how many trajectories (default 1)")
    add("--steps", metavar="K", type=command.whole(0), default=1000, help="at most so many (default 1000)")
    add("--eps", metavar="E", type=command.positive, default=1e-3, help="accuracy of a local minimum (default 1e-3)")
    add("--eta", metavar="H", type=command.positive, help="the step on x (default: from sampled curvature)")
    add("--out", metavar="FILE", help="write the trajectories: .csv, .json or .png")
    add("--checkpoint", metavar="FILE", help="keep the run in this file; the same command goes on from it, bit by bit")
    add(
        "--checkpoint-every",
        metavar="K",
        type=command.whole(1),
        default=1000,
        help="steps between two writings (default 1000)",
    )
    command.add_format(parser, ("text", "json"), "text (default) or json (bilevel-sym/solution/1)")


def _named(registry: Registry) -> Callable[[str], str]:
    """A name of the registry; the metadata of installed packages is read when one is given."""
    return lambda text: command.one_of(*registry.names())(text)


def _run(options: argparse.Namespace, screen: Screen) -> int:
    start = None if options.x0 is None else command.as_point(options.x0, "--x0")
    y_start = None if options.y0 is None else command.as_point(options.y0, "--y0")
    from bilevel_sym.cli.solve_run import SolveRun, check_output, is_interrupted, solution_record, write_solution

    check_output(options.out, options.checkpoint)
    with screen.meter("reading"):
        problem = command.load_problem(options.problem)
    if start is not None:
        start = command.point_of(start, problem, "--x0")
    if y_start is not None:
        y_start = command.point_of(y_start, problem, "--y0", "y")
    job = SolveRun(
        problem, options.algorithm, start, options.seed, options.seeds, options.steps, options.eps, options.eta,
        options.checkpoint, options.checkpoint_every, options.estimator, y_start,
    )  # fmt: skip
    solution = job.run(progress=screen.progress, record=options.out is not None)
    with screen.meter("looking at the result"):
        if options.out is not None:
            write_solution(solution, options.out)
        if options.format == "json":
            screen.show_json(solution_record(solution))
        else:
            screen.show_all(job.report(solution))
            if options.out is not None:
                screen.show(f"written: {options.out}")
    if is_interrupted(solution):
        kept = "" if options.checkpoint is None else f"; the same command goes on from {options.checkpoint}"
        tell_interrupted(f"the report is on the steps made so far{kept}")
        return INTERRUPTED
    return 0 if any(status.ok for status in solution.statuses) else 1


SOLVE = command.Command(
    name="solve",
    summary="minimise Phi, escaping saddle points; steps are chosen unless given",
    examples=(
        ("bilevel-sym solve zoo:saddle", "from the centre of its box, a saddle point"),
        (
            'bilevel-sym solve toy.toml --x0 "x1=0,x2=0" --seeds 20 --out run.csv',
            "20 trajectories, all iterates in a file",
        ),
        ("bilevel-sym solve zoo:saddle --algorithm descent --out stuck.png", "without noise nothing moves: a picture"),
        ("bilevel-sym solve zoo:saddle --algorithm perturbed-aid --estimator itd", "another hypergradient"),
        (
            "bilevel-sym solve toy.toml --steps 1000000 --checkpoint run.checkpoint",
            "a long run; ended by anything, the same line goes on",
        ),
    ),
    add_arguments=_add_arguments,
    run=_run,
    codes=("0  done; running out of steps is done, and said", "1  every trajectory failed"),
    notes=NOTES,
)
