"""Problem files: exact numbers, errors that name file and key, errors of formulas at their place, safe writing."""

from __future__ import annotations

import os
import stat
from dataclasses import replace
from pathlib import Path
from typing import Any

import hypothesis.strategies as st
import pytest
import sympy as sp
from hostile import FILES, VALID_FILES
from hypothesis import given

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import InvalidArgument, InvalidProblem, UnsafeExpression
from bilevel_sym.problem.file import ProblemFile, fields, problem_toml, read_problem, reading, writing
from bilevel_sym.problem.file.reading import parse_problem
from bilevel_sym.problem.parsing import parse_expression

R = sp.Rational
START = 'x = ["x1", "x2"]\ny = "y1"\n'
GOOD = START + 'f = "x1*y1"\ng = "y1**2/2 - x2*y1"\n'
STOCHASTIC = GOOD + 'kind = "stochastic"\nxi = "a b"\nzeta = ["c"]\n'


def parse(text: str) -> ProblemFile:
    return parse_problem(text, "toy.toml")


# ---- reading ----------------------------------------------------------------------------------------


def test_the_file_of_the_contract() -> None:
    fields = parse(
        """
        name = "toy"
        kind = "bilevel"        # or "minimax" (no g), or "stochastic" (xi, zeta and [data])
        x = ["x1", "x2"]
        y = ["y1"]
        f = "sin(x1)*y1 + gamma*x2**2"
        g = "y1**2/2 - x1*y1"

        [parameters]
        gamma = 0.1            # means exactly 1/10

        [box]
        x1 = [-1, 1]
        x2 = [-1, 1]
        y1 = [-2, 2]
        """
    )
    assert (fields.name, fields.kind, fields.x, fields.y) == ("toy", "bilevel", ("x1", "x2"), ("y1",))
    assert fields.f == "sin(x1)*y1 + gamma*x2**2"
    assert fields.g == "y1**2/2 - x1*y1"
    assert fields.parameters == {"gamma": R(1, 10)}
    assert fields.box == {"x1": (-1, 1), "x2": (-1, 1), "y1": (-2, 2)}


def test_numbers_are_exact() -> None:
    text = GOOD + '[parameters]\na = 0.1\nb = "1/3"\nc = "symbolic"\nd = 1e-3\ne = 1_000.5\nh = -7\ni = 0x10\n'
    assert parse(text).parameters == {
        "a": R(1, 10), "b": R(1, 3), "c": None, "d": R(1, 1000), "e": R(2001, 2), "h": -7, "i": 16,
    }  # fmt: skip


def test_names_may_stand_in_one_string() -> None:
    fields = parse(GOOD)
    assert fields.x == ("x1", "x2")
    assert fields.y == ("y1",)
    assert fields.kind == "bilevel"
    assert parse(GOOD.replace('"y1"\n', '"y1, y2"\n', 1)).y == ("y1", "y2")


def test_stochastic_files() -> None:
    fields = parse(STOCHASTIC + '[data]\nxi = [[0.5, 1], ["1/3", -2]]\nzeta = [[1], [2], [3]]\n')
    assert (fields.xi, fields.zeta) == (("a", "b"), ("c",))
    assert fields.xi_data == ((R(1, 2), 1), (R(1, 3), -2))
    assert fields.zeta_data == ((1,), (2,), (3,))


def test_there_may_be_no_noise_on_one_level() -> None:
    fields = parse(GOOD + 'kind = "stochastic"\nxi = []\nzeta = ["c"]\n[data]\nxi = []\nzeta = [[1]]\n')
    assert (fields.xi, fields.xi_data) == ((), ())


