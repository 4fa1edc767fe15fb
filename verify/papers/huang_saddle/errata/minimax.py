"""Errors in the statements on minimax problems."""

from __future__ import annotations

from collections.abc import Iterator
from fractions import Fraction
from itertools import product

import sympy as sp

from bilevel_sym import MinimaxConstants
from verify.erratum import Formula, by_variant, erratum


@erratum(
    "unlabelled:definition-strict-local-minimax",
    "unlabelled:schur-condition",
    printed="f_xx - f_xy f_yy^{-1} f_xy > 0",
    corrected="f_xx - f_xy f_yy^{-1} f_yx > 0",
    forms=(lambda f_xy, f_yy: f_xy * f_yy.inv() * f_xy, lambda f_xy, f_yy: f_xy * f_yy.inv() * f_xy.T),
    witness="f = -x1^2/4 + x2^2/2 + x1 y2 - |y|^2/2: Phi = x1^2/4 + x2^2/2 has a strict minimum at 0, and the printed "
    "matrix is indefinite",
    why="f_xy is d x n: its product with itself is undefined for d != n, and for d = n not the Schur complement.",
)
def schur(form: Formula) -> bool:
    """The condition says the same as the Hessian of Phi, computed from Phi itself."""
    x1, x2, y1, y2 = sp.symbols("x1 x2 y1 y2")
    f = -(x1**2) / 4 + x2**2 / 2 + x1 * y2 - (y1**2 + y2**2) / 2
    y_star = sp.solve([sp.diff(f, y1), sp.diff(f, y2)], [y1, y2])
    whole = sp.hessian(f, (x1, x2, y1, y2))
    f_xx, f_xy, f_yy = whole[:2, :2], whole[:2, 2:], whole[2:, 2:]
    truth = sp.hessian(f.subs(y_star), (x1, x2)).is_positive_definite
    return bool((f_xx - form(f_xy, f_yy)).is_positive_definite == truth)


@erratum(
    "unlabelled:strict-local-nash",
    printed="a stationary point is a strict local Nash equilibrium if and only if f_yy < 0 < f_xx there",
    corrected="f_yy < 0 < f_xx is sufficient, and f_yy <= 0 <= f_xx is necessary",
    forms=(
        lambda nash, f_xx, f_yy: nash == bool(f_yy < 0 < f_xx),
        lambda nash, f_xx, f_yy: bool(f_yy <= 0 <= f_xx) if nash else not f_yy < 0 < f_xx,
    ),
    witness="f = x^4 - y^2/2 at 0: f(0, y) < f(0, 0) < f(x, 0) for all x, y != 0, and f_xx = 0",
    why="As for minima of one function, the second-order condition is sufficient and not necessary. (Some authors make "
    "it the definition of a strict local Nash point; the paper defines local Nash points by values of f.)",
    severity="ambiguous",
)
def strict_nash(form: Formula) -> bool:
    """The characterisation is true of a point that is strict by the values of f along each variable."""
    x, y = sp.symbols("x y", real=True)
    f = x**4 - y**2 / 2
    origin = {x: 0, y: 0}

    def only_minimum(p: sp.Expr, s: sp.Symbol) -> bool:
        return bool(set(sp.real_roots(p)) == {0} and p.subs(s, 1) > 0 and p.subs(s, -1) > 0)

    nash = only_minimum(f.subs(y, 0), x) and only_minimum(-f.subs(x, 0), y)
    return bool(form(nash, sp.diff(f, x, 2).subs(origin), sp.diff(f, y, 2).subs(origin)))


@erratum(
    "lem:equivalence",
    "proof-prop-2.4-eq1",
    printed="a (strict) local minimum of Phi satisfies Phi' = 0 and Phi'' > 0, so a strict local minimax point exists",
    corrected="a local minimum satisfies Phi' = 0 and Phi'' >= 0; the equivalence holds for the minima with Phi'' > 0",
    forms=(lambda curvature: curvature > 0, lambda curvature: curvature >= 0),
    witness="f = x^4 - x^6 - y^2: Phi = x^4 - x^6 has exactly one strict local minimum, x = 0, where Phi'' = 0",
    why="Phi'' > 0 is sufficient and not necessary: here Phi has a strict local minimum, and f no strict local minimax "
    "point at all.",
)
def equivalence(form: Formula) -> bool:
    """The condition is true of f at every strict local minimum of Phi (and there is just the one at 0)."""
    x, y = sp.symbols("x y", real=True)
    f = x**4 - x**6 - y**2
    phi = f.subs(y, 0)

    def strict_minimum(p: sp.Expr) -> bool:  # the first derivative that is not zero has even order and is positive
        order = next(k for k in range(1, 8) if sp.diff(phi, x, k).subs(x, p) != 0)
        return bool(order % 2 == 0 and sp.diff(phi, x, order).subs(x, p) > 0)

    minima = [p for p in sp.solve(sp.diff(phi, x), x) if strict_minimum(p)]
    schur = sp.diff(f, x, 2) - sp.diff(f, x, y) ** 2 / sp.diff(f, y, 2)
    return minima == [0] and all(form(schur.subs({x: p, y: 0})) for p in minima)


