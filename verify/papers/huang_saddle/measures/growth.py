"""Growth: how the schedules that ship grow with kappa and 1/eps, as formulas that are held against their numbers.

The size of everything as kappa grows: mu = 1/t^2 with ell, rho, nu, M and sigma fixed, so that kappa ~ t^2 and
sqrt(kappa) ~ t; and eps = s^-2. What the paper hides in O~ (iota and other logarithms) are symbols of their own, which
count as constants in an order and have their values in a schedule. L_phi, rho_phi and the terms of the batch errors are
the code of ``constants`` and ``schedules`` itself, run on symbols.
"""

from __future__ import annotations

import math
import warnings
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import reduce
from operator import or_
from types import SimpleNamespace
from typing import Any, Literal, cast

import sympy as sp

from bilevel_sym import Constants, MinimaxConstants, schedules
from bilevel_sym.theories.huang_saddle.schedules.batches import gradient_terms, hessian_terms
from verify.papers.huang_saddle.measures.conditions import Rates, gradient_bound

T, S_EPS = sp.Symbol("t", positive=True), sp.Symbol("s", positive=True)
ELL, RHO, NU, M, SIGMA = sp.symbols("ell rho nu M sigma", positive=True)
IOTA, LOG_Y, LOG_V, LOG_D, LOG_Q = sp.symbols("iota log_y log_v log_D log_Q", positive=True)
LOG_GRADIENT, LOG_HESSIAN, LOG_THIRD = sp.symbols("log_gradient log_hessian log_third", positive=True)
MU, EPS = 1 / T**2, S_EPS**-2
KAPPA = ELL / MU
_SYMBOLS: Any = SimpleNamespace(mu=MU, ell=ELL, rho=RHO, nu=NU, M=M, kappa=KAPPA)
L_PHI, RHO_PHI = Constants.L_phi(_SYMBOLS), Constants.rho_phi(_SYMBOLS)
MINIMAX_L_PHI, MINIMAX_RHO_PHI = MinimaxConstants.L_phi(_SYMBOLS), MinimaxConstants.rho_phi(_SYMBOLS)
Theorem = Literal["aid", "gdmax", "stocbio"]
GRID = tuple((kappa, eps) for kappa in (1e1, 1e3, 1e5, 1e7) for eps in (1e-2, 1e-6))
GROWTH_DELTA, D, GAP = 0.1, 2, 1.0
FORMULA_SHARE = 0.9  # of a formula, from the second kappa on, where the estimates of logarithms are close too


@dataclass(frozen=True)
class Order:
    """kappa^a eps^-b: exponents as exact rationals.

    >>> str(Order.of(3 * T**7 / (1 + T**2) * (S_EPS**4 + S_EPS)))
    'kappa^5/2 eps^-2'
    """

    kappa: sp.Rational
    eps: sp.Rational

    @classmethod
    def of(cls, expression: sp.Expr) -> Order:
        """The leading exponents of an expression in t and s: its growth in each of them, the other held fixed."""
        return cls(_degree(expression, T), _degree(expression, S_EPS))

    def __mul__(self, other: Order) -> Order:
        return Order(self.kappa + other.kappa, self.eps + other.eps)

    def __or__(self, other: Order) -> Order:
        """That of a sum: the larger of the two, in each of kappa and eps."""
        return Order(max(self.kappa, other.kappa), max(self.eps, other.eps))

    def __str__(self) -> str:
        return f"kappa^{self.kappa} eps^-{self.eps}"


def _degree(expression: sp.Expr, symbol: sp.Symbol) -> sp.Rational:
    """Half of the degree at infinity: kappa and 1/eps are squares of the symbols."""
    if expression.is_Mul:
        return sum((_degree(factor, symbol) for factor in expression.args), sp.Integer(0))
    if expression.is_Pow and expression.exp.is_Rational:
        return _degree(expression.base, symbol) * expression.exp
    if expression.is_Add and all(term.is_positive for term in expression.args):  # then nothing cancels
        return max(_degree(term, symbol) for term in expression.args)
    top, bottom = sp.fraction(sp.together(expression))
    return sp.Rational(sp.Poly(top, symbol).degree() - sp.Poly(bottom, symbol).degree(), 2)


