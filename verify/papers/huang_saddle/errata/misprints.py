"""Misprints that a computation can see."""

from __future__ import annotations

from fractions import Fraction

import sympy as sp

from bilevel_sym import paper
from verify.erratum import Formula, erratum


@erratum(
    "unlabelled:remark-large-iota",
    printed='"Theorem 17 holds with probability at least 1 - delta"',
    corrected="Theorem 3.7",
    forms=(lambda: "17", lambda: "3.7"),
    witness="the numbers of the paper's theorems: 2.5, 3.7 and 4.5",
    why="A reference that was not updated.",
    severity="misprint",
    modelled=True,
)
def theorem_17(form: Formula) -> bool:
    """There is a theorem with this number."""
    return form() in {item.number for item in paper.STATEMENTS.values() if item.kind == "Theorem"}


def _printed_domain(d: int, i: int) -> dict[int, str]:
    """Which coordinates the i-th set of the union restricts, and to what."""
    before, after = dict.fromkeys(range(1, i), "[2 tau, 6 tau]"), dict.fromkeys(range(i + 1, d + 1), "[0, tau]")
    return before | {i: "[0, 2 tau]"} | after


@erratum(
    "unlabelled:tube-domain",
    printed="D_0 is the union over i = 1, ..., d + 1 of sets with 2 tau >= x_i >= 0",
    corrected="the last set, i = d + 1, restricts x_1, ..., x_d only",
    forms=(_printed_domain, lambda d, i: {k: v for k, v in _printed_domain(d, i).items() if k <= d}),
    witness="d = 3, i = 4: the set names x_4, which a point of R^3 does not have",
    why="The minimum lies in that set. (The first d saddle points lie on the boundary of D_0, and iterates leave it, "
    "where Phi is not defined: the experiment needs the extension that the paper omits; zoo:tube has one.)",
    severity="misprint",
)
def domain_union(form: Formula) -> bool:
    """Every set restricts coordinates of R^3 alone, and all of them."""
    d = 3
    return all(set(form(d, i)) == set(range(1, d + 1)) for i in range(1, d + 2))


@erratum(
    "phi",
    "y-opt-condition",
    "phi-grad",
    printed="Phi'' = f_xx + f_xy dy*/dx and f_yx + f_yy dy*/dx = 0, with dy*/dx in R^{d x n} as in (1.2)",
    corrected="(dy*/dx)^T in both, or dy*/dx in R^{n x d} from here on",
    forms=(lambda J: J, lambda J: J.T),
    witness="f = x1 y + x2 y - y^2/2, d = 2, n = 1: f_xy and dy*/dx are both 2 x 1",
    why="Where d and n differ the product does not exist; the next display, (C.3), is right.",
    severity="misprint",
)
def minimax_jacobian(form: Formula) -> bool:
    """The product exists, and gives the Hessian of Phi = (x1 + x2)^2/2."""
    x1, x2, y = sp.symbols("x1 x2 y")
    f = x1 * y + x2 * y - y**2 / 2
    y_star = sp.solve(sp.diff(f, y), y)[0]
    J = sp.Matrix([sp.diff(y_star, s) for s in (x1, x2)])  # rows are x, as in (1.2)
    f_xy, factor = sp.Matrix([sp.diff(f, s, y) for s in (x1, x2)]), form(J)
    if f_xy.cols != factor.rows:
        return False
    return bool(sp.hessian(f, (x1, x2)) + f_xy * factor == sp.hessian(f.subs(y, y_star), (x1, x2)))


@erratum(
    "lem:batch-hess-err",
    "lem:batch-grad-err",
    printed="D_f, D_g = max{O(1/(rho_phi eps)), O(1/(rho_phi eps))} bound gradient and Hessian errors",
    corrected="max{O(1/(rho_phi eps)), O(1/eps^2)}",
    forms=(lambda rho, eps: max(1 / (rho * eps), 1 / (rho * eps)), lambda rho, eps: max(1 / (rho * eps), 1 / eps**2)),
    witness="rho_phi = 1, eps = 1/10, 1/20, ..., 1/10240: an error of order eps in a gradient needs 1/eps^2 rows, and "
    "the print has 1/eps",
    why="The same term stands twice; the gradient's share is missing. The lemmas themselves have both.",
    severity="misprint",
    modelled=True,
)
def batch_maximum(form: Formula) -> bool:
    """So many rows, times eps^2, do not vanish with eps: neither do the standard deviation over sqrt(rows) and eps."""
    shares = [form(Fraction(1), Fraction(1, 10 * 2**k)) * Fraction(1, 10 * 2**k) ** 2 for k in range(11)]
    return bool(shares[-1] > shares[0] / 2)


@erratum(
    "bound-uk'",
    printed="|u_{k'-1}| + eta L_phi |u_{k'-1}| = 2 S",
    corrected="<= 2 S, by |u_{k'-1}| <= S",
    forms=(lambda length, radius: length == radius, lambda length, radius: length <= radius),
    witness="eta = 1/L_phi and |u| = S/2: the left side is S",
    why="S bounds |u|, and need not be attained.",
    severity="misprint",
)
def radius_equality(form: Formula) -> bool:
    """The relation is true of lengths up to S, in units of S."""
    return all(form(2 * length, Fraction(2)) for length in (Fraction(0), Fraction(1, 2), Fraction(1)))


@erratum(
    "lemma3.4-long",
    "unlabelled:term-II-split",
    printed="2 (II) in (B.3), and (II) in (B.5) with the factor 2 again",
    corrected="2 times |J f_yx - J' f'_yx|, counted once",
    forms=(lambda: 2 * 2, lambda: 2),
    witness="f = x y, g = (y - x)^2/2: the two mixed terms of Phi'' add up to 2 J f_xy = 2",
    why="The brace in (B.3) leaves the factor out, and the next line takes it in. This is where the excess in rho_phi "
    "comes from.",
    severity="misprint",
)
def twice_two(form: Formula) -> bool:
    """The mixed terms are so many times J f_yx."""
    x, y = sp.symbols("x y")
    f, y_star = x * y, x
    J, f_xy = sp.diff(y_star, x), sp.diff(f, x, y)
    mixed = sp.diff(f.subs(y, y_star), x, 2) - sp.diff(f, x, 2) - J**2 * sp.diff(f, y, 2)  # y* has no second derivative
    return bool(mixed == form() * J * f_xy)
