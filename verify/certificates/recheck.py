"""Proves a saved certificate again, from the text of its problem: ``python recheck.py FILE [--problem mine.toml]``.

This one file needs python-flint, and shares no code with the search. Nothing in a certificate is believed: cuts, points
and directions are hints; work is counted. f and g are evaluated in jets, Taylor series that hold over a box. The jet
of y* follows from that of grad_y g = 0, that of Phi is f at (x, y*(x)). Exit: 0 proved, 1 not proved, 2 bad input."""

# fmt: off
# ruff: noqa: E401, E701, E702, E704, I001, RUF017 (this file is to be read in one go: what is short stands in one line)
from __future__ import annotations; import ast, contextlib, flint, json, re, sys, tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence; from fractions import Fraction
from functools import lru_cache, partial, reduce; from math import comb, dist, factorial, hypot, prod
from itertools import combinations, combinations_with_replacement as multisets, product; from typing import Any
from pathlib import Path; from flint import arb, arb_mat, fmpq, fmpq_mpoly; __all__ = ["NotProved", "Refused", "prove"]
BITS, MOST_BITS, BOXES, POINTS, DEEPER, LARGEST, ZERO = 80, 200_000, 500_000, 2_000, 20, 2**24, fmpq(0)
BLOCKS = {  # what each number bounds: derivatives of f, of g, or of Phi (p), by their axes; z is (x, y)
    "block": {"mu": "g_yy", "ell": "f_xx f_xy f_yy g_xx g_xy g_yy", "rho": "f_xxx f_xxy f_xyy f_yyy g_xxy g_xyy g_yyy",
              "nu": "g_xxxy g_xxyy g_xyyy g_yyyy", "M": "f_x f_y", "g_y": "g_y"},
    "joint": {"mu": "g_yy", "ell": "f_zz g_zz", "rho": "f_zzz g_zzy", "nu": "g_zzzy", "M": "f_z", "g_y": "g_y"},
    "smoothness": {"grad_norm": "p_x", "L_phi": "p_xx", "rho_phi": "p_xxx"}}
FUNCTIONS = ("exp", "log", "sin", "cos", "tan", "tanh", "sinh", "cosh", "atan", "softplus", "sigmoid", "sqrt")
NUMBER = re.compile(r"[+-]?(\d+/0*[1-9]\d*|(\d+(\.\d*)?|\.\d+)([eE][+-]?[0-2]?\d{1,4})?)", re.ASCII)
SPOILT = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, SyntaxError, RecursionError, MemoryError)
Box = tuple[tuple[Any, Any], ...]; SIDES = {ast.Lt: (-1,), ast.LtE: (-1, 0), ast.Gt: (1,), ast.GtE: (0, 1)}  # signs
class Refused(ValueError): """The certificate, or the problem, is not one that can be read."""
class NotProved(Exception): """A claim of the certificate was not proved."""
class Lacking(Exception): """What an evaluation lacks to go on: a generator of its ring, or the side of an edge."""
def rational(value: object) -> Any:  # an exact number, from a whole number or text such as "1/3", "-0.25" or "1e-9"
    text = str(value) if type(value) in (int, str) else ""
    if len(text) > 20_000 or not NUMBER.fullmatch(text): raise Refused(f"{value!r:.60} is not a number")
    return fmpq(*Fraction(text).as_integer_ratio())
def text_of(path: str | Path) -> str:  # of a file as such: a device might never end, and a pipe never begin
    if not Path(path).is_file() or Path(path).stat().st_size > LARGEST: raise Refused("it is no file of at most 16 MB")
    return Path(path).read_text("utf-8-sig")
class Table(dict[str, Any]):  # of JSON: an entry that is missing, or of another type, is refused by its name
    def the(self, key: str, kind: type = str) -> Any:
        if not isinstance(self.get(key), kind): raise Refused(f"{key!r} is missing, or no {kind.__name__.lower()}")
        return self[key]
def certificate(path: str | Path) -> Table:
    read = json.loads(text_of(path), parse_int=str, parse_float=str, parse_constant=rational, object_hook=Table)
    if isinstance(read, Table) and read.the("format") == "bilevel-sym/saved/1": return read
    raise Refused("the format is unknown")
def over(f: Any, a: Any, name: str = "") -> Any:  # f is monotone, or cosh, sin, cos; of a polynomial: a generator
    if not isinstance(a, fmpq_mpoly):
        a = arb(a).abs_lower().union(arb(a).abs_upper()) if f is arb.cosh else arb(a)
        return f(a) if a.is_exact() or f in (arb.sin, arb.cos) else f(a.lower()).union(f(a.upper()))
    ring, label, c = a.context(), f"{name or f.__name__}({a})", a.leading_coefficient()
    value = f(arb(c)) if a.is_constant() else arb.nan()
    if f in (arb.sin, arb.cos) and c != 0 and str(a / c) == "pi(1)":
        value = (arb.sin_pi_fmpq if f is arb.sin else arb.cos_pi_fmpq)(c)
    if value.is_exact() and value.is_finite(): return ring.constant(value.fmpq())
    k = int(60 * c) if a.is_constant() and 60 % c.q == 0 and abs(c) < 99 else 1 if c > 0 else -1
    if f is arb.exp and k != 1: return whole_power(over(f, a / k), k)  # of one number, or of one without its sign
    if label not in ring.names(): raise Lacking(label)
    return ring.gens()[ring.names().index(label)]
def whole_power(a: Any, k: int) -> Any:  # a**k, multiplied out: python-flint's own power of a ball around zero is nan
    if isinstance(a, fmpq_mpoly):
        if comb(len(a) + abs(k), abs(k)) > 10**4: raise ArithmeticError("a polynomial is too long")
        return a**k if k >= 0 else (1 / a if a.is_constant() else over(lambda t: 1 / t, a, "inverse")) ** -k
    if k < 0 and not (a > 0 or a < 0): raise ArithmeticError("what is divided by may reach zero")
    if isinstance(a, fmpq) or k == 0: return a**k if k else fmpq(1)
    if k % 2 or a > 0 or a < 0 or a.is_exact(): return over(lambda t: prod([t] * k) if k > 0 else 1 / prod([t] * -k), a)
    return prod([a.abs_upper()] * k).union(0)
