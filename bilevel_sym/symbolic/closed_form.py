"""Solving grad_y g = 0 for y: linear, separable and triangular systems, and scalar equations.

Each answer is proved by substitution in exact arithmetic before it is returned. Nothing here can hang:
every step has a size limit that is checked before it starts; beyond it the answer is None, with the reason.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import sympy as sp

from bilevel_sym.graph.expressions import postorder, substitute, symbols_in
from bilevel_sym.problem.box import Box
from bilevel_sym.symbolic.algebra.branches import check_convex, choose
from bilevel_sym.symbolic.algebra.domain import Domain
from bilevel_sym.symbolic.algebra.field import Field, TooLarge, normal_form, shortest
from bilevel_sym.symbolic.algebra.linear import solve_linear, vanishes
from bilevel_sym.symbolic.algebra.scalar import Root, Unsolved, containing, roots
from bilevel_sym.symbolic.blocks import derivative

MAX_UNKNOWNS = 300  # of them all, separable or not
MAX_TERMS = 4_000  # of g
MAX_FREE_NODES = 40  # a part of g without y that is larger is abbreviated by one symbol
MAX_COEFFICIENT_NODES = 20  # so is the coefficient of a power of y in a nonlinear equation
MAX_DEGREE = 12  # of a power that is multiplied out
MAX_EXPONENT = 10_000  # of y: substituting a number for y must stay harmless
MAX_DEPTH = 40  # of the part of g with y: SymPy recurses
MAX_NODES = 300  # of the part of g with y, in one nonlinear block, and of each equation made from it
MAX_SOLUTION_NODES = 500  # of a nonlinear solution: SymPy asks for the sign of each radicand
MAX_ELIMINATED = 8  # unknowns in one nonlinear block
MAX_SHOWN = 120  # characters of an equation in a message

_KINKED = (sp.Abs, sp.sign, sp.Max, sp.Min, sp.Piecewise)
_SMOOTH = (sp.Symbol, sp.Add, sp.Mul, sp.Pow, sp.Function)

Values = dict[sp.Symbol, sp.Expr]
System = tuple[list[list[sp.Expr]], list[sp.Expr]]  # A and b of A y = b
Step = tuple[sp.Symbol, Root]


@dataclass(frozen=True, slots=True)
class ClosedForm:
    """y*(x) in the order of y, or None; ``method`` says what was done, or why it was not."""

    y_star: tuple[sp.Expr, ...] | None
    method: str


def solve_lower_level(
    g: sp.Expr, x: Sequence[sp.Symbol], y: Sequence[sp.Symbol], *, box: Box | None = None
) -> ClosedForm:
    """Solve grad_y g = 0 for y, where g is strongly convex in y and every symbol is real.

    AssumptionViolated where the stationary point is provably not a minimiser.

    >>> x, y = sp.symbols("x y", real=True)
    >>> solve_lower_level((1 + x**2)*y**2/2 - x*y, [x], [y])
    ClosedForm(y_star=(x/(x**2 + 1),), method='linear in y, solved exactly')
    >>> solve_lower_level((y - x)**2/2 - sp.log(y), [x], [y])
    ClosedForm(y_star=(x/2 + sqrt(x**2 + 4)/2,), method='y quadratic; proved by substitution')
    >>> solve_lower_level(y**2/2 + sp.exp(y) - x*y, [x], [y]).method
    'y + exp(y) = x has no solution in radicals or elementary functions that this solver knows'
    """
    short = _Abbreviated.of(g, x, y, box)
    try:
        values, method = _solve(short)
    except Unsolved as failure:
        return ClosedForm(None, short.explain(failure))
    return ClosedForm(tuple(short.restore(values[s]) for s in short.y), method)


def _solve(short: _Abbreviated) -> tuple[Values, str]:
    """The values of all the unknowns, block by block, and how they were found."""
    _check(short.g, set(short.y))
    terms = [term for term in sp.Add.make_args(short.g) if symbols_in(term) & set(short.y)]
    if len(terms) > MAX_TERMS or len(short.y) > MAX_UNKNOWNS:
        raise Unsolved(f"g is too large: {len(terms)} terms, n = {len(short.y)}")
    values: Values = {}
    notes: list[str] = []
    blocks = _blocks(terms, short.y)
    for block in blocks:
        if block.system is not None:
            values |= _solve_linear(block.y, block.system, short.domain)
            notes.append(f"{', '.join(s.name for s in block.y)} linear")
        else:
            solved, steps = _solve_nonlinear(block, short.domain)
            values |= solved
            notes.append(", then ".join(f"{s} {_how(root, s, short)}" for s, root in steps))
    return values, _method(blocks, notes)


def _method(blocks: Sequence[_Block], notes: Sequence[str]) -> str:
    if all(block.system is not None for block in blocks):
        if len(blocks) > 1:
            return f"linear in y, {len(blocks)} separate systems, each solved exactly"
        return f"linear {'system ' if len(blocks[0].y) > 1 else ''}in y, solved exactly"
    several = len(blocks[0].y) > 1
    kind = "separable: " if len(blocks) > 1 else "triangular: " if several else ""
    return f"{kind}{'; '.join(notes)}; proved by substitution"


def _how(root: Root, y: sp.Symbol, short: _Abbreviated) -> str:
    if root.kernel is None or root.kernel == y or _size(root.kernel) > 20:
        return root.how
    return f"{root.how} in {short.restore(root.kernel)}"


# ---- preparing g -----------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Abbreviated:
    """g with signs known from the box, and with short names for its large parts that are free of y."""

    g: sp.Expr
    y: tuple[sp.Symbol, ...]
    domain: Domain
    twins: Mapping[sp.Symbol, sp.Symbol]  # the same variables, with the sign that the box gives them

    @staticmethod
    def of(g: sp.Expr, x: Sequence[sp.Symbol], y: Sequence[sp.Symbol], box: Box | None) -> _Abbreviated:
        intervals = {} if box is None else dict(box.items())
        twins = {s: _signed(s, *intervals[s.name]) for s in (*x, *y) if s.name in intervals}
        unknowns = tuple(twins.get(s, s) for s in y)
        short, meanings = _abbreviate(substitute(g, twins), set(unknowns))
        return _Abbreviated(short, unknowns, Domain(box, meanings), twins)

    def restore(self, expression: sp.Expr) -> sp.Expr:
        back = {twin: symbol for symbol, twin in self.twins.items()}
        return substitute(substitute(expression, self.domain.meanings), back)

    def explain(self, failure: Unsolved) -> str:
        if failure.equation is None:
            return str(failure)
        y = [self.restore(s) for s in self.y]
        return f"{_shown(self.restore(failure.equation), y)} {failure}"


def _signed(symbol: sp.Symbol, low: sp.Rational, high: sp.Rational) -> sp.Symbol:
    """The symbol, or its twin of known sign: SymPy then knows that sqrt(x**2) is x."""
    if low >= 0:
        return sp.Symbol(symbol.name, real=True, **{"positive" if low > 0 else "nonnegative": True})
    return sp.Symbol(symbol.name, real=True, negative=True) if high < 0 else symbol


def _abbreviate(g: sp.Expr, y: set[sp.Symbol]) -> tuple[sp.Expr, dict[sp.Symbol, sp.Expr]]:
    """Name the large parts of g that are free of y: what is in them plays no role in solving for y."""
    inside = containing(g, y)
    size: dict[int, int] = {}
    names: dict[sp.Expr, sp.Symbol] = {}
    for node in postorder(g):
        size[id(node)] = min(1 + sum(size[id(child)] for child in node.args), MAX_FREE_NODES + 1)
        for child in node.args if id(node) in inside else ():
            if id(child) not in inside and size[id(child)] > MAX_FREE_NODES:
                names.setdefault(child, _name(child))
    return substitute(g, names), {symbol: part for part, symbol in names.items()}


def _name(part: sp.Expr) -> sp.Symbol:
    return sp.Dummy("c", positive=True) if isinstance(part, sp.exp) else sp.Dummy("c", real=True)


def _shown(equation: sp.Expr, y: Sequence[sp.Expr]) -> str:
    """The equation as people write it, what is free of y on the right; only named where it is long."""
    if _size(equation) <= MAX_SHOWN:
        free, rest = equation.as_independent(*y, as_Add=True)
        text = f"{rest} = {-free}"
        if len(text) <= MAX_SHOWN:
            return text
    return "the equation for " + ", ".join(str(s) for s in y if s in symbols_in(equation))


def _size(expression: sp.Basic) -> int:
    return sum(1 for _ in postorder(expression))


def _check(g: sp.Expr, y: set[sp.Symbol]) -> None:
    """Refuse what the rest is not made for: kinks in y, deep nesting, towers of powers."""
    depth: dict[int, int] = {}  # 0 for what is free of y
    for node in postorder(g):
        below = max((depth[id(child)] for child in node.args), default=0)
        depth[id(node)] = below + 1 if below or node in y else 0
        if not depth[id(node)]:
            continue
        if isinstance(node, _KINKED) or not isinstance(node, _SMOOTH):
            raise Unsolved(f"g is not smooth in y: it contains {node.func}")
        if isinstance(node, sp.Pow):
            _check_power(node, y)
    if max(depth.values()) > MAX_DEPTH:
        raise Unsolved(f"g is nested more than {MAX_DEPTH} deep in y")


def _check_power(node: sp.Pow, y: set[sp.Symbol]) -> None:
    if node.exp.is_Rational:
        if max(abs(node.exp.p), node.exp.q) > MAX_EXPONENT:
            raise Unsolved(f"g has an exponent above {MAX_EXPONENT}")
    elif node.base.is_number and any(
        isinstance(inner, sp.Pow) and inner.base.is_number and symbols_in(inner.exp) & y
        for inner in postorder(node.exp)
    ):  # 2**2**y at y = 40 fills the memory
        raise Unsolved("g contains a tower of powers of numbers")


# ---- taking g apart --------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _Block:
    """A part of g that shares no unknown with the rest: monomial -> coefficient, and other terms."""

    y: tuple[sp.Symbol, ...]
    polynomial: Mapping[sp.Expr, sp.Expr]
    others: tuple[sp.Expr, ...]
    system: System | None  # where the block is quadratic


def _blocks(terms: Sequence[sp.Expr], y: Sequence[sp.Symbol]) -> list[_Block]:
    """Multiply out what is polynomial in y, see which unknowns hang together, and take g apart."""
    try:
        parts = _multiplied_out([term for term in terms if _is_polynomial(term, set(y))], y)
        others = [term for term in terms if not _is_polynomial(term, set(y))]
    except TooLarge:
        parts, others = {}, list(terms)
    in_parts = {powers: {s for s, k in zip(y, powers, strict=True) if k} for powers in parts}
    in_others = [symbols_in(term) & set(y) for term in others]
    blocks = []
    for group in _components(y, [*in_parts.values(), *in_others]):
        own = {powers: parts[powers] for powers, met in in_parts.items() if met & set(group)}
        rest = tuple(term for term, met in zip(others, in_others, strict=True) if met & set(group))
        monomials = {sp.Mul(*map(sp.Pow, y, powers)): c for powers, c in own.items()}
        system = None if rest else _system(own, [y.index(s) for s in group])
        blocks.append(_Block(group, monomials, rest, system))
    return blocks


def _is_polynomial(term: sp.Expr, y: set[sp.Symbol]) -> bool:
    """Whether the term is a polynomial in y of a degree that may be multiplied out."""
    inside = containing(term, y)
    for node in postorder(term):
        if id(node) not in inside or node in y or isinstance(node, (sp.Add, sp.Mul)):
            continue
        if not (isinstance(node, sp.Pow) and node.exp.is_Integer and 0 < node.exp <= MAX_DEGREE):
            return False
    return True


def _multiplied_out(terms: Sequence[sp.Expr], y: Sequence[sp.Symbol]) -> dict[tuple[int, ...], sp.Expr]:
    """The sum of the terms as powers of y -> coefficient; denominators free of y stay as they are."""
    field = Field(terms, fractions=False)
    parts = field.coefficients(field.sum([field(term) for term in terms]).num, *y)
    return {powers: field.polynomial(part) for powers, part in parts.items()}


def _components(y: Sequence[sp.Symbol], links: Iterable[set[sp.Symbol]]) -> list[tuple[sp.Symbol, ...]]:
    """The unknowns in groups such that no link joins two groups, in the order of y."""
    group = {s: {s} for s in y}
    for link in links:
        joined = set().union(*(group[s] for s in link))
        group |= dict.fromkeys(joined, joined)
    unique = {id(members): members for members in group.values()}
    return [tuple(s for s in y if s in members) for members in unique.values()]


def _system(parts: Mapping[tuple[int, ...], sp.Expr], places: Sequence[int]) -> System | None:
    """A and b of the equations A y = b of a quadratic; None where the degree is higher."""
    n = len(places)
    matrix, right = [[sp.S.Zero] * n for _ in range(n)], [sp.S.Zero] * n
    for powers, c in parts.items():
        factors = [i for i, place in enumerate(places) for _ in range(powers[place])]
        if len(factors) > 2:
            return None
        if len(factors) == 1:
            right[factors[0]] -= c
        else:
            i, j = factors
            matrix[i][j] += c
            matrix[j][i] += c
    return matrix, right


# ---- solving a block -------------------------------------------------------------------------------


def _solve_linear(y: Sequence[sp.Symbol], system: System, domain: Domain) -> Values:
    matrix, right = system
    try:
        values = solve_linear(matrix, right)
    except TooLarge as error:
        what = "the system is linear in y, but its solution is too large to write out"
        raise Unsolved(f"{what}: {error}") from None
    except ArithmeticError as error:
        raise Unsolved(f"the system is linear in y, but {error}") from None
    if not all(entry.is_Rational for row in matrix for entry in row):
        check_convex(matrix, values, domain)
    return dict(zip(y, values, strict=True))


def _solve_nonlinear(block: _Block, domain: Domain) -> tuple[Values, list[Step]]:
    """The unknowns of a block, once every equation holds by substitution, and the steps to them."""
    large = [c for c in block.polynomial.values() if _size(c) > MAX_COEFFICIENT_NODES]
    names = {c: _name(c) for c in large}
    monomials = [names.get(c, c) * monomial for monomial, c in block.polynomial.items()]
    g = sp.Add(*monomials, *block.others)
    meanings = {symbol: c for c, symbol in names.items()}
    narrow = domain.narrowed(g, meanings)
    try:
        steps = _eliminate(g, block.y, narrow)
        values = _proved(g, block.y, steps, narrow)
    except Unsolved as failure:
        equation = failure.equation and substitute(failure.equation, meanings)
        raise Unsolved(str(failure), equation) from None
    return {s: substitute(value, meanings) for s, value in values.items()}, steps


def _eliminate(g: sp.Expr, y: Sequence[sp.Symbol], domain: Domain) -> list[Step]:
    """Solve one equation for its own unknown, insert it into the others, and go on.

    With its own equation y_i is minimised out, so what remains is the gradient of a function that is
    again strongly convex: the real root with positive slope is right at every step.
    """
    if len(y) > MAX_ELIMINATED or _size(g) > MAX_NODES:
        names = ", ".join(map(str, y))
        raise Unsolved(f"the equations for {names} hang together and are too large")
    steps: list[Step] = []
    equations = {s: derivative(g, s) for s in y}
    while equations:
        s, root = _step(equations, g, domain)
        steps.append((s, root))
        g = substitute(g, {s: root.value})
        equations = {z: substitute(e, {s: root.value}) for z, e in equations.items() if z != s}
        for equation in equations.values():
            if _size(equation) > MAX_NODES:
                raise Unsolved("is too large after other unknowns were inserted", equation)
    return steps


def _step(equations: Mapping[sp.Symbol, sp.Expr], g: sp.Expr, domain: Domain) -> Step:
    """An unknown that its own equation gives, the easiest first."""
    failures: list[Unsolved] = []
    normal = {s: normal_form(equation) for s, equation in equations.items()}
    for s in sorted(equations, key=lambda s: _difficulty(normal[s], s, set(equations))):
        for equation in dict.fromkeys((equations[s], normal[s])):
            try:
                root = choose(roots(equation, s), equation, s, g, domain)
            except Unsolved as failure:
                failures.append(failure)
                continue
            affine = s not in symbols_in(derivative(equation, s))
            return s, replace(root, how="linear", kernel=None) if affine else root
    raise failures[0]


def _difficulty(equation: sp.Expr, y: sp.Symbol, unknowns: set[sp.Symbol]) -> int:
    """0: linear in y, its coefficient free of unknowns; 1: no other unknown; 2: linear; 3: the rest."""
    slope = normal_form(derivative(equation, y))
    if not symbols_in(slope) & unknowns:
        return 0
    if not symbols_in(equation) & (unknowns - {y}):
        return 1
    return 3 if y in symbols_in(slope) else 2


# ---- the proof -------------------------------------------------------------------------------------


def _proved(g: sp.Expr, y: Sequence[sp.Symbol], steps: Sequence[Step], domain: Domain) -> Values:
    """The unknowns in x alone, once every equation is proved to hold."""
    values: Values = {}
    for s, root in reversed(steps):
        value = substitute(root.value, values)
        if _size(value) + domain.hidden_size(value) > MAX_SOLUTION_NODES:
            raise Unsolved("the solution is too large to write out")
        values[s] = shortest(value)
    known = _in_range([pair for _, root in steps for pair in root.ranges], values, domain)
    for s in y:
        equation = derivative(g, s)
        if not _holds(equation, values, known):
            raise Unsolved("was solved, but the proof by substitution failed", equation)
    return values


def _holds(equation: sp.Expr, values: Values, known: Values) -> bool:
    """Whether the equation vanishes at the values; ``known`` are the values of whole kernels there."""
    powers = {
        node: value ** (node.exp / kernel.exp)
        for kernel, value in known.items()
        if isinstance(kernel, sp.Pow)
        for node in postorder(equation)
        if isinstance(node, sp.Pow) and node.base == kernel.base and node.exp.is_Rational
    }
    try:
        return vanishes(substitute(equation, {**values, **known, **powers}))
    except TooLarge:
        what = "was solved, but the proof by substitution is too large"
        raise Unsolved(what, equation) from None


def _in_range(pairs: Sequence[tuple[sp.Expr, sp.Expr]], values: Values, domain: Domain) -> Values:
    """kernel -> value, proved to be in the range of the kernel: sqrt(y) = x means y = x**2 for x >= 0."""
    known: Values = {}
    for kernel, inner in pairs:
        value = substitute(inner, values)
        if isinstance(kernel, sp.Pow):
            low, high = sp.S.Zero, sp.oo
            gap = kernel.base - value ** (1 / kernel.exp)
        else:
            low, high = -sp.pi / 2, sp.pi / 2
            gap = kernel.args[0] - sp.tan(value)
        if not domain.proves_between(value, low, high):
            what = f"is solved only where the right side is in [{low}, {high}), which no box ensures"
            raise Unsolved(what, kernel - inner)
        if _holds(gap, values, {}):
            known[kernel] = value
    return known
