"""Checkpoints: a run that stops anywhere goes on bit by bit; what belongs to another run, or is spoilt, is refused."""

from __future__ import annotations

import contextlib
import hashlib
import json
import os
import random
import signal
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from dataclasses import dataclass, fields, replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import numpy as np
import pytest
from helpers import THOROUGH
from hypothesis import given, settings
from test_cli import run as command

from bilevel_sym import (
    AID,
    ITD,
    BilevelProblem,
    Descent,
    Exact,
    GDmax,
    INeon,
    LocalMinimum,
    Neumann,
    Perturbed,
    Solution,
    Status,
    StocBiO,
    solve,
    zoo,
)
from bilevel_sym.errors import CannotWrite, CheckpointFailure, InvalidArgument
from bilevel_sym.kernels import Counts
from bilevel_sym.solvers import EstimatedRun, Move
from bilevel_sym.solvers.checkpoint_file import FORMAT, Saved, read_checkpoint, write_checkpoint
from bilevel_sym.solvers.noise import Streams
from bilevel_sym.solvers.solution import Best, Trajectory

ROOT = Path(__file__).resolve().parent.parent
SADDLE = zoo.get("saddle", d=2).problem
SQUARE = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")  # Phi = x^2
MINIMAX = zoo.get("minimax_wells").problem
NOISE = zoo.get("stochastic_noise", d=2).problem
ROWS = zoo.get("stochastic_rows", rows=12).problem
NEON = INeon(AID(D=3, N=2, tau=0.5), eta=0.1, eps=0.1, r=0.1, T_escape=15, F_escape=1e-4)
STOC = StocBiO(D=2, Q=2, S=4, alpha=0.2, beta=0.05, eta_neumann=0.2, batch_f=4, batch_g=4)
BATCH_NEON = replace(NEON, T_escape=3)


@dataclass(frozen=True)
class Setting:
    """What ``solve`` is called with, and what it takes to be worth a test."""

    problem: Any
    algorithm: Any
    start: Any
    stop: Any = None
    backend: Any = "tape"
    steps: int = 60


def perturbed(estimator: Any, **options: Any) -> Perturbed:
    return Perturbed(estimator, eta=0.1, eps=0.3, r=0.1, T_escape=4, **options)


