"""The loop inside the compiled interpreter (extra ``fast``), for descent and Algorithm 1 with AID or GDmax.

It does what ``loop`` does with those, some steps at a time, and leaves compiled code to draw noise, to record, and to
be interrupted.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from bilevel_sym.engine import Floats
from bilevel_sym.hypergradient import AID, GDmax
from bilevel_sym.kernels import Kernels
from bilevel_sym.kernels.choice import say_if_slow
from bilevel_sym.problem import BilevelProblem
from bilevel_sym.solvers.noise import uniform_in_ball
from bilevel_sym.solvers.perturbed import SMALL, Descent, Perturbed
from bilevel_sym.solvers.progress import Meter
from bilevel_sym.solvers.recording import Ledger
from bilevel_sym.status import Status

if TYPE_CHECKING:
    from bilevel_sym.tape.compiled_loop import CompiledLoop, LoopState, Rule

__all__ = ["CompiledRun"]

SLICE = 0.1  # seconds that compiled code is left alone
FIRST_SLICE = 8  # steps, before it is known how long they take
NOISE = 8  # perturbations that can be drawn beforehand
MAX_LOOPS = 16
MAX_NUMBERS = 4_000_000  # recorded in one slice


@lru_cache(MAX_LOOPS)
def _loop(problem: BilevelProblem, e: AID | GDmax) -> CompiledLoop:
    """The compiled loop of an estimator on a problem; the last few are kept."""
    from bilevel_sym.tape.compiled_loop import CompiledLoop

    model = problem.tape.alone()  # bits that do not depend on what was asked of the problem before
    if isinstance(e, AID):
        return CompiledLoop(model, kind="aid", D=e.D, N=e.N, tau=e.tau)
    return CompiledLoop(model, kind="gdmax", D=e.D, tau=e.tau)


@dataclass(frozen=True)
class CompiledRun:
    """An algorithm that compiled code can run from beginning to end."""

    kernels: Kernels
    estimator: AID | GDmax
    algorithm: Descent | Perturbed

    @classmethod
    def of(cls, algorithm: object, kernels: Kernels) -> CompiledRun | None:
        """The run, if there is one for this algorithm on these kernels.

        >>> from bilevel_sym import BilevelProblem, Exact
        >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
        >>> CompiledRun.of(Descent(Exact(), eta=0.1), problem.kernels) is None
        True
        """
        if kernels.engine != "compiled" or not isinstance(algorithm, (Descent, Perturbed)):
            return None
        if isinstance(algorithm, Descent):
            if algorithm.escape is not None:
                return None
            estimator = algorithm.estimator
        else:
            estimator = algorithm.estimates
        return cls(kernels, estimator, algorithm) if isinstance(estimator, (AID, GDmax)) else None

    def run(
        self, x: Floats, y: Floats, v: Floats, streams: Sequence[np.random.Generator], ledger: Ledger, steps: int,
        meter: Meter,
    ) -> None:  # fmt: skip
        """All steps of all trajectories, from rows (S, d) and (S, n)."""
        say_if_slow("trajectories")
        from bilevel_sym.tape.compiled_loop import LoopState, Rule

        a, loop = self.algorithm, _loop(self.kernels.problem, self.estimator)
        rule, clock = Rule(a.eta), 0
        if isinstance(a, Perturbed):
            # compiled code counts from 0 after a perturbation, k - k_perturb from 1
            rule, clock = Rule(a.eta, SMALL * a.eps, a.T_escape - 1, a.as_printed), a.clock - 1
        state = LoopState.start(x, y, v, since=clock, noise=np.zeros((len(x), NOISE, x.shape[1])))
        state.used[:] = NOISE
        most = max(1, min(MAX_NUMBERS // (2 * len(x) * (x.shape[1] + y.shape[1])), NOISE * (rule.T_escape + 2)))
        k, size = 0, FIRST_SLICE
        try:
            while k < steps and (state.status == 0).any():
                size = min(size, steps - k, most)
                self._supply(state, streams, size)
                begun = perf_counter()
                self._advance(loop, state, size, rule, ledger, k)
                spent = perf_counter() - begun
                k += size
                meter.at(k, f", {int((state.status == 0).sum())} running")
                size = max(1, min(4 * size, int(size * SLICE / max(spent, 1e-6))))
            # the estimate at the last point, from which nobody moves
            self._advance(loop, state, 1, Rule(0.0), ledger, k)
        finally:
            self._close(state, ledger, steps)

    def _advance(self, loop: CompiledLoop, state: LoopState, size: int, rule: Rule, ledger: Ledger, k: int) -> None:
        from bilevel_sym.tape.compiled_loop import Record

        if ledger.history is None:
            loop.advance(state, size, rule)
            return
        record = Record.empty(len(state.x), size, state.x.shape[1], state.y.shape[1])
        try:
            loop.advance(state, size, rule, record)
        finally:  # an interruption comes when compiled code is left
            h, now = ledger.history, slice(k, k + size)
            h.x[:, now], h.y[:, now], h.v[:, now] = record.xs, record.ys, record.vs
            h.grad[:, now], h.phi[:, now], h.perturbed[:, now] = record.grads, record.phis, record.perturbed

    def _supply(self, state: LoopState, streams: Sequence[np.random.Generator], size: int) -> None:
        """As much noise as so many steps can use: one perturbation in T_escape + 1 of them. It ends the buffer."""
        a = self.algorithm
        if not isinstance(a, Perturbed):
            return
        need = -(-size // (a.T_escape + 1))
        for s in np.flatnonzero((NOISE - state.used < need) & (state.status == 0)).tolist():
            left = state.noise[s, state.used[s] :]
            fresh = [uniform_in_ball(streams[s], state.noise.shape[2], a.r) for _ in range(need - len(left))]
            state.noise[s, NOISE - need :] = np.concatenate([left, np.array(fresh)])
            state.used[s] = NOISE - need

    def _close(self, state: LoopState, ledger: Ledger, steps: int) -> None:
        everyone, failed = np.arange(len(state.x)), state.status != 0
        reached = np.minimum(state.age, steps)
        ledger.x[:], ledger.y[:], ledger.v[:], ledger.steps[:] = state.x, state.y, state.v, reached
        ledger.grad[:], ledger.phi[:] = state.grad, state.phi
        ledger.best_x[:], ledger.best_y[:] = state.best_x, state.best_y
        ledger.best_phi[:], ledger.best_k[:] = state.best_phi, state.best_k
        ledger.count(everyone, {name: c * (state.age + failed) for name, c in self.estimator.cost.items()})
        ledger.close(everyone[~failed & (state.age > steps)], Status.OUT_OF_STEPS)
        lost = everyone[failed]
        ledger.fail(lost, state.status[lost], reached[lost], state.x[lost], state.y[lost], state.v[lost])
        if ledger.history is not None:
            total = sum(self.estimator.cost.values())
            ledger.history.calls[:] = total * (1 + np.minimum(np.arange(steps + 1), reached[:, None]))
