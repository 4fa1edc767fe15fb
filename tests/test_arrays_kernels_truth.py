"""Kernels of random array problems against the exact values of the same problems in scalars, to round-off."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from array_oracle import BALLS, BITS, NoNumber, Point, values
from array_strategies import LANGUAGES, points
from flint import arb
from hypothesis import assume, event, given
from hypothesis import strategies as st
from test_arrays_truth import Both, drawn_problem

from bilevel_sym.errors import InvalidProblem
from bilevel_sym.implicit.array_program import ArrayProgram, Workshop
from bilevel_sym.implicit.engine import Engine
from bilevel_sym.kernels.array_engine import ArrayEngine

NAMES = (
    "f", "g", "f_x", "f_y", "g_y", "f_xx", "f_xy", "f_yy", "g_xy", "g_yy", "L_xx", "L_xy", "L_yy", "g_yy_v", "g_xy_v",
)  # fmt: skip
FLOAT_BITS = 53
ROUND_OFF = 2.0**-53
MANY = 1e4  # roundings, and how much worse another order of the same operations may be
TOO_LARGE = 1e100  # what leads to it may have left float64
LARGEST = 1e8  # beyond it so little is left of a difference that it says nothing
LARGEST_EXPONENT = 1e3  # beyond it float64 has no exponential
LANES = 3


class Blocks:
    """The blocks of an engine at some points, and their exact values at the first."""

    def __init__(self, both: Both, points_: Any) -> None:
        self.both, self.points = both, points_
        floats = {name: _floats(array) for name, array in both.data.items()}
        self.engine: Engine = ArrayEngine(both.array, both.sizes, floats)
        self.floats = floats

    def compiled(self, names: Sequence[str]) -> dict[str, Any]:
        """At the first point in compiled code; nothing where there is no instruction for a step."""
        pytest.importorskip("numba")
        from bilevel_sym.implicit import one_point
        from bilevel_sym.implicit.compiled_plan import Translation, Unable

        d, n = self.both.scalar.d, self.both.scalar.n
        program = ArrayProgram(Workshop(self.both.array, self.both.sizes, self.floats), names)
        try:
            translation = Translation(program, np.inf, own=("g_yy", "g_y"))
        except Unable:
            return {}
        memory = translation.memory()
        for start, part in zip(translation.inputs, np.split(self.points[0], [d + n, d + 2 * n])[:2], strict=True):
            memory[start : start + len(part)] = part
        for code in translation.code():
            one_point.value(code, translation.numbers, memory, 0)
        shapes = {name: program.shape(name) for name in names}
        starts = translation.blocks
        return {name: memory[starts[name] :][: int(np.prod(shape))].reshape(shape) for name, shape in shapes.items()}

    def computed(self, names: Sequence[str], rows: Any) -> dict[str, Any]:
        d, n = self.both.scalar.d, self.both.scalar.n
        with np.errstate(all="ignore"):
            session = self.engine.session(names, len(rows))
            for stage, part in enumerate(np.split(rows, [d + n, d + 2 * n], axis=1)[:2]):
                session.put(stage, np.ascontiguousarray(part))
            return {name: np.array(session.take(name)) for name in names}

    def exact(self, names: Iterable[str]) -> dict[str, tuple[Any, Any]]:
        """At the first point, of the scalar model: values, and how far rounding may carry a program from them."""
        graph, model = self.both.graph, self.both.scalar
        point = {k: arb(float(value)) for k, value in enumerate(self.points[0])}
        found = {}
        for name in names:
            shape, forms = model.block(name)
            here, rounded = (values(graph, forms, point, BALLS, bits) for bits in (BITS, FLOAT_BITS))
            exact = np.array([float(value.mid()) for value in here])
            if np.abs(exact).max(initial=0) > TOO_LARGE:
                raise NoNumber
            widths = [
                float(ball.rad()) + abs(float(ball.mid()) - value) for ball, value in zip(rounded, exact, strict=True)
            ]
            found[name] = exact.reshape(shape), np.array(widths).reshape(shape)
        return found


def _floats(array: Any) -> Any:
    return np.asarray(np.vectorize(float, otypes=[float])(array))


def drawn_blocks(data: st.DataObject, language: str, seed: int) -> Blocks:
    """A problem whose data are floats, and points for it."""
    problem, point = drawn_problem(data, language), data.draw(points())
    rounded = {name: _exactly(_floats(np.asarray(array, object))) for name, array in point.arrays.items()}
    try:
        both = Both(problem, Point(point.sizes, point.variables, rounded))
    except (InvalidProblem, ZeroDivisionError):
        assume(False)
        raise
    return Blocks(both, np.random.default_rng(seed).normal(size=(LANES, len(both.graph.variables))))


def _exactly(array: Any) -> Any:
    result = np.empty(array.shape, object)
    for place, value in np.ndenumerate(array):
        result[place] = Fraction(float(value))
    return result


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("language", LANGUAGES)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_blocks_are_right_to_round_off(language: str, data: st.DataObject, seed: int) -> None:
    blocks = drawn_blocks(data, language, seed)
    try:
        exact = blocks.exact(NAMES)
    except (NoNumber, OverflowError):
        assume(False)
        raise
    computed = {name: block[0] for name, block in blocks.computed(NAMES, blocks.points[:1]).items()}
    compare(computed, exact)


@pytest.mark.slow
@pytest.mark.parametrize("language", LANGUAGES)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_compiled_blocks_are_right_to_round_off(language: str, data: st.DataObject, seed: int) -> None:
    blocks = drawn_blocks(data, language, seed)
    computed = blocks.compiled(NAMES)
    event(f"compiled: {bool(computed)}")
    try:
        compare(computed, blocks.exact(computed))
    except (NoNumber, OverflowError):
        assume(False)


def compare(computed: Mapping[str, Any], exact: Mapping[str, tuple[Any, Any]]) -> None:
    # a derivative may be the small difference of what is as large as another block
    largest = max((np.abs(block).max(initial=1.0) for block, _ in exact.values()), default=1.0)
    # an exponential errs by as many roundings as its exponent is large, which its logarithm in f or g shows
    exponent = max((np.abs(exact[name][0]).max(initial=1.0) for name in ("f", "g") if name in exact), default=1.0)
    many = MANY * min(exponent, LARGEST_EXPONENT)
    for name, (values_of_one, widths) in exact.items():
        assert computed[name].shape == values_of_one.shape
        scale = largest + widths.max(initial=0) / ROUND_OFF
        assert np.abs(computed[name] - values_of_one).max(initial=0) <= ROUND_OFF * many * scale, name


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("language", LANGUAGES)
@given(data=st.data(), seed=st.integers(0, 2**32 - 1))
def test_points_together_are_points_alone(language: str, data: st.DataObject, seed: int) -> None:
    blocks = drawn_blocks(data, language, seed)
    together = blocks.computed(NAMES, blocks.points)
    alone = [blocks.computed(NAMES, row[None]) for row in blocks.points]
    for name in NAMES:
        rows = np.concatenate([part[name] for part in alone])
        assert together[name].shape == rows.shape
        scale = float(np.abs(rows).max(initial=1.0))
        assume(scale < LARGEST)  # not where it is no number, either
        np.testing.assert_allclose(together[name], rows, rtol=1e-9, atol=1e-12 * scale**2)
