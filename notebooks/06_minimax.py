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
# # Minimax: Nash, local minimax, and the equivalence
#
# In a game $\min_x \max_y f(x, y)$ the lower level wants the opposite of the upper one: it is a bilevel problem with $g = -f$. If $f$ is strongly concave in $y$ there is one best answer $y^*(x)$, and
# $$\Phi(x) = \max_y f(x, y) = f(x, y^*(x)), \qquad \nabla\Phi = f_x, \qquad \nabla^2\Phi = f_{xx} - f_{xy} f_{yy}^{-1} f_{yx}.$$
#
# What should count as a solution? The paper compares three notions at a stationary point, all by second derivatives (this is what *strict* means here), $f_{yy} < 0$ being given:
#
# | notion | condition | who may move |
# | --- | --- | --- |
# | strict local Nash equilibrium | $f_{xx} > 0$ | $x$ or $y$, the other one stays |
# | strict local minimax point | $f_{xx} - f_{xy} f_{yy}^{-1} f_{yx} > 0$ | $x$, and $y$ answers |
# | local minimum of $\Phi$ | $\nabla^2\Phi > 0$ is enough | $x$, and $y$ answers |
#
# This notebook classifies games by certificates, proves the equivalence of the last two on them, lets GDmax play, and measures how sharp the constants of Lemma C.1 are.

# %%
import warnings

import matplotlib.pyplot as plt
import numpy as np

from bilevel_sym import (
    Descent,
    GDmax,
    LocalMinimum,
    MinimaxConstants,
    MinimaxProblem,
    Perturbed,
    derive,
    paper,
    schedules,
    solve,
    verify,
    zoo,
)
from bilevel_sym.plotting import plot_game, plot_landscape, plot_moves, plot_trajectories
from verify.plotting import plot_error, plot_looseness

# %% [markdown]
# ## 1. Three games
#
# The zoo has one game for each case. `classify` refines a point to a certified stationary point and decides all notions with proof.

# %%
games = [zoo.get(name) for name in ("minimax_nash", "minimax_not_nash", "minimax_degenerate")]
for game in games:
    found = verify.classify(game.problem, [0])
    f_xx = game.problem.kernels.f_xx([0.0], [0.0])[0, 0]
    print(f"{game.name:19} f = {game.problem.f!s:23} Phi = {game.phi!s:9} f_xx = {f_xx:4.1f}")
    print(f"{'':19} {found.kind}; strict Nash: {found.is_local_nash}; strict minimax: {found.is_local_minimax}")

# %% [markdown]
# The plane of each game: colours for $f$, the dashed line for the best answer $y^*(x)$, and a mark for the stationary point of $\Phi$.

# %%
figure, axes = plt.subplots(1, 3, figsize=(14, 4.6), layout="constrained")
for ax, game in zip(axes, games, strict=True):
    plot_game(game.problem, ax, points=game.stationary_points)
plt.show()

# %% [markdown]
# Read a picture along two lines through the origin. Along $y = 0$, where the opponent stays, $f$ rises to both sides in the first game and falls in the second: there the origin is no Nash equilibrium, $x$ would rather move.
# Along the dashed line, where the opponent answers, $f$ rises in both: the origin is a minimum of $\Phi$. In the third game $\Phi = x^4$ has a minimum that second derivatives cannot see; the strict notions say no.
#
# ## 2. The equivalence
#
# Proposition 3.4 `[lem:equivalence]` says that strict local minimax points and local minima of $\Phi$ are the same; Proposition 3.2 `[pro:minimax]` that no saddle point of $\Phi$ is a strict local Nash equilibrium, while
# every such equilibrium is a minimum of $\Phi$. `verify.run` decides such statements at all stationary points of a box and at others:

# %%
for game in games:
    for result in verify.run(game.problem, claims=["lem:equivalence", "pro:minimax"]).results:
        decided = result.message.split("; ")[1]
        print(
            f"{game.name:19} {paper.cite(result.label):33} {result.part:4} {result.verdict} ({result.evidence}): {decided}"
        )

# %% [markdown]
# As printed the equivalence says too much. A strict local minimum need not have $\nabla^2\Phi > 0$, as the third game shows; the errata have a witness, and `check` computes it:

# %%
erratum = next(e for e in verify.errata() if "lem:equivalence" in e.labels)
print("printed:  ", erratum.printed)
print("corrected:", erratum.corrected)
print(erratum.check())

# %% [markdown]
# ## 3. A game without any Nash equilibrium
#
# An example of our own. Everywhere in the box, $y$ has one best answer; and no stationary point is a Nash equilibrium:

# %%
no_nash = MinimaxProblem("x**4/4 - 5*x**2/2 + 2*x*y - y**2/2", "x", "y", box={"x": (-3, 3), "y": (-5, 5)})
points = verify.stationary_points(no_nash, no_nash.box)
print("y* =", derive(no_nash).y_star[0], "  Phi =", derive(no_nash).phi)
for point in points:
    print(verify.classify(no_nash, point.x))

