"""Section 5: what it says of the tube, checked on the problem's own formulas, piece by piece, in exact arithmetic."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import sympy as sp
from flint import fmpq

from bilevel_sym import AID, BilevelProblem, Descent, Perturbed, solve
from bilevel_sym.typing import Floats
from bilevel_sym.zoo import get
from bilevel_sym.zoo.tube import TAU
from verify import Bracket, CheckResult, NotApplicable, Study, claim, judged
from verify.papers.huang_saddle.measures.agreement import decided_exactly
from verify.papers.huang_saddle.measures.tube import HIGH, LOW, MIDDLE, Tube, branch, curvature, tube_of
from verify.statistics import judged_probability

REGION = "the box in x"

STEP = fmpq(1, 20)
ITERATIONS = 1000
FIGURE_COORDINATES = 5  # coordinates in the figure


# ---- regularity -----------------------------------------------------------------------------------------------------


@claim(
    "eq: tube_f",
    also=(
        "eq:exp_objective", "unlabelled:tube-f-i1", "unlabelled:tube-f-i2", "unlabelled:tube-f-d1",
        "unlabelled:tube-f-d2", "unlabelled:tube-f-last",
    ),
)  # fmt: skip
def regularity(study: Study) -> Iterator[CheckResult]:
    """Phi, f, g and y* of the tube are as smooth across its regions as the theory assumes.

    At each face x_i = tau and x_i = 2 tau the jumps of the normal derivatives, as polynomials on the face: of Phi, f
    and y* up to order 2, of g up to order 3.

    Paper: Equation 5.2 [eq: tube_f]
    Assumes: Assumption 2.1 [assu:bilevel] is what is asked of them.
    Deviation: the printed f, g and y* jump at every face, while Phi is twice continuously differentiable. In the
    extension with f = y the third derivatives of g do not exist on the faces.
    """
    tube, label = tube_of(study.exact), "eq: tube_f"
    third = [jump for jump in tube.jumps(tube.phi, 3) if jump != 0]
    note = f"; its third normal derivative jumps at {len(third)} of {2 * tube.d} faces" if third else ""
    yield decided_exactly(
        label, "Phi", not any(tube.rough(tube.phi, 2)), f"Phi is twice continuously differentiable{note}"
    )
    names = {"f": (tube.problem.f, 2), "g": (tube.problem.g, 3), "y*": (tube.y_star[0], 0)}
    if tube.coupled:
        # f is a function of y there, with the same faces
        back = dict(zip(tube.problem.y, tube.x, strict=True))
        names["f"] = (tube.problem.f.xreplace(back), 2)
    for name, (expression, order) in names.items():
        first, told = next(tube.rough(expression, order), None), "is continuous there"
        if first is not None:
            k, i, value, jump = first
            told = f"jumps: derivative {k} at {tube.x[i]} = {value} by {sp.factor(jump)!s:.60}"
        message = f"{name} with its derivatives up to order {order} {told}"
        yield decided_exactly(label, name, first is None, message)


@dataclass(frozen=True)
class Jump:
    """A derivative that Assumption 2.1 needs and that jumps, at a point of the box."""

    text: str
    point: Mapping[str, float]


def what_jumps(study: Study) -> Jump | None:
    """Why Assumption 2.1 fails over the box of a tube; None where no face in the box is found, and for other problems.

    >>> from verify.study import study_of
    >>> what_jumps(study_of(get("tube", d=1).problem)).text
    'derivative 3 of g jumps at x1 = E by -8*y*exp(-1)'
    """
    try:
        tube = tube_of(study.exact)
    except NotApplicable:
        return None
    for name, expression, order in (("f", tube.problem.f, 2), ("g", tube.problem.g, 3)):
        if tube.coupled and name == "f":
            continue  # a function of y alone, and twice continuously differentiable
        for k, i, value, jump in tube.rough(expression, order):
            point = _on_face(tube, study, i, value)
            if point is not None and abs(jump.subs(point).evalf(30)) > sp.Rational(1, 10**9):
                text = f"derivative {k} of {name} jumps at {tube.x[i]} = {value} by {sp.factor(jump)!s:.60}"
                return Jump(text, {s.name: float(at) for s, at in point.items()})
    return None


def _on_face(tube: Tube, study: Study, i: int, value: sp.Expr) -> dict[sp.Symbol, sp.Expr] | None:
    """A point of the box on a face of D_0, off its corners; None where the face does not cross the box."""
    point: dict[sp.Symbol, sp.Expr] = {}
    for k, symbol in enumerate((*tube.x, *tube.problem.y)):
        low, high = study.box[symbol.name]
        if symbol in tube.x:
            ends = (2 * TAU, 6 * TAU) if k < i else (value, value) if k == i else (sp.Integer(0), TAU)
            low, high = sp.Max(low, ends[0]), sp.Min(high, ends[1])
        if not low <= high or (k == i and value in study.box[symbol.name]):
            return None
        point[symbol] = low + (high - low) * sp.Rational(3, 7)
    return point


def require_smooth(study: Study) -> None:
    """Refuse a tube on which Assumption 2.1 fails: a theorem that rests on it does not speak of it.

    >>> from verify.study import study_of
    >>> require_smooth(study_of(get("scalar").problem))
    """
    jump = what_jumps(study)
    if jump is not None:
        raise NotApplicable(f"Assumption 2.1 fails: {jump.text}")


@claim("unlabelled:h1", also=("unlabelled:h2", "unlabelled:tube-constants"))
def connectors(study: Study) -> Iterator[CheckResult]:
    """h_1 and h_2 meet the pieces on both sides to second order, with nu = -h_1(2 tau) + 4 L tau^2.

    h_1 = -gamma c^2 at tau and L (c - 4 tau)^2 - nu at 2 tau; h_2 = L at tau and -gamma at 2 tau: with two derivatives

    Paper: Equation 5.10 [unlabelled:h1]; Equation 5.11 [unlabelled:h2]; Formula [unlabelled:tube-constants]
    """
    tube, label = tube_of(study.exact), "unlabelled:h1"
    last = tube.piece(tube.phi, tube.d - 1, True)
    c = tube.x[-1]
    bowls = tube.shape.bowls(tube.x[: tube.d - 1])
    h_1 = sp.expand(last - bowls)
    ends = ((TAU, -tube.gamma * c**2), (2 * TAU, tube.shape.bowls([c])))
    yield decided_exactly(label, "h_1", _meets(h_1, c, ends), "value and two derivatives at tau and 2 tau")
    nu = sp.expand(-h_1.subs(c, 2 * TAU) + 4 * tube.L * TAU**2)
    yield decided_exactly(label, "nu", sp.expand(nu - tube.shape.nu) == 0, f"nu = {nu}")
    if tube.d > 1:
        x, after = tube.x[0], tube.x[1]
        h_2 = sp.expand(sp.diff(tube.piece(tube.phi, 0, True), after, 2) / 2)
        ends = ((TAU, tube.L), (2 * TAU, -tube.gamma))
        yield decided_exactly(label, "h_2", _meets(h_2, x, ends), "value and two derivatives at tau and 2 tau")


def _meets(h: sp.Expr, c: sp.Symbol, ends: Sequence[tuple[sp.Expr, sp.Expr]]) -> bool:
    return all(sp.expand(sp.diff(h - other, c, k).subs(c, at)) == 0 for at, other in ends for k in range(3))


# ---- the lower level ------------------------------------------------------------------------------------------------


@claim("unlabelled:lower-level-function", also=("unlabelled:tube-g",))
def lower_level(study: Study) -> Iterator[CheckResult]:
    """y* = g(x), kappa = 1, and the AID estimate does not depend on y: the experiment is perturbed gradient descent.

    f_2 = y^2/2 - g(x) y has g_yy = 1, so that one step of CG is exact from anywhere; f_x - g_xy g_yy^-1 f_y has no y

    Paper: Equation 5.8 [unlabelled:lower-level-function]; Equation 5.9 [unlabelled:tube-g]
    """
    tube, label = tube_of(study.exact), "unlabelled:lower-level-function"
    if tube.coupled:
        raise NotApplicable("its lower level is not the one of Section 5")
    f, g, y = tube.problem.f, tube.problem.g, tube.problem.y[0]
    regions = [(i, middle) for i in range(tube.d + 1) for middle in (False, True) if i < tube.d or not middle]
    pieces = [(tube.piece(f, *r), tube.piece(g, *r), tube.piece(tube.y_star[0], *r)) for r in regions]
    solved = all(sp.expand(sp.diff(b, y).subs(y, root)) == 0 for _, b, root in pieces)
    yield decided_exactly(label, "y*", solved, "g_y vanishes at y = g(x), in every region")
    one = all(sp.expand(sp.diff(b, y, 2)) == 1 for _, b, _ in pieces)
    yield decided_exactly(label, "kappa", one, "g_yy = 1: kappa = 1, and one step of conjugate gradients is exact")
    free = all(
        not sp.expand(sp.diff(a, s) - sp.diff(b, s, y) * sp.diff(a, y)).has(y) for a, b, _ in pieces for s in tube.x
    )
    told = "f_x - g_xy f_y is free of y: neither D nor the warm start of y matters"
    yield decided_exactly(label, "estimate", free, told)


# ---- the domain, the saddle points and the minimum ------------------------------------------------------------------


@claim("unlabelled:tube-domain")
def domain(study: Study) -> Iterator[CheckResult]:
    """Phi is defined on D_0, and the iterates stay where it is defined.

    Points that stand for all products of [-tau, 0], [0, tau], [tau, 2 tau] and [2 tau, 6 tau] in up to three
    coordinates; at the saddle point 0, a perturbation stays in D_0 with probability 2^-d

    Paper: Equation 5.12 [unlabelled:tube-domain]
    Deviation: every saddle point lies on the boundary of D_0, because D_0 holds no negative coordinates: a perturbation
    leaves it with probability at least 1/2. An extension to all of R^d is needed, and the paper leaves it out.
    """
    tube, label = tube_of(study.exact), "unlabelled:tube-domain"
    agrees = all(_defined(tube, point) or not _in_domain(point) for point in _corners(tube.d))
    yield decided_exactly(label, "Phi", agrees, "Phi is defined at a point inside each of the boxes that make up D_0")
    beyond = all(_defined(tube, point) for point in _corners(tube.d) if not _in_domain(point))
    chance = 1 - 2.0**-tube.d
    leaving = f"a perturbation at 0 leaves D_0 with probability 1 - 2^-{tube.d} = {chance:.3g}"
    where = "where Phi is defined too" if beyond else "where Phi is not defined"
    yield decided_exactly(label, "iterates", beyond, f"{leaving}, {where}")


def _corners(d: int) -> Iterator[tuple[sp.Rational, ...]]:
    """One point, in units of tau, for each kind of product of ranges; beyond three coordinates the rest is high."""
    ranges = (-LOW, LOW, MIDDLE, HIGH)
    free = min(d, 3)
    for code in range(len(ranges) ** free):
        chosen = [ranges[code // len(ranges) ** k % len(ranges)] for k in range(free)]
        yield tuple([HIGH] * (d - free) + chosen)


def _in_domain(point: Sequence[sp.Rational]) -> bool:
    """D_0: high coordinates, then one in [0, 2 tau], then low ones."""
    first = next((i for i, c in enumerate(point) if c < 2), len(point))
    return all(0 <= c <= 6 for c in point) and all(c <= 1 for c in point[first + 1 :])


def _defined(tube: Tube, point: Sequence[sp.Rational]) -> bool:
    return not branch(tube.phi, {s: c * TAU for s, c in zip(tube.x, point, strict=True)}).has(sp.nan)


@claim("unlabelled:tube-saddle-points")
def saddle_points(study: Study) -> Iterator[CheckResult]:
    """There are d saddle points in D_0: (4 tau, ..., 4 tau, 0, ..., 0), from no 4 tau to d - 1 of them.

    There the gradient vanishes and the Hessian has eigenvalues of both signs; elsewhere in D_0 the gradient does not
    vanish but at (4 tau, ..., 4 tau): where x_i is between tau and 2 tau, because h_1' < 0 and h_2' <= 0

    Paper: Claim [unlabelled:tube-saddle-points]
    Assumes: d >= 2: for d = 1 the point 0 is a local maximum, and there is no saddle point.
    """
    tube, label = tube_of(study.exact), "unlabelled:tube-saddle-points"
    kinds = [_kind(tube, i) for i in range(tube.d)]
    message = f"{kinds.count('saddle')} of {tube.d}; the kinds are {', '.join(dict.fromkeys(kinds))}"
    yield decided_exactly(label, "listed", kinds == ["saddle"] * tube.d, message)
    found = list(_stationary(tube))
    told = f"{len(found)} stationary points in D_0, the minimum among them" if found else "pieces without a proof"
    yield decided_exactly(label, "no others", found == list(range(tube.d + 1)), told)


def _kind(tube: Tube, i: int) -> str:
    """What the point with i coordinates 4 tau is, by the piece around it."""
    point = {s: 4 * TAU if k < i else sp.Integer(0) for k, s in enumerate(tube.x)}
    piece = tube.piece(tube.phi, i)
    if any(sp.expand(sp.diff(piece, s).subs(point)) != 0 for s in tube.x):
        return "not stationary"
    hessian = sp.hessian(piece, tube.x).subs(point)
    if not hessian.is_diagonal():
        return "undecided"
    signs = {bool(hessian[k, k] > 0) for k in range(tube.d)}
    return "saddle" if len(signs) == 2 else "local minimum" if signs == {True} else "local maximum"


def _stationary(tube: Tube) -> Iterator[int]:
    """The stationary points of each piece in its closed region; nothing where a piece could not be settled."""
    for i in range(tube.d):
        if not _falls(tube, i):
            return
    for i in range(tube.d + 1):
        piece = tube.piece(tube.phi, i)
        wanted = [4 * TAU if k < i else sp.Integer(0) for k in range(tube.d)]
        roots = [sp.solve(sp.diff(piece, s), s) for s in tube.x]
        if roots == [[root] for root in wanted]:
            yield i


def _falls(tube: Tube, i: int) -> bool:
    """Whether Phi falls strictly along x_i where it is in [tau, 2 tau]: h_1' < 0 and h_2' <= 0, by counting roots."""
    u = sp.Symbol("u")
    piece = tube.piece(tube.phi, i, True)
    slope = sp.expand(sp.diff(piece, tube.x[i]).subs(tube.x[i], (1 + u) * TAU) / TAU)
    after = tube.x[i + 1] if i + 1 < tube.d else None
    without = slope if after is None else slope.subs(after, 0)
    falling = sp.Poly(sp.expand(without), u)
    if not falling.domain.is_Numerical or falling.count_roots(0, 1) or falling(sp.Rational(1, 2)) >= 0:
        return False
    if after is None:
        return True
    # the rest is x_{i+1}^2 h_2': no sign change inside, where it is negative
    rest = sp.Poly(sp.expand(sp.diff(slope, after, 2) * TAU**2 / 2), u)
    inside = rest.count_roots(sp.Rational(1, 10**6), 1 - sp.Rational(1, 10**6))
    ends = sum(multiplicity for root, multiplicity in sp.roots(rest).items() if root in (0, 1))
    return not inside and ends == rest.degree() and rest(sp.Rational(1, 2)) < 0


@claim("unlabelled:tube-minimum")
def minimum(study: Study) -> Iterator[CheckResult]:
    """The only local optimum in D_0 is (4 tau, ..., 4 tau).

    The gradient vanishes there and the Hessian is 2 L I; the other stationary points in D_0 are no minima

    Paper: Claim [unlabelled:tube-minimum]
    """
    tube, label = tube_of(study.exact), "unlabelled:tube-minimum"
    yield decided_exactly(label, "minimum", _kind(tube, tube.d) == "local minimum", "Hess Phi is 2 L I there")
    others = [_kind(tube, i) for i in range(tube.d)]
    alone = len(list(_stationary(tube))) == tube.d + 1 and "local minimum" not in others
    yield decided_exactly(label, "only one", alone, "every other stationary point in D_0 has a negative eigenvalue")


# ---- the settings ---------------------------------------------------------------------------------------------------


@claim("unlabelled:tube-settings")
def settings(study: Study) -> CheckResult:
    """The step 0.05 is at most 1/L_phi, with L_phi the supremum of |Hess Phi| over D_0.

    In units of tau the Hessian depends on two coordinates at a time, and its norm is bracketed by branch and bound.

    Paper: Claim [unlabelled:tube-settings]
    Assumes: what the descent lemma asks of a step; the paper's own formula for L_phi has no value here, as f and g
    jump.
    """
    tube = tube_of(study.exact)
    L_phi = curvature(tube)
    bound = Bracket(float(np.nextafter(1 / L_phi.upper, 0)), float(np.nextafter(1 / L_phi.lower, 1)))
    return judged(
        "unlabelled:tube-settings", float(STEP), bound, evidence="certified",
        message=f"sup|Hess Phi| over D_0 is in {L_phi}, for L = {tube.L} and gamma = {tube.gamma}",
    )  # fmt: skip


# ---- the figure -----------------------------------------------------------------------------------------------------


@claim(
    "Figure: exp",
    also=(
        "figure: 115", "figure: 1515", "figure: 215", "figure: 315", "figure: 1110", "figure: 15110", "figure: 2110",
        "figure: 3110", "figure: 1120", "figure: 15120", "figure: 2120", "figure: 3120",
    ),
)  # fmt: skip
def figure(study: Study) -> CheckResult:
    """Algorithm 1 is below AID without perturbations, over 1000 iterations together, more often than not.

    The mean of Phi(x_k) over k = 0, ..., 1000 of both from the same starts, uniform in [-1, 1]^d, with all steps 0.05

    Paper: Figure 1 [Figure: exp]
    Assumes: eps = 1, r = 10, T = 50 and the starts, which the paper does not give.
    Deviation: Phi is extended to all of R^d, because the iterates leave D_0.
    """
    tube = tube_of(study.exact)
    if tube.coupled or tube.d < FIGURE_COORDINATES:
        other = "the lower level of Section 5 is another"
        raise NotApplicable(other if tube.coupled else f"the figure has d = 5, 10 and 20, and here d = {tube.d}")
    problem = get("tube", d=tube.d, L=tube.L, gamma=tube.gamma).problem
    runs = 24
    start = study.rng("figure").uniform(-1, 1, (runs, tube.d))
    estimator, eta = AID(D=1, N=1, tau=float(STEP)), float(STEP)
    perturbed = _mean_of_phi(problem, Perturbed(estimator, eta, eps=1.0, r=10.0, T_escape=50), start, study.seed)
    plain = _mean_of_phi(problem, Descent(estimator, eta), start, study.seed)
    failures = int(np.sum(~(perturbed < plain)))  # to be as high is no gain
    drop = float(np.median(plain - perturbed))
    return judged_probability(
        "Figure: exp", failures, runs, 0.5, seed=study.seed,
        message=f"the mean of Phi over the run is lower by {drop:.3g} (median) with perturbations",
    )  # fmt: skip


def _mean_of_phi(problem: BilevelProblem, algorithm: Perturbed | Descent, start: Floats, seed: int) -> Floats:
    run = solve(problem, algorithm, start, steps=ITERATIONS, rng=list(range(seed, seed + len(start))))
    # y* is Phi here: the lower level need not be solved at 24 000 points
    return np.asarray(np.mean(problem.kernels.phi(run.trajectory.x[:, ::10]), axis=1))
