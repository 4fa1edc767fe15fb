"""A run of a user's solver as arrays: its iterates, what was recorded beside them, and the algorithm's parameters."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from bilevel_sym import AID, BilevelProblem, GDmax, INeon, MinimaxProblem, Perturbed, Solution, StocBiO
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.estimators import Estimator
from bilevel_sym.typing import Bools, Floats
from verify.testkit.candidate import real_array
from verify.verdict import CheckResult, Evidence, Verdict

NUMBERS = ("eta", "eps", "r", "T_escape", "iota", "tau")
SHOWN_ENTRIES = 6  # entries of a vector that are written out


@dataclass(frozen=True)
class Parameters:
    """What is known of the algorithm; None where it was not said.

    ``as_printed``: whether a perturbation is followed, in the same iteration, by the gradient of before it. ``random``:
    the estimates come from batches.
    """

    eta: float | None = None
    eps: float | None = None
    r: float | None = None
    T_escape: float | None = None
    iota: float | None = None
    estimator: Estimator | None = None
    escape: INeon | None = None
    as_printed: bool | None = None
    random: bool = False

    @property
    def perturbs(self) -> bool:
        """Whether the algorithm is known to be one that perturbs."""
        return self.escape is not None or self.r is not None or self.T_escape is not None


@dataclass(frozen=True, eq=False)
class Record:
    """Trajectories (S, K+1, ...); ``single`` where the user gave one without the leading axis.

    ``length``: how many iterates each has. ``unit`` is the spacing of numbers at 1, of the precision that they came in.
    ``y_0`` and ``v_0`` are the warm starts of the first iteration, (S, n), where they are known.
    """

    problem: BilevelProblem
    x: Floats
    grad_phi_hat: Floats | None
    perturbed: Bools | None
    y: Floats | None
    v: Floats | None
    y_0: Floats | None
    v_0: Floats | None
    length: NDArray[np.int64]
    single: bool
    unit: float
    parameters: Parameters

    @property
    def exists(self) -> Bools:
        """Which iterates there are, (S, K+1)."""
        return np.asarray(np.arange(self.x.shape[1]) < self.length[:, None])

    @property
    def finite(self) -> Bools:
        """Which iterates there are and hold finite numbers."""
        return np.asarray(self.exists & np.isfinite(self.x).all(axis=-1))

    @property
    def hat(self) -> Floats:
        """The estimates, of a run that is known to have them."""
        assert self.grad_phi_hat is not None
        return self.grad_phi_hat

    @property
    def eta(self) -> float:
        """The step size, of a run that is known to have it."""
        assert self.parameters.eta is not None
        return self.parameters.eta

    @property
    def steps(self) -> Bools:
        """From which iterates a step leads to a finite one, (S, K)."""
        return np.asarray(self.finite[:, :-1] & self.finite[:, 1:])

    @property
    def plain(self) -> Bools:
        """The steps that are not marked as perturbations."""
        return self.steps if self.perturbed is None else np.asarray(self.steps & ~self.perturbed[:, :-1])

    def place(self, s: int, k: int) -> str:
        """An iterate in words."""
        return f"iterate k = {k}" if self.single else f"iterate k = {k} of trajectory {s}"

    def named(self, x: Floats) -> dict[str, float]:
        """A point by the names of its variables."""
        return {symbol.name: float(value) for symbol, value in zip(self.problem.x_entries, x, strict=True)}


def record_of(solution: Any, problem: BilevelProblem) -> Record:
    """The run, checked: a Solution, or a mapping or object with ``x`` and whatever else was kept.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> record_of({"x": [[1.0], [0.5]], "eta": 0.25}, problem).x.shape
    (1, 2, 1)
    >>> record_of({"x": [1.0, 0.5]}, problem)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: x has shape (2,), but iterates of shape (K+1, 1) or (S, K+1, 1) are expected
    try: x[:, None], or np.stack of all the iterates
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"check_trajectory wants a problem second, but was given a {type(problem).__name__}")
    exact = problem.mean
    known = _fields(solution)
    x, unit = real_array(known["x"], "x")
    if x.ndim not in (2, 3) or x.shape[-1] != exact.d or not x.shape[-2]:
        raise InvalidArgument(
            f"x has shape {x.shape}, but iterates of shape (K+1, {exact.d}) or (S, K+1, {exact.d}) are expected",
            hint="x[:, None], or np.stack of all the iterates" if exact.d == 1 else "np.stack of all the iterates",
        )
    single = x.ndim == 2
    x = x[None] if single else x
    grad, coarse = _column(known.get("grad_phi_hat"), "grad_phi_hat", x.shape, exact.d, single)
    y, _ = _column(known.get("y"), "y", x.shape, exact.n, single)
    v, _ = _column(known.get("v"), "v", x.shape, exact.n, single)
    return Record(
        exact, x, grad, _flags(known.get("perturbed"), x.shape[:2], single), y, v,
        _starts(known.get("y0"), "y0", len(x), exact.n), _starts(known.get("v0"), "v0", len(x), exact.n),
        _lengths(known.get("length"), x.shape[:2]), single, max(unit, coarse), _parameters(known, problem),
    )  # fmt: skip


