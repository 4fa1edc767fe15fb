"""Kernels: the float64 face of a problem, batched. Shapes, dtypes and counting are checked here, once."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from functools import cached_property, lru_cache
from types import MappingProxyType
from typing import Any, TypeVar, get_args

import numpy as np
from numpy.typing import ArrayLike

from bilevel_sym.arithmetic.linear_algebra import NotPositiveDefinite, all_finite
from bilevel_sym.errors import InvalidArgument, KernelError, LowerLevelFailure
from bilevel_sym.graph.assumptions import assumed_sign, rebuild
from bilevel_sym.implicit import second_order as implicit
from bilevel_sym.implicit.engine import EXPANSION, Engine, Expansion, Session, in_chunks, over_points
from bilevel_sym.kernels.arguments import LOWER, Kinks, Shape, Variables, joined, member_of, of_the_batch
from bilevel_sym.kernels.array_engine import ArrayEngine
from bilevel_sym.kernels.array_kinks import ArrayKinks
from bilevel_sym.kernels.choice import Backend, choose_batch_invariant_engine, choose_engine
from bilevel_sym.kernels.counting import Counts, count, counting
from bilevel_sym.kernels.kinked import explained, refuse_kinked
from bilevel_sym.problem.problem import BilevelProblem, SameProgram
from bilevel_sym.typing import Bools, Floats

__all__ = ["Kernels", "compile_kernels"]

MAX_CACHED = 64
OF_SIGN: Mapping[str, Callable[[Floats], Bools]] = MappingProxyType(
    {
        "positive": lambda column: column > 0,
        "negative": lambda column: column < 0,
        "nonnegative": lambda column: column >= 0,
        "nonpositive": lambda column: column <= 0,
        "nonzero": lambda column: column != 0,
    }
)
Result = TypeVar("Result")


class Kernels:
    """f, g, their derivatives, y*, Phi, grad Phi, Hess Phi as functions of float64 arrays. Make with compile_kernels.

    Points are (..., d) and (..., n) with the same leading shape; results lead with it too. Blocks follow IEEE
    arithmetic (an overflow is inf); y* and what is built on it raise instead. Where a derivative does not exist, on a
    kink or a jump of abs, min, max, sign or Piecewise or within round-off of one, all of them raise. Stateless, and
    safe to share.

    >>> from bilevel_sym import BilevelProblem, compile_kernels
    >>> kernels = compile_kernels(BilevelProblem("x*y", "(1 + x**2)*y**2/2 - x*y", "x", "y"))
    >>> kernels.grad_phi([1.0])  # Phi = x^2/(1 + x^2)
    array([0.5])
    >>> kernels.grad_phi([[1.0], [0.0]]).shape
    (2, 1)
    """

    problem: BilevelProblem
    backend: Backend

    def __init__(self, problem: BilevelProblem, backend: Backend, engine: Engine) -> None:
        self.__dict__.update(problem=problem, backend=backend, _engine=engine)

    def __setattr__(self, field: str, value: object) -> None:
        raise AttributeError("kernels are frozen")

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.problem, self.backend)

    def __repr__(self) -> str:
        problem = self.problem
        named = f"{problem.name}, " if problem.name else ""
        return f"<Kernels {named}d={problem.d}, n={problem.n}, engine={self.engine}>"

    @property
    def engine(self) -> str:
        """What computes: "numpy", "compiled", "lambdify", or "arrays" for array problems."""
        return self._engine.name

    @property
    def _engine(self) -> Engine:
        engine: Engine = self.__dict__["_engine"]
        return engine

    @cached_property
    def batch_invariant(self) -> Engine:
        """An engine in which a point has the same bits alone and in any batch: what solvers run on."""
        return choose_batch_invariant_engine(self._engine, self.problem)

    @cached_property
    def for_one_trajectory(self) -> Kernels:
        """The same for one trajectory that runs alone: with arrays its products are those of a matrix and a vector.

        >>> from bilevel_sym import BilevelProblem
        >>> BilevelProblem("x*sum(y)", "y @ y/2 - x*sum(y)", "x", "y[2]").kernels.for_one_trajectory.grad_phi([1.0])
        array([4.])
        """
        if not isinstance(self._engine, ArrayEngine):
            return self
        twin = Kernels(self.problem, self.backend, self._engine)
        twin.__dict__["batch_invariant"] = self._engine.for_one_trajectory()
        return twin

    @cached_property
    def one_sided(self) -> Kernels:
        """The same, but on a kink the formula of one side: for searches whose finds are proved by other means.

        >>> from bilevel_sym import BilevelProblem
        >>> BilevelProblem("abs(y)", "(y - x)**2/2", "x", "y").kernels.one_sided.grad_phi([0.0])
        array([0.])
        """
        twin = Kernels(self.problem, self.backend, self._engine)
        twin.__dict__["kinks"] = None
        return twin

    def counting(self) -> AbstractContextManager[Counts]:
        """Count oracle calls as the paper does (G_f, G_g, JV_g, HV_g), for each member of the batch.

        >>> from bilevel_sym import BilevelProblem
        >>> kernels = BilevelProblem("x*y", "y**2/2 - x*y", "x", "y").kernels
        >>> with kernels.counting() as c:
        ...     _ = kernels.g_yy_v([0.0], [0.0], [1.0])
        >>> c
        Counts(G_f=0, G_g=0, JV_g=0, HV_g=1)
        """
        return counting(self)

    # ---- blocks -----------------------------------------------------------------------------------

    def f(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """f, shape (...)."""
        return self._block("f", x, y)

    def g(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """g, shape (...)."""
        return self._block("g", x, y)

    def f_x(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """The gradient of f in x, shape (..., d)."""
        return self._block("f_x", x, y)

    def f_y(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """The gradient of f in y, shape (..., n)."""
        return self._block("f_y", x, y)

    def g_y(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """The gradient of g in y, shape (..., n)."""
        return self._block("g_y", x, y)

    def f_xx(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """Second derivatives of f, shape (..., d, d)."""
        return self._block("f_xx", x, y)

    def f_xy(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """Mixed second derivatives of f, shape (..., d, n)."""
        return self._block("f_xy", x, y)

    def f_yy(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """Second derivatives of f, shape (..., n, n)."""
        return self._block("f_yy", x, y)

    def g_xy(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """Mixed second derivatives of g, shape (..., d, n)."""
        return self._block("g_xy", x, y)

    def g_yy(self, x: ArrayLike, y: ArrayLike) -> Floats:
        """Second derivatives of g, shape (..., n, n)."""
        return self._block("g_yy", x, y)

    def g_yy_v(self, x: ArrayLike, y: ArrayLike, v: ArrayLike) -> Floats:
        """The Hessian-vector product g_yy v, shape (..., n), without forming g_yy."""
        return self._block("g_yy_v", x, y, v)

    def g_xy_v(self, x: ArrayLike, y: ArrayLike, v: ArrayLike) -> Floats:
        """The Jacobian-vector product g_xy v, shape (..., d), without forming g_xy."""
        return self._block("g_xy_v", x, y, v)

    def _block(self, name: str, *points: ArrayLike) -> Floats:
        d, n = self.problem.d, self.problem.n
        variables = self._x, self._y, self._y
        given, shape = joined(dict(zip("xyv", zip(points, variables, strict=False), strict=False)))
        self._keep_promises(given, shape)
        if "_" in name:  # values exist on an edge too
            self._refuse_kinks(name, (name,), given[:, : d + n], shape)
        count(self, shape, **_cost(name, n))

        def chunk(rows: slice) -> tuple[Floats]:
            session = self._engine.session((name,), len(given[rows]))
            session.put(0, given[rows, : d + n])
            if len(points) == 3:
                session.put(1, given[rows, d + n :])
            return (session.take(name),)

        result: Floats = in_chunks(len(given), self._engine.lanes((name,)), chunk)[0]
        return result.reshape((*shape, *result.shape[1:]))

    # ---- y* and what is built on it ---------------------------------------------------------------

    def y_star(self, x: ArrayLike, *, y0: ArrayLike | None = None) -> Floats:
        """The minimiser of g(x, .) to round-off, shape (..., n): Newton from ``y0`` (default: the box's centre, or 0).

        Where g is not convex in y it is a local minimum, the one that Newton's method is led to.

        >>> from bilevel_sym import BilevelProblem
        >>> BilevelProblem("x*y", "y**2/2 + exp(y) - x*y", "x", "y").kernels.y_star([1.0])
        array([0.])
        """
        xy, shape = self._solved("y_star", x, y0)
        return np.ascontiguousarray(xy[:, self.problem.d :]).reshape((*shape, self.problem.n))

    def v_star(self, x: ArrayLike, *, y0: ArrayLike | None = None) -> Floats:
        """The adjoint v = g_yy^-1 f_y at y*(x), shape (..., n): grad_phi is f_x - g_xy v.

        >>> from bilevel_sym import BilevelProblem
        >>> BilevelProblem("x*y**2", "y**2 - x*y", "x", "y").kernels.v_star([2.0])
        array([2.])
        """
        return self._implicit("v_star", x, y0, implicit.ADJOINT, self._engine.adjoint, G_f=1, HV_g=self.problem.n)

    def dy_dx(self, x: ArrayLike, *, y0: ArrayLike | None = None) -> Floats:
        """The derivative of y*, shape (..., d, n): rows are x.

        Paper: Equation 1.4 [solve-partial-y*-partial-x]

        >>> from bilevel_sym import BilevelProblem
        >>> BilevelProblem("x*y", "y**2 - x*y", "x", "y").kernels.dy_dx([2.0])
        array([[0.5]])
        """
        n = self.problem.n
        return self._implicit("dy_dx", x, y0, implicit.RESPONSE, self._engine.response, JV_g=n, HV_g=n)

    def _implicit(
        self, what: str, x: ArrayLike, y0: ArrayLike | None, names: tuple[str, ...],
        formula: Callable[[Floats], Floats], **calls: int,
    ) -> Floats:  # fmt: skip
        xy, shape = self._solved(what, x, y0, names)
        count(self, shape, **calls)
        return self._finite(what, self._naming(xy, shape, lambda: formula(xy)), shape)

    def phi(self, x: ArrayLike, *, y0: ArrayLike | None = None) -> Floats:
        """Phi(x) = f(x, y*(x)), shape (...)."""
        xy, shape = self._solved("phi", x, y0, ("f",))
        (phi,) = over_points(self._engine, ("f",), xy, _value)
        return self._finite("phi", phi, shape)

    def grad_phi(self, x: ArrayLike, *, y0: ArrayLike | None = None) -> Floats:
        """The hypergradient, shape (..., d).

        Paper: Equation 1.5 [eq:bilevel-grad]
        """
        xy, shape = self._solved("grad_phi", x, y0, implicit.GRADIENT)
        count(self, shape, G_f=2, JV_g=1, HV_g=self.problem.n)
        phi, grad = self._naming(xy, shape, lambda: self._engine.gradient(xy))
        self._finite("phi", phi, shape)
        return self._finite("grad_phi", grad, shape)

    def hess_phi(self, x: ArrayLike, *, y0: ArrayLike | None = None) -> Floats:
        """The Hessian of Phi, shape (..., d, d), symmetric to the last bit.

        Paper: Equation B.1 [phi-hessian]
        """
        xy, shape = self._solved("hess_phi", x, y0, EXPANSION)
        return self._expansion("hess_phi", xy, shape).hess

    def third_phi(self, x: ArrayLike, *, y0: ArrayLike | None = None) -> Floats:
        """The third derivatives of Phi, shape (..., d, d, d), symmetric to the last bit."""
        xy, shape = self._solved("third_phi", x, y0, implicit.THIRD)
        third = self._naming(xy, shape, lambda: self._engine.third(xy, self.problem.d))
        return self._finite("third_phi", third, shape)

    def expansion(self, x: ArrayLike, y: ArrayLike) -> Expansion:
        """(phi, grad, hess) with y given, and taken for y*(x): the formulas without the lower-level solve.

        >>> from bilevel_sym import BilevelProblem
        >>> BilevelProblem("x*y", "y**2/2 - x*y", "x", "y").kernels.expansion([3.0], [3.0])
        Expansion(phi=array(9.), grad=array([6.]), hess=array([[2.]]))
        """
        xy, shape = joined({"x": (x, self._x), "y": (y, self._y)})
        self._keep_promises(xy, shape)
        self._refuse_kinks("expansion", EXPANSION, xy, shape)
        return self._expansion("expansion", xy, shape)

    def _expansion(self, name: str, xy: Floats, shape: Shape) -> Expansion:
        n = self.problem.n
        count(self, shape, G_f=2, JV_g=n, HV_g=n)
        parts = self._naming(xy, shape, lambda: self._engine.expansion(xy))
        return Expansion(*(self._finite(name, part, shape) for part in parts))

    def _solved(
        self, what: str, x: ArrayLike, y0: ArrayLike | None, names: tuple[str, ...] = ()
    ) -> tuple[Floats, Shape]:
        """(x, y*(x)) row by row, and the batch shape; refused where the blocks that ``what`` takes do not exist."""
        d = self.problem.d
        starts = {} if y0 is None else {"y0": (y0, self._y)}
        given, shape = joined({"x": (x, self._x)} | starts)
        self._keep_promises(given[:, :d], shape)
        points, start = given[:, :d], given[:, d:]
        if y0 is None:
            start = self._start[None].repeat(len(points), axis=0)
        try:
            found = self._engine.lower_level(points, start)
        except LowerLevelFailure as error:
            raise explained(self, error.renamed(member_of(error.member[0], shape))) from None
        count(self, shape, G_g=found.evaluations.reshape(shape), HV_g=found.products.reshape(shape))
        xy = np.concatenate([points, found.y], axis=1)
        self._refuse_kinks(what, (*LOWER, *names), xy, shape, solved=True)
        return xy, shape

    @cached_property
    def _x(self) -> Variables:
        return Variables(self.problem.d, lambda: self.problem.x_entries)

    @cached_property
    def _y(self) -> Variables:
        return Variables(self.problem.n, lambda: self.problem.y_entries)

    @cached_property
    def _promises(self) -> list[tuple[int, Any, str]]:
        """The columns (x, y) whose symbols have a sign by assumption."""
        if self.problem.is_array:
            return []  # nothing is assumed of the entries of arrays
        variables = enumerate((*self.problem.x, *self.problem.y))
        return [(k, s, sign) for k, s in variables if (sign := assumed_sign(s)) is not None]

    def _keep_promises(self, rows: Floats, shape: Shape) -> None:
        """Refuse points at which the formulas, simplified by what was assumed of their symbols, are others."""
        for k, symbol, sign in self._promises:
            if k < rows.shape[1] and not (kept := OF_SIGN[sign](rows[:, k])).all():
                member = int(np.argmin(kept))
                raise KernelError(
                    f"{symbol} is assumed to be {sign}, but is {rows[member, k]:.9g}{of_the_batch(member, shape)}",
                    hint=rebuild(symbol),
                )

    @cached_property
    def kinks(self) -> Kinks | ArrayKinks | None:
        """Where f and g change their formulas; None where they never do."""
        if not self.problem.has_kinks:
            return None
        return ArrayKinks(self.problem.mean) if self.problem.is_array else Kinks(self.problem.tape)

    def refuse_kinked(self, x: Floats) -> None:
        """LowerLevelFailure where the minimiser of g lies on a kink of g for all rows of x: no derivative is there.

        For use before anything is computed for many x. Problems without kinks pay nothing.

        >>> from bilevel_sym import BilevelProblem
        >>> BilevelProblem("x*y", "(y - x)**2/2 + abs(y)", "x", "y").kernels.refuse_kinked(np.array([[0.5], [3.0]]))
        """
        refuse_kinked(self, x)

    def refuse_kinked_box(self, low: Floats, high: Floats) -> None:
        """The same for the middle and two corners of a box in x.

        >>> from bilevel_sym import BilevelProblem
        >>> kernels = BilevelProblem("x*y", "(y - x)**2/2 + abs(y)", "x", "y").kernels
        >>> kernels.refuse_kinked_box(np.array([-3.0]), np.array([3.0]))
        """
        self.refuse_kinked(np.array([0.5 * low + 0.5 * high, low, high]))

    def _refuse_kinks(
        self, what: str, names: tuple[str, ...], xy: Floats, shape: Shape, *, solved: bool = False
    ) -> None:
        if self.kinks is not None:
            self.kinks.refuse(what, names, xy, shape, solved=solved)

    @cached_property
    def _start(self) -> Floats:
        return np.array([float(value) for value in self.problem.y_centre])

    # ---- failures and results ------------------------------------------------------------------------

    def _naming(self, xy: Floats, shape: Shape, compute: Callable[[], Result]) -> Result:
        """The result; a matrix that is not positive definite is a failure of that member of the caller's batch."""
        try:
            with np.errstate(all="ignore"):  # what overflows is found in the result, and said there
                return compute()
        except NotPositiveDefinite as error:
            k, d = int(error.members[0]), self.problem.d
            if np.isnan(error.eigenvalues[0]):
                raise _not_finite("g_yy", k, shape) from None
            raise LowerLevelFailure(
                "the lower level is not strongly convex", member=member_of(k, shape),
                x=xy[k, :d].tolist(), y=xy[k, d:].tolist(),
                eigenvalue=float(error.eigenvalues[0]), hint="g_yy must be positive definite at (x, y)",
            ) from None  # fmt: skip

    def _finite(self, name: str, result: Floats, shape: Shape) -> Floats:
        if not all_finite(result):
            raise _not_finite(name, int(np.argwhere(~np.isfinite(result))[0][0]), shape)
        return result.reshape((*shape, *result.shape[1:]))


def _not_finite(name: str, k: int, shape: Shape) -> KernelError:
    return KernelError(
        f"{name} is not finite{of_the_batch(k, shape)}", hint="f or g overflows there, or is not defined"
    )


def _value(session: Session, xy: Floats) -> tuple[Floats]:
    session.put(0, xy)
    return (session.take("f"),)


def _cost(name: str, n: int) -> dict[str, int]:
    costs = {
        "f_x": {"G_f": 1}, "f_y": {"G_f": 1}, "g_y": {"G_g": 1},
        "g_yy_v": {"HV_g": 1}, "g_xy_v": {"JV_g": 1}, "g_yy": {"HV_g": n}, "g_xy": {"JV_g": n},
    }  # fmt: skip
    return costs.get(name, {})


def compile_kernels(problem: BilevelProblem, *, backend: Backend = "auto") -> Kernels:
    """The kernels of a problem; the same problem gives the same kernels.

    ``backend``: "auto" (the tape, in the engine that is faster here), "tape" (the tape in NumPy), "compiled" (the
    tape in a compiled interpreter; wants the extra ``fast``), "lambdify" (SymPy's, an independent second route).

    >>> from bilevel_sym import BilevelProblem
    >>> problem = BilevelProblem("x*y", "y**2/2 - sin(x)*y", "x", "y")
    >>> compile_kernels(problem, backend="lambdify").phi([0.0])
    array(0.)
    """
    if not isinstance(problem, BilevelProblem):
        raise InvalidArgument(
            f"compile_kernels wants a BilevelProblem, but was given a {type(problem).__name__}",
            hint="compile_kernels(BilevelProblem(f, g, x, y))",
        )
    if not _is_backend(backend):
        raise InvalidArgument(f"backend={backend!r}", hint=f"one of {', '.join(map(repr, get_args(Backend)))}")
    return _compiled(SameProgram(problem), backend)


def _is_backend(value: object) -> bool:
    return isinstance(value, str) and value in get_args(Backend)


def _rebuild(problem: BilevelProblem, backend: Backend) -> Kernels:
    return compile_kernels(problem, backend=backend)


@lru_cache(MAX_CACHED)
def _compiled(program: SameProgram, backend: Backend) -> Kernels:
    return Kernels(program.problem, backend, choose_engine(program.problem, backend))
