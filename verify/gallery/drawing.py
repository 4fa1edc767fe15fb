"""How a candidate looks from outside: Phi along a descent that believes it, and pictures of it beside the right one."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.implicit.engine import in_halves
from bilevel_sym.plotting import COLOURS, axes_or_new, legend_below, require_matplotlib
from bilevel_sym.typing import FLOAT64_EPS, Axes, Floats, Indices
from verify.gallery.defect import Defect, Kind
from verify.gallery.plain import Candidate, hypergradient
from verify.gallery.plain import right as right_candidates

LEAST_CURVATURE = 0.1  # the least curvature that a Newton step believes
MARGIN_SHARE = 0.1  # of the height of a picture
PICTURE_INCHES = (3.6, 2.5)  # of one small picture, in inches


def descent(
    candidate: Any,
    problem: BilevelProblem,
    x0: ArrayLike,
    *,
    steps: int = 50,
    eta: float = 0.2,
    kind: Kind = "hypergradient",
) -> Floats:
    """The exact values Phi(x_0), ..., Phi(x_steps) of a descent that believes the candidate; nan once it is lost.

    A hypergradient is followed with step ``eta``; a lower solution makes one; a Hessian makes Newton steps, times
    ``eta``, with the exact gradient and eigenvalues made positive; a trajectory is taken as it is.

    - ``candidate``: a function, or of kind "trajectory" the record of a run.
    - ``problem``: the problem.
    - ``x0``: the start, (d,).
    - ``steps``: how many.
    - ``eta``: their size.
    - ``kind``: a Defect's own.

    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> descent(lambda x: x, problem, [1.0], steps=2, eta=0.5)  # half of the truth
    array([1.    , 0.25  , 0.0625])
    """
    if isinstance(candidate, Defect):
        candidate, kind = candidate.candidate(problem), candidate.kind
    if kind == "trajectory":
        return _values(problem, np.asarray(candidate["x"]))
    move = _mover(candidate, problem, kind)
    x, points = np.array(x0, dtype=np.float64), []
    for _ in range(steps + 1):
        points.append(x)
        x = x - eta * _tried(move, x)
    return _values(problem, np.array(points))


def _mover(candidate: Candidate, problem: BilevelProblem, kind: Kind) -> Callable[[Floats], Floats]:
    if kind == "lower solution":
        return hypergradient(problem, lower=lambda k, x, y: candidate(x))
    if kind == "hessian":
        return lambda x: _newton_step(candidate(x), problem.kernels.grad_phi(x))
    return candidate


def _newton_step(hessian: Floats, gradient: Floats) -> Floats:
    """Newton's step with eigenvalues made positive, which goes down near saddle points too."""
    values, vectors = np.linalg.eigh(hessian)
    return np.asarray(vectors @ ((vectors.T @ gradient) / np.maximum(np.abs(values), LEAST_CURVATURE)))


def _values(problem: BilevelProblem, x: Floats) -> Floats:
    """Phi at each row; nan where it is too far away to be computed."""
    phi = np.full(len(x), np.nan)

    def attempt(members: Indices) -> None:
        phi[members] = problem.kernels.phi(x[members])

    in_halves(np.flatnonzero(np.isfinite(x).all(axis=1)), attempt, BilevelError)
    return phi


def _tried(function: Callable[[Floats], Floats], x: Floats) -> Floats:
    """The value, or nan where nothing can be computed."""
    if not np.isfinite(x).all():
        return np.full_like(x, np.nan)
    try:
        with np.errstate(all="ignore"):
            return function(x)
    except (BilevelError, np.linalg.LinAlgError):
        return np.full_like(x, np.nan)