@dataclass(frozen=True)
class Size:
    """A number of a schedule: the sum, or the largest, of some terms.

    >>> Size((KAPPA, sp.Integer(3))).order.kappa, Size((KAPPA, KAPPA**2), "max").order.kappa
    (1, 2)
    """

    terms: tuple[sp.Expr, ...]
    combined: Literal["sum", "max"] = "sum"

    @property
    def order(self) -> Order:
        """That of the largest term."""
        return reduce(or_, (Order.of(term) for term in self.terms))

    def at(self, values: Mapping[sp.Symbol, float]) -> float:
        """The number itself."""
        numbers = [float(term.evalf(subs=values)) for term in self.terms]
        return max(numbers) if self.combined == "max" else math.fsum(numbers)


# ---- the formulas ------------------------------------------------------------------------------------------------


def _iterations(L: sp.Expr, rho: sp.Expr, *, time: sp.Expr, fall: sp.Expr, slope: sp.Expr) -> Size:
    """K: gap over what an episode lowers Phi by, times its T + 1 iterations with T rounded up, and large gradients.

    Where there is something to escape from, sqrt(rho_phi eps) <= L_phi [L-phi-big], so that the episodes number at
    most iota^3/fall sqrt(rho_phi/eps^3) <= iota^3/fall L_phi/eps^2.
    """
    length = time * IOTA * L / sp.sqrt(rho * EPS)
    one = IOTA**3 / fall * sp.sqrt(rho) * EPS ** sp.Rational(-3, 2)
    return Size((one * length, 2 * IOTA**3 / fall * L / EPS**2, slope * L / EPS**2))


def aid_sizes() -> dict[str, Size]:
    """K, D and N of perturbed AID: K = 2 gap (T + 1)/F + 25 L_phi gap/(3 eps^2), D <= 2 kappa log + 1, N likewise.

    >>> {name: str(size.order) for name, size in aid_sizes().items()}
    {'K': 'kappa^3 eps^-2', 'D': 'kappa^1 eps^-0', 'N': 'kappa^1/2 eps^-0'}
    """
    return {"K": _perturbed(L_PHI, RHO_PHI), "D": Size((2 * KAPPA * LOG_Y, sp.Integer(1))), "N": _products()}


def _perturbed(L: sp.Expr, rho: sp.Expr) -> Size:
    """K of Algorithm 1."""
    return _iterations(L, rho, time=sp.Integer(1), fall=sp.Rational(1, 200), slope=sp.Rational(25, 3))


def _products() -> Size:
    """Steps of conjugate gradients: 1/log((1 + x)/(1 - x)) <= 1/(2 x) with x = kappa^(-1/2)."""
    return Size((sp.sqrt(KAPPA) / 2 * LOG_V, sp.Integer(1)))


def gdmax_sizes() -> dict[str, Size]:
    """K and D of perturbed GDmax.

    >>> {name: str(size.order) for name, size in gdmax_sizes().items()}
    {'K': 'kappa^1 eps^-2', 'D': 'kappa^1 eps^-0'}
    """
    return {"K": _perturbed(MINIMAX_L_PHI, MINIMAX_RHO_PHI), "D": Size((2 * KAPPA * LOG_Y, sp.Integer(1)))}


