"""Certified constants: mu, ell, rho, nu and M of Assumption 2.1 over a box, each as a proved bracket.

Paper: Assumption 2.1 [assu:bilevel]
"""

from __future__ import annotations

import math
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from types import MappingProxyType
from typing import get_args

import numpy as np

from bilevel_sym import BilevelProblem, Box, Constants, StochasticProblem
from bilevel_sym.arithmetic.pieces.patterns import needed_by
from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.errors import AssumptionViolated, CertificateFailure, InvalidArgument
from bilevel_sym.implicit.model import Model
from bilevel_sym.system.budget import Budget, Deadline, Effort, Stopwatch, deadline_of, scale_of
from bilevel_sym.system.memory import Memory, bytes_of
from bilevel_sym.theories import Reading
from bilevel_sym.typing import Floats
from verify.enclosures.block_norm import BlockNorm, Curvature, ExactBox
from verify.enclosures.branch_and_bound import SECOND, Maximum, maximise
from verify.enclosures.cover import Cover, requested_box
from verify.enclosures.memory import require_size, vanishes
from verify.enclosures.pieces import Piece, pieces_of
from verify.verdict import Bracket

__all__ = ["BLOCKS", "DEFAULT_WORK", "CertifiedConstants", "Proof", "Reading", "constants", "instances", "objective_of"]

BLOCKS: Mapping[Reading, Mapping[str, tuple[str, ...]]] = MappingProxyType(
    {
        "block": MappingProxyType(
            {
                "mu": ("g_yy",),
                "M": ("f_x", "f_y"),
                "g_y": ("g_y",),
                "ell": ("f_xx", "f_xy", "f_yy", "g_xx", "g_xy", "g_yy"),
                "rho": ("f_xxx", "f_xxy", "f_xyy", "f_yyy", "g_xxy", "g_xyy", "g_yyy"),
                "nu": ("g_xxxy", "g_xxyy", "g_xyyy", "g_yyyy"),
            }
        ),
        "joint": MappingProxyType(
            {
                "mu": ("g_yy",),
                "M": ("f_z",),
                "g_y": ("g_y",),
                "ell": ("f_zz", "g_zz"),
                "rho": ("f_zzz", "g_zzy"),
                "nu": ("g_zzzy",),
            }
        ),
    }
)
"""What each constant bounds: blocks of derivatives, by their axes; z is (x, y).

Lipschitz constants of second derivatives are norms of third ones. Of g only derivatives of grad_y g are asked for
beyond the second order, as the assumption does: never g_xxx.
"""

TABLE = ("mu", "ell", "rho", "nu", "M", "g_y")
Point = Mapping[str, float]
DEFAULT_WORK = 10 * SECOND  # of a search


@dataclass(frozen=True, eq=False)
class Proof:
    """One block of one instance: its bracket, where the lower end is attained, and the cover that proves the upper.

    Of mu it is the bracket of -mu. ``piece``: the variables of the part of the block that is meant, where it has parts.
    """

    constant: str
    block: str
    row: int
    bracket: Bracket
    point: Floats | None
    cover: Cover
    piece: Piece | None = None


