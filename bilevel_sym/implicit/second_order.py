"""Phi, its gradient, Hessian and third derivatives at y = y*(x), by the formulas that need no second derivative of y*.

With v = g_yy^-1 f_y, the Lagrangian L = f - v^T grad_y g (v held constant) and Z = [I; dy_dx^T]:

    grad Phi = f_x - g_xy v                      Hess Phi = Z^T (Hess L) Z
    D^3 Phi[a, b, c] = D^3 L[Za, Zb, Zc] - (v'a)^T D^2(grad_y g)[Zb, Zc] - the same for b and for c

where v' = g_yy^-1 (L_yx + L_yy dy_dx^T) is how v moves with x. No second derivative of y* enters.

``ImplicitFormulas`` is the one writing of the first two and of v', over an ``Algebra``: float64 in batches (here),
balls (``krawczyk.BALL_MATRICES``), SymPy (``formulas.SYMBOLIC``), rational numbers (``verify.points.balls``), interval
matrices and affine forms (``verify.enclosures``, ``verify.points.boxes``). Four others are independent of it on
purpose: compiled code, which skips what is known to be zero (``implicit.lanes``), and that of arrays at one point
(``implicit.one_point``); the contractions
D^2 L[Z, Z] and D^3 L[Z, Z, Z] node by node on the graph, which are narrower over boxes
(``verify.enclosures.phi_formulas``); and the paper's terms one by one (``formulas.hessian_terms``,
``verify.points.derivatives_at``).
"""

from __future__ import annotations

import operator
from collections.abc import Callable
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Generic, TypeVar

import numpy as np

from bilevel_sym.arithmetic.linear_algebra import Factored
from bilevel_sym.implicit.engine import EXPANSION, Blocks, Expansion, Session, over_points
from bilevel_sym.typing import Floats, Indices

__all__ = [
    "ADJOINT", "GRADIENT", "RESPONSE", "THIRD", "Algebra", "ImplicitFormulas", "adjoint", "expansion", "gradient",
    "gradient_of", "hessian_of", "response", "third",
]  # fmt: skip

ADJOINT = ("f_y", "g_yy")
RESPONSE = ("g_xy", "g_yy")
GRADIENT = ("f", "f_x", "f_y", "g_xy", "g_yy")
THIRD = ("f", "f_y", "g_xy", "g_yy", "L_xy", "L_yy", "q", "r")

M = TypeVar("M", bound=Any)  # matrices of one arithmetic, or lanes of them, with + and -


@dataclass(frozen=True)
class Algebra(Generic[M]):
    """What the formulas ask of an arithmetic of matrices.

    solver: takes A to the function that takes B to A^-1 B, so that A is factored once
    times: the product of two matrices
    transposed: the transposed matrix
    symmetric: what is symmetric, made so to the last bit where the arithmetic rounds
    congruence: from L_xx, L_xy, L_yy and dy_dx^T to Z^T (Hess L) Z, where there is a cheaper way than term by term

    >>> floats = Algebra(lambda a: lambda b: np.linalg.solve(a, b))
    >>> floats.solver(np.array([[2.0]]))(np.array([[6.0]]))
    array([[3.]])
    """

    solver: Callable[[M], Callable[[M], M]]
    times: Callable[[M, M], M] = operator.matmul
    transposed: Callable[[M], M] = operator.attrgetter("T")
    symmetric: Callable[[M], M] = lambda matrix: matrix
    congruence: Callable[[M, M, M, M], M] | None = None


@dataclass(frozen=True, eq=False)
class ImplicitFormulas(Generic[M]):
    """v, dy_dx and the derivatives of Phi from the blocks of f and g at y = y*(x), each computed when asked for.

    ``take`` gives a block by its name, vectors as columns; those of L once ``hold`` has been given v.

    >>> blocks = {"f_x": [[1.0]], "f_y": [[4.0]], "g_xy": [[-3.0]], "g_yy": [[2.0]]}
    >>> blocks |= {"L_xx": [[1.0]], "L_xy": [[2.0]], "L_yy": [[4.0]]}
    >>> at = ImplicitFormulas(Algebra(lambda a: lambda b: np.linalg.solve(a, b)), lambda name: np.array(blocks[name]))
    >>> at.v.item(), at.response.item(), at.grad.item(), at.hess.item()
    (2.0, 1.5, 7.0, 16.0)
    """

    algebra: Algebra[M]
    take: Callable[[str], M]
    hold: Callable[[M], object] | None = None

    @cached_property
    def _solve(self) -> Callable[[M], M]:
        return self.algebra.solver(self.take("g_yy"))

    @cached_property
    def v(self) -> M:
        """g_yy^-1 f_y, a column."""
        return self._solve(self.take("f_y"))

    @cached_property
    def response(self) -> M:
        """dy_dx^T = -g_yy^-1 g_yx, n x d.

        Paper: Equation 1.4 [solve-partial-y*-partial-x]
        """
        response: M = -self._solve(self.algebra.transposed(self.take("g_xy")))
        return response

    @cached_property
    def grad(self) -> M:
        """The gradient of Phi, a column."""
        return gradient_of(self.algebra, self.take, self.v)

    @cached_property
    def hess(self) -> M:
        """The Hessian of Phi."""
        return hessian_of(self.algebra, self._held, self.response)

    @cached_property
    def v_moves(self) -> M:
        """v' = g_yy^-1 (L_yx + L_yy dy_dx^T), n x d."""
        curved = self.algebra.times(self._held("L_yy"), self.response)
        return self._solve(self.algebra.transposed(self._held("L_xy")) + curved)

    @cached_property
    def _held(self) -> Callable[[str], M]:
        if self.hold is not None:
            self.hold(self.v)
        return self.take


