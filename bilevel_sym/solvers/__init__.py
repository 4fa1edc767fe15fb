"""Solvers: the paper's three algorithms and their baselines, one trajectory or thousands at once."""

from bilevel_sym.solvers.algorithm import Algorithm, Ensemble, EstimatedRun, Forgetful, Move
from bilevel_sym.solvers.ineon import INeon
from bilevel_sym.solvers.local_minimum import LocalMinimum
from bilevel_sym.solvers.loop import State, solve
from bilevel_sym.solvers.perturbed import STATIONARY_SHARE, Descent, Perturbed
from bilevel_sym.solvers.stocbio import StocBiO, neumann_batch_sizes

__all__ = [
    "STATIONARY_SHARE",
    "Algorithm",
    "Descent",
    "Ensemble",
    "EstimatedRun",
    "Forgetful",
    "INeon",
    "LocalMinimum",
    "Move",
    "Perturbed",
    "State",
    "StocBiO",
    "neumann_batch_sizes",
    "solve",
]
