"""assert_ok, and the pytest plugin as its users meet it: inner sessions of pytest, each in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tomllib
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verify
from bilevel_sym import BilevelProblem, MinimaxProblem, StochasticProblem, zoo
from bilevel_sym.errors import InvalidArgument
from verify.reporting import Report
from verify.strategies import DEGENERATE
from verify.testkit.diagnosis import Diagnosis
from verify.testkit.problem_cases import GeneratedCase, ZooCase, generated_cases, zoo_cases
from verify.testkit.reference import QUANTITIES, references
from verify.testkit.result import CandidateCheck, assert_ok
from verify.testkit.sample_points import sample_points
from verify.verdict import CheckResult, Verdict, inconclusive, judged, not_applicable

pytest_plugins = ["pytester"]

ROOT = Path(verify.__file__).resolve().parent.parent
HOLDS = judged("lem:descent", 0.5, 2.0, evidence="certified", message="one step")
VIOLATED = judged(
    "lem:descent", 3.0, 2.0, evidence="certified", message="a long step", worst_point={"x1": 0.5, "x2": 1}
)
UNDECIDED = inconclusive("lem:descent", "out of time")
SILENT = not_applicable("lemC.1", "not a minimax problem")
RESULTS = {result.verdict: result for result in (HOLDS, VIOLATED, UNDECIDED, SILENT)}


def report_of(*results: CheckResult) -> Report:
    return Report("toy", None, "corrected", 0, 0.1, results)


# --- assert_ok


@pytest.mark.parametrize("verdict", Verdict)
def test_a_single_result_has_to_hold(verdict: Verdict) -> None:
    result = RESULTS[verdict]
    if verdict is Verdict.HOLDS:
        assert_ok(result)
        return
    with pytest.raises(AssertionError) as raised:
        assert_ok(result)
    assert str(raised.value).startswith(str(result))  # nothing of what was found is lost
    assert ("no pass" in str(raised.value)) == (verdict is not Verdict.VIOLATED)


def test_the_point_is_told_once() -> None:
    with pytest.raises(AssertionError, match=r"a long step\n  at x1 = 0\.5, x2 = 1$"):
        assert_ok(VIOLATED)
    told = judged("lem:descent", 3.0, 2.0, evidence="certified", message="at x1 = 0.5", worst_point={"x1": 0.5})
    with pytest.raises(AssertionError) as raised:
        assert_ok(told)
    assert str(raised.value).count("x1 = 0.5") == 1


@pytest.mark.parametrize("results", [(HOLDS,), (UNDECIDED, HOLDS, SILENT)])
def test_a_report_may_leave_some_statements_open(results: tuple[CheckResult, ...]) -> None:
    assert report_of(*results).ok
    assert_ok(report_of(*results))


def test_a_report_with_a_violation_names_it_and_nothing_else() -> None:
    with pytest.raises(AssertionError) as raised:
        assert_ok(report_of(HOLDS, VIOLATED, SILENT))
    text = str(raised.value)
    assert text.startswith("toy: 1 HOLDS, 1 VIOLATED, 1 NOT_APPLICABLE\n")
    assert "a long step" in text
    assert "one step" not in text
    assert "minimax" not in text


@pytest.mark.parametrize("results", [(), (UNDECIDED,), (SILENT, UNDECIDED, UNDECIDED)])
def test_a_report_that_decided_nothing_is_no_pass(results: tuple[CheckResult, ...]) -> None:
    assert report_of(*results).ok  # nothing is violated, and yet
    with pytest.raises(AssertionError, match="nothing was decided") as raised:
        assert_ok(report_of(*results))
    assert all(result.message in str(raised.value) for result in results)


@pytest.mark.parametrize("other", [True, None, "HOLDS", Verdict.HOLDS, [HOLDS], report_of])
def test_anything_else_is_refused(other: Any) -> None:
    with pytest.raises(InvalidArgument, match=f"but was given a {type(other).__name__}\ntry: assert_ok"):
        assert_ok(other)


# --- which problems


@pytest.mark.slow
def test_the_zoo_is_smooth_and_exact_unless_asked_by_name() -> None:
    names = {case.spec for case in zoo_cases(True)}
    assert {"scalar", "ridge", "quadratic", "saddle", "minimax_nash", "hyper_cleaning"} <= names
    assert not names & {"tube", "tube_coupled", "tube_printed", "stochastic_noise", "stochastic_rows"}
    assert isinstance(zoo_cases(["stochastic_noise"])[0].problem(), StochasticProblem)
    assert zoo_cases("tube, d=2")[0].problem() == zoo.get("tube", d=2).problem


def test_generated_problems_take_turns_and_more_of_them_only_adds() -> None:
    few, many = generated_cases(30), generated_cases(60)
    assert few == many[:30]
    assert len({str(case) for case in many}) == 60
    assert {case.kind for case in few} == {"general", "quadratic", "minimax", "rows", *DEGENERATE}
    biting = {"rows", "spread spectrum", "clustered spectrum", "ill-conditioned system", "far start", "slowly varying"}
    assert biting < {case.kind for case in few[:8]}  # what loose solvers do not survive comes first
    assert {case.kind for case in generated_cases(4, kinds=["n = 1", "stochastic"])} == {"n = 1", "stochastic"}
    assert generated_cases(0) == ()


@pytest.mark.slow
def test_generated_problems_can_be_judged() -> None:
    """Of these kinds many are drawn that float64 cannot judge; they are passed over."""
    for case in generated_cases(8, kinds=["ill-conditioned", "badly scaled"]):
        problem = case.problem()
        at = references(problem, sample_points(problem, np.random.default_rng(1)))
        for name in QUANTITIES:
            size = np.abs(at.truth(name)).max()
            assert size == 0 or at.floor(name).min() < 0.01 * size


@pytest.mark.slow
def test_generated_problems_differ_by_number_and_seed_and_are_of_their_kind() -> None:
    problems = {GeneratedCase("d > n", k, seed).problem() for k in range(5) for seed in range(3)}
    assert len(problems) > 12
    assert all(problem.d > problem.n for problem in problems)


@pytest.mark.slow
@pytest.mark.parametrize(
    "case",
    [*generated_cases(20)[::3], ZooCase("ridge"), ZooCase("quadratic,d=3"), GeneratedCase("stochastic", 0)],
    ids=str,
)
def test_the_code_can_be_pasted(case: ZooCase | GeneratedCase) -> None:
    names: dict[str, Any] = {}
    exec(case.code(), names)
    assert names["problem"] == case.problem()


def test_a_problem_too_long_to_print_is_still_code(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(BilevelProblem, "__repr__", lambda self: "<a very long problem>")
    names: dict[str, Any] = {}
    exec(GeneratedCase("isotropic", 1, 5).code(), names)
    assert names["problem"] == GeneratedCase("isotropic", 1, 5).problem()


@pytest.mark.slow
def test_a_generated_problem_depends_on_nothing_but_its_id() -> None:
    """Hypothesis looks for constants in the modules that are imported; another process, other modules, other hashes."""
    code = (
        "import json; from verify.testkit.problem_cases import generated_cases\n"
        "print(json.dumps({str(c): repr(c.problem()) for c in reversed(generated_cases(30))}))"
    )
    environment = os.environ | {"PYTHONPATH": str(ROOT), "PYTHONHASHSEED": "7"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert json.loads(done.stdout) == {str(case): repr(case.problem()) for case in generated_cases(30)}


# --- the plugin, from inside

SOLVER = """
    import numpy as np
    import pytest
    from verify.testkit.result import assert_ok
    from verify.verdict import inconclusive, judged

    def hypergradient(problem, x, sign=1.0):
        k = problem.kernels
        y = k.y_star(x)
        return k.f_x(x, y) - sign * k.g_xy(x, y) @ np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))

    def check(candidate, problem):
        x = np.array([float(problem.box[s][1]) / 2 for s in problem.x])
        truth = problem.kernels.grad_phi(x)
        error, size = (float(np.linalg.norm(v)) for v in (candidate(x) - truth, truth))
        point = {s.name: float(v) for s, v in zip(problem.x, x)}
        return judged("eq:bilevel-grad", error, 1e-6 * size, evidence="proved", message="my words", worst_point=point)
