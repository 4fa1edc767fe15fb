"""The error of the hypergradient estimates along a run, beside what the lemma about them allows."""

from __future__ import annotations

import textwrap

import numpy as np

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.plotting import COLOURS, axes_or_new, count_iterations, held, legend_below, plot_ensemble
from bilevel_sym.typing import FLOAT64_EPS, Axes, Floats, Indices
from verify.papers.huang_saddle.trajectory.bounds import ErrorBounds, error_bounds
from verify.papers.huang_saddle.trajectory.record import record_of
from verify.papers.huang_saddle.trajectory.truth import Given, Truth, given_of, truth_of
from verify.registry import NotApplicable
from verify.theory import cite

__all__ = ["plot_error"]

TITLE_LETTERS = 64  # of a title


def plot_error(
    solution: object, problem: BilevelProblem, ax: Axes | None = None, *, constants: Given | None = None
) -> Axes:
    """|grad_phi_hat - grad Phi| along a run of AID or GDmax, and the bounds of the lemma about it, on a log scale.

    The bound of one iteration follows from the warm start of that iteration, that of the run from its first. Where the
    lemma says nothing about the run, the title says why, and the error stands alone. Several runs are their median and
    quartiles. Returns the axes.

    - ``solution``: what ``verify.check_trajectory`` takes.
    - ``problem``: the problem.
    - ``ax``: the axes; by default new ones.
    - ``constants``: what ``verify.check_trajectory`` takes; by default certified over the hull of the run.

    Paper: Lemma B.1 [lem:grad-err-aid]; Lemma C.2 [lem:grad-err-mini]

    >>> from bilevel_sym import AID, BilevelProblem, Descent, solve
    >>> problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
    >>> run = solve(problem, Descent(AID(D=2, N=1, tau=0.5), eta=0.25), [1.0], steps=9)
    >>> from matplotlib.figure import Figure
    >>> plot_error(run, problem, Figure().subplots()).get_title()
    'Lemma B.1 [lem:grad-err-aid]'
    """
    truth = truth_of(record_of(solution, problem), given_of(constants))
    if not np.isfinite(truth.error).any():
        raise InvalidArgument("there is no estimate beside an exact gradient to draw", hint="grad_phi_hat of the run")
    found, reason = _bounds(truth)
    ax = axes_or_new(ax)
    floor = FLOAT64_EPS * max(1.0, float(np.nanmax(np.linalg.norm(truth.grad_phi, axis=-1))))
    if (truth.error <= floor).any():
        ax.axhline(floor, color="0.5", linestyle=":", linewidth=1, label="rounding: what is smaller is drawn here")
    _draw(ax, np.arange(truth.error.shape[1]), np.maximum(truth.error, floor), COLOURS[0], "error of the estimate")
    if found is not None:
        _draw_bounds(ax, found)
    count_iterations(ax)
    ax.set(ylabel=r"$\|\hat\nabla\Phi(x_k) - \nabla\Phi(x_k)\|$", yscale="log")
    title = f"no bound: {reason}" if found is None else cite(found.label)
    ax.set_title(textwrap.fill(title, TITLE_LETTERS), fontsize="medium")
    legend_below(ax)
    return ax


def _bounds(truth: Truth) -> tuple[ErrorBounds | None, str]:
    try:
        return error_bounds(truth), ""
    except NotApplicable as reason:
        return None, str(reason)
    except BilevelError as error:
        return None, error.message


def _draw_bounds(ax: Axes, found: ErrorBounds) -> None:
    k = np.arange(found.first, found.first + found.run.error.shape[1])
    words = {"one iteration": "bound from the warm start of each iteration"}
    for (name, bound, _), colour in zip(found.parts, (COLOURS[1], COLOURS[4]), strict=True):
        if bound is None:
            continue
        known = np.where(np.isfinite(found.run.error), bound, np.nan)
        _draw(ax, k, known, colour, words.get(name, "bound from the first warm start of the run"), "--")


def _draw(ax: Axes, k: Indices, values: Floats, colour: str, label: str, style: str = "-") -> None:
    """One run is a line through the iterates that are known, several are as ``plot_ensemble`` draws them."""
    seen = np.isfinite(values).any(axis=0)
    if len(values) > 1:
        at = k[seen].astype(np.float64)
        plot_ensemble(ax, at, held(values[:, seen]), colour=colour, label=f"{label}, median")
        return
    ax.plot(k[seen], values[0, seen], color=colour, linestyle=style, label=label, marker="." if seen.sum() < 40 else "")
