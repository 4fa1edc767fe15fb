"""Branch and bound: brackets are true whenever the search ends, and the cover is a cover."""

from __future__ import annotations

import itertools
import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from bilevel_sym.arithmetic.ties import first_largest
from bilevel_sym.errors import CertificateFailure
from bilevel_sym.system.budget import Budget, Deadline
from bilevel_sym.typing import Floats
from verify.enclosures.branch_and_bound import maximise, proved_upper
from verify.enclosures.cover import Cover
from verify.enclosures.tensor_norm import largest_values, norm3_upper, norm_lower, norm_upper, worst_directions

PAD = 1e-12


class Wave:
    """sin(a x + b y) + c x y, by its slopes: a bound at the middle plus the reach; the third variable does nothing."""

    active, cost = (0, 1), 1.0

    def __init__(self, a: float = 3.0, b: float = 2.0, c: float = 0.5) -> None:
        self.a, self.b, self.c = a, b, c
        self.proofs = 0

    def at(self, points: Floats) -> Floats:
        x, y = points[:, 0], points[:, 1]
        return np.asarray(np.sin(self.a * x + self.b * y) + self.c * x * y)

    def over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
        self.proofs += len(lower) * proved
        middle, reach = 0.5 * (lower + upper), 0.5 * (upper - lower)
        far = np.maximum(np.abs(lower), np.abs(upper))
        steep_x, steep_y = abs(self.a) + abs(self.c) * far[:, 1], abs(self.b) + abs(self.c) * far[:, 0]
        return np.asarray(self.at(middle) + steep_x * reach[:, 0] + steep_y * reach[:, 1] + PAD)

    def certified_at(self, point: Floats) -> float:
        return float(self.at(point[None])[0]) - PAD


class Patchy(Wave):
    """Without a bound on boxes that hold a point of x = 1/3."""

    def over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
        bound = super().over(lower, upper, proved=proved)
        return np.where((lower[:, 0] <= 1 / 3) & (upper[:, 0] >= 1 / 3), np.nan, bound)


class Stops(Wave):
    """Interrupted in the search after so many calls, and, where told so, in the proof."""

    def __init__(self, calls: int, *, in_proof: bool = False) -> None:
        super().__init__()
        self.left, self.in_proof = calls, in_proof

    def over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
        self.left -= not proved
        if self.left == 0 and not proved:
            raise KeyboardInterrupt
        if self.in_proof and proved and len(lower) > 1 and self.left < 0:
            self.in_proof = False
            raise KeyboardInterrupt
        return super().over(lower, upper, proved=proved)


BOX = np.array([-1.0, -1.0, 0.0]), np.array([1.0, 2.0, 5.0])


def dense(objective: Wave, lower: Floats = BOX[0], upper: Floats = BOX[1]) -> float:
    x, y = (np.linspace(lower[k], upper[k], 201) for k in (0, 1))
    grid = np.array(list(itertools.product(x, y)))
    return float(objective.at(grid).max())


def covers(cover: Cover) -> bool:
    """Whether the leaves fill the root without overlap: random points lie in a leaf, and volumes add up."""
    lower, upper = cover.leaves()
    volume = (upper - lower).prod(axis=1).sum()
    points = np.random.default_rng(0).uniform(cover.lower, cover.upper, (200, len(cover.lower)))
    inside = np.any(np.all((points[:, None] >= lower) & (points[:, None] <= upper), axis=2), axis=1)
    return bool(inside.all()) and math.isclose(volume, (cover.upper - cover.lower).prod(), rel_tol=1e-9)


@pytest.mark.slow
@given(st.floats(-4, 4), st.floats(-4, 4), st.floats(-2, 2))
def test_brackets_hold_the_maximum_and_are_narrow(a: float, b: float, c: float) -> None:
    objective = Wave(a, b, c)
    found = maximise(objective, *BOX, rtol=0.01)
    truth = dense(objective)
    assert found.bracket.lower <= found.bracket.upper
    assert found.bracket.upper >= truth - PAD
    assert found.bracket.lower >= truth - 0.01
    assert found.bracket.upper <= max(found.bracket.lower * 1.01, found.bracket.lower * 0.99) + 1e-6
    assert found.point is not None
    assert objective.certified_at(found.point) == found.bracket.lower
    assert np.all((BOX[0] <= found.point) & (found.point <= BOX[1]))


