"""What blocks of derivatives and enclosures of Phi take, in bytes and in work, estimated before anything is built.

Of Phi: a box holds affine forms with d slopes each. Those of D^3 Phi are d^4 numbers, and its two factors have a row
for every operation of the Lagrangian that is not linear and a column for every pair of variables. Of those pairs the
formulas hold the ones along which an operation bends: with y all of x moves, without it the variables that occur.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import reduce
from operator import or_

from bilevel_sym import BilevelProblem
from bilevel_sym.errors import TooLarge
from bilevel_sym.implicit.model import Model
from bilevel_sym.system.memory import FLOAT, largest, require
from verify.enclosures.branch_and_bound import PROOF_COST
from verify.enclosures.phi_formulas import LINEAR, PhiFormulas

__all__ = [
    "BOXES_AT_ONCE",
    "LIBRARY_BYTES",
    "TABLE",
    "PhiMemory",
    "entries_of",
    "is_sparse",
    "require_size",
    "vanishes",
]

TABLE = 2**19  # numbers in a table of intervals
LIBRARY_BYTES, OPERATION = 3e8, 5000  # of the libraries and of the problem; and of one entry as a formula
TABLES, VALUES = 20, 3000  # tables, and values of an entry, that are held at a time
LARGEST = 20_000  # entries of a block that may differ, beyond which it is not tried
BUILDING = 50.0  # units of work that one operation of a program takes until it can be run
NUMBERS = 300.0  # numbers that one unit of work goes through
SESSIONS = 6  # tables that are kept for the next boxes
BYTES_OF_OPERATION = 2000.0  # the graph, the program and its steps
POINTS, CLIMBING = 384, 40  # at which a search begins; and of each variable, while the best are improved
MOST_DIRECTIONS = 300  # in which D^3 Phi is tried at a point
PRODUCTS = 1000.0  # multiplications of matrices that one unit of work does
BOXES_AT_ONCE = 512  # boxes at a time, at most
MEMORY_SHARE = 0.5  # of the memory, for all boxes that are looked at together


def entries_of(name: str, d: int, n: int) -> int:
    """How many entries a block of derivatives has.

    >>> entries_of("g_xxy", 3, 2), entries_of("f_z", 3, 2)
    (18, 5)
    """
    sizes = {"x": d, "y": n, "z": d + n}
    return math.prod(sizes[axis] for axis in name.partition("_")[2])


def distinct_of(name: str, d: int, n: int) -> int:
    """How many of them may differ: the order of equal axes does not count.

    >>> distinct_of("g_xxy", 3, 2), distinct_of("g_yyyy", 3, 13)
    (12, 1820)
    """
    sizes = {"x": d, "y": n, "z": d + n}
    runs = Counter(name.partition("_")[2])
    return math.prod(math.comb(sizes[axis] + degree - 1, degree) for axis, degree in runs.items())


def vanishes(model: Model, name: str) -> bool:
    """Whether a block is zero for its structure: a derivative of lower order knows nothing of the next variables.

    No block is made that would itself be refused. Of functions in pieces nothing is said.

    >>> problem = BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y")
    >>> [name for name in ("g_yy", "g_xyy", "g_yyyy", "f_yy", "f_xy") if vanishes(problem.tape, name)]
    ['g_xyy', 'g_yyyy', 'f_yy']
    """
    if model.patterns is not None:
        return False
    function, _, axes = name.partition("_")
    for k in reversed(range(len(axes))):
        lower = f"{function}_{axes[k + 1 :]}".rstrip("_")
        if not is_sparse(model, lower):
            return False
        along = sum(1 << v for v in {"x": model.x, "y": model.y}.get(axes[k], range(model.d + model.n)))
        nodes = {node for form in model.places(lower).values() for node in form.terms}
        if not any(model.graph.support[node] & along for node in nodes):
            return True
    return False


def is_sparse(model: Model, name: str) -> bool:
    """Whether a block and what it is made from have few entries that may not vanish, counted before one is made.

    >>> import sympy as sp
    >>> x, y = sp.symbols("x"), sp.symbols("y:60")
    >>> one, all_of = (Model(x*y[0], g, [x], y) for g in (sum(v**3 for v in y), sum(y)**3))
    >>> is_sparse(one, "g_yyy"), is_sparse(all_of, "g_yyy")
    (True, False)
    """
    axes = name.partition("_")[2]
    if len(axes) <= 2:
        return entries_of(name, model.length("x"), model.length("y")) <= LARGEST
    lower = f"{name[0]}_{axes[1:]}"
    if not is_sparse(model, lower):
        return False
    along, support = {"x": model.x, "y": model.y}.get(axes[0], range(model.d + model.n)), model.graph.support
    moving = (reduce(or_, (support[node] for node in form.terms), 0) for form in model.places(lower).values())
    return sum(sum(bits >> v & 1 for v in along) for bits in moving) <= LARGEST


def require_size(names: Iterable[str], d: int, n: int, memory: int) -> None:
    """Refuse blocks that are too large to be derived, or to be held at as many points as a search begins with.

    >>> require_size(["g_y", "g_xxxy"], 60, 13, 2 * 10**9)
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.TooLarge: g_xxxy has 491,660 entries that may differ, and blocks of at most 20,000 are bounded
    try: d = 16 with this n would fit; or the derivatives at points, problem.kernels
    """
    if not (chosen := list(names)):
        return
    name = max(chosen, key=lambda name: distinct_of(name, d, n))
    if (distinct := distinct_of(name, d, n)) > LARGEST:
        in_x, in_y = (
            largest(lambda d: _fit(chosen, d, n, memory), d),
            largest(lambda n: _fit(chosen, d, n, memory), n),
        )
        fits = f"d = {in_x} with this n" if in_x else f"n = {in_y} with this d" if in_y else "fewer of both variables"
        raise TooLarge(
            f"{name} has {distinct:,} entries that may differ, and blocks of at most {LARGEST:,} are bounded",
            hint=f"{fits} would fit; or the derivatives at points, problem.kernels",
        )
    name = max(chosen, key=lambda name: entries_of(name, d, n))
    entries = entries_of(name, d, n)
    most = largest(lambda count: _bytes(count) <= memory, entries)
    require(_bytes(entries), memory, f"{name} with its {entries:,} entries", f"a block of {most:,}")


def _fit(names: Sequence[str], d: int, n: int, memory: int) -> bool:
    return all(distinct_of(name, d, n) <= LARGEST and _bytes(entries_of(name, d, n)) <= memory for name in names)


def _bytes(entries: int) -> float:
    """What a search takes for a block: its programs, tables of boxes, and values at points."""
    return LIBRARY_BYTES + OPERATION * entries + FLOAT * (TABLES * TABLE + VALUES * entries)


@dataclass(frozen=True)
class PhiMemory:
    """Sizes for d, n, so many operations of the Lagrangian that are not linear, and the pairs along which they bend.

    >>> from bilevel_sym.system.memory import shown
    >>> small, large = PhiMemory(3, 2, 30, 180), PhiMemory(60, 13, 200, 200 * 1830)
    >>> shown(small.one_box(third=True)), shown(large.one_box(third=True))
    ('54.3 kB', '1.04 GB')
    """

    d: int
    n: int
    operations: int
    bends: int

    @classmethod
    def of(cls, problem: BilevelProblem) -> PhiMemory:
        """Those of a problem: the Lagrangian is built, and nothing is differentiated twice."""
        formulas, d = PhiFormulas(problem), problem.d
        graph, x = formulas.graph, (1 << d) - 1

        def moves(node: int) -> int:
            support = graph.support[node]
            return d if support > x else support.bit_count()

        bent = [node for node in graph.reachable(formulas.lagrangian.terms) if graph.op[node] not in LINEAR]
        # the pairs (a, b), a <= b, of a product of two moves, or of a square
        pairs = [min(d * (d + 1) // 2, math.prod(map(moves, (*graph.args[k], *graph.args[k])[:2]))) for k in bent]
        return cls(d, problem.n, 2 * len(bent), 2 * sum(pairs))

    @property
    def pairs(self) -> int:
        """Pairs of variables, a <= b."""
        return self.d * (self.d + 1) // 2

    def program(self, *, third: bool) -> float:
        """About how many operations the formulas of Phi have, up to its second or third derivatives."""
        first = self.operations * (3 * self.d + 5) + self.n * (self.n + self.d) + self.pairs
        return first + (1.5 if third else 0.7) * self.bends

    def table(self, *, third: bool) -> float:
        """Bytes of one box in the table of a program."""
        return FLOAT * self.program(third=third) * (self.d + 3)

    def one_box(self, *, third: bool) -> float:
        """Bytes that one box takes while it is bounded."""
        d, n = self.d, self.n
        numbers = 1.3 * self.program(third=third) * (d + 3) + 4 * d**3 + 4 * d * (n * n + n * d)
        if third:
            numbers += 3 * d**4 + 1.3 * self.operations * self.pairs * d + 2 * self.pairs * d * d
        return FLOAT * numbers

    def whole(self, *, third: bool, lanes: int = 1) -> float:
        """Bytes of a search that bounds so many boxes at a time."""
        return self._fixed(third=third) + lanes * self._lane(third=third) / MEMORY_SHARE

    def lanes(self, memory: int, *, third: bool) -> int:
        """How many boxes may be bounded at a time; at least one."""
        left = memory - self._fixed(third=third)
        return int(min(BOXES_AT_ONCE, max(1.0, MEMORY_SHARE * left / self._lane(third=third))))

    def _fixed(self, *, third: bool) -> float:
        return LIBRARY_BYTES + BYTES_OF_OPERATION * self.program(third=third)

    def _lane(self, *, third: bool) -> float:
        return self.one_box(third=third) + SESSIONS * self.table(third=third)

    def points(self, memory: int, *, third: bool) -> int:
        """At how many points the derivative may be evaluated at a time."""
        return int(max(1.0, 0.1 * memory / (6 * FLOAT * self.d ** (3 if third else 2))))

    def first_step(self, *, third: bool) -> float:
        """Units of work until the first box is bounded and proved, and the first points are tried."""
        d = self.d
        tried = (POINTS + CLIMBING * d) * (MOST_DIRECTIONS + d) * d**3 / PRODUCTS if third else 0.0
        bounded = (1 + PROOF_COST) * self.one_box(third=third) / FLOAT / NUMBERS
        return BUILDING * self.program(third=third) + bounded + tried

    def require(self, memory: int, work: float, default: float, *, third: bool) -> None:
        """Refuse what fits neither the memory nor the work allowed; ``default`` is the work of effort=1."""
        what = f"{'D^3' if third else 'Hess'} Phi over one box, d = {self.d} and n = {self.n},"
        fits = largest(lambda d: self._of_size(d).whole(third=third) <= memory, self.d)
        require(self.whole(third=third), memory, what, f"d = {fits}")
        first, allowed = self.first_step(third=third), max(work, default)
        if first > allowed:
            fits = largest(lambda d: self._of_size(d).first_step(third=third) <= allowed, self.d)
            raise TooLarge(
                f"{what} takes about {first:.2g} units of work, and the effort is {allowed:.2g}",
                hint=f"effort={math.ceil(first / default)}, or kernels and evaluate at points; "
                f"with this effort d = {fits} would fit",
            )

    def _of_size(self, d: int) -> PhiMemory:
        """The same problem with fewer variables, as far as one can tell."""
        share = d / self.d
        return PhiMemory(d, self.n, math.ceil(self.operations * share), math.ceil(self.bends * share**2))
