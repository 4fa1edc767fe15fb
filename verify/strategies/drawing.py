"""How the parts of a recipe are drawn. Every choice shrinks to the plainest one: A = 2 I, W and f with one term."""

from __future__ import annotations

from dataclasses import replace
from fractions import Fraction
from itertools import accumulate

import hypothesis.strategies as st

from verify.strategies.recipe import Noise, Recipe, Size, Style, shapes, style_of
from verify.strategies.terms import Matrix, Ridge, Sum, Vector, dot, frame, product, symmetric, unit

__all__ = ["draw_recipe", "draw_upper"]

_EIGENVALUES = tuple(map(Fraction, ("2", "6", "4", "1", "3", "10", "1/2", "100")))
_STEPS = tuple(map(Fraction, ("4", "2", "1", "10")))
_POSITIVE = tuple(map(Fraction, ("1", "2", "1/2")))
_ENTRIES = tuple(map(Fraction, ("0", "1", "-1", "2", "-2", "1/2")))
_DISTANCES = tuple(Fraction(sign * 10**k) for k in (2, 3, 4, 6) for sign in (1, -1))
_MOST_DECADES = 8
_MOST_DENSE = 4  # variables up to which eigenvectors may have any entries
_eigenvalue, _step, _positive = (st.sampled_from(values) for values in (_EIGENVALUES, _STEPS, _POSITIVE))
_entry, _nonzero = st.sampled_from(_ENTRIES), st.sampled_from(_ENTRIES[1:])
_far, _slow = st.sampled_from(_DISTANCES), st.sampled_from((Fraction(1, 10), Fraction(1, 100)))
_gap = st.sampled_from((Fraction(1, 100), Fraction(1, 10), Fraction(1)))
_quarter, _coin = st.sampled_from((0, 1, -1, 2, -2, 4, -4)), st.booleans()
_COEFFICIENTS = tuple(map(Fraction, ("1", "-1", "2", "-2", "3", "1/2", "-1/2")))
_ZERO = Fraction(0)
_coefficient, _maybe = st.sampled_from(_COEFFICIENTS), st.sampled_from((_ZERO, *_COEFFICIENTS))
_sign, _up_to_two = st.sampled_from((0, 1, -1)), st.integers(0, 2)
_of_x, _of_y = st.sampled_from(("sin", "cos", "cube", "exp")), st.sampled_from(("sin", "cos", "cube"))


def draw_recipe(draw: st.DrawFn, kind: str, d: Size | None, n: Size | None) -> Recipe:
    """A recipe of the kind; the caller has made sure that some shape is allowed."""
    style = style_of(kind)
    shape = draw(st.sampled_from(shapes(style, d, n)))
    lower = _Lower(draw, style, *shape)
    recipe = lower.recipe(kind)
    if style.scaled:
        return recipe.rescaled(_factors(draw, *shape))
    return _with_noise(draw, recipe) if style.family == "stochastic" else recipe