def test_the_upper_end_is_what_the_proof_of_the_cover_gives() -> None:
    objective = Wave()
    found = maximise(objective, *BOX, rtol=0.02)
    assert covers(found.cover)
    assert found.cover.size > 10
    assert objective.proofs >= found.cover.size
    assert proved_upper(objective, found.cover).max() == found.bracket.upper
    assert set(found.cover.cuts) == {-1, 0, 1}  # the third variable is never cut


def test_a_smaller_tolerance_gives_a_narrower_bracket_inside() -> None:
    brackets = [maximise(Wave(), *BOX, rtol=rtol).bracket for rtol in (0.5, 0.1, 0.01, 0.001)]
    for wide, narrow in itertools.pairwise(brackets):
        assert narrow.upper <= wide.upper
        assert narrow.lower >= wide.lower - 1e-9


def test_no_work_still_gives_a_true_bracket() -> None:
    found = maximise(Wave(), *BOX, budget=Budget(0))
    assert found.cover.size == 1
    assert found.bracket.lower <= dense(Wave()) <= found.bracket.upper
    assert found.bracket.lower > 0.99 * dense(Wave())


@pytest.mark.parametrize("most", [4, 10, 100, 1000])
def test_more_boxes_never_widen_the_bracket(most: int) -> None:
    few, more = (maximise(Wave(), *BOX, rtol=0, most=count).bracket for count in (most, 4 * most))
    assert more.upper <= few.upper
    assert more.lower >= few.lower


@pytest.mark.parametrize(("calls", "in_proof"), [(2, False), (3, False), (6, False), (6, True)])
def test_interrupted_it_is_still_true(calls: int, in_proof: bool) -> None:
    objective = Stops(calls, in_proof=in_proof)
    found = maximise(objective, *BOX, rtol=1e-3)
    assert found.interrupted
    assert found.bracket.lower <= dense(Wave()) <= found.bracket.upper
    assert covers(found.cover)


def test_a_place_without_a_bound_is_found_and_named() -> None:
    found = maximise(Patchy(), *BOX)
    assert found.bracket.upper == math.inf
    assert found.place is not None
    lower, upper = found.place
    assert lower[0] <= 1 / 3 <= upper[0]
    assert upper[0] - lower[0] < 1e-8
    assert found.bracket.lower > 0.9


def test_a_bound_that_is_only_missing_on_large_boxes_is_found() -> None:
    class Shy(Wave):
        def over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
            return np.where((upper - lower)[:, 0] > 0.3, np.inf, super().over(lower, upper, proved=proved))

    found = maximise(Shy(), *BOX)
    assert found.bracket.upper < 1.02 * dense(Wave())


def test_below_the_floor_nothing_is_cut() -> None:
    assert maximise(Wave(), *BOX, floor=100.0).cover.size == 1


def test_points_stay_inside_the_exact_box() -> None:
    inside = BOX[0] + 1e-3, BOX[1] - 1e-3
    point = maximise(Wave(3.0, 2.0, 5.0), *BOX, inside=inside).point
    assert point is not None
    assert np.all((inside[0] <= point) & (point <= inside[1]))


def test_an_objective_without_variables_is_evaluated_once() -> None:
    class Constant(Wave):
        active = ()  # type: ignore[assignment]

        def at(self, points: Floats) -> Floats:
            return np.full(len(points), 2.0)

        def over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
            return np.full(len(lower), 2.5)

    found = maximise(Constant(), *BOX)
    assert (found.cover.size, found.boxes) == (1, 1)
    assert found.bracket.upper == 2.5


def test_a_bound_that_does_not_converge_ends_where_it_can() -> None:
    class Loose(Wave):
        def over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
            return super().over(lower, upper, proved=proved) + 0.5

    found = maximise(Loose(), *BOX, rtol=0.01)
    assert found.boxes < 100_000
    assert found.bracket.upper < 1.02 * (dense(Wave()) + 0.5)


def test_a_negative_maximum_and_a_box_of_one_point() -> None:
    class Below(Wave):
        def at(self, points: Floats) -> Floats:
            return np.asarray(super().at(points) - 9.0)

    found = maximise(Below(), *BOX, rtol=1e-3)
    assert found.bracket.upper - found.bracket.lower < 0.02
    assert found.bracket.upper < 0
    corner = maximise(Wave(), BOX[0], BOX[0])
    assert corner.bracket.upper - corner.bracket.lower < 1e-9


