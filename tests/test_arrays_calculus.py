"""The calculus of arrays against loops over entries, and against derivatives on the scalar graph."""

from __future__ import annotations

import itertools
import random
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
from array_oracle import BALLS, FLOATS, NoNumber, Point, field_of, same, values
from array_strategies import DATA, LANGUAGES, Drawn, X, Y, expressions, points, random_array
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from bilevel_sym.arrays.algebra import apply, contract, multiplied, power
from bilevel_sym.arrays.calculus import along, gradient, substituted
from bilevel_sym.arrays.lowering import lower_form
from bilevel_sym.arrays.normal import Raw, added, ones, scaled, tensor
from bilevel_sym.arrays.tensor import Factor, Leaf, Tensor
from bilevel_sym.errors import InvalidProblem
from bilevel_sym.graph.autodiff import directional
from bilevel_sym.graph.autodiff import gradient as scalar_gradient
from bilevel_sym.graph.nodes import LinearForm

SHAPES = [(), ("n",), ("m",), ("m", "n"), ("n", "n")]
languages = pytest.mark.parametrize("language", LANGUAGES)


def agree(graph: Any, one: dict[Any, LinearForm], two: dict[Any, LinearForm], point: Point) -> None:
    """Two families of forms have the same values at the point."""
    assert one.keys() == two.keys()
    field = field_of(graph)
    try:
        here = values(graph, [*one.values(), *two.values()], point.numbers(field), field)
        checks = [same(a, b) for a, b in zip(here[: len(one)], here[len(one) :], strict=True)]
    except (NoNumber, OverflowError):
        assume(False)
    assert all(checks), dict(zip(one, checks, strict=True))


def drawn_in(data: st.DataObject, language: str, depth: int = 3, dims: tuple[str, ...] | None = None) -> Drawn:
    """An expression of some shape, that exists."""
    shape = data.draw(st.sampled_from(SHAPES)) if dims is None else dims
    try:
        return data.draw(expressions(shape, depth=depth, functions=LANGUAGES[language]))
    except ZeroDivisionError:
        assume(False)
        raise


def lowered(point: Point, graph: Any, formula: Tensor) -> dict[Any, LinearForm]:
    try:
        return point.lowered(graph, formula)
    except InvalidProblem:  # a number of the data has no inverse
        assume(False)
        raise


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@languages
@given(data=st.data())
def test_a_tensor_is_what_loops_over_entries_say(language: str, data: st.DataObject) -> None:
    drawn, point = drawn_in(data, language, depth=4), data.draw(points())
    graph = point.graph()
    forms = lowered(point, graph, drawn.tensor)
    field = BALLS if "exp" in LANGUAGES[language] else field_of(graph)
    try:
        expected = drawn.value(point, field)
        here = values(graph, forms.values(), point.numbers(field), field)
        checks = [same(a, expected[place]) for place, a in zip(forms, here, strict=True)]
    except (NoNumber, OverflowError, ZeroDivisionError):
        assume(False)
    assert all(checks)


@pytest.mark.slow
@languages
@given(data=st.data())
def test_gradients_are_those_of_the_scalar_graph(language: str, data: st.DataObject) -> None:
    drawn, point = drawn_in(data, language), data.draw(points())
    variable = data.draw(st.sampled_from(sorted({*X, *Y} & drawn.tensor.leaves, key=lambda of: of.name) or [X[0]]))
    graph = point.graph()
    whole = lowered(point, graph, drawn.tensor)
    start = point.starts[variable.name]
    mine = lowered(point, graph, gradient(drawn.tensor, variable))
    own = list(itertools.product(*(range(point.sizes[dim]) for dim in variable.dims)))
    theirs = {
        (*place, *where): part
        for place, form in whole.items()
        for where, part in zip(own, scalar_gradient(graph, form, range(start, start + len(own))), strict=True)
    }
    agree(graph, mine, theirs, point)


@pytest.mark.slow
@languages
@given(data=st.data())
def test_derivatives_along_a_direction_are_those_of_the_scalar_graph(language: str, data: st.DataObject) -> None:
    drawn = drawn_in(data, language)
    moved = data.draw(st.sets(st.sampled_from([*X, *Y]), min_size=1))
    variables = sorted(moved, key=lambda of: of.name)
    ways = [Leaf(f"d{of.name}", of.dims, "direction") for of in variables]
    point = data.draw(points(variables=[*X, *Y, *ways]))
    graph = point.graph()
    whole = lowered(point, graph, drawn.tensor)
    mine = lowered(point, graph, along(drawn.tensor, dict(zip(variables, map(Tensor.leaf, ways), strict=True))))
    starts = point.starts
    direction = {
        starts[of.name] + k: graph.variables[starts[way.name] + k]
        for of, way in zip(variables, ways, strict=True)
        for k in range(point.entries(of))
    }
    agree(graph, mine, {place: directional(graph, form, direction) for place, form in whole.items()}, point)


