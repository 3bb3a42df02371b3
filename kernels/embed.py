"""Embedding rows: `x[t] = table[token t] * scale`, dequantised on the GPU from the table as it lies there.

Bindings: the format's planes, step, x float32 [T, cols]. Grid: (cols / 4 / 256, T).
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats import Format
from cera_py.kernels.kernel import Shader
from cera_py.kernels.norm import emit_include
from cera_py.kernels.weights import block_include, declare_planes, steps_per_row

if TYPE_CHECKING:
    from cera_py.gpu import Gpu, Grid

_WORKGROUP = 64


def shader(gpu: Gpu, fmt: Format, cols: int, row_at: int, n_rows: int, scale: float) -> Shader:
    """The kernel for rows row_at .. row_at + n_rows of a table with `cols` columns."""
    constants = {
        "COLS": cols,
        "STEP": fmt.step,
        "STEPS": steps_per_row(fmt, cols),
        "ROW_AT": row_at,
        "N_ROWS": n_rows,
        "SCALE": float(scale),
        "WORKGROUP": _WORKGROUP,
        "SCALES": fmt.scales,
    }
    return gpu.shader("embed", constants, block_include(fmt), declare_planes(fmt))


def normed_shader(gpu: Gpu, fmt: Format, cols: int, scale: float, emit_fixed16: bool) -> Shader:
    """embed_normed.wgsl: a whole table, one token, and the first half of the RMSNorm that follows (linear.py)."""
    constants = {
        "COLS": cols,
        "COLS_OUT": cols,
        "STEP": fmt.step,
        "STEPS": steps_per_row(fmt, cols),
        "SCALE": float(scale),
        "WORKGROUP": _WORKGROUP,
        "EMITTED": _WORKGROUP,
        "LANES": 32,
        "SCALES": fmt.scales,
    }
    parts = (*block_include(fmt), *emit_include(emit_fixed16), "emit_normed")
    values = "var<workgroup> values: array<f32, WORKGROUP>;"
    return gpu.shader("embed_normed", constants, parts, f"{declare_planes(fmt)}\n{values}")


def n_groups_normed(cols: int) -> int:
    """Workgroups of `normed_shader`: a thread a value."""
    return -(-cols // _WORKGROUP)


def grid(cols: int, n_tokens: int) -> Grid:
    """Each thread does four values."""
    return (-(-cols // (4 * _WORKGROUP)), n_tokens, 1)


def reference(table: NDArray[np.float32], ids: Sequence[int], scale: float = 1.0) -> NDArray[np.float32]:
    """table [vocab, cols], ids [T] -> [T, cols]."""
    rows: NDArray[np.float32] = table[np.asarray(ids)]
    return rows if scale == 1.0 else rows * np.float32(scale)
