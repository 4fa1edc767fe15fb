"""A few runs from different starts, and how the error of the hypergradient falls with inner steps."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Literal

import numpy as np

from bilevel_sym import AID, ITD, GDmax, solve
from bilevel_sym.errors import BilevelError, InvalidArgument
from bilevel_sym.estimators import Estimator
from bilevel_sym.plotting import COLOURS, plot_solution
from bilevel_sym.solvers.named import algorithm_for, start_of
from bilevel_sym.typing import Axes, Floats
from verify.reporting.drawing import figure_of
from verify.reporting.markup import Markup, number, paragraph, table, together
from verify.reporting.sections.pictures import require_pictures
from verify.reporting.subject import Subject, why_not

__all__ = ["hypergradient", "runs"]

RUNS, STEPS, ACCURACY = 4, 300, 1e-3
INNER = (1, 2, 4, 8, 16, 32, 64, 128)
AT_POINTS = 6
LARGEST_LOWER_LEVEL = 1500  # variables in y of which g_yy is looked at
STYLES = ("-o", "--s")


def runs(subject: Subject) -> Markup:
    """Runs from the centre and from points drawn from the box, with what suits the problem.

    >>> from bilevel_sym import zoo
    >>> runs(Subject(zoo.get("scalar").problem, 0, 1.0, None, "")).count("<th scope=\\"row\\"")
    4
    """
    problem = subject.problem
    _require_smooth(subject)
    algorithm = algorithm_for(problem, None, eps=ACCURACY, x0=start_of(problem))
    stop: Literal["local minimum"] | None = None if problem.kind == "stochastic" else "local minimum"
    solution = solve(problem, algorithm, subject.points(RUNS, 1), steps=STEPS, rng=subject.seed, stop=stop)
    slopes = np.linalg.norm(solution.grad_phi, axis=-1)
    lengths = np.atleast_1d(solution.trajectory.length) - 1
    rows = [
        (str(k), status.message, str(int(lengths[k])), number(solution.phi[k], 8), number(slopes[k], 3))
        for k, status in enumerate(solution.statuses)
    ]
    heads = ("run", "how it ended", "steps", "Φ at the end", "|∇Φ| at the end")
    start = (
        "the centre of the box, the others at points drawn from it"
        if problem.box is not None
        else "zero, the others near it"
    )
    how = f"At most {STEPS} steps, eps = {ACCURACY:g}, by {_short(str(algorithm))}."
    said = paragraph(f"Run 0 starts at {start}. {how}")
    shown = [said, table("A few runs", heads, rows)]
    try:
        shown.append(_picture(solution))
    except BilevelError as error:
        shown.append(why_not(error))
    return together(shown)


def _short(text: str) -> str:
    """With five digits of each number: the others follow from the seed."""
    return re.sub(r"\d+\.\d{5,}(e-?\d+)?", lambda found: f"{float(found[0]):.5g}", text)


def _require_smooth(subject: Subject) -> None:
    """Refuse where f or g has a kink: Newton's method may go to and fro across it for minutes."""
    if subject.problem.has_kinks:
        raise InvalidArgument("f or g has kinks or switches, and runs are made of smooth problems only")


def _picture(solution: object) -> Markup:
    require_pictures()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.6), layout="constrained")
    plot_solution(solution, figure.subplots())  # type: ignore[arg-type]
    alt = f"Phi along {RUNS} runs, as their median and quartiles over the iterations."
    return figure_of(figure, "runs", alt, "Φ along the runs; one that has ended keeps its last value.")


def hypergradient(subject: Subject) -> Markup:
    """The relative error of estimates of grad Phi, against Newton's, by the number of inner steps.

    >>> from bilevel_sym import zoo
    >>> hypergradient(Subject(zoo.get("scalar").problem, 0, 1.0, None, "")).count("<tr>") > 8
    True
    """
    _require_smooth(subject)
    if subject.problem.n > LARGEST_LOWER_LEVEL:
        raise InvalidArgument(f"y has {subject.problem.n} variables, and g_yy of that size is not looked at")
    x = subject.points(AT_POINTS, 2)
    exact = subject.problem.mean.kernels.grad_phi(x)
    tau = 1.0 / subject.curvature(x)
    errors = {name: _errors(subject, made, x, exact) for name, made in _estimators(subject, tau).items()}
    heads = ("inner steps", *(f"{name}, {what}" for name in errors for what in ("median", "largest")))
    rows = [
        (str(D), *(number(value, 3) for found in errors.values() for value in (np.median(found[k]), np.max(found[k]))))
        for k, D in enumerate(INNER)
    ]
    said = paragraph(
        f"Relative errors at {AT_POINTS} points, from a cold start; D steps on y of length {tau:.4g} each, and as many "
        "for the linear system."
    )
    shown = [said, table("Error of the hypergradient", heads, rows)]
    if not any(found.any() for found in errors.values()):
        return together([*shown, paragraph("One step is exact here, so there is nothing to draw.")])
    try:
        shown.append(_error_picture(errors))
    except BilevelError as error:
        shown.append(why_not(error))
    return together(shown)


def _estimators(subject: Subject, tau: float) -> Mapping[str, tuple[Estimator, ...]]:
    if subject.problem.kind == "minimax":
        return {"GDmax": tuple(GDmax(D, tau) for D in INNER)}
    return {"AID": tuple(AID(D, D, tau) for D in INNER), "ITD": tuple(ITD(D, tau) for D in INNER)}


def _errors(subject: Subject, made: tuple[Estimator, ...], x: Floats, exact: Floats) -> Floats:
    """(number of inner steps, points)."""
    size = np.maximum(np.linalg.norm(exact, axis=-1), np.finfo(np.float64).tiny)
    found = [estimator.estimate(subject.problem.mean, x).grad_phi_hat for estimator in made]
    return np.array([np.linalg.norm(hat - exact, axis=-1) / size for hat in found])


def _error_picture(errors: Mapping[str, Floats]) -> Markup:
    require_pictures()
    from matplotlib.figure import Figure

    figure = Figure(figsize=(6.4, 3.4), layout="constrained")
    ax: Axes = figure.subplots()
    for k, (name, found) in enumerate(errors.items()):
        height = np.maximum(np.median(found, axis=1), np.finfo(np.float64).eps / 4)
        ax.plot(INNER, height, STYLES[k], color=COLOURS[k], label=name, markersize=4)
    ax.set_xscale("log", base=2)
    ax.set_yscale("log")
    ax.set_xticks(INNER, list(map(str, INNER)))
    ax.set_xlabel("inner steps D")
    ax.set_ylabel("relative error, median")
    ax.legend(frameon=False)
    ends = ", ".join(f"{name} reaches {np.median(found[-1]):.2g}" for name, found in errors.items())
    meant = "The median of the relative errors; what is below 1e-16 is drawn there."
    return figure_of(figure, "errors", f"Error against inner steps: {ends}.", meant)
