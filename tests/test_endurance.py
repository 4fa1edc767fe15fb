"""The long exercises of ``benchmarks.endurance`` in short, and that each of them can fail."""

from __future__ import annotations

import random
import sys
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks import endurance
from bilevel_sym.kernels import Kernels
from bilevel_sym.problem.problem import BilevelProblem


@pytest.mark.slow
@pytest.mark.parametrize("name", endurance.EXERCISES)
def test_a_small_part_of_each(name: str) -> None:
    found = endurance.exercise(name, share=0.01)
    assert found.tried >= 1
    assert found.failures == []


def test_a_wrong_hypergradient_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    right = Kernels.grad_phi
    monkeypatch.setattr(Kernels, "grad_phi", lambda self, x: 1.01 * right(self, x) + 0.01)
    (failure,) = endurance.problems(1, random.Random(0))
    assert "is not the slope of Phi" in str(failure)


def test_an_untyped_error_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*_: object, **__: object) -> None:
        raise KeyError("oops")

    monkeypatch.setattr(BilevelProblem, "__init__", broken)
    for name in ("problems", "texts"):
        assert len(endurance.exercise(name, share=0.001).failures) >= 1


def test_other_bits_are_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    days = iter("aab")
    monkeypatch.setattr(endurance, "_day", lambda folder: next(days))
    assert list(endurance.rounds(3, random.Random(0)))[:2] == [None, None]


def test_growing_memory_is_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    sizes = iter([0.0, 10.0, 99.0])
    monkeypatch.setattr(endurance, "megabytes", lambda: next(sizes))

    def ten(count: int, rng: random.Random) -> Iterator[None]:
        yield from np.full(10, None)

    monkeypatch.setattr(endurance, "EXERCISES", {"ten": (ten, 10)})
    assert endurance.exercise("ten").failures == ["memory grew by 89 MB"]