class _Lower:
    """The lower level on its way, and the recipe that it ends in."""

    def __init__(self, draw: st.DrawFn, style: Style, d: int, n: int) -> None:
        self.draw, self.style, self.d, self.n = draw, style, d, n
        self.eigenvalues = _spectrum(draw, style.spectrum, n)
        self.frame = _frame(draw, style, n)
        self.A = symmetric(self.eigenvalues, self.frame)
        self.x_radii = tuple(draw(_positive) for _ in range(d))
        self._draw_root()
        self.slope = [-entry for entry in product(self.A, self.origin)]
        self.ridges: list[Ridge] = []
        self.deficit = Fraction(0)
        self._draw_ripples()

    def _draw_root(self) -> None:
        """y* = W x + w; a point where it is zero, if one is asked for."""
        draw, d, n = self.draw, self.d, self.n
        root = self.style.root
        if root == "zero or point":
            root = draw(st.sampled_from(("zero", "point")))
        self.zero: Vector | None = None
        self.response: Matrix = ((Fraction(0),) * d,) * n
        self.origin: Vector = (Fraction(0),) * n
        if root == "zero":
            return
        if root == "fixed":
            self.origin = tuple(draw(_nonzero) for _ in range(n))
            return
        self.response = tuple(tuple(draw(_nonzero if i == k == 0 else _entry) for i in range(d)) for k in range(n))
        if root == "far":
            self.origin = tuple(draw(_far) for _ in range(n))
            return
        if root == "point":
            self.zero = tuple(r * draw(_quarter) / 4 for r in self.x_radii)
            self.origin = tuple(-entry for entry in product(self.response, self.zero))
        elif draw(_coin):
            self.origin = tuple(draw(_entry) for _ in range(n))

    def _draw_ripples(self) -> None:
        choices = {
            "any": ("sine", "softplus", "bend"),
            "none": (),
            "sine": ("sine",),
            "third": ("sine",),
            "slow": ("sine",),
            "convex": ("softplus", "bend"),
        }[self.style.ripples]
        least = int(self.style.ripples in ("third", "slow"))
        if not choices:
            return
        for ripple in self.draw(st.lists(st.sampled_from(choices), min_size=least, max_size=2)):
            self._add_ripple(ripple)

    def _add_ripple(self, ripple: str) -> None:
        """c (t - sin t), c (softplus(t) - t/2) or c x_w^2 t^2, where t = u . (y - y*)."""
        u = self._direction()
        if self.style.ripples == "slow":  # the same curvature, from a longer wave
            wave = self.draw(_slow)
            u = tuple(wave * entry for entry in u)
        form = (*(-dot(u, column) for column in zip(*self.response, strict=True)), *u)
        shift = -dot(u, self.origin)
        c, slope = self.draw(_positive), Fraction(0)
        if ripple == "sine":
            c = slope = self._share() / dot(u, u)  # its curvature is c |u|^2 sin t
            self.deficit += c * dot(u, u)
            self.ridges.append(Ridge(-c, "sin", form, shift))
        elif ripple == "softplus":
            slope = -c / 2
            self.ridges.append(Ridge(c, "softplus", form, shift))
        else:
            self.ridges.append(Ridge(c, "square", form, shift, self.draw(st.integers(0, self.d - 1))))
        self.slope = [a + slope * b for a, b in zip(self.slope, u, strict=True)]

    def _share(self) -> Fraction:
        """What one more sine may take of the smallest eigenvalue: a half, then a half of what is left."""
        return (min(self.eigenvalues) - self.deficit) / 2

    def _direction(self) -> Vector:
        """A unit vector, or an eigenvector; only those where g_yy is to keep its invariant subspaces."""
        k = self.draw(st.integers(0, self.n - 1))
        invariant = self.style.upper == "invariant" or self.draw(_coin)
        return self.frame[k] if invariant else unit(k, self.n)

    def recipe(self, kind: str) -> Recipe:
        """The whole recipe, f included."""
        d, x_radii = self.d, self.x_radii
        cross = tuple(tuple(-entry for entry in product(self.A, column)) for column in zip(*self.response, strict=True))
        hessian = (
            *((*(Fraction(0),) * d, *row) for row in cross),
            *((*column, *row) for column, row in zip(zip(*cross, strict=True), self.A, strict=True)),
        )
        lower = Sum(d, (*(Fraction(0),) * d, *self.slope), hessian, tuple(self.ridges), curvature=max(self.eigenvalues))
        spreads = (dot(map(abs, row), x_radii) + abs(w) for row, w in zip(self.response, self.origin, strict=True))
        upper = draw_upper(self.draw, self.style.upper, d, self._directions())
        return Recipe(
            kind, self.style.family, upper.minus(lower) if self.style.family == "minimax" else upper, lower,
            self.eigenvalues, self.frame, self.response, self.origin, self.deficit,
            (*x_radii, *(spread + 1 for spread in spreads)),
            None if self.zero is None else tuple(map(float, self.zero)),
        )  # fmt: skip

    def _directions(self) -> Matrix:
        """The directions of y in which f varies."""
        if self.style.upper == "invariant":
            return self.frame[: self.draw(st.integers(1, self.n - 1))]
        return tuple(unit(k, self.n) for k in range(self.n))


