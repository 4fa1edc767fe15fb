"""Constants(mu, ell, rho, nu, M) of the standing assumption, and the formulas the paper prints in them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any, Literal

from bilevel_sym.errors import InvalidProblem

__all__ = ["Constants"]

Variant = Literal["corrected", "printed"]


@dataclass(frozen=True, slots=True)
class Constants:
    """The constants of Assumption 2.1 over a region; numbers of any kind (exact ones stay exact).

    ``reading`` says how the assumption was read: "block" bounds each partial derivative block on its own,
    as the paper's proofs do, "joint" bounds the derivatives in (x, y) together. M bounds the norms of f_x and
    f_y only; tensors are normed over unit vectors.

    Paper: Assumption 2.1 [assu:bilevel]

    >>> Constants(mu=1, ell=2, rho=1, nu=1, M=1).kappa
    2.0
    """

    mu: Any
    ell: Any
    rho: Any
    nu: Any
    M: Any
    sigma: Any = None
    reading: Literal["block", "joint"] = "block"

    def __post_init__(self) -> None:
        if not self.mu > 0 or not self.ell >= self.mu:
            raise InvalidProblem(f"constants need 0 < mu <= ell, but mu = {self.mu} and ell = {self.ell}")
        if any(value < 0 for value in (self.rho, self.nu, self.M)):
            raise InvalidProblem("rho, nu and M are bounds on norms and cannot be negative")
        if self.reading not in ("block", "joint"):
            raise InvalidProblem(f"reading must be 'block' or 'joint', but is {self.reading!r}")

    @property
    def kappa(self) -> Any:
        """The condition number ell/mu of the lower level."""
        return self.ell / self.mu

    def L_phi(self, *, variant: Variant = "corrected") -> Any:
        """A Lipschitz constant of grad Phi.

        L_phi = ell + (2 ell^2 + rho M)/mu + (ell^3 + 2 rho ell M)/mu^2 + rho ell^2 M/mu^3

        Paper: Lemma A.2 [grad-Lipschitz]
        Assumes: Assumption 2.1 [assu:bilevel], read block by block.
        Deviation: the print has rho M^2/mu where the derivation gives rho M/mu; with M < 1 the printed
        value is too small (``zoo.get("lphi_witness")``). ``variant="printed"`` gives the print.

        >>> Constants(mu=1, ell=1, rho=40, nu=0, M=0.5).L_phi()
        84.0
        >>> Constants(mu=1, ell=1, rho=40, nu=0, M=0.5).L_phi(variant="printed")
        74.0
        """
        mu, ell, rho, M = self.mu, self.ell, self.rho, self.M
        if variant not in ("corrected", "printed"):
            raise InvalidProblem(f"variant must be 'corrected' or 'printed', but is {variant!r}")
        rho_term = rho * M if variant == "corrected" else rho * M**2
        return ell + (2 * ell**2 + rho_term) / mu + (ell**3 + 2 * rho * ell * M) / mu**2 + rho * ell**2 * M / mu**3