def plot_descents(
    right: Floats,
    wrong: Floats,
    ax: Axes | None = None,
    *,
    title: str = "",
    phi_min: float | None = None,
    legend: bool = True,
) -> Axes:
    """Phi along two descents, the right one and the other. Returns the axes.

    - ``right``: the values Phi(x_k) of the right one.
    - ``wrong``: those of the other.
    - ``ax``: the axes; by default new ones.
    - ``title``: of the picture.
    - ``phi_min``: with it the gap |Phi - phi_min| is drawn instead, on a logarithmic scale.
    - ``legend``: whether there is one.

    >>> right, wrong = np.array([1.0, 0.5]), np.array([1.0, 0.7])
    >>> from matplotlib.figure import Figure
    >>> plot_descents(right, wrong, Figure().subplots()).get_ylabel()
    '$\\\\Phi(x_k)$'
    """
    ax = axes_or_new(ax)
    if phi_min is not None:
        right, wrong = (np.abs(phi - phi_min) + FLOAT64_EPS for phi in (right, wrong))
    ax.plot(right, color=COLOURS[0], linewidth=1.8, label="right")
    ax.plot(wrong, color=COLOURS[1], linewidth=1.8, linestyle="--", label="with the defect")
    lost = np.flatnonzero(~np.isfinite(wrong))
    if len(lost):
        last = max(0, int(lost[0]) - 1)
        ax.plot(last, wrong[last], color=COLOURS[1], marker="x", linestyle="none", label="then nan")
    low, high = float(right.min()), float(right.max())
    if phi_min is not None:
        ax.set_yscale("log")
    elif np.nanmax(wrong) > high + (high - low):  # it climbs, or explodes: the right one would be a flat line
        ax.set_ylim(min(low, np.nanmin(wrong)) - MARGIN_SHARE * (high - low), high + (high - low))
    ax.set(xlabel="step k", ylabel=r"$\Phi(x_k)$" if phi_min is None else r"$\Phi(x_k) - \Phi_{\min}$", title=title)
    if legend:
        legend_below(ax)
    return ax


def plot_gallery(
    items: Iterable[Defect],
    *,
    x0: tuple[float, ...] = (0.75, -0.5),
    steps: int = 40,
    eta: float = 0.15,
    gap: bool = False,
    columns: int = 3,
) -> list[Axes]:
    """A small picture for each defect on its showcase, in one new figure; returns the axes.

    - ``items``: the defects.
    - ``x0``: the start of the descents.
    - ``steps``: how many each makes.
    - ``eta``: their size.
    - ``gap``: draw Phi - Phi_min on a logarithmic scale, where Phi_min is what the right descent reaches.
    - ``columns``: of pictures.

    >>> from verify.gallery import defects
    >>> len(plot_gallery(defects("hessian")))  # doctest: +SKIP
    7
    >>> plot_gallery([])
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: there is nothing to draw
    try: plot_gallery(defects())
    """
    shown = list(items)
    if not shown:
        raise InvalidArgument("there is nothing to draw", hint="plot_gallery(defects())")
    require_matplotlib()
    from matplotlib import pyplot

    columns = min(columns, len(shown))
    rows = -(-len(shown) // columns)
    size = (PICTURE_INCHES[0] * columns, PICTURE_INCHES[1] * rows)
    figure, table = pyplot.subplots(rows, columns, figsize=size, squeeze=False, layout="constrained")
    for item, ax in zip(shown, table.flat, strict=False):
        problem = item.showcase()
        good = _right_descent(problem, item.kind, x0, steps, eta)
        bad = descent(item, problem, x0, steps=steps, eta=eta)
        phi_min = float(good.min()) if gap else None
        plot_descents(good, bad, ax, title=item.name, phi_min=phi_min, legend=False)
    axes = list(table.flat)[: len(shown)]
    for ax in list(table.flat)[len(shown) :]:
        ax.remove()
    entries: dict[str, Any] = {str(line.get_label()): line for ax in axes for line in ax.get_lines()}
    figure.legend(entries.values(), entries.keys(), loc="outside upper center", ncols=len(entries), frameon=False)
    return axes


@lru_cache(maxsize=16)
def _right_descent(problem: BilevelProblem, kind: Kind, x0: tuple[float, ...], steps: int, eta: float) -> Floats:
    candidate = next(iter(right_candidates(problem, kind).values()))
    found = descent(candidate, problem, x0, steps=steps, eta=eta, kind=kind)
    found.setflags(write=False)
    return found
