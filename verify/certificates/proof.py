"""recheck: a saved certificate, proved again by the one program that shares no code with the search."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from types import MappingProxyType
from typing import Any

from flint import arb, fmpq

from bilevel_sym import BilevelProblem
from bilevel_sym.certify.saved_certificate import problem_text
from bilevel_sym.errors import CertificateFailure, InvalidProblem
from verify.certificates import recheck as program
from verify.certificates.provable import ready
from verify.verdict import Bracket

__all__ = ["Rechecked", "proved", "recheck"]

KINDS = MappingProxyType({"block": "constants", "joint": "constants"})


@dataclass(frozen=True, eq=False)
class Rechecked:
    """What ``recheck`` proved, in sentences and in numbers.

    ``brackets`` are the proved ends of the constants, or of the smoothness of Phi, as floats rounded outward.

    - ``kind``: "constants", "smoothness", "stationary" or "point".
    - ``sentences``: what is proved, in words.
    - ``numbers``: all claims as the file states them.
    - ``boxes``: how many pieces of the box it took.
    - ``own``: whether the problem was the consumer's.

    >>> import pathlib, tempfile
    >>> from bilevel_sym import evaluate
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.json"
    >>> evaluate(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), ["1/3"], digits=5).save(path)
    >>> print(recheck(path).sentences[1])
    y* = 0.33333333333 to within 7.01E-12
    """

    kind: str
    sentences: tuple[str, ...]
    numbers: Mapping[str, Any]
    boxes: int
    own: bool

    @property
    def brackets(self) -> Mapping[str, Bracket]:
        """The proved brackets by name; empty for points."""
        if self.kind not in ("constants", "smoothness"):
            return MappingProxyType({})
        found = {name: Bracket(_float(low, -1), _float(high, 1)) for name, (low, high) in self.numbers.items()}
        return MappingProxyType(found)

    def __str__(self) -> str:
        whose = "the problem given" if self.own else "the problem in the file, which nobody has compared with yours"
        return "\n".join([f"proved of {whose}", *self.sentences])


def recheck(path: str | os.PathLike[str], problem: BilevelProblem | str | os.PathLike[str] | None = None) -> Rechecked:
    """Prove a saved certificate again; what is not proved raises CertificateFailure.

    ``problem`` is the consumer's own, or the path of its file: the claims are proved of it, and a certificate of
    another problem is refused, be it true. Without it they are proved of the text in the certificate. See
    ``verify/certificates/recheck.py``, which does all of it with python-flint alone and can be run by itself.

    >>> import pathlib, tempfile, verify
    >>> problem = BilevelProblem("x*y", "y**2 - sin(x)*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.json"
    >>> verify.constants(problem).save(path)
    >>> print(recheck(path, problem).brackets["nu"])
    [1, 1]
    >>> recheck(path, BilevelProblem("x*y", "y**2 - 2*sin(x)*y", "x", "y"))
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.CertificateFailure: it is a certificate of another problem: its g is another
    """
    text = None if problem is None else _text(problem)
    try:
        found = proved(os.fspath(path), text)
    except (program.NotProved, program.Refused, TypeError) as error:
        raise CertificateFailure(f"{error}") from None
    kind = KINDS.get(found["kind"], found["kind"])
    numbers = MappingProxyType(dict(found["numbers"]))
    return Rechecked(kind, tuple(found["sentences"]), numbers, found["boxes"], problem is not None)


def proved(path: str, problem: str | None) -> dict[str, Any]:
    """What the program proves; of a problem that is given only if the certificate is one of that problem.

    >>> proved("/dev/zero", None)
    Traceback (most recent call last):
        ...
    verify.certificates.recheck.Refused: it is no file of at most 16 MB
    """
    if problem is None:
        return program.prove(path)
    try:
        certificate = program.certificate(path)
        with ready():
            _compare(certificate, problem)
    except (OSError, *program.SPOILT) as error:
        raise program.Refused(f"{error!s:.200}") from None
    return program.prove(certificate, problem)


def _compare(certificate: program.Table, text: str) -> None:
    """Refuse what is certified of another problem: its variables or data are others, or f or g differ for certain."""
    mine, theirs = program.Problem(text), program.Problem(certificate.the("problem"))
    if (mine.x, mine.y, _sizes(mine)) != (theirs.x, theirs.y, _sizes(theirs)):
        raise program.NotProved("it is a certificate of another problem: the variables or the data are others")
    for point, key in product(_points(certificate, mine.names), "fg"):
        for rows in zip(mine.rows[key], theirs.rows[key], strict=True):
            try:
                one, other = (arb(program.hull(row.formulas(point, [()])).value) for row in rows)
            except ArithmeticError:  # one of them is not defined there
                continue
            if not one.overlaps(other):
                raise program.NotProved(f"it is a certificate of another problem: its {key} is another")


def _sizes(problem: program.Problem) -> list[int]:
    return [len(rows) for rows in problem.rows.values()]


def _points(certificate: program.Table, names: Sequence[str]) -> Iterator[program.Box]:
    """Three points, apart in every variable, in the box that the certificate is about, or near y*."""
    near = {name: program.rational(value) for name, value in certificate.the("near", program.Table).items()}
    ends = {name: (value - 1, value + 1) for name, value in near.items()}
    ends |= {name: tuple(map(program.rational, pair)) for name, pair in certificate.the("box", program.Table).items()}
    for k in (1, 2, 3):
        shares = (fmpq(1 + (3 * k + 2 * j) % 7, 9) for j in range(len(names)))
        boxes = (ends.get(name, (fmpq(-1), fmpq(1))) for name in names)
        yield tuple((a + (b - a) * share,) * 2 for (a, b), share in zip(boxes, shares, strict=True))


def _text(problem: BilevelProblem | str | os.PathLike[str]) -> str:
    if isinstance(problem, BilevelProblem):
        return problem_text(problem)
    try:
        return program.text_of(os.fspath(problem))
    except (OSError, ValueError, TypeError) as error:
        raise InvalidProblem(
            f"{problem} cannot be read: {error}", hint="give a problem, or the path of its file"
        ) from None


def _float(text: str, direction: int) -> float:
    """The float next to a decimal, on the outer side."""
    import math
    from fractions import Fraction

    value = float(text)
    if math.isinf(value) or (Fraction(text) - Fraction(value)) * direction <= 0:
        return value
    return math.nextafter(value, math.inf * direction)
