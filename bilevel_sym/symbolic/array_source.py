"""The formulas of an array problem as readable Python that runs alone, in NumPy, JAX or PyTorch.

Functions take the arrays of x and y by their names, and the data as one tuple of arrays. Derivatives have the shape of
what they are derived by: that of x, of x then y. Several arrays give tuples. Sizes are read off the arrays.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from bilevel_sym.arrays.algebra import contract
from bilevel_sym.arrays.normal import added
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.implicit.array_model import ArrayModel
from bilevel_sym.symbolic.array_closed_form import ArrayClosedForm, solve_quadratic
from bilevel_sym.symbolic.array_formulas import ArrayFormulas, ByPair
from bilevel_sym.symbolic.source_parts.array_lower import LowerLevel
from bilevel_sym.symbolic.source_parts.array_scope import ModuleScope
from bilevel_sym.symbolic.source_parts.templates import ARRAY_TYPE, check_language, joined

Pair = tuple[Leaf, Leaf]
Steps = list[tuple[Leaf, Tensor]]


def array_source(
    model: ArrayModel,
    language: str = "numpy",
    dimensions: Mapping[str, int | None] | None = None,
    *,
    name: str | None = None,
    is_minimax: bool = False,
    closed_form: bool = True,
) -> str:
    """The module as text.

    model: f and g
    language: "numpy", "jax" or "torch"
    dimensions: sizes that are known; needed where no array of x, and no data, has a dimension of y
    name: of the problem
    is_minimax: whether g = -f
    closed_form: whether y* is one solve where g is quadratic in y

    >>> from bilevel_sym.arrays.algebra import power, subtracted
    >>> x, y = Leaf("x", ("n",), "x"), Leaf("y", ("n",), "y")
    >>> g = contract([(power(subtracted(Tensor.leaf(y), Tensor.leaf(x)), 2), "i")], "")
    >>> module = {}
    >>> exec(array_source(ArrayModel(contract([(Tensor.leaf(y), "i")], ""), g, [x], [y])), module)
    >>> module["grad_phi"](module["np"].array([1.0, 2.0])).tolist()
    [1.0, 1.0]
    """
    formulas = ArrayFormulas(model, is_minimax=is_minimax)
    kept = (*model.v, *formulas.responses.values())
    scope = ModuleScope(model, check_language(language), dimensions or {}, kept)
    closed = solve_quadratic(model) if closed_form else ArrayClosedForm("not tried")
    return _Module(scope, formulas, LowerLevel(scope, model, closed)).text(name)


class _Module:
    """The functions of one module.

    - ``scope``: names and data.
    - ``formulas``: of the gradient and the Hessian.
    - ``lower``: the lower level.
    """

    def __init__(self, scope: ModuleScope, formulas: ArrayFormulas, lower: LowerLevel) -> None:
        self._scope, self._formulas, self._lower = scope, formulas, lower
        self._adjoint = () if formulas.is_minimax else formulas.model.v

    def text(self, name: str | None) -> str:
        """The whole module."""
        scope, model = self._scope, self._formulas.model
        xy = (*scope.x, *scope.y)
        functions = [*self._data_class(), scope.function("f", xy, [model.f]), scope.function("g", xy, [model.g])]
        functions += [self._block(block) for block in ("f_x", "f_y", "g_y", "g_xy")]
        functions += [*self._lower.matrices(), *self._lower.functions(adjoint=not self._formulas.is_minimax)]
        title = name if name and name.isidentifier() else "a problem"
        shapes = [
            f"{role}: {', '.join(f'{scope.name(leaf)} {scope.shape(leaf)}' for leaf in own)}"
            for role, own in (("x", scope.x), ("y", scope.y))
        ]
        doc = "\n".join([f"y*(x), Phi(x) and its derivatives for {title}.\n", *shapes, ""])
        return joined(scope.language, doc, scope.definitions, [*functions, *self._upper()])

    def _data_class(self) -> list[str]:
        scope = self._scope
        kind = ARRAY_TYPE[scope.language]
        fields = [f"    {scope.name(leaf)}: {kind}  # {scope.shape(leaf)}" for leaf in scope.data]
        return ["\n".join(["class Data(NamedTuple):", *fields])] if fields else []

    def _block(self, name: str) -> str:
        scope = self._scope
        nested = name == "g_xy" and len(scope.x) > 1 and len(scope.y) > 1
        outputs = list(self._formulas.model.block(name).values())
        return scope.function(name, (*scope.x, *scope.y), outputs, rows=len(scope.x) if nested else 1)

    # ---- the upper level ------------------------------------------------------------------------------------------

    def _upper(self) -> list[str]:
        scope, minimax = self._scope, self._formulas.is_minimax
        found = f"{scope.listed(scope.y)} = y_star({scope.arguments(scope.x)})"
        held = () if minimax else (f"{'*' * (len(scope.y) > 1)}v({scope.xy})",)
        ways = f"{'*' * (len(self._formulas.responses) > 1)}dy_dx({scope.xy})"
        values = {
            "phi": f"f({scope.xy})",
            "grad_phi": f"f_x({scope.xy})" if minimax else f"grad_L({scope.arguments(scope.x, scope.y, *held)})",
            "hess_phi": f"hess_L({scope.arguments(scope.x, scope.y, *held, ways)})",
        }
        doors = [
            scope.written(name, scope.arguments(scope.x), [found, f"return {value}"]) for name, value in values.items()
        ]
        return [*([] if minimax else [self._gradient()]), self._hessian(), *doors]

    def _gradient(self) -> str:
        scope = self._scope
        doc = "The gradient in x of L = f - v^T g_y, v held constant."
        arguments = (*scope.x, *scope.y, *self._adjoint)
        return scope.function("grad_L", arguments, list(self._formulas.gradient.values()), doc=doc)

    def _hessian(self) -> str:
        """L_xx + dy_dx L_yx + its transpose + dy_dx L_yy dy_dx^T; blocks that take work have names."""
        x, steps = self._scope.x, Steps()
        mixed = self._kept("xy", steps)
        cross = {(a, b): self._by_name(self._cross_name(a, b), (a, b), self._cross(a, b, mixed), steps)
                 for a in x for b in x}  # fmt: skip
        parts = {pair: [value, cross[pair]] for pair, value in self._formulas.pairs("L_xx").items()}
        if not self._formulas.is_minimax:
            lower = self._kept("yy", steps)
            for a, b in parts:
                parts[a, b] += [_turned(cross[b, a], b, a), *self._quadratic(a, b, lower)]
        outputs = [added(own, a.dims + b.dims) for (a, b), own in parts.items()]
        doc = f"The Hessian of Phi: that of {self._function_name} in x, with y moving along dy_dx."
        arguments = (*x, *self._scope.y, *self._adjoint, *self._formulas.responses.values())
        return self._scope.function("hess_L", arguments, outputs, steps=steps, rows=len(x), doc=doc)

    @property
    def _function_name(self) -> str:
        return "f" if self._formulas.is_minimax else "L"

    def _cross_name(self, a: Leaf, b: Leaf) -> str:
        return "cross" if len(self._scope.x) == 1 else f"cross_{self._scope.name(a)}_{self._scope.name(b)}"

    def _kept(self, axes: str, steps: Steps) -> ByPair:
        """Blocks of L; those whose entries are sums are computed once, under a name."""
        name, function = self._scope.name, self._function_name
        found = {}
        for (a, b), value in self._formulas.pairs(f"L_{axes}").items():
            own = f"{function}_{axes}" if self._formulas.is_single else f"{function}_{name(a)}_{name(b)}"
            found[a, b] = self._by_name(own, (a, b), value, steps) if any(t.dummies for t in value.terms) else value
        return found

    def _by_name(self, name: str, pair: Pair, value: Tensor, steps: Steps) -> Tensor:
        if value.is_zero:
            return value
        leaf = Leaf(self._scope.fresh(name), pair[0].dims + pair[1].dims, "direction", value.is_symmetric)
        steps.append((leaf, value))
        return Tensor.leaf(leaf)

    def _cross(self, a: Leaf, b: Leaf, mixed: ByPair) -> Tensor:
        """dy_dx times the transpose of a block of x and y."""
        out = [*_axes("a", a), *_axes("b", b)]
        products = (
            contract([self._way("a", a, "c", c), (mixed[b, c], [*_axes("b", b), *_axes("c", c)])], out)
            for c in self._scope.y
        )
        return added(products, a.dims + b.dims)

    def _quadratic(self, a: Leaf, b: Leaf, lower: ByPair) -> list[Tensor]:
        """dy_dx times a block of y times the transpose of dy_dx."""
        out = [*_axes("a", a), *_axes("b", b)]
        return [
            contract(
                [self._way("a", a, "c", c), (value, [*_axes("c", c), *_axes("e", e)]), self._way("b", b, "e", e)], out
            )
            for (c, e), value in lower.items()
        ]

    def _way(self, one: str, a: Leaf, two: str, c: Leaf) -> tuple[Tensor, Sequence[object]]:
        return Tensor.leaf(self._formulas.responses[a, c]), [*_axes(one, a), *_axes(two, c)]


def _axes(letter: str, leaf: Leaf) -> list[tuple[str, int]]:
    return [(letter, k) for k in range(len(leaf.dims))]


def _turned(block: Tensor, one: Leaf, two: Leaf) -> Tensor:
    """The transpose of a block of two arrays."""
    labels = [*_axes("one", one), *_axes("two", two)]
    return contract([(block, labels)], [*_axes("two", two), *_axes("one", one)])
