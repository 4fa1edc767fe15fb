"""Steps on sparse matrices in NumPy: products and scalings; whatever else is asked of one, it is written out."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from bilevel_sym.arrays.data import is_sparse
from bilevel_sym.arrays.plan import Step
from bilevel_sym.typing import Floats

Kernel = Callable[..., Any]


def densely(value: Any) -> Floats:
    """A sparse matrix, written out.

    >>> from scipy.sparse import eye_array
    >>> densely(eye_array(2))
    array([[1., 0.],
           [0., 1.]])
    """
    return np.asarray(value.toarray())


def plain(value: Any) -> Floats:
    """An array, whether it was sparse or not.

    >>> plain([1.0])
    array([1.])
    """
    return densely(value) if is_sparse(value) else np.asarray(value)


def scaled_sparse(places: tuple[int, ...], other: Step) -> Kernel:
    """A sparse matrix times a vector along its rows or columns, a scalar, or another matrix entry by entry.

    >>> from scipy.sparse import eye_array
    >>> scaled_sparse((0,), Step("leaf", (), ("w",), (2,), 0))(eye_array(2), np.array([3.0, 4.0])).diagonal()
    array([3., 4.])
    """
    if len(places) == 2:
        return lambda a, b: a.multiply(b.T if places == (1, 0) else b).tocsr()
    from scipy.sparse import diags_array

    if not places:
        return lambda a, b: a * float(b)
    if places == (0,):
        return lambda a, b: diags_array(b) @ a
    return lambda a, b: a @ diags_array(b)


def sparse_product(args: Sequence[Step], one: tuple[int, ...], two: tuple[int, ...], summed: int) -> Kernel:
    """A product with a sparse matrix; the result is dense.

    >>> from scipy.sparse import eye_array
    >>> matrix = Step("leaf", (), ("A",), (2, 2), -1, sparse=True)
    >>> times = sparse_product([matrix, Step("leaf", (), ("W",), (2, 1, 1), 0)], (0, 1), (1, 2, 3), 1)
    >>> times(eye_array(2), np.array([[[1.0]], [[2.0]]])).tolist()
    [[[1.0]], [[2.0]]]
    """
    if max(len(one), len(two)) > 2:
        return _sparse_by_blocks(args, one, two, summed)
    first, second = one.index(summed) == len(one) - 1, two.index(summed) == 0

    def kernel(a: Any, b: Any) -> Floats:
        left, right = a if first else a.T, b if second else b.T
        return plain(left @ right if args[0].sparse else (right.T @ left.T).T)

    return kernel


def _sparse_by_blocks(args: Sequence[Step], one: tuple[int, ...], two: tuple[int, ...], summed: int) -> Kernel:
    """A product of a sparse matrix and a dense array of more axes, which become one for the while."""
    leads = args[0].sparse
    turned, axis = ((one if leads else two)[0] == summed), (two if leads else one).index(summed)

    def kernel(a: Any, b: Any) -> Floats:
        matrix, dense = (a, b) if leads else (b, a)
        moved = np.moveaxis(plain(dense), axis, 0)
        product = (matrix.T if turned else matrix) @ moved.reshape(len(moved), -1)
        result = plain(product).reshape(-1, *moved.shape[1:])
        return result if leads else np.moveaxis(result, 0, -1)

    return kernel