@dataclass(frozen=True, eq=False)
class CertifiedConstants:
    """Brackets of mu, ell, rho, nu and M over a box, proved; "g_y" is the largest norm of grad_y g, apart.

    ``lower`` and ``upper`` hold the lower and the upper ends of all. ``valid`` is what a theorem needs: mu from below
    and the rest from above, so that Assumption 2.1 holds with it. ``points`` are where the ends near the extreme values
    are attained. ``rtol_reached`` is how wide the widest bracket is, relatively.

    - ``problem``: the problem.
    - ``box``: in (x, y), over which they are proved; of an array problem by array, and None where all are free.
    - ``reading``: "block" or "joint".
    - ``proofs``: the bracket of each block with its cover.
    - ``seconds``: how long it took.
    - ``cut``: time, and not the effort, ended the search: the brackets are true, and might be narrower.
    - ``reasons``: why a constant has no upper end, by name, where variables of an array problem are free.

    Paper: Assumption 2.1 [assu:bilevel]

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x*y", "y**2 - sin(x)*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    >>> print(constants(problem))
    constants over x in [-1, 1], y in [-1, 1], reading "block"
      mu   [2, 2]
      ell  [2, 2]
      rho  [0.841471, 0.841471]
      nu   [1, 1]
      M    [1, 1]
      g_y  [2.84147, 2.84147]
    """

    problem: BilevelProblem
    box: Box | None
    reading: Reading
    proofs: tuple[Proof, ...]
    seconds: float
    cut: bool = False
    reasons: Mapping[str, str] = field(default_factory=dict)

    def __post_init__(self) -> None:
        brackets = {name: self._bracket(name) for name in TABLE}
        # mu <= ell, whatever is known of each
        mu, ell = brackets["mu"], brackets["ell"]
        brackets["ell"] = Bracket(max(ell.lower, mu.lower), max(ell.upper, mu.lower))
        brackets["mu"] = Bracket(mu.lower, max(mu.lower, min(mu.upper, ell.upper)))
        object.__setattr__(self, "_brackets", MappingProxyType(brackets))

    def _bracket(self, name: str) -> Bracket:
        found = [proof.bracket for proof in self.proofs if proof.constant == name]
        lower, upper = max(b.lower for b in found), max(b.upper for b in found)
        return Bracket(-upper, -lower) if name == "mu" else Bracket(max(lower, 0.0), upper)

    @property
    def brackets(self) -> Mapping[str, Bracket]:
        """The bracket of each constant."""
        brackets: Mapping[str, Bracket] = self.__dict__["_brackets"]
        return brackets

    @property
    def points(self) -> Mapping[str, Point]:
        """Where each constant is nearly attained: the end that is a value at a point (of mu the upper one)."""
        points = {}
        for name in TABLE:
            own = [proof for proof in self.proofs if proof.constant == name]
            best = own[first_largest([proof.bracket.lower for proof in own])]
            if best.point is not None:
                points[name] = dict(zip(self._names, best.point.tolist(), strict=True))
        return MappingProxyType(points)

    @cached_property
    def _names(self) -> list[str]:
        if self.problem.is_array:
            return [symbol.name for symbol in (*self.problem.x_entries, *self.problem.y_entries)]
        return [] if self.box is None else list(self.box.names or ())

    def _constants(self, ends: Mapping[str, float]) -> Constants:
        values = {name: ends[name] for name in ("mu", "ell", "rho", "nu", "M")}
        return Constants(**values, reading=self.reading)

    @property
    def lower(self) -> Constants:
        """All lower ends."""
        return self._constants({name: bracket.lower for name, bracket in self.brackets.items()})

    @property
    def upper(self) -> Constants:
        """All upper ends."""
        return self._constants({name: bracket.upper for name, bracket in self.brackets.items()})

    @property
    def valid(self) -> Constants:
        """Constants with which Assumption 2.1 certainly holds over the box."""
        ends = {name: bracket.upper for name, bracket in self.brackets.items()}
        return self._constants(ends | {"mu": self.brackets["mu"].lower})

    @property
    def rtol_reached(self) -> float:
        """The relative width of the widest bracket; one that ends at rounding errors of zero has none."""
        return max(_width(bracket) for bracket in self.brackets.values())

    def save(self, path: str | os.PathLike[str], *, progress: bool = False) -> None:
        """Write the brackets as a JSON file that ``recheck`` proves again without search.

        Those of an array problem follow from its structure, and not from a cover of a box: no file holds them.
        """
        if any(proof.piece for proof in self.proofs):
            raise InvalidArgument(
                "constants of blocks that are bounded piece by piece cannot be saved",
                hint="the constants of one part of the variables, with the others as parameters",
            )
        if self.problem.is_array:
            raise InvalidArgument(
                "constants that follow from the structure of an array problem cannot be saved",
                hint="constants(problem.lowered(), box).save(path), where it is small",
            )
        from verify.certificates.saving import save_constants

        save_constants(self, path, progress)

    def __str__(self) -> str:
        ends = {} if self.box is None else dict(self.box.items())
        bounded = [f"{name} in [{low}, {high}]" for name, (low, high) in ends.items()]
        free = [f"all {s.name}" for s in (*self.problem.x, *self.problem.y) if s.name not in ends]
        where = ", ".join([*bounded, *(free if self.problem.is_array else ())])
        lines = [f'constants over {where}, reading "{self.reading}"{", cut by time" if self.cut else ""}']
        rows = (f"  {name:<4} {self.brackets[name]}" for name in TABLE)
        return "\n".join([*lines, *rows, *(f"{name}: {reason}" for name, reason in self.reasons.items())])

    def __repr__(self) -> str:
        shown = ", ".join(f"{name}={self.brackets[name]}" for name in TABLE)
        return f"CertifiedConstants({shown}, reading={self.reading!r}{', cut by time' if self.cut else ''})"


