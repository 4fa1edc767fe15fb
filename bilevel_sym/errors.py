"""The exception tree. Each class says its cause and its cure.

A false theorem is a verdict and running out of steps is a status; neither is an exception.
"""

from __future__ import annotations

import math
import os
from collections.abc import Mapping, Sequence

__all__ = [
    "AssumptionViolated",
    "BilevelError",
    "CannotWrite",
    "CertificateFailure",
    "CheckpointFailure",
    "ForeignPackage",
    "InvalidArgument",
    "InvalidExtension",
    "InvalidProblem",
    "KernelError",
    "LinearSystemFailure",
    "LowerLevelFailure",
    "NoClosedForm",
    "TimeIsUp",
    "TooLarge",
    "UnsafeExpression",
    "visible",
]


class BilevelError(Exception):
    """Root of every error that this toolkit raises on purpose.

    >>> try:
    ...     raise InvalidProblem("x is empty", hint="pass at least one symbol")
    ... except BilevelError as error:
    ...     print(error)
    x is empty
    try: pass at least one symbol
    """

    def __init__(self, message: str, *, hint: str | None = None) -> None:
        self.message = visible(message)
        self.hint = None if hint is None else visible(hint)
        super().__init__(self.message if hint is None else f"{self.message}\ntry: {self.hint}")


class InvalidArgument(BilevelError, ValueError):
    """An argument of a call that it cannot take.

    Cause: a word that is none of the choices, a number out of range, an array of another shape, an object of another
    kind. Cure: the message names the argument and what it may be.

    >>> from bilevel_sym import BilevelProblem, evaluate
    >>> evaluate(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"), [1], digits=0)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: digits=0
    try: a whole number from 1 to 10000
    """


class InvalidProblem(BilevelError, ValueError):
    """What was given does not define a problem.

    Cause: symbols that overlap, names that are not declared, constants that are not real numbers, a box
    that misses a variable, data of the wrong shape. Cure: the message names the field and what it wants.

    >>> issubclass(InvalidProblem, ValueError)
    True
    """


class UnsafeExpression(InvalidProblem):
    """Text that the grammar does not accept, whether hostile or only mistyped.

    Cause: a character, name or construction outside the allowlist, or a size beyond the limits. Cure: look under the
    caret.

    - ``message``: what is wrong.
    - ``text``: what was read.
    - ``line``: of the offending character, from 1.
    - ``column``: likewise.
    - ``hint``: what to try.
    - ``source``: the file, where there is one.

    >>> print(UnsafeExpression("unknown name 'q'", text="x + q", column=5))
    unknown name 'q' (line 1, column 5)
      x + q
          ^
    """

    def __init__(
        self,
        message: str,
        *,
        text: str = "",
        line: int = 1,
        column: int = 1,
        hint: str | None = None,
        source: str | None = None,
    ) -> None:
        self.what = message
        self.line = line
        self.column = column
        self.source = source
        where = f"line {line}, column {column}"
        full = f"{message} ({where if source is None else f'{source}, {where}'})"
        super().__init__(full + _caret(text, line, column), hint=hint)


class AssumptionViolated(BilevelError):
    """A standing assumption of the theory fails at a point.

    Cause: for example a lower level that is not strongly convex there. Cure: shrink the box, or mend g.

    - ``message``: what is wrong.
    - ``label``: that of the assumption in its paper.
    - ``point``: where it fails, by name.
    - ``value``: the offending quantity; for convexity, an eigenvalue.
    - ``hint``: what to try.

    >>> error = AssumptionViolated("g_yy is not positive definite", label="assu:bilevel",
    ...                            point={"x": 0, "y": 1}, value=-2)
    >>> print(error)
    g_yy is not positive definite: -2 at x = 0, y = 1 [assu:bilevel]
    """

    def __init__(
        self,
        message: str,
        *,
        label: str,
        point: Mapping[str, object],
        value: object,
        hint: str | None = None,
    ) -> None:
        self.label = label
        self.point = dict(point)
        self.value = value
        at = ", ".join(f"{name} = {number}" for name, number in self.point.items())
        super().__init__(f"{message}: {value}{' at ' + at if at else ''} [{label}]", hint=hint)


