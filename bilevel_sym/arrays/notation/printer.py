"""What text and LaTeX share: a method for each kind of node, parentheses where they are needed, names of indices."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Sequence
from dataclasses import dataclass
from fractions import Fraction
from itertools import chain, count

from bilevel_sym.arrays.notation.nodes import Function, Hadamard, IndexForm, IndexTerm, Node, Ones, Power, Scale, Sum

__all__ = [
    "ATOM", "HALF", "POWER", "PRODUCT", "SUM", "Printer", "Shown", "Verbatim", "factors_of", "is_constant", "is_test",
    "power_of", "split_sizes",
]  # fmt: skip

SUM, PRODUCT, POWER, ATOM = range(4)  # how tightly a text holds together
HALF = Fraction(1, 2)
Shown = tuple[str, int]
_LETTERS = "ijklpqrstabcdeuvwxyz"


def split_sizes(sizes: Sequence[tuple[str, int]]) -> tuple[list[tuple[str, int]], list[tuple[str, int]]]:
    """Dimensions above and below the line, with positive powers.

    >>> split_sizes((("m", -1), ("n", 2)))
    ([('n', 2)], [('m', 1)])
    """
    above = [(dim, k) for dim, k in sizes if k > 0]
    return above, [(dim, -k) for dim, k in sizes if k < 0]


def factors_of(node: Node) -> tuple[list[Node], list[Node]]:
    """What is above and what is below the line of a product entry by entry.

    >>> len(factors_of(Power(Ones(()), Fraction(-2)))[1])
    1
    """
    above: list[Node] = []
    below: list[Node] = []
    for factor in node.factors if isinstance(node, Hadamard) else (node,):
        if isinstance(factor, Power) and factor.exponent < 0:
            below.append(power_of(factor.base, -factor.exponent))
        else:
            above.append(factor)
    return above, below


def power_of(base: Node, exponent: Fraction) -> Node:
    """A power, or the base itself.

    >>> power_of(Ones(()), Fraction(1))
    Ones(shape=())
    """
    return base if exponent == 1 else Power(base, exponent)


def is_constant(node: Node) -> bool:
    """Whether it is the same everywhere, so that a scalar can stand for it.

    >>> is_constant(Scale(Fraction(2), (), (), Ones(("n",))))
    True
    """
    return isinstance(node, Ones) or (isinstance(node, Scale) and isinstance(node.body, Ones))


class Printer:
    """What every notation has: a method for each kind of node; ``taken`` are names that no index may have.

    >>> Printer({"i"}).fresh()
    'j'
    """

    def __init__(self, taken: Collection[str]) -> None:
        self._taken = set(taken)

    def fresh(self) -> str:
        """The name of a further index; it stays taken."""
        names = chain(_LETTERS, (f"i{k}" for k in count(1)))
        name = next(name for name in names if name not in self._taken)
        self._taken.add(name)
        return name

    def shown(self, node: Node) -> Shown:
        """The node, and how tightly it holds together."""
        method: Callable[[Node], Shown] = getattr(self, f"_{type(node).__name__}")
        return method(node)

    def at(self, node: Node, level: int) -> str:
        """The node where something at least as tight as ``level`` is wanted."""
        return self.held(self.shown(node), level)

    def held(self, shown: Shown, level: int) -> str:
        """In parentheses, where it is not tight enough."""
        text, own = shown
        return text if own >= level else self.parenthesised(text)

    def parenthesised(self, text: str) -> str:
        """In parentheses."""
        return f"({text})"

    def added(self, terms: Sequence[Node]) -> Shown:
        """A sum of terms with their signs; numbers stand for arrays that are the same everywhere."""
        bare = not all(map(is_constant, terms))
        texts = (self._scaled(term, bare=bare)[0] if is_constant(term) else self.at(term, SUM) for term in terms)
        return self.signed(texts), SUM

    def signed(self, texts: Iterator[str]) -> str:
        """Terms with their own signs, one after the other."""
        whole = next(texts)
        for text in texts:
            whole += f" - {text[1:].lstrip()}" if text.startswith("-") else f" + {text}"
        return whole

    def _scaled(self, node: Node, *, bare: bool) -> Shown:
        raise TypeError  # each printer says its own

    def _Sum(self, node: Sum) -> Shown:
        return self.added(node.terms)

    def _Scale(self, node: Scale) -> Shown:
        return self._scaled(node, bare=False)

    def arguments(self, bodies: Sequence[Node]) -> list[str]:
        """Arguments of a function; a number stands for an array beside one."""
        bare = len(bodies) > 1
        return [self._scaled(b, bare=bare)[0] if is_constant(b) else self.at(b, SUM) for b in bodies]

    # ---- entries

    def entry(self, node: Node, names: Sequence[str]) -> Shown:
        """The entry of a node at some indices: of functions of what has no matrix form, inside the function."""
        if isinstance(node, IndexForm):
            shown = [self._entry_term(term, names) for term in node.terms]
            if len(shown) == 1:
                return shown[0]
            return (self.signed(text for text, _ in shown) if shown else "0"), SUM
        if not node.rank:
            return self.shown(node)
        if isinstance(node, Function | Power) and any(isinstance(part, IndexForm) for part in node.parts):
            return self.of_entries(node, [self.entry(part, names) for part in node.parts])
        return self.at_indices(node, names), POWER

    def of_entries(self, node: Function | Power, parts: Sequence[Shown]) -> Shown:
        """A function of entries that are shown already."""
        verbatim = [Verbatim(*part) for part in parts]
        if isinstance(node, Power):
            return self.shown(Power(verbatim[0], node.exponent))
        return self.shown(Function(node.op, tuple(verbatim)))

    def _entry_term(self, term: IndexTerm, names: Sequence[str]) -> Shown:
        before = set(self._taken)
        summed = [self.fresh() for _ in term.dummies]
        every = [*names, *summed]
        factors = [self._entry_factor(node, [every[i] for i in own]) for node, own in term.factors]
        self._taken = before  # another term may use the letters of this one
        body = Scale(abs(term.coefficient), term.sizes, tuple(factors), Ones(()))
        text, level = self.shown(body if len(factors) != 1 or abs(term.coefficient) != 1 or term.sizes else factors[0])
        if summed:
            text, level = self.sum_over(summed, text), PRODUCT
        return (f"-{text}", SUM) if term.coefficient < 0 else (text, level)

    def _entry_factor(self, node: Node, names: Sequence[str]) -> Node:
        if isinstance(node, Power):
            return Power(self._entry_factor(node.base, names), node.exponent)
        return Verbatim(*self.entry(node, names))

    def _Verbatim(self, node: Verbatim) -> Shown:
        return node.text, node.level

    def at_indices(self, node: Node, names: Sequence[str]) -> str:
        """An entry of an array."""
        raise TypeError  # each printer says its own

    def sum_over(self, summed: Sequence[str], text: str) -> str:
        """A sum over indices."""
        raise TypeError  # each printer says its own

    def _IndexForm(self, node: IndexForm) -> Shown:
        return self.entry(node, ())


@dataclass(frozen=True)
class Verbatim(Node):
    """What is shown already, a scalar.

    >>> Verbatim("A[i, j]", ATOM).rank
    0
    """

    text: str
    level: int

    def _dims(self) -> tuple[str, ...]:
        return ()


def is_test(node: Node) -> bool:
    """Whether it is a comparison with zero.

    >>> is_test(Function("lt", (Ones(()),)))
    True
    """
    return isinstance(node, Function) and node.op in ("lt", "le")
