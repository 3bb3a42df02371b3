"""Decode attention: the kernels against their NumPy reference, and that against float64."""

from dataclasses import dataclass

import numpy as np
import pytest

from cera_py.kernels import attention, fixed16


def exact_attention(q, k_cache, v_cache, positions, scale, window=0, softcap=0.0):
    """The definition, head by head, in float64."""
    out = np.empty(q.shape)
    group = q.shape[1] // k_cache.shape[0]
    for t, position in enumerate(positions):
        begin = max(0, position + 1 - window) if window else 0
        for head in range(q.shape[1]):
            k, v = (cache[head // group, begin : position + 1].astype(np.float64) for cache in (k_cache, v_cache))
            scores = k @ q[t, head] * scale
            if softcap:
                scores = softcap * np.tanh(scores / softcap)
            p = np.exp(scores - scores.max())
            out[t, head] = p @ v / p.sum()
    return out


@dataclass
class Case:
    """One attention layer, its inputs, and a run of the kernels over them."""

    head_dim: int = 64
    n_heads: int = 4
    n_kv_heads: int = 2
    positions: tuple[int, ...] = (100,)
    split: int = 0
    splits: int = 1  # of the grid
    window: int = 0
    softcap: float = 0.0
    kv_f32: bool = True
    emit_fixed16: bool = False
    workgroup: int = attention.WORKGROUP
    loud: float = 1.0  # what the queries are multiplied by

    def inputs(self):
        """qkv [T, width], K and V [n_kv_heads, capacity, head_dim]; past the last position the cache holds junk."""
        rng = np.random.default_rng(self.head_dim + self.positions[0])
        capacity = max(self.positions) + 3
        qkv = rng.standard_normal((len(self.positions), self.n_heads * self.head_dim + 8)).astype(np.float32)
        qkv *= np.float32(self.loud)
        cache = rng.standard_normal((2, self.n_kv_heads, capacity, self.head_dim))
        cache[:, :, max(self.positions) + 1 :] = 6e4
        return qkv, *cache.astype(np.float32 if self.kv_f32 else np.float16)

    def expected(self, attend):
        qkv, k, v = self.inputs()
        q = qkv[:, : self.n_heads * self.head_dim].reshape(-1, self.n_heads, self.head_dim)
        k, v = k.astype(np.float32), v.astype(np.float32)
        return attend(q, k, v, np.array(self.positions), self.head_dim**-0.5, self.window, self.softcap)

    def run(self, gpu):
        """The result [T, n_heads, head_dim] of attention.wgsl and, with splits, attention_combine.wgsl."""
        qkv, k, v = self.inputs()
        n_tokens, capacity = len(self.positions), k.shape[1]
        common = {"n_heads": self.n_heads, "head_dim": self.head_dim, "capacity": capacity, "window": self.window}
        common |= {"split": self.split, "emit_fixed16": self.emit_fixed16}
        shader = attention.shader(
            gpu,
            **common,
            n_kv_heads=self.n_kv_heads,
            qkv_width=qkv.shape[1],
            scale=self.head_dim**-0.5,
            softcap=self.softcap,
            kv_f32=self.kv_f32,
            workgroup=self.workgroup,
        )
        step = np.zeros(16 + 2 * n_tokens, np.uint32)
        step[17::2] = self.positions
        buffers = {"step": step, "qkv": qkv, "k_cache": k, "v_cache": v}
        buffers = {name: gpu.upload(data, name) for name, data in buffers.items()}

        width = self.n_heads * self.head_dim
        n_bytes = 4 * (fixed16.words(n_tokens, width) if self.emit_fixed16 else n_tokens * width)
        out = {"fixed" if self.emit_fixed16 else "encoded": gpu.empty(n_bytes, "out")}
        grid = attention.grid(self.n_heads, n_tokens, self.splits)
        if self.split:
            size = attention.partials_size(n_tokens, self.n_heads, self.head_dim, capacity, self.split)
            partials = {"partials": gpu.upload(np.full(size, np.nan, np.float32), "partials")}
            combine = gpu.dispatch(attention.combine_shader(gpu, **common), {"step": buffers["step"]} | partials | out)
            work = [(gpu.dispatch(shader, buffers | partials), grid)]
            work += [(combine, attention.combine_grid(self.n_heads, n_tokens))]
        else:
            work = [(gpu.dispatch(shader, buffers | out), grid)]
        gpu.submit(work)

        (result,) = out.values()
        found = gpu.read(result, n_bytes)
        if self.emit_fixed16:
            found = fixed16.dequantize(found.view(np.uint32).reshape(n_tokens, 5, width // 32, 4))
        return found.view(np.float32).reshape(n_tokens, self.n_heads, self.head_dim)


def check(case, gpu):
    found, expected = case.run(gpu), case.expected(attention.reference)
    tolerance = 2e-5
    if case.emit_fixed16:  # a unit of the block's largest value
        tolerance += np.abs(expected).max() / 32639
    np.testing.assert_allclose(found, expected, rtol=1e-4, atol=tolerance)


CASES = [
    *(Case(head_dim, positions=(300,)) for head_dim in (16, 64, 80, 96, 128, 256)),
    *(Case(head_dim, positions=(77,), kv_f32=False) for head_dim in (16, 64, 80, 96, 128, 256)),
    *(Case(64, 4 * group, 4, (50,)) for group in (1, 3, 8)),
    Case(64, 9, 3, (255, 12, 256, 0, 31), kv_f32=False),
    *(Case(64, positions=(position,), kv_f32=False) for position in (0, 1, 31, 255, 256, 257, 1000, 4100)),
    Case(128, positions=(4100,), split=1024, splits=5),
    Case(64, 9, 3, (1000,), split=128, splits=8, kv_f32=False),
    Case(64, positions=(0, 127, 128, 129, 1000), split=128, splits=9),  # one split more than any position needs
    Case(80, positions=(300,), split=100, splits=4, kv_f32=False),
    Case(64, positions=(1000, 31, 99, 100), window=100),
    Case(64, positions=(1000, 31, 99, 100), window=100, split=64, splits=16),
    Case(256, 4, 1, (600,), window=512, softcap=50.0, kv_f32=False),
    Case(64, positions=(200,), softcap=30.0, loud=20.0),
    Case(64, positions=(200,), loud=1e4),  # scores of +-1e4 and more
    Case(64, positions=(700,), loud=1e4, split=128, splits=6),
    Case(64, 9, 3, (400,), emit_fixed16=True, kv_f32=False),
    Case(96, positions=(40, 41), emit_fixed16=True),
    Case(256, positions=(500,), split=256, splits=2, emit_fixed16=True),
    Case(64, positions=(300,), workgroup=64),
    Case(128, positions=(300,), workgroup=128, kv_f32=False),
]


@pytest.mark.parametrize("case", CASES, ids=lambda case: " ".join(map(str, vars(case).values())))
def test_kernel_does_what_the_reference_does(gpu, case):
    check(case, gpu)


@pytest.mark.parametrize(
    "case",
    [
        Case(64, 9, 3, (300, 5), kv_f32=False, emit_fixed16=True),
        Case(256, positions=(300,)),
        Case(80, positions=(300,), split=128, splits=3),
    ],
    ids=["single", "wide", "split"],
)
def test_kernel_without_subgroups(gpu, monkeypatch, case):
    monkeypatch.setattr(gpu, "subgroups", False)
    check(case, gpu)


def test_the_same_input_gives_the_same_bits(gpu):
    case = Case(64, 9, 3, (1000,), split=128, splits=8, kv_f32=False)
    assert np.array_equal(case.run(gpu), case.run(gpu))


@pytest.mark.parametrize(
    "case",
    [
        Case(64, 9, 3, (200,)),
        Case(64, 9, 3, (200,), window=50, softcap=20.0),
        Case(80, 6, 6, tuple(range(30, 60))),
        Case(64, 8, 2, tuple(range(40)), window=16),
        Case(16, 4, 1, (90, 3, 45, 0), softcap=5.0),
        Case(64, positions=(100, 50), loud=1e5),
    ],
    ids=lambda case: f"{len(case.positions)} tokens, window {case.window}, softcap {case.softcap}",
)
@pytest.mark.parametrize("scores_at_once", [1 << 22, 2000])
def test_reference_is_the_definition(monkeypatch, case, scores_at_once):
    monkeypatch.setattr(attention, "SCORES_AT_ONCE", scores_at_once)
    tolerance = 1e-6 if case.loud == 1 else 0.05  # scores of 1e5 are known to 0.01
    np.testing.assert_allclose(
        case.expected(attention.reference), case.expected(exact_attention), rtol=1e-5, atol=tolerance
    )