def constants(
    problem: BilevelProblem,
    box: Box | None = None,
    *,
    reading: Reading = "block",
    effort: Effort = "default",
    seconds: float | Deadline | None = None,
    rtol: float = 0.01,
    memory: Memory = "2GB",
    progress: bool = False,
) -> CertifiedConstants:
    """Certified constants of Assumption 2.1 over a box in (x, y), by default the problem's own.

    Of a stochastic problem every row is meant, as Section 4 assumes. The brackets are true in any case, an interrupt
    included, and the same effort gives the same brackets on a slow or busy machine.

    - ``problem``: the problem.
    - ``box``: where it is one of x alone, y runs over a proved enclosure of y*(x). Of an array problem by array;
      without one its variables are free, and constants that are infinite then say so.
    - ``reading``: "block" bounds each block of partial derivatives on its own, as the proofs use it; "joint" the
      derivatives in (x, y) together.
    - ``effort``: "quick", "default", "thorough", or a multiple of the default; 0 takes one look.
    - ``seconds``: a limit of time; what it cuts says so.
    - ``rtol``: the relative width of the brackets, if the effort suffices.
    - ``memory``: "2GB", "500 MB" or bytes; what does not fit is refused before it is begun (TooLarge).
    - ``progress``: whether a terminal shows how far it is.

    Paper: Assumption 2.1 [assu:bilevel]

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x*y", "y**2/2 + y**4/12 - x*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    >>> certified = constants(problem)
    >>> print(certified.brackets["ell"], certified.points["ell"])
    [2, 2] {'x': 0.0, 'y': -1.0}
    >>> bool(0.9999 < certified.valid.mu <= 1), certified.valid.nu
    (True, 2.0)
    """
    _check(problem, reading, rtol)
    if problem.is_array:
        from verify.regularity.structure.certified import array_constants

        scale, limits = scale_of(effort), {"seconds": seconds, "rtol": rtol, "memory": memory, "progress": progress}
        return array_constants(problem, box, reading, scale, limits)
    names = {name for blocks in BLOCKS[reading].values() for name in blocks}
    rows = instances(problem)
    there = [name for name in sorted(names) if not all(_has_no_size(row.tape, name) for row in rows)]
    require_size(there, problem.d, problem.n, bytes_of(memory))
    watch, budget = Stopwatch(), Budget(scale_of(effort) * DEFAULT_WORK, deadline_of(seconds))
    region = ExactBox(_box_of(problem, box))
    low, high = (end[: problem.d] for end in region.inside)
    problem.mean.kernels.refuse_kinked_box(low, high)
    search = _Search(rows, region, reading, budget, rtol, progress)
    with np.errstate(over="ignore"):  # squares beyond float64 only spoil a guess
        proofs = tuple(search.run())
    return CertifiedConstants(problem, region.box, reading, proofs, watch.elapsed, search.cut)


def instances(problem: BilevelProblem) -> tuple[BilevelProblem, ...]:
    """The problems whose derivatives are bounded: the problem, or the rows of a stochastic one.

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> instances(problem) == (problem,)
    True
    """
    if not isinstance(problem, StochasticProblem):
        return (problem,)
    xi, zeta = dict.fromkeys(problem.xi_data), dict.fromkeys(problem.zeta_data)
    upper = [problem.F.subs(dict(zip(problem.xi, row, strict=True))) for row in xi]
    lower = [problem.G.subs(dict(zip(problem.zeta, row, strict=True))) for row in zeta]
    count = max(len(upper), len(lower))
    pairs = [(upper[min(k, len(upper) - 1)], lower[min(k, len(lower) - 1)]) for k in range(count)]
    symbolic = {name: None for name, value in problem.parameters.items() if value is None}
    return tuple(
        BilevelProblem(f, g, problem.x, problem.y, parameters=symbolic, box=problem.box)
        for f, g in dict.fromkeys(pairs)
    )


def _has_no_size(model: Model, name: str) -> bool:
    """Whether a block is zero for its structure, or falls into pieces, so that it is never made as a whole."""
    return vanishes(model, name) or bool(pieces_of(model, name))


