"""Certificates of array problems that are too large to be written out in scalars: where they begin, what they say."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any, NoReturn

import flint
import numpy as np
import sympy as sp

from bilevel_sym.arithmetic.balls import Ball
from bilevel_sym.arithmetic.enclosed.midrad import rounds_to_nearest
from bilevel_sym.certify.array_blocks import Exactly
from bilevel_sym.certify.array_certificate import MOST_COLUMNS, ArrayEnclosures
from bilevel_sym.certify.array_convexity import array_convexity_at
from bilevel_sym.certify.convexity import Convexity
from bilevel_sym.errors import InvalidArgument, KernelError, LowerLevelFailure, TooLarge
from bilevel_sym.implicit.lower_level import solve_lower_level
from bilevel_sym.problem.problem import BilevelProblem

Balls = tuple[Ball, ...]
SMALL_ENTRIES = 200  # of data, and
SMALL_VARIABLES = 6  # of either level: up to here scalars are as fast, and know more of kinks
SCALAR_ENTRIES, SCALAR_VARIABLES = 2000, 25  # up to here scalars take seconds: what arrays do not decide goes there
HINT = "look for a kink of abs, min, max or Piecewise, the end of a domain, or a nearly singular g_yy there"


def is_large(problem: BilevelProblem) -> bool:
    """Whether a certificate works with arrays: those of small problems are made of the same problem in scalars.

    >>> is_large(BilevelProblem("x*sum(y)", "sum((y - b)**2)", "x", "y[n]", data={"b": [1, 2]}))
    False
    """
    return problem.is_array and not _is_within(problem, SMALL_VARIABLES, SMALL_ENTRIES)


def fits_scalars(problem: BilevelProblem) -> bool:
    """Whether the same problem in scalars may be asked where arrays decide nothing.

    >>> fits_scalars(BilevelProblem("x*sum(y)", "sum((y - x)**2)", "x", "y[30]"))
    False
    """
    return _is_within(problem, SCALAR_VARIABLES, SCALAR_ENTRIES)


def _is_within(problem: BilevelProblem, variables: int, entries: int) -> bool:
    held = sum(prod(value.shape) for value in problem.arrays.values())
    return max(problem.d, problem.n) <= variables and held <= entries


def end_to_end(given: Any, problem: object, role: str) -> Any:
    """Arrays by their names as entries end to end; anything else as it is.

    - ``given``: a point of x or y.
    - ``problem``: the problem, as it was stated.
    - ``role``: "x" or "y".

    >>> problem = BilevelProblem("a + sum(W)", "sum((W - b)**2)", "a b[2]", "W[2]")
    >>> end_to_end({"a": 1, "b": ["1/3", 4]}, problem, "x")
    [1, '1/3', 4]
    """
    if not isinstance(given, Mapping) or not isinstance(problem, BilevelProblem) or not problem.is_array:
        return given
    model = problem.array_model
    leaves = {leaf.name: leaf for leaf in (model.x if role == "x" else model.y)}
    if set(given) != set(leaves):
        return given
    entries: list[Any] = []
    for name, leaf in leaves.items():
        array = np.array(given[name], dtype=object)
        shape = tuple(problem.dimensions[dim] for dim in leaf.dims)
        if array.shape != shape:
            raise InvalidArgument(f"{name} has the shape {array.shape}, but in the problem it has {shape}")
        entries += array.ravel().tolist()
    return entries


class Uncomputed(tuple[Balls, ...]):
    """The rows of Hess Phi where nobody computed them: whoever asks for one is told so.

    >>> Uncomputed()[0]
    Traceback (most recent call last):
        ...
    bilevel_sym.errors.TooLarge: Hess Phi was not computed: it is certified up to d = 50, unless hessian=False
    try: kernels.hess_phi(x) for float64; a problem in fewer variables x for a proof
    """

    __slots__ = ()

    def _refuse(self, *_: object) -> NoReturn:
        raise TooLarge(
            f"Hess Phi was not computed: it is certified up to d = {MOST_COLUMNS}, unless hessian=False",
            hint="kernels.hess_phi(x) for float64; a problem in fewer variables x for a proof",
        )

    __getitem__ = __iter__ = __len__ = _refuse

    def __reduce__(self) -> tuple[Any, ...]:
        return Uncomputed, ()


class ArrayStarts:
    """Enclosures at one point of an array problem, from y* in float64; see ``certificate`` for how they are asked for.

    - ``problem``: the problem.
    - ``point``: x, exactly.
    - ``start``: where Newton's method begins in float64; the centre of the box or zero where it is None.
    - ``hessian``: whether Hess Phi is wanted.

    >>> starts = ArrayStarts(BilevelProblem("x*sum(y)", "sum((y - x)**2)", "x", "y[2]"), [sp.Rational(1, 3)], None)
    >>> y_star, phi, grad_phi, hess_phi = starts.enclose()
    >>> phi.contains("2/9"), grad_phi[0].contains("4/3"), hess_phi[0][0].contains(4)
    (True, True, True)
    """

    def __init__(
        self,
        problem: BilevelProblem,
        point: Sequence[sp.Rational],
        start: Sequence[float] | None,
        *,
        hessian: bool = True,
    ) -> None:
        self._problem, self._point, self._start, self._hessian = problem, point, start, hessian
        self._enclosures: ArrayEnclosures | str | None = None
        self.hint: str | None = HINT

    def enclose(self) -> tuple[Balls, Ball, Balls, tuple[Balls, ...]] | str:
        """Balls at the precision that is set, or the reason why there are none."""
        if self._enclosures is None:
            self._enclosures = self._begun()
        found = self._enclosures if isinstance(self._enclosures, str) else self._enclosures.at(int(flint.ctx.prec))
        if isinstance(found, str):
            return found
        rows = () if found.hess is None else tuple(tuple(map(Ball, row)) for row in found.hess)
        return tuple(map(Ball, found.y)), Ball(found.phi), tuple(map(Ball, found.grad)), rows

    def convexity(self, y: Sequence[Any]) -> tuple[Convexity, str]:
        """Whether g is convex in y over the box, and why no more is said; ``y`` are the balls of y*."""
        return array_convexity_at(self._problem, self._point, y)

    def _begun(self) -> ArrayEnclosures | str:
        if not rounds_to_nearest():
            return "float64 does not round to nearest, or loses subnormal numbers, in this process"
        try:
            start = self._found()  # which refuses a problem without numbers
            return ArrayEnclosures(Exactly.of(self._problem), self._point, start, hessian=self._hessian)
        except (LowerLevelFailure, KernelError, OverflowError) as error:
            if isinstance(error, LowerLevelFailure) and error.eigenvalue < 0:
                self.hint = "another point, or mend g: it must be strongly convex in y"
            return f"y* was not found even approximately, because {getattr(error, 'message', error)}"

    def _found(self) -> Any:
        """y* in float64."""
        problem, x = self._problem, np.array([float(value) for value in self._point])
        start = np.array([float(v) for v in (problem.y_centre if self._start is None else self._start)])
        if problem.has_kinks:  # on which side of an edge y* lies is for enclosures to say
            return solve_lower_level(problem.kernels.batch_invariant, x[None], start[None]).y[0]
        return problem.kernels.y_star(x, y0=start)
