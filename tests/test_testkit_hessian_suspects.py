"""Planted defects of Hessians, each written down a second time from SymPy's derivatives, and what diagnosis calls them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import cache, cached_property
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
import sympy as sp
from helpers import random_problem
from hypothesis import given, settings
from hypothesis import strategies as st

from bilevel_sym import BilevelProblem, derive, zoo
from bilevel_sym.typing import Floats
from verify.testkit.diagnosis import Diagnosis, Evidence, explain
from verify.testkit.reference import References, references
from verify.testkit.suspects.hessian import hessian_suspects
from verify.testkit.suspects.hessian_terms import CURVATURE, PARTS, hessian_at, hessian_terms

EQUAL: Mapping[str, float] = {}

X3, X2, Y3, Y2 = (sp.symbols(f"{s}1:{k}") for s, k in (("x", 4), ("x", 3), ("y", 4), ("y", 3)))


def rich(x: tuple[sp.Symbol, ...], y: tuple[sp.Symbol, ...]) -> BilevelProblem:
    """All blocks dense, none symmetric that need not be, eigenvalues of g_yy apart."""
    k = range(1, 9)
    f = sum(sp.sin(a + i * b / 3) * (1 + b) for i, a in zip(k, x, strict=False) for b in y)
    f += sum(i * a**2 * b / 4 for i, (a, b) in enumerate(zip(x, x[1:] + y, strict=False), 1)) + sum(b**3 for b in y) / 5
    g = sum(i * b**2 + sp.exp((b - a * i) / 4) + a * b / (1 + i) for i, b in zip(k, y, strict=False) for a in x)
    g += sum(a * b for a, b in pairwise(y)) / 2 + sum(sp.cos(a * b) for a in x for b in y) / 8
    return BilevelProblem(f, g, x, y)


PROBLEMS: dict[str, Callable[[], BilevelProblem]] = {
    "d=1,n=1": lambda: rich(X3[:1], Y3[:1]),
    "d=1,n=2": lambda: rich(X3[:1], Y2),
    "d=2,n=1": lambda: rich(X2, Y3[:1]),
    "d=n=2": lambda: rich(X2, Y2),
    "d=3,n=2": lambda: rich(X3, Y2),
    "d=n=3": lambda: rich(X3, Y3),
    "seed 6": lambda: random_problem(6),  # d = 1, n = 3
    "seed 16": lambda: random_problem(16),  # d = 2, n = 3
}


SHAPES = ("d=1,n=1", "d=1,n=2", "d=2,n=1", "d=n=2", "d=3,n=2")


def slow(*values: Any) -> Any:
    return pytest.param(*values, marks=pytest.mark.slow)


def inverse(matrix: Floats) -> Floats:
    return np.asarray(np.linalg.inv(matrix), dtype=float)


@dataclass(frozen=True, eq=False)
class Case:
    """A problem at 12 points, and SymPy's own derivatives there, by names such as "gxy"; y* as certified."""

    problem: BilevelProblem
    at: References

    @cached_property
    def compiled(self) -> dict[str, Callable[..., Any]]:
        p = self.problem
        groups, found = {"x": p.x, "y": p.y}, {}
        for name in ("fx", "fy", "fxx", "fxy", "fyy", "gy", "gxy", "gyy", "gxxy", "gxyy", "gyyy"):
            entries: Any = {"f": p.f, "g": p.g}[name[0]]
            for letter in name[1:]:
                entries = sp.derive_by_array(entries, sp.Array(groups[letter]))
            order = tuple(reversed(range(len(name) - 1)))  # the newest axis comes first
            if len(order) > 1:
                entries = sp.permutedims(entries, order)
            found[name] = sp.lambdify([*p.x, *p.y], entries.tolist(), "math", cse=True)
        return found

    def block(self, name: str, x: Floats, y: Floats) -> Floats:
        return np.array(self.compiled[name](*map(float, x), *map(float, y)), dtype=float)

    @cached_property
    def here(self) -> list[dict[str, Floats]]:
        return [self.blocks(x, y) for x, y in zip(self.at.x, self.at.y, strict=True)]

    def blocks(self, x: Floats, y: Floats) -> dict[str, Floats]:
        blocks = {name: self.block(name, x, y) for name in self.compiled}
        return blocks | {"inverse": inverse(blocks["gyy"])}

    def each(self, formula: Callable[[dict[str, Floats]], Floats]) -> Floats:
        return np.array([formula(blocks) for blocks in self.here])

    def diagnosis(self, values: Floats, previous: Floats | None = None) -> Diagnosis:
        evidence = Evidence(values, self.at.truth("hess_phi"), self.at.floor("hess_phi"))
        return explain(evidence, hessian_suspects(self.at, values, previous))


