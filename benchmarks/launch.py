"""One core for everybody: starting the processes that measure. Imports nothing heavy."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
from contextlib import suppress
from pathlib import Path
from typing import Any

__all__ = ["Failed", "limit", "pin", "run"]

ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "NUMBA_NUM_THREADS": "1",
    "XLA_FLAGS": "--xla_cpu_multi_thread_eigen=false intra_op_parallelism_threads=1",
    "JAX_PLATFORMS": "cpu",
}
PATIENCE = 300  # seconds for one process


class Failed(Exception):
    """A measuring process ended without a result; the message ends with the last line that it printed."""


def pin() -> str:
    """Keep this process and its children on one core, where the system can; say what was done."""
    if not hasattr(os, "sched_setaffinity"):
        return "not pinned to a core (this system cannot); one thread each"
    core = max(os.sched_getaffinity(0))
    os.sched_setaffinity(0, {core})
    return f"pinned to core {core}, one thread each"


def limit(seconds: int) -> None:
    """Let this process take so much processor time and no more, where the system can see to it."""
    with suppress(ImportError):
        import resource

        resource.setrlimit(resource.RLIMIT_CPU, (seconds, seconds + 5))


def run(module: str, *arguments: str, patience: float = PATIENCE) -> dict[str, Any]:
    """Run ``python -m benchmarks.<module> arguments`` with one thread, and read the JSON on its last line."""
    command = [sys.executable, "-m", f"benchmarks.{module}", *arguments]
    root = Path(__file__).resolve().parent.parent
    environment = {**os.environ, **ONE_THREAD}
    try:
        done = subprocess.run(
            command, cwd=root, env=environment, capture_output=True, text=True, check=False, timeout=patience
        )
    except subprocess.TimeoutExpired:
        raise Failed(f"{' '.join(arguments)}: no result after {patience:g} s") from None
    if done.returncode == -getattr(signal, "SIGXCPU", 0) != 0:
        raise Failed(f"{' '.join(arguments)}: no result within the processor time that it may take")
    if done.returncode != 0:
        *_, last = ["no message", *done.stderr.strip().splitlines()]
        raise Failed(f"{' '.join(arguments)}: exit code {done.returncode}, {last}")
    result: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return result