def _spectrum(draw: st.DrawFn, wanted: str, n: int) -> Vector:
    if wanted == "any":
        return tuple(draw(_eigenvalue) for _ in range(n))
    if wanted == "isotropic":
        return (draw(_eigenvalue),) * n
    if wanted == "few":
        a, b = draw(st.lists(_eigenvalue, min_size=2, max_size=2, unique=True))
        often = draw(st.integers(1, n - 1))
        return (a,) * often + (b,) * (n - often)
    if wanted == "distinct":
        steps = [draw(_step) for _ in range(n - 1)]
        return tuple(accumulate((draw(_eigenvalue), *steps)))
    if wanted == "even":
        least, step = draw(_eigenvalue), draw(_gap)
        return tuple(least * (1 + k * step) for k in range(n))
    if wanted == "clustered":
        groups = draw(st.integers(2, 3))
        return tuple(10 ** (k % groups) * (1 + Fraction(k, 1000)) for k in range(n))
    if wanted == "decades":
        most = draw(st.integers(2, 6))
        return tuple(10 ** (most * k // max(1, n - 1)) * (1 + Fraction(k % 4, 4)) for k in range(n))
    decades = draw(st.integers(0, _MOST_DECADES))
    inner = [draw(st.integers(0, decades)) for _ in range(n - 2)]
    least = Fraction(10) ** draw(st.sampled_from((0, -4, -_MOST_DECADES)))
    return tuple(least * 10**exponent for exponent in (0, *inner, decades))


def _frame(draw: st.DrawFn, style: Style, n: int) -> Matrix:
    """Orthogonal integer vectors; the unit vectors where A is c I anyway."""
    if n == 1 or style.spectrum == "isotropic":
        return frame((), n)
    if n > _MOST_DENSE:  # a plane or two is turned: fractions stay short
        planes = draw(st.lists(st.integers(0, n - 2), max_size=2))
        return frame([[int(j in (k, k + 1)) for j in range(n)] for k in planes], n)
    entries = st.tuples(*[st.integers(-2, 2)] * n)
    return frame(draw(st.lists(entries, max_size=2)), n)


def _factors(draw: st.DrawFn, d: int, n: int) -> Vector:
    """Powers of ten: 1e-4 to 1e4 for x; for y within four decades of each other, so that kappa <= 1e8."""
    x = [draw(st.integers(-4, 4)) for _ in range(d)]
    least = draw(st.sampled_from((0, -4, -2)))
    y = [least + draw(st.integers(0, 4)) for _ in range(n)]
    return tuple(Fraction(10) ** exponent for exponent in (*x, *y))


def _with_noise(draw: st.DrawFn, recipe: Recipe) -> Recipe:
    """Noise in the gradients, and at times in the curvature: every row stays strongly convex."""
    d, n = recipe.d, recipe.n
    rows = st.lists(st.integers(-2, 2), min_size=1, max_size=3).map(tuple)
    xi, zeta = draw(rows), draw(st.sampled_from(((-1, 1), (-1, 0, 1))) | rows)
    upper, lower = unit(draw(st.integers(0, d + n - 1)), d + n), unit(draw(st.integers(0, n - 1)), n)
    widest = max(map(abs, zeta))
    curved = widest > 0 and draw(_coin)
    mu = min(recipe.eigenvalues) - recipe.deficit
    curvature = mu / (2 * widest) if curved else Fraction(0)
    # at the y* of no noise the mean of g has this slope, and y* is at most slope/mu away
    slope = abs(Fraction(sum(zeta), len(zeta))) * (1 + curvature * max(recipe.radii[d:]))
    drift = slope / (mu - curvature * widest)
    radii = tuple(r if a < d else r + drift for a, r in enumerate(recipe.radii))
    return replace(recipe, radii=radii, noise=Noise(upper, lower, curvature, xi, zeta))


# ---------------------------------------------------------------------- f


def draw_upper(draw: st.DrawFn, style: str, d: int, directions: Matrix) -> Sum:
    """f(x, y), which varies with y along the directions only; ``style`` as in ``Style.upper``.

    A linear part, a few monomials of degree two, and a function or two of linear forms.
    """
    n = len(directions[0])
    x = tuple(unit(i, d + n) for i in range(d))
    y = tuple((*(_ZERO,) * d, *direction) for direction in directions)
    linear = _slope(draw, x, y, style)
    hessian, ridges = [[_ZERO] * (d + n) for _ in range(d + n)], []
    for a, b in draw(st.lists(_pairs(x, y, style), max_size=2)):
        _add_product(hessian, draw(_coefficient), a, b)
    if style == "even in y":
        _add_product(hessian, draw(_coefficient), y[0], y[0])
    if style != "quadratic":
        bent = x if style in ("x only", "linear in y", "all of y", "even in y") else (*x, *y)
        ridges = [_ridge(draw, d, bent) for _ in range(draw(_up_to_two))]
    return Sum(d, linear, tuple(map(tuple, hessian)), tuple(ridges))


def _slope(draw: st.DrawFn, x: Matrix, y: Matrix, style: str) -> Vector:
    """At least one variable has a coefficient: the first y, unless f is to be flat in y; then the first x."""
    flat = style in ("x only", "even in y")
    sure = len(y) if style == "all of y" else 1
    vectors = x if flat else (*y, *x)
    weighted = [(draw(_coefficient if k < sure else _maybe), vector) for k, vector in enumerate(vectors)]
    coefficients = [c for c, _ in weighted]
    return tuple(dot(coefficients, column) for column in zip(*(vector for _, vector in weighted), strict=True))


def _pairs(x: Matrix, y: Matrix, style: str) -> st.SearchStrategy[tuple[Vector, Vector]]:
    """The two factors of a monomial of degree two."""
    in_x, in_y = st.sampled_from(x), st.sampled_from(y)
    within, mixed = st.tuples(in_x, in_x), st.tuples(in_x, in_y)
    if style in ("x only", "all of y"):
        return within
    if style == "linear in y":
        return mixed | within
    return within | st.tuples(in_y, in_y) if style == "even in y" else mixed | within | st.tuples(in_y, in_y)


def _add_product(hessian: list[list[Fraction]], c: Fraction, a: Vector, b: Vector) -> None:
    """The Hessian of c (a . z)(b . z)."""
    left, right = ([(k, entry) for k, entry in enumerate(vector) if entry] for vector in (a, b))
    for i, p in left:
        for j, q in right:
            hessian[i][j] += c * p * q
            hessian[j][i] += c * p * q


def _ridge(draw: st.DrawFn, d: int, directions: Matrix) -> Ridge:
    first, second = draw(st.sampled_from(directions)), draw(st.sampled_from(directions))
    sign = draw(_sign)
    form = tuple(a + sign * b for a, b in zip(first, second, strict=True))
    if not any(form):
        form = first
    # exp of y could be huge over the box
    return Ridge(draw(_coefficient), draw(_of_y if any(form[d:]) else _of_x), form)
