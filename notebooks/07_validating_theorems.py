# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#       jupytext_version: 1.19.6
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Validating the theorems
#
# A paper proves bounds. Are they true, as printed? Are they near the truth, or a million times larger? On which problems do they say
# anything at all? Here each statement of the theory is put to a test that can fail, on problems that are small enough to
# know everything about. Then the other direction: where the test fails on the print, what is right, and a witness for it.
#
# The setting is
# $$\min_x \Phi(x) = f(x, y^*(x)), \qquad y^*(x) = \arg\min_y g(x, y),$$
# with $g$ $\mu$-strongly convex in $y$. Assumption 2.1 of the paper bounds the derivatives of $f$ and $g$: the first ones of $f$ by $M$, the second ones by $\ell$,
# the third ones by $\rho$ and the fourth ones of $g$ by $\nu$, each over the box in which a problem is studied. $\kappa = \ell/\mu$ is the
# condition number, and $L_\phi$ and $\rho_\phi$ are the paper's Lipschitz constants of $\nabla\Phi$ and $\nabla^2\Phi$.

# %%
import warnings
from collections import Counter
from dataclasses import replace
from fractions import Fraction
from textwrap import fill

import matplotlib.pyplot as plt
import numpy as np
import sympy as sp

from bilevel_sym import (
    AID,
    BilevelProblem,
    Constants,
    MinimaxProblem,
    Neumann,
    Perturbed,
    compile_kernels,
    derive,
    evaluate,
    schedules,
    solve,
    verify,
    zoo,
)
from bilevel_sym.plotting import COLOURS
from bilevel_sym.theories.huang_saddle.paper import cite
from verify.papers.huang_saddle.coverage import coverage
from verify.plotting import plot_tightness
from verify.registry import claim
from verify.study import study_of
from verify.verdict import judged

BLUE, RED, GREEN, PURPLE = COLOURS[:4]
plt.rcParams.update({"figure.figsize": (7.0, 4.0), "axes.spines.top": False, "axes.spines.right": False})

# %% [markdown]
# ## Every statement on three problems
#
# A bilevel problem whose $\Phi$ has a saddle point at 0 and two minima; a minimax problem ($\min_x \max_y f$, the case $g = -f$); and a stochastic problem, whose $f$ and $g$
# are means over data. `verify.run` puts every statement of the theory to the test on each. How much work it does is a
# count (`effort`), never a time, so that a slow or busy machine gives the same report.

# %%
names = ("saddle", "minimax_not_nash", "stochastic_noise")
reports = {name: verify.run(zoo.get(name).problem, rng=0) for name in names}
for name, report in reports.items():
    print(f"{name:17} over {report.box}: {'nothing' if report.ok else 'something'} is violated")

# %% [markdown]
# ## One statement, one verdict
#
# Lemma A.2 says that $\nabla\Phi$ is Lipschitz with the constant $L_\phi = (1 + \kappa)^2 (\ell + \rho M/\mu)$. What does the lemma say about the first problem, and what is true?

# %%
result = reports["saddle"]["grad-Lipschitz"]
for name in ("verdict", "measured", "bound", "tightness", "evidence", "message"):
    value = getattr(result, name)
    print(f"{name:9}", f"{value:.6g}" if isinstance(value, float) else value)

# %% [markdown]
# `measured` is what the statement speaks of, here the largest curvature of $\Phi$ over the box, enclosed by a cover of the box (the message has both ends). `bound` is what the
# statement allows, from constants that are certified too. `tightness` is measured/bound: 1 where a bound is attained, above 1 where it is
# violated, and small where it is true and far away. Here the lemma holds, with much room.
#
# All results together:

# %%
for kind in ("verdict", "evidence"):
    counts = {name: Counter(str(getattr(r, kind)) for r in report.results) for name, report in reports.items()}
    print(f"{kind:16}" + "".join(f"{name:>20}" for name in names))
    for row in sorted({row for count in counts.values() for row in count} - {"None"}):
        print(f"  {row:14}" + "".join(f"{counts[name][row]:20}" for name in names))

