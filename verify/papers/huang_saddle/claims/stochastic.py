"""Stochastic problems: the assumptions on the data, and how close the mean of a batch is to the mean of all."""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence

import numpy as np
from flint import arb, arb_mat

from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.schedules.batches import concentration, tensor_concentration
from bilevel_sym.typing import Floats
from verify.papers.huang_saddle.measures.agreement import Case, tightest
from verify.papers.huang_saddle.measures.stochastic.batch_moments import failure_probability, second_moment
from verify.papers.huang_saddle.measures.stochastic.samples import (
    SAMPLE_BITS,
    Samples,
    ends,
    samples_of,
    spread,
    squares,
)
from verify.papers.huang_saddle.measures.stochastic.stocbio_bounds import solved_points
from verify.registry import ALL_Y, INSIDE, Kind, claim
from verify.study import Study
from verify.verdict import Bracket, CheckResult, Verdict, by_definition, judged

REGION = ALL_Y + INSIDE

KINDS: tuple[Kind, ...] = ("stochastic",)
DELTAS = (0.1, 0.5)
SPREAD_POINTS = 6  # points at which the spread of the rows is looked at
POINTS = 20  # at which the curvature of every row is looked at


@claim("ass:stoc", kinds=KINDS)
def every_row_is_regular(study: Study) -> CheckResult:
    """Every data row satisfies the bilevel assumption: each G is strongly convex in y, all derivatives are bounded.

    mu <= the least eigenvalue of g_yy of every row over the box, and mu > 0

    Paper: Assumption 4.3 [ass:stoc]
    Assumes: the box; over all of R^n no strongly convex g has a bounded gradient.
    """
    samples = samples_of(study)
    with precision(SAMPLE_BITS):
        seen, point = _least_curvature(samples)
    if seen.upper <= 0:
        message = "a row of G is not strongly convex in y"
        return CheckResult(
            label="ass:stoc", verdict=Verdict.VIOLATED, message=message, measured=0.0, bound=seen.upper,
            evidence="certified", worst_point=point,
        )  # fmt: skip
    c = samples.constants(*samples.ends)
    message = f"mu >= {c.mu:.4g}, ell <= {c.ell:.4g}, rho <= {c.rho:.4g}, nu <= {c.nu:.4g}, M <= {c.M:.4g} for each row"
    return judged(
        "ass:stoc", c.mu, seen.upper, evidence="certified", message=message, worst_point=point,
        n_points=sum(samples.sizes.values()),
    )  # fmt: skip


def _least_curvature(samples: Samples) -> tuple[Bracket, dict[str, float]]:
    """The least Rayleigh quotient of g_yy that was seen, over rows and points; it bounds mu from above."""
    least, where = Bracket(math.inf, math.inf), dict[str, float]()
    for x, y, at in _looks(samples, ("g_yy",), POINTS, "curvature"):
        for row in at["g_yy"]:
            if not np.isfinite(_floats(row)).all():
                continue
            _, vectors = np.linalg.eigh(_floats(row))
            vector = arb_mat(len(y), 1, [float(value) for value in vectors[:, 0]])
            quotient = ends((vector.transpose() * row * vector)[0, 0] / squares(vector))
            if quotient.upper < least.upper:
                least, where = quotient, samples.study.named(x, y)
    return least, where


def _looks(
    samples: Samples, names: tuple[str, ...], count: int, rng: str
) -> Iterator[tuple[Floats, Floats, dict[str, list[arb_mat]]]]:
    """Blocks of all rows, at the middle of the box and at random points (x, y) of it."""
    low, high = samples.ends
    for share in (np.full(len(low), 0.5), *samples.study.rng(rng).random((count, len(low)))):
        x, y = np.split(low + (high - low) * share, [samples.problem.d])
        yield x, y, samples.at(names, [arb(float(v)) for v in x], [arb(float(v)) for v in y])