def by(a: Any, b: Any) -> Any:  # a product, of two wide balls by the ends of one: python-flint's own may lose the sign
    wide = isinstance(a, arb) and isinstance(b, arb) and a.rel_accuracy_bits() < 4 and b.rel_accuracy_bits() < 4
    return (a * b.lower()).union(a * b.upper()) if wide else a * b
def series(name: str, a: Any, order: int, r: Any = None) -> list[Any]:
    """Taylor coefficients at all points of a ball ("pow": of the power r); at a polynomial formal, defined or not."""
    formal, root = isinstance(a, fmpq_mpoly), int(r.q) if r else 1
    if not formal and (arb(a).cos().contains(0) if name == "tan" else (name == "log" or root > 1) and not a > 0):
        raise ArithmeticError("what a root or logarithm is taken of may reach zero, or a tangent its pole")
    if name == "pow":
        binomials = [prod(((r - i) / (i + 1) for i in range(k)), start=fmpq(1)) for k in range(order + 1)]
        a = over(lambda t: t.root(root), a, f"root{root}") if root > 1 else a
        return [whole_power(a, int((r - k) * root)) * b if b != 0 else b for k, b in enumerate(binomials)]
    if name in ("exp", "sin", "cos", "sinh", "cosh"):
        cycle = [over(arb.exp, a)] if name == "exp" else [over(arb.sinh, a), over(arb.cosh, a)]
        if name in ("sin", "cos"): cycle = [over(arb.sin, a), over(arb.cos, a), -over(arb.sin, a), -over(arb.cos, a)]
        return [cycle[(k + name.startswith("cos")) % len(cycle)] / factorial(k) for k in range(order + 1)]
    if name in ("tan", "tanh"):
        c, sign = [over(arb.tan if name == "tan" else arb.tanh, a)], 1 if name == "tan" else -1
        for k in range(order):
            square = sum(c[i] * c[k - i] for i in range(k + 1)) if k else whole_power(c[0], 2)
            c.append(((k == 0) + sign * square) / (k + 1))
        return c
    if name == "sigmoid": return [(c + (k == 0)) / 2 ** (k + 1) for k, c in enumerate(series("tanh", a / 2, order))]
    first, slopes = arb.log, series("pow", a, order, fmpq(-1)) if name == "log" else []
    if name == "atan":
        first, slopes = arb.atan, [whole_power(1 + whole_power(a, 2), -1)]
        for k in range(1, order): slopes.append(-(2 * a * slopes[-1] + (slopes[k - 2] if k > 1 else 0)) * slopes[0])
    elif name == "softplus":
        first, slopes = lambda t: t + (-t).exp().log1p() if t > 0 else t.exp().log1p(), series("sigmoid", a, order)
    return [over(first, a, name), *(slopes[k] / (k + 1) for k in range(order))]
class Jet:  # a power series: coefficients by degree and exponents, of three bits each (negative: to first order only)
    def __init__(self, value: Any, order: int, parts: list[dict[int, Any]] | None = None) -> None:
        zero = parts is None and not isinstance(value, fmpq_mpoly) and value == 0  # a ball that may be zero is not == 0
        self.parts = parts or [{} if zero else {0: value}, *({} for _ in range(order))]
        self.value = self.parts[0].get(0, ZERO)
    def plus(self, other: Jet, sign: int = 1) -> Jet:
        pairs = zip(self.parts, other.parts, strict=True)
        return Jet(0, 0, [p | {k: p.get(k, 0) + (c if sign > 0 else -c) for k, c in q.items()} for p, q in pairs])
    def union(self, other: Jet) -> Jet:
        pairs = [{k: (p.get(k, 0), q.get(k, 0)) for k in p | q} for p, q in zip(self.parts, other.parts, strict=True)]
        return Jet(0, 0, [{k: a if a == b else arb(a).union(arb(b)) for k, (a, b) in part.items()} for part in pairs])
    def times(self, other: Jet) -> Jet:
        if self is other: return self.through("pow", fmpq(2))
        if type(c := self.value) is fmpq and c != 0 and not any(self.parts[1:]):  # a number
            return other if c == 1 else Jet(0, 0, [{k: v * c for k, v in part.items()} for part in other.parts])
        parts: list[dict[int, Any]] = [{} for _ in other.parts]
        for i, mine in ((i, mine) for i, mine in enumerate(self.parts) if mine):
            for target, others in ((t, o) for t, o in zip(parts[i:], other.parts, strict=False) if o):
                for (first, a), (second, b) in product(mine.items(), others.items()):
                    if first >= 0 or second >= 0: target[first + second] = target.get(first + second, 0) + by(a, b)
        return Jet(0, 0, parts)
    def through(self, name: str, r: Any = None) -> Jet:  # a function of the jet, by Horner's rule in what is beside it
        order, rest = len(self.parts) - 1, [{}, *self.parts[1:]]  # which has no value: c_k counts up to order - k
        jets = [Jet(c, order - k) for k, c in enumerate(series(name, self.value, order if any(rest) else 0, r))]
        return reduce(lambda result, c: result.times(Jet(0, 0, rest[: len(c.parts)])).plus(c), reversed(jets))
    def power(self, exponent: Jet) -> Jet:  # a rational power as such, all others by exp and log
        v = exponent.value; r = v.leading_coefficient() if isinstance(v, fmpq_mpoly) and v.is_constant() else v
        if not isinstance(r, fmpq) or any(exponent.parts[1:]): return exponent.times(self.through("log")).through("exp")
        if abs(r) * len(str(self.value)) > 10**5 or abs(r) > 1000 or r.q > 9: raise Refused("an exponent is too large")
        return self.through("pow", r)
    def at(self, *index: int) -> Any:  # the derivative along the variables of the index
        c = self.parts[len(index)].get(sum(1 << 3 * i for i in index), fmpq(0))
        return c * prod(factorial(index.count(i)) for i in set(index))
