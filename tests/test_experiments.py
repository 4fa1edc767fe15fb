"""The experiments, small; the paper's figure in full where slow tests run."""

from __future__ import annotations

import csv
import errno
import json
import os
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp

from bilevel_sym import Status, paper, solve, zoo
from bilevel_sym.errors import CannotWrite, InvalidArgument
from bilevel_sym.theories.huang_saddle import experiments
from bilevel_sym.theories.huang_saddle.experiments import (
    complexity,
    coupled,
    figure1,
    reporting,
    staircase,
)

SMALL1 = figure1.Settings(dimensions=(5,), curvatures=(1.0, 3.0), steps=300, seeds=3)
SMALL2 = coupled.Settings(d=3, kappa=10.0, inner=(1, 10, 100), products=(1, 3), steps=60, seeds=3)
SMALL3 = complexity.Settings(
    d=3, accuracies=(1e-1, 1e-2), conditions=(2, 4), kappa=2, eps=1e-1, fit_below=1.0, seeds=3
)  # fmt: skip


def rows(path: Path) -> list[dict[str, str]]:
    with path.open(encoding="utf-8") as file:
        return list(csv.DictReader(file))


def check_files(out: Path, name: str, lines: list[str], *pictures: str) -> tuple[list[dict[str, str]], dict[str, Any]]:
    """All files are there, and told of; the JSON is strict and says where the settings come from."""
    written = {f"{name}.png", f"{name}.csv", f"{name}.json", *pictures}
    assert {path.name for path in out.iterdir()} == written
    assert {line.rpartition("/")[2] for line in lines if line.startswith("wrote ")} == written
    assert (out / f"{name}.png").read_bytes().startswith(b"\x89PNG")
    record = json.loads((out / f"{name}.json").read_text(encoding="utf-8"), parse_constant=pytest.fail)
    assert record["schema"] == f"bilevel-sym/{name}/1"
    assert record["as_in_the_paper"]
    assert record["chosen_here"]
    assert record["versions"]["numpy"] == np.__version__
    assert set(record["findings"]) <= set(lines)
    return rows(out / f"{name}.csv"), record


# ---- figure 1 -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_figure1_small(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = list(figure1.report(tmp_path, settings=SMALL1))
    table, record = check_files(tmp_path, "figure1", lines, "figure1_settings.png")
    assert (tmp_path / "figure1_settings.png").read_bytes().startswith(b"\x89PNG")
    assert list(table[0]) == ["panel", "method", "iteration", "median", "q25", "q75"]
    assert len(table) == 2 * 2 * (SMALL1.steps + 1)
    for row in table:
        assert float(row["q25"]) <= float(row["median"]) <= float(row["q75"])
    assert record["parameters"]["eps"] == 1.0
    assert record["independence"]["moved"] == 0.0
    steep = record["panels"][1]
    assert steep["PBO"]["arrived"] == 1.0
    assert steep["BO"]["arrived"] == 0.0
    assert any("D and N ≥ 1 change nothing" in line for line in lines)
    assert "LaTeX labels" in record["inferred"][0]
    assert not any("γ" in part for part in record["as_in_the_paper"])
    assert record["claim"]["pairs"] == 6
    assert [run["value"] for run in record["varied"][0]["runs"]] == [
        0.1, 1.0, 10.0, 100.0, 0.01, 0.1, 1.0, 10.0, 5, 25, 50, 100, 200,
    ]  # fmt: skip
    assert sum("figure's claim" in line for line in lines) == 1


@pytest.mark.slow
def test_both_methods_start_from_the_same_points() -> None:
    panel = figure1.compute(figure1.Settings(dimensions=(3,), curvatures=(1.5,), steps=2, seeds=3)).panels[0]
    for pbo, bo in zip(panel.PBO.gap, panel.BO.gap, strict=True):
        assert pbo[0] == bo[0]


def test_the_minimum_and_the_drop_are_exact() -> None:
    panel = figure1.compute(figure1.Settings(dimensions=(2,), curvatures=(1.5,), steps=1, seeds=1)).panels[0]
    shape = zoo.tube.TubeShape(sp.Rational(3, 2), sp.Integer(1))
    assert panel.nu == pytest.approx(float(shape.nu), rel=1e-14)
    assert panel.phi_min == pytest.approx(-2 * float(shape.nu), rel=1e-14)


