"""Recipe: a drawn problem with what is known of it by construction.

g(x, y) = (y - y*)^T A (y - y*)/2 + ripples, without what depends on x alone, where y* = W x + w. A has known
eigenvalues, and every ripple is a function of u . (y - y*) whose derivative vanishes at zero: it bends g, and y* stays.

The kinds of problem that can be drawn: a table of what each of them asks for.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from fractions import Fraction
from functools import cached_property
from types import MappingProxyType
from typing import Any, Literal

import sympy as sp

from bilevel_sym import BilevelProblem, Constants, MinimaxProblem, StochasticProblem
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.zoo import exact_constants
from verify.regularity.certified import BLOCKS
from verify.strategies.terms import Matrix, Sum, Vector, dot, norm

__all__ = ["DEGENERATE", "KINDS", "Family", "Noise", "Recipe", "Size", "Style", "shapes", "style_of"]

Size = int | tuple[int, int]


@dataclass(frozen=True)
class Style:
    """What a kind asks for; "any" asks for nothing."""

    family: Family = "bilevel"
    spectrum: Literal["any", "isotropic", "few", "distinct", "spread", "even", "clustered", "decades"] = "any"
    ripples: Literal["any", "none", "sine", "third", "convex", "slow"] = "any"
    root: Literal["any", "zero", "point", "zero or point", "far", "fixed"] = "any"
    upper: Literal["any", "x only", "linear in y", "all of y", "quadratic", "even in y", "invariant"] = "any"
    scaled: bool = False
    shape: Callable[[int, int], bool] = lambda d, n: True
    n: tuple[int, int] = (1, 3)  # variables of y, from and to, unless somebody says otherwise


_BITING: Mapping[str, Style] = MappingProxyType(
    {
        "spread spectrum": Style(spectrum="even", ripples="none", upper="all of y", n=(5, 30)),
        "clustered spectrum": Style(spectrum="clustered", ripples="sine", upper="all of y", n=(5, 30)),
        "ill-conditioned system": Style(spectrum="decades", ripples="none", upper="all of y", n=(5, 12)),
        "far start": Style(root="far", ripples="sine"),
        "slowly varying": Style(ripples="slow"),
        "x absent from g": Style(root="fixed", ripples="sine"),
    }
)

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

DEGENERATE = (*_DEGENERATE, *_BITING)
"""The degenerate kinds.

isotropic: g_yy = c I at y*(x), often 2 I. few eigenvalues: two, for n >= 3. early termination: f_y lies in a subspace
of dimension m < n that g_yy keeps, so that conjugate gradients are exact after m steps. quadratic g, third derivatives:
without and with third derivatives of g at y*(x). ill-conditioned: kappa = 1, 10, ..., 1e8. root at zero: y*(x) = 0 at
every x; root at a point: y*(x) = 0 at a point of the box, ``Recipe.zero``. zero adjoint: one of the two, and v* = 0
there as well. constant blocks: all second derivatives of f and g are constant. badly scaled: units of x from 1e-4
to 1e4, and of y such that kappa <= 1e8.

