"""Kernels: float64 functions of a problem, batched, in one of several engines."""

from bilevel_sym.kernels.counting import Counts
from bilevel_sym.kernels.kernels import Kernels, compile_kernels

__all__ = ["Counts", "Kernels", "compile_kernels"]
