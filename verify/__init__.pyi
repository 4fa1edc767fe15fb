from . import gallery, plotting, strategies
from .bracket import Bracket
from .certificates.proof import Rechecked, recheck
from .classification import Classification, classify
from .erratum import Erratum
from .expression_bounds import Bounds, bounds
from .phi_smoothness import Smoothness, smoothness
from .referee import errata
from .registry import Claim, NotApplicable, claim
from .regularity import CertifiedConstants, constants
from .report import Report
from .runner import claims, run
from .stationary import StationaryPoint, StationaryPoints, stationary_points
from .study import Study, study_of
from .testkit.assertion import assert_ok
from .testkit.checks import check_hessian, check_hypergradient, check_lower_solution
from .testkit.local_minimum import check_local_minimum
from .testkit.result import CandidateCheck
from .testkit.trajectory.check import check_trajectory
from .verdict import CheckResult, Verdict, judged

__all__ = [
    "Bounds",
    "Bracket",
    "CandidateCheck",
    "CertifiedConstants",
    "CheckResult",
    "Claim",
    "Classification",
    "Erratum",
    "NotApplicable",
    "Rechecked",
    "Report",
    "Smoothness",
    "StationaryPoint",
    "StationaryPoints",
    "Study",
    "Verdict",
    "assert_ok",
    "bounds",
    "check_hessian",
    "check_hypergradient",
    "check_local_minimum",
    "check_lower_solution",
    "check_trajectory",
    "claim",
    "claims",
    "classify",
    "constants",
    "errata",
    "gallery",
    "judged",
    "plotting",
    "recheck",
    "run",
    "smoothness",
    "stationary_points",
    "strategies",
    "study_of",
]
