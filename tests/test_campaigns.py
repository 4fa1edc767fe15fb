"""Campaigns in one process: plans, keys, rows, folders, tables."""

from __future__ import annotations

import io
import os
import re
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from full_disk import files_of_at_most

from bilevel_sym import AID, BilevelProblem, Descent, Exact, Solution, zoo
from bilevel_sym.campaigns import Campaign
from bilevel_sym.campaigns.batch import MEASURED, run_batch
from bilevel_sym.campaigns.results.store import Store
from bilevel_sym.errors import BilevelError, CannotWrite, InvalidArgument
from bilevel_sym.system.locking import locked

pa = pytest.importorskip("pyarrow")

NOBODY = 65534

SOLVE: dict[str, Any] = {
    "task": "solve",
    "problems": ["zoo:scalar", "zoo:saddle,d=2"],
    "algorithms": ["descent", "perturbed-aid"],
    "steps": 12,
}


def plain(table: Any) -> list[dict[str, Any]]:
    """The rows without what differs from run to run."""
    return table.drop_columns(list(MEASURED)).to_pylist()  # type: ignore[no-any-return]


def same(one: Any, other: Any) -> bool:
    """Bit by bit, types and nulls included."""
    return bool(
        one.drop_columns(list(MEASURED)).combine_chunks().equals(other.drop_columns(list(MEASURED)).combine_chunks())
    )


def rows_of(plan: Campaign, sizes: list[int]) -> list[dict[str, Any]]:
    """Rows computed in batches of these sizes, with nothing kept from before."""
    tasks, rows, context = list(plan.tasks()), list[dict[str, Any]](), Campaign(**_again(plan)).context
    for size in sizes:
        part, tasks = tasks[:size], tasks[size:]
        rows += run_batch(context, part, seconds=1e9)
    return [{name: value for name, value in row.items() if name not in MEASURED} for row in rows]


def _again(plan: Campaign) -> dict[str, Any]:
    return {
        "task": plan.task,
        "problems": plan.problems,
        "algorithms": plan.algorithms or None,
        "seeds": plan.seeds,
        **plan.parameters,
    }


# ---- plans ------------------------------------------------------------------------------------------------


def test_tasks_are_the_product_in_the_order_of_the_plan() -> None:
    plan = Campaign(**SOLVE, seeds=[5, 3], eps=[1e-2, 1e-3])
    tasks = list(plan.tasks())
    assert plan.count == len(tasks) == 16
    assert [task.seed for task in tasks[:4]] == [5, 3, 5, 3]
    assert [dict(task.cell.parameters)["eps"] for task in tasks[:5]] == [1e-2, 1e-2, 1e-3, 1e-3, 1e-2]
    assert len({task.key for task in tasks}) == 16


def test_keys_are_of_the_content_and_of_nothing_else() -> None:
    def key(**changed: Any) -> str:
        given: dict[str, Any] = {
            "task": "solve",
            "problems": ["zoo:scalar"],
            "algorithms": ["descent"],
            "seeds": [1],
            "steps": 12,
        }
        return next(Campaign(**(given | changed)).tasks()).key

    assert key() == key(problems=[zoo.get("scalar").problem]) == key(seeds=[1, 2])
    others: list[dict[str, Any]] = [
        {"steps": 13},
        {"steps": 12.0},
        {"seeds": [2]},
        {"algorithms": ["perturbed-aid"]},
        {"problems": ["zoo:ridge"]},
        {"eta": 0.1},
    ]
    assert len({key(), *(key(**other) for other in others)}) == len(others) + 1


def test_the_order_of_parameters_does_not_count_for_keys() -> None:
    one, other = (Campaign(task="campaign_tasks:shifted", problems=["zoo:scalar"], seeds=2) for _ in range(2))
    assert [t.key for t in one.tasks()] == [t.key for t in other.tasks()]
    first = Campaign(**SOLVE, eps=0.1, eta=0.2)
    last = Campaign(**SOLVE, eta=0.2, eps=0.1)
    assert {t.key for t in first.tasks()} == {t.key for t in last.tasks()}


