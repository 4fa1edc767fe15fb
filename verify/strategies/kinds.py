"""The kinds of problem that can be drawn: a table of what each of them asks for."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import MappingProxyType
from typing import Literal

from bilevel_sym.errors import InvalidArgument
from verify.strategies.recipe import Family

__all__ = ["DEGENERATE", "KINDS", "Size", "Style", "shapes", "style_of"]

Size = int | tuple[int, int]


@dataclass(frozen=True)
class Style:
    """What a kind asks for; "any" asks for nothing."""

    family: Family = "bilevel"
    spectrum: Literal["any", "isotropic", "few", "distinct", "spread"] = "any"
    ripples: Literal["any", "none", "sine", "third", "convex"] = "any"
    root: Literal["any", "zero", "point", "zero or point"] = "any"
    upper: Literal["any", "x only", "linear in y", "quadratic", "even in y", "invariant"] = "any"
    scaled: bool = False
    shape: Callable[[int, int], bool] = lambda d, n: True


_DEGENERATE: Mapping[str, Style] = MappingProxyType(
    {
        "isotropic": Style(spectrum="isotropic", ripples="sine"),
        "few eigenvalues": Style(spectrum="few", ripples="sine", shape=lambda d, n: n >= 3),
        "d = 1": Style(shape=lambda d, n: d == 1),
        "n = 1": Style(shape=lambda d, n: n == 1),
        "d < n": Style(shape=lambda d, n: d < n),
        "d > n": Style(shape=lambda d, n: d > n),
        "early termination": Style(spectrum="distinct", ripples="sine", upper="invariant", shape=lambda d, n: n >= 2),
        "quadratic g": Style(ripples="none"),
        "third derivatives": Style(ripples="third"),
        "ill-conditioned": Style(spectrum="spread", ripples="sine", shape=lambda d, n: n >= 2),
        "root at zero": Style(root="zero"),
        "root at a point": Style(root="point"),
        "zero adjoint": Style(root="zero or point", upper="even in y"),
        "f independent of y": Style(upper="x only"),
        "f linear in y": Style(upper="linear in y"),
        "constant blocks": Style(ripples="none", upper="quadratic"),
        "badly scaled": Style(spectrum="isotropic", ripples="convex", scaled=True),
    }
)

DEGENERATE = tuple(_DEGENERATE)
"""The degenerate kinds.

isotropic: g_yy = c I at y*(x), often 2 I. few eigenvalues: two, for n >= 3. early termination: f_y lies in a subspace
of dimension m < n that g_yy keeps, so that conjugate gradients are exact after m steps. quadratic g, third derivatives:
without and with third derivatives of g at y*(x). ill-conditioned: kappa = 1, 10, ..., 1e8. root at zero: y*(x) = 0 at
every x; root at a point: y*(x) = 0 at a point of the box, ``Recipe.zero``. zero adjoint: one of the two, and v* = 0
there as well. constant blocks: all second derivatives of f and g are constant. badly scaled: units of x from 1e-4
to 1e4, and of y such that kappa <= 1e8.
"""

KINDS: Mapping[str, Style] = MappingProxyType(
    {
        "general": Style(),
        "quadratic": Style(ripples="none", upper="quadratic"),
        "minimax": Style(family="minimax", upper="x only"),
        "stochastic": Style(family="stochastic"),
        **_DEGENERATE,
    }
)


def style_of(kind: object) -> Style:
    """The row of the table, or InvalidArgument.

    >>> style_of("n = 1").shape(3, 1)
    True
    """
    if not isinstance(kind, str) or kind not in KINDS:
        raise InvalidArgument(f"there is no kind of problem called {kind!r:.60}", hint=f"one of {', '.join(KINDS)}")
    return KINDS[kind]


def shapes(style: Style, d: Size, n: Size) -> tuple[tuple[int, int], ...]:
    """The pairs (d, n) that a style allows, the smallest first.

    >>> shapes(KINDS["d < n"], (1, 3), 2)
    ((1, 2),)
    """
    pairs = ((p, q) for p in _sizes("d", d) for q in _sizes("n", n) if style.shape(p, q))
    return tuple(sorted(pairs, key=lambda pair: (sum(pair), pair)))


def _sizes(name: str, size: object) -> range:
    low, high = size if isinstance(size, tuple) and len(size) == 2 else (size, size)
    if not isinstance(low, int) or not isinstance(high, int) or not 1 <= low <= high:
        raise InvalidArgument(f"{name} = {size!r:.60} is no size", hint=f"{name}=2, or {name}=(1, 3) for 1 to 3")
    return range(low, high + 1)
