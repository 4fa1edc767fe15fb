"""Lines that can be read in two ways, or that leave something out which the rest needs."""

from __future__ import annotations

from fractions import Fraction

import sympy as sp

from bilevel_sym import BilevelProblem, Constants, derive, zoo
from verify.erratum import Formula, erratum
from verify.papers.huang_saddle.errata.inner_loops import conjugate_gradients


@erratum(
    "def:local-min",
    "unlabelled:local-min-test",
    "def-rho-phi-intro",
    printed="rho_phi is the Lipschitz constant of Phi'' (Definition 1.1), and rho_phi = O(kappa^5) is defined in "
    "(B.17)",
    corrected="an eps-local minimum is one with respect to a rho_phi for which (1.7) holds, named once: in the "
    "theorems that of (B.17)",
    forms=(lambda least, formula: (least, formula), lambda least, formula: (formula,)),
    witness="f = -y^2/20 + y^3/6, g = (y - x)^2/2 over |x|, |y| <= 1: the least constant is 1, (B.17) gives 56.5; for "
    "eps = 1/1000 the strict local maximum x = 0 is an eps-local minimum by (B.17), and none by the least constant",
    why="A larger rho_phi makes a weaker certificate: what the theorems promise is an eps-local minimum with the "
    "formula's constant, which certified smoothness finds 40 to 670 times too large on common problems.",
    severity="ambiguous",
    modelled=True,
)
def which_rho_phi(form: Formula) -> bool:
    """Whether x = 0 is an eps-local minimum does not depend on the reading."""
    x, y = sp.symbols("x y", real=True)
    f, g = -(y**2) / 20 + y**3 / 6, (y - x) ** 2 / 2
    phi = f.subs(y, sp.solve(sp.diff(g, y), y)[0])
    least = Fraction(int(sp.diff(phi, x, 3)))  # constant, so it is the Lipschitz constant of Phi''
    M, ell = Fraction(1, 20) * 2 + Fraction(1, 2), Fraction(1, 10) + 1  # |f_y| and |f_yy| at y = -1; g has 1
    formula = Constants(Fraction(1), ell, Fraction(1), Fraction(0), M).rho_phi()
    slope, bend = (Fraction(str(sp.diff(phi, x, k).subs(x, 0))) for k in (1, 2))
    eps = Fraction(1, 1000)
    found = {slope <= eps and bend < 0 and bend**2 <= rho * eps for rho in form(least, formula)}
    return len(found) == 1


@erratum(
    "assu:bilevel",
    "unlabelled:assumption-bilevel-iii",
    "unlabelled:assumption-bilevel-iv",
    printed="gradients are ell-Lipschitz continuous with respect to x and y: jointly, or each block in each variable",
    corrected="each block of derivatives is bounded on its own, as Proposition A.1 and every proof use it",
    forms=(lambda block, joint: (block, joint), lambda block, joint: (block,)),
    witness="g = (x + y)^2/2: every block of second derivatives is 1, and the whole Hessian has norm 2",
    why="The readings differ by a factor of up to 2. It matters: with blocks, the printed L_phi is false for M < 1, "
    "and with joint constants it is true; Assumption 3.5(ii) says jointly.",
    severity="ambiguous",
    modelled=True,
)
def which_ell(form: Formula) -> bool:
    """Whether g meets the assumption with ell = 1 does not depend on the reading."""
    x, y = sp.symbols("x y")
    hessian = sp.hessian((x + y) ** 2 / 2, (x, y))
    block, joint = max(map(abs, hessian)), max(map(abs, hessian.eigenvals()))
    return len({bool(ell <= 1) for ell in form(block, joint)}) == 1


