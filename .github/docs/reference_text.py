"""From docstrings and signatures to Markdown."""

from __future__ import annotations

import ast
import builtins
import doctest
import functools
import importlib
import inspect
import re
import textwrap
import typing
from types import ModuleType
from typing import Any

from reference_pages import PACKAGES, TYPES, is_ours, links, module_of, places, public_name, resolve

WIDTH = 100  # of a signature, before it is broken into lines
KEYWORDS = "Paper|Assumes|Deviation|Reference|Needs|Cause"

# ---- what stands in the source ---------------------------------------------------------------------------------------


def docstring(value: Any) -> str:
    """The docstring of a class or a function itself, and not what it inherits from elsewhere."""
    return inspect.cleandoc(value.__doc__) if isinstance(getattr(value, "__doc__", None), str) else ""


@functools.cache
def _tree(module: str) -> ast.Module:
    return ast.parse(inspect.getsource(module_of(module)))


@functools.cache
def defined(module: str, name: str) -> tuple[str, ast.expr | ast.ClassDef, str] | None:
    """Where a name of a module is made: that module, its value or class, and the text that stands below."""
    body = _tree(module).body
    for node, after in zip(body, [*body[1:], None], strict=True):
        if isinstance(node, ast.ClassDef) and node.name == name:
            return module, node, ""
        target = node.targets[0] if isinstance(node, ast.Assign) else getattr(node, "target", None)
        if isinstance(target, ast.Name) and target.id == name and (value := getattr(node, "value", None)) is not None:
            text = after.value if isinstance(after, ast.Expr) else None
            return module, value, inspect.cleandoc(str(text.value)) if isinstance(text, ast.Constant) else ""
    for found in ast.walk(_tree(module)):  # imports for the type checker alone stand inside an if
        if isinstance(found, ast.ImportFrom) and found.module and any(a.name == name for a in found.names):
            ours = found.module.partition(".")[0] in PACKAGES
            return defined(found.module, name) if ours else None
    return None


def data_docstring(dotted: str) -> str:
    """The text that stands below an assignment, in the module that makes it."""
    found = defined(*dotted.rpartition(".")[::2])
    return "" if found is None else found[2]


def type_notes(text: str, *modules: str) -> list[str]:
    """Types in a signature that have no entry of their own: what an alias stands for, what a class is."""
    bare = re.sub(r"'[^']*'|\w+(?:\.\w+)+", "", text)
    notes = []
    for word in dict.fromkeys(re.findall(r"(?:[:|\[,>] ?)([A-Z_]\w*)", bare)):
        found = None if word in TYPES else next(filter(None, (defined(module, word) for module in modules)), None)
        if found is None or f"{word}:" in bare:
            continue
        home, node, _ = found
        if isinstance(node, ast.ClassDef):
            if public_name(resolve(f"{home}.{word}")) is None:
                notes.append(f"{word}: {sentence(docstring(resolve(f'{home}.{word}')))}".replace("``", ""))
        else:
            notes.append(f"{word} = {ast.unparse(node)}")
    return notes


# ---- prose and examples ----------------------------------------------------------------------------------------------


def markdown(text: str, here: str, module: str) -> str:
    """A docstring as Markdown: examples fenced, double backticks as code, each keyword a paragraph of its own."""
    parts = re.split(r"^(>>> (?:.+\n?)*)", text + "\n", flags=re.M)
    pieces = []
    for k, part in enumerate(parts):
        if k % 2:
            own = re.match(r"(?:>>> from \S+ import .*\n)*", part)
            head = own[0] if own and k == 1 else ""
            imports = _merged([*missing_imports(text, module), *_froms(head)]) if k == 1 else []
            pieces.append(
                "\n".join(["```pycon", *(f">>> {line}" for line in imports), part[len(head) :].rstrip(), "```"])
            )
        elif part.strip():
            pieces.append(_prose(part.strip("\n"), here))
    return "\n\n".join(pieces)


def missing_imports(text: str, module: str) -> list[tuple[str, str]]:
    """What an example takes from the module that it stands in, as imports (from, name): so that it can be pasted."""
    tree = ast.parse("".join(example.source for example in doctest.DocTestParser().get_examples(text)))
    nodes = list(ast.walk(tree))
    bound = {n.id for n in nodes if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    bound |= {n.name for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)}
    bound |= {a.asname or a.name for n in nodes if isinstance(n, ast.Import | ast.ImportFrom) for a in n.names}
    bound |= {n.arg for n in nodes if isinstance(n, ast.arg)}
    used = {n.id for n in nodes if isinstance(n, ast.Name)} - bound - set(vars(builtins))
    space = vars(module_of(module))
    return [_import_of(name, space) for name in used if name in space]


