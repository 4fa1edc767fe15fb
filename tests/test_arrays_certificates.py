"""Certificates of array problems hold the truth: operations against fractions, blocks and answers against 60 digits."""

from __future__ import annotations

from fractions import Fraction
from typing import Any
from unittest.mock import patch

import numpy as np
import pytest
from array_oracle import BALLS, BITS, NoNumber, values
from array_strategies import LANGUAGES
from enclosure_cases import FAMILIES, SCALES, Rng, enclosure, floats, fractions, holds
from flint import arb, fmpq
from helpers import THOROUGH
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from test_arrays_kernels_truth import NAMES, drawn_blocks

from bilevel_sym import BilevelProblem, evaluate
from bilevel_sym.arithmetic.balls import OPERATIONS
from bilevel_sym.arithmetic.enclosed import midrad
from bilevel_sym.arithmetic.enclosed.arithmetics import BallArrays, FloatArrays
from bilevel_sym.arithmetic.enclosed.entries import applied, arranged, balls_of
from bilevel_sym.arithmetic.enclosed.inverse import Inverse, proved_inverse
from bilevel_sym.arithmetic.enclosed.midrad import MidRad, exact, product
from bilevel_sym.arithmetic.enclosed.slices import Slices
from bilevel_sym.certify import certificate as certificates
from bilevel_sym.certify.array_blocks import EnclosedBlocks, Exactly
from bilevel_sym.errors import AssumptionViolated, CertificateFailure, InvalidArgument, TooLarge
from bilevel_sym.graph.precision import precision

SEEDS = st.integers(0, 2**32 - 1)
DIGITS = 60  # of the other route


def by_arrays(problem: BilevelProblem, x: Any, **more: Any) -> certificates.PointCertificate:
    """A certificate that does not go through scalars, however small the problem is."""
    with patch.object(certificates, "is_large", lambda problem: problem.is_array):
        return evaluate(problem, x, **more)


def balls_in(certificate: certificates.PointCertificate) -> list[Any]:
    rows = [entry for row in certificate.hess_phi for entry in row]
    return [ball.value for ball in (*certificate.y_star, certificate.phi, *certificate.grad_phi, *rows)]


# ---- operations against fractions -----------------------------------------------------------------------------------


def check_operations(rng: Rng) -> None:
    """Every operation on random enclosures, with a point of each."""
    rows, inner, columns = (int(k) for k in rng.integers(1, 5, size=3))
    scale = str(rng.choice(SCALES))
    with np.errstate(all="ignore"):
        (a, p), (b, q) = enclosure(rng, (rows, inner), scale), enclosure(rng, (rows, inner), scale)
        if rng.integers(2):  # what nearly cancels
            b, q = MidRad(-a.mid * (1 + 2.0**-52), b.rad), fractions(-a.mid * (1 + 2.0**-52)) + (q - fractions(b.mid))
        assert holds(a + b, p + q)
        assert holds(a - b, p - q)
        assert holds(a * b, p * q)
        assert holds(a.total((1,)), p.sum(axis=1))
        assert holds(a.total((0, 1)), p.sum())
        c, r = enclosure(rng, (inner, columns), scale)
        assert holds(product(a, c), p.dot(r))
        number = Fraction(int(rng.integers(-99, 99)), int(rng.integers(1, 99))) * Fraction(2) ** int(
            rng.integers(-9, 9)
        )
        assert holds(midrad.rational(number) * a, number * p)


@pytest.mark.slow
@settings(max_examples=150)
@given(seed=SEEDS)
def test_operations_hold_what_fractions_say(seed: int) -> None:
    check_operations(np.random.default_rng(seed))


def check_slices(rng: Rng) -> None:
    """A product with slices, at a precision from less to far more than that of float64."""
    rows, inner, columns = (int(k) for k in rng.integers(1, 7, size=3))
    matrix = floats(rng, (rows, inner), str(rng.choice(SCALES)))
    with precision(int(rng.choice([40, 53, 100, 300]))):
        balls, truth = np.empty((inner, columns), object), np.empty((inner, columns), object)
        for place in np.ndindex(inner, columns):
            value = Fraction(int(rng.integers(-999, 999)), int(rng.integers(1, 999))) * Fraction(2) ** int(
                rng.integers(-200, 200)
            )
            rad = Fraction(2) ** int(rng.integers(-400, 0)) if rng.integers(2) else Fraction(0)
            balls[place] = arb(fmpq(value.numerator, value.denominator)) + arb(0, 1) * arb(
                fmpq(rad.numerator, rad.denominator)
            )
            truth[place] = value + int(rng.integers(-1, 2)) * rad
        found = Slices(matrix).times(balls)
    whole = fractions(matrix).dot(truth)
    for place, value in np.ndenumerate(whole):
        ball = found[place]
        assert not ball.is_finite() or _fraction(ball.lower()) <= value <= _fraction(ball.upper())


