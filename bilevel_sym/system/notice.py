"""One sentence to whoever reads standard error, once per process.

Not as a warning: where people make those errors, as test suites do, a full disk would end their run.
"""

from __future__ import annotations

import logging
from functools import lru_cache

__all__ = ["tell_once"]


@lru_cache(64)
def tell_once(sentence: str) -> None:
    """Log a sentence, unless it was logged before.

    >>> tell_once("bilevel-sym: ...")
    """
    logging.getLogger("bilevel_sym").warning("%s", sentence)
