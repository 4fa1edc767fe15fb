"""Every example of .github/docs/extending.md runs, prints what it says, is short, and can fail."""

from __future__ import annotations

import contextlib
import io
import json
import math
import re
import runpy
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np
import pytest
import sympy as sp
import test_zoo
from documentation import ROOT, blocks_of

import verify
from bilevel_sym import AID, BilevelProblem, Descent, Perturbed, compile_kernels, solve, zoo
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.solvers.compiled.run import CompiledRun
from verify import Verdict
from verify.erratum import Erratum

PAGE = ROOT / ".github" / "docs" / "extending.md"
MOST_LINES = 40
SADDLE = zoo.get("saddle").problem


def examples() -> dict[str, str]:
    """The Python block of each chapter, by its heading."""
    lines, chapters = PAGE.read_text(encoding="utf-8").splitlines(), {}
    for block in blocks_of(PAGE):
        if block.language == "python":
            heading = next(line for line in reversed(lines[: block.line]) if line.startswith("## "))
            assert heading[3:] not in chapters
            chapters[heading[3:]] = block.text
    return chapters


EXAMPLES = examples()


@dataclass(frozen=True)
class Ran:
    """An example that was run: the names that it defines, what it printed, and where."""

    defined: dict[str, Any]
    printed: list[str]
    folder: Path

    def __getitem__(self, name: str) -> Any:
        return self.defined[name]


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Callable[[str], Ran]:
    """Runs an example, once for all tests."""

    @cache
    def run(name: str) -> Ran:
        folder, printed = tmp_path_factory.mktemp("example"), io.StringIO()
        path = folder / "example.py"
        path.write_text(EXAMPLES[name], encoding="utf-8")
        with contextlib.chdir(folder), contextlib.redirect_stdout(printed):
            return Ran(runpy.run_path(str(path)), printed.getvalue().splitlines(), folder)

    return run


def test_there_is_one_for_each_kind() -> None:
    assert list(EXAMPLES) == [
        "A problem of your own", "A problem for the zoo", "An estimator", "An algorithm", "A claim", "An erratum", "A defect",
        "A package that adds to the toolkit",
    ]  # fmt: skip


@pytest.mark.slow
@pytest.mark.parametrize("name", EXAMPLES)
def test_it_is_short_and_public_and_prints_what_it_says(name: str, ran: Any) -> None:
    source = EXAMPLES[name]
    assert len([line for line in source.splitlines() if line.strip()]) < MOST_LINES
    assert not re.findall(r"\b_[a-z]\w*", source), "private names"
    said = re.findall(r"^print\(.*\)  # (.*)$", source, re.M)
    assert said == ran(name).printed != []


@pytest.mark.slow
def test_the_own_problem_survives_its_file(ran: Any) -> None:
    example = ran("A problem of your own")
    assert BilevelProblem.load(example.folder / "tax.toml") == example["problem"]


# ---- a problem for the zoo ------------------------------------------------------------------------------------


@pytest.fixture
def in_the_zoo(ran: Any, monkeypatch: pytest.MonkeyPatch) -> str:
    """The example of the page as an entry of the zoo."""
    entry = ran("A problem for the zoo")["double_well"]
    monkeypatch.setattr(zoo, "_ENTRIES", MappingProxyType({**zoo._ENTRIES, entry.name: entry}))
    for spec in (entry.name, f"{entry.name},depth=1/20"):
        monkeypatch.setitem(test_zoo.EXAMPLES, spec, zoo.parse(spec))
    return str(entry.name)


def zoo_tests(spec: str, folder: Path) -> None:
    """All that tests/test_zoo.py asks of an entry like this one."""
    test_zoo.test_rational_answers_are_exact(spec)
    test_zoo.test_lower_solution_and_phi_to_forty_digits(spec)
    test_zoo.test_the_box_holds_the_lower_solution_and_g_is_convex_there(spec)
    test_zoo.test_stationary_points_and_their_kinds(spec)
    test_zoo.test_there_are_no_other_stationary_points(spec)
    test_zoo.test_constants_bound_every_block_and_are_attained(spec)
    test_zoo.test_every_problem_survives_a_file(spec, folder)


@pytest.mark.slow
def test_the_entry_passes_the_tests_of_the_zoo(in_the_zoo: str, tmp_path: Path) -> None:
    test_zoo.test_every_example_is_complete(in_the_zoo)
    test_zoo.test_examples_are_frozen_values(in_the_zoo)
    zoo_tests(in_the_zoo, tmp_path)
    zoo_tests(f"{in_the_zoo},depth=1/20", tmp_path)
    with pytest.raises(InvalidArgument, match="depth must be positive"):
        zoo.get(in_the_zoo, depth=-1)