# --- work, time and ties --------------------------------------------------------------------------------


@pytest.mark.parametrize("work", [0, 100, 1_000, 10_000, 100_000])
def test_the_work_that_is_done_is_the_work_that_is_allowed(work: int) -> None:
    budget = Budget(work)
    found = maximise(Wave(), *BOX, rtol=0, budget=budget)
    assert not found.cut
    assert found.boxes <= 1 + work
    assert budget.spent <= work + 4  # the proof of the whole box is always made
    again = maximise(Wave(), *BOX, rtol=0, budget=Budget(work))
    assert (again.bracket, again.boxes, again.cover.cuts) == (found.bracket, found.boxes, found.cover.cuts)


def test_a_costly_objective_gets_fewer_boxes_for_the_same_work() -> None:
    class Costly(Wave):
        cost = 10.0

    cheap, costly = (maximise(kind(), *BOX, rtol=0, budget=Budget(8_000)).boxes for kind in (Wave, Costly))
    assert 2 * costly < cheap


def test_time_alone_cuts_and_says_so_while_a_jumping_clock_moves_nothing(monkeypatch: pytest.MonkeyPatch) -> None:
    calm = maximise(Wave(), *BOX, rtol=1e-4, budget=Budget(50_000))
    ticks = itertools.count(step=1000.0)
    monkeypatch.setattr("bilevel_sym.system.budget.monotonic", lambda: next(ticks))
    hasty = maximise(Wave(), *BOX, rtol=1e-4, budget=Budget(50_000))
    assert (hasty.bracket, hasty.cover.cuts, hasty.cut) == (calm.bracket, calm.cover.cuts, False)
    late = maximise(Wave(), *BOX, rtol=1e-4, budget=Budget(50_000, Deadline(10)))
    assert late.cut
    assert late.bracket.lower <= dense(Wave()) <= late.bracket.upper


@given(st.lists(st.floats(-1e9, 1e9), min_size=1, max_size=8), st.data())
def test_last_bits_break_no_tie(values: list[float], data: st.DataObject) -> None:
    exact = np.array(values)
    moves = data.draw(st.lists(st.integers(-3, 3), min_size=len(values), max_size=len(values)))
    moved = np.array([v * (1 + k * 2.0**-52) for v, k in zip(values, moves, strict=True)])
    order = np.sort(exact)[::-1]
    if len(order) > 1 and 0 < order[0] - order[1] < 1e-6 * abs(order[0]):
        return  # nearly, and not quite, a tie: no rule tells these apart on every machine
    assert first_largest(moved) == first_largest(exact)


@pytest.mark.parametrize("bits", [-4, -1, 0, 1, 4])
def test_of_two_points_that_attain_the_maximum_the_first_is_named(bits: int) -> None:
    """|y| over [-1, 1]: corners come in a fixed order, whatever the last bits of their values are."""

    class Valley(Wave):
        active = (1,)  # type: ignore[assignment]

        def at(self, points: Floats) -> Floats:
            return np.abs(points[:, 1]) * np.where(points[:, 1] > 0, 1 + bits * 2.0**-52, 1.0)

        def over(self, lower: Floats, upper: Floats, *, proved: bool = False) -> Floats:
            return np.maximum(np.abs(lower[:, 1]), np.abs(upper[:, 1])) * (1 + PAD)

    point = maximise(Valley(), np.array([0.0, -1.0, 0.0]), np.array([1.0, 1.0, 1.0])).point
    assert point is not None
    assert point[1] == -1.0


# --- covers ------------------------------------------------------------------------------------------


@given(st.lists(st.integers(-1, 2), max_size=12))
def test_a_list_of_cuts_is_a_cover_or_refused(cuts: list[int]) -> None:
    cover = Cover(np.zeros(3), np.array([1.0, 3.0, 1 / 3]), tuple(cuts))
    waiting, whole = 1, True
    for cut in cuts:
        whole &= waiting > 0
        waiting += -1 if cut == -1 else 1
    if whole and waiting == 0:
        assert covers(cover)
    else:
        with pytest.raises(CertificateFailure):
            cover.leaves()


