import verify as verify

from . import errors, zoo
from .arithmetic.balls import Ball
from .certify.certificate import Agreement, PointCertificate, evaluate
from .estimators.hypergradient import AID, ITD, Exact, GDmax, Hypergradient, Neumann
from .estimators.status import Status
from .graph.operations.logistic import sigmoid, softplus
from .kernels import Counts, Kernels, compile_kernels
from .problem.box import Box
from .problem.problem import BilevelProblem, MinimaxProblem, StochasticProblem
from .solvers import (
    Descent,
    INeon,
    LocalMinimum,
    Minimum,
    Perturbed,
    State,
    StocBiO,
    minimize,
    neumann_batch_sizes,
    solve,
)
from .solvers.solution import Solution, Trajectory
from .symbolic.derivation import Derivation, derive, derive_generic
from .theories.huang_saddle import paper, schedules
from .theories.huang_saddle.constants import Constants, MinimaxConstants

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
    "Minimum",
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
    "minimize",
    "neumann_batch_sizes",
    "paper",
    "schedules",
    "sigmoid",
    "softplus",
    "solve",
    "zoo",
]
