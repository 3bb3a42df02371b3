"""Linear layers on the GPU against the exact product of the dequantised weights, over every format and many shapes."""

from __future__ import annotations

from dataclasses import dataclass, replace

import numpy as np
import pytest

from cera_py.kernels import fixed16, gate, linear, norm
from cera_py.kernels.formats import FORMATS

TYPES = list(FORMATS)
UNTOUCHED = np.float32(7)  # what an output holds where a kernel must not write


@dataclass(frozen=True)
class Layer:
    """One linear layer, its inputs, and a run of the kernel over them."""

    type: str
    rows: int
    cols: int
    tokens: int = 1
    tile: int = 1
    then: str = "store"
    bias: bool = False
    out_at: int = 0
    spare: int = 0  # columns of the output right of the layer's
    activation: str = "silu"
    emit_fixed16: bool = False
    count_at: int = 0
    loud: float = 1.0

    @property
    def format(self):
        return FORMATS[self.type]

    @property
    def quantised(self) -> bool:
        return self.format.activation == "fixed16"

    def inputs(self, random_weights):
        """Raw weights, x [T and the rest of a tile, cols], bias [rows]."""
        rng = np.random.default_rng([self.rows, self.cols, self.tokens])
        rows = 2 * self.rows if self.then == "gate" else self.rows
        raw = random_weights(self.type, rows, self.cols, deviation=0.3 * self.loud)
        padded = -(-self.tokens // self.tile) * self.tile
        x = rng.standard_normal((padded, self.cols)).astype(np.float32)
        x[:, :8] *= 10  # blocks with other scales, and an outlier
        return raw, x, rng.standard_normal(self.rows).astype(np.float32)

    def run(self, gpu, run_kernel, random_weights) -> np.ndarray:
        """What the output buffer holds after the kernel: [T and the rest of a tile, width]."""
        raw, x, bias = self.inputs(random_weights)
        width = self.rows if self.then == "gate" else self.out_at + self.rows + self.spare
        shape = linear.LinearShape(self.rows, self.cols, self.tile, width, self.out_at, self.count_at)
        shape = shape.tuned(gpu, self.format, 2 if self.then == "gate" else 1, whole_blocks=self.then == "gate")
        options = {"bias": self.bias, "activation": self.activation, "emit_fixed16": self.emit_fixed16}
        shader = linear.shader(gpu, self.format, shape, self.then, **options)
        step = np.zeros(16, np.uint32)
        step[self.count_at] = self.tokens
        buffers = dict(zip((plane.name for plane in self.format.planes), self.format.repack(raw), strict=True))
        buffers |= {"step": step, "input": fixed16.quantize(x) if self.quantised else x}
        if self.bias:
            buffers["bias"] = bias
        out = "out"
        buffers[out] = np.full((len(x), width), UNTOUCHED)
        if self.then == "gate":
            out = "fixed" if self.emit_fixed16 else "encoded"
            buffers[out] = buffers.pop("out")
            if self.emit_fixed16:
                buffers[out] = fixed16.quantize(buffers[out])
        found = run_kernel(shader, shape.grid(self.tokens), buffers, out)
        return fixed16.dequantize(found) if self.emit_fixed16 else found

    def exact(self, random_weights, as_stored: bool = True):
        """The products [T, rows] in float64, and the sums of their terms' magnitudes.

        as_stored: of activations rounded to 16 bits, where the kernel reads them so.
        """
        raw, x, bias = self.inputs(random_weights)
        weight = self.format.dequantize(raw).astype(np.float64)
        if as_stored and self.quantised:
            x = fixed16.dequantize(fixed16.quantize(x))
        x = x[: self.tokens].astype(np.float64)
        bias = bias.astype(np.float64) if self.bias else 0.0
        return x @ weight.T + bias, np.abs(x) @ np.abs(weight.T) + np.abs(bias)

    def check(self, gpu, run_kernel, random_weights) -> None:
        found = self.run(gpu, run_kernel, random_weights)
        expected, magnitude = self.exact(random_weights)
        if self.then == "gate":
            self.check_gate(found, expected, magnitude)
            return
        if self.then == "residual":
            expected, magnitude = expected + UNTOUCHED, magnitude + UNTOUCHED
        own = slice(self.out_at, self.out_at + self.rows)
        assert np.all(np.abs(found[: self.tokens, own] - expected) <= 1e-5 * magnitude)
        found[: self.tokens, own] = UNTOUCHED
        assert np.all(found == UNTOUCHED)

    def check_gate(self, found: np.ndarray, sums: np.ndarray, magnitude: np.ndarray) -> None:
        opened, up = (sums[:, half] for half in (slice(self.rows), slice(self.rows, None)))
        error = 1e-5 * magnitude
        expected = gate.reference(opened, up, self.activation)
        bound = 1.2 * error[:, : self.rows] * np.abs(up) + np.abs(opened) * error[:, self.rows :] + 1e-5
        if self.emit_fixed16:  # half a unit of each block's largest value
            blocks = np.abs(expected).reshape(self.tokens, -1, 32).max(-1)
            bound = bound + np.repeat(blocks, 32, -1) / 32639
        assert np.all(np.abs(found[: self.tokens] - expected) <= bound)
        assert np.allclose(found[self.tokens :], UNTOUCHED, rtol=1e-4)


def block(name: str) -> int:
    return FORMATS[name].block


def layers_of(name: str) -> list[Layer]:
    """What every format is tried on."""
    if block(name) == 1:  # rows need not be whole blocks of eight
        return [
            Layer(name, 37, 77, bias=True),
            Layer(name, 69, 64, tokens=8, tile=3, then="residual"),
            Layer(name, 33, 100, tokens=17, tile=8, out_at=5, spare=3),
            Layer(name, 40, 96, then="gate"),
        ]
    return [
        Layer(name, 37, 3 * block(name), bias=True),
        Layer(name, 69, block(name), tokens=8, tile=3, then="residual"),
        Layer(name, 33, 2 * block(name), tokens=17, tile=8, out_at=5, spare=3),
        Layer(name, 64, 2 * block(name), then="gate", emit_fixed16=True),
    ]


MORE_LAYERS = [
    *(Layer(name, 1, block(name)) for name in TYPES),  # one row, one block
    *(Layer("F16", 5, cols) for cols in (3, 7, 9, 15, 17)),
    *(Layer("Q4_0", 40, 96, tokens=tokens, tile=2) for tokens in (1, 2, 3, 9)),
    Layer("F32", 31, 13, tokens=3, tile=2, bias=True, then="residual"),
    Layer("Q8_0", 515, 64, bias=True, then="residual"),
    Layer("Q4_1", 32, 32, tokens=8, tile=8),
    Layer("Q6_K", 96, 512, tokens=9, tile=8, then="gate", emit_fixed16=True),
    Layer("F16", 40, 72, tokens=9, tile=8, then="gate"),
    Layer("Q5_0", 32, 64, tokens=3, tile=2, then="gate", activation="gelu", emit_fixed16=True),
    Layer("F16", 96, 48, then="gate", activation="gelu", emit_fixed16=True),
    Layer("Q8_0", 41, 96, tokens=2, tile=2, then="gate"),
    Layer("Q4_0", 64, 2048, loud=30.0, then="gate", emit_fixed16=True),  # gates of +-1000 and more
    Layer("Q5_K", 40, 256, tokens=5, tile=2, count_at=2),
]


def name_of(layer: Layer) -> str:
    return "-".join(str(value) for value in vars(layer).values())


@pytest.mark.parametrize("layer", [*(layer for name in TYPES for layer in layers_of(name)), *MORE_LAYERS], ids=name_of)
def test_exact_product(gpu, run_kernel, random_weights, layer):
    layer.check(gpu, run_kernel, random_weights)


@pytest.mark.parametrize(
    "layer",
    [
        *(Layer(name, 37, 2 * block(name), tokens=3, tile=2) for name in ("F16", "Q4_0", "Q6_K")),
        Layer("Q8_0", 64, 64, then="gate", emit_fixed16=True),
        Layer("BF16", 33, 44, bias=True, then="residual"),
    ],
    ids=name_of,
)
def test_without_subgroups(without_subgroups, run_kernel, random_weights, layer):
    layer.check(without_subgroups, run_kernel, random_weights)


@pytest.mark.parametrize(
    "layer",
    [
        *(Layer(name, 70, 1280 if block(name) > 1 else 300) for name in TYPES),
        Layer("Q4_0", 64, 1056, tokens=3, tile=2, then="gate", emit_fixed16=True),
        Layer("Q4_0", 64, 2080, then="gate", emit_fixed16=True),
        Layer("F16", 40, 96, then="gate"),
        Layer("F16", 33, 20),  # fewer blocks than threads
        Layer("Q4_K", 40, 256, then="residual"),
    ],
    ids=name_of,
)
def test_workgroups_of_hardware(wide, run_kernel, random_weights, layer):
    layer.check(wide, run_kernel, random_weights)


def test_hardware_without_subgroups(wide, without_subgroups, run_kernel, random_weights):
    Layer("Q4_1", 70, 1056, tokens=2, tile=2).check(wide, run_kernel, random_weights)


@pytest.mark.parametrize("name", [name for name in TYPES if block(name) > 1])
def test_16_bit_activations_cost_little(gpu, run_kernel, random_weights, name):
    layer = Layer(name, 37, 3 * block(name), tokens=1, bias=True)
    found = layer.run(gpu, run_kernel, random_weights)
    expected, _ = layer.exact(random_weights, as_stored=False)
    assert np.sqrt(np.mean((found - expected) ** 2)) < 1e-4 * expected.std()


@pytest.mark.parametrize(("first", "second"), [("Q4_0", "Q6_K"), ("Q8_0", "F16"), ("F16", "F16"), ("F32", "Q4_K")])
@pytest.mark.parametrize("emulate", ["", "wide", "without_subgroups"])
def test_norm_in_two_halves(gpu, request, run_kernel, random_weights, first, second, emulate):
    """residual_normed adds to the residual stream and half norms it; the layer that reads it does the other half."""
    if emulate:
        request.getfixturevalue(emulate)
    rng = np.random.default_rng(3)
    width, rows, eps = 256, 37, 1e-5
    layer = Layer(first, width, 512 if block(first) > 1 else 100, bias=True)
    raw, x, bias = layer.inputs(random_weights)
    norm_weight = rng.uniform(0.5, 1.5, width).astype(np.float32)
    stream = rng.normal(0, 5, (1, width)).astype(np.float32)
    expected = stream + layer.exact(random_weights)[0]
    reads_fixed16 = FORMATS[second].activation == "fixed16"

    shape = linear.LinearShape(width, layer.cols).tuned(gpu, layer.format, 1, whole_blocks=True)
    shader = linear.shader(gpu, layer.format, shape, "residual_normed", bias=True, emit_fixed16=reads_fixed16)
    encoded = np.zeros((1, width), np.float32)
    emitted = {"fixed": fixed16.quantize(encoded)} if reads_fixed16 else {"encoded": encoded}
    buffers = dict(zip((plane.name for plane in layer.format.planes), layer.format.repack(raw), strict=True))
    buffers |= {"input": fixed16.quantize(x) if layer.quantised else x, "out": stream, "bias": bias}
    buffers |= {"norm_weight": norm_weight, "new_squares": np.zeros(shape.n_groups, np.float32), **emitted}
    stream, squares, encoded = run_kernel(shader, shape.grid(1), buffers, "out", "new_squares", *emitted)
    np.testing.assert_allclose(stream, expected, rtol=1e-5, atol=1e-4)
    np.testing.assert_allclose(squares.sum(), np.sum(expected**2), rtol=1e-5)

    fmt = FORMATS[second]
    raw = random_weights(second, rows, width)
    shape = linear.LinearShape(rows, width, out_width=rows).tuned(gpu, fmt, 1, whole_blocks=False)
    shader = linear.shader(gpu, fmt, shape, "store", norm=linear.DeferredNorm(width, len(squares), eps))
    buffers = dict(zip((plane.name for plane in fmt.planes), fmt.repack(raw), strict=True))
    buffers |= {"input": encoded, "squares": squares, "step": np.array([1], np.uint32)}
    found = run_kernel(shader, shape.grid(1), buffers | {"out": np.zeros((1, rows), np.float32)}, "out")
    normed = norm.reference(expected.astype(np.float32), norm_weight, eps).astype(np.float64)
    expected = normed @ fmt.dequantize(raw).T.astype(np.float64)
    np.testing.assert_allclose(found, expected, rtol=0, atol=1e-4 * expected.std())


def test_the_same_input_gives_the_same_bits(gpu, run_kernel, random_weights):
    layer = Layer("Q4_0", 69, 1056)
    first, second = (layer.run(gpu, run_kernel, random_weights) for _ in range(2))
    assert np.array_equal(first, second)


def test_a_token_is_the_same_in_any_tile(gpu, run_kernel, random_weights):
    layer = Layer("Q4_0", 40, 96, tokens=9, tile=2)
    pairs = layer.run(gpu, run_kernel, random_weights)
    threes = replace(layer, tile=3).run(gpu, run_kernel, random_weights)
    assert np.array_equal(pairs[:9, :40], threes[:9, :40])


def test_reference():
    rng = np.random.default_rng(0)
    x, weight = rng.standard_normal((3, 5)).astype(np.float32), rng.standard_normal((7, 5)).astype(np.float32)
    bias = rng.standard_normal(7).astype(np.float32)
    exact = x.astype(np.float64) @ weight.T.astype(np.float64)
    np.testing.assert_allclose(linear.reference(x, weight), exact, rtol=1e-5, atol=1e-6)
    np.testing.assert_allclose(linear.reference(x[:1], weight, bias), exact[:1] + bias, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize(
    ("rows", "tile", "tokens", "grid"), [(32, 1, 1, (1, 1, 1)), (33, 8, 17, (2, 3, 1)), (1, 8, 8, (1, 1, 1))]
)
def test_grid_covers_rows_and_tokens(rows, tile, tokens, grid):
    assert linear.LinearShape(rows, 32, tile).grid(tokens) == grid
