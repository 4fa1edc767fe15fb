"""What the gradient and the Hessian of Phi are made of, term by term over x."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any, Literal

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.plotting.arguments import Region, exact_problem
from bilevel_sym.plotting.line import line_over
from bilevel_sym.plotting.style import COLOURS, axes_or_new, ink, legend_below
from bilevel_sym.plotting.values import where_defined
from bilevel_sym.problem.problem import BilevelProblem

if TYPE_CHECKING:
    from matplotlib.axes import Axes

__all__ = ["plot_terms"]

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
    x = line_over(exact, box)
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
