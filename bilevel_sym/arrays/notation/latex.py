"""Matrix notation in LaTeX (amsmath)."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence

import sympy as sp

from bilevel_sym.arrays.notation.nodes import (
    Diag,
    DiagonalOf,
    Function,
    Hadamard,
    Identity,
    LogSumExpOf,
    MatMul,
    Name,
    Node,
    Ones,
    Outer,
    Power,
    Scale,
    Softmax,
    SumOf,
    Trace,
    Transpose,
)
from bilevel_sym.arrays.notation.printer import (
    ATOM,
    HALF,
    POWER,
    PRODUCT,
    SUM,
    Printer,
    Shown,
    factors_of,
    is_test,
    power_of,
    split_sizes,
)

__all__ = ["Latex", "latex_name"]


def latex_name(name: str) -> str:
    """A name in LaTeX: letters with subscripts, Greek letters, words upright, anything else letter by letter.

    >>> print(latex_name("A"), latex_name("alpha1"), latex_name("train"), latex_name("a$b"))
    A \\alpha_{1} \\mathrm{train} \\mathtt{a\\$b}
    """
    found = _PLAIN.fullmatch(name)
    if found is None:
        return rf"\mathtt{{{''.join(map(_escaped, name))}}}"
    letters, subscript = found[1], (found[2] or "").removeprefix("_")
    letters = "lambda" if letters == "lam" else letters  # which Python keeps for itself
    shown = str(sp.latex(sp.Symbol(letters))) if len(letters) > 1 else letters
    shown = rf"\mathrm{{{letters}}}" if shown == letters and len(letters) > 1 else shown
    below = rf"\mathrm{{{subscript}}}" if subscript.isalpha() and len(subscript) > 1 else subscript
    return f"{shown}_{{{below}}}" if below else shown


def _escaped(c: str) -> str:
    """One letter, which means nothing to LaTeX."""
    if c in _ESCAPES:
        return _ESCAPES[c]
    return c if c.isascii() and c.isprintable() else f"U{ord(c):04X}"


_ESCAPES = {
    "\\": r"\backslash{}", "^": r"\wedge{}", "~": r"\sim{}", " ": r"\ ",
    **{c: "\\" + c for c in "#$%&_{}"},
}  # fmt: skip
_PLAIN = re.compile(r"([A-Za-z]+)(_?[0-9]+|_[A-Za-z0-9]+)?")


class Latex(Printer):
    """amsmath; products entry by entry are circled dots, powers of matrices entry by entry too.

    ``names`` has the LaTeX of names that have one of their own.

    >>> print(Latex((), {}).shown(Hadamard((Name("a", ("n",)), Name("b", ("n",)))))[0])
    a \\odot b
    """

    def __init__(self, taken: Collection[str], names: Mapping[str, str]) -> None:
        super().__init__(taken)
        self._names = names

    def parenthesised(self, text: str) -> str:
        """In parentheses that grow."""
        return rf"\left({text}\right)"

    def _Name(self, node: Name) -> Shown:
        return self._names.get(node.name) or latex_name(node.name), ATOM

    def _Ones(self, node: Ones) -> Shown:
        if not node.dims:
            return "1", ATOM
        return r"\mathbf{1}" if node.rank == 1 else r"\mathbf{1} \mathbf{1}^{\top}", ATOM

    def _Identity(self, node: Identity) -> Shown:
        return "I", ATOM

    def _scaled(self, node: Node, *, bare: bool) -> Shown:
        if not isinstance(node, Scale):
            return ("1", ATOM) if bare else self.shown(node)
        number, (above, below) = node.coefficient, split_sizes(node.sizes)
        upper = [str(abs(number.numerator))] if abs(number.numerator) != 1 else []
        lower = [str(number.denominator)] if number.denominator != 1 else []
        upper += [_latex_size(*size) for size in above]
        lower += [_latex_size(*size) for size in below]
        numerators, denominators = zip(*map(factors_of, node.scalars), strict=True) if node.scalars else ((), ())
        scalars = [self.at(factor, POWER) for group in numerators for factor in group]
        below_line = [factor for group in denominators for factor in group]
        lower += [self.at(factor, POWER if lower or len(below_line) > 1 else SUM) for factor in below_line]
        if below_line and not node.dims:
            upper, scalars = upper + scalars, []
        front = rf"\frac{{{' '.join(upper) or '1'}}}{{{' '.join(lower)}}}" if lower else r" \, ".join(upper)
        pieces = [piece for piece in (front, *scalars) if piece]
        if not (isinstance(node.body, Ones) and (bare or not node.body.dims)):
            pieces.append(self.at(node.body, PRODUCT))
        text = ("-" if number < 0 else "") + (r" \, ".join(pieces) or "1")
        level = ATOM if len(pieces) < 2 and not lower else PRODUCT
        return text, SUM if number < 0 else level

    def _Hadamard(self, node: Hadamard) -> Shown:
        above, below = factors_of(node)
        if node.rank == 0:
            return self._quotient(above, below)
        text = r" \odot ".join(self.at(factor, PRODUCT + 1) for factor in above) or "1"
        text += "".join(rf" \oslash {self.at(factor, POWER)}" for factor in below)
        return text, PRODUCT

    def _quotient(self, above: Sequence[Node], below: Sequence[Node]) -> Shown:
        text = r" \, ".join(self.at(factor, POWER) for factor in above) or "1"
        if not below:
            return text, PRODUCT
        under = r" \, ".join(self.at(factor, POWER) for factor in below)
        return rf"\frac{{{text}}}{{{under}}}", PRODUCT

    def _Power(self, node: Power) -> Shown:
        k = node.exponent
        if k < 0:
            if node.rank == 0:
                return self._quotient([], [power_of(node.base, -k)])
            return rf"1 \oslash {self.at(power_of(node.base, -k), POWER)}", PRODUCT
        if k == HALF:
            return rf"\sqrt{{{self.at(node.base, SUM)}}}", ATOM
        circled = r"\odot " if node.rank == 2 else ""
        power = str(k) if k.denominator == 1 else f"{k.numerator}/{k.denominator}"
        return f"{self._raised(node.base)}^{{{circled}{power}}}", POWER

    def _raised(self, base: Node) -> str:
        """What an exponent can be put on: nothing that has one."""
        text, level = self.shown(base)
        bare = level == ATOM and "^" not in text and not isinstance(base, Function)
        return text if bare else self.parenthesised(text)

    def _MatMul(self, node: MatMul) -> Shown:
        if len(node.factors) == 2 and node.factors[0] == node.factors[1] and node.rank == 0:
            return rf"\lVert {self.at(node.factors[0], SUM)} \rVert^{{2}}", POWER
        texts = [self.at(factor, POWER) for factor in node.factors]
        if node.factors[0].rank == 1:
            texts[0] = f"{self._raised(node.factors[0])}^{{\\top}}"
        return r" \, ".join(texts) if any(len(text) > 3 and "^" not in text for text in texts) else " ".join(
            texts
        ), PRODUCT

    def _Transpose(self, node: Transpose) -> Shown:
        return f"{self._raised(node.body)}^{{\\top}}", POWER

    def _Diag(self, node: Diag) -> Shown:
        return self._called("diag", node.vector), ATOM

    def _DiagonalOf(self, node: DiagonalOf) -> Shown:
        return self._called("diag", node.body), ATOM

    def _Outer(self, node: Outer) -> Shown:
        right = node.right
        raised = rf"{self._raised(right)}^{{\top}}"
        return f"{self.at(node.left, POWER)} {raised}", PRODUCT

    def _SumOf(self, node: SumOf) -> Shown:
        body, axis = node.body, node.axis
        if axis is None and isinstance(body, Power) and body.exponent == 2:
            below = "_{F}" if body.rank == 2 else ""
            return rf"\lVert {self.at(body.base, SUM)} \rVert{below}^{{2}}", POWER
        if axis is None and body.rank == 2 and isinstance(body, Hadamard) and len(body.factors) == 2:
            one, two = (self.at(factor, SUM) for factor in body.factors)
            return rf"\left\langle {one}, {two} \right\rangle", ATOM
        if axis is None:
            inner = self.at(body, POWER)
            both = rf"\mathbf{{1}}^{{\top}} {inner}"
            return (both if body.rank == 1 else rf"{both} \, \mathbf{{1}}"), PRODUCT
        turned = Transpose(body) if axis == 0 else body
        return rf"{self.at(turned, POWER)} \, \mathbf{{1}}", PRODUCT

    def _LogSumExpOf(self, node: LogSumExpOf) -> Shown:
        return self._called(r"logsumexp" + _below(node.axis), node.body), ATOM

    def _Softmax(self, node: Softmax) -> Shown:
        return self._called(r"softmax" + _below(node.axis), node.body), ATOM

    def _Trace(self, node: Trace) -> Shown:
        return self._called("tr", node.body), ATOM

    def _called(self, name: str, body: Node) -> str:
        plain, _, below = name.partition("_")
        return rf"\operatorname{{{plain}}}{'_' + below if below else ''}\left({self.at(body, SUM)}\right)"

    def _Function(self, node: Function) -> Shown:
        if node.op == "select":
            condition, one, two = self.arguments(node.bodies)
            cases = rf"{one} & \text{{where }} {condition} \\ {two} & \text{{elsewhere}}"
            return rf"\begin{{cases}} {cases} \end{{cases}}", SUM
        if is_test(node):
            sign = "<" if node.op == "lt" else r"\le"
            return rf"\left[{self.at(node.bodies[0], SUM)} {sign} 0\right]", ATOM
        if node.op == "exp":
            text = self.at(node.bodies[0], SUM)
            short = len(text) <= 24 and not any(mark in text for mark in (r"\frac", r"\left", "^"))
            return (f"e^{{{text}}}", POWER) if short else (rf"\exp\left({text}\right)", ATOM)
        name = _LATEX_FUNCTIONS.get(node.op, rf"\operatorname{{{node.op}}}")
        return (rf"{name}\left({', '.join(self.arguments(node.bodies))}\right)" if node.bodies else name), ATOM

    def at_indices(self, node: Node, names: Sequence[str]) -> str:
        """An entry of an array, with its indices below."""
        where = " ".join(names)
        if isinstance(node, Identity):
            return rf"\delta_{{{where}}}"
        text, level = self.shown(node)
        plain = level == ATOM and "_" not in text
        whole = text if plain else rf"\left[{text}\right]"
        return f"{whole}_{{{where}}}"

    def sum_over(self, summed: Sequence[str], text: str) -> str:
        """A sum over indices."""
        return rf"\sum_{{{' '.join(summed)}}} {text}"


_LATEX_FUNCTIONS = {
    **{name: rf"\{name}" for name in ("log", "sin", "cos", "tan", "tanh", "sinh", "cosh", "min", "max")},
    "atan": r"\arctan", "sigmoid": r"\sigma", "bell": r"\sigma'", "pi": r"\pi", "sign": r"\operatorname{sign}",
}  # fmt: skip


def _below(axis: int | None) -> str:
    return "" if axis is None else r"_{\mathrm{rows}}" if axis == 1 else r"_{\mathrm{columns}}"


def _latex_size(dim: str, power: int) -> str:
    return dim if power == 1 else f"{dim}^{{{power}}}"
