"""Q5_K: Q4_K with a fifth bit to each code, kept apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats.format import Blocks, Plane, integer_format
from cera_py.kernels.formats.packing import spread_nibbles, transpose_bits
from cera_py.kernels.formats.q4_k import load_scales, split_codes, split_scales
from cera_py.kernels.formats.q5_0 import spread_high

RECORD = np.dtype([("d_dmin", "<u4"), ("scales", "<u4", 3), ("high", "<u4", 8), ("codes", "V16", (4, 2))])
PLANES = (
    Plane("codes", "vec4<u32>", 128),  # one element a sub-block, in Q4_0's order
    Plane("high", "u32", 32),  # fifth bits, one element a sub-block: bit j of byte k belongs to value 4j+k
    Plane("scales", "vec4<u32>", 16),  # as in Q4_K
)


def split(
    records: NDArray[np.void], codes: NDArray[np.uint8], high: NDArray[np.uint8], scales: NDArray[np.uint8]
) -> None:
    """Fill the planes from GGML's records."""
    split_codes(records["codes"], codes)
    split_scales(records, scales)
    words = records["high"].T.copy()  # [8, n]: in word j, bit s of byte k is that of sub-block s
    transpose_bits(words, 1)
    high.view("<u4").reshape(-1, 8)[:] = words.T


def load(codes: NDArray[np.uint8], high: NDArray[np.uint8], scales: NDArray[np.uint8]) -> Blocks:
    """Read the planes, as load_block does."""
    words = spread_nibbles(codes, 0) | spread_high(high, 4)
    return Blocks(words.view(np.int8), *load_scales(scales))


FORMAT = integer_format("Q5_K", 256, RECORD, PLANES, split, load)
