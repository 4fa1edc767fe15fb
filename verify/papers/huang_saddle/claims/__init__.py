"""The claims, one module per family; ``FAMILIES`` is the order in which they are checked, cheap proofs first."""

from importlib import import_module
from types import ModuleType

__all__ = ["FAMILIES"]

_NAMES = (
    "identities", "routes", "formulas", "estimators", "algorithms", "derivatives", "lipschitz_hessian", "minimax",
    "definitions", "tube", "corollaries", "theorems", "hypergradient_error", "warm_start", "descent", "escape", "neon",
    "stochastic", "batch_errors", "stocbio",
)  # fmt: skip
FAMILIES: tuple[ModuleType, ...] = tuple(import_module(f"{__name__}.{name}") for name in _NAMES)
