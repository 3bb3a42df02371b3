"""Activations in 16-bit fixed point: fixed16.wgsl against its NumPy twin, and the twin against float64."""

import numpy as np
import pytest

from cera_py.kernels import fixed16
from cera_py.kernels.kernel import Shader, declare, wgsl_file

# Each workgroup takes STORED blocks of a token's row of BLOCKS, from float32 [T, 32 * BLOCKS].
KERNEL = """
@group(0) @binding(0) var<storage, read> x: array<f32>;
@group(0) @binding(1) var<storage, read_write> fixed: array<u32>;

var<workgroup> values: array<f32, 7u + 32u * STORED>;

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(workgroup_id) group: vec3<u32>, @builtin(local_invocation_index) thread: u32) {
    let first_block = group.x * STORED;
    for (var i = thread; i < 32u * STORED; i += WORKGROUP) {
        values[7u + i] = x[(group.y * BLOCKS + first_block) * 32u + i];
    }
    workgroupBarrier();
    store_fixed16(7u, STORED, group.y, first_block, BLOCKS, thread);
}
"""


def samples(n_tokens, n_blocks, seed=0):
    """Rows of every size that a model may meet: ordinary values, zeros, one large value, 1e30, denormals."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_tokens, n_blocks, 32)).astype(np.float32)
    flat = x.reshape(-1, 32)
    flat[0::7] *= 1e-3
    flat[1::7] = 0
    flat[2::7, 5] = -1e4
    flat[3::7] *= np.float32(1e30) / np.abs(flat[3::7]).max()
    flat[4::7] *= 1e-40
    flat[5::7] *= 1e-25
    return x.reshape(n_tokens, n_blocks * 32)


def units(planes):
    """The integers v [T, n] that the planes hold."""
    ones = planes.copy()
    ones[:, 4, :, 0] = np.float32(1).view(np.uint32)
    return fixed16.dequantize(ones)


def test_round_trip_errs_by_half_a_unit():
    x = samples(3, 14)
    largest = np.abs(x).reshape(3, 14, 32).max(-1, keepdims=True)
    bound = np.maximum(largest.astype(np.float64) / 32639 * 0.501, 1e-30)
    planes = fixed16.quantize(x)
    error = np.abs(fixed16.dequantize(planes).astype(np.float64) - x).reshape(3, 14, 32)
    assert planes.shape == (3, 5, 14, 4)
    assert planes.size == fixed16.words(3, 14 * 32)
    assert np.all(error <= bound)
    assert np.abs(units(planes)).max() == 32639


def test_layout():
    x = np.arange(-16, 16, dtype=np.float32)[None] * 1000
    x[0, 31] = 32639  # so that the scale is 1
    planes = fixed16.quantize(x)
    v = x.astype(np.int32)[0]
    high, low = planes.view(np.int8)[0, 0:2].reshape(32), planes.view(np.int8)[0, 2:4].reshape(32)
    assert np.array_equal(256 * high.astype(np.int32) + low, v)
    assert planes[0, 4, 0, :3].view(np.float32).tolist() == [1.0, v[:16].sum(), v[16:].sum()]
    assert planes[0, 4, 0, 3] == 0


@pytest.mark.parametrize("reduction", ["reduce_subgroup", "reduce_shared"])
@pytest.mark.parametrize(
    ("workgroup", "stored", "blocks"), [(64, 1, 3), (64, 2, 4), (64, 8, 8), (256, 4, 12), (256, 8, 16), (32, 5, 15)]
)
def test_gpu_stores_what_numpy_does(gpu, reduction, workgroup, stored, blocks):
    if reduction == "reduce_subgroup" and not gpu.subgroups:
        pytest.skip("this adapter has no subgroups")
    x = samples(3, blocks, seed=stored)
    constants = {
        "WORKGROUP": workgroup,
        "LANES": 8,
        "SUBGROUP_SIZE": gpu.subgroup_size,
        "STORED": stored,
        "BLOCKS": blocks,
    }
    includes = [wgsl_file(f"parts/{reduction}"), wgsl_file("parts/reduce"), wgsl_file("parts/fixed16")]
    text = "\n".join([*(declare(*item) for item in constants.items()), *includes, KERNEL])
    shader = Shader("fixed16", text, (("x", False), ("fixed", True)))
    n_bytes = 4 * fixed16.words(3, 32 * blocks)
    out = gpu.empty(n_bytes, "fixed")
    gpu.submit([(gpu.dispatch(shader, {"x": gpu.upload(x, "x"), "fixed": out}), (blocks // stored, 3, 1))])
    found = gpu.read(out, n_bytes).view(np.uint32).reshape(3, 5, blocks, 4)

    expected = fixed16.quantize(x)
    v = units(found)
    assert np.abs(v - units(expected)).max() <= 1  # a driver's division may err by a few ulp
    np.testing.assert_allclose(found[:, 4, :, 0].view(np.float32), expected[:, 4, :, 0].view(np.float32), rtol=1e-6)
    assert np.array_equal(found[:, 4, :, 1:3].view(np.float32), v.reshape(3, blocks, 2, 16).sum(-1))
    assert not found[:, 4, :, 3].any()


@pytest.mark.filterwarnings("ignore:invalid value")
def test_not_a_number_does_not_raise():
    x = samples(1, 7)
    x[0, 3], x[0, 40] = np.nan, np.inf
    assert fixed16.quantize(x).shape == (1, 5, 7, 4)
