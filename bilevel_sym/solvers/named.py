"""Algorithms and estimators by name: one table of each, and what installed packages add.

An algorithm is a function (problem, *, eps, x0), an estimator a function (*, D, N, tau); the first line of its
docstring is its help. The solvers are loaded when one is made, so that help needs none.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.extensions import Registry

if TYPE_CHECKING:
    from bilevel_sym.estimators.hypergradient import Estimator
    from bilevel_sym.problem.problem import BilevelProblem
    from bilevel_sym.solvers.perturbed import Descent, Perturbed
    from bilevel_sym.solvers.stocbio import StocBiO
    from bilevel_sym.typing import Floats

__all__ = [
    "ALGORITHMS",
    "ESTIMATORS",
    "algorithm_for",
    "chosen_algorithm",
    "described",
    "start_of",
    "suitable_algorithm",
    "with_estimator",
]


def perturbed_aid(problem: BilevelProblem, **options: Any) -> Perturbed:
    """Algorithm 1 with AID; for bilevel problems"""
    from bilevel_sym.estimators.hypergradient import AID, GDmax
    from bilevel_sym.solvers.perturbed import Perturbed

    chosen = Perturbed.auto(problem, **options)
    if isinstance(chosen.estimator, GDmax):  # what suits a minimax problem better, but was not asked for
        chosen = replace(chosen, estimator=AID(chosen.estimator.D, problem.n, chosen.estimator.tau))
    return chosen


def perturbed_gdmax(problem: BilevelProblem, **options: Any) -> Perturbed:
    """Algorithm 1 for minimax problems"""
    from bilevel_sym.solvers.perturbed import Perturbed

    if problem.kind != "minimax":
        raise InvalidArgument("perturbed-gdmax is for minimax problems", hint="perturbed-aid")
    return Perturbed.auto(problem, **options)


def perturbed_exact(problem: BilevelProblem, **options: Any) -> Perturbed:
    """Algorithm 1, the lower level solved by Newton's method"""
    from bilevel_sym.estimators.hypergradient import Exact
    from bilevel_sym.solvers.perturbed import Perturbed

    return replace(Perturbed.auto(problem, **options), estimator=Exact())


def descent(problem: BilevelProblem, **options: Any) -> Descent:
    """no perturbation: stays at a saddle point"""
    from bilevel_sym.solvers.perturbed import Descent

    return Descent.auto(problem, **options)


def descent_ineon(problem: BilevelProblem, **options: Any) -> Descent:
    """descent, leaving saddle points by iNEON (Algorithm 2)"""
    from bilevel_sym.solvers.auto import practical
    from bilevel_sym.solvers.ineon import INeon
    from bilevel_sym.solvers.perturbed import Descent

    p = practical(problem, **options)
    return Descent(p.estimator, p.eta, escape=INeon.of(p))


def stocbio(problem: BilevelProblem, **options: Any) -> StocBiO:
    """Algorithm 3 without an escape from saddle points"""
    return replace(stocbio_ineon(problem, **options), escape=None)


def stocbio_ineon(problem: BilevelProblem, **options: Any) -> StocBiO:
    """Algorithm 3 with iNEON; for stochastic problems"""
    from bilevel_sym.problem.problem import StochasticProblem
    from bilevel_sym.solvers.stocbio import StocBiO

    if not isinstance(problem, StochasticProblem):
        raise InvalidArgument("stocbio is for stochastic problems", hint="perturbed-aid")
    return StocBiO.auto(problem, **options)


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
    from bilevel_sym.estimators.hypergradient import AID

    return AID(D, N, tau)


def itd(*, D: int, N: int, tau: float) -> Estimator:
    """The derivative of D gradient steps"""
    from bilevel_sym.estimators.hypergradient import ITD

    return ITD(D, tau)


def neumann(*, D: int, N: int, tau: float) -> Estimator:
    """D gradient steps, D terms of the Neumann series"""
    from bilevel_sym.estimators.hypergradient import Neumann

    return Neumann(D, tau, D, tau)


def gdmax(*, D: int, N: int, tau: float) -> Estimator:
    """D steps of ascent; for minimax problems"""
    from bilevel_sym.estimators.hypergradient import GDmax

    return GDmax(D, tau)


def exact(*, D: int, N: int, tau: float) -> Estimator:
    """Newton's method"""
    from bilevel_sym.estimators.hypergradient import Exact

    return Exact()


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
        raise InvalidArgument(f"{type(algorithm).__name__} takes no estimator", hint="perturbed-aid, or descent")
    p = practical(problem, **options)
    steps = {
        "D": getattr(p.estimator, "D", MAX_INNER_STEPS),
        "N": getattr(p.estimator, "N", problem.n),
        "tau": 1 / p.ell,
    }
    made = ESTIMATORS.make(name, lambda made: isinstance(made, Estimator), "Estimator", **steps)
    return replace(algorithm, estimator=made)


def suitable_algorithm(problem: BilevelProblem) -> str:
    """The name of the algorithm for a kind of problem, where none is asked for.

    >>> from bilevel_sym import zoo
    >>> suitable_algorithm(zoo.get("scalar").problem)
    'perturbed-aid'
    """
    return {"stochastic": "stocbio-ineon", "minimax": "perturbed-gdmax"}.get(problem.kind, "perturbed-aid")


def start_of(
    problem: BilevelProblem, start: Mapping[str, str] | None = None, what: str = "x0", *, role: str = "x"
) -> Floats:
    """The point at which a run starts, unless one is given the centre of the box, or zero.

    - ``problem``: what is to be solved.
    - ``start``: a number for each variable.
    - ``what``: the name of the point in messages.
    - ``role``: "x", or "y" for the lower level.

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", box={"x": (0, 1), "y": (-1, 1)})
    >>> start_of(problem), start_of(problem, {"x": "1/4"})
    (array([0.5]), array([0.25]))
    """
    import numpy as np

    from bilevel_sym.graph.exact import rational

    names = [s.name for s in (problem.x_entries if role == "x" else problem.y_entries)]
    if start is not None:
        return np.array([float(rational(start[name], f"{what}: {name}")) for name in names])
    ends = problem.ends(role)
    return np.zeros(len(names)) if ends is None else np.array([float(sum(pair)) / 2 for pair in ends])


def algorithm_for(
    problem: BilevelProblem,
    name: str | None,
    *,
    eps: float,
    x0: Floats,
    estimator: str | None = None,
    eta: float | None = None,
) -> Any:
    """What is asked for by name, or suits the problem, with the step and the estimator that are asked for.

    - ``problem``: what is to be solved.
    - ``name``: one of ``ALGORITHMS.names()``; None for what suits the problem.
    - ``eps``: the accuracy of a local minimum.
    - ``x0``: where the run starts.
    - ``estimator``: one of ``ESTIMATORS.names()``; None for the algorithm's own.
    - ``eta``: the step on x; None for the algorithm's own.

    >>> from bilevel_sym import zoo
    >>> algorithm_for(zoo.get("scalar").problem, "descent", eps=1e-3, x0=[0.0], eta=0.5).eta
    0.5
    """
    name = name or suitable_algorithm(problem)
    algorithm = chosen_algorithm(name, problem, eps=eps, x0=x0)
    if estimator is not None:
        algorithm = with_estimator(algorithm, estimator, problem, {"eps": eps, "x0": x0})
    if eta is not None:
        step = "eta" if hasattr(algorithm, "eta") else "beta"
        if not hasattr(algorithm, step):
            raise InvalidArgument(f"{name} takes no eta", hint="leave it out")
        algorithm = replace(algorithm, **{step: eta})
    return algorithm