def _fraction(value: Any) -> Fraction:
    man, exp = value.man_exp()
    return Fraction(int(man)) * Fraction(2) ** int(exp)


@pytest.mark.slow
@settings(max_examples=100)
@given(seed=SEEDS)
def test_products_by_slices_hold_what_fractions_say(seed: int) -> None:
    check_slices(np.random.default_rng(seed))


def check_systems(rng: Rng) -> None:
    """The solution of a system, for a matrix somewhere in the enclosure and a right side in its balls."""
    n = int(rng.integers(1, 6))
    half, sizes = rng.normal(size=(n, n)), np.ldexp(1.0, rng.integers(-40, 40, size=n))
    middle = sizes * (half @ half.T + np.eye(n)) * sizes[:, None]
    rad = 2.0 ** -float(rng.integers(6, 50)) * np.abs(rng.normal(size=(n, n)) * sizes * sizes[:, None])
    found = proved_inverse(MidRad(middle, rad))
    if not isinstance(found, Inverse):
        return
    side = rng.integers(-1, 2, size=(n, n))
    matrix = fractions(middle) + side * fractions(rad)
    answer = fractions(rng.normal(size=n))
    scale = Fraction(2) ** int(rng.integers(-2000, 100))
    with precision(150):
        right = [arb(fmpq(v.numerator, v.denominator)) for v in (matrix.dot(answer) * scale).tolist()]
        correction = found.correction(arranged(right))
        for ball, value in zip(correction.balls.tolist(), (answer * scale).tolist(), strict=True):
            assert ball.contains(arb(fmpq(value.numerator, value.denominator)))
        assert all(abs(b) <= reach for b, reach in zip(correction.balls, correction.reach, strict=True))


@settings(max_examples=100)
@given(seed=SEEDS)
def test_systems_hold_their_solution(seed: int) -> None:
    check_systems(np.random.default_rng(seed))


@pytest.mark.parametrize("op", ["exp", "log", "tanh", "softplus", "sigmoid", "bell", "erf", "sin", "cosh", "asinh"])
def test_functions_hold_the_ends_and_the_middle(op: str) -> None:
    rng = np.random.default_rng(1)
    mid = np.concatenate([rng.normal(size=40), 700 * rng.normal(size=40), [1e-300, 5e-324, 0.5, 1e5]])
    mid = np.abs(mid) + 2e-308 if op == "log" else mid
    rad = np.abs(mid) * 2.0 ** -rng.integers(1, 60, size=mid.shape).astype(float)
    found = applied(op, (), [MidRad(mid, rad)])
    assert np.isfinite(found.mid).mean() > 0.5
    for k, (m, r) in enumerate(zip(mid.tolist(), rad.tolist(), strict=True)):
        with precision(300):
            for point in (arb(m), arb(m) - arb(r), arb(m) + arb(r)):
                truth = OPERATIONS[op](point)
                entry = balls_of(found)[k]
                assert not entry.is_finite() or entry.overlaps(truth)


def test_what_leaves_float64_is_refused_and_never_a_number() -> None:
    huge = exact(np.full((2, 2), 1e200))
    with np.errstate(all="ignore"):
        found = [product(huge, huge), huge * huge, applied("exp", (), [huge]), midrad.rational(Fraction(10) ** 400)]
        assert not any(value.is_finite for value in found)
        assert not product(exact(np.zeros((1, 1))), MidRad(np.array([[np.nan]]), np.array([[np.inf]]))).is_finite
        assert not (huge * huge - huge * huge).is_finite
        assert isinstance(proved_inverse(huge * huge), str)
    assert not Slices(np.eye(1)).times(np.array([[arb("nan")]], object))[0, 0].is_finite()


# ---- blocks against 260 bits ------------------------------------------------------------------------------------------


