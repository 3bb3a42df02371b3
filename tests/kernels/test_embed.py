"""Embedding rows on the GPU: every format, tables in pieces, and the first half of the norm that follows."""

import numpy as np
import pytest

from cera_py.kernels import embed, fixed16
from cera_py.kernels.formats import FORMATS

TYPES = list(FORMATS)


def planes_of(fmt, raw):
    return dict(zip((plane.name for plane in fmt.planes), fmt.repack(raw), strict=True))


def step_with(ids):
    step = np.zeros(16 + 2 * len(ids), np.uint32)
    step[16::2] = ids
    return step


def run_embed(gpu, run_kernel, fmt, raw, ids, scale, row_at, x):
    """x after the kernel has put in the rows of those ids that `raw`, the table from row_at on, has."""
    cols = x.shape[1]
    shader = embed.shader(gpu, fmt, cols, row_at, len(raw), scale)
    return run_kernel(shader, embed.grid(cols, len(ids)), {**planes_of(fmt, raw), "step": step_with(ids), "x": x}, "x")


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize(("blocks", "ids", "scale"), [(1, [4], 1.0), (3, [0, 36, 5, 5, 17, 1, 2, 3, 4], 8.5)])
def test_rows(gpu, run_kernel, random_weights, name, blocks, ids, scale):
    fmt = FORMATS[name]
    cols = blocks * fmt.block if fmt.block > 1 else 27 * blocks  # floats: no multiple of 8
    raw = random_weights(name, 37, cols)
    found = run_embed(gpu, run_kernel, fmt, raw, ids, scale, 0, np.full((len(ids) + 1, cols), 7, np.float32))
    np.testing.assert_allclose(found[:-1], embed.reference(fmt.dequantize(raw), ids, scale), rtol=1e-6, atol=0)
    assert np.all(found[-1] == 7)


@pytest.mark.parametrize("name", ["F16", "Q4_1", "Q6_K"])
def test_a_table_in_pieces(gpu, run_kernel, random_weights, name):
    fmt = FORMATS[name]
    cols, ids = 256, [69, 0, 31, 32, 63, 64]
    raw = random_weights(name, 70, cols)
    x = np.full((len(ids), cols), 7, np.float32)
    for row_at in (0, 32, 64):
        here = [i for i, token in enumerate(ids) if row_at <= token < row_at + 32]
        before, x = x, run_embed(gpu, run_kernel, fmt, raw[row_at : row_at + 32], ids, 1.0, row_at, x)
        others = [i for i in range(len(ids)) if i not in here]
        assert np.array_equal(x[others], before[others])
    assert np.array_equal(x, embed.reference(fmt.dequantize(raw), ids))


@pytest.mark.parametrize("name", TYPES)
@pytest.mark.parametrize("to_fixed16", [True, False])
def test_half_normed(gpu, run_kernel, random_weights, name, to_fixed16):
    check_half_normed(gpu, run_kernel, random_weights, name, to_fixed16, max(96, FORMATS[name].block))


@pytest.mark.parametrize("name", ["F16", "Q4_0"])
def test_half_normed_without_subgroups(without_subgroups, run_kernel, random_weights, name):
    check_half_normed(without_subgroups, run_kernel, random_weights, name, True, 576)


def check_half_normed(gpu, run_kernel, random_weights, name, to_fixed16, cols):
    fmt = FORMATS[name]
    raw, token, scale = random_weights(name, 40, cols), 33, 2.0
    weight = np.random.default_rng(0).uniform(-2, 2, cols).astype(np.float32)
    n_groups = embed.n_groups_normed(cols)
    empty = np.zeros((1, cols), np.float32)
    out, array = ("fixed", fixed16.quantize(empty)) if to_fixed16 else ("encoded", empty)
    buffers = {**planes_of(fmt, raw), "step": step_with([token]), "x": empty, "norm_weight": weight, out: array}
    buffers["new_squares"] = np.full(n_groups, 7, np.float32)
    shader = embed.normed_shader(gpu, fmt, cols, scale, to_fixed16)
    x, squares, encoded = run_kernel(shader, (n_groups, 1, 1), buffers, "x", "new_squares", out)
    expected = embed.reference(fmt.dequantize(raw), [token], scale)
    np.testing.assert_allclose(x, expected, rtol=1e-6, atol=0)
    np.testing.assert_allclose(squares.sum(), np.sum(expected.astype(np.float64) ** 2), rtol=1e-5)
    if to_fixed16:
        encoded = fixed16.dequantize(encoded)
    np.testing.assert_allclose(
        encoded, expected * weight, rtol=1e-6, atol=np.abs(expected * weight).max() / 32639 if to_fixed16 else 0
    )