# %% [markdown]
# (A statement that has parts counts once for each part.)
#
# ## Four verdicts
#
# A statement **HOLDS** on this problem, or it is **VIOLATED**. Or it is **INCONCLUSIVE**: the message says what stood in the way (brackets that overlap, a bound
# so loose that nothing was tested, work that no machine could do). Or it is **NOT_APPLICABLE**: it does not speak of this
# kind of problem. Of the corrected formulas none is violated on these three, so the second example is a formula as the paper prints it:

# %%
examples = [
    reports["saddle"]["lem:descent"],
    verify.run(zoo.get("lphi_witness").problem, claims=["grad-Lipschitz"], variant="printed").results[0],
    next(r for r in reports["stochastic_noise"].results if r.label == "thm:stocneon" and r.part == "visits"),
    reports["saddle"]["lemC.1"],
]
for result in examples:
    numbers = "" if result.measured is None else f"measured {result.measured:.4g}, bound {result.bound:.4g}; "
    print(f"{result.verdict:15} {cite(result.label)} {result.part}\n{'':15} {numbers}{result.message}")

# %% [markdown]
# The third one is worth a second look: with the parameters of Theorem 4.5 the run would take batches of hundreds of millions of samples and $10^{21}$
# iterations. Nobody can run that, and the verdict says so instead of running something else.
#
# **What a verdict rests on.** *proved*: exact arithmetic in symbols or rationals. *certified*: enclosures that contain the true
# values, over the whole box or at every point named. *statistical*: random runs, with an exact confidence bound on a probability. *sampled*: floating point numbers at
# finitely many points; this can refute, and otherwise it only supports.
#
# ## The chart
#
# Every bound on the first problem that leaves room, in the order of the check, one row for each statement; identities and attained bounds, which would stand on the
# line at 1, are left out. The further to the left a mark lies, the more room the bound leaves. The filling of a mark tells the evidence.

# %%
with_room = tuple(result for result in reports["saddle"].results if 0 < (result.tightness or 0) < 1)
plot_tightness(replace(reports["saddle"], results=with_room))
plt.show()

# %% [markdown]
# ## What loose means
#
# The marks far to the left are the smoothness constants and what is made of them. Take the lemma of the beginning: its bound is so many times the truth:

# %%
loose = {name: reports[name][label] for name, label in (("saddle", "grad-Lipschitz"), ("minimax_not_nash", "lemC.1"))}
for name, result in loose.items():
    numbers = f"sup |Hess Phi| <= {result.measured:.4g}, L_phi = {result.bound:.6g}"
    print(f"{name:17} {numbers:45} {1 / result.tightness:.5g} times")

# %% [markdown]
# This is no error. A bound made of five constants takes the worst of each, and the five are not attained at the same point, nor along the same direction;
# the factor $(1 + \kappa)^2$ multiplies what is left. But it costs: the theorem's step is $1/L_\phi$, and for the saddle it is as many times
# shorter than a step that is safe. For minimax problems Lemma C.1 has a simpler constant, $\ell(1 + \kappa)$, and it is twice the truth. The same for the main
# statements of the three problems together:

# %%
main = ("grad-Lipschitz", "hess-Lipschitz", "lemC.1", "eq:gdrate", "eq:cgrate", "lem:grad-err-aid", "lem:grad-err-mini")
main += ("lem:descent", "lem:escapesaddle", "lem:neon", "lem:saddle-decrease", "le:first_m", "le:variancc")
chosen = [replace(r, results=tuple(c for c in r.results if c.label in main)) for r in reports.values()]
plot_tightness(*chosen)
plt.show()

# %% [markdown]
# The stochastic problem is the saddle with noise, so that their marks come in pairs. The rates of the inner loops (gradient descent and conjugate
# gradients on the lower level) are close to what happens. The smoothness constants leave up to four powers of ten, and so do the lemmas that are made of them: on
# the error of the hypergradient, and on the curvature that iNEON (the paper's search for a direction of negative curvature) promises.
#
# ## The print beside the correction
#
# Every formula that the paper prints wrongly is kept in both forms. `variant="printed"` judges the print, on the same problem by the same test:

