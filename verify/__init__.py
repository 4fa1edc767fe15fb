"""Verdicts on the statements of the theory, for a problem of ``bilevel_sym``.

Certified constants (``constants``, ``recheck``), certified smoothness of Phi (``smoothness``), all stationary points
and their kinds (``stationary_points``, ``classify``), a verdict on each statement (``run``, ``claims``), the paper's
errata (``errata``).

>>> from bilevel_sym import zoo
>>> print(run(zoo.get("lphi_witness").problem, claims=["grad-Lipschitz"], variant="printed").results[0].verdict)
VIOLATED
"""

from verify.bracket import Bracket
from verify.claim import Claim, NotApplicable, claim
from verify.classification import Classification, classify
from verify.erratum import Erratum
from verify.referee import errata
from verify.regularity import CertifiedConstants, constants, recheck
from verify.report import Report
from verify.runner import claims, run
from verify.smoothness import Smoothness, smoothness
from verify.stationary import StationaryPoint, StationaryPoints, stationary_points
from verify.study import Study, study_of
from verify.verdict import CheckResult, Verdict

__all__ = [
    "Bracket",
    "CertifiedConstants",
    "CheckResult",
    "Claim",
    "Classification",
    "Erratum",
    "NotApplicable",
    "Report",
    "Smoothness",
    "StationaryPoint",
    "StationaryPoints",
    "Study",
    "Verdict",
    "claim",
    "claims",
    "classify",
    "constants",
    "errata",
    "recheck",
    "run",
    "smoothness",
    "stationary_points",
    "study_of",
]
