"""The kinds by name, and functions of users, which are kinds of their own."""

from __future__ import annotations

import difflib
from collections.abc import Mapping, Sequence
from types import MappingProxyType

from bilevel_sym.campaigns.functions import imported, names_taken
from bilevel_sym.campaigns.kinds import judging, proving, solving
from bilevel_sym.campaigns.kinds.calling import call
from bilevel_sym.campaigns.kinds.record import Kind
from bilevel_sym.errors import InvalidArgument

__all__ = ["KINDS", "kind_of"]

KINDS: Mapping[str, Kind] = MappingProxyType(
    {kind.name: kind for module in (solving, judging, proving) for kind in module.OWN}
)


def kind_of(name: object, folders: Sequence[str] = ()) -> Kind:
    """The kind of this name; ``module:function`` is imported to see what it takes.

    >>> sorted(kind_of("solve").takes)
    ['eps', 'estimator', 'eta', 'steps', 'stop', 'x0']
    >>> kind_of("sovle")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: task='sovle'
    try: did you mean solve?
    """
    if isinstance(name, str) and name in KINDS:
        return KINDS[name]
    if isinstance(name, str) and ":" in name:
        takes, any_other = names_taken(imported(name, folders))
        return Kind(
            name, call, takes - {"problem", "seed"}, "seed" in takes or any_other, takes_any=any_other,
            of_problems="problem" in takes,
        )  # fmt: skip
    near = difflib.get_close_matches(str(name)[:60], KINDS, n=1)
    hint = f"did you mean {near[0]}?" if near else f"{', '.join(KINDS)}, or module:function"
    raise InvalidArgument(f"task={name!r:.60}", hint=hint)
