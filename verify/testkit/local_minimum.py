"""check_local_minimum: is this point an eps-local minimum of Phi? Certified, with the reason where it is not."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from bilevel_sym import Ball, BilevelProblem
from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.graph.exact import rational, rational_vector
from bilevel_sym.system.budget import Deadline, Effort, scale_of
from bilevel_sym.system.memory import Memory, bytes_of
from verify.points.classification import SecondOrder, second_order
from verify.testkit.candidate import real_array
from verify.testkit.reference import require_references
from verify.verdict import Bracket, CheckResult, Verdict

__all__ = ["check_local_minimum"]

LABEL = "def:local-min"
EFFORT, RTOL = 0.8, 0.2  # to certify rho_phi over the box; its square root is what counts
SHOWN = 8  # digits of a number, all of them proved
SHOWN_AS_ZERO = 1e-300  # a ball around zero that is smaller
UNKNOWN = Bracket(0.0, math.inf)


def check_local_minimum(
    x: object,
    problem: BilevelProblem,
    *,
    eps: object,
    rho_phi: object = None,
    effort: Effort = "default",
    seconds: float | None = None,
    memory: Memory = "2GB",
) -> CheckResult:
    """Is x an eps-local minimum: |grad Phi| <= eps, and no eigenvalue of Hess Phi below -sqrt(rho_phi eps)?

    - ``x``: numbers in order or by name, an array or tensor of any library, or something with such an ``x`` (a
      Solution). Of several points, (S, d), the worst is reported.
    - ``problem``: the problem.
    - ``eps``: the accuracy.
    - ``rho_phi``: the Lipschitz constant of Hess Phi; certified over the problem's box where it matters and is not
      given.
    - ``effort``: how much that certificate may take: "quick", "default", "thorough", or a multiple of the default.
    - ``seconds``: a limit of time; where it passes before all points are looked at, nothing holds, and the result says
      what was left out.
    - ``memory``: "2GB", "500 MB" or bytes; a certificate that does not fit is refused before it is begun (TooLarge).

    Paper: Definition 1.1 [def:local-min]

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x1*y - x2**2", "y**2/2 - x1*y", "x1 x2", "y")  # Phi = x1^2 - x2^2
    >>> result = check_local_minimum([1e-3, 0.0], problem, eps=0.01, rho_phi=1)
    >>> print(result.verdict, result.measured, result.bound)
    VIOLATED 2.0 0.1
    >>> print(result.message)
    not an eps-local minimum: a saddle
      at x1 = 0.001, x2 = 0
      the smallest eigenvalue of Hess Phi is -2, but -sqrt(rho_phi eps) = -0.1 is the least allowed
      the direction (0, 1) has curvature -2: perturb and go on
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"check_local_minimum wants a problem second, but was given a {type(problem).__name__}")
    exact = problem.mean
    points = _points(x, exact)
    accuracy = rational(eps, "eps")
    if accuracy <= 0:
        raise InvalidArgument(f"eps must be positive, but is {accuracy}", hint="eps=1e-3")
    given = None if rho_phi is None else rational(rho_phi, "rho_phi")
    if given is not None and given < 0:
        raise InvalidArgument(f"rho_phi bounds a norm and must not be negative, but is {given}")
    room = bytes_of(memory)
    require_references(exact.d, exact.n, len(points), room)
    judgements = _judgements(exact, points, accuracy, given, scale_of(effort), Deadline(seconds), room)
    gravest = max(judgement.rank[0] for judgement in judgements)
    alike = [judgement for judgement in judgements if judgement.rank[0] == gravest]
    return alike[first_largest([judgement.rank[1] for judgement in alike])].result(len(points))