SETTINGS = {
    "descent AID": Setting(SADDLE, Descent(AID(3, 2, 0.5), 0.1), [[0.3, 0.1], [-1.0, 1.0]]),
    "descent ITD": Setting(SADDLE, Descent(ITD(3, 0.5), 0.1), [0.3, 0.1]),
    "descent Neumann": Setting(SADDLE, Descent(Neumann(3, 0.5), 0.1), [0.3, 0.1]),
    "descent Exact": Setting(SADDLE, Descent(Exact(), 0.1), [[0.3, 0.1], [-1.0, 1.0]]),
    "descent lambdify": Setting(SADDLE, Descent(AID(3, 2, 0.5), 0.1), [0.3, 0.1], backend="lambdify"),
    "some diverge": Setting(SQUARE, Descent(AID(3, 1, 0.5), 1e8), [[1.0], [0.0], [1e-90]]),
    "perturbed AID": Setting(SADDLE, perturbed(AID(3, 2, 0.5)), np.zeros((5, 2))),
    "perturbed alone": Setting(SADDLE, perturbed(AID(3, 2, 0.5)), [0.0, 0.0]),
    "perturbed Exact": Setting(SADDLE, perturbed(Exact()), np.zeros((2, 2))),
    "perturbed as printed": Setting(SADDLE, perturbed(AID(3, 2, 0.5), as_printed=True), np.zeros((2, 2))),
    "perturbed GDmax": Setting(MINIMAX, perturbed(GDmax(3, 0.1)), np.zeros((3, MINIMAX.d))),
    "to a minimum": Setting(SADDLE, perturbed(AID(3, 2, 0.5)), np.zeros((4, 2)), stop="local minimum", steps=120),
    "by iNEON": Setting(
        SADDLE, Descent(AID(3, 2, 0.5), 0.1), np.zeros((2, 2)), stop=LocalMinimum(0.1, by=NEON), steps=20
    ),
    "a rule": Setting(SADDLE, perturbed(AID(3, 2, 0.5)), np.zeros((4, 2)), stop=lambda state: state.phi_hat < -0.01),
    "descent and iNEON": Setting(SADDLE, Descent(AID(3, 2, 0.5), 0.1, escape=NEON), np.zeros((3, 2))),
    "iNEON as printed": Setting(SADDLE, Descent(Exact(), 0.1, escape=replace(NEON, as_printed=True)), np.zeros((2, 2))),
    "StocBiO": Setting(NOISE, STOC, [[0.5, 0.5], [0.0, 0.0]], steps=20),
    "StocBiO on few rows": Setting(ROWS, replace(STOC, batch_f=50), np.zeros((2, ROWS.d)), steps=20),
    "StocBiO and iNEON": Setting(NOISE, replace(STOC, escape=BATCH_NEON, eps=5.0), np.zeros((2, 2)), steps=20),
    "StocBiO as printed": Setting(
        NOISE, replace(STOC, escape=BATCH_NEON, eps=5.0, as_printed=True), np.zeros((2, 2)), steps=20
    ),
    "compiled descent": Setting(SADDLE, Descent(AID(3, 2, 0.5), 0.1), [[0.3, 0.1], [-1.0, 1.0]], backend="compiled"),
    "compiled AID": Setting(SADDLE, perturbed(AID(3, 2, 0.5)), np.zeros((20, 2)), backend="compiled"),
    "compiled alone": Setting(SADDLE, perturbed(AID(3, 2, 0.5)), [0.0, 0.0], backend="compiled"),
    "compiled GDmax": Setting(MINIMAX, perturbed(GDmax(3, 0.1)), np.zeros((3, MINIMAX.d)), backend="compiled"),
    "compiled as printed": Setting(
        SADDLE, perturbed(AID(3, 2, 0.5), as_printed=True), np.zeros((2, 2)), backend="compiled"
    ),
    "compiled, some diverge": Setting(
        SQUARE, Descent(AID(3, 1, 0.5), 1e8), [[1.0], [0.0], [1e-90]], backend="compiled"
    ),
    "compiled to a minimum": Setting(
        SADDLE, perturbed(AID(3, 2, 0.5)), np.zeros((4, 2)), stop="local minimum", backend="compiled", steps=120
    ),
}


# the fast tier has one of each kind of memory
FAST = {
    "perturbed AID",
    "some diverge",
    "descent and iNEON",
    "StocBiO as printed",
    "compiled AID",
    "compiled to a minimum",
}


@pytest.fixture(params=[pytest.param(name, marks=[] if name in FAST else [pytest.mark.slow]) for name in SETTINGS])
def setting(request: pytest.FixtureRequest) -> Setting:
    found = SETTINGS[request.param]
    if found.backend == "compiled":
        pytest.importorskip("numba")
    return found


def solved(s: Setting, path: Path | None = None, **options: Any) -> Solution:
    given = {"steps": s.steps, "rng": 3, "stop": s.stop, "backend": s.backend, "checkpoint": path} | options
    return solve(s.problem, s.algorithm, s.start, **given)


def bits(value: Any) -> Any:
    """All that a solution holds, to the last bit, NaN too."""
    if isinstance(value, (np.ndarray, np.generic)):
        return value.dtype.str, value.shape, value.tobytes()
    if isinstance(value, Counts):
        return [bits(np.asarray(getattr(value, name))) for name in ("G_f", "G_g", "JV_g", "HV_g")]
    if isinstance(value, (Solution, Best, Trajectory)):
        return {
            f.name: bits(getattr(value, f.name))
            for f in fields(value)
            if f.name not in ("kernels", "schedule", "stats")
        }
    return value


class _Stopped(Exception):
    """Ended by the test."""


