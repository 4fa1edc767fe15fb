"""Filters of a table: a few words, read and never run.

``status == "ok" and eta < 0.15``: comparisons (==, !=, <, <=, >, >=, in, not in) of columns with numbers, texts, True,
False and None, or with one another, joined by and, or, not. A row where something is not known does not count.
"""

from __future__ import annotations

import ast
import difflib
from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from bilevel_sym.campaigns.results.columns import arrow
from bilevel_sym.errors import InvalidArgument

if TYPE_CHECKING:
    import pyarrow as pa

__all__ = ["chosen"]

MOST_LETTERS = 1000
EXAMPLE = 'status == "ok" and eta < 0.15'
COMPARISONS: Mapping[type[ast.cmpop], str] = MappingProxyType(
    {
        ast.Eq: "equal", ast.NotEq: "not_equal", ast.Lt: "less", ast.LtE: "less_equal", ast.Gt: "greater",
        ast.GtE: "greater_equal",
    }
)  # fmt: skip


def chosen(table: pa.Table, where: str) -> pa.Table:
    """The rows for which a filter holds.

    >>> table = arrow().table({"eta": [0.1, 0.2, None], "status": ["ok", "failed", "ok"]})
    >>> chosen(table, 'status == "ok" and eta < 0.15').to_pylist()
    [{'eta': 0.1, 'status': 'ok'}]
    >>> chosen(table, "__import__('os')")
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.InvalidArgument: where: "__import__('os')" is no comparison
    try: status == "ok" and eta < 0.15
    """
    tree = _parsed(where)
    try:
        mask = _Reading(table, where).truth(tree)
    except arrow().ArrowException as error:
        raise InvalidArgument(f"where: {where!r:.100} compares what cannot be: {error!s:.200}", hint=EXAMPLE) from None
    return table.filter(mask)


def _parsed(where: str) -> ast.expr:
    if not str(where).strip() or len(where) > MOST_LETTERS:
        raise InvalidArgument(f"where={where!r:.60}", hint=f"at most {MOST_LETTERS} letters, such as {EXAMPLE}")
    try:
        return ast.parse(where.strip(), mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        raise InvalidArgument(f"where: {where!r:.100} is not understood", hint=EXAMPLE) from None


class _Reading:
    """One filter over one table; every node that is not known is refused."""

    def __init__(self, table: pa.Table, where: str) -> None:
        self._table, self._where = table, where
        self._compute = arrow().compute

    def truth(self, node: ast.expr) -> Any:
        if isinstance(node, ast.BoolOp):
            join: Callable[..., Any] = getattr(
                self._compute, "and_kleene" if isinstance(node.op, ast.And) else "or_kleene"
            )
            first, *others = map(self.truth, node.values)
            for other in others:
                first = join(first, other)
            return first
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self._compute.invert(self.truth(node.operand))
        if isinstance(node, ast.Compare):
            return self._chain(node)
        if isinstance(node, ast.Name) and (column := self._column(node)).type == arrow().bool_():
            return column
        raise self._refused(node, "is no comparison")

    def _chain(self, node: ast.Compare) -> Any:
        """a < b < c means both."""
        sides = [node.left, *node.comparators]
        found: Any = None
        for left, op, right in zip(sides, node.ops, node.comparators, strict=False):
            each = self._comparison(left, op, right)
            found = each if found is None else self._compute.and_kleene(found, each)
        return found

    def _comparison(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> Any:
        if isinstance(op, (ast.In, ast.NotIn)) and isinstance(right, (ast.List, ast.Tuple)) and right.elts:
            any_of = [self._comparison(left, ast.Eq(), each) for each in right.elts]
            found = any_of[0]
            for each in any_of[1:]:
                found = self._compute.or_kleene(found, each)
            return found if isinstance(op, ast.In) else self._compute.invert(found)
        if type(op) not in COMPARISONS:
            raise self._refused(right, "is compared in an unknown way")
        if not any(isinstance(side, ast.Name) for side in (left, right)):
            raise self._refused(left, "is compared, but is no column")
        if isinstance(right, ast.Constant) and right.value is None and isinstance(op, (ast.Eq, ast.NotEq)):
            none = self._compute.is_null(self._side(left))
            return none if isinstance(op, ast.Eq) else self._compute.invert(none)
        return getattr(self._compute, COMPARISONS[type(op)])(self._side(left), self._side(right))

    def _side(self, node: ast.expr) -> Any:
        if isinstance(node, ast.Name):
            return self._column(node)
        sign = 1
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, (ast.USub, ast.UAdd)):
            sign, node = (-1 if isinstance(node.op, ast.USub) else 1), node.operand
            if isinstance(node, ast.Constant) and isinstance(node.value, (str, bool)):
                raise self._refused(node, "has no sign")
        if isinstance(node, ast.Constant) and isinstance(node.value, (bool, int, float, str)):
            value = node.value
            if isinstance(value, int) and not isinstance(value, bool) and abs(value) >= 2**63:
                value = float(value) if abs(value) < 2**1000 else float("inf")
            return arrow().scalar(sign * value if sign < 0 else value)
        raise self._refused(node, "is no column, number or text")

    def _column(self, node: ast.Name) -> Any:
        names = self._table.column_names
        if node.id in names:
            return self._table.column(node.id)
        near = difflib.get_close_matches(node.id[:60], names, n=1)
        raise InvalidArgument(
            f"where: there is no column {node.id[:60]!r}",
            hint=f"did you mean {near[0]}?" if near else f"one of {', '.join(names)[:300]}",
        )

    def _refused(self, node: ast.expr, why: str) -> InvalidArgument:
        part = ast.get_source_segment(self._where.strip(), node) or self._where
        return InvalidArgument(f"where: {part!r:.100} {why}", hint=EXAMPLE)
