"""Names for the kinds of arrays and pictures that go through the whole toolkit, and how finely numbers count."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
else:
    Axes = Figure = object  # matplotlib is an extra, and imported by what draws

__all__ = ["FLOAT64_EPS", "FLOAT64_TINY", "Axes", "Bools", "Figure", "Floats", "Indices"]

FLOAT64_EPS: Final = 2.0**-52  # from 1 to the next float64
FLOAT64_TINY: Final = 5e-324  # from 0 to the next float64

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]
Bools: TypeAlias = NDArray[np.bool_]
