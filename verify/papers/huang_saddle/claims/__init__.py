"""The claims, one module per family; ``FAMILIES`` is the order in which they are checked, cheap proofs first."""

from types import ModuleType

from verify.papers.huang_saddle.claims import (
    algorithms,
    corollaries,
    definitions,
    derivatives,
    descent,
    escape,
    estimators,
    formulas,
    hypergradient_error,
    identities,
    lipschitz_hessian,
    minimax,
    neon,
    routes,
    theorems,
    tube,
    warm_start,
)
from verify.papers.huang_saddle.claims.stochastic import batch_errors, stocbio_descent, stocbio_lemmas
from verify.papers.huang_saddle.claims.stochastic import moments as stochastic

__all__ = ["FAMILIES"]

FAMILIES: tuple[ModuleType, ...] = (
    identities,
    routes,
    formulas,
    estimators,
    algorithms,
    derivatives,
    lipschitz_hessian,
    minimax,
    definitions,
    tube,
    corollaries,
    theorems,
    hypergradient_error,
    warm_start,
    descent,
    escape,
    neon,
    stochastic,
    batch_errors,
    stocbio_lemmas,
    stocbio_descent,
)
