"""The paper's statements under their own LaTeX labels: kind, number and a short title of each.

Pure data and one long table, hence a long file. The order is the paper's and the numbers are those
that LaTeX assigns. A key that begins with ``unlabelled:`` is ours, for a statement that the paper
leaves without a label; where it has no number either, its title says where it stands.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from difflib import get_close_matches
from functools import partial
from types import MappingProxyType

__all__ = ["STATEMENTS", "Statement", "cite"]

OWN = "own:"  # begins the labels of statements that are not the paper's


@dataclass(frozen=True, slots=True)
class Statement:
    """One statement of the paper: what LaTeX calls it and what it says.

    >>> STATEMENTS["lem:descent"]
    Statement(kind='Lemma', number='2.8', title='inexact descent lemma')
    """

    kind: str
    number: str | None
    title: str


def cite(label: str) -> str:
    """The reference to print for ``label``; for an unknown one, a ``KeyError`` names the nearest.

    A label that begins with "own:" is of a statement that is not the paper's, such as a claim that a user wrote.

    >>> cite("lem:descent"), cite("unlabelled:stuck-region"), cite("own:my-bound")
    ('Lemma 2.8 [lem:descent]', 'Formula [unlabelled:stuck-region]', 'Own statement [own:my-bound]')
    """
    if label.startswith(OWN):
        return f"Own statement [{label}]"
    statement = STATEMENTS.get(label)
    if statement is None:
        nearest = ", ".join(map(repr, get_close_matches(label, STATEMENTS, cutoff=0.0)))
        raise KeyError(
            f"the paper has no label {label!r}; the nearest are {nearest}; one of your own begins with {OWN!r}"
        )
    name = statement.kind if statement.number is None else f"{statement.kind} {statement.number}"
    return f"{name} [{label}]"


_alg = partial(Statement, "Algorithm")
_asm = partial(Statement, "Assumption")
_cor = partial(Statement, "Corollary")
_def = partial(Statement, "Definition")
_eq = partial(Statement, "Equation")
_fig = partial(Statement, "Figure")
_lem = partial(Statement, "Lemma")
_prop = partial(Statement, "Proposition")
_rem = partial(Statement, "Remark")
_sec = partial(Statement, "Section")
_thm = partial(Statement, "Theorem")
_formula = partial(Statement, "Formula", None)  # a display without a number
_claim = partial(Statement, "Claim", None)  # a fact in running text


STATEMENTS: Mapping[str, Statement] = MappingProxyType(
    {
        # Section 1: introduction
        "intro": _sec("1", "introduction: problem, hypergradient, eps-local minimum"),
        "eq:objective": _eq("1.1", "deterministic bilevel problem, Phi(x) = f(x, y*(x))"),
        "phi-grad": _eq("1.2", "hypergradient by the chain rule through y*"),
        "unlabelled:lower-stationarity": _claim("optimality condition nabla_y g = 0, Section 1"),
        "eq:opt-deri1": _eq("1.3", "lower-level optimality differentiated once in x"),
        "solve-partial-y*-partial-x": _eq("1.4", "Jacobian of y* from the implicit function"),
        "eq:bilevel-grad": _eq("1.5", "hypergradient with the inverse lower Hessian"),
        "def:local-min": _def("1.1", "eps-local minimum of Phi"),
        "unlabelled:local-min-test": _eq("1.6", "gradient and eigenvalue test of an eps-minimum"),
        "def-rho-phi-intro": _eq("1.7", "Hessian of Phi is rho_phi-Lipschitz"),
        "objective": _eq("1.8", "stochastic bilevel problem, both levels expectations"),
        "unlabelled:section-contributions": _sec("1.1", "claims for AID, GDmax and iNEON"),
        "unlabelled:section-related": _sec("1.2", "prior work; notation for oracle counts, kappa"),
        # Section 2: perturbed AID
        "sec:bilevel": _sec("2", "perturbed AID for bilevel problems"),
        "eq:aid-step1": _eq("2.1", "linear system that AID solves by conjugate gradients"),
        "eq:aid-step2": _eq("2.2", "AID estimate of the hypergradient"),
        "alg:perturbedalg": _alg("1", "perturbed AID and perturbed GDmax"),
        "unlabelled:algorithm-1-step-5": _alg("1, step 5", "warm start of y in Algorithm 1"),
        "unlabelled:algorithm-1-step-7": _alg("1, step 7", "lower-level gradient step, size tau"),
        "unlabelled:algorithm-1-step-9": _alg("1, step 9", "hypergradient estimate, GDmax or AID"),
        "unlabelled:algorithm-1-step-10": _alg("1, step 10", "test that allows a perturbation"),
        "unlabelled:algorithm-1-step-11": _alg("1, step 11", "perturbation uniform in a ball"),
        "unlabelled:algorithm-1-step-14": _alg("1, step 14", "inexact gradient step on x"),
        "unlabelled:section-analysis": _sec("2.1", "assumptions and rates of perturbed AID"),
        "assu:bilevel": _asm("2.1", "smoothness and strong convexity of the bilevel problem"),
        "unlabelled:assumption-bilevel-i": _asm("2.1(i)", "g is C3 and mu-strongly convex in y"),
        "unlabelled:assumption-bilevel-ii": _asm("2.1(ii)", "f is C2 and M-Lipschitz"),
        "unlabelled:assumption-bilevel-iii": _asm("2.1(iii)", "gradients of f, g ell-Lipschitz"),
        "unlabelled:assumption-bilevel-iv": _asm("2.1(iv)", "second derivatives rho-Lipschitz"),
        "unlabelled:assumption-bilevel-v": _asm("2.1(v)", "third derivatives of g nu-Lipschitz"),
        "unlabelled:remark-extra-smoothness": _rem("2.2", "smoothness asked beyond earlier work"),
        "unlabelled:remark-third-order": _rem("2.3", "third derivatives serve the analysis only"),
        "hess-Lipschitz": _lem("2.4", "Phi has a Lipschitz Hessian, rho_phi = O(kappa^5)"),
        "thm:aid": _thm("2.5", "convergence of perturbed AID to an eps-local minimum"),
        "eq:aid-ND-thm": _eq("2.3", "orders of the inner iteration numbers D and N"),
        "iter-number-AID": _eq("2.4", "outer iterations of perturbed AID, order kappa^3/eps^2"),
        "unlabelled:corollary-aid": _cor("2.6", "oracle complexities of perturbed AID"),
        "unlabelled:corollary-aid-gradients": _formula("gradient counts in Corollary 2.6"),
        "unlabelled:corollary-aid-products": _formula("JV and HV counts in Corollary 2.6"),
        "unlabelled:remark-aid-log-factor": _rem("2.7", "log factor paid for a local minimum"),
        "unlabelled:section-proof-sketch": _sec("2.2", "outline of the proof for perturbed AID"),
        "lem:descent": _lem("2.8", "inexact descent lemma"),
        "unlabelled:descent-inequality": _eq("2.5", "one-step decrease with an inexact gradient"),
        "lem:escapesaddle": _lem("2.9", "a perturbation escapes strict saddle points"),
        "eq:error-required": _eq("2.6", "hypergradient accuracy that escaping needs"),
        "eq:phi-dec-highprob-main-body": _eq("2.7", "decrease by F/2 after T steps"),
        "ufun-def": _eq("2.8", "definition of the decrease F"),
        "unlabelled:sketch-iteration-bound": _formula("bound on K that ends Section 2.2"),
        # Section 3: minimax problems
        "subsec:minimax": _sec("3", "perturbed GDmax for minimax problems"),
        "eq:minimax-formu": _eq("3.1", "nonconvex-strongly-concave minimax problem"),
        "unlabelled:minimax-as-bilevel": _formula("minimax as bilevel with g = -f, Section 3"),
        "def:pureNash": _def("3.1", "Nash equilibrium, global and local"),
        "unlabelled:nash-inequality": _formula("two-sided inequality of Definition 3.1"),
        "unlabelled:strict-local-nash": _formula("second-order strict local Nash test, Section 3"),
        "pro:minimax": _prop("3.2", "local Nash equilibria against the minima of Phi"),
        "unlabelled:saddle-not-nash": _prop("3.2(i)", "a saddle of Phi is no strict local Nash"),
        "unlabelled:nash-is-minimum": _prop("3.2(ii)", "a strict local Nash minimises Phi"),
        "unlabelled:definition-strict-local-minimax": _def("3.3", "strict local minimax point"),
        "unlabelled:schur-condition": _formula("Schur complement condition of Definition 3.3"),
        "lem:equivalence": _prop("3.4", "strict local minimax point = strict local minimum of Phi"),
        "unlabelled:gdmax-estimate": _formula("GDmax hypergradient estimate, Section 3"),
        "assu:minimax": _asm("3.5", "smoothness and strong concavity of the minimax problem"),
        "unlabelled:assumption-minimax-i": _asm("3.5(i)", "f is C2, mu-strongly concave in y"),
        "unlabelled:assumption-minimax-ii": _asm("3.5(ii)", "f is ell-smooth jointly in (x, y)"),
        "unlabelled:assumption-minimax-iii": _asm("3.5(iii)", "Hessian blocks rho-Lipschitz"),
        "unlabelled:assumption-minimax-iv": _asm("3.5(iv)", "Phi bounded below, compact sublevels"),
        "unlabelled:remark-no-third-order": _rem("3.6", "minimax needs no third derivatives"),
        "thm:minimax": _thm("3.7", "convergence of perturbed GDmax to an eps-local minimum"),
        "eq:para_minimax": _eq("3.2", "choice of tau, eta, r and the time T"),
        "unlabelled:minimax-iteration-bound": _formula("outer iterations K in Theorem 3.7"),
        "iota-condition": _eq("3.3", "how large iota must be for failure probability delta"),
        "unlabelled:remark-large-L-phi": _rem("3.8", "why L_phi may be assumed large"),
        "L-phi-big": _eq("3.4", "standing assumption L_phi >= sqrt(rho_phi eps)"),
        "unlabelled:remark-large-iota": _rem("3.9", "a larger iota makes delta smaller"),
        "cor:minimax": _cor("3.10", "gradient complexity of perturbed GDmax"),
        "unlabelled:remark-first-order": _rem("3.11", "GDmax against second-order minimax methods"),
        "unlabelled:remark-nonasymptotic": _rem("3.12", "nonasymptotic against asymptotic results"),
        "unlabelled:remark-kappa-squared": _rem("3.13", "kappa dependence of perturbed GDmax"),
        # Section 4: iNEON and stochastic problems
        "sec:sto-bilevel": _sec("4", "iNEON and stochastic bilevel problems"),
        "unlabelled:section-ineon": _sec("4.1", "negative curvature from noise, inexact gradients"),
        "eq:u-update-neon": _eq("4.1", "iNEON update of u with estimated hypergradients"),
        "eq:neon-update": _eq("4.2", "iNEON as an approximate power method"),
        "unlabelled:neon-gradient-error": _claim("definition of the error delta_k, Section 4.1"),
        "alg:iNEON": _alg("2", "iNEON"),
        "unlabelled:algorithm-2-step-14": _alg("2, step 14", "iNEON update of u"),
        "unlabelled:algorithm-2-step-15": _alg("2, step 15", "stopping test at 11519/12800 F"),
        "lem:neon": _lem("4.1", "iNEON finds a direction of negative curvature"),
        "eq:para_neon": _eq("4.3", "choice of tau, eta, r and T for iNEON"),
        "eq:para_neon-2": _eq("4.4", "decrease F for iNEON"),
        "eq:phi-dec-highprob": _eq("4.5", "Rayleigh quotient of the direction that iNEON returns"),
        "iota-condition-2": _eq("4.6", "how large iota must be for iNEON"),
        "unlabelled:remark-neon-proof": _rem("4.2", "simpler proof that admits gradient errors"),
        "unlabelled:section-stocbio": _sec("4.2", "stocBiO with iNEON escapes saddle points"),
        "alg:INEONstocbio": _alg("3", "stocBiO with iNEON"),
        "unlabelled:algorithm-3-step-6": _alg("3, step 6", "stochastic lower-level gradient step"),
        "unlabelled:algorithm-3-step-10": _alg("3, step 10", "stochastic hypergradient step on x"),
        "unlabelled:algorithm-3-step-13": _alg("3, step 13", "gradient test that calls iNEON"),
        "unlabelled:algorithm-3-step-19": _alg("3, step 19", "step along +-u with a random sign"),
        "est-vq": _eq("4.7", "Neumann-series estimate v_Q of the linear solve"),
        "estG": _eq("4.8", "stochastic hypergradient estimate"),
        "unlabelled:batch-functions": _claim("batch versions of f, g and Phi, Section 4.2"),
        "ass:stoc": _asm("4.3", "every sample satisfies the bilevel assumption"),
        "ass:variance-bound": _asm("4.4", "gradient of G has variance at most sigma^2"),
        "thm:stocneon": _thm("4.5", "convergence of stocBiO with iNEON"),
        "unlabelled:stochastic-iteration-bound": _formula("outer iterations K in Theorem 4.5"),
        "cor:stocneon": _cor("4.6", "oracle complexities of stocBiO with iNEON"),
        "unlabelled:corollary-stochastic-gradients": _formula("gradient counts in Corollary 4.6"),
        "unlabelled:corollary-stochastic-products": _formula("JV and HV counts in Corollary 4.6"),
        "unlabelled:remark-larger-batches": _rem("4.7", "high probability costs powers of kappa"),
        # Section 5: numerical experiments (panel parameters are read off the labels)
        "unlabelled:section-experiments": _sec("5", "tube experiment as a bilevel problem"),
        "eq:exp_objective": _eq("5.1", "bilevel problem of the experiments"),
        "eq: tube_f": _eq("5.2", "upper-level tube function f_1, piece by piece"),
        "unlabelled:tube-f-i1": _eq("5.3", "tube piece f_{i,1}: concave in x_i"),
        "unlabelled:tube-f-i2": _eq("5.4", "tube piece f_{i,2}: connector through y"),
        "unlabelled:tube-f-d1": _eq("5.5", "tube piece f_{d,1}: concave in x_d"),
        "unlabelled:tube-f-d2": _eq("5.6", "tube piece f_{d,2}: last connector"),
        "unlabelled:tube-f-last": _eq("5.7", "tube piece f_{d+1,1}: convex bowl at the minimum"),
        "unlabelled:lower-level-function": _eq("5.8", "lower-level function f_2 = y^2/2 - g(x) y"),
        "unlabelled:tube-g": _eq("5.9", "connector g(x), the lower-level solution y*(x)"),
        "unlabelled:h1": _eq("5.10", "quartic h_1 of the connector"),
        "unlabelled:h2": _eq("5.11", "quintic h_2 of the connector"),
        "unlabelled:tube-constants": _formula("constants L, gamma, tau and nu, Section 5"),
        "unlabelled:tube-domain": _eq("5.12", "domain D_0 of the tube function"),
        "unlabelled:tube-saddle-points": _claim("list of the d saddle points in D_0, Section 5"),
        "unlabelled:tube-minimum": _claim("only local optimum (4 tau, ..., 4 tau), Section 5"),
        "unlabelled:tube-settings": _claim("1000 iterations, all step sizes 0.05, Section 5"),
        "figure: 115": _fig("1(a)", "learning curves, L = 1, gamma = 1, d = 5"),
        "figure: 1515": _fig("1(b)", "learning curves, L = 1.5, gamma = 1, d = 5"),
        "figure: 215": _fig("1(c)", "learning curves, L = 2, gamma = 1, d = 5"),
        "figure: 315": _fig("1(d)", "learning curves, L = 3, gamma = 1, d = 5"),
        "figure: 1110": _fig("1(e)", "learning curves, L = 1, gamma = 1, d = 10"),
        "figure: 15110": _fig("1(f)", "learning curves, L = 1.5, gamma = 1, d = 10"),
        "figure: 2110": _fig("1(g)", "learning curves, L = 2, gamma = 1, d = 10"),
        "figure: 3110": _fig("1(h)", "learning curves, L = 3, gamma = 1, d = 10"),
        "figure: 1120": _fig("1(i)", "learning curves, L = 1, gamma = 1, d = 20"),
        "figure: 15120": _fig("1(j)", "learning curves, L = 1.5, gamma = 1, d = 20"),
        "figure: 2120": _fig("1(k)", "learning curves, L = 2, gamma = 1, d = 20"),
        "figure: 3120": _fig("1(l)", "learning curves, L = 3, gamma = 1, d = 20"),
        "Figure: exp": _fig("1", "perturbed AID against AID-BiO on the tube function"),
        "unlabelled:section-conclusion": _sec("6", "conclusion: the three algorithms in review"),
        # Appendix A: preliminaries
        "unlabelled:section-preliminaries": _sec("A", "derivative bounds and smoothness of Phi"),
        "pro:bounds": _prop("A.1", "norm bounds on the derivatives of f and g"),
        "unlabelled:bound-inverse-hessian": _formula("inverse Hessian by 1/mu, Proposition A.1"),
        "unlabelled:bound-first-order": _formula("first derivatives by M, Proposition A.1"),
        "unlabelled:bound-second-order": _formula("second derivatives by ell, Proposition A.1"),
        "unlabelled:bound-third-order": _formula("third derivatives by rho, Proposition A.1"),
        "grad-Lipschitz": _lem("A.2", "Phi is L_phi-smooth"),
        "eq:phi-smooth": _eq("A.1", "gradient of Phi is L_phi-Lipschitz"),
        "unlabelled:L-phi": _eq("A.2", "formula of the smoothness constant L_phi"),
        # Appendix B.1: the Lipschitz Hessian and the error of AID
        "unlabelled:section-proofs-bilevel": _sec("B", "proofs for perturbed AID"),
        "unlabelled:section-proof-hessian": _sec("B.1", "proof that the Hessian is Lipschitz"),
        "phi-hessian": _eq("B.1", "Hessian of Phi through y* and its derivatives"),
        "eq:opt-deri2": _eq("B.2", "lower-level optimality differentiated twice in x"),
        # LaTeX drops this label, which sits on an unnumbered row; the display prints (B.3).
        "lemma3.4-long": _eq("B.3", "Hessian difference split into terms (I)-(IV)"),
        "unlabelled:y-star-lipschitz": _claim("y* is ell/mu-Lipschitz, proof of Lemma 2.4"),
        "unlabelled:term-I": _eq("B.4", "term (I): Hessian of f in x"),
        "unlabelled:term-II-split": _eq("B.5", "term (II) by the difference of Jacobians of y*"),
        "eq:y-grad-diff": _eq("B.6", "Jacobian of y* is Lipschitz"),
        "unlabelled:inverse-difference": _claim("difference of two inverses, proof of Lemma 2.4"),
        "unlabelled:term-II": _eq("B.7", "term (II): Jacobian of y* times mixed Hessian of f"),
        "eq:termIII": _eq("B.8", "term (III) by the second derivative of y*"),
        "eq:hess-y-expression": _eq("B.9", "second derivative of y* in closed form"),
        "eq:y-hess-bound": _eq("B.10", "norm of the second derivative of y*"),
        "eq:y-hess-diff": _eq("B.11", "difference of second derivatives of y*, first step"),
        "unlabelled:jacobian-third-product": _eq("B.12", "Jacobian of y* times mixed third of g"),
        "eq:term-pgp": _eq("B.13", "third derivative of g between two Jacobians of y*"),
        "eq:y-hess-bound-final": _eq("B.14", "second derivative of y* is Lipschitz"),
        "unlabelled:term-III": _eq("B.15", "term (III): second derivative of y* times nabla_y f"),
        "unlabelled:term-IV": _eq("B.16", "term (IV): Hessian of f in y between two Jacobians"),
        "def-rho-phi": _eq("B.17", "formula of the Hessian-Lipschitz constant rho_phi"),
        "lem:grad-err-aid": _lem("B.1", "error of the AID hypergradient with warm start"),
        "eq:aid-error": _eq("B.18", "AID error as geometric factors in D and N times Gamma_1"),
        "def-gamma1-AID": _eq("B.19", "definition of Gamma_1"),
        "def-hatDelta-AID": _eq("B.20", "initial distance Delta-hat of y and v"),
        "unlabelled:v-hat": _claim("linear solve v-hat at the inexact y, Lemma B.1"),
        "eq:cgrate": _eq("B.21", "linear rate of conjugate gradients on v"),
        "eq:gdrate": _eq("B.22", "linear rate of lower-level gradient descent"),
        "unlabelled:v-star": _claim("linear solve v* at the exact y*, proof of Lemma B.1"),
        "unlabelled:hypergradient-v-star": _formula("hypergradient by v*, proof of Lemma B.1"),
        "eq:erroraid": _eq("B.23", "AID error split by the triangle inequality"),
        "eq:erroraid_new": _eq("B.24", "AID error by the errors of y and v"),
        "unlabelled:v-star-bound": _claim("norm of v* at most M/mu, proof of Lemma B.1"),
        "eq:v-bound": _eq("B.25", "error of v by the error of y and the CG rate"),
        "eq:aid-error1": _eq("B.26", "AID error by the two warm-start distances"),
        "eq:warmstart-y": _eq("B.27", "warm-start distance of y, one outer step"),
        "eq:vkstar-diff": _eq("B.28", "drift of v* between outer iterates"),
        "eq:warmstart-v": _eq("B.29", "warm-start distance of v, one outer step"),
        "eq:warmstart": _eq("B.30", "joint warm-start distance, one outer step"),
        "unlabelled:warm-start-D-N": _eq("B.31", "D and N that halve the warm-start distance"),
        "eq:equvseq": _eq("B.32", "joint warm-start distance stays below Gamma_1"),
        "unlabelled:estimate-norm": _claim("estimate at most M + ell M/mu, proof of Lemma B.1"),
        "eq:aid-error2": _eq("B.33", "AID error, conclusion of the proof"),
        "unlabelled:sum-of-products": _claim("ab + cd <= (a + c)(b + d), proof of Lemma B.1"),
        # Appendix B.2-B.4: descent, escape, and the theorem for AID
        "unlabelled:section-proof-descent": _sec("B.2", "proof of the inexact descent lemma"),
        "unlabelled:descent-chain": _formula("chain by smoothness and Young, proof of Lemma 2.8"),
        "unlabelled:section-proof-escape": _sec("B.3", "proof that a perturbation escapes"),
        "unlabelled:coupled-sequences": _formula("two coupled descents, proof of Lemma 2.9"),
        "unlabelled:coupling-i": _claim("coupling (i): start in the ball, proof of Lemma 2.9"),
        "unlabelled:coupling-ii": _claim("coupling (ii): gap along e_1, proof of Lemma 2.9"),
        "uspace-def": _eq("B.34", "definition of the localisation radius S"),
        "eq:phi-dec": _eq("B.35", "one of two coupled sequences decreases by F"),
        "eq:contrary": _eq("B.36", "contrary hypothesis: neither sequence decreases by F"),
        "eq64": _eq("B.37", "distance travelled by the decrease of Phi"),
        "eq:localize": _eq("B.38", "both sequences stay within S of the saddle"),
        "unlabelled:difference-recursion": _eq("B.39", "coupled difference as p minus q"),
        "unlabelled:delta-definitions": _formula("H, Delta_1 and Delta_2, proof of Lemma 2.9"),
        "eq:qprelation": _eq("B.40", "q stays below half of p"),
        "xhat_t": _eq("B.41", "growth of the coupled difference"),
        "eq:qkinc1": _eq("B.42", "induction step for the norm of q"),
        "unlabelled:error-against-gap": _claim("error against the gap r_0, proof of Lemma 2.9"),
        "unlabelled:one-half": _claim("2 eta rho_phi S T = 1/2, proof of Lemma 2.9"),
        "unlabelled:escape-contradiction": _formula("difference leaves S, proof of Lemma 2.9"),
        "unlabelled:power-of-two": _claim("(1 + x)^(1/x) >= 2 on (0, 1], proof of Lemma 2.9"),
        "unlabelled:stuck-region": _formula("points that fail to escape, proof of Lemma 2.9"),
        "unlabelled:stuck-width": _claim("stuck region is thin along e_1, proof of Lemma 2.9"),
        "unlabelled:stuck-probability": _formula("chance of the stuck region, proof of Lemma 2.9"),
        "unlabelled:escape-decrease": _formula("decrease from the saddle, proof of Lemma 2.9"),
        "sec:B.4": _sec("B.4", "proof of the theorem on perturbed AID"),
        "eq:aid-bound": _eq("B.43", "requirement on D and N for the escape accuracy"),
        "eq:aid-ND": _eq("B.44", "explicit D and N for perturbed AID"),
        "AID-bound-nablaphi-nablahatphi": _eq("B.45", "AID error at most eps/5"),
        "unlabelled:case-1-decrease": _formula("large-gradient decrease, proof of Theorem 2.5"),
        "thm3.5-bound1": _eq("B.46", "number of iterations with a large gradient"),
        "unlabelled:case-2-decrease": _formula("decrease F/2 at a saddle, proof of Theorem 2.5"),
        "thm3.5-bound2": _eq("B.47", "number of iterations spent near saddles"),
        "unlabelled:aid-total": _formula("total iteration number K, proof of Theorem 2.5"),
        # Appendix C: minimax proofs
        "sec:C": _sec("C", "proofs for minimax problems"),
        "unlabelled:section-proof-nash": _sec("C.1", "proof on local Nash equilibria"),
        "unlabelled:danskin": _claim("gradient of Phi by Danskin, proof of Proposition 3.2"),
        "phi": _eq("C.1", "Hessian of Phi for minimax, through the Jacobian of y*"),
        "y-opt-condition": _eq("C.2", "max-player optimality differentiated in x"),
        "phi-2": _eq("C.3", "Hessian of Phi for minimax as a Schur complement"),
        "unlabelled:section-proof-equivalence": _sec("C.2", "proof on strict local minimax points"),
        "proof-prop-2.4-eq1": _eq("C.4", "second-order conditions of a strict minimum of Phi"),
        "unlabelled:schur-positive": _eq("C.5", "Schur complement positive at a minimum"),
        "unlabelled:section-proof-gdmax": _sec("C.3", "proof of the theorem on perturbed GDmax"),
        "lemC.1": _lem("C.1", "smoothness and Hessian constants of Phi for minimax"),
        "unlabelled:minimax-L-phi": _claim("L_phi = ell (1 + kappa), Lemma C.1"),
        "unlabelled:minimax-rho-phi": _claim("rho_phi = rho (1 + kappa)^3, Lemma C.1"),
        "lem:grad-err-mini": _lem("C.2", "error of the GDmax hypergradient with warm start"),
        "eq:gdmax-error": _eq("C.6", "GDmax error, geometric in D"),
        "eq:gdmax-error-bound-1": _eq("C.7", "GDmax error by the warm-start distance"),
        "eq:gdmax-error-bound": _eq("C.8", "GDmax warm-start distance, one outer step"),
        "eq:gdmax-error-D": _eq("C.9", "D that halves the GDmax warm-start distance"),
        "eq:gdmax-error-bound2": _eq("C.10", "GDmax warm-start distance stays bounded"),
        "eq:gdmax-error-bound-3": _eq("C.11", "GDmax error, conclusion of the proof"),
        "eq:gdmax-bound": _eq("C.12", "requirement on D for perturbed GDmax"),
        "eq:gdmax-D": _eq("C.13", "explicit D for perturbed GDmax"),
        # Appendix D.1: iNEON
        "unlabelled:section-proofs-stochastic": _sec("D", "proofs for iNEON and stocBiO"),
        "unlabelled:section-proof-neon": _sec("D.1", "proof of the iNEON lemma"),
        "eq:hatphi": _eq("D.1", "Phi less its linear part at x"),
        "eq:est-error-neon": _eq("D.2", "accuracies that iNEON needs at every iterate"),
        "eq:est-error-neon-2": _eq("D.3", "accuracies that iNEON needs at the saddle"),
        "eq:aid-ND-neon": _eq("D.4", "explicit D and N for iNEON"),
        "eq:phi-smooth-neon": _eq("D.5", "one-step decrease of the iNEON objective"),
        "unlabelled:neon-coupling-i": _claim("coupling (i): start in the ball, proof of Lemma 4.1"),
        "unlabelled:neon-coupling-ii": _claim("coupling (ii): gap along e_1, proof of Lemma 4.1"),
        "eq:phi-dec-noen2": _eq("D.6", "one of two coupled iNEON sequences decreases by F"),
        "eq:noen-contrary": _eq("D.7", "contrary hypothesis for the two iNEON sequences"),
        "eq92": _eq("D.8", "distance travelled by iNEON"),
        "eq:localize-neon": _eq("D.9", "both iNEON sequences stay within S"),
        "unlabelled:neon-difference": _eq("D.10", "difference of iNEON sequences as p minus q"),
        "unlabelled:neon-hessian": _eq("D.11", "Hessian H at the saddle in the iNEON proof"),
        "unlabelled:neon-delta-1": _eq("D.12", "Hessian variation Delta_1 in the iNEON proof"),
        "unlabelled:neon-delta-2": _eq("D.13", "gradient error Delta_2 in the iNEON proof"),
        "unlabelled:neon-growth": _eq("D.14", "growth of the difference of iNEON sequences"),
        "eq:qkinc-neon": _eq("D.15", "induction step for q in the iNEON proof"),
        "unlabelled:neon-contradiction": _formula("difference leaves S, proof of Lemma 4.1"),
        "unlabelled:neon-stuck-region": _formula("stuck region of iNEON, proof of Lemma 4.1"),
        "unlabelled:neon-probability": _formula("chance of the stuck region, proof of Lemma 4.1"),
        "unlabelled:neon-decrease": _formula("decrease by F off the region, proof of Lemma 4.1"),
        "k'-satisfy": _eq("D.16", "first iteration k' with decrease F"),
        "bound-uk'": _eq("D.17", "norm of u at k', at most 9^(1/3) S"),
        "phixf-ineq": _eq("D.18", "exact decrease at k', factor 1/320000 - 1/25"),
        "eq:u-bound": _eq("D.19", "error of the stopping quantity, factor 1/250"),
        "unlabelled:neon-stopping": _eq("D.20", "stopping test holds at k', -11519/12800 F"),
        "eq105": _eq("D.21", "exact decrease once the stopping test holds"),
        "unlabelled:neon-quadratic-form": _eq("D.22", "quadratic form at u, at most -F/5"),
        "unlabelled:neon-rayleigh": _eq("D.23", "Rayleigh quotient 32/1125, hence 1/40"),
        # Appendix D.2: batch errors and the descent of stocBiO
        "unlabelled:section-proof-stochastic": _sec("D.2", "lemmas for stocBiO with iNEON"),
        "lem:err-hess": _lem("D.1", "concentration of the batch Hessian"),
        "unlabelled:batch-hessian": _eq("D.24", "batch Hessian within eps"),
        "lem:err-grad": _lem("D.2", "concentration of the batch gradient"),
        "unlabelled:batch-gradient": _eq("D.25", "batch gradient within eps"),
        "lem:err-third": _lem("D.3", "concentration of the batch third derivative"),
        "unlabelled:batch-third": _eq("D.26", "batch third derivative within eps"),
        "lem:batch-hess-err": _lem("D.4", "batch sizes for the Hessian of Phi"),
        "hess-err": _eq("D.27", "error of the batch Hessian of Phi"),
        "unlabelled:stochastic-split": _eq("D.28", "batch Hessian error split into (I)-(IV)"),
        "eq:term1-stoc": _eq("D.29", "batch term (I): Hessian of f in x"),
        "eq:term2-stoc": _eq("D.30", "batch term (II) by the error of the Jacobian of y*"),
        "eq:pydiff-stoc": _eq("D.31", "batch error of the Jacobian of y*"),
        "unlabelled:stochastic-term-II": _eq("D.32", "batch term (II) by derivative errors"),
        "eq:term3-stoc": _eq("D.33", "batch term (III) by the second derivative of y*"),
        "eq:y-hess-dif-stoc": _eq("D.34", "batch error of the second derivative of y*, split"),
        "unlabelled:stochastic-third-product": _eq("D.35", "batch Jacobian times mixed third of g"),
        "term-pgp2": _eq("D.36", "batch third derivative of g between two Jacobians"),
        "eq:y-hess-dif-stoc-final": _eq("D.37", "batch error of the second derivative of y*"),
        "unlabelled:stochastic-term-III": _eq("D.38", "batch term (III) by derivative errors"),
        "unlabelled:stochastic-term-IV": _eq("D.39", "batch term (IV) by derivative errors"),
        "eq:hessphi-err": _eq("D.40", "batch Hessian error of Phi by derivative errors"),
        "eq126": _eq("D.41", "strong convexity of g and of its batch version"),
        "eq127": _eq("D.42", "the two strong convexity inequalities summed"),
        "eq:y-diff-bound-stoc-sc": _eq("D.43", "error of the batch solution y*"),
        "unlabelled:eleven-terms": _eq("D.44", "eleven derivative errors to concentrate"),
        "unlabelled:largest-term": _eq("D.45", "term with the largest coefficient, O(kappa^5)"),
        "lem:batch-grad-err": _lem("D.5", "batch sizes for the gradient of Phi"),
        "grad-err": _eq("D.46", "batch gradient of Phi within eps/10"),
        "unlabelled:stochastic-gradient-split": _eq("D.47", "batch hypergradient by derivatives"),
        "unlabelled:six-terms": _eq("D.48", "six derivative errors to concentrate"),
        "unlabelled:batch-sizes": _formula("batch sizes D_f and D_g, proof of Lemma D.5"),
        "lem:saddle-decrease": _lem("D.6", "decrease by a random-sign iNEON step"),
        "unlabelled:saddle-decrease": _eq("D.49", "expected decrease by an iNEON step"),
        "unlabelled:direction-curvature": _eq("D.50", "iNEON direction is negative for Phi itself"),
        "unlabelled:saddle-decrease-proof": _eq("D.51", "expected decrease, end of the proof"),
        "lem:stocbio-decrease": _lem("D.7", "expected descent of a stocBiO step"),
        "unlabelled:stocbio-parameters": _formula("parameters set in Lemma D.7"),
        "eq:f-dec2": _eq("D.52", "expected decrease of Phi by a stocBiO step"),
        "le:first_m": _lem("D.8", "bias of the stochastic hypergradient"),
        "le:variancc": _lem("D.9", "mean square error of the stochastic hypergradient"),
        "unlabelled:stocbio-smoothness": _formula("smoothness step, proof of Lemma D.7"),
        "eq:expect-phi": _eq("D.53", "expected descent by bias and mean square error"),
        "eq:initss": _eq("D.54", "lower-level SGD step, squared distance expanded"),
        "eq:traerr": _eq("D.55", "lower-level SGD step in conditional expectation"),
        "eq:eyk": _eq("D.56", "contraction of lower-level SGD at alpha = 2/(ell + mu)"),
        "eq:yjtt": _eq("D.57", "lower-level error after D steps of SGD"),
        "unlabelled:stocbio-D": _claim("D that makes the factor at most 1/4, proof of Lemma D.7"),
        "eq:y-opt-error": _eq("D.58", "stochastic warm-start distance stays bounded"),
        "unlabelled:stocbio-combined": _eq("D.59", "expected descent with all errors explicit"),
        "unlabelled:stocbio-orders": _eq("D.60", "orders of S, D_f, D_g, B, Q and D"),
        "unlabelled:stocbio-budget": _eq("D.61", "error terms at most eps^2/(400 L_phi)"),
        "eq:f-dec2-new": _eq("D.62", "expected descent, conclusion of the proof"),
        # Appendix D.3: the stochastic theorem and its corollary
        "unlabelled:section-proof-stocneon": _sec("D.3", "proof of the stochastic rates"),
        "unlabelled:stochastic-case-1": _formula("large-gradient decrease, proof of Theorem 4.5"),
        "thm45-bound1": _eq("D.63", "number of stocBiO iterations with a large gradient"),
        "thm45-bound-case2-b1": _eq("D.64", "a small gradient passes the test that calls iNEON"),
        "thm45-bound-case2-b2": _eq("D.65", "passing the test means gradient at most eps"),
        "unlabelled:stochastic-case-2": _formula("decrease by iNEON step, proof of Theorem 4.5"),
        "thm45-bound2": _eq("D.66", "number of iterations spent in iNEON"),
        "unlabelled:stochastic-total": _formula("total iteration number K, proof of Theorem 4.5"),
        "eq:stocneon-batch1": _eq("D.67", "batch sizes for gradient and Hessian accuracy"),
        "eq:stocneon-batch2": _eq("D.68", "batch sizes and depths for stocBiO descent"),
        "eq:ineon-sample-com": _eq("D.69", "oracle counts of the iNEON calls"),
        "eq:stoc-sample-com": _eq("D.70", "oracle counts of the stocBiO iterations"),
    }
)
"""Every statement that can be cited, by its label: ``STATEMENTS["lem:descent"].title``."""
