"""JAX by hand, jaxopt and Optimistix, each as its manual asks it. A hypergradient is ``jax.grad`` of f(x, y*(x))."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from importlib import import_module
from typing import Any

from benchmarks.field.entry import Entry
from bilevel_sym import BilevelProblem

__all__ = ["ENTRIES"]

TIGHT = 1e-13  # a tolerance near what float64 allows
MOST_STEPS = 20_000  # for those who are asked to go on
Response = Callable[[Any], Any]  # x to y*(x), which the library can differentiate
Best = Callable[[Any, int], Response]  # (g, n) to that


def _gradient(best: Best, problem: BilevelProblem) -> Callable[[Any], Any]:
    jax, f, response = _jax(), *_functions(best, problem)
    answer: Callable[[Any], Any] = jax.jit(jax.grad(lambda x: f(x, response(x))))
    return answer


def _solution(best: Best, problem: BilevelProblem) -> Callable[[Any], Any]:
    response: Callable[[Any], Any] = _jax().jit(_functions(best, problem)[1])
    return response


def _jax() -> Any:
    jax: Any = import_module("jax")
    jax.config.update("jax_enable_x64", True)
    return jax


def _functions(best: Best, problem: BilevelProblem) -> tuple[Any, Response]:
    _jax()
    f, g = problem.to_jax()
    return f, best(g, problem.n)


def _newton(g: Any, x: Any, y: Any) -> Any:
    """20 Newton steps: the lower level is then exact, and what is judged is the derivative."""
    jax = _jax()

    def step(_: int, y: Any) -> Any:
        return y - jax.numpy.linalg.solve(jax.hessian(g, 1)(x, y), jax.grad(g, 1)(x, y))

    return jax.lax.fori_loop(0, 20, step, y)


# ---- JAX by hand ----------------------------------------------------------------------------------------------------


def _by_hand(options: dict[str, float], g: Any, n: int) -> Response:
    """A derivative of our own, ``jax.custom_vjp``: the system is solved by JAX's conjugate gradients."""
    jax = _jax()
    cg, slope = import_module("jax.scipy.sparse.linalg").cg, jax.grad(g, 1)

    def solved(x: Any) -> Any:
        return _newton(g, x, jax.numpy.zeros(n))

    def backward(at: Any, right: Any) -> Any:
        x, y = at
        v = cg(lambda p: jax.jvp(lambda y: slope(x, y), (y,), (p,))[1], right, **options)[0]
        return jax.vjp(lambda x: slope(x, y), x)[1](-v)

    response: Any = jax.custom_vjp(solved)
    response.defvjp(lambda x: (y := solved(x), (x, y)), backward)
    return response  # type: ignore[no-any-return]


# ---- jaxopt ---------------------------------------------------------------------------------------------------------


def _jaxopt(solver: str, options: dict[str, Any], g: Any, n: int) -> Response:
    jaxopt: Any = import_module("jaxopt")
    if options:
        linear: Any = import_module("jaxopt.linear_solve")
        options = {**options, "implicit_diff_solve": partial(linear.solve_cg, tol=1e-15)}
    made = getattr(jaxopt, solver)(lambda y, x: g(x, y), **options)
    return lambda x: made.run(_jax().numpy.zeros(n), x).params


def _jaxopt_root(tight: bool, g: Any, n: int) -> Response:
    diff: Any = import_module("jaxopt.implicit_diff")
    linear: Any = import_module("jaxopt.linear_solve")
    options = {"solve": partial(linear.solve_cg, tol=1e-15)} if tight else {}
    solved = diff.custom_root(_jax().grad(lambda y, x: g(x, y)), **options)(lambda y, x: _newton(g, x, y))
    return lambda x: solved(_jax().numpy.zeros(n), x)


# ---- Optimistix -----------------------------------------------------------------------------------------------------


def _optimistix_bfgs(rtol: float, g: Any, n: int) -> Response:
    optimistix: Any = import_module("optimistix")
    solver = optimistix.BFGS(rtol=rtol, atol=rtol)

    def response(x: Any) -> Any:
        start = _jax().numpy.zeros(n)
        return optimistix.minimise(lambda y, x: g(x, y), solver, start, args=x, max_steps=MOST_STEPS).value

    return response


