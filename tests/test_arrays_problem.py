"""Problems of arrays: printed, compared, pickled, written out in scalars, saved; from SymPy and from samples."""

from __future__ import annotations

import pickle
import subprocess
import sys
from fractions import Fraction
from typing import Any

import numpy as np
import pytest
import scipy.sparse
import sympy as sp
from array_texts import A32, as_python, b3, c2, value

from bilevel_sym import BilevelProblem, MinimaxProblem, StochasticProblem
from bilevel_sym.arrays.data import DataArray
from bilevel_sym.errors import InvalidProblem, TooLarge, UnsafeExpression

# ---- problems -------------------------------------------------------------------------------------------------------


def ridge(**more: Any) -> BilevelProblem:
    arguments: dict[str, Any] = {
        "f": "sum((B @ y - c)**2)", "g": "sum((A @ y - b)**2) + a*exp(x)*(y @ y)", "x": "x", "y": "y[n]",
        "data": {"A": A32, "b": b3, "B": [[1, 0]], "c": [1]}, "parameters": {"a": "0.1"},
        "box": {"x": (-1, 1), "y": (-2, 3)}, "name": "ridge",
    }  # fmt: skip
    return BilevelProblem(**{**arguments, **more})


def test_it_prints_as_the_code_that_makes_it() -> None:
    problem = ridge()
    assert eval(repr(problem), {"BilevelProblem": BilevelProblem}) == problem
    assert repr(problem).startswith("BilevelProblem('sum((B @ y - c)**2)', ")
    shapes = ridge(data={"A": "m, n", "b": "m", "B": "k, n", "c": "k"}, parameters={"a": None})
    assert eval(repr(shapes), {"BilevelProblem": BilevelProblem}) == shapes
    game = MinimaxProblem("x @ A @ y - y @ K @ y/2", "x[m]", "y[n]", data={"A": "m, n", "K": "n, n symmetric"})
    assert eval(repr(game), {"MinimaxProblem": MinimaxProblem}) == game


def test_large_data_are_summed_up() -> None:
    rng = np.random.default_rng(0)
    problem = ridge(
        data={"A": rng.random((500, 30)), "b": rng.random(500), "B": rng.random((2, 30)), "c": [1, 2]}, name=None
    )
    assert repr(problem) == (
        "<BilevelProblem: f = sum((B @ y - c)**2), g = sum((A @ y - b)**2) + a*exp(x)*(y @ y), x = 'x', y = 'y[n]', "
        "A = 500 x 30, b = 500, B = 2 x 30, c = 2>"
    )


def test_equality_is_by_content() -> None:
    problem = ridge()
    same = [
        ridge(name="other"), ridge(f="(B @ y - c) @ (B @ y - c)"), ridge(data={"A": np.array(A32), "b": b3, "B": [[1, 0]], "c": [1]}),
        ridge(g="a*E**x*dot(y, y) + sum((b - A @ y)**2)"), ridge(parameters={"a": Fraction(1, 10)}), ridge(y=["y[n]"]),
    ]  # fmt: skip
    others = [
        ridge(f="sum((B @ y + c)**2)"), ridge(parameters={"a": 0.1}), ridge(box=None), ridge(y="y[q]"),
        ridge(data={"A": A32, "b": [1, 2, 4], "B": [[1, 0]], "c": [1]}), ridge(box={"x": (-1, 1)}),
    ]  # fmt: skip
    for other in same:
        assert other == problem
        assert hash(other) == hash(problem)
        assert other.digest == problem.digest
    for other in others:
        assert other != problem
        assert other.digest != problem.digest
    assert problem != problem.lowered()


def test_pickling() -> None:
    for problem in (
        ridge(),
        ridge(data={"A": "m, n", "b": "m", "B": "k, n", "c": "k"}),
        MinimaxProblem("x - y @ y", "x", "y[3]"),
    ):
        again = pickle.loads(pickle.dumps(problem))
        assert again == problem
        assert (type(again), again.name, again.box, again.digest) == (
            type(problem),
            problem.name,
            problem.box,
            problem.digest,
        )
        assert again.array_model.g == problem.array_model.g


