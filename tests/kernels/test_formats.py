"""Tensor types: NumPy against gguf's own dequantisation, the planes, and load_block on every GPU adapter."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import gguf
import numpy as np
import pytest

from cera_py.errors import ModelFileError, UnsupportedModelError
from cera_py.kernels.formats import FORMATS, Format, format_of

TYPES = ["F32", "F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K", "Q5_K", "Q6_K"]
HALF_FIELDS = {"Q4_0": [0], "Q4_1": [0, 2], "Q5_0": [0], "Q5_1": [0, 2], "Q8_0": [0]}  # where a block has float16
HALF_FIELDS |= {"Q4_K": [0, 2], "Q5_K": [0, 2], "Q6_K": [208]}
SPECIAL = np.array([0, -0.0, 6e-8, -6e-8, 6.09e-5, -3e-5, 6.104e-5, 65504, -65504, 1, -1], np.float16)
LARGEST = {"F32": 3e38, "F16": 65504, "BF16": 3e38}


def random_raw(name: str, rows: int, cols: int, seed: int = 0) -> np.ndarray:
    """Random raw rows: any codes, and scales (or floats) of which a third are zero, denormal or huge."""
    rng = np.random.default_rng([seed, rows, cols])
    format = FORMATS[name]
    if format.activation == "float32":
        values = rng.normal(0, 0.05, (rows, cols)).astype(np.float32)
        special = rng.choice(np.append(SPECIAL, LARGEST[name]).astype(np.float32), (rows, cols))
        values = np.where(rng.random((rows, cols)) < 0.3, special, values)
        if name == "F32":
            values[0, 0] = 1e-42  # a denormal
            return values.view(np.uint8)
        if name == "F16":
            return values.astype(np.float16).view(np.uint8)
        return np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)
    raw = rng.integers(0, 256, (rows, cols // format.block, format.block_bytes), np.uint8)
    extreme = rng.random(raw.shape[:2]) < 0.2
    raw[extreme] = rng.choice(np.array([0, 0x0F, 0x7F, 0x80, 0xF0, 0xFF], np.uint8), (int(extreme.sum()), 1))
    for offset in HALF_FIELDS[name]:
        scales = rng.normal(0, 0.02, raw.shape[:2]).astype(np.float16)
        scales = np.where(rng.random(raw.shape[:2]) < 0.3, rng.choice(SPECIAL, raw.shape[:2]), scales)
        raw[:, :, offset : offset + 2] = scales.view(np.uint8).reshape(*raw.shape[:2], 2)
    return raw.reshape(rows, -1)


def expected(name: str, raw: np.ndarray) -> np.ndarray:
    """What gguf says the values are; its own float types keep the shape of their bytes."""
    return gguf.quants.dequantize(raw, gguf.GGMLQuantizationType[name]).reshape(len(raw), -1)


def shapes(name: str) -> list[tuple[int, int]]:
    block = FORMATS[name].block
    if block == 1:
        return [(1, 1), (1, 8), (3, 13), (8, 64), (17, 576), (1000, 255)]
    return [(1, block), (1, 3 * block), (3, block), (7, 5 * block), (8, 2 * block), (130, 1536), (2049, block)]


def test_table_names_every_type():
    assert list(FORMATS) == TYPES
    for name, format in FORMATS.items():
        assert format_of(name) is format
        assert (format.block, format.block_bytes) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[name]]


def test_unknown_type_is_named_with_those_we_have():
    with pytest.raises(UnsupportedModelError, match=r"Q9_Z .*Q4_0, .*Q6_K"):
        format_of("Q9_Z")


@pytest.mark.parametrize("name", TYPES)
def test_dequantize_equals_gguf(name: str):
    for rows, cols in shapes(name):
        raw = random_raw(name, rows, cols)
        raw.flags.writeable = False  # as a mapped file is
        values = FORMATS[name].dequantize(raw)
        assert values.shape == (rows, cols)
        assert values.dtype == np.float32
        assert values.flags.writeable
        assert not np.shares_memory(values, raw)
        np.testing.assert_array_equal(values.view(np.uint32), expected(name, raw).view(np.uint32))


@pytest.mark.parametrize("name", TYPES)
def test_ragged_rows_are_refused(name: str):
    if FORMATS[name].block_bytes > 1:
        with pytest.raises(ModelFileError, match=name):
            FORMATS[name].dequantize(np.zeros((2, FORMATS[name].block_bytes + 1), np.uint8))
        with pytest.raises(ModelFileError, match=name):
            FORMATS[name].repack(np.zeros((2, FORMATS[name].block_bytes + 1), np.uint8))


@pytest.mark.parametrize("name", TYPES)
def test_no_rows(name: str):
    format = FORMATS[name]
    raw = np.zeros((0, 2 * format.block_bytes), np.uint8)
    assert format.dequantize(raw).shape == (0, 2 * format.block)
    assert [len(plane) for plane in format.repack(raw)] == [0] * len(format.planes)


@pytest.mark.parametrize("name", TYPES)
def test_planes_are_whole_elements_and_grow_little(name: str):
    format = FORMATS[name]
    for rows, cols in [*shapes(name), (64, 2048)]:
        raw = random_raw(name, rows, cols)
        planes = format.repack(raw)
        assert len(planes) == len(format.planes)
        for plane, spec, row_bytes in zip(planes, format.planes, format.plane_row_bytes(cols), strict=True):
            assert plane.dtype == np.uint8
            assert plane.ndim == 1
            assert plane.flags.c_contiguous
            assert len(plane) == -(-rows * row_bytes // spec.element_bytes) * spec.element_bytes
            assert row_bytes * 8 % spec.element_bytes == 0
        if cols % 8 == 0 and rows > 1:
            assert sum(len(plane) for plane in planes) <= 1.05 * raw.nbytes


@pytest.mark.parametrize("name", TYPES)
def test_rows_split_at_multiples_of_8(name: str):
    format = FORMATS[name]
    for cols in [13, 64] if format.block == 1 else [format.block, 3 * format.block]:
        raw = random_raw(name, 27, cols)
        whole = format.repack(raw)
        first, middle, last = (format.repack(raw[a:b]) for a, b in [(0, 8), (8, 24), (24, 27)])
        for i, row_bytes in enumerate(format.plane_row_bytes(cols)):
            np.testing.assert_array_equal(whole[i], np.concatenate([first[i], middle[i], last[i]]))
            np.testing.assert_array_equal(whole[i][8 * row_bytes : 24 * row_bytes], middle[i])


@pytest.mark.parametrize("name", ["Q4_1", "Q6_K", "BF16"])
def test_threads_do_not_disturb_each_other(name: str):
    raws = [random_raw(name, 300, 768, seed) for seed in range(8)]
    with ThreadPoolExecutor(4) as pool:
        for raw, values in zip(raws, pool.map(FORMATS[name].dequantize, raws), strict=True):
            np.testing.assert_array_equal(values, expected(name, raw))


@pytest.mark.parametrize("file", ["F16", "BF16", "Q4_0", "Q4_1", "Q5_0", "Q5_1", "Q8_0", "Q4_K_S", "Q5_K_S", "Q6_K"])
def test_conformance_files(file: str, conformance: Path):
    for tensor in gguf.GGUFReader(conformance / "quant" / f"{file}.gguf").tensors:
        name = tensor.tensor_type.name
        raw = (
            np.ascontiguousarray(tensor.data).view(np.uint8).reshape(-1, FORMATS[name].row_bytes(int(tensor.shape[0])))
        )
        np.testing.assert_array_equal(FORMATS[name].dequantize(raw), expected(name, raw))


# On the GPU: small kernels around load_block, on each backend that this machine has (software or not).

VALUES_KERNEL = """
@group(0) @binding(0) var<storage, read_write> output: array<vec4<f32>>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    let per_block = STEP / 4u;
    let b = id.x;
    if b >= arrayLength(&output) / per_block { return; }
    let block = load_block(b);
    for (var i = 0u; i < per_block; i++) { output[b * per_block + i] = block_values(block, i); }
}
"""

DOT_KERNEL = """
@group(0) @binding(0) var<storage, read_write> output: array<f32>;
@group(0) @binding(1) var<storage, read> activations: array<Activation>;