class NoClosedForm(BilevelError):
    """grad_y g = 0 was not solved in closed form, and a closed form was asked for.

    Cause: none exists, or writing it out would be too large to read. Cure: ``closed_form="auto"`` or
    ``False``; the implicit formulas need no y*(x), only the value of y at it.

    >>> issubclass(NoClosedForm, BilevelError)
    True
    """


class TimeIsUp(BilevelError):
    """A limit in seconds was reached before the work was done.

    Cause: ``seconds`` was given, and did not suffice. Cure: more seconds, or none: then the effort alone decides, and
    the answer is the same on every machine.

    >>> issubclass(TimeIsUp, BilevelError)
    True
    """


class TooLarge(NoClosedForm):
    """What was asked for exists, but would fill books, or more memory or effort than was given.

    Cause: an inverse, or a Hessian, of large blocks, written out; a search or a check in many variables. It is refused
    before it is begun. Cure: ``.blocks`` and ``.auxiliaries``, which keep the linear solve by name;
    ``.latex(form="blocks")``; kernels for numbers; ``memory=`` and ``effort=``. The message says what would fit.

    >>> issubclass(TooLarge, NoClosedForm)
    True
    """


class LowerLevelFailure(BilevelError):
    """The numerical solution of the lower level failed for one member of a batch.

    Cause: no minimiser, g not strongly convex on the way, or numbers beyond float64. Cure: a better start, or x where g
    is strongly convex.

    - ``message``: what is wrong.
    - ``member``: the index in the batch.
    - ``x``: the point.
    - ``y``: how far its lower level came.
    - ``eigenvalue``: the smallest of g_yy there.
    - ``hint``: what to try.
    - ``kink``: where g has no derivative, if the minimiser lies there.

    >>> print(LowerLevelFailure("not strongly convex", member=(2,), x=[1.0], y=[0.0], eigenvalue=-2.0))
    not strongly convex: member 2 of the batch, at x = [1], y = [0], where the smallest eigenvalue of g_yy is -2
    """

    def __init__(
        self,
        message: str,
        *,
        member: tuple[int, ...] = (),
        x: Sequence[float] = (),
        y: Sequence[float] = (),
        eigenvalue: float = math.nan,
        hint: str | None = None,
        kink: str = "",
    ) -> None:
        self.what, self.kink = message, kink
        self.member, self.x, self.y, self.eigenvalue = member, tuple(x), tuple(y), eigenvalue
        who = f"member {', '.join(map(str, member))} of the batch, " if member else ""
        where = f"at x = {_short(x)}, y = {_short(y)}, where the smallest eigenvalue of g_yy is {eigenvalue:.4g}"
        super().__init__(f"{message}: {who}{where}", hint=hint)

    def renamed(self, member: tuple[int, ...]) -> LowerLevelFailure:
        """The same failure under the member's index in the caller's batch."""
        return LowerLevelFailure(
            self.what, member=member, x=self.x, y=self.y, eigenvalue=self.eigenvalue, hint=self.hint, kink=self.kink
        )


class LinearSystemFailure(BilevelError):
    """A hypergradient could not be estimated: conjugate gradients broke down, or numbers left float64.

    Cause: g_yy is not positive definite at the point reached, or tau is above 2/ell, so that y runs away. Cure: a
    start nearer to the solution, a smaller tau, or x where g is strongly convex.

    >>> issubclass(LinearSystemFailure, BilevelError)
    True
    """


