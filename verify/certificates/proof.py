"""recheck: a saved certificate, proved again by the one program that shares no code with the search."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from types import MappingProxyType
from typing import Any

from bilevel_sym.errors import CertificateFailure, InvalidProblem
from bilevel_sym.problem import BilevelProblem
from bilevel_sym.saved_certificate import problem_text
from verify.bracket import Bracket
from verify.certificates import recheck as program

__all__ = ["Rechecked", "recheck"]

KINDS = MappingProxyType({"block": "constants", "joint": "constants"})


@dataclass(frozen=True, eq=False)
class Rechecked:
    """What ``recheck`` proved, in sentences and in numbers.

    ``kind`` is "constants", "smoothness", "stationary" or "point". ``brackets`` are the proved ends of the constants,
    or of the smoothness of Phi, as floats rounded outward; ``numbers`` are all claims as the file states them. ``own``
    says whether the problem was the consumer's, and ``boxes`` how many pieces of the box it took.

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

    ``problem`` is the consumer's own, or the path of its file: the claims are proved of it, and the text in the
    certificate is not looked at. Without it they are proved of that text. See ``verify/certificates/recheck.py``, which
    does all of it with python-flint alone and can be run by itself.

    >>> import pathlib, tempfile, verify
    >>> problem = BilevelProblem("x*y", "y**2 - sin(x)*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    >>> path = pathlib.Path(tempfile.mkdtemp()) / "toy.json"
    >>> verify.constants(problem).save(path)
    >>> print(recheck(path, problem).brackets["nu"])
    [1, 1]
    >>> recheck(path, BilevelProblem("x*y", "y**2 - 2*sin(x)*y", "x", "y"))
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.CertificateFailure: rho was not proved where [-1.0, -0.9999999999990905], [-1.0, 1.0]
    """
    text = None if problem is None else _text(problem)
    try:
        found = program.prove(os.fspath(path), text)
    except (program.NotProved, program.Refused) as error:
        raise CertificateFailure(str(error)) from None
    kind = KINDS.get(found["kind"], found["kind"])
    numbers = MappingProxyType(dict(found["numbers"]))
    return Rechecked(kind, tuple(found["sentences"]), numbers, found["boxes"], problem is not None)


def _text(problem: BilevelProblem | str | os.PathLike[str]) -> str:
    if isinstance(problem, BilevelProblem):
        return problem_text(problem)
    try:
        return Path(problem).read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError, TypeError) as error:
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