@pytest.mark.slow
@languages
@given(data=st.data())
def test_a_tensor_in_the_place_of_a_variable_is_its_value_there(language: str, data: st.DataObject) -> None:
    drawn = drawn_in(data, language)
    inserted = drawn_in(data, language, depth=2, dims=("n",))
    point = data.draw(points())
    graph = point.graph()
    try:
        mine = lowered(point, graph, substituted(drawn.tensor, {Y[0]: inserted.tensor}))
    except ZeroDivisionError:
        assume(False)
    values_of_y = lowered(point, graph, inserted.tensor)
    usual = point.entry_of(graph)

    def entry(leaf: Leaf, place: tuple[int, ...]) -> Any:
        return values_of_y[place] if leaf == Y[0] else usual(leaf, place)

    try:
        theirs = lower_form(drawn.tensor, graph, entry, point.sizes)
    except InvalidProblem:
        assume(False)
    agree(graph, mine, theirs, point)


# ---- the canonical form ---------------------------------------------------------------------------------------------


def shuffled(formula: Tensor, chance: random.Random) -> Tensor:
    """The same formula with other names for summed indices, factors in another order, symmetric ones turned round."""
    raws = []
    for term in chance.sample(formula.terms, len(formula.terms)):
        names = chance.sample(range(50, 99), len(term.dummies))
        places = [*range(formula.rank), *names]
        factors = [Factor(head, tuple(places[i] for i in own)) for head, own in term.factors]
        factors = [Factor(h, own[::-1] if h.symmetric and chance.random() < 0.5 else own) for h, own in factors]
        chance.shuffle(factors)
        raws.append(Raw(term.coefficient, dict(term.sizes), factors, dict(zip(names, term.dummies, strict=True))))
    return tensor(formula.dims, raws)


@pytest.mark.slow
@languages
@given(data=st.data(), seed=st.integers(0, 2**32))
def test_names_of_summed_indices_and_the_order_of_factors_do_not_count(
    language: str, data: st.DataObject, seed: int
) -> None:
    formula = drawn_in(data, language, depth=4).tensor
    variable = data.draw(st.sampled_from([*X, *Y]))
    for one in (formula, gradient(formula, variable)):
        assert shuffled(one, random.Random(seed)) == one


MATRICES = [Leaf(name, ("n", "n"), "data") for name in "AB"] + [Leaf("K", ("n", "n"), "data", declared_symmetric=True)]
LARGE = {"n": 4}  # as many values as there are indices: different products are different polynomials


@st.composite
def products(draw: st.DrawFn) -> list[tuple[Leaf, tuple[int, int]]]:
    """Two to four matrices with at most four indices, all summed."""
    count = draw(st.integers(2, 4))
    pairs = st.tuples(st.integers(0, 3), st.integers(0, 3))
    return draw(st.lists(st.tuples(st.sampled_from(MATRICES), pairs), min_size=count, max_size=count))


def as_tensor(factors: list[tuple[Leaf, tuple[int, int]]]) -> Tensor:
    return contract([(Tensor.leaf(of), pair) for of, pair in factors], ())


def value_by_loops(factors: list[tuple[Leaf, tuple[int, int]]], arrays: dict[str, Any]) -> Fraction:
    indices = sorted({i for _, pair in factors for i in pair})
    total = Fraction(0)
    for place in itertools.product(range(4), repeat=len(indices)):
        at = dict(zip(indices, place, strict=True))
        term = Fraction(1)
        for of, (i, j) in factors:
            term *= arrays[of.name][at[i], at[j]]
        total += term
    return total


@pytest.mark.slow
@given(one=products(), two=products(), seed=st.integers(0, 2**32))
@settings(max_examples=60)
def test_products_are_one_exactly_where_they_are_equal(
    one: list[tuple[Leaf, tuple[int, int]]], two: list[tuple[Leaf, tuple[int, int]]], seed: int
) -> None:
    """Also of the first product with the heads of the second, so that only the pattern of indices differs."""
    mixed = [(of, pair) for (of, _), (_, pair) in zip(two, one, strict=False)]
    rng = np.random.default_rng(seed)
    arrays = {of.name: random_array(of, (4, 4), rng) for of in MATRICES}
    for left, right in itertools.combinations([one, two, mixed], 2):
        equal = value_by_loops(left, arrays) == value_by_loops(right, arrays)
        assert (as_tensor(left) == as_tensor(right)) == equal


@pytest.mark.slow
def test_all_patterns_of_three_equal_factors_are_told_apart() -> None:
    """Every product of A, A and A over at most three summed indices, by its tensor and by its value."""
    rng = np.random.default_rng(7)
    (A, *_), arrays = MATRICES, {"A": random_array(MATRICES[0], (4, 4), rng)}
    found: dict[Tensor, set[Fraction]] = {}
    for flat in itertools.product(range(3), repeat=6):
        factors = [(A, (flat[k], flat[k + 1])) for k in (0, 2, 4)]
        found.setdefault(as_tensor(factors), set()).add(value_by_loops(factors, arrays))
    assert all(len(values_of_one) == 1 for values_of_one in found.values())
    assert len(set().union(*found.values())) == len(found)


