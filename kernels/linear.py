"""Linear layers over weights of any format: `y = x @ W.T (+ bias)`, and what happens to y in the same dispatch.

Bindings: the planes of the format; `input`, activations [T, cols] (fixed16.py for integer formats, else float32); `step`;
then by what is done with the sums:
  store      out[t, out_at + row] = y                `out` float32 [T, out_width]
  residual   out[t, out_at + row] += y               `out`
  gate       activation(y_gate) * y_up, encoded      `encoded` float32 or `fixed` (fixed16.py), [T, n_rows]
and `bias` float32 where there is one. Grid: (n_rows / 32, T / tile).
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats import Format
from cera_py.kernels.kernel import Constant, Shader
from cera_py.kernels.norm import emit_include
from cera_py.kernels.weights import block_include, declare_planes, steps_per_row

if TYPE_CHECKING:
    from cera_py.gpu import Gpu, Grid

ROWS_PER_TEAM = 4
TEAMS = 8
GROUP_ROWS = ROWS_PER_TEAM * TEAMS  # 32: a workgroup's rows are one block of the next layer's input


@dataclass(frozen=True)
class LinearShape:
    """One dispatch: rows row_at .. row_at + n_rows of a layer with `cols` inputs, for `tile` tokens at once.

    count_at: the word of `step` that holds the number of tokens.
    """

    n_rows: int
    cols: int
    tile: int = 1
    out_width: int = 0
    out_at: int = 0
    count_at: int = 0

    def grid(self, n_tokens: int) -> Grid:
        """Workgroups of 32 rows by tiles of tokens."""
        return (-(-self.n_rows // GROUP_ROWS), -(-n_tokens // self.tile), 1)


def _lanes(steps: int, most: int) -> int:
    """Threads a row: a power of two, no more than there are blocks in a row."""
    lanes = most
    while lanes > 4 and lanes > steps:
        lanes //= 2
    return lanes


def shader(
    gpu: Gpu,
    fmt: Format,
    shape: LinearShape,
    then: Literal["store", "residual", "gate"],
    *,
    bias: bool = False,
    activation: str = "silu",
    emit_fixed16: bool = True,
) -> Shader:
    """The kernel of one linear layer. `gate`: the planes hold the gate's rows, then as many of up."""
    steps = steps_per_row(fmt, shape.cols)
    lanes = _lanes(steps, gpu.max_lanes)
    constants: dict[str, Constant] = {
        "LANES": lanes,
        "TEAMS": TEAMS,
        "WORKGROUP": lanes * TEAMS,
        "TILE": shape.tile,
        "PARTS": 2 if then == "gate" else 1,
        "COLS": shape.cols,
        "STEPS": steps,
        "N_ROWS": shape.n_rows,
        "SCALES": fmt.scales,
        "COUNT_AT": shape.count_at,
    }
    if then == "gate":
        constants["COLS_OUT"] = shape.n_rows
        epilogue = (f"activation_{activation}", "linear_gate", *emit_include(emit_fixed16))
    else:
        constants |= {"OUT_WIDTH": shape.out_width, "OUT_AT": shape.out_at}
        epilogue = (f"linear_{then}", "bias" if bias else "bias_none")
    includes = (*block_include(fmt), f"input_{fmt.activation}", *epilogue)
    return gpu.shader("linear", constants, includes, declare_planes(fmt))


def reference(
    x: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """x [T, cols], weight [rows, cols], bias [rows] -> [T, rows]."""
    y = (weight @ x[0])[None] if len(x) == 1 else x @ weight.T  # a matvec reads the weights once, in order
    return y if bias is None else y + bias
