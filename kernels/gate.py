"""Gated activations: `activation(gate) * up`. On the GPU the epilogue of gate and up (linear.py), or a kernel (norm.py)."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def silu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """x * sigmoid(x) (arXiv:1702.03118), any shape."""
    with np.errstate(over="ignore"):  # exp(-x) = inf gives -0, which is right
        return x / (1.0 + np.exp(-x))


def gelu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """GELU in its tanh form (arXiv:1606.08415), as GGML computes it, any shape."""
    return 0.5 * x * (1.0 + np.tanh(np.float32(0.7978845608028654) * x * (1.0 + np.float32(0.044715) * x * x)))


ACTIVATIONS = {"silu": silu, "gelu": gelu}


def reference(gate: NDArray[np.float32], up: NDArray[np.float32], activation: str) -> NDArray[np.float32]:
    """gate, up [T, n] -> [T, n]."""
    return ACTIVATIONS[activation](gate) * up
