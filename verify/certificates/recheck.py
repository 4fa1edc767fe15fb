"""Proves a saved certificate again, from the text of its problem: ``python recheck.py FILE [--problem mine.toml]``.

This one file needs Python and python-flint, and shares no code with the search that wrote the certificate. Nothing
that a certificate says is believed: cuts, points and directions are hints. Work is counted, not timed.

f and g are evaluated in jets, truncated Taylor series whose coefficients hold the truth for all points of a box.
The jet of y* follows from that of grad_y g = 0 order by order, and that of Phi is f at (x, y*(x)): no formula for a
hypergradient is used. That g is strongly convex in y is assumed, so that the minimum proved here is the only one.
Exit codes: 0 proved, 1 not proved, 2 bad input.
"""

from __future__ import annotations

import ast
import json
import re
import sys
import tomllib
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from itertools import combinations, combinations_with_replacement, product
from math import factorial, prod
from pathlib import Path
from typing import Any

import flint
from flint import arb, arb_mat, fmpq

__all__ = ["NotProved", "Proved", "Refused", "prove"]

BITS, MOST_BITS, BOXES, DEEPER, CONES, LARGEST = 80, 200_000, 200_000, 26, 1500, 2**26
READINGS = {
    "block": {"mu": "g_yy", "ell": "f_xx f_xy f_yy g_xx g_xy g_yy", "rho": "f_xxx f_xxy f_xyy f_yyy g_xxy g_xyy g_yyy",
              "nu": "g_xxxy g_xxyy g_xyyy g_yyyy", "M": "f_x f_y", "g_y": "g_y"},
    "joint": {"mu": "g_yy", "ell": "f_zz g_zz", "rho": "f_zzz g_zzy", "nu": "g_zzzy", "M": "f_z", "g_y": "g_y"},
}  # fmt: skip
FUNCTIONS = ("exp", "log", "sin", "cos", "tan", "tanh", "sinh", "cosh", "atan", "softplus", "sigmoid", "sqrt")
NUMBER = re.compile(r"([+-]?)(\d*)(?:/(\d+)|(?:\.(\d*))?(?:[eE]([+-]?\d{1,6}))?)", re.ASCII)
SPOILT = (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, SyntaxError, RecursionError, MemoryError)
Box = tuple[tuple[Any, Any], ...]  # exact rational ends
Field = Callable[[Box, int], "Jet"]  # a function of the variables: its jets over boxes, to an order


class Refused(ValueError):
    """The certificate, or the problem, is not one that can be read."""


class NotProved(ValueError):
    """A claim of the certificate was not proved."""


@dataclass(frozen=True)
class Proved:
    """What was proved: sentences and the numbers in them; ``boxes`` counts the pieces that the box was cut into."""

    kind: str
    sentences: tuple[str, ...]
    numbers: Mapping[str, Any]
    boxes: int


@lru_cache(4096)
def rational(value: object) -> Any:
    """An exact number, from a whole number or text such as "1/3", "-0.25" or "1e-9"."""
    text = str(value) if isinstance(value, (int, str)) and not isinstance(value, bool) else ""
    found = NUMBER.fullmatch(text) if len(text) <= 20_000 else None
    sign, whole, below, places, power = found.groups() if found else ("", "", "", "", "")
    if not (whole or places) or (below and not (whole and int(below))) or abs(int(power or 0)) > 30_000:
        raise Refused(f"{value!r:.60} is not a number")
    size = fmpq(int(whole + (places or "")), int(below or 1)) * fmpq(10) ** (int(power or 0) - len(places or ""))
    return -size if sign == "-" else size


def over(f: Callable[[Any], Any], a: Any) -> Any:
    """A monotone function over a ball: the hull of its values at both ends."""
    return f(a) if a.is_exact() else f(a.lower()).union(f(a.upper()))


def whole_power(a: Any, k: int) -> Any:
    """a**k, multiplied out: python-flint's own power of a ball around zero is nan."""
    if k < 0 and not (a > 0 or a < 0):
        raise ArithmeticError("a denominator, or what a root or logarithm is taken of, may reach zero")
    if isinstance(a, fmpq) or k == 0:
        return a**k
    if k % 2 or a > 0 or a < 0 or a.is_exact():
        return over(lambda t: prod([t] * k) if k > 0 else 1 / prod([t] * -k), a)
    return prod([a.abs_upper()] * k).union(0)


