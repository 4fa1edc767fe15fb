"""Minimax problems: strict local Nash points, strict local minimax points, and the strict local minima of Phi.

Each statement is checked at every stationary point that was found in the box, and at a few other points of it, by
certified signs of eigenvalues: ``measured`` is how many points break it, and the bound is zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import sympy as sp

from verify import NotApplicable, Study, claim
from verify.papers.huang_saddle.measures.minimax_points import (
    SamplePoint,
    all_of,
    around_nash,
    sample_points,
    strict_minimum_in_x,
)
from verify.points.balls import exact_point
from verify.verdict import CheckResult, Evidence, inconclusive, judged

REGION = "points of the box in x"

Obeys = Callable[[SamplePoint], bool | None]


def _counted(
    study: Study, label: str, found: Sequence[SamplePoint], obeys: Obeys, said: str, *, part: str = ""
) -> CheckResult:
    """How many sample_points break a statement; ``obeys`` says None where a sample does not decide it."""
    answers = [(sample, obeys(sample)) for sample in found]
    decided = [(sample, answer) for sample, answer in answers if answer is not None]
    if not decided:
        return inconclusive(label, f"no point decides it: {said}", part=part)
    broken = [sample for sample, answer in decided if not answer]
    shown = (broken or [sample for sample, _ in decided])[0]
    stationary = sum(sample.point is not None for sample, _ in decided)
    count = f"{len(decided)} of {len(answers)} points decide it, {stationary} of them stationary"
    # away from stationary points both sides of a statement are false: that alone is no certificate of it
    evidence: Evidence = "certified" if stationary or study.stationary.complete else "sampled"
    return judged(
        label, float(len(broken)), 0.0, evidence=evidence, message=f"{said}; {count}", n_points=len(decided),
        worst_point=dict(zip((s.name for s in (*study.exact.x, *study.exact.y)), (*shown.x, *shown.y), strict=True)),
        part=part, seed=study.seed,
    )  # fmt: skip


def _implies(premise: bool | None, conclusion: bool | None) -> bool | None:
    if premise is False or conclusion is True:
        return True
    return None if premise is None or conclusion is None else False


def _equal(a: bool | None, b: bool | None) -> bool | None:
    return None if a is None or b is None else a == b


def _ordered(sample: SamplePoint) -> bool | None:
    """lambda_k(f_xx) <= lambda_k(Hess Phi) for all k, which Hess Phi >= f_xx implies.

    Equality, of zeros too, is met to 30 digits of the largest eigenvalue.
    """
    size = max(value.abs_upper() for value in (*sample.f_xx, *sample.hess, *sample.coupling))
    gaps = [low - high for low, high in zip(sample.f_xx, sample.hess, strict=True)]
    if all(gap <= size * 1e-30 for gap in gaps):
        return True
    return False if any(gap > 0 for gap in gaps) else None


def _strict_minimum(study: Study, sample: SamplePoint) -> bool | None:
    """Whether Phi has a strict local minimum there, singular Hessians included where exact arithmetic decides."""
    if sample.point is not None and sample.point.kind == "degenerate":
        return _exact_slice(study, sample)
    return sample.is_minimum


def _exact_slice(study: Study, sample: SamplePoint) -> bool | None:
    """True where f(., y*) has a strict minimum by exact derivatives: then Phi has, and (x, y*) is strict Nash."""
    exact = exact_point(study.exact, [sp.Rational(value) for value in sample.x])
    return None if exact is None else strict_minimum_in_x(study.exact, exact.x[0], exact.y) or None


@claim("def:pureNash", kinds=("minimax",), also=("unlabelled:nash-inequality",))
def definition_nash(study: Study) -> CheckResult:
    """A strict local Nash point by second derivatives is a local Nash equilibrium by definition.

    f(x*, y) <= f(x*, y*) <= f(x, y*) for all x, y within delta: f is convex in x and concave in y on a box around it

    Paper: Definition 3.1 [def:pureNash]
    Assumes: f_yy < 0 < f_xx at a stationary point.

    >>> from bilevel_sym import verify, zoo
    >>> print(definition_nash(verify.study_of(zoo.get("minimax_nash").problem))[0].verdict)
    HOLDS
    """
    found = [sample for sample in sample_points(study) if sample.point is not None and sample.is_nash]
    if not found:
        if study.stationary.complete:
            raise NotApplicable("no strict local Nash point is in the box")
        return inconclusive("def:pureNash", f"none was found so far: {study.stationary.message}")
    deltas = [around_nash(study.exact, sample) for sample in found]
    shown = min(delta for delta in deltas if delta is not None) if any(deltas) else 0.0
    by_sample = dict(zip(map(id, found), deltas, strict=True))
    said = f"the two inequalities hold within delta = {shown:.3g}"
    return _counted(study, "def:pureNash", found, lambda sample: True if by_sample[id(sample)] else None, said)


@claim("unlabelled:strict-local-nash", kinds=("minimax",))
def strict_nash(study: Study) -> CheckResult:
    """At a stationary point, f_yy < 0 < f_xx makes a strict local Nash equilibrium.

    corrected: f_yy < 0 < f_xx implies it, and it implies f_yy <= 0 <= f_xx; printed: if and only if f_yy < 0 < f_xx

    Paper: Formula [unlabelled:strict-local-nash]
    Deviation: "only if" fails for f = x^4 - y^2/2, where f(0, y) < f(0, 0) < f(x, 0) although f_xx = 0.

    >>> from bilevel_sym import verify, zoo
    >>> study = verify.study_of(zoo.get("minimax_degenerate").problem, variant="printed")
    >>> print(strict_nash(study)[0].verdict)
    VIOLATED
    """
    found = [sample for sample in sample_points(study) if sample.point is not None]
    if not found and study.stationary.complete:
        raise NotApplicable("no stationary point is in the box")
    label = "unlabelled:strict-local-nash"
    if study.variant == "printed":
        said = "strict local Nash exactly where f_yy < 0 < f_xx"
        return _counted(study, label, found, lambda at: _equal(_is_strict_nash(study, at), _by_test(at)), said)
    said = "f_yy < 0 < f_xx implies strict local Nash, which implies f_yy <= 0 <= f_xx"
    return _counted(study, label, found, lambda sample: _two_sided(study, sample), said)


def _by_test(sample: SamplePoint) -> bool | None:
    """The second-order test, exact zeros included."""
    if sample.point is not None and any(e.lower == 0.0 == e.upper for e in sample.point.f_xx):
        return False
    return sample.is_nash


def _is_strict_nash(study: Study, sample: SamplePoint) -> bool | None:
    """By the definition: a convex neighbourhood, exact derivatives, or a direction in which f falls along x."""
    if sample.is_nash:
        return True if around_nash(study.exact, sample) else None
    return False if sample.f_xx[0] < 0 else _exact_slice(study, sample)


def _two_sided(study: Study, sample: SamplePoint) -> bool | None:
    is_nash = _is_strict_nash(study, sample)
    necessary = None if sample.point is None else not any(e.upper < 0 for e in sample.point.f_xx)
    return None if is_nash is None else _implies(sample.is_nash, is_nash) and _implies(is_nash, necessary)


@claim("pro:minimax", kinds=("minimax",), also=("unlabelled:saddle-not-nash", "unlabelled:nash-is-minimum"))
def nash_and_minima(study: Study) -> Iterator[CheckResult]:
    """A saddle point of Phi is no strict local Nash point, and a strict local Nash point is a minimum of Phi.

    Hess Phi - f_xx = -f_xy f_yy^-1 f_yx >= 0, hence lambda_k(f_xx) <= lambda_k(Hess Phi) for every k

    Paper: Proposition 3.2 [pro:minimax]
    Assumes: f strongly concave in y.

    >>> from bilevel_sym import verify, zoo
    >>> [str(result.verdict) for result in nash_and_minima(verify.study_of(zoo.get("minimax_nash").problem))]
    ['HOLDS', 'HOLDS']
    """
    found = sample_points(study)
    said = "lambda_k(f_xx) <= lambda_k(Hess Phi), and no saddle of Phi has f_xx > 0"
    yield _counted(study, "pro:minimax", found, _saddle_not_nash, said, part="(i)")
    said = "lambda_k(f_xx) <= lambda_k(Hess Phi), and where f_xx > 0 at a stationary point, Hess Phi > 0"
    both = lambda at: all_of(_ordered(at), _implies(at.is_nash, at.is_minimum))  # noqa: E731
    yield _counted(study, "pro:minimax", found, both, said, part="(ii)")


def _saddle_not_nash(sample: SamplePoint) -> bool | None:
    saddle = sample.point is not None and sample.point.kind == "saddle"
    return all_of(_ordered(sample), _implies(saddle, None if sample.is_nash is None else not sample.is_nash))


@claim("unlabelled:section-proof-nash", kinds=("minimax",))
def psd_coupling(study: Study) -> CheckResult:
    """The second term of Hess Phi, -f_xy f_yy^-1 f_yx, is positive semidefinite.

    Paper: Section C.1 [unlabelled:section-proof-nash]
    Deviation: printed as "always positive definite", which fails for d > n and wherever f_xy has not full rank; the
    conclusions need only "semidefinite".

    >>> from bilevel_sym import verify, zoo
    >>> study = verify.study_of(zoo.get("minimax_degenerate").problem, variant="printed")
    >>> print(psd_coupling(study)[0].verdict)
    VIOLATED
    """
    label = "unlabelled:section-proof-nash"
    if study.variant == "printed":
        return _counted(study, label, sample_points(study), _coupling_definite, "-f_xy f_yy^-1 f_yx > 0")
    return _counted(study, label, sample_points(study), _coupling_semidefinite, "-f_xy f_yy^-1 f_yx >= 0")


def _coupling_definite(sample: SamplePoint) -> bool | None:
    if sample.singular:
        return False
    return True if sample.coupling[0] > 0 else None


def _coupling_semidefinite(sample: SamplePoint) -> bool | None:
    """Zero is met to 30 digits of the largest eigenvalue, of f_xx too, relative to which it may be negligible."""
    if not sample.concave:
        return None
    size = max(value.abs_upper() for value in (*sample.coupling, *sample.f_xx))
    if sample.coupling[0] >= -size * 1e-30:
        return True
    return False if sample.coupling[0] < 0 else None


@claim("unlabelled:definition-strict-local-minimax", kinds=("minimax",), also=("unlabelled:schur-condition",))
def schur(study: Study) -> CheckResult:
    """The matrix in the definition of a strict local minimax point is Hess Phi.

    corrected: f_xx - f_xy f_yy^-1 f_yx; printed: f_xx - f_xy f_yy^-1 f_xy, whose shapes do not fit unless d = n

    Paper: Definition 3.3 [unlabelled:definition-strict-local-minimax]
    Deviation: the last factor is f_yx. For d = n the printed one is another matrix unless f_xy is symmetric.

    >>> from bilevel_sym import verify, zoo
    >>> problem = zoo.get("robust_regression").problem
    >>> [str(schur(verify.study_of(problem, variant=v, effort=0.225))[0].verdict) for v in ("corrected", "printed")]
    ['HOLDS', 'VIOLATED']
    """
    label = "unlabelled:definition-strict-local-minimax"
    if study.variant != "printed":
        said = "the Schur complement is Hess Phi by the bilevel formula, to 30 digits"
        return _counted(study, label, sample_points(study), lambda sample: sample.same, said)
    d, n = study.exact.d, study.exact.n
    said = "with f_xy as the last factor" if d == n else f"the shapes do not fit: f_xy is {d} by {n}"
    return _counted(study, label, sample_points(study), lambda sample: sample.same_printed if d == n else False, said)


@claim("lem:equivalence", kinds=("minimax",))
def equivalence(study: Study) -> CheckResult:
    """A strict local minimax point is a strict local minimum of Phi with Hess Phi > 0, and conversely.

    grad f = 0, f_yy < 0, Schur complement > 0 at (x, y) if and only if y = y*(x), grad Phi(x) = 0, Hess Phi(x) > 0

    Paper: Proposition 3.4 [lem:equivalence]
    Assumes: f strongly concave in y.
    Deviation: printed for every strict local minimum; x = 0 is one of Phi = x^4, and no strict local minimax point of
    f = x^4 - y^2/2. Such a Phi has a strict local minimum, and no strict local minimax point exists.

    >>> from bilevel_sym import verify, zoo
    >>> problem = zoo.get("minimax_degenerate").problem
    >>> [str(equivalence(verify.study_of(problem, variant=v))[0].verdict) for v in ("corrected", "printed")]
    ['HOLDS', 'VIOLATED']
    """
    found = sample_points(study)
    if study.variant == "printed":
        said = "strict local minimax exactly where Phi has a strict local minimum"
        return _counted(
            study, "lem:equivalence", found, lambda s: _equal(s.is_minimax, _strict_minimum(study, s)), said
        )
    said = "strict local minimax exactly where grad Phi = 0 and Hess Phi > 0"
    return _counted(study, "lem:equivalence", found, lambda sample: _equal(sample.is_minimax, sample.is_minimum), said)


@claim("proof-prop-2.4-eq1", kinds=("minimax",), also=("unlabelled:schur-positive",))
def minimum_condition(study: Study) -> CheckResult:
    """At a local minimum of Phi the gradient vanishes and the Hessian is positive semidefinite.

    corrected: Hess Phi >= 0 is necessary, and > 0 suffices; printed: a local minimum satisfies Hess Phi > 0

    Paper: Equation C.4 [proof-prop-2.4-eq1]
    Deviation: Phi = x^4 has a strict local minimum with Hess Phi = 0.

    >>> from bilevel_sym import verify, zoo
    >>> problem = zoo.get("minimax_degenerate").problem
    >>> [str(minimum_condition(verify.study_of(problem, variant=v))[0].verdict) for v in ("corrected", "printed")]
    ['HOLDS', 'VIOLATED']
    """
    found = [sample for sample in sample_points(study) if sample.point is not None and _strict_minimum(study, sample)]
    if not found:
        if study.stationary.complete:
            raise NotApplicable("Phi has no local minimum in the box")
        return inconclusive("proof-prop-2.4-eq1", f"no local minimum was found so far: {study.stationary.message}")
    if study.variant == "printed":
        return _counted(study, "proof-prop-2.4-eq1", found, lambda at: at.is_minimum, "Hess Phi > 0 at a minimum")
    said = "Hess Phi, and the Schur complement, are >= 0 at a minimum"
    return _counted(study, "proof-prop-2.4-eq1", found, _semidefinite, said)


def _semidefinite(sample: SamplePoint) -> bool | None:
    """No eigenvalue is negative, by both routes."""
    return not (sample.hess[0] < 0 or sample.schur[0] < 0)
