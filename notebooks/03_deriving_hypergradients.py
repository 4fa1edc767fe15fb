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
# # Deriving hypergradients, by hand and by machine
#
# $\Phi(x) = f(x, y^*(x))$ depends on $x$ twice: directly, and through the answer $y^*(x)$ of the lower level. This
# notebook differentiates it, first with a pencil, then with one call, and explains where each term comes from and
# when it vanishes. At the end the formulas are turned into numbers, and the numbers into certified digits.
#
# The problem is one that a pencil can do. Think of $e^x$ as the weight of a penalty, and of $y$ as a model that is
# trained under it:
# $$f(x, y) = \tfrac12 x^2 + x y + \tfrac12 (y - 1)^2, \qquad g(x, y) = \tfrac12 e^x y^2 - y .$$

# %%
from itertools import pairwise

import matplotlib.pyplot as plt
import numpy as np
import sympy as sp
from IPython.display import Math

from bilevel_sym import BilevelProblem, derive, derive_generic, evaluate, paper, verify
from bilevel_sym.errors import TooLarge
from bilevel_sym.plotting import plot_differences, plot_response, plot_terms
from bilevel_sym.zoo.tables import alternate, standard, table

problem = BilevelProblem(
    f="x**2/2 + x*y + (y - 1)**2/2", g="exp(x)*y**2/2 - y", x="x", y="y", box={"x": (-1, 3), "y": (0, 3)}
)
derivation = derive(problem)

# %% [markdown]
# ## The lower level
#
# By hand: $g$ is strongly convex in $y$, so its minimiser is where $g_y = 0$,
# $$g_y = e^x y - 1 = 0 \quad\Longrightarrow\quad y^*(x) = e^{-x} .$$
# By machine: the same, with the reason.

# %%
print("y* =", derivation.y_star[0], "  ", derivation.method)

# %% [markdown]
# ## How $y^*$ moves: the implicit function theorem
#
# Suppose that we could not solve $g_y = 0$. It still holds for every $x$, so its total derivative is zero:
# $$0 = \frac{d}{dx}\, g_y(x, y^*(x)) = g_{xy} + \frac{dy^*}{dx}\, g_{yy}
# \quad\Longrightarrow\quad \frac{dy^*}{dx} = -\,g_{xy}\, g_{yy}^{-1} .$$
# Here $g_{xy} = e^x y$ and $g_{yy} = e^x$, so $dy^*/dx = -y$, and with $y = e^{-x}$ it is $-e^{-x}$: the derivative
# of the closed form, as it must be. The machine does it both ways. `closed_form=False` keeps $y$ as the name of
# $y^*(x)$.

# %%
implicit = derive(problem, closed_form=False)
print("implicit:", implicit.dy_dx[0], "  closed:", derivation.dy_dx[0])

# %% [markdown]
# The theorem gives the slope of $y^*$ at a point from derivatives at that point alone. No other value of $y^*$ is
# needed.

# %%
figure, ax = plt.subplots(figsize=(6, 3.6))
plot_response(problem, ax, at=[0.5])
ax.set_title("$y^*(x)$, and its slope by the implicit function theorem")
plt.show()

# %% [markdown]
# ## The gradient: two terms
#
# The chain rule on $f(x, y^*(x))$ gives
# $$\nabla\Phi = \underbrace{f_x}_{\text{direct}} + \underbrace{\frac{dy^*}{dx}\, f_y}_{\text{implicit}}
# = (x + y) - y\,(x + y - 1) .$$
# - **direct** asks what $x$ does to $f$ while $y$ stands still. It vanishes where $f$ does not contain $x$
#   (hyperparameter selection, for instance).
# - **implicit** asks what $x$ does to $y^*$, and that to $f$. It vanishes where $f_y = 0$ (minimax problems, always)
#   or $g_{xy} = 0$.
#
# Nobody computes $dy^*/dx$ in large problems. One solves $g_{yy}\, v = f_y$, a single linear system, and takes
# $\nabla\Phi = f_x - g_{xy} v$: the same number, bracketed differently. With $v = e^{-x}(x + y - 1)$ we have $g_{xy}
# v = y\,(x + y - 1)$ again.

