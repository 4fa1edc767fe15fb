"""The graph: hash-consed nodes with exact rational constants; a value is a constant plus a combination of nodes.

Linear algebra inside an expression stays linear algebra: sums never become nodes of their own until something
that is not linear takes them as its argument. Equal parts are one node, however they were reached.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import reduce
from operator import itemgetter, or_
from typing import Any

from flint import fmpq

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.expressions import MAX_POWER
from bilevel_sym.graph.operations import OPERATIONS

__all__ = [
    "ONE",
    "ONE_FORM",
    "ZERO",
    "ZERO_FORM",
    "Graph",
    "LinearForm",
    "Parameter",
    "accumulate",
    "constant",
    "gathered",
    "hashable",
    "total",
]

ZERO, ONE = fmpq(0), fmpq(1)

_MERGING = frozenset(("select", "sigmoid", "ipow"))  # operations whose results may become one with another factor

Parameter = tuple[int, ...]  # the exponent of "ipow" (k,) and "rpow" (p, q); empty for the rest


class LinearForm:
    """constant + sum of coefficient * node: what every expression is, seen from outside. Never mutated.

    >>> graph = Graph(2)
    >>> a, b = graph.variables
    >>> (a + b.scaled(fmpq(2)) + a).terms
    {0: 2, 1: 2}
    """

    __slots__ = ("constant", "terms")

    def __init__(self, constant: fmpq, terms: dict[int, fmpq]) -> None:
        self.constant = constant
        self.terms = terms

    @property
    def is_constant(self) -> bool:
        """Whether no node takes part."""
        return not self.terms

    def scaled(self, factor: fmpq) -> LinearForm:
        """The form times a rational number."""
        if factor is ONE or factor == ONE:  # most are the very objects ZERO and ONE, and arithmetic costs more
            return self
        if not factor:
            return ZERO_FORM
        base = ZERO if self.constant is ZERO else self.constant * factor
        return LinearForm(base, {node: factor if c is ONE else c * factor for node, c in self.terms.items()})

    def __add__(self, other: LinearForm) -> LinearForm:
        return total((self, other))

    def __neg__(self) -> LinearForm:
        return LinearForm(-self.constant, {node: -c for node, c in self.terms.items()})

    def __sub__(self, other: LinearForm) -> LinearForm:
        return total((self, -other))


ZERO_FORM = LinearForm(ZERO, {})
ONE_FORM = LinearForm(ONE, {})


def total(forms: Iterable[LinearForm]) -> LinearForm:
    """The sum; terms that cancel disappear.

    >>> total([ONE_FORM, ONE_FORM]).constant
    2
    """
    constant, terms = ZERO, dict[int, fmpq]()
    for form in forms:
        constant += form.constant
        accumulate(terms, form.terms)
    return LinearForm(constant, terms)


def accumulate(terms: dict[int, fmpq], more: Mapping[int, fmpq]) -> None:
    """Add ``more`` to ``terms`` in place; what cancels is removed.

    >>> terms = {0: fmpq(1)}
    >>> accumulate(terms, {0: fmpq(-1), 1: fmpq(3)})
    >>> terms
    {1: 3}
    """
    for node, c in more.items():
        if node not in terms:
            terms[node] = c
        elif after := terms[node] + c:
            terms[node] = after
        else:
            del terms[node]


def constant(p: int, q: int = 1) -> LinearForm:
    """The rational number p/q as a form.

    >>> constant(1, 2).constant
    1/2
    """
    return LinearForm(fmpq(p, q), {})


class Graph:
    """An arena of nodes: node k is ``op[k]`` of ``args[k]``, all of them smaller than k. Nodes are only ever added.

    ``support[k]`` has bit i set where node k depends on variable i. A "lin" node holds the coefficients of its
    arguments and a constant; "var" nodes come first.

    >>> graph = Graph(2)
    >>> a, b = graph.variables
    >>> s = graph.apply("sin", a + b)
    >>> s.terms == graph.apply("sin", b + a).terms  # the same node
    True
    """

    one = ONE_FORM

    def __init__(self, variables: int) -> None:
        self.op: list[str] = ["var"] * variables
        self.args: list[tuple[int, ...]] = [()] * variables
        self.parameter: list[Parameter] = [(i,) for i in range(variables)]
        self.support: list[int] = [1 << i for i in range(variables)]
        self.linear: dict[int, tuple[fmpq, tuple[fmpq, ...]]] = {}
        self.variables = tuple(LinearForm(ZERO, {i: ONE}) for i in range(variables))
        self._known: dict[tuple[str, tuple[int, ...], Parameter], int] = {}
        self._known_linear: dict[tuple[object, ...], list[int]] = {}

    def __len__(self) -> int:
        return len(self.op)

    def copy(self) -> Graph:
        """The same nodes in an arena of their own: what is added to one is not added to the other.

        >>> graph = Graph(1)
        >>> twin = graph.copy()
        >>> _ = twin.apply("sin", twin.variables[0])
        >>> len(graph), len(twin)
        (1, 2)
        """
        twin = Graph(0)
        for name in ("op", "args", "parameter", "support", "linear", "_known"):
            setattr(twin, name, getattr(self, name).copy())
        twin.variables = self.variables
        twin._known_linear = {key: list(nodes) for key, nodes in self._known_linear.items()}
        return twin

    # ---- nodes ------------------------------------------------------------------------------------

    def _node(self, op: str, args: tuple[int, ...], parameter: Parameter = ()) -> int:
        key = op, args, parameter
        found = self._known.get(key)
        if found is None:
            found = self._known[key] = self._append(op, args, parameter)
        return found

    def _append(self, op: str, args: tuple[int, ...], parameter: Parameter = ()) -> int:
        self.op.append(op)
        self.args.append(args)
        self.parameter.append(parameter)
        self.support.append(reduce(or_, gathered(self.support, args), 0))
        return len(self.op) - 1

    def node_of(self, form: LinearForm) -> int:
        """The node that stands for a whole form: itself if it is one, else a "lin" node."""
        if len(form.terms) == 1 and not form.constant:
            ((node, c),) = form.terms.items()
            if c == ONE:
                return node
        if len(form.terms) == 1 and form.constant == ONE and (stable := self._complement(form)) is not None:
            return self.node_of(stable)
        args = tuple(sorted(form.terms))
        coefficients = gathered(form.terms, args)
        # Hashing a rational costs more than all the rest: hash the floats of a few, compare exactly.
        few = coefficients[:: max(1, len(coefficients) // 3)]
        key = (args, hashable(form.constant), *map(hashable, few))
        same = self._known_linear.setdefault(key, [])
        for node in same:
            if self.linear[node] == (form.constant, coefficients):
                return node
        node = self._append("lin", args)
        self.linear[node] = form.constant, coefficients
        same.append(node)
        return node

    def form(self, node: int) -> LinearForm:
        """The node seen from outside: a "lin" node opened, any other one as itself."""
        if self.op[node] != "lin":
            return LinearForm(ZERO, {node: ONE})
        constant, coefficients = self.linear[node]
        return LinearForm(constant, dict(zip(self.args[node], coefficients, strict=True)))

    # ---- operations -------------------------------------------------------------------------------

    def apply(self, op: str, *forms: LinearForm) -> LinearForm:
        """Any operation without a parameter, folded where that is exact, with the stable forms recognised."""
        match op:
            case "mul":
                return self.mul(*forms)
            case "select":
                return self._select(*forms)
            case "min" | "max":
                return self._extremum(op, *forms)
            case "log" if (z := self._softplus_argument(forms[0])) is not None:
                return self.apply("softplus", z)
            case "log" if self.op[node := self.node_of(forms[0])] == "sigmoid":
                return -self.apply("softplus", -self.form(self.args[node][0]))
        folded = OPERATIONS[op].folded
        if folded is not None and forms[0].is_constant and (value := folded(forms[0].constant)) is not None:
            return LinearForm(value, {})
        return self._single(self._node(op, tuple(self.node_of(form) for form in forms)))

    def power(self, base: LinearForm, p: int, q: int = 1) -> LinearForm:
        """base**(p/q): whole powers of any base, others of a base that is not negative."""
        if p == 0:
            return ONE_FORM
        if (p, q) == (1, 1):
            return base
        if q != 1:
            return self._single(self._node("rpow", (self.node_of(base),), (p, q)))
        if base.is_constant:
            return LinearForm(_rational_power(base.constant, p), {})
        if p < 0 and (z := self._softplus_argument(base)) is not None:
            return self.power(self.apply("sigmoid", -z), -p)
        scale, node = self._factor(base)
        return self._whole_power(node, p).scaled(scale**p)

    def mul(self, a: LinearForm, b: LinearForm, *, guarded: bool = False) -> LinearForm:
        """The product, with constant factors outside and powers of one base together.

        ``guarded``: a factor select(c, u, 0) keeps the other factor inside, where it may be infinite.
        """
        if not a.terms:
            return b.scaled(a.constant)
        if not b.terms:
            return a.scaled(b.constant)
        (scale_a, i), (scale_b, j) = self._factor(a), self._factor(b)
        product = self._product(i, j, guarded)
        return product if scale_a is scale_b is ONE else product.scaled(scale_a * scale_b)

    def product(self, forms: Iterable[LinearForm]) -> LinearForm:
        """The product of all; exponentials meet their sigmoids before anything else stands between them."""
        return reduce(self.mul, sorted(forms, key=lambda form: not self.is_exponential(form)))

    def raised(self, base: LinearForm, exponent: LinearForm) -> LinearForm:
        """base**exponent: a power where the exponent is a number, else the exponential of a logarithm."""
        if exponent.is_constant:
            return self.power(base, *_small(exponent.constant))
        if base.is_constant and base.constant <= 0:
            raise InvalidProblem("a power of a number that is not positive, with an exponent that varies, is not real")
        return self.apply("exp", self.mul(exponent, self.apply("log", base)))

    def undefined(self) -> LinearForm:
        """No number: the logarithm of -1, which no arithmetic takes for one."""
        return self._single(self._node("log", (self.node_of(LinearForm(-ONE, {})),)))

    def _product(self, i: int, j: int, guarded: bool) -> LinearForm:
        if i != j and self.op[i] not in _MERGING and self.op[j] not in _MERGING:
            return self._single(self._node("mul", (i, j) if i < j else (j, i)))
        for one, other in ((i, j), (j, i)):
            if guarded and self.op[one] == "select" and (moved := self._into_select(one, other)) is not None:
                return moved
            if (stable := self._with_sigmoid(one, other)) is not None:
                return stable
        (base_i, p), (base_j, q) = self._as_power(i), self._as_power(j)
        if base_i == base_j and p * q > 0:  # of opposite signs they stay apart: x/x is not defined at 0
            return self._whole_power(base_i, p + q)
        return self._single(self._node("mul", (min(i, j), max(i, j))))

    def _single(self, node: int) -> LinearForm:
        return LinearForm(ZERO, {node: ONE})

    def _whole_power(self, node: int, p: int) -> LinearForm:
        """An even power of a modulus has no kink: everything here is real."""
        if self.op[node] == "abs" and p % 2 == 0:
            return self.power(self.form(self.args[node][0]), p)
        return self._single(self._power(node, p))

    def _power(self, node: int, p: int) -> int:
        if self.op[node] in ("lt", "le") and p > 0:
            return node  # 0 or 1, whatever the power
        if self.op[node] == "ipow":
            (inner,) = self.parameter[node]
            return self._power(self.args[node][0], inner * p)
        return node if p == 1 else self._node("ipow", (node,), (p,))

    def _as_power(self, node: int) -> tuple[int, int]:
        return (self.args[node][0], self.parameter[node][0]) if self.op[node] == "ipow" else (node, 1)

    def _factor(self, form: LinearForm) -> tuple[fmpq, int]:
        """A rational times a node. Sums are normalised by sign and powers of two only: else rationals would grow."""
        if len(form.terms) == 1 and (form.constant is ZERO or not form.constant):
            ((node, c),) = form.terms.items()
            return c, node
        lead = form.constant or form.terms[min(form.terms)]
        scale = _power_of_two(lead)
        if lead < 0:
            scale = -scale
        return scale, self.node_of(form.scaled(1 / scale))

    # ---- recognised patterns -----------------------------------------------------------------------

    def _softplus_argument(self, form: LinearForm) -> LinearForm | None:
        """z where the form is 1 + exp(z), which overflows where softplus and sigmoid do not."""
        if len(form.terms) == 1 and form.constant == ONE:
            ((node, c),) = form.terms.items()
            if c == ONE and self.op[node] == "exp":
                return self.form(self.args[node][0])
        return None

    def _complement(self, form: LinearForm) -> LinearForm | None:
        """1 - sigmoid(z) = sigmoid(-z) and 1 - tanh(z)**2 = 4 bell(2 z), which do not cancel."""
        ((node, c),) = form.terms.items()
        if c != -1:
            return None
        if self.op[node] == "sigmoid":
            return self.apply("sigmoid", -self.form(self.args[node][0]))
        base, p = self._as_power(node)
        if self.op[base] == "tanh" and p == 2:
            return self.apply("bell", self.form(self.args[base][0]).scaled(fmpq(2))).scaled(fmpq(4))
        return None

    def is_exponential(self, form: LinearForm) -> bool:
        """Whether the form is a multiple of exp, of sigmoid or of a power of it."""
        if len(form.terms) != 1 or form.constant:
            return False
        return self.op[self._as_power(next(iter(form.terms)))[0]] in ("exp", "sigmoid")

    def _with_sigmoid(self, sigmoid: int, other: int) -> LinearForm | None:
        """sigmoid(-z) exp(z) = sigmoid(z), and sigmoid(z) sigmoid(-z) = bell(z): without overflow or cancellation.

        Both with powers: of sigmoid(-z)**p exp(m z), as many factors meet as there are.
        """
        (base, p), (partner, q) = self._as_power(sigmoid), self._as_power(other)
        if self.op[base] != "sigmoid" or self.op[partner] not in ("exp", "sigmoid") or p < 1 or q < 1:
            return None
        z, w = self.form(self.args[base][0]), self.form(self.args[partner][0])
        if self.op[partner] == "sigmoid":
            pairs = min(p, q) if _vanishes(z + w) else 0
            met = self.apply("bell", z) if pairs else ONE_FORM
            rest = self.mul(self._to_power(base, p - pairs), self._to_power(partner, q - pairs)) if pairs else ONE_FORM
        else:
            pairs = next((m for m in range(1, p + 1) if _vanishes(z.scaled(fmpq(m)) + w)), 0) if q == 1 else 0
            met = self.apply("sigmoid", -z) if pairs else ONE_FORM
            rest = self._to_power(base, p - pairs)
        return self.mul(self.power(met, pairs), rest) if pairs else None

    def _to_power(self, node: int, p: int) -> LinearForm:
        return self._single(self._power(node, p)) if p else ONE_FORM

    def _into_select(self, select: int, factor: int) -> LinearForm | None:
        """select(c, a, 0) b = select(c, a b, 0): outside its region b may be infinite, and 0 inf is no number."""
        condition, a, b = (self.form(arg) for arg in self.args[select])
        other = self._single(factor)
        if b.is_constant and not b.constant:
            return self._select(condition, self.mul(a, other, guarded=True), ZERO_FORM)
        if a.is_constant and not a.constant:
            return self._select(condition, ZERO_FORM, self.mul(b, other, guarded=True))
        return None

    def _select(self, condition: LinearForm, a: LinearForm, b: LinearForm) -> LinearForm:
        if condition.is_constant:
            return a if condition.constant else b
        i, j, k = (self.node_of(form) for form in (condition, a, b))
        return a if j == k else self._single(self._node("select", (i, j, k)))

    def _extremum(self, op: str, a: LinearForm, b: LinearForm) -> LinearForm:
        if a.is_constant and b.is_constant:
            return a if (a.constant < b.constant) == (op == "min") else b
        i, j = sorted((self.node_of(a), self.node_of(b)))
        return a if i == j else self._single(self._node(op, (i, j)))

    # ---- questions ---------------------------------------------------------------------------------

    def reachable(self, roots: Iterable[int], *, support: int = -1) -> list[int]:
        """Every node below the roots that depends on a variable of ``support`` (-1: all nodes), ascending."""
        seen: set[int] = set()
        below = set(roots)
        while below:  # a whole level at once: nodes that many read are looked at once, not once a reader
            fresh = below if support == -1 else {node for node in below if self.support[node] & support}
            seen |= fresh
            below = set[int]().union(*map(self.args.__getitem__, fresh)) - seen
        return sorted(seen)


def gathered(table: Any, keys: tuple[int, ...]) -> tuple[Any, ...]:
    """What a table holds at each of the keys: several times as fast as a loop.

    >>> gathered([5, 6, 7], (2, 0)), gathered({3: 1}, (3,)), gathered([], ())
    ((7, 5), (1,), ())
    """
    return itemgetter(*keys)(table) if len(keys) > 1 else tuple([table[key] for key in keys])


def hashable(value: fmpq) -> object:
    """What is hashed in place of a rational number.

    >>> hashable(fmpq(1, 2))
    0.5
    """
    try:
        return float(value)
    except OverflowError:
        return int(value.p), int(value.q)


def _vanishes(form: LinearForm) -> bool:
    return not form.terms and not form.constant


def _rational_power(value: fmpq, p: int) -> fmpq:
    if p < 0 and not value:
        raise InvalidProblem("an expression divides by zero everywhere", hint="look for 1/(x - x) or 0**(-1)")
    return value**p


def _small(exponent: fmpq) -> tuple[int, int]:
    p, q = int(exponent.p), int(exponent.q)
    if abs(p) > MAX_POWER:
        raise InvalidProblem(
            f"an expression contains a power of {p}",
            hint=f"exponents go up to {MAX_POWER}: a number in place of the base would fill the memory",
        )
    return p, q


def _power_of_two(value: fmpq) -> fmpq:
    """2**k, the power of two in a rational number."""
    p, q = abs(int(value.p)), int(value.q)
    return fmpq(p & -p, q & -q)
