"""A derivation as readable Python that runs alone, with NumPy and nothing of ours.

Variables are renamed where their names would clash, so that no name from outside reaches the code as it is.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from fractions import Fraction
from itertools import chain, product
from math import inf, prod
from types import MappingProxyType
from typing import TYPE_CHECKING

import sympy as sp
from sympy.printing.pycode import PythonCodePrinter

from bilevel_sym.errors import InvalidProblem, TooLarge
from bilevel_sym.graph.expressions import substitute, symbols_in, tree_size
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.symbolic.blocks import BLOCK_NAMES

if TYPE_CHECKING:
    from bilevel_sym.symbolic.derivation import Derivation

__all__ = ["numpy_source"]

_EMITTED = ("f_x", "f_y", "g_y", "g_xy", "g_yy", "L_xx", "L_xy", "L_yy")
_TAKEN = frozenset(
    {*BLOCK_NAMES, *keyword.kwlist, *dir(builtins), "np", "math", "f", "g", "x", "y", "v", "phi", "y_star",
     "grad_phi", "hess_phi", "solve_v", "closed_form"}
)  # fmt: skip
MAX_WRITTEN = 20_000  # symbols and operations: two hundred kilobytes of Python
MANY, SPARSE = 100, 4  # a block of so many entries is written place by place, if so large a part of it vanishes
_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")


def numpy_source(derivation: Derivation) -> str:
    """The whole module as text.

    >>> from bilevel_sym import BilevelProblem, derive
    >>> module = {}
    >>> exec(numpy_source(derive(BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y"))), module)
    >>> float(module["grad_phi"]([0.0])[0])
    0.0
    """
    _refuse_unknowns(derivation)
    _refuse_long(derivation)
    names = _renamed({"x": derivation.x, "y": derivation.y, "v": derivation.v})
    emit = _Emitter(names)
    functions = [emit.scalar("f", derivation.f), emit.scalar("g", derivation.g)]
    functions += [emit.block(name, derivation.blocks.entries(name)) for name in _EMITTED]
    functions.append(_lower_level(derivation, emit))
    title = derivation.name if derivation.name and derivation.name.isidentifier() else "a problem"
    head = f'"""y*(x), Phi(x) and its derivatives for {title}, at one point x; needs NumPy alone."""'
    more = "import math\n\n" if any("math." in function for function in functions) else ""
    return "\n\n\n".join([f"{head}\n\n{more}import numpy as np", *functions, _UPPER_LEVEL]) + "\n"


def _refuse_unknowns(derivation: Derivation) -> None:
    formulas = (derivation.f, derivation.g)
    if any(formula.has(sp.core.function.AppliedUndef) for formula in formulas):
        raise InvalidProblem("undefined functions have no numbers", hint="derive a concrete problem")
    extra = set().union(*map(symbols_in, formulas)) - {*derivation.x, *derivation.y}
    if extra:
        raise InvalidProblem(
            f"the parameters {', '.join(sorted(map(str, extra)))} have no value",
            hint="give them a number in parameters={...}",
        )


def _refuse_long(derivation: Derivation) -> None:
    """Before anything is differentiated: what is long to write takes long to find, too."""
    size = tree_size(derivation.f) + tree_size(derivation.g) + derivation.blocks.size(*_EMITTED)
    if size <= MAX_WRITTEN:
        size += sum(map(tree_size, derivation.y_star or ()))
    if size > MAX_WRITTEN:
        raise TooLarge(
            f"the source would have about {size:,} symbols and operations, and {MAX_WRITTEN:,} are written",
            hint="the kernels of the problem compute the same functions, without writing them out",
        )


def _renamed(groups: Mapping[str, Sequence[sp.Symbol]]) -> dict[str, dict[sp.Symbol, sp.Symbol]]:
    """Each symbol with the name it has in the code: its own where that is safe."""
    own = [s.name for s in chain.from_iterable(groups.values())]
    plain = all(_IDENTIFIER.fullmatch(name) and name not in _TAKEN for name in own)
    return {
        role: {s: sp.Symbol(s.name if plain else f"{role}_{i}", real=True) for i, s in enumerate(group, start=1)}
        for role, group in groups.items()
    }


class _Emitter:
    def __init__(self, names: Mapping[str, Mapping[sp.Symbol, sp.Symbol]]) -> None:
        self._names = names
        self._all = {old: new for group in names.values() for old, new in group.items()}
        self._printer = _Printer()

    def expression(self, expression: sp.Expr) -> str:
        if expression.is_Integer and abs(expression) < 10**6:
            return str(expression)
        long = {q: sp.Float(_nearest(q)) for q in expression.atoms(sp.Rational) if max(abs(q.p), q.q) >= 10**6}
        return str(self._printer.doprint(substitute(expression, {**self._all, **long} if long else self._all)))

    def scalar(self, name: str, expression: sp.Expr) -> str:
        return self._function(name, "xy", self.expression(expression))

    def block(self, name: str, entries: Mapping[tuple[int, ...], sp.Expr]) -> str:
        roles = "xyv" if name.startswith("L") else "xy"
        shape = tuple(len(self._names[axis]) for axis in name[2:])
        written = {place: self.expression(entry) for place, entry in entries.items()}
        if prod(shape) > MANY and SPARSE * len(written) < prod(shape):
            return self._sparse(name, roles, shape, written)
        flat = [written.get(place, "0") for place in product(*map(range, shape))]
        rows = [flat[k : k + shape[1]] for k in range(0, len(flat), shape[1])] if len(shape) == 2 else []
        return self._function(name, roles, _array([_bracket(row) for row in rows] or flat))

    def _sparse(self, name: str, roles: str, shape: tuple[int, ...], entries: Mapping[tuple[int, ...], str]) -> str:
        head = [f"def {name}({', '.join(roles)}):", *self._unpack(roles), f"    {name} = np.zeros({shape})"]
        places = (f"    {name}{list(place)} = {entry}" for place, entry in entries.items())
        return "\n".join([*head, *places, f"    return {name}"])

    def vector(self, name: str, roles: str, entries: Iterable[sp.Expr]) -> str:
        return self._function(name, roles, _array([self.expression(entry) for entry in entries]))

    def _function(self, name: str, roles: str, value: str) -> str:
        lines = [f"def {name}({', '.join(roles)}):", *self._unpack(roles), f"    return {value}"]
        return "\n".join(lines)

    def _unpack(self, roles: str) -> Iterator[str]:
        for role in roles:
            yield f"    {_bracket([s.name for s in self._names[role].values()])} = {role}"


def _nearest(number: sp.Rational) -> float:
    try:
        return float(Fraction(number.p, number.q))
    except OverflowError:
        raise InvalidProblem("a constant is larger than any float64", hint="scale the problem") from None


def _bracket(items: Sequence[str]) -> str:
    return f"[{', '.join(items)}]"


def _array(rows: Sequence[str]) -> str:
    body = "".join(f"\n        {row}," for row in rows)
    return f"np.array([{body}\n    ], dtype=float)"


def _lower_level(derivation: Derivation, emit: _Emitter) -> str:
    """The formula alone where it is exact in floats too; else Newton's method, started at the formula.

    A root of radicals is exact, but not in floats: Cardano's loses every digit for large negative x.
    """
    y_star = derivation.y_star
    curvatures = derivation.blocks.entries("g_yy").values()
    if y_star is not None and symbols_in(sp.Tuple(*curvatures)).isdisjoint(derivation.y):
        return emit.vector("y_star", "x", y_star)
    formula = "" if y_star is None else emit.vector("closed_form", "x", y_star) + "\n\n\n"
    first = "closed_form(x), " if formula else ""
    ends = [_ends(derivation, group) for group in (derivation.x, derivation.y)]
    middle = [_middle(low, high) for low, high in zip(*ends[1], strict=True)]
    newton = _NEWTON.replace("FIRST", first).replace("MIDDLE", repr(middle))
    for name, values in zip(("X_LOW", "X_HIGH", "Y_LOW", "Y_HIGH"), (*ends[0], *ends[1]), strict=True):
        newton = newton.replace(
            name, _bracket(["-np.inf" if v == -inf else "np.inf" if v == inf else repr(v) for v in values])
        )
    return formula + newton


def _ends(derivation: Derivation, variables: Sequence[sp.Symbol]) -> tuple[list[float], list[float]]:
    """The lower and the upper ends of the box, infinite where there is none."""
    known = {} if derivation.box is None else dict(derivation.box.items())
    pairs = [known.get(s.name, (0 if s.is_nonnegative else -inf, 0 if s.is_nonpositive else inf)) for s in variables]
    return [float(low) for low, _ in pairs], [float(high) for _, high in pairs]


def _middle(low: float, high: float) -> float:
    if low == -inf and high == inf:
        return 0.0
    return low + 1.0 if high == inf else high - 1.0 if low == -inf else (low + high) / 2


# what people write, and the inverse functions of closed forms
_CALLS: Mapping[type[sp.Basic], str] = MappingProxyType(
    {
        **{record.sympy: record.source for record in OPERATIONS.values() if record.source},
        sp.asin: "np.arcsin({})",
        sp.acos: "np.arccos({})",
        sp.acosh: "np.arccosh({})",
        sp.atanh: "np.arctanh({})",
    }
)


class _Printer(PythonCodePrinter):
    """Exact numbers as the nearest float, conditions as Python's own, functions from NumPy."""

    def _print(self, expr: sp.Basic, **options: object) -> str:
        template = _CALLS.get(type(expr))
        if template is None:
            return str(super()._print(expr, **options))
        return template.format(", ".join(map(self._print, expr.args)))

    def _print_Exp1(self, expression: sp.Expr) -> str:
        return "np.e"

    def _print_Pi(self, expression: sp.Expr) -> str:
        return "np.pi"

    def _print_Float(self, expression: sp.Float) -> str:
        return repr(float(expression))

    def _print_Pow(self, expression: sp.Pow, rational: bool = False) -> str:
        return str(self._hprint_Pow(expression, rational=rational, sqrt="np.sqrt"))

    def _print_Piecewise(self, expression: sp.Piecewise) -> str:
        text = "np.nan"
        for value, condition in reversed(expression.args):
            here = self._print(value)
            text = here if condition is sp.true else f"({here} if {self._print(condition)} else {text})"
        return text


_UPPER_LEVEL = '''def solve_v(x, y):
    """v = g_yy^-1 f_y."""
    return np.linalg.solve(g_yy(x, y), f_y(x, y))


def phi(x):
    return f(x, y_star(x))


def grad_phi(x):
    y = y_star(x)
    return f_x(x, y) - g_xy(x, y) @ solve_v(x, y)


def hess_phi(x):
    """Z^T H Z with Z = [I; dy_dx^T] and H the Hessian of f - v^T grad_y g."""
    y = y_star(x)
    v = solve_v(x, y)
    dy_dx = -np.linalg.solve(g_yy(x, y), g_xy(x, y).T).T
    cross = dy_dx @ L_xy(x, y, v).T
    hessian = L_xx(x, y, v) + cross + cross.T + dy_dx @ L_yy(x, y, v) @ dy_dx.T
    return (hessian + hessian.T) / 2'''

_NEWTON = '''def y_star(x):
    """Newton's method with backtracking on the strongly convex g(x, .), to round-off; inside the box, if x is."""
    inside = np.all((X_LOW <= np.asarray(x)) & (np.asarray(x) <= X_HIGH))
    low, high = (Y_LOW, Y_HIGH) if inside else (-np.inf, np.inf)

    def allowed(y):
        return np.all((low <= y) & (y <= high)) and np.isfinite([g(x, y), *g_y(x, y), *g_yy(x, y).ravel()]).all()

    with np.errstate(all="ignore"):
        n = len(MIDDLE)
        starts = [FIRSTnp.array(MIDDLE), np.zeros(n), np.ones(n), -np.ones(n)]
        y = next((start for start in starts if allowed(start)), None)
        for _ in range(200 if y is not None else 0):
            slope = g_y(x, y)
            step = -np.linalg.solve(g_yy(x, y), slope)
            if np.linalg.norm(step) <= 1e-8 * (1 + np.linalg.norm(y)):
                y = y + step
                return y - np.linalg.solve(g_yy(x, y), g_y(x, y))
            t = 1.0
            while t > 1e-12 and not (
                allowed(y + t * step) and g(x, y + t * step) <= g(x, y) + 1e-4 * t * (slope @ step)
            ):
                t /= 2
            y = y + t * step
    raise ArithmeticError("no minimiser of g found at x; is it strongly convex in y, with its minimiser in the box?")'''
