"""``solve``: an algorithm that is given, one by name, or what suits the problem. The command line chooses here too."""

from __future__ import annotations

import os
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.estimators.hypergradient import Exact
from bilevel_sym.kernels.arguments import joined
from bilevel_sym.kernels.choice import Backend
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers.algorithm import Algorithm
from bilevel_sym.solvers.local_minimum import LocalMinimum
from bilevel_sym.solvers.loop import Rule, run_algorithm
from bilevel_sym.solvers.named import ALGORITHMS, algorithm_for, start_of
from bilevel_sym.solvers.noise import Seeds
from bilevel_sym.solvers.perturbed import Perturbed
from bilevel_sym.solvers.solution import Solution
from bilevel_sym.solvers.stocbio import StocBiO
from bilevel_sym.typing import Floats

__all__ = ["EPS", "Choice", "arrival", "choose", "solve"]

EPS = 1e-3  # where an algorithm is chosen and nobody says otherwise


@dataclass(frozen=True)
class Choice:
    """An algorithm with what goes with it.

    - ``algorithm``: with all of its parameters.
    - ``stop``: the rule that ends a trajectory; None where the algorithm has its own.
    - ``otherwise``: the algorithm that is tried where every trajectory fails, if any.
    """

    algorithm: Any
    stop: LocalMinimum | None
    otherwise: Any = None

    def run(
        self, problem: BilevelProblem, x0: Floats, *, checkpoint: str | os.PathLike[str] | None = None, **options: Any
    ) -> Solution:
        """The run from x0; where all of it fails, that of the other algorithm, unless that fails too.

        - ``problem``: what is to be solved.
        - ``x0``: the start, or one for each trajectory.
        - ``checkpoint``: as for ``solve``; a second run has a file of its own.
        - ``options``: further arguments of ``solve``.
        """
        options = {"stop": self.stop, **options}
        solution = run_algorithm(problem, self.algorithm, x0, checkpoint=checkpoint, **options)
        if self.otherwise is None or any(status.ok for status in solution.statuses):
            return solution
        kept = None if checkpoint is None else f"{os.fspath(checkpoint)}.exact"
        again = run_algorithm(problem, self.otherwise, x0, checkpoint=kept, **options)
        return again if any(status.ok for status in again.statuses) else solution


def choose(
    problem: BilevelProblem,
    name: str | None = None,
    *,
    x0: Floats,
    eps: float = EPS,
    estimator: str | None = None,
    eta: float | None = None,
) -> Choice:
    """What is asked for by name, or suits the problem; a minimiser on a kink is refused before anything is chosen.

    - ``problem``: what is to be solved.
    - ``name``: one of ``ALGORITHMS.names()``; None for what suits the problem.
    - ``x0``: the start, or one for each trajectory; without a box steps are chosen around the first.
    - ``eps``: the accuracy of a local minimum.
    - ``estimator``: one of ``ESTIMATORS.names()``; None for the algorithm's own.
    - ``eta``: the step on x; None for the algorithm's own.

    >>> import numpy as np
    >>> from bilevel_sym import zoo
    >>> choice = choose(zoo.get("scalar").problem, x0=np.zeros(1))
    >>> type(choice.algorithm).__name__, choice.stop, choice.otherwise.estimator
    ('Perturbed', LocalMinimum(eps=0.001, rho_phi=None, by=None), Exact())
    """
    rows = x0.reshape(-1, problem.d)
    problem.kernels.refuse_kinked(rows)
    middle = rows[0] if len(rows) else np.zeros(problem.d)
    algorithm = algorithm_for(problem, name, eps=eps, x0=middle, estimator=estimator, eta=eta)
    # AID was not asked for, and its tau may not fit where the run goes: Newton's method needs none
    newton = replace(algorithm, estimator=Exact()) if isinstance(algorithm, Perturbed) else None
    return Choice(algorithm, arrival(algorithm, eps), None if name or estimator else newton)


def arrival(algorithm: Any, eps: float) -> LocalMinimum | None:
    """The rule that ends a run at an eps-local minimum; None for iNEON and StocBiO, which decide for themselves.

    >>> from bilevel_sym import Descent
    >>> arrival(Descent(Exact(), 0.1), 1e-3)
    LocalMinimum(eps=0.001, rho_phi=None, by=None)
    """
    if isinstance(algorithm, StocBiO) or getattr(algorithm, "escape", None) is not None:
        return None
    return LocalMinimum(eps, getattr(algorithm, "rho_phi", None))


