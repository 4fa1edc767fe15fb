"""The bug gallery: minimal versions of what goes wrong in programs for bilevel problems, each with its planted cause.

>>> for item in defects()[:2]:
...     print(item.name, "|", item.cause)
implicit term halved | cross
implicit term forgotten | cross
"""

from __future__ import annotations

from types import ModuleType

from verify.gallery import hessians, inverses, lower_levels, numbers, systems, terms, trajectories
from verify.gallery.defect import Defect, Kind, defect
from verify.gallery.drawing import descent, plot_descents, plot_gallery
from verify.gallery.plain import right

__all__ = ["FAMILIES", "Defect", "Kind", "defect", "defects", "descent", "plot_descents", "plot_gallery", "right"]

FAMILIES: tuple[ModuleType, ...] = (terms, inverses, systems, lower_levels, numbers, hessians, trajectories)
"""The modules that hold the defects, one per family."""


def defects(kind: Kind | None = None) -> tuple[Defect, ...]:
    """All defects, or those of one kind, in the order of the families and, within one, of the file.

    >>> len(defects()) > 20, {item.kind for item in defects("hessian")}
    (True, {'hessian'})
    """
    found = (entry for family in FAMILIES for entry in vars(family).values() if isinstance(entry, Defect))
    return tuple(entry for entry in found if kind is None or entry.kind == kind)
