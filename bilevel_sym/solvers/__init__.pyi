from .algorithm import Algorithm, Ensemble, EstimatedRun, Forgetful, Move
from .ineon import INeon
from .local_minimum import LocalMinimum
from .loop import State
from .minimizing import Minimum, minimize
from .perturbed import STATIONARY_SHARE, Descent, Perturbed
from .solving import solve
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
    "Minimum",
    "Move",
    "Perturbed",
    "State",
    "StocBiO",
    "minimize",
    "neumann_batch_sizes",
    "solve",
]
