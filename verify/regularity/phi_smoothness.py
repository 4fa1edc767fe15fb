"""Smoothness of Phi: certified brackets of sup |grad Phi|, sup |Hess Phi| and sup |D^3 Phi| over a box in x.

The second is the best Lipschitz constant of grad Phi over the (convex) box, the third that of Hess Phi. They are
bounded directly, with y* enclosed, and compared with the paper's L_phi and rho_phi from certified constants.

Paper: Lemma A.2 [grad-Lipschitz]; Lemma 2.4 [hess-Lipschitz]; Lemma C.1 [lemC.1]
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType

import numpy as np

from bilevel_sym import BilevelProblem, Box, MinimaxConstants, MinimaxProblem
from bilevel_sym.errors import AssumptionViolated, BilevelError, CertificateFailure, InvalidArgument, LowerLevelFailure
from bilevel_sym.system.budget import Budget, Deadline, Effort, Stopwatch, deadline_of, scale_of
from bilevel_sym.system.memory import Memory, bytes_of, parts
from bilevel_sym.typing import Floats
from verify.enclosures.block_norm import ExactBox
from verify.enclosures.branch_and_bound import Maximum, maximise
from verify.enclosures.cover import Cover, requested_box
from verify.enclosures.memory import PhiMemory
from verify.enclosures.phi_boxes import PhiBoxes
from verify.enclosures.phi_norms import GradNorm, HessNorm, ThirdNorm
from verify.regularity.certified import DEFAULT_WORK, constants
from verify.regularity.structure.large import in_scalars
from verify.verdict import Bracket

__all__ = ["ZERO_DERIVATIVE", "Smoothness", "smoothness"]

EFFORT_SHARES = (("grad_norm", GradNorm, 0.2), ("L_phi", HessNorm, 0.4), ("rho_phi", ThirdNorm, 0.7))  # of what is left
ZERO_DERIVATIVE = 1e-100  # what rounding leaves of a derivative that vanishes
FORMULA_RTOL = 0.02  # formulas are far from sharp: their constants need not be
TITLES = MappingProxyType(
    {"grad_norm": "sup |grad Phi|", "L_phi": "sup |Hess Phi|", "rho_phi": "Lipschitz constant of Hess Phi"}
)


@dataclass(frozen=True, eq=False)
class Smoothness:
    """What ``smoothness`` proved. A bracket's upper end is infinite where no bound was found in time.

    ``ratio`` is how many times too large the formulas are, at least.

    - ``problem``: the problem.
    - ``box``: in x.
    - ``grad_norm``: the largest norm of grad Phi.
    - ``L_phi``: the Lipschitz constant of grad Phi.
    - ``rho_phi``: the Lipschitz constant of Hess Phi.
    - ``points``: where the lower ends are attained.
    - ``L_phi_formula``: the paper's L_phi; None where its constants could not be certified.
    - ``rho_phi_formula``: the paper's rho_phi, likewise.
    - ``formula_reason``: why there is none, or what was not proved of them.
    - ``reasons``: why an upper end is infinite, by name.
    - ``boxes``: how many pieces of the box it took.
    - ``seconds``: how long it took.
    - ``cut``: time, and not the effort, ended the search.
    - ``covers``: the pieces that prove each upper end.

    >>> from bilevel_sym import BilevelProblem
    >>> found = smoothness(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), Box({"x": (-1, 1)}))  # Phi = x^2
    >>> print(found.L_phi, found.rho_phi.upper < 1e-12, round(found.L_phi_formula, 3), round(found.ratio["L_phi"], 3))
    [2, 2] True 4.0 2.0
    """

    problem: BilevelProblem
    box: Box
    grad_norm: Bracket
    L_phi: Bracket
    rho_phi: Bracket
    points: Mapping[str, Mapping[str, float]]
    L_phi_formula: float | None
    rho_phi_formula: float | None
    formula_reason: str
    reasons: Mapping[str, str]
    boxes: int
    seconds: float
    cut: bool = False
    covers: Mapping[str, Cover] = field(default_factory=dict, repr=False)

    @property
    def ratio(self) -> Mapping[str, float]:
        """The paper's formula over the certified upper end, where there are both."""
        pairs = {"L_phi": (self.L_phi_formula, self.L_phi), "rho_phi": (self.rho_phi_formula, self.rho_phi)}
        return {
            name: _ratio(formula, bracket.upper) for name, (formula, bracket) in pairs.items() if formula is not None
        }

    def save(self, path: str | os.PathLike[str], *, progress: bool = False) -> None:
        """Write the brackets as a JSON file that ``recheck`` proves again; the formulas are not in it."""
        from verify.certificates.saving import save_smoothness

        save_smoothness(self, path, progress)

    def __str__(self) -> str:
        formulas = {"L_phi": self.L_phi_formula, "rho_phi": self.rho_phi_formula}
        rows = [("", "proved to lie in", "upper/lower", "formula", "formula/upper")]
        for name, title in TITLES.items():
            bracket, formula = getattr(self, name), formulas.get(name)
            shown = "" if formula is None else f"{formula:.6g}"
            rows.append(
                (title, str(bracket), f"{bracket.ratio:.4g}", shown, f"{self.ratio[name]:.3g}" if shown else "")
            )
        widths = [max(len(row[k]) for row in rows) for k in range(len(rows[0]))]
        lines = ["  ".join(cell.ljust(w) for cell, w in zip(row, widths, strict=True)).rstrip() for row in rows]
        lines += [f"{TITLES[name]}: {reason}" for name, reason in self.reasons.items()]
        if self.cut:
            lines.append("cut by time: with more of it the brackets might be narrower")
        if self.formula_reason:
            lines.append(f"formulas: {self.formula_reason}")
        return "\n".join(lines)


