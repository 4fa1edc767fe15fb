"""Pictures over one variable x: y*(x) with its tangents, and the terms of which grad Phi and Hess Phi are made."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.kernels.leaving import outside
from bilevel_sym.plotting.arguments import Region, box_ends, exact_problem, numbers, where_defined
from bilevel_sym.plotting.style import COLOURS, axes_or_new, ink, legend_below
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.typing import Axes, Floats

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

    from bilevel_sym.kernels import Kernels

__all__ = ["plot_response", "plot_terms"]

TANGENT_REACH = 0.2  # how far a tangent goes each way, as a part of the box
DASHES = ("-", "--", "-.", ":")
LINE_POINTS = 201
WHOLE = MappingProxyType({"grad_phi": r"$\nabla\Phi$", "hess_phi": r"$\nabla^2\Phi$"})
# a term by its colour and dashes, the same in every picture
LINES = MappingProxyType(
    {
        "direct": (COLOURS[0], "-"),
        "implicit": (COLOURS[1], "--"),
        "cross": (COLOURS[1], "--"),
        "curvature": (COLOURS[2], "-."),
        "quadratic": (COLOURS[3], ":"),
    }
)
TWICE = "cross, and once more as cross transposed"


def plot_response(problem: BilevelProblem, ax: Axes | None = None, *, at: ArrayLike = (), box: Region = None) -> Axes:
    """Every entry of y*(x) over x, of one variable, with tangents of slope -g_xy g_yy^-1. Returns the axes.

    Where an entry leaves the problem's box, its ends there are drawn too.

    - ``problem``: the problem.
    - ``ax``: the axes; by default new ones.
    - ``at``: the points of the tangents.
    - ``box``: over which x runs; by default the problem's.

    >>> problem = BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y", box={"x": (-2, 2), "y": (-2, 2)})
    >>> from matplotlib.figure import Figure
    >>> plot_response(problem, Figure().subplots(), at=[0.5]).get_ylabel()
    '$y^*$(x)'
    """
    exact = exact_problem(problem)
    x = _line_over(exact, box)
    touched = numbers("the points at which to draw tangents", at, hint="at=[0.5]").reshape(-1)
    answers = _answers(exact.kernels, touched[:, None])
    entries = where_defined(exact.kernels.y_star, x, (exact.n,)).T
    ax = axes_or_new(ax)
    for k, (symbol, values) in enumerate(zip(exact.y_entries, entries, strict=True)):
        style: dict[str, Any] = {"color": COLOURS[k % len(COLOURS)], "linestyle": DASHES[k % len(DASHES)]}
        ax.plot(x[:, 0], values, linewidth=2, label=f"{symbol.name}*", **style)
    _mark_left(ax, exact, entries)
    reach = TANGENT_REACH * (x[-1, 0] - x[0, 0])
    for where, (y, slope) in zip(touched, answers, strict=True):
        ends = np.array([-reach, reach])
        for height, rise in zip(y, slope, strict=True):
            ax.plot(where + ends, height + rise * ends, color=COLOURS[1], linewidth=1.2, label="tangent")
            ax.plot(where, height, "o", color=COLOURS[1], markersize=6)
    ax.set(xlabel=exact.x[0].name, ylabel=f"$y^*$({exact.x[0].name})")
    ax.set_xlim(x[0, 0], x[-1, 0])
    legend_below(ax)
    return ax


def _mark_left(ax: Axes, problem: BilevelProblem, entries: Floats) -> None:
    """The ends of the box that an entry of y* leaves: they keep nothing in."""
    left = outside(problem, "y", entries.T).any(axis=0)
    for k in np.flatnonzero(left):
        for end in (problem.ends("y") or [])[k]:
            label = "ends of the box in y, which is no constraint"
            ax.axhline(float(end), color="0.5", linestyle=(0, (1, 3)), linewidth=1.2, zorder=0, label=label)


def _answers(kernels: Kernels, x: Floats) -> list[tuple[Floats, Floats]]:
    """y* and its derivative, both (n,), at each row of x."""
    return list(zip(kernels.y_star(x), kernels.dy_dx(x)[:, 0], strict=True))


def _line_over(problem: BilevelProblem, box: Region) -> Floats:
    """Points (K, 1) from end to end of the box, by default the problem's; of a problem with one variable in x."""
    if problem.d != 1:
        raise InvalidArgument(
            f"this picture has one variable, but x has {problem.d}", hint="plot_landscape draws Phi over two"
        )
    low, high = box_ends(problem, box, [problem.x[0].name])
    problem.kernels.refuse_kinked_box(low, high)
    return np.linspace(low, high, LINE_POINTS)


def plot_terms(
    problem: BilevelProblem,
    ax: Axes | None = None,
    *,
    of: Literal["grad_phi", "hess_phi"] = "grad_phi",
    box: Region = None,
) -> Axes:
    """Each named term of the gradient or the Hessian over x, of one variable, and their sum. Returns the axes.

    Terms that vanish are left out.

    - ``problem``: the problem.
    - ``ax``: the axes; by default new ones.
    - ``of``: "grad_phi" or "hess_phi".
    - ``box``: over which x runs; by default the problem's.

    >>> problem = BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y", box={"x": (-2, 2), "y": (-1, 1)})
    >>> from matplotlib.figure import Figure
    >>> ax = plot_terms(problem, Figure().subplots(), of="hess_phi")
    >>> [text.get_text() for text in ax.get_legend().get_texts()][1:]
    ['cross, and once more as cross transposed', 'curvature']
    """
    if of not in WHOLE:
        raise InvalidArgument(f"of={of!r:.40}", hint="one of: grad_phi, hess_phi")
    exact = exact_problem(problem)
    x = _line_over(exact, box)
    curves = {name: where_defined(_carrier(exact, term[0]).kernels.phi, x) for name, term in _alive(exact, of).items()}
    whole = where_defined(lambda rows: getattr(exact.kernels, of)(rows).reshape(len(rows)), x)
    ax = axes_or_new(ax)
    ax.plot(x[:, 0], whole, color=ink(ax), linewidth=3, alpha=0.45, label=f"{WHOLE[of]}, the sum")
    for name, values in curves.items():
        colour, dashes = LINES[name]
        label = TWICE if name == "cross" else name
        ax.plot(x[:, 0], values, color=colour, linestyle=dashes, linewidth=1.6, label=label)
    ax.axhline(0.0, color="0.5", linewidth=0.8, zorder=0)
    ax.set(xlabel=exact.x[0].name, ylabel=f"terms of {WHOLE[of]}")
    ax.set_xlim(x[0, 0], x[-1, 0])
    legend_below(ax)
    return ax


def _alive(problem: BilevelProblem, of: str) -> dict[str, Any]:
    """The terms that do not vanish; the transposed cross term of one variable is the cross term once more."""
    terms = problem.derivation.terms[of]
    return {name: term for name, term in terms.items() if term[0] != 0 and name != "cross_transposed"}


def _carrier(problem: BilevelProblem, term: Any) -> BilevelProblem:
    """A term is a function of x and y*(x): the Phi of a problem that has it in the place of f."""
    return BilevelProblem(term, problem.g, problem.x, problem.y)
