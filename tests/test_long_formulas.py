"""Formulas for people cost what they print, or are refused before they are found: counted in calls, not in seconds."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import sympy as sp
from helpers import FEW, Solved, calls_of, solved_problems
from hostile import grow, nest
from hypothesis import given
from sympy.core.cache import clear_cache

from bilevel_sym import BilevelProblem, Derivation, compile_kernels, derive, derive_generic
from bilevel_sym.errors import InvalidProblem, TooLarge
from bilevel_sym.graph.expressions import tree_size
from bilevel_sym.symbolic.blocks import BLOCK_NAMES, Blocks

SECOND = 2_000_000  # calls that an ordinary core makes in about a second


def diagonal(n: int, *, closed: bool = True) -> BilevelProblem:
    """n problems side by side: every block is diagonal."""
    terms = [f"exp(x{k})*y{k}**2/2 - x{k}*y{k}" + ("" if closed else f" + exp(y{k})") for k in range(1, n + 1)]
    names = [" ".join(f"{s}{k}" for k in range(1, n + 1)) for s in "xy"]
    return BilevelProblem(" + ".join(f"(y{k} - 1)**2/2" for k in range(1, n + 1)), " + ".join(terms), *names)


def written(derivation: Derivation, form: str) -> str:
    return derivation.source("numpy") if form == "source" else derivation.latex("entries")


@pytest.mark.slow
@pytest.mark.in_ci(form=["source"])
@pytest.mark.parametrize("form", ["source", pytest.param("latex", marks=pytest.mark.slow)])
def test_twice_as_many_variables_cost_about_twice_as_much(form: str) -> None:
    # DEFECT: 2**4 times as much, for entries that vanish were differentiated, each by going through all of g
    def work(n: int) -> int:
        derivation = derive(diagonal(n))
        clear_cache()  # SymPy remembers what it computed, in whatever order the tests run
        return calls_of(lambda: written(derivation, form))

    assert work(32) < 2.8 * work(16)


@pytest.mark.long
@pytest.mark.parametrize("form", ["source", "latex"])
def test_a_hundred_variables_are_written(form: str) -> None:
    assert calls_of(lambda: written(derive(diagonal(100)), form)) < 8 * SECOND
    assert calls_of(lambda: written(derive(diagonal(100, closed=False)), "source")) < 2 * SECOND


@pytest.mark.slow
def test_more_entries_than_anybody_prints_are_refused_at_once() -> None:
    derivation = derive(diagonal(174))
    with pytest.raises(TooLarge, match=r"(?s)hess_phi .* about 30,276 .*form='blocks'"):
        derivation.latex("entries")
    assert "\\nabla" in derivation.latex("blocks")


@pytest.mark.parametrize("closed", [True, False])
def test_sparse_source_computes_what_the_kernels_do(closed: bool) -> None:
    problem = diagonal(11, closed=closed)
    text = derive(problem).source("numpy")
    assert "g_xy[3, 3] = " in text
    module: dict[str, Any] = {}
    exec(text, module)
    kernels = compile_kernels(problem, backend="tape")
    x = np.linspace(-1, 1, 11)
    np.testing.assert_allclose(module["grad_phi"](x), kernels.grad_phi(x), rtol=1e-12, atol=1e-13)
    np.testing.assert_allclose(module["hess_phi"](x), kernels.hess_phi(x), rtol=1e-11, atol=1e-12)


LONG = {
    "nested sines": nest("sin(@)", 90, "y"),
    "nested sines of both": nest("sin(@ + y)", 40),
    "nested pieces": nest("Piecewise((@*y, y < 1), (y, True))", 40),
    "a continued fraction": nest("y + 1/(@)", 45),
    "a product of 90": "*".join(f"(x + {k}*y)" for k in range(1, 91)),
    "a product of 50 sines": "*".join(f"sin(x + {k}*y)" for k in range(1, 51)),
    "quotients": "/".join(f"(x**2 + y**2 + {k})" for k in range(1, 61)),
    "nested roots": nest("sqrt(@ + 1 + y**2)", 40),
    "nested logarithms": nest("log(@**2 + 1)", 18, "y*x"),
    "nested sigmoids": nest("sigmoid(@*y)", 40),
    "a tower": nest("(@ + 2)**y", 20, "x**2"),
    "the least of 50": f"min({','.join(f'x - {k}*y' for k in range(50))})",
    "doubling": grow("(@*y + @**2)", 7),
    "doubling sines": grow("sin(@*y + @)", 6),
    "a logarithm of 60 factors": "log(" + "*".join(f"(x**2 + {k}*y**2 + 1)" for k in range(1, 60)) + ")",
}


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("form", ["source", "latex"])
@pytest.mark.parametrize("name", LONG)
def test_what_would_fill_books_is_refused_before_it_is_found(name: str, form: str) -> None:
    for f, g in (("x*y", f"y**2 + {LONG[name]}"), (LONG[name], "y**2/2 - sin(x)*y")):
        derivation = derive(BilevelProblem(f, g, "x", "y"))

        def refused(derivation: Derivation = derivation) -> None:
            with pytest.raises(TooLarge, match=r"(?s)about [\d,]+ symbols.*\ntry: .*kernels"):
                written(derivation, form)

        assert calls_of(refused) < SECOND


@pytest.mark.slow
def test_a_power_inside_a_quotient_is_not_multiplied_out() -> None:
    # DEFECT: the bound on the terms stopped at a negative power, and SymPy does not
    for text in ("((x + y)**20 + (x - y)**20 + 1)**10", "1/(x*y + 1)**500"):
        for f, g in (("x*y", f"y**2 + {text}"), (text, "y**2/2 - sin(x)*y")):
            derivation = derive(BilevelProblem(f, g, "x", "y"))
            assert calls_of(derivation.latex) < 2 * SECOND


@pytest.mark.long
def test_long_sums_are_printed_as_they_stand() -> None:
    # DEFECT: SymPy puts the terms in order at a price that grows with the square
    def work(count: int) -> int:
        f = "+".join(f"1/(x + y + {k})" for k in range(1, count))
        clear_cache()
        return calls_of(
            lambda: derive(BilevelProblem(f, "y**2/2 - sin(x)*y", "x", "y"), closed_form=False).latex("entries")
        )

    assert work(160) < 2.8 * work(80)


@FEW
@given(solved_problems(2, 2))
def test_entries_are_those_of_the_block_that_do_not_vanish(solved: Solved) -> None:
    problem = solved.problem
    v = sp.symbols("v1:3", real=True)
    blocks = Blocks(problem.f, problem.g, problem.x, problem.y, v=v)
    for name in BLOCK_NAMES:
        whole, entries = blocks[name], blocks.entries(name)
        shape = (2,) * (len(name) - 2)
        for place in np.ndindex(shape):
            assert blocks[(name, *place)] == entries.get(place, 0) == whole[(*place, 0)[: max(2, len(place))]]
        assert 0 not in entries.values()


@FEW
@given(solved_problems(2, 2))
def test_sizes_are_about_those_of_what_is_written(solved: Solved) -> None:
    problem = solved.problem
    blocks = Blocks(problem.f, problem.g, problem.x, problem.y, v=sp.symbols("v1:3", real=True))
    for name in BLOCK_NAMES:
        true = sum(map(tree_size, blocks.entries(name).values()))
        assert true / 8 <= blocks.size(name) <= 8 * true + 8


def test_undefined_functions_are_written_as_ever() -> None:
    assert "Derivative" in str(derive_generic(1, 1).hess_phi)
    assert "frac" in derive_generic(1, 1).latex()


@pytest.mark.parametrize("field", ["x", "y"])
def test_the_length_of_a_list_of_names_is_looked_at_before_it_is_read(field: str) -> None:
    # DEFECT: 1.6 MB took seconds
    names = {"x": "x", "y": "y"} | {field: "z " * 800_000}

    def refused() -> None:
        with pytest.raises(InvalidProblem, match=f"{field} has 1600000 characters, and 200000 are accepted"):
            BilevelProblem("x", "y", names["x"], names["y"])

    assert calls_of(refused) < 1000
