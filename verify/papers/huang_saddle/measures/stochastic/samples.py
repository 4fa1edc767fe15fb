"""Samples: the data rows of a stochastic problem as a finite distribution, with exact moments of means over batches.

Derivatives of F and G at a point are computed row by row in balls, so that expectations over batches drawn with
replacement are finite sums that enclose the truth.
"""

from __future__ import annotations

import dataclasses
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import sympy as sp
from flint import arb, arb_mat, fmpq

from bilevel_sym import BilevelProblem, Constants, StochasticProblem, evaluate
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.arithmetic.boxes import IntervalProgram
from bilevel_sym.arithmetic.intervals import PROVED, enclose
from bilevel_sym.arithmetic.scalars import ScalarProgram
from bilevel_sym.errors import BilevelError, CertificateFailure, InvalidArgument
from bilevel_sym.graph.autodiff import tangents
from bilevel_sym.graph.expressions import substitute
from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM
from bilevel_sym.graph.program import Program, build
from bilevel_sym.implicit.model import Model
from bilevel_sym.system.budget import Budget
from bilevel_sym.typing import Floats
from verify import Bracket, Study
from verify.enclosures.block_norm import ExactBox
from verify.enclosures.branch_and_bound import Maximum, maximise
from verify.enclosures.interval_matrix import Matrices

SAMPLE_BITS = 400  # a series of hundreds of products loses many
AS_GOOD_AS_ALL = 10**18  # rows in a batch whose mean is as good as exact
LARGEST_BATCH = 2**62  # rows that can be drawn
SIGMA_WORK, SIGMA_RTOL = 1e6, 0.01  # of the search for the largest variance, by default
Balls = list[Any]
SECOND_F, SECOND_G = ("f_xx", "f_xy", "f_yy"), ("g_xy", "g_yy")
THIRD_F, THIRD_G = ("f_xxx", "f_xxy", "f_xyy", "f_yyy"), ("g_xxy", "g_xyy", "g_yyy")
FOURTH_G = ("g_xxxy", "g_yxxy", "g_xxyy", "g_yxyy", "g_xyyy", "g_yyyy")
BLOCKS = MappingProxyType({"f": ("f_x", "f_y", *SECOND_F, *THIRD_F), "g": ("g_y", *SECOND_G, *THIRD_G, *FOURTH_G)})


@dataclass(frozen=True)
class Solved:
    """A point x with balls around y*(x), Phi(x) and grad Phi(x)."""

    x: Floats
    y: Balls
    phi: Any
    grad: arb_mat

    @property
    def balls(self) -> Balls:
        """x as balls, which are exact."""
        return [arb(float(value)) for value in self.x]


@dataclass(frozen=True, eq=False)
class Region:
    """A box in (x, y) around a point (x, y*), and the constants that hold for every row over it."""

    lower: Floats
    upper: Floats
    d: int
    constants: Constants

    def holds(self, y: Balls) -> bool:
        """Whether y is certainly inside."""
        return self.room(y) >= 0

    def room(self, y: Balls) -> float:
        """How far y is from the nearest side, from below; negative outside."""
        low, high = self.lower[self.d :], self.upper[self.d :]
        sides = [min(ends(b - arb(lo)).lower, ends(arb(hi) - b).lower) for b, lo, hi in zip(y, low, high, strict=True)]
        return min(sides)

    def room_x(self, x: Floats) -> float:
        """How far x is from the nearest side, up to a rounding."""
        return float(np.minimum(x - self.lower[: self.d], self.upper[: self.d] - x).min()) * (1 - 1e-15)


