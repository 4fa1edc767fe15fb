"""kill -9 at random moments: twenty here, a hundred by ``python -m benchmarks.campaigns --kills 100``."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

pytest.importorskip("distributed")
sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

from benchmarks.campaign_kills import EVERYBODY, kills, unlike_undisturbed

CLIENTS, OTHERS = 16, ("worker", "client of a cluster", "worker of a cluster", "scheduler")
COUNT = 12_000  # tasks, of which some thousands are computed between kills
PAUSE, SPAN, FLUSH = 0.002, 0.8, 0.1  # seconds: so short that many moments lie in the writing of parts
ORPHANS = 5.0


@pytest.mark.slow
def test_nothing_is_lost_doubled_or_torn_by_twenty_kills(tmp_path: Path) -> None:
    assert CLIENTS + len(OTHERS) == 20
    assert set(OTHERS) < set(EVERYBODY)
    victims = [victim for other in OTHERS for victim in (*["client"] * (CLIENTS // len(OTHERS)), other)]
    found = list(kills(tmp_path, victims, count=COUNT, pause=PAUSE, span=SPAN, flush=FLUSH))
    assert [kill.victim for kill in found] == victims
    assert [kill.failures for kill in found if kill.failures] == []
    assert max(kill.orphans for kill in found) < ORPHANS
    assert 0 < found[-1].rows < COUNT
    assert unlike_undisturbed(tmp_path, COUNT) == ""
