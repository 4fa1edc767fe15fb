"""Debian's Chromium without a window, driven through the pipe of its DevTools protocol: the standard library is enough."""

from __future__ import annotations

import base64
import json
import os
import shutil
import subprocess
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

__all__ = ["COMMAND", "Tab", "browser"]

COMMAND = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
FLAGS = (
    "--headless=new", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", "--hide-scrollbars", "--no-first-run",
    "--disable-background-networking", "--disable-extensions", "--host-resolver-rules=MAP * ~NOTFOUND",
    "--force-color-profile=srgb", "--remote-debugging-pipe",
)  # fmt: skip
KEYS: Mapping[str, tuple[int, str]] = {"Tab": (9, ""), "Enter": (13, "\r"), "Space": (32, " "), "ArrowDown": (40, "")}
DOMAINS = ("Page", "Runtime", "Network", "Log")
LONGEST_WAIT = 30  # seconds, after which the pipe is closed and a test fails


@dataclass
class Tab:
    """One tab, with all that happened in it.

    - ``sent``, ``heard``: the two ends of the pipe.
    - ``session``: of the protocol.
    - ``events``: everything the browser told, in order.
    """

    sent: IO[bytes]
    heard: IO[bytes]
    session: str = ""
    events: list[dict[str, Any]] = field(default_factory=list)
    count: int = 0

    def call(self, method: str, **parameters: object) -> dict[str, Any]:
        """Call a method of the protocol and wait for its answer; dialogs are answered on the way."""
        number = self._send(method, parameters)
        while (message := self._next()).get("id") != number:
            self._keep(message)
        if "error" in message:
            raise RuntimeError(f"{method}: {message['error']}")
        return dict(message["result"])

    def open(self, address: str) -> None:
        """Load a page, and wait until all of it is there."""
        before = len(self.events)
        self.call("Page.navigate", url=address)
        while not any(event["method"] == "Page.loadEventFired" for event in self.events[before:]):
            self._keep(self._next())
        self.settle()

    def settle(self) -> None:
        """Wait until what the page has begun is done: two frames are drawn."""
        self.run("new Promise(done => requestAnimationFrame(() => requestAnimationFrame(() => done(0))))")

    def run(self, script: str) -> Any:
        """The value of an expression of JavaScript; a promise is waited for."""
        found = self.call("Runtime.evaluate", expression=script, returnByValue=True, awaitPromise=True)
        if "exceptionDetails" in found:
            raise RuntimeError(str(found["exceptionDetails"]))
        return found["result"].get("value")

    def press(self, key: str, times: int = 1) -> None:
        """Press a key, as a person would."""
        code, text = KEYS[key]
        for _ in range(times):
            for kind in ("keyDown", "keyUp"):
                self.call(
                    "Input.dispatchKeyEvent", type=kind, key=" " if key == "Space" else key, code=key,
                    windowsVirtualKeyCode=code, text=text if kind == "keyDown" else "",
                )  # fmt: skip

    def write(self, text: str) -> None:
        """Type a text where the focus is."""
        self.call("Input.insertText", text=text)

    def look(self, width: int, *, dark: bool = False, height: int = 900, medium: str = "screen") -> None:
        """Be a window of that width, or a sheet of paper, in light or dark."""
        scheme = {"name": "prefers-color-scheme", "value": "dark" if dark else "light"}
        self.call("Emulation.setEmulatedMedia", media=medium, features=[scheme])
        self.call("Emulation.setDeviceMetricsOverride", width=width, height=height, deviceScaleFactor=1, mobile=False)

    def picture(self, path: Path) -> None:
        """The whole page as a PNG."""
        made = self.call("Page.captureScreenshot", format="png", captureBeyondViewport=True)
        path.write_bytes(base64.b64decode(made["data"]))

    def pdf(self) -> bytes:
        """The page on paper."""
        self.call("Emulation.setEmulatedMedia", media="", features=[])
        return base64.b64decode(self.call("Page.printToPDF", printBackground=True, preferCSSPageSize=True)["data"])

    def listen(self, session: str) -> None:
        """Hear what happens in a frame of the page, which may be a process of its own, before anything happens there."""
        for domain in DOMAINS:
            self._send(f"{domain}.enable", {}, session)
        self._send("Runtime.runIfWaitingForDebugger", {}, session)

    def told(self, *methods: str) -> list[dict[str, Any]]:
        """What the browser told by these methods."""
        return [event["params"] for event in self.events if event["method"] in methods]

    def _send(self, method: str, parameters: Mapping[str, object], session: str = "") -> int:
        self.count += 1
        message: dict[str, object] = {"id": self.count, "method": method, "params": parameters}
        if session := session or self.session:
            message["sessionId"] = session
        self.sent.write(json.dumps(message).encode() + b"\0")
        self.sent.flush()
        return self.count

    def _next(self) -> dict[str, Any]:
        letters = bytearray()
        while (letter := self.heard.read(1)) != b"\0":
            if not letter:
                raise RuntimeError("the browser has gone")
            letters += letter
        return dict(json.loads(letters))

    def _keep(self, message: dict[str, Any]) -> None:
        if "method" not in message:
            return
        self.events.append(message)
        if message["method"] == "Page.javascriptDialogOpening":
            self._send("Page.handleJavaScriptDialog", {"accept": True}, message.get("sessionId", ""))
        elif message["method"] == "Target.attachedToTarget":
            self.listen(message["params"]["sessionId"])


@contextmanager
def browser(profile: Path, flags: Sequence[str] = FLAGS) -> Iterator[Tab]:
    """A browser with one tab that listens to dialogs, requests, errors and what the page logs."""
    assert COMMAND is not None
    (theirs_in, ours_out), (ours_in, theirs_out) = os.pipe(), os.pipe()
    line = f'exec "$@" 3<&{theirs_in} 4>&{theirs_out}'  # the protocol reads at 3 and writes at 4
    started = subprocess.Popen(
        ["timeout", "300", "bash", "-c", line, "chromium", COMMAND, *flags, f"--user-data-dir={profile}", "about:blank"],
        pass_fds=(theirs_in, theirs_out), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    os.close(theirs_in)
    os.close(theirs_out)
    with os.fdopen(ours_out, "wb") as sent, os.fdopen(ours_in, "rb") as heard:
        tab = Tab(sent, heard)
        target = tab.call("Target.createTarget", url="about:blank")["targetId"]
        tab.session = tab.call("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        tab.call("Target.setAutoAttach", autoAttach=True, waitForDebuggerOnStart=True, flatten=True)
        for domain in (*DOMAINS, "Accessibility"):
            tab.call(f"{domain}.enable")
        try:
            yield tab
        finally:
            tab.session = ""
            tab.call("Browser.close")
            started.wait(LONGEST_WAIT)
