"""What may be wrong with a user's Hessian of Phi: hypotheses, the simplest first.

Hess Phi = f_xx + dy_dx f_yx + d2y_dx2 f_y + f_xy dy_dx^T + dy_dx f_yy dy_dx^T. Most defects are wrong weights of these
terms, or of the four parts of d2y_dx2 f_y; the others are wrong blocks in all of them, or another point.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import combinations
from types import MappingProxyType

import numpy as np

from bilevel_sym.typing import Floats
from verify.points.derivatives_at import Derivatives, blocks_at
from verify.testkit.candidate import norms
from verify.testkit.diagnosis import Cause, Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.altered_result import changed_suspects, momentum
from verify.testkit.suspects.fitting import shows
from verify.testkit.suspects.hessian_fits import conjugate_inverse, free_weights, other_v, other_y, wrong_inverse
from verify.testkit.suspects.hessian_terms import CURVATURE, HessianTerms, hessian_terms, transposed
from verify.testkit.suspects.hessian_wrong_point import at_other_points

__all__ = ["hessian_suspects", "wrong_blocks"]

Weights = Mapping[str, float]

APART = 1e-9  # relatively: entries beside the diagonal that are more than rounding
LOPSIDED = 1e-6  # relatively: a matrix closer than this to its transpose is symmetric here
CROSS, G_XYY = ("cross", "cross_transposed"), ("g_xyy", "g_xyy_transposed")
TRIPLE = "the solve for d2y_dx2, or v contracted with the third derivatives of g (nested jvp, hvp of v^T g_y)"
MIXED = "dy_dx f_yx and f_xy dy_dx^T: both belong to the sum, and each is the transpose of the other"
TOTAL = "the derivative of x -> f_x(x, y*(x)) - g_xy(x, y*(x)) v(x): x enters at every place, through y* and v too"


@dataclass(frozen=True)
class _Term:
    """A term of the sum, by its symmetric whole."""

    printed: str
    cause: Cause
    parts: tuple[str, ...]
    look_at: str


TERMS: Mapping[str, _Term] = MappingProxyType(
    {
        "curvature": _Term("d2y_dx2 f_y", "third derivative", CURVATURE, TRIPLE),
        "cross": _Term("dy_dx f_yx + f_xy dy_dx^T", "cross", CROSS, MIXED),
        "quadratic": _Term("dy_dx f_yy dy_dx^T", "quadratic", ("quadratic",), "dy_dx on both sides of f_yy"),
        "direct": _Term("f_xx", "direct", ("direct",), "f_xx, the second derivative in x with y held fixed"),
    }
)


def hessian_suspects(at: References, values: Floats, previous: Floats | None = None) -> Iterator[Suspect]:
    """Hypotheses about ``values`` (P, d, d); ``previous`` (P, d) are the points asked before, nan where there was none.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.diagnosis import explain
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x*y + y**2", "exp(y) + y**2 - x*y", "x", "y")
    >>> at = references(problem, [[-1.0], [0.5], [1.0], [2.0]])
    >>> values = at.truth("hess_phi") - at.at.curvature()
    >>> found = explain(Evidence(values, at.truth("hess_phi"), at.floor("hess_phi")), hessian_suspects(at, values))
    >>> found.cause, found.what
    ('third derivative', 'd2y_dx2 f_y, the term with the third derivatives of g, is missing')
    """
    terms, truth = hessian_terms(at.at), at.truth("hess_phi")
    evidence = Evidence(values, truth, at.floor("hess_phi"))
    if not evidence.telling.any():
        return
    nothing = "it is zero everywhere: no term arrives"
    yield Suspect("factor", nothing, "a graph that is cut, or an array that is never filled", 0 * truth)
    yield Suspect("sign", "the sign of the whole is wrong", "the return statement", -truth)
    yield Suspect("factor", "it is {0:.4g} times the truth", "the return statement", 0 * truth, (truth,))
    yield from _third_derivatives(terms, truth)
    yield from _mixed(terms, truth)
    for name in ("quadratic", "direct"):
        yield from _weighted(terms, truth, name)
    yield from _fisher(at.at, terms, truth)
    yield from _held_fixed(terms, truth)
    yield from _subsets(terms, evidence)
    yield from wrong_blocks(at)
    yield from _matrices(truth)
    yield from changed_suspects(evidence)
    yield from at_other_points(at, evidence, previous)
    yield from wrong_inverse(at, evidence)
    yield from conjugate_inverse(at, evidence)
    yield from momentum(at, evidence, previous)
    yield from _asymmetric(evidence)
    yield from other_v(at, evidence)
    yield from other_y(at, evidence)
    yield from free_weights(terms, evidence)


def _reweighted(
    terms: HessianTerms, truth: Floats, cause: Cause, what: str, look_at: str, weights: Weights
) -> Iterator[Suspect]:
    """Some parts with other weights. Where only a matrix that is not symmetric tells, a symmetric one is left out."""
    change = terms.change(weights)
    one_sided = any(weights.get(a, 1) != weights.get(b, 1) for a, b in (CROSS, G_XYY))
    symmetric = np.linalg.norm(change - transposed(change)) <= LOPSIDED * np.linalg.norm(change)
    if not (one_sided and symmetric):
        yield Suspect(cause, what, look_at, truth + change)


def _free(terms: HessianTerms, truth: Floats, name: str, printed: str, parts: tuple[str, ...]) -> Suspect:
    whole, term = _whole(terms, parts), TERMS[name]
    return Suspect(term.cause, f"{printed} is counted {{0:.4g}} times", term.look_at, truth - whole, (whole,))


def _weighted(terms: HessianTerms, truth: Floats, name: str) -> Iterator[Suspect]:
    """A whole term missing, with the wrong sign, or with another weight."""
    term = TERMS[name]
    also = ", the term with the third derivatives of g," if name == "curvature" else ""
    wrong = {
        0.0: f"{term.printed}{also} is missing", -1.0: f"{term.printed}{also} has the wrong sign",
        0.5: f"{term.printed}{also} is halved", 2.0: f"{term.printed}{also} is counted twice",
    }  # fmt: skip
    for weight, what in wrong.items():
        weights = dict.fromkeys(term.parts, weight)
        yield Suspect(term.cause, what, term.look_at, truth + terms.change(weights))
    yield _free(terms, truth, name, term.printed, term.parts)


def _third_derivatives(terms: HessianTerms, truth: Floats) -> Iterator[Suspect]:
    """d2y_dx2 f_y, or parts of it."""
    yield from _weighted(terms, truth, "curvature")
    groups = {"g_xxy": ("g_xxy",), "g_xyy": G_XYY, "g_yyy": ("g_yyy",)}
    for size in (1, 2):
        for chosen in combinations(groups, size):
            what = f"the part of d2y_dx2 f_y with {' and with '.join(chosen)} is missing"
            missing = [part for name in chosen for part in groups[name]]
            yield Suspect("third derivative", what, TRIPLE, truth + terms.change(dict.fromkeys(missing, 0)))
    for here, there in (G_XYY, G_XYY[::-1]):
        what = "of the two parts with g_xyy, which are transposes of each other, {} is there"
        for word, weights in {"one alone": {here: 0.0}, "one twice and the other not": {here: 0.0, there: 2.0}}.items():
            said = what.format(word)
            yield from _reweighted(terms, truth, "third derivative", said, TRIPLE, weights)
    for name, parts in groups.items():
        yield _free(terms, truth, "curvature", f"the part of d2y_dx2 f_y with {name}", parts)


def _mixed(terms: HessianTerms, truth: Floats) -> Iterator[Suspect]:
    """The cross terms: first both, then one and not the other, then the weights of both."""
    missing, *others = _weighted(terms, truth, "cross")
    yield missing
    halves = {"cross": "dy_dx f_yx", "cross_transposed": "f_xy dy_dx^T"}
    for here, there in (CROSS[::-1], CROSS):
        what = f"{halves[there]} without its transpose {halves[here]}"
        yield from _reweighted(terms, truth, "symmetry", what, MIXED, {here: 0.0})
    for here, there in (CROSS[::-1], CROSS):
        what = f"{halves[there]} is counted twice, and its transpose {halves[here]} not at all"
        yield from _reweighted(terms, truth, "symmetry", what, MIXED, {here: 0.0, there: 2.0})
    yield from _lagrangian(terms, truth)
    yield from others


def _lagrangian(terms: HessianTerms, truth: Floats) -> Iterator[Suspect]:
    """Z^T (Hess L) Z with its mixed term on one side: L_xy holds f_xy and g_xyy."""
    look_at = "C + C^T for the mixed term C = L_xy dy_dx^T of the Lagrangian's Hessian, in place of 2 C or C"
    for (here, there), (its, their) in ((CROSS, G_XYY[::-1]), (CROSS[::-1], G_XYY)):
        one = {here: 0.0, its: 0.0}
        ways: dict[str, Weights] = {
            "L_xx + 2 (L_xy + dy_dx L_yy/2) dy_dx^T is not symmetrised": {**one, there: 2.0, their: 2.0},
            "the mixed term L_xy dy_dx^T of the Lagrangian's Hessian lacks its transpose": one,
            "L_xx + (L_xy + dy_dx L_yy/2) dy_dx^T lacks the transpose of its second part": {
                **one, "quadratic": 0.5, "g_yyy": 0.5,
            },
        }  # fmt: skip
        for what, weights in ways.items():
            yield from _reweighted(terms, truth, "symmetry", what, look_at, weights)


def _fisher(at: Derivatives, terms: HessianTerms, truth: Floats) -> Iterator[Suspect]:
    """Products of gradients in the place of f_yy, as in the empirical Fisher matrix, or in the place of everything."""
    slope = (at.dy_dx @ at["f_y"][..., None])[..., 0]
    whole = at["f_x"] + slope
    what, look = "(dy_dx f_y)(dy_dx f_y)^T stands in the place of dy_dx f_yy dy_dx^T", "f_yy: f_y f_y^T is not it"
    yield Suspect("quadratic", what, look, truth - terms["quadratic"] + slope[:, :, None] * slope[:, None, :])
    outer = whole[:, :, None] * whole[:, None, :]
    what = "it is {0:.4g} times grad Phi grad Phi^T, which has no second derivatives"
    yield Suspect("quadratic", what, "an outer product of gradients: it is no Hessian", 0 * truth, (outer,))


def _held_fixed(terms: HessianTerms, truth: Floats) -> Iterator[Suspect]:
    """What differentiating f_x(x, y) - g_xy(x, y) v gives where v, y or a block is taken for a constant."""
    ways: dict[str, tuple[Cause, tuple[str, ...]]] = {
        "v is held fixed when f_x - g_xy v is differentiated: dy_dx f_yx, dy_dx f_yy dy_dx^T and the parts with g_yyx"
        " and g_yyy are missing": ("cross", ("cross", "quadratic", "g_xyy_transposed", "g_yyy")),
        "y* is held fixed when f_x - g_xy v is differentiated: f_xy dy_dx^T, dy_dx f_yy dy_dx^T and the parts with"
        " g_xyy and g_yyy are missing": ("cross", ("cross_transposed", "quadratic", "g_xyy", "g_yyy")),
        "y* and v are held fixed when f_x - g_xy v is differentiated: f_xx - g_xxy v is all there is": (
            "cross", (*CROSS, "quadratic", *G_XYY, "g_yyy"),
        ),
        "g_yy is held fixed when v = g_yy^-1 f_y is differentiated: the parts with g_yyx and g_yyy are missing": (
            "third derivative", ("g_xyy_transposed", "g_yyy"),
        ),
        "g_xy is held fixed when g_xy v is differentiated: the parts with g_xxy and g_xyy are missing": (
            "third derivative", ("g_xxy", "g_xyy"),
        ),
    }  # fmt: skip
    for what, (cause, parts) in ways.items():
        yield Suspect(cause, what, TOTAL, truth + terms.change(dict.fromkeys(parts, 0)))


def _subsets(terms: HessianTerms, evidence: Evidence) -> Iterator[Suspect]:
    """Several whole terms missing: f_xx alone, Gauss-Newton, ... Terms that vanish here are not spoken of."""
    alive = [name for name, term in TERMS.items() if shows(evidence, _whole(terms, term.parts))]
    for size in range(2, len(alive)):
        for missing in combinations(alive, size):
            kept = " + ".join(TERMS[name].printed for name in alive if name not in missing)
            lacking = ", ".join(TERMS[name].printed for name in missing)
            cause: Cause = "cross" if "cross" in missing else TERMS[missing[0]].cause
            change = terms.change(dict.fromkeys((part for name in missing for part in TERMS[name].parts), 0))
            yield Suspect(cause, f"it is {kept} alone: {lacking} are missing", TOTAL, evidence.truth + change)


def _matrices(truth: Floats) -> Iterator[Suspect]:
    """Right numbers, another matrix."""
    if np.linalg.cond(truth).max() < 1e8:
        yield Suspect("inverse", "it is the inverse of the Hessian", "the last solve", np.asarray(np.linalg.inv(truth)))
    look_at = "the entries (i, j) and (j, i): both are to be filled"
    for triangle, name in ((np.triu, "upper"), (np.tril, "lower")):
        yield Suspect("symmetry", f"only the {name} triangle is filled", look_at, triangle(truth))
    diagonal = truth * np.eye(truth.shape[-1])
    if not (norms(truth - diagonal) > APART * norms(truth)).any():
        return  # nothing stands beside the diagonal: one that is doubled is the whole, twice
    twice = "the triangle is added to its transpose with the diagonal in both: the diagonal is doubled"
    yield Suspect("symmetry", twice, look_at, truth + diagonal)
    half = "the diagonal is halved, and the rest is right"
    yield Suspect("symmetry", half, look_at, truth - diagonal / 2)
    yield Suspect("symmetry", "only the diagonal is filled", look_at, diagonal)


def _asymmetric(evidence: Evidence) -> Iterator[Suspect]:
    """The symmetric part is right, and what is added to it is not symmetric, whatever it is."""
    error = evidence.values - evidence.truth
    look_at = "each term that is not symmetric by itself: its transpose belongs to the sum"
    what = "the symmetric part is right, but the matrix is not symmetric: some term stands on the wrong side"
    yield Suspect("symmetry", what, look_at, evidence.truth + (error - transposed(error)) / 2)


def _whole(terms: HessianTerms, parts: tuple[str, ...]) -> Floats:
    return np.asarray(sum(terms[part] for part in parts))


# ---------------------------------------------------------------------- wrong blocks in all of the terms


def wrong_blocks(at: References) -> Iterator[Suspect]:
    """dy_dx, v, f_xy, g_xy or g_xyy wrong wherever they stand.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> next(wrong_blocks(references(problem, [[1.0]]))).what
    'dy_dx has the wrong sign everywhere'
    """
    look_at = "dy_dx = -g_xy g_yy^-1: the minus belongs to it, and each term with one dy_dx turns its sign"
    negated = hessian_terms(at.at, dy_dx=-at.at.dy_dx).total
    yield Suspect("sign", "dy_dx has the wrong sign everywhere", look_at, negated)
    if at.problem.d == at.problem.n > 1:
        yield from _transposed(at)
    yield from _without_the_inverse(at.at)
    yield from _of_the_lower_level(at)


def _transposed(at: References) -> Iterator[Suspect]:
    """Where d = n, nothing complains of a transposed block."""
    blocks, slope, terms = at.at.blocks, at.at.dy_dx, hessian_terms(at.at)
    look_at = "the shapes on a problem with d != n: g_xy and dy_dx are d x n, rows are x"

    def instead(name: str, value: Floats) -> Floats:
        return hessian_terms(Derivatives({**blocks, name: value})).total

    turned = transposed(slope)
    turned_terms = hessian_terms(at.at, dy_dx=turned)
    curvature = turned_terms.total - turned_terms["curvature"] + terms["curvature"]
    with_quadratic = at.truth("hess_phi") - terms["quadratic"]
    ways = {
        "g_xy is transposed in dy_dx = -g_xy g_yy^-1": instead("g_xy", transposed(at.at["g_xy"])),
        "dy_dx is transposed": hessian_terms(at.at, dy_dx=turned).total,
        "dy_dx is transposed, but for the term with the third derivatives of g": curvature,
        "dy_dx is transposed in the cross terms": at.truth("hess_phi")
        + sum(turned_terms[name] - terms[name] for name in ("cross", "cross_transposed")),
        "f_xy is transposed": instead("f_xy", transposed(at.at["f_xy"])),
        "the quadratic term is dy_dx^T f_yy dy_dx": with_quadratic + turned @ at.at["f_yy"] @ slope,
        "the first two axes of g_xyy are exchanged": instead("g_xyy", at.at["g_xyy"].swapaxes(1, 2)),
    }
    for what, value in ways.items():
        yield Suspect("transpose", what, look_at, value)


def _without_the_inverse(at: Derivatives) -> Iterator[Suspect]:
    """Something else in the place of g_yy^-1: in dy_dx, in v, or in both."""
    diagonal = np.diagonal(at["g_yy"], axis1=1, axis2=2)
    ways = {
        "g_yy^-1 is missing": (-at["g_xy"], at["f_y"]),
        "g_yy stands in the place of g_yy^-1": (-at["g_xy"] @ at["g_yy"], (at["g_yy"] @ at["f_y"][..., None])[..., 0]),
        "g_yy^-1 is that of the diagonal of g_yy": (-at["g_xy"] / diagonal[:, None, :], at["f_y"] / diagonal),
    }
    for what, (slope, v) in ways.items():
        for where, dy_dx, other in (
            ("", slope, v), (" in dy_dx = -g_xy g_yy^-1", slope, None), (" in v = g_yy^-1 f_y", None, v),
        ):  # fmt: skip
            value = hessian_terms(at, dy_dx=dy_dx, v=other).total
            yield Suspect("inverse", f"{what}{where}", "the linear systems with g_yy: for dy_dx and for v", value)


def _of_the_lower_level(at: References) -> Iterator[Suspect]:
    """g in the place of f."""
    look_at = "which of f and g each derivative is taken of"
    (g_xx,) = blocks_at(at.problem.kernels, ("g_xx",), at.x, at.y)
    yield Suspect("arguments", "it is g_xx", look_at, g_xx)
    reduced = g_xx + at.at.dy_dx @ transposed(at.at["g_xy"])
    yield Suspect("arguments", "it is the Hessian of g(x, y*(x)), not of Phi", look_at, reduced)