@pytest.mark.slow
def test_the_digest_is_the_same_in_every_process() -> None:
    code = (
        "from bilevel_sym import BilevelProblem\n"
        f"print(BilevelProblem('sum(A @ y)', 'y @ y + exp(x)', 'x', 'y[n]', data={{'A': {A32}}}).digest)"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code], capture_output=True, text=True, check=True, env={"PYTHONHASHSEED": seed}
        ).stdout
        for seed in ("1", "2")
    }
    assert found == {BilevelProblem("sum(A @ y)", "y @ y + exp(x)", "x", "y[n]", data={"A": A32}).digest + "\n"}


def test_a_problem_is_frozen() -> None:
    with pytest.raises(AttributeError, match="frozen"):
        ridge().name = "other"
    with pytest.raises(TypeError):
        ridge().arrays["A"] = 3  # type: ignore[index]


def test_lowering_is_the_same_problem() -> None:
    problem = ridge()
    small = problem.lowered()
    assert not small.is_array
    assert [s.name for s in (*small.x, *small.y)] == ["x", "y_1", "y_2"]
    y1, y2, x = sp.symbols("y_1 y_2 x")
    expected = (y1 + 2 * y2 - 1) ** 2 + (3 * y1 + sp.Rational(9, 2) * y2 - 2) ** 2 + (5 * y1 + 6 * y2 - 3) ** 2
    assert sp.expand(small.g - expected - sp.exp(x) * (y1**2 + y2**2) / 10) == 0
    assert small.box is not None
    assert dict(small.box.items()) == {"x": (-1, 1), "y_1": (-2, 3), "y_2": (-2, 3)}
    assert (problem.d, problem.n) == (small.d, small.n) == (1, 2)
    assert problem.y_centre == small.y_centre == (sp.Rational(1, 2),) * 2
    assert problem.tape is small.tape
    assert problem.lowered() is small
    assert small.lowered() is small
    game = MinimaxProblem("x*sum(y) - y @ y", "x", "y[2]").lowered()
    assert isinstance(game, MinimaxProblem)
    assert sp.expand(game.f + game.g) == 0


@pytest.mark.slow
def test_lowering_of_what_is_too_large_is_refused() -> None:
    rng = np.random.default_rng(0)
    problem = BilevelProblem("y @ y", "sum((A @ y)**4)", "x", "y[n]", data={"A": rng.random((3000, 500))})
    with pytest.raises(TooLarge, match=r"[\d,]+ operations"):
        problem.lowered()


def test_matrix_entries_are_numbered_row_by_row() -> None:
    problem = BilevelProblem("sum(W @ y)", "y @ y + sum(W**2)*y @ y", "lam, W[2, 3]", "y[n]")
    assert [s.name for s in problem.lowered().x] == ["lam", "W_1_1", "W_1_2", "W_1_3", "W_2_1", "W_2_2", "W_2_3"]


def test_a_box_is_given_array_by_array() -> None:
    assert ridge(box={"x": (0, "0.5")}).box is not None
    for box, message in [
        ({"x": (1, 0)}, "the box is empty"),
        ({"y_1": (0, 1)}, "the box names y_1"),
        ({"y": (0, 1)}, "the box misses x"),
    ]:
        with pytest.raises(InvalidProblem, match=message):
            ridge(box=box)


def test_minimax_is_the_bilevel_problem_with_g_minus_f() -> None:
    game = MinimaxProblem("x @ A @ y - y @ y/2", "x[m]", "y[n]", data={"A": A32})
    total = value(game.array_model.f, {"x": b3, "y": c2, "A": A32}, {"m": 3, "n": 2})
    assert value(game.array_model.g, {"x": b3, "y": c2, "A": A32}, {"m": 3, "n": 2}) == -total


def test_scalar_problems_are_as_they_were() -> None:
    problem = BilevelProblem("mean*y1", "y1**2 - sum*y1", "mean sum", "y1")
    assert [s.name for s in problem.x] == ["mean", "sum"]
    assert not problem.is_array
    assert problem.dimensions == {}
    assert dict(problem.arrays) == {}
    assert problem.lowered() is problem
    with pytest.raises(InvalidProblem, match="no array model"):
        problem.array_model  # noqa: B018
    for text, message in [
        ("x @ y", "@ is not an operator"), ("x.T", "attributes are not accepted"), ("sum(x)", "unknown function sum"),
        ("min(x, axis=1)", "assignment is not accepted"), ("x[0]", "subscripts and lists are not accepted"),
    ]:  # fmt: skip
        with pytest.raises(UnsafeExpression) as caught:
            BilevelProblem(text, "y**2", "x", "y")
        assert message in caught.value.what


