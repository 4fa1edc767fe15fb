"""Hypergradients of the same problem by us and by libraries for implicit differentiation, each in a few settings.

A ``Method`` finds grad Phi at a point, y given a start, and walks down Phi by gradient steps until its own gradient is
short. The libraries are asked as their manuals ask them; JAX walks inside one compiled loop, which is its fastest.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from importlib import import_module
from importlib.util import find_spec
from types import MappingProxyType
from typing import Any

import numpy as np

from bilevel_sym import AID, BilevelProblem, Descent, Exact, solve
from bilevel_sym.estimators.hypergradient import Estimator
from bilevel_sym.solvers.loop import State
from bilevel_sym.typing import Floats

__all__ = ["ENTRANTS", "Entrant", "Method", "Plan", "Walk", "missing"]

TIGHT = 1e-8  # the tolerance of the tight settings


@dataclass(frozen=True)
class Walk:
    """Where a walk down Phi ended.

    - ``x``: the point.
    - ``steps``: how many steps led to it.
    - ``estimate``: the norm of the method's own gradient there.
    """

    x: Floats
    steps: int
    estimate: float


@dataclass(frozen=True)
class Plan:
    """The outer loop that all share.

    - ``eta``: its step.
    - ``goal``: the norm of one's own gradient at which one stops.
    - ``steps``: the most steps.
    - ``tau``: the step of those who descend on g by a fixed one.
    """

    eta: float
    goal: float
    steps: int
    tau: float


@dataclass(frozen=True)
class Method:
    """Both tasks: grad Phi at x from y = 0, and the walk from x with y carried along."""

    hypergradient: Callable[[Floats], Floats]
    walk: Callable[[Floats], Walk]


@dataclass(frozen=True)
class Entrant:
    """A library in one setting.

    - ``name``: for the table.
    - ``setting``: what was set, for the table.
    - ``needs``: the modules without which it is skipped.
    - ``make``: the method for a problem; nothing is computed yet.
    """

    name: str
    setting: str
    needs: tuple[str, ...]
    make: Callable[[BilevelProblem, Plan], Method]


def missing(entrant: Entrant) -> tuple[str, ...]:
    """The modules that are not installed."""
    return tuple(name for name in entrant.needs if find_spec(name) is None)


# ---- ours -----------------------------------------------------------------------------------------------------------


def _ours(estimator: Callable[[Plan], Estimator], problem: BilevelProblem, plan: Plan) -> Method:
    chosen = estimator(plan)

    def walk(x: Floats) -> Walk:
        last = [np.inf]

        def is_short(state: State) -> bool:
            last[0] = float(np.linalg.norm(state.grad_phi_hat))
            return last[0] <= plan.goal

        found = solve(problem, Descent(chosen, plan.eta), x, steps=plan.steps, record="last", stop=is_short)
        return Walk(found.x, int(found.steps), last[0])

    return Method(lambda x: chosen.estimate(problem, x).grad_phi_hat, walk)


def _aid(D: int, N: int) -> Entrant:
    return Entrant("ours, AID", f"D = {D}, N = {N}", (), partial(_ours, lambda plan: AID(D, N, plan.tau)))


# ---- libraries of JAX -----------------------------------------------------------------------------------------------

Response = Callable[[Any, Any], Any]  # x and a start to y*(x), which the library can differentiate in x


def _jax_method(response: Callable[[Any], Response], problem: BilevelProblem, plan: Plan) -> Method:
    """grad Phi by the library's own derivative of y*, and a loop around it, each compiled as one function."""
    jax: Any = import_module("jax")
    jnp: Any = import_module("jax.numpy")
    jax.config.update("jax_enable_x64", True)
    f, g = problem.to_jax()
    best = response(g)

    def phi(x: Any, start: Any) -> Any:
        y = best(x, start)
        return f(x, y), y

    def gradient(x: Any, start: Any) -> Any:
        grad, y = jax.grad(phi, has_aux=True)(x, start)
        return grad, jax.lax.stop_gradient(y)

    def going(state: Any) -> Any:
        _, _, grad, k = state
        return (jnp.linalg.norm(grad) > plan.goal) & (k < plan.steps)

    def move(state: Any) -> Any:
        x, y, grad, k = state
        x = x - plan.eta * grad
        return (x, *reversed(gradient(x, y)), k + 1)

    def whole(x: Any) -> Any:
        grad, y = gradient(x, jnp.zeros(problem.n))
        return jax.lax.while_loop(going, move, (x, y, grad, 0))

    one, all_steps = jax.jit(lambda x: gradient(x, jnp.zeros(problem.n))[0]), jax.jit(whole)

    def walk(x: Floats) -> Walk:
        end, _, grad, k = all_steps(x)
        return Walk(np.asarray(end), int(k), float(np.linalg.norm(grad)))

    return Method(lambda x: np.asarray(one(x)), walk)


