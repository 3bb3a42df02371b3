"""Which rotation a model uses: its layout by architecture, and its frequencies by the file's keys.

The layout cannot be seen in the weights and a wrong one fails silently, so it is a table, and an architecture that is
not in it is an error.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import NDArray

from cera_py.errors import ModelFileError, UnsupportedModelError
from cera_py.gguf_file import GgufFile
from cera_py.operations import RopeLayout, RopeTable

_INTERLEAVED = """llama deci baichuan internlm2 minicpm command-r cohere2 olmo glm4 granite granitemoe smollm3 arcee
    ernie4_5 deepseek2 llama4"""
_NEOX = """qwen2 qwen2moe qwen3 qwen3moe gemma gemma2 gemma3 gemma3n phi2 phi3 phimoe lfm2 lfm2moe olmo2 olmoe stablelm
    starcoder2 gptneox falcon exaone exaone4 hunyuan-dense gpt-oss glm4moe seed_oss nemotron plamo orion bitnet
    openelm"""

# GGUF's `general.architecture` -> how its file pairs the dimensions of a head. Converters permute Q and K of llama
# files, so llama is interleaved in GGUF although the original code pairs halves.
LAYOUTS: dict[str, RopeLayout] = {
    **dict.fromkeys(_INTERLEAVED.split(), "interleaved"),
    **dict.fromkeys(_NEOX.split(), "neox"),
}


def rope_layout(architecture: str) -> RopeLayout:
    """The layout of an architecture. Raises UnsupportedModelError for an unknown one: never a guess."""
    try:
        return LAYOUTS[architecture]
    except KeyError:
        raise UnsupportedModelError(
            f"no rope layout is known for architecture {architecture!r}; known: {', '.join(sorted(LAYOUTS))}"
        ) from None


def yarn_ramp(
    n_rot: int, base: float, original_context: int, beta_fast: float, beta_slow: float
) -> NDArray[np.float64]:
    """How much of pair j stays unscaled, [n_rot / 2]: 1 for fast pairs, 0 for slow ones (YaRN, arXiv:2309.00071)."""

    def pair_turning(times: float) -> float:
        """The (fractional) pair that turns so many times over the original context."""
        return n_rot * math.log(original_context / (2 * math.pi * times)) / (2 * math.log(base))

    low = max(0.0, math.floor(pair_turning(beta_fast)))
    high = min(n_rot - 1.0, math.ceil(pair_turning(beta_slow)))
    pair = np.arange(n_rot // 2, dtype=np.float64)
    return 1.0 - np.clip((pair - low) / max(0.001, high - low), 0.0, 1.0)


def rope_table(file: GgufFile, head_dim: int) -> RopeTable:
    """The rotation that a GGUF file asks for, with its scaling (none, linear, yarn) and `rope_freqs.weight`.

    Raises ModelFileError for values that make no rotation, UnsupportedModelError for a scaling type we lack.
    """
    arch = file.architecture
    n_rot = file.get(f"{arch}.rope.dimension_count", int, head_dim)
    base = file.get(f"{arch}.rope.freq_base", float, 10000.0)
    scaling = file.get(f"{arch}.rope.scaling.type", str, "")
    factor = file.get(f"{arch}.rope.scaling.factor", float, 0.0) or file.get(f"{arch}.rope.scale_linear", float, 0.0)
    if n_rot < 2 or n_rot % 2 or n_rot > head_dim:
        raise ModelFileError(f"{file.path}: {arch}.rope.dimension_count is {n_rot}; it must be even, 2 .. {head_dim}")
    if not (math.isfinite(base) and base > 1):
        raise ModelFileError(f"{file.path}: {arch}.rope.freq_base is {base}; it must be a number above 1")
    if factor and not 1e-6 <= factor <= 1e6:  # false for NaN
        raise ModelFileError(
            f"{file.path}: {arch}.rope.scaling.factor is {factor}; it must be a number around 1 .. 100"
        )

    # base^(-2j / n_rot): radians per position of pair j
    theta = base ** (-2.0 * np.arange(n_rot // 2, dtype=np.float64) / n_rot)
    mscale = 1.0
    scale = 1.0 / factor if factor else 1.0
    match scaling or ("linear" if factor else "none"):
        case "none":
            pass
        case "linear":
            theta = theta * scale
        case "yarn":
            original = file.get(f"{arch}.rope.scaling.original_context_length", int, 0)
            if original <= 0:
                raise ModelFileError(f"{file.path}: yarn needs {arch}.rope.scaling.original_context_length above 0")
            fast = file.get(f"{arch}.rope.scaling.yarn_beta_fast", float, 32.0)
            slow = file.get(f"{arch}.rope.scaling.yarn_beta_slow", float, 1.0)
            attn_factor = file.get(f"{arch}.rope.scaling.attn_factor", float, 1.0)
            for name, value in (("yarn_beta_fast", fast), ("yarn_beta_slow", slow), ("attn_factor", attn_factor)):
                if not (math.isfinite(value) and value > 0):
                    raise ModelFileError(f"{file.path}: {arch}.rope.scaling.{name} is {value}; it must be above 0")
            ramp = yarn_ramp(n_rot, base, original, fast, slow)
            theta = theta * (scale * (1.0 - ramp) + ramp)
            mscale = attn_factor * (1.0 + 0.1 * math.log(1.0 / scale))
        case unknown:
            raise UnsupportedModelError(f"{file.path}: rope scaling {unknown!r}; we have none, linear, yarn")

    if "rope_freqs.weight" in file.tensors:
        tensor = file.tensor("rope_freqs.weight")
        if tensor.type != "F32" or tensor.shape != (n_rot // 2,):
            raise ModelFileError(f"{file.path}: tensor rope_freqs.weight must be F32 [{n_rot // 2}]")
        factors = tensor.data.reshape(-1).view(np.float32).astype(np.float64)
        if not np.all(np.isfinite(factors) & (factors > 0)):
            raise ModelFileError(f"{file.path}: tensor rope_freqs.weight has values that are no positive numbers")
        theta = theta / factors
    return RopeTable(theta / (2.0 * math.pi), rope_layout(arch), mscale)
