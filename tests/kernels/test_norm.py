"""RMSNorm on the GPU against its reference and float64, and the encoding of rows as linear layers read them."""

import numpy as np
import pytest

from cera_py.kernels import fixed16, norm

EPS = 1e-5


def rows(tokens, cols, loud=1.0):
    """x [tokens, cols] with an outlier, weight [cols]."""
    rng = np.random.default_rng([tokens, cols])
    x = (loud * rng.standard_normal((tokens, cols))).astype(np.float32)
    x[:, 0] *= 50
    return x, rng.uniform(-2, 2, cols).astype(np.float32)


def exact(x, weight, eps=EPS):
    x = x.astype(np.float64)
    return x / np.sqrt(np.mean(x * x, axis=-1, keepdims=True) + eps) * weight


def encoded_as(to_fixed16, tokens, cols):
    """An empty output of a kernel: its name and array."""
    empty = np.full((tokens, cols), 7, np.float32)
    return ("fixed", fixed16.quantize(empty)) if to_fixed16 else ("encoded", empty)


def check_encoded(found, expected):
    if found.dtype == np.uint32:  # half a unit of each block's largest value
        blocks = np.abs(expected).reshape(*expected.shape[:-1], -1, 32).max(-1)
        bound = np.repeat(blocks, 32, -1) * (0.51 / 32639 + 2e-6)
        assert np.all(np.abs(fixed16.dequantize(found) - expected) <= bound)
    else:
        np.testing.assert_allclose(found, expected, rtol=2e-6, atol=1e-7 * np.abs(expected).max())


def run_norm(gpu, run_kernel, tokens, cols, to_fixed16, loud=1.0):
    x, weight = rows(tokens, cols, loud)
    name, out = encoded_as(to_fixed16, tokens, cols)
    buffers = {"step": np.array([tokens, 0], np.uint32), "x": x, "weight": weight, name: out}
    return run_kernel(norm.shader(gpu, cols, EPS, to_fixed16), (tokens, 1, 1), buffers, name)


CASES = [(1, 32, True), (3, 96, True), (2, 576, True), (1, 2048, True), (1, 1, False), (17, 40, False), (3, 515, False)]


@pytest.mark.parametrize(("tokens", "cols", "to_fixed16"), CASES)
@pytest.mark.parametrize("emulate", ["", "wide", "without_subgroups"])
def test_norm(gpu, request, run_kernel, tokens, cols, to_fixed16, emulate):
    if emulate:
        request.getfixturevalue(emulate)
    check_encoded(run_norm(gpu, run_kernel, tokens, cols, to_fixed16), exact(*rows(tokens, cols)))


@pytest.mark.parametrize("loud", [0.0, 1e-4, 1e6])
def test_norm_of_quiet_and_loud_rows(gpu, run_kernel, loud):
    check_encoded(run_norm(gpu, run_kernel, 2, 64, False, loud), exact(*rows(2, 64, loud)))


@pytest.mark.parametrize("to_fixed16", [True, False])
def test_norm_of_the_wanted_tokens_only(gpu, run_kernel, to_fixed16):
    x, weight = rows(7, 64)
    name, out = encoded_as(to_fixed16, 3, 64)
    buffers = {"step": np.array([7, 5, 2], np.uint32), "x": x, "weight": weight, name: out}
    found = run_kernel(norm.shader(gpu, 64, EPS, to_fixed16, outputs_only=True), (2, 1, 1), buffers, name)
    check_encoded(found[:2], exact(x[5:], weight))
    assert np.array_equal(found[2:], out[2:])


@pytest.mark.parametrize(("tokens", "cols", "to_fixed16"), [(1, 32, True), (9, 608, True), (3, 77, False)])
@pytest.mark.parametrize("emulate", ["", "without_subgroups"])
def test_encode(gpu, request, run_kernel, tokens, cols, to_fixed16, emulate):
    if emulate:
        request.getfixturevalue(emulate)
    x, _ = rows(tokens, cols)
    name, out = encoded_as(to_fixed16, tokens, cols)
    found = run_kernel(norm.encode_shader(gpu, cols, to_fixed16), (tokens, 1, 1), {"x": x, name: out}, name)
    check_encoded(found, x)


@pytest.mark.parametrize("shape", [(1, 40), (3, 64), (2, 4, 16)])
def test_reference(shape):
    """Also of each head, where there are three axes."""
    x, weight = rows(int(np.prod(shape[:-1])), shape[-1])
    x = x.reshape(shape)
    np.testing.assert_allclose(norm.reference(x, weight, EPS), exact(x, weight), rtol=2e-6, atol=1e-6)
