"""The theory's constants and parameters as symbols: what findings are computed in."""

from __future__ import annotations

import sympy as sp

__all__ = [
    "ELL",
    "EPS",
    "ETA",
    "FALL",
    "IOTA",
    "KAPPA",
    "L_PHI",
    "MU",
    "NEON_FALL",
    "NEON_TIME",
    "NOISE",
    "RADIUS",
    "RHO",
    "RHO_PHI",
    "TIME",
    "M",
]

MU, ELL, RHO, M, IOTA, EPS, RHO_PHI, L_PHI = sp.symbols("mu ell rho M iota eps rho_phi L_phi", positive=True)
KAPPA = ELL / MU
ETA = 1 / L_PHI
TIME = L_PHI / sp.sqrt(RHO_PHI * EPS) * IOTA  # script T
FALL = sp.sqrt(EPS**3 / RHO_PHI) / (100 * IOTA**3)  # script F
RADIUS = sp.sqrt(EPS / RHO_PHI) / (4 * IOTA)  # script S
NOISE = EPS / (400 * IOTA**3)  # r
NEON_TIME, NEON_FALL = TIME / 4, 4 * FALL