class Samples:
    """The rows of a problem that is being studied; made once by ``samples_of``.

    >>> from bilevel_sym import verify, zoo
    >>> samples = samples_of(verify.study_of(zoo.get("stochastic_noise").problem))
    >>> samples.sizes, round(samples.sigma.upper, 6)
    ({'f': 4, 'g': 4}, 0.1)
    """

    def __init__(self, study: Study) -> None:
        problem = study.problem
        if not isinstance(problem, StochasticProblem):
            raise InvalidArgument("only a stochastic problem has data rows")
        self.study, self.problem = study, problem
        self._tables = {"f": problem.xi_data or ((),), "g": problem.zeta_data or ((),)}
        self.sizes = {level: len(table) for level, table in self._tables.items()}

    @lru_cache(4)  # noqa: B019 - it lives as long as the samples, which are kept one at a time
    def _program(self, names: tuple[str, ...]) -> ScalarProgram:
        return self.problem.samples.in_balls(names, SAMPLE_BITS)

    def at(self, names: tuple[str, ...], x: Balls, y: Balls) -> dict[str, list[arb_mat]]:
        """Blocks of F or of G (all of one of them) at a point, one matrix a row; tensors are flattened to two axes."""
        level = names[0][0]
        program = self._program(names)
        found: dict[str, list[arb_mat]] = {name: [] for name in names}
        noisy = any(self.is_noisy(name) for name in names)
        for row in self._tables[level][: None if noisy else 1]:
            # the other function's data are not used; its first row keeps every expression defined
            data = (row, self._tables["g"][0]) if level == "f" else (self._tables["f"][0], row)
            values = program.start()
            program.put(values, 0, [*x, *y, *(arb(fmpq(int(v.p), int(v.q))) for part in data for v in part)])
            for name in names:
                shape = self.problem.samples.block(name)[0]
                rows = shape[0] if shape else 1
                entries = program.output(values, name)
                found[name].append(arb_mat(rows, len(entries) // rows, entries))
        # what the data do not enter is one and the same matrix for all rows, which ``spread`` recognises
        same = {name: [found[name][0]] * self.sizes[level] for name in names if not self.is_noisy(name)}
        return found | same

    @lru_cache(64)  # noqa: B019 - as above
    def is_noisy(self, name: str) -> bool:
        """Whether data occur in a block at all."""
        data = {*self.problem.xi, *self.problem.zeta}
        return any(not data.isdisjoint(entry.free_symbols) for entry in self.problem.samples.expressions(name))

    def solved(self, x: Floats) -> Solved:
        """Certified y*, Phi and grad Phi at x; the last ones are kept."""
        return self._solved(tuple(float(value) for value in x))

    @lru_cache(32)  # noqa: B019 - as above
    def _solved(self, x: tuple[float, ...]) -> Solved:
        certificate = evaluate(self.study.exact, x, digits=100)
        grad = arb_mat(len(x), 1, [ball.value for ball in certificate.grad_phi])
        return Solved(np.array(x), [ball.value for ball in certificate.y_star], certificate.phi.value, grad)

    def region(self, solved: Solved, x_part: float, y_part: float) -> Region | None:
        """A box around (x, y*): these parts of half the problem's box to each side, and no further than that box.

        None where strong convexity cannot be shown over it, or where y* is not inside.
        """
        low, high = self.ends
        parts = np.concatenate([np.full(self.problem.d, x_part), np.full(self.problem.n, y_part)])
        centre = np.concatenate([solved.x, [float(ball) for ball in solved.y]])
        lower = np.maximum(low, centre - parts * (high - low) / 2)
        upper = np.minimum(high, centre + parts * (high - low) / 2)
        if np.any(lower > upper):
            return None
        try:
            found = Region(lower, upper, self.problem.d, self.constants(lower, upper))
        except BilevelError:
            return None
        return found if found.holds(solved.y) and found.constants.M > 0 else None

    @cached_property
    def ends(self) -> tuple[Floats, Floats]:
        """The lower and upper ends of (x, y)."""
        pairs = list(self.study.box)
        return np.array([float(low) for low, _ in pairs]), np.array([float(high) for _, high in pairs])

    @cached_property
    def y_ends(self) -> tuple[Floats, Floats]:
        """The lower and upper ends of y."""
        low, high = self.ends
        return low[self.problem.d :], high[self.problem.d :]

    # ---- constants ------------------------------------------------------------------------------------------

    def constants(self, lower: Floats, upper: Floats, *, of_mean: bool = False) -> Constants:
        """Constants that hold for every row over a box in (x, y), by one evaluation in intervals: tight if it is small.

        mu comes from below and all others from above; sigma is that of grad G over the box. Tensors are bounded by
        the norms of matrices into which they unfold. ``of_mean``: for the mean of the rows only, which is less.

        Paper: Assumption 2.1 [assu:bilevel]; Assumption 4.3 [ass:stoc]
        """
        who = self._mean if of_mean else self
        f, g = who._over("f", lower, upper), who._over("g", lower, upper)
        mu = float(g["g_yy"].symmetric_part().smallest_eigenvalue_lower().min())
        if not mu > 0:
            raise CertificateFailure(
                f"strong convexity of every row could not be shown: the least eigenvalue is above {mu:.3g} only",
                hint="a smaller box, or a G whose every row is strongly convex in y",
            )
        found = Constants(
            mu=mu,
            ell=max(_largest(f, SECOND_F), _largest(g, SECOND_G), mu),
            rho=max(_largest(f, THIRD_F), _largest(g, THIRD_G)),
            nu=_largest(g, FOURTH_G),
            M=_largest(f, ("f_x", "f_y")),
            sigma=self.sigma_over(lower, upper),
        )
        if not all(map(math.isfinite, (found.ell, found.rho, found.nu, found.M, found.sigma))):
            raise CertificateFailure("not all derivatives could be bounded over the box", hint="a smaller box")
        return found

    def gradient_of_g(self, lower: Floats, upper: Floats) -> float:
        """A bound on |g_y| for every row over a box, which the assumptions do not give."""
        return _largest(self._over("g", lower, upper), ("g_y",))

    @cached_property
    def _mean(self) -> Samples:
        """The mean as a problem with a single row."""
        mean = self.study.exact
        problem = StochasticProblem(mean.f, mean.g, mean.x, mean.y, (), (), (), (), box=self.study.box)
        return Samples(dataclasses.replace(self.study, problem=problem))

    def sigma_over(self, lower: Floats, upper: Floats) -> float:
        """A proved upper bound of the standard deviation of grad G over a box."""
        variance = float(self._variance.over(lower[None], upper[None], proved=True)[0])
        return math.nextafter(math.sqrt(variance), math.inf) if variance > 0 else 0.0

    def _over(self, level: str, lower: Floats, upper: Floats) -> dict[str, Matrices]:
        """Blocks of F or G over a box, one lane a row of data."""
        session = self._interval_programs[level].session(self.sizes[level])
        other = {"f": "g", "g": "f"}[level]
        ends_of = []
        for row in self._tables[level]:
            data = (*row, *self._tables[other][0]) if level == "f" else (*self._tables[other][0], *row)
            ends_of.append([enclose(int(v.p), int(v.q)) for v in data])
        pairs = np.array(ends_of).reshape(self.sizes[level], -1, 2)
        low, high = (np.repeat(side[None], self.sizes[level], axis=0) for side in (lower, upper))
        session.put(0, np.hstack([low, pairs[:, :, 0]]), np.hstack([high, pairs[:, :, 1]]))
        found = {}
        for name in BLOCKS[level]:
            sides = [side.reshape(self.sizes[level], -1) for side in session.take(name)]
            rows = self._shapes[name]
            found[name] = Matrices.between(*(side.reshape(len(side), rows, -1) for side in sides))
        return found

    @cached_property
    def _shapes(self) -> dict[str, int]:
        sizes = {"x": self.problem.d, "y": self.problem.n}
        return {name: sizes[name[2]] for names in BLOCKS.values() for name in names}

    @cached_property
    def _interval_programs(self) -> dict[str, IntervalProgram]:
        return {level: IntervalProgram(self._build(level), PROVED) for level in ("f", "g")}

    def _build(self, level: str) -> Program:
        """All blocks; the fourth derivatives are third ones moved along x or y, as the model has none."""
        model, blocks = self.problem.samples, {}
        for name in BLOCKS[level]:
            if len(name) < len("g_xyyy"):
                blocks[name] = model.block(name)
                continue
            axis = model.x if name[2] == "x" else model.y
            (third_shape, third), along = model.block(f"g_{name[3:]}"), list(axis)
            moved = tangents(model.graph, third, {v: {k: ONE_FORM} for k, v in enumerate(along)})
            entries = [form.get(k, ZERO_FORM) for k in range(len(along)) for form in moved]
            blocks[name] = ((len(along), *third_shape), entries)
        return build(model.graph, model.stages, blocks)

    @property
    def sigma(self) -> Bracket:
        """The standard deviation of grad G: the square root of the largest variance over the box."""
        variance = self.variance.bracket if isinstance(self.variance, Maximum) else self.variance
        low, high = math.sqrt(max(variance.lower, 0.0)), math.sqrt(max(variance.upper, 0.0))
        return Bracket(math.nextafter(low, 0.0), math.nextafter(high, math.inf) if high else 0.0)

    @cached_property
    def variance(self) -> Maximum | Bracket:
        """The largest E|grad G - grad g|^2 over the box; exact where it does not depend on the point."""
        objective = self._variance
        if not objective.active:
            with precision(SAMPLE_BITS):
                return ends(objective.balls([arb(0)] * (self.problem.d + self.problem.n)))
        box = ExactBox(self.study.box)
        budget = Budget(self.study.effort * SIGMA_WORK, self.study.deadline)
        return maximise(objective, box.lower, box.upper, budget=budget, rtol=SIGMA_RTOL, inside=box.inside)

    @cached_property
    def _variance(self) -> Variance:
        return Variance(self.variance_formula, self.problem)

    @cached_property
    def variance_formula(self) -> sp.Expr:
        """E|grad G - grad g|^2 in x and y: a finite sum of squares of differences in which common parts cancel."""
        p, table = self.problem, self._tables["g"]
        terms = []
        for row in table:
            noise = substitute(p.G, dict(zip(p.zeta, row, strict=True))) - self.study.exact.g
            model = Model(noise, sp.Integer(0), p.x, p.y)
            terms += [entry**2 for name in ("f_x", "f_y") for entry in model.expressions(name)]
        return sp.Add(*terms) / len(table)


class Variance:
    """An expression in (x, y) as an objective for ``maximise``."""

    def __init__(self, formula: sp.Expr, problem: BilevelProblem) -> None:
        symbols = (*problem.x, *problem.y)
        self._model = Model(formula, sp.Integer(0), problem.x, problem.y)
        self.active = tuple(i for i, s in enumerate(symbols) if s in formula.free_symbols)

    @property
    def cost(self) -> float:
        """Units of work that one box takes: see ``branch_and_bound``."""
        return 1.0 + self._model.program(("f",)).size / 20

    def over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
        """Upper bounds over boxes."""
        session = self._model.in_intervals(("f",), proved=proved).session(len(lower))
        session.put(0, lower, upper)
        return session.take("f")[1]

    def at(self, points: Floats) -> Floats:
        """Values at points, up to rounding."""
        return self.over(points, points)

    def certified_at(self, point: Floats) -> float:
        """A proved lower bound at a point."""
        with precision(SAMPLE_BITS):
            return ends(self.balls([arb(float(value)) for value in point])).lower

    def balls(self, point: Balls) -> Any:
        """The value at a point of balls."""
        program = self._model.in_balls(("f",), SAMPLE_BITS)
        values = program.start()
        program.put(values, 0, point)
        return program.output(values, "f")[0]


@lru_cache(1)
def samples_of(study: Study) -> Samples:
    """The samples of a study; the last ones are kept, as several claims ask for them."""
    return Samples(study)


def mean(matrices: Sequence[arb_mat]) -> arb_mat:
    """The mean over the rows."""
    total = matrices[0]
    for matrix in matrices[1:]:
        total = total + matrix
    return total * (arb(1) / len(matrices))


def spread(matrices: Sequence[arb_mat]) -> list[arb_mat]:
    """The rows without their mean; exact zeros where all rows are one and the same matrix."""
    if all(matrix is matrices[0] for matrix in matrices):
        return [arb_mat(matrices[0].nrows(), matrices[0].ncols())] * len(matrices)
    middle = mean(matrices)
    return [matrix - middle for matrix in matrices]


def squares(matrix: arb_mat) -> Any:
    """The sum of the squares of the entries."""
    return sum((entry * entry for entry in matrix.entries()), arb(0))


def ends(ball: Any) -> Bracket:
    """A ball as a bracket of floats; both ends infinite where it is undefined.

    >>> print(ends(arb(2)))
    [2, 2]
    """
    low, high = float(ball.lower()), float(ball.upper())
    if math.isnan(low) or math.isnan(high):
        return Bracket(-math.inf, math.inf)
    if ball.is_exact() and arb(low) == ball:
        return Bracket(low, low)
    return Bracket(math.nextafter(low, -math.inf), math.nextafter(high, math.inf))


def _largest(blocks: dict[str, Matrices], names: Sequence[str]) -> float:
    """The largest norm of some blocks; zero without a padding where all entries are zero."""
    present = [blocks[name] for name in names if np.any(blocks[name].middle) or np.any(blocks[name].radius)]
    return max((float(block.norm_upper().max()) for block in present), default=0.0)
