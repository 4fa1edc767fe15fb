"""A part with numbers: what its affine forms and functions range over in a region, place by place."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from bilevel_sym.arithmetic.intervals import PROVED, Pair, enclose
from bilevel_sym.typing import Floats
from verify.enclosures.interval_matrix import Matrices
from verify.regularity.structure.copied import copied_rows
from verify.regularity.structure.recognition import Atom, Part
from verify.regularity.structure.rows import Layout, Rows, row_of_places, rows_of, stacked
from verify.regularity.structure.tensors import exact

__all__ = ["SOFT", "MeasuredPart", "Slot", "soft_bounds"]

SOFT = -1  # the number of the logarithm of a sum of exponentials among the factors


@dataclass(frozen=True, eq=False)
class Slot:
    """What a direction may meet in a part: a factor by the number of its atom, and its rows in one role."""

    number: int
    rows: Rows


def soft_bounds(order: int) -> Pair:
    """Bounds of the derivatives of log(sum(exp(z))) along unit vectors: a bracket for each order from 1 to 4.

    Along u the derivatives are the cumulants of u under the probabilities p = softmax(z). Its range is at most
    R = sqrt(2) for a unit vector. The first is a mean, |p.u| <= |p| <= 1. The second is a variance, between 0 and
    R**2/4 = 1/2. The third is a third central moment, at most R**3/(6 sqrt(3)), which two points attain. The fourth,
    m4 - 3 m2**2, is at least m2**2 - 3 m2**2 >= -R**4/8 and at most m4 <= R**4/12, so that |.| <= 1/2. A symmetric
    multilinear form is largest where its arguments agree (Banach), hence these hold for different unit vectors too.

    >>> [float(end[0]) for end in soft_bounds(2)]
    [0.0, 0.5]
    """
    third = math.sqrt(2) ** 3 / (6 * math.sqrt(3)) * (1 + 1e-14)
    low, high = {1: (-1.0, 1.0), 2: (0.0, 0.5), 3: (-third, third), 4: (-0.5, 0.5)}[order]
    return np.array([low]), np.array([high])


class MeasuredPart:
    """A part over a region: its slots, and the weights that stand between rows in its derivatives."""

    def __init__(self, part: Part, layout: Layout, lower: Mapping[str, Floats], upper: Mapping[str, Floats]) -> None:
        self.part, self.layout = part, layout
        self.lower, self.upper = lower, upper
        self.shape = layout.evaluation.shape(part.dims)
        self.count = math.prod(self.shape)
        self._slots: dict[str, list[Slot]] = {}
        self._weights: dict[tuple[object, ...], Pair] = {}

    def slots(self, role: str) -> list[Slot]:
        """The factors that depend on a role; those of "z" on x and y, laid end to end."""
        if role not in self._slots:
            self._slots[role] = [*self._plain_slots(role), *self._soft_slots(role)]
        return self._slots[role]

    def _plain_slots(self, role: str) -> list[Slot]:
        numbers = [k for group in self.part.groups for k in group.atoms]
        found = ((k, self._rows(self.part.atoms[k], role)) for k in numbers)
        return [Slot(k, rows) for k, rows in found if rows is not None]

    def _soft_slots(self, role: str) -> list[Slot]:
        if self.part.soft is None:
            return []
        rows = [self._rows(atom, role, block) for atom, block in self._soft_atoms]
        if all(one is None for one in rows):
            return []
        pairs = zip(rows, self._soft_atoms, strict=True)
        own = [one if one is not None else self._no_rows(role, *atom) for one, atom in pairs]
        blocks = math.prod(self.layout.evaluation.shape(self._soft_atoms[0][0].tensor.dims[: self._soft_rank]))
        return [Slot(SOFT, stacked(own, blocks))]

    @cached_property
    def _soft_rank(self) -> int:
        assert self.part.soft is not None
        return self.part.soft.atoms[0].tensor.rank - self._summed

    @property
    def _summed(self) -> int:
        assert self.part.soft is not None
        return self.part.soft.summed[0]

    @cached_property
    def _soft_atoms(self) -> list[tuple[Atom, int]]:
        """The exponents, and how many of them belong to one place."""
        assert self.part.soft is not None
        sizes = self.layout.evaluation.shape
        pairs = zip(self.part.soft.atoms, self.part.soft.summed, strict=True)
        return [(atom, math.prod(sizes(atom.tensor.dims[atom.tensor.rank - more :]))) for atom, more in pairs]

    def _no_rows(self, role: str, atom: Atom, block: int) -> Rows:
        length, size = math.prod(self.layout.evaluation.shape(atom.tensor.dims)), self.layout.counts[role]
        at = row_of_places(self.shape, atom.places, self.layout.evaluation.shape(atom.tensor.dims[: self._soft_rank]))
        return Rows(self.count, size, at, block, Matrices.around(np.zeros((1, length, size))))

    def _rows(self, atom: Atom, role: str, block: int | None = None) -> Rows | None:
        if role == "z":
            roles = [one for one in "xy" if any(leaf.role == one for leaf in atom.tensor.leaves)]
            if len(roles) == 2:
                one, two = (rows_of(atom.tensor, r, self.layout, self.shape, atom.places, block) for r in roles)
                assert one is not None
                assert two is not None
                return _side_by_side(one, two)
            role = roles[0] if roles else "y"
        own = atom.tensor, role, self.layout, self.shape, atom.places
        copied = copied_rows(*own, self._summed) if block is not None and len(self._soft_atoms) == 1 else None
        return copied if copied is not None else rows_of(*own, block)

    # ---- weights --------------------------------------------------------------------------------------------------

    def weights(self, slots: Sequence[Slot]) -> Pair:
        """The range of what multiplies the rows when the directions meet these slots, (count,) each end.

        Of a logarithm of a sum of exponentials it bounds a form of unit vectors, not a number.
        """
        orders = tuple(sum(slot.number == k for slot in slots) for k in range(len(self.part.atoms)))
        soft = sum(slot.number == SOFT for slot in slots)
        key = (orders, soft)
        if key not in self._weights:
            self._weights[key] = self._new_weights(orders, soft)
        return self._weights[key]

    def _new_weights(self, orders: tuple[int, ...], soft: int) -> Pair:
        found = self._scale
        for k, group in enumerate(self.part.groups):
            box = self._stack(group.atoms)
            data = self._stack(group.data) if group.data else None
            own = self.part.functions[k].ranges(tuple(orders[a] for a in group.atoms), box, data)
            found = PROVED["mul"](found, own)
        if self.part.soft is not None:
            found = PROVED["mul"](found, soft_bounds(soft) if soft else self._soft_values)
        return found

    def _stack(self, numbers: Sequence[int]) -> Pair:
        ends = [self._values[k] for k in numbers]
        return np.array([low for low, _ in ends]), np.array([high for _, high in ends])

    @cached_property
    def _values(self) -> list[Pair]:
        """The ranges of the atoms, place by place."""
        return [self._range(atom) for atom in self.part.atoms]

    def _range(self, atom: Atom) -> Pair:
        """Of an affine form: its constant, and its rows times x and y."""
        low, high = self._spread(atom, *self._constant(atom))
        for role in "xy":
            rows = self._rows(atom, role)
            if rows is not None:
                one, two = rows.over(self.lower[role], self.upper[role])
                low, high = _down(low + one), _up(high + two)
        return low, high

    def _constant(self, atom: Atom) -> Pair:
        """An affine form where the variables are zero."""
        variables = [leaf for leaf in atom.tensor.leaves if leaf.role in ("x", "y")]
        zero = {leaf.name: exact(np.zeros(self.layout.evaluation.shape(leaf.dims))) for leaf in variables}
        return self.layout.evaluation.with_values(zero)(atom.tensor).ends

    def _spread(self, atom: Atom, low: Floats, high: Floats) -> Pair:
        at = row_of_places(self.shape, atom.places, low.shape)
        return (low.ravel(), high.ravel()) if at is None else (low.ravel()[at], high.ravel()[at])

    @cached_property
    def _scale(self) -> Pair:
        """The number and the data before the functions."""
        low, high = enclose(self.part.number.numerator, self.part.number.denominator)
        found = np.full(self.count, low), np.full(self.count, high)
        for atom in self.part.scale:
            found = PROVED["mul"](found, self._spread(atom, *self.layout.evaluation(atom.tensor).ends))
        return found

    @cached_property
    def _soft_values(self) -> Pair:
        """log(sum(exp(z))) lies between the largest z and that plus the logarithm of their number."""
        lows, highs, number = [], [], 0
        for atom, block in self._soft_atoms:
            number += block
            low, high = self._constant(atom)
            low, high = low.reshape(-1, block), high.reshape(-1, block)
            at = row_of_places(
                self.shape, atom.places, self.layout.evaluation.shape(atom.tensor.dims[: self._soft_rank])
            )
            for role in "xy":
                rows = self._rows(atom, role, block)
                if rows is not None:
                    one, two = rows.over_each(self.lower[role], self.upper[role])
                    low, high = _down(low + one.reshape(low.shape)), _up(high + two.reshape(high.shape))
            lows.append(low.max(axis=1) if at is None else low.max(axis=1)[at])
            highs.append(high.max(axis=1) if at is None else high.max(axis=1)[at])
        return np.max(lows, axis=0), _up(np.max(highs, axis=0) + math.log(number) * (1 + 1e-14))


def _side_by_side(one: Rows, two: Rows) -> Rows:
    """The rows of x and of y as one."""
    left, right = one.dense() if one.block == 1 else one.matrix, two.dense() if two.block == 1 else two.matrix
    assert left is not None
    assert right is not None
    middle, radius = (
        np.concatenate(pair, axis=2) for pair in ((left.middle, right.middle), (left.radius, right.radius))
    )
    at = None if one.block == 1 else one.at
    return Rows(one.count, one.size + two.size, at, one.block, Matrices(middle, radius))


def _down(values: Floats) -> Floats:
    return np.where(np.isfinite(values), np.nextafter(values, -np.inf), values)


def _up(values: Floats) -> Floats:
    return np.where(np.isfinite(values), np.nextafter(values, np.inf), values)
