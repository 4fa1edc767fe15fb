"""A derivation as readable Python that runs alone, with NumPy, JAX or PyTorch and nothing of ours.

Variables are renamed where their names would clash, so that no name from outside reaches the code as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import chain, product
from math import inf, prod
from typing import TYPE_CHECKING

import sympy as sp

from bilevel_sym.errors import InvalidProblem, TooLarge
from bilevel_sym.graph.expressions import symbols_in, tree_size
from bilevel_sym.graph.operations.record import LANGUAGES
from bilevel_sym.implicit.model import Model
from bilevel_sym.symbolic.blocks import BLOCK_NAMES
from bilevel_sym.symbolic.legible import is_legible
from bilevel_sym.symbolic.source_parts import templates
from bilevel_sym.symbolic.source_parts.printer import ExpressionPrinter, is_plain, may_overflow

if TYPE_CHECKING:
    from bilevel_sym.symbolic.derivation import Derivation

_EMITTED = ("f_x", "f_y", "g_y", "g_xy", "g_yy", "L_xx", "L_xy", "L_yy")
_TAKEN = frozenset({*BLOCK_NAMES, "x", "y"})
MAX_WRITTEN = 20_000  # symbols and operations: two hundred kilobytes of Python
MANY, SPARSE = 100, 4  # a block of so many entries is written place by place, if so large a part of it vanishes
Place = tuple[int, ...]


def scalar_source(derivation: Derivation, language: str) -> str:
    """The whole module as text.

    derivation: the formulas
    language: "numpy", "jax" or "torch"

    >>> from bilevel_sym import BilevelProblem, derive
    >>> "jnp.sin(x_1)" in scalar_source(derive(BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y")), "jax")
    True
    """
    templates.check_language(language)
    _refuse_unknowns(derivation)
    check_length(derivation)
    names = _renamed({"x": derivation.x, "y": derivation.y, "v": derivation.v})
    emit = _Emitter(names, language)
    f, g, entries = _stable(derivation)
    functions = [emit.scalar("f", f), emit.scalar("g", g)]
    functions += [emit.block(name, entries(name)) for name in _EMITTED]
    functions.append(_lower_level(derivation, emit, entries("g_yy")))
    functions.append(_UPPER_LEVEL.replace("np.", f"{LANGUAGES[language]}."))
    title = derivation.name if derivation.name and derivation.name.isidentifier() else "a problem"
    library = {"numpy": "NumPy", "jax": "JAX", "torch": "PyTorch"}[language]
    head = f"y*(x), Phi(x) and its derivatives for {title}, at one point x; needs {library} alone."
    definitions = {**({"array": templates.ARRAY[language]} if language in templates.ARRAY else {}), **emit.definitions}
    return templates.joined(language, head, definitions, functions)


def _stable(derivation: Derivation) -> tuple[sp.Expr, sp.Expr, Callable[[str], Mapping[Place, sp.Expr]]]:
    """f, g and the entries of blocks; from the graph, as kernels have them, where they would overflow as written."""
    f, g = derivation.f, derivation.g
    if not (may_overflow(f) or may_overflow(g)):
        return f, g, derivation.blocks.entries
    model = Model(f, g, derivation.x, derivation.y)
    (stable_f,), (stable_g,) = model.expressions("f"), model.expressions("g")
    return stable_f, stable_g, lambda name: model.entries(name, derivation.v)


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


def check_length(derivation: Derivation) -> None:
    """TooLarge where the source would be, before anything is differentiated: what is long to write is long to find.

    >>> from bilevel_sym import BilevelProblem, derive
    >>> check_length(derive(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")))
    """
    size = tree_size(derivation.f) + tree_size(derivation.g) + derivation.blocks.size(*_EMITTED)
    if size > MAX_WRITTEN:
        raise TooLarge(
            f"the source would have about {size:,} symbols and operations, and {MAX_WRITTEN:,} are written",
            hint="the kernels of the problem compute the same functions, without writing them out",
        )


def _renamed(groups: Mapping[str, Sequence[sp.Symbol]]) -> dict[str, dict[sp.Symbol, sp.Symbol]]:
    """Each symbol with the name it has in the code: its own where that is safe."""
    own = [s.name for s in chain.from_iterable(groups.values())]
    plain = all(is_plain(name) and name not in _TAKEN for name in own)
    return {
        role: {s: sp.Symbol(s.name if plain else f"{role}_{i}", real=True) for i, s in enumerate(group, start=1)}
        for role, group in groups.items()
    }


class _Emitter:
    """Functions of one module.

    names: the symbols of each role, and those that stand for them
    language: of the module
    """

    def __init__(self, names: Mapping[str, Mapping[sp.Symbol, sp.Symbol]], language: str) -> None:
        self._names, self.language = names, language
        self._all = {old: new for group in names.values() for old, new in group.items()}
        self._printer = ExpressionPrinter(language)
        self.library = LANGUAGES[language]

    @property
    def definitions(self) -> Mapping[str, str]:
        """What the expressions need."""
        return self._printer.definitions

    def expression(self, expression: sp.Expr) -> str:
        return self._printer.text(expression, self._all)

    def scalar(self, name: str, expression: sp.Expr) -> str:
        return self._function(name, "xy", self.expression(expression))

    def block(self, name: str, entries: Mapping[Place, sp.Expr]) -> str:
        roles = "xyv" if name.startswith("L") else "xy"
        shape = tuple(len(self._names[axis]) for axis in name[2:])
        written = {place: self.expression(entry) for place, entry in entries.items()}
        if prod(shape) > MANY and SPARSE * len(written) < prod(shape):
            return self._sparse(name, roles, shape, written)
        flat = [written.get(place, "0") for place in product(*map(range, shape))]
        rows = [flat[k : k + shape[1]] for k in range(0, len(flat), shape[1])] if len(shape) == 2 else []
        return self._function(name, roles, self._array([_bracket(row) for row in rows] or flat))

    def _sparse(self, name: str, roles: str, shape: tuple[int, ...], entries: Mapping[Place, str]) -> str:
        head = [f"def {name}({', '.join(roles)}):", *self._unpack(roles)]
        if self.language == "numpy" or not entries:
            head.append(f"    {name} = {self.zeros(shape)}")
            places = [f"    {name}{list(place)} = {entry}" for place, entry in entries.items()]
            return "\n".join([*head, *places, f"    return {name}"])
        columns = ", ".join(self._indices([place[k] for place in entries]) for k in range(len(shape)))
        values = self._array(list(entries.values()))
        if self.language == "jax":
            return "\n".join([*head, f"    return {self.zeros(shape)}.at[{columns}].set({values})"])
        return "\n".join([*head, f"    return {self.zeros(shape)}.index_put(({columns},), {values})"])

    def zeros(self, shape: tuple[int, ...]) -> str:
        more = {"numpy": "", "jax": ", dtype=float", "torch": ", dtype=torch.float64"}[self.language]
        return f"{self.library}.zeros({shape}{more})"

    def _indices(self, places: Sequence[int]) -> str:
        return f"{'jnp.array' if self.language == 'jax' else 'torch.tensor'}({list(places)})"

    def vector(self, name: str, roles: str, entries: Iterable[sp.Expr]) -> str:
        return self._function(name, roles, self._array([self.expression(entry) for entry in entries]))

    def _array(self, rows: Sequence[str]) -> str:
        body = "".join(f"\n        {row}," for row in rows)
        call, more = ("array", "") if self.language in templates.ARRAY else (f"{self.library}.array", ", dtype=float")
        return f"{call}([{body}\n    ]{more})"

    def _function(self, name: str, roles: str, value: str) -> str:
        lines = [f"def {name}({', '.join(roles)}):", *self._unpack(roles), f"    return {value}"]
        return "\n".join(lines)

    def _unpack(self, roles: str) -> Iterator[str]:
        for role in roles:
            yield f"    {_bracket([s.name for s in self._names[role].values()])} = {role}"


def _bracket(items: Sequence[str]) -> str:
    return f"[{', '.join(items)}]"


def _lower_level(derivation: Derivation, emit: _Emitter, curvatures: Mapping[Place, sp.Expr]) -> str:
    """The formula alone where it is exact in floats too; else Newton's method, started at the formula.

    A root of radicals is exact, but not in floats: Cardano's loses every digit for large negative x. A formula that
    nobody reads, as of a regression on rows of decimals, is left out: floats may not even hold its constants.
    """
    y_star = derivation.y_star if is_legible(derivation.y_star or ()) else None
    if derivation.y_star is not None and symbols_in(sp.Tuple(*curvatures.values())).isdisjoint(derivation.y):
        return _one_step(derivation, emit) if y_star is None else emit.vector("y_star", "x", y_star)
    formula = "" if y_star is None else emit.vector("closed_form", "x", y_star) + "\n\n\n"
    (x_low, x_high), (y_low, y_high) = (_ends(derivation, group) for group in (derivation.x, derivation.y))
    middle = [_middle(low, high) for low, high in zip(y_low, y_high, strict=True)]
    ends = {"X_LOW": x_low, "X_HIGH": x_high, "Y_LOW": y_low, "Y_HIGH": y_high}
    texts = {name: _bracket([_end(end, emit.library) for end in values]) for name, values in ends.items()}
    texts |= {"MIDDLE": repr(middle), "N": str(len(middle))}
    if emit.language == "numpy":
        return formula + templates.filled(
            templates.SCALAR_NEWTON, {**texts, "FIRST": "closed_form(x), " if formula else ""}
        )
    known = templates.filled(templates.TRACED[emit.language], {**texts, "FIRST": ", closed_form(x)" if formula else ""})
    return formula + templates.filled(
        templates.NEWTON[emit.language], {**_TRACED_CALLS, "SOLVED": _solve(emit.library), "SIZES": known}
    )


def _one_step(derivation: Derivation, emit: _Emitter) -> str:
    zero = emit.zeros((len(derivation.y),))
    return templates.filled(
        templates.ONE_STEP, {**_TRACED_CALLS, "ZERO": zero, "SOLVED": _solve(emit.library), "VALUE": "", "SIZES": ""}
    )


_TRACED_CALLS = {
    "ARGUMENTS": "x", "Y": "y", "ZERO": "first()", "VALUE": "inside({})", "SLOPE": "g_y(x, {})", "RESULT": "{}",
}  # fmt: skip


def _solve(library: str) -> str:
    return f"{library}.linalg.solve(g_yy(x, y), {{}})"


def _end(value: float, library: str) -> str:
    return f"{'-' * (value < 0)}{library}.inf" if value in (-inf, inf) else repr(value)


def _ends(derivation: Derivation, variables: Sequence[sp.Symbol]) -> tuple[list[float], list[float]]:
    """The lower and the upper ends of the box, infinite where there is none."""
    known = {} if derivation.box is None else dict(derivation.box.items())
    pairs = [known.get(s.name, (0 if s.is_nonnegative else -inf, 0 if s.is_nonpositive else inf)) for s in variables]
    return [float(low) for low, _ in pairs], [float(high) for _, high in pairs]


def _middle(low: float, high: float) -> float:
    if low == -inf and high == inf:
        return 0.0
    return low + 1.0 if high == inf else high - 1.0 if low == -inf else (low + high) / 2


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
