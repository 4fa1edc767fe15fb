"""Behaviour: a candidate asked twice at a point, after other points, and next to it. What does that say of its error?

An error that is always the same and smooth comes from a wrong formula, of which nothing is said here. Others come from
chance, from what the candidate remembers of earlier calls, from rounding, or from a solver that stops too early.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.errors import BilevelError
from bilevel_sym.typing import Floats
from verify.testkit.candidate import NO_SETTINGS, Answer, Candidate, Settings, norms
from verify.testkit.diagnosis import Diagnosis
from verify.testkit.reference import Quantity, References
from verify.testkit.roughness import Roughness, Segment, roughness, rounding_of
from verify.testkit.sample_points import x_ends
from verify.testkit.suspects.lower import LARGEST_BY_TOLERANCE

__all__ = ["Behaviour", "behaviour"]

AGAIN = 12  # times asked at one point, where the answers differ
SAMPLES = 256  # the same, where they are random
LEAST_CALLS = 48  # calls, without which it is only asked once more: chance alone orders a few answers now and then
ENOUGH = 500  # calls: no look takes more
SIGMAS = 5.0
MATCHES = 1e-3  # of the distance between two answers: the answer is that of the other point
STAYS = 0.5  # the share of the first error that is left where the warm start alone does not explain it
LARGEST_BY_SINGLE = 1e-3  # relative: larger errors are not single precision's, unless the answer has that type
SINGLE_EPS = 2.0**-24
NOT_LOOKED_AT = Roughness()


@dataclass(frozen=True, eq=False)
class Behaviour:
    """What was seen. ``errors`` are those of the answers at one point, in the order of the calls.

    ``remembers``: the answer depends on the calls before. ``random``: it does without pattern; then ``mean``,
    ``standard_error`` (of the mean) and ``biased``, which says whether chance alone may explain the error.
    ``diagnosis`` is None where the error is always the same and smooth: the one of a wrong formula.

    >>> print(Behaviour((0.5, 0.5), Roughness(near=1e-9)))
    always the same answer, and an error that changes smoothly from point to point
    """

    errors: tuple[float, ...]
    roughness: Roughness = NOT_LOOKED_AT
    random: bool = False
    remembers: bool = False
    mean: Floats | None = None
    standard_error: Floats | None = None
    biased: bool = True
    diagnosis: Diagnosis | None = None

    def __str__(self) -> str:
        if self.diagnosis is not None:
            return self.diagnosis.what
        kinds = {"smooth": "changes smoothly from point to point", "unknown": "was not compared with neighbours"}
        return f"always the same answer, and an error that {kinds.get(self.roughness.kind, 'is within rounding')}"


def behaviour(
    candidate: Candidate,
    at: References,
    quantity: Quantity,
    k: int,
    *,
    settings: Mapping[str, float] = NO_SETTINGS,
    before: Floats | None = None,
    explained: bool = False,
    calls: int = ENOUGH,
) -> Behaviour:
    """How the candidate behaves at one point: is the answer always the same, and how does it change next to the point?

    - ``candidate``: what is asked.
    - ``at``: the references.
    - ``quantity``: what it is to compute.
    - ``k``: the number of the point.
    - ``settings``: D, N, Q or tol.
    - ``before``: its answer there.
    - ``explained``: the error is explained already: then it is asked once more, and neighbours are not looked at.
    - ``calls``: the most that may be made; where that is next to nothing, it is asked once.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [[1.0], [0.3]])  # grad Phi = x
    >>> behaviour(Candidate(lambda x: 1.2 * x, (1,)), at, "grad_phi", 0).diagnosis is None
    True
    >>> rng = np.random.default_rng(0)
    >>> seen = behaviour(Candidate(lambda x: x + rng.normal(size=1), (1,)), at, "grad_phi", 0)
    >>> seen.random, seen.biased, seen.diagnosis.cause
    (True, False, 'noise')
    """
    probe = _Probe(candidate, at, quantity, k, dict(settings), candidate.calls + calls)
    return probe.once_more(before) if calls < LEAST_CALLS and before is not None else probe.result(explained)


@dataclass(frozen=True, eq=False)
class _Probe:
    candidate: Candidate
    at: References
    quantity: Quantity
    k: int
    settings: Settings
    until: int  # calls of the candidate in all

    @property
    def _left(self) -> int:
        return self.until - self.candidate.calls

    def once_more(self, before: Floats) -> Behaviour:
        """Asked once: an answer that differs has a part that is random or remembered, of which no more is known."""
        again = self._ask(self.at.x[self.k])
        seen = Behaviour((float(np.linalg.norm(before - self._truth)), self._error(again)))
        if float(np.linalg.norm(again.value - before)) <= 0.1 * self._floor or not again.finite:
            return seen
        return replace(seen, random=True, biased=False, diagnosis=DIFFERS)

    def result(self, explained: bool) -> Behaviour:
        """Asked again and after others; then next door, unless the error is explained."""
        others = self._others()
        first = self._after(others[0])
        calls = [first, self._ask(self.at.x[self.k])]
        other = self._after(others[-1])
        seen = Behaviour(tuple(map(self._error, (*calls, other))))
        if not all(answer.finite for answer in (*calls, other)):
            return seen
        if all(self._same(first, answer) for answer in (calls[1], other)):
            return seen if explained else self._beside(seen, first, others[0])
        return self._belongs_to(others, (first, other), seen) or self._again(others[0])

    @property
    def _kernel(self) -> Callable[[Floats], Floats]:
        """What knows the truth at any points."""
        kernel: Callable[[Floats], Floats] = getattr(self.at.problem.kernels, self.quantity)
        return kernel

    @property
    def _truth(self) -> Floats:
        return np.asarray(self.at.truth(self.quantity)[self.k])

    @property
    def _floor(self) -> float:
        return float(self.at.floor(self.quantity)[self.k])

    @property
    def _size(self) -> float:
        """Of the quantity at the points, the largest: relative to one that happens to vanish every error is large."""
        return float(norms(self.at.truth(self.quantity)).max()) or 1.0

    def _ask(self, x: Floats) -> Answer:
        with np.errstate(all="ignore"):
            return self.candidate(x, self.settings)

    def _after(self, other: Floats) -> Answer:
        self._ask(other)
        return self._ask(self.at.x[self.k])

    def _error(self, answer: Answer) -> float:
        return float(np.linalg.norm(answer.value - self._truth))

    def _same(self, a: Answer, b: Answer) -> bool:
        return float(np.linalg.norm(a.value - b.value)) <= 0.1 * self._floor

    def _others(self) -> list[Floats]:
        """Two points: the farthest of the references and a half of the way there; or next to the point."""
        x = self.at.x[self.k]
        away = self.at.x - x
        far = away[first_largest(np.linalg.norm(away, axis=1))]
        if not far.any():
            far = self._inward(x) / 4
        return [x + far, x + far / 2]

    def _inward(self, x: Floats) -> Floats:
        if self.at.problem.box is None:
            return 1 + np.abs(x)
        lower, upper = x_ends(self.at.problem)
        middle = (lower + upper) / 2
        return np.asarray(np.where(x > middle, middle - upper, upper - middle))

    def _ends(self, x: Floats, way: Floats) -> tuple[float, float]:
        """How far x + t way goes in the box, both ways; without a box, to the other point."""
        if self.at.problem.box is None:
            return 0.0, 1.0
        lower, upper = x_ends(self.at.problem)
        moving = way != 0
        walls = np.sort([(wall - x)[moving] / way[moving] for wall in (lower, upper)], axis=0)
        return min(0.0, float(walls[0].max())), max(1.0, float(walls[1].min()))

    def _belongs_to(self, others: list[Floats], answers: tuple[Answer, Answer], seen: Behaviour) -> Behaviour | None:
        """Is the answer the truth at the point asked before, or made with the y* of that point?"""
        points = np.array([others[0], others[-1]])
        values = np.array([answer.value for answer in answers])
        here = np.broadcast_to(self.at.x[self.k], points.shape)
        with np.errstate(all="ignore"):
            try:
                theirs = self._kernel(points)
                y = self.at.problem.kernels.y_star(points)
                mixed = self._formula(np.ascontiguousarray(here), y)
            except BilevelError:
                return None
        if self._matches(values, theirs):
            return replace(seen, remembers=True, diagnosis=PREDECESSOR)
        if mixed is not None and self._matches(values, mixed):
            return replace(seen, remembers=True, diagnosis=Y_OF_PREDECESSOR)
        return None

    def _formula(self, x: Floats, y: Floats) -> Floats | None:
        """The formula of the quantity with any y in the place of y*."""
        if self.quantity == "y_star":
            return None
        expansion = self.at.problem.kernels.expansion(x, y)
        return np.asarray(expansion.grad if self.quantity == "grad_phi" else expansion.hess)

    def _matches(self, values: Floats, theirs: Floats) -> bool:
        gap, apart = norms(values - theirs), norms(theirs - self._truth)
        return bool(np.all(apart > 10 * self._floor) and np.all(gap <= MATCHES * apart + self._floor))

    def _again(self, other: Floats) -> Behaviour:
        """Asked again and again: do the answers settle, or scatter?"""
        calls = [self._after(other)]
        while len(calls) < AGAIN and calls[-1].finite:
            calls.append(self._ask(self.at.x[self.k]))
        errors = tuple(map(self._error, calls))
        if not calls[-1].finite or all(a < b for a, b in pairwise(errors)):
            return Behaviour(errors, remembers=True, diagnosis=_stale(errors, falls=False))
        if self._settle([answer.value for answer in calls], errors):
            falls = all(a >= b for a, b in pairwise(errors)) and errors[-1] < errors[-2]  # however slowly
            still = not falls and errors[-1] > STAYS * max(errors[0], self._floor)
            return Behaviour(errors, remembers=True, diagnosis=LEFT if still else _stale(errors, falls=True))
        while len(calls) < SAMPLES and self._left > 0:
            calls.append(self._ask(self.at.x[self.k]))
        return self._scattered(calls)

    def _settle(self, values: list[Floats], errors: tuple[float, ...]) -> bool:
        """Whether the answers do not change any more, or the error falls, or after a start each change is smaller."""
        changes = [float(np.linalg.norm(b - a)) for a, b in pairwise(values)]
        still, half = changes[-1] <= 0.1 * self._floor, max(2, len(changes) // 2)
        quiet = max(changes[-half:]) <= 0.1 * self._floor
        falls = all(a >= b for a, b in pairwise(errors)) and (still or changes[-1] < changes[0])
        shrinks = len(changes) >= AGAIN // 2 and all(a >= b for a, b in pairwise(changes[-AGAIN // 2 - 1 :]))
        return (quiet or falls or shrinks) and (not still or self._stays(values[-1]))

    def _stays(self, value: Floats) -> bool:
        """Whether the answer is the same ever after: a few equal ones may come by chance."""
        for _ in range(2 * AGAIN):
            if self._left <= 0:
                break
            before, value = value, self._ask(self.at.x[self.k]).value
            if not float(np.linalg.norm(value - before)) <= 0.1 * self._floor:
                return False
        return True

    def _scattered(self, calls: list[Answer]) -> Behaviour:
        values = np.array([answer.value for answer in calls])
        mean, error = values.mean(axis=0), values.std(axis=0, ddof=1) / np.sqrt(len(values))
        biased = bool(np.any(np.abs(mean - self._truth) > _sigmas(len(values)) * error + self._floor))
        seen = Behaviour(
            tuple(map(self._error, calls)), random=True, mean=mean, standard_error=error, biased=biased
        )  # fmt: skip
        return replace(seen, diagnosis=_random(seen, len(values), float(np.linalg.norm(mean - self._truth))))

    def _beside(self, seen: Behaviour, answer: Answer, other: Floats) -> Behaviour:
        """The same answer every time: is the error rough?"""
        error, size = seen.errors[0], self._size
        if error <= 3 * self._floor:
            return seen
        x = self.at.x[self.k]
        truth, ends = self._kernel, self._ends(x, other - x)
        segment = Segment(self.candidate, truth, x, other - x, self.settings, ends)
        rounding = rounding_of(self.at, self.quantity, self.k)
        found = roughness(
            segment, rounding, kappa=float(self.at.kappa[self.k]), small=error < LARGEST_BY_TOLERANCE * size,
            calls=self._left,
        )  # fmt: skip
        return replace(seen, roughness=found, diagnosis=_rough(found, answer, error, size, self.quantity))


def _sigmas(samples: int) -> float:
    """As unlikely for Student's distribution as five standard errors for the normal one."""
    from scipy.special import ndtr, stdtrit

    return float(stdtrit(samples - 1, ndtr(SIGMAS)))


