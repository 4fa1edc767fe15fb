"""Derivations of array problems for readers: a page of text, and LaTeX; in matrix notation, the solves by name."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING

from bilevel_sym.arrays.display import entry_latex, entry_text, has_matrix_form, latex_name, to_latex, to_text
from bilevel_sym.arrays.matrix_form import matrix_form
from bilevel_sym.arrays.notation.nodes import MatMul, Name
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.problem.kinks import told
from bilevel_sym.symbolic.array_closed_form import Solve

if TYPE_CHECKING:
    from bilevel_sym.symbolic.array_derivation import ArrayDerivation

_AXES = ("xx", "xy", "yy")


def solve_text(solve: Solve, matrix: str) -> str:
    """The solution of a linear system as text, ``matrix`` being the name of its matrix.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> from bilevel_sym.symbolic.array_closed_form import Curvature
    >>> y = Tensor.leaf(Leaf("c", ("n",), "data"))
    >>> solve_text(Solve(Curvature("vector", Tensor(("n", "n"))), y), "H")
    'solve(H, c)'
    """
    if solve.value is not None:
        return to_text(solve.value)
    right = to_text(solve.right)
    if solve.curvature.kind == "rows":
        return f"solve({matrix}, {_transposed(right)}).T"
    return f"solve({matrix}, {right})"


def _transposed(text: str) -> str:
    return f"{text}.T" if text.isidentifier() else f"({text}).T"


# ---- text -----------------------------------------------------------------------------------------------------------


def array_text_lines(derivation: ArrayDerivation) -> Iterator[str]:
    """A page that a person reads: the lower level, Phi, its gradient and its Hessian, each with its terms."""
    page = _Page(derivation)
    yield from page.lower_level()
    yield f"Phi(x) = {to_text(derivation.model.f)}, at y = y*(x)"
    yield from page.adjoint()
    yield from page.gradient()
    yield from page.hessian() if page.plain else page.hessian_along()


class _Page:
    """The parts of the page."""

    def __init__(self, derivation: ArrayDerivation) -> None:
        self.derivation, self.formulas = derivation, derivation.formulas
        self.model = derivation.model
        self.plain = derivation.has_matrices

    def equation(self, left: str, tensor: Tensor) -> str:
        """A name and what it is; with indices where there is no matrix form."""
        if has_matrix_form(tensor):
            return f"{left} = {to_text(tensor)}"
        names, text = entry_text(tensor)
        return f"{left}[{', '.join(names)}] = {text}"

    def lower_level(self) -> Iterator[str]:
        derivation = self.derivation
        yield f"lower level: {derivation.method}"
        yield from told(derivation.kinks)
        closed = derivation.closed
        if closed.solves is None:
            yield "y*(x) solves"
            yield from (f"  0 = {to_text(tensor)}" for tensor in self.model.block("g_y").values())
        else:
            yield "y*(x)"
            yield from (
                f"  {leaf.name} = {solve_text(solve, derivation.matrix_name(leaf))}"
                for leaf, solve in closed.solves.items()
            )
        yield from self.matrices()

    def matrices(self) -> Iterator[str]:
        """H by name, where something is solved with it."""
        for leaf, curvature in (self.derivation.curvatures or {}).items():
            if curvature.kind in ("vector", "columns", "rows"):
                yield "  " + self.equation(self.derivation.matrix_name(leaf), curvature.tensor)

    def adjoint(self) -> Iterator[str]:
        """v, as a solve where g_yy is a matrix, else as the equation that it solves."""
        if self.formulas.is_minimax:
            return
        solves = self.derivation.adjoint_solves
        if solves is not None:
            for (leaf, solve), v in zip(solves.items(), self.model.v, strict=True):
                yield f"{v.name} = {solve_text(solve, self.derivation.matrix_name(leaf))}"
            return
        several = len(self.model.v) > 1
        yield f"{', '.join(v.name for v in self.model.v)} solve{'' if several else 's'} g_yy[v] = f_y"
        for leaf in self.model.y:
            where = f"[{leaf.name}]" if len(self.model.y) > 1 else ""
            yield f"  g_yy[v]{where} = {to_text(self.model.block('g_yy_v')[leaf,])}"
            yield f"  f_y{where} = {to_text(self.model.block('f_y')[leaf,])}"

    def gradient(self) -> Iterator[str]:
        for leaf in self.model.x:
            where = f"[{leaf.name}]" if len(self.model.x) > 1 else ""
            yield self.equation(f"grad Phi(x){where}", self.formulas.gradient[leaf])
            yield from _terms({name: term[leaf] for name, term in self.formulas.gradient_terms.items()})

    def hessian(self) -> Iterator[str]:
        """In matrices: L and dy_dx by name."""
        (x,), (y,) = self.model.x, self.model.y
        yield f"{self.formulas.responses[x, y].name} = {self.derivation.response_text}"
        yield f"Hess Phi(x) = {to_text(self.formulas.named_hessian[x, x])}"
        yield from _terms({name: term[x, x] for name, term in self.formulas.hessian_terms.items()})
        blocks = self.derivation.lagrangian_blocks
        v, times = self.model.v[0].name, " @ " if y.dims else "*"
        if blocks:
            yield "  where" + ("" if self.formulas.is_minimax else f" L = f - {v}{times}g_y, {v} held constant")
        yield from (f"    {self.equation(leaf.name, tensor)}" for leaf, tensor in blocks.items())

    def hessian_along(self) -> Iterator[str]:
        """Along a direction: matrices would have more than two indices."""
        parts, formulas = self.formulas.along_direction, self.formulas
        u = ", ".join(formulas.moves[leaf].name for leaf in self.model.x)
        yield f"Hess Phi(x)[{u}], along a direction {u}"
        for part, letters in (("dy", formulas.moves), ("w", formulas.adjoint_moves)):
            names = {leaf: letters[leaf].name for leaf in self.model.y}
            yield from self.solved({leaf: tensor for (leaf,), tensor in parts[part].items()}, names)
        for (leaf,), tensor in parts["hess"].items():
            where = f"[{leaf.name}]" if len(self.model.x) > 1 else ""
            yield f"  Hess Phi(x)[{u}]{where} = {to_text(tensor)}"

    def solved(self, rights: Mapping[Leaf, Tensor], names: Mapping[Leaf, str]) -> Iterator[str]:
        """What is solved with g_yy: by name where that is a matrix, else as the equation."""
        solves = self.derivation.solves(rights)
        for leaf, solve in (solves or {}).items():
            yield f"  {names[leaf]} = {solve_text(solve, self.derivation.matrix_name(leaf))}"
        if solves is None:
            whole = ", ".join(names.values())
            for leaf, right in rights.items():
                where = f"[{leaf.name}]" if len(rights) > 1 else ""
                yield f"  g_yy[{whole}]{where} = {to_text(right)}"


def _terms(terms: Mapping[str, Tensor]) -> Iterator[str]:
    alive = {name: term for name, term in terms.items() if not term.is_zero}
    width = max(map(len, alive), default=0)
    yield from (f"    {name:{width}}  {to_text(term)}" for name, term in alive.items())


# ---- LaTeX ----------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Latex:
    """Tensors in LaTeX, with the names of the theory for what is kept by name."""

    derivation: ArrayDerivation
    names: Mapping[str, str]

    def __call__(self, tensor: Tensor) -> str:
        return to_latex(tensor, self.names)

    def equation(self, left: str, tensor: Tensor) -> str:
        if has_matrix_form(tensor):
            return f"{left} &= {self(tensor)}"
        letters, text = entry_latex(tensor, self.names)
        return rf"\left[{left}\right]_{{{' '.join(letters)}}} &= {text}"

    def solve(self, solve: Solve, matrix: str) -> str:
        if solve.value is not None:
            return self(solve.value)
        right = self(solve.right)
        if not isinstance(matrix_form(solve.right), Name | MatMul):
            right = rf"\left({right}\right)"
        if solve.curvature.kind == "rows":
            return rf"{right} \, {matrix}^{{-1}}"
        return rf"{matrix}^{{-1}} {right}"


def _printer(derivation: ArrayDerivation) -> _Latex:
    formulas = derivation.formulas
    names: dict[str, str] = {}
    for (a, c), leaf in formulas.responses.items():
        names[leaf.name] = rf"\frac{{\partial {latex_name(c.name)}^{{*}}}}{{\partial {latex_name(a.name)}}}"
    function = "f" if formulas.is_minimax else r"\mathcal{L}"
    for axes in _AXES:
        for (a, b), leaf in formulas.lagrangian_leaves(axes).items():
            below = latex_name(a.name) + (" " + latex_name(b.name) if a != b else "")
            names[leaf.name] = rf"\nabla_{{{below}}}^{{2}} {function}"
    for c in derivation.model.y:
        names[formulas.moves[c].name] = rf"\dot{{{latex_name(c.name)}}}"
    return _Latex(derivation, names)


def array_latex(derivation: ArrayDerivation) -> list[str]:
    """The formulas of the problem, line by line, each with its ``&=``."""
    show = _printer(derivation)
    return [*_lower_latex(derivation, show), *_upper_latex(derivation, show, lambda whole, _: show(whole))]


def array_latex_terms(derivation: ArrayDerivation) -> list[str]:
    """The same with the named terms of the gradient and the Hessian under braces; vanishing terms are left out."""
    show = _printer(derivation)

    def braces(_: Tensor, terms: Mapping[str, Tensor]) -> str:
        alive = ((name.replace("_", " "), term) for name, term in terms.items() if not term.is_zero)
        shown = (rf"\underbrace{{{show(term)}}}_{{\text{{{name}}}}}" for name, term in alive)
        return " + ".join(shown) or "0"

    return [*_lower_latex(derivation, show), *_upper_latex(derivation, show, braces)]


def array_latex_problem(derivation: ArrayDerivation) -> list[str]:
    """f and g as they were given; of a minimax problem f alone."""
    levels = {"f": derivation.model.f} | ({} if derivation.formulas.is_minimax else {"g": derivation.model.g})
    names = ", ".join(latex_name(leaf.name) for leaf in (*derivation.model.x, *derivation.model.y))
    return [f"{name}({names}) &= {to_latex(tensor)}" for name, tensor in levels.items()]


Whole = Callable[[Tensor, Mapping[str, Tensor]], str]


def _lower_latex(derivation: ArrayDerivation, show: _Latex) -> Iterator[str]:
    closed, model = derivation.closed, derivation.model
    if closed.solves is None:
        yield from (
            f"0 &= {show(tensor)} \\quad \\text{{at }} y = y^{{*}}(x)" for tensor in model.block("g_y").values()
        )
    for leaf, solve in (closed.solves or {}).items():
        matrix = latex_name(derivation.matrix_name(leaf))
        yield rf"{latex_name(leaf.name)}^{{*}} &= {show.solve(solve, matrix)}"
    for leaf, curvature in (derivation.curvatures or {}).items():
        if curvature.kind in ("vector", "columns", "rows"):
            yield show.equation(latex_name(derivation.matrix_name(leaf)), curvature.tensor)
    if derivation.formulas.is_minimax:
        return
    solves = derivation.adjoint_solves
    for (leaf, solve), v in zip((solves or {}).items(), model.v, strict=solves is not None):
        yield f"{latex_name(v.name)} &= {show.solve(solve, latex_name(derivation.matrix_name(leaf)))}"
    if solves is None:
        for leaf in model.y:
            yield f"{show(model.block('g_yy_v')[leaf,])} &= {show(model.block('f_y')[leaf,])}"


def _upper_latex(derivation: ArrayDerivation, show: _Latex, whole: Whole) -> Iterable[str]:
    formulas, model = derivation.formulas, derivation.model
    for leaf in model.x:
        terms = {name: term[leaf] for name, term in formulas.gradient_terms.items()}
        below = f"_{{{latex_name(leaf.name)}}}" if len(model.x) > 1 else ""
        yield rf"\nabla{below} \Phi(x) &= {whole(formulas.gradient[leaf], terms)}"
    if not derivation.has_matrices:
        yield from _along_latex(derivation, show)
        return
    (x,), (y,) = model.x, model.y
    yield f"{show.names[formulas.responses[x, y].name]} &= {derivation.response_latex(show)}"
    terms = {name: term[x, x] for name, term in formulas.hessian_terms.items()}
    yield rf"\nabla^{{2}} \Phi(x) &= {whole(formulas.named_hessian[x, x], terms)}"
    yield from (show.equation(show.names[leaf.name], block) for leaf, block in derivation.lagrangian_blocks.items())


def _along_latex(derivation: ArrayDerivation, show: _Latex) -> Iterator[str]:
    parts, formulas = derivation.formulas.along_direction, derivation.formulas
    for letters, part in ((formulas.moves, "dy"), (formulas.adjoint_moves, "w")):
        rights = {leaf: tensor for (leaf,), tensor in parts[part].items()}
        solves = derivation.solves(rights)
        for leaf, solve in (solves or {}).items():
            matrix = latex_name(derivation.matrix_name(leaf))
            yield f"{show(Tensor.leaf(letters[leaf]))} &= {show.solve(solve, matrix)}"
        for leaf, tensor in rights.items() if solves is None else ():
            yield rf"\left[\nabla_{{y}}^{{2}} g\right]\left({show(Tensor.leaf(letters[leaf]))}\right) &= {show(tensor)}"
    for (leaf,), tensor in parts["hess"].items():
        below = f"_{{{latex_name(leaf.name)}}}" if len(derivation.model.x) > 1 else ""
        u = latex_name(formulas.moves[leaf].name)
        yield rf"\nabla{below}^{{2}} \Phi(x)\left[{u}\right] &= {show(tensor)}"
