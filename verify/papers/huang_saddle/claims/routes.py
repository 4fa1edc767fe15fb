"""The derivatives of Phi come out the same by every route; a fault in one is so told from a false theorem."""

from __future__ import annotations

from collections.abc import Iterator

from verify.papers.huang_saddle.measures.routes import (
    kernels_against_certificates,
    response_solves,
    terms_against_kernels,
)
from verify.registry import claim
from verify.study import Study
from verify.verdict import CheckResult

REGION = "points of the box in x"

__all__: list[str] = []


@claim("own:routes")
def routes(study: Study) -> Iterator[CheckResult]:
    """Kernels, certificates and the terms that measures are made of agree on y*, Phi and its derivatives.

    The kernels go by the Lagrangian in float64, certificates in balls, the measures term by term from dy_dx and
    d2y_dx2; dy_dx solves g_xy + dy_dx g_yy = 0
    """
    yield kernels_against_certificates(study, "own:routes")
    yield terms_against_kernels(study, "own:routes")
    yield response_solves(study, "own:routes")