@erratum(
    "pro:minimax",
    "phi-2",
    printed="-f_xy f_yy^{-1} f_yx is always positive definite",
    corrected="it is always positive semidefinite",
    forms=(lambda matrix: matrix.is_positive_definite, lambda matrix: matrix.is_positive_semidefinite),
    witness="f = -x^2/2 - y^2/2, where f_xy = 0; and d = 2, n = 1 with f_xy = (1, 0)^T",
    why="f_xy^T may have a kernel, and has one whenever d > n. The proposition needs only the semidefinite statement.",
)
def semidefinite(form: Formula) -> bool:
    """The sign holds for both mixed blocks."""
    f_yy = sp.Matrix([[-1]])
    return all(form(-f_xy * f_yy.inv() * f_xy.T) for f_xy in (sp.Matrix([[0]]), sp.Matrix([1, 0])))


@erratum(
    "pro:minimax",
    "unlabelled:saddle-not-nash",
    printed="a saddle point of Phi satisfies lambda_min(Phi'') < 0",
    corrected="at a saddle point Phi'' is not positive definite, which is enough for the claim",
    forms=(lambda least: least < 0, lambda least: not least > 0),
    witness="f = x1^2 - x2^4 - y^2: Phi = x1^2 - x2^4 has a saddle point at 0 with eigenvalues 2 and 0",
    why="Saddle points can be degenerate. The claim is still true: at a strict local Nash equilibrium Phi'' >= f_xx "
    "> 0.",
    severity="gap",
)
def degenerate_saddle(form: Formula) -> bool:
    """The condition is true of a stationary point near which Phi is both above and below its value."""
    x1, x2, y, t = sp.symbols("x1 x2 y t", positive=True)
    phi = (x1**2 - x2**4 - y**2).subs(y, 0)
    origin = {x1: 0, x2: 0}
    stationary = all(sp.diff(phi, s).subs(origin) == 0 for s in (x1, x2))
    both_sides = phi.subs({x1: t, x2: 0}).is_positive and phi.subs({x1: 0, x2: t}).is_negative
    least = min(sp.hessian(phi, (x1, x2)).subs(origin).eigenvals())
    return bool(stationary and both_sides and form(least))


@erratum(
    "lemC.1",
    "unlabelled:minimax-L-phi",
    printed="L_phi = ell (1 + kappa)",
    corrected="L_phi = ell kappa, which is attained",
    forms=by_variant(lambda mu, ell, variant: MinimaxConstants(mu, ell, 1).L_phi(variant=variant), "sharp"),
    witness="f = mu x^2/2 + sqrt(ell^2 - mu^2) x y - mu y^2/2 with mu = 3, ell = 5: Phi'' = 25/3 = ell kappa",
    why="Along a unit vector u let w = -f_yy^{-1} f_yx u. In the plane of (u, 0) and (0, w) the Hessian of f is 2 x "
    "2 with determinant -c Phi''[u, u], c >= mu, of modulus at most ell^2 (joint smoothness); and Phi'' >= f_xx >= "
    "-ell.",
    severity="loose",
)
def minimax_l_phi(form: Formula) -> bool:
    """Of all Hessians [[a, b], [b, -c]] of norm at most ell, c >= mu, the largest a + b^2/c = Phi'' is the value."""
    return all(
        max(abs(a + b * b / c) for a, b, c in _hessians(*triple)) == form(triple[0], triple[2]) for triple in _TRIPLES
    )


@erratum(
    "lemC.1",
    "unlabelled:minimax-rho-phi",
    printed="rho_phi = rho (1 + kappa)^3",
    corrected="rho_phi = rho kappa^3 where rho bounds all third derivatives in (x, y) at once, as ell bounds all "
    "second ones",
    forms=by_variant(lambda mu, ell, variant: MinimaxConstants(mu, ell, 1).rho_phi(variant=variant), "sharp"),
    witness="f = mu x^2/2 + b x y - mu y^2/2 + s^3/6 with s = (mu x + b y)/ell, mu = 3, b = 4, ell = 5, rho = 1: "
    "Phi''' = (5/3)^3 = kappa^3 at 0, and no f with these constants there has more",
    why="Phi''' = D^3 f[Z, Z, Z] with Z = (1, dy/dx), because f_y vanishes along y*; and |Z| <= kappa, because the "
    "Hessian of f maps (0, 1) to (b, -c), c >= mu, of length c |Z| <= ell.",
    severity="loose",
)
def minimax_rho_phi(form: Formula) -> bool:
    """The largest |Z|^3 over Hessians [[a, b], [b, -c]] of norm at most ell, c >= mu, is the value; so is Phi'''."""
    for triple in _TRIPLES:
        value = form(triple[0], triple[2])
        largest = max(1 + (b / c) ** 2 for _, b, c in _hessians(*triple))  # |Z|^2
        if _third_derivative(*triple) != value or largest**3 != value**2:
            return False
    return True


