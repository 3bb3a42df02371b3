"""Q5_0: 32 values a block, value = d * (code - 16), code of 5 bits, the fifth kept apart.

As in Q4_0, the offset is taken up by two's complement: (code ^ 16) in the top five bits of a byte is 8 * (code - 16).
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats.format import Blocks, Plane, integer_format
from cera_py.kernels.formats.packing import floats, spread_nibbles

RECORD = np.dtype([("d", "<f2"), ("high", "<u4"), ("codes", "V16")])
PLANES = (
    Plane("codes", "vec4<u32>", 16),  # values 0..15 in the low nibbles, 16..31 in the high
    Plane("high", "u32", 4),  # fifth bits, inverted: bit j of byte k belongs to value 4j+k
    Plane("scales", "u32", 2),  # d, two blocks a word
)


def split(
    records: NDArray[np.void], codes: NDArray[np.uint8], high: NDArray[np.uint8], scales: NDArray[np.uint8]
) -> None:
    """Fill the planes from GGML's records."""
    scales.view("<f2")[:] = records["d"]
    codes.view("V16")[:] = records["codes"]
    np.invert(gather_high(records["high"]), out=high.view(np.uint32))


def load(codes: NDArray[np.uint8], high: NDArray[np.uint8], scales: NDArray[np.uint8]) -> Blocks:
    """Read the planes, as load_block does."""
    words = spread_nibbles(codes, 3) | spread_high(high, 7)
    return Blocks(words.view(np.int8), floats(scales) * np.float32(1 / 8), None)


def gather_high(bits: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Move bit 4j+k of each word (GGML's order) to bit j of byte k, from where one shift and mask serve 4 values."""
    bits = np.ascontiguousarray(bits)
    gathered = np.zeros_like(bits)
    for j in range(8):
        four = bits >> (4 * j) & 15
        spread = four * 0x00204081 & 0x01010101  # four copies 7 bits apart: bit k of copy k falls on bit 8k
        gathered |= spread << j
    return gathered


def spread_high(high: NDArray[np.uint8], position: int) -> NDArray[np.uint32]:
    """Spread gathered bits to bit `position` of one byte a value: uint32 [n, 8]."""
    words = high.view(np.uint32)
    spread = np.empty((len(words), 8), np.uint32)
    for j in range(8):
        np.left_shift(words, 7 - j, out=spread[:, j])
    spread &= 0x80808080
    spread >>= 7 - position
    return spread


FORMAT = integer_format("Q5_0", 32, RECORD, PLANES, split, load)