def variables(names: Sequence[str], values: Iterable[Any], n: int, own: Any = range(10**6)) -> dict[str, Any]:
    """Where expressions are evaluated: jets of the variables, some of which move; "" is the order, "1" what is one."""
    parts = ([{0: v}, {1 << 3 * k: fmpq(1)} if k in own else {}] + [{} for _ in range(n)] for k, v in enumerate(values))
    return {"": n, "1": fmpq(1)} | {name: Jet(0, 0, part[: n + 1]) for name, part in zip(names, parts, strict=True)}
def evaluate(node: Any, at: Mapping[str, Any]) -> Any:  # in jets; Python has parsed it, our grammar is let through
    match node:
        case ast.Constant(value=fmpq() as number): return Jet(number * at["1"], at[""])
        case ast.Name(id=name) if name in at: return v if isinstance(v := at[name], Jet) else Jet(v * at["1"], at[""])
        case ast.Name(id="E"): return Jet(over(arb.exp, at["1"]), at[""])
        case ast.Name(id="pi"): return Jet(over(lambda _: arb.pi(), at["1"], "pi"), at[""])
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as op, operand=inner):
            return Jet(0, at[""]).plus(evaluate(inner, at), -1 if isinstance(op, ast.USub) else 1)
        case ast.BinOp(op=ast.Add() | ast.Sub() | ast.Mult() | ast.Div() | ast.Pow() as op, left=left, right=right):
            first, second = evaluate(left, at), evaluate(right, at)
            if isinstance(op, ast.Pow): return first.power(second)
            if isinstance(op, ast.Add | ast.Sub): return first.plus(second, 1 if isinstance(op, ast.Add) else -1)
            return first.times(second) if isinstance(op, ast.Mult) else second.through("pow", fmpq(-1)).times(first)
        case ast.Call(func=ast.Name(id="Piecewise"), args=pieces, keywords=[]):
            for value, test in (piece.elts for piece in pieces):
                match test:
                    case ast.Constant(value=True): return evaluate(value, at)
                    case ast.Compare(left=left, ops=[sign], comparators=[right]) if type(sign) in SIDES:
                        gap = evaluate(left, at).plus(evaluate(right, at), -1)
                        if at["?"](gap) in SIDES[type(sign)]: return evaluate(value, at)
                    case _: raise Refused(f"{ast.unparse(test)[:60]!r} is no condition")
            raise ArithmeticError("no condition of a Piecewise holds")
        case ast.Call(func=ast.Name(id="abs"), args=[inner], keywords=[]):
            return value if at["?"](value := evaluate(inner, at)) >= 0 else Jet(0, at[""]).plus(value, -1)
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[_, _, *_] as terms, keywords=[]):
            def better(a: Jet, b: Jet) -> Jet: return b if (at["?"](b.plus(a, -1)) < 0) is (name == "min") else a
            return reduce(better, (evaluate(term, at) for term in terms))
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in FUNCTIONS:
            return evaluate(inner, at).through(*(("pow", fmpq(1, 2)) if name == "sqrt" else (name,)))
    raise Refused(f"{ast.unparse(node)[:60]!r} is not in the grammar")