@erratum(
    "thm:aid",
    "iter-number-AID",
    "alg:perturbedalg",
    printed="Algorithm 1 returns x_K, and Theorem 2.5 counts iterations for visiting",
    corrected="it returns an x_k that was visited and passes a test (LocalMinimum does)",
    forms=(lambda visited: visited[-1:], lambda visited: visited),
    witness="rho_phi = eps = 1, Phi = -9 x/10 - x^2/2 near [0, 1/2], L_phi = 2: x_0 = 0 is an eps-local minimum with "
    "an estimate above 4 eps/5, and x_1 = 9/20 has |Phi'| = 27/20",
    why="The proof bounds how many iterates are no eps-local minima; it says nothing of the last one, and the "
    "algorithm has no test that would stop it.",
    severity="ambiguous",
    modelled=True,
)
def last_iterate(form: Formula) -> bool:
    """Where an eps-local minimum was visited, it is among what the algorithm returns."""
    eps = rho = Fraction(1)
    L, x, iterates = Fraction(2), Fraction(0), []
    for _ in range(2):  # no perturbation: the estimate, which is exact, stays above 4/5 eps
        slope, bend = -Fraction(9, 10) - x, Fraction(-1)
        iterates.append(abs(slope) <= eps and bend**2 <= rho * eps)
        if abs(slope) <= Fraction(4, 5) * eps:
            raise ArithmeticError("the witness would be perturbed")
        x -= slope / L
    return any(form(iterates)) or not any(iterates)


@erratum(
    "objective",
    printed="y*(x) = argmin over y in R^s of g(x, y)",
    corrected="over y in R^n",
    forms=(lambda n, s: s, lambda n, s: n),
    witness="zoo:stochastic_noise, d = n = 2, with s = 3: the product of g_xy (2 x 2) with v (3) in (4.8) is undefined",
    why="s stands nowhere else; f and g share one y, and (4.7) and (4.8) multiply its blocks.",
    severity="misprint",
    modelled=True,
)
def dimension_of_y(form: Formula) -> bool:
    """The blocks of the problem can be multiplied with a v of that many entries."""
    problem = zoo.get("stochastic_noise").problem
    blocks = derive(BilevelProblem(problem.f, problem.g, problem.x, problem.y), closed_form=False).blocks
    n = blocks["f_y"].rows
    return bool(form(n, n + 1) == blocks["g_xy"].cols == blocks["g_yy"].cols)


@erratum(
    "alg:iNEON",
    printed="inputs T, D, tau, eta, eps, r, x~ and y_0; steps 7 and 13 estimate by AID, which needs N",
    corrected="N, v_0 and the decrease F are inputs too",
    forms=(lambda N: range(1, N + 1), lambda N: (N,)),
    witness="g_yy = diag(1, 2), f_y = (1, 1): one step of CG from 0 gives v = (2/3, 2/3), two give (1, 1/2)",
    why="Without N the estimate is not determined. Algorithm 1 has N among its inputs, and (D.4) says how large it is.",
    severity="misprint",
    modelled=True,
)
def missing_n(form: Formula) -> bool:
    """The inputs determine the estimate."""
    diagonal, right, start = [Fraction(1), Fraction(2)], [Fraction(1), Fraction(1)], [Fraction(0), Fraction(0)]
    return len({tuple(conjugate_gradients(diagonal, right, start, N)) for N in form(2)}) == 1


@erratum(
    "alg:iNEON",
    "unlabelled:algorithm-2-step-15",
    printed="step 15 tests f(x~ + u_{k+1}, y) where the only y at hand is y_k^D, computed for x~ + u_k",
    corrected="the test follows the inner loop at x~ + u_{k+1}, with its own y^D",
    forms=(lambda old, new: (old, new), lambda old, new: (new,)),
    witness="f = y, g = (y - x)^2/2, u_k = 1/4, u_{k+1} = 1/2, inner loops solved exactly: f(x~ + u_{k+1}, y_k^D) - "
    "Phi(x~) is 1/4 in place of 1/2",
    why="(D.2) asks for y^D close to y* at the same point; y_k^D is off by kappa |u_{k+1} - u_k|.",
    severity="ambiguous",
    modelled=True,
)
def stopping_point(form: Formula) -> bool:
    """Where inner loops are exact, the tested value is that of Phi, in every reading."""
    x, (u, u_next) = Fraction(0), (Fraction(1, 4), Fraction(1, 2))
    y_star = {point: x + point for point in (u, u_next)}  # of g = (y - x)^2/2
    return all(y_star[at] == x + u_next for at in form(u, u_next))