def test_versions_that_matter_are_content(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Campaign(**SOLVE)
    before = next(plan.tasks()).key
    monkeypatch.setattr("bilevel_sym.campaigns.content.__version__", "9.9")
    assert next(plan.tasks()).key != before


def test_a_function_that_changes_is_computed_anew(tmp_path: Path) -> None:
    module = tmp_path / "study_of_mine.py"
    keys = []
    for factor in (1, 2):
        module.write_text(f"def measure(seed):\n    return {factor} * seed\n", encoding="utf-8")
        keys.append(next(Campaign(task="study_of_mine:measure", problems=["zoo:scalar"], folder=tmp_path).tasks()).key)
    assert keys[0] != keys[1]


REFUSED: dict[str, tuple[dict[str, Any], str]] = {
    "task": ({"task": "slove"}, "did you mean solve"),
    "no problems": ({"problems": []}, "problems is empty"),
    "a problem that is one text": ({"problems": "zoo:scalar"}, "is no list"),
    "a problem of the zoo": ({"problems": ["zoo:scalr"]}, "scalar"),
    "a file": ({"problems": ["nosuch.toml"]}, "there is no file"),
    "a number as problem": ({"problems": [3]}, "is no problem"),
    "generated": ({"problems": ["generated:ten"]}, "is not understood"),
    "generated by a seed": ({"problems": ["generated:10,seed=x"]}, "the seed"),
    "algorithm": ({"algorithms": ["decsent"]}, "did you mean descent"),
    "an algorithm twice": ({"algorithms": ["descent", "descent"]}, "twice"),
    "an algorithm's class": ({"algorithms": [Descent]}, "is no algorithm"),
    "estimator": ({"estimator": "adi"}, "did you mean aid"),
    "parameter": ({"stepz": 3}, "did you mean steps"),
    "empty grid": ({"steps": []}, "steps is an empty list"),
    "a value twice": ({"steps": [3, 3]}, "twice"),
    "nan": ({"eta": float("nan")}, "eta=nan"),
    "nested": ({"eta": [[0.1]]}, "eta="),
    "a control character": ({"x0": "x=1\x1b[2J"}, "x0="),
    "seeds": ({"seeds": -1}, "seeds=-1"),
    "seeds that are none": ({"seeds": True}, "seeds=True"),
    "a seed twice": ({"seeds": [1, 1]}, "twice"),
    "a draw": ({"eta": {"draw": "unifrom", "low": 0, "high": 1, "count": 2, "seed": 0}}, "no random list"),
    "a draw without a seed": ({"eta": {"draw": "uniform", "low": 0, "high": 1, "count": 2}}, "no random list"),
    "a draw upside down": ({"eta": {"draw": "uniform", "low": 1, "high": 0, "count": 2, "seed": 0}}, "low=1"),
    "a column": ({"status": 3}, "column"),
}


@pytest.mark.parametrize("what", REFUSED)
def test_a_plan_that_makes_no_sense_is_refused(what: str) -> None:
    given, said = REFUSED[what]
    with pytest.raises(BilevelError, match=said):
        list(Campaign(**({"task": "solve", "problems": ["zoo:scalar"]} | given)).tasks())


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({"task": "constants", "seeds": 3}, "no random numbers"),
        ({"task": "constants", "algorithms": ["descent"]}, "no algorithms"),
        ({"task": "constants", "split": 0}, "split=0"),
        ({"task": "constants", "eta": 1}, "no parameter"),
        ({"task": "check"}, "wants function"),
        ({"task": "nosuch:thing"}, "no module"),
        ({"task": "campaign_tasks:nmuber"}, "did you mean number"),
        ({"task": "campaign_tasks:number", "width": 1}, "no parameter"),
        ({"algorithms": [Descent(Exact(), 0.1)], "eta": 0.2}, "given whole"),
    ],
)  # fmt: skip
def test_what_a_kind_does_not_take_is_refused(given: dict[str, Any], said: str) -> None:
    with pytest.raises(InvalidArgument, match=said):
        Campaign(**({"problems": ["zoo:scalar"]} | given))


def test_random_lists_are_fixed_by_their_seed() -> None:
    def drawn(draw: str, seed: int, low: float = 0.5, high: float = 20) -> tuple[Any, ...]:
        given = {"draw": draw, "low": low, "high": high, "count": 8, "seed": seed}
        return Campaign(task="solve", problems=["zoo:scalar"], eps=given).parameters["eps"]

    assert drawn("uniform", 0) == drawn("uniform", 0) != drawn("uniform", 1)
    assert all(0.5 <= value <= 20 for value in (*drawn("uniform", 3), *drawn("loguniform", 3)))
    assert np.median(drawn("loguniform", 5, 1e-6, 1.0)) < 1e-1
    assert {type(value) for value in drawn("integers", 0, 1, 9)} == {int}
    # for ever: a plan that is run again next year is the same plan
    assert drawn("uniform", 0)[:2] == (12.92075290276836, 5.760840918395471)


