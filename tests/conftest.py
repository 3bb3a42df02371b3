"""Shared fixtures: a GPU and a way to run one kernel, random weights, tiny models, and where reference data lies."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest

from cera_py.cpu import CpuExecutor
from cera_py.decode import GpuExecutor
from cera_py.gguf_file import GgufFile
from cera_py.gpu import Gpu, Grid, list_devices, open_device
from cera_py.kernels.formats import FORMATS
from cera_py.kernels.kernel import Shader
from cera_py.model import Model
from cera_py.models import build_program
from cera_py.tokenizer import Tokenizer

ROOT = Path(__file__).resolve().parents[1]
SHARED = ROOT.parent / "shared" / "conformance"


@pytest.fixture(scope="session")
def data() -> Path:
    """The reference models and logits that the repository carries."""
    return ROOT / "tests" / "data"


@pytest.fixture(scope="session")
def conformance() -> Path:
    """The folder of reference models and logits that lies beside a developer's checkout."""
    if not SHARED.is_dir():
        pytest.skip("the conformance data is not beside this checkout")
    return SHARED


@pytest.fixture(scope="session")
def smollm2() -> Path:
    """The default model, fetched if it is not in the cache folder."""
    from cera_py.pull import default_model

    return default_model()


# ---- a GPU, and kernels on it ----


@pytest.fixture(scope="session")
def gpu() -> Iterator[Gpu]:
    """The best adapter of this machine, a software one where there is no other."""
    devices = list_devices()
    if not devices:
        pytest.skip("no WebGPU adapter here (Debian: mesa-vulkan-drivers gives a software one)")
    best = min(devices, key=lambda device: (not device.hardware, device.backend.startswith("OpenGL")))
    device = open_device(str(best.index))
    assert device is not None
    yield device
    device.close()


