"""Certified constants: the brackets hold the truth, by sampling, by optimisation and by the zoo's exact numbers."""

from __future__ import annotations

import itertools
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
from scipy.optimize import minimize
from scipy.special import expit

from bilevel_sym import BilevelProblem, Box, Constants, MinimaxProblem, StochasticProblem, zoo
from bilevel_sym.errors import (
    AssumptionViolated,
    BilevelError,
    CertificateFailure,
    InvalidArgument,
    InvalidProblem,
    TooLarge,
)
from bilevel_sym.typing import Floats
from verify.certificates.proof import recheck
from verify.enclosures.block_norm import BlockNorm, Curvature, ExactBox
from verify.regularity.certified import BLOCKS, CertifiedConstants, Reading, constants, instances

NAMES = ("mu", "ell", "rho", "nu", "M")
EXACT = [name for name in zoo.names() if zoo.get(name).constants is not None]
CURVED = BilevelProblem(
    "sin(x1)*y1 + cos(x2*y2) + x1*x2", "y1**2 + y2**2 + exp(y1/3)*sin(x1) + y1*y2*cos(x2)/4",
    ("x1", "x2"), ("y1", "y2"), box={"x1": (-1, 1), "x2": (-1, "1/3"), "y1": (-1, 1), "y2": (0, 1)},
)  # fmt: skip


def random_problem(seed: int, d: int, n: int) -> BilevelProblem:
    """sin, cos, exp and polynomials, with curvature enough to be convex in y over the box."""
    rng = np.random.default_rng([seed, d, n])
    x, y = sp.symbols(f"x1:{d + 1}"), sp.symbols(f"y1:{n + 1}")

    def inner() -> sp.Expr:
        return sum((sp.Rational(int(rng.integers(-3, 4)), 3) * s for s in (*x, *y)), sp.Integer(0))

    def wave() -> sp.Expr:
        kind = rng.integers(4)
        z = inner()
        return [sp.sin(z), sp.cos(z), sp.exp(z / 3), z**3 / 9][kind] * sp.Rational(int(rng.integers(1, 5)), 4)

    g = 4 * sum(s**2 for s in y) + wave() + wave()
    f = wave() + wave() + x[0] * y[-1]
    box = {s.name: (sp.Rational(-1, 2), sp.Rational(int(rng.integers(1, 4)), 3)) for s in (*x, *y)}
    return BilevelProblem(f, g, x, y, box=box)


def values(problem: BilevelProblem, block: str) -> Callable[[Floats], Floats]:
    """A block at points, by SymPy: (points, ...)."""
    groups = {"x": problem.x, "y": problem.y, "z": (*problem.x, *problem.y)}
    axes = [groups[axis] for axis in block[2:]]
    formula = {"f": problem.f, "g": problem.g}[block[0]]
    entries = [sp.diff(formula, *chosen) for chosen in itertools.product(*axes)]
    functions = {"sigmoid": expit, "softplus": lambda t: np.logaddexp(0, t)}
    function = sp.lambdify([*problem.x, *problem.y], entries, [functions, "numpy"])

    def at(points: Floats) -> Floats:
        found = [np.broadcast_to(value, len(points)) for value in function(*points.T)]
        return np.stack(found, axis=-1).astype(float).reshape(len(points), *map(len, axes))

    return at


def norms(tensors: Floats) -> Floats:
    """The largest value over unit vectors, found by alternating from several starts, for each point."""
    if tensors.ndim == 3:
        return np.asarray(np.linalg.svd(tensors, compute_uv=False)[:, 0])
    best, rng = np.zeros(len(tensors)), np.random.default_rng(3)
    letters = "abcd"[: tensors.ndim - 1]
    for _ in range(3):
        vectors = {a: rng.standard_normal((len(tensors), s)) for a, s in zip(letters, tensors.shape[1:], strict=True)}
        lengths = best
        for a in letters * (1 if tensors.ndim == 2 else 12):
            others = [b for b in letters if b != a]
            spec = ",".join([f"z{letters}", *(f"z{b}" for b in others)])
            image = np.einsum(f"{spec}->z{a}", tensors, *(vectors[b] for b in others))
            lengths = np.linalg.norm(image, axis=1)
            vectors[a] = image / np.where(lengths > 0, lengths, 1)[:, None]
        best = np.maximum(best, lengths)
    return best


