"""Hypothesis profiles: ``dev`` (default), ``ci`` (where CI is set) and ``thorough`` (before a release); tests that are ``long``."""

import gc
import os
import re
import sys
from collections.abc import Generator, Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, settings

# the cores are shared out among the workers already: threads of OpenBLAS that wait for one another there burn what they wait for,
# and a test of one second took eleven. `-n 0` leaves them as they come; `.ci/processors two-threads` runs all with two
if "PYTEST_XDIST_WORKER" in os.environ:
    os.environ.setdefault("OPENBLAS_NUM_THREADS", "1")  # read when NumPy is first imported, which is later than this

# symbolic work is uneven: a deadline would report SymPy's garbage collection, not our bugs; and to explain a failure
# takes a hundred examples more, which ``find`` spends on every success
_COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "print_blob": True,
    "phases": [phase for phase in Phase if phase is not Phase.explain],
}
settings.register_profile("dev", max_examples=15, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("ci", max_examples=25, derandomize=True, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("thorough", max_examples=1000, **_COMMON)  # type: ignore[arg-type]
settings.load_profile("ci" if os.environ.get("CI") else "dev")


# ---- what is long does not fit into CI: left out unless it is asked for, and the summary says so ----------------------

_LEFT_OUT = pytest.StashKey[int]()


def _is_in_ci(item: pytest.Item, mark: pytest.Mark, every: int = 1, **kept: Any) -> bool:
    """Are its parameters among those that ``in_ci`` names: ids, values by their names, or every so many of them?"""
    call = item.callspec  # type: ignore[attr-defined]
    by_value = all(call.params[key] in values for key, values in kept.items())
    return (not mark.args or call.id in mark.args) and by_value and sum({*call.indices.values()}) % every == 0


def _misspelt(calls: list[Any], mark: pytest.Mark) -> list[str]:
    """What ``in_ci`` names and is no parameter: it would make others long without a word."""
    there = {key: [call.params.get(key) for call in calls] for key in mark.kwargs if key != "every"}
    values = [f"{key}={value!r}" for key, found in there.items() for value in mark.kwargs[key] if value not in found]
    return [repr(word) for word in mark.args if word not in [call.id for call in calls]] + values


@pytest.hookimpl(wrapper=True)
def pytest_pycollect_makeitem(name: str) -> Generator[None, object, object]:
    """All parameters of a test are here, whichever of them are chosen later."""
    made = yield
    items = made if isinstance(made, list) else []
    for mark in items[0].iter_markers("in_ci") if items else ():
        if wrong := _misspelt([item.callspec for item in items if hasattr(item, "callspec")], mark):
            raise pytest.Collector.CollectError(f"in_ci: {name} has no parameter {', '.join(wrong)}")
    return made


def pytest_itemcollected(item: pytest.Item) -> None:
    """What is slow and not among ``in_ci`` is long, and what is long is slow, before anybody chooses by marks."""
    if item.get_closest_marker("slow") and not all(_is_in_ci(item, m, **m.kwargs) for m in item.iter_markers("in_ci")):
        item.add_marker("long")
    if item.get_closest_marker("long"):
        item.add_marker("slow")


def _is_named(item: pytest.Item, config: pytest.Config) -> bool:
    """Is it one of the ids on the command line, or a parameter or member of one?"""
    for word in config.args:
        file, _, name = word.partition("::")
        rest = item.nodeid.partition("::")[2].removeprefix(name)
        if name and rest[:1] in ("", "[", ":") and (config.invocation_params.dir / Path(file)).resolve() == item.path:
            return True
    return False


@pytest.hookimpl(trylast=True)  # what -m and -k have left out is not counted
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave out what is long, unless marks, an id or the thorough profile ask for it; every worker does the same."""
    asked = re.search(r"\blong\b", config.getoption("markexpr", "") or "")
    if asked or config.getoption("--hypothesis-profile", None) == "thorough":
        return
    left = {item for item in items if item.get_closest_marker("long") and not _is_named(item, config)}
    config.hook.pytest_deselected(items=[item for item in items if item in left])
    items[:] = [item for item in items if item not in left]
    config.stash[_LEFT_OUT] = len(left)
    if hasattr(config, "workeroutput"):
        config.workeroutput["long"] = len(left)


@pytest.hookimpl(optionalhook=True)
def pytest_testnodedown(node: Any) -> None:
    """A worker of pytest-xdist tells how many it left out: all of them the same."""
    if told := getattr(node, "workeroutput", {}).get("long"):  # one that broke down tells nothing
        node.config.stash[_LEFT_OUT] = told


def pytest_terminal_summary(terminalreporter: Any) -> None:
    """One line: nothing is left out silently."""
    if count := terminalreporter.config.stash.get(_LEFT_OUT, 0):
        terminalreporter.write_line(f"left out: {count} long tests; `python -m pytest -m long` runs them")


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _jax_as_it_comes() -> Iterator[None]:
    """JAX's precision is a setting of the process: no test leaves it changed for the next, nor a fixture of a module."""
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", False)
