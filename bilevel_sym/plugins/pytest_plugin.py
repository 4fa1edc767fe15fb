"""The pytest plugin: a test that takes ``bilevel_problem`` is run on each problem of the zoo and on generated ones.

    @pytest.mark.bilevel(zoo=True, generated=20, kinds=None, seed=0)  # these are the defaults
    def test_my_hypergradient(bilevel_problem):
        assert_ok(check_hypergradient(lambda x: my_hypergradient(bilevel_problem, x), bilevel_problem))

``zoo`` is a bool or a list of names, ``generated`` how many more, ``kinds`` some of those in ``verify.strategies``.
Where a test fails, the report has the problem as code. pytest loads this module in every session of every user who has
the package installed: nothing is imported before a test asks for a problem, and where another package has the name
``verify`` one warning says so, which stops nothing.
"""

from __future__ import annotations

from collections.abc import Generator, Iterator
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from bilevel_sym.problem.problem import BilevelProblem

FIXTURE, MARKER = "bilevel_problem", "bilevel"
USAGE = f"{MARKER}(zoo=True, generated=20, kinds=None, seed=0)"


def pytest_configure(config: pytest.Config) -> None:
    """Make the marker known, and say where the problems could not be had."""
    config.addinivalue_line("markers", f"{USAGE}: which problems the fixture {FIXTURE} stands for")
    from bilevel_sym.system.verifier import intruder

    if found := intruder():
        with suppress(Warning):  # where warnings are errors, this one would end a session that is none of our business
            told = pytest.PytestConfigWarning(f"bilevel-sym: there is no fixture {FIXTURE}: {found.message}")
            config.issue_config_time_warning(told, stacklevel=2)


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """One test for each problem; the problems themselves are made when the tests run."""
    if _takes_ours(metafunc):
        # without scope="function" pytest would sort the tests by problem
        metafunc.parametrize(FIXTURE, _chosen(metafunc.definition), indirect=True, scope="function")
    elif FIXTURE not in metafunc.fixturenames and any(m.name == MARKER for m in metafunc.definition.own_markers):
        raise _mistake(metafunc.definition, f"it is marked {MARKER}, but does not take {FIXTURE}")


@pytest.fixture(scope="session")  # a problem is frozen; and @given refuses fixtures of a single test
def bilevel_problem(request: pytest.FixtureRequest) -> BilevelProblem:
    """A bilevel problem; the test is run once for each that ``@pytest.mark.bilevel`` chooses."""
    problem: BilevelProblem = request.param.problem()
    return problem


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item) -> Generator[None, pytest.TestReport, pytest.TestReport]:
    """The problem as code, where a test fails."""
    report = yield
    callspec = getattr(item, "callspec", None)
    case: Any = None if callspec is None else callspec.params.get(FIXTURE)
    if report.when == "call" and report.failed and hasattr(case, "code"):
        report.sections.append((FIXTURE.replace("_", " "), case.code()))
    return report


def _takes_ours(metafunc: pytest.Metafunc) -> bool:
    """Whether the test takes our fixture, and not a fixture or a parameter of its own that has the same name."""
    known = metafunc._arg2fixturedefs.get(FIXTURE, ())
    return bool(known) and known[-1].func.__module__ == __name__


def _chosen(definition: pytest.Item) -> list[Any]:
    """The parameters of a test: a problem each, under its id."""
    from bilevel_sym.errors import ForeignPackage, InvalidArgument

    mark = definition.get_closest_marker(MARKER) or pytest.mark.bilevel().mark
    try:
        params = _params(*mark.args, **mark.kwargs)
    except TypeError as error:
        told = str(error).replace(_params.__name__, MARKER)
        raise _mistake(definition, f"{told}\ntry: @pytest.mark.{USAGE}") from None
    try:
        found = list(params)
    except (ForeignPackage, InvalidArgument) as error:
        raise _mistake(definition, str(error)) from None
    if not found:
        raise _mistake(definition, f"@pytest.mark.{MARKER} leaves no problem to run on")
    return found


def _params(*, zoo: Any = True, generated: Any = 20, kinds: Any = None, seed: Any = 0) -> Iterator[Any]:
    from bilevel_sym.system.verifier import verifier

    kit = verifier("testkit.problem_cases")
    yield from (pytest.param(case, id=str(case)) for case in kit.zoo_cases(zoo))
    try:
        cases = kit.generated_cases(generated, kinds=kinds, seed=seed)
    except ModuleNotFoundError as missing:
        if missing.name != "hypothesis":
            raise
        reason = str(missing).replace("\n", "; ")
        yield pytest.param(None, id="generated", marks=pytest.mark.skip(reason=reason))
    else:
        yield from (pytest.param(case, id=str(case)) for case in cases)


def _mistake(definition: pytest.Item, message: str) -> pytest.Collector.CollectError:
    return pytest.Collector.CollectError(f"in {definition.nodeid}: {message}")
