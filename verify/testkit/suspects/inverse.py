"""Hypotheses about g_yy v = f_y: something else in the place of g_yy, or a solver that does not arrive.

What defective solvers return for g_yy v = f_y: iterates of conjugate gradients, partial sums of Neumann's series.

One system a point: matrices (P, n, n), right sides (P, n). Series are functions of the eigenvalues, so that many step
sizes and many lengths cost as much as one.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from types import MappingProxyType
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.estimators.linear_system import ZERO_RESIDUAL
from bilevel_sym.typing import Floats, Indices
from verify.testkit.diagnosis import Cause, Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.fitting import fitted, promising, steps
from verify.testkit.suspects.lower_iterates import apply, solved

__all__ = ["SERIES", "Filter", "Flaw", "Iterates", "Spectrum", "conjugate_gradients", "inverse_suspects"]

Filter: TypeAlias = Callable[[Floats, Floats, Floats], Floats]  # (eigenvalue, step, number of terms) -> v in its place


@dataclass(frozen=True)
class Flaw:
    """What is wrong with an implementation of conjugate gradients; without arguments nothing is.

    ``beta``: "right", "none" (steepest descent), "inverted" or "one". ``old_residual``: the new direction is made of
    the residual before the step.
    """

    step_in_solution: bool = True
    step_in_residual: bool = True
    beta: str = "right"
    old_residual: bool = False


@dataclass(frozen=True, eq=False)
class Iterates:
    """v_0, ..., v_N, (N + 1, P, n), and the norms of what the solver takes for its residual, (N + 1, P).

    >>> Iterates(np.zeros((2, 1, 1)), np.array([[1.0], [0.0]])).stopped(0.5)
    array([1])
    """

    v: Floats
    residuals: Floats

    def stopped(self, tolerance: float) -> Indices:
        """At each point, the first iterate whose residual is at most that; the last one if there is none."""
        small = self.residuals <= tolerance
        return np.where(small.any(axis=0), small.argmax(axis=0), len(small) - 1)

    def at(self, numbers: Indices) -> Floats:
        """One iterate a point, (P, n)."""
        return np.asarray(self.v[numbers, np.arange(len(numbers))])


RIGHT = Flaw()


def conjugate_gradients(A: Floats, b: Floats, steps: int, flaw: Flaw = RIGHT, start: Floats | None = None) -> Iterates:
    """The iterates for A v = b from ``start`` (default 0); a point without a residual stays where it is.

    >>> A, b = np.array([[[2.0, 0.0], [0.0, 4.0]]]), np.ones((1, 2))
    >>> conjugate_gradients(A, b, 2).v[:, 0].round(12).tolist()
    [[0.0, 0.0], [0.333333333333, 0.333333333333], [0.5, 0.25]]
    >>> conjugate_gradients(A, b, 1, Flaw(step_in_solution=False)).v[1, 0].tolist()
    [1.0, 1.0]
    """
    with np.errstate(all="ignore"):
        v = np.zeros_like(b) if start is None else start
        r = b - apply(A, v)
        p, size = r, np.square(r).sum(axis=1)
        found, sizes = [v], [size]
        for _ in range(steps):
            image = apply(A, p)
            alpha = _ratio(size, (p * image).sum(axis=1))
            v = v + (alpha if flaw.step_in_solution else np.sign(alpha)) * p
            old, r = r, r - (alpha if flaw.step_in_residual else np.sign(alpha)) * image
            size, before = np.square(r).sum(axis=1), size
            p = (old if flaw.old_residual else r) + _beta(flaw.beta, size, before) * p
            found.append(v)
            sizes.append(size)
        return Iterates(np.array(found), np.sqrt(np.array(sizes)))


def _beta(kind: str, size: Floats, before: Floats) -> Floats:
    if kind == "none":
        return np.zeros((len(size), 1))
    if kind == "one":
        return np.ones((len(size), 1))
    return _ratio(before, size) if kind == "inverted" else _ratio(size, before)


def _ratio(over: Floats, under: Floats) -> Floats:
    return np.asarray(np.where((over > ZERO_RESIDUAL) & (under != 0), over / under, 0.0)[:, None])


def _partial(value: Floats, step: Floats, terms: Floats) -> Floats:
    return np.asarray((1 - (1 - step * value) ** terms) / value)


# v as a function of the eigenvalue: the sum of step (1 - step eigenvalue)^q over q < terms, and what is made of it
SERIES: Mapping[str, Filter] = MappingProxyType(
    {
        "truncated": _partial,
        "first term missing": lambda value, step, terms: _partial(value, step, terms + 1) - step,
        "first term twice": lambda value, step, terms: _partial(value, step, terms) + step,
        "step missing": lambda value, step, terms: _partial(value, step, terms) / step,
        "last term alone": lambda value, step, terms: step * (1 - step * value) ** terms,
    }
)


@dataclass(frozen=True, eq=False)
class Spectrum:
    """The systems in eigenvectors: v = U phi(eigenvalues) U^T f_y, then -g_xy v.

    >>> at = Spectrum.of(np.array([[[2.0]]]), np.array([[3.0]]), np.array([[[-1.0]]]))
    >>> at.implicit(SERIES["truncated"], np.array([1, 60]), np.array([0.25])).round(6).tolist()  # 3/4, and 3/2
    [[[[0.75]]], [[[1.5]]]]
    """

    eigenvalues: Floats
    right: Floats  # U^T f_y, (P, n)
    cross: Floats  # -g_xy U, (P, d, n)

    @classmethod
    def of(cls, g_yy: Floats, f_y: Floats, g_xy: Floats) -> Spectrum:
        """From the blocks at the points."""
        eigenvalues, vectors = np.linalg.eigh(g_yy)
        return cls(eigenvalues, apply(vectors.swapaxes(1, 2), f_y), -g_xy @ vectors)

    def implicit(self, phi: Filter, terms: NDArray[np.integer], step: Floats) -> Floats:
        """-g_xy v for each number of terms Q and each of K step sizes, (Q, K, P, d)."""
        with np.errstate(all="ignore"):
            filtered = phi(self.eigenvalues[:, None, None], step[:, None], terms[:, None, None].astype(float)[None])
            v = filtered * self.right[:, None, None]
            products = v.reshape(len(v), -1, v.shape[-1]) @ self.cross.swapaxes(1, 2)
        shaped = products.reshape(*v.shape[:3], -1)
        return np.asarray(np.moveaxis(shaped, 0, 2))


MOST_ITERATES = 12  # iterates of conjugate gradients that are looked at
TERMS = (*range(1, 33), 39, 40, 41, 49, 50, 51, 64, 99, 100, 101)
TOLERANCES = (*(10.0**-k for k in range(12, 3, -1)), *(10.0 ** (-k / 4) for k in range(12, 1, -1)))
USUAL, TIGHT = 1e-2, 1e-4  # tolerances that people choose; those at which a dropped iterate is the last but one
SOLVER = "the solver of g_yy v = f_y"
LOOSE = f"the tolerance of {SOLVER}: it decides how many digits the hypergradient has"
RESIDUAL = "the step size is missing from the update of the residual, r -= alpha A p"
FLAWS = (
    (Flaw(step_in_residual=False), RESIDUAL),
    (Flaw(step_in_solution=False), "the step size is missing from the update of the solution, v += alpha p"),
    (Flaw(step_in_solution=False, step_in_residual=False), "the step size is missing from both updates"),
    (Flaw(beta="none"), "beta is zero, so that these are steps of steepest descent"),
    (Flaw(beta="inverted"), "beta is inverted; the new residual belongs above, the old one below"),
    (Flaw(old_residual=True), "the new direction is made of the old residual, p = r + beta p before r is updated"),
    (Flaw(beta="one"), "beta is missing from p = r + beta p"),
    (Flaw(step_in_residual=False, beta="none"), f"{RESIDUAL}, and beta is zero"),
)
SUMS = (
    ("truncated", "v is the sum of {0} of Neumann's series (or as many gradient steps) with step {1}"),
    ("first term missing", "Neumann's series lacks its first term: {0} from q = 1, with step {1}"),
    ("first term twice", "Neumann's series counts its first term twice: {0} with step {1}"),
    ("step missing", "the step {1} is missing before the sum of {0} of Neumann's series"),
    ("last term alone", "nothing is summed: v is Neumann's series' last of {0} after the first, with step {1}"),
)  # fmt: skip


def inverse_suspects(at: References, evidence: Evidence) -> Iterator[Suspect]:
    """What hypergradients return whose v is wrong, everything else being right.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.testkit.reference import references
    >>> at = references(BilevelProblem("x*y", "y**2 - x*y", "x", "y"), [[4.0]])
    >>> seen = Evidence(np.zeros((1, 1)), at.truth("grad_phi"), at.floor("grad_phi"))
    >>> next(inverse_suspects(at, seen)).what
    'g_yy is missing: v is f_y'
    """
    yield from _replaced(at)
    yield from _too_early(at, usual=True)
    yield from _conjugate_gradients(at)
    yield from _too_early(at, usual=False)
    yield from _normal_equations(at)
    yield from _flawed(at)
    yield from _one_term(at, evidence)
    yield from _series(at, evidence)
    yield from _damped(at, evidence)


def _with(at: References, v: Floats, what: str, look: str = SOLVER, cause: Cause = "inverse") -> Suspect:
    with np.errstate(all="ignore"):
        return Suspect(cause, what, look, at.at["f_x"] - apply(at.at["g_xy"], v))


def _replaced(at: References) -> Iterator[Suspect]:
    """Something else than g_yy^-1 is applied to f_y."""
    f_x, f_y, g_xy, g_yy = (at.at[name] for name in ("f_x", "f_y", "g_xy", "g_yy"))
    lower = np.tril(g_yy)
    yield _with(at, f_y, "g_yy is missing: v is f_y")
    yield _with(at, apply(g_yy, f_y), "v is g_yy f_y: it is multiplied where it should be solved")
    yield _with(at, f_y / np.einsum("pii->pi", g_yy), "only the diagonal of g_yy is inverted")
    yield _with(at, f_y / at.eigenvalues[:, -1:], "v is f_y divided by the largest eigenvalue of g_yy")
    yield _with(at, solved(g_yy, at.at.v), "g_yy^-1 is applied twice")
    yield _with(at, solved(lower, f_y), "only the lower triangle of g_yy is inverted")
    yield _with(at, solved(lower.swapaxes(1, 2), f_y), "only the upper triangle of g_yy is inverted")
    number = "v is {0:.4g} times f_y: a number stands in the place of g_yy^-1"
    yield Suspect("inverse", number, SOLVER, f_x, (-apply(g_xy, f_y),))


def _conjugate_gradients(at: References) -> Iterator[Suspect]:
    """A right recursion of which another iterate than the last is returned."""
    g_yy, f_y, n = at.at["g_yy"], at.at["f_y"], at.problem.n
    iterates = conjugate_gradients(g_yy, f_y, min(n, MOST_ITERATES) + 1)
    leaves = f"{SOLVER}: a loop that is left by break before the newest iterate is stored, or a loop that is too short"
    dropped = "v is the iterate before the last of conjugate gradients: the last one is dropped"
    for numbers in _stops(iterates, f_y, [t for t in TOLERANCES if t <= TIGHT]):
        yield _with(at, iterates.at(np.maximum(numbers - 1, 0)), dropped, leaves)
    begun = conjugate_gradients(g_yy, f_y, min(n, MOST_ITERATES), start=f_y)
    for k in range(1, min(n, MOST_ITERATES + 1)):
        what = f"v is iterate {k} of conjugate gradients, {'one step ' * (k == 1)}where {n} may be needed"
        yield _with(at, iterates.v[k], what, leaves)
        yield _with(at, begun.v[k], f"{what}; they started at f_y", leaves)


def _too_early(at: References, usual: bool) -> Iterator[Suspect]:
    """Conjugate gradients that stop where the residual is below a tolerance: one that people choose, or looser."""
    iterates = conjugate_gradients(at.at["g_yy"], at.at["f_y"], min(at.problem.n, MOST_ITERATES))
    for numbers in _stops(iterates, at.at["f_y"], [t for t in TOLERANCES if (t <= USUAL) == usual]):
        what = f"conjugate gradients stop too early, after {_steps(numbers)}: a loose tolerance"
        yield _with(at, iterates.at(numbers), what, LOOSE, "tolerance")


def _normal_equations(at: References) -> Iterator[Suspect]:
    """g_yy^2 v = g_yy f_y in the place of g_yy v = f_y: as many digits cost more steps, and a tolerance means less."""
    g_yy, f_y = at.at["g_yy"], at.at["f_y"]
    squared, right = g_yy @ g_yy, apply(g_yy, f_y)
    iterates = conjugate_gradients(squared, right, 2 * min(at.problem.n, MOST_ITERATES))
    behind = np.linalg.norm(f_y - apply(g_yy, iterates.v), axis=2)  # some look at the system itself
    for kind, sides in ((iterates, right), (Iterates(iterates.v, behind), f_y)):
        for numbers in _stops(kind, sides, TOLERANCES):
            what = f"conjugate gradients on the normal equations, a loose tolerance: {_steps(numbers)}"
            yield _with(at, iterates.at(numbers), what, LOOSE, "tolerance")


def _steps(numbers: Indices) -> str:
    return f"{numbers.min()} to {numbers.max()} steps" if np.ptp(numbers) else f"{numbers[0]} steps"


def _stops(iterates: Iterates, right: Floats, tolerances: Sequence[float]) -> list[Indices]:
    """At which iterate a solver stops at each point, for tight and then loose tolerances; each pattern once."""
    relative = Iterates(iterates.v, iterates.residuals / np.maximum(np.linalg.norm(right, axis=1), 1e-300))
    found = [kind.stopped(tolerance) for tolerance in tolerances for kind in (relative, iterates)]
    return list({tuple(numbers): numbers for numbers in found}.values())


def _flawed(at: References) -> Iterator[Suspect]:
    """A wrong recursion, stopped after any number of steps."""
    look = f"{SOLVER}: the updates of conjugate gradients, v += alpha p, r -= alpha A p, p = r + beta p"
    for flaw, what in FLAWS:
        iterates = conjugate_gradients(at.at["g_yy"], at.at["f_y"], MOST_ITERATES, flaw)
        for k in range(1, MOST_ITERATES + 1):
            yield _with(at, iterates.v[k], f"conjugate gradients, {k} step{'s' * (k > 1)}: {what}", look)


def _one_term(at: References, evidence: Evidence) -> Iterator[Suspect]:
    """A series long enough to be exact, whose first term is missing or counted twice."""
    term = apply(at.at["g_xy"], at.at["f_y"])
    telling = evidence.telling
    error = ((evidence.values - evidence.truth) * term)[telling] / evidence.errors[telling, None] ** 2
    look = "the sum over q of Neumann's series: does it start at q = 0, and is no term added twice?"
    if error.sum() > 0:
        what = "Neumann's series lacks a term: v is short of {0:.4g} f_y"
        yield Suspect("inverse", what, look, evidence.truth, (term,))
        own = "Neumann's series lacks a term: v is short of {0:.4g} f_y/lambda_max"
    else:
        what = "Neumann's series has a term too many: v has {0:.4g} f_y in excess"
        term = -term
        yield Suspect("inverse", what, look, evidence.truth, (term,))
        own = "Neumann's series has a term too many: v has {0:.4g} f_y/lambda_max in excess"
    largest = at.eigenvalues[:, -1:]
    yield Suspect("inverse", own, look, evidence.truth, (term / largest,))
    implicit, missing = (
        -apply(at.at["g_xy"], at.at.v),
        "the step 1/({0:.4g} lambda_max) is missing before Neumann's sum",
    )
    yield Suspect("inverse", missing, look, at.at["f_x"], (implicit * largest,))


def _series(at: References, evidence: Evidence) -> Iterator[Suspect]:
    """Partial sums of Neumann's series; the step is one number for all points."""
    spectrum = Spectrum.of(at.at["g_yy"], at.at["f_y"], at.at["g_xy"])
    yield from _sums_with(at, evidence, {kind: spectrum for kind, _ in SUMS}, float(at.eigenvalues.max()), "")
    largest = at.eigenvalues[:, -1:]
    if np.ptp(largest) > 1e-9 * largest.max():  # a step made for each point is then another defect
        own = Spectrum(spectrum.eigenvalues / largest, spectrum.right / largest, spectrum.cross)
        whole = Spectrum(own.eigenvalues, spectrum.right, spectrum.cross)  # without the step, none of it divides
        systems = {kind: whole if kind == "step missing" else own for kind, _ in SUMS}
        yield from _sums_with(at, evidence, systems, 1.0, "/lambda_max")


