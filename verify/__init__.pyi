from . import gallery, plotting, strategies
from .certificates.proof import Rechecked, recheck
from .erratum import Erratum
from .papers.huang_saddle.trajectory.check import check_trajectory
from .points.classification import Classification, classify
from .points.stationary import StationaryPoint, StationaryPoints, stationary_points
from .registry import Claim, NotApplicable, claim
from .regularity.certified import CertifiedConstants, constants
from .regularity.expression_bounds import Bounds, bounds
from .regularity.phi_smoothness import Smoothness, smoothness
from .reporting.page import ReportPage, report
from .reporting.table import Report
from .runner import claims, run
from .study import Study, study_of
from .testkit.checks import check_hessian, check_hypergradient, check_lower_solution
from .testkit.derivative_checks import check_argmin, check_gradient, check_jacobian
from .testkit.local_minimum import check_local_minimum
from .testkit.result import CandidateCheck, assert_ok
from .theory import Theory, errata, theories
from .verdict import Bracket, CheckResult, Verdict, judged

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
    "ReportPage",
    "Smoothness",
    "StationaryPoint",
    "StationaryPoints",
    "Study",
    "Theory",
    "Verdict",
    "assert_ok",
    "bounds",
    "check_argmin",
    "check_gradient",
    "check_hessian",
    "check_hypergradient",
    "check_jacobian",
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
    "report",
    "run",
    "smoothness",
    "stationary_points",
    "strategies",
    "study_of",
    "theories",
]
