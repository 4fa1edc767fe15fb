"""Functions that tests of campaigns name as tasks: in workers they are imported from here."""

from __future__ import annotations

import ctypes
import os
import signal
import time
from pathlib import Path
from typing import Any


def shifted(problem: Any, seed: int, width: float = 1.0) -> dict[str, Any]:
    """Several kinds of columns; ``width`` is a parameter too."""
    return {
        "total": problem.d + seed,
        "half": seed / 2,
        "even": seed % 2 == 0,
        "name": problem.name,
        "width": width,
        "path": [0.5, seed],
    }


def number(seed: int) -> float:
    return seed * 0.1


def noted(seed: int, log: str) -> int:
    """Leaves a line for every call."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{seed} {os.getpid()}\n")
    return seed


def failing(seed: int) -> int:
    if seed % 3 == 1:
        raise ZeroDivisionError(f"seed {seed}\x1b[2J cannot be divided")
    if seed % 3 == 2:
        raise SystemExit("leaving")
    return seed


def odd(seed: int) -> object:
    return object()


def mixed(seed: int) -> Any:
    return [1, 0.5, "text", None, True, 2.0][seed % 6]


def lists(seed: int) -> Any:
    return {"numbers": [float(k) for k in range(seed)], "texts": ["a"] * seed}


def dying(seed: int, log: str) -> int:
    """The third one takes its worker with it, always; the fifth one once."""
    with Path(log).open("a", encoding="utf-8") as file:
        file.write(f"{seed}\n")
    if seed == 3 or (seed == 5 and Path(log).read_text(encoding="utf-8").split().count("5") == 1):
        os._exit(1)
    return seed


def sleeping(seed: int, pause: float) -> int:
    time.sleep(pause)
    return seed


def holding(seed: int, pause: float) -> int:
    """Python's lock is held: no other thread of the process does anything."""
    ctypes.PyDLL(None).sleep(int(pause))
    return seed


def interrupting(seed: int) -> int:
    if seed == 3:
        raise KeyboardInterrupt
    return seed


def swallowing(seed: int) -> int:
    """What Ctrl-C does to a search."""
    try:
        signal.raise_signal(signal.SIGINT)
    except KeyboardInterrupt:
        return seed
    return -1


def slow_failure(seed: int) -> int:
    time.sleep(0.4)
    raise ValueError(f"seed {seed}")