class CertificateFailure(BilevelError):
    """Something could not be proved, so there is no certificate. Never a guess.

    Cause: a kink at the point, a lower level that is not strongly convex there or nearly so, a function outside its
    domain. Cure: move the point off the kink, mend g, or ask for fewer digits; the message says what failed.

    - ``kink``: where g has no derivative, if the minimiser lies there.

    >>> issubclass(CertificateFailure, BilevelError)
    True
    """

    def __init__(self, message: str, *, hint: str | None = None, kink: str = "") -> None:
        self.kink = kink
        super().__init__(message, hint=hint)


class ForeignPackage(BilevelError, ImportError):
    """Another package has the name ``verify``, which is that of a part of this one.

    Cause: a ``verify.py`` or ``verify/`` that Python finds first, or another distribution of that name, installed
    later. Cure: the message names the file, and what removes or avoids it. Nothing of it was run.

    >>> issubclass(ForeignPackage, ImportError)
    True
    """


class InvalidExtension(BilevelError):
    """What an installed package adds cannot be used; everything else works as before.

    Cause: its entry point cannot be imported, is an object of another kind, or fails when it is called. Cure: the
    message names the distribution; update it, or uninstall it.

    >>> issubclass(InvalidExtension, BilevelError)
    True
    """


class CheckpointFailure(BilevelError):
    """A run cannot go on from the checkpoint that was named; nothing was run, and the file is as it was.

    Cause: it belongs to another problem, algorithm, start, seed or version, or it is damaged; the message says which.
    Cure: delete it to begin anew, or name another file.

    >>> print(CheckpointFailure("run.checkpoint is damaged"))
    run.checkpoint is damaged
    try: delete it to begin anew, or name another file
    """

    def __init__(self, message: str) -> None:
        super().__init__(message, hint="delete it to begin anew, or name another file")


class CannotWrite(BilevelError, OSError):
    """A file could not be written; what stood there before is as it was.

    Cause: a full disk, a folder that is missing or belongs to another user, a directory of that name. Cure: the message
    says what to try.

    - ``message``: what is wrong.
    - ``path``: the file, ``filename`` of the error.
    - ``number``: that of the system's error, ``errno``; 0 if there is none.
    - ``hint``: what to try.

    >>> print(CannotWrite("run.csv cannot be written: the disk is full", path="run.csv", number=28, hint="make room"))
    run.csv cannot be written: the disk is full
    try: make room
    """

    def __init__(self, message: str, *, path: str | os.PathLike[str], number: int = 0, hint: str | None = None) -> None:
        super().__init__(message, hint=hint)
        self.errno, self.strerror, self.filename = number, message, os.fspath(path)

    def __str__(self) -> str:  # OSError would put its number before the words
        return str(self.args[0])


class KernelError(InvalidArgument):
    """A kernel was called with arrays of the wrong shape or type, or with numbers that a symbol cannot stand for.

    Cause: the message gives the expected and the given shape. Cure: reshape, or convert to float64.

    >>> issubclass(KernelError, InvalidArgument)
    True
    """


def visible(text: str, *, lines: bool = True) -> str:
    """Text in which whatever a terminal would obey, and not print, is written out; ends of lines stay with ``lines``.

    >>> print(visible("\\x1b[2J"), visible("a\\nb", lines=False))
    \\x1b[2J a\\nb
    """
    if text.isprintable():
        return text
    return "".join(c if c.isprintable() or (lines and c == "\n") else repr(c)[1:-1] for c in text)


def _short(values: Sequence[float], limit: int = 6) -> str:
    shown = ", ".join(f"{value:.6g}" for value in values[:limit])
    return f"[{shown}{', ...' if len(values) > limit else ''}]"


def _caret(text: str, line: int, column: int, *, width: int = 70) -> str:
    """The offending line with a caret under the offending column, cut to a readable width."""
    lines = text.split("\n")
    if not text or line > len(lines):
        return ""
    start = max(0, column - 1 - width // 2)
    shown = lines[line - 1][start : start + width]
    printable = "".join(c if c.isprintable() else "?" for c in shown)
    return f"\n  {printable}\n  {' ' * (column - 1 - start)}^"
