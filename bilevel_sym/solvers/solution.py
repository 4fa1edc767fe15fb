"""What ``solve`` returns: the points reached, how each trajectory ended, and everything recorded on the way."""

from __future__ import annotations

import math
import os
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field, fields, is_dataclass
from functools import cached_property
from itertools import chain
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.arithmetic.ties import first_smallest
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.estimators.hypergradient import Exact
from bilevel_sym.estimators.status import Status
from bilevel_sym.implicit.engine import in_halves
from bilevel_sym.kernels import Counts, Kernels
from bilevel_sym.kernels.leaving import BOX_IS_NO_CONSTRAINT, outside, outside_in_words
from bilevel_sym.system.plain_text import as_html
from bilevel_sym.system.writing import csv_lines, write
from bilevel_sym.typing import Axes, Bools, Floats, Indices

__all__ = ["COUNTERS", "Best", "Solution", "Stats", "Trajectory", "exact_gradients"]

COUNTERS = ("G_f", "G_g", "JV_g", "HV_g")
UNCHECKED = (Status.OUT_OF_STEPS, Status.STOPPED, Status.INACCURATE)  # ends that rest on the estimate alone
NEGLIGIBLE_GRADIENT = 1e-6  # below which, without an eps, nothing is said of a gradient


@dataclass(frozen=True)
class Best:
    """The point with the lowest phi_hat that a trajectory visited, and the iteration at which it did."""

    x: Floats
    y: Floats
    phi_hat: Floats
    k: NDArray[np.int64]


@dataclass(frozen=True)
class Stats:
    """What carried out a run: the engine of the kernels, and the loop over the steps, "compiled" or "plain".

    ``why`` says what keeps the loop from being compiled. ``compile_seconds`` is how long the run waited for kernels.

    >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> stats = solve(problem, Descent(AID(D=1, N=1, tau=1.0), eta=0.25), [1.0], steps=2, backend="tape").stats
    >>> stats.engine, stats.loop, stats.why
    ('numpy', 'plain', 'the engine is numpy')
    """

    engine: str
    loop: Literal["compiled", "plain"]
    why: str
    compile_seconds: float


@dataclass(frozen=True)
class Trajectory:
    """All iterates k = 0, ..., K, time after the ensemble's axis if there is one; NaN beyond the end of a trajectory.

    - ``x``: the iterates, (K+1, d) or (S, K+1, d).
    - ``y``: the lower-level estimate at x_k.
    - ``v``: the solution of the linear system at x_k.
    - ``grad_phi_hat``: the hypergradient at x_k.
    - ``phi_hat``: the value at x_k.
    - ``perturbed``: whether the move from x_k to x_(k+1) was a perturbation or an escape.
    - ``calls``: all oracle calls up to and including x_k.
    - ``length``: how many iterates each trajectory has.
    - ``kernels``: those of the problem.

    >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> run = solve(problem, Descent(AID(D=1, N=1, tau=1.0), eta=0.25), [1.0], steps=2).trajectory
    >>> run.x.tolist(), run.phi.tolist(), run.grad_phi_hat.tolist()
    ([[1.0], [0.5], [0.25]], [1.0, 0.25, 0.0625], [[2.0], [1.0], [0.5]])
    """

    x: Floats
    y: Floats
    v: Floats
    grad_phi_hat: Floats
    phi_hat: Floats
    perturbed: Bools
    calls: NDArray[np.int64]
    length: NDArray[np.int64]
    kernels: Kernels = field(repr=False)

    @cached_property
    def phi(self) -> Floats:
        """The exact value Phi(x_k), computed when first asked for; NaN where the lower level cannot be solved."""
        x, y = self.x.reshape(-1, self.x.shape[-1]), self.y.reshape(-1, self.y.shape[-1])
        phi = np.full(len(x), np.nan)
        rows = np.flatnonzero(np.isfinite(x).all(axis=1) & np.isfinite(y).all(axis=1))
        phi[rows] = _exact_values(self.kernels, x[rows], y[rows])
        return phi.reshape(self.phi_hat.shape)


def _exact_values(kernels: Kernels, x: Floats, y: Floats) -> Floats:
    """Phi at each row, with y as the start of Newton's method; NaN for members that fail."""
    return _member_by_member(kernels.phi, x, y, np.full(len(x), np.nan))