def series(name: str, a: Any, order: int, r: Any = None) -> list[Any]:
    """The Taylor coefficients of a function at all points of a ball; "pow" is the power with exponent r."""
    if name == "pow":
        binomials = [prod(((r - i) / (i + 1) for i in range(k)), start=fmpq(1)) for k in range(order + 1)]
        if r.q > 1:
            a = over(lambda t: t.root(int(r.q)), arb(a) if a > 0 else whole_power(fmpq(0), -1))
        return [whole_power(a, int((r - k) * r.q)) * b if b != 0 else b for k, b in enumerate(binomials)]
    a = arb(a)
    if name in ("exp", "sin", "cos", "sinh", "cosh"):
        even = over(arb.cosh, a.abs_lower().union(a.abs_upper())) if name.endswith("h") else a.cos()
        cycle = [a.sin(), even, -a.sin(), -even] if name in ("sin", "cos") else [over(arb.sinh, a), even]
        cycle = [over(arb.exp, a)] if name == "exp" else cycle
        return [cycle[(k + name.startswith("cos")) % len(cycle)] / factorial(k) for k in range(order + 1)]
    if name in ("tan", "tanh"):
        whole_power(a.cos() if name == "tan" else fmpq(1), -1)  # no pole
        found, sign = [over(arb.tan if name == "tan" else arb.tanh, a)], 1 if name == "tan" else -1
        for k in range(order):
            square = sum(found[i] * found[k - i] for i in range(k + 1)) if k else whole_power(found[0], 2)
            found.append(((k == 0) + sign * square) / (k + 1))
        return found
    if name == "sigmoid":
        return [(c + (k == 0)) / 2 ** (k + 1) for k, c in enumerate(series("tanh", a / 2, order))]
    if name == "log":
        first, slopes = arb.log, series("pow", a if a > 0 else fmpq(0), order, fmpq(-1))
    elif name == "atan":
        first, slopes = arb.atan, [whole_power(1 + whole_power(a, 2), -1)]
        for k in range(1, order):
            slopes.append(-(2 * a * slopes[-1] + (slopes[k - 2] if k > 1 else 0)) * slopes[0])
    else:
        first, slopes = lambda t: t + (-t).exp().log1p() if t > 0 else t.exp().log1p(), series("sigmoid", a, order)
    return [over(first, a), *(slopes[k] / (k + 1) for k in range(order))]


class Jet:
    """A truncated power series: for each degree, coefficients by exponents, of which each has three bits."""

    def __init__(self, value: Any, order: int, parts: list[dict[int, Any]] | None = None) -> None:
        # a ball that holds zero is neither == 0 nor != 0
        self.parts = parts or [{} if value == 0 else {0: value}, *({} for _ in range(order))]
        self.value = self.parts[0].get(0, fmpq(0))

    def plus(self, other: Jet, sign: int = 1) -> Jet:
        parts = [dict(part) for part in self.parts]
        for mine, others in zip(parts, other.parts, strict=True):
            for key, c in others.items():
                mine[key] = mine.get(key, 0) + (c if sign > 0 else -c)
        return Jet(0, 0, parts)

    def times(self, other: Jet) -> Jet:
        if self is other:
            return self.through("pow", fmpq(2))
        parts: list[dict[int, Any]] = [{} for _ in self.parts]
        for i, mine in enumerate(self.parts):
            for target, others in zip(parts[i:], other.parts, strict=False):
                for (first, a), (second, b) in product(mine.items(), others.items()):
                    target[first + second] = target.get(first + second, 0) + a * b
        return Jet(0, 0, parts)

    def through(self, name: str, r: Any = None) -> Jet:
        """A function of the jet, by Horner's rule in what is beside its value."""
        order, rest = len(self.parts) - 1, Jet(0, 0, [{}, *self.parts[1:]])
        taylor = series(name, self.value, order if any(rest.parts) else 0, r)
        result = Jet(taylor[-1], order)
        for c in reversed(taylor[:-1]):
            result = result.times(rest).plus(Jet(c, order))
        return result

    def at(self, *index: int) -> Any:
        """The derivative along the variables of the index."""
        c = self.parts[len(index)].get(sum(1 << 3 * i for i in index), fmpq(0))
        return c * prod(factorial(index.count(i)) for i in set(index))


def variables(names: Sequence[str], values: Iterable[Any], order: int) -> dict[str, Any]:
    """Where expressions are evaluated: the jets of the variables, and their order under ""."""
    tails = [[{1 << 3 * k: fmpq(1)}, *({} for _ in range(order - 1))][:order] for k in range(len(names))]
    return {"": order} | {name: Jet(0, 0, [{0: v}, *tail]) for name, v, tail in zip(names, values, tails, strict=True)}


