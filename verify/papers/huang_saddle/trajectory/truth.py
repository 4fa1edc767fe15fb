"""The exact y*, v*, Phi and grad Phi beside the iterates of a run: at all of them, or at so many as effort says."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property

import numpy as np

from bilevel_sym import Box, Constants, Kernels, MinimaxConstants
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.implicit.engine import in_halves
from bilevel_sym.system.budget import Budget, Deadline
from bilevel_sym.system.memory import DEFAULT, parts
from bilevel_sym.typing import FLOAT64_EPS, Bools, Floats, Indices
from verify.enclosures.block_norm import ExactBox
from verify.enclosures.branch_and_bound import SECOND, maximise
from verify.enclosures.phi_boxes import PhiBoxes
from verify.enclosures.phi_norms import HessNorm
from verify.papers.huang_saddle.measures.regions import Region, lower_levels
from verify.papers.huang_saddle.measures.runs import v_stars
from verify.papers.huang_saddle.trajectory.record import Record
from verify.regularity.certified import CertifiedConstants
from verify.regularity.phi_smoothness import ZERO_DERIVATIVE, Smoothness
from verify.study import Study
from verify.testkit.sample_points import x_ends
from verify.verdict import Bracket

EFFORT, L_PHI_WORK = 0.15, 0.7 * SECOND  # of a study of the hull; and for L_phi
L_PHI_RTOL = 0.02  # to which L_phi is certified, if that takes no longer
TRIED_ITERATES = 64  # iterates at which constants that were given are tried
MOST_ITERATES, CHUNK_ITERATES = 20_000, 2048  # looked at by default, and at once
HULL_MARGIN = 1e-6  # by which the hull of a run is widened, relatively
Given = Constants | MinimaxConstants | CertifiedConstants | Smoothness


@dataclass(frozen=True, eq=False)
class Truth:
    """Exact values at the iterates that were looked at, in float64; nan at the others. Arrays are (S, K+1, ...).

    ``floor`` is about how far float64 may have moved grad Phi, ``noise`` how far Phi.
    """

    record: Record
    looked: Bools
    y_star: Floats
    v_star: Floats
    phi: Floats
    grad_phi: Floats
    floor: Floats
    noise: Floats
    condition: Floats
    given: Given | None = None
    effort: float = 1.0
    deadline: Deadline = field(default_factory=Deadline)
    memory: int = DEFAULT

    @property
    def kernels(self) -> Kernels:
        """Of the deterministic problem."""
        return self.record.problem.kernels

    @cached_property
    def known(self) -> Bools:
        """Where the exact values are known."""
        return np.asarray(np.isfinite(self.grad_phi).all(axis=-1) & np.isfinite(self.phi))

    @property
    def complete(self) -> bool:
        """Whether every iterate was looked at."""
        return bool((self.looked | ~self.record.exists).all())

    @cached_property
    def error(self) -> Floats:
        """|grad_phi_hat - grad Phi|, (S, K+1); nan where one of them is not known."""
        if self.record.grad_phi_hat is None:
            return np.full(self.looked.shape, np.nan)
        return np.asarray(np.linalg.norm(self.record.grad_phi_hat - self.grad_phi, axis=-1))

    @property
    def remark(self) -> str:
        """How many iterates were looked at, where it is not all of them."""
        seen, total = int(self.known.sum()), int(self.record.exists.sum())
        return "" if seen == total else f"{seen} of {total} iterates were looked at"

    # ---- the region --------------------------------------------------------------------------------------------------

    @cached_property
    def inside(self) -> Bools:
        """Which iterates lie in the problem's box, if it has one, (S, K+1)."""
        if self.record.problem.box is None:
            return self.record.finite
        low, high = x_ends(self.record.problem)
        return np.asarray(self.record.finite & ((self.record.x >= low) & (self.record.x <= high)).all(-1))

    @property
    def left(self) -> str:
        """Where the run first left the box, in words."""
        out = self.record.finite & ~self.inside
        if not out.any():
            return ""
        s, k = min(np.argwhere(out).tolist(), key=lambda place: place[1])
        return f"{int(out.sum())} iterates are outside the problem's box, the first at {self.record.place(s, k)}"

    @cached_property
    def study(self) -> Study:
        """The problem over the smallest box that holds the run: statements about a box hold over its parts."""
        use = self.known & self.inside
        if not use.any():
            raise BilevelError(self.left or "no iterate has exact values beside it")
        low, high = _hull(self.record.x[use & np.isfinite(self.record.x).all(-1)], 0.0)
        reach = np.zeros(use.shape)
        if self.record.y is not None:
            warm = np.concatenate([self.record.y[:, :1], self.record.y[:, :-1]], axis=1)
            for y in (warm, self.record.y, *(() if self.record.y_0 is None else (self.record.y_0[:, None],))):
                reach = np.fmax(reach, np.linalg.norm(y - self.y_star, axis=-1))
        # descent with steps of at most 1/ell never moves away from y*, so that it stays in these balls
        y_low, y_high = _hull(self.y_star[use], np.where(np.isfinite(reach), reach, 0.0)[use][:, None])
        symbols = (*self.record.problem.x_entries, *self.record.problem.y_entries)
        ends = zip(np.concatenate([low, y_low]).tolist(), np.concatenate([high, y_high]).tolist(), strict=True)
        box = Box(dict(zip((s.name for s in symbols), ends, strict=True)))
        return Study(self.record.problem, box, 0, EFFORT, memory=self.memory)

    @cached_property
    def L_phi(self) -> tuple[Bracket, str]:
        """What is known of the Lipschitz constant of grad Phi, and from where."""
        if isinstance(self.given, Smoothness):
            return self.given.L_phi, "certified, given"
        if isinstance(self.given, CertifiedConstants):
            value = float(self.given.valid.L_phi())
            return Bracket(0.0, value), "by the formula from the certified constants given"
        if self.given is not None:
            return Bracket(0.0, float(self.given.L_phi())), "by the formula from the constants given"
        hull = ExactBox(self.study.x_box)
        found = maximise(
            HessNorm(PhiBoxes(self.record.problem)), hull.lower, hull.upper, budget=Budget(L_PHI_WORK),
            rtol=L_PHI_RTOL, floor=ZERO_DERIVATIVE, inside=hull.inside,
        )  # fmt: skip
        return Bracket(max(0.0, found.bracket.lower), found.bracket.upper), "certified over the hull of the run"

    @cached_property
    def region(self) -> tuple[Region, str]:
        """The hull of the run with constants: those given, or certified ones."""
        study, d = self.study, self.record.problem.d
        if isinstance(self.given, Constants):
            c, origin = self.given, "the constants given"
        elif isinstance(self.given, MinimaxConstants):
            # nu does not enter the errors; rho M only where v* does, which GDmax has not
            c, origin = Constants(self.given.mu, self.given.ell, self.given.rho, 0, 0), "the constants given"
        elif isinstance(self.given, CertifiedConstants):
            c, origin = self.given.valid, "the certified constants given"
        else:
            c, origin = study.constants.valid, "constants certified over the hull of the run"
        floats = Constants(*(float(getattr(c, name)) for name in ("mu", "ell", "rho", "nu", "M")))
        ends = np.array([[float(low), float(high)] for low, high in study.box])
        return Region(ends[:, 0], ends[:, 1], d, floats, "the hull of the run"), origin

    @cached_property
    def doubt(self) -> str:
        """Why constants that were given cannot be relied upon: the run contradicts them. Empty if it does not."""
        if not isinstance(self.given, (Constants, MinimaxConstants)):
            return ""
        use = self.known & self.inside
        x, y = self.record.x[use][:TRIED_ITERATES], self.y_star[use][:TRIED_ITERATES]
        values = np.linalg.eigvalsh(self.kernels.g_yy(x, y))
        seen = {"mu": float(values.min()), "ell": float(values.max())}
        room = 1e-9 * seen["ell"]
        if seen["mu"] < float(self.given.mu) - room or seen["ell"] > float(self.given.ell) + room:
            ends = f"{seen['mu']:.4g} to {seen['ell']:.4g}"
            return f"the constants given do not hold along the run: g_yy has eigenvalues from {ends}"
        if isinstance(self.given, Constants):
            steep = max(float(np.linalg.norm(f(x, y), axis=-1).max()) for f in (self.kernels.f_x, self.kernels.f_y))
            if steep > float(self.given.M) * (1 + 1e-9):
                return f"the constants given do not hold along the run: |f_x| or |f_y| reaches {steep:.4g} > M"
        return ""