# %%
for name, term in implicit.terms["grad_phi"].items():
    print(f"{name:8}", term[0])
print("sum     ", sp.expand(implicit.grad_phi[0]))
print("with y* ", derivation.grad_phi[0])

# %% [markdown]
# The direct term is positive over the whole box. A descent that forgets the implicit one walks to the left for ever.
# The two cancel at one point, which is the minimum of $\Phi$: the grey line crosses zero there.

# %%
figure, ax = plt.subplots(figsize=(6, 3.6))
plot_terms(problem, ax, of="grad_phi")
ax.set_title("What the gradient is made of")
plt.show()
print(*verify.stationary_points(problem, problem.box))

# %% [markdown]
# ## The Hessian: five terms
#
# Differentiate once more. Each place where $x$ or $y^*$ stands gives a term. With $J = dy^*/dx$ ($d \times n$, one
# row for each entry of $x$),
# $$\nabla^2\Phi = \frac{d}{dx}\Big(f_x + J f_y\Big)
# = \underbrace{f_{xx}}_{\text{direct}} + \underbrace{J f_{yx}}_{\text{cross}}
# + \underbrace{\frac{d^2y^*}{dx^2} f_y}_{\text{curvature}}
# + \underbrace{f_{xy} J^\top}_{\text{cross transposed}} + \underbrace{J f_{yy} J^\top}_{\text{quadratic}} .$$
#
# | term | which step of the chain rule | here | vanishes where |
# | --- | --- | --- | --- |
# | direct | $x$ in $f_x$ | $1$ | $f$ is linear in $x$ |
# | cross transposed | $y^*$ in $f_x$ | $1 \cdot (-y)$ | $f = a(x) + b(y)$, or $y^*$ does not move |
# | cross | $x$ in $f_y$ | $(-y) \cdot 1$ | as before; it is the transpose of the last one |
# | quadratic | $y^*$ in $f_y$ | $(-y) \cdot 1 \cdot (-y)$ | $f$ is linear in $y$ |
# | curvature | $x$ and $y^*$ in $J$ itself | $y \cdot (x + y - 1)$ | $f_y = 0$, or $y^*$ is linear in $x$ |
#
# Only *curvature* is work. It needs $d^2y^*/dx^2$, and that comes from differentiating $0 = g_{xy} + J g_{yy}$ once
# more, which brings in the **third derivatives of $g$**:
# $$0 = g_{xxy} + J g_{yxy} + g_{xyy} J^\top + J g_{yyy} J^\top + \frac{d^2y^*}{dx^2}\, g_{yy} .$$
# With a pencil: $g_{xxy} = e^x y$, $g_{xyy} = e^x$, $g_{yyy} = 0$ and $J = -y$ give $0 = e^x y - 2 e^x y + e^x\,
# d^2y^*/dx^2$, so $d^2y^*/dx^2 = y = e^{-x}$.

# %%
print("second derivative of y*:", implicit.d2y_dx2[0, 0, 0], "=", derivation.d2y_dx2[0, 0, 0])
for name, term in implicit.terms["hess_phi"].items():
    print(f"{name:16}", term[0])
print(f"{'sum':16}", implicit.hess_phi[0])

# %%
Math(derivation.latex(form="terms"))

# %% [markdown]
# At the left end of the box *quadratic* alone is larger than the whole, and the two cross terms take the excess away.
# Towards the right everything but *direct* dies out: a test there would hardly notice a code that drops the third
# derivatives of $g$.

# %%
figure, ax = plt.subplots(figsize=(6.4, 4))
plot_terms(problem, ax, of="hess_phi")
ax.set_title("What the Hessian is made of")
plt.show()

# %% [markdown]
# ## The same Hessian from a Lagrangian
#
# There is a shorter road. With $v$ held constant, let $\mathcal{L}(x, y) = f - v^\top g_y$. Then, with $Z = [I;\,
# J^\top]$,
# $$\nabla^2\Phi = Z^\top\, \nabla^2\mathcal{L}\; Z .$$
# The third derivatives of $g$ sit inside $\nabla^2\mathcal{L}$, contracted with one vector $v$, so no three-index
# tensor is ever formed. The two forms agree exactly.

