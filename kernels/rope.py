"""Rotary position embedding in 64-bit fixed point: exact at every position, on every backend.

The angle of pair j at position p is 2 pi * p * turns_j. `turns_j` is kept as a 64-bit fraction of a turn, so the phase
p * turns_j is a wrapping integer product: whole turns fall away, and the upper 32 bits that remain are exact. cos and
sin come from our own polynomials. |error| of cos and sin <= 2e-6 against float64 (1e-7 where measured).

`rope.wgsl`, one workgroup per (head, token), rotates Q and K in place and appends K and V to the cache:

| binding | what |
|---|---|
| step | u32: the state of the step; the position of token t is step[17 + 2t] |
| turns | u32 [n_rot / 2, 2]: `turns_to_words` |
| qkv | float32 [T, qkv_width]: Q at column 0, K at k_at, V at v_at; Q and K are replaced |
| k_cache, v_cache | [n_kv_heads, capacity, head_dim]: f16, two a u32 (beyond +-65504: clamped), or float32 |
| q_norm, k_norm | float32 [head_dim], only with QK-norm: per-head RMS norm before the rotation |

The layout says which dimensions make a pair: (d, d + n_rot / 2) for "neox", (2d, 2d + 1) for "interleaved". Dimensions
past n_rot pass through. `mscale` (YaRN) multiplies cos and sin. head_dim and n_rot are even, n_rot <= head_dim.
The caller sees to it that every position is below the cache's capacity.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.kernel import Constant, Shader

if TYPE_CHECKING:
    from cera_py.gpu import Gpu, Grid
    from cera_py.operations import RopeLayout

WORKGROUP = 64


def turns_to_words(turns: NDArray[np.float64]) -> NDArray[np.uint32]:
    """Turns per position [n_rot / 2] as 64-bit fractions of a turn: uint32 [n_rot / 2, 2], (low, high).

    turns_j = freq_base^(-2j / n_rot) * freq_scale / freq_factor_j / (2 pi). Float64 is enough: its 53 bits leave an
    error of 1e-10 radians at position 2^20.
    """
    fraction = np.asarray(turns, np.float64) % 1.0
    return np.ldexp(fraction, 64).astype("<u8").view("<u4").reshape(-1, 2)


def rotations(positions: NDArray[np.integer], turns: NDArray[np.uint32], mscale: float = 1.0) -> NDArray[np.complex64]:
    """mscale * (cos + i sin) for each of T positions (0 .. 2^32 - 1) and each pair: complex64 [T, n_rot / 2].

    The same integer phase as on the GPU. One call serves every layer of a step.
    """
    turn = np.ascontiguousarray(turns).view("<u8")[:, 0]
    phase = (np.asarray(positions, np.uint64)[:, None] * turn) >> np.uint64(32)  # [T, n_rot / 2], wraps
    angle = phase * (2 * np.pi / 2**32)
    rotation = np.empty(angle.shape, np.complex64)
    rotation.real = mscale * np.cos(angle)
    rotation.imag = mscale * np.sin(angle)
    return rotation


def rotate(x: NDArray[np.float32], rotation: NDArray[np.complex64], layout: RopeLayout) -> NDArray[np.float32]:
    """A copy of x [T, n_heads, head_dim], its pairs turned by rotation [T, n_rot / 2], the rest as it was."""
    half = rotation.shape[-1]
    rotation = rotation[:, None, :]  # the same for every head
    if layout == "interleaved":
        if 2 * half == x.shape[-1]:  # a pair is a complex number as it stands
            return (np.ascontiguousarray(x).view(np.complex64) * rotation).view(np.float32)
        turned = (np.ascontiguousarray(x[..., : 2 * half]).view(np.complex64) * rotation).view(np.float32)
        return np.concatenate([turned, x[..., 2 * half :]], axis=-1)
    pairs = np.empty((*x.shape[:-1], half), np.complex64)
    pairs.real, pairs.imag = x[..., :half], x[..., half : 2 * half]
    pairs *= rotation
    out = np.empty(x.shape, np.float32)
    out[..., :half], out[..., half : 2 * half], out[..., 2 * half :] = pairs.real, pairs.imag, x[..., 2 * half :]
    return out


def reference(
    x: NDArray[np.float32],
    positions: NDArray[np.integer],
    turns: NDArray[np.uint32],
    layout: RopeLayout,
    mscale: float = 1.0,
) -> NDArray[np.float32]:
    """Rotate x [T, n_heads, head_dim] by its positions [T]; turns: uint32 [n_rot / 2, 2] of `turns_to_words`."""
    return rotate(x, rotations(positions, turns, mscale), layout)


def shader(
    gpu: Gpu,
    *,
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    n_rot: int,
    qkv_width: int,
    k_at: int,
    v_at: int,
    capacity: int,
    layout: RopeLayout,
    mscale: float = 1.0,
    kv_f32: bool = False,
    qk_norm_eps: float | None = None,
) -> Shader:
    """The shader for one shape of attention layer. `qk_norm_eps`: not None where the layer has QK-norm."""
    constants: dict[str, Constant] = {
        "WORKGROUP": WORKGROUP,
        "LANES": WORKGROUP,
        "N_HEADS": n_heads,
        "N_KV_HEADS": n_kv_heads,
        "HEAD_DIM": head_dim,
        "N_ROT": n_rot,
        "QKV_WIDTH": qkv_width,
        "K_AT": k_at,
        "V_AT": v_at,
        "CAPACITY": capacity,
        "MSCALE": float(mscale),
        "NEOX": layout == "neox",
        "KV_F32": kv_f32,
    }
    if qk_norm_eps is None:
        return gpu.shader("rope", constants, ("rope_plain",))
    return gpu.shader("rope", {**constants, "EPS": float(qk_norm_eps)}, ("rope_norm",))


def grid(n_heads: int, n_kv_heads: int, n_tokens: int) -> Grid:
    """One workgroup per (head, token): Q heads, then K heads, then V heads."""
    return (n_heads + 2 * n_kv_heads, n_tokens, 1)
