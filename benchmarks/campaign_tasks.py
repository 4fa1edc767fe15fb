"""Tasks of the benchmarks of campaigns; how long they pause, and where they say so, is no part of what they compute."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import Any

__all__ = ["LOG", "PAUSE", "busy", "nothing", "pausing", "result"]

PAUSE, LOG = "CAMPAIGN_PAUSE", "CAMPAIGN_LOG"  # in the environment: seconds, and a file


def result(seed: int) -> dict[str, Any]:
    """What ``pausing`` computes."""
    return {"third": seed / 3, "even": seed % 2 == 0, "word": f"seed {seed}", "path": [0.1 * seed, 1.0]}


def pausing(seed: int) -> dict[str, Any]:
    """Pause without a processor, and note when that was over: seed, process and moment."""
    time.sleep(float(os.environ.get(PAUSE, "0")))
    if log := os.environ.get(LOG):
        with Path(log).open("a", encoding="utf-8") as file:
            file.write(f"{seed} {os.getpid()} {time.time()}\n")
    return result(seed)


def busy(seed: int) -> float:
    """As long, with a processor."""
    end = time.perf_counter() + float(os.environ.get(PAUSE, "0"))
    total = 0.0
    while time.perf_counter() < end:
        total = seed / 3
    return total


def nothing(seed: int) -> dict[str, float]:
    """Eight numbers at once."""
    return {f"r{k}": seed / (k + 1) for k in range(8)}
