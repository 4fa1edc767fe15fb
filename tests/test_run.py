"""verify.run as a whole: the zoo, random problems, bad input, time, interruption, the command line."""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import signal
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import numpy as np
import pytest
from helpers import THOROUGH, earned, random_problem

import verify
from bilevel_sym import BilevelProblem, zoo
from bilevel_sym.cli import main
from bilevel_sym.errors import BilevelError, InvalidArgument, InvalidProblem
from bilevel_sym.system.budget import Effort
from verify import runner
from verify.registry import Claim
from verify.reporting import Report
from verify.study import Study
from verify.theory import theory_of
from verify.verdict import CheckResult, Verdict

# the tube of Section 5 has jumps: those statements are false there, and these alone
FALSE_IN_THE_ZOO = {
    "tube": {"assu:bilevel", "eq: tube_f"},
    "tube_printed": {"assu:bilevel", "eq: tube_f", "unlabelled:tube-domain"},
}
RANDOM = 501 if THOROUGH else 12
# one of each kind; the others are ``long``
IN_CI = ("scalar", "quadratic", "robust_regression", "minimax_nash", "stochastic_rows")
TOY = BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)}, name="toy")


def applicable(report: Report) -> list[CheckResult]:
    return [result for result in report.results if result.verdict is not Verdict.NOT_APPLICABLE]


@pytest.mark.slow
@pytest.mark.in_ci(name=IN_CI)
@pytest.mark.parametrize("name", zoo.names())
def test_every_zoo_problem_is_decided(name: str) -> None:
    effort: Effort = "quick" if name.startswith("tube") else "default"  # in pieces: minutes at the default
    report = verify.run(zoo.get(name).problem, rng=0, effort=effort)
    found = applicable(report)
    assert sum(result.decided for result in found) >= 0.8 * len(found)
    violated = {result.label for result in found if result.verdict is Verdict.VIOLATED}
    assert violated == FALSE_IN_THE_ZOO.get(name, set())
    assert [str(result) for result in report.results if not earned(result)] == []


@pytest.mark.slow
@pytest.mark.in_ci(first=[0])
@pytest.mark.parametrize("first", range(0, RANDOM, 3))
def test_nothing_true_is_violated_on_random_problems(first: int) -> None:
    for seed in range(first, first + 3):
        report = verify.run(random_problem(seed), rng=seed, effort=0.075)
        wrong = [str(result) for result in report.results if result.verdict is Verdict.VIOLATED or not earned(result)]
        assert wrong == [], seed


@pytest.mark.slow
def test_the_same_seed_gives_the_same_verdicts() -> None:
    first, second = (verify.run(TOY, rng=3, effort="quick") for _ in range(2))
    assert first.results == second.results


@pytest.mark.slow
def test_a_generator_gives_a_seed_that_the_report_names() -> None:
    report = verify.run(TOY, claims=["eq:gdrate"], rng=np.random.default_rng(5))
    again = verify.run(TOY, claims=["eq:gdrate"], rng=report.seed)
    assert report.results == again.results


