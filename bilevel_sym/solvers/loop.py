"""The loop of ``solve``: what algorithms need not know: recording, counters, progress, stopping, interruption."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias

import numpy as np
from numpy.typing import ArrayLike, NDArray

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.estimators.checks import count
from bilevel_sym.estimators.hypergradient import Estimate
from bilevel_sym.estimators.oracle import filled
from bilevel_sym.estimators.status import Status
from bilevel_sym.graph.assumptions import assumed_sign, check_point
from bilevel_sym.kernels import Kernels, compile_kernels
from bilevel_sym.kernels.arguments import joined
from bilevel_sym.kernels.choice import Backend
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers.algorithm import Algorithm, Ends, Ensemble, Flags, Move, Run
from bilevel_sym.solvers.checkpoint import Keeper, Remembers, RunMemory, identity, saved_seeds
from bilevel_sym.solvers.compiled.run import CompiledRun
from bilevel_sym.solvers.local_minimum import LocalMinimum
from bilevel_sym.solvers.noise import Seeds, Streams, seeds_for
from bilevel_sym.solvers.perturbed import STATIONARY_SHARE, norms
from bilevel_sym.solvers.recording import Recorder
from bilevel_sym.solvers.solution import Solution, Stats, exact_gradients
from bilevel_sym.solvers.starts import where_defined
from bilevel_sym.system.budget import Stopwatch
from bilevel_sym.system.progress import ProgressBar
from bilevel_sym.typing import Floats

__all__ = ["Rule", "State", "run_algorithm"]

MAX_CHECK_INTERVAL = 64  # iterations between two checks of a point that failed them


@dataclass(frozen=True)
class State:
    """What a stopping rule sees of one trajectory.

    - ``k``: the number of the iterate.
    - ``x``: the iterate, (d,).
    - ``y``: its lower-level estimate, (n,).
    - ``grad_phi_hat``: the hypergradient there.
    - ``phi_hat``: the value there.

    >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> def low(state: State) -> bool:
    ...     return state.phi_hat < 0.1
    >>> solution = solve(problem, Descent(AID(D=1, N=1, tau=1.0), eta=0.25), [1.0], stop=low)
    >>> solution.status, solution.x
    (<Status.STOPPED: 7>, array([0.25]))
    """

    k: int
    x: Floats
    y: Floats
    grad_phi_hat: Floats
    phi_hat: float


Rule: TypeAlias = Callable[[State], bool]


def run_algorithm(
    problem: BilevelProblem,
    algorithm: Algorithm,
    x0: ArrayLike,
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
) -> Solution:
    """``solve`` with an algorithm and a start that are given; the arguments are those of ``solve``."""
    if record not in ("all", "last"):
        raise InvalidArgument(f"record={record!r}", hint='"all" or "last"')
    steps = count("steps", steps, least=0)
    x, shape = joined({"x0": (x0, problem.x_entries)})
    if len(shape) > 1:
        raise InvalidArgument(f"x0 has shape {(*shape, problem.d)}, but ({problem.d},) or (S, {problem.d}) is expected")
    size = len(x)
    if any(map(assumed_sign, problem.x_entries)):
        for row in x:
            check_point(problem.x_entries, row.tolist(), "x0")
    y, v = (_starts(name, given, problem.y_entries, size) for name, given in (("y0", y0), ("v0", v0)))
    problem.kernels.refuse_kinked(x)
    keeper = Keeper(checkpoint, checkpoint_every)
    seeds = (saved_seeds(keeper.saved, size) if rng is None else None) or seeds_for(rng, size)
    watch = Stopwatch()
    kernels = compile_kernels(problem, backend=backend)
    compiled = CompiledRun.of(algorithm, kernels)
    why = compiled if isinstance(compiled, str) else ""
    if y0 is None:
        y = where_defined(kernels, x, y)
    stats = Stats(kernels.engine, "plain" if why else "compiled", why, watch.elapsed)
    run = algorithm.start(problem, kernels if shape else kernels.for_one_trajectory)
    rule = _rule(stop, algorithm, kernels, size)
    recorder = Recorder(kernels, x, y, steps, record == "all")
    if size:
        streams = Streams(seeds)
        remembered: dict[str, Remembers] = {"streams": streams}
        if isinstance(rule, _Checked):
            remembered["rule"] = rule
        if keeper.active:
            # with arrays one alone has other bits than an ensemble of one
            begin = x[0] if problem.is_array and not shape else x
            starts, is_compiled = {"x0": begin, "y0": y, "v0": v}, not why or getattr(run, "is_compiled", False)
            about = identity(kernels, algorithm, starts, seeds, stop, record, compiled=is_compiled)
            keeper.belongs(about, recorder, steps)
        with ProgressBar("solve", steps, shown=bool(progress)) as meter, np.errstate(all="ignore"):
            try:
                if isinstance(compiled, CompiledRun):
                    compiled.run(x, y, v, streams, recorder, steps, rule, meter, keeper, remembered)
                else:
                    ensemble = Ensemble.gather(x, y, v, run.clock, streams)
                    if keeper.active:
                        remembered |= {"ensemble": ensemble, "run": RunMemory.of(run, size)}
                    _loop(run, ensemble, recorder, range(keeper.begin(**remembered), steps + 1), rule, meter, keeper)
                keeper.save()
            except KeyboardInterrupt:
                keeper.save()
                recorder.close(np.flatnonzero(recorder.status == Status.RUNNING), Status.INTERRUPTED)
    if isinstance(rule, _Checked):
        rule.see_through(recorder)
    return recorder.solution(shape, seeds, algorithm, stats)


def _starts(name: str, given: ArrayLike | None, variables: Sequence[object], size: int) -> Floats:
    n = len(variables)
    if given is None:
        return np.zeros((size, n))
    rows, shape = joined({name: (given, variables)})
    if shape not in ((), (size,)):
        raise InvalidArgument(f"{name} has shape {(*shape, n)}, but ({n},) or ({size}, {n}) is expected")
    return np.ascontiguousarray(np.broadcast_to(rows, (size, n)))


def _loop(
    run: Run,
    ensemble: Ensemble,
    recorder: Recorder,
    steps: range,
    rule: Ends | None,
    meter: ProgressBar,
    keeper: Keeper,
) -> None:
    for k in steps:
        keeper.at(k)
        meter.at(k, f", {ensemble.size} running")
        estimate = run.estimate(ensemble)
        recorder.count(ensemble.active, estimate.calls)
        if estimate.failed[: ensemble.size].any():
            healthy = estimate.failed == 0
            _fail(ensemble, recorder, k, estimate)
            ensemble.keep(healthy)
            estimate = _only(estimate, healthy, ensemble)
            if not ensemble.size:
                return
        ensemble.y, ensemble.v = estimate.y, estimate.v
        x, y, v, grad = (ensemble.rows(part) for part in (ensemble.x, ensemble.y, ensemble.v, estimate.grad))
        recorder.note(ensemble.active, k, x, y, v, grad, estimate.phi[: ensemble.size])
        if rule is not None and (ended := rule(k, ensemble, estimate)).any():
            staying = ended == 0
            _retire(ensemble, recorder, ~staying, ended)
            estimate = _only(estimate, staying, ensemble)
            if not ensemble.size:
                return
        if k == steps[-1]:
            break
        move = _checked(run.move(ensemble, estimate), ensemble)
        if move.calls:
            recorder.count(ensemble.active, {name: np.asarray(c)[: ensemble.size] for name, c in move.calls.items()})
        if recorder.history is not None:
            recorder.mark(ensemble.active[move.perturbed[: ensemble.size]], k)
        ensemble.x = move.x
        if move.finished[: ensemble.size].any():
            _retire(ensemble, recorder, move.finished != 0, move.finished)
            if not ensemble.size:
                return
    recorder.close(ensemble.active, Status.OUT_OF_STEPS)


def _checked(move: object, ensemble: Ensemble) -> Move:
    """What a user's ``move`` returned, refused unless it is what was asked for."""
    if isinstance(move, Move) and np.shape(move.x) == ensemble.x.shape:
        return move
    what = f"x of shape {np.shape(move.x)}" if isinstance(move, Move) else f"a {type(move).__name__}"
    raise InvalidArgument(
        f"the algorithm's move returned {what}, but x of shape {ensemble.x.shape} in a Move is expected",
        hint="return Move.to(x), where x is (d, lanes) as ensemble.x is",
    )


