"""What sources call that is not an operation of the grammar, in each library."""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType

from bilevel_sym.graph.operations.record import Source

__all__ = ["CALLS"]

CALLS: Mapping[str, Source] = MappingProxyType(
    {
        "ones": Source("np.ones({})", {"torch": "torch.ones({}, dtype=torch.float64)"}),
        "zeros": Source("np.zeros({})", {"torch": "torch.zeros({}, dtype=torch.float64)"}),
        "eye": Source("np.eye({})", {"torch": "torch.eye({}, dtype=torch.float64)"}),
        "diag": Source("np.diag({})"),
        "outer": Source("np.outer({})"),
        "trace": Source("np.trace({})"),
        "sum": Source("np.sum({})"),
        "sqrt": Source("np.sqrt({})"),
        "pi": Source("np.pi"),
        "einsum": Source("np.einsum({}, optimize=True)", {"jax": "jnp.einsum({})", "torch": "torch.einsum({})"}),
        "tensor": Source(
            "{}",
            {"torch": "tensor({})"},
            {"torch": "def tensor(number):\n    return torch.as_tensor(number, dtype=torch.float64)"},
        ),
        "where": Source(
            "np.where({})",
            {"torch": "where({})"},
            {"torch": "def where(test, a, b):\n    return torch.where(test, tensor(a), tensor(b))"},
        ),
        "logaddexp": Source(
            "np.logaddexp({})",
            {"torch": "logaddexp({})"},
            {"torch": "def logaddexp(a, b):\n    return torch.logaddexp(tensor(a), tensor(b))"},
        ),
        "logsumexp": Source(
            "logsumexp({})",
            {"jax": "jax.scipy.special.logsumexp({})", "torch": "torch.logsumexp({})"},
            {
                "numpy": "def logsumexp(z, axis):\n"
                "    top = np.max(z, axis, keepdims=True)  # taken off, so that nothing overflows\n"
                "    return np.log(np.sum(np.exp(z - top), axis)) + np.squeeze(top, axis)"
            },
        ),
        "softmax": Source(
            "softmax({})",
            {"jax": "jax.nn.softmax({})", "torch": "torch.softmax({})"},
            {
                "numpy": "def softmax(z, axis):\n"
                "    weights = np.exp(z - np.max(z, axis, keepdims=True))\n"
                "    return weights / np.sum(weights, axis, keepdims=True)"
            },
        ),
    }
)
"""What is not an operation of the grammar."""