@pytest.mark.slow
def test_the_same_settings_give_the_same_numbers() -> None:
    settings = figure1.Settings(dimensions=(2,), curvatures=(1.0,), steps=60, seeds=2)
    first, second = (figure1.compute(settings).panels[0].PBO.gap for _ in range(2))
    for a, b in zip(first, second, strict=True):
        np.testing.assert_array_equal(a, b)


def test_inner_steps_matter_where_the_estimate_depends_on_y(monkeypatch: pytest.MonkeyPatch) -> None:
    """The check can fail: on the coupled tube it does, in each of its ways."""

    def coupled_instead(name: str, *, d: int, L: float, gamma: float) -> Any:
        return zoo.get("tube_coupled", d=d, L=L, gamma=gamma)

    monkeypatch.setattr(figure1, "get", coupled_instead)
    found = figure1.inner_steps_matter(figure1.Settings(steps=20, seeds=2), 2, 1.0)
    assert found.moved > 1e-3
    assert not found.blocks_without_y
    assert not found.unit_system
    assert found.gradient_change > 0
    assert not found.holds


@pytest.mark.slow
def test_the_printed_domain_is_where_the_printed_tube_is_defined() -> None:
    example = zoo.get("tube_printed", d=3)
    x = np.random.default_rng(0).uniform(-1, 18, (60, 3))
    x[:30] *= np.random.default_rng(1).choice([1.0, 0.12], (30, 3))
    inside = figure1.in_printed_domain(x)
    assert example.phi is not None
    assert 5 < inside.sum() < 55
    defined = [sp.nan != example.phi.subs(dict(zip(example.problem.x, map(float, p), strict=True))) for p in x]
    np.testing.assert_array_equal(inside, defined)


