"""Three tiers: fast, slow, and long, which CI leaves out and says so; threads of workers; inner sessions with our own conftest.py."""

from __future__ import annotations

import os
import shlex
import tomllib
from pathlib import Path

import pytest

pytest_plugins = ["pytester"]

HERE = Path(__file__).resolve().parent
TESTS = """
import pytest

@pytest.mark.in_ci("one-1", "two-1", k=(1, 2))
@pytest.mark.slow
@pytest.mark.parametrize("k", [1, 2])
@pytest.mark.parametrize("case", ["one", pytest.param("two", marks=pytest.mark.long)])
def test_spread(case, k):
    pass

@pytest.mark.slow
@pytest.mark.in_ci(k=range(2))
@pytest.mark.parametrize("k", range(3))
def test_some(k):
    pass

@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("k", [0, 1, *(pytest.param(k, marks=pytest.mark.slow) for k in range(2, 6))])
def test_every(k):  # those that are fast stay as they are
    pass

@pytest.mark.slow
def test_slow():
    pass

@pytest.mark.long
def test_long():
    pass

@pytest.mark.long
def test_long_and_wide():
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "passed", "left_out"),
    [
        ("-n 2", 8, 8),
        ("-k spread", 1, 3),  # what -k leaves out anyway is not counted
        ("-m slow", 6, 8),
        ("-m 'not slow'", 2, 0),
        ("-m long", 8, 0),
        ("-m 'slow or long' -n 2", 14, 0),
        ("test_them.py::test_spread", 4, 0),
        ("test_them.py::test_spread[two-2] test_them.py::test_long -n 2", 2, 0),
        ("test_them.py", 8, 8),
        ("--hypothesis-profile=thorough", 16, 0),
    ],
)
def test_what_is_long_is_left_out_aloud(pytester: pytest.Pytester, words: str, passed: int, left_out: int) -> None:
    result = _run(pytester, TESTS, words)
    result.assert_outcomes(passed=passed)
    said = [line for line in result.outlines if "left out" in line]
    assert said == [f"left out: {left_out} long tests; `python -m pytest -m long` runs them"] * bool(left_out)


MISSPELT = """
import pytest

@pytest.mark.in_ci({words})
@pytest.mark.slow
@pytest.mark.parametrize("name", ["one", "two"])
def test_it(name):
    pass
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "said"),
    [
        ('"one", "twoo"', "'twoo'"),
        ('name=("one", "twoo", "three")', "name='twoo', name='three'"),
        ("nmae=['one']", "nmae='one'"),
    ],
)
def test_a_misspelt_parameter_is_an_error(pytester: pytest.Pytester, words: str, said: str) -> None:
    result = _run(pytester, MISSPELT.format(words=words), "-q test_them.py::test_it[two]")
    result.assert_outcomes(errors=1)
    assert f"in_ci: test_it has no parameter {said}" in result.outlines


THREADS = """
import os

def test_threads():
    assert os.environ.get("OPENBLAS_NUM_THREADS") == {threads!r}
"""


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "before", "threads"), [("-n 1", None, "1"), ("-n 1", "2", "2"), ("-n 0", None, None)]
)
def test_a_worker_has_one_thread_unless_told_otherwise(
    pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch, words: str, before: str | None, threads: str | None
) -> None:
    for name in [name for name in os.environ if name.startswith("PYTEST_XDIST")]:
        monkeypatch.delenv(name)
    monkeypatch.delenv("OPENBLAS_NUM_THREADS", raising=False)
    if before is not None:
        monkeypatch.setenv("OPENBLAS_NUM_THREADS", before)
    _run(pytester, THREADS.format(threads=threads), words).assert_outcomes(passed=1)


def _run(pytester: pytest.Pytester, tests: str, words: str) -> pytest.RunResult:
    pytester.makeconftest((HERE / "conftest.py").read_text(encoding="utf-8"))
    options = tomllib.loads((HERE.parent / "pyproject.toml").read_text(encoding="utf-8"))["tool"]["pytest"]
    pytester.makeini(
        "[pytest]\naddopts = --strict-markers\nmarkers =\n  " + "\n  ".join(options["ini_options"]["markers"])
    )
    pytester.makepyfile(test_them=tests)
    return pytester.runpytest_subprocess(*shlex.split(words))
