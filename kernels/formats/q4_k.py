"""Q4_K: 256 values a block in 8 sub-blocks of 32; value = (d * scale) * code - dmin * min.

Codes of 4 bits, a scale and a min of 6 bits a sub-block, d and dmin float16 a block.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats.format import Blocks, Plane, integer_format
from cera_py.kernels.formats.packing import floats, pair_nibbles, spread_nibbles

RECORD = np.dtype([("d_dmin", "<u4"), ("scales", "<u4", 3), ("codes", "V16", (4, 2))])
PLANES = (
    Plane("codes", "vec4<u32>", 128),  # one element a sub-block, in Q4_0's order
    # One element for 8 sub-blocks. Nibble s of x: the low bits of scale s; of y: of min s; of z: the high two bits of
    # scale s, then those of min s. w: d in the low half, dmin in the high.
    Plane("scales", "vec4<u32>", 16),
)


def split(records: NDArray[np.void], codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> None:
    """Fill the planes from GGML's records."""
    split_codes(records["codes"], codes)
    split_scales(records, scales)


def load(codes: NDArray[np.uint8], scales: NDArray[np.uint8]) -> Blocks:
    """Read the planes, as load_block does."""
    return Blocks(spread_nibbles(codes, 0).view(np.int8), *load_scales(scales))


def split_codes(groups: NDArray[np.void], codes: NDArray[np.uint8]) -> None:
    """Bring codes, "V16" [n, 4, 2], into Q4_0's order: GGML pairs sub-blocks 2g (low nibbles) and 2g+1 (high)."""
    ordered = codes.view("V16").reshape(-1, 4, 2)
    ordered[:, :, 0], ordered[:, :, 1] = pair_nibbles(groups[:, :, 0], groups[:, :, 1])


def split_scales(records: NDArray[np.void], scales: NDArray[np.uint8]) -> None:
    """Repack GGML's 12 bytes of scales and mins, in which sub-blocks 4..7 lie scattered, so that all are read alike."""
    # byte s of words 0 and 1: scale and min of sub-block s < 4, and above them the high two bits of sub-block s + 4
    word_0, word_1, word_2 = np.ascontiguousarray(records["scales"].T)
    packed = scales.view("<u4").reshape(-1, 4)
    packed[:, 0] = _squeeze(word_0) | _squeeze(word_2) << 16
    packed[:, 1] = _squeeze(word_1) | _squeeze(word_2 >> 4) << 16
    first = (word_0 >> 4 & 0x03030303) | (word_1 >> 2 & 0x0C0C0C0C)
    second = (word_0 >> 6 & 0x03030303) | (word_1 >> 4 & 0x0C0C0C0C)
    packed[:, 2] = _squeeze(first) | _squeeze(second) << 16
    packed[:, 3] = records["d_dmin"]


def load_scales(scales: NDArray[np.uint8]) -> tuple[NDArray[np.float32], NDArray[np.float32]]:
    """Return d * scale and -dmin * min, each float32 [n, 8]."""
    packed = scales.view("<u4").reshape(-1, 4)
    low_scales, low_mins, high = (packed[:, i, None] >> np.arange(0, 32, 4, dtype=np.uint32) for i in range(3))
    d_dmin = floats(np.ascontiguousarray(packed[:, 3]).view(np.uint8)).reshape(-1, 2)
    scale = ((low_scales & 15) | ((high & 3) << 4)).astype(np.float32)
    minimum = ((low_mins & 15) | ((high & 12) << 2)).astype(np.float32)
    return d_dmin[:, :1] * scale, -d_dmin[:, 1:] * minimum


def _squeeze(words: NDArray[np.uint32]) -> NDArray[np.uint32]:
    """Gather the low nibbles of a word's 4 bytes into its low 16 bits."""
    words = words & np.uint32(0x0F0F0F0F)
    words |= words >> 4
    words &= 0x00FF00FF
    words |= words >> 8
    words &= 0xFFFF
    return words


FORMAT = integer_format("Q4_K", 256, RECORD, PLANES, split, load)
