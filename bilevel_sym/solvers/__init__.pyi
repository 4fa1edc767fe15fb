from .algorithm import Algorithm, Ensemble, EstimatedRun, Forgetful, Move
from .ineon import INeon
from .local_minimum import LocalMinimum
from .loop import State, solve
from .perturbed import STATIONARY_SHARE, Descent, Perturbed
from .stocbio import StocBiO, neumann_batch_sizes

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