OPERATORS: Mapping[type, Callable[[Jet, Jet], Jet]] = {
    ast.Add: Jet.plus,
    ast.Sub: lambda a, b: a.plus(b, -1),
    ast.Mult: Jet.times,
    ast.Div: lambda a, b: a.times(b.through("pow", fmpq(-1))),
}


def evaluate(node: Any, at: Mapping[str, Any]) -> Jet:
    """An expression in jets. Python has parsed it, for the precedence is Python's; only the grammar is let through."""
    zero = Jet(fmpq(0), at[""])
    match node:
        case ast.Constant(value=fmpq() as number):
            return Jet(number, at[""])
        case ast.Name(id=name) if name in at or name in ("pi", "E"):
            return at[name] if name in at else Jet(arb.pi() if name == "pi" else arb.const_e(), at[""])
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as op, operand=inner):
            return zero.plus(evaluate(inner, at), -1 if isinstance(op, ast.USub) else 1)
        case ast.BinOp(op=ast.Pow(), left=left, right=right):
            base, exponent = evaluate(left, at), evaluate(right, at)
            if not isinstance(exponent.value, fmpq) or any(exponent.parts[1:]):
                return exponent.times(base.through("log")).through("exp")
            if abs(exponent.value) > 1000 or exponent.value.q > 1000:
                raise Refused("an exponent is too large")
            return base.through("pow", exponent.value)
        case ast.BinOp(op=op) if type(op) in OPERATORS:
            waiting = []  # a long sum is a deep tree
            while isinstance(node, ast.BinOp) and type(node.op) in OPERATORS:
                waiting.append((OPERATORS[type(node.op)], node.right))
                node = node.left
            total = evaluate(node, at)
            for operator, right in reversed(waiting):
                total = operator(total, evaluate(right, at))
            return total
        case ast.Call(func=ast.Name(id="Piecewise"), args=pieces, keywords=[]):
            for piece in pieces:
                if holds(piece, at):
                    return evaluate(piece.elts[0], at)
            raise ArithmeticError("no condition of a Piecewise holds")
        case ast.Call(func=ast.Name(id="abs" | "min" | "max" as name), args=[first, *others], keywords=[]):
            best = evaluate(first, at)
            for other in [zero.plus(best, -1)] if name == "abs" else [evaluate(term, at) for term in others]:
                best = other if below(other.plus(best, -1), name != "abs", at) is (name == "min") else best
            return best
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in FUNCTIONS:
            return evaluate(inner, at).through(*(("pow", fmpq(1, 2)) if name == "sqrt" else (name,)))
    raise Refused(f"{ast.unparse(node)[:60]!r} is not in the grammar")


def holds(piece: Any, at: Mapping[str, Any]) -> bool:
    match piece:
        case ast.Tuple(elts=[_, ast.Constant(value=True)]):
            return True
        case ast.Tuple(elts=[_, ast.Compare(left=left, ops=[ast.Lt() | ast.LtE() | ast.Gt() | ast.GtE() as op])]):
            gap = evaluate(left, at).plus(evaluate(piece.elts[1].comparators[0], at), -1)
            return below(gap, isinstance(op, (ast.Lt, ast.GtE)), at) is isinstance(op, (ast.Lt, ast.LtE))
    raise Refused("a piece is (value, condition), and a condition one comparison")


def below(gap: Jet, strict: bool, at: Mapping[str, Any]) -> bool:
    """Whether gap < 0 (<= 0, if not strict) all over a box; where a single point is meant ("."), zero is a kink."""
    closed = "." not in at or not any(gap.parts[1:])
    if gap.value < 0 or (closed and not strict and gap.value <= 0):
        return True
    if gap.value > 0 or (closed and strict and gap.value >= 0):
        return False
    raise ArithmeticError("a switch (abs, min, max, Piecewise) is open")


