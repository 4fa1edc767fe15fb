"""Where the problems of a plan come from: the zoo, files, generators, and objects that are at hand.

A source is what is sent to workers: a few letters for what they can make themselves, and the problem with its data for
what they cannot.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bilevel_sym import zoo
from bilevel_sym.errors import InvalidArgument, InvalidProblem
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.system.verifier import verifier

__all__ = ["NO_PROBLEM", "Source", "sources_of"]

DIGEST_LETTERS = 8  # that tell two problems of one name apart


@dataclass(frozen=True)
class Source:
    """A problem of a plan.

    - ``name``: in tables and files.
    - ``digest``: of its content, or of what makes it.
    - ``given``: the problem itself, a case of the test kit that makes it, or the text that names it in the zoo.

    >>> source = next(sources_of(["zoo:scalar"], Path()))
    >>> source.name, source.problem().name
    ('zoo:scalar', 'scalar')
    """

    name: str
    digest: str
    given: Any

    def problem(self) -> BilevelProblem:
        """The problem; of ``NO_PROBLEM`` None, which only functions see that take no problem."""
        found: BilevelProblem = self.given
        if isinstance(self.given, str):
            found = zoo.parse(self.given).problem
        elif self.given is not None and not isinstance(self.given, BilevelProblem):
            found = self.given.problem()
        return found

    @property
    def is_named(self) -> bool:
        """Whether its name alone says what it is, in a plan in a file too."""
        return not isinstance(self.given, BilevelProblem)


NO_PROBLEM = Source("", "", None)


def sources_of(problems: Sequence[object], folder: Path) -> Iterator[Source]:
    """The sources that the entry ``problems`` of a plan means; files stand beside the plan.

    >>> [source.name for source in sources_of(["zoo:scalar", "generated:2,kind=isotropic"], Path())]
    ['zoo:scalar', 'generated:isotropic-0', 'generated:isotropic-1']
    """
    taken: dict[str, str] = {}
    for given in problems:
        for source in _sources(given, folder):
            name = source.name
            if taken.setdefault(name, source.digest) != source.digest:
                name = f"{name} {source.digest[:DIGEST_LETTERS]}"
            yield Source(name, source.digest, source.given)


def _sources(given: object, folder: Path) -> Iterator[Source]:
    if isinstance(given, BilevelProblem):
        yield Source(given.name or f"problem {given.digest[:DIGEST_LETTERS]}", given.digest, given)
    elif not isinstance(given, str) or not given.strip():
        raise InvalidArgument(
            f"problems: {given!r:.60} is no problem", hint='"zoo:saddle", "mine.toml", "generated:100", or a problem'
        )
    elif given.lower().startswith("zoo:"):
        spec = given[4:]
        yield Source(given, zoo.parse(spec).problem.digest, spec)
    elif given.startswith("generated:"):
        yield from map(_generated, _cases(given))
    else:
        problem = _loaded(folder / given, given)
        yield Source(given, problem.digest, problem)


def _loaded(path: Path, text: str) -> BilevelProblem:
    if not path.is_file():
        raise InvalidProblem(
            f"problems: there is no file {text[:200]!r}", hint="a TOML file beside the plan, zoo:NAME or generated:100"
        )
    return BilevelProblem.load(path)


def _cases(text: str) -> Sequence[Any]:
    """What ``generated:100,seed=1,kind=isotropic`` means; several kinds are parted by ``+``."""
    count, *settings = (part.strip() for part in text.removeprefix("generated:").split(","))
    pairs = [part.partition("=") for part in settings]
    options = {name.strip(): value.strip() for name, _, value in pairs}
    if not count.isdecimal() or set(options) - {"seed", "kind"} or len(options) < len(pairs):
        raise InvalidArgument(
            f"problems: {text[:80]!r} is not understood", hint='"generated:100,seed=1,kind=isotropic"'
        )
    if not options.get("seed", "0").isdecimal():
        raise InvalidArgument(f"problems: {text[:80]!r}: the seed is a whole number", hint='"generated:100,seed=1"')
    kinds = [kind.strip() for kind in options["kind"].split("+")] if "kind" in options else None
    try:
        made: Sequence[Any] = verifier("testkit.problem_cases").generated_cases(
            int(count), kinds=kinds, seed=int(options.get("seed", "0"))
        )
    except ModuleNotFoundError as missing:
        raise InvalidArgument(
            f"problems: {text[:80]!r} wants {missing.name}", hint='pip install "bilevel-sym[test]"'
        ) from None
    return made


def _generated(case: Any) -> Source:
    """To make a problem takes longer than many a task, so what makes it is its content, Hypothesis included."""
    from importlib.metadata import version

    made_by = f"{case} of hypothesis {version('hypothesis')}"
    return Source(str(case), hashlib.sha256(made_by.encode()).hexdigest(), case)
