"""A landscape with sliders: what is drawn against the run, what a slider asks for, and the picture that stands without."""

from __future__ import annotations

import builtins
import importlib
import sys
from base64 import b64decode
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from bilevel_sym import BilevelProblem, zoo
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.plotting import Exploration, explore
from bilevel_sym.plotting.exploration import WIDGET

pytest.importorskip("matplotlib")
from matplotlib.figure import Figure

SADDLE = zoo.get("saddle")
WELL = BilevelProblem("y**4/4 - x*y/2", "(y - x)**2/2", "x", "y", box={"x": (-2, 2), "y": (-2, 2)}, name="well")
PART = BilevelProblem("log(x)*y", "y**2/2 - y", "x", "y", box={"x": (-1, 2), "y": (-2, 2)})  # defined for x > 0


class Slider:
    """As much of a slider as is asked of it: a value, ends, and who wants to hear of changes."""

    def __init__(self, *, value: float, **options: Any) -> None:
        self._value, self.options, self.heard = value, options, list[tuple[Callable[..., None], str]]()

    @property
    def value(self) -> float:
        return self._value

    @value.setter
    def value(self, value: float) -> None:
        self._value = value
        for listener, names in self.heard:
            assert names == "value"
            listener({"name": "value", "new": value})

    def observe(self, listener: Callable[..., None], names: str) -> None:
        self.heard.append((listener, names))


def vertical(children: list[Any]) -> SimpleNamespace:
    return SimpleNamespace(children=tuple(children), _repr_mimebundle_=lambda: {"text/plain": "", WIDGET: "sliders"})


STAND_IN = SimpleNamespace(
    FloatSlider=Slider, FloatLogSlider=Slider, IntSlider=Slider, Image=SimpleNamespace, VBox=vertical
)


@pytest.fixture(params=["stand-in", "real"])
def widgets(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> None:
    """ipywidgets itself where it is installed, and a stand-in for it everywhere."""
    if request.param == "real":
        pytest.importorskip("ipywidgets")
    else:
        monkeypatch.setitem(sys.modules, "ipywidgets", STAND_IN)


@pytest.fixture
def no_widgets(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "ipywidgets", None)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[Any, ...]]:
    """What pictures are asked for; each is the number of those before it."""
    calls: list[tuple[Any, ...]] = []

    def picture(_: Exploration, x0: Any = None, *, eps: float | None = None, seed: int | None = None) -> bytes:
        calls.append((x0, eps, seed))
        return str(len(calls)).encode()

    monkeypatch.setattr(Exploration, "picture", picture)
    return calls


def lines(ax: Any) -> dict[str, Any]:
    return {line.get_label(): np.column_stack([line.get_xdata(), line.get_ydata()]) for line in ax.get_lines()}


# ---- the picture -----------------------------------------------------------------------------------------------


def test_the_run_that_is_drawn_is_the_run_of_these_settings() -> None:
    shown = explore(SADDLE.problem, x0=[0.0, 1.5], points=SADDLE.stationary_points)
    run = shown.run([1.0, -1.0], eps=0.1, seed=4)
    ax = shown.draw([1.0, -1.0], eps=0.1, seed=4, ax=Figure().subplots())
    drawn = lines(ax)
    assert drawn["Algorithm 1"].tolist() == run.trajectory.x.tolist()
    assert drawn["start"].tolist() == [[1.0, -1.0]]
    assert drawn["end"].tolist() == [run.x.tolist()]
    assert drawn["saddle"].tolist() == [[0.0, 0.0]]
    assert ax.get_title() == f"ε = 0.1, seed 4: {run.status.message}, {run.steps} steps"


def test_accuracy_and_seed_reach_the_run() -> None:
    shown = explore(SADDLE.problem, x0=[0.0, 1.5])
    assert {bool(shown.run(seed=seed).x[0] > 0) for seed in (0, 5)} == {True, False}  # which side of the saddle
    rough, fine = (shown.run([1.0, 1.0], eps=eps) for eps in (0.1, 1e-4))
    assert np.linalg.norm(rough.x - [2, 0]) > 100 * np.linalg.norm(fine.x - [2, 0])


def test_one_variable_is_a_curve_over_the_window() -> None:
    ax = explore(WELL, x0=[0.5], box={"x": (-1, 1.5)}).draw(ax=Figure().subplots())
    assert ax.get_xlim() == pytest.approx((-1, 1.5), abs=0.2)
    assert lines(ax)["start"] == pytest.approx(np.array([[0.5, 0.5**4 / 4 - 0.5**2 / 2]]))


def test_a_start_without_a_value_leaves_the_landscape_and_says_why() -> None:
    shown = explore(PART, x0=[1.0])
    ax = shown.draw([-0.5], ax=Figure().subplots())
    assert "not defined" in ax.get_title()
    refused = shown.draw([[0.5]] * 2, seed=-1, ax=Figure().subplots())  # nothing that a slider can say
    assert "Algorithm 1" not in lines(refused)
    assert refused.get_title().startswith("ε = 0.01, seed -1: ")
    assert len(refused.get_lines()) == 1


