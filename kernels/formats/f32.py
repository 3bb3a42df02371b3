"""F32: float32 values."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats.format import float_format


def widen(values: NDArray[Any]) -> NDArray[np.float32]:
    """Return a copy: the raw bytes may be a mapped file."""
    return values.astype(np.float32)


FORMAT = float_format("F32", "<f4", "vec4<f32>", widen)
