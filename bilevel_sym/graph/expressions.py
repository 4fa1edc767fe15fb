"""Structural work on SymPy expressions, without recursion: what is in them, and replacing parts of them.

SymPy's own traversals recurse, and a chain of a few hundred functions breaks them. Everything here visits each
shared node once, children first, so that SymPy's cached hashes fill up from below.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from math import log10
from types import MappingProxyType

import sympy as sp
from sympy.core.relational import GreaterThan, LessThan, StrictGreaterThan, StrictLessThan
from sympy.functions.elementary.piecewise import ExprCondPair
from sympy.logic.boolalg import BooleanFalse, BooleanTrue

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.exact import rational
from bilevel_sym.graph.operations import IN_TEXT

__all__ = [
    "MAX_POWER", "SUPPORTED_FUNCTIONS", "check_structure", "floats_in", "postorder", "rewritten", "substitute",
    "symbols_in", "tree_size", "without_moduli", "written_size",
]  # fmt: skip

SWITCHES = (sp.Abs, sp.sign, sp.Min, sp.Max, sp.Piecewise)
SUPPORTED_FUNCTIONS: Mapping[type[sp.Basic], str] = MappingProxyType(
    {**{record.sympy: name for name, record in IN_TEXT.items()}, sp.Piecewise: "Piecewise"}
)

MAX_POWER = 10_000  # of an integer exponent; beyond it even one term is a mistake or an attack
MAX_BITS = 1000  # in the exponent of a Float that is surely accepted
MAX_EVALUATED_DEPTH = 100  # SymPy asks a node's assumptions of its arguments, recursively, several frames a level

_ARITHMETIC = (sp.Add, sp.Mul, sp.Pow)
_CONDITIONS = (
    ExprCondPair, StrictLessThan, LessThan, StrictGreaterThan, GreaterThan,
    sp.And, sp.Or, sp.Not, BooleanTrue, BooleanFalse,
)  # fmt: skip
_LEAVES = (sp.Symbol, sp.Rational, sp.Float, type(sp.pi), type(sp.E))
_NOT_REAL = (type(sp.I), type(sp.zoo), type(sp.oo), type(-sp.oo), type(sp.nan))
_SUPPORTED = (*_ARITHMETIC, *_CONDITIONS, *_LEAVES, *SUPPORTED_FUNCTIONS)


def postorder(expression: sp.Basic) -> Iterator[sp.Basic]:
    """Every distinct node object, children before parents.

    >>> x = sp.Symbol("x")
    >>> [str(node) for node in postorder(sp.sin(x) + 1)]
    ['1', 'x', 'sin(x)', 'sin(x) + 1']
    """
    seen: set[int] = set()
    stack: list[tuple[sp.Basic, bool]] = [(expression, False)]
    while stack:
        node, children_done = stack.pop()
        if children_done:
            hash(node)  # fills SymPy's cache from below, so that no later hash recurses
            yield node
        elif id(node) not in seen:
            seen.add(id(node))
            if args := node.args:
                stack.append((node, True))
                stack.extend([(child, False) for child in reversed(args) if id(child) not in seen])
            else:
                yield node


def tree_size(expression: sp.Basic) -> int:
    """The number of nodes as a printer meets them: shared parts count as often as they are written.

    >>> x = sp.Symbol("x")
    >>> tree_size(sp.sin(x) + sp.cos(x))
    5
    """
    size: dict[int, int] = {}
    for node in postorder(expression):
        size[id(node)] = 1 + sum(size[id(child)] for child in node.args)
    return size[id(expression)]


def written_size(expression: sp.Basic) -> int:
    """What a printer writes: as ``tree_size``, but numbers count all of their digits.

    >>> x = sp.Symbol("x")
    >>> tree_size(x + 2), written_size(x + 2), written_size(x + sp.Rational(12345, 67))
    (3, 3, 10)
    """
    size: dict[int, int] = {}
    for node in postorder(expression):
        own = _digits(node) if isinstance(node, sp.Number) else 1
        size[id(node)] = own + sum(size[id(child)] for child in node.args)
    return size[id(expression)]


def _digits(number: sp.Number) -> int:
    """How many a number has, to within one; without writing it, for it may have millions."""
    if isinstance(number, sp.Rational):
        wholes = [number.p] if number.q == 1 else [number.p, number.q]
        return sum(int(abs(whole).bit_length() * log10(2)) + 1 for whole in wholes)
    return int(number._prec * log10(2)) if isinstance(number, sp.Float) else 1


def symbols_in(expression: sp.Basic) -> set[sp.Symbol]:
    """The symbols that occur; like ``free_symbols``, for expressions of any depth.

    >>> x, y = sp.symbols("x y")
    >>> symbols_in(x*sp.sin(y)) == {x, y}
    True
    """
    return {node for node in postorder(expression) if isinstance(node, sp.Symbol)}


def substitute(expression: sp.Expr, mapping: Mapping[sp.Basic, sp.Basic]) -> sp.Expr:
    """``xreplace`` without recursion: nodes whose children did not change are kept as they are.

    Beyond a depth at which SymPy's evaluation would recurse, nodes are built as they stand.

    >>> x, y = sp.symbols("x y")
    >>> substitute(x*sp.sin(y), {y: sp.Integer(0)})
    0
    """
    return rewritten(expression, lambda node: node, mapping) if mapping else expression


def rewritten(
    expression: sp.Expr,
    rule: Callable[[sp.Basic], sp.Basic],
    replaced: Mapping[sp.Basic, sp.Basic] = MappingProxyType({}),
) -> sp.Expr:
    """The expression with ``rule`` applied to every node, children first; nodes in ``replaced`` are taken from there.

    >>> x = sp.Symbol("x")
    >>> rewritten(sp.sin(x) + 1, lambda node: sp.cos(x) if isinstance(node, sp.sin) else node)
    cos(x) + 1
    """
    new: dict[int, sp.Basic] = {}
    depth: dict[int, int] = {}
    for node in postorder(expression):
        depth[id(node)] = 1 + max((depth[id(child)] for child in node.args), default=0)
        if node in replaced:
            new[id(node)] = replaced[node]
            continue
        args = [new[id(child)] for child in node.args]
        changed = any(a is not b for a, b in zip(args, node.args, strict=True))
        new[id(node)] = rule(_rebuilt(node, args, depth[id(node)]) if changed else node)
    return new[id(expression)]


def _rebuilt(node: sp.Basic, args: Sequence[sp.Basic], depth: int) -> sp.Basic:
    """The node with new arguments, evaluated unless it is so deep that evaluation would recurse too far."""
    if depth > MAX_EVALUATED_DEPTH and isinstance(node, (sp.Function, sp.Add, sp.Mul, sp.Pow)):
        return node.func(*args, evaluate=False)
    return node.func(*args)


def without_moduli(expression: sp.Expr) -> sp.Expr:
    """Even powers of moduli as powers: all is real here, and ``Abs(u)**2``, as norms are written, has no kink.

    >>> x, y = sp.symbols("x y")
    >>> without_moduli(sp.Matrix([x - 1, y]).norm()**2)
    y**2 + (x - 1)**2
    """
    if not any(isinstance(node, sp.Abs) for node in postorder(expression)):
        return expression
    return rewritten(expression, lambda node: node.base.args[0] ** node.exp if _is_even_modulus(node) else node)


def _is_even_modulus(node: sp.Basic) -> bool:
    return isinstance(node, sp.Pow) and isinstance(node.base, sp.Abs) and bool(node.exp.is_Integer and node.exp.is_even)


def check_structure(expression: sp.Expr, field: str) -> sp.Expr:
    """The expression with every Float replaced by its exact value, or InvalidProblem.

    >>> x = sp.Symbol("x")
    >>> check_structure(0.5*x, "f")
    x/2
    """
    exact = {node: rational(node) for node in floats_in(expression, field)}
    # replacing 0.5 by 1/2 can only make SymPy evaluate further: x**0.0 is 1, 1/(0.5 - 1/2) is infinite
    return check_structure(substitute(expression, exact), field) if exact else expression


def floats_in(expression: sp.Expr, field: str) -> list[sp.Float]:
    """The Floats of an expression; InvalidProblem where it holds what is not supported.

    >>> x = sp.Symbol("x")
    >>> floats_in(0.5*x, "f")
    [0.500000000000000]
    """
    floats: list[sp.Float] = []
    unsupported: sp.Basic | None = None
    for node in postorder(expression):
        if isinstance(node, sp.Float) and node.is_finite:
            floats.append(node)
            if abs(node._mpf_[2]) > MAX_BITS:
                rational(node, error=InvalidProblem)  # says why
        elif isinstance(node, (*_NOT_REAL, sp.Float)):
            raise InvalidProblem(
                f"{field} contains {node}, and only finite real constants make sense here",
                hint="look for a division by zero, a root or logarithm of a negative number",
            )
        elif isinstance(node, sp.Pow) and node.exp.is_Rational and abs(node.exp.p) > MAX_POWER:
            raise InvalidProblem(
                f"{field} contains a power of {node.exp.p}",
                hint=f"exponents go up to {MAX_POWER}: a number in place of the base would fill the memory",
            )
        elif not isinstance(node, _SUPPORTED):
            unsupported = node  # the outermost comes last, and is the one that the user wrote
    if unsupported is not None:
        raise _unsupported(unsupported, field)
    return floats


def _unsupported(node: sp.Basic, field: str) -> InvalidProblem:
    what = f"the function {type(node).__name__}" if node.args else f"{type(node).__name__} ({node})"
    return InvalidProblem(
        f"{field} contains {what}, which is not supported",
        hint="supported: + - * / **, pi, E, sqrt, " + ", ".join(SUPPORTED_FUNCTIONS.values()),
    )
