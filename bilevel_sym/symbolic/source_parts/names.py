"""Identifiers for the names of users: their own where that is safe, and never anything but a plain identifier."""

from __future__ import annotations

import builtins
import keyword
import re
from collections.abc import Collection, Iterable, Mapping

from bilevel_sym.arrays.notation.python_calls import CALLS
from bilevel_sym.graph.operations import OPERATIONS

__all__ = ["RESERVED", "identifiers", "is_plain"]

_IDENTIFIER = re.compile(r"[A-Za-z][A-Za-z0-9_]{0,30}")
_TEMPORARY = re.compile(r"t[0-9]+")
_OWN = (
    "Data", "NamedTuple", "arrays", "block", "closed_form", "data", "dy_dx", "end_to_end", "erf", "f", "g", "grad_L",
    "grad_phi", "hess_L", "hess_phi", "is_true", "jax", "jnp", "math", "np", "phi", "sigmoid", "sigmoid_slope",
    "softplus", "solve", "solve_H", "solve_v", "start", "torch", "v", "y_arrays", "y_star", "H", "minimum", "maximum",
    "array", "slope", "step", "value", "descent", "small", "length", "count", "state", "good", "improved", "too_long",
    "unfinished", "matrix", "right", "cross", "flat", "lead", "parts", "part", "inside", "low", "high", "allowed",
    "starts",
)  # fmt: skip

RESERVED = frozenset({*keyword.kwlist, *keyword.softkwlist, *dir(builtins), *_OWN, *CALLS, *OPERATIONS})
"""What no array, variable or dimension is called in source."""


def is_plain(name: str) -> bool:
    """Whether a name can stand in source as it is.

    >>> is_plain("A"), is_plain("lambda"), is_plain("a b"), is_plain("t1")
    (True, False, False, False)
    """
    return bool(_IDENTIFIER.fullmatch(name)) and name not in RESERVED and not _TEMPORARY.fullmatch(name)


def identifiers(names: Iterable[tuple[str, str]], taken: Collection[str] = ()) -> Mapping[str, str]:
    """An identifier for each name, given with what it is called by where it cannot be used; no two alike.

    names: names, each with a prefix for the ones that are no identifiers
    taken: further names that must not be used

    >>> identifiers([("A", "data"), ("lambda", "x"), ("a b", "y")])
    {'A': 'A', 'lambda': 'lambda_', 'a b': 'y_1'}
    """
    wanted = dict(names)
    found = {name: name for name in wanted if is_plain(name) and name not in taken}
    for name, prefix in wanted.items():
        if name not in found:
            used = {*taken, *found.values()}
            candidates = _bent(name) if _IDENTIFIER.fullmatch(name) else (f"{prefix}_{k}" for k in range(1, 10**6))
            found[name] = next(text for text in candidates if is_plain(text) and text not in used)
    return {name: found[name] for name in wanted}


def _bent(name: str) -> Iterable[str]:
    return (f"{name}{'_' * k}" for k in range(1, 10**6))