def test_traces_of_two_matrices() -> None:
    def trace(word: str) -> Tensor:
        own = [Tensor.leaf(next(of for of in MATRICES if of.name == name)) for name in word]
        return contract([(of, (k, (k + 1) % len(own))) for k, of in enumerate(own)], ())

    assert trace("ABAB") == trace("BABA")
    assert trace("AABB") == trace("BAAB") == trace("ABBA")
    assert trace("ABAB") != trace("AABB")
    assert trace("AKBK") == trace("BKAK")
    assert trace("AKB") != trace("BKA")  # tr(AKB) = tr(B'KA') is another number
    assert len(added([trace("ABAB"), trace("AABB")], ()).terms) == 2
    assert trace("KKAKK") == trace("KKKKA")


def test_many_equal_factors_on_one_index_take_no_time() -> None:
    """Twelve legs have 12! orders: they are not all looked at."""
    A, y = Tensor.leaf(DATA[0]), Tensor.leaf(Y[0])
    once = contract([(A, "ij"), (y, "j")], "i")
    twelve = contract([(once, "i")] * 12, ())
    assert len(twelve.terms[0].factors) == 24


@pytest.mark.parametrize("p", range(-3, 12))
def test_powers_of_one_base_are_one(p: int) -> None:
    y = Tensor.leaf(Y[0])
    for base in (y, added([y, ones(("n",))], ("n",)), apply("sin", y)):
        for q in (1, 2, 5, 9):
            assert multiplied(power(base, p), power(base, q)) == power(base, p + q)
            assert power(power(base, q), p) == power(base, p * q)


# ---- branches -------------------------------------------------------------------------------------------------------


def at_floats(formula: Tensor, y: list[float]) -> list[float]:
    """The entries at a point, as a program would compute them: every factor of a product is looked at."""
    point = Point({"n": len(y)}, (Y[0],), {"y": np.array(y, object)})
    graph = point.graph()
    return values(graph, point.lowered(graph, formula).values(), dict(enumerate(y)), FLOATS)


def branched(inside: Tensor, outside: Tensor) -> Tensor:
    """One formula where y > 0, another elsewhere."""
    return apply("select", apply("lt", scaled(Tensor.leaf(Y[0]), -1)), inside, outside)


def test_a_branch_that_is_not_defined_elsewhere_leaves_no_trace() -> None:
    y, nothing = Tensor.leaf(Y[0]), Tensor(("n",))
    root = branched(power(y, 1, 2), nothing)
    once = gradient(contract([(root, "i")], ()), Y[0])
    assert at_floats(once, [4.0, -1.0]) == [0.25, 0.0]
    twice = gradient(once, Y[0])
    assert at_floats(twice, [4.0, -1.0]) == [-1 / 32, 0.0, 0.0, 0.0]
    thrice = gradient(twice, Y[0])
    assert at_floats(thrice, [1.0, -1.0]) == [3 / 8, *[0.0] * 7]


@pytest.mark.parametrize("op", ["log", "exp", "sqrt"])
def test_products_and_chains_within_branches(op: str) -> None:
    """A factor that fails beside others, outside and inside of functions, under sums and with data."""
    y, A = Tensor.leaf(Y[0]), Tensor.leaf(Leaf("B", ("n", "n"), "data"))
    inner = scaled(y, -1) if op == "exp" else y
    risky = power(inner, 1, 2) if op == "sqrt" else apply(op, inner)
    formula = branched(multiplied(y, apply("sin", risky)), multiplied(y, y))
    whole = contract([(A, "ij"), (formula, "j")], "i")
    point = Point({"n": 2}, (Y[0],), {"y": np.array([2.0, -1000.0], object), "B": np.ones((2, 2)).astype(int)})
    graph = point.graph()
    for derivative in (gradient(whole, Y[0]), gradient(gradient(whole, Y[0]), Y[0])):
        found = values(graph, point.lowered(graph, derivative).values(), {0: 2.0, 1: -1000.0}, FLOATS)
        assert np.isfinite(found).all()


def test_the_other_branch_counts_where_the_first_does_not() -> None:
    y = Tensor.leaf(Y[0])
    formula = contract([(branched(power(y, 2), scaled(y, 5)), "i")], ())
    assert at_floats(gradient(formula, Y[0]), [3.0, -2.0]) == [6.0, 5.0]
    one = contract([(apply("min", power(y, 2), scaled(y, 5)), "i")], ())
    assert at_floats(gradient(one, Y[0]), [3.0, 7.0]) == [6.0, 5.0]
    other = contract([(apply("max", power(y, 2), scaled(y, 5)), "i")], ())
    assert at_floats(gradient(other, Y[0]), [3.0, 7.0]) == [5.0, 14.0]


def test_a_minimum_that_is_decided_everywhere() -> None:
    y = Tensor.leaf(Y[0])
    least = apply("min", added([y, ones(("n",))], ("n",)), y)
    assert gradient(least, Y[0]) == gradient(y, Y[0])


def test_the_logarithm_of_a_number_stays() -> None:
    assert apply("log", ones((), 2)).terms[0].factors[0].head.op == "log"  # type: ignore[attr-defined]
    mean = contract([(ones((), 1, {"n": -1}), ""), (apply("exp", Tensor.leaf(Y[0])), "i")], ())
    assert "logsumexp" in apply("log", mean).key
