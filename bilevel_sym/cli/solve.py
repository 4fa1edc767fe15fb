"""``bilevel-sym solve``: minimise Phi. Algorithms and estimators by name: one table of each, and what packages add.

An algorithm is a function (problem, *, eps, x0), an estimator a function (*, D, N, tau); the first line of its
docstring is its help. The solvers are loaded when one is made, as ``bilevel_sym`` does it, so that help needs none.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable, Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

import bilevel_sym
from bilevel_sym.cli import command
from bilevel_sym.cli.screen import INTERRUPTED, Screen, tell_interrupted
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.extensions import Registry

if TYPE_CHECKING:
    from bilevel_sym.estimators.hypergradient import Estimator
    from bilevel_sym.problem.problem import BilevelProblem
    from bilevel_sym.solvers import Descent, Perturbed, StocBiO
    from bilevel_sym.typing import Floats


def perturbed_aid(problem: BilevelProblem, **options: Any) -> Perturbed:
    """Algorithm 1 with AID; for bilevel problems"""
    chosen = bilevel_sym.Perturbed.auto(problem, **options)
    if isinstance(chosen.estimator, bilevel_sym.GDmax):  # what suits a minimax problem better, but was not asked for
        chosen = replace(chosen, estimator=bilevel_sym.AID(chosen.estimator.D, problem.n, chosen.estimator.tau))
    return chosen


def perturbed_gdmax(problem: BilevelProblem, **options: Any) -> Perturbed:
    """Algorithm 1 for minimax problems"""
    if problem.kind != "minimax":
        raise InvalidArgument("perturbed-gdmax is for minimax problems", hint="--algorithm perturbed-aid")
    return bilevel_sym.Perturbed.auto(problem, **options)


def perturbed_exact(problem: BilevelProblem, **options: Any) -> Perturbed:
    """Algorithm 1, the lower level solved by Newton's method"""
    return replace(bilevel_sym.Perturbed.auto(problem, **options), estimator=bilevel_sym.Exact())


def descent(problem: BilevelProblem, **options: Any) -> Descent:
    """no perturbation: stays at a saddle point"""
    return bilevel_sym.Descent.auto(problem, **options)


def descent_ineon(problem: BilevelProblem, **options: Any) -> Descent:
    """descent, leaving saddle points by iNEON (Algorithm 2)"""
    from bilevel_sym.solvers.auto import practical

    p = practical(problem, **options)
    return bilevel_sym.Descent(p.estimator, p.eta, escape=bilevel_sym.INeon.of(p))


def stocbio(problem: BilevelProblem, **options: Any) -> StocBiO:
    """Algorithm 3 without an escape from saddle points"""
    return replace(stocbio_ineon(problem, **options), escape=None)


def stocbio_ineon(problem: BilevelProblem, **options: Any) -> StocBiO:
    """Algorithm 3 with iNEON; for stochastic problems"""
    if not isinstance(problem, bilevel_sym.StochasticProblem):
        raise InvalidArgument("stocbio is for stochastic problems", hint="--algorithm perturbed-aid")
    return bilevel_sym.StocBiO.auto(problem, **options)


ALGORITHMS = Registry(
    "bilevel_sym.algorithms",
    "algorithm",
    MappingProxyType(
        {
            function.__name__.replace("_", "-"): function
            for function in (
                perturbed_aid, perturbed_gdmax, perturbed_exact, descent, descent_ineon, stocbio, stocbio_ineon,
            )
        }
    ),
)  # fmt: skip


def aid(*, D: int, N: int, tau: float) -> Estimator:
    """D gradient steps, N steps of conjugate gradients"""
    return bilevel_sym.AID(D, N, tau)


def itd(*, D: int, N: int, tau: float) -> Estimator:
    """The derivative of D gradient steps"""
    return bilevel_sym.ITD(D, tau)


def neumann(*, D: int, N: int, tau: float) -> Estimator:
    """D gradient steps, D terms of the Neumann series"""
    return bilevel_sym.Neumann(D, tau, D, tau)


def gdmax(*, D: int, N: int, tau: float) -> Estimator:
    """D steps of ascent; for minimax problems"""
    return bilevel_sym.GDmax(D, tau)


def exact(*, D: int, N: int, tau: float) -> Estimator:
    """Newton's method"""
    return bilevel_sym.Exact()


ESTIMATORS = Registry(
    "bilevel_sym.estimators",
    "estimator",
    MappingProxyType({function.__name__: function for function in (aid, itd, neumann, gdmax, exact)}),
)


def described(registry: Registry) -> str:
    """The built-in names with their help, line by line.

    >>> print(described(ESTIMATORS).splitlines()[0])
      aid                D gradient steps, N steps of conjugate gradients
    """
    return "\n".join(f"  {name:<18} {function.__doc__}" for name, function in registry.builtin.items())


def chosen_algorithm(name: str, problem: BilevelProblem, *, eps: float, x0: Floats) -> Any:
    """The algorithm of this name with parameters for the problem.

    - ``name``: one of ``ALGORITHMS.names()``.
    - ``problem``: what is to be solved.
    - ``eps``: the accuracy of a local minimum.
    - ``x0``: where the run starts.

    >>> from bilevel_sym import zoo
    >>> chosen_algorithm("descent", zoo.get("scalar").problem, eps=1e-3, x0=[0.0]).escape is None
    True
    """
    return ALGORITHMS.make(
        name, lambda made: callable(getattr(made, "start", None)), "algorithm", problem, eps=eps, x0=x0
    )


def with_estimator(algorithm: Any, name: str, problem: BilevelProblem, options: Mapping[str, Any]) -> Any:
    """The algorithm with another estimator, whose D, N and tau match the condition number of the problem.

    - ``algorithm``: a dataclass with a field ``estimator``.
    - ``name``: one of ``ESTIMATORS.names()``.
    - ``problem``: from which D, N and tau are chosen.
    - ``options``: ``eps`` and ``x0``.

    >>> from bilevel_sym import zoo
    >>> problem, options = zoo.get("scalar").problem, {"eps": 1e-3, "x0": [0.0]}
    >>> with_estimator(chosen_algorithm("descent", problem, **options), "exact", problem, options).estimator
    Exact()
    """
    from bilevel_sym.estimators.hypergradient import Estimator
    from bilevel_sym.solvers.auto import MAX_INNER_STEPS, practical

    if not hasattr(algorithm, "estimator"):
        raise InvalidArgument(
            f"{type(algorithm).__name__} takes no --estimator", hint="--algorithm perturbed-aid, or descent"
        )
    p = practical(problem, **options)
    steps = {
        "D": getattr(p.estimator, "D", MAX_INNER_STEPS),
        "N": getattr(p.estimator, "N", problem.n),
        "tau": 1 / p.ell,
    }
    made = ESTIMATORS.make(name, lambda made: isinstance(made, Estimator), "Estimator", **steps)
    return replace(algorithm, estimator=made)


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
    from bilevel_sym.cli.solve_run import SolveRun, check_output, is_interrupted, solution_record, write_solution

    check_output(options.out, options.checkpoint)
    with screen.meter("reading"):
        problem = command.load_problem(options.problem)
    if start is not None:
        start = command.point_of(start, problem, "--x0")
    job = SolveRun(
        problem, options.algorithm, start, options.seed, options.seeds, options.steps, options.eps, options.eta,
        options.checkpoint, options.checkpoint_every, options.estimator,
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
