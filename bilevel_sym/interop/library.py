"""What a library of arrays must offer for formulas to run in it; NumPy, JAX and PyTorch, imported when asked for."""

from __future__ import annotations

import importlib
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import reduce
from types import MappingProxyType
from typing import Any

import numpy as np

from bilevel_sym.errors import InvalidArgument
from bilevel_sym.graph.operations import OPERATIONS

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


def library(name: str) -> Library:
    """A library by its name.

    >>> library("numpy").name
    'NumPy'
    """
    if name not in LIBRARIES:
        raise InvalidArgument(f"no library {name!r}", hint=f"one of {', '.join(LIBRARIES)}")
    return LIBRARIES[name]()


def _imported(module: str, shown: str) -> Any:
    try:
        return importlib.import_module(module)
    except ImportError:
        raise InvalidArgument(f"{shown} is not installed", hint=f"pip install {module.partition('.')[0]}") from None


def _check_shape(shape: tuple[int, ...], size: int, name: str) -> None:
    if tuple(shape) != (size,):
        raise InvalidArgument(
            f"{name} has the shape {tuple(shape)}, and is a vector of {size} numbers here",
            hint="arrays are laid end to end; for many points at once map over them (vmap, or a loop)",
        )


def _check_double(is_double: bool, dtype: object, name: str) -> None:
    if not is_double:
        raise InvalidArgument(f"{name} is of type {dtype}, and the functions compute in float64", hint="convert it")


# ---- NumPy ----------------------------------------------------------------------------------------------------------


def _numpy() -> Library:
    names = ("erf", "softplus", "sigmoid", "bell")
    own = {name: OPERATIONS[name].rule("numpy") for name in names}

    def checked(value: object, size: int, name: str) -> Any:
        array = np.asarray(value)
        _check_double(array.dtype == np.float64 or array.dtype.kind in "iu", array.dtype, name)
        _check_shape(array.shape, size, name)
        return array.astype(np.float64, copy=False)

    def logsumexp(value: Any, axes: tuple[int, ...]) -> Any:
        top = np.max(value, axis=axes, keepdims=True)
        return np.log(np.sum(np.exp(value - top), axis=axes)) + np.squeeze(top, axis=axes)

    return Library(
        name="NumPy",
        operations=operations(np, np.where, own),
        constant=lambda value, beside: value,
        checked=checked,
        einsum=lambda *operands: np.einsum(*operands, optimize=True),
        transpose=np.transpose,
        total=lambda value, axes: np.sum(value, axis=axes),
        logsumexp=logsumexp,
        logaddexp=np.logaddexp,
        reshape=np.reshape,
        concatenate=np.concatenate,
        collected=lambda values, places, size: np.bincount(places, weights=values, minlength=size),
    )


# ---- JAX ------------------------------------------------------------------------------------------------------------


def _jax() -> Library:
    jax, jnp = _imported("jax", "JAX"), _imported("jax.numpy", "JAX")
    special = _imported("jax.scipy.special", "JAX")
    _check_x64(jax)

    def checked(value: object, size: int, name: str) -> Any:
        _check_x64(jax)
        array = jnp.asarray(value)
        _check_double(array.dtype == jnp.float64 or jnp.issubdtype(array.dtype, jnp.integer), array.dtype, name)
        _check_shape(array.shape, size, name)
        return array.astype(jnp.float64)

    own = {
        "erf": special.erf, "softplus": jax.nn.softplus, "sigmoid": jax.nn.sigmoid,
        "bell": lambda z: jax.nn.sigmoid(z) * jax.nn.sigmoid(-z),
    }  # fmt: skip
    return Library(
        name="JAX",
        operations=operations(jnp, jnp.where, own),
        constant=lambda value, beside: jnp.asarray(value),
        checked=checked,
        einsum=jnp.einsum,
        transpose=jnp.transpose,
        total=lambda value, axes: jnp.sum(value, axis=axes),
        logsumexp=lambda value, axes: special.logsumexp(value, axis=axes),
        logaddexp=jnp.logaddexp,
        reshape=jnp.reshape,
        concatenate=jnp.concatenate,
        collected=lambda values, places, size: jnp.zeros(size).at[places].add(values),
    )


def _check_x64(jax: Any) -> None:
    if not jax.config.jax_enable_x64:
        raise InvalidArgument(
            "JAX computes in float32 as it is set, and the functions compute in float64",
            hint='jax.config.update("jax_enable_x64", True) at the start of the program',
        )


# ---- PyTorch --------------------------------------------------------------------------------------------------------


def _torch() -> Library:
    torch = _imported("torch", "PyTorch")

    def double(value: Any) -> Any:
        return torch.as_tensor(value, dtype=torch.float64)

    def where(test: Any, one: Any, two: Any) -> Any:
        return torch.where(double(test).bool() if not torch.is_tensor(test) else test, double(one), double(two))

    def checked(value: object, size: int, name: str) -> Any:
        tensor: Any = value if torch.is_tensor(value) else torch.as_tensor(np.asarray(value))
        whole = not tensor.is_floating_point() and not tensor.is_complex() and tensor.dtype != torch.bool
        _check_double(tensor.dtype == torch.float64 or whole, tensor.dtype, name)
        _check_shape(tuple(tensor.shape), size, name)
        return tensor.to(torch.float64)

    def collected(values: Any, places: Any, size: int) -> Any:
        index = torch.as_tensor(places, device=values.device)
        return torch.zeros(size, dtype=torch.float64, device=values.device).index_add(0, index, values)

    return Library(
        name="PyTorch",
        operations=operations(torch, where, _torch_operations(torch, double)),
        constant=lambda value, beside: torch.as_tensor(np.array(value)).to(beside.device),
        checked=checked,
        einsum=torch.einsum,
        transpose=lambda value, order: value.permute(*order),
        total=lambda value, axes: torch.sum(value, dim=axes),
        logsumexp=lambda value, axes: torch.logsumexp(value, dim=axes),
        logaddexp=lambda a, b: torch.logaddexp(double(a), double(b)),
        reshape=torch.reshape,
        concatenate=torch.cat,
        collected=collected,
    )


def _torch_operations(torch: Any, double: Callable[[Any], Any]) -> dict[str, Callable[..., Any]]:
    """softplus by a function whose second derivative is finite far from zero."""
    return {
        "erf": torch.erf,
        "softplus": lambda z: -torch.nn.functional.logsigmoid(-z),
        "sigmoid": torch.sigmoid,
        "bell": lambda z: torch.sigmoid(z) * torch.sigmoid(-z),
        "min": lambda *values: reduce(torch.minimum, map(double, values)),
        "max": lambda *values: reduce(torch.maximum, map(double, values)),
    }


LIBRARIES: Mapping[str, Callable[[], Library]] = MappingProxyType({"numpy": _numpy, "jax": _jax, "torch": _torch})
"""By name, what makes each."""
