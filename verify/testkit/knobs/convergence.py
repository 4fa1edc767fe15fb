"""Convergence: the error of a candidate that takes D, N, Q or tol, as these are raised together.

A right estimator has an error that goes to rounding, at the rate of its inner loops. A wrong formula stops at a
plateau; a step above 2/ell diverges; conjugate gradients without a guard divide zero by zero once they are done.
"""

from __future__ import annotations

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.progress import ProgressBar
from verify.testkit.candidate import Candidate
from verify.testkit.knobs.causes import told
from verify.testkit.knobs.sweep import Convergence, Sweep, least_tolerance
from verify.testkit.reference import Quantity, References

__all__ = ["convergence"]


def convergence(
    candidate: Candidate, at: References, quantity: Quantity, *, least: float = 1, progress: bool = False
) -> Convergence:
    """Raise all that the candidate takes, counts twofold and tol by 1/100, until its error is rounding.

    It ends earlier where more steps will change nothing, or would be more than the candidate's budget holds.

    - ``candidate``: what is asked.
    - ``at``: the references.
    - ``quantity``: what it is to compute.
    - ``least``: the counts to begin with.
    - ``progress``: whether a terminal shows how far it is.

    >>> from bilevel_sym import AID, BilevelProblem
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> at = references(problem, [[1.0]])
    >>> def right(x, D, N):
    ...     return AID(D=D, N=N, tau=0.25).estimate(problem, x).grad_phi_hat
    >>> convergence(Candidate(right, (1,)), at, "grad_phi").verdict
    'reached'
    >>> convergence(Candidate(lambda x, D, N: 0.9 * right(x, D, N), (1,)), at, "grad_phi").verdict
    'plateau'
    """
    if not candidate.knobs:
        raise InvalidArgument("the candidate takes neither D, N, Q nor tol", hint="lambda x, D, N: estimate(x, D, N)")
    sweep = Sweep(candidate, at, quantity, least_tolerance(at), at.floor(quantity))
    with ProgressBar("raising " + ", ".join(candidate.knobs), shown=progress) as meter:
        sweep, found = sweep.joint(meter, least)
        return told(sweep, found)
