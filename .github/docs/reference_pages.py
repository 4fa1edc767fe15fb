"""Which names the API reference holds, on which page, and in which order."""

from __future__ import annotations

import dataclasses
import functools
import importlib
import re
from types import MappingProxyType
from typing import Any

PACKAGES = ("bilevel_sym", "verify")


@dataclasses.dataclass(frozen=True)
class Page:
    """A page: ``names`` of ``module``, or all public ones in their order where none are given; then ``more``."""

    file: str
    title: str
    module: str
    names: tuple[str, ...] = ()
    more: tuple[str, ...] = ()

    @property
    def entries(self) -> list[str]:
        """The dotted names on the page."""
        chosen = self.names or tuple(module_of(self.module).__all__)
        return [*(f"{self.module}.{name}" for name in chosen), *self.more]


PAGES = (
    Page("problems", "Problems", "bilevel_sym", (
        "BilevelProblem", "MinimaxProblem", "StochasticProblem", "Box", "softplus", "sigmoid")),
    Page("derivation", "Formulas", "bilevel_sym", ("derive", "Derivation", "derive_generic")),
    Page("kernels", "Kernels", "bilevel_sym", ("compile_kernels", "Kernels", "Counts")),
    Page("certificates", "Certificates", "bilevel_sym", ("evaluate", "PointCertificate", "Ball", "Agreement")),
    Page("constants", "Constants of the theory", "bilevel_sym", ("Constants", "MinimaxConstants")),
    Page("estimators", "Estimators of the hypergradient", "bilevel_sym", (
        "AID", "ITD", "Neumann", "GDmax", "Exact", "Hypergradient")),
    Page("solve", "Algorithms and solve", "bilevel_sym", (
        "solve", "minimize", "Minimum", "Descent", "Perturbed", "INeon", "StocBiO", "neumann_batch_sizes",
        "LocalMinimum", "State", "Solution", "Trajectory", "Status")),
    Page("schedules", "Schedules: the theorems' parameters", "bilevel_sym.schedules"),
    Page("zoo", "The zoo", "bilevel_sym.zoo"),
    Page("plotting", "Plots of problems and runs", "bilevel_sym.plotting"),
    Page("campaigns", "Campaigns", "bilevel_sym.campaigns"),
    Page("errors", "Errors", "bilevel_sym.errors"),
    Page("paper", "The paper's labels", "bilevel_sym.paper"),
    Page("verify-constants", "Certified constants and smoothness", "verify", (
        "constants", "CertifiedConstants", "recheck", "Rechecked", "smoothness", "Smoothness", "bounds", "Bounds",
        "Bracket")),
    Page("verify-points", "Stationary points and their kinds", "verify", (
        "stationary_points", "StationaryPoints", "StationaryPoint", "classify", "Classification")),
    Page("verify-claims", "Claims, verdicts and reports", "verify", (
        "run", "Report", "report", "ReportPage",
        "CheckResult", "Verdict", "claims", "Claim", "claim", "judged", "NotApplicable", "Study",
        "study_of", "theories", "Theory")),
    Page("verify-errata", "Errata of the paper", "verify", ("errata", "Erratum")),
    Page("verify-testkit", "The test kit", "verify", (
        "check_hypergradient", "check_hessian", "check_lower_solution", "check_local_minimum", "check_trajectory",
        "check_gradient", "check_jacobian", "check_argmin", "CandidateCheck", "assert_ok")),
    Page("verify-strategies", "Strategies for Hypothesis", "verify.strategies"),
    Page("verify-gallery", "The gallery of defects", "verify.gallery"),
    Page("verify-plotting", "Plots of verdicts", "verify.plotting"),
    Page("extending", "What extensions are built on", "bilevel_sym.solvers", (
        "Algorithm", "EstimatedRun", "Ensemble", "Move"), (
        "bilevel_sym.estimators.Estimator", "bilevel_sym.estimators.ImplicitEstimator",
        "bilevel_sym.estimators.Estimate", "bilevel_sym.estimators.Solved", "bilevel_sym.zoo.entry.entry",
        "verify.erratum.erratum")),
)  # fmt: skip

TYPES = MappingProxyType({
    "ArrayLike": "whatever `numpy.asarray` takes: lists, tuples, arrays",
    "Floats": "a NumPy array of float64",
    "Flags": "a NumPy array of bool",
    "ModuleType": "a module",
    "NDArray": "a NumPy array",
    "Seeds": "a seed, a `numpy.random.Generator`, one seed for each trajectory, or None",
    "Variant": '`"corrected"` (default), `"printed"`, as the paper has it, or `"sharp"`, the best that is proved',
    "Matrix": "an immutable SymPy matrix",
    "Array": "an immutable SymPy array",
    "Axes": "a `matplotlib.axes.Axes`",
    "Fraction": "a `fractions.Fraction`",
    "sp": "SymPy: `sp.Expr` is any expression, `sp.Rational` an exact number",
})  # fmt: skip


def resolve(dotted: str) -> Any:
    """The object of a dotted name."""
    module, _, name = dotted.rpartition(".")
    return getattr(module_of(module), name)


def module_of(dotted: str) -> Any:
    """The module of a dotted name; one that a package shows as its own may live elsewhere."""
    try:
        return importlib.import_module(dotted)
    except ModuleNotFoundError:
        return resolve(dotted)


def anchors(headings: list[str]) -> dict[str, str]:
    """What GitHub makes of the headings of a page: one that comes again, but for capitals, gets a number."""
    plain = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
    again = [plain[:k].count(slug) for k, slug in enumerate(plain)]
    return {h: f"{slug}-{k}" if k else slug for h, slug, k in zip(headings, plain, again, strict=True)}


@functools.cache
def places() -> dict[str, str]:
    """Where each name is documented: page and anchor."""
    return {d: f"{page.file}.md#{slug}" for page in PAGES for d, slug in anchors(page.entries).items()}


@functools.cache
def links() -> dict[str, str]:
    """The same by what prose may call it: the dotted name, and for classes that of which there is only one, its own."""
    short = [dotted.rpartition(".")[2] for dotted in places()]
    own = {d.rpartition(".")[2]: place for d, place in places().items() if short.count(d.rpartition(".")[2]) == 1}
    return places() | {name: place for name, place in own.items() if name[0].isupper()}


def is_ours(value: Any) -> bool:
    """Whether something was made in one of the two packages."""
    return str(getattr(value, "__module__", "")).partition(".")[0] in PACKAGES


def public_name(value: type) -> str | None:
    """The dotted name under which a class is documented."""
    return next((dotted for dotted in places() if resolve(dotted) is value), None)
