"""Tables of measurements that come with the zoo, as arrays: standard columns, and rows shared out in turn.

The files hold numbers as they were published, one row a line, what is to be predicted last:

- ``breast_cancer``: 569 tumours, 30 features of cell nuclei; 1 benign, 0 malignant. W. H. Wolberg, O. L. Mangasarian
  and W. N. Street, Breast Cancer Wisconsin (Diagnostic), UCI Machine Learning Repository, 1995; CC BY 4.0.
- ``digits``: 1797 handwritten digits, 8 x 8 pixels of 0 to 16. E. Alpaydin and C. Kaynak, Optical Recognition of
  Handwritten Digits, UCI Machine Learning Repository, 1998 (its test part); CC BY 4.0.
- ``diabetes``: 442 patients, 10 features, a measure of progression after one year. B. Efron, T. Hastie, I. Johnstone
  and R. Tibshirani, Least angle regression, Annals of Statistics 32 (2004) 407-499.
"""

from __future__ import annotations

import gzip
from functools import lru_cache
from importlib.resources import files
from typing import Literal, NamedTuple

import numpy as np

from bilevel_sym.typing import Floats

__all__ = ["Name", "Split", "Table", "alternate", "indicator", "standard", "table"]

Name = Literal["breast_cancer", "digits", "diabetes"]


class Table(NamedTuple):
    """Features, a row an object, and what is to be predicted.

    >>> Table(np.zeros((2, 3)), np.ones(2)).features.shape
    (2, 3)
    """

    features: Floats
    targets: Floats


class Split(NamedTuple):
    """Rows to train on, and rows that are held out.

    >>> Split(Table(np.zeros((2, 3)), np.ones(2)), Table(np.ones((1, 3)), np.ones(1))).held_out.targets
    array([1.])
    """

    training: Table
    held_out: Table


@lru_cache(maxsize=4)
def table(name: Name) -> Table:
    """A table as it was published; its arrays cannot be written to.

    >>> {name: table(name).features.shape for name in ("breast_cancer", "digits", "diabetes")}
    {'breast_cancer': (569, 30), 'digits': (1797, 64), 'diabetes': (442, 10)}
    """
    packed = files("bilevel_sym.zoo").joinpath("measured", f"{name}.csv.gz").read_bytes()
    rows = np.array([line.split(",") for line in gzip.decompress(packed).decode("ascii").splitlines()], dtype=float)
    rows.flags.writeable = False
    return Table(rows[:, :-1], rows[:, -1])


def alternate(whole: Table, rows: int) -> Split:
    """The first ``rows`` rows, in turn for training and held out.

    >>> parts = alternate(table("diabetes"), 5)
    >>> len(parts.training.targets), parts.held_out.targets.tolist()
    (3, [75.0, 206.0])
    """
    first, second = (Table(whole.features[k:rows:2], whole.targets[k:rows:2]) for k in (0, 1))
    return Split(first, second)


def standard(parts: Split) -> Split:
    """Features less their mean over the training rows, by their deviation there; a constant one becomes 0.

    >>> known, asked = Table(np.array([[1.0, 5.0], [3.0, 5.0]]), np.zeros(2)), Table(np.ones((1, 2)), np.ones(1))
    >>> parts = standard(Split(known, asked))
    >>> parts.training.features.tolist(), parts.held_out.features.tolist()
    ([[-1.0, 0.0], [1.0, 0.0]], [[-1.0, -4.0]])
    """
    known = parts.training.features
    deviation = known.std(axis=0)
    deviation[deviation == 0] = 1.0
    middle = known.mean(axis=0)
    first, second = (Table((own.features - middle) / deviation, own.targets) for own in parts)
    return Split(first, second)


def indicator(labels: Floats, classes: int) -> Floats:
    """One row a label, 1 in its own column.

    >>> indicator(np.array([0.0, 2.0]), 3).tolist()
    [[1.0, 0.0, 0.0], [0.0, 0.0, 1.0]]
    """
    return np.asarray(np.eye(classes)[labels.astype(int)])
