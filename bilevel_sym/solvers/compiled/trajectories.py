"""The loop of the bilevel solvers in compiled code: estimate of the hypergradient, perturbation rule, update.

One source for one trajectory (a flat table) and for lanes (a table (places, 1, WIDTH)): a trajectory has the same bits
alone and in any ensemble. Lanes are places to work: one that is free takes the next trajectory that waits. What every
lane does in every iteration is done in vectors, counting included; lanes to which something happens are looked after
one by one.

``table`` holds the values of the program first, then the loop's own rows; ``Rows`` says what is where.
"""

from __future__ import annotations

from collections import namedtuple

import numpy as np

from bilevel_sym.arithmetic.compiled.elementwise import inlined, spliced, strict
from bilevel_sym.arithmetic.compiled.interpreter import run
from bilevel_sym.arithmetic.compiled.vectors import (
    any_above,
    at,
    choose_le,
    choose_less,
    choose_nan,
    fma,
    get,
    put,
    root,
    zero,
)
from bilevel_sym.estimators.linear_system import ZERO_RESIDUAL

__all__ = ["advance"]

# the program with the bounds of its phases, and the places of f, f_x, f_y, g_yy_v and g_xy_v, one after the other
Tape = namedtuple("Tape", ["bounds", "groups", "places", "coefficients", "outputs"])
# where the blocks of rows begin: p is the input of the products, old holds y, v and grad of the iteration before,
# best the x and y of the lowest phi, and own single rows
Rows = namedtuple("Rows", ["x", "y", "other_y", "p", "v", "r", "grad", "old", "best", "own"])
Method = namedtuple("Method", ["d", "n", "D", "N", "aid"])

# what this module sees of the classes of ``compiled_loop``
State = namedtuple(
    "State",
    [
        "x", "y", "v", "since", "status", "done", "grad", "phi", "best_phi", "best_x", "best_y", "best_k", "age",
        "noise", "used",
    ],
)  # fmt: skip
Steps = namedtuple("Steps", ["eta", "threshold", "T_escape", "stale"])
Seen = namedtuple("Seen", ["xs", "ys", "vs", "grads", "phis", "perturbed"])

RUNNING, NOT_FINITE, BREAKDOWN, OUT_OF_NOISE = range(4)
# the phases of the program: what x decides; a step of the lower level, from y to its other place and back; what y
# decides; and the two products with v
OF_X, LOWER, LOWER_BACK, OF_Y, HESSIAN_PRODUCT, JACOBIAN_PRODUCT = range(6)
# the loop's own single rows. Counters are floats: they are exact, and count in all lanes at once
OWN_ROWS = 14
(PHI, BEST_PHI, OLD_PHI, SCALE, SQUARES, WRONG_Y, WRONG, BROKEN, SINCE, AGE, BEST_K, LEFT, SPENT, IDLE) = range(
    OWN_ROWS
)


@strict
def _perform(tape, phase, table):
    part = tape.groups[at(tape.bounds, phase) : at(tape.bounds, phase + 1)]
    run(part, tape.places, tape.coefficients, table)


@strict
def _copy(table, source, to, count):
    for i in range(count):
        put(table, to + i, 0, get(table, source + i, 0))


# ---- the estimate ----------------------------------------------------------------------------------------


@inlined
def _watched(value, total):
    """total + 0 * value: zero as long as all values are finite, NaN from then on."""
    return fma(value, 0.0, total)


@strict
def _curvature(table, p, product, n):
    """p^T g_yy p, in four sums side by side."""
    a, b, c, d = zero(table), zero(table), zero(table), zero(table)
    i = np.int64(0)
    while i + 4 <= n:
        a = fma(get(table, p + i, 0), get(table, at(product, i), 0), a)
        b = fma(get(table, p + i + 1, 0), get(table, at(product, i + 1), 0), b)
        c = fma(get(table, p + i + 2, 0), get(table, at(product, i + 2), 0), c)
        d = fma(get(table, p + i + 3, 0), get(table, at(product, i + 3), 0), d)
        i += 4
    while i < n:
        a = fma(get(table, p + i, 0), get(table, at(product, i), 0), a)
        i += 1
    return (a + b) + (c + d)


@strict
def _squares(table, r, n):
    """|r|^2, likewise."""
    a, b, c, d = zero(table), zero(table), zero(table), zero(table)
    i = np.int64(0)
    while i + 4 <= n:
        a = fma(get(table, r + i, 0), get(table, r + i, 0), a)
        b = fma(get(table, r + i + 1, 0), get(table, r + i + 1, 0), b)
        c = fma(get(table, r + i + 2, 0), get(table, r + i + 2, 0), c)
        d = fma(get(table, r + i + 3, 0), get(table, r + i + 3, 0), d)
        i += 4
    while i < n:
        a = fma(get(table, r + i, 0), get(table, r + i, 0), a)
        i += 1
    return (a + b) + (c + d)


