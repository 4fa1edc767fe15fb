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
# # The bug gallery
#
# A hypergradient can be wrong for years and nobody notices: the loss still goes down. This notebook begins with one wrong
# line that ordinary tests do not find. Then it goes through the classes of such defects, each a program that differs in one line
# from a right one; then it asks what finite differences see of them, and what they do not; and it ends with the line that
# puts all of this into your own tests.
#
# The setting is
# $$\min_x \Phi(x) = f(x, y^*(x)), \qquad y^*(x) = \arg\min_y g(x, y), \qquad
# \nabla\Phi = f_x - g_{xy} v, \quad g_{yy} v = f_y ,$$
# where $x$ has $d$ and $y$ has $n$ variables, subscripts are derivatives ($g_{xy}$ is the $d \times n$ block of mixed second derivatives),
# and $v$ solves a linear system. Every loss that is drawn is the exact value of $\Phi$, not what the defective program believes.

# %%
import re

import matplotlib.pyplot as plt
import numpy as np

from bilevel_sym import ITD, verify, zoo
from bilevel_sym.plotting import COLOURS, legend_below, plot_differences
from verify import gallery
from verify.gallery.defect import coupled, isotropic, saddle, spread
from verify.testkit.problem_cases import generated_cases, zoo_cases

plt.rcParams.update({"font.size": 9, "axes.titlesize": 9, "axes.spines.top": False, "axes.spines.right": False})

exhibits = {item.name: item for item in gallery.defects()}
wrong = {name: item.candidate(item.showcase()) for name, item in exhibits.items()}
print(len(exhibits), "exhibits")


def show(result):
    """Print a verdict, without the last digits and orders, in which processors differ."""
    print(re.sub(r" \(explains the error to \d+ digits\)", "", str(result).partition("\n  Taylor")[0]))


# %% [markdown]
# ## One wrong line
#
# Here is a hypergradient that solves $g_{yy} v = f_y$ by conjugate gradients. Read the loop; a comment marks the line. Would you have
# found it without?

# %%
dropped = exhibits["last CG iterate dropped"]
print(dropped.source())

# %% [markdown]
# The loop leaves *before* it stores the newest $v$, so the last step of conjugate gradients is lost. A careful author tests
# this: a random problem with 30 lower variables, five random points, and the exact gradient to compare with.

# %%
random_problem = zoo.get("quadratic", d=2, n=30, spectrum=30).problem  # eigenvalues of g_yy spread from 1 to 30
points = np.random.default_rng(0).uniform(-1, 1, (5, 2))
returned = np.array([dropped.candidate(random_problem)(x) for x in points])
truth = random_problem.kernels.grad_phi(points)
errors = np.linalg.norm(returned - truth, axis=1) / np.linalg.norm(truth, axis=1)
print("every relative error below 1e-9:", bool((errors < 1e-9).all()))

# %% [markdown]
# The test is green. When there are many different eigenvalues the last step is tiny: it only polishes. But conjugate gradients
# need as many steps as $g_{yy}$ has different eigenvalues, so with few of them each step is large, and with
# one (whitened data, $g_{yy} = 2I$) the dropped step is *all* of $v$. On the right, a descent on such a problem:
# it believes that the implicit term is zero, and walks uphill.

# %%
figure, (left, right) = plt.subplots(1, 2, figsize=(9, 3.2), layout="constrained")
sizes = (1, 2, 3, 5, 10, 15, 20, 30)
for n in sizes:
    problem = zoo.get("quadratic", d=2, n=n, spectrum=n if n > 1 else "isotropic").problem
    truth, found = problem.kernels.grad_phi(points), np.array([dropped.candidate(problem)(x) for x in points])
    error = np.linalg.norm(found - truth, axis=1) / np.linalg.norm(truth, axis=1)
    left.semilogy(np.full(5, n), error, "o", color=COLOURS[1], markersize=4, label="at five points" if n == 1 else None)
left.axhline(1e-9, color="black", linestyle=":", label="tolerance of the test")
left.set(
    xlabel="number $n$ of lower variables, and of different eigenvalues of $g_{yy}$",
    ylabel="relative error of $\\nabla\\Phi$",
    title="The same wrong line on eight problems",
)
left.legend(frameon=False)

