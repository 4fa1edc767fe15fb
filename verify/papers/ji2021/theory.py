"""The rates of BA, AID-BiO and ITD-BiO, as one object."""

from bilevel_sym.theories.ji2021.paper import STATEMENTS
from verify.papers.ji2021 import errata, lemmas, rates
from verify.theory import Theory

__all__ = ["THEORY"]

THEORY = Theory(
    name="ji2021",
    title="Rates of BA, AID-BiO and ITD-BiO",
    reference="S. Ghadimi, M. Wang: Approximation Methods for Bilevel Programming; "
    "K. Ji, J. Yang, Y. Liang: Bilevel Optimization: Convergence Analysis and Enhanced Design",
    statements=STATEMENTS,
    families=(lemmas, rates),
    subjects=(errata,),
)
