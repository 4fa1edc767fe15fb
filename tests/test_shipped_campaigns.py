"""The campaigns that ship: families with known constants, tasks, what is made of rows, plans, and going on."""

from __future__ import annotations

import csv
import json
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from test_cli import run

import verify
from bilevel_sym import AID, ITD, BilevelProblem, Neumann, solve
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.theories.huang_saddle import experiments
from bilevel_sym.theories.huang_saddle.experiments import complexity, coupled, figure1, real_data
from bilevel_sym.theories.huang_saddle.experiments.campaigns import error, escape, families, shipped, tightness
from verify.statistics import clopper_pearson

pytest.importorskip("pyarrow")
from bilevel_sym.campaigns import Campaign
from bilevel_sym.campaigns.batch import compute

NAMES = ("escape", "tightness", "error")
TASKS = "bilevel_sym.theories.huang_saddle.experiments.campaigns"


# ---- families ------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("method", ["AID", "GDmax"])
def test_the_saddle_and_its_constants(method: str) -> None:
    family = families.saddle_family(method, 16, 3)
    k, c, rng = family.problem.kernels, family.constants, np.random.default_rng(0)
    assert np.linalg.norm(k.grad_phi(np.zeros(3))) == 0
    assert np.linalg.eigvalsh(k.hess_phi(np.zeros(3)))[0] == pytest.approx(-1)
    assert c.kappa == 16
    x = rng.uniform(-families.RADIUS, families.RADIUS, (200, 3))
    y = k.y_star(x)
    values = np.linalg.eigvalsh(k.g_yy(x, y))
    assert c.mu == pytest.approx(values.min())
    assert values.max() <= c.ell
    for block in (k.g_xy(x, y), k.f_yy(x, y), k.f_xx(x, y), k.f_xy(x, y)):
        assert np.linalg.norm(block, 2, axis=(1, 2)).max() <= c.ell
    assert np.abs(np.linalg.eigvalsh(k.hess_phi(x))).max() <= family.L_phi * (1 + 1e-12)
    third = np.abs(k.third_phi(x)[:, 0, 0, 0])
    assert 0.9 < third.max() <= family.rho_phi
    bound, gradient = (c.M_x, k.f_x(x, y)) if method == "GDmax" else (c.M, k.f_y(x, y))  # type: ignore[union-attr]
    assert np.linalg.norm(gradient, axis=1).max() <= bound


@pytest.mark.slow
def test_the_curved_family_is_within_its_constants() -> None:
    family = families.curved(8, 3)
    k, c, rng = family.problem.kernels, family.constants, np.random.default_rng(0)
    x, y = rng.uniform(-2, 2, (500, 3)), rng.uniform(-6, 6, (500, 3))
    values = np.linalg.eigvalsh(k.g_yy(x, y))
    assert c.mu <= values.min() < 1.2 * c.mu
    assert 0.95 < values.max() <= c.ell
    assert np.linalg.norm(k.f_y(x, y), axis=1).max() <= c.M
    parts = (family.problem.f, family.problem.g, family.problem.x, family.problem.y)
    box = dict.fromkeys((*family.problem.x, *family.problem.y), (-1, 1))
    proved = verify.constants(BilevelProblem(*parts, box=box), effort="quick").valid
    assert proved.rho <= 1.01 * c.rho  # an enclosure


def test_a_family_refuses_what_it_is_not_made_for() -> None:
    for bad in (("DA", 4, 2), ("AID", 1, 2), ("AID", 4, 1)):
        with pytest.raises(InvalidArgument, match="method="):
            families.saddle_family(*bad)


# ---- escape --------------------------------------------------------------------------------------------------


def test_escapes_are_escapes_and_their_seeds_count() -> None:
    first, again, other = (escape.escapes("AID", 0.1, 0.1, 4, 3, 20, seed) for seed in (0, 0, 1))
    assert first == again
    assert (first["median"], first["longest"]) != (other["median"], other["longest"])
    assert first["escaped"] == 20
    assert 0 < first["median"] <= first["longest"] < first["T"]
    assert first["late"] == sorted(first["late"])
    assert first["late"][0] == 0
    assert first["late"][-1] == 20  # nobody escapes in a sixty-fourth of T


