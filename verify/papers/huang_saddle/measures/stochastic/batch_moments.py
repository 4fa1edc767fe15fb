"""Exact expectations over batches: the stochastic hypergradient, steps of SGD, and how far a batch mean may be off.

Batches are drawn with replacement and are independent of each other, so second moments follow a linear recursion over
the data rows, for batches of any size. What has no such recursion is a finite sum over all batches.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from flint import arb, arb_mat

from bilevel_sym import StochasticProblem
from bilevel_sym.certify.krawczyk import identity
from bilevel_sym.estimators.batches import BatchSession, Data
from bilevel_sym.estimators.oracle import fill
from bilevel_sym.typing import Floats
from verify.papers.huang_saddle.measures.stochastic.samples import Balls, Samples, ends, mean, spread, squares
from verify.points.derivatives_at import BLOCKS, Derivatives
from verify.verdict import Bracket

MOST_BATCHES = 20_000  # batches that are summed over one by one
PAD = 1e-9  # relative; far more than rounding moves a norm or a probability here
STEPS = 60  # of Newton's method


@dataclass(frozen=True)
class Estimator:
    """The settings of the stochastic hypergradient: Neumann step, depth and batch sizes.

    ``neumann`` are the sizes of the batches of the series in the order in which they are applied.

    Paper: Equation 4.7 [est-vq]; Equation 4.8 [estG]

    >>> Estimator(eta=0.5, batch_f=1, batch_g=1, neumann=(4, 2)).Q
    2
    """

    eta: float
    batch_f: int
    batch_g: int
    neumann: tuple[int, ...]

    @property
    def Q(self) -> int:
        """How many factors the longest product of the series has."""
        return len(self.neumann)


def hypergradient_error(
    samples: Samples, x: Balls, y: Balls, grad: arb_mat, estimator: Estimator, *, moments: bool = True
) -> tuple[Any, Any]:
    """|E h - grad|^2 and E|h - grad|^2 for the stochastic hypergradient h at (x, y), as balls.

    h = f_x - g_xy eta sum_q r_q with r_0 = f_y and r_(q+1) = (I - eta g_yy) r_q, every derivative the mean of a batch:
    one for f_x and f_y, one for g_xy, one for each product. The state (f_x, sum r, r) moves linearly, so its mean and
    second moment are exact. Without ``moments`` only the first is computed, and returned twice.

    Paper: Equation 4.8 [estG]; Lemma D.8 [le:first_m]; Lemma D.9 [le:variancc]
    """
    d, n, eta = len(x), len(y), arb(estimator.eta)
    f, g = samples.at(("f_x", "f_y"), x, y), samples.at(("g_xy", "g_yy"), x, y)
    starts = [_stacked(a, r, r) for a, r in zip(f["f_x"], f["f_y"], strict=True)]
    state = mean(starts)
    curvature, jacobian = mean(g["g_yy"]), mean(g["g_xy"])
    step = _step(d, identity(n) - curvature * eta)
    combine = _combine(d, jacobian * eta)
    covariance = mean([deviation * deviation.transpose() for deviation in spread(starts)])
    second = state * state.transpose() + covariance * (arb(1) / estimator.batch_f)
    noises = [_step(d, deviation * eta) - _step(d, arb_mat(n, n)) for deviation in spread(g["g_yy"])]
    for size in estimator.neumann:
        state = step * state
        if moments:
            noise = mean([e * second * e.transpose() for e in noises])
            second = step * second * step.transpose() + noise * (arb(1) / size)
    bias = squares(combine * state - grad)
    if not moments:
        return bias, bias
    centred = combine * second * combine.transpose() - combine * state * (combine * state).transpose()
    jacobians = [_combine(d, deviation * eta) - _combine(d, arb_mat(d, n)) for deviation in spread(g["g_xy"])]
    of_jacobian = mean([e * second * e.transpose() for e in jacobians]) * (arb(1) / estimator.batch_g)
    return bias, bias + _trace(centred) + _trace(of_jacobian)


def sgd_step(samples: Samples, x: Balls, y: Balls, target: Balls, alpha: float, size: int) -> Any:
    """E|y' - target|^2 after one step of SGD with a batch: |y - alpha g_y - target|^2 + alpha^2 Var(g_y)/size.

    Paper: Equation D.55 [eq:traerr]
    """
    rows = samples.at(("g_y",), x, y)["g_y"]
    ahead = _column(y) - mean(rows) * arb(alpha) - _column(target)
    variance = sum((squares(row) for row in spread(rows)), arb(0)) / len(rows)
    return squares(ahead) + arb(alpha) * arb(alpha) * variance / size


def walks(samples: Samples, x: Balls, y: Balls, alpha: float, steps: int) -> list[list[Balls]]:
    """Where y can be after 0, 1, ..., ``steps`` steps of SGD with one row each; all places are equally likely."""
    levels = [[y]]
    for _ in range(steps):
        levels.append(
            [
                (_column(place) - row * arb(alpha)).entries()
                for place in levels[-1]
                for row in samples.at(("g_y",), x, place)["g_y"]
            ]
        )
    return levels


def failure_probability(rows: Sequence[arb_mat], size: int, eps: float) -> Bracket:
    """The probability that the mean of a batch of ``size`` rows is off by more than eps in norm.

    Exact up to rounding where the batches can be summed over; else between 0 and the second moment over eps^2. A
    tensor, unfolded to a matrix, gives an upper bound.
    """
    deviations, variance = spread(rows), second_moment(rows)
    if variance == 0.0:
        return Bracket(0.0, 0.0)
    chebyshev = Bracket(0.0, min(1.0, variance / size / eps**2 * (1 + PAD)))
    values = np.array([[float(entry) for entry in row.entries()] for row in deviations])
    scale = float(np.abs(values).max())
    if not scale > 0:
        return chebyshev
    distinct, counts = np.unique(np.round(values / scale, 12), axis=0, return_counts=True)
    if size > MOST_BATCHES or math.comb(size + len(distinct) - 1, len(distinct) - 1) > MOST_BATCHES:
        return chebyshev
    shape = (rows[0].nrows(), rows[0].ncols())
    batches = np.array(list(compositions(size, len(distinct))))
    sums = (batches @ distinct * (scale / size)).reshape(len(batches), *shape)
    norms = np.linalg.norm(sums, ord=2, axis=(1, 2))
    logs = [math.lgamma(k + 1) for k in range(size + 1)]
    weights = logs[size] - np.array(logs)[batches].sum(axis=1) + batches @ np.log(counts / len(rows))
    chances = np.exp(weights)
    surely, perhaps = (float(chances[norms > eps + side * PAD * scale].sum()) for side in (1, -1))
    return Bracket(max(0.0, surely * (1 - PAD)), min(1.0, perhaps * (1 + PAD)))


def second_moment(rows: Sequence[arb_mat]) -> float:
    """E|row - mean|^2 in the sum of squares, from above; zero where all rows are one and the same matrix."""
    return ends(sum((squares(row) for row in spread(rows)), arb(0)) / len(rows)).upper


def compositions(total: int, parts: int) -> Iterator[tuple[int, ...]]:
    """How often each of some rows can come up in a batch of ``total``.

    >>> list(compositions(2, 2))
    [(0, 2), (1, 1), (2, 0)]
    """
    if parts == 1:
        yield (total,)
        return
    for first in range(total + 1):
        for rest in compositions(total - first, parts - 1):
            yield first, *rest


def hull(*places: Balls) -> tuple[Floats, Floats]:
    """Floats around all of some points of balls.

    >>> hull([arb(1)], [arb(2)])
    (array([1.]), array([2.]))
    """
    brackets = [[ends(ball) for ball in place] for place in places]
    lower = np.array([[b.lower for b in place] for place in brackets]).min(axis=0)
    upper = np.array([[b.upper for b in place] for place in brackets]).max(axis=0)
    return lower, upper


def _stacked(*columns: arb_mat) -> arb_mat:
    entries = [entry for column in columns for entry in column.entries()]
    return arb_mat(len(entries), 1, entries)


def _column(entries: Balls) -> arb_mat:
    return arb_mat(len(entries), 1, list(entries))


def _step(d: int, factor: arb_mat) -> arb_mat:
    """(a, s, r) becomes (a, s + A r, A r)."""
    n = factor.nrows()
    table = [[arb(int(i == j)) for j in range(d + 2 * n)] for i in range(d + 2 * n)]
    for i in range(n):
        for j in range(n):
            table[d + i][d + n + j] = table[d + n + i][d + n + j] = factor[i, j]
    return arb_mat(table)


def _combine(d: int, jacobian: arb_mat) -> arb_mat:
    """a - J s, from (a, s, r)."""
    n = jacobian.ncols()
    table = [[arb(int(i == j)) for j in range(d + 2 * n)] for i in range(d)]
    for i in range(d):
        for j in range(n):
            table[i][d + j] = -jacobian[i, j]
    return arb_mat(table)


def _trace(matrix: arb_mat) -> Any:
    return sum((matrix[i, i] for i in range(matrix.nrows())), arb(0))


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
        twin._batches = {level: self._data.whole(level, self.lanes) for level in ("f", "g")}
        return twin

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
