"""@claim("lem:descent"): one function per statement. A module of a paper's ``claims`` holds a family.

Places: over which region a statement was judged, and that no claim is made of x that were left out.

Many statements bound Phi by constants of the box. They can be judged only at x whose y*(x) lies in the box; where it
leaves the box, the constants say nothing. Such a result is about a part of x, and "over the box" would be more than it
says: it is INCONCLUSIVE, with the part that was left out.
"""

from __future__ import annotations

import functools
import inspect
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Literal, cast

from bilevel_sym import theories
from bilevel_sym.errors import BilevelError, TooLarge
from bilevel_sym.theories import Statement, cite
from verify.study import Study
from verify.verdict import CheckResult, Verdict, inconclusive, not_applicable

__all__ = ["ALL_Y", "INSIDE", "WHOLE_X", "Claim", "Kind", "NotApplicable", "claim", "placed"]

WHOLE_X = "the whole box in x"
ALL_Y = "all (x, y) of "  # followed by the name of a box: y* plays no part
INSIDE = "the box"  # its constants are held against Phi, y* or estimates of them
TOUCHED_SHARE = 0.1  # of the box in x: pieces at its ends, which are not cut any further


def placed(study: Study, region: str, result: CheckResult) -> CheckResult:
    """The result with its region; INCONCLUSIVE where it holds of a part of x alone, and that is not all.

    ``region`` is what the claim's family is judged over, where its results do not say (``REGION`` of its module).

    >>> from bilevel_sym import BilevelProblem
    >>> from verify.study import study_of
    >>> from verify.verdict import judged
    >>> leaving = BilevelProblem("exp(y)", "(y - 10*x)**2/2", "x", "y", box={"x": (-1, 1), "y": (-1, 0)})
    >>> seen = judged("grad-Lipschitz", 100.0, 200.0, evidence="sampled", message="m")
    >>> limited = placed(study_of(leaving), INSIDE, seen)
    >>> print(limited.verdict, limited.region)
    INCONCLUSIVE the box, where y* stays in it
    >>> print(limited.message)
    y* leaves the box in y for x in [-1, -0.1000977] and [0.0004882812, 1]: nothing is said there; elsewhere it holds: m
    """
    result = result if result.region else replace(result, region=region or INSIDE)
    if region != INSIDE or _speaks_of_all_x(result):
        return result
    if not study.left_out:
        return replace(result, region=result.region + _open(study.undecided))
    result = replace(result, region=f"{result.region}, where y* stays in it")
    if result.verdict is not Verdict.HOLDS:
        return result
    reason = f"y* leaves the box in y for {study.left_out}: nothing is said there; elsewhere it holds: {result.message}"
    return replace(result, verdict=Verdict.INCONCLUSIVE, message=reason)


def _open(share: float) -> str:
    """What is not proved of y*, said where it is more than the ends of the box, which y* may touch."""
    return f"; for {share:.2g} of x it is not proved that y* stays in it" if share > TOUCHED_SHARE else ""


def _speaks_of_all_x(result: CheckResult) -> bool:
    """Whether nothing was left out: bounded over the whole box in x, for all y, by definition, or zero everywhere."""
    nothing = result.evidence == "proved" and result.measured == 0
    named = result.region == WHOLE_X or result.region.startswith(ALL_Y)
    return nothing or named or result.evidence == "by definition" or result.verdict is Verdict.NOT_APPLICABLE


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
    the claim asks for the data. A module of claims may say in ``REGION`` what they speak of (``verify.registry``).
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
