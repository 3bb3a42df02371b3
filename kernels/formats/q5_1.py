"""Q5_1: 32 values a block, value = d * code + m, code of 5 bits, the fifth kept apart."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats.format import Blocks, Plane, integer_format
from cera_py.kernels.formats.packing import floats, spread_nibbles
from cera_py.kernels.formats.q5_0 import gather_high, spread_high

RECORD = np.dtype([("scales", "<u4"), ("high", "<u4"), ("codes", "V16")])
PLANES = (
    Plane("codes", "vec4<u32>", 16),  # values 0..15 in the low nibbles, 16..31 in the high
    Plane("high", "u32", 4),  # fifth bits: bit j of byte k belongs to value 4j+k
    Plane("scales", "u32", 4),  # d in the low half, m in the high
)


def split(
    records: NDArray[np.void], codes: NDArray[np.uint8], high: NDArray[np.uint8], scales: NDArray[np.uint8]
) -> None:
    """Fill the planes from GGML's records."""
    scales.view("<u4")[:] = records["scales"]
    codes.view("V16")[:] = records["codes"]
    high.view("<u4")[:] = gather_high(records["high"])


def load(codes: NDArray[np.uint8], high: NDArray[np.uint8], scales: NDArray[np.uint8]) -> Blocks:
    """Read the planes, as load_block does."""
    d, m = floats(scales).reshape(-1, 2).T
    words = spread_nibbles(codes, 0) | spread_high(high, 4)
    return Blocks(words.view(np.int8), d, m)


FORMAT = integer_format("Q5_1", 32, RECORD, PLANES, split, load)