def check_blocks(data: st.DataObject, language: str, seed: int) -> int:
    """All blocks of a random problem over enclosures of a point, in both arithmetics; how many entries were known."""
    blocks, rng = drawn_blocks(data, language, seed), np.random.default_rng(seed)
    both, row = blocks.both, blocks.points[0]
    d, n = both.scalar.d, both.scalar.n
    model = Exactly(both.array, both.sizes, {k: np.vectorize(float, otypes=[float])(v) for k, v in both.data.items()})
    rad = np.abs(row) * 2.0 ** -float(rng.integers(20, 70)) if rng.integers(2) else np.zeros_like(row)
    shifted = row + rad * rng.uniform(-0.5, 0.5, size=row.shape)
    known = 0
    for kind in (FloatArrays(), BallArrays()):
        with np.errstate(all="ignore"), precision(100):
            parts = np.split(np.arange(len(row)), [d, d + n, d + 2 * n])[:3]
            whole = MidRad(shifted, rad) if isinstance(kind, FloatArrays) else balls_of(MidRad(shifted, rad))
            x, y, v = (part_of(whole, places) for places in parts)
            point = EnclosedBlocks(model, kind).at(x, y).with_v(v)
            found = {name: point.block(name) for name in NAMES}
        known += sum(check_block(both, row, name, value) for name, value in found.items())
    return known


def part_of(whole: Any, places: Any) -> Any:
    return whole.moved(lambda array: array[places]) if isinstance(whole, MidRad) else whole[places]


def check_block(both: Any, row: Any, name: str, found: Any) -> int:
    shape, forms = both.scalar.block(name)
    try:
        truth = values(both.graph, forms, {k: arb(float(value)) for k, value in enumerate(row)}, BALLS, BITS)
    except (NoNumber, OverflowError):
        return 0
    assert found.shape == shape
    with precision(BITS):
        balls = balls_of(found) if isinstance(found, MidRad) else found
        entries = [entry if isinstance(entry, arb) else arb(entry) for entry in balls.ravel().tolist()]
        pairs = [(e, t) for e, t in zip(entries, truth, strict=True) if e.is_finite() and t.is_finite()]
        assert all(entry.overlaps(true) for entry, true in pairs), name
    return len(pairs)


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("language", LANGUAGES)
@settings(max_examples=20)
@given(data=st.data(), seed=SEEDS)
def test_blocks_hold_the_exact_values_of_the_scalar_problem(language: str, data: st.DataObject, seed: int) -> None:
    check_blocks(data, language, seed)


def test_log_sum_exp_far_from_zero() -> None:
    for far in (1000.0, -1000.0, 1e4):
        problem = BilevelProblem(
            "logsumexp(B @ y)", "sum((y - x)**2)", "x[2]", "y[2]", data={"B": [[1, 0], [1, 1e-3], [0, 1]]}
        )
        found = by_arrays(problem, [far, far + 1], digits=20)
        with precision(400):
            z = [arb(far), arb(far) + (arb(far) + 1) * arb(1e-3), arb(far) + 1]
            truth = z[1] + sum(((entry - z[1]).exp() for entry in z), arb(0)).log()
            assert found.phi.value.overlaps(truth)


# ---- certificates against scalars at 60 digits ------------------------------------------------------------------------


def check_certificate(rng: Rng, family: str, largest: int = 4) -> None:
    """A certificate of arrays, and the one of the same problem in scalars."""
    m, n = int(rng.integers(1, largest + 3)), int(rng.integers(1, largest + 1))
    problem = FAMILIES[family](rng, m, n)
    x = rng.normal(size=problem.d).tolist()
    digits = int(rng.choice([5, 10, 20, 40]))
    found, truth = by_arrays(problem, x, digits=digits), evaluate(problem.lowered(), x, digits=DIGITS)
    assert found.problem.is_array
    assert found.proved
    assert found.convexity == truth.convexity == "assumed"
    with precision(400):
        for one, two in zip(balls_in(found), balls_in(truth), strict=True):
            assert one.overlaps(two)
            assert one.contains(0) or one.rad() <= one.abs_lower() * arb(10) ** -digits


@pytest.mark.parametrize("family", FAMILIES)
def test_certificates_agree_with_scalars_at_60_digits(family: str) -> None:
    check_certificate(np.random.default_rng(7), family, 3)


# ---- what callers see -------------------------------------------------------------------------------------------------


def ridge(n: int = 12, **more: Any) -> BilevelProblem:
    rng = np.random.default_rng(3)
    data = {"A": rng.normal(size=(2 * n, n)), "b": rng.normal(size=2 * n), "t": rng.normal(size=n)}
    return BilevelProblem(
        "sum((y - t)**2)/2", "sum((A @ y - b)**2)/2 + exp(lam)*(y @ y)", "lam", "y[n]", data=data, **more
    )


