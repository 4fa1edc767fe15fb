"""Labels of two papers on rates of bilevel methods, with kind, number and title; pure data.

The labels are our own: ``ghadimi2018:`` for S. Ghadimi and M. Wang, Approximation Methods for Bilevel Programming, and
``ji2021:`` for K. Ji, J. Yang and Y. Liang, Bilevel Optimization: Convergence Analysis and Enhanced Design. A statement
whose number differs between editions has none.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bilevel_sym.theories import Statement

__all__ = ["STATEMENTS"]

STATEMENTS: Mapping[str, Statement] = MappingProxyType(
    {
        "ghadimi2018:assu-levels": Statement("Assumptions", None, "smoothness and strong convexity of the two levels"),
        "ghadimi2018:lem-error": Statement("Lemma", "2.2 (a)", "the hypergradient at y errs by C times the error of y"),
        "ghadimi2018:lem-response": Statement("Lemma", "2.2 (b)", "y* is Lipschitz in x"),
        "ghadimi2018:lem-smooth": Statement("Lemma", "2.2 (c)", "grad Phi is Lipschitz, by the constants of Lemma 2.2"),
        "ghadimi2018:inner-rate": Statement("Inequality", None, "what a step of BA's inner loop keeps of the error"),
        "ghadimi2018:thm-ba": Statement("Theorem", "2.1", "rate of BA where Phi is not convex"),
        "ji2021:assu-levels": Statement("Assumptions", "1 to 3", "strong convexity and Lipschitz constants"),
        "ji2021:lem-smooth": Statement("Lemma", "2", "grad Phi is Lipschitz"),
        "ji2021:lem-aid": Statement("Lemma", None, "error of the AID hypergradient in D and N"),
        "ji2021:lem-itd": Statement("Lemma", None, "error of the ITD hypergradient in D"),
        "ji2021:thm-aid": Statement("Theorem", "1", "rate of AID-BiO"),
        "ji2021:thm-itd": Statement("Theorem", "2", "rate of ITD-BiO"),
    }
)
