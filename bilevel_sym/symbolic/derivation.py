"""Derivation: y*(x), Phi, its gradient and Hessian as formulas for people, from f and g.

Lazy: nothing is differentiated or solved before it is asked for.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property
from numbers import Integral
from typing import Any, Literal

import sympy as sp

from bilevel_sym.errors import AssumptionViolated, InvalidArgument, InvalidProblem, NoClosedForm, TooLarge
from bilevel_sym.graph.expressions import substitute, symbols_in
from bilevel_sym.problem.box import Box
from bilevel_sym.problem.kinks import Kink, scalar_kinks
from bilevel_sym.problem.problem import BilevelProblem, MinimaxProblem
from bilevel_sym.symbolic import display, formulas
from bilevel_sym.symbolic.blocks import Blocks, derivative
from bilevel_sym.symbolic.closed_form import ClosedForm, solve_lower_level
from bilevel_sym.symbolic.formulas import MAX_EXPLICIT_N, Array, Entries, Equation, Matrix, Variant, textbook_equations
from bilevel_sym.symbolic.simplify import simplified
from bilevel_sym.symbolic.source import scalar_source

__all__ = ["Derivation", "derive", "derive_generic"]

_UNDEFINED = (sp.zoo, sp.nan, sp.oo, -sp.oo, sp.I)
MAX_SIMPLIFIED = 150  # entries of a block that is shortened entry by entry: nobody reads more
MAX_SOLVED = 2_000  # symbols and operations of one equation: what solves longer ones is no closed form to read


@dataclass(frozen=True, eq=False, repr=False)
class Derivation:
    """The formulas of one problem. Make it with ``derive`` or ``derive_generic``.

    - ``f``: the upper objective.
    - ``g``: the lower objective.
    - ``x``: the upper-level variables.
    - ``y``: the lower-level variables.
    - ``box``: that of the problem, by which branches are chosen.
    - ``name``: that of the problem.
    - ``is_minimax``: whether g = -f.
    - ``try_closed_form``: whether y*(x) is looked for in closed form.

    >>> from bilevel_sym import BilevelProblem, derive
    >>> derivation = derive(BilevelProblem("x*y", "(1 + x**2)*y**2/2 - x*y", "x", "y"))
    >>> derivation.y_star, derivation.phi
    ((x/(x**2 + 1),), x**2/(x**2 + 1))
    >>> derivation.grad_phi
    Matrix([[2*x/(x**2 + 1)**2]])
    >>> derivation.terms["grad_phi"]["implicit"]
    Matrix([[(-x**3 + x)/(x**2 + 1)**2]])
    """

    f: sp.Expr
    g: sp.Expr
    x: tuple[sp.Symbol, ...]
    y: tuple[sp.Symbol, ...]
    box: Box | None = None
    name: str | None = None
    is_minimax: bool = False
    try_closed_form: bool = True

    # ---- the lower level -------------------------------------------------------------------------

    @cached_property
    def _closed(self) -> ClosedForm:
        if not self.try_closed_form:
            return ClosedForm(None, "not tried: closed_form=False")
        if self.blocks.defined and (size := self.blocks.longest("g_y")) > MAX_SOLVED:
            return ClosedForm(None, f"not tried: an equation has {size:,} symbols and operations")
        # Solved in real twins of the symbols: roots and moduli of complex symbols simplify to nothing.
        symbols = symbols_in(self.g) | {*self.x, *self.y}
        twins = {s: sp.Symbol(s.name, real=True) for s in symbols if not s.is_extended_real}
        back = {twin: symbol for symbol, twin in twins.items()}
        x, y = (tuple(twins.get(s, s) for s in group) for group in (self.x, self.y))
        try:
            closed = solve_lower_level(substitute(self.g, twins), x, y, box=self.box)
        except AssumptionViolated as error:
            if self.box is not None or not error.point:
                raise
            # somewhere in space, perhaps not where the user looks: the implicit formulas hold elsewhere
            return ClosedForm(
                None, f"g is not strongly convex everywhere, and no box says where to look ({error.message})"
            )
        if closed.y_star is None:
            return closed
        return ClosedForm(tuple(substitute(e, back) for e in closed.y_star), closed.method)

    @property
    def is_closed_form(self) -> bool:
        """Whether y*(x) was found in closed form."""
        return self._closed.y_star is not None

    @property
    def method(self) -> str:
        """How the lower level was solved, or why it was not."""
        return self._closed.method

    @cached_property
    def kinks(self) -> tuple[Kink, ...]:
        """Where g has no derivative in y: of no use where the minimiser lies there, and no harm elsewhere."""
        return scalar_kinks(self.g, self.x, self.y)

    @property
    def y_star(self) -> tuple[sp.Expr, ...] | None:
        """y*(x) in closed form, proved by substitution; None where none was found."""
        return self._closed.y_star

    @cached_property
    def v(self) -> tuple[sp.Symbol, ...]:
        """The symbols that stand for v = g_yy^-1 f_y in the blocks of the Lagrangian."""
        prefix, taken = "v", {s.name for s in symbols_in(self.f) | symbols_in(self.g)}
        while any(f"{prefix}{k}" in taken for k in range(1, len(self.y) + 1)):
            prefix += "_"
        return tuple(sp.Symbol(f"{prefix}{k}", real=True) for k in range(1, len(self.y) + 1))

    # ---- blocks and the formulas that keep the linear solve --------------------------------------

    @cached_property
    def blocks(self) -> Blocks:
        """The derivative blocks of f, g and the Lagrangian in x and y, each computed when asked for."""
        return Blocks(self.f, self.g, self.x, self.y, v=self.v)

    @cached_property
    def auxiliaries(self) -> dict[sp.MatrixSymbol, sp.MatrixExpr]:
        """The formulas with the linear solve kept by name, in matrix notation; in the order of use.

        Each name is that of a block (``blocks["g_yy"]``) or of an earlier entry; evaluate the blocks at
        y = y*(x), solve for v, and go down the list. Nothing grows with n.

        Paper: Equation 1.5 [eq:bilevel-grad]
        """
        return display.matrix_formulas(len(self.x), len(self.y))

    # ---- formulas written out ---------------------------------------------------------------------

    def _at_solution(self, expression: sp.Expr) -> sp.Expr:
        """In x alone where y* is closed; otherwise as it stands, in x and y."""
        if self.y_star is None:
            return expression
        inserted = substitute(expression, dict(zip(self.y, self.y_star, strict=True)))
        if inserted.has(*_UNDEFINED):
            raise InvalidProblem(
                f"{inserted if inserted.is_number else 'an undefined constant'} appears at y = y*(x): f or g is not"
                " a smooth real function there",
                hint="closed_form=False keeps y, and shows where",
            )
        return simplified(inserted)

    def _block(self, name: str) -> Matrix | Array:
        if self.is_minimax and name == "f_y":
            return Matrix.zeros(len(self.y), 1)  # f_y = -g_y, which vanishes at y*
        return self.blocks[name].applyfunc(self._at_solution)

    @cached_property
    def _g_yy_inverse(self) -> Matrix:
        if len(self.y) > MAX_EXPLICIT_N:
            raise TooLarge(
                f"the inverse of g_yy is not written out for n = {len(self.y)} > {MAX_EXPLICIT_N}"
                + ("" if self.is_closed_form else f", and there is no closed form: {self.method}"),
                hint="use .blocks and .auxiliaries, which keep the linear solve by name",
            )
        return _tidied(formulas.inverse(self._block("g_yy")))

    @cached_property
    def dy_dx(self) -> Matrix:
        """The derivative of y*, d x n: rows are x. In x alone where closed, else in x and y = y*(x).

        Paper: Equation 1.4 [solve-partial-y*-partial-x]
        """
        if self.y_star is None:
            return _tidied(formulas.response(self._block, self._g_yy_inverse))
        return _tidied(Matrix(sp.SparseMatrix(len(self.x), len(self.y), self._slopes)))

    @cached_property
    def _slopes(self) -> Mapping[tuple[int, int], sp.Expr]:
        """What does not vanish of the derivative of a closed y*."""
        rank = {symbol: i for i, symbol in enumerate(self.x)}
        return {
            (rank[s], k): derivative(entry, s)
            for k, entry in enumerate(self.y_star or ())
            for s in sorted(symbols_in(entry) & rank.keys(), key=rank.__getitem__)
        }

    @cached_property
    def d2y_dx2(self) -> Array:
        """The second derivative of y*, d x d x n, with the third derivatives of g.

        Paper: Equation B.2 [eq:opt-deri2]
        """
        d, n = self.dy_dx.shape
        entries = self._second_slopes
        return formulas.array(d, n, lambda i, j, k: entries.get((i, j, k), sp.S.Zero))

    @cached_property
    def _second_slopes(self) -> Entries:
        """What does not vanish of it."""
        if self.y_star is None:
            return formulas.entries_of(_tidied(formulas.second_response(self._block, self._g_yy_inverse, self.dy_dx)))
        rank = {symbol: i for i, symbol in enumerate(self.x)}
        slopes = {place: self.dy_dx[place] for place in self._slopes}
        second = {
            (i, rank[s], k): derivative(entry, s)
            for (i, k), entry in slopes.items()
            for s in symbols_in(entry) & rank.keys()
        }
        few = len(self.x) * len(self.dy_dx) <= MAX_SIMPLIFIED
        return {place: simplified(second[place]) if few else second[place] for place in sorted(second)}

    @cached_property
    def phi(self) -> sp.Expr:
        """Phi(x) = f(x, y*(x)): in x alone where closed, else in x and y = y*(x)."""
        if not self.is_closed_form:
            _ = self._g_yy_inverse  # for large n one rule for Phi and its derivatives: see .blocks
        return self._at_solution(self.f)

    @cached_property
    def grad_phi(self) -> Matrix:
        """The gradient of Phi, d x 1.

        Paper: Equation 1.5 [eq:bilevel-grad]
        """
        return _total(self._gradient_terms)

    @cached_property
    def hess_phi(self) -> Matrix:
        """The Hessian of Phi, d x d: the sum of the paper's five terms.

        Paper: Equation B.1 [phi-hessian]
        """
        return self.hessian()

    def hessian(
        self,
        *,
        form: Literal["paper", "lagrangian"] = "paper",
        variant: Variant = "corrected",
    ) -> Matrix:
        """The Hessian of Phi in either of its two forms.

        "paper" sums the five terms (``variant="printed"``: with the misprint, not symmetric for d >= 2);
        "lagrangian" is Z^T H Z with H the Hessian of f - v^T grad_y g and Z = [I; dy_dx^T].

        Paper: Equation B.1 [phi-hessian]

        >>> from bilevel_sym import BilevelProblem, derive
        >>> witness = derive(BilevelProblem("x2*y", "(y - x1)**2/2", "x1 x2", "y"))
        >>> witness.hessian(), witness.hessian(variant="printed")
        (Matrix([
        [0, 1],
        [1, 0]]), Matrix([
        [0, 2],
        [0, 0]]))
        """
        if form not in ("paper", "lagrangian") or variant not in ("corrected", "printed"):
            raise InvalidArgument(
                f"no Hessian of form={form!r}, variant={variant!r}",
                hint="form: 'paper' or 'lagrangian'; variant: 'corrected' or 'printed'",
            )
        if form == "paper":
            return _total(self._hessian_terms(variant))
        v = _tidied(self._g_yy_inverse * self._block("f_y"))
        held = dict(zip(self.v, v, strict=True))

        def block(name: str) -> Matrix:
            return self._block(name).applyfunc(lambda entry: substitute(entry, held))

        return _tidied(formulas.lagrangian_hessian(block, self.dy_dx))

    @cached_property
    def _gradient_terms(self) -> dict[str, Matrix]:
        terms = formulas.gradient_terms(self._block, self.dy_dx)
        return {name: _tidied(term) for name, term in terms.items()}

    def _hessian_terms(self, variant: Variant) -> dict[str, Matrix]:
        terms = formulas.hessian_terms(self._block, self.dy_dx, self._second_slopes, variant=variant)
        return {name: _tidied(term) for name, term in terms.items()}

    @cached_property
    def terms(self) -> Mapping[str, Mapping[str, Matrix]]:
        """The named terms; each group sums to the whole.

        ``grad_phi``: direct f_x, implicit dy_dx f_y. ``hess_phi``: direct f_xx, cross dy_dx f_yx, curvature
        d2y_dx2 f_y (it holds the third derivatives of g), cross_transposed f_xy dy_dx^T, quadratic
        dy_dx f_yy dy_dx^T.
        """
        return {"grad_phi": self._gradient_terms, "hess_phi": self._hessian_terms("corrected")}

    @cached_property
    def equations(self) -> Mapping[str, Equation]:
        """The textbook equations by label, each with its left side differentiated mechanically."""
        return textbook_equations(self.blocks, self.x, self.y)

    # ---- for readers ------------------------------------------------------------------------------

    def text(self) -> str:
        """The formulas as text, term by term."""
        return "\n".join(display.text_lines(self))

    def latex(self, form: Literal["auto", "entries", "terms", "blocks", "problem"] = "auto") -> str:
        """LaTeX (amsmath): written out entry by entry, with the named terms under braces, or in matrix notation.

        "auto" is "entries" where a person can read them, else "blocks"; "problem" is f and g themselves.
        """
        forms = {
            "auto": display.latex_summary, "entries": display.latex_entries, "terms": display.latex_terms,
            "blocks": display.latex_blocks, "problem": display.latex_problem,
        }  # fmt: skip
        if form not in forms:
            raise InvalidArgument(
                f"no LaTeX of form={form!r}", hint="form: 'auto', 'entries', 'terms', 'blocks' or 'problem'"
            )
        return forms[form](self)

    def source(self, language: str = "numpy") -> str:
        """Readable Python that runs alone, with NumPy, JAX or PyTorch and nothing of ours."""
        return scalar_source(self, language)

    def _repr_latex_(self) -> str:
        lines = self.latex().splitlines()  # without comments, which some notebooks run into the formula
        return "\n".join(["$$", *(line for line in lines if not line.startswith("%")), "$$"])

    def __repr__(self) -> str:
        named = "" if self.name is None else f"{self.name}, "
        return f"<Derivation {named}d={len(self.x)}, n={len(self.y)}>"


def derive(problem: BilevelProblem, *, closed_form: Literal["auto"] | bool = "auto") -> Derivation:
    """The formulas of a problem. Nothing is computed until it is asked for; with arrays it is an ``ArrayDerivation``.

    ``closed_form``: "auto" solves the lower level where that is quick, and says in ``.method`` what it did;
    True raises NoClosedForm where that fails; False keeps y as the name of y*(x).

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y")
    >>> derive(problem).grad_phi
    Matrix([[x*cos(x) + sin(x)]])
    >>> derive(problem, closed_form=False).grad_phi
    Matrix([[x*cos(x) + y]])
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(
            f"derive wants a BilevelProblem, but was given a {type(problem).__name__}",
            hint="derive(BilevelProblem(f, g, x, y))",
        )
    if not (closed_form == "auto" if isinstance(closed_form, str) else isinstance(closed_form, bool)):
        raise InvalidArgument(f"closed_form={closed_form!r}", hint="'auto', True or False")
    derivation: Derivation = _derivation(problem, try_closed_form=closed_form is not False)
    if closed_form is True and not derivation.is_closed_form:
        raise NoClosedForm(
            f"the lower level was not solved in closed form: {derivation.method}",
            hint="closed_form='auto' gives the implicit formulas",
        )
    return derivation