def test_files_keep_array_problems(tmp_path: Any) -> None:
    rng = np.random.default_rng(0)
    large = {
        "A": rng.random((100, 30)),
        "b": rng.random(100),
        "B": scipy.sparse.csr_array(np.eye(30)),
        "c": rng.random(30),
    }
    game = MinimaxProblem("x @ A @ y - y @ y/2", "x[m]", "y[n]", data={"A": "m, n"})
    for k, problem in enumerate((ridge(), ridge(data=large), game)):
        path = tmp_path / f"p{k}" / "toy.toml"
        path.parent.mkdir()
        problem.save(path)
        assert BilevelProblem.load(path) == problem


# ---- SymPy ----------------------------------------------------------------------------------------------------------


def test_sympy_and_text_make_the_same_problem() -> None:
    m, n, x = sp.symbols("m n x")
    A, b, y = sp.MatrixSymbol("A", m, n), sp.MatrixSymbol("b", m, 1), sp.MatrixSymbol("y", n, 1)
    f, g = sp.Trace(y.T * y), sp.Trace((A * y - b).T * (A * y - b)) / m + sp.exp(x) * sp.Trace(y.T * y)
    text = BilevelProblem("y @ y", "mean((A @ y - b)**2) + exp(x)*(y @ y)", "x", "y[n]", data={"A": "m, n", "b": "m"})
    for x_, y_, data in [
        (x, y, {"A": "m, n", "b": "m"}),
        ("x", "y", {A: "m, n", b: "m"}),
        ([x], [y], {"A": "m, n", b: "m"}),
    ]:
        problem = BilevelProblem(f, g, x_, y_, data=data)
        assert problem == text
        assert problem.digest == text.digest
        assert problem.y == (y,)
        assert (problem.f, problem.g) == (f, g)
        assert pickle.loads(pickle.dumps(problem)) == problem
    column = BilevelProblem(f, g, x, y, data={"A": A32, "b": np.array(b3).reshape(3, 1)})
    assert column.dimensions == {"m": 3, "n": 2}
    with pytest.raises(InvalidProblem, match=r"b is \[m=3\] in the formulas and \[2\] in data"):
        BilevelProblem(f, g, x, y, data={"A": A32, "b": [1, 2]})


def test_numbers_in_shapes_of_sympy() -> None:
    x = sp.Symbol("x")
    A, y = sp.MatrixSymbol("A", 3, 2), sp.MatrixSymbol("y", 2, 1)
    problem = BilevelProblem(x * sp.Trace(y.T * y), sp.Trace((A * y).T * (A * y)), x, y, data={"A": A32})
    assert (problem.n, problem.dimensions) == (2, {"m": 3, "n": 2})
    square = sp.MatrixSymbol("A", 2, 2)
    assert BilevelProblem(x, sp.Trace(y.T * square * y), x, y, data={"A": np.eye(2)}).dimensions == {"n": 2}


# ---- samples --------------------------------------------------------------------------------------------------------


def rows(seed: int) -> tuple[Any, Any, Any, Any]:
    rng = np.random.default_rng(seed)
    return tuple(np.round(rng.uniform(-1, 1, shape), 2) for shape in ((5, 2), (5,), (4, 2), (4,)))  # type: ignore[return-value]


F, G = "(a @ y - b)**2 + x", "softplus(-d*(e @ y)) + logsumexp(e*y)*d**2 + exp(x)*(y @ y)/2"


def test_the_mean_over_rows_is_exact() -> None:
    a, b, e, d = rows(0)
    problem = StochasticProblem(F, G, "x", "y[n]", "a[n] b", "e[n] d", {"a": a, "b": b}, {"e": e, "d": d})
    arrays = {"x": np.array(0.3), "y": np.array([0.2, -0.4])}
    expected = {
        "f": np.mean([as_python(F, {**arrays, "a": a[k], "b": b[k]}) for k in range(5)]),
        "g": np.mean([as_python(G, {**arrays, "e": e[k], "d": d[k]}) for k in range(4)]),
    }
    mean = problem.mean
    assert mean.dimensions == {"m": 5, "k": 4, "n": 2}
    everything = {**arrays, "a": a, "b": b, "e": e, "d": d}
    for field in "fg":
        found = value(getattr(mean.array_model, field), everything, {"m": 5, "k": 4, "n": 2})
        np.testing.assert_allclose(found, expected[field], rtol=1e-12)
    written = BilevelProblem(
        "mean((a @ y - b)**2) + x", "mean(softplus(-d*(e @ y)) + d**2*logsumexp(e @ diag(y), axis=1)) + exp(x)*(y @ y)/2",
        "x", "y[n]", data={"a": a, "b": b, "e": e, "d": d},
    )  # fmt: skip
    assert mean == written


