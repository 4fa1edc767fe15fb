"""@claim("lem:descent"): one function per statement. A module of a paper's ``claims`` holds a family."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from bilevel_sym import theories
from bilevel_sym.errors import BilevelError, TooLarge
from bilevel_sym.theories import Statement, cite
from verify.places import placed
from verify.study import Study
from verify.verdict import CheckResult, inconclusive, not_applicable

__all__ = ["Claim", "Kind", "NotApplicable", "claim"]

Kind = Literal["bilevel", "minimax", "stochastic"]
Check = Callable[[Study], CheckResult | Iterable[CheckResult]]


class NotApplicable(Exception):
    """Raised inside a claim that does not speak of the problem; the text says why.

    >>> str(NotApplicable("f does not depend on y"))
    'f does not depend on y'
    """


@dataclass(frozen=True)
class Claim:
    """A statement of a paper, or a user's own, that can be checked; made by ``claim``.

    - ``label``: that of the statement.
    - ``check``: the function.
    - ``kinds``: the kinds of problem that it speaks of.
    - ``citation``: kind and number of the statement in its paper, or that it is a user's own.
    - ``also``: the labels of formulas that it checks on the way.

    >>> from verify.runner import claims
    >>> {item.label: item for item in claims()}["grad-Lipschitz"].title
    'grad Phi is Lipschitz with constant L_phi'
    """

    label: str
    check: Check
    kinds: tuple[Kind, ...]
    citation: str
    also: tuple[str, ...] = field(default=())

    def __post_init__(self) -> None:
        # what functools.wraps does, for a frozen object: docstring and doctest are the function's
        for name in functools.WRAPPER_ASSIGNMENTS:
            self.__dict__[name] = getattr(self.check, name)
        self.__dict__["__wrapped__"] = self.check

    @property
    def title(self) -> str:
        """The first line of the function's docstring."""
        return (inspect.getdoc(self.check) or "").partition("\n")[0].rstrip(".")

    @property
    def labels(self) -> tuple[str, ...]:
        """The label, and those of the formulas that are checked with it."""
        return (self.label, *self.also)

    def __call__(self, study: Study) -> list[CheckResult]:
        """The results for one problem, of the variant that is studied; never raises what a problem can cause."""
        if study.problem.kind not in self.kinds:
            other = not_applicable(self.label, f"it speaks of {' and '.join(self.kinds)} problems")
            return [replace(other, variant=study.variant)]
        found: list[CheckResult] = []
        try:
            for result in self._found(study):
                found += [result]
        except NotApplicable as reason:
            found.append(not_applicable(self.label, str(reason)))
        except BilevelError as error:
            beyond_search = study.is_large and isinstance(error, TooLarge)
            found.append(
                not_applicable(self.label, error.message) if beyond_search else inconclusive(self.label, error.message)
            )
        except ArithmeticError as error:  # a quotient or a power of constants that are beyond all measure
            beyond = f"its numbers are too large or too small for float64 ({error})"
            found.append(inconclusive(self.label, beyond))
        return [placed(study, self._region, replace(result, variant=study.variant)) for result in found]

    @property
    def _region(self) -> str:
        """What the module of the function says that its claims speak of."""
        return str(getattr(inspect.getmodule(self.check), "REGION", ""))

    def _found(self, study: Study) -> Iterable[CheckResult]:
        """What the function returns, one by one: what it said before it gave up stays said."""
        found = self.check(study)
        if cast("object", found) is None:
            return [inconclusive(self.label, "its function returned nothing, and no result")]
        return [found] if isinstance(found, CheckResult) else found


def claim(
    label: str,
    *,
    kinds: tuple[Kind, ...] = ("bilevel", "minimax", "stochastic"),
    also: tuple[str, ...] = (),
    statements: Mapping[str, Statement] | None = None,
) -> Callable[[Check], Claim]:
    """Make a function a claim about the statement with this label.

    The function takes a ``Study`` and returns one result or several (``judged``). It may raise ``NotApplicable``; any
    error of the toolkit becomes INCONCLUSIVE with its message. A stochastic problem is studied through its mean unless
    the claim asks for the data. A module of claims may say in ``REGION`` what they speak of (``verify.places``).
    ``run(problem, claims=[your_claim])`` judges it; those of a paper's folder are taken without being named.

    - ``label``: one of a paper's, or begins with "own:" for a statement of your own.
    - ``kinds``: the kinds of problem that it speaks of.
    - ``also``: the labels of formulas that it checks on the way.
    - ``statements``: where labels are looked up; by default in all papers of ``bilevel_sym.theories``.

    >>> from verify import judged, run
    >>> from bilevel_sym import zoo
    >>> @claim("own:never-above-one")
    ... def never_above_one(study):
    ...     "|grad Phi| is at most 1."
    ...     largest = study.smoothness.grad_norm
    ...     return judged("own:never-above-one", largest, 1, evidence="certified", message="over the box")
    >>> never_above_one.title, never_above_one.citation
    ('|grad Phi| is at most 1', 'Own statement [own:never-above-one]')
    >>> print(run(zoo.get("scalar").problem, claims=[never_above_one]).results[0].verdict)
    VIOLATED
    """
    known = theories.statements() if statements is None else statements
    citation, *_ = (cite(item, known) for item in (label, *also))
    return lambda check: Claim(label, check, kinds, citation, also)
