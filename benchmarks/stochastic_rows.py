"""StocBiO on rows of data against a JAX loop that does the same: ``python -m benchmarks.stochastic_rows [--quick]``.

A logistic loss with a penalty for each feature; every step draws D + Q + 2 batches, each product with its own. One
core, one process a size, all warm, in turn, many short runs; seconds are those of the processor. First they are given
the same batches, and must agree; the timed loops draw their own, JAX inside its compiled loop, which looks rows up
there too and is compiled before. Seconds are those of one estimate: a run of ours makes one more than steps, at its
last point. Ours also has f, checks that all is finite and keeps the best point; its time includes starting ``solve``.
With NUMBA_DISABLE_JIT=1 ours is in NumPy alone.
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
STEPS, REPEATS = 20, 40
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


def measured(rows: int, features: int, batch: int) -> dict[str, Any]:
    """Disagreement on equal batches, and the seconds an estimate of each: the least, and the median."""
    own = data(rows, features)
    mine, (given, theirs) = ours(own, batch), in_jax(own, batch)
    few = 3
    wanted = given(drawn(rows, batch, few + 1, 0)[:few])
    off = float(np.abs(mine(few, 0) - wanted).max() / np.abs(wanted).max())
    runs = {"ours": mine, "JAX": theirs}
    seconds: dict[str, list[float]] = {name: [] for name in runs}
    for k in range(-1, REPEATS):
        for name, run in runs.items():
            begin = time.process_time()
            run(STEPS, k + 1)
            spent = (time.process_time() - begin) / (STEPS + (name != "JAX"))
            if k >= 0:  # the first warms up
                seconds[name].append(spent)
    best = {name: min(own) for name, own in seconds.items()}
    return {"agreement": off, "best": best, "median": {name: float(np.median(own)) for name, own in seconds.items()}}


def main(arguments: list[str]) -> int:
    """The table; exit code 1 where they disagree."""
    if arguments[:1] == ["measure"]:
        print(json.dumps(measured(*map(int, arguments[1:]))))
        return 0
    print(launch.pin(), file=sys.stderr)
    heads = (
        "rows",
        "features",
        "batch",
        "agreement",
        "ours, ms",
        "JAX, ms",
        "JAX / ours",
        "of medians",
    )
    print(f"| {' | '.join(heads)} |\n" + "| --- " * len(heads) + "|")
    worst = 0.0
    for rows, features, batch in SIZES[:2] if "--quick" in arguments else SIZES:
        result = launch.run("stochastic_rows", "measure", *map(str, (rows, features, batch)))
        worst = max(worst, result["agreement"])
        best, median = result["best"], result["median"]
        times = " | ".join(f"{1e3 * best[name]:.2f}" for name in ("ours", "JAX"))
        ratios = " | ".join(f"{own['JAX'] / own['ours']:.2f}" for own in (best, median))
        print(f"| {rows} | {features} | {batch} | {result['agreement']:.0e} | {times} | {ratios} |", flush=True)
    return int(not worst <= TOLERANCE)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
