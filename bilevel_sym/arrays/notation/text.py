"""Matrix notation as text, in the grammar of problems where that has it."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence

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
    Verbatim,
    factors_of,
    is_test,
    power_of,
    split_sizes,
)

__all__ = ["Text"]


class Text(Printer):
    """The grammar of problems.

    >>> A, y = Name("A", ("m", "n")), Name("y", ("n",))
    >>> Text(()).shown(Hadamard((Name("b", ("m",)), MatMul((A, y)))))[0]
    'b*(A @ y)'
    """

    def _Name(self, node: Name) -> Shown:
        return node.name, ATOM

    def _Ones(self, node: Ones) -> Shown:
        return (f"ones({', '.join(node.dims)})" if node.dims else "1"), ATOM

    def _Identity(self, node: Identity) -> Shown:
        return f"eye({node.dim})", ATOM

    def _scaled(self, node: Node, *, bare: bool) -> Shown:
        """A fraction: numbers, dimensions and scalars, then the body; what has negative powers below the line."""
        if not isinstance(node, Scale):
            return ("1", ATOM) if bare else self.shown(node)
        node = self._with_mean(node)
        number, (above, below) = node.coefficient, split_sizes(node.sizes)
        upper = [str(abs(number.numerator))] if abs(number.numerator) != 1 else []
        lower = [str(number.denominator)] if number.denominator != 1 else []
        upper += [_sized(*size) for size in above]
        lower += [_sized(*size) for size in below]
        for scalar in node.scalars:
            self._put(scalar, upper, lower, last=len(node.scalars) == 1 and isinstance(node.body, Ones))
        if not (isinstance(node.body, Ones) and (bare or not node.body.dims)):
            self._put(node.body, upper, lower, last=True)
        return self._fraction("-" * (number < 0), upper, lower)

    def _with_mean(self, node: Scale) -> Scale:
        """A sum over the number of its entries is a mean."""
        sizes, parts = dict(node.sizes), [node.body, *node.scalars]
        for k, part in enumerate(parts):
            if isinstance(part, SumOf) and part.axis is None:
                counts = Counter(part.body.dims)
                if all(sizes.get(dim, 0) <= -times for dim, times in counts.items()):
                    parts[k] = Verbatim(f"mean({self.at(part.body, SUM)})", ATOM)
                    sizes = {dim: power + counts[dim] for dim, power in sizes.items() if power + counts[dim]}
        return Scale(node.coefficient, tuple(sizes.items()), tuple(parts[1:]), parts[0])

    def _put(self, node: Node, upper: list[str], lower: list[str], *, last: bool = False) -> None:
        above, below = factors_of(node)
        matmul = last and isinstance(node, MatMul)  # 2*A @ y is (2*A) @ y, the same
        upper += [self.at(factor, PRODUCT if matmul else POWER) for factor in above]
        lower += [self.at(factor, POWER) for factor in below]

    def _fraction(self, sign: str, upper: Sequence[str], lower: Sequence[str]) -> Shown:
        text = sign + ("*".join(upper) or "1")
        if lower:
            text += "/" + (lower[0] if len(lower) == 1 else f"({'*'.join(lower)})")
        if sign:
            return text, SUM
        if lower or len(upper) > 1 or "@" in text:
            return text, PRODUCT
        return text, ATOM if text.isalnum() else POWER

    def _Hadamard(self, node: Hadamard) -> Shown:
        upper: list[str] = []
        lower: list[str] = []
        self._put(node, upper, lower)
        return self._fraction("", upper, lower)[0], PRODUCT

    def _Power(self, node: Power) -> Shown:
        k = node.exponent
        if k < 0:
            return f"1/{self.at(power_of(node.base, -k), POWER)}", PRODUCT
        if k == HALF:
            return f"sqrt({self.at(node.base, SUM)})", ATOM
        return f"{self.at(node.base, ATOM)}**{k if k.denominator == 1 else f'({k})'}", POWER

    def _MatMul(self, node: MatMul) -> Shown:
        return " @ ".join(self.at(factor, POWER) for factor in node.factors), PRODUCT

    def _Transpose(self, node: Transpose) -> Shown:
        return f"{self.at(node.body, ATOM)}.T", ATOM

    def _Diag(self, node: Diag) -> Shown:
        return f"diag({self.at(node.vector, SUM)})", ATOM

    def _DiagonalOf(self, node: DiagonalOf) -> Shown:
        return f"diag({self.at(node.body, SUM)})", ATOM

    def _Outer(self, node: Outer) -> Shown:
        return f"outer({self.at(node.left, SUM)}, {self.at(node.right, SUM)})", ATOM

    def _SumOf(self, node: SumOf) -> Shown:
        return self._reduced("sum", node.body, node.axis)

    def _LogSumExpOf(self, node: LogSumExpOf) -> Shown:
        return self._reduced("logsumexp", node.body, node.axis)

    def _Softmax(self, node: Softmax) -> Shown:
        return self._reduced("softmax", node.body, node.axis)

    def _reduced(self, name: str, body: Node, axis: int | None) -> Shown:
        return f"{name}({self.at(body, SUM)}{'' if axis is None else f', axis={axis}'})", ATOM

    def _Trace(self, node: Trace) -> Shown:
        return f"trace({self.at(node.body, SUM)})", ATOM

    def _Function(self, node: Function) -> Shown:
        if node.op == "select":
            condition, one, two = self.arguments(node.bodies)
            test = condition if is_test(node.bodies[0]) else f"{condition} > 0"
            return f"Piecewise(({one}, {test.removeprefix('(').removesuffix(')')}), ({two}, True))", ATOM
        if is_test(node):
            return f"({self.at(node.bodies[0], SUM)} {'<' if node.op == 'lt' else '<='} 0)", ATOM
        name = "sigmoid'" if node.op == "bell" else node.op
        return (f"{name}({', '.join(self.arguments(node.bodies))})" if node.bodies else name), ATOM

    def at_indices(self, node: Node, names: Sequence[str]) -> str:
        """An entry of an array."""
        where = ", ".join(names)
        return f"delta[{where}]" if isinstance(node, Identity) else f"{self.at(node, ATOM)}[{where}]"

    def sum_over(self, summed: Sequence[str], text: str) -> str:
        """A sum over indices."""
        return f"sum_{','.join(summed)} {text}"


def _sized(dim: str, power: int) -> str:
    return dim if power == 1 else f"{dim}**{power}"
