"""Activations in 16-bit fixed point: what a quantised matvec reads instead of float32.

A block is 32 neighbours of a row. Value i of a block is v_i * scale with scale = max|x| / 32639 and v_i = round(x_i /
scale), kept as two signed bytes: v = 256 * high + low, high = (v + 128) >> 8. So two chains of int8 dot products give
an exact integer block sum, and the error is 2^-16 of the block's largest value.

Layout, u32 [T, 5 planes, n_blocks, 4 words], index (((t * 5 + plane) * n_blocks) + block) * 4 + word:

| plane | what |
|---|---|
| 0, 1 | high bytes of the values 0..15 and 16..31: value 4w + k is byte k of word w |
| 2, 3 | low bytes, likewise |
| 4 | float32 bits of scale, sum of v_0..v_15, sum of v_16..v_31 (both exact); 0 |

A block whose largest value is below 1e-30 is stored as zeros (scale 0), because GPUs may flush its scale to zero.
NaN and infinity give garbage. `fixed16.wgsl` is the include by which a workgroup stores such blocks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

BLOCK = 32
PLANES = 5
LARGEST = np.float32(32639)  # 127 * 256 + 127
SMALLEST = np.float32(1e-30)


def words(n_tokens: int, n_values: int) -> int:
    """How many u32 the rows of n_values (a multiple of 32) of n_tokens tokens take."""
    return n_tokens * PLANES * n_values // BLOCK * 4


def quantize(x: NDArray[np.float32]) -> NDArray[np.uint32]:
    """Float32 [T, n] (n a multiple of 32) in fixed point: uint32 [T, 5, n / 32, 4]. The twin of fixed16.wgsl."""
    n_tokens, n_values = x.shape
    blocks = x.reshape(n_tokens, n_values // BLOCK, BLOCK)
    largest = np.abs(blocks).max(axis=-1, keepdims=True)  # [T, n_blocks, 1]
    largest = np.where(largest < SMALLEST, np.float32(np.inf), largest)
    v = np.rint(blocks * (LARGEST / largest)).astype(np.int32)
    high = (v + 128) >> 8
    low = v - 256 * high

    planes = np.zeros((n_tokens, PLANES, n_values // BLOCK, 4), np.uint32)
    for first, part in ((0, high), (2, low)):
        packed = part.astype(np.int8).view(np.uint32)  # [T, n_blocks, 8]
        planes[:, first], planes[:, first + 1] = packed[..., :4], packed[..., 4:]
    meta = planes[:, 4].view(np.float32)
    meta[..., 0] = np.where(np.isinf(largest), np.float32(0), largest / LARGEST)[..., 0]
    meta[..., 1:3] = v.reshape(*v.shape[:2], 2, 16).sum(axis=-1)
    return planes


def dequantize(planes: NDArray[np.uint32]) -> NDArray[np.float32]:
    """Back to float32 [T, n] from uint32 [T, 5, n / 32, 4]."""
    n_tokens, _, n_blocks, _ = planes.shape
    halves = planes.view(np.int8).reshape(n_tokens, PLANES, n_blocks, 16).astype(np.int32)
    v = np.concatenate([256 * halves[:, i] + halves[:, 2 + i] for i in (0, 1)], axis=-1)  # [T, n_blocks, 32]
    scale = planes[:, 4, :, :1].view(np.float32)  # [T, n_blocks, 1]
    return (v * scale).astype(np.float32).reshape(n_tokens, n_blocks * BLOCK)
