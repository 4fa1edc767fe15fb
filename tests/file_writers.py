"""Where the packages write files, or change folders: what ``test_architecture`` looks for.

``writing`` alone does; ``locking`` holds a file that says who holds it, ``plotting/style`` draws into memory, ``cli/screen`` sends what nobody reads any more to the
null device, and numba's cache is written by numba, into a folder and under permissions that ``arithmetic/compiled/cache`` chooses.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

DOOR = "bilevel_sym/system/writing.py"
EXCEPTIONS = {
    ("bilevel_sym/plotting/style.py", "savefig"), ("bilevel_sym/cli/screen.py", "os.open(os.devnull)"),
    ("bilevel_sym/system/locking.py", "os.open(path)"), ("bilevel_sym/system/locking.py", "pwrite"),
    ("bilevel_sym/arithmetic/compiled/cache.py", "chmod"), ("bilevel_sym/arithmetic/compiled/cache.py", "mkdir"),
}  # fmt: skip
MODULES = {"tempfile", "fileinput", "mmap"}
# methods and functions that write, whatever they are called on
WRITERS = {
    "write_text", "write_bytes", "savefig", "imsave", "savez", "savez_compressed", "savetxt", "tofile", "dump", "mkdir",
    "makedirs", "touch", "unlink", "rmdir", "removedirs", "rename", "renames", "symlink", "symlink_to", "hardlink_to",
    "truncate", "ftruncate", "chmod", "copyfile", "copyfileobj", "copytree", "copymode", "copystat", "copy2",
    "rmtree", "mkfifo", "mknod", "pwrite", "NamedTemporaryFile", "mkstemp", "memmap", "open_memmap", "FileIO",
}  # fmt: skip
OPENERS = {"open", "fdopen"}
WORDS = re.compile(
    rf"\b({'|'.join(sorted(WRITERS | OPENERS | {'save', 'copy', 'move', 'remove', 'replace'}))})\(|\b({'|'.join(sorted(MODULES))})\b"
)


def writers(root: Path) -> list[str]:
    """``file:line what`` for everything in the packages that writes a file and is not the one door."""
    found = []
    for package in ("bilevel_sym", "verify"):
        for path in sorted((root / package).rglob("*.py")):
            name = path.relative_to(root).as_posix()
            if name != DOOR:
                source = path.read_text(encoding="utf-8")
                tree = ast.parse(source if WORDS.search(source) else "")  # few files speak of any of it
                found += [f"{name}:{line} {what}" for line, what in _writes(tree) if (name, what) not in EXCEPTIONS]
    return found


def _writes(tree: ast.AST) -> Iterator[tuple[int, str]]:
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            yield from ((node.lineno, alias.name) for alias in node.names if alias.name in MODULES)
        elif isinstance(node, ast.ImportFrom) and node.module in MODULES:
            yield node.lineno, node.module
        elif isinstance(node, ast.Call) and (what := _written(node)):
            yield node.lineno, what


def _written(call: ast.Call) -> str:
    function = call.func
    if isinstance(function, ast.Name):
        name, owner = function.id, ""
    elif isinstance(function, ast.Attribute):
        name, owner = function.attr, ast.unparse(function.value)
    else:
        return ""
    if name in WRITERS or (name, owner) in (
        ("save", "np"),
        ("save", "numpy"),
        ("copy", "shutil"),
        ("move", "shutil"),
        ("remove", "os"),
    ):
        return name
    if name == "replace" and (owner == "os" or (owner and len(call.args) == 1 and not call.keywords)):
        return name  # of text it has two arguments
    if (name, owner) == ("open", "os"):
        return f"os.open({ast.unparse(call.args[0])})"
    if name in OPENERS and not _is_reading(call, method=bool(owner) and owner not in ("io", "os", "codecs", "gzip")):
        return name
    return ""


def _is_reading(call: ast.Call, *, method: bool) -> bool:
    given = call.args[0 if method else 1 :][:1] or [word.value for word in call.keywords if word.arg == "mode"]
    if not given:
        return True
    mode = given[0]
    return isinstance(mode, ast.Constant) and isinstance(mode.value, str) and not set(mode.value) & set("wax+")
