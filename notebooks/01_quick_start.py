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
# # Quick start
#
# A bilevel problem has two players. The lower one sees $x$ and answers with the best $y$; the upper one chooses $x$,
# knowing that answer:
# $$\min_x \; \Phi(x) = f(x, y^*(x)), \qquad y^*(x) = \arg\min_y \, g(x, y), \qquad g \text{ strongly convex in } y.$$
#
# It begins with a regression: data, a formula for any number of rows, a kernel and a run. Then, in ten minutes, on one
# small problem of our own, this notebook
#
# 1. writes the problem down,
# 2. derives $\nabla\Phi$ and $\nabla^2\Phi$,
# 3. evaluates them on thousands of points,
# 4. draws $\Phi$ and finds all its stationary points,
# 5. asks for digits that are proved,
# 6. escapes from a saddle point,
# 7. puts three lemmas to the test,
# 8. finds the mistake in a hypergradient.

# %%
import matplotlib.pyplot as plt
import numpy as np
import sympy as sp

from bilevel_sym import BilevelProblem, Descent, Perturbed, derive, evaluate, solve, verify
from bilevel_sym.plotting import plot_landscape, plot_solution, plot_trajectories

# %% [markdown]
# ## A problem with data
#
# A penalty for every feature of a logistic regression, chosen so that rows which were held out are predicted well. The
# labels depend on the first two features alone.

# %%
rng = np.random.default_rng(0)
A, B = rng.normal(size=(400, 6)), rng.normal(size=(169, 6))
b, c = np.sign(A[:, 0] + A[:, 1]), np.sign(B[:, 0] + B[:, 1])
regression = BilevelProblem(
    f="mean(softplus(-c*(B @ y)))",
    g="mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2",
    x="x[n]",
    y="y[n]",
    data={"A": A, "b": b, "B": B, "c": c},
)
derive(regression)

# %% [markdown]
# These formulas hold for any number of rows and features. The kernels run at the speed of NumPy's own products, and
# solvers take such a problem as they take any other: the penalties of the features that matter fall, the others rise.

# %%
run = solve(regression, Descent.auto(regression), np.zeros(6), steps=60)
print(f"Phi from {regression.kernels.phi(np.zeros(6)):.2f} to {run.phi:.2f}")
print("log penalties:", np.round(run.x).astype(int))

# %% [markdown]
# ## 1. Write a problem
#
# Text is enough. It is read by a parser that knows arithmetic and elementary functions, and never runs anything. The
# box says where we look.

# %%
problem = BilevelProblem(
    f="x1**4/4 - x1*y1 + x2**2/2 + x2*y2",
    g="y1**2/2 + y2**2 - x1*y1 - sin(x1)*y2",
    x="x1 x2",
    y="y1 y2",
    box={"x1": (-2, 2), "x2": (-2, 2), "y1": (-2, 2), "y2": (-1, 1)},
    name="two valleys",
)
problem

# %% [markdown]
# SymPy expressions do as well, and give the same problem. (`BilevelProblem.load("file.toml")` reads one from a file,
# `problem.save` writes it.)

# %%
x1, x2, y1, y2 = sp.symbols("x1 x2 y1 y2")
in_sympy = BilevelProblem(
    f=x1**4 / 4 - x1 * y1 + x2**2 / 2 + x2 * y2,
    g=y1**2 / 2 + y2**2 - x1 * y1 - sp.sin(x1) * y2,
    x=[x1, x2],
    y=[y1, y2],
)
print("the same Phi:", derive(in_sympy).phi - derive(problem).phi == 0)

# %% [markdown]
# ## 2. Derive
#
# One call. A derivation shows itself as LaTeX; the lower level is solved in closed form where that is possible, and
# the solution is proved by substitution.

# %%
derivation = derive(problem)
derivation

# %% [markdown]
# Everything is a SymPy object. The gradient has two named terms: the direct one, $f_x$ with $y$ held fixed, and the
# implicit one, which knows that $y^*$ moves with $x$. `derivation.latex(form="terms")` writes the terms under braces,
# `derivation.source("numpy")` is Python that runs alone.

# %%
print("y*       ", derivation.y_star)
for name, term in derivation.terms["grad_phi"].items():
    print(f"{name:9}", term.T.tolist()[0])

# %% [markdown]
# ## 3. Evaluate, fast
#
# `problem.kernels` holds float64 functions of whole batches: points of shape `(..., 2)` in, results with the same
# leading shape out. Newton's method solves the lower level inside, to round-off, so no closed form is needed.

# %%
k = problem.kernels
batch = np.random.default_rng(0).uniform(-2, 2, size=(2000, 2))
print("shapes", k.phi(batch).shape, k.grad_phi(batch).shape, k.hess_phi(batch).shape)
print("gradient at (1, 1):", k.grad_phi([1.0, 1.0]).round(6))
print("Hessian at (1, 1): ", k.hess_phi([1.0, 1.0]).round(6).tolist())

# %% [markdown]
# ## 4. Look at it
#
# `verify.stationary_points` finds **all** stationary points in the box. Each is certified, and the rest of the box is
# proved to have none.

# %%
points = verify.stationary_points(problem, problem.box)
print(*points, sep="\n")