x = sp.Symbol("x")


@pytest.mark.parametrize(
    "wrong",
    [
        {"y_star": (-x,)},
        {"phi": x**4 / 4},
        {"stationary_points": (zoo.KnownPoint((sp.Integer(0),), "local minimum"),)},
        {"stationary_points": (zoo.KnownPoint((sp.Integer(0),), "local maximum"),)},
    ],
    ids=["y_star", "phi", "kind", "a point is missing"],
)
def test_a_wrong_answer_does_not_pass(
    in_the_zoo: str, wrong: dict[str, Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(test_zoo.EXAMPLES, in_the_zoo, replace(zoo.get(in_the_zoo), **wrong))
    with pytest.raises(AssertionError):
        zoo_tests(in_the_zoo, tmp_path)


# ---- an estimator and an algorithm ----------------------------------------------------------------------------


def check_reproducible(algorithm: Any, backend: Any) -> None:
    """Each trajectory has the same bits alone and in an ensemble from which others drop out."""
    starts = np.random.default_rng(0).uniform(-1, 1, (19, 2))
    options: dict[str, Any] = {"steps": 40, "stop": lambda state: abs(state.x[0]) > 1.2, "backend": backend}
    together = solve(SADDLE, algorithm, starts, rng=7, **options)
    assert len(set(together.steps.tolist())) > 3, "the trajectories should end at different times"
    for row in (0, 8, 18):
        alone = solve(SADDLE, algorithm, starts[row], rng=together.seed[row], **options)
        assert np.array_equal(alone.trajectory.x, together.trajectory.x[row, : alone.steps + 1])
        assert np.array_equal(alone.counters.HV_g, together.counters.HV_g[row])


@pytest.mark.parametrize("backend", ["tape", "lambdify"])
def test_the_estimator_drives_a_solver(ran: Any, backend: str) -> None:
    estimator = ran("An estimator")["Richardson"](D=3, N=3, tau=0.2)
    check_reproducible(Descent(estimator, eta=0.5), backend)
    longer = Perturbed(estimator, eta=0.1, eps=0.1, r=0.1, T_escape=5, as_printed=True).estimates
    assert longer == replace(estimator, D=4)


@pytest.mark.slow
def test_the_estimator_converges_and_a_wrong_one_does_not(ran: Any, tmp_path: Path) -> None:
    def judge(kind: Any) -> Any:
        return verify.check_hypergradient(
            lambda x, D, N: kind(D, N, 0.2).estimate(SADDLE, x).grad_phi_hat, SADDLE, rng=0
        )

    assert judge(ran("An estimator")["Richardson"]).verdict is Verdict.HOLDS
    wrong = changed("An estimator", tmp_path, ("product(v) - f_y", "product(v) - f_y / 2"))
    assert judge(wrong["Richardson"]).verdict is Verdict.VIOLATED


def changed(name: str, folder: Path, change: tuple[str, str]) -> dict[str, Any]:
    """What the example defines with a planted defect; it prints nothing."""
    path = folder / "changed.py"
    assert EXAMPLES[name].count(change[0]) == 1
    kept = [line for line in EXAMPLES[name].replace(*change).splitlines() if not line.startswith("print(")]
    path.write_text("\n".join(kept), encoding="utf-8")
    return runpy.run_path(str(path))


@pytest.mark.parametrize("backend", ["tape", "lambdify"])
def test_the_algorithm_has_the_same_bits_alone_and_in_an_ensemble(ran: Any, backend: str) -> None:
    check_reproducible(ran("An algorithm")["algorithm"], backend)


@pytest.mark.parametrize(
    "change",
    [
        ("ensemble.streams[member]", "ensemble.streams[0]"),
        ("enumerate(ensemble.active)", "enumerate(range(ensemble.size))"),
    ],
    ids=["one stream for all", "memory by lane"],
)
def test_an_algorithm_that_breaks_the_rules_is_found(tmp_path: Path, change: tuple[str, str]) -> None:
    wrong = changed("An algorithm", tmp_path, change)["algorithm"]
    with pytest.raises(AssertionError, match="array_equal"):
        check_reproducible(wrong, "tape")


@pytest.mark.parametrize(
    ("bad", "message"),
    [("return v", "returned a ndarray"), ("return Solved.sound(v[:1])", r"returned v of shape \(1, 16\)")],
)
def test_a_solve_system_that_returns_something_else_is_told(bad: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match=f"Richardson.solve_system {message}"):
        changed("An estimator", tmp_path, ("return Solved.sound(v)", bad))


@pytest.mark.parametrize(
    ("bad", "message"),
    [("return x", "returned a ndarray"), ("return Move.to(x[:, :1])", r"returned x of shape \(2, 1\)")],
)
def test_a_move_that_returns_something_else_is_told(bad: str, message: str, tmp_path: Path) -> None:
    wrong = changed("An algorithm", tmp_path, ("return Move.to(x)", bad))["algorithm"]
    with pytest.raises(InvalidArgument, match=f"move {message}"):
        solve(SADDLE, wrong, [0.0, 0.0], steps=2)


def test_parameters_of_an_own_algorithm_are_plain_json() -> None:
    @dataclass(frozen=True)
    class Patient(Descent):
        patience: float = math.inf

    run = solve(SADDLE, Patient(AID(D=1, N=1, tau=0.1), 0.1), [0.5, 0.5], steps=1)
    record = json.loads(json.dumps(run.to_dict(), allow_nan=False))
    assert (record["schedule"]["kind"], record["schedule"]["patience"]) == ("Patient", None)


def test_compiled_code_leaves_children_of_known_classes_alone() -> None:
    pytest.importorskip("numba")

    class Otherwise(AID):
        pass

    class Elsewhere(Descent):
        pass

    kernels, right = compile_kernels(SADDLE, backend="compiled"), AID(D=1, N=1, tau=0.1)
    assert isinstance(CompiledRun.of(Descent(right, 0.1), kernels), CompiledRun)
    assert "Otherwise" in str(CompiledRun.of(Descent(Otherwise(D=1, N=1, tau=0.1), 0.1), kernels))
    assert "Elsewhere" in str(CompiledRun.of(Elsewhere(right, 0.1), kernels))


# ---- a claim, an erratum, a defect ----------------------------------------------------------------------------


@pytest.mark.slow
def test_own_claims_stand_beside_registered_ones(ran: Any) -> None:
    own = ran("A claim")
    report = verify.run(own["problem"], claims=["eq:bilevel-grad", own["gradient_bound"], own["gradient_bound"]])
    assert [result.label for result in report.results] == ["eq:bilevel-grad", "own:gradient-bound"]
    assert report["own:gradient-bound"].evidence == "certified"
    alone = verify.run(own["problem"], claims=own["without_implicit_term"])
    assert not alone.ok
    for text in (alone.to_text(), alone.to_markdown(), alone.to_json(), alone._repr_html_()):
        assert "Own statement [own:without-implicit-term]" in text
    assert own["gradient_bound"] not in verify.claims()


def test_a_slip_in_the_arithmetic_of_a_claim_is_named() -> None:
    @verify.claim("own:slip")
    def slip(study: Any) -> Any:
        return 1 // (study.problem.d - study.problem.d)

    result = verify.run(SADDLE, claims=[slip]).results[0]
    assert str(result.verdict) == "INCONCLUSIVE"
    assert result.message.endswith("for float64 (integer division or modulo by zero)")


def test_an_own_label_is_told_to_be_passed_as_a_claim() -> None:
    with pytest.raises(InvalidArgument, match="pass the claim itself"):
        verify.run(SADDLE, claims=["own:x"])


def test_labels_are_the_papers_or_ones_own() -> None:
    with pytest.raises(KeyError, match=r"the paper has no label 'lem:decsent'; .*; one of your own begins with 'own:'"):
        verify.claim("lem:decsent")
    with pytest.raises(KeyError, match="the paper has no label"):
        verify.claim("lem:own:descent")
    with pytest.raises(InvalidArgument, match="no claim is registered for 'own:nothing'"):
        verify.run(SADDLE, claims=["own:nothing"])
    with pytest.raises(InvalidArgument, match="no claim is registered for 3"):
        verify.run(SADDLE, claims=[3])  # type: ignore[list-item]


def test_the_erratum_fails_with_its_forms_exchanged(ran: Any) -> None:
    entry = ran("An erratum")["hessian_is_symmetric"]
    assert isinstance(entry, Erratum)
    other = replace(entry, printed_form=entry.corrected_form, corrected_form=entry.printed_form)
    assert other.check().verdict is Verdict.VIOLATED


@pytest.mark.slow
def test_the_defect_is_one_line(ran: Any, tmp_path: Path) -> None:
    assert ran("A defect")["implicit_term_tripled"].wrong_line.endswith("# defect: 3")
    assert changed("A defect", tmp_path, ("- 3 *", "-"))["result"].verdict is Verdict.HOLDS
