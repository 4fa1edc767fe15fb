"""SymPy expressions as Python: one printer for NumPy, JAX and PyTorch; identifiers for the names of users.

Those are their own where that is safe, and never anything but a plain identifier.
"""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection, Iterable, Mapping, Sequence
from fractions import Fraction
from types import MappingProxyType

import sympy as sp
from sympy.printing.pycode import PythonCodePrinter

from bilevel_sym.arrays.notation.python_calls import CALLS
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.expressions import postorder, substitute
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.graph.operations.logistic import sigmoid
from bilevel_sym.graph.operations.record import LANGUAGES, Source

__all__ = ["RESERVED", "SOURCES", "ExpressionPrinter", "identifiers", "is_plain", "may_overflow"]

_CONSTANTS = (sp.Function, sp.Pow, sp.NumberSymbol)
DIGITS = 25  # of a constant, before it is rounded to a float

SOURCES: Mapping[type[sp.Basic], Source] = MappingProxyType(
    {
        **{r.sympy: r.source for r in OPERATIONS.values() if r.source is not None and isinstance(r.sympy, type)},
        sp.asin: Source("np.arcsin({})"),
        sp.acos: Source("np.arccos({})"),
        sp.acosh: Source("np.arccosh({})"),
        sp.atanh: Source("np.arctanh({})"),
    }
)
"""What people write, and the inverse functions of closed forms."""

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")
_TEMPORARY = re.compile(r"t[0-9]+")
_OWN = (
    "Data", "NamedTuple", "arrays", "block", "closed_form", "data", "dy_dx", "end_to_end", "erf", "f", "g", "grad_L",
    "grad_phi", "hess_L", "hess_phi", "is_true", "jax", "jnp", "math", "np", "phi", "sigmoid", "sigmoid_slope",
    "softplus", "solve", "solve_H", "solve_v", "start", "torch", "v", "y_arrays", "y_star", "H", "minimum", "maximum",
    "array", "slope", "step", "value", "descent", "small", "length", "count", "state", "good", "improved", "too_long",
    "unfinished", "matrix", "right", "cross", "flat", "lead", "parts", "part", "inside", "low", "high", "allowed",
    "starts",
)  # fmt: skip
RESERVED = frozenset({*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *_OWN, *CALLS, *OPERATIONS})
"""What no array, variable or dimension is called in source."""


class ExpressionPrinter(PythonCodePrinter):
    """Exact numbers as the nearest float, conditions as Python's own, functions from one library.

    language: "numpy", "jax" or "torch"

    >>> x = sp.Symbol("x")
    >>> show = ExpressionPrinter("torch")
    >>> show.text(sp.Min(x, 1) + sp.exp(2)), sorted(show.definitions)
    ('minimum(1, x) + 7.38905609893065', ['minimum({})'])
    """

    def __init__(self, language: str) -> None:
        super().__init__()
        self._language = language
        self.definitions: dict[str, str] = {}

    def text(self, expression: sp.Expr, names: Mapping[sp.Symbol, sp.Symbol] | None = None) -> str:
        """The expression with other symbols in the place of some."""
        if expression.is_Integer and abs(expression) < 10**6:
            return str(expression)
        long = {q: sp.Float(_nearest(q)) for q in expression.atoms(sp.Rational) if max(abs(q.p), q.q) >= 10**6}
        return str(self.doprint(substitute(expression, {**(names or {}), **long})))

    def _print(self, expr: sp.Basic, **options: object) -> str:
        if self._language == "torch" and isinstance(expr, _CONSTANTS) and expr.is_number and not expr.is_Rational:
            return repr(float(expr.evalf(DIGITS)))  # PyTorch's functions take no plain numbers
        source = SOURCES.get(type(expr))
        if source is None:
            return str(super()._print(expr, **options))
        texts = [self._print(argument) for argument in expr.args]
        return self._folded(source, texts) if isinstance(expr, sp.Min | sp.Max) else self.called(source, texts)

    def called(self, source: Source, arguments: Sequence[str]) -> str:
        """A call; its definition is kept."""
        call = source.call(self._language)
        if definition := source.definition(self._language):
            self.definitions[call] = definition
        return call.replace("{}", ", ".join(arguments))

    def _folded(self, source: Source, texts: Sequence[str]) -> str:
        """A function of two, of more than two."""
        text = texts[-1]
        for other in reversed(texts[:-1]):
            text = self.called(source, [other, text])
        return text

    @property
    def _library(self) -> str:
        return LANGUAGES[self._language]

    def _print_Exp1(self, expression: sp.Expr) -> str:
        return f"{self._library}.e"

    def _print_Pi(self, expression: sp.Expr) -> str:
        return f"{self._library}.pi"

    def _print_Float(self, expression: sp.Float) -> str:
        return repr(float(expression))

    def _print_Pow(self, expression: sp.Pow, rational: bool = False) -> str:
        return str(self._hprint_Pow(expression, rational=rational, sqrt=f"{self._library}.sqrt"))

    def _print_Add(self, expression: sp.Add, order: str | None = None) -> str:
        if len(expression.args) == 2 and expression.args[0] is sp.S.One and isinstance(-expression.args[1], sigmoid):
            return self._print(sigmoid(-(-expression.args[1]).args[0]))  # 1 - sigmoid(z) would cancel
        return str(super()._print_Add(expression, order=order))

    def _print_Piecewise(self, expression: sp.Piecewise) -> str:
        text = f"{self._library}.nan"
        for value, condition in reversed(expression.args):
            here = self._print(value)
            text = here if condition is sp.true else self._chosen(here, self._print(condition), text)
        return text

    def _chosen(self, here: str, condition: str, other: str) -> str:
        """Python's own choice computes one branch; what is traced computes both."""
        if self._language == "numpy":
            return f"({here} if {condition} else {other})"
        return self.called(CALLS["where"], [condition, here, other])

    def _print_And(self, expression: sp.And) -> str:
        return self._logical(expression, "&") or str(super()._print_And(expression))

    def _print_Or(self, expression: sp.Or) -> str:
        return self._logical(expression, "|") or str(super()._print_Or(expression))

    def _print_Not(self, expression: sp.Not) -> str:
        if self._language == "numpy":
            return str(super()._print_Not(expression))
        return f"~({self._print(expression.args[0])})"

    def _logical(self, expression: sp.Basic, sign: str) -> str:
        if self._language == "numpy":
            return ""
        return "(" + f" {sign} ".join(f"({self._print(part)})" for part in expression.args) + ")"


