"""Does anything break in the long run? ``python -m benchmarks.endurance [NAME ...] [--share 0.01] [--seed N]``.

Each exercise tries something many times and counts what fails: an error that is not typed, a number that is not the
one before, a file that is neither the old one nor the new one. Whether memory grows is measured between the first tenth
and the end. ``--share`` tries that part of each count.
"""

from __future__ import annotations

import argparse
import hashlib
import random
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType

import numpy as np

import verify
from bilevel_sym import AID, BilevelProblem, Descent, Perturbed, Status, derive, evaluate, solve, zoo
from bilevel_sym.errors import BilevelError
from bilevel_sym.system.budget import Stopwatch
from bilevel_sym.system.progress import ProgressBar

__all__ = ["EXERCISES", "Outcome", "exercise", "main"]

GROWTH = 64  # megabytes that caches may take between the first tenth and the end
ENSEMBLE = 1000
SIDE_BY_SIDE = 1e-5  # a hypergradient beside a difference quotient, relative

Failure = str | None


@dataclass(frozen=True)
class Outcome:
    """What became of an exercise."""

    name: str
    tried: int
    failures: Sequence[str]
    growth: float  # megabytes
    seconds: float


def megabytes() -> float:
    """What this process holds now."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmRSS"):
            return int(line.split()[1]) / 1024
    return 0.0


# ---- the exercises: each yields None for what went well, a sentence for what did not ---------------------------------


def problems(count: int, rng: random.Random) -> Iterator[Failure]:
    """Problems of all shapes from text: their hypergradient at a point, some of them beside a difference quotient."""
    for k in range(count):
        d, n = rng.choice([(1, 1), (1, 2), (2, 1), (2, 2), (3, 2)])
        text = _formulas(d, n, rng)
        try:
            problem = BilevelProblem(*text)
            x = np.array([rng.uniform(-1, 1) for _ in range(d)])
            grad = problem.kernels.grad_phi(x)
            if not np.isfinite(grad).all():
                yield f"{text}: {grad}"
            elif k % 100 == 0 and not _is_slope(problem, x, grad):
                yield f"{text}: {grad} is not the slope of Phi"
            else:
                yield None
        except BilevelError:
            yield None
        except Exception as error:  # noqa: BLE001  this is what is looked for
            yield f"{text}: {error!r}"


def _formulas(d: int, n: int, rng: random.Random) -> tuple[str, str, str, str]:
    xs, ys = [f"x{i + 1}" for i in range(d)], [f"y{j + 1}" for j in range(n)]
    functions = ("sin", "cos", "tanh", "atan", "softplus", "exp", "sigmoid")

    def number() -> str:
        return f"{rng.choice([rng.randint(1, 9), round(rng.uniform(0.1, 3), 3)])}"

    def term(names: list[str]) -> str:
        inner = " + ".join(f"{number()}*{name}" for name in rng.sample(names, rng.randint(1, len(names))))
        return rng.choice([f"{rng.choice(functions)}(({inner})/9)", f"({inner})**{rng.randint(2, 3)}/9", inner])

    f = " - ".join(f"{number()}*{term(xs + ys)}" for _ in range(3))
    convex = " + ".join(f"{number()}*{y}**2" for y in ys)
    return (
        f,
        f"{convex} + softplus({ys[0]} - {xs[0]}) - {ys[-1]}*({term(xs)})",
        " ".join(xs),
        " ".join(ys),
    )


def _is_slope(problem: BilevelProblem, x: np.ndarray, grad: np.ndarray) -> bool:
    step = 1e-5
    ends = np.array([x + sign * step * row for row in np.eye(len(x)) for sign in (1, -1)])
    phi = problem.kernels.phi(ends).reshape(-1, 2)
    slope = (phi[:, 0] - phi[:, 1]) / (2 * step)
    return bool(np.all(np.abs(slope - grad) <= SIDE_BY_SIDE * (1 + np.abs(phi).max() + np.abs(grad))))


def trajectories(count: int, rng: random.Random) -> Iterator[Failure]:
    """Runs in ensembles: each ends in a status, and one of each ensemble has the same bits alone."""
    algorithms = (
        Descent(AID(D=5, N=3, tau=0.1), eta=0.05),
        Perturbed(AID(D=5, N=3, tau=0.1), eta=0.05, eps=0.01, r=0.1, T_escape=20),
    )
    names = ("saddle", "scalar", "implicit_cubic")
    for k in range(max(1, count // ENSEMBLE)):
        problem = zoo.get(names[k % len(names)]).problem
        start = np.random.default_rng(rng.getrandbits(32)).uniform(-1, 1, (min(ENSEMBLE, count), problem.d))
        seeds = [rng.getrandbits(32) for _ in start]
        algorithm = algorithms[k % 2]
        together = solve(problem, algorithm, start, steps=50, rng=seeds)
        one = rng.randrange(len(start))
        alone = solve(problem, algorithm, start[one], steps=50, rng=seeds[one])
        same = np.array_equal(alone.x, together.x[one])
        known = {int(status) for status in Status}
        for status in np.ravel(together.status):
            yield None if int(status) in known and same else f"{problem.name}: no status, or other bits alone"


def rounds(count: int, rng: random.Random) -> Iterator[Failure]:
    """One person's day, again and again: derive, certify, solve, save, load, recheck; the same bits each time."""
    first = None
    with tempfile.TemporaryDirectory() as folder:
        for _ in range(count):
            now = _day(Path(folder))
            first = first or now
            yield None if now == first else "a round ended otherwise than the first one"


