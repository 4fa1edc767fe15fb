"""Problems on real data, in arrays: penalties, weights and starts to choose for tables of measurements.

Rows take turns: the first is trained on, the second held out, and so on. Of the whole table each example tells what
was proved: the notes ``phi_at_zero`` and ``grad_phi_at_zero`` are digits of Phi and of the first entries of grad Phi at
x = 0, and the constants hold over the box; ``evaluate`` and ``verify.constants`` prove them again.
"""

from __future__ import annotations

import numpy as np

from bilevel_sym import Constants
from bilevel_sym.problem.problem import BilevelProblem, MinimaxProblem
from bilevel_sym.typing import Floats
from bilevel_sym.zoo.entry import Example, entry, require_range
from bilevel_sym.zoo.tables import alternate, indicator, standard, table

__all__ = ["breast_cancer", "diabetes", "digit_cleaning", "digits", "feature_scales", "few_shot", "robust_diabetes"]

PEDREGOSA = "Pedregosa, Hyperparameter optimization with approximate gradient, ICML 2016"


@entry
def breast_cancer(*, rows: int = 569) -> Example:
    """A penalty for each of 30 features in a logistic regression on tumours.

    >>> breast_cancer().problem.dimensions
    {'k': 284, 'm': 285, 'n': 30}
    """
    require_range("rows", rows, 4, 569)
    training, held_out = standard(alternate(table("breast_cancer"), rows))
    return Example(
        problem=BilevelProblem(
            "mean(softplus(-c*(B @ y)))", "mean(softplus(-b*(A @ y))) + exp(x) @ y**2/2", "x[n]", "y[n]",
            data={
                "A": training.features, "b": 2 * training.targets - 1,
                "B": held_out.features, "c": 2 * held_out.targets - 1,
            },
            box={"x": (-2, 2), "y": (-3, 3)}, name="breast_cancer",
        ),
        reference=f"{PEDREGOSA}; data: Wolberg, Mangasarian and Street 1995 (CC BY 4.0).",
        constants=_over_box(rows == 569, mu=0.135335, ell=33.2508, rho=22.1672, nu=143.208, M=2.97976),
        notes=_at_zero(rows == 569, "0.322358961702", "0.00637780561298", "0.00292517158204", "0.00634414216224"),
    )  # fmt: skip


@entry
def digits(*, rows: int = 1797) -> Example:
    """A penalty for each of 64 pixels in a softmax regression on handwritten digits.

    >>> digits(rows=200).problem.d, digits(rows=200).problem.n
    (64, 640)
    """
    require_range("rows", rows, 20, 1797)
    training, held_out = alternate(table("digits"), rows)
    loss = "mean(logsumexp({A} @ W, axis=1)) - mean(sum({T}*({A} @ W), axis=1))"
    return Example(
        problem=BilevelProblem(
            loss.format(A="B", T="S"), loss.format(A="A", T="T") + " + exp(x) @ sum(W**2, axis=1)/2", "x[n]", "W[n, c]",
            data={
                "A": training.features / 16, "T": indicator(training.targets, 10),
                "B": held_out.features / 16, "S": indicator(held_out.targets, 10),
            },
            box={"x": (-2, 2), "W": (-3, 3)}, name="digits",
        ),
        reference=f"{PEDREGOSA}; data: Alpaydin and Kaynak 1998 (CC BY 4.0).",
        constants=_over_box(rows == 1797, mu=0.135335, ell=332.509, rho=70.0988, nu=81.1508, M=4.33760),
        notes=_at_zero(rows == 1797, "2.12198722987", "0", "0.0000468897710145", "0.00328582679976"),
    )  # fmt: skip


