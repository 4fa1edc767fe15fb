"""CITATION.cff holds to the Citation File Format 1.2.0, as far as it uses it, and says what the README's BibTeX says.

The schema is written down here from the format's guide for the keys that stand in the file: any other key is refused.
"""

from __future__ import annotations

import copy
import re
from pathlib import Path
from typing import Any

import jsonschema
import pytest

ROOT = Path(__file__).resolve().parent.parent
yaml = pytest.importorskip("yaml", reason="comes with the extra notebook")
TEXT = {"type": "string", "minLength": 1}
ADDRESS = {"type": "string", "pattern": r"^(https|http|ftp|sftp)://\S+$"}


def closed(required: tuple[str, ...], **properties: object) -> dict[str, object]:
    """A mapping with these keys and no others."""
    keys = {name.replace("_", "-"): kind for name, kind in properties.items()}
    return {"type": "object", "properties": keys, "required": list(required), "additionalProperties": False}


PERSON = closed((), family_names=TEXT, given_names=TEXT)
ENTITY = closed(("name",), name=TEXT, website=ADDRESS)
AUTHORS = {"type": "array", "minItems": 1, "uniqueItems": True, "items": {"oneOf": [PERSON, ENTITY]}}
REFERENCE = closed(
    ("authors", "title", "type"), type={"enum": ["article", "software", "book", "report"]}, title=TEXT, authors=AUTHORS,
    journal=TEXT, volume={"type": ["integer", "string"]}, issue={"type": ["integer", "string"]},
    start={"type": ["integer", "string"]}, end={"type": ["integer", "string"]}, year={"type": ["integer", "string"]},
    url=ADDRESS,
)  # fmt: skip
FILE = closed(
    ("authors", "cff-version", "message", "title"), cff_version={"const": "1.2.0"}, message=TEXT, title=TEXT,
    abstract=TEXT, type={"enum": ["software", "dataset"]}, version=TEXT, authors=AUTHORS, license={"const": "BSD-3-Clause"},
    date_released={"type": "string", "pattern": r"^\d{4}-(0[1-9]|1[0-2])-(0[1-9]|[12]\d|3[01])$"}, url=ADDRESS,
    repository_code=ADDRESS, keywords={"type": "array", "minItems": 1, "uniqueItems": True, "items": TEXT},
    references={"type": "array", "minItems": 1, "items": REFERENCE},
)  # fmt: skip


@pytest.fixture(scope="module")
def citation() -> dict[str, Any]:
    found: dict[str, Any] = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    return found


def test_it_holds_to_the_format(citation: dict[str, Any]) -> None:
    jsonschema.validate(citation, FILE)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("authors", []), ("authors", [{"name": "A", "given-names": "B"}]), ("cff-version", "1.1.0"), ("title", ""),
        ("date-released", "19.11.2026"), ("url", "bilevel-sym"), ("licence", "BSD-3-Clause"), ("message", None),
        ("references", [{"title": "A", "type": "article"}]), ("keywords", ["a", "a"]),
    ],
)  # fmt: skip
def test_a_planted_fault_is_seen(citation: dict[str, Any], key: str, value: object) -> None:
    spoilt = copy.deepcopy(citation) | {key: value}
    with pytest.raises(jsonschema.ValidationError):
        jsonschema.validate(spoilt, FILE)


def test_the_readme_says_the_same(citation: dict[str, Any]) -> None:
    bibtex = (ROOT / "README.md").read_text(encoding="utf-8").partition("```bibtex\n")[2].partition("```")[0]
    fields = [dict(re.findall(r"(\w+) += \{+(.*?)\}+,?$", entry, re.M)) for entry in bibtex.split("\n@")]
    software, article = fields
    (paper,) = citation["references"]
    assert software["title"].startswith(f"{citation['title']}: ")
    assert (software["version"], software["url"]) == (citation["version"], citation["repository-code"])
    assert software["year"] == citation["date-released"][:4]
    assert software["author"] == citation["authors"][0]["name"]
    names = " and ".join(f"{author['given-names']} {author['family-names']}" for author in paper["authors"])
    assert article["author"] == names
    assert article["pages"] == f"{paper['start']}--{paper['end']}"
    for key in ("title", "journal", "volume", "year", "url"):
        assert article[key] == str(paper[key])
    assert article["number"] == str(paper["issue"])