@pytest.mark.long
def test_figure1_in_full(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = list(experiments.reproduce("figure1", tmp_path / "new"))
    table, record = check_files(tmp_path / "new", "figure1", lines, "figure1_settings.png")
    assert len(table) == 12 * 2 * 1001
    panels = {(p["d"], p["L"]): p for p in record["panels"]}
    assert len(panels) == 12
    for (d, L), panel in panels.items():
        assert panel["PBO"]["ahead"] <= panel["BO"]["ahead"]
        assert panel["PBO"]["arrived"] == (0 if d == 20 else 1)
        if L > 1:
            assert panel["BO"]["arrived"] == 0
        # the plateaus of PBO do not grow, those of BO do
        dwell = panel["PBO"]["stairs"]["dwell"]
        assert all(20 <= value <= 60 for value in dwell[1:] if value is not None)
        unperturbed = [value for value in panel["BO"]["stairs"]["dwell"][1:] if value is not None]
        assert all(1.5 * a < b for a, b in pairwise(unperturbed))
    assert record["independence"]["moved"] == 0.0
    claim = record["claim"]
    assert claim["holds"]
    assert (claim["pairs"], claim["behind"]) == (240, 0)
    assert claim["ahead"] > 200
    assert len(claim["arrived"]) == 8
    middle, deepest = record["varied"]
    arrivals = {(run["name"], run["value"]): run["stairs"]["arrival"] for run in middle["runs"]}
    # a larger r arrives earlier; eps and T hardly matter until T is longer than a plateau
    assert arrivals["r", 100.0] < arrivals["r", 10.0] < arrivals["r", 1.0] < arrivals["r", 0.1]
    assert arrivals["T_escape", 5] == pytest.approx(arrivals["T_escape", 50], rel=0.1)
    assert 1.4 * arrivals["T_escape", 50] < arrivals["T_escape", 100]
    assert [run["stairs"]["arrival"] is None for run in deepest["runs"]] == [True, True, True, False]


# ---- figure 1: stairs, settings, labels -----------------------------------------------------------------------


def stairs_of(*parts: tuple[float, int], perturbed: tuple[int, ...] = (), d: int = 3) -> staircase.Staircase:
    """One run that stays at each value for so many iterations; the drop is 10."""
    gap = np.concatenate([np.full(count, 10.0 * value) for value, count in parts])[None]
    flags = np.zeros((1, gap.shape[1] - 1), dtype=bool)
    flags[0, list(perturbed)] = True
    return staircase.climb_down(gap, 10.0, d, flags)


def test_stairs_are_measured() -> None:
    found = stairs_of(
        (3.02, 15), (2.5, 3), (2.0, 12), (1.5, 4), (1.01, 30), (0.5, 2), (0.0, 10), perturbed=(16, 20, 40)
    )
    assert found.passed == (3,)
    assert found.arrival == 15 + 3 + 12 + 4 + 30 + 2 - 2  # half way down counts as arrived
    assert found.dwell == (15.0, 12.0, 30.0)
    assert found.on_plateaus == pytest.approx(57 / 64)
    assert (found.stairs, found.aided, found.rise) == (1.0, 1.0, 0.0)
    assert found.growth == pytest.approx(30 / 12)
    assert found.longest == 30


def test_a_slope_is_no_staircase_and_a_run_that_stays_arrives_nowhere() -> None:
    slope = staircase.climb_down(np.linspace(30, 0, 61)[None], 10.0, 3, np.zeros((1, 60), dtype=bool))
    assert slope.passed == (3,)
    assert slope.stairs == 0.0
    assert slope.on_plateaus < 0.2
    stuck = stairs_of((3.0, 20), (2.0, 100), (2.6, 1), (2.0, 5))
    assert stuck.passed == (1,)
    assert stuck.arrival == np.inf
    assert np.isnan(stuck.dwell[1:]).all()
    assert stuck.rise == pytest.approx(0.6)
    assert np.isnan(stuck.growth)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("right", "pbo", "bo"),
    [
        (True, ((3.0, 20), (2.0, 20), (1.0, 20), (0.0, 20)), ((3.0, 80),)),
        (False, ((3.0, 80),), ((3.0, 20), (2.0, 60))),  # the other one is ahead
        (False, ((3.0, 20), (2.0, 2), (1.0, 2), (0.0, 56)), ((3.0, 80),)),  # no stairs
        (False, ((3.0, 20), (2.6, 35), (2.0, 20), (1.4, 30), (1.0, 20), (0.0, 20)), ((3.0, 145),)),  # not flat
        (False, ((3.0, 20), (2.0, 20), (2.1, 20), (1.0, 20), (0.0, 20)), ((3.0, 100),)),  # climbs out again
    ],
)
def test_the_claim_can_fail(right: bool, pbo: Any, bo: Any) -> None:
    """The first pair bears the figure out; each of the others breaks one part of it."""
    base = figure1.compute(figure1.Settings(dimensions=(3,), curvatures=(1.0,), steps=1, seeds=1))
    panel = base.panels[0]
    perturbed, plain = replace(panel.PBO, stairs=stairs_of(*pbo)), replace(panel.BO, stairs=stairs_of(*bo))
    changed = replace(base, panels=(replace(panel, PBO=perturbed, BO=plain),))
    assert changed.claim.holds is right
    assert ("claim holds" if right else "does not hold") in figure1.findings(changed)[1]


def test_the_parameters_of_the_panels_are_read_from_labels() -> None:
    labels = [label for label in paper.STATEMENTS if label.startswith("figure: ")]
    found = [figure1.read_label(label) for label in labels]
    usual = figure1.Settings()
    assert len(found) == 12
    assert {name.gamma for name in found} == {usual.gamma}
    assert {(name.d, name.L) for name in found} == {(d, L) for d in usual.dimensions for L in usual.curvatures}
    for bad in ("figure: 115a", "figure: 4110", "Figure: exp", "figure: 1130"):
        with pytest.raises(InvalidArgument, match="not the label of a panel"):
            figure1.read_label(bad)


def test_each_setting_is_varied_alone() -> None:
    seen: list[figure1.Settings] = []

    def run(settings: figure1.Settings) -> tuple[Any, Any]:
        seen.append(settings)
        return np.zeros((2, 4)), np.zeros((2, 3), dtype=bool)

    usual = figure1.Settings()
    found = list(staircase.vary(usual, tuple(staircase.FACTORS), run, 1.0, 2))
    assert len(found) == len(seen) == 13
    for varied, settings in zip(found, seen, strict=True):
        assert getattr(settings, varied.name) == varied.value
        assert replace(settings, **{varied.name: getattr(usual, varied.name)}) == usual


