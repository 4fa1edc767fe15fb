"""Exact formulas for bilevel and minimax optimization: from f and g to Phi, its gradient and Hessian.

>>> from bilevel_sym import BilevelProblem, derive
>>> problem = BilevelProblem("x*y", "(1 + x**2)*y**2/2 - x*y", "x", "y")
>>> derive(problem).grad_phi
Matrix([[2*x/(x**2 + 1)**2]])
"""

from bilevel_sym import errors, paper, zoo
from bilevel_sym.ball import Ball
from bilevel_sym.box import Box
from bilevel_sym.certificate import Agreement, PointCertificate, evaluate
from bilevel_sym.constants import Constants
from bilevel_sym.derivation import Derivation, derive, derive_generic
from bilevel_sym.functions import sigmoid, softplus
from bilevel_sym.kernels import Counts, Kernels, compile_kernels
from bilevel_sym.problem import BilevelProblem, MinimaxProblem, StochasticProblem

__all__ = [
    "Agreement",
    "Ball",
    "BilevelProblem",
    "Box",
    "Constants",
    "Counts",
    "Derivation",
    "Kernels",
    "MinimaxProblem",
    "PointCertificate",
    "StochasticProblem",
    "compile_kernels",
    "derive",
    "derive_generic",
    "errors",
    "evaluate",
    "paper",
    "sigmoid",
    "softplus",
    "zoo",
]