@pytest.mark.parametrize("cuts", [(), (0, -1), (-1, -1), (3, -1, -1), (-2,), (0, -1, -1, -1)])
def test_broken_covers_are_refused(cuts: tuple[int, ...]) -> None:
    with pytest.raises(CertificateFailure):
        Cover(np.zeros(3), np.ones(3), cuts).leaves()


# --- norms of tensors ---------------------------------------------------------------------------------

GROUPS = [((2, 3),), ((3, 3),), ((4, 3),), ((2, 1), (2, 2)), ((3, 2), (3, 1)), ((2, 2), (2, 2)), ((2, 4),), ((1, 3), (3, 1)),
          ((3, 1), (1, 2)), ((2, 1), (3, 1), (4, 1)), ((5, 1), (2, 3)), ((1, 1), (1, 2)), ((3, 2),), ((4, 1),), ((2, 1), (3, 1))]  # fmt: skip


def symmetric(tensors: Floats, groups: tuple[tuple[int, int], ...]) -> Floats:
    start = 1
    for _, degree in groups:
        total = np.zeros_like(tensors)
        for order in itertools.permutations(range(degree)):
            axes = list(range(tensors.ndim))
            axes[start : start + degree] = [start + k for k in order]
            total += tensors.transpose(axes)
        tensors, start = total / math.factorial(degree), start + degree
    return tensors


def along(tensor: Floats, vectors: list[Floats]) -> float:
    for vector in vectors:
        tensor = np.tensordot(vector, tensor, axes=(0, 0))
    return float(tensor)


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("groups", GROUPS)
def test_norms_of_tensors_are_never_below_their_values(groups: tuple[tuple[int, int], ...]) -> None:
    rng = np.random.default_rng(4)
    shape = [size for size, degree in groups for _ in range(degree)]
    tensors = symmetric(rng.standard_normal((12, *shape)), groups)
    radius = np.full_like(tensors, 0.05)
    thin, wide = norm_upper(tensors, 0 * radius, groups, aim=0.0, thorough=True), norm_upper(tensors, radius, groups)
    coarse = norm_upper(tensors, 0 * radius, groups)
    for k, tensor in enumerate(tensors):
        value, vectors = worst_directions(tensor)
        assert value == pytest.approx(abs(along(tensor, vectors)), rel=1e-9)
        assert value <= thin[k] * (1 + 1e-12)
        assert thin[k] <= coarse[k]
        moved = tensor + symmetric(rng.choice([-0.05, 0.05], (1, *shape)), groups)[0]
        assert worst_directions(moved)[0] <= wide[k] * (1 + 1e-12)
        if max(size for size, _ in groups) <= 3:
            best = max(value, *(worst_directions(tensor, starts=80)[0] for _ in range(2)))
            assert thin[k] <= 1.01 * best
        assert largest_values(tensor[None])[0] <= thin[k] * (1 + 1e-12)


def test_norm_of_a_cubic_form_that_is_known() -> None:
    """x^2 y - y^3/3 has the same largest value in three directions: as a trilinear form its norm is 1/3."""
    tensor = np.zeros((1, 2, 2, 2))
    for index in itertools.permutations((0, 0, 1)):
        tensor[0][index] = 1 / 3
    tensor[0, 1, 1, 1] = -1 / 3
    bound = norm3_upper(tensor, np.zeros_like(tensor), symmetric=True)[0]
    assert 1 / 3 <= bound < 0.3345
    assert norm3_upper(tensor, np.zeros_like(tensor))[0] < 0.3345


def test_unknown_tensors_have_no_norm() -> None:
    tensor = np.full((1, 2, 2, 2), np.nan)
    assert norm3_upper(tensor, tensor, symmetric=True)[0] == math.inf
    assert norm3_upper(np.zeros((1, 4, 4, 4)), np.full((1, 4, 4, 4), np.inf))[0] == math.inf


def test_certified_values_of_a_form() -> None:
    from flint import arb

    rng = np.random.default_rng(5)
    tensor = rng.standard_normal((2, 3, 2))
    ball = norm_lower([arb(float(v)) for v in tensor.ravel()], tensor.shape)
    assert float(ball.upper()) <= norm3_upper(tensor[None], np.zeros((1, 2, 3, 2)))[0] * (1 + 1e-12)
    assert float(ball.lower()) == pytest.approx(worst_directions(tensor)[0], rel=1e-9)
    assert not norm_lower([arb("nan")] * 4, (2, 2)).is_finite()
