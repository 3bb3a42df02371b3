"""Q4_0: 32 values a block, value = d * (code - 8), code of 4 bits.

Codes are kept as two's complement nibbles (code ^ 8), read into the top of a byte: an int8 of 16 * (code - 8).
So the offset costs nothing, and d / 16 restores the value exactly.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats.format import Blocks, Plane, integer_format
from cera_py.kernels.formats.packing import floats, spread_nibbles

RECORD = np.dtype([("d", "<f2"), ("codes", "V16")])
PLANES = (
    Plane("codes", "vec4<u32>", 16),  # as GGML has them: values 0..15 in the low nibbles, 16..31 in the high
    Plane("scales", "u32", 2),  # d, two blocks a word
)


def split(records: NDArray[np.void], codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> None:
    """Fill the planes from GGML's records."""
    scales.view("<f2")[:] = records["d"]
    codes.view("V16")[:] = records["codes"]
    words = codes.view(np.uint64)
    words ^= 0x8888888888888888


def load(codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> Blocks:
    """Read the planes, as load_block does."""
    return Blocks(spread_nibbles(codes, 4).view(np.int8), floats(scales) * np.float32(1 / 16), None)


FORMAT = integer_format("Q4_0", 32, RECORD, PLANES, split, load)
