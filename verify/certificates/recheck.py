"""Proves a saved certificate again, from the text of its problem: ``python recheck.py FILE [--problem mine.toml]``.

This one file needs Python and python-flint, and shares no code with the search that wrote the certificate. Nothing
that a certificate says is believed: cuts, points and directions are hints. Work is counted, not timed.

f and g are evaluated in jets, truncated Taylor series whose coefficients hold the truth for all points of a box.
The jet of y* follows from that of grad_y g = 0 order by order, and that of Phi is f at (x, y*(x)): no formula for a
hypergradient is used. That g is strongly convex in y is assumed, so that the minimum proved here is the only one.
Exit codes: 0 proved, 1 not proved, 2 bad input.
"""

from __future__ import annotations

import argparse
import ast
import hashlib
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

FORMAT = "bilevel-sym/saved/1"
BITS, BOXES, DEEPER, CONES, LARGEST = 80, 200_000, 26, 1500, 2**26
READINGS = {
    "block": {"mu": "g_yy", "ell": "f_xx f_xy f_yy g_xx g_xy g_yy", "rho": "f_xxx f_xxy f_xyy f_yyy g_xxy g_xyy g_yyy",
              "nu": "g_xxxy g_xxyy g_xyyy g_yyyy", "M": "f_x f_y", "g_y": "g_y"},
    "joint": {"mu": "g_yy", "ell": "f_zz g_zz", "rho": "f_zzz g_zzy", "nu": "g_zzzy", "M": "f_z", "g_y": "g_y"},
}  # fmt: skip
ORDERS = {"grad_norm": 1, "L_phi": 2, "rho_phi": 3}
FUNCTIONS = ("exp", "log", "sin", "cos", "tan", "tanh", "sinh", "cosh", "atan", "softplus", "sigmoid", "sqrt")
NUMBER = re.compile(r"([+-]?)(\d*)(?:/(\d+)|(?:\.(\d*))?(?:[eE]([+-]?\d{1,6}))?)", re.ASCII)
Box = tuple[tuple[Any, Any], ...]  # exact rational ends
Field = Callable[[Box, int], "Jet"]  # a function of x, or of (x, y), as its jets over boxes


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

    def __str__(self) -> str:
        return "\n".join(self.sentences)


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
    if name == "log":
        slopes = series("pow", a if a > 0 else fmpq(0), order, fmpq(-1))
        return [over(arb.log, a), *(slopes[k] / (k + 1) for k in range(order))]
    if name in ("softplus", "sigmoid"):  # sigmoid(a) = (1 + tanh(a/2))/2 is the slope of softplus
        slopes = [(c + (k == 0)) / 2 ** (k + 1) for k, c in enumerate(series("tanh", a / 2, order))]
        first = over(lambda t: t + (-t).exp().log1p() if t > 0 else t.exp().log1p(), a)
        return slopes if name == "sigmoid" else [first, *(slopes[k] / (k + 1) for k in range(order))]
    if name in ("tan", "tanh"):
        whole_power(a.cos() if name == "tan" else arb(1), -1)
        found, sign = [over(arb.tan if name == "tan" else arb.tanh, a)], 1 if name == "tan" else -1
        for k in range(order):
            square = sum(found[i] * found[k - i] for i in range(k + 1)) if k else whole_power(found[0], 2)
            found.append(((k == 0) + sign * square) / (k + 1))
        return found
    if name == "atan":
        slopes = [whole_power(1 + whole_power(a, 2), -1)]
        for k in range(1, order):
            slopes.append(-(2 * a * slopes[-1] + (slopes[k - 2] if k > 1 else 0)) * slopes[0])
        return [over(arb.atan, a), *(slopes[k] / (k + 1) for k in range(order))]
    cosh = over(arb.cosh, a.abs_lower().union(a.abs_upper()))
    cycle = {"e": (over(arb.exp, a),), "s": (a.sin(), a.cos(), -a.sin(), -a.cos()), "h": (over(arb.sinh, a), cosh)}
    values = cycle["e" if name == "exp" else "h" if name.endswith("h") else "s"]
    return [values[(k + name.startswith("cos")) % len(values)] / factorial(k) for k in range(order + 1)]


