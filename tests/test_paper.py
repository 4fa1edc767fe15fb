"""The table of the paper's statements against the paper's own source."""

from __future__ import annotations

import re
from dataclasses import FrozenInstanceError
from pathlib import Path

import pytest

from bilevel_sym.theories.huang_saddle.paper import STATEMENTS, Statement, cite

PAPER = Path(__file__).resolve().parents[2] / "shared" / "paper"
OURS = "unlabelled:"
PLAIN = re.compile(r"[1-9A-D](\.\d+)?")  # a whole statement, not an item or a step of it


@pytest.fixture(scope="module")
def tex() -> str:
    sources = sorted(PAPER.glob("*.tex"))
    if not sources:
        pytest.skip("the paper's LaTeX source is not in ../shared/paper beside this repository")
    text = "\n".join(source.read_text(encoding="utf-8") for source in sources)
    return re.sub(r"(?<!\\)%.*", "", text)


def counted(tex: str) -> list[tuple[str, str, list[str]]]:
    """Kind, number and labels of every theorem-like statement and section, counted as LaTeX does.

    A statement is named by the labels between its start and its first display, a section by the
    label on its own line.
    """
    theorems = dict(re.findall(r"\\newtheorem\{(\w+)\}(?:\[\w+\])?\{(\w+)\}", tex))
    body = tex[tex.index(r"\begin{document}") :]
    start = re.compile(rf"\\begin\{{({'|'.join(theorems)})\}}|\\(section|subsection|appendix)\b(?!\*).*")
    display = re.compile(r"\\be\b|\\\[|\\(?:begin|end)\{")
    found: list[tuple[str, str, list[str]]] = []
    section = subsection = theorem = 0
    names = "0123456789"
    for match in start.finditer(body):
        theorem_name, command = match.groups()
        if command == "appendix":
            section, names = 0, "0ABCDEFGH"
            continue
        if command == "section":
            section, subsection, theorem = section + 1, 0, 0
            kind, number, head = "Section", names[section], match[0]
        elif command == "subsection":
            subsection += 1
            kind, number, head = "Section", f"{names[section]}.{subsection}", match[0]
        else:
            theorem += 1
            rest = body[match.end() :]
            stop = display.search(rest)
            assert stop is not None
            head = rest[: stop.start()]
            kind, number = theorems[theorem_name], f"{names[section]}.{theorem}"
        found.append((kind, number, re.findall(r"\\label\{([^}]*)\}", head)))
    return found


def test_keys_are_the_labels_of_the_paper_in_its_order(tex: str) -> None:
    labels = re.findall(r"\\label\{([^}]*)\}", tex)
    assert len(labels) == len(set(labels)) == 177
    assert [key for key in STATEMENTS if not key.startswith(OURS)] == labels


def test_kinds_and_numbers_agree_with_a_count_of_the_source(tex: str) -> None:
    statements = counted(tex)
    labelled = {label: (kind, number) for kind, number, labels in statements for label in labels}
    assert labelled == {
        key: (statement.kind, statement.number)
        for key, statement in STATEMENTS.items()
        if not key.startswith(OURS) and statement.kind not in {"Algorithm", "Equation", "Figure"}
    }


def test_no_theorem_like_statement_is_missing(tex: str) -> None:
    ours = [
        (statement.kind, statement.number)
        for statement in STATEMENTS.values()
        if statement.number is not None and PLAIN.fullmatch(statement.number)
    ]
    expected = [(kind, number) for kind, number, _ in counted(tex)]
    kinds = {kind for kind, _ in expected}
    assert len(kinds) == 8
    assert [pair for pair in ours if pair[0] in kinds] == expected


def test_equation_numbers_run_without_gaps() -> None:
    last: dict[str, int] = {}
    for statement in STATEMENTS.values():
        if statement.kind == "Equation":
            assert statement.number is not None
            section, _, count = statement.number.partition(".")
            assert int(count) == last.get(section, 0) + 1, statement
            last[section] = int(count)
    assert last == dict(zip("12345ABCD", (8, 8, 4, 8, 12, 2, 47, 13, 70), strict=True))


def test_statements_without_a_number_say_where_they_stand() -> None:
    place = re.compile(r"(Section|Lemma|Theorem|Proposition|Corollary|Definition) [\dA-D]")
    for key, statement in STATEMENTS.items():
        assert (statement.number is None) == (statement.kind in {"Claim", "Formula"}), key
        if statement.number is None:
            assert key.startswith(OURS)
            assert place.search(statement.title), key


def test_titles_are_short_specific_and_distinct() -> None:
    titles = [statement.title for statement in STATEMENTS.values()]
    assert all(title == title.strip() and 0 < len(title) <= 70 for title in titles)
    assert all(title.isascii() and not title.endswith(".") for title in titles)
    assert len(set(titles)) == len(titles)
    numbered = [(s.kind, s.number) for s in STATEMENTS.values() if s.number is not None]
    assert len(set(numbered)) == len(numbered)


@pytest.mark.parametrize(
    ("label", "expected"),
    [
        ("lem:descent", "Lemma 2.8 [lem:descent]"),
        ("def-rho-phi", "Equation B.17 [def-rho-phi]"),
        ("eq: tube_f", "Equation 5.2 [eq: tube_f]"),
        ("figure: 3120", "Figure 1(l) [figure: 3120]"),
        ("unlabelled:corollary-aid", "Corollary 2.6 [unlabelled:corollary-aid]"),
        ("unlabelled:term-III", "Equation B.15 [unlabelled:term-III]"),
        ("unlabelled:stuck-region", "Formula [unlabelled:stuck-region]"),
    ],
)
def test_cite(label: str, expected: str) -> None:
    assert cite(label) == expected


@pytest.mark.parametrize(("label", "near"), [("lem:decent", "lem:descent"), ("def-rho", "def-rho-phi")])
def test_an_unknown_label_names_the_nearest(label: str, near: str) -> None:
    with pytest.raises(KeyError, match=re.escape(repr(near))) as caught:
        cite(label)
    assert repr(label) in caught.value.args[0]


def test_even_a_hopeless_label_raises_a_key_error() -> None:
    with pytest.raises(KeyError, match="nearest"):
        cite("")


def test_the_table_cannot_be_changed() -> None:
    with pytest.raises(TypeError):
        STATEMENTS["lem:descent"] = Statement("Lemma", "1", "other")  # type: ignore[index]
    with pytest.raises(FrozenInstanceError):
        STATEMENTS["lem:descent"].number = "1"  # type: ignore[misc]
