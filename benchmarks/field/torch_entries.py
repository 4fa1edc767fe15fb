"""PyTorch by hand, TorchOpt, higher, Betty, hypergrad and BOAT.

Functions that take y as given are given the exact y*: what is judged is then the derivative. Steps are 1/ell where a
library asks for one. Of Betty the functions that its engine calls are called, with what they read of a problem.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from types import SimpleNamespace
from typing import Any

import numpy as np

from benchmarks.field.entry import Entry
from bilevel_sym import BilevelProblem
from verify.gallery.plain import newton, start, step_size

__all__ = ["ENTRIES"]

Candidate = Callable[[Any], Any]
Gradient = Callable[["Level", Any, Any], Any]  # (problem, x, y*) to the gradient, in tensors


class Level:
    """f and g in PyTorch, y* exact, the step 1/ell."""

    def __init__(self, problem: BilevelProblem) -> None:
        self.torch: Any = import_module("torch")
        self.torch.set_num_threads(1)
        self.problem, self.n, self.eta = problem, problem.n, step_size(problem)
        self.f, self.g = problem.to_torch()

    def tensor(self, array: Any, grad: bool = False) -> Any:
        """Of double precision."""
        return self.torch.tensor(np.asarray(array), dtype=self.torch.float64, requires_grad=grad)

    def y_star(self, x: Any) -> Any:
        """By Newton's method, to the last digits."""
        point = x.detach().numpy()
        return self.tensor(newton(self.problem.kernels, point, start(self.problem)))

    def direct(self, x: Any, y: Any) -> Any:
        """f_x, zero where f does not depend on x."""
        return self._slope(x, y, x)

    def f_y(self, x: Any, y: Any) -> Any:
        """f_y, zero where f does not depend on y."""
        return self._slope(x, y, y)

    def _slope(self, x: Any, y: Any, of: Any) -> Any:
        value = self.f(x, y)
        slope = self.torch.autograd.grad(value, of, allow_unused=True)[0] if value.requires_grad else None
        return self.torch.zeros_like(of) if slope is None else slope


def _candidate(gradient: Gradient, problem: BilevelProblem) -> Candidate:
    level = Level(problem)

    def candidate(point: Any) -> Any:
        x = level.tensor(point, grad=True)
        return np.asarray(gradient(level, x, level.y_star(x).requires_grad_()).detach())

    return candidate


# ---- PyTorch by hand ------------------------------------------------------------------------------------------------


def _by_hand(at: Level, x: Any, y: Any) -> Any:
    func = at.torch.func
    slope = func.grad(at.g, 1)
    v = at.torch.linalg.solve(func.hessian(at.g, 1)(x, y), func.grad(at.f, 1)(x, y))
    return func.grad(at.f, 0)(x, y) - func.vjp(lambda x: slope(x, y), x)[1](v)[0]


# ---- TorchOpt -------------------------------------------------------------------------------------------------------


def _torchopt(solver: str | None, options: dict[str, Any], at: Level, x: Any, y: Any) -> Any:
    torchopt: Any = import_module("torchopt")
    implicit: Any = import_module("torchopt.diff.implicit")
    if options.get("alpha") == "1/ell":
        options = {**options, "alpha": at.eta}
    linear = getattr(torchopt.linear_solve, solver)(**options) if solver else None
    slope = at.torch.func.grad(lambda y, x: at.g(x, y))
    best = implicit.custom_root(slope, argnums=1, solve=linear)(lambda y, x: at.y_star(x))
    return at.torch.autograd.grad(at.f(x, best(y.detach(), x)), x)[0]


# ---- higher ---------------------------------------------------------------------------------------------------------


def _higher(D: int, at: Level, x: Any, y: Any) -> Any:
    """D steps of SGD from zero, unrolled."""
    higher: Any = import_module("higher")
    lower = at.torch.nn.ParameterList([at.torch.nn.Parameter(at.tensor(np.zeros(at.n)))])
    sgd = at.torch.optim.SGD(lower.parameters(), lr=at.eta)
    with higher.innerloop_ctx(lower, sgd) as (inner, steps):
        for _ in range(D):
            steps.step(at.g(x, next(iter(inner.parameters()))))
        loss = at.f(x, next(iter(inner.parameters())))
        return at.torch.autograd.grad(loss, x)[0]


# ---- Betty ----------------------------------------------------------------------------------------------------------


def _betty(name: str, options: dict[str, Any], at: Level, x: Any, y: Any) -> Any:
    """``betty.hypergradient.cg`` and ``neumann``: the implicit term, to which f_x is added."""
    function: Any = getattr(import_module(f"betty.hypergradient.{name}"), name)
    if options.get(f"{name}_iterations") == "n":
        options = {**options, f"{name}_iterations": at.n}
    if options.get("neumann_alpha") == "1/ell":
        options = {**options, "neumann_alpha": at.eta}
    lower = SimpleNamespace(
        paths=[], cur_batch=None, config=import_module("betty.configs").Config(type=name, **options),
        training_step_exec=lambda batch: at.g(x, y), trainable_parameters=lambda: [y], parameters=lambda: [y],
    )  # fmt: skip
    (implicit,) = function([at.f_y(x, y)], lower, SimpleNamespace(trainable_parameters=lambda: [x]))
    direct = at.direct(x, y)
    return direct if implicit is None else direct + implicit


