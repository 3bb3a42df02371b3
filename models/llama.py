"""The llama family: Llama 1, 2 and 3.x, Mistral, SmolLM2, TinyLlama.

Pre-norm attention and a SwiGLU feed-forward, each added to the residual stream (arXiv:2302.13971).
"""

from __future__ import annotations

import math

from cera_py.errors import ModelFileError, UnsupportedModelError
from cera_py.gguf_file import GgufFile
from cera_py.models.builder import Builder
from cera_py.models.rope import rope_table
from cera_py.operations import Program


def program(file: GgufFile) -> Program:
    """The forward pass of a llama file. Raises ModelFileError for missing, senseless or contradicting sizes."""
    arch = file.architecture

    def size(key: str, default: int | None = None) -> int:
        value = file.get(f"{arch}.{key}", int) if default is None else file.get(f"{arch}.{key}", int, default)
        if value <= 0:
            raise ModelFileError(f"{file.path}: {arch}.{key} is {value}; it must be above 0")
        return value

    if file.get(f"{arch}.expert_count", int, 0):
        raise UnsupportedModelError(f"{file.path}: a mixture of experts ({arch}.expert_count); we have dense models")
    n_layers = size("block_count")
    n_embd = size("embedding_length")
    n_ff = size("feed_forward_length")
    n_heads = size("attention.head_count")
    n_kv_heads = size("attention.head_count_kv", n_heads)
    head_dim = size("attention.key_length", n_embd // n_heads)
    context_length = size("context_length")
    eps = file.get(f"{arch}.attention.layer_norm_rms_epsilon", float)
    if n_heads % n_kv_heads:
        raise ModelFileError(f"{file.path}: {n_heads} heads do not divide among {n_kv_heads} K/V heads")
    if head_dim % 8 or head_dim > 256:
        raise UnsupportedModelError(f"{file.path}: head_dim {head_dim}; we have multiples of 8, up to 256")
    if size("attention.value_length", head_dim) != head_dim:
        raise UnsupportedModelError(f"{file.path}: {arch}.attention.value_length is not the key length, {head_dim}")
    if not (math.isfinite(eps) and eps >= 0):
        raise ModelFileError(f"{file.path}: {arch}.attention.layer_norm_rms_epsilon is {eps}")

    vocab_size = file.tensor("token_embd.weight").shape[0]
    rope = rope_table(file, head_dim)
    f = Builder(file)

    x = f.embed("token_embd.weight", vocab_size, n_embd)
    for layer in range(n_layers):
        block = f"blk.{layer}"

        h = f.norm(x, f"{block}.attn_norm.weight", eps)
        q = f.linear(h, f"{block}.attn_q.weight", n_heads * head_dim)
        k = f.linear(h, f"{block}.attn_k.weight", n_kv_heads * head_dim)
        v = f.linear(h, f"{block}.attn_v.weight", n_kv_heads * head_dim)
        q = f.rope(q, head_dim, rope)
        k = f.rope(k, head_dim, rope)
        f.append(k, v, layer)
        attended = f.attend(q, layer, scale=head_dim**-0.5)
        x = f.add(x, f.linear(attended, f"{block}.attn_output.weight", n_embd))

        h = f.norm(x, f"{block}.ffn_norm.weight", eps)
        gate = f.linear(h, f"{block}.ffn_gate.weight", n_ff)
        up = f.linear(h, f"{block}.ffn_up.weight", n_ff)
        gated = f.gate(gate, up, "silu")
        x = f.add(x, f.linear(gated, f"{block}.ffn_down.weight", n_embd))

    x = f.norm(f.take_outputs(x), "output_norm.weight", eps)
    head = "output.weight" if f.has("output.weight") else "token_embd.weight"  # tied where there is no head
    logits = f.linear(x, head, vocab_size)
    return f.program(
        logits,
        n_layers=n_layers,
        n_heads=n_heads,
        n_kv_heads=n_kv_heads,
        head_dim=head_dim,
        n_embd=n_embd,
        vocab_size=vocab_size,
        context_length=context_length,
    )
