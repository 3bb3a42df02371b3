"""Q8_0: 32 values a block, value = d * code, code an int8."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats.format import Blocks, Plane, integer_format
from cera_py.kernels.formats.packing import floats

RECORD = np.dtype([("d", "<f2"), ("codes", "V32")])
PLANES = (
    Plane("codes", "vec4<u32>", 32),  # two elements a block
    Plane("scales", "u32", 2),  # d, two blocks a word
)


def split(records: NDArray[np.void], codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> None:
    """Fill the planes from GGML's records."""
    scales.view("<f2")[:] = records["d"]
    codes.view("V32")[:] = records["codes"]


def load(codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> Blocks:
    """Read the planes, as load_block does."""
    return Blocks(codes.view(np.int8).reshape(-1, 32), floats(scales), None)


FORMAT = integer_format("Q8_0", 32, RECORD, PLANES, split, load)
