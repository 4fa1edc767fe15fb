"""Constants of the standing assumptions, and the formulas that the paper prints in them."""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Any, get_args

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.theories import Reading, Variant

__all__ = ["Constants", "MinimaxConstants"]


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of Assumption 2.1 over a region; numbers of any kind (exact ones stay exact).

    - ``mu``: g is mu-strongly convex in y.
    - ``ell``: bounds the second derivatives of f and g.
    - ``rho``: bounds the third derivatives of f, and of g with at least one in y. Tensors are normed over unit vectors.
    - ``nu``: bounds the fourth derivatives of g with at least one in y.
    - ``M``: bounds the norms of f_x and f_y, and of nothing else.
    - ``sigma``: the standard deviation of Assumption 4.4.
    - ``reading``: "block" bounds each block of partial derivatives on its own, as the paper's proofs do; "joint" bounds
      the derivatives in (x, y) together.

    Every formula has ``variant``: "corrected" is what its derivation gives, "printed" is the print, and "sharp" the
    best that is proved in these constants under their reading. Read block by block the corrected formulas are the
    sharp ones: over a box they are attained (``zoo.get("block_extremal")``). Read jointly they are not, because
    (x, y*(x)) moves at most kappa times as fast as x, where the blocks one by one allow 1 + kappa (``stretch``).

    Paper: Assumption 2.1 [assu:bilevel]; Assumption 4.4 [ass:variance-bound]

    >>> Constants(mu=1, ell=2, rho=1, nu=1, M=1).kappa
    2.0
    """

    mu: Any
    ell: Any
    rho: Any
    nu: Any
    M: Any
    sigma: Any = field(default=None, kw_only=True)
    reading: Reading = field(default="block", kw_only=True)

    def __post_init__(self) -> None:
        _check_curvature(self.mu, self.ell)
        _check_bounds(rho=self.rho, nu=self.nu, M=self.M, sigma=0 if self.sigma is None else self.sigma)
        _check_reading(self.reading)

    @property
    def kappa(self) -> Any:
        """The condition number ell/mu of the lower level."""
        return self.ell / self.mu

    @property
    def stretch(self) -> Any:
        """How much faster than x the pair (x, y*(x)) moves, at most: 1 + kappa read block by block, kappa read jointly.

        Block by block, the norms 1 and kappa of the two blocks of Z = (I, dy/dx) are added. Jointly, |Z| <= kappa: for
        a unit vector a let w = (dy/dx)'a and c = w'g_yy w/|w|^2, so that c >= mu. The Hessian of g has, between
        (0, w/|w|) on one side and (a, 0), (0, w/|w|) on the other, the entries a'g_xy w/|w| = -c |w| and c, because
        g_xy + (dy/dx) g_yy = 0. It maps a unit vector to one of length at most ell, hence c^2 (|w|^2 + 1) <= ell^2,
        and |Za|^2 = 1 + |w|^2 <= (ell/c)^2 <= kappa^2.

        Paper: Lemma 2.4 [hess-Lipschitz]
        Assumes: Assumption 2.1 [assu:bilevel], in the reading of these constants.

        >>> Constants(mu=1, ell=2, rho=1, nu=1, M=1).stretch, Constants(1, 2, 1, 1, 1, reading="joint").stretch
        (3.0, 2.0)
        """
        return self.kappa if self.reading == "joint" else 1 + self.kappa

    def L_phi(self, *, variant: Variant = "corrected") -> Any:
        """A Lipschitz constant of grad Phi.

        L_phi = ell + (2 ell^2 + rho M)/mu + (ell^3 + 2 rho ell M)/mu^2 + rho ell^2 M/mu^3

        That is (ell + rho M/mu) (1 + kappa)^2: Hess Phi = Z'HZ with H the Hessian of the Lagrangian f - v'grad_y g and
        Z = (I, dy/dx). "sharp" has ``stretch`` for 1 + kappa. Read block by block it is attained over a box; read
        jointly it is attained where rho = 0, and otherwise approached over small boxes.

        Paper: Lemma A.2 [grad-Lipschitz]
        Assumes: Assumption 2.1 [assu:bilevel], read block by block; "sharp" in the reading of these constants.
        Deviation: the print has rho M^2/mu where the derivation gives rho M/mu; with M < 1 the printed
        value is too small (``zoo.get("lphi_witness")``). ``variant="printed"`` gives the print.

        >>> Constants(mu=1, ell=1, rho=40, nu=0, M=0.5).L_phi()
        84.0
        >>> Constants(mu=1, ell=1, rho=40, nu=0, M=0.5).L_phi(variant="printed")
        74.0
        >>> Constants(mu=1, ell=1, rho=40, nu=0, M=0.5, reading="joint").L_phi(variant="sharp")
        21.0
        """
        mu, ell, rho, M = self.mu, self.ell, self.rho, self.M
        if _checked(variant) == "sharp":
            return (ell + rho * M / mu) * self.stretch**2
        rho_term = rho * M**2 if variant == "printed" else rho * M
        return ell + (2 * ell**2 + rho_term) / mu + (ell**3 + 2 * rho * ell * M) / mu**2 + rho * ell**2 * M / mu**3

    def rho_phi(self, *, variant: Variant = "corrected") -> Any:
        """A Lipschitz constant of the Hessian of Phi.

        rho_phi = (rho + nu M/mu) u^3 + 3 (rho/mu) (ell + rho M/mu) u^3 with u = 1 + kappa

        The first summand bounds D^3 of the Lagrangian f - v'grad_y g along Z = (I, dy/dx), whose blocks have norms
        1 and at most kappa; the second bounds the three placements of (v' a)' D^2(grad_y g)[Zb, Zc], where v' is at
        most (ell + rho M/mu) u/mu and the rest at most rho u^2. "sharp" has ``stretch`` for u: read block by block it
        is this value, which is attained over a box; read jointly u is kappa, and the value is approached over small
        boxes as kappa grows.

        Paper: Lemma 2.4 [hess-Lipschitz]; Equation B.17 [def-rho-phi]
        Assumes: Assumption 2.1 [assu:bilevel], read block by block; "sharp" in the reading of these constants.
        Deviation: the print is larger by 2 M rho^2 u^2/mu^2. It bounds the change of (dy/dx) g_yxy like term (II) of
        its proof, but keeps the factor 2 that stands before term (II): 2 rho^2/mu where rho^2/mu follows.

        >>> Constants(mu=1, ell=1, rho=1, nu=0, M=1).rho_phi()
        56.0
        >>> Constants(mu=1, ell=1, rho=1, nu=0, M=1).rho_phi(variant="printed")
        64.0
        >>> Constants(mu=1, ell=1, rho=1, nu=0, M=1, reading="joint").rho_phi(variant="sharp")
        7.0
        """
        mu, ell, rho, nu, M = self.mu, self.ell, self.rho, self.nu, self.M
        u = self.stretch if _checked(variant) == "sharp" else 1 + self.kappa
        if variant != "printed":
            return (rho + nu * M / mu + 3 * rho / mu * (ell + rho * M / mu)) * u**3
        first = (
            rho + (2 * ell * rho + M * nu) / mu + (2 * M * ell * nu + rho * ell**2) / mu**2 + M * ell**2 * nu / mu**3
        )
        second = 2 * ell * rho / mu + (4 * M * rho**2 + 2 * ell**2 * rho) / mu**2 + 2 * M * ell * rho**2 / mu**3
        third = M * rho**2 / mu**2 + rho * ell / mu
        return first * u + second * u**2 + third * u**3

    @property
    def drift(self) -> Any:
        """How much faster than x the exact solutions y* and v* move, together.

        drift = kappa^2 + 2 kappa + rho M (1 + kappa)/mu^2

        Paper: Equation B.28 [eq:vkstar-diff]; Equation B.30 [eq:warmstart]
        Assumes: Assumption 2.1 [assu:bilevel].

        >>> Constants(mu=1, ell=2, rho=1, nu=1, M=1).drift
        11.0
        """
        return self.kappa**2 + 2 * self.kappa + self.rho * self.M * (1 + self.kappa) / self.mu**2

    @property
    def hypergradient_bound(self) -> Any:
        """A bound on the norm of the exact hypergradient: M + ell M/mu.

        Paper: Proposition A.1 [pro:bounds]
        Assumes: Assumption 2.1 [assu:bilevel].

        >>> Constants(mu=1, ell=2, rho=1, nu=1, M=1).hypergradient_bound
        3.0
        """
        return self.M + self.kappa * self.M

    def gamma_1(self, eta: Any, initial_error: Any, *, gradient_bound: Any = None) -> Any:
        """A bound on the warm-start distance |y_k^0 - y*(x_k)| + |v_k^0 - v*_k| at every iteration of AID.

        Gamma_1 = initial_error + 2 eta (kappa^2 + 2 kappa + rho M (1 + kappa)/mu^2) gradient_bound

        Paper: Equation B.19 [def-gamma1-AID]; Equation B.32 [eq:equvseq]
        Assumes: D and N that halve the distance (``aid_contracts``), and steps of x that are at most
        eta times ``gradient_bound`` long.
        Deviation: the print takes M + ell M/mu for ``gradient_bound``, which bounds the exact hypergradient. The
        estimate can be longer, by its error, and a perturbation moves x by eta r; the schedules pass what covers
        both. The default is the print.

        >>> Constants(mu=1, ell=2, rho=1, nu=1, M=1).gamma_1(eta=0.5, initial_error=1)
        34.0
        """
        bound = self.hypergradient_bound if gradient_bound is None else gradient_bound
        return initial_error + 2 * eta * self.drift * bound

    def aid_error_terms(
        self, D: int, N: int, *, eta: Any, initial_error: Any, gradient_bound: Any = None
    ) -> tuple[float, float]:
        """The two summands of ``aid_error``: what D steps of descent and what N steps of CG leave over.

        - All: as for ``aid_error``.

        Paper: Equation B.18 [eq:aid-error]

        >>> Constants(mu=1, ell=1, rho=1, nu=1, M=1).aid_error_terms(0, 1, eta=1, initial_error=0, gradient_bound=0.1)
        (8.0, 0.0)
        """
        gamma = float(self.gamma_1(eta, initial_error, gradient_bound=gradient_bound))
        ell, kappa = float(self.ell), float(self.kappa)
        keeps_y, keeps_v = _descent_rate(self.mu, self.ell) ** (D / 2), _conjugate_rate(self.mu, self.ell) ** N
        descent = (1 + kappa * (1 + 2 * math.sqrt(kappa))) * (ell + float(self.rho * self.M / self.mu))
        products = 2 * ell * math.sqrt(kappa)
        return gamma * descent * keeps_y, gamma * products * keeps_v

    def aid_error(self, D: int, N: int, *, eta: Any, initial_error: Any, gradient_bound: Any = None) -> float:
        """A bound on the error of the AID hypergradient with warm start, at every iteration.

        ((1 + kappa (1 + 2 sqrt(kappa))) (ell + rho M/mu) (1 - mu/ell)^(D/2)
         + 2 ell sqrt(kappa) ((sqrt(kappa) - 1)/(sqrt(kappa) + 1))^N) Gamma_1

        - ``D``: steps of gradient descent for y.
        - ``N``: steps of conjugate gradients for v.
        - ``eta``: the step size of x.
        - ``initial_error``: bounds |y0 - y*(x0)| + |v0 - v*(x0)|.
        - ``gradient_bound``: how long an estimate can be; by default M + ell M/mu.

        Paper: Lemma B.1 [lem:grad-err-aid]; Equation B.18 [eq:aid-error]
        Assumes: Assumption 2.1 [assu:bilevel], tau = 1/ell, and D and N for which ``aid_contracts``.

        >>> c = Constants(mu=1, ell=2, rho=1, nu=1, M=1)
        >>> c.aid_error(40, 10, eta=0.1, initial_error=1) < 1e-2 < c.aid_error(20, 10, eta=0.1, initial_error=1)
        True
        """
        return sum(self.aid_error_terms(D, N, eta=eta, initial_error=initial_error, gradient_bound=gradient_bound))

    def warm_start_factors(self, D: int, N: int) -> tuple[float, float]:
        """How much of the warm-start distances of y and of v an outer iteration of AID leaves, at most.

        ((1 + 2 sqrt(kappa)) (kappa + rho M/mu^2) + 1) (1 - 1/kappa)^(D/2) and
        2 sqrt(kappa) ((sqrt(kappa) - 1)/(sqrt(kappa) + 1))^N

        Paper: Equation B.30 [eq:warmstart]
        Assumes: Assumption 2.1 [assu:bilevel], tau = 1/ell.

        >>> Constants(mu=1, ell=1, rho=1, nu=1, M=1).warm_start_factors(0, 1)
        (7.0, 0.0)
        """
        root = math.sqrt(self.kappa)
        coupling = (1 + 2 * root) * float(self.kappa + self.rho * self.M / self.mu**2) + 1
        keeps_y, keeps_v = _descent_rate(self.mu, self.ell) ** (D / 2), _conjugate_rate(self.mu, self.ell) ** N
        return coupling * keeps_y, 2 * root * keeps_v

    def aid_contracts(self, D: int, N: int) -> bool:
        """Whether D and N halve the warm-start distance of AID from one outer iteration to the next.

        Paper: Equation B.31 [unlabelled:warm-start-D-N]
        Assumes: Assumption 2.1 [assu:bilevel], tau = 1/ell.

        >>> c = Constants(mu=1, ell=2, rho=1, nu=1, M=1)
        >>> c.aid_contracts(10, 1), c.aid_contracts(9, 1), c.aid_contracts(10, 0)
        (True, False, False)
        """
        return max(self.warm_start_factors(D, N)) <= 0.5


@dataclass(frozen=True, slots=True)
class MinimaxConstants:
    """The constants of Assumption 3.5 over a region, for min over x, max over y of f; exact numbers stay exact.

    - ``mu``: f is mu-strongly concave in y.
    - ``ell``: bounds the second derivatives of f in (x, y).
    - ``rho``: bounds its third derivatives.
    - ``M_x``: bounds the norm of f_x, where that is known. The assumption does not ask for it, but the error of GDmax
      depends on how far a step can move x.
    - ``reading``: "joint" where ell and rho bound the derivatives in (x, y) together; "block" where each block is
      bounded on its own, and then nothing sharper than the print is known. The assumption prints ell jointly and rho
      block by block: only ell is then at hand for the sharp formulas.

    Paper: Assumption 3.5 [assu:minimax]

    >>> MinimaxConstants(mu=1, ell=2, rho=1).kappa
    2.0
    """

    mu: Any
    ell: Any
    rho: Any
    M_x: Any = field(default=None, kw_only=True)
    reading: Reading = field(default="joint", kw_only=True)

    def __post_init__(self) -> None:
        _check_curvature(self.mu, self.ell)
        _check_bounds(rho=self.rho, M_x=0 if self.M_x is None else self.M_x)
        _check_reading(self.reading)

    @property
    def kappa(self) -> Any:
        """The condition number ell/mu of the inner maximisation."""
        return self.ell / self.mu

    def L_phi(self, *, variant: Variant = "corrected") -> Any:
        """A Lipschitz constant of grad Phi: L_phi = ell (1 + kappa); "sharp", read jointly, is ell kappa; attained.

        Sharp: with Z = (I, dy/dx), the Hessian of f maps Za to (Hess Phi a, 0), because f_yx + f_yy (dy/dx)' = 0; so
        |Hess Phi a| <= ell |Za| <= ell kappa for a unit vector a (``Constants.stretch``).

        Paper: Lemma C.1 [lemC.1]
        Assumes: Assumption 3.5 [assu:minimax]; "sharp" its ell, which bounds the whole Hessian of f at once.

        >>> MinimaxConstants(mu=1, ell=2, rho=1).L_phi()
        6.0
        >>> MinimaxConstants(mu=1, ell=2, rho=1).L_phi(variant="sharp")
        4.0
        """
        if _checked(variant) == "sharp" and self.reading == "joint":
            return self.ell * self.kappa
        return self.ell * (1 + self.kappa)

    def rho_phi(self, *, variant: Variant = "corrected") -> Any:
        """A Lipschitz constant of the Hessian of Phi: rho (1 + kappa)^3; "sharp", read jointly, is rho kappa^3.

        It is the bilevel formula with v = 0 and v' = 0, because f_y vanishes along y*(x): D^3 Phi = D^3 f[Z, Z, Z]
        with Z = (I, dy/dx), and |Z| <= kappa where ell bounds the whole Hessian of f (``Constants.stretch``). "sharp"
        is approached over small boxes.

        Paper: Lemma C.1 [lemC.1]
        Assumes: Assumption 3.5 [assu:minimax]; "sharp" a rho that bounds the third derivatives in (x, y) together;
        the assumption prints the blocks.

        >>> MinimaxConstants(mu=1, ell=2, rho=1).rho_phi()
        27.0
        >>> MinimaxConstants(mu=1, ell=2, rho=1).rho_phi(variant="sharp")
        8.0
        """
        joint = _checked(variant) == "sharp" and self.reading == "joint"
        return self.rho * (self.kappa if joint else 1 + self.kappa) ** 3

    def gdmax_error(self, D: int, *, eta: Any, initial_error: Any, gradient_bound: Any = None) -> float:
        """A bound on the error of the GDmax hypergradient with warm start, at every iteration.

        ell (initial_error + 2 eta kappa gradient_bound) (1 - 1/kappa)^(D/2)

        - ``D``: steps of gradient ascent for y.
        - ``eta``: the step size of x.
        - ``initial_error``: bounds |y0 - y*(x0)|.
        - ``gradient_bound``: how long an estimate can be; by default M_x.

        Paper: Lemma C.2 [lem:grad-err-mini]; Equation C.6 [eq:gdmax-error]
        Assumes: Assumption 3.5 [assu:minimax], tau = 1/ell, D for which ``gdmax_contracts``, and steps of x that are
        at most eta times ``gradient_bound`` long.
        Deviation: the print has M + ell M/mu for ``gradient_bound``, from a bound M that Assumption 3.5 does not
        contain. The estimate is f_x at some y, so M_x is what is needed, and it is the default.

        >>> c = MinimaxConstants(mu=1, ell=2, rho=1, M_x=1)
        >>> c.gdmax_error(4, eta=0.25, initial_error=1)
        1.0
        """
        bound = self.M_x if gradient_bound is None else gradient_bound
        if bound is None:
            raise InvalidArgument(
                "the error of GDmax needs a bound on the norm of f_x",
                hint="MinimaxConstants(..., M_x=...), or pass gradient_bound",
            )
        distance = float(initial_error + 2 * eta * self.kappa * bound)
        return float(self.ell) * distance * float(_descent_rate(self.mu, self.ell) ** (D / 2))

    def gdmax_contracts(self, D: int) -> bool:
        """Whether D steps halve the warm-start distance of GDmax: (1 - 1/kappa)^(D/2) <= 1/2.

        Paper: Equation C.9 [eq:gdmax-error-D]
        Assumes: Assumption 3.5 [assu:minimax], tau = 1/ell.
        Deviation: the print asks for a strict inequality, and its proof for this one.

        >>> MinimaxConstants(mu=1, ell=2, rho=1).gdmax_contracts(2)
        True
        """
        return bool(_descent_rate(self.mu, self.ell) ** (D / 2) <= 0.5)


def _descent_rate(mu: Any, ell: Any) -> float:
    """1 - 1/kappa, whose square root is the rate of a descent step; rounded after the difference, which may cancel."""
    return float((ell - mu) / ell)


def _conjugate_rate(mu: Any, ell: Any) -> float:
    """(sqrt(kappa) - 1)/(sqrt(kappa) + 1), the rate of a CG step, without the cancellation near kappa = 1."""
    return float((ell - mu) / mu) / (math.sqrt(ell / mu) + 1) ** 2


def _check_curvature(mu: Any, ell: Any) -> None:
    if not mu > 0 or not ell >= mu:
        raise InvalidArgument(f"constants need 0 < mu <= ell, but mu = {mu} and ell = {ell}")


def _check_bounds(**bounds: Any) -> None:
    for name, value in bounds.items():
        if not value >= 0:
            raise InvalidArgument(f"{name} is a bound on a norm and cannot be {value}", hint="a number, at least 0")


def _check_reading(reading: object) -> None:
    if reading not in get_args(Reading):
        raise InvalidArgument(f"reading must be 'block' or 'joint', but is {reading!r}")


def _checked(variant: Variant) -> Variant:
    if variant not in get_args(Variant):
        raise InvalidArgument(f"variant must be one of {', '.join(map(repr, get_args(Variant)))}, but is {variant!r}")
    return variant