@compute @workgroup_size(64)
fn main(@builtin(global_invocation_id) id: vec3<u32>) {
    if id.x >= arrayLength(&output) { return; }
    output[id.x] = block_dot(load_block(id.x), activations[id.x]);
}
"""


@pytest.fixture(scope="module")
def devices():
    """One device for each adapter, by a name to print."""
    import wgpu

    adapters = wgpu.gpu.enumerate_adapters_sync()
    if not adapters:
        pytest.skip("no GPU adapter, not even a software one")
    return {f"{a.info['backend_type']} {a.info['device']}": a.request_device_sync() for a in adapters}


def run_kernel(device, format: Format, kernel: str, raw: np.ndarray, inputs: list[np.ndarray], size: int) -> np.ndarray:
    """Run one thread a block; bindings: 0 the output (float32 [size]), then inputs, then the planes."""
    import wgpu

    declarations = [f"const SCALES = {format.scales}u;", f"const STEP = {format.step}u;"]
    for binding, plane in enumerate(format.planes, 1 + len(inputs)):
        declarations.append(f"@group(0) @binding({binding}) var<storage, read> {plane.name}: array<{plane.element}>;")
    code = "\n".join([*declarations, format.block_wgsl, format.wgsl, kernel])
    output = device.create_buffer(size=4 * size, usage=wgpu.BufferUsage.STORAGE | wgpu.BufferUsage.COPY_SRC)
    buffers = [output]
    for data in [*inputs, *format.repack(raw)]:
        buffers.append(device.create_buffer_with_data(data=data, usage=wgpu.BufferUsage.STORAGE))
    module = device.create_shader_module(code=code)
    pipeline = device.create_compute_pipeline(layout="auto", compute={"module": module, "entry_point": "main"})
    entries = [{"binding": i, "resource": {"buffer": buffer}} for i, buffer in enumerate(buffers)]
    encoder = device.create_command_encoder()
    compute = encoder.begin_compute_pass()
    compute.set_pipeline(pipeline)
    compute.set_bind_group(0, device.create_bind_group(layout=pipeline.get_bind_group_layout(0), entries=entries))
    compute.dispatch_workgroups(-(-size // 64))
    compute.end()
    device.queue.submit([encoder.finish()])
    return np.frombuffer(device.queue.read_buffer(output), np.float32)


def padded_values(format: Format, raw: np.ndarray) -> np.ndarray:
    """The values as the planes have them, with the zeros that fill the last step of a row: [blocks, step]."""
    values = expected(format.name, raw)
    return np.pad(values, ((0, 0), (0, -values.shape[1] % format.step))).reshape(-1, format.step)


@pytest.mark.parametrize("name", TYPES)
def test_block_values_on_the_gpu(name: str, devices):
    format = FORMATS[name]
    for rows, cols in [(1, format.block), (5, 13 if format.block == 1 else 3 * format.block), (130, 1536)]:
        raw = random_raw(name, rows, cols)
        values = padded_values(format, raw)
        for label, device in devices.items():
            output = run_kernel(device, format, VALUES_KERNEL, raw, [], values.size)
            # d * code has at most 24 bits, so that every type is exact, with or without a fused multiply-add
            np.testing.assert_array_equal(output.reshape(values.shape), values, err_msg=label)


@pytest.mark.parametrize("name", TYPES)
def test_block_dot_on_the_gpu(name: str, devices):
    format = FORMATS[name]
    raw = random_raw(name, 40, 768)
    weights = padded_values(format, raw).astype(np.float64)
    if name in LARGEST:
        weights = np.where(np.abs(weights) > 1e30, 0, weights)
        raw = np.where(np.abs(expected(name, raw)) > 1e30, 0, raw.view(f"u{format.block_bytes}")).astype(
            f"u{format.block_bytes}"
        )
        raw = raw.view(np.uint8)
    rng = np.random.default_rng(1)
    if format.activation == "float32":
        x = rng.normal(0, 1, weights.shape).astype(np.float32)
        activations, x = x, x.astype(np.float64)
    else:
        x = rng.integers(-32768, 32768 - 128, weights.shape)
        x[::7] = -32768
        x[1::7] = 32767 - 128
        low = ((x + 128) & 255) - 128
        high = (x - low) >> 8
        assert high.min() == -128
        assert high.max() == 127
        scale = rng.uniform(1e-5, 1e-3, len(x)).astype(np.float32)
        sums = x.reshape(-1, 2, 16).sum(axis=2).astype(np.float32)
        packed = np.concatenate([high, low], axis=1).astype(np.int8).view(np.float32)
        unused = np.zeros(len(x), np.float32)  # the struct is 80 bytes
        activations = np.column_stack([packed, scale, sums, unused])
        x = x * scale[:, None].astype(np.float64)
    reference = (weights * x).sum(axis=1)
    bound = 2.0**-20 * np.abs(weights).max(axis=1) * np.abs(x).sum(axis=1)
    for label, device in devices.items():
        output = run_kernel(device, format, DOT_KERNEL, raw, [np.ascontiguousarray(activations)], len(reference))
        assert np.all(np.abs(output - reference) <= bound), label
