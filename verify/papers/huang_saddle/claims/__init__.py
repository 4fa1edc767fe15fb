"""The claims, one module per family; ``FAMILIES`` is the order in which they are checked, cheap proofs first."""

from types import ModuleType

from verify.papers.huang_saddle.claims import (
    algorithms,
    batch_errors,
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
    stocbio,
    stochastic,
    theorems,
    tube,
    warm_start,
)

__all__ = ["FAMILIES"]

FAMILIES: tuple[ModuleType, ...] = (
    identities, routes, formulas, estimators, algorithms, derivatives, lipschitz_hessian, minimax, definitions, tube,
    corollaries, theorems, hypergradient_error, warm_start, descent, escape, neon, stochastic, batch_errors, stocbio,
)  # fmt: skip
