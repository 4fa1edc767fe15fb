"""One record for each operation; every table of operations elsewhere is built from them.

A function is added by a file with its record, and by its name here.

>>> OPERATIONS["atan"].source.call("jax").format("x")
'jnp.arctan(x)'
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bilevel_sym.graph.operations import asinh, elementary, erf, logistic, powers, switches
from bilevel_sym.graph.operations.record import Operation

__all__ = ["FUNCTIONS", "IN_TEXT", "OPERATIONS"]

_RECORDS = (*elementary.RECORDS, asinh.RECORD, erf.RECORD, *logistic.RECORDS, *switches.RECORDS, *powers.RECORDS)

OPERATIONS: Mapping[str, Operation] = MappingProxyType({record.name: record for record in _RECORDS})
"""Every operation but "lin" and "var", by its name in the graph."""

FUNCTIONS: Mapping[str, Operation] = MappingProxyType({r.name: r for r in _RECORDS if r.is_function})
"""The analytic functions of one argument."""

IN_TEXT: Mapping[str, Operation] = MappingProxyType({r.name: r for r in _RECORDS if r.in_text})
"""What people write in text, but for sqrt and Piecewise."""