def points_of(problem: BilevelProblem, count: int = 120) -> tuple[Floats, Floats, Floats]:
    box = problem.box
    assert box is not None
    lower, upper = (np.array([float(v) for v in ends]) for ends in (box.lower, box.upper))
    corners = np.array(list(itertools.product((0.0, 1.0), repeat=len(box))))[:64]
    shares = np.vstack([np.random.default_rng(1).random((count, len(box))), corners])
    return np.asarray(lower + shares * (upper - lower)), lower, upper


def reached(problem: BilevelProblem, reading: Reading, *, polish: bool) -> dict[str, float]:
    """The extreme values that sampling, and a local optimiser from the best sample, come to."""
    points, lower, upper = points_of(problem)
    best = {}
    for name, blocks in BLOCKS[reading].items():
        top = -math.inf
        for block in blocks:
            at = values(problem, block)

            def score(p: Floats, at: Callable[[Floats], Floats] = at, name: str = name) -> Floats:
                return np.asarray(-np.linalg.eigvalsh(at(p))[:, 0]) if name == "mu" else norms(at(p))

            found = score(points)
            top = max(top, float(found.max()))
            if polish:
                start = points[found.argmax()]
                result = minimize(lambda p, s=score: -float(s(p[None])[0]), start,
                                  bounds=list(zip(lower, upper, strict=True)), method="L-BFGS-B", options={"maxfun": 60})  # fmt: skip
                top = max(top, -float(result.fun))
        best[name] = -top if name == "mu" else top
    return best


def holds(certified: CertifiedConstants, best: dict[str, float]) -> None:
    """Nothing that was reached lies beyond the proved ends, and the attained ends are near to what was reached."""
    for name, value in best.items():
        bracket = certified.brackets[name]
        if name == "mu":
            assert bracket.lower <= value * (1 + 1e-9)
            assert bracket.upper <= value * (1 + 1e-3)
        else:
            assert value <= bracket.upper * (1 + 1e-9) + 1e-12, name
            assert bracket.lower >= value * (1 - 1e-2) - 1e-9, name


@pytest.fixture(scope="module")
def curved() -> CertifiedConstants:
    return constants(CURVED, effort=0.3)


# --- truth ---------------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.parametrize("name", EXACT)
def test_the_zoos_exact_constants_lie_in_the_brackets(name: str) -> None:
    example = zoo.get(name)
    certified = constants(example.problem)
    assert example.constants is not None
    for field in NAMES:
        truth = sp.nsimplify(getattr(example.constants, field))
        bracket = certified.brackets[field]
        below, above = sp.Rational(bracket.lower), sp.Rational(bracket.upper)
        assert (below - truth).evalf(40) <= 0, field
        assert (above - truth).evalf(40) >= 0, field
        assert bracket.upper <= 1.0101 * bracket.lower + 1e-140


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("reading", ["block", "joint"])
@pytest.mark.parametrize(("d", "n"), [(1, 1), (2, 1), (1, 2)])
def test_brackets_hold_what_sampling_and_optimisation_reach(d: int, n: int, reading: Reading) -> None:
    problem = random_problem(0, d, n)
    certified = constants(problem, reading=reading, effort=0.4)
    holds(certified, reached(problem, reading, polish=reading == "block"))
    assert certified.rtol_reached < 0.05


@pytest.mark.slow
@pytest.mark.in_ci(seed=(1, 2), d=(1, 2), every=2)
@pytest.mark.parametrize("seed", range(1, 5))
@pytest.mark.parametrize(("d", "n"), [(1, 1), (2, 1), (1, 2), (2, 2), (3, 1)])
def test_brackets_hold_on_many_random_problems(seed: int, d: int, n: int) -> None:
    problem = random_problem(seed, d, n)
    reading: Reading = "block" if seed % 2 else "joint"
    holds(constants(problem, reading=reading, effort=0.07), reached(problem, reading, polish=seed < 3))