def _jaxopt(solver: str, tight: bool, g: Any) -> Response:
    """A solver of jaxopt with ``implicit_diff=True``, its default."""
    jaxopt: Any = import_module("jaxopt")
    linear: Any = import_module("jaxopt.linear_solve")
    options = {"tol": TIGHT, "implicit_diff_solve": partial(linear.solve_cg, tol=TIGHT)} if tight else {}
    made = getattr(jaxopt, solver)(lambda y, x: g(x, y), implicit_diff=True, **options)
    return lambda x, start: made.run(start, x).params


def _optimistix_bfgs(rtol: float, g: Any) -> Response:
    """Minimising g; the tolerances have no default, ``optimistix.compat.minimize`` takes 1e-5."""
    optimistix: Any = import_module("optimistix")
    solver = optimistix.BFGS(rtol=rtol, atol=rtol)
    adjoint = optimistix.ImplicitAdjoint()

    def best(x: Any, start: Any) -> Any:
        return optimistix.minimise(lambda y, x: g(x, y), solver, start, args=x, adjoint=adjoint).value

    return best


def _optimistix_newton(rtol: float, g: Any) -> Response:
    """A root of g_y by Newton's method; Lineax is told that g_yy is positive definite, and factors by Cholesky."""
    jax: Any = import_module("jax")
    optimistix: Any = import_module("optimistix")
    lineax: Any = import_module("lineax")
    solver = optimistix.Newton(rtol=rtol, atol=rtol)
    tags, slope = frozenset({lineax.positive_semidefinite_tag}), jax.grad(g, 1)

    def best(x: Any, start: Any) -> Any:
        found = optimistix.root_find(
            lambda y, x: slope(x, y), solver, start, args=x, tags=tags, adjoint=optimistix.ImplicitAdjoint()
        )
        return found.value

    return best


def _of_jax(name: str, setting: str, needs: tuple[str, ...], response: Callable[[Any], Response]) -> Entrant:
    return Entrant(name, setting, ("jax", *needs), partial(_jax_method, response))


# ---- libraries of PyTorch -------------------------------------------------------------------------------------------

Gradient = Callable[[Any, Any], tuple[Any, Any]]  # x and a start to the gradient and the new y


def _torch_method(gradient: Callable[..., Gradient], problem: BilevelProblem, plan: Plan) -> Method:
    """A loop in Python, as PyTorch runs it."""
    torch: Any = import_module("torch")
    torch.set_num_threads(1)
    f, g = problem.to_torch()
    at = gradient(torch, f, g, plan)

    def start() -> Any:
        return torch.zeros(problem.n, dtype=torch.float64)

    def walk(x0: Floats) -> Walk:
        x, k = torch.as_tensor(x0, dtype=torch.float64), 0
        grad, y = at(x, start())
        while float(torch.linalg.vector_norm(grad)) > plan.goal and k < plan.steps:
            x, k = x - plan.eta * grad, k + 1
            grad, y = at(x, y)
        return Walk(x.numpy(), k, float(torch.linalg.vector_norm(grad)))

    return Method(lambda x: np.asarray(at(torch.as_tensor(x, dtype=torch.float64), start())[0]), walk)


def _descended(torch: Any, g: Any, x: Any, y: Any, D: int, tau: float) -> Any:
    """y after D gradient steps on g."""
    x = x.detach()
    for _ in range(D):
        with torch.enable_grad():  # TorchOpt calls a solver where derivatives are off
            y = y.detach().requires_grad_()
            slope = torch.autograd.grad(g(x, y), y)[0]
        y = y.detach() - tau * slope
    return y.detach()


