"""The words of the page on coverage: how to read it, and where the verification ends."""

from __future__ import annotations

__all__ = ["ENDS", "INTRODUCTION"]

INTRODUCTION = """\
# What is verified, and where it ends

Every statement of the paper on escaping saddle points in bilevel optimization, what computes it, and what that says.
This page is written by `bilevel-sym verify --coverage --format markdown`; all of it is computed again when it is
written, and by a test. A statement is linked to *claims* (judged on problems, `bilevel-sym verify`), *findings*
(recomputed and found right), *errata* (recomputed and found wrong as printed, [ERRATA.md](../ERRATA.md)), or
*definitions* (code that cites the label). What is linked to nothing is called open by the code; a link to something
that does not exist is an error.

The verdict on a row is that on the statement as printed, and follows from its links: the worst of its errata, or
*holds* where there are none and findings and claims stand, or *definition*. The words for errata are explained in
[ERRATA.md](../ERRATA.md). The evidence is that of the verdict: of the erratum, or the weakest among the findings and
claims that the row rests on, part by part (a link after "also" stands beside them). *As corrected* is what the
corrected statement rests on, again the weakest; *witness* means that the correction was computed on the erratum's
witness alone.

## Rows by verdict and by kind of evidence

Made by `bilevel-sym verify --coverage`, in half a minute.
"""

ENDS = """\
## Where the verification ends

- **Proved.** Identities between derivatives, for undefined f and g (symbols for every entry); inequalities between
  norms, as polynomials with positive coefficients; numbers of the proofs, in exact rationals; witnesses of errata.
  These hold for every problem. What a proof of the paper takes from elsewhere is taken too: the implicit function
  theorem, Danskin's theorem, the matrix Bernstein and Pinelis inequalities, the rate of conjugate gradients (sampled,
  not proved).
- **Certified.** Suprema and infima over the box of a given problem, stationary points with the emptiness of the rest,
  digits at a point: enclosures with outward rounding, elementary functions from Arb. They hold for that problem and
  that box, and rest on IEEE 754 arithmetic, on python-flint and on this code; nothing is certified on all of R^d.
- **Statistical.** How often an algorithm arrives: runs with fixed seeds, exact (Clopper-Pearson) bounds, confidence
  stated. They speak of the problem, the start and the parameters that were run, and of no smaller probability than
  the number of runs allows.
- **Sampled.** Float64 at points or along runs. It can refute; where it does not, it only supports.
- **By definition.** Names and formulas that are computed as they are printed; there is nothing to be right about.
- **Assumed, not verified.** That a claim which holds on the problems that were tried holds on all: a theorem about
  all problems is proved here only where its row says so. The theorems' own K (5e9 iterations and more) is never run
  to its end. What O() hides is compared in orders. Lemma D.3 as printed has no proof, here or in the paper. Remarks
  that compare with other papers are open, because those papers are not here.
"""