def sampled(problem: BilevelProblem, number: int = 12) -> References:
    rng = np.random.default_rng(5)
    return references(problem, rng.uniform(-0.9, 0.9, (number, problem.d)))


@cache
def case(name: str) -> Case:
    problem = PROBLEMS[name]()
    return Case(problem, sampled(problem))


# ---- Hess Phi written otherwise: the total derivative by its chain rule, with what a defect changes as arguments ------


def hessian(
    b: dict[str, Floats], weights: Mapping[str, float] = EQUAL, *, J: Floats | None = None, v: Floats | None = None
) -> Floats:
    """With Z = [I, J]: sum over pairs of letters of Z B Z^T, and d2y_dx2 solved for and contracted with f_y."""
    J = -b["gxy"] @ b["inverse"] if J is None else J
    v = b["inverse"] @ b["fy"] if v is None else v
    w = {name: weights.get(name, 1.0) for name in PARTS}
    third = w["g_xxy"] * b["gxxy"]
    third = third + w["g_xyy"] * np.einsum("ikm,jm->ijk", b["gxyy"], J)
    third = third + w["g_xyy_transposed"] * np.einsum("jkm,im->ijk", b["gxyy"], J)
    third = third + w["g_yyy"] * np.einsum("kab,ia,jb->ijk", b["gyyy"], J, J)
    total = w["direct"] * b["fxx"] - np.einsum("ijk,k->ij", third, v)
    total = total + w["cross"] * np.einsum("ik,jk->ij", J, b["fxy"])
    total = total + w["cross_transposed"] * np.einsum("ik,jk->ij", b["fxy"], J)
    return np.asarray(total + w["quadratic"] * np.einsum("ia,ab,jb->ij", J, b["fyy"], J))


def by_weights(**weights: float) -> Callable[[Case], Floats]:
    return lambda case: case.each(lambda b: hessian(b, weights))


def without(*parts: str) -> Callable[[Case], Floats]:
    return by_weights(**dict.fromkeys(parts, 0.0))


# ---- the terms ---------------------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(name=("d=2,n=1", "d=1,n=2"))
@pytest.mark.parametrize("name", ["d=2,n=1", *map(slow, ["d=1,n=2", "d=n=2", "seed 6", "seed 16"])])
def test_terms_are_those_of_the_derivation(name: str) -> None:
    found = case(name)
    derivation = derive(found.problem, closed_form=False)
    terms, at = hessian_terms(found.at.at), found.at
    symbols = [*found.problem.x, *found.problem.y]
    for k in range(2):
        certificate = at.certificates[k]
        point = dict(
            zip(
                symbols,
                [*map(sp.Rational, at.x[k].tolist()), *(sp.Float(str(y), 25) for y in certificate.y_star)],
                strict=True,
            )
        )
        for term, matrix in derivation.terms["hess_phi"].items():
            exact = np.array(matrix.subs(point).evalf(25).tolist(), dtype=float)
            np.testing.assert_allclose(terms[term][k], exact, rtol=1e-11, atol=1e-12)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", [*SHAPES, *map(slow, ["d=n=3", "seed 6", "seed 16"])])
def test_terms_sum_to_the_certified_hessian(name: str) -> None:
    at, terms = case(name).at, hessian_terms(case(name).at.at)
    assert (at.errors("hess_phi", terms.total) <= at.floor("hess_phi")).all()
    np.testing.assert_allclose(terms["curvature"], at.at.curvature(), rtol=1e-10, atol=1e-12)
    np.testing.assert_allclose(sum(terms[part] for part in CURVATURE), terms["curvature"], rtol=0, atol=0)
    np.testing.assert_allclose(case(name).each(hessian), at.truth("hess_phi"), rtol=1e-11, atol=1e-11)
    for part in PARTS:  # each part by itself, against the second way of writing it
        only = by_weights(**{q: float(q == part) for q in PARTS})(case(name))
        np.testing.assert_allclose(terms[part], only, rtol=1e-10, atol=1e-12)