# %%
witnesses = {
    "phi-hessian": "quadratic",
    "grad-Lipschitz": "lphi_witness",
    "eq:warmstart-y": "minimax_not_nash",
    "lem:equivalence": "minimax_degenerate",
    "le:first_m": "stochastic_noise",
}
for label, name in witnesses.items():
    print(f"{cite(label)} on {name}")
    for variant in ("printed", "corrected"):
        result = verify.run(zoo.get(name).problem, claims=[label], variant=variant, rng=0)[label]
        print(f"    {variant:10} {result.verdict:9} measured {result.measured:.4g}, bound {result.bound:.4g}")

# %% [markdown]
# Where the formula is an identity or a plain yes or no, `measured` is its defect and `bound` is 0. The stories of these lines come below.
#
# ## A test that can say no
#
# A check that always says HOLDS is worth nothing. So here is a statement that sounds plausible and is false: "$\Phi$ is as smooth as $f$ and $g$, so
# $\|\nabla^2\Phi\| \le \ell$". It forgets that $y^*$ moves with $x$. A claim is a function of a `Study`, which has the certified constants:


# %%
@claim("grad-Lipschitz")
def as_smooth_as_f_and_g(study):
    """Phi is as smooth as f and g: |Hess Phi| <= ell."""
    smoothness, ell = study.smoothness.L_phi, study.constants.brackets["ell"]
    return judged("grad-Lipschitz", smoothness, ell, evidence="certified", message="ell in the place of L_phi")


for name in ("quadratic", "implicit_cubic", "minimax_nash", "minimax_not_nash", "lphi_witness"):
    (result,) = as_smooth_as_f_and_g(study_of(zoo.get(name).problem))
    print(f"{name:17} {result.verdict:9} {result.measured:.4g} against {result.bound:.4g}")

# %% [markdown]
# It is refuted, with certainty, by three problems of five. The other two do not make it true.
#
# ## The errata
#
# Each erratum has the printed form and the corrected one as code, and a witness. `.check()` computes the witness with both: HOLDS means that the print
# fails there and the correction does not.
#
# - *wrong*: the printed line is false, or impossible;
# - *gap*: a step of a proof does not follow, or a hypothesis is missing;
# - *ambiguous*: two readings, and one of them fails;
# - *loose*: right but for a constant factor or a logarithm;
# - *misprint*: a symbol or an index, which most readers mend on the way.
#
# Where the print has words, the lines of an algorithm or O(), a function stands for them, and the erratum is *modelled*.

# %%
errata = verify.errata()
checks = [erratum.check() for erratum in errata]
severities = ("wrong", "gap", "ambiguous", "loose", "misprint")
print(len(errata), "errata;", dict(Counter(str(check.verdict) for check in checks)))

figure, ax = plt.subplots(figsize=(7, 2.6))
start = np.zeros(len(severities))
for evidence, colour, hatch in (("proved", BLUE, ""), ("certified", COLOURS[5], "///")):
    found = Counter(erratum.severity for erratum in errata if erratum.evidence == evidence)
    count = np.array([found[severity] for severity in severities])
    ax.barh(severities, count, left=start, color=colour, hatch=hatch, edgecolor="white", label=f"witness {evidence}")
    start += count
ax.bar_label(ax.containers[-1], [f"{total:.0f}" for total in start], padding=3)
ax.invert_yaxis()
ax.set(xlabel="number of errata", xlim=(0, 28), title="How grave they are, and what their witnesses rest on")
ax.legend(frameon=False, loc="center right", bbox_to_anchor=(1.0, 0.4))
plt.show()

# %%
by_label = {erratum.labels[0]: erratum for erratum in reversed(errata)}  # the first one under each label


def judge(*labels: str) -> None:
    """Check errata, and print what came out."""
    for erratum in map(by_label.get, labels):
        print(f"{cite(erratum.labels[0])}: {erratum.severity}, {erratum.evidence}, {erratum.check().verdict}")
        for name in ("printed", "corrected", "witness"):
            print(fill(getattr(erratum, name), 115, initial_indent=f"    {name:11}", subsequent_indent=" " * 15))


