"""Planted defects of what is written: a checkpoint that forgets, a writer that opens its target. Each is noticed."""

from __future__ import annotations

import contextlib
import json
import os
from pathlib import Path
from typing import Any

import pytest
from full_disk import files_of_at_most
from test_checkpoint import SETTINGS, bits, solved

from bilevel_sym.errors import CannotWrite
from bilevel_sym.solvers import Ensemble, loop, noise, stocbio
from bilevel_sym.solvers.compiled import run as compiled
from bilevel_sym.solvers.recording import Recorder
from bilevel_sym.system import writing
from bilevel_sym.system.writing import write

# which part forgets, which of its arrays (or all), in which run, after how many steps
PLANTS: dict[str, tuple[Any, str | None, str, int]] = {
    "a generator's state": (noise.Streams, None, "perturbed AID", 13),
    "the clock of perturbations": (Ensemble, "clock", "perturbed AID", 13),
    "who runs": (Ensemble, "running", "some diverge", 45),
    "a warm start": (Ensemble, "y", "descent AID", 13),
    "the best point": (Recorder, "best_phi", "some diverge", 2),
    "oracle calls": (Recorder, "calls_G_f", "descent AID", 13),
    "the check's waiting": (loop._Checked, None, "to a minimum", 60),
    "the batches of the print": (stocbio._StocBiORun, None, "StocBiO as printed", 13),
    "compiled noise": (compiled._Standing, "noise", "compiled AID", 10),
    "a compiled clock": (compiled._Standing, "since", "compiled AID", 13),
}


@pytest.mark.parametrize("plant", PLANTS)
def test_what_is_not_taken_back_is_noticed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, plant: str) -> None:
    """One part forgets one thing: then the run that goes on, or the file that it leaves, is another."""
    part, forgotten, name, steps = PLANTS[plant]
    s, path, whole = SETTINGS[name], tmp_path / "pieces", tmp_path / "whole"
    if s.backend == "compiled":
        pytest.importorskip("numba")
    wanted, recall = bits(solved(s, whole)), part.recall
    solved(s, path, steps=steps, checkpoint_every=7)

    def forgetful(self: Any, memory: Any) -> None:
        if forgotten is not None:
            recall(self, memory | {forgotten: self.memory()[forgotten]})

    monkeypatch.setattr(part, "recall", forgetful)
    try:
        same = bits(solved(s, path)) == wanted
    except KeyError:  # the print looks for what it has left behind
        same = False
    if s.backend != "compiled":
        same = same and path.read_bytes() == whole.read_bytes()
    assert not same


def test_a_writer_that_opens_the_target_itself_would_be_noticed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The plant: no neighbour, no rename. The full disk then costs the old file."""
    monkeypatch.setattr(writing, "_neighbour", lambda path: path)
    monkeypatch.setattr(writing, "WRITE_FLAGS", os.O_WRONLY | os.O_TRUNC)
    monkeypatch.setattr(os, "O_EXCL", 0)
    (tmp_path / "run.csv").write_text("precious")
    with files_of_at_most(64), contextlib.suppress(CannotWrite):
        write(tmp_path / "run.csv", json.dumps(list(range(1000))))
    assert not (tmp_path / "run.csv").exists() or (tmp_path / "run.csv").read_text() != "precious"