@pytest.fixture
def without_subgroups(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """The same GPU, whose kernels reduce through shared memory."""
    monkeypatch.setattr(gpu, "subgroups", False)
    return gpu


@pytest.fixture
def wide(gpu: Gpu, monkeypatch: pytest.MonkeyPatch) -> Gpu:
    """The same GPU, with the workgroups that hardware gets (NVIDIA's where those differ)."""
    monkeypatch.setattr(gpu, "max_lanes", 256)
    monkeypatch.setattr(gpu, "max_workgroup", 256)
    monkeypatch.setattr(gpu, "is_nvidia", True)
    return gpu


RunKernel = Callable[..., Any]


@pytest.fixture(scope="session")
def run_kernel(gpu: Gpu) -> RunKernel:
    """run_kernel(shader, grid, buffers, *outs): upload the buffers, run, return what `outs` have become."""

    def run(shader: Shader, grid: Grid, buffers: dict[str, np.ndarray], *outs: str) -> Any:
        bound = {name: gpu.upload(data, name) for name, data in buffers.items()}
        gpu.submit([(gpu.dispatch(shader, bound), grid)])
        found = [gpu.read(bound[out], buffers[out].nbytes).view(buffers[out].dtype) for out in outs]
        arrays = [array.reshape(buffers[out].shape) for array, out in zip(found, outs, strict=True)]
        return arrays[0] if len(outs) == 1 else arrays

    return run


# ---- weights and models made here ----

# Where a block of an integer format has its float16 scale and, if it has one, its float16 minimum.
_SCALE_AT = {"Q4_0": (0,), "Q4_1": (0, 2), "Q5_0": (0,), "Q5_1": (0, 2), "Q8_0": (0,)}
_SCALE_AT |= {"Q4_K": (0, 2), "Q5_K": (0, 2), "Q6_K": (208,)}

RandomWeights = Callable[..., np.ndarray]


@pytest.fixture(scope="session")
def random_weights() -> RandomWeights:
    """random_weights(type, rows, cols, deviation, seed): a tensor's raw bytes, uint8 [rows, row_bytes].

    Integer formats get random codes; their scales are such that the values have about this deviation, and mean 0.
    """

    def raw_with(name: str, codes: np.ndarray, scales: np.ndarray, minimum: float) -> np.ndarray:
        raw = codes.copy()
        for at, factor in zip(_SCALE_AT[name], (1.0, minimum), strict=False):
            raw[..., at : at + 2] = (scales * factor).astype(np.float16).view(np.uint8).reshape(*scales.shape, 2)
        return raw.reshape(len(raw), -1)

    def make(name: str, rows: int, cols: int, deviation: float = 0.1, seed: int = 0) -> np.ndarray:
        rng = np.random.default_rng([seed, rows, cols])
        fmt = FORMATS[name]
        if fmt.activation == "float32":
            values = rng.normal(0, deviation, (rows, cols)).astype(np.float32)
            if name == "BF16":
                return np.ascontiguousarray(values.view(np.uint16)[:, 1::2]).view(np.uint8)
            return values.astype(np.float16 if name == "F16" else np.float32).view(np.uint8)
        codes = rng.integers(0, 256, (rows, cols // fmt.block, fmt.block_bytes), np.uint8)
        ones = np.ones(codes.shape[:2])
        plain = fmt.dequantize(raw_with(name, codes, ones, 0.0))
        least = fmt.dequantize(raw_with(name, codes, ones, 1.0)) - plain  # what a minimum of 1 adds
        minimum = -plain.mean() / least.mean() if least.any() else 0.0
        spread = fmt.dequantize(raw_with(name, codes, ones, minimum)).std()
        return raw_with(name, codes, deviation / spread * rng.uniform(0.5, 1.5, codes.shape[:2]), minimum)

    return make


TinyLlama = Callable[..., Path]


@pytest.fixture(scope="session")
def tiny_llama(tmp_path_factory: pytest.TempPathFactory, random_weights: RandomWeights) -> TinyLlama:
    """tiny_llama(**options of `write_llama`): the path of such a file; the same options give the same file."""
    folder = tmp_path_factory.mktemp("tiny_llama")
    paths: dict[str, Path] = {}

    def make(**options: Any) -> Path:
        key = repr(sorted(options.items()))
        if key not in paths:
            paths[key] = folder / f"{len(paths)}.gguf"
            write_llama(paths[key], random_weights, **options)
        return paths[key]

    return make


def write_llama(
    path: Path,
    random_weights: RandomWeights,
    *,
    n_layers: int = 2,
    n_embd: int = 64,
    n_heads: int = 4,
    n_kv_heads: int = 2,
    head_dim: int = 16,
    n_ff: int = 96,
    vocab: int = 320,
    kind: str = "F16",
    kinds: dict[str, str] | None = None,
    tied: bool = False,
    biases: str = "",
    rope_freqs: int = 0,
    keys: dict[str, Any] | None = None,
    shapes: dict[str, tuple[int, ...]] | None = None,
    without: Sequence[str] = (),
    seed: int = 0,
) -> None:
    """Write a llama GGUF with random weights, and a SentencePiece vocabulary of 260 tokens or more.

    kinds: the types of matrices by a part of their name ("attn_v"), where they are not `kind`. biases: which of "qkvo"
    have one. rope_freqs: how many frequency factors. keys: further metadata, or None for a key to leave out. shapes:
    of tensors that shall have another than the sizes say. without: names of tensors to leave out.
    """
    rng = np.random.default_rng(seed)
    tokens = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256)), "\u2581", "e", "\u2581the"]
    metadata: dict[str, Any] = {
        "llama.block_count": n_layers,
        "llama.context_length": 2048,
        "llama.embedding_length": n_embd,
        "llama.feed_forward_length": n_ff,
        "llama.attention.head_count": n_heads,
        "llama.attention.head_count_kv": n_kv_heads,
        "llama.attention.key_length": head_dim,
        "llama.attention.value_length": head_dim,
        "llama.attention.layer_norm_rms_epsilon": 1e-5,
        "tokenizer.ggml.model": "llama",
        "tokenizer.ggml.tokens": [*tokens, *(f"word{i}" for i in range(len(tokens), vocab))],
        "tokenizer.ggml.scores": [0.0] * 259 + [-float(i) for i in range(259, vocab)],
        "tokenizer.ggml.token_type": [2, 3, 3] + [6] * 256 + [1] * (vocab - 259),
        "tokenizer.ggml.bos_token_id": 1,
        "tokenizer.ggml.eos_token_id": 2,
    }
    metadata |= keys or {}
    writer = gguf.GGUFWriter(path, metadata.pop("general.architecture", "llama"))
    value_types = {int: gguf.GGUFValueType.UINT32, float: gguf.GGUFValueType.FLOAT32}
    value_types |= {str: gguf.GGUFValueType.STRING, list: gguf.GGUFValueType.ARRAY}
    for key, value in metadata.items():
        if value is not None:
            writer.add_key_value(key, value, value_types[type(value)])

    def vector(name: str, size: int, low: float, high: float) -> None:
        if name not in without:
            writer.add_tensor(name, rng.uniform(low, high, (shapes or {}).get(name, size)).astype(np.float32))

    def matrix(name: str, rows: int, cols: int, deviation: float) -> None:
        rows, cols = (shapes or {}).get(name, (rows, cols))
        of_this = next((other for part, other in (kinds or {}).items() if part in name), kind)
        raw = random_weights(of_this, rows, cols, deviation, seed=rng.integers(1 << 30))
        if name not in without:
            writer.add_tensor(name, raw, raw_dtype=gguf.GGMLQuantizationType[of_this])

    matrix("token_embd.weight", vocab, n_embd, 1.0)
    for layer in range(n_layers):
        vector(f"blk.{layer}.attn_norm.weight", n_embd, 0.5, 1.5)
        for letter, name, rows, cols in (
            ("q", "attn_q", n_heads * head_dim, n_embd),
            ("k", "attn_k", n_kv_heads * head_dim, n_embd),
            ("v", "attn_v", n_kv_heads * head_dim, n_embd),
            ("o", "attn_output", n_embd, n_heads * head_dim),
            ("gate", "ffn_gate", n_ff, n_embd),
            ("up", "ffn_up", n_ff, n_embd),
            ("down", "ffn_down", n_embd, n_ff),
        ):
            matrix(f"blk.{layer}.{name}.weight", rows, cols, 1.5 * cols**-0.5)
            if letter in biases:
                vector(f"blk.{layer}.{name}.bias", rows, -1.0, 1.0)
        vector(f"blk.{layer}.ffn_norm.weight", n_embd, 0.5, 1.5)
    vector("output_norm.weight", n_embd, 0.5, 1.5)
    if not tied:
        matrix("output.weight", vocab, n_embd, n_embd**-0.5)
    if rope_freqs:
        vector("rope_freqs.weight", rope_freqs, 1.0, 8.0)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()