start, problem = (0.75, -0.5), isotropic()
good = gallery.descent(gallery.right(problem)["conjugate gradients"], problem, start, steps=40, eta=0.15)
gallery.plot_descents(good, gallery.descent(dropped, problem, start, steps=40, eta=0.15), right, title="$g_{yy} = 2I$")
plt.show()

# %% [markdown]
# The line that finds it needs no tolerance and no reference of your own. The truth is certified, the verdict names the point that is worst, and
# the last lines say where to look:

# %%
show(verify.check_hypergradient(wrong["last CG iterate dropped"], coupled()))

# %% [markdown]
# ## The right programs
#
# A check that says no to everything finds all defects. So the first exhibits are right programs, on the problem
# that most of the others hang on: $d = n = 2$, a condition number of $g_{yy}$ between 4 and 10, a mixed block
# $g_{xy}$ that is not symmetric, and third derivatives of every kind. They solve the lower level by Newton's
# method or by gradient steps, and the linear system by factorisation, conjugate gradients or a Neumann series; one unrolls
# the gradient steps and one keeps its lower-level solution from call to call. The check has nothing to say against any of them.

# %%
problem = coupled()
for name, candidate in gallery.right(problem).items():
    print(f"{name:20}", verify.check_hypergradient(candidate, problem, points=points).verdict)

# %% [markdown]
# # The classes
#
# For each exhibit: a sentence on how it looks from outside (and where programs of its class were seen), the line that is wrong,
# the line that finds it, and what that line prints. The pictures show the loss along a descent that believes the
# program, beside the loss of the right one.
#
# The first verdict is printed whole. Its last lines say to how many digits the suspicion explains the error, and how the remainder of a Taylor expansion with the
# returned gradient behaves: with a right gradient it shrinks like $h^2$. For the others `show` leaves these out.
#
# ## Terms put together wrongly
#
# The hypergradient has two terms, the direct one $f_x$ and the implicit one $-g_{xy} v$. Either can be lost, weighted, turned
# round or exchanged. Most of these programs bring the loss down at first, some of them to a place that looks like a minimum.

# %%
gallery.plot_gallery([item for item in exhibits.values() if item.family == "terms"])
plt.show()

# %% [markdown]
# ### Implicit term halved
#
# The one half of a quadratic form, on a term that is none. The loss goes down, and settles where f_x balances half of the implicit term.
# Seen: a cross term weighted one half: published hypergradient code.
# ```python
# return k.f_x(x, y) - 0.5 * k.g_xy(x, y) @ v  # defect: 0.5
# ```

# %%
print(verify.check_hypergradient(wrong["implicit term halved"], problem))

# %% [markdown]
# ### Implicit term forgotten
#
# The partial derivative taken for the total one: the lower level's solution does not carry its gradient. The loss of y held fixed goes down; where f has no direct term nothing moves at all.
# Seen: its mark, a zero gradient: TorchOpt #222.
# ```python
# return k.f_x(x, y)  # defect: - g_xy v is missing
# ```

# %%
show(verify.check_hypergradient(wrong["implicit term forgotten"], problem))

# %% [markdown]
# ### Implicit term transposed
#
# g_yx v in the place of g_xy v. With d = n the shapes agree, and with a symmetric g_xy so do the numbers.
# ```python
# return k.f_x(x, y) - k.g_xy(x, y).T @ v  # defect: .T
# ```

# %%
show(verify.check_hypergradient(wrong["implicit term transposed"], problem))

# %% [markdown]
# ### Sign of the implicit term
#
# f_x + g_xy v: the minus of the implicit function theorem was lost. Where the direct term is the larger one, the loss goes down all the same.
# ```python
# return k.f_x(x, y) + k.g_xy(x, y) @ v  # defect: +
# ```

# %%
show(verify.check_hypergradient(wrong["sign of the implicit term"], problem))

# %% [markdown]
# ### Direct term forgotten
#
# -g_xy v alone. Right wherever f depends on x through y alone, as in most hyperparameter problems.
# ```python
# return -k.g_xy(x, y) @ v  # defect: f_x is missing
# ```