def test_without_time_nobody_escapes(monkeypatch: pytest.MonkeyPatch) -> None:
    """The count can fail: of runs that are cut after two iterations none has escaped."""
    monkeypatch.setattr(escape, "solve", lambda *a, **k: solve(*a, **(k | {"steps": 2})))
    found = escape.escapes("GDmax", 0.1, 0.1, 4, 3, 20, 0)
    assert (found["escaped"], found["longest"], found["late"][0]) == (0, np.inf, 20)


def test_blocks_are_put_together_with_exact_bounds() -> None:
    late = [0.0] * len(escape.SHARES)
    row = {"method": "AID", "eps": 0.1, "delta": 0.1, "kappa": 2, "d": 2, "runs": 100, "T": 50, "late": late}
    rows = [row | {"escaped": 97, "median": 9.0, "longest": 20.0}, row | {"escaped": 100, "median": 8, "longest": 30}]
    (found,) = escape.choices(rows)
    assert (found.runs, found.escaped, found.median, found.longest) == (200, 197, 9.0, 30)
    assert found.failure == (clopper_pearson(3, 200, 0.99, "lower").lower, clopper_pearson(3, 200, 0.99, "upper").upper)
    assert found.verdict == "at most delta"
    (bad,) = escape.choices([rows[0] | {"escaped": 60}])
    assert bad.verdict == "more"
    (open_,) = escape.choices([rows[0] | {"delta": 0.01}])
    assert open_.verdict == "undecided"


# ---- error ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", error.ESTIMATORS)
def test_errors_are_within_their_bounds_and_fall(name: str) -> None:
    few, many = (error.errors(name, kappa=4, D=D, N=D, n=4, points=20, seed=0) for D in (2, 32))
    for found in (few, many):
        assert not found["exceeds"]
        assert 0 < found["tightness"] < 1
    assert many["error"] < 1e-2 * few["error"]


def test_a_wrong_estimate_exceeds_its_bound(monkeypatch: pytest.MonkeyPatch) -> None:
    """The comparison can fail: one step in place of ninety-six is beyond the lemma on ninety-six."""
    right = error._estimator
    monkeypatch.setattr(error, "_estimator", lambda name, D, N, c: right(name, 1, 1, c))
    assert error.errors("AID", kappa=2, D=96, N=96, n=4, points=5, seed=0)["exceeds"]


def test_each_name_is_its_estimator() -> None:
    c = families.curved(4, 2).constants
    made = {name: error._estimator(name, 3, 5, c) for name in error.ESTIMATORS}
    assert made == {"AID": AID(3, 5, 1.0), "ITD": ITD(3, 1.0), "Neumann": Neumann(5, 1.0, D=3)}
    with pytest.raises(InvalidArgument, match="estimator='CG'"):
        error._estimator("CG", 1, 1, c)


def test_curves_have_the_other_one_at_its_largest() -> None:
    rows = [
        {"estimator": name, "kappa": 2, "D": D, "N": N, "error": D + 10 * N, "bound": 100.0}
        for name in ("AID", "ITD") for D in (1, 2) for N in (1, 4)
    ]  # fmt: skip
    found = {(curve.estimator, curve.axis): (curve.at, curve.error) for curve in error._curves(rows)}
    assert found == {
        ("AID", "D"): ((1, 2), (41, 42)), ("ITD", "D"): ((1, 2), (41, 42)), ("AID", "N"): ((1, 4), (12, 42)),
    }  # fmt: skip


# ---- tightness -----------------------------------------------------------------------------------------------


def test_claims_are_sorted_and_only_what_was_decided_counts() -> None:
    def row(problem: str, tightness_: list[float], verdicts: list[str]) -> dict[str, Any]:
        labels = ["loose", "tight", "identity", "open"]
        bound = [1.0, 1.0, 0.0, 1.0]
        return {"problem": problem, "labels": labels, "verdicts": verdicts, "tightness": tightness_, "bound": bound}

    said = ["HOLDS", "HOLDS", "HOLDS", "INCONCLUSIVE"]
    rows = [
        row("a", [0.1, 0.7, 1.0, 10.0], said), row("b", [0.2, 0.9, 1.0, float("nan")], ["VIOLATED", *said[1:]])
    ]  # fmt: skip
    found = tightness.claims(rows)
    assert [claim.label for claim in found] == ["tight", "loose", "identity", "open"]
    assert found[0].tightness == ((0.9, "b"), (0.7, "a"))
    assert found[1].verdicts == {"HOLDS": 1, "VIOLATED": 1}
    assert found[2].best[1] == found[3].best[1] == ""


