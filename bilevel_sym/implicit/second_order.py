"""Phi, its gradient and Hessian at y = y*(x), by the formulas that need no second derivative of y*.

With v = g_yy^-1 f_y, the Lagrangian L = f - v^T grad_y g (v held constant) and Z = [I; dy_dx^T]:

    grad Phi = f_x - g_xy v                      Hess Phi = Z^T (Hess L) Z
    D^3 Phi[a, b, c] = D^3 L[Za, Zb, Zc] - (v'a)^T D^2(grad_y g)[Zb, Zc] - the same for b and for c

where v' = g_yy^-1 (L_yx + L_yy dy_dx^T) is how v moves with x. No second derivative of y* enters.
"""

from __future__ import annotations

import numpy as np

from bilevel_sym.arithmetic.linear_algebra import Factored
from bilevel_sym.implicit.engine import EXPANSION, Engine, Expansion, Session, over_points
from bilevel_sym.typing import Floats, Indices

__all__ = ["ADJOINT", "GRADIENT", "RESPONSE", "THIRD", "adjoint", "expansion", "gradient", "response", "third"]

ADJOINT = ("f_y", "g_yy")
RESPONSE = ("g_xy", "g_yy")
GRADIENT = ("f", "f_x", "f_y", "g_xy", "g_yy")
THIRD = ("f", "f_y", "g_xy", "g_yy", "L_xy", "L_yy", "q", "r")


def adjoint(session: Session, xy: Floats) -> tuple[Floats]:
    """v = g_yy^-1 f_y."""
    session.put(0, xy)
    return (Factored(session.take("g_yy")).solve(session.take("f_y")[:, :, None])[:, :, 0],)


def response(session: Session, xy: Floats) -> tuple[Floats]:
    """dy_dx = -g_xy g_yy^-1, (lanes, d, n).

    Paper: Equation 1.4 [solve-partial-y*-partial-x]
    """
    session.put(0, xy)
    return (-Factored(session.take("g_yy")).solve(session.take("g_xy").transpose(0, 2, 1)).transpose(0, 2, 1),)


def gradient(session: Session, xy: Floats, *, batch_invariant: bool = False) -> tuple[Floats, Floats]:
    """(Phi, grad Phi) = (f, f_x - g_xy v); y in ``xy`` is taken for y*(x). ``batch-invariant``: see ``Factored``.

    Paper: Equation 1.5 [eq:bilevel-grad]
    """
    session.put(0, xy)
    v = Factored(session.take("g_yy"), batch_invariant=batch_invariant).solve(session.take("f_y")[:, :, None])
    return session.take("f"), session.take("f_x") - (session.take("g_xy") @ v)[:, :, 0]


def expansion(engine: Engine, xy: Floats) -> Expansion:
    """Phi, grad Phi and Hess Phi at all rows (x, y); the Hessian is symmetric to the last bit."""
    return Expansion(*over_points(engine, EXPANSION, xy, _expansion))


def _expansion(session: Session, xy: Floats) -> tuple[Floats, Floats, Floats]:
    g_xy, _, v, response = _to_second_order(session, xy)
    half = response.transpose(0, 2, 1) @ session.take("L_yy")
    half *= 0.5
    half += session.take("L_xy")
    cross = half @ response
    hess = cross + cross.transpose(0, 2, 1)
    hess += session.take("L_xx")
    return session.take("f"), session.take("f_x") - (g_xy @ v)[:, :, 0], hess


def _to_second_order(session: Session, xy: Floats) -> tuple[Floats, Factored, Floats, Floats]:
    """Bring a session as far as the Hessian of L: g_xy, g_yy factored, v (lanes, n, 1) and dy_dx^T."""
    session.put(0, xy)
    g_xy = session.take("g_xy")
    lower = Factored(session.take("g_yy"))
    v = lower.solve(session.take("f_y")[:, :, None])
    response = lower.solve(g_xy.transpose(0, 2, 1))
    np.negative(response, out=response)
    session.put(1, v[:, :, 0])
    return g_xy, lower, v, response


def third(session: Session, wide: Session, xy: Floats) -> Floats:
    """The third derivatives of Phi, (lanes, d, d, d), symmetric to the last bit.

    ``session`` has one lane a point; ``wide`` has one lane for each point and pair of directions (b, c), b <= c.
    """
    lanes = len(xy)
    _, lower, v, response = _to_second_order(session, xy)
    v_moves = lower.solve(session.take("L_xy").transpose(0, 2, 1) + session.take("L_yy") @ response)
    d = response.shape[2]
    b, c = np.triu_indices(d)
    z = np.concatenate([np.broadcast_to(np.eye(d), (lanes, d, d)), response], axis=1).transpose(0, 2, 1)
    for stage, values in enumerate((xy, v[:, :, 0])):
        wide.put(stage, np.repeat(values, len(b), axis=0))
    wide.put(2, np.concatenate([z[:, b], z[:, c]], axis=2).reshape(lanes * len(b), 2 * xy.shape[1]))
    q = wide.take("q").reshape(lanes, len(b), xy.shape[1])
    r = wide.take("r").reshape(lanes, len(b), v.shape[1])
    straight, held = _unfold(q @ z.transpose(0, 2, 1), b, c), _unfold(r @ v_moves, b, c)
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
