"""Weights on the GPU: each tensor repacked into the planes of its format, uploaded once however many layers read it."""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from cera_py.executor import Progress
from cera_py.gguf_file import GgufFile
from cera_py.gpu import Gpu
from cera_py.kernels.formats import Format, format_of
from cera_py.kernels.weights import row_pieces

_REPACK_AHEAD_BYTES = 128 << 20


@dataclass(frozen=True)
class Piece:
    """Rows row_at .. row_at + n_rows of a matrix, one buffer a plane."""

    row_at: int
    n_rows: int
    planes: dict[str, Any]


@dataclass(frozen=True)
class Matrix:
    """A matrix [n_rows, cols], in as many pieces as bindings need."""

    format: Format
    n_rows: int
    cols: int
    pieces: tuple[Piece, ...]

    @property
    def nbytes(self) -> int:
        """What it takes of GPU memory."""
        return sum(int(buffer.size) for piece in self.pieces for buffer in piece.planes.values())


class GpuWeights:
    """The tensors of a file, as kernels bind them.

    names: all that will be asked for, in about that order: their repacking runs ahead of their upload.
    """

    def __init__(self, gpu: Gpu, file: GgufFile, names: Sequence[str] = (), progress: Progress | None = None):
        self.gpu = gpu
        self.file = file
        self.uploaded_bytes = 0
        self._progress, self._n_tensors, self._n_loaded = progress, len(names), 0
        self._matrices: dict[tuple[str, ...], Matrix] = {}
        self._vectors: dict[tuple[str, ...], Any] = {}
        self._constants: dict[bytes, Any] = {}
        self._threads = ThreadPoolExecutor(2, "cera_py repack")
        self._to_repack = deque(name for name in names if len(file.tensor(name).shape) == 2)
        self._repacking: dict[str, Future[list[NDArray[np.uint8]]]] = {}

    def close(self) -> None:
        """End the threads that repack; what is on the GPU stays."""
        self._to_repack.clear()
        self._threads.shutdown(cancel_futures=True)

    def _repack(self, name: str) -> list[NDArray[np.uint8]]:
        tensor = self.file.tensor(name)
        return format_of(tensor.type).repack(tensor.data)

    def _repacked(self, name: str) -> list[NDArray[np.uint8]]:
        """The planes of a tensor, and a few of those that come next on their way."""
        ahead = sum(self.file.tensor(other).data.nbytes for other in self._repacking)
        while self._to_repack and ahead < _REPACK_AHEAD_BYTES:
            following = self._to_repack.popleft()
            self._repacking[following] = self._threads.submit(self._repack, following)
            ahead += self.file.tensor(following).data.nbytes
        future = self._repacking.pop(name, None)
        return future.result() if future else self._repack(name)

    def format(self, name: str) -> Format:
        """The format of a tensor."""
        return format_of(self.file.tensor(name).type)

    def can_join(self, names: tuple[str, ...]) -> bool:
        """Whether tensors can lie one below the other in one matrix: same format, whole elements, one binding."""
        tensors = [self.file.tensor(name) for name in names]
        fmt, cols = format_of(tensors[0].type), tensors[0].shape[1]
        largest_plane = max(fmt.plane_row_bytes(cols)) * sum(tensor.shape[0] for tensor in tensors)
        return (
            len({(tensor.type, tensor.shape[1]) for tensor in tensors}) == 1
            and all(tensor.shape[0] % 8 == 0 for tensor in tensors)
            and largest_plane <= self.gpu.max_binding_bytes
        )

    def matrix(self, *names: str) -> Matrix:
        """The matrix of one tensor, or of several one below the other (`can_join`)."""
        if names not in self._matrices:
            self._matrices[names] = self._upload(names)
        return self._matrices[names]

    def _upload(self, names: tuple[str, ...]) -> Matrix:
        tensors = [self.file.tensor(name) for name in names]
        fmt, cols = format_of(tensors[0].type), tensors[0].shape[1]
        n_rows = sum(tensor.shape[0] for tensor in tensors)
        row_bytes = fmt.plane_row_bytes(cols)
        pieces = []
        repacked = [self._repacked(name) for name in names]
        for first, count in row_pieces(n_rows, max(row_bytes), self.gpu.max_binding_bytes):
            planes = {}
            for i, (plane, size) in enumerate(zip(fmt.planes, row_bytes, strict=True)):
                buffer = self.gpu.empty(count * size, " + ".join(names))
                at = 0
                for parts in repacked:  # more than one only where all fit one piece
                    part = parts[i][first * size : (first + count) * size]
                    self.gpu.write(buffer, part, at)
                    at += part.nbytes
                planes[plane.name] = buffer
                self.uploaded_bytes += buffer.size
            pieces.append(Piece(first, count, planes))
        for _ in names:
            self._loaded()
        return Matrix(fmt, n_rows, cols, tuple(pieces))

    def _loaded(self) -> None:
        self._n_loaded += 1
        if self._progress and self._n_tensors:
            self._progress("loading", min(1.0, self._n_loaded / self._n_tensors))

    def vector(self, *names: str | None, sizes: tuple[int, ...] = ()) -> Any:
        """A float32 vector, or several end to end; None stands for zeros of the size given."""
        key = tuple(name or f"zeros {size}" for name, size in zip(names, sizes or (0,) * len(names), strict=True))
        if key not in self._vectors:
            parts = [
                self.file.tensor(name).data.reshape(-1).view(np.float32) if name else np.zeros(size, np.float32)
                for name, size in zip(names, sizes or (0,) * len(names), strict=True)
            ]
            self._vectors[key] = self.gpu.upload(np.concatenate(parts), key[0])
            self.uploaded_bytes += self._vectors[key].size
            self._loaded()
        return self._vectors[key]

    def constant(self, data: NDArray[Any], label: str) -> Any:
        """A small table that does not come from the file; equal ones share a buffer."""
        key = data.tobytes()
        if key not in self._constants:
            self._constants[key] = self.gpu.upload(data, label)
        return self._constants[key]
