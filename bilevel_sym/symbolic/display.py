"""Derivations for readers: LaTeX entry by entry, LaTeX in matrix notation, and plain text."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator
from itertools import product
from typing import TYPE_CHECKING, Any

import sympy as sp

from bilevel_sym.errors import NoClosedForm, TooLarge
from bilevel_sym.graph.expressions import postorder, symbols_in, tree_size, written_size
from bilevel_sym.implicit.second_order import gradient_of, hessian_of
from bilevel_sym.problem.kinks import told
from bilevel_sym.symbolic.formulas import MAX_EXPLICIT_N, SYMBOLIC
from bilevel_sym.symbolic.legible import IN_FULL, check_legible, is_legible, size_in_words
from bilevel_sym.symbolic.source import check_length

if TYPE_CHECKING:
    from bilevel_sym.symbolic.derivation import Derivation

__all__ = ["latex_summary", "text_lines", "written_out"]

# What SymPy's own conversion (alpha1 to \alpha_{1}) handles; any other name is quoted letter by letter.
_CONVERTIBLE = re.compile(r"[A-Za-z]+(_?[0-9]+|_[A-Za-z0-9]+)?")
_ESCAPES = {
    "\\": r"\backslash{}", "^": r"\wedge{}", "~": r"\sim{}", " ": r"\ ",
    **{c: "\\" + c for c in "#$%&_{}"},
}  # fmt: skip
_READABLE = 2_000  # nodes, and digits, of Phi and its derivatives, beyond which a notebook shows the matrix notation
_PRINTABLE = 30_000  # nodes of one formula: a page has a thousand
_FACTORED = 3  # times as long is the formula, at least, as the derivatives of which there are many
_INSIDE = {"grad_phi": ("f_x", "f_y"), "hess_phi": ("f_xx", "f_xy", "f_yy")}
_SHORTER = "form='blocks', or .blocks and .auxiliaries, which keep the linear solve by name; kernels for numbers"
_SORTED = 60  # terms of a sum that are put in order
_SHOWN_N = 12  # and of so many variables are blocks still shown


def matrix_formulas(d: int, n: int) -> dict[sp.MatrixSymbol, sp.MatrixExpr]:
    """v, dy_dx, grad_phi and hess_phi in terms of the blocks, the linear solve kept by name.

    >>> for name, formula in matrix_formulas(2, 3).items():
    ...     print(name, "=", formula)
    v = g_yy**(-1)*f_y
    dy_dx = -g_xy*g_yy**(-1)
    grad_phi = f_x - g_xy*v
    hess_phi = L_xx + L_xy*dy_dx.T + dy_dx*L_yy*dy_dx.T + dy_dx*L_xy.T
    """
    sizes = {"x": d, "y": n}

    def block(name: str) -> sp.MatrixSymbol:
        rows, cols = (*(sizes[axis] for axis in name[2:]), 1)[:2]
        return sp.MatrixSymbol(name, rows, cols)

    v, dy_dx = sp.MatrixSymbol("v", n, 1), sp.MatrixSymbol("dy_dx", d, n)
    return {
        v: block("g_yy").I * block("f_y"),
        dy_dx: -block("g_xy") * block("g_yy").I,
        sp.MatrixSymbol("grad_phi", d, 1): gradient_of(SYMBOLIC, block, v),
        sp.MatrixSymbol("hess_phi", d, d): hessian_of(SYMBOLIC, block, dy_dx.T),
    }


_BLOCKS = (
    r"\nabla_y g(x, y^*(x)) &= 0",
    r"\nabla_y^2 g \, v &= \nabla_y f",
    r"\frac{\partial y^*}{\partial x} &= -\nabla_{xy}^2 g \, (\nabla_y^2 g)^{-1}",
    r"\nabla \Phi(x) &= \nabla_x f - \nabla_{xy}^2 g \, v",
    r"\mathcal{L}(x, y) &= f - v^\top \nabla_y g \quad (v \text{ held constant})",
    r"\nabla^2 \Phi(x) &= \nabla_x^2 \mathcal{L} + \frac{\partial y^*}{\partial x} \nabla_{yx}^2 \mathcal{L}"
    r" + \nabla_{xy}^2 \mathcal{L} \, \frac{\partial y^*}{\partial x}^\top"
    r" + \frac{\partial y^*}{\partial x} \nabla_y^2 \mathcal{L} \, \frac{\partial y^*}{\partial x}^\top",
)


def latex_blocks(derivation: Derivation) -> str:
    """The formulas in matrix notation, all at y = y*(x); the same for every problem that is not minimax.

    >>> from bilevel_sym import derive_generic
    >>> "v &= \\\\nabla_y f" in latex_blocks(derive_generic(1, 1))
    True
    """
    return _aligned(_MINIMAX_BLOCKS if derivation.is_minimax else _BLOCKS)


_MINIMAX_BLOCKS = (
    r"\nabla_y f(x, y^*(x)) &= 0",
    r"\nabla \Phi(x) &= \nabla_x f",
    r"\nabla^2 \Phi(x) &= \nabla_x^2 f - \nabla_{xy}^2 f \, (\nabla_y^2 f)^{-1} \, \nabla_{yx}^2 f",
)


def latex_entries(derivation: Derivation) -> str:
    """y*, Phi, its gradient and Hessian written out; in x alone where closed, else in x and y.

    >>> from bilevel_sym import BilevelProblem, derive
    >>> print(latex_entries(derive(BilevelProblem("y", "y**2/2 - x*y", "x", "y"))))
    \\begin{aligned}
    y^*(x) &= x \\\\
    \\Phi(x) &= x \\\\
    \\nabla \\Phi(x) &= 1 \\\\
    \\nabla^2 \\Phi(x) &= 0
    \\end{aligned}
    """
    for name in ("phi", "grad_phi", "hess_phi"):
        _refuse_long(derivation, name, _PRINTABLE)
    show = _Latex(derivation)
    names = {r"\Phi(x)": "phi", r"\nabla \Phi(x)": "grad_phi", r"\nabla^2 \Phi(x)": "hess_phi"}
    wholes = {shown: written_out(derivation, name) for shown, name in names.items()}
    return _aligned([*show.lower_level(), *(f"{name} &= {show(whole)}" for name, whole in wholes.items())])


def latex_terms(derivation: Derivation) -> str:
    """The gradient and the Hessian with each of their named terms under a brace; vanishing terms are left out.

    >>> from bilevel_sym import BilevelProblem, derive
    >>> print(latex_terms(derive(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"))))
    \\begin{aligned}
    y^*(x) &= x \\\\
    \\nabla \\Phi(x) &= \\underbrace{x}_{\\text{direct}} + \\underbrace{x}_{\\text{implicit}} \\\\
    \\nabla^2 \\Phi(x) &= \\underbrace{1}_{\\text{cross}} + \\underbrace{1}_{\\text{cross transposed}}
    \\end{aligned}
    """
    for check in (_refuse_long, written_out):
        for name in ("grad_phi", "hess_phi"):
            check(derivation, name, _PRINTABLE)
    show = _Latex(derivation)
    lines = [*show.lower_level()]
    for name, group in ((r"\nabla \Phi(x)", "grad_phi"), (r"\nabla^2 \Phi(x)", "hess_phi")):
        alive = {label: term for label, term in derivation.terms[group].items() if not term.is_zero_matrix}
        braces = (
            rf"\underbrace{{{show(term)}}}_{{\text{{{label.replace('_', ' ')}}}}}" for label, term in alive.items()
        )
        lines.append(f"{name} &= {' + '.join(braces) or '0'}")
    return _aligned(lines)


def latex_problem(derivation: Derivation) -> str:
    """f and g as they were given; of a minimax problem f alone.

    >>> from bilevel_sym import BilevelProblem, derive
    >>> print(latex_problem(derive(BilevelProblem("y", "y**2/2 - x*y", "x", "y"))))
    \\begin{aligned}
    f(x, y) &= y \\\\
    g(x, y) &= - x y + \\frac{y^{2}}{2}
    \\end{aligned}
    """
    levels = {"f": derivation.f} | ({} if derivation.is_minimax else {"g": derivation.g})
    for name, level in levels.items():
        if (size := tree_size(level)) > _PRINTABLE:
            raise TooLarge(f"{name} has {size:,} symbols and operations", hint="problem.to_toml(), which is shorter")
    show = _Latex(derivation)
    return _aligned(f"{name}(x, y) &= {show(level)}" for name, level in levels.items())


def latex_summary(derivation: Derivation) -> str:
    """The entries where a person can read them, else the matrix notation, with a comment that says why.

    >>> from bilevel_sym import BilevelProblem, derive
    >>> latex_summary(derive(BilevelProblem("y", "y**2/2 - x*y", "x", "y"))).count("&=")
    4
    """
    try:
        check_legible("y*", derivation.y_star or ())
        for name in ("phi", "grad_phi", "hess_phi"):
            _check_readable(name, written_out(derivation, name, _READABLE))
        return latex_entries(derivation)
    except NoClosedForm as refusal:
        return (
            f'% in matrices: {refusal.message}; form="entries" writes what can be printed\n{latex_blocks(derivation)}'
        )


def written_out(derivation: Derivation, name: str, limit: int = _PRINTABLE) -> sp.Expr | sp.MatrixBase:
    """phi, grad_phi or hess_phi, or TooLarge where nobody would print it.

    >>> from bilevel_sym import BilevelProblem, derive
    >>> written_out(derive(BilevelProblem("y", "y**2/2 - x*y", "x", "y")), "phi")
    x
    """
    _refuse_long(derivation, name, limit)
    value = getattr(derivation, name)
    size = sum(map(tree_size, value)) if isinstance(value, sp.MatrixBase) else tree_size(value)
    if size > limit:
        raise TooLarge(f"{name} written out has {size:,} symbols and operations", hint=_SHORTER)
    return value


def _check_readable(name: str, value: sp.Expr | sp.MatrixBase) -> None:
    """TooLarge where digits fill the page, too."""
    size = sum(map(written_size, value if isinstance(value, sp.MatrixBase) else [value]))
    if size > _READABLE:
        raise TooLarge(f"{name} written out has {size_in_words(size)}", hint=_SHORTER)


def _refuse_long(derivation: Derivation, name: str, limit: int) -> None:
    """Before anything is differentiated: the formula holds these derivatives, written out, and more."""
    if not derivation.blocks.defined:
        return
    entries = {"phi": 1, "grad_phi": len(derivation.x), "hess_phi": len(derivation.x) ** 2}[name]
    size = tree_size(derivation.f) if name == "phi" else derivation.blocks.size(*_INSIDE[name])
    if name == "phi" and size <= limit and not derivation.is_closed_form:
        size += derivation.blocks.size("g_y")  # which defines y*
    few = len(derivation.y) <= MAX_EXPLICIT_N  # of more the inverse is refused
    if name == "hess_phi" and few and _FACTORED * size <= limit and entries <= limit and not derivation.is_closed_form:
        size += derivation.blocks.size("g_xxy", "g_xyy", "g_yyy")
    if entries > limit or _FACTORED * size > limit:
        raise TooLarge(
            f"{name} written out would have about {max(size, entries):,} symbols and operations", hint=_SHORTER
        )


def text_lines(derivation: Derivation) -> Iterator[str]:
    """The formulas as lines of text, term by term, each line as soon as it is known.

    >>> from bilevel_sym import BilevelProblem, derive
    >>> for line in text_lines(derive(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"))):
    ...     print(line)
    lower level: linear in y, solved exactly
    y*(x)
      y = x
    Phi(x) = x**2
    grad Phi(x)
      [x] = 2*x
        direct    x
        implicit  x
    Hess Phi(x)
      [x, x] = 2
        cross             1
        cross_transposed  1
    """
    yield f"lower level: {derivation.method}"
    yield from told(derivation.kinks)
    if derivation.y_star is None:
        yield "y*(x) solves"
        yield from (f"  0 = {_entry(entry)}" for entry in derivation.blocks["g_y"])
    elif is_legible(derivation.y_star):
        yield "y*(x)"
        named = zip(derivation.y, derivation.y_star, strict=True)
        yield from (f"  {symbol} = {entry}" for symbol, entry in named)
    try:
        yield from _formula_lines(derivation)
    except NoClosedForm as refusal:
        yield "in matrices, with L = f - v^T g_y (v held constant), at y = y*(x):"
        yield from (f"  {name} = {formula}" for name, formula in derivation.auxiliaries.items())
        yield from _block_lines(derivation)
        yield refusal.message
        yield f"try: {_other_doors(derivation)}"


def _other_doors(derivation: Derivation) -> str:
    """What to try where formulas are not written out: only what does not refuse in its turn."""
    try:
        check_length(derivation)
        numbers = "--format python, functions that compute it"
    except TooLarge:
        numbers = "problem.kernels, which compute it"
    whole = f"--format json, or {IN_FULL}, to have it in full"
    return f"{numbers}; {whole if derivation.is_closed_form else '--format json, for the longer formulas written out'}"


def _entry(expression: sp.Expr) -> str:
    """An entry, or its size where that would fill a screen."""
    return str(expression) if is_legible([expression]) else f"... ({size_in_words(written_size(expression))})"


def _block_lines(derivation: Derivation) -> Iterator[str]:
    """The entries that do not vanish of the blocks in the matrix formulas, where there are few enough to read."""
    if max(len(derivation.x), len(derivation.y)) > _SHOWN_N:
        return
    axes = {"x": derivation.x, "y": derivation.y}
    yield "where (entries that vanish are left out)"
    for name in ("f_x", "f_y", "g_xy", "g_yy"):
        block, symbols = derivation.blocks[name], [axes[axis] for axis in name[2:]]
        for place in product(*(range(len(group)) for group in symbols)):
            entry = block[place] if len(place) == 2 else block[place[0]]
            repeated = name == "g_yy" and place[0] > place[1]
            if entry != 0 and not repeated:
                where = ", ".join(str(group[k]) for group, k in zip(symbols, place, strict=True))
                yield f"  {name}[{where}] = {_entry(entry)}"


def _formula_lines(derivation: Derivation) -> Iterator[str]:
    where = "" if derivation.is_closed_form else ", at y = y*(x)"
    x = derivation.x
    yield f"Phi(x) = {_legible(derivation, 'phi')}{where}"
    gradient = _legible(derivation, "grad_phi")
    yield f"grad Phi(x){where}"
    for i, symbol in enumerate(x):
        yield f"  [{symbol}] = {gradient[i]}"
        yield from _term_lines({name: term[i] for name, term in derivation.terms["grad_phi"].items()})
    hessian = _legible(derivation, "hess_phi")
    yield f"Hess Phi(x){where}"
    for i in range(len(x)):
        for j in range(i, len(x)):
            yield f"  [{x[i]}, {x[j]}] = {hessian[i, j]}"
            yield from _term_lines({name: term[i, j] for name, term in derivation.terms["hess_phi"].items()})


def _legible(derivation: Derivation, name: str) -> Any:
    """phi, grad_phi or hess_phi, or TooLarge where an entry of it would fill a screen."""
    check_legible("y*", derivation.y_star or ())
    value = written_out(derivation, name)
    check_legible(name, value if isinstance(value, sp.MatrixBase) else [value])
    return value


def _term_lines(terms: dict[str, sp.Expr]) -> Iterable[str]:
    shown = {name: value for name, value in terms.items() if value != 0}
    width = max(map(len, shown), default=0)
    return (f"    {name:{width}}  {value}" for name, value in shown.items())


class _Latex:
    """SymPy's LaTeX printer with every unusual name quoted."""

    def __init__(self, derivation: Derivation) -> None:
        self._derivation = derivation
        symbols = symbols_in(derivation.f) | symbols_in(derivation.g) | {*derivation.x, *derivation.y}
        self._names = {s: _quoted(s.name) for s in symbols if not _CONVERTIBLE.fullmatch(s.name)}

    def __call__(self, expression: sp.Basic) -> str:
        if isinstance(expression, sp.MatrixBase) and expression.shape == (1, 1):
            expression = expression[0]
        return str(sp.latex(expression, symbol_names=self._names, order=_order(expression)))

    def lower_level(self) -> Iterable[str]:
        y_star = self._derivation.y_star
        if y_star is None:
            condition = self(self._derivation.blocks["g_y"])
            return [f"0 &= {condition} \\quad \\text{{at }} y = y^*(x)"]
        left = ["y^*(x)"] if len(y_star) == 1 else [f"y^*_{{{k}}}(x)" for k in range(1, len(y_star) + 1)]
        return [f"{name} &= {self(entry)}" for name, entry in zip(left, y_star, strict=True)]


def _order(expression: sp.Basic) -> str | None:
    """SymPy's own, but for long sums: their terms are put in order at a price that grows with the square."""
    return "none" if any(isinstance(e, sp.Add) and len(e.args) > _SORTED for e in postorder(expression)) else None


def _quoted(name: str) -> str:
    def letter(c: str) -> str:
        if c in _ESCAPES:
            return _ESCAPES[c]
        return c if c.isascii() and c.isprintable() else f"U{ord(c):04X}"

    return rf"\mathtt{{{''.join(map(letter, name))}}}"


def _aligned(lines: Iterable[str]) -> str:
    return "\\begin{aligned}\n" + " \\\\\n".join(lines) + "\n\\end{aligned}"
