"""Hypotheses about g_yy v = f_y: something else in the place of g_yy, or a solver that does not arrive."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import partial

import numpy as np
from numpy.typing import NDArray

from bilevel_sym.typing import Floats, Indices
from verify.testkit.diagnosis import Cause, Evidence, Suspect
from verify.testkit.reference import References
from verify.testkit.suspects.fitting import fitted, promising, steps
from verify.testkit.suspects.linear_solvers import SERIES, Filter, Flaw, Iterates, Spectrum, conjugate_gradients
from verify.testkit.suspects.lower_iterates import apply, solved

__all__ = ["inverse_suspects"]

MOST_ITERATES = 12  # iterates of conjugate gradients that are looked at
TERMS = (*range(1, 33), 39, 40, 41, 49, 50, 51, 64, 99, 100, 101)
TOLERANCES = (*(10.0**-k for k in range(12, 3, -1)), *(10.0 ** (-k / 4) for k in range(12, 1, -1)))
SOLVER = "the solver of g_yy v = f_y"
RESIDUAL = "the step size is missing from the update of the residual, r -= alpha A p"
FLAWS = (
    (Flaw(step_in_residual=False), RESIDUAL),
    (Flaw(step_in_solution=False), "the step size is missing from the update of the solution, v += alpha p"),
    (Flaw(step_in_solution=False, step_in_residual=False), "the step size is missing from both updates"),
    (Flaw(beta="none"), "beta is zero, so that these are steps of steepest descent"),
    (Flaw(beta="inverted"), "beta is inverted; the new residual belongs above, the old one below"),
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
    yield from _conjugate_gradients(at)
    yield from _too_early(at)
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
    for numbers in _stops(iterates, f_y):
        yield _with(at, iterates.at(np.maximum(numbers - 1, 0)), dropped, leaves)
    begun = conjugate_gradients(g_yy, f_y, min(n, MOST_ITERATES), start=f_y)
    for k in range(1, min(n, MOST_ITERATES + 1)):
        what = f"v is iterate {k} of conjugate gradients, where {n} may be needed"
        yield _with(at, iterates.v[k], what, leaves)
        yield _with(at, begun.v[k], f"{what}; they started at f_y", leaves)


def _too_early(at: References) -> Iterator[Suspect]:
    """Conjugate gradients that stop where the residual is below a loose tolerance."""
    iterates = conjugate_gradients(at.at["g_yy"], at.at["f_y"], min(at.problem.n, MOST_ITERATES))
    look = f"the tolerance of {SOLVER}: it decides how many digits the hypergradient has"
    for numbers in _stops(iterates, at.at["f_y"]):
        few = f"{numbers.min()} to {numbers.max()} steps" if np.ptp(numbers) else f"{numbers[0]} steps"
        what = f"conjugate gradients stop too early, after {few}: a loose tolerance"
        yield _with(at, iterates.at(numbers), what, look, "tolerance")


def _stops(iterates: Iterates, right: Floats) -> list[Indices]:
    """At which iterate a solver stops at each point, for tight and then loose tolerances; each pattern once."""
    relative = Iterates(iterates.v, iterates.residuals / np.maximum(np.linalg.norm(right, axis=1), 1e-300))
    found = [kind.stopped(tolerance) for tolerance in TOLERANCES for kind in (relative, iterates)]
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