@dataclass(frozen=True)
class _Judgement:
    """What is known of one point: both conditions, or why there is no certificate."""

    problem: BilevelProblem
    row: int | None
    x: tuple[sp.Rational, ...]
    eps: float
    found: SecondOrder | None
    reason: str = ""
    why: str = "there is no certificate here"

    @property
    def rank(self) -> tuple[int, float]:
        """Violated before undecided before held; then how far."""
        measured, bound = self.numbers
        order = (Verdict.HOLDS, Verdict.INCONCLUSIVE, Verdict.VIOLATED).index(self.verdict)
        return order, math.inf if measured is None or bound == 0 else measured / bound  # type: ignore[operator]

    @property
    def verdict(self) -> Verdict:
        holds = None if self.found is None else self.found.holds
        return Verdict.INCONCLUSIVE if holds is None else Verdict.HOLDS if holds else Verdict.VIOLATED

    @property
    def allowed(self) -> float:
        """sqrt(rho_phi eps), at most; infinite where rho_phi is not known."""
        known = None if self.found is None else self.found.rho_phi
        return math.inf if known is None else math.sqrt(known.upper * self.eps)

    @property
    def numbers(self) -> tuple[float | None, float | None]:
        """What was measured against what bound: of the two conditions, the one that decides."""
        if self.found is None:
            return None, None
        slope, least = (float(self.found.grad_norm), self.eps), (-float(self.found.least), self.allowed)
        if not math.isfinite(self.allowed):  # rho_phi did not matter
            return slope
        if self.found.convex is False or self.allowed == 0:
            return least
        return max(slope, least, key=lambda pair: pair[0] / pair[1])

    def result(self, count: int) -> CheckResult:
        measured, bound = self.numbers
        names = [s.name for s in self.problem.x_entries]
        return CheckResult(
            label=LABEL, verdict=self.verdict, message="\n  ".join(self._lines(count)), measured=measured, bound=bound,
            evidence=None if self.found is None else "certified", n_points=count,
            worst_point=dict(zip(names, map(float, self.x), strict=True)),
        )  # fmt: skip

    def _lines(self, count: int) -> list[str]:
        where = f"at {_named(self.problem, self.x)}"
        if self.row is not None:
            where = f"point {self.row} of {count} is the worst: {where.removeprefix('at ')}"
        if self.found is None:
            return [f"undecided: {self.why}", where, self.reason]
        if self.found.flat is False:
            return ["not an eps-local minimum: not stationary", where, *_slope(self.found, self.eps)]
        if self.found.convex is False:
            return [f"not an eps-local minimum: {_kind(self.found)}", where, *_curvature(self.found, self.allowed)]
        if self.found.holds:
            return ["an eps-local minimum", where, *_proved(self.found, self.eps, self.allowed)]
        return ["undecided", where, *self._doubt(self.found)]

    def _doubt(self, found: SecondOrder) -> list[str]:
        if found.flat is None:
            return [f"|grad Phi| = {found.grad_norm:.20} cannot be told from eps = {self.eps:.6g}"]
        known = found.rho_phi
        if known is None or known == UNKNOWN:
            no_box = self.problem.box is None
            why = "the problem has no box to certify it over" if no_box else "it could not be certified over the box"
            said = f"everything depends on rho_phi, but {why}"
        else:
            said = f"rho_phi is only known to lie in {known}, so -sqrt(rho_phi eps) may lie on either side"
        return [
            f"the smallest eigenvalue of Hess Phi is {_shown(found.least)}, along {_direction(found)}", said,
            "try: rho_phi=..., a Lipschitz constant of Hess Phi, or a (smaller) box for the problem",
        ]  # fmt: skip


def _judgements(
    problem: BilevelProblem,
    points: Sequence[tuple[sp.Rational, ...]],
    eps: sp.Rational,
    given: sp.Rational | None,
    effort: float,
    deadline: Deadline,
    memory: int,
) -> list[_Judgement]:
    """Every point, until the deadline; rho_phi is certified once, for the first that needs it."""
    known: sp.Rational | Bracket | None = given
    judgements = []
    for k, x in enumerate(points):
        row = k if len(points) > 1 else None
        if deadline.passed:
            left_out = f"left out: {len(points) - k} of {len(points)} points"
            judgements.append(_Judgement(problem, row, x, float(eps), None, left_out, "cut by time"))
            break
        try:
            found = second_order(problem, x, eps, known, effort=EFFORT * effort, rtol=RTOL, memory=memory)
        except BilevelError as error:
            judgements.append(_Judgement(problem, row, x, float(eps), None, error.message))
            continue
        if known is None and found.flat is not False and not found.convex:
            known = found.rho_phi or UNKNOWN
        elif known is None and found.rho_phi is not None:
            known = found.rho_phi
        judgements.append(_Judgement(problem, row, x, float(eps), found))
    return judgements


# ---- what is said --------------------------------------------------------------------------------------------------


def _slope(found: SecondOrder, eps: float) -> list[str]:
    """The first condition fails: by how much, and how far away that may be."""
    lines = [f"|grad Phi| = {_shown(found.grad_norm)}, but eps = {eps:.6g} is the most allowed"]
    eigenvalues = np.linalg.eigvalsh(_hessian(found))
    size = float(np.abs(eigenvalues).max())
    ratio = float(eigenvalues[0]) / size if size else 0.0
    if ratio > 0:
        falls = -math.log1p(-min(ratio, 1 - 1e-16))
        steps = math.ceil(math.log(float(found.grad_norm) / eps) / falls)
        lines.append(
            f"about {max(1, steps)} more steps of size 1/|Hess Phi| = {1 / size:.3g}, if Phi goes on like this"
        )
    elif size:
        lines.append(f"Phi is not convex here (smallest eigenvalue {_shown(found.least)}): go on descending")
    return lines