OpenModel = Callable[..., Model]


@pytest.fixture(scope="session")
def open_model(gpu: Gpu) -> OpenModel:
    """open_model(path, "NumPy" or "GPU", context): a model on either executor; all share one GPU, so none is closed."""

    def open_it(path: Path, on: str, context: int = 512) -> Model:
        file = GgufFile(path)
        program = build_program(file)
        executor = CpuExecutor(program, file, context) if on == "NumPy" else GpuExecutor(gpu, program, file, context)
        return Model(file, executor, Tokenizer.from_metadata(file.metadata), context, program.vocab_size)

    return open_it


# ---- comparing ----


@pytest.fixture(scope="session")
def error_of() -> Callable[[np.ndarray, np.ndarray], float]:
    """error_of(logits, expected): their RMS difference as a part of the expected ones' standard deviation."""
    return lambda logits, expected: float(np.sqrt(np.mean((logits - expected) ** 2)) / expected.std())


@pytest.fixture(scope="session")
def assert_same_choices() -> Callable[..., None]:
    """assert_same_choices(ids, expected, margins, unsure): the same, up to the first choice with a margin below unsure.

    After that one the texts may part, so nothing more is compared.
    """

    def check(ids: Sequence[int], expected: Sequence[int], margins: Sequence[float], unsure: float) -> None:
        assert len(ids) == len(expected)
        sure = next((i for i, margin in enumerate(margins[: len(ids)]) if margin < unsure), len(ids))
        assert list(ids[:sure]) == list(expected[:sure])

    return check


# ---- skips ----


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, exitstatus: int) -> None:
    """In CI, a test that skipped although the conformance data is there would hide a gap: say so, and fail."""
    skipped = terminalreporter.stats.get("skipped", [])
    if skipped and os.environ.get("CI") and SHARED.is_dir():
        terminalreporter.write_line(f"{len(skipped)} tests skipped although the conformance data is present", red=True)


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session, exitstatus: int) -> None:
    """Turn skips into a failure where nothing may skip (CI beside the conformance data)."""
    reporter = session.config.pluginmanager.get_plugin("terminalreporter")
    if reporter and reporter.stats.get("skipped") and os.environ.get("CI") and SHARED.is_dir():
        session.exitstatus = pytest.ExitCode.TESTS_FAILED
