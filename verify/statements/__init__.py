"""The claims, one module a family; ``FAMILIES`` is the order in which they are checked, cheap proofs first."""

from types import ModuleType

from verify.statements import identities

__all__ = ["FAMILIES"]

FAMILIES: tuple[ModuleType, ...] = (identities,)
