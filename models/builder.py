"""Writes a forward pass down, one operation after another, checking every tensor's shape on the way."""

from __future__ import annotations

from cera_py.errors import ModelFileError, UnsupportedModelError
from cera_py.gguf_file import GgufFile
from cera_py.kernels.formats import format_of
from cera_py.operations import (
    Activation,
    Add,
    Append,
    Attend,
    Embed,
    Gate,
    HeadNorm,
    Linear,
    Norm,
    Operation,
    Program,
    Rope,
    RopeTable,
    TakeOutputs,
    Value,
)


class Builder:
    """Each method adds one operation and returns its result.

    All raise ModelFileError for a tensor that is missing or has another shape than the hyperparameters say, and
    UnsupportedModelError for one whose type we lack.
    """

    def __init__(self, file: GgufFile):
        self.file = file
        self.operations: list[Operation] = []
        self._n_values = 0

    def _value(self, width: int, label: str) -> Value:
        self._n_values += 1
        return Value(self._n_values, width, label)

    def check(self, name: str, shape: tuple[int, ...]) -> str:
        """The name of a tensor, once it is known to be there, of this shape and of a type that we have."""
        tensor = self.file.tensor(name)
        if tensor.shape != shape:
            raise ModelFileError(
                f"{self.file.path}: tensor {name} has shape {list(tensor.shape)}, its hyperparameters say {list(shape)}"
            )
        try:
            format_of(tensor.type)
        except UnsupportedModelError as error:
            raise UnsupportedModelError(f"{self.file.path}: tensor {name}: {error}") from None
        if len(shape) == 1 and tensor.type != "F32":
            raise UnsupportedModelError(f"{self.file.path}: tensor {name} is {tensor.type}; vectors must be F32")
        return name

    def has(self, name: str) -> bool:
        """Whether the file has this tensor."""
        return name in self.file.tensors

    def embed(self, table: str, vocab_size: int, n_embd: int, scale: float = 1.0) -> Value:
        """The tokens' rows of a table [vocab_size, n_embd]."""
        out = self._value(n_embd, "embedding")
        self.operations.append(Embed(self.check(table, (vocab_size, n_embd)), scale, out))
        return out

    def norm(self, x: Value, weight: str, eps: float) -> Value:
        """RMSNorm over the row."""
        out = self._value(x.width, "normed")
        self.operations.append(Norm(x, self.check(weight, (x.width,)), eps, out))
        return out

    def linear(self, x: Value, weight: str, width: int) -> Value:
        """x @ weight.T, and plus the bias of the same name where the file has one."""
        bias = weight.removesuffix(".weight") + ".bias"
        out = self._value(width, weight)
        named = self.check(bias, (width,)) if self.has(bias) else None
        self.operations.append(Linear(x, self.check(weight, (width, x.width)), named, out))
        return out

    def head_norm(self, x: Value, weight: str, eps: float, head_dim: int) -> Value:
        """RMSNorm of each head."""
        out = self._value(x.width, "head-normed")
        self.operations.append(HeadNorm(x, self.check(weight, (head_dim,)), eps, head_dim, out))
        return out

    def rope(self, x: Value, head_dim: int, table: RopeTable) -> Value:
        """Rotate the heads of x."""
        out = self._value(x.width, "rotated")
        self.operations.append(Rope(x, head_dim, table, out))
        return out

    def append(self, k: Value, v: Value, layer: int) -> None:
        """Put k and v into the layer's cache."""
        self.operations.append(Append(k, v, layer))

    def attend(self, q: Value, layer: int, scale: float) -> Value:
        """Attention over the layer's cache."""
        out = self._value(q.width, "attended")
        self.operations.append(Attend(q, layer, scale, out))
        return out

    def gate(self, gate: Value, up: Value, activation: Activation) -> Value:
        """activation(gate) * up."""
        out = self._value(gate.width, "gated")
        self.operations.append(Gate(gate, up, activation, out))
        return out

    def add(self, x: Value, y: Value) -> Value:
        """x + y."""
        out = self._value(x.width, "residual")
        self.operations.append(Add(x, y, out))
        return out

    def take_outputs(self, x: Value) -> Value:
        """Only the tokens whose logits are wanted."""
        out = self._value(x.width, "outputs")
        self.operations.append(TakeOutputs(x, out))
        return out

    def program(self, logits: Value, **sizes: int) -> Program:
        """The finished forward pass. sizes: the other fields of `Program`."""
        return Program(tuple(self.operations), logits, **sizes)
