"""F16: IEEE half precision."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats.format import float_format


def widen(values: NDArray[Any]) -> NDArray[np.float32]:
    """Convert float16 to float32, exactly."""
    return values.astype(np.float32)


FORMAT = float_format("F16", "<f2", "vec4<u32>", widen)