_TRIPLES = ((Fraction(3), Fraction(4), Fraction(5)), (Fraction(5), Fraction(12), Fraction(13)))


def _hessians(mu: Fraction, b: Fraction, ell: Fraction) -> Iterator[tuple[Fraction, Fraction, Fraction]]:
    """Some (a, b, c) of all Hessians [[a, b], [b, -c]] of norm at most ell, c >= mu."""
    yield mu, b, mu  # has the eigenvalues ell and -ell
    parts = [Fraction(i, 6) for i in range(-6, 7)]
    for a, off, c in product(parts, parts, parts):
        if c * ell >= mu and _norm_at_most_one(a, off, c):
            yield ell * a, ell * off, ell * c


def _third_derivative(mu: Fraction, b: Fraction, ell: Fraction) -> Fraction:
    """Phi''' at 0 of the witness: twice the second coefficient of Phi' = f_x along the series of y*."""
    x, y, bend = sp.symbols("x y bend")
    m, k, e = (sp.Rational(part.numerator, part.denominator) for part in (mu, b, ell))
    f = m * x**2 / 2 + k * x * y - m * y**2 / 2 + ((m * x + k * y) / e) ** 3 / 6
    curve = k / m * x + bend * x**2
    (root,) = sp.solve(sp.expand(sp.diff(f, y).subs(y, curve)).coeff(x, 2), bend)
    third = 2 * sp.expand(sp.diff(f, x).subs(y, curve.subs(bend, root))).coeff(x, 2)
    return Fraction(int(third.p), int(third.q))


def _norm_at_most_one(a: Fraction, b: Fraction, c: Fraction) -> bool:
    """Whether I - H^2 is positive semidefinite for H = [[a, b], [b, -c]]."""
    p, q, r = 1 - a * a - b * b, b * (c - a), 1 - b * b - c * c
    return p >= 0 and r >= 0 and p * r >= q * q


@erratum(
    "lem:grad-err-mini",
    "eq:gdmax-error",
    "eq:gdmax-error-bound2",
    "eq:gdmax-D",
    printed="|grad-hat Phi(x)| = |f_x(x, y)| <= M + ell M/mu, with an M that Assumption 3.5 does not have",
    corrected="|f_x(x, y)| <= |Phi'(x)| + ell |y - y*(x)|, or a bound M_x of f_x over the region as one more "
    "hypothesis",
    forms=(
        lambda slope, distance, M, kappa, ell: M + kappa * M,
        lambda slope, distance, M, kappa, ell: slope + ell * distance,
    ),
    witness="f = x y - y^2/2 (mu = 1; ell = 2 bounds the norm of the Hessian), x = 0, y = 3 M + 1, for every M > 0",
    why="Assumption 3.5 has no M; a strongly concave f is not Lipschitz in y, and f_x need not be bounded either.",
    severity="gap",
)
def gdmax_m(form: Formula) -> bool:
    """The norm of f_x stays below the bound, for a symbolic M."""
    M, mu, ell = sp.Symbol("M", positive=True), 1, 2
    x, y = sp.Integer(0), 3 * M + 1
    f_x, y_star, slope = y, x, x  # of f = x y - y^2/2: f_x = y, y* = x, Phi' = x
    return bool((form(abs(slope), abs(y - y_star), M, ell / sp.Integer(mu), ell) - abs(f_x)).is_nonnegative)


@erratum(
    "unlabelled:minimax-as-bilevel",
    "eq:minimax-formu",
    "assu:bilevel",
    printed="a minimax problem is a special case of (1.1) with g = -f, under Assumption 2.1: |f_y| <= M on R^n",
    corrected="the problem is, the assumption is not: mu |y - y*| <= |f_y| <= ell |y - y*|, so that M = ell R over |y "
    "- y*| <= R and no M exists on R^n; Assumption 3.5 has its own constants",
    forms=(lambda distance, M, mu, ell: (0, M), lambda distance, M, mu, ell: (mu * distance, ell * distance)),
    witness="f = x y - y^2/2 (mu = ell = 1 in y) at y = y* + 2 M, for every M > 0: |f_y| = 2 M",
    why="By strong concavity |f_y| >= mu |y - y*|, whatever f is. The theorems of Section 2 therefore say nothing "
    "about minimax problems on R^n, and those of Section 3 need their own proofs (which they have, but for M).",
    severity="gap",
)
def special_case(form: Formula) -> bool:
    """The norm of f_y lies between the two bounds, for a symbolic M."""
    x, y = sp.symbols("x y", real=True)
    M, mu, ell = sp.Symbol("M", positive=True), 1, 1
    f = x * y - y**2 / 2
    y_star = sp.solve(sp.diff(f, y), y)[0]
    slope = abs(sp.diff(f, y).subs(y, y_star + 2 * M / mu))
    low, high = form(2 * M / mu, M, mu, ell)
    return bool((slope - low).is_nonnegative and (high - slope).is_nonnegative)