def objective_of(
    problem: BilevelProblem, constant: str, block: str, region: ExactBox, piece: Piece | None = None
) -> BlockNorm | Curvature:
    """What is maximised for one block, or for a piece of it.

    - ``problem``: the problem.
    - ``constant``: mu, ell, rho, nu, M or g_y.
    - ``block``: one of its blocks, such as g_xy.
    - ``region``: the box in (x, y).
    - ``piece``: the variables along x and y, where not all are meant.
    """
    kind = Curvature if constant == "mu" else BlockNorm
    return kind(problem.tape if piece is None else problem.tape.restricted(piece), block, region)


def _check(problem: object, reading: object, rtol: object) -> None:
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"constants wants a problem, but was given a {type(problem).__name__}")
    if reading not in get_args(Reading):
        raise InvalidArgument(f"reading must be 'block' or 'joint', but is {reading!r}")
    if not isinstance(rtol, (int, float)) or not rtol >= 0:
        raise InvalidArgument(f"rtol must be a number, at least 0, but is {rtol!r}")


def _box_of(problem: BilevelProblem, box: Box | None) -> Box:
    chosen = requested_box(problem, box, "constants belong")
    if len(chosen) == problem.d:
        from verify.enclosures.y_enclosure import with_y_star

        return with_y_star(problem, chosen)
    return chosen


@dataclass(eq=False)
class _Task:
    """One block on its way to a proof."""

    constant: str
    block: str
    row: int
    piece: Piece | None
    objective: BlockNorm | Curvature
    found: Maximum


class _Search:
    """All blocks of all constants, within one budget."""

    def __init__(
        self,
        problems: Sequence[BilevelProblem],
        region: ExactBox,
        reading: Reading,
        budget: Budget,
        rtol: float,
        progress: bool,
    ) -> None:
        self.problems, self.region, self.reading = problems, region, reading
        self.budget, self.rtol, self.progress = budget, rtol, progress
        self.interrupted = self.cut = False

    @property
    def left(self) -> float:
        return 0.0 if self.interrupted else self.budget.left

    def run(self) -> Iterator[Proof]:
        """First a look at every block; then the blocks that are not narrow enough, the widest last."""
        constants = BLOCKS[self.reading].items()
        tasks = [task for constant, blocks in constants for task in self._look(constant, blocks)]
        for task in tasks:
            self._judge_curvature(task)
        waiting = sorted((t for t in tasks if self._open(t, tasks)), key=_difficulty)
        for k, task in enumerate(waiting):
            if self._open(task, tasks):
                # without any bound all is lost: such a block may take what is left
                share = 1 if math.isinf(task.found.bracket.upper) else len(waiting) - k
                self._improve(task, tasks, self.left / share, share)
                self._judge_curvature(task)
                _require_finite(task, self.region.box, self.problems[task.row])
        for task in tasks:
            _require_finite(task, self.region.box, self.problems[task.row])
        _require_convexity(tasks)
        return (
            Proof(t.constant, t.block, t.row, t.found.bracket, t.found.point, t.found.cover, t.piece) for t in tasks
        )

    def _look(self, constant: str, blocks: Sequence[str]) -> list[_Task]:
        """The blocks of one constant, the largest first: the others may be settled by what it is known to reach."""
        rows = [
            (row, block, piece)
            for block in blocks
            for row, problem in enumerate(self.problems)
            for piece in pieces_of(problem.tape, block) or (None,)
        ]
        objectives = [objective_of(self.problems[row], constant, block, self.region, part) for row, block, part in rows]
        bounds = [float(o.over(self.region.lower[None], self.region.upper[None])[0]) for o in objectives]
        tasks, best = [], -math.inf
        for k in sorted(range(len(rows)), key=lambda k: -bounds[k] if not math.isnan(bounds[k]) else -math.inf):
            objective, (row, block, piece) = objectives[k], rows[k]
            if not objective.active:  # one look is all it gets
                objective.aim = 0.0
            floor = best + self.rtol * abs(best) if math.isfinite(best) else best
            tasks.append(_Task(constant, block, row, piece, objective, self._maximise(objective, Budget(0), floor)))
            best = max(best, tasks[-1].found.bracket.lower)
        return tasks

    def _maximise(
        self, objective: BlockNorm | Curvature, budget: Budget, floor: float, start: Floats | None = None
    ) -> Maximum:
        found = maximise(
            objective, self.region.lower, self.region.upper, budget=budget, rtol=self.rtol, floor=floor,
            inside=self.region.inside, smear=objective.smear if objective.has_slope else None, start=start,
            progress=self.progress,
        )  # fmt: skip
        self.interrupted |= found.interrupted
        self.cut |= found.cut
        return found

    def _goal(self, task: _Task, tasks: Sequence[_Task]) -> float:
        """The bound that is good enough: that of the worst block seen of the same constant."""
        best = max(t.found.bracket.lower for t in tasks if t.constant == task.constant)
        return best + self.rtol * abs(best) if math.isfinite(best) else best

    def _open(self, task: _Task, tasks: Sequence[_Task]) -> bool:
        return bool(task.objective.active) and task.found.bracket.upper > self._goal(task, tasks)

    def _improve(self, task: _Task, tasks: Sequence[_Task], work: float, share: int) -> None:
        goal = self._goal(task, tasks)
        task.objective.aim = goal
        budget = Budget(work, self.budget.deadline.within(1 / share))
        found = self._maximise(task.objective, budget, goal, task.found.point)
        self.budget.spend(budget.spent)
        task.found = _better(task.found, found)

    def _judge_curvature(self, task: _Task) -> None:
        if task.constant == "mu" and task.found.bracket.lower >= 0 and task.found.point is not None:
            raise AssumptionViolated(
                "g is not strongly convex in y: an eigenvalue of g_yy is at most",
                label="assu:bilevel",
                point=_named(self.region.box, task.found.point),
                value=0.0 - task.found.bracket.lower,  # no negative zero
                hint="shrink the box, or mend g",
            )