@pytest.mark.slow
def test_lower_ends_are_attained_at_their_points(curved: CertifiedConstants) -> None:
    certified = curved
    assert CURVED.box is not None
    for name, point in certified.points.items():
        place = np.array([list(point.values())])
        assert all(low <= sp.Rational(point[key]) <= high for key, (low, high) in CURVED.box.items())
        blocks = [values(CURVED, block)(place) for block in BLOCKS["block"][name]]
        if name == "mu":
            assert np.linalg.eigvalsh(blocks[0]).min() == pytest.approx(certified.brackets["mu"].upper, rel=1e-9)
        else:
            assert max(norms(block).max() for block in blocks) == pytest.approx(
                certified.brackets[name].lower, rel=1e-4
            )


@pytest.mark.slow
def test_the_joint_reading_bounds_more() -> None:
    for problem in (random_problem(3, 1, 1), zoo.get("scalar").problem, zoo.get("quadratic").problem):
        block, joint = (constants(problem, reading=reading, effort=0.1) for reading in ("block", "joint"))
        for name in ("ell", "rho", "nu", "M"):
            assert joint.brackets[name].upper >= block.brackets[name].lower
        assert joint.valid.reading == "joint"
        assert joint.brackets["mu"].upper >= block.brackets["mu"].lower


def test_joint_constants_by_hand() -> None:
    """f = 3x + 4y, g = y^2 + x y^2/2 on [0, 1]^2: D^2 g = [[0, y], [y, 2 + x]]."""
    problem = BilevelProblem("3*x + 4*y", "y**2 + x*y**2/2", "x", "y", box={"x": (0, 1), "y": (0, 1)})
    block, joint = (constants(problem, reading=reading, rtol=1e-4).brackets for reading in ("block", "joint"))
    assert (4.0 in block["M"], 5.0 in joint["M"]) == (True, True)
    assert 3.0 in block["ell"]
    assert (3 + math.sqrt(13)) / 2 in joint["ell"]  # at the corner x = y = 1
    assert 1.0 in block["rho"]
    # on (z, z', y) the only entries are g_xyy, twice: T[u, v, 1] = u_x v_y + u_y v_x
    assert joint["rho"].lower <= 1 + 1e-12
    assert joint["rho"].upper >= 1 - 1e-12
    assert (joint["nu"].upper, block["nu"].upper) == (0.0, 0.0)


@pytest.mark.slow
def test_with_more_effort_the_bracket_does_not_grow() -> None:
    problem = zoo.get("logistic").problem
    short, long = (constants(problem, reading="joint", effort=e, rtol=1e-3).brackets for e in (0.0, 0.1))
    for name in short:
        assert long[name].upper <= short[name].upper * (1 + 1e-12)
        assert long[name].lower >= short[name].lower


def test_readings_and_ends(curved: CertifiedConstants) -> None:
    certified = curved
    lower, upper, valid = certified.lower, certified.upper, certified.valid
    assert isinstance(valid, Constants)
    assert valid.mu == lower.mu <= upper.mu
    assert all(getattr(valid, k) == getattr(upper, k) >= getattr(lower, k) for k in ("ell", "rho", "nu", "M"))
    assert set(certified.brackets) == {*NAMES, "g_y"} == set(certified.points)
    assert certified.seconds > 0
    assert "g_y" in str(certified)
    assert "reading='block'" in repr(certified)


def test_quadratics_are_exact() -> None:
    problem = BilevelProblem("x*y1 + 3*y2", "y1**2 + y2**2 + x*y1", "x", ("y1", "y2"), box={"x": (-1, 1), "y1": (-1, 1), "y2": (-1, 1)})  # fmt: skip
    certified = constants(problem)
    assert (certified.brackets["rho"].upper, certified.brackets["nu"].upper) == (0.0, 0.0)
    assert certified.brackets["mu"].lower == pytest.approx(2, abs=1e-12)
    assert certified.valid.kappa == pytest.approx(1, abs=1e-12)  # isotropic


