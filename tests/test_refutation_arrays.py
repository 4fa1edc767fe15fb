"""Defects planted in the core of arrays: each turns a comparison with the scalar problem red."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from inspect import signature
from typing import Any

import numpy as np
import pytest
import test_arrays_calculus
import test_arrays_certificates
import test_arrays_exact_formulas
import test_arrays_kernels
import test_arrays_truth
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from bilevel_sym.arithmetic.enclosed import arithmetics, inverse, midrad, slices
from bilevel_sym.arithmetic.enclosed.inverse import Inverse
from bilevel_sym.arithmetic.enclosed.midrad import MidRad
from bilevel_sym.arrays import algebra, calculus, canonical, normal
from bilevel_sym.arrays.normal import Raw, ones
from bilevel_sym.arrays.plan import ExactPlan
from bilevel_sym.arrays.tensor import Factor, Leaf, LogSumExp, Tensor, Term
from bilevel_sym.errors import LowerLevelFailure
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.implicit import array_layers, array_program
from bilevel_sym.symbolic import array_closed_form, array_formulas

SEARCH = settings(
    max_examples=400, derandomize=True, database=None, deadline=None, phases=[Phase.generate],
    suppress_health_check=list(HealthCheck), print_blob=False,
)  # fmt: skip
Plant = Callable[[pytest.MonkeyPatch], None]


def no_delta_between_free_indices(patch: pytest.MonkeyPatch) -> None:
    """The identity becomes a matrix of ones."""
    patch.setattr(normal, "_spanning", lambda deltas, names: [])


def one_delta_of_two(patch: pytest.MonkeyPatch) -> None:
    """Of the deltas of a third derivative the last is lost."""
    right = normal._spanning
    patch.setattr(normal, "_spanning", lambda deltas, names: right(deltas, names)[: max(1, len(deltas) - 1)])


def transposed_factor(patch: pytest.MonkeyPatch) -> None:
    """Every square matrix is taken for symmetric, so that its transpose stands for it."""
    square = property(lambda leaf: len(leaf.dims) == 2 and leaf.dims[0] == leaf.dims[1])
    patch.setattr(Leaf, "symmetric", square)


def gradient_with_axes_exchanged(patch: pytest.MonkeyPatch) -> None:
    """The indices of a square variable come in the wrong order."""
    right = calculus.gradient

    def wrong(formula: Tensor, variable: Leaf) -> Tensor:
        found = right(formula, variable)
        order = [*range(formula.rank), *reversed(range(formula.rank, found.rank))]
        return normal.rearranged(found, order) if len(set(variable.dims)) == 1 else found

    patch.setattr(test_arrays_calculus, "gradient", wrong)
    patch.setattr("bilevel_sym.implicit.array_model.gradient", wrong)


def unequal_terms_merged(patch: pytest.MonkeyPatch) -> None:
    """Terms are told apart by their heads, and not by how indices join them."""

    def monomial(term: Term) -> str:
        return "*".join(f"{factor.head.key}({sorted(factor.indices)})" for factor in term.factors)

    patch.setattr(Term, "monomial", property(monomial))


def greedy_renaming(patch: pytest.MonkeyPatch) -> None:
    """Summed indices are renamed in the order in which they come."""

    def smallest(factors: Sequence[Factor], rank: int, colours: Any) -> Any:
        order = list(dict.fromkeys(i for factor in factors for i in factor.indices if i >= rank))
        return canonical._encoding(factors, rank, {i: rank + k for k, i in enumerate(order)}), order

    patch.setattr(canonical, "_smallest", smallest)


def missed_symmetry_factor(patch: pytest.MonkeyPatch) -> None:
    """Equal terms, K y and K' y of a symmetric K among them, are one, but count once."""

    def added(operands: Iterable[Tensor], dims: Sequence[str]) -> Tensor:
        collected: dict[str, Term] = {}
        for operand in operands:
            for term in operand.terms:
                collected.setdefault(term.monomial, term)
        return Tensor(tuple(dims), tuple(collected[key] for key in sorted(collected)))

    patch.setattr(calculus, "added", added)


def repeated_factor_differentiated_once(patch: pytest.MonkeyPatch) -> None:
    """The derivative of y y is y."""
    right = calculus._of_factor

    def once(formula: Tensor, term: Term, place: int, *others: Any) -> Tensor:
        again = term.factors.index(term.factors[place]) < place
        return Tensor((*formula.dims, *others[1])) if again else right(formula, term, place, *others)

    patch.setattr(calculus, "_of_factor", once)


