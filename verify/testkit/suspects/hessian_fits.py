"""Hypotheses about a Hessian of Phi that are fitted to it: another inverse, another v, another y, other weights."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping, Sequence

import numpy as np

from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.typing import Floats
from verify.points.derivatives_at import Derivatives
from verify.testkit.diagnosis import EXACT_FIT, SPARE, Cause, Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.fitting import GRID, Family, closest, fitted, flat, shows, suspect
from verify.testkit.suspects.hessian_terms import CURVATURE, HessianTerms, hessian_at, hessian_terms, transposed
from verify.testkit.suspects.inverse import SERIES, Flaw, conjugate_gradients

__all__ = ["conjugate_inverse", "free_weights", "other_v", "other_y", "wrong_inverse"]

TERMS = (1, 2, 3, 4, 5, 7, 10, 20, 50)  # of Neumann's series
STEPS = 6  # of conjugate gradients
DAMPING = np.geomspace(1e-8, 1e2, 25)  # relative to ell
SETTLED = 12  # steps of Gauss and Newton
TOLD = 1e-5  # singular values of the terms, each of length one, above which their weights can be told apart


def wrong_inverse(at: References, evidence: Evidence) -> Iterator[Suspect]:
    """A function of g_yy in the place of its inverse, in dy_dx and in v: damped, or a series cut off.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x*y + y**3", "exp(y) + y**2 - x*y", "x", "y")
    >>> at = references(problem, [[0.1], [0.2], [0.4], [2.0]])
    >>> values = hessian_terms(Derivatives({**at.at.blocks, "g_yy": at.at["g_yy"] + 0.125})).total
    >>> evidence = Evidence(values, at.truth("hess_phi"), at.floor("hess_phi"))
    >>> next(wrong_inverse(at, evidence)).what
    'g_yy + 0.125 I is inverted in the place of g_yy'
    """
    look_at = "the linear systems with g_yy, for dy_dx and for v: damping, the number of terms, the step of the series"
    rows, largest = flat(evidence), float(at.eigenvalues.max())
    damped = fitted(rows, _with_inverse(at, lambda value, damping: 1 / (value + damping)), largest * DAMPING)
    if damped is not None:
        what = f"g_yy + {damped.parameter:.3g} I is inverted in the place of g_yy"
        yield suspect(evidence, "inverse", what, look_at, damped)
    grid = GRID / largest
    families = {count: _with_inverse(at, _series(count)) for count in TERMS}
    tried = np.array([family(grid) for family in families.values()])
    for count, found in closest(rows, families, grid, tried):
        terms = f"{count} term{'s' * (count > 1)}"
        what = f"g_yy^-1 is {terms} of Neumann's series with a step of {found.parameter:.3g}"
        yield suspect(evidence, "inverse", what, look_at, found)


def conjugate_inverse(at: References, evidence: Evidence) -> Iterator[Suspect]:
    """dy_dx, row by row, and v from conjugate gradients that stop early or are wrong.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x*y1 + y2**2", "exp(y1) + y1**2 + y2**2 - x*y1 + x*y1*y2/9", "x", "y1 y2")
    >>> at = references(problem, [[0.1], [0.2], [0.4], [2.0]])
    >>> next(conjugate_inverse(at, Evidence(at.truth("hess_phi"), at.truth("hess_phi"), at.floor("hess_phi")))).what
    'dy_dx and v come from 1 step of conjugate gradients, where 2 may be needed'
    """
    n, d, b = at.problem.n, at.problem.d, at.at
    look_at = "the linear systems with g_yy, for dy_dx and for v: the loop of conjugate gradients"
    matrices = np.repeat(b["g_yy"], d, axis=0)
    for flaw, said in (
        (Flaw(), ""),
        (Flaw(step_in_residual=False), ", with no step size in the update of the residual"),
    ):
        most = min(n - 1, STEPS) if not said else STEPS
        slopes = conjugate_gradients(matrices, -b["g_xy"].reshape(-1, n), most, flaw).v
        vs = conjugate_gradients(b["g_yy"], b["f_y"], most, flaw).v
        for k in range(1, most + 1):
            dy_dx, v = slopes[k].reshape(b["g_xy"].shape), vs[k]
            short = "" if said else f", where {n} may be needed"
            what = f"{{}} from {k} step{'s' * (k > 1)} of conjugate gradients{said}{short}"
            for names, other, vector in (
                ("dy_dx and v come", dy_dx, v), ("dy_dx comes", dy_dx, None), ("v comes", None, v),
            ):  # fmt: skip
                value = hessian_terms(b, dy_dx=other, v=vector).total
                yield Suspect("inverse", what.format(names), look_at, value)


def _series(count: int) -> Callable[[Floats, Floats], Floats]:
    return lambda value, step: SERIES["truncated"](value, step, np.array(float(count)))


def _with_inverse(at: References, phi: Callable[[Floats, Floats], Floats]) -> Family:
    """The Hessian with U phi(eigenvalue, parameter) U^T for g_yy^-1, for K parameters, (K, P, d d)."""
    blocks = at.at
    eigenvalues, U = np.linalg.eigh(blocks["g_yy"])
    left, right = -blocks["g_xy"] @ U, np.asarray((transposed(U) @ blocks["f_y"][..., None])[..., 0])

    def family(parameters: Floats) -> Floats:
        with np.errstate(all="ignore"):
            filtered = phi(eigenvalues, parameters[:, None, None])
            dy_dx = (left * filtered[:, :, None, :]) @ transposed(U)
            v = np.asarray((U @ (filtered * right)[..., None])[..., 0])
            many = {name: np.broadcast_to(b, (len(parameters), *b.shape)) for name, b in blocks.blocks.items()}
            lanes = Derivatives({name: b.reshape(-1, *b.shape[2:]) for name, b in many.items()})
            total = hessian_terms(lanes, dy_dx=_lanes(dy_dx), v=_lanes(v)).total
        return total.reshape(len(parameters), len(at), -1)

    return family


def _lanes(array: Floats) -> Floats:
    return array.reshape(-1, *array.shape[2:])


# ---------------------------------------------------------------------- fitted point by point


def other_v(at: References, evidence: Evidence) -> Iterator[Suspect]:
    """A vector for v at each point that gives all entries, where there are more of them than v has.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x1*y + x2", "exp(y*x1)*(1 + x2**2) + y**2 - x2*y", ("x1", "x2"), "y")
    >>> at = references(problem, [[0.1, 0.3], [0.5, 0.7]])
    >>> values = hessian_terms(at.at, v=at.at.v + [[0.1], [0.3]]).total
    >>> [s.cause for s in other_v(at, Evidence(values, at.truth("hess_phi"), at.floor("hess_phi")))]
    ['inverse']
    """
    if not _overdetermined(at, evidence):
        return
    error = _flat(evidence.values - evidence.truth)
    units = np.eye(at.problem.n)
    columns = [hessian_terms(at.at, v=np.broadcast_to(unit, at.at.v.shape))["curvature"] for unit in units]
    matrix = np.stack([_flat(column) for column in columns], axis=2)
    change = (matrix @ (np.linalg.pinv(matrix, rcond=1e-10) @ error[..., None]))[..., 0]
    if not _explains(evidence, change):
        return
    look_at = "the linear system for v: does it have g_yy and f_y at (x, y*), and is it solved to the end?"
    what = "v in the term with the third derivatives of g is another vector than g_yy^-1 f_y"
    value = evidence.truth + change.reshape(evidence.values.shape)
    yield Suspect("inverse", what, look_at, value, _price(at, value))


def other_y(at: References, evidence: Evidence) -> Iterator[Suspect]:
    """A y at each point whose Hessian has all entries, where there are more of them than y has; by Gauss-Newton.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> problem = BilevelProblem("x1*y**2 + x2*y", "exp(y*x1) + y**2 - x2*y", ("x1", "x2"), "y")
    >>> at = references(problem, [[0.1, 0.3], [0.5, 0.7], [0.2, 0.9]])
    >>> values = hessian_at(problem, at.x, at.y + [[0.01], [-0.02], [0.01]])
    >>> [s.what for s in other_y(at, Evidence(values, at.truth("hess_phi"), at.floor("hess_phi")))]
    ['everything is evaluated at another y, up to 0.02 away from y*']
    """
    if not _overdetermined(at, evidence):
        return
    y = _settled(at, evidence)
    value = hessian_at(at.problem, at.x, y)
    change = _flat(value - evidence.truth)
    if not (np.isfinite(value).all() and _explains(evidence, change)):
        return
    away = float(np.linalg.norm(y - at.y, axis=1).max())
    look_at = "the lower-level solver: its number of steps, its step size, its stopping rule, and where it starts"
    what = f"everything is evaluated at another y, up to {away:.2g} away from y*"
    yield Suspect("y*", what, look_at, value, _price(at, value))


def _price(at: References, value: Floats) -> tuple[Floats, ...]:
    """Directions that lead nowhere: numbers fitted at each point cost more than one that serves at all of them."""
    return (np.zeros_like(value),) * (at.problem.n + 1)


def _settled(at: References, evidence: Evidence) -> Floats:
    """The y at which the formula comes closest to the values, each point by itself, from y*."""
    n, nudge = at.problem.n, 1e-6 * (1 + np.abs(at.y).max())
    steps = np.concatenate([np.zeros((1, n)), nudge * np.eye(n)])
    y = at.y
    for _ in range(SETTLED):
        moved = (y[:, None, :] + steps).reshape(-1, n)
        values = hessian_at(at.problem, np.repeat(at.x, n + 1, axis=0), moved).reshape(len(at), n + 1, -1)
        if not np.isfinite(values).all():
            break
        matrix = (values[:, 1:] - values[:, :1]).swapaxes(1, 2) / nudge
        rest = _flat(evidence.values) - values[:, 0]
        y = y + (np.linalg.pinv(matrix, rcond=1e-8) @ rest[..., None])[..., 0]
    return np.asarray(y)


def _overdetermined(at: References, evidence: Evidence) -> bool:
    """Whether n numbers a point are fewer than its entries, and the matrices are symmetric, as they would be."""
    d, n, error = at.problem.d, at.problem.n, evidence.values - evidence.truth
    lopsided = float(np.linalg.norm(error - transposed(error)))
    spare = int(evidence.telling.sum()) * (d * (d + 1) // 2 - n)
    return spare >= SPARE and lopsided <= EXACT_FIT * float(np.linalg.norm(error))


def _explains(evidence: Evidence, change: Floats) -> bool:
    telling = evidence.telling
    rest = _flat(evidence.values - evidence.truth)[telling] - change[telling]
    left = np.linalg.norm(rest, axis=1) - 10 * evidence.floor[telling]
    return bool((left <= EXACT_FIT * evidence.errors[telling]).all())


# ---------------------------------------------------------------------- weights of all terms

NAMES: Mapping[str, tuple[str, Cause]] = {
    "direct": ("f_xx", "direct"),
    "both": ("the cross terms", "cross"),
    "cross": ("dy_dx f_yx", "cross"),
    "cross_transposed": ("f_xy dy_dx^T", "cross"),
    "quadratic": ("dy_dx f_yy dy_dx^T", "quadratic"),
    "curvature": ("d2y_dx2 f_y", "third derivative"),
    **{
        part: (f"the part with {part.replace('_transposed', ', transposed')}", "third derivative") for part in CURVATURE
    },
}
SPLITS = (
    ("direct", "both", "quadratic", "curvature"),
    ("direct", "cross", "cross_transposed", "quadratic", "curvature"),
    ("direct", "cross", "cross_transposed", "quadratic", *CURVATURE),
)


def free_weights(terms: HessianTerms, evidence: Evidence) -> Iterator[Suspect]:
    """The terms with a free weight each, if these can be told apart; the cause is the weight farthest from one.

    >>> rng = np.random.default_rng(1)
    >>> terms = HessianTerms({name: rng.normal(size=(4, 2, 2)) for name in ("direct", "cross", "quadratic", *CURVATURE)}
    ...     | {"cross_transposed": rng.normal(size=(4, 2, 2))})
    >>> values = terms.total + 0.5 * terms["direct"] - 3 * terms["quadratic"]
    >>> for suspect in free_weights(terms, Evidence(values, terms.total, np.zeros(4))):
    ...     print(suspect.cause, "|", suspect.what)
    quadratic | the weights are 1.5 of f_xx, 1 of the cross terms, -2 of dy_dx f_yy dy_dx^T, 1 of d2y_dx2 f_y
    """
    for names in SPLITS:
        columns = {
            name: terms[name] if name != "both" else terms["cross"] + terms["cross_transposed"] for name in names
        }
        columns = {name: column for name, column in columns.items() if shows(evidence, column)}
        weights = _weights(evidence, tuple(columns.values()))
        if weights is None:
            continue
        what, cause = NAMES[list(columns)[first_largest(np.abs(np.asarray(weights) - 1))]]
        said = ", ".join(f"{weight:.3g} of {NAMES[name][0]}" for name, weight in zip(columns, weights, strict=True))
        look_at = f"first {what}, whose weight is farthest from one"
        yield Suspect(cause, f"the weights are {said}", look_at, 0 * evidence.truth, tuple(columns.values()))
        return


def _weights(evidence: Evidence, columns: Sequence[Floats]) -> Floats | None:
    """Least squares, each point weighted by its error; None where the terms do not fit or cannot be told apart."""
    telling = evidence.telling
    if not columns:
        return None
    scale = 1 / evidence.errors[telling][:, None]
    matrix = np.stack([(_flat(column)[telling] * scale).ravel() for column in columns], axis=1)
    right = (_flat(evidence.values)[telling] * scale).ravel()
    lengths = np.linalg.norm(matrix, axis=0)
    if len(right) < len(columns) + SPARE or not lengths.all():
        return None
    U, singular, Vt = np.linalg.svd(matrix / lengths, full_matrices=False)
    if singular[-1] < TOLD:
        return None
    weights = (Vt.T @ ((U.T @ right) / singular)) / lengths
    left = float(np.linalg.norm(right - matrix @ weights)) / math.sqrt(telling.sum())
    return weights if left <= 1e-4 else None


def _flat(matrices: Floats) -> Floats:
    return matrices.reshape(len(matrices), -1)
