"""Exact formulas for bilevel and minimax optimization: from f and g to Phi, its gradient and Hessian.

>>> from bilevel_sym import BilevelProblem, derive
>>> problem = BilevelProblem("x*y", "(1 + x**2)*y**2/2 - x*y", "x", "y")
>>> derive(problem).grad_phi
Matrix([[2*x/(x**2 + 1)**2]])
"""

from bilevel_sym import errors, paper, schedules, zoo
from bilevel_sym.ball import Ball
from bilevel_sym.box import Box
from bilevel_sym.certificate import Agreement, PointCertificate, evaluate
from bilevel_sym.constants import Constants, MinimaxConstants
from bilevel_sym.derivation import Derivation, derive, derive_generic
from bilevel_sym.functions import sigmoid, softplus
from bilevel_sym.hypergradient import AID, ITD, Exact, GDmax, Hypergradient, Neumann
from bilevel_sym.kernels import Counts, Kernels, compile_kernels
from bilevel_sym.problem import BilevelProblem, MinimaxProblem, StochasticProblem
from bilevel_sym.solution import Solution, Trajectory
from bilevel_sym.solvers import Descent, INeon, LocalMinimum, Perturbed, State, StocBiO, neumann_batch_sizes, solve
from bilevel_sym.status import Status

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
