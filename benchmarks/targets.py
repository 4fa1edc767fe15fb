"""How fast we want to be: ratios of our time to a peer's. Pure data."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["TARGETS", "Target", "targets_for"]


@dataclass(frozen=True)
class Target:
    """Our engine's time over the peer's should be at most the limit, on a family (empty: on all) from a size on."""

    engine: str
    measure: str
    peer: str
    limit: float
    family: str = ""
    least_n: int = 0


NUMPY, NUMBA, JAX, CASADI = "NumPy engine", "numba engine", "JAX", "CasADi"

TARGETS = (
    Target(NUMPY, "set_up", JAX, 0.2),
    Target(NUMPY, "set_up_text", JAX, 0.2),
    Target(NUMBA, "set_up", JAX, 0.2),
    Target(NUMBA, "set_up_text", JAX, 0.2),
    Target(NUMPY, "set_up", CASADI, 1.0),
    Target(NUMPY, "one", JAX, 1.0, least_n=10),
    Target(NUMPY, "one", CASADI, 1.5, least_n=10),
    Target(NUMPY, "batch", JAX, 0.8, "sparse"),
    Target(NUMPY, "batch", JAX, 1.2, "logistic"),
    Target(NUMPY, "batch", CASADI, 0.5),
    Target(NUMBA, "one", JAX, 0.3),
    Target(NUMBA, "batch", JAX, 0.4, "sparse"),
    Target(NUMBA, "batch", JAX, 0.8, "logistic"),
)


def targets_for(case: str, engine: str, measure: str, peer: str) -> Target | None:
    """The target that applies to a ratio, if any."""
    family, _, size = case.rpartition("-")
    for target in TARGETS:
        wanted = (target.engine, target.measure, target.peer) == (engine, measure, peer)
        if wanted and target.family in ("", family) and int(size) >= target.least_n:
            return target
    return None
