"""Saved certificates are altered in a thousand ways: none that states something false is accepted.

The truth about f = m x y, g = q y^2 - k sin(x) y is known in closed form for all m, q, k and boxes, so that the test
can tell which statement is false whatever was altered: numbers, digits, boxes, cuts, order, names, the problem.
"""

from __future__ import annotations

import copy
import json
import math
import random
import re
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import verify
from bilevel_sym import BilevelProblem, evaluate
from verify.certificates import recheck as program
from verify.points.stationary import search

BOX = {"x": (-1, "3/2"), "y": (-1, "1/2")}
WIDE = {"x": (-3, "5/2"), "y": (-2, 2)}
Content = dict[str, Any]
SLACK = 1e-9  # of the floats in which the truth is computed


def problem(box: Any = BOX) -> BilevelProblem:
    return BilevelProblem("2*x*y", "3*y**2/2 - sin(x)*y", "x", "y", box=box)


def parameters(text: str) -> tuple[float, float, float]:
    """m, q, k of a problem's text, in the forms in which the alterations write it."""
    f = re.search(r'f = "(\S+?)\*x\*y"', text)
    g = re.search(r'g = "(\S+?)\*y\*\*2/2 - (?:(\S+?)\*)?y\*sin\(x\)"', text)
    assert f is not None, text
    assert g is not None, text
    return float(f[1]), float(g[1]) / 2, float(g[2] or 1)


def written(m: str, q: str, k: str) -> str:
    return f'kind = "bilevel"\nx = ["x"]\ny = ["y"]\nf = "{m}*x*y"\ng = "{q}*y**2/2 - {k}*y*sin(x)"\n'


def largest(function: Callable[[Any], Any], low: float, high: float) -> float:
    """The largest absolute value on an interval, from below, to about 1e-9."""
    return float(np.abs(function(np.linspace(low, high, 20_001))).max())


def truth_of_constants(m: float, q: float, k: float, box: dict[str, tuple[float, float]]) -> dict[str, float]:
    (a, b), (c, d) = box["x"], box["y"]
    tall, sine, cosine = max(abs(c), abs(d)), largest(np.sin, a, b), largest(np.cos, a, b)
    slopes = [abs(2 * q * y - k * s) for y in (c, d) for s in np.sin(np.linspace(a, b, 2001))]
    return {
        "mu": 2 * q, "ell": max(2 * q, m, k * tall * sine, k * cosine), "rho": k * sine,
        "nu": k * cosine, "M": m * max(tall, abs(a), abs(b)), "g_y": max(slopes),
    }  # fmt: skip


def truth_of_smoothness(m: float, q: float, k: float, box: dict[str, tuple[float, float]]) -> dict[str, float]:
    """Phi = s x sin(x) with s = m k/(2 q)."""
    s, (a, b) = m * k / (2 * q), box["x"]
    return {
        "grad_norm": s * largest(lambda x: np.sin(x) + x * np.cos(x), a, b),
        "L_phi": s * largest(lambda x: 2 * np.cos(x) - x * np.sin(x), a, b),
        "rho_phi": s * largest(lambda x: 3 * np.sin(x) + x * np.cos(x), a, b),
    }


def box_of(content: Content) -> dict[str, tuple[float, float]]:
    return {name: tuple(float(program.rational(end)) for end in ends) for name, ends in content["box"].items()}  # type: ignore[misc]


def is_false(content: Content, found: dict[str, Any]) -> bool:
    """Whether what was accepted is not true."""
    m, q, k = parameters(content["problem"])
    kind, box = content["kind"], box_of(content)
    if kind in ("block", "smoothness"):
        truth = (truth_of_constants if kind == "block" else truth_of_smoothness)(m, q, k, box)
        ends = {name: (float(low), float(high)) for name, (low, high) in found["numbers"].items()}
        assert set(ends) == set(truth)
        return any(
            not low - SLACK - 1e-7 * t <= t <= high * (1 + SLACK) + SLACK
            for (low, high), t in zip(ends.values(), (truth[n] for n in ends), strict=True)
        )
    if kind == "point":
        x = box["x"][0]
        s = m * k / (2 * q)
        values = {
            "y*": k * math.sin(x) / (2 * q), "Phi": s * x * math.sin(x), "dPhi/dx": s * (math.sin(x) + x * math.cos(x)),
            "d2Phi/dxdx": s * (2 * math.cos(x) - x * math.sin(x)),
        }  # fmt: skip
        return any(abs(values[n] - float(c)) > float(r) + 1e-12 for n, (c, r) in found["numbers"].items())
    return not the_points_are_right(content, box["x"], m * k / (2 * q))


ZEROS = (0.0, 2.028757838110434, -2.028757838110434)  # of sin(x) + x cos(x) in [-3, 3]


