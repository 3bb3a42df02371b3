"""Gated activations: the NumPy reference against float64, and the kernel that is used where gate and up lie apart."""

import math

import numpy as np
import pytest

from cera_py.kernels import fixed16, gate, norm


def exact(opened, up, activation):
    opened = opened.astype(np.float64)
    if activation == "silu":
        with np.errstate(over="ignore"):
            return opened / (1 + np.exp(-opened)) * up
    return 0.5 * opened * (1 + np.tanh(math.sqrt(2 / math.pi) * (opened + 0.044715 * opened**3))) * up


def pair(tokens, cols):
    rng = np.random.default_rng([tokens, cols])
    opened, up = rng.normal(0, 4, (2, tokens, cols)).astype(np.float32)
    special = np.array([0, -0.0, 1e4, -1e4, 90, -90, 1e-30], np.float32)[:cols]
    opened[0, : len(special)] = special
    return opened, up


@pytest.mark.parametrize("activation", ["silu", "gelu"])
def test_reference(activation):
    opened, up = pair(3, 200)
    np.testing.assert_allclose(
        gate.reference(opened, up, activation), exact(opened, up, activation), rtol=1e-5, atol=1e-6
    )
    assert np.array_equal(opened, pair(3, 200)[0])  # its inputs stay as they are


@pytest.mark.parametrize("activation", ["silu", "gelu"])
@pytest.mark.parametrize(
    ("tokens", "cols", "to_fixed16"), [(1, 32, True), (3, 352, True), (1, 1, False), (9, 77, False), (2, 300, False)]
)
@pytest.mark.parametrize("emulate", ["", "wide", "without_subgroups"])
def test_kernel(gpu, request, run_kernel, activation, tokens, cols, to_fixed16, emulate):
    if emulate:
        request.getfixturevalue(emulate)
    opened, up = pair(tokens, cols)
    empty = np.zeros((tokens, cols), np.float32)
    name, out = ("fixed", fixed16.quantize(empty)) if to_fixed16 else ("encoded", empty)
    shader = norm.gate_shader(gpu, cols, activation, to_fixed16)
    found = run_kernel(shader, (tokens, 1, 1), {"gate": opened, "up": up, name: out}, name)
    expected = exact(opened, up, activation)
    bound = 1e-5 * np.abs(expected) + 1e-5
    if to_fixed16:
        found = fixed16.dequantize(found)
        bound += np.repeat(np.abs(expected).reshape(tokens, -1, 32).max(-1), 32, -1) / 32639
    assert np.all(np.abs(found - expected) <= bound)
