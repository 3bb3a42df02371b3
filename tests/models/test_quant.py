"""One tiny llama in every tensor type, against logits computed in float32 from the exactly dequantised weights."""

from __future__ import annotations

import json

import numpy as np
import pytest

CARRIED = ["Q4_0", "Q8_0", "Q4_K_S", "Q6_K"]
OTHERS = ["F16", "BF16", "Q4_1", "Q5_0", "Q5_1", "Q5_K_S"]
TOLERANCE = {"NumPy": 1e-4, "GPU": 4e-3}  # one row of logits, so the f16 cache shows more than over all positions


def check(folder, name, executor, open_model, error_of, assert_same_choices):
    model = open_model(folder / f"{name}.gguf", executor)
    cases = json.loads((folder / f"{name}.json").read_text())["cases"]
    expected = np.load(folder / f"{name}.npz")
    for i, case in enumerate(cases):
        assert error_of(model.logits(case["ids"])[-1], expected[f"last_{i}"]) < TOLERANCE[executor]
        pieces = model.generate(case["ids"], max_tokens=len(case["greedy"]), temperature=0, ignore_eos=True)
        assert_same_choices([piece.id for piece in pieces], case["greedy"], case["margin"], 0.01)


@pytest.mark.parametrize("executor", ["NumPy", "GPU"])
@pytest.mark.parametrize("name", CARRIED)
def test_reference_logits(data, name, executor, open_model, error_of, assert_same_choices):
    check(data, name, executor, open_model, error_of, assert_same_choices)


@pytest.mark.parametrize("executor", ["NumPy", "GPU"])
@pytest.mark.parametrize("name", OTHERS)
def test_more_types(conformance, name, executor, open_model, error_of, assert_same_choices):
    check(conformance / "quant", name, executor, open_model, error_of, assert_same_choices)