# ---- planted defects ---------------------------------------------------------------------------------------------------


def with_blocks(change: Callable[[dict[str, Floats]], dict[str, Floats]]) -> Callable[[Case], Floats]:
    return lambda case: case.each(lambda b: hessian({**b, **change(b)}))


def with_slope(J: Callable[[dict[str, Floats]], Floats]) -> Callable[[Case], Floats]:
    return lambda case: case.each(lambda b: hessian(b, J=J(b)))


def with_v(v: Callable[[dict[str, Floats]], Floats]) -> Callable[[Case], Floats]:
    return lambda case: case.each(lambda b: hessian(b, v=v(b)))


def lagrangian_one_sided(case: Case) -> Floats:
    def one(b: dict[str, Floats]) -> Floats:
        J, v = -b["gxy"] @ b["inverse"], b["inverse"] @ b["fy"]
        L_xx, L_xy, L_yy = b["fxx"] - b["gxxy"] @ v, b["fxy"] - b["gxyy"] @ v, b["fyy"] - b["gyyy"] @ v
        return np.asarray(L_xx + 2 * (L_xy + J @ L_yy / 2) @ J.T)

    return case.each(one)


def stop_gradient(fixed: str) -> Callable[[Case], Floats]:
    """d/dx of f_x(x, y) - g_xy(x, y) v by central differences, with y or v (or both) taken for constants."""

    def estimate(case: Case, x: Floats, y: Floats, v: Floats) -> Floats:
        return np.asarray(case.block("fx", x, y) - case.block("gxy", x, y) @ v)

    def values(case: Case) -> Floats:
        h, found = 2.0**-13, []
        for x0, y0 in zip(case.at.x, case.at.y, strict=True):
            v0 = inverse(case.block("gyy", x0, y0)) @ case.block("fy", x0, y0)
            columns = []
            for j in range(case.problem.d):
                sides = []
                for k in (-2, -1, 1, 2):  # of fourth order
                    x = x0 + k * h * np.eye(case.problem.d)[j]
                    y = y0 if "y" in fixed else case.problem.kernels.y_star(x, y0=y0)
                    v = v0 if "v" in fixed else inverse(case.block("gyy", x, y)) @ case.block("fy", x, y)
                    sides.append(estimate(case, x, y, v))
                columns.append((sides[0] - 8 * sides[1] + 8 * sides[2] - sides[3]) / (12 * h))
            found.append(np.array(columns).T)
        return np.array(found)

    return values


def differences(h: float, kind: str) -> Callable[[Case], Floats]:
    def values(case: Case) -> Floats:
        grad, d = case.problem.kernels.grad_phi, case.problem.d
        columns = []
        for e in np.eye(d):
            if kind == "central":
                columns.append((grad(case.at.x + h * e) - grad(case.at.x - h * e)) / (2 * h))
            else:
                columns.append((grad(case.at.x + h * e) - grad(case.at.x)) / h)
        found = np.stack(columns, axis=2)
        return (found + found.swapaxes(1, 2)) / 2 if kind == "symmetrised" else found

    return values


def descent(D: int, tau: float) -> Callable[[Case], Floats]:
    def values(case: Case) -> Floats:
        found = []
        for x in case.at.x:
            y = np.zeros(case.problem.n)
            for _ in range(D):
                y = y - tau * case.block("gy", x, y)
            found.append(hessian(case.blocks(x, y)))
        return np.array(found)

    return values


