"""Q4_1: 32 values a block, value = d * code + m, code of 4 bits."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats.format import Blocks, Plane, integer_format
from cera_py.kernels.formats.packing import floats, spread_nibbles

RECORD = np.dtype([("scales", "<u4"), ("codes", "V16")])
PLANES = (
    Plane("codes", "vec4<u32>", 16),  # values 0..15 in the low nibbles, 16..31 in the high
    Plane("scales", "u32", 4),  # d in the low half, m in the high
)


def split(records: NDArray[np.void], codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> None:
    """Fill the planes from GGML's records."""
    scales.view("<u4")[:] = records["scales"]
    codes.view("V16")[:] = records["codes"]


def load(codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> Blocks:
    """Read the planes, as load_block does."""
    d, m = floats(scales).reshape(-1, 2).T
    return Blocks(spread_nibbles(codes, 0).view(np.int8), d, m)


FORMAT = integer_format("Q4_1", 32, RECORD, PLANES, split, load)
