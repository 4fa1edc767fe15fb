"""Names for the kinds of arrays that go through the whole toolkit, and how finely they count."""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np
from numpy.typing import NDArray

__all__ = ["FLOAT64_EPS", "FLOAT64_TINY", "Bools", "Floats", "Indices"]

FLOAT64_EPS: Final = 2.0**-52  # from 1 to the next float64
FLOAT64_TINY: Final = 5e-324  # from 0 to the next float64

Floats: TypeAlias = NDArray[np.float64]
Indices: TypeAlias = NDArray[np.intp]
Bools: TypeAlias = NDArray[np.bool_]
