"""Coverage: what computes each statement of the paper, and the ledger of statements with verdicts that are computed.

A label of the paper is linked to a claim or a part of one, an erratum, a finding, or a definition in code; what is
linked to nothing is open. The ledger has a row for each of 126 statements; its verdict follows from what its links
compute.
"""

from verify.coverage.account import Account, coverage
from verify.coverage.judgement import Judgement, judge
from verify.coverage.ledger import ROWS
from verify.coverage.link import BrokenLink, Link, Sources, link, sources
from verify.coverage.row import Row
from verify.coverage.table import coverage_table, record

__all__ = [
    "ROWS",
    "Account",
    "BrokenLink",
    "Judgement",
    "Link",
    "Row",
    "Sources",
    "coverage",
    "coverage_table",
    "judge",
    "link",
    "record",
    "sources",
]
