"""What a plan may hold: whatever no task could take is refused before anything is computed."""

from __future__ import annotations

import difflib
from typing import TYPE_CHECKING, Any

from bilevel_sym.campaigns.batch import MEASURED
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.solvers.named import ALGORITHMS, ESTIMATORS

if TYPE_CHECKING:
    from bilevel_sym.campaigns.plan import Campaign

__all__ = ["algorithm_text", "check_plan"]

# columns that every table has: no parameter can have such a name
RESERVED = frozenset({"problem", "algorithm", "seed", "key", "status", "message", "code", *MEASURED})
MOST_PIECES = 10**6


def algorithm_text(algorithm: Any) -> str:
    """What an algorithm is called: its name, or the code that makes it.

    >>> algorithm_text("descent")
    'descent'
    """
    return algorithm if isinstance(algorithm, str) else repr(algorithm)


def check_plan(plan: Campaign) -> None:
    """Refuse, before anything is computed, what no task could take."""
    kind = plan.kind
    known = sorted(kind.takes - {"piece"})
    for name in plan.parameters:
        if name in RESERVED or name == "piece" or not name.isidentifier():
            raise InvalidArgument(f"{name[:60]} is a column of its own, and no parameter", hint="another name")
        if name not in kind.takes and not kind.takes_any:
            near = difflib.get_close_matches(name[:60], [*known, "algorithms", "seeds", "problems"], n=1)
            hint = f"did you mean {near[0]}?" if near else f"{', '.join(known) or 'no parameter at all'}"
            raise InvalidArgument(f"{plan.task} takes no parameter {name[:60]!r}", hint=hint)
    for name in kind.wants:
        if name not in plan.parameters:
            raise InvalidArgument(f"{plan.task} wants {name}", hint=f'{name} = "my_module:my_function"')
    if kind.of_problems and not plan.problems:
        raise InvalidArgument("problems is missing", hint='problems=["zoo:saddle"]')
    if len(plan.seeds) > 1 and not kind.seeded:
        raise InvalidArgument(f"{plan.task} draws no random numbers", hint="leave seeds out")
    _check_algorithms(plan)
    for split in plan.parameters.get("split", ()) if "split" in kind.takes else ():
        if isinstance(split, bool) or not isinstance(split, int) or not 1 <= split <= MOST_PIECES:
            raise InvalidArgument(f"split={split!r}", hint=f"a whole number from 1 to {MOST_PIECES}")


def _check_algorithms(plan: Campaign) -> None:
    if plan.algorithms and not plan.kind.solves:
        raise InvalidArgument(f"{plan.task} takes no algorithms", hint="leave them out")
    objects = [item for item in plan.algorithms if not isinstance(item, str)]
    for name, registry, given in (
        ("algorithms", ALGORITHMS, [item for item in plan.algorithms if isinstance(item, str)]),
        ("estimator", ESTIMATORS, plan.parameters.get("estimator", ()) if plan.kind.solves else ()),
    ):
        for word in given:
            if word not in registry.names():
                near = difflib.get_close_matches(str(word)[:60], registry.names(), n=1)
                hint = f"did you mean {near[0]}?" if near else ", ".join(registry.names())
                raise InvalidArgument(f"{name}: {word!r:.60}", hint=hint)
    for item in objects:
        if isinstance(item, type) or not hasattr(item, "start"):
            raise InvalidArgument(
                f"algorithms: {item!r:.60} is no algorithm", hint='"descent", or Descent(AID(...), 0.1)'
            )
    if len({algorithm_text(item) for item in plan.algorithms}) < len(plan.algorithms):
        raise InvalidArgument("algorithms lists one twice", hint="each once")
    if objects and (clash := {"eta", "estimator"} & set(plan.parameters)):
        raise InvalidArgument(
            f"{min(clash)} cannot be changed in an algorithm that is given whole",
            hint="its name, or make several of it",
        )