# %%
show(verify.check_hypergradient(wrong["direct term forgotten"], problem))

# %% [markdown]
# ### Factor two
#
# Twice the truth, from a square that was differentiated without its one half. The right direction: the loss goes down, and a smaller step size hides everything.
# ```python
# return 2 * (k.f_x(x, y) - k.g_xy(x, y) @ v)  # defect: 2
# ```

# %%
show(verify.check_hypergradient(wrong["factor two"], problem))

# %% [markdown]
# ### Order of arguments
#
# The derivatives of f taken at (y, x). No error where d = n; the loss goes down at first and settles elsewhere.
# ```python
# v = np.linalg.solve(k.g_yy(x, y), k.f_y(y, x))  # defect: (y, x)
# ```

# %%
show(verify.check_hypergradient(wrong["order of arguments"], problem))

# %% [markdown]
# ### f in the place of g
#
# The mixed derivative of the upper level where that of the lower level belongs. Shapes agree, so nothing is raised; the implicit term is small where f hardly mixes x and y.
# ```python
# return k.f_x(x, y) - k.f_xy(x, y) @ v  # defect: f_xy
# ```

# %%
show(verify.check_hypergradient(wrong["f in the place of g"], problem))

# %% [markdown]
# ## The inverse applied wrongly
#
# Between $f_y$ and $v$ stands a linear system. Solvers for it are short loops, and short loops are where an iterate is lost.

# %%
gallery.plot_gallery([item for item in exhibits.values() if item.family == "inverses"])
plt.show()

# %% [markdown]
# ### Last CG iterate dropped
#
# The loop leaves before the newest iterate is stored. Hardly visible on random problems with many eigenvalues; for g_yy = 2 I the implicit term vanishes.
# Seen: three published libraries share it.
# ```python
# break  # defect: stands before the next line
# ```

# %%
show(verify.check_hypergradient(wrong["last CG iterate dropped"], problem))

# %% [markdown]
# ### CG step size missing
#
# The residual is updated as if the step size were 1. v has the right order of magnitude after a few steps, and the loss goes down.
# Seen: a CG step size missing from the residual update: published hypergradient code.
# ```python
# new = r - Ap  # defect: alpha is missing
# ```

# %%
show(verify.check_hypergradient(wrong["CG step size missing"], problem))

# %% [markdown]
# ### CG without a guard
#
# A fixed number of steps, and no test for a residual of zero. Fine until the residual is exactly zero: then 0/0, and the run ends in nan.
# Seen: warm-started conjugate gradients whose start is already exact.
# ```python
# for _ in range(len(b)):  # defect: no test of r
# ```

# %%
show(verify.check_hypergradient(wrong["CG without a guard"], isotropic()))

# %% [markdown]
# ### Linear solver that rarely fails
#
# The residual is judged by one of its entries, which may be small by chance. Right at almost every point; a few points in a thousand have two digits.
# Seen: a default linear solver that is inaccurate on 0.4 % of points: published hypergradient code.
# ```python
# if abs(new[-1]) <= 1.2e-3 * norm(b):  # defect: an entry, not the norm; and too loose
# ```

# %%
candidate, x = wrong["linear solver that rarely fails"], np.random.default_rng(2).uniform(-1, 1, (1000, 2))
errors = np.linalg.norm([candidate(point) for point in x] - problem.kernels.grad_phi(x), axis=1)
show(verify.check_hypergradient(wrong["linear solver that rarely fails"], problem, points=x[[np.argmax(errors)]]))

# %% [markdown]
# ### Neumann: first term missing
#
# The sum starts at q = 1: no number of terms makes up for it. Converges as Q grows, but to v - eta f_y.
# Seen: a Neumann series with a term too few: published hypergradient code.
# ```python
# v = np.zeros_like(b)  # defect: the term of q = 0
# ```

# %%
show(verify.check_hypergradient(wrong["Neumann: first term missing"], problem))

# %% [markdown]
# ### Neumann: first term twice
#
# The sum starts at b and adds it again. Converges as Q grows, but to v + eta f_y.
# Seen: a Neumann series with a term too many: published hypergradient code.
# ```python
# v = v + term  # defect: stands before the next line
# ```