@strict
def _first_residual(table, n, p, r, f_y, product):
    """r = p = f_y - g_yy v; the product is there."""
    for i in range(n):
        value = get(table, at(f_y, i), 0) - get(table, at(product, i), 0)
        put(table, r + i, 0, value)
        put(table, p + i, 0, value)


@inlined
def _added(table, to, length, value, going):
    """What stands at ``to`` += length * value, where the lane is going."""
    before = get(table, to, 0)
    put(table, to, 0, choose_less(0.0, going, fma(length, value, before), before))


@spliced
def _conjugate_gradients(tape, table, N, n, v, p, r, f_y, product, own):
    """N steps for g_yy v = f_y from the v that is there.

    A lane whose residual is zero stays as it is; so does one in which p^T g_yy p is not positive, marked as broken.
    """
    _copy(table, v, p, n)
    _perform(tape, np.int64(HESSIAN_PRODUCT), table)
    _first_residual(table, n, p, r, f_y, product)
    squares = _squares(table, r, n)
    wrong = _watched(squares, get(table, own + WRONG, 0))
    broken = zero(table)
    for step in range(N):
        going = choose_less(ZERO_RESIDUAL, squares, choose_less(squares, np.inf, 1.0, 0.0), 0.0)
        if not any_above(going, 0.0):
            break
        _perform(tape, np.int64(HESSIAN_PRODUCT), table)
        curvature = _curvature(table, p, product, n)
        broken = choose_less(0.0, curvature, broken, choose_less(0.0, going, 1.0, broken))
        going = choose_less(0.0, curvature, going, 0.0)
        length = squares / curvature
        for i in range(n):
            _added(table, v + i, length, get(table, p + i, 0), going)
        if step + 1 == N:  # the residual is not needed any more
            break
        for i in range(n):
            _added(table, r + i, -1.0 * length, get(table, at(product, i), 0), going)
        after = _squares(table, r, n)
        turn = after / squares
        for i in range(n):
            before = get(table, p + i, 0)
            put(table, p + i, 0, choose_less(0.0, going, fma(turn, before, get(table, r + i, 0)), before))
        squares = after
        wrong = _watched(squares, wrong)
    put(table, own + WRONG, 0, wrong)
    put(table, own + BROKEN, 0, broken)


