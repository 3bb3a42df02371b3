"""The llama family against logits of two other implementations, on both executors."""

from __future__ import annotations

import json

import numpy as np
import pytest

CARRIED = ["llama-spm", "llama3-rope", "llama-yarn"]
TOLERANCE = {"NumPy": 1e-4, "GPU": 2e-3}  # of the logits' deviation, RMS; the f16 cache alone costs about 1e-3
UNSURE = 0.01  # a choice with a smaller margin may go either way


def check(folder, name, executor, open_model, error_of, assert_same_choices):
    model = open_model(folder / f"{name}.gguf", executor)
    cases = json.loads((folder / f"{name}.json").read_text())["cases"]
    expected = np.load(folder / f"{name}.npz")
    for i, case in enumerate(cases):
        logits = model.logits(case["ids"])
        assert error_of(logits, expected[f"logits_{i}"]) < TOLERANCE[executor]
        pieces = model.generate(case["ids"], max_tokens=len(case["greedy"]), temperature=0, ignore_eos=True)
        assert_same_choices([piece.id for piece in pieces], case["greedy"], case["margin"], UNSURE)


@pytest.mark.parametrize("executor", ["NumPy", "GPU"])
@pytest.mark.parametrize("name", CARRIED)
def test_reference_logits(data, name, executor, open_model, error_of, assert_same_choices):
    check(data, name, executor, open_model, error_of, assert_same_choices)


@pytest.mark.parametrize("executor", ["NumPy", "GPU"])
def test_mistral(conformance, executor, open_model, error_of, assert_same_choices):
    check(conformance / "arch", "mistral", executor, open_model, error_of, assert_same_choices)


SHAPES = {
    "odd heads": {"n_heads": 3, "n_kv_heads": 1},
    "nine heads": {"n_heads": 9, "n_kv_heads": 3, "head_dim": 8},
    "head_dim 40": {"head_dim": 40},
    "head_dim 80": {"head_dim": 80},
    "head_dim 96": {"head_dim": 96, "n_heads": 2, "n_kv_heads": 1},
    "head_dim 128": {"head_dim": 128, "n_heads": 2, "n_kv_heads": 2},
    "head_dim 256": {"head_dim": 256, "n_heads": 2, "n_kv_heads": 1},
    "odd feed-forward": {"n_ff": 100},
    "odd vocabulary": {"vocab": 515, "tied": True},
    "one layer": {"n_layers": 1},
    "biases": {"biases": "qkvo"},
    "partial rotary": {"keys": {"llama.rope.dimension_count": 8}},
    "linear scaling": {"keys": {"llama.rope.scaling.type": "linear", "llama.rope.scaling.factor": 4.0}},
    "frequency factors": {"rope_freqs": 8},
    "float32": {"kind": "F32"},
    "bfloat16": {"kind": "BF16"},
    "Q4_K with Q6_K values": {
        "kind": "Q4_K",
        "n_embd": 256,
        "n_ff": 512,
        "head_dim": 64,
        "kinds": {"attn_v": "Q6_K", "output": "Q6_K"},
    },
    "gate and up of two types": {"kind": "Q8_0", "kinds": {"ffn_gate": "Q4_0"}},
    "float attention": {"kind": "Q4_0", "kinds": {"attn_q": "F16", "attn_k": "F16", "attn_v": "F16"}},
    "float feed-forward": {"kind": "Q4_0", "kinds": {"ffn": "F16"}},
    "float head": {"kind": "Q5_1", "kinds": {"output.weight": "F16", "token": "F16"}},
    "head_dim no multiple of 32": {"kind": "Q4_0", "head_dim": 40, "n_embd": 160, "n_heads": 4},
}


@pytest.mark.parametrize("options", SHAPES.values(), ids=SHAPES)
def test_gpu_against_numpy(tiny_llama, open_model, error_of, options):
    path = tiny_llama(**options)
    ids = [1, *range(3, 40)]
    expected = open_model(path, "NumPy").logits(ids)
    on_gpu = open_model(path, "GPU")
    assert error_of(on_gpu.logits(ids), expected) < TOLERANCE["GPU"]
    margins = np.sort(expected, axis=1)
    for at in (0, 20, 37):  # one token after a prompt: the decode step's own kernels
        piece = next(on_gpu.generate(ids[: at + 1], max_tokens=1, temperature=0, ignore_eos=True))
        if margins[at, -1] - margins[at, -2] > UNSURE * expected.std():
            assert piece.id == expected[at].argmax()