class Jet:
    """A truncated power series: for each degree, coefficients by exponents, of which each has three bits."""

    def __init__(self, value: Any, order: int, parts: list[dict[int, Any]] | None = None) -> None:
        self.parts = parts or [{} if value == 0 else {0: value}, *({} for _ in range(order))]

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
        taylor = series(name, self.parts[0].get(0, fmpq(0)), order if any(rest.parts) else 0, r)
        result = Jet(taylor[-1], order)
        for c in reversed(taylor[:-1]):
            result = result.times(rest).plus(Jet(c, order))
        return result

    def at(self, index: Sequence[int]) -> Any:
        """The derivative along the variables of the index."""
        c = self.parts[len(index)].get(sum(1 << 3 * i for i in index), fmpq(0))
        return c * prod(factorial(index.count(i)) for i in set(index))


def variables(names: Sequence[str], values: Iterable[Any], order: int) -> dict[str, Any]:
    """Where expressions are evaluated: the jets of the variables, and their order under ""."""
    tails = [[{1 << 3 * k: fmpq(1)}, *({} for _ in range(order - 1))][:order] for k in range(len(names))]
    return {"": order} | {name: Jet(0, 0, [{0: v}, *tail]) for name, v, tail in zip(names, values, tails, strict=True)}


def evaluate(node: Any, at: Mapping[str, Any]) -> Jet:
    """An expression in jets. Python has parsed it, for the precedence is Python's; only the grammar is let through."""
    nothing = Jet(fmpq(0), at[""])
    match node:
        case ast.Constant(value=fmpq() as number):
            return Jet(number, at[""])
        case ast.Name(id=name) if name in at:
            return at[name]  # type: ignore[no-any-return]
        case ast.Name(id="pi" | "E" as name):
            return Jet(arb.pi() if name == "pi" else arb.const_e(), at[""])
        case ast.UnaryOp(op=ast.UAdd() | ast.USub() as op, operand=inner):
            return nothing.plus(evaluate(inner, at), -1 if isinstance(op, ast.USub) else 1)
        case ast.BinOp(op=ast.Add() | ast.Sub()):
            terms = []  # a long sum is a deep tree
            while isinstance(node, ast.BinOp) and isinstance(node.op, (ast.Add, ast.Sub)):
                terms.append((evaluate(node.right, at), -1 if isinstance(node.op, ast.Sub) else 1))
                node = node.left
            total = evaluate(node, at)
            for term, sign in reversed(terms):
                total = total.plus(term, sign)
            return total
        case ast.BinOp(op=ast.Mult() | ast.Div() as op):
            right = evaluate(node.right, at)
            return evaluate(node.left, at).times(right.through("pow", fmpq(-1)) if isinstance(op, ast.Div) else right)
        case ast.BinOp(op=ast.Pow()):
            base, exponent = evaluate(node.left, at), evaluate(node.right, at)
            r = exponent.parts[0].get(0, fmpq(0))
            if not isinstance(r, fmpq) or any(exponent.parts[1:]):
                return exponent.times(base.through("log")).through("exp")
            if abs(r) > 1000 or r.q > 1000:
                raise Refused("an exponent is too large")
            return base.through("pow", r)
        case ast.Call(func=ast.Name(id="Piecewise"), args=pieces, keywords=[]):
            for piece in pieces:
                if holds(piece, at):
                    return evaluate(piece.elts[0], at)
            raise ArithmeticError("no condition of a Piecewise holds")
        case ast.Call(func=ast.Name(id="abs"), args=[inner], keywords=[]):
            value = evaluate(inner, at)
            return nothing.plus(value, -1) if below(value, True, at) else value
        case ast.Call(func=ast.Name(id="min" | "max" as name), args=[first, second, *others], keywords=[]):
            best = evaluate(first, at)
            for other in (evaluate(term, at) for term in (second, *others)):
                best = other if below(other.plus(best, -1), True, at) is (name == "min") else best
            return best
        case ast.Call(func=ast.Name(id=name), args=[inner], keywords=[]) if name in FUNCTIONS:
            return evaluate(inner, at).through(*(("pow", fmpq(1, 2)) if name == "sqrt" else (name,)))
    raise Refused(f"{ast.unparse(node)[:60]!r} is not in the grammar")