def _optimistix_newton(rtol: float, iterative: bool, g: Any, n: int) -> Response:
    optimistix, lineax = import_module("optimistix"), import_module("lineax")
    solver, slope = optimistix.Newton(rtol=rtol, atol=rtol), _jax().grad(g, 1)
    options: dict[str, Any] = {}
    if iterative:
        linear = lineax.CG(rtol=rtol, atol=rtol)
        options["adjoint"] = optimistix.ImplicitAdjoint(linear_solver=linear)
        options["tags"] = frozenset({lineax.positive_semidefinite_tag})

    def response(x: Any) -> Any:
        start = _jax().numpy.zeros(n)
        return optimistix.root_find(lambda y, x: slope(x, y), solver, start, args=x, **options).value

    return response


def _both(
    library: str, call: str, needs: tuple[str, ...], loose: tuple[str, Best], tight: tuple[str, Best], lower: bool
) -> tuple[Entry, ...]:
    """Both settings of a call; of one with a solver of its own, its y* too."""
    needs = ("jax", *needs)
    found = [
        Entry(library, call, "defaults", loose[0], needs, partial(_gradient, loose[1])),
        Entry(library, call, "tight", tight[0], needs, partial(_gradient, tight[1])),
    ]
    if lower:
        found += [
            Entry(library, call, "defaults", loose[0], needs, partial(_solution, loose[1]), "lower solution"),
            Entry(library, call, "tight", tight[0], needs, partial(_solution, tight[1]), "lower solution"),
        ]
    return tuple(found)


FAR = {"tol": TIGHT, "maxiter": MOST_STEPS}
OPTIMISTIX = ("optimistix", "lineax")
ENTRIES = (
    *_both(
        "jax", "custom_vjp, scipy.sparse.linalg.cg, y* exact", (),
        ("cg tol 1e-5", partial(_by_hand, {})), ("cg tol 1e-15", partial(_by_hand, {"tol": 1e-15})), False,
    ),
    *_both(
        "jaxopt", "LBFGS(implicit_diff=True)", ("jaxopt",),
        ("tol 1e-3, solve_normal_cg", partial(_jaxopt, "LBFGS", {})),
        ("tol 1e-13, solve_cg tol 1e-15", partial(_jaxopt, "LBFGS", FAR)), True,
    ),
    *_both(
        "jaxopt", "GradientDescent(implicit_diff=True)", ("jaxopt",),
        ("tol 1e-3, maxiter 500, solve_normal_cg", partial(_jaxopt, "GradientDescent", {})),
        ("tol 1e-13, solve_cg tol 1e-15", partial(_jaxopt, "GradientDescent", FAR)), False,
    ),
    *_both(
        "jaxopt", "implicit_diff.custom_root, y* exact", ("jaxopt",),
        ("solve_normal_cg tol 1e-5", partial(_jaxopt_root, False)), ("solve_cg tol 1e-15", partial(_jaxopt_root, True)),
        False,
    ),
    *_both(
        "optimistix", "minimise(BFGS)", OPTIMISTIX,
        ("no default; rtol = atol = 1e-5", partial(_optimistix_bfgs, 1e-5)),
        ("rtol = atol = 1e-13", partial(_optimistix_bfgs, TIGHT)), True,
    ),
    *_both(
        "optimistix", "root_find(Newton)", OPTIMISTIX,
        ("no default; rtol = atol = 1e-5", partial(_optimistix_newton, 1e-5, False)),
        ("rtol = atol = 1e-13", partial(_optimistix_newton, TIGHT, False)), False,
    ),
    *_both(
        "optimistix", "root_find(Newton), ImplicitAdjoint(lineax.CG)", OPTIMISTIX,
        ("no default; rtol = atol = 1e-5", partial(_optimistix_newton, 1e-5, True)),
        ("rtol = atol = 1e-13", partial(_optimistix_newton, TIGHT, True)), False,
    ),
)  # fmt: skip