class Problem:
    """A problem file; ``rows`` are f and g as lists of (expression, data, sign), one for each row of data."""

    def __init__(self, text: str) -> None:
        table: Any = tomllib.loads(text, parse_float=str)
        kind = table.get("kind", "bilevel")
        data = table.pop("data") if kind == "stochastic" else {}
        lists = {key: table.pop(key) for key in ("x", "y", *(("xi", "zeta") if data else ()))}
        lists = {
            key: names.replace(",", " ").split() if isinstance(names, str) else names for key, names in lists.items()
        }
        numbers = {name: rational(value) for name, value in table.pop("parameters", {}).items()}
        taken = [*sum(lists.values(), []), *numbers]
        known = {"name", "kind", "box", "f", "g"} - ({"g"} if kind == "minimax" else set())
        if kind not in ("bilevel", "minimax", "stochastic") or not set(table) <= known or len(set(taken)) < len(taken):
            raise Refused("the problem has an unknown kind or key, or a name twice")
        if not all(re.fullmatch("[A-Za-z][A-Za-z0-9_]*", name) and name not in FUNCTIONS for name in taken):
            raise Refused("the names of the problem are none")
        self.x, self.y, self.names = lists["x"], lists["y"], lists["x"] + lists["y"]
        trees = {key: self.parsed(table[key]) for key in ("f", "g") if key in table}
        self.rows: dict[str, list[Any]] = {"g": [(trees["f"], numbers, -1)]} if kind == "minimax" else {}
        for key, noise in zip(trees, ("xi", "zeta"), strict=False):
            drawn = [dict(zip(lists[noise], map(rational, row), strict=True)) for row in data.get(noise, [])]
            self.rows[key] = [(trees[key], numbers | row, 1) for row in drawn or [{}]]

    @staticmethod
    def parsed(text: str) -> Any:
        """The tree of an expression, its decimals exact."""
        if not text.isascii() or len(text) > 200_000 or set(text) & set("#\\\"'[]{};:@"):
            raise Refused("f and g must be expressions in plain ASCII, of at most 200000 characters")
        line = " ".join(text.split())
        tree = ast.parse(line, mode="eval").body
        for node in ast.walk(tree):
            if isinstance(node, ast.Constant) and not isinstance(node.value, bool):
                node.value = rational(line[node.col_offset : node.end_col_offset])
        return tree

    def value(self, rows: Sequence[Any], at: Mapping[str, Any]) -> Jet:
        """The mean of some rows of f or g."""
        total, share = Jet(fmpq(0), at[""]), Jet(fmpq(1, len(rows)), at[""])
        for tree, numbers, sign in rows:
            total = total.plus(evaluate(tree, {name: Jet(v, at[""]) for name, v in numbers.items()} | dict(at)), sign)
        return total.times(share) if len(rows) > 1 else total


def middle(matrix: Any) -> Any:
    return arb_mat(matrix.nrows(), matrix.ncols(), [entry.mid() for entry in matrix.entries()])


def eye(n: int) -> Any:
    return arb_mat([[int(i == j) for j in range(n)] for i in range(n)])


def length(entries: Iterable[Any]) -> Any:
    return sum((arb(e) * e for e in entries), arb(0)).sqrt()


def definite(matrix: Any, shift: Any = 0) -> bool:
    """Whether every symmetric matrix inside, plus shift times I, is positive definite: by the pivots of the middle."""
    n, less = matrix.nrows(), length(entry.rad() for entry in matrix.entries()).upper()
    rows = (middle(matrix) + eye(n) * (shift - less)).tolist()
    for k in range(n):
        if not rows[k][k] > 0:
            return False
        for i, j in combinations_with_replacement(range(k + 1, n), 2):
            rows[i][j] = rows[j][i] = rows[i][j] - rows[k][i] * rows[k][j] / rows[k][k]
    return True


