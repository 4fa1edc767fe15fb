"""What Hypothesis calls when it is imported (its entry point): ``st.from_type(BilevelProblem)`` works from then on.

Wherever this package is installed, Hypothesis imports this module, so it costs nothing: the kinds of
problem are registered once both they and Hypothesis are imported, and the strategies are imported when first asked for.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

__all__ = ["register"]

DRAWN: Mapping[str, str] = MappingProxyType(
    {
        "BilevelProblem": "problems",
        "MinimaxProblem": "minimax_problems",
        "StochasticProblem": "stochastic_problems",
    }
)


def register() -> None:
    """Tell Hypothesis how the three kinds of problem are drawn; ``problem`` calls it too, if it is imported later.

    >>> import hypothesis.strategies as st
    >>> from hypothesis import find
    >>> from bilevel_sym import MinimaxProblem
    >>> find(st.from_type(MinimaxProblem), lambda problem: True).f
    2*x1*y1 + x1 - y1**2
    """
    module: Any = sys.modules.get("bilevel_sym.problem.problem")
    if sys.modules.get("hypothesis") is None or not hasattr(module, "StochasticProblem"):
        return
    import hypothesis.strategies as st

    from bilevel_sym.system.progress import tell_once
    from bilevel_sym.system.verifier import intruder

    if found := intruder():
        tell_once(f"bilevel-sym: Hypothesis is not told about bilevel problems: {found.message}")
        return
    for kind in DRAWN:
        st.register_type_strategy(getattr(module, kind), _strategy)


def _strategy(kind: type) -> Any:
    from bilevel_sym.system.verifier import verifier

    return getattr(verifier("strategies"), DRAWN[kind.__name__])()