def _stale(errors: tuple[float, ...], falls: bool) -> Diagnosis:
    changes = f"{'falls' if falls else 'grows'} from {errors[0]:.2g} to {errors[-1]:.2g} in {len(errors)} calls"
    kind = "a stale warm start, of y or of v" if falls else "something carried from call to call runs away"
    return Diagnosis(
        "y*",
        f"{kind}: asked again at the same point, the error {changes}",
        "what is kept between calls: y (and v) need more steps after x has moved, or a fresh start",
    )


def _random(seen: Behaviour, samples: int, off: float) -> Diagnosis:
    spread = float(np.linalg.norm(seen.standard_error)) if seen.standard_error is not None else np.nan
    around = f"its mean over {samples} calls is off by {off:.2g}, with a standard error of {spread:.2g}"
    kind = "random, and biased" if seen.biased else "random, but its mean may be right"
    look_at = "the random draws: fix them, or test the mean over many; a bias stays under averaging"
    return Diagnosis("noise", f"the answer is {kind}: {around}", look_at)


def _rough(found: Roughness, answer: Answer, error: float, size: float, quantity: Quantity) -> Diagnosis | None:
    relative = error / size
    rough_or_jumps = found.kind in ("noise", "float32", "jumps")
    rough = rough_or_jumps and found.near > 0.05
    if _is_single(answer) and relative < LARGEST_BY_TOLERANCE and (rough or relative < 100 * SINGLE_EPS):
        return _precision(relative, "what it returns has no more than single precision")
    if (decimals := _decimals(answer, error)) is not None and rough_or_jumps:
        look_at = "np.round, or a printed number that is read again: keep all digits"
        return Diagnosis("precision", f"the answer is rounded to {decimals} decimals", look_at)
    if found.kind == "float32" and relative < LARGEST_BY_SINGLE:
        return _precision(relative, "the error is rough down to the grid of float32, and smooth below")
    if found.kind in ("noise", "float32") or (found.kind == "jumps" and quantity == "hess_phi" and relative > 1e-2):
        return Diagnosis(
            "noise",
            f"the error (relative {relative:.1g}) is rough: it differs from a point to its nearest neighbours",
            "finite differences of values that are not exact enough for their step, or a loss of digits",
        )
    if found.kind == "jumps":
        return Diagnosis(
            "tolerance",
            f"the error (relative {relative:.1g}) jumps where a solver inside takes one iteration more or less",
            "the tolerance at which the solver of the lower level, or of the linear system, stops",
        )
    return None


