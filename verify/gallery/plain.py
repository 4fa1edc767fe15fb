"""Implicit differentiation, written plainly: what is right. Each defect of the gallery is one changed line of this.

y* minimises g(x, .);  v = g_yy^-1 f_y;  grad Phi = f_x - g_xy v;  dy_dx = -g_xy g_yy^-1.

What is right: the candidates that the defects are one line off from.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import wraps
from typing import Any, NamedTuple

import numpy as np

from bilevel_sym import BilevelProblem, Kernels
from bilevel_sym.solvers import STATIONARY_SHARE
from bilevel_sym.typing import Floats
from verify.gallery.defect import Kind, Make
from verify.points.derivatives_at import block_values

Candidate = Callable[..., Floats]
LowerLevel = Callable[[Kernels, Floats, Floats], Floats]
Inverse = Callable[[Floats, Floats], Floats]
Series = Callable[[Floats, Floats, int, float], Floats]
"""(A, b, the number of terms, the step size) -> v."""
Total = Callable[[Kernels, Floats, Floats, Floats], Floats]
"""(k, x, y*, v) -> what is put together of them."""
Record = Mapping[str, Any]
Move = Callable[[Floats, Floats, Floats], Floats]
"""(x, the gradient there, a perturbation or zero) -> the next x."""

ETA, EPS, R, T_ESCAPE, STEPS = 0.1, 0.05, 0.5, 30, 120
START = 0.02  # each coordinate of the start: near the saddle at 0, where the gradient is small and not zero


def norm(array: Floats) -> float:
    """Of a vector, its length; of a matrix, its largest singular value.

    >>> norm(np.array([3.0, 4.0]))
    5.0
    """
    return float(np.linalg.norm(array, 2))


def start(problem: BilevelProblem) -> Floats:
    """Where the lower level begins.

    >>> start(BilevelProblem("y", "y**2", "x", "y", box={"x": (0, 1), "y": (0, 1)}))
    array([0.5])
    """
    return np.array([float(value) for value in problem.y_centre])


def newton(k: Kernels, x: Floats, y: Floats) -> Floats:
    """y*(x) by Newton's method, with steps halved until the gradient shrinks; it ends when nothing shrinks it.

    >>> k = BilevelProblem("y", "y**2/2 + exp(y) - x*y", "x", "y").kernels
    >>> newton(k, np.array([1.0]), np.array([3.0])).round(12) + 0.0
    array([0.])
    """
    while True:
        slope = k.g_y(x, y)
        step = np.linalg.solve(k.g_yy(x, y), slope)
        while not norm(k.g_y(x, y - step)) < norm(slope):
            step = step / 2
            if np.all(y - step == y):
                return y
        y = y - step


def step_size(problem: BilevelProblem) -> float:
    """One step size for all points, as programs have it: at most 1/|g_yy| in the middle and at two corners of the box.

    >>> step_size(BilevelProblem("x*y", "(1 + x**2)*y**2 - x*y", "x", "y"))  # g_yy = 4 at x = 1
    0.25
    """
    ends = {} if problem.box is None else dict(problem.box.items())
    pairs = np.array([[float(end) for end in ends.get(s.name, (-1, 1))] for s in (*problem.x, *problem.y)])
    corners = (pairs[:, 0], pairs.mean(axis=1), pairs[:, 1])
    return 1 / max(norm(problem.kernels.g_yy(z[: problem.d], z[problem.d :])) for z in corners)


def gradient_descent(k: Kernels, x: Floats, y: Floats, D: int, tau: float) -> Floats:
    """D steps of size tau on g(x, .).

    >>> k = BilevelProblem("y", "y**2 - x*y", "x", "y").kernels
    >>> gradient_descent(k, np.array([1.0]), np.array([3.0]), D=1, tau=0.5)
    array([0.5])
    """
    for _ in range(D):
        y = y - tau * k.g_y(x, y)
    return y


def descent_until(k: Kernels, x: Floats, y: Floats, tolerance: float, tau: float) -> Floats:
    """Steps of size tau on g(x, .), until |g_y| is within the tolerance."""
    while norm(k.g_y(x, y)) > tolerance:
        y = gradient_descent(k, x, y, 1, tau)
    return y


def dense_solve(A: Floats, b: Floats) -> Floats:
    """v with A v = b, by factorisation.

    >>> dense_solve(np.array([[2.0]]), np.array([4.0]))
    array([2.])
    """
    return np.asarray(np.linalg.solve(A, b), dtype=np.float64)


def conjugate_gradients(A: Floats, b: Floats, N: int | None = None) -> Floats:
    """v with A v = b, by N steps from 0; by default until the residual is down to rounding.

    >>> conjugate_gradients(np.array([[2.0, 1.0], [1.0, 3.0]]), np.array([3.0, 4.0]))
    array([1., 1.])
    """
    v, r, p = np.zeros_like(b), b, b
    for _ in range(10 * len(b) if N is None else N):
        if norm(r) <= 1e-16 * norm(b):
            break
        Ap = A @ p
        alpha = (r @ r) / (p @ Ap)
        v = v + alpha * p
        new = r - alpha * Ap
        p = new + (new @ new) / (r @ r) * p
        r = new
    return v


def neumann(A: Floats, b: Floats, Q: int, eta: float) -> Floats:
    """v with A v = b, by Q terms of eta sum_q (I - eta A)^q b.

    >>> neumann(np.array([[2.0]]), np.array([4.0]), Q=1, eta=0.5)
    array([2.])
    """
    term = eta * b
    v = term
    for _ in range(Q - 1):
        term = term - eta * (A @ term)
        v = v + term
    return v


def total_derivative(k: Kernels, x: Floats, y: Floats, v: Floats) -> Floats:
    """f_x - g_xy v."""
    return k.f_x(x, y) - k.g_xy(x, y) @ v


def hypergradient(
    problem: BilevelProblem,
    *,
    lower: LowerLevel = newton,
    inverse: Inverse = dense_solve,
    total: Total = total_derivative,
) -> Candidate:
    """x -> grad Phi(x), from ways to solve the lower level and a linear system, and to put the terms together.

    - ``problem``: the problem.
    - ``lower``: (k, x, y_0) -> y*.
    - ``inverse``: (g_yy, f_y) -> v.
    - ``total``: (k, x, y*, v) -> the gradient.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> hypergradient(problem)(np.array([3.0]))
    array([6.])
    """
    k = problem.kernels

    def candidate(x: Floats) -> Floats:
        y = lower(k, x, start(problem))
        return total(k, x, y, inverse(k.g_yy(x, y), k.f_y(x, y)))

    return candidate


def from_total(total: Total) -> Make:
    """A way to put the terms of the hypergradient together, as a program: all else is right."""

    @wraps(total)
    def make(problem: BilevelProblem) -> Candidate:
        return hypergradient(problem, total=total)

    return make


def by_series(problem: BilevelProblem, series: Series, eta: float, *, depth: int = 1000) -> Candidate:
    """x -> grad Phi(x) with v from a series, of as many terms Q as the candidate is asked for.

    - ``problem``: the problem.
    - ``series``: (g_yy, f_y, Q, eta) -> v.
    - ``eta``: its step size.
    - ``depth``: Q by default.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> by_series(problem, neumann, 0.5)(np.array([3.0]), Q=1)  # v is half of what it should be
    array([4.5])
    """
    k = problem.kernels

    def candidate(x: Floats, Q: int = depth) -> Floats:
        y = newton(k, x, start(problem))
        return total_derivative(k, x, y, series(k.g_yy(x, y), k.f_y(x, y), Q, eta))

    return candidate


def warm_started(problem: BilevelProblem, move: LowerLevel) -> LowerLevel:
    """A lower level that goes on from where it was left by the call before."""
    y_before = start(problem)

    def lower(k: Kernels, x: Floats, y: Floats) -> Floats:
        nonlocal y_before
        y_before = move(k, x, y_before)
        return y_before

    return lower


class HessianTerms(NamedTuple):
    """Hess Phi = direct + cross + cross^T + quadratic + third."""

    direct: Floats
    """f_xx"""
    cross: Floats
    """dy_dx f_yx"""
    quadratic: Floats
    """dy_dx f_yy dy_dx^T"""
    third: Floats
    """d2y_dx2 f_y, where the third derivatives of g are"""


def hessian_terms(problem: BilevelProblem, x: Floats) -> HessianTerms:
    """The terms of Hess Phi at x, independent of ``implicit.second_order`` on purpose: candidates are other programs.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> [float(term.item()) for term in hessian_terms(problem, np.array([3.0]))]
    [0.0, 1.0, 0.0, 0.0]
    """
    y = newton(problem.kernels, x, start(problem))
    at = {name: block[0] for name, block in block_values(problem.kernels, x[None], y[None]).items()}
    v = np.linalg.solve(at["g_yy"], at["f_y"])
    dy_dx = -np.linalg.solve(at["g_yy"], at["g_xy"].T).T
    mixed = np.einsum("ikl,jl->ijk", at["g_xyy"], dy_dx)
    inner = np.einsum("ia,jb,abk->ijk", dy_dx, dy_dx, at["g_yyy"])
    third = at["g_xxy"] + mixed + mixed.swapaxes(0, 1) + inner
    return HessianTerms(at["f_xx"], dy_dx @ at["f_xy"].T, dy_dx @ at["f_yy"] @ dy_dx.T, -third @ v)


def from_terms(combined: Callable[[HessianTerms], Floats]) -> Make:
    """A way to put the terms of Hess Phi together, as a program: the terms themselves are right."""

    @wraps(combined)
    def make(problem: BilevelProblem) -> Candidate:
        return lambda x: combined(hessian_terms(problem, x))

    return make


@from_terms
def hessian(term: HessianTerms) -> Floats:
    """Hess Phi, the sum of its terms."""
    return term.direct + term.cross + term.cross.T + term.quadratic + term.third


def perturbed_descent(problem: BilevelProblem, move: Move) -> Record:
    """Algorithm 1 from near x = 0, with the rule by which a point moves; all that a checker wants to know of the run.

    >>> from verify.gallery.defect import saddle
    >>> run = perturbed_descent(saddle(), lambda x, grad, u: x - ETA * (u if u.any() else grad))
    >>> run["x"].shape, bool(run["perturbed"][0])
    ((121, 2), True)
    """
    gradient, rng = hypergradient(problem), np.random.default_rng(0)
    x, since = np.full(problem.d, START), T_ESCAPE + 1
    points, gradients, perturbed = [x], [gradient(x)], []
    for _ in range(STEPS):
        escape = norm(gradients[-1]) <= STATIONARY_SHARE * EPS and since > T_ESCAPE
        since = 1 if escape else since + 1
        x = move(x, gradients[-1], _in_ball(rng, problem.d) if escape else np.zeros(problem.d))
        points.append(x)
        gradients.append(gradient(x))
        perturbed.append(escape)
    arrays = {"x": np.array(points), "grad_phi_hat": np.array(gradients), "perturbed": np.array([*perturbed, False])}
    return {**arrays, "eta": ETA, "eps": EPS, "r": R, "T_escape": T_ESCAPE}


def _in_ball(rng: np.random.Generator, d: int) -> Floats:
    u = rng.standard_normal(d)
    return np.asarray(R * rng.random() ** (1 / d) * u / norm(u))


def right(problem: BilevelProblem, kind: Kind = "hypergradient") -> dict[str, Any]:
    """Right candidates by name. Some take ``D``, ``N`` or ``Q``, as the programs that they stand for do.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> {name: candidate(np.array([3.0])).round(9).tolist() for name, candidate in right(problem).items()}
    ... # doctest: +NORMALIZE_WHITESPACE
    {'dense solve': [6.0], 'conjugate gradients': [6.0], 'D and N steps': [6.0], 'Neumann series': [6.0],
     'unrolled': [6.0], 'warm start': [6.0]}
    >>> list(right(problem, "hessian"))
    ['term by term']
    """
    if kind == "hessian":
        return {"term by term": hessian(problem)}
    if kind == "lower solution":
        k, y, tau = problem.kernels, start(problem), step_size(problem)
        steps: Candidate = lambda x, D=1000: gradient_descent(k, x, y, D, tau)  # noqa: E731
        return {"Newton": lambda x: newton(k, x, y), "D steps": steps}
    if kind == "trajectory":
        return {"perturbed descent": perturbed_descent(problem, lambda x, grad, u: x - ETA * (u if u.any() else grad))}
    return {
        "dense solve": hypergradient(problem),
        "conjugate gradients": hypergradient(problem, inverse=conjugate_gradients),
        "D and N steps": _steps(problem),
        "Neumann series": by_series(problem, neumann, step_size(problem)),
        "unrolled": _unrolled(problem),
        "warm start": hypergradient(problem, lower=warm_started(problem, newton)),
    }


def _steps(problem: BilevelProblem) -> Candidate:
    """D gradient steps on the lower level, N conjugate-gradient steps: AID."""
    k, tau = problem.kernels, step_size(problem)

    def candidate(x: Floats, D: int = 1000, N: int = 20) -> Floats:
        y = gradient_descent(k, x, start(problem), D, tau)
        return total_derivative(k, x, y, conjugate_gradients(k.g_yy(x, y), k.f_y(x, y), N))

    return candidate


def _unrolled(problem: BilevelProblem) -> Candidate:
    """The derivative of D gradient steps, carried along with them: ITD, forward."""
    k, tau = problem.kernels, step_size(problem)

    def candidate(x: Floats, D: int = 1000) -> Floats:
        y, dy_dx = start(problem), np.zeros((problem.d, problem.n))
        for _ in range(D):
            dy_dx = dy_dx - tau * (k.g_xy(x, y) + dy_dx @ k.g_yy(x, y))
            y = y - tau * k.g_y(x, y)
        return k.f_x(x, y) + dy_dx @ k.f_y(x, y)

    return candidate