# %%
lagrangian = implicit.hessian(form="lagrangian")
print("Lagrangian form:", lagrangian[0])
print("difference:     ", sp.expand(lagrangian[0] - implicit.hess_phi[0]))

# %% [markdown]
# ## Not this problem: every problem
#
# One example proves nothing. `derive_generic(d, n)` takes $f$ and $g$ as *undefined* functions, differentiates
# mechanically (the chain rule and nothing else) and compares with the formulas of the paper, label by label.
# Both sides are expanded until nothing is left: an exact proof for these $d$ and $n$.

# %%
generic = derive_generic(2, 3)
for label, equation in generic.equations.items():
    print(f"{paper.cite(label):40} {'identical' if equation.holds else 'DIFFERENT'}")

# %% [markdown]
# In the smallest case the textbook formula can be read whole:

# %%
Math(r"\nabla\Phi = " + sp.latex(derive_generic(1, 1).grad_phi[0]))

# %% [markdown]
# ## A misprint, and how it is seen
#
# The corrected form is what was compared above. In the paper's equation [phi-hessian] the fourth term repeats the
# second, $J f_{yx}$, where its transpose $f_{xy} J^\top$ is needed. For $d = 1$ there is no difference. The smallest
# witness has $d = 2$: $f = x_2 y$ and $g = (y - x_1)^2/2$, so that $\Phi = x_1 x_2$. As printed, the Hessian is not
# even symmetric.

# %%
witness = derive(BilevelProblem("x2*y", "(y - x1)**2/2", "x1 x2", "y"))
print("Phi       ", witness.phi)
print("printed   ", witness.hessian(variant="printed").tolist())
print("corrected ", witness.hessian().tolist())
print("from Phi  ", sp.hessian(witness.phi, witness.x).tolist())

# %% [markdown]
# ## Without a closed form
#
# $y + e^y = x$ has no solution in elementary functions. Nothing above depended on one: $y$ stays in the formulas and
# means $y^*(x)$.

# %%
open_problem = BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y", box={"x": (-2, 4), "y": (-3, 2)})
derive(open_problem)

# %% [markdown]
# The lower level's answer bends, so *curvature* counts again; $f_{xx}$ and $f_{yy}$ are zero, and so are *direct* and
# *quadratic*.

# %%
figure, axes = plt.subplots(1, 2, figsize=(10, 3.6))
plot_response(open_problem, axes[0], at=[1.0]).set_title("the lower level, solved numerically")
plot_terms(open_problem, axes[1], of="hess_phi").set_title("the terms of the Hessian")
figure.tight_layout()
plt.show()

# %% [markdown]
# ## Large lower levels
#
# For $n > 4$ nobody wants the inverse of $g_{yy}$ written out. Here are $n = 8$ unknowns in a chain. Asking for the
# formula is refused, with the way out:

# %%
x, y = sp.symbols("x1:3"), sp.symbols("y1:9")
chain = sum((a - b) ** 2 for a, b in pairwise(y)) / 2
large = BilevelProblem(
    f=sum(s**2 for s in y) / 2 + x[0] * y[0],
    g=chain + sum(s**2 + sp.exp(s) for s in y) - x[0] * y[0] - x[1] * y[-1],
    x=x,
    y=y,
)
try:
    derive(large).hess_phi
except TooLarge as error:
    print(error.hint)

# %% [markdown]
# `blocks` are the derivatives of $f$, $g$ and $\mathcal{L}$, each computed when asked for; `auxiliaries` are the
# formulas that keep the linear solve by name. They do not grow with $n$.

# %%
for name, formula in derive(large).auxiliaries.items():
    print(name, "=", formula)
print("one entry of g_yy:", derive(large).blocks["g_yy", 3, 4])

# %% [markdown]
# ## Vectors and matrices
#
# Regressions are written with matrices, and so are their derivatives. Ridge regression with a penalty $e^{x_j}$ for
# each feature: $m$ rows $A, b$ to train on, $k$ rows $B, c$ held out. No data are needed, only shapes.

