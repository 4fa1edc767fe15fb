"""Text by an allowlist: the only door for untrusted text.

Text is cut into tokens (``tokens``) and read by a small grammar (``grammar``), twice: onto a draft, by steps that look
at the price before they pay it (``guarded``, ``comparisons``), and into SymPy when a user asks for
formulas (``symbolic``). It never meets ``eval``, ``sympify`` or a lookup of names in a module.
"""

from bilevel_sym.problem.parsing.grammar import FUNCTIONS, draft_expression, parse_expression, sympy_expression
from bilevel_sym.problem.parsing.names import check_name

__all__ = ["FUNCTIONS", "check_name", "draft_expression", "parse_expression", "sympy_expression"]