class Row:
    """f or g for one row of data; with switches, one of some smooth formulas at each point. Two that differ in the side
    of one edge only agree on it to one order less than is asked for: so far derivatives exist; the last are bounds."""
    def __init__(self, tree: Any, names: Sequence[str], numbers: Mapping[str, Any]) -> None:
        self.tree, self.names, self.numbers, self.found = tree, names, numbers, dict[Any, Any]()
    def formulas(self, box: Box, indices: Sequence[Sequence[int]]) -> list[Any]:
        # those of one index less have to be continuous; beyond the second order only those of g_y: the last one stays
        below = {(*i[:k], *i[k + 1 :]) for i in indices for k in range(len(i) - (len(i) > 2) or 1)}
        at = variables(self.names, balls(box), len(indices[0]), {k for i in indices for k in i})
        return self.agreeing(at, lambda along: max(sum(k in along for k in i) for i in below))
    def is_above(self, box: Box, own: Sequence[int], shift: Any, side: int = 1) -> bool:
        """Whether side times the Hessian along ``own`` plus shift I is positive definite over a box. Of what bends on
        one line only, as softplus(a.y + b), it is s a a': at least that of the least s. Intervals forget the one s."""
        at, names = {**self.numbers, **variables(self.names, balls(box), 2)}, {self.names[i] for i in own}
        total, waiting = arb_mat(len(own), len(own)), [(self.tree, side)]
        while waiting:
            match waiting.pop():
                case ast.BinOp(op=ast.Add() | ast.Sub() as op, left=left, right=right), sign:
                    waiting += [(left, sign), (right, sign if isinstance(op, ast.Add) else -sign)]
                case ast.UnaryOp(op=ast.USub(), operand=operand), sign: waiting.append((operand, -sign))
                case node, sign:
                    jet, a, inner = evaluate(node, at), list[Any](), [node]
                    while len(inner) == 1 and not a:  # down to the one place where y stands, as long as there is one
                        line, parts = evaluate(inner[0], at), ast.iter_child_nodes(inner[0])
                        if all(line.at(*pair) == 0 for pair in multisets(own, 2)): a = [line.at(i) for i in own]
                        inner = [p for p in parts if names & {n.id for n in ast.walk(p) if isinstance(n, ast.Name)}]
                    bend = arb_mat([[sign * arb(jet.at(i, j)) for j in own] for i in own])
                    k = next((i for i, c in enumerate(a) if c != 0 and all(isinstance(d, fmpq) for d in a)), None)
                    if k is not None: bend = (bend[k, k] / a[k] ** 2).lower() * arb_mat([[c * d for c in a] for d in a])
                    total += bend
        return definite(total, shift)
    def leaves(self, at: Mapping[str, Any], known: Mapping[Any, int]) -> list[Any]:  # all that may hold: sides and jets
        sides = list[int]()
        def side(gap: Jet) -> int:
            sign: int = (gap.value > 0) - (gap.value < 0)
            if not sign:
                edge, factor = self.kept(self.edge, tuple(sides))
                if factor and edge not in known: raise Lacking(edge)
                sign = factor and factor * known[edge]
            sides.append(sign); return sign
        if len(known) > 4: raise ArithmeticError("too many switches (abs, min, max, Piecewise) are open")
        try:  # of what holds on an edge only, the value
            flat = variables(self.names, [at[name].value for name in self.names], 0) if 0 in known.values() else at
            return [(known, evaluate(self.tree, {**self.numbers, **flat, "?": side}), tuple(sides))]
        except Lacking as lacking:
            return [leaf for sign in (-1, 0, 1) for leaf in self.leaves(at, {**known, lacking.args[0]: sign})]
    def jet(self, at: Mapping[str, Any], least: Any = None) -> Any: return hull(self.agreeing(at, least))
    def agreeing(self, at: Mapping[str, Any], least: Any) -> list[Any]:  # jets, and formulas, as if each held all over
        leaves, least = self.leaves(at, {}), least or (lambda _: at[""] - 1)
        for (a, _, one), (b, _, two) in combinations(leaves, 2):
            edge, *more = (edge for edge in a.keys() & b.keys() if a[edge] != b[edge])
            on, zeros = 0 in (a[edge], b[edge]), 0 in (*a.values(), *b.values())
            wanted = 0 if on else max(0, least(self.kept(self.along, "along", edge)))
            if not more and on >= zeros and self.kept(self.contact, one, two, edge) < wanted:
                raise ArithmeticError("a switch (abs, min, max, Piecewise) is open, and its two sides do not agree")
        def alone(s: Any, b: Box, n: int) -> Any: return self.formal(None, s, n, **variables(self.names, balls(b), n))
        return [(jet, partial(alone, sides)) for known, jet, sides in leaves if 0 not in known.values()]
    def kept(self, use: Callable[..., Any], *key: Any) -> Any:  # what is found, once, in polynomials in functions
        more = set[str]()
        while key not in self.found:
            try: self.found[key] = use(flint.fmpq_mpoly_ctx.get([*self.names, *sorted(more)], "lex"), *key)
            except Lacking as lacking: more.add(lacking.args[0])
        return self.found[key]
    def formal(self, ring: Any, sides: Sequence[int], order: int = 0, /, **given: Jet) -> Any:
        """The formula of some sides in polynomials; if it has one more switch, its gap: what it compares with zero."""
        gaps, one, gens = list[Any](), ring.constant(1) if ring else fmpq(1), ring.gens() if ring else ()
        def side(gap: Jet) -> int: gaps.append(gap.value * one); return sides[len(gaps) - 1]
        at = {name: Jet(v, order) for name, v in zip(self.names, gens, strict=False)}
        try: return evaluate(self.tree, {**self.numbers, "": order, "1": one, **at, **given, "?": side})
        except IndexError: return gaps[-1]
    def edge(self, ring: Any, sides: tuple[int, ...]) -> tuple[Any, int]:  # of the next switch, by its first sides
        c = (gap := self.formal(ring, sides)).leading_coefficient()
        return self.found.setdefault(str(gap / c) if c != 0 else "0", sides), (c > 0) - (c < 0)
    def along(self, ring: Any, _: str, edge: Sequence[int]) -> set[int]:  # the variables on which an edge depends
        used = " ".join(name for name, d in zip(ring.names(), self.formal(ring, edge).degrees(), strict=True) if d)
        return {k for k, name in enumerate(self.names) if name in re.findall(r"\w+", used)}
    def contact(self, ring: Any, one: Sequence[int], two: Sequence[int], edge: Sequence[int]) -> int:
        """To which order (5 at most; -1: none) two formulas agree on an edge: by series in its gap, or by division."""
        def apart(n: int, /, **v: Jet) -> Any:
            return self.formal(ring, one, n, **v).plus(self.formal(ring, two, n, **v), -1)
        gap, k = self.formal(ring, edge), 0
        within = " ".join(g for g, d in zip(ring.names(), gap.degrees(), strict=True) if d and "(" in g)
        for name, v in zip(self.names, ring.gens(), strict=False):
            if (slope := gap.derivative(name)) != 0 and slope.is_constant() and name not in re.findall(r"\w+", within):
                parts = apart(5, **{name: Jet(0, 0, [{0: v - gap / slope}, {1: 1 / slope}, {}, {}, {}, {}])}).parts
                return next((k for k, part in enumerate(parts) if any(plain(c) != 0 for c in part.values())), 6) - 1
        rest = apart(0).value + 0 * gap
        while k < 6 and plain((shared := divmod(rest, gap))[1]) == 0: rest, k = shared[0], k + 1
        return k - 1
def hull(pairs: Iterable[Any]) -> Any: return reduce(Jet.union, (jet for jet, _ in pairs))
def plain(p: Any) -> Any:  # a polynomial without products of a generator and its inverse
    gens = dict(zip(p.context().names(), p.context().gens(), strict=True)) if isinstance(p, fmpq_mpoly) else {}
    ones = (g * gens[f"inverse({name})"] - 1 for name, g in gens.items() if f"inverse({name})" in gens)
    return reduce(lambda rest, one: divmod(rest, one)[1], ones, p)
