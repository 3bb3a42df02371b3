"""Linear layers over weights of any format: `y = x @ W.T (+ bias)`, and what happens to y in the same dispatch.

Bindings: the planes of the format; `input`, activations [T, cols] (fixed16.py for integer formats, else float32);
`step`; then by what is done with the sums:
  store      out[t, out_at + row] = y                `out` float32 [T, out_width]
  residual   out[t, out_at + row] += y               `out`
  gate       activation(y_gate) * y_up, encoded      `encoded` float32 or `fixed` (fixed16.py), [T, n_rows]
  residual_normed   residual, and x * weight of the RMSNorm that follows, encoded; its factor is left to the reader:
                    `norm_weight` [n_rows], `new_squares` [workgroups]; the reader binds those as `squares`
and `bias` float32 where there is one. Two kernels: matvec.wgsl for one token, linear.wgsl for tiles of tokens.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.formats import Format
from cera_py.kernels.kernel import Constant, Shader
from cera_py.kernels.norm import emit_include
from cera_py.kernels.weights import block_include, declare_planes, steps_per_row

if TYPE_CHECKING:
    from cera_py.gpu import Gpu, Grid

BLOCK_ROWS = 32  # a workgroup that encodes its result makes whole blocks of the next layer's input


@dataclass(frozen=True)
class LinearShape:
    """One dispatch: rows out_at .. out_at + n_rows of a layer with `cols` inputs.

    tile: tokens at once; 1 takes the matvec kernel. count_at: the word of `step` that holds the number of tokens.
    rows, teams, lanes: a team of `lanes` threads (fewer for short rows) computes `rows` rows (1, 2 or 4; 4 where
    tile > 1), a workgroup is `teams` teams: what suits the GPU (`tuned`). stage_input: it copies the input to shared
    memory first (integer formats, tile 1).
    """

    n_rows: int
    cols: int
    tile: int = 1
    out_width: int = 0
    out_at: int = 0
    count_at: int = 0
    rows: int = 4
    teams: int = 8
    lanes: int = 32
    stage_input: bool = False

    @property
    def group_rows(self) -> int:
        """Rows of one workgroup."""
        return self.rows * self.teams

    @property
    def n_groups(self) -> int:
        """Workgroups that cover the rows."""
        return -(-self.n_rows // self.group_rows)

    def grid(self, n_tokens: int) -> Grid:
        """Workgroups by tiles of tokens."""
        return (self.n_groups, -(-n_tokens // self.tile), 1)

    def tuned(self, gpu: Gpu, fmt: Format, parts: int, whole_blocks: bool) -> LinearShape:
        """The same with rows and teams that suit the GPU. whole_blocks: the workgroup encodes, so 32 rows at least.

        Measured on an H200 (docs/performance.md). Elsewhere 4 rows by 8 teams: no more than 256 threads.
        """
        if self.tile > 1 or not gpu.is_nvidia:
            return self
        if not whole_blocks:
            return replace(self, rows=4, teams=1 if self.n_rows <= 4 * 65535 else 4)  # a grid's most workgroups
        if parts == 2 and self.cols > 2048:
            return replace(self, rows=4, teams=8)
        # a block and its scale, sums: 80 bytes; some shared memory is left for the rest of the kernel
        staged_bytes = 80 * steps_per_row(fmt, self.cols)
        stage_input = fmt.activation == "fixed16" and staged_bytes <= gpu.max_shared_bytes - 2048
        return replace(self, rows=1, teams=32, stage_input=stage_input)


@dataclass(frozen=True)
class DeferredNorm:
    """An RMSNorm whose factor 1 / sqrt(mean(x^2) + eps) the reader applies, from partial sums of squares."""

    n_values: int
    n_squares: int
    eps: float


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
    then: Literal["store", "residual", "gate", "residual_normed"],
    *,
    bias: bool = False,
    activation: str = "silu",
    emit_fixed16: bool = True,
    norm: DeferredNorm | None = None,
) -> Shader:
    """The kernel of one linear layer. `gate`: the planes hold the gate's rows, then as many of up.

    norm: the input is only half normed. `residual_normed` (tile 1) leaves the other half to its reader.
    """
    steps = steps_per_row(fmt, shape.cols)
    lanes = _lanes(steps, min(shape.lanes, gpu.max_lanes))
    parts = 2 if then == "gate" else 1
    constants: dict[str, Constant] = {
        "LANES": lanes,
        "TEAMS": shape.teams,
        "ROWS": shape.rows,
        "GROUP_ROWS": shape.group_rows,
        "WORKGROUP": lanes * shape.teams,
        "TILE": shape.tile,
        "PARTS": parts,
        "COLS": shape.cols,
        "STEPS": steps,
        "N_ROWS": shape.n_rows,
        "SCALES": fmt.scales,
        "COUNT_AT": shape.count_at,
        "OUT_WIDTH": shape.out_width,
        "OUT_AT": shape.out_at,
        "ADDS": then == "residual",
        "COLS_OUT": shape.n_rows,
        "EMITTED": 1 << (shape.group_rows - 1).bit_length(),
    }
    bias_part = "bias" if bias else "bias_none"
    ending: tuple[str, ...] = (bias_part, "linear_store")
    if then == "gate":
        ending = (f"activation_{activation}", *emit_include(emit_fixed16), "linear_gate")
    elif then == "residual_normed":
        ending = (bias_part, *emit_include(emit_fixed16), "emit_normed", "linear_residual_normed")
    scale: tuple[str, ...] = ()
    if shape.tile == 1:
        scale = ("scale_rms" if norm else "scale_none",)
    if norm:
        constants |= {"N_NORM": norm.n_values, "N_SQUARES": norm.n_squares, "EPS": norm.eps}
    staged = "_shared" if shape.stage_input else ""
    values = (
        f"var<workgroup> values: array<f32, {parts * shape.tile * shape.group_rows}>;  // [PARTS, TILE, GROUP_ROWS]"
    )
    return gpu.shader(
        "matvec" if shape.tile == 1 else "linear",
        constants,
        (*block_include(fmt), f"input_{fmt.activation}{staged}", *scale, *ending),
        f"{declare_planes(fmt)}\n{values}",
    )


def reference(
    x: NDArray[np.float32], weight: NDArray[np.float32], bias: NDArray[np.float32] | None = None
) -> NDArray[np.float32]:
    """x [T, cols], weight [rows, cols], bias [rows] -> [T, rows]."""
    y = (weight @ x[0])[None] if len(x) == 1 else x @ weight.T  # a matvec reads the weights once, in order
    return y if bias is None else y + bias
