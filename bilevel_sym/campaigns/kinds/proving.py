"""``constants``, ``smoothness`` and ``stationary_points``: proved over a box, or over one piece of it."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from bilevel_sym.campaigns.context import Setting
from bilevel_sym.campaigns.kinds.pieces import piece_of
from bilevel_sym.campaigns.kinds.record import Kind, Row
from bilevel_sym.system.verifier import verifier

__all__ = ["OWN"]

SMOOTHNESS = ("grad_norm", "L_phi", "rho_phi")


def _options(setting: Setting, *, y: bool) -> dict[str, Any]:
    """The parameters, where a piece of a split box is a box."""
    given = dict(setting.parameters)
    split, piece = given.pop("split", None), given.pop("piece", None)
    return given if split is None else given | {"box": piece_of(setting.problem, int(split), int(piece), y=y)}


def _constants(setting: Setting, seeds: Sequence[int | None]) -> list[Row]:
    found = verifier("regularity.certified").constants(setting.problem, **_options(setting, y=True))
    row = {f"{name}_{end}": getattr(b, end) for name, b in found.brackets.items() for end in ("lower", "upper")}
    return [row for _ in seeds]


def _smoothness(setting: Setting, seeds: Sequence[int | None]) -> list[Row]:
    found = verifier("regularity.phi_smoothness").smoothness(setting.problem, **_options(setting, y=False))
    brackets = {name: getattr(found, name) for name in SMOOTHNESS}
    row: Row = {f"{name}_{end}": getattr(b, end) for name, b in brackets.items() for end in ("lower", "upper")}
    row |= {"L_phi_formula": found.L_phi_formula, "rho_phi_formula": found.rho_phi_formula}
    return [row | {"reasons": [f"{name}: {reason}" for name, reason in found.reasons.items()]} for _ in seeds]


def _stationary_points(setting: Setting, seeds: Sequence[int | None]) -> list[Row]:
    """The points stand end to end, in the order of the search."""
    found = verifier("points.stationary").search(setting.problem, **setting.parameters)
    kinds = [str(point.kind) for point in found.points]
    places = [value for point in found.points for value in point.x]
    row: Row = {"found": len(found.points), "complete": found.complete, "undecided": len(found.undecided)}
    row |= {"minima": sum("minimum" in kind for kind in kinds), "saddles": sum("saddle" in kind for kind in kinds)}
    return [row | {"kinds": kinds, "points": places} for _ in seeds]


OWN = (
    Kind("constants", _constants, frozenset({"reading", "effort", "rtol", "memory", "split"}), seeded=False),
    Kind("smoothness", _smoothness, frozenset({"effort", "rtol", "memory", "split"}), seeded=False),
    Kind("stationary_points", _stationary_points, frozenset({"effort", "memory"}), seeded=False),
)
