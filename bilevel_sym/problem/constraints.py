"""Constraints are not supported; this says so, in one way, wherever somebody states one."""

from __future__ import annotations

from collections.abc import Iterable

from bilevel_sym.errors import InvalidProblem

__all__ = ["CONSTRAINT_WORDS", "refuse_constraints", "unsupported"]

CONSTRAINT_WORDS = frozenset(("constraints", "constraint", "subject_to", "bounds"))


def unsupported(what: str) -> InvalidProblem:
    """The error for a constraint that was stated.

    >>> print(unsupported("constraints="))
    constraints= is not supported: box is where things are looked for, not a constraint
    try: a barrier, a penalty, softmax or squares in the formulas: see `bilevel-sym docs constraints`
    """
    return InvalidProblem(
        f"{what} is not supported: box is where things are looked for, not a constraint",
        hint="a barrier, a penalty, softmax or squares in the formulas: see `bilevel-sym docs constraints`",
    )


def refuse_constraints(kind: str, words: Iterable[str]) -> None:
    """Refuse arguments that a problem does not have: constraints with what to do instead, others as Python does.

    >>> refuse_constraints("BilevelProblem", ())
    >>> refuse_constraints("BilevelProblem", ["colour"])
    Traceback (most recent call last):
        ...
    TypeError: BilevelProblem.__init__() got an unexpected keyword argument 'colour'
    """
    for word in words:
        if word in CONSTRAINT_WORDS:
            raise unsupported(f"{word}=")
        raise TypeError(f"{kind}.__init__() got an unexpected keyword argument {word!r}")