def test_labels_of_formulas_find_the_claim_that_checks_them() -> None:
    for item in verify.claims():
        for label in item.labels:
            assert label in runner._chosen([label], theory_of())[0].labels
    assert len({item.label for item in verify.claims()}) == len(verify.claims())


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"claims": ["lem:desent"]}, "lem:descent"),
        ({"claims": "nonsense"}, "no claim is registered"),
        ({"seconds": 0}, "seconds"),
        ({"seconds": float("nan")}, "seconds"),
        ({"seconds": True}, "seconds"),
        ({"effort": "much"}, "effort"),
        ({"effort": -1}, "effort"),
        ({"effort": float("nan")}, "effort"),
        ({"rng": -1}, "rng"),
        ({"rng": "a"}, "rng"),
        ({"variant": "best"}, "variant"),
    ],
)
def test_bad_arguments_are_refused(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(InvalidArgument, match=words):
        verify.run(TOY, **changes)


def test_a_problem_without_a_box_is_refused() -> None:
    with pytest.raises(InvalidProblem, match="no box"):
        verify.run(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"))
    with pytest.raises(InvalidArgument, match="problem"):
        verify.run("zoo:scalar")  # type: ignore[arg-type]


@pytest.mark.slow
def test_what_time_cuts_says_so_and_is_never_called_done() -> None:
    report = verify.run(zoo.get("saddle").problem, effort="quick", seconds=0.2)
    late = [result for result in report.results if result.message == "cut by time before its turn"]
    assert late
    assert all(result.verdict is Verdict.INCONCLUSIVE for result in late)


def test_a_claim_that_was_cut_on_its_way_is_not_decided(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever it makes of what it has: what was left out might have decided otherwise."""

    @verify.claim("own:hasty")
    def hasty(study: verify.Study) -> CheckResult:
        with contextlib.suppress(BilevelError):
            ticks.append(1e9)
            _ = study.smoothness
        return verify.judged("own:hasty", 1.0, 2.0, evidence="certified", message="without the smoothness")

    ticks = [0.0]
    monkeypatch.setattr("bilevel_sym.system.budget.monotonic", lambda: ticks[-1])
    (result,) = verify.run(zoo.get("scalar").problem, claims=[hasty], seconds=100).results
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "cut by time" in result.message


FAST = ["grad-Lipschitz", "hess-Lipschitz", "lem:descent", "lem:grad-err-aid", "eq:gdrate", "assu:bilevel"]


@pytest.mark.slow
def test_a_clock_that_jumps_moves_no_result(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = verify.run(TOY, claims=FAST, effort="quick", rng=1).results
    ticks = itertools.count(step=1000.0)
    monkeypatch.setattr("bilevel_sym.system.budget.monotonic", lambda: next(ticks))
    assert verify.run(TOY, claims=FAST, effort="quick", rng=1).results == calm


@pytest.mark.slow
@pytest.mark.in_ci(name=("scalar", "minimax_not_nash"))
@pytest.mark.parametrize("name", ["scalar", "saddle", "minimax_not_nash", "stochastic_noise"])
def test_a_clock_that_jumps_moves_no_result_of_the_zoo(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    problem = zoo.get(name).problem
    calm = verify.run(problem, effort="quick", rng=0).results
    ticks = itertools.count(step=1000.0)
    monkeypatch.setattr("bilevel_sym.system.budget.monotonic", lambda: next(ticks))
    assert verify.run(problem, effort="quick", rng=0).results == calm


def test_an_interruption_keeps_what_there_is(monkeypatch: pytest.MonkeyPatch) -> None:
    called: list[str] = []
    honest = Claim.__call__

    def interrupted(self: Claim, study: Any) -> list[CheckResult]:
        if len(called) == 3:
            raise KeyboardInterrupt
        called.append(self.label)
        return honest(self, study)

    monkeypatch.setattr(Claim, "__call__", interrupted)
    report = verify.run(TOY)
    assert report.interrupted
    assert [result.label for result in report.results[:3]] == called
    assert {result.message for result in report.results[3:]} == {"interrupted"}
    assert {result.label for result in report.results} == {item.label for item in verify.claims()}


def test_claims_of_one_label_are_interrupted_one_by_one() -> None:
    @verify.claim("own:twice")
    def first(study: Study) -> CheckResult:
        """The first."""
        return verify.judged("own:twice", 1.0, 2.0, evidence="sampled", message="judged")

    @verify.claim("own:twice")
    def second(study: Study) -> CheckResult:
        """The second."""
        raise KeyboardInterrupt

    report = verify.run(TOY, claims=[first, second, "eq:bilevel-grad"])
    assert [(result.label, result.message) for result in report.results] == [
        ("own:twice", "judged"), ("own:twice", "interrupted"), ("eq:bilevel-grad", "interrupted")
    ]  # fmt: skip


def test_the_answer_to_interrupts_is_left_as_it_was() -> None:
    def quick() -> verify.Report:
        return verify.run(TOY, claims=["eq:bilevel-grad"])

    before = signal.getsignal(signal.SIGINT)
    assert quick().ok
    assert signal.getsignal(signal.SIGINT) is before
    try:
        signal.signal(signal.SIGINT, signal.SIG_IGN)  # as of a process in the background
        assert quick().ok
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    with ThreadPoolExecutor(1) as elsewhere:  # only the main thread may say what answers them
        assert elsewhere.submit(quick).result().ok


def test_an_ignored_interrupt_interrupts_nothing() -> None:
    @verify.claim("own:loud")
    def loud(study: Study) -> CheckResult:
        """Somebody presses Ctrl-C."""
        os.kill(os.getpid(), signal.SIGINT)
        return verify.judged("own:loud", 1.0, 2.0, evidence="sampled", message="judged")

    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        assert verify.run(TOY, claims=loud).ok
        signal.signal(signal.SIGINT, signal.default_int_handler)
        assert verify.run(TOY, claims=loud).interrupted
    finally:
        signal.signal(signal.SIGINT, before)


def test_a_claim_that_forgets_its_result_is_inconclusive() -> None:
    @verify.claim("own:nothing")
    def nothing(study: Study) -> Any:
        """Nothing."""

    (result,) = verify.run(TOY, claims=nothing).results
    assert result.verdict is Verdict.INCONCLUSIVE
    assert "returned nothing" in result.message


@pytest.mark.parametrize("variant", ["corrected", "printed", "sharp"])
def test_every_result_says_which_variant_was_studied(variant: Any) -> None:
    """Those of a claim that does not say it, that gives up, and that speaks of other problems."""

    @verify.claim("own:silent")
    def silent(study: Study) -> Any:
        """It holds, and then it gives up."""
        yield verify.judged("own:silent", 1.0, 2.0, evidence="certified", message="judged")
        raise BilevelError("no more")

    results = verify.run(TOY, claims=[silent, "lemC.1"], variant=variant).results
    verdicts = [Verdict.HOLDS, Verdict.INCONCLUSIVE, Verdict.NOT_APPLICABLE]
    assert [(result.verdict, result.variant) for result in results] == [(verdict, variant) for verdict in verdicts]


@pytest.mark.parametrize("dip", [0, 1])  # a curvature of exactly zero at y = 0, and one of -1
def test_a_lower_level_that_is_not_convex_is_a_verdict_with_its_point(dip: int) -> None:
    g = f"y**4/4 - {dip}*y**2/2 - x*y"
    problem = BilevelProblem("x*y", g, "x", "y", box={"x": (-1, 1), "y": (-2, 2)})
    (result,) = verify.run(problem, claims=["assu:bilevel"]).results
    assert (result.verdict, result.evidence) == (Verdict.VIOLATED, "certified")
    assert result.worst_point is not None
    assert 3 * result.worst_point["y"] ** 2 - dip <= 0


@pytest.mark.long
def test_where_y_star_leaves_the_box_the_constants_refute_nothing() -> None:
    problem = BilevelProblem("cos(x)*y", "y**2/2 - x*y", "x", "y", box={"x": (-1000, 1000), "y": (-1, 1)})
    report = verify.run(problem, claims=["grad-Lipschitz", "thm:aid", "unlabelled:remark-large-L-phi"], effort=0.25)
    assert report.ok
    assert any("leaves the box in y" in result.message for result in report.results)


def test_a_box_of_one_value_says_so_where_a_run_would_need_room() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y", box={"x": (0, 0), "y": (-1, 1)})
    (result,) = verify.run(problem, claims=["eq:warmstart-y"]).results
    assert result.verdict is Verdict.NOT_APPLICABLE
    assert "one value" in result.message


@pytest.mark.slow
def test_the_command_prints_a_table_and_its_code_says_whether_all_is_well(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", "zoo:lphi_witness", "--claims", "grad-Lipschitz"]) == 0
    assert "HOLDS" in capsys.readouterr().out
    assert main(["verify", "zoo:lphi_witness", "--claims", "grad-Lipschitz", "--variant", "printed"]) == 1
    assert "VIOLATED" in capsys.readouterr().out
    assert main(["verify", "zoo:lphi_witness", "--claims", "grad-Lipschitz", "--format", "json"]) == 0
    assert json.loads(capsys.readouterr().out)["schema"] == "bilevel-sym/report/2"


@pytest.mark.parametrize("arguments", [["zoo:scalar", "--claims", "x"], ["zoo:scalar", "--seconds", "-1"], ["no.toml"]])
def test_the_command_refuses_bad_input_in_a_few_lines(arguments: list[str], capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["verify", *arguments]) == 2
    shown = capsys.readouterr()
    assert shown.out == ""
    assert 1 <= len(shown.err.splitlines()) <= 4