def _sums_with(
    at: References, evidence: Evidence, systems: Mapping[str, Spectrum], largest: float, unit: str
) -> Iterator[Suspect]:
    """Sums of the series, steps being counted in some unit."""
    grid, f_x, terms = steps(largest), at.at["f_x"], np.array(TERMS)
    look = "the step of Neumann's series (at most 1/ell) and its number of terms (kappa times the digits)"
    for kind, said in SUMS:
        spectrum = systems[kind]
        tried = f_x + spectrum.implicit(SERIES[kind], terms, grid)
        for row, place in promising(evidence, tried):
            family = partial(_sums, f_x, spectrum, SERIES[kind], terms[row : row + 1])
            if found := fitted(evidence, family, grid, place):
                what = said.format(f"{TERMS[row]} term{'s' * (TERMS[row] > 1)}", f"{found.parameter:.4g}{unit}")
                if found.parameter * largest > 2:
                    what += f", above 2/ell = {2 / largest:.4g}{unit}, where the series diverges"
                yield Suspect("inverse", what, look, found.value, (found.tangent,))


def _sums(f_x: Floats, spectrum: Spectrum, phi: Filter, terms: NDArray[np.int_], step: Floats) -> Floats:
    return np.asarray(f_x + spectrum.implicit(phi, terms, step)[0])


def _damped(at: References, evidence: Evidence) -> Iterator[Suspect]:
    spectrum = Spectrum.of(at.at["g_yy"], at.at["f_y"], at.at["g_xy"])
    grid = np.geomspace(1e-12, 1e3, 61) * float(at.eigenvalues.max())
    family = partial(_sums, at.at["f_x"], spectrum, lambda value, step, _: 1 / (value + step), np.array([1]))
    look = "a damping or a regularisation of the linear system: it must be the one of g"
    for shifts in (grid, -grid[grid < 0.99 * at.eigenvalues.min()]):
        if len(shifts) > 1 and (found := fitted(evidence, family, shifts)):
            what = f"g_yy {'-+'[found.parameter > 0]} {abs(found.parameter):.4g} I stands in the place of g_yy"
            yield Suspect("inverse", what, look, found.value, (found.tangent,))
