"""Derivations of array problems: the form that a paper would use, and the numbers against differences of Phi."""

from __future__ import annotations

import json
import math
import shutil
import subprocess
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import sympy as sp
from array_notation import SymPyValue, value_of

from bilevel_sym import BilevelProblem, MinimaxProblem
from bilevel_sym import derive as derive_any
from bilevel_sym.arrays.algebra import apply
from bilevel_sym.arrays.display import to_latex
from bilevel_sym.arrays.normal import ones
from bilevel_sym.arrays.tensor import Leaf, Tensor
from bilevel_sym.cli import main
from bilevel_sym.errors import NoClosedForm
from bilevel_sym.graph.operations import OPERATIONS
from bilevel_sym.symbolic.array_derivation import ArrayDerivation

SCHEMAS = Path(__file__).resolve().parent.parent / ".github" / "docs" / "schemas"
derive: Callable[..., Any] = derive_any  # an ArrayDerivation here


# ---- the form that a paper would use ----------------------------------------------------------------------------------

SHAPES_OF_DATA = {"A": "m, n", "b": "m", "B": "p, n", "c": "p"}
SOFTMAX_DATA = {"A": "m, n", "C": "m, k", "B": "p, n", "D": "p, k"}
CROSS_ENTROPY = "mean(logsumexp({0} @ W, axis=1)) - sum({1}*({0} @ W))/{2}"


def ridge() -> BilevelProblem:
    return BilevelProblem(
        "sum((B @ y - c)**2)/2", "sum((A @ y - b)**2)/2 + exp(x)*(y @ y)/2", "x", "y[n]", data=SHAPES_OF_DATA
    )


def logistic() -> BilevelProblem:
    return BilevelProblem(
        "mean(softplus(-c*(B @ y)))", "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2", "x[n]", "y[n]",
        data=SHAPES_OF_DATA,
    )  # fmt: skip


def softmax() -> BilevelProblem:
    g = CROSS_ENTROPY.format("A", "C", "m") + " + exp(x)*sum(W**2)/2"
    return BilevelProblem(CROSS_ENTROPY.format("B", "D", "p"), g, "x", "W[n, k]", data=SOFTMAX_DATA)


def cleaning() -> BilevelProblem:
    return BilevelProblem(
        "mean((B @ y - c)**2)/2", "mean(sigmoid(x)*(A @ y - b)**2)/2 + r*(y @ y)/2", "x[m]", "y[n]",
        data=SHAPES_OF_DATA, parameters={"r": None},
    )  # fmt: skip


def robust() -> MinimaxProblem:
    f = "mean((A @ x - b - y)**2)/2 - r*(y @ y)/2"
    return MinimaxProblem(f, "x[n]", "y[m]", data={"A": "m, n", "b": "m"}, parameters={"r": None})


def tikhonov() -> BilevelProblem:
    data = {"A": "m, n", "b": "m", "t": "n"}
    g = "sum((A @ y - b)**2)/2 + sum((D @ y)**2)/2"
    return BilevelProblem("sum((y - t)**2)/2", g, "D[q, n]", "y[n]", data=data)


def intercept() -> BilevelProblem:
    g = "sum((A @ y + s - b)**2)/2 + exp(x)*(y @ y)/2"
    return BilevelProblem("sum((B @ y + s - c)**2)/2", g, "x", "y[n] s", data=SHAPES_OF_DATA)


def two_penalties() -> BilevelProblem:
    g = "sum((A @ y - b)**2)/2 + exp(x) @ y**2/2 + exp(z)*(y @ y)/2"
    return BilevelProblem("sum((B @ y - c)**2)/2", g, "x[n] z", "y[n]", data=SHAPES_OF_DATA)


def multitask() -> BilevelProblem:
    g = "sum((A @ W - C)**2)/2 + exp(x)*sum(W**2)/2"
    return BilevelProblem("sum((B @ W - D)**2)/2", g, "x", "W[n, k]", data=SOFTMAX_DATA)


def rows_alike() -> BilevelProblem:
    """Every row of W is solved for with the same matrix."""
    g = "sum(W*(W @ (F.T @ F)))/2 + sum(W**2)/2 - exp(x)*sum(W*C)"
    return BilevelProblem("sum(W**4)", g, "x", "W[n, k]", data={"F": "q, k", "C": "n, k"})


def columns_differ() -> BilevelProblem:
    """Quadratic in W, but every column has a matrix of its own."""
    g = "sum(W*(F.T @ F @ W @ diag(c)))/2 + sum(W**2)/2 - exp(x)*sum(W*C)"
    return BilevelProblem("sum(W**4)", g, "x", "W[n, k]", data={"F": "q, n", "C": "n, k", "c": "k"})