"""
RIGHT = """
    from solver import *

    def test_right(bilevel_problem):
        assert_ok(check(lambda x: hypergradient(bilevel_problem, x), bilevel_problem))
"""
Run = Callable[..., pytest.RunResult]


@pytest.fixture
def inner(pytester: pytest.Pytester, monkeypatch: pytest.MonkeyPatch) -> Run:
    """Runs pytest with our plugin on files given as text."""
    monkeypatch.setenv("PYTHONPATH", str(ROOT))
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # whether or not this package is installed
    for name in ("PYTEST_ADDOPTS", "PYTEST_XDIST_WORKER", "PYTEST_XDIST_WORKER_COUNT", "PYTEST_XDIST_TESTRUNUID"):
        monkeypatch.delenv(name, raising=False)

    def run(*options: str, **files: str) -> pytest.RunResult:
        pytester.makepyfile(solver=SOLVER, **files)
        return pytester.runpytest_subprocess(
            "-p",
            "bilevel_sym.plugins.pytest_plugin",
            "-p",
            "no:cacheprovider",
            "--rootdir=.",  # whatever lies in a folder above
            "--strict-markers",
            "-W",
            "error",
            *options,
        )

    return run


WRONG = """
    from solver import *

    @pytest.fixture
    def candidate(bilevel_problem):
        return lambda x: hypergradient(bilevel_problem, x, sign=-1.0)

    @pytest.mark.bilevel(zoo=["ridge"], generated=2, kinds=["third derivatives"], seed=3)
    class TestWrong:
        def test_sign(self, bilevel_problem, candidate):
            assert_ok(check(candidate, bilevel_problem))

    @pytest.mark.bilevel(zoo=["scalar"], generated=0)
    def test_undecided(bilevel_problem):
        assert_ok(inconclusive("eq:bilevel-grad", "out of time"))