@pytest.mark.slow
def test_a_certificate_of_arrays_is_used_like_any_other(tmp_path: Any) -> None:
    problem = ridge(7)
    found = evaluate(problem, ["1/3"], digits=25)
    assert found.problem is problem
    assert found.proved
    assert found.digits == 25
    assert evaluate(problem, {"lam": "1/3"}, digits=25).phi.value.overlaps(found.phi.value)
    lines = str(found).splitlines()
    assert lines[0] == "at lam = 1/3, to every digit shown"
    assert len(lines) == 3 + 7 + 3
    assert lines[3].startswith("y_1* = ")
    assert lines[-1].startswith("d2Phi/dlamdlam = ")
    assert found.compare(grad_phi=problem.kernels.grad_phi([1 / 3])).digits > 12
    assert found.y_star[0].contains(evaluate(problem.lowered(), ["1/3"], digits=40).y_star[0].mid)
    found.save(tmp_path / "ridge.json")
    recheck = pytest.importorskip("verify").recheck
    assert recheck(tmp_path / "ridge.json").kind == "point"
    sparse = pytest.importorskip("scipy.sparse")
    same = BilevelProblem(
        "sum((y - t)**2)/2", "sum((A @ y - b)**2)/2 + exp(lam)*(y @ y)", "lam", "y[n]",
        data={**problem.arrays, "A": sparse.csr_array(problem.arrays["A"])},
    )  # fmt: skip
    assert evaluate(same, ["1/3"], digits=25).phi.value.overlaps(found.phi.value)


def test_small_problems_go_through_scalars_and_large_ones_do_not() -> None:
    small = BilevelProblem("x*sum(y)", "sum((y - b)**2) + x*sum(y)", "x", "y[n]", data={"b": [1, 2]})
    assert not evaluate(small, [1]).problem.is_array
    assert by_arrays(small, [1]).grad_phi[0].contains(1)
    assert str(evaluate(small, [1]).grad_phi[0]) == "1"
    assert evaluate(small, {"x": 1}).problem.d == 1


def test_hess_phi_of_many_variables_is_not_computed_and_says_so() -> None:
    problem = BilevelProblem("sum(y**2)", "sum((y - x)**2) + sum(y**4)", "x[51]", "y[51]")
    found = evaluate(problem, [0.5 + k / 64 for k in range(51)], digits=8)
    with pytest.raises(TooLarge, match="up to d = 50"):
        found.hess_phi[0]
    with pytest.raises(TooLarge):
        found.compare(hess_phi=np.eye(51))
    assert found.hess_rows == ()
    assert "d2Phi" not in str(found)
    assert repr(found)
    assert found.compare(grad_phi=problem.kernels.grad_phi([0.5 + k / 64 for k in range(51)])).digits > 12


