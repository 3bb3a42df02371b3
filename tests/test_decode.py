"""The decode loop: what runs ahead never shows, and how the work is cut never changes the text."""

from __future__ import annotations

import numpy as np
import pytest

from cera_py import decode, lowering
from cera_py.errors import ModelClosedError, ModelFileError, OutOfMemoryError, SupersededError
from cera_py.gguf_file import GgufFile

PROMPT = [1, *range(5, 60)]


@pytest.fixture(scope="module")
def path(tiny_llama):
    return tiny_llama(kind="Q4_0", n_layers=2, head_dim=32, seed=3)


def greedy(model, ids=PROMPT, n=12):
    return [piece.id for piece in model.generate(ids, max_tokens=n, temperature=0, ignore_eos=True)]


def test_chunks_do_not_change_the_text(path, open_model, monkeypatch):
    expected = greedy(open_model(path, "GPU"))
    monkeypatch.setattr(decode, "MAX_TOKENS", 16)
    assert greedy(open_model(path, "GPU")) == expected


def test_splits_do_not_change_the_text(path, open_model, monkeypatch):
    expected = greedy(open_model(path, "GPU"))
    monkeypatch.setattr(lowering, "SPLIT", 16)
    assert greedy(open_model(path, "GPU")) == expected


@pytest.mark.parametrize("ahead", [1, 2, 7])
def test_the_depth_of_the_ring_does_not_change_the_text(path, open_model, monkeypatch, ahead):
    expected = greedy(open_model(path, "GPU"))
    monkeypatch.setattr(decode, "AHEAD", ahead)
    assert greedy(open_model(path, "GPU")) == expected


def test_a_prompt_at_once_or_token_by_token(path, open_model):
    model = open_model(path, "GPU")
    at_once = model._executor.step(PROMPT, 0, 1)
    for position, token in enumerate(PROMPT):
        alone = model._executor.step([token], position, 1)
    assert np.abs(alone - at_once).max() < 1e-2 * at_once.std()
    assert alone.argmax() == at_once.argmax()


def test_two_runs_give_the_same_bits(path, open_model):
    model = open_model(path, "GPU")
    assert np.array_equal(model.logits(PROMPT), model.logits(PROMPT))


@pytest.mark.parametrize("executor", ["NumPy", "GPU"])
def test_stopping_early_leaves_nothing_behind(path, open_model, executor):
    model = open_model(path, executor)
    expected = greedy(model)
    for n in (1, 3):
        generation = model.generate([1, 9, 9], max_tokens=50, temperature=0, ignore_eos=True)
        for _ in range(n):
            next(generation)
        generation.close()
        assert greedy(model) == expected


@pytest.mark.parametrize("executor", ["NumPy", "GPU"])
def test_a_generation_that_lost_the_cache_says_so(path, open_model, executor):
    model = open_model(path, executor)
    expected = greedy(model)
    first = model.generate(PROMPT, max_tokens=50, temperature=0, ignore_eos=True)
    next(first)
    second = model.generate(PROMPT, max_tokens=12, temperature=0, ignore_eos=True)
    found = [next(second).id]
    with pytest.raises(SupersededError):
        next(first)
    assert found + [piece.id for piece in second] == expected


@pytest.mark.parametrize("executor", ["NumPy", "GPU"])
@pytest.mark.parametrize("temperature", [0, 0.7])
def test_a_full_context(path, open_model, executor, temperature):
    """A context of 40 holds 40 tokens of prompt and answer, and the last token generated needs no place."""
    model = open_model(path, executor, 40)
    generation = model.generate(PROMPT[:30], temperature=temperature, seed=1, ignore_eos=True)
    assert len(list(generation)) == 11
    assert generation.finish_reason == "length"
    assert len(list(model.generate(PROMPT[:39], temperature=temperature, seed=1, ignore_eos=True))) == 2


def test_a_context_too_large_for_a_binding(path, open_model, gpu, monkeypatch):
    monkeypatch.setattr(gpu, "max_binding_bytes", 10_000)
    with pytest.raises(OutOfMemoryError, match="use --context"):
        open_model(path, "GPU", 512)


def test_a_closed_model(path):
    import cera_py

    model = cera_py.load(path, device="cpu", context=64)
    generation = model.generate([1, 2], max_tokens=5)
    next(generation)
    model.close()
    model.close()
    with pytest.raises(ModelClosedError):
        next(generation)
    with pytest.raises(ModelClosedError):
        model.logits([1])


@pytest.mark.parametrize("executor", ["NumPy", "GPU"])
@pytest.mark.filterwarnings("ignore:invalid value")
def test_logits_that_are_not_numbers(path, open_model, tmp_path, executor):
    """Damaged weights are an error, not the text of token 0."""
    with GgufFile(path) as file:
        norm = file.tensor("output_norm.weight").data.tobytes()
    damaged = tmp_path / "damaged.gguf"
    damaged.write_bytes(path.read_bytes().replace(norm, np.full(len(norm) // 4, np.nan, np.float32).tobytes()))
    with pytest.raises(ModelFileError, match="not numbers"):
        greedy(open_model(damaged, executor))
