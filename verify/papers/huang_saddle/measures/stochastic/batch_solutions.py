"""Many batches at once: their own lower-level solutions, and derivatives of f, g, y* and Phi that belong to them."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from bilevel_sym import StochasticProblem
from bilevel_sym.estimators.batches import Batch, BatchSession, Data
from bilevel_sym.estimators.oracle import fill
from bilevel_sym.typing import Floats
from verify.points.derivatives_at import BLOCKS, Derivatives

__all__ = ["Batches", "frobenius", "slices", "spectral"]

STEPS = 60  # of Newton's method


class Batches:
    """A batch of F and one of G in each lane, all at one x.

    >>> from bilevel_sym import zoo
    >>> problem = zoo.get("stochastic_noise").problem
    >>> batches = Batches(problem, np.zeros(2), [np.random.default_rng(0)], 3, 3)
    >>> batches.solutions(np.zeros(2)).shape
    (1, 2)
    """

    def __init__(
        self, problem: StochasticProblem, x: Floats, streams: Sequence[np.random.Generator], size_f: int, size_g: int
    ) -> None:
        self._data, self._x, self.lanes = Data(problem), x, len(streams)
        self._batches = {"f": self._data.draw("f", streams, size_f), "g": self._data.draw("g", streams, size_g)}

    def whole(self) -> Batches:
        """All data in each lane: the mean."""
        twin = object.__new__(Batches)
        twin.__dict__.update(self.__dict__)
        twin._batches = {level: self._all(level) for level in ("f", "g")}
        return twin

    def _all(self, level: str) -> Batch:
        problem = self._data.problem
        table = np.array((problem.xi_data if level == "f" else problem.zeta_data) or [[]], dtype=np.float64)
        rows = np.broadcast_to(table, (self.lanes, *table.shape))
        return Batch(rows, np.full(rows.shape[:2], 1 / len(table)))

    def at(self, y: Floats, names: Sequence[str] = BLOCKS) -> Derivatives:
        """Blocks of the batches at (x, y), with y of (lanes, n)."""
        session = BatchSession(self._data, names, self.lanes, self._batches)
        fill(session, np.repeat(self._x[:, None], self.lanes, axis=1), y.T)
        session.perform(0)
        sizes = {"x": len(self._x), "y": y.shape[1]}
        return Derivatives(
            {name: session.rows(name).T.reshape(self.lanes, *(sizes[axis] for axis in name[2:])) for name in names}
        )

    def solutions(self, start: Floats) -> Floats:
        """The lower-level solution of each batch by Newton's method, (lanes, n); nan where that does not settle."""
        y = np.repeat(np.asarray(start, dtype=np.float64)[None], self.lanes, axis=0)
        with np.errstate(all="ignore"):
            for _ in range(STEPS):
                here = self.at(y, ("g_y", "g_yy"))
                finite = np.isfinite(here["g_yy"]).all(axis=(1, 2), keepdims=True)
                # a pseudo-inverse, as a batch without strong convexity may be singular
                inverse = np.linalg.pinv(np.where(finite, here["g_yy"], np.eye(y.shape[1])), hermitian=True)
                step = inverse @ here["g_y"][:, :, None]
                y = y - step[:, :, 0]
                if np.all(np.abs(step[:, :, 0]) <= 1e-14 * (1 + np.abs(y))):
                    break
            residual = np.abs(self.at(y, ("g_y",))["g_y"]).max(axis=1, keepdims=True)
        return np.where(residual <= 1e-10 * (1 + np.abs(y).max()), y, np.nan)


def spectral(matrices: Floats) -> Floats:
    """The norm of each lane: of a vector, or of a matrix.

    >>> spectral(np.array([[3.0, 4.0]])), spectral(np.array([[[2.0, 0.0], [0.0, 1.0]]]))
    (array([5.]), array([2.]))
    """
    if matrices.ndim == 2:
        return np.asarray(np.linalg.norm(matrices, axis=1))
    return np.asarray(np.linalg.norm(matrices, ord=2, axis=(1, 2)))


def frobenius(tensors: Floats) -> Floats:
    """A bound of the norm of each lane from above: the root of the sum of all squares.

    >>> frobenius(np.ones((1, 2, 2, 1)))
    array([2.])
    """
    return np.asarray(np.sqrt(np.square(tensors).reshape(len(tensors), -1).sum(axis=1)))


def slices(tensors: Floats) -> Floats:
    """A bound of the norm of each lane from below: the largest norm of a slice along the last axis.

    >>> slices(np.ones((1, 2, 2, 3)))
    array([2.])
    """
    return np.asarray(np.linalg.norm(tensors, ord=2, axis=(1, 2)).max(axis=-1))
