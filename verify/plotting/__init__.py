"""Pictures of verdicts. matplotlib is imported when something is drawn, and never before.

Functions take the axes to draw on, or none for new ones, and return them.
"""

from verify.papers.huang_saddle.trajectory.picture import plot_error
from verify.plotting.smoothness import plot_curvature, plot_looseness
from verify.plotting.tightness import plot_tightness

__all__ = ["plot_curvature", "plot_error", "plot_looseness", "plot_tightness"]
