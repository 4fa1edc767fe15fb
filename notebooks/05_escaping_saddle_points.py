# ---
# jupyter:
#   jupytext:
#     text_representation:
#       extension: .py
#       format_name: percent
#       format_version: '1.3'
#   kernelspec:
#     display_name: Python 3
#     language: python
#     name: python3
# ---

# %% [markdown]
# # Escaping saddle points
#
# A bilevel problem asks for the smallest $\Phi(x) = f(x, y^*(x))$, where $y^*(x)$ minimises $g(x, \cdot)$. Even where $g$ is strongly convex in $y$, $\Phi$ need not be
# convex, and a gradient method can end where $\nabla\Phi = 0$ and yet every step along the right direction would go down: at a *strict saddle point*.
#
# Algorithm 1 of the theory (perturbed AID) adds a little noise when the estimated gradient is small. This notebook asks
#
# 1. what a strict saddle point is, 2. what happens without noise and 3. with it, 4. whether a run does what the algorithm and its lemmas say,
# 5. what the paper's Figure 1 shows and 6. what it does not test, 7. what the theorem itself would have us run, and 8. how iNEON finds the way down.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np
import sympy as sp

from bilevel_sym import AID, BilevelProblem, Descent, INeon, LocalMinimum, Perturbed, schedules, solve, verify, zoo
from bilevel_sym.plotting import explore, plot_eigenvalues, plot_landscape, plot_solution, plot_trajectories
from bilevel_sym.theories.huang_saddle.experiments import complexity, coupled, figure1
from bilevel_sym.zoo.tables import alternate, standard, table
from verify.plotting import plot_error

# %% [markdown]
# ## 1. A strict saddle point
#
# The zoo's problem `saddle` has a lower level that is not quadratic, so that $y^*$ has to be solved for. `stationary_points` finds every stationary point in the
# box, and proves that there are no others; the eigenvalues are those of $\nabla^2\Phi$.

# %%
saddle = zoo.get("saddle", d=2).problem
points = verify.stationary_points(saddle, saddle.box)
print("f =", saddle.f)
print("g =", saddle.g)
print(*points, sep="\n")

# %% [markdown]
# At the origin one eigenvalue is negative: along $x_1$ the function falls to both sides. That makes it a strict saddle point. Along $x_2$ it rises, and that is how
# descent gets there.
#
# ## 2. Without noise: stuck, or late
#
# AID estimates the hypergradient: $D$ gradient steps on the lower level, then $N$ steps of conjugate gradients for the linear system. `Perturbed.auto` chooses the steps
# from sampled curvature; `Descent` with the same estimator and step is the method without noise.

# %%
algorithm = Perturbed.auto(saddle)
plain = Descent(algorithm.estimator, algorithm.eta)
stuck = solve(saddle, plain, [0.0, 1.5], steps=150)
print("ends at x =", stuck.x.round(9), "after", stuck.steps, "steps:", stuck.status.message)
print(verify.check_local_minimum(stuck, saddle, eps=1e-3))

# %% [markdown]
# The gradient is zero there to many digits, and still the point is no $\varepsilon$-local minimum: `check_local_minimum` certifies the negative eigenvalue and names the
# direction. How special is a start with $x_1 = 0$ exactly? Start a little beside it, and count the steps to a checked $\varepsilon$-local minimum:

# %%
exponents = [2, 4, 16, 32, 64, 128]
beside = solve(saddle, plain, [[10.0**-k, 1.5] for k in exponents], steps=2000, stop=LocalMinimum(eps=1e-3))
for k, steps in zip(exponents, beside.steps, strict=True):
    print(f"x1 = 1e-{k:<3d}  about {round(steps, -1):3d} steps")

# %% [markdown]
# One saddle point only costs time: the distance from it grows by a constant factor in each step, so the delay is proportional to the number of zeros. Many saddle points
# one after the other are another matter: each squeezes the next coordinates towards zero, and the delays multiply. That is the tube of section 5.
#
# ## 3. With noise
#
# Where the estimate is at most $\frac45\varepsilon$, and the last perturbation was more than $\mathcal T$ iterations ago, $x$ moves by a random vector of length at most $\eta r$. One call runs a
# hundred independent trajectories, each with a random stream of its own, and ends each one only at a point that was checked.