def diagonal() -> BilevelProblem:
    """The Hessian is diagonal, and depends on y."""
    return BilevelProblem("sum((y - b)**2)/2", "sum(y**4)/4 + exp(x) @ y**2/2 - b @ y", "x[n]", "y[n]", data={"b": "n"})


PROBLEMS = (
    ridge, logistic, softmax, cleaning, robust, tikhonov, intercept, two_penalties, multitask, rows_alike, diagonal,
    columns_differ,
)  # fmt: skip

GOLDEN = {
    ridge: (
        "lower level: quadratic in y: one linear solve",
        "  y = solve(H, A.T @ b)",
        "  H = A.T @ A + exp(x)*eye(n)",
        "Phi(x) = sum((B @ y - c)**2)/2, at y = y*(x)",
        "v = solve(H, B.T @ (B @ y - c))",
        "grad Phi(x) = -exp(x)*(y @ v)",
        "dy_dx = -solve(H, exp(x)*y)",
        "Hess Phi(x) = L_xx + 2*L_xy @ dy_dx + dy_dx @ L_yy @ dy_dx",
        "    L_yy = B.T @ B",
    ),
    logistic: (
        "  0 = exp(x)*y - A.T @ (b*sigmoid(-b*(A @ y)))/m",
        "  H = A.T @ diag(b**2*sigmoid'(b*(A @ y))) @ A/m + diag(exp(x))",
        "v = solve(H, -B.T @ (c*sigmoid(-c*(B @ y)))/p)",
        "grad Phi(x) = -exp(x)*y*v",
        "dy_dx = -solve(H, diag(exp(x)*y)).T",
        "Hess Phi(x) = L_xx + L_xy @ dy_dx.T + dy_dx @ L_xy.T + dy_dx @ L_yy @ dy_dx.T",
        "    L_xx = -diag(exp(x)*y*v)",
        "    L_xy = -diag(exp(x)*v)",
    ),
    softmax: (
        "  0 = exp(x)*W + A.T @ softmax(A @ W, axis=1)/m - A.T @ C/m",
        "  f_y = B.T @ softmax(B @ W, axis=1)/p - B.T @ D/p",
        "grad Phi(x) = -exp(x)*sum(W*v)",
    ),
    cleaning: (
        "  y = solve(H, A.T @ (b*sigmoid(x))/m)",
        "  H = A.T @ diag(sigmoid(x)) @ A/m + r*eye(n)",
        "grad Phi(x) = -sigmoid'(x)*(A @ y - b)*(A @ v)/m",
        "    L_xy = -diag(sigmoid'(x)*(A @ v)) @ A/m",
    ),
    robust: (
        "lower level: quadratic in y, with a diagonal Hessian: divided entry by entry",
        "  y = (A @ x - b)/(m*(1/m - r))",
        "grad Phi(x) = A.T @ (A @ x - b - y)/m",
        "Hess Phi(x) = f_xx + dy_dx @ f_xy.T",
    ),
    tikhonov: (
        "  y = solve(H, A.T @ b)",
        "  H = A.T @ A + D.T @ D",
        "v = solve(H, y - t)",
        "grad Phi(x) = -outer(D @ v, y) - outer(D @ y, v)",
    ),
    multitask: ("  W = solve(H, A.T @ C)", "  H = A.T @ A + exp(x)*eye(n)"),
    rows_alike: ("lower level: quadratic in y: one linear solve for all rows", "  H = F.T @ F + eye(k)"),
    intercept: ("lower level: quadratic in y: one joint linear system for y, s",),
    diagonal: ("v = -(b - y)/(exp(x) + 3*y**2)", "dy_dx = -diag(exp(x)*y/(exp(x) + 3*y**2))",),
}  # fmt: skip


@pytest.mark.parametrize("problem", GOLDEN, ids=lambda make: make.__name__)
def test_the_form_that_a_paper_would_use(problem: Callable[[], BilevelProblem]) -> None:
    text = derive(problem()).text()
    lines = text.split("\n")
    assert [line for line in GOLDEN[problem] if line not in lines] == [], text


def test_latex_of_a_paper() -> None:
    latex = derive(logistic()).latex()
    assert (
        r"H &= \frac{1}{m} \, A^{\top} \operatorname{diag}\left(b^{2} \odot \sigma'\left(b \odot"
        r" \left(A y\right)\right)\right) A + \operatorname{diag}\left(e^{x}\right)" in latex
    )
    assert r"\nabla \Phi(x) &= -e^{x} \odot y \odot v" in latex
    assert r"\lVert B y - c \rVert^{2}" in to_latex(ridge().array_model.f)