def _curvature(found: SecondOrder, allowed: float) -> list[str]:
    return [
        f"the smallest eigenvalue of Hess Phi is {_shown(found.least)}, but -sqrt(rho_phi eps) = {-allowed:.6g} "
        "is the least allowed",
        f"the direction {_direction(found)} has curvature {float(found.least):.3g}: perturb and go on",
    ]


def _proved(found: SecondOrder, eps: float, allowed: float) -> list[str]:
    lines = [f"|grad Phi| = {_shown(found.grad_norm)} against eps = {eps:.6g}"]
    floor = "0" if not math.isfinite(allowed) else f"-sqrt(rho_phi eps) = {-allowed:.6g}"
    return [*lines, f"the smallest eigenvalue of Hess Phi is {_shown(found.least)} against {floor}"]


def _kind(found: SecondOrder) -> str:
    return "a saddle" if np.linalg.eigvalsh(_hessian(found))[-1] > 0 else "Phi falls in every direction"


def _shown(ball: Ball) -> str:
    """Its certain digits; what is proved to be below everything in float64 is 0."""
    return "0" if ball.value.contains(0) and ball.rad < SHOWN_AS_ZERO else f"{ball:.{SHOWN}}"


def _hessian(found: SecondOrder) -> Any:
    return np.array([[float(ball) for ball in row] for row in found.certificate.hess_phi])


def _direction(found: SecondOrder) -> str:
    """The eigenvector of the smallest eigenvalue, its largest entry positive."""
    vector = np.linalg.eigh(_hessian(found))[1][:, 0]
    vector = vector * np.sign(vector[first_largest(np.abs(vector))])
    return "(" + ", ".join(f"{0.0 if abs(entry) < 1e-12 else entry:.4g}" for entry in vector) + ")"


def _named(problem: BilevelProblem, x: Sequence[sp.Rational]) -> str:
    return ", ".join(f"{s.name} = {float(value):.10g}" for s, value in zip(problem.x_entries, x, strict=True))


# ---- what may be given ---------------------------------------------------------------------------------------------


def _points(x: Any, problem: BilevelProblem) -> list[tuple[sp.Rational, ...]]:
    """One point or several, as exact numbers."""
    names = [s.name for s in problem.x_entries]
    if isinstance(x, Mapping) and set(x) == set(names) and not any(np.ndim(value) for value in x.values()):
        return [rational_vector([_scalar(x[name]) for name in names], "x")]
    if hasattr(x, "x"):
        x = x.x
    elif isinstance(x, Mapping):
        if "x" not in x:
            raise InvalidArgument(f"x gives {', '.join(map(str, x))}, but the variables are {', '.join(names)}")
        x = x["x"]
    rows = _rows(x, problem)
    if not rows:
        raise InvalidArgument("x holds no point", hint=f"{problem.d} numbers, or rows of them")
    for row in rows:
        if len(row) != problem.d:
            raise InvalidArgument(
                f"x has {len(row)} numbers, but the problem has {problem.d} variables: {', '.join(names)}"
            )
    return rows


def _rows(x: Any, problem: BilevelProblem) -> list[tuple[sp.Rational, ...]]:
    scalar = isinstance(x, (str, bytes, set, frozenset)) or not isinstance(x, Iterable) or getattr(x, "ndim", 1) == 0
    if scalar:
        raise InvalidArgument(
            f"x is {x!r:.40}, but a point of {problem.d} numbers is expected", hint='such as [0.5, "1/3"]'
        )
    if isinstance(x, (list, tuple)) and not any(np.ndim(entry) for entry in x):
        return [rational_vector([_scalar(entry) for entry in x], "x")]  # may hold text and fractions
    table, _ = real_array(x, "x")
    if table.ndim not in (1, 2):
        raise InvalidArgument(f"x has shape {table.shape}, but ({problem.d},) or (S, {problem.d}) is expected")
    rows = np.atleast_2d(table)
    return [rational_vector(row.tolist(), "x" if table.ndim == 1 else f"x[{k}]") for k, row in enumerate(rows)]


def _scalar(value: Any) -> Any:
    """A zero-dimensional array or tensor is the number in it."""
    return value.item() if callable(getattr(value, "item", None)) else value