def gradient_of(algebra: Algebra[M], take: Callable[[str], M], v: M) -> M:
    """grad Phi = f_x - g_xy v.

    Paper: Equation 1.5 [eq:bilevel-grad]
    """
    grad: M = take("f_x") - algebra.times(take("g_xy"), v)
    return grad


def hessian_of(algebra: Algebra[M], take: Callable[[str], M], response: M) -> M:
    """Hess Phi = L_xx + C + C^T + dy_dx L_yy dy_dx^T with C = L_xy dy_dx^T, which is Z^T (Hess L) Z."""
    if algebra.congruence is not None:
        return algebra.congruence(take("L_xx"), take("L_xy"), take("L_yy"), response)
    cross = algebra.times(take("L_xy"), response)
    quadratic = algebra.times(algebra.times(algebra.transposed(response), take("L_yy")), response)
    hess: M = cross + algebra.transposed(cross) + take("L_xx") + algebra.symmetric(quadratic)
    return hess


# ---- float64, in batches ----------------------------------------------------------------------------------


def _transposed(matrices: Floats) -> Floats:
    return matrices.transpose(0, 2, 1)


def _at(session: Session, xy: Floats, *, batch_invariant: bool = False) -> ImplicitFormulas[Floats]:
    """The formulas at rows (x, y), in lanes; y is taken for y*(x). ``batch-invariant``: see ``Factored``."""
    session.put(0, xy)

    def take(name: str) -> Floats:
        block = session.take(name)
        return block[:, :, None] if block.ndim == 2 else block

    algebra: Algebra[Floats] = Algebra(
        lambda matrices: Factored(matrices, batch_invariant=batch_invariant).solve,
        transposed=_transposed,
        symmetric=lambda matrices: 0.5 * (matrices + _transposed(matrices)),
    )
    return ImplicitFormulas(algebra, take, lambda v: session.put(1, v[:, :, 0]))


def adjoint(session: Session, xy: Floats) -> tuple[Floats]:
    """v at rows (x, y), (lanes, n)."""
    return (_at(session, xy).v[:, :, 0],)


def response(session: Session, xy: Floats) -> tuple[Floats]:
    """dy_dx at rows (x, y), (lanes, d, n)."""
    return (_transposed(_at(session, xy).response),)


def gradient(session: Session, xy: Floats, *, batch_invariant: bool = False) -> tuple[Floats, Floats]:
    """(Phi, grad Phi) at rows (x, y). ``batch-invariant``: see ``Factored``."""
    grad = _at(session, xy, batch_invariant=batch_invariant).grad[:, :, 0]
    return session.take("f"), grad


def expansion(engine: Blocks, xy: Floats) -> Expansion:
    """Phi, grad Phi and Hess Phi at all rows (x, y); the Hessian is symmetric to the last bit."""
    return Expansion(*over_points(engine, EXPANSION, xy, _expansion))


def _expansion(session: Session, xy: Floats) -> tuple[Floats, Floats, Floats]:
    at = _at(session, xy)
    grad, hess = at.grad[:, :, 0], at.hess
    return session.take("f"), grad, hess


def third(session: Session, wide: Session, xy: Floats) -> Floats:
    """The third derivatives of Phi, (lanes, d, d, d), symmetric to the last bit.

    ``session`` has one lane a point; ``wide`` has one lane for each point and pair of directions (b, c), b <= c.
    """
    lanes, at = len(xy), _at(session, xy)
    v, v_moves, d = at.v[:, :, 0], at.v_moves, at.response.shape[2]
    b, c = np.triu_indices(d)
    z = _transposed(np.concatenate([np.broadcast_to(np.eye(d), (lanes, d, d)), at.response], axis=1))
    for stage, values in enumerate((xy, v)):
        wide.put(stage, np.repeat(values, len(b), axis=0))
    wide.put(2, np.concatenate([z[:, b], z[:, c]], axis=2).reshape(lanes * len(b), 2 * xy.shape[1]))
    q = wide.take("q").reshape(lanes, len(b), xy.shape[1])
    r = wide.take("r").reshape(lanes, len(b), v.shape[1])
    straight, held = _unfold(q @ _transposed(z), b, c), _unfold(r @ v_moves, b, c)
    # where f is not defined, neither are its derivatives, whatever their formulas say
    return _symmetrised(straight / 3.0 - held) + 0.0 * session.take("f")[:, None, None, None]


def _unfold(pairs: Floats, b: Indices, c: Indices) -> Floats:
    """(lanes, pair, a) -> (lanes, b, c, a), both orders of each pair."""
    lanes, _, d = pairs.shape
    full = np.empty((lanes, d, d, d))
    full[:, b, c] = pairs
    full[:, c, b] = pairs
    return full


def _symmetrised(tensor: Floats) -> Floats:
    """The sum over the three places of the last axis, the same bits wherever symmetry says so."""
    i, j, k = np.sort(np.indices(tensor.shape[1:]), axis=0)
    return tensor[:, i, j, k] + tensor[:, i, k, j] + tensor[:, j, k, i]