# ---- derivations in numbers -------------------------------------------------------------------------------------------


class Numbers:
    """A problem at random data: y* by Newton's method, and the formulas of its derivation, laid end to end."""

    def __init__(self, problem: BilevelProblem) -> None:
        self.derivation = derive(problem)
        self.model, self.formulas = self.derivation.model, self.derivation.formulas
        self.sizes = {dim: 2 + k for k, dim in enumerate(sorted(problem.dimensions))}
        rng = np.random.default_rng(7)
        self.arrays: dict[str, Any] = {
            leaf.name: rng.uniform(0.3, 1.1, self.shape(leaf)) for leaf in self.model.f.leaves | self.model.g.leaves
        }
        self.arrays["r"] = np.array(2.5)
        self.x0 = rng.uniform(-0.4, 0.6, sum(self.count(leaf) for leaf in self.model.x))

    def shape(self, leaf: Leaf) -> tuple[int, ...]:
        return tuple(self.sizes[dim] for dim in leaf.dims)

    def count(self, leaf: Leaf) -> int:
        return math.prod(self.shape(leaf))

    def put(self, leaves: Iterable[Leaf], flat: Any) -> dict[str, Any]:
        ends = np.cumsum([self.count(leaf) for leaf in leaves])[:-1]
        parts = np.split(np.asarray(flat, dtype=float), ends)
        return {leaf.name: part.reshape(self.shape(leaf)) for leaf, part in zip(leaves, parts, strict=True)}

    def value(self, tensor: Tensor, known: Mapping[str, Any]) -> Any:
        return value_of(tensor, known, self.sizes)

    def column(self, blocks: Mapping[Any, Tensor], known: Mapping[str, Any]) -> Any:
        return np.concatenate([np.ravel(self.value(tensor, known)) for tensor in blocks.values()])

    def matrix(self, blocks: Mapping[Any, Tensor], rows: Sequence[Leaf], cols: Sequence[Leaf], known: Any) -> Any:
        return np.block([
            [self.value(blocks[a, b], known).reshape(self.count(a), self.count(b)) for b in cols] for a in rows
        ])  # fmt: skip

    def at(self, x: Any) -> dict[str, Any]:
        """Every name at y = y*(x): y, v and dy_dx."""
        model = self.model
        known = self.arrays | self.put(model.x, x)
        y = np.zeros(sum(self.count(leaf) for leaf in model.y))
        for _ in range(60):
            known |= self.put(model.y, y)
            hessian = self.matrix(model.block("g_yy"), model.y, model.y, known)
            y = y - np.linalg.solve(hessian, self.column(model.block("g_y"), known))
        known |= self.put(model.y, y)
        known |= self.put(model.v, np.linalg.solve(hessian, self.column(self.formulas.block("f_y"), known)))
        mixed = self.matrix(model.block("g_xy"), model.x, model.y, known)
        self.slopes = -np.linalg.solve(hessian, mixed.T).T
        rows = self.put(model.x, np.arange(len(x)))
        columns = self.put(model.y, np.arange(len(y)))
        for (a, c), leaf in self.formulas.responses.items():
            part = self.slopes[np.ix_(np.ravel(rows[a.name]).astype(int), np.ravel(columns[c.name]).astype(int))]
            known[leaf.name] = part.reshape(self.shape(a) + self.shape(c))
        self.hessian_of_g, self.mixed = hessian, mixed
        return known

    def phi(self, x: Any) -> float:
        return float(self.value(self.model.f, self.at(x)))

    def gradient(self, x: Any) -> Any:
        return self.column(self.formulas.gradient, self.at(x))


def differences(function: Callable[[Any], Any], x: Any, step: float = 1e-4) -> Any:
    columns = [
        (
            8 * (function(x + step * e) - function(x - step * e))
            - function(x + 2 * step * e)
            + function(x - 2 * step * e)
        )
        / (12 * step)
        for e in np.eye(len(x))
    ]
    return np.array(columns)


