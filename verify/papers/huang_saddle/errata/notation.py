"""Misprints that only concern notation: a list to read, with nothing to compute."""

from __future__ import annotations

from dataclasses import dataclass

from bilevel_sym import paper

__all__ = ["NOTATIONAL", "Misprint"]


@dataclass(frozen=True)
class Misprint:
    """A slip of notation: where it stands, and what is meant.

    >>> Misprint("lem:descent", "L_Phi is L_phi").where
    'Lemma 2.8 [lem:descent]'
    """

    label: str
    text: str

    @property
    def where(self) -> str:
        """The reference to the place."""
        return paper.cite(self.label)


NOTATIONAL = (
    Misprint("sec:bilevel", '"a saddle point of grad Phi" is one of Phi'),
    Misprint("unlabelled:sketch-iteration-bound", "Phi* is the infimum Phi^*"),
    Misprint("eq:para_minimax", "T, D, N and the batch sizes are real numbers that serve as counts: round up"),
    Misprint("unlabelled:section-ineon", '"negative gradient descent direction" is one of negative curvature'),
    Misprint(
        "alg:iNEON",
        "the loop k = 0, ..., T runs T + 1 times",
    ),
    Misprint("iota-condition-2", "the inequality is strict here and in the proof, and not in (3.3)"),
    Misprint("unlabelled:section-stocbio", '"step 12 of Algorithm 3" is its step 13'),
    Misprint("thm:stocneon", "|B_{Q+1-j}| = B Q (1 - eta mu)^(j-1) need be neither an integer nor at least 1"),
    Misprint("unlabelled:corollary-stochastic-gradients", "O hides a logarithm here: O~ is meant"),
    Misprint("grad-Lipschitz", "x and x' lie in R^d, not in R^n"),
    Misprint("lemma3.4-long", "the label stands on a row without a number"),
    Misprint("eq:y-hess-diff", "one term has a third notation for g_xyy; in the text below, d/dx is d/dx'"),
    Misprint(
        "unlabelled:jacobian-third-product",
        "both terms are taken at x, so that the left side is 0; the second is at x'",
    ),
    Misprint(
        "unlabelled:warm-start-D-N",
        "D and N are asked for here and in (B.44); if eps <= M + kappa M, the second implies the first",
    ),
    Misprint("unlabelled:descent-chain", "L_Phi is L_phi"),
    Misprint("eq:qkinc1", 'rho_Phi is rho_phi; "becase" stands before it'),
    Misprint("unlabelled:section-proof-equivalence", '"strongly convexity" is strong concavity'),
    Misprint("eq:gdmax-error-bound2", "the sum over j has |grad-hat Phi(x_{k-1})| for |grad-hat Phi(x_j)|"),
    Misprint("eq:hatphi", "Phi-hat is the inexact value in Section 1.2, and Phi less its linear part here"),
    Misprint("eq:est-error-neon", "steps 9, 6 and 12 of Algorithm 2 are its steps 10, 7 and 13"),
    Misprint(
        "eq:est-error-neon-2",
        "u_k = 0 does not occur among the u_k, so this is a requirement of its own; the D and N of "
        "(D.4) meet it if Delta-hat is measured at x~ too",
    ),
    Misprint(
        "eq92",
        "the sum must cover the error at x~ as well, which enters every step; the next line counts it so. "
        "eta r belongs to the next display, where it is added again",
    ),
    Misprint("unlabelled:section-proof-neon", "step 13 of Algorithm 2 is 14, and step 14 is 15"),
    Misprint("unlabelled:neon-growth", "x~_0 is x~"),
    Misprint("unlabelled:neon-contradiction", "an open bracket"),
    Misprint(
        "unlabelled:neon-probability",
        "T and F differ from those of Lemma 2.9 by the factors 1/4 and 4, under the same letters",
    ),
    Misprint("bound-uk'", "the smoothness is that of Lemma A.2, not of Lemma C.1"),
    Misprint("eq:u-bound", "x is x~ in five displays from here on"),
    Misprint("unlabelled:neon-quadratic-form", "u' Phi'' u lacks its transpose"),
    Misprint("lem:err-hess", "1/n is 1/D_f (in Lemma D.3 1/D_g); L is ell"),
    Misprint("lem:err-grad", "the gradient sign before F is missing"),
    Misprint("eq:term2-stoc", "dy*(x')/dx' is dy_D*(x)/dx"),
    Misprint("unlabelled:largest-term", "Lemma D.1 (Hessians) is cited for a gradient: Lemma D.2"),
    Misprint("unlabelled:stochastic-gradient-split", "dy*/x is dy*/dx"),
    Misprint("le:first_m", "L is ell; in (D.53) too, as L^2"),
    Misprint("eq:ineon-sample-com", '"HVc" is HV, here and in (D.70)'),
)
