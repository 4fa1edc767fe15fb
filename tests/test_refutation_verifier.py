"""The verifier can say no: false claims and broken kernels are planted, and each must be refuted or left open.

Every plant is a wrong constant, exponent, sign or count somewhere in the library. The same claim holds without it.
"""

from __future__ import annotations

import dataclasses
import json
import sys
from collections.abc import Callable, Iterator
from copy import copy
from dataclasses import dataclass, replace
from inspect import getattr_static
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verify
from bilevel_sym import (
    AID,
    BilevelProblem,
    Constants,
    Exact,
    MinimaxConstants,
    MinimaxProblem,
    StochasticProblem,
    zoo,
)
from bilevel_sym.arithmetic.arrays import ArraySession
from bilevel_sym.errors import CertificateFailure
from bilevel_sym.estimators import hypergradient, linear_system
from bilevel_sym.estimators.oracle import SYSTEM
from bilevel_sym.graph import autodiff
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.implicit import second_order as implicit
from bilevel_sym.implicit.model import Model
from bilevel_sym.kernels import Kernels
from bilevel_sym.solvers import Perturbed, StocBiO, ineon
from bilevel_sym.solvers.compiled import run as compiled
from bilevel_sym.theories import Variant
from bilevel_sym.theories.huang_saddle.schedules import aid, escape, inner, stochastic
from bilevel_sym.theories.huang_saddle.schedules.batches import concentration, gradient_terms, hessian_terms
from verify.papers.huang_saddle import claims as statements
from verify.papers.huang_saddle.claims import escape as escape_claims
from verify.papers.huang_saddle.claims import neon, tube
from verify.papers.huang_saddle.measures import derivative_checks, minimax_points, runs, visiting
from verify.papers.huang_saddle.measures.stochastic import samples, stocbio_bounds
from verify.points import balls
from verify.regularity import certified as regularity
from verify.statistics import runs_needed
from verify.verdict import Bracket, CheckResult, Verdict

Patch = pytest.MonkeyPatch
Plant = Callable[[Patch], None]
RATE_V, VARIANCE = runs.rate_v, vars(samples.Samples)["variance_formula"].func


def only_kappa(c: Any) -> Any:
    return c.kappa


# ---- problems on which the bounds are tight --------------------------------------------------------------------------


def witness() -> BilevelProblem:
    """|Hess Phi| is 80 of L_phi = 84; d2y_dx2 and the change of Hess Phi are near their bounds too."""
    return zoo.get("lphi_witness").problem


def line() -> BilevelProblem:
    """|grad Phi| = M + kappa M."""
    return BilevelProblem("x + y", "y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-2, 2)})


def steep() -> BilevelProblem:
    """|dy_dx| = ell/mu = 2."""
    return BilevelProblem("x*y/9 + y", "y**2/2 - 2*x*y", "x", "y", box={"x": (-1, 1), "y": (-3, 3)})


def easy() -> BilevelProblem:
    """kappa is nearly 1: a step of descent or of CG that is left out cannot hide."""
    return BilevelProblem("x*y", "y**2/2 + sin(y)/1000 - x*y", "x", "y", box={"x": (-1, 1), "y": (-3, 3)})


def easy_minimax() -> BilevelProblem:
    """The same for GDmax."""
    return MinimaxProblem("x*y - y**2/2 - sin(y)/1000", "x", "y", box={"x": (-1, 1), "y": (-3, 3)})


def bowl() -> BilevelProblem:
    """Phi = x^2/2, beside a lower level that does not matter: a step above 3/2 breaks the descent lemma."""
    return BilevelProblem("x**2/2 + y/1000", "y**2/2 - x*y/1000", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})


def skew() -> BilevelProblem:
    """d = n = 2 and g_xy is not symmetric."""
    box = {"x1": (-1, 1), "x2": (-1, 1), "y1": (-4, 4), "y2": (-4, 4)}
    lower = "y1**2 + 3*y2**2/2 - (x1 + x2)*y1 - x2*y2/3"
    return BilevelProblem("x1*y1 + cos(y2)", lower, "x1 x2", "y1 y2", box=box)


def curved() -> BilevelProblem:
    """d = n = 1, all third derivatives of g are alive, and cos is differentiated."""
    box = {"x": (-1, 1), "y": (-1, 1)}
    return BilevelProblem("cos(x)*y + x*y**2", "y**2 + y**3*x/9 + x**2*y**2/7 - sin(x)*y", "x", "y", box=box)