# ---- figure 2 -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_figure2_small(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = list(coupled.report(tmp_path, settings=SMALL2))
    table, record = check_files(tmp_path, "figure2", lines)
    assert len(table) == 2 + 2 * 3 * 2
    assert [r["N"] for r in record["rounding"]] == [1, 3]
    for r in record["rounding"]:
        assert 0 < r["first"] < 1e-13
        assert r["moved"] >= r["first"]
    error = {(row["method"], row["D"], row["N"]): float(row["rms_error"]) for row in table}
    assert error["PBO", "exact", "exact"] < 1e-12
    # both D and N matter, and N = n with large D is nearly exact
    assert error["PBO", "100", "3"] < 0.1 * error["PBO", "100", "1"]
    assert error["PBO", "100", "3"] < error["PBO", "10", "3"] < error["PBO", "1", "3"]


@pytest.mark.slow
def test_the_error_is_measured_against_the_exact_gradient() -> None:
    exact = coupled.compute(coupled.Settings(d=2, inner=(1,), products=(1,), steps=20, seeds=2)).exact[0]
    assert exact.error < 1e-12
    assert exact.D == 0


def test_never_settled_is_not_a_number() -> None:
    outcome = coupled.Outcome("BO", 1, 1, 0.0, np.array([10.0, np.nan, np.nan]))
    assert outcome.fraction == pytest.approx(1 / 3)
    assert outcome.median == np.inf


# ---- figure 3 -----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_figure3_small(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    lines = list(complexity.report(tmp_path, settings=SMALL3))
    table, record = check_files(tmp_path, "figure3", lines)
    assert len(table) == 4 * 4
    assert all(row["checked"] == row["seeds"] == "3" for row in table)
    assert any("depends on where it is fitted" in line for line in lines)
    for row in table:
        calls = {"G_f": 2, "G_g": int(row["D"]), "JV_g": 1, "HV_g": int(row["N"]) + 1}[row["oracle"]]
        assert float(row["median"]) == calls * (float(row["iterations"]) + 1)
    for name in complexity.COUNTERS:
        exponents = record["exponents"][name]
        assert 0 < exponents["measured"]["kappa"] < exponents["corollary"]["kappa"]
        assert 0 < exponents["measured"]["eps"] < exponents["corollary"]["eps"]


def test_the_family_is_what_it_says() -> None:
    family = complexity.Family(3, sp.Integer(6))
    k = family.problem.kernels
    Q, eigenvalues = np.array(family.reflection, dtype=float), np.array(family.eigenvalues, dtype=float)
    x = np.random.default_rng(0).uniform(-1, 1, (5, 3)) / 6
    u = x @ Q
    phi = (1 - u[:, 0] ** 2) ** 4 / 8 + ((u / eigenvalues)[:, 1:] ** 2).sum(axis=1) / 2
    np.testing.assert_allclose(k.phi(x), phi, rtol=1e-13)
    np.testing.assert_allclose(np.linalg.eigvalsh(k.g_yy(x[0], x[0])), [1 / 6, 7 / 12, 1], rtol=1e-13)
    np.testing.assert_allclose(np.linalg.eigvalsh(k.hess_phi(np.zeros(3)))[[0, -1]], [-1, 36], rtol=1e-13)
    third = k.third_phi(np.linspace(-1, 1, 201)[:, None] * Q[0])
    along = np.abs(np.einsum("sabc,a,b,c->s", third, Q[0], Q[0], Q[0]))
    assert 0.98 * complexity.RHO_PHI < along.max() <= complexity.RHO_PHI


def test_the_starts_lead_into_the_saddle() -> None:
    family = complexity.Family(3, sp.Integer(6))
    x0, y0 = family.starts(4, 0)
    k = family.problem.kernels
    np.testing.assert_allclose(k.y_star(x0), y0, rtol=1e-12, atol=1e-14)
    unstable = np.array(family.reflection, dtype=float)[0]
    np.testing.assert_allclose(x0 @ unstable, 0, atol=1e-15)
    np.testing.assert_allclose(k.grad_phi(x0) @ unstable, 0, atol=1e-13)