NAMES = (
    "x", "grad_phi_hat", "perturbed", "y", "v", "y0", "v0", "length", "schedule", "estimator", "escape", "as_printed",
    "D", "N", *NUMBERS,
)  # fmt: skip


def _fields(solution: Any) -> dict[str, Any]:
    """What is there by name; a Solution keeps its iterates in ``trajectory``."""
    if isinstance(solution, Solution):
        found = {name: getattr(solution.trajectory, name, None) for name in NAMES}
        return found | {"schedule": solution.schedule}
    if isinstance(solution, Mapping):
        found = {name: solution.get(name) for name in NAMES}
    else:
        found = {name: getattr(solution, name, None) for name in NAMES}
    if found["x"] is None:
        raise InvalidArgument(
            f"a {type(solution).__name__} without iterates x is no trajectory",
            hint='{"x": iterates, "grad_phi_hat": estimates, "eta": 0.1}, or solve(..., record="all")',
        )
    return found


def _column(value: Any, what: str, shape: tuple[int, ...], width: int, single: bool) -> tuple[Floats | None, float]:
    """An array beside the iterates; the last row may be missing, and is then nan."""
    if value is None:
        return None, 0.0
    array, unit = real_array(value, what)
    array = array[None] if single else array
    runs, stop = shape[:2]
    if array.ndim != 3 or array.shape[0] != runs or array.shape[1] not in (stop, stop - 1) or array.shape[2] != width:
        given = array.shape[1:] if single else array.shape
        wanted = (stop, width) if single else (runs, stop, width)
        raise InvalidArgument(f"{what} has shape {given}, but {wanted} is expected: a row for each iterate")
    full = np.full((runs, stop, width), np.nan)
    full[:, : array.shape[1]] = array
    return full, unit


def _flags(value: Any, shape: tuple[int, int], single: bool) -> Bools | None:
    if value is None:
        return None
    try:
        array = np.asarray(value)
        array = array[None] if single else array
        good = array.dtype.kind in "biu" and array.ndim == 2 and array.shape[0] == shape[0]
    except (TypeError, ValueError):
        good = False
    if not good or array.shape[1] not in (shape[1], shape[1] - 1):
        raise InvalidArgument("perturbed must say True or False for each iterate", hint="np.zeros(K + 1, dtype=bool)")
    full = np.zeros(shape, dtype=np.bool_)
    full[:, : array.shape[1]] = array.astype(np.bool_)
    return full


def _starts(value: Any, what: str, runs: int, width: int) -> Floats | None:
    if value is None:
        return None
    array, _ = real_array(value, what)
    if array.shape not in ((width,), (runs, width)):
        raise InvalidArgument(f"{what} has shape {array.shape}, but ({width},) or ({runs}, {width}) is expected")
    return np.array(np.broadcast_to(array, (runs, width)))


def _lengths(value: Any, shape: tuple[int, int]) -> NDArray[np.int64]:
    if value is None:
        return np.full(shape[0], shape[1], dtype=np.int64)
    array = np.atleast_1d(np.asarray(value))
    if array.dtype.kind not in "iu" or array.shape != (shape[0],) or not ((array >= 1) & (array <= shape[1])).all():
        raise InvalidArgument(f"length must be a whole number from 1 to {shape[1]} for each trajectory")
    return array.astype(np.int64)