def given_of(constants: object) -> Given | None:
    """What may be passed as ``constants``.

    >>> given_of(3)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: constants=3
    try: Constants(mu, ell, rho, nu, M), verify.constants(problem) or verify.smoothness(problem)
    """
    if constants is None or isinstance(constants, Given):
        return constants
    raise InvalidArgument(
        f"constants={constants!r:.60}",
        hint="Constants(mu, ell, rho, nu, M), verify.constants(problem) or verify.smoothness(problem)",
    )


def truth_of(
    record: Record,
    given: Given | None = None,
    *,
    effort: float = 1.0,
    deadline: Deadline | None = None,
    memory: int = DEFAULT,
) -> Truth:
    """The exact values at iterates of a run: around perturbations, and spread evenly.

    - ``record``: the run.
    - ``given``: constants, where the user gave some.
    - ``effort``: a multiple of 20 000 iterates.
    - ``deadline``: where it passes, the rest is left out, and ``deadline.cut`` says so.
    - ``memory``: bytes.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.papers.huang_saddle.trajectory.record import record_of
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> truth_of(record_of({"x": [[1.0], [0.5]]}, problem)).grad_phi.tolist()
    [[[2.0], [1.0]]]
    """
    d, n = record.problem.d, record.problem.n
    shape = record.x.shape[:2]
    widths = {"y_star": n, "v_star": n, "phi": None, "grad_phi": d, "floor": None, "noise": None, "condition": None}
    tables = {name: np.full(shape if w is None else (*shape, w), np.nan) for name, w in widths.items()}
    order, most = _order(record), max(4 * TRIED_ITERATES, int(MOST_ITERATES * effort))
    first, rest = order[:TRIED_ITERATES], order[TRIED_ITERATES:]
    if len(rest) > most:
        rest = _spread(record, rest, most)
    _fill(record, tables, first)
    for few in parts(len(rest), CHUNK_ITERATES):
        if deadline is not None and deadline.passed:
            break
        _fill(record, tables, rest[few])
    looked = np.isfinite(tables["y_star"]).all(axis=-1)
    return Truth(record, looked, **tables, given=given, effort=effort, deadline=deadline or Deadline(), memory=memory)