CROSS, G_XYY = ("cross", "cross_transposed"), ("g_xyy", "g_xyy_transposed")
EVERYWHERE: dict[str, tuple[str, Callable[[Case], Floats]]] = {
    "whole sign": ("sign", lambda c: -c.each(hessian)),
    "whole factor": ("factor", lambda c: 0.7 * c.each(hessian)),
    "no curvature": ("third derivative", without(*CURVATURE)),
    "no g_xxy": ("third derivative", without("g_xxy")),
    "no g_xyy": ("third derivative", without(*G_XYY)),
    "no g_yyy": ("third derivative", without("g_yyy")),
    "curvature negated": ("third derivative", by_weights(**dict.fromkeys(CURVATURE, -1.0))),
    "curvature weighted": ("third derivative", by_weights(**dict.fromkeys(CURVATURE, 0.3))),
    "no cross": ("cross", without(*CROSS)),
    "cross halved": ("cross", by_weights(cross=0.5, cross_transposed=0.5)),
    "cross doubled": ("cross", by_weights(cross=2, cross_transposed=2)),
    "cross negated": ("cross", by_weights(cross=-1, cross_transposed=-1)),
    "cross weighted": ("cross", by_weights(cross=0.9, cross_transposed=0.9)),
    "no quadratic": ("quadratic", without("quadratic")),
    "quadratic negated": ("quadratic", by_weights(quadratic=-1)),
    "quadratic weighted": ("quadratic", by_weights(quadratic=0.25)),
    "no direct": ("direct", without("direct")),
    "direct weighted": ("direct", by_weights(direct=1.5)),
    "dy_dx negated": ("sign", with_slope(lambda b: b["gxy"] @ b["inverse"])),
    "no inverse in dy_dx": ("inverse", with_slope(lambda b: -b["gxy"])),
    "no inverse at all": ("inverse", with_blocks(lambda b: {"inverse": np.eye(len(b["gyy"]))})),
    "no inverse in v": ("inverse", with_v(lambda b: b["fy"])),
    "damped inverse": (
        "inverse",
        with_blocks(lambda b: {"inverse": inverse(b["gyy"] + 0.05 * np.eye(len(b["gyy"])))}),
    ),
    "only f_xx": ("cross", lambda c: c.each(lambda b: b["fxx"])),
    "only the quadratic term": (
        "cross",
        lambda c: c.each(lambda b: b["gxy"] @ b["inverse"] @ b["fyy"] @ b["inverse"] @ b["gxy"].T),
    ),
    "v fixed": ("cross", stop_gradient("v")),
    "y fixed": ("cross", stop_gradient("y")),
    "y and v fixed": ("cross", stop_gradient("yv")),
    "forward differences": ("tolerance", differences(1e-5, "forward")),
    "symmetrised differences": ("tolerance", differences(1e-4, "symmetrised")),
    "central differences": ("tolerance", differences(1e-2, "central")),
    "y = 0": ("y*", descent(0, 0.0)),
    "3 steps": ("y*", descent(3, 0.07)),
    "12 steps": ("y*", descent(12, 0.05)),
    "40 steps": ("y*", descent(40, 0.03)),
}
LOPSIDED: dict[str, tuple[str, Callable[[Case], Floats]]] = {
    "one part with g_xyy": ("third derivative", without("g_xyy")),
    "the other part with g_xyy": ("third derivative", without("g_xyy_transposed")),
    "one cross term": ("symmetry", without("cross")),
    "the other cross term": ("symmetry", without("cross_transposed")),
    "as printed": ("symmetry", by_weights(cross=2, cross_transposed=0)),
    "as printed, transposed": ("symmetry", by_weights(cross=0, cross_transposed=2)),
    "Lagrangian one-sided": ("symmetry", lagrangian_one_sided),
    "Lagrangian one-sided, transposed": ("symmetry", lambda c: lagrangian_one_sided(c).swapaxes(1, 2)),
    "upper triangle": ("symmetry", lambda c: np.triu(c.each(hessian))),
    "antisymmetric and unknown": (
        "symmetry",
        lambda c: c.each(lambda b: hessian(b) + np.triu(np.sin(b["fxx"] + 1), 1) - np.triu(np.sin(b["fxx"] + 1), 1).T),
    ),
    "inverse of the Hessian": ("inverse", lambda c: inverse(c.each(hessian))),
}
SQUARE: dict[str, tuple[str, Callable[[Case], Floats]]] = {
    "g_xy transposed": ("transpose", with_slope(lambda b: -b["gxy"].T @ b["inverse"])),
    "f_xy transposed": ("transpose", with_blocks(lambda b: {"fxy": b["fxy"].T})),
    "dy_dx transposed": ("transpose", with_slope(lambda b: -b["inverse"] @ b["gxy"].T)),
    "diagonal inverse": ("inverse", with_blocks(lambda b: {"inverse": np.diag(1 / np.diag(b["gyy"]))})),
}