def length(entries: Iterable[Any]) -> Any: return sum((arb(e) * e for e in entries), arb(0)).sqrt()
def balls(box: Box) -> list[Any]: return [a if a == b else arb((a + b) / 2, (b - a) / 2) for a, b in box]
def inside(p: Box, q: Box) -> bool: return all(c <= a and b <= d for (a, b), (c, d) in zip(p, q, strict=True))
def overlap(p: Box, q: Box) -> bool: return all(a <= d and c <= b for (a, b), (c, d) in zip(p, q, strict=True))
def cut(box: Box, axis: int, at: Any = None) -> list[Box]:  # in two, the upper part first
    (a, b), at = box[axis], sum(box[axis]) / 2 if at is None else at
    return [(*box[:axis], ends, *box[axis + 1 :]) for ends in ((at, b), (a, at))]
def split(box: Box) -> tuple[Box, Any]:  # the centre, and the column of what is beside it
    return tuple(((a + b) / 2,) * 2 for a, b in box), arb_mat([[arb(0, (b - a) / 2)] for a, b in box])
def definite(matrix: Any, shift: Any = 0) -> bool:  # all symmetric matrices inside, plus shift times I: by their pivots
    n, m = matrix.nrows(), matrix.mid().tolist()  # radii r_ij take at most (x_i^2 + x_j^2) r_ij / 2
    for k in range(n): m[k][k] += shift - sum(max(matrix[k, j].rad(), matrix[j, k].rad()) for j in range(n))
    for k in range(n):
        if not (m[k][k] > 0 and m[k][k].is_finite()): return False
        for i, j in multisets(range(k + 1, n), 2): m[i][j] = m[j][i] = m[i][j] - m[k][i] * m[k][j] / m[k][k]
    return True
