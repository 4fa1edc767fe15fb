"""What tasks compute: a kind is a function (setting, seeds) -> one row of plain values for each seed."""

from bilevel_sym.campaigns.kinds.record import Kind, Row
from bilevel_sym.campaigns.kinds.registry import KINDS, kind_of

__all__ = ["KINDS", "Kind", "Row", "kind_of"]