def test_every_row_of_a_stochastic_problem_counts() -> None:
    problem = StochasticProblem(
        "x*y + a*x", "(1 + b)*y**2/2 - x*y", "x", "y", "a", "b", [[-5], [0], [5]], [[0], ["1/2"], [2]],
        box={"x": (-1, 1), "y": (-1, 1)},
    )  # fmt: skip
    assert len(instances(problem)) == 3
    rows = constants(problem).brackets
    mean = constants(problem.mean).brackets
    assert (6.0 in rows["M"], 1.0 in rows["mu"], 3.0 in rows["ell"]) == (True, True, True)
    assert rows["mu"].upper < mean["mu"].lower
    assert mean["M"].upper < rows["M"].lower


def test_minimax_problems_are_read_as_bilevel_ones() -> None:
    problem = MinimaxProblem("x*y - y**2", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    brackets = constants(problem).brackets
    assert 2.0 in brackets["mu"]
    assert 3.0 in brackets["M"]  # f_y = x - 2y


def test_a_box_of_one_point_that_no_float_is() -> None:
    problem = BilevelProblem("x*y", "y**2 + sin(x)*y", "x", "y")
    certified = constants(problem, Box({"x": ("1/3", "1/3"), "y": ("1/7", "1/7")}))
    truth = sp.sin(sp.Rational(1, 3)).evalf(40)
    bracket = certified.brackets["rho"]
    assert sp.Rational(bracket.lower) <= truth <= sp.Rational(bracket.upper)
    assert bracket.upper - bracket.lower < 1e-12


def test_a_box_in_x_alone_gets_the_range_of_the_solution() -> None:
    """g_y = y + y^3/3 - x, so that x = 4/3 at y = 1."""
    problem = BilevelProblem("x*y", "y**2/2 + y**4/12 - x*y", "x", "y")
    certified = constants(problem, Box({"x": (0, "4/3")}))
    assert certified.box is not None
    low, high = certified.box["y"]
    assert -0.1 < low <= 0
    assert 1 <= high < 1.1
    assert 1.0 in certified.brackets["mu"]
    assert 2.0 <= certified.brackets["ell"].upper < 2.3


@pytest.mark.slow
def test_a_solution_that_is_not_enclosed_is_refused() -> None:
    problem = BilevelProblem("x*y", "y**4 - x*y", "x", "y")
    with pytest.raises(CertificateFailure, match="not enclosed"):
        constants(problem, Box({"x": (-1, 1)}))


def test_constants_do_not_depend_on_what_was_asked_before() -> None:
    first = constants(zoo.get("scalar").problem).brackets
    again = constants(zoo.get("scalar").problem, reading="joint").brackets
    assert constants(zoo.get("scalar").problem).brackets == first != again


# --- objectives ----------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("block", ["f_x", "f_zz", "g_xy", "g_yy", "g_xyy", "g_yyy", "g_zzy", "g_xxyy", "g_zzzy"])
@pytest.mark.parametrize("proved", [False, True])
def test_bounds_over_boxes_hold_the_values_in_them(block: str, proved: bool) -> None:
    assert CURVED.box is not None
    region = ExactBox(CURVED.box)
    objective = BlockNorm(CURVED.tape, block, region)
    rng = np.random.default_rng(2)
    ends = np.sort(rng.uniform(region.lower, region.upper, (2, 40, 4)), axis=0)
    ends[1, :20] = ends[0, :20] + 0.05 * (ends[1, :20] - ends[0, :20])
    bound = objective.over(ends[0], ends[1], proved=proved)
    at = values(CURVED, block)
    for _ in range(10):
        inside = ends[0] + rng.choice([0.0, 1.0, 0.5, 0.2], ends[0].shape) * (ends[1] - ends[0])
        truth = norms(at(inside))
        assert np.all(truth <= bound * (1 + 1e-12))
        assert np.all(objective.at(inside) <= bound * (1 + 1e-12))
    assert np.all(bound[:20] <= norms(at(0.5 * (ends[0] + ends[1])))[:20] * 1.5 + 0.2)
    point = np.clip(inside[0], *region.inside)
    assert objective.certified_at(point) <= truth[0] * (1 + 1e-3) + 1e-15


def test_curvature_holds_eigenvalues() -> None:
    assert CURVED.box is not None
    region = ExactBox(CURVED.box)
    objective = Curvature(CURVED.tape, "g_yy", region)
    rng = np.random.default_rng(2)
    ends = np.sort(rng.uniform(region.lower, region.upper, (2, 40, 4)), axis=0)
    bound = objective.over(*ends)
    for _ in range(10):
        inside = ends[0] + rng.random(ends[0].shape) * (ends[1] - ends[0])
        least = np.linalg.eigvalsh(values(CURVED, "g_yy")(inside))[:, 0]
        assert np.all(-least <= bound + 1e-12)
        assert np.all(np.abs(objective.at(inside) + least) < 1e-12)


@pytest.mark.slow
def test_a_jump_is_not_bridged_by_its_slopes() -> None:
    """f_x = 2 sign(x) - 1 has slope zero on both sides of its jump from -3 to 1, which is not in the middle."""
    problem = BilevelProblem("2*abs(x) - x + y", "y**2 - x*y", "x", "y", box={"x": (-1, 2), "y": (1, 2)})
    with pytest.raises(CertificateFailure, match="f_xx has no bound"):
        constants(problem, effort=0.1)
    aside = constants(problem, Box({"x": (-1, "-1/10"), "y": (1, 2)}))
    assert 3.0 in aside.brackets["M"]


# --- refusals ------------------------------------------------------------------------------------------


def test_a_lower_level_that_is_not_convex_is_refused_with_a_point() -> None:
    problem = BilevelProblem("x*y", "y**4/12 - x*y**2/2", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    with pytest.raises(AssumptionViolated) as caught:
        constants(problem)
    assert caught.value.label == "assu:bilevel"
    point = {name: float(str(value)) for name, value in caught.value.point.items()}
    assert point["y"] ** 2 - point["x"] <= float(str(caught.value.value)) + 1e-12 <= 1e-12


def test_an_eigenvalue_of_exactly_zero_is_refused() -> None:
    problem = BilevelProblem("x*y", "y**4 - x*y", "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    with pytest.raises(AssumptionViolated):
        constants(problem)


def test_convexity_that_is_not_proved_is_a_failure() -> None:
    # g_yy = (y - 1/3)^2 + 1e-20, multiplied out: no sample is negative, and no bound in reach is positive
    g = "y**4/12 - y**3/9 + y**2/18 + y**2/200000000000000000000 - x*y"
    problem = BilevelProblem("x*y", g, "x", "y", box={"x": (-1, 1), "y": (0, 1)})
    with pytest.raises(BilevelError) as caught:
        constants(problem, effort=0.02)
    assert isinstance(caught.value, CertificateFailure)
    assert "more effort" in str(caught.value)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("f", "g", "block"),
    [
        ("log(x)*y", "y**2 - x*y", "f_x"),
        ("y/x", "y**2 - x*y", "f_"),
        ("x*y", "y**2 + max(x, y)*y", "g_y"),
        ("x*y", "y**2 + sqrt(x)*y", "g_"),
    ],
)
def test_places_without_derivatives_are_named(f: str, g: str, block: str) -> None:
    problem = BilevelProblem(f, g, "x", "y", box={"x": (-1, 1), "y": (-1, 1)})
    with pytest.raises(CertificateFailure, match=f"{block}.* has no bound that can be proved where x in") as caught:
        constants(problem, effort=0.3)
    assert "y in [" in str(caught.value)


def test_boxes_that_are_no_boxes_are_refused() -> None:
    problem = BilevelProblem("x*y", "y**2 - x*y", "x", "y")
    with pytest.raises(InvalidProblem, match="no box"):
        constants(problem)
    for ends in ((1, 0), (0, math.inf), (math.nan, 1)):
        with pytest.raises(InvalidProblem):
            constants(problem, Box({"x": ends, "y": (0, 1)}))
    with pytest.raises(InvalidProblem, match="does not have"):
        constants(problem, Box({"x": (0, 1), "z": (0, 1)}))


@pytest.mark.parametrize(
    "wrong", [{"reading": "both"}, {"seconds": -1}, {"rtol": math.nan}, {"seconds": "soon"}, {"effort": "much"}]
)
def test_arguments_that_are_none_are_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(wrong))):
        constants(CURVED, **wrong)


