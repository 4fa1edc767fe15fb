"""Array formulas written out in scalars, exactly.

Summed indices are eliminated one at a time, the cheapest first, so that a square of a product stays a square: the sum
over i, j, k of A_ij A_ik y_j y_k becomes m squares of linear forms. An entry is made when it is first asked for. What
that will take is counted before anything is built.
"""

from bilevel_sym.arrays.lowering.entries import lower_form
from bilevel_sym.arrays.lowering.problem import MAX_WORK, Lowered, entry_symbols, expression_of, lower

__all__ = ["MAX_WORK", "Lowered", "entry_symbols", "expression_of", "lower", "lower_form"]
