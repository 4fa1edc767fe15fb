"""What a library of arrays must offer for formulas to run in it."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

__all__ = ["Library", "operations"]

Array = Any
Rule = Callable[..., Array]


@dataclass(frozen=True, kw_only=True)
class Library:
    """One library; everything in float64.

    - ``name``: of the library, for people.
    - ``operations``: a function for each operation of the graph; exponents follow the arguments.
    - ``constant``: a NumPy array -> the library's, beside a given one (on the same device).
    - ``checked``: a user's vector, its length and its name -> the library's; InvalidArgument for what is none.
    - ``einsum``: a pattern and arrays.
    - ``transpose``: an array and the order of its axes.
    - ``total``: an array and the axes that are summed over, a tuple.
    - ``logsumexp``: likewise.
    - ``logaddexp``: of two arrays.
    - ``reshape``: an array and a shape.
    - ``concatenate``: vectors, end to end.
    - ``collected``: values, the place of each, a length -> the sums at every place.
    """

    name: str
    operations: Mapping[str, Rule]
    constant: Callable[[Any, Array], Array]
    checked: Callable[[object, int, str], Array]
    einsum: Callable[..., Array]
    transpose: Callable[[Array, Sequence[int]], Array]
    total: Callable[[Array, tuple[int, ...]], Array]
    logsumexp: Callable[[Array, tuple[int, ...]], Array]
    logaddexp: Callable[[Array, Array], Array]
    reshape: Callable[[Array, tuple[int, ...]], Array]
    concatenate: Callable[[Sequence[Array]], Array]
    collected: Callable[[Array, Any, int], Array]


def operations(module: Any, where: Rule, others: Mapping[str, Rule]) -> dict[str, Rule]:
    """A function for each operation, from a module that has NumPy's names.

    module: numpy, jax.numpy or torch
    where: test, value, other value
    others: what the module does not have, or has under another name

    >>> import numpy
    >>> from bilevel_sym.graph.operations import OPERATIONS
    >>> table = operations(numpy, numpy.where, {"erf": None, "softplus": None, "sigmoid": None, "bell": None})
    >>> sorted(table) == sorted(OPERATIONS), table["rpow"](4.0, 3, 2)
    (True, np.float64(8.0))
    """
    names = {"atan": "arctan", "asinh": "arcsinh", "min": "minimum", "max": "maximum"}
    plain = ("exp", "log", "sin", "cos", "tan", "atan", "tanh", "sinh", "cosh", "asinh", "abs", "sign", "min", "max")
    return {
        **{name: getattr(module, names.get(name, name)) for name in plain},
        "mul": lambda a, b: a * b,
        "ipow": lambda a, k: a**k,
        "rpow": lambda a, p, q: module.sqrt(a) ** p if q == 2 else a ** (p / q),
        "lt": lambda a: where(module.isnan(a), a, where(a < 0, 1.0, 0.0)),
        "le": lambda a: where(module.isnan(a), a, where(a <= 0, 1.0, 0.0)),
        "select": lambda c, a, b: where(module.isnan(c), c, where(c != 0, a, b)),
        "pi": lambda: module.pi,
        **others,
    }
