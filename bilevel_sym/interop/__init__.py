"""f and g as functions of NumPy, JAX and PyTorch: built from the records of operations as closures, never from text.

>>> from bilevel_sym import BilevelProblem
>>> f, g = functions_in("numpy", BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y"))
>>> float(f([2.0], [3.0]))
6.0
"""

from bilevel_sym.interop.functions import Level, functions_in

__all__ = ["Level", "functions_in"]