def test_the_best_problem_is_kept_where_few_nearly_attain_a_bound() -> None:
    plan = Campaign(task="verify", problems=["generated:3,kind=isotropic"])
    first, second, third = (source.name for source in plan.sources)

    def claim(label: str, *tightness_: float) -> tightness.Claim:
        pairs = zip(tightness_, (second, first, third), strict=True)
        return tightness.Claim(label, tuple(pairs), {"HOLDS": 3})

    found = [claim("lem:a part", 0.98765, 0.2, 0.1), claim("lem:loose", 0.4, 0.1, 0.1), claim("lem:any", 1.0, 1.0, 0.0)]
    found.append(claim("lem:broken", 1.5, 0.9, 0.2))
    other, witness = tomllib.loads(tightness.witnesses(found, plan.sources))["witness"]
    assert (other["source"], other["claims"]) == (first, {"lem:broken": 0.9})  # a problem that breaks it is no witness
    assert witness["claims"] == {"lem:a part": 0.9877}
    assert witness["source"] == second
    kept, made = BilevelProblem.from_toml(witness["problem"]), plan.sources[1].problem()
    assert (kept.name, kept.f, kept.g, kept.box) == ("tight", made.f, made.g, made.box)


# ---- plans ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", NAMES)
def test_the_plans_are_there_and_the_large_one_is_larger(name: str) -> None:
    small, large = (Campaign.load(shipped.plan_path(name, big)) for big in (False, True))
    if name == "tightness":  # to make a thousand problems takes a minute
        assert (small.problems, large.problems[0]) == (
            ("generated:3,kind=spread spectrum+far start+d < n",), "generated:1000"
        )  # fmt: skip
        return
    assert large.count > 4 * small.count
    runs = sum(int(task.columns.get("runs", 0)) for task in large.tasks())
    assert runs >= 100_000 or name == "error"


