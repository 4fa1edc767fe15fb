"""StocBiO on rows of data against a JAX loop that does the same: ``python -m benchmarks.stochastic_rows [--quick]``.

A logistic loss with a penalty for each feature; every step draws D + Q + 2 batches, each product with its own. One
core, one process a size, both warm, in turn; seconds are those of the processor. First the two are given the same
batches, and must agree; the timed loops draw their own, JAX inside its compiled loop.
"""

from __future__ import annotations

import json
import sys
import time
from collections.abc import Callable
from importlib import import_module
from typing import Any

import numpy as np

from benchmarks import launch

__all__ = ["main"]

SIZES = ((10_000, 20, 64), (100_000, 100, 64), (100_000, 100, 256), (100_000, 100, 1024))
D, Q, STEP, OUTER = 10, 10, 0.5, 0.1
TOLERANCE = 1e-9
REPEATS = 7
Floats = Any


def data(rows: int, features: int) -> dict[str, Floats]:
    """Training and validation rows with labels."""
    rng = np.random.default_rng(0)
    e, a = (rng.normal(size=(rows, features)) / np.sqrt(features) for _ in range(2))
    truth = rng.normal(size=features)
    labels = {name: np.sign(own @ truth + 0.3 * rng.normal(size=rows)) for name, own in (("d", e), ("b", a))}
    return {"e": e, "a": a, **labels}


def ours(own: dict[str, Floats], batch: int) -> Callable[[int, int], Floats]:
    """(steps, seed) -> x after so many steps of ours."""
    from bilevel_sym import StocBiO, StochasticProblem, solve

    problem = StochasticProblem(
        "softplus(-b*(a @ y))", "softplus(-d*(e @ y)) + exp(x) @ y**2/2", "x[n]", "y[n]", "a[n] b", "e[n] d",
        {"a": own["a"], "b": own["b"]}, {"e": own["e"], "d": own["d"]},
    )  # fmt: skip
    algorithm = StocBiO(D, Q, batch, STEP, OUTER, STEP, batch, batch)
    x0 = np.zeros(problem.d)
    return lambda steps, seed: solve(problem, algorithm, x0, steps=steps, rng=seed, record="last").x


def drawn(rows: int, batch: int, steps: int, seed: int) -> Floats:
    """The rows that ours draws, (steps, D + 2 + Q, batch)."""
    from bilevel_sym.solvers.noise import Streams, seeds_for

    stream = Streams(seeds_for(seed, 1))[0]
    return np.array([[stream.integers(rows, size=batch) for _ in range(D + 2 + Q)] for _ in range(steps)])


def in_jax(own: dict[str, Floats], batch: int) -> tuple[Callable[[Floats], Floats], Callable[[int, int], Floats]]:
    """Of given batches -> x; and (steps, seed) -> x with batches of its own."""
    jax: Any = import_module("jax")
    jnp: Any = import_module("jax.numpy")
    jax.config.update("jax_enable_x64", True)
    rows, features = own["e"].shape
    held = {name: jnp.asarray(value) for name, value in own.items()}

    def upper(y: Any, held: Any, picked: Any) -> Any:
        return jnp.mean(jax.nn.softplus(-held["b"][picked] * (held["a"][picked] @ y)))

    def lower(x: Any, y: Any, held: Any, picked: Any) -> Any:
        return jnp.mean(jax.nn.softplus(-held["d"][picked] * (held["e"][picked] @ y))) + jnp.exp(x) @ y**2 / 2

    def step(point: Any, held: Any, batches: Any) -> tuple[Any, Any]:
        x, y = point

        def descend(y: Any, picked: Any) -> tuple[Any, None]:
            return y - STEP * jax.grad(lower, 1)(x, y, held, picked), None

        y, _ = jax.lax.scan(descend, y, batches[:D])
        right = jax.grad(upper)(y, held, batches[D])

        def series(carry: Any, picked: Any) -> tuple[Any, None]:
            power, total = carry
            image = jax.jvp(lambda z: jax.grad(lower, 1)(x, z, held, picked), (y,), (power,))[1]
            power = power - STEP * image
            return (power, total + power), None

        (_, total), _ = jax.lax.scan(series, (right, right), batches[D + 2 :])
        v = STEP * total
        implicit = jax.grad(lambda z: jax.grad(lower, 1)(z, y, held, batches[D + 1]) @ v)(x)
        return x + OUTER * implicit, y

    def given(held: Any, batches: Any) -> Any:
        start = (jnp.zeros(features), jnp.zeros(features))
        return jax.lax.scan(lambda c, b: (step(c, held, b), None), start, batches)[0][0]

    def drawing(held: Any, key: Any, steps: int) -> Any:
        def body(carry: Any, key: Any) -> tuple[Any, None]:
            batches = jax.random.randint(key, (D + 2 + Q, batch), 0, rows)
            return step(carry, held, batches), None

        return jax.lax.scan(body, (jnp.zeros(features),) * 2, jax.random.split(key, steps))[0][0]

    run, loop = jax.jit(given), jax.jit(drawing, static_argnums=2)
    return (
        lambda batches: np.asarray(run(held, jnp.asarray(batches))),
        lambda steps, seed: np.asarray(loop(held, jax.random.key(seed), steps).block_until_ready()),
    )


def measured(rows: int, features: int, batch: int, steps: int) -> dict[str, Any]:
    """Disagreement on equal batches, and the seconds a step of each."""
    own = data(rows, features)
    mine, (given, theirs) = ours(own, batch), in_jax(own, batch)
    few = 3
    one, two = mine(few, 0), given(drawn(rows, batch, few + 1, 0)[:few])
    seconds: dict[str, list[float]] = {"ours": [], "JAX": []}
    for run in (mine, theirs):
        run(steps, 0)
    for k in range(REPEATS):
        for name, run in (("ours", mine), ("JAX", theirs)):
            begin = time.process_time()
            run(steps, k)
            seconds[name].append((time.process_time() - begin) / steps)
    best = {name: min(own) for name, own in seconds.items()}
    return {"agreement": float(np.abs(one - two).max() / np.abs(two).max()), **best}


def main(arguments: list[str]) -> int:
    """The table; exit code 1 where the two disagree."""
    if arguments[:1] == ["measure"]:
        print(json.dumps(measured(*map(int, arguments[1:]))))
        return 0
    print(launch.pin(), file=sys.stderr)
    print(
        "| rows | features | batch | agreement | ours, ms a step | JAX, ms a step | JAX / ours |\n" + "| --- " * 7 + "|"
    )
    worst = 0.0
    for rows, features, batch in SIZES[:2] if "--quick" in arguments else SIZES:
        result = launch.run("stochastic_rows", "measure", *map(str, (rows, features, batch, 40)))
        worst = max(worst, result["agreement"])
        cells = f"{result['agreement']:.0e} | {1e3 * result['ours']:.2f} | {1e3 * result['JAX']:.2f}"
        print(f"| {rows} | {features} | {batch} | {cells} | {result['JAX'] / result['ours']:.2f} |", flush=True)
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
