"""Make a formula shorter where that is cheap, and leave it alone where it might not be.

``simplify``, ``factor`` and an unbounded ``expand`` can take minutes. Each step here is guarded by a bound on the size
of its result, computed before it starts, so that tidying is quick on every input.
"""

from __future__ import annotations

from math import comb

import sympy as sp

from bilevel_sym.graph.expressions import postorder

__all__ = ["expanded_terms", "simplified"]

MAX_TERMS = 40  # of an expanded numerator or denominator: gcds of such polynomials take milliseconds
MAX_GENERATORS = 6
MAX_DEGREE = 24  # of a power: gcds and factors of y**1000 + 1 take seconds
MAX_NODES = 100  # a longer formula is not read entry by entry
_OPAQUE = (sp.Piecewise, sp.Max, sp.Min)


def simplified(expression: sp.Expr) -> sp.Expr:
    """The shortest of the expression, its expansion and its cancelled form, as far as they are cheap.

    >>> x = sp.Symbol("x")
    >>> simplified(1/(x**2 + 1) - 2*x**2/(x**2 + 1)**2)
    (1 - x**2)/(x**2 + 1)**2
    >>> simplified((x + 1)**50 - 1)
    (x + 1)**50 - 1
    """
    if not expression.args or _too_large(expression):
        return expression
    candidates = [expression]
    if _widest(expression) <= MAX_TERMS:
        candidates.append(sp.expand(expression, log=False, power_base=False, power_exp=False))
    if not expression.has(*_OPAQUE):
        candidates += _fractions(expression)
    return min(candidates, key=lambda candidate: candidate.count_ops())


def expanded_terms(expression: sp.Expr, limit: int = 10**6) -> int:
    """An upper bound on the number of terms of the expansion, without expanding; capped at ``limit``.

    >>> x, y = sp.symbols("x y")
    >>> expanded_terms((x + y)**3*(x - 1))
    8
    """
    return _terms_of_nodes(expression, limit)[id(expression)]


def _terms_of_nodes(expression: sp.Expr, limit: int = 10**6) -> dict[int, int]:
    bound: dict[int, int] = {}
    for node in postorder(expression):
        counts = [bound[id(child)] for child in node.args]
        if isinstance(node, sp.Add):
            total = sum(counts)
        elif isinstance(node, sp.Mul):
            total = 1
            for count in counts:
                total = min(total * count, limit)
        elif isinstance(node, sp.Pow) and node.exp.is_Integer and node.exp > 0:
            total = _terms_of_power(counts[0], int(node.exp), limit)
        else:
            total = 1  # opaque to expansion: a symbol, a function, a negative power
        bound[id(node)] = min(total, limit)
    return bound


def _terms_of_power(terms: int, power: int, limit: int) -> int:
    if terms == 1:
        return 1
    power = min(power, limit)
    return limit if power * terms > 500 else comb(terms + power - 1, power)


def _widest(expression: sp.Expr) -> int:
    """The largest number of terms that multiplying out meets anywhere: SymPy does so in denominators too."""
    bound = _terms_of_nodes(expression)
    below = [
        _terms_of_power(bound[id(node.base)], -int(node.exp), 10**6)
        for node in postorder(expression)
        if isinstance(node, sp.Pow) and node.exp.is_Integer and node.exp < 0
    ]
    return max(*bound.values(), *below, 0)


def _too_large(expression: sp.Expr) -> bool:
    """Counts nodes with repetition, for SymPy's own functions do, and stops at the limit."""
    return any(count > MAX_NODES for count, _ in enumerate(sp.preorder_traversal(expression)))


def _fractions(expression: sp.Expr) -> list[sp.Expr]:
    """The expression over one denominator, cancelled and factored, if both parts stay small."""
    if any(_of_high_degree(node) for node in postorder(expression)):
        return []
    together = sp.together(expression)
    numerator, denominator = sp.fraction(together)
    if denominator.is_number:
        return []
    if max(expanded_terms(numerator), expanded_terms(denominator)) > MAX_TERMS:
        return []
    if len(_generators(numerator) | _generators(denominator)) > MAX_GENERATORS:
        return []
    cancelled = sp.cancel(together)
    top, bottom = sp.fraction(cancelled)
    small = expanded_terms(bottom) <= 12  # factoring long polynomials is the one step that can be slow
    return [together, cancelled, *([top / sp.factor(bottom)] if small else [])]


def _of_high_degree(node: sp.Basic) -> bool:
    """Whether polynomials would have a high degree in this power: exp(1000*y) is exp(y)**1000 to them."""
    if not isinstance(node, (sp.Pow, sp.exp)):
        return False
    numbers = node.exp.atoms(sp.Rational)
    return any(max(abs(number.p), number.q) > MAX_DEGREE for number in numbers)


def _generators(expression: sp.Expr) -> set[sp.Expr]:
    """What a polynomial view takes as its variables: symbols, and functions or powers as wholes."""
    found: set[sp.Expr] = set()
    stack = [expression]
    while stack:
        node = stack.pop()
        if isinstance(node, (sp.Add, sp.Mul)) or (isinstance(node, sp.Pow) and node.exp.is_Integer):
            stack.extend(node.args)
        elif not node.is_number:
            found.add(node)
    return found
