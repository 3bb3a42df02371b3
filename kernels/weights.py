"""How a weight matrix lies on the GPU: the planes of its format, in pieces no larger than a binding."""

from __future__ import annotations

from collections.abc import Iterator

from cera_py.kernels.formats import Format


def steps_per_row(fmt: Format, cols: int) -> int:
    """How many `load_block` calls cover a row of `cols` values."""
    return -(-cols // fmt.step)


def block_include(fmt: Format) -> tuple[str, ...]:
    """The WGSL files that give load_block, block_values and block_dot for a format."""
    block = "formats/block_int8" if fmt.activation == "fixed16" else "formats/block_float"
    return (block, f"formats/{fmt.name.lower()}")


def declare_planes(fmt: Format) -> str:
    """WGSL declaring the buffers that the format's load_block reads."""
    return "\n".join(
        f"@group(0) @binding(auto) var<storage, read> {plane.name}: array<{plane.element}>;" for plane in fmt.planes
    )


def row_pieces(n_rows: int, row_bytes: int, max_bytes: int) -> Iterator[tuple[int, int]]:
    """Split rows into (first, count) pieces of at most max_bytes, each starting at a multiple of 32 rows."""
    rows = n_rows if n_rows * row_bytes <= max_bytes else max(32, max_bytes // row_bytes // 32 * 32)
    for first in range(0, n_rows, rows):
        yield first, min(rows, n_rows - first)