# %% [markdown]
# # What is wrong, missing, or can be read in two ways
#
# ## The Hessian of Φ is not symmetric
#
# Equation (B.1) prints, with $J = \partial y^*/\partial x$ ($d \times n$),
# $$\nabla^2\Phi = f_{xx} + J f_{yx} + \frac{\partial^2 y^*}{\partial x^2} f_y + J f_{xy}^\top + J f_{yy} J^\top .$$
# Since $f_{xy}^\top = f_{yx}$, the fourth term is the second once more. It must be its transpose, $f_{xy} J^\top$.
# For $d = 1$ nobody can tell; for $d = 2$ the simplest problem does: $f = x_2 y$ and $g = (y - x_1)^2/2$ give
# $\Phi = x_1 x_2$. An algorithm that reads the eigenvalues of the printed matrix finds no
# negative curvature: both are 0. (The symmetric part is right, so that to symmetrise would mend it.)

# %%
x1, x2, y = sp.symbols("x1 x2 y")
derivation = derive(BilevelProblem(x2 * y, (y - x1) ** 2 / 2, (x1, x2), y))
forms = {"as printed": derivation.hessian(variant="printed"), "corrected": derivation.hessian()}
forms["from Phi"] = sp.hessian(derivation.phi, (x1, x2))
for name, form in forms.items():
    print(f"{name:10} {form.tolist()!s:20} eigenvalues {sorted(form.eigenvals(multiple=True))}")
judge("phi-hessian")

# %% [markdown]
# ## The smoothness constant is too small
#
# Lemma A.2 prints $L_\phi = \ell + \frac{2\ell^2 + \rho M^2}{\mu} + \dots$ The term bounds $\|f_y\| \cdot \|J'\|$, where $M$ stands to
# the first power: $\rho M/\mu$, and then $L_\phi = (1 + \kappa)^2 (\ell + \rho M/\mu)$. For $M < 1$ the print is smaller than
# what is true of $\Phi$: take $f = y/2$ (so $M = 1/2$) and $g = y^2/2 + xy + \rho\delta^3 \sin((y - x)/\delta)$, whose third
# derivatives reach $\rho = 40$ while its Hessian hardly moves. At $x = -\rho\delta^2/2$, $\Phi'' = 2\rho = 80$ exactly, for every $\delta$.
# The smaller $\delta$, the closer $\mu$ and $\ell$ are to 1, and the smaller both formulas are.

# %%
deltas = np.logspace(-6, -2.4, 40)
examples = [zoo.get("lphi_witness", delta=Fraction(float(delta))) for delta in deltas]
curves = {v: [float(e.constants.L_phi(variant=v)) for e in examples] for v in ("printed", "corrected")}
curvature = [float(e.notes["second_derivative"]) for e in examples]

figure, ax = plt.subplots()
ax.plot(deltas, curves["corrected"], color=BLUE, label="$L_\\phi$, corrected")
ax.plot(deltas, curves["printed"], color=RED, linestyle="--", label="$L_\\phi$, as printed")
ax.plot(deltas, curvature, color="black", linestyle=":", linewidth=2, label="true curvature $|\\Phi''|$ at the witness")
below = np.less(curves["printed"], curvature)
ax.fill_between(deltas, curves["printed"], curvature, below, True, color=RED, alpha=0.15, label="the print is refuted")
ax.set(
    xscale="log", ylim=(70, 110), xlabel="width $\\delta$ of the ripple in g (no unit)", ylabel="curvature of $\\Phi$"
)
ax.set_title("A bound on the curvature that the curvature exceeds")
ax.legend(frameon=False, loc="upper left")
plt.show()
print({v: round(c[0], 4) for v, c in curves.items()}, "against", curvature[0])

# %% [markdown]
# The curvature is not taken from a formula of ours: certified arithmetic agrees.

# %%
finest = examples[0]
at_witness = evaluate(finest.problem, [finest.notes["witness"][0]], digits=20)
print("second derivative of Phi, certified:", at_witness.hess_phi[0][0])
judge("grad-Lipschitz")

