"""The derivatives of Phi on the tape, with v, W = dy_dx^T and V = dv/dx as inputs, so that products stay factored.

The Lagrangian L = f - v^T g_y is a function of (x, y, v), linear in v. As x moves along a, (x, y*, v*) moves along
a column of Z = [I; W; V], and by the 2n+1 rule no second derivative of y* or v* is needed for the third of Phi:

    D^3 Phi[a, b, c] = D^3 L[Za, Zb, Zc]

Let u_a and u_ab be the first and second derivatives of a node of the graph along columns of Z, and bar u the
derivative of L by that node. Then D^3 L[Za, Zb, Zc] is the sum, over the three ways to split (ab, c), of

    bar (phi''' u_a u_b/3 + phi'' u_ab) u_c  for nodes phi(u),     bar (q_ab r_c + r_ab q_c)  for products q r

which is a product of two matrices: rows (ab), columns c, summed over the nodes. That costs a fraction of all third
derivatives one by one. This writing of Hess Phi is independent of ``implicit.second_order`` on purpose: in intervals,
products of whole blocks with W would be wider.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import cached_property
from itertools import combinations_with_replacement as multisets
from typing import TYPE_CHECKING

from flint import fmpq

from bilevel_sym import BilevelProblem
from bilevel_sym.arithmetic.pieces.patterns import PARTS
from bilevel_sym.graph.autodiff import adjoints, directional, gradient, hessian, tangents
from bilevel_sym.graph.nodes import ONE_FORM, ZERO_FORM, Graph, LinearForm, total
from bilevel_sym.graph.program import Program, build
from bilevel_sym.graph.rewriting import rewritten
from verify.enclosures.ridges import itself

if TYPE_CHECKING:
    from bilevel_sym.arithmetic.pieces.seams import Seams

Block = tuple[tuple[int, ...], list[LinearForm]]
Seeds = Mapping[int, Mapping[int, LinearForm]]  # variable -> direction -> how it moves
Pair = tuple[int, int]
LINEAR = ("var", "lin", "select", "min", "max", "sign", "lt", "le", "pi")  # no second derivative of their own


class PhiFormulas:
    """f and g on a graph of their own, in the variables x, y, then v, then W, then V.

    Blocks: the derivatives of f and g by name; "L_x" is grad Phi; "hess" holds Hess Phi for indices a <= b;
    "adjoint_change" is L_yx + L_yy W, which V solves for; "outer" and "inner" are the two matrices of D^3 Phi.

    >>> formulas = PhiFormulas(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y"))
    >>> formulas.program(("hess",)).outputs["hess"].shape, formulas.active
    ((1,), (0,))
    """

    def __init__(self, problem: BilevelProblem) -> None:
        d, n = problem.d, problem.n
        self.d, self.n = d, n
        seams = None if problem.tape.patterns is None else problem.tape.patterns.seams
        count = 0 if seams is None else 2 * len(seams.edges)
        self.graph = Graph(d + 2 * n + 2 * n * d + count)
        self.x, self.y, self.v = range(d), range(d, d + n), range(d + n, d + 2 * n)
        start = d + 2 * n
        self.W, self.V = range(start, start + n * d), range(start + n * d, start + 2 * n * d)
        self.switches = range(start + 2 * n * d, start + 2 * n * d + count)
        self._model = problem.tape
        self.f, self.g = self._functions(seams)

    def _functions(self, seams: Seams | None) -> list[LinearForm]:
        """f and g on this graph, with the switches of their seams, if there are some, as further variables."""
        graph, functions = self._model.graph, [self._model.f, self._model.g]
        places = {variable: variable for variable in (*self.x, *self.y)}
        if seams is not None:
            graph, functions = seams.graph, [seams.functions[PARTS.index((function, ""))] for function in "fg"]
            places |= {seams.first + k: switch for k, switch in enumerate(self.switches)}
        return rewritten(
            graph, functions, self.graph,
            lambda node, _: self.graph.variables[places[node]] if graph.op[node] == "var" else None,
        )  # fmt: skip

    @property
    def active(self) -> tuple[int, ...]:
        """The variables of x that occur in f or g."""
        model, support = self._model, 0
        for node in (*model.f.terms, *model.g.terms):
            support |= model.graph.support[node]
        return tuple(i for i, x in enumerate(self.x) if support >> x & 1)

    def program(self, names: Sequence[str]) -> Program:
        """The program of these blocks; its stages are (x, y) and the switches, v, W and V."""
        blocks = {name: self._block(name) for name in names}
        return build(self.graph, [(*self.x, *self.y, *self.switches), self.v, self.W, self.V], blocks)

    def _block(self, name: str) -> Block:
        d, n = self.d, self.n
        match name:
            case "f" | "g":
                return (), [self.f if name == "f" else self.g]
            case "f_x" | "f_y":
                axis = self.x if name == "f_x" else self.y
                return (len(axis),), gradient(self.graph, self.f, axis)
            case "g_y":
                return (n,), self._g_y
            case "g_yy":
                triangle = hessian(self.graph, self.g, self.y)
                return (n, n), [triangle[max(i, j)][min(i, j)] for i in range(n) for j in range(n)]
            case "g_xy":
                moved = tangents(self.graph, self._g_y, {x: {k: ONE_FORM} for k, x in enumerate(self.x)})
                return (d, n), [moved[j].get(i, ZERO_FORM) for i in range(d) for j in range(n)]
            case "L_x":
                return (d,), gradient(self.graph, self.lagrangian, self.x)
            case "adjoint_change":
                moved = tangents(self.graph, gradient(self.graph, self.lagrangian, self.y), self._columns)
                return (n, d), [row.get(a, ZERO_FORM) for row in moved for a in range(d)]
            case "hess":
                return (d * (d + 1) // 2,), _Contraction(self.graph, self.lagrangian, d, self._columns).second()
        return self._factor(name)

    @cached_property
    def _g_y(self) -> list[LinearForm]:
        return gradient(self.graph, self.g, self.y)

    @cached_property
    def lagrangian(self) -> LinearForm:
        """f - v^T g_y."""
        along = {y: self.graph.variables[v] for y, v in zip(self.y, self.v, strict=True)}
        return self.f - directional(self.graph, self.g, along)

    def _moving(self, variables: Sequence[int], table: Sequence[int]) -> dict[int, dict[int, LinearForm]]:
        """Variable k moves along direction a by the entry (k, a) of a table of variables."""
        entry = self.graph.variables
        return {v: {a: entry[table[k * self.d + a]] for a in range(self.d)} for k, v in enumerate(variables)}

    @cached_property
    def _columns(self) -> dict[int, dict[int, LinearForm]]:
        """The columns of [I; W], v at rest."""
        return {x: {a: ONE_FORM} for a, x in enumerate(self.x)} | self._moving(self.y, self.W)

    @cached_property
    def _factors(self) -> tuple[list[list[LinearForm]], list[list[LinearForm]]]:
        return _Contraction(self.graph, self.lagrangian, self.d, self._columns | self._moving(self.v, self.V)).third()

    def _factor(self, name: str) -> Block:
        rows = self._factors[0 if name == "outer" else 1]
        width = self.d * (self.d + 1) // 2 if name == "outer" else self.d
        return (len(rows), width), [form for row in rows for form in row]


class _Contraction:
    """The second and third derivatives of a form along columns, node by node."""

    def __init__(self, graph: Graph, form: LinearForm, d: int, seeds: Seeds) -> None:
        self.graph, self.form, self.d = graph, form, d
        self.pairs: list[Pair] = list(multisets(range(d), 2))
        wanted = sum(1 << v for v in seeds)
        self.nodes = graph.reachable(form.terms, support=wanted)
        self.bar = adjoints(graph, form, wanted)
        self.u: dict[int, dict[int, LinearForm]] = {}
        for node in self.nodes:
            self.u[node] = dict(seeds[node]) if graph.op[node] == "var" else self._first(node)
        self.local = {
            node: _local_derivatives(graph, node)
            for node in self.nodes
            if graph.op[node] != "mul" and graph.op[node] not in LINEAR
        }

    def _times(self, one: LinearForm, other: LinearForm) -> LinearForm:
        """The product; where one is cut off by a switch, the other is too: it may be infinite beyond."""
        return self.graph.mul(one, other, guarded=True)

    def _slope(self, node: int, a: int) -> LinearForm:
        return self.u.get(node, {}).get(a, ZERO_FORM)

    def _first(self, node: int) -> dict[int, LinearForm]:
        """How the node moves along each column."""
        moved = {a: self._chain(node, [self._slope(arg, a) for arg in self.graph.args[node]]) for a in range(self.d)}
        return {a: self._as_node(form) for a, form in moved.items() if _is_something(form)}

    def _as_node(self, form: LinearForm) -> LinearForm:
        """One node for the whole form: products of such have no coefficients of their own, which would cost a step."""
        return form if form.is_constant else itself(self.graph.node_of(form))

    def _chain(self, node: int, moves: Sequence[LinearForm]) -> LinearForm:
        """The derivative of the node as its arguments move."""
        graph, args = self.graph, self.graph.args[node]
        match graph.op[node]:
            case "lin":
                return total(m.scaled(c) for m, c in zip(moves, graph.linear[node][1], strict=True))
            case "mul":
                q, r = (itself(arg) for arg in args)
                return total([self._times(moves[0], r), self._times(q, moves[1])])
            case "select":
                return graph.apply("select", itself(args[0]), moves[1], moves[2])
            case "min" | "max":
                difference = itself(args[0]) - itself(args[1])
                test = graph.apply("le", difference if graph.op[node] == "min" else -difference)
                return graph.apply("select", test, *moves)
            case "sign" | "lt" | "le":
                return ZERO_FORM
        return self._times(_local_derivatives(graph, node, 1)[0], moves[0])

    def second(self) -> list[LinearForm]:
        """D^2 of the form along the pairs of columns: bar phi'' u_a u_b, and bar (q_a r_b + r_a q_b)."""
        sums: list[list[LinearForm]] = [[] for _ in self.pairs]
        for node in self.nodes:
            bar = self.bar.get(node, ZERO_FORM)
            for k, bent in enumerate(self._bends(node)):
                sums[k].append(self._times(bar, bent))
        return [total(parts) for parts in sums]

    def _bends(self, node: int) -> list[LinearForm]:
        """What a node adds to its second derivatives beyond those of its arguments; nothing where it is linear."""
        graph, args = self.graph, self.graph.args[node]
        if graph.op[node] == "mul":
            q, r = args
            return [
                total(
                    [
                        self._times(self._slope(q, a), self._slope(r, b)),
                        self._times(self._slope(r, a), self._slope(q, b)),
                    ]
                )
                for a, b in self.pairs
            ]
        if node not in self.local:
            return []
        phi2 = self.local[node][1]
        return [self._times(phi2, square) for square in self._squares(args[0])]

    def _squares(self, node: int) -> list[LinearForm]:
        return [self._times(self._slope(node, a), self._slope(node, b)) for a, b in self.pairs]

    def third(self) -> tuple[list[list[LinearForm]], list[list[LinearForm]]]:
        """Rows (ab) and c of the sum over nodes that makes D^3, once it is added up over the three splits."""
        graph, bends = self.graph, self._second_tangents()
        outer: list[list[LinearForm]] = []
        inner: list[list[LinearForm]] = []

        def add(bar: LinearForm, rows: Sequence[LinearForm], slopes: Sequence[LinearForm]) -> None:
            weighted = [self._times(self._as_node(bar), self._as_node(row)) for row in rows]
            if any(map(_is_something, weighted)) and any(map(_is_something, slopes)):
                outer.append(weighted)
                inner.append(list(slopes))

        nothing = [ZERO_FORM] * len(self.pairs)
        for node in self.nodes:
            bar, args = self.bar.get(node, ZERO_FORM), self.graph.args[node]
            if graph.op[node] == "mul":
                for one, other in (args, args[::-1]):
                    add(bar, bends.get(one, nothing), [self._slope(other, c) for c in range(self.d)])
            elif node in self.local:
                _, phi2, phi3 = self.local[node]
                slopes = [self._slope(args[0], c) for c in range(self.d)]
                # the weight goes to the coefficient first: one product for each pair
                add(self._times(bar, phi3.scaled(fmpq(1, 3))), self._squares(args[0]), slopes)
                add(self._times(bar, phi2), bends.get(args[0], nothing), slopes)
        return outer, inner

    def _second_tangents(self) -> dict[int, list[LinearForm]]:
        """u_ab for all nodes; variables move straight."""
        found: dict[int, list[LinearForm]] = {}
        nothing = [ZERO_FORM] * len(self.pairs)
        for node in self.nodes:
            if self.graph.op[node] == "var":
                continue
            moves = [found.get(arg, nothing) for arg in self.graph.args[node]]
            carried = [self._chain(node, [move[k] for move in moves]) for k in range(len(self.pairs))]
            own = self._bends(node) or nothing
            found[node] = [total(both) for both in zip(carried, own, strict=True)]
        return found


def _is_something(form: LinearForm) -> bool:
    return bool(form.terms) or bool(form.constant)


def _local_derivatives(graph: Graph, node: int, order: int = 3) -> list[LinearForm]:
    """phi', phi'', phi''' of a node phi(u) by u, as forms: made on a graph of one variable, then carried over."""
    op, parameter = graph.op[node], graph.parameter[node]
    small = Graph(1)
    (t,) = small.variables
    form = small.power(t, *parameter) if op in ("ipow", "rpow") else small.apply(op, t)
    argument, derivatives = itself(graph.args[node][0]), []
    for _ in range(order):
        form = directional(small, form, {0: ONE_FORM})
        derivatives += rewritten(small, [form], graph, lambda k, _: None if k else argument)
    return derivatives
