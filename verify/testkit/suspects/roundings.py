"""Numbers with fewer digits than float64: to some decimals, with the bits of a smaller type, to nearest or cut off."""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from bilevel_sym.typing import Floats

__all__ = ["LOOK", "rounded"]

LOOK = "the type of {}, and np.round: keep all digits (in JAX, jax_enable_x64; in PyTorch, dtype=torch.float64)"
MOST_DECIMALS = 9
TYPES = ((8, "bfloat16"), (11, "float16"), (24, "single precision"))


def rounded(exact: Floats) -> Iterator[tuple[Floats, str]]:
    """What is left of the numbers, and words for it.

    >>> [words for value, words in rounded(np.array([2.71828])) if value == 2.718]
    ['is rounded to 3 decimals']
    >>> [words for value, words in rounded(np.array([0.999])) if value == 0.99609375]
    ['has the 8 bits of bfloat16, the rest cut off']
    """
    for decimals in range(1, MOST_DECIMALS):
        yield np.round(exact, decimals), f"is rounded to {decimals} decimals"
    shares, exponents = np.frexp(exact)
    for bits, name in TYPES:
        whole = np.ldexp(shares, bits)
        yield np.ldexp(np.round(whole), exponents - bits), f"has the {bits} bits of {name}"
        yield np.ldexp(np.trunc(whole), exponents - bits), f"has the {bits} bits of {name}, the rest cut off"