def sum_of_a_constant(patch: pytest.MonkeyPatch) -> None:
    """A sum of what does not depend on its index is taken once."""
    right = normal._normal

    def wrong(rank: int, raw: Raw) -> Term:
        term = right(rank, raw)
        return Term(term.coefficient, tuple(raw.sizes.items()), term.factors, term.dummies)

    patch.setattr(normal, "_normal", wrong)


def log_sum_exp_without_weights(patch: pytest.MonkeyPatch) -> None:
    """The derivative of a log-sum-exp is the sum of those of its exponents."""
    right = calculus._pieces

    def wrong(head: Any, *others: Any) -> Any:
        found = right(head, *others)
        return [([], piece, places) for _, piece, places in found] if isinstance(head, LogSumExp) else found

    patch.setattr(calculus, "_pieces", wrong)


def other_branch_forgotten(patch: pytest.MonkeyPatch) -> None:
    """The second branch has no derivative."""
    right = calculus._branches
    patch.setattr(calculus, "_branches", lambda head: right(head)[:1])


def content_lost(patch: pytest.MonkeyPatch) -> None:
    """What is taken out of parentheses does not come back."""
    right = algebra._content
    patch.setattr(algebra, "_content", lambda operand: (ones(()), right(operand)[1]))


def exponential_lost(patch: pytest.MonkeyPatch) -> None:
    """exp(a) exp(b) becomes exp(a)."""
    patch.setattr(normal, "_product_of_exponentials", lambda large, small: large)


def response_of_the_wrong_sign(patch: pytest.MonkeyPatch) -> None:
    """y* moves the other way."""
    right = array_formulas.ArrayFormulas._response
    patch.setattr(array_formulas.ArrayFormulas, "_response", lambda self, a, c: normal.scaled(right(self, a, c), -1))


def wrong_sign_of_a_right_side(patch: pytest.MonkeyPatch) -> None:
    """The right side of a closed form has the wrong sign."""
    patch.setattr(array_closed_form, "scaled", lambda value, number: value)


# ---- enclosures -----------------------------------------------------------------------------------------------------


def radius_without_rounding_errors(patch: pytest.MonkeyPatch) -> None:
    """Middles are taken to be exact."""
    patch.setattr(midrad, "ROUND_OFF", 0.0)
    patch.setattr(midrad, "TINY", 0.0)


def product_without_radius_times_radius(patch: pytest.MonkeyPatch) -> None:
    """|a| r_b + r_a |b|, as if errors were small."""

    def wrong(one: MidRad, two: MidRad) -> MidRad:
        mid = np.asarray(one.mid * two.mid)
        rad = np.abs(one.mid) * two.radius + one.radius * np.abs(two.mid)
        return MidRad(mid, midrad.upward(rad + midrad.ROUND_OFF * np.abs(mid), 10))

    patch.setattr(MidRad, "__mul__", wrong)


def matrix_product_without_radius_times_radius(patch: pytest.MonkeyPatch) -> None:
    """The same in products of matrices."""
    patch.setattr(MidRad, "magnitude", lambda self: np.abs(self.mid))


def sum_without_its_length(patch: pytest.MonkeyPatch) -> None:
    """A long sum errs no more than a short one."""
    right = midrad._radius
    patch.setattr(midrad, "_radius", lambda one, two, rounding, length: right(one, two, midrad.ROUND_OFF / 8, length))


def solve_without_its_residual(patch: pytest.MonkeyPatch) -> None:
    """R r is taken for the solution, and |I - R H| for nothing."""
    right = inverse.proved_inverse

    def wrong(enclosure: MidRad) -> Inverse | str:
        found = right(enclosure)
        return found if isinstance(found, str) else Inverse(found.matrix, 0.0 * found.defects, found.units)

    patch.setattr(test_arrays_certificates, "proved_inverse", wrong)


def slice_lost(patch: pytest.MonkeyPatch) -> None:
    """The last bits of a vector do not take part."""
    right = slices._cut

    def wrong(*args: Any) -> Any:
        table, top = right(*args)
        table[:, -1] = 0.0
        return table, top

    patch.setattr(slices, "_cut", wrong)


def radii_lost_by_slices(patch: pytest.MonkeyPatch) -> None:
    """A product of balls has no radius."""
    patch.setattr(slices.Slices, "_radii", lambda self, balls: [[slices.ZERO] * len(self.matrix)] * balls.shape[1])


def coefficient_rounded(patch: pytest.MonkeyPatch) -> None:
    """1/3 is a float."""
    patch.setattr(ExactPlan, "_number", staticmethod(float))


