"""Coverage: what computes each statement of the paper, and the ledger of statements with verdicts that are computed.

A label of the paper is linked to a claim or a part of one, an erratum, a finding, or a definition in code; what is
linked to nothing is open. The ledger has a row for each of 126 statements; its verdict follows from what its links
compute.
"""

from verify.papers.huang_saddle.coverage.judgement import judge
from verify.papers.huang_saddle.coverage.ledger import ROWS
from verify.papers.huang_saddle.coverage.link import coverage
from verify.papers.huang_saddle.coverage.table import coverage_table, record

__all__ = ["ROWS", "coverage", "coverage_table", "judge", "record"]