@entry
def diabetes(*, rows: int = 442) -> Example:
    """A penalty for each of 10 features in a ridge regression on patients; y* is the solution of a linear system.

    >>> diabetes().problem.dimensions
    {'k': 221, 'm': 221, 'n': 10}
    """
    return Example(
        problem=BilevelProblem(
            "mean((B @ y - c)**2)/2", "mean((A @ y - b)**2)/2 + exp(x) @ y**2/2", "x[n]", "y[n]",
            data=_patients(rows),
            box={"x": (-2, 2), "y": (-3, 3)}, name="diabetes",
        ),
        reference=f"{PEDREGOSA}; data: Efron, Hastie, Johnstone and Tibshirani 2004.",
        constants=_over_box(rows == 442, mu=0.142781, ell=33.2508, rho=22.1672, nu=22.1672, M=35.8302),
        notes=_at_zero(rows == 442, "0.236092987374", "0.0000353166492981", "0.00181234846845", "0.0130233531447"),
    )  # fmt: skip


@entry
def digit_cleaning(*, rows: int = 1000, corrupted: int = 40) -> Example:
    """A weight for each of 1000 handwritten digits, 40 in a hundred of which carry a wrong label.

    The note ``wrong_labels`` says which rows, counting from 0; a good weight for them is a small one. A wrong label
    is the right one plus 1 to 9, in turn.

    >>> example = digit_cleaning(rows=100)
    >>> example.problem.d, len(example.notes["wrong_labels"])
    (100, 40)
    """
    require_range("rows", rows, 10, 1000)
    require_range("corrupted", corrupted, 0, 90)
    whole = table("digits")
    wrong = np.flatnonzero(np.arange(rows) * 37 % 100 < corrupted)
    labels = whole.targets[:rows].copy()
    labels[wrong] = (labels[wrong] + 1 + np.arange(len(wrong)) % 9) % 10
    loss = "logsumexp({A} @ W, axis=1) - sum({T}*({A} @ W), axis=1)"
    return Example(
        problem=BilevelProblem(
            f"mean({loss.format(A='B', T='S')})",
            f"mean(sigmoid(x)*({loss.format(A='A', T='T')})) + sum(W**2)/200", "x[m]", "W[n, c]",
            data={
                "A": whole.features[:rows] / 16, "T": indicator(labels, 10),
                "B": whole.features[1000:] / 16, "S": indicator(whole.targets[1000:], 10),
            },
            box={"x": (-4, 4), "W": (-3, 3)}, name="digit_cleaning",
        ),
        reference="Franceschi et al., ICML 2017; data: Alpaydin and Kaynak 1998 (CC BY 4.0).",
        notes={
            **_at_zero((rows, corrupted) == (1000, 40), "1.16319635744", "0.000878512713738", "0.000393833262931"),
            "wrong_labels": tuple(wrong.tolist()),
        },
    )  # fmt: skip


@entry
def feature_scales(*, rows: int = 442) -> Example:
    """A scale for each of 10 features of patients, of which none is in use at x = 0.

    g = mean of ((A diag(x) y)_i - b_i)^2/2 + |y|^2/20. A feature whose scale is 0 has the weight 0, and Phi does not
    change with the sign of a scale: so grad Phi vanishes at 0, and a descent that begins with some scales at 0 keeps
    them there, however useful these features are.

    >>> float(abs(feature_scales().problem.kernels.grad_phi(np.zeros(10))).max())
    0.0
    """
    return Example(
        problem=BilevelProblem(
            "mean((B @ (x*y) - c)**2)/2", "mean((A @ (x*y) - b)**2)/2 + y @ y/20", "x[n]", "y[n]",
            data=_patients(rows),
            box={"x": (-2, 2), "y": (-3, 3)}, name="feature_scales",
        ),
        reference="Made for this package; data: Efron, Hastie, Johnstone and Tibshirani 2004.",
    )  # fmt: skip