"""


@pytest.mark.slow
def test_a_right_candidate_passes_everywhere_and_a_wrong_one_is_shown_with_its_problem(inner: Run) -> None:
    result = inner("-v", test_right=RIGHT, test_wrong=WRONG)
    passed = len(zoo_cases(True)) + 20
    result.assert_outcomes(passed=passed, failed=4)
    lines = result.stdout
    lines.fnmatch_lines(
        [f"test_right.py::test_right?{case}? PASSED*" for case in (*zoo_cases(True), *generated_cases(20))]
    )
    expected = GeneratedCase("third derivatives", 1, seed=3)
    x = {s.name: float(high) / 2 for s in expected.problem().x for _, high in [expected.problem().box[s]]}  # type: ignore[index]
    lines.fnmatch_lines(
        [
            "*_ TestWrong.test_sign?zoo:ridge? _*",
            ">       assert_ok(check(candidate, bilevel_problem))",
            "E       AssertionError: eq:bilevel-grad: VIOLATED (proved); * against *; my words",
            "E         at x = 1.0",
            "*- bilevel problem -*",
            "problem = zoo.parse('ridge').problem",
            "*_ TestWrong.test_sign?generated:third-derivatives-1-seed3? _*",
            f"E         at {', '.join(f'{name} = {value}' for name, value in x.items())}",
            "from bilevel_sym import BilevelProblem",
            *[line.replace("[", "[[]") for line in expected.code().splitlines()[1:]],
            "*_ test_undecided?zoo:scalar? _*",
            "E       AssertionError: eq:bilevel-grad: INCONCLUSIVE (no evidence); out of time",
            "E         nothing was decided, which is no pass",
        ]
    )
    assert "assertion.py" not in lines.str()  # no line of ours in the tracebacks
    assert "plugin.py" not in lines.str()


REAL = """
    from solver import *
    from verify.testkit.checks import check_hypergradient

    @pytest.mark.bilevel(zoo={zoo}, generated={generated})
    def test_right(bilevel_problem):
        assert_ok(check_hypergradient(lambda x: hypergradient(bilevel_problem, x), bilevel_problem))

    @pytest.mark.bilevel(zoo=["saddle"], generated=1, kinds="third derivatives", seed=3)
    def test_wrong(bilevel_problem):
        assert_ok(check_hypergradient(lambda x: hypergradient(bilevel_problem, x, sign=-1.0), bilevel_problem))
