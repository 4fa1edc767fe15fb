"""The lower level of an array module: g_yy and solves with it, y*, v and dy_dx.

A right side has the axes of y behind any number of others. Where y has several arrays, right sides are tuples; where g
couples them, they are laid end to end for the solve.
"""

from __future__ import annotations

from bilevel_sym.arrays.tensor import Leaf
from bilevel_sym.graph.operations.record import LANGUAGES
from bilevel_sym.implicit.array_model import ArrayModel
from bilevel_sym.symbolic.array_closed_form import ArrayClosedForm, curvatures
from bilevel_sym.symbolic.source_parts.array_scope import ModuleScope, tuples
from bilevel_sym.symbolic.source_parts.templates import BLOCK, END_TO_END, NEWTON, ONE_STEP, SOLVE, filled

__all__ = ["LowerLevel"]

_DOCS = {
    "entries": "The diagonal of g_yy, in the shape of y.",
    "vector": "g_yy.",
    "columns": "The matrix that g_yy is on every column of y.",
    "rows": "The matrix that g_yy is on every row of y.",
    "operator": "g_yy, with the axes of y twice.",
}


class LowerLevel:
    """The functions of the lower level.

    - ``scope``: names and data.
    - ``model``: f and g.
    - ``closed``: whether, and how, y* is one solve.
    """

    def __init__(self, scope: ModuleScope, model: ArrayModel, closed: ArrayClosedForm) -> None:
        self._scope, self._model, self._closed = scope, model, closed
        self._structure = curvatures(model)
        self._single = len(model.y) == 1
        self._library = LANGUAGES[scope.language]

    # ---- g_yy -----------------------------------------------------------------------------------------------------

    def matrices(self) -> list[str]:
        """g_yy: by its structure for each array, or all of it end to end; and solves where there are several."""
        scope = self._scope
        if self._structure is None:
            return [self._joint_matrix(), self._joint_solve(), self._arrays()]
        found = [
            scope.function(self._matrix_name(leaf), (*scope.x, *scope.y), [own.tensor], doc=_DOCS[own.kind])
            for leaf, own in self._structure.items()
        ]
        return found if self._single else [*found, self._solve_each(), self._arrays()]

    def _matrix_name(self, leaf: Leaf) -> str:
        return "H" if self._single else f"H_{self._scope.name(leaf)}"

    def _joint_matrix(self) -> str:
        scope, y = self._scope, self._scope.y
        pairs = [(a, b) for a in y for b in y]
        blocks = self._model.block("g_yy")
        lines, texts = scope.formulas((*scope.x, *y), [blocks[pair] for pair in pairs])
        shaped = [
            f"{self._library}.reshape({text}, ({self._entries(a)}, {self._entries(b)}))"
            for text, (a, b) in zip(texts, pairs, strict=True)
        ]
        rows = "".join(f"\n        [{', '.join(shaped[k : k + len(y)])}]," for k in range(0, len(pairs), len(y)))
        call = "block" if scope.language in BLOCK else f"{self._library}.block"
        scope.definitions |= {"block": BLOCK[scope.language]} if scope.language in BLOCK else {}
        doc = f"g_yy, with the entries of {scope.listed(y)} laid end to end."
        return scope.written("H", scope.xy, [*lines, f"return {call}([{rows}\n    ])"], doc)

    def _entries(self, leaf: Leaf) -> str:
        """How many entries an array has that is at hand."""
        return " * ".join(f"{self._scope.name(leaf)}.shape[{k}]" for k in range(len(leaf.dims))) or "1"

    # ---- solves ---------------------------------------------------------------------------------------------------

    def solved(self, leaf: Leaf, right: str, matrix: str | None = None) -> str:
        """g_yy^-1 times a right side, for one array of y; both are texts that hold together."""
        assert self._structure is not None
        kind = self._structure[leaf].kind
        matrix = matrix or f"{self._matrix_name(leaf)}({self._scope.xy})"
        if kind == "entries":
            return f"{right} / {matrix}"
        self._scope.definitions["solve"] = SOLVE[self._scope.language]
        if kind == "columns":
            return f"solve({matrix}, {right}.mT).mT"
        if kind == "operator":
            return f"solve({matrix}.reshape({self._entries(leaf)}, -1), {right})"
        return f"solve({matrix}, {right})"

    def _solve_each(self) -> str:
        scope = self._scope
        rights = [f"right_{scope.name(leaf)}" for leaf in scope.y]
        values = [self.solved(leaf, right) for leaf, right in zip(scope.y, rights, strict=True)]
        body = [f"{', '.join(rights)} = right", f"return {tuples(values)}"]
        return scope.written("solve_H", self._with_right("right"), body, "g_yy^-1 times a right side for each array.")

    def _joint_solve(self) -> str:
        scope = self._scope
        scope.definitions["solve"] = SOLVE[scope.language]
        first, rank = scope.y[0], len(scope.y[0].dims)
        lead = "tensor(right[0]).dim()" if scope.language == "torch" else f"{self._library}.ndim(right[0])"
        behind = f"{lead} - {rank}" if first.dims else lead
        body = [f"flat = solve(H({scope.xy}), end_to_end(right, {behind}))", f"return {self._split('flat')}"]
        return scope.written("solve_H", self._with_right("right"), body, "g_yy^-1 times a right side for each array.")

    def _with_right(self, right: str) -> str:
        return self._scope.arguments(self._scope.x, self._scope.y, right)

    def _split(self, flat: str) -> str:
        return f"y_arrays({self._scope.arguments(flat, self._scope.x)})"

    def _arrays(self) -> str:
        """The arrays of y from their entries."""
        scope = self._scope
        scope.definitions["end_to_end"] = END_TO_END[scope.language]
        lines = scope.at_hand((), {dim for leaf in scope.y for dim in leaf.dims}, scope.x)
        parts, start = [], ""
        for leaf in scope.y:
            end = f"{start} + {scope.entries(leaf)}" if start else scope.entries(leaf)
            parts.append(f"    flat[..., {start}:{end}].reshape(lead + {scope.shape(leaf)}),")
            start = end
        body = [*lines, "lead = tuple(flat.shape[:-1])", "return (", *parts, ")"]
        doc = "The arrays of y, from their entries laid end to end along the last axis."
        return scope.written("y_arrays", scope.arguments("flat", scope.x), body, doc)

    # ---- y*, v and dy_dx --------------------------------------------------------------------------------------------

    def functions(self, *, adjoint: bool) -> list[str]:
        """y_star, v where it is wanted, and dy_dx."""
        return [self._y_star(), *([self._adjoint()] if adjoint else []), self._response()]

    def _y_star(self) -> str:
        scope, solves = self._scope, self._closed.solves
        doc = f"{self._closed.method[:1].upper()}{self._closed.method[1:]}."
        if solves is not None and self._single:
            ((leaf, solve),) = solves.items()
            if solve.value is not None:
                return scope.function("y_star", scope.x, [solve.value], doc=doc)
            lines, (matrix, right) = scope.formulas(scope.x, [solve.curvature.tensor, solve.right])
            held = right if right.isidentifier() or solve.curvature.kind != "columns" else f"({right})"
            return scope.written(
                "y_star", scope.arguments(scope.x), [*lines, f"return {self.solved(leaf, held, matrix)}"], doc
            )
        quadratic = self._closed.right_sides is not None
        return filled(ONE_STEP if quadratic else NEWTON[scope.language], self._calls())

    def _calls(self) -> dict[str, str]:
        """What the templates call."""
        scope = self._scope
        unknown = scope.name(scope.y[0]) if self._single else "flat"
        at = scope.arguments(scope.x, "{}" if self._single else f"*{self._split('{}')}")
        slope, solved, result = f"g_y({at})", "", "{}"
        if self._single:
            solved = self.solved(scope.y[0], "{}")
        else:
            own = scope.arguments(scope.x, f"*{self._split('flat')}", self._split("{}"))
            slope, solved, result = f"end_to_end({slope})", f"end_to_end(solve_H({own}))", self._split("{}")
        lines = scope.at_hand((), {dim for leaf in scope.y for dim in leaf.dims}, scope.x)
        return {
            "VALUE": f"g({at})", "SLOPE": slope, "SOLVED": solved, "RESULT": result, "Y": unknown,
            "ARGUMENTS": scope.arguments(scope.x), "SIZES": "".join(f"    {line}\n" for line in lines),
            "ZERO": scope.printer().call("zeros", self._zero_shape()),
        }  # fmt: skip

    def _zero_shape(self) -> str:
        y = self._scope.y
        return self._scope.shape(y[0]) if self._single else " + ".join(map(self._scope.entries, y))

    def _adjoint(self) -> str:
        scope, right = self._scope, f"f_y({self._scope.xy})"
        value = self.solved(scope.y[0], right) if self._single else f"solve_H({self._with_right(right)})"
        return scope.written("v", scope.xy, [f"return {value}"], "g_yy^-1 f_y.")

    def _response(self) -> str:
        """dy_dx for each array of x and of y: the axes of x, then those of y."""
        scope, mixed = self._scope, f"g_xy({self._scope.xy})"
        if not self._single:
            rows = mixed if len(scope.x) > 1 else f"({mixed},)"
            body = [f"return tuple(-part for right in {rows} for part in solve_H({self._with_right('right')}))"]
        elif len(scope.x) == 1:
            body = [f"return {self._negative(mixed)}"]
        else:
            matrix = f"{self._matrix_name(scope.y[0])}({scope.xy})"
            body = [f"matrix = {matrix}", f"return tuple({self._negative('right', 'matrix')} for right in {mixed})"]
        return scope.written("dy_dx", scope.xy, body, "The derivative of y*: -g_yy^-1 g_yx.")

    def _negative(self, right: str, matrix: str | None = None) -> str:
        return f"-{self.solved(self._scope.y[0], right, matrix)}"