# %%
start = np.tile([0.0, 1.5], (100, 1))
ensemble = solve(saddle, algorithm, start, steps=1000, rng=0, stop="local minimum")
print(ensemble)
print("ends at x1 > 0:", (ensemble.x[:, 0] > 0).sum(), " median number of steps:", int(np.median(ensemble.steps)))
print("length of a perturbation: at most", f"{algorithm.eta * algorithm.r:.2g}")
checked = verify.check_local_minimum(ensemble, saddle, eps=1e-3)
print(f"all are eps-local minima: {checked.verdict} ({checked.evidence}), |grad Phi| <= {checked.measured:.4f}")

# %% [markdown]
# On the landscape of $\Phi$: one run without noise from a start with $x_1 = 0.3$, one from $x_1 = 0$, and the hundred with noise from there.

# %%
figure, ax = plt.subplots(figsize=(8, 5.5), layout="constrained")
plot_landscape(saddle, ax, box={"x1": (-3, 3), "x2": (-1, 2)}, points=points)
plot_trajectories(solve(saddle, plain, [0.3, 1.5], steps=150), ax, label="no noise, x1 = 0.3")
plot_trajectories(stuck, ax, label="no noise, x1 = 0")
plot_trajectories(ensemble, ax, label="noise, x1 = 0")
ax.set_title("Down to the saddle point, and there stuck, or out to either side")
plt.show()

# %% [markdown]
# All hundred runs leave, about half to each side, after a push too small to be seen in the picture. The eigenvalues of the exact Hessian along the runs tell the same story: without noise
# the smallest stays at $-1$; with noise every run crosses into the region where $\Phi$ is convex.

# %%
figure, axes = plt.subplots(1, 2, figsize=(11, 4), layout="constrained")
plot_eigenvalues(stuck, axes[0]).set_title("without noise")
plot_eigenvalues(ensemble, axes[1]).set_title("with noise, 100 runs")
plt.show()

# %% [markdown]
# The same as a curve: a short descent, a plateau at the value of the saddle point, and the way out after the perturbation.

# %%
ax = plot_solution(ensemble, phi_min=-0.25)
ax.axhline(0.25, color="0.5", linestyle=":", linewidth=1)
ax.set_title("Gap to the minimum with noise (dotted: the value at the saddle point)")
plt.show()

# %% [markdown]
# Where would it go from elsewhere, or with another seed? `explore` asks with sliders for $x_0$, $\varepsilon$ and the seed, where ipywidgets is installed; on a page it is a picture.

# %%
explore(saddle, x0=[0.0, 1.5], points=points, box={"x1": (-3, 3), "x2": (-2, 2)})

# %% [markdown]
# ### The same on data
#
# Is such a point more than an example? Let each feature of a regression have a *scale* $x_j$, chosen so that rows which were held out are predicted well:
# $$g = \text{mean}\,\big(A(x \odot y) - b\big)^2/2 + |y|^2/20, \qquad f = \text{the same loss on rows held out.}$$
# At $x = 0$ no feature is in use, and since nothing changes with the sign of a scale, $\nabla\Phi(0) = 0$. Here are 442 patients and two of their ten features, so that $\Phi$ can be drawn:

# %%
training, held_out = standard(alternate(table("diabetes"), 442))
A, B = training.features[:, [2, 8]], held_out.features[:, [2, 8]]
b, c = ((part.targets - training.targets.mean()) / training.targets.std() for part in (training, held_out))
scales = BilevelProblem(
    f="mean((B @ (x*y) - c)**2)/2",
    g="mean((A @ (x*y) - b)**2)/2 + y @ y/20",
    x="x[n]",
    y="y[n]",
    data={"A": A, "b": b, "B": B, "c": c},
    box={"x": (-1.5, 1.5), "y": (-3, 3)},
    name="two scales",
)
print("eigenvalues of Hess Phi at 0:", np.linalg.eigvalsh(scales.kernels.hess_phi(np.zeros(2))).round(2))
noisy = Perturbed.auto(scales)
still = solve(scales, Descent(noisy.estimator, noisy.eta), np.zeros(2), steps=200)
twenty = solve(scales, noisy, np.zeros((20, 2)), steps=5000, rng=0, stop="local minimum")
print("without noise:", still.x, "after", still.steps, "steps")
print("with noise:   ", twenty, "near |x| =", *np.unique(np.abs(twenty.x).round(1), axis=0))
print("Phi: from", round(float(scales.kernels.phi(np.zeros(2))), 3), "to", round(float(twenty.phi.max()), 3), "at most")