def stocbio_sizes() -> dict[str, Size]:
    """The numbers of stocBiO with iNEON: depths, batches and K.

    S, B, D_f and D_g share min(eps^2/(400 L_phi), F/2) in six equal parts; D_f and D_g also make the gradient exact to
    eps/10 and the Hessian to sqrt(rho_phi eps)/(80 iota), term by term.

    >>> {name: str(size.order) for name, size in stocbio_sizes().items() if name in ("S", "B", "batch_f", "batch_g")}
    {'S': 'kappa^5 eps^-2', 'B': 'kappa^2 eps^-2', 'batch_f': 'kappa^2 eps^-2', 'batch_g': 'kappa^6 eps^-2'}
    """
    fall = sp.Rational(1, 2 * 3 * 80**3)
    K = _iterations(L_PHI, RHO_PHI, time=sp.Rational(1, 4), fall=fall, slope=sp.Integer(50))
    per = (EPS**-2, 1 / (400 * L_PHI * fall) * IOTA**3 * sp.sqrt(RHO_PHI) * EPS ** sp.Rational(-3, 2))
    c = ELL + ELL**2 / MU + M * RHO / MU + ELL * M * RHO / MU**2
    B = Size(tuple(2400 * (KAPPA * M) ** 2 * inverse for inverse in per), "max")
    Q = Size((KAPPA / 2 * LOG_Q, sp.Integer(1)))
    return {
        "K": K,
        "S": Size(tuple(760 * (c * SIGMA) ** 2 / (ELL * MU) * inverse for inverse in per), "max"),
        "B": B,
        "Q": Q,
        "D": Size((KAPPA / 4 * LOG_D, sp.Integer(1))),
        "D_aid": Size((2 * KAPPA * LOG_Y, sp.Integer(1))),
        "N": _products(),
        "batch_f": Size((*((1200 * KAPPA**2 + 300) * M**2 * inverse for inverse in per), *_concentrated("f")), "max"),
        "batch_g": Size((*(600 * (KAPPA * M) ** 2 * inverse for inverse in per), *_concentrated("g")), "max"),
        # that of g_xy in a step on x alone, whose batches are not those of the check
        "step_g": Size(tuple(600 * (KAPPA * M) ** 2 * inverse for inverse in per), "max"),
        # B Q (1 + q + q^2 + ...) with q = 1 - 1/kappa, each rounded up
        "neumann": Size((*(KAPPA * b * q for b in B.terms for q in Q.terms), *Q.terms)),
    }


def _concentrated(level: str) -> Iterator[sp.Expr]:
    """What the terms of a level ask for: 16 (coefficient norm/each)^2 log(2 m terms/delta).

    Third derivatives ask for m log((m + m^2) terms/delta) in place of the logarithm.
    """
    groups = (
        (gradient_terms(_SYMBOLS, cast("float", M)), EPS / 60, LOG_GRADIENT),
        (hessian_terms(_SYMBOLS, cast("float", M)), sp.sqrt(RHO_PHI * EPS) / (880 * IOTA), LOG_HESSIAN),
    )
    for terms, each, logarithm in groups:
        for term in (term for term in terms if term.level == level):
            third = len(term.derivative) == len("g_xxy")
            size = 16 * (sp.S.One * term.coefficient * term.norm / each) ** 2
            yield size * (LOG_THIRD if third else logarithm)


# ---- the schedules ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Shipped:
    """One number of a schedule at one kappa and eps, beside its formula there."""

    kappa: float
    eps: float
    number: float
    formula: float

    @property
    def excess(self) -> float:
        """How far the number is beyond the formula, or below nine tenths of it: 1 is the most that is allowed."""
        below = 0.0 if self.kappa < 100 else FORMULA_SHARE * self.formula / self.number
        return max(self.number / (self.formula * (1 + 1e-9)), below)


def shipped(theorem: Theorem, names: Iterable[str]) -> dict[str, list[Shipped]]:
    """Numbers of a schedule as it ships, at all the kappa and eps of the grid, each beside its formula.

    >>> max(point.excess for point in shipped("aid", ["K"])["K"]) <= 1
    True
    """
    sizes = {"aid": aid_sizes, "gdmax": gdmax_sizes, "stocbio": stocbio_sizes}[theorem]()
    found: dict[str, list[Shipped]] = {name: [] for name in names}
    for kappa, eps in GRID:
        schedule, values = _schedule(theorem, kappa, eps)
        for name, points in found.items():
            if name == "neumann" and kappa > 1e4:  # a batch for each of Q steps
                continue
            number = sum(schedule.neumann_batches) if name == "neumann" else getattr(schedule, name)
            points.append(Shipped(kappa, schedule.eps, float(number), sizes[name].at(values)))
    return found


