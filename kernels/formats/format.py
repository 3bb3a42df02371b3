"""The frame that every tensor type fills in: its planes in GPU memory, and how GGML's blocks become planes or floats.

GGML packs a block's scale and codes into one record (18 bytes for Q4_0), which a GPU cannot load as aligned vectors.
`repack` splits the records into planes, each an array of one WGSL element type. `load_block(b)` of TYPE.wgsl gathers
block b from the planes; `load` of TYPE.py does the same in NumPy for many blocks, and `dequantize` is `load` after
`repack`, chunk by chunk.

The flat block index is b = row * ceil(cols / step) + index within the row, and planes are flat over all rows in that
order. Eight rows fill a whole number of elements in every plane, so a tensor may be cut at any multiple of 8 rows:
repacking the slices gives the slices of the planes (`Format.plane_row_bytes` says where). Rows of floats are padded
with zeros to whole steps. GGML's integer types have no such rest: their rows are whole blocks.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal, NamedTuple

import numpy as np
from numpy.typing import DTypeLike, NDArray

from cera_py.errors import ModelFileError

CHUNK_VALUES = 1 << 18  # few enough for the cache, many enough that the calls do not count
ELEMENT_BYTES = {"u32": 4, "vec2<u32>": 8, "vec4<u32>": 16, "vec4<f32>": 16}


@dataclass(frozen=True)
class Plane:
    """One array in GPU memory that holds a part of every block of a tensor."""

    name: str  # the WGSL variable that TYPE.wgsl reads: "codes", "scales"
    element: str  # its WGSL element type, a key of ELEMENT_BYTES
    block_bytes: int  # the bytes that one GGML block puts into this plane

    @property
    def element_bytes(self) -> int:
        """The size of one element in bytes."""
        return ELEMENT_BYTES[self.element]


@dataclass(frozen=True)
class Format:
    """A GGML tensor type. Raw tensors are uint8 [rows, row_bytes], as they lie in the file."""

    name: str  # GGML's name, "Q4_0"
    block: int  # values per GGML block: 32, 256, or 1 for floats
    block_bytes: int  # bytes per GGML block
    step: int  # values that one load_block covers: 32 (integer codes) or 8 (floats)
    activation: Literal["fixed16", "float32"]  # what block_dot multiplies with
    scales: int  # 1 if one (d, m) serves the 32 values of a block, 2 if each half of 16 has its own
    planes: tuple[Plane, ...]
    # raw -> one flat uint8 array per plane, padded with zeros to whole elements. May share raw's memory.
    repack: Callable[[NDArray[np.uint8]], list[NDArray[np.uint8]]]
    # raw -> float32 [rows, cols], the same bits as ggml's own dequantisation. Always a new array.
    dequantize: Callable[[NDArray[np.uint8]], NDArray[np.float32]]

    @property
    def wgsl(self) -> str:
        """The text of TYPE.wgsl: `fn load_block(b: u32) -> Block`, which reads the planes' variables."""
        return _wgsl(self.name.lower())

    @property
    def block_wgsl(self) -> str:
        """The text of the shared file that defines Block, Activation, block_values and block_dot."""
        return _wgsl("block_int8" if self.activation == "fixed16" else "block_float")

    def row_bytes(self, cols: int) -> int:
        """Return the bytes of one raw row of `cols` values (a multiple of `block`)."""
        return cols // self.block * self.block_bytes

    def plane_row_bytes(self, cols: int) -> tuple[int, ...]:
        """Return the bytes of one row of `cols` values in each plane; times 8, a whole number of its elements."""
        unit = max(self.block, self.step)
        blocks = -(-cols // unit) * unit // self.block
        return tuple(blocks * plane.block_bytes for plane in self.planes)


class Blocks(NamedTuple):
    """Blocks of 32 values, value = d * code + m: what `load` gives, and the twin of Block in block_int8.wgsl."""

    codes: NDArray[np.int8]  # [n, 32]
    d: NDArray[np.float32]  # [n], or [n, 2] where each half has its own scale
    m: NDArray[np.float32] | None  # the shape of d; None stands for 0


def integer_format(
    name: str,
    block: int,
    record: np.dtype[np.void],
    planes: tuple[Plane, ...],
    split: Callable[..., None],
    load: Callable[..., Blocks],
    scales: int = 1,
) -> Format:
    """Make the Format of a quantised type.

    record: GGML's block as a structured dtype.
    split(records [n], *planes): fill the planes, each flat uint8 [n * its block_bytes].
    load(*planes) -> Blocks: read them back, as load_block in TYPE.wgsl does.
    """
    chunk = CHUNK_VALUES // block

    def records_of(raw: NDArray[np.uint8]) -> NDArray[np.void]:
        if raw.shape[1] % record.itemsize:
            raise ModelFileError(f"a row of {raw.shape[1]} bytes is no whole number of {name} blocks")
        return np.ascontiguousarray(raw).reshape(-1).view(record)

    def repack(raw: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        records = records_of(raw)
        filled = [np.empty(_padded(len(records) * p.block_bytes, p.element_bytes), np.uint8) for p in planes]
        for start in range(0, len(records), chunk):
            part = records[start : start + chunk]
            ends = start + len(part)
            views = [
                array[start * p.block_bytes : ends * p.block_bytes] for p, array in zip(planes, filled, strict=True)
            ]
            split(part, *views)
        for p, array in zip(planes, filled, strict=True):
            array[len(records) * p.block_bytes :] = 0
        return filled

    def dequantize(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        records = records_of(raw)
        values = np.empty((len(records), block), np.float32)
        scratch = [np.empty(min(chunk, len(records)) * p.block_bytes, np.uint8) for p in planes]
        for start in range(0, len(records), chunk):
            part = records[start : start + chunk]
            views = [array[: len(part) * p.block_bytes] for p, array in zip(planes, scratch, strict=True)]
            split(part, *views)
            codes, d, m = load(*views)
            out = values[start : start + len(part)].reshape(-1, 32 // scales)
            np.multiply(codes.reshape(out.shape), d.reshape(-1, 1), out=out)
            if m is not None:
                out += m.reshape(-1, 1)
        return values.reshape(raw.shape[0], raw.shape[1] // record.itemsize * block)

    return Format(name, block, record.itemsize, 32, "fixed16", scales, planes, repack, dequantize)


def float_format(
    name: str, dtype: DTypeLike, element: str, widen: Callable[[NDArray[Any]], NDArray[np.float32]]
) -> Format:
    """Make the Format of a float type, one plane "weights".

    widen(values [rows, cols] of dtype): the same values in a new float32 array.
    """
    value_bytes = np.dtype(dtype).itemsize
    step = 8

    def check(raw: NDArray[np.uint8]) -> None:
        if raw.shape[1] % value_bytes:
            raise ModelFileError(f"a row of {raw.shape[1]} bytes is no whole number of {name} values")

    def repack(raw: NDArray[np.uint8]) -> list[NDArray[np.uint8]]:
        check(raw)
        missing = -raw.shape[1] % (step * value_bytes)
        padded = np.pad(raw, ((0, 0), (0, missing))) if missing else np.ascontiguousarray(raw)
        return [padded.reshape(-1)]

    def dequantize(raw: NDArray[np.uint8]) -> NDArray[np.float32]:
        check(raw)
        return widen(np.ascontiguousarray(raw).view(dtype))

    planes = (Plane("weights", element, value_bytes),)
    return Format(name, 1, value_bytes, step, "float32", 1, planes, repack, dequantize)


def _padded(size: int, multiple: int) -> int:
    return -(-size // multiple) * multiple


def _wgsl(stem: str) -> str:
    return Path(__file__).with_name(f"{stem}.wgsl").read_text(encoding="utf-8")