def _order(record: Record) -> Floats:
    """All finite iterates, (s, k): those around perturbations and the ends first."""
    where = record.finite
    urgent = np.zeros_like(where)
    urgent[:, :2] = True
    urgent[np.arange(len(urgent)), record.length - 1] = True
    if record.perturbed is not None:
        for shift in range(3):
            urgent[:, shift:] |= record.perturbed[:, : record.perturbed.shape[1] - shift]
    return np.concatenate([np.argwhere(where & urgent), np.argwhere(where & ~urgent)])


def _spread(record: Record, rest: Floats, count: int) -> Floats:
    """Evenly spread pairs of neighbours."""
    first = rest[np.linspace(0, len(rest) - 1, count // 2).astype(np.int64)]
    second = first + np.array([0, 1])
    second = second[second[:, 1] < record.x.shape[1]]
    both = np.unique(np.concatenate([first, second]), axis=0)
    return np.asarray(both[record.finite[both[:, 0], both[:, 1]]])


def _fill(record: Record, tables: dict[str, Floats], where: Floats) -> None:
    if not len(where):
        return
    kernels = record.problem.kernels
    s, k = where[:, 0], where[:, 1]
    x = record.x[s, k]
    with np.errstate(all="ignore"):
        y = lower_levels(kernels, x)
    good = np.isfinite(y).all(axis=-1)
    s, k, x, y = s[good], k[good], x[good], y[good]
    if not len(x):
        return
    with np.errstate(all="ignore"):
        values = _values(kernels, x, y, record.unit)
    for name, value in values.items():
        tables[name][s, k] = value


def _values(kernels: Kernels, x: Floats, y: Floats, unit: float) -> dict[str, Floats]:
    """Everything at rows of x and y*; floors are a thousand roundings times the condition, as for a candidate."""
    n, d = y.shape[1], x.shape[1]
    grad = _rows(lambda at, start: kernels.grad_phi(at, y0=start), x, y, d)
    phi = _rows(lambda at, start: kernels.phi(at, y0=start)[:, None], x, y, 1)[:, 0]
    f_x, f_y = (_rows(f, x, y, width) for f, width in ((kernels.f_x, d), (kernels.f_y, n)))
    matrix = kernels.g_yy(x, y)
    eigenvalues = np.linalg.eigvalsh(np.where(np.isfinite(matrix), matrix, 0.0))
    condition = eigenvalues[:, -1] / np.maximum(eigenvalues[:, 0], 1e-300)
    v = v_stars(kernels, x, y)
    cross = np.linalg.norm(kernels.g_xy(x, y), axis=(-2, -1))
    size_x, size_y = np.linalg.norm(x, axis=-1), np.linalg.norm(y, axis=-1)
    mixed = np.linalg.norm(kernels.f_xy(x, y), axis=(-2, -1))
    moved = condition * size_y + cross * size_x / np.maximum(eigenvalues[:, 0], 1e-300)
    solved = np.linalg.norm(f_x, axis=-1) + condition * cross * np.linalg.norm(v, axis=-1)
    terms = np.abs(phi) + (np.abs(f_x) * np.abs(x)).sum(axis=-1) + (np.abs(f_y) * np.abs(y)).sum(axis=-1)
    return {
        "y_star": y, "v_star": v, "phi": phi, "grad_phi": grad, "condition": condition,
        "floor": 1e3 * max(unit, FLOAT64_EPS) * (solved + (mixed + cross) * moved), "noise": 32 * FLOAT64_EPS * terms,
    }  # fmt: skip


def _rows(function: Callable[[Floats, Floats], Floats], x: Floats, y: Floats, width: int) -> Floats:
    """A kernel at all rows; nan at those where it fails."""
    found = np.full((len(x), width), np.nan)

    def attempt(rows: Indices) -> None:
        found[rows] = function(x[rows], y[rows])

    in_halves(np.arange(len(x)), attempt, BilevelError)
    return found


def _hull(rows: Floats, radius: Floats | float) -> tuple[Floats, Floats]:
    """The ends of the smallest box around the balls, a little widened."""
    low, high = (rows - radius).min(axis=0), (rows + radius).max(axis=0)
    room = HULL_MARGIN * (high - low) + 1e-9 * np.maximum(np.abs(low), np.abs(high)) + 1e-12
    return low - room, high + room