# %% [markdown]
# How does one get to $x = 1$? With equal steps for both players, one at a time (gradient descent-ascent), the point repels: the linearised dynamics
# $\dot x = -f_x,\ \dot y = f_y$ have eigenvalues with positive real part there.

# %%
k = no_nash.kernels
at = [1.0], [2.0]
dynamics = np.block([[-k.f_xx(*at), -k.f_xy(*at)], [k.f_xy(*at).T, k.f_yy(*at)]])
print("eigenvalues of the dynamics at (1, 2):", np.linalg.eigvals(dynamics).round(4))

# %% [markdown]
# GDmax lets $y$ take $D$ steps of ascent before $x$ moves. With $D = 1$ and equal steps it is descent-ascent; with $D = 20$ the answer is nearly $y^*(x)$ and $x$ descends on $\Phi$:

# %%
figure, axes = plt.subplots(1, 2, figsize=(13, 5.2), layout="constrained")
for ax, D in zip(axes, (1, 20), strict=True):
    run = solve(no_nash, Descent(GDmax(D=D, tau=0.05), eta=0.05), [[0.9], [-2.5]], y0=[[1.8], [4.0]], steps=600)
    plot_game(no_nash, ax, points=points)
    plot_moves(run, ax, label=f"GDmax, D = {D}")
    ax.set_title(f"D = {D} ascent step{'s' if D > 1 else ''} for each descent step")
    last = run.trajectory.x[:, -200:, 0]
    print(f"D = {D:2}, over the last 200 steps:", *[f"x in [{x.min():.3f}, {x.max():.3f}]" for x in last])
plt.show()

# %% [markdown]
# With $D = 1$ the game circles around both minima, even from a start next to one of them; with $D = 20$ it settles. The theory of perturbed GDmax asks for a $D$ of the second kind: of order $\kappa\log(1/\varepsilon)$.
#
# ## 4. A saddle point of $\Phi$, and how to leave it
#
# In two variables $\Phi$ can have a strict saddle point. Started on its stable side, GDmax walks into it. Perturbed GDmax (Algorithm 1 with this estimator) does not stay.

# %%
double = MinimaxProblem(
    "x1**4/4 - 5*x1**2/2 + 2*x1*y1 - y1**2/2 + x2*y2 - y2**2/2",
    "x1 x2",
    "y1 y2",
    box={"x1": (-2, 2), "x2": (-2, 2), "y1": (-4, 4), "y2": (-2, 2)},
    name="double game",
)
points = verify.stationary_points(double, double.box)
for point in points:
    print(verify.classify(double, point.x))
algorithm = Perturbed.auto(double)
stuck = solve(double, Descent(algorithm.estimator, algorithm.eta), [0.0, 1.5], steps=700)
ensemble = solve(double, algorithm, np.tile([0.0, 1.5], (50, 1)), steps=2000, rng=0, stop="local minimum")
verdict = verify.check_local_minimum(stuck, double, eps=1e-3)
print("GDmax:          ", verdict.message.splitlines()[0], "at", stuck.x.round(6))
print("perturbed GDmax:", ensemble, f"{(ensemble.x[:, 0] > 0).sum()} of them at x1 = 1")

# %% [markdown]
# Both from $(0, 1.5)$, on the landscape of $\Phi$:

# %%
figure, ax = plt.subplots(figsize=(8, 6), layout="constrained")
plot_landscape(double, ax, points=points)
plot_trajectories(stuck, ax, label="GDmax")
plot_trajectories(ensemble, ax, label="perturbed, 50 runs")
ax.set_title(r"$\Phi$ of the double game: the saddle point, with noise and without")
plt.show()

# %% [markdown]
# The minima are local minimax points and no Nash equilibria: a method that looks for Nash equilibria would find nothing here.
#
# ## 5. The constants of Lemma C.1
#
# Lemma C.1 `[lemC.1]`: if $f$ is $\mu$-strongly concave in $y$ and its derivatives have Lipschitz constants $\ell$ and $\rho$, then $L_\phi = \ell(1 + \kappa)$ and $\rho_\phi = \rho(1 + \kappa)^3$ do for $\Phi$. Where $\ell$ and $\rho$ bound all of the
# Hessian of $f$ and all of its third derivatives ("joint" reading), $\ell\kappa$ and $\rho\kappa^3$ do: $|(I, \mathrm{d}y/\mathrm{d}x)| \le \kappa$. Certified truth beside both:

# %%
problems = [*(game.problem for game in games), double]
print(f"{'':19}{'sup |Hess Phi|':>16}{'ell kappa':>12}{'ell (1 + kappa)':>17}")
for problem in problems:
    joint = verify.constants(problem, reading="joint").upper
    c = MinimaxConstants(joint.mu, joint.ell, joint.rho)
    truth = verify.smoothness(problem).L_phi
    print(f"{problem.name:19}{truth.upper:16.4f}{c.L_phi(variant='sharp'):12.4f}{c.L_phi():17.4f}")