What loose tolerances and too few iterations do not survive, with n = 5, ..., 30 unless said otherwise: spread spectrum:
eigenvalues c (1 + k s), no two the same, and f_y has a part along each; clustered spectrum: two or three groups of
eigenvalues close to each other; ill-conditioned system: kappa = 1e2, ..., 1e6 and a constant f_y, with n <= 12.
far start: y*(x) is 1e2 to 1e6 away from zero. slowly varying: third derivatives of g, at a tenth or a hundredth of what
curvature allows. x absent from g: y* is one point, and the hypergradient f_x.
"""

KINDS: Mapping[str, Style] = MappingProxyType(
    {
        "general": Style(),
        **_BITING,
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


def shapes(style: Style, d: Size | None, n: Size | None) -> tuple[tuple[int, int], ...]:
    """The pairs (d, n) that a style allows, the smallest first; None for the sizes that it likes best.

    >>> shapes(KINDS["d < n"], (1, 3), 2)
    ((1, 2),)
    """
    rows, columns = (1, 3) if d is None else d, style.n if n is None else n
    pairs = ((p, q) for p in _sizes("d", rows) for q in _sizes("n", columns) if style.shape(p, q))
    return tuple(sorted(pairs, key=lambda pair: (sum(pair), pair)))


def _sizes(name: str, size: object) -> range:
    low, high = size if isinstance(size, tuple) and len(size) == 2 else (size, size)
    if not isinstance(low, int) or not isinstance(high, int) or not 1 <= low <= high:
        raise InvalidArgument(f"{name} = {size!r:.60} is no size", hint=f"{name}=2, or {name}=(1, 3) for 1 to 3")
    return range(low, high + 1)


Family = Literal["bilevel", "minimax", "stochastic"]
_SHORT_DENOMINATOR = 10**6  # a bound with a larger denominator is rounded up to 24 bits


@dataclass(frozen=True)
class Noise:
    """xi (upper . z) added to f; zeta (lower . y) + curvature zeta (lower . y)^2/2 added to g.

    >>> noise = Noise((Fraction(1), Fraction(0)), (Fraction(2),), Fraction(1, 4), xi=(-1, 1), zeta=(-1, 0, 1))
    >>> noise.bend, noise.centred
    (Fraction(1, 1), True)
    """

    upper: Vector
    lower: Vector
    curvature: Fraction
    xi: tuple[int, ...]
    zeta: tuple[int, ...]

    @property
    def bend(self) -> Fraction:
        """How much a row can change the eigenvalues of g_yy."""
        return self.curvature * max(map(abs, self.zeta)) * dot(self.lower, self.lower)

    @property
    def centred(self) -> bool:
        """Whether the mean of g is the g of no noise."""
        return sum(self.zeta) == 0


@dataclass(frozen=True, repr=False)
class Recipe:
    """A problem, strongly convex in y by construction, with its constants over its box, y* and spectrum.

    ``spectrum`` are the eigenvalues of A, the curvature of g without ripples and noise; where all ripples are sines,
    those of g_yy at every (x, y*(x)).

    - ``kind``: one of ``KINDS``, by which it was drawn.
    - ``family``: "bilevel", "minimax" or "stochastic".
    - ``upper``: f, as a sum of terms.
    - ``lower``: g, likewise.
    - ``eigenvalues``: those of A, as fractions.
    - ``frame``: the eigenvectors, not normalised.
    - ``response``: the matrix W, n by d, of y*(x) = W x + w.
    - ``origin``: the vector w.
    - ``deficit``: what the ripples may take from the smallest eigenvalue.
    - ``radii``: half the widths of the box.
    - ``zero``: a point x of the box with y*(x) = 0, where one was planned.
    - ``noise``: that of the data rows, where there are any.

    >>> import hypothesis.strategies as st
    >>> from hypothesis import find
    >>> from verify.strategies import recipes
    >>> recipe = find(recipes(), lambda recipe: True)
    >>> recipe.problem
    BilevelProblem('y1', '-2*x1*y1 + y1**2', 'x1', 'y1', box={'x1': (-1, 1), 'y1': (-2, 2)})
    >>> recipe.y_star, recipe.spectrum, recipe.constants
    ((x1,), (2,), Constants(mu=2, ell=2, rho=0, nu=0, M=1, sigma=None, reading='block'))
    """

    kind: str
    family: Family
    upper: Sum
    lower: Sum
    eigenvalues: Vector
    frame: Matrix
    response: Matrix  # W, n by d
    origin: Vector  # w
    deficit: Fraction  # what the ripples may take from the smallest eigenvalue
    radii: Vector
    zero: tuple[float, ...] | None = None
    noise: Noise | None = None

    @property
    def d(self) -> int:
        """The number of upper-level variables."""
        return self.lower.d

    @property
    def n(self) -> int:
        """The number of lower-level variables."""
        return len(self.eigenvalues)

    @property
    def kappa(self) -> sp.Rational:
        """The condition number of A."""
        return max(self.spectrum) / min(self.spectrum)

    @cached_property
    def spectrum(self) -> tuple[sp.Rational, ...]:
        """The eigenvalues of A, in the order of ``frame``."""
        return tuple(map(_rational, self.eigenvalues))

    @cached_property
    def _variables(self) -> tuple[sp.Symbol, ...]:
        return tuple(sp.Symbol(f"x{i + 1}") for i in range(self.d)) + tuple(
            sp.Symbol(f"y{k + 1}") for k in range(self.n)
        )

    @cached_property
    def problem(self) -> BilevelProblem:
        """The problem itself."""
        z, d = self._variables, self.d
        ends = ((-_rational(r), _rational(r)) for r in self.radii)
        box = dict(zip((s.name for s in z), ends, strict=True))
        f, g = self.upper.expression(z), self.lower.expression(z)
        if self.family == "minimax":
            return MinimaxProblem(f, z[:d], z[d:], box=box)
        if self.noise is None:
            return BilevelProblem(f, g, z[:d], z[d:], box=box)
        return _noisy(self.noise, f, g, z, d, box)

    @cached_property
    def y_star(self) -> tuple[sp.Expr, ...] | None:
        """y*(x), exactly; None where noise with a mean moves it."""
        if self.noise is not None and not self.noise.centred:
            return None
        x = self._variables[: self.d]
        return tuple(
            sp.Add(_rational(shift), *(_rational(a) * s for a, s in zip(row, x, strict=True)))
            for row, shift in zip(self.response, self.origin, strict=True)
        )

    @cached_property
    def constants(self) -> Constants:
        """Constants with which Assumption 2.1 holds over the box, block by block: mu from below, the rest from above.

        mu and the norm of g_yy are exact where g is quadratic in y. Of a stochastic problem they hold for every row.

        Paper: Assumption 2.1 [assu:bilevel]
        """
        bend = Fraction(0) if self.noise is None else self.noise.bend
        above = {name: max(map(self._norm, BLOCKS["block"][name])) for name in ("ell", "rho", "nu", "M")}
        mu = _rational(min(self.eigenvalues) - self.deficit - bend)
        return exact_constants(mu=mu, **{name: _short_bound(value) for name, value in above.items()})

    def _norm(self, block: str) -> Fraction:
        """A bound on one block, such as f_xxy."""
        level, _, axes = block.partition("_")
        i, j = axes.count("x"), axes.count("y")
        plain = (self.upper if level == "f" else self.lower).norm(i, j, self.radii)
        if self.noise is None or (level, axes) not in (("f", "x"), ("f", "y"), ("g", "yy")):
            return plain
        if level == "g":
            return plain + self.noise.bend
        form = self.noise.upper[: self.d] if i else self.noise.upper[self.d :]
        return plain + max(map(abs, self.noise.xi)) * norm(form)

    def rescaled(self, factors: Vector) -> Recipe:
        """The same problem in other units: every variable divided by its factor. A must be diagonal."""
        d = self.d
        eigenvalues = tuple(value * s**2 for value, s in zip(self.eigenvalues, factors[d:], strict=True))
        return replace(
            self,
            upper=self.upper.rescaled(factors),
            lower=replace(self.lower.rescaled(factors), curvature=max(eigenvalues)),
            eigenvalues=eigenvalues,
            response=tuple(
                tuple(a * s / t for a, s in zip(row, factors[:d], strict=True))
                for row, t in zip(self.response, factors[d:], strict=True)
            ),
            origin=tuple(a / t for a, t in zip(self.origin, factors[d:], strict=True)),
            radii=tuple(r / s for r, s in zip(self.radii, factors, strict=True)),
        )

    def __repr__(self) -> str:
        return f"<Recipe ({self.kind}) of {self.problem!r}>"

    def _repr_pretty_(self, printer: Any, cycle: bool) -> None:
        """What Hypothesis prints of a failing example; of a dataclass it would print every field."""
        printer.text(repr(self))


def _noisy(
    noise: Noise,
    f: sp.Expr,
    g: sp.Expr,
    z: tuple[sp.Symbol, ...],
    d: int,
    box: Mapping[str, tuple[sp.Rational, sp.Rational]],
) -> StochasticProblem:
    xi, zeta = sp.Symbol("xi"), sp.Symbol("zeta")
    along_z = sp.Add(*(_rational(a) * s for a, s in zip(noise.upper, z, strict=True)))
    along_y = sp.Add(*(_rational(a) * s for a, s in zip(noise.lower, z[d:], strict=True)))
    F = f + xi * along_z
    G = g + zeta * along_y + _rational(noise.curvature / 2) * zeta * along_y**2
    rows = tuple([[value] for value in data] for data in (noise.xi, noise.zeta))
    return StochasticProblem(F, G, z[:d], z[d:], [xi], [zeta], *rows, box=box)


def _rational(value: Fraction) -> sp.Rational:
    return sp.Rational(value.numerator, value.denominator)


def _short_bound(bound: Fraction) -> sp.Rational:
    """The bound, or a somewhat larger one with fewer digits."""
    if bound.denominator <= _SHORT_DENOMINATOR:
        return _rational(bound)
    bits = 24 - (bound.numerator.bit_length() - bound.denominator.bit_length())
    unit = Fraction(2) ** -bits
    return _rational(-(-bound // unit) * unit)
