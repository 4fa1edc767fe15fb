"""Finding: a statement, or a step of a proof, that was recomputed and found right."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import sympy as sp

from bilevel_sym import paper
from verify.verdict import Evidence

__all__: list[str] = []


MU, ELL, RHO, M, IOTA, EPS, RHO_PHI, L_PHI = sp.symbols("mu ell rho M iota eps rho_phi L_phi", positive=True)
KAPPA = ELL / MU
ETA = 1 / L_PHI
TIME = L_PHI / sp.sqrt(RHO_PHI * EPS) * IOTA  # script T
FALL = sp.sqrt(EPS**3 / RHO_PHI) / (100 * IOTA**3)  # script F
RADIUS = sp.sqrt(EPS / RHO_PHI) / (4 * IOTA)  # script S
NOISE = EPS / (400 * IOTA**3)  # r
NEON_TIME, NEON_FALL = TIME / 4, 4 * FALL


@dataclass(frozen=True, kw_only=True)
class Finding:
    """A statement that stands: its places, what was computed, and the computation.

    >>> from verify.papers.huang_saddle.errata.right import found_right
    >>> all(finding.holds() for finding in found_right()[:3])
    True
    """

    labels: tuple[str, ...]
    text: str
    evidence: Evidence
    holds: Callable[[], bool]

    @property
    def name(self) -> str:
        """The name of the computation, by which coverage and tests refer to the finding."""
        return getattr(self.holds, "__name__", "")

    @property
    def where(self) -> str:
        """The references to the places."""
        return "; ".join(map(paper.cite, self.labels))


def right(*labels: str, text: str, evidence: Evidence = "proved") -> Callable[[Callable[[], bool]], Finding]:
    """Make a computation a finding; ``found_right`` collects them by their type.

    >>> @right("lem:descent", text="1/4 + 1/4 = 1/2")
    ... def half():
    ...     return 1 / 4 + 1 / 4 == 1 / 2
    >>> half.where, half.holds()
    ('Lemma 2.8 [lem:descent]', True)
    """
    for label in labels:
        paper.cite(label)
    return lambda holds: Finding(labels=labels, text=text, evidence=evidence, holds=holds)


def same(left: sp.Expr, other: sp.Expr) -> bool:
    """Whether two expressions agree, symbolically.

    >>> x = sp.Symbol("x")
    >>> same((x + 1) ** 2, x**2 + 2 * x + 1)
    True
    """
    return bool(sp.simplify(left - other) == 0)