def smoothness(
    problem: BilevelProblem,
    box: Box | None = None,
    *,
    effort: Effort = "default",
    seconds: float | Deadline | None = None,
    rtol: float = 0.01,
    memory: Memory = "2GB",
    progress: bool = False,
) -> Smoothness:
    """Certified smoothness of Phi over a box in x, by default the problem's own; the brackets are true in any case.

    The formulas take the constants of the box in (x, y); for a box in x alone, of the hull of y* over it.

    - ``problem``: the problem.
    - ``box``: in x, or in (x, y), of which x counts.
    - ``effort``: "quick", "default", "thorough", or a multiple of the default; 0 takes one look.
    - ``seconds``: a limit of time; what it cuts says so.
    - ``rtol``: the relative width of the brackets, if the effort suffices.
    - ``memory``: "2GB", "500 MB" or bytes: fewer boxes are bounded at a time where it is scarce, and what does not fit
      at all is refused before it is begun (TooLarge).
    - ``progress``: whether a terminal shows how far it is.

    Assumes: Assumption 2.1 [assu:bilevel]: g is strongly convex in y, so that its one minimiser is the only one.

    >>> from bilevel_sym import zoo
    >>> found = smoothness(zoo.get("scalar").problem)
    >>> 2.625 in found.L_phi, found.L_phi.ratio < 1.01  # sup |Hess Phi| over the box, bracketed to a hundredth
    (True, True)
    """
    if getattr(problem, "is_array", False):
        problem, box = in_scalars(problem, box)
    exact, region, given = _checked(problem, box, rtol)
    _ = exact.kernels  # compiled, where they are not yet, before the clock starts
    watch, budget, room = Stopwatch(), Budget(scale_of(effort) * DEFAULT_WORK, deadline_of(seconds)), bytes_of(memory)
    PhiMemory.of(exact).require(room, budget.work, DEFAULT_WORK, third=True)
    boxes = PhiBoxes(exact, room)
    low, high = region.inside
    exact.kernels.refuse_kinked_box(low, high)
    _require_lower_level(exact, region)
    found: dict[str, Maximum] = {}
    for name, norm, share in EFFORT_SHARES:
        part = Budget(share * budget.left, budget.deadline.within(share))
        found[name] = maximise(
            norm(boxes), region.lower, region.upper, budget=part, rtol=rtol, floor=ZERO_DERIVATIVE,
            inside=region.inside, progress=progress,
        )  # fmt: skip
        budget.spend(part.spent)
    reasons = {name: _reason(exact, maximum) for name, maximum in found.items() if maximum.place is not None}
    if len(reasons) == len(found) and (exact.tape.has_kinks or not any(m.bracket.lower > 0 for m in found.values())):
        raise CertificateFailure(
            f"nothing could be certified about Phi over the box: {reasons['grad_norm']}",
            hint="choose a box without a kink, a jump or the end of a domain; if there is none, give more effort",
        )
    L_phi, rho_phi, why, cut = _formulas(exact, given, boxes, found, budget)
    names = [s.name for s in exact.x]
    points = {k: dict(zip(names, m.point.tolist(), strict=True)) for k, m in found.items() if m.point is not None}
    # a norm is not negative, whatever is known of it
    brackets = {name: Bracket(max(0.0, m.bracket.lower), m.bracket.upper) for name, m in found.items()}
    return Smoothness(
        problem, region.box, **brackets, points=points, L_phi_formula=L_phi, rho_phi_formula=rho_phi,
        formula_reason=why, reasons=reasons, boxes=sum(m.boxes for m in found.values()),
        seconds=watch.elapsed, cut=cut or any(m.cut for m in found.values()),
        covers={name: maximum.cover for name, maximum in found.items()},
    )  # fmt: skip


