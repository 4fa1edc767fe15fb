"""Pictures of problems and runs. matplotlib is imported when something is drawn, and never before.

Functions take the axes to draw on, or none for new ones, and return them.
"""

from bilevel_sym.plotting.eigenvalues import plot_differences, plot_eigenvalues, plot_estimates
from bilevel_sym.plotting.exploration import Exploration, explore
from bilevel_sym.plotting.game import plot_game, plot_moves
from bilevel_sym.plotting.landscape import plot_landscape, plot_trajectories
from bilevel_sym.plotting.response import plot_response, plot_terms
from bilevel_sym.plotting.solution import Spread, held, plot_ensemble, plot_solution, plot_spread, spread
from bilevel_sym.plotting.style import COLOURS, axes_or_new, count_iterations, legend_below, require_matplotlib

__all__ = [
    "COLOURS", "Exploration", "Spread", "axes_or_new", "count_iterations", "explore", "held", "legend_below",
    "plot_differences", "plot_eigenvalues", "plot_ensemble", "plot_estimates", "plot_game", "plot_landscape",
    "plot_moves",
    "plot_response", "plot_solution", "plot_spread", "plot_terms", "plot_trajectories", "require_matplotlib", "spread",
]  # fmt: skip
