"""What a forward pass becomes on the GPU: which kernels, how many, and how much memory."""

from __future__ import annotations

from collections import Counter

import pytest

from cera_py import lowering
from cera_py.lowering import StepSize

PER_LAYER = 7  # dispatches of a decode step, at most
OUTSIDE = 6  # of the layers, the choice of the token included


def labels(executor, *, long_context=False):
    last = lowering.SPLIT + 1 if long_context else 3
    work = executor._one.work(StepSize(1, 1, last)) + executor._chosen[executor._one]
    return [dispatch.label for dispatch, _ in work]


def test_a_decode_step_of_a_llama(tiny_llama, open_model):
    path = tiny_llama(kind="Q4_0", n_layers=3, head_dim=32)
    layer = ["rope", "attention", "matvec", "matvec", "matvec", "matvec"]
    assert labels(open_model(path, "GPU")._executor) == ["embed_normed", "matvec", *layer * 3, "argmax", "advance"]


@pytest.mark.parametrize("long_context", [False, True])
@pytest.mark.parametrize("kind", ["Q4_0", "Q8_0", "F16"])
def test_dispatches_are_few(tiny_llama, open_model, kind, long_context):
    counts = [
        len(
            labels(
                open_model(tiny_llama(kind=kind, n_layers=n, head_dim=32), "GPU", 1024)._executor,
                long_context=long_context,
            )
        )
        for n in (1, 3)
    ]
    per_layer = (counts[1] - counts[0]) / 2
    assert per_layer <= PER_LAYER
    assert counts[0] - per_layer <= OUTSIDE


def test_mixed_types_share_what_they_can(tiny_llama, open_model):
    """q and k of one type and v of another need three dispatches instead of one; nothing else changes."""
    options = {"kind": "Q4_K", "n_embd": 256, "n_ff": 512, "head_dim": 64, "n_layers": 1}
    same = Counter(labels(open_model(tiny_llama(**options), "GPU")._executor))
    mixed = Counter(labels(open_model(tiny_llama(**options, kinds={"attn_v": "Q6_K"}), "GPU")._executor))
    assert mixed - same == Counter({"matvec": 2})
    assert same - mixed == Counter()


def test_a_tensor_in_several_bindings(tiny_llama, open_model, gpu, monkeypatch, error_of):
    path = tiny_llama(kind="Q4_0", vocab=515, tied=True)
    whole = open_model(path, "GPU").logits([1, 5, 7])
    monkeypatch.setattr(gpu, "max_binding_bytes", 10_000)
    model = open_model(path, "GPU", 64)
    assert len(model._executor.weights.matrix("token_embd.weight").pieces) > 1
    assert error_of(model.logits([1, 5, 7]), whole) < 1e-6
    ids = [piece.id for piece in model.generate([1, 5, 7], max_tokens=4, temperature=0, ignore_eos=True)]
    monkeypatch.undo()
    again = open_model(path, "GPU").generate([1, 5, 7], max_tokens=4, temperature=0, ignore_eos=True)
    assert ids == [piece.id for piece in again]