@entry
def robust_diabetes(*, rows: int = 442) -> Example:
    """A regression on patients against an adversary who shifts weight to those that it fits worst.

    f = sum_i y_i l_i(x) - m |y - 1/m|^2/2 with l_i = (a_i^T x - b_i)^2/2, so that y_i* = (1 + l_i)/m.

    >>> robust_diabetes(rows=20).problem.kind
    'minimax'
    """
    own = _patients(rows)
    return Example(
        problem=MinimaxProblem(
            "y @ (A @ x - b)**2/2 - mean((m*y - 1)**2)/2", "x[n]", "y[m]", data={"A": own["A"], "b": own["b"]},
            box={"x": (-2, 2), "y": (0, 1)}, name="robust_diabetes",
        ),
        reference="Namkoong and Duchi, NeurIPS 2016; data: Efron, Hastie, Johnstone and Tibshirani 2004.",
        constants=_over_box(rows == 442, mu=221.0, ell=928.658, rho=118.375, nu=0.0, M=8083.91),
        notes=_at_zero(rows == 442, "0.745763983992", "-0.359378566041", "-0.261369031420", "-1.32104532415"),
    )  # fmt: skip


@entry
def few_shot(*, tasks: int = 40, shots: int = 5) -> Example:
    """The start from which a least-squares learner does well on many curves after seeing few points of each.

    Task k is the curve a_k sin(t + p_k), with a_k between 1/2 and 2 and p_k between 0 and pi. A learner fits the
    weights Y_k of seven functions of t to some points of it, held to the start x, and is judged on others.

    >>> few_shot(tasks=3).problem.d, few_shot(tasks=3).problem.n
    (7, 21)
    """
    require_range("tasks", tasks, 1, 200)
    require_range("shots", shots, 1, 50)
    number = np.arange(tasks)
    size, phase = 0.5 + 1.5 * (number * 0.618 % 1), np.pi * (number * 0.414 % 1)
    seen, asked = np.linspace(-3, 3, shots), np.linspace(-2.8, 2.8, 15)
    curves = [size[:, None] * np.sin(t + phase[:, None]) for t in (seen, asked)]
    return Example(
        problem=BilevelProblem(
            "mean((Y @ B.T - S)**2)/2",
            "sum((Y @ A.T - T)**2)/2 + sum((Y - outer(u, x))**2)/4", "x[p]", "Y[q, p]",
            data={"A": _waves(seen), "T": curves[0], "B": _waves(asked), "S": curves[1], "u": np.ones(tasks)},
            box={"x": (-2, 2), "Y": (-3, 3)}, name="few_shot",
        ),
        reference="Rajeswaran, Finn, Kakade and Levine, Meta-learning with implicit gradients, NeurIPS 2019.",
        constants=_over_box((tasks, shots) == (40, 5), mu=0.5, ell=20.0001, rho=0.0, nu=0.0, M=0.964061),
        notes=_at_zero((tasks, shots) == (40, 5), "0.158505315084", "0.0240136713102", "-0.00594332715453"),
    )  # fmt: skip


def _over_box(whole: bool, **constants: float) -> Constants | None:
    """Constants over the box, for the whole table."""
    return Constants(**constants, reading="block") if whole else None


def _at_zero(whole: bool, phi: str, *grad: str) -> dict[str, object]:
    """What is known at x = 0, for the whole table."""
    return {"phi_at_zero": phi, "grad_phi_at_zero": grad} if whole else {}


def _patients(rows: int) -> dict[str, Floats]:
    """Standard features and progression: A and b of patients to train on, B and c of those held out."""
    require_range("rows", rows, 4, 442)
    training, held_out = standard(alternate(table("diabetes"), rows))
    middle, deviation = training.targets.mean(), training.targets.std()
    b, c = ((part.targets - middle) / deviation for part in (training, held_out))
    return {"A": training.features, "b": b, "B": held_out.features, "c": c}


def _waves(t: Floats) -> Floats:
    """1, and sine and cosine of t, 2t and 3t."""
    return np.stack([np.ones_like(t), *(wave(k * t) for k in (1, 2, 3) for wave in (np.sin, np.cos))], axis=1)
