"""Q6_K: 256 values a block, value = (d * scale) * (code - 32); codes of 6 bits, an int8 scale for each 16 values.

As in Q4_0, the offset is taken up by two's complement: (code ^ 32) in the top six bits of a byte is 4 * (code - 32).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats.format import Blocks, Plane, integer_format
from cera_py.kernels.formats.packing import floats, pair_nibbles, spread_nibbles, transpose_bits

# GGML has two halves of 128 values. low: byte l of 64 is nibbles l (low) and 64+l (high) of a half;
# high: byte l of 32 has the upper two bits of values l, 32+l, 64+l and 96+l of a half, from its low bits up.
RECORD = np.dtype([("low", "V16", (2, 2, 2)), ("high", "<u4", (2, 2, 4)), ("scales", "V16"), ("d", "<f2")])
PLANES = (
    Plane("codes", "vec4<u32>", 128),  # low nibbles, one element for 32 values, in Q4_0's order
    Plane("high", "vec2<u32>", 64),  # upper bits, sign inverted: word h, byte k, bits 2j, 2j+1 are of value 16h+4j+k
    Plane("scales", "u32", 16),  # int8, four a word
    Plane("deltas", "u32", 2),  # d, two GGML blocks a word
)


def split(
    records: NDArray[np.void],
    codes: NDArray[np.uint8],
    high: NDArray[np.uint8],
    scales: NDArray[np.uint8],
    deltas: NDArray[np.uint8],
) -> None:
    """Fill the planes from GGML's records."""
    deltas.view("<f2")[:] = records["d"]
    scales.view("V16")[:] = records["scales"]
    low = records["low"]  # [n, half, quarter of its low nibbles, 16 bytes]
    ordered = codes.view("V16").reshape(-1, 2, 2, 2)  # [n, half, low or high nibbles, quarter]
    ordered[:, :, 0], ordered[:, :, 1] = pair_nibbles(low[..., 0], low[..., 1])
    words = np.moveaxis(records["high"], -1, 0).copy()  # [j, n, half, h]
    transpose_bits(words.reshape(4, -1), 2)  # now [quarter of the half, n, half, h]
    np.bitwise_xor(np.moveaxis(words, 0, 2), 0xAAAAAAAA, out=high.view(np.uint32).reshape(-1, 2, 4, 2))


def load(
    codes: NDArray[np.uint8], high: NDArray[np.uint8], scales: NDArray[np.uint8], deltas: NDArray[np.uint8]
) -> Blocks:
    """Read the planes, as load_block does."""
    upper = high.view(np.uint32).reshape(-1, 1) << np.arange(6, -1, -2, dtype=np.uint32) & 0xC0C0C0C0
    words = spread_nibbles(codes, 2) | upper.reshape(-1, 8)
    d = (floats(deltas) * np.float32(1 / 4))[:, None] * scales.view(np.int8).reshape(-1, 16)
    return Blocks(words.view(np.int8), d.reshape(-1, 2), None)


FORMAT = integer_format("Q6_K", 256, RECORD, PLANES, split, load, scales=2)
