"""Bilevel solvers inside the compiled interpreter (extra ``fast``): many trajectories, or one, without leaving it.

A trajectory has the same bits alone, in any ensemble, in any order and however its steps are cut into calls.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain, zip_longest
from typing import Any, Literal

import numpy as np
from flint import fmpq
from numba.core import config
from numpy.typing import NDArray

from bilevel_sym.arithmetic.arrays import CONSTANT_BITS
from bilevel_sym.arithmetic.compiled.instructions import LONG_ROW, Code, Group, Integers, encode, group_of
from bilevel_sym.arithmetic.compiled.vectors import WIDTH
from bilevel_sym.arithmetic.scalars import BALLS, constant_values
from bilevel_sym.graph.nodes import Parameter
from bilevel_sym.graph.program import Row
from bilevel_sym.implicit.model import Model
from bilevel_sym.solvers.compiled import trajectories
from bilevel_sym.solvers.compiled.trajectories import BREAKDOWN, NOT_FINITE, OUT_OF_NOISE, RUNNING
from bilevel_sym.typing import Bools, Floats

__all__ = ["BREAKDOWN", "NOT_FINITE", "OUT_OF_NOISE", "RUNNING", "CompiledLoop", "LoopState", "Record", "Rule"]

FEW_TRAJECTORIES = 5  # trajectories that are run one by one rather than in lanes
OUTPUTS = {"gdmax": ("g_y", "f", "f_x"), "aid": ("g_y", "f", "f_x", "f_y", "g_yy_v", "g_xy_v")}
ITERATION_OPERATIONS = 256  # operations that an iteration costs besides its program
PRODUCT_READERS = 4  # readers that make a place worth a matrix product


@dataclass(frozen=True)
class LoopState:
    """Where S trajectories stand. The arrays are C-contiguous, float64 unless said, and advanced in place.

    x (S, d), y (S, n), v (S, n): the iterates; v is left alone by "gdmax".
    since (S,) int64: iterations since the last perturbation. age (S,) int64: iterations in all.
    status (S,) int8: RUNNING, NOT_FINITE, BREAKDOWN (conjugate gradients met a matrix that is not positive definite),
    or OUT_OF_NOISE (new noise, ``used`` set to 0, and the trajectory goes on as if nothing had happened).
    done (S,) int64: iterations performed in the last call.
    grad (S, d), phi (S,): the last estimates. best_phi (S,), best_x (S, d), best_y (S, n), best_k (S,) int64: the
    lowest phi seen, where, and in which iteration by age.
    noise (S, B, d): perturbations drawn beforehand; used (S,) int64: how many of them are spent.

    >>> state = LoopState.start(np.zeros((2, 1)), np.zeros((2, 3)))
    >>> state.v.shape, state.status.tolist()
    ((2, 3), [0, 0])
    """

    x: Floats
    y: Floats
    v: Floats
    since: Integers
    status: NDArray[np.int8]
    done: Integers
    grad: Floats
    phi: Floats
    best_phi: Floats
    best_x: Floats
    best_y: Floats
    best_k: Integers
    age: Integers
    noise: Floats
    used: Integers

    @classmethod
    def start(
        cls, x: Floats, y: Floats, v: Floats | None = None, *, since: int = 0, noise: Floats | None = None
    ) -> LoopState:
        """The beginning: copies of x (S, d), y (S, n) and v (S, n; zero by default); nothing estimated yet.

        ``since`` is the number of iterations that are taken to have passed since a perturbation.
        """
        count, d = x.shape
        given = (x, y, np.zeros(y.shape) if v is None else v, np.zeros((count, 0, d)) if noise is None else noise)
        x, y, v, noise = (np.array(part, dtype=np.float64, order="C") for part in given)
        none = {name: np.zeros(count, dtype=np.int64) for name in ("done", "best_k", "age", "used")}
        return cls(
            x=x, y=y, v=v, since=np.full(count, since, dtype=np.int64), status=np.zeros(count, dtype=np.int8),
            grad=np.full((count, d), np.nan), phi=np.full(count, np.nan), best_phi=np.full(count, np.inf),
            best_x=x.copy(), best_y=y.copy(), noise=noise, **none,
        )  # fmt: skip


@dataclass(frozen=True)
class Rule:
    """The step, and when to perturb: |grad| <= threshold, and more than T_escape iterations since the last time.

    A perturbation is x -= eta * noise; with ``stale`` the gradient step of the same iteration, with the gradient of
    before, is taken as well. A negative threshold never perturbs.

    >>> Rule(eta=0.1).threshold
    -1.0
    """

    eta: float
    threshold: float = -1.0
    T_escape: int = 0
    stale: bool = False


@dataclass(frozen=True)
class Record:
    """What was seen in each iteration: x before the move, y^D, v^N, the estimates, and whether x was perturbed.

    xs (S, steps, d), ys and vs (S, steps, n), grads (S, steps, d), phis (S, steps), perturbed (S, steps) bool.

    >>> Record.empty(2, 10, 3, 1).xs.shape
    (2, 10, 3)
    """

    xs: Floats
    ys: Floats
    vs: Floats
    grads: Floats
    phis: Floats
    perturbed: Bools

    @classmethod
    def empty(cls, count: int, steps: int, d: int, n: int) -> Record:
        """Room for so many trajectories and steps; what is not reached is NaN and False."""
        xs, ys, vs, grads = (np.full((count, steps, width), np.nan) for width in (d, n, n, d))
        return cls(xs, ys, vs, grads, np.full((count, steps), np.nan), np.zeros((count, steps), dtype=np.bool_))


class CompiledLoop:
    """The iteration of a bilevel solver, compiled. One iteration of one trajectory:

    1. D times y -= tau g_y(x, y).
    2. "aid": N steps of conjugate gradients for g_yy v = f_y from the v that is there; grad = f_x - g_xy v.
       "gdmax": grad = f_x.
    3. phi = f(x, y). If anything is not finite, or conjugate gradients broke down, the trajectory ends with that status
       and stands where it stood before the iteration.
    4. x is perturbed or moved against the gradient, as the ``Rule`` says.

    A loop may be shared by threads: what changes lives in the state.

    >>> import sympy as sp
    >>> x, y = sp.symbols("x y")
    >>> loop = CompiledLoop(Model(x*y, (y - x)**2/2, [x], [y]), kind="aid", D=1, N=1, tau=1.0)
    >>> state = LoopState.start(np.array([[1.0]]), np.array([[0.0]]))
    >>> loop.advance(state, 2, Rule(eta=0.25))
    >>> state.x, state.grad, state.done
    (array([[0.25]]), array([[1.]]), array([2]))
    """

    def __init__(self, model: Model, *, kind: Literal["aid", "gdmax"], D: int, N: int = 0, tau: float) -> None:
        self.d, self.n = model.d, model.n
        self._tau = float(tau)
        self._plan = _Plan(model, kind, self._tau)
        self._method = trajectories.Method(model.d, model.n, int(D), int(N), kind == "aid")

    @property
    def work(self) -> int:
        """About how much one iteration of one trajectory costs, in operations: places of the table, each phase once."""
        return ITERATION_OPERATIONS + self._plan.size * int(self._method.D + self._method.N + 2)

    def advance(self, state: LoopState, steps: int, rule: Rule, record: Record | None = None) -> None:
        """Up to ``steps`` iterations of every trajectory that is running or waits for noise that has come."""
        count = len(state.x)
        state.done[:] = 0
        order = np.flatnonzero((state.status == RUNNING) | (state.status == OUT_OF_NOISE)).astype(np.int64)
        seen = record if record is not None else Record.empty(0, 0, self.d, self.n)
        self._check(state, seen if record is not None else None, count, steps)
        # where a vector of lanes may go to a vector library, one lane alone is not the same as one of many
        few = 0 if getattr(config, "USING_SVML", False) else FEW_TRAJECTORIES
        rest = len(order) % WIDTH
        alone = order[len(order) - rest :] if rest <= few else order[:0]
        if steps <= 0:
            return
        for active, wide in ((order[: len(order) - len(alone)], True), (alone, False)):
            if len(active):
                self._advance(state, steps, rule, record is not None, seen, active, wide)

    def _advance(
        self, state: LoopState, steps: int, rule: Rule, recording: bool, seen: Record, active: Integers, wide: bool
    ) -> None:
        tape = self._plan.lanes if wide else self._plan.one_point
        owner = np.empty(WIDTH if wide else 1, dtype=np.int64)
        call: Any = trajectories.advance
        call(
            tape, self._method, self._plan.rows, self._table(wide), owner, active, trajectories.State(**vars(state)),
            int(steps),
            trajectories.Steps(float(rule.eta), float(rule.threshold), float(rule.T_escape), bool(rule.stale)),
            trajectories.Seen(**vars(seen)), recording,
        )  # fmt: skip

    def _table(self, wide: bool) -> Floats:
        """Values of the program, then the loop's own rows; aligned, so that no vector straddles two lines of cache."""
        rows, lanes = self._plan.rows.own + trajectories.OWN_ROWS, WIDTH if wide else 1
        space = np.zeros(rows * lanes + 8)
        start = (-space.ctypes.data // 8) % 8
        flat = space[start : start + rows * lanes]
        flat.reshape(rows, lanes)[self._plan.constant_places] = self._plan.constants[:, None]
        return flat.reshape(rows, 1, lanes) if wide else flat

    def _check(self, state: LoopState, record: Record | None, count: int, steps: int) -> None:
        """Compiled code does not look where it writes."""
        rows_x, rows_y, one = (count, self.d), (count, self.n), (count,)
        shapes: dict[str, tuple[int, ...]] = {"x": rows_x, "y": rows_y, "v": rows_y, "grad": rows_x}
        shapes |= {"best_x": rows_x, "best_y": rows_y, "noise": (count, state.noise.shape[1], self.d)}
        shapes |= dict.fromkeys(("since", "status", "done", "phi", "best_phi", "best_k", "age", "used"), one)
        for name, shape in shapes.items():
            _check(name, getattr(state, name), shape)
        if record is not None:
            wide = {"xs": self.d, "ys": self.n, "vs": self.n, "grads": self.d}
            for name, array in vars(record).items():
                _check(name, array, (count, steps, wide[name]) if name in wide else (count, steps))


INTEGERS = frozenset({"since", "done", "best_k", "age", "used"})


def _check(name: str, array: NDArray[Any], shape: tuple[int, ...]) -> None:
    kind = {"status": "int8", "perturbed": "bool"}.get(name, "int64" if name in INTEGERS else "float64")
    if array.shape != shape or array.dtype != kind or not array.flags.carray:
        raise ValueError(
            f"expected {name} to be writeable, C-contiguous, {kind} and of shape {shape}, but got "
            f"{name}.shape={array.shape}, {name}.dtype={array.dtype}; make states by LoopState.start"
        )


# ---- the program of a loop -------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Node:
    """One result: its operation, and what it reads; see ``Group``."""

    op: str
    parameter: Parameter
    reads: Any

    @property
    def sources(self) -> Iterator[int]:
        if self.op == "lin":
            return iter(self.reads.places)
        if self.op == "sum":
            products, row = self.reads
            return chain((place for pair, _ in products for place in pair), row.places)
        return iter(self.reads)


FIRST, LOWER, OTHERS, HESSIAN, JACOBIAN = range(5)  # the phases of a plan
X, Y, V = 0, 1, 2  # the stages of a plan: what x decides, what y decides, what v decides


class _Plan:
    """The blocks that a loop needs, in phases; each rewritten so that little is left to be done often.

    Products that only one sum reads become part of it. In phases that run many times per iteration, what a sum adds up
    of an earlier stage is added up there, and so are the factors of an earlier stage that one place is multiplied with.
    The lower level's step y - tau g_y is such a sum, from y into a second set of places for y and, by the same program
    with the two exchanged, back.
    """

    def __init__(self, model: Model, kind: str, tau: float) -> None:
        program = model.program(OUTPUTS[kind])
        d, n = model.d, model.n
        self._nodes = {to: node for steps in program.stages for to, node in _nodes(map(group_of, steps))}
        fixed = dict(constant_values(program, BALLS, CONSTANT_BITS))
        y = program.inputs[0][d:]
        self._stage = dict.fromkeys((0, *fixed, *program.inputs[0][:d]), X)
        self._stage |= dict.fromkeys(y, Y) | dict.fromkeys(program.inputs[1], V)
        for to, node in self._nodes.items():
            self._stage[to] = max((self._stage[k] for k in node.sources), default=X)
        self._fresh, self._known = program.size, dict[Row, int]()
        ends = {name: list(output.places) for name, output in program.outputs.items()}
        moved = [self._moved(place, k, tau) for place, k in zip(ends.pop("g_y"), y, strict=True)]
        jacobian = self._phase(V, ends.get("g_xy_v", []))
        hessian = self._phase(V, ends.get("g_yy_v", []), often=True)
        wanted = [place for name in ("f", "f_x", "f_y") for place in ends.get(name, [])]
        later = [k for phase in (hessian, jacobian) for node in phase.values() for k in node.sources]
        others = self._phase(Y, [*wanted, *later, *chain(*ends.values())])
        lower = self._phase(Y, moved, often=True)
        demanded = [k for phase in (others, lower, hessian, jacobian) for node in phase.values() for k in node.sources]
        first = self._phase(X, [*demanded, *chain(*ends.values())])
        phases = [list(_scheduled(phase)) for phase in (first, lower, others, hessian, jacobian)]
        self._number([0, *program.inputs[0], *program.inputs[1], *moved, *sorted(fixed)], phases)
        place = self.place
        # after the program: v, r, grad; y, v and grad of before; the best x and y; single rows
        blocks = np.cumsum([self.size, n, n, d, 2 * n + d, d + n]).tolist()
        self.rows = trajectories.Rows(1, 1 + d, 1 + d + 2 * n, 1 + d + n, *blocks)
        self.constant_places = np.array([0, *(place[k] for k in sorted(fixed))], dtype=np.int64)
        self.constants = np.array([1.0, *(float(fixed[k]) for k in sorted(fixed))])
        outputs = np.array([place[k] for name in OUTPUTS["aid"] for k in ends.get(name, [])], dtype=np.int64)
        swapped = place | {a: place[b] for a, b in (*zip(y, moved, strict=True), *zip(moved, y, strict=True))}
        codes = [[_placed(group, place) for group in phase] for phase in phases]
        codes.insert(2, [_placed(group, swapped) for group in phases[LOWER]])
        self.lanes = trajectories.Tape(*_join([encode(phase) for phase in codes]), outputs)
        self.one_point = trajectories.Tape(*_join([encode(phase, one_point=True) for phase in codes]), outputs)

    def _new(self, row: Row) -> int:
        """The place of a sum, which is made if there is none."""
        if row not in self._known:
            place = self._known[row] = self._fresh
            self._fresh += 1
            self._nodes[place] = _Node("lin", (), row)
            self._stage[place] = max(self._stage[k] for k in row.places)
        return self._known[row]

    def _moved(self, slope: int, y: int, tau: float) -> int:
        """The place of y - tau * slope: a fresh one, as it is y's other place."""
        step = -fmpq(*float(tau).as_integer_ratio())
        node = self._nodes.get(slope)
        terms = dict(node.reads) if node is not None and node.op == "lin" else {slope: fmpq(1)}
        row = {place: c * step for place, c in terms.items()}
        total = row.pop(y, fmpq(0)) + 1
        place, self._fresh = self._fresh, self._fresh + 1
        # y last: the smaller terms are added up before they meet it
        self._nodes[place] = _Node("lin", (), Row.of((*row.items(), (y, total))))
        self._stage[place] = Y
        return place

    def _phase(self, stage: int, ends: Sequence[int], *, often: bool = False) -> dict[int, _Node]:
        """The nodes of one stage that some places need, sources first, rewritten."""
        active = self._needed(self._nodes, stage, ends)
        uses = Counter(k for place in active for k in self._nodes[place].sources) + Counter(set(ends))
        written = {place: self._rewritten(self._nodes[place], stage, uses, often) for place in active}
        needed = self._needed(written, stage, ends)
        return self._shared({place: written[place] for place in needed})

    def _needed(self, nodes: Mapping[int, _Node], stage: int, ends: Iterable[int]) -> list[int]:
        """Places of a stage that the ends need, sources before what reads them."""
        found: dict[int, None] = {}
        stack = [place for place in reversed(list(ends)) if place in nodes and self._stage[place] == stage]
        while stack:
            place = stack[-1]
            missing = [k for k in nodes[place].sources if k in nodes and self._stage[k] == stage and k not in found]
            if missing and place not in found:
                stack.extend(missing)
            else:
                found[stack.pop()] = None
        return list(found)

    def _rewritten(self, node: _Node, stage: int, uses: Mapping[int, int], often: bool) -> _Node:
        if node.op != "lin":
            return node
        products: list[tuple[tuple[int, int], fmpq]] = []
        factors: dict[int, dict[int, fmpq]] = {}  # of this stage: those of earlier ones that it is multiplied with
        row: dict[int, fmpq] = {}
        for place, c in node.reads:
            pair = self._pair(place, stage) if uses[place] == 1 else None
            if pair is None:
                row[place] = c
            elif often and self._stage[pair[0]] < stage:
                factors.setdefault(pair[1], {})[pair[0]] = c
            else:
                products.append((pair, c))
        for place, others in factors.items():
            if place in row:
                others[0] = others.get(0, fmpq(0)) + row.pop(place)
            if list(others.values()) == [fmpq(1)]:
                products.extend(((k, place), c) for k, c in others.items())
            else:
                products.append(((self._new(Row.of(others.items())), place), fmpq(1)))
        terms = self._hoisted(row, stage) if often else Row(tuple(row), tuple(row.values()))
        return _Node("sum", (), (tuple(products), terms)) if products else _Node("lin", (), terms)

    def _pair(self, place: int, stage: int) -> tuple[int, int] | None:
        """The factors of a product of this stage, the one of an earlier stage first."""
        if place not in self._nodes or self._stage[place] != stage:
            return None
        node = self._nodes[place]
        if node.op == "ipow" and node.parameter == (2,):
            return node.reads[0], node.reads[0]
        if node.op != "mul":
            return None
        a, b = sorted(node.reads, key=lambda k: self._stage[k])
        return a, b

    def _hoisted(self, row: Mapping[int, fmpq], stage: int) -> Row:
        """The row, with a place of its own for what is known earlier, if that is more than one term."""
        early = [(place, c) for place, c in row.items() if self._stage[place] < stage]
        if len(early) < 2:
            return Row(tuple(row), tuple(row.values()))
        late = ((place, c) for place, c in row.items() if self._stage[place] == stage)
        return Row.of(((self._new(Row.of(early)), fmpq(1)), *late))

    def _shared(self, phase: dict[int, _Node]) -> dict[int, _Node]:
        """Long sums over places that others read too become a part of a matrix product, and a short sum of the rest."""
        rows = {place: node.reads if node.op == "lin" else node.reads[1]
                for place, node in phase.items() if node.op in ("lin", "sum")}  # fmt: skip
        long = {place: row for place, row in rows.items() if len(row) >= LONG_ROW}
        readers = Counter(k for row in long.values() for k in row.places)
        result: dict[int, _Node] = {}
        for place, node in phase.items():
            common = tuple(term for term in long.get(place, ()) if readers[term[0]] >= PRODUCT_READERS)
            products = node.reads[0] if node.op == "sum" else ()
            rest = tuple(term for term in rows.get(place, ()) if term not in common)
            if len(common) < LONG_ROW or not (rest or products):
                result[place] = node
                continue
            part = self._new(Row.of(common))
            result[part] = self._nodes[part]
            row = Row.of(((part, fmpq(1)), *rest))
            result[place] = _Node("sum", (), (products, row)) if products else _Node("lin", (), row)
        return result

    def _number(self, first: Sequence[int], phases: Sequence[Sequence[Group]]) -> None:
        """Places for all, so that like arguments of like instructions lie in a row; the phases run most come first."""
        self.place = {place: k for k, place in enumerate(first)}
        for group in (group for k in (LOWER, HESSIAN, OTHERS, JACOBIAN, FIRST) for group in phases[k]):
            for place in chain(group.to, *_columns(group)):
                self.place.setdefault(place, len(self.place))
        self.size = len(self.place)


def _columns(group: Group) -> Iterator[tuple[int, ...]]:
    """The first arguments of all entries, then the second ones, and so on."""
    entries = (tuple(_Node(group.op, (), reads).sources) for reads in group.reads)
    return (tuple(k for k in column if k is not None) for column in zip_longest(*entries))


def _scheduled(phase: Mapping[int, _Node]) -> Iterator[Group]:
    """Like nodes whose arguments are ready together, together."""
    level: dict[int, int] = {}
    groups: dict[tuple[int, str, Parameter], list[int]] = {}
    for place, node in phase.items():
        level[place] = 1 + max((level.get(k, 0) for k in node.sources), default=0)
        groups.setdefault((level[place], node.op, node.parameter), []).append(place)
    for (_, op, parameter), places in sorted(groups.items(), key=lambda item: item[0][0]):
        active = sorted(places)
        yield Group(op, parameter, tuple(active), tuple(phase[k].reads for k in active))


def _placed(group: Group, at: Mapping[int, int]) -> Group:
    """The group with other places."""

    def row(terms: Row) -> Row:
        return Row(tuple(at[k] for k in terms.places), terms.coefficients)

    if group.op == "lin":
        reads: tuple[Any, ...] = tuple(map(row, group.reads))
    elif group.op == "sum":
        reads = tuple(
            (tuple(((at[a], at[b]), c) for (a, b), c in products), row(terms)) for products, terms in group.reads
        )
    else:
        reads = tuple(tuple(at[k] for k in entry) for entry in group.reads)
    return Group(group.op, group.parameter, tuple(at[k] for k in group.to), reads)


def _nodes(groups: Iterable[Group]) -> Iterator[tuple[int, _Node]]:
    for group in groups:
        for to, reads in zip(group.to, group.reads, strict=True):
            yield to, _Node(group.op, group.parameter, reads)


def _join(codes: Sequence[Code]) -> tuple[Integers, Integers, Integers, Floats]:
    """Several programs one after the other: which groups are whose, then the three arrays."""
    tables, at, offset = [], 0, 0
    for table, here, coefficients in codes:
        tables.append(table + np.array([0, 0, at, 0, 0, offset]))
        at, offset = at + len(here), offset + len(coefficients)
    bounds = np.cumsum([0, *(len(table) for table in tables)]).astype(np.int64)
    places, weights = (np.concatenate([code[k] for code in codes]) for k in (1, 2))
    return bounds, np.concatenate(tables), places, weights