def _better(old: Maximum, new: Maximum) -> Maximum:
    """The smaller upper end with its cover, and the larger lower end with its point."""
    above = new if new.bracket.upper <= old.bracket.upper else old
    below = new if new.bracket.lower >= old.bracket.lower else old
    return replace(above, bracket=Bracket(below.bracket.lower, above.bracket.upper), point=below.point)


def _difficulty(task: _Task) -> tuple[bool, bool, float]:
    """mu first, for without it nothing counts, and what has no bound at all; then by the width of what is known."""
    return task.constant != "mu", math.isfinite(task.found.bracket.upper), _width(task.found.bracket)


def _width(bracket: Bracket) -> float:
    """Relative, and safe from zero and infinity."""
    gap, size = bracket.upper - bracket.lower, max(abs(bracket.lower), 0.0)
    if gap <= 1e-140 or math.isnan(gap):
        return 0.0
    return gap / size if size > 0 else math.inf


def _named(box: Box, point: Floats) -> dict[str, float]:
    names = box.names or ()
    return {name: float(value) for name, value in zip(names, point, strict=True)}


def _require_finite(task: _Task, box: Box, problem: BilevelProblem) -> None:
    if task.found.place is None:
        return
    lower, upper = task.found.place
    ends = zip(box.names or (), lower, upper, strict=True)
    where = ", ".join(f"{name} in [{low:.9g}, {high:.9g}]" for name, low, high in ends)
    edge = _edge_in(problem, task.block, lower, upper)
    instead = next((kink.instead for kink in problem.derivation.kinks if kink.edge == edge), "a smooth function there")
    raise CertificateFailure(
        f"{task.block} has no bound that can be proved where {where}"
        + (f": {task.block[0]} has a kink there, {edge} = 0" if edge else ""),
        hint=f"a box without it; or {instead}"
        if edge
        else "if a jump, a pole or the end of a domain lies there, choose a box without it; if not, give more effort",
    )


def _edge_in(problem: BilevelProblem, block: str, lower: Floats, upper: Floats) -> str:
    """What vanishes on a kink of f or g that runs through a box in (x, y), where a block does not exist on it."""
    patterns = problem.tape.patterns
    if patterns is None:
        return ""
    places = np.flatnonzero(patterns.touched(lower[None], upper[None], needed_by((block,)))[0])
    return str(problem.tape.edge_expression(int(places[0]))) if len(places) else ""


def _require_convexity(tasks: Sequence[_Task]) -> None:
    worst = max((t for t in tasks if t.constant == "mu"), key=lambda t: t.found.bracket.upper)
    bracket = Bracket(-worst.found.bracket.upper, -worst.found.bracket.lower)
    if not bracket.lower > 0:
        raise CertificateFailure(
            f"g was not proved to be strongly convex in y over the box: its modulus mu lies in {bracket}",
            hint="give more effort, or a smaller box",
        )
