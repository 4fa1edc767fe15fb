"""A landscape to play with: where does Algorithm 1 go from x0, with which accuracy, by which seed?

Where ipywidgets is installed, a notebook shows sliders; everywhere else, and to readers of a stored notebook, the
picture as the sliders stand at first. ipywidgets is imported when something is shown, and never before.
"""

from __future__ import annotations

import math
from base64 import b64encode
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.estimators.checks import count, positive
from bilevel_sym.plotting.arguments import Region, box_of_x, exact_problem, numbers
from bilevel_sym.plotting.landscape import plot_landscape, plot_trajectories, require_few
from bilevel_sym.plotting.style import axes_or_new, png, require_matplotlib
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.solvers import Perturbed, solve
from bilevel_sym.solvers.solution import Solution
from bilevel_sym.system.plain_text import as_title
from bilevel_sym.typing import Axes

if TYPE_CHECKING:
    from numpy.typing import ArrayLike

__all__ = ["Exploration", "explore"]

EPS, STEPS = 1e-2, 500
EPS_POWERS = (-5, 0)  # of ten: the ends of the slider
SEEDS = 100  # the slider's, unless a larger one is given
SLIDER_STEPS = 100  # from one end of the box to the other
INCHES, DOTS_PER_INCH = (6.4, 5.0), 100
WIDGET = "application/vnd.jupyter.widget-view+json"


@dataclass(frozen=True, eq=False)
class Exploration:
    """A problem, and where its sliders stand at first; ``explore`` makes one.

    - ``problem``: the problem, of one or two variables x.
    - ``x0``, ``eps``, ``seed``: of the run that is shown first.
    - ``window``: what is drawn, the ends of each entry of x by its name.
    - ``box``: the box that the window is part of.
    - ``points``: stationary points that are marked.
    - ``steps``: how many a run may take.

    >>> from bilevel_sym import zoo
    >>> explore(zoo.get("saddle").problem, x0=[0.0, 1.5])
    <Exploration of 'saddle': x0 = (0, 1.5), ε = 0.01, seed 0>
    """

    problem: BilevelProblem
    x0: tuple[float, ...]
    eps: float
    seed: int
    window: Mapping[str, tuple[float, float]]
    box: Region
    points: tuple[Any, ...]
    steps: int

    def run(self, x0: ArrayLike | None = None, *, eps: float | None = None, seed: int | None = None) -> Solution:
        """Algorithm 1 with practical parameters, to a checked local minimum or as far as the steps go.

        - ``x0``: where it starts; what is not given is as it stands at first.
        - ``eps``: the accuracy.
        - ``seed``: of the perturbations.

        >>> from bilevel_sym import zoo
        >>> explore(zoo.get("saddle").problem, x0=[0.0, 1.5]).run(seed=3).status.name
        'LOCAL_MINIMUM'
        """
        start, accuracy = self.x0 if x0 is None else x0, self.eps if eps is None else eps
        algorithm = Perturbed.auto(self.problem, eps=accuracy, x0=self.x0)
        rng = self.seed if seed is None else seed
        return solve(self.problem, algorithm, start, steps=self.steps, rng=rng, stop="local minimum")

    def draw(
        self,
        x0: ArrayLike | None = None,
        *,
        eps: float | None = None,
        seed: int | None = None,
        ax: Axes | None = None,
    ) -> Axes:
        """The landscape with this run on it; where no run begins, the reason is above it. Returns the axes.

        - ``x0``, ``eps``, ``seed``: as for ``run``.
        - ``ax``: the axes; by default new ones.

        >>> from bilevel_sym import zoo
        >>> from matplotlib.figure import Figure
        >>> explore(zoo.get("saddle").problem, x0=[0.0, 1.5]).draw(ax=Figure().subplots()).get_title()
        'ε = 0.01, seed 0: reached an eps-local minimum (checked), 81 steps'
        """
        ax = axes_or_new(ax, INCHES)
        plot_landscape(self.problem, ax, box=self.box, points=self.points)
        try:
            run = self.run(x0, eps=eps, seed=seed)
        except BilevelError as error:
            said = str(error).partition("\n")[0]
        else:
            plot_trajectories(run, ax, label="Algorithm 1")
            said = f"{run.status.message}, {run.steps} steps"
        accuracy, rng = self.eps if eps is None else eps, self.seed if seed is None else seed
        ax.set_title(as_title(f"ε = {accuracy:.2g}, seed {rng}: {said}"), fontsize="medium", wrap=True)
        return ax

    def picture(self, x0: ArrayLike | None = None, *, eps: float | None = None, seed: int | None = None) -> bytes:
        """What ``draw`` draws, as PNG.

        - ``x0``, ``eps``, ``seed``: as for ``run``.

        >>> from bilevel_sym import zoo
        >>> explore(zoo.get("saddle").problem, x0=[0.0, 1.5]).picture()[:4]
        b'\\x89PNG'
        """
        require_matplotlib()
        from matplotlib.figure import Figure

        figure = Figure(figsize=INCHES, layout="constrained")
        self.draw(x0, eps=eps, seed=seed, ax=figure.subplots())
        return png(figure, dpi=DOTS_PER_INCH)

    @cached_property
    def widget(self) -> Any:
        """A slider for each entry of x0, one for the accuracy and one for the seed, above the picture.

        A picture is drawn anew where a slider is let go.
        """
        ipywidgets = _ipywidgets()
        if ipywidgets is None:
            raise InvalidArgument("sliders want ipywidgets", hint="pip install ipywidgets; .draw() draws without them")
        at = [
            ipywidgets.FloatSlider(
                value=value, min=low, max=high, step=(high - low) / SLIDER_STEPS, description=name,
                continuous_update=False,
            )
            for value, (name, (low, high)) in zip(self.x0, self.window.items(), strict=True)
        ]  # fmt: skip
        least, most = min(EPS_POWERS[0], math.log10(self.eps)), max(EPS_POWERS[1], math.log10(self.eps))
        eps = ipywidgets.FloatLogSlider(
            value=self.eps, base=10, min=least, max=most, step=0.25, description="ε", continuous_update=False
        )
        seed = ipywidgets.IntSlider(
            value=self.seed, min=0, max=max(SEEDS, self.seed), description="seed", continuous_update=False
        )
        picture = ipywidgets.Image(value=self.picture(), format="png")

        def redraw(_: object) -> None:
            picture.value = self.picture([slider.value for slider in at], eps=eps.value, seed=seed.value)

        for slider in (*at, eps, seed):
            slider.observe(redraw, names="value")
        return ipywidgets.VBox([*at, eps, seed, picture])

    def __repr__(self) -> str:
        start = ", ".join(f"{value:g}" for value in self.x0)
        return f"<Exploration of {self.problem.name!r}: x0 = ({start}), ε = {self.eps:g}, seed {self.seed}>"

    def _repr_mimebundle_(self, **_: object) -> dict[str, Any]:
        """For a notebook: the picture, and where ipywidgets is installed the sliders, which it shows instead."""
        if _ipywidgets() is None:
            picture, sliders = self.picture(), {}
        else:
            picture, bundle = self.widget.children[-1].value, self.widget._repr_mimebundle_()
            sliders = {WIDGET: bundle[WIDGET]}
        return {"text/plain": repr(self), "image/png": b64encode(picture).decode("ascii")} | sliders