def twisted() -> BilevelProblem:
    """A minimax problem with d = n = 2, f_xy not symmetric, and a saddle point of Phi at 0."""
    box = dict.fromkeys(("x1", "x2", "y1", "y2"), (-1, 1))
    f = "x1**2/2 - x2**2 + x1*y2/2 + x2*y2/3 + x1*y1/5 - y1**2/2 - y2**2"
    return MinimaxProblem(f, "x1 x2", "y1 y2", box=box)


def ridge_of_phi() -> BilevelProblem:
    """A minimax problem in which Hess Phi changes by rho (1 + kappa)^3, nearly: y* = x, so that Phi'' is that of 2x."""
    return MinimaxProblem("sin(20*(x + y))/8000 + x*y - y**2/2", "x", "y", box={"x": (-1, 1), "y": (-2, 2)})


def saddle() -> BilevelProblem:
    return zoo.get("saddle", d=2).problem


def scalar() -> BilevelProblem:
    return zoo.get("scalar").problem


def noisy() -> BilevelProblem:
    """One variable on each level; rows of G differ in g_y, in g_xy and in g_yy."""
    data = [[-1], [0], [1]]
    return StochasticProblem(
        "x*y + xi*y/2", "y**2*(1 + zeta/8)/2 - x*y*(1 + zeta/9) + zeta*y/2", "x", "y", "xi", "zeta", data, data,
        box={"x": (-1, 1), "y": (-3, 3)},
    )  # fmt: skip


def stochastic_noise() -> BilevelProblem:
    return zoo.get("stochastic_noise").problem


def scalar_minimax() -> BilevelProblem:
    """Phi'' = 6 with ell = 4 and mu = 2."""
    return zoo.get("minimax_not_nash").problem


def the_tube() -> BilevelProblem:
    return zoo.get("tube", d=5).problem


# ---- how to plant ----------------------------------------------------------------------------------------------------


def modules() -> Iterator[Any]:
    names = [name for name in sys.modules if name.split(".")[0] in ("verify", "bilevel_sym")]
    return (sys.modules[name] for name in names)


def forget() -> None:
    """Empty every cache, so that neither a defect nor its absence is remembered."""
    for module in modules():
        for value in list(vars(module).values()):
            if hasattr(value, "cache_clear"):
                value.cache_clear()


def everywhere(patch: Patch, old: Any, new: Any) -> None:
    """Put ``new`` wherever ``old`` was imported to."""
    for module in modules():
        for name, value in list(vars(module).items()):
            if value is old:
                patch.setattr(module, name, new)


def result_of(function: Callable[..., Any], change: Callable[[Any], Any]) -> Plant:
    """A function whose result is changed."""

    def changed(*args: Any, **kwargs: Any) -> Any:
        return change(function(*args, **kwargs))

    return lambda patch: everywhere(patch, function, changed)


def method(owner: type, name: str, new: Callable[[Any], Callable[..., Any]]) -> Plant:
    """A method that is made from the old one."""
    return lambda patch: patch.setattr(owner, name, new(getattr_static(owner, name)))


def times(owner: type, name: str, factor: float) -> Plant:
    """A method whose result is multiplied."""
    return method(owner, name, lambda old: lambda self, **options: factor * old(self, **options))


def fields(function: Callable[..., Any], **changes: Callable[[Any], Any]) -> Plant:
    """A function that returns a dataclass, some fields of which are changed."""
    return result_of(
        function, lambda r: dataclasses.replace(r, **{name: new(getattr(r, name)) for name, new in changes.items()})
    )


def number(owner: Any, name: str, value: Any) -> Plant:
    return lambda patch: patch.setattr(owner, name, value)


def shrunk(constant: str, factor: float) -> Plant:
    """Constants that were seen at a few points only, and are passed off as certified."""

    def change(found: Any) -> Any:
        proofs = [_less(proof, factor) if proof.constant == constant else proof for proof in found.proofs]
        return dataclasses.replace(found, proofs=tuple(proofs))

    return result_of(regularity.constants, change)


def _less(proof: Any, factor: float) -> Any:
    return dataclasses.replace(proof, bracket=Bracket(factor * proof.bracket.lower, factor * proof.bracket.upper))


def flatter(name: str, factor: float) -> Plant:
    """A bracket of the smoothness of Phi that is too low."""

    def change(found: Any) -> Any:
        bracket = getattr(found, name)
        return dataclasses.replace(found, **{name: Bracket(factor * bracket.lower, factor * bracket.upper)})

    return result_of(verify.smoothness, change)


def block(changed: str, by: Callable[[Any], Any]) -> Plant:
    """A block of derivatives that the kernels change on its way out."""
    return method(
        ArraySession, "take", lambda old: lambda self, name: by(old(self, name)) if name == changed else old(self, name)
    )


