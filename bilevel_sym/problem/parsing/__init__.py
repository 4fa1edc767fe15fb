"""Text -> SymPy by an allowlist: the only door for untrusted text.

Text is cut into tokens (``tokens``), read by a small grammar (``grammar``) and built by constructors that look at
the price before they pay it (``guarded``, ``estimates``). It never meets ``eval``, ``sympify`` or a lookup of names
in a module.
"""

from bilevel_sym.problem.parsing.grammar import FUNCTIONS, parse_expression
from bilevel_sym.problem.parsing.names import check_name

__all__ = ["FUNCTIONS", "check_name", "parse_expression"]
