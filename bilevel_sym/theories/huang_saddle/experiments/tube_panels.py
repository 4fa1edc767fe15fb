"""The panels of the paper's figure as its source names them, and the domain in which it prints the tube."""

from __future__ import annotations

import re
from typing import NamedTuple

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.typing import Bools, Floats

__all__ = ["PanelName", "in_printed_domain", "read_label"]

TAU = float(np.e)


class PanelName(NamedTuple):
    """The parameters of one panel."""

    L: float
    gamma: float
    d: int


def read_label(label: str) -> PanelName:
    """The parameters of a panel, from the name of its LaTeX label: L, gamma and d, written without anything between.

    Nothing else in the source says them: the captions of the panels are empty, and the text speaks of "different
    choices of problem parameters". The digits 15 at the beginning are read as 1.5, and the last ones as a dimension.

    >>> read_label("figure: 15110")
    PanelName(L=1.5, gamma=1.0, d=10)
    """
    found = re.fullmatch(r"figure: (15|1|2|3)(1)(5|10|20)", label)
    if found is None:
        raise InvalidArgument(f"{label!r:.60} is not the label of a panel of the figure", hint="such as 'figure: 1110'")
    L, gamma, d = found.groups()
    return PanelName(1.5 if L == "15" else float(L), float(gamma), int(d))


def in_printed_domain(x: Floats) -> Bools:
    """Whether points (..., d) lie in D_0, the union of the printed regions.

    >>> in_printed_domain(np.array([[1.0, 1.0], [6.0, 1.0], [-0.1, 1.0], [1.0, 3.0]])).tolist()
    [True, True, False, False]
    """
    passed = (x >= 2 * TAU) & (x <= 6 * TAU)
    here = (x >= 0) & (x <= 2 * TAU)
    ahead = (x >= 0) & (x <= TAU)
    d = x.shape[-1]
    found: Bools = np.asarray(passed.all(axis=-1))
    for i in range(d):
        found = found | passed[..., :i].all(axis=-1) & here[..., i] & ahead[..., i + 1 :].all(axis=-1)
    return found