def other_block(name: str, other: str) -> Plant:
    """One block of derivatives in the place of another."""
    return method(Model, "block", lambda old: lambda self, asked: old(self, other if asked == name else asked))


def estimate(change: Callable[[Any, Any], Any]) -> Plant:
    """The estimate of AID, changed; ``change`` is given what it started from."""
    changed = method(
        AID,
        "_chunk",
        lambda old: lambda self, oracle, x, y, v, lanes: change(old(self, oracle, x, y, v, lanes), (x, y, v)),
    )
    return together(number(compiled.CompiledRun, "of", lambda algorithm, kernels: "a planted change"), changed)


def together(*plants: Plant) -> Plant:
    def plant(patch: Patch) -> None:
        for one in plants:
            one(patch)

    return plant


def fewer(name: str) -> Plant:
    """Descent (D) or CG (N) with a step too few, in NumPy and in the compiled loop."""
    function: Any = {"D": hypergradient._descended, "N": linear_system.conjugate_gradients}[name]
    place = {"D": 4, "N": 3}[name]
    loop = compiled._loop

    def short(*args: Any) -> Any:
        return function(*args[:place], args[place] - 1, *args[place + 1 :])

    def plant(patch: Patch) -> None:
        everywhere(patch, function, short)
        patch.setattr(compiled, "_loop", lambda problem, e: loop(problem, _short(e, name)))

    return plant


def _short(estimator: Any, name: str) -> Any:
    shorter = copy(estimator)
    object.__setattr__(shorter, name, getattr(estimator, name) - 1)  # zero steps, which no estimator would accept
    return shorter


def wrong_cosine(patch: Patch) -> None:
    cosine = replace(OPERATIONS["cos"], derivative=lambda graph, z, itself: graph.apply("sin", z))
    patch.setattr(autodiff, "OPERATIONS", {**OPERATIONS, "cos": cosine})


def plus_implicit_part(patch: Patch) -> None:
    """grad Phi with f_x + g_xy v."""
    old = implicit.gradient

    def gradient(session: Any, xy: Any, **options: Any) -> Any:
        phi, grad = old(session, xy, **options)
        return phi, 2 * session.take("f_x") - grad

    patch.setattr(implicit, "gradient", gradient)


def ascent(patch: Patch) -> None:
    """StocBiO goes up."""
    old = StocBiO.__post_init__

    def post_init(self: StocBiO) -> None:
        old(self)
        object.__setattr__(self, "beta", -self.beta)

    patch.setattr(StocBiO, "__post_init__", post_init)


def flipped(patch: Patch) -> None:
    """Signs of eigenvalues, flipped."""
    patch.setattr(minimax_points, "eigenvalue_balls", lambda m: [-e for e in balls.eigenvalue_balls(m)][::-1])


def changed_blocks(**changes: Callable[[Any], Any]) -> Plant:
    """Blocks of a minimax problem at a point, changed."""
    old = minimax_points._blocks

    def blocks(problem: Any, point: Any) -> Any:
        found = old(problem, point)
        return None if found is None else found | {name: change(found[name]) for name, change in changes.items()}

    return number(minimax_points, "_blocks", blocks)


def flipped_coupling(patch: Patch) -> None:
    """f_xx + f_xy f_yy^-1 f_yx in place of Hess Phi."""
    old = minimax_points._blocks

    def blocks(problem: Any, point: Any) -> Any:
        found = old(problem, point)
        return None if found is None else found | {"hess": 2 * found["f_xx"] - found["hess"]}

    patch.setattr(minimax_points, "_blocks", blocks)


def weaker(terms: Any, factor: float) -> Any:
    return tuple(dataclasses.replace(term, coefficient=term.coefficient * factor) for term in terms)


def never_perturbed(patch: Patch) -> None:
    """Algorithm 1 that takes no gradient for small."""
    patch.setattr(tube, "Perturbed", lambda *args, **options: Perturbed(*args, **options | {"eps": 1e-300}))


def several_rows(patch: Patch) -> None:
    """Constants of the rows with a mu that is too large."""
    old = samples.Samples.constants

    def constants(self: Any, *args: Any, **options: Any) -> Constants:
        found = old(self, *args, **options)
        return dataclasses.replace(found, mu=1.5 * found.mu, ell=1.5 * found.ell)

    patch.setattr(samples.Samples, "constants", constants)


