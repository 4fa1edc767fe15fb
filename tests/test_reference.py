"""The API reference: nothing public is forgotten, every name has an example, the pages are up to date."""

from __future__ import annotations

import builtins
import collections.abc
import doctest
import importlib
import inspect
import re
import sys
import typing
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
from documentation import ROOT, broken_links, fenced
from import_flow import ROOMS, VERIFY_ROOMS

import verify
from bilevel_sym import zoo

SCRIPT = ROOT / ".github" / "docs" / "reference.py"
API = SCRIPT.parent / "api"
PUBLIC = ("bilevel_sym", "verify")
SUBMODULES = (
    "bilevel_sym.campaigns", "bilevel_sym.errors", "bilevel_sym.paper", "bilevel_sym.plotting", "bilevel_sym.schedules", "bilevel_sym.zoo",
    "verify.gallery", "verify.plotting", "verify.strategies",
)  # fmt: skip


def load() -> Any:
    sys.path.insert(0, str(SCRIPT.parent))
    return importlib.import_module("reference")


reference = load()
ENTRIES: list[str] = [dotted for page in reference.PAGES for dotted in page.entries]
FILES = [f"{page.file}.md" for page in reference.PAGES]


def public_names() -> set[str]:
    found = set()
    for home in (*PUBLIC, *SUBMODULES):
        module = reference.module_of(home)
        for name in module.__all__:
            if isinstance(getattr(module, name), ModuleType):
                assert f"{home}.{name}" in SUBMODULES, f"{home}.{name} is public, but has no page"
            else:
                found.add(f"{home}.{name}")
    return found


def extension_names() -> set[str]:
    """What extensions are built on, and a page of its own lists: offered by a room, and shown by neither package."""
    (page,) = (page for page in reference.PAGES if page.file == "extending")
    for dotted in page.entries:
        home, _, name = dotted.rpartition(".")
        assert name in reference.module_of(home).__all__, f"{home} does not offer {name}"
        assert not any(name in reference.module_of(package).__all__ for package in PUBLIC), dotted
    return set(page.entries)


def test_no_public_name_is_forgotten_and_none_stands_twice() -> None:
    """Both ways: what is public has an entry, and what has an entry is public."""
    assert len(ENTRIES) == len(set(ENTRIES))
    assert set(ENTRIES) - public_names() == extension_names()
    assert public_names() - set(ENTRIES) == set()


@pytest.mark.parametrize("entry", ["bilevel_sym.solvers.loop.solve", "verify.study.SHARES", "bilevel_sym.nonsense"])
def test_a_planted_entry_of_what_is_not_public_is_caught(monkeypatch: pytest.MonkeyPatch, entry: str) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ENTRIES", [*ENTRIES, entry])
    with pytest.raises(AssertionError):
        test_no_public_name_is_forgotten_and_none_stands_twice()


def test_a_planted_public_name_without_an_entry_is_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules[__name__], "ENTRIES", [d for d in ENTRIES if d != "bilevel_sym.solve"])
    with pytest.raises(AssertionError):
        test_no_public_name_is_forgotten_and_none_stands_twice()


def test_the_pages_are_up_to_date() -> None:
    assert reference.outdated(API) == [], "python .github/docs/reference.py"


def test_a_change_makes_a_page_outdated(tmp_path: Path) -> None:
    for name, text in reference.texts().items():
        (tmp_path / name).write_text(text, encoding="utf-8")
    assert reference.outdated(tmp_path) == []
    (tmp_path / "solve.md").write_text("changed", encoding="utf-8")
    (tmp_path / "more.md").write_text("does not belong", encoding="utf-8")
    (tmp_path / "zoo.md").unlink()
    assert reference.outdated(tmp_path) == ["more.md", "solve.md", "zoo.md"]


def described(dotted: str) -> str:
    value = reference.resolve(dotted)
    known = callable(value) and reference.is_ours(value)
    return str(reference.docstring(value) if known else reference.data_docstring(dotted))


@pytest.mark.parametrize("dotted", ENTRIES)
def test_every_name_is_described_and_has_an_example(dotted: str) -> None:
    text, value = described(dotted), reference.resolve(dotted)
    assert text, f"{dotted} has no docstring"
    if callable(value) and reference.is_ours(value):  # data has no place for one
        assert ">>>" in text, f"{dotted} has no example"


@pytest.mark.parametrize("dotted", [d for d in ENTRIES if inspect.isclass(reference.resolve(d))])
def test_every_member_is_described(dotted: str) -> None:
    for name, member, _ in reference.members(reference.resolve(dotted)):
        function = getattr(member, "fget", None) or getattr(member, "func", None) or getattr(member, "__func__", member)
        assert reference.docstring(function), f"{dotted}.{name}"


def test_no_page_depends_on_the_machine() -> None:
    for name, text in reference.texts().items():
        for trace in (
            " at 0x",
            "<class",
            "<function",
            "<factory>",
            str(ROOT),
            str(Path.home()),
            "ForwardRef",
            "typing.",
        ):
            assert trace not in text, f"{name}: {trace}"


@pytest.mark.parametrize("name", ["README.md", *FILES])
def test_its_links_lead_somewhere_and_its_blocks_are_closed(name: str) -> None:
    assert broken_links(reference.texts()[name], API / name) == []
    for block in fenced(reference.texts()[name], name):
        assert block.language in ("python", "pycon")
        assert block.text.strip()


KNOWN = {dotted.rpartition(".")[2] for dotted in ENTRIES} | set(reference.TYPES) | {"AbstractContextManager"}
KNOWN |= set(vars(builtins)) | set(vars(typing)) | set(vars(collections.abc))