@contextlib.contextmanager
def ended_at_step(k: int, error: type[BaseException], monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Raise where a run writes down its k-th point: in the middle of a step."""
    from bilevel_sym.system.progress import ProgressBar

    at, left = ProgressBar.at, [k]

    def ending(self: ProgressBar, done: int, note: str = "") -> None:
        at(self, done, note)
        left[0] -= 1
        if left[0] < 0:
            raise error

    with monkeypatch.context() as patch:
        patch.setattr(ProgressBar, "at", ending)
        yield


# ---- going on ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(record=["all"])
@pytest.mark.parametrize("record", ["all", pytest.param("last", marks=pytest.mark.slow)])
def test_a_run_in_pieces_is_the_run_in_one(setting: Setting, tmp_path: Path, record: Any) -> None:
    """Each piece makes a few steps more, from the file that the one before has left."""
    whole = solved(setting, record=record)
    path, ends = tmp_path / "run.checkpoint", [0, 1, 7, setting.steps // 2, setting.steps]
    for steps in ends:
        last = solved(setting, path, record=record, steps=steps, checkpoint_every=3)
    assert bits(last) == bits(whole)
    assert bits(solved(setting, path, record=record)) == bits(whole)  # a finished run is returned again
    if setting.backend != "compiled":  # which draws noise beforehand, more or less of it
        solved(setting, tmp_path / "whole", record=record)
        assert path.read_bytes() == (tmp_path / "whole").read_bytes()
        (tmp_path / "whole").unlink()
    assert [file.name for file in tmp_path.iterdir()] == ["run.checkpoint"]


@pytest.mark.slow
@given(data=st.data())
@settings(max_examples=100 if THOROUGH else 40, deadline=None)
def test_a_run_that_is_ended_anywhere_goes_on(data: st.DataObject) -> None:
    """Killed between two writings, or interrupted: any number of times, at any steps, with any distance of writings."""
    name = data.draw(
        st.sampled_from(sorted(n for n, s in SETTINGS.items() if s.backend != "compiled" or numba_found()))
    )
    s, seed = SETTINGS[name], data.draw(st.integers(0, 2**64 - 1))
    kind = data.draw(st.sampled_from([_Stopped, KeyboardInterrupt]))
    with tempfile.TemporaryDirectory() as folder, pytest.MonkeyPatch.context() as patch:
        path = Path(folder) / "run.checkpoint"
        for _ in range(data.draw(st.integers(1, 3))):
            with ended_at_step(data.draw(st.integers(0, 30)), kind, patch), contextlib.suppress(_Stopped):
                solved(s, path, rng=seed, checkpoint_every=data.draw(st.integers(1, 20)))
        assert bits(solved(s, path, rng=seed)) == bits(solved(s, rng=seed))


def numba_found() -> bool:
    import importlib.util

    return importlib.util.find_spec("numba") is not None


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
def test_an_interruption_leaves_the_last_state(
    setting: Setting, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "run.checkpoint"
    with ended_at_step(9, KeyboardInterrupt, monkeypatch):
        cut = solved(setting, path, checkpoint_every=10**6)
    saved = read_checkpoint(path)
    assert saved is not None
    if Status.INTERRUPTED in cut.statuses and setting.backend != "compiled":
        assert saved.k == 9
    assert bits(solved(setting, path)) == bits(solved(setting))


def test_it_is_written_every_so_many_steps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    monkeypatch.setattr("bilevel_sym.solvers.checkpoint.write_checkpoint", lambda path, saved: seen.append(saved.k))
    solved(SETTINGS["descent AID"], tmp_path / "c", steps=47, checkpoint_every=10)
    assert seen == [10, 20, 30, 40, 47]
    seen.clear()
    if numba_found():
        solved(SETTINGS["compiled descent"], tmp_path / "c", steps=47, checkpoint_every=10)
        assert seen == [10, 20, 30, 40, 47]


def test_fresh_seeds_are_those_of_the_checkpoint(tmp_path: Path) -> None:
    s, path = SETTINGS["perturbed AID"], tmp_path / "c"
    first = solved(s, path, rng=None, steps=20)
    second = solved(s, path, rng=None)
    assert second.seed == first.seed
    assert bits(second) == bits(solved(s, rng=list(first.seed)))


def test_no_trajectory_needs_no_file(tmp_path: Path) -> None:
    solve(SADDLE, Descent(Exact(), 0.1), np.zeros((0, 2)), checkpoint=tmp_path / "c")
    assert not (tmp_path / "c").exists()


@pytest.mark.parametrize("halves", [0, 1])
def test_a_stream_goes_on_where_it_stood(halves: int) -> None:
    """Also between the two halves of a number, of which the second waits for the next that is asked for."""
    before, after = Streams([3, 4, 5]), Streams([3, 4, 5])
    for k in (0, 2):
        before[k].normal(size=7)
        before[k].integers(10, size=halves, dtype=np.uint32)
    after.recall(before.memory())
    for k in range(3):
        assert after[k].integers(2**32, size=5, dtype=np.uint32).tolist() == (
            before[k].integers(2**32, size=5, dtype=np.uint32).tolist()
        )
        assert after[k].normal(size=9).tolist() == before[k].normal(size=9).tolist()


@pytest.mark.parametrize(("word", "value"), [(2, 1), (4, 2), (5, 2**32)])
def test_where_no_stream_of_that_seed_can_stand(word: int, value: int) -> None:
    streams = Streams([3])
    streams[0].normal()
    told = streams.memory()
    told["states"][0, word] = value
    with pytest.raises(ValueError, match="can stand"):
        Streams([3]).recall(told)


# ---- refusals ---------------------------------------------------------------------------------------------

BASE = Setting(SADDLE, perturbed(AID(3, 2, 0.5)), [[0.0, 0.0], [0.1, 0.2]])
OTHERS: dict[str, tuple[Callable[[Path], object], str]] = {
    "problem": (
        lambda p: solved(replace(BASE, problem=zoo.get("quadratic", d=2, n=2).problem), p),
        "the problem is another",
    ),
    "algorithm": (lambda p: solved(replace(BASE, algorithm=Descent(AID(3, 2, 0.5), 0.1)), p), "algorithm is"),
    "a parameter": (lambda p: solved(replace(BASE, algorithm=replace(BASE.algorithm, eta=0.2)), p), "eta=0.2"),
    "x0": (lambda p: solved(replace(BASE, start=[[0.0, 0.0], [0.1, 0.3]]), p), "x0 is another"),
    "fewer": (lambda p: solved(replace(BASE, start=[[0.0, 0.0]]), p), "x0 is another"),
    "y0": (lambda p: solved(BASE, p, y0=np.ones(SADDLE.n)), "y0 is another"),
    "v0": (lambda p: solved(BASE, p, v0=np.ones(SADDLE.n)), "v0 is another"),
    "seed": (lambda p: solved(BASE, p, rng=[3, 4]), "seeds is"),
    "stop": (lambda p: solved(BASE, p, stop=LocalMinimum(0.1)), "stop is None there and LocalMinimum(eps=0.1"),
    "record": (lambda p: solved(BASE, p, record="last"), "record is all there and last here"),
    "engine": (lambda p: solved(BASE, p, backend="lambdify"), "engine is numpy there and lambdify here"),
    "fewer steps": (lambda p: solved(BASE, p, steps=10), "it has made 60 steps, and steps is 10"),
}


@pytest.mark.slow
@pytest.mark.parametrize("case", OTHERS)
def test_a_checkpoint_of_another_run_is_refused(tmp_path: Path, case: str) -> None:
    path = tmp_path / "run.checkpoint"
    solved(BASE, path)
    before = path.read_bytes()
    attempt, told = OTHERS[case]
    with pytest.raises(CheckpointFailure) as caught:
        attempt(path)
    message = str(caught.value)
    assert message.startswith(f"{path} is a checkpoint of another run: ")
    assert told in message
    assert message.endswith("\ntry: delete it to begin anew, or name another file")
    assert path.read_bytes() == before


@pytest.mark.parametrize("name", ["__version__"])
def test_another_version_is_another_run(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    path = tmp_path / "c"
    solved(BASE, path)
    monkeypatch.setattr(f"bilevel_sym.solvers.checkpoint.{name}", "99.0")
    with pytest.raises(CheckpointFailure, match=r"version is .* there and 99\.0 here"):
        solved(BASE, path)
    monkeypatch.undo()
    monkeypatch.setattr(np, "__version__", "0.1")
    with pytest.raises(CheckpointFailure, match=r"numpy is .* there and 0\.1 here"):
        solved(BASE, path)


def sealed(body: bytes) -> bytes:
    return body + hashlib.sha256(body).hexdigest().encode()


def with_header(**changes: Any) -> bytes:
    return sealed(FORMAT + json.dumps({"about": {}, "k": 0, "arrays": []} | changes).encode() + b"\n")


HOSTILE = {
    "empty": b"",
    "a user's own file": b"precious notes\n",
    "the format alone": FORMAT,
    "no header": sealed(FORMAT),
    "not JSON": sealed(FORMAT + b"nonsense\n"),
    "a list": sealed(FORMAT + b"[]\n"),
    "deep": sealed(FORMAT + b"[" * 200_000 + b"\n"),
    "a long number": sealed(FORMAT + b'{"k": ' + b"9" * 100_000 + b"}\n"),
    "no step": with_header(k=None),
    "a step before the first": with_header(k=-1),
    "a true step": with_header(k=True),
    "an object": with_header(arrays=[["x", "|O", [1]]]),
    "a length below zero": with_header(arrays=[["x", "<f8", [-1]]]),
    "larger than any disk": with_header(arrays=[["x", "<f8", [2**60, 2**60]]]),
    "more than there is": with_header(arrays=[["x", "<f8", [1]]]),
    "less than there is": sealed(with_header()[:-64] + b"surplus"),
    "a shape of text": with_header(arrays=[["x", "<f8", "12"]]),
    "another run": with_header(),
}


@pytest.mark.parametrize("case", HOSTILE)
def test_a_hostile_file_is_refused_and_left_as_it_is(tmp_path: Path, case: str) -> None:
    path = tmp_path / "run.checkpoint"
    path.write_bytes(HOSTILE[case])
    with pytest.raises(CheckpointFailure, match="try: delete it to begin anew, or name another file") as caught:
        solved(BASE, path)
    assert str(path) in str(caught.value)
    assert len(str(caught.value)) < 2000
    assert path.read_bytes() == HOSTILE[case]


@given(st.data())
@settings(max_examples=60, deadline=None)
def test_one_flipped_bit_or_a_lost_end_is_noticed(data: st.DataObject) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c"
        write_checkpoint(path, Saved({"seeds": [1]}, 3, {"x": np.arange(5.0), "on": np.array([True, False])}))
        content = bytearray(path.read_bytes())
        if data.draw(st.booleans()):
            at = data.draw(st.integers(0, 8 * len(content) - 1))
            content[at // 8] ^= 1 << at % 8
        else:
            del content[data.draw(st.integers(0, len(content) - 1)) :]
        path.write_bytes(content)
        with pytest.raises(CheckpointFailure):
            read_checkpoint(path)


@given(st.lists(st.floats(width=64) | st.just(struct.unpack("<d", b"\1\0\0\0\0\0\xf8\x7f")[0])), st.integers(0, 2**62))
@settings(max_examples=40, deadline=None)
def test_numbers_come_back_to_the_last_bit(numbers: list[float], k: int) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "c"
        written = np.array(numbers, dtype=np.float64)
        write_checkpoint(path, Saved({}, k, {"x": written}))
        back = read_checkpoint(path)
        assert back is not None
        assert (back.k, back.arrays["x"].tobytes()) == (k, written.tobytes())


@pytest.mark.parametrize("change", ["missing", "shape", "type", "nobody", "status", "stream", "steps"])
def test_arrays_that_this_run_cannot_have_are_refused(tmp_path: Path, change: str) -> None:
    """The digest is right, and so is whose run it is: somebody meant it."""
    path = tmp_path / "c"
    solved(BASE, path, steps=20)
    saved = read_checkpoint(path)
    assert saved is not None
    arrays = saved.arrays
    if change == "missing":
        del arrays["ensemble.x"]
    elif change == "shape":
        arrays["ensemble.x"] = np.zeros((3, 2))
    elif change == "type":
        arrays["ensemble.running"] = np.ones(2, dtype=np.int64)
    elif change == "nobody":
        arrays["ensemble.running"][:] = False
    elif change == "status":
        arrays["recorder.status"][:] = 77
    elif change == "stream":
        arrays["streams.states"][0] += np.uint64(2)
    else:
        arrays["recorder.steps"][:] = 2**40
    write_checkpoint(path, saved)
    with pytest.raises(CheckpointFailure, match="does not hold what this run remembers"):
        solved(BASE, path)


@pytest.mark.parametrize(("name", "value"), [("used", 9), ("used", -1), ("age", -1), ("age", 2**40), ("status", 77)])
def test_compiled_code_gets_no_index_from_a_file_unseen(tmp_path: Path, name: str, value: int) -> None:
    pytest.importorskip("numba")
    s, path = SETTINGS["compiled AID"], tmp_path / "c"
    solved(s, path, steps=20)
    saved = read_checkpoint(path)
    assert saved is not None
    saved.arrays[f"state.{name}"][:] = value
    write_checkpoint(path, saved)
    with pytest.raises(CheckpointFailure, match="does not hold what this run remembers"):
        solved(s, path)


def test_what_is_no_file_is_refused(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    for path in (tmp_path / "pipe", Path(os.devnull), tmp_path):
        with pytest.raises(CheckpointFailure, match="is not a file"):
            solved(BASE, path)
    with pytest.raises(CannotWrite, match="there is no folder"):
        solved(BASE, tmp_path / "no" / "c")
    with pytest.raises(InvalidArgument, match="checkpoint_every"):
        solved(BASE, tmp_path / "c", checkpoint_every=0)


def test_a_disk_that_is_full_on_the_way_costs_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "c"
    solved(BASE, path, steps=10)
    before = path.read_bytes()

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.warns(UserWarning, match="no checkpoint at step .*the disk is full; nothing was changed"):
        found = solved(BASE, path, checkpoint_every=20)
    monkeypatch.undo()
    assert bits(found) == bits(solved(BASE))
    assert path.read_bytes() == before


@dataclass(frozen=True)
class Heavy:
    """A user's algorithm, with a velocity for each trajectory."""

    eta: float

    def start(self, problem: BilevelProblem, kernels: Any) -> Any:
        return _HeavyRun(self.eta, problem, kernels)


class _HeavyRun(EstimatedRun):
    def __init__(self, eta: float, problem: BilevelProblem, kernels: Any) -> None:
        super().__init__(Exact(), problem, kernels)
        self.eta, self.velocity = eta, dict[int, Any]()

    def move(self, ensemble: Any, estimate: Any) -> Move:
        x = ensemble.x.copy()
        for lane, member in enumerate(ensemble.active.tolist()):
            self.velocity[member] = 0.5 * self.velocity.get(member, 0.0) - self.eta * estimate.grad[:, lane]
            x[:, lane] += self.velocity[member]
        return Move.to(x)


class _TellingRun(_HeavyRun):
    def memory(self, size: int) -> dict[str, Any]:
        told = np.zeros((size, SADDLE.d))
        for member, velocity in self.velocity.items():
            told[member] = velocity
        return {"velocity": told}

    def recall(self, memory: Any) -> None:
        self.velocity = dict(enumerate(memory["velocity"]))


@dataclass(frozen=True)
class Telling(Heavy):
    """The same, and its run says what it remembers."""

    def start(self, problem: BilevelProblem, kernels: Any) -> Any:
        return _TellingRun(self.eta, problem, kernels)


def test_an_algorithm_of_ones_own_says_what_it_remembers(tmp_path: Path) -> None:
    s, path = Setting(SADDLE, Telling(0.1), [[0.3, 0.1], [-1.0, 1.0]]), tmp_path / "c"
    solved(s, path, steps=17)
    assert bits(solved(s, path)) == bits(solved(s))
    with pytest.raises(InvalidArgument, match="_HeavyRun does not say what it remembers"):
        solved(replace(s, algorithm=Heavy(0.1)), tmp_path / "other")

    class Opaque:
        def start(self, problem: BilevelProblem, kernels: Any) -> Any:
            return _TellingRun(0.1, problem, kernels)

    with pytest.raises(InvalidArgument, match="does not show its parameters"):
        solved(replace(s, algorithm=Opaque()), tmp_path / "other")
    assert not (tmp_path / "other").exists()


# ---- the command line, and kill -9 ------------------------------------------------------------------------


@pytest.mark.slow
def test_the_command_goes_on_from_its_file(tmp_path: Path) -> None:
    path, out = str(tmp_path / "run.checkpoint"), tmp_path / "run.csv"
    start = ("solve", "zoo:saddle", "--algorithm", "perturbed-exact", "--seeds", "2", "--eps", "1e-9")
    assert command(*start, "--steps", "7", "--checkpoint", path, "--out", str(out)).returncode == 0
    assert command(*start, "--steps", "30", "--checkpoint", path, "--out", str(out)).returncode == 0
    pieces = out.read_text()
    assert command(*start, "--steps", "30", "--out", str(out)).returncode == 0
    assert out.read_text() == pieces
    done = command(*start, "--seed", "5", "--checkpoint", path, "--out", str(out))
    assert (done.returncode, done.stdout) == (2, "")
    assert "is a checkpoint of another run: seeds is" in done.stderr
    assert "try: delete it to begin anew, or name another file" in done.stderr


ENDLESS = """
import sys
import numpy as np
from bilevel_sym import AID, Perturbed, solve, zoo
problem = zoo.get("saddle", d=2).problem
algorithm = Perturbed(AID(3, 2, 0.5), eta=0.1, eps=0.3, r=0.1, T_escape=4)
print("begun", flush=True)
solution = solve(problem, algorithm, np.zeros((3, 2)), steps=int(sys.argv[2]), rng=3, backend=sys.argv[3],
                 checkpoint=sys.argv[1], checkpoint_every=20)
print(solution.x.tobytes().hex(), solution.trajectory.x.tobytes().hex())
"""


def killed(path: Path, times: int, backend: str, steps: int) -> None:
    """Kill a run at random moments, so many times; then let it end, and hold it against one that nobody killed."""
    draw, begun = random.Random(0), [sys.executable, "-c", ENDLESS, str(path), str(steps), backend]
    for _ in range(times):
        with subprocess.Popen(begun, stdout=subprocess.PIPE, cwd=ROOT) as process:
            assert process.stdout is not None
            process.stdout.readline()
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(draw.uniform(0.05, 0.6))
            process.send_signal(signal.SIGKILL)
        assert not path.exists() or read_checkpoint(path) is not None
    s = replace(SETTINGS["perturbed AID"], start=np.zeros((3, 2)), backend=backend, steps=steps)
    assert bits(solved(s, path)) == bits(solved(s))


@pytest.mark.slow
@pytest.mark.parametrize("backend", ["tape", "compiled"])
def test_kill_9_and_go_on(tmp_path: Path, backend: str) -> None:
    if backend == "compiled":
        pytest.importorskip("numba")
    killed(tmp_path / "run.checkpoint", 10 if THOROUGH else 4, backend, 3000)


@pytest.mark.slow
def test_sigterm_leaves_a_checkpoint_that_the_same_command_goes_on_from(tmp_path: Path) -> None:
    path, steps = tmp_path / "run.checkpoint", "10000"
    arguments = [
        "solve",
        "zoo:saddle",
        "--algorithm",
        "perturbed-exact",
        "--eps",
        "1e-12",
        "--steps",
        steps,
        "--format",
    ]
    begun = [sys.executable, "-m", "bilevel_sym", *arguments, "json"]
    kept = [*begun, "--checkpoint", str(path), "--checkpoint-every", "100"]
    with subprocess.Popen(kept, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT) as process:
        while not path.exists() and process.poll() is None:
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        process.send_signal(signal.SIGTERM)
        told = process.communicate()
    assert process.returncode == 143, told
    assert f"the same command goes on from {path}" in told[1]
    again = subprocess.run(kept, capture_output=True, text=True, check=False, cwd=ROOT)
    whole = subprocess.run(begun, capture_output=True, text=True, check=False, cwd=ROOT)
    assert again.returncode == whole.returncode
    assert json.loads(again.stdout) == json.loads(whole.stdout)