def _fail(ensemble: Ensemble, recorder: Recorder, k: int, estimate: Estimate) -> None:
    """Note where trajectories stand that could not be estimated there: y and v are those of before."""
    lanes = np.flatnonzero(estimate.failed[: ensemble.size])
    x, y, v = (np.ascontiguousarray(part[:, lanes].T) for part in (ensemble.x, ensemble.y, ensemble.v))
    recorder.fail(ensemble.active[lanes], estimate.failed[lanes], k, x, y, v)


def _retire(ensemble: Ensemble, recorder: Recorder, leaving: Flags, codes: Any) -> None:
    lanes = np.flatnonzero(leaving[: ensemble.size])
    recorder.close(ensemble.active[lanes], np.asarray(codes)[lanes])
    ensemble.keep(~leaving)


def _only(estimate: Estimate, staying: Flags, ensemble: Ensemble) -> Estimate:
    """The estimate in the lanes of those that stay, laid out as the ensemble now is."""
    if not ensemble.size:
        return estimate
    lanes = filled(np.flatnonzero(staying)[: ensemble.size])
    calls = {name: c if np.ndim(c) == 0 else np.asarray(c)[lanes] for name, c in estimate.calls.items()}
    return Estimate._make([*(np.ascontiguousarray(part[..., lanes]) for part in estimate[:5]), calls])


