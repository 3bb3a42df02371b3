"""Bit movements that several types share. Words of 32 or 64 bits hold packed bytes; no operation crosses a byte."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

LOW = 0x0F0F0F0F0F0F0F0F  # the low nibble of each byte
HIGH = 0xF0F0F0F0F0F0F0F0


def floats(halves: NDArray[np.uint8]) -> NDArray[np.float32]:
    """Return flat uint8 bytes, read as float16, as float32."""
    return halves.view("<f2").astype(np.float32)


def spread_nibbles(codes: NDArray[np.uint8], position: int) -> NDArray[np.uint32]:
    """Spread Q4_0's nibbles (16 bytes a block, values 0..15 low, 16..31 high) to one byte a value.

    codes: flat uint8 [n * 16]; position: the bit of its byte at which a nibble begins, 0..4.
    Returns uint32 [n, 8]: value 4w+k in byte k of word w.
    """
    words = codes.view(np.uint64)
    spread = np.empty((len(words) // 2, 2), "V16")
    spread[:, 0] = ((words << position) & (LOW << position)).view("V16")
    spread[:, 1] = ((words >> (4 - position)) & (LOW << position)).view("V16")
    return spread.view(np.uint32)


def pair_nibbles(first: NDArray[np.void], second: NDArray[np.void]) -> tuple[NDArray[np.void], NDArray[np.void]]:
    """Bring two blocks of 32 nibbles into Q4_0's order.

    first, second: "V16" of one shape, 16 bytes each: the bytes 0..15 and 16..31 of a group whose low nibbles are one
    block and whose high nibbles are another. Returns those two blocks, of the same shape.
    """
    shape = first.shape
    first_words = np.ascontiguousarray(first).reshape(-1).view(np.uint64)
    second_words = np.ascontiguousarray(second).reshape(-1).view(np.uint64)
    low = (first_words & LOW) | (second_words & LOW) << 4
    high = (first_words & HIGH) >> 4 | (second_words & HIGH)
    return low.view("V16").reshape(shape), high.view("V16").reshape(shape)


def transpose_bits(words: NDArray[np.uint32], width: int) -> None:
    """Transpose, in place, the square of words and the `width`-bit fields of their bytes.

    words: uint32 [8 / width, n]. Field f of every byte of word w becomes field w of the same byte of word f.
    Swaps halves of the square, then quarters, and so on (Warren, Hacker's Delight, 7-3).
    """
    count = len(words)
    distance = count // 2
    while distance:
        shift = distance * width
        mask = {4: 0x0F0F0F0F, 2: 0x33333333, 1: 0x55555555}[shift]
        pairs = words.reshape(count // (2 * distance), 2, distance, -1)
        upper, lower = pairs[:, 0], pairs[:, 1]
        exchange = (upper >> shift ^ lower) & mask
        lower ^= exchange
        upper ^= exchange << shift
        distance //= 2