def at_most(tensor: Sequence[Any], shape: Sequence[int], bound: Any) -> bool:
    """Whether |T[u, v, ...]| <= bound for all unit vectors.

    It is so if a matrix that T unfolds into has such a norm. Else the unit vectors u of an axis are covered by cones:
    |T[u]| is convex in u = sum of a_i v_i, so at most the largest |T[v_i]| times the sum of the a_i, which is at most
    the length of the z with z.v_i = 1.
    """
    if all(t == 0 for t in tensor) or not bound > 0:
        return bool(bound >= 0) and all(t == 0 for t in tensor)
    order, steps = len(shape), [prod(shape[axis + 1 :]) for axis in range(len(shape))]
    ranges = [range(0, n * step, step) for n, step in zip(shape, steps, strict=True)]
    for rows in (chosen for count in range(order // 2 + 1) for chosen in combinations(range(order), count)):
        across = [sum(at) for at in product(*(ranges[axis] for axis in range(order) if axis not in rows))]
        matrix = arb_mat([[tensor[sum(at) + k] for k in across] for at in product(*(ranges[axis] for axis in rows))])
        gram = min(matrix * matrix.transpose(), matrix.transpose() * matrix, key=lambda m: m.nrows())
        if definite(-1 * gram, bound * bound):
            return True
    size, half = shape[0], list[float]()
    signs = list(product((1.0, -1.0), repeat=size - 1)) if order > 2 else []
    cones = [[[s * (i == k) for i in range(size)] for k, s in enumerate((1.0, *sign))] for sign in signs]
    for _ in range(CONES if cones else 0):
        if not cones:
            return True
        cone = cones.pop()
        scale = length(arb_mat(cone).solve(arb_mat(size, 1, [1] * size)).entries())
        parts = (arb_mat(cone) * arb_mat(size, steps[0], tensor)).tolist()
        if all(
            at_most([t.mid() for t in part], shape[1:], (bound / scale - length(t.rad() for t in part)).lower())
            for part in parts
        ):
            continue
        if scale < 1.000000001:
            return False
        gaps = {
            pair: sum((a - b) ** 2 for a, b in zip(*(cone[k] for k in pair), strict=True))
            for pair in combinations(range(size), 2)
        }
        pair = max(gaps, key=lambda pair: gaps[pair])
        half = [(a + b) / (4 - gaps[pair]) ** 0.5 for a, b in zip(*(cone[k] for k in pair), strict=True)]
        cones += [[half if k == gone else v for k, v in enumerate(cone)] for gone in pair]
    return False


def balls(box: Box) -> list[Any]:
    return [low if low == high else arb((low + high) / 2, (high - low) / 2) for low, high in box]


def inside(box: Box, other: Box) -> bool:
    return all(c <= a and b <= d for (a, b), (c, d) in zip(box, other, strict=True))


def overlap(box: Box, other: Box) -> bool:
    return all(a <= d and c <= b for (a, b), (c, d) in zip(box, other, strict=True))


def split(box: Box) -> tuple[Box, Any]:
    """The centre of a box, and the column of what is beside it."""
    return tuple(((a + b) / 2,) * 2 for a, b in box), arb_mat([[arb(0, (b - a) / 2)] for a, b in box])


class Phi:
    """The jets of Phi over boxes in x; ``near`` is where Newton's method for y* begins, which may be anywhere."""

    def __init__(self, problem: Problem, near: Sequence[Any], marks: Mapping[str, Any]) -> None:
        self.problem, self.d, self.n, self.marks = problem, len(problem.x), len(problem.y), marks
        self.near = arb_mat([[v] for v in near])

    def lower(self, x: Sequence[Any], y: Any) -> tuple[Any, Any, Any]:
        """grad_y g, g_yx and g_yy."""
        at = variables(self.problem.names, [*x, *y.entries()], 2) | self.marks
        jet, own = self.problem.value(self.problem.rows["g"], at), range(self.d, self.d + self.n)
        hess = [arb_mat([[jet.at(j, k) for k in group] for j in own]) for group in (range(self.d), own)]
        return arb_mat([[jet.at(j)] for j in own]), *hess

    def y_star(self, box: Box) -> Any:
        """Balls that hold y*(x) for all x of a box: Newton's method in its centre, then Krawczyk's test over all."""
        (centre, away), x, y, before = split(box), balls(box), self.near, arb(1)
        c = [low for low, _ in centre]
        for _ in range(80):
            grad, _, hess = self.lower(c, y)
            inverse = middle(middle(hess).inv())
            step, tiny = inverse * grad, arb(2) ** (12 - flint.ctx.prec) * (1 + length(y.entries()))
            size = length(middle(step).entries())
            if size < tiny:
                break
            # a step that is much longer than the last one is not trusted
            y, before = middle(y - step * min(1.0, float(4 * before / size))), size
        self.near = y
        step += inverse * (self.lower(x, y)[1] * away)
        width = [s.abs_upper() + tiny for s in step.entries()]
        for _ in range(8):
            moved = arb_mat([[arb(0, w * arb(1.25))] for w in width])
            image = (eye(self.n) - inverse * self.lower(x, y + moved)[2]) * moved - step
            if all(map(arb.contains_interior, moved.entries(), image.entries())):
                return y + (eye(self.n) - inverse * self.lower(x, y + image)[2]) * image - step
            width = [i.abs_upper() for i in image.entries()]
        raise ArithmeticError("y* was not enclosed")

    def jet(self, box: Box, order: int) -> Jet:
        """The Taylor coefficients of Phi at all points of a box; those of y* order by order, from linear systems."""
        d, own, x = self.d, range(self.d, self.d + self.n), balls(box)
        y = [[{0: v}, *({} for _ in range(order + 1))] for v in self.y_star(box).entries()]
        for k in range(1, order + 1):
            at = variables(self.problem.names, [*x, *(fmpq(0) for _ in own)], k + 1) | self.marks
            for name, parts in zip(self.problem.y, y, strict=True):
                at[name] = at[name].plus(Jet(0, 0, parts[: k + 2]))
            g = self.problem.value(self.problem.rows["g"], at)
            g_yy = arb_mat([[g.at(i, j) for j in own] for i in own])
            inverse = middle(middle(g_yy).inv()) if self.n > 1 else arb_mat([[whole_power(g_yy[0, 0], -1)]])
            if not definite(g_yy):
                raise ArithmeticError("g_yy was not proved to be positive definite")
            for index in combinations_with_replacement(range(d), k):
                key = sum(1 << 3 * i for i in index)
                right = inverse * arb_mat([[g.parts[k + 1].get(key + (1 << 3 * j), fmpq(0))] for j in own])
                found = right if self.n == 1 else (inverse * g_yy).solve(right)
                for parts, value in zip(y, found.entries(), strict=True):
                    parts[k] |= {} if value == 0 else {key: -value}
        at = variables(self.problem.x, x, order) | self.marks
        at |= {name: Jet(0, 0, parts[: order + 1]) for name, parts in zip(self.problem.y, y, strict=True)}
        return self.problem.value(self.problem.rows["f"], at)

    def newton(self, box: Box) -> tuple[Any, Any]:
        """Krawczyk's image of a box, in which all zeros of grad Phi are (None: there are none), and Hess Phi."""
        every, (centre, away) = range(self.d), split(box)
        jet, first = self.jet(box, 2), self.jet(centre, 1)
        hess, grad = arb_mat([[jet.at(i, j) for j in every] for i in every]), arb_mat([[first.at(i)] for i in every])
        if not all(arb(jet.at(i)).contains(0) and (grad + hess * away)[i, 0].contains(0) for i in every):
            return None, hess
        inverse = middle(middle(hess).inv())
        return arb_mat([[c] for c, _ in centre]) - inverse * grad + (eye(self.d) - inverse * hess) * away, hess


class Checker:
    """One certificate against one problem; ``sentences`` and ``numbers`` are what has been proved so far."""

    def __init__(self, problem: Problem, content: Mapping[str, Any]) -> None:
        self.problem, self.content, self.boxes, self.kind = problem, content, 0, content["kind"]
        self.sentences, self.numbers = list[str](), dict[str, Any]()
        self.names = problem.names if self.kind == "constants" else problem.x
        near = [rational(content.get("near", {}).get(name, 0)) for name in problem.y]
        self.phi = Phi(problem, near, {".": None} if self.kind == "point" else {})
        self.box = self.region(content["box"])

    def region(self, table: Mapping[str, Any]) -> Box:
        ends = tuple((rational(table[name][0]), rational(table[name][1])) for name in self.names)
        if len(table) != len(ends) or any(low > high for low, high in ends):
            raise Refused("a box of the certificate is none of the problem")
        return ends

    def cover(self, what: str, cuts: str, test: Callable[[Box], Any]) -> None:
        """Each leaf of the cover passes the test, or is cut until its parts do: a test says where to cut, or None."""
        words, waiting = iter(cuts.split()), [(self.box, 0)]
        while waiting:
            (box, deeper), self.boxes = waiting.pop(), self.boxes + 1
            word = "." if deeper else next(words, "")
            if not re.fullmatch(r"\.|[0-9]{1,3}", word) or (word != "." and int(word) >= len(box)):
                raise NotProved(f"{what}: the cuts of its cover are none")
            where = (int(word), None) if word != "." else test(box)
            if where is None:
                continue
            if self.boxes > BOXES or deeper > DEEPER * len(box):
                raise NotProved(f"{what} was not proved where {', '.join(f'[{float(a)}, {float(b)}]' for a, b in box)}")
            axis, at = where[0], sum(box[where[0]]) / 2 if where[1] is None else where[1]
            for ends in ((at, box[axis][1]), (box[axis][0], at)):
                waiting.append(((*box[:axis], ends, *box[axis + 1 :]), deeper + (word == ".")))
        if next(words, None) is not None:
            raise NotProved(f"{what}: its cover goes on after the last leaf")

    def widest(self, box: Box) -> tuple[int, Any]:
        shares = [(b - a) / (d - c) if d > c else fmpq(0) for (a, b), (c, d) in zip(box, self.box, strict=True)]
        return shares.index(max(shares)), None

    def bracket(
        self, what: str, field: Field, indices: Sequence[Any], shape: Sequence[int], claim: Any, cuts: str
    ) -> None:
        """|T| <= upper all over the box; of "mu" the smallest eigenvalue is at least the lower end."""
        bound, order = arb(-rational(claim["lower"]) if what == "mu" else rational(claim["upper"])), len(shape)

        def fits(entries: Sequence[Any]) -> bool:
            if len(entries) == 1:
                return bool((-entries[0] if what == "mu" else abs(entries[0])) <= bound)
            if what == "mu":
                return definite(arb_mat(*shape, entries), bound)
            rest = (bound - length(e.rad() for e in entries)).lower()
            return at_most([e.mid() for e in entries], [n for n in shape if n > 1], rest)

        def test(box: Box) -> Any:
            try:
                found = [arb(field(box, order).at(*index)) for index in indices]
                if fits(found):
                    return None
                (centre, away), jet = split(box), field(box, order + 1)
                inner, slopes = (
                    field(centre, order),
                    [arb_mat([[jet.at(*i, k) for k in range(len(box))]]) for i in indices],
                )
                means = [(slope * away)[0, 0] + inner.at(*index) for slope, index in zip(slopes, indices, strict=True)]
                if fits([a.intersection(b) for a, b in zip(found, means, strict=True)]):
                    return None
            except ArithmeticError:
                return self.widest(box)  # what is undefined here may be defined on both halves
            moves = [sum(float((slope[0, k] * away[k, 0]).abs_upper()) for slope in slopes) for k in range(len(box))]
            return (moves.index(max(moves)), None) if any(moves) else self.widest(box)

        self.cover(what, cuts, test)

    def attained(self, what: str, field: Field, indices: Any, claim: Mapping[str, Any]) -> None:
        """|T| at a point of the box reaches the lower end (of mu, the upper one), along given directions."""
        point = self.region({name: (value, value) for name, value in claim["point"].items()})
        values, size = [arb(field(point, len(indices[0])).at(*index)) for index in indices], arb(1)
        for vector in reversed([[rational(v) for v in vector] for vector in claim["directions"]]):
            size, n = size * length(vector), len(vector)
            values = [sum(map(arb.__mul__, values[k : k + n], vector), arb(0)) for k in range(0, len(values), n)]
        reached = (
            values[0] <= rational(claim["upper"]) * size
            if what == "mu"
            else abs(values[0]) >= rational(claim["lower"]) * size
        )
        if len(values) > 1 or not (size > 0 and reached and inside(point, self.box)):
            raise NotProved(f"{what} was not proved to be attained in [{claim['lower']}, {claim['upper']}]")

    def state(self, name: str, claim: Mapping[str, Any]) -> None:
        self.numbers[name] = (str(claim["lower"]), str(claim["upper"]))
        self.sentences.append(f"{name} is in [{claim['lower']}, {claim['upper']}]")

    def constants(self) -> None:
        d, every = len(self.problem.x), range(len(self.names))
        axes = {"x": every[:d], "y": every[d:], "z": every}
        for name, blocks in READINGS[self.content["reading"]].items():
            claim = self.content["claims"][name]
            wanted = {claim["at"]} if name == "mu" or rational(claim["lower"]) > 0 else set()
            for block in blocks.split():
                indices, shape = list(product(*(axes[a] for a in block[2:]))), [len(axes[a]) for a in block[2:]]
                distinct = {str(row[1]): row for row in self.problem.rows[block[0]]}
                for k, row in enumerate(distinct.values()):

                    def field(box: Box, order: int, row: Any = row) -> Jet:
                        return self.problem.value([row], variables(self.names, balls(box), order))

                    self.bracket(name, field, indices, shape, claim, claim["covers"].get(f"{block} {k}", "."))
                    if f"{block} {k}" in wanted:
                        self.attained(name, field, indices, claim)
                        wanted = set()
            if wanted:
                raise NotProved(f"where {name} is attained is not said")
            self.state(name, claim)

    def smoothness(self) -> None:
        for order, name in enumerate(("grad_norm", "L_phi", "rho_phi"), 1):
            claim, indices = self.content["claims"][name], list(product(range(len(self.names)), repeat=order))
            if claim["upper"] != "inf":
                self.bracket(name, self.phi.jet, indices, [len(self.names)] * order, claim, claim["cover"])
            if rational(claim["lower"]) > 0:
                self.attained(name, self.phi.jet, indices, claim)
            self.state(name, claim)

    def stationary(self) -> None:
        """Each point is the one zero of grad Phi in a box, and near; all others are in boxes listed as undecided."""
        points, alone, near = self.content["points"], [], []
        for point in points:
            alone.append(self.region(point["alone"]))
            near.append(self.region(point["near"]))
            for box in (alone[-1], near[-1]):
                image, hess = self.phi.newton(box)
                if image is None or not all(a < i < b for i, (a, b) in zip(image.entries(), box, strict=True)):
                    raise NotProved(f"that there is one stationary point in {point['alone']} was not proved")
            signs = [
                (u * hess * u.transpose())[0, 0] for u in (arb_mat([[*map(rational, v)]]) for v in point["directions"])
            ]
            shown = {"local minimum": definite(hess), "local maximum": definite(-1 * hess), "undecided": True}
            shown["saddle"] = any(s > 0 for s in signs) and any(s < 0 for s in signs)
            if not (shown[point["kind"]] and inside(near[-1], alone[-1]) and overlap(near[-1], self.box)):
                raise NotProved(f"the kind or the place of the stationary point in {point['near']} was not proved")
            self.sentences.append(f"one stationary point in {point['near']}, kind: {point['kind']}")
        if any(overlap(*pair) for pair in combinations(near, 2)):
            raise NotProved("two of the stationary points may be one")
        done = alone + [self.region(box) for box in self.content["undecided"]]

        def test(box: Box) -> Any:
            if any(inside(box, other) for other in done):
                return None
            for other in (o for o in done if overlap(o, box)):  # a piece is cut along the sides of what is done
                for k, ((a, b), ends) in enumerate(zip(box, other, strict=True)):
                    if any(a < at < b for at in ends):
                        return k, next(at for at in ends if a < at < b)
            try:
                image = self.phi.newton(box)[0]
                if image is None or any(i < a or i > b for i, (a, b) in zip(image.entries(), box, strict=True)):
                    return None
            except ArithmeticError:
                pass
            return self.widest(box)

        self.cover("that there are no other stationary points", ".", test)
        self.numbers |= {"points": points, "undecided": self.content["undecided"]}
        rest = f" outside of {len(done) - len(alone)} boxes that are not decided" if len(done) > len(alone) else ""
        self.sentences.append(f"no other stationary points in the box{rest}")

    def point(self) -> None:
        """y*, Phi, grad Phi and Hess Phi at one point, each within its radius of what is claimed."""
        flint.ctx.prec = min(MOST_BITS, int(self.content["bits"]))
        if any(low != high for low, high in self.box):
            raise Refused("a point is meant")
        jet, every = self.phi.jet(self.box, 2), range(len(self.names))
        found = {f"{name}*": v for name, v in zip(self.problem.y, self.phi.y_star(self.box).entries(), strict=True)}
        found |= {"Phi": jet.at()} | {f"dPhi/d{self.names[i]}": jet.at(i) for i in every}
        found |= {f"d2Phi/d{self.names[i]}d{self.names[j]}": jet.at(i, j) for i, j in product(every, repeat=2)}
        for name, value in found.items():
            middle_, radius = self.content["claims"][name]
            if not abs(value - rational(middle_)) <= rational(radius):
                raise NotProved(f"{name} was not proved to be {middle_} to within {radius}")
            self.numbers[name] = (middle_, radius)
            self.sentences.append(f"{name} = {middle_} to within {radius}")


def prove(path: str | Path, problem: str | None = None) -> Proved:
    """Prove a certificate again; ``problem`` is the text of the consumer's problem file, else that in the certificate.

    >>> prove("nowhere.json")
    Traceback (most recent call last):
        ...
    verify.certificates.recheck.Refused: nowhere.json: [Errno 2] No such file or directory: 'nowhere.json'
    """
    before, flint.ctx.prec = flint.ctx.prec, BITS
    try:
        with Path(path).open("rb") as file:
            text = file.read(LARGEST + 1)
        content = json.loads(text[:LARGEST], parse_float=str, parse_constant=rational)
        if content["format"] != "bilevel-sym/saved/1" or content["kind"] not in (
            "constants",
            "smoothness",
            "stationary",
            "point",
        ):
            raise Refused("the format, or the kind, is unknown")
        checker = Checker(Problem(content["problem"] if problem is None else problem), content)
        getattr(checker, checker.kind)()
        where = ", ".join(
            f"{name} in [{low}, {high}]" for name, (low, high) in zip(checker.names, checker.box, strict=True)
        )
        return Proved(checker.kind, (f"over {where}:", *checker.sentences), checker.numbers, checker.boxes)
    except NotProved:
        raise
    except (OSError, *SPOILT) as error:
        raise Refused(f"{path}: {error!s:.200}") from None
    finally:
        flint.ctx.prec = before


def main(words: Sequence[str]) -> int:
    if len(words) not in (1, 3) or (len(words) == 3 and words[1] != "--problem"):
        print(__doc__, file=sys.stderr)
        return 2
    try:
        print(
            *prove(words[0], Path(words[2]).read_text(encoding="utf-8") if len(words) > 1 else None).sentences, sep="\n"
        )
    except (OSError, ValueError) as error:
        print(f"{'not proved' if isinstance(error, NotProved) else 'error'}: {error}", file=sys.stderr)
        return 1 if isinstance(error, NotProved) else 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