# %% [markdown]
# Four minima, mirror images of one regression, around a point from which every direction goes down and where no gradient says so. The valleys are flat: a run ends at an $\varepsilon$-local minimum, $\varepsilon = 10^{-3}$, a little before the lowest place.

# %%
figure, ax = plt.subplots(figsize=(7, 5.5), layout="constrained")
plot_landscape(scales, ax)
plot_trajectories(twenty, ax, label="noise, x = 0")
ax.set_title("Scales of two features of 442 patients; twenty runs from x = 0")
plt.show()

# %% [markdown]
# ## 4. Does a run do what the algorithm and the lemmas say?
#
# `check_trajectory` takes the arrays of a run (ours or user-supplied) and holds them against Algorithm 1 line by line, and against the lemmas about it, with constants certified
# over the hull of the run. `plot_error` draws the error of every estimate beside what Lemma B.1 allows.

# %%
noise = algorithm.eta, algorithm.eps, algorithm.r, algorithm.T_escape
figure, axes = plt.subplots(1, 2, figsize=(12, 4.5), layout="constrained")
for ax, (D, N) in zip(axes, ((20, 2), (200, 8)), strict=True):
    run = solve(saddle, Perturbed(AID(D, N, tau=1 / 13), *noise), [0.0, 1.5], steps=160, rng=1)
    print(f"D = {D}, N = {N}")
    for result in verify.check_trajectory(run, saddle).results:
        said = "" if result.verdict == "HOLDS" else result.message.split(";")[0]
        print(f"  {result.label:31} {result.part:14} {result.verdict:14} {said}".rstrip())
    plot_error(run, saddle, ax)
    ax.set_title(f"D = {D}, N = {N}: error of the estimate, and Lemma B.1")
plt.show()

# %% [markdown]
# Every step follows the rules. With $D = 20$ the lemma bounds each estimate by the warm start it began with; its bound for the whole run wants $D$ and $N$ that halve the error of the warm start, which $D = 200$, $N = 8$ do. There the error
# is so far below the bounds that the verdict is INCONCLUSIVE: a bound a million times too large is not tested by a run that keeps below it, and is not reported as if it were.
#
# ## 5. The paper's figure, in small
#
# Section 5 of the paper runs Algorithm 1 ("PBO") and AID without noise ("BO") on a tube: $d$ saddle points in a row, then one minimum. The paper gives the step size $0.05$ and
# 1000 iterations; $\gamma$, $L$ and $d$ can be read from the names of its LaTeX labels alone, and $\varepsilon$, $r$, $\mathcal T$, $D$ and $N$ nowhere. Here are two dimensions, two values of $L$ and ten seeds; `bilevel-sym reproduce figure1` draws all of it.

# %%
small = figure1.compute(figure1.Settings(dimensions=(2, 5), curvatures=(1.0, 2.0), steps=500, seeds=10))
for panel in small.panels:
    arrived = f"at the minimum: PBO {panel.PBO.arrived:4.0%}, BO {panel.BO.arrived:4.0%} of runs"
    print(f"{panel.title}: {arrived}; saddle points ahead of BO (median): {panel.BO.ahead:.0f}")
print(f"smallest coordinate at the end of a BO run: {min(p.BO.smallest for p in small.panels):.0e}")
figure1.draw(small)

# %% [markdown]
# What the text says of these curves, "nearly a step function", as numbers; and what the settings that the paper does not give change, one at a time.

# %%
print(small.claim)
figure1.draw_settings(small)

# %% [markdown]
# The curves fall in steps, from saddle point to saddle point (dotted). With two saddle points both methods arrive; with five, BO does not within 500 iterations. The smallest coordinate is tiny, but far
# above the least positive number $5\cdot10^{-324}$: BO is slow here, and not the victim of an underflow.
#
# ## 6. What the figure does not test
#
# **Inexact hypergradients.** The theory is about gradients that are only estimated. In this experiment they are exact: $g_{yy} = 1$, and the estimate $f_x - g_{xy}v$ does not contain $y$ at all.
# So neither $D$ nor $N \ge 1$ changes anything:

# %%
found = small.independence
print("choices of (D, N):", *found.inner, "  largest difference of any iterate:", found.moved)
labels = ["unlabelled:lower-level-function", "unlabelled:tube-domain", "eq: tube_f"]
report = verify.run(zoo.get("tube_printed", d=2).problem, claims=labels)
for result in report.results:
    print(f"{result.verdict:9} {result.evidence}: {result.part}: {result.message}")

# %% [markdown]
# **The assumptions.** The last lines are proofs: the printed $f$, $g$ and $y^*$ jump where regions meet (their $\Phi$ does not), and a perturbation can leave the printed domain.
# The zoo has the tube as it is printed, and the same $\Phi$ extended to all of $\mathbb R^d$, in which runs can go on:

# %%
figure, axes = plt.subplots(1, 2, figsize=(12, 5.2), layout="constrained")
starts = np.random.default_rng(0).uniform(-1, 1, (20, 2))
pbo = Perturbed(AID(D=1, N=1, tau=0.05), eta=0.05, eps=1.0, r=10.0, T_escape=50)
for ax, name in zip(axes, ("tube_printed", "tube"), strict=True):
    example = zoo.get(name, d=2)
    runs = solve(example.problem, pbo, starts, steps=300, rng=0)
    print(f"{name:13} {runs}")
    plot_landscape(example.problem, ax, box={"x1": (-15, 15), "x2": (-15, 15)}, points=example.stationary_points)
    plot_trajectories(runs, ax)
outside = 1 - figure1.in_printed_domain(runs.trajectory.x).mean()
print(f"of all iterates in the extended tube {outside:.0%} are outside the printed domain")
axes[0].set_title("as printed: defined in part of one quadrant")
axes[1].set_title("extended to all of the plane")
plt.show()

# %% [markdown]
# "Not finite" says that a run stood where the printed $\Phi$ is not defined: most of the starts in $[-1, 1]^2$ already do. In the extended tube all runs go on, to one of four mirror images of the minimum.
#
# **What inexact estimates do.** `tube_coupled` puts the same $\Phi$ behind a lower level with condition number $\kappa$: there $D$ and $N$ leave an error. `figure2` of `reproduce` is this experiment at full size.

# %%
inexact = coupled.compute(coupled.Settings(d=3, inner=(1, 5, 20, 50), products=(1, 3), steps=200, seeds=8))
for inexact_run in inexact.along("PBO", 3)[1:]:
    error, settled = inexact_run.error, inexact_run.fraction
    print(f"D = {inexact_run.D:2}, N = 3: error {error:5.2f} (root mean square), {settled:.0%} of runs settle")
for outcome in inexact.exact:
    print(f"exact hypergradients: {outcome.method:3} settles in {outcome.fraction:.0%} of runs")
coupled.draw(inexact)

# %% [markdown]
# Two lessons that the paper's experiment cannot teach. With $D = 1$ noise does not help, since the method then follows something that is not $\nabla\Phi$. And with more inner steps BO settles as well, where with *exact*
# gradients it does not within the budget: the error of the estimate is a perturbation, too.
#
# **How the cost grows.** Corollary 2.6 bounds the oracle calls by powers of $1/\varepsilon$ and of $\kappa$. A family of saddle points in which both can be set, each end point checked:

# %%
accuracies = (1e-1, 3e-2, 1e-2, 3e-3, 1e-3)
settings = complexity.Settings(d=3, accuracies=accuracies, fit_below=1e-2, conditions=(2, 4, 8), seeds=7)
growth = complexity.compute(settings)
print(complexity.findings(growth)[0])
complexity.draw(growth)

# %% [markdown]
# The measured slopes stay below the exponents of the corollary (in brackets), as they must. They say nothing about whether the corollary is sharp: for that one would need the worst problem, and this is one problem.
#
# ## 7. What the theorem itself asks for
#
# Theorem 2.5 turns constants into parameters. We take the constants of the box (certified) and $\varepsilon = 0.1$, $\delta = 0.1$:

# %%
constants = verify.constants(saddle).upper
with warnings.catch_warnings(record=True) as raised:
    warnings.simplefilter("always")
    schedule = schedules.perturbed_aid(constants, eps=0.1, delta=0.1, d=2)