def _nearest(number: sp.Rational) -> float:
    try:
        return float(Fraction(number.p, number.q))
    except OverflowError:
        raise InvalidProblem("a constant is larger than any float64", hint="scale the problem") from None


def may_overflow(expression: sp.Expr) -> bool:
    """Whether log(1 + exp(z)), 1/(1 + exp(z)) or log(sigmoid(z)) is written out in it, which are infinite too soon.

    >>> z = sp.Symbol("z")
    >>> may_overflow(sp.log(1 + sp.exp(z))), may_overflow(sp.log(sigmoid(z))), may_overflow(sp.exp(z))
    (True, True, False)
    """
    return any(map(_overflows, postorder(expression)))


def _overflows(node: sp.Basic) -> bool:
    if isinstance(node, sp.log):
        inner = node.args[0]
        if any(isinstance(part, sigmoid) for part in postorder(inner)):
            return True
    elif isinstance(node, sp.Pow) and node.exp.is_negative:
        inner = node.base
    else:
        return False
    return isinstance(inner, sp.Add) and any(isinstance(part, sp.exp) for part in inner.args)


def is_plain(name: str) -> bool:
    """Whether a name can stand in source as it is.

    >>> is_plain("A"), is_plain("lambda"), is_plain("a b"), is_plain("t1")
    (True, False, False, False)
    """
    return bool(_IDENTIFIER.fullmatch(name)) and name not in RESERVED and not _TEMPORARY.fullmatch(name)


def identifiers(names: Iterable[tuple[str, str]], taken: Collection[str] = ()) -> Mapping[str, str]:
    """An identifier for each name, given with what it is called by where it cannot be used; no two alike.

    names: names, each with a prefix for the ones that are no identifiers
    taken: further names that must not be used

    >>> identifiers([("A", "data"), ("lambda", "x"), ("a b", "y")])
    {'A': 'A', 'lambda': 'lambda_', 'a b': 'y_1'}
    """
    wanted = dict(names)
    found = {name: name for name in wanted if is_plain(name) and name not in taken}
    for name, prefix in wanted.items():
        if name not in found:
            used = {*taken, *found.values()}
            bent = _IDENTIFIER.fullmatch(name)
            candidates = (f"{name}{'_' * k}" if bent else f"{prefix}_{k}" for k in range(1, 10**6))
            found[name] = next(text for text in candidates if is_plain(text) and text not in used)
    return {name: found[name] for name in wanted}
