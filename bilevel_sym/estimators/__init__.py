"""Estimators of the hypergradient, and what another one is built on."""

from bilevel_sym.estimators.hypergradient import (
    AID,
    ITD,
    Estimate,
    Estimator,
    Exact,
    GDmax,
    Hypergradient,
    ImplicitEstimator,
    Neumann,
)
from bilevel_sym.estimators.linear_system import Solved
from bilevel_sym.estimators.oracle import ExactOracle, Oracle
from bilevel_sym.estimators.status import Status

__all__ = [
    "AID", "ITD", "Estimate", "Estimator", "Exact", "ExactOracle", "GDmax", "Hypergradient", "ImplicitEstimator",
    "Neumann", "Oracle", "Solved", "Status",
]  # fmt: skip
