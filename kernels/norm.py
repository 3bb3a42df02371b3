"""RMSNorm: `x / sqrt(mean(x^2) + eps) * weight` (arXiv:1910.07467), encoded for the linear layers that read it.

Bindings: step, x float32 [T, cols], weight float32 [cols], then the output: `encoded` float32 [T, cols], or `fixed`
(fixed16.py). Grid: one workgroup a token. `encode` is the same without the norm, `gate` for activation(gate) * up.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.kernel import Shader

if TYPE_CHECKING:
    from cera_py.gpu import Gpu


def emit_include(fixed16: bool) -> tuple[str, ...]:
    """The WGSL files that give `emit`, which writes a kernel's result as the next linear layer reads it."""
    return ("fixed16", "emit_fixed16") if fixed16 else ("emit_float32",)


def _row_shader(
    gpu: Gpu, name: str, cols: int, fixed16: bool, more: dict[str, int | float], includes: tuple[str, ...]
) -> Shader:
    constants = {"COLS": cols, "COLS_OUT": cols, "WORKGROUP": gpu.max_workgroup, "LANES": 32, **more}
    values = "var<workgroup> values: array<f32, WORKGROUP>;"
    return gpu.shader(name, constants, (*includes, *emit_include(fixed16)), values)


def shader(gpu: Gpu, cols: int, eps: float, fixed16: bool, outputs_only: bool = False) -> Shader:
    """The norm kernel. outputs_only: of the tokens whose logits are wanted, not of all."""
    more = {"EPS": float(eps), "OUTPUTS_ONLY": outputs_only}
    return _row_shader(gpu, "norm", cols, fixed16, more, ())


def encode_shader(gpu: Gpu, cols: int, fixed16: bool) -> Shader:
    """Only the encoding."""
    return _row_shader(gpu, "encode", cols, fixed16, {}, ())


def gate_shader(gpu: Gpu, cols: int, activation: str, fixed16: bool) -> Shader:
    """activation(gate) * up, encoded."""
    return _row_shader(gpu, "gate", cols, fixed16, {}, (f"activation_{activation}",))


def reference(x: NDArray[np.float32], weight: NDArray[np.float32], eps: float) -> NDArray[np.float32]:
    """x [..., n], weight [n] -> [..., n]; over heads when x is [T, n_heads, head_dim]."""
    mean_square = np.einsum("...i,...i->...", x, x, dtype=np.float32) / np.float32(x.shape[-1])
    normed: NDArray[np.float32] = x * (np.float32(1) / np.sqrt(mean_square + np.float32(eps)))[..., None]
    return normed * weight
