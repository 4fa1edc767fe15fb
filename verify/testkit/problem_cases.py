"""Which problems a test is run on: those of the zoo, and generated ones that are the same for the same seed."""

from __future__ import annotations

import random
import re
from collections.abc import Iterable
from dataclasses import dataclass
from functools import cache

import numpy as np
import sympy as sp

from bilevel_sym import BilevelProblem, zoo
from bilevel_sym.errors import CertificateFailure, InvalidArgument
from verify.testkit.reference import QUANTITIES, references
from verify.testkit.sample_points import sample_points

__all__ = ["Case", "GeneratedCase", "ZooCase", "generated_cases", "zoo_cases"]

ROWS = "rows"  # a kind of its own: what ``array_problems`` draws
MOST_PROBLEMS = 10_000  # generated problems for one test
_BYTES = 4096  # of choices for one problem; the largest use a few hundred
_TRIES = 100
_POINTS = 6
_LARGEST_FLOOR = 1e-3  # three digits have to be safe somewhere


@dataclass(frozen=True)
class ZooCase:
    """A problem of the zoo; its text is its id.

    >>> case = ZooCase("scalar")
    >>> print(case)
    zoo:scalar
    >>> print(case.code().splitlines()[1])
    problem = zoo.parse('scalar').problem
    """

    spec: str

    def __str__(self) -> str:
        return f"zoo:{self.spec}"

    def problem(self) -> BilevelProblem:
        """The problem."""
        return zoo.parse(self.spec).problem

    def code(self) -> str:
        """What to paste to have the problem."""
        return f"from bilevel_sym import zoo\nproblem = zoo.parse({self.spec!r}).problem\n# {self.problem()!r}"


@dataclass(frozen=True)
class GeneratedCase:
    """Number k of the generated problems of a kind; its text is its id. To make the problem needs Hypothesis.

    >>> case = GeneratedCase("isotropic", 3)
    >>> print(case)
    generated:isotropic-3
    >>> case.problem() == GeneratedCase("isotropic", 3).problem() != GeneratedCase("isotropic", 3, seed=1).problem()
    True
    """

    kind: str
    number: int
    seed: int = 0

    def __str__(self) -> str:
        kind = re.sub(r" ([=<>]) ", r"\1", self.kind).replace(" ", "-")
        return f"generated:{kind}-{self.number}" + (f"-seed{self.seed}" if self.seed else "")

    def problem(self) -> BilevelProblem:
        """The problem: a function of the kind, the number and the seed, for one version of Hypothesis.

        Those that are too ill-conditioned to be judged in float64 are passed over.
        """
        from hypothesis import given, settings

        from verify.strategies import array_problems, recipes

        found: list[BilevelProblem] = []
        if self.kind == ROWS:
            drawn = array_problems(rows=(2, 8), features=(2, 5)).map(lambda problem: problem.lowered())
        else:
            drawn = recipes(self.kind).map(lambda recipe: recipe.problem)

        @settings(database=None)
        @given(drawn)
        def collect(problem: BilevelProblem) -> None:
            found.append(problem)

        # not by a seed: Hypothesis mixes constants of the modules that happen to be imported into what it draws itself
        choices = random.Random(f"{self.seed} {self.kind} {self.number}")
        for _ in range(_TRIES):
            collect.hypothesis.fuzz_one_input(choices.randbytes(_BYTES))  # type: ignore[attr-defined]
            if found and _telling(problem := found.pop()):
                return problem
        raise InvalidArgument(f"no problem of kind {self.kind!r} was found for seed {self.seed}", hint="another seed")

    def code(self) -> str:
        """What to paste to have the problem."""
        problem = self.problem()
        if (printed := repr(problem)).startswith("<"):  # too long to be code
            return f"from verify.testkit.problem_cases import GeneratedCase\nproblem = {self!r}.problem()\n# {printed}"
        return f"from bilevel_sym import {type(problem).__name__}\nproblem = {printed}"