def test_a_plan_in_a_file_is_the_same_plan(tmp_path: Path) -> None:
    zoo.get("scalar").problem.save(tmp_path / "mine.toml")
    text = """
    [campaign]
    task = "solve"
    problems = ["mine.toml", "zoo:saddle,d=2"]
    algorithms = ["descent"]
    seeds = 3
    steps = [5, 6]
    eta = {draw = "loguniform", low = 1e-3, high = 1e-1, count = 2, seed = 4}
    """
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    plan = Campaign.load(tmp_path / "plan.toml")
    assert plan.count == 24
    (tmp_path / "again.toml").write_text(plan.to_toml(), encoding="utf-8")
    assert [t.key for t in Campaign.load(tmp_path / "again.toml").tasks()] == [t.key for t in plan.tasks()]
    assert tomllib.loads(plan.to_toml())["campaign"]["problems"] == ["mine.toml", "zoo:saddle,d=2"]


@pytest.mark.parametrize(
    "text", ["", "task = 3", "[campaign", "[other]\n", "[campaign]\ntask='solve'\nproblems=['zoo:scalar']\nfolder='/'\n", "\x00", "[campaign]\n[x]\n"]
)  # fmt: skip
def test_a_file_that_is_no_plan_is_refused(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.toml").write_text(text, encoding="utf-8")
    with pytest.raises(InvalidArgument):
        Campaign.load(tmp_path / "plan.toml")
    with pytest.raises(InvalidArgument, match="cannot be read"):
        Campaign.load(tmp_path / "no_such.toml")


# ---- rows -------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("problem", ["zoo:saddle,d=2", "array", "zoo:scalar"])
def test_an_ensemble_in_pieces_has_the_same_bits(problem: str) -> None:
    random = np.random.default_rng(0)
    data = {"A": random.normal(size=(30, 3)), "b": random.normal(size=30)}
    ridge = BilevelProblem("sum((A @ y - b)**2)/30", "sum((A @ y - b)**2)/30 + exp(x)*(y @ y)", "x", "y[n]", data=data)
    plan = Campaign(
        task="solve",
        problems=[ridge if problem == "array" else problem],
        algorithms=["perturbed-aid"],
        seeds=21,
        steps=25,
    )
    whole = rows_of(plan, [21])
    assert {row["status"] for row in whole} == {"ok"}
    assert rows_of(plan, [1, 2, 17, 1]) == whole
    assert rows_of(plan, [1] * 5) == whole[:5]


def test_a_function_of_ones_own_is_a_task(tmp_path: Path) -> None:
    plan = Campaign(task="campaign_tasks:shifted", problems=["zoo:scalar"], seeds=[4, 7], width=[1.0, 2.5])
    plan.run(tmp_path, workers=0)
    rows = plain(plan.table(tmp_path))
    assert [(row["width"], row["seed"], row["total"], row["half"], row["even"], row["width_result"]) for row in rows] == [
        (1.0, 4, 5, 2.0, True, 1.0), (1.0, 7, 8, 3.5, False, 1.0), (2.5, 4, 5, 2.0, True, 2.5), (2.5, 7, 8, 3.5, False, 2.5),
    ]  # fmt: skip
    assert rows[0]["path"] == [0.5, 4.0]
    assert rows[0]["name"] == "scalar"


def test_failures_are_rows_with_code_that_fails_the_same_way(tmp_path: Path) -> None:
    plan = Campaign(task="campaign_tasks:failing", problems=["zoo:scalar"], seeds=4)
    status = plan.run(tmp_path, workers=0)
    assert (status.done, status.failed, status.left) == (4, 2, 0)
    rows = plan.table(tmp_path).to_pylist()
    assert [row["status"] for row in rows] == ["ok", "failed", "failed", "ok"]
    assert rows[1]["message"] == "ZeroDivisionError: seed 1\\x1b[2J cannot be divided"
    assert rows[2]["message"] == "SystemExit: leaving"
    assert rows[0]["code"] is None
    with pytest.raises(ZeroDivisionError, match="seed 1"):
        exec(rows[1]["code"], {})


@pytest.mark.parametrize("problem", ["zoo:scalar", "object", "file", "generated:1,kind=isotropic"])
def test_the_code_of_a_failure_knows_the_problem(tmp_path: Path, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    toy = BilevelProblem("log(x)*y", "y**2/2 - x*y", "x", "y", name="toy")
    toy.save(tmp_path / "mine.toml")
    given: Any = {"object": toy, "file": "mine.toml"}.get(problem, problem)
    plan = Campaign(task="solve", problems=[given], algorithms=["perturbed-gdmax"], steps=5, folder=tmp_path)
    plan.run(tmp_path / "out", workers=0)
    (row,) = plan.table(tmp_path / "out").to_pylist()
    assert row["message"].startswith("InvalidArgument: perturbed-gdmax is for minimax problems")
    with pytest.raises(InvalidArgument, match="minimax"):
        exec(row["code"], {})


def test_an_ensemble_that_fails_fails_seed_by_seed(tmp_path: Path) -> None:
    plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=["descent"], seeds=3, x0=["x=0", "z=1"])
    assert plan.run(tmp_path, workers=0).failed == 3
    rows = plain(plan.table(tmp_path))
    assert [row["status"] for row in rows] == ["ok"] * 3 + ["failed"] * 3
    assert "x0='z=1'" in rows[5]["message"]


def test_what_is_no_plain_value_is_a_failure(tmp_path: Path) -> None:
    plan = Campaign(task="campaign_tasks:odd", problems=["zoo:scalar"])
    plan.run(tmp_path, workers=0)
    assert "campaign_tasks:odd returned value=<object" in plan.table(tmp_path).column("message")[0].as_py()


def test_algorithms_may_be_objects(tmp_path: Path) -> None:
    algorithms = [Descent(AID(D=3, N=1, tau=0.2), eta=eta) for eta in (0.1, 0.2)]
    plan = Campaign(task="solve", problems=["zoo:scalar"], algorithms=algorithms, steps=5)
    plan.run(tmp_path, workers=0)
    named = plan.table(tmp_path).column("algorithm").to_pylist()
    assert named == [repr(algorithm) for algorithm in algorithms]
    from bilevel_sym import solve

    alone = solve(
        plan.sources[0].problem(),
        algorithms[1],
        np.atleast_2d(plain(plan.table(tmp_path))[0]["x"]) * 0,
        steps=5,
        rng=[0],
    )
    assert alone.x.shape == (1, 1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("given", "column", "least"),
    [
        ({"task": "verify", "claims": "lem:descent", "effort": "quick"}, "holds", 1),
        ({"task": "check", "function": "campaign_tasks_check:right", "effort": "quick"}, "digits", 8),
        ({"task": "smoothness", "effort": "quick"}, "L_phi_upper", 0.1),
        ({"task": "stationary_points", "effort": "quick"}, "found", 1),
        ({"task": "constants", "effort": "quick"}, "mu_lower", 0.1),
    ],
)  # fmt: skip
def test_every_kind_has_rows(given: dict[str, Any], column: str, least: float, tmp_path: Path) -> None:
    code = "import numpy as np\ndef right(problem, x):\n    return problem.kernels.grad_phi(x)\n"
    (tmp_path / "campaign_tasks_check.py").write_text(code, encoding="utf-8")
    plan = Campaign(**given, problems=["zoo:scalar"], folder=tmp_path)
    plan.run(tmp_path / "out", workers=0)
    (row,) = plain(plan.table(tmp_path / "out"))
    assert row["status"] == "ok", row["message"]
    assert row[column] >= least


@pytest.mark.slow
def test_generated_problems_are_problems_of_their_own(tmp_path: Path) -> None:
    plan = Campaign(task="solve", problems=["generated:3,seed=2,kind=isotropic+d < n"], algorithms=["descent"], steps=3)
    plan.run(tmp_path, workers=0)
    table = plan.table(tmp_path)
    names = ["generated:isotropic-0-seed2", "generated:d<n-0-seed2", "generated:isotropic-1-seed2"]
    assert table.column("problem").to_pylist() == names
    assert set(table.column("status").to_pylist()) == {"ok"}


# ---- brackets ---------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_brackets_of_pieces_are_those_of_the_box(tmp_path: Path) -> None:
    import verify

    problem = zoo.get("scalar").problem
    whole = verify.constants(problem, effort="default").brackets
    plan = Campaign(task="constants", problems=[problem], split=[1, 3, 4], effort="quick")
    plan.run(tmp_path, workers=0)
    found = plan.merged(tmp_path)
    assert [each.pieces for each in found] == [1, 3, 4]
    for each in found:
        for name, bracket in whole.items():
            low, high = each.brackets[name]
            assert low <= bracket.upper, name
            assert bracket.lower <= high, name
    finest = found[-1].brackets["ell"]
    assert finest[1] <= found[0].brackets["ell"][1]


def test_brackets_of_pieces_contain_what_is_known(tmp_path: Path) -> None:
    """mu is the smallest of 2 + cos(x), at an end; M the largest |f_y| = 3."""
    toy = BilevelProblem("x*y", "(2 + cos(x))*y**2/2 - x*y", "x", "y", box={"x": (0, 3), "y": (-1, 1)})
    plan = Campaign(task="constants", problems=[toy], split=5, effort="quick", rtol=1e-3)
    plan.run(tmp_path, workers=0)
    (found,) = plan.merged(tmp_path)
    low, high = found.brackets["mu"]
    assert low <= 2 + np.cos(3.0) <= high <= 1.02
    low, high = found.brackets["M"]
    assert low <= 3 <= high <= 3.01


def test_brackets_of_missing_pieces_are_refused(tmp_path: Path) -> None:
    plan = Campaign(task="constants", problems=["zoo:scalar"], split=2, effort="quick")
    plan.run(tmp_path, workers=0)
    assert plan.merged(tmp_path)[0].brackets["mu"][0] > 0
    store = Store(tmp_path)
    kept = store.read().slice(0, 1)
    for path in store.parts():
        path.unlink()
    store._put(kept)
    with pytest.raises(InvalidArgument, match="1 of 2 pieces have no brackets"):
        plan.merged(tmp_path)


def test_pieces_cover_the_box_and_are_of_their_number_alone() -> None:
    from bilevel_sym.campaigns.kinds.pieces import piece_of

    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", box={"x": (-1, 3), "y": (0, 1)})
    for y in (True, False):
        for split in (1, 2, 3, 5, 8):
            pieces = [piece_of(problem, split, k, y=y) for k in range(split)]
            assert sum((p["x"][1] - p["x"][0]) * (p["y"][1] - p["y"][0]) for p in pieces) == 4
            assert len({(p["x"], p["y"]) for p in pieces}) == split
            assert y or all(p["y"] == (0, 1) for p in pieces)


# ---- the folder -------------------------------------------------------------------------------------------


def test_a_key_is_never_computed_twice(tmp_path: Path) -> None:
    log = tmp_path / "log"
    given: dict[str, Any] = {"task": "campaign_tasks:noted", "log": str(log)}
    problem = zoo.get("scalar").problem
    plan = Campaign(problems=["zoo:scalar"], seeds=5, **given)
    assert plan.run(tmp_path / "out", workers=0).computed == 5
    assert plan.run(tmp_path / "out", workers=0).computed == 0
    # the same content under two names, and a plan that has grown
    grown = Campaign(problems=["zoo:scalar", problem], seeds=8, **given)
    assert grown.run(tmp_path / "out", workers=0).computed == 3
    assert sorted(int(line.split()[0]) for line in log.read_text().splitlines()) == list(range(8))
    assert grown.table(tmp_path / "out").column("seed").to_pylist() == list(range(8))


def test_a_changed_plan_computes_what_is_new_and_shows_what_is_its_own(tmp_path: Path) -> None:
    small, other = (
        Campaign(task="campaign_tasks:shifted", problems=["zoo:scalar"], seeds=2, width=w) for w in ([1, 2], [3, 1])
    )
    small.run(tmp_path, workers=0)
    assert other.run(tmp_path, workers=0).computed == 2
    assert [row["width"] for row in plain(other.table(tmp_path))] == [3, 3, 1, 1]
    assert len(other.table(tmp_path, all_plans=True)) == 6
    assert Campaign.status(tmp_path).total == 4


def test_an_interrupted_run_goes_on_to_the_same_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = Campaign(task="campaign_tasks:shifted", problems=["zoo:scalar", "zoo:ridge"], seeds=9, width=[0.5, 2.0])
    plan.run(tmp_path / "whole", workers=0)
    from bilevel_sym.campaigns.engines import protocol

    computed = run_batch
    calls: list[int] = []

    def stops(*given: Any) -> Any:
        calls.append(1)
        if len(calls) == 3:
            raise KeyboardInterrupt
        return computed(*given)

    monkeypatch.setattr(protocol, "run_batch", stops)
    with pytest.raises(KeyboardInterrupt):
        plan.run(tmp_path / "cut", workers=0)
    done = plan.status(tmp_path / "cut").done
    assert 0 < done < 36
    assert plan.run(tmp_path / "cut", workers=0).computed == 36 - done
    assert same(plan.table(tmp_path / "whole"), plan.table(tmp_path / "cut"))


def test_ctrl_c_inside_a_task_keeps_what_is_done(tmp_path: Path) -> None:
    plan = Campaign(task="campaign_tasks:interrupting", problems=["zoo:scalar", "zoo:ridge"], seeds=[0, 3])
    with pytest.raises(KeyboardInterrupt):
        plan.run(tmp_path, workers=0)
    assert Campaign.status(tmp_path).running is None


def test_an_interrupt_that_a_task_swallows_still_ends_the_run(tmp_path: Path) -> None:
    """Searches and solvers return what they have: a row of that would stand for the whole."""
    plan = Campaign(task="campaign_tasks:swallowing", problems=["zoo:scalar"], seeds=3)
    with pytest.raises(KeyboardInterrupt):
        plan.run(tmp_path, workers=0)
    assert plan.status(tmp_path).done == 0


@pytest.mark.parametrize("sizes", [[1] * 12, [12], [5, 7], [2, 3, 4, 3]])
def test_the_table_does_not_know_in_which_parts_rows_came(tmp_path: Path, sizes: list[int]) -> None:
    tables = []
    for name, cut in (("one", [12]), ("other", sizes)):
        plan = Campaign(task="campaign_tasks:mixed", problems=["zoo:scalar"], seeds=12)
        plan.run(tmp_path / name, workers=0)
        store = Store(tmp_path / name)
        rows = [{k: v for k, v in row.items() if k != "value"} for row in store.read().to_pylist()]
        for path in store.parts():
            path.unlink()
        from campaign_tasks import mixed

        for row in rows:
            row["value"] = mixed(row["seed"])
        while cut:
            store.add(rows[: cut[0]])
            rows, cut = rows[cut[0] :], cut[1:]
        tables.append(plan.table(tmp_path / name))
        store.join()
        assert len(store.parts()) == 1
        assert same(tables[-1], plan.table(tmp_path / name))
    assert same(*tables)
    assert tables[0].column("value").to_pylist()[:6] == ["1", "0.5", "text", None, "True", "2"]


def test_empty_lists_go_together_with_full_ones(tmp_path: Path) -> None:
    plan = Campaign(task="campaign_tasks:lists", problems=["zoo:scalar"], seeds=3)
    plan.run(tmp_path, workers=0)
    store = Store(tmp_path)
    rows = store.read().to_pylist()
    for path in store.parts():
        path.unlink()
    for row in rows:
        store.add([row])
    table = plan.table(tmp_path)
    assert table.column("numbers").to_pylist() == [[], [0.0], [0.0, 1.0]]
    assert table.column("texts").to_pylist() == [[], ["a"], ["a", "a"]]


def test_torn_and_foreign_files_break_nothing(tmp_path: Path) -> None:
    plan = Campaign(task="campaign_tasks:number", problems=["zoo:scalar"], seeds=4)
    plan.run(tmp_path, workers=0)
    whole = plan.table(tmp_path)
    parts = tmp_path / "parts"
    (part,) = parts.iterdir()
    (parts / "part-000777.parquet").write_bytes(part.read_bytes()[:300])
    (parts / "part-000778.parquet").write_bytes(b"")
    (parts / "notes.txt").write_text("mine", encoding="utf-8")
    (parts / ".part-000779.parquet.0123456789abcdef.partial").write_bytes(b"PAR1")
    pa.parquet.write_table(pa.table({"other": [1]}), parts / "part-000780.parquet")
    (parts / "part-000781.parquet").write_bytes(part.read_bytes())  # every row twice
    assert same(plan.table(tmp_path), whole)
    status = plan.status(tmp_path)
    assert (status.done, status.unreadable) == (4, 2)
    assert "2 files" in str(status)
    more = Campaign(task="campaign_tasks:number", problems=["zoo:scalar"], seeds=6)
    assert more.run(tmp_path, workers=0).computed == 2
    assert not list(parts.glob(".*.partial"))
    assert len(more.table(tmp_path)) == 6


def test_a_folder_has_one_run_at_a_time(tmp_path: Path) -> None:
    plan = Campaign(task="campaign_tasks:number", problems=["zoo:scalar"], seeds=2)
    with locked(tmp_path), pytest.raises(InvalidArgument, match=rf"in use by process {os.getpid()}\b"):
        plan.run(tmp_path, workers=0)
    assert plan.run(tmp_path, workers=0).done == 2
    with locked(tmp_path):
        assert plan.status(tmp_path).running == os.getpid()
    assert plan.status(tmp_path).running is None


def test_a_full_disk_is_one_error_and_rows_stay(tmp_path: Path) -> None:
    plan = Campaign(task="campaign_tasks:number", problems=["zoo:scalar"], seeds=3)
    plan.run(tmp_path, workers=0)
    before = plan.table(tmp_path)
    more = Campaign(task="campaign_tasks:number", problems=["zoo:scalar"], seeds=2000)
    largest = max(path.stat().st_size for path in (tmp_path / "parts").iterdir())
    with files_of_at_most(largest - 100), pytest.raises(CannotWrite, match="larger than files may be"):
        more.run(tmp_path, workers=0)
    assert same(plan.table(tmp_path, all_plans=True).slice(0, 3), before)
    assert plan.status(tmp_path).running is None
    assert more.run(tmp_path, workers=0).done == 2000


@contextmanager
def folder_of_a_user() -> Iterator[Path]:
    """A folder of somebody to whom permissions mean something: root may write everywhere, and is nobody for a while."""
    with tempfile.TemporaryDirectory() as made:
        user = os.geteuid()
        if user == 0:
            os.chown(made, NOBODY, NOBODY)
            os.seteuid(NOBODY)
        try:
            yield Path(made)
        finally:
            os.seteuid(user)


def test_a_folder_that_cannot_be_written_is_one_error() -> None:
    plan = Campaign(task="campaign_tasks:number", problems=["zoo:scalar"], seeds=3)
    with folder_of_a_user() as out:
        plan.run(out, workers=0)
        (out / "parts").chmod(0o555)
        with pytest.raises(CannotWrite, match="permission denied"):
            Campaign(task="campaign_tasks:number", problems=["zoo:scalar"], seeds=4).run(out, workers=0)
        assert len(plan.table(out, all_plans=True)) == 3
        (out / "parts").chmod(0o755)


def test_a_folder_that_is_a_file_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "out").write_text("mine", encoding="utf-8")
    plan = Campaign(task="campaign_tasks:number", problems=["zoo:scalar"])
    with pytest.raises(CannotWrite):
        plan.run(tmp_path / "out", workers=0)
    with pytest.raises(InvalidArgument, match="holds no campaign"):
        plan.table(tmp_path / "out")


