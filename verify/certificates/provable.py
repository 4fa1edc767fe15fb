"""What the checker proves of a certificate within bounded work: ``save`` writes that, and no more.

A claim is tried as it was found. Where the checker does not prove it within its work, it is tried again a little wider,
and wider again; what it never proves is left open, as an infinite end or as a box that may hold more. So every file can
be proved again, with the cuts that are written in it, and takes no longer than it did here. Work is estimated from the
size of the formulas, never measured.
"""

from __future__ import annotations

import ast
import contextlib
import json
import math
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from math import comb
from typing import Any

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic.balls import precision
from bilevel_sym.certify.saved_certificate import EXACT, LOOSE, content_of, rounded_down, rounded_up
from bilevel_sym.errors import CertificateFailure
from bilevel_sym.system.progress import ProgressBar
from verify.certificates import recheck

__all__ = ["Trial", "named", "provable_brackets", "provable_points", "ready"]

WIDER = (EXACT, LOOSE, "0.02", "0.1", "0.3", "1", "3", "15", "255", "65535")  # relatively, what a claim is loosened by
WORK = 20e6  # units of about a microsecond, for a block of a claim that is tried as it was found
PHI_WORK = 60e6  # the same for a derivative of Phi: y* is enclosed over small pieces only
SHARE_OF_WIDER = 0.2  # of that work, for each wider one
POINTS_WORK = 200e6  # for all of a box but its stationary points
FEWEST = 16  # pieces: estimates are of dense formulas, and most are sparse
ROUNDS = 4  # boxes that are left open change where the others are cut


@contextlib.contextmanager
def ready() -> Iterator[None]:
    """As the checker computes: in balls of its bits, and with room for long sums, which are deep trees."""
    depth = sys.getrecursionlimit()
    sys.setrecursionlimit(5000)
    try:
        with precision(recheck.BITS):
            yield
    finally:
        sys.setrecursionlimit(depth)


class Trial(recheck.Checker):
    """The checker on a certificate that has not been written yet: it keeps its cuts, and ends after ``most`` pieces.

    What it does not prove goes to ``given_up``, if that is a list.

    >>> toy = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    >>> trial = Trial("smoothness", toy, {"box": {"x": ["0", "1"]}, "near": {}})
    >>> trial.cover("that x is not in the middle", ".", lambda box: (0, None) if box[0][1] - box[0][0] == 1 else None)
    '0 . .'
    """

    def __init__(self, kind: str, problem: BilevelProblem, says: Mapping[str, Any]) -> None:
        content = json.loads(json.dumps(content_of(kind, problem, says)), object_hook=recheck.Table)
        super().__init__(recheck.Problem(content["problem"], content["near"]), content)
        self.most = recheck.BOXES
        self.given_up: list[recheck.Box] | None = None

    def cover(self, what: str, cuts: str, test: Callable[[recheck.Box], Any]) -> str:
        """As the checker's own, with an earlier end; the cuts that were made, as they are written."""
        words, waiting, made = iter(cuts.split()), [(self.box, 0)], []
        while waiting:
            (box, deeper), self.boxes = waiting.pop(), self.boxes + 1
            word = "." if deeper else next(words)
            where = test(box) if word == "." else (int(word), None)
            if where and (self.boxes > self.most or deeper > recheck.DEEPER * len(box)):
                if self.given_up is None:
                    raise recheck.NotProved(what)
                self.given_up.append(box)
                where = None
            made.append(str(where[0]) if where else ".")
            waiting += [(half, deeper + (word == ".")) for half in recheck.cut(box, *where)] if where else []
        return " ".join(made)


def provable_brackets(
    kind: str, problem: BilevelProblem, says: Mapping[str, Any], found: Mapping[str, float], progress: bool
) -> dict[str, Any]:
    """The claims of ``says`` with ends that the checker proves, and the cuts that it made.

    - ``kind``: of the certificate: "block", "joint" or "smoothness".
    - ``problem``: the problem.
    - ``says``: what is to be written, with the cuts of the search.
    - ``found``: the ends that hold all over the box, by name; of mu the lower one.
    - ``progress``: whether a terminal shows how far it is.
    """
    claims = {}
    with ready(), ProgressBar("proving what is saved", len(found), shown=progress) as meter:
        checker = Trial(kind, problem, says)
        exact = len(checker.box) == (2 if kind == "block" else 1) and kind != "joint"
        for done, (name, end) in enumerate(found.items()):
            meter.at(done, name)
            claim = _attained(checker, name, says["claims"][name])
            claims[name] = _bounded(checker, name, claim, end, WIDER[not exact :])
    return {**says, "claims": claims}


