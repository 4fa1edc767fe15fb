"""The fixed problems: each is right or wrong for a reason of its own."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from functools import partial
from types import MappingProxyType

from bilevel_sym import BilevelProblem, zoo
from verify.gallery.defect import coupled

__all__ = ["PROBLEMS"]


def _quadratic(spectrum: str, seed: int) -> BilevelProblem:
    n = spectrum.count(":") + 1
    return zoo.get("quadratic", d=2, n=n, spectrum=spectrum, seed=seed).problem


def _spread(n: int) -> BilevelProblem:
    """Eigenvalues 1 + k/100, no two the same: conjugate gradients need n steps, and look done before."""
    return _quadratic(":".join(f"{100 + k}/100" for k in range(n)), n)


def _upper_alone() -> BilevelProblem:
    """f knows no y: the hypergradient is f_x, and the adjoint zero."""
    return BilevelProblem(
        "sin(x1)*x2 + x2**2",
        "y1**2 + y1*y2 + 3*y2**2/2 - x1*y1 - x2*y2",
        "x1 x2",
        "y1 y2",
        box={"x1": (-1, 1), "x2": (-1, 1), "y1": (-2, 2), "y2": (-2, 2)},
    )


def _x_absent() -> BilevelProblem:
    """g knows no x: y* is one point, and the hypergradient f_x there."""
    return BilevelProblem(
        "x1*y1 + x2**2*y2",
        "(y1 - 1)**2 + (y1 - 1)*(y2 - 2) + 3*(y2 - 2)**2/2",
        "x1 x2",
        "y1 y2",
        box={"x1": (-1, 1), "x2": (-1, 1), "y1": (-2, 2), "y2": (-3, 3)},
    )


PROBLEMS: Mapping[str, Callable[[], BilevelProblem]] = MappingProxyType({
    "quadratic": partial(_quadratic, "1:2:4", 1),
    "isotropic": partial(_quadratic, "2:2:2", 2),
    "spread, n = 4": partial(_spread, 4),
    "spread, n = 12": partial(_spread, 12),
    "ill-conditioned": partial(_quadratic, "1:10:100:1000:10000", 5),
    "nonlinear": coupled,
    "f_y = 0": _upper_alone,
    "x not in g": _x_absent,
})  # fmt: skip