def _import_of(name: str, space: dict[str, Any]) -> tuple[str, str]:
    value = space[name]
    if isinstance(value, ModuleType):
        return "", value.__name__ if value.__name__ == name else f"{value.__name__} as {name}"
    public = (d.rpartition(".")[0] for d in places() if d.rpartition(".")[2] == name and resolve(d) is value)
    public = (module_of(home).__name__ for home in public)  # where it lives that a package shows as its own
    home = next(public, getattr(value, "__module__", None) or str(space["__name__"]))
    package = importlib.import_module(home.partition(".")[0])
    return package.__name__ if getattr(package, name, None) is value else home, name


def _froms(lines: str) -> list[tuple[str, str]]:
    """The imports that an example begins with; what is public is taken from where it is public."""
    found = [
        (home, n) for home, names in re.findall(r"^>>> from (\S+) import (.*)$", lines, re.M) for n in names.split(", ")
    ]
    return [_public(home, name) if home.partition(".")[0] in PACKAGES else (home, name) for home, name in found]


def _public(home: str, name: str) -> tuple[str, str]:
    value = getattr(module_of(home), name)
    return (home, name) if isinstance(value, ModuleType) else _import_of(name, {name: value, "__name__": home})


def _merged(found: list[tuple[str, str]]) -> list[str]:
    plain = [f"import {name}" for home, name in sorted(found) if not home]
    homes = sorted({home for home, _ in found if home})
    return [*plain, *(f"from {home} import {', '.join(sorted({n for h, n in found if h == home}))}" for home in homes)]


def _prose(text: str, here: str) -> str:
    text = re.sub(rf"^({KEYWORDS}):", r"\n**\1:**", text, flags=re.M).strip("\n")
    pieces = re.split(r"``(.+?)``", re.sub(r"\n{3,}", "\n\n", text))
    return "".join(code(piece, here) if k % 2 else _escaped(piece) for k, piece in enumerate(pieces))


def _escaped(text: str) -> str:
    kept = re.split(r"(\*\*\w+:\*\*)", text)
    return "".join(part if k % 2 else re.sub(r"([*<\\|])", r"\\\1", part) for k, part in enumerate(kept))


def code(words: str, here: str) -> str:
    """Words as code, with a link where they name something that is documented elsewhere."""
    place = links().get(words)
    return f"`{words}`" if place is None or words.endswith(here) else f"[`{words}`]({place})"


def summary(dotted: str) -> str:
    """The first sentence about a name, in one line."""
    value = resolve(dotted)
    text = docstring(value) if callable(value) and is_ours(value) else data_docstring(dotted)
    return _prose(sentence(text), "*")


def sentence(text: str) -> str:
    """The first sentence."""
    return re.split(r"(?<=[.?]) (?=[A-Z`])", text.partition("\n\n")[0].replace("\n", " "))[0]


# ---- signatures ------------------------------------------------------------------------------------------------------


def shown(text: str, *modules: str) -> str:
    """A signature in its fence, with what its types mean in the modules that it comes from."""
    wrapped = (
        line
        for note in type_notes(text, *modules)
        for line in textwrap.wrap(note, 108, initial_indent="# ", subsequent_indent="#     ")
    )
    return "\n".join(["```python", text, *wrapped, "```\n"])


def type_text(annotation: Any) -> str:
    """An annotation as it is written in the source."""
    if isinstance(annotation, typing.ForwardRef):
        return annotation.__forward_arg__
    if isinstance(annotation, str):
        return annotation.strip("'\"")
    return getattr(annotation, "__name__", str(annotation)) if isinstance(annotation, type) else str(annotation)


def default_text(value: Any) -> str:
    """A default without anything of the machine."""
    if " at 0x" in repr(value) or callable(value):
        return getattr(value, "__name__", type(value).__name__)
    return "..." if repr(value) == "<factory>" else repr(value)


def signature(name: str, value: Any, *, bound: bool = False) -> str:
    """name(arguments) -> type, on several lines where it is long."""
    try:
        found = inspect.signature(value)
    except (TypeError, ValueError):
        return name
    words, starred = [], False
    parameters = list(found.parameters.values())[1 if bound else 0 :]
    for p in parameters:
        if p.kind is p.VAR_POSITIONAL or (p.kind is p.KEYWORD_ONLY and not starred):
            starred = True
            if p.kind is p.KEYWORD_ONLY:
                words.append("*")
        mark = "*" * (p.kind is p.VAR_POSITIONAL) + "**" * (p.kind is p.VAR_KEYWORD)
        typed = "" if p.annotation is p.empty else f": {type_text(p.annotation)}"
        equals = " = " if typed else "="
        words.append(f"{mark}{p.name}{typed}" + ("" if p.default is p.empty else equals + default_text(p.default)))
    returns = found.return_annotation
    arrow = "" if returns is found.empty or isinstance(value, type) else f" -> {type_text(returns)}"
    line = f"{name}({', '.join(words)}){arrow}"
    return line if len(line) <= WIDTH else "\n".join([f"{name}(", *(f"    {word}," for word in words), f"){arrow}"])