def holds(piece: Any, at: Mapping[str, Any]) -> bool:
    match piece:
        case ast.Tuple(elts=[_, ast.Constant(value=True)]):
            return True
        case ast.Tuple(elts=[_, ast.Compare(left=left, ops=[op], comparators=[right])]):
            if isinstance(op, (ast.Lt, ast.LtE, ast.Gt, ast.GtE)):
                less = isinstance(op, (ast.Lt, ast.LtE))
                gap = evaluate(left, at).plus(evaluate(right, at), -1)
                return below(gap, isinstance(op, (ast.Lt, ast.GtE)), at) is less
    raise Refused("a piece is (value, condition), and a condition one comparison")


def below(gap: Jet, strict: bool, at: Mapping[str, Any]) -> bool:
    """Whether gap < 0 (<= 0, if not strict) all over a box; where a single point is meant ("."), zero is a kink."""
    value, closed = gap.parts[0].get(0, fmpq(0)), "." not in at or not any(gap.parts[1:])
    if value < 0 or (closed and not strict and value <= 0):
        return True
    if value > 0 or (closed and strict and value >= 0):
        return False
    raise ArithmeticError("a switch (abs, min, max, Piecewise) is open")


class Problem:
    """A problem file; ``f`` and ``g`` are lists of (expression, data, sign), one for each row of data."""

    def __init__(self, text: str) -> None:
        table: Any = tomllib.loads(text, parse_float=str)
        kind = table.get("kind", "bilevel")
        noise = ("xi", "zeta") if kind == "stochastic" else ()
        groups = {key: names.replace(",", " ").split() if isinstance(names := table[key], str) else names for key in ("x", "y", *noise)}
        allowed = {"name", "kind", "f", "box", "parameters", *groups, *(["data"] if noise else []), *(["g"] if kind != "minimax" else [])}
        if kind not in ("bilevel", "minimax", "stochastic") or not set(table) <= allowed or not (groups["x"] and groups["y"]):
            raise Refused("the problem has an unknown kind or key, or no variables")
        numbers = {name: rational(value) for name, value in table.get("parameters", {}).items()}
        taken = [*(name for group in groups.values() for name in group), *numbers]
        if len(set(taken)) < len(taken) or not all(re.fullmatch(r"[A-Za-z][A-Za-z0-9_]*", name, re.ASCII) for name in taken):
            raise Refused("the names of the problem clash, or are none")
        self.x, self.y, self.names = groups["x"], groups["y"], [*groups["x"], *groups["y"]]
        data = {key: [dict(zip(groups[key], map(rational, row), strict=True)) for row in table["data"][key]] for key in noise}
        f, g = (parsed(table[key]) if key in table else None for key in ("f", "g"))
        self.f = [(f, numbers | row, 1) for row in data.get("xi") or [{}]]
        self.g = [(g, numbers | row, 1) for row in data.get("zeta") or [{}]] if g else [(f, numbers, -1)]
        self.box = table.get("box", {})

    def value(self, rows: Sequence[Any], at: Mapping[str, Any]) -> Jet:
        """The mean of some rows of f or g."""
        total = Jet(fmpq(0), at[""])
        for tree, numbers, sign in rows:
            total = total.plus(evaluate(tree, {name: Jet(v, at[""]) for name, v in numbers.items()} | dict(at)), sign)
        return total.times(Jet(fmpq(1, len(rows)), at[""])) if len(rows) > 1 else total


def parsed(text: str) -> Any:
    """The tree of an expression, its decimals exact."""
    line = " ".join(text.split())
    if not text.isascii() or len(text) > 200_000 or set(text) & set("#\\\"'[]{};:@"):
        raise Refused("f and g must be expressions in plain ASCII, of at most 200000 characters")
    tree = ast.parse(line, mode="eval").body
    for node in ast.walk(tree):
        if isinstance(node, ast.Constant) and not isinstance(node.value, bool):
            node.value = rational(line[node.col_offset : node.end_col_offset])  # type: ignore[assignment]
    return tree


def ball(low: Any, high: Any) -> Any:
    return low if low == high else arb((low + high) / 2, (high - low) / 2)


def middle(matrix: Any) -> Any:
    return arb_mat(matrix.nrows(), matrix.ncols(), [entry.mid() for entry in matrix.entries()])


def length(entries: Iterable[Any]) -> Any:
    return sum((e * e for e in entries), arb(0)).sqrt()


