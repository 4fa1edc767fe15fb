"""The problems of the second set of planted defects, and what a program may ask of one: blocks, in plain NumPy.

A third of them is the zoo's, a third is drawn from the strategies by fixed seeds, a third is written here: nonlinear,
d != n, with data, one that nothing but a least-squares program would ask for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any

import numpy as np
import sympy as sp
from hypothesis import HealthCheck, Phase, given, seed, settings

from bilevel_sym import BilevelProblem, zoo
from bilevel_sym.typing import Floats
from verify.strategies import degenerate, problems, quadratics

__all__ = ["LOGISTIC", "NAMES", "RIDGE", "Plain", "arrays", "plain", "solved"]


def solved(H: Floats, b: Floats) -> Floats:
    """H^-1 b."""
    return np.asarray(np.linalg.solve(H, b), dtype=np.float64)


def _drawn(kind: str, number: int, **sizes: int) -> BilevelProblem:
    """The twelfth problem that this seed draws: not the simplest one."""
    drawn: list[BilevelProblem] = []
    named: Mapping[str, Callable[..., Any]] = {"general": problems, "quadratic": quadratics}
    strategy = named[kind](**sizes) if kind in named else degenerate(kind, **sizes)

    @seed(number)
    @settings(
        max_examples=12, phases=[Phase.generate], database=None, deadline=None,
        suppress_health_check=list(HealthCheck),
    )  # fmt: skip
    @given(strategy)
    def draw(problem: BilevelProblem) -> None:
        drawn.append(problem)

    draw()
    return drawn[-1]


def _box(problem_x: str, problem_y: str, x: float = 1, y: float = 4) -> dict[str, tuple[float, float]]:
    return dict.fromkeys(problem_x.split(), (-x, x)) | dict.fromkeys(problem_y.split(), (-y, y))


def _own(f: str, g: str, x: str, y: str, width: float = 4) -> Callable[[], BilevelProblem]:
    return lambda: BilevelProblem(f, g, x, y, box=_box(x, y, y=width))


def _spread() -> BilevelProblem:
    """Eigenvalues 1, 3, 9, ..., 729 along the axes, and a right-hand side that meets all of them."""
    y = [f"y{k + 1}" for k in range(7)]
    g = " + ".join(f"{3**k}*{name}**2/2" for k, name in enumerate(y)) + " - x1*y1 - 2*x1*y3 - x2*y4 - 5*x2*y6"
    f = " + ".join(f"({name} - {k + 1})**2/2" for k, name in enumerate(y)) + " + x1*y2"
    return BilevelProblem(f, g, "x1 x2", " ".join(y), box=_box("x1 x2", " ".join(y)))


def _data(lower: str, upper: str, x: str, rows: int, columns: int, number: int) -> Callable[[], BilevelProblem]:
    def made() -> BilevelProblem:
        data = arrays(rows, columns, number)
        return BilevelProblem(upper, lower, x, "y[n]", data=data)

    return made


def arrays(rows: int, columns: int, number: int) -> dict[str, Floats]:
    """Data of a regression, with labels -1 and 1, for training (A, b) and for validation (B, c)."""
    rng = np.random.default_rng(number)
    A, B = rng.normal(size=(rows, columns)), rng.normal(size=(rows // 2, columns))
    w = rng.normal(size=columns)
    return {"A": A, "b": np.sign(A @ w + rng.normal(size=rows)), "B": B, "c": np.sign(B @ w)}


LOGISTIC = ("mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2", "mean(softplus(-c*(B @ y)))", "x[n]")
RIDGE = ("(A @ y - b) @ (A @ y - b)/20 + exp(x)*(y @ y)/2", "(B @ y - c) @ (B @ y - c)/10 + x**2/50", "x")

_SOURCES: Mapping[str, Callable[[], BilevelProblem]] = MappingProxyType(
    {
        "scalar": lambda: zoo.get("scalar").problem,
        "cubic": lambda: zoo.get("implicit_cubic").problem,
        "saddle": lambda: zoo.get("saddle", d=3).problem,
        "quadratic": lambda: zoo.get("quadratic").problem,
        "square": lambda: zoo.get("quadratic", d=3, n=3, seed=5).problem,
        "ridge": lambda: zoo.get("ridge").problem,
        "iris": lambda: zoo.get("logistic").problem,
        "cleaning": lambda: zoo.get("hyper_cleaning", rows=6).problem,
        "drawn": lambda: _drawn("general", 101, d=2, n=2),
        "drawn wide": lambda: _drawn("general", 102, d=1, n=3),
        "drawn tall": lambda: _drawn("d > n", 103),
        "drawn quadratic": lambda: _drawn("quadratic", 104, d=2, n=3),
        "drawn slow": lambda: _drawn("slowly varying", 105),
        "drawn spread": lambda: _drawn("spread spectrum", 106),
        "drawn clusters": lambda: _drawn("clustered spectrum", 107),
        "drawn third": lambda: _drawn("third derivatives", 108, d=2, n=2),
        "coupled": _own(
            "sin(x1)*y1 + y1*y2/2 + y2**2/2 + x2**2/2 + x1*x2",
            "cosh(y1 - x2) + y1**2 + y2**2 + y1*y2/2 - x1*y2 - sin(x2)*y1 + y2**4/12",
            "x1 x2", "y1 y2",
        ),
        "nonlinear": _own(
            "exp(y1)/2 + x1*y2**2 + cos(x2 + y2) + x3*y1*y2",
            "(2 + sin(x1))*y1**2 + y2**2*exp(x2/2) + y1*y2*x3/2 - x1*y1 - (x2 + 1/2)*y2 + exp(y1/2)",
            "x1 x2 x3", "y1 y2",
        ),
        "one above": _own(
            "(y1 - 1)**2 + y2*y3 + x*y3 + x**3/3",
            "y1**2 + 2*y2**2 + 3*y3**2 + y1*y2 - x*y1 - x**2*y2 - y3*(1 + x) + cosh(y3 - y2)",
            "x", "y1 y2 y3",
        ),
        "turned": _own(
            "(y1 - 2)**2/2 + (y2 + 1)**2/2 + y3**2/2 + x1*y2 + x2**2 + x3",
            "3*y1**2/2 + 2*y2**2 + 5*y3**2/2 + y1*y2 - y2*y3 - (x1 + 2*x2)*y1 - (3*x3 - x1)*y2 - x2*y3",
            "x1 x2 x3", "y1 y2 y3",
        ),
        "penalties": _own(
            "(y1 + y2 - 1)**2/2 + (y1 - 2*y2 - 2)**2/2",
            "(2*y1 - y2 - 1)**2/2 + (y1 + y2 - 3)**2/2 + exp(x1)*y1**2/2 + exp(x2)*y2**2/2",
            "x1 x2", "y1 y2",
        ),
        "least squares": _own(
            "(y1 - 1)**2/2 + (y2 - x1)**2/2 + x2*y1",
            "(y1 + y1**2/3 - x1)**2/2 + (2*y2 - y1**2/4 - x2)**2/2 + 2*y1**2 + (sin(y2) - 1)**2/4",
            "x1 x2", "y1 y2", 1,
        ),
        "steps": _spread,
        "two": _own("y1 + y2 + x1*x2/3", "y1**2/2 + 3*y2**2/2 - x1*y1 - x2*y2", "x1 x2", "y1 y2"),
        "array logistic": _data(*LOGISTIC, 20, 3, 9),
        "array ridge": _data(*RIDGE, 16, 5, 10),
    }
)  # fmt: skip
NAMES = tuple(_SOURCES)


@lru_cache(maxsize=64)
def plain(name: str) -> Plain:
    """That problem as programs see it."""
    return Plain(_SOURCES[name]())


class Plain:
    """Blocks of f and g at a point, third derivatives of g by SymPy, and what is right, all in plain NumPy."""

    def __init__(self, problem: BilevelProblem) -> None:
        self.problem, self.k = problem, problem.kernels
        self.d, self.n = problem.d, problem.n
        ends = np.array([(-1.0, 1.0)] * self.d if problem.box is None else problem.ends("x"), dtype=float)
        self.low, self.high = ends.T

    def points(self) -> Floats:
        """The middle of the box of x, and points at random in it."""
        rng = np.random.default_rng(77)
        return np.vstack([(self.low + self.high) / 2, rng.uniform(self.low, self.high, size=(12, self.d))])

    def y(self, x: Floats) -> Floats:
        """The lower level's solution."""
        return self.k.y_star(x)

    def v(self, x: Floats, y: Floats) -> Floats:
        """g_yy^-1 f_y."""
        return solved(self.k.g_yy(x, y), self.k.f_y(x, y))

    def gradient(self, x: Floats) -> Floats:
        """What is right: f_x - g_xy v."""
        y = self.y(x)
        return self.k.f_x(x, y) - self.k.g_xy(x, y) @ self.v(x, y)

    @cached_property
    def _tensors(self) -> tuple[Callable[..., Any], ...]:
        x, y, g = self.problem.x, self.problem.y, self.problem.g

        def program(*groups: Any) -> Callable[..., Any]:
            derivative = sp.derive_by_array(sp.derive_by_array(sp.derive_by_array(g, groups[2]), groups[1]), groups[0])
            return sp.lambdify((*x, *y), derivative.tolist(), "numpy")  # type: ignore[no-any-return]

        return program(x, x, y), program(x, y, y), program(y, y, y)

    def third(self, x: Floats, y: Floats) -> tuple[Floats, Floats, Floats]:
        """g_xxy, g_xyy, g_yyy."""
        return tuple(np.array(each(*x, *y), dtype=float) for each in self._tensors)  # type: ignore[return-value]

    def pieces(self, x: Floats, y: Floats) -> dict[str, Floats]:
        """The terms of the Hessian of Phi: direct, cross (one of the pair), quadratic, third."""
        Y = -solved(self.k.g_yy(x, y), self.k.g_xy(x, y).T).T  # d x n
        return self.terms_with(x, y, Y, self.v(x, y))

    def terms_with(self, x: Floats, y: Floats, Y: Floats, v: Floats) -> dict[str, Floats]:
        """The same, with dy/dx and v given."""
        xxy, xyy, yyy = self.third(x, y)
        mixed = np.einsum("aik,bi,k->ab", xyy, Y, v)
        third = -(xxy @ v + mixed + mixed.T + Y @ (yyy @ v) @ Y.T)
        k = self.k
        return {
            "direct": k.f_xx(x, y), "cross": k.f_xy(x, y) @ Y.T, "quadratic": Y @ k.f_yy(x, y) @ Y.T, "third": third,
        }  # fmt: skip

    def hessian(self, x: Floats) -> Floats:
        """What is right."""
        at = self.pieces(x, self.y(x))
        return at["direct"] + at["cross"] + at["cross"].T + at["quadratic"] + at["third"]