def _attained(checker: Trial, name: str, claim: Mapping[str, Any]) -> Mapping[str, Any]:
    """The claim, or zero for its other end where the checker does not see at the point given that it is reached."""
    if name != "mu" and claim["lower"] == "0":
        return claim
    try:
        row, indices, _ = checker.blocks(name)[claim["at"]]
        checker.attained(name, checker.content["claims"][name], row, indices)
    except (recheck.NotProved, ArithmeticError, LookupError):
        if name == "mu":
            raise CertificateFailure(
                "nothing was saved: where the smallest eigenvalue of g_yy is small was not proved again",
                hint="a box that ends before the kink or the end of a domain",
            ) from None
        return {**claim, "lower": "0"}
    return claim


def _bounded(
    checker: Trial, name: str, claim: Mapping[str, Any], found: float, slacks: Sequence[str]
) -> dict[str, Any]:
    """One claim, as narrow as the checker proves it."""
    end, rounded, never = ("lower", rounded_down, "-inf") if name == "mu" else ("upper", rounded_up, "inf")
    left, covers = checker.blocks(name), dict[str, str]()
    for slack in slacks if math.isfinite(found) else ():
        stated, work = {**claim, end: rounded(found, slack)}, PHI_WORK if checker.kind == "smoothness" else WORK
        work *= 1 if slack == slacks[0] else SHARE_OF_WIDER
        for key in list(left):
            cuts = _cuts(checker, name, stated, key, work)
            if cuts is None:
                break
            del left[key]
            covers |= {key: cuts} if cuts != "." else {}
        if not left:
            return {**stated, "covers": covers}
    return {**claim, end: never, "covers": {}}


def _cuts(checker: Trial, name: str, claim: Mapping[str, Any], key: str, work: float) -> str | None:
    """The cuts of a proof: the checker's own, or those of the search; None where there is none within the work."""
    row, indices, shape = checker.blocks(name)[key]
    most = _pieces(checker, row, indices, work)
    for hint in (".", claim["covers"].get(key, "")):
        checker.boxes, checker.most = 0, most
        if not hint or len(hint) > 4 * most:
            continue
        try:
            cover = recheck.Table({key: hint})
            return str(checker.bounded(name, recheck.Table({**claim, "covers": cover}), key, row, indices, shape))
        except recheck.NotProved:
            continue
    return None


def _pieces(checker: Trial, row: Any, indices: Sequence[Sequence[int]], work: float) -> int:
    """How many pieces of the box so much work is: a jet has a coefficient for each derivative up to its order."""
    if row is checker.problem:  # of Phi: y* has to be found, and has jets of its own
        trees, variables, order = [r.tree for rows in row.rows.values() for r in rows], len(row.x), len(indices[0]) + 2
    else:
        trees, variables, order = [row.tree], len({k for index in indices for k in index}), len(indices[0]) + 1
    nodes = sum(1 for tree in trees for _ in ast.walk(tree))
    return max(FEWEST, int(work / (nodes * comb(variables + order, order))))


def provable_points(problem: BilevelProblem, says: Mapping[str, Any], progress: bool) -> dict[str, Any]:
    """Stationary points that the checker proves, and as open boxes what it does not prove to be without others.

    - ``problem``: the problem.
    - ``says``: what is to be written.
    - ``progress``: whether a terminal shows how far it is.
    """
    with ready(), ProgressBar("proving what is saved", shown=progress):
        says = _proved_points(problem, says)
        for _ in range(ROUNDS):
            checker = Trial("stationary", problem, says)
            checker.given_up = []
            checker.most = _pieces(checker, checker.problem, [(0, 0)], POINTS_WORK)
            try:
                checker.stationary()
            except recheck.NotProved as error:
                raise CertificateFailure(f"nothing was saved: {error}") from None
            if not checker.given_up:
                return dict(says)
            rest = [named(checker.names, box) for box in checker.given_up]
            says = {**says, "undecided": [*says["undecided"], *rest]}
            if len(says["points"]) + len(says["undecided"]) > recheck.POINTS:
                break
        return {**says, "points": [], "undecided": [says["box"]]}


def _proved_points(problem: BilevelProblem, says: Mapping[str, Any]) -> dict[str, Any]:
    """The same with the kinds that the checker proves; the box of a point that it does not find is an open one."""
    points, undecided = [], list(says["undecided"])
    for point in says["points"]:
        for kind in (point["kind"], "undecided"):
            alone = {**says, "points": [{**point, "kind": kind}], "undecided": [says["box"]]}
            with contextlib.suppress(recheck.NotProved, LookupError, ArithmeticError):
                Trial("stationary", problem, alone).stationary()
                points.append({**point, "kind": kind})
                break
        else:
            undecided.append(point["alone"])
    return {**says, "points": points, "undecided": undecided}


def named(names: Sequence[str], box: Sequence[tuple[Any, Any]]) -> dict[str, list[str]]:
    """A box as files state it.

    >>> named(["x"], [(0, 1)])
    {'x': ['0', '1']}
    """
    return {name: [str(low), str(high)] for name, (low, high) in zip(names, box, strict=True)}
