"""`x + y` on its own, where it is not the residual of a linear layer (linear.py adds that in place).

Bindings: x, y, out float32 [T, n]. Grid: (n / 256, T).
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.kernel import Shader

if TYPE_CHECKING:
    from cera_py.gpu import Gpu, Grid

_WORKGROUP = 256


def shader(gpu: Gpu, width: int) -> Shader:
    """The kernel for rows of `width` values."""
    return gpu.shader("add", {"COUNT": width, "WORKGROUP": _WORKGROUP})


def grid(width: int, n_tokens: int) -> Grid:
    """A thread a value."""
    return (-(-width // _WORKGROUP), n_tokens, 1)


def reference(x: NDArray[np.float32], y: NDArray[np.float32]) -> NDArray[np.float32]:
    """x, y [T, n] -> [T, n]."""
    return x + y