def _ratio(formula: float, upper: float) -> float:
    if upper <= ZERO_DERIVATIVE:
        return 1.0 if formula <= ZERO_DERIVATIVE else math.inf
    return formula / upper


def _checked(problem: object, box: Box | None, rtol: object) -> tuple[BilevelProblem, ExactBox, Box]:
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(f"smoothness wants a problem, but was given a {type(problem).__name__}")
    if not isinstance(rtol, (int, float)) or not 0 <= rtol < math.inf:
        raise InvalidArgument(f"rtol must be a number, at least 0, but is {rtol!r}")
    exact = problem.mean
    given = requested_box(problem, box, "the smoothness of Phi belongs")
    return exact, ExactBox(Box({s.name: given[s.name] for s in exact.x})), given


def _require_lower_level(problem: BilevelProblem, region: ExactBox) -> None:
    """A look at the middle and the corners, for a clear message where g is not convex or not defined."""
    low, high = region.lower, region.upper
    rng = np.random.default_rng(0)
    points = np.concatenate([[0.5 * low + 0.5 * high, low, high], low + (high - low) * rng.random((8, len(low)))])
    for x in np.clip(points, low, high):
        try:
            problem.kernels.one_sided.y_star(x)
        except LowerLevelFailure as error:
            where = dict(zip([s.name for s in (*problem.x, *problem.y)], (*error.x, *error.y), strict=True))
            if error.eigenvalue <= 0:
                raise AssumptionViolated(
                    "g is not strongly convex in y: the smallest eigenvalue of g_yy",
                    label="assu:bilevel", point=where, value=error.eigenvalue, hint="choose a smaller box, or mend g",
                ) from None  # fmt: skip
            raise CertificateFailure(f"y* was not found: {error.message}", hint=error.hint) from None


def _reason(problem: BilevelProblem, maximum: Maximum) -> str:
    assert maximum.place is not None
    ends = zip(problem.x, *maximum.place, strict=True)
    where = ", ".join(f"{s.name} in [{low:.6g}, {high:.6g}]" for s, low, high in ends)
    return f"no bound was proved where {where}; a kink, a jump, the end of a domain, or too little effort"


def _formulas(
    problem: BilevelProblem,
    given: Box,
    boxes: PhiBoxes,
    found: Mapping[str, Maximum],
    budget: Budget,
) -> tuple[float | None, float | None, str, bool]:
    """The paper's L_phi and rho_phi from certified constants, or None and None; what is amiss; was it cut?"""
    try:
        whole, doubt = _box_of_both(problem, given, boxes, found)
        effort = max(0.1 * budget.work, budget.left) / DEFAULT_WORK
        certified = constants(
            problem, whole, effort=effort, seconds=budget.deadline, rtol=FORMULA_RTOL, memory=boxes.memory
        )
    except BilevelError as error:
        return None, None, error.message, budget.cut
    valid = certified.valid
    formulas = MinimaxConstants(valid.mu, valid.ell, valid.rho) if isinstance(problem, MinimaxProblem) else valid
    try:  # a dozen roundings, all of positive numbers
        values = float(formulas.L_phi()) * (1 + 1e-14), float(formulas.rho_phi()) * (1 + 1e-14)
    except OverflowError:
        return None, None, "L_phi or rho_phi is beyond float64", certified.cut
    return *values, doubt, certified.cut


def _box_of_both(problem: BilevelProblem, given: Box, boxes: PhiBoxes, found: Mapping[str, Maximum]) -> tuple[Box, str]:
    """The box in (x, y): that of y holds y* over x, and what was given for y. Or the one given, and a doubt."""
    sure = next((m.cover for m in found.values() if m.place is None), None)
    if sure is None:
        if len(given) > problem.d:
            return given, "y* was not proved to stay in the box given for y"
        raise CertificateFailure("y* was not enclosed over the whole box with this effort")
    low, high = _hull(boxes, sure)
    both: dict[str, tuple[object, object]] = dict(given.items())
    for symbol, least, most in zip(problem.y, low.tolist(), high.tolist(), strict=True):
        given_low, given_high = both.get(symbol.name, (least, most))
        both[symbol.name] = min(given_low, least), max(given_high, most)
    return Box(both), ""


def _hull(boxes: PhiBoxes, cover: Cover) -> tuple[Floats, Floats]:
    """Where y* lies over all leaves of a cover."""
    lower, upper = cover.leaves()
    lows, highs = [], []
    for rows in parts(len(lower), 256):
        low, high = boxes.y_over(lower[rows], upper[rows], proved=True)
        lows.append(low.min(axis=0))
        highs.append(high.max(axis=0))
    low, high = np.min(lows, axis=0), np.max(highs, axis=0)
    if not (np.isfinite(low).all() and np.isfinite(high).all()):
        raise CertificateFailure("y* could not be enclosed over the whole box")
    return low, high