def _schedule(theorem: str, kappa: float, eps: float) -> tuple[Any, dict[sp.Symbol, float]]:
    """The schedule for ell = rho = nu = M = sigma = 1, and the values of all symbols."""
    c = Constants(1 / kappa, 1.0, 1.0, 1.0, 1.0, sigma=1.0)
    of_phi: Any = MinimaxConstants(c.mu, 1.0, 1.0, M_x=1.0) if theorem == "gdmax" else c
    # so that there is something to escape from
    eps = min(eps, eps * float(of_phi.L_phi()) ** 2 / float(of_phi.rho_phi()))
    make: Any = {"aid": schedules.perturbed_aid, "gdmax": schedules.perturbed_gdmax}.get(theorem, schedules.stocbio)
    with warnings.catch_warnings(action="ignore"):
        schedule = make(of_phi, schedules.Goal(eps=eps, delta=GROWTH_DELTA, d=D, gap=GAP))
    units = dict.fromkeys((ELL, RHO, NU, M, SIGMA), 1.0)
    values = units | {T: math.sqrt(kappa), S_EPS: 1 / math.sqrt(eps), IOTA: schedule.iota}
    return schedule, values | _logarithms(theorem, c, schedule)


def _logarithms(theorem: str, c: Constants, s: schedules.Schedule) -> dict[sp.Symbol, float]:
    """The logarithms that O~ hides, from constants and iota: a second route to what the schedules compute."""
    if theorem == "gdmax":
        far = 1.0 + 2 * s.eta * c.kappa * max(1.0, s.r)
        return {LOG_Y: math.log(max(far / s.accuracy, 2.0))}
    if theorem == "aid":
        return _of_aid(c, s, 1.0, gradient_bound(c, s.accuracy, s.r))
    assert isinstance(s, schedules.StocBiOSchedule)
    start = 1.0 + s.eta * c.drift * s.r
    longest = 2 * (c.hypergradient_bound + s.accuracy)
    return _of_aid(c, s, start, longest, s.accuracy_y) | _of_stocbio(c, s)


def _of_aid(
    c: Constants, s: schedules.Schedule, start: float, longest: float, of_y: float = math.inf
) -> dict[sp.Symbol, float]:
    rates = Rates.of(c, eta=s.eta, initial_error=start, gradient_bound=longest)
    far = start + 2 * s.eta * c.drift * longest
    asked_y = (2 * float(rates.error_y) / s.accuracy, 2 * float(rates.start_y), far / of_y)
    asked_v = (2 * float(rates.error_v) / s.accuracy, 2 * float(rates.start_v))
    return {LOG_Y: math.log(max(*asked_y, 1.0)), LOG_V: math.log(max(*asked_v, 1.0))}


def _of_stocbio(c: Constants, s: schedules.StocBiOSchedule) -> dict[sp.Symbol, float]:
    budget = min(s.eps**2 / (400 * s.L_phi), s.decrease / 2) / 6
    of_y = c.ell + c.ell**2 / c.mu + c.M * c.rho / c.mu + c.ell * c.M * c.rho / c.mu**2
    move = max(s.beta * c.hypergradient_bound, s.step)
    sigma = cast("float", c.sigma)
    far = 1.0 + 4 * (c.kappa * move) ** 2 + 4 * sigma**2 / (c.ell * c.mu * s.S)
    share = GROWTH_DELTA / 3 / s.episodes
    return {
        LOG_D: math.log(max(19 / 15 * s.beta * of_y**2 * far / budget, 4.0)),
        LOG_Q: math.log(max(5 * s.beta * (c.kappa * c.M) ** 2 / budget, 1.0)),
        LOG_GRADIENT: math.log(2 * D * 6 / share),
        LOG_HESSIAN: math.log(2 * D * 11 / share),
        LOG_THIRD: D * math.log((D + D**2) * 11 / share),
    }