REFUSED = {
    "x = [": ("is not valid TOML", "end of document"),
    "x = 1\ny = y": ("is not valid TOML", "line 2, column 5"),
    GOOD + "h = 1": ("unknown key 'h'", "one of name, kind"),
    GOOD + "nmae = 'a'": ("unknown key 'nmae'", "did you mean name?"),
    START + 'f = "x1"': ("the key g is missing", "g = ..."),
    START + 'f = 1\ng = "y1"': ("f must be text in quotes, but is a number", 'f = "..."'),
    START + 'f = ["x1"]\ng = "y1"': ("but is a list of 1", 'f = "..."'),
    START + 'f = 2020-01-01\ng = "y1"': ("but is a date", 'f = "..."'),
    'x = 1\ny = "y"': ("x must be a list of names, but is a number", 'x = ["x1", "x2"]'),
    'x = []\ny = "y"': ("x must be a list of names, but is a list of 0", "x1"),
    'x = ["1x"]\ny = "y"': ("x: '1x' is not a name", "letter"),
    'x = ["sin"]\ny = "y"': ("x: 'sin' already has a meaning", "sin_"),
    'x = [3]\ny = "y"': ("x: a name must be text, not int", ""),
    'x = ["y"]\ny = "y"': ("y stands twice: in x and in y", "rename"),
    GOOD + 'kind = "trilevel"': ("kind is 'trilevel'", "bilevel, minimax, stochastic"),
    GOOD + "kind = [1]": ("kind is a list of 1", "bilevel"),
    GOOD + 'kind = "minimax"': ("a minimax problem has no g", "remove g"),
    GOOD + 'xi = "a"': ("a bilevel problem has no xi", "remove xi"),
    GOOD + "parameters = 1": ("parameters must be a table, but is a number", "[parameters]"),
    GOOD + "[parameters]\nx1 = 1": ("x1 stands twice: in x and in parameters", "rename"),
    GOOD + "[parameters]\na = true": ("parameters.a must be a finite real number, but is True", "1/3"),
    GOOD + "[parameters]\na = inf": ("parameters.a must be a finite real number, but is inf", "1/3"),
    GOOD + "[parameters]\na = nan": ("parameters.a must be a finite real number, but is nan", "1/3"),
    GOOD + '[parameters]\na = "1 + 1"': ("parameters.a: '1 + 1' is not a number", "decimals"),
    GOOD + '[parameters]\na = "1/0"': ("divides by zero", ""),
    GOOD + "[parameters]\na = 2020-01-01": ("finite real number", ""),
    GOOD + "[parameters]\na = 0x1" + "0" * 1000: ("parameters.a has more than 1000 digits", ""),
    GOOD + "[parameters]\na = 1e999": ("is too large", "exponent"),
    GOOD + "[box]\nx3 = [0, 1]": ("the box names 'x3', which is no variable", "one of x1, x2, y1"),
    GOOD + "[box]\nx11 = [0, 1]": ("the box names 'x11', which is no variable", "did you mean x1?"),
    GOOD + "[box]\nx1 = [0]": ("box.x1 must be two numbers, but is a list of 1", "x1 = [-1, 1]"),
    GOOD + "[box]\nx1 = 3": ("box.x1 must be two numbers, but is a number", "x1 = [-1, 1]"),
    GOOD + "[box]\nx1 = [1, 0]": ("box.x1 runs from 1 down to 0", "smaller"),
    GOOD + 'kind = "stochastic"': ("the key xi is missing", "xi = ..."),
    STOCHASTIC: ("the key data is missing", "data = ..."),
    STOCHASTIC + "[data]\nxi = [[1, 2]]": ("data.zeta must be rows of numbers, but is None", "zeta = [[0], [1]]"),
    STOCHASTIC + "[data]\nxi = [1, 2]\nzeta = [[1]]": ("data.xi must be rows", "xi = [[0, 0], [1, 1]]"),
    STOCHASTIC + "[data]\nxi = [[1]]\nzeta = [[1]]": ("data.xi row 1 has 1 numbers, not 2", "xi = [["),
    STOCHASTIC + "[data]\nxi = [[1, true]]\nzeta = [[1]]": ("data.xi row 1 must be a finite", ""),
    STOCHASTIC + "[data]\nxi = [[1, 2]]\nzeta = [[1]]\neta = 1": ("unknown key 'eta' in data", "did you mean zeta?"),
    "x = " + "[" * 10_000: ("nested too deeply", ""),
    ".".join(["a"] * 100) + " = 1": ("dotted key of many parts", "single words"),
    ".".join(['"\\""'] * 100) + " = 1": ("dotted key of many parts", "single words"),
    "x = [" + "1," * 200_000 + "]": ("more than 100000 values", "Python"),
    GOOD + "[parameters]\na = " + "7" * 5000: ("is not valid TOML", ""),
}


@pytest.mark.parametrize("text", REFUSED, ids=[text[-40:] for text in REFUSED])
def test_refused(text: str) -> None:
    message, hint = REFUSED[text]
    with pytest.raises(InvalidProblem) as caught:
        parse(text)
    assert message in caught.value.message
    assert hint in str(caught.value)
    assert caught.value.message.startswith("toy.toml")
    assert len(str(caught.value).splitlines()) <= 4