# %%
show(verify.check_hypergradient(wrong["Neumann: first term twice"], problem))

# %% [markdown]
# ### Neumann: step above 2/ell
#
# The series has a term that grows: |I - eta g_yy| > 1. Plausible for two or three terms; with more it explodes, and asking for more accuracy makes it worse.
# Seen: the outer step as the Neumann step: the paper's [est-vq].
# ```python
# return by_series(problem, neumann, 4 * step_size(problem), depth=10)  # defect: 4
# ```

# %%
show(verify.check_hypergradient(wrong["Neumann: step above 2/ell"], problem))

# %% [markdown]
# ### g_yy forgotten
#
# The identity in the place of the inverse: v = f_y. The loss goes down where g_yy is near a multiple of the identity.
# ```python
# return hypergradient(problem, inverse=lambda A, b: b)  # defect: np.linalg.solve(A, b)
# ```

# %%
show(verify.check_hypergradient(wrong["g_yy forgotten"], problem))

# %% [markdown]
# ### Diagonal for the inverse
#
# The preconditioner, taken for the solution. Exact for a separable lower level, and good where y hardly interacts.
# ```python
# return hypergradient(problem, inverse=lambda A, b: np.asarray(b / np.diag(A)))  # defect: np.linalg.solve
# ```

# %%
show(verify.check_hypergradient(wrong["diagonal for the inverse"], problem))

# %% [markdown]
# ## The system not solved to the end
#
# The loops are right, and end too early: after a number of steps, or at a tolerance, that was a default. On few eigenvalues nobody notices, for conjugate gradients end there by themselves.

# %%
gallery.plot_gallery([item for item in exhibits.values() if item.family == "systems"])
plt.show()

# %% [markdown]
# ### CG stops at a default tolerance
#
# The residual is small, so v is taken for solved. Exact on a few eigenvalues, where conjugate gradients end by themselves; elsewhere as many digits as it has.
# Seen: tolerances of 1e-5 that were taken over from scipy.sparse.linalg.cg: libraries for implicit differentiation.
# ```python
# return next(v for v in steps if norm(b - A @ v) <= 1e-3 * norm(b))  # defect: 1e-15
# ```

# %%
show(verify.check_hypergradient(wrong["CG stops at a default tolerance"], spread()))

# %% [markdown]
# ### CG on the normal equations
#
# g_yy^2 v = g_yy f_y, until its own residual is small. Right for well-conditioned g_yy; the condition is squared, and the tolerance is of another residual.
# Seen: the default of two libraries, which allow for a g_yy that is not symmetric.
# ```python
# square, right = A @ A, A @ b  # defect: A, b
# ```

# %%
show(verify.check_hypergradient(wrong["CG on the normal equations"], spread()))

# %% [markdown]
# ### One step of CG
#
# The number of iterations is left at its default. Exact where g_yy is a multiple of the identity, and of the right size elsewhere.
# Seen: a default of one iteration: betty-ml 0.1.1, cg_iterations.
# ```python
# return hypergradient(problem, inverse=lambda A, b: conjugate_gradients(A, b, 1))  # defect: 1
# ```

# %%
show(verify.check_hypergradient(wrong["one step of CG"], spread()))

# %% [markdown]
# ### CG with the old residual
#
# The new direction is made of the residual before the step. (0.6, 0.6) for g_yy = diag(1, 3) and f_y = (1, 1), where v = (1, 1/3); the first step is right.
# Seen: hypergrad 0.0.1; betty-ml 0.1.1, issue #15 of its repository.
# ```python
# p = r + (new @ new) / (r @ r) * p  # defect: r
# ```

# %%
show(verify.check_hypergradient(wrong["CG with the old residual"], coupled()))

# %% [markdown]
# ### Neumann: one step
#
# f_y and one more term. V is about 2 eta f_y whatever g_yy is: the direction is often good, the length is not.
# Seen: a default of one iteration: betty-ml 0.1.1, neumann_iterations.
# ```python
# return hypergradient(problem, inverse=lambda A, b: neumann(A, b, 2, eta))  # defect: 2
# ```