def _parameters(known: Mapping[str, Any], problem: BilevelProblem) -> Parameters:
    """From the fields themselves, and for what they leave open from an algorithm of ours."""
    algorithm = known.get("schedule")
    random = isinstance(algorithm, StocBiO)
    given = {name: known.get(name) for name in (*NUMBERS, "estimator", "escape", "as_printed")}
    for name in given:
        if given[name] is None:
            given[name] = getattr(algorithm, "beta" if random and name == "eta" else name, None)
    numbers = {name: _number(given[name], name) for name in NUMBERS}
    if isinstance(algorithm, Perturbed):
        given["estimator"] = algorithm.estimates
    escape = given["escape"] if isinstance(given["escape"], INeon) else None
    estimator = given["estimator"] if isinstance(given["estimator"], Estimator) else None
    if estimator is None and not random:
        estimator = _estimator(known, numbers["tau"], problem)
    as_printed = given["as_printed"]
    return Parameters(
        numbers["eta"], numbers["eps"], numbers["r"], numbers["T_escape"], numbers["iota"], estimator, escape,
        bool(as_printed) if as_printed is not None else None, random,
    )  # fmt: skip


def _estimator(known: Mapping[str, Any], tau: float | None, problem: BilevelProblem) -> Estimator | None:
    """AID from D, N and tau; GDmax from D and tau of a minimax problem."""
    D, N = known.get("D"), known.get("N")
    if D is None or tau is None:
        return None
    try:
        if N is not None:
            return AID(D, N, tau)
        return GDmax(D, tau) if isinstance(problem, MinimaxProblem) else None
    except BilevelError as error:
        raise InvalidArgument(f"the estimator's parameters: {error.message}", hint=error.hint) from None


def _number(value: Any, what: str) -> float | None:
    if value is None:
        return None
    try:
        number = math.nan if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not 0 < number < math.inf:
        raise InvalidArgument(f"{what} must be a positive number, but is {value!r:.40}")
    return number


def last_before(marked: Bools) -> NDArray[np.int64]:
    """Of each iterate the last one before it that is marked; -1 where there is none.

    >>> last_before(np.array([[False, True, False, False]]))
    array([[-1, -1,  1,  1]])
    """
    last = np.maximum.accumulate(np.where(marked, np.arange(marked.shape[1]), -1), axis=1)
    return np.concatenate([np.full((len(last), 1), -1), last[:, :-1]], axis=1)


def vector(values: Sequence[float] | Floats, digits: int = 10) -> str:
    """Numbers in parentheses; of many the first.

    >>> vector([0.5, 1 / 3], 4)
    '(0.5, 0.3333)'
    """
    shown = [f"{float(value):.{digits}g}" for value in values[:SHOWN_ENTRIES]]
    return f"({', '.join(shown)}{', ...' if len(values) > SHOWN_ENTRIES else ''})"


def place_of(record: Record, s: int, k: int) -> str:
    """An iterate with its point by names.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    >>> place_of(record_of({"x": [[1.0], [0.5]]}, problem), 0, 1)
    'iterate k = 1, x = 0.5'
    """
    point = list(record.named(record.x[s, k]).items())[:SHOWN_ENTRIES]
    more = ", ..." if record.problem.d > SHOWN_ENTRIES else ""
    return f"{record.place(s, k)}, {', '.join(f'{name} = {value:.10g}' for name, value in point)}{more}"


def said(
    label: str,
    part: str,
    verdict: Verdict,
    lines: Sequence[str],
    *,
    record: Record | None = None,
    at: tuple[int, int] | None = None,
    measured: float | None = None,
    bound: float | None = None,
    n_points: int = 0,
    evidence: Evidence | None = "sampled",
) -> CheckResult:
    """A result whose message has a line for each thing that is said.

    - ``lines``: these things.
    - ``record``: the run, by which the point is named.
    - ``at``: the trajectory and the iterate.
    - ``label``, ``part``, ``verdict``, ``measured``, ``bound``, ``n_points``, ``evidence``: as for ``CheckResult``.

    >>> said("lem:descent", "", Verdict.HOLDS, ["all is well", "3 steps"]).message
    'all is well\\n  3 steps'
    """
    point = None
    if record is not None and at is not None:
        lines = [lines[0], place_of(record, *at), *lines[1:]]
        point = record.named(record.x[at]) if np.isfinite(record.x[at]).all() else None
    return CheckResult(
        label=label, part=part, verdict=verdict, message="\n  ".join(line for line in lines if line), measured=measured,
        bound=bound, n_points=n_points, evidence=evidence, worst_point=point,
    )  # fmt: skip
