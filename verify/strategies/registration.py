"""What Hypothesis calls when it is imported (its entry point): ``st.from_type(BilevelProblem)`` works from then on.

Hypothesis may be in the middle of being imported by this very package: nothing of it is touched before the call.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from bilevel_sym.problem import BilevelProblem, MinimaxProblem, StochasticProblem

if TYPE_CHECKING:
    import hypothesis.strategies as st

__all__ = ["register"]


def register() -> None:
    """Tell Hypothesis how the three kinds of problem are drawn; the strategies are imported when first asked for.

    >>> import hypothesis.strategies as st
    >>> from hypothesis import find
    >>> register()
    >>> find(st.from_type(MinimaxProblem), lambda problem: True).f
    2*x1*y1 + x1 - y1**2
    """
    import hypothesis.strategies as st

    st.register_type_strategy(BilevelProblem, _bilevel)
    st.register_type_strategy(MinimaxProblem, _minimax)
    st.register_type_strategy(StochasticProblem, _stochastic)


def _bilevel(_: type[BilevelProblem]) -> st.SearchStrategy[BilevelProblem]:
    from verify.strategies.problems import problems

    return problems()


def _minimax(_: type[MinimaxProblem]) -> st.SearchStrategy[MinimaxProblem]:
    from verify.strategies.problems import minimax_problems

    return minimax_problems()


def _stochastic(_: type[StochasticProblem]) -> st.SearchStrategy[StochasticProblem]:
    from verify.strategies.problems import stochastic_problems

    return stochastic_problems()
