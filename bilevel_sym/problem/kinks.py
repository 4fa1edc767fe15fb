"""Kinks of g in y, and what is smooth in their place: what every door says where a minimiser may lie on one."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Sequence
from dataclasses import dataclass

import sympy as sp

from bilevel_sym.arithmetic.pieces.patterns import needed_by
from bilevel_sym.arrays.display import to_text
from bilevel_sym.arrays.edges import Switch, switches_of
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.graph.expressions import symbols_in
from bilevel_sym.implicit.model import Model

__all__ = ["Kink", "array_kink", "array_kinks", "kink_at_edge", "scalar_kinks", "smooth_in_place", "told"]

PAGE = "`bilevel-sym docs non-smooth`"
SWITCHING = (sp.Abs, sp.Max, sp.Min, sp.Piecewise, sp.sign)


@dataclass(frozen=True)
class Kink:
    """Where g has no derivative in y, and what to write there.

    - ``edge``: what vanishes on the kink, as text.
    - ``instead``: what is smooth, and in the place of what.

    >>> print(Kink("y", "a smooth function"))
    y = 0
    """

    edge: str
    instead: str

    def __str__(self) -> str:
        return f"{self.edge} = 0"

    def record(self) -> dict[str, str]:
        """For programs."""
        return {"edge": self.edge, "instead": self.instead}


def smooth_in_place(op: str, *parts: str) -> str:
    """What to write in the place of a function that has a kink; of its name, and of its arguments as text.

    >>> print(smooth_in_place("abs", "y2"))
    sqrt(y2**2 + 1e-4) in the place of abs(y2), which is smooth; for max and hinges see `bilevel-sym docs non-smooth`
    >>> print(smooth_in_place("max", "0", "y"))
    (y + sqrt(y**2 + 1e-4))/2 in the place of max(y, 0), which is smooth; see `bilevel-sym docs non-smooth`
    >>> print(smooth_in_place("min", "a", "b + 1").partition(",")[0])
    (a + (b + 1) - sqrt((a - (b + 1))**2 + 1e-4))/2 in the place of min(a
    """
    if op == "abs":
        (part,) = parts
        return (
            f"sqrt({_bracketed(part)}**2 + 1e-4) in the place of abs({part}), which is smooth; "
            f"for max and hinges see {PAGE}"
        )
    if op not in ("max", "min"):
        return f"a smooth function in the place of {op}; see {PAGE}"
    sign, shown = "+" if op == "max" else "-", [part for part in parts if part != "0"]
    old = f"{op}({', '.join(shown if len(shown) > 1 else [*shown, '0'])})"
    both, gap = (f" {joint} ".join(map(_bracketed, shown)) for joint in "+-")
    gap = gap if len(shown) == 1 else f"({gap})"
    return f"({both} {sign} sqrt({gap}**2 + 1e-4))/2 in the place of {old}, which is smooth; see {PAGE}"


def _bracketed(part: str) -> str:
    return part if part.isidentifier() or part.isdigit() else f"({part})"


def told(kinks: Sequence[Kink]) -> Iterator[str]:
    """What a page of formulas says of them.

    >>> for line in told([Kink("y", smooth_in_place("abs", "y"))]):
    ...     print(line)
    kink of g: y = 0; where the minimiser lies on it, the formulas of grad Phi and Hess Phi do not hold
    try: sqrt(y**2 + 1e-4) in the place of abs(y), which is smooth; for max and hinges see `bilevel-sym docs non-smooth`
    """
    for kink in kinks:
        yield f"kink of g: {kink}; where the minimiser lies on it, the formulas of grad Phi and Hess Phi do not hold"
        yield f"try: {kink.instead}"


# ---- of scalars -------------------------------------------------------------------------------------------


def scalar_kinks(g: sp.Expr, x: Sequence[sp.Symbol], y: Sequence[sp.Symbol]) -> tuple[Kink, ...]:
    """The kinks of g in y, at which its pieces do not agree as far as its gradient in y needs.

    >>> x, y, z = sp.symbols("x y z", real=True)
    >>> [str(kink) for kink in scalar_kinks(y**2 + abs(y - x) + abs(z)**3, [x], [y, z])]
    ['x - y = 0']
    """
    if not any(symbols_in(node) & set(y) for node in g.atoms(*SWITCHING)):
        return ()
    others = sorted(symbols_in(g) - {*x, *y}, key=str)
    model = Model(sp.S.Zero, g, x, y, parameters=others)
    if model.patterns is None:
        return ()
    matters, smooth = model.patterns.allowed(needed_by(("g_y",)), exists=True)
    edges = [model.edge_expression(k) for k in range(len(matters)) if matters[k] and not smooth[k]]
    return tuple(kink_at_edge(g, edge) for edge in edges if symbols_in(edge) & set(y))


def kink_at_edge(g: sp.Expr, edge: sp.Expr) -> Kink:
    """The kink at which this expression vanishes, with what g has there.

    >>> x, y = sp.symbols("x y", real=True)
    >>> kink_at_edge(y**2 + sp.Max(0, y - x), x - y).edge
    'x - y'
    """
    for node in sorted(g.atoms(sp.Abs, sp.Max, sp.Min), key=sp.default_sort_key):
        if len(node.args) > 2:
            continue
        difference = node.args[0] if len(node.args) == 1 else node.args[0] - node.args[1]
        if _is_multiple(difference, edge):
            return Kink(str(edge), smooth_in_place(node.func.__name__.lower(), *map(str, node.args)))
    if not g.has(sp.Piecewise):
        return Kink(str(edge), smooth_in_place("abs", str(edge)))
    return Kink(str(edge), smooth_in_place("Piecewise"))


def _is_multiple(one: sp.Expr, other: sp.Expr) -> bool:
    """Whether two sums differ by a factor, term by term as they stand."""
    a, b = one.as_coefficients_dict(), other.as_coefficients_dict()
    return a.keys() == b.keys() and len({a[term] / b[term] for term in a}) == 1


# ---- of arrays --------------------------------------------------------------------------------------------


def array_kinks(g: Tensor, y: Collection[Leaf]) -> tuple[Kink, ...]:
    """Where g changes its formula with y; how far the pieces agree there is not looked at.

    >>> from bilevel_sym import BilevelProblem
    >>> model = BilevelProblem("x @ y", "sum((y - x)**2) + sum(abs(y))", "x[n]", "y[n]").array_model
    >>> [str(kink) for kink in array_kinks(model.g, model.y)]
    ['y = 0']
    """
    return tuple(map(array_kink, switches_of(g, set(y))))


def array_kink(switch: Switch) -> Kink:
    """The kink of one function of an array.

    >>> from bilevel_sym import BilevelProblem
    >>> model = BilevelProblem("x @ y", "sum((y - x)**2) + sum(max(y, x))", "x[n]", "y[n]").array_model
    >>> array_kink(switches_of(model.g, set(model.y))[0]).edge
    'x - y'
    """
    op = {"lt": "Piecewise", "le": "Piecewise"}.get(switch.op, switch.op)
    bodies = ("0" if body.is_zero else to_text(body) for body in switch.bodies)
    return Kink(to_text(switch.edge), smooth_in_place(op, *bodies))
