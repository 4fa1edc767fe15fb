"""What the kernels accept: float64 arrays (..., width), checked, never silently broadcast.

Kinks: where derivatives in float64 are refused, because f or g changes its formula and round-off hides the side.

What exists at a point of an edge is decided as certificates decide it (see ``pieces.patterns``): a derivative that both
formulas agree on is no reason to refuse. Only problems with switches pay for it: one interval of each edge a point,
and balls for the few points whose edges have no sign.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
from flint import arb
from numpy.typing import ArrayLike

from bilevel_sym.arithmetic.linear_algebra import all_finite
from bilevel_sym.arithmetic.pieces.patterns import needed_by
from bilevel_sym.arithmetic.scalars import BALLS
from bilevel_sym.errors import KernelError
from bilevel_sym.implicit.model import Model
from bilevel_sym.system.frames import check_labels
from bilevel_sym.typing import Bools, Floats

__all__ = ["HINT", "LOWER", "Kinks", "Shape", "Variables", "joined", "member_of", "of_the_batch"]

Shape = tuple[int, ...]

_FLOAT64 = np.dtype(np.float64)


class Variables(Sequence[Any]):
    """So many variables, which are made when somebody looks at them: an array may have thousands.

    >>> variables = Variables(2, lambda: ("x1", "x2"))
    >>> len(variables), list(variables)
    (2, ['x1', 'x2'])
    """

    def __init__(self, count: int, made: Callable[[], Sequence[Any]]) -> None:
        self._count, self._made = count, made

    def __len__(self) -> int:
        return self._count

    def __getitem__(self, k: Any) -> Any:
        return self._made()[k]


def joined(arguments: Mapping[str, tuple[ArrayLike, Sequence[object]]]) -> tuple[Floats, Shape]:
    """Arrays of points side by side as rows (batch, sum of widths), and the batch shape that they share.

    Beside each array stand the variables that its last axis holds.

    >>> joined({"x": ([[1, 2]], ("x1", "x2")), "y": ([[3]], "y")})
    (array([[1., 2., 3.]]), (1,))
    >>> joined({"x": ([1, 2], ("x1", "x2", "x3"))})
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.KernelError: x has shape (2,), but shape (..., 3) is expected
    try: the last axis holds the 3 variables of x
    """
    arrays = [_array(value, name, variables) for name, (value, variables) in arguments.items()]
    shape = arrays[0].shape[:-1]
    if any(array.shape[:-1] != shape for array in arrays):
        raise _mismatch(dict(zip(arguments, arrays, strict=True)))
    rows = np.concatenate(arrays, axis=-1)
    if not all_finite(rows):
        raise _not_finite(dict(zip(arguments, arrays, strict=True)))
    return rows.reshape(-1, rows.shape[-1]), shape


def member_of(k: int, shape: Shape) -> tuple[int, ...]:
    """The index of the k-th row in the caller's batch.

    >>> member_of(4, (2, 3))
    (1, 1)
    """
    return tuple(int(i) for i in np.unravel_index(k, shape)) if shape else ()


def of_the_batch(k: int, shape: Shape) -> str:
    """The same in words, for messages.

    >>> of_the_batch(4, (2, 3)), of_the_batch(0, ())
    (' for member 1, 1 of the batch', '')
    """
    return f" for member {', '.join(map(str, member_of(k, shape)))} of the batch" if shape else ""


def _array(value: ArrayLike, name: str, symbols: Sequence[object]) -> Floats:
    width = len(symbols)
    if not isinstance(value, (np.ndarray, list, float)):
        check_labels(value, symbols, name, error=KernelError)
    try:
        array = np.asarray(value)
    except ValueError:
        raise KernelError(f"{name} is not an array: its rows differ in length") from None
    if isinstance(value, np.ma.MaskedArray):
        raise KernelError(f"{name} is a masked array, and its mask would be lost", hint=f"{name}.filled(...) or .data")
    if array.dtype.kind in "iu" or array.dtype == _FLOAT64.newbyteorder():
        array = array.astype(_FLOAT64)
    if array.dtype != _FLOAT64:
        raise KernelError(
            f"{name} has dtype {array.dtype}, but float64 is expected", hint=f"give {name} as an array of floats"
        )
    if array.ndim == 0 or array.shape[-1] != width:
        variables = "variable" if width == 1 else f"{width} variables"
        raise KernelError(
            f"{name} has shape {array.shape}, but shape (..., {width}) is expected",
            hint=f"the last axis holds the {variables} of {name}",
        )
    return array


def _mismatch(arrays: Mapping[str, Floats]) -> KernelError:
    (first, one), *others = arrays.items()
    name, other = next((name, array) for name, array in others if array.shape[:-1] != one.shape[:-1])
    wanted = (*one.shape[:-1], other.shape[-1])
    return KernelError(
        f"{first} has shape {one.shape} and {name} has shape {other.shape}, but their batch shapes must agree",
        hint=f"give {name} the shape {wanted}, for instance with numpy.broadcast_to",
    )


def _not_finite(arrays: Mapping[str, Floats]) -> KernelError:
    name, array = next((name, array) for name, array in arrays.items() if not np.isfinite(array).all())
    where = np.argwhere(~np.isfinite(array))[0].tolist()
    return KernelError(f"{name} is {array[tuple(where)]} at index {where}, and only finite numbers make sense")


LOWER = ("g", "g_y")  # what has to exist at y*: otherwise grad_y g = 0 says nothing of a minimum
EDGE_DISTANCE = 2.0**-20  # relative to y: y* is never off by more; what is nearer to an edge is looked at closely
FLOAT64_BITS = 53  # balls that are as wide as the rounding errors of floats
HINT = "another point; abs, min, max, sign and Piecewise have no derivative where their pieces meet, unless these agree"
MARGIN = 2.0  # of the error of y* as the residual tells it


class Kinks:
    """The edges of one model's f and g, as its kernels meet them.

    >>> import sympy as sp
    >>> x, y = sp.symbols("x y")
    >>> kinks = Kinks(Model(abs(y), y**2/2 - x*y, [x], [y]))
    >>> kinks.met(("f_y",), np.array([[1.0, 0.0], [1.0, 2.0], [1.0, -1e-300]]))
    {0: 'y = 0'}
    >>> kinks.met(("f",), np.array([[1.0, 0.0]]))  # the value exists
    {}
    """

    def __init__(self, model: Model) -> None:
        self._model, self._patterns = model, model.patterns

    def met(self, names: Sequence[str], points: Floats, *, solved: bool = False) -> dict[int, str]:
        """The points at which one of these blocks does not exist, or may not for all that floats tell, and the edge.

        ``points`` are rows (x, y); ``solved``: y is y*(x), known to round-off alone, and is not taken for exact.
        """
        if self._patterns is None or not len(points):
            return {}
        need, d = needed_by(names), self._model.d
        lower, upper = points.copy(), points.copy()
        if solved:
            reach = EDGE_DISTANCE * np.maximum(np.abs(points[:, d:]).max(axis=1, keepdims=True), 1.0)
            lower[:, d:] -= reach
            upper[:, d:] += reach
        touched = self._patterns.touched(lower, upper, need)
        found = {}
        for k in np.flatnonzero(touched.any(axis=1)):
            error = self._error(points[k]) if solved else np.zeros(self._model.n)
            if not self._exists(names, points[k], error):
                found[int(k)] = self._nearest(points[k], touched[k])
        return found

    def refuse(self, what: str, names: Sequence[str], points: Floats, shape: Shape, *, solved: bool = False) -> None:
        """KernelError for the first member of the batch for which a block that ``what`` takes does not exist."""
        found = self.met(names, points, solved=solved)
        if found:
            k, edge = next(iter(found.items()))
            x, y = (", ".join(f"{v:.9g}" for v in part) for part in np.split(points[k], [self._model.d]))
            who = of_the_batch(k, shape)
            raise KernelError(
                f"{what} does not exist{who}: x = [{x}], y = [{y}] lies on a kink or a jump of f or g, or within "
                f"round-off of it, at {edge}",
                hint=HINT,
            )

    def _exists(self, names: Sequence[str], point: Floats, error: Floats) -> bool:
        """Whether the blocks are numbers all over the balls, as a certificate has them."""
        model = self._model
        with BALLS.precision(FLOAT64_BITS):
            program = model.in_balls(tuple(names), FLOAT64_BITS)
            values = program.start()
            x, y = np.split(point, [model.d])
            balls = [*map(arb, x.tolist()), *(arb(v, e) for v, e in zip(y.tolist(), error.tolist(), strict=True))]
            program.put(values, 0, [*balls, *[arb(0)] * len(model.parameters)])
            for stage in (1, 2):  # v and the directions: any will do
                program.put(values, stage, [arb(1)] * len(program.program.inputs[stage]))
            return all(not entry.is_nan() for name in names for entry in program.output(values, name))

    def _error(self, point: Floats) -> Floats:
        """How far y may be from y*: what the residual of grad_y g, with its rounding errors, makes of it."""
        model = self._model
        with BALLS.precision(FLOAT64_BITS):
            program = model.in_balls(("g_y", "g_yy"), FLOAT64_BITS)
            values = program.start()
            program.put(values, 0, [*map(arb, point.tolist()), *[arb(0)] * len(model.parameters)])
            g_y = [float(entry.abs_upper()) for entry in program.output(values, "g_y")]
            g_yy = np.array([float(entry) for entry in program.output(values, "g_yy")]).reshape(model.n, model.n)
        plain = np.spacing(np.abs(point[model.d :]))
        if not np.isfinite(g_yy).all() or not np.isfinite(g_y).all() or not np.linalg.cond(g_yy) < 1e15:
            return plain  # on the edge itself, which is what is asked
        return np.asarray(MARGIN * np.abs(np.linalg.inv(g_yy)) @ np.array(g_y) + plain)

    def _nearest(self, point: Floats, touched: Bools) -> str:
        """The edge that is meant, as people write it."""
        assert self._patterns is not None
        places = np.flatnonzero(touched)
        values = np.abs(self._patterns.values(point)[places])
        place = int(places[np.nanargmin(np.where(np.isnan(values), np.inf, values))])
        return f"{self._model.edge_expression(place)} = 0"