@pytest.mark.slow
@pytest.mark.in_ci(every=3)
@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda make: make.__name__)
def test_derivations_against_differences(problem: Callable[[], BilevelProblem]) -> None:
    at = Numbers(problem())
    formulas, x, known = at.formulas, at.x0, at.at(at.x0)
    gradient = at.gradient(x)
    assert np.allclose(gradient, differences(at.phi, x), rtol=1e-6, atol=1e-8)
    terms = [at.column(term, known) for term in formulas.gradient_terms.values()]
    assert np.allclose(sum(terms), gradient, rtol=1e-10, atol=1e-12)
    known = at.at(x)
    hessian = at.matrix(formulas.hessian, at.model.x, at.model.x, known)
    assert np.allclose(hessian, differences(at.gradient, x), rtol=1e-5, atol=1e-7)
    known = at.at(x)
    parts = [at.matrix(term, at.model.x, at.model.x, known) for term in formulas.hessian_terms.values()]
    assert np.allclose(sum(parts), hessian, rtol=1e-9, atol=1e-11)
    for axes in ("xx", "xy", "yy"):
        blocks = formulas.pairs(f"L_{axes}")
        known |= {leaf.name: at.value(blocks[pair], known) for pair, leaf in formulas.lagrangian_leaves(axes).items()}
    named = at.matrix(formulas.named_hessian, at.model.x, at.model.x, known)
    assert np.allclose(named, hessian, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("problem", PROBLEMS, ids=lambda make: make.__name__)
def test_the_hessian_along_a_direction(problem: Callable[[], BilevelProblem]) -> None:
    at = Numbers(problem())
    formulas, known = at.formulas, at.at(at.x0)
    hessian = at.matrix(formulas.hessian, at.model.x, at.model.x, known)
    u = np.linspace(-1, 1, len(at.x0)) + 0.3
    parts = formulas.along_direction
    known |= at.put([formulas.moves[leaf] for leaf in at.model.x], u)
    for part, letters in (("dy", formulas.moves), ("w", formulas.adjoint_moves)):
        solution = np.linalg.solve(at.hessian_of_g, at.column(parts[part], known))
        known |= at.put([letters[leaf] for leaf in at.model.y], solution)
    assert np.allclose(at.column(parts["hess"], known), hessian @ u, rtol=1e-9, atol=1e-11)


@pytest.mark.parametrize("problem", [p for p in PROBLEMS if p not in (logistic, softmax, diagonal, columns_differ)],
                         ids=lambda make: make.__name__)  # fmt: skip
def test_closed_forms_solve_the_lower_level(problem: Callable[[], BilevelProblem]) -> None:
    at = Numbers(problem())
    known, derivation = at.at(at.x0), at.derivation
    assert derivation.is_closed_form
    found = ArrayDerivation(at.model, at.sizes, is_minimax=derivation.is_minimax)
    values = found.y_star if isinstance(found.y_star, dict) else {at.model.y[0].name: found.y_star}
    for names, expression in values.items():
        names = names if isinstance(names, tuple) else (names,)
        exact = np.concatenate([np.ravel(known[name]) for name in names])
        assert np.allclose(np.ravel(SymPyValue(known)(expression, {})), exact, rtol=1e-9)
    phi = SymPyValue(known)(found.phi, {})
    assert np.isclose(phi, at.value(at.model.f, known), rtol=1e-9)


@pytest.mark.parametrize("problem", [ridge, logistic, cleaning, robust, diagonal], ids=lambda make: make.__name__)
def test_auxiliaries_lead_to_the_hessian(problem: Callable[[], BilevelProblem]) -> None:
    """Each is computed from the earlier ones; the last is the Hessian."""
    at = Numbers(problem())
    known = at.at(at.x0)
    expected = at.matrix(at.formulas.hessian, at.model.x, at.model.x, known)
    found = ArrayDerivation(at.model, at.sizes, is_minimax=at.derivation.is_minimax)
    value = dict(at.arrays | at.put(at.model.x, at.x0) | at.put(at.model.y, np.concatenate([
        np.ravel(known[leaf.name]) for leaf in at.model.y])))  # fmt: skip
    for symbol, expression in found.auxiliaries.items():
        value[symbol.name] = SymPyValue(value)(expression, {})
    assert np.allclose(np.ravel(value["hess_phi"]), np.ravel(expected), rtol=1e-9)
    assert np.allclose(np.ravel(value["grad_phi"]), np.ravel(at.gradient(at.x0)), rtol=1e-9)
    assert next(iter(found.auxiliary_texts)) == "H"


def test_no_closed_form_where_g_is_not_quadratic() -> None:
    assert not derive(logistic()).is_closed_form
    with pytest.raises(NoClosedForm, match="its Hessian depends on y"):
        derive(logistic(), closed_form=True)
    assert derive(ridge(), closed_form=False).y_star is None


def test_columns_that_have_matrices_of_their_own_are_not_solved_as_one() -> None:
    derivation = derive(columns_differ())
    assert not derivation.is_closed_form
    assert derivation.method == "quadratic in y: linear equations whose matrix has no matrix form"
    assert "v solves g_yy[v] = f_y" in derivation.text()


def test_the_users_own_symbols() -> None:
    m, n = sp.symbols("m n")
    A, y, b = sp.MatrixSymbol("A", m, n), sp.MatrixSymbol("y", n, 1), sp.MatrixSymbol("b", m, 1)
    x = sp.Symbol("x", positive=True)
    residual = A * y - b
    g = sp.Trace(residual.T * residual) / 2 + x * sp.Trace(y.T * y) / 2
    problem = BilevelProblem(sp.Trace(y.T * y), g, x, y, data={"A": "m, n", "b": "m"})
    assert derive(problem).y_star.atoms(sp.Symbol, sp.MatrixSymbol) == {x, A, b, m, n}


def test_several_arrays_are_told_by_name() -> None:
    derivation = derive(two_penalties())
    assert set(derivation.grad_phi) == {"x", "z"}
    assert set(derivation.hess_phi) == {("x", "x"), ("x", "z"), ("z", "x"), ("z", "z")}
    assert set(derivation.blocks["g_xy"]) == {("x", "y"), ("z", "y")}
    assert set(derivation.terms["hess_phi"]) == set(derive(ridge()).terms["hess_phi"])
    assert set(derive(intercept()).y_star) == {("y", "s")}


def test_names_that_formulas_use_are_left_to_the_user() -> None:
    data = {"H": "n", "v": "n", "dy_dx": "n"}
    problem = BilevelProblem("s**4 + dy_dx @ x", "s**2*(H @ x)/2 + s*(v @ x)", "x[n]", "s", data=data)
    text = derive(problem).text()
    assert "v_ = 4*s**3/(H @ x)" in text
    assert "dy_dx_ = " in text


# ---- LaTeX ------------------------------------------------------------------------------------------------------------


def latex_samples() -> Iterator[str]:
    for problem in PROBLEMS:
        derivation = derive(problem())
        yield from (derivation.latex(form=form) for form in ("entries", "terms", "blocks"))
        yield from (to_latex(t) for name in ("g_xyy", "g_yyy") for t in problem().array_model.block(name).values())
    for name in ("a$b", "x y", "%", "}{", "^^41", "x#1", "&", "~", "a_b_c_"):
        yield to_latex(Tensor.leaf(Leaf(name, ("n",), "data")))
    z = Tensor.leaf(Leaf("z", ("n",), "y"))
    yield from (to_latex(apply(op, z)) for op, record in OPERATIONS.items() if record.arity == 1 and "pow" not in op)
    yield to_latex(apply("select", apply("lt", z), z, ones(("n",), 0)))
    yield to_latex(apply("max", z, ones(("n",), 1)))


@pytest.mark.slow
def test_latex_compiles(tmp_path: Path) -> None:
    if shutil.which("pdflatex") is None:
        pytest.skip("pdflatex is not installed; Debian: texlive-latex-base")
    body = "\n".join(f"\\[{latex}\\]" for latex in latex_samples())
    document = "\\documentclass{article}\\usepackage{amsmath,amssymb}\\begin{document}\n" + body + "\n\\end{document}"
    (tmp_path / "all.tex").write_text(document)
    run = subprocess.run(
        ["pdflatex", "-interaction=nonstopmode", "-halt-on-error", "-no-shell-escape", "all.tex"],
        cwd=tmp_path, capture_output=True, text=True, errors="replace", check=False,
    )  # fmt: skip
    assert run.returncode == 0, run.stdout[-1500:]


# ---- the command line -------------------------------------------------------------------------------------------------

TOML = """
x = ["x"]
y = ["y[n]"]
f = "sum((y - b)**2)"
g = "sum((A @ y - b)**2)/2 + exp(x)*(y @ y)/2"
[data]
A = [[1, 2], [3, 5]]
b = [1, -1]
"""


def test_the_command_line_derives_arrays(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "ridge.toml").write_text(TOML)
    shown = {}
    for form in ("text", "latex", "json"):
        assert main(["derive", str(tmp_path / "ridge.toml"), "--format", form]) == 0
        shown[form] = capsys.readouterr().out
    assert "  y = solve(H, A.T @ b)" in shown["text"]
    assert r"\nabla \Phi(x) &=" in shown["latex"]
    record = json.loads(shown["json"])
    assert record["auxiliaries"]["H"] == "A.T @ A + exp(x)*eye(n)"
    schema = json.loads((SCHEMAS / "derivation.json").read_text())
    assert set(record) == set(schema["required"])


def test_scalar_derivations_have_text_too() -> None:
    assert derive(BilevelProblem("x*y", "y**2/2 - x*y", "x", "y")).text().startswith("lower level: linear in y")