# %% [markdown]
# ## A bound that cannot exist
#
# Proposition A.1 bounds $\|\nabla_y g(x, y)\| \le M$ for all $(x, y)$. A strongly convex function on $\mathbb{R}^n$ has
# $\|\nabla_y g\| \ge \mu \|y - y^*\|$, which is unbounded. In the same way Lemma C.2 uses an $M$ that the assumptions on minimax problems do
# not contain. $M$ belongs to $f$, and constants belong to a region.

# %%
judge("pro:bounds", "lem:grad-err-mini")

# %% [markdown]
# ## A strict local minimum need not be a strict local minimax point
#
# The proof of Proposition 3.4 says that a local minimum of $\Phi$ satisfies $\nabla^2\Phi \succ 0$. That is sufficient, not
# necessary. With $f = x^4 - x^6 - y^2$, $\Phi = x^4 - x^6$ has a strict local minimum at 0, and no strict local minimax point
# exists anywhere: by Definition 3.3 that needs $f_{xx} - f_{xy} f_{yy}^{-1} f_{yx} \succ 0$, which is $\nabla^2\Phi$, and it is 0 there. The equivalence is true for minima with
# $\nabla^2\Phi \succ 0$.

# %%
minimax = MinimaxProblem("x**4 - x**6 - y**2", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
print("Phi =", minimax.derivation.phi)
for x in (0, sp.sqrt(6) / 3):  # the points where Phi' = 0, and the mirror image of the second
    slope, curvature = (
        d.subs(minimax.x[0], x) for d in (minimax.derivation.grad_phi[0], minimax.derivation.hess_phi[0])
    )
    print(f"x = {x!s:10} Phi' = {slope}, Phi'' = {curvature}")
judge("lem:equivalence")

# %% [markdown]
# ## The logarithm of a negative number
#
# Equations (B.44) and (D.4) give the number $N$ of conjugate-gradient steps. They divide by $\log\frac{1 + \sqrt\kappa}{1 - \sqrt\kappa}$, and for $\kappa > 1$ that is the logarithm of a
# negative number; meant is $\log\frac{\sqrt\kappa + 1}{\sqrt\kappa - 1}$. For $\kappa = 1$, which the assumptions allow, both loops need a case of their own.

# %%
judge("eq:aid-ND")

# %% [markdown]
# ## The gradient that is stale
#
# Where Algorithm 1 perturbs $x$, it moves on by the gradient estimated *before* the perturbation, while Lemma 2.9 descends from the perturbed point. It also starts
# with $k_{\rm perturb} = 0$ and perturbs only when $k - k_{\rm perturb} > \mathcal{T}$, so it sits at a saddle point for $\mathcal{T} + 1$ iterations, which the proof counts as
# "within $\mathcal{T}$ iterations of the last perturbation" (this one is a *gap*). `as_printed=True` runs the printed lines; the default is what the lemma proves. Started exactly at a
# saddle point, with $\mathcal{T} = 5$:

# %%
for as_printed in (True, False):
    algorithm = Perturbed(AID(D=5, N=2, tau=1.0), eta=0.1, eps=0.1, r=0.01, T_escape=5, as_printed=as_printed)
    run = solve(zoo.get("saddle").problem, algorithm, [0.0, 0.0], steps=20, rng=0)
    times = np.flatnonzero(run.trajectory.perturbed)
    print("as printed:" if as_printed else "as proved: ", "perturbed at iterations", times)
judge("unlabelled:algorithm-1-step-11")

# %% [markdown]
# ## How large ι must be
#
# $\iota$ is the logarithmic factor in the length of an escape. The chance that a perturbation lands where it does not help is at most
# $\frac{\omega}{r}\sqrt{d/\pi}$, with $\omega$ made of $L_\phi$ and $\rho_\phi$. The last step of that estimate, and with it condition (4.6) on ι, prints $\ell$ and $\rho$ in their
# places. The ratio $\ell/\sqrt\rho$ can be far smaller than $L_\phi/\sqrt{\rho_\phi}$, and then ι is too small for the promised probability:

# %%
c = Constants(mu=1, ell=1, rho=1, nu=0, M=100)
print("ell/sqrt(rho) =", c.ell / c.rho**0.5, "  L_phi/sqrt(rho_phi) =", round(c.L_phi() / c.rho_phi() ** 0.5, 3))
judge("iota-condition-2")

# %% [markdown]
# ## One letter for two steps
#
# In Theorem 4.5 $\eta = 1/L_\phi$ is the outer step. The same letter is the step of the Neumann series (4.7), $v \approx \eta \sum_q (I - \eta g_{yy})^q f_y$, whose bias Lemma D.8 bounds
# by $\frac{\ell M}{\mu}(1 - 1/\kappa)^Q$ with $Q$ the number of products: true for the step $1/\ell$ only. The estimator of the library with both steps, on $f = y$, $g = y^2/2 - 4xy$
# ($\mu = M = 1$, $\ell = 4$, so $L_\phi = 100$, and $\nabla\Phi = 4$):

# %%
series = BilevelProblem("y", "y**2/2 - 4*x*y", "x", "y")
c = Constants(mu=1, ell=4, rho=0, nu=0, M=1)
depths = np.arange(1, 41)
steps = {
    "the step $1/L_\\phi = 1/100$, as printed": (1 / c.L_phi(), RED, "--"),
    "the step $1/\\ell = 1/4$": (1 / c.ell, BLUE, "-"),
}

figure, ax = plt.subplots()
for name, (eta, colour, style) in steps.items():
    bias = [
        abs(Neumann(Q=int(Q), eta_neumann=eta).estimate(series, [0.0], y0=[0.0]).grad_phi_hat[0] - 4) for Q in depths
    ]
    ax.semilogy(depths, bias, color=colour, linestyle=style, label=f"bias with {name}")
bound = c.ell * c.M / c.mu * (1 - 1 / c.kappa) ** depths
ax.semilogy(depths, bound, color="black", linestyle=":", linewidth=2, label="bound of Lemma D.8")
ax.set(xlabel="depth Q of the Neumann series (number of products)", ylabel="bias of the hypergradient")
ax.set_title("The Neumann series with two steps, $\\kappa = 4$")
ax.legend(frameon=False)
plt.show()
judge("est-vq")

# %% [markdown]
# ## The escape step is too long
#
# Algorithm 3 moves by $\pm\frac{1}{80}\sqrt{\epsilon/\rho_\phi}$ (either sign with probability 1/2) along a direction of curvature at most $-c$, $c = \frac{1}{80\iota}\sqrt{\rho_\phi\epsilon}$.
# A step $s$ lowers the mean of $\Phi$ by at least $\frac{c s^2}{2} - \frac{\rho_\phi s^3}{6}$, and for $\Phi = -\frac{c x^2}{2} + \frac{\rho_\phi |x|^3}{6}$ by no more. Lemma D.6
# claims $\frac{c^3}{3\rho_\phi^2}$, which is what $s = c/\rho_\phi = \frac{1}{80\iota}\sqrt{\epsilon/\rho_\phi}$ gives. The printed step is ι times as long. Here is that Φ, with both:

# %%
s = np.linspace(0, 4.4, 200)
valley = lambda s: 3 * (s**3 / 6 - s**2 / 2)  # noqa: E731 - Phi in units of the decrease that is claimed

figure, ax = plt.subplots()
ax.axhline(0, color="0.6", linewidth=0.8)
ax.axhline(-1, color="black", linestyle=":", label="the decrease that is claimed")
ax.plot(s, valley(s), color="0.35", label="$\\Phi$ along the direction")
ax.plot(1, valley(1), "o", color=BLUE, markersize=9, label="the corrected step, for every $\\iota$")
iotas = np.array([2, 3, 4])
ax.plot(iotas, valley(iotas), "X", color=RED, markersize=9, linestyle="none", label="the printed step")
for iota in iotas:
    ax.annotate(f"$\\iota = {iota}$", (iota, valley(iota)), (8, -12), textcoords="offset points", color=RED)
ax.set(xlabel="length of the step, in units of $c/\\rho_\\phi$", ylim=(-3.4, 9))
ax.set_ylabel("change of $\\Phi$, in units of\nthe decrease that is claimed")
ax.set_title("The printed step jumps over the valley")
ax.legend(frameon=False, loc="upper left")
plt.show()
judge("unlabelled:algorithm-3-step-19")

# %% [markdown]
# The claim fails for $\iota > 1 + \sqrt 3$, and from $\iota = 3$ on Φ need not fall at all. The theorem's own ι is far beyond that, even for the friendliest constants:

# %%
with warnings.catch_warnings(record=True) as said:  # a schedule that cannot be run says so
    schedule = schedules.ineon(Constants(mu=1, ell=1, rho=1, nu=0, M=1), eps=0.1, delta=0.1, d=1)
print("iota =", round(schedule.iota, 1), "|", said[0].message)

# %% [markdown]
# ## The mean square error of the stochastic hypergradient
#
# Lemma D.9 bounds $\mathbb{E}\|\widehat\nabla\Phi - \nabla\Phi\|^2$ by batch terms, $16 b^2$ with $b = \frac{\ell M}{\mu} (1 - 1/\kappa)^Q$, and $a^2$ with
# $a = (1 + \kappa)(\ell + \rho M/\mu)\,\|y^D - y^*\|$. But the two systematic errors can add up: $(a + b)^2 > a^2 + 16 b^2$ once
# $a > 7.5\,b$. On a problem without any noise they do. With $\frac{16}{15} a^2$ the lemma is true: $(a + b)^2 = \frac{16}{15} a^2 + 16 b^2 - \frac{1}{15}(a - 15 b)^2$, and the
# variances of the batches are below the printed terms (the erratum has the proof).

# %%
judge("le:variancc")

# %% [markdown]
# ## Batches that are too small
#
# How many rows make a mean of derivatives exact to ε? For $n \times n$ matrices $n$ belongs into the logarithm, and the print has $d$. For gradients of $G$ nothing is bounded but the
# variance, and then no logarithm of $1/\delta$ is enough. For tensors the proof for matrices does not say what is claimed. The probabilities are exact:

# %%
judge("lem:err-hess", "lem:err-grad", "lem:err-third")

# %% [markdown]
# ## A theorem without a minimum
#
# Theorem 2.5 promises that perturbed AID visits an ε-local minimum. Its assumptions do not say that $\Phi$ is bounded below:

# %%
judge("thm:aid")

# %% [markdown]
# # What does not follow
#
# A gap need not make a theorem false. Two of them: a conclusion by Bayes' theorem without a prior, and many escapes, of which each
# may fail, counted as if one probability were enough for all.

# %%
(union,) = (erratum for erratum in errata if erratum.name == "episodes")
by_label["union bound"] = union
judge("lem:neon", "union bound")

# %% [markdown]
# ## The experiment: the step is longer than the theorem allows
#
# Section 5 runs all methods with the step 0.05 on the tube, a chain of saddle points made of pieces of width $\tau$, with $\gamma = 1$ and $L = 1, 1.5, 2, 3$. Theorem 2.5 asks for $\eta = 1/L_\phi$, so
# $\|\nabla^2\Phi\| \le 20$. On the way from one saddle point to the next the curvature is larger for three of the four values of $L$:

# %%
place = np.linspace(1.0, 2.0, 201)
figure, ax = plt.subplots()
styles = ((1, "0.35", "-"), (1.5, GREEN, "--"), (2, BLUE, "-."), (3, PURPLE, (0, (1, 1))))
for L, colour, style in styles:
    kernels = compile_kernels(zoo.get("tube", d=2, L=Fraction(L), gamma=1).problem)
    points = np.e * np.column_stack([place, np.full_like(place, 1 - 1e-9)])
    norm = np.abs(np.linalg.eigvalsh(kernels.hess_phi(points))).max(axis=-1)
    ax.plot(place, norm, color=colour, linestyle=style, linewidth=2, label=f"L = {L:g}: at most {norm.max():.1f} here")
ax.axhline(20, color=RED, linewidth=1.5)
ax.text(2.0, 20.5, "1/0.05, the most that the step allows", color=RED, ha="right", va="bottom")
ax.set(xlabel="$x_1$ in units of $\\tau$ (with $x_2 = \\tau$)", ylabel="norm of the Hessian of $\\Phi$", ylim=(0, 45))
ax.set_title("The tube bends more than the step 0.05 allows")
ax.legend(frameon=False, loc="upper right")
plt.show()
judge("unlabelled:tube-settings")

# %% [markdown]
# In the same experiment $y^*$, and with it $f$ and $g$, jumps at $x_i = \tau$ and $2\tau$, so that Assumption 2.1 fails; $\Phi$ alone does
# not. The zoo has both: `tube_printed` and `tube`, where $f = y$ and $y^* = \Phi$.

# %%
near = sp.Rational(1, 10**9)
for name, example in (("as printed", "tube_printed"), ("mended", "tube")):
    y_star = zoo.get(example, d=2).y_star[0]
    sides = [float(y_star.subs({"x1": sp.E * (1 + side), "x2": 1})) for side in (-near, near)]
    print(f"{name:10}: y* = {sides[0]:.6f} just before x1 = tau, {sides[1]:.6f} just after")

# %% [markdown]
# # What is loose
#
# Here the print is true, and more can be proved at no cost: for minimax problems $L_\phi = \ell\kappa$ is enough, and some problem attains it; and the rate of gradient descent
# on the lower level is $(1 - \mu/\ell)^D$, so that half of the inner steps are enough. `variant="sharp"` judges by the best that is proved.

# %%
judge("lemC.1", "eq:gdrate")

# %% [markdown]
# # What is misprinted
#
# Most readers would add the missing step size in Lemma D.7 without noticing. A program that takes the line literally climbs:

# %%
judge("lem:stocbio-decrease")

# %% [markdown]
# # All errata

# %%
rows = [
    f"{number:2}  {cite(erratum.labels[0]):60} {erratum.severity:9} {erratum.evidence:10} {check.verdict}"
    for number, (erratum, check) in enumerate(zip(errata, checks, strict=True), start=1)
]
print("\n".join(rows))

# %% [markdown]
# `bilevel-sym errata` prints them with their witnesses and reasons; so does [ERRATA.md](../.github/ERRATA.md).
#
# # What was not looked at?
#
# `coverage()` links every statement of the paper that has a label, and those without one that say something, to what computes it: a *claim* or a part of one, a
# *finding* (recomputed and found right), an *erratum*, or a *definition* in code that cites it. What is linked to nothing is called *open*. The ledger of all
# statements, with verdicts, is [here](../.github/docs/coverage.md): `bilevel-sym verify --coverage`.

# %%
accounts = coverage()
count = Counter(account.how for account in accounts.values())
print(len(accounts), "statements, open:", count["open"])
figure, ax = plt.subplots(figsize=(7, 2.6))
hows, numbers = zip(*count.most_common(), strict=True)
ax.bar_label(ax.barh(hows, numbers, color=BLUE), padding=3)
ax.invert_yaxis()
ax.set(
    xlabel="number of statements",
    title="How each statement of the paper is accounted for",
    xlim=(0, 1.1 * max(numbers)),
)
plt.show()

# %%
for label in ("lem:descent", "eq:qprelation", "uspace-def", "unlabelled:remark-nonasymptotic"):
    print(f"{cite(label):50} {accounts[label].how:11} {accounts[label].text}")

# %% [markdown]
# # A claim of your own
#
# The false claim above shows all there is: a function of a `Study` under `@claim(label)`, which returns one verdict or several. The study has the problem, its box, its certified
# constants (`study.constants`), the certified smoothness of Φ (`study.smoothness`), all stationary points (`study.stationary`), random points and kernels.
# `judged` compares brackets and decides; it never calls a difference inside rounding noise a verdict. [How to extend the toolkit](../.github/docs/extending.md) has a worked
# example that is registered, so that `verify.run` takes it with the rest.