def explore(
    problem: BilevelProblem,
    *,
    x0: ArrayLike | None = None,
    eps: float = EPS,
    seed: int = 0,
    box: Region = None,
    points: Iterable[Any] | None = (),
    steps: int = STEPS,
) -> Exploration:
    """A landscape with a run on it, and sliders for where the run starts, its accuracy and its seed.

    As the last line of a cell it shows itself: with sliders where ipywidgets is installed, and as a picture where not.

    - ``problem``: the problem, of one or two variables x; of a stochastic one the mean.
    - ``x0``: where the sliders stand at first; by default a quarter of the way through the box.
    - ``eps``, ``seed``: likewise.
    - ``box``: what is drawn, by default the problem's box.
    - ``points``: stationary points to mark, as for ``plot_landscape``.
    - ``steps``: how many a run may take.

    >>> from bilevel_sym import zoo
    >>> saddle = zoo.get("saddle")
    >>> shown = explore(saddle.problem, points=saddle.stationary_points)
    >>> abs(shown.run([0.0, 1.5], eps=0.001, seed=1).x).round(1).tolist()
    [2.0, 0.0]
    """
    exact = exact_problem(problem)
    require_few(exact.d)
    names, low, high = box_of_x(exact, box)
    start = low + (high - low) / 4 if x0 is None else numbers("x0", x0, hint="a number for each entry of x")
    if start.shape != low.shape or not ((low <= start) & (start <= high)).all():
        window = " x ".join(f"[{a:g}, {b:g}]" for a, b in zip(low, high, strict=True))
        raise InvalidArgument(
            f"x0 = {start.tolist()!r:.60} lies outside of the picture, {window}", hint="a point inside, or a larger box"
        )
    return Exploration(
        exact,
        tuple(start.tolist()),
        positive("eps", eps),
        count("seed", seed, least=0),
        MappingProxyType(dict(zip(names, zip(low.tolist(), high.tolist(), strict=True), strict=True))),
        box,
        tuple(points or ()),
        count("steps", steps),
    )


def _ipywidgets() -> Any:
    """The package, or None where it is not installed."""
    try:
        return import_module("ipywidgets")
    except ImportError:
        return None