# %% [markdown]
# Two valleys, and a saddle point between them. The gradient vanishes at all three; only the eigenvalues of
# $\nabla^2\Phi$ tell them apart.

# %%
figure, ax = plt.subplots(figsize=(6.4, 4.8))
plot_landscape(problem, ax, points=points)
ax.set_title("$\\Phi$ has two minima and a saddle point")
plt.show()

# %% [markdown]
# ## 5. Digits that are proved
#
# `evaluate` works in ball arithmetic. It proves that $y^*$ exists and is unique in its ball, and prints only digits
# that are certain. So it can judge any other number, however it was come by: here a gradient with an error in the
# seventh decimal.

# %%
certificate = evaluate(problem, ["1/3", "1/7"], digits=30)
print("grad Phi(1/3, 1/7) =", *certificate.grad_phi, sep="\n  ")
print("proved:", certificate.proved)
print(certificate.compare(grad_phi=[-0.5621326, 0.3064545]))

# %% [markdown]
# ## 6. Solve, from the worst possible start
#
# At the saddle point the gradient is zero, so gradient descent has nowhere to go. Perturbed AID (Algorithm 1 of the
# theory) adds a small random step where the gradient is small, and falls into a valley. `Perturbed.auto` chooses the
# steps from sampled curvature; `stop="local minimum"` ends a run only after the gradient and the Hessian have been
# checked.

# %%
algorithm = Perturbed.auto(problem)
start = np.zeros((12, 2))  # twelve runs at once, each with its own random stream
perturbed = solve(problem, algorithm, start, steps=500, rng=0, stop="local minimum")
stuck = solve(problem, Descent(algorithm.estimator, algorithm.eta), [0.0, 0.0], steps=500)
print("with perturbation:   ", perturbed)
print("without perturbation:", stuck)
ends, counts = np.unique(perturbed.x[:, 0].round(1), return_counts=True)
print("runs that end near x1 =", {float(end): int(count) for end, count in zip(ends, counts, strict=True)})

# %% [markdown]
# All twelve leave along the direction of negative curvature, some to the left and some to the right. The run without
# noise ends where it started.

# %%
figure, ax = plt.subplots(figsize=(6.4, 4.8))
plot_landscape(problem, ax, points=points)
plot_trajectories(perturbed, ax, label="12 runs with perturbation")
plot_trajectories(stuck, ax, label="1 run without")
ax.set_title("From the saddle point: noise decides which valley")
plt.show()

# %% [markdown]
# The same story told by the value of $\Phi$. The first iterations look like nothing happens: the perturbation grows
# exponentially, from almost zero. The unperturbed run stays on its line for ever.

# %%
figure, axes = plt.subplots(1, 2, figsize=(9, 3.4), sharey=True)
plot_solution(perturbed, axes[0]).set_title("perturbed AID, 12 runs")
plot_solution(stuck, axes[1]).set_title("the same without perturbation")
figure.tight_layout()
plt.show()

# %% [markdown]
# ## 7. Does the theory hold here?
#
# `verify.run` takes the statements of the paper by their labels (all that apply, unless told which), computes what is
# claimed and what is true, and gives a verdict. *Certified* means enclosed over the whole box, with no rounding left
# out; *sampled* means float64 at many points.

# %%
report = verify.run(problem, claims=["grad-Lipschitz", "hess-Lipschitz", "lem:grad-err-aid"])
for result in report.results:
    numbers = f"{result.measured:10.4g} <= {result.bound:10.4g}"
    print(f"{result.label:17} {result.part:14} {result.verdict} {numbers}  {result.evidence}")

# %% [markdown]
# All hold, but look at the scale: the bounds are true and very far from tight. How far, and why, is the subject of
# notebook 04.

# %%
report.plot()
plt.show()

# %% [markdown]
# ## 8. Is your own hypergradient right?
#
# A common mistake is to forget that $y^*$ moves. The loss still goes down, so nobody notices. The check has no
# tolerance to choose: its reference is certified, and it names the term that is wrong.


# %%
def my_hypergradient(x):
    y = np.array([x[0], np.sin(x[0]) / 2])  # the lower level, solved
    return np.array([x[0] ** 3 - y[0], x[1] + y[1]])  # the derivative of f in x


print(verify.check_hypergradient(my_hypergradient, problem))

# %% [markdown]
# ## Where to go next
#
# | question | notebook |
# | --- | --- |
# | Where does each term of $\nabla\Phi$ and $\nabla^2\Phi$ come from? | `03_deriving_hypergradients` |
# | What are $\mu$, $\ell$, $L_\phi$ really, and how loose is the theory? | `04_certified_constants` |
# | When do perturbations help, and what do they cost? | `05_escaping_saddle_points` |
# | Min over $x$, max over $y$: what is a solution? | `06_minimax` |
# | Which statements of the paper hold as printed? | `07_validating_theorems` |
# | What do wrong hypergradients look like? | `08_bug_gallery` |
# | And with samples in the place of expectations? | `09_stochastic_bilevel` |
#
# On the command line, `bilevel-sym` has `derive`, `solve`, `verify`, `certify` and more; each has `--help`.
