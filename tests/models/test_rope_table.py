"""Which rotation a file asks for: layout by architecture, frequencies by its keys."""

from __future__ import annotations

import math

import numpy as np
import pytest

from cera_py.errors import ModelFileError, UnsupportedModelError
from cera_py.gguf_file import GgufFile
from cera_py.models.rope import LAYOUTS, rope_layout, rope_table

HEAD_DIM = 16


@pytest.mark.parametrize(
    ("architecture", "layout"),
    [
        *(
            (name, "interleaved")
            for name in ("llama", "command-r", "cohere2", "glm4", "granite", "smollm3", "ernie4_5")
        ),
        *(
            (name, "neox")
            for name in ("qwen2", "qwen3", "qwen3moe", "gemma", "gemma2", "gemma3", "phi2", "phi3", "lfm2")
        ),
        *((name, "neox") for name in ("olmo2", "stablelm", "starcoder2", "falcon", "exaone4", "gpt-oss", "gptneox")),
    ],
)
def test_layouts(architecture, layout):
    assert rope_layout(architecture) == layout


def test_an_unknown_architecture_is_never_guessed():
    with pytest.raises(UnsupportedModelError, match=r"'mamba'.*llama"):
        rope_layout("mamba")
    assert len(LAYOUTS) > 40


def table(tiny_llama, rope_freqs=0, **keys):
    with GgufFile(
        tiny_llama(keys={f"llama.rope.{key}": value for key, value in keys.items()}, rope_freqs=rope_freqs)
    ) as file:
        return rope_table(file, HEAD_DIM)


def radians(found):
    return found.turns * 2 * math.pi


def test_plain(tiny_llama):
    found = table(tiny_llama, freq_base=500000.0)
    assert found.layout == "interleaved"
    assert found.mscale == 1
    assert found.n_rot == HEAD_DIM
    assert np.allclose(radians(found), [500000.0 ** (-2 * j / HEAD_DIM) for j in range(8)], rtol=1e-12)


def test_the_base_is_10000_where_the_file_has_none(tiny_llama):
    assert np.allclose(radians(table(tiny_llama))[1], 10000.0 ** (-2 / HEAD_DIM), rtol=1e-12)


def test_partial_rotary(tiny_llama):
    found = table(tiny_llama, dimension_count=8)
    assert np.allclose(radians(found), [10000.0 ** (-2 * j / 8) for j in range(4)], rtol=1e-12)


@pytest.mark.parametrize(
    "keys", [{"scaling.type": "linear", "scaling.factor": 4.0}, {"scale_linear": 4.0}, {"scaling.factor": 4.0}]
)
def test_linear_scaling(tiny_llama, keys):
    assert np.allclose(radians(table(tiny_llama, **keys)), radians(table(tiny_llama)) / 4, rtol=1e-12)


def test_no_scaling_where_the_type_is_none(tiny_llama):
    found = table(tiny_llama, **{"scaling.type": "none", "scaling.factor": 4.0})
    assert np.array_equal(found.turns, table(tiny_llama).turns)


def test_yarn(tiny_llama):
    """By hand: n_rot 16, base 10000, original 64: a pair turns 32 times at -0.97, once at 2.01."""
    keys = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 64}
    found = table(tiny_llama, **keys)
    plain = radians(table(tiny_llama))
    unscaled = np.clip(1 - np.arange(8) / 3, 0, 1)  # from pair 0 (floor, bounded) to 3 (ceiling)
    assert np.allclose(radians(found), plain * (0.25 * (1 - unscaled) + unscaled), rtol=1e-12)
    assert found.mscale == pytest.approx(1 + 0.1 * math.log(4))
    assert table(tiny_llama, **keys, **{"scaling.attn_factor": 0.5}).mscale == pytest.approx(found.mscale / 2)


def test_frequency_factors_divide(tiny_llama):
    path = tiny_llama(rope_freqs=8)
    with GgufFile(path) as file:
        factors = file.tensor("rope_freqs.weight").data.reshape(-1).view(np.float32).astype(np.float64)
        found = rope_table(file, HEAD_DIM)
    assert np.allclose(radians(found) * factors, radians(table(tiny_llama)), rtol=1e-12)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("dimension_count", 7),
        ("dimension_count", 0),
        ("dimension_count", 18),
        ("freq_base", 0.0),
        ("freq_base", -10000.0),
        ("freq_base", math.inf),
        ("freq_base", math.nan),
        ("scaling.factor", -1.0),
        ("scaling.factor", math.nan),
        ("scaling.factor", 1e-40),
        ("scaling.type", 3),
    ],
)
def test_senseless_values(tiny_llama, key, value):
    with pytest.raises(ModelFileError, match=f"llama.rope.{key}"):
        table(tiny_llama, **{key: value})


@pytest.mark.parametrize("key", ["yarn_beta_fast", "yarn_beta_slow", "attn_factor"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf])
def test_senseless_yarn(tiny_llama, key, value):
    keys = {"scaling.type": "yarn", "scaling.factor": 4.0, "scaling.original_context_length": 64}
    with pytest.raises(ModelFileError, match=f"scaling.{key}"):
        table(tiny_llama, **keys, **{f"scaling.{key}": value})


def test_yarn_without_the_original_context(tiny_llama):
    with pytest.raises(ModelFileError, match="original_context_length"):
        table(tiny_llama, **{"scaling.type": "yarn", "scaling.factor": 4.0})


def test_a_scaling_that_we_lack(tiny_llama):
    with pytest.raises(UnsupportedModelError, match=r"'dynamic'.*linear"):
        table(tiny_llama, **{"scaling.type": "dynamic"})


def test_frequency_factors_of_another_size(tiny_llama):
    with pytest.raises(ModelFileError, match=r"rope_freqs\.weight"):
        table(tiny_llama, rope_freqs=5)
