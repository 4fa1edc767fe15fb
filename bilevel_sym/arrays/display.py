"""Tensors for readers: text in the grammar of problems, LaTeX and SymPy; in matrix notation where there is one.

What the grammar does not have is written as a reader expects it: ``sigmoid'(z)``, ``eye(n)``, ``ones(n)``,
``softmax(Z, axis=1)``, and entries (``sum_i A[i, j]*w[i]``) where there is no matrix form. The length of what is
printed is linear in the tree, and so is the work.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import sympy as sp

from bilevel_sym.arrays.matrix_form import index_form, matrix_form
from bilevel_sym.arrays.notation.expressions import Expressions
from bilevel_sym.arrays.notation.latex import Latex, latex_name
from bilevel_sym.arrays.notation.nodes import IndexForm
from bilevel_sym.arrays.notation.printer import SUM
from bilevel_sym.arrays.notation.text import Text
from bilevel_sym.arrays.tensor import Tensor

__all__ = ["entry_latex", "entry_text", "has_matrix_form", "latex_name", "to_latex", "to_sympy", "to_text"]


def has_matrix_form(tensor: Tensor) -> bool:
    """Whether it is printed in matrix notation, and not in indices.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> has_matrix_form(Tensor.leaf(Leaf("T", ("n", "n", "n"), "data")))
    False
    """
    node = matrix_form(tensor)
    return not (isinstance(node, IndexForm) and node.rank)


def to_text(tensor: Tensor) -> str:
    """The tensor as text, in the grammar of problems where that has it.

    >>> from bilevel_sym.arrays.algebra import contract
    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> A, r = Tensor.leaf(Leaf("A", ("m", "n"), "data")), Tensor.leaf(Leaf("r", ("m",), "y"))
    >>> to_text(contract([(A, "ij"), (r, "i")], "j"))
    'A.T @ r'
    """
    node = matrix_form(tensor)
    if isinstance(node, IndexForm) and node.rank:
        names, text = entry_text(tensor)
        return f"[{', '.join(names)}] -> {text}"
    return Text(_names_in(tensor)).at(node, SUM)


def entry_text(tensor: Tensor) -> tuple[tuple[str, ...], str]:
    """Names for the free indices, and the entry at them as text.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> entry_text(Tensor.leaf(Leaf("A", ("m", "n"), "data")))
    (('i', 'j'), 'A[i, j]')
    """
    show = Text(_names_in(tensor))
    names = tuple(show.fresh() for _ in tensor.dims)
    return names, show.entry(index_form(tensor), names)[0]


def entry_latex(tensor: Tensor, names: Mapping[str, str] | None = None) -> tuple[tuple[str, ...], str]:
    """Names for the free indices, and the entry at them in LaTeX; ``names`` as in ``to_latex``.

    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> entry_latex(Tensor.leaf(Leaf("A", ("m", "n"), "data")))
    (('i', 'j'), 'A_{i j}')
    """
    show = Latex(_names_in(tensor), names or {})
    letters = tuple(show.fresh() for _ in tensor.dims)
    return letters, show.entry(index_form(tensor), letters)[0]


def to_latex(tensor: Tensor, names: Mapping[str, str] | None = None) -> str:
    """The tensor in LaTeX (amsmath).

    tensor: what is shown
    names: the LaTeX of names that have one of their own

    >>> from bilevel_sym.arrays.algebra import contract
    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> A, r = Tensor.leaf(Leaf("A", ("m", "n"), "data")), Tensor.leaf(Leaf("r", ("m",), "y"))
    >>> print(to_latex(contract([(A, "ij"), (r, "i")], "j")))
    A^{\\top} r
    """
    node = matrix_form(tensor)
    if isinstance(node, IndexForm) and node.rank:
        letters, text = entry_latex(tensor, names)
        return rf"\left[{text}\right]_{{{' '.join(letters)}}}"
    return Latex(_names_in(tensor), names or {}).at(node, SUM)


def to_sympy(
    tensor: Tensor, dimensions: Mapping[str, Any] | None = None, symbols: Mapping[str, Any] | None = None
) -> sp.Basic:
    """The tensor in SymPy: a scalar, a column or a matrix; a Lambda of its indices where it has more than two.

    tensor: what is shown
    dimensions: the dimensions that are known, numbers or SymPy symbols
    symbols: the user's own symbols by name, for arrays that have one

    >>> from bilevel_sym.arrays.algebra import contract
    >>> from bilevel_sym.arrays.tensor import Leaf
    >>> A, r = Tensor.leaf(Leaf("A", ("m", "n"), "data")), Tensor.leaf(Leaf("r", ("m",), "y"))
    >>> to_sympy(contract([(A, "ij"), (r, "i")], "j")), to_sympy(A, {"n": 3}).shape
    (A.T*r, (m, 3))
    """
    return Expressions(_names_in(tensor), dimensions or {}, symbols).expression(matrix_form(tensor))


def _names_in(tensor: Tensor) -> set[str]:
    return {leaf.name for leaf in tensor.leaves}