def the_points_are_right(content: Content, x: tuple[float, float], s: float) -> bool:
    points = [([float(program.rational(e)) for e in p["near"]["x"]], p["kind"]) for p in content["points"]]
    undecided = [[float(program.rational(e)) for e in box["x"]] for box in content["undecided"]]
    hit = []
    for (low, high), kind in points:
        zeros = [z for z in ZEROS if low - 1e-12 <= z <= high + 1e-12]
        sign = 1 if zeros and (zeros[0] == 0) == (s > 0) else -1
        if len(zeros) != 1 or kind not in ("undecided", "local minimum" if sign > 0 else "local maximum"):
            return False
        hit.append(zeros[0])
    rest = [z for z in ZEROS if x[0] < z < x[1] and z not in hit and not any(a <= z <= b for a, b in undecided)]
    return len(set(hit)) == len(hit) and not rest


# ---- alterations -------------------------------------------------------------------------------------------------


def paths(node: Any, path: tuple[Any, ...] = ()) -> Iterator[tuple[Any, ...]]:
    """Where the leaves of a certificate are."""
    items = node.items() if isinstance(node, dict) else enumerate(node) if isinstance(node, list) else ()
    for key, value in items:
        yield from paths(value, (*path, key)) if isinstance(value, (dict, list)) and value else [(*path, key)]


def at(content: Content, path: tuple[Any, ...]) -> Any:
    for key in path:
        content = content[key]
    return content


def moved_number(text: str, rng: random.Random) -> str:
    value = float(program.rational(text))
    how = rng.choice(["more", "less", "far", "sign", "digit", "zero"])
    if how == "digit" and re.search(r"\d", text):
        place = rng.choice([m.start() for m in re.finditer(r"\d", text)])
        return text[:place] + rng.choice("0123456789") + text[place + 1 :]
    scale = {
        "more": 1 + 10 ** rng.uniform(-6, -0.5),
        "less": 1 - 10 ** rng.uniform(-6, -0.5),
        "far": rng.uniform(-5, 5),
    }
    return repr({"sign": -value, "zero": 0.0}.get(how, value * scale.get(how, 1.0)))


def alter(content: Content, rng: random.Random) -> None:
    """One alteration of a random sort."""
    leaves = [p for p in paths(content) if p[0] not in ("format", "problem")]
    sort = rng.choice(
        ["number", "number", "number", "claim", "problem", "box", "cuts", "delete", "double", "swap", "shuffle"]
    )
    path = rng.choice(leaves)
    if sort == "claim" and isinstance(content.get("claims"), dict):
        chosen = content["claims"][rng.choice(sorted(content["claims"]))]
        key = rng.choice(["lower", "upper"]) if isinstance(chosen, dict) else rng.choice([0, 1])
        chosen[key] = moved_number(chosen[key], rng)
    elif sort in ("number", "claim") and isinstance(at(content, path), str):
        try:
            at(content, path[:-1])[path[-1]] = moved_number(at(content, path), rng)
        except program.Refused:
            at(content, path[:-1])[path[-1]] = rng.choice(
                ["", "0", "local minimum", "saddle", "local maximum", "g_yy 0"]
            )
    elif sort == "problem":
        m, q, k = (rng.choice([repr(round(v * rng.uniform(0.5, 2), 3)), repr(v)]) for v in (2.0, 3.0, 1.0))
        content["problem"] = written(m, q, k)
    elif sort == "box":
        name, side = rng.choice(sorted(content["box"])), rng.choice([0, 1])
        content["box"][name][side] = moved_number(content["box"][name][side], rng)
    elif sort == "cuts":
        alter_cuts(content, rng)
    elif sort == "delete":
        del at(content, path[:-1])[path[-1]]
    elif sort == "double" and content.get("points"):
        content["points"].append(copy.deepcopy(rng.choice(content["points"])))
    elif sort == "swap":
        other = rng.choice(leaves)
        first, second = at(content, path), at(content, other)
        at(content, path[:-1])[path[-1]], at(content, other[:-1])[other[-1]] = second, first
    elif content.get("points"):
        rng.shuffle(content["points"])
        content["points"] = content["points"][: rng.randint(0, len(content["points"]))]


def alter_cuts(content: Content, rng: random.Random) -> None:
    covers = [
        claim["covers"]
        for claim in content.get("claims", {}).values()
        if isinstance(claim, dict) and claim.get("covers")
    ]
    if not covers:
        return
    chosen = rng.choice(covers)
    key = rng.choice(sorted(chosen))
    words = chosen[key].split()
    place = rng.randrange(len(words))
    how = rng.choice(["drop", "add", "change", "cut off", "other"])
    if how == "drop":
        del words[place]
    elif how == "add":
        words.insert(place, rng.choice([".", "0", "1", "7", "x"]))
    elif how == "change":
        words[place] = rng.choice([".", "0", "1", "-1", "0 . ."])
    elif how == "cut off":
        words = words[:place]
    else:
        other = rng.choice(covers)
        words = other[rng.choice(sorted(other))].split()
    chosen[key] = " ".join(words)


