"""The report of a problem: one file, its structure, and that text from outside never becomes a part of it."""

from __future__ import annotations

import base64
import hashlib
import re
import subprocess
import sys
from functools import lru_cache
from html.parser import HTMLParser
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import sympy as sp
from hostile import EXPRESSIONS
from hypothesis import given
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, derive, zoo
from bilevel_sym.errors import BilevelError, InvalidArgument, InvalidProblem
from verify import ReportPage, Verdict, report
from verify.reporting.drawing import figure_of
from verify.reporting.markup import Markup, element, table, tag
from verify.reporting.mathml import DEEPEST, formula
from verify.reporting.page import SECTIONS
from verify.reporting.sections.runs import hypergradient
from verify.reporting.sections.statement import formulas
from verify.reporting.sections.verdicts import _row
from verify.reporting.subject import Subject, why_not
from verify.verdict import judged

ROOT = Path(__file__).resolve().parent.parent
HOSTILE = "\"><script>alert(1)</script><img src=x onerror=alert(2)> &lt; ${7*7} </style></title></svg>'"
MATHEMATICS = {
    "math", "mrow", "mi", "mn", "mo", "mtext", "mspace", "mfrac", "msqrt", "mroot", "msub", "msup", "msubsup", "munder",
    "mover", "mtable", "mtr", "mtd",
}  # fmt: skip
PICTURES = {"svg", "g", "defs", "path", "use", "rect", "clippath", "image"}
TEXT = {
    "html", "head", "meta", "title", "style", "body", "header", "main", "nav", "section", "h1", "h2", "h3", "p", "a", "ul",
    "li", "div", "span", "strong", "table", "caption", "thead", "tbody", "tr", "th", "td", "pre", "code", "details", "summary",
    "dl", "dt", "dd", "figure", "figcaption", "script",
}  # fmt: skip
ATTRIBUTES = {
    "charset", "http-equiv", "content", "name", "lang", "class", "id", "href", "role", "tabindex", "scope", "aria-label",
    "aria-labelledby", "alttext", "display", "stretchy", "width", "height", "viewbox", "style", "d", "x", "y", "transform", "clip-path",
    "preserveaspectratio", "clip-rule",
}  # fmt: skip
VOID = {"meta"}


class Page(HTMLParser):
    """What a parser finds: elements with their attributes, texts, and whether everything is closed in order."""

    def __init__(self, html: str) -> None:
        super().__init__()
        self.elements: list[tuple[str, dict[str, str]]] = []
        self.texts: list[str] = []
        self.open: list[str] = []
        self.scripts: list[str] = []
        self.feed(html)
        self.close()

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        assert len({key for key, _ in attrs}) == len(attrs), (tag, attrs)
        self.elements.append((tag, {key: value or "" for key, value in attrs}))
        if tag not in VOID:
            self.open.append(tag)

    def handle_endtag(self, tag: str) -> None:
        assert self.open.pop() == tag

    def handle_data(self, data: str) -> None:
        (self.scripts if self.open[-1:] == ["script"] else self.texts).append(data)

    def all(self, name: str) -> list[dict[str, str]]:
        return [attributes for tag, attributes in self.elements if tag == name]