@claim("ass:variance-bound", kinds=KINDS)
def variance_of_the_gradient(study: Study) -> CheckResult:
    """The variance of grad G is bounded over the box, by sigma^2.

    E|grad G(x, y; zeta) - grad g(x, y)|^2 <= sigma^2, which names sigma, and holds by definition; what can fail is that
    rows at points deviate by no more than the sigma that was bounded

    Paper: Assumption 4.4 [ass:variance-bound]
    """
    samples = samples_of(study)
    sigma, variance = samples.sigma, samples.variance
    with precision(SAMPLE_BITS):
        seen, where = _largest_deviation(samples)
    if seen.lower > sigma.upper:  # rows at points know nothing of the formula that was bounded
        return judged(
            "ass:variance-bound", seen, sigma.upper, evidence="certified", worst_point=where,
            message=f"rows of grad G at a point differ by more than sigma in {sigma}", n_points=samples.sizes["g"],
        )  # fmt: skip
    told = f"sigma in {sigma}" + ("; it does not depend on the point" if isinstance(variance, Bracket) else "")
    return by_definition("ass:variance-bound", told)


def _largest_deviation(samples: Samples) -> tuple[Bracket, dict[str, float]]:
    """The largest standard deviation of grad G that was seen, row by row at the middle and at random points."""
    most, where = Bracket(0.0, 0.0), dict[str, float]()
    for x, y, rows in _looks(samples, ("g_x", "g_y"), SPREAD_POINTS, "deviation"):
        apart = [sum((squares(m) for m in spread(rows[name])), arb(0)) for name in ("g_x", "g_y")]
        seen = ends(((apart[0] + apart[1]) / samples.sizes["g"]).nonnegative_part().sqrt())
        if math.isfinite(seen.upper) and seen.lower > most.lower:
            most, where = seen, samples.study.named(x, y)
    return most, where


@claim("lem:err-grad", kinds=KINDS, also=("unlabelled:batch-gradient",))
def batch_gradients(study: Study) -> CheckResult:
    """The mean gradient of a large batch is close to that of all data, with probability 1 - delta.

    |grad F_D - grad F| <= eps for D >= 16 M^2 log(2 m/delta)/eps^2, m = max(d, n)

    Paper: Lemma D.2 [lem:err-grad]
    Assumes: Assumption 4.3 [ass:stoc]; F may be scaled, so that eps in (0, 1) is no restriction.
    Deviation: the print divides the sum by n and adds up F; by the batch size, and grad F, are meant, and so read. It
    takes the dimension d of x also for derivatives in y. It applies the lemma to g_y, which M does not bound (see the
    erratum): as printed it is judged for F alone, and otherwise with the largest sample for M. "sharp": D >=
    8 M^2 log(2/delta)/eps^2 in any dimension, as the sum of D vectors of norm at most 2 M exceeds t with probability at
    most 2 exp(-t^2/(8 D M^2)) (Pinelis).
    """
    names = ("f_x", "f_y") if study.variant == "printed" else ("f_x", "f_y", "g_y")
    return _concentration(study, "lem:err-grad", names)


@claim("lem:err-hess", kinds=KINDS, also=("unlabelled:batch-hessian",))
def batch_hessians(study: Study) -> CheckResult:
    """The mean Hessian of a large batch is close to that of all data, with probability 1 - delta.

    |Hess F_D - Hess F| <= eps for D >= 16 ell^2 log(2 m/delta)/eps^2, m = max(d, n)

    Paper: Lemma D.1 [lem:err-hess]
    Assumes: Assumption 4.3 [ass:stoc]; F may be scaled, so that eps in (0, 1) is no restriction.
    Deviation: the print divides the sum by n, where the batch size is meant, and so read; it has L for ell, and d for
    blocks in y, which fails for large n (see the erratum). "sharp": D >=
    (2 ell^2 + 4 ell eps/3) log(2 m/delta)/eps^2, the matrix Bernstein inequality with |E X^2| <= ell^2, |X| <= 2 ell.
    """
    return _concentration(study, "lem:err-hess", ("f_xx", "f_xy", "f_yy", "g_xy", "g_yy"))


