"""The theory of escaping saddle points, as one object."""

from bilevel_sym import paper
from verify.papers.huang_saddle import coverage
from verify.papers.huang_saddle.claims import FAMILIES
from verify.papers.huang_saddle.errata import SUBJECTS, errata_table
from verify.theory import Theory

__all__ = ["THEORY"]

THEORY = Theory(
    name="huang_saddle",
    title="Escaping saddle points in bilevel optimization",
    reference="M. Huang, X. Chen, K. Ji, S. Ma, L. Lai: Efficiently Escaping Saddle Points in Bilevel Optimization",
    statements=paper.STATEMENTS,
    families=FAMILIES,
    subjects=SUBJECTS,
    errata_page=errata_table,
    coverage=coverage,
)