def test_blocks_too_large_to_bound_are_refused_at_once() -> None:
    x, y = sp.symbols("x1:3"), sp.symbols("y1:26")
    g = sum(s**2 for s in y) + sp.sin(sum(y)) / 100
    box = {s.name: (0, 1) for s in (*x, *y)}
    with pytest.raises(TooLarge, match=r"g_yyyy has 20,475 entries[^\n]*\ntry: n = 15 with this d would fit"):
        constants(BilevelProblem(x[0] * y[0] + x[1], g, x, y, box=box))


def test_symbolic_parameters_are_refused() -> None:
    problem = BilevelProblem("a*x*y", "y**2 - x*y", "x", "y", parameters={"a": None}, box={"x": (0, 1), "y": (0, 1)})
    with pytest.raises(BilevelError):
        constants(problem)
    with pytest.raises(InvalidArgument):
        constants("x*y")  # type: ignore[arg-type]


@pytest.mark.slow
def test_an_interrupt_leaves_a_true_bracket(monkeypatch: pytest.MonkeyPatch) -> None:
    calls = itertools.count()
    plain = BlockNorm.over

    def interrupted(self: BlockNorm, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
        if not proved and len(lower) > 2 and next(calls) == 1:
            raise KeyboardInterrupt
        return plain(self, lower, upper, proved=proved)

    monkeypatch.setattr(BlockNorm, "over", interrupted)
    certified = constants(CURVED, effort=6, rtol=1e-6)
    monkeypatch.undo()
    holds_upper = reached(CURVED, "block", polish=False)
    assert all(holds_upper[k] <= certified.brackets[k].upper * (1 + 1e-9) for k in ("ell", "rho", "nu", "M"))


# --- files ---------------------------------------------------------------------------------------------


BENT = BilevelProblem(
    "sin(x)*y + cos(x*y)", "y**2 + exp(y/3)*sin(x)", "x", "y", box={"x": (-1, "1/3"), "y": ("1/8", 1)}
)


@pytest.fixture(scope="module")
def bent() -> CertifiedConstants:
    return constants(BENT)


@pytest.fixture(scope="module")
def saved(tmp_path_factory: pytest.TempPathFactory, bent: CertifiedConstants) -> Path:
    path = tmp_path_factory.mktemp("constants") / "bent.json"
    bent.save(path)
    return path


def changed(path: Path, to: Path, change: Callable[[dict[str, Any]], object]) -> Path:
    """The file with a change."""
    content = json.loads(path.read_text())
    change(content)
    to.write_text(json.dumps(content))
    return to


@pytest.mark.slow
def test_a_file_is_proved_again(saved: Path, bent: CertifiedConstants) -> None:
    again = recheck(saved, BENT)
    for name, bracket in bent.brackets.items():
        proved = again.brackets[name]
        assert proved.lower <= bracket.lower * (1 + 1e-9)
        assert bracket.upper <= proved.upper * (1 + 1e-6) <= 1.001 * bracket.upper
    assert again.kind == "constants"
    assert again.sentences[0] == "over x in [-1, 1/3], y in [1/8, 1]:"


@pytest.mark.slow
def test_every_zoo_kind_survives_a_file(tmp_path: Path) -> None:
    for name in ("minimax_nash", "stochastic_noise", "lphi_witness", "ridge"):
        certified = constants(zoo.get(name).problem, effort=0.2)
        certified.save(tmp_path / "x.json")
        again = recheck(tmp_path / "x.json", zoo.get(name).problem)
        for constant, bracket in certified.brackets.items():
            assert again.brackets[constant].upper == pytest.approx(bracket.upper, rel=3e-4)


def of(content: dict[str, Any], name: str) -> dict[str, Any]:
    found: dict[str, Any] = content["claims"][name]
    return found


def scaled(content: dict[str, Any], name: str, end: str, factor: float) -> None:
    of(content, name)[end] = repr(factor * float(of(content, name)[end]))


LIES: dict[str, Callable[[dict[str, Any]], object]] = {
    "upper": lambda c: scaled(c, "rho", "upper", 0.98),
    "upper of a constant": lambda c: of(c, "M").update(upper="0.001", lower="0"),
    "lower": lambda c: of(c, "rho").update(lower=repr(1.5 * float(of(c, "rho")["upper"])), upper="100"),
    "mu": lambda c: of(c, "mu").update(lower="10", upper="11"),
    "missing leaf": lambda c: of(c, "mu").update(covers={"g_yy 0": "1 ."}),
    "another variable": lambda c: of(c, "mu").update(covers={"g_yy 0": "9 . ."}),
    "cuts that are not": lambda c: of(c, "mu").update(covers={"g_yy 0": "0 . -1"}),
    "a point outside": lambda c: of(c, "rho").update(point={"x": "1.5", "y": "0.5"}, lower="1e-9"),
    "a point of another length": lambda c: of(c, "rho").update(point={"x": "0"}),
    "a point that is nan": lambda c: of(c, "rho").update(point=dict.fromkeys(("x", "y"), math.nan)),
    "a missing number": lambda c: c["claims"].pop("nu"),
    "another problem": lambda c: c.update(problem=c["problem"].replace("y*sin(x)", "3*y*sin(x)")),
    "hostile text": lambda c: c.update(problem=c["problem"].replace("sin(x)", "__import__('os')")),
    "a larger box": lambda c: c["box"].update(x=["-2", "2"]),
    "a box without y": lambda c: c["box"].pop("y"),
    "infinity": lambda c: of(c, "M").update(upper=math.inf),
    "another reading": lambda c: c.update(kind="joint"),
    "no kind": lambda c: c.update(kind="none"),
    "no claims": lambda c: c.pop("claims"),
    "claims that are not": lambda c: c.update(claims=[1, 2]),
    "another format": lambda c: c.update(format="2"),
}


@pytest.mark.slow
@pytest.mark.parametrize("lie", LIES)
def test_files_with_false_claims_are_refused(saved: Path, tmp_path: Path, lie: str) -> None:
    with pytest.raises(CertificateFailure):
        recheck(changed(saved, tmp_path / "lie.json", LIES[lie]))


def test_what_is_weaker_and_true_is_proved(saved: Path, tmp_path: Path) -> None:
    assert recheck(changed(saved, tmp_path / "b.json", lambda c: scaled(c, "nu", "upper", 2))).brackets["mu"].lower > 0


@pytest.mark.parametrize("text", ["", "[", "[]", "{}", "null", '{"format": 1}', "[" * 100_000])
def test_what_is_no_file_is_refused(tmp_path: Path, text: str) -> None:
    path = tmp_path / "bad.json"
    path.write_text(text)
    with pytest.raises(CertificateFailure):
        recheck(path)
    with pytest.raises(CertificateFailure, match="no file of at most 16 MB"):
        recheck(tmp_path / "none.json")


# --- the zoo ------------------------------------------------------------------------------------


@pytest.mark.slow
@pytest.mark.in_ci(name=("robust_regression", "ridge", "stochastic_rows"))
@pytest.mark.parametrize("name", ["hyper_cleaning", "robust_regression", "logistic", "ridge", "stochastic_rows"])
def test_learning_problems_have_finite_brackets(name: str) -> None:
    problem = zoo.get(name).problem
    certified = constants(problem, effort=0.4)
    exact = problem.mean if isinstance(problem, StochasticProblem) else problem
    points, _, _ = points_of(exact, 40)
    for constant, block in (("M", "f_y"), ("ell", "g_yy"), ("rho", "g_yyy")):
        at = norms(values(exact, block)(points[:60]))
        assert at.max() <= certified.brackets[constant].upper * (1 + 1e-9)
    assert math.isfinite(certified.rtol_reached)
