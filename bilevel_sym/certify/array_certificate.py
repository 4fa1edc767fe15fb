"""Enclosures of y*, Phi, grad Phi and Hess Phi of an array problem at a point, whatever its size.

Matrices are float64 with a radius, vectors are balls of as many bits as the digits take. With v = g_yy^-1 f_y, the
response Z = -g_yy^-1 g_yx and the Lagrangian L = f - v^T grad_y g: grad Phi = f_x - g_xy v, and a column of Hess Phi is
s_x + Z^T s_y with s the product of the Hessian of L with (e_k, Z e_k).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple

import flint
import numpy as np
from flint import arb, arb_mat

from bilevel_sym.arithmetic.enclosed.arithmetics import BallArrays
from bilevel_sym.arithmetic.enclosed.entries import arranged, floats_of
from bilevel_sym.certify.array_blocks import EnclosedBlocks, EnclosedPoint, Exactly
from bilevel_sym.certify.array_lower_level import Region, proved_region, refined, solved
from bilevel_sym.graph.precision import precision
from bilevel_sym.system.memory import refuse_beyond
from bilevel_sym.typing import Floats

MOST_COLUMNS = 50  # of Hess Phi: each takes a system of its own
START_BITS = 128  # for the residual that a region is found with
BALL = 14  # float64 numbers that a ball takes the memory of
VECTORS = ("f", "f_x", "f_y", "g", "g_y", "g_yy_v", "g_xy_v")


class Truths(NamedTuple):
    """Balls that hold what is true: vectors as lists, Hess Phi as rows, None where it has too many columns."""

    y: list[Any]
    phi: Any
    grad: list[Any]
    hess: list[list[Any]] | None


class ArrayEnclosures:
    """Enclosures of one array problem at one point, at any precision.

    - ``exactly``: the problem.
    - ``point``: x, as rationals with ``p`` and ``q``.
    - ``start``: about y*, in float64.
    - ``hessian``: whether Hess Phi is wanted.

    >>> from bilevel_sym import BilevelProblem
    >>> import sympy
    >>> problem = BilevelProblem("x*sum(y)", "sum((y - x*b)**2)", "x", "y[n]", data={"b": [1, 2]})
    >>> found = ArrayEnclosures(Exactly.of(problem), [sympy.Rational(1, 3)], np.array([0.33, 0.67])).at(100)
    >>> found.phi.overlaps(arb(1) / 3), found.hess[0][0].contains(6)
    (True, True)
    """

    def __init__(self, exactly: Exactly, point: Sequence[Any], start: Floats, *, hessian: bool = True) -> None:
        self._exactly, self._point, self._start = exactly, point, start
        self._has_hessian = hessian and exactly.d <= MOST_COLUMNS
        self._kind = BallArrays()  # keeps slices of data from one precision to the next
        self._region: Region | str | None = None
        self._refuse_large()

    def _refuse_large(self) -> None:
        exactly, n = self._exactly, self._exactly.n
        numbers = BALL * exactly.entries(VECTORS) + 2 * exactly.entries(("g_yy",)) + 12 * n**2
        hint = "fewer rows or columns; kernels of the problem need no proof"
        refuse_beyond(numbers, f"a certificate with d = {exactly.d:,} and n = {n:,}", hint)

    def at(self, bits: int) -> Truths | str:
        """What is proved with balls of so many bits, or why nothing is."""
        with np.errstate(all="ignore"):  # what leaves float64 is unknown, and said to be
            if self._region is None:
                with precision(START_BITS):
                    self._region = self._found_region()
            if isinstance(self._region, str):
                return self._region
            with precision(bits):
                return self._truths(self._region)

    def _blocks(self) -> tuple[EnclosedBlocks[Any], Any]:
        x = arranged([arb(flint.fmpq(int(value.p), int(value.q))) for value in self._point])
        return EnclosedBlocks(self._exactly, self._kind), x

    def _found_region(self) -> Region | str:
        blocks, x = self._blocks()
        near = floats_of(x)
        return proved_region(self._exactly, near, self._start, lambda y: blocks.at(x, y).block("g_y"))

    def _truths(self, region: Region) -> Truths | str:
        blocks, x = self._blocks()
        y = refined(region, lambda c: blocks.at(x, c).block("g_y"))
        if isinstance(y, str):
            return y
        point = blocks.at(x, y)
        phi, f_y = point.block("f").item(), point.block("f_y")
        v = solved(region, f_y, lambda z: point.with_v(z).block("g_yy_v"))
        if isinstance(v, str):
            return v
        held = point.with_v(v)
        grad = point.block("f_x") - held.block("g_xy_v")
        hess = self._hessian(region, held) if self._has_hessian else None
        if isinstance(hess, str):
            return hess
        return Truths(y.tolist(), phi, grad.tolist(), hess)

    def _hessian(self, region: Region, held: EnclosedPoint[Any]) -> list[list[Any]] | str:
        d, n = self._exactly.d, self._exactly.n
        moves, s_x, s_y = [], [], []
        for k in range(d):
            along = arranged([arb(0)] * (2 * (d + n)))
            along[k] = arb(1)
            moved = solved(
                region, -held.with_u(along).block("g_yx_u"), lambda z: held.with_v(z).block("g_yy_v")
            )  # how y* moves with x_k
            if isinstance(moved, str):
                return moved
            along[d : d + n] = moved
            curved = held.with_u(along)
            moves += moved.tolist()
            s_x.append(curved.block("s_x").tolist())
            s_y += curved.block("s_y").tolist()
        crossed = arb_mat(d, n, s_y) * arb_mat(d, n, moves).transpose()
        return [[s_x[k][j] + crossed[k, j] for j in range(d)] for k in range(d)]