"""


@pytest.mark.slow
@pytest.mark.in_ci(generated=[2])
@pytest.mark.parametrize(
    ("zoo", "generated"), [(("scalar", "ridge", "minimax_nash"), 2), (True, 5)], ids=["some", "all"]
)
def test_the_real_check_decides_on_every_problem(inner: Run, zoo: Any, generated: int) -> None:
    result = inner(test_real=REAL.format(zoo=zoo, generated=generated))
    result.assert_outcomes(passed=len(zoo_cases(zoo)) + generated, failed=2)
    told = [
        ">       assert_ok(check_hypergradient(*",
        "E       AssertionError: sign: the implicit term has the wrong sign",
        "E       VIOLATED: the hypergradient is wrong*",
        "E         at          x1 = *",
        "E         suspected   the implicit term has the wrong sign*",
        "*- bilevel problem -*",
        "problem = *",
    ]
    result.stdout.fnmatch_lines([*told, *told])
    assert "examination.py" not in result.stdout.str()


USAGE = {
    'zoo=["rigde"]': "the zoo has no problem called 'rigde'",
    'zoo=["quadratic,q=3"]': "quadratic has no parameter 'q'",
    "zoo=3": "zoo is 3",
    "generated=-1": "generated is -1",
    "generated=True": "generated is True",
    "seed='a'": "seed is 'a'",
    'kinds=["isotrop"]': "there is no kind of problem called 'isotrop'",
    "kinds=[]": "kinds is []",
    "zooo=True": "bilevel() got an unexpected keyword argument 'zooo'",
    "20": "bilevel() takes 0 positional arguments but 1 was given",
    "zoo=False, generated=0": "@pytest.mark.bilevel leaves no problem to run on",
}


@pytest.mark.slow
def test_a_wrong_marker_is_one_clear_error(inner: Run) -> None:
    text = "import pytest\n@pytest.mark.bilevel({})\ndef test_it({}):\n    pass\n"
    files = {f"test_{k}": text.format(arguments, "bilevel_problem") for k, arguments in enumerate(USAGE)}
    result = inner("--continue-on-collection-errors", test_forgotten=text.format("", ""), **files)
    result.assert_outcomes(errors=len(USAGE) + 1)
    printed = result.stdout.str()
    for k, message in enumerate(USAGE.values()):
        assert f"in test_{k}.py::test_it: {message}" in printed
    assert "did you mean ridge?" in printed
    assert "try: @pytest.mark.bilevel(zoo=True, generated=20, kinds=None, seed=0)" in printed
    assert "in test_forgotten.py::test_it: it is marked bilevel, but does not take bilevel_problem" in printed
    assert "Traceback" not in printed
    assert "plugin.py" not in printed


@pytest.mark.slow
def test_nothing_is_generated_while_collecting(inner: Run) -> None:
    conftest = """
        from verify.testkit.problem_cases import GeneratedCase

        def refuse(self):
            raise RuntimeError("too early")

        GeneratedCase.problem = refuse
    """
    result = inner("--collect-only", "-q", conftest=conftest, test_right=RIGHT)
    assert result.ret == 0
    result.stdout.fnmatch_lines(["test_right.py::test_right?generated:ill-conditioned-0?"])


@pytest.mark.slow
def test_without_hypothesis_the_zoo_remains_and_the_rest_is_skipped_visibly(inner: Run) -> None:
    result = inner("-rs", conftest="import sys\nsys.modules['hypothesis'] = None\n", test_right=RIGHT)
    result.assert_outcomes(passed=len(zoo_cases(True)), skipped=1)
    result.stdout.fnmatch_lines(['SKIPPED * verify.strategies wants Hypothesis; try: pip install "bilevel-sym?test?"'])


@pytest.mark.long
def test_workers_agree_on_the_ids(inner: Run) -> None:
    few = RIGHT.replace("def", "@pytest.mark.bilevel(zoo=['scalar'], generated=6)\n    def")
    result = inner("-p", "xdist", "-n", "2", test_right=few, test_wrong=WRONG)
    result.assert_outcomes(passed=7, failed=4)
    result.stdout.fnmatch_lines(["*- bilevel problem -*", "problem = *"])
    assert "Different tests were collected" not in result.stdout.str()


@pytest.mark.slow
def test_tests_keep_their_order_and_given_and_own_names_may_be_used(inner: Run) -> None:
    text = """
        import pytest
        from hypothesis import given, settings, strategies as st

        pytestmark = pytest.mark.bilevel(zoo=["scalar", "ridge"], generated=0)

        @settings(max_examples=2, database=None)
        @given(k=st.integers())
        def test_a(bilevel_problem, k):
            assert bilevel_problem.name in ("scalar", "ridge")

        def test_b(bilevel_problem):
            pass

        def test_c():
            pass
    """
    own = """
        import pytest

        @pytest.mark.parametrize("bilevel_problem", [1, 2])
        def test_parameter(bilevel_problem):
            assert bilevel_problem in (1, 2)

        class TestFixture:
            @pytest.fixture
            def bilevel_problem(self):
                return 3

            def test_fixture(self, bilevel_problem):
                assert bilevel_problem == 3
    """
    result = inner("-v", "-p", "hypothesispytest", test_order=text, test_own=own)
    result.assert_outcomes(passed=8)
    ids = [line.split()[0].split("::")[1] for line in result.outlines if "test_order" in line]
    assert ids == ["test_a[zoo:scalar]", "test_a[zoo:ridge]", "test_b[zoo:scalar]", "test_b[zoo:ridge]", "test_c"]


# --- the entry point


@pytest.mark.slow
def test_loading_the_plugin_costs_nothing() -> None:
    """pytest loads it in every session of everybody who has this package installed."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    (module,) = project["entry-points"]["pytest11"].values()
    code = f"import sys, {module}; print(*sys.modules)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"numpy", "sympy", "bilevel_sym.problem.problem", "hypothesis", "verify"}.isdisjoint(done.stdout.split())
    assert hasattr(sys.modules.get(module) or __import__(module, fromlist=["_"]), "pytest_generate_tests")


