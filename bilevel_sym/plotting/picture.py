"""A figure as the bytes of a file: what writes files has all of them before it begins."""

from __future__ import annotations

import io
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["png"]


def png(figure: Figure, *, dpi: int = 150) -> bytes:
    """The figure as PNG.

    >>> from matplotlib.figure import Figure
    >>> png(Figure(figsize=(1, 1)))[:4]
    b'\\x89PNG'
    """
    buffer = io.BytesIO()
    figure.savefig(buffer, dpi=dpi, format="png")
    return buffer.getvalue()