# %%
show(verify.check_hypergradient(wrong["Neumann: one step"], spread()))

# %% [markdown]
# ## The lower level not solved
#
# Everything is evaluated at $y^*(x)$, or should be. A program that stops earlier follows the gradient of another function;
# one that keeps $y$ from call to call depends on where it was before.

# %%
gallery.plot_gallery([item for item in exhibits.values() if item.family == "lower_levels"])
plt.show()

# %% [markdown]
# ### Unconverged lower level
#
# Five gradient steps from a fixed start, whatever the condition number. The loss that it sees, f(x, y_5), goes down and stays down, while Phi turns round and rises.
# ```python
# return gradient_descent(k, x, y, SMALL_STEPS, tau)  # defect: until convergence
# ```

# %%
show(verify.check_hypergradient(wrong["unconverged lower level"], problem))

# %% [markdown]
# ### Stale warm start
#
# y is carried from call to call, and makes one gradient step each time. It works while x moves slowly, and lags behind as soon as it does not; asked twice, it answers twice.
# ```python
# return gradient_descent(k, x, y, 1, tau)  # defect: until convergence
# ```

# %%
show(verify.check_hypergradient(wrong["stale warm start"], problem))

# %% [markdown]
# ### Tolerance too loose
#
# The lower level stops at |g_y| < 1e-4. Four digits everywhere: the loss goes down, until it stops a little too early.
# ```python
# return hypergradient(problem, lower=lambda k, x, y: descent_until(k, x, y, 1e-4, tau))  # defect: 1e-4
# ```

# %%
show(verify.check_hypergradient(wrong["tolerance too loose"], problem))

# %% [markdown]
# ### Lower level left at its start
#
# The solver is built, and never run. Nothing is raised: a function with a missing call returns what it was given.
# ```python
# return lambda x: start(problem)  # defect: newton(k, x, start(problem))
# ```

# %%
show(verify.check_lower_solution(wrong["lower level left at its start"], problem))

# %% [markdown]
# ### Lower level: five steps
#
# Five gradient steps, whatever the condition number. y is on its way: one digit, and more where the start is near.
# ```python
# return lambda x: gradient_descent(k, x, start(problem), SMALL_STEPS, tau)  # defect: until convergence
# ```

# %%
show(verify.check_lower_solution(wrong["lower level: five steps"], problem))

# %% [markdown]
# ### Lower level: loose tolerance
#
# It stops at |g_y| < 1e-4. Four digits at every point, and no warning.
# ```python
# return lambda x: descent_until(k, x, start(problem), 1e-4, tau)  # defect: 1e-4
# ```

# %%
show(verify.check_lower_solution(wrong["lower level: loose tolerance"], problem))

# %% [markdown]
# ### Lower level: predecessor
#
# The solution is stored, and handed out one call later. Along a slow trajectory it is nearly right; at a new point it is the old answer.
# ```python
# return one_call_late(lambda x: newton(k, x, start(problem)))  # defect: newton(k, x, start(problem))
# ```

# %%
show(verify.check_lower_solution(wrong["lower level: predecessor"], problem))

# %% [markdown]
# ## Right formulas, wrong numbers
#
# Too few bits, noise, or the numbers of another point. In the picture of the loss most of these cannot be seen at all.

# %%
gallery.plot_gallery([item for item in exhibits.values() if item.family == "numbers"])
plt.show()

# %% [markdown]
# ### Float32 inside
#
# Somewhere inside, numbers pass through single precision. Float64 comes out, with seven digits at best: the loss goes down until rounding takes over.
# ```python
# return np.linalg.solve(A.astype(np.float32), b.astype(np.float32)).astype(np.float64)  # defect: float32
# ```

# %%
show(verify.check_hypergradient(wrong["float32 inside"], problem))

# %% [markdown]
# ### Answer for the point before
#
# The gradient is stored, and used one call later. Along a slow trajectory the loss goes down; after a jump the first step goes the old way.
# Seen: the stale gradient after a perturbation: the paper's Algorithm 1.
# ```python
# return one_call_late(hypergradient(problem))  # defect: hypergradient(problem)
# ```