def turned(patch: Patch) -> None:
    """iNEON's direction, turned by a right angle."""
    old = ineon.INeon.search

    def search(*args: Any) -> Any:
        found = old(*args)
        return found._replace(u=np.stack([-found.u[1], found.u[0]]))

    patch.setattr(ineon.INeon, "search", search)


# ---- the table -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Case:
    """A plant, and the claim that it makes false."""

    name: str
    problem: Callable[[], BilevelProblem]
    label: str
    part: str
    plant: Plant
    variant: Variant = "corrected"
    says: str = "VIOLATED"


IDENTITIES = [
    Case("cos' = sin", curved, "phi-grad", "", wrong_cosine),
    Case("g_xyy for g_yyy", curved, "eq:opt-deri2", "", other_block("g_yyy", "g_xyy")),
    Case("f_xx for f_yy", curved, "phi-hessian", "", other_block("f_yy", "f_xx")),
    Case("g_yy for g_xy", curved, "eq:opt-deri1", "", other_block("g_xy", "g_yy")),
    Case("f_xx for f_yy, minimax", twisted, "phi-2", "", other_block("f_yy", "f_xx")),
]
DERIVATIVES = [
    Case("L_phi less a tenth", witness, "grad-Lipschitz", "", times(Constants, "L_phi", 0.9)),
    Case("rho_phi halved", witness, "hess-Lipschitz", "", times(Constants, "rho_phi", 0.5)),
    Case("kappa too small", steep, "unlabelled:y-star-lipschitz", "",
         number(Constants, "kappa", property(lambda c: (c.ell + c.mu) / (2 * c.mu)))),
    Case("kappa M for M + kappa M", line, "pro:bounds", "hypergradient",
         number(Constants, "hypergradient_bound", property(lambda c: c.kappa * c.M))),
    Case("kappa for 1 + kappa", witness, "eq:y-grad-diff", "", lambda p: everywhere(p, derivative_checks.u, only_kappa)),
    Case("kappa for 1 + kappa, y''", witness, "eq:y-hess-bound", "",
         lambda p: everywhere(p, derivative_checks.u, only_kappa)),
    Case("sampled mu", curved, "pro:bounds", "inverse Hessian", shrunk("mu", 1.2)),
    Case("sampled M", curved, "pro:bounds", "first order", shrunk("M", 0.8)),
    Case("sampled ell", curved, "pro:bounds", "second order", shrunk("ell", 0.9)),
    Case("sampled rho", curved, "pro:bounds", "third order", shrunk("rho", 0.5)),
    Case("sampled rho, in a formula", witness, "grad-Lipschitz", "", shrunk("rho", 0.8)),
    Case("minimax L_phi = ell", scalar_minimax, "lemC.1", "L_phi", times(MinimaxConstants, "L_phi", 1 / 3)),
    Case("minimax rho_phi = rho", ridge_of_phi, "lemC.1", "rho_phi", times(MinimaxConstants, "rho_phi", 1 / 8)),
]  # fmt: skip
DEFINITIONS = [
    Case("sup|Hess Phi| too small", scalar, "unlabelled:remark-large-L-phi", "", flatter("L_phi", 0.4)),
    Case("Hess Phi tripled", scalar, "unlabelled:remark-large-L-phi", "",
         method(Kernels, "hess_phi", lambda old: lambda self, *args, **options: 3 * old(self, *args, **options))),
    Case("two solutions below", scalar, "intro", "",
         method(Kernels, "y_star", lambda old: lambda self, x, **o: old(self, x, **o) + 1e-6 * np.sum(o.get("y0", 0)))),
    Case("AID asks for g_yyy", scalar, "unlabelled:remark-third-order", "",
         number(hypergradient, "SYSTEM", (*SYSTEM, "g_yyy"))),
    Case("g is not convex", scalar, "assu:bilevel", "(i) mu",
         other_block("g_yy", "f_yy"), says="INCONCLUSIVE"),
]  # fmt: skip
COROLLARIES = [
    Case("a counter that forgets", saddle, "unlabelled:corollary-aid", "HV_g counted",
         number(AID, "cost", property(lambda e: {"G_f": 2, "G_g": e.D, "JV_g": 1, "HV_g": e.N}))),
    Case("D of order kappa^2", scalar, "unlabelled:corollary-aid", "D as shipped",
         result_of(inner.aid_steps, lambda r: (r[0] ** 2, r[1]))),
]  # fmt: skip
THEOREMS = [
    Case("D - 1", scalar, "thm:aid", "error of y", result_of(inner.aid_steps, lambda r: (r[0] - 1, r[1]))),
    Case("N - 1", scalar, "thm:aid", "error of v", result_of(inner.aid_steps, lambda r: (r[0], r[1] - 1))),
    Case("T/4", scalar, "thm:aid", "growth", fields(escape.escape_of, T_escape=lambda T: T // 4)),
    Case("3 T", scalar, "thm:aid", "coupling", fields(escape.escape_of, T_escape=lambda T: 3 * T)),
    Case("iota - 1", scalar, "thm:aid", "iota", result_of(escape.smallest_iota, lambda iota: iota - 1)),
    Case("10^6 r", scalar, "thm:aid", "perturbation", fields(escape.escape_of, r=lambda r: 1e6 * r)),
    Case("K/2", scalar, "thm:aid", "iterations", result_of(aid.descent_iterations, lambda K: K // 2)),
    Case("a step too long", witness, "thm:aid", "step", times(Constants, "L_phi", 0.5)),
    Case("20 runs", saddle, "thm:aid", "visits", number(visiting, "RUNS", 20), says="INCONCLUSIVE"),
    Case("D - 1 for GDmax", scalar_minimax, "thm:minimax", "accuracy", fields(aid.perturbed_gdmax, D=lambda D: D - 1)),
    Case("iNEON's D - 2, N - 1", saddle, "eq:aid-ND-neon", "accuracy",
         result_of(inner.aid_steps, lambda r: (r[0] - 2, r[1] - 1))),
    Case("2 D", saddle, "eq:aid-ND", "D", result_of(inner.aid_steps, lambda r: (2 * r[0], r[1]))),
    Case("S/4", stochastic_noise, "thm:stocneon", "budget", fields(stochastic.stocbio, S=lambda S: S // 4)),
    Case("no 1/iota in the step", noisy, "thm:stocneon", "escape step", fields(stochastic.stocbio, step=lambda s: 99 * s)),
]  # fmt: skip
ESTIMATES = [
    Case("q^(2 N)", saddle, "eq:cgrate", "", lambda p: everywhere(p, RATE_V, lambda k, N, variant: RATE_V(k, 2 * N, variant))),
    Case("CG without its last step", saddle, "eq:cgrate", "", fewer("N")),
    Case("(1 - mu/ell)^(3 D/2)", scalar, "eq:gdrate", "", result_of(runs.rate_y, lambda q: q**3)),
    Case("(1 - mu/ell)^(1.2 D)", scalar, "eq:gdrate", "", result_of(runs.rate_y, lambda q: q**1.2), variant="sharp"),
    Case("descent without its last step", easy, "lem:grad-err-aid", "one iteration", fewer("D")),
    Case("AID without its last CG step", easy, "lem:grad-err-aid", "one iteration", fewer("N")),
    Case("AID with the wrong sign", easy, "lem:grad-err-aid", "one iteration",
         estimate(lambda e, start: e._replace(grad=-e.grad))),
    Case("three quarters of the estimate", easy, "lem:grad-err-aid", "one iteration",
         estimate(lambda e, start: e._replace(grad=0.75 * e.grad))),
    Case("transposed g_xy", skew, "lem:grad-err-aid", "one iteration", block("g_xy", lambda b: b.swapaxes(1, 2))),
    Case("grad Phi with the wrong sign", easy, "lem:grad-err-aid", "one iteration", plus_implicit_part),
    Case("GDmax without its last step", easy_minimax, "lem:grad-err-mini", "", fewer("D")),
]  # fmt: skip
WARM_STARTS = [
    Case("a stale y", easy, "eq:warmstart-y", "", estimate(lambda e, start: e._replace(y=start[1]))),
    Case("a stale v", easy, "eq:warmstart-v", "", estimate(lambda e, start: e._replace(v=start[2]))),
    Case("a v that strays", easy, "eq:equvseq", "", estimate(lambda e, start: e._replace(v=e.v - 1))),
    Case("D/40", scalar, "eq:error-required", "", result_of(inner.aid_steps, lambda r: (r[0] // 40, r[1]))),
    Case("N = 1", saddle, "eq:est-error-neon", "", result_of(inner.aid_steps, lambda r: (r[0], 1))),
    Case("L_phi/8, for iNEON", bowl, "eq:hatphi", "", times(Constants, "L_phi", 0.125)),
    Case("L_phi/8", bowl, "lem:descent", "", times(Constants, "L_phi", 0.125)),
    Case("certified L_phi too small", bowl, "lem:descent", "", flatter("L_phi", 0.4), variant="sharp"),
]
ESCAPES = [
    Case("10^7 F", scalar, "lem:escapesaddle", "coupling", fields(escape.escape_of, F_escape=lambda F: 1e7 * F)),
    Case("T = 1", scalar, "lem:escapesaddle", "probability", fields(escape.escape_of, T_escape=lambda T: 1)),
    Case("20 descents", scalar, "lem:escapesaddle", "probability", number(escape_claims, "RUNS", 20), says="INCONCLUSIVE"),
    Case("iota/2", scalar, "unlabelled:stuck-probability", "perturbation",
         result_of(escape.smallest_iota, lambda iota: iota / 2)),
    Case("iNEON's iota/2", scalar, "unlabelled:stuck-probability", "iNEON",
         result_of(escape.smallest_iota, lambda iota: iota / 2)),
    Case("iNEON turned", saddle, "lem:neon", "curvature", turned),
    Case("20 searches", saddle, "lem:neon", "probability", number(neon, "RUNS", 20), says="INCONCLUSIVE"),
    Case("a direction of positive curvature", saddle, "lem:saddle-decrease", "",
         method(Kernels, "hess_phi", lambda old: lambda self, *args, **options: -old(self, *args, **options))),
]  # fmt: skip
MINIMAX = [
    Case("flipped eigenvalues", scalar_minimax, "lem:equivalence", "", flipped),
    Case("flipped f_xx", twisted, "unlabelled:definition-strict-local-minimax", "", changed_blocks(f_xx=lambda b: -b)),
    Case("transposed f_xy", twisted, "unlabelled:definition-strict-local-minimax", "",
         changed_blocks(f_xy=lambda b: b.transpose())),
    Case("the coupling of Hess Phi flipped", twisted, "pro:minimax", "(i)", flipped_coupling),
    Case("flipped f_yy", twisted, "unlabelled:section-proof-nash", "", changed_blocks(f_yy=lambda b: -b), says="INCONCLUSIVE"),
]  # fmt: skip
STOCHASTIC = [
    Case("sigma too small", noisy, "eq:traerr", "alpha = 1/ell",
         method(samples.Samples, "sigma_over", lambda old: lambda self, *ends: old(self, *ends) / 3)),
    Case("a variance halved", noisy, "ass:variance-bound", "",
         number(samples.Samples, "variance_formula", property(lambda s: VARIANCE(s) / 2))),
    Case("a batch of one row", noisy, "lem:err-grad", "", result_of(concentration, lambda size: 1)),
    Case("a batch of one row, Hessians", noisy, "lem:err-hess", "", result_of(concentration, lambda size: 1)),
    Case("mu of every row too large", noisy, "eq:y-diff-bound-stoc-sc", "", several_rows),
    Case("a third of the six terms", noisy, "unlabelled:stochastic-gradient-split", "",
         result_of(gradient_terms, lambda terms: weaker(terms, 1 / 3))),
    Case("a hundredth of the eleven", noisy, "eq:hessphi-err", "", result_of(hessian_terms, lambda terms: weaker(terms, 1 / 100))),
    Case("ten batches", stochastic_noise, "lem:batch-grad-err", "",
         lambda p: everywhere(p, runs_needed, lambda *args: 10), says="INCONCLUSIVE"),
    Case("c/9", noisy, "le:first_m", "", result_of(stocbio_bounds.slope_in_y, lambda c: c / 9)),
    Case("an error bound over 20", noisy, "le:variancc", "", result_of(stocbio_bounds.error_bound, lambda bound: bound / 20)),
    Case("twice the inner product", stochastic_noise, "eq:expect-phi", "by smoothness", result_of(stocbio_bounds.inner, lambda a: 2 * a)),
    Case("StocBiO goes up", stochastic_noise, "lem:stocbio-decrease", "", ascent),
]  # fmt: skip
TUBE = [
    Case("step 1/2", the_tube, "unlabelled:tube-settings", "", number(tube, "STEP", 1 / 2)),
    Case("no perturbations", the_tube, "Figure: exp", "", never_perturbed),
]
CASES = [
    *IDENTITIES, *DERIVATIVES, *DEFINITIONS, *COROLLARIES, *THEOREMS, *ESTIMATES, *WARM_STARTS, *ESCAPES, *MINIMAX,
    *STOCHASTIC, *TUBE,
]  # fmt: skip


def result_on(case: Case) -> CheckResult:
    """What a run says of the claim, through the front door."""
    report = verify.run(case.problem(), claims=[case.label], rng=0, variant=case.variant)
    found = [result for result in report.results if result.label == case.label and result.part == case.part]
    # a claim that gives up as a whole has no parts
    (result,) = found or [result for result in report.results if result.label == case.label and not result.part]
    return result


@pytest.fixture(autouse=True)
def forgetful() -> Iterator[None]:
    """No defect outlives its test."""
    forget()
    yield
    forget()


def test_the_table_is_long_enough_and_covers_every_family() -> None:
    assert len(CASES) >= 60
    assert len({case.name for case in CASES}) == len(CASES)
    families = {item.check.__module__ for item in verify.claims() if item.label in {case.label for case in CASES}}
    # these have no bound that could be made false; faults in what they check are planted in test_refutation_faults
    elsewhere = {
        f"verify.papers.huang_saddle.claims.{name}" for name in ("algorithms", "estimators", "formulas", "routes")
    }
    assert families | elsewhere == {module.__name__ for module in statements.FAMILIES}


@pytest.mark.slow
@pytest.mark.in_ci(case=CASES[::5])
@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_a_planted_falsehood_is_never_found_to_hold(monkeypatch: Patch, case: Case) -> None:
    assert result_on(case).verdict is Verdict.HOLDS
    forget()
    case.plant(monkeypatch)
    assert result_on(case).verdict == case.says


# ---- certificates ----------------------------------------------------------------------------------------------------


def rewritten(path: Path, change: Callable[[dict[str, Any]], None]) -> Path:
    """The file with something changed in it."""
    content = json.loads(path.read_text())
    change(content)
    path.write_text(json.dumps(content))
    return path


def _scaled(content: dict[str, Any], constant: str, factor: float) -> None:
    claim = content["claims"][constant]
    claim |= {end: repr(factor * float(claim[end])) for end in ("lower", "upper")}


def _smaller_upper_end(content: dict[str, Any]) -> None:
    _scaled(content, "rho", 0.9)


def _larger_mu(content: dict[str, Any]) -> None:
    _scaled(content, "mu", 1.1)


def _missing_claim(content: dict[str, Any]) -> None:
    del content["claims"]["nu"]


def _other_problem(content: dict[str, Any]) -> None:
    content["problem"] = content["problem"].replace("/9", "/2")


def _wider_box(content: dict[str, Any]) -> None:
    content["box"]["x"] = ["-3", "3"]


def _lower_end_out_of_thin_air(content: dict[str, Any]) -> None:
    content["claims"]["M"]["lower"] = content["claims"]["M"]["upper"]


@pytest.mark.slow
@pytest.mark.parametrize(
    "change",
    [_smaller_upper_end, _larger_mu, _missing_claim, _other_problem, _wider_box, _lower_end_out_of_thin_air],
)
def test_constants_that_were_tampered_with_are_not_proved_again(
    tmp_path: Path, change: Callable[[dict[str, Any]], None]
) -> None:
    path = tmp_path / "constants.json"
    verify.constants(curved(), effort="quick").save(path)
    assert verify.recheck(path).brackets["mu"].lower > 0
    with pytest.raises(CertificateFailure):
        verify.recheck(rewritten(path, change))


# ---- kinds of stationary points --------------------------------------------------------------------------------------


@pytest.mark.parametrize("x", ["1e-6", "1e-9", "1e-15"])
def test_a_point_that_is_nearly_degenerate_gets_no_wrong_kind(x: str) -> None:
    """Phi = x^4/4 - c x^2/2 has a maximum at 0 and minima at +-sqrt(c), as near to it as one likes."""
    problem = BilevelProblem(f"y**4/4 - ({x})**2*y**2/2", "y**2/2 - x*y", "x", "y")
    assert verify.classify(problem, [0]).kind == "local maximum"
    assert verify.classify(problem, [x], radius=f"{x}/4").kind in ("local minimum", "undecided")
    assert verify.classify(BilevelProblem("y**4", "y**2/2 - x*y", "x", "y"), [0]).kind == "degenerate"


# ---- what was once called false, and is not --------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize(
    "f",
    [
        "-x2**2 + x2 - 2*(y + 3*sin(x1)/4)**2 - sin(x2) + sin(x1 + y)/4",  # f_xx and Hess Phi are singular together
        "-(y - sin(x1))**2 + 0*x2",  # Phi = 0: its two terms cancel
        "x1*y - 3*y**2/2 - x1**2/6",
        "10**30*(x1**2 - y**2) + x2",
    ],
)
def test_zeros_among_the_eigenvalues_break_no_statement(f: str) -> None:
    box = {"x1": (-1, 1), "x2": (-1, 1), "y": (-2, 2)}
    report = verify.run(
        MinimaxProblem(f, "x1 x2", "y", box=box), rng=0, effort="quick",
        claims=["pro:minimax", "unlabelled:section-proof-nash", "unlabelled:definition-strict-local-minimax"],
    )  # fmt: skip
    assert report.ok
    assert all(result.decided for result in report.results if result.verdict is not Verdict.NOT_APPLICABLE)


@pytest.mark.slow
@pytest.mark.in_ci(g=["x*y"], label=("eq:gdrate", "eq:cgrate"))
@pytest.mark.parametrize("g", ["-y**2/2 + x*y", "x*y", "x - y**2/2"])
@pytest.mark.parametrize("label", ["eq:gdrate", "eq:cgrate", "lem:grad-err-aid", "eq:warmstart-v", "eq:error-required"])
def test_nothing_is_proved_of_a_lower_level_without_a_minimum(g: str, label: str) -> None:
    problem = BilevelProblem("x + y", g, "x", "y", box={"x": (-1, 1), "y": (-2, 2)})
    report = verify.run(problem, claims=[label], rng=0)
    assert [result.verdict for result in report.results] == [Verdict.INCONCLUSIVE] * len(report.results)


@pytest.mark.slow
@pytest.mark.in_ci("x + y**2")
@pytest.mark.parametrize("f", ["x*y + y**2", "x + y**2"])
def test_nothing_is_proved_of_a_maximum_that_does_not_exist(f: str) -> None:
    problem = MinimaxProblem(f, "x", "y", box={"x": (-1, 1), "y": (-2, 2)})
    report = verify.run(problem, claims=["lem:grad-err-mini", "eq:gdrate", "lemC.1"], rng=0)
    assert all(result.verdict is Verdict.INCONCLUSIVE for result in report.results)


ODD = {
    "a point for a box": BilevelProblem("x*y + sin(x)", "y**2/2 - x*y", "x", "y", box={"x": (1, 1), "y": (-2, 2)}),
    "a box in x alone": BilevelProblem("x*y + sin(y)", "y**2/2 - x*y + sin(y)/4", "x", "y", box={"x": (-1, 1)}),
    "kappa = 10^18": BilevelProblem(
        "x*y*1e9 + sin(x*1e9)", "y**2/2 - x*y*1e9", "x", "y", box={"x": ("-1e-9", "1e-9"), "y": (-2, 2)}
    ),
    "a constant": BilevelProblem("3", "y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-2, 2)}),
    "Phi = 2 x": BilevelProblem("x + y", "y**2/2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-2, 2)}),
    "numbers beyond float64": BilevelProblem(
        "exp(30*x)*y", "y**2/2 - x*y", "x", "y", box={"x": (-10, 20), "y": (-20, 20)}
    ),
}


@pytest.mark.slow
@pytest.mark.in_ci(name=("a point for a box", "kappa = 10^18"))
@pytest.mark.parametrize("name", ODD)
def test_an_odd_problem_raises_nothing_and_breaks_no_statement(name: str) -> None:
    report = verify.run(ODD[name], rng=0, effort="quick")
    assert report.ok
    assert all(result.message for result in report.results)


def test_when_the_time_is_up_the_kind_of_a_problem_is_known_all_the_same() -> None:
    report = verify.run(scalar(), rng=0, seconds=1e-9)
    verdicts = {result.label: result.verdict for result in report.results}
    assert verdicts["lemC.1"] is Verdict.NOT_APPLICABLE
    assert verdicts["lem:descent"] is Verdict.INCONCLUSIVE


def test_an_interruption_keeps_what_was_found(monkeypatch: Patch) -> None:
    def interrupted(study: Any) -> Any:
        raise KeyboardInterrupt

    item = next(item for item in verify.claims() if item.label == "eq:bilevel-grad")
    monkeypatch.setitem(item.__dict__, "check", interrupted)
    report = verify.run(scalar(), claims=["phi-grad", "eq:bilevel-grad", "lem:descent"], rng=0)
    assert report.interrupted
    assert [str(result.verdict) for result in report.results] == ["HOLDS", "INCONCLUSIVE", "INCONCLUSIVE"]


@pytest.mark.slow
def test_a_solution_that_is_zero_up_to_rounding_is_found_at_once() -> None:
    """y* = 0 at a stationary point of Phi = y*^2: there a step of Newton's method is never small beside y."""
    problem = BilevelProblem("y**2/4", "11*(y - 3*x/4)**2/8 - sin(x + y)/4", "x", "y", box={"x": (-1, 1), "y": (-4, 4)})
    (point,) = verify.stationary_points(problem, problem.box)
    assert point.kind == "local minimum"
    assert Exact().estimate(problem, [point.x[0]]).counters.G_g < 100