def small_plan(name: str) -> Campaign:
    if name == "escape":
        return Campaign(
            task=f"{TASKS}.escape:escapes", runs=20, method=["AID", "GDmax"], eps=0.1, delta=[0.1, 0.3], kappa=[2, 4],
            d=2,
        )  # fmt: skip
    if name == "error":
        return Campaign(
            task=f"{TASKS}.error:errors", points=5, n=3, estimator=["AID", "ITD", "Neumann"], kappa=[2, 4],
            D=[1, 4, 8], N=[1, 3],
        )  # fmt: skip
    labels = "pro:bounds,eq:gdrate,unlabelled:y-star-lipschitz,phi-grad"
    return Campaign(task="verify", problems=["zoo:scalar", "zoo:saddle"], claims=labels, effort="quick")


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_a_campaign_is_drawn_written_and_goes_on(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    report = {"escape": escape.report, "error": error.report, "tightness": tightness.report}[name]
    plan = small_plan(name)
    lines = list(report(tmp_path, plan=plan))
    assert lines[0] == f"{plan.count} tasks; rows in {tmp_path / f'{name}-campaign'}"
    written = [f"{name}.png", f"{name}.csv", f"{name}.json", *(["witnesses.toml"] if name == "tightness" else [])]
    assert lines[-len(written) :] == [f"wrote {tmp_path / file}" for file in written]
    record = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
    assert record["schema"] == f"bilevel-sym/{name}/1"
    assert record["parameters"] == {"name": name, "large": False, "plan": plan.to_toml()}
    assert record["findings"] == lines[: -len(written)]
    with (tmp_path / f"{name}.csv").open(encoding="utf-8", newline="") as file:
        table = list(csv.DictReader(file))
    assert table
    if name == "escape":
        assert [row["verdict"] for row in table] == ["undecided", "undecided", "at most delta", "at most delta"] * 2
    before = {row["key"]: row["ended"] for row in Campaign.table(tmp_path / f"{name}-campaign").to_pylist()}
    assert list(report(tmp_path, plan=plan)) == lines
    after = {row["key"]: row["ended"] for row in Campaign.table(tmp_path / f"{name}-campaign").to_pylist()}
    assert after == before  # nothing was computed again


def test_a_campaign_in_which_everything_fails_says_why(tmp_path: Path) -> None:
    plan = Campaign(task=f"{TASKS}.error:errors", points=5, n=3, estimator="CG", kappa=2, D=1, N=1)
    with pytest.raises(BilevelError, match="every task failed, the first one so: InvalidArgument: estimator='CG'"):
        list(error.report(tmp_path, plan=plan))


@pytest.mark.long
@pytest.mark.parametrize("name", NAMES)
def test_the_shipped_plan_in_full(name: str, tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = list(experiments.reproduce(name, tmp_path))
    record = json.loads((tmp_path / f"{name}.json").read_text("utf-8"))
    if name == "escape":
        assert "16000 escapes of 32 choices, of which 0 failed" in lines
        assert lines[2].startswith("the probability of failure is at most delta in 32 choices")
    elif name == "error":
        assert all(": 0 of 144 tasks exceed" in line for line in lines[1:4])
    else:
        assert record["verdicts"]["phi-grad"] == {"HOLDS": 3}
        assert "violated: none" in lines


def test_large_is_for_campaigns_alone(tmp_path: Path) -> None:
    done = run("reproduce", "figure1", "--large", "--out", str(tmp_path / "new"))
    assert (done.returncode, done.stdout) == (2, "")
    assert "figure1 has one size" in done.stderr
    assert "escape, tightness, error" in done.stderr
    assert not (tmp_path / "new").exists()


# ---- figures as plans ----------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "module", [complexity, coupled, figure1, real_data], ids=lambda module: module.__name__.split(".")[-1]
)
def test_a_figure_is_drawn_from_plans_that_run_anywhere(module: Any, tmp_path: Path) -> None:
    """The rows that a run in a folder writes are those from which the figure is drawn."""
    small: dict[Any, Any] = {
        complexity: complexity.Settings(d=2, accuracies=(0.1,), conditions=(2, 3), kappa=2, eps=0.1, seeds=2),
        coupled: coupled.Settings(d=2, kappa=4.0, inner=(1, 20), products=(2,), steps=20, seeds=2),
        figure1: figure1.Settings(dimensions=(2,), curvatures=(1.0, 2.0), steps=20, seeds=2),
        real_data: real_data.Settings(cases=(("feature_scales,rows=40", 1e-2, 40),)),
    }
    plans = [figure1.plan(small[module])] if module is figure1 else module.plans(small[module])
    for k, (plan, here) in enumerate(zip(plans, shipped.rows_here("figure", plans), strict=True)):
        plan.run(tmp_path / str(k), workers=0)
        written = plan.table(tmp_path / str(k)).to_pylist()
        assert len(written) == plan.count == len(here)
        for stored, row in zip(written, here, strict=True):
            assert stored["status"] == "ok"
            for name, value in row.items():
                np.testing.assert_array_equal(stored[name], value)


def test_equal_tasks_of_two_plans_are_computed_once(monkeypatch: pytest.MonkeyPatch) -> None:
    calls: list[Any] = []

    def noted(*given: Any) -> Any:
        calls.append(given)
        return compute(*given)

    monkeypatch.setattr(shipped, "compute", noted)
    settings = complexity.Settings(d=2, accuracies=(0.1,), conditions=(2, 3), kappa=2, eps=0.1, seeds=2)
    by_eps, by_kappa = shipped.rows_here("figure3", complexity.plans(settings))
    assert by_eps == by_kappa[:1]
    assert len(calls) == 2


def test_figures_need_no_pyarrow() -> None:
    code = (
        "import sys\nsys.modules['pyarrow'] = None\n"
        "from bilevel_sym.theories.huang_saddle.experiments import complexity\n"
        "settings = complexity.Settings(d=2, accuracies=(0.1,), conditions=(2,), kappa=2, eps=0.1, seeds=2)\n"
        "print(complexity.compute(settings).by_eps[0].checked)\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout, done.stderr) == (0, "2\n", "")