# %%
show(verify.check_hypergradient(wrong["answer for the point before"], problem))

# %% [markdown]
# ### Finite differences of values
#
# (Phi(x + h) - Phi(x))/h with h so small that it divides rounding errors. Half of the digits: enough for the loss to go down, too few for a Hessian.
# Seen: a check by finite differences cannot tell a wrong gradient from noise: tesseract-core #740.
# ```python
# k, h = problem.kernels, 1e-10  # defect: h
# ```

# %%
result = verify.check_hypergradient(wrong["finite differences of values"], problem)
print(result.verdict, "| cause:", result.cause)  # the rest is rounding, and other bits on every machine

# %% [markdown]
# ### Noise counted as curvature
#
# Finite differences of gradients that carry noise, here six decimals of a log file: it is divided by the step. Two digits, and others at the next point: directions of negative curvature appear and vanish.
# Seen: finite differences cannot tell a wrong derivative from noise: tesseract-core #740.
# ```python
# return np.round(right(x), 6)  # defect: an error of 5e-7, which the quotient makes 5e-3
# ```

# %%
show(verify.check_hessian(wrong["noise counted as curvature"], problem))

# %% [markdown]
# ## The Hessian put together wrongly
#
# $$\nabla^2\Phi = f_{xx} + J f_{yx} + f_{xy} J^\top + J f_{yy} J^\top + \frac{\partial^2 y^*}{\partial x^2} f_y, \qquad
# J = -g_{xy} g_{yy}^{-1} .$$
# The pictures show Newton steps with the exact gradient and the defective Hessian (eigenvalues made positive, so that the
# right one goes down near saddle points too). A wrong Hessian still leads to a stationary point, by another way: the loss cannot tell.

# %%
gallery.plot_gallery([item for item in exhibits.values() if item.family == "hessians"])
plt.show()

# %% [markdown]
# ### Third derivatives missing
#
# y* taken for linear in x. Right on every quadratic lower level; elsewhere symmetric, plausible, and wrong.
# Seen: published hypergradient code; silently wrong higher-order terms: Theseus PR #425, Clapeyron.jl #502.
# ```python
# return term.direct + term.cross + term.cross.T + term.quadratic  # defect: third is missing
# ```

# %%
show(verify.check_hessian(wrong["third derivatives missing"], problem))

# %% [markdown]
# ### Hessian not symmetrised
#
# The mixed term counted twice, where one of the two is its transpose. Nobody can tell for d = 1; eigenvalue routines read one triangle and say nothing.
# Seen: the paper's [phi-hessian] as printed.
# ```python
# return term.direct + term.cross + term.cross + term.quadratic + term.third  # defect: .T
# ```

# %%
show(verify.check_hessian(wrong["Hessian not symmetrised"], problem))

# %% [markdown]
# ### One triangle filled
#
# Only the entries above the diagonal are computed, and not copied. a Cholesky factorisation that reads the upper triangle is right, and one that reads the lower is not.
# ```python
# return np.triu(term.direct + term.cross + term.cross.T + term.quadratic + term.third)  # defect: triu
# ```

# %%
show(verify.check_hessian(wrong["one triangle filled"], problem))

# %% [markdown]
# ### Mixed terms forgotten
#
# dy_dx f_yx and its transpose are missing. Right wherever f does not mix x and y.
# ```python
# return term.direct + term.quadratic + term.third  # defect: cross + cross.T
# ```

# %%
show(verify.check_hessian(wrong["mixed terms forgotten"], problem))

# %% [markdown]
# ### Empirical Fisher for f_yy
#
# f_y f_y^T in the place of f_yy, as a Gauss-Newton method would have it. Positive semidefinite where Phi is not: saddle points look like minima.
# ```python
# return term.direct + term.cross + term.cross.T + np.outer(slope, slope) + term.third  # defect: quadratic
# ```

# %%
show(verify.check_hessian(wrong["empirical Fisher for f_yy"], problem))

# %% [markdown]
# ### f_yy forgotten
#
# dy_dx f_yy dy_dx^T is missing. Right where f is linear in y.
# ```python
# return term.direct + term.cross + term.cross.T + term.third  # defect: quadratic is missing
# ```

