"""Certified constants as JSON, and their proof from the file alone.

A file holds the problem as text, the box with exact ends, and for each block its claimed bracket, the point of the
lower end and the cuts of the cover. Nothing in it is believed: the blocks to be bounded come from the problem and the
reading, the boxes from the cuts, and every bound is proved again.
"""

from __future__ import annotations

import hashlib
import json
import math
import os
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np

from bilevel_sym.box import Box
from bilevel_sym.budget import Stopwatch
from bilevel_sym.errors import BilevelError, CertificateFailure, InvalidProblem
from bilevel_sym.problem import BilevelProblem
from verify.bracket import Bracket
from verify.enclosures.block_norm import ExactBox
from verify.enclosures.branch_and_bound import proved_upper
from verify.enclosures.cover import LEAF, Cover
from verify.regularity import BLOCKS, CertifiedConstants, Proof, instances, objective_of

__all__ = ["read", "write"]

FORMAT = "bilevel_sym constants 1"
LARGEST = 2**28  # bytes of a file that is read
_LEAF = "."


def write(constants: CertifiedConstants, path: str | os.PathLike[str]) -> None:
    """Write the file, whole or not at all.

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.regularity import constants
    >>> problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    >>> path = Path(tempfile.mkdtemp()) / "toy.json"
    >>> write(constants(problem), path)
    >>> read(path).reading
    'block'
    """
    content: dict[str, Any] = {
        "format": FORMAT,
        "problem": _problem_text(constants.problem),
        "box": {name: [str(low), str(high)] for name, (low, high) in constants.box.items()},
        "reading": constants.reading,
        "claims": [_claim(proof) for proof in constants.proofs],
    }
    text = json.dumps(content | {"digest": _digest(content)}, indent=1, allow_nan=False)
    target = Path(path)
    beside = target.with_name(f".{target.name}.{os.getpid()}.tmp")
    try:
        beside.write_text(text, encoding="utf-8")
        beside.replace(target)
    except OSError as error:
        beside.unlink(missing_ok=True)
        raise InvalidProblem(f"{path} cannot be written: {error.strerror}") from None


def read(path: str | os.PathLike[str]) -> CertifiedConstants:
    """Prove a file again; a claim that is not proved raises CertificateFailure.

    >>> path = Path(tempfile.mkdtemp()) / "toy.json"
    >>> _ = path.write_text("{}")
    >>> read(path)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.CertificateFailure: ... is not a file of certified constants: its format is None
    """
    watch = Stopwatch()
    content = _content(path)
    try:
        problem, box = _rebuilt(content)
        proofs = tuple(_proofs(problem, ExactBox(box), content))
        return CertifiedConstants(problem, box, content["reading"], proofs, watch.elapsed)
    except CertificateFailure:
        raise
    except (BilevelError, KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise CertificateFailure(f"{path} is not a whole file of certified constants: {error}") from None


# ---------------------------------------------------------------------- writing


def _problem_text(problem: BilevelProblem) -> str:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.toml"
        problem.save(path)
        return path.read_text(encoding="utf-8")


def _claim(proof: Proof) -> dict[str, Any]:
    return {
        "constant": proof.constant,
        "block": proof.block,
        "row": proof.row,
        "lower": proof.bracket.lower if math.isfinite(proof.bracket.lower) else None,
        "upper": proof.bracket.upper,
        "point": None if proof.point is None else proof.point.tolist(),
        "cuts": " ".join(_LEAF if cut == LEAF else str(cut) for cut in proof.cover.cuts),
    }


def _digest(content: Mapping[str, Any]) -> str:
    """Against accidents; against intent there is the proof."""
    return hashlib.sha256(json.dumps(content, sort_keys=True).encode()).hexdigest()


# ---------------------------------------------------------------------- reading


def _content(path: str | os.PathLike[str]) -> dict[str, Any]:
    try:
        if Path(path).stat().st_size > LARGEST:
            raise CertificateFailure(f"{path} is larger than {LARGEST} bytes")
        content = json.loads(Path(path).read_text(encoding="utf-8"))
    except OSError as error:
        raise CertificateFailure(f"{path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError):
        raise CertificateFailure(f"{path} is not JSON") from None
    version = content.get("format") if isinstance(content, dict) else None
    if version != FORMAT:
        raise CertificateFailure(f"{path} is not a file of certified constants: its format is {version!r}")
    digest = content.pop("digest", None)
    if digest != _digest(content):
        raise CertificateFailure(f"{path} was changed after it was written", hint="certify again")
    return dict(content)


def _rebuilt(content: Mapping[str, Any]) -> tuple[BilevelProblem, Box]:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "problem.toml"
        path.write_text(str(content["problem"]), encoding="utf-8")
        problem = BilevelProblem.load(path)
    names = tuple(s.name for s in problem.x), tuple(s.name for s in problem.y)
    box = Box({str(name): tuple(map(str, ends)) for name, ends in content["box"].items()}).bind(*names)
    if len(box) != problem.d + problem.n:
        raise CertificateFailure("the box of the file misses y")
    return problem, box


def _proofs(problem: BilevelProblem, region: ExactBox, content: Mapping[str, Any]) -> Iterator[Proof]:
    """Every block that the reading asks for; what else the file claims is left out."""
    claims = {(c["constant"], c["block"], c["row"]): c for c in content["claims"]}
    rows = instances(problem)
    for constant, blocks in BLOCKS[content["reading"]].items():
        for block in blocks:
            for row, instance in enumerate(rows):
                if (constant, block, row) not in claims:
                    raise CertificateFailure(f"nothing is claimed of {block}, which {constant} has to bound")
                yield _proved(instance, region, claims[constant, block, row])


def _proved(problem: BilevelProblem, region: ExactBox, claim: Mapping[str, Any]) -> Proof:
    constant, block = claim["constant"], claim["block"]
    objective = objective_of(problem, constant, block, region)
    upper = float(claim["upper"])
    lower = -math.inf if claim["lower"] is None else float(claim["lower"])
    objective.aim = upper
    cover = Cover(region.lower, region.upper, tuple(_cut(word) for word in claim["cuts"].split()))
    top = float(proved_upper(objective, cover).max())
    if not (math.isfinite(upper) and top <= upper):
        raise CertificateFailure(f"{block} is not proved to be at most {upper}: the bound is {top}")
    point = None
    if claim["point"] is not None:
        point = np.array([float(value) for value in claim["point"]])
    if lower > -math.inf or point is not None:
        _attained(objective, region, block, lower, point)
    return Proof(constant, block, claim["row"], Bracket(lower, upper), point, cover)


def _attained(objective: Any, region: ExactBox, block: str, lower: float, point: Any) -> None:
    if point is None or point.shape != region.lower.shape or not region.holds(point):
        raise CertificateFailure(f"the lower end of {block} is not attained at a point of the box")
    value = objective.certified_at(point)
    if not value >= lower:
        raise CertificateFailure(f"{block} is not proved to reach {lower}: at the point given it is {value}")


def _cut(word: str) -> int:
    if word == _LEAF:
        return LEAF
    if not (word.isascii() and word.isdigit()):
        raise CertificateFailure(f"a cut is a whole number or a dot, not {word!r:.40}")
    return int(word)
