"""Gated activations: `activation(gate) * up`.

On the GPU the end of the linear kernel of gate and up (linear.py), or gate.wgsl on its own (norm.py makes its shader).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def silu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """x * sigmoid(x) (arXiv:1702.03118), any shape."""
    with np.errstate(over="ignore"):  # exp(-x) = inf gives -0, which is right
        result: NDArray[np.float32] = x / (np.float32(1) + np.exp(-x))
    return result


def gelu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """GELU in its tanh form (arXiv:1606.08415), as GGML computes it, any shape."""
    half, one, slope, cubic = (np.float32(c) for c in (0.5, 1.0, 0.7978845608028654, 0.044715))
    result: NDArray[np.float32] = half * x * (one + np.tanh(slope * x * (one + cubic * x * x)))
    return result


ACTIVATIONS = {"silu": silu, "gelu": gelu}


def reference(gate: NDArray[np.float32], up: NDArray[np.float32], activation: str) -> NDArray[np.float32]:
    """gate, up [T, n] -> [T, n]."""
    return ACTIVATIONS[activation](gate) * up