@spliced
def _solve_lower_level(tape, table, method, rows):
    """D steps of gradient descent in y, and what y decides."""
    _perform(tape, np.int64(OF_X), table)
    for _ in range(method.D // 2):
        _perform(tape, np.int64(LOWER), table)
        _perform(tape, np.int64(LOWER_BACK), table)
    if method.D % 2:
        _perform(tape, np.int64(LOWER), table)
        _copy(table, rows.other_y, rows.y, method.n)
    _perform(tape, np.int64(OF_Y), table)


@spliced
def _estimate(tape, table, method, rows):
    """y^D, v^N, the hypergradient and f(x, y^D) of every lane; what went wrong is in rows of its own."""
    d, n, own = method.d, method.n, rows.own
    f_x, f_y = tape.outputs[1 : 1 + d], tape.outputs[1 + d : 1 + d + n]
    product, cross = tape.outputs[1 + d + n : 1 + d + 2 * n], tape.outputs[1 + d + 2 * n :]
    _copy(table, rows.y, rows.old, n)
    _copy(table, rows.v, rows.old + n, n)
    _copy(table, rows.grad, rows.old + 2 * n, d)
    _copy(table, own + PHI, own + OLD_PHI, np.int64(1))
    _solve_lower_level(tape, table, method, rows)
    phi = get(table, at(tape.outputs, 0), 0)
    put(table, own + PHI, 0, phi)
    wrong = zero(table)
    for i in range(n):
        wrong = _watched(get(table, rows.y + i, 0), wrong)
    put(table, own + WRONG_Y, 0, wrong)
    put(table, own + WRONG, 0, _watched(phi, wrong))
    put(table, own + BROKEN, 0, 0.0)
    if method.aid:
        _conjugate_gradients(tape, table, method.N, n, rows.v, rows.p, rows.r, f_y, product, own)
        wrong = get(table, own + WRONG, 0)
        for i in range(n):
            value = get(table, rows.v + i, 0)
            wrong = _watched(value, wrong)
            put(table, rows.p + i, 0, value)
        put(table, own + WRONG, 0, wrong)
        _perform(tape, np.int64(JACOBIAN_PRODUCT), table)
    wrong = get(table, own + WRONG, 0)
    squares = zero(table)
    for i in range(d):
        slope = get(table, at(f_x, i), 0)
        if method.aid:
            slope = slope - get(table, at(cross, i), 0)
        put(table, rows.grad + i, 0, slope)
        squares = fma(slope, slope, squares)
        wrong = _watched(get(table, rows.x + i, 0), _watched(slope, wrong))
    put(table, own + WRONG, 0, wrong)
    put(table, own + SQUARES, 0, squares)


@strict
def _keep_best(table, d, n, rows):
    """Keep the points of the lowest f(x, y^D) seen."""
    own, best = rows.own, rows.best
    phi, least = get(table, own + PHI, 0), get(table, own + BEST_PHI, 0)
    if not any_above(least, phi):
        return
    for i in range(d):
        put(table, best + i, 0, choose_less(phi, least, get(table, rows.x + i, 0), get(table, best + i, 0)))
    for i in range(n):
        put(table, best + d + i, 0, choose_less(phi, least, get(table, rows.y + i, 0), get(table, best + d + i, 0)))
    put(table, own + BEST_PHI, 0, choose_less(phi, least, phi, least))
    put(table, own + BEST_K, 0, choose_less(phi, least, get(table, own + AGE, 0), get(table, own + BEST_K, 0)))


# ---- lanes and trajectories ------------------------------------------------------------------------------


@strict
def _read(flat, lanes, m, first, row):
    for i in range(row.size):
        flat[(first + i) * lanes + m] = row[i]


@strict
def _write(flat, lanes, m, first, row):
    for i in range(row.size):
        row[i] = flat[(first + i) * lanes + m]


@strict
def _enter(flat, lanes, m, s, d, rows, state, steps, rule):
    """Trajectory s takes lane m."""
    own = rows.own * lanes + m
    _read(flat, lanes, m, rows.x, state.x[s])
    _read(flat, lanes, m, rows.y, state.y[s])
    _read(flat, lanes, m, rows.v, state.v[s])
    _read(flat, lanes, m, rows.grad, state.grad[s])
    _read(flat, lanes, m, rows.best, state.best_x[s])
    _read(flat, lanes, m, rows.best + d, state.best_y[s])
    flat[own + PHI * lanes] = state.phi[s]
    flat[own + BEST_PHI * lanes] = state.best_phi[s]
    flat[own + SINCE * lanes] = state.since[s]
    flat[own + AGE * lanes] = state.age[s]
    flat[own + BEST_K * lanes] = state.best_k[s]
    flat[own + LEFT * lanes] = steps
    flat[own + SPENT * lanes] = 1.0 if rule.threshold >= 0.0 and state.used[s] >= state.noise.shape[1] else 0.0
    flat[own + IDLE * lanes] = 0.0


@strict
def _leave(flat, lanes, m, s, d, n, rows, state, steps):
    """Trajectory s leaves lane m; if the iteration failed, as its status says, as if it had not been begun."""
    failed = state.status[s] == BREAKDOWN or state.status[s] == NOT_FINITE
    own = rows.own * lanes + m
    _write(flat, lanes, m, rows.x, state.x[s])
    _write(flat, lanes, m, rows.old if failed else rows.y, state.y[s])
    _write(flat, lanes, m, rows.old + n if failed else rows.v, state.v[s])
    _write(flat, lanes, m, rows.old + 2 * n if failed else rows.grad, state.grad[s])
    _write(flat, lanes, m, rows.best, state.best_x[s])
    _write(flat, lanes, m, rows.best + d, state.best_y[s])
    state.phi[s] = flat[own + (OLD_PHI if failed else PHI) * lanes]
    state.best_phi[s] = flat[own + BEST_PHI * lanes]
    state.since[s] = np.int64(flat[own + SINCE * lanes])
    state.age[s] = np.int64(flat[own + AGE * lanes])
    state.best_k[s] = np.int64(flat[own + BEST_K * lanes])
    state.done[s] = steps - np.int64(flat[own + LEFT * lanes])
    flat[own + LEFT * lanes] = np.inf
    flat[own + SPENT * lanes] = 0.0
    flat[own + IDLE * lanes] = 1.0


@strict
def _look_after(flat, lanes, owner, d, n, rows, state, steps, rule, record, recording):
    """End the lanes that failed, record, perturb; returns how many ended."""
    ended = 0
    for m in range(lanes):
        s = owner[m]
        if s < 0:
            continue
        own = rows.own * lanes + m
        broken, wrong = flat[own + BROKEN * lanes] != 0.0, flat[own + WRONG * lanes] != 0.0
        if broken or wrong:
            state.status[s] = BREAKDOWN if broken and flat[own + WRONG_Y * lanes] == 0.0 else NOT_FINITE
            _leave(flat, lanes, m, s, d, n, rows, state, steps)
            owner[m] = -1
            ended += 1
            continue
        small = root(flat[own + SQUARES * lanes]) <= rule.threshold
        perturbed = small and flat[own + SINCE * lanes] > rule.T_escape
        if recording:
            k = steps - np.int64(flat[own + LEFT * lanes])
            _write(flat, lanes, m, rows.x, record.xs[s, k])
            _write(flat, lanes, m, rows.y, record.ys[s, k])
            _write(flat, lanes, m, rows.v, record.vs[s, k])
            _write(flat, lanes, m, rows.grad, record.grads[s, k])
            record.phis[s, k] = flat[own + PHI * lanes]
            record.perturbed[s, k] = perturbed
        flat[own + SCALE * lanes] = 0.0 if perturbed and not rule.stale else -rule.eta
    return ended


@strict
def _perturb(flat, lanes, owner, d, rows, state, rule):
    """x -= eta * noise in the lanes whose turn it is."""
    for m in range(lanes):
        s = owner[m]
        own = rows.own * lanes + m
        if s < 0 or not (
            root(flat[own + SQUARES * lanes]) <= rule.threshold and flat[own + SINCE * lanes] > rule.T_escape
        ):
            continue
        for i in range(d):
            x = (rows.x + i) * lanes + m
            flat[x] = fma(-rule.eta, state.noise[s, state.used[s], i], flat[x])
        state.used[s] += 1
        flat[own + SPENT * lanes] = 1.0 if state.used[s] >= state.noise.shape[1] else 0.0
        flat[own + SINCE * lanes] = -1.0  # it is counted on below


@strict
def _move(table, d, rows, scale):
    """x -= eta * grad, and the counters."""
    for i in range(d):
        put(table, rows.x + i, 0, fma(scale, get(table, rows.grad + i, 0), get(table, rows.x + i, 0)))
    own = rows.own
    put(table, own + SINCE, 0, get(table, own + SINCE, 0) + 1.0)
    put(table, own + AGE, 0, get(table, own + AGE, 0) + 1.0)
    put(table, own + LEFT, 0, get(table, own + LEFT, 0) - 1.0)


@strict
def advance(tape, method, rows, table, owner, order, state, steps, rule, record, recording):
    """Up to ``steps`` iterations of the trajectories in ``order``; see ``compiled_loop`` for the arrays.

    ``owner`` has room for as many numbers as there are lanes.
    """
    d, n, own = method.d, method.n, rows.own
    lanes = owner.size  # not a constant: what looks after lanes one by one is compiled once for one lane and for many
    flat = table.reshape(-1)
    for m in range(lanes):
        owner[m] = -1
        flat[(own + LEFT) * lanes + m] = np.inf
        flat[(own + IDLE) * lanes + m] = 1.0
    waiting, working, free = 0, 0, True
    while True:
        if free:
            for m in range(lanes):
                while owner[m] < 0 and waiting < order.size:
                    s = order[waiting]
                    waiting += 1
                    dry = rule.threshold >= 0.0 and state.used[s] >= state.noise.shape[1]
                    if dry and state.since[s] > rule.T_escape:
                        state.status[s] = OUT_OF_NOISE
                        continue
                    state.status[s] = RUNNING
                    _enter(flat, lanes, m, s, d, rows, state, steps, rule)
                    owner[m] = s
                    working += 1
            if working == 0:
                break
            free = False
        _estimate(tape, table, method, rows)
        idle = get(table, own + IDLE, 0)
        since = get(table, own + SINCE, 0)
        wrong = choose_nan(get(table, own + WRONG, 0), 1.0, get(table, own + BROKEN, 0))
        turn = choose_less(rule.T_escape, since, 1.0, 0.0)
        turn = choose_le(root(get(table, own + SQUARES, 0)), rule.threshold, turn, 0.0)
        if recording or any_above(wrong + turn, 2.0 * idle):
            ended = _look_after(flat, lanes, owner, d, n, rows, state, steps, rule, record, recording)
            working -= ended
            free = ended > 0
            _keep_best(table, d, n, rows)
            _perturb(flat, lanes, owner, d, rows, state, rule)
            _move(table, d, rows, get(table, own + SCALE, 0))
        else:
            _keep_best(table, d, n, rows)
            _move(table, d, rows, -rule.eta)
        over = choose_le(get(table, own + LEFT, 0), 0.0, 1.0, 0.0)
        dry = choose_less(rule.T_escape, get(table, own + SINCE, 0), get(table, own + SPENT, 0), 0.0)
        if any_above(over + dry, 0.0):
            for m in range(lanes):
                s = owner[m]
                if s < 0:
                    continue
                left = flat[(own + LEFT) * lanes + m]
                out = flat[(own + SINCE) * lanes + m] > rule.T_escape and flat[(own + SPENT) * lanes + m] > 0.0
                if left <= 0.0 or out:
                    state.status[s] = RUNNING if left <= 0.0 else OUT_OF_NOISE
                    _leave(flat, lanes, m, s, d, n, rows, state, steps)
                    owner[m] = -1
                    working -= 1
                    free = True
        if working == 0:
            free = True