# %%
f, g = "mean((B @ y - c)**2)/2", "mean((A @ y - b)**2)/2 + exp(x) @ y**2/2"
derive(BilevelProblem(f, g, "x[n]", "y[n]", data={"A": "m, n", "b": "m", "B": "k, n", "c": "k"}))

# %% [markdown]
# By hand it is the pencil's problem again, with a matrix in the place of a number: $g_y = \tfrac1m A^\top(Ay - b) + e^x
# \odot y$, so $H = g_{yy} = \tfrac1m A^\top A + \operatorname{diag}(e^x)$ and $y^* = H^{-1} A^\top b/m$. Row $j$ of $g_{xy}$
# has one entry, $e^{x_j} y_j$ on the diagonal, so $\nabla\Phi = f_x - g_{xy} v = -e^x \odot y \odot v$. With data, 442
# patients of which every other one is held out, four lines of NumPy should give the same numbers; the certificate says
# to how many digits they do.

# %%
training, held_out = standard(alternate(table("diabetes"), 442))
A, B = training.features, held_out.features
b, c = ((part.targets - training.targets.mean()) / training.targets.std() for part in (training, held_out))
ridge = BilevelProblem(f, g, "x[n]", "y[n]", data={"A": A, "b": b, "B": B, "c": c})
at = np.full(10, -2.0)
H = A.T @ A / len(b) + np.diag(np.exp(at))
pencil_y = np.linalg.solve(H, A.T @ b / len(b))
pencil_v = np.linalg.solve(H, B.T @ (B @ pencil_y - c) / len(c))
pencil = -np.exp(at) * pencil_y * pencil_v
print("grad Phi by hand:", pencil.round(5))
print("right to twelve digits:", evaluate(ridge, at, digits=15).compare(grad_phi=pencil).digits >= 12)

# %% [markdown]
# ## Numbers, and which digits of them to trust
#
# `problem.kernels` are the same formulas as float64 functions of whole batches. `evaluate` gives digits that are
# proved. Together they tell how good the fast numbers are: all but the last digit or so.

# %%
for name, p, point in (("pencil", problem, [0.5]), ("open", open_problem, [0.5]), ("large", large, [1.0, 0.5])):
    certificate = evaluate(p, point, digits=20)
    print(f"{name:7} grad Phi = {certificate.grad_phi[0]:.20}   Hess Phi = {certificate.hess_phi[0][0]:.20}")
    agreement = (
        certificate.compare(grad_phi=p.kernels.grad_phi(point)),
        certificate.compare(hess_phi=p.kernels.hess_phi(point)),
    )
    print("        fast kernels right to 14 digits or more:", all(a.digits >= 14 for a in agreement))

# %% [markdown]
# A single term has certified digits too. It is a function of $x$ and $y^*(x)$, hence the $\Phi$ of a problem that has
# this term in the place of $f$.

# %%
for name, term in implicit.terms["hess_phi"].items():
    certificate = evaluate(BilevelProblem(term[0], problem.g, problem.x, problem.y), ["1/2"], digits=20)
    print(f"{name:16} {certificate.phi:.20}")
print(f"{'sum':16} {evaluate(problem, ['1/2'], digits=20).hess_phi[0][0]:.20}")

# %% [markdown]
# ## Why not simply compare with finite differences?
#
# Because they cannot tell. A difference quotient with a long step $h$ has a truncation error, with a short one the
# rounding error of $\Phi$ divided by $h$. Between the two there is a best step, which nobody knows beforehand, and
# even there a forward difference is off by about $10^{-8}$, a central one by about $10^{-11}$. A hypergradient with a
# mistake smaller than that passes, and one that is right to the last digit looks no better.

# %%
figure, ax = plt.subplots(figsize=(6.4, 4))
plot_differences(open_problem, [0.5], ax)
ax.set_title("Finite differences against the certified gradient")
plt.show()

# %% [markdown]
# So the library does not use them to judge. `verify.check_hypergradient` compares with certified digits (notebooks 01
# and 08), and this notebook's pencil work is compared symbol by symbol.