def library_trusted(patch: pytest.MonkeyPatch) -> None:
    """NumPy's functions of the middle, and no radius."""

    def wrong(op: str, parameter: Sequence[int], arguments: Sequence[MidRad]) -> MidRad:
        value = np.pi if op == "pi" else OPERATIONS[op].rule("numpy")(*(a.mid for a in arguments), *parameter)
        return MidRad(np.asarray(value, dtype=float))

    patch.setattr(arithmetics, "applied", wrong)


CASES = 3000  # random ones, until a defect shows
SEEN_IN: dict[Plant, Callable[[np.random.Generator], None]] = {
    radius_without_rounding_errors: test_arrays_certificates.check_operations,
    product_without_radius_times_radius: test_arrays_certificates.check_operations,
    matrix_product_without_radius_times_radius: test_arrays_certificates.check_operations,
    sum_without_its_length: test_arrays_certificates.check_operations,
    solve_without_its_residual: test_arrays_certificates.check_systems,
    slice_lost: test_arrays_certificates.check_slices,
    radii_lost_by_slices: test_arrays_certificates.check_slices,
}


def many(check: Callable[[np.random.Generator], None]) -> None:
    """A check of many random cases."""
    for seed in range(CASES):
        check(np.random.default_rng(seed))


@pytest.mark.parametrize("plant", SEEN_IN, ids=lambda plant: plant.__name__)
def test_a_defect_of_enclosures_is_seen(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises(AssertionError):
            many(SEEN_IN[plant])


TESTS = (
    test_arrays_exact_formulas.test_closed_forms_are_the_solution_of_the_scalar_problem,
    test_arrays_exact_formulas.test_terms_are_those_of_the_scalar_derivation,
    test_arrays_truth.test_blocks_are_those_of_the_scalar_problem,
    test_arrays_truth.test_third_derivatives_are_those_of_the_scalar_problem,
    test_arrays_certificates.test_blocks_hold_the_exact_values_of_the_scalar_problem,
    test_arrays_calculus.test_gradients_are_those_of_the_scalar_graph,
    test_arrays_calculus.test_a_tensor_is_what_loops_over_entries_say,
    test_arrays_calculus.test_names_of_summed_indices_and_the_order_of_factors_do_not_count,
)


def searched(words: str, language: str) -> None:
    """The test whose name has these words, over many examples, without making the one that fails smaller."""
    (test,) = (test for test in TESTS if words in test.__name__)
    inner = test.hypothesis.inner_test
    given_too = {"seed": st.integers(0, 2**32 - 1)} if "seed" in signature(inner).parameters else {}
    SEARCH(given(data=st.data(), **given_too)(inner))(**({"language": language} if language else {}))


SEEN_BY: dict[Plant, tuple[str, str]] = {
    no_delta_between_free_indices: ("blocks_are_those", "rational"),
    one_delta_of_two: ("third_derivatives", "rational"),
    transposed_factor: ("tensor_is_what_loops", "rational"),
    gradient_with_axes_exchanged: ("gradients_are_those", "rational"),
    unequal_terms_merged: ("tensor_is_what_loops", "rational"),
    greedy_renaming: ("names_of_summed_indices", "rational"),
    missed_symmetry_factor: ("gradients_are_those", "rational"),
    repeated_factor_differentiated_once: ("gradients_are_those", "rational"),
    sum_of_a_constant: ("tensor_is_what_loops", "rational"),
    log_sum_exp_without_weights: ("gradients_are_those", "exponential"),
    other_branch_forgotten: ("gradients_are_those", "switches"),
    content_lost: ("tensor_is_what_loops", "rational"),
    response_of_the_wrong_sign: ("terms_are_those", ""),
    wrong_sign_of_a_right_side: ("closed_forms_are_the", ""),
    exponential_lost: ("tensor_is_what_loops", "exponential"),
    coefficient_rounded: ("blocks_hold_the_exact", "rational"),
    library_trusted: ("blocks_hold_the_exact", "smooth"),
}


@pytest.mark.slow
@pytest.mark.in_ci(every=2)
@pytest.mark.parametrize("plant", SEEN_BY, ids=lambda plant: plant.__name__)
def test_a_planted_defect_is_seen(plant: Plant, monkeypatch: pytest.MonkeyPatch) -> None:
    words, language = SEEN_BY[plant]
    with monkeypatch.context() as patch:
        plant(patch)
        with pytest.raises((AssertionError, ExceptionGroup)):
            searched(words, language)


# ---- compiled code --------------------------------------------------------------------------------------------------


def strides_of_a_transposed_array(patch: pytest.MonkeyPatch, module: Any) -> None:
    right = module._strides
    patch.setattr(module, "_strides", lambda shape, labels=None: right(shape))


def deltas_forgotten(patch: pytest.MonkeyPatch, module: Any) -> None:
    patch.setattr(module, "_embedded", lambda strides, sizes, deltas: (strides, dict(sizes)))


def weights_forgotten(patch: pytest.MonkeyPatch, module: Any) -> None:
    right = module.Translation._gram
    patch.setattr(
        module.Translation, "_gram", lambda self, code, args, axis, to, at: right(self, code, args, axis, to, at[:1])
    )


def constants_forgotten(patch: pytest.MonkeyPatch, module: Any) -> None:
    right = module.Translation._number
    patch.setattr(module.Translation, "_number", lambda self, value: right(self, 0.0 if value == 0.0 else 1.0))


@pytest.mark.slow
@pytest.mark.parametrize(
    ("defect", "problem"),
    [
        (strides_of_a_transposed_array, "softmax"),
        (deltas_forgotten, "logistic"),
        (weights_forgotten, "logistic"),
        (constants_forgotten, "ridge"),
    ],
)
def test_a_planted_defect_in_compiled_plans_is_seen(defect: Any, problem: str, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    from bilevel_sym.implicit import compiled_plan

    test_arrays_kernels.test_compiled_code_finds_what_numpy_finds(problem, 7, 3)
    defect(monkeypatch, compiled_plan)
    with pytest.raises((AssertionError, LowerLevelFailure, TypeError)):  # nothing is found, too
        test_arrays_kernels.test_compiled_code_finds_what_numpy_finds(problem, 7, 3)


def loops_joined_across_gaps(patch: pytest.MonkeyPatch, module: Any) -> None:
    right = module._joined
    patch.setattr(module, "_joined", lambda sizes, into, one, two: right(sizes, into))


def rooms_given_away_too_soon(patch: pytest.MonkeyPatch, module: Any) -> None:
    right = module.Translation._step

    def step(self: Any, code: Any, step: Any, args: Any, to: int, at: Any) -> None:
        right(self, code, step, args, to, at)
        if args and step.kind == "contract":
            self.vacate(at[-1], args[-1].entries)

    patch.setattr(module.Translation, "_step", step)


def steps_of_a_block_forgotten(patch: pytest.MonkeyPatch, module: Any) -> None:
    patch.setattr(module, "reachable", lambda steps, outputs: [*outputs, *(steps[k].args for k in outputs)])


def rows_of_an_axis_too_far(patch: pytest.MonkeyPatch, module: Any) -> None:
    right = module._axes_of_arguments
    patch.setattr(module, "_axes_of_arguments", lambda steps, k, axis: right(steps, k, len(steps[k].shape) - 1))


def rows_that_others_ask_for(patch: pytest.MonkeyPatch, module: Any) -> None:
    right = module.layered
    patch.setattr(array_program, "layered", lambda steps, last, users: right(steps, last, {k: {last} for k in users}))


def rows_of_the_last_layer(patch: pytest.MonkeyPatch, module: Any) -> None:
    right = module._kernel
    patch.setattr(
        module, "_kernel",
        lambda steps, order, args, axes, total, layer: right(steps, order, args, axes, total // layer * layer, layer),
    )  # fmt: skip


@pytest.mark.parametrize("defect", [rows_of_an_axis_too_far, rows_that_others_ask_for, rows_of_the_last_layer])
def test_a_planted_defect_in_layers_of_rows_is_seen(defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    test_arrays_kernels.test_layers_of_rows_are_all_rows("softmax", 20, monkeypatch)
    defect(monkeypatch, array_layers)
    with pytest.raises((AssertionError, AttributeError, KeyError, IndexError, TypeError, ValueError)):
        test_arrays_kernels.test_layers_of_rows_are_all_rows("softmax", 20, monkeypatch)


@pytest.mark.slow
@pytest.mark.parametrize("defect", [loops_joined_across_gaps, rooms_given_away_too_soon, steps_of_a_block_forgotten])
def test_a_planted_defect_in_compiled_products_is_seen(defect: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("numba")
    from bilevel_sym.implicit import compiled_plan

    test_arrays_kernels.test_compiled_products_find_what_numpy_finds("softmax", 7, 3, monkeypatch)
    defect(monkeypatch, compiled_plan)
    with pytest.raises((AssertionError, AttributeError, TypeError)):  # nothing is found, too
        test_arrays_kernels.test_compiled_products_find_what_numpy_finds("softmax", 7, 3, monkeypatch)