def _precision(relative: float, what: str) -> Diagnosis:
    look_at = "the type of the arrays: float64 everywhere (in JAX, jax_enable_x64; in PyTorch, dtype=torch.float64)"
    return Diagnosis("precision", f"single precision: {what}; the relative error is {relative:.1g}", look_at)


def _decimals(answer: Answer, error: float) -> int | None:
    """To how many decimals the answer is rounded, if that explains the error."""
    for decimals in range(9, 0, -1):
        half = 0.5 * 10.0**-decimals * np.sqrt(answer.value.size)
        rounded = np.array_equal(answer.value, np.round(answer.value, decimals))
        if rounded and 1e-2 * half < error <= 1.01 * half:
            return decimals
    return None


def _is_single(answer: Answer) -> bool:
    """Whether it has that type, or holds nothing that float32 could not."""
    value = answer.value
    with np.errstate(all="ignore"):
        fits = value.astype(np.float32).astype(np.float64) == value
    whole = value == np.round(value, 2)  # 0.5, 3.0: such numbers say nothing
    return answer.single or bool(fits.all() and not whole.all())


DIFFERS = Diagnosis(
    "noise",
    "asked again at the same point the answer is another one, and there were no steps left to see why",
    "random draws, or what is kept between calls; effort= looks further",
)
LEFT = Diagnosis(
    "unexplained",
    "the answer depends on the calls before, but asked again and again at one point it settles at a wrong value",
    "first what is kept between calls: without it the error is the same each time, and easier to find",
)
PREDECESSOR = Diagnosis(
    "predecessor",
    "the answer is the true one of the point asked before",
    "what is stored between calls: the value is returned before it is updated for the new x",
)
Y_OF_PREDECESSOR = Diagnosis(
    "y*",
    "the answer is made with the y* of the point asked before",
    "the order of the steps: y has to be solved for the new x before it is used",
)
