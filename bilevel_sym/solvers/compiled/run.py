"""The loop inside the compiled interpreter (extra ``fast``), for descent and Algorithm 1 with AID or GDmax.

It does what ``loop`` does with those, some steps at a time, and leaves compiled code to draw noise, to record, and to
be interrupted.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.estimators.hypergradient import AID, Estimate, GDmax
from bilevel_sym.estimators.oracle import in_lanes
from bilevel_sym.estimators.status import Status
from bilevel_sym.kernels import Kernels
from bilevel_sym.problem.problem import SameProgram
from bilevel_sym.solvers import noise
from bilevel_sym.solvers.algorithm import Ends, Ensemble
from bilevel_sym.solvers.checkpoint import Keeper, Remembers
from bilevel_sym.solvers.perturbed import STATIONARY_SHARE, Descent, Perturbed
from bilevel_sym.solvers.recording import Recorder
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.typing import Floats, Indices

if TYPE_CHECKING:
    from bilevel_sym.solvers.compiled.compiled_loop import CompiledLoop, LoopState, Record, Rule

__all__ = ["CompiledRun"]

SLICE_OPERATIONS = 20_000_000  # for which compiled code is left alone: a fraction of a second, for Ctrl-C is waiting
NOISE_AHEAD = 8  # perturbations that can be drawn beforehand
MAX_LOOPS = 16
MAX_SLICE_NUMBERS = 4_000_000  # recorded in one slice


@lru_cache(MAX_LOOPS)
def _loop(program: SameProgram, e: AID | GDmax) -> CompiledLoop:
    """The compiled loop of an estimator on a problem; the last few are kept."""
    from bilevel_sym.solvers.compiled.compiled_loop import CompiledLoop

    model = program.problem.tape.fresh_copy()  # bits that do not depend on what was asked of the problem before
    if isinstance(e, AID):
        return CompiledLoop(model, kind="aid", D=e.D, N=e.N, tau=e.tau)
    return CompiledLoop(model, kind="gdmax", D=e.D, tau=e.tau)


@dataclass(frozen=True)
class _Standing:
    """The state of compiled code, as a part that remembers."""

    state: LoopState
    steps: int

    def memory(self) -> dict[str, NDArray[Any]]:
        return {name: array.copy() for name, array in vars(self.state).items()}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        used, age = memory["used"], memory["age"]
        # compiled code does not look where it reads
        wild = (used < 0) | (used > NOISE_AHEAD) | (age < 0) | (age > self.steps)
        wild |= ~np.isin(memory["status"], list(Status))
        if wild.any():
            raise ValueError("no trajectory can have come there")
        for name, array in vars(self.state).items():
            array[...] = memory[name]


@dataclass(frozen=True)
class CompiledRun:
    """An algorithm that compiled code can run from beginning to end."""

    kernels: Kernels
    estimator: AID | GDmax
    algorithm: Descent | Perturbed

    @classmethod
    def of(cls, algorithm: object, kernels: Kernels) -> CompiledRun | str:
        """The run of this algorithm on these kernels; or, where there is none, what keeps it from being compiled.

        >>> from bilevel_sym import BilevelProblem, Exact, compile_kernels
        >>> kernels = compile_kernels(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), backend="tape")
        >>> CompiledRun.of(Descent(Exact(), eta=0.1), kernels)
        'the engine is numpy'
        """
        if kernels.engine != "compiled":
            return f"the engine is {kernels.engine}"
        if type(algorithm) not in (Descent, Perturbed):  # compiled code knows nothing of what children do otherwise
            return f"the algorithm is {type(algorithm).__name__}, and Descent and Perturbed are compiled"
        if isinstance(algorithm, Descent) and algorithm.escape is not None:
            return f"it escapes by {type(algorithm.escape).__name__}, which is not compiled"
        estimator: Any = algorithm.estimates if isinstance(algorithm, Perturbed) else algorithm.estimator  # type: ignore[attr-defined]
        if type(estimator) not in (AID, GDmax):
            return f"the estimator is {type(estimator).__name__}, and AID and GDmax are compiled"
        return cls(kernels, estimator, algorithm)  # type: ignore[arg-type]

    def run(
        self, x: Floats, y: Floats, v: Floats, streams: Sequence[np.random.Generator], recorder: Recorder, steps: int,
        ends: Ends | None, meter: ProgressBar, keeper: Keeper, remembered: Mapping[str, Remembers],
    ) -> None:  # fmt: skip
        """All steps of all trajectories.

        - ``x``, ``y``, ``v``: the starts, rows (S, d) and (S, n).
        - ``streams``: the random stream of each trajectory.
        - ``recorder``: what notes the iterates.
        - ``steps``: the most moves that a trajectory makes.
        - ``ends``: says which trajectories end at a point.
        - ``meter``: shows how far it is.
        - ``keeper``: writes checkpoints.
        - ``remembered``: the parts that a checkpoint holds.
        """
        from bilevel_sym.solvers.compiled.compiled_loop import LoopState, Rule

        a, loop = self.algorithm, _loop(SameProgram(self.kernels.problem), self.estimator)
        rule, clock = Rule(a.eta), 0
        if isinstance(a, Perturbed):
            # compiled code counts from 0 after a perturbation, k - k_perturb from 1
            rule, clock = Rule(a.eta, STATIONARY_SHARE * a.eps, a.T_escape - 1, a.as_printed), a.clock - 1
        state = LoopState.start(x, y, v, since=clock, noise=np.zeros((len(x), NOISE_AHEAD, x.shape[1])))
        state.used[:] = NOISE_AHEAD
        most = max(1, MAX_SLICE_NUMBERS // (2 * len(x) * (x.shape[1] + y.shape[1])))
        if isinstance(a, Perturbed):
            most = min(most, NOISE_AHEAD * (rule.T_escape + 2))
        k, asking = keeper.begin(state=_Standing(state, steps), **remembered), False
        record: Record | None = None
        try:
            while k < steps and (state.status == 0).any():
                keeper.at(k)
                running = int((state.status == 0).sum())
                size = 1
                if ends is None:
                    size = min(max(1, SLICE_OPERATIONS // (running * loop.work)), steps - k, most, keeper.until(k))
                self._supply(state, streams, size)
                record = self._advance(loop, state, size, rule, recorder, k, ends is not None)
                if ends is not None and record is not None:
                    asking = True
                    self._ask(ends, k, state, record, recorder, back=True)
                    asking = False
                k += size
                meter.at(k, f", {int((state.status == 0).sum())} running")
            keeper.at(k)
            self._look(loop, state, recorder, k, ends)
        except KeyboardInterrupt:
            if asking and record is not None:  # all are still at the points that were asked about
                self._back(np.flatnonzero(state.status == 0), k, state, record, recorder)
            else:
                self._look(loop, state, recorder, int(state.age[state.status == 0].max(initial=0)), None)
            raise
        finally:
            self._close(state, recorder, steps)

    def _advance(
        self, loop: CompiledLoop, state: LoopState, size: int, rule: Rule, recorder: Recorder, k: int, wanted: bool
    ) -> Record | None:
        from bilevel_sym.solvers.compiled.compiled_loop import Record

        if recorder.history is None and not wanted:
            loop.advance(state, size, rule)
            return None
        record = Record.empty(len(state.x), size, state.x.shape[1], state.y.shape[1])
        try:
            loop.advance(state, size, rule, record)
        finally:  # an interruption comes when compiled code is left
            if recorder.history is not None:
                h, now = recorder.reserve(k + size), slice(k, k + size)
                h.x[:, now], h.y[:, now], h.v[:, now] = record.xs, record.ys, record.vs
                h.grad[:, now], h.phi[:, now], h.perturbed[:, now] = record.grads, record.phis, record.perturbed
        return record

    def _look(self, loop: CompiledLoop, state: LoopState, recorder: Recorder, k: int, ends: Ends | None) -> None:
        """The estimate at the last point, from which none moves."""
        from bilevel_sym.solvers.compiled.compiled_loop import Rule

        record = self._advance(loop, state, 1, Rule(0.0), recorder, k, ends is not None)
        state.age[state.status == 0] -= 1
        if ends is not None and record is not None:
            self._ask(ends, k, state, record, recorder, back=False)

    def _ask(self, ends: Ends, k: int, state: LoopState, record: Record, recorder: Recorder, *, back: bool) -> None:
        """Ask the rule about the k-th points; those that end there are taken ``back`` from where they moved since."""
        active = np.flatnonzero(state.status == 0)
        if not len(active):
            return
        x, y, v, grad = (in_lanes(a[active, 0]) for a in (record.xs, record.ys, record.vs, record.grads))
        nothing = np.zeros(x.shape[1], dtype=np.int8)
        ensemble = Ensemble(active, x, y, v, nothing.astype(np.int64), ())
        phi = in_lanes(record.phis[active])[0]
        codes = np.asarray(ends(k, ensemble, Estimate(grad, phi, y, v, nothing, {})))[: len(active)]
        ended = active[codes != 0]
        state.status[ended] = codes[codes != 0]
        if back:
            self._back(ended, k, state, record, recorder)

    @staticmethod
    def _back(active: Indices, k: int, state: LoopState, record: Record, recorder: Recorder) -> None:
        """Put trajectories back to their k-th points, from which they have just moved."""
        state.x[active] = record.xs[active, 0]
        state.age[active] -= 1
        if recorder.history is not None:
            recorder.history.perturbed[active, k] = False

    def _supply(self, state: LoopState, streams: Sequence[np.random.Generator], size: int) -> None:
        """As much noise as so many steps can use: one perturbation in T_escape + 1 of them. It ends the buffer."""
        a = self.algorithm
        if not isinstance(a, Perturbed):
            return
        need = -(-size // (a.T_escape + 1))
        for s in np.flatnonzero((NOISE_AHEAD - state.used < need) & (state.status == 0)).tolist():
            left = state.noise[s, state.used[s] :]
            fresh = [noise.uniform_in_ball(streams[s], state.noise.shape[2], a.r) for _ in range(need - len(left))]
            state.noise[s, NOISE_AHEAD - need :] = np.concatenate([left, np.array(fresh)])
            state.used[s] = NOISE_AHEAD - need

    def _close(self, state: LoopState, recorder: Recorder, steps: int) -> None:
        """Enter what was reached: ``age`` moves, and one estimate more."""
        everyone, failed = np.arange(len(state.x)), (state.status != 0) & (state.status < Status.OUT_OF_STEPS)
        recorder.x[:], recorder.y[:], recorder.v[:], recorder.steps[:] = state.x, state.y, state.v, state.age
        recorder.grad[:], recorder.phi[:] = state.grad, state.phi
        recorder.best_x[:], recorder.best_y[:] = state.best_x, state.best_y
        recorder.best_phi[:], recorder.best_k[:] = state.best_phi, state.best_k
        recorder.count(everyone, {name: c * (state.age + 1) for name, c in self.estimator.cost.items()})
        recorder.close(
            everyone, np.where((state.status == 0) & (state.age >= steps), Status.OUT_OF_STEPS, state.status)
        )
        lost = everyone[failed]
        recorder.fail(lost, state.status[lost], state.age[lost], state.x[lost], state.y[lost], state.v[lost])
        if recorder.history is not None:
            h = recorder.reserve(int(state.age.max()) + 1)
            total = sum(self.estimator.cost.values())
            h.calls[:] = total * (1 + np.minimum(np.arange(h.calls.shape[1]), state.age[:, None]))
            # what was computed beyond a point at which a trajectory ended
            beyond = np.arange(h.calls.shape[1]) > state.age[:, None]
            for table in (h.x, h.y, h.v, h.grad, h.phi):
                table[beyond] = np.nan