# %%
show(verify.check_hessian(wrong["f_yy forgotten"], problem))

# %% [markdown]
# ### f_xx forgotten
#
# The direct term is missing. Right where f is linear in x, as most hyperparameter problems are.
# ```python
# return term.cross + term.cross.T + term.quadratic + term.third  # defect: direct is missing
# ```

# %%
show(verify.check_hessian(wrong["f_xx forgotten"], problem))

# %% [markdown]
# ## Runs that do not do what they say
#
# Algorithm 1 descends along the hypergradient, and perturbs $x$ where it is small. These are records of runs from near the saddle
# point of $\Phi = (x_1^2 - x_2^2)/2 + x_2^4/4$. All of them escape it, and the loss goes down; what is checked is whether the steps are
# those of the algorithm that the record names.

# %%
gallery.plot_gallery([item for item in exhibits.values() if item.family == "trajectories"])
plt.show()

# %% [markdown]
# ### Stale gradient after a perturbation
#
# The perturbed point descends in the same iteration, by the gradient of the point before. It escapes the saddle all the same, so nobody looks; the descent lemma does not cover its first step.
# Seen: the paper's Algorithm 1.
# ```python
# return perturbed_descent(problem, lambda x, grad, u: x - ETA * u - ETA * grad)  # defect: u or grad, not both
# ```

# %%
report = verify.check_trajectory(wrong["stale gradient after a perturbation"], saddle())
print(*[result for result in report.results if result.verdict == "VIOLATED"], sep="\n")

# %% [markdown]
# ### Perturbation without the step size
#
# x moves by u, which is 1/eta times too far. It escapes faster, for it jumps further than the lemma allows.
# ```python
# return perturbed_descent(problem, lambda x, grad, u: x - (u if u.any() else ETA * grad))  # defect: ETA * u
# ```

# %%
report = verify.check_trajectory(wrong["perturbation without the step size"], saddle())
print(*[result for result in report.results if result.verdict == "VIOLATED"], sep="\n")

# %% [markdown]
# ### Step against the record
#
# Steps of twice the recorded size. The loss goes down; the step size that the paper reports is not the one that ran.
# ```python
# return perturbed_descent(problem, lambda x, grad, u: x - ETA * (u if u.any() else 2 * grad))  # defect: 2
# ```

# %%
report = verify.check_trajectory(wrong["step against the record"], saddle())
print(*[result for result in report.results if result.verdict == "VIOLATED"], sep="\n")

# %% [markdown]
# # How else could one have noticed?
#
# ## A closer look at the loss
#
# If the minimum is known, the gap $\Phi(x_k) - \Phi_{\min}$ on a logarithmic scale shows more: a wrong gradient leaves a plateau.
# But the gap is quadratic in the error of the gradient. A tolerance of $10^{-4}$ shows below $10^{-8}$, and single precision does not show
# at all. And a factor of two converges *faster* than the truth here.

# %%
names = ["implicit term halved", "tolerance too loose", "float32 inside", "factor two"]
gallery.plot_gallery([exhibits[name] for name in names], steps=160, gap=True, columns=2)
plt.show()

# %% [markdown]
# ## Finite differences
#
# The usual test compares with a difference quotient of step $h$. Its own error falls with $h$ until rounding, which grows like $1/h$, takes over (notebook 03).
# A defect is seen only if its error lies above that curve. The black lines are the errors of three exhibits at one point. The purple curve is a central difference
# too, not of the exact $\Phi$ but of $f(x, y)$ with a lower level that is solved until $|g_y| \le 10^{-4}$, as a program's own loss often is.

# %%
x, h, axis, k = np.array([0.3, -0.4]), np.logspace(-13, -0.5, 26), np.eye(2), problem.kernels
loose = exhibits["lower level: loose tolerance"].candidate(problem)
own = [k.f(at, np.apply_along_axis(loose, -1, at)) for at in (x + h[:, None, None] * axis, x - h[:, None, None] * axis)]
truth = k.grad_phi(x)

