"""The operations a forward pass is written in, each meaning one mathematical thing.

A model file builds a `Program` with them; cpu.py runs it in NumPy and lowering.py turns it into GPU dispatches. A step
has T tokens, so a value of width n is a float32 array [T, n]; every value is made once and never changed.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, fields
from typing import Literal

import numpy as np
from numpy.typing import NDArray

RopeLayout = Literal["interleaved", "neox"]
Activation = Literal["silu", "gelu"]


@dataclass(frozen=True)
class Value:
    """An activation [T, width]. `index` tells values apart, `label` says what it is."""

    index: int
    width: int
    label: str


@dataclass(frozen=True, eq=False)
class RopeTable:
    """How a layer rotates.

    turns: float64 [n_rot / 2], the turns (1 turn = 2 pi) that pair j advances per position, all scaling included.
    mscale: what the rotated dimensions are multiplied by (YaRN; else 1).
    layout: which dimensions pair up: "neox" (d, d + n_rot/2), "interleaved" (2d, 2d + 1).
    """

    turns: NDArray[np.float64]
    layout: RopeLayout
    mscale: float = 1.0

    @property
    def n_rot(self) -> int:
        """The number of leading dimensions of a head that rotate; the rest pass through."""
        return 2 * len(self.turns)


@dataclass(frozen=True)
class Embed:
    """out[t] = table[token t] * scale."""

    table: str
    scale: float
    out: Value


@dataclass(frozen=True)
class Norm:
    """out = x / sqrt(mean(x^2) + eps) * weight, over each token's whole row (RMSNorm)."""

    x: Value
    weight: str
    eps: float
    out: Value


@dataclass(frozen=True)
class Linear:
    """out = x @ weight.T (+ bias)."""

    x: Value
    weight: str
    bias: str | None
    out: Value


@dataclass(frozen=True)
class HeadNorm:
    """RMSNorm of each head on its own: x is [T, n_heads * head_dim], weight [head_dim] (QK-norm)."""

    x: Value
    weight: str
    eps: float
    head_dim: int
    out: Value


@dataclass(frozen=True)
class Rope:
    """Rotate each head of x [T, n_heads * head_dim] by its token's position."""

    x: Value
    head_dim: int
    table: RopeTable
    out: Value


@dataclass(frozen=True)
class Append:
    """Write k and v [T, n_kv_heads * head_dim] into the layer's cache, at the tokens' positions."""

    k: Value
    v: Value
    layer: int


@dataclass(frozen=True)
class Attend:
    """softmax(q k^T * scale) v over the layer's cache, positions 0 .. the token's own; grouped-query."""

    q: Value
    layer: int
    scale: float
    out: Value


@dataclass(frozen=True)
class Gate:
    """out = activation(gate) * up."""

    gate: Value
    up: Value
    activation: Activation
    out: Value


@dataclass(frozen=True)
class Add:
    """out = x + y."""

    x: Value
    y: Value
    out: Value


@dataclass(frozen=True)
class TakeOutputs:
    """Keep only the tokens whose logits the step was asked for: the last ones, out is [n_outputs, width]."""

    x: Value
    out: Value


Operation = Embed | Norm | Linear | HeadNorm | Rope | Append | Attend | Gate | Add | TakeOutputs


def inputs_of(operation: Operation) -> Iterator[Value]:
    """The values that an operation reads."""
    for field in fields(operation):
        value = getattr(operation, field.name)
        if field.name != "out" and isinstance(value, Value):
            yield value


@dataclass(frozen=True)
class Program:
    """A model's forward pass, and the sizes that an executor needs to run it."""

    operations: tuple[Operation, ...]
    logits: Value
    n_layers: int
    n_heads: int
    n_kv_heads: int
    head_dim: int
    n_embd: int
    vocab_size: int
    context_length: int

    def last_uses(self) -> dict[Value, int]:
        """Per value, the index of the last operation that reads it."""
        return {value: i for i, operation in enumerate(self.operations) for value in inputs_of(operation)}

    def weights(self) -> list[str]:
        """The names of all tensors that the pass reads, in the order of first use."""
        names: dict[str, None] = {}
        for operation in self.operations:
            for field in ("table", "weight", "bias"):
                name = getattr(operation, field, None)
                if isinstance(name, str):
                    names[name] = None
        return list(names)

    def tables_only(self) -> set[str]:
        """The embedding tables that no linear layer reads: a step reads a row of them, of all other weights all."""
        read = {operation.weight for operation in self.operations if isinstance(operation, Linear)}
        return {operation.table for operation in self.operations if isinstance(operation, Embed)} - read