def test_entries_of_an_array_have_names_and_sliders(monkeypatch: pytest.MonkeyPatch) -> None:
    """Phi = |x|^4/4 - |x|^2/2: the entries of x are what is drawn, over the interval of the array."""
    monkeypatch.setitem(sys.modules, "ipywidgets", STAND_IN)
    f, g = "(y @ y)**2/4 - x @ y/2", "(y - x) @ (y - x)/2"
    array = BilevelProblem(f, g, "x[2]", "y[2]", box={"x": (-2, 1), "y": (-2, 2)})
    shown = explore(array, x0=[0.1, 0.0])
    ax = shown.draw(ax=Figure().subplots())
    assert (ax.get_xlabel(), ax.get_ylabel(), ax.get_xlim()) == ("x_1", "x_2", (-2, 1))
    assert lines(ax)["Algorithm 1"].tolist() == shown.run().trajectory.x.tolist()
    assert [slider.options["description"] for slider in shown.widget.children[:-1]] == ["x_1", "x_2", "ε", "seed"]


def test_names_are_no_formulas() -> None:
    named = BilevelProblem("y**2 + x**2", "(y - x)**2", "x", "y", box={"x": (-1, 1), "y": (-1, 1)}, name="1$ or $2")
    ax = explore(named).draw(ax=Figure().subplots())
    assert "$" not in ax.get_title().replace(r"\$", "")


# ---- what is shown ---------------------------------------------------------------------------------------------


def test_without_ipywidgets_it_shows_the_picture(no_widgets: None) -> None:
    shown = explore(WELL, x0=[0.5])
    bundle = shown._repr_mimebundle_()
    assert set(bundle) == {"text/plain", "image/png"}
    assert b64decode(bundle["image/png"]) == shown.picture()
    with pytest.raises(InvalidArgument, match="pip install ipywidgets"):
        shown.widget  # noqa: B018


@pytest.mark.usefixtures("widgets")
def test_with_ipywidgets_it_shows_sliders_and_the_picture(asked: list[tuple[Any, ...]]) -> None:
    shown = explore(WELL, x0=[0.5])
    bundle = shown._repr_mimebundle_(include=None, exclude=None)
    assert set(bundle) == {"text/plain", "image/png", WIDGET}
    assert b64decode(bundle["image/png"]) == b"1"
    assert shown.widget is shown.widget
    assert len(asked) == 1


@pytest.mark.usefixtures("widgets")
def test_each_slider_redraws_with_what_all_of_them_say(asked: list[tuple[Any, ...]]) -> None:
    *sliders, picture = explore(SADDLE.problem, x0=[0.0, 1.5], eps=0.01, seed=3).widget.children
    assert [slider.value for slider in sliders] == [0.0, 1.5, 0.01, 3]
    for slider, value in zip(sliders, (1.0, -2.0, 0.1, 7), strict=True):
        slider.value = value
    assert asked[1:] == [
        ([1.0, 1.5], 0.01, 3),
        ([1.0, -2.0], 0.01, 3),
        ([1.0, -2.0], 0.1, 3),
        ([1.0, -2.0], 0.1, 7),
    ]
    assert picture.value == b"5"


@pytest.mark.slow
@pytest.mark.usefixtures("widgets")
def test_a_slider_shows_another_run() -> None:
    shown = explore(WELL, x0=[0.5])
    at, *_, picture = shown.widget.children
    at.value = -1.0
    assert picture.value == shown.picture([-1.0]) != shown.picture()


@pytest.mark.usefixtures("widgets")
def test_sliders_reach_what_they_begin_with(asked: list[tuple[Any, ...]]) -> None:
    _, eps, seed, _ = explore(WELL, x0=[-2.0], eps=1e-8, seed=12345).widget.children
    assert (eps.value, seed.value) == (1e-8, 12345)


def test_nothing_is_imported_before_it_is_shown(monkeypatch: pytest.MonkeyPatch) -> None:
    true_import, wanted = builtins.__import__, list[str]()

    def watched(name: str, *others: Any, **more: Any) -> Any:
        wanted.append(name.partition(".")[0])
        return true_import(name, *others, **more)

    monkeypatch.setattr(builtins, "__import__", watched)
    monkeypatch.setattr(importlib, "import_module", watched)
    explore(WELL)
    assert not {"ipywidgets", "matplotlib"}.intersection(wanted)


# ---- what is refused -------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"x0": [3.0]}, r"x0 = \[3.0\] lies outside of the picture, \[-2, 2\]"),
        ({"x0": [0.0, 0.0]}, "outside of the picture"),
        ({"x0": [float("nan")]}, "outside of the picture"),
        ({"x0": ["a"]}, "not numbers"),
        ({"eps": 0}, "eps"),
        ({"seed": -1}, "seed"),
        ({"seed": 0.5}, "seed"),
        ({"steps": 0}, "steps"),
        ({"box": {"y": (0, 1)}}, "box misses x"),
    ],
)
def test_what_cannot_be_shown_is_refused(options: dict[str, Any], words: str) -> None:
    with pytest.raises(ValueError, match=words) as refused:
        explore(WELL, **options)
    assert isinstance(refused.value, BilevelError)


def test_three_variables_are_too_many() -> None:
    with pytest.raises(InvalidArgument, match="one or two variables"):
        explore(zoo.get("saddle", d=3).problem)