REFUSED = {
    "no curvature": ("sum(y)", "sum(x*y)**2", "strongly convex|found|definite|positive"),
    "a kink at y*": ("sum(y)", "sum(abs(y - x) + (y - x)**2)", "switches|kink|found"),
    "a kink of f": ("sum(abs(y - x))", "sum((y - x)**2)", "not smooth|kink"),
    "beyond a domain": ("sum(log(y - 2*x))", "sum((y - x)**2)", "not defined|not smooth"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_cannot_be_proved_is_refused(name: str) -> None:
    f, g, says = REFUSED[name]
    with pytest.raises(CertificateFailure, match=says) as caught:
        evaluate(BilevelProblem(f, g, "x[26]", "y[26]"), [1 + k / 8 for k in range(26)], digits=10)
    assert caught.value.hint


def conditioned(n: int, badly: bool) -> BilevelProblem:
    """Columns of many scales; or two that are nearly the same."""
    rows = np.random.default_rng(0).normal(size=(n, n))
    if badly:
        rows[:, 1] = rows[:, 0] * (1 + 2.0**-40)
    else:
        rows = rows * np.ldexp(1.0, -6 * (np.arange(n) % 10))
    return BilevelProblem("sum(y)", "sum((A @ y - x)**2)", "x[n]", "y[n]", data={"A": rows})


def test_a_badly_conditioned_lower_level_is_refused_or_left_to_scalars() -> None:
    assert by_arrays(conditioned(10, badly=False), [1.0] * 10, digits=10).problem.is_array
    assert not evaluate(conditioned(10, badly=True), [1.0] * 10, digits=10).problem.is_array
    with pytest.raises(CertificateFailure, match=r"conditioned|definite|found"):
        evaluate(conditioned(30, badly=True), [1.0] * 30)


def test_arrays_are_given_by_name_and_in_their_shapes() -> None:
    problem = BilevelProblem("sum(W) + a", "sum((W - b)**2) + a*sum(W)", "a b[4, 2]", "W[4, 2]")
    b = np.arange(8).reshape(4, 2) + 1
    found = evaluate(problem, {"b": b, "a": "1/3"}, digits=10, y0={"W": b})
    assert found.phi.value.overlaps(evaluate(problem, ["1/3", *range(1, 9)], digits=10).phi.value)
    with pytest.raises(InvalidArgument, match=r"shape \(2, 4\).* \(4, 2\)"):
        evaluate(problem, {"b": b.T.reshape(2, 4), "a": 1})
    with pytest.raises(InvalidArgument, match="variables"):
        evaluate(problem, {"b": b})


def test_convexity_over_the_box_is_proved_refuted_or_left_open() -> None:
    def at(g: str, low: int, high: int) -> certificates.PointCertificate:
        box = {"x": (0, 1), "y": (low, high)}
        problem = BilevelProblem("sum(y)**2", g, "x", "y[8]", box=box)
        return evaluate(problem, [0.5], digits=8, y0=[1.0] * 8)

    assert at("sum(y**4 + y**2) - x*sum(y)", -2, 2).convexity == "proved over the box"
    outside = at("sum(y**4 + y**2) - x*sum(y)", -2, -1)
    assert outside.convexity == "proved over the box"
    assert "outside" in outside.why
    assert at("sum(y**2/2 + cos(3*y)/9) - x*sum(y)", -1, 3).convexity == "assumed"
    rng = np.random.default_rng(0)
    data = {"A": rng.normal(size=(200, 30)), "b": np.sign(rng.normal(size=200))}
    losses = {"mean(softplus(-b*(A @ y)))": "proved over the box", "-mean(cos(A @ y)*b**2)": "assumed"}
    for loss, said in losses.items():  # the first is convex wherever y is, the second at the centre of the box alone
        g = f"{loss} + exp(x)*(y @ y)/200 - sum(y)/1000"
        problem = BilevelProblem("sum(y**2)/2 + sum(y)", g, "x", "y[n]", data=data, box={"x": (-1, 1), "y": (-9, 9)})
        assert evaluate(problem, [0], digits=8, y0=[1e-3] * 30).convexity == said
    with pytest.raises(AssumptionViolated, match="not convex"):
        at("sum((y**2 - 1)**2) - x*sum(y)/8", -2, 2)


def test_a_start_decides_between_two_wells() -> None:
    wells = BilevelProblem("sum(x*y)", "sum((y**2 - 1)**2)/4", "x[7]", "y[7]")
    phis = [float(evaluate(wells, [2] * 7, y0=[start] * 7, digits=8).phi) for start in (-1.25, 0.75)]
    assert phis == pytest.approx([-14.0, 14.0])


def test_memory_is_asked_for_before_it_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    problem, x = ridge(), [0.5]
    problem.kernels.y_star(x)
    monkeypatch.setattr("bilevel_sym.system.memory.physical", lambda: 10**5)
    with pytest.raises(TooLarge, match="certificate"):
        evaluate(problem, x)


def test_another_rounding_is_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("bilevel_sym.certify.array_evaluation.rounds_to_nearest", lambda: False)
    with pytest.raises(CertificateFailure, match="round"):
        evaluate(ridge(26), [0.5])


def test_a_thousand_rows() -> None:
    problem = FAMILIES["logistic"](np.random.default_rng(5), 1000, 60)
    x = np.linspace(-2, 1, 60)
    found = evaluate(problem, x, digits=10)
    assert found.compare(grad_phi=problem.kernels.grad_phi(x)).digits > 9
    assert found.compare(y_star=problem.kernels.y_star(x)).digits > 9


# ---- very many: ten thousand with --hypothesis-profile=thorough, a tenth of that otherwise --------------------------------

SHARE = 1 if THOROUGH else 10


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("family", FAMILIES)
def test_many_certificates_agree_with_scalars_at_60_digits(family: str) -> None:
    for seed in range(100 // SHARE):
        check_certificate(np.random.default_rng(seed), family, 8 if seed < 10 // SHARE else 4)


@pytest.mark.slow
@pytest.mark.in_ci("all", "rational")
@pytest.mark.parametrize("language", LANGUAGES)
def test_ten_thousand_random_problems_and_operations(language: str) -> None:
    known: list[int] = []

    @settings(max_examples=500 // SHARE, suppress_health_check=list(HealthCheck), deadline=None, database=None)
    @given(data=st.data(), seed=SEEDS)
    def search(data: st.DataObject, seed: int) -> None:
        known.append(check_blocks(data, language, seed))

    search()
    assert np.mean(np.array(known) > 0) > 0.5
    start = 10_000 * list(LANGUAGES).index(language)
    for seed in range(start, start + 1500 // SHARE):
        check_operations(np.random.default_rng(seed))
        check_slices(np.random.default_rng(seed))
        check_systems(np.random.default_rng(seed))