@pytest.fixture(scope="module")
def originals(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Content]:
    folder = tmp_path_factory.mktemp("certificates")
    verify.constants(problem()).save(folder / "block.json")
    verify.smoothness(problem(), rtol=0.1).save(folder / "smoothness.json")
    search(problem(WIDE)).save(folder / "stationary.json")
    evaluate(problem(), ["3/10"], digits=10).save(folder / "point.json")
    return {path.stem: json.loads(path.read_text()) for path in folder.glob("*.json")}


def alterations(original: Content, seed: int) -> Content:
    rng = random.Random(f"{original['kind']} {seed}")
    content = copy.deepcopy(original)
    for _ in range(rng.choice([1, 1, 1, 2, 3])):
        with suppress(LookupError, TypeError, ValueError, AttributeError):  # what an alteration before it has spoilt
            alter(content, rng)
    return content


def outcome(content: Content, path: Path) -> str:
    path.write_text(json.dumps(content))
    try:
        found = program.prove(path)
    except (program.NotProved, program.Refused) as error:
        return type(error).__name__
    return "false" if is_false(content, found) else "true"


@pytest.mark.slow
def test_the_originals_are_true_and_accepted(originals: dict[str, Content], tmp_path: Path) -> None:
    assert {kind: outcome(content, tmp_path / "x.json") for kind, content in originals.items()} == dict.fromkeys(
        originals, "true"
    )


def test_what_is_false_is_told(originals: dict[str, Content]) -> None:
    """The referee of this test can say no: it is shown statements that are false."""
    block = copy.deepcopy(originals["block"])
    numbers = {name: (claim["lower"], claim["upper"]) for name, claim in block["claims"].items()}
    assert not is_false(block, {"numbers": numbers})
    assert is_false(block, {"numbers": numbers | {"rho": ("0.9", "0.99")}})
    block["problem"] = written("2", "3.01", "1")
    assert is_false(block, {"numbers": numbers})
    points = copy.deepcopy(originals["stationary"])
    assert not is_false(points, {})
    points["points"].pop()
    assert is_false(points, {})


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["block", "smoothness", "stationary", "point"])
def test_altered_certificates(originals: dict[str, Content], tmp_path: Path, kind: str) -> None:
    outcomes = [outcome(alterations(originals[kind], seed), tmp_path / "x.json") for seed in range(12)]
    assert "false" not in outcomes
    assert set(outcomes) - {"true"}  # and some are refused


@pytest.mark.slow
@pytest.mark.in_ci(part=[0])
@pytest.mark.parametrize("part", range(10))
@pytest.mark.parametrize("kind", ["block", "smoothness", "stationary", "point"])
def test_a_thousand_altered_certificates(originals: dict[str, Content], tmp_path: Path, kind: str, part: int) -> None:
    seeds = range(25 * part, 25 * part + 25)
    outcomes = {seed: outcome(alterations(originals[kind], seed), tmp_path / "x.json") for seed in seeds}
    assert [seed for seed, said in outcomes.items() if said == "false"] == []


@pytest.mark.parametrize("planted", ["definite", "norm_fits", "inside"])
def test_a_checker_that_nods_is_noticed(
    monkeypatch: pytest.MonkeyPatch, originals: dict[str, Content], tmp_path: Path, planted: str
) -> None:
    """Each proof step matters: a checker without it accepts a false statement."""
    content = copy.deepcopy(originals["block"])
    if planted == "inside":
        content = copy.deepcopy(originals["smoothness"])
        content["claims"]["grad_norm"] |= {"upper": "inf", "lower": "50", "point": {"x": "100"}}
    elif planted == "definite":
        content = copy.deepcopy(originals["stationary"])
        content["points"][0]["kind"] = (
            "local minimum" if content["points"][0]["kind"] != "local minimum" else "local maximum"
        )
    else:
        content["claims"]["M"] |= {"upper": "0.5", "lower": "0", "at": ""}
        content["kind"] = "joint"
        verify.constants(problem(), reading="joint").save(tmp_path / "joint.json")
        content = json.loads((tmp_path / "joint.json").read_text())
        content["claims"]["ell"] |= {"upper": "0.5", "lower": "0", "at": ""}
    path = tmp_path / "x.json"
    path.write_text(json.dumps(content))
    with pytest.raises(program.NotProved):
        program.prove(path)
    monkeypatch.setattr(program, planted, lambda *_: True)
    program.prove(path)
