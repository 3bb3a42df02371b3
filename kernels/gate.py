"""Gated activations: `activation(gate) * up`.

On the GPU the end of the linear kernel of gate and up (linear.py), or gate.wgsl on its own (norm.py makes its shader).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray


def silu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """x * sigmoid(x) (arXiv:1702.03118), any shape."""
    with np.errstate(over="ignore"):  # exp(-x) = inf gives -0, which is right
        denominator = np.exp(-x)
    denominator += 1
    result: NDArray[np.float32] = np.divide(x, denominator, out=denominator)
    return result


def gelu(x: NDArray[np.float32]) -> NDArray[np.float32]:
    """GELU in its tanh form (arXiv:1606.08415), as GGML computes it, any shape."""
    inner = x * x
    inner *= 0.044715
    inner += 1
    inner *= x
    inner *= 0.7978845608028654  # sqrt(2 / pi)
    gate: NDArray[np.float32] = np.tanh(inner, out=inner)
    gate += 1
    gate *= 0.5
    return gate * x


ACTIVATIONS = {"silu": silu, "gelu": gelu}


def reference(gate: NDArray[np.float32], up: NDArray[np.float32], activation: str) -> NDArray[np.float32]:
    """gate, up [T, n] -> [T, n]."""
    return ACTIVATIONS[activation](gate) * up