# %% [markdown]
# In the first game $\ell\kappa$ is attained: no smaller formula in $\mu$ and $\ell$ can be right. How far the truth and the lemma are apart for $\rho_\phi$ too and on data (where $\Phi$ is quadratic both are zero, and drawn at 1):

# %%
robust = zoo.get("robust_regression").problem
near = {"x1": (-0.9, -0.1), "x2": (0.3, 0.6)}
found = {problem.name: verify.smoothness(problem) for problem in problems}
found["robust_regression"] = verify.smoothness(robust, near)
plot_looseness(found)
plt.show()

# %% [markdown]
# The cube $(1+\kappa)^3$ is what makes $\rho_\phi$ loose. It enters the parameters of Theorem 3.7:

# %%
c = verify.constants(double).upper
with warnings.catch_warnings(record=True) as raised:
    warnings.simplefilter("always")
    schedule = schedules.perturbed_gdmax(MinimaxConstants(c.mu, c.ell, c.rho, M_x=c.M), eps=0.1, delta=0.1, d=2)
print("warning:", *[str(w.message) for w in raised])
print(f"theorem:  eta = {schedule.eta:.2g}, r = {schedule.r:.2g}, D = {schedule.D}, T = {schedule.T_escape}")
print(
    f"practice: eta = {algorithm.eta:.2g}, r = {algorithm.r:.2g}, D = {algorithm.estimator.D}, T = {algorithm.T_escape}"
)

# %% [markdown]
# Lemma C.2 `[lem:grad-err-mini]` bounds the error of the estimate $f_x(x, y^D)$. With the lemma's $\tau = 1/\ell$, along a run that leaves the saddle point:

# %%
by_the_lemma = Perturbed(GDmax(D=20, tau=1 / 7), eta=0.05, eps=1e-2, r=1e-2, T_escape=100)
run = solve(double, by_the_lemma, [0.0, 1.5], steps=300, rng=0)
for result in verify.check_trajectory(run, double).results:
    if result.label == "lem:grad-err-mini":
        print(
            f"{paper.cite(result.label)}, {result.part}: {result.verdict}, at most {result.tightness:.1%} of the bound"
        )
plot_error(run, double)
plt.show()

# %% [markdown]
# ## 6. An adversary in the data
#
# `robust_regression` fits a line to iris rows (petal width against petal length) while an adversary shifts weight to the rows that are fitted worst. $\Phi$ is convex, so there is one stationary point; the certificate says that it is
# a Nash equilibrium too. The step is $1/L_\phi$, with $L_\phi$ certified over the window.

# %%
(point,) = verify.stationary_points(robust, robust.box)
print(verify.classify(robust, point.x))
eta = 1 / found["robust_regression"].L_phi.upper
starts = [[-0.8, 0.55], [-0.2, 0.35], [-0.2, 0.45]]
runs = solve(robust, Descent(GDmax(D=20, tau=1.0), eta), starts, steps=20_000, stop=LocalMinimum(1e-3))
print(runs, "after", *runs.steps, "steps")
print("weights of the six rows at the end:", runs.y[0].round(3), "(1/6 each without an adversary)")
figure, ax = plt.subplots(figsize=(8, 5.5), layout="constrained")
plot_landscape(robust, ax, box=near, points=[point])
plot_trajectories(runs, ax, label="GDmax")
plt.show()

# %% [markdown]
# The valley is narrow: the larger eigenvalue at the minimum is almost two hundred times the smaller. Hence the many steps along its floor.
#
# ## 7. Is your minimax gradient right?
#
# $\nabla\Phi = f_x(x, y^*(x))$ has no implicit term, so the only way to go wrong is $y$. `check_hypergradient` takes your function; where it has a parameter `D` its convergence is judged, and where it is wrong the cause is named.


# %%
def gdmax_gradient(x, D=10):
    y = np.zeros(2)
    for _ in range(D):
        y = y + 0.5 * np.array([2 * x[0] - y[0], x[1] - y[1]])
    return np.array([x[0] ** 3 - 5 * x[0] + 2 * y[0], y[1]])


def forgetful_gradient(x):
    return gdmax_gradient(x, D=0)


print("GDmax, as D grows:", verify.check_hypergradient(gdmax_gradient, double).verdict)
print(verify.check_hypergradient(forgetful_gradient, double))

# %% [markdown]
# | question | call |
# | --- | --- |
# | Nash? minimax? | `verify.classify(problem, x)` |
# | Does the equivalence hold here? | `verify.run(problem, claims=["lem:equivalence"])` |
# | Play | `solve(problem, Perturbed.auto(problem), x0)`, or `Descent(GDmax(D, tau), eta)` |
# | Constants of Lemma C.1 | `MinimaxConstants(mu, ell, rho)`, certified: `verify.constants`, `verify.smoothness` |