def test_a_power_law_has_its_exponent() -> None:
    at = [1.0, 3.0, 10.0]
    assert complexity.slope(at, [5 * a**1.75 for a in at]) == pytest.approx(1.75)
    assert np.isnan(complexity.slope([1.0], [1.0]))


def test_the_family_refuses_what_it_is_not_made_for() -> None:
    with pytest.raises(InvalidArgument, match="kappa > 1"):
        complexity.Family(3, sp.Integer(1))


# ---- the door -----------------------------------------------------------------------------------------------


def test_an_unknown_experiment_is_refused_at_once(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgument, match="one of figure1, figure2, figure3"):
        experiments.reproduce("figure4", tmp_path / "nothing")
    assert not (tmp_path / "nothing").exists()


def test_a_file_in_the_way_is_a_typed_error(tmp_path: Path) -> None:
    pytest.importorskip("matplotlib")
    (tmp_path / "taken").write_text("")
    with pytest.raises(CannotWrite, match="a file of that name is in the way"):
        experiments.reproduce("figure1", tmp_path / "taken")


@pytest.mark.parametrize("failing", range(3))
def test_the_files_of_an_experiment_appear_together_or_not_at_all(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """A disk that is full after the first, the second, the third file: no file is new, and none is cut."""
    names = ("figure9.png", "figure9.csv", "figure9.json")
    for name in names[:2]:
        (tmp_path / name).write_text("old")
    calls, fsync = iter(range(9)), os.fsync

    def full(descriptor: int) -> None:
        if next(calls) == failing:
            raise OSError(errno.ENOSPC, "No space left on device")
        fsync(descriptor)

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(CannotWrite, match=rf"{names[failing]} cannot be written: the disk is full; nothing was ch"):
        list(reporting.place(tmp_path, dict.fromkeys(names, "new")))
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names[:2], "old")
    assert [line.rpartition("/")[2] for line in reporting.place(tmp_path, dict.fromkeys(names, "new"))] == list(names)
    assert {path.name: path.read_text() for path in tmp_path.iterdir()} == dict.fromkeys(names, "new")


@pytest.mark.slow
def test_progress_is_on_standard_error_alone(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("bilevel_sym.system.progress.REDRAW_SECONDS", 0.001)
    settings = figure1.Settings(dimensions=(2,), curvatures=(1.0, 2.0), steps=2, seeds=1)
    figure1.compute(settings, progress=True)
    shown = capsys.readouterr()
    assert "figure1: 1/2" in shown.err
    assert shown.out == ""
    figure1.compute(settings)
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("module", "small"),
    [
        (figure1, {"dimensions": (2,), "curvatures": (1.0,), "steps": 1, "seeds": 1}),
        (coupled, {"d": 2, "inner": (1,), "products": (1,), "steps": 1, "seeds": 1}),
        (complexity, {"accuracies": (0.1,), "conditions": (2,), "seeds": 1, "most_steps": 1}),
    ],
)
def test_an_interrupt_that_a_run_answers_ends_the_experiment(
    module: Any, small: dict[str, Any], monkeypatch: pytest.MonkeyPatch
) -> None:
    def cut_short(*arguments: Any, **options: Any) -> Any:
        found = solve(*arguments, **options)
        return replace(found, status=(Status.INTERRUPTED,) * len(found.statuses))

    monkeypatch.setattr(module, "solve", cut_short)
    with pytest.raises(KeyboardInterrupt):
        module.compute(module.Settings(**small))


def test_no_footer_runs_over_the_edge() -> None:
    pytest.importorskip("matplotlib")
    figure = reporting.new_figure(6, 3)
    figure.subplots()
    reporting.add_footer(figure, ["many words " * 40])
    figure.draw_without_rendering()
    box = figure.texts[0].get_window_extent()
    assert 0 < box.x0 < box.x1 < figure.bbox.x1
    panel = figure.axes[0].get_tightbbox()
    assert panel is not None
    assert box.y1 < panel.y0


def test_footers_break_into_lines() -> None:
    parts = tuple(f"part {i}" for i in range(20))
    lines = reporting.Provenance(parts, ()).lines(width=40)
    assert len(lines) > 3
    assert max(map(len, lines)) <= 40
    assert " ".join(line.strip() for line in lines) == f"As in the paper: {'; '.join(parts)}."
