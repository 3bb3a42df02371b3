"""reduce_subgroup.wgsl and reduce_shared.wgsl: the same sums and maxima, by shuffles and through shared memory."""

import numpy as np
import pytest

from cera_py.kernels.kernel import Shader, declare, wgsl_file

KERNEL = """
@group(0) @binding(0) var<storage, read> given: array<vec4<f32>>;
@group(0) @binding(1) var<storage, read_write> found: array<vec4<f32>>;  // [4, WORKGROUP]

@compute @workgroup_size(WORKGROUP)
fn main(@builtin(local_invocation_index) thread: u32) {
    let value = given[thread];
    // twice: the scratch memory must survive its own reuse
    let warm_up = team_sum(value, thread) + vec4<f32>(workgroup_sum(value.y, thread) + workgroup_max(value.z, thread));
    found[thread] = team_sum(value, thread);
    let sum = workgroup_sum(value.x, thread);
    let largest = workgroup_max(value.x, thread);
    found[WORKGROUP + thread] = vec4<f32>(sum, largest, octet_sum(value.xy, thread));
    found[2u * WORKGROUP + thread] = vec4<f32>(octet_max(value.x, thread));
    found[3u * WORKGROUP + thread] = warm_up;
}
"""


@pytest.mark.parametrize("include", ["reduce_subgroup", "reduce_shared"])
@pytest.mark.parametrize(
    ("workgroup", "lanes"), [(32, 4), (32, 32), (64, 1), (64, 8), (64, 64), (128, 16), (256, 2), (256, 32), (256, 256)]
)
def test_sums_and_maxima(gpu, include, workgroup, lanes):
    if include == "reduce_subgroup" and not gpu.subgroups:
        pytest.skip("this adapter has no subgroups")
    rng = np.random.default_rng(workgroup + lanes)
    given = rng.standard_normal((workgroup, 4)).astype(np.float32)
    constants = {"WORKGROUP": workgroup, "LANES": lanes, "SUBGROUP_SIZE": gpu.subgroup_size}
    text = "\n".join(
        [
            *(declare(*item) for item in constants.items()),
            wgsl_file(f"parts/{include}"),
            wgsl_file("parts/reduce"),
            KERNEL,
        ]
    )
    shader = Shader("reduce", text, (("given", False), ("found", True)))
    out = gpu.empty(4 * given.nbytes, "found")
    gpu.submit([(gpu.dispatch(shader, {"given": gpu.upload(given, "given"), "found": out}), (1, 1, 1))])
    found = gpu.read(out, 4 * given.nbytes).view(np.float32).reshape(4, workgroup, 4)

    def over(n, values):  # [workgroup, 4] -> sums over groups of n threads, in every thread
        return np.repeat(values.reshape(-1, n, values.shape[-1]).astype(np.float64).sum(1), n, axis=0)

    np.testing.assert_allclose(found[0], over(lanes, given), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(found[1, :, 0], given[:, 0].sum(dtype=np.float64), rtol=1e-5, atol=1e-5)
    assert np.all(found[1, :, 1] == given[:, 0].max())
    np.testing.assert_allclose(found[1, :, 2:], over(8, given[:, :2]), rtol=1e-5, atol=1e-5)
    assert np.all(found[2, :, 0] == np.repeat(given[:, 0].reshape(-1, 8).max(1), 8))
    # deterministic: every thread of a team has the same bits
    assert np.all(found[0].reshape(-1, lanes, 4) == found[0].reshape(-1, lanes, 4)[:, :1])
    assert np.all(found[1, :, 0] == found[1, 0, 0])
