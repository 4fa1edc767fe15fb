"""Problems from the literature: what is printed, computed and derived by hand is one."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from literature import LITERATURE, Work

from bilevel_sym import derive
from bilevel_sym.problem.problem import BilevelProblem
from bilevel_sym.typing import Floats

SIZES = {"m": 5, "n": 3, "k": 4, "q": 2, "d": 2}
ONE_HOT = ("P", "Q")
SIGNS = ("b", "c")


def drawn(work: Work, seed: int) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    data: dict[str, Any] = {}
    for name, text in work.data.items():
        shape = tuple(SIZES[dim.strip()] for dim in text.removesuffix(" symmetric").split(","))
        array = rng.normal(size=shape)
        if name in work.positive:
            array = np.abs(array)
        if "symmetric" in text:
            array = array @ array.T + np.eye(shape[0]) if name not in work.positive else array + array.T
            if name in work.positive:
                np.fill_diagonal(array, 0.0)
        if name in ONE_HOT:
            array = np.eye(shape[1])[rng.integers(shape[1], size=shape[0])]
        if name in SIGNS and "softplus" in work.f:
            array = np.where(array > 0, 1.0, -1.0)
        data[name] = array
    return data


def split(problem: BilevelProblem, role: str, flat: Floats) -> Any:
    leaf = (problem.array_model.x if role == "x" else problem.array_model.y)[0]
    shape = tuple(int(dim) if dim.isdecimal() else problem.dimensions[dim] or 0 for dim in leaf.dims)
    return flat.reshape(shape) if shape else flat[0]


@pytest.mark.parametrize("seed", [0, 1])
@pytest.mark.parametrize("name", LITERATURE)
def test_hypergradients_are_those_derived_by_hand(name: str, seed: int) -> None:
    work = LITERATURE[name]
    problem = work.problem(drawn(work, seed))
    x = np.random.default_rng(seed + 10).normal(size=problem.d) * 0.4
    y0 = np.full(problem.n, 0.5) if "log(y)" in work.f else None
    y = problem.kernels.y_star(x, y0=y0)
    expected = work.by_hand(problem.arrays, split(problem, "x", x), split(problem, "y", y))
    np.testing.assert_allclose(problem.kernels.grad_phi(x, y0=y0), expected, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("name", LITERATURE)
def test_hessians_are_those_of_the_problem_in_scalars(name: str) -> None:
    work = LITERATURE[name]
    problem = work.problem(drawn(work, 3))
    x = np.random.default_rng(5).normal(size=problem.d) * 0.4
    y0 = np.full(problem.n, 0.5) if "log(y)" in work.f else None
    y = problem.kernels.y_star(x, y0=y0)
    expected = problem.lowered().kernels.expansion(x, y).hess
    found = problem.kernels.hess_phi(x, y0=y)
    np.testing.assert_allclose(found, expected, rtol=1e-8, atol=1e-9 * np.abs(expected).max())


@pytest.mark.parametrize("name", LITERATURE)
def test_formulas_are_printed_for_any_size(name: str) -> None:
    derivation = derive(LITERATURE[name].problem())
    text = derivation.text()
    assert "grad Phi(x) = " in text
    assert "Hess Phi" in text
    assert derivation.latex()
