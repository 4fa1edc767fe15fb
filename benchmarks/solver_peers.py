"""Perturbed AID three times: this toolkit's ``solve``, JAX, and a NumPy loop written by hand.

All do the same work in an iteration: D gradient steps for y, f and its gradient, N steps of conjugate gradients for v
(both warm), the estimate, the point with the lowest f so far, and a perturbation or a step.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from time import process_time
from typing import Any, Literal, NamedTuple

import numpy as np

from benchmarks.case import Scalar
from benchmarks.solver_cases import ByHand, Setting, SolverCase
from bilevel_sym import Solution, solve
from bilevel_sym.typing import Floats

__all__ = ["JaxStyle", "Outcome", "jax_run", "ours", "plain_jax", "run_by_hand"]

Formulas = tuple[Scalar, Scalar]  # f and g
NOTHING = 1e-300  # a squared residual below this is zero
STATIONARY_SHARE = 0.8


class Outcome(NamedTuple):
    """The last x, the lowest f(x, y^D) seen, how many perturbations there were (-1: not counted), where it was seen."""

    x: Floats
    best: Floats
    perturbations: int = -1
    best_x: Floats | None = None
    best_y: Floats | None = None


def ours(case: SolverCase, backend: Literal["tape", "compiled"]) -> Callable[[Floats, int, float], Outcome]:
    """``solve`` as a function of starts (d,) or (S, d), steps and eps."""
    problem = case.problem()

    def run(x0: Floats, steps: int, eps: float) -> Outcome:
        found: Solution = solve(
            problem, case.setting.algorithm(eps), x0, steps=steps, rng=0, record="last", backend=backend
        )
        if not found.ok:
            raise ArithmeticError(f"{case.name}: {found.describe()}")
        return Outcome(found.x, np.asarray(found.best.phi_hat))

    return run


# ---- NumPy by hand -----------------------------------------------------------------------------------------------


def run_by_hand(problem: ByHand, s: Setting, n: int, x0: Floats, steps: int, eps: float) -> Outcome:
    """One trajectory, as a person would write it."""
    rng = np.random.default_rng(0)
    x, y, v = x0.copy(), np.zeros(n), np.zeros(n)
    best, best_x, best_y = math.inf, x, y
    since, perturbations = s.T_escape + 1, 0
    small = STATIONARY_SHARE * eps
    for k in range(steps + 1):
        problem.at(x)
        for _ in range(s.D):
            y = y - s.tau * problem.g_y(y)
        f, f_x, f_y = problem.upper(y)
        residual = f_y - problem.g_yy_v(v)
        direction, size = residual, residual @ residual
        for _ in range(s.N):
            if size <= NOTHING:
                break
            image = problem.g_yy_v(direction)
            alpha = size / (direction @ image)
            v = v + alpha * direction
            residual = residual - alpha * image
            size, before = residual @ residual, size
            direction = residual + (size / before) * direction
        grad = f_x - problem.g_xy_v(v)
        if f < best:
            best, best_x, best_y = f, x, y
        if k == steps:
            break
        if since > s.T_escape and math.sqrt(grad @ grad) <= small:
            normal = rng.standard_normal(len(x))
            x = x - (s.eta * s.r * rng.random() ** (1 / len(x)) / math.sqrt(normal @ normal)) * normal
            since, perturbations = 1, perturbations + 1
        else:
            x = x - s.eta * grad
            since += 1
    return Outcome(x, np.array(best), perturbations, best_x, best_y)


# ---- JAX ---------------------------------------------------------------------------------------------------------


class State(NamedTuple):
    """What a trajectory carries."""

    x: Any
    y: Any
    v: Any
    since: Any
    best: Any
    best_x: Any
    best_y: Any
    perturbations: Any


@dataclass(frozen=True)
class JaxStyle:
    """How the iteration is written.

    ``unroll``: the loops over D and N, written out or not (on the quartic 4 to 8 times slower written out). ``noise``,
    for many trajectories: "select" is vmap of the whole loop, which draws noise in every iteration and throws most of
    it away; "any" is a loop of vmaps, which draws where at least one trajectory of the chunk wants it.
    """

    unroll: bool
    noise: Literal["any", "select"] = "any"

    def __str__(self) -> str:
        return f"{'unrolled' if self.unroll else 'loops'}, {self.noise}"


def _estimate(f: Scalar, g: Scalar, s: Setting, unroll: bool, x: Any, y: Any, v: Any) -> tuple[Any, ...]:
    """y^D, v^N, f and the estimate."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    g_y = jax.grad(g, 1)
    y = lax.fori_loop(0, s.D, lambda _, y: y - s.tau * g_y(x, y), y, unroll=unroll)
    phi, (f_x, f_y) = jax.value_and_grad(f, (0, 1))(x, y)
    g_yy_v = jax.linearize(partial(g_y, x), y)[1]  # the jvp of g_y; what depends on (x, y) alone is computed once

    def step(_: Any, state: tuple[Any, ...]) -> tuple[Any, ...]:
        v, residual, direction, size = state
        image = g_yy_v(direction)
        curvature = jnp.dot(direction, image)
        going = (size > NOTHING) & (curvature > 0)
        alpha = jnp.where(going, size / curvature, 0.0)
        v, residual = v + alpha * direction, residual - alpha * image
        after = jnp.dot(residual, residual)
        return v, residual, residual + jnp.where(going, after / size, 0.0) * direction, after

    residual = f_y - g_yy_v(v)
    v, *_ = lax.fori_loop(0, s.N, step, (v, residual, residual, jnp.dot(residual, residual)), unroll=unroll)
    implicit = jax.grad(lambda x: jax.jvp(partial(g, x), (y,), (v,))[1])(x)
    return y, v, phi, f_x - implicit


