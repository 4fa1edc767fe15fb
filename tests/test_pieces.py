"""Blocks that fall into pieces are bounded piece by piece: by hand, beside the dense bound, and where they do not."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from pathlib import Path

import numpy as np
import pytest
import sympy as sp

import verify
from bilevel_sym import BilevelProblem
from bilevel_sym.errors import InvalidArgument, TooLarge
from bilevel_sym.graph.nodes import ZERO_FORM
from bilevel_sym.implicit.model import Model
from verify.enclosures import pieces
from verify.enclosures.pieces import pieces_of


def summed(term: str, n: int, step: int = 1) -> str:
    return " + ".join(term.format(i=i, j=i + 1) for i in range(1, n + 1, step))


def problem(n: int, f: str, g: str) -> BilevelProblem:
    names = [f"y{i}" for i in range(1, n + 1)]
    strong = summed("y{i}**2/2 - x*y{i}", n)
    return BilevelProblem(
        f"x*y1 + {f}", f"{strong} + {g}", "x", " ".join(names), box=dict.fromkeys(["x", *names], (-1, 1))
    )


N = 30  # 27,000 entries of a third derivative in y
BY_HAND: dict[str, tuple[Callable[[], BilevelProblem], float, float]] = {
    "f a sum of cubes": (lambda: problem(N, summed("y{i}**3", N), "0"), 6, 0),
    "g a sum of fourth powers": (lambda: problem(N, "0", summed("y{i}**4/4", N)), 6, 6),
    # g_yyy and g_xyyy have 6 exp(x) y_i, g_yyyy 6 exp(x); g_xxy is a vector of exp(x) y_i**3, no longer than e sqrt(N)
    "x in every piece": (lambda: problem(N, "0", summed("exp(x)*y{i}**4/4", N)), 6 * np.e, 6 * np.e),
    # derivatives of t**4/4 along a = (1, 2): 6 t |a|**3 with |t| at most 3, and 6 |a|**4
    "pairs": (lambda: problem(N, "0", summed("(y{i} + 2*y{j})**4/4", N, 2)), 18 * 5**1.5, 150),
}


@pytest.mark.slow
@pytest.mark.parametrize("name", BY_HAND)
def test_constants_of_many_variables_are_those_by_hand(name: str) -> None:
    # DEFECT: "f_yyy has 216,000 entries", of which 60 do not vanish
    build, rho, nu = BY_HAND[name]
    found = verify.constants(build(), effort="quick")
    for bracket, value in ((found.brackets["rho"], rho), (found.brackets["nu"], nu)):
        assert bracket.lower <= value * (1 + 1e-12)
        assert bracket.upper >= value * (1 - 1e-12)
        assert bracket.upper - bracket.lower <= 0.011 * value


@pytest.mark.slow
def test_pieces_and_the_whole_agree(monkeypatch: pytest.MonkeyPatch) -> None:
    small = problem(5, summed("y{i}**3*x", 5), "(y1 - y3)**4/8 + (2 + x)*y2**4/24 + exp(x)*(y4 + y5)**4/40")
    whole = verify.constants(small)
    assert not any(proof.piece for proof in whole.proofs)
    monkeypatch.setattr(pieces, "LARGEST", 16)
    parted = verify.constants(small)
    assert {proof.block for proof in parted.proofs if proof.piece} >= {"f_yyy", "g_yyyy", "g_xyyy", "g_yyy"}
    for name in ("rho", "nu", "ell", "mu"):
        one, other = whole.brackets[name], parted.brackets[name]
        assert max(one.lower, other.lower) <= min(one.upper, other.upper), name
        assert other.upper <= 1.02 * one.upper, name


def test_places_are_the_entries_that_do_not_vanish() -> None:
    x, y = sp.symbols("x1 x2"), sp.symbols("y:4")
    g = sp.exp(x[0]) * y[0] ** 2 * y[3] ** 2 + x[1] ** 2 * y[1] ** 3 + y[2] ** 5
    model = Model(x[0] * y[0], g, x, y)
    for name in ("g_xyy", "g_yyyy", "g_xxyy", "g_zzy"):
        shape, forms = model.block(name)
        dense = dict(zip(product(*map(range, shape)), forms, strict=True))
        places = model.places(name)
        assert all(dense[place] is form for place, form in places.items())
        assert all(form is ZERO_FORM for place, form in dense.items() if place not in places)
        variables = {"x": x, "y": y, "z": (*x, *y)}
        for place in dense:  # by SymPy, entry by entry
            expected = sp.diff(g, *(variables[a][k] for a, k in zip(name[2:], place, strict=True)))
            assert (expected != 0) == (place in places)


def test_a_restricted_model_has_the_entries_of_the_whole() -> None:
    x, y = sp.symbols("x"), sp.symbols("y:3")
    model = Model(x * y[0], sp.exp(x) * y[0] ** 2 * y[2] ** 2 + y[1] ** 4, [x], y)
    part = model.restricted({"y": (model.y[0], model.y[2])})
    whole, own = (np.array(m.expressions("g_yyy")).reshape(m.block("g_yyy")[0]) for m in (model, part))
    assert (own == whole[np.ix_([0, 2], [0, 2], [0, 2])]).all()
    assert part.block("g_zyyy")[0] == (4, 2, 2, 2)  # slopes are along all variables


@pytest.mark.parametrize(
    "g",
    [summed("(y{i} - y{j})**4/4", 39), "(" + summed("y{i}", 40) + ")**4/4", summed("abs(y{i})**3", 40)],
    ids=["a chain", "dense", "kinks"],
)
def test_what_does_not_fall_apart_is_refused_at_once(g: str) -> None:
    with pytest.raises(
        TooLarge,
        match=r"entries that may differ, and blocks of at most 20,000 are bounded|with its [\d,]+ entries takes about",
    ):
        verify.constants(problem(40, "0", g))


def test_the_blocks_of_small_problems_stay_whole() -> None:
    model = problem(5, "0", summed("y{i}**4/4", 5)).tape
    assert pieces_of(model, "g_yyyy") == ()


@pytest.mark.slow
def test_constants_in_pieces_are_not_saved(tmp_path: Path) -> None:
    found = verify.constants(problem(30, summed("y{i}**3", 30), "0"), effort="quick")
    with pytest.raises(InvalidArgument, match="piece by piece cannot be saved"):
        found.save(tmp_path / "pieces.json")


def test_the_order_of_equal_axes_does_not_count() -> None:
    """27 000 entries of f_yyy and 38 416 of g_yyyy, of which 4 960 and 2 380 may differ."""
    found = constants("({sum})**3/1000", "{squares}", 30)
    assert found.brackets["rho"].upper == pytest.approx(6 / 1000 * 30**1.5, rel=1e-6)
    found = constants("{squares}", "{squares} + ({sum})**4/96000", 14)
    assert found.brackets["nu"].upper == pytest.approx(24 * 14**2 / 96000, rel=1e-6)


def constants(f: str, g: str, n: int) -> verify.CertifiedConstants:
    y = [f"y{k}" for k in range(n)]
    words = {"sum": " + ".join(y), "squares": " + ".join(f"{v}**2/2" for v in y)}
    box = {"x": (-1, 1)} | dict.fromkeys(y, (-1, 1))
    return verify.constants(BilevelProblem(f.format(**words), g.format(**words), "x", " ".join(y), box=box))
