"""Runs a program in NumPy: the reference that the GPU is held against, and the executor where there is no GPU.

Weights are dequantised to float32 once, at load; a machine without the memory for that dequantises them as it goes.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

import numpy as np
from numpy.typing import NDArray

from cera_py.errors import OutOfMemoryError
from cera_py.executor import Executor, Progress
from cera_py.gguf_file import GgufFile
from cera_py.kernels import attention, embed, gate, linear, norm, rope
from cera_py.kernels.formats import format_of
from cera_py.operations import (
    Add,
    Append,
    Attend,
    Embed,
    Gate,
    HeadNorm,
    Linear,
    Norm,
    Program,
    Rope,
    RopeTable,
    TakeOutputs,
    Value,
)

Array = NDArray[np.float32]

_SHARE_OF_MEMORY = 0.75  # that dequantised weights may take


class CpuExecutor(Executor):
    """Float32 throughout, the cache too: [n_kv_heads, context, head_dim] a layer, for K and for V."""

    def __init__(self, program: Program, file: GgufFile, context: int, progress: Progress | None = None):
        self.name = "NumPy"
        self.max_tokens = self.max_outputs = 512
        self._program = program
        self._file = file
        self._weights: dict[str, Array] = {}
        self._last_use = program.last_uses()
        shape = (program.n_kv_heads, context, program.head_dim)
        try:
            self._k_cache = [np.zeros(shape, np.float32) for _ in range(program.n_layers)]
            self._v_cache = [np.zeros(shape, np.float32) for _ in range(program.n_layers)]
        except MemoryError:
            raise OutOfMemoryError(f"no memory for a context of {context:,} tokens: use a shorter --context") from None
        n_values = {name: int(np.prod(file.tensor(name).shape)) for name in program.weights()}
        if 4 * sum(n_values.values()) <= _SHARE_OF_MEMORY * _physical_memory():
            self._dequantize_all(list(n_values), progress)
        self.weight_bytes = 4 * sum(n for name, n in n_values.items() if name not in program.tables_only())

    def _dequantize_all(self, names: list[str], progress: Progress | None) -> None:
        with ThreadPoolExecutor() as pool:
            for done, (name, weight) in enumerate(zip(names, pool.map(self._dequantize, names), strict=True), 1):
                self._weights[name] = weight
                if progress:
                    progress("loading", done / len(names))

    def _dequantize(self, name: str) -> Array:
        tensor = self._file.tensor(name)
        weight = format_of(tensor.type).dequantize(tensor.data)
        return weight.reshape(tensor.shape)

    def _weight(self, name: str) -> Array:
        weight = self._weights.get(name)
        return self._dequantize(name) if weight is None else weight

    def close(self) -> None:
        """Drop weights and cache."""
        self._weights.clear()
        self._k_cache.clear()
        self._v_cache.clear()

    def step(self, ids: Sequence[int], position: int, n_outputs: int) -> Array:
        """See Executor."""
        program = self._program
        positions = np.arange(position, position + len(ids))  # [T]
        rotations: dict[RopeTable, NDArray[np.complex64]] = {}  # this step's, [T, n_rot / 2] a table
        values: dict[Value, Array] = {}

        def rotation(table: RopeTable) -> NDArray[np.complex64]:
            if table not in rotations:
                words = rope.turns_to_words(table.turns)
                rotations[table] = rope.rotations(positions, words, table.mscale)
            return rotations[table]

        def heads(x: Value, head_dim: int) -> Array:
            return values[x].reshape(len(ids), -1, head_dim)  # [T, heads, head_dim]

        def run(operation: object) -> None:
            match operation:
                case Linear(x, weight, bias, out):
                    values[out] = linear.reference(
                        values[x], self._weight(weight), self._weight(bias) if bias else None
                    )
                case Norm(x, weight, eps, out):
                    values[out] = norm.reference(values[x], self._weight(weight), eps)
                case Add(x, y, out):
                    values[out] = values[x] + values[y]
                case Rope(x, head_dim, table, out):
                    rotated = rope.rotate(heads(x, head_dim), rotation(table), table.layout)
                    values[out] = rotated.reshape(len(ids), -1)
                case Append(k, v, layer):
                    where = slice(position, position + len(ids))
                    self._k_cache[layer][:, where] = heads(k, program.head_dim).swapaxes(0, 1)
                    self._v_cache[layer][:, where] = heads(v, program.head_dim).swapaxes(0, 1)
                case Attend(q, layer, scale, out):
                    cache = (self._k_cache[layer], self._v_cache[layer])
                    attended = attention.reference(heads(q, program.head_dim), *cache, positions, scale)
                    values[out] = attended.reshape(len(ids), -1)
                case Gate(g, up, activation, out):
                    values[out] = gate.reference(values[g], values[up], activation)
                case HeadNorm(x, weight, eps, head_dim, out):
                    normed = norm.reference(heads(x, head_dim), self._weight(weight), eps)
                    values[out] = normed.reshape(len(ids), -1)
                case TakeOutputs(x, out):
                    values[out] = values[x][len(ids) - n_outputs :]
                case Embed(table, scale, out):
                    values[out] = embed.reference(self._weight(table), ids, scale)
                case _:
                    raise TypeError(f"no meaning in NumPy for {operation}")

        dead: dict[int, list[Value]] = {}
        for value, index in self._last_use.items():
            dead.setdefault(index, []).append(value)
        for index, operation in enumerate(program.operations):
            run(operation)
            for value in dead.get(index, ()):
                del values[value]
        return values[program.logits]


def _physical_memory() -> float:
    """Bytes of RAM, or infinity where the system does not say."""
    try:
        return float(os.sysconf("SC_PHYS_PAGES")) * os.sysconf("SC_PAGE_SIZE")
    except (AttributeError, ValueError, OSError):
        return float("inf")