def crossed(defects: Mapping[str, Any], names: tuple[str, ...]) -> list[Any]:
    """Each defect on one problem, in turn; on the others in the slow tests."""
    return [
        (name, defect) if (k + i) % len(names) == 0 else slow(name, defect)
        for i, defect in enumerate(defects)
        for k, name in enumerate(names)
    ]


def named(name: str, defect: tuple[str, Callable[[Case], Floats]]) -> None:
    cause, plant = defect
    diagnosis = case(name).diagnosis(plant(case(name)))
    assert diagnosis.cause == cause, diagnosis
    assert diagnosis.look_at
    assert "{" not in diagnosis.what


@pytest.mark.slow
@pytest.mark.in_ci(name=["d=3,n=2"])
@pytest.mark.parametrize(("name", "defect"), crossed(EVERYWHERE, (*SHAPES, "seed 6", "seed 16")))
def test_planted_defect_is_named(name: str, defect: str) -> None:
    named(name, EVERYWHERE[defect])


@pytest.mark.slow
@pytest.mark.in_ci(name=["d=3,n=2"])
@pytest.mark.parametrize(("name", "defect"), crossed(LOPSIDED, ("d=2,n=1", "d=n=2", "d=3,n=2")))
def test_planted_asymmetry_is_named(name: str, defect: str) -> None:
    named(name, LOPSIDED[defect])


@pytest.mark.parametrize(
    ("defect", "said"),
    [
        ("one cross term", "f_xy dy_dx^T without its transpose dy_dx f_yx"),
        ("as printed", "dy_dx f_yx is counted twice, and its transpose f_xy dy_dx^T not at all"),
        ("Lagrangian one-sided", "L_xx + 2 (L_xy + dy_dx L_yy/2) dy_dx^T is not symmetrised"),
        ("forward differences", "it is a forward difference of grad Phi with a step of 1e-05"),
    ],
)
def test_the_words(defect: str, said: str) -> None:
    _, plant = {**EVERYWHERE, **LOPSIDED}[defect]
    assert case("d=n=2").diagnosis(plant(case("d=n=2"))).what == said


@pytest.mark.slow
@pytest.mark.parametrize(("name", "defect"), crossed(SQUARE, ("d=n=2", "d=n=3")))
def test_planted_transpose_is_named(name: str, defect: str) -> None:
    named(name, SQUARE[defect])


# ---- what needs its own set-up -----------------------------------------------------------------------------------------


def sequence(case: Case) -> Floats:
    """The points asked before, when they are asked in order."""
    return np.concatenate([np.full((1, case.problem.d), np.nan), case.at.x[:-1]])


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("name", ["d=1,n=2", "d=n=2", *map(slow, ["d=1,n=1", "seed 6", "seed 16"])])
def test_the_point_before(name: str) -> None:
    found = case(name)
    before, right = sequence(found), found.each(hessian)
    late = np.concatenate([right[:1], right[:-1]])
    assert found.diagnosis(late, before).cause == "predecessor"
    stale = [hessian(found.blocks(x, found.at.y[max(k - 1, 0)])) for k, x in enumerate(found.at.x)]
    said = found.diagnosis(np.array(stale), before)
    assert said.cause == "y*"
    assert "asked before" in said.what
    assert found.diagnosis(late).cause not in ("predecessor", "y*")  # unknown order: nothing is said of it


@pytest.mark.slow
@pytest.mark.parametrize(
    ("name", "D", "tau"), [("d=1,n=2", 1, 0.1), ("d=n=2", 2, 0.05), ("d=2,n=1", 3, 0.03), ("d=3,n=2", 4, 0.02)]
)
def test_warm_start_that_is_carried_along(name: str, D: int, tau: float) -> None:
    found, y, values = case(name), np.zeros(case(name).problem.n), []
    for x in found.at.x:
        for _ in range(D):
            y = y - tau * found.block("gy", x, y)
        values.append(hessian(found.blocks(x, y)))
    assert found.diagnosis(np.array(values), sequence(found)).cause == "y*"