def unexplained(stated: str, told: str) -> set[str]:
    """The types in a signature that neither have an entry nor are told beside it."""
    bare = re.sub(r"'[^']*'|\w+(?:\.\w+)+", "", stated)
    types = set(re.findall(r"(?:[:|\[,>] ?)([A-Z]\w*)", bare)) - KNOWN
    return {word for word in types if not re.search(rf"\b{word}(?: =|:)", told)}


@pytest.mark.parametrize("name", FILES)
def test_every_type_in_a_signature_is_explained(name: str) -> None:
    for block in fenced(reference.texts()[name], name):
        if block.language == "python":
            assert not unexplained(block.text.partition("\n#")[0], block.text), f"{block}: {block.text}"
    for stated, told in re.findall(r"^- `([^`]+)`: (.*)$", reference.texts()[name], re.M):  # members that have a line
        assert not unexplained(stated, told), f"{stated}: {told}"


def test_a_member_has_a_line_where_a_line_says_it_and_a_heading_otherwise() -> None:
    class Thing:
        @property
        def size(self) -> int:
            """How large it is."""
            return 1

        def longer(self, by: int) -> int:
            """The size and more.

            >>> Thing().longer(1)
            2
            """
            return self.size + by

    size, longer = (reference.Member.of("Thing", name, vars(Thing)[name]) for name in ("size", "longer"))
    assert size.line("a.Thing") == "- `size: int`: How large it is.\n"
    assert longer.line("a.Thing") is None
    assert next(longer.lines("a.Thing")) == "### Thing.longer\n"


@pytest.mark.slow
@pytest.mark.parametrize("name", FILES)
def test_every_example_can_be_pasted(name: str) -> None:
    """The examples of one entry, with the imports that were added, run in an empty interpreter."""
    pytest.importorskip("hypothesis")
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS, verbose=False)
    for section in re.split(r"^#{2,3} ", reference.texts()[name], flags=re.M)[1:]:
        examples = [block.text for block in fenced(section, name) if block.language == "pycon"]
        title = section.partition("\n")[0]
        test = doctest.DocTestParser().get_doctest("\n\n".join(examples), {"__name__": "__main__"}, title, name, 0)
        report: list[str] = []
        assert runner.run(test, out=report.append).failed == 0, "".join(report)


# ---- the guide and the changelog ---------------------------------------------------------------------------------


def rooms(table: str) -> list[str]:
    """The rooms in the first column of a table, from top to bottom."""
    cells = re.findall(r"^\| (`[^|]*) \|", table, re.M)
    return [name.strip("`/") for cell in cells for name in cell.split(", ")]


def test_the_guide_lists_every_room_in_its_order() -> None:
    guide = (ROOT / ".github" / "CONTRIBUTING.md").read_text(encoding="utf-8")
    computing, judging = re.findall(r"^\| room \| holds \|\n(?:\|.*\n)+", guide, re.M)
    assert rooms(computing) == list(ROOMS)
    assert rooms(judging) == list(VERIFY_ROOMS)
    (drawing,) = re.findall(r"^┌─ the command line(?:.*\n)+?```", guide, re.M)
    drawn = {name for line in drawing.splitlines() for name in re.findall(r"[a-z_]+", line[2:47]) if line[0] == "│"}
    assert drawn <= {*ROOMS, *VERIFY_ROOMS}


def test_the_changelog_counts_what_there_is() -> None:
    newest = (ROOT / ".github" / "CHANGELOG.md").read_text(encoding="utf-8").partition("\n## 0.1.0")[0]
    counts = {
        "claims": len(verify.claims()),
        "errors of the paper": len(verify.errata()),
        "problems": len(zoo.names()),
        "defects": len(verify.gallery.defects()),
    }
    for what, number in counts.items():
        assert set(re.findall(rf"(\d+) {what}", newest)) <= {str(number)}, what


# ---- the generator itself ---------------------------------------------------------------------------------------


def test_docstrings_become_markdown() -> None:
    text = "Of ``x`` and ``Box``: y* < 1.\n\nPaper: Lemma 2.8 [lem:descent]\nAssumes: much,\nand more.\n\n>>> Box([0], [1])\nBox\n"
    box = reference.places()["bilevel_sym.Box"]
    assert reference.markdown(text, "here", "bilevel_sym.problem.box") == (
        f"Of `x` and [`Box`]({box}): y\\* \\< 1.\n\n**Paper:** Lemma 2.8 [lem:descent]\n\n**Assumes:** much,\nand more.\n\n"
        "```pycon\n>>> from bilevel_sym import Box\n>>> Box([0], [1])\nBox\n```"
    )


def test_signatures_are_those_of_the_source() -> None:
    def short(a: int, *rest: str, b: float = 1.0, **more: Any) -> None: ...

    def long(
        first: dict[str, list[tuple[int, ...]]], *, second: dict[str, list[tuple[int, ...]]] | None = None
    ) -> bool:
        return bool(first or second)

    assert reference.signature("short", short) == "short(a: int, *rest: str, b: float = 1.0, **more: Any) -> None"
    assert reference.signature("long", long).splitlines() == [
        "long(",
        "    first: dict[str, list[tuple[int, ...]]],",
        "    *,",
        "    second: dict[str, list[tuple[int, ...]]] | None = None,",
        ") -> bool",
    ]


def test_defaults_show_nothing_of_the_machine() -> None:
    thing = object()

    def odd(a=thing, b=len, c=0.5, d=None): ...  # type: ignore[no-untyped-def]

    assert reference.signature("odd", odd) == "odd(a=object, b=len, c=0.5, d=None)"


def test_anchors_that_differ_by_capitals_are_told_apart() -> None:
    assert reference.anchors(["verify.claim", "verify.Claim"]) == {
        "verify.claim": "verifyclaim",
        "verify.Claim": "verifyclaim-1",
    }