def exact_gradients(kernels: Kernels, x: Floats, y: Floats) -> Floats:
    """grad Phi at each row, with y as the start of Newton's method; NaN for members that fail.

    >>> from bilevel_sym import BilevelProblem
    >>> exact_gradients(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y").kernels, np.ones((1, 1)), np.zeros((1, 1)))
    array([[2.]])
    """
    return _member_by_member(kernels.grad_phi, x, y, np.full(x.shape, np.nan))


def _member_by_member(quantity: Callable[..., Floats], x: Floats, y: Floats, found: Floats) -> Floats:
    def attempt(active: Indices) -> None:
        found[active] = quantity(x[active], y0=y[active])

    in_halves(np.arange(len(x)), attempt, BilevelError)
    return found


@dataclass(frozen=True)
class Solution:
    """The outcome of ``solve``. With x0 of shape (S, d) everything leads with S; with (d,) nothing does.

    - ``x``: the last point.
    - ``y``: its lower-level estimate.
    - ``status``: how each trajectory ended.
    - ``steps``: how many moves it made.
    - ``best``: the visited point with the lowest phi_hat.
    - ``counters``: how many gradients of f and g and products with g_xy and g_yy each trajectory asked for.
    - ``seed``: a tuple; ``rng=solution.seed[i]`` alone reproduces trajectory i to the last bit.
    - ``schedule``: the algorithm with all of its parameters.
    - ``grad_phi_hat``: the hypergradient at the last point.
    - ``phi_hat``: the value there.
    - ``kernels``: those of the problem.
    - ``stats``: what computed it.
    - ``recorded``: the iterates, where all were kept; ``trajectory`` is the same, or says what is missing.

    >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> solution = solve(problem, Descent(AID(D=1, N=1, tau=1.0), eta=0.25), [[1.0], [2.0]], steps=2)
    >>> solution
    <Solution 2 trajectories: 2 out of steps>
    >>> solution.x.tolist(), solution.phi.tolist(), solution.counters.G_g.tolist()
    ([[0.25], [0.5]], [0.0625, 0.25], [3, 3])
    """

    x: Floats
    y: Floats
    status: Any
    steps: Any
    best: Best
    counters: Counts
    seed: tuple[int, ...]
    schedule: Any
    grad_phi_hat: Floats
    phi_hat: Floats
    kernels: Kernels = field(repr=False)
    stats: Stats = field(repr=False, compare=False)
    recorded: Trajectory | None = field(repr=False, default=None)

    @staticmethod
    def concatenate(parts: Iterable[Solution]) -> Solution:
        """The solution of an ensemble (S, d) from those of its parts, bit by bit as if it had run at once.

        >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
        >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
        >>> algorithm = Descent(AID(D=1, N=1, tau=1.0), eta=0.25)
        >>> parts = [solve(problem, algorithm, [[start]], steps=2, rng=[seed]) for seed, start in enumerate([1.0, 2.0])]
        >>> Solution.concatenate(parts).x.tolist()
        [[0.25], [0.5]]
        """
        from bilevel_sym.solvers.joining import joined_solution

        return joined_solution(list(parts))

    @property
    def trajectory(self) -> Trajectory:
        """Everything recorded on the way."""
        if self.recorded is None:
            raise InvalidArgument("no trajectory was recorded", hint='solve(..., record="all")')
        return self.recorded

    @property
    def statuses(self) -> tuple[Status, ...]:
        """The status of every trajectory, one or many."""
        return (self.status,) if isinstance(self.status, Status) else tuple(self.status)

    @property
    def ok(self) -> bool:
        """Whether no trajectory failed."""
        return all(status.ok for status in self.statuses)

    @cached_property
    def phi(self) -> Floats:
        """The exact value of Phi at the last points; NaN where the lower level cannot be solved."""
        return _exact_values(self.kernels, *self._ends).reshape(self.x.shape[:-1])[()]

    @cached_property
    def grad_phi(self) -> Floats:
        """The exact gradient of Phi at the last points, beside ``grad_phi_hat``; NaN where that cannot be had."""
        return exact_gradients(self.kernels, *self._ends).reshape(self.x.shape)

    @property
    def _ends(self) -> tuple[Floats, Floats]:
        y = np.where(np.isfinite(self.y), self.y, 0.0)
        return self.x.reshape(-1, self.x.shape[-1]), y.reshape(-1, y.shape[-1])

    def __repr__(self) -> str:
        if isinstance(self.status, Status):
            return (
                f"<Solution x={_numbers(self.x)} phi_hat={float(self.phi_hat):.6g} {self.status}, {self.steps} steps>"
            )
        counts = Counter(str(status) for status in self.statuses)
        return f"<Solution {len(self.x)} trajectories: {', '.join(f'{c} {name}' for name, c in counts.items())}>"

    def describe(self) -> str:
        """What happened, for people: the lines of ``endings``, and the last point of a run that has not failed.

        Of several, that of lowest phi_hat.

        >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
        >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
        >>> print(solve(problem, Descent(AID(D=1, N=1, tau=1.0), eta=0.25), [1.0], steps=3).describe())
        1 trajectory ran out of steps (3 steps)
        x = [0.125], y = [0.125]
        """
        return "\n".join([*self.endings(), *self._last_point()])

    def endings(self) -> list[str]:
        """One line for each way in which trajectories ended.

        A further one says where the estimate is less than half of grad Phi, which is looked at for that: a run of few
        inner steps may rest where Phi still falls. Others say where x has left the problem's box, or y.

        >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
        >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
        >>> solve(problem, Descent(AID(D=1, N=1, tau=1.0), eta=0.25), [1.0], steps=3).endings()
        ['1 trajectory ran out of steps (3 steps)']
        """
        lines = []
        for status in sorted(set(self.statuses)):
            active = [k for k, s in enumerate(self.statuses) if s is status]
            steps = np.atleast_1d(self.steps)[active]
            span = f"{steps.min()}" if steps.min() == steps.max() else f"{steps.min()} to {steps.max()}"
            lines.append(f"{_trajectories(len(active))} {status.message} ({span} steps)")
        return [*lines, *self._deceived(), *self._outside()]

    def _last_point(self) -> Iterator[str]:
        fine = [k for k, status in enumerate(self.statuses) if status.ok]
        if not fine:
            return
        x, y = np.atleast_2d(self.x), np.atleast_2d(self.y)
        k = fine[first_smallest(np.atleast_1d(self.phi_hat)[fine], skip_nan=True)]
        whose = f"lowest, trajectory {k}: " if len(x) > 1 else ""
        yield f"{whose}x = {_numbers(x[k])}, y = {_numbers(y[k])}"

    def _deceived(self) -> Iterator[str]:
        """Where the estimate tells of a point that is far more stationary than it is."""
        estimator = getattr(self.schedule, "estimator", None)
        if estimator is None or isinstance(estimator, Exact):
            return
        looked = [k for k, status in enumerate(self.statuses) if status in UNCHECKED]
        if not looked:
            return
        rows = self.grad_phi_hat.reshape(-1, self.x.shape[-1])
        told, true = _norms(rows[looked]), _norms(self.grad_phi.reshape(rows.shape)[looked])
        least = getattr(self.schedule, "eps", None) or NEGLIGIBLE_GRADIENT
        wrong = np.flatnonzero((true > 2 * told) & (true > least))
        if len(wrong):
            worst = wrong[np.argmax(true[wrong])]
            yield (
                f"{_trajectories(len(wrong))} ended where |grad Phi| = {true[worst]:.3g}, though the estimate says "
                f"{told[worst]:.3g}: give {type(estimator).__name__} more inner steps, or take Exact()"
            )

    def _outside(self) -> Iterator[str]:
        problem, (x, y) = self.kernels.problem, self._ends
        fine = [k for k, status in enumerate(self.statuses) if status.ok]
        count = int(outside(problem, "x", x[fine], slack=0.0).any(axis=1).sum())
        if count:
            yield f"{_trajectories(count)} ended outside of the problem's box, where steps and constants were chosen"
        left = np.flatnonzero(outside(problem, "y", y[fine]).any(axis=1))
        if len(left):
            where = outside_in_words(problem, "y", y[fine][left[0]])
            yield f"{_trajectories(len(left))} ended with y* outside of the box, {where}: {BOX_IS_NO_CONSTRAINT}"

    # ---- export -----------------------------------------------------------------------------------------

    def to_dict(self) -> dict[str, Any]:
        """Plain numbers, lists and text, ready for JSON; NaN becomes None. Schema "bilevel-sym/solution/1"."""
        record: dict[str, Any] = {
            "schema": "bilevel-sym/solution/1",
            "x": _plain(self.x), "y": _plain(self.y), "phi_hat": _plain(self.phi_hat), "phi": _plain(self.phi),
            "grad_phi_hat": _plain(self.grad_phi_hat),
            "status": [str(s) for s in self.statuses] if self.x.ndim > 1 else str(self.status),
            "steps": _plain(np.asarray(self.steps)), "seed": list(self.seed),
            "best": {f.name: _plain(np.asarray(getattr(self.best, f.name))) for f in fields(self.best)},
            "counters": {name: _plain(np.asarray(getattr(self.counters, name))) for name in COUNTERS},
            "schedule": _parameters(self.schedule),
        }  # fmt: skip
        if self.recorded is not None:
            names = ("x", "y", "v", "grad_phi_hat", "phi_hat", "phi", "perturbed", "calls", "length")
            record["trajectory"] = {name: _plain(getattr(self.recorded, name)) for name in names}
        return record

    def to_csv(self, path: str | os.PathLike[str]) -> None:
        """One line for each iterate of each trajectory; without a recorded trajectory, one for each last point.

        A file that cannot be written raises CannotWrite and leaves the old one as it was.
        """
        names = [s.name for s in self.kernels.problem.x_entries]
        header = ["trajectory", "seed", "k", *names, "phi", "phi_hat", "norm_grad_phi_hat", "perturbed", "calls"]
        write(path, csv_lines(chain([header], self._lines())))

    def _lines(self) -> Iterator[list[object]]:
        if self.recorded is None:
            x, steps = np.atleast_2d(self.x), np.atleast_1d(self.steps)
            norms = _norms(np.atleast_2d(self.grad_phi_hat))
            calls = np.atleast_1d(sum(getattr(self.counters, name) for name in COUNTERS))
            columns = zip(x, np.atleast_1d(self.phi), np.atleast_1d(self.phi_hat), norms, calls, strict=True)
            for s, (point, phi, phi_hat, norm, total) in enumerate(columns):
                yield [s, self.seed[s], int(steps[s]), *point, phi, phi_hat, norm, 0, int(total)]
            return
        t = self.recorded
        many = t.x.ndim == 3
        arrays: tuple[Any, ...] = (t.x, t.phi, t.phi_hat, _norms(t.grad_phi_hat), t.perturbed, t.calls)
        x, phi, phi_hat, norm, perturbed, calls = (a if many else a[None] for a in arrays)
        for s, length in enumerate(np.atleast_1d(t.length)):
            for k in range(length):
                values = phi[s, k], phi_hat[s, k], norm[s, k]
                yield [s, self.seed[s], k, *x[s, k], *values, int(perturbed[s, k]), calls[s, k]]

    # ---- display ------------------------------------------------------------------------------------------

    def plot(
        self,
        ax: Axes | None = None,
        *,
        against: Literal["iteration", "calls"] = "iteration",
        phi_min: float | None = None,
    ) -> Axes:
        """Phi (or, with ``phi_min``, the gap Phi - phi_min on a logarithmic scale) along the trajectories.

        One trajectory is a line; several are their median and quartiles. Perturbations are marked. Wants the extra
        ``plot``. Returns the matplotlib axes.
        """
        from bilevel_sym.plotting import plot_solution

        return plot_solution(self, ax, against=against, phi_min=phi_min)

    def _repr_html_(self) -> str:
        rows = "".join(f"<tr><td>{as_html(line)}</td></tr>" for line in self.describe().splitlines())
        return f"<table>{rows}</table>"


def _trajectories(count: int) -> str:
    return "1 trajectory" if count == 1 else f"{count} trajectories"


def _numbers(values: Floats, limit: int = 6) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:limit])
    return f"[{shown}{', ...' if len(values) > limit else ''}]"


def _norms(rows: Floats) -> Floats:
    with np.errstate(over="ignore"):  # of a run that diverged
        lengths: Floats = np.linalg.norm(rows, axis=-1)
    return lengths


def _plain(array: Any) -> Any:
    array = np.asarray(array)
    plain: Any = array
    if array.dtype.kind == "f" and not np.isfinite(array).all():
        plain = np.where(np.isfinite(array), array.astype(object), None)
    return plain.tolist()


def _parameters(value: Any) -> Any:
    """A frozen configuration as nested dictionaries, with its class by name."""
    if is_dataclass(value) and not isinstance(value, type):
        return {"kind": type(value).__name__} | {f.name: _parameters(getattr(value, f.name)) for f in fields(value)}
    if isinstance(value, tuple):
        return [_parameters(part) for part in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value if isinstance(value, (int, float, str, bool, type(None))) else str(value)
