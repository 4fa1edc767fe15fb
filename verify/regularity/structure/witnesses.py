"""Lower bounds of the blocks of derivatives: values at points along directions, proved.

Nothing here knows of parts and rows: a block is differentiated along directions as the formula stands, and evaluated in
balls. Directions are improved in turns, each to the gradient of the form by it, which never makes the form smaller.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from bilevel_sym.arrays.calculus import along, gradient
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.typing import Floats
from verify.enclosures.interval_matrix import ROUNDED_UP
from verify.regularity.structure.rows import Layout
from verify.regularity.structure.tensors import Balls, Evaluation, exact

__all__ = ["Witness", "Witnesses"]

LOOK, MORE_TRIALS = 2, 6  # rounds of improvement at every point, and at the best one
PRODUCTS = 20  # with second derivatives, where there are more
DENSE = 600  # a block of second derivatives with so many rows is formed to find the eigenvector of its least eigenvalue


@dataclass(frozen=True)
class Witness:
    """A value that is proved to be reached, and the point (x, y) where."""

    value: float
    point: Floats


class Witnesses:
    """Values of the blocks of one formula at points.

    - ``formula``: without free indices.
    - ``arrays``: the arrays of "x" and of "y".
    - ``layout``: where their entries stand.
    - ``points``: (x, y) in one vector each.
    - ``rng``: for the first directions.
    """

    def __init__(
        self,
        formula: Tensor,
        arrays: dict[str, Sequence[Leaf]],
        layout: Layout,
        points: Sequence[Floats],
        rng: np.random.Generator,
    ) -> None:
        self.formula, self.layout, self.rng = formula, layout, rng
        self.arrays = {**arrays, "z": (*arrays["x"], *arrays["y"])}
        self.points = points
        self._at: dict[int, Evaluation] = {}

    def largest(self, axes: str) -> Witness | None:
        """A lower bound of the norm of a block; None where it vanishes everywhere."""
        if self._along(axes).is_zero:
            return None
        found = [self._climbed(axes, k, self._directions(axes), LOOK) for k in range(len(self.points))]
        best = max(range(len(found)), key=lambda k: found[k][0])
        value = found[best][0]
        if len(found) > 1:
            value = max(value, self._climbed(axes, best, found[best][1], MORE_TRIALS)[0])
        return Witness(value, self.points[best])

    def least_curvature(self) -> Witness:
        """An upper bound of the smallest eigenvalue of the second derivatives in y."""
        found = [self._curvature(k) for k in range(len(self.points))]
        best = min(range(len(found)), key=lambda k: found[k])
        return Witness(found[best], self.points[best])

    # ---- one point ------------------------------------------------------------------------------------------------

    def _evaluation(self, k: int) -> Evaluation:
        if k not in self._at:
            values = {}
            for role in "xy":
                start = 0 if role == "x" else self.layout.counts["x"]
                for leaf in self.arrays[role]:
                    span = self.layout.spans[role][leaf.name]
                    own = self.points[k][start + span.start : start + span.stop]
                    values[leaf.name] = exact(own.reshape(self.layout.evaluation.shape(leaf.dims)))
            self._at[k] = self.layout.evaluation.with_values(values)
        return self._at[k]

    def _curvature(self, k: int) -> float:
        n = self.layout.counts["y"]
        u = self._low_direction(k) if n <= DENSE else self._low_in_few(k)
        ball = self._evaluation(k).with_values(self._named("yy", [u, u]))(self._along("yy"))
        length = float(u @ u) * (1 - 1e-12)
        top = float(ball.middle) + float(ball.radius)
        return top / length * (ROUNDED_UP if top > 0 else 1 / ROUNDED_UP) + 1e-300

    def _low_direction(self, k: int) -> Floats:
        n = self.layout.counts["y"]
        matrix = np.zeros((n, n))
        for one in self.arrays["y"]:
            for two in self.arrays["y"]:
                block = self._evaluation(k)(gradient(gradient(self.formula, one), two))
                spans = (self.layout.spans["y"][one.name], self.layout.spans["y"][two.name])
                matrix[spans] = block.middle.reshape(spans[0].stop - spans[0].start, -1)
        if not np.isfinite(matrix).all():
            return np.ones(n)
        return np.asarray(np.linalg.eigh(0.5 * (matrix + matrix.T))[1][:, 0])

    def _low_in_few(self, k: int) -> Floats:
        """The direction of least curvature in the space of a few products with one at random, by Lanczos."""
        start = self.rng.normal(size=self.layout.counts["y"])
        basis, images = [start / np.linalg.norm(start)], list[Floats]()
        for _ in range(PRODUCTS):
            images.append(self._slope("yy", 0, "y", self._evaluation(k), [basis[-1]] * 2))
            known = np.array(basis)
            rest = images[-1] - known.T @ (known @ images[-1])
            rest -= known.T @ (known @ rest)
            left = float(np.linalg.norm(rest))
            if not left > 1e-10 * float(np.linalg.norm(images[-1])):
                break
            basis.append(rest / left)
        known = np.array(basis[: len(images)])
        small = known @ np.array(images).T
        if not np.isfinite(small).all():
            return start
        return np.asarray(np.linalg.eigh(0.5 * (small + small.T))[1][:, 0] @ known)

    # ---- directions -----------------------------------------------------------------------------------------------

    def _leaves(self, axis: str, k: int) -> dict[Leaf, Leaf]:
        """The directions of one slot: an array beside each."""
        return {leaf: Leaf(f"{k}:{leaf.name}", leaf.dims, "direction") for leaf in self.arrays[axis]}

    def _along(self, axes: str, without: int | None = None) -> Tensor:
        formula = self.formula
        for k, axis in enumerate(axes):
            if k != without:
                formula = along(formula, {leaf: Tensor.leaf(way) for leaf, way in self._leaves(axis, k).items()})
        return formula

    def _size(self, axis: str) -> int:
        return sum(self.layout.counts[role] for role in ("xy" if axis == "z" else axis))

    def _directions(self, axes: str) -> list[Floats]:
        """At random; equal axes begin with the same one."""
        first = {axis: self.rng.normal(size=self._size(axis)) for axis in dict.fromkeys(axes)}
        return [first[axis] / np.linalg.norm(first[axis]) for axis in axes]

    def _named(self, axes: str, directions: Sequence[Floats]) -> dict[str, Balls]:
        values: dict[str, Balls] = {}
        for k, axis in enumerate(axes):
            for leaf, way in self._leaves(axis, k).items():
                values[way.name] = exact(
                    directions[k][self._span(axis, leaf)].reshape(self.layout.evaluation.shape(leaf.dims))
                )
        return values

    def _span(self, axis: str, leaf: Leaf) -> slice:
        role = "x" if leaf in self.arrays["x"] else "y"
        span = self.layout.spans[role][leaf.name]
        shift = self.layout.counts["x"] if axis == "z" and role == "y" else 0
        return slice(span.start + shift, span.stop + shift)

    def _climbed(self, axes: str, k: int, directions: list[Floats], rounds: int) -> tuple[float, list[Floats]]:
        evaluation = self._evaluation(k)
        for _ in range(rounds):
            for slot, axis in enumerate(axes):
                way = self._slope(axes, slot, axis, evaluation, directions)
                length = float(np.linalg.norm(way))
                if not math.isfinite(length) or length == 0:
                    return self._value(axes, k, directions), directions
                directions = [*directions[:slot], way / length, *directions[slot + 1 :]]
        return self._value(axes, k, directions), directions

    def _slope(self, axes: str, slot: int, axis: str, evaluation: Evaluation, directions: Sequence[Floats]) -> Floats:
        form = self._along(axes, without=slot)
        here = evaluation.with_values(self._named(axes, directions), rough=True)
        found = np.zeros(self._size(axis))
        for leaf in self.arrays[axis]:
            found[self._span(axis, leaf)] = here(gradient(form, leaf)).middle.ravel()
        return found

    def _value(self, axes: str, k: int, directions: Sequence[Floats]) -> float:
        """The form along the directions over their lengths, from below."""
        ball = self._evaluation(k).with_values(self._named(axes, directions))(self._along(axes))
        size = abs(float(ball.middle)) * (1 - 1e-15) - float(ball.radius)
        if not math.isfinite(size):
            return 0.0
        lengths = math.prod(float(np.linalg.norm(u)) * (1 + 1e-12) for u in directions)
        return max(0.0, size / lengths * (1 - 1e-15))