# ---- stopping -------------------------------------------------------------------------------------------


def _rule(stop: Any, algorithm: Any, kernels: Kernels, size: int) -> Ends | None:
    if stop is None:
        return None
    if isinstance(stop, str):
        if stop != "local minimum":
            raise InvalidArgument(f"stop={stop!r}", hint='stop="local minimum", or a function of the state')
        eps = getattr(algorithm, "eps", None)
        if eps is None:
            raise InvalidArgument(
                "this algorithm has no eps to judge a local minimum by", hint="stop=LocalMinimum(eps=1e-3)"
            )
        stop = LocalMinimum(eps, getattr(algorithm, "rho_phi", None))
    if isinstance(stop, LocalMinimum):
        return _Checked(stop, kernels, size)
    if not callable(stop):
        raise InvalidArgument(
            f"stop={stop!r} cannot be called", hint="a function of the state that returns True or False"
        )

    def by_caller(k: int, ensemble: Ensemble, estimate: Estimate) -> Any:
        points = zip(
            *(ensemble.rows(part) for part in (ensemble.x, ensemble.y, estimate.grad)), estimate.phi, strict=False
        )
        ended = [bool(stop(State(k, x, y, grad, float(phi)))) for x, y, grad, phi in points]
        codes = np.zeros(ensemble.x.shape[1], dtype=np.int8)
        codes[: ensemble.size][ended] = Status.STOPPED
        return codes

    return by_caller


class _Checked:
    """Ends trajectories at eps-local minima; one that fails the check is asked again after 1, 2, 4, ... iterations.

    Points are checked one by one, so that the answer for one never depends on which others are asked.
    """

    def __init__(self, rule: LocalMinimum, kernels: Kernels, size: int) -> None:
        self._rule, self._kernels = rule, kernels
        self._next, self._wait = np.zeros(size, dtype=np.int64), np.ones(size, dtype=np.int64)

    def memory(self) -> dict[str, NDArray[Any]]:
        return {"next": self._next.copy(), "wait": self._wait.copy()}

    def recall(self, memory: Mapping[str, NDArray[Any]]) -> None:
        self._next[:], self._wait[:] = memory["next"], memory["wait"]

    def __call__(self, k: int, ensemble: Ensemble, estimate: Estimate) -> Any:
        codes = np.zeros(ensemble.x.shape[1], dtype=np.int8)
        flat = norms(estimate.grad)[: ensemble.size] <= STATIONARY_SHARE * self._rule.eps
        self._wait[ensemble.active[~flat]] = 1
        self._next[ensemble.active[~flat]] = k
        for lane in np.flatnonzero(flat & (self._next[ensemble.active] <= k)):
            member = ensemble.active[lane]
            x, y = (np.ascontiguousarray(part[:, lane]) for part in (ensemble.x, ensemble.y))
            if self._rule.holds(self._kernels, x, y, rng=k):
                codes[lane] = Status.LOCAL_MINIMUM
            self._next[member] = k + self._wait[member]
            self._wait[member] = min(2 * self._wait[member], MAX_CHECK_INTERVAL)
        return codes

    def see_through(self, recorder: Recorder) -> None:
        """Of trajectories that ran out of steps, tell those that only believe to stand at a stationary point."""
        short = norms(recorder.grad.T) <= STATIONARY_SHARE * self._rule.eps
        for member in np.flatnonzero(short & (recorder.status == Status.OUT_OF_STEPS)):
            true = exact_gradients(self._kernels, recorder.x[[member]], recorder.y[[member]])[0]
            if float(np.linalg.norm(true)) > self._rule.eps:
                recorder.close(np.array([member]), Status.INACCURATE)