def definite(matrix: Any, shift: Any = 0) -> bool:
    """Whether every symmetric matrix inside, plus shift times I, is positive definite: by the pivots of the middle."""
    n, less = matrix.nrows(), length(entry.rad() for entry in matrix.entries()).upper()
    rows = [[matrix[i, j].mid() + ((shift - less) if i == j else 0) for j in range(n)] for i in range(n)]
    for k in range(n):
        if not rows[k][k] > 0:
            return False
        for i in range(k + 1, n):
            for j in range(i, n):
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
    for rows in (chosen for count in range(order // 2 + 1) for chosen in combinations(range(order), count)):
        places = [[sum(steps[axis] * i for axis, i in zip(axes, at, strict=True)) for at in product(*(range(shape[axis]) for axis in axes))]
                  for axes in (rows, [axis for axis in range(order) if axis not in rows])]  # fmt: skip
        matrix = arb_mat([[tensor[i + j] for j in places[1]] for i in places[0]])
        gram = min(matrix * matrix.transpose(), matrix.transpose() * matrix, key=lambda m: m.nrows())
        if definite(-1 * gram, bound * bound):
            return True
    size, rest = shape[0], list(shape[1:])
    signs = product((1.0, -1.0), repeat=size - 1) if order > 2 else ()
    cones = [[[s * (i == k) for i in range(size)] for k, s in enumerate((1.0, *sign))] for sign in signs]
    for _ in range(CONES if order > 2 else 0):
        if not cones:
            return True
        cone = cones.pop()
        scale = length(arb_mat(cone).solve(arb_mat(size, 1, [1] * size)).entries())
        parts = [[sum(u * t for u, t in zip(v, tensor[k :: steps[0]], strict=True)) for k in range(steps[0])] for v in cone]
        if all(at_most(part, rest, (bound / scale).lower()) for part in parts):
            continue
        if scale < 1.000000001:
            return False
        gaps = {(i, j): sum((a - b) ** 2 for a, b in zip(cone[i], cone[j], strict=True)) for i, j in combinations(range(size), 2)}
        i, j = max(gaps, key=lambda pair: gaps[pair])
        half = [(a + b) / (4 - gaps[i, j]) ** 0.5 for a, b in zip(cone[i], cone[j], strict=True)]
        cones += [[half if k == gone else v for k, v in enumerate(cone)] for gone in (i, j)]
    return False


class Phi:
    """The jets of Phi over boxes in x; ``near`` is where Newton's method for y* begins, which may be anywhere."""

    def __init__(self, problem: Problem, near: Sequence[Any], strict: bool = False) -> None:
        self.problem, self.d, self.n = problem, len(problem.x), len(problem.y)
        self.near, self.extra = [arb(v) for v in near], {".": None} if strict else {}

    def lower(self, x: Sequence[Any], y: Sequence[Any]) -> tuple[Any, Any, Any]:
        """grad_y g, g_yx and g_yy."""
        jet = self.problem.value(self.problem.g, variables(self.problem.names, [*x, *y], 2) | self.extra)
        every, own = range(self.d + self.n), range(self.d, self.d + self.n)
        rows = [[jet.at((j, k)) for k in every] for j in own]
        return arb_mat([[jet.at((j,))] for j in own]), arb_mat([r[: self.d] for r in rows]), arb_mat([r[self.d :] for r in rows])

    def y_star(self, x: Sequence[Any], centre: Sequence[Any]) -> list[Any]:
        """Balls that hold y*(x) for all x of a box: Newton's method in its centre, then Krawczyk's test over all."""
        y, before, tiny = self.near, arb(1), arb(2) ** (12 - flint.ctx.prec)
        for _ in range(60):
            grad, _, hess = self.lower(centre, y)
            inverse = middle(middle(hess).inv())
            step = middle(inverse * grad).entries()
            size, limit = length(step), tiny * (1 + length(y))
            if size < limit:
                break
            y = [(v - s * min(1.0, 4 * float(before / size))).mid() for v, s in zip(y, step, strict=True)]
            before = size.max(limit)
        self.near, eye = y, arb_mat([[int(i == j) for i in range(self.n)] for j in range(self.n)])
        column = arb_mat([[v] for v in y])
        step = inverse * (self.lower(centre, y)[0] + self.lower(x, y)[1] * arb_mat([[a - c] for a, c in zip(x, centre, strict=True)]))
        width = [s.abs_upper() + limit for s in step.entries()]
        for _ in range(8):
            away = arb_mat([[arb(0, w * arb(1.25))] for w in width])
            image = (eye - inverse * self.lower(x, (column + away).entries())[2]) * away - step
            if all(a.contains_interior(i) for a, i in zip(away.entries(), image.entries(), strict=True)):
                again = (eye - inverse * self.lower(x, (column + image).entries())[2]) * image - step
                return (column + again).entries()  # type: ignore[no-any-return]
            width = [i.abs_upper() for i in image.entries()]
        raise ArithmeticError("y* was not enclosed")

    def jet(self, box: Box, order: int) -> Jet:
        """The Taylor coefficients of Phi at all points of a box, those of y* first: each order is a linear system."""
        d, n, x = self.d, self.n, [ball(*ends) for ends in box]
        y = [[{0: v}, *({} for _ in range(order + 1))] for v in self.y_star(x, [(low + high) / 2 for low, high in box])]
        for k in range(1, order + 1):
            at = variables(self.problem.names, [*x, *(fmpq(0),) * n], k + 1) | self.extra
            at |= {name: at[name].plus(Jet(0, 0, parts[: k + 2])) for name, parts in zip(self.problem.y, y, strict=True)}
            g = self.problem.value(self.problem.g, at)
            if k == 1:
                g_yy = arb_mat([[g.at((d + i, d + j)) for j in range(n)] for i in range(n)])
                inverse = middle(middle(g_yy).inv())
                if not definite(g_yy):
                    raise ArithmeticError("g_yy was not proved to be positive definite")
            for index in combinations_with_replacement(range(d), k):
                key = sum(1 << 3 * i for i in index)
                right = arb_mat([[g.parts[k + 1].get(key + (1 << 3 * (d + j)), fmpq(0))] for j in range(n)])
                found = [right[0, 0] * whole_power(g_yy[0, 0], -1)] if n == 1 else (inverse * g_yy).solve(inverse * right).entries()
                for parts, value in zip(y, found, strict=True):
                    parts[k] |= {} if value == 0 else {key: -value}
        at = variables(self.problem.x, x, order) | {name: Jet(0, 0, parts[: order + 1]) for name, parts in zip(self.problem.y, y, strict=True)}
        return self.problem.value(self.problem.f, at | self.extra)


class Checker:
    """One certificate against one problem. ``sentences`` and ``numbers`` are what has been proved so far."""

    def __init__(self, problem: Problem, content: Mapping[str, Any]) -> None:
        self.problem, self.content, self.boxes = problem, content, 0
        self.sentences, self.numbers = list[str](), dict[str, Any]()
        self.names = problem.names if content["kind"] == "constants" else problem.x
        self.box = self.region(content["box"]) if "box" in content else ()
        near = content.get("near", {})
        self.phi = Phi(problem, [rational(near.get(name, 0)) for name in problem.y], content["kind"] == "point")

    def region(self, table: Mapping[str, Any]) -> Box:
        ends = tuple((rational(table[name][0]), rational(table[name][1])) for name in self.names)
        if len(table) != len(ends) or any(low > high for low, high in ends):
            raise Refused("a box of the certificate is none of the problem")
        return ends

    def cover(self, what: str, boxes: Sequence[Box], cuts: str, test: Callable[[Box], Any]) -> None:
        """Each leaf of the cover passes the test, or is cut until its parts do: a test says where to cut, or None."""
        words, waiting = iter(cuts.split()), [(box, 0) for box in boxes]
        while waiting:
            (box, deeper), self.boxes = waiting.pop(), self.boxes + 1
            word = next(words, "") if deeper == 0 and cuts else "."
            if not re.fullmatch(r"\.|[0-9]{1,3}", word) or (word != "." and int(word) >= len(box)):
                raise NotProved(f"{what}: the cuts of its cover are none")
            where = (int(word), sum(box[int(word)]) / 2) if word != "." else test(box)
            if where is None:
                continue
            if self.boxes > BOXES or deeper > DEEPER * len(box):
                raise NotProved(f"{what} was not proved at {', '.join(f'[{float(a):.9g}, {float(b):.9g}]' for a, b in box)}")
            axis, at = where
            for ends in ((at, box[axis][1]), (box[axis][0], at)):
                waiting.append(((*box[:axis], ends, *box[axis + 1 :]), deeper + (word == ".")))
        if next(words, None) is not None:
            raise NotProved(f"{what}: its cover goes on after the last leaf")

    def enclosed(self, field: Field, indices: Sequence[Any], box: Box, sharp: bool) -> tuple[list[Any], list[Any]]:
        """Derivatives over a box and, if ``sharp``, their mean-value form met with them and what each variable moves."""
        order = len(indices[0])
        jet = field(box, order + sharp)
        found = [arb(jet.at(index)) for index in indices]
        if not sharp:
            return found, []
        centre = field(tuple(((low + high) / 2,) * 2 for low, high in box), order)
        away = [arb(0, (high - low) / 2) for low, high in box]
        moves = [[arb(jet.at((*index, k)) * a) for k, a in enumerate(away)] for index in indices]
        found = [a.intersection(sum(m, arb(centre.at(i)))) for a, m, i in zip(found, moves, indices, strict=True)]
        return found, [sum(float(move[k].abs_upper()) for move in moves) for k in range(len(box))]

    def upper(self, what: str, field: Field, indices: Any, shape: Sequence[int], bound: Any, cuts: str) -> None:
        """|T| <= bound all over the box; of "mu" the smallest eigenvalue is at least -bound."""
        def fits(entries: Sequence[Any]) -> bool:
            if len(entries) == 1:
                return bool((-entries[0] if what == "mu" else abs(entries[0])) <= bound)
            if what == "mu":
                return definite(arb_mat(*shape, entries), arb(bound))
            rest = (bound - length(e.rad() for e in entries)).lower()
            return at_most([e.mid() for e in entries], [n for n in shape if n > 1], rest)

        def test(box: Box) -> Any:
            moves = [float((b - a) / (d - c)) if d > c else 0.0 for (a, b), (c, d) in zip(box, self.box, strict=True)]
            try:
                for sharp in (False, True):
                    entries, moved = self.enclosed(field, indices, box, sharp)
                    if fits(entries):
                        return None
                moves = moved if any(moved) else moves
            except ArithmeticError:
                pass  # what is undefined here may be defined on both halves
            axis = moves.index(max(moves))
            return axis, sum(box[axis]) / 2

        self.cover(what, [self.box], cuts, test)

    def lower(self, what: str, field: Field, indices: Any, claim: Mapping[str, Any], bound: Any) -> None:
        """|T| at a point of the box is at least what is claimed, along given directions."""
        point = self.region({name: (value, value) for name, value in claim["point"].items()})
        values = self.enclosed(field, indices, point, False)[0]
        size = arb(1)
        for vector in reversed([[rational(v) for v in vector] for vector in claim["directions"]]):
            size *= length(vector)
            values = [sum(v * t for v, t in zip(vector, values[k : k + len(vector)], strict=True)) for k in range(0, len(values), len(vector))]
        reached = (-values[0] if what == "mu" else abs(values[0])) / size
        if len(values) > 1 or not reached >= bound or any(not a <= p <= b for (p, _), (a, b) in zip(point, self.box, strict=True)):
            raise NotProved(f"{what} was not proved to reach its claimed end at the point given")

    def state(self, name: str, claim: Mapping[str, Any]) -> None:
        self.numbers[name] = (claim["lower"], claim["upper"])
        self.sentences.append(f"{name} is in [{claim['lower']}, {claim['upper']}]")

    def constants(self) -> None:
        d, every = len(self.problem.x), range(len(self.names))
        axes = {"x": every[:d], "y": every[d:], "z": every}
        for name, blocks in READINGS[self.content["reading"]].items():
            claim, proved = dict(self.content["claims"][name]), False
            low, high = rational(claim["lower"]), rational(claim["upper"])
            low, high = (-high, -low) if name == "mu" else (low, high)
            for block in blocks.split():
                indices, shape = list(product(*(axes[a] for a in block[2:]))), [len(axes[a]) for a in block[2:]]
                for k, row in enumerate(self.problem.f if block[0] == "f" else self.problem.g):
                    def field(box: Box, order: int, row: Any = row) -> Jet:
                        return self.problem.value([row], variables(self.names, (ball(*ends) for ends in box), order))

                    self.upper(name, field, indices, shape, high, claim["covers"].get(f"{block} {k}", "."))
                    if claim["at"] == f"{block} {k}":
                        self.lower(name, field, indices, claim, low)
                        proved = True
            if not proved and (name == "mu" or low > 0):
                raise NotProved(f"{name} was not proved to reach {claim['lower']}")
            self.state(name, claim)

    def smoothness(self) -> None:
        for name, order in ORDERS.items():
            claim = self.content["claims"][name]
            indices = list(product(range(len(self.names)), repeat=order))
            if claim["upper"] != "inf":
                self.upper(name, self.phi.jet, indices, [len(self.names)] * order, rational(claim["upper"]), claim["cover"])
            if rational(claim["lower"]) > 0:
                self.lower(name, self.phi.jet, indices, claim, rational(claim["lower"]))
            self.state(name, claim)

    def newton(self, box: Box) -> tuple[list[Any], Any, Any]:
        """grad Phi over a box in x, Krawczyk's image, in which all its zeros are (none if it is excluded), and Hess Phi."""
        every, centre = range(len(box)), tuple(((low + high) / 2,) * 2 for low, high in box)
        jet, inside = self.phi.jet(box, 2), self.phi.jet(centre, 1)
        hess = arb_mat([[jet.at((i, j)) for j in every] for i in every])
        away, first = arb_mat([[arb(0, (b - a) / 2)] for a, b in box]), arb_mat([[inside.at((i,))] for i in every])
        grad = [arb(jet.at((i,))).intersection((first + hess * away)[i, 0]) for i in every]
        if any(not entry.contains(0) for entry in grad):
            return grad, None, hess
        inverse = middle(middle(hess).inv())
        eye = arb_mat([[int(i == j) for j in every] for i in every])
        return grad, arb_mat([[low] for low, _ in centre]) - inverse * first + (eye - inverse * hess) * away, hess

    def zero(self, point: Mapping[str, Any]) -> tuple[Box, list[Any]]:
        """A box in which grad Phi has exactly one zero, and where it is: as near to the point, and of the kind, claimed."""
        box, radius = self.region(point["box"]), rational(point["radius"])
        x = [rational(point["x"][name]) for name in self.names]
        alone, where = None, ", ".join(f"{name} = {point['x'][name]}" for name in self.names)
        for _ in range(60):
            try:
                _, image, hess = self.newton(box)
                inside = image is not None and all(arb(a) < i < arb(b) for i, (a, b) in zip(image.entries(), box, strict=True))
            except ArithmeticError:
                inside = False
            if inside:
                alone, box = alone or box, tuple((i.lower().fmpq(), i.upper().fmpq()) for i in image.entries())
                if all(v - radius <= a and b <= v + radius for v, (a, b) in zip(x, box, strict=True)):
                    break
            elif alone is None:
                box = tuple((v - (v - a) / 2, v + (b - v) / 2) for v, (a, b) in zip(x, box, strict=True))
        else:
            raise NotProved(f"that there is one stationary point near {where} was not proved")
        kind, signs = point["kind"], []
        for name in point.get("directions", []):
            u = arb_mat([[rational(v)] for v in name])
            signs.append((u.transpose() * hess * u)[0, 0])
        shown = {"local minimum": definite(hess), "local maximum": definite(-1 * hess),
                 "saddle": any(s > 0 for s in signs) and any(s < 0 for s in signs), "undecided": True}  # fmt: skip
        if not shown.get(kind):
            raise NotProved(f"that {where} is a {kind} was not proved")
        if any(hi < lo2 or hi2 < lo for (lo, hi), (lo2, hi2) in zip(box, self.box, strict=True)):
            raise NotProved(f"{where} is not in the box")
        self.sentences.append(f"{where}, to within {point['radius']}: {kind}")
        return alone or box, box

    def stationary(self) -> None:
        """Each point is the one zero of grad Phi in a box; every other zero is in one that is listed as undecided."""
        zeros = [self.zero(point) for point in self.content["points"]]
        for (_, first), (_, second) in combinations(zeros, 2):
            if all(a <= d and c <= b for (a, b), (c, d) in zip(first, second, strict=True)):
                raise NotProved("two of the stationary points may be one")
        done = [*(alone for alone, _ in zeros), *map(self.region, self.content["undecided"])]

        def test(box: Box) -> Any:
            if any(all(c <= a and b <= d for (a, b), (c, d) in zip(box, other, strict=True)) for other in done):
                return None
            try:
                _, image, _ = self.newton(box)
                if image is None or any(i < arb(a) or i > arb(b) for i, (a, b) in zip(image.entries(), box, strict=True)):
                    return None
            except ArithmeticError:
                pass
            for other in done:  # a piece that overlaps with what is done is cut along its sides
                if all(c < b and a < d for (a, b), (c, d) in zip(box, other, strict=True)):
                    return next((k, at) for k, ((a, b), ends) in enumerate(zip(box, other, strict=True)) for at in ends if a < at < b)
            widths = [(b - a) / (d - c) if d > c else fmpq(0) for (a, b), (c, d) in zip(box, self.box, strict=True)]
            return widths.index(max(widths)), sum(box[widths.index(max(widths))]) / 2

        self.cover("that there are no other stationary points", [self.box], "", test)
        rest = f" outside of {len(done) - len(zeros)} boxes that are not decided" if len(done) > len(zeros) else ""
        self.sentences.append(f"there are no other stationary points in the box{rest}")
        self.numbers |= {"points": len(zeros), "undecided": len(done) - len(zeros)}

    def point(self) -> None:
        """y*, Phi, grad Phi and Hess Phi at one point, each within its radius of what is claimed."""
        content, names = self.content, self.names
        box = self.region({name: (value, value) for name, value in content["x"].items()})
        claims = {"Phi": content["phi"], **{f"{name}*": content["y"][name] for name in self.problem.y}}
        claims |= {f"dPhi/d{a}": content["grad"][a] for a in names}
        claims |= {f"d2Phi/d{a}d{b}": content["hess"][a][b] for a, b in product(names, repeat=2)}
        for doubling in range(4):
            flint.ctx.prec = (96 + 4 * max(len(str(claim[0])) for claim in claims.values())) << doubling
            try:
                jet = self.phi.jet(box, 2)
                values = [jet.at(()), *self.phi.y_star(*[[low for low, _ in box]] * 2)]
            except ArithmeticError:
                continue
            values += [jet.at(index) for order in (1, 2) for index in product(range(len(names)), repeat=order)]
            if all(abs(v - rational(mid)) <= rational(rad) for v, (mid, rad) in zip(values, claims.values(), strict=True)):
                self.sentences += [f"{name} = {mid} to within {rad}" for name, (mid, rad) in claims.items()]
                self.numbers |= claims
                return
        raise NotProved("the digits at the point were not proved")


def prove(path: str | Path, problem: str | None = None) -> Proved:
    """Prove a certificate again; ``problem`` is the text of the consumer's problem file, else that in the certificate.

    >>> prove("nowhere.json")
    Traceback (most recent call last):
        ...
    verify.certificates.recheck.Refused: nowhere.json cannot be read: No such file or directory
    """
    before = flint.ctx.prec
    try:
        flint.ctx.prec = BITS
        with Path(path).open("rb") as file:
            text = file.read(LARGEST + 1)
        content = json.loads(text, parse_float=str, parse_constant=rational) if len(text) <= LARGEST else {}
        if content.get("format") != FORMAT or content.get("kind") not in ("constants", "smoothness", "stationary", "point"):
            raise Refused(f"{path} is not a certificate of a known kind")
        checker = Checker(Problem(content["problem"] if problem is None else problem), content)
        getattr(checker, content["kind"])()
        return Proved(content["kind"], tuple(checker.sentences), checker.numbers, checker.boxes)
    except (Refused, NotProved):
        raise
    except OSError as error:
        raise Refused(f"{path} cannot be read: {error.strerror}") from None
    except (LookupError, TypeError, ValueError, AttributeError, ArithmeticError, RecursionError, MemoryError) as error:
        raise Refused(f"{path} is not a whole certificate: {error!s:.120}") from None
    finally:
        flint.ctx.prec = before


def main() -> int:
    parser = argparse.ArgumentParser(description=(__doc__ or "").partition("\n")[0])
    parser.add_argument("file", help="a certificate")
    parser.add_argument("--problem", help="the problem file that it must be about")
    options = parser.parse_args()
    try:
        print(prove(options.file, Path(options.problem).read_text(encoding="utf-8") if options.problem else None))
    except NotProved as error:
        print(f"not proved: {error}", file=sys.stderr)
        return 1
    except (Refused, OSError, UnicodeDecodeError) as error:
        print(f"error: {error}", file=sys.stderr)
        return 2
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
