"""What the error of a candidate does as D, N, Q or tol are raised: all of them, and where it stays or grows, each."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np

from bilevel_sym.arithmetic.ties import first_smallest
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.typing import Floats
from verify.testkit.candidate import Candidate
from verify.testkit.diagnosis import Cause, Diagnosis
from verify.testkit.reference import Quantity, References
from verify.testkit.suspects.inverse import conjugate_gradients
from verify.testkit.suspects.lower_iterates import apply
from verify.testkit.sweep import FEWEST, Convergence, Sweep, largest, least_tolerance, worst_of

__all__ = ["convergence"]

ABOUT: dict[str, tuple[Cause, str]] = {
    "D": ("y*", "the step size of the lower level: below 2/ell, best 1/ell"),
    "N": ("inverse", "the steps of conjugate gradients: alpha = r.r/p.Ap enters both v and the residual"),
    "Q": ("inverse", "the step size of the Neumann series: below 2/ell, best 1/ell"),
    "tol": ("tolerance", "where the tolerance enters"),
}
LEAVES = "the loop of conjugate gradients: v has to be updated before the loop is left"


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
        return _Knobs(sweep).told(found)


@dataclass(frozen=True, eq=False)
class _Knobs:
    sweep: Sweep

    def told(self, found: Convergence) -> Convergence:
        """The same, with what the knobs one by one say of it."""
        if found.verdict == "diverges":
            return replace(found, diagnosis=self._few(found)._diverging(found))
        if found.verdict not in ("reached", "plateau"):
            return found
        dropped = self._dropped(found)
        if dropped is not None or found.verdict == "reached":
            return replace(found, diagnosis=dropped)
        few, several = self._few(found), len(found.knobs) > 1
        several = several and self.sweep.candidate.affords(len(found.knobs) + FEWEST + 1, found.tried[-1])
        idle = [name for name in found.knobs if several and few._idle(found, name)]
        return replace(found, note=f"{' and '.join(idle)} changes nothing" if idle else "")

    def _few(self, found: Convergence) -> _Knobs:
        """The same, at its worst point alone where the budget holds no more."""
        many = len(self.sweep.at) * len(self.sweep.candidate.knobs) + FEWEST + 1
        enough = self.sweep.candidate.affords(many, found.tried[-1])
        return self if enough else _Knobs(self.sweep.at_rows(np.array([worst_of(found)])))

    def _diverging(self, found: Convergence) -> Diagnosis:
        """The linear system is to blame if fewer of its steps cure it, others being raised; else the lower level."""
        rows = [(s, largest(e / found.floor)) for s, e in zip(found.tried, found.errors, strict=True)]
        top, blown = [(s, size) for s, size in rows if np.isfinite(size)][-1]
        names = [name for name in ("Q", "N", "D", "tol") if name in found.knobs]
        name = names[-1] if names[-1] != "tol" else names[0]
        for other in names[:-1] if len(names) > 1 else ():
            lowered = largest(
                self.sweep.errors(self.sweep.values({**top, other: found.tried[0][other]})) / self.sweep.floor
            )
            if lowered <= max(10 * rows[0][1], 0.01 * blown):
                name = other
                break
        cause, look_at = ABOUT[name]
        return Diagnosis(cause, f"the error grows with {name}: the iteration diverges", look_at)

    def _idle(self, found: Convergence, name: str) -> bool:
        """Whether the answer is the same however small the knob is."""
        if name == "N" and self.sweep.at.problem.n == 1:  # one step is exact
            return False
        few = self.sweep.values({**found.tried[-1], name: found.tried[0][name]})
        many = found.values if len(few) == len(found.floor) else found.values[[worst_of(found)]]
        return bool(np.array_equal(few, many))

    def _dropped(self, found: Convergence) -> Diagnosis | None:
        """Are the answers those of conjugate gradients, from zero at the exact y*, with a step less?"""
        if "N" not in found.knobs or self.sweep.quantity != "grad_phi":
            return None
        iterates = _conjugate_gradients(self.sweep.at)
        return self._stops_early(found, iterates) if found.verdict == "plateau" else self._off_by_one(found, iterates)

    def _stops_early(self, found: Convergence, iterates: Floats) -> Diagnosis | None:
        """At each point the answer is an earlier iterate than the one that solves the system."""
        values, floor = found.values, found.floor
        gaps = np.linalg.norm(iterates - values, axis=2)  # (steps, points)
        errors = np.linalg.norm(values - self.sweep.at.truth("grad_phi"), axis=1)
        if not np.all(gaps.min(axis=0) <= np.maximum(1e-6 * errors, floor)):
            return None
        wrong = [(k, first_smallest(gaps[:, k])) for k in range(len(values)) if errors[k] > floor[k]]
        truth = self.sweep.at.truth("grad_phi")
        rest = {k: np.linalg.norm(iterates[min(m + 1, len(iterates) - 1), k] - truth[k]) for k, m in wrong}
        last = all(left < 1e-3 * errors[k] for k, left in rest.items())
        end = "the last one is dropped" if last else "it stays there"
        what = f"however large N is, v is iterate {max(m for _, m in wrong)} of conjugate gradients: {end}"
        return Diagnosis("inverse", what, LEAVES)

    def _off_by_one(self, found: Convergence, iterates: Floats) -> Diagnosis | None:
        """With N steps the answer is that of N - 1, wherever the two can be told apart."""
        told, most = 0, min(4, len(iterates))
        # a quarter of what is left, for the points are still to be asked
        settings = [s for s in found.enough if self.sweep.candidate.affords(4 * most * len(self.sweep.at), s)]
        if not settings:
            return None
        for N in range(1, most):
            values, floor = self.sweep.values({**settings[-1], "N": N}), found.floor
            less, same = (np.linalg.norm(iterates[m] - values, axis=1) for m in (N - 1, N))
            if not np.all(less <= floor):
                return None
            told += int(np.sum(same > 1e3 * floor))
        if not told:
            return None
        return Diagnosis("inverse", "with N the answer is that of N - 1 steps of conjugate gradients", LEAVES)


def _conjugate_gradients(at: References) -> Floats:
    """grad Phi with v after 0, 1, ..., n steps of conjugate gradients from zero, (steps, P, d)."""
    iterates = conjugate_gradients(at.at["g_yy"], at.at["f_y"], at.problem.n)
    return np.asarray(at.at["f_x"] - apply(at.at["g_xy"], iterates.v))