# ---- hypergrad ------------------------------------------------------------------------------------------------------


def _hypergrad(name: str, options: dict[str, Any], at: Level, x: Any, y: Any) -> Any:
    function: Any = getattr(import_module("hypergrad.approx_hypergrad"), name)
    numbers = {"n": at.n, "3n": 3 * at.n, "1/ell": at.eta}
    given = {key: numbers.get(value, value) for key, value in options.items()}
    y, x = y.detach(), x.detach()
    return function(lambda i, o: at.g(o[0], i[0]), lambda i, o: at.f(o[0], i[0]), (y,), (x,), **given)[0]


# ---- BOAT -----------------------------------------------------------------------------------------------------------


def _boat(name: str, K: int, options: dict[str, float], at: Level, x: Any, y: Any) -> Any:
    """What its operators CG and NS call, with their map y - g_y/ell."""
    function: Any = getattr(import_module("boat_torch.utils.op_utils"), name)

    def image(params: Any, loss: Any) -> Any:
        slopes = at.torch.autograd.grad(loss, params, create_graph=True)
        return [p - at.eta * slope for p, slope in zip(params, slopes, strict=True)]

    return function([y], [x], at.f(x, y), at.g(x, y), K, image, **options)[0]


def _both(
    library: str, call: str, needs: tuple[str, ...], loose: tuple[str, Gradient], tight: tuple[str, Gradient]
) -> tuple[Entry, Entry]:
    return (
        Entry(library, call, "defaults", loose[0], ("torch", *needs), partial(_candidate, loose[1])),
        Entry(library, call, "tight", tight[0], ("torch", *needs), partial(_candidate, tight[1])),
    )


BOAT, BETTY, HYPERGRAD = ("boat_torch", "higher"), ("betty",), ("hypergrad", "functorch")
ENTRIES = (
    Entry("torch", "torch.func, linalg.solve, y* exact", "defaults", "", ("torch",), partial(_candidate, _by_hand)),
    *_both(
        "torchopt", "diff.implicit.custom_root, y* exact", ("torchopt",),
        ("solve_normal_cg rtol 1e-5", partial(_torchopt, None, {})),
        ("solve_cg(rtol=1e-15)", partial(_torchopt, "solve_cg", {"rtol": 1e-15})),
    ),
    *_both(
        "torchopt", "custom_root(solve=solve_inv(ns=True)), y* exact", ("torchopt",),
        ("maxiter 10, alpha 1", partial(_torchopt, "solve_inv", {"ns": True})),
        ("maxiter 300, alpha 1/ell", partial(_torchopt, "solve_inv", {"ns": True, "maxiter": 300, "alpha": "1/ell"})),
    ),
    *_both(
        "higher", "innerloop_ctx, SGD from 0", ("higher",),
        ("no default; 10 steps of 1/ell", partial(_higher, 10)), ("300 steps of 1/ell", partial(_higher, 300)),
    ),
    *_both(
        "betty-ml", "hypergradient.cg, y* exact", BETTY,
        ("cg_iterations 1, cg_alpha 1", partial(_betty, "cg", {})),
        ("cg_iterations n, cg_alpha 1", partial(_betty, "cg", {"cg_iterations": "n"})),
    ),
    *_both(
        "betty-ml", "hypergradient.neumann, y* exact", BETTY,
        ("neumann_iterations 1, neumann_alpha 1", partial(_betty, "neumann", {})),
        (
            "neumann_iterations 300, neumann_alpha 1/ell",
            partial(_betty, "neumann", {"neumann_iterations": 300, "neumann_alpha": "1/ell"}),
        ),
    ),
    *_both(
        "hypergrad", "conjugate_gradient, y* exact", HYPERGRAD,
        ("no default; num_iters n, lr 1", partial(_hypergrad, "conjugate_gradient", {"num_iters": "n", "lr": 1.0})),
        ("num_iters 3n, lr 1", partial(_hypergrad, "conjugate_gradient", {"num_iters": "3n", "lr": 1.0})),
    ),
    *_both(
        "hypergrad", "neumann, y* exact", HYPERGRAD,
        ("no default; num_iters 10, lr 1/ell", partial(_hypergrad, "neumann", {"num_iters": 10, "lr": "1/ell"})),
        ("num_iters 300, lr 1/ell", partial(_hypergrad, "neumann", {"num_iters": 300, "lr": "1/ell"})),
    ),
    *_both(
        "boat-torch", "conjugate_gradient, y* exact", BOAT,
        ("K 100, tol 1e-10", partial(_boat, "conjugate_gradient", 100, {})),
        ("K 100, tol 1e-15", partial(_boat, "conjugate_gradient", 100, {"tol": 1e-15})),
    ),
    *_both(
        "boat-torch", "neumann, y* exact", BOAT,
        ("no default for k; 10, tol 1e-10", partial(_boat, "neumann", 10, {})),
        ("k 300, tol 1e-15", partial(_boat, "neumann", 300, {"tol": 1e-15})),
    ),
)  # fmt: skip