Case = ZooCase | GeneratedCase


def zoo_cases(chosen: bool | str | Iterable[str] = True) -> tuple[ZooCase, ...]:
    """The zoo's problems of these names, or with parameters, "quadratic,d=3"; True: all that are smooth and exact.

    >>> list(map(str, zoo_cases(["ridge", "saddle, d=3"])))
    ['zoo:ridge', 'zoo:saddle,d=3']
    >>> ZooCase("tube") in zoo_cases(True), zoo_cases(False)
    (False, ())
    """
    if isinstance(chosen, bool):
        return tuple(map(ZooCase, _smooth_names())) if chosen else ()
    specs = _names_in("zoo", chosen, 'True, False, or names such as ["ridge", "quadratic,d=3"]')
    for spec in specs:
        zoo.parse(spec)  # a misspelt name is told now, and not when the tests run
    return tuple(ZooCase(spec.replace(" ", "")) for spec in specs)


def generated_cases(
    count: int = 20, *, kinds: str | Iterable[str] | None = None, seed: int = 0
) -> tuple[GeneratedCase, ...]:
    """So many generated problems, the kinds taking turns; those of a smaller count come first. Needs Hypothesis.

    ``kinds`` are those of ``verify.strategies``: "general", "quadratic", "minimax", "stochastic" and ``DEGENERATE``,
    and "rows", losses over rows of data, written out in scalars; all but the stochastic one unless said otherwise.

    >>> list(map(str, generated_cases(3, kinds=["isotropic", "d < n"])))
    ['generated:isotropic-0', 'generated:d<n-0', 'generated:isotropic-1']
    """
    count, seed = _integer("generated", count, 0, MOST_PROBLEMS), _integer("seed", seed, 0, 2**63)
    if not count:
        return ()
    from verify.strategies.recipe import KINDS, style_of

    first, *exact = (kind for kind, style in KINDS.items() if style.family != "stochastic")
    names = (
        _names_in("kinds", kinds, "a list of kinds of verify.strategies")
        if kinds is not None
        else (first, ROWS, *exact)
    )
    for name in names:
        if name != ROWS:
            style_of(name)
    return tuple(GeneratedCase(names[k % len(names)], k // len(names), seed) for k in range(count))


def _telling(problem: BilevelProblem) -> bool:
    """Whether right and wrong answers can be told apart: rounding is small relative to y*, grad Phi and Hess Phi."""
    exact = problem.mean
    try:
        at = references(exact, sample_points(exact, np.random.default_rng(0))[:_POINTS])
    except CertificateFailure:
        return False
    sizes = {name: float(np.abs(at.truth(name)).max()) for name in QUANTITIES}
    return all(size == 0 or at.floor(name).min() < _LARGEST_FLOOR * size for name, size in sizes.items())


@cache
def _smooth_names() -> tuple[str, ...]:
    kinks = (sp.Piecewise, sp.Abs, sp.Min, sp.Max)
    problems = {name: zoo.get(name).problem for name in zoo.names()}
    exact = {name: problem for name, problem in problems.items() if problem.kind != "stochastic"}
    return tuple(name for name, problem in exact.items() if not (problem.f.has(*kinks) or problem.g.has(*kinks)))


def _names_in(field: str, given: object, wanted: str) -> tuple[str, ...]:
    """A word or several, each once."""
    words = (given,) if isinstance(given, str) else tuple(given) if isinstance(given, (list, tuple, set)) else ()
    if not words or not all(isinstance(word, str) for word in words):
        raise InvalidArgument(f"{field} is {given!r:.60}", hint=f"{field}={wanted}")
    return tuple(dict.fromkeys(words))


def _integer(field: str, given: object, low: int, high: int) -> int:
    if isinstance(given, bool) or not isinstance(given, int) or not low <= given <= high:
        raise InvalidArgument(f"{field} is {given!r:.60}", hint=f"{field} is an integer from {low} to {high}")
    return given
