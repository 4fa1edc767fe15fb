"""Dimensions and what is known of them: a letter, a number, both, or only that two are the same.

Every axis has a dimension. Where a formula joins two axes, their dimensions become one; a letter that a person wrote
and a number that data have never change, so two different ones cannot be joined.
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Sequence
from itertools import count

__all__ = ["Axis", "Dimensions", "Shape"]

Axis = int  # the number of a dimension, as ``Dimensions`` hands it out
Shape = tuple[Axis, ...]

OF_VARIABLES = ("n", "p", "q", "r", "s", "t")  # letters for what nobody named, in this order
OF_DATA = ("m", "k", "p", "q", "r", "s", "t")


class Dimensions:
    """The dimensions of one problem.

    >>> known = Dimensions()
    >>> rows, columns, n = known.numbered(569), known.numbered(30), known.lettered("n")
    >>> known.join(columns, n), known.shown((rows, n)), known.join(rows, n)
    (True, '[569, n=30]', False)
    """

    def __init__(self) -> None:
        self._above: list[Axis] = []
        self._letter: dict[Axis, str] = {}
        self._size: dict[Axis, int] = {}
        self._by_letter: dict[str, Axis] = {}

    def numbered(self, size: int) -> Axis:
        """A dimension of a known size, of which nothing else is known."""
        axis = self._new()
        self._size[axis] = size
        return axis

    def lettered(self, letter: str) -> Axis:
        """The dimension that has this letter: one for all who write it."""
        if letter not in self._by_letter:
            axis = self._new()
            self._by_letter[letter], self._letter[axis] = axis, letter
        return self._by_letter[letter]

    def _new(self) -> Axis:
        self._above.append(len(self._above))
        return len(self._above) - 1

    def _root(self, axis: Axis) -> Axis:
        while self._above[axis] != axis:
            self._above[axis] = axis = self._above[self._above[axis]]
        return axis

    def join(self, one: Axis, two: Axis) -> bool:
        """Make two dimensions one; False, and nothing done, where they are known to differ."""
        if not self.may_join(one, two):
            return False
        a, b = self._root(one), self._root(two)
        if a != b:
            self._above[b] = a
            if b in self._letter:
                self._letter[a] = self._letter.pop(b)
            if b in self._size:
                self._size[a] = self._size.pop(b)
        return True

    def same(self, one: Axis, two: Axis) -> bool:
        """Whether two dimensions are one, as far as is known."""
        return self._root(one) == self._root(two)

    def may_join(self, one: Axis, two: Axis) -> bool:
        """Whether ``join`` would do it."""
        a, b = self._root(one), self._root(two)
        letters = {self._letter[axis] for axis in (a, b) if axis in self._letter}
        sizes = {self._size[axis] for axis in (a, b) if axis in self._size}
        return len(letters) < 2 and len(sizes) < 2

    def size(self, axis: Axis) -> int | None:
        """Its number, where one is known."""
        return self._size.get(self._root(axis))

    def letter(self, axis: Axis) -> str | None:
        """Its letter, where it has one."""
        return self._letter.get(self._root(axis))

    def shown(self, shape: Sequence[Axis]) -> str:
        """A shape for a message: letters and numbers, as far as they are known.

        >>> Dimensions().shown(())
        'a scalar'
        """
        return f"[{', '.join(map(self.one, shape))}]" if shape else "a scalar"

    def one(self, axis: Axis) -> str:
        """One dimension for a message."""
        letter, size = self.letter(axis), self.size(axis)
        if letter is None or size is None:
            return str(letter or size)
        return f"{letter}={size}"

    def name_rest(self, variables: Iterable[Shape], data: Iterable[Shape], taken: Collection[str]) -> None:
        """Give a letter to every dimension that has none, in the order in which they are met.

        variables: the shapes of x and y, which are named first
        data: the shapes of everything else
        taken: names that are used otherwise

        >>> known = Dimensions()
        >>> A, y = (known.numbered(5), known.lettered("n")), (known.lettered("n"),)
        >>> known.name_rest([y], [A], {"m"})
        >>> known.shown(A)
        '[k=5, n]'
        """
        used = {*taken, *self._by_letter}
        for shapes, letters in ((variables, OF_VARIABLES), (data, OF_DATA)):
            free = (letter for letter in _unending(letters) if letter not in used)
            for axis in (axis for shape in shapes for axis in shape):
                if self.letter(axis) is None:
                    letter = next(free)
                    used.add(letter)
                    self._by_letter[letter] = axis
                    self._letter[self._root(axis)] = letter

    def letters(self, shape: Sequence[Axis]) -> tuple[str, ...]:
        """The letters of a shape, once all have one."""
        return tuple(self._letter[self._root(axis)] for axis in shape)

    def sizes(self, shapes: Iterable[Shape]) -> dict[str, int | None]:
        """The number of each letter that some shapes have, in alphabetical order; None where it is not known."""
        axes = {self._letter[self._root(axis)]: axis for shape in shapes for axis in shape}
        return {letter: self.size(axes[letter]) for letter in sorted(axes)}


def _unending(letters: Sequence[str]) -> Iterable[str]:
    yield from letters
    for k in count(2):
        yield from (f"{letter}{k}" for letter in letters)
