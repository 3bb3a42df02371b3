"""The decode loop on the GPU: steps are submitted ahead of their results, so that the GPU never waits.

Token, position and counts of a step live in a buffer on the GPU that the last kernel of a greedy step advances, so step
n + 1 can be submitted before the token of step n is known here. Token ids come back through a ring of mapped buffers;
a stop that is found late only discards what ran ahead.
"""

from __future__ import annotations

import contextlib
import sys
from collections import deque
from collections.abc import Generator, Sequence

import numpy as np
from numpy.typing import NDArray

from cera_py.errors import ModelFileError, OutOfMemoryError
from cera_py.executor import NOT_NUMBERS, Executor, Progress
from cera_py.gguf_file import GgufFile
from cera_py.gpu import Gpu
from cera_py.gpu_weights import GpuWeights
from cera_py.kernels import argmax
from cera_py.lowering import TOKENS_AT, Cache, Lowering, StepSize, Work
from cera_py.native import Readback
from cera_py.operations import Program

MAX_TOKENS = 128  # of one prefill step: bounds the activations' memory
MAX_OUTPUTS = 16  # whose logits a step can return
TILE = 8  # tokens that a linear kernel takes at once in prefill
AHEAD = 4  # greedy steps that are submitted before the first one's token is read


class GpuExecutor(Executor):
    """Quantised weights, cache and activations on one GPU."""

    def __init__(self, gpu: Gpu, program: Program, file: GgufFile, context: int, progress: Progress | None = None):
        self.name = gpu.name
        self.max_tokens, self.max_outputs = min(MAX_TOKENS, context), MAX_OUTPUTS
        self._gpu = gpu
        self._turn = 0  # counts the calls that set a step
        self._program = program
        self._context = context
        self.weights = GpuWeights(gpu, file, program.weights(), progress)
        cache = self._make_cache(context)
        self._step = gpu.empty(4 * (TOKENS_AT + 2 * (self.max_tokens + TILE)), "step")
        self._one = Lowering(program, self.weights, cache, self._step, tile=1, max_tokens=1, max_outputs=1)
        self._many = Lowering(
            program, self.weights, cache, self._step, tile=TILE, max_tokens=self.max_tokens, max_outputs=MAX_OUTPUTS
        )
        self.weights.close()
        self._best = gpu.empty(8 * argmax.N_GROUPS, "best logits")
        self._results = gpu.empty(4 * argmax.N_RESULTS, "token ids")
        self._chosen = {lowering: self._choose(lowering) for lowering in (self._one, self._many)}
        self._ring = [gpu.readback(4) for _ in range(AHEAD)]
        self._logits = gpu.readback(4 * MAX_OUTPUTS * program.vocab_size)
        tables = [self.weights.matrix(name).nbytes for name in program.tables_only()]
        self.weight_bytes = self.weights.uploaded_bytes - sum(tables)

    def _make_cache(self, context: int) -> Cache:
        program, gpu = self._program, self._gpu
        nbytes = 2 * program.n_kv_heads * context * program.head_dim  # f16
        if nbytes > gpu.max_binding_bytes:
            largest = gpu.max_binding_bytes // (nbytes // context)
            raise OutOfMemoryError(
                f"a context of {context:,} tokens needs {nbytes:,} bytes of cache a layer, more than {gpu.name} "
                f"binds at once ({gpu.max_binding_bytes:,}): use --context {largest} or less"
            )
        layers = range(program.n_layers)
        self.cache_bytes = 2 * nbytes * program.n_layers
        return Cache(
            [gpu.empty(nbytes, f"K cache of layer {i}") for i in layers],
            [gpu.empty(nbytes, f"V cache of layer {i}") for i in layers],
            context,
        )

    def _choose(self, lowering: Lowering) -> Work:
        gpu, vocab_size = self._gpu, self._program.vocab_size
        best, step, results = self._best, self._step, self._results
        return [
            (
                gpu.dispatch(argmax.shader(gpu, vocab_size), {"step": step, "logits": lowering.logits, "best": best}),
                argmax.grid(),
            ),
            (gpu.dispatch(argmax.advance_shader(gpu), {"best": best, "step": step, "results": results}), (1, 1, 1)),
        ]

    def _set_step(self, ids: Sequence[int], position: int, n_outputs: int) -> tuple[Lowering, StepSize]:
        """Write the state of a step, and say what runs it."""
        self._turn += 1
        n_tokens = len(ids)
        state = np.zeros(TOKENS_AT + 2 * n_tokens, np.uint32)
        state[:3] = n_tokens, n_tokens - n_outputs, n_outputs
        state[TOKENS_AT::2] = ids
        state[TOKENS_AT + 1 :: 2] = np.arange(position, position + n_tokens)
        self._gpu.write(self._step, state)
        lowering = self._one if n_tokens == 1 else self._many
        return lowering, StepSize(n_tokens, n_outputs, position + n_tokens - 1)

    def step(self, ids: Sequence[int], position: int, n_outputs: int) -> NDArray[np.float32]:
        """See Executor."""
        lowering, size = self._set_step(ids, position, n_outputs)
        vocab_size = self._program.vocab_size
        if not n_outputs:
            self._gpu.submit(lowering.work(size))
            return np.empty((0, vocab_size), np.float32)
        nbytes = 4 * n_outputs * vocab_size
        copies = [(lowering.logits, 0, self._logits.buffer, 0, nbytes)]
        self._gpu.submit(lowering.work(size), copies, self._logits)
        return self._gpu.collect(self._logits, nbytes).view(np.float32).reshape(n_outputs, vocab_size)

    def greedy(self, ids: Sequence[int], position: int) -> Generator[int, None, None]:
        """See Executor; ends where the context is full."""
        pending: deque[Readback] = deque()
        n_submitted = 0

        def submit(lowering: Lowering, size: StepSize) -> None:
            nonlocal n_submitted
            readback = self._ring[n_submitted % AHEAD]
            copies = [(self._results, 4 * (n_submitted % argmax.N_RESULTS), readback.buffer, 0, 4)]
            self._gpu.submit(lowering.work(size) + self._chosen[lowering], copies, readback)
            pending.append(readback)
            n_submitted += 1

        submit(*self._set_step(ids, position, 1))
        turn = self._turn
        position += len(ids)
        try:
            while True:
                while len(pending) < AHEAD and position < self._context:
                    submit(self._one, StepSize(1, 1, position))
                    position += 1
                if not pending:
                    return
                token = int(self._gpu.collect(pending.popleft(), 4).view(np.uint32)[0])
                if token == argmax.NO_TOKEN:
                    raise ModelFileError(NOT_NUMBERS)
                yield token
        finally:
            # Collect what ran ahead of a stop, unless another call has the ring by now. Nobody reads it, so that a lost
            # device, or a Python that is ending, does not matter here.
            with contextlib.suppress(Exception):
                while pending and turn == self._turn and not sys.is_finalizing():
                    self._gpu.collect(pending.popleft())

    def close(self) -> None:
        """See Executor."""
        self._gpu.close()
