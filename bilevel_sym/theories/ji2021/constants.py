"""Constants of the assumptions of Ghadimi and Wang and of Ji, Yang and Liang, and the formulas made of them."""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any, get_args

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.theories import Variant

__all__ = ["RateConstants"]


@dataclass(frozen=True, slots=True, kw_only=True)
class RateConstants:
    """The constants that the rates are stated in, over a region; numbers of any kind (exact ones stay exact).

    ``mu``: g is mu-strongly convex in y. ``L``: a bound on the second derivatives of f and g. ``M``: on the gradient of
    f. ``tau``: a Lipschitz constant of g_xy. ``rho``: one of g_yy. Each bounds the blocks of partial derivatives one by
    one, which asks less than the papers do: they bound the derivatives in (x, y) together.

    Paper: Assumptions 1 to 3 [ji2021:assu-levels]; Assumptions [ghadimi2018:assu-levels]

    >>> RateConstants(mu=1, L=2, M=1, tau=0, rho=3).kappa
    2.0
    """

    mu: Any
    L: Any
    M: Any
    tau: Any
    rho: Any

    def __post_init__(self) -> None:
        if not 0 < self.mu <= self.L:
            raise InvalidArgument(f"0 < mu <= L must hold, but mu = {self.mu}, L = {self.L}", hint="mu=1, L=2")
        for name in ("M", "tau", "rho"):
            if not getattr(self, name) >= 0:
                raise InvalidArgument(f"{name} bounds a norm and cannot be {getattr(self, name)}", hint=f"{name}=1")

    @property
    def kappa(self) -> Any:
        """The condition number L/mu; y* is Lipschitz with it.

        Paper: Lemma 2.2 (b) [ghadimi2018:lem-response]
        """
        return self.L / self.mu

    @property
    def C(self) -> Any:
        """How much faster than y the hypergradient f_x - g_xy g_yy^-1 f_y moves, at most.

        C = L + L^2/mu + M (tau/mu + rho L/mu^2)

        Paper: Lemma 2.2 (a) [ghadimi2018:lem-error]

        >>> RateConstants(mu=1, L=2, M=1, tau=1, rho=1).C
        9.0
        """
        mu, L, M = self.mu, self.L, self.M
        return L + L**2 / mu + M * (self.tau / mu + self.rho * L / mu**2)

    def L_phi(self, *, variant: Variant = "corrected") -> Any:
        """A Lipschitz constant of grad Phi.

        L_phi = L + (2 L^2 + tau M)/mu + (rho L M + L^3 + tau M L)/mu^2 + rho L^2 M/mu^3

        That is (1 + kappa) C: the hypergradient moves C times as fast as each of x and y, and y* kappa times as fast as
        x. Ghadimi and Wang's L + (L + C) kappa + M (tau/mu + rho L/mu^2) is the same number.

        Paper: Lemma 2 [ji2021:lem-smooth]; Lemma 2.2 (c) [ghadimi2018:lem-smooth]
        Deviation: the print of the former has tau M^2/mu where tau M/mu follows. Multiplied by a number c, both levels
        have all five constants multiplied by c, and Phi too; the printed summand alone grows like c^2.

        >>> c = RateConstants(mu=1, L=1, M=0.5, tau=40, rho=40)
        >>> c.L_phi(), c.L_phi(variant="printed"), (1 + c.kappa) * c.C
        (84.0, 74.0, 84.0)
        """
        mu, L, M, tau, rho = self.mu, self.L, self.M, self.tau, self.rho
        tau_term = tau * M**2 if _checked(variant) == "printed" else tau * M
        return L + (2 * L**2 + tau_term) / mu + (rho * L * M + L**3 + tau * M * L) / mu**2 + rho * L**2 * M / mu**3

    @property
    def drift(self) -> Any:
        """kappa + rho M/mu^2: how much faster than y the solution of g_yy v = f_y moves, at most.

        >>> RateConstants(mu=1, L=2, M=1, tau=1, rho=1).drift
        3.0
        """
        return self.kappa + self.rho * self.M / self.mu**2

    @property
    def ba_rate(self) -> float:
        """(Q - 1)/(Q + 1) with Q = kappa: what a step of size 2/(mu + L) keeps of |y - y*|, at most.

        Paper: Inequality [ghadimi2018:inner-rate]

        >>> RateConstants(mu=1, L=3, M=1, tau=1, rho=1).ba_rate
        0.5
        """
        return float((self.L - self.mu) / (self.L + self.mu))

    @property
    def cg_rate(self) -> float:
        """(sqrt(kappa) - 1)/(sqrt(kappa) + 1), the rate of conjugate gradients.

        >>> RateConstants(mu=1, L=9, M=1, tau=1, rho=1).cg_rate
        0.5
        """
        root = math.sqrt(self.kappa)
        return (root - 1) / (root + 1)

    def descent_rate(self, alpha: float) -> float:
        """1 - alpha mu: what the square of |y - y*| keeps in a step of size alpha <= 1/L, at most.

        >>> RateConstants(mu=1, L=4, M=1, tau=1, rho=1).descent_rate(0.25)
        0.75
        """
        if not 0 < alpha * self.L <= 1 + 1e-12:
            raise InvalidArgument(f"the inner step alpha = {alpha} is not in (0, 1/L]", hint=f"alpha={1 / self.L}")
        return max(0.0, 1 - float(alpha * self.mu))

    def aid_factors(self) -> tuple[float, float]:
        """What stands before (1 - alpha mu)^D |y^0 - y*|^2 and before q^(2N) |v^0 - v*|^2 in the error of AID, squared.

        Gamma = 3 L^2 + 3 tau^2 M^2/mu^2 + 6 L^2 (1 + 2 sqrt(kappa))^2 (kappa + rho M/mu^2)^2 and 24 L^2 kappa

        From |error| <= (L + tau M/mu) |y^D - y*| + L |v^N - v*| and |v^N - v*| <= (1 + 2 sqrt(kappa)) drift |y^D - y*|
        + 2 sqrt(kappa) q^N |v^0 - v*|, where 2 sqrt(kappa) q^N is the rate of conjugate gradients in the Euclidean
        norm. The factor 2 in it is needed: for kappa near 1 a step keeps half of kappa - 1, and sqrt(kappa) q is a
        quarter of that.

        Paper: Lemma [ji2021:lem-aid]

        >>> RateConstants(mu=1, L=1, M=0, tau=0, rho=0).aid_factors()
        (57.0, 24.0)
        """
        L, kappa = float(self.L), float(self.kappa)
        steep = (1 + 2 * math.sqrt(kappa)) * float(self.drift)
        gamma = 3 * L**2 + 3 * float(self.tau * self.M / self.mu) ** 2 + 6 * L**2 * steep**2
        return gamma, 24 * L**2 * kappa

    def aid_error(
        self, D: int, N: int, *, alpha: float, y_error: Any, v_error: Any, variant: Variant = "corrected"
    ) -> Any:
        """A bound on the error of the AID hypergradient after D descent steps and N steps of conjugate gradients.

        sqrt(Gamma (1 - alpha mu)^D y_error^2 + 24 L^2 kappa q^(2N) v_error^2)

        "sharp" is (L + tau M/mu + L (1 + s) drift) (1 - alpha mu)^D y_error + L s v_error: the summands themselves and
        not their squares, each descent step by its own rate, and s = min(1, 2 sqrt(kappa) q^N/(1 + q^(2N))).

        Paper: Lemma [ji2021:lem-aid]

        - ``D``, ``N``: steps of the descent and of conjugate gradients.
        - ``alpha``: the inner step, at most 1/L.
        - ``y_error``, ``v_error``: |y^0 - y*| and |v^0 - v*|; numbers or arrays.
        - ``variant``: the form of the bound; "printed" is the corrected one, for no error of the print is known.

        >>> c = RateConstants(mu=1, L=1, M=0, tau=0, rho=0)
        >>> c.aid_error(0, 1, alpha=1, y_error=1, v_error=5) == 57**0.5
        True
        >>> c.aid_error(0, 1, alpha=1, y_error=1, v_error=5, variant="sharp")
        2.0
        """
        r, q = self.descent_rate(alpha), self.cg_rate
        if _checked(variant) == "sharp":
            L, s = float(self.L), min(1.0, 2 * math.sqrt(self.kappa) * q**N / (1 + q ** (2 * N)))
            steep = L + float(self.tau * self.M / self.mu) + L * (1 + s) * float(self.drift)
            return steep * r**D * y_error + L * s * v_error
        of_y, of_v = self.aid_factors()
        return (of_y * r**D * y_error**2 + of_v * q ** (2 * N) * v_error**2) ** 0.5

    def itd_error(self, D: int, *, alpha: float, y_error: Any, variant: Variant = "corrected") -> Any:
        """A bound on the error of the ITD hypergradient through D >= 1 descent steps.

        (L (L + mu)/mu r^(D/2) + 2 M (tau mu + L rho)/mu^2 r^((D-1)/2)) y_error + (L M/mu) r^D with r = 1 - alpha mu

        The last summand stays where y^0 = y*: the derivative of y^0 is taken for zero. "sharp" has each descent step by
        its own rate: (L (L + mu)/mu r^D + alpha D M (tau + kappa rho) r^(D-1)) y_error + (L M/mu) r^D.

        Paper: Lemma [ji2021:lem-itd]

        - ``D``: descent steps.
        - ``alpha``: the inner step, at most 1/L.
        - ``y_error``: |y^0 - y*|; a number or an array.
        - ``variant``: the form of the bound; "printed" is the corrected one, for no error of the print is known.

        >>> c = RateConstants(mu=1, L=2, M=3, tau=0, rho=0)
        >>> c.itd_error(2, alpha=0.5, y_error=1.0), c.itd_error(2, alpha=0.5, y_error=1.0, variant="sharp")
        (4.5, 3.0)
        """
        mu, L, M, r = float(self.mu), float(self.L), float(self.M), self.descent_rate(alpha)
        bent = M * (float(self.tau) * mu + L * float(self.rho)) / mu
        if _checked(variant) == "sharp":
            return (L * (L + mu) / mu * r**D + alpha * D * bent * r ** (D - 1)) * y_error + L * M / mu * r**D
        moved, turned = L * (L + mu) / mu * r ** (D / 2), 2 * bent / mu * r ** ((D - 1) / 2)
        return (moved + turned) * y_error + L * M / mu * r**D


def _checked(variant: Variant) -> Variant:
    if variant not in get_args(Variant):
        raise InvalidArgument(f"variant={variant!r:.40}", hint="'corrected', 'printed' or 'sharp'")
    return variant