@pytest.mark.slow
def test_every_public_name_of_verify_is_found() -> None:
    code = (
        "import verify\n"
        "assert not [name for name in verify.__all__ if not hasattr(verify, name)]\n"
        "assert set(verify.__all__) <= set(dir(verify))\n"
        "from verify import *\n"
        "assert run is verify.run\n"
    )
    subprocess.run([sys.executable, "-c", code], env=os.environ | {"PYTHONPATH": str(ROOT)}, check=True)


@pytest.mark.slow
def test_a_minimax_problem_prints_as_one() -> None:
    assert isinstance(GeneratedCase("minimax", 0).problem(), MinimaxProblem)
    assert GeneratedCase("minimax", 0).code().startswith("from bilevel_sym import MinimaxProblem\n")


# --- digits, several results, and a summary in one line

LOOSE = CandidateCheck(
    label="eq:bilevel-grad", verdict=Verdict.VIOLATED, message="the hypergradient is wrong", digits=7.2,
    diagnosis=Diagnosis("tolerance", "a loose tolerance", "the solver"),
)  # fmt: skip


def test_digits_are_enough_where_nothing_else_is_wrong() -> None:
    assert_ok(LOOSE, digits=7)
    for digits in (None, 7.5):
        with pytest.raises(AssertionError, match=r"^tolerance: a loose tolerance\nVIOLATED"):
            assert_ok(LOOSE, digits=digits)
    undecided = replace(LOOSE, verdict=Verdict.INCONCLUSIVE)
    with pytest.raises(AssertionError, match="no pass"):
        assert_ok(undecided, digits=3)
    with pytest.raises(InvalidArgument, match="about a candidate"):
        assert_ok(HOLDS, digits=3)
    with pytest.raises(InvalidArgument, match="no digits"):
        assert_ok(report_of(HOLDS), digits=3)


def test_of_several_candidates_each_has_to_hold() -> None:
    right = replace(LOOSE, verdict=Verdict.HOLDS, diagnosis=None)
    assert_ok([right, right])
    with pytest.raises(AssertionError, match="second: tolerance"):
        assert_ok([right, replace(LOOSE, part="second"), right])
    assert_ok(report_of(right, LOOSE), digits=6)


def test_digits_are_those_of_the_worst_point_that_rounding_does_not_explain() -> None:
    problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")  # grad Phi = x
    result = verify.check_hypergradient(lambda x: x + 1e-6 * (x[0] > 1.5), problem, points=[[2000.0], [2.0], [1.0]])
    assert 6.0 < result.digits < 6.5
    assert_ok(result, digits=6)


def test_a_report_is_looked_through_and_printed() -> None:
    report = report_of(HOLDS, VIOLATED)
    assert list(report) == [HOLDS, VIOLATED]
    assert (len(report), report[1], report["lem:descent"]) == (2, VIOLATED, HOLDS)
    assert str(report) == report.to_text()
    assert repr(report) == "<Report on toy: 2 statements: 1 HOLDS, 1 VIOLATED>"


@pytest.mark.slow
def test_the_summary_of_pytest_names_the_cause(pytester: pytest.Pytester) -> None:
    pytester.makepyfile(
        test_it="""
        from bilevel_sym import verify
        import numpy as np, pytest

        @pytest.mark.bilevel(zoo=["scalar"], generated=0)
        def test_it(bilevel_problem):
            k = bilevel_problem.kernels
            def halved(x):
                y = k.y_star(x)
                return k.f_x(x, y) - 0.5 * k.g_xy(x, y) @ np.linalg.solve(k.g_yy(x, y), k.f_y(x, y))
            verify.assert_ok(verify.check_hypergradient(halved, bilevel_problem))
        """
    )
    result = pytester.runpytest_subprocess("-n", "0", "-ra", "-p", "no:cacheprovider")
    result.stdout.fnmatch_lines(["FAILED *::test_it* - AssertionError: cross: *"])