def test_ordinary_dots_are_no_bomb() -> None:
    formula = " + ".join(f"0.{k}*x1" for k in range(1, 999))
    text = START + f'f = "{formula}"\ng = """\n{formula}"""\n# a.b.c.d.e.f.g.h.i.j.k.l.m\n[parameters]\na.b = 1\n'
    with pytest.raises(InvalidProblem, match=r"parameters\.a must be a finite"):
        parse(text)
    assert len(parse(text.replace("a.b =", "a =")).f) == len(formula)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    latin = tmp_path / "latin.toml"
    latin.write_bytes("name = 'é'".encode("latin-1"))
    large = tmp_path / "large.toml"
    large.write_bytes(b"#" * 6_000_000)
    pipe = tmp_path / "pipe.toml"
    os.mkfifo(pipe)
    unreadable: dict[str | Path, str] = {
        tmp_path / "missing.toml": "missing.toml cannot be read: No such file",
        tmp_path: "is not a file",
        latin: "is not UTF-8 text: byte 8 is wrong",
        large: "is larger than",
        pipe: "is not a file",
        tmp_path / ("x" * 5000): "cannot be read",
        "nul\0.toml": "cannot be read",
        "": "is not a file",
    }
    for path, message in unreadable.items():
        with pytest.raises(InvalidProblem, match=message):
            read_problem(path)
    for thing in (None, 3, ["x"]):
        with pytest.raises(InvalidArgument, match="a path is text"):
            read_problem(thing)  # type: ignore[arg-type]


# ---- the place of an error --------------------------------------------------------------------------


def place(fields: ProblemFile, key: str) -> UnsafeExpression:
    """The error that parsing a formula of the file gives, placed in the file."""
    formula = fields.f if key == "f" else fields.g
    with pytest.raises(UnsafeExpression) as caught:
        parse_expression(formula or "", {}, source=key)
    return fields.locate(caught.value)


PLACES = {
    "basic": ('f = "1 + q"', 3, 10),
    "literal": ("f = '1 + q'", 3, 10),
    "indented, with spaces": ('   f   =   "1 + q"', 3, 17),
    "quoted key": ('"f" = "1 + q"', 3, 12),
    "multi-line": ('f = """\n1 +\n  q"""', 5, 3),
    "multi-line literal": ("f = '''1 +\n  q'''", 4, 3),
    "line ending backslash": ('f = """1 + \\\n   q"""', 4, 4),
    "escapes": ('f = "\\u0031\\t+ q"', 3, 16),
    "end of the text": ('f = "1 +"', 3, 9),
    "behind a decoy": ("name = '''\nf = \"0\"\n'''\nf = \"1 + q\"", 6, 10),
    "in a key of parameters": ('f = "1 + q"\n[parameters]\nf2 = 1', 3, 10),
}


@pytest.mark.parametrize("case", PLACES)
@pytest.mark.parametrize("ends", ["\n", "\r\n"])
def test_the_error_of_a_formula_stands_at_its_place_in_the_file(case: str, ends: str) -> None:
    lines, line, column = PLACES[case]
    text = f'x = "x"\ny = "y"\n{lines}\n'
    top, table, rest = text.partition("[parameters]")
    fields = parse((top + 'g = "y"\n' + table + rest).replace("\n", ends))
    error = place(fields, "f")
    assert (error.line, error.column) == (line, column)
    assert "(toy.toml, f, line" in str(error)
    assert len(str(error).splitlines()) <= 4
    _, shown, caret, *_ = str(error).splitlines()
    assert shown[caret.index("^") : caret.index("^") + 1] in ("q", '"')


def test_where_the_place_is_unknown_the_place_in_the_text_is_given(monkeypatch: pytest.MonkeyPatch) -> None:
    fields = parse(START + 'f = "1 + q"\ng = "y1"')
    monkeypatch.setattr("bilevel_sym.problem.file.fields.string_offsets", lambda *_: None)
    assert "(toy.toml, in the text of f, line 1, column 5)" in str(place(fields, "f"))


def test_errors_from_elsewhere_are_left_alone() -> None:
    fields = parse(GOOD)
    error = UnsafeExpression("no", source="h")
    assert fields.locate(error) is error
    assert replace(fields, path="").locate(UnsafeExpression("no", source="f")).line == 1