print("warning:", *[str(w.message) for w in raised])
print(f"{'':12}{'theorem':>12}{'practice':>12}")
for name in ("eta", "r", "T_escape"):
    print(f"{name:12}{getattr(schedule, name):12.3g}{getattr(algorithm, name):12.3g}")
for name in ("D", "N"):
    print(f"{name:12}{getattr(schedule, name):12d}{getattr(algorithm.estimator, name):12d}")
print(f"the eigenvalue that an eps-local minimum may have: {-np.sqrt(schedule.rho_phi * schedule.eps):.0f}")

# %% [markdown]
# $10^{15}$ iterations are out of reach. Worse, they would be in vain: with the theory's own $\rho_\phi$ a point counts as an $\varepsilon$-local minimum as long as its smallest eigenvalue is above the number in the last line. Ours is $-1$, so by that
# yardstick the saddle point *is* an $\varepsilon$-local minimum, and the theorem promises nothing. One escape with exactly these parameters shows it:

# %%
literal = solve(saddle, schedule.algorithm(), np.zeros((50, 2)), steps=schedule.T_escape + 1, rng=0)
print(f"50 literal escapes: Phi moved by at most {np.abs(literal.phi).max():.0e}")
print(f"where the theorem promises an escape, it falls by at least {schedule.F_escape / 2:.0e}")
smoothness = verify.smoothness(saddle)
print(f"rho_phi by the formula: {smoothness.rho_phi_formula:.2g}; truly, certified: {smoothness.rho_phi}")
print(f"with the true one the saddle point is told from a minimum for every eps < {1 / smoothness.rho_phi.upper:.3f}")

# %% [markdown]
# The theorem is not wrong: it is the constants of the formula that are far too large (notebook 4 is about that). With certified $L_\phi$ and $\rho_\phi$ in their place its parameters can be run, and the verifier does so:

# %%
report = verify.run(saddle, claims=["lem:escapesaddle", "thm:aid"])
for result in report.results:
    if result.evidence == "statistical":
        runs = result.message.split(";")[0]
        chance = f"fails with probability < {result.measured:.1%} ({result.confidence:.0%} confidence)"
        print(f"{result.label}, {result.part}: {result.verdict}: {runs}; {chance}, claimed {result.bound:.0%}")

# %% [markdown]
# ## 8. The way down, by iNEON
#
# Noise is one way out. Algorithm 2, iNEON, looks for the direction: it runs the differences $u \leftarrow u - \eta(\hat\nabla\Phi(x+u) - \hat\nabla\Phi(x))$ from a tiny random $u$, a power method that never forms a Hessian.
# On a rotated saddle point in four variables its answer can be compared with the eigenvector ($|\cos|$ is that of the angle between them):

# %%
rotated = complexity.Family(4, sp.Integer(4)).problem
origin = np.zeros(4)
eigenvalues, vectors = np.linalg.eigh(rotated.kernels.hess_phi(origin))
neon = INeon.auto(rotated, x0=origin)
print("eigenvalues of Hess Phi:", eigenvalues.round(3))
for seed in range(4):
    u = neon.direction(rotated, origin, rng=seed)
    curvature = float(u @ rotated.kernels.hess_phi(origin) @ u)
    print(f"seed {seed}: u = {u.round(4)}, |cos| = {abs(u @ vectors[:, 0]):.8f}, curvature {curvature:.6f}")
minimum = solve(rotated, Descent(neon.estimator, neon.eta), 0.1 * vectors[:, 0], steps=2000).x
print("at a minimum:", neon.direction(rotated, minimum, rng=0))

# %% [markdown]
# The curvature is $-1$ to many digits, and at a minimum iNEON finds nothing, which is how Algorithm 3 knows that it is done (notebook 9).
#
# | question | call |
# | --- | --- |
# | Where are the saddle points? | `verify.stationary_points(problem, box)` |
# | Run with noise | `solve(problem, Perturbed.auto(problem), x0, stop="local minimum")` |
# | Is this an ε-local minimum? | `verify.check_local_minimum(x, problem, eps=...)` |
# | Did the run follow the rules? | `verify.check_trajectory(run, problem)` |
# | The theorem's parameters | `schedules.perturbed_aid(constants, eps=..., delta=..., d=...)` |
