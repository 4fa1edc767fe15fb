"""ArrayDerivation: what ``derive`` returns for a problem with arrays; for any size, with the solves kept by name."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal

import sympy as sp

from bilevel_sym.arrays.algebra import contract, power
from bilevel_sym.arrays.display import to_sympy, to_text
from bilevel_sym.arrays.normal import rearranged, scaled
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.errors import InvalidArgument
from bilevel_sym.implicit.array_model import ArrayModel
from bilevel_sym.problem.kinks import Kink, array_kinks
from bilevel_sym.symbolic.array_closed_form import ArrayClosedForm, Curvature, Solve, curvatures, solve_quadratic
from bilevel_sym.symbolic.array_display import (
    array_latex,
    array_latex_problem,
    array_latex_terms,
    array_text_lines,
    solve_text,
)
from bilevel_sym.symbolic.array_formulas import ArrayFormulas
from bilevel_sym.symbolic.blocks import BLOCK_NAMES
from bilevel_sym.symbolic.display import matrix_formulas

Form = Literal["auto", "entries", "terms", "blocks", "problem"]


class ArrayBlocks(Mapping[str, Any]):
    """``blocks["g_xy"]`` in SymPy, computed when asked for: by the names of arrays where there are several.

    What has more than two indices is a Lambda of them.

    >>> x, y = Leaf("x", ("n",), "x"), Leaf("y", ("n",), "y")
    >>> g = contract([(Tensor.leaf(x), "i"), (Tensor.leaf(y), "i")], "")
    >>> ArrayBlocks(ArrayFormulas(ArrayModel(g, g, [x], [y])), to_sympy)["g_xy"]
    I
    """

    def __init__(self, formulas: ArrayFormulas, written: Callable[[Tensor], Any]) -> None:
        self._formulas, self._written = formulas, written

    def __getitem__(self, name: str) -> Any:
        if name not in BLOCK_NAMES:
            raise KeyError(name)
        blocks = self._formulas.block(name)
        return _by_name({leaves: self._written(value) for leaves, value in blocks.items()})

    def __iter__(self) -> Iterator[str]:
        return iter(BLOCK_NAMES)

    def __len__(self) -> int:
        return len(BLOCK_NAMES)


@dataclass(frozen=True, eq=False, repr=False)
class ArrayDerivation:
    """The formulas of one array problem. Make it with ``derive``.

    - ``model``: f and g, and their blocks.
    - ``dimensions``: the dimensions that are known.
    - ``name``: that of the problem.
    - ``is_minimax``: whether g = -f.
    - ``try_closed_form``: whether y*(x) is looked for in closed form.
    - ``symbols``: the user's own symbols by name; their shapes say how dimensions are written.

    Formulas are SymPy matrix expressions in the user's names, columns for vectors; by the names of arrays where x or y
    has several. y stands for y*(x), v and dy_dx for the solves: ``auxiliaries`` says what they are.

    >>> from bilevel_sym.arrays.normal import added
    >>> x, y, b = Leaf("x", (), "x"), Leaf("y", ("n",), "y"), Leaf("b", ("n",), "data")
    >>> X, Y, B = map(Tensor.leaf, (x, y, b))
    >>> square = contract([(power(Y, 2), "i")], "")
    >>> g = added([contract([(X, ""), (square, "")], ""), contract([(B, "i"), (Y, "i")], "")], ())
    >>> derivation = ArrayDerivation(ArrayModel(square, g, [x], [y]))
    >>> derivation.grad_phi
    -2*Trace(y.T*v)
    >>> derivation.y_star
    (-1/(2*x))*b
    """

    model: ArrayModel
    dimensions: Mapping[str, int | None] = field(default_factory=dict)
    name: str | None = None
    is_minimax: bool = False
    try_closed_form: bool = True
    symbols: Mapping[str, Any] = field(default_factory=dict)

    @cached_property
    def formulas(self) -> ArrayFormulas:
        """The gradient and the Hessian as tensors."""
        return ArrayFormulas(self.model, is_minimax=self.is_minimax)

    @cached_property
    def closed(self) -> ArrayClosedForm:
        """y* as a solve, or why there is none."""
        return solve_quadratic(self.model) if self.try_closed_form else ArrayClosedForm("not tried: closed_form=False")

    @cached_property
    def curvatures(self) -> Mapping[Leaf, Curvature] | None:
        """The structure of g_yy, for each array of y; None where g couples several."""
        return curvatures(self.model)

    @cached_property
    def has_matrices(self) -> bool:
        """Whether every formula is one of matrices: one array x and one y, no matrix among them, nothing joint."""
        return self.formulas.is_single and all(len(leaf.dims) < 2 for leaf in (*self.model.x, *self.model.y))

    def matrix_name(self, leaf: Leaf) -> str:
        """The name of the matrix that is solved with for an array of y: H, or H_W where there are several."""
        return self.formulas.named("H" if len(self.model.y) == 1 else f"H_{leaf.name}", ()).name

    # ---- the lower level

    @property
    def is_closed_form(self) -> bool:
        """Whether y*(x) is known as a solve, or as a division."""
        return self.closed.is_closed

    @property
    def method(self) -> str:
        """How the lower level was solved, or why it was not."""
        return self.closed.method

    @cached_property
    def kinks(self) -> tuple[Kink, ...]:
        """Where g may have no derivative in y."""
        return array_kinks(self.model.g, self.model.y)

    @cached_property
    def y_star(self) -> Any:
        """y*(x): an expression, or one for each array by name; None where it is not closed.

        Of arrays that g couples, one expression for all of them end to end, by the tuple of their names.
        """
        if self.closed.is_joint:
            return {tuple(leaf.name for leaf in self.model.y): self._joint_solution}
        if self.closed.solves is None:
            return None
        return _by_name({(leaf,): self._solved(solve) for leaf, solve in self.closed.solves.items()})

    @property
    def _joint_solution(self) -> Any:
        """The blocks of g_yy as one matrix, inverted, times the right sides as one column."""
        y, blocks, rights = self.model.y, self.model.block("g_yy"), self.closed.right_sides or {}
        matrix = sp.BlockMatrix([[self._as_block(blocks[a, b], row=not a.dims) for b in y] for a in y])
        column = sp.BlockMatrix([[self._as_block(rights[a], row=False)] for a in y])
        return sp.MatMul(sp.Inverse(matrix), column)

    def _as_block(self, tensor: Tensor, *, row: bool) -> Any:
        value = self._sympy(tensor)
        if not tensor.rank:
            return sp.ImmutableMatrix([[value]])
        return sp.Transpose(value) if tensor.rank == 1 and row else value

    @cached_property
    def adjoint_solves(self) -> Mapping[Leaf, Solve] | None:
        """v for each array of y, where g_yy is inverted array by array."""
        return self.solves({leaf: value for (leaf,), value in self.formulas.block("f_y").items()})

    def solves(self, rights: Mapping[Leaf, Tensor]) -> Mapping[Leaf, Solve] | None:
        """What is solved with g_yy for these right sides; None where it is no matrix for each array."""
        structure = self.curvatures
        if structure is None or any(curvature.kind == "operator" for curvature in structure.values()):
            return None
        return {leaf: Solve(structure[leaf], right) for leaf, right in rights.items()}

    def _solved(self, solve: Solve, matrix: sp.Basic | None = None) -> Any:
        """In SymPy; with the matrix written out, or by name."""
        if solve.value is not None:
            return self._sympy(solve.value)
        inverse = sp.Inverse(self._sympy(solve.curvature.tensor) if matrix is None else matrix)
        right = self._sympy(solve.right)
        return _product(right, inverse) if solve.curvature.kind == "rows" else _product(inverse, right)

    def _sympy(self, tensor: Tensor) -> Any:
        return to_sympy(tensor, self._sizes, self.symbols)

    @cached_property
    def _sizes(self) -> Mapping[str, Any]:
        """Dimensions as the user's symbols have them; without such, the known numbers."""
        if not self.symbols:
            return self.dimensions
        found: dict[str, Any] = {}
        for leaf in (*self.model.x, *self.model.y, *self.model.f.leaves, *self.model.g.leaves):
            own = self.symbols.get(leaf.name)
            shape = own.shape if isinstance(own, sp.MatrixSymbol) else ()
            sizes = [size for size in shape if size != 1] if len(leaf.dims) < len(shape) else shape
            if len(sizes) == len(leaf.dims):
                found |= dict(zip(leaf.dims, sizes, strict=True))
        return found

    # ---- the upper level

    @cached_property
    def phi(self) -> Any:
        """f at y = y*(x): y* written out where it is closed, else in x and y."""
        value = self._sympy(self.model.f)
        if self.closed.solves is None:
            return value
        return value.xreplace({self._sympy(Tensor.leaf(y)): self._solved(s) for y, s in self.closed.solves.items()})

    @cached_property
    def grad_phi(self) -> Any:
        """grad Phi = f_x - g_xy v, at y = y*(x)."""
        return _by_name({(a,): self._sympy(value) for a, value in self.formulas.gradient.items()})

    @cached_property
    def hess_phi(self) -> Any:
        """Hess Phi at y = y*(x), with v and dy_dx by name."""
        return _by_name({pair: self._sympy(value) for pair, value in self.formulas.hessian.items()})

    @cached_property
    def dy_dx(self) -> Any:
        """The derivative of y*: -g_xy H^-1; laid end to end where x or y is not one vector."""
        if not self.has_matrices:
            return self._joint[sp.MatrixSymbol("dy_dx", *self._joint_sizes)]
        return self.auxiliaries[self._sympy(Tensor.leaf(self._response_leaf))]

    @property
    def _response_leaf(self) -> Leaf:
        return self.formulas.responses[self.model.x[0], self.model.y[0]]

    @cached_property
    def _response(self) -> Solve:
        """-g_yx, solved with g_yy; of one vector x and one vector y."""
        (x,), (y,) = self.model.x, self.model.y
        mixed = scaled(self.model.block("g_xy")[x, y], -1)
        turned = rearranged(mixed, (1, 0)) if mixed.rank == 2 else mixed
        return Solve((self.curvatures or {})[y], turned)

    def _divided_response(self) -> Tensor | None:
        """Written out, where g_yy is diagonal."""
        curvature = self._response.curvature
        if curvature.kind != "entries":
            return None
        (x,), (y,) = self.model.x, self.model.y
        mixed, inverse = self.model.block("g_xy")[x, y], power(curvature.tensor, -1)
        labels = range(mixed.rank)
        own = list(labels)[len(x.dims) :]
        return contract([(scaled(mixed, -1), labels), (inverse, own)], labels)

    @property
    def response_text(self) -> str:
        """dy_dx as text, for one vector x and one vector y."""
        if (divided := self._divided_response()) is not None:
            return to_text(divided)
        matrix, right = self.matrix_name(self.model.y[0]), to_text(scaled(self._response.right, -1))
        return f"-solve({matrix}, {right})" + (".T" if self._response.right.rank == 2 else "")

    def response_latex(self, show: Callable[[Tensor], str]) -> str:
        """The same in LaTeX; ``show`` prints a tensor."""
        if (divided := self._divided_response()) is not None:
            return show(divided)
        (x,), (y,) = self.model.x, self.model.y
        matrix, mixed = self.matrix_name(y), rf"\left({show(self.model.block('g_xy')[x, y])}\right)"
        return rf"-{matrix}^{{-1}} {mixed}" if not x.dims else rf"-{mixed} \, {matrix}^{{-1}}"

    # ---- everything by name

    @cached_property
    def blocks(self) -> ArrayBlocks:
        """The derivative blocks of f, g and the Lagrangian, each computed when asked for."""
        return ArrayBlocks(self.formulas, self._sympy)

    @cached_property
    def terms(self) -> Mapping[str, Mapping[str, Any]]:
        """The named terms of the gradient and the Hessian; each group sums to the whole."""
        gradient = {
            name: _by_name({(a,): self._sympy(value) for a, value in term.items()})
            for name, term in self.formulas.gradient_terms.items()
        }
        hessian = {
            name: _by_name({pair: self._sympy(value) for pair, value in term.items()})
            for name, term in self.formulas.hessian_terms.items()
        }
        return {"grad_phi": gradient, "hess_phi": hessian}

    @cached_property
    def auxiliaries(self) -> dict[Any, Any]:
        """H, v, dy_dx, the blocks of L, grad_phi and hess_phi, in the order of use; each may use earlier ones.

        Where x or y is not one vector the arrays are laid end to end, and names are those of ``blocks``.
        """
        if not self.has_matrices:
            return self._joint
        matrix = self._sympy(Tensor.leaf(self._matrix_leaf))
        found = {}
        for leaf, value in self._steps.items():
            shown = self._sympy(value) if isinstance(value, Tensor) else self._solved(value, matrix)
            found[self._sympy(Tensor.leaf(leaf))] = shown
        found[self._sympy(Tensor.leaf(self._response_leaf))] = self._response_expression(matrix)
        return found

    @cached_property
    def auxiliary_texts(self) -> dict[str, str]:
        """The same as text, by name."""
        if not self.has_matrices:
            return {str(name): str(value) for name, value in self._joint.items()}
        matrix = self._matrix_leaf.name
        shown = {
            leaf.name: to_text(value) if isinstance(value, Tensor) else solve_text(value, matrix)
            for leaf, value in self._steps.items()
        }
        return shown | {self._response_leaf.name: self.response_text}

    @cached_property
    def _steps(self) -> dict[Leaf, Tensor | Solve]:
        """What is kept by name, for one vector x and one vector y, in the order of use."""
        (x,), (y,) = self.model.x, self.model.y
        steps: dict[Leaf, Tensor | Solve] = {self._matrix_leaf: self.model.block("g_yy")[y, y]}
        steps |= self.closed.solves or {}
        if not self.is_minimax:
            steps[self.model.v[0]] = (self.adjoint_solves or {})[y]
        steps[self._response_leaf] = self._response
        steps |= self.lagrangian_blocks
        steps[self.formulas.named("grad_phi", x.dims)] = self.formulas.gradient[x]
        steps[self.formulas.named("hess_phi", x.dims * 2)] = self.formulas.named_hessian[x, x]
        return steps

    @property
    def _matrix_leaf(self) -> Leaf:
        (y,) = self.model.y
        return Leaf(self.matrix_name(y), y.dims * 2, "v", bool(y.dims))

    @cached_property
    def lagrangian_blocks(self) -> Mapping[Leaf, Tensor]:
        """L_xx, L_xy and L_yy by name, those that do not vanish; for minimax problems f_xx and f_xy."""
        found: dict[Leaf, Tensor] = {}
        for axes in ("xx", "xy") if self.is_minimax else ("xx", "xy", "yy"):
            blocks = self.formulas.pairs(f"L_{axes}")
            leaves = self.formulas.lagrangian_leaves(axes)
            found |= {leaves[pair]: value for pair, value in blocks.items() if not value.is_zero}
        return found

    def _response_expression(self, matrix: sp.Basic) -> Any:
        if (divided := self._divided_response()) is not None:
            return self._sympy(divided)
        (x,), (y,) = self.model.x, self.model.y
        mixed = self._sympy(scaled(self.model.block("g_xy")[x, y], -1))
        return _product(sp.Inverse(matrix), mixed) if not x.dims else _product(mixed, sp.Inverse(matrix))

    @cached_property
    def _joint(self) -> dict[Any, Any]:
        return matrix_formulas(*self._joint_sizes)

    @cached_property
    def _joint_sizes(self) -> tuple[Any, Any]:
        """How many numbers x and y are, laid end to end."""
        d, n = (
            sp.Add(*(sp.Mul(*(self._sympy_size(dim) for dim in leaf.dims)) for leaf in group))
            for group in (self.model.x, self.model.y)
        )
        return d, n

    def _sympy_size(self, dim: str) -> sp.Expr:
        return self._sympy(Tensor.leaf(Leaf("_", (dim,), "data"))).shape[0]

    # ---- for readers

    def text(self) -> str:
        """A page that a person reads: the lower level, Phi, its gradient and its Hessian, each with its terms."""
        return "\n".join(array_text_lines(self))

    def latex(self, form: Form = "auto") -> str:
        """LaTeX (amsmath): the formulas, the same with the named terms under braces, or those of every problem.

        "problem" is f and g themselves.
        """
        if form == "blocks":
            from bilevel_sym.symbolic.display import latex_blocks

            return latex_blocks(self)  # type: ignore[arg-type]
        forms = {
            "auto": array_latex,
            "entries": array_latex,
            "terms": array_latex_terms,
            "problem": array_latex_problem,
        }
        if form not in forms:
            raise InvalidArgument(
                f"no LaTeX of form={form!r}", hint="form: 'auto', 'entries', 'terms', 'blocks' or 'problem'"
            )
        return "\\begin{aligned}\n" + " \\\\\n".join(forms[form](self)) + "\n\\end{aligned}"

    def source(self, language: str = "numpy") -> str:
        """Readable Python that runs alone: "numpy", "jax" or "torch"."""
        from bilevel_sym.symbolic.array_source import array_source

        return array_source(
            self.model, language, self.dimensions, name=self.name, is_minimax=self.is_minimax,
            closed_form=self.try_closed_form,
        )  # fmt: skip

    def record(self) -> dict[str, Any]:
        """Texts for programs, as ``--format json`` prints them; entry by entry nothing is written out."""
        solves = self.closed.solves
        return {
            "schema": "bilevel-sym/derivation/1",
            "name": self.name,
            "x": [leaf.name for leaf in self.model.x],
            "y": [leaf.name for leaf in self.model.y],
            "closed_form": self.is_closed_form,
            "method": self.method,
            "kinks": [kink.record() for kink in self.kinks],
            "y_star": None if solves is None else [solve_text(s, self.matrix_name(y)) for y, s in solves.items()],
            "auxiliaries": self.auxiliary_texts,
            "phi": to_text(self.model.f),
        } | dict.fromkeys(("grad_phi", "hess_phi", "terms"))

    def _repr_latex_(self) -> str:
        return f"$$\n{self.latex()}\n$$"

    def __repr__(self) -> str:
        named = "" if self.name is None else f"{self.name}, "
        shapes = ", ".join(_shape(leaf) for leaf in (*self.model.x, *self.model.y))
        return f"<ArrayDerivation {named}{shapes}>"


def _shape(leaf: Leaf) -> str:
    return f"{leaf.name}[{', '.join(leaf.dims)}]" if leaf.dims else leaf.name


def _by_name(values: Mapping[tuple[Leaf, ...], Any]) -> Any:
    """The value where there is one; else by the name of the array, or the names of the arrays."""
    if len(values) == 1:
        return next(iter(values.values()))
    return {
        leaves[0].name if len(leaves) == 1 else tuple(leaf.name for leaf in leaves): value
        for leaves, value in values.items()
    }


def _product(*factors: Any) -> Any:
    """With numbers in front."""
    flat = [part for f in factors for part in (f.args if isinstance(f, sp.MatMul) else (f,))]
    numbers = [part for part in flat if not getattr(part, "is_Matrix", False)]
    matrices = [part for part in flat if getattr(part, "is_Matrix", False)]
    return sp.MatMul(*([sp.Mul(*numbers)] if numbers else []), *matrices)
