"""What the playground calls, in a fresh interpreter that is as poor as Pyodide: run as a program by ``test_playground.py``.

Modules that Pyodide 314 does not have are not found here either, and numba is not; processes, threads and sockets are
refused. Modules were listed by importing each name of ``sys.stdlib_module_names`` there.
"""

from __future__ import annotations

import _thread
import importlib.util
import json
import sys
import threading
from typing import Any

ABSENT = frozenset({
    "_multiprocessing", "_posixshmem", "curses", "dbm", "ensurepip", "grp", "llvmlite", "numba", "pwd", "pydoc_data",
    "readline", "resource", "syslog", "venv",
})  # fmt: skip
REFUSED = ("subprocess.", "os.fork", "os.posix_spawn", "os.exec", "os.system", "socket.")


class Poorer:
    """A finder that finds what another does, but for what is absent."""

    def __init__(self, finder: Any) -> None:
        self.finder = finder

    def find_spec(self, name: str, path: Any = None, target: Any = None) -> Any:
        return None if name.partition(".")[0] in ABSENT else self.finder.find_spec(name, path, target)


def refuse(event: str, _: tuple[object, ...]) -> None:
    if event.startswith(REFUSED):
        raise OSError(f"{event} in a browser")


def no_thread(*_: object, **__: object) -> None:
    raise RuntimeError("can't start new thread in a browser")


def main() -> None:
    for name in ABSENT & set(sys.modules):
        del sys.modules[name]
    sys.meta_path[:] = [Poorer(finder) for finder in sys.meta_path]
    sys.addaudithook(refuse)
    _thread.start_new_thread = threading._start_new_thread = no_thread  # type: ignore[assignment,attr-defined]
    from verify.reporting.glimpse import glimpse

    pages = [glimpse(**given) for given in json.loads(sys.stdin.read())]
    held = [
        _tried("import subprocess; subprocess.run(['true'])"),
        _tried("import threading; threading.Thread(target=print).start()"),
    ]
    print(json.dumps({"pages": pages, "held": held, "numba": importlib.util.find_spec("numba") is not None}))


def _tried(code: str) -> str:
    """What comes of it: the hook must hold, or the test shows nothing."""
    try:
        exec(code, {})  # the two lines above
    except (OSError, RuntimeError) as error:
        return str(error)
    return "it ran"


if __name__ == "__main__":
    main()
