"""SymPy's matrix language as tensors: MatrixSymbol, HadamardProduct, applyfunc, Trace, sums of Indexed.

A column (n, 1) and a row (1, n) have one index, (1, 1) is a scalar. Dimensions are symbols or integers; each becomes
the letter that the declared arrays give it. Nothing is sympified, simplified or evaluated by SymPy.
"""

from bilevel_sym.arrays.sympy_door.door import read
from bilevel_sym.arrays.sympy_door.names import arrays_in, declare

__all__ = ["arrays_in", "declare", "read"]
