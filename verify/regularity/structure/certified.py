"""Certified constants of array problems: from their structure where it is known, over a box or over all of R^n.

Upper ends come from norms of the data and from proved ranges of the scalar functions (``bounds``), lower ends from
values at points (``witnesses``): two routes that share nothing but the interval arithmetic.

Paper: Assumption 2.1 [assu:bilevel]
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from functools import cached_property, lru_cache
from typing import Any

import numpy as np

from bilevel_sym import BilevelProblem, Box, StochasticProblem
from bilevel_sym.arithmetic.intervals import enclose
from bilevel_sym.arrays.tensor import Leaf, Tensor, known_sizes
from bilevel_sym.errors import AssumptionViolated, BilevelError, CertificateFailure, TooLarge
from bilevel_sym.system.budget import Stopwatch
from bilevel_sym.theories import Reading
from bilevel_sym.typing import Floats
from verify.enclosures.cover import Cover
from verify.regularity.certified import BLOCKS, CertifiedConstants, Proof, constants
from verify.regularity.structure.bounds import BlockBounds, Region
from verify.regularity.structure.recognition import Formula, Unrecognised, recognised
from verify.regularity.structure.rows import Layout
from verify.regularity.structure.tensors import Balls, Evaluation, exact
from verify.regularity.structure.witnesses import Witness, Witnesses
from verify.verdict import Bracket

__all__ = ["SCALAR_VARIABLES", "Structure", "array_constants", "structure_of", "structured_proofs"]

SCALAR_VARIABLES = 12  # variables up to which an array problem is written out in scalars and its box is searched
MAX_ROWS = 200  # of a stochastic problem, each of which is bounded on its own
RANDOM_POINTS = 2
KEPT_STRUCTURES = 4  # structures
ONE_LOOK = 0.2  # of the default effort: below it lower ends are looked for at the centre alone
CORNERS = (("low", "low"), ("high", "high"), ("low", "high"), ("high", "low"))


@dataclass(frozen=True, eq=False)
class Level:
    """One formula to be bounded: f or g, of the problem or of one row of it."""

    name: str
    tensor: Tensor
    formula: Formula
    layout: Layout


class Structure:
    """The recognised formulas of an array problem; ``Unrecognised`` where they are not sums of losses.

    >>> problem = BilevelProblem("y @ y/2", "sum(softplus(A @ y)) + y @ y/2", "x", "y[n]", data={"A": [[3, 4]]})
    >>> structure = Structure(problem)
    >>> round(structure.curvature(structure.region(None))[0], 9)  # of the penalty: the loss adds nothing at worst
    1.0
    """

    def __init__(self, problem: BilevelProblem) -> None:
        self.problem = problem
        model = problem.mean.array_model
        self.arrays: dict[str, Sequence[Leaf]] = {"x": model.x, "y": model.y}
        self.spans = {role: dict(problem.entries_by_array(role)) for role in "xy"}
        self.counts = {"x": problem.d, "y": problem.n}
        self.sizes = known_sizes(problem.dimensions)
        self.levels = tuple(self._levels())

    @property
    def names(self) -> dict[str, set[str]]:
        """What a box may call the arrays of "x" and of "y", and their entries."""
        entries = {"x": self.problem.x_entries, "y": self.problem.y_entries}
        return {role: {*self.spans[role], *(s.name for s in entries[role])} for role in "xy"}

    def _levels(self) -> Iterator[Level]:
        if not isinstance(self.problem, StochasticProblem):
            model, arrays = self.problem.array_model, self.problem.arrays
            layout = self._layout({name: exact(_dense(value)) for name, value in arrays.items()})
            for name, tensor in (("f", model.f), ("g", model.g)):
                yield Level(name, tensor, recognised(tensor, self.sizes), layout)
            return
        common = {name: exact(_dense(value)) for name, value in self.problem.arrays.items()}
        model = self.problem.array_model
        for name, tensor, rows in (("f", model.f, self.problem.xi_data), ("g", model.g, self.problem.zeta_data)):
            formula = recognised(tensor, self.sizes)
            for row in _rows(rows):
                yield Level(name, tensor, formula, self._layout({**common, **row}))

    def _layout(self, values: Mapping[str, Balls]) -> Layout:
        return Layout(Evaluation(values, self.sizes), self.spans, self.counts)

    # ---- regions --------------------------------------------------------------------------------------------------

    def region(self, box: Box | None) -> Region:
        """The ends of every entry, from a box by array or by entry; those that it does not name are free."""
        known = {} if box is None else dict(box.items())
        ends: tuple[dict[str, Floats], dict[str, Floats]] = ({}, {})
        for role, spans in self.spans.items():
            entries = {"x": self.problem.x_entries, "y": self.problem.y_entries}[role]
            for side, free in ((0, -np.inf), (1, np.inf)):
                values = np.full(self.counts[role], free)
                for name, span in spans.items():
                    if name in known:
                        values[span] = _outward(known[name][side], side)
                for k, symbol in enumerate(entries):
                    if symbol.name in known:
                        values[k] = _outward(known[symbol.name][side], side)
                ends[side][role] = values
        return Region(*ends)

    def completed(self, box: Box) -> Box:
        """A box of x with ends for y: y*(x) lies there, at most |grad_y g(x, y0)|/mu from any y0."""
        region = self.region(box)
        mu, _ = self.curvature(region)
        if not mu > 0:
            raise CertificateFailure(
                "y* was not enclosed: g has no modulus of strong convexity that holds for all y",
                hint="give ends for y too: box={..., 'y': (-5, 5)}",
            )
        start = self._start(region)
        thin = Region({**region.lower, "y": start}, {**region.upper, "y": start})
        slope = max(BlockBounds(level.formula, level.layout, thin).norm("y") for level in self.of("g"))
        radius = slope / mu * (1 + 1e-12)
        if not math.isfinite(radius):
            raise CertificateFailure("y* was not enclosed: grad_y g has no bound over x", hint="give ends for y too")
        ends: dict[str, tuple[object, object]] = dict(box.items())
        by_array = set(box.names or ()) <= set(self.spans["x"])
        for name, span in self.spans["y"].items():
            low, high = float(start[span].min()) - radius, float(start[span].max()) + radius
            owners = [name] if by_array else [s.name for s in self.problem.y_entries[span]]
            ends |= dict.fromkeys(owners, (_rounded(low, -1), _rounded(high, 1)))
        return Box(ends)

    def _start(self, region: Region) -> Floats:
        """A guess of y*, from which its distance is measured."""
        x = 0.5 * region.lower["x"] + 0.5 * region.upper["x"]
        try:
            return np.asarray(self.problem.mean.kernels.one_sided.y_star(x), dtype=np.float64).ravel()
        except BilevelError:
            return np.zeros(self.counts["y"])

    # ---- what is bounded ------------------------------------------------------------------------------------------

    def of(self, name: str) -> list[Level]:
        """The levels of one name."""
        return [level for level in self.levels if level.name == name]

    def curvature(self, region: Region) -> tuple[float, float]:
        """A lower bound of mu, and an upper bound of the largest eigenvalue of g_yy."""
        found = [BlockBounds(level.formula, level.layout, region).curvature("y") for level in self.of("g")]
        return min(low for low, _ in found), max(high for _, high in found)


class _Prover:
    """All blocks over one region."""

    def __init__(self, structure: Structure, region: Region, reading: Reading, effort: float) -> None:
        self.structure, self.region, self.reading = structure, region, reading
        rng = np.random.default_rng(0)
        points = _points(region, rng, round(RANDOM_POINTS * max(effort, 0.0)))
        points = points[:1] if effort < ONE_LOOK else points
        self.bounds = [BlockBounds(level.formula, level.layout, region) for level in structure.levels]
        self.witnesses = [
            Witnesses(level.tensor, structure.arrays, level.layout, points, rng) for level in structure.levels
        ]

    def proofs(self) -> Iterator[Proof]:
        for constant, blocks in BLOCKS[self.reading].items():
            for block in blocks:
                name, _, axes = block.partition("_")
                for k, level in enumerate(self.structure.levels):
                    if level.name == name:
                        yield self._proof(constant, block, axes, k)

    def _proof(self, constant: str, block: str, axes: str, k: int) -> Proof:
        if constant == "mu":
            seen = self.witnesses[k].least_curvature()
            least = self.bounds[k].curvature("y")[0]
            return self._found(constant, block, k, -seen.value, -least, seen)
        upper = abs(self.bounds[k].norm(axes))
        witness = None if upper == 0 else self.witnesses[k].largest(axes)
        return self._found(constant, block, k, 0.0 if witness is None else witness.value, upper, witness)

    def _found(self, constant: str, block: str, row: int, lower: float, upper: float, witness: Witness | None) -> Proof:
        point = None if witness is None else witness.point
        ends = [np.concatenate([side[role] for role in "xy"]) for side in (self.region.lower, self.region.upper)]
        return Proof(constant, block, row, Bracket(min(lower, upper), upper), point, Cover(ends[0], ends[1]))

    @cached_property
    def free(self) -> tuple[str, ...]:
        """The arrays without ends."""
        spans = self.structure.spans
        return tuple(
            name for role in "xy" for name, span in spans[role].items() if np.isinf(self.region.lower[role][span]).any()
        )


@lru_cache(KEPT_STRUCTURES)
def structure_of(problem: BilevelProblem) -> Structure:
    """``Structure(problem)``, kept with what it knows of the ranges of its functions."""
    return Structure(problem)


def array_constants(
    problem: BilevelProblem, box: object, reading: Reading, effort: float, limits: Mapping[str, Any]
) -> CertifiedConstants:
    """``constants`` of an array problem: from its structure, else of the same problem in scalars, where it is small.

    - ``problem``: the problem.
    - ``box``: by array, of x or of x and y; by default the problem's own.
    - ``reading``: "block" or "joint".
    - ``effort``: a multiple of the default.
    - ``limits``: what a search over a box is given too: seconds, rtol, memory, progress.

    >>> problem = BilevelProblem("x @ y", "sum(softplus(A @ y)) + y @ y - x @ y", "x[n]", "y[n]", data={"A": [[3, 4]]})
    >>> found = array_constants(problem, {"x": (-1, 1)}, "block", 1.0, {})
    >>> round(found.brackets["mu"].lower, 9), found.reasons
    (2.0, {})
    """
    chosen = _by_array(problem, box)
    watch = Stopwatch()
    if (ends := problem.mean.ends("x")) is not None:
        low, high = np.array(ends, dtype=np.float64).T
        problem.mean.kernels.refuse_kinked_box(low, high)
    try:
        structure = structure_of(problem)
        if chosen is not None and set(chosen.names or ()) <= structure.names["x"]:
            chosen = structure.completed(chosen)
        proofs, reasons = structured_proofs(structure, chosen, reading, effort)
    except Unrecognised as error:
        return _searched(problem, chosen, reading, effort, limits, error)
    return CertifiedConstants(problem, chosen, reading, proofs, watch.elapsed, reasons=reasons)


def _by_array(problem: BilevelProblem, box: object) -> Box | None:
    if box is None:
        return problem.box
    given = box if isinstance(box, Box) else Box(box)  # type: ignore[arg-type]
    arrays = tuple(tuple(name for name, _ in problem.entries_by_array(role)) for role in "xy")
    entries = tuple(tuple(s.name for s in group) for group in (problem.x_entries, problem.y_entries))
    by_entry = given.names is not None and not {*arrays[0], *arrays[1]} & set(given.names)
    return given.bind(*(entries if by_entry else arrays))


def _searched(
    problem: BilevelProblem,
    box: Box | None,
    reading: Reading,
    effort: float,
    limits: Mapping[str, Any],
    reason: Unrecognised,
) -> CertifiedConstants:
    size = problem.d + problem.n
    if size > SCALAR_VARIABLES:
        raise TooLarge(
            f"the constants do not follow from the structure of f and g ({reason.message}), and with d + n = {size} "
            f"variables, more than {SCALAR_VARIABLES}, no box is searched",
            hint="sums of smooth losses of affine forms are recognised: sum(softplus(A @ y)), exp(x) @ y**2",
        )
    from verify.regularity.structure.large import lowered_box

    ends = None if box is None else lowered_box(problem, box)
    return constants(problem.lowered(), ends, reading=reading, effort=effort, **limits)


def structured_proofs(
    structure: Structure, box: Box | None, reading: Reading, effort: float
) -> tuple[tuple[Proof, ...], Mapping[str, str]]:
    """A proved bracket of every block, and why a constant has no upper end.

    - ``structure``: what was recognised.
    - ``box``: by array; what it does not name is free.
    - ``reading``: "block" or "joint".
    - ``effort``: how many points are looked at, as a multiple of the default.

    >>> problem = BilevelProblem("y @ y/2", "sum(softplus(A @ y)) + y @ y/2", "x", "y[n]", data={"A": [[3, 4]]})
    >>> proofs, reasons = structured_proofs(Structure(problem), None, "block", 1.0)
    >>> sorted(reasons), round(max(p.bracket.upper for p in proofs if p.constant == "ell"), 6)  # 25/4 + 1
    (['M', 'g_y'], 7.25)
    """
    prover = _Prover(structure, structure.region(box), reading, effort)
    proofs = tuple(prover.proofs())
    _require_convexity(proofs, structure, prover.free)
    where = f" for all {' and '.join(prover.free)}" if prover.free else ""
    reasons = {
        proof.constant: f"no bound of {proof.block} holds{where}; a box gives one"
        for proof in reversed(proofs)
        if math.isinf(proof.bracket.upper) and proof.constant != "mu"
    }
    return proofs, reasons


def _require_convexity(proofs: Sequence[Proof], structure: Structure, free: Sequence[str]) -> None:
    own = [proof for proof in proofs if proof.constant == "mu"]
    worst = max(own, key=lambda proof: proof.bracket.lower)
    if worst.bracket.lower >= 0 and worst.point is not None:
        names = [s.name for s in (*structure.problem.x_entries, *structure.problem.y_entries)]
        raise AssumptionViolated(
            "g is not strongly convex in y: an eigenvalue of g_yy is at most",
            label="assu:bilevel",
            point=dict(zip(names, worst.point.tolist(), strict=True)),
            value=0.0 - worst.bracket.lower,
            hint="shrink the box, or mend g",
        )
    least = -max(proof.bracket.upper for proof in own)
    if not least > 0 and (kinks := structure.problem.mean.derivation.kinks):
        raise CertificateFailure(
            f"g_yy has no bound that can be proved over the box: g changes its formula there, {kinks[0]}",
            hint=f"a box without it; or {kinks[0].instead}",
        )
    if not least > 0:
        where = f"for all {' and '.join(free)}" if free else "over the box"
        raise CertificateFailure(
            f"g was not proved to be strongly convex in y {where}: its modulus mu lies in "
            f"{Bracket(least, -worst.bracket.lower)}",
            hint="give a box, by array: box={'x': (-1, 1)} or {'x': (-1, 1), 'y': (-5, 5)}; or a smaller one",
        )


def _points(region: Region, rng: np.random.Generator, count: int) -> list[Floats]:
    """Where lower ends are looked for: the centre, corners, and points at random; zero stands for what is free."""
    lower, upper = (
        {r: _clipped(side[r], sign) for r in "xy"} for side, sign in ((region.lower, -1), (region.upper, 1))
    )
    middle = {r: 0.5 * lower[r] + 0.5 * upper[r] for r in "xy"}
    ends = {"low": lower, "high": upper}
    found = [np.concatenate([middle["x"], middle["y"]])]
    found += [np.concatenate([ends[x]["x"], ends[y]["y"]]) for x, y in CORNERS]
    for _ in range(count):
        found.append(np.concatenate([lower[r] + (upper[r] - lower[r]) * rng.random(len(lower[r])) for r in "xy"]))
    return list({point.tobytes(): point for point in found}.values())


def _clipped(ends: Floats, sign: int) -> Floats:
    return np.where(np.isfinite(ends), ends, float(sign))


def _dense(value: object) -> object:
    return value.toarray() if hasattr(value, "toarray") else value


def _rows(rows: object) -> list[dict[str, Balls]]:
    """The data of each different row of a level; one without data where nothing is drawn."""
    assert isinstance(rows, Mapping)
    if not rows:
        return [{}]
    arrays = {name: np.asarray(_dense(getattr(array, "values", array))) for name, array in rows.items()}
    count = len(next(iter(arrays.values())))
    keys = {b"".join(array[k].tobytes() for array in arrays.values()): k for k in range(count)}
    if len(keys) > MAX_ROWS:
        raise TooLarge(
            f"the constants of {len(keys):,} rows are asked for, each on its own, and {MAX_ROWS} are bounded",
            hint="those of the mean: verify.constants(problem.mean)",
        )
    return [{name: exact(array[k]) for name, array in arrays.items()} for k in keys.values()]


def _outward(end: object, side: int) -> float:
    """The float at or beyond an exact end."""
    return enclose(int(end.p), int(end.q))[side]  # type: ignore[attr-defined]


def _rounded(value: float, side: int) -> Fraction:
    """A short decimal beyond a number, so that a box is easy to read."""
    digits = 4 - math.ceil(math.log10(max(abs(value), 1e-300)))
    scale = Fraction(10) ** digits
    whole = math.ceil(Fraction(value) * scale) if side > 0 else math.floor(Fraction(value) * scale)
    return Fraction(whole) / scale