def _ball(key: Any, k: Any, d: int, r: float) -> Any:
    """Uniform in the ball, from a stream of the trajectory's own."""
    import jax
    import jax.numpy as jnp

    here, there = jax.random.split(jax.random.fold_in(key, k))
    normal = jax.random.normal(here, (d,))
    return normal * (r * jax.random.uniform(there) ** (1 / d) / jnp.sqrt(jnp.dot(normal, normal)))


def _advance(s: Setting, eps: Any, noise: Callable[[Any], Any], old: State, found: tuple[Any, ...]) -> State:
    """One move of one trajectory; ``noise`` says what u is, told whether it is wanted."""
    import jax.numpy as jnp

    y, v, phi, grad = found
    due = (jnp.dot(grad, grad) <= (STATIONARY_SHARE * eps) ** 2) & (old.since > s.T_escape)
    better = phi < old.best
    return State(
        x=old.x - s.eta * jnp.where(due, noise(due), grad), y=y, v=v, since=jnp.where(due, 1, old.since + 1),
        best=jnp.where(better, phi, old.best), best_x=jnp.where(better, old.x, old.best_x),
        best_y=jnp.where(better, y, old.best_y), perturbations=old.perturbations + due,
    )  # fmt: skip


def _begin(s: Setting, n: int, x0: Any) -> State:
    import jax.numpy as jnp

    y = jnp.zeros(n)
    return State(x0, y, y, jnp.array(s.T_escape + 1), jnp.array(jnp.inf), x0, y, jnp.array(0))


def _trajectory(formulas: Formulas, s: Setting, n: int, unroll: bool, steps: int, x0: Any, key: Any, eps: Any) -> State:
    """One trajectory: a scan."""
    import jax.numpy as jnp
    from jax import lax

    d = x0.shape[0]

    def body(state: State, k: Any) -> tuple[State, None]:
        def noise(due: Any) -> Any:
            return lax.cond(due, lambda: _ball(key, k, d, s.r), lambda: jnp.zeros(d))

        return _advance(s, eps, noise, state, _estimate(*formulas, s, unroll, state.x, state.y, state.v)), None

    end: State = lax.scan(body, _begin(s, n, x0), jnp.arange(steps))[0]
    return end


def _ensemble(formulas: Formulas, s: Setting, n: int, unroll: bool, steps: int, x0: Any, keys: Any, eps: Any) -> State:
    """Many trajectories: a scan of vmaps, noise where it is wanted."""
    import jax
    import jax.numpy as jnp
    from jax import lax

    d = x0.shape[1]

    def body(state: State, k: Any) -> tuple[State, None]:
        found = jax.vmap(partial(_estimate, *formulas, s, unroll))(state.x, state.y, state.v)
        grad = found[3]
        due = (jnp.sum(grad * grad, axis=1) <= (STATIONARY_SHARE * eps) ** 2) & (state.since > s.T_escape)
        draw: Any = jax.vmap(lambda key: _ball(key, k, d, s.r))
        u = lax.cond(jnp.any(due), lambda: draw(keys), lambda: jnp.zeros_like(grad))
        move: Any = jax.vmap(lambda u, old, found: _advance(s, eps, lambda _: u, old, found))
        return move(u, state, found), None

    end: State = lax.scan(body, jax.vmap(partial(_begin, s, n))(x0), jnp.arange(steps))[0]
    return end


def plain_jax() -> Any:
    """JAX in float64; asynchronous dispatch is off, as in ``benchmarks.peers``."""
    import jax

    config: Any = jax.config
    config.update("jax_enable_x64", True)
    config.update("jax_cpu_enable_async_dispatch", False)
    return jax


def jax_run(
    case: SolverCase, style: JaxStyle, steps: int, chunk: int | None
) -> tuple[Callable[[Floats, float], Outcome], float]:
    """A compiled run over ``steps`` from x0, (d,) or in chunks of (S, d), and the seconds that compiling took."""
    jax = plain_jax()
    common = (case.jax(), case.setting, case.n, style.unroll, steps)
    one, keys = partial(_trajectory, *common), jax.random.split(jax.random.key(0), 1 if chunk is None else 1000)
    whole: Any = one if chunk is None else jax.vmap(one, (0, 0, None))
    if chunk is not None and style.noise == "any":
        whole = partial(_ensemble, *common)
    x = case.starts(chunk or 1)
    start = process_time()
    compiled = jax.jit(whole).lower(*((x[0], keys[0]) if chunk is None else (x, keys[:chunk])), 1.0).compile()
    seconds = process_time() - start

    def run(x0: Floats, eps: float) -> Outcome:
        if chunk is None:
            end = compiled(x0, keys[0], eps)
            return Outcome(np.asarray(end.x), np.asarray(end.best), int(end.perturbations))
        ends = [compiled(x0[i : i + chunk], keys[i : i + chunk], eps) for i in range(0, len(x0), chunk)]
        x, best, count = (np.concatenate([np.asarray(e[i]) for e in ends]) for i in (0, 4, 7))
        return Outcome(x, best, int(count.sum()))

    return run, seconds
