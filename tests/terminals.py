"""A command in a pseudo-terminal, as a person sees it: what appears, what colours it has, what Ctrl-C does."""

from __future__ import annotations

import fcntl
import os
import pty
import re
import select
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Self

ROOT = Path(__file__).resolve().parent.parent
PATIENCE = 120.0  # seconds: a busy machine must not fail a test

# the terminal becomes the process's own, so that ^C reaches it; where the tests run in the background, SIGINT is ignored
START = """
import fcntl, signal, sys, termios
fcntl.ioctl(0, termios.TIOCSCTTY, 0)
signal.signal(signal.SIGINT, signal.default_int_handler)
from bilevel_sym.cli import main
sys.exit(main())
"""
ESCAPE = re.compile(r"\x1b\[[0-9;]*m")


class Terminal:
    """Runs ``bilevel-sym`` with all three streams on a terminal, or with standard output in a file."""

    def __init__(
        self, *arguments: str, columns: int = 80, output: Path | None = None, cwd: Path | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> None:  # fmt: skip
        self.master, slave = pty.openpty()
        fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
        kept = {key: value for key, value in os.environ.items() if key not in ("NO_COLOR", "COLUMNS", "LINES")}
        environment = {**kept, "TERM": "xterm", "PYTHONPATH": str(ROOT), **(environment or {})}
        out = slave if output is None else os.open(output, os.O_WRONLY | os.O_CREAT | os.O_TRUNC)
        self.process = subprocess.Popen(
            [sys.executable, "-c", START, *arguments], stdin=slave, stdout=out, stderr=slave, env=environment,
            start_new_session=True, cwd=cwd,
        )  # fmt: skip
        os.close(slave)
        if out != slave:
            os.close(out)
        self.seen = ""

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()
        os.close(self.master)

    def wait_for(self, pattern: str) -> None:
        """Until this has appeared; fails with what did appear."""
        until = time.monotonic() + PATIENCE
        while not re.search(pattern, self.seen):
            assert self._read(until), f"{pattern!r} never appeared in {self.seen!r}"

    def press_ctrl_c(self) -> None:
        os.write(self.master, b"\x03")

    def finish(self) -> int:
        """The exit code, with everything shown in ``seen``."""
        until = time.monotonic() + PATIENCE
        while self._read(until):
            pass
        return self.process.wait(PATIENCE)

    def _read(self, until: float) -> bool:
        """Whether there was more."""
        ready, _, _ = select.select([self.master], [], [], max(0.0, until - time.monotonic()))
        assert ready, f"nothing more after {self.seen!r}"
        try:
            data = os.read(self.master, 65536)
        except OSError:  # all who could write have gone
            return False
        self.seen += data.decode()
        return bool(data)

    @property
    def lines(self) -> list[str]:
        """What stands on the screen in the end: colours away, and each return overwriting what was there."""
        screen = []
        for line in ESCAPE.sub("", self.seen).replace("\r\n", "\n").split("\n"):
            shown = ""
            for part in line.split("\r"):
                shown = part + shown[len(part) :]
            screen.append(shown.rstrip())
        while screen and not screen[-1]:
            screen.pop()
        return screen


def run(*arguments: str, columns: int = 80, environment: Mapping[str, str] | None = None) -> Terminal:
    """The command to its end."""
    with Terminal(*arguments, columns=columns, environment=environment) as terminal:
        terminal.finish()
    return terminal