def checked(html: str) -> Page:
    """A page of which no element, attribute or reference is unknown."""
    page = Page(html)
    assert page.open == []
    assert {name for name, _ in page.elements} <= MATHEMATICS | PICTURES | TEXT
    assert {key for _, attributes in page.elements for key in attributes} <= ATTRIBUTES
    ids = [attributes["id"] for _, attributes in page.elements if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for name, attributes in page.elements:
        if "href" in attributes:
            target = attributes["href"]
            assert target.startswith("data:image/png;base64,") if name == "image" else target.removeprefix("#") in ids
        for value in re.findall(r"url\(([^)]*)\)", " ".join(attributes.values())):
            assert value.removeprefix("#") in ids
        assert set(attributes.get("aria-labelledby", "").split()) <= set(ids)
    return page


@lru_cache(8)
def page_of(name: str) -> ReportPage:
    return report(zoo.get(name).problem, effort=0.02)


@lru_cache(1)
def arrays() -> ReportPage:
    rng = np.random.default_rng(0)
    data = {
        "A": rng.normal(size=(12, 10)),
        "b": rng.normal(size=12),
        "B": rng.normal(size=(8, 10)),
        "c": rng.normal(size=8),
    }
    f, g = "mean((B @ y - c)**2)/2", "mean((A @ y - b)**2)/2 + exp(x) @ y**2/2"
    box = {"x": (-1, 1), "y": (-3, 3)}
    return report(BilevelProblem(f, g, "x[n]", "y[n]", data=data, box=box, name="ridge"), effort=0.02)


def bare() -> ReportPage:
    return report(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", name="toy"), effort=0.02)


# ---- structure ------------------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_a_page_has_its_sections_in_order_under_one_heading() -> None:
    page = checked(page_of("scalar").html)
    assert page.elements[0][1] == {"lang": "en"}
    levels = [int(name[1]) for name, _ in page.elements if re.fullmatch(r"h\d", name)]
    assert levels.count(1) == 1
    assert levels[0] == 1
    assert all(b - a <= 1 for a, b in pairwise(levels))
    assert [each["id"] for each in page.all("section")] == [section.name for section in SECTIONS]
    assert page.all("math")
    assert page.all("svg")
    assert len(page.all("caption")) == len(page.all("table"))
    assert all(each["scope"] in ("col", "row") for each in page.all("th"))


def test_every_picture_has_a_text_and_every_wide_part_is_reached_by_keyboard() -> None:
    html = page_of("scalar").html
    page = checked(html)
    for picture in page.all("svg"):
        assert picture["role"] == "img"
        alt = re.search(rf'<title id="{picture["aria-labelledby"]}">([^<]+)</title>', html)
        assert alt
        assert len(alt[1]) > 20
    for name, attributes in page.elements:
        if attributes.get("class") == "wide" or name == "pre":
            assert attributes["tabindex"] == "0"
    assert all(each["alttext"] for each in page.all("math") if each["display"] == "block")


def test_nothing_is_loaded_and_one_script_runs() -> None:
    html = page_of("scalar").html
    page = checked(html)
    (policy,) = [each["content"] for each in page.all("meta") if each.get("http-equiv") == "Content-Security-Policy"]
    digest = base64.b64encode(hashlib.sha256("".join(page.scripts).encode()).digest()).decode()
    assert "default-src 'none'" in policy
    assert f"script-src 'sha256-{digest}'" in policy
    assert len(page.all("script")) == 1
    assert not re.search(r"https?://(?!www\.w3\.org)[^<]*\"", html.partition("<body>")[2].partition("<script>")[0])
    assert "@import" not in html


def _luminance(colour: str) -> float:
    parts = [int(colour[k : k + 2], 16) / 255 for k in (1, 3, 5)]
    linear = [c / 12.92 if c <= 0.03928 else ((c + 0.055) / 1.055) ** 2.4 for c in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_letters_are_told_from_their_paper_in_light_and_dark() -> None:
    style = re.search(r"<style>(.*?)</style>", page_of("scalar").html, re.DOTALL)
    assert style
    assert "prefers-color-scheme:dark" in style[1]
    assert "@media print" in style[1]
    for block in re.findall(r":root\{([^}]*--paper[^}]*)\}", style[1]):
        found = dict(re.findall(r"--(\w+):(#[0-9a-f]+)", block))
        colours = {k: v if len(v) == 7 else "#" + "".join(2 * c for c in v[1:]) for k, v in found.items()}
        for letters in ("ink", "soft", "link", "good", "bad", "open"):
            for paper in ("paper", "tint"):
                bright, dim = sorted((_luminance(colours[letters]), _luminance(colours[paper])), reverse=True)
                assert (bright + 0.05) / (dim + 0.05) >= 4.5, (letters, paper)


def test_verdicts_open_for_their_message_and_witness() -> None:
    page = checked(page_of("scalar").html)
    table_ = page_of("scalar").html.partition('id="verdict-table"')[2].partition("</table>")[0]
    rows = table_.partition("<tbody>")[2].count("<tr>")
    assert rows > 30
    assert table_.count("<details>") == rows
    assert "Witness" in table_
    assert any("lem:descent" in text for text in page.texts)


@pytest.mark.slow
def test_the_same_seed_gives_the_same_page_and_another_does_not() -> None:
    problem = zoo.get("scalar").problem
    again = report(problem, effort=0.02).html
    assert again == page_of("scalar").html
    assert report(problem, effort=0.02, rng=1).html != again


# ---- kinds of problems ----------------------------------------------------------------------------------------------


@pytest.mark.slow
def test_an_array_problem_is_in_matrix_notation_and_says_what_is_too_large() -> None:
    html = arrays().html
    page = checked(html)
    assert "⊤" in page.texts
    assert "⊙" in page.texts
    assert "slices" in html
    assert "is not searched" in html  # stationary points of ten variables
    assert len(html) < 3_000_000


def test_a_minimax_problem_has_one_level_and_its_own_estimator() -> None:
    html = page_of("minimax_nash").html
    checked(html)
    assert "minimax: minimise" in html
    assert "GDmax" in html
    assert "One step is exact here" in html  # -y**2 has one curvature
    assert ">g<" not in html.partition('id="formulas"')[0].partition('id="problem"')[2].partition("<details>")[0]


def test_a_problem_without_a_box_says_so_and_has_the_rest() -> None:
    page = bare()
    checked(page.html)
    absent = re.findall(r'<p class="absent">([^<]*)</p>', page.html)
    assert len(absent) >= 4
    assert sum("no box" in sentence or "has none" in sentence for sentence in absent) >= 4
    assert "<math" in page.html
    assert "reached an eps-local minimum (checked)" in page.html


@pytest.mark.parametrize("g", ["(1 + 8*x**2)*y**2/2 - x*y", "softplus(4*y) + y**2/2 - x*y"])
def test_errors_of_the_hypergradient_fall_where_curvature_is_not_that_of_the_centre(g: str) -> None:
    subject = Subject(BilevelProblem("y**2 + x", g, "x", "y", box={"x": (-3, 3), "y": (-2, 2)}), 0, 1.0, None, "")
    rows = re.findall(r"<tr>(.*?)</tr>", hypergradient(subject))[1:]
    largest = [[float(cell) for cell in re.findall(r"<td>([^<]*)</td>", row)][1::2] for row in rows]
    assert max(largest[-1]) < 0.1
    assert max(largest[-1]) < max(largest[3]) < 10


def test_runs_of_a_problem_with_kinks_are_one_sentence() -> None:
    problem = BilevelProblem("x*y + abs(x)", "y**2/2 - x*y", "x", "y")
    subject = Subject(problem, 0, 0.02, None, "")
    for section in (section for section in SECTIONS if section.name in ("runs-section", "hypergradient")):
        assert "runs are made of smooth problems only" in section.markup(subject)


def test_without_matplotlib_a_sentence_stands_for_each_picture(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("verify.reporting.sections.pictures.find_spec", lambda _: None)
    html = report(BilevelProblem("x*y", "(1 + x**2)*y**2/2 - x*y", "x", "y"), effort=0.02).html
    assert "<svg" not in html
    assert html.count("matplotlib, which draws, is not installed") == 3
    checked(html)


# ---- text from outside ----------------------------------------------------------------------------------------------


def test_a_hostile_name_is_shown_and_is_no_markup() -> None:
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y", name=HOSTILE)
    html = report(problem, effort=0.02, command=HOSTILE).html
    page = checked(html)
    assert page.texts.count(HOSTILE) >= 1  # the command
    assert f"Report on {HOSTILE}" in page.texts
    assert len(page.all("script")) == 1


def test_hostile_names_of_variables_are_text_in_formulas_and_pictures() -> None:
    x, y = sp.Symbol("</mi><script>alert(1)</script>"), sp.Symbol('y" onload="alert(3)')
    try:
        problem = BilevelProblem(x * y, y**2 / 2 - x * y, [x], [y], box={x.name: (-1, 1), y.name: (-1, 1)})
    except InvalidProblem:
        pytest.skip("such names are refused at the door")
    page = checked(report(problem, effort=0.02).html)
    assert len(page.all("script")) == 1


@pytest.mark.parametrize("text", [*EXPRESSIONS.values()], ids=[*EXPRESSIONS])
def test_hostile_texts_stay_text_wherever_they_stand(text: str) -> None:
    short = text[:2000] + HOSTILE
    for made in (
        tag("p", short, title=short), table(short, [short], [[short]]), formula(short), formula(rf"\text{{{short}}}"),
        why_not(BilevelError(short, hint=short)),
        tag("table", *_row(judged("lem:descent", 1.0, 2.0, evidence="sampled", message=short, worst_point={short: 1.0}, region=short))),
    ):  # fmt: skip
        page = Page(made)
        assert page.open == []
        assert {name for name, _ in page.elements} <= MATHEMATICS | TEXT
        assert {key for _, attributes in page.elements for key in attributes} <= ATTRIBUTES | {"title"}
        assert not page.scripts


@given(st.text())
def test_any_latex_becomes_elements_that_are_known(text: str) -> None:
    page = Page(formula(text))
    assert page.open == []
    assert {name for name, _ in page.elements} <= MATHEMATICS | {"pre", "code"}


def test_a_picture_holds_only_what_draws() -> None:
    from matplotlib.figure import Figure

    figure = Figure(figsize=(2, 2))
    ax = figure.subplots()
    ax.plot([0, 1], label=HOSTILE.replace("$", ""), gid='"><script>alert(1)</script>', url="https://example.org")
    ax.set_title("</svg><script>alert(1)</script>")
    ax.legend()
    made = figure_of(figure, "one", HOSTILE, HOSTILE)
    page = Page(made)
    assert {name for name, _ in page.elements} <= PICTURES | {"figure", "figcaption", "title", "a"} - {"a"}
    assert "example.org" not in made


# ---- mathematics ----------------------------------------------------------------------------------------------------


def test_what_formulas_are_made_of_becomes_mathml() -> None:
    assert "<msup><mi>x</mi><mn>2</mn></msup>" in formula("x^{2}")
    assert "<msubsup>" in formula("x_{1}^{2}")
    assert "<mroot><mi>x</mi><mn>3</mn></mroot>" in formula(r"\sqrt[3]{x}")
    assert formula(r"\begin{cases} 1 & \text{for}\: x < 1 \\0 & \text{otherwise} \end{cases}").count("<mtr>") == 2
    assert "&lt;" in formula("x < 1")
    assert formula(r"\frac{1}").startswith("<pre")
    deep = "{" * (DEEPEST + 5) + "x" + "}" * (DEEPEST + 5)
    assert formula(deep).startswith("<pre")
    assert formula(r"\sqrt{" * 5000 + "x" + "}" * 5000).startswith("<pre")


@pytest.mark.parametrize("name", ["scalar", "saddle", "quadratic", "minimax_nash", "robust_regression"])
def test_the_formulas_of_the_zoo_are_understood(name: str) -> None:
    derivation = derive(zoo.get(name).problem)
    for form in ("entries", "blocks", "problem"):
        made = formula(derivation.latex(form))
        assert made.startswith("<math"), form
        assert "\\" not in made.partition(">")[2]


def test_array_formulas_are_understood() -> None:
    derivation = derive(zoo.get("diabetes").problem)
    for form in ("entries", "terms", "blocks", "problem"):
        assert formula(derivation.latex(form)).startswith("<math")


def test_of_many_long_formulas_the_first_and_the_last_are_named() -> None:
    page = Page(formulas(Subject(zoo.get("quadratic", d=10, n=20).problem, 0, 1.0, None, "")))
    said = "".join(page.texts)
    assert "Too long to read" in said
    assert "…" in said
    assert len(said) < 2000
    assert len(re.findall(r" \([\d,]{3,}\)", said)) == 6


def test_names_that_latex_quotes_are_read_back() -> None:
    y, x = sp.symbols("y x_$%&")
    made = formula(derive(BilevelProblem(x * y, y**2 / 2 - x * y, [x], [y])).latex("problem"))
    assert "x_$%&amp;" in made


# ---- its doors ------------------------------------------------------------------------------------------------------


def run(*arguments: str, folder: Path) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "bilevel_sym", "report", *arguments]
    return subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)


@pytest.mark.slow
def test_the_command_writes_the_file_and_says_how_to_make_it_again(tmp_path: Path) -> None:
    done = run("zoo:lphi_witness", "--effort", "0.02", "--seed", "3", "--out", "r.html", folder=tmp_path)
    assert (done.returncode, done.stdout, done.stderr) == (0, "written: r.html\n", "")
    html = (tmp_path / "r.html").read_text(encoding="utf-8")
    checked(html)
    assert "bilevel-sym report zoo:lphi_witness --seed 3 --effort 0.02" in html


def test_a_bad_ending_or_a_bad_folder_is_refused_before_any_work(tmp_path: Path) -> None:
    for out in ("r.pdf", "absent/r.html"):
        done = run("zoo:scalar", "--out", out, folder=tmp_path)
        assert done.returncode == 2
        assert len(done.stderr.splitlines()) <= 4
    assert [*tmp_path.iterdir()] == []


def test_a_page_saves_itself_and_is_framed_in_a_notebook(tmp_path: Path) -> None:
    page = bare()
    page.save(tmp_path / "page.html")
    assert (tmp_path / "page.html").read_text(encoding="utf-8") == page.html
    frame = Page(page._repr_html_())
    ((name, attributes),) = frame.elements
    assert (name, attributes["sandbox"], attributes["srcdoc"]) == ("iframe", "allow-scripts", page.html)
    assert "toy" in repr(page)


def test_what_is_no_problem_is_refused() -> None:
    with pytest.raises(InvalidArgument, match="wants a problem"):
        report("x*y")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgument):
        report(zoo.get("scalar").problem, theory="nosuch", effort=0.02)


def test_points_are_drawn_by_seed_and_start_at_the_centre() -> None:
    one, other = (Subject(zoo.get("saddle").problem, seed, 1.0, None, "") for seed in (0, 1))
    assert (one.points(3, 1)[0] == other.points(3, 1)[0]).all()
    assert (one.points(3, 1)[1:] != other.points(3, 1)[1:]).any()


def test_markup_is_escaped_once() -> None:
    assert element("p", {"title": '"'}, ["<", Markup("<b></b>")]) == '<p title="&quot;">&lt;<b></b></p>'
    assert Verdict.HOLDS in page_of("scalar").html
