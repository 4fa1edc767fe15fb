"""The corollaries on oracle complexities: orders in kappa and eps from the theorems' formulas, and counted calls."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import sympy as sp

from bilevel_sym.engine import Lanes
from bilevel_sym.hypergradient import AID, Estimator, GDmax
from bilevel_sym.oracle import ExactOracle, Oracle
from bilevel_sym.solvers import Descent, solve
from bilevel_sym.tape.arrays import STEADY
from verify.registry import claim
from verify.study import Study
from verify.verdict import CheckResult, judged

__all__: list[str] = []

# The size of everything as kappa grows: mu = 1/t^2 with ell, rho, nu, M and sigma fixed, so that kappa ~ t^2 and
# sqrt(kappa) ~ t; and eps = s^-2. What the paper hides in O~ (iota and other logarithms) is a constant here.
T, S_EPS = sp.Symbol("t", positive=True), sp.Symbol("s", positive=True)
ELL, RHO, NU, M, SIGMA, LOG = sp.symbols("ell rho nu M sigma Lambda", positive=True)
MU, EPS = 1 / T**2, S_EPS**-2


@dataclass(frozen=True)
class Order:
    """kappa^a eps^-b: exponents as exact rationals."""

    kappa: sp.Rational
    eps: sp.Rational

    @classmethod
    def of(cls, expression: sp.Expr) -> Order:
        """The leading exponents of an expression in t and s: its growth in each of them, the other held fixed."""
        return cls(_degree(expression, T), _degree(expression, S_EPS))

    def __str__(self) -> str:
        return f"kappa^{self.kappa} eps^-{self.eps}"


def _degree(expression: sp.Expr, symbol: sp.Symbol) -> sp.Rational:
    """Half of the degree at infinity: kappa and 1/eps are squares of the symbols."""
    if expression.is_Mul:
        return sum((_degree(factor, symbol) for factor in expression.args), sp.Integer(0))
    if expression.is_Pow and expression.exp.is_Rational:
        return _degree(expression.base, symbol) * expression.exp
    top, bottom = sp.fraction(sp.together(expression))
    return sp.Rational(sp.Poly(top, symbol).degree() - sp.Poly(bottom, symbol).degree(), 2)


# ---- the theorems' own formulas --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Sizes:
    """The parameters that the three theorems prescribe, up to the logarithms that O~ hides.

    ``L_phi`` and ``rho_phi`` are those of the formulas. K = (200 iota^4 + 25/3) L_phi gap/eps^2 because
    T/F = 100 iota^4 L_phi/eps^2 whatever rho_phi is: nothing of rho_phi is left in it.
    """

    kappa: sp.Expr
    L_phi: sp.Expr

    @classmethod
    def bilevel(cls) -> Sizes:
        """Under the assumptions on bilevel problems."""
        L_phi = ELL + (2 * ELL**2 + RHO * M) / MU + (ELL**3 + 2 * RHO * ELL * M) / MU**2 + RHO * ELL**2 * M / MU**3
        return cls(ELL / MU, L_phi)

    @classmethod
    def minimax(cls) -> Sizes:
        """Under those on minimax problems."""
        return cls(ELL / MU, ELL * (1 + ELL / MU))

    @property
    def rho_phi(self) -> sp.Expr:
        """The formula of Lemma 2.4."""
        return (RHO + NU * M / MU + 3 * RHO / MU * (ELL + RHO * M / MU)) * (1 + self.kappa) ** 3

    @property
    def K(self) -> sp.Expr:
        """Outer iterations, those of iNEON included."""
        return LOG * self.L_phi / EPS**2

    @property
    def D(self) -> sp.Expr:
        """Lower-level steps: 1/log(1/(1 - 1/kappa)) <= kappa."""
        return LOG * self.kappa

    @property
    def N(self) -> sp.Expr:
        """Steps of conjugate gradients: 1/log((1 + x)/(1 - x)) <= 1/(2 x) with x = kappa^(-1/2)."""
        return LOG * sp.sqrt(ELL) * T

    @property
    def S(self) -> sp.Expr:
        """The batch of an SGD step: what 5/4 beta c^2 sigma^2/(ell mu S) <= eps^2/(2400 L_phi) asks."""
        c = ELL + ELL**2 / MU + M * RHO / MU + ELL * M * RHO / MU**2
        return (c * SIGMA / EPS) ** 2 / (ELL * MU)

    @property
    def B(self) -> sp.Expr:
        """The size that the Neumann batches are made from."""
        return (self.kappa * M / EPS) ** 2

    @property
    def step_g(self) -> sp.Expr:
        """The batch of g_xy in a step on x: what beta kappa^2 M^2/D_g <= eps^2/(2400 L_phi) asks."""
        return (self.kappa * M / EPS) ** 2

    @property
    def neumann(self) -> sp.Expr:
        """All Neumann batches together: B Q (1 + q + q^2 + ...) with q = 1 - 1/kappa, which is kappa B Q in the end."""
        return self.B * self.D * self.kappa

    @property
    def batch_f(self) -> sp.Expr:
        """Samples of F: the term with the largest coefficient, for the gradient and for the Hessian of Phi."""
        return LOG * ((self.kappa * M / EPS) ** 2 + (RHO / MU * (1 + self.kappa) ** 2 * M) ** 2 / (self.rho_phi * EPS))

    @property
    def batch_g(self) -> sp.Expr:
        """Samples of G, likewise: the error of g_y has the largest coefficient in both."""
        of_grad = (ELL + (ELL**2 + M * RHO) / MU + ELL * M * RHO / MU**2) / (2 * MU)
        u = 1 + self.kappa
        of_hess = u**2 * (RHO * u + 2 * self.kappa * RHO + 3 * RHO**2 * M / MU**2 + NU * M / MU) / (2 * MU)
        return LOG * ((of_grad / EPS) ** 2 + of_hess**2 / (self.rho_phi * EPS))


def _orders(
    label: str, study: Study, counts: Mapping[str, tuple[sp.Expr, str, str]], **differs: str
) -> Iterator[CheckResult]:
    """The exponents that the formulas have against those that are stated; ``differs``: what the print says instead."""
    for part, (expression, kappa, eps) in counts.items():
        found = Order.of(expression)
        stated = Order(sp.Rational(differs.get(part, kappa) if study.variant == "printed" else kappa), sp.Rational(eps))
        message = f"{found} by the formulas, {stated} as stated; mu -> 0, the other constants fixed, without logarithms"
        worse_in_eps = found.eps > stated.eps
        measured, bound = (found.eps, stated.eps) if worse_in_eps else (found.kappa, stated.kappa)
        yield judged(
            label, float(measured), float(bound), evidence="proved", message=message, variant=study.variant, part=part
        )


# ---- counting --------------------------------------------------------------------------------------------------


class _Watched:
    """An oracle that counts what is really asked of it: performed stages, not what an estimator says of itself."""

    def __init__(self, oracle: Oracle) -> None:
        self._oracle, self.counts = oracle, Counter[str]()

    @property
    def width(self) -> int:
        return self._oracle.width

    def session(self, names: Sequence[str], lanes: slice) -> Any:
        return _WatchedSession(self._oracle.session(names, lanes), tuple(names), self.counts)


class _WatchedSession:
    """A session whose stages are counted when they are performed."""

    def __init__(self, session: Lanes, names: tuple[str, ...], counts: Counter[str]) -> None:
        self._session, self._names, self._counts = session, names, counts

    def perform(self, stage: int) -> None:
        for name in self._names:
            of_v = name.endswith("_v")
            if of_v == (stage == 1):
                self._counts[name] += 1
        self._session.perform(stage)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._session, name)


def calls_of(estimator: Estimator, study: Study) -> Counter[str]:
    """How often one estimate asks for each block, counted from outside.

    >>> from bilevel_sym import zoo
    >>> from verify.study import study_of
    >>> counts = calls_of(AID(D=3, N=2, tau=0.1), study_of(zoo.get("saddle", d=2).problem))
    >>> counts["g_y"], counts["g_yy_v"], counts["g_xy_v"]
    (3, 3, 1)
    """
    watched = _Watched(ExactOracle(study.kernels))
    n = study.exact.n
    x = np.repeat(study.points(1, "calls").T, STEADY, axis=1)
    estimator.in_lanes(watched, x, np.zeros((n, STEADY)), np.zeros((n, STEADY)))
    return watched.counts


def _counted(label: str, study: Study, estimator: Estimator, paper: Mapping[str, int]) -> Iterator[CheckResult]:
    """A run's counters against iterations times the calls of one estimate, and those against the paper's."""
    steps = 3
    run = solve(study.exact, Descent(estimator, eta=1e-3), study.points(1, "counters")[0], steps=steps)
    seen = calls_of(estimator, study)
    once = {"G_f": seen["f_x"] + seen["f_y"], "G_g": seen["g_y"], "JV_g": seen["g_xy_v"], "HV_g": seen["g_yy_v"]}
    if isinstance(estimator, GDmax):  # gradients of g = -f are gradients of f
        once = {"G_f": seen["f_x"] + seen["g_y"], "G_g": 0, "JV_g": 0, "HV_g": 0}
    points = int(run.steps) + 1  # the last point has an estimate too
    for name, expected in paper.items():
        counted = int(getattr(run.counters, name))
        # conjugate gradients may stop early; what is counted is what the algorithm's lines ask for
        agrees = counted == points * expected and (once[name] == expected or (name == "HV_g" and once[name] < expected))
        message = (
            f"{points} estimates made {counted} calls, {once[name]} were seen in one; the algorithm's lines ask for "
            f"{expected}"
        )
        yield judged(
            label, 0.0 if agrees else 1.0, 0.0, evidence="sampled", message=message, n_points=points,
            variant=study.variant, part=f"{name} counted",
        )  # fmt: skip


# ---- the corollaries -------------------------------------------------------------------------------------------


@claim(
    "unlabelled:corollary-aid",
    kinds=("bilevel", "stochastic"),
    also=("unlabelled:corollary-aid-gradients", "unlabelled:corollary-aid-products", "iter-number-AID"),
)
def aid_complexities(study: Study) -> Iterator[CheckResult]:
    """Oracle calls of perturbed AID: kappa^3 (G_f), kappa^4 (G_g), kappa^3 (JV_g), kappa^3.5 (HV_g), each over eps^2.

    G_f = 2 K, G_g = D K, JV_g = K, HV_g = (N + 1) K with K = (200 iota^4 + 25/3) L_phi gap/eps^2

    Paper: Corollary 2.6 [unlabelled:corollary-aid]; Equation 2.4 [iter-number-AID]
    Assumes: mu -> 0 with ell, rho, nu and M fixed; logarithms are not counted.
    Deviation: a warm start of conjugate gradients costs one more product with g_yy, for the first residual.
    """
    sizes = Sizes.bilevel()
    counts = {
        "K": (sizes.K, "3", "2"), "G_f": (2 * sizes.K, "3", "2"), "G_g": (sizes.D * sizes.K, "4", "2"),
        "JV_g": (sizes.K, "3", "2"), "HV_g": (sizes.N * sizes.K, "7/2", "2"),
    }  # fmt: skip
    yield from _orders("unlabelled:corollary-aid", study, counts)
    D, N = 5, 2
    lines = {"G_f": 2, "G_g": D, "JV_g": 1, "HV_g": N + 1}
    yield from _counted("unlabelled:corollary-aid", study, AID(D, N, _tau(study)), lines)


@claim("cor:minimax", kinds=("minimax",), also=("unlabelled:remark-kappa-squared",))
def gdmax_complexity(study: Study) -> Iterator[CheckResult]:
    """Gradients of perturbed GDmax: G_f ~ kappa^2/eps^2.

    G_f = (D + 1) K: D steps of ascent and one gradient in x

    Paper: Corollary 3.10 [cor:minimax]; Remark 3.13 [unlabelled:remark-kappa-squared]
    Assumes: mu -> 0 with ell and rho fixed; logarithms are not counted.
    Deviation: the print has D K, which leaves out f_x; the order is the same.
    """
    sizes = Sizes.minimax()
    counts = {"K": (sizes.K, "1", "2"), "G_f": (sizes.D * sizes.K, "2", "2")}
    yield from _orders("cor:minimax", study, counts)
    D = 5
    lines = {"G_f": D if study.variant == "printed" else D + 1}
    yield from _counted("cor:minimax", study, GDmax(D, _tau(study)), lines)


def _tau(study: Study) -> float:
    """A step that is small beside the curvature of g at a few points; counting does not depend on it."""
    x = study.points(8, "tau")
    y = np.tile([float((low + high) / 2) for low, high in list(study.box)[study.exact.d :]], (8, 1))
    curvature = float(np.linalg.norm(study.kernels.g_yy(x, y), axis=(1, 2)).max())
    return 0.1 / curvature if math.isfinite(curvature) and curvature > 0 else 0.1


@claim("eq:stocneon-batch2", kinds=("stochastic",), also=("eq:stocneon-batch1", "unlabelled:stocbio-orders"))
def batch_orders(study: Study) -> Iterator[CheckResult]:
    """Batch sizes: S ~ kappa^5/eps^2, B ~ kappa^2/eps^2, D_f ~ kappa^2/eps^2, D_g ~ kappa^6/eps^2.

    Paper: Equation D.68 [eq:stocneon-batch2]; Equation D.67 [eq:stocneon-batch1]
    Assumes: mu -> 0 with ell, rho, nu, M and sigma fixed; logarithms are not counted.
    """
    sizes = Sizes.bilevel()
    counts = {
        "S": (sizes.S, "5", "2"), "B": (sizes.B, "2", "2"), "D_f": (sizes.batch_f, "2", "2"),
        "D_g": (sizes.batch_g, "6", "2"),
    }  # fmt: skip
    yield from _orders("eq:stocneon-batch2", study, counts)


@claim("eq:ineon-sample-com", kinds=("stochastic",))
def neon_complexities(study: Study) -> Iterator[CheckResult]:
    """Samples in the calls of iNEON: kappa^5, kappa^10, kappa^9 and kappa^9.5, each over eps^4.

    G_f = D_f K, G_g = D D_g K, JV_g = D_g K, HV_g = N D_g K

    Paper: Equation D.69 [eq:ineon-sample-com]
    Assumes: as for the batch sizes.
    """
    sizes = Sizes.bilevel()
    counts = {
        "G_f": (sizes.batch_f * sizes.K, "5", "4"), "G_g": (sizes.D * sizes.batch_g * sizes.K, "10", "4"),
        "JV_g": (sizes.batch_g * sizes.K, "9", "4"), "HV_g": (sizes.N * sizes.batch_g * sizes.K, "19/2", "4"),
    }  # fmt: skip
    yield from _orders("eq:ineon-sample-com", study, counts)


@claim("eq:stoc-sample-com", kinds=("stochastic",))
def stocbio_complexities(study: Study) -> Iterator[CheckResult]:
    """Samples in the iterations of stocBiO: kappa^5, kappa^9, kappa^5 and kappa^7, each over eps^4.

    G_f = 2 D_f K, G_g = D S K, JV_g = D_g K with the D_g of the step, of order kappa^2/eps^2,
    HV_g = K times the sum of the Neumann batches B Q (1 - 1/kappa)^(j - 1)

    Paper: Equation D.70 [eq:stoc-sample-com]
    Assumes: as for the batch sizes; new D_F, D_G are drawn for the check and for iNEON, as their lemmas need (see the
    erratum on Algorithm 3), so that the step's own D_G is that of (D.68).
    Deviation: the print has kappa^6 for HV_g, as if the Neumann batches were B Q together; with Q ~ kappa log they are
    kappa B Q, because the sum of (1 - 1/kappa)^j is kappa (1 - (1 - 1/kappa)^Q). The corollary stands: iNEON's calls
    cost more.
    """
    sizes = Sizes.bilevel()
    counts = {
        "G_f": (2 * sizes.batch_f * sizes.K, "5", "4"), "G_g": (sizes.D * sizes.S * sizes.K, "9", "4"),
        "JV_g": (sizes.step_g * sizes.K, "5", "4"), "HV_g": (sizes.neumann * sizes.K, "7", "4"),
    }  # fmt: skip
    yield from _orders("eq:stoc-sample-com", study, counts, HV_g="6")


@claim(
    "cor:stocneon",
    kinds=("stochastic",),
    also=("unlabelled:corollary-stochastic-gradients", "unlabelled:corollary-stochastic-products"),
)
def stocneon_complexities(study: Study) -> Iterator[CheckResult]:
    """Samples of stocBiO with iNEON: G_f ~ kappa^5, G_g ~ kappa^10, JV_g ~ kappa^9, HV_g ~ kappa^9.5, each over eps^4.

    The larger of what the calls of iNEON and the iterations of stocBiO take.

    Paper: Corollary 4.6 [cor:stocneon]
    Assumes: as for the batch sizes.
    """
    sizes = Sizes.bilevel()
    K, D_f, D_g = sizes.K, sizes.batch_f, sizes.batch_g
    counts = {
        "G_f": (D_f * K, "5", "4"),
        "G_g": (sizes.D * (D_g + sizes.S) * K, "10", "4"),
        "JV_g": (D_g * K, "9", "4"),
        "HV_g": ((sizes.N * D_g + sizes.neumann) * K, "19/2", "4"),
    }
    yield from _orders("cor:stocneon", study, counts)


def orders_of(names: Iterable[str]) -> dict[str, Order]:
    """The orders of some of the sizes of the bilevel theorems.

    >>> orders_of(["K", "batch_g"])["batch_g"]
    Order(kappa=6, eps=2)
    """
    sizes = Sizes.bilevel()
    return {name: Order.of(getattr(sizes, name)) for name in names}