def _torchopt(D: int, tight: bool, torch: Any, f: Any, g: Any, plan: Plan) -> Gradient:
    """``custom_root`` around gradient steps; the system by its default, or by conjugate gradients to a tolerance."""
    torchopt: Any = import_module("torchopt")
    implicit: Any = import_module("torchopt.diff.implicit")
    solver = torchopt.linear_solve.solve_cg(rtol=TIGHT) if tight else None
    slope = torch.func.grad(lambda y, x: g(x, y))
    best = implicit.custom_root(slope, argnums=1, solve=solver)(lambda y, x: _descended(torch, g, x, y, D, plan.tau))

    def gradient(x: Any, y: Any) -> tuple[Any, Any]:
        x = x.detach().requires_grad_()
        y = best(y, x)
        return torch.autograd.grad(f(x, y), x)[0], y.detach()

    return gradient


def _hypertorch(D: int, K: int, torch: Any, f: Any, g: Any, plan: Plan) -> Gradient:
    """As hypertorch goes about it: the map y - tau g_y, its fixed point by D steps, K conjugate gradient steps for v.

    Its package is not in the index of Python packages (another one has the name), so these are its steps by hand.
    """

    def gradient(x: Any, y: Any) -> tuple[Any, Any]:
        y = _descended(torch, g, x, y, D, plan.tau).requires_grad_()
        x = x.detach().requires_grad_()
        f_x, f_y = torch.autograd.grad(f(x, y), (x, y), allow_unused=True)
        image = y - plan.tau * torch.autograd.grad(g(x, y), y, create_graph=True)[0]

        def product(v: Any) -> Any:  # with I - d image/dy, which is symmetric
            return v - torch.autograd.grad(image, y, v, retain_graph=True)[0]

        v = _conjugate_gradients(torch, product, f_y, K)
        implicit = torch.autograd.grad(image, x, v)[0]
        return (implicit if f_x is None else f_x + implicit), y.detach()

    return gradient


def _conjugate_gradients(torch: Any, product: Callable[[Any], Any], right: Any, K: int) -> Any:
    v, r = torch.zeros_like(right), right
    p, square = r, torch.dot(r, r)
    for _ in range(K):
        if float(square) == 0.0:
            break
        image = product(p)
        length = square / torch.dot(p, image)
        v, r = v + length * p, r - length * image
        square, before = torch.dot(r, r), square
        p = r + (square / before) * p
    return v


def _of_torch(name: str, setting: str, needs: tuple[str, ...], gradient: Callable[..., Gradient]) -> Entrant:
    return Entrant(name, setting, ("torch", *needs), partial(_torch_method, gradient))


# ---- all of them ----------------------------------------------------------------------------------------------------

ENTRANTS: Mapping[str, Entrant] = MappingProxyType({
    "exact": Entrant("ours, Exact", "defaults", (), partial(_ours, lambda plan: Exact())),
    "aid-loose": _aid(10, 5),
    "aid-tight": _aid(50, 20),
    "jaxopt-lbfgs": _of_jax("jaxopt LBFGS", "defaults (tol 1e-3)", ("jaxopt",), partial(_jaxopt, "LBFGS", False)),
    "jaxopt-gd": _of_jax(
        "jaxopt GradientDescent", "defaults (tol 1e-3)", ("jaxopt",), partial(_jaxopt, "GradientDescent", False)
    ),
    "jaxopt-tight": _of_jax("jaxopt LBFGS", "tol 1e-8, cg 1e-8", ("jaxopt",), partial(_jaxopt, "LBFGS", True)),
    "optimistix-bfgs": _of_jax(
        "Optimistix BFGS", "rtol = atol = 1e-5", ("optimistix", "lineax"), partial(_optimistix_bfgs, 1e-5)
    ),
    "optimistix-newton": _of_jax(
        "Optimistix Newton", "rtol = atol = 1e-8, Cholesky", ("optimistix", "lineax"),
        partial(_optimistix_newton, TIGHT),
    ),
    "torchopt": _of_torch("TorchOpt", "D = 10, defaults", ("torchopt",), partial(_torchopt, 10, False)),
    "torchopt-tight": _of_torch("TorchOpt", "D = 50, cg 1e-8", ("torchopt",), partial(_torchopt, 50, True)),
    "hypertorch": _of_torch("as hypertorch", "D = 10, K = 5", (), partial(_hypertorch, 10, 5)),
    "hypertorch-tight": _of_torch("as hypertorch", "D = 50, K = 20", (), partial(_hypertorch, 50, 20)),
})  # fmt: skip
