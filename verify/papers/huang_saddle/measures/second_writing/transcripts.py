"""Transcripts: the formulas of the theory written down once more, in 50 digits, beside the ones that are shipped.

Each is in another form than the shipped one, or is a property that determines it: a smallest number suffices, and one
less does not. What is corrected in the print is corrected here.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import replace
from decimal import Decimal
from typing import Any

import mpmath

from bilevel_sym import Constants, MinimaxConstants, neumann_batch_sizes
from bilevel_sym.graph.precision import mpmath_digits
from bilevel_sym.theories.huang_saddle.schedules import batches, inner
from bilevel_sym.theories.huang_saddle.schedules.aid import perturbed_accuracy
from bilevel_sym.theories.huang_saddle.schedules.escape import NEON, PERTURBED, Escape, Pace, escape_of
from bilevel_sym.theories.huang_saddle.schedules.goal import Goal, Smoothness
from bilevel_sym.theories.huang_saddle.schedules.neon import curvature_step
from bilevel_sym.theories.huang_saddle.schedules.stochastic import stocbio_steps
from verify.papers.huang_saddle.measures.agreement import Agreement

DIGITS = 50
ROUNDED = 1e-11  # relative: a few dozen roundings

mpf = mpmath.mpf


def compared_items(pairs: Mapping[str, tuple[Any, Any]], case: str) -> Iterator[Agreement]:
    """Shipped against written down, relative to the size; whole numbers must be equal.

    >>> [item.ratio for item in compared_items({"a half": (0.5, mpf(1) / 2), "two": (3, 2)}, "numbers")]
    [0.0, 2.0]
    """
    for name, (shipped, wanted) in pairs.items():
        if isinstance(wanted, (bool, int)):
            yield Agreement(f"{name} of {case}", float(shipped != wanted), 0.5)
            continue
        apart = float(abs(mpf(shipped) - mpf(wanted)) / max(abs(mpf(wanted)), mpf("1e-300")))
        yield Agreement(f"{name} of {case}", apart, ROUNDED)


def _least(bound: Any, start: int = 1) -> int:
    """The smallest n >= 1 for which ``bound(n)`` holds, which then holds for all larger ones."""
    high = start
    while not bound(high):
        high *= 2
    low = high // 2
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if bound(middle) else (middle, high)
    return high


def steps_needed(factor: Any, target: Any, rate: Any) -> int:
    """The smallest n >= 1 with factor rate^n <= target.

    >>> steps_needed(8, 1, 0.5)
    3
    """
    return _least(lambda n: mpf(factor) * mpf(rate) ** n <= mpf(target))


# ---- constants -------------------------------------------------------------------------------------------------------


def of_constants(c: Constants) -> Iterator[Agreement]:
    """L_phi, rho_phi and the bounds on the error of AID, each in another form.

    >>> max(item.ratio for item in of_constants(Constants(1.0, 2.0, 1.0, 1.0, 1.0))) <= 1
    True
    """
    with mpmath_digits(DIGITS):
        mu, ell, rho, nu, M = (mpf(float(value)) for value in (c.mu, c.ell, c.rho, c.nu, c.M))
        kappa, slope = ell / mu, ell + rho * M / mu
        u, root = 1 + kappa, mpmath.sqrt(kappa)
        L_phi = u**2 * slope
        rho_phi = u**3 * (rho * (1 + 3 * kappa) + nu * M / mu + 3 * M * (rho / mu) ** 2)
        drift = (1 + kappa) ** 2 - 1 + rho * M * u / mu**2
        q, s = 1 - mu / ell, (root - 1) / (root + 1)
        eta, start, longest = mpf("0.25"), mpf("1.5"), mpf("0.75")
        gamma, by_default = start + 2 * eta * drift * longest, start + 2 * eta * drift * M * u
        given = {"eta": 0.25, "initial_error": 1.5, "gradient_bound": 0.75}
        of_y, of_v = c.aid_error_terms(3, 2, **given)
        keeps_y, keeps_v = c.warm_start_factors(3, 2)
        left_y = slope * (1 + kappa + 2 * kappa * root) * mpmath.sqrt(q) ** 3 * gamma
        left_v = 2 * ell * root * s**2 * gamma
        kept_y = (1 + (1 + 2 * root) * (kappa + rho * M / mu**2)) * mpmath.sqrt(q) ** 3
        pairs = {
            "kappa": (c.kappa, kappa),
            "L_phi": (c.L_phi(), L_phi),
            "printed L_phi": (c.L_phi(variant="printed"), L_phi + rho * M * (M - 1) / mu),
            "rho_phi": (c.rho_phi(), rho_phi),
            "printed rho_phi": (c.rho_phi(variant="printed"), rho_phi + 2 * M * (rho * u / mu) ** 2),
            "sharp joint L_phi": (replace(c, reading="joint").L_phi(variant="sharp"), kappa**2 * slope),
            "sharp joint rho_phi": (
                replace(c, reading="joint").rho_phi(variant="sharp"),
                (kappa / u) ** 3 * rho_phi,
            ),
            "sharp L_phi": (c.L_phi(variant="sharp"), L_phi),
            "sharp rho_phi": (c.rho_phi(variant="sharp"), rho_phi),
            "drift": (c.drift, drift),
            "hypergradient bound": (c.hypergradient_bound, M * u),
            "Gamma_1": (c.gamma_1(0.25, 1.5, gradient_bound=0.75), gamma),
            "printed Gamma_1": (c.gamma_1(0.25, 1.5), by_default),
            "the error of y in AID": (of_y, left_y),
            "the error of v in AID": (of_v, left_v),
            "the error of AID": (c.aid_error(3, 2, **given), left_y + left_v),
            "warm start of y": (keeps_y, kept_y),
            "warm start of v": (keeps_v, 2 * root * s**2),
        }
        yield from compared_items(pairs, str(c))
        yield from compared_items(
            _contraction(c, kept_y / mpmath.sqrt(q) ** 3 if q else mpf(0), 2 * root, q, s), str(c)
        )


def _contraction(c: Constants, of_y: Any, of_v: Any, q: Any, s: Any) -> dict[str, tuple[Any, Any]]:
    """The first D and N that halve the distance, and those before."""
    if not q:
        return {"halving at kappa = 1": (c.aid_contracts(1, 1), True)}
    D, N = steps_needed(of_y, mpf("0.5"), mpmath.sqrt(q)), steps_needed(of_v, mpf("0.5"), s)
    return {
        "halving": (c.aid_contracts(D, N), True),
        "halving with one D less": (c.aid_contracts(D - 1, N), D == 1 and bool(of_y <= 0.5)),
        "halving with one N less": (c.aid_contracts(D, N - 1), N == 1 and bool(of_v <= 0.5)),
    }


def of_minimax(c: MinimaxConstants) -> Iterator[Agreement]:
    """The constants of Lemma C.1 and the bound on the error of GDmax.

    >>> max(item.ratio for item in of_minimax(MinimaxConstants(1.0, 2.0, 1.0, M_x=1.0))) <= 1
    True
    """
    with mpmath_digits(DIGITS):
        mu, ell, rho, M = (mpf(float(value)) for value in (c.mu, c.ell, c.rho, c.M_x))
        kappa, q = ell / mu, 1 - mu / ell
        distance = mpf("1.5") + kappa * mpf("0.5") * mpf("0.75")
        least = steps_needed(1, mpf("0.5"), mpmath.sqrt(q)) if q else 1
        pairs = {
            "kappa": (c.kappa, kappa),
            "L_phi": (c.L_phi(), (mu + ell) * ell / mu),
            "rho_phi": (c.rho_phi(), rho * ((mu + ell) / mu) ** 3),
            "sharp joint L_phi": (replace(c, reading="joint").L_phi(variant="sharp"), ell**2 / mu),
            "sharp joint rho_phi": (replace(c, reading="joint").rho_phi(variant="sharp"), rho * (ell / mu) ** 3),
            "sharp L_phi": (replace(c, reading="block").L_phi(variant="sharp"), (mu + ell) * ell / mu),
            "sharp rho_phi": (replace(c, reading="block").rho_phi(variant="sharp"), rho * ((mu + ell) / mu) ** 3),
            "the error of GDmax": (
                c.gdmax_error(3, eta=0.25, initial_error=1.5, gradient_bound=0.75),
                ell * distance * mpmath.sqrt(q) ** 3,
            ),
            "the error of GDmax by M_x": (
                c.gdmax_error(1, eta=0.25, initial_error=1.5),
                ell * (mpf("1.5") + kappa * M / 2) * mpmath.sqrt(q),
            ),
            "halving by GDmax": (c.gdmax_contracts(least), True),
            "halving with one D less": (c.gdmax_contracts(least - 1), False),
        }
        yield from compared_items(pairs, str(c))


# ---- schedules -------------------------------------------------------------------------------------------------------


def of_escapes(smooth: Smoothness, goal: Goal) -> Iterator[Agreement]:
    """iota, r, T, F and S of both escape lemmas, and the accuracies that they ask for.

    >>> goal = Goal(eps=0.1, delta=0.1, d=2, initial_error=1.0, gap=1.0, episodes=1)
    >>> max(item.ratio for item in of_escapes(Smoothness(8.0, 64.0), goal)) <= 1
    True
    """
    with mpmath_digits(DIGITS):
        for pace, time, part in ((PERTURBED, mpf(1), mpf(1) / 100), (NEON, mpf(1) / 4, mpf(1) / 25)):
            escape = escape_of(smooth, goal, pace)
            yield from compared_items(_scales(smooth, goal, pace, escape, time, part), f"{pace} for {smooth}")
        eps, iota = mpf(goal.eps), mpf(escape_of(smooth, goal, PERTURBED).iota)
        wanted = min(mpmath.sqrt(17) / 80, mpf(2) ** (-iota) / 16) * eps / iota**2
        length = mpmath.sqrt(eps / mpf(smooth.rho_phi))
        step, decrease = curvature_step(smooth, goal, 0.125)
        pairs = {
            "accuracy": (perturbed_accuracy(goal, escape_of(smooth, goal, PERTURBED)), wanted),
            "step along curvature": (step, length / 8),
            "its decrease": (decrease, eps * length / (3 * 8**3)),
            "sqrt(rho_phi eps)": (smooth.curvature(goal.eps), mpmath.sqrt(mpf(smooth.rho_phi) * eps)),
        }
        yield from compared_items(pairs, str(smooth))


def _scales(
    smooth: Smoothness, goal: Goal, pace: Pace, escape: Escape, time: Any, part: Any
) -> dict[str, tuple[Any, Any]]:
    L, rho, eps, iota = mpf(smooth.L_phi), mpf(smooth.rho_phi), mpf(goal.eps), mpf(escape.iota)
    curvature = mpmath.sqrt(rho * eps)

    def chance(at: Any) -> Any:
        return L * mpmath.sqrt(goal.d) / curvature * at**2 * mpf(2) ** (8 - time * at)

    allowed = mpf(goal.delta) / (goal.episodes or 1)
    return {
        "iota suffices": (bool(chance(iota) <= allowed), True),
        "a smaller iota": (bool(chance(iota * (1 - mpf("1e-12"))) <= allowed), False),
        "iota > 1": (escape.iota > 1, True),
        "eta": (escape.eta * smooth.L_phi, 1.0),
        "r": (400 * iota**3 * mpf(escape.r), eps),
        "T": (escape.T_escape, int(mpmath.ceil(time * iota * L / curvature))),
        "F": (escape.F_escape, part * eps**2 / (iota**3 * curvature)),
        "S": (escape.S_escape, eps / (4 * iota * curvature)),
        "nothing to escape from": (escape.straightforward, bool(curvature > L)),
    }


def of_inner_loops(c: Constants) -> Iterator[Agreement]:
    """The rates, and the smallest D and N that make AID as accurate as asked.

    >>> max(item.ratio for item in of_inner_loops(Constants(1.0, 2.0, 1.0, 1.0, 1.0))) <= 1
    True
    """
    with mpmath_digits(DIGITS):
        mu, ell = mpf(float(c.mu)), mpf(float(c.ell))
        root = mpmath.sqrt(ell / mu)
        q, s = (ell - mu) / ell, (root - 1) / (root + 1)
        given = {"eta": 0.25, "initial_error": 1.5, "gradient_bound": 0.75}
        of_y, of_v = c.aid_error_terms(0, 0, **given)
        keeps_y, keeps_v = c.warm_start_factors(0, 0)
        half_rate, gamma = mpmath.sqrt(q), c.gamma_1(**given)
        pairs: dict[str, tuple[Any, Any]] = {
            "rate of descent": (mpf(str(inner.descent_rate(float(mu), float(ell)))), q),
            "rate of CG": (mpf(str(inner.conjugate_rate(float(mu), float(ell)))), s),
            "rate of SGD": (mpf(str(inner.sgd_rate(float(mu), float(ell)))), (ell - mu) / (ell + mu)),
        }
        for accuracy, of_distance in ((0.1, 1e9), (1e-4, 1e-7), (1e9, 1e9)):
            D, N = inner.aid_steps(c, **given, accuracy=accuracy, accuracy_y=of_distance)
            needed = [(of_y, accuracy / 2), (gamma, of_distance), (keeps_y, 0.5)]
            case = f"accuracy {accuracy:g}"
            pairs[f"D, {case}"] = (D, max(steps_needed(a, b, half_rate) if q else 1 for a, b in needed))
            needed = [(of_v, accuracy / 2), (keeps_v, 0.5)]
            pairs[f"N, {case}"] = (N, max(steps_needed(a, b, s) if q else 1 for a, b in needed))
        if q:
            pairs["least steps"] = (
                inner.least_steps(8.1, 1e-3, inner.descent_rate(float(mu), float(ell))),
                steps_needed(8.1, 1e-3, q),
            )
        # where a quotient of logarithms is whole, and comes out rounded up
        pairs["steps of a quarter"] = (inner.least_steps(2.0**16, 1.0, Decimal("0.25")), 8)
        pairs["a single step"] = (inner.least_steps(781_250.0, 1.0, Decimal(781_250) ** -2, per_step=Decimal("0.5")), 1)
        yield from compared_items(pairs, str(c))


def of_batches(c: Constants) -> Iterator[Agreement]:
    """Coefficients of the batch lemmas, batch sizes, and the depths and batches of stocBiO.

    >>> max(item.ratio for item in of_batches(Constants(1.0, 2.0, 1.0, 1.0, 1.0, sigma=1.0))) <= 1
    True
    """
    with mpmath_digits(DIGITS):
        mu, ell, rho, nu, M = (mpf(float(value)) for value in (c.mu, c.ell, c.rho, c.nu, c.M))
        kappa = ell / mu
        u, slope = 1 + kappa, ell + M * rho / mu
        of_y = u * slope / (2 * mu)
        gradient = (1, kappa, kappa * M / mu, M / mu, of_y, of_y)
        third = u**2 * (rho * (1 + 3 * kappa) + nu * M / mu + 3 * M * (rho / mu) ** 2) / (2 * mu)
        hessian = (
            1, 2 * kappa, kappa**2, rho * u**2 / mu, 2 * u * slope * ell / mu**2 + rho * M * u**2 / mu**2,
            2 * u * slope / mu, M / mu, 2 * kappa * M / mu, kappa**2 * M / mu, third, third,
        )  # fmt: skip
        norms = dict.fromkeys(("f_xx", "f_xy", "f_yy", "g_xy", "g_yy"), ell) | {"f_x": M, "f_y": M, "g_y": mpf(2)}
        norms |= dict.fromkeys(("g_xxy", "g_xyy", "g_yyy"), rho)
        pairs: dict[str, tuple[Any, Any]] = {}
        extra = dict.fromkeys(range(11), mpf(0)) | {
            4: 2 * ell * rho * M / mu**3, 5: 2 * rho * M / mu**2, 7: 2 * ell * M / mu**2,
            9: M * (ell * nu + rho**2 * u) / mu**3, 10: M * (ell * nu + rho**2 * u) / mu**3,
        }  # fmt: skip
        for name, terms, wanted in (
            ("gradient", batches.gradient_terms(c, 2.0), gradient),
            ("Hessian", batches.hessian_terms(c, 2.0), hessian),
            (
                "printed Hessian",
                batches.hessian_terms(c, 2.0, "printed"),
                [a + extra[k] for k, a in enumerate(hessian)],
            ),
        ):
            pairs[f"terms of the {name}"] = (len(terms), len(wanted))
            for k, (term, coefficient) in enumerate(zip(terms, wanted, strict=False)):
                pairs[f"term {k} of the {name}"] = (term.coefficient, coefficient)
                pairs[f"norm {k} of the {name}"] = (term.norm, norms[term.derivative])
        pairs |= _sizes(c)
        yield from compared_items(pairs, str(c))


def _sizes(c: Constants) -> dict[str, tuple[Any, Any]]:
    """The concentration of a mean, the sharing of delta, and the depths of stocBiO."""
    wanted = mpmath.ceil(16 * (mpf(3) / mpf("0.5")) ** 2 * mpmath.log(mpf(2) * 7 / mpf("0.1")))
    sizes = neumann_batch_sizes(10, 4, 0.25, 1.0)
    pairs = {
        "concentration": (batches.concentration(3.0, 0.5, 0.1, 7), int(wanted)),
        "concentration of tensors": (
            batches.tensor_concentration(3.0, 0.5, 0.1, 7),
            int(mpmath.ceil(4032 * mpmath.log(56 / mpf(0.1)))),
        ),
        "a share of delta": (batches.term_delta(0.25, 5), mpf("0.05")),
        "a printed share of delta": (batches.term_delta(0.25, 5, "printed"), 1 - mpf("0.75") ** (mpf(1) / 5)),
        "a batch of the series is not empty": (neumann_batch_sizes(0.01, 1, 0.5, 1.0)[0], 1),
    }
    for name, terms in (("gradient", batches.gradient_terms(c, 2.0)), ("Hessian", batches.hessian_terms(c, 2.0))):
        shipped = batches.batch_sizes(terms, each=0.5, delta=0.1, dimension=7)
        for level, size in zip("fg", shipped, strict=True):
            wanted = _batch(terms, level)
            pairs[f"batches of {level} for the {name}"] = (abs(size - wanted) <= 1 + ROUNDED * wanted, True)
    pairs |= {
        f"batch {j} of the series": (size, int(mpmath.ceil(40 * mpf(3) ** j / 4**j))) for j, size in enumerate(sizes)
    }
    if c.sigma is None:
        return pairs
    # y_0 so near, and the gradient so small, that the variance of y counts too
    near = 1 / (110 * float(c.ell) * (1 + float(c.kappa)))
    beside = {f"{name}, near y*": pair for name, pair in _stocbio(replace(c, M=1e-9), near).items()}
    return pairs | _stocbio(c, 1.5) | beside


def _batch(terms: tuple[batches.Term, ...], level: str) -> Any:
    """Rows with which every term of a level is at most 1/2 in dimension 7, all of them but for a tenth of the cases."""
    largest = mpf(1)
    for term in terms:
        if term.level == level:
            of_tensor = term.derivative in ("g_xxy", "g_xyy", "g_yyy")
            factor, sides = (7, 56) if of_tensor else (1, 14)
            times = (2 * mpf(term.coefficient) * mpf(term.norm)) ** 2
            largest = max(largest, 16 * factor * times * mpmath.log(mpf(10) * len(terms) * sides))
    return largest


def _stocbio(c: Constants, initial_error: float) -> dict[str, tuple[Any, Any]]:
    """The six terms of the budget, each at most a sixth of it, and none with one step or one row less."""
    mu, ell, M, sigma = (mpf(float(value)) for value in (c.mu, c.ell, c.M, c.sigma))
    smooth = Smoothness(float(c.L_phi()), float(c.rho_phi()))
    goal = Goal(eps=0.25, delta=0.1, d=2, initial_error=initial_error, gap=1.0, episodes=1)
    found, escaping = stocbio_steps(c, smooth, goal), stocbio_steps(c, smooth, goal, longest=10.0)
    kappa, beta, sixth = ell / mu, 1 / (4 * mpf(smooth.L_phi)), mpf(goal.eps) ** 2 / (2400 * mpf(smooth.L_phi))
    rho = mpf(float(c.rho))
    away = (1 + kappa) * (ell + M * rho / mu)
    q = (ell - mu) / (ell + mu)
    variance = sigma**2 / (ell * mu * found.S)
    start = mpf(initial_error) ** 2 + 4 * (kappa * M * (1 + kappa) * beta) ** 2 + 4 * variance
    terms: dict[str, tuple[Callable[[Any], Any], int]] = {
        "Q": (lambda n: 5 * beta * (kappa * M) ** 2 * (1 - 1 / kappa) ** (2 * n), found.Q),
        "batch_g": (lambda n: beta * (kappa * M) ** 2 / n, found.batch_g),
        "batch_f": (lambda n: beta * (2 * kappa**2 + mpf("0.5")) * M**2 / n, found.batch_f),
        "B": (lambda n: 4 * beta * (kappa * M) ** 2 / n, found.B),
        "S": (lambda n: mpf(19) / 15 * beta * away**2 * sigma**2 / (ell * mu * n), found.S),
        "D": (lambda n: max(mpf(19) / 15 * beta * away**2 * start, 4 * sixth) * q ** (2 * n), found.D),
    }
    near = 1 + mpf("1e-9")
    pairs: dict[str, tuple[Any, Any]] = {}
    farther = mpf(initial_error) ** 2 + 4 * (kappa * 10) ** 2 + 4 * variance
    after = max(mpf(19) / 15 * beta * away**2 * farther, 4 * sixth)
    pairs["D after an escape"] = (escaping.D, steps_needed(after / near, sixth, q**2) if q else 1)
    for name, (term, n) in terms.items():
        pairs[f"{name} suffices"] = (bool(term(n) <= sixth * near), True)
        if n > 1:
            pairs[f"{name} less one"] = (bool(term(n - 1) * near <= sixth / near), False)
    return pairs