@pytest.mark.parametrize(
    ("name", "D", "tau"), [("d=1,n=1", 2, 0.1), ("d=1,n=2", 5, 0.08), ("d=n=2", 3, 0.05), ("d=3,n=2", 10, 0.06)]
)
def test_differentiated_through_the_loop(name: str, D: int, tau: float) -> None:
    """Against differences of f(x, y_D(x)), of fourth order."""
    found = case(name)
    d, h = found.problem.d, 2.0**-7

    def gradient(x: Floats) -> Floats:  # forward differentiation of the loop
        y, J = np.zeros(found.problem.n), np.zeros((d, found.problem.n))
        for _ in range(D):
            J = J - tau * (found.block("gxy", x, y) + J @ found.block("gyy", x, y))
            y = y - tau * found.block("gy", x, y)
        return np.asarray(found.block("fx", x, y) + J @ found.block("fy", x, y))

    values = []
    for x in found.at.x:
        sides = [[gradient(x + k * h * e) for e in np.eye(d)] for k in (-2, -1, 1, 2)]
        a, b, c, e = map(np.array, sides)
        values.append((a - 8 * b + 8 * c - e) / (12 * h))
    diagnosis = found.diagnosis(np.array(values))
    assert diagnosis.cause == "y*", diagnosis
    assert "differentiated through" in diagnosis.what


def test_another_v_and_another_y_point_by_point() -> None:
    found, rng = case("d=3,n=2"), np.random.default_rng(2)
    values = found.each(lambda b: hessian(b, v=b["inverse"] @ b["fy"] + rng.normal(size=2)))
    assert found.diagnosis(values).cause == "inverse"
    y = found.at.y + 0.1 * rng.normal(size=found.at.y.shape)
    values = np.array([hessian(found.blocks(x, z)) for x, z in zip(found.at.x, y, strict=True)])
    assert found.diagnosis(values).cause == "y*"
    np.testing.assert_allclose(hessian_at(found.problem, found.at.x, y), values, rtol=1e-11, atol=1e-11)


def test_neumann_series() -> None:
    found = case("d=n=2")

    def cut(b: dict[str, Floats]) -> dict[str, Floats]:
        power, total, tau = np.eye(2), np.zeros((2, 2)), 0.13
        for _ in range(4):
            total, power = total + tau * power, power @ (np.eye(2) - tau * b["gyy"])
        return {"inverse": total}

    diagnosis = found.diagnosis(with_blocks(cut)(found))
    assert diagnosis.cause == "inverse"
    assert "4 terms" in diagnosis.what
    assert "0.13" in diagnosis.what


@pytest.mark.parametrize(
    ("weights", "cause", "words"),
    [
        ({"direct": 0.5, "quadratic": 3.0}, "quadratic", "3 of dy_dx f_yy dy_dx^T"),
        ({"cross": 0.25, "cross_transposed": 0.75}, "cross", "0.25 of dy_dx f_yx"),
        ({"direct": 1.5, "g_xxy": -1.0}, "third derivative", "-1 of the part with g_xxy"),
    ],
)
def test_several_weights_at_once(weights: dict[str, float], cause: str, words: str) -> None:
    found = case("d=3,n=2")
    diagnosis = found.diagnosis(by_weights(**weights)(found))
    assert diagnosis.cause == cause
    assert words in diagnosis.what


# ---- where nothing is to be said ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", SHAPES)
def test_no_suspect_for_what_is_right(name: str) -> None:
    found = case(name)
    assert list(hessian_suspects(found.at, found.each(hessian))) == []


@pytest.mark.slow
@given(st.integers(0, 2**32 - 1), st.sampled_from([*SHAPES, "seed 6", "seed 16"]), st.sampled_from([1e-8, 1e-4, 1.0]))
@settings(max_examples=8, deadline=None)
def test_smooth_symmetric_error_without_a_cause(seed: int, name: str, size: float) -> None:
    found, rng = case(name), np.random.default_rng(seed)
    d = found.problem.d
    wave, phase = rng.normal(size=(d, d, d)) + 2, rng.uniform(0, 6, (d, d))
    error = np.sin(np.einsum("ijk,pk->pij", 2 * wave, found.at.x) + phase)
    values = found.at.truth("hess_phi") + size * (error + error.swapaxes(1, 2))
    assert found.diagnosis(values, sequence(found)).cause == "unexplained"


