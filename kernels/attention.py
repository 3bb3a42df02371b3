"""Decode attention: grouped-query, causal, softmax online, over a cache in f16 or float32.

For query head h of token t at position p: out = softmax(scale * q . K) V over the positions 0 .. p of kv head
h / (n_heads / n_kv_heads); with a window only those > p - window; with a softcap the scores are softcap *
tanh(scores / softcap). head_dim is a multiple of 8 and at most 256.

`attention.wgsl`, one workgroup per (head, token, split):

| binding | what |
|---|---|
| step | u32: the state of the step; the position of token t is step[17 + 2t] |
| qkv | float32 [T, qkv_width] (a multiple of 4), the rotated Q at column 0 |
| k_cache, v_cache | [n_kv_heads, capacity, head_dim]: f16, two a u32, or float32; position p is filled already |
| encoded, or fixed | the result [T, n_heads * head_dim]: float32, or planes of fixed16.py (head_dim a multiple of 32) |
| partials | instead of the result, where the context is split |

Without splits (split = 0) a workgroup reads the whole context and writes the result. With them, split z reads the
positions z * split .. (z + 1) * split - 1 and writes partials: float32 [T, n_heads, ceil(capacity / split), head_dim +
2], being (largest score, sum of exponentials, unnormalised result). A split without a position writes nothing.
`attention_combine.wgsl` (step, partials, encoded or fixed), one workgroup per (head, token), merges them. Both find
the splits from the position, so a grid may have more splits than a position needs, never fewer.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import NDArray

from cera_py.kernels.kernel import Constant, Shader
from cera_py.kernels.norm import emit_include

if TYPE_CHECKING:
    from cera_py.gpu import Gpu, Grid

WORKGROUP = 256
SCORES_AT_ONCE = 1 << 20  # of `reference`: 4 MiB of float32 stay in a processor's cache
TOKENS_AT_ONCE = 128  # a chunk reads the context up to its last token only


def reference(
    q: NDArray[np.float32],
    k_cache: NDArray[np.float32],
    v_cache: NDArray[np.float32],
    positions: NDArray[np.integer],
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
) -> NDArray[np.float32]:
    """Attention of q [T, n_heads, head_dim] at positions [T] over caches [n_kv_heads, capacity, head_dim].

    Returns [T, n_heads, head_dim]. Tokens are taken in chunks, whose scores stay in the processor's cache.
    """
    n_tokens, n_heads, head_dim = q.shape
    n_kv_heads = k_cache.shape[0]
    group = n_heads // n_kv_heads
    if n_tokens == 1:
        grouped = q.reshape(n_kv_heads, group, head_dim)
        return _attend(grouped, k_cache, v_cache, positions, scale, window, softcap).reshape(q.shape)
    chunk = min(TOKENS_AT_ONCE, max(1, SCORES_AT_ONCE // (n_heads * (int(positions.max()) + 1))))
    out = np.empty_like(q)
    for first in range(0, n_tokens, chunk):
        part = q[first : first + chunk]
        # The heads of a group, and all tokens, become the rows of one matrix per kv head.
        grouped = part.reshape(-1, n_kv_heads, group, head_dim).transpose(1, 2, 0, 3).reshape(n_kv_heads, -1, head_dim)
        result = _attend(grouped, k_cache, v_cache, positions[first : first + chunk], scale, window, softcap)
        result = result.reshape(n_kv_heads, group, -1, head_dim).transpose(2, 0, 1, 3)
        out[first : first + chunk] = result.reshape(part.shape)
    return out


def _attend(
    q: NDArray[np.float32],
    k_cache: NDArray[np.float32],
    v_cache: NDArray[np.float32],
    positions: NDArray[np.integer],
    scale: float,
    window: int,
    softcap: float,
) -> NDArray[np.float32]:
    """Attention of q [n_kv_heads, group * T, head_dim] (tokens innermost); the same shape comes back."""
    n_tokens = len(positions)
    earliest, latest = (int(positions[0]),) * 2 if n_tokens == 1 else (int(positions.min()), int(positions.max()))
    begin = max(0, earliest + 1 - window) if window else 0
    k, v = k_cache[:, begin : latest + 1], v_cache[:, begin : latest + 1]  # [n_kv_heads, S, head_dim]

    # One token's products are with vectors, because those with thin matrices are slower. [n_kv_heads, group * T, S]
    q = q * np.float32(scale)
    scores = np.matmul(k[:, None], q[..., None])[..., 0] if n_tokens == 1 else np.matmul(q, k.transpose(0, 2, 1))
    if softcap:
        scores /= np.float32(softcap)
        np.tanh(scores, out=scores)
        scores *= np.float32(softcap)
    if n_tokens > 1:
        by_token = scores.reshape(len(q), -1, n_tokens, latest + 1 - begin)
        later = np.arange(earliest + 1, latest + 1) > positions[:, None]  # [T, keys that some token may not see]
        np.copyto(by_token[..., earliest + 1 - begin :], np.float32(-np.inf), where=later)
        if window:
            past = np.arange(begin, latest + 1 - window) <= positions[:, None] - window
            np.copyto(by_token[..., : past.shape[1]], np.float32(-np.inf), where=past)
    scores -= scores.max(axis=-1, keepdims=True)
    np.exp(scores, out=scores)
    out: NDArray[np.float32]
    out = np.matmul(scores[:, :, None], v[:, None])[:, :, 0] if n_tokens == 1 else np.matmul(scores, v)
    out /= scores.sum(axis=-1, keepdims=True)
    return out


def shader(
    gpu: Gpu,
    *,
    n_heads: int,
    n_kv_heads: int,
    head_dim: int,
    qkv_width: int,
    capacity: int,
    scale: float,
    window: int = 0,
    softcap: float = 0.0,
    kv_f32: bool = False,
    split: int = 0,
    emit_fixed16: bool = True,
    workgroup: int = WORKGROUP,
) -> Shader:
    """The shader for one shape of attention layer.

    split: positions per workgroup, 0 for all of them. Where it writes partials, emit_fixed16 (write the result in
    16-bit fixed point, not as float32) has no effect: it is then for `combine_shader`.
    """
    lanes = 1 << (head_dim // 8 - 1).bit_length()  # a thread per 8 dimensions, and some idle ones
    constants: dict[str, Constant] = {
        "WORKGROUP": workgroup,
        "LANES": lanes,
        "N_HEADS": n_heads,
        "N_KV_HEADS": n_kv_heads,
        "HEAD_DIM": head_dim,
        "QKV_WIDTH": qkv_width,
        "CAPACITY": capacity,
        "SCALE": float(scale),
        "SOFTCAP": float(softcap),
        "WINDOW": window,
        "SPLIT": split,
        "KV_F32": kv_f32,
    }
    if not split:
        constants["COLS_OUT"] = n_heads * head_dim
        return gpu.shader("attention", constants, ("attention_result", *emit_include(emit_fixed16)))
    constants["SPLITS"] = n_splits(capacity, split)
    return gpu.shader("attention", constants, ("attention_partial",))


def combine_shader(
    gpu: Gpu, *, n_heads: int, head_dim: int, capacity: int, split: int, window: int = 0, emit_fixed16: bool = True
) -> Shader:
    """The shader that merges the partials of `shader(..., split=split)`; same capacity, window and split."""
    constants: dict[str, Constant] = {
        "WORKGROUP": WORKGROUP,
        "LANES": WORKGROUP,
        "N_HEADS": n_heads,
        "HEAD_DIM": head_dim,
        "WINDOW": window,
        "SPLIT": split,
        "SPLITS": n_splits(capacity, split),
        "COLS_OUT": n_heads * head_dim,
    }
    return gpu.shader("attention_combine", constants, ("attention_result", *emit_include(emit_fixed16)))


def n_splits(n_positions: int, split: int) -> int:
    """How many splits cover the positions 0 .. n_positions - 1."""
    return -(-n_positions // split)


def partials_size(n_tokens: int, n_heads: int, head_dim: int, capacity: int, split: int) -> int:
    """How many float32 the partials take."""
    return n_tokens * n_heads * n_splits(capacity, split) * (head_dim + 2)


def grid(n_heads: int, n_tokens: int, splits: int = 1) -> Grid:
    """One workgroup per (head, token, split)."""
    return (n_heads, n_tokens, splits)


def combine_grid(n_heads: int, n_tokens: int) -> Grid:
    """One workgroup per (head, token)."""
    return (n_heads, n_tokens, 1)
