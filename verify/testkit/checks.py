"""check_hypergradient, check_hessian, check_lower_solution: is a user's function right, and if not, what is wrong?"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Any

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import InvalidArgument, TimeIsUp
from bilevel_sym.system.budget import Budget, Deadline, Effort, scale_of
from bilevel_sym.system.memory import Memory, bytes_of
from verify.study import seed_of
from verify.testkit import messages
from verify.testkit.at_once import at_once
from verify.testkit.candidate import STEPS, Candidate
from verify.testkit.examination import Examination
from verify.testkit.named_arrays import Takes, in_one_vector
from verify.testkit.reference import Subject, references, require_references
from verify.testkit.result import CandidateCheck
from verify.testkit.sample_points import given_points, sample_points
from verify.testkit.suspects.gradient import gradient_suspects
from verify.testkit.suspects.hessian import hessian_suspects
from verify.testkit.suspects.lower import lower_suspects
from verify.verdict import Verdict

__all__ = ["check_hessian", "check_hypergradient", "check_lower_solution"]

Function = Callable[..., object]
Rng = np.random.Generator | int | None
GRADIENT = Subject(
    "grad_phi", "eq:bilevel-grad", "hypergradient", lambda p: (p.d,), gradient_suspects,
    "y*, f_x, f_y, g_xy, g_yy and v, one by one, against problem.kernels at the point above", "x",
)  # fmt: skip
HESSIAN = Subject(
    "hess_phi", "phi-hessian", "Hessian of Phi", lambda p: (p.d, p.d), hessian_suspects,
    'y* and v, then each term, against derive(problem).terms["hess_phi"] at the point above', answer="hess",
)  # fmt: skip
LOWER = Subject(
    "y_star", "eq:objective", "lower-level solution", lambda p: (p.n,), lower_suspects,
    "problem.kernels.g_y at the point above and what was returned there: it is zero at y*", "y", "y",
)  # fmt: skip


@at_once
def check_hypergradient(
    candidate: Function,
    problem: BilevelProblem,
    *,
    points: Iterable[Any] | None = None,
    rng: Rng = None,
    effort: Effort = "default",
    knobs: Mapping[str, str] | None = None,
    seconds: float | None = None,
    memory: Memory = "2GB",
    progress: bool = False,
    takes: Takes = "vector",
) -> CandidateCheck:
    """Is ``candidate`` the gradient of Phi? There is no tolerance to choose.

    HOLDS: at every point its error against certified values is within 1e3 roundings times the condition of the problem.
    VIOLATED: it is not; the message gives the point, the value, the true digits, and which term is suspected.
    INCONCLUSIVE: random without a bias that shows, or still converging.

    - ``candidate``: called with one point x of shape (d,) at a time, or of shape (1, d) where it takes batches only,
      returns d numbers, as a NumPy, JAX or PyTorch array or a list; or {"grad": ..., "y": ..., "v": ...}, and then y
      and v help to say what is wrong. If it takes ``D``, ``N``, ``Q`` (numbers of steps) or ``tol`` by name, its own
      convergence is looked at too. Of several, in a list or a dict by name, a Report is returned.
    - ``problem``: the problem.
    - ``points``: those of the user, all of which are asked; by default some of the problem's box, from -1 to 1 where it
      has none.
    - ``rng``: a seed or a generator.
    - ``effort``: how much the candidate is asked: "quick", "default" (20 000 steps, where a call with D = 50 is 50 of
      them), "thorough", or a multiple of the default. How long a call takes changes nothing.
    - ``knobs``: by which names of its own it takes these, {"maxiter": "N"}.
    - ``seconds``: a limit of time; where it cuts, the result is INCONCLUSIVE and says what was left out.
    - ``memory``: "2GB", "500 MB" or bytes; what does not fit is refused before it is begun (TooLarge).
    - ``progress``: whether a terminal shows how far it is.
    - ``takes``: how an array problem hands x over: as one "vector", as a "dict" of arrays by name, or as a "tuple" of
      them. What is returned may be any of these, whatever was taken.

    Paper: Equation 1.5 [eq:bilevel-grad]

    >>> problem = BilevelProblem("x1*y + x2**2*y", "(2 + cos(x2))*y**2/2 - x1*y", "x1 x2", "y")
    >>> print(check_hypergradient(problem.kernels.grad_phi, problem).verdict)
    HOLDS
    >>> def halved(x):
    ...     y = problem.kernels.y_star(x)
    ...     f_x, f_y, g_xy, g_yy = (getattr(problem.kernels, name)(x, y) for name in ("f_x", "f_y", "g_xy", "g_yy"))
    ...     return f_x - 0.5 * g_xy @ np.linalg.solve(g_yy, f_y)
    >>> check_hypergradient(halved, problem).cause
    'cross'
    """
    budget = Budget(STEPS * scale_of(effort), Deadline(seconds))
    return _check(candidate, problem, GRADIENT, points, rng, budget, bytes_of(memory), progress, takes, knobs)


@at_once
def check_hessian(
    candidate: Function,
    problem: BilevelProblem,
    *,
    points: Iterable[Any] | None = None,
    rng: Rng = None,
    effort: Effort = "default",
    knobs: Mapping[str, str] | None = None,
    seconds: float | None = None,
    memory: Memory = "2GB",
    progress: bool = False,
    takes: Takes = "vector",
) -> CandidateCheck:
    """Is ``candidate`` the Hessian of Phi, (d,) -> (d, d)?

    - All: as for ``check_hypergradient``.

    Paper: Equation B.1 [phi-hessian]

    >>> problem = BilevelProblem("sin(x)*y + y**2", "(2 + cos(x))*y**2/2 + exp(y) - x*y", "x", "y")
    >>> print(check_hessian(problem.kernels.hess_phi, problem).verdict)
    HOLDS
    """
    budget = Budget(STEPS * scale_of(effort), Deadline(seconds))
    return _check(candidate, problem, HESSIAN, points, rng, budget, bytes_of(memory), progress, takes, knobs)


@at_once
def check_lower_solution(
    candidate: Function,
    problem: BilevelProblem,
    *,
    points: Iterable[Any] | None = None,
    rng: Rng = None,
    effort: Effort = "default",
    knobs: Mapping[str, str] | None = None,
    seconds: float | None = None,
    memory: Memory = "2GB",
    progress: bool = False,
    takes: Takes = "vector",
) -> CandidateCheck:
    """Is ``candidate`` the lower-level solution y*, (d,) -> (n,)?

    - All: as for ``check_hypergradient``.

    Paper: Equation 1.1 [eq:objective]

    >>> problem = BilevelProblem("x*y", "(2 + cos(x))*y**2/2 - x*y", "x", "y")
    >>> print(check_lower_solution(lambda x: x / (2 + np.cos(x)), problem).verdict)
    HOLDS
    """
    budget = Budget(STEPS * scale_of(effort), Deadline(seconds))
    return _check(candidate, problem, LOWER, points, rng, budget, bytes_of(memory), progress, takes, knobs)


def _check(
    function: Function,
    problem: BilevelProblem,
    subject: Subject,
    points: Iterable[Any] | None,
    rng: Rng,
    budget: Budget,
    memory: int,
    progress: bool,
    takes: Takes,
    knobs: Mapping[str, str] | None,
) -> CandidateCheck:
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(
            f"the second argument is a {type(problem).__name__}, and should be a problem",
            hint="check_hypergradient(my_function, BilevelProblem(f, g, x, y))",
        )
    exact = problem.mean
    asked = in_one_vector(function, exact, takes, subject.returns)
    told = {name: exact.n for name in ("y", "v") if name != subject.answer}
    candidate = Candidate(asked, subject.shape(exact), budget, knobs=knobs, answer=subject.answer, told=told)
    seed = seed_of(rng)
    chosen = sample_points(exact, np.random.default_rng(seed)) if points is None else given_points(exact, points)
    require_references(exact.d, exact.n, len(chosen), memory)
    try:
        at = references(exact, chosen, deadline=budget.deadline, progress=progress)
    except TimeIsUp:
        message = messages.cut_after(budget.deadline, f"all {len(chosen)} points")
        return CandidateCheck(label=subject.label, verdict=Verdict.INCONCLUSIVE, message=message, seed=seed)
    return Examination(subject, candidate, at, seed, points is None, progress).result()
