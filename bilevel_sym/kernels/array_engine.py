"""Array problems in NumPy: dense linear algebra while that is cheaper, products alone above; nothing n by n unasked."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import cached_property, lru_cache, partial
from math import inf
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from bilevel_sym.arithmetic.linear_algebra import NotPositiveDefinite, smallest_eigenvalues
from bilevel_sym.arrays.data import is_sparse
from bilevel_sym.arrays.edges import edges_of
from bilevel_sym.arrays.execute import BLOCK, LaneProducts, treats_lanes_alike
from bilevel_sym.arrays.order import PRODUCT
from bilevel_sym.arrays.plan import CALL
from bilevel_sym.errors import KernelError, LowerLevelFailure
from bilevel_sym.implicit.array_model import ArrayModel
from bilevel_sym.implicit.array_program import ArrayProgram, Run, Workshop
from bilevel_sym.implicit.conjugate_gradients import (
    FLOOR,
    TO_ROUND_OFF,
    Lower,
    NotConvex,
    NotSolved,
    System,
    Systems,
    newton,
    solve_together,
)
from bilevel_sym.implicit.engine import EXPANSION, Expansion, keep_memory
from bilevel_sym.implicit.lower_level import NEWTON, LowerSolution, full_steps
from bilevel_sym.implicit.second_order import ADJOINT, GRADIENT, RESPONSE, ImplicitFormulas
from bilevel_sym.implicit.session_engine import SessionEngine
from bilevel_sym.implicit.structured import STRUCTURED, Structured, newton_step, solver
from bilevel_sym.kernels.array_session import ArraySession
from bilevel_sym.system.memory import refuse_beyond
from bilevel_sym.typing import Floats

if TYPE_CHECKING:
    from bilevel_sym.kernels.compiled_arrays import CompiledArrays, CompiledProducts

Result = TypeVar("Result")
MAX_PROGRAMS = 64
COMPILED = 150  # lower-level variables up to which points may run in compiled code
COMPILED_WORK = 1e5  # what forming g_yy may cost there; see ``Plan.work``
COMPILED_PRODUCT = 2e5  # what a product with g_yy may cost there
COMPILED_EACH = 20  # where g_yy costs no more than so many products it is factored there
COMPILED_MOST = 3  # times what a factor costs that products may before they are left to NumPy
DENSE = 3000  # lower-level variables up to which g_yy may be formed and factored
EACH = 5  # where g_yy costs no more than so many products it is factored for each system
ONE = 50  # the same where g is quadratic in y: then one factor is all
CHOLESKY = PRODUCT / 3  # the price of factoring, for each n^3
LARGE = 2.0  # times what a factor costs that products may, for they need no memory
USUAL = 20  # products that a system takes, if nothing is known of it
VECTORS = 8  # of n entries that they take for each right-hand side
AROUND = 12  # calls of NumPy that conjugate gradients take around a product
SMALL = 1_000_000  # numbers whose memory nobody needs to ask for
TABLE = 2_000_000  # numbers that all points at a time may hold
LANES = 1024
ALONE = 20_000  # numbers a point from which points go one by one: NumPy's price for a call no longer matters
PRODUCTS = ("f", "f_x", "f_y", "g_yy_v", "g_xy_v")
NEWTON_BY_PRODUCTS = ("g", "g_y", "g_yy_v")


class ArrayEngine(SessionEngine):
    """The blocks of an array model over its data; see ``bilevel_sym.implicit.engine.Engine``.

    - ``model``: f and g in index notation.
    - ``sizes``: the number that each dimension stands for.
    - ``data``: arrays by name, float64 or scipy.sparse.
    - ``products``: how data are multiplied with many points; see ``kernel_of``. Unless "together", a point has the same
      bits in every batch.
    - ``single``: whether it serves one trajectory, whose lanes are all the same point.
    - ``may_compile``: whether single points of small problems may run in compiled code.
    - ``workshop``: the plan, where there is one already.
    """

    name = "arrays"

    def __init__(
        self,
        model: ArrayModel,
        sizes: Mapping[str, int],
        data: Mapping[str, Any],
        *,
        products: LaneProducts = "together",
        single: bool = False,
        may_compile: Callable[[], bool] = lambda: False,
        workshop: Workshop | None = None,
    ) -> None:
        self.single, self._may_compile = single, may_compile
        self._workshop = workshop or Workshop(model, sizes, data)
        self._arguments = model, sizes, data
        self._products: LaneProducts = products
        self.batch_invariant = products != "together"
        self.d, self.n = self._workshop.x.size, self._workshop.y.size
        self._program = lru_cache(MAX_PROGRAMS)(self._compile)
        self._factored: tuple[bytes, Callable[[Structured], Structured] | None] = b"", None
        self._ended: tuple[bytes, Callable[[Floats], Floats] | None] = b"", None
        keep_memory()

    def invariant(self) -> ArrayEngine:
        """The same for ensembles: products with data in blocks of points, always of the same shape."""
        matrices = [own for own in self._arguments[2].values() if getattr(own, "ndim", 0) == 2 and not is_sparse(own)]
        return self._twin("blocks" if all(map(treats_lanes_alike, matrices)) else "each")

    def for_one_trajectory(self) -> ArrayEngine:
        """The same for one trajectory: products of a matrix and a vector."""
        return self._twin("each", single=True)

    def _twin(self, products: LaneProducts, *, single: bool = False) -> ArrayEngine:
        return ArrayEngine(*self._arguments, products=products, single=single, workshop=self._workshop)

    def _compile(self, names: tuple[str, ...]) -> ArrayProgram:
        return ArrayProgram(self._workshop, names, products=self._products)

    def session(self, names: Sequence[str], lanes: int) -> ArraySession:
        """Points at which these blocks can be computed."""
        program = self._program(tuple(names))
        self._refuse_beyond(lanes * program.largest, ", ".join(names))
        if self._workshop.is_sparse or (lanes == 1 and (self.single or not self.batch_invariant)):
            return ArraySession(program, lanes, 1, apart=True)
        group = self.lanes(names) if self.batch_invariant else lanes
        return ArraySession(program, lanes, group if group < BLOCK else group // BLOCK * BLOCK)

    def lanes(self, names: Sequence[str]) -> int:
        """As many as fit into the memory that is meant for them; few enough for the cache."""
        entries = self._program(tuple(names)).entries
        return int(max(1, min(LANES, TABLE // max(entries, 1))))

    def _alone(self, names: Sequence[str], points: int) -> bool:
        single = points == 1 and not self.batch_invariant  # there the number of points must change nothing
        return single or self._workshop.is_sparse or self._program(tuple(names)).entries > ALONE

    def _run(self, names: Sequence[str], xy: Floats) -> Run:
        program = self._program(tuple(names))
        self._refuse_beyond(program.largest, ", ".join(names))
        run = Run(program, ())
        run.perform(0, xy)
        return run

    def _refuse_beyond(self, numbers: float, what: str) -> None:
        if numbers > SMALL:  # what is smaller fits everywhere
            hint = "products in the place of matrices: g_yy_v, g_xy_v, grad_phi; or fewer rows, columns or points"
            refuse_beyond(numbers, f"{what} with d = {self.d:,} and n = {self.n:,}", hint)

    # ---- y* ---------------------------------------------------------------------------------------------------------

    def lower_level(self, x: Floats, y0: Floats) -> LowerSolution:
        """y*(x) for each row of x, by Newton's method from the rows of y0."""
        if self._factors and not self._alone(NEWTON, len(x)):
            return super().lower_level(x, y0)
        rows = [self._lower(k, *row) for k, row in enumerate(zip(x, y0, strict=True))]
        if len(rows) != 1 or self.batch_invariant:
            self._ended = b"", None  # else the last bits of v would depend on where a point stands
        y, gradients, products = zip(*rows, strict=True) if rows else ((), (), ())
        counts = (np.array(calls, dtype=np.int64) for calls in (gradients, products))
        return LowerSolution(np.array(y).reshape(len(x), self.n), *counts)

    def _lower(self, k: int, x: Floats, y0: Floats) -> tuple[Floats, int, int]:
        with np.errstate(all="ignore"):
            found = None if self._compiled is None else self._compiled.lower_level(x, y0)
            if found is None:
                found = self._quickly(x, y0) if self._factors else self._by_products(x, y0)
        if found is not None and found.arrived:
            return found.y, found.gradients, found.products
        if self.n > DENSE:
            raise _failure("is not strongly convex, or Newton's method did not converge", k, x, y0)
        try:
            careful = super().lower_level(x[None], y0[None])
        except LowerLevelFailure as error:
            raise error.renamed((k,)) from None
        return careful.y[0], int(careful.evaluations[0]), int(careful.products[0])

    def _quickly(self, x: Floats, y0: Floats) -> Lower | None:
        """Full Newton steps with g_yy factored each time; None where one does not help, and care is needed."""
        found = self._one_step(x, y0) if self._is_quadratic else self._full_steps(x, y0)
        if found is None or not np.isfinite(self._run(("g",), np.concatenate([x, found[0]])).block("g")):
            return None  # outside the domain of g its derivatives may still look fine: log(y) has one at -1
        return Lower(found[0], found[1], self.n * found[1], True)

    def _full_steps(self, x: Floats, y0: Floats) -> tuple[Floats, int] | None:
        run, xy = Run(self._program(("g_y", "g_yy")), ()), np.concatenate([x, y0])

        def step_at(y: Floats) -> Floats:
            xy[self.d :] = y
            run.perform(0, xy)
            return newton_step(run.block("g_y"), *run.structured("g_yy"))

        return full_steps(step_at, y0)

    def _one_step(self, x: Floats, y0: Floats) -> tuple[Floats, int] | None:
        try:
            solve = self._curvature(x)
        except NotPositiveDefinite:
            return None
        g_y = self._run(("g_y",), np.concatenate([x, y0])).block("g_y")
        return y0 - _column(solve, g_y), 1

    def _curvature(self, x: Floats) -> Callable[[Structured], Structured]:
        """What solves with g_yy where that does not depend on y; kept for the last x, for which it is asked again."""
        key, (last, solve) = x.tobytes(), self._factored
        if solve is None or last != key:
            g_yy = self._run(("g_yy",), np.concatenate([x, np.zeros(self.n)])).structured("g_yy")
            solve = solver(Structured((self.n, self.n), *g_yy))
            self._factored = key, solve
        return solve

    @cached_property
    def _is_quadratic(self) -> bool:
        """Whether g_yy does not depend on y: then one step of Newton's method is all, unless g has kinks in y."""
        model = self._workshop.model
        if edges_of(model.g, set(model.y)):  # abs(y) has a second derivative that is zero wherever there is one
            return False
        return all(block.leaves.isdisjoint(model.y) for block in model.block("g_yy").values())

    def _by_products(self, x: Floats, y0: Floats) -> Lower | None:
        run = Run(self._program(NEWTON_BY_PRODUCTS), ())

        def at(y: Floats) -> System:
            xy = np.concatenate([x, y])
            run.perform(0, xy)
            g_y = run.block("g_y")
            return self._system(run, g_y if np.isfinite(run.block("g")) else np.full_like(g_y, np.nan), xy)

        systems = Systems(self._budget, after=TO_ROUND_OFF)  # v is asked for next, mostly
        try:
            found = newton(at, y0, systems)
        except (NotConvex, NotPositiveDefinite, NotSolved):
            return None
        self._ended = np.concatenate([x, found.y]).tobytes(), systems.condition
        return found

    @cached_property
    def _budget(self) -> float:
        """Products that cost about as much as forming and factoring g_yy does; infinite where that may not be."""
        return self._factor_work / (self._program(("g_yy_v",)).work(1) + AROUND * CALL)

    @cached_property
    def _factor_work(self) -> float:
        """What it costs to form and factor g_yy; infinite where that may not be."""
        return np.inf if self.n > DENSE else self._program(("g_yy",)).work(0) + CHOLESKY * self.n**3

    @cached_property
    def _factors(self) -> bool:
        """Whether g_yy is formed and factored at once."""
        return self._budget <= (ONE if self._is_quadratic else EACH)

    @cached_property
    def _compiled(self) -> CompiledArrays | CompiledProducts | None:
        """The same for one point in compiled code; None where calls of NumPy cost little beside the work."""
        product = self._program(("g_yy_v",))
        if self.batch_invariant or product.work(1) > COMPILED_PRODUCT or not self._may_compile():
            return None
        from bilevel_sym.kernels.compiled_arrays import CompiledArrays, CompiledProducts

        # products that a factor is worth, where calls cost nothing
        worth = (self._program(("g_yy",)).work(0, inf) + CHOLESKY * self.n**3) / max(1.0, product.work(1, inf))
        if worth > COMPILED_EACH:
            return CompiledProducts.of(self._program, self.d, self.n, int(COMPILED_MOST * worth))
        small = self.n <= COMPILED and self._program(NEWTON).work(0) <= COMPILED_WORK
        return CompiledArrays.of(self._program, self.d, self.n, quadratic=self._is_quadratic) if small else None

    def _system(self, run: Run, right: Floats, xy: Floats) -> System:
        """g_yy at a point: products by ``run``, and its factor."""

        def factor() -> Callable[[Floats], Floats]:
            solve = solver(Structured((self.n, self.n), *self._run(("g_yy",), xy).structured("g_yy")))
            return lambda b: _column(solve, b)

        return System(right, _product(run, "g_yy_v"), factor)

    # ---- formulas at (x, y) -----------------------------------------------------------------------------------------

    def adjoint(self, xy: Floats) -> Floats:
        """v at rows (x, y)."""
        if not self._factors:
            return self._each(xy, lambda row: self._adjoint(row)[1])
        if not self._alone(ADJOINT, len(xy)):
            return super().adjoint(xy)
        return self._each(xy, lambda row: self._formulas(ADJOINT, row)[1].v.dense()[:, 0])

    def response(self, xy: Floats) -> Floats:
        """dy_dx at rows (x, y)."""
        self._refuse_beyond(len(xy) * self.d * self.n, "dy_dx")
        if self.n > DENSE:
            return self._each(xy, self._response)
        if not self._alone(RESPONSE, len(xy)):
            return super().response(xy)
        return self._each(xy, lambda row: self._formulas(RESPONSE, row)[1].response.T.dense())

    def gradient(self, xy: Floats) -> tuple[Floats, Floats]:
        """Phi and grad Phi at rows (x, y)."""
        if self._factors and not self._alone(GRADIENT, len(xy)):
            return super().gradient(xy)
        rows = [self._gradient(k, row) for k, row in enumerate(xy)]
        phi, grad = zip(*rows, strict=True) if rows else ((), ())
        return np.array(phi), np.array(grad).reshape(len(xy), self.d)

    def _gradient(self, k: int, row: Floats) -> tuple[Floats, Floats]:
        if self._compiled is not None and (found := self._compiled.gradient(row)) is not None:
            return found
        if not self._factors:
            run, v = _of_member(k, lambda: self._adjoint(row))
        elif self._is_quadratic:
            run = self._run(("f", "f_x", "f_y", "g_xy_v"), row)
            v = _column(_of_member(k, lambda: self._curvature(row[: self.d])), run.block("f_y"))
        else:
            run = self._run(("f", "f_x", "f_y", "g_yy", "g_xy_v"), row)
            v = -newton_step(run.block("f_y"), *run.structured("g_yy"))
            if np.isnan(v).any():
                raise NotPositiveDefinite(
                    np.array([k]), smallest_eigenvalues(self._run(("g_yy",), row).block("g_yy")[None])
                )
        run.perform(1, v)
        return run.block("f"), run.block("f_x") - run.block("g_xy_v")

    def expansion(self, xy: Floats) -> Expansion:
        """Phi, grad Phi and Hess Phi at rows (x, y)."""
        self._refuse_beyond((len(xy) + 2) * self.d**2, "Hess Phi")
        if self.n <= DENSE and not self._alone(EXPANSION, len(xy)):
            return super().expansion(xy)
        rows = [self._expansion(k, row) for k, row in enumerate(xy)]
        phi, grad, hess = zip(*rows, strict=True) if rows else ((), (), ())
        size, d = len(xy), self.d
        return Expansion(np.array(phi), np.array(grad).reshape(size, d), np.array(hess).reshape(size, d, d))

    def _expansion(self, k: int, row: Floats) -> tuple[Floats, Floats, Floats]:
        if self._compiled is not None and (found := self._compiled.expansion(row)) is not None:
            return found
        if self.n > DENSE or self._goes_along:
            self._refuse_beyond(3 * self.d * self.n, "Hess Phi")
            return _of_member(k, lambda: self._expansion_by_products(row))
        run, at = self._formulas(EXPANSION, row)
        return _of_member(k, lambda: (run.block("f"), at.grad.dense()[:, 0], at.hess.dense()))

    def _formulas(self, names: Sequence[str], row: Floats) -> tuple[Run, ImplicitFormulas[Structured]]:
        kept = self._is_quadratic  # the factor of g_yy, which then is not formed again
        run, shapes = self._run([name for name in names if not kept or name != "g_yy"], row), {"x": self.d, "y": self.n}
        algebra = replace(STRUCTURED, solver=lambda _: self._curvature(row[: self.d])) if kept else STRUCTURED

        def take(name: str) -> Structured:
            axes = name.partition("_")[2]
            if len(axes) == 1:
                return Structured.of(run.block(name)[:, None])
            parts = (None, None) if kept and name == "g_yy" else run.structured(name)
            return Structured((shapes[axes[0]], shapes[axes[1]]), *parts)

        return run, ImplicitFormulas(algebra, take, lambda v: run.perform(1, v.dense()[:, 0]))

    @staticmethod
    def _each(xy: Floats, formula: Callable[[Floats], Floats]) -> Floats:
        return np.array([formula(row) for row in xy])

    # ---- the same by products ----------------------------------------------------------------------------------------

    def _adjoint(self, row: Floats) -> tuple[Run, Floats]:
        run = self._run(PRODUCTS, row)
        return run, self._solution(run, run.block("f_y"), row, Systems(self._budget, condition=self._left_over(row)))

    def _left_over(self, row: Floats) -> Callable[[Floats], Floats] | None:
        """The factor with which Newton's method came to this point a moment ago; it is not kept any longer."""
        (where, condition), self._ended = self._ended, (b"", None)
        return condition if where == row.tobytes() else None

    def _solution(self, run: Run, right: Floats, row: Floats, systems: Systems) -> Floats:
        try:
            return systems.solve(self._system(run, right, row), right, FLOOR)
        except NotConvex as error:
            raise NotPositiveDefinite(np.array([0]), np.array([error.curvature])) from None
        except NotSolved as error:
            raise KernelError(
                f"a linear system with g_yy is too badly conditioned: products solve it only to {error.residual:.1e}",
                hint="scale the variables, or a larger penalty",
            ) from None

    def _response(self, row: Floats) -> Floats:
        run = self._run(("g_yx_u", "g_yy_v"), row)
        systems = Systems(self._budget)
        return np.array([self._moved(run, row, k, systems) for k in range(self.d)])

    def _moved(self, run: Run, row: Floats, k: int, systems: Systems) -> Floats:
        """How y* moves with one entry of x."""
        unit = np.zeros(2 * (self.d + self.n))
        unit[k] = 1.0
        run.perform(2, unit)
        return self._solution(run, -run.block("g_yx_u"), row, systems)

    @cached_property
    def _goes_along(self) -> bool:
        """Whether Hess Phi costs less along the d directions of x than from L_yy and the factor of g_yy."""
        d, n = self.d, self.n
        if d >= n:
            return False
        whole = self._program(EXPANSION)
        formed = whole.work(0) + whole.work(1) + CHOLESKY * n**3 + PRODUCT * (2 * d * n**2 + n * d**2)
        systems = min(self._factor_work, d * USUAL * self._program(("g_yy_v",)).work(1, d))
        return systems + d * self._program(("s_x", "s_y")).work(2, d) + PRODUCT * n * d**2 < formed

    def _expansion_by_products(self, row: Floats) -> tuple[Floats, Floats, Floats]:
        """Z^T (Hess L) Z with Z = [I; R^T]: Hess L along the d columns of Z."""
        run, systems = self._run(PRODUCTS, row), Systems(self._budget)
        solve = self._factor(row) if self._factors else None
        f_y = run.block("f_y")
        v = self._solution(run, f_y, row, systems) if solve is None else _column(solve, f_y)
        run.perform(1, v)
        phi, grad = run.block("f"), run.block("f_x") - run.block("g_xy_v")
        moved = self._responses(run, row, systems, solve)
        del run  # with what it holds
        curved = self._run(("s_x", "s_y"), row)
        curved.perform(1, v)
        s_x, s_y = np.empty((self.d, self.d)), np.empty_like(moved)
        size = curved.program.group(2, around=VECTORS * self.n)
        for start in range(0, self.d, size):
            own = slice(start, min(start + size, self.d))
            along = np.zeros((own.stop - start, 2 * (self.d + self.n)))
            along[:, own].flat[:: own.stop - start + 1] = 1.0
            along[:, self.d : self.d + self.n] = moved[own]
            s_x[own], s_y[own] = curved.along(2, along, ("s_x", "s_y"), size)
        s_x += s_y @ moved.T
        return phi, grad, 0.5 * (s_x + s_x.T)

    def _factor(self, row: Floats) -> Callable[[Structured], Structured]:
        if self._is_quadratic:
            return self._curvature(row[: self.d])
        return solver(Structured((self.n, self.n), *self._run(("g_yy",), row).structured("g_yy")))

    def _responses(
        self, run: Run, row: Floats, systems: Systems, solve: Callable[[Structured], Structured] | None
    ) -> Floats:
        """dy_dx, by one factor or by products, whichever takes less if they take as many as v took.

        run: at the point, for products with g_yy
        row: the point
        systems: those that were solved for v
        solve: by the factor of g_yy, where there is one
        """
        rights = self._run(("g_xy",), row).block("g_xy")
        np.negative(rights, out=rights)
        size, known = run.program.group(1, least=2, around=VECTORS * self.n), systems.condition
        by_products = systems.products * self.d * run.program.work(1, size)
        if solve is None and known is None and by_products < LARGE * self._factor_work:
            with suppress(NotSolved):
                for start in range(0, self.d, size):
                    some = slice(start, start + size)
                    products = partial(_products, run, size)
                    rights[some] = solve_together(products, rights[some])
                return rights
            rights = -self._run(("g_xy",), row).block("g_xy")
        if solve is not None or (known is None and self._factor_work < np.inf):
            solve = solve or self._factor(row)
            return solve(Structured.of(rights.T)).dense().T
        return np.array([self._solution(run, right, row, systems) for right in rights])


def _column(solve: Callable[[Structured], Structured], right: Floats) -> Floats:
    return solve(Structured.of(right[:, None])).dense()[:, 0]


def _of_member(k: int, compute: Callable[[], Result]) -> Result:
    """The result; a matrix that is not positive definite is that of member ``k``."""
    try:
        return compute()
    except NotPositiveDefinite as error:
        raise NotPositiveDefinite(error.members + k, error.eigenvalues) from None


def _products(run: Run, size: int, rows: Floats) -> Floats:
    return run.along(1, rows, ("g_yy_v",), size)[0]


def _product(run: Run, name: str) -> Callable[[Floats], Floats]:
    def product(v: Floats) -> Floats:
        run.perform(1, v)
        return run.block(name)

    return product


def _failure(what: str, k: int, x: Floats, y: Floats) -> LowerLevelFailure:
    return LowerLevelFailure(
        f"the lower level {what}", member=(k,), x=x.tolist(), y=y.tolist(), eigenvalue=np.nan,
        hint="start near the solution with y0=..., or keep x where g is strongly convex in y",
    )  # fmt: skip