def solve(
    problem: BilevelProblem,
    algorithm: Algorithm | str | None = None,
    x0: ArrayLike | None = None,
    *,
    y0: ArrayLike | None = None,
    v0: ArrayLike | None = None,
    steps: int = 1000,
    rng: Seeds = None,
    record: Literal["all", "last"] = "all",
    progress: bool = False,
    stop: Rule | LocalMinimum | Literal["local minimum"] | None = None,
    backend: Backend = "auto",
    checkpoint: str | os.PathLike[str] | None = None,
    checkpoint_every: int = 1000,
    eps: float | None = None,
) -> Solution:
    """Run an algorithm from x0 of shape (d,), or S independent trajectories from (S, d) at once.

    ``solve(problem)`` does what ``bilevel-sym solve PROBLEM`` does, bit by bit: the algorithm that suits the problem,
    with steps from sampled curvature, from the centre of the box, to a checked local minimum.

    A trajectory that fails gets a status and does not stop the others; Ctrl-C returns what there is. Every trajectory
    is bitwise the same alone and in any ensemble; with dense arrays in any ensemble (S, d), also of one, while a run
    from (d,) multiplies matrices with single vectors, which is faster for one, and agrees to round-off.

    - ``problem``: the problem; for StocBiO a StochasticProblem.
    - ``algorithm``: a Descent, Perturbed or StocBiO; or a name of the command line's, such as "descent", or None for
      what suits the problem: then unless given ``stop`` is a local minimum to ``eps``, and ``rng`` is 0.
    - ``x0``: the start, or one for each trajectory; unless given the centre of the box, or 0 without one.
    - ``y0``: where the lower level begins, (n,) or (S, n); unless given zero, and where g is not defined there, as
      with a barrier, y*(x0), or the centre of the box if that cannot be had.
    - ``v0``: where the linear system begins, likewise.
    - ``steps``: the most moves that a trajectory makes.
    - ``rng``: a seed, a generator, or one seed for each trajectory.
    - ``record``: "all" iterates, or "last", which keeps nothing that grows with the steps.
    - ``progress``: whether a terminal shows how far it is.
    - ``stop``: a function of State, or "local minimum" (see ``LocalMinimum``).
    - ``backend``: that of ``compile_kernels``.
    - ``checkpoint``: a file to which the run is written as it goes, at the end, and when it is interrupted. The same
      call goes on from it, and returns what one uninterrupted run would have, bit by bit; a finished run is returned
      again, or goes on if ``steps`` has grown. A checkpoint of another run, or a damaged one, raises CheckpointFailure.
    - ``checkpoint_every``: steps between two writings.
    - ``eps``: the accuracy of a local minimum where the algorithm is chosen; 1e-3 unless given.

    >>> from bilevel_sym import AID, BilevelProblem, Descent
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> solution = solve(problem, Descent(AID(D=1, N=1, tau=1.0), eta=0.25), [[1.0], [2.0]], steps=2)
    >>> solution.x.tolist(), solution.trajectory.phi.tolist()
    ([[0.25], [0.5]], [[1.0, 0.25, 0.0625], [4.0, 1.0, 0.25]])
    >>> solve(problem, x0=[1.0]).status
    <Status.LOCAL_MINIMUM: 6>
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"solve wants a problem first, but was given a {type(problem).__name__}")
    options: dict[str, Any] = {
        "y0": y0, "v0": v0, "steps": steps, "record": record, "progress": progress, "backend": backend,
        "checkpoint": checkpoint, "checkpoint_every": checkpoint_every,
    }  # fmt: skip
    start = start_of(problem) if x0 is None else x0
    if algorithm is not None and not isinstance(algorithm, str):
        _check_algorithm(algorithm, eps)
        return run_algorithm(problem, algorithm, start, rng=rng, stop=stop, **options)
    if algorithm is not None and algorithm not in ALGORITHMS.names():
        raise InvalidArgument(f"no algorithm is called {algorithm!r:.60}", hint=" or ".join(ALGORITHMS.names()))
    rows, shape = joined({"x0": (start, problem.x_entries)})
    choice = choose(problem, algorithm, x0=rows, eps=EPS if eps is None else eps)
    if stop is not None:
        options["stop"] = stop
    return choice.run(problem, rows if shape else rows[0], rng=0 if rng is None else rng, **options)


def _check_algorithm(algorithm: object, eps: float | None) -> None:
    if isinstance(algorithm, type) or not hasattr(algorithm, "start"):
        raise InvalidArgument(
            f"{algorithm!r} is not an algorithm",
            hint="Perturbed.auto(problem), or Descent(AID(D=10, N=5, tau=0.1), eta=0.1)",
        )
    if eps is not None:
        raise InvalidArgument(
            "eps is for an algorithm that solve chooses, and this one was given", hint="stop=LocalMinimum(eps=1e-3)"
        )
