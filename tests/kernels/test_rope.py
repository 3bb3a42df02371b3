"""RoPE: the kernel and its NumPy reference against exact angles, and against each other."""

import math
from dataclasses import dataclass
from decimal import Decimal, localcontext

import numpy as np
import pytest

from cera_py.kernels import norm, rope

PI = Decimal("3.14159265358979323846264338327950288419716939937510582097494")
POSITIONS = [0, 1, 2, 17, 255, 1000, 4095, 4096, 32767, 131071, 131072, 524287, 786433, 2**20 - 1, 2**20]
POSITIONS += np.random.default_rng(0).integers(0, 2**20, 100).tolist()
BEYOND = [2**24 + 1, 2**31, 2**32 - 1]
CONTRACT = 2e-6  # |error| of cos and sin, at every position up to 2^20, on every backend


def exact_turns(n_rot, freq_base, factors=None, scale=1):
    """base^(-2j / n_rot) * scale / factor_j / (2 pi) for each pair j, to 60 digits."""
    factors = [1.0] * (n_rot // 2) if factors is None else factors
    with localcontext(prec=60):
        frequencies = [Decimal(freq_base) ** (Decimal(-2 * j) / n_rot) for j in range(n_rot // 2)]
        return [f * scale / Decimal(factor) / (2 * PI) for f, factor in zip(frequencies, factors, strict=True)]


def llama3_factors(n_rot, freq_base, factor=8.0, low=1.0, high=4.0, original=8192):
    """The frequency factors of Llama 3.1, from the formula in its config."""
    factors = []
    for j in range(n_rot // 2):
        turns_in_original = original * freq_base ** (-2 * j / n_rot) / (2 * math.pi)
        blend = min(1.0, max(0.0, (turns_in_original - low) / (high - low)))
        factors.append(1 / ((1 - blend) / factor + blend))
    return factors


def exact_rotations(positions, turns):
    """cos + i sin in float64, [T, n_rot / 2]: the fraction of a turn is taken off before anything is rounded."""
    with localcontext(prec=60):
        angles = [[float(p * t % 1 * 2 * PI) for t in turns] for p in positions]
    return np.array([[complex(math.cos(a), math.sin(a)) for a in row] for row in angles])


def words_of(turns):
    return rope.turns_to_words(np.array([float(t) for t in turns]))


@dataclass
class Layer:
    """One attention layer's shape, and a run of the kernel over it. n_kv_heads may be 0: Q alone."""

    n_heads: int = 2
    n_kv_heads: int = 1
    head_dim: int = 64
    n_rot: int = 64
    layout: str = "neox"
    mscale: float = 1.0
    kv_f32: bool = True
    qk_norm_eps: float | None = None
    capacity: int = 64

    @property
    def width(self):
        return (self.n_heads + 2 * self.n_kv_heads) * self.head_dim

    def run(self, gpu, qkv, positions, words, norms=None):
        """qkv [T, width] -> the rotated qkv, and the caches [n_kv_heads, capacity, head_dim] in float32."""
        k_at = self.n_heads * self.head_dim
        shader = rope.shader(
            gpu,
            **vars(self),
            qkv_width=self.width,
            k_at=k_at,
            v_at=k_at + self.n_kv_heads * self.head_dim,
        )
        step = np.zeros(16 + 2 * len(positions), np.uint32)
        step[0] = len(positions)
        step[17::2] = positions
        dtype = np.float32 if self.kv_f32 else np.float16
        cache = np.zeros((self.n_kv_heads, self.capacity, self.head_dim), dtype)
        buffers = {
            "step": gpu.upload(step, "step"),
            "turns": gpu.upload(words, "turns"),
            "qkv": gpu.upload(qkv, "qkv"),
            "k_cache": gpu.upload(cache, "k_cache"),
            "v_cache": gpu.upload(cache, "v_cache"),
        }
        if norms:
            q_norm, k_norm = norms
            buffers |= {"q_norm": gpu.upload(q_norm, "q_norm"), "k_norm": gpu.upload(k_norm, "k_norm")}
        grid = rope.grid(self.n_heads, self.n_kv_heads, len(positions))
        gpu.submit([(gpu.dispatch(shader, buffers), grid)])
        out = gpu.read(buffers["qkv"], qkv.nbytes).view(np.float32).reshape(qkv.shape)
        k, v = (gpu.read(buffers[name], max(4, cache.nbytes))[: cache.nbytes] for name in ("k_cache", "v_cache"))
        k, v = (x.view(dtype).reshape(cache.shape).astype(np.float32) for x in (k, v))
        return out, k, v


def unit_pairs(n_tokens, layer):
    """Rows whose every pair is (1, 0), so that the rotated pair is (cos, sin)."""
    heads = np.zeros((n_tokens, layer.width // layer.head_dim, layer.head_dim), np.float32)
    if layer.layout == "neox":
        heads[..., : layer.n_rot // 2] = 1
    else:
        heads[..., : layer.n_rot : 2] = 1
    return heads


def as_complex(heads, layer):
    """The rotated pairs of heads [T, n, head_dim] as complex numbers [T, n, n_rot / 2]."""
    if layer.layout == "neox":
        return heads[..., : layer.n_rot // 2] + 1j * heads[..., layer.n_rot // 2 : layer.n_rot].astype(np.float64)
    return heads[..., : layer.n_rot : 2] + 1j * heads[..., 1 : layer.n_rot : 2].astype(np.float64)


TABLES = [
    pytest.param(64, 64, 1e4, False, 1.0, id="llama"),
    pytest.param(128, 128, 500000, True, 1.0, id="llama3-factors"),
    pytest.param(80, 32, 1e4, False, 1.0, id="partial"),
    pytest.param(128, 128, 1e6, False, 1.2079441541679836, id="mscale"),
]


@pytest.mark.parametrize("layout", ["neox", "interleaved"])
@pytest.mark.parametrize(("head_dim", "n_rot", "freq_base", "with_factors", "mscale"), TABLES)
def test_cos_and_sin_are_exact(gpu, layout, head_dim, n_rot, freq_base, with_factors, mscale):
    layer = Layer(2, 0, head_dim, n_rot, layout, mscale)  # no K, whose cache would be too large
    turns = exact_turns(n_rot, freq_base, llama3_factors(n_rot, freq_base) if with_factors else None)
    expected = mscale * exact_rotations(POSITIONS, turns)

    given = unit_pairs(len(POSITIONS), layer)
    in_numpy = as_complex(rope.reference(given, np.array(POSITIONS), words_of(turns), layout, mscale), layer)
    assert np.abs(in_numpy - expected[:, None]).max() <= CONTRACT

    qkv = given.reshape(len(POSITIONS), -1)
    rotated, _, _ = layer.run(gpu, qkv, POSITIONS, words_of(turns))
    error = as_complex(rotated.reshape(given.shape), layer) - expected[:, None]
    worst = max(np.abs(error.real).max(), np.abs(error.imag).max())
    assert worst <= CONTRACT
    assert worst <= 4e-7  # what these polynomials are good for, on IEEE float32


def test_positions_wrap_right_beyond_the_contract(gpu):
    layer = Layer(2, 0, layout="interleaved")
    words = words_of(exact_turns(64, 1e4))
    turn = [int(low) + (int(high) << 32) for low, high in words]
    phases = [[p * t % 2**64 / 2**64 for t in turn] for p in BEYOND]  # of the words as they are
    expected = np.exp(2j * np.pi * np.array(phases))
    given = unit_pairs(len(BEYOND), layer)
    in_numpy = as_complex(rope.reference(given, np.array(BEYOND), words, "interleaved"), layer)
    assert np.abs(in_numpy - expected[:, None]).max() <= 4e-7
    rotated, _, _ = layer.run(gpu, given.reshape(len(BEYOND), -1), BEYOND, words)
    assert np.abs(as_complex(rotated.reshape(given.shape), layer) - expected[:, None]).max() <= 4e-7


def test_words_hold_a_64_bit_fraction():
    turns = np.array([0.0, 0.25, 1.5, 2.0**-64, 3 * 2.0**-33])
    assert rope.turns_to_words(turns).tolist() == [[0, 0], [0, 2**30], [0, 2**31], [1, 0], [2**31, 1]]


@pytest.mark.parametrize("layout", ["neox", "interleaved"])
@pytest.mark.parametrize("with_norm", [False, True])
@pytest.mark.parametrize("kv_f32", [False, True])
@pytest.mark.parametrize(
    ("n_heads", "n_kv_heads", "head_dim", "n_rot", "positions"),
    [
        (1, 1, 16, 16, [9]),
        (9, 3, 64, 64, [5]),
        (4, 4, 80, 32, [11, 12, 13]),
        (3, 1, 96, 96, [0, 1, 2]),
        (8, 2, 128, 128, range(3, 20)),
        (4, 1, 256, 256, [62, 63, 7]),
        (2, 1, 64, 10, [1, 3, 2]),
    ],
)
def test_kernel_does_what_the_reference_does(
    gpu, layout, with_norm, kv_f32, n_heads, n_kv_heads, head_dim, n_rot, positions
):
    eps = 1e-6 if with_norm else None
    layer = Layer(n_heads, n_kv_heads, head_dim, n_rot, layout, 1.1, kv_f32, eps)
    rng = np.random.default_rng(head_dim)
    positions = np.array(positions)
    qkv = rng.standard_normal((len(positions), layer.width)).astype(np.float32)
    norms = tuple(rng.uniform(0.5, 2, (2, head_dim)).astype(np.float32)) if with_norm else None
    words = words_of(exact_turns(n_rot, 1e4))

    heads = qkv.reshape(len(positions), -1, head_dim)
    q, k, v = heads[:, :n_heads], heads[:, n_heads : n_heads + n_kv_heads], heads[:, n_heads + n_kv_heads :]
    if norms:
        q, k = norm.reference(q, norms[0], eps), norm.reference(k, norms[1], eps)
    q, k = (rope.reference(x, positions, words, layout, 1.1) for x in (q, k))

    rotated, k_cache, v_cache = layer.run(gpu, qkv, positions, words, norms)
    np.testing.assert_allclose(rotated, np.concatenate([q, k, v], axis=1).reshape(qkv.shape), rtol=1e-5, atol=2e-6)
    tolerance = {"rtol": 1e-5, "atol": 2e-6} if kv_f32 else {"rtol": 2**-10, "atol": 2e-6}  # f16 may truncate
    for cache, expected in ((k_cache, k), (v_cache, v)):
        np.testing.assert_allclose(cache[:, positions], expected.transpose(1, 0, 2), **tolerance)
        assert not np.delete(cache, positions, axis=1).any()  # the rest of the cache is untouched


def test_f16_cache_clamps_what_it_cannot_hold(gpu):
    layer = Layer(head_dim=16, n_rot=16, kv_f32=False)
    qkv = np.full((1, layer.width), 1e6, np.float32)
    qkv[0, -1] = -1e6
    _, _, v_cache = layer.run(gpu, qkv, [0], words_of(exact_turns(16, 1e4)))
    assert v_cache[0, 0].tolist() == [65504.0] * 15 + [-65504.0]


def test_both_reductions_norm_alike(gpu, monkeypatch):
    layer = Layer(qk_norm_eps=1e-5)
    rng = np.random.default_rng(1)
    qkv = rng.standard_normal((3, layer.width)).astype(np.float32)
    norms = tuple(rng.uniform(0.5, 2, (2, 64)).astype(np.float32))
    words = words_of(exact_turns(64, 1e4))
    with_subgroups = layer.run(gpu, qkv, [1, 2, 3], words, norms)
    monkeypatch.setattr(gpu, "subgroups", False)
    without = layer.run(gpu, qkv, [1, 2, 3], words, norms)
    for one, other in zip(with_subgroups, without, strict=True):
        np.testing.assert_allclose(one, other, rtol=1e-6, atol=1e-6)