@pytest.mark.parametrize(("package", "problem"), [("pyarrow", "zoo:scalar"), ("hypothesis", "generated:2")])
def test_what_is_not_installed_is_named(package: str, problem: str, tmp_path: Path) -> None:
    code = f"import sys; sys.modules[{package!r}] = None\nfrom bilevel_sym.campaigns import Campaign\n"
    code += f"try:\n    Campaign(task='solve', problems=[{problem!r}]).run({str(tmp_path)!r}, workers=0)\n"
    code += "except Exception as error:\n    print(type(error).__name__, error)"
    said = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout
    assert said.startswith("InvalidArgument ")
    assert package in said
    assert 'try: pip install "bilevel-sym[' in said


def test_progress_is_silent_in_a_pipe(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    Campaign(task="campaign_tasks:sleeping", problems=["zoo:scalar"], pause=0.5).run(tmp_path, progress=True, workers=0)
    assert capfd.readouterr() == ("", "")


def test_progress_in_a_terminal_tells_rate_and_failures(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stream = io.StringIO()
    stream.isatty = lambda: True  # type: ignore[method-assign]
    monkeypatch.setattr(sys, "stderr", stream)
    plan = Campaign(task="campaign_tasks:slow_failure", problems=["zoo:scalar", "zoo:ridge"], seeds=3)
    plan.run(tmp_path, progress=True, workers=0)
    assert re.search(r"campaign: [1-5]/6 \(\d+ %\), [\d.]+ a second, \d+ s left, [1-5] failed", stream.getvalue())


def test_a_forecast_counts_what_is_new(tmp_path: Path) -> None:
    small, large = (Campaign(task="campaign_tasks:number", problems=["zoo:scalar"], seeds=n) for n in (3, 50))
    small.run(tmp_path, workers=0)
    forecast = large.foresee(tmp_path, workers=1)
    assert (forecast.total, forecast.new) == (50, 47)
    assert 0 < forecast.tried <= 47
    assert str(forecast).startswith("50 tasks, 47 of them new; about ")
    assert small.foresee(tmp_path).seconds is None
    assert small.status(tmp_path).total == 3


# ---- filters ----------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def filtered(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("filtered")
    Campaign(task="campaign_tasks:failing", problems=["zoo:scalar"], seeds=9).run(folder, workers=0)
    return folder


@pytest.mark.parametrize(
    ("where", "seeds"),
    [
        ('status == "ok"', [0, 3, 6]),
        ('status != "ok" and seed < 5', [1, 2, 4]),
        ("seed >= 6 or seed == 0", [0, 6, 7, 8]),
        ("not (2 <= seed < 8)", [0, 1, 8]),
        ("seed in [1, 2, 40]", [1, 2]),
        ("seed not in (0, 1, 2, 3, 4, 5, 6)", [7, 8]),
        ("value > -1", [0, 3, 6]),
        ("value == None", [1, 2, 4, 5, 7, 8]),
        ("value < 0.5e1 and not status == 'failed'", [0, 3]),
        ("seed == value", [0, 3, 6]),
    ],
)  # fmt: skip
def test_a_filter_chooses_rows(filtered: Path, where: str, seeds: list[int]) -> None:
    assert Campaign.table(filtered, where=where).column("seed").to_pylist() == seeds


@pytest.mark.parametrize(
    "where",
    [
        "", " ", "status", "1", "1 == 1", "__import__('os').system('true')", "status.__class__ == 1", "(lambda: 1)() == 1", "[s for s in seed]",
        "seed == 1 if seed else 2", "seed[0] == 1", "f'{seed}' == '1'", "seed := 3", "seed is 3", "seed ** 99999999 > 1", "seed + 1 == 2",
        "nosuch == 3", "seed == 'a'", "seed < b'x'", "seed == 1j", "seed == ...", "-'a' == status", "seed == -True", "(" * 300 + "seed" + ")" * 300 + ">1",
        "not " * 240 + "seed == 1 1", "seed == 1; seed == 2", "\x00", "seed == 1\nseed", "a" * 1001, "seed == \ud800", "seed in []", "seed in seed", "seed < None", "await seed",
        "key == open('x')",
    ],
)  # fmt: skip
def test_hostile_filters_are_refused(filtered: Path, where: str) -> None:
    with pytest.raises(InvalidArgument):
        Campaign.table(filtered, where=where)


# ---- solutions --------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("record", ["all", "last"])
@pytest.mark.parametrize("algorithm", ["perturbed-aid", "descent"])
def test_parts_of_a_solution_are_the_whole(record: Any, algorithm: str) -> None:
    from bilevel_sym import LocalMinimum, solve
    from bilevel_sym.solvers.named import algorithm_for

    problem = zoo.get("saddle", d=2).problem
    random = np.random.default_rng(1)
    x0 = np.concatenate([np.zeros((3, 2)), random.normal(size=(4, 2)), np.full((1, 2), 1e200)])
    made = algorithm_for(problem, algorithm, eps=1e-2, x0=x0[0])

    def run(rows: slice) -> Solution:
        return solve(
            problem, made, x0[rows], steps=60, rng=list(range(8))[rows], record=record, stop=LocalMinimum(1e-2)
        )

    whole, joined = run(slice(None)), Solution.concatenate([run(slice(0, 1)), run(slice(1, 6)), run(slice(6, 8))])
    assert len({int(k) for k in whole.steps}) > 1  # some ended earlier than others
    first, second = (_bits(solution) for solution in (whole, joined))
    assert first == second


def _bits(solution: Solution) -> dict[str, Any]:
    told = {name: np.asarray(getattr(solution, name)) for name in ("x", "y", "steps", "grad_phi_hat", "phi_hat", "phi")}
    told |= {f"best {name}": np.asarray(getattr(solution.best, name)) for name in ("x", "y", "phi_hat", "k")}
    told |= {name: np.asarray(getattr(solution.counters, name)) for name in ("G_f", "G_g", "JV_g", "HV_g")}
    if solution.recorded is not None:
        names = ("x", "y", "v", "grad_phi_hat", "phi_hat", "perturbed", "calls", "length")
        told |= {f"recorded {name}": np.asarray(getattr(solution.recorded, name)) for name in names}
    return {name: (array.shape, array.dtype, array.tobytes()) for name, array in told.items()} | {
        "status": solution.status,
        "seed": solution.seed,
    }


def test_what_are_no_parts_is_refused() -> None:
    from bilevel_sym import solve

    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    other = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    one, two = (Descent(Exact(), eta) for eta in (0.1, 0.2))
    good = solve(problem, one, [[1.0]], steps=1, rng=[0])
    for parts in (
        [], [good, 3], [good, solve(problem, one, [1.0], steps=1, rng=0)], [good, solve(other, one, [[1.0]], steps=1, rng=[0])],
        [good, solve(problem, two, [[1.0]], steps=1, rng=[0])], [good, solve(problem, one, [[1.0]], steps=1, rng=[0], record="last")],
    ):  # fmt: skip
        with pytest.raises(InvalidArgument):
            Solution.concatenate(parts)  # type: ignore[arg-type]