def norm_fits(tensor: Sequence[Any], shape: Sequence[int], bound: Any) -> bool:
    """Whether |T[u, v, ...]| <= bound for all unit vectors: by a matrix that T unfolds into, or by cones of u."""
    tensor, less = [t.mid() for t in tensor], length(t.rad() for t in tensor)
    bound, shape = (bound - less).lower(), [n for n in shape if n > 1]
    order, steps = len(shape), [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    if all(t == 0 for t in tensor) or not bound > 0: return bool(bound >= 0) and all(t == 0 for t in tensor)
    ranges = [range(0, n * step, step) for n, step in zip(shape, steps, strict=True)]
    for rows in (chosen for count in range(order // 2 + 1) for chosen in combinations(range(order), count)):
        across = [sum(at) for at in product(*(ranges[axis] for axis in range(order) if axis not in rows))]
        flat = arb_mat([[tensor[sum(at) + k] for k in across] for at in product(*(ranges[axis] for axis in rows))])
        if definite(-1 * min(flat * (t := flat.transpose()), t * flat, key=arb_mat.nrows), bound * bound): return True
    likely = [*map(float, tensor)]  # along likely directions: what is too large there needs no cones
    for n, u in ((n, [sum(likely[k::n]) for k in range(n)]) for n in reversed(shape if order > 2 else [])):
        likely = [sum(map(float.__mul__, likely[k : k + n], u)) / (hypot(*u) or 1) for k in range(0, len(likely), n)]
    if order > 2 and abs(likely[0]) > bound: return False
    signs = product((1, -1) if any(t < 0 for t in tensor) else (1,), repeat=shape[0] - 1) if order > 2 else ()
    cones = [[[fmpq(s * (i == k)) for i in range(shape[0])] for k, s in enumerate((1, *sign))] for sign in signs]
    return bool(cones) and all(cone_fits(arb_mat(shape[0], steps[0], tensor), shape[1:], bound, c, 24) for c in cones)
def cone_fits(matrix: Any, shape: Sequence[int], bound: Any, cone: Sequence[Sequence[Any]], deeper: int) -> bool:
    """The same for unit vectors u = sum of a_i v_i of the first axis, a_i >= 0; v_i exact, or halves might not meet.
    |T[u]| is convex: at most the largest |T[v_i]| times sum a_i, and that is at most |z| for the z with z.v_i = 1."""
    scale = length(arb_mat(cone).solve(arb_mat([[1] for _ in cone])).entries())
    large = [p for p in (arb_mat(cone) * matrix).tolist() if not norm_fits(p, shape, (bound / scale).lower())]
    if not large or not all(norm_fits(part, shape, bound * arb(1.000001)) for part in large): return not large
    gap, i, j = max((dist(*(map(float, cone[k]) for k in p)), *p) for p in combinations(range(len(cone)), 2))
    half = [(a + b) * fmpq(round(2**40 / (4 - gap**2) ** 0.5), 2**40) for a, b in zip(cone[i], cone[j], strict=True)]
    parts = [[half if k == gone else v for k, v in enumerate(cone)] for gone in (i, j)]
    return deeper > 0 and all(cone_fits(matrix, shape, bound, part, deeper - 1) for part in parts)
def read(jet: Jet, indices: Sequence[Sequence[int]]) -> list[Any]: return [arb(jet.at(*index)) for index in indices]
def expanded(formula: Any, box: Box, indices: Any, order: int) -> Any:  # by Taylor's formula; and how it moves by axis
    every, (centre, away), m, values = range(len(box)), split(box), len(indices[0]) + order, [arb(0)] * len(indices)
    jet, inner, lines = formula(box, m), formula(centre, m - 1), list[Any]()
    for rest in (rest for n in range(order + 1) for rest in multisets(every, n)):
        step = prod((whole_power(away[k, 0], n := rest.count(k)) / factorial(n) for k in {*rest}), start=arb(1))
        found = read(jet if len(rest) == order else inner, [(*index, *rest) for index in indices])
        if len(rest) == 1: lines.append([f.mid() for f in found]); found = [f - f.mid() for f in found]
        values = [value + step * f for value, f in zip(values, found, strict=True)]
    ends, moves = [values], [[away[k, 0] * f for f in read(jet, [(*i, k) for i in indices])] for k in every]
    for k, row in ((k, row) for k, row in enumerate(lines) if not all(c == 0 for c in row)):  # to its linear corners
        sides = (r := away[k, 0].abs_upper(), -r) if len(ends) < 16 else (away[k, 0],)
        ends = [[v + s * c for v, c in zip(end, row, strict=True)] for end in ends for s in sides]
    return ends, [float(length(map(arb.abs_upper, each)).abs_upper()) for each in moves]
def parsed(text: str) -> Any:  # the tree of an expression, its decimals exact
    if not text.isascii() or len(text) > 200_000 or set(text) & set("#\\\"'[]{};:@"): raise Refused("no ASCII formula")
    tree = ast.parse(line := " ".join(text.split()), mode="eval").body
    numbers = [node for node in ast.walk(tree) if isinstance(node, ast.Constant) and node.value is not True]
    for node in numbers: node.value = rational(line[node.col_offset : node.end_col_offset])
    return tree
class Problem:  # f and g for each row of data, y* (g is assumed strongly convex in y) and Phi; ``near``: a guess
    def __init__(self, text: str, near: Mapping[str, Any] | None = None) -> None:
        table: Any = {"kind": "bilevel", "parameters": {}, "name": "", "box": {}} | tomllib.loads(text, parse_float=str)
        kind, data, self.rows = table["kind"], table.get("data", {}), dict[str, list[Row]]()
        extra = {"bilevel": {"g"}, "minimax": set(), "stochastic": {"g", "xi", "zeta", "data"}}[kind]
        if set(table) != {"kind", "parameters", "name", "box", "x", "y", "f"} | extra: raise Refused("a key is wrong")
        lists = [table.get(key, []) for key in ("x", "y", "xi", "zeta")]; self.y_star = lru_cache(4)(self.enclosed)
        self.x, self.y, xi, zeta = (v.replace(",", " ").split() if isinstance(v, str) else v for v in lists)
        self.names, numbers = self.x + self.y, {name: rational(v) for name, v in table["parameters"].items()}
        self.near = arb_mat([[rational(near[name] if near and name in near else 0)] for name in self.y])
        self.own, taken = range(len(self.x), len(self.names)), [*self.names, *xi, *zeta, *numbers]
        if len(set(taken)) < len(taken) or not all(re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) for name in taken):
            raise Refused("a name of the problem is none, or stands twice")
        for key, noise, drawn in (("f", xi, data.get("xi")), ("g", zeta, data.get("zeta"))):
            tree = parsed(table[key] if key in table else f"-({table['f']})")  # minimax: g = -f
            data = (dict(zip(noise, map(rational, row), strict=True)) for row in drawn or [[]])
            self.rows[key] = [Row(tree, self.names, numbers | row) for row in data]
    def value(self, key: str, at: Mapping[str, Any], order: int) -> Any:  # the mean of all rows of f or g
        at = {**at, "": order} | {name: Jet(0, 0, at[name].parts[: order + 1]) for name in self.names}
        def due(along: set[int]) -> int: return order - 1 - (key == "g" and along.isdisjoint(self.own))  # of grad_y g
        return Jet(fmpq(1, len(rows := self.rows[key])), order).times(reduce(Jet.plus, (r.jet(at, due) for r in rows)))
    def lower(self, x: Sequence[Any], y: Any, *along: Iterable[int]) -> list[Any]:  # grad_y g, and how it moves along
        jet = self.value("g", variables(self.names, [*x, *y.entries()], 2, {*self.own}.union(*along)), 2)
        groups = [()], *([(k,) for k in group] for group in along)
        return [arb_mat([[jet.at(j, *k) for k in group] for j in self.own]) for group in groups]
    def enclosed(self, box: Box) -> Any:  # y*(x) for all x of a box: Newton in the centre, then a mean g_yy over all
        c, away, x, y = [(a + b) / 2 for a, b in box], split(box)[1], balls(box), self.near
        for left in reversed(range(80)):
            grad, hess = self.lower(c, y, self.own); inverse = hess.mid().inv().mid()
            step, tiny = inverse * grad, arb(2) ** (12 - flint.ctx.prec) * (1 + length(y.entries()))
            if not left or length(step.mid().entries()) < max(tiny, length(a.rad() for a in away.entries()) / 99): break
            y = (y - step).mid()
        _, slope, hess = self.lower(x, y, range(len(self.x)), self.own)
        self.near, step, moved = y, inverse * (grad + slope * away), 0 * grad
        for _ in range(8):  # y* is a fixed point of y - S(y*)^-1 g_y(x, y): there is one where all images are inside
            image = (inverse * hess).solve(-1 * step)
            if all(map(arb.contains, moved.entries(), image.entries())): return y + image
            moved = arb_mat([[arb(0, i.abs_upper() * arb(1.1) + tiny)] for i in image.entries()])
            hess = self.lower(x, y + moved, self.own)[1]
        raise ArithmeticError("y* was not enclosed")
    def formulas(self, box: Box, indices: Any) -> Any: return [(self.jet(box, len(indices[0])), self.jet)]
    def jet(self, box: Box, order: int) -> Any:  # Taylor coefficients of Phi; those of y* order by order, linearly
        x, y, d, n = balls(box), self.y_star(box), len(self.x), len(self.y); g_yy = self.lower(x, y, self.own)[1]
        if not definite(g_yy): raise ArithmeticError("g_yy was not proved to be positive definite")
        inverse = g_yy.mid().inv().mid() if n > 1 else arb_mat([[whole_power(g_yy[0, 0], -1)]])
        at = variables(self.names, [*x, *y.entries()], order + 1, range(d)); parts = [at[name].parts for name in self.y]
        for j in range(n): parts[j][1][-(j + 1 << 3 * d)] = fmpq(1)  # along y, to the first order
        for k in range(1, order + 1):
            g = self.value("g", at, k + 1)
            for key in (sum(1 << 3 * i for i in index) for index in multisets(range(d), k)):
                right = inverse * arb_mat([[g.parts[k + 1].get(key - (j + 1 << 3 * d), fmpq(0))] for j in range(n)])
                found = (inverse * g_yy).solve(right) if n > 1 else right
                for part, v in zip(parts, found.entries(), strict=True): part[k] |= {} if v == 0 else {key: -v}
        return self.value("f", at, order)
    def newton(self, box: Box) -> tuple[Any, Any]:  # Krawczyk's image, with all zeros of grad Phi, and Hess Phi
        d, (centre, away) = range(len(self.x)), split(box); jet, first = self.jet(box, 2), self.jet(centre, 1)
        hess, grad = arb_mat([[jet.at(i, j) for j in d] for i in d]), arb_mat([[first.at(i)] for i in d])
        if not all(arb(jet.at(i)).contains(0) and (grad + hess * away)[i, 0].contains(0) for i in d): return None, hess
        inverse = hess.mid().inv().mid()
        return arb_mat([[c] for c, _ in centre]) - inverse * grad + (1 - inverse * hess) * away, hess
class Checker:  # one certificate, one problem; ``sentences`` and ``numbers`` are what has been proved so far
    def __init__(self, problem: Problem, content: Table) -> None:
        self.problem, self.content, self.kind, self.boxes = problem, content, content.the("kind"), 0
        self.names, self.numbers = problem.names if self.kind in ("block", "joint") else problem.x, dict[str, Any]()
        self.box = box = self.region(content.the("box", Table))
        self.sentences = [f"over {', '.join(f'{v} in [{a}, {b}]' for v, (a, b) in zip(self.names, box, strict=True))}:"]
    def region(self, table: Mapping[str, Any]) -> Box:
        ends = tuple((rational(a), rational(b)) for a, b in (Table(table).the(name, list) for name in self.names))
        if len(table) != len(ends) or any(a > b for a, b in ends): raise Refused("a box is none of the problem")
        return ends
    def cover(self, what: str, cuts: str, test: Callable[[Box], Any]) -> Any:  # a test says where to cut
        if len(cuts) > 9 * BOXES: raise Refused(f"{what} has more than {BOXES} cuts")
        words, waiting = iter(cuts.split()), [(self.box, 0)]
        while waiting:
            (box, deeper), self.boxes = waiting.pop(), self.boxes + 1
            where = test(box) if (word := "." if deeper else next(words, "none")) == "." else (int(word), None)
            if where and (self.boxes > BOXES or deeper > DEEPER * len(box) or not 0 <= where[0] < len(box)):
                raise NotProved(f"{what} was not proved where {', '.join(f'[{float(a)}, {float(b)}]' for a, b in box)}")
            waiting += [(half, deeper + (word == ".")) for half in cut(box, *where)] if where else []
    def widest(self, box: Box) -> tuple[int, Any]:
        shares = [(b - a) / (d - c) if d > c else fmpq(0) for (a, b), (c, d) in zip(box, self.box, strict=True)]
        return shares.index(max(shares)), None
    def bounded(self, name: str, claim: Any, key: str, row: Any, indices: Any, shape: Sequence[int]) -> Any:
        """The norm is at most the upper end all over the box; of mu the smallest eigenvalue at least the lower one."""
        bound = arb(-rational(claim["lower"]) if name == "mu" else rational(claim["upper"]))
        own, even = sorted({k for i in indices for k in i}), len(shape) == 2 and indices[0][0] == indices[0][1]
        sides = (1, -1)[: 1 if name == "mu" else 2] if even and self.kind in ("block", "joint") else ()
        def above(e: Any) -> bool: return definite(arb_mat(*shape, e), bound)
        def small(e: Any) -> bool: return any(norm_fits(t, shape, bound) for t in ([v.abs_upper() for v in e], e))
        fits, order = above if name == "mu" else small, 3 if len(self.box) == 2 and self.kind != "smoothness" else 1
        def test(box: Box) -> Any:
            try:
                pairs = row.formulas(box, indices); near = read(hull(pairs), indices)
                if fits(near): return None
                with contextlib.suppress(LookupError):  # which is what a switch leads to there
                    if sides and all(row.is_above(box, own, bound, side) for side in sides): return None
                at, moves = zip(*(expanded(formula, box, indices, order) for _, formula in pairs), strict=True)
                if fits([*map(arb.intersection, near, map(lambda *v: reduce(arb.union, v), *sum(at, [])))]): return None
                if all(map(fits, sum(at, []))): return None  # and so does what is between: norms are convex
            except ArithmeticError: return self.widest(box)  # what is undefined here may be defined on both halves
            sizes = [*map(sum, zip(*moves, strict=True))]
            return (sizes.index(max(sizes)), None) if any(sizes) else self.widest(box)
        covers = claim.the("covers", Table); return self.cover(name, covers.the(key) if key in covers else ".", test)
    def attained(self, name: str, claim: Any, row: Any, indices: Any) -> None:  # at a point, along directions given
        point = self.region({key: [value, value] for key, value in claim.the("point", Table).items()})
        found, size = read(hull(row.formulas(point, indices)), indices), arb(1)
        for vector in reversed([[rational(v) for v in vector] for vector in claim.the("directions", list)]):
            size, n = size * length(vector), len(vector)
            found = [sum(map(arb.__mul__, found[k : k + n], vector), arb(0)) for k in range(0, len(found), n)]
        got, end = (-found[0], -rational(claim["upper"])) if name == "mu" else (abs(found[0]), rational(claim["lower"]))
        if len(found) > 1 or not (size > 0 and got >= end * size and inside(point, self.box)):
            raise NotProved(f"{name} was not proved to reach its claimed end at the point given")
    def blocks(self, name: str) -> dict[str, Any]:  # of a number, for every row of data: its row, indices and shape
        axes = {"x": range(len(self.problem.x)), "y": self.problem.own, "z": range(len(self.problem.names))}
        rows = {key: {str(row.numbers): row for row in rows}.values() for key, rows in self.problem.rows.items()}
        def block(b: str, row: Any) -> Any: return row, [*product(*(axes[a] for a in b))], [len(axes[a]) for a in b]
        each = ((b, enumerate(rows.get(b[0], [self.problem]))) for b in BLOCKS[self.kind][name].split())
        return {f"{b} {k}": block(b[2:], row) for b, rows in each for k, row in rows}
    def brackets(self) -> None:  # every block is bounded; the other end is attained by one
        for name in BLOCKS[self.kind]:
            claim, rows = self.content.the("claims", Table).the(name, Table), self.blocks(name)
            if (claim.the("lower") != "-inf") if name == "mu" else (claim.the("upper") != "inf"):
                for key, block in rows.items(): self.bounded(name, claim, key, *block)
            if name == "mu" or rational(claim.the("lower")) > 0: self.attained(name, claim, *rows[claim.the("at")][:2])
            self.numbers[name] = (claim["lower"], claim["upper"])
            self.sentences.append(f"{name} is in [{claim['lower']}, {claim['upper']}]")
    def stationary(self) -> None:  # each point is the one zero of grad Phi in its box; others are in open boxes
        points, gaps = (self.content.the(key, list) for key in ("points", "undecided"))
        if len(points + gaps) > POINTS: raise Refused(f"it has more than {POINTS} points and open boxes")
        alone, near = ([self.region(point.the(key, Table)) for point in points] for key in ("alone", "near"))
        for point, outer, inner in zip(points, alone, near, strict=True):
            for box in (outer, inner):
                image, hess = self.problem.newton(box)
                if image is None or not all(a < i < b for i, (a, b) in zip(image.entries(), box, strict=True)):
                    raise NotProved(f"that there is one stationary point in {point['alone']} was not proved")
            rows = [arb_mat([[*map(rational, v)]]) for v in point.the("directions", list)]
            signs = {s > 0 for s in ((u * hess * u.transpose())[0, 0] for u in rows) if s > 0 or s < 0}
            shown = {"local minimum": definite(hess), "local maximum": definite(-1 * hess), "saddle": len(signs) == 2}
            if not (inside(inner, outer) and overlap(inner, self.box) and (shown | {"undecided": True})[point["kind"]]):
                raise NotProved(f"the kind or the place of the stationary point in {point['near']} was not proved")
            self.sentences.append(f"one stationary point in {point['near']}, kind: {point['kind']}")
        if any(overlap(*pair) for pair in combinations(near, 2)): raise NotProved("two stationary points may be one")
        done = alone + [self.region(box) for box in gaps]
        def test(box: Box) -> Any:
            if any(inside(box, other) for other in done): return None
            for k, at in ((k, at) for o in done if overlap(o, box) for k, ends in enumerate(o) for at in ends):
                if box[k][0] < at < box[k][1]: return k, at  # a piece is cut along the sides of what is done
            try: image = self.problem.newton(box)[0]
            except ArithmeticError: return self.widest(box)
            gone = image is None or any(i < a or i > b for i, (a, b) in zip(image.entries(), box, strict=True))
            return None if gone else self.widest(box)
        self.cover("that there are no other stationary points", ".", test)
        self.numbers |= {"points": points, "undecided": gaps}
        self.sentences.append(f"no other stationary points in the box outside of {len(done[len(alone):])} open boxes")
    def point(self) -> None:  # y*, Phi, grad Phi and Hess Phi at one point, each within its radius of what is claimed
        flint.ctx.prec = min(MOST_BITS, int(self.content.the("bits")))
        jet, x = self.problem.jet(self.box, 3), list(enumerate(self.names))
        found = {f"{name}*": v for name, v in zip(self.problem.y, self.problem.y_star(self.box).entries(), strict=True)}
        found |= {"Phi": jet.at()} | {f"dPhi/d{a}": jet.at(i) for i, a in x}
        found |= {f"d2Phi/d{a}d{b}": jet.at(i, j) for (i, a), (j, b) in product(x, x)}
        for name, value in found.items():
            centre, radius = self.numbers[name] = self.content.the("claims", Table).the(name, list)
            if not (abs(value - rational(centre)) <= rational(radius) and all(a == b for a, b in self.box)):
                raise NotProved(f"{name} was not proved to be {centre} to within {radius}")
            self.sentences.append(f"{name} = {centre} to within {radius}")
def prove(path: str | Path | Table, problem: str | None = None) -> dict[str, Any]:
    """Prove a certificate again; ``problem`` is the text of the consumer's problem file (else the certificate's)."""
    depth = sys.getrecursionlimit(); sys.setrecursionlimit(5000)  # a long sum is a deep tree
    try:
        with flint.ctx.workprec(BITS):
            content = path if isinstance(path, Table) else certificate(path)
            checker = Checker(Problem(problem or content.the("problem"), content.the("near", Table)), content)
            {"stationary": checker.stationary, "point": checker.point}.get(checker.kind, checker.brackets)()
            return {key: getattr(checker, key) for key in ("kind", "sentences", "numbers", "boxes")}
    except (OSError, *SPOILT) as error: raise Refused(f"{error!s:.200}") from None
    finally: sys.setrecursionlimit(depth)
def main(words: Sequence[str]) -> int:
    try: print(*prove(words[0], text_of(words[2]) if words[1:2] == ["--problem"] else None)["sentences"], sep="\n")
    except (OSError, ValueError, IndexError, NotProved) as error:
        print(f"{'not proved' if isinstance(error, NotProved) else 'error'}: {error}", file=sys.stderr)
        return 1 if isinstance(error, NotProved) else 2
    return 0
if __name__ == "__main__": raise SystemExit(main(sys.argv[1:]))
