"""Problems on which a bound of the paper is nearly attained: the best of a thousand that the test kit generates.

``witnesses.toml`` holds them as ``bilevel-sym reproduce tightness --large`` wrote them.
"""

from __future__ import annotations

import re
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache
from importlib.resources import files
from types import MappingProxyType

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.zoo.entry import Example, entry

__all__ = ["Witness", "tight", "witnesses", "word"]


@dataclass(frozen=True)
class Witness:
    """A problem that nearly attains a bound.

    - ``claim``: the statement, with its part.
    - ``tightness``: measured/bound, as the campaign found it.
    - ``source``: which of the generated problems it is.
    - ``problem``: its file.

    >>> witness = witnesses()["grad_Lipschitz"]
    >>> witness.claim, witness.tightness > 0.5
    ('grad-Lipschitz', True)
    """

    claim: str
    tightness: float
    source: str
    problem: str


def word(claim: str) -> str:
    """A claim as a word that a parameter may be.

    >>> word("pro:bounds third order")
    'pro_bounds_third_order'
    """
    return re.sub(r"\W+", "_", claim)


@lru_cache(maxsize=1)
def witnesses() -> Mapping[str, Witness]:
    """All of them, by the word for the claim.

    >>> "grad_Lipschitz" in witnesses()
    True
    """
    stored = tomllib.loads(files("bilevel_sym.zoo").joinpath("witnesses.toml").read_text("utf-8"))["witness"]
    found = (
        Witness(claim, tightness, one["source"], one["problem"])
        for one in stored
        for claim, tightness in one["claims"].items()
    )
    return MappingProxyType({word(witness.claim): witness for witness in found})


@entry
def tight(*, claim: str = "grad_Lipschitz") -> Example:
    """A generated problem on which a bound of the paper is attained, or nearly so.

    ``claim`` names the statement and its part, with ``_`` for what is no letter or digit. The problem is the one, of a
    thousand, for which measured/bound was largest; statements that every problem attains have no witness here.

    Reference: made for this package.

    >>> tight(claim="eq_cgrate").notes["claim"]
    'eq:cgrate'
    """
    known = witnesses()
    if claim not in known:
        raise InvalidArgument(
            f"tight: there is no witness for {claim!r:.60}", hint=f"one of {', '.join(sorted(known))}"
        )
    witness = known[claim]
    return Example(
        problem=BilevelProblem.from_toml(witness.problem),
        notes={"claim": witness.claim, "tightness": witness.tightness, "source": witness.source},
    )
