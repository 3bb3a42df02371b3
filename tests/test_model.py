"""The public API: what load, generate and logits give, and what they refuse, in one line each."""

from __future__ import annotations

import os
import subprocess
import sys

import numpy as np
import pytest

import cera_py
from cera_py import errors


@pytest.fixture(scope="module")
def path(tiny_llama):
    return tiny_llama(kind="Q8_0", head_dim=16, seed=5)


@pytest.fixture(scope="module")
def model(path):
    with cera_py.load(path, device="cpu", context=64) as opened:
        yield opened


def test_what_a_model_says_of_itself(model):
    assert (model.architecture, model.context, model.device) == ("llama", 64, "NumPy")
    assert model.vocab_size == 320
    assert model.weight_bytes > 0


def test_logits(model):
    logits = model.logits([1, 5, 9])
    assert logits.dtype == np.float32
    assert logits.shape == (3, 320)
    assert np.isfinite(logits).all()
    assert np.allclose(model.logits(np.array([1, 5])), logits[:2], atol=1e-4)


def test_temperature_0_is_the_largest_logit(model):
    ids = [1, 5, 9]
    generated = [piece.id for piece in model.generate(ids, max_tokens=6, temperature=0, ignore_eos=True)]
    for i, token in enumerate(generated):
        assert token == int(model.logits(ids + generated[:i])[-1].argmax())


def test_the_text_is_what_the_ids_decode_to(model):
    for seed in range(20):
        pieces = list(model.generate("the", max_tokens=12, temperature=2.0, top_k=0, seed=seed, ignore_eos=True))
        prompt = model.tokenizer.encode("the")
        whole = model.tokenizer.decode(prompt + [piece.id for piece in pieces])
        assert whole == model.tokenizer.decode(prompt) + "".join(piece.text for piece in pieces)


def test_seeds(model):
    def text(seed):
        return [
            piece.id for piece in model.generate([1, 7], max_tokens=10, temperature=1.5, seed=seed, ignore_eos=True)
        ]

    assert text(1) == text(1)
    assert text(1) != text(2)


def test_ends(model):
    generation = model.generate([1, 7], max_tokens=3, ignore_eos=True, seed=1)
    assert generation.finish_reason is None
    assert len(list(generation)) == 3
    assert generation.finish_reason == "length"
    assert list(generation) == []
    assert generation.statistics.prompt_tokens == 2
    assert generation.statistics.decode_tokens == 2
    assert list(model.generate([1, 7], max_tokens=0)) == []


def test_stops_at_an_end_token(model, monkeypatch):
    first = next(model.generate([1, 7], max_tokens=1, temperature=0, ignore_eos=True)).id
    monkeypatch.setattr(model.tokenizer, "end_ids", frozenset({first}))
    generation = model.generate([1, 7], max_tokens=5, temperature=0)
    assert list(generation) == []
    assert generation.finish_reason == "stop"
    assert len(list(model.generate([1, 7], max_tokens=5, temperature=0, ignore_eos=True))) == 5


@pytest.mark.parametrize("ids", [[], [-1], [320], [1, 10**9]])
def test_ids_outside_the_vocabulary(model, ids):
    with pytest.raises(errors.InvalidArgumentError):
        model.logits(ids)
    with pytest.raises(errors.InvalidArgumentError):
        model.generate(ids)


def test_too_many_tokens(model):
    with pytest.raises(errors.ContextFullError, match="65 tokens"):
        model.logits([1] * 65)
    with pytest.raises(errors.ContextFullError, match="64"):
        model.generate([1] * 64)


@pytest.mark.parametrize(
    "options",
    [{"temperature": -1}, {"temperature": float("nan")}, {"top_p": 0}, {"min_p": 2}, {"top_k": -1}, {"max_tokens": -1}],
)
def test_senseless_options(model, options):
    with pytest.raises(errors.InvalidArgumentError):
        model.generate("the", **options)


def test_an_empty_prompt(model):
    with pytest.raises(errors.InvalidArgumentError, match="empty"):
        model.generate("")


@pytest.mark.parametrize("context", [0, -5, 4096])
def test_a_context_that_cannot_be(path, context):
    with pytest.raises(errors.InvalidArgumentError, match="context"):
        cera_py.load(path, device="cpu", context=context)


def test_load_tokenizer_needs_no_weights(path):
    tokenizer = cera_py.load_tokenizer(path)
    assert tokenizer.decode(tokenizer.encode("the")) == "the"


BROKEN = {
    "an architecture we lack": (
        {"keys": {"general.architecture": "mamba"}},
        errors.UnsupportedModelError,
        "mamba.*llama",
    ),
    "a missing tensor": ({"without": ["blk.1.ffn_up.weight"]}, errors.ModelFileError, r"blk\.1\.ffn_up\.weight"),
    "another shape": ({"shapes": {"blk.0.attn_k.weight": (32, 96)}}, errors.ModelFileError, r"blk\.0\.attn_k\.weight"),
    "heads that do not divide": ({"keys": {"llama.attention.head_count_kv": 3}}, errors.ModelFileError, "4 heads"),
    "no heads": ({"keys": {"llama.attention.head_count": 0}}, errors.ModelFileError, "head_count"),
    "no context": ({"keys": {"llama.context_length": 0}}, errors.ModelFileError, "context_length"),
    "a missing key": ({"keys": {"llama.embedding_length": None}}, errors.ModelFileError, r"llama\.embedding_length"),
    "a key of another type": ({"keys": {"llama.block_count": "two"}}, errors.ModelFileError, r"llama\.block_count"),
    "more layers than tensors": ({"keys": {"llama.block_count": 10**9}}, errors.ModelFileError, r"blk\.2\."),
    "no epsilon": (
        {"keys": {"llama.attention.layer_norm_rms_epsilon": float("nan")}},
        errors.ModelFileError,
        "epsilon",
    ),
    "heads beyond measure": ({"keys": {"llama.attention.key_length": 2**31}}, errors.UnsupportedModelError, "head_dim"),
    "experts": ({"keys": {"llama.expert_count": 8}}, errors.UnsupportedModelError, "expert"),
}


@pytest.mark.parametrize(("options", "error", "message"), BROKEN.values(), ids=BROKEN)
def test_files_that_are_no_model(tiny_llama, options, error, message):
    with pytest.raises(error, match=message) as raised:
        cera_py.load(tiny_llama(**options), device="cpu")
    assert "\n" not in str(raised.value)


def test_importing_is_light():
    """The libraries come in when they are first needed; NumPy too."""
    code = (
        "import sys, cera_py; print([m for m in ('wgpu', 'gguf', 'tokenizers', 'jinja2', 'numpy') if m in sys.modules])"
    )
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, env=os.environ, check=True)
    assert result.stdout.strip() == "[]"