def _day(folder: Path) -> str:
    problem = BilevelProblem("x*y + y**2", "y**2/2 + y**4/4 - sin(x)*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    problem.save(folder / "toy.toml")
    again = BilevelProblem.load(folder / "toy.toml")
    certificate = evaluate(again, ["1/3"], digits=20)
    certificate.save(folder / "point.json")
    parts = [
        derive(again).latex(),
        str(certificate),
        verify.recheck(folder / "point.json", problem),
        solve(again, Descent(AID(D=5, N=5, tau=0.2), eta=0.1), [0.5], steps=100).x.tobytes(),
        verify.constants(again, effort="quick"),
    ]
    return hashlib.sha256("\n".join(map(str, parts)).encode()).hexdigest()


PIECES = (
    "x", "y", "1", "0", "-1", "1e9", "1e-400", "9" * 50, "pi", "E", "nan", "oo", "I", "(", ")", "((", "))", "**", "*",
    "/", "+", "-", ",", ";", "=", "<", "<=", "==", "'", '"', "`", "\\", "\n", "\0", "\x1b[2J", "é", "∂", "sin(", "exp(",
    "log(", "sqrt(", "abs(", "max(x,", "min(", "Piecewise((", "__import__('os')", "eval(", "[", "]", "{", "}",
    "@", "#", "$", "x" * 70, "f", "zeta(", "exp(exp(exp(", "**9**9**9", "/0", "(0/0)", "**(1/3)", "**-1", "tan(",
    "lambda:", "1_000", "0x10", "..", "softplus(", "sigmoid(",
)  # fmt: skip


SHAPES = (
    "({a}) + ({b})", "({a}) - ({b})", "({a})*({b})", "({a})/({b})", "({a})**{k}", "({a})**(-{k})", "({a})**(1/{k})",
    "exp({a})", "log({a})", "sqrt({a})", "sin({a})", "tan({a})", "tanh({a})", "cosh({a})", "abs({a})", "sign({a})",
    "max({a}, {b})", "min({a}, {b})", "softplus({a})", "sigmoid({a})", "Piecewise(({a}, x < {b}), ({b}, True))",
)  # fmt: skip
LEAVES = ("x", "y", "0", "1", "-1", "1/3", "1e300", "1e-300", "0.1", "pi", "E", "(x - x)", "10**40")


def _well_formed(rng: random.Random, depth: int) -> str:
    """What the grammar can read, though it may mean nothing: divisions by zero, towers, domains without a point."""
    if depth == 0:
        return rng.choice(LEAVES)
    a, b = (_well_formed(rng, rng.randrange(depth)) for _ in "ab")
    return rng.choice(SHAPES).format(a=a, b=b, k=rng.choice((2, 3, 7, 40)))


def texts(count: int, rng: random.Random) -> Iterator[Failure]:
    """Hostile texts: each is a problem, all of whose formulas are written, or one typed error."""
    for _ in range(count):
        broken = "".join(rng.choices(PIECES, k=rng.randint(1, 40)))
        text = broken if rng.random() < 0.25 else _well_formed(rng, rng.randint(1, 5))
        g = rng.choice([text, f"y**2/2 + ({text})", f"exp({text})*y**2"])
        try:
            found = derive(BilevelProblem(rng.choice(["x*y", text]), g, "x", "y"))
            found.latex()
            found.source("numpy")
            yield None
        except BilevelError:
            yield None
        except Exception as error:  # noqa: BLE001  this is what is looked for
            yield f"{g!r}: {error!r}"


SAVING = """
import sys
from bilevel_sym import BilevelProblem
kinds = [BilevelProblem("x*y", "y**2/2 - x*y" + f" + {k}*x" * 2000, "x", "y", name=str(k)) for k in range(2)]
kinds[0].save(sys.argv[1])
print("ready", flush=True)
while True:
    for problem in kinds:
        problem.save(sys.argv[1])
"""


def kills(count: int, rng: random.Random) -> Iterator[Failure]:
    """kill -9 in the middle of saving: the file is always one of the two that were saved, whole."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "toy.toml"
        for _ in range(count):
            with subprocess.Popen([sys.executable, "-c", SAVING, str(path)], stdout=subprocess.PIPE) as child:
                assert child.stdout is not None
                child.stdout.readline()  # it has saved once
                signal.sigtimedwait((), rng.uniform(0, 0.05))
                child.kill()
            try:
                yield None if BilevelProblem.load(path).name in ("0", "1") else "another file"
            except BilevelError as error:
                yield f"{error}"
            path.unlink()


EXERCISES: Mapping[str, tuple[Callable[[int, random.Random], Iterator[Failure]], int]] = MappingProxyType(
    {
        "problems": (problems, 100_000),
        "trajectories": (trajectories, 100_000),
        "rounds": (rounds, 500),
        "texts": (texts, 1_000),
        "kills": (kills, 100),
    }
)


def exercise(name: str, share: float = 1.0, seed: int = 0, *, progress: bool = False) -> Outcome:
    """Try one of the exercises."""
    run, count = EXERCISES[name]
    wanted = max(1, round(count * share))
    failures, tried, early, watch = list[str](), 0, megabytes(), Stopwatch()
    with ProgressBar(name, wanted, shown=progress) as meter:
        for failure in run(wanted, random.Random(seed)):
            tried += 1
            failures += [failure] if failure else []
            if tried == wanted // 10:
                early = megabytes()
            meter.at(tried)
    growth = megabytes() - early
    if growth > GROWTH:
        failures.append(f"memory grew by {growth:.0f} MB")
    return Outcome(name, tried, failures, growth, watch.elapsed)


def main(arguments: Sequence[str] | None = None) -> int:
    """Print the table; 1 where anything failed."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("names", nargs="*", metavar="NAME", default=[*EXERCISES], help=", ".join(EXERCISES))
    parser.add_argument("--share", type=float, default=1.0)
    parser.add_argument("--seed", type=int, default=0)
    given = parser.parse_args(arguments)
    print("| exercise | tried | failed | memory grew by | seconds |\n| --- | --- | --- | --- | --- |", flush=True)
    failed = False
    for name in given.names:
        found = exercise(name, given.share, given.seed, progress=sys.stderr.isatty())
        failed |= bool(found.failures)
        print(
            f"| {name} | {found.tried} | {len(found.failures)} | {found.growth:.0f} MB | {found.seconds:.0f} |",
            flush=True,
        )
        print(*(f"  {line[:300]}" for line in found.failures[:10]), sep="\n", end="" if not found.failures else "\n")
    return int(failed)


if __name__ == "__main__":
    raise SystemExit(main())
