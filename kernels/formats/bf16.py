"""BF16: the upper half of a float32."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats.format import float_format


def widen(values: NDArray[Any]) -> NDArray[np.float32]:
    """Put uint16 bits into the upper half of a float32."""
    bits = values.astype(np.uint32)
    bits <<= 16
    return bits.view(np.float32)


FORMAT = float_format("BF16", "<u2", "vec4<u32>", widen)
