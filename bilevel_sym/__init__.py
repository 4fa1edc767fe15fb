"""Exact formulas for bilevel and minimax optimization: from f and g to Phi, its gradient and Hessian.

>>> from bilevel_sym import BilevelProblem, derive
>>> problem = BilevelProblem("x*y", "(1 + x**2)*y**2/2 - x*y", "x", "y")
>>> derive(problem).grad_phi
Matrix([[2*x/(x**2 + 1)**2]])
"""

from typing import Any as _Any

import lazy_loader as _lazy

__version__ = "0.2.0"

# imported when first asked for, as __init__.pyi lists them: the command line says what it is for, or that a word is
# mistyped, before SymPy is loaded
_attribute, _names, __all__ = _lazy.attach_stub(__name__, __file__)


def __getattr__(name: str) -> _Any:
    if name == "verify":  # a package beside this one; ``import verify`` is the same, where it is ours
        from bilevel_sym.system.verifier import verifier

        return verifier()
    return _attribute(name)


def __dir__() -> list[str]:
    return [*_names(), "verify"]