@pytest.mark.slow
def test_terms_that_vanish_are_not_said_to_be_missing() -> None:
    """f_xy = 0 here, so that what is without cross terms and without curvature is without curvature."""
    found = Case(random_problem(4), sampled(random_problem(4)))
    assert not hessian_terms(found.at.at)["cross"].any()
    diagnosis = found.diagnosis(without("cross", "cross_transposed", *CURVATURE)(found))
    assert diagnosis.what == "d2y_dx2 f_y, the term with the third derivatives of g, is missing"
    assert not any("f_yx" in what for what in diagnosis.also)
    diagnosis = found.diagnosis(without("cross", "cross_transposed", "quadratic", *CURVATURE)(found))
    assert diagnosis.what == "it is f_xx alone: d2y_dx2 f_y, dy_dx f_yy dy_dx^T are missing"


@pytest.mark.slow
def test_curvature_that_vanishes_hides_its_defects() -> None:
    x, y = X2, Y2
    problem = BilevelProblem(
        x[0] * y[1] + x[1] ** 2 * y[0] + y[0] ** 2,
        y[0] ** 2 + y[1] ** 2 + y[0] * y[1] / 2 - x[0] * y[0] - 3 * x[1] * y[1],
        x,
        y,
    )
    found = Case(problem, sampled(problem))
    assert not hessian_terms(found.at.at)["curvature"].any()
    right = found.at.truth("hess_phi")
    for defect in (without(*CURVATURE), by_weights(g_yyy=-3.0), with_v(lambda b: b["fy"])):
        np.testing.assert_allclose(defect(found), right, rtol=1e-12, atol=1e-12)
        assert list(hessian_suspects(found.at, defect(found))) == []
    assert found.diagnosis(without("quadratic")(found)).cause == "quadratic"
    assert found.diagnosis(by_weights(cross=2, cross_transposed=0)(found)).cause == "symmetry"


@pytest.mark.slow
def test_minimax_has_no_third_derivatives_and_equal_terms() -> None:
    """There f_y = 0, and dy_dx f_yx is minus the quadratic term: what cannot be told apart is named as well."""
    problem = random_problem(5)
    found = Case(problem, sampled(problem))
    truth = found.at.truth("hess_phi")
    assert (np.abs(hessian_terms(found.at.at)["curvature"]) < 1e-12).all()
    diagnosis = found.diagnosis(truth - found.at.at.cross())
    assert diagnosis.cause in ("cross", "quadratic")
    assert diagnosis.also
    assert found.diagnosis(-truth).cause == "sign"


def test_a_symmetric_half_is_not_called_asymmetric() -> None:
    """For d = 1 one cross term is half of both."""
    diagnosis = case("d=1,n=2").diagnosis(without("cross")(case("d=1,n=2")))
    assert diagnosis.cause == "cross"


@pytest.mark.slow
@pytest.mark.parametrize("points", [1, 3])
def test_few_points(points: int) -> None:
    found = case("d=n=2")
    few = Case(found.problem, found.at[:points])
    assert few.diagnosis(without(*CURVATURE)(few)).cause == "third derivative"
    assert few.diagnosis(without("quadratic")(few), sequence(few)).cause == "quadratic"


def test_error_at_some_points_only() -> None:
    found = case("d=n=2")
    values = found.each(hessian)
    values[::2] = without("direct")(found)[::2]
    assert found.diagnosis(values, sequence(found)).cause == "direct"


@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize(
    "name", ["scalar", "saddle", "implicit_cubic", *map(slow, ["ridge", "tube", "tube_coupled", "logistic"])]
)
def test_zoo(name: str) -> None:
    problem = zoo.get(name).problem
    found = Case(problem, sampled(problem))
    truth = found.at.truth("hess_phi")
    assert found.diagnosis(-truth, sequence(found)).cause == "sign"
    assert found.diagnosis(0.9 * truth, sequence(found)).cause == "factor"
