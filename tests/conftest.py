"""Hypothesis profiles: ``dev`` (default), ``ci`` (where CI is set) and ``thorough`` (before a release)."""

import gc
import os
import sys
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, Phase, settings

# symbolic work is uneven: a deadline would report SymPy's garbage collection, not our bugs; and to explain a failure
# takes a hundred examples more, which ``find`` spends on every success
_COMMON = {
    "deadline": None,
    "suppress_health_check": [HealthCheck.too_slow],
    "print_blob": True,
    "phases": [phase for phase in Phase if phase is not Phase.explain],
}
settings.register_profile("dev", max_examples=15, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("ci", max_examples=25, derandomize=True, **_COMMON)  # type: ignore[arg-type]
settings.register_profile("thorough", max_examples=1000, **_COMMON)  # type: ignore[arg-type]
settings.load_profile("ci" if os.environ.get("CI") else "dev")


def pytest_collection_finish() -> None:
    """What was collected stays to the end: the garbage collector need not look at it again and again."""
    gc.collect()
    gc.freeze()


@pytest.fixture(autouse=True)
def _jax_as_it_was() -> Iterator[None]:
    """JAX's precision is a setting of the process: no test leaves it changed for the next."""
    before = sys.modules["jax"].config.jax_enable_x64 if "jax" in sys.modules else False
    yield
    if "jax" in sys.modules:
        sys.modules["jax"].config.update("jax_enable_x64", before)