def test_a_mean_prints_and_is_saved_though_nobody_named_its_rows(tmp_path: Any) -> None:
    a, b, e, d = rows(2)
    mean = StochasticProblem(F, G, "x", "y[n]", "a[n] b", "e[n] d", {"a": a, "b": b}, {"e": e, "d": d}).mean
    assert eval(repr(mean), {"BilevelProblem": BilevelProblem}) == mean
    mean.save(tmp_path / "mean.toml")
    assert BilevelProblem.load(tmp_path / "mean.toml") == mean
    matrix = StochasticProblem("a @ y", "y @ y + c*sum(y)", "x", "y[n]", "a[n]", "c", {"a": a}, {"c": [1, 2]}).mean
    assert eval(repr(matrix), {"BilevelProblem": BilevelProblem}) == matrix


def test_samples_come_by_name_or_as_a_table() -> None:
    a, b, e, d = rows(1)
    by_name = StochasticProblem(F, G, "x", "y[n]", "a[n] b", "e[n] d", {"b": b, "a": a}, {"e": e, "d": d})
    table = StochasticProblem(
        F, G, "x", "y[n]", "a[n] b", "e[n] d", np.column_stack([a, b]), np.column_stack([e, d]).tolist()
    )
    assert by_name == table
    assert by_name.digest == table.digest
    assert hash(by_name) == hash(table)
    assert pickle.loads(pickle.dumps(table)) == table
    assert pickle.loads(pickle.dumps(table.mean)) == table.mean
    assert eval(repr(table), {"StochasticProblem": StochasticProblem}) == table
    assert [s.name for s in (*table.xi, *table.zeta)] == ["a", "b", "e", "d"]
    assert table.lowered() == table.mean.lowered()
    with pytest.raises(InvalidProblem, match=r"problem\.array_samples"):
        table.samples  # noqa: B018


@pytest.mark.parametrize(
    ("xi_data", "message"),
    [
        ({"a": np.zeros((5, 2))}, "b is missing in xi_data"),
        ({"a": np.zeros((5, 2)), "b": np.zeros(5), "c": [1]}, "c is not declared in xi_data"),
        ({"a": np.zeros((5, 2)), "b": np.zeros(4)}, r"b in xi_data has the shape \[4\], but with its rows it is \[5\]"),
        ({"a": np.zeros(5), "b": np.zeros(5)}, r"a in xi_data has the shape \[5\], but with its rows it is \[5, n\]"),
        ({"a": np.zeros((5, 3)), "b": np.zeros(5)}, "does not fit|has the shape"),
        ({"a": 1.0, "b": np.zeros(5)}, "a in xi_data has no rows"),
        ([[1.0]], "xi_data has 1 columns, which are not a.n. b end to end"),
        (np.zeros((2, 2, 2)), "have 3 axes"),
    ],
)
def test_samples_that_do_not_fit_are_refused(xi_data: Any, message: str) -> None:
    with pytest.raises(InvalidProblem, match=message):
        StochasticProblem(F, "y @ y + c*sum(y)", "x", "y[2]", "a[n] b", "c", xi_data, {"c": [1.0]})


def test_the_noise_of_a_level_stands_in_that_level_alone() -> None:
    with pytest.raises(UnsafeExpression, match="unknown name c"):
        StochasticProblem("c*sum(y)", "y @ y + c*sum(y)", "x", "y[2]", "a", "c", {"a": [1.0]}, {"c": [1.0]})


def test_a_mean_of_what_is_not_random_is_itself() -> None:
    problem = StochasticProblem("sum(y)", "sum((y - c)**2)", "x", "y[n]", [], "c[n]", {}, {"c": [[1.0, 2.0]]})
    assert problem.mean.dimensions == {"m": 1, "n": 2}
    assert problem.mean.array_model.f == BilevelProblem("sum(y)", "y @ y", "x", "y[n]").array_model.f


def test_data_arrays_are_what_they_say() -> None:
    assert isinstance(ridge()._statement.data["A"].array, DataArray)  # type: ignore[union-attr]
