import verify as verify

from . import errors, paper, schedules, zoo
from .ball import Ball
from .box import Box
from .certificate import Agreement, PointCertificate, evaluate
from .constants import Constants, MinimaxConstants
from .derivation import Derivation, derive, derive_generic
from .functions import sigmoid, softplus
from .hypergradient import AID, ITD, Exact, GDmax, Hypergradient, Neumann
from .kernels import Counts, Kernels, compile_kernels
from .problem import BilevelProblem, MinimaxProblem, StochasticProblem
from .solution import Solution, Trajectory
from .solvers import Descent, INeon, LocalMinimum, Perturbed, State, StocBiO, neumann_batch_sizes, solve
from .status import Status

__version__: str

__all__ = [
    "AID",
    "ITD",
    "Agreement",
    "Ball",
    "BilevelProblem",
    "Box",
    "Constants",
    "Counts",
    "Derivation",
    "Descent",
    "Exact",
    "GDmax",
    "Hypergradient",
    "INeon",
    "Kernels",
    "LocalMinimum",
    "MinimaxConstants",
    "MinimaxProblem",
    "Neumann",
    "Perturbed",
    "PointCertificate",
    "Solution",
    "State",
    "Status",
    "StocBiO",
    "StochasticProblem",
    "Trajectory",
    "compile_kernels",
    "derive",
    "derive_generic",
    "errors",
    "evaluate",
    "neumann_batch_sizes",
    "paper",
    "schedules",
    "sigmoid",
    "softplus",
    "solve",
    "zoo",
]