@claim("lem:err-third", kinds=KINDS, also=("unlabelled:batch-third",))
def batch_third_derivatives(study: Study) -> CheckResult:
    """The mean third derivative of a large batch is close to that of all data, with probability 1 - delta.

    |D^3 G_D - D^3 G| <= eps for D >= 16 m rho^2 log((m + m^2)/delta)/eps^2, m = max(d, n)

    Paper: Lemma D.3 [lem:err-third]
    Assumes: Assumption 4.3 [ass:stoc]; G may be scaled, so that eps in (0, 1) is no restriction.
    Deviation: the print divides the sum by n, where the batch size is meant, and so read. It has 16 rho^2
    log(2 d/delta)/eps^2 with a proof that is said to be that for matrices, and does not extend to tensors (see the
    erratum). The probability is bounded by second moments in the sum of squares, which bounds the norm.
    """
    return _concentration(study, "lem:err-third", ("g_xxy", "g_xyy", "g_yyy"))


def _concentration(study: Study, label: str, names: Sequence[str]) -> CheckResult:
    samples, variant = samples_of(study), study.variant
    with precision(SAMPLE_BITS):
        cases = list(_concentration_cases(samples, names, variant))
    exact = bool(cases) and all(case.measured.upper == 0 for case in cases)
    return tightest(
        label,
        cases,
        evidence="proved" if exact else "certified",
        message="no batch is off at all" if exact else "probability of failure against delta",
    )


def _concentration_cases(samples: Samples, names: Sequence[str], variant: Variant) -> Iterator[Case]:
    for solved in solved_points(samples):
        point = samples.study.named(solved.x, np.array([float(ball) for ball in solved.y]))
        for name in names:
            rows = samples.at((name,), solved.balls, solved.y)[name]
            largest = max(_norm_below(row) for row in rows)
            if not samples.is_noisy(name) and all(entry == 0 for entry in rows[0].entries()):
                yield Case(Bracket(0.0, 0.0), Bracket(DELTAS[0], DELTAS[0]), point, f"{name} vanishes")
            # rows that agree up to the balls cannot be told from equal ones
            if largest > 0 and (not samples.is_noisy(name) or second_moment(rows) > 1e-60 * largest**2):
                for delta in DELTAS:
                    yield _concentration_case(samples, name, rows, largest, delta, variant, point)


def _concentration_case(
    samples: Samples,
    name: str,
    rows: list[arb_mat],
    largest: float,
    delta: float,
    variant: Variant,
    point: dict[str, float],
) -> Case:
    """At the smallest bound on a sample that the point allows, which asks for the smallest batch."""
    furthest = max(float(squares(row)) for row in spread(rows)) ** 0.5
    eps = 0.9 * furthest if furthest > 0 else largest / 2
    dimension = max(samples.problem.d, samples.problem.n)
    if variant == "printed":
        size = concentration(largest, eps, delta, samples.problem.d)
    elif len(name) == len("g_xxy"):
        size = tensor_concentration(largest, eps, delta, dimension)
    elif variant == "sharp":
        size = _sharp_size(name, largest, eps, delta, dimension)
    else:
        size = concentration(largest, eps, delta, dimension)
    failure = failure_probability(rows, size, eps)
    # where the second moment is enough, nothing finer is claimed
    chebyshev = second_moment(rows) / size / eps**2
    if failure.upper <= chebyshev <= delta:
        failure = Bracket(failure.lower, chebyshev)
    return Case(failure, Bracket(delta, delta), point, f"{name}, eps = {eps:.3g}, {size} rows, delta = {delta}")


def _sharp_size(name: str, norm: float, eps: float, delta: float, dimension: int) -> int:
    if len(name) == len("f_x"):
        return math.ceil(8 * norm**2 * math.log(2 / delta) / eps**2)
    return math.ceil((2 * norm**2 + 4 * norm * eps / 3) * math.log(2 * dimension / delta) / eps**2)


def _norm_below(matrix: arb_mat) -> float:
    """A lower bound of the norm: |A v|/|v| for the singular vector v that floats give."""
    _, _, right = np.linalg.svd(_floats(matrix))
    vector = arb_mat(matrix.ncols(), 1, [float(value) for value in right[0]])
    quotient = ends(squares(matrix * vector) / squares(vector)).lower
    return math.sqrt(max(quotient, 0.0)) * (1 - 1e-15)


def _floats(matrix: arb_mat) -> Floats:
    return np.array([[float(entry) for entry in row] for row in matrix.table()])