figure, ax = plt.subplots(figsize=(8, 4.5), layout="constrained")
plot_differences(problem, x, ax)
error = np.abs((own[0] - own[1]) / (2 * h[:, None]) - truth).max(axis=1)
ax.loglog(h, error, color=COLOURS[3], linestyle=":", linewidth=2, label="central difference of a program's own loss")
for name in ("implicit term halved", "tolerance too loose", "float32 inside"):
    error = np.abs(wrong[name](x) - truth).max()
    ax.axhline(error, color="black", linewidth=1)
    ax.text(1.01, error, f"{name}, {error:.0e}", va="center", transform=ax.get_yaxis_transform())
ax.set_title("What lies below a curve is not seen by it")
legend_below(ax)
plt.show()

# %% [markdown]
# The half-weighted term is seen by all curves, with any sensible $h$. Single precision is seen by central differences of the exact $\Phi$ only, in a window of $h$ that
# nobody knows beforehand; and a loose tolerance hides below the program's own loss. Two things no $h$ can help with.
#
# **The wrong function, differentiated rightly.** Automatic differentiation through five steps of the lower level is exact, for
# $f(x, y_5(x))$. Finite differences of the same program agree with it to all their digits. It is not $\nabla\Phi$:

# %%
five = ITD(D=5, tau=0.1)
ahead, behind = (np.array([five.estimate(problem, at).phi_hat for at in x + side * 1e-5 * axis]) for side in (1, -1))
estimate = five.estimate(problem, x).grad_phi_hat
print("through five steps ", estimate.round(8))
print("finite differences ", ((ahead - behind) / 2e-5).round(8))
print("grad Phi           ", truth.round(8))

# %%
result = verify.check_hypergradient(lambda x: five.estimate(problem, x).grad_phi_hat, problem)
print(result.verdict, "| cause:", result.cause)

# %% [markdown]
# **The points that were not asked.** The solver that rarely fails is right at nearly all points, and so passes nearly every test of a
# handful of them. The next section is about that.
#
# ## What the check cannot see
#
# **A rare error, for sure.** `check_hypergradient` screens as many points as a fraction of a second allows, so it may or may not meet
# one at which the rare solver fails; HOLDS speaks of the points where it asked, and says how many there were. Among a thousand random
# points a few are wrong; the exhibit above was given one of them.

# %%
print(np.sum(errors > 1e-8), "of", len(errors), "points are wrong")

# %% [markdown]
# **Two causes with the same numbers.** For $g_{yy} = 2I$ conjugate gradients are done after one step, so the program that drops the last
# iterate returns $v = 0$: exactly what it would return if the implicit term had been forgotten. The verdict is the same;
# the suspicion falls on the simpler of the two, and mentions the solver.

# %%
result = verify.check_hypergradient(dropped.candidate(isotropic()), isotropic())
print(result.verdict, "| cause:", result.cause)
print(*[line for line in str(result).splitlines() if line.startswith(("  suspected", "  or"))], sep="\n")

# %% [markdown]
# # In your own tests
#
# With the package installed, a test that takes `bilevel_problem` runs once on each problem of the zoo and on generated ones. Among
# these are the kinds that random tests miss: few eigenvalues, $d \ne n$, bad scaling, condition numbers up to $10^8$.
#
# ```python
# @pytest.mark.bilevel(generated=50)
# def test_my_hypergradient(bilevel_problem):
#     verify.assert_ok(verify.check_hypergradient(lambda x: my_hypergradient(bilevel_problem, x), bilevel_problem))
# ```
#
# Where it fails, the report has the problem as code to paste. These are some of the problems that it would run on, with the verdict on the program of
# the beginning:

# %%
for case in (*zoo_cases(["scalar"]), *generated_cases(5)):
    problem = case.problem()
    result = verify.check_hypergradient(dropped.candidate(problem), problem)
    print(f"{case!s:42} d = {problem.d}, n = {problem.n}   {result.verdict}")

# %% [markdown]
# It passes on one of them, and rightly: there every row of $g_{xy}$ is a multiple of $f_y^\top g_{yy}$, and conjugate gradients
# have the product $f_y^\top g_{yy} v$ right from their first step on. One problem is luck; that is why there are many.