def _derivation(problem: BilevelProblem, *, try_closed_form: bool) -> Any:
    """Of numbers, or of arrays: both answer to the same names."""
    is_minimax = isinstance(problem, MinimaxProblem)
    if problem.is_array:
        from bilevel_sym.symbolic.array_derivation import ArrayDerivation

        symbols = {s.name: s for formula in (problem.f, problem.g) for s in formula.atoms(sp.Symbol, sp.MatrixSymbol)}
        symbols |= {s.name: s for s in (*problem.x, *problem.y)}
        return ArrayDerivation(
            problem.array_model, problem.dimensions, problem.name, is_minimax, try_closed_form, symbols
        )
    return Derivation(
        problem.f, problem.g, problem.x, problem.y, problem.box, problem.name, is_minimax, try_closed_form
    )  # fmt: skip


def derive_generic(d: int, n: int) -> Derivation:
    """The textbook formulas themselves, for undefined functions f and g of d and n variables.

    >>> derive_generic(1, 1).dy_dx
    Matrix([[-Derivative(g(x1, y1), x1, y1)/Derivative(g(x1, y1), (y1, 2))]])
    """
    if not (_is_size(d) and _is_size(n)):
        raise InvalidArgument(f"derive_generic wants d >= 1 and n >= 1, but was given {d!r}, {n!r}")
    x = tuple(sp.Symbol(f"x{i}", real=True) for i in range(1, d + 1))
    y = tuple(sp.Symbol(f"y{k}", real=True) for k in range(1, n + 1))
    f, g = (sp.Function(name, real=True)(*x, *y) for name in "fg")
    return Derivation(f, g, x, y, name="generic", try_closed_form=False)


def _is_size(value: object) -> bool:
    return isinstance(value, Integral) and int(value) >= 1


def _total(terms: Mapping[str, Matrix]) -> Matrix:
    first, *rest = terms.values()
    return _tidied(sum(rest, first))


def _tidied(block: Matrix | Array) -> Matrix | Array:
    """Every entry shortened, where there are few enough to be read."""
    return block.applyfunc(simplified) if len(block) <= MAX_SIMPLIFIED else block