@given(st.text(alphabet='ab"\\\n\t \u00e9+', max_size=12))
def test_each_character_of_a_written_string_is_found(value: str) -> None:
    text = f"f = {writing._quoted(value)}\n"
    offsets = fields.string_offsets(text, "f", value)
    assert offsets is not None
    assert len(offsets) == len(value) + 1
    assert all(text[at] in (character, "\\") for character, at in zip(value, offsets, strict=False))


# ---- writing ----------------------------------------------------------------------------------------

RATIONALS = st.one_of(
    st.fractions(),
    st.floats(allow_nan=False, allow_infinity=False, min_value=-1e200, max_value=1e200),
    st.decimals(allow_nan=False, allow_infinity=False, places=6, min_value=-(10**9), max_value=10**9),
).map(lambda value: R(*value.as_integer_ratio()))
NAMES = st.lists(st.from_regex(r"[a-z][a-z0-9_]{0,5}_", fullmatch=True), min_size=5, max_size=8, unique=True)
TEXTS = st.text(st.characters(codec="utf-8"), max_size=20)


@st.composite
def problem_files(draw: st.DrawFn) -> ProblemFile:
    x, y, a, b, *others = draw(NAMES)
    kind = draw(st.sampled_from(["bilevel", "minimax", "stochastic"]))
    parameters = {name: draw(st.one_of(st.none(), RATIONALS)) for name in others}
    low, high = sorted((draw(RATIONALS), draw(RATIONALS)))
    more: dict[str, Any] = {}
    if kind == "stochastic":
        rows = st.lists(st.tuples(RATIONALS), min_size=1, max_size=3).map(tuple)
        more = {"xi": (a,), "zeta": (b,), "xi_data": draw(rows), "zeta_data": draw(rows)}
    return ProblemFile(
        kind, (x,), (y,), draw(TEXTS), None if kind == "minimax" else draw(TEXTS), draw(st.one_of(st.none(), TEXTS)),
        parameters, draw(st.sampled_from([None, {x: (low, high)}])), **more,
    )  # fmt: skip


@given(problem_files())
def test_what_is_written_reads_back_equal(fields: ProblemFile) -> None:
    assert parse(writing._to_toml(fields)) == fields


def test_numbers_are_written_as_people_write_them() -> None:
    shown = {R(3): "3", R(1, 10): "0.1", R(-1, 8): "-0.125", R(1, 3): '"1/3"', R(-25, 2): "-12.5"}
    assert {number: writing._number(number) for number in shown} == shown
    assert writing._number(R(2) ** 70) == f'"{2**70}"'


def test_a_written_file_is_an_ordinary_file(tmp_path: Path) -> None:
    path = tmp_path / "toy.toml"
    problem = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")
    problem.save(path)
    assert path.read_text(encoding="utf-8") == problem.to_toml()
    assert [p.name for p in tmp_path.iterdir()] == ["toy.toml"]
    other = tmp_path / "other"
    other.touch()
    assert stat.S_IMODE(path.stat().st_mode) == stat.S_IMODE(other.stat().st_mode)


def test_what_would_not_read_back_is_not_written() -> None:
    good = parse(GOOD)
    for bad in (
        replace(good, x=("lambda",)),
        replace(good, f="\ud800"),
        replace(good, parameters={"a": R(1, 10**2000)}),
        replace(good, kind="other"),
    ):
        with pytest.raises(InvalidProblem):
            problem_toml(bad)


def test_the_check_before_writing_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(writing, "_number", lambda _: "0.30000000000000004")
    fields = replace(parse(GOOD), parameters={"a": R(3, 10)})
    with pytest.raises(InvalidProblem, match="do not survive"):
        problem_toml(fields)


@pytest.mark.parametrize("name", [n for n, content in FILES.items() if len(content) < 10_000 and n not in VALID_FILES])
def test_messages_are_short_and_name_the_file(name: str, tmp_path: Path) -> None:
    path = tmp_path / "problem.toml"
    path.write_bytes(FILES[name])
    with pytest.raises(InvalidProblem) as caught:
        read_problem(path)
    assert str(path) in caught.value.message
    assert len(str(caught.value).splitlines()) <= 4
    assert len(str(caught.value)) < 600


def test_the_limits_are_those_of_the_reader() -> None:
    assert reading.MAX_BYTES <= 5_000_000
