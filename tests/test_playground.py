"""The playground: what it calls, as poor as a browser, and its page."""

from __future__ import annotations

import html
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from verify.reporting.glimpse import glimpse

ROOT = Path(__file__).resolve().parent.parent
SADDLE: dict[str, Any] = {
    "f": "x1*y1 + x2*y2 - y1**2",
    "g": "(y1**2 + y2**2)/2 + y1**4/4 - x1*y1 - x2*y2",
    "x": "x1 x2",
    "y": "y1 y2",
}
GIVEN: list[dict[str, Any]] = [
    {"f": "x*y + y", "g": "(1 + x**2)*y**2/2 - x*y", "x": "x", "y": "y", "box_x": "-3, 3", "box_y": "-1, 1", "at": "1/3", "digits": 40},
    SADDLE | {"box_x": "-2, 2", "box_y": "-2, 2", "at": "0.1, 0"},
    {"f": "x**2 + x*y - y**2", "g": "", "x": "x", "y": "y", "box_x": "-1, 1", "box_y": "-1, 1", "at": "1/2"},
]  # fmt: skip
HOSTILE = "</pre><script>alert(1)</script><img src=x onerror=alert(2)>"


@pytest.mark.slow
def test_it_works_without_numba_threads_processes_and_sockets() -> None:
    command = [sys.executable, str(ROOT / "tests" / "as_in_a_browser.py")]
    done = subprocess.run(
        command, input=json.dumps(GIVEN), capture_output=True, text=True, check=False, cwd=ROOT, timeout=300
    )
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout)
    assert all("in a browser" in refused for refused in found["held"]), found["held"]
    assert not found["numba"]
    for page in found["pages"]:
        assert page.count("<math") >= 2
        assert page.count("<svg") == 1
        assert 'class="absent"' not in page
    scalar, _, minimax = found["pages"]
    assert "0.4000000000000000000000000000000000000000" in scalar  # (1 + x)*x/(1 + x**2) at 1/3
    assert "0.3125" in minimax  # 5 x**2/4 at 1/2


@pytest.mark.parametrize("where", ["f", "g", "x", "y", "box_x", "box_y", "at"])
def test_hostile_text_is_said_and_is_no_markup(where: str) -> None:
    page = glimpse(**(GIVEN[0] | {where: HOSTILE}))
    assert "<script" not in page
    assert "<img" not in page
    assert "alert" in page or where == "at"


@pytest.mark.parametrize(
    ("wrong", "said"),
    [({"f": "x*z"}, "z"), ({"box_x": "1"}, "two ends"), ({"box_x": "3, -3"}, "empty"), ({"digits": 0}, "between 1"), ({"at": ""}, "no point")],
)  # fmt: skip
def test_what_is_wrong_is_said_on_the_page(wrong: dict[str, Any], said: str) -> None:
    assert said in html.unescape(glimpse(**(GIVEN[0] | wrong)))
